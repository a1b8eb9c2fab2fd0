//! Arguments found in normalised text: lengths of time, quantities with units, places.

use crate::tools::builtin::Unit;
use crate::tools::places;
use regex::Regex;
use std::collections::HashMap;
use std::sync::LazyLock;

/// "half an hour" and its like, as numbers with units.
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

/// The text with every way to say a length of time as numbers and units: "30 minutes".
pub fn plain_lengths(text: &str) -> String {
    HALF_RULES
        .iter()
        .fold(text.to_owned(), |text, (said, meant)| {
            said.replace_all(&text, *meant).into_owned()
        })
}

/// The lengths of time that a text names, each in whole seconds. "10 minutes and 30 seconds" is one
/// of 630, "5 minutes and 10 minutes" are two.
pub fn lengths(text: &str) -> Vec<u64> {
    let text = plain_lengths(text);
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

/// The length of time in a text that names exactly one.
pub fn seconds(text: &str) -> Option<u64> {
    match lengths(text).as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// The same text with the lengths of time cut out.
pub fn without_lengths(text: &str) -> String {
    let text = plain_lengths(text);
    match LENGTH.as_ref() {
        Some(length) => length.replace_all(&text, "").into_owned(),
        None => text,
    }
}

/// Seconds, and the unit's own.
fn one_length(number: &str, unit: &str) -> Option<(f64, f64)> {
    let number: f64 = number.parse().ok()?;
    let size = match unit.chars().next()? {
        'h' => 3600.0,
        'm' => 60.0,
        _ => 1.0,
    };
    Some((number * size, size))
}

/// The unit of this name, in any case. A look-up: [`Unit::named`] compares with every spelling.
pub fn unit(name: &str) -> Option<&'static Unit> {
    static UNITS: LazyLock<HashMap<String, &Unit>> = LazyLock::new(|| {
        let mut units = HashMap::new();
        for unit in Unit::all() {
            for name in unit.names() {
                units.entry(name.to_lowercase()).or_insert(unit);
            }
        }
        units
    });
    UNITS
        .get(name)
        .or_else(|| UNITS.get(&name.to_lowercase()))
        .copied()
}

/// A regular expression that matches the name of any unit, the longest first.
pub fn unit_pattern() -> String {
    let mut names: Vec<String> = Unit::all()
        .flat_map(Unit::names)
        .map(|name| regex::escape(&name.to_lowercase()))
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.join("|")
}

/// All numbers of a text, in order.
pub fn numbers(text: &str) -> Vec<f64> {
    static NUMBER: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?:^|[\s$€£])(-?\d+(?:\.\d+)?)\b").ok());
    let found = NUMBER.iter().flat_map(|number| number.captures_iter(text));
    found.filter_map(|found| found[1].parse().ok()).collect()
}

/// The place that a text names after "in", "for", "at", "to", "of" or "from": the longest known
/// name that follows, or the words up to the end where none is known. Gives the usual name.
pub fn place(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |(at, word): (usize, &&str)| PREPOSITIONS.contains(word).then_some(at + 1);
    let starts: Vec<usize> = words.iter().enumerate().filter_map(after).collect();
    starts.iter().find_map(|&at| known(&words[at..]))
}

const PREPOSITIONS: [&str; 8] = ["in", "for", "at", "to", "of", "from", "about", "near"];

/// The longest known place that `words` begin with.
pub fn known(words: &[&str]) -> Option<String> {
    (1..=words.len().min(6)).rev().find_map(|length| {
        let name = words[..length].join(" ");
        let place = places::find(&name).ok()?;
        Some(place.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(HALF_RULES.len(), HALVES.len());
        assert!(LENGTH.is_some());
        assert!(Regex::new(&unit_pattern()).is_ok());
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
    fn finds_places_and_numbers() {
        assert_eq!(
            place("the weather in new york city today").as_deref(),
            Some("New York")
        );
        assert_eq!(place("flights from boston").as_deref(), Some("Boston"));
        assert_eq!(place("what is the time"), None);
        assert_eq!(numbers("between 3 and $4.50 for 2nd"), [3.0, 4.5]);
    }
}
