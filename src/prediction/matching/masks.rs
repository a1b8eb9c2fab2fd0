//! Texts without the values that vary: places and numbers dominate an embedding.

use super::Matched;
use crate::language::en::{places, text};
use crate::prediction::fill::{Arguments, Form, Words};
use crate::prediction::parameters::Kind;
use jiff::civil::Date;

/// Stands for every place.
const PLACE: &str = "london";
/// Stands for every number and code.
const NUMBER: &str = "100";
/// Stands for every subject.
const SUBJECT: &str = "something";
/// Longest name of a place, words.
const LONGEST: usize = 3;
/// Listed names that are common words.
const COMMON: [&str; 8] = ["of", "in", "us", "may", "hi", "or", "me", "ok"];

/// A text that is near to the requests for a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// The tool.
    pub tool: String,
    /// Normalised and masked.
    pub text: String,
}

/// How requests for a tool read, from the words of its declaration.
pub(super) fn samples(tool: &Matched, today: Date) -> Vec<Sample> {
    let sample = |text: String| Sample {
        tool: tool.name.clone(),
        text,
    };
    let mut samples = vec![sample(text::normalise(&tool.name.replace(['_', '-'], " ")))];
    let described = text::normalise(&tool.description);
    if !described.is_empty() {
        samples.push(sample(described));
    }
    for example in &tool.examples {
        let words = Words {
            said: example,
            text: text::without_fillers(example),
            today,
        };
        let plain = masked(words.text, &[]);
        let filled = tool.form.fill(&[], words).ok();
        let subject = filled
            .as_ref()
            .and_then(|filled| subject(&tool.form, filled));
        if let Some(subject) = subject {
            samples.push(sample(masked(words.text, &[subject])));
        }
        samples.push(sample(plain));
    }
    samples
}

/// The words that free text was read from.
pub(super) fn subject<'a>(form: &Form, filled: &'a Arguments) -> Option<&'a str> {
    let named = form
        .parameters
        .iter()
        .filter(|one| filled.values.contains_key(&one.name));
    let mut read = named.zip(&filled.read);
    read.find_map(|(one, read)| (one.kind == Kind::Text).then_some(read.as_str()))
}

/// A normalised text with its places, numbers and `subjects` replaced.
pub(super) fn masked(text: &str, subjects: &[&str]) -> String {
    let text = subjects.iter().fold(format!(" {text} "), |text, subject| {
        text.replacen(&format!(" {subject} "), &format!(" {SUBJECT} "), 1)
    });
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut masked: Vec<&str> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let place = (1..=LONGEST.min(words.len() - at)).rev().find(|length| {
            let name = words[at..at + length].join(" ");
            !COMMON.contains(&name.as_str()) && places::is_listed(&name)
        });
        masked.push(match place {
            Some(_) => PLACE,
            None if words[at].contains(|c: char| c.is_ascii_digit()) => NUMBER,
            None => words[at],
        });
        at += place.unwrap_or(1);
    }
    masked.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_vary_are_replaced() {
        assert_eq!(
            masked(
                "is order 48213 in new york with green lamps",
                &["green lamps"]
            ),
            "is order 100 in london with something"
        );
    }
}
