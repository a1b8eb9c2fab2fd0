//! Written German to spoken words, where espeak-ng would get it wrong. It reads plain numbers and decimals with a comma
//! by itself.

use super::words::{self, MONTHS};
use super::{one, ordinals};
use crate::language::figures::{self, Between};
use crate::language::spoken::{
    ARROW, BOUND, GAS, INSTANT, PAGE, POWER, Phrase, Rules, SITE, STEP, Say, bound, cut, exponent,
    instant, measured, one_by_one, roman, sign, with_names, without_zeros, written_out,
};
use regex::Captures;
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(super) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    let whole = NAMES.applied(text);
    cut(&RULES.applied(&ordinals::spelled(&whole)), most_words)
}

/// Short names of days and months, and Roman numerals behind what they number, before ordinals are told from plain
/// numbers by the words around them.
static NAMES: LazyLock<Rules> = LazyLock::new(|| {
    let rules: Vec<(&str, Say)> = vec![
        (INSTANT, |found| instant(found, "um")),
        (
            r"((?:\d\. ?|\b(?:[Ii]m|[Aa]b|[Bb]is|[Ss]eit|Anfang|Mitte|Ende) ))(Jan|Febr?|Mär|Mrz|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez)\.(\s*$)?",
            |found| {
                let stop = if found.get(3).is_some() { "." } else { "" };
                format!("{}{}{stop}", &found[1], month(&found[2]))
            },
        ),
        (
            r"\b(Jan|Febr?|Mär|Mrz|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez)\.( \d{4}\b| bis )",
            |found| format!("{}{}", month(&found[1]), &found[2]),
        ),
        (
            r"\b(Mo|Di|Mi|Do|Fr|Sa|So)\.? bis (Mo|Di|Mi|Do|Fr|Sa|So)\b(?:(\.\s*$)|\.)?",
            |found| {
                let stop = found.get(3).map_or("", |stop| stop.as_str());
                let (first, last) = (week_day(&found[1]), week_day(&found[2]));
                format!("{first} bis {last}{stop}")
            },
        ),
        (
            r"\b((?:[Aa]m|[Bb]is|[Aa]b) )(Mo|Di|Mi|Do|Fr|Sa|So)\.( [a-zäöü\d]|,|\s*$)",
            |found| {
                let stop = if found[3].trim().is_empty() { "." } else { "" };
                format!("{}{}{stop}{}", &found[1], week_day(&found[2]), &found[3])
            },
        ),
        (
            r"\b(Mo|Di|Mi|Do|Fr|Sa|So)\.(,? (?:\d|den |um |ab ))",
            |found| format!("{}{}", week_day(&found[1]), &found[2]),
        ),
        (
            r"\b(Mo|Di|Mi|Do|Fr|Sa)(, (?:den )?\d{1,2}\.|,? \d{1,2}(?:[.:]\d\d)?(?: ?[–-] ?\d{1,2}(?:[.:]\d\d)?)? ?Uhr)",
            |found| format!("{}{}", week_day(&found[1]), &found[2]),
        ),
        (
            r"\b(Kapitel|Teil|Band|Akt|Typ|Phase|Stufe|Klasse|Artikel|Buch) ([IVXL]+)\b",
            |found| match roman(&found[2]) {
                Some(number) => format!("{} {number}", &found[1]),
                None => found[0].to_owned(),
            },
        ),
    ];
    Rules::new(rules)
});

/// Patterns and what is said, applied in this order.
static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let months = MONTHS.join("|");
    let (one, half) = (one::pattern(), one::half_pattern());
    let rules: Vec<(&str, Say)> = vec![
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", |found| address(&found[0])),
        (PAGE, |found| address(&found[1])),
        (SITE, |found| address(&found[1])),
        (SPELLED, |found| {
            format!("{}{}", &found[1], one_by_one(&found[2]))
        }),
        (r"(\d),[-–—]+", |found| found[1].to_owned()),
        (r"\b(Abs\. ?\d+) S\. ?(\d)", |found| {
            format!("{} Satz {}", &found[1], &found[2])
        }),
        (r"\b(Art|Abs|Kap|Bd|Abb|Tel|S)\. ?(\d)", |found| {
            format!("{} {}", written_out(&found[1], ABBREVIATIONS), &found[2])
        }),
        (r"(\p{L}*[Ss])tr\.( ?\d| \p{Ll}|,|\s*$)", |found| {
            let stop = if found[2].trim().is_empty() { "." } else { "" };
            format!("{}traße{stop}{}", &found[1], &found[2])
        }),
        (r"\bSt\. ?(\p{Lu})", |found| format!("Sankt {}", &found[1])),
        (r"§§ ?", |_| "Paragrafen ".to_owned()),
        (r" ?/ ?(100 ?km)\b", |found| format!(" pro {}", &found[1])),
        (TIMES, times),
        (DAYS, |found| {
            let stop = if found.get(3).is_some() { "." } else { "" };
            let (first, last) = (week_day(&found[1]), week_day(&found[2]));
            format!("{first} bis {last}{stop}")
        }),
        (r"\b(MONTH) ?[-–] ?(MONTH)\b", |found| {
            format!("{} bis {}", &found[1], &found[2])
        }),
        (r"\b(\d{4})-(0\d|1[0-2])-([0-2]\d|3[01])\b", |found| {
            let (month, day) = (without_zeros(&found[2]), without_zeros(&found[3]));
            format!("{day}.{month}.{}", &found[1])
        }),
        (
            r"\b([0-2]?\d|3[01])[/-](0?\d|1[0-2])[/-](\d{4})\b",
            |found| format!("{}.{}.{}", &found[1], &found[2], &found[3]),
        ),
        (
            r"(?:\b([Vv]om) )?\b(\d{1,2})\. ?[-–] ?(\d{1,2})\. (MONTH)\b",
            days,
        ),
        (
            r"\b(\d{1,2}\.(?:\d{1,2}\.(?:\d{4})?)?) ?[-–] ?(\d{1,2}\.)",
            |found| format!("{} bis {}", &found[1], &found[2]),
        ),
        (
            r"(?:\b(?:([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) |((?:NUMBERED)[ -])))?\b(\d+(?:\.\d+)+)(\.?)(\s*$)?",
            date,
        ),
        (
            r"(?:\b([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) )?\b(\d{1,2})\. (MONTH)\b",
            |found| {
                let before = found.get(1).map(|before| before.as_str());
                format!("{} {}", day(before, &found[2]), &found[3])
            },
        ),
        (figures::US_DOLLAR, |_| "$".to_owned()),
        (IDENTIFIER, figures::identifier),
        (figures::ENGLISH, figures::from_english),
        (figures::TELEPHONE, |found| {
            figures::telephone(&found[0], "plus")
        }),
        (figures::GROUPS, |found| {
            figures::groups(&found[0], |_| false)
        }),
        (figures::YEARS, |found| {
            format!("{} {}", &found[1], &found[2])
        }),
        (
            r"\b(\d+(?:[.,]\d+)*) ?(Mio|Mrd|Tsd)\b\.?(\s*$)?",
            short_scale,
        ),
        (figures::PRICES, |found| figures::prices(found, &BETWEEN)),
        (figures::MEASURES, |found| {
            format!("{} bis {}", &found[1], &found[2])
        }),
        (figures::MEASURES_APART, |found| {
            figures::measures(found, &BETWEEN)
        }),
        (APART, |found| format!("{}, {}", &found[1], &found[2])),
        (figures::CHAIN, |found| figures::chain(&found[0], &BETWEEN)),
        (
            r"(-?)(?:[€$£] ?|\b)(\d+(?:\.\d{3})*)(?:,(\d+))?( SCALE)? ?(€|EUR\b|Euro\b|\$|USD\b|£|GBP\b|CHF\b)",
            |found| money(found, 2, &found[1], &found[5]),
        ),
        (
            r"(-?)([€$£]) ?(\d+(?:\.\d{3})*)(?:,(\d+))?( SCALE\b)?",
            |found| money(found, 3, &found[1], &found[2]),
        ),
        (CODE, figures::code),
        (POSTCODE, figures::identifier),
        (
            r"\b(\d{1,2})(?::(\d{2})(?: ?(?:Uhr|h))?|\.(\d{2}) ?Uhr)\b",
            |found| {
                let minute = found.get(2).or_else(|| found.get(3));
                clock(&found[1], minute.map_or("", |minute| minute.as_str()))
            },
        ),
        (figures::SCORE, |found| {
            format!("{} zu {}", &found[1], &found[2])
        }),
        (figures::DOTTED, |found| figures::dotted(&found[0], "Punkt")),
        (r"(\d) ?%", |found| format!("{} Prozent", &found[1])),
        (r"(\d) ?°C\b", |found| {
            format!("{} Grad Celsius", &found[1])
        }),
        (r"(\d) ?°F\b", |found| {
            format!("{} Grad Fahrenheit", &found[1])
        }),
        (r"(\d) ?°", |found| format!("{} Grad", &found[1])),
        (r"([\d½]) ?(km²|m²|cm²|m³)", |found| {
            measured(found, UNITS)
        }),
        (
            r"([\d½]) ?(km/h|m/s|MB/s|Mbit/s|Gbit/s|km|cm|mm|kg|mg|µg|μg|ml|cl|dl|kcal|mAh|kWh|kW|W|V|GB|MB|TB|m|g|l|h|min|TL|EL|Std\.|Min\.|Sek\.)(?:\b|$| )",
            |found| measured(found, UNITS),
        ),
        (
            r"\b(u\. ?v\. ?[am]\.|[Uu]\. ?a\.|[ou]\. ?[äÄ]\.|e\. ?V\.|[vn]\. ?Chr\.|s\. ?[ou]\.|[Ii]\. ?d\. ?R\.|n\. ?V\.|usw\.|etc\.|Hbf\.|ff\.)(\s*$)?",
            |found| {
                let stop = if found.get(2).is_some() { "." } else { "" };
                format!("{}{stop}", written_out(&found[1], ABBREVIATIONS))
            },
        ),
        (
            r"\b([Zz]\. ?B\.|[Dd]\. ?h\.|[Vv]\. ?a\.|u\. ?U\.|z\. ?T\.|z\. ?Zt\.|m\. ?E\.|z\. ?Hd\.|[Oo]\. ?g\.|bzw\.|[Cc]a\.|MwSt\.|Nr\.|Prof\.|Dr\.|Hr\.|Fr\.|inkl\.|evtl\.|ggf\.|geb\.|gest\.|gegr\.|[Vv]gl\.|zzgl\.|abzgl\.|bzgl\.|einschl\.|exkl\.|sog\.|ehem\.|med\.|max\.|[Mm]ind\.|Temp\.)",
            |found| written_out(&found[1], ABBREVIATIONS),
        ),
        (RATE, |found| figures::rate(found, "pro", RATES)),
        (
            r" ?/ ?(Sekunde|Minute|Stunde|Tag|Woche|Monat|Jahr|Nacht|Person|Stück|Liter|kg)\b",
            |found| format!(" pro {}", written_out(&found[1], RATES)),
        ),
        (r"\b24/7\b", |_| "24 7".to_owned()),
        (r"\b1(?: 1/2\b| ?½)", |_| "eineinhalb".to_owned()),
        (r"\b(\d+)(?: 1/2\b| ?½)", |found| {
            format!("{} einhalb", &found[1])
        }),
        (half.as_str(), one::half),
        (r"[½¼¾⅓⅔]", |found| written_out(&found[0], PARTS)),
        (figures::FRACTION, fraction),
        (figures::PRODUCT, |found| {
            found[0].replace(['*', '×', 'x'], " mal ")
        }),
        (figures::TIMES, |found| format!("{} mal", &found[1])),
        (figures::QUOTIENT, |found| {
            format!("{} geteilt durch {}", &found[1], &found[2])
        }),
        (POWER, |found| {
            format!("{} hoch {}", &found[1], exponent(found))
        }),
        (GAS, |_| "C O 2".to_owned()),
        (BOUND, |found| bound(found, "weniger als", "mehr als")),
        (STEP, |found| format!("{}, {}", &found[1], &found[2])),
        (ARROW, |_| ", ".to_owned()),
        (r"# ?(\d)", |found| format!("Nummer {}", &found[1])),
        (figures::SIGNS, |found| sign(found, SIGNS)),
        (r"\s[-–—]+\s", |_| ", ".to_owned()),
        (one::TO_MORE, one::to_more),
        (one.as_str(), one::one),
    ];
    let rules = rules.into_iter().map(|(pattern, say)| {
        let pattern = pattern.replace("MONTH", &months);
        let pattern = pattern.replace("NUMBERED", NUMBERED);
        (pattern.replace("SCALE", SCALE), say)
    });
    Rules::new(rules)
});

const BETWEEN: Between = Between {
    to: "bis",
    score: "zu",
    minus: "minus",
    counted: "Artikel|Stück|Stücke|Teile|Packungen|Portionen|Flaschen|Personen|Gäste|Kinder|Erwachsene|Nächte|Übernachtungen|Tage|Wochen|Monate|Jahre|Stunden|Minuten|Sekunden|Uhr|Karten|Tickets|Zimmer|Plätze|Tische|Termine|Kurse|Seiten|Bücher|Bilder|Fotos|Sterne|Bewertungen|Punkte|Kilometer|km|kg|min|h|Prozent|%|°",
};

/// Names that stand before a version, not before a date: of parts of a text and of products.
const NUMBERED: &str = r"Version|Kapitel|Abschnitt|Absatz|Artikel|Ziffer|Punkt|Release|Build|Firmware|iOS|iPadOS|macOS|MacOS|watchOS|tvOS|visionOS|Android|Bluetooth|Chrome|Debian|Docker|Edge|Fedora|Firefox|GPT|ChatGPT|Claude|Gemini|Llama|HDMI|HTTP|Java|JavaScript|TypeScript|Kotlin|Kubernetes|LibreOffice|Linux|MariaDB|MySQL|Node|PHP|PostgreSQL|Python|Ruby|Rust|Safari|SQLite|Swift|TLS|Ubuntu|USB|Windows";

/// Something with a number, in the group 1, and behind a dash with spaces a number of something else in 2.
const APART: &str = r"\b((?:Schritt|Option|Variante|Zimmer|Raum|Tisch|Flug|Gleis|Teil|Stufe|Paket|Platz|Tag) (?:[A-Z]{2} ?)?\d+) [-–] (\d+(?:[.,]\d+)*(?::\d\d| ?[€$£%°]| (?:km|kg|min|h|m|g|l)\b| \p{Lu}))";

/// A long number without dots, with a word before it that names it and what comes after it.
const IDENTIFIER: &str = r"((?i:nummer|code|pin|telefon|tel\.|handy|konto)(?:\W+\p{L}+){0,2}\W+|[€$£] ?|\d ?[-–/] ?|\d )?\b(\d{7,})\b([.,]\d| ?[-–/] ?\d| \d| ?[\p{Lu}€$£%°])?";

/// Digits after a word for something that people read digit by digit however short it is, also at the end of a compound;
/// in the group 3 what they count.
const CODE: &str = r#"((?i:\b(?:\p{L}*(?:code|kennung|kennziffer|kennwort|passwort)|\p{L}+nummer|(?:\p{L}+-)?(?:pin|tan|id)|durchwahl|aktenzeichen|kennzeichen)(?:[\s:#*„“"]+(?:ist|lautet|war|die)){0,2}[\s:#*„“"]+))(\d{4,6})\b( ?[%€$£°]| \p{Lu}\p{Ll})?"#;

/// Letters and digits, in the group 2, behind a word for something that people spell.
const SPELLED: &str = r#"((?i:\b(?:\p{L}*(?:code|nummer|kennung|kennzeichen|referenz|passwort)|(?:\p{L}+-)?(?:pin|tan|id))(?:[\s:#*„“"]+(?:ist|lautet|war|die)){0,2}[\s:#*„“"]+|\bbestellung #))((?:[A-Z0-9]+-)*[A-Z0-9]*(?:[A-Z]-?\d|\d-?[A-Z])[A-Z0-9]*(?:-[A-Z0-9]+)*)\b"#;

/// Digits that stand before the name of a place.
const POSTCODE: &str = r#"((?i:\b(?:\p{L}*leitzahl|plz)(?:[\s:#*„“"]+(?:ist|lautet|war|die)){0,2}[\s:#*„“"]+))(\d{4,6})\b"#;

/// An amount or a measure, in the group 1, and the short unit that it is for, in 2; in 3 the beginning of a word behind
/// its dot.
const RATE: &str = r"(\d|[€$£]|\b(?:Euro|Dollar|Pfund|Cent|Franken|Rappen|Pence)|\d (?:Kilometer|Zentimeter|Millimeter|Meter|Kilogramm|Milligramm|Gramm|Milliliter|Liter|Kilowattstunden|Kilowatt|Gigabyte|Megabyte|Terabyte|Stunden|Minuten)) ?/ ?((?:km|kWh|GB|min|Min|Std|h|g|l)\b|m²|m³)(?:\.( \p{Ll}))?";

/// Numbers in words, which stay as they are before the name of a currency.
const SCALE: &str = "(?:Tausend|tausend|Million(?:en)?|Milliarden?|Billion(?:en)?)";

/// Two times with dots in them, with the words between them in the group 3: "8.30 bis 17.00 Uhr".
const TIMES: &str =
    r"\b(\d{1,2})\.(\d{2})( ?[-–] ?| bis | und | oder )(\d{1,2})(?:\.(\d{2}))? ?Uhr\b";

/// Two days of the week, of which the first two letters are in the groups 1 and 2. In 3 the end of the text behind the dot
/// of an abbreviation.
const DAYS: &str = r"\b(Mo|Di|Mi|Do|Fr|Sa|So)(?:[a-z]*tag|ttwoch|\.)? ?[-–] ?(Mo|Di|Mi|Do|Fr|Sa|So)(?:(?:[a-z]*tag|ttwoch)\b|\.(\s*$)?|\b)";

/// "anna ät beispiel Punkt de"
fn address(text: &str) -> String {
    let signs = [
        ("@", "ät"),
        (".", "Punkt"),
        ("-", "Bindestrich"),
        ("_", "Unterstrich"),
        ("+", "Plus"),
    ];
    with_names(text, &signs)
}

/// "am dritten", "dritte".
fn day(before: Option<&str>, number: &str) -> String {
    let ordinal = number.parse().ok().and_then(ordinals::ordinal);
    let ordinal = ordinal.unwrap_or_else(|| number.to_owned());
    match before {
        Some(before) => format!("{before} {ordinal}n"),
        None => ordinal,
    }
}

/// "3.–5. Mai" as "dritter bis fünfter Mai".
fn days(found: &Captures<'_>) -> String {
    let (first, last) = (day(None, &found[2]), day(None, &found[3]));
    match found.get(1) {
        Some(from) => format!("{} {first}n bis {last}n {}", from.as_str(), &found[4]),
        None => format!("{first}r bis {last}r {}", &found[4]),
    }
}

/// Numbers with dots between them, if they are a date. In the group 1 the word before it, in 2 a name that shows a
/// version unless a whole year follows, in 3 the numbers, in 4 a dot after them and in 5 the end of the text.
fn date(found: &Captures<'_>) -> String {
    let before = found.get(1).map(|before| before.as_str());
    let name = found.get(2).map(|name| name.as_str());
    let numbers: Vec<&str> = found[3].split('.').collect();
    let two_digits = |number: &&str| number.len() == 2 && *number < "32";
    let is_short_date =
        |numbers: [&str; 2]| name.is_none() && (before.is_some() || numbers.iter().all(two_digits));
    let (numbers, dot) = match (numbers.as_slice(), &found[4], found.get(5)) {
        (&[day, month], ".", None) if name.is_none() => ([day, month, ""], ""),
        (&[day, month], ".", Some(_)) if name.is_none() => ([day, month, ""], "."),
        (&[day, month, year], dot, _)
            if year.len() == 4 || year.len() == 2 && is_short_date([day, month]) =>
        {
            ([day, month, year], dot)
        }
        _ => return found[0].to_owned(),
    };
    match figures::date(numbers[0], numbers[1]) {
        Some((_, month)) => {
            let (name, day) = (name.unwrap_or_default(), day(before, numbers[0]));
            let year = if numbers[2].is_empty() { "" } else { " " };
            format!("{name}{day} {}{year}{}{dot}", MONTHS[month], numbers[2])
        }
        None => found[0].to_owned(),
    }
}

/// "2,5 Mio." as "2,5 Millionen", "1 Mrd." as "1 Milliarde".
fn short_scale(found: &Captures<'_>) -> String {
    let scale = match (&found[2], &found[1]) {
        ("Mio", "1") => "Million",
        ("Mio", _) => "Millionen",
        ("Mrd", "1") => "Milliarde",
        ("Mrd", _) => "Milliarden",
        _ => "Tausend",
    };
    let stop = if found.get(3).is_some() { "." } else { "" };
    format!("{} {scale}{stop}", &found[1])
}

/// "8.30 bis 17.00 Uhr" as "8:30 bis 17:00 Uhr".
fn times(found: &Captures<'_>) -> String {
    let between = match found[3].trim() {
        "-" | "–" => "bis",
        word => word,
    };
    let minute = found
        .get(5)
        .map_or(String::new(), |minute| format!(":{}", minute.as_str()));
    format!(
        "{}:{} {between} {}{minute} Uhr",
        &found[1], &found[2], &found[4]
    )
}

/// "Dezember" of "Dez".
fn month(short: &str) -> &str {
    let short = if short == "Mrz" { "Mär" } else { short };
    let begins = |month: &&&str| month.starts_with(short);
    MONTHS.iter().find(begins).map_or(short, |month| month)
}

/// "Montag" of "Mo".
fn week_day(short: &str) -> &str {
    let begins = |day: &&&str| day.starts_with(short);
    words::DAYS.iter().find(begins).map_or(short, |day| day)
}

/// "1/4" as "ein Viertel", "8/10" as "8 von 10", "120/80" as "120 zu 80".
fn fraction(found: &Captures<'_>) -> String {
    let known = PARTS.iter().find(|(written, _)| *written == &found[0]);
    match (known, &found[2]) {
        (Some((_, said)), _) => (*said).to_owned(),
        (_, "5" | "10" | "100") => format!("{} von {}", &found[1], &found[2]),
        _ => format!("{} zu {}", &found[1], &found[2]),
    }
}

fn clock(hour: &str, minute: &str) -> String {
    let hour = without_zeros(hour);
    match without_zeros(minute) {
        "0" => format!("{hour} Uhr"),
        minute => format!("{hour} Uhr {minute}"),
    }
}

/// An amount with the whole number, its decimals and its scale in the three groups from `at` on.
fn money(found: &Captures<'_>, at: usize, minus: &str, currency: &str) -> String {
    let group = |at| found.get(at).map_or("", |group| group.as_str());
    let (whole, decimals, scale) = (group(at).replace('.', ""), group(at + 1), group(at + 2));
    let minus = if minus.is_empty() { "" } else { "minus " };
    let (name, hundredth) = match currency {
        "$" | "USD" => ("Dollar", "Cent"),
        "£" | "GBP" => ("Pfund", "Pence"),
        "CHF" => ("Franken", "Rappen"),
        _ => ("Euro", "Cent"),
    };
    let cents = without_zeros(decimals);
    let said = match (whole.as_str(), decimals.len()) {
        (_, 0) if scale.is_empty() && whole == "1" => format!("ein {name}"),
        (_, 0) => format!("{whole}{scale} {name}"),
        _ if decimals.len() != 2 || !scale.is_empty() => {
            format!("{whole},{decimals}{scale} {name}")
        }
        ("1", _) if cents == "0" => format!("ein {name}"),
        (_, _) if cents == "0" => format!("{whole} {name}"),
        ("0", _) if cents == "1" => format!("ein {hundredth}"),
        ("0", _) => format!("{cents} {hundredth}"),
        ("1", _) => format!("ein {name} {cents}"),
        _ => format!("{whole} {name} {cents}"),
    };
    format!("{minus}{said}")
}

const UNITS: &[(&str, &str)] = &[
    ("km/h", "Kilometer pro Stunde"),
    ("m/s", "Meter pro Sekunde"),
    ("MB/s", "Megabyte pro Sekunde"),
    ("Mbit/s", "Megabit pro Sekunde"),
    ("Gbit/s", "Gigabit pro Sekunde"),
    ("km²", "Quadratkilometer"),
    ("m²", "Quadratmeter"),
    ("cm²", "Quadratzentimeter"),
    ("m³", "Kubikmeter"),
    ("km", "Kilometer"),
    ("cm", "Zentimeter"),
    ("mm", "Millimeter"),
    ("kg", "Kilogramm"),
    ("mg", "Milligramm"),
    ("µg", "Mikrogramm"),
    ("μg", "Mikrogramm"),
    ("ml", "Milliliter"),
    ("cl", "Zentiliter"),
    ("dl", "Deziliter"),
    ("kcal", "Kilokalorien"),
    ("mAh", "Milliamperestunden"),
    ("W", "Watt"),
    ("V", "Volt"),
    ("TL", "Teelöffel"),
    ("EL", "Esslöffel"),
    ("Sek.", "Sekunden"),
    ("kWh", "Kilowattstunden"),
    ("kW", "Kilowatt"),
    ("GB", "Gigabyte"),
    ("MB", "Megabyte"),
    ("TB", "Terabyte"),
    ("m", "Meter"),
    ("g", "Gramm"),
    ("l", "Liter"),
    ("h", "Stunden"),
    ("Std.", "Stunden"),
    ("min", "Minuten"),
    ("Min.", "Minuten"),
];

/// Units after "pro".
const RATES: &[(&str, &str)] = &[
    ("kg", "Kilogramm"),
    ("g", "Gramm"),
    ("km", "Kilometer"),
    ("l", "Liter"),
    ("m²", "Quadratmeter"),
    ("m³", "Kubikmeter"),
    ("h", "Stunde"),
    ("Std", "Stunde"),
    ("min", "Minute"),
    ("Min", "Minute"),
    ("kWh", "Kilowattstunde"),
    ("GB", "Gigabyte"),
];

const PARTS: &[(&str, &str)] = &[
    ("½", "ein halb"),
    ("¼", "ein Viertel"),
    ("¾", "drei Viertel"),
    ("⅓", "ein Drittel"),
    ("⅔", "zwei Drittel"),
    ("1/2", "ein halb"),
    ("1/4", "ein Viertel"),
    ("3/4", "drei Viertel"),
    ("1/3", "ein Drittel"),
    ("2/3", "zwei Drittel"),
    ("1/8", "ein Achtel"),
];

const SIGNS: &[(&str, &str)] = &[
    ("&", "und"),
    ("+", "plus"),
    ("=", "ist gleich"),
    ("×", "mal"),
    ("÷", "geteilt durch"),
    ("±", "plus minus"),
    ("§", "Paragraf"),
    ("€", "Euro"),
    ("$", "Dollar"),
    ("£", "Pfund"),
    ("≈", "etwa"),
    ("~", "etwa"),
    ("≥", "mindestens"),
    ("≤", "höchstens"),
    ("<", "kleiner als"),
    (">", "größer als"),
];

const ABBREVIATIONS: &[(&str, &str)] = &[
    ("z.B.", "zum Beispiel"),
    ("Z.B.", "Zum Beispiel"),
    ("d.h.", "das heißt"),
    ("D.h.", "Das heißt"),
    ("u.a.", "unter anderem"),
    ("U.a.", "Unter anderem"),
    ("v.a.", "vor allem"),
    ("V.a.", "Vor allem"),
    ("i.d.R.", "in der Regel"),
    ("I.d.R.", "In der Regel"),
    ("u.U.", "unter Umständen"),
    ("z.T.", "zum Teil"),
    ("z.Zt.", "zurzeit"),
    ("m.E.", "meines Erachtens"),
    ("s.o.", "siehe oben"),
    ("s.u.", "siehe unten"),
    ("o.ä.", "oder ähnliches"),
    ("o.Ä.", "oder Ähnliches"),
    ("u.ä.", "und ähnliches"),
    ("u.Ä.", "und Ähnliches"),
    ("u.v.a.", "und viele andere"),
    ("u.v.m.", "und vieles mehr"),
    ("e.V.", "eingetragener Verein"),
    ("v.Chr.", "vor Christus"),
    ("n.Chr.", "nach Christus"),
    ("usw.", "und so weiter"),
    ("bzw.", "beziehungsweise"),
    ("ca.", "circa"),
    ("Ca.", "Circa"),
    ("MwSt.", "Mehrwertsteuer"),
    ("Nr.", "Nummer"),
    ("Dr.", "Doktor"),
    ("Hr.", "Herr"),
    ("Fr.", "Frau"),
    ("inkl.", "inklusive"),
    ("evtl.", "eventuell"),
    ("ggf.", "gegebenenfalls"),
    ("n.V.", "nach Verlängerung"),
    ("etc.", "et cetera"),
    ("Hbf.", "Hauptbahnhof"),
    ("ff.", "folgende"),
    ("z.Hd.", "zu Händen"),
    ("o.g.", "oben genannt"),
    ("O.g.", "Oben genannt"),
    ("Prof.", "Professor"),
    ("geb.", "geboren"),
    ("gest.", "gestorben"),
    ("gegr.", "gegründet"),
    ("vgl.", "vergleiche"),
    ("Vgl.", "Vergleiche"),
    ("zzgl.", "zuzüglich"),
    ("abzgl.", "abzüglich"),
    ("bzgl.", "bezüglich"),
    ("einschl.", "einschließlich"),
    ("exkl.", "exklusive"),
    ("sog.", "sogenannt"),
    ("ehem.", "ehemals"),
    ("med.", "med"),
    ("max.", "maximal"),
    ("mind.", "mindestens"),
    ("Mind.", "Mindestens"),
    ("Temp.", "Temperatur"),
    ("Art", "Artikel"),
    ("Abs", "Absatz"),
    ("Kap", "Kapitel"),
    ("Bd", "Band"),
    ("Abb", "Abbildung"),
    ("Tel", "Telefon"),
    ("S", "Seite"),
];
