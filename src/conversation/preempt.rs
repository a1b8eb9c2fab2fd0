//! Preemptive generation: the model is asked at the first pause that may be the end of the turn, and its
//! answer is held back until the end is certain. If the user goes on, the answer is discarded.

use super::common::Common;
use super::ids::RequestId;
use super::output::Output;
use crate::llm::{LlmEvent, Prompt};
use crate::time::Time;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// The held-back answer, if there is one.
#[derive(Debug, Default)]
pub(super) struct Preempt(Option<Held>);

/// A generation whose output is held back.
#[derive(Debug)]
struct Held {
    request: RequestId,
    prompt: Prompt,
    began: Time,
    events: Vec<LlmEvent>,
    /// Bytes of speech streamed.
    streamed: usize,
    /// The tool whose call is open.
    open_tool: Option<String>,
    /// The prompt contains the router's filler.
    led: bool,
}

/// A call in a held-back answer. It may run early like any prediction, but is not committed.
#[derive(Debug)]
pub(super) enum HeldCall {
    /// The call of a tool has begun.
    Opened(String),
    /// The call is complete.
    Complete(String, Map<String, Value>),
}

/// A generation that was taken over: its request, when it was requested, and its events so far.
pub(super) type Taken = (RequestId, Time, Vec<LlmEvent>);

impl Preempt {
    /// Asks the model. `led` if the prompt contains the router's filler.
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

    /// There is no held-back answer.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this generation is held back.
    pub(super) fn is(&self, request: RequestId) -> bool {
        self.0.as_ref().is_some_and(|held| held.request == request)
    }

    /// It has begun to answer from a prompt without the router's filler.
    pub(super) fn began_without_filler(&self) -> bool {
        let speaks = |held: &Held| !held.led && !held.events.is_empty();
        self.0.as_ref().is_some_and(speaks)
    }

    /// Keeps an event of the model. Returns the call that it begins or completes.
    pub(super) fn hold(&mut self, common: &mut Common, event: LlmEvent) -> Option<HeldCall> {
        let most = common.policy.answer.bytes();
        let held = self.0.as_mut().filter(|held| held.streamed <= most)?;
        if let LlmEvent::Speech { text } = &event {
            held.streamed += text.len();
            if held.streamed > most {
                // More is held than will ever be spoken.
                let request = held.request;
                common
                    .outputs
                    .push_back(Output::CancelGeneration { request });
            }
        }
        held.events.push(event.clone());
        let may_call = held.prompt.may_call();
        match event {
            LlmEvent::ToolOpened { name } => {
                held.open_tool = Some(name.clone());
                may_call.then_some(HeldCall::Opened(name))
            }
            LlmEvent::ToolClosed { arguments } => {
                let name = held.open_tool.take()?;
                let call = HeldCall::Complete(name, arguments.ok()?);
                may_call.then_some(call)
            }
            LlmEvent::Speech { .. }
            | LlmEvent::ToolArguments { .. }
            | LlmEvent::Unable
            | LlmEvent::Cut
            | LlmEvent::Used { .. }
            | LlmEvent::End => None,
        }
    }

    /// Takes the generation if it answers exactly this prompt; otherwise discards it.
    pub(super) fn take(&mut self, common: &mut Common, prompt: &Prompt) -> Option<Taken> {
        if self.0.as_ref().is_some_and(|held| held.prompt != *prompt) {
            self.drop(common);
        }
        let held = self.0.take()?;
        Some((held.request, held.began, held.events))
    }

    /// Drops the generation, which failed. It is requested again when the answer is needed.
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
