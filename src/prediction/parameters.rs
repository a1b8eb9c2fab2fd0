//! A tool's parameters, and the words for them brought to the values that its schema wants.

use super::RouterHints;
use crate::language::en::{dates, durations, expression, places, slots, text, units::Unit};
use crate::tools::{Clock, Declaration, Equivalence};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where predictions read which day it is.
#[derive(Clone)]
pub struct Today {
    clock: Arc<dyn Clock>,
    zone: TimeZone,
}

impl Today {
    /// Days of `zone` by `clock`.
    pub fn new(clock: Arc<dyn Clock>, zone: TimeZone) -> Self {
        Self { clock, zone }
    }

    /// The day now.
    pub fn date(&self) -> Date {
        self.clock.now().to_zoned(self.zone.clone()).date()
    }
}

/// The machine's clock and zone.
impl Default for Today {
    fn default() -> Self {
        Self::new(Arc::new(crate::tools::SystemClock), TimeZone::system())
    }
}

impl std::fmt::Debug for Today {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Today").field(&self.zone).finish()
    }
}

/// The kind of a parameter: how words become its value.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A city, country or region, by its usual name.
    Place,
    /// A day, as `YYYY-MM-DD`.
    Date,
    /// A day in the words that people use, which the tool understands.
    Day,
    /// A length of time in whole seconds.
    Seconds,
    /// A length of time in whole minutes.
    Minutes,
    /// A unit of measurement, by its plural.
    Unit,
    /// An arithmetic expression.
    Expression,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Yes or no.
    Boolean,
    /// One of the schema's values.
    Choice(Vec<String>),
    /// A number or name with digits in it, as it is written: "BA117".
    Code,
    /// Words as they were said.
    Text,
}

/// One parameter of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// A call without it is refused.
    pub required: bool,
    /// Values that certain words stand for here, whatever the kind.
    pub words: BTreeMap<String, String>,
}

/// The parameters of a tool in the order of its schema.
pub fn parameters(declaration: &Declaration, hints: &RouterHints) -> Vec<Parameter> {
    let required: Vec<&str> = declaration.spec.required().collect();
    let properties = declaration.spec.properties();
    properties
        .map(|(name, schema)| Parameter {
            name: name.to_owned(),
            kind: declared_kind(declaration, name).unwrap_or_else(|| kind(name, schema)),
            required: required.contains(&name),
            words: hints.words.get(name).cloned().unwrap_or_default(),
        })
        .collect()
}

/// The kind of a parameter, from the differences that its declaration ignores.
fn declared_kind(declaration: &Declaration, name: &str) -> Option<Kind> {
    let equivalence = declaration.equivalence.get(name)?;
    if equivalence.contains(&Equivalence::Place) {
        Some(Kind::Place)
    } else {
        equivalence
            .contains(&Equivalence::Unit)
            .then_some(Kind::Unit)
    }
}

/// Free text and names as they are written in the transcript.
pub(super) fn as_said(kind: &Kind, value: Value, said: &str) -> Value {
    match (kind, value) {
        (Kind::Text | Kind::Day, Value::String(words)) => {
            written(&words, said).unwrap_or(words).into()
        }
        (Kind::Code, Value::String(words)) => {
            ungrouped(written(&words, said).unwrap_or(words)).into()
        }
        (Kind::Place, Value::String(name)) => {
            let written = written(&name, said);
            let capital = |name: &String| name.starts_with(char::is_uppercase);
            match written.filter(capital) {
                Some(written) => written.into(),
                None if places::is_listed(&name) => name.into(),
                // A name that the recogniser does not know is spelt by ear.
                None => places::by_sound(&name).unwrap_or(name).into(),
            }
        }
        (_, value) => value,
    }
}

/// The words of `said` that normalise to `words`, without the punctuation around them.
fn written(words: &str, said: &str) -> Option<String> {
    let words = text::normalise(words);
    let bare = |run: &str| {
        let edge = |c: char| c.is_ascii_punctuation() && !"$€£%+-".contains(c);
        run.trim_matches(edge).to_owned()
    };
    let all: Vec<&str> = said.split_whitespace().collect();
    let starts = (0..all.len()).filter(|&at| words.starts_with(&text::normalise(&bare(all[at]))));
    let runs = starts.flat_map(|from| (from..all.len()).map(move |to| (from, to)));
    runs.map(|(from, to)| bare(&all[from..=to].join(" ")))
        .find(|run| !run.is_empty() && text::normalise(run) == words)
}

/// A code without the marks that recognisers write between thousands: "5521" for "5,521".
fn ungrouped(code: String) -> String {
    let digits = |group: &str| group.chars().all(|c| c.is_ascii_digit());
    let mut groups = code.split(',');
    let first = groups.next().unwrap_or_default();
    let grouped = (1..=3).contains(&first.len())
        && digits(first)
        && groups.all(|group| group.len() == 3 && digits(group));
    match grouped {
        true => code.replace(',', ""),
        false => code,
    }
}

/// The kind of a property, by its schema, then its name, then its description.
fn kind(name: &str, schema: &Value) -> Kind {
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let choices = choices.iter().filter_map(Value::as_str);
        return Kind::Choice(choices.map(str::to_owned).collect());
    }
    let name = name.to_lowercase();
    let about = text("description").to_lowercase();
    match text("type") {
        "boolean" => Kind::Boolean,
        numeric @ ("integer" | "number") => number_kind(numeric, &name, &about),
        _ if text("format") == "date" => Kind::Date,
        _ => text_kind(&name, &about),
    }
}

fn number_kind(numeric: &str, name: &str, about: &str) -> Kind {
    let is_length =
        name.contains("duration") || name.contains("length") || about.contains("how long");
    if name.contains("second") || is_length && about.contains("seconds") {
        Kind::Seconds
    } else if name.contains("minutes") || is_length && about.contains("minutes") {
        Kind::Minutes
    } else if numeric == "integer" {
        Kind::Integer
    } else {
        Kind::Number
    }
}

fn text_kind(name: &str, about: &str) -> Kind {
    let one_of = |names: &[&str]| {
        let mut words = name.split(['_', '-']);
        words.any(|word| names.contains(&word))
    };
    if one_of(&[
        "city",
        "place",
        "location",
        "country",
        "town",
        "destination",
        "origin",
        "region",
    ]) {
        Kind::Place
    } else if one_of(&["date", "day"]) && about.contains("tomorrow") {
        Kind::Day
    } else if one_of(&["date", "day"]) || about.contains("yyyy-mm-dd") {
        Kind::Date
    } else if one_of(&["unit", "units"]) || about.contains("unit") && one_of(&["from", "to"]) {
        Kind::Unit
    } else if name == "expression" {
        Kind::Expression
    } else if one_of(&["id", "number", "no", "code", "reference", "ref", "sku"]) || is_code(about) {
        Kind::Code
    } else {
        Kind::Text
    }
}

/// "The order number.", "Flight code, such as BA117."
fn is_code(about: &str) -> bool {
    let mut words = about.split(|c: char| !c.is_alphanumeric()).take(6);
    words.any(|word| matches!(word, "number" | "id" | "code"))
}

impl Parameter {
    /// The value that normalised words mean here; `None` if they mean none.
    pub fn value(&self, words: &str, today: Date) -> Option<Value> {
        if let Some(meant) = self.words.get(words.trim()) {
            return Some(meant.as_str().into());
        }
        // A day may be all that `tidy` would take away.
        match self.kind {
            Kind::Date => return Some(dates::read(words, today)?.to_string().into()),
            Kind::Day => return dates::read(words, today).map(|_| words.into()),
            _ => {}
        }
        let words = slots::without_tail(words);
        if words.is_empty() {
            return None;
        }
        // "The weather in the" names no place yet; "a" may be a number.
        let is_named = matches!(self.kind, Kind::Place | Kind::Code | Kind::Text);
        if is_named && (slots::lacks_noun(words) || slots::names_nothing(words)) {
            return None;
        }
        match &self.kind {
            Kind::Date | Kind::Day => None,
            Kind::Place => place(words).map(Value::from),
            Kind::Seconds => durations::seconds(words)
                .or_else(|| words.parse().ok())
                .map(Value::from),
            Kind::Minutes => match durations::seconds(words) {
                Some(seconds) => (seconds % 60 == 0).then(|| json!(seconds / 60)),
                None => words.parse::<u64>().ok().map(Value::from),
            },
            Kind::Unit => Some(Unit::named(words)?.plural.into()),
            Kind::Expression => expression::read(words).map(Value::from),
            Kind::Number => slots::number(words).and_then(plain_number),
            Kind::Integer => slots::number(words)
                .filter(|n| n.fract() == 0.0)
                .map(|n| json!(n as i64)),
            Kind::Boolean => slots::boolean(words).map(Value::from),
            Kind::Choice(choices) => choice(words, choices).map(Value::from),
            Kind::Code | Kind::Text => Some(words.into()),
        }
    }

    /// Whether it is a day, in whatever form.
    pub fn is_day(&self) -> bool {
        match &self.kind {
            Kind::Date | Kind::Day => true,
            Kind::Choice(choices) => {
                let is_day = |one: &String| matches!(one.as_str(), "today" | "tomorrow");
                choices.iter().any(is_day)
            }
            _ => false,
        }
    }

    /// The values that its schema lists.
    pub fn choices(&self) -> &[String] {
        match &self.kind {
            Kind::Choice(choices) => choices,
            _ => &[],
        }
    }

    /// Normalised words that could name it.
    pub fn example(&self) -> &str {
        if let Some(words) = self.words.keys().next() {
            return words;
        }
        match &self.kind {
            Kind::Place => "boston",
            Kind::Date | Kind::Day => "tomorrow",
            Kind::Seconds | Kind::Minutes => "10 minutes",
            Kind::Unit => "miles",
            Kind::Expression | Kind::Number | Kind::Integer => "5",
            Kind::Boolean => "yes",
            Kind::Choice(choices) => choices.first().map_or("", String::as_str),
            Kind::Code => "a12",
            Kind::Text => "something",
        }
    }

    /// Whether more words could turn the value into another: "new" into "new york".
    pub fn may_grow(&self, words: &str) -> bool {
        match self.kind {
            Kind::Place => {
                let words = slots::without_tail(words);
                let name = slots::words_of_a_name(words);
                // "tokyo right": the name is over.
                name.len() == words.len()
                    && (places::find(name).is_err() || places::may_continue(name))
            }
            Kind::Choice(_) | Kind::Boolean | Kind::Unit => false,
            _ => true,
        }
    }
}

/// Whole numbers are written without a decimal point, as models write them.
fn plain_number(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return Some(json!(number as i64));
    }
    serde_json::Number::from_f64(number).map(Value::Number)
}

fn choice(words: &str, choices: &[String]) -> Option<String> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], " ");
    let same = choices.iter().find(|choice| plain(choice) == words);
    let stem = |text: &str| plain(text).trim_end_matches('s').to_owned();
    let near = || choices.iter().find(|choice| stem(choice) == stem(words));
    same.or_else(near).cloned()
}

/// The usual name of a known place, the words in title case for another.
fn place(words: &str) -> Option<String> {
    // "here" is the user's own place: the parameter stays open.
    if matches!(words, "here" | "there" | "my area" | "my city" | "town") {
        return None;
    }
    // "Boulder, Colorado" keeps its region: there is more than one Boulder.
    let listed = |words: &str| Some(places::named(words)?.name);
    let words = match listed(words) {
        Some(name) => return Some(name),
        None => slots::words_of_a_name(words),
    };
    if let Some(name) = listed(words) {
        return Some(name);
    }
    if words.is_empty() {
        return None;
    }
    let short = words.split(' ').count() <= 4 && !words.contains(|c: char| c.is_ascii_digit());
    short.then(|| places::title_case(words.trim_start_matches("the ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use jiff::civil::date;
    use std::time::Duration;

    fn one(name: &str, schema: Value) -> Parameter {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "tool".into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {name: schema}, "required": [name]}),
        };
        let declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        parameters(&declaration, &RouterHints::default()).remove(0)
    }

    #[test]
    fn words_become_what_the_schema_wants() {
        let text = json!({"type": "string"});
        let unit = json!({"type": "string", "description": "The unit wanted."});
        let whole = json!({"type": "integer"});
        let size = json!({"type": "string", "enum": ["small", "extra_large"]});
        for (name, schema, words, expected) in [
            ("city", &text, "nyc please", Some(json!("New York"))),
            (
                "city",
                &text,
                "springvale tomorrow",
                Some(json!("Springvale")),
            ),
            ("city", &text, "here", None),
            ("city", &text, "the", None),
            ("query", &text, "all of my", None),
            ("city", &text, "though", None),
            ("city", &text, "please now", None),
            ("city", &text, "boston though", Some(json!("Boston"))),
            ("query", &text, "please", None),
            ("recipient", &text, "her", Some(json!("her"))),
            ("city", &text, "the hague", Some(json!("The Hague"))),
            ("date", &text, "next friday", Some(json!("2026-11-27"))),
            ("date", &text, "tomorrow", Some(json!("2026-11-22"))),
            ("date", &text, "boston", None),
            ("from", &unit, "miles", Some(json!("miles"))),
            ("to", &unit, "cm", Some(json!("centimeters"))),
            ("to", &unit, "bananas", None),
            (
                "seconds",
                &whole,
                "10 minutes and 30 seconds",
                Some(json!(630)),
            ),
            ("duration_minutes", &whole, "2 hours", Some(json!(120))),
            ("duration_minutes", &whole, "90 seconds", None),
            ("guests", &whole, "4", Some(json!(4))),
            ("guests", &whole, "4.5", None),
            (
                "amount",
                &json!({"type": "number"}),
                "$4.50",
                Some(json!(4.5)),
            ),
            ("amount", &json!({"type": "number"}), "12", Some(json!(12))),
            ("size", &size, "extra large", Some(json!("extra_large"))),
            ("size", &size, "huge", None),
            ("expression", &text, "12 times 7", Some(json!("12 * 7"))),
            (
                "query",
                &text,
                "the beatles please",
                Some(json!("the beatles")),
            ),
        ] {
            let parameter = one(name, schema.clone());
            let value = parameter.value(words, date(2026, 11, 21));
            assert_eq!(value, expected, "{name}: {words}");
        }
    }

    #[test]
    fn words_may_stand_for_something_and_text_keeps_its_capitals() {
        let mut currency = one("to", json!({"type": "string"}));
        currency.words.insert("dollars".into(), "USD".into());
        let value = |words| currency.value(words, date(2026, 11, 21));
        assert_eq!(value("dollars"), Some(json!("USD")));
        assert_eq!(value("pesos"), Some(json!("pesos")));
        let said = as_said(&Kind::Text, json!("the beatles"), "Play The Beatles!");
        assert_eq!(said, "The Beatles");
        assert_eq!(
            as_said(&Kind::Text, json!("2 cars"), "two cars"),
            "two cars"
        );
    }

    #[test]
    fn codes_have_no_marks_between_thousands() {
        for (words, said, code) in [
            ("5521", "Where is my order 5,521?", "5521"),
            ("1234567", "Order 1,234,567, please.", "1234567"),
            ("10.200", "Is version 10.200 out?", "10.200"),
            ("ba117", "Is BA117 on time?", "BA117"),
            ("1.25", "Is version 1.25 out?", "1.25"),
        ] {
            assert_eq!(as_said(&Kind::Code, json!(words), said), code, "{said}");
        }
    }

    #[test]
    fn a_place_that_may_go_on_is_known_to() {
        let city = one("city", json!({"type": "string"}));
        assert!(city.may_grow("new"));
        assert!(city.may_grow("york new"));
        assert!(city.may_grow("san"));
        assert!(!city.may_grow("tokyo"));
    }

    #[test]
    fn a_place_ends_before_a_verb() {
        assert_eq!(place("boulder is like").as_deref(), Some("Boulder"));
        assert_eq!(place("gotham is looking").as_deref(), Some("Gotham"));
        assert_eq!(place("is").as_deref(), None);
        assert_eq!(
            place("trinidad and tobago").map(|p| p.to_lowercase()),
            Some("trinidad and tobago".into())
        );
    }
}
