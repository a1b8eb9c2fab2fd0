//! Written Spanish to spoken words, where espeak-ng would get it wrong. It reads plain numbers and decimals with a
//! comma by itself.

use crate::language::en::spoken::{Phrase, cut};
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(super) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    cut(&speakable(text), most_words)
}

type Say = fn(&Captures<'_>) -> String;

/// Patterns and what is said, applied in this order.
static RULES: LazyLock<Vec<(Regex, Say)>> = LazyLock::new(|| {
    let rules: [(&str, Say); 15] = [
        (r"[¿¡]", |_| String::new()),
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", |found| address(&found[0])),
        (r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", date),
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
        (r"(\d)\.(\d{3})\b", |found| {
            format!("{}{}", &found[1], &found[2])
        }),
        (r"(\d)\.(\d{3})\b", |found| {
            format!("{}{}", &found[1], &found[2])
        }),
        (r"\+?\b\d(?:[\d -]{5,})\d\b", |found| digits(&found[0])),
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
            unit,
        ),
        (
            r"\b(p\. ?ej\.|etc\.|Sra\.|Sr\.|Dra\.|Dr\.|aprox\.|núm\.|EE\. ?UU\.|Uds\.|Ud\.)",
            abbreviation,
        ),
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

/// "ana arroba ejemplo punto es"
fn address(text: &str) -> String {
    text.chars().fold(String::new(), |mut said, c| {
        match c {
            '@' => said.push_str(" arroba "),
            '.' => said.push_str(" punto "),
            '-' => said.push_str(" guion "),
            '_' => said.push_str(" guion bajo "),
            '+' => said.push_str(" más "),
            c => said.push(c),
        }
        said
    })
}

fn date(found: &Captures<'_>) -> String {
    const MONTHS: [&str; 12] = [
        "enero",
        "febrero",
        "marzo",
        "abril",
        "mayo",
        "junio",
        "julio",
        "agosto",
        "septiembre",
        "octubre",
        "noviembre",
        "diciembre",
    ];
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
    let plain = |number: &str| match number.trim_start_matches('0') {
        "" => "0".to_owned(),
        number => number.to_owned(),
    };
    match plain(minute).as_str() {
        "0" => plain(hour),
        "15" => format!("{} y cuarto", plain(hour)),
        "30" => format!("{} y media", plain(hour)),
        minute => format!("{} y {minute}", plain(hour)),
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

/// Digit by digit, as telephone numbers are said.
fn digits(text: &str) -> String {
    let plus = if text.starts_with('+') { "más " } else { "" };
    let all = text.chars().filter(char::is_ascii_digit).map(String::from);
    format!("{plus}{}", all.collect::<Vec<_>>().join(" "))
}

fn unit(found: &Captures<'_>) -> String {
    let name = match &found[2] {
        "km/h" => "kilómetros por hora",
        "km" => "kilómetros",
        "cm" => "centímetros",
        "mm" => "milímetros",
        "kg" => "kilogramos",
        "ml" => "mililitros",
        "kWh" => "kilovatios hora",
        "kW" => "kilovatios",
        "m" => "metros",
        "g" => "gramos",
        "l" => "litros",
        "h" => "horas",
        _ => "minutos",
    };
    let space = if found[0].ends_with(' ') { " " } else { "" };
    format!("{} {name}{space}", &found[1])
}

fn abbreviation(found: &Captures<'_>) -> String {
    let compact = found[1].replace(' ', "");
    let words = match compact.as_str() {
        "p.ej." => "por ejemplo",
        "etc." => "etcétera",
        "Sr." => "señor",
        "Sra." => "señora",
        "Dr." => "doctor",
        "Dra." => "doctora",
        "aprox." => "aproximadamente",
        "núm." => "número",
        "Ud." => "usted",
        "Uds." => "ustedes",
        _ => "Estados Unidos",
    };
    words.to_owned()
}
