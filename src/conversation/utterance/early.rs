//! The preemptive generations for an utterance, and whether the last one still answers it.

use crate::language::Pack;
use crate::time::Samples;

/// The most audio behind words that are being answered, their pause included, before the answer is dropped, ms: time for
/// a breath that the detector takes for speech, or "please".
const MOST_ADDED_MS: u64 = 700;

/// The preemptive generations that were requested for an utterance.
#[derive(Debug, Default)]
pub(super) struct EarlyAnswers {
    count: u32,
    last: Option<Answered>,
}

/// The words that a generation answers.
#[derive(Debug)]
struct Answered {
    words: String,
    /// The end of speech then.
    to: Samples,
    /// More speech has followed.
    goes_on: bool,
}

impl EarlyAnswers {
    /// Counts one that answers these words, which end at `to`. `false` if there were already `most`.
    pub(super) fn begin(&mut self, words: &str, to: Samples, most: u32) -> bool {
        let may = self.count < most;
        if may {
            self.count += 1;
            self.last = Some(Answered {
                words: words.to_owned(),
                to,
                goes_on: false,
            });
        }
        may
    }

    /// Whether there is at most one left of `most`.
    pub(super) fn are_short(&self, most: u32) -> bool {
        self.count + 1 >= most
    }

    /// The user goes on up to `end`. More than a word makes the answer obsolete.
    pub(super) fn goes_on(&mut self, end: Samples) {
        self.last
            .take_if(|last| Samples(end.since(last.to)).as_ms() > MOST_ADDED_MS);
        if let Some(last) = &mut self.last {
            last.goes_on = true;
        }
    }

    /// The words so far are not all.
    pub(super) fn clear(&mut self) {
        self.last = None;
    }

    /// Whether the last one may answer all that is said.
    pub(super) fn may_stay(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the last one answers these words.
    pub(super) fn are_of(&self, words: &str, language: &Pack) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|last| language.adds_nothing(&last.words, words))
    }

    /// Whether the user has gone on with other words than these so far.
    pub(super) fn are_outgrown(&self, words: &str, language: &Pack) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|last| last.goes_on) && !self.are_of(words, language)
    }

    /// The words that the last one answers, if these are the same ones, spelt otherwise. More speech may be a "sharp" that
    /// is a mark in writing.
    pub(super) fn spelling(&self, words: &str, language: &Pack) -> Option<&str> {
        let last = self.last.as_ref().filter(|last| !last.goes_on)?;
        let is_same = language.normalise(&last.words) == language.normalise(words);
        is_same.then_some(last.words.as_str())
    }
}
