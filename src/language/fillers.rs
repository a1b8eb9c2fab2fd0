//! Fillers: short clauses that say nothing, and their tables in languages other than English.

use super::unknown::plain;

/// A clause that may be left unsaid when the answer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filler {
    /// "Okay.", "Sure.": beside a question it may also be the answer.
    Acknowledges,
    /// "One moment.", "Let me check that.": it announces work.
    Announces,
}

/// The words of one language, in lower case without marks.
pub(super) struct Fillers {
    /// Words with which a filler may begin, and which mean nothing here.
    pub(super) openers: &'static [&'static str],
    /// Those of them that answer a question if no announcement follows.
    pub(super) answers: &'static [&'static str],
    /// The first words of a filler, after the openers.
    pub(super) promises: &'static [&'static str],
    /// Words after which facts come.
    pub(super) facts: &'static [&'static str],
    /// Verbs of facts, behind a comma: "One moment, your flight leaves at noon."
    pub(super) verbs: &'static [&'static str],
    /// Words that begin what is asked there, which is no fact: "I'm checking, when it leaves."
    pub(super) asks: &'static [&'static str],
}

/// The most words of a filler.
const MOST_WORDS: usize = 12;

impl Fillers {
    /// Classifies a clause. If in doubt it is no filler.
    pub(super) fn classify(&self, written: &str) -> Option<Filler> {
        let clause = plain(written);
        let words: Vec<&str> = clause.split_whitespace().collect();
        if words.is_empty()
            || words.len() > MOST_WORDS
            || clause.contains(|c: char| c.is_ascii_digit())
        {
            return None;
        }
        let opening = words
            .iter()
            .take_while(|word| self.openers.contains(word))
            .count();
        let rest = words[opening..].join(" ");
        if rest.is_empty() {
            let answers = words.iter().any(|word| self.answers.contains(word));
            return (words.len() <= 3 && !answers).then_some(Filler::Acknowledges);
        }
        let states = words[opening..]
            .iter()
            .any(|word| self.facts.contains(word));
        let states_behind_a_comma = || written.split(',').skip(1).any(|part| self.states(part));
        let announces = self.promises(&rest) && !states && !states_behind_a_comma();
        announces.then_some(Filler::Announces)
    }

    /// Whether `text` begins with a promise.
    fn promises(&self, text: &str) -> bool {
        let begins = |promise: &&str| {
            let behind = text.strip_prefix(*promise);
            behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(' '))
        };
        self.promises.iter().any(begins)
    }

    /// Whether what stands behind a comma has a verb of fact.
    fn states(&self, part: &str) -> bool {
        let part = plain(part);
        let mut words = part.split_whitespace();
        let asks = words
            .clone()
            .next()
            .is_some_and(|first| self.asks.contains(&first));
        !asks && !self.promises(part.trim()) && words.any(|word| self.verbs.contains(&word))
    }
}
