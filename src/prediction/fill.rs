//! Arguments found in a text that no rule has read, by what each parameter is about.

use super::RouterHints;
use super::frame::Frame;
use super::parameters::{Kind, Parameter, as_said, parameters};
use super::{choices, codes};
use crate::language::en::{
    dates, durations, expression, numbers, places, slots,
    subject::{is_around, stem},
    text,
    units::{self, Unit},
};
use crate::tools::{Declaration, ToolSpec};
use jiff::civil::Date;
use jsonschema::Validator;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keywords of a schema that refuse values of the right type.
const BOUNDS: [&str; 9] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "const",
];

/// Stems of words for tools whose "from" and "to" are places.
const JOURNEYS: [&str; 11] = [
    "train", "flight", "bus", "ferry", "trip", "travel", "route", "journey", "station", "airport",
    "distance",
];

/// Stems of units behind an amount.
const MONEY: [&str; 6] = ["euro", "dollar", "pound", "buck", "cent", "percent"];

/// Words before the least or the most of something, and whether it is the least.
const BOUNDING: [(&[&str], bool); 10] = [
    (&["above"], true),
    (&["over"], true),
    (&["more", "than"], true),
    (&["at", "least"], true),
    (&["under"], false),
    (&["below"], false),
    (&["less", "than"], false),
    (&["cheaper", "than"], false),
    (&["at", "most"], false),
    (&["up", "to"], false),
];

/// Before these, a "to" has a verb behind it: "I want to".
const LEADS_TO_A_VERB: [&str; 13] = [
    "hoping", "want", "wanted", "like", "need", "have", "going", "able", "me", "you", "love",
    "trying", "possible",
];

/// A value, and the words that it was read from.
type Found = (Value, String);

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
    /// By parameter whose schema may refuse what is found.
    bounds: BTreeMap<String, Arc<Validator>>,
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
        let mut parameters = parameters(declaration, hints);
        let is_end = |one: &Parameter| {
            is_free(one) && matches!(one.name.as_str(), "from" | "to") && one.words.is_empty()
        };
        let ends = parameters.iter().filter(|one| is_end(one)).count();
        if ends == 2 && is_journey(&declaration.spec) {
            for one in &mut parameters {
                if is_end(one) {
                    one.kind = Kind::Place;
                }
            }
        }
        let properties = declaration.spec.properties();
        let bounded = properties.filter(|(name, schema)| {
            BOUNDS.iter().any(|bound| schema.get(bound).is_some())
                || hints.words.contains_key(*name)
        });
        let bounds = bounded.filter_map(|(name, schema)| {
            let validator = jsonschema::validator_for(schema).ok()?;
            Some((name.to_owned(), Arc::new(validator)))
        });
        Self {
            bounds: bounds.collect(),
            parameters,
            frame: Frame::of(declaration, hints),
        }
    }

    /// The arguments of a call: what the tagger named first, then what is found in the words. The names of
    /// the required ones that are not there if any is missing, and of those whose value the schema refuses.
    pub(crate) fn fill(
        &self,
        tagged: &[(String, String)],
        words: Words<'_>,
    ) -> Result<Arguments, Vec<String>> {
        let mut arguments = Arguments::default();
        let mut missing = Vec::new();
        for (parameter, found) in self.parameters.iter().zip(self.found(tagged, words)) {
            let Some((value, read)) = found else {
                if parameter.required {
                    missing.push(parameter.name.clone());
                } else {
                    arguments.open = true;
                }
                continue;
            };
            let value = as_said(&parameter.kind, value, words.said);
            let bounds = self.bounds.get(&parameter.name);
            if bounds.is_some_and(|bounds| !bounds.is_valid(&value)) {
                missing.push(parameter.name.clone());
                continue;
            }
            let last = !read.is_empty() && words.text.ends_with(read.as_str());
            arguments.growing |= last && parameter.may_grow(&read);
            arguments.values.insert(parameter.name.clone(), value);
            arguments.read.push(read);
        }
        if missing.is_empty() {
            Ok(arguments)
        } else {
            Err(missing)
        }
    }

    /// The finding for each parameter.
    fn found(&self, tagged: &[(String, String)], words: Words<'_>) -> Vec<Option<Found>> {
        let named = |parameter: &Parameter| {
            let (_, said) = tagged.iter().find(|(name, _)| *name == parameter.name)?;
            Some((parameter.value(said, words.today)?, said.clone()))
        };
        let parameters = self.parameters.iter();
        let mut found: Vec<Option<Found>> = parameters
            .map(|parameter| named(parameter).or_else(|| self.find(parameter, words)))
            .collect();
        // Free text is anybody's guess: only where the call needs it, and one piece of it.
        let parameters = self.parameters.iter().enumerate();
        let mut free = parameters.filter(|(_, one)| one.required && is_free(one));
        if let (Some((at, one)), None) = (free.next(), free.next())
            && found[at].is_none()
            && one.words.is_empty()
        {
            found[at] = self.free(one, words, &found);
        }
        found
    }

    /// The parameter for a day, if the words name a day that it cannot be.
    pub(crate) fn unfit_day(&self, words: Words<'_>) -> Option<&Parameter> {
        dates::other_day(words.text)?;
        let day = self.parameters.iter().find(|one| one.is_day())?;
        self.find(day, words).is_none().then_some(day)
    }

    /// The value of one parameter and the words that it was read from.
    fn find(&self, parameter: &Parameter, words: Words<'_>) -> Option<Found> {
        let Words { text, today, .. } = words;
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
            Kind::Number | Kind::Integer => self.number(parameter, words),
            Kind::Code if alone => codes::code(&parameter.name, text),
            _ => None,
        }
    }

    /// The number before a parameter's name ("3 guests"), or the only one that no other parameter has.
    fn number(&self, parameter: &Parameter, words: Words<'_>) -> Option<Found> {
        let read = |said: String| {
            let value = parameter.value(&said, words.today)?;
            let fits = !is_other_bound(&parameter.name, &said, words.text);
            fits.then_some((value, said))
        };
        let own = counted(&parameter.name, words.text);
        if let [said, rest @ ..] = own.as_slice() {
            let is_one = rest.iter().all(|other| other == said);
            return is_one.then(|| (*said).to_owned()).and_then(read);
        }
        let others = self.parameters.iter();
        let others = others.filter(|one| is_number(one) && one.name != parameter.name);
        let others: Vec<Vec<&str>> = others.map(|one| counted(&one.name, words.text)).collect();
        if others.iter().any(Vec::is_empty) {
            return None;
        }
        // "12 months at 5 percent" has no amount.
        if !others.is_empty() && (words.text.contains('%') || words.text.contains(" percent")) {
            return None;
        }
        let left = self.without(words.text, others.iter().flatten().copied());
        match slots::numbers(&self.untimed(parameter, left, words.today)).as_slice() {
            [only] => read(numbers::plain(*only)),
            _ => None,
        }
    }

    /// A text without the days, times and lengths of time in it, unless the number is one of them.
    fn untimed(&self, parameter: &Parameter, mut text: String, today: Date) -> String {
        let name = parameter.name.to_lowercase();
        let is_about = |words: &[&str]| name.split(['_', '-']).any(|word| words.contains(&word));
        let has_day =
            self.parameters.iter().any(Parameter::is_day) || dates::read(&text, today).is_some();
        if !is_about(&["hour", "time"]) {
            text = slots::without_clock(&text, has_day);
        }
        if !is_about(&["day", "date", "year"]) {
            text = dates::without(&text);
        }
        durations::without(&text)
    }

    /// The words that a request is about, without those of other arguments. Listed values are among them if nothing
    /// else is: "shoes" of "search for shoes".
    fn free(
        &self,
        parameter: &Parameter,
        words: Words<'_>,
        found: &[Option<Found>],
    ) -> Option<Found> {
        let is_listed =
            |one: &Parameter| matches!(one.kind, Kind::Choice(_)) || !one.words.is_empty();
        let others = || {
            let all = self.parameters.iter().zip(found);
            all.filter_map(|(one, found)| Some((one, found.as_ref()?.1.as_str())))
        };
        let subject = |text: String| {
            let is_cut = text.len() < words.text.len();
            let named = |words: &&str| !is_cut || words.split(' ').any(|word| !is_around(word));
            let mut recipients = self.recipients(&parameter.name, &text);
            // "to anna to cover dinner": one of them is a purpose.
            if recipients.len() > 1 {
                return None;
            }
            recipients
                .pop()
                .or_else(|| self.frame.subject(&text))
                .or_else(|| slots::free_text(&text).filter(named).map(str::to_owned))
        };
        let quoted = slots::quoted(words.said).map(text::normalise);
        let subject = quoted
            .or_else(|| subject(self.without(words.text, others().map(|(_, read)| read))))
            .or_else(|| {
                let unlisted = others().filter(|(one, _)| !is_listed(one));
                subject(self.without(words.text, unlisted.map(|(_, read)| read)))
            })?;
        Some((subject.clone().into(), subject))
    }

    /// Those to whom something may go, for a parameter of that name: "anna" of "send it to anna please".
    fn recipients(&self, name: &str, text: &str) -> Vec<String> {
        let name = name.to_lowercase();
        let mut parts = name.split(['_', '-']);
        if !parts.any(|word| matches!(word, "to" | "recipient")) {
            return Vec::new();
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let named = |to: usize| {
            let before = to.checked_sub(1).map(|at| words[at]);
            if words[to] != "to" || before.is_some_and(|word| LEADS_TO_A_VERB.contains(&word)) {
                return None;
            }
            let behind = words[to + 1..].iter().skip_while(|word| {
                matches!(
                    **word,
                    "a" | "an" | "the" | "my" | "our" | "your" | "his" | "her" | "their"
                )
            });
            let run: Vec<&str> = behind
                .take_while(|word| !is_around(word))
                .copied()
                .collect();
            let is_named = run.first().is_some_and(|word| !self.frame.has(word));
            is_named.then(|| run.join(" "))
        };
        (0..words.len()).filter_map(named).collect()
    }

    /// A text without the first occurrence of each of these runs of words, and without the unit of a number.
    fn without<'a>(&self, text: &str, runs: impl Iterator<Item = &'a str>) -> String {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let is_unit = |word: &str| {
            let mut counted = self.parameters.iter().filter(|one| is_number(one));
            MONEY.contains(&stem(word)) || counted.any(|one| is_plural_name(&one.name, word))
        };
        // Some values are read from the whole text.
        for run in runs.filter(|run| *run != text) {
            let run: Vec<&str> = run.split_whitespace().collect();
            let is_here = |at: &usize| {
                let said = words.get(*at..at + run.len());
                said.is_some_and(|said| said.iter().zip(&run).all(|(a, b)| is_same(a, b)))
            };
            let Some(at) = (0..words.len()).find(is_here) else {
                continue;
            };
            let is_amount = run.len() == 1 && amount(run[0]).is_some();
            let end = at + run.len();
            let has_unit = is_amount && words.get(end).is_some_and(|word| is_unit(word));
            words.drain(at..end + usize::from(has_unit));
        }
        words.join(" ")
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

/// Whether any words may be the value.
fn is_free(parameter: &Parameter) -> bool {
    parameter.kind == Kind::Text
}

fn is_number(parameter: &Parameter) -> bool {
    matches!(parameter.kind, Kind::Number | Kind::Integer)
}

/// Whether a tool's name or descriptions are about going from one place to another.
fn is_journey(spec: &ToolSpec) -> bool {
    let described = |schema: &Value| {
        let about = schema.get("description").and_then(Value::as_str);
        about.unwrap_or_default().to_owned()
    };
    let name = spec.name.replace(['_', '-'], " ");
    let mut about = vec![name, spec.description.clone()];
    about.extend(spec.properties().map(|(_, schema)| described(schema)));
    let about = text::normalise(&about.join(" "));
    about.split(' ').any(|word| JOURNEYS.contains(&stem(word)))
}

/// The numbers that stand before a parameter's name, with the other one of "2 or 3 guests".
fn counted<'a>(name: &str, text: &'a str) -> Vec<&'a str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_digits =
        |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && amount(word).is_some();
    let mut numbers = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        if !is_digits(pair[0]) || !is_plural_name(name, pair[1]) {
            continue;
        }
        if let Some([other, "or" | "to"]) = at.checked_sub(2).map(|from| &words[from..at])
            && is_digits(other)
        {
            numbers.push(*other);
        }
        numbers.push(pair[0]);
    }
    numbers
}

/// Whether a word behind a number is the parameter's name: "guests" of "3 guests", not "orders" of "2 orders"
/// for "order".
fn is_plural_name(name: &str, word: &str) -> bool {
    let name = name.to_lowercase();
    name.split(['_', '-'])
        .any(|own| own.len() > 2 && (own == word || stem(own) != own && stem(own) == stem(word)))
}

/// Whether a text bounds this number on the other side than the parameter does: "above 50" for "max_price".
fn is_other_bound(name: &str, number: &str, text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| is_same(word, number));
    let before = &words[..at.unwrap_or_default()];
    let bound = BOUNDING.iter().find_map(|(said, is_least)| {
        let before = before.strip_suffix(*said)?;
        let is_denied = matches!(before.last(), Some(&("no" | "not" | "nothing")));
        Some(*is_least != is_denied)
    });
    let is_named = |short: &str, long: &str| {
        name.split(['_', '-']).any(|part| {
            let rest = part.strip_prefix(short);
            part == long || rest.is_some_and(|rest| !rest.starts_with(char::is_lowercase))
        })
    };
    match bound {
        Some(true) => is_named("max", "maximum"),
        Some(false) => is_named("min", "minimum"),
        None => false,
    }
}

/// A number as it is compared with others: "50" for "$50.00".
fn amount(word: &str) -> Option<String> {
    let digits = word.trim_matches(['$', '€', '£', '%']);
    digits.parse::<f64>().ok().map(numbers::plain)
}

fn is_same(a: &str, b: &str) -> bool {
    a == b || amount(a).is_some_and(|a| amount(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Effect;
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
            (
                json!({"query": text(), "color": text()}),
                vec!["query"],
                "search for red running shoes",
                Some(json!({"query": "red running shoes"})),
            ),
            (
                json!({"from": {"type": "string", "description": "The station."}, "to": text()}),
                vec!["from", "to"],
                "trains from York to Leeds on Friday",
                Some(json!({"from": "York", "to": "Leeds"})),
            ),
            (
                json!({"from": text(), "to": text()}),
                vec!["from", "to"],
                "a letter from York to Leeds",
                None,
            ),
        ] {
            assert_eq!(fill(properties, &required, said), expected, "{said}");
        }
    }

    #[test]
    fn a_number_is_the_value_of_one_parameter() {
        let loan = || json!({"amount": {"type": "number"}, "months": {"type": "integer"}});
        let table = || {
            json!({
                "guests": {"type": "integer", "maximum": 8},
                "day": {"type": "string", "format": "date"},
            })
        };
        for (properties, required, said, expected) in [
            (
                loan(),
                vec!["amount", "months"],
                "the payment on 5000",
                None,
            ),
            (
                loan(),
                vec!["amount", "months"],
                "the payments for a loan over 24 months",
                None,
            ),
            (
                loan(),
                vec!["amount", "months"],
                "a loan of 5000 euros over 36 months",
                Some(json!({"amount": 5000, "months": 36})),
            ),
            (
                loan(),
                vec!["amount", "months"],
                "a loan over 12 months at 5 percent",
                None,
            ),
            (
                table(),
                vec!["day"],
                "is it free in two weeks",
                Some(json!({"day": "2026-12-05"})),
            ),
            (
                table(),
                vec!["day"],
                "is it free tomorrow at 7",
                Some(json!({"day": "2026-11-22"})),
            ),
            (
                table(),
                vec!["day"],
                "is it free at 7:30 tomorrow for two",
                Some(json!({"guests": 2, "day": "2026-11-22"})),
            ),
            (
                table(),
                vec!["day"],
                "for 3 guests on Friday at 8",
                Some(json!({"guests": 3, "day": "2026-11-27"})),
            ),
            (
                table(),
                vec!["day"],
                "for 3 or 4 guests on Friday",
                Some(json!({"day": "2026-11-27"})),
            ),
            // For two, or on the second.
            (table(), vec!["day"], "a table for two, December 20", None),
            // More than the schema allows.
            (table(), vec!["day"], "for nine guests tomorrow", None),
            (
                json!({"people": {"type": "integer"}}),
                vec!["people"],
                "four people on Friday at 8",
                Some(json!({"people": 4})),
            ),
            (
                json!({"order": {"type": "integer"}}),
                vec!["order"],
                "I have 2 orders, where is number 77",
                None,
            ),
            (
                json!({"degrees": {"type": "number"}}),
                vec!["degrees"],
                "make it warm at 20",
                Some(json!({"degrees": 20})),
            ),
        ] {
            assert_eq!(fill(properties, &required, said), expected, "{said}");
        }
    }

    #[test]
    fn a_number_is_no_bound_on_the_other_side() {
        for (name, said, is_found) in [
            ("max_price", "anything above 50 euros", false),
            ("max_price", "anything for over $50", false),
            ("maxPrice", "anything for more than 50 euros", false),
            ("maximum_guests", "a room for at least 50 guests", false),
            ("price_max", "anything for no less than 50 euros", false),
            ("max_price", "anything for no more than 50 euros", true),
            ("max_price", "nothing over 50 euros", true),
            ("max_price", "anything cheaper than 50 euros", true),
            ("max_price", "anything for about 50 euros", true),
            ("min_price", "anything under 50 euros", false),
            ("min_price", "anything up to 50 euros", false),
            ("min_price", "anything for no less than 50 euros", true),
            ("min_price", "anything over 50 euros", true),
            ("minority", "less than 50", true),
            ("price", "anything above 50 euros", true),
        ] {
            let properties = json!({name: {"type": "number"}});
            let expected = match is_found {
                true => json!({name: 50}),
                false => json!({}),
            };
            assert_eq!(
                fill(properties, &[], said),
                Some(expected),
                "{name}: {said}"
            );
        }
        // The bound is a part of what is asked for.
        let shoes = || json!({"query": {"type": "string"}, "max_price": {"type": "number"}});
        assert_eq!(
            fill(
                shoes(),
                &["query"],
                "search for running shoes above 50 euros"
            ),
            Some(json!({"query": "running shoes above 50 euros"}))
        );
        assert_eq!(
            fill(shoes(), &["query"], "do you have shoes above 50 euros"),
            None
        );
    }

    #[test]
    fn free_text_has_no_words_of_other_arguments() {
        let text = || json!({"type": "string"});
        let transfer = || json!({"amount": {"type": "number"}, "to": text()});
        let article =
            || json!({"article": text(), "size": {"type": "string", "enum": ["small", "large"]}});
        let shoes = || json!({"query": text(), "max_price": {"type": "number"}});
        for (properties, required, said, expected) in [
            (
                transfer(),
                vec!["amount", "to"],
                "send 50 euros to Anna",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "I want to send $50 to Anna please",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "I wanted to send 50 euros to Anna",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "I'm trying to send 50 euros to Anna",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "Is it possible to send 50 euros to Anna",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "I'd like you to send 50 euros to Anna",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "I was hoping to send 50 euros to Anna",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "send 50 euros to Anna to pay for dinner",
                Some(json!({"amount": 50, "to": "Anna"})),
            ),
            (
                transfer(),
                vec!["amount", "to"],
                "send 50 euros to Anna to cover dinner",
                None,
            ),
            (
                article(),
                vec!["article"],
                "do you have large garden gnomes",
                Some(json!({"article": "garden gnomes", "size": "large"})),
            ),
            (
                shoes(),
                vec!["query"],
                "do you have running shoes for less than 50 euros",
                Some(json!({"query": "running shoes", "max_price": 50})),
            ),
            (
                shoes(),
                vec!["query"],
                "do you have running shoes below $50",
                Some(json!({"query": "running shoes", "max_price": 50})),
            ),
            // Nothing else is left.
            (
                article(),
                vec!["article"],
                "search for large",
                Some(json!({"article": "large", "size": "large"})),
            ),
        ] {
            assert_eq!(fill(properties, &required, said), expected, "{said}");
        }
    }
}
