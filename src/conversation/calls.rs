//! The calls of an answer, round by round: the next generation begins when those of the last one have
//! their results.

use super::ids::CallId;
use serde_json::Value;

#[cfg(test)]
mod tests;

/// The calls that the model has made in one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Those whose results the next generation needs, in the order of their commits.
    waiting: Vec<Waiting>,
    /// Calls have ended, and the model has not been told.
    untold: bool,
    /// A call is the client's to run: the client asks for the next answer.
    by_client: bool,
    /// Rounds whose results the model has been given.
    rounds: u32,
}

/// A committed call.
#[derive(Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) call: CallId,
    /// The result for the history, once there is one.
    pub(super) result: Option<Value>,
}

impl Calls {
    /// Those of an answer that goes on after `rounds`.
    pub(super) fn after(rounds: u32) -> Self {
        Self {
            rounds,
            ..Self::default()
        }
    }

    /// The model has made a call, which may have failed already.
    pub(super) fn wait_for(&mut self, call: CallId, result: Option<Value>) {
        self.waiting.push(Waiting { call, result });
    }

    /// The client runs a call.
    pub(super) fn hand_to_client(&mut self) {
        self.by_client = true;
    }

    pub(super) fn has_client_s(&self) -> bool {
        self.by_client
    }

    /// A call has its result, which is given back if no generation waits for it.
    pub(super) fn finish(&mut self, call: CallId, result: Value) -> Result<(), Value> {
        match self.waiting.iter_mut().find(|w| w.call == call) {
            Some(waiting) => {
                waiting.result = Some(result);
                Ok(())
            }
            None => Err(result),
        }
    }

    /// Calls whose results are not there yet.
    pub(super) fn open(&self) -> Vec<CallId> {
        let open = self.waiting.iter().filter(|w| w.result.is_none());
        open.map(|waiting| waiting.call).collect()
    }

    /// Takes the results if they are all there and there is one. With `tell` the model is told of them
    /// next.
    pub(super) fn take_complete(&mut self, tell: bool) -> Vec<Waiting> {
        if self.waiting.is_empty() || !self.open().is_empty() {
            return Vec::new();
        }
        self.untold = tell;
        std::mem::take(&mut self.waiting)
    }

    /// Takes all calls: no generation waits for their results any more.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// The model is not told of results any more.
    pub(super) fn give_up(&mut self) -> Vec<Waiting> {
        self.untold = false;
        self.take_all()
    }

    /// A generation is to begin that is given the results.
    pub(super) fn is_next_round_due(&self) -> bool {
        self.untold && self.waiting.is_empty() && !self.by_client
    }

    /// The generation begins that is given the results.
    pub(super) fn begin_round(&mut self) {
        self.rounds += 1;
    }

    /// A generation has begun, and the model knows all results.
    pub(super) fn were_told(&mut self) {
        self.untold = false;
    }

    /// The model has made calls of whose results it does not know.
    pub(super) fn are_under_way(&self) -> bool {
        !self.waiting.is_empty() || self.untold
    }

    /// Rounds whose results the model has been given.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }
}
