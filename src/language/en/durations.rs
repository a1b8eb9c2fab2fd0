//! Durations: reads them in normalised text, and writes them in words.

use regex::Regex;
use std::sync::LazyLock;
use std::time::Duration;

/// Phrases such as "half an hour", with their numbers and units.
const HALVES: &[(&str, &str)] = &[
    (r"\b(?:3|three) quarters of an hour\b", "45 minutes"),
    (
        r"\b(?:a )?quarter (?:of an|an) hour\b|\b1 quarter of an hour\b",
        "15 minutes",
    ),
    (
        r"\b(?:a )?half (?:an|of an|a) hour\b|\bhalf hour\b",
        "30 minutes",
    ),
    (
        r"\b(?:a )?half (?:a|of a) minute\b|\bhalf minute\b",
        "30 seconds",
    ),
    (r"\b(?:an|1) hour and a half\b", "90 minutes"),
    (r"\b(\d+) hours and a half\b", "$1.5 hours"),
    (r"\b(?:a|1) minute and a half\b", "90 seconds"),
    (r"\b(\d+) minutes and a half\b", "$1.5 minutes"),
    (r"\b(?:a )?couple (?:of )?(minutes|hours|seconds)\b", "2 $1"),
    (r"\ban hour\b", "1 hour"),
    (r"\ba minute\b", "1 minute"),
    (r"\ba second\b", "1 second"),
];

static HALF_RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    HALVES
        .iter()
        .filter_map(|(said, meant)| Some((Regex::new(said).ok()?, *meant)))
        .collect()
});

static LENGTH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b(\d+(?:\.\d+)?)(?: more)? ?(hours?|hrs?|minutes?|mins?|seconds?|secs?)\b").ok()
});

/// The text with every duration rewritten as numbers and units: "30 minutes".
pub fn plain(text: &str) -> String {
    HALF_RULES
        .iter()
        .fold(text.to_owned(), |text, (said, meant)| {
            said.replace_all(&text, *meant).into_owned()
        })
}

/// The durations that a text names, in whole seconds. "10 minutes and 30 seconds" is one of 630 s; "5 minutes
/// and 10 minutes" are two.
pub fn all(text: &str) -> Vec<u64> {
    let text = plain(text);
    let (mut lengths, mut smallest, mut end) = (Vec::<f64>::new(), f64::INFINITY, 0);
    for part in LENGTH.iter().flat_map(|length| length.captures_iter(&text)) {
        let Some((length, unit)) = one_length(&part[1], &part[2]) else {
            continue;
        };
        let place = part.get(0).map_or(0..0, |whole| whole.range());
        let between = text[end..place.start].trim();
        let joined = unit < smallest && matches!(between, "" | "and");
        match lengths.last_mut().filter(|_| joined) {
            Some(last) => *last += length,
            None => lengths.push(length),
        }
        (smallest, end) = (unit, place.end);
    }
    lengths.iter().map(|length| length.round() as u64).collect()
}

/// The duration in a text that names exactly one, in seconds.
pub fn seconds(text: &str) -> Option<u64> {
    match all(text).as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// A text without its durations.
pub fn without(text: &str) -> String {
    let text = plain(text);
    match LENGTH.as_ref() {
        Some(length) => length.replace_all(&text, "").into_owned(),
        None => text,
    }
}

/// A duration in seconds, and the length of its unit in seconds.
fn one_length(number: &str, unit: &str) -> Option<(f64, f64)> {
    let number: f64 = number.parse().ok()?;
    let size = match unit.chars().next()? {
        'h' => 3600.0,
        'm' => 60.0,
        _ => 1.0,
    };
    Some((number * size, size))
}

/// "5 minute", "1 hour and 30 minute"; with `plural`, "5 minutes", "1 hour and 30 minutes".
pub(crate) fn in_words(length: Duration, plural: bool) -> String {
    let seconds = length.as_secs();
    let parts = [
        (seconds / 3600, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let ending = |count| if plural && count != 1 { "s" } else { "" };
    let words: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count} {unit}{}", ending(*count)))
        .collect();
    match words.as_slice() {
        [] => format!("0 second{}", ending(0)),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(HALF_RULES.len(), HALVES.len());
        assert!(LENGTH.is_some());
    }

    #[test]
    fn adds_up_lengths_of_time() {
        for (text, expected) in [
            ("10 minutes and 30 seconds", Some(630)),
            ("half an hour", Some(1800)),
            ("an hour and a half", Some(5400)),
            ("1 hour and 15 minutes", Some(4500)),
            ("2.5 hours", Some(9000)),
            ("three quarters of an hour", Some(2700)),
            ("90 sec", Some(90)),
            ("a couple of minutes", Some(120)),
            ("1 hr 5 mins", Some(3900)),
            ("quarter of an hour", Some(900)),
            ("5 minutes and 10 minutes", None),
            ("5 pm", None),
            ("a timer", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn lengths_are_spoken() {
        assert_eq!(in_words(Duration::from_secs(300), true), "5 minutes");
        assert_eq!(in_words(Duration::from_secs(60), true), "1 minute");
        assert_eq!(
            in_words(Duration::from_secs(3690), true),
            "1 hour, 1 minute and 30 seconds"
        );
        assert_eq!(
            in_words(Duration::from_secs(5400), false),
            "1 hour and 30 minute"
        );
    }
}
