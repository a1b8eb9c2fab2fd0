//! Confirmation: a call that changes something asks first. The question reads back the exact arguments, or is
//! the template of the tool's declaration. A yes runs the call: spoken in a new turn, typed, by key or by
//! click. Until then the call is not in the history.

use super::common::Common;
use super::history::History;
use super::ids::{CallId, ClauseId};
use super::outcome::ConfirmationOutcome;
use super::output::Event;
use super::template::question;
use super::timer::Timer;
use crate::language::{Asked, Pack, Reply};
use crate::time::{Micros, Time};
use crate::tools::{self, Declaration};
use serde_json::{Map, Value};

mod pending;
mod stage;
#[cfg(test)]
mod tests;

use pending::Wanted;
pub(super) use pending::{Pending, tell_put_off};
use stage::{Spoken, Stage, Window};

/// How long to wait again if the user is speaking at the expiry, ms.
const STILL_SPEAKING_MS: u64 = 1_000;

/// The calls that need the user's yes, from their commits to their outcomes.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    /// To be asked when the response has said everything else.
    wanted: Option<Wanted>,
    /// Being asked, or waiting for an answer.
    question: Option<Box<Question>>,
}

#[derive(Debug)]
struct Question {
    pending: Pending,
    stage: Stage,
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

    /// Classifies words that began at `began` as the reply to the question.
    fn outcome_of(&self, language: &Pack, text: &str, began: Time) -> ConfirmationOutcome {
        let asked = Asked {
            question: &self.pending.question,
            tool: &self.pending.name,
            arguments: &self.pending.arguments,
        };
        let window = self.window();
        let in_time = |window: Window| (window.heard..=window.expires).contains(&began);
        match language.reply(text, asked) {
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
    /// Holds a committed call until the user says yes; `false` if its tool needs none. The question is asked
    /// when the response has said everything else.
    pub(super) fn want(
        &mut self,
        language: &Pack,
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
            question: question(language, tool, template.as_deref(), arguments),
            expiry: Micros(u64::try_from(expiry.as_micros()).unwrap_or(u64::MAX)),
            is_told: false,
        };
        match &mut self.wanted {
            // Only one question is asked at a time. The model does not see the call until then, and may
            // repeat it: a repetition is ignored.
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

    /// The call whose question waits for the response to say everything else.
    pub(super) fn wanted(&self) -> Option<CallId> {
        self.wanted.as_ref().map(|wanted| wanted.pending.call)
    }

    /// Notes that the history says that the call waits, the first of those that are to be asked about.
    pub(super) fn was_told(&mut self) {
        if let Some(wanted) = &mut self.wanted {
            wanted.pending.is_told = true;
        }
    }

    /// Drops the question that was to be asked: the response is over or has failed.
    pub(super) fn forget_wanted(&mut self, common: &mut Common, history: &mut History) {
        let forgotten = self.wanted.take().map(|wanted| wanted.pending);
        if let Some(pending) = forgotten.filter(|pending| pending.is_told) {
            pending.tell_not_run(common, history);
        }
    }

    /// Puts the question off, because another answer follows at once and a yes after that would not be to the
    /// question. The model is told that it may call again.
    pub(super) fn put_off(&mut self, common: &mut Common, history: &mut History) {
        let Some(Wanted { pending, others }) = self.wanted.take() else {
            return;
        };
        let why = "the user has not been asked yet. Call it again if it is still wanted.";
        for name in [&pending.name].into_iter().chain(&others) {
            tell_put_off(common, history, name, why);
        }
    }

    /// Returns the question, to be spoken now that the response has said everything else.
    pub(super) fn ask(&mut self, common: &mut Common, history: &mut History) -> Option<String> {
        let Wanted { pending, others } = self.wanted.take()?;
        self.give_up(common, history, ConfirmationOutcome::Abandoned);
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
        self.question = Some(Box::new(Question {
            pending,
            stage: Stage::Asking(Spoken::After(before)),
        }));
        Some(question)
    }
}

/// How the question is spoken and heard.
impl Confirmation {
    /// Notes that this clause is about to play.
    pub(super) fn clause_begins(&mut self, clause: ClauseId) {
        if let Some(question) = &mut self.question
            && matches!(question.stage, Stage::Asking(Spoken::After(before)) if clause > before)
        {
            question.stage = Stage::Asking(Spoken::Partly);
        }
    }

    /// Notes that the question has been sent in full and will have been heard at `heard`. From then on a yes
    /// counts.
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

    /// Notes that the question was heard by `now`, earlier than the playout estimate said.
    pub(super) fn was_heard(&mut self, now: Time) {
        if let Some(Stage::Asked(window)) = self.question.as_mut().map(|q| &mut q.stage) {
            window.heard = now.min(window.heard);
        }
    }

    /// The question was not heard to its end after all.
    pub(super) fn was_not_heard(&mut self, common: &mut Common) {
        if let Some(question) = &mut self.question
            && matches!(question.stage, Stage::Asked(_))
        {
            question.stage = Stage::Asking(Spoken::Partly);
            common.timers.clear(Timer::ConfirmationExpired);
        }
    }

    /// Returns the open question, to be repeated after an announcement: a yes counts only if the question was
    /// the last thing heard.
    pub(super) fn ask_again(&mut self, common: &mut Common) -> Option<String> {
        let asked = self.question.as_ref().filter(|q| q.window().is_some())?;
        let question = asked.pending.question.clone();
        self.was_not_heard(common);
        Some(question)
    }

    /// Withdraws the question that was asked, because an answer to something else begins.
    pub(super) fn withdraw_asked(&mut self, common: &mut Common, history: &mut History) {
        if self.is_asked() {
            self.withdraw(common, history, ConfirmationOutcome::Abandoned);
        }
    }

    /// Withdraws a question that cannot be spoken to its end.
    pub(super) fn withdraw_unasked(&mut self, common: &mut Common, history: &mut History) {
        if self.open().is_some_and(|q| q.window().is_none()) {
            self.withdraw(common, history, ConfirmationOutcome::Abandoned);
        }
    }

    /// Abandons a question that was being asked when the agent was stopped for good.
    pub(super) fn abandon_unasked(&mut self, common: &mut Common, history: &mut History) {
        if self.open().is_some_and(|q| q.window().is_none()) {
            self.give_up(common, history, ConfirmationOutcome::Abandoned);
        }
    }

    /// Abandons a question that had not been heard when the user spoke or pressed a key.
    pub(super) fn abandon_unheard(&mut self, common: &mut Common, history: &mut History) {
        if self.is_unheard(common.now) {
            self.give_up(common, history, ConfirmationOutcome::Abandoned);
        }
    }

    /// Suspends an unheard question when a sound stops the agent, until the sound has been judged.
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

    /// Suspends the question, heard or not: the client is away. An answer to it may have been cut off, so it does not
    /// count, and the question is asked again.
    pub(super) fn suspend(&mut self, common: &mut Common) {
        if let Some(question) = &mut self.question
            && matches!(question.stage, Stage::Asked(_))
        {
            question.stage = Stage::CutShort(Spoken::Partly);
            common.timers.clear(Timer::ConfirmationExpired);
        }
    }

    /// The words `rest` of an interrupted response, with a suspended question at their end, in whole.
    pub(super) fn ask_in_whole(&self, rest: String) -> String {
        let Some(suspended) = self.question.as_ref().filter(|q| q.is_cut_short()) else {
            return rest;
        };
        suspended.pending.asked_after(&rest)
    }

    /// Resumes the question after a false interruption.
    pub(super) fn resume(&mut self) {
        if let Some(question) = &mut self.question
            && let Stage::CutShort(spoken) = question.stage
        {
            question.stage = Stage::Asking(spoken);
        }
    }

    /// Abandons a question that speech interrupted.
    pub(super) fn abandon_cut_short(&mut self, common: &mut Common, history: &mut History) {
        if self.question.as_deref().is_some_and(Question::is_cut_short) {
            self.give_up(common, history, ConfirmationOutcome::Abandoned);
        }
    }

    /// Whether a call waits, and its question is not interrupted.
    pub(super) fn is_open(&self) -> bool {
        self.open().is_some()
    }

    /// Whether all of the question was sent, and it waits for an answer.
    pub(super) fn is_asked(&self) -> bool {
        self.question
            .as_deref()
            .and_then(Question::window)
            .is_some()
    }

    fn open(&self) -> Option<&Question> {
        self.question.as_deref().filter(|q| !q.is_cut_short())
    }

    fn is_unheard(&self, now: Time) -> bool {
        let unheard = |q: &Question| q.window().is_none_or(|window| window.heard > now);
        self.open().is_some_and(unheard)
    }
}

/// How the question is answered.
impl Confirmation {
    /// Handles the user's turn, which began at `began`. Returns the call to run if it was a yes.
    pub(super) fn answer(
        &mut self,
        common: &mut Common,
        history: &mut History,
        text: &str,
        began: Time,
    ) -> Option<Pending> {
        match self.open()?.outcome_of(common.language(), text, began) {
            ConfirmationOutcome::Accepted => self.end(common, ConfirmationOutcome::Accepted),
            outcome => {
                self.withdraw(common, history, outcome);
                None
            }
        }
    }

    /// Handles a typed message. An accepted call runs when the client requests a response.
    pub(super) fn answer_in_writing(
        &mut self,
        common: &mut Common,
        history: &mut History,
        text: &str,
    ) {
        let Some(question) = self.question.as_mut().filter(|q| !q.is_cut_short()) else {
            return;
        };
        // A user who types can read the whole question, heard or not.
        let heard = question.window().map(|window| window.heard);
        let read = heard.map_or(common.now, |heard| heard.max(common.now));
        let outcome = question.outcome_of(common.language(), text, read);
        match (outcome, &mut question.stage) {
            (ConfirmationOutcome::Accepted, Stage::Asked(window)) => window.accepted = true,
            (outcome, _) => self.withdraw(common, history, outcome),
        }
    }

    /// Returns the call that was accepted in writing, now that the client requests a response.
    pub(super) fn take_accepted(&mut self, common: &mut Common) -> Option<Pending> {
        let window = self.question.as_deref().and_then(Question::window)?;
        match window.accepted {
            true => self.end(common, ConfirmationOutcome::Accepted),
            false => None,
        }
    }

    /// The call that a click may answer, even while its question is interrupted.
    pub(super) fn awaited(&self) -> Option<CallId> {
        self.question.as_ref().map(|q| q.pending.call)
    }

    /// The call that a key may answer: only after some of the question has been spoken.
    pub(super) fn awaited_by_key(&self) -> Option<CallId> {
        let question = self.question.as_ref()?;
        let unsaid = |spoken| matches!(spoken, Spoken::After(_));
        match question.stage {
            Stage::Asking(spoken) | Stage::CutShort(spoken) if unsaid(spoken) => None,
            _ => Some(question.pending.call),
        }
    }

    /// Takes the call that a click or a key answers. The caller reports the outcome.
    pub(super) fn take(&mut self, common: &mut Common) -> Option<Pending> {
        common.timers.clear(Timer::ConfirmationExpired);
        self.question.take().map(|question| question.pending)
    }

    /// Ends the wait for a yes, or extends it while the user is speaking.
    pub(super) fn on_expired(
        &mut self,
        common: &mut Common,
        history: &mut History,
        user_speaks: bool,
    ) {
        if user_speaks {
            let later = common.now + Micros::from_ms(STILL_SPEAKING_MS);
            common.timers.set(Timer::ConfirmationExpired, later);
        } else {
            self.give_up(common, history, ConfirmationOutcome::Expired);
        }
    }

    /// Ends the wait without running the call, and tells the model.
    pub(super) fn withdraw(
        &mut self,
        common: &mut Common,
        history: &mut History,
        how: ConfirmationOutcome,
    ) {
        if let Some(pending) = self.end(common, how) {
            pending.tell_not_run(common, history);
        }
    }

    /// Ends the wait without running the call. The model is told if its history says that the call waits.
    fn give_up(&mut self, common: &mut Common, history: &mut History, how: ConfirmationOutcome) {
        if let Some(pending) = self.end(common, how).filter(|one| one.is_told) {
            pending.tell_not_run(common, history);
        }
    }

    /// Ends the wait and tells the client the outcome.
    fn end(&mut self, common: &mut Common, outcome: ConfirmationOutcome) -> Option<Pending> {
        let pending = self.take(common)?;
        pending.report_outcome(common, outcome);
        Some(pending)
    }
}
