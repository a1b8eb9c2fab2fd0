//! Announcements of work ("One moment.") in a response: none is said twice, unless a generation says nothing else.

use super::clauses::Clauses;
use super::playout::Words;
use super::sentence::bare;
use crate::language::Pack;

/// The most announcements that are remembered.
const MOST: usize = 16;

/// The announcements of a response.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// Those that were said, or will be, by their letters.
    said: Vec<String>,
    /// The one that the current generation has repeated, if it has said nothing else.
    repeated: Option<String>,
}

impl Announced {
    /// Notes a clause that is queued.
    pub(super) fn queue(&mut self, clause: &str, words: Words, language: &Pack) {
        if words != Words::Filler {
            self.repeated = None;
        }
        let announces = words == Words::Filler || language.announces(clause);
        if announces && self.said.len() < MOST && !self.has(clause) {
            self.said.push(bare(clause));
        }
    }

    /// Notes that a clause was dropped before it was heard.
    pub(super) fn forget(&mut self, clause: &str) {
        let clause = bare(clause);
        self.said.retain(|said| *said != clause);
    }

    /// Whether a clause of the model only repeats one of them; `is_first`: the generation has said nothing so far.
    pub(super) fn repeats(&mut self, clause: &str, is_first: bool, language: &Pack) -> bool {
        let repeats = language.announces(clause) && self.has(clause);
        if repeats && is_first {
            self.repeated.get_or_insert_with(|| clause.to_owned());
        }
        repeats
    }

    fn has(&self, clause: &str) -> bool {
        self.said.contains(&bare(clause))
    }

    /// Whether all clauses of a filler are among them.
    pub(super) fn has_all(&self, text: &str, language: &'static Pack) -> bool {
        let clauses = Clauses::of(language, text);
        clauses.iter().all(|clause| self.has(clause))
    }

    /// A generation begins.
    pub(super) fn begin_generation(&mut self) {
        self.repeated = None;
    }

    /// Whether the generation has repeated an announcement and said nothing else.
    pub(super) fn has_repeated(&self) -> bool {
        self.repeated.is_some()
    }

    /// Takes the announcement that the generation has repeated, if it has said nothing else.
    pub(super) fn take_repeated(&mut self) -> Option<String> {
        self.repeated.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::pack;

    #[test]
    fn case_and_marks_make_no_difference() {
        let (mut announced, english) = (Announced::default(), pack(None));
        announced.queue("One moment.", Words::Answer, english);
        assert!(announced.has("one moment…") && announced.has("ONE MOMENT"));
        assert!(!announced.has("One moment, please."));
        announced.forget("One moment!");
        assert!(!announced.has("One moment."));
    }

    /// "Okay." and "Yes." may be the answer, whoever has said them before.
    #[test]
    fn only_announcements_are_not_repeated() {
        let (mut announced, english) = (Announced::default(), pack(None));
        for clause in ["Okay.", "Yes.", "It is noon.", "One moment."] {
            announced.queue(clause, Words::Answer, english);
            announced.queue(clause, Words::Filler, english);
        }
        let clauses = ["Okay.", "Yes.", "It is noon.", "One moment.", "Let me see."];
        let repeated = clauses.map(|clause| announced.repeats(clause, true, english));
        assert_eq!(repeated, [false, false, false, true, false]);
    }

    #[test]
    fn a_filler_is_known_if_all_its_clauses_are() {
        let (mut announced, english) = (Announced::default(), pack(None));
        let long = "Still working on it, one moment.";
        announced.queue("One moment.", Words::Filler, english);
        assert!(!announced.has_all(long, english));
        announced.queue("Still working on it,", Words::Filler, english);
        assert!(announced.has_all(long, english));
    }
}
