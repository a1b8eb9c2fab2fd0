//! Preemptive generation: the model is asked at the first pause that may be the end of the turn, and its
//! answer is held back until the end is certain. If the user goes on with other words, the answer is discarded.

use super::common::Common;
use super::held::{Held, HeldCall, Taken};
use super::ids::RequestId;
use super::speculation::Before;
use crate::llm::{LlmEvent, Message, Prompt};
use crate::time::Micros;

#[cfg(test)]
mod tests;

/// The held-back answer, if there is one.
#[derive(Debug, Default)]
pub(super) struct Preempt(Option<Early>);

#[derive(Debug)]
struct Early {
    held: Held,
    /// The prompt contains the router's filler.
    led: bool,
}

impl Preempt {
    /// Asks the model. `led` if the prompt contains the router's filler.
    pub(super) fn begin(&mut self, common: &mut Common, prompt: Prompt, led: bool) {
        let held = Held::begin(common, prompt, Before::EndOfTurn, None);
        self.0 = Some(Early { held, led });
    }

    /// The user's words that it answers.
    pub(super) fn answers(&self) -> Option<&str> {
        let mut messages = self.held()?.prompt().messages.iter().rev();
        messages.find_map(|message| match message {
            Message::User { text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Whether there is no held-back answer.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this generation is held back.
    pub(super) fn is(&self, request: RequestId) -> bool {
        self.held().is_some_and(|held| held.request == request)
    }

    /// The held-back generation.
    pub(super) fn held(&self) -> Option<&Held> {
        self.0.as_ref().map(|early| &early.held)
    }

    /// Whether it has begun to answer from a prompt without the router's filler.
    pub(super) fn began_without_filler(&self) -> bool {
        let speaks = |early: &Early| !early.led && early.held.has_begun();
        self.0.as_ref().is_some_and(speaks)
    }

    /// Keeps an event of the model. Returns the call that it begins or completes.
    pub(super) fn hold(&mut self, common: &mut Common, event: LlmEvent) -> Option<HeldCall> {
        self.0.as_mut()?.held.hold(common, event)
    }

    /// Takes the generation if it answers exactly this prompt; otherwise discards it.
    pub(super) fn take(&mut self, common: &mut Common, prompt: &Prompt) -> Option<Taken> {
        if self.held().is_some_and(|held| held.prompt() != prompt) {
            self.drop(common);
        }
        let early = self.0.take()?;
        Some(early.held.take(common.now, common.now, None))
    }

    /// Drops the generation, which failed. It is requested again when the answer is needed.
    pub(super) fn fail(&mut self, common: &mut Common) {
        if let Some(early) = self.0.take() {
            early.held.fail(common);
        }
    }

    /// Discards the held-back answer.
    pub(super) fn drop(&mut self, common: &mut Common) {
        if let Some(early) = self.0.take() {
            early.held.discard(common, Micros(0));
        }
    }
}
