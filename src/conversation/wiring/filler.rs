//! Fillers, and the dead air that they cover.

use super::Conversation;
use crate::conversation::answer::Answer;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::filler;
use crate::conversation::ids::{CallId, ClauseId};
use crate::conversation::playout::Words;
use crate::conversation::speculation::{Track, usual};
use crate::conversation::timer::Timer;
use crate::conversation::wait::Wait;
use crate::time::Micros;
use crate::tts::Speaker;
use serde_json::{Map, Value};

impl Conversation {
    /// The filler for the likeliest prediction of this track, if the router may lead.
    pub(super) fn router_filler(&self, track: &Track) -> Option<String> {
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        filler::of_prediction(&self.common, clients, &self.speculation, track)
    }

    /// Says a filler if the model called a tool without a word and the wait is long.
    pub(super) fn fill_silent_call(
        &mut self,
        call: CallId,
        name: &str,
        arguments: &Map<String, Value>,
    ) {
        let wait = self.answer_wait();
        let is_silent = |answer: &&Answer| answer.waits_in_silence(call);
        let Some(answer) = self.answer.as_ref().filter(is_silent) else {
            return;
        };
        let wait = (wait, &answer.dead_air.announced);
        if let Some(text) = filler::of_call(&self.common, wait, name, arguments) {
            self.say_filler(&text);
        }
    }

    /// The voice of a clause. An announcement is drawn out if it would end before the answer begins.
    pub(super) fn speaker_of(&self, clause: ClauseId) -> Speaker {
        let mut speaker = self.common.speaker_of(clause);
        let length = self.playout.announcement(clause, self.common.language());
        if let Some((length, wait)) = length.zip(self.early_answer()) {
            let usual = speaker.speed();
            let speed = filler::drawn_out(usual, length, wait);
            if speed != usual {
                speaker.speed = Some(speed);
            }
        }
        speaker
    }

    /// How long it probably takes until the answer to calls that have begun early is generated.
    fn early_answer(&self) -> Option<Micros> {
        let wait = self.speculation.early_wait(&self.common)?;
        let (first, now) = (self.common.experience.first_event(), self.common.now);
        let model = self.held.assumed.first_event(first, now).unwrap_or(first);
        Some(wait.expected + model)
    }

    /// How long it still takes until the answer is heard.
    fn answer_wait(&self) -> Wait {
        let now = self.common.now;
        let first = self.common.experience.first_event();
        let Some(answer) = &self.answer else {
            return Wait::default();
        };
        let open = answer.calls.open();
        let plans = &self.running.plans;
        let to_come = plans.to_come(&open).map(|tool| usual(&self.common, tool).0);
        let to_come = Micros(to_come.sum());
        let next = self.held.assumed.first_event(first, now);
        let model = answer.first_event(first, next, now);
        self.speculation
            .remaining_wait(&self.common, &plans.run_for(&open))
            .and_then(to_come)
            .then(model)
    }

    /// Sets the deadline for a filler while an answer is due and nothing is being said.
    pub(super) fn watch_dead_air(&mut self) {
        let Some(answer) = &self.answer else {
            return;
        };
        let patience = self.common.policy.timeouts.dead_air;
        let calls = answer.awaits_result();
        let end = answer
            .dead_air
            .ends(self.playout.sent_until(), patience, calls);
        match end.filter(|_| self.playout.all_sent()) {
            Some(end) => self.common.timers.set(Timer::DeadAir, end),
            None => self.common.timers.clear(Timer::DeadAir),
        }
    }

    /// Says a filler, unless it would delay the answer.
    pub(super) fn fill_dead_air(&mut self) {
        let wait = self.answer_wait();
        let Some(answer) = &mut self.answer else {
            return;
        };
        let waiting = self.running.plans.run_for(&answer.calls.open());
        let so_far = &answer.dead_air;
        let text = filler::again(&self.common, &self.speculation, &waiting, wait, so_far);
        // A filler joins the history; an answer that is already being made would not fit after it.
        match text.filter(|_| !wait.is_near() && self.held.assumed.is_idle()) {
            Some(text) => {
                answer.dead_air.fill_again();
                self.say_filler(&text);
            }
            None => answer.dead_air.put_off(self.common.now, wait),
        }
    }

    /// Says a filler. It joins the history like all speech, but does not count as an answer.
    pub(super) fn say_filler(&mut self, text: &str) {
        if let Some(answer) = &mut self.answer {
            answer.dead_air.fill();
            self.speak(text, Words::Filler);
        }
    }

    /// Drops the fillers whose playout has not begun: the answer is here.
    pub(super) fn drop_unsaid_fillers(&mut self) {
        let dropped = self.playout.drop_unsaid_fillers(self.common.language());
        let Some(answer) = self.answer.as_mut().filter(|_| !dropped.is_empty()) else {
            return;
        };
        answer.dead_air.leave_unsaid(dropped.len());
        for clause in &dropped {
            answer.dead_air.spare(clause.length());
            answer.dead_air.announced.forget(&clause.text);
            answer.gains.drop_clause(clause.id);
            match clause.words {
                Words::Answer => self.history.leave_unsaid(clause.item, clause.index),
                Words::Filler | Words::Own => self.history.drop_clause(clause.item, clause.index),
            }
        }
        self.cancel_clauses(&dropped);
    }
}
