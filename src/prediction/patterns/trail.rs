//! A conversation as the learner sees it: its calls with the places of their values, and the shapes of the
//! user's words.

use super::leaves::Leaves;
use super::origin::Schemas;
use crate::language::en::{dates, text};
use jiff::civil::Date;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most calls that are remembered.
const CALLS: usize = 16;
/// The most utterances of the user that are remembered.
const UTTERANCES: usize = 16;
/// The most characters of an utterance that are read.
const READ: usize = 1_000;
/// The longest text that may be a value, characters.
const LONGEST: usize = 40;

/// Stands for a tool that is not known: a model may invent one of the words that it has heard.
const UNKNOWN: &str = "(unknown)";

/// The ending of a call that has no result yet.
pub(super) const OPEN: &str = "open";

/// A call and its result.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub tool: String,
    pub given: Map<String, Value>,
    pub arguments: Leaves,
    pub result: Leaves,
    /// The tool and the names of its arguments.
    pub signature: String,
    /// The kind of its result.
    pub ending: &'static str,
}

/// The user's words of one shape.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    /// The first in the latest utterance that has one.
    pub first: String,
    /// All of them, the latest first, and last those that may have a capital only because a sentence begins with them.
    pub all: Vec<String>,
}

/// A conversation so far. It holds people's words and is dropped with the conversation.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    pub(super) calls: Vec<Made>,
    pub(super) spans: BTreeMap<String, Spans>,
    /// Every span and word, as it was said, in lower and in upper case.
    pub(super) named: BTreeSet<String>,
    /// The latest utterances, the latest first, in lower case and without marks, between spaces.
    pub(super) plain: Vec<String>,
    utterances: Vec<String>,
    today: Date,
    /// The user has spoken since the last call.
    pub(super) spoke: bool,
    /// The number of the user's turns since the last call, at least.
    pub(super) turns: u32,
    /// The client's kind, as in [`Question`](crate::prediction::Question).
    pub(super) came_by: Option<Arc<str>>,
    /// The user is about to speak: the words that matter are not known yet.
    pub(super) is_before_words: bool,
}

impl Trail {
    /// A conversation that begins on this day.
    pub fn new(today: Date) -> Self {
        Self {
            today,
            ..Self::default()
        }
    }

    /// This trail, of a client that came this way.
    pub(super) fn by(self, came_by: Option<Arc<str>>) -> Self {
        Self { came_by, ..self }
    }

    /// Adds an utterance of the user.
    pub fn said(&mut self, words: &str) {
        self.turns += 1;
        let mut utterances = std::mem::take(&mut self.utterances);
        utterances.push(words.to_owned());
        if utterances.len() > UTTERANCES {
            utterances.remove(0);
        }
        self.spoke = true;
        self.hear(utterances);
    }

    /// Sets the user's utterances, oldest first.
    pub(super) fn hear(&mut self, utterances: Vec<String>) {
        if self.utterances == utterances && !self.named.is_empty() {
            return;
        }
        self.spans.clear();
        self.named.clear();
        self.plain.clear();
        let mut unlikely = Vec::new();
        for utterance in utterances.iter().rev() {
            let utterance: String = utterance.chars().take(READ).collect();
            let first = first_words(&utterance);
            let is_first = |span: &String| first.contains(&span.as_str());
            let (less_likely, mut spans): (Vec<_>, Vec<_>) =
                spans(&utterance).into_iter().partition(is_first);
            spans.extend(said_dates(&utterance, self.today));
            self.index(&spans);
            unlikely.extend(less_likely);
            self.plain.push(plain(&utterance));
        }
        unlikely.into_iter().for_each(|span| self.index(&[span]));
        self.utterances = utterances;
    }

    /// The conversation as it was before the user's last words.
    pub(super) fn before_last_words(&self) -> Self {
        let mut earlier = self.clone();
        let mut utterances = self.utterances.clone();
        utterances.pop();
        earlier.hear(utterances);
        earlier
    }

    fn index(&mut self, spans: &[String]) {
        let mut new: BTreeMap<String, Spans> = BTreeMap::new();
        for span in spans {
            self.named
                .extend([span.clone(), span.to_lowercase(), span.to_uppercase()]);
            let Some(shape) = shape(span) else { continue };
            let of = new.entry(shape).or_default();
            if of.all.is_empty() {
                of.first.clone_from(span);
            }
            of.all.insert(0, span.clone());
        }
        for (shape, one) in new {
            match self.spans.get_mut(&shape) {
                Some(known) => known.all.extend(one.all),
                None => drop(self.spans.insert(shape, one)),
            }
        }
    }

    /// Adds a committed call.
    pub fn called(&mut self, schemas: &Schemas, tool: &str, arguments: &Map<String, Value>) {
        if self.calls.len() == CALLS {
            self.calls.remove(0);
        }
        self.push(schemas, tool, arguments);
        (self.spoke, self.turns) = (false, 0);
    }

    /// Asks about the conversation as it would be after a further call.
    pub(super) fn supposing<T>(
        &mut self,
        schemas: &Schemas,
        tool: &str,
        arguments: &Map<String, Value>,
        ask: impl FnOnce(&Self) -> T,
    ) -> T {
        let (spoke, turns) = (self.spoke, self.turns);
        self.push(schemas, tool, arguments);
        (self.spoke, self.turns) = (false, 0);
        let answer = ask(self);
        self.calls.pop();
        (self.spoke, self.turns) = (spoke, turns);
        answer
    }

    /// Asks about the conversation as it is while the user says something that is not known yet.
    pub(super) fn before_words<T>(&mut self, ask: impl FnOnce(&mut Self) -> T) -> T {
        let spoke = std::mem::replace(&mut self.spoke, true);
        self.is_before_words = true;
        let answer = ask(self);
        self.is_before_words = false;
        self.spoke = spoke;
        answer
    }

    fn push(&mut self, schemas: &Schemas, tool: &str, arguments: &Map<String, Value>) {
        let declared = schemas.declared(tool, arguments);
        let tool = named(schemas, tool);
        self.calls.push(Made {
            tool: tool.to_owned(),
            given: arguments.clone(),
            arguments: Leaves::of_arguments(&declared),
            result: Leaves::default(),
            signature: signature(tool, &declared),
            ending: OPEN,
        });
    }

    /// Sets the result of the last call.
    pub fn resulted(&mut self, result: &Value) {
        let last = self.calls.len().saturating_sub(1);
        self.resulted_at(last, result);
    }

    pub(super) fn resulted_at(&mut self, at: usize, result: &Value) {
        if let Some(call) = self.calls.get_mut(at) {
            call.ending = ending(result);
            if call.tool != UNKNOWN {
                call.result = Leaves::of(result);
            }
        }
    }

    /// The kind of the last result; empty if there was no call.
    pub(super) fn ending(&self) -> &'static str {
        self.calls.last().map_or("", |call| call.ending)
    }

    /// The tool that was called last; `^` before the first.
    pub(super) fn previous(&self) -> &str {
        self.calls.last().map_or("^", |call| call.tool.as_str())
    }

    /// The latest call of a tool.
    pub(super) fn latest(&self, tool: &str) -> Option<&Made> {
        self.calls.iter().rev().find(|call| call.tool == tool)
    }

    /// Whether this very call was made.
    pub(super) fn was_made(&self, tool: &str, arguments: &Map<String, Value>) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| call.tool == tool && call.given == *arguments)
    }

    /// Whether the tool was called with this value.
    pub(super) fn was_used(&self, tool: &str, slot: &str, value: &Value) -> bool {
        let mut calls = self.calls.iter().filter(|call| call.tool == tool);
        calls.any(|call| call.arguments.first(slot) == Some(value))
    }
}

/// The name of a tool in a trail.
pub(super) fn named<'t>(schemas: &Schemas, tool: &'t str) -> &'t str {
    if schemas.knows(tool) { tool } else { UNKNOWN }
}

/// The tool and the names of its arguments.
fn signature(tool: &str, arguments: &Map<String, Value>) -> String {
    let mut names: Vec<&str> = arguments.keys().map(String::as_str).collect();
    names.sort_unstable();
    format!("{tool}({})", names.join(","))
}

/// The kind of a result.
fn ending(result: &Value) -> &'static str {
    let failed = |text: &str| matches!(text, "error" | "failed" | "failure" | "not_found");
    match result {
        Value::Null => "nothing",
        Value::Array(items) if items.is_empty() => "empty",
        Value::Array(_) => "list",
        Value::Object(fields) => {
            let status = fields.get("status").and_then(Value::as_str);
            let is_failure = status.is_some_and(failed) || fields.contains_key("error");
            match is_failure {
                true => "error",
                false if fields.is_empty() => "empty",
                false => "object",
            }
        }
        Value::String(text) if text.to_lowercase().starts_with("error") => "error",
        _ => "value",
    }
}

fn plain(utterance: &str) -> String {
    let lower = utterance.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" "))
}

/// The parts of an utterance that may be values, in order.
fn spans(utterance: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_mark = |c: char| c.is_whitespace() || ",;!?()\"'’".contains(c);
    for word in utterance.split(is_mark) {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        if word.is_empty() || word.len() > LONGEST {
            continue;
        }
        found.push(word.to_owned());
        let upper = word.to_uppercase();
        if upper != word && word.contains(|c: char| c.is_ascii_digit()) {
            found.push(upper);
        }
    }
    found.extend(spelt(utterance));
    found
}

/// The words that look like names and begin a sentence.
fn first_words(utterance: &str) -> Vec<&str> {
    let sentences = utterance.split(['.', '?', '!']);
    let words = sentences.filter_map(|sentence| sentence.split_whitespace().next());
    let words = words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    words
        .filter(|word| shape(word).as_deref() == Some("N"))
        .collect()
}

/// The dates in an utterance: one in each of its clauses.
fn said_dates(utterance: &str, today: Date) -> Vec<String> {
    let read = |text: &str| Some(dates::read(&text::normalise(text), today)?.to_string());
    let Some(first) = read(utterance) else {
        return Vec::new();
    };
    let clauses = utterance.split(['.', ',', ';', '?', '!']);
    let clauses = clauses.flat_map(|clause| clause.split(" and "));
    let mut found = vec![first];
    for date in clauses.filter_map(read) {
        if !found.contains(&date) {
            found.push(date);
        }
    }
    found
}

/// Codes that were said sign by sign: "E M P zero four eight".
fn spelt(utterance: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut code, mut parts) = (String::new(), 0);
    let words = utterance.split(|c: char| !c.is_ascii_alphanumeric());
    for word in words.filter(|word| !word.is_empty()).chain(["."]) {
        let is_short = word.len() <= 4 && word.chars().all(|c| c.is_ascii_uppercase());
        let is_number = word.chars().all(|c| c.is_ascii_digit());
        if let Some(digit) = digit(word) {
            code.push(digit);
        } else if word.len() == 1 && word != "." || is_short || is_number {
            code.push_str(&word.to_uppercase());
        } else {
            if parts >= 2 && code.len() <= LONGEST {
                found.push(std::mem::take(&mut code));
            }
            code.clear();
            parts = 0;
            continue;
        }
        parts += 1;
    }
    found
}

fn digit(word: &str) -> Option<char> {
    let digits = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    ];
    let word = word.to_ascii_lowercase();
    if word == "oh" {
        return Some('0');
    }
    let at = digits.iter().position(|name| *name == word)?;
    char::from_digit(u32::try_from(at).ok()?, 10)
}

/// The shape of a value: the kinds of its characters and their number, not the characters. `None` if it has no shape
/// that tells values from other words.
pub(super) fn shape(value: &str) -> Option<String> {
    if value.is_empty() || value.len() > LONGEST {
        return None;
    }
    let mut shape = String::new();
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let is_sign = |c: char| c.is_ascii_alphanumeric();
        if !is_sign(first) {
            shape.push(if "_-:/.@".contains(first) { first } else { '?' });
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c: char| !is_sign(c)).unwrap_or(rest.len());
        let part = &rest[..end];
        let digits = part.contains(|c: char| c.is_ascii_digit());
        let lower = part.contains(|c: char| c.is_ascii_lowercase());
        let upper = part.contains(|c: char| c.is_ascii_uppercase());
        match (digits, lower, upper) {
            (true, false, false) => shape.push_str(&format!("9{}", part.len())),
            (true, false, true) => shape.push_str(&format!("X{}", part.len())),
            (true, true, _) => shape.push_str(&format!("x{}", part.len())),
            (false, false, _) if part.len() > 1 => shape.push_str(&format!("A{}", part.len())),
            (false, _, true) => shape.push('N'),
            _ => shape.push('a'),
        }
        rest = &rest[end..];
    }
    Some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_holds_no_sign_of_the_value() {
        assert_eq!(shape("ZK3FFW").as_deref(), Some("X6"));
        assert_eq!(shape("mia_li_3668").as_deref(), Some("a_a_94"));
        assert_eq!(shape("2026-03-25").as_deref(), Some("94-92-92"));
        assert_eq!(shape("Rodriguez").as_deref(), Some("N"));
        assert_eq!(shape("the same as Ünal"), shape("the same as Ñuxi"));
    }

    #[test]
    fn a_code_that_was_spelt_is_a_span() {
        let mut trail = Trail::new(jiff::civil::date(2026, 3, 17));
        trail.said("My employee ID is E M P zero four eight two seven one. It is for March 25th.");
        assert_eq!(trail.spans["X9"].all, ["EMP048271"]);
        assert_eq!(trail.spans["94-92-92"].first, "2026-03-25");
    }

    #[test]
    fn the_first_word_of_a_sentence_is_the_last_that_is_taken_for_a_name() {
        let mut trail = Trail::new(jiff::civil::date(2026, 3, 17));
        trail.said("Please give me access to Datadog, and to Figma.");
        trail.said("Standard. No, wait!");
        assert_eq!(
            trail.spans["N"].all,
            ["Figma", "Datadog", "Standard", "No", "Please"]
        );
        trail.said("Rodriguez.");
        assert_eq!(trail.spans["N"].all[2], "Rodriguez");
        assert!(trail.named.contains("rodriguez"));
    }

    #[test]
    fn every_clause_may_name_a_date() {
        let mut trail = Trail::new(jiff::civil::date(2026, 3, 17));
        trail.said("I would leave on April 2nd and come back on April 9th.");
        assert_eq!(trail.spans["94-92-92"].all, ["2026-04-09", "2026-04-02"]);
    }
}
