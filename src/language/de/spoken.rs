//! Written German to spoken words, where espeak-ng would get it wrong. It reads plain numbers, decimals with a comma
//! and ordinals by itself.

use crate::language::en::spoken::{Phrase, cut};
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(super) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    cut(&speakable(text), most_words)
}

type Say = fn(&Captures<'_>) -> String;

const MONTHS: [&str; 12] = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
];

/// Patterns and what is said, applied in this order.
static RULES: LazyLock<Vec<(Regex, Say)>> = LazyLock::new(|| {
    let rules: [(&str, Say); 16] = [
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", |found| address(&found[0])),
        (
            r"(?:\b([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) )?\b(\d{1,2})\.(\d{1,2})\.(\d{4})?",
            date,
        ),
        (
            r"(?:\b([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) )?\b(\d{1,2})\. (Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b",
            |found| format!("{} {}", day(found), &found[3]),
        ),
        (r"\b(\d{1,2}):(\d{2})(?: ?Uhr)?\b", |found| {
            clock(&found[1], &found[2])
        }),
        (
            r"(-?)\b(\d+(?:\.\d{3})*)(?:,(\d{2}))? ?(€|EUR\b|Euro\b|\$|USD\b|£|GBP\b|CHF\b)",
            money,
        ),
        (r"([€$£]) ?(\d+(?:\.\d{3})*)(?:,(\d{2}))?", |found| {
            amount(&found[2], found.get(3).map(|c| c.as_str()), &found[1])
        }),
        (r"(\d)\.(\d{3})\b", |found| {
            format!("{}{}", &found[1], &found[2])
        }),
        (r"(\d)\.(\d{3})\b", |found| {
            format!("{}{}", &found[1], &found[2])
        }),
        (r"\+?\b\d(?:[\d /-]{5,})\d\b", |found| digits(&found[0])),
        (r"(\d) ?%", |found| format!("{} Prozent", &found[1])),
        (r"(\d) ?°C\b", |found| {
            format!("{} Grad Celsius", &found[1])
        }),
        (r"(\d) ?°F\b", |found| {
            format!("{} Grad Fahrenheit", &found[1])
        }),
        (r"(\d) ?°", |found| format!("{} Grad", &found[1])),
        (
            r"(\d) ?(km/h|km|cm|mm|kg|ml|kWh|kW|m|g|l|h|min|Std\.|Min\.)(?:\b|$| )",
            unit,
        ),
        (
            r"\b(z\. ?B\.|d\. ?h\.|usw\.|bzw\.|ca\.|Nr\.|Dr\.|Hr\.|Fr\.|inkl\.|evtl\.|ggf\.)",
            abbreviation,
        ),
        (r"(\d)-(\d)", |found| {
            format!("{} bis {}", &found[1], &found[2])
        }),
    ];
    rules
        .into_iter()
        .filter_map(|(pattern, say)| Some((Regex::new(pattern).ok()?, say)))
        .collect()
});

fn speakable(text: &str) -> String {
    let text = text.replace(['’', '‘'], "'").replace('−', "-");
    RULES.iter().fold(text, |text, (pattern, say)| {
        pattern.replace_all(&text, say).into_owned()
    })
}

/// "anna ät beispiel Punkt de"
fn address(text: &str) -> String {
    text.chars().fold(String::new(), |mut said, c| {
        match c {
            '@' => said.push_str(" ät "),
            '.' => said.push_str(" Punkt "),
            '-' => said.push_str(" Bindestrich "),
            '_' => said.push_str(" Unterstrich "),
            '+' => said.push_str(" Plus "),
            c => said.push(c),
        }
        said
    })
}

/// The day of "der 3. März": the form behind "der"; espeak-ng would read the dot as an end.
fn ordinal(day: &str) -> String {
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
        "",
        "einund",
        "zweiund",
        "dreiund",
        "vierund",
        "fünfund",
        "sechsund",
        "siebenund",
        "achtund",
        "neunund",
    ];
    match day.parse::<usize>() {
        Ok(day @ 1..20) => NAMES[day].to_owned(),
        Ok(day @ 20..30) => format!("{}zwanzigste", UNITS[day - 20]),
        Ok(day @ 30..32) => format!("{}dreißigste", UNITS[day - 30]),
        _ => day.to_owned(),
    }
}

/// "am dritten", "dritte".
fn day(found: &Captures<'_>) -> String {
    let ordinal = ordinal(found[2].trim_start_matches('0'));
    match found.get(1) {
        Some(before) => format!("{} {ordinal}n", before.as_str()),
        None => ordinal,
    }
}

fn date(found: &Captures<'_>) -> String {
    let month: usize = found[3].parse().unwrap_or_default();
    let Some(name) = month.checked_sub(1).and_then(|month| MONTHS.get(month)) else {
        return found[0].to_owned();
    };
    let day = day(found);
    let year = found
        .get(4)
        .map_or(String::new(), |year| format!(" {}", year.as_str()));
    format!("{day} {name}{year}")
}

fn clock(hour: &str, minute: &str) -> String {
    let plain = |number: &str| match number.trim_start_matches('0') {
        "" => "0".to_owned(),
        number => number.to_owned(),
    };
    match plain(minute).as_str() {
        "0" => format!("{} Uhr", plain(hour)),
        minute => format!("{} Uhr {minute}", plain(hour)),
    }
}

fn money(found: &Captures<'_>) -> String {
    let minus = if found[1].is_empty() { "" } else { "minus " };
    let said = amount(
        &found[2],
        found.get(3).map(|cents| cents.as_str()),
        &found[4],
    );
    format!("{minus}{said}")
}

fn amount(whole: &str, cents: Option<&str>, sign: &str) -> String {
    let name = match sign {
        "$" | "USD" => "Dollar",
        "£" | "GBP" => "Pfund",
        "CHF" => "Franken",
        _ => "Euro",
    };
    let whole = whole.replace('.', "");
    let one = if whole == "1" { "ein" } else { &whole };
    match cents.map(|cents| cents.trim_start_matches('0')) {
        None | Some("") => format!("{one} {name}"),
        Some(cents) => format!("{one} {name} {cents}"),
    }
}

/// Digit by digit, as telephone numbers are said.
fn digits(text: &str) -> String {
    let plus = if text.starts_with('+') { "plus " } else { "" };
    let all = text.chars().filter(char::is_ascii_digit).map(String::from);
    format!("{plus}{}", all.collect::<Vec<_>>().join(" "))
}

fn unit(found: &Captures<'_>) -> String {
    let name = match &found[2] {
        "km/h" => "Kilometer pro Stunde",
        "km" => "Kilometer",
        "cm" => "Zentimeter",
        "mm" => "Millimeter",
        "kg" => "Kilogramm",
        "ml" => "Milliliter",
        "kWh" => "Kilowattstunden",
        "kW" => "Kilowatt",
        "m" => "Meter",
        "g" => "Gramm",
        "l" => "Liter",
        "h" | "Std." => "Stunden",
        _ => "Minuten",
    };
    let space = if found[0].ends_with(' ') { " " } else { "" };
    format!("{} {name}{space}", &found[1])
}

fn abbreviation(found: &Captures<'_>) -> String {
    let compact = found[1].replace(' ', "");
    let words = match compact.as_str() {
        "z.B." => "zum Beispiel",
        "d.h." => "das heißt",
        "usw." => "und so weiter",
        "bzw." => "beziehungsweise",
        "ca." => "circa",
        "Nr." => "Nummer",
        "Dr." => "Doktor",
        "Hr." => "Herr",
        "Fr." => "Frau",
        "inkl." => "inklusive",
        "evtl." => "eventuell",
        _ => "gegebenenfalls",
    };
    words.to_owned()
}
