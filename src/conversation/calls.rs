//! The tool calls of an answer, in rounds: the next generation begins when all calls of the previous one have
//! their results.

use super::ids::CallId;
use crate::llm::Message;
use serde_json::Value;

#[cfg(test)]
mod tests;

/// The calls that the model made in one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The calls whose results the next generation needs, in the order of their commits.
    waiting: Vec<Waiting>,
    /// Whether all calls of a round have ended and the model has not seen the results.
    untold: bool,
    /// Whether the client runs one of the calls, and so requests the next answer itself.
    by_client: bool,
    /// Rounds whose results the model has seen.
    rounds: u32,
    /// Whether the model was asked again because its answer broke off within a call.
    again: Again,
}

/// Whether the model is asked again because its answer broke off within a call, which happens once.
#[derive(Debug, Default, PartialEq)]
enum Again {
    #[default]
    Not,
    /// With the next round. `spoke`: the user has heard the words before the call.
    Next {
        spoke: bool,
    },
    Asked,
}

/// A committed call.
#[derive(Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) call: CallId,
    /// The result for the history; `None` while the call runs.
    pub(super) result: Option<Value>,
    /// Whether the model is not asked again because of this result.
    quiet: bool,
}

impl Calls {
    /// The calls of an answer that is resumed after `rounds`.
    pub(super) fn after(rounds: u32) -> Self {
        Self {
            rounds,
            ..Self::default()
        }
    }

    /// Adds a call of the model, with its result if it has already failed.
    pub(super) fn wait_for(&mut self, call: CallId, result: Option<Value>) {
        let quiet = false;
        self.waiting.push(Waiting {
            call,
            result,
            quiet,
        });
    }

    /// Makes the next round ask the model again because its answer broke off within a call. `spoke` says whether the
    /// user heard words before that call. Returns `false` if the model has already been asked again.
    pub(super) fn ask_again(&mut self, spoke: bool) -> bool {
        let may = self.again == Again::Not;
        if may {
            self.again = Again::Next { spoke };
        }
        may
    }

    /// Notes that a generation begins. Returns whether it may repeat words that were heard before the call that broke
    /// off.
    pub(super) fn may_repeat(&mut self) -> bool {
        let spoke = self.again == Again::Next { spoke: true };
        if self.again != Again::Not {
            self.again = Again::Asked;
        }
        spoke
    }

    /// Notes that the client runs a call.
    pub(super) fn hand_to_client(&mut self) {
        self.by_client = true;
    }

    pub(super) fn has_client_calls(&self) -> bool {
        self.by_client
    }

    /// Stores the result of a call. Returns it as `Err` if no generation waits for it.
    pub(super) fn finish(&mut self, call: CallId, result: Value) -> Result<(), Value> {
        match self.waiting.iter_mut().find(|w| w.call == call) {
            Some(waiting) => {
                waiting.result = Some(result);
                Ok(())
            }
            None => Err(result),
        }
    }

    /// Stores the result of a call after which the model is not asked again.
    pub(super) fn finish_quietly(&mut self, call: CallId, result: Value) {
        if let Some(waiting) = self.waiting.iter_mut().find(|w| w.call == call) {
            (waiting.result, waiting.quiet) = (Some(result), true);
        }
    }

    /// Calls without a result.
    pub(super) fn open(&self) -> Vec<CallId> {
        let open = self.waiting.iter().filter(|w| w.result.is_none());
        open.map(|waiting| waiting.call).collect()
    }

    /// All calls of the round, in the order of their commits.
    pub(super) fn all(&self) -> impl Iterator<Item = CallId> {
        self.waiting.iter().map(|waiting| waiting.call)
    }

    /// Whether all calls so far have results, and the client runs none of them.
    pub(super) fn have_all_results(&self) -> bool {
        !self.waiting.is_empty() && !self.by_client && self.open().is_empty()
    }

    /// The results so far as the model will see them, after the calls in `messages`.
    pub(super) fn results(&self, messages: &[Message]) -> Vec<Message> {
        let named = |waiting: &Waiting| {
            let id = waiting.call.to_string();
            let name = messages.iter().find_map(|message| match message {
                Message::ToolCall { id: call, name, .. } if *call == id => Some(name.clone()),
                _ => None,
            })?;
            let output = waiting.result.clone()?;
            Some(Message::ToolResult { id, name, output })
        };
        self.waiting.iter().filter_map(named).collect()
    }

    /// Takes the calls of the round once all of them have results; empty before that. `tell` says whether a
    /// generation with the results follows.
    pub(super) fn take_complete(&mut self, tell: bool) -> Vec<Waiting> {
        if self.waiting.is_empty() || !self.open().is_empty() {
            return Vec::new();
        }
        self.untold = tell && self.waiting.iter().any(|waiting| !waiting.quiet);
        std::mem::take(&mut self.waiting)
    }

    /// Takes all calls: no generation waits for them any longer.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Takes all calls, and starts no further round.
    pub(super) fn give_up(&mut self) -> Vec<Waiting> {
        self.untold = false;
        self.take_all()
    }

    /// Whether the next generation is due, with the results of this round.
    pub(super) fn is_next_round_due(&self) -> bool {
        self.untold && self.waiting.is_empty() && !self.by_client
    }

    /// Counts a round: the generation with its results begins.
    pub(super) fn begin_round(&mut self) {
        self.rounds += 1;
    }

    /// Notes that a generation has begun whose prompt has all results.
    pub(super) fn were_told(&mut self) {
        self.untold = false;
    }

    /// Whether the model has not seen the results of all its calls.
    pub(super) fn are_under_way(&self) -> bool {
        !self.waiting.is_empty() || self.untold
    }

    /// Rounds whose results the model has seen.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }
}
