//! Written Spanish to spoken words, where espeak-ng would get it wrong. It reads plain numbers and decimals with a
//! comma by itself.

use super::one;
use super::words::MONTHS;
use crate::language::figures::{self, Between};
use crate::language::spoken::{
    Phrase, Rules, Say, cut, measured, with_names, without_zeros, written_out,
};
use regex::Captures;
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(super) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    cut(&RULES.applied(text), most_words)
}

/// Patterns and what is said, applied in this order.
static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let one = one::pattern();
    let rules: [(&str, Say); 24] = [
        (r"[¿¡]", |_| String::new()),
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", |found| address(&found[0])),
        (r"\b(\d{4})-(0\d|1[0-2])-([0-2]\d|3[01])\b", |found| {
            format!("{}/{}/{}", &found[3], &found[2], &found[1])
        }),
        (r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", date),
        (figures::TELEPHONE, |found| {
            figures::telephone(&found[0], "más")
        }),
        (figures::GROUPS, |found| {
            figures::groups(&found[0], is_telephone)
        }),
        (figures::YEARS, |found| {
            format!("{} {}", &found[1], &found[2])
        }),
        (figures::PRICES, |found| {
            format!("{} a {} {}", &found[2], &found[3], &found[1])
        }),
        (figures::MEASURES, |found| {
            format!("{} a {}", &found[1], &found[2])
        }),
        (figures::CHAIN, |found| figures::chain(&found[0], &BETWEEN)),
        (IDENTIFIER, figures::identifier),
        (r"\b(\d{1,2}):(\d{2})(?: ?h\b)?", |found| {
            clock(&found[1], &found[2])
        }),
        (
            r"(-?)\b(\d+(?:\.\d{3})*)(?:,(\d{2}))? ?(€|EUR\b|euros?\b|\$|USD\b|£|GBP\b)",
            money,
        ),
        (r"([€$£]) ?(\d+(?:\.\d{3})*)(?:,(\d{2}))?", |found| {
            amount(&found[2], found.get(3).map(|c| c.as_str()), &found[1])
        }),
        (figures::THOUSANDS, |found| found[0].replace('.', "")),
        (one::THOUSANDS, one::thousands),
        (r"(\d) ?%", |found| format!("{} por ciento", &found[1])),
        (r"(\d) ?°C\b", |found| {
            format!("{} grados Celsius", &found[1])
        }),
        (r"(\d) ?°F\b", |found| {
            format!("{} grados Fahrenheit", &found[1])
        }),
        (r"(\d) ?°", |found| format!("{} grados", &found[1])),
        (
            r"(\d) ?(km/h|km|cm|mm|kg|ml|kWh|kW|m|g|l|h|min)(?:\b|$| )",
            |found| measured(found, UNITS),
        ),
        (
            r"\b(p\. ?ej\.|etc\.|Sra\.|Sr\.|Dra\.|Dr\.|aprox\.|núm\.|EE\. ?UU\.|Uds\.|Ud\.)",
            |found| written_out(&found[1], ABBREVIATIONS),
        ),
        (one.as_str(), one::one),
        (one::HOURS, one::hours),
    ];
    Rules::new(rules)
});

const BETWEEN: Between = Between {
    to: "a",
    score: "a",
    minus: "menos",
};

/// Whether digits in groups of three are a Spanish telephone number.
fn is_telephone(number: &str) -> bool {
    number.len() == 9 && number.starts_with(['6', '7', '8', '9'])
}

/// A long number without dots, with a word before it that names it and what comes after it.
const IDENTIFIER: &str = r"((?i:número|código|pin|teléfono|móvil|pedido|referencia|cuenta)(?:\W+\p{L}+){0,2}\W+)?\b(\d{7,})\b(,\d| ?[€$£%°]| \p{L})?";

/// "ana arroba ejemplo punto es"
fn address(text: &str) -> String {
    let signs = [
        ("@", "arroba"),
        (".", "punto"),
        ("-", "guion"),
        ("_", "guion bajo"),
        ("+", "más"),
    ];
    with_names(text, &signs)
}

fn date(found: &Captures<'_>) -> String {
    let month: usize = found[2].parse().unwrap_or_default();
    let Some(name) = month.checked_sub(1).and_then(|month| MONTHS.get(month)) else {
        return found[0].to_owned();
    };
    format!(
        "{} de {name} de {}",
        found[1].trim_start_matches('0'),
        &found[3]
    )
}

fn clock(hour: &str, minute: &str) -> String {
    let hour = without_zeros(hour);
    match without_zeros(minute) {
        "0" => hour.to_owned(),
        "15" => format!("{hour} y cuarto"),
        "30" => format!("{hour} y media"),
        minute => format!("{hour} y {minute}"),
    }
}

fn money(found: &Captures<'_>) -> String {
    let minus = if found[1].is_empty() { "" } else { "menos " };
    let said = amount(
        &found[2],
        found.get(3).map(|cents| cents.as_str()),
        &found[4],
    );
    format!("{minus}{said}")
}

fn amount(whole: &str, cents: Option<&str>, sign: &str) -> String {
    let (one, several) = match sign {
        "$" | "USD" => ("un dólar", "dólares"),
        "£" | "GBP" => ("una libra", "libras"),
        _ => ("un euro", "euros"),
    };
    let whole = whole.replace('.', "");
    let said = match whole.as_str() {
        "1" => one.to_owned(),
        whole => format!("{whole} {several}"),
    };
    match cents.map(|cents| cents.trim_start_matches('0')) {
        None | Some("") => said,
        Some(cents) => format!("{said} con {cents}"),
    }
}

const UNITS: &[(&str, &str)] = &[
    ("km/h", "kilómetros por hora"),
    ("km", "kilómetros"),
    ("cm", "centímetros"),
    ("mm", "milímetros"),
    ("kg", "kilogramos"),
    ("ml", "mililitros"),
    ("kWh", "kilovatios hora"),
    ("kW", "kilovatios"),
    ("m", "metros"),
    ("g", "gramos"),
    ("l", "litros"),
    ("h", "horas"),
    ("min", "minutos"),
];

const ABBREVIATIONS: &[(&str, &str)] = &[
    ("p.ej.", "por ejemplo"),
    ("etc.", "etcétera"),
    ("Sr.", "señor"),
    ("Sra.", "señora"),
    ("Dr.", "doctor"),
    ("Dra.", "doctora"),
    ("aprox.", "aproximadamente"),
    ("núm.", "número"),
    ("Ud.", "usted"),
    ("Uds.", "ustedes"),
    ("EE.UU.", "Estados Unidos"),
];
