//! Where an answer ends that the model does not end: behind the last whole sentence within the most
//! words and the most seconds of speech that the operator allows.

use super::playout::Place;
use super::policy::AnswerPolicy;
use crate::time::Micros;

#[cfg(test)]
mod tests;

/// A word takes as long as this while none of the answer has been spoken.
const WORD: Micros = Micros::from_ms(400);

/// How much the model has said in one answer, and how much it may say.
#[derive(Debug)]
pub(super) struct Length {
    most: AnswerPolicy,
    /// Bytes, spoken or not.
    bytes: usize,
    words: usize,
    /// Words that the voice was asked for, and those that it has made.
    asked: usize,
    made: usize,
    /// The length of those that were made.
    speech: Micros,
    /// It is over, although the model would have gone on.
    pub(super) is_cut: bool,
}

impl Length {
    /// Nothing has been said of an answer that may become so long.
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

    /// The model has streamed more. `true` if it is so much that the model will never end by itself.
    pub(super) fn streamed(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.bytes > self.most.bytes()
    }

    /// The model says more words. `true` if they are too many.
    pub(super) fn said(&mut self, words: usize) -> bool {
        self.words += words;
        self.words > self.most.words
    }

    /// The voice is about to be asked for the clause at `place`. `false` if there is no time for the
    /// rest of its sentence: the answer ends before it.
    pub(super) fn ask(&mut self, place: &Place) -> bool {
        // A sentence that was begun is only cut when it has really become too long.
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

    /// The voice has made so many words of the model.
    pub(super) fn made(&mut self, words: usize, speech: Micros) {
        self.made += words;
        self.speech = self.speech + speech;
    }

    /// Whether `words` more are spoken in time.
    fn fits(&self, words: usize) -> bool {
        let unmade = self.asked.saturating_sub(self.made);
        self.speech + self.estimate(unmade + words) <= self.most.speech
    }

    /// How long this many words take, as far as the voice has shown it.
    fn estimate(&self, words: usize) -> Micros {
        let a_word = match self.made {
            0 => WORD.0,
            made => self.speech.0 / made as u64,
        };
        Micros(a_word * words as u64)
    }
}
