//! The bounds of the user's utterance in the audio, and where the next one begins.

use super::clarity::Misheard;
use super::common::Common;
use super::dictation::Dictation;
use super::endpointer::{Activity, SpeechDetector, Window};
use super::ids::RequestId;
use super::output::Event;
use super::overlap::Overlap;
use super::policy::VadPolicy;
use super::shed::Shed;
use super::speculation::Request;
use super::timer::Timer;
use super::turn_detection::{EndOfTurnRule, TurnDetection};
use super::utterance::{EndOfTurn, Transcribed, Utterance};
use crate::asr::Recognised;
use crate::time::Samples;
use std::collections::VecDeque;

mod overlap;
#[cfg(test)]
mod tests;

/// The most committed turns that wait to be transcribed.
const MOST_COMMITTED: usize = 64;

/// The least audio that can be committed, ms (100: OpenAI Realtime).
const MIN_COMMIT_MS: u64 = 100;

/// Extra audio kept while nobody speaks, ms, because VAD results arrive a little late.
const MARGIN_MS: u64 = 500;

/// The user's side of the conversation.
#[derive(Debug, Default)]
pub(super) struct Turn {
    detector: SpeechDetector,
    /// End of the received audio.
    audio_end: Samples,
    /// Audio before this belongs to earlier turns.
    audio_from: Samples,
    utterance: Option<Utterance>,
    /// The utterance, or the last one, began over the agent's voice, and may not interrupt it.
    overlap: Option<Overlap>,
    /// Audio that the client committed after the utterance, oldest first.
    committed: VecDeque<Committed>,
    /// Audio behind that, where the client ends turns by hand.
    dictation: Dictation,
    /// The user was asked to repeat, and has not been understood since.
    asked_again: bool,
    /// The optional work that the server has no room for.
    shed: Shed,
}

/// A turn that the client committed by hand while the previous one was being transcribed.
#[derive(Debug)]
struct Committed {
    utterance: Utterance,
    /// Its end.
    to: Samples,
}

/// The outcome of a client's commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// The open utterance.
    Utterance,
    /// Audio without an utterance, which is queued for transcription.
    Audio,
}

/// The audio.
impl Turn {
    /// Notes that audio up to `end` has come in.
    pub(super) fn received(&mut self, end: Samples) {
        self.audio_end = self.audio_end.max(end);
    }

    pub(super) fn audio_end(&self) -> Samples {
        self.audio_end
    }

    /// Whether the server has room for this optional work.
    pub(super) fn has_room_for(&self, work: Shed) -> bool {
        self.shed < work
    }

    /// Sets the optional work that the server has no room for.
    pub(super) fn set_shed(&mut self, shed: Shed) {
        self.shed = shed;
    }

    /// Handles the VAD result of a window. `None` if the window cannot begin or continue a detected turn.
    pub(super) fn on_window(
        &mut self,
        vad: &VadPolicy,
        rule: EndOfTurnRule,
        window: Window,
        agent_is_heard: bool,
    ) -> Option<Activity> {
        self.received(window.end);
        let is_past = window.end <= self.audio_from;
        if rule == EndOfTurnRule::Client || self.is_committed() || is_past {
            return None;
        }
        let start = match agent_is_heard {
            true => vad.interrupt_windows,
            false => vad.start_windows,
        };
        Some(match self.detector.push(window, vad, start) {
            Activity::Started(at) => Activity::Started(at.max(self.audio_from)),
            heard => heard,
        })
    }

    /// Handles the VAD result of a window that the client is to commit. `partials`: whether the words so far are wanted.
    pub(super) fn dictate(
        &mut self,
        common: &mut Common,
        vad: &VadPolicy,
        window: Window,
        partials: bool,
    ) {
        if window.end <= self.audio_from {
            return;
        }
        let partials = partials && self.shed < Shed::Partials;
        self.dictation
            .on_window(common, vad, window, self.audio_from, partials);
    }

    /// Counts a window of the utterance, and sets the deadline for more audio.
    pub(super) fn watch_audio(&mut self, common: &mut Common, probability: f32) {
        if let Some(utterance) = &mut self.utterance {
            utterance.clarity().count(probability);
            let stalled = common.now + common.policy.timeouts.audio_timeout;
            common.timers.set(Timer::AudioStalled, stalled);
        }
    }

    /// The audio so far belongs to no later turn.
    pub(super) fn forget_audio(&mut self) {
        self.audio_from = self.audio_end;
    }

    /// The audio before `from` belongs to no later turn.
    pub(super) fn forget_audio_before(&mut self, from: Samples) {
        self.audio_from = self.audio_from.max(from);
    }

    /// The speech from here on belongs to the turn that the client commits next.
    pub(super) fn dictate_from(&mut self, common: &mut Common, from: Samples) {
        self.audio_from = from;
        self.dictation = Dictation::since(common, from, self.audio_end);
    }

    /// The client commits no turns any more.
    pub(super) fn end_dictation(&mut self) {
        self.dictation = Dictation::default();
    }

    /// Discards the audio that belongs to no turn.
    pub(super) fn clear_audio(&mut self, common: &mut Common) {
        self.forget_audio();
        self.end_dictation();
        common.notify(Event::AudioCleared);
    }

    /// The audio before this position is no longer needed.
    pub(super) fn audio_needed_from(&self, vad: &VadPolicy, rule: EndOfTurnRule) -> Samples {
        if let Some(utterance) = &self.utterance {
            return utterance.from();
        }
        // The pre-roll and the windows that begin an utterance.
        let windows = vad.start_windows.max(vad.interrupt_windows);
        let kept_ms = vad.pre_roll_ms + u64::from(windows) * 32 + MARGIN_MS;
        let recent = self.audio_from.max(self.audio_end.minus_ms(kept_ms));
        match rule {
            EndOfTurnRule::Client => self.dictation.audio_needed_from(self.audio_from, recent),
            _ => recent,
        }
    }
}

/// The utterance.
impl Turn {
    /// Whether an utterance is open.
    pub(super) fn is_open(&self) -> bool {
        self.utterance.is_some()
    }

    /// Whether the client has committed the utterance.
    pub(super) fn is_committed(&self) -> bool {
        self.utterance.as_ref().is_some_and(Utterance::is_committed)
    }

    pub(super) fn utterance(&self) -> Option<&Utterance> {
        self.utterance.as_ref()
    }

    pub(super) fn utterance_mut(&mut self) -> Option<&mut Utterance> {
        self.utterance.as_mut()
    }

    /// Begins an utterance.
    pub(super) fn begin_speech(&mut self, common: &mut Common, at: Samples) {
        self.overlap = None;
        let every = common.policy.endpoint.partial_every_ms;
        self.utterance = Some(Utterance::spoken(at, self.audio_end, common.now, every));
        common.notify(Event::SpeechStarted { at });
    }

    /// Begins an utterance that the client transcribes.
    pub(super) fn begin_words(&mut self, common: &mut Common) {
        self.overlap = None;
        let at = self.audio_end;
        self.utterance = Some(Utterance::in_words(at, common.now));
        common.notify(Event::SpeechStarted { at });
    }

    /// Handles a window of speech in the utterance. `true` if it ended a pause.
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

    /// Handles a window in which the utterance may have ended, before the detector can tell.
    pub(super) fn fades(&mut self, common: &mut Common, end: Samples) {
        if let Some(utterance) = &mut self.utterance {
            common.mark_activity();
            utterance.fades(common, end, self.shed >= Shed::Partials);
        }
    }

    /// Handles a window of silence in the utterance.
    pub(super) fn pauses(&mut self, end: Samples) {
        if let Some(utterance) = &mut self.utterance {
            utterance.pauses(end);
        }
    }

    /// In a pause, takes or requests its transcript. Returns all words of the utterance if they are known without another
    /// one. `asks`: whether they are a whole request for a tool.
    pub(super) fn transcribe_pause(
        &mut self,
        common: &mut Common,
        rule: EndOfTurnRule,
        asks: Request,
    ) -> Option<String> {
        let busy = self.shed >= Shed::Partials;
        // Half a "mm-hm" is heard as words.
        let may_settle = rule != EndOfTurnRule::Client && !self.is_unheeded();
        let utterance = self.utterance.as_mut()?;
        utterance.transcribe_pause(common, rule, (may_settle, busy), asks)
    }

    /// Requests transcripts of the utterance so far. `resumed` after a pause.
    pub(super) fn transcribe_so_far(&mut self, common: &mut Common, end: Samples, resumed: bool) {
        if let Some(utterance) = &mut self.utterance {
            utterance.cut_long_segment(common, end, resumed);
            if self.shed < Shed::Partials {
                utterance.ask_partial(common, end);
            }
        }
    }

    /// Handles a finished transcription.
    pub(super) fn on_transcript(
        &mut self,
        request: RequestId,
        heard: Result<Recognised, ()>,
        common: &mut Common,
    ) -> Transcribed {
        let committed = self.committed.iter_mut().map(|next| &mut next.utterance);
        for utterance in self.utterance.iter_mut().chain(committed) {
            match utterance.on_transcript(request, heard.clone(), common) {
                Transcribed::Dead => {}
                of_it => return of_it,
            }
        }
        self.dictation.on_transcript(request, heard, common)
    }

    /// Requests again what could not be transcribed a while ago.
    pub(super) fn transcribe_again(&mut self, common: &mut Common) {
        let committed = self.committed.iter_mut().map(|next| &mut next.utterance);
        for utterance in self.utterance.iter_mut().chain(committed) {
            utterance.ask_again(common);
        }
        self.dictation.ask_again(common);
    }

    /// Whether the turn is over. `asks`: whether the words are a whole request for a tool; `is_nothing`: whether they
    /// leave the agent the turn.
    pub(super) fn judge(
        &self,
        common: &mut Common,
        detection: &TurnDetection,
        asks: Request,
        is_nothing: bool,
    ) -> EndOfTurn {
        match &self.utterance {
            Some(utterance) => utterance.judge(common, detection, asks, is_nothing),
            None => EndOfTurn::NotYet,
        }
    }

    /// Ends the turn and returns its utterance.
    pub(super) fn end(&mut self, common: &mut Common) -> Option<Utterance> {
        let utterance = self.utterance.take()?;
        common.timers.clear(Timer::EndOfTurn);
        common.timers.clear(Timer::TranscriptOverdue);
        common.timers.clear(Timer::AudioStalled);
        self.detector.reset();
        if !utterance.is_committed() {
            self.forget_audio();
        }
        if !self.overlap.as_ref().is_some_and(Overlap::is_open) {
            let at = utterance.last_speech();
            common.notify(Event::SpeechStopped { at });
        }
        Some(utterance)
    }
}

/// Utterances without words.
impl Turn {
    /// Whether to ask the user to repeat an utterance that was not understood. Only once in a row, since the
    /// speech may be meant for others.
    pub(super) fn may_ask_again(
        &self,
        common: &Common,
        utterance: &mut Utterance,
        misheard: Misheard,
    ) -> bool {
        let least = common.policy.endpoint.ask_again_ms;
        least.is_some_and(|least| utterance.clarity().had_words(least, misheard.expected))
            && !self.asked_again
            && misheard.may_ask()
    }

    /// Notes that the user is asked to repeat.
    pub(super) fn ask_again(&mut self) {
        self.asked_again = true;
    }

    /// Notes that the user was understood.
    pub(super) fn was_understood(&mut self) {
        self.asked_again = false;
    }
}

/// Turns that the client ends by hand.
impl Turn {
    /// Commits the user's turn. `None` if the client is told that there is nothing to commit.
    pub(super) fn commit(&mut self, common: &mut Common, rule: EndOfTurnRule) -> Option<Commit> {
        let is_open = self.is_open() && !self.is_committed();
        if let Some(utterance) = self.utterance.as_mut().filter(|_| is_open) {
            // Its words are told once they are all known.
            utterance.partials().cut();
            self.commit_utterance(common);
            common.notify(Event::AudioCommitted);
            return Some(Commit::Utterance);
        }
        if let Some(message) = self.lacks_audio(rule) {
            common.notify(Event::NothingToCommit { message });
            return None;
        }
        if self.committed.len() == MOST_COMMITTED {
            let message = format!(
                "{MOST_COMMITTED} turns wait to be transcribed; wait for their transcripts"
            );
            common.refuse("CommitAudio", message);
            return None;
        }
        let (from, to) = (self.audio_from, self.audio_end);
        let utterance = self.dictation.take(common, from, to);
        self.committed.push_back(Committed { utterance, to });
        self.forget_audio();
        common.notify(Event::AudioCommitted);
        Some(Commit::Audio)
    }

    /// The reason why the audio since the last turn cannot be committed without an utterance.
    fn lacks_audio(&self, rule: EndOfTurnRule) -> Option<String> {
        let length = Samples(self.audio_end.since(self.audio_from)).as_ms();
        if length < MIN_COMMIT_MS {
            return Some(format!(
                "the buffer holds {length} ms of audio; at least {MIN_COMMIT_MS} ms are needed"
            ));
        }
        let message = "nobody has spoken since the last turn; with turn detection on, turns are committed by themselves";
        (rule != EndOfTurnRule::Client).then(|| message.to_owned())
    }

    /// Commits the utterance up to the end of the audio.
    pub(super) fn commit_utterance(&mut self, common: &mut Common) {
        self.commit_until(common, self.audio_end);
    }

    fn commit_until(&mut self, common: &mut Common, end: Samples) {
        self.audio_from = self.audio_from.max(end);
        if let Some(utterance) = &mut self.utterance {
            utterance.commit(common, end);
        }
    }

    /// Begins the next committed turn if none is open. `true` if one begins.
    pub(super) fn begin_committed_turn(&mut self, common: &mut Common) -> bool {
        if self.is_open() {
            return false;
        }
        let Some(next) = self.committed.pop_front() else {
            return false;
        };
        self.overlap = None;
        self.utterance = Some(next.utterance);
        self.commit_until(common, next.to);
        true
    }

    /// Drops the answer to the last committed turn that is not transcribed yet. `false` if there is none.
    fn give_up_committed(&mut self) -> bool {
        if let Some(last) = self.committed.back_mut() {
            last.utterance.give_up();
            return true;
        }
        let utterance = self.utterance.as_mut().filter(|u| u.is_committed());
        utterance.map(Utterance::give_up).is_some()
    }

    /// Handles the client's cancel of the answer, or of the `queued` one. `true` if the last question gets no answer: a
    /// committed turn gets none instead, and a user who is still speaking is answered together with what follows.
    pub(super) fn gives_up_question(&mut self, queued: bool) -> bool {
        let gives_up = queued && self.give_up_committed();
        !gives_up && !self.is_open()
    }

    /// Drops all committed turns but the open one. Returns their number.
    pub(super) fn forget_committed(&mut self) -> usize {
        std::mem::take(&mut self.committed).len()
    }
}
