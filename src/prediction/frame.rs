//! The subject of a request for a tool, where it is free text: "office chairs" of "how many office chairs
//! do you have". The words around it are those of every request and those of this tool's.

use crate::language::en::subject::{BEFORE_A_VERB, JOINS, is_around, stem};
use crate::language::en::text;
use crate::prediction::RouterHints;
use crate::tools::Declaration;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The words around the subject of requests for one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// Stems of words of its name and description.
    own: BTreeSet<String>,
    /// Stems of words that several of its examples share. They may end a subject: "floor lamps".
    shared: BTreeSet<String>,
    /// Words before and after the subjects of its examples.
    beside: BTreeSet<(Side, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Before,
    After,
}

impl Frame {
    /// The frame of a tool: its name, its description, and what its examples share.
    pub(super) fn of(declaration: &Declaration, hints: &RouterHints) -> Self {
        let spec = &declaration.spec;
        let described = text::normalise(&format!(
            "{} {}",
            spec.name.replace(['_', '-'], " "),
            spec.description
        ));
        let own: BTreeSet<String> = described
            .split(' ')
            .map(|word| stem(word).to_owned())
            .collect();
        let examples: Vec<String> = hints
            .examples
            .iter()
            .map(|one| text::normalise(one))
            .collect();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for example in &examples {
            let once: BTreeSet<&str> = example.split(' ').map(stem).collect();
            once.into_iter()
                .for_each(|word| *seen.entry(word).or_default() += 1);
        }
        let shared = seen.into_iter().filter(|(_, count)| *count > 1);
        let mut frame = Self {
            own,
            shared: shared.map(|(word, _)| word.to_owned()).collect(),
            beside: BTreeSet::new(),
        };
        let beside: Vec<_> = examples
            .iter()
            .filter_map(|example| {
                let words: Vec<&str> = example.split(' ').collect();
                let [only] = frame.runs(&words).try_into().ok()?;
                Some(sides(&words, &only))
            })
            .flatten()
            .collect();
        frame.beside.extend(beside);
        frame
    }

    /// Whether a normalised word belongs to the tool.
    pub(super) fn has(&self, word: &str) -> bool {
        self.own.contains(stem(word))
    }

    /// The subject of normalised words, if it is clear.
    pub(super) fn subject(&self, said: &str) -> Option<String> {
        let words: Vec<&str> = said.split(' ').filter(|word| !word.is_empty()).collect();
        let mut runs = self.runs(&words);
        if runs.is_empty() {
            let shared = |at: &usize| !is_around(words[*at]) && !self.has(words[*at]);
            runs = (0..words.len())
                .filter(shared)
                .map(|at| at..at + 1)
                .collect();
        }
        let known = |run: &Range<usize>| {
            let sides = sides(&words, run);
            sides
                .iter()
                .filter(|side| self.beside.contains(side))
                .count()
        };
        let best = runs.iter().map(known).max()?;
        let mut likely = runs.iter().filter(|run| known(run) == best);
        let (only, None) = (likely.next()?, likely.next()) else {
            return None;
        };
        Some(words[only.clone()].join(" "))
    }

    /// The runs of words that are not around a subject.
    fn runs(&self, words: &[&str]) -> Vec<Range<usize>> {
        let of_all = |word: &str| is_around(word) || self.has(word);
        let shared = |word: &str| self.shared.contains(stem(word));
        let about = |word: &str| !of_all(word) && !shared(word);
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..words.len()).filter(|at| about(words[*at])) {
            match runs.last_mut() {
                Some(run) if words[run.end..at].iter().all(|word| JOINS.contains(word)) => {
                    run.end = at + 1;
                }
                _ => runs.push(at..at + 1),
            }
        }
        for run in &mut runs {
            let before = run.start.checked_sub(1).map(|at| words[at]);
            if run.len() > 1 && before.is_some_and(|word| BEFORE_A_VERB.contains(&word)) {
                run.start += 1;
                while run.len() > 1 && JOINS.contains(&words[run.start]) {
                    run.start += 1;
                }
            }
            let ends = |at: &usize| {
                words
                    .get(*at)
                    .is_some_and(|word| !of_all(word) && shared(word))
            };
            run.end = (run.end..).find(|at| !ends(at)).unwrap_or(run.end);
        }
        runs
    }
}

fn sides(words: &[&str], run: &Range<usize>) -> [(Side, String); 2] {
    let word = |at: Option<usize>| {
        at.and_then(|at| words.get(at))
            .map_or("", |word| stem(word))
    };
    [
        (Side::Before, word(run.start.checked_sub(1)).to_owned()),
        (Side::After, word(Some(run.end)).to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn the_subject_is_what_no_other_request_has() {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "get_stock".into(),
            description: "How many of an article are in stock.".into(),
            parameters: json!({}),
        };
        let declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        let hints = RouterHints {
            examples: vec![
                "how many red chairs do you have in stock".into(),
                "is the reading lamp still available".into(),
            ],
            ..RouterHints::default()
        };
        let frame = Frame::of(&declaration, &hints);
        for (said, subject) in [
            ("do you still have coffee tables", Some("coffee tables")),
            ("do you sell bar stools", Some("bar stools")),
            (
                "could you look up the stock of wooden crates",
                Some("wooden crates"),
            ),
            (
                "is the lord of the rings available",
                Some("lord of the rings"),
            ),
            ("how many are in stock", None),
        ] {
            assert_eq!(frame.subject(said).as_deref(), subject, "{said}");
        }
    }
}
