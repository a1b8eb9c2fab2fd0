//! How the conversation ends: by a tool call, which starts only after the goodbye has been heard, or by a
//! hang-up, which waits until nobody is speaking.

use super::ids::CallId;
use super::machine::Machine;
use super::outcome::HangUpReason;
use crate::time::Time;
use crate::tools::EndsCall;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// A committed call that ends the conversation and has not started.
#[derive(Debug, PartialEq)]
pub(super) struct EndingCall {
    pub(super) call: CallId,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) how: EndsCall,
    /// The calls of its response that were running when a sound stopped that.
    pub(super) beside: Vec<CallId>,
}

/// A pending end of the conversation.
#[derive(Debug, Default)]
pub(super) struct Ending {
    promised: Option<(EndingCall, Stage)>,
    /// The user has spoken on during the response, which therefore no longer ends the conversation.
    goes_on: bool,
    /// The running call that transfers the conversation.
    handing_over: Option<CallId>,
    /// Hang up for this reason when nobody is speaking.
    hang_up: Option<HangUpReason>,
    /// A hang-up for idleness whose goodbye has begun, until it is known whether the user is there.
    put_off: Option<HangUpReason>,
    /// Whether a machine has answered the call.
    pub(super) machine: Machine,
}

/// The stage of the call that ends the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The response is saying goodbye.
    InResponse,
    /// A sound that may be noise has interrupted the goodbye.
    CutShort,
    /// The sound was noise: a response resumes the call when nobody speaks.
    Resuming,
}

/// The state of the call that ends the conversation when all words of its response have been sent.
#[derive(Debug, PartialEq)]
pub(super) enum Goodbye {
    /// Nothing holds the response open: there is no such call, or it hangs up when the response is over.
    Said,
    /// The response stays open: the call is running, or the user has something to say.
    Held,
    /// The response stays open until the goodbye has been heard.
    HeardAt(Time),
    /// The goodbye has been heard: this call starts, and the response stays open for its result.
    Starts(EndingCall),
}

/// Whether a call may end the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// Yes: it runs when everything has been said.
    Kept,
    /// Another call is already going to end it.
    Already,
    /// The user has spoken on, so it does not run.
    CalledOff,
}

/// The call that ends the conversation.
impl Ending {
    /// Notes that a response has begun.
    pub(super) fn response_begins(&mut self) {
        self.goes_on = false;
        self.put_off = None;
    }

    /// Registers a call by which the response wants to end the conversation.
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

    /// The call that the current response is to end with.
    pub(super) fn promised(&self) -> Option<&EndingCall> {
        let (call, stage) = self.promised.as_ref()?;
        (*stage == Stage::InResponse).then_some(call)
    }

    pub(super) fn is_promised(&self) -> bool {
        self.promised().is_some()
    }

    /// Whether a call waits for its goodbye to be heard, at whatever stage.
    pub(super) fn is_near(&self) -> bool {
        self.promised.is_some()
    }

    /// Takes the call that the current response is to end with.
    pub(super) fn take_promised(&mut self) -> Option<EndingCall> {
        self.take_at(Stage::InResponse)
    }

    /// Handles a sound that stopped the agent: the call waits until it is known whether the sound was speech.
    /// `false` if there is no call.
    pub(super) fn cut_short(&mut self) -> bool {
        self.promised.as_mut().is_some_and(|(_, stage)| {
            *stage = Stage::CutShort;
            true
        })
    }

    /// Notes the calls of the stopped response that are still running. If it is resumed, it waits for them.
    pub(super) fn waits_for(&mut self, running: Vec<CallId>) {
        if let Some((ending, _)) = &mut self.promised {
            ending.beside = running;
        }
    }

    /// Handles a false interruption of the goodbye.
    pub(super) fn resume(&mut self) {
        if let Some((_, stage @ Stage::CutShort)) = &mut self.promised {
            *stage = Stage::Resuming;
        }
    }

    /// Whether the call is to be resumed when nobody speaks.
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self.promised, Some((_, Stage::Resuming)))
    }

    /// Takes the call that was to be resumed, to cancel it or to promise it again.
    pub(super) fn take_resuming(&mut self) -> Option<EndingCall> {
        self.take_at(Stage::Resuming)
    }

    /// Takes the call whose goodbye was interrupted by speech, to cancel it.
    pub(super) fn take_cut_short(&mut self) -> Option<EndingCall> {
        self.take_at(Stage::CutShort)
    }

    /// Notes that the user has spoken on, and takes the call that was to end the conversation, at whatever
    /// stage.
    pub(super) fn go_on(&mut self, in_response: bool) -> Option<EndingCall> {
        self.goes_on |= in_response;
        self.promised.take().map(|(call, _)| call)
    }

    /// Called when all words of the response have been sent, which are heard until `heard`. `user_acts`: the
    /// user is speaking or pressing keys.
    pub(super) fn was_said(&mut self, now: Time, heard: Time, user_acts: bool) -> Goodbye {
        if self.handing_over.is_some() {
            return Goodbye::Held;
        }
        match self.promised().map(|ending| ending.how) {
            None => Goodbye::Said,
            Some(_) if heard > now => Goodbye::HeardAt(heard),
            Some(_) if user_acts => Goodbye::Held,
            Some(EndsCall::HangUp) => Goodbye::Said,
            Some(EndsCall::HandOver) => match self.take_promised() {
                Some(ending) => {
                    self.hand_over(ending.call);
                    Goodbye::Starts(ending)
                }
                None => Goodbye::Said,
            },
        }
    }

    fn take_at(&mut self, at: Stage) -> Option<EndingCall> {
        let taken = self.promised.take_if(|(_, stage)| *stage == at)?;
        Some(taken.0)
    }
}

/// The hang-up.
impl Ending {
    /// Notes that the call that transfers the conversation is running.
    fn hand_over(&mut self, call: CallId) {
        self.handing_over = Some(call);
    }

    /// The running call that transfers the conversation.
    pub(super) fn handing_over(&self) -> Option<CallId> {
        self.handing_over
    }

    /// Handles the result of a call. After a successful transfer, the server hangs up. `true` if a transfer has failed.
    pub(super) fn call_finished(&mut self, call: CallId, succeeded: bool) -> bool {
        let handed_over = self.handing_over.take_if(|running| *running == call);
        if handed_over.is_some() && succeeded {
            self.hang_up = Some(HangUpReason::HandedOver);
        }
        handed_over.is_some() && !succeeded
    }

    /// Hang up as soon as nobody is speaking.
    pub(super) fn hang_up_for(&mut self, reason: HangUpReason) {
        self.hang_up = Some(reason);
    }

    /// The reason for which the server hangs up as soon as nobody is speaking.
    pub(super) fn hang_up(&self) -> Option<HangUpReason> {
        self.hang_up
    }

    /// Notes that the server has hung up.
    pub(super) fn has_hung_up(&mut self) {
        self.hang_up = None;
    }

    /// Puts a hang-up for idleness off, because the user may be there. `true` if there was one.
    pub(super) fn stay_for_user(&mut self) -> bool {
        let idle = self.hang_up.take_if(|reason| *reason == HangUpReason::Idle);
        self.put_off = idle.or(self.put_off);
        idle.is_some()
    }

    /// Restores a hang-up that was put off: the sound was noise.
    pub(super) fn goes_ahead(&mut self) {
        self.hang_up = self.hang_up.or(self.put_off.take());
    }

    /// Cancels a hang-up that was put off: the user is there.
    pub(super) fn stays(&mut self) {
        self.put_off = None;
    }
}
