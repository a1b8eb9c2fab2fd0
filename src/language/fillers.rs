//! Fillers: short clauses that say nothing, and their tables in languages other than English.

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
    /// The first words of a filler, after the openers.
    pub(super) promises: &'static [&'static str],
    /// Words after which facts come.
    pub(super) facts: &'static [&'static str],
}

/// The most words of a filler.
const MOST_WORDS: usize = 12;

impl Fillers {
    /// Classifies a clause, in lower case without marks. If in doubt it is no filler.
    pub(super) fn classify(&self, clause: &str) -> Option<Filler> {
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
            return (words.len() <= 3).then_some(Filler::Acknowledges);
        }
        let begins = |promise: &&&str| {
            let behind = rest.strip_prefix(**promise);
            behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(' '))
        };
        let states = words[opening..]
            .iter()
            .any(|word| self.facts.contains(word));
        let announces = self.promises.iter().find(begins).is_some() && !states;
        announces.then_some(Filler::Announces)
    }
}
