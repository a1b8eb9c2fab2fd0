//! A call that changes something asks first: its exact arguments are read back by code, or its
//! declaration's own question is asked. A yes to that makes it run: in a new turn, in writing, by a
//! key or a click. Until then it is not in the history.

use super::common::Common;
use super::history::History;
use super::ids::{CallId, ClauseId};
use super::outcome::ConfirmationOutcome;
use super::output::Event;
use super::template::question;
use super::timer::Timer;
use crate::language::en::assent::{Asked, Reply, reply};
use crate::llm::Message;
use crate::time::{Micros, Time};
use crate::tools::{self, Declaration};
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// An answer that begins in time may end later, ms.
const STILL_SPEAKING_MS: u64 = 1_000;

/// A committed call that waits for the user.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) call: CallId,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
    question: String,
    /// A yes counts for so long after the question.
    expiry: Micros,
}

/// The calls that wait for the user's yes, from their commits until they run or do not run.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    /// Asked when the response has nothing else to say.
    wanted: Option<Wanted>,
    /// Being asked, or waiting for its answer.
    question: Option<Question>,
}

/// A question that is not being asked yet.
#[derive(Debug)]
struct Wanted {
    pending: Pending,
    /// Other calls of the same response that wanted a yes, too.
    others: Vec<String>,
}

#[derive(Debug)]
struct Question {
    pending: Pending,
    stage: Stage,
}

/// How far the question has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is being said.
    Asking(Spoken),
    /// A sound has cut it short that may be noise.
    CutShort(Spoken),
    /// It was sent to its end.
    Asked(Window),
}

/// How much of the question has been said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoken {
    /// Nothing: its clauses are those after this one.
    After(ClauseId),
    /// Some of it: a key may answer it.
    Partly,
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

impl Question {
    fn window(&self) -> Option<Window> {
        match self.stage {
            Stage::Asked(window) => Some(window),
            Stage::Asking(_) | Stage::CutShort(_) => None,
        }
    }

    fn is_cut_short(&self) -> bool {
        matches!(self.stage, Stage::CutShort(_))
    }

    /// Classifies words that began at `began` as the reply about the call.
    fn outcome_of(&self, text: &str, began: Time) -> ConfirmationOutcome {
        let asked = Asked {
            question: &self.pending.question,
            tool: &self.pending.name,
            arguments: &self.pending.arguments,
        };
        let window = self.window();
        let in_time = |window: Window| (window.heard..=window.expires).contains(&began);
        match reply(text, asked) {
            _ if window.is_some_and(|window| began > window.expires) => {
                ConfirmationOutcome::Expired
            }
            Reply::Yes if window.is_some_and(in_time) => ConfirmationOutcome::Accepted,
            Reply::No => ConfirmationOutcome::Declined,
            Reply::Yes | Reply::Other => ConfirmationOutcome::Abandoned,
        }
    }
}

/// Requests of the response.
impl Confirmation {
    /// Has a committed call wait for the user's yes; `false` if its tool does not want that. The
    /// question is asked when the response has nothing else to say.
    pub(super) fn want(
        &mut self,
        call: CallId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) -> bool {
        let tools::Confirmation::Spoken {
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
            expiry: Micros(u64::try_from(expiry.as_micros()).unwrap_or(u64::MAX)),
        };
        match &mut self.wanted {
            // A yes must be to one question. Until it is asked the model does not see the call, and
            // may repeat it.
            Some(Wanted { pending: first, .. })
                if first.name == pending.name && first.arguments == pending.arguments => {}
            Some(first) => first.others.push(pending.name),
            wanted @ None => {
                let others = Vec::new();
                *wanted = Some(Wanted { pending, others });
            }
        }
        true
    }

    /// A question is to be asked when the response has said everything else.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// The response is over or has failed: what it would have asked is not asked.
    pub(super) fn forget_wanted(&mut self) {
        self.wanted = None;
    }

    /// Another answer follows at once, and a yes behind it would not be to the question: the model
    /// may call again in it.
    pub(super) fn put_off(&mut self, common: &mut Common, history: &mut History) {
        let Some(Wanted { pending, others }) = self.wanted.take() else {
            return;
        };
        let why = "the user has not been asked yet. Call it again if it is still wanted.";
        for name in [&pending.name].into_iter().chain(&others) {
            tell_put_off(common, history, name, why);
        }
    }

    /// The response has said everything else: returns the question, to be said now.
    pub(super) fn ask(&mut self, common: &mut Common, history: &mut History) -> Option<String> {
        let Wanted { pending, others } = self.wanted.take()?;
        self.end(common, ConfirmationOutcome::Abandoned);
        let why =
            "only one call at a time can wait for the user's yes. Call it again after this one.";
        for name in &others {
            tell_put_off(common, history, name, why);
        }
        common.notify(Event::ConfirmationAsked {
            call: pending.call,
            name: pending.name.clone(),
            arguments: pending.arguments.clone(),
            question: pending.question.clone(),
        });
        let question = pending.question.clone();
        let before = ClauseId(common.ids.next());
        self.question = Some(Question {
            pending,
            stage: Stage::Asking(Spoken::After(before)),
        });
        Some(question)
    }
}

/// How the question is said and heard.
impl Confirmation {
    /// The client hears this clause next.
    pub(super) fn clause_begins(&mut self, clause: ClauseId) {
        if let Some(question) = &mut self.question
            && matches!(question.stage, Stage::Asking(Spoken::After(before)) if clause > before)
        {
            question.stage = Stage::Asking(Spoken::Partly);
        }
    }

    /// The response with the question in it has been sent to its end, and is heard to its end at
    /// `heard`: from then on a yes counts.
    pub(super) fn was_sent(&mut self, common: &mut Common, heard: Time) {
        if let Some(question) = &mut self.question
            && matches!(question.stage, Stage::Asking(_))
        {
            let heard = heard.max(common.now);
            let expires = heard + question.pending.expiry;
            question.stage = Stage::Asked(Window {
                heard,
                expires,
                accepted: false,
            });
            common.timers.set(Timer::ConfirmationExpired, expires);
        }
    }

    /// The question has been heard earlier than the clock had it.
    pub(super) fn was_heard(&mut self, now: Time) {
        if let Some(Stage::Asked(window)) = self.question.as_mut().map(|q| &mut q.stage) {
            window.heard = now.min(window.heard);
        }
    }

    /// The question has not been heard to its end after all.
    pub(super) fn was_not_heard(&mut self, common: &mut Common) {
        if let Some(question) = &mut self.question
            && matches!(question.stage, Stage::Asked(_))
        {
            question.stage = Stage::Asking(Spoken::Partly);
            common.timers.clear(Timer::ConfirmationExpired);
        }
    }

    /// Something else is about to be said. A yes after that may be to that: the question has to be
    /// the last thing that was heard, and is returned to be asked again.
    pub(super) fn ask_again(&mut self, common: &mut Common) -> Option<String> {
        let asked = self.question.as_ref().filter(|q| q.window().is_some())?;
        let question = asked.pending.question.clone();
        self.was_not_heard(common);
        Some(question)
    }

    /// An answer is about to be given to something else: a yes after it is to no earlier question.
    pub(super) fn withdraw_asked(&mut self, common: &mut Common, history: &mut History) {
        if self.is_asked() {
            self.withdraw(common, history, ConfirmationOutcome::Abandoned);
        }
    }

    /// The question cannot be said to its end: nobody can know what a yes would be to.
    pub(super) fn withdraw_unasked(&mut self, common: &mut Common, history: &mut History) {
        if self.open().is_some_and(|q| q.window().is_none()) {
            self.withdraw(common, history, ConfirmationOutcome::Abandoned);
        }
    }

    /// The agent was stopped for good while it was asking.
    pub(super) fn abandon_unasked(&mut self, common: &mut Common) {
        if self.open().is_some_and(|q| q.window().is_none()) {
            self.end(common, ConfirmationOutcome::Abandoned);
        }
    }

    /// The user spoke or pressed a key before the question had been heard: that is no answer to it.
    pub(super) fn abandon_unheard(&mut self, common: &mut Common) {
        if self.is_unheard(common.now) {
            self.end(common, ConfirmationOutcome::Abandoned);
        }
    }

    /// A sound has stopped the agent: an unheard question waits until the sound has been judged.
    pub(super) fn cut_short(&mut self, common: &mut Common) {
        if !self.is_unheard(common.now) {
            return;
        }
        common.timers.clear(Timer::ConfirmationExpired);
        if let Some(question) = &mut self.question {
            question.stage = Stage::CutShort(match question.stage {
                Stage::Asking(spoken) | Stage::CutShort(spoken) => spoken,
                Stage::Asked(_) => Spoken::Partly,
            });
        }
    }

    /// The sound that cut the question short was no speech: it is said to its end.
    pub(super) fn resume(&mut self) {
        if let Some(question) = &mut self.question
            && let Stage::CutShort(spoken) = question.stage
        {
            question.stage = Stage::Asking(spoken);
        }
    }

    /// The sound that cut the question short was speech.
    pub(super) fn abandon_cut_short(&mut self, common: &mut Common) {
        if self.question.as_ref().is_some_and(Question::is_cut_short) {
            self.end(common, ConfirmationOutcome::Abandoned);
        }
    }

    /// A call waits, and no sound has cut its question short.
    pub(super) fn is_open(&self) -> bool {
        self.open().is_some()
    }

    /// The question was sent to its end, and waits for its answer.
    pub(super) fn is_asked(&self) -> bool {
        self.question.as_ref().and_then(Question::window).is_some()
    }

    fn open(&self) -> Option<&Question> {
        self.question.as_ref().filter(|q| !q.is_cut_short())
    }

    fn is_unheard(&self, now: Time) -> bool {
        let unheard = |q: &Question| q.window().is_none_or(|window| window.heard > now);
        self.open().is_some_and(unheard)
    }
}

/// How the question is answered.
impl Confirmation {
    /// The user's turn, begun at `began`. Returns the call that is to run if it was a yes.
    pub(super) fn answer(
        &mut self,
        common: &mut Common,
        history: &mut History,
        text: &str,
        began: Time,
    ) -> Option<Pending> {
        match self.open()?.outcome_of(text, began) {
            ConfirmationOutcome::Accepted => self.end(common, ConfirmationOutcome::Accepted),
            outcome => {
                self.withdraw(common, history, outcome);
                None
            }
        }
    }

    /// The same in writing. What is accepted runs when the client asks for an answer.
    pub(super) fn answer_in_writing(
        &mut self,
        common: &mut Common,
        history: &mut History,
        text: &str,
    ) {
        let Some(question) = self.question.as_mut().filter(|q| !q.is_cut_short()) else {
            return;
        };
        // Who writes has the whole question before them, heard or not.
        let heard = question.window().map(|window| window.heard);
        let read = heard.map_or(common.now, |heard| heard.max(common.now));
        match (question.outcome_of(text, read), &mut question.stage) {
            (ConfirmationOutcome::Accepted, Stage::Asked(window)) => window.accepted = true,
            (outcome, _) => self.withdraw(common, history, outcome),
        }
    }

    /// The client asks for an answer: returns the call that was accepted in writing, to be run.
    pub(super) fn take_accepted(&mut self, common: &mut Common) -> Option<Pending> {
        let window = self.question.as_ref().and_then(Question::window)?;
        match window.accepted {
            true => self.end(common, ConfirmationOutcome::Accepted),
            false => None,
        }
    }

    /// The call that a click may answer, also while a sound has cut its question short.
    pub(super) fn awaited(&self) -> Option<CallId> {
        self.question.as_ref().map(|q| q.pending.call)
    }

    /// The same for a key: it has to follow some of the question.
    pub(super) fn awaited_by_key(&self) -> Option<CallId> {
        let question = self.question.as_ref()?;
        let unsaid = |spoken| matches!(spoken, Spoken::After(_));
        match question.stage {
            Stage::Asking(spoken) | Stage::CutShort(spoken) if unsaid(spoken) => None,
            _ => Some(question.pending.call),
        }
    }

    /// Takes the call that a click or a key answers: the caller tells how it ended.
    pub(super) fn take(&mut self, common: &mut Common) -> Option<Pending> {
        common.timers.clear(Timer::ConfirmationExpired);
        self.question.take().map(|question| question.pending)
    }

    /// The wait for a yes is over, unless the user is just saying something.
    pub(super) fn on_expired(&mut self, common: &mut Common, user_speaks: bool) {
        if user_speaks {
            let later = common.now + Micros::from_ms(STILL_SPEAKING_MS);
            common.timers.set(Timer::ConfirmationExpired, later);
        } else {
            self.end(common, ConfirmationOutcome::Expired);
        }
    }

    /// The call that waits does not run, and the model is told.
    fn withdraw(
        &mut self,
        common: &mut Common,
        history: &mut History,
        outcome: ConfirmationOutcome,
    ) {
        if let Some(pending) = self.question.as_ref().map(|q| &q.pending) {
            let text = format!("The user did not confirm {}: it was not run.", pending.name);
            history.push(common.item_id(), Message::System { text });
        }
        self.end(common, outcome);
    }

    /// No call waits any more; the client is told about the one that did.
    fn end(&mut self, common: &mut Common, outcome: ConfirmationOutcome) -> Option<Pending> {
        let pending = self.take(common)?;
        pending.tell_end(common, outcome);
        Some(pending)
    }
}

impl Pending {
    /// Tells the client how the wait has ended.
    pub(super) fn tell_end(&self, common: &mut Common, outcome: ConfirmationOutcome) {
        let call = self.call;
        common.notify(Event::ConfirmationEnded { call, outcome });
    }
}

/// Tells the model that a call was not run, and `why`.
fn tell_put_off(common: &mut Common, history: &mut History, name: &str, why: &str) {
    let text = format!("A call of {name} was not run: {why}");
    history.push(common.item_id(), Message::System { text });
}
