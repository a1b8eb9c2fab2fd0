//! Durations: reads them in normalised text, and writes them in words.

use regex::{Captures, Regex};
use std::ops::Range;
use std::sync::LazyLock;
use std::time::Duration;

/// Words that may follow a length whose last unit is left out: "1 hour 15 please".
macro_rules! after_length {
    () => {
        r"( (?:timers?|countdowns?|long|please|thanks?|for|to|from|called|named|no|actually|i|so|because)\b|$)"
    };
}

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
    (r"\b(?:an|1) hour and a quarter\b", "75 minutes"),
    (r"\b(?:an|1) hour and (?:3|three) quarters\b", "105 minutes"),
    (r"\b(\d+) hours and a quarter\b", "$1.25 hours"),
    (r"\b(\d+) hours and a half\b", "$1.5 hours"),
    (r"\b(?:a|1) minute and a half\b", "90 seconds"),
    (r"\b(\d+) minutes and a half\b", "$1.5 minutes"),
    (r"\b(?:a )?couple (?:of )?(minutes|hours|seconds)\b", "2 $1"),
    (r"\ban hour\b", "1 hour"),
    (r"\ba minute\b", "1 minute"),
    (r"\ba second\b", "1 second"),
    // "1 hour 15", "1 hour and 20", "2 minutes 30", without the smaller unit.
    (
        concat!(
            r"\b(\d+ (?:hours?|hrs?)) (?:and )?([2-9]|[1-5]\d)",
            after_length!()
        ),
        "$1 $2 minutes$3",
    ),
    (
        concat!(
            r"\b(\d+ (?:minutes?|mins?)) ([2-9]|[1-5]\d)",
            after_length!()
        ),
        "$1 $2 seconds$3",
    ),
];

static HALF_RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    HALVES
        .iter()
        .filter_map(|(said, meant)| Some((Regex::new(said).ok()?, *meant)))
        .collect()
});

const NUMBER: &str = r"\d+(?:\.\d+)?";
const UNIT: &str = "hours?|hrs?|minutes?|mins?|seconds?|secs?";
/// Words before a further length of a list.
const FURTHER: &str = r"(?:(?:another|a second|a third)(?: one| 1| timer)?(?: for| of)?|(?:one|1)(?: more)?(?: timer)? (?:for|of))";

static LENGTH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"\b({NUMBER})(?: more)? ?({UNIT})\b")).ok());

/// Lengths of which only the last has its unit, in the group 3: "5, 10 and 15 minutes", "1 for 5 and 1 for 10 minutes".
static UNIT_LAST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let and = format!(" and (?:also |then |the )*(?:{FURTHER} )?(?:for |of )?");
    Regex::new(&format!(
        r"\b({NUMBER}(?:(?:{and}| {FURTHER} | ){NUMBER})*)((?:{and}| {FURTHER} ){NUMBER}) ?({UNIT})\b"
    ))
    .ok()
});

/// One of the lengths before the last.
static ITEM: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("((?:{FURTHER} )?)({NUMBER})")).ok());

/// Two lengths of which only the first has its unit: "5 minutes and another for 10".
static UNIT_FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let after = after_length!();
    Regex::new(&format!(
        r"\b({NUMBER} ?({UNIT})(?: and (?:also |then )*| ){FURTHER} )({NUMBER}){after}"
    ))
    .ok()
});

/// The text with every duration rewritten as numbers and units: "30 minutes".
pub fn plain(text: &str) -> String {
    let text = HALF_RULES
        .iter()
        .fold(text.to_owned(), |text, (said, meant)| {
            said.replace_all(&text, *meant).into_owned()
        });
    with_units(text)
}

/// The text in which each length of a list has its unit: "5 minutes and 10 minutes" for "5 and 10 minutes".
fn with_units(text: String) -> String {
    let (Some(last), Some(item), Some(first)) =
        (UNIT_LAST.as_ref(), ITEM.as_ref(), UNIT_FIRST.as_ref())
    else {
        return text;
    };
    let with_unit = |found: &Captures<'_>| {
        let unit = &found[3];
        let items = item.replace_all(&found[1], format!("${{1}}${{2}} {unit}"));
        format!("{items}{} {unit}", &found[2])
    };
    let text = last.replace_all(&text, with_unit);
    first.replace_all(&text, "${1}${3} ${2}${4}").into_owned()
}

/// The durations that a text names, in whole seconds. "10 minutes and 30 seconds" is one of 630 s; "5 minutes
/// and 10 minutes" are two.
pub fn all(text: &str) -> Vec<u64> {
    let found = found(&plain(text));
    found
        .iter()
        .map(|(length, _)| length.round() as u64)
        .collect()
}

/// The durations of a plain text, in seconds, and where they stand in it.
fn found(text: &str) -> Vec<(f64, Range<usize>)> {
    let mut lengths: Vec<(f64, Range<usize>)> = Vec::new();
    let (mut smallest, mut end) = (f64::INFINITY, 0);
    for part in LENGTH.iter().flat_map(|length| length.captures_iter(text)) {
        let Some((length, unit)) = one_length(&part[1], &part[2]) else {
            continue;
        };
        let place = part.get(0).map_or(0..0, |whole| whole.range());
        let between = text[end..place.start].trim();
        let joined = unit < smallest && matches!(between, "" | "and");
        match lengths.last_mut().filter(|_| joined) {
            Some((last, whole)) => {
                *last += length;
                *whole = whole.start..place.end;
            }
            None => lengths.push((length, place.clone())),
        }
        (smallest, end) = (unit, place.end);
    }
    lengths
}

/// A text with this mark in the place of every duration.
pub fn marked(text: &str, mark: &str) -> String {
    let mut text = plain(text);
    for (_, place) in found(&text).into_iter().rev() {
        text.replace_range(place, mark);
    }
    text
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
        assert!(LENGTH.is_some() && ITEM.is_some());
        assert!(UNIT_LAST.is_some() && UNIT_FIRST.is_some());
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
            ("an hour and a quarter", Some(4500)),
            ("2 hours and a quarter", Some(8100)),
            ("an hour and 3 quarters", Some(6300)),
            ("1 hour 15", Some(4500)),
            ("an hour and 20", Some(4800)),
            ("an hour and 20 minutes", Some(4800)),
            ("2 minutes 30", Some(150)),
            ("2 minutes 30 for the eggs", Some(150)),
            ("1 hour 15 timer", Some(4500)),
            ("1 hour 15 seconds", Some(3615)),
            // "the 5 minute one"
            ("the 5 minute 1", Some(300)),
            ("the 1 hour 1", Some(3600)),
            ("5 minutes and 10 minutes", None),
            ("5 pm", None),
            ("a timer", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn lengths_of_a_list_share_their_unit() {
        for (text, expected) in [
            ("5 and 10 minutes", &[300, 600][..]),
            ("5 10 and 15 minutes", &[300, 600, 900]),
            ("1 for 5 and 1 for 10 minutes", &[300, 600]),
            ("1 for 5 1 for 10 and 1 for 15 minutes", &[300, 600, 900]),
            ("5 minutes and another for 10", &[300, 600]),
            ("1 for 5 minutes and 1 for 10 please", &[300, 600]),
            ("5 and 10 minute timers", &[300, 600]),
            ("10 minutes and 30 seconds", &[630]),
            ("5 minutes and 1 for 10 people", &[300]),
            ("2 10 minute timers", &[600]),
        ] {
            assert_eq!(all(text), expected, "{text}");
        }
    }

    #[test]
    fn lengths_are_marked() {
        let text = "5 minutes and a timer for an hour and 30 seconds please";
        assert_eq!(marked(text, "#"), "# and a timer for # please");
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
