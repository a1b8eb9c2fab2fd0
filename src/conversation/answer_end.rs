//! Cuts an answer without an end: after the last whole sentence within the operator's limits on words and
//! seconds of speech.

use super::playout::Place;
use crate::time::Micros;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// The assumed length of a word until some of the answer has been synthesised.
const WORD: Micros = Micros::from_ms(400);

/// Bytes that the model may stream for each word of the limit. This bounds text that is not spoken, such as
/// emoji or white space.
const BYTES_PER_WORD: usize = 64;

/// The maximum length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerPolicy {
    /// The most words of the model in one response.
    pub words: usize,
    /// The most speech in one response.
    pub speech: Micros,
}

impl AnswerPolicy {
    /// The most bytes that the model may stream for one answer.
    pub(super) fn bytes(&self) -> usize {
        self.words.saturating_mul(BYTES_PER_WORD)
    }
}

impl Default for AnswerPolicy {
    /// About three minutes; the speech of 512 tokens fits.
    fn default() -> Self {
        Self {
            words: 500,
            speech: Micros::from_ms(180_000),
        }
    }
}

/// The length of one answer, and its limits.
#[derive(Debug)]
pub(super) struct Length {
    most: AnswerPolicy,
    /// Bytes, spoken or not.
    bytes: usize,
    words: usize,
    /// Words requested from the voice, and words synthesised.
    asked: usize,
    made: usize,
    /// The length of the synthesised words.
    speech: Micros,
    /// The answer was cut, although the model would have gone on.
    pub(super) is_cut: bool,
}

impl Length {
    /// An empty answer with these limits.
    pub(super) fn within(most: AnswerPolicy) -> Self {
        Self {
            most,
            bytes: 0,
            words: 0,
            asked: 0,
            made: 0,
            speech: Micros(0),
            is_cut: false,
        }
    }

    /// Counts streamed bytes. `true` if they exceed the limit: such a model never ends by itself.
    pub(super) fn streamed(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.bytes > self.most.bytes()
    }

    /// Counts words. `true` if they exceed the limit.
    pub(super) fn said(&mut self, words: usize) -> bool {
        self.words += words;
        self.words > self.most.words
    }

    /// Counts the clause at `place` as requested. `false` if there is no time for the rest of its sentence:
    /// the answer ends before the clause.
    pub(super) fn ask(&mut self, place: &Place) -> bool {
        // A sentence that has begun is cut only where the limit is really reached.
        let ahead = match place.begins_sentence {
            true => place.sentence_words,
            false => place.words,
        };
        let fits = place.is_first || self.fits(ahead);
        if fits {
            self.asked += place.words;
        }
        fits
    }

    /// Counts synthesised words of the model and their length.
    pub(super) fn made(&mut self, words: usize, speech: Micros) {
        self.made += words;
        self.speech = self.speech + speech;
    }

    /// Whether `words` more fit into the limit.
    fn fits(&self, words: usize) -> bool {
        let unmade = self.asked.saturating_sub(self.made);
        self.speech + self.estimate(unmade + words) <= self.most.speech
    }

    /// The expected length of `words`, by the pace of the voice so far.
    fn estimate(&self, words: usize) -> Micros {
        let a_word = match self.made {
            0 => WORD.0,
            made => self.speech.0 / made as u64,
        };
        Micros(a_word * words as u64)
    }
}
