//! Repetitions of the question in a reply.

use super::Asked;
use super::phrases::{ARTICLES, LISTING, PLAIN_SIGNS, PREPOSITIONS, REFUSING};
use super::words::{is, is_same, says_something, words};
use serde_json::Value;
use std::collections::BTreeSet;

/// The most words of a question or an argument that can be repeated.
const MOST_ASKED: usize = 64;

/// Consecutive words that may be repeated.
#[derive(Debug)]
pub(super) struct Source {
    /// Without articles.
    pub(super) words: Vec<String>,
    /// Whether parts of it may be repeated.
    divisible: bool,
}

impl Source {
    pub(super) fn of(text: &str) -> Self {
        // "Milk, eggs", but not "12,500".
        let lists = text
            .split(',')
            .skip(1)
            .any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
        let mut words = words(text);
        words.retain(|word| !is(ARTICLES, word));
        let plain = |c: char| c.is_alphanumeric() || PLAIN_SIGNS.contains(c);
        let divisible = !lists
            && text.chars().all(plain)
            && !text.contains(" - ")
            && words.len() <= MOST_ASKED
            && !words.iter().any(|word| is(LISTING, word));
        words.truncate(MOST_ASKED);
        Self { words, divisible }
    }

    /// The verb: the first word with a meaning of its own.
    fn verb(&self) -> Option<usize> {
        self.words.iter().position(|word| says_something(word))
    }

    /// Whether a repetition that begins or ends before the word `at` would split a number: "3:30", "1 hour
    /// 30".
    pub(super) fn cuts_number(&self, at: usize) -> bool {
        let is_number = |word: &String| word.starts_with(|c: char| c.is_ascii_digit());
        if !self.words.get(at).is_some_and(is_number) {
            return false;
        }
        match &self.words[..at] {
            [.., last] if is_number(last) => true,
            [.., number, unit] => is_number(number) && !is(PREPOSITIONS, unit),
            _ => false,
        }
    }
}

/// Everything that may be repeated of a question.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) all: Vec<Source>,
    /// The verbs of the question and of the tool's name.
    pub(super) verbs: Vec<String>,
    /// The verb of the tool's name.
    pub(super) own_verb: Option<String>,
}

impl Sources {
    pub(super) fn of(asked: Asked<'_>) -> Self {
        let name = Source::of(&asked.tool.replace(['_', '-'], " "));
        let question = Source::of(asked.question);
        let verb = |source: &Source| source.verb().map(|at| source.words[at].clone());
        let own_verb = verb(&name);
        let verbs = own_verb.iter().cloned().chain(verb(&question)).collect();
        let values = asked.arguments.iter().flat_map(|(key, value)| {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Vec::new(),
            };
            let key = key.replace(['_', '-'], " ");
            let named = Source {
                divisible: false,
                ..Source::of(&format!("{key} {value}"))
            };
            vec![Source::of(&value), named]
        });
        Self {
            all: [question, name].into_iter().chain(values).collect(),
            verbs,
            own_verb,
        }
    }
}

/// A search for repetitions of one source.
pub(super) struct Repeating<'a> {
    pub(super) source: &'a Source,
    pub(super) own_verb: Option<&'a str>,
    pub(super) rest: &'a [String],
    /// Visited pairs of positions in source and reply.
    pub(super) seen: BTreeSet<(usize, usize)>,
    /// The lengths of the repetitions found.
    pub(super) lengths: BTreeSet<usize>,
}

impl Repeating<'_> {
    /// Continues at the source's word `asked` and the reply's word `at`, phrase after phrase; phrases in
    /// between may be skipped. `began` is where the repetition began in the source.
    pub(super) fn from(&mut self, began: usize, asked: usize, at: usize) {
        if !self.seen.insert((asked, at)) {
            return;
        }
        let source = self.source;
        let (mut said, mut asked, mut content) = (at, asked, false);
        loop {
            while self.rest.get(said).is_some_and(|word| is(ARTICLES, word)) {
                said += 1;
            }
            let (Some(word), Some(original)) = (self.rest.get(said), source.words.get(asked))
            else {
                return;
            };
            let refuses = is(REFUSING, word);
            if !is_same(word, original) || refuses && !self.is_own_verb(asked) {
                return;
            }
            (said, asked) = (said + 1, asked + 1);
            content |= says_something(word) && !refuses;
            let whole = asked == source.words.len() && source.verb().is_none_or(|v| began <= v);
            let ends = content && says_something(word) && !source.cuts_number(asked);
            if !ends || !source.divisible && !whole {
                continue;
            }
            self.lengths.insert(said);
            for next in asked + 1..source.words.len() {
                if is(PREPOSITIONS, &source.words[next]) {
                    self.from(began, next, said);
                }
            }
        }
    }

    /// Whether the word at `at` is the tool's own verb, which may be a word of refusal.
    fn is_own_verb(&self, at: usize) -> bool {
        self.source.verb() == Some(at) && self.own_verb == Some(self.source.words[at].as_str())
    }
}
