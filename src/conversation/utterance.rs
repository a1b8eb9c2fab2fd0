//! The user's utterance, from the first sound to the final transcript.

use super::clarity::Clarity;
use super::common::Common;
use super::ids::RequestId;
use super::output::Output;
use super::partials::Partials;
use super::pause::{Pause, Tries};
use super::policy::EndpointPolicy;
use super::segments::{Segments, retry_later};
use super::speculation::Request;
use super::turn_detection::EndOfTurnRule;
use super::verdict::Verdict;
use crate::asr::Recognised;
use crate::language::Pack;
use crate::time::{Samples, Time};
use early::EarlyAnswers;

mod by_hand;
mod early;
mod end;
#[cfg(test)]
mod tests;

/// The silence for which a partial with all words is awaited before the pause is transcribed as well, ms: time enough
/// for a recogniser that is not busy.
const MOST_AWAITED_MS: u64 = 192;

/// The user's current utterance.
#[derive(Debug)]
pub(super) struct Utterance {
    /// Its first sample, pre-roll included.
    from: Samples,
    /// When its beginning was detected.
    began: Time,
    source: Source,
    stage: Stage,
    /// Discarded when the user resumes.
    pause: Pause,
    /// End of the last window of speech, and when its VAD result came.
    last_speech: (Samples, Time),
    segments: Segments,
    partials: Partials,
    clarity: Clarity,
    early: EarlyAnswers,
    /// The client cancelled the answer to it.
    given_up: bool,
    /// The verdict of a recogniser that judges turns.
    verdict: Verdict,
}

/// The side that recognises the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The server, from audio.
    Audio,
    /// The client: words come in instead of audio.
    Words,
}

/// The stage of the turn's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The user is speaking.
    Speaking,
    /// The voice has become quiet: a gap between words, or the end.
    Fading,
    /// A silence, heard up to here, that may be the end of the turn.
    Pausing(Samples),
    /// The client has committed it, up to here.
    Committed(Samples),
}

/// A finished transcription.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transcribed {
    /// Its request is dead.
    Dead,
    /// A partial of the audio since the last segment; `None` if it failed or the words before it are not known.
    Partial(Option<String>),
    /// A segment was transcribed, or failed, or the rest behind it is requested again.
    Segment,
    /// All words up to a pause; `None` if they could not be transcribed.
    Pause(Option<String>),
    /// A part of audio that the client has not committed: all words so far, if they have changed.
    Uncommitted(Option<String>),
}

/// Whether the turn is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EndOfTurn {
    /// Not yet.
    NotYet,
    /// Not yet, but these words may be final.
    Perhaps(String),
    /// Over, with these words, possibly none.
    Over(String),
    /// Over, but not all of its words could be transcribed.
    Lost,
}

/// Its beginning.
impl Utterance {
    /// An utterance that begins at `from`, in audio that has come in up to `end`.
    pub(super) fn spoken(from: Samples, end: Samples, now: Time, partial_every_ms: u64) -> Self {
        Self {
            from,
            began: now,
            source: Source::Audio,
            stage: Stage::Speaking,
            pause: Pause::default(),
            last_speech: (end, now),
            segments: Segments::new(from),
            partials: Partials::new(from, end, partial_every_ms),
            clarity: Clarity::default(),
            early: EarlyAnswers::default(),
            given_up: false,
            verdict: Verdict::default(),
        }
    }

    /// An utterance that the client transcribes. `at` is the end of the audio, none of which belongs to it.
    pub(super) fn in_words(at: Samples, now: Time) -> Self {
        Self {
            source: Source::Words,
            ..Self::spoken(at, at, now, 0)
        }
    }

    pub(super) fn from(&self) -> Samples {
        self.from
    }

    /// When its beginning was detected.
    pub(super) fn began(&self) -> Time {
        self.began
    }

    /// End of the last window of speech.
    pub(super) fn last_speech(&self) -> Samples {
        self.last_speech.0
    }

    /// Whether the client has committed it.
    pub(super) fn is_committed(&self) -> bool {
        matches!(self.stage, Stage::Committed(_))
    }

    /// Whether the client transcribes it.
    pub(super) fn is_in_words(&self) -> bool {
        self.source == Source::Words
    }

    /// Whether the client is to send words and has sent none.
    pub(super) fn is_wordless(&self) -> bool {
        self.is_in_words() && self.partials.words().is_empty()
    }

    /// Drops the answer to it.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Counts a preemptive generation, which answers these words. `false` if there were already `most`.
    pub(super) fn may_be_answered_early(&mut self, words: &str, most: u32) -> bool {
        self.early.begin(words, self.last_speech.0, most)
    }

    /// Whether the last preemptive generation answers these words.
    pub(super) fn is_answered_early(&self, words: &str, language: &Pack) -> bool {
        self.early.are_of(words, language)
    }

    /// Whether the last preemptive generation may answer all that is said.
    pub(super) fn may_stay_answered(&self) -> bool {
        self.early.may_stay()
    }

    /// Whether the user has gone on behind the words that are being answered, with other words than these.
    pub(super) fn outgrows_answer(&self, words: &str, language: &Pack) -> bool {
        self.early.are_outgrown(words, language)
    }
}

/// Speech and silence.
impl Utterance {
    /// Handles a window of speech that ends at `end`. `true` if it ended a pause.
    pub(super) fn goes_on(&mut self, end: Samples, now: Time) -> bool {
        self.last_speech = (end, now);
        self.early.goes_on(end);
        let pause = std::mem::take(&mut self.pause);
        if pause.transcription.is_some() {
            self.partials.put_off(end);
        }
        let is_awaited = pause.transcript.is_none() && !pause.has_failed();
        let awaited = pause.transcription.filter(|_| is_awaited);
        self.partials.goes_on(end, awaited);
        let before = std::mem::replace(&mut self.stage, Stage::Speaking);
        matches!(before, Stage::Pausing(_))
    }

    /// Whether it was clearly speech.
    pub(super) fn clarity(&mut self) -> &mut Clarity {
        &mut self.clarity
    }

    /// Handles a quiet window that ends at `end` and that the detector takes for speech, because it lags behind
    /// by a tenth of a second and more. Unless the server is `busy`, a partial is requested: if this is the
    /// end, its words are there when the detector notices.
    pub(super) fn fades(&mut self, common: &mut Common, end: Samples, busy: bool) {
        self.last_speech = (end, common.now);
        self.stage = Stage::Fading;
        if !busy {
            self.partials
                .ask_in_gap(common, self.segments.unfinished_from(), end);
        }
    }

    /// Handles a window of silence that ends at `end`.
    pub(super) fn pauses(&mut self, end: Samples) {
        self.stage = Stage::Pausing(end);
        let middle = self.last_speech.0.0.midpoint(end.0);
        self.segments.pauses(Samples(middle));
    }

    /// In a pause, takes the words up to its beginning for the transcript if they are certainly all, and returns all
    /// words, once. Otherwise, if `may_settle`, waits for such words for a while. After enough silence it requests the
    /// transcript, which has to wait longer if the server is `busy`, and the end-of-turn score.
    /// `asks`: whether the words are a whole request for a tool.
    pub(super) fn transcribe_pause(
        &mut self,
        common: &mut Common,
        rule: EndOfTurnRule,
        (may_settle, busy): (bool, bool),
        asks: Request,
    ) -> Option<String> {
        let Stage::Pausing(end) = self.stage else {
            return None;
        };
        let policy = common.policy.endpoint;
        let silence = Samples(end.since(self.last_speech.0)).as_ms();
        if may_settle && self.pause.transcript.is_none() {
            let all = self.partials.all();
            let language = common.language();
            let is_certain =
                |heard: &&Recognised| self.is_done(heard, policy.certain(), language, asks);
            if let Some(heard) = all.filter(is_certain).cloned() {
                self.pause.transcription = None;
                self.pause.transcript = Some((self.clarity.weigh(heard), common.now));
                self.pause.tries = Tries::One;
                return self.transcript();
            }
            if self.pause.lacks_transcript()
                && self.partials.are_awaited()
                && silence <= MOST_AWAITED_MS
            {
                return None;
            }
        }
        if self.pause.lacks_transcript() && silence >= policy.transcribe_after(busy) {
            self.ask_transcript(common, end);
        }
        let score = self.pause.scoring.is_none()
            && self.pause.transcription.is_some()
            && silence >= policy.score_after_ms
            && rule == EndOfTurnRule::Semantic;
        if score {
            self.ask_completeness(common, end);
        }
        None
    }

    /// Requests a partial, every half second of speech.
    pub(super) fn ask_partial(&mut self, common: &mut Common, end: Samples) {
        self.partials
            .ask(common, self.segments.unfinished_from(), end);
    }

    /// Requests the transcript up to this pause.
    fn ask_transcript(&mut self, common: &mut Common, end: Samples) {
        let request = common.request_id();
        self.pause.transcription = Some(request);
        self.pause.asked = common.now;
        common.outputs.push_back(Output::Transcribe {
            request,
            from: self.segments.unfinished_from(),
            to: end,
            partial: false,
        });
    }

    fn ask_completeness(&mut self, common: &mut Common, to: Samples) {
        let request = common.request_id();
        self.pause.scoring = Some(request);
        let from = self.from;
        common
            .outputs
            .push_back(Output::ScoreEndOfTurn { request, from, to });
    }

    /// Ends a segment before the audio up to `end` is too long for the recogniser.
    pub(super) fn cut_long_segment(
        &mut self,
        common: &mut Common,
        end: Samples,
        after_pause: bool,
    ) {
        if self.segments.cut_long(common, end, after_pause) {
            self.partials.cut();
        }
    }

    /// Requests again what could not be transcribed a while ago.
    pub(super) fn ask_again(&mut self, common: &mut Common) {
        if self.segments.ask_again(common) {
            self.pause.asked = common.now;
        }
        let is_due = self.pause.tries == Tries::SecondDue;
        if let (true, Stage::Pausing(end) | Stage::Committed(end)) = (is_due, self.stage) {
            self.pause.tries = Tries::Two;
            self.ask_transcript(common, end);
        }
    }
}

/// Words.
impl Utterance {
    /// Handles a finished transcription; `Err` if the recogniser failed.
    pub(super) fn on_transcript(
        &mut self,
        request: RequestId,
        heard: Result<Recognised, ()>,
        common: &mut Common,
    ) -> Transcribed {
        if let Some(again) = self.segments.on_transcript(common, request, &heard) {
            if again {
                self.pause.asked = common.now;
            }
            return Transcribed::Segment;
        }
        if let Some(partial) = self.partials.on_transcript(request, &heard) {
            // Without a new partial, the words so far stay. One without those of a segment in front of it takes them back.
            return Transcribed::Partial(partial.filter(|_| self.segments.are_transcribed()));
        }
        if self.pause.transcription != Some(request) {
            return Transcribed::Dead;
        }
        match heard {
            Ok(heard) => {
                self.partials.are_overtaken();
                let mut heard = self.clarity.weigh(heard);
                // Only spelt otherwise than what the model is already answering.
                let language = common.language();
                let answered = self.early.spelling(&heard.text, language);
                if let Some(text) = answered.filter(|_| self.segments.is_empty()) {
                    text.clone_into(&mut heard.text);
                }
                self.pause.transcript = Some((heard, common.now));
                self.pause.tries = Tries::One;
            }
            // The words of the segments before it are worth it.
            Err(()) if !self.segments.is_empty() && self.pause.tries == Tries::One => {
                self.pause.tries = Tries::SecondDue;
                self.pause.asked = common.now;
                retry_later(common);
                return Transcribed::Segment;
            }
            Err(()) => self.pause.tries = Tries::Failed,
        }
        Transcribed::Pause(self.transcript())
    }

    /// Takes a partial of the audio since the last segment. Returns all words so far if they have changed.
    pub(super) fn on_partial(&mut self, tail: &str) -> Option<String> {
        let text = self.text(tail);
        self.partials.take(text)
    }

    /// Notes when the client's partial transcript last changed.
    pub(super) fn on_words(&mut self, words: &str, now: Time) {
        if words != self.partials.words() {
            self.last_speech.1 = now;
        }
    }

    /// The words so far.
    pub(super) fn words(&self) -> &str {
        self.partials.words()
    }

    pub(super) fn partials(&mut self) -> &mut Partials {
        &mut self.partials
    }

    /// All words up to the current pause.
    pub(super) fn transcript(&self) -> Option<String> {
        let (heard, _) = self.pause.transcript.as_ref()?;
        Some(self.text(&heard.text))
    }

    /// The words up to a gap that nothing has followed, if they are likely to be all; if only one of `most` preemptive
    /// generations is left, if they are certain to be. `asks`: whether the words so far are a whole request for a tool.
    fn words_up_to_gap(
        &self,
        endpoint: &EndpointPolicy,
        language: &Pack,
        asks: Request,
        most: u32,
    ) -> Option<String> {
        let heard = self.partials.up_to_gap()?;
        let least = match self.early.are_short(most) {
            true => endpoint.certain(),
            false => endpoint.likely(),
        };
        self.is_done(heard, least, language, asks)
            .then(|| self.text(&heard.text))
    }

    /// Whether the user is done, with at least the probability `least`, after words that were heard since the last segment.
    fn is_done(&self, heard: &Recognised, least: f32, language: &Pack, asks: Request) -> bool {
        let text = self.text(&heard.text);
        let done = self.pause.done(language, Some(&text), heard.marks, asks);
        done.is_some_and(|done| done >= least) && self.segments.are_transcribed()
    }

    /// The words so far, with `tail` for the unfinished part.
    fn text(&self, tail: &str) -> String {
        self.segments.text(tail)
    }
}
