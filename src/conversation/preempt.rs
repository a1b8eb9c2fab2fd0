//! Preemptive generation: the model is asked at the first silence that may be the end of the turn,
//! and what it says is held back until the end is certain. If the user goes on, it was never said.

use super::client_settings::ClientTools;
use super::ids::RequestId;
use super::time::Time;
use super::{Conversation, Output, ResponseTerms};
use crate::llm::{LlmEvent, Message, Prompt};

/// A generation that nobody hears yet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) request: RequestId,
    prompt: Prompt,
    pub(super) began: Time,
    events: Vec<LlmEvent>,
    /// Bytes of its words.
    streamed: usize,
    /// The tool whose call is open.
    open_tool: Option<String>,
    /// The prompt has the router's filler in it.
    led: bool,
}

impl Held {
    /// It has begun to answer, and does not know of a filler.
    pub(super) fn speaks_for_itself(&self) -> bool {
        !self.led && !self.events.is_empty()
    }
}

impl Conversation {
    /// The user may be done: asks the model for the answer to what was heard so far.
    pub(super) fn generate_early(&mut self, text: &str) {
        let policy = &self.common.policy.speculation;
        let free = self.answer.is_none()
            && self.respond_next.is_none()
            && !self.confirmation.is_open()
            && self.held.is_none();
        if !policy.enabled
            || !policy.preemptive
            || !self.client.turn_detection.respond
            || self.client.transcribe_only
            || !free
            || text.is_empty()
        {
            return;
        }
        let most = policy.generations_per_turn;
        let Some(utterance) = self.utterance.as_mut().filter(|u| u.generations < most) else {
            return;
        };
        utterance.generations += 1;
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
        let request = self.common.request_id();
        self.held = Some(Held {
            request,
            prompt: prompt.clone(),
            began: self.common.now,
            events: Vec::new(),
            streamed: 0,
            open_tool: None,
            led,
        });
        self.common
            .outputs
            .push_back(Output::Generate { request, prompt });
    }

    /// Keeps what the held generation says. A tool that it asks for may run early, like any
    /// prediction; it is not committed.
    pub(super) fn hold(&mut self, event: LlmEvent) {
        let track = self.speculation.listening().id;
        let most = self.common.policy.answer.bytes();
        let Some(held) = &mut self.held else { return };
        if held.streamed > most {
            return;
        }
        if let LlmEvent::Speech { text } = &event {
            held.streamed += text.len();
            if held.streamed > most {
                // What is held is more than will be said of it.
                let request = held.request;
                self.common
                    .outputs
                    .push_back(Output::CancelGeneration { request });
            }
        }
        held.events.push(event.clone());
        match event {
            LlmEvent::ToolOpened { name } => {
                held.open_tool = Some(name.clone());
                self.on_tool_opened(track, &name);
            }
            LlmEvent::ToolClosed { arguments } => {
                if let (Some(name), Ok(arguments)) = (held.open_tool.take(), arguments) {
                    let terms = self.answer.as_ref().map(|a| &a.terms);
                    let clients = ClientTools::of(&self.client, terms);
                    self.speculation
                        .on_held_call(&mut self.common, clients, &name, arguments);
                }
            }
            LlmEvent::Speech { .. }
            | LlmEvent::ToolArguments { .. }
            | LlmEvent::Unable
            | LlmEvent::Cut
            | LlmEvent::Used { .. }
            | LlmEvent::End => {}
        }
    }

    /// The held generation, if it is the answer to this very prompt; else it is thrown away.
    pub(super) fn take_held(
        &mut self,
        prompt: &Prompt,
    ) -> Option<(RequestId, Time, Vec<LlmEvent>)> {
        if self
            .held
            .as_ref()
            .is_some_and(|held| held.prompt != *prompt)
        {
            self.drop_held();
        }
        let held = self.held.take()?;
        Some((held.request, held.began, held.events))
    }

    /// What was held is not wanted any more.
    pub(super) fn drop_held(&mut self) {
        if let Some(held) = self.held.take() {
            let request = held.request;
            self.common
                .outputs
                .push_back(Output::CancelGeneration { request });
        }
    }
}
