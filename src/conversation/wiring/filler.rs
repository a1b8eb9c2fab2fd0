//! Fillers, and the silence that they break.

use super::Conversation;
use crate::conversation::answer::Words;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::filler;
use crate::conversation::ids::CallId;
use crate::conversation::speculation::Track;
use crate::conversation::timer::Timer;
use serde_json::{Map, Value};

impl Conversation {
    /// The filler that a prediction in this track is enough for.
    pub(super) fn router_filler(&self, track: &Track) -> Option<String> {
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        filler::of_prediction(&self.common, clients, &self.speculation, track)
    }

    /// The model has called a tool without a word before it: says something if the wait is long.
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

    /// While an answer is owed and nothing is being said, silence must not last.
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

    /// The silence has lasted.
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

    /// Says a filler. It is in the history like any speech, but it is no answer.
    pub(super) fn say_filler(&mut self, text: &str) {
        if let Some(answer) = &mut self.answer {
            answer.dead_air.fill();
            self.speak(text, Words::Filler);
        }
    }
}
