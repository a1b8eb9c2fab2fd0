//! Preemptive generation: the model is asked at the first silence that may be the end of the turn,
//! and what it says is held back until the end is certain. If the user goes on, it was never said.

use super::common::Common;
use super::ids::RequestId;
use super::output::Output;
use crate::llm::{LlmEvent, Prompt};
use crate::time::Time;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// An answer that is being made and not given.
#[derive(Debug, Default)]
pub(super) struct Preempt(Option<Held>);

/// A generation that nobody hears yet.
#[derive(Debug)]
struct Held {
    request: RequestId,
    prompt: Prompt,
    began: Time,
    events: Vec<LlmEvent>,
    /// Bytes of its words.
    streamed: usize,
    /// The tool whose call is open.
    open_tool: Option<String>,
    /// The prompt has the router's filler in it.
    led: bool,
}

/// A call that the model makes in an answer that is held back. It may run early, like any prediction; it
/// is not committed.
#[derive(Debug)]
pub(super) enum HeldCall {
    /// The call of a tool has begun.
    Opened(String),
    /// The call is complete.
    Complete(String, Map<String, Value>),
}

/// A generation that is taken over: its request, when it was asked for, and what it has said.
pub(super) type Taken = (RequestId, Time, Vec<LlmEvent>);

impl Preempt {
    /// Asks the model. `led` by a filler that is in the prompt.
    pub(super) fn begin(&mut self, common: &mut Common, prompt: Prompt, led: bool) {
        let request = common.request_id();
        self.0 = Some(Held {
            request,
            prompt: prompt.clone(),
            began: common.now,
            events: Vec::new(),
            streamed: 0,
            open_tool: None,
            led,
        });
        common
            .outputs
            .push_back(Output::Generate { request, prompt });
    }

    /// No answer is held back.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it is this generation that is held back.
    pub(super) fn is(&self, request: RequestId) -> bool {
        self.0.as_ref().is_some_and(|held| held.request == request)
    }

    /// It has begun to answer, and does not know of a filler.
    pub(super) fn speaks_for_itself(&self) -> bool {
        let speaks = |held: &Held| !held.led && !held.events.is_empty();
        self.0.as_ref().is_some_and(speaks)
    }

    /// Keeps what the model says. Returns the call that it makes.
    pub(super) fn hold(&mut self, common: &mut Common, event: LlmEvent) -> Option<HeldCall> {
        let most = common.policy.answer.bytes();
        let held = self.0.as_mut().filter(|held| held.streamed <= most)?;
        if let LlmEvent::Speech { text } = &event {
            held.streamed += text.len();
            if held.streamed > most {
                // What is held is more than will be said of it.
                let request = held.request;
                common
                    .outputs
                    .push_back(Output::CancelGeneration { request });
            }
        }
        held.events.push(event.clone());
        match event {
            LlmEvent::ToolOpened { name } => {
                held.open_tool = Some(name.clone());
                Some(HeldCall::Opened(name))
            }
            LlmEvent::ToolClosed { arguments } => {
                let name = held.open_tool.take()?;
                Some(HeldCall::Complete(name, arguments.ok()?))
            }
            LlmEvent::Speech { .. }
            | LlmEvent::ToolArguments { .. }
            | LlmEvent::Unable
            | LlmEvent::Cut
            | LlmEvent::Used { .. }
            | LlmEvent::End => None,
        }
    }

    /// The generation, if it is the answer to this very prompt; else it is thrown away.
    pub(super) fn take(&mut self, common: &mut Common, prompt: &Prompt) -> Option<Taken> {
        if self.0.as_ref().is_some_and(|held| held.prompt != *prompt) {
            self.drop(common);
        }
        let held = self.0.take()?;
        Some((held.request, held.began, held.events))
    }

    /// The generation has failed. Nobody waits for it yet: it is asked for again when somebody does.
    pub(super) fn fail(&mut self) {
        self.0 = None;
    }

    /// Discards the held-back answer.
    pub(super) fn drop(&mut self, common: &mut Common) {
        if let Some(held) = self.0.take() {
            let request = held.request;
            common
                .outputs
                .push_back(Output::CancelGeneration { request });
        }
    }
}
