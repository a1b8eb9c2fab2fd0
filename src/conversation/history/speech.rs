//! An item of the agent's speech, and which of its words were heard.

use super::super::sentence::letters;
use crate::time::Micros;

/// An item of the agent's speech, clause by clause.
#[derive(Debug, Default)]
pub(super) struct Speech {
    clauses: Vec<Clause>,
    /// How much was heard of an item that was cut; all of it if `None`.
    pub(super) heard: Option<Micros>,
    /// It is outside the conversation: the model never sees it.
    pub(super) outside: bool,
    /// Fillers that were not said. They stay in prompts, since the model has seen them and prompts should begin alike.
    pub(super) unsaid: Vec<String>,
}

#[derive(Debug)]
struct Clause {
    text: String,
    /// The length of its audio so far.
    length: Micros,
    /// When its first words end, as far as the voice tells it. For the others, time is taken to be proportional to
    /// bytes of text.
    word_ends: Vec<Micros>,
}

impl Speech {
    /// An item without words so far, which the model may never see.
    pub(super) fn new(outside: bool) -> Self {
        Self {
            outside,
            ..Self::default()
        }
    }

    /// Adds a clause and returns its index. Its length is unknown until it has been synthesised.
    pub(super) fn add(&mut self, text: &str) -> usize {
        self.clauses.push(Clause {
            text: text.to_owned(),
            length: Micros(0),
            word_ends: Vec::new(),
        });
        self.clauses.len() - 1
    }

    /// Removes the words of a clause that was not spoken.
    pub(super) fn drop_clause(&mut self, index: usize) {
        if let Some(clause) = self.clauses.get_mut(index) {
            clause.text.clear();
        }
    }

    /// Notes that a filler was not said, although the model has seen it.
    pub(super) fn leave_unsaid(&mut self, index: usize) {
        if let Some(clause) = self.clauses.get_mut(index) {
            self.unsaid.push(std::mem::take(&mut clause.text));
        }
    }

    /// Adds audio to a clause, and the ends of its next words.
    pub(super) fn lengthen(&mut self, index: usize, by: Micros, word_ends: &[Micros]) {
        if let Some(clause) = self.clauses.get_mut(index) {
            clause.length = clause.length + by;
            clause.word_ends.extend(word_ends);
        }
    }

    pub(super) fn length(&self) -> Micros {
        Micros(self.clauses.iter().map(|clause| clause.length.0).sum())
    }

    pub(super) fn all_text(&self) -> String {
        let texts = self.clauses.iter().map(|clause| clause.text.as_str());
        texts
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The words that were heard.
    pub(super) fn text(&self) -> String {
        let mut left = self.heard.unwrap_or(Micros(u64::MAX));
        let mut text = Vec::new();
        for clause in self.clauses.iter().filter(|clause| !clause.text.is_empty()) {
            if left.0 == 0 {
                break;
            }
            text.push(if left >= clause.length {
                clause.text.as_str()
            } else {
                clause.beginning(left)
            });
            left = Micros(left.0.saturating_sub(clause.length.0));
        }
        text.join(" ").trim_end().to_owned()
    }

    /// Letters and digits in lower case, each with the length of the audio up to and including it. Within a
    /// clause, time is taken to be proportional to bytes of text.
    pub(super) fn letters(&self) -> impl Iterator<Item = (Micros, char)> {
        let begins = self.clauses.iter().scan(Micros(0), |at, clause| {
            let begins = *at;
            *at = *at + clause.length;
            Some(begins)
        });
        let clauses = self.clauses.iter().zip(begins);
        clauses.flat_map(|(Clause { text, length, .. }, begins)| {
            letters(text).map(move |(end, c)| {
                let so_far = (end as u64 * length.0).div_ceil(text.len() as u64);
                (begins + Micros(so_far), c)
            })
        })
    }
}

impl Clause {
    /// The whole words that were heard in the first `heard` of its audio.
    fn beginning(&self, heard: Micros) -> &str {
        let known = self.word_ends.iter().take_while(|end| **end <= heard);
        let known = known.count();
        let (said, rest) = self.text.split_at(self.end_of(known));
        if known < self.word_ends.len() {
            return said;
        }
        let since = self.word_ends.last().copied().unwrap_or_default();
        let (heard, length) = (heard.0 - since.0, self.length.0.saturating_sub(since.0));
        let rest = whole_words(rest, Micros(heard), Micros(length));
        &self.text[..said.len() + rest.len()]
    }

    /// Where the word after its first `words` words begins.
    fn end_of(&self, words: usize) -> usize {
        let mut left = words;
        let pieces = self.text.split_inclusive(char::is_whitespace);
        let said = pieces.take_while(|piece| {
            let is_said = left > 0;
            left -= usize::from(is_said && !piece.trim().is_empty());
            is_said
        });
        said.map(str::len).sum()
    }
}

/// The whole words of `text` heard in the first `heard` of its `length`.
fn whole_words(text: &str, heard: Micros, length: Micros) -> &str {
    let budget = text.len() as u64 * heard.0 / length.0.max(1);
    let end = text
        .char_indices()
        .filter(|(_, c)| c.is_whitespace())
        .map(|(at, _)| at)
        .chain([text.len()])
        .take_while(|end| *end as u64 <= budget)
        .last();
    &text[..end.unwrap_or(0)]
}
