//! Written German to spoken words, where espeak-ng would get it wrong. It reads plain numbers, decimals with a comma
//! and ordinals by itself.

use super::words::MONTHS;
use crate::language::spoken::{
    Phrase, Rules, Say, cut, digits, measured, with_names, without_zeros, written_out,
};
use regex::Captures;
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(super) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    cut(&RULES.applied(text), most_words)
}

/// Patterns and what is said, applied in this order.
static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let months = MONTHS.join("|");
    let rules: [(&str, Say); 16] = [
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", |found| address(&found[0])),
        (
            r"(?:\b([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) )?\b(\d{1,2})\.(\d{1,2})\.(\d{4})?",
            date,
        ),
        (
            r"(?:\b([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) )?\b(\d{1,2})\. (MONTH)\b",
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
        (r"\+?\b\d(?:[\d /-]{5,})\d\b", |found| telephone(&found[0])),
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
            |found| measured(found, UNITS),
        ),
        (
            r"\b(z\. ?B\.|d\. ?h\.|usw\.|bzw\.|ca\.|Nr\.|Dr\.|Hr\.|Fr\.|inkl\.|evtl\.|ggf\.)",
            |found| written_out(&found[1], ABBREVIATIONS),
        ),
        (r"(\d)-(\d)", |found| {
            format!("{} bis {}", &found[1], &found[2])
        }),
    ];
    Rules::new(rules.map(|(pattern, say)| (pattern.replace("MONTH", &months), say)))
});

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

/// The day of "der 3. März": the form after "der"; espeak-ng would read the dot as an end.
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
    let hour = without_zeros(hour);
    match without_zeros(minute) {
        "0" => format!("{hour} Uhr"),
        minute => format!("{hour} Uhr {minute}"),
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

/// A telephone number.
fn telephone(text: &str) -> String {
    let plus = if text.starts_with('+') { "plus " } else { "" };
    format!("{plus}{}", digits(text))
}

const UNITS: &[(&str, &str)] = &[
    ("km/h", "Kilometer pro Stunde"),
    ("km", "Kilometer"),
    ("cm", "Zentimeter"),
    ("mm", "Millimeter"),
    ("kg", "Kilogramm"),
    ("ml", "Milliliter"),
    ("kWh", "Kilowattstunden"),
    ("kW", "Kilowatt"),
    ("m", "Meter"),
    ("g", "Gramm"),
    ("l", "Liter"),
    ("h", "Stunden"),
    ("Std.", "Stunden"),
    ("min", "Minuten"),
    ("Min.", "Minuten"),
];

const ABBREVIATIONS: &[(&str, &str)] = &[
    ("z.B.", "zum Beispiel"),
    ("d.h.", "das heißt"),
    ("usw.", "und so weiter"),
    ("bzw.", "beziehungsweise"),
    ("ca.", "circa"),
    ("Nr.", "Nummer"),
    ("Dr.", "Doktor"),
    ("Hr.", "Herr"),
    ("Fr.", "Frau"),
    ("inkl.", "inklusive"),
    ("evtl.", "eventuell"),
    ("ggf.", "gegebenenfalls"),
];
