//! Fillers in languages other than English: short clauses that only announce work.

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
    /// Whether a clause, in lower case without marks, only announces work. If in doubt it does not.
    pub(super) fn has(&self, clause: &str) -> bool {
        let words: Vec<&str> = clause.split_whitespace().collect();
        if words.is_empty()
            || words.len() > MOST_WORDS
            || clause.contains(|c: char| c.is_ascii_digit())
        {
            return false;
        }
        let opening = words
            .iter()
            .take_while(|word| self.openers.contains(word))
            .count();
        let rest = words[opening..].join(" ");
        if rest.is_empty() {
            return words.len() <= 3;
        }
        let begins = |promise: &&&str| {
            let behind = rest.strip_prefix(**promise);
            behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(' '))
        };
        let states = words[opening..]
            .iter()
            .any(|word| self.facts.contains(word));
        self.promises.iter().find(begins).is_some() && !states
    }
}
