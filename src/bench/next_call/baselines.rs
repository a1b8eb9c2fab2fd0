//! Plain ways to predict the next call, for comparison.

use super::data::DataSet;
use crate::prediction::patterns::{Call, Happened, MOST, PastConversation};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The tool before the first call.
const START: &str = "^";

/// Counts over the calls of some conversations.
#[derive(Debug, Default)]
pub(super) struct Counts<'a> {
    /// How often each tool follows a given one, and any.
    follows: BTreeMap<&'a str, BTreeMap<&'a str, u32>>,
    /// The values of each argument of a tool.
    arguments: BTreeMap<&'a str, BTreeMap<&'a str, Values<'a>>>,
}

#[derive(Debug, Default)]
struct Values<'a> {
    /// How often it had each value.
    seen: Vec<(&'a Value, u32)>,
    /// The shapes of these values, as [`look`] returns them.
    looks: Vec<String>,
}

/// The part of a conversation before a call.
#[derive(Debug, Default)]
struct Before<'a> {
    words: Vec<&'a str>,
    arguments: Vec<&'a Map<String, Value>>,
    results: Vec<&'a Value>,
    previous: &'a str,
}

impl<'a> Counts<'a> {
    pub(super) fn of(conversations: &[&'a PastConversation], set: &DataSet) -> Self {
        let mut counts = Self::default();
        for conversation in conversations {
            let mut previous = START;
            for (tool, arguments) in conversation.calls() {
                if set.reads.contains(tool) {
                    for before in [previous, ""] {
                        let follows = counts.follows.entry(before).or_default();
                        *follows.entry(tool).or_default() += 1;
                    }
                    let known = counts.arguments.entry(tool).or_default();
                    for (name, value) in arguments {
                        known.entry(name).or_default().add(value);
                    }
                }
                previous = tool;
            }
        }
        counts
    }

    /// The most frequent tools, each with the last values that its arguments had in this conversation.
    pub(super) fn most_frequent(&self, conversation: &PastConversation) -> Vec<Vec<Call>> {
        self.each(conversation, |before| {
            self.calls(&[""], |name, _| before.last_argument(name))
        })
    }

    /// The tools that most often follow the last one, with arguments copied from what was said and returned: the latest
    /// value of this name, the latest word that looks like one, or else the most frequent value.
    pub(super) fn bigram(&self, conversation: &PastConversation) -> Vec<Vec<Call>> {
        self.each(conversation, |before| {
            self.calls(&[before.previous, ""], |name, values| {
                let copied = before.last_value(name).or_else(|| before.last_word(values));
                copied.or_else(|| values.most_frequent())
            })
        })
    }

    fn each(
        &self,
        conversation: &PastConversation,
        guess: impl Fn(&Before<'_>) -> Vec<Call>,
    ) -> Vec<Vec<Call>> {
        let mut before = Before {
            previous: START,
            ..Before::default()
        };
        let mut all = Vec::new();
        for happened in &conversation.happened {
            match happened {
                Happened::Said(words) => before.words.push(words),
                Happened::Called(tool, arguments) => {
                    all.push(guess(&before));
                    before.arguments.push(arguments);
                    before.previous = tool;
                }
                Happened::Resulted(result) => before.results.push(result),
            }
        }
        all
    }

    /// Calls of the tools that most often follow these and whose arguments are there, the most frequent first.
    fn calls(
        &self,
        after: &[&str],
        value: impl Fn(&str, &Values<'a>) -> Option<Value>,
    ) -> Vec<Call> {
        let mut tools: Vec<&str> = Vec::new();
        for before in after {
            let mut follows: Vec<_> = self.follows.get(before).into_iter().flatten().collect();
            follows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            tools.extend(follows.into_iter().map(|(tool, _)| *tool));
        }
        let mut calls: Vec<Call> = Vec::new();
        for tool in tools {
            let known = self.arguments.get(tool).into_iter().flatten();
            let arguments: Option<Map<String, Value>> = known
                .map(|(name, values)| Some(((*name).to_owned(), value(name, values)?)))
                .collect();
            if let Some(arguments) = arguments
                && calls.len() < MOST
                && !calls.iter().any(|(other, _)| other == tool)
            {
                calls.push((tool.to_owned(), arguments));
            }
        }
        calls
    }
}

impl<'a> Values<'a> {
    fn add(&mut self, value: &'a Value) {
        match self.seen.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => self.seen.push((value, 1)),
        }
        let look = value.as_str().and_then(look);
        self.looks
            .extend(look.filter(|look| !self.looks.contains(look)));
    }

    fn most_frequent(&self) -> Option<Value> {
        let seen = self.seen.iter();
        seen.max_by_key(|(_, count)| *count)
            .map(|(value, _)| (*value).clone())
    }
}

impl Before<'_> {
    fn last_argument(&self, name: &str) -> Option<Value> {
        let mut calls = self.arguments.iter().rev();
        calls.find_map(|arguments| arguments.get(name)).cloned()
    }

    /// The latest value of this name in a result, or else in an argument.
    fn last_value(&self, name: &str) -> Option<Value> {
        let mut results = self.results.iter().rev();
        let found = results.find_map(|result| named(result, name)).cloned();
        found.or_else(|| self.last_argument(name))
    }

    /// The latest word that looks like a value.
    fn last_word(&self, values: &Values<'_>) -> Option<Value> {
        let words = self
            .words
            .iter()
            .rev()
            .flat_map(|words| words.split_whitespace().rev());
        let mut words = words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let is_alike = |word: &&str| look(word).is_some_and(|look| values.looks.contains(&look));
        words.find(is_alike).map(Value::from)
    }
}

/// The first scalar of this name.
fn named<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            let own = fields
                .get(name)
                .filter(|one| !one.is_array() && !one.is_object());
            own.or_else(|| fields.values().find_map(|field| named(field, name)))
        }
        Value::Array(items) => items.iter().find_map(|item| named(item, name)),
        _ => None,
    }
}

/// The shape of a code: one sign for digits and one for letters. `None` for plain words.
fn look(text: &str) -> Option<String> {
    let sign = |sign: char| match sign {
        '0'..='9' => '9',
        'A'..='Z' => 'A',
        'a'..='z' => 'a',
        other => other,
    };
    let is_code = text.contains(|c: char| c.is_ascii_digit());
    is_code.then(|| text.chars().map(sign).collect())
}
