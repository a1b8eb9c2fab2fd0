//! The finished parts of an utterance that is too long to be transcribed at once.

use super::common::Common;
use super::ids::RequestId;
use super::output::Output;
use super::timer::Timer;
use crate::asr::Recognised;
use crate::time::{Micros, Samples};

/// How long after a failure the words are requested again: time for a full queue to have room.
const RETRY_AFTER: Micros = Micros::from_ms(500);

/// The finished parts of an utterance, and where its unfinished part begins.
#[derive(Debug)]
pub(super) struct Segments {
    finished: Vec<Segment>,
    from: Samples,
    /// The middle of the last pause.
    pause: Option<Samples>,
}

#[derive(Debug)]
struct Segment {
    request: RequestId,
    from: Samples,
    to: Samples,
    words: Words,
}

/// The words of a finished part.
#[derive(Debug)]
enum Words {
    /// They are requested, `again` if that has failed before.
    Awaited { again: bool },
    /// Their transcription failed, and they are to be requested again.
    Failed,
    /// They are these.
    Known(String),
    /// They could not be transcribed.
    Lost,
}

impl Segments {
    /// No parts yet, of an utterance that begins at `from`.
    pub(super) fn new(from: Samples) -> Self {
        Self {
            finished: Vec::new(),
            from,
            pause: None,
        }
    }

    /// Notes a pause with this middle: nobody speaks there.
    pub(super) fn pauses(&mut self, middle: Samples) {
        self.pause = Some(middle);
    }

    /// The beginning of the unfinished part.
    pub(super) fn unfinished_from(&self) -> Samples {
        self.from
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// Whether no words of finished parts are awaited any more.
    pub(super) fn are_transcribed(&self) -> bool {
        let pending =
            |segment: &Segment| matches!(segment.words, Words::Awaited { .. } | Words::Failed);
        !self.finished.iter().any(pending)
    }

    /// Whether a finished part could not be transcribed.
    pub(super) fn lack_words(&self) -> bool {
        let lost = |segment: &Segment| matches!(segment.words, Words::Lost);
        self.finished.iter().any(lost)
    }

    /// The beginning of the first finished part that may have to be requested again.
    pub(super) fn may_ask_again_from(&self) -> Option<Samples> {
        let mut finished = self.finished.iter();
        let first = |segment: &&Segment| {
            matches!(
                segment.words,
                Words::Awaited { again: false } | Words::Failed
            )
        };
        finished.find(first).map(|segment| segment.from)
    }

    /// Finishes parts until the rest up to `end` is short enough for the recogniser. Returns whether it finished any.
    pub(super) fn cut_all(&mut self, common: &mut Common, end: Samples) -> bool {
        let (longest, before) = (longest(common), self.from);
        while end.since(self.from) > longest {
            self.cut(common, Samples(self.from.0 + longest));
        }
        self.from > before
    }

    /// Finishes a part before the rest up to `end` is too long for the recogniser: in its last pause, or else at `end`,
    /// maybe within a word. `after_pause`: the pause is over just now, so that a shorter part is finished as well. Returns
    /// whether it did.
    pub(super) fn cut_long(
        &mut self,
        common: &mut Common,
        end: Samples,
        after_pause: bool,
    ) -> bool {
        let longest = longest(common);
        let enough = match after_pause {
            true => longest * 3 / 5,
            false => longest,
        };
        let is_long = end.since(self.from) >= enough;
        if is_long {
            let pause = self.pause.filter(|middle| *middle > self.from);
            self.cut(common, pause.unwrap_or(end));
        }
        is_long
    }

    /// Leaves out the audio before `from`, in which nobody spoke.
    pub(super) fn skip_to(&mut self, from: Samples) {
        self.from = self.from.max(from);
    }

    /// Finishes a part at `to`.
    pub(super) fn cut(&mut self, common: &mut Common, to: Samples) {
        let from = std::mem::replace(&mut self.from, to);
        self.finished.push(Segment {
            request: ask(common, from, to),
            from,
            to,
            words: Words::Awaited { again: false },
        });
    }

    /// Handles a finished transcription. After a first failure the words are to be requested again, by
    /// [`Self::ask_again`]. Returns whether they are; `None` if it is of none of these parts.
    pub(super) fn on_transcript(
        &mut self,
        common: &mut Common,
        request: RequestId,
        heard: &Result<Recognised, ()>,
    ) -> Option<bool> {
        let mut finished = self.finished.iter_mut();
        let segment = finished.find(|segment| segment.request == request)?;
        let may_ask = matches!(segment.words, Words::Awaited { again: false });
        segment.words = match heard {
            Ok(heard) => Words::Known(heard.text.clone()),
            Err(()) if may_ask => {
                retry_later(common);
                Words::Failed
            }
            Err(()) => Words::Lost,
        };
        Some(heard.is_err() && may_ask)
    }

    /// Requests the words of failed parts again. Returns whether there were any.
    pub(super) fn ask_again(&mut self, common: &mut Common) -> bool {
        let has_failed = |segment: &&mut Segment| matches!(segment.words, Words::Failed);
        let mut any = false;
        for segment in self.finished.iter_mut().filter(has_failed) {
            segment.request = ask(common, segment.from, segment.to);
            segment.words = Words::Awaited { again: true };
            any = true;
        }
        any
    }

    /// The words so far, with `tail` for the unfinished part.
    pub(super) fn text(&self, tail: &str) -> String {
        let finished = self.finished.iter().filter_map(|s| match &s.words {
            Words::Known(text) => Some(text.as_str()),
            Words::Awaited { .. } | Words::Failed | Words::Lost => None,
        });
        finished
            .chain([tail])
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Has what could not be transcribed requested again in a while.
pub(super) fn retry_later(common: &mut Common) {
    if !common.timers.is_set(Timer::TranscribeAgain) {
        common
            .timers
            .set(Timer::TranscribeAgain, common.now + RETRY_AFTER);
    }
}

/// Requests the words of a part.
fn ask(common: &mut Common, from: Samples, to: Samples) -> RequestId {
    let request = common.request_id();
    common.outputs.push_back(Output::Transcribe {
        request,
        from,
        to,
        partial: false,
    });
    request
}

/// The longest part, samples.
fn longest(common: &Common) -> u64 {
    Samples::from_ms(common.policy.endpoint.segment_ms).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::experience::Experience;
    use crate::conversation::policy::Policy;
    use crate::time::Time;

    #[test]
    fn a_long_utterance_is_transcribed_in_parts() {
        let mut common = Common::new(Policy::default(), Experience::default());
        let ms = common.policy.endpoint.segment_ms;
        let at = Samples::from_ms;
        let mut segments = Segments::new(at(0));
        assert!(!segments.cut_long(&mut common, at(ms - 1), false));
        assert!(segments.cut_long(&mut common, at(ms), false));
        assert!(!segments.are_transcribed());
        let request = segments.finished[0].request;
        let text = Ok("One, ".into());
        let again = segments.on_transcript(&mut common, request, &text);
        assert_eq!(again, Some(false));
        assert_eq!(segments.text("two"), "One, two");
        let after_pause = segments.cut_long(&mut common, at(ms + ms * 3 / 5), true);
        assert!(after_pause, "sooner behind a pause");
        let before = segments.unfinished_from();
        let end = Samples(before.0 + at(2 * ms).0 + 1);
        assert!(segments.cut_all(&mut common, end));
        assert!(!segments.cut_all(&mut common, end));
        assert_eq!(segments.unfinished_from().since(before), at(2 * ms).0);
    }

    #[test]
    fn a_part_that_fails_is_requested_once_more() {
        let mut common = Common::new(Policy::default(), Experience::default());
        let at = Samples::from_ms;
        let mut segments = Segments::new(at(0));
        segments.cut(&mut common, at(1_000));
        segments.cut(&mut common, at(2_000));
        assert_eq!(segments.may_ask_again_from(), Some(at(0)));
        let first = segments.finished[0].request;
        let again = segments.on_transcript(&mut common, first, &Err(()));
        assert_eq!(again, Some(true));
        assert_eq!(segments.may_ask_again_from(), Some(at(0)));
        assert!(segments.ask_again(&mut common));
        assert!(!segments.ask_again(&mut common), "once");
        let asked = common.outputs.back();
        assert!(
            matches!(asked, Some(Output::Transcribe { from, to, .. })
                if (*from, *to) == (at(0), at(1_000))),
            "{asked:?}"
        );
        assert_eq!(segments.may_ask_again_from(), Some(at(1_000)));
        let second = segments.finished[0].request;
        assert_ne!(second, first);
        let again = segments.on_transcript(&mut common, second, &Err(()));
        assert_eq!(again, Some(false));
        assert!(segments.lack_words());
        assert_eq!(segments.text(""), "");
        let other = segments.finished[1].request;
        segments.on_transcript(&mut common, other, &Ok("two".into()));
        assert!(segments.are_transcribed());
        assert_eq!(segments.text(""), "two");
    }

    /// It was cut wherever it was too long, or behind the first sound of the word after a pause, which neither part had
    /// in whole.
    #[test]
    fn a_long_utterance_is_cut_in_its_pauses_and_not_within_a_word() {
        let mut common = Common::new(Policy::default(), Experience::default());
        let ms = common.policy.endpoint.segment_ms;
        let at = Samples::from_ms;
        let mut segments = Segments::new(at(0));
        segments.pauses(at(4_000));
        assert!(!segments.cut_long(&mut common, at(ms - 1), false));
        assert!(segments.cut_long(&mut common, at(ms), false));
        assert_eq!(segments.unfinished_from(), at(4_000));
        segments.pauses(at(4_000 + ms * 3 / 5));
        let resumed = at(4_100 + ms * 3 / 5);
        assert!(segments.cut_long(&mut common, resumed, true));
        assert_eq!(segments.unfinished_from(), at(4_000 + ms * 3 / 5));
        let end = at(4_000 + ms * 3 / 5 + ms);
        assert!(segments.cut_long(&mut common, end, false), "no pause");
        assert_eq!(segments.unfinished_from(), end);
    }

    /// It was requested again in the same instant, when the queue was as full as before.
    #[test]
    fn a_part_that_the_queue_had_no_room_for_is_asked_for_again_later() {
        let mut common = Common::new(Policy::default(), Experience::default());
        let mut segments = Segments::new(Samples::from_ms(0));
        segments.cut(&mut common, Samples::from_ms(1_000));
        let request = segments.finished[0].request;
        let before = common.outputs.len();
        segments.on_transcript(&mut common, request, &Err(()));
        assert_eq!(common.outputs.len(), before);
        assert!(!segments.are_transcribed());
        let due = common.timers.take_due(Time(0) + RETRY_AFTER);
        assert_eq!(due, Some(Timer::TranscribeAgain));
        assert!(segments.ask_again(&mut common));
        assert_eq!(common.outputs.len(), before + 1);
        let request = segments.finished[0].request;
        segments.on_transcript(&mut common, request, &Err(()));
        assert!(segments.are_transcribed() && segments.lack_words());
    }
}
