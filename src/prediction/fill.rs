//! Arguments found in a text that no rule has read, by what each parameter is about.

use super::parameters::{Kind, Parameter};
use crate::language::en::{
    dates, durations, expression, numbers, places, slots,
    units::{self, Unit},
};
use jiff::civil::Date;
use serde_json::{Map, Value};

/// Arguments, and whether more words could change one of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Arguments {
    pub values: Map<String, Value>,
    /// The last words of the text are in an argument that may go on.
    pub growing: bool,
    /// An optional argument was not named.
    pub open: bool,
}

/// The arguments of a call: what the tagger named first, then what is found in normalised text.
/// `None` if a required one is not there.
pub(super) fn arguments(
    parameters: &[Parameter],
    tagged: &[(String, String)],
    text: &str,
    today: Date,
) -> Option<Arguments> {
    let mut arguments = Arguments::default();
    for parameter in parameters {
        let named = tagged.iter().find(|(name, _)| *name == parameter.name);
        let found = named
            .and_then(|(_, words)| Some((parameter.value(words, today)?, words.clone())))
            .or_else(|| find(parameter, parameters, text, today));
        match found {
            Some((value, words)) => {
                let last = !words.is_empty() && text.ends_with(words.as_str());
                arguments.growing |= last && parameter.may_grow(&words);
                arguments.values.insert(parameter.name.clone(), value);
            }
            None if parameter.required => return None,
            None => arguments.open = true,
        }
    }
    Some(arguments)
}

/// The value of one parameter and the words that it was read from.
fn find(
    parameter: &Parameter,
    all: &[Parameter],
    text: &str,
    today: Date,
) -> Option<(Value, String)> {
    let alone = all
        .iter()
        .filter(|other| other.kind == parameter.kind)
        .count()
        == 1;
    let whole = |value: Value| (value, text.to_owned());
    match &parameter.kind {
        Kind::Place => place(parameter, text, alone),
        Kind::Date => dates::read(text, today).map(|date| whole(date.to_string().into())),
        Kind::Seconds => durations::seconds(text).map(|seconds| whole(seconds.into())),
        Kind::Minutes => {
            let length = durations::seconds(text)?;
            length
                .is_multiple_of(60)
                .then(|| whole((length / 60).into()))
        }
        Kind::Unit => unit(parameter, all, text),
        Kind::Expression => Some(whole(expression::read(text)?.into())),
        Kind::Number | Kind::Integer if alone => number(parameter, text, today),
        Kind::Choice(_) => choice(parameter, text, today),
        // Free text is anybody's guess: only where the call needs it, and one piece of it.
        Kind::Text if alone && parameter.required => {
            let words = slots::free_text(text)?.to_owned();
            Some((words.clone().into(), words))
        }
        _ => None,
    }
}

/// The place after the preposition that goes with the parameter's name.
fn place(parameter: &Parameter, text: &str, alone: bool) -> Option<(Value, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let before: &[&str] = match parameter.name.as_str() {
        name if name.contains("origin") || name.contains("from") => &["from"],
        name if name.contains("dest") || name.starts_with("to") => &["to", "into"],
        _ if alone => &[
            "in", "for", "at", "to", "of", "from", "about", "near", "around", "over",
        ],
        _ => return None,
    };
    let starts = words
        .iter()
        .enumerate()
        .filter(|(_, word)| before.contains(word));
    let after = starts.map(|(at, _)| at + 1);
    // "tokyo weather": a name alone will do where only one place is asked for.
    let anywhere = 0..if alone { words.len() } else { 0 };
    after.chain(anywhere).find_map(|at| listed(&words[at..]))
}

/// The longest listed place that the words begin with.
fn listed(words: &[&str]) -> Option<(Value, String)> {
    (1..=words.len().min(5)).rev().find_map(|length| {
        let name = words[..length].join(" ");
        let known = places::is_listed(&name) || qualified(&words[..length]);
        let place = places::find(&name).ok().filter(|_| known)?;
        Some((place.name.into(), name))
    })
}

/// "springfield illinois": two words or three, a region's name last.
fn qualified(words: &[&str]) -> bool {
    words.len() >= 2
        && (1..words.len()).any(|cut| {
            places::is_listed(&words[..cut].join(" ")) && places::is_listed(&words[cut..].join(" "))
        })
}

/// The unit at the parameter's place: the first for the first, unless "how many" turns them round.
fn unit(parameter: &Parameter, all: &[Parameter], text: &str) -> Option<(Value, String)> {
    let mut found = units::mentioned(text);
    if text.contains("how many") {
        found.reverse();
    }
    let units = all.iter().filter(|other| other.kind == Kind::Unit);
    let places: Vec<&str> = units.map(|unit| unit.name.as_str()).collect();
    let place = places.iter().position(|name| *name == parameter.name)?;
    let said = found.get(place).filter(|_| found.len() == places.len())?;
    Some((Unit::named(said)?.plural.into(), (*said).to_owned()))
}

fn number(parameter: &Parameter, text: &str, today: Date) -> Option<(Value, String)> {
    let text = durations::without(text);
    let found = slots::numbers(&text);
    let [only] = found.as_slice() else {
        return None;
    };
    let words = numbers::plain(*only);
    Some((parameter.value(&words, today)?, words))
}

/// The one choice that the text names.
fn choice(parameter: &Parameter, text: &str, today: Date) -> Option<(Value, String)> {
    let Kind::Choice(choices) = &parameter.kind else {
        return None;
    };
    let padded = format!(" {text} ");
    let said = |choice: &&String| {
        let plain = choice.to_lowercase().replace(['_', '-'], " ");
        padded.contains(&format!(" {plain} "))
    };
    let mut named = choices.iter().filter(said);
    let (only, None) = (named.next()?, named.next()) else {
        return None;
    };
    let words = only.to_lowercase().replace(['_', '-'], " ");
    Some((parameter.value(&words, today)?, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::en::text;
    use crate::prediction::RouterHints;
    use crate::prediction::parameters::parameters;
    use crate::tools::{Declaration, Effect, ToolSpec};
    use jiff::civil::date;
    use serde_json::json;

    fn fill(properties: Value, required: &[&str], said: &str) -> Option<Value> {
        let spec = ToolSpec {
            name: "tool".into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": properties, "required": required}),
        };
        let declaration = Declaration::new(spec, Effect::Read, std::time::Duration::from_secs(1));
        let parameters = parameters(&declaration, &RouterHints::default());
        let found = arguments(&parameters, &[], &text::normalise(said), date(2026, 11, 21));
        Some(Value::Object(found?.values))
    }

    #[test]
    fn finds_arguments_by_what_they_are_about() {
        let text = || json!({"type": "string"});
        for (properties, required, said, expected) in [
            (
                json!({"city": text()}),
                vec!["city"],
                "is it going to rain in Los Angeles",
                Some(json!({"city": "Los Angeles"})),
            ),
            (
                json!({"city": text()}),
                vec!["city"],
                "Tokyo weather",
                Some(json!({"city": "Tokyo"})),
            ),
            (
                json!({"city": text()}),
                vec!["city"],
                "is it going to rain",
                None,
            ),
            (
                json!({"origin": text(), "destination": text(), "date": text()}),
                vec!["destination"],
                "get me from Rome to New York tomorrow",
                Some(json!({"origin": "Rome", "destination": "New York", "date": "2026-11-22"})),
            ),
            (
                json!({"seconds": {"type": "integer"}}),
                vec!["seconds"],
                "wake me in half an hour",
                Some(json!({"seconds": 1800})),
            ),
            (
                json!({"guests": {"type": "integer"}}),
                vec!["guests"],
                "a table for four",
                Some(json!({"guests": 4})),
            ),
            (
                json!({"guests": {"type": "integer"}}),
                vec!["guests"],
                "four or five",
                None,
            ),
            (
                json!({"value": {"type": "number"}, "from": {"type": "string", "description": "a unit"}, "to": {"type": "string", "description": "a unit"}}),
                vec!["value", "from", "to"],
                "I have 10 miles here, what's that in km",
                Some(json!({"value": 10, "from": "miles", "to": "kilometers"})),
            ),
            (
                json!({"size": {"type": "string", "enum": ["small", "extra_large"]}}),
                vec!["size"],
                "an extra large one",
                Some(json!({"size": "extra_large"})),
            ),
            (
                json!({"query": text()}),
                vec!["query"],
                "search for the nearest pharmacy please",
                Some(json!({"query": "nearest pharmacy"})),
            ),
            (
                json!({"query": text()}),
                vec![],
                "search for pharmacies",
                Some(json!({})),
            ),
        ] {
            assert_eq!(fill(properties, &required, said), expected, "{said}");
        }
    }
}
