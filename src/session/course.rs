//! The history of a session for sources of predictions: the last things said, and the committed calls.

use crate::conversation::{Event, ItemId};
use crate::prediction::{Committed, Said};
use serde_json::{Map, Value};
use std::collections::VecDeque;

/// Things said that sources are told of.
const HISTORY: usize = 16;

/// The course of one session so far.
#[derive(Debug, Default)]
pub(crate) struct Course {
    history: VecDeque<(ItemId, Said)>,
}

impl Course {
    /// The last things said, oldest first.
    pub(crate) fn history(&self) -> Vec<Said> {
        let said = self.history.iter().map(|(_, said)| said);
        let is_heard = |said: &&Said| !matches!(said, Said::Agent(text) if text.is_empty());
        said.filter(is_heard).cloned().collect()
    }

    /// Remembers what was said. Returns a call that was committed; `canonical` is the form in which calls of a tool are
    /// compared.
    pub(crate) fn observe(
        &mut self,
        event: &Event,
        canonical: impl FnOnce(&str, &Map<String, Value>) -> Map<String, Value>,
    ) -> Option<Committed> {
        let said = match event {
            Event::UserItem { item, text, .. } => (*item, Said::User(text.clone())),
            Event::AgentItemDone { item, text, .. } if !text.is_empty() => {
                (*item, Said::Agent(text.clone()))
            }
            Event::ItemTruncated { item, text, .. } => {
                self.cut(*item, text);
                return None;
            }
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

    /// Leaves of an agent's item what was heard of it: first by an estimate, then as the client says, which may be more.
    fn cut(&mut self, item: ItemId, heard: &str) {
        for (id, said) in &mut self.history {
            if *id == item {
                *said = Said::Agent(heard.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;

    /// Sources were told of words that had been sent and that nobody heard.
    #[test]
    fn words_that_were_sent_and_not_heard_are_taken_back() {
        let mut course = Course::default();
        let said = |item, text: &str| Event::AgentItemDone {
            item: ItemId(item),
            text: text.into(),
            interrupted: false,
        };
        let cut = |item, text: &str| Event::ItemTruncated {
            item: ItemId(item),
            heard: Micros(0),
            text: text.into(),
        };
        for event in [
            said(1, "It is noon."),
            said(2, "Anything else?"),
            cut(1, "It is"),
            cut(2, ""),
            said(3, "Hello?"),
            cut(3, ""),
            cut(3, "Hello"),
        ] {
            course.observe(&event, |_, arguments| arguments.clone());
        }
        let heard = ["It is", "Hello"].map(|text| Said::Agent(text.into()));
        assert_eq!(course.history(), heard);
    }
}
