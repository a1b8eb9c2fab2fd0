//! The user's turn, from the first sound to the final transcript.

use super::Conversation;
use crate::asr::{Recognised, TurnReport};
use crate::conversation::clarity::Misheard;
use crate::conversation::endpointer::{Activity, Window};
use crate::conversation::ids::RequestId;
use crate::conversation::latency::TurnLatency;
use crate::conversation::output::Event;
use crate::conversation::speculation::Discard;
use crate::conversation::turn::Commit;
use crate::conversation::turn_detection::EndOfTurnRule;
use crate::conversation::utterance::{EndOfTurn, Transcribed, Utterance};
use crate::llm::Message;
use crate::prediction::Moment;
use crate::time::{Samples, Time};

impl Conversation {
    pub(super) fn on_vad(&mut self, window: Window) {
        if self.ending.machine.is_heard() {
            return self.on_machine_window(window);
        }
        let end = window.end;
        let detection = &self.client.turn_detection;
        let vad = self.common.policy.vad.of(detection);
        let agent_is_heard = self.playout.audible_until() > self.common.now;
        let heard = self
            .turn
            .on_window(&vad, detection.rule, window, agent_is_heard);
        match heard {
            None if detection.rule == EndOfTurnRule::Client => {
                let partials = self.client.transcribe_only;
                return self.turn.dictate(&mut self.common, &vad, window, partials);
            }
            None => return,
            Some(Activity::Started(at)) => {
                self.mark_user_active();
                self.begin_speech(at);
            }
            Some(Activity::Speech) => {
                let resumed = self.turn.goes_on(&mut self.common, end);
                let utterance = self.turn.utterance();
                if !utterance.is_some_and(Utterance::may_stay_answered) {
                    self.drop_held();
                }
                self.turn.transcribe_so_far(&mut self.common, end, resumed);
            }
            Some(Activity::Fading) => {
                self.turn.fades(&mut self.common, end);
                self.try_end_turn();
            }
            Some(Activity::Silence) => {
                self.turn.pauses(end);
                self.transcribe_pause();
            }
        }
        self.turn.watch_audio(&mut self.common, window.probability);
        self.judge_overlap();
    }

    /// Ends the turn if the client stops sending audio or words in mid-utterance.
    pub(super) fn on_audio_stalled(&mut self) {
        let Some(utterance) = self.turn.utterance() else {
            if self.ending.machine.is_read() {
                self.leave_message();
            }
            return;
        };
        if utterance.is_in_words() {
            self.on_words_overdue();
        } else if !utterance.is_committed() {
            self.turn.commit_utterance(&mut self.common);
            self.try_end_turn();
        }
    }

    /// Requests again what could not be transcribed a while ago.
    pub(super) fn transcribe_again(&mut self) {
        self.turn.transcribe_again(&mut self.common);
        self.try_end_turn();
    }

    /// Handles a finished transcription; `Err` if the recogniser failed.
    pub(super) fn on_transcript(&mut self, request: RequestId, heard: Result<Recognised, ()>) {
        match self.turn.on_transcript(request, heard, &mut self.common) {
            Transcribed::Dead => return,
            Transcribed::Partial(Some(text)) => self.on_partial(&text),
            Transcribed::Partial(None) | Transcribed::Segment => {}
            Transcribed::Pause(text) => return self.on_all_words(&text.unwrap_or_default()),
            Transcribed::Uncommitted(None) => return,
            Transcribed::Uncommitted(Some(text)) => {
                return self.common.notify(Event::PartialTranscript { text });
            }
        }
        self.transcribe_pause();
    }

    /// Sees to the transcript of a pause, with which the turn may end.
    fn transcribe_pause(&mut self) {
        let rule = self.client.turn_detection.rule;
        let asks = self.speculation.listening().request;
        match self.turn.transcribe_pause(&mut self.common, rule, asks) {
            Some(text) => self.on_all_words(&text),
            None => self.try_end_turn(),
        }
    }

    /// Handles all words up to a pause, with which the turn may end.
    fn on_all_words(&mut self, text: &str) {
        if self.turn.is_unheeded() {
            self.turn.overlap_pauses(text);
            self.judge_overlap();
        }
        if !self.turn.is_unheeded() {
            let (utterance, language) = (self.turn.utterance(), self.common.language());
            if utterance.is_some_and(|u| !u.is_answered_early(text, language)) {
                // The words up to a gap were not all, or were misheard.
                self.drop_held();
            }
            self.route(text, true);
        }
        self.try_end_turn();
    }

    /// Discards the held-back answer if the user has gone on, with other words.
    fn drop_outgrown(&mut self, text: &str) {
        let (utterance, language) = (self.turn.utterance(), self.common.language());
        if utterance.is_some_and(|u| u.outgrows_answer(text, language)) {
            self.drop_held();
        }
    }

    /// Handles a partial transcript of the audio since the last segment.
    pub(super) fn on_partial(&mut self, tail: &str) {
        let utterance = self.turn.utterance_mut();
        let text = utterance.and_then(|utterance| utterance.on_partial(tail));
        if self.turn.is_unheeded() {
            self.turn.overlaps_with(tail, self.common.language());
            return self.judge_overlap();
        }
        // All words so far, also if they have not changed.
        let utterance = self.turn.utterance();
        let words = utterance.map_or(tail, |utterance| utterance.words());
        let words = words.to_owned();
        self.drop_outgrown(&words);
        if self.meets_machine(&words, false) {
            return;
        }
        if let Some(text) = text {
            self.route(&text, false);
            self.common.notify(Event::PartialTranscript { text });
        }
    }

    /// Asks the prediction sources which calls the words so far may need.
    pub(super) fn route(&mut self, text: &str, paused: bool) {
        self.speculation
            .route(&mut self.common, &self.client, text, paused);
    }

    /// Asks the prediction sources which calls may be needed whatever the user is about to say.
    pub(super) fn route_before_words(&mut self, moment: Moment) {
        self.speculation
            .route_before_words(&mut self.common, &self.client, moment);
    }

    pub(super) fn on_completeness(&mut self, request: RequestId, probability: f32) {
        let now = self.common.now;
        let utterance = self.turn.utterance_mut();
        if utterance.is_some_and(|u| u.on_completeness(request, probability, now)) {
            self.try_end_turn();
        }
    }

    /// Handles the verdict of a recogniser that judges turns.
    pub(super) fn on_turn_report(&mut self, report: TurnReport) {
        let Some(utterance) = self.turn.utterance_mut() else {
            return;
        };
        if utterance.on_turn_report(&mut self.common, report) {
            self.drop_held();
        }
        self.try_end_turn();
    }

    /// Ends the turn if the silence is long enough and the transcript has come.
    pub(super) fn try_end_turn(&mut self) {
        let detection = &self.client.turn_detection;
        let asks = self.speculation.listening().request;
        let is_nothing = self.interruption.is_judging()
            && self
                .turn
                .utterance()
                .and_then(|utterance| utterance.transcript())
                .is_some_and(|words| self.was_nothing(&words));
        match self
            .turn
            .judge(&mut self.common, detection, asks, is_nothing)
        {
            EndOfTurn::NotYet => {}
            EndOfTurn::Perhaps(text) if self.turn.is_unheeded() || self.was_nothing(&text) => {}
            EndOfTurn::Perhaps(text) => {
                self.drop_outgrown(&text);
                self.generate_early(&text);
            }
            EndOfTurn::Over(text) => self.end_turn(&text),
            EndOfTurn::Lost => self.on_transcript_overdue(),
        }
    }

    /// Ends the user's turn with these words; without words it was a false alarm.
    pub(super) fn end_turn(&mut self, text: &str) {
        match text.is_empty() {
            true => self.ending.goes_ahead(),
            false => self.ending.stays(),
        }
        if self.meets_machine(text, true) || self.end_overlap(text) {
            return;
        }
        let Some(mut utterance) = self.turn.end(&mut self.common) else {
            return;
        };
        if text.is_empty() || self.was_nothing(text) {
            self.common.notify(Event::UtteranceDropped);
            self.drop_held();
            self.speculation
                .drop_heard(&mut self.common, Discard::NoTurn);
            let misheard = self.misheard();
            if self
                .turn
                .may_ask_again(&self.common, &mut utterance, misheard)
            {
                self.turn.ask_again();
                self.ask_again();
            }
            return self.resume_interrupted();
        }
        if self.ending.is_near() && self.common.language().agrees(text) {
            self.resume_interrupted();
        } else {
            self.forget_interrupted();
        }
        self.common.mark_activity();
        let latency = utterance.latency(self.common.now);
        self.take_user_turn(text, true, utterance.began(), latency);
        if utterance.is_given_up() && !self.client.turn_detection.respond {
            self.history.give_up_question(self.agenda.untranscribed());
        }
    }

    /// Adds the user's words or keys, which began at `began`, to the history and answers them.
    pub(super) fn take_user_turn(
        &mut self,
        text: &str,
        spoken: bool,
        began: Time,
        latency: TurnLatency,
    ) {
        self.turn.was_understood();
        // "I'll put you through." "Okay."
        let ends = self.ending.is_near() && self.common.language().agrees(text);
        if !ends {
            self.call_off_end();
        }
        let item = self.common.item_id();
        // What the model is answering already, without a "please" behind it.
        let language = self.common.language();
        let answered = self.held.preempt.answers();
        let asked = answered.filter(|answered| language.adds_nothing(answered, text));
        self.history.push(
            item,
            Message::User {
                text: asked.unwrap_or(text).to_owned(),
            },
        );
        self.common.notify(Event::UserItem {
            item,
            text: text.to_owned(),
            spoken,
        });
        if ends {
            return self.drop_held();
        }
        let answered = self
            .confirmation
            .answer(&mut self.common, &mut self.history, text, began);
        if let Some(confirmed) = answered {
            self.run_confirmed(confirmed, latency);
            return self.drop_held();
        }
        self.route(text, true);
        if self.client.answers_turns() {
            self.release_opening();
            let (history, notice) = (&self.history, &self.common.policy.opening.notice);
            let has_said = |notice: &str| history.has_said(notice);
            if self.agenda.is_opening() || self.agenda.give_notice(notice, has_said) {
                let next = self.agenda.take_next_answer().unwrap_or_default();
                self.respond_after_this(next);
            } else {
                self.start_response(latency);
            }
        }
        self.drop_held();
    }

    /// Asks the user to repeat, because the recogniser has failed or is too slow for some of the words. Where parts are
    /// enough, the others are kept.
    pub(super) fn on_transcript_overdue(&mut self) {
        if !self.turn.is_open() || self.lose_overlap() {
            return;
        }
        let utterance = self.turn.utterance().filter(|_| self.client.takes_parts());
        let words = utterance.map(Utterance::known_words).unwrap_or_default();
        if !words.is_empty() {
            return self.end_turn(&words);
        }
        // Reported while the utterance is open: some clients treat an error outside of one as fatal.
        self.common.notify(Event::words_lost());
        self.drop_utterance();
        self.ask_again();
    }

    /// Drops the turns that the client has committed and whose words have not come.
    pub(super) fn lose_committed(&mut self) {
        let waiting = self.turn.forget_committed();
        if self.turn.is_committed() {
            self.common.notify(Event::words_lost());
            self.drop_utterance();
        }
        for _ in 0..waiting {
            self.common.notify(Event::words_lost());
            self.common.notify(Event::UtteranceDropped);
        }
    }

    /// The state in which an utterance was not understood.
    fn misheard(&self) -> Misheard {
        Misheard {
            expected: self.confirmation.is_open(),
            answers: self.client.answers_turns(),
            is_followed: self.agenda.has_next_answer() || self.ending.hang_up().is_some(),
            interrupts: self.interruption.is_judging(),
        }
    }

    /// Asks the user to repeat.
    fn ask_again(&mut self) {
        // Somebody is there.
        self.ending.stay_for_user();
        self.ending.stays();
        let phrase = self.common.policy.phrases().asr_failed.clone();
        self.agenda.announce_next(phrase);
    }

    /// Handles a commit of the user's audio by the client.
    pub(super) fn commit_audio(&mut self) {
        let rule = self.client.turn_detection.rule;
        if self.turn.is_unheeded() {
            self.interrupt();
            self.turn.forget_overlap();
        }
        match self.turn.commit(&mut self.common, rule) {
            Some(Commit::Utterance) => self.try_end_turn(),
            Some(Commit::Audio) if self.client.turn_detection.interrupt => self.barge_in(),
            Some(Commit::Audio) | None => {}
        }
    }

    /// Begins the next turn that the client has committed by hand. Those whose words are all known end at once.
    pub(super) fn begin_committed_turn(&mut self) {
        while self.turn.begin_committed_turn(&mut self.common) {
            self.try_end_turn();
        }
    }

    /// Drops the utterance without a turn.
    pub(super) fn drop_utterance(&mut self) {
        if self.ignore_overlap() || self.turn.end(&mut self.common).is_none() {
            return;
        }
        self.common.notify(Event::UtteranceDropped);
        self.drop_held();
        self.speculation
            .drop_heard(&mut self.common, Discard::NoTurn);
        self.forget_interrupted();
    }

    /// Discards the user's audio since the last turn. Committed audio stays.
    pub(super) fn clear_audio(&mut self) {
        if !self.turn.is_committed() {
            self.drop_utterance();
        }
        self.turn.clear_audio(&mut self.common);
    }

    /// The audio before this position is no longer needed.
    pub fn audio_needed_from(&self) -> Samples {
        let detection = &self.client.turn_detection;
        let vad = self.common.policy.vad.of(detection);
        self.turn.audio_needed_from(&vad, detection.rule)
    }
}
