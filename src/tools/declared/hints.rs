//! How people ask for a tool, for whoever predicts calls from words.

use crate::router::{parameters, text};
use crate::tools::{Declaration, Equivalence, places};
use regex::Captures;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

/// Ways to ask for a tool, as its declaration lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterHints {
    /// Regular expressions over normalised words ([`text::normalise`]): lower case, no
    /// punctuation, numbers as digits. Named groups are arguments.
    pub rules: Vec<String>,
    /// Sentences that ask for it.
    pub examples: Vec<String>,
    /// By argument: what a word that a rule caught stands for, such as "dollars" for "USD".
    pub words: BTreeMap<String, BTreeMap<String, String>>,
    /// Intents of a trained head that ask for it, beside the one of its own name.
    pub intents: Vec<String>,
}

impl RouterHints {
    /// The arguments that a rule caught, in the order and the types of the schema. `said` is the
    /// utterance as it was transcribed: names keep the capitals they have there. `None` if a caught
    /// number is none, or a required argument was not caught.
    pub fn arguments(
        &self,
        declaration: &Declaration,
        caught: &Captures<'_>,
        said: &str,
    ) -> Option<Map<String, Value>> {
        let schema = &declaration.spec.parameters;
        let mut arguments = Map::new();
        for name in schema.get("properties")?.as_object()?.keys() {
            let words = caught.name(name).map(|found| found.as_str().trim());
            if let Some(words) = words.filter(|words| !words.is_empty()) {
                let value = self.value(declaration, name, words, said)?;
                arguments.insert(name.clone(), value);
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        let is_there = |name: &Value| {
            name.as_str().is_some_and(|name| {
                arguments.contains_key(name) || property(schema, name).get("default").is_some()
            })
        };
        let complete = required.is_none_or(|names| names.iter().all(is_there));
        complete.then_some(arguments)
    }

    fn value(
        &self,
        declaration: &Declaration,
        name: &str,
        words: &str,
        said: &str,
    ) -> Option<Value> {
        let schema = property(&declaration.spec.parameters, name);
        if let Some(known) = self.words.get(name) {
            return Some(
                known
                    .get(words)
                    .cloned()
                    .unwrap_or_else(|| words.to_owned())
                    .into(),
            );
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("integer") => words.parse::<i64>().ok().map(Value::from),
            Some("number") => {
                let whole = words.parse::<i64>().ok().map(Value::from);
                whole.or_else(|| Number::from_f64(words.parse().ok()?).map(Value::Number))
            }
            Some("boolean") => Some(Value::Bool(!["no", "off", "false"].contains(&words))),
            _ if is_place(declaration, name) => {
                let words = parameters::words_of_a_name(words);
                (!words.is_empty()).then(|| place(words, said).into())
            }
            _ => Some(
                as_said(words, said)
                    .unwrap_or_else(|| words.to_owned())
                    .into(),
            ),
        }
    }
}

fn property<'a>(schema: &'a Value, name: &str) -> &'a Value {
    schema
        .get("properties")
        .and_then(|properties| properties.get(name))
        .unwrap_or(&Value::Null)
}

fn is_place(declaration: &Declaration, name: &str) -> bool {
    let kinds = declaration.equivalence.get(name);
    kinds.is_some_and(|kinds| kinds.contains(&Equivalence::Place))
}

fn place(words: &str, said: &str) -> String {
    let capital = |said: &String| said.starts_with(char::is_uppercase);
    as_said(words, said)
        .filter(capital)
        .unwrap_or_else(|| places::title_case(words))
}

/// The words of `said` that normalise to `words`, without the punctuation around them.
fn as_said(words: &str, said: &str) -> Option<String> {
    let all: Vec<&str> = said.split_whitespace().collect();
    let runs = (0..all.len()).flat_map(|from| (from + 1..=all.len()).map(move |to| (from, to)));
    let found = runs
        .map(|(from, to)| all[from..to].join(" "))
        .find(|run| text::normalise(run) == words)?;
    let edge = |c: char| c.is_ascii_punctuation() && !"$€£%+-".contains(c);
    Some(found.trim_matches(edge).to_owned()).filter(|run| !run.is_empty())
}
