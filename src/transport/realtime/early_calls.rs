//! The calls that a client begins before the model has committed them.

use crate::conversation::{CallId, RunId};
use std::collections::{HashMap, VecDeque};

/// Calls that are over, of which late outputs are known. More than a client has open at a time.
const MAX_ENDED: usize = 64;

/// The early calls of one client, by their ids on the wire.
#[derive(Debug, Default)]
pub(super) struct EarlyCalls {
    open: HashMap<String, EarlyCall>,
    /// The ids of those that are over, oldest first, and whether the answer to each goes on by itself.
    ended: VecDeque<(String, bool)>,
    /// The last output needs no `response.create`.
    answered: bool,
}

#[derive(Debug)]
struct EarlyCall {
    run: RunId,
    /// The client has given its output, in an item with this id if it chose one.
    output: Option<Option<String>>,
    /// The committed call.
    call: Option<CallId>,
    /// The answer to it goes on by itself.
    goes_on: bool,
}

/// The meaning of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The output of this run.
    Output(RunId),
    /// Another output of a call that has one, or of a call that is over.
    Late,
    /// The call has not begun early.
    Other,
}

impl EarlyCalls {
    /// Adds a call that begins early.
    pub(super) fn begin(&mut self, id: String, run: RunId) {
        let early = EarlyCall {
            run,
            output: None,
            call: None,
            goes_on: false,
        };
        self.open.insert(id, early);
    }

    /// Handles the commit of a run, whose answer `goes_on` by itself unless the client runs another call of the
    /// response. Returns the id of its call.
    pub(super) fn commit(&mut self, run: RunId, call: CallId, goes_on: bool) -> Option<String> {
        let (id, early) = self.open.iter_mut().find(|(_, early)| early.run == run)?;
        (early.call, early.goes_on) = (Some(call), goes_on);
        Some(id.clone())
    }

    /// Handles a discarded run. Returns the id of its call.
    pub(super) fn discard(&mut self, run: RunId) -> Option<String> {
        let id = self.open.iter().find(|(_, early)| early.run == run)?.0;
        let id = id.clone();
        self.end(id.clone());
        Some(id)
    }

    /// The meaning of an output for the call `id`.
    pub(super) fn meaning(&self, id: &str) -> Meaning {
        match self.open.get(id) {
            Some(early) if early.output.is_none() => Meaning::Output(early.run),
            Some(_) => Meaning::Late,
            None if self.ended.iter().any(|(ended, _)| ended == id) => Meaning::Late,
            None => Meaning::Other,
        }
    }

    /// The client gave an output of the call `id`, in an item with the id `item` if it chose one.
    pub(super) fn answer(&mut self, id: &str, item: Option<String>) {
        let ended = self
            .ended
            .iter()
            .any(|(ended, goes_on)| ended == id && *goes_on);
        let early = self.open.get_mut(id);
        self.answered = ended || early.as_ref().is_some_and(|early| early.goes_on);
        if let Some(early) = early.filter(|early| early.output.is_none()) {
            early.output = Some(item);
        }
    }

    /// Whether a `response.create` is not needed: it follows another output of a call whose answer goes on by
    /// itself, as clients send it that take the call for an ordinary one. Asked once.
    pub(super) fn needs_no_response(&mut self) -> bool {
        std::mem::take(&mut self.answered)
    }

    /// The conversation has gone on, or the client asks for something else first, so its next `response.create` is meant.
    pub(super) fn turns_to_other(&mut self) {
        self.answered = false;
    }

    /// The client runs another call of the response, so it requests the next one.
    pub(super) fn client_goes_on(&mut self) {
        self.answered = false;
        for early in self.open.values_mut() {
            early.goes_on = false;
        }
        for (_, goes_on) in &mut self.ended {
            *goes_on = false;
        }
    }

    /// The output of this call joins the conversation. Returns the call's id, and the item's if the client
    /// chose one.
    pub(super) fn join(&mut self, call: CallId) -> Option<(String, Option<String>)> {
        let is_it = |early: &EarlyCall| early.call == Some(call);
        let (id, early) = self.open.iter().find(|(_, early)| is_it(early))?;
        let joined = (id.clone(), early.output.clone().flatten());
        self.end(joined.0.clone());
        Some(joined)
    }

    /// The output of the call `id` is deleted: the next one is not late.
    pub(super) fn forget(&mut self, id: &str) {
        self.ended.retain(|(ended, _)| ended != id);
    }

    fn end(&mut self, id: String) {
        let goes_on = self.open.remove(&id).is_some_and(|early| early.goes_on);
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, goes_on));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_counts_once() {
        let mut calls = EarlyCalls::default();
        calls.begin("a".into(), RunId(1));
        calls.begin("b".into(), RunId(2));
        assert_eq!(calls.meaning("a"), Meaning::Output(RunId(1)));
        calls.answer("a", Some("mine".into()));
        assert_eq!(calls.meaning("a"), Meaning::Late);
        assert_eq!(calls.discard(RunId(2)), Some("b".into()));
        assert_eq!(calls.meaning("b"), Meaning::Late);
        assert_eq!(calls.meaning("c"), Meaning::Other);
        assert_eq!(calls.commit(RunId(1), CallId(7), true), Some("a".into()));
        assert_eq!(
            calls.join(CallId(7)),
            Some(("a".into(), Some("mine".into())))
        );
        assert_eq!(calls.join(CallId(7)), None);
        assert!(!calls.needs_no_response());
        calls.answer("a", None);
        assert!(calls.needs_no_response() && !calls.needs_no_response());
        calls.answer("b", None);
        assert!(!calls.needs_no_response(), "it was discarded");
        assert_eq!(calls.meaning("a"), Meaning::Late);
    }

    #[test]
    fn a_client_that_has_another_call_to_answer_asks_for_the_response() {
        for early_first in [true, false] {
            let mut calls = EarlyCalls::default();
            calls.begin("a".into(), RunId(1));
            calls.commit(RunId(1), CallId(7), early_first);
            if early_first {
                calls.client_goes_on();
            }
            calls.answer("a", None);
            assert!(!calls.needs_no_response());
        }
    }

    #[test]
    fn when_the_conversation_has_gone_on_no_request_is_swallowed() {
        let mut calls = EarlyCalls::default();
        calls.begin("a".into(), RunId(1));
        calls.commit(RunId(1), CallId(7), true);
        calls.answer("a", None);
        calls.turns_to_other();
        assert!(!calls.needs_no_response());
    }

    #[test]
    fn calls_that_are_over_are_forgotten() {
        let mut calls = EarlyCalls::default();
        for n in 0..=MAX_ENDED as u64 {
            calls.begin(n.to_string(), RunId(n));
            calls.discard(RunId(n));
        }
        assert_eq!(calls.meaning("0"), Meaning::Other);
        assert_eq!(calls.meaning("1"), Meaning::Late);
    }
}
