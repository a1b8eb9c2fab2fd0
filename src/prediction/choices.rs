//! Values that a declaration lists, found in words.

use super::parameters::{Kind, Parameter};
use crate::language::en::sounds::{self, Sounds};
use crate::language::en::subject::{is_around, stem};
use serde_json::Value;

/// Before the value that something is turned into.
const INTO: [&str; 4] = ["to", "into", "in", "as"];
/// Names of parameters that such a value belongs to.
const TARGETS: [&str; 5] = ["to", "into", "target", "destination", "output"];

/// A listed value that was said.
struct Mention {
    value: String,
    at: usize,
    length: usize,
}

/// The value for a parameter that lists its values, and the words that name it.
pub(super) fn choice(
    parameter: &Parameter,
    all: &[Parameter],
    text: &str,
) -> Option<(Value, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut mentions = mentions(parameter, &words);
    if mentions.is_empty() {
        mentions.extend(heard(parameter, &words));
    }
    let same: Vec<&Parameter> = all
        .iter()
        .filter(|other| other.kind == parameter.kind && other.words == parameter.words)
        .collect();
    let mention = match (same.as_slice(), mentions.as_slice()) {
        ([_], [first, rest @ ..]) => {
            let one = rest.iter().all(|other| other.value == first.value);
            one.then_some(first)?
        }
        ([a, b], [x, y]) => {
            let is_target = |one: &&Parameter| TARGETS.contains(&one.name.to_lowercase().as_str());
            let after_into = |one: &Mention| {
                one.at
                    .checked_sub(1)
                    .is_some_and(|at| INTO.contains(&words[at]))
            };
            // "in fahrenheit, what is 37 celsius" and "how many dollars is 50 euros" name the target first.
            let asks_how_many = words[..x.at].ends_with(&["how", "many"]);
            let turned = (asks_how_many || after_into(x)) && !after_into(y);
            let target_first = is_target(a) && !is_target(b);
            let first = parameter.name == a.name;
            if first ^ turned ^ target_first { x } else { y }
        }
        _ => return None,
    };
    let said = words[mention.at..mention.at + mention.length].join(" ");
    Some((mention.value.as_str().into(), said))
}

/// The longest listed values in the order in which they were said.
fn mentions(parameter: &Parameter, words: &[&str]) -> Vec<Mention> {
    let listed = spoken(parameter);
    let mut mentions = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let fits = |(name, _): &&(Vec<String>, String)| {
            let said = words.get(at..at + name.len());
            said.is_some_and(|said| said.iter().zip(name).all(|(a, b)| stem(a) == stem(b)))
        };
        let found = listed
            .iter()
            .filter(fits)
            .max_by_key(|(name, _)| name.len());
        if let Some((name, value)) = found {
            mentions.push(Mention {
                value: value.clone(),
                at,
                length: name.len(),
            });
        }
        at += found.map_or(1, |(name, _)| name.len());
    }
    mentions
}

/// The only listed value that the recogniser may have spelt by ear.
fn heard(parameter: &Parameter, words: &[&str]) -> Option<Mention> {
    let listed = spoken(parameter);
    let listed: Vec<(Sounds, &String)> = listed
        .iter()
        .map(|(name, value)| (Sounds::of(&name.join(" ")), value))
        .collect();
    let runs = (1..=2).flat_map(|length| (0..words.len()).map(move |at| (at, length)));
    let mut heard = runs.filter_map(|(at, length)| {
        let run = words.get(at..at + length)?;
        if run.iter().any(|word| is_around(word)) {
            return None;
        }
        let names = listed.iter().map(|(sounds, value)| (sounds, *value));
        let value = sounds::nearest(&run.concat(), names)?.clone();
        Some(Mention { value, at, length })
    });
    let first = heard.next()?;
    heard
        .all(|other| other.value == first.value)
        .then_some(first)
}

/// The words for each listed value.
fn spoken(parameter: &Parameter) -> Vec<(Vec<String>, String)> {
    let choices: &[String] = match &parameter.kind {
        Kind::Choice(choices) => choices,
        _ => &[],
    };
    let own = choices.iter().map(|choice| (choice.as_str(), choice));
    let words = parameter.words.iter();
    own.chain(words.map(|(said, value)| (said.as_str(), value)))
        .map(|(said, value)| {
            let plain = said.to_lowercase().replace(['_', '-'], " ");
            let words = plain.split_whitespace().map(str::to_owned).collect();
            (words, value.clone())
        })
        .filter(|(words, _): &(Vec<String>, _)| !words.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn scale(name: &str) -> Parameter {
        Parameter {
            name: name.into(),
            kind: Kind::Choice(vec!["celsius".into(), "fahrenheit".into()]),
            required: true,
            words: BTreeMap::new(),
        }
    }

    #[test]
    fn two_values_of_one_list_are_told_apart() {
        let both = [scale("from"), scale("to")];
        for (text, from, to) in [
            ("what is 20 celsius in fahrenheit", "celsius", "fahrenheit"),
            ("in fahrenheit what is 37 celsius", "celsius", "fahrenheit"),
            ("convert 70 fahrenheit to celsius", "fahrenheit", "celsius"),
            ("how many fahrenheit is 20 celsius", "celsius", "fahrenheit"),
            ("20 celsius is how many fahrenheit", "celsius", "fahrenheit"),
        ] {
            let value = |at: usize| choice(&both[at], &both, text).map(|(value, _)| value);
            assert_eq!(
                (value(0), value(1)),
                (Some(from.into()), Some(to.into())),
                "{text}"
            );
        }
        assert_eq!(choice(&both[0], &both, "celsius"), None);
        let city = |name: &str| Parameter {
            kind: Kind::Choice(vec!["London".into(), "Paris".into()]),
            ..scale(name)
        };
        let both = [city("from"), city("to")];
        let text = "how many trains go from london to paris";
        let from = choice(&both[0], &both, text).map(|(value, _)| value);
        assert_eq!(from, Some("London".into()));
    }

    #[test]
    fn a_value_that_was_spelt_by_ear_is_known() {
        let team = Parameter {
            name: "team".into(),
            kind: Kind::Choice(vec!["tigers".into(), "hawks".into()]),
            required: true,
            words: BTreeMap::new(),
        };
        let heard = |text| choice(&team, std::slice::from_ref(&team), text).map(|(value, _)| value);
        assert_eq!(
            heard("what is the score of the hox game"),
            Some("hawks".into())
        );
        assert_eq!(heard("what is the score of the bears game"), None);
    }
}
