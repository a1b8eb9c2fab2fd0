//! Whose turn it is: which audio is the user's utterance, and where the next one begins.

use super::common::Common;
use super::endpointer::{Heard, SpeechDetector};
use super::ids::RequestId;
use super::output::Event;
use super::policy::VadPolicy;
use super::timer::Timer;
use super::turn_detection::{EndOfTurnRule, TurnDetection};
use super::utterance::{EndOfTurn, Transcribed, Utterance};
use crate::time::{Samples, Time};
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Turns that the client has committed by hand and that may wait to be transcribed.
const MOST_COMMITTED: usize = 64;

/// Audio that a commit needs at least, ms (100: OpenAI Realtime).
const MIN_COMMIT_MS: u64 = 100;

/// Audio kept beyond what is needed while nobody speaks, ms: windows are judged a little late.
const MARGIN_MS: u64 = 500;

/// The user's side of the conversation.
#[derive(Debug, Default)]
pub(super) struct Turn {
    detector: SpeechDetector,
    /// End of the audio that has come in.
    audio_end: Samples,
    /// Audio before this belongs to earlier turns.
    audio_from: Samples,
    utterance: Option<Utterance>,
    /// Audio that the client has committed after the utterance, oldest first.
    committed: VecDeque<Committed>,
    /// The user was asked to say something again, and has not been understood since.
    asked_again: bool,
    /// The server has much to do: no partials are asked for.
    busy: bool,
}

/// A turn that the client has committed by hand while the one before it was being transcribed.
#[derive(Debug)]
struct Committed {
    from: Samples,
    to: Samples,
    /// The client has cancelled the answer to it.
    given_up: bool,
}

/// The outcome of a client's commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// The utterance is over.
    Utterance,
    /// Audio without an utterance waits to be transcribed.
    Audio,
}

/// The audio.
impl Turn {
    /// Audio up to `end` has come in.
    pub(super) fn received(&mut self, end: Samples) {
        self.audio_end = self.audio_end.max(end);
    }

    pub(super) fn audio_end(&self) -> Samples {
        self.audio_end
    }

    /// Whether to ask only for what is needed.
    pub(super) fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// A window was judged. Returns what it means; nothing if no turn is to be found in it.
    pub(super) fn on_window(
        &mut self,
        vad: &VadPolicy,
        rule: EndOfTurnRule,
        (end, probability): (Samples, f32),
        agent_is_heard: bool,
    ) -> Option<Heard> {
        self.received(end);
        let is_past = end <= self.audio_from;
        if rule == EndOfTurnRule::Client || self.is_committed() || is_past {
            return None;
        }
        let start = match agent_is_heard {
            true => vad.interrupt_windows,
            false => vad.start_windows,
        };
        Some(match self.detector.push(end, probability, vad, start) {
            Heard::Started(at) => Heard::Started(at.max(self.audio_from)),
            heard => heard,
        })
    }

    /// Counts a window of the utterance, in the middle of which audio must come.
    pub(super) fn watch_audio(&mut self, common: &mut Common, probability: f32) {
        if let Some(utterance) = &mut self.utterance {
            utterance.count(probability);
            let stalled = common.now + common.policy.timeouts.audio_timeout;
            common.timers.set(Timer::AudioStalled, stalled);
        }
    }

    /// The user's audio so far belongs to no later turn.
    pub(super) fn forget_audio(&mut self) {
        self.audio_from = self.audio_end;
    }

    /// Audio from here on belongs to the next turn.
    pub(super) fn take_audio_from(&mut self, from: Samples) {
        self.audio_from = from;
    }

    /// The user's audio before this is not needed any more.
    pub(super) fn audio_needed_from(&self, vad: &VadPolicy, rule: EndOfTurnRule) -> Samples {
        match &self.utterance {
            Some(utterance) => utterance.from(),
            None if rule == EndOfTurnRule::Client => self.audio_from,
            None => {
                // The pre-roll and the windows that begin an utterance.
                let windows = vad.start_windows.max(vad.interrupt_windows);
                let kept_ms = vad.pre_roll_ms + u64::from(windows) * 32 + MARGIN_MS;
                self.audio_from.max(self.audio_end.minus_ms(kept_ms))
            }
        }
    }
}

/// The utterance.
impl Turn {
    /// The user has begun to say something that is not over.
    pub(super) fn is_open(&self) -> bool {
        self.utterance.is_some()
    }

    /// The client has said that the utterance is over.
    pub(super) fn is_committed(&self) -> bool {
        self.utterance.as_ref().is_some_and(Utterance::is_committed)
    }

    pub(super) fn utterance(&self) -> Option<&Utterance> {
        self.utterance.as_ref()
    }

    pub(super) fn utterance_mut(&mut self) -> Option<&mut Utterance> {
        self.utterance.as_mut()
    }

    /// The user begins to speak.
    pub(super) fn begin_speech(&mut self, common: &mut Common, at: Samples) {
        let every = common.policy.endpoint.partial_every_ms;
        self.utterance = Some(Utterance::spoken(at, self.audio_end, common.now, every));
        common.notify(Event::SpeechStarted { at });
    }

    /// The user begins to speak, and the client recognises the words.
    pub(super) fn begin_words(&mut self, common: &mut Common) {
        let at = self.audio_end;
        self.utterance = Some(Utterance::in_words(at, common.now));
        common.notify(Event::SpeechStarted { at });
    }

    /// The user speaks on. `true` if a pause is over.
    pub(super) fn goes_on(&mut self, common: &mut Common, end: Samples) -> bool {
        let Some(utterance) = &mut self.utterance else {
            return false;
        };
        common.mark_activity();
        let resumed = utterance.goes_on(end, common.now);
        if resumed {
            common.timers.clear(Timer::EndOfTurn);
            common.timers.clear(Timer::TranscriptOverdue);
        }
        resumed
    }

    /// Asks for transcripts of what is being said, which has `resumed` behind a pause or goes on.
    pub(super) fn transcribe_so_far(&mut self, common: &mut Common, end: Samples, resumed: bool) {
        if let Some(utterance) = &mut self.utterance {
            utterance.cut_long_segment(common, end, resumed);
            if !self.busy {
                utterance.ask_partial(common, end);
            }
        }
    }

    /// A transcription ended.
    pub(super) fn on_transcript(
        &mut self,
        request: RequestId,
        text: Result<String, ()>,
        now: Time,
    ) -> Transcribed {
        match &mut self.utterance {
            Some(utterance) => utterance.on_transcript(request, text, now),
            None => Transcribed::Dead,
        }
    }

    /// Whether the turn is over.
    pub(super) fn judge(&self, common: &mut Common, detection: &TurnDetection) -> EndOfTurn {
        match &self.utterance {
            Some(utterance) => utterance.judge(common, detection),
            None => EndOfTurn::NotYet,
        }
    }

    /// Takes the utterance: its turn is over.
    pub(super) fn end(&mut self, common: &mut Common) -> Option<Utterance> {
        let utterance = self.utterance.take()?;
        common.timers.clear(Timer::EndOfTurn);
        common.timers.clear(Timer::TranscriptOverdue);
        common.timers.clear(Timer::AudioStalled);
        self.detector.reset();
        if !utterance.is_committed() {
            self.forget_audio();
        }
        let at = utterance.last_speech();
        common.notify(Event::SpeechStopped { at });
        Some(utterance)
    }
}

/// Utterances without words.
impl Turn {
    /// Whether the user, whose utterance was not understood, is to be asked to say it again: once, since
    /// what goes on may be meant for others.
    pub(super) fn may_ask_again(&self, common: &Common, utterance: &Utterance) -> bool {
        let least = common.policy.endpoint.ask_again_ms;
        least.is_some_and(|least| utterance.certain_ms() >= least) && !self.asked_again
    }

    /// The user is asked to say it again.
    pub(super) fn ask_again(&mut self) {
        self.asked_again = true;
    }

    /// The user was understood.
    pub(super) fn was_understood(&mut self) {
        self.asked_again = false;
    }
}

/// Turns that the client ends by hand.
impl Turn {
    /// The client says that the user's turn is over. `None` if it is told that there is none.
    pub(super) fn commit(&mut self, common: &mut Common, rule: EndOfTurnRule) -> Option<Commit> {
        if self.is_open() && !self.is_committed() {
            self.commit_utterance(common);
            return Some(Commit::Utterance);
        }
        if let Err(message) = self.may_commit(rule) {
            common.refuse("CommitAudio", message);
            return None;
        }
        self.committed.push_back(Committed {
            from: self.audio_from,
            to: self.audio_end,
            given_up: false,
        });
        self.forget_audio();
        Some(Commit::Audio)
    }

    /// Whether there is audio to commit that is no utterance.
    fn may_commit(&self, rule: EndOfTurnRule) -> Result<(), String> {
        let length = Samples(self.audio_end.since(self.audio_from)).as_ms();
        if length < MIN_COMMIT_MS {
            return Err(format!(
                "the buffer holds {length} ms of audio; at least {MIN_COMMIT_MS} ms are needed"
            ));
        }
        if rule != EndOfTurnRule::Client {
            return Err("nobody has spoken since the last turn; with turn detection on, turns are committed by themselves".into());
        }
        if self.committed.len() == MOST_COMMITTED {
            return Err(format!(
                "{MOST_COMMITTED} turns wait to be transcribed; wait for their transcripts"
            ));
        }
        Ok(())
    }

    /// There is no more to come of the utterance.
    pub(super) fn commit_utterance(&mut self, common: &mut Common) {
        self.commit_until(common, self.audio_end);
    }

    fn commit_until(&mut self, common: &mut Common, end: Samples) {
        self.audio_from = self.audio_from.max(end);
        if let Some(utterance) = &mut self.utterance {
            utterance.commit(common, end);
        }
    }

    /// Transcribes what the client has committed by hand, one turn after the other. `true` if one begins.
    pub(super) fn hear_committed(&mut self, common: &mut Common) -> bool {
        if self.is_open() {
            return false;
        }
        let Some(next) = self.committed.pop_front() else {
            return false;
        };
        let mut utterance = Utterance::spoken(next.from, next.to, common.now, 0);
        if next.given_up {
            utterance.give_up();
        }
        self.utterance = Some(utterance);
        self.commit_until(common, next.to);
        true
    }

    /// The client wants no answer to what it has committed last and is not transcribed yet; `false`
    /// if there is nothing like that.
    pub(super) fn give_up_committed(&mut self) -> bool {
        if let Some(last) = self.committed.back_mut() {
            last.given_up = true;
            return true;
        }
        let utterance = self.utterance.as_mut().filter(|u| u.is_committed());
        utterance.is_some_and(|utterance| {
            utterance.give_up();
            true
        })
    }

    /// Nothing that was committed is heard any more, but for the utterance.
    pub(super) fn forget_committed(&mut self) {
        self.committed.clear();
    }
}
