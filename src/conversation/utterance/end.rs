//! The end of an utterance: silence, words and sound, and the verdict of a recogniser that judges turns.

use super::{EndOfTurn, Stage, Utterance};
use crate::asr::{TurnReport, TurnState};
use crate::conversation::common::Common;
use crate::conversation::ids::RequestId;
use crate::conversation::latency::TurnLatency;
use crate::conversation::pause::Tries;
use crate::conversation::speculation::Request;
use crate::conversation::timer::Timer;
use crate::conversation::turn_detection::{EndOfTurnRule, TurnDetection};
use crate::conversation::verdict::{Judged, News};
use crate::time::{Micros, Samples, Time};

/// How much longer a turn is open if the audio of its last silence does not come, ms: networks deliver late and then all
/// at once, and a client that sends nothing in silence should not wait long.
const LATE_AUDIO_MS: u64 = 500;

/// The end of a silence that is not heard yet although nothing is late, ms: a window of the detector that is not whole,
/// with room for what frames of 20 ms add.
const UNHEARD_MS: u64 = 40;

/// The most of a falling voice that counts as silence, ms: two windows of the detector, which takes at least that long to
/// notice silence. A consonant at the end of a word may be quiet for longer.
const FALLEN_MS: u64 = 64;

/// When it is over.
impl Utterance {
    /// Handles an end-of-turn score. `false` if its request is dead.
    pub(in crate::conversation) fn on_completeness(
        &mut self,
        request: RequestId,
        score: f32,
        now: Time,
    ) -> bool {
        let is_awaited = self.pause.scoring == Some(request);
        if is_awaited {
            self.pause.completeness = Some((score, now));
        }
        is_awaited
    }

    /// Handles the report of a recogniser that judges turns. If it takes the user for done, the words are requested
    /// again unless they are awaited, because they are settled now. `true` if the user goes on, so that an answer to
    /// the words so far is not needed. Of a committed utterance, which is over, it says nothing.
    pub(in crate::conversation) fn on_turn_report(
        &mut self,
        common: &mut Common,
        report: TurnReport,
    ) -> bool {
        if self.is_committed() {
            return false;
        }
        let spoken_to = self.last_speech.0;
        match self.verdict.take(common.now, report, spoken_to) {
            News::Settled => {
                let is_there = self.pause.transcript.take().is_some();
                if is_there && report.to > self.segments.unfinished_from() {
                    self.ask_transcript(common, report.to);
                }
            }
            News::Resumed => self.early.clear(),
            News::Nothing => {}
        }
        report.state == TurnState::Resumed
    }

    /// Whether the turn is over: the silence is long enough and the transcript has come. Otherwise sets the
    /// timer for the next check. `asks`: whether the words are a whole request for a tool; `is_nothing`: whether they
    /// leave the agent the turn, which goes on soon then, however finished they read.
    pub(in crate::conversation) fn judge(
        &self,
        common: &mut Common,
        detection: &TurnDetection,
        asks: Request,
        is_nothing: bool,
    ) -> EndOfTurn {
        if self.stage == Stage::Speaking {
            return EndOfTurn::NotYet;
        }
        let transcript = self.transcript();
        let endpoint = common.policy.endpoint.of(detection);
        let language = common.language();
        let is_cut = !self.segments.are_transcribed();
        // The missing words may take the others back.
        let lacks_words = self.segments.lack_words();
        let most = common.policy.speculation.generations_per_turn;
        let up_to_gap = || match detection.rule {
            EndOfTurnRule::Client => None,
            _ if lacks_words => None,
            _ => self.words_up_to_gap(&endpoint, language, asks, most),
        };
        if self.stage == Stage::Fading {
            return up_to_gap().map_or(EndOfTurn::NotYet, EndOfTurn::Perhaps);
        }
        let wait = match detection.rule {
            _ if self.is_committed() => 0,
            EndOfTurnRule::Silence { ms } => ms,
            EndOfTurnRule::Client => return EndOfTurn::NotYet,
            EndOfTurnRule::Semantic => {
                let done =
                    self.pause
                        .done(language, transcript.as_deref(), self.pause.marks(), asks);
                let wait = endpoint.silence_needed(done);
                match is_nothing {
                    true => wait.min(endpoint.unsure_ms),
                    false => wait,
                }
            }
        };
        let fallen = Micros::from_ms(self.fallen_ms());
        let since_speech = |ms| self.last_speech.1 + Micros::from_ms(ms) - fallen;
        let verdict = match detection.rule {
            EndOfTurnRule::Semantic if !self.is_committed() => {
                self.verdict.at(common.now, self.last_speech.0)
            }
            _ => None,
        };
        let due = match verdict {
            Some(verdict) => verdict.due(since_speech(wait), since_speech(endpoint.incomplete_ms)),
            None if self.has_not_heard(wait) => since_speech(wait + LATE_AUDIO_MS),
            None => since_speech(wait),
        };
        let transcript = transcript.filter(|_| !is_cut);
        if common.now < due {
            common.timers.set(Timer::EndOfTurn, due);
            let is_unfinished =
                detection.rule == EndOfTurnRule::Semantic && wait > endpoint.unsure_ms;
            let may_be_over = verdict.and_then(Judged::may_be_over);
            let plausible = match (may_be_over, transcript) {
                (Some(false), _) => None,
                (_, Some(_)) if lacks_words => None,
                (Some(true), Some(text)) => Some(text),
                (None, Some(text)) => Some(text).filter(|_| !is_unfinished),
                (_, None) => up_to_gap(),
            };
            return plausible.map_or(EndOfTurn::NotYet, EndOfTurn::Perhaps);
        }
        let is_lost = self.pause.tries == Tries::Failed;
        if is_cut || (transcript.is_none() && !is_lost) {
            let patience = common.policy.timeouts.transcript_timeout;
            let overdue = due.max(self.pause.asked) + patience;
            common.timers.set(Timer::TranscriptOverdue, overdue);
            return EndOfTurn::NotYet;
        }
        match is_lost || lacks_words {
            true => EndOfTurn::Lost,
            false => EndOfTurn::Over(self.known_words()),
        }
    }

    /// Whether the audio that would prove this much silence is still to come: it is late, and may be speech.
    fn has_not_heard(&self, silence_ms: u64) -> bool {
        let Stage::Pausing(to) = self.stage else {
            return false;
        };
        self.fallen_ms() + Samples(to.since(self.last_speech.0)).as_ms() + UNHEARD_MS < silence_ms
    }

    /// How long the voice had already been quiet, ms, when the detector noticed silence.
    fn fallen_ms(&self) -> u64 {
        let quiet = self.last_speech.0.since(self.partials.loud_until());
        Samples(quiet).as_ms().min(FALLEN_MS)
    }

    /// The stamps of a turn that ends now.
    pub(in crate::conversation) fn latency(&self, now: Time) -> TurnLatency {
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
