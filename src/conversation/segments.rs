//! The finished parts of an utterance that is too long to be transcribed at once.

use super::common::Common;
use super::ids::RequestId;
use super::output::Output;
use crate::asr::Recognised;
use crate::time::Samples;

/// The finished parts of an utterance, and where its unfinished part begins.
#[derive(Debug)]
pub(super) struct Segments {
    finished: Vec<Segment>,
    from: Samples,
}

#[derive(Debug)]
struct Segment {
    request: RequestId,
    text: Option<String>,
}

impl Segments {
    /// No parts yet, of an utterance that begins at `from`.
    pub(super) fn new(from: Samples) -> Self {
        Self {
            finished: Vec::new(),
            from,
        }
    }

    /// The beginning of the unfinished part.
    pub(super) fn unfinished_from(&self) -> Samples {
        self.from
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// Whether all finished parts are transcribed.
    pub(super) fn are_transcribed(&self) -> bool {
        self.finished.iter().all(|segment| segment.text.is_some())
    }

    /// Finishes parts until the rest up to `end` is short enough for the recogniser. Returns whether it finished any.
    pub(super) fn cut_all(&mut self, common: &mut Common, end: Samples) -> bool {
        let (longest, before) = (longest(common), self.from);
        while end.since(self.from) > longest {
            self.cut(common, Samples(self.from.0 + longest));
        }
        self.from > before
    }

    /// Finishes a part at `end` before it is too long for the recogniser: after a pause if there is one in time,
    /// else anywhere. Returns whether it did.
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
            self.cut(common, end);
        }
        is_long
    }

    fn cut(&mut self, common: &mut Common, to: Samples) {
        let request = common.request_id();
        let text = None;
        self.finished.push(Segment { request, text });
        let from = std::mem::replace(&mut self.from, to);
        common.outputs.push_back(Output::Transcribe {
            request,
            from,
            to,
            partial: false,
        });
    }

    /// Handles a finished transcription. Returns whether it succeeded; `None` if it is of none of these parts.
    pub(super) fn on_transcript(
        &mut self,
        request: RequestId,
        heard: &Result<Recognised, ()>,
    ) -> Option<bool> {
        let mut finished = self.finished.iter_mut();
        let segment = finished.find(|segment| segment.request == request)?;
        segment.text = heard.as_ref().ok().map(|heard| heard.text.clone());
        Some(heard.is_ok())
    }

    /// The words so far, with `tail` for the unfinished part.
    pub(super) fn text(&self, tail: &str) -> String {
        let finished = self.finished.iter().filter_map(|s| s.text.as_deref());
        finished
            .chain([tail])
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
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
        assert_eq!(segments.on_transcript(request, &text), Some(true));
        assert_eq!(segments.text("two"), "One, two");
        let after_pause = segments.cut_long(&mut common, at(ms + ms * 3 / 5), true);
        assert!(after_pause, "sooner behind a pause");
        let before = segments.unfinished_from();
        let end = Samples(before.0 + at(2 * ms).0 + 1);
        assert!(segments.cut_all(&mut common, end));
        assert!(!segments.cut_all(&mut common, end));
        assert_eq!(segments.unfinished_from().since(before), at(2 * ms).0);
    }
}
