//! Written German to spoken words, where espeak-ng would get it wrong. It reads plain numbers and decimals with a comma
//! by itself.

use super::words::MONTHS;
use super::{one, ordinals};
use crate::language::figures::{self, Between};
use crate::language::spoken::{
    Phrase, Rules, Say, cut, measured, with_names, without_zeros, written_out,
};
use regex::Captures;
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(super) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    cut(&RULES.applied(&ordinals::spelled(text)), most_words)
}

/// Patterns and what is said, applied in this order.
static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let months = MONTHS.join("|");
    let one = one::pattern();
    let rules: [(&str, Say); 24] = [
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", |found| address(&found[0])),
        (r"\b(\d{4})-(0\d|1[0-2])-([0-2]\d|3[01])\b", |found| {
            let (month, day) = (without_zeros(&found[2]), without_zeros(&found[3]));
            format!("{day}.{month}.{}", &found[1])
        }),
        (
            r"\b(\d{1,2}\.(?:\d{1,2}\.(?:\d{4})?)?) ?[-–] ?(\d{1,2}\.)",
            |found| format!("{} bis {}", &found[1], &found[2]),
        ),
        (
            r"(?:\b([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) )?\b(\d{1,2})\.(\d{1,2})\.(\d{4})?",
            date,
        ),
        (
            r"(?:\b([Aa]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en|[Bb]is|[Aa]b) )?\b(\d{1,2})\. (MONTH)\b",
            |found| format!("{} {}", day(found), &found[3]),
        ),
        (figures::TELEPHONE, |found| {
            figures::telephone(&found[0], "plus")
        }),
        (figures::GROUPS, |found| {
            figures::groups(&found[0], |_| false)
        }),
        (figures::YEARS, |found| {
            format!("{} {}", &found[1], &found[2])
        }),
        (figures::PRICES, |found| {
            format!("{} bis {} {}", &found[2], &found[3], &found[1])
        }),
        (figures::MEASURES, |found| {
            format!("{} bis {}", &found[1], &found[2])
        }),
        (figures::CHAIN, |found| figures::chain(&found[0], &BETWEEN)),
        (IDENTIFIER, figures::identifier),
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
        (figures::THOUSANDS, |found| found[0].replace('.', "")),
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
        (one::TO_MORE, one::to_more),
        (one.as_str(), one::one),
    ];
    Rules::new(rules.map(|(pattern, say)| (pattern.replace("MONTH", &months), say)))
});

const BETWEEN: Between = Between {
    to: "bis",
    score: "zu",
    minus: "minus",
};

/// A long number without dots, with a word before it that names it and what comes after it.
const IDENTIFIER: &str = r"((?i:nummer|code|pin|telefon|tel\.|handy|konto)(?:\W+\p{L}+){0,2}\W+)?\b(\d{7,})\b(,\d| ?[\p{Lu}€$£%°])?";

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
fn day(found: &Captures<'_>) -> String {
    let number = found[2].parse().ok();
    let ordinal = number.and_then(ordinals::ordinal);
    let ordinal = ordinal.unwrap_or_else(|| found[2].to_owned());
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
