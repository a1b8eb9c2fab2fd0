//! A call that waits for the user's yes, and what the model is told if it does not run.

use crate::conversation::common::Common;
use crate::conversation::history::History;
use crate::conversation::ids::CallId;
use crate::conversation::outcome::ConfirmationOutcome;
use crate::conversation::output::Event;
use crate::conversation::sentence::{bare, letters};
use crate::conversation::template::not_run;
use crate::llm::Message;
use crate::time::Micros;
use serde_json::{Map, Value};

/// A committed call that waits for the user.
#[derive(Debug)]
pub(in crate::conversation) struct Pending {
    pub(in crate::conversation) call: CallId,
    pub(in crate::conversation) name: String,
    pub(in crate::conversation) arguments: Map<String, Value>,
    pub(super) question: String,
    /// How long a yes counts after the question.
    pub(super) expiry: Micros,
    /// The history says that it waits: it is a step of a plan that has begun.
    pub(super) is_told: bool,
}

/// A question that has not been asked.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) pending: Pending,
    /// Other calls of the same response that need a yes, too.
    pub(super) others: Vec<String>,
}

impl Pending {
    /// Tells the client the outcome.
    pub(in crate::conversation) fn report_outcome(
        &self,
        common: &mut Common,
        outcome: ConfirmationOutcome,
    ) {
        let call = self.call;
        common.notify(Event::ConfirmationEnded { call, outcome });
    }

    /// The words `rest` of an interrupted response, with the question at their end in whole. `rest` may end with the
    /// question, or be the end of it; only letters and digits are compared.
    pub(super) fn asked_after(&self, rest: &str) -> String {
        let (asked, left) = (bare(&self.question), bare(rest));
        let before = match left.strip_suffix(&asked) {
            _ if asked.ends_with(&left) => "",
            Some(before) => {
                let last = letters(rest).take(before.chars().count()).last();
                &rest[..last.map_or(0, |(end, _)| end)]
            }
            None => rest,
        };
        let question = self.question.as_str();
        [before.trim_end(), question].join(" ").trim().to_owned()
    }

    /// Tells the model that it was not run.
    pub(super) fn tell_not_run(&self, common: &mut Common, history: &mut History) {
        let text = format!("The user did not confirm {}: it was not run.", self.name);
        history.push(common.item_id(), Message::System { text });
    }
}

/// Tells the model that a call was not run, and why.
pub(in crate::conversation) fn tell_put_off(
    common: &mut Common,
    history: &mut History,
    name: &str,
    why: &str,
) {
    let text = not_run(name, why);
    history.push(common.item_id(), Message::System { text });
}
