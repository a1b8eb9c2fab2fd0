//! The source of a caller's next turn: a line of the scenario, or a language model.

use super::Plan;
use super::model::Model;
use super::scenario::{Scenario, Turn};
use std::collections::VecDeque;

/// The next step of a caller.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// A turn, and the caller hangs up after its answer if there is nothing more to say.
    Turn(Turn),
    /// The caller hangs up.
    HangUp,
}

/// A caller.
pub(super) enum Caller {
    /// Speaks the lines of the scenario.
    Script(VecDeque<Turn>),
    /// Is played by a language model.
    Model(Model),
}

impl Caller {
    /// The caller of a scenario.
    ///
    /// # Errors
    /// The plan does not have the caller's model.
    pub(super) fn new(scenario: &Scenario, plan: &Plan) -> Result<Self, String> {
        let Some(name) = scenario.model() else {
            return Ok(Self::Script(scenario.turns.iter().cloned().collect()));
        };
        let llm = plan.models.get(name);
        let llm = llm.ok_or_else(|| format!("there is no model \"{name}\" to play the caller"))?;
        Ok(Self::Model(Model::new(llm.clone(), &scenario.caller)))
    }

    /// The next step of a script; `None` if a model has to think first.
    pub(super) fn scripted(&mut self) -> Option<Next> {
        match self {
            Self::Script(turns) => Some(turns.pop_front().map_or(Next::HangUp, Next::Turn)),
            Self::Model(_) => None,
        }
    }

    /// The lines that are still to be said, with `next` before them.
    pub(super) fn unsaid(&self, next: Option<&Next>) -> Option<String> {
        let next = match next {
            Some(Next::Turn(turn)) => Some(turn),
            _ => None,
        };
        let later = match self {
            Self::Script(turns) => turns.iter(),
            Self::Model(_) => return None,
        };
        next.into_iter()
            .chain(later)
            .find_map(|turn| turn.say.clone())
    }
}
