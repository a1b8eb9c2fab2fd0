//! German ordinals in digits: "im 19. Jahrhundert". Their dot looks like the end of a sentence, and their ending
//! follows from the words before them.

use super::words::MONTHS;
use crate::language::spoken::roman;

/// Words that begin a sentence and are no nouns. After them the dot ended one.
pub(super) const BEGINNINGS: [&str; 52] = [
    "Aber",
    "Also",
    "Am",
    "Auf",
    "Außerdem",
    "Bitte",
    "Da",
    "Danach",
    "Dann",
    "Das",
    "Der",
    "Die",
    "Dies",
    "Dort",
    "Du",
    "Ein",
    "Eine",
    "Er",
    "Es",
    "Für",
    "Gibt",
    "Haben",
    "Heute",
    "Hier",
    "Ich",
    "Ihr",
    "Im",
    "In",
    "Ist",
    "Ja",
    "Jetzt",
    "Kann",
    "Können",
    "Leider",
    "Mit",
    "Möchten",
    "Morgen",
    "Nein",
    "Nun",
    "Oder",
    "Sie",
    "Sind",
    "So",
    "Soll",
    "Und",
    "Wann",
    "Was",
    "Wenn",
    "Wie",
    "Wir",
    "Wo",
    "Zum",
];
/// Prepositions before "der": "in der zweiten Etage".
const PREPOSITIONS: [&str; 23] = [
    "ab",
    "an",
    "auf",
    "aus",
    "bei",
    "bis",
    "hinter",
    "in",
    "mit",
    "nach",
    "neben",
    "seit",
    "statt",
    "trotz",
    "unter",
    "von",
    "vor",
    "wegen",
    "während",
    "zu",
    "zwischen",
    "über",
    "gegenüber",
];
/// Neuter nouns after "ein": "ein zweites Mal".
const NEUTER: [&str; 12] = [
    "Angebot", "Auto", "Beispiel", "Buch", "Ergebnis", "Jahr", "Kind", "Mal", "Problem", "Spiel",
    "Stück", "Zimmer",
];

/// The text with its ordinals in words.
pub(super) fn spelled(text: &str) -> String {
    if !text.contains(|c: char| c.is_ascii_digit() || matches!(c, 'I' | 'V' | 'X')) {
        return text.to_owned();
    }
    let words: Vec<&str> = text.split(' ').collect();
    let mut spelled: Vec<String> = Vec::with_capacity(words.len());
    // The ending of the last ordinal and its position.
    let mut last: Option<(&str, usize)> = None;
    for (at, word) in words.iter().enumerate() {
        let found = number(word).and_then(|number| {
            if let Some((article, ending)) = ruler(&words, at) {
                let ends = if at + 1 == words.len() { "." } else { "" };
                return Some((
                    format!("{article} {}{ending}{ends}", ordinal(number)?),
                    ending,
                ));
            }
            let (ending, ends) = ending(&words, at, last)?;
            Some((format!("{}{ending}{ends}", ordinal(number)?), ending))
        });
        spelled.push(match found {
            Some((word, ending)) => {
                last = Some((ending, at));
                word
            }
            None => (*word).to_owned(),
        });
    }
    spelled.join(" ")
}

/// Kings, emperors and popes.
const RULERS: &str = "Albrecht|Alexander|Alfons|Benedikt|Charles|Christian|Clemens|Eduard|Ferdinand|Franz|Franziskus|Friedrich|Georg|Gregor|Gustav|Harald|Heinrich|Innozenz|Iwan|Jakob|Johann|Johannes|Joseph|Karl|Konrad|Leo|Leopold|Ludwig|Maximilian|Napoleon|Nikolaus|Otto|Paul|Peter|Philipp|Pius|Ramses|Richard|Rudolf|Urban|Wilhelm";
/// Queens and empresses.
const QUEENS: &str = "Elisabeth|Elizabeth|Katharina|Margarethe|Margrethe|Maria";

/// The article and the ending of the number of a king or a pope: "Ludwig XIV." is "Ludwig der vierzehnte". Behind any
/// other word, such as "Größe", the dot of a Roman numeral ends a sentence.
fn ruler(words: &[&str], at: usize) -> Option<(&'static str, &'static str)> {
    let before = |back: usize| at.checked_sub(back).map(|at| words[at]);
    let name = before(1).filter(|_| words[at].starts_with(['I', 'V', 'X']))?;
    let is_one_of = |names: &str| names.split('|').any(|known| known == name);
    let is_dative =
        before(2).is_some_and(|word| PREPOSITIONS.contains(&word.to_lowercase().as_str()));
    match (is_one_of(RULERS), is_one_of(QUEENS), is_dative) {
        (true, _, true) => Some(("dem", "n")),
        (true, ..) => Some(("der", "")),
        (_, true, true) => Some(("der", "n")),
        (_, true, false) => Some(("die", "")),
        _ => None,
    }
}

/// 19 of "19.", 14 of "XIV.".
fn number(word: &str) -> Option<usize> {
    let digits = word.strip_suffix('.')?;
    if digits.len() > 1 && digits.starts_with(['I', 'V', 'X']) {
        return roman(digits);
    }
    let fits = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| digits.parse().ok()).flatten()
}

/// The ending of the ordinal at a position, after its "e", and the dot if a sentence ends with it. `None` if it is a
/// plain number at the end of a sentence.
fn ending(
    words: &[&str],
    at: usize,
    last: Option<(&'static str, usize)>,
) -> Option<(&'static str, &'static str)> {
    let next = words[at + 1..]
        .iter()
        .find(|word| !word.is_empty())
        .copied();
    let goes_on = next.is_some_and(|next| {
        next.starts_with(char::is_alphabetic) && !BEGINNINGS.contains(&bare(next))
    });
    let before = |back: usize| at.checked_sub(back).map(|at| words[at]);
    let article = before(1).unwrap_or_default();
    let lower = article.to_lowercase();
    let ends = if goes_on { "" } else { "." };
    let only_date = ["am", "der", "den", "dem", "vom", "zum"].contains(&lower.as_str());
    if !goes_on
        && (!only_date || next.is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit())))
    {
        return None;
    }
    let ending = match lower.as_str() {
        "am" | "im" | "vom" | "zum" | "beim" | "zur" | "ins" | "dem" | "den" | "des" | "diesem"
        | "diesen" | "jedem" | "jeden" | "einem" | "einen" | "einer" | "meinem" | "meinen"
        | "meiner" | "ihrem" | "ihren" | "ihrer" | "seinem" | "seinen" | "seiner" => "n",
        // A date is the subject: "Montag, der zweite März".
        "der" if next.is_some_and(|next| MONTHS.contains(&bare(next))) => "",
        "der" | "dieser" | "jeder" => match before(2) {
            Some(word) if PREPOSITIONS.contains(&word.to_lowercase().as_str()) => "n",
            // "Am Ende der zweiten Halbzeit".
            Some(word) if at > 2 && goes_on && is_noun(word) => "n",
            _ => "",
        },
        "die" | "das" | "diese" | "dieses" | "jede" | "jedes" | "eine" | "keine" | "meine"
        | "ihre" | "seine" | "unsere" => "",
        "ein" | "kein" | "mein" | "sein" | "ihr" => match next {
            Some(noun) if NEUTER.contains(&bare(noun)) => "s",
            _ => "r",
        },
        "und" | "oder" | "bis" => last.filter(|(_, before)| before + 2 == at)?.0,
        _ => {
            // "1. bis 3. Oktober".
            let second = words.get(at + 2).copied().and_then(number);
            second.filter(|_| next == Some("bis"))?;
            "r"
        }
    };
    Some((ending, ends))
}

/// Whether a word has a capital and no mark after it.
fn is_noun(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && word.ends_with(char::is_alphanumeric)
}

fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

/// "dritte": the form after "der".
pub(super) fn ordinal(number: usize) -> Option<String> {
    const NAMES: [&str; 20] = [
        "",
        "erste",
        "zweite",
        "dritte",
        "vierte",
        "fünfte",
        "sechste",
        "siebte",
        "achte",
        "neunte",
        "zehnte",
        "elfte",
        "zwölfte",
        "dreizehnte",
        "vierzehnte",
        "fünfzehnte",
        "sechzehnte",
        "siebzehnte",
        "achtzehnte",
        "neunzehnte",
    ];
    const UNITS: [&str; 10] = [
        "", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun",
    ];
    const TENS: [&str; 10] = [
        "", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig",
        "neunzig",
    ];
    let hundreds = match number / 100 {
        0 => String::new(),
        1 => "hundert".to_owned(),
        count => format!("{}hundert", UNITS.get(count)?),
    };
    let rest = match number % 100 {
        0 if hundreds.is_empty() => return None,
        0 => "ste".to_owned(),
        rest @ 1..20 => NAMES[rest].to_owned(),
        rest if rest % 10 == 0 => format!("{}ste", TENS[rest / 10]),
        rest => format!("{}und{}ste", UNITS[rest % 10], TENS[rest / 10]),
    };
    Some(hundreds + &rest)
}
