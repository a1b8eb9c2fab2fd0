//! German numbers in words.

use crate::language::digits;

const SMALL: [(&str, u64); 20] = [
    ("null", 0),
    ("eins", 1),
    ("ein", 1),
    ("zwei", 2),
    ("zwo", 2),
    ("drei", 3),
    ("vier", 4),
    ("fünf", 5),
    ("sechs", 6),
    ("sieben", 7),
    ("acht", 8),
    ("neun", 9),
    ("zehn", 10),
    ("elf", 11),
    ("zwölf", 12),
    ("dreizehn", 13),
    ("vierzehn", 14),
    ("sechzehn", 16),
    ("siebzehn", 17),
    ("einhundert", 100),
];
const TENS: [(&str, u64); 9] = [
    ("zwanzig", 20),
    ("dreißig", 30),
    ("dreissig", 30),
    ("vierzig", 40),
    ("fünfzig", 50),
    ("sechzig", 60),
    ("siebzig", 70),
    ("achtzig", 80),
    ("neunzig", 90),
];
/// Articles that are also number words; `normalise` leaves them as they are.
const ARTICLES: [&str; 1] = ["ein"];

/// Lower-cases text, strips marks, and writes numbers as digits with a decimal point.
pub(super) fn normalise(text: &str) -> String {
    let words = digits::without_marks(&text.to_lowercase());
    let words = words.split(' ').map(|word| match value(word) {
        Some(value) if !ARTICLES.contains(&word) => value.to_string(),
        _ => word.to_owned(),
    });
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    digits::with_decimals(&words, &["komma"])
}

/// The number that one word names: "fünfundzwanzig", "zweitausenddreihundert", "zweieinhalb".
fn value(word: &str) -> Option<f64> {
    let word = word.replace("fuenf", "fünf").replace("zwoelf", "zwölf");
    match word.as_str() {
        "anderthalb" | "eineinhalb" => return Some(1.5),
        "hundert" => return Some(100.0),
        "tausend" => return Some(1000.0),
        _ => {}
    }
    if let Some(whole) = word.strip_suffix("einhalb") {
        return Some(whole_value(whole)? as f64 + 0.5);
    }
    Some(whole_value(&word)? as f64)
}

fn whole_value(word: &str) -> Option<u64> {
    let small = |word: &str| {
        let found = SMALL.iter().chain(&TENS).find(|(name, _)| *name == word);
        found.map(|(_, value)| *value)
    };
    let teen = |word: &str| {
        let unit = word.strip_suffix("zehn").and_then(small)?;
        (3..10).contains(&unit).then_some(10 + unit)
    };
    if let Some(value) = small(word).or_else(|| teen(word)) {
        return Some(value);
    }
    for (name, size) in [("tausend", 1000), ("hundert", 100)] {
        if let Some((before, after)) = word.split_once(name) {
            let count = if before.is_empty() {
                1
            } else {
                whole_value(before)?
            };
            let after = after.strip_prefix("und").unwrap_or(after);
            let rest = if after.is_empty() {
                0
            } else {
                whole_value(after)?
            };
            return Some(count * size + rest);
        }
    }
    let (unit, ten) = word.split_once("und")?;
    let tens = TENS.iter().find(|(name, _)| *name == ten)?.1;
    let unit = small(unit).filter(|unit| (1..10).contains(unit))?;
    Some(tens + unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words_become_digits() {
        for (text, expected) in [
            ("Fünfundzwanzig Minuten", "25 minuten"),
            ("zweitausenddreihundertvierundfünfzig", "2354"),
            (
                "Stell einen Timer auf zehn Minuten!",
                "stell einen timer auf 10 minuten",
            ),
            ("zweieinhalb Stunden", "2.5 stunden"),
            ("Was ist drei Komma fünf mal zwei?", "was ist 3.5 mal 2"),
            (
                "1.200 Meter und 2,5 Kilometer.",
                "1200 meter und 2.5 kilometer",
            ),
            ("hundertzwanzig, tausendeins", "120 1001"),
            ("fünfzehn und siebzehn", "15 und 17"),
            ("Hund und Wunder, ein Pfund", "hund und wunder ein pfund"),
            ("Um 18 Uhr 30", "um 18 uhr 30"),
        ] {
            assert_eq!(normalise(text), expected, "{text}");
        }
    }
}
