//! The partial transcripts of an utterance.

use super::common::Common;
use super::ids::RequestId;
use super::output::Output;
use crate::asr::Recognised;
use crate::time::Samples;

/// The least audio between two partials, ms. Gaps may follow each other closely.
const GAP_MS: u64 = 96;

/// How much of the last word's end, ms, a partial may lack and still start a preemptive answer; the transcript of the
/// pause corrects it.
const FALLING_MS: u64 = 64;

/// The partial transcripts of an utterance.
#[derive(Debug)]
pub(super) struct Partials {
    /// The last one that was requested, while it is pending.
    asked: Option<RequestId>,
    /// End of the audio of the last partial that was requested.
    to: Samples,
    /// Its outcome.
    heard: Option<Recognised>,
    /// An earlier one that is still pending, and the end of its audio.
    before: Option<(RequestId, Samples)>,
    /// End of the audio of the last partial that came.
    heard_to: Samples,
    /// Whether the last one with words could have served as the transcript of a pause.
    serves: bool,
    /// Where the next partial is requested.
    next: Samples,
    /// Audio between two partials that are requested by time.
    every: Samples,
    /// End of the last window of speech that was not quiet.
    loud_until: Samples,
    /// All words so far.
    words: String,
}

impl Partials {
    /// Of an utterance that begins at `from` and has no partial yet. Audio has arrived up to `end`.
    pub(super) fn new(from: Samples, end: Samples, every_ms: u64) -> Self {
        let every = Samples::from_ms(every_ms);
        Self {
            asked: None,
            to: from,
            heard: None,
            before: None,
            heard_to: from,
            serves: false,
            next: Samples(from.0 + every.0),
            every,
            loud_until: end,
            words: String::new(),
        }
    }

    /// All words so far.
    pub(super) fn words(&self) -> &str {
        &self.words
    }

    /// From `first` on, requests a partial after every `every_ms` of audio.
    pub(super) fn begin_at(&mut self, first: Samples, every_ms: u64) {
        self.next = first;
        self.every = Samples::from_ms(every_ms);
    }

    /// End of the audio of the last partial that came.
    pub(super) fn last_end(&self) -> Samples {
        self.heard_to
    }

    /// End of the last window of speech that was not quiet.
    pub(super) fn loud_until(&self) -> Samples {
        self.loud_until
    }

    /// Takes all words so far. Returns them if they have changed.
    pub(super) fn take(&mut self, words: String) -> Option<String> {
        let is_new = !words.is_empty() && words != self.words;
        is_new.then(|| {
            self.words.clone_from(&words);
            words
        })
    }

    /// Handles a window of speech that ends at `end`. The transcript of the pause that it ended, if it is still
    /// awaited, becomes the next partial.
    pub(super) fn goes_on(&mut self, end: Samples, of_pause: Option<RequestId>) {
        self.loud_until = end;
        if of_pause.is_some() {
            (self.asked, self.before) = (of_pause, None);
        }
    }

    /// Puts the next partial off, because a transcript was requested before `end`.
    pub(super) fn put_off(&mut self, end: Samples) {
        self.next = Samples(end.0 + self.every.0);
    }

    /// Requests a partial of the audio between `from` and `end` if one is due.
    pub(super) fn ask(&mut self, common: &mut Common, from: Samples, end: Samples) {
        if end >= self.next && self.asked.is_none() {
            self.request(common, from, end);
        }
    }

    /// Requests a partial of the audio between `from` and a gap that ends at `end`, unless the last partial has all
    /// speech up to there, or the one before it is still pending.
    pub(super) fn ask_in_gap(&mut self, common: &mut Common, from: Samples, end: Samples) {
        let is_soon = end.since(self.to) < Samples::from_ms(GAP_MS).0;
        if !self.has_all_but(0) && !is_soon && self.before.is_none() {
            self.request(common, from, end);
        }
    }

    fn request(&mut self, common: &mut Common, from: Samples, to: Samples) {
        let request = common.request_id();
        if let Some(before) = self.asked.replace(request) {
            self.before = Some((before, self.to));
        }
        self.to = to;
        self.heard = None;
        self.put_off(to);
        common.outputs.push_back(Output::Transcribe {
            request,
            from,
            to,
            partial: true,
        });
    }

    /// Forgets the partial so far, because that audio has its final transcript.
    pub(super) fn cut(&mut self) {
        self.are_overtaken();
        self.heard = None;
    }

    /// Drops the pending partials, because a transcript of more audio came before them.
    pub(super) fn are_overtaken(&mut self) {
        (self.asked, self.before) = (None, None);
    }

    /// Handles a finished transcription. `None` if it is no pending partial, `Some(None)` if it failed. An earlier one only
    /// brings words.
    pub(super) fn on_transcript(
        &mut self,
        request: RequestId,
        heard: &Result<Recognised, ()>,
    ) -> Option<Option<String>> {
        let text = |heard: &Recognised| heard.text.clone();
        if let Some((_, to)) = self.before.take_if(|(before, _)| *before == request) {
            self.heard_to = to;
            return Some(heard.as_ref().ok().map(text));
        }
        if self.asked != Some(request) {
            return None;
        }
        self.asked = None;
        if heard.is_ok() {
            // Words of less audio would take some back.
            self.before = None;
        }
        self.heard_to = self.to;
        self.heard = heard.clone().ok();
        if let Some(heard) = self.heard.as_ref().filter(|heard| !heard.text.is_empty()) {
            self.serves = heard.marks.is_some() && !heard.provisional;
        }
        Some(self.heard.as_ref().map(text))
    }

    /// Whether the audio of the last partial had all speech so far, but for `missing_ms` at most.
    fn has_all_but(&self, missing_ms: u64) -> bool {
        self.loud_until.since(self.to) <= Samples::from_ms(missing_ms).0
    }

    /// Whether a partial is pending that may serve as the transcript of a pause.
    pub(super) fn are_awaited(&self) -> bool {
        self.asked.is_some() && self.serves && self.has_all_but(0)
    }

    /// The transcript up to a gap or pause, if all speech was in it, but for the last word's end.
    pub(super) fn up_to_gap(&self) -> Option<&Recognised> {
        let heard = self.heard.as_ref();
        heard.filter(|heard| self.has_all_but(FALLING_MS) && heard.doubt.is_none())
    }

    /// The same, if it may serve as the transcript of a pause: all speech was in it, and the recogniser tells the
    /// punctuation that it expects and need not hear it again.
    pub(super) fn all(&self) -> Option<&Recognised> {
        self.up_to_gap()
            .filter(|_| self.serves && self.has_all_but(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::experience::Experience;
    use crate::conversation::policy::Policy;
    use crate::language::Marks;

    fn at(ms: u64) -> Samples {
        Samples::from_ms(ms)
    }

    fn none_so_far() -> (Partials, Common) {
        let common = Common::new(Policy::default(), Experience::default());
        (Partials::new(at(0), at(0), 500), common)
    }

    #[test]
    fn they_are_requested_one_at_a_time() {
        let (mut partials, mut common) = none_so_far();
        partials.ask(&mut common, at(0), at(499));
        assert_eq!(partials.asked, None);
        partials.ask(&mut common, at(0), at(500));
        let first = partials.asked.unwrap();
        partials.ask(&mut common, at(0), at(1_000));
        assert_eq!(partials.asked, Some(first));
        let heard = Ok("what".into());
        let partial = partials.on_transcript(first, &heard);
        assert_eq!(partial, Some(Some("what".into())));
        assert_eq!(partials.on_transcript(first, &heard), None);
    }

    #[test]
    fn after_one_that_failed_the_next_is_requested() {
        let (mut partials, mut common) = none_so_far();
        partials.ask(&mut common, at(0), at(500));
        let failed = partials.on_transcript(partials.asked.unwrap(), &Err(()));
        assert_eq!(failed, Some(None));
        partials.ask(&mut common, at(0), at(1_000));
        assert!(partials.asked.is_some());
    }

    #[test]
    fn one_that_lacks_only_the_fall_of_the_voice_has_all_words_for_an_early_answer() {
        let (mut partials, mut common) = none_so_far();
        partials.ask(&mut common, at(0), at(500));
        let request = partials.asked.unwrap();
        partials.goes_on(at(564), None);
        let heard = Recognised {
            marks: Some(Marks {
                ends: 0.9,
                goes_on: 0.01,
            }),
            ..Recognised::from("what")
        };
        partials.on_transcript(request, &Ok(heard.clone()));
        assert_eq!((partials.up_to_gap(), partials.all()), (Some(&heard), None));
        partials.ask_in_gap(&mut common, at(0), at(596));
        let gap = partials.asked.unwrap();
        assert!(partials.are_awaited());
        partials.on_transcript(gap, &Ok(heard.clone()));
        assert_eq!(partials.all(), Some(&heard));
        partials.goes_on(at(664), None);
        assert_eq!(partials.up_to_gap(), None);
    }

    #[test]
    fn gaps_that_follow_each_other_closely_are_not_all_transcribed() {
        let (mut partials, mut common) = none_so_far();
        partials.goes_on(at(300), None);
        partials.ask_in_gap(&mut common, at(0), at(332));
        let first = partials.asked;
        partials.goes_on(at(400), None);
        partials.ask_in_gap(&mut common, at(0), at(427));
        assert_eq!(partials.asked, first);
        partials.ask_in_gap(&mut common, at(0), at(428));
        assert_ne!(partials.asked, first);
    }

    /// None of its words were used before a pause: each gap made the partial of the one before it dead.
    #[test]
    fn words_of_a_recogniser_that_is_slower_than_the_gaps_are_used() {
        let (mut partials, mut common) = none_so_far();
        let mut gap = |partials: &mut Partials, ms: u64| {
            partials.goes_on(at(ms), None);
            partials.ask_in_gap(&mut common, at(0), at(ms + 32));
            partials.asked.unwrap()
        };
        let first = gap(&mut partials, 300);
        let second = gap(&mut partials, 500);
        assert_eq!(gap(&mut partials, 700), second, "two at a time");
        let words = partials.on_transcript(first, &Ok("what".into()));
        assert_eq!(words, Some(Some("what".into())));
        assert_eq!(partials.last_end(), at(332));
        assert_eq!(partials.up_to_gap(), None);
        let third = gap(&mut partials, 900);
        assert_ne!(third, second);
        let words = partials.on_transcript(third, &Ok("what time is it".into()));
        assert_eq!(words, Some(Some("what time is it".into())));
        let late = partials.on_transcript(second, &Ok("what time".into()));
        assert_eq!(late, None, "it would take words back");
    }

    /// A recogniser that is busy refuses the second one: with it the first one was dropped, which it was working at.
    #[test]
    fn one_that_is_refused_leaves_the_one_before_it() {
        let (mut partials, mut common) = none_so_far();
        partials.goes_on(at(300), None);
        partials.ask_in_gap(&mut common, at(0), at(332));
        let first = partials.asked.unwrap();
        partials.goes_on(at(500), None);
        partials.ask_in_gap(&mut common, at(0), at(532));
        let refused = partials.asked.unwrap();
        assert_eq!(partials.on_transcript(refused, &Err(())), Some(None));
        partials.goes_on(at(700), None);
        partials.ask_in_gap(&mut common, at(0), at(732));
        assert_eq!(partials.asked, None, "it is still busy");
        let words = partials.on_transcript(first, &Ok("what".into()));
        assert_eq!(words, Some(Some("what".into())));
    }
}
