//! Fillers, and the dead air that they cover.

use super::Conversation;
use crate::conversation::answer::Words;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::filler;
use crate::conversation::ids::CallId;
use crate::conversation::speculation::Track;
use crate::conversation::timer::Timer;
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
        let silent = self
            .answer
            .as_ref()
            .filter(|a| !a.has_spoken() && a.dead_air.fillers() == 0)
            .is_some_and(|a| a.calls.open().contains(&call));
        let filler = filler::of_call(&self.common, &self.speculation, call, name, arguments);
        if let Some(text) = filler.filter(|_| silent) {
            self.say_filler(&text);
        }
    }

    /// Sets the deadline for a filler while an answer is due and nothing is being said.
    pub(super) fn watch_dead_air(&mut self) {
        let Some(answer) = &self.answer else {
            return;
        };
        let patience = self.common.policy.timeouts.dead_air;
        let end = answer.dead_air.ends(self.playout.sent_until(), patience);
        match end.filter(|_| self.playout.all_sent()) {
            Some(end) => self.common.timers.set(Timer::DeadAir, end),
            None => self.common.timers.clear(Timer::DeadAir),
        }
    }

    /// Says a filler, or waits a little longer if the answer is about to come.
    pub(super) fn fill_dead_air(&mut self) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        let (now, waiting) = (self.common.now, answer.calls.open());
        let remaining = self.speculation.remaining_wait(&waiting, now);
        if remaining.is_some_and(|wait| answer.dead_air.goes_on(now, wait)) {
            return;
        }
        let fillers = answer.dead_air.fillers();
        let text = filler::again(&self.common, &self.speculation, &waiting, fillers);
        self.say_filler(&text);
    }

    /// Says a filler. It joins the history like all speech, but does not count as an answer.
    pub(super) fn say_filler(&mut self, text: &str) {
        if let Some(answer) = &mut self.answer {
            answer.dead_air.fill();
            self.speak(text, Words::Filler);
        }
    }
}
