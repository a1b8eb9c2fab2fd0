//! The history of a session for sources of predictions: the last things said, and the committed calls.

use crate::conversation::Event;
use crate::prediction::{Committed, Said};
use serde_json::{Map, Value};
use std::collections::VecDeque;

/// Things said that sources are told of.
const HISTORY: usize = 16;

/// The course of one session so far.
#[derive(Debug, Default)]
pub(crate) struct Course {
    history: VecDeque<Said>,
}

impl Course {
    /// The last things said, oldest first.
    pub(crate) fn history(&self) -> Vec<Said> {
        self.history.iter().cloned().collect()
    }

    /// Remembers what was said. Returns a call that was committed; `canonical` is the form in which calls of a tool are
    /// compared.
    pub(crate) fn observe(
        &mut self,
        event: &Event,
        canonical: impl FnOnce(&str, &Map<String, Value>) -> Map<String, Value>,
    ) -> Option<Committed> {
        let said = match event {
            Event::UserItem { text, .. } => Said::User(text.clone()),
            Event::AgentItemDone { text, .. } if !text.is_empty() => Said::Agent(text.clone()),
            Event::ToolCalled {
                name,
                arguments,
                by_client: false,
                ..
            } => {
                return Some(Committed {
                    tool: name.clone(),
                    arguments: canonical(name, arguments),
                    written: arguments.clone(),
                });
            }
            _ => return None,
        };
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(said);
        None
    }
}
