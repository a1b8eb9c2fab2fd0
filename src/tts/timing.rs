//! PURE: maps a service's word and character times to the ends of a clause's words.

use crate::time::Micros;
use std::collections::VecDeque;

/// Times that go back by less than this do not count as a restart, s.
const JITTER: f64 = 0.05;

/// The words of a clause that were not said yet; empty once the service's times no longer match them.
#[derive(Debug, Default)]
pub(super) struct Timing {
    /// Letters and digits of each, in lower case.
    words: VecDeque<String>,
    /// The letters that are being said.
    begun: String,
    /// The end of what was said last, in the service's time.
    end: f64,
    /// Added to the service's times, which restart from 0 in some pieces, s.
    offset: f64,
}

impl Timing {
    pub(super) fn of(clause: &str) -> Self {
        Self {
            words: clause.split_whitespace().map(letters).collect(),
            ..Self::default()
        }
    }

    /// A piece's times begin at `start`, after audio of the length `made`, both in seconds.
    pub(super) fn piece(&mut self, start: f64, made: f64) {
        if start + JITTER < self.end {
            self.offset = made;
        }
    }

    /// Takes in a word. Returns when it ends.
    pub(super) fn word(&mut self, word: &str, end: f64) -> Option<Micros> {
        self.begun.push_str(word);
        self.end = end;
        self.space()
    }

    /// Takes in a character. If it ends a word, returns when that word ends.
    pub(super) fn character(&mut self, character: &str, end: f64) -> Option<Micros> {
        if !character.trim().is_empty() {
            self.begun.push_str(character);
            self.end = end;
            return None;
        }
        let ended = self.space();
        self.end = end;
        ended
    }

    /// Nothing follows the last character. Returns when the last word ends.
    pub(super) fn finish(&mut self) -> Option<Micros> {
        self.space()
    }

    fn space(&mut self) -> Option<Micros> {
        if self.begun.is_empty() {
            return None;
        }
        let said = letters(&std::mem::take(&mut self.begun));
        if self.words.pop_front()? != said {
            // The service says other words, so its next times cannot be assigned.
            self.words.clear();
            return None;
        }
        let seconds = (self.offset + self.end).max(0.0);
        Some(Micros((seconds * 1e6) as u64))
    }
}

fn letters(word: &str) -> String {
    let letters = word.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn characters(timing: &mut Timing, text: &str, from_ms: u64) -> Vec<u64> {
        let chars = text.chars().enumerate();
        let ends = chars.filter_map(|(nth, c)| {
            let end = (from_ms + 100 * (nth as u64 + 1)) as f64 / 1_000.0;
            timing.character(&c.to_string(), end)
        });
        ends.map(Micros::as_ms).collect()
    }

    #[test]
    fn a_word_ends_with_its_last_character() {
        let mut timing = Timing::of("Well, I am — fine.");
        assert_eq!(characters(&mut timing, "Well, I ", 0), [500, 700]);
        assert_eq!(characters(&mut timing, "am — fi", 800), [1_000, 1_200]);
        assert_eq!(characters(&mut timing, "ne.", 1_500), [0; 0]);
        assert_eq!(timing.finish(), Some(Micros::from_ms(1_800)));
        assert_eq!(timing.finish(), None);
    }

    #[test]
    fn times_that_begin_anew_in_each_piece_go_on() {
        let mut timing = Timing::of("one two");
        timing.piece(0.0, 0.0);
        assert_eq!(timing.word("one", 0.4), Some(Micros::from_ms(400)));
        timing.piece(0.0, 0.45);
        assert_eq!(timing.word("two", 0.3), Some(Micros::from_ms(750)));
    }

    #[test]
    fn other_words_than_those_of_the_clause_have_no_times() {
        let mut timing = Timing::of("It costs $5 a day");
        let ends =
            ["It", "costs", "five", "dollars", "a", "day"].map(|word| timing.word(word, 1.0));
        assert_eq!(ends.iter().flatten().count(), 2);
    }
}
