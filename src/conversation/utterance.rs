//! The user's utterance, from the first sound to the transcript that ends the turn.

use super::common::Common;
use super::endpointer::{WINDOW, silence_needed};
use super::ids::RequestId;
use super::latency::TurnLatency;
use super::output::Output;
use super::policy::CERTAIN;
use super::timer::Timer;
use super::turn_detection::{EndOfTurnRule, TurnDetection};
use crate::time::{Micros, Samples, Time};

#[cfg(test)]
mod tests;

/// The user's current utterance.
#[derive(Debug)]
pub(super) struct Utterance {
    /// Where it began, pre-roll included.
    from: Samples,
    /// When it was found to have begun.
    began: Time,
    source: Source,
    stage: Stage,
    /// Dies with the silence.
    pause: Pause,
    /// End of the last window of speech, and when it was judged.
    last_speech: (Samples, Time),
    /// Stretches that were transcribed for good because all at once would be too long.
    segments: Vec<Segment>,
    /// Where the stretch begins that is not transcribed for good.
    segment_from: Samples,
    partials: Partials,
    /// Windows that were certainly speech.
    certain: u64,
    /// A stretch of it could not be transcribed.
    failed: bool,
    /// Answers that were asked for before the turn was over.
    generations: u32,
    /// The client has cancelled the answer to it.
    given_up: bool,
}

/// Who recognises the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// We do, from the audio.
    Audio,
    /// The client: words come in, and no audio.
    Words,
}

/// How near the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The user is speaking.
    Speaking,
    /// A silence that may be the end of the turn.
    Pausing,
    /// The client says that this is all.
    Committed,
}

/// Requests made in a pause that may end the turn, and their results.
#[derive(Debug, Default)]
struct Pause {
    transcription: Option<RequestId>,
    /// When the transcription was asked for.
    asked: Time,
    transcript: Option<(String, Time)>,
    scoring: Option<RequestId>,
    completeness: Option<(f32, Time)>,
}

#[derive(Debug)]
struct Segment {
    request: RequestId,
    text: Option<String>,
}

/// The transcripts of an utterance that is going on.
#[derive(Debug)]
struct Partials {
    asked: Option<RequestId>,
    text: String,
    /// The next one is asked for here.
    next: Samples,
}

/// A transcription that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transcribed {
    /// Nobody waits for it.
    Dead,
    /// It is what the user has said since the last segment so far.
    Partial(String),
    /// A segment has its words, or has failed.
    Segment,
    /// These are all words up to a pause; `None` if they could not be transcribed.
    Pause(Option<String>),
}

/// Whether the turn is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EndOfTurn {
    /// Not yet.
    NotYet,
    /// Not yet, but these words may be all.
    Perhaps(String),
    /// It is, with these words, possibly none.
    Over(String),
    /// It is, but its words could not be transcribed.
    Lost,
}

/// Its beginning.
impl Utterance {
    /// One that is heard from `from` on; `end` is as far as the audio goes.
    pub(super) fn spoken(from: Samples, end: Samples, now: Time, partial_every_ms: u64) -> Self {
        Self {
            from,
            began: now,
            source: Source::Audio,
            stage: Stage::Speaking,
            pause: Pause::default(),
            last_speech: (end, now),
            segments: Vec::new(),
            segment_from: from,
            partials: Partials {
                asked: None,
                text: String::new(),
                next: Samples(from.0 + Samples::from_ms(partial_every_ms).0),
            },
            certain: 0,
            failed: false,
            generations: 0,
            given_up: false,
        }
    }

    /// One that the client recognises, at this place in the audio that does not come.
    pub(super) fn in_words(at: Samples, now: Time) -> Self {
        Self {
            source: Source::Words,
            ..Self::spoken(at, at, now, 0)
        }
    }

    pub(super) fn from(&self) -> Samples {
        self.from
    }

    /// When it was found to have begun.
    pub(super) fn began(&self) -> Time {
        self.began
    }

    /// End of the last window of speech.
    pub(super) fn last_speech(&self) -> Samples {
        self.last_speech.0
    }

    /// The client says that this is all.
    pub(super) fn is_committed(&self) -> bool {
        self.stage == Stage::Committed
    }

    /// The client recognises it.
    pub(super) fn is_in_words(&self) -> bool {
        self.source == Source::Words
    }

    /// Words are to come, and none have.
    pub(super) fn is_wordless(&self) -> bool {
        self.is_in_words() && self.partials.text.is_empty()
    }

    /// The client wants no answer to it.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Counts an answer that is asked for before the turn is over. `false` if there were enough.
    pub(super) fn may_be_answered_early(&mut self, most: u32) -> bool {
        let may = self.generations < most;
        self.generations += u32::from(may);
        may
    }
}

/// Speech and silence.
impl Utterance {
    /// The window that ends at `end` is speech. `true` if a pause is over.
    pub(super) fn goes_on(&mut self, end: Samples, now: Time) -> bool {
        self.last_speech = (end, now);
        self.pause = Pause::default();
        std::mem::replace(&mut self.stage, Stage::Speaking) == Stage::Pausing
    }

    /// Counts a window in which speech has this probability.
    pub(super) fn count(&mut self, probability: f32) {
        self.certain += u64::from(probability >= CERTAIN);
    }

    /// How much of it was certainly speech, ms.
    pub(super) fn certain_ms(&self) -> u64 {
        Samples(self.certain * WINDOW).as_ms()
    }

    /// The window that ends at `end` is silence: asks what the turn would end with.
    pub(super) fn pauses(&mut self, common: &mut Common, rule: EndOfTurnRule, end: Samples) {
        let policy = common.policy.endpoint;
        let silence = Samples(end.since(self.last_speech.0)).as_ms();
        self.stage = Stage::Pausing;
        let pause = &self.pause;
        let transcribe = pause.transcription.is_none() && silence >= policy.transcribe_after_ms;
        let score = pause.scoring.is_none()
            && silence >= policy.score_after_ms
            && rule == EndOfTurnRule::Semantic;
        if transcribe {
            self.ask_transcript(common, end);
        }
        if score {
            self.ask_completeness(common, end);
        }
    }

    /// The client says that it ends at `end`.
    pub(super) fn commit(&mut self, common: &mut Common, end: Samples) {
        let longest = Samples::from_ms(common.policy.endpoint.segment_ms).0;
        while end.since(self.segment_from) > longest {
            self.cut_segment(common, Samples(self.segment_from.0 + longest));
        }
        self.stage = Stage::Committed;
        if self.pause.transcription.is_none() {
            self.ask_transcript(common, end);
        }
    }

    /// Asks for what the user has said so far, every half second of speech.
    pub(super) fn ask_partial(&mut self, common: &mut Common, end: Samples) {
        if end < self.partials.next || self.partials.asked.is_some() {
            return;
        }
        let every = Samples::from_ms(common.policy.endpoint.partial_every_ms).0;
        let request = common.request_id();
        self.partials.asked = Some(request);
        self.partials.next = Samples(end.0 + every);
        transcribe(common, request, self.segment_from, end, true);
    }

    /// Asks for the transcript of the stretch up to this pause.
    fn ask_transcript(&mut self, common: &mut Common, end: Samples) {
        let request = common.request_id();
        self.pause.transcription = Some(request);
        self.pause.asked = common.now;
        transcribe(common, request, self.segment_from, end, false);
    }

    fn ask_completeness(&mut self, common: &mut Common, to: Samples) {
        let request = common.request_id();
        self.pause.scoring = Some(request);
        let from = self.from;
        common
            .outputs
            .push_back(Output::ScoreEndOfTurn { request, from, to });
    }

    /// Transcribes a stretch for good when it nears what the recogniser takes at once: behind a
    /// pause if there is one in time, else anywhere.
    pub(super) fn cut_long_segment(
        &mut self,
        common: &mut Common,
        end: Samples,
        after_pause: bool,
    ) {
        let longest = Samples::from_ms(common.policy.endpoint.segment_ms).0;
        let enough = match after_pause {
            true => longest * 3 / 5,
            false => longest,
        };
        if end.since(self.segment_from) >= enough {
            self.cut_segment(common, end);
        }
    }

    fn cut_segment(&mut self, common: &mut Common, end: Samples) {
        let request = common.request_id();
        let text = None;
        self.segments.push(Segment { request, text });
        let from = std::mem::replace(&mut self.segment_from, end);
        self.partials.asked = None;
        transcribe(common, request, from, end, false);
    }
}

fn transcribe(common: &mut Common, request: RequestId, from: Samples, to: Samples, partial: bool) {
    common.outputs.push_back(Output::Transcribe {
        request,
        from,
        to,
        partial,
    });
}

/// Words.
impl Utterance {
    /// A transcription ended, with its text or with nothing if the recogniser failed.
    pub(super) fn on_transcript(
        &mut self,
        request: RequestId,
        text: Result<String, ()>,
        now: Time,
    ) -> Transcribed {
        if let Some(segment) = self.segments.iter_mut().find(|s| s.request == request) {
            match text {
                Ok(text) => segment.text = Some(text),
                Err(()) => self.failed = true,
            }
            return Transcribed::Segment;
        }
        if self.partials.asked == Some(request) {
            self.partials.asked = None;
            return Transcribed::Partial(text.unwrap_or_default());
        }
        if self.pause.transcription != Some(request) {
            return Transcribed::Dead;
        }
        match text {
            Ok(text) => self.pause.transcript = Some((text, now)),
            Err(()) => self.failed = true,
        }
        Transcribed::Pause(self.transcript())
    }

    /// These are the words since the last segment so far: returns all words if they are new.
    pub(super) fn on_partial(&mut self, tail: &str) -> Option<String> {
        let text = self.text(tail);
        let is_new = !text.is_empty() && text != self.partials.text;
        is_new.then(|| {
            self.partials.text.clone_from(&text);
            text
        })
    }

    /// The client has recognised so much.
    pub(super) fn on_words(&mut self, words: &str, now: Time) {
        if words != self.partials.text {
            self.last_speech.1 = now;
        }
    }

    /// The words so far.
    pub(super) fn words(&self) -> &str {
        &self.partials.text
    }

    /// All words up to the pause that is going on.
    fn transcript(&self) -> Option<String> {
        let (text, _) = self.pause.transcript.as_ref()?;
        Some(self.text(text))
    }

    /// The words so far, with `tail` for the stretch that is not transcribed for good.
    fn text(&self, tail: &str) -> String {
        let segments = self.segments.iter().filter_map(|s| s.text.as_deref());
        segments
            .chain([tail])
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Its end.
impl Utterance {
    /// An end-of-turn score is there. `false` if nobody waits for it.
    pub(super) fn on_completeness(&mut self, request: RequestId, score: f32, now: Time) -> bool {
        let is_awaited = self.pause.scoring == Some(request);
        if is_awaited {
            self.pause.completeness = Some((score, now));
        }
        is_awaited
    }

    /// Whether the silence is long enough and the transcript is there; otherwise sets the timer for
    /// when that is to be asked again.
    pub(super) fn judge(&self, common: &mut Common, detection: &TurnDetection) -> EndOfTurn {
        if self.stage == Stage::Speaking {
            return EndOfTurn::NotYet;
        }
        let transcript = self.transcript();
        let endpoint = common.policy.endpoint.of(detection);
        let wait = match detection.rule {
            _ if self.is_committed() => 0,
            EndOfTurnRule::Silence { ms } => ms,
            EndOfTurnRule::Client => return EndOfTurn::NotYet,
            EndOfTurnRule::Semantic => {
                let score = self.pause.completeness.map(|(score, _)| score);
                silence_needed(score, transcript.as_deref(), &endpoint)
            }
        };
        let due = self.last_speech.1 + Micros::from_ms(wait);
        let transcript = transcript.filter(|_| self.segments.iter().all(|s| s.text.is_some()));
        if common.now < due {
            common.timers.set(Timer::EndOfTurn, due);
            let is_unfinished =
                detection.rule == EndOfTurnRule::Semantic && wait >= endpoint.incomplete_ms;
            let plausible = transcript.filter(|_| !is_unfinished);
            return plausible.map_or(EndOfTurn::NotYet, EndOfTurn::Perhaps);
        }
        match transcript {
            _ if self.failed => EndOfTurn::Lost,
            Some(text) => EndOfTurn::Over(text),
            None => {
                let patience = common.policy.timeouts.transcript_timeout;
                let overdue = due.max(self.pause.asked) + patience;
                common.timers.set(Timer::TranscriptOverdue, overdue);
                EndOfTurn::NotYet
            }
        }
    }

    /// When the stages of a turn were reached that ends now.
    pub(super) fn latency(&self, now: Time) -> TurnLatency {
        let transcript = self.pause.transcript.as_ref();
        TurnLatency {
            speech_end: Some(self.last_speech.1),
            transcript: transcript.map(|(_, at)| *at),
            completeness: self.pause.completeness.map(|(_, at)| at),
            end_of_turn: Some(now),
            ..TurnLatency::default()
        }
    }
}
