//! The place of an opening that has waited for the client: before what was said to the agent meanwhile, which is still
//! to be answered.

use super::{Content, History, Item};
use crate::llm::Message;

impl History {
    /// The opening begins.
    pub(in crate::conversation) fn opens(&mut self) {
        self.opens = true;
    }

    /// An answer begins, whose speech goes to the end.
    pub(in crate::conversation) fn answers(&mut self) {
        self.opens = false;
    }

    /// The index for the agent's next speech. An opening goes behind the agent's last words before it.
    pub(super) fn speech_place(&self) -> usize {
        if !self.opens {
            return self.items.len();
        }
        let last = self.items.iter().rposition(Item::is_agents);
        last.map_or(0, |at| at + 1)
    }
}

impl Item {
    /// Whether it is speech or a message of the agent.
    fn is_agents(&self) -> bool {
        matches!(
            self.content,
            Content::Spoken(_) | Content::Fixed(Message::Agent { .. })
        )
    }
}
