//! Arguments found in a text that no rule has read, by what each parameter is about.

use super::RouterHints;
use super::frame::Frame;
use super::parameters::{Kind, Parameter, as_said, parameters};
use super::{choices, codes};
use crate::language::en::{
    dates, durations, expression, numbers, places, slots,
    subject::is_around,
    text,
    units::{self, Unit},
};
use crate::tools::Declaration;
use jiff::civil::Date;
use serde_json::{Map, Value};

/// Arguments, and whether more words could change one of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Arguments {
    /// By the parameters' names.
    pub values: Map<String, Value>,
    /// The last words of the text are in an argument that may go on.
    pub growing: bool,
    /// An optional argument was not named.
    pub open: bool,
    /// The words that the values were read from.
    pub read: Vec<String>,
}

/// A tool's parameters, and the words around the subject of requests for it.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(super) parameters: Vec<Parameter>,
    frame: Frame,
}

/// Words in which arguments are looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    /// As they were transcribed.
    pub said: &'a str,
    /// Normalised.
    pub text: &'a str,
    /// The day on which they were said.
    pub today: Date,
}

impl Form {
    /// The form of a declared tool.
    pub(crate) fn of(declaration: &Declaration, hints: &RouterHints) -> Self {
        Self {
            parameters: parameters(declaration, hints),
            frame: Frame::of(declaration, hints),
        }
    }

    /// The arguments of a call: what the tagger named first, then what is found in the words. The names of
    /// the required ones that are not there if any is missing.
    pub(crate) fn fill(
        &self,
        tagged: &[(String, String)],
        words: Words<'_>,
    ) -> Result<Arguments, Vec<String>> {
        let mut arguments = Arguments::default();
        let mut missing = Vec::new();
        for parameter in &self.parameters {
            let named = tagged.iter().find(|(name, _)| *name == parameter.name);
            let found = named
                .and_then(|(_, said)| Some((parameter.value(said, words.today)?, said.clone())))
                .or_else(|| self.find(parameter, words));
            match found {
                Some((value, read)) => {
                    let last = !read.is_empty() && words.text.ends_with(read.as_str());
                    arguments.growing |= last && parameter.may_grow(&read);
                    let value = as_said(&parameter.kind, value, words.said);
                    arguments.values.insert(parameter.name.clone(), value);
                    arguments.read.push(read);
                }
                None if parameter.required => missing.push(parameter.name.clone()),
                None => arguments.open = true,
            }
        }
        if missing.is_empty() {
            Ok(arguments)
        } else {
            Err(missing)
        }
    }

    /// The parameter for a day, if the words name a day that it cannot be.
    pub(crate) fn unfit_day(&self, words: Words<'_>) -> Option<&Parameter> {
        dates::other_day(words.text)?;
        let day = self.parameters.iter().find(|one| one.is_day())?;
        self.find(day, words).is_none().then_some(day)
    }

    /// The value of one parameter and the words that it was read from.
    fn find(&self, parameter: &Parameter, words: Words<'_>) -> Option<(Value, String)> {
        let Words { said, text, today } = words;
        let all = &self.parameters;
        let alone = all
            .iter()
            .filter(|other| other.kind == parameter.kind)
            .count()
            == 1;
        let whole = |value: Value| (value, text.to_owned());
        if !parameter.words.is_empty() || matches!(parameter.kind, Kind::Choice(_)) {
            return choices::choice(parameter, all, text);
        }
        match &parameter.kind {
            Kind::Place => self.place(parameter, words, alone),
            Kind::Date | Kind::Day => {
                let (value, read) = day(text, today)?;
                match parameter.kind {
                    Kind::Day => Some((read.clone().into(), read)),
                    _ => Some((value.to_string().into(), read)),
                }
            }
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
            Kind::Code if alone => codes::code(&parameter.name, text),
            // Free text is anybody's guess: only where the call needs it, and one piece of it.
            Kind::Text if alone && parameter.required => {
                let quoted = slots::quoted(said).map(text::normalise);
                let subject = quoted
                    .or_else(|| self.frame.subject(text))
                    .or_else(|| slots::free_text(text).map(str::to_owned))?;
                Some((subject.clone().into(), subject))
            }
            _ => None,
        }
    }

    /// The place after the preposition that goes with the parameter's name.
    fn place(
        &self,
        parameter: &Parameter,
        words: Words<'_>,
        alone: bool,
    ) -> Option<(Value, String)> {
        let said = words.said;
        let words: Vec<&str> = words.text.split_whitespace().collect();
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
        let after: Vec<usize> = starts.map(|(at, _)| at + 1).collect();
        // "tokyo weather": a name alone will do where only one place is asked for.
        let anywhere = 0..if alone { words.len() } else { 0 };
        let listed = after.iter().copied().chain(anywhere);
        listed
            .into_iter()
            .find_map(|at| listed_place(&words[at..]))
            .or_else(|| {
                let mut unlisted = after.iter();
                unlisted.find_map(|at| self.unlisted(&words[*at..], said))
            })
            .or_else(|| {
                let mut heard = after.iter();
                heard.find_map(|at| self.heard(&words[*at..]))
            })
    }

    /// A name that is written as one, of a place that no table has.
    fn unlisted(&self, words: &[&str], said: &str) -> Option<(Value, String)> {
        let name = self.name(words)?;
        let value = places::title_case(&name);
        said.contains(&value).then(|| (value.into(), name))
    }

    /// A listed place that the recogniser has spelt by ear.
    fn heard(&self, words: &[&str]) -> Option<(Value, String)> {
        let name = self.name(words)?;
        Some((places::by_sound(&name)?.into(), name))
    }

    /// Words up to the first that is part of no name.
    fn name(&self, words: &[&str]) -> Option<String> {
        let mut length = words.iter().take(3).take_while(|word| !is_around(word));
        let name = words[..length.by_ref().count()].join(" ");
        let named = name.split(' ').all(|word| !self.frame.has(word));
        (!name.is_empty() && named).then_some(name)
    }
}

/// The longest listed place that the words begin with.
fn listed_place(words: &[&str]) -> Option<(Value, String)> {
    (1..=words.len().min(5)).rev().find_map(|length| {
        let name = words[..length].join(" ");
        let known = places::is_listed_in_full(&name);
        let place = places::find(&name).ok().filter(|_| known)?;
        Some((place.name.into(), name))
    })
}

/// The day that the text names, and the shortest words in it that name it.
fn day(text: &str, today: Date) -> Option<(Date, String)> {
    let date = dates::read(text, today)?;
    let words: Vec<&str> = text.split(' ').collect();
    let runs = (1..=words.len()).flat_map(|length| words.windows(length));
    let mut named = runs.map(|run| run.join(" "));
    let read = named.find(|run| dates::read(run, today) == Some(date))?;
    Some((date, read))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use jiff::civil::date;
    use serde_json::json;

    fn fill(properties: Value, required: &[&str], said: &str) -> Option<Value> {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "tool".into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": properties, "required": required}),
        };
        let declaration = Declaration::new(spec, Effect::Read, std::time::Duration::from_secs(1));
        let form = Form::of(&declaration, &RouterHints::default());
        let words = Words {
            said,
            text: &text::normalise(said),
            today: date(2026, 11, 21),
        };
        Some(Value::Object(form.fill(&[], words).ok()?.values))
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
