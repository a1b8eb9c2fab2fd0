//! How the conversation ends: by a call of the agent, which does not begin before its goodbye has been
//! heard, or by a hang-up that waits until nobody is speaking.

use super::ids::CallId;
use super::outcome::HangUpReason;
use crate::tools::EndsCall;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// A committed call that ends the conversation, and that has not begun.
#[derive(Debug, PartialEq)]
pub(super) struct EndingCall {
    pub(super) call: CallId,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) how: EndsCall,
}

/// The end of the conversation, from when the agent or the server wants it.
#[derive(Debug, Default)]
pub(super) struct Ending {
    promised: Option<(EndingCall, Stage)>,
    /// The user has gone on during the response: it does not end the conversation.
    goes_on: bool,
    /// The call that runs to hand the conversation over.
    handing_over: Option<CallId>,
    /// Hang up for this reason when nobody is speaking.
    hang_up: Option<HangUpReason>,
}

/// Where the call stands that ends the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The response is saying goodbye.
    InResponse,
    /// A sound has cut the goodbye short that may be noise.
    CutShort,
    /// It was noise: a response takes the call up again when nobody speaks.
    Resuming,
}

/// The outcome of a call that is to end the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// It runs when everything has been said.
    Kept,
    /// Another call is to end the conversation already.
    Already,
    /// The user has gone on: it does not run.
    CalledOff,
}

/// The call that ends the conversation.
impl Ending {
    /// A response has begun.
    pub(super) fn response_begins(&mut self) {
        self.goes_on = false;
    }

    /// The response wants to end the conversation by this call.
    pub(super) fn promise(&mut self, call: EndingCall) -> Promise {
        if self.goes_on {
            Promise::CalledOff
        } else if self.is_promised() {
            Promise::Already
        } else {
            self.promised = Some((call, Stage::InResponse));
            Promise::Kept
        }
    }

    /// The call that the response is to end with.
    pub(super) fn promised(&self) -> Option<&EndingCall> {
        let (call, stage) = self.promised.as_ref()?;
        (*stage == Stage::InResponse).then_some(call)
    }

    pub(super) fn is_promised(&self) -> bool {
        self.promised().is_some()
    }

    /// A call waits for the goodbye to be heard, in a response or until a sound has been judged.
    pub(super) fn is_near(&self) -> bool {
        self.promised.is_some()
    }

    /// Takes the call that the response is to end with.
    pub(super) fn take_promised(&mut self) -> Option<EndingCall> {
        self.take_at(Stage::InResponse)
    }

    /// A sound has stopped the agent: the call waits until it is known whether that was speech.
    /// `false` if there is none.
    pub(super) fn cut_short(&mut self) -> bool {
        self.promised.as_mut().is_some_and(|(_, stage)| {
            *stage = Stage::CutShort;
            true
        })
    }

    /// The sound that cut the goodbye short was no speech.
    pub(super) fn resume(&mut self) {
        if let Some((_, stage @ Stage::CutShort)) = &mut self.promised {
            *stage = Stage::Resuming;
        }
    }

    /// The call is to be taken up again when nobody speaks.
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self.promised, Some((_, Stage::Resuming)))
    }

    /// Takes the call, which was to be taken up again: it is called off, or promised anew.
    pub(super) fn take_resuming(&mut self) -> Option<EndingCall> {
        self.take_at(Stage::Resuming)
    }

    /// Takes the call, whose goodbye speech has cut short: it is called off.
    pub(super) fn take_cut_short(&mut self) -> Option<EndingCall> {
        self.take_at(Stage::CutShort)
    }

    /// The user goes on: returns the call that was to end the conversation, wherever it stands.
    pub(super) fn go_on(&mut self, in_response: bool) -> Option<EndingCall> {
        self.goes_on |= in_response;
        self.promised.take().map(|(call, _)| call)
    }

    fn take_at(&mut self, at: Stage) -> Option<EndingCall> {
        let taken = self.promised.take_if(|(_, stage)| *stage == at)?;
        Some(taken.0)
    }
}

/// The hang-up.
impl Ending {
    /// The call runs that hands the conversation over.
    pub(super) fn hand_over(&mut self, call: CallId) {
        self.handing_over = Some(call);
    }

    pub(super) fn is_handing_over(&self) -> bool {
        self.handing_over.is_some()
    }

    /// A call has its result. If it has handed the conversation over, nothing is left but to hang up.
    pub(super) fn call_finished(&mut self, call: CallId, succeeded: bool) {
        let handed_over = self.handing_over.take_if(|running| *running == call);
        if handed_over.is_some() && succeeded {
            self.hang_up = Some(HangUpReason::HandedOver);
        }
    }

    /// Hang up as soon as nobody is speaking.
    pub(super) fn hang_up_for(&mut self, reason: HangUpReason) {
        self.hang_up = Some(reason);
    }

    /// Why the server hangs up as soon as nobody is speaking.
    pub(super) fn hang_up(&self) -> Option<HangUpReason> {
        self.hang_up
    }

    /// The server has hung up.
    pub(super) fn has_hung_up(&mut self) {
        self.hang_up = None;
    }

    /// The user has come back: `true` if the server was about to hang up because nobody was there.
    pub(super) fn stay_for_user(&mut self) -> bool {
        let idle = self.hang_up.take_if(|reason| *reason == HangUpReason::Idle);
        idle.is_some()
    }
}
