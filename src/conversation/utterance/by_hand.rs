//! Turns that the client ends by hand.

use super::{Stage, Utterance};
use crate::asr::Recognised;
use crate::conversation::common::Common;
use crate::conversation::pause::{Pause, Tries};
use crate::time::{Samples, Time};

/// The least audio behind finished segments that is transcribed, ms: less has no words, and services refuse it.
const LEAST_REST_MS: u64 = 100;

/// The commit.
impl Utterance {
    /// Notes that the client commits the audio up to `end`, where it ends all turns: this one counts from now, whenever
    /// somebody spoke in it. Partials that are pending are not told.
    pub(in crate::conversation) fn hand_in(&mut self, end: Samples, now: Time) {
        self.goes_on(end, now);
        self.partials.cut();
        self.began = now;
    }

    /// Commits the utterance up to `end`.
    pub(in crate::conversation) fn commit(&mut self, common: &mut Common, end: Samples) {
        if self.segments.cut_all(common, end) {
            self.partials.cut();
            // Its words are in the segments.
            self.pause = Pause::default();
        }
        let is_unheard = |to: Samples| end.since(to) >= Samples::from_ms(LEAST_REST_MS).0;
        let has_more = matches!(self.stage, Stage::Pausing(to) if is_unheard(to));
        self.stage = Stage::Committed(end);
        if has_more || self.pause.tries == Tries::Failed {
            // Audio behind the pause is not judged, and may have words; or its request has failed. So they are still to be
            // requested.
            self.pause = Pause::default();
        }
        if !self.pause.lacks_transcript() {
            return;
        }
        let rest = end.since(self.unfinished_from());
        if !self.segments.is_empty() && rest < Samples::from_ms(LEAST_REST_MS).0 {
            self.pause.asked = common.now;
            self.pause.transcript = Some((Recognised::default(), common.now));
        } else {
            self.ask_transcript(common, end);
        }
    }

    /// The words that are known, although others may be missing.
    pub(in crate::conversation) fn known_words(&self) -> String {
        let tail = self.pause.transcript.as_ref();
        self.text(tail.map_or("", |(heard, _)| &heard.text))
    }
}

/// The audio before it.
impl Utterance {
    /// The beginning of the audio that is in no finished segment.
    pub(in crate::conversation) fn unfinished_from(&self) -> Samples {
        self.segments.unfinished_from()
    }

    /// The beginning of the first finished segment that may have to be requested again.
    pub(in crate::conversation) fn may_ask_again_from(&self) -> Option<Samples> {
        self.segments.may_ask_again_from()
    }

    /// Finishes segments of speech that may be longer than the recogniser takes, up to `end`.
    pub(in crate::conversation) fn catch_up(&mut self, common: &mut Common, end: Samples) {
        if self.segments.cut_all(common, end) {
            self.partials.cut();
        }
    }

    /// Finishes what was said before a long silence that ends at `end`, and leaves the silence out.
    pub(in crate::conversation) fn rest(&mut self, common: &mut Common, end: Samples) {
        if self.last_speech.0 > self.unfinished_from() {
            self.segments.cut(common, end);
            self.partials.cut();
        }
        self.skip_to(end);
    }

    /// Leaves out silence before `from`.
    pub(in crate::conversation) fn skip_to(&mut self, from: Samples) {
        self.segments.skip_to(from);
    }
}
