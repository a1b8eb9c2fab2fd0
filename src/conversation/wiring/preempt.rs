//! Answers that are generated before the end of the turn is certain.

use super::Conversation;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::held::HeldCall;
use crate::conversation::input::ResponseTerms;
use crate::conversation::shed::Shed;
use crate::llm::{LlmEvent, Message};

impl Conversation {
    /// Asks the model for an answer to the words so far, because the user may be done.
    pub(super) fn generate_early(&mut self, text: &str) {
        let policy = &self.common.policy.speculation;
        let free = self.answer.is_none()
            && !self.agenda.has_next_answer()
            && !self.agenda.is_opening()
            && !self.confirmation.is_open()
            && self.held.preempt.is_idle();
        if !policy.enabled
            || !policy.preemptive
            || !self.turn.has_room_for(Shed::PreemptiveAnswers)
            || self.common.tokens_spent
            || !self.client.answers_turns()
            || !free
            || text.is_empty()
        {
            return;
        }
        let most = policy.generations_per_turn;
        let utterance = self.turn.utterance_mut();
        if !utterance.is_some_and(|u| u.may_be_answered_early(text, most)) {
            return;
        }
        // Words up to a gap were routed as if they could go on.
        self.route(text, true);
        let mut messages = self.history.messages();
        messages.push(Message::User {
            text: text.to_owned(),
        });
        let filler = self.router_filler(self.speculation.listening());
        let led = filler.is_some();
        if let Some(text) = filler {
            messages.push(Message::Agent {
                text,
                interrupted: false,
            });
        }
        let prompt = self.prompt(messages, &ResponseTerms::default(), 0, 0);
        let draft = self.wants_draft(&prompt).then(|| prompt.clone());
        self.held.preempt.begin(&mut self.common, prompt, led);
        if let (Some(prompt), Some(held)) = (draft, self.held.preempt.held()) {
            self.ask_draft(held.request, prompt);
        }
    }

    /// Keeps an event of the held-back answer.
    pub(super) fn hold(&mut self, event: LlmEvent) {
        if let LlmEvent::TakesResults { response } = &event
            && let Some(held) = self.held.preempt.held()
        {
            let request = held.request;
            self.held.tool_cache.begin(request, held.prompt().clone());
            self.held.tool_cache.opens(request, response.clone());
        }
        match self.held.preempt.hold(&mut self.common, event) {
            Some(HeldCall::Opened(name)) => {
                let track = self.speculation.listening().id;
                self.on_tool_opened(track, &name);
            }
            Some(HeldCall::Read(arguments, whole)) => {
                let track = self.speculation.listening().id;
                self.on_arguments_read(track, arguments, whole);
            }
            Some(HeldCall::Complete(name, arguments)) => {
                for (name, arguments) in self.begun_by(name, arguments) {
                    let terms = self.answer.as_ref().map(|a| &a.terms);
                    let clients = ClientTools::of(&self.client, terms);
                    self.speculation
                        .on_held_call(&mut self.common, clients, &name, arguments);
                }
            }
            None => {}
        }
    }

    /// Discards the held-back answer.
    pub(super) fn drop_held(&mut self) {
        if !self.held.preempt.is_idle() {
            self.held.preempt.drop(&mut self.common);
            self.speculation.forget_open_call();
        }
    }
}
