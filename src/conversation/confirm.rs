//! A call that changes something asks first: its exact arguments are read back by code, or its
//! declaration's own question is asked. A yes to that makes it run: in a new turn, in writing, by a
//! key or a click. Until then it is not in the history.

use super::assent::{Asked, Reply, reply};
use super::barge_in::Interrupted;
use super::ids::{CallId, ClauseId};
use super::output::ConfirmationOutcome;
use super::time::{Micros, Time};
use super::timer::Timer;
use super::{Conversation, Event, ResponseStatus, TurnLatency};
use crate::llm::Message;
use crate::llm::untrusted::sanitise;
use crate::tools::{Confirmation, Declaration, plain};
use serde_json::{Map, Value};

/// An answer that begins in time may end later, ms.
const STILL_SPEAKING_MS: u64 = 1_000;

/// A committed call that waits for the user.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) call: CallId,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) question: String,
    /// Other calls of the same response that wanted a yes, too.
    others: Vec<String>,
    expiry: Micros,
    stage: Stage,
}

/// How far the question has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The response has other things to say first.
    Waiting,
    /// It is about to be said, in the clauses after this one.
    Asking(ClauseId),
    /// Some of it has been said: a key may answer it.
    Begun,
    /// It was sent to its end.
    Asked(Window),
}

/// When a yes to a question counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// The question has been heard.
    heard: Time,
    /// It is too long ago.
    expires: Time,
    /// A yes was typed in, and the client has not asked for an answer yet.
    accepted: bool,
}

impl Pending {
    /// The question was sent to its end.
    pub(super) fn is_asked(&self) -> bool {
        self.window().is_some()
    }

    /// What is to be answered with yes or no.
    fn asked(&self) -> Asked<'_> {
        Asked {
            question: &self.question,
            tool: &self.name,
            arguments: &self.arguments,
        }
    }

    /// Some of the question has been said.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self.stage, Stage::Begun | Stage::Asked(_))
    }

    fn window(&self) -> Option<Window> {
        match self.stage {
            Stage::Asked(window) => Some(window),
            _ => None,
        }
    }

    /// The question has not been heard to its end after all.
    fn close(&mut self) {
        if self.is_asked() {
            self.stage = Stage::Begun;
        }
    }
}

/// The question with the exact arguments in it.
fn question(tool: &Declaration, template: Option<&str>, arguments: &Map<String, Value>) -> String {
    let own = template.and_then(|template| super::filler::render(tool, template, arguments));
    own.unwrap_or_else(|| {
        let name = tool.spec.name.replace(['_', '-'], " ");
        let list = arguments.iter().map(|(key, value)| {
            let value = match plain(value.clone()) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            format!("{} {value}", key.replace(['_', '-'], " "))
        });
        let list = list.collect::<Vec<_>>().join(", ");
        let with = if list.is_empty() { "" } else { " with " };
        sanitise(&format!("Shall I {name}{with}{list}?"))
    })
}

impl Conversation {
    /// Has a committed call wait for the user's yes, if its tool wants that. The question is asked
    /// when the response has nothing else to say.
    pub(super) fn needs_confirmation(
        &mut self,
        call: CallId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) -> bool {
        let Confirmation::Spoken {
            question: template,
            expiry,
        } = &tool.confirmation
        else {
            return false;
        };
        let pending = Pending {
            call,
            name: tool.spec.name.clone(),
            arguments: arguments.clone(),
            question: question(tool, template.as_deref(), arguments),
            others: Vec::new(),
            expiry: Micros(u64::try_from(expiry.as_micros()).unwrap_or(u64::MAX)),
            stage: Stage::Waiting,
        };
        let Some(response) = &mut self.response else {
            return true;
        };
        match &mut response.asks {
            // A yes must be to one question. Until it is asked the model does not see the call, and
            // may repeat it.
            Some(first) if first.name == pending.name && first.arguments == pending.arguments => {}
            Some(first) => first.others.push(pending.name),
            asks @ None => *asks = Some(pending),
        }
        true
    }

    /// Another answer follows at once, and a yes behind it would not be to the question: the model
    /// may call again in it.
    pub(super) fn put_off_confirmation(&mut self) {
        let Some(pending) = self.response.as_mut().and_then(|r| r.asks.take()) else {
            return;
        };
        for name in [&pending.name].into_iter().chain(&pending.others) {
            self.put_off(
                name,
                "the user has not been asked yet. Call it again if it is still wanted.",
            );
        }
    }

    fn put_off(&mut self, name: &str, why: &str) {
        let item = self.common.item_id();
        let text = format!("A call of {name} was not run: {why}");
        self.history.push(item, Message::System { text });
    }

    /// Asks the question of a response that has said everything else.
    pub(super) fn ask_confirmation(&mut self) {
        let Some(pending) = self.response.as_mut().and_then(|r| r.asks.take()) else {
            return;
        };
        self.end_confirmation(ConfirmationOutcome::Abandoned);
        for name in &pending.others {
            self.put_off(
                name,
                "only one call at a time can wait for the user's yes. Call it again after this one.",
            );
        }
        self.common.notify(Event::ConfirmationAsked {
            call: pending.call,
            name: pending.name.clone(),
            arguments: pending.arguments.clone(),
            question: pending.question.clone(),
        });
        let question = pending.question.clone();
        self.confirmation = Some(Pending {
            stage: Stage::Asking(ClauseId(self.common.ids.next())),
            ..pending
        });
        self.speak(&question, super::response::Words::Own);
    }

    /// The client hears this clause next.
    pub(super) fn question_begins_with(&mut self, clause: ClauseId) {
        if let Some(pending) = &mut self.confirmation
            && matches!(pending.stage, Stage::Asking(before) if clause > before)
        {
            pending.stage = Stage::Begun;
        }
    }

    /// The response with the question in it has been sent to its end: from when it has been heard,
    /// a yes counts.
    pub(super) fn question_was_sent(&mut self) {
        let heard = self.playout.audible_until().max(self.common.now);
        if let Some(pending) = self.confirmation.as_mut().filter(|p| !p.is_asked()) {
            let expires = heard + pending.expiry;
            pending.stage = Stage::Asked(Window {
                heard,
                expires,
                accepted: false,
            });
            self.common.timers.set(Timer::ConfirmationExpired, expires);
        }
    }

    /// The question has been heard earlier than the clock had it.
    pub(super) fn question_was_heard(&mut self) {
        let now = self.common.now;
        if let Some(Stage::Asked(window)) = self.confirmation.as_mut().map(|p| &mut p.stage) {
            window.heard = now.min(window.heard);
        }
    }

    /// The question has not been heard to its end after all.
    pub(super) fn question_was_cut_short(&mut self) {
        if let Some(pending) = &mut self.confirmation {
            pending.close();
            self.common.timers.clear(Timer::ConfirmationExpired);
        }
    }

    /// Something else is about to be said. A yes after that may be to that: the question has to be
    /// the last thing that was heard, and is returned to be asked again.
    pub(super) fn ask_again(&mut self) -> Option<String> {
        let asked = self.confirmation.as_ref().filter(|p| p.is_asked())?;
        let question = asked.question.clone();
        self.question_was_cut_short();
        Some(question)
    }

    /// An answer is about to be given to something else. A yes to a question that was asked before
    /// it counts no more.
    pub(super) fn withdraw_asked_question(&mut self) {
        if self.confirmation.as_ref().is_some_and(Pending::is_asked) {
            self.withdraw(ConfirmationOutcome::Abandoned);
        }
    }

    /// The question cannot be said to its end: nobody can know what a yes would be to.
    pub(super) fn withdraw_unasked_question(&mut self) {
        if self.confirmation.as_ref().is_some_and(|p| !p.is_asked()) {
            self.withdraw(ConfirmationOutcome::Abandoned);
        }
    }

    /// The user spoke or pressed a key before the question had been heard: that is no answer to it.
    pub(super) fn abandon_unheard_question(&mut self) {
        if self.question_is_unheard() {
            self.end_confirmation(ConfirmationOutcome::Abandoned);
        }
    }

    /// A question that has not been heard to its end. It can be asked again.
    pub(super) fn take_unheard_question(&mut self) -> Option<Pending> {
        if !self.question_is_unheard() {
            return None;
        }
        self.common.timers.clear(Timer::ConfirmationExpired);
        let mut question = self.confirmation.take()?;
        question.close();
        Some(question)
    }

    fn question_is_unheard(&self) -> bool {
        let unheard = |p: &Pending| {
            p.window()
                .is_none_or(|window| window.heard > self.common.now)
        };
        self.confirmation.as_ref().is_some_and(unheard)
    }

    /// The wait for a yes is over, unless the user is just saying something.
    pub(super) fn on_confirmation_expired(&mut self) {
        if self.utterance.is_some() {
            let later = self.common.now + Micros::from_ms(STILL_SPEAKING_MS);
            self.common.timers.set(Timer::ConfirmationExpired, later);
        } else {
            self.end_confirmation(ConfirmationOutcome::Expired);
        }
    }

    /// The user's turn, begun at `began`, while a call waits for a yes. `true` if it was one.
    pub(super) fn answer_confirmation(
        &mut self,
        text: &str,
        began: Time,
        latency: TurnLatency,
    ) -> bool {
        match self.outcome_of(text, began) {
            None => false,
            Some(ConfirmationOutcome::Accepted) => {
                self.run_confirmed(latency);
                true
            }
            Some(outcome) => {
                self.withdraw(outcome);
                false
            }
        }
    }

    /// The same in writing. What is accepted runs when the client asks for an answer.
    pub(super) fn answer_in_writing(&mut self, text: &str) {
        // Who writes has the whole question before them, heard or not.
        let window = self.confirmation.as_ref().and_then(Pending::window);
        let read = window.map_or(self.common.now, |window| window.heard.max(self.common.now));
        match self.outcome_of(text, read) {
            None => {}
            Some(ConfirmationOutcome::Accepted) => {
                if let Some(Stage::Asked(window)) = self.confirmation.as_mut().map(|p| &mut p.stage)
                {
                    window.accepted = true;
                }
            }
            Some(outcome) => self.withdraw(outcome),
        }
    }

    /// The client asks for an answer: runs what was accepted in writing.
    pub(super) fn run_accepted(&mut self) {
        let window = self.confirmation.as_ref().and_then(Pending::window);
        if window.is_some_and(|window| window.accepted) {
            let latency = TurnLatency::of_turn_at(self.common.now);
            self.run_confirmed(latency);
        }
    }

    /// What words begun at `began` mean for the call that waits, if one does.
    fn outcome_of(&self, text: &str, began: Time) -> Option<ConfirmationOutcome> {
        let pending = self.confirmation.as_ref()?;
        let window = pending.window();
        let in_time = |window: Window| (window.heard..=window.expires).contains(&began);
        Some(match reply(text, pending.asked()) {
            _ if window.is_some_and(|window| began > window.expires) => {
                ConfirmationOutcome::Expired
            }
            Reply::Yes if window.is_some_and(in_time) => ConfirmationOutcome::Accepted,
            Reply::No => ConfirmationOutcome::Declined,
            Reply::Yes | Reply::Other => ConfirmationOutcome::Abandoned,
        })
    }

    /// The call that waits does not run, and the model is told.
    fn withdraw(&mut self, outcome: ConfirmationOutcome) {
        if let Some(pending) = &self.confirmation {
            let text = format!("The user did not confirm {}: it was not run.", pending.name);
            let item = self.common.item_id();
            self.history.push(item, Message::System { text });
        }
        self.end_confirmation(outcome);
    }

    /// The call that a click or a key may answer, also while a sound has cut its question short.
    pub(super) fn awaited_confirmation(&self) -> Option<&Pending> {
        let interrupted = || self.interrupted.as_ref()?.question();
        self.confirmation.as_ref().or_else(interrupted)
    }

    /// A click or a key instead of a spoken answer.
    pub(super) fn confirm(&mut self, call: CallId, accepted: bool) {
        if self.awaited_confirmation().map(|p| p.call) != Some(call) {
            return self.common.refuse(
                "Confirm",
                format!("no call {call} waits for a confirmation"),
            );
        }
        self.common.mark_activity();
        self.drop_held();
        let interrupted = || self.interrupted.as_mut()?.take_question();
        let pending = self.confirmation.take().or_else(interrupted);
        self.stop_for_good(ResponseStatus::Cancelled);
        self.confirmation = pending;
        let item = self.common.item_id();
        let name = self.confirmation.as_ref().map_or("", |p| &p.name);
        let text = if accepted {
            format!("The user confirmed {name} by hand.")
        } else {
            format!("The user declined {name} by hand: it was not run.")
        };
        self.history.push(item, Message::System { text });
        if accepted {
            let latency = TurnLatency::of_turn_at(self.common.now);
            self.run_confirmed(latency);
        } else {
            self.end_confirmation(ConfirmationOutcome::Declined);
            let declined = self.common.policy.phrases.declined.clone();
            if self.utterance.is_some() {
                // Said if that is no more than the key's own tone.
                self.interrupted = Some(Interrupted::with_rest(declined));
            } else {
                self.announcements.push_back(declined);
            }
        }
    }

    fn run_confirmed(&mut self, latency: TurnLatency) {
        let Some(pending) = self.confirmation.take() else {
            return;
        };
        self.common.timers.clear(Timer::ConfirmationExpired);
        self.common.notify(Event::ConfirmationEnded {
            call: pending.call,
            outcome: ConfirmationOutcome::Accepted,
        });
        self.stop_for_good(ResponseStatus::Interrupted);
        self.open_response(latency);
        let tool = self.operators(&pending.name).cloned();
        self.carry_out(
            pending.call,
            &pending.name,
            pending.arguments,
            tool.as_deref(),
        );
    }

    pub(super) fn end_confirmation(&mut self, outcome: ConfirmationOutcome) {
        self.common.timers.clear(Timer::ConfirmationExpired);
        if let Some(pending) = self.confirmation.take() {
            let call = pending.call;
            self.common
                .notify(Event::ConfirmationEnded { call, outcome });
        }
    }
}
