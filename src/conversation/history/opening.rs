//! The place of an opening that has waited for the client: before what was said to the agent meanwhile, which is still
//! to be answered.

use super::{Content, History, Item};
use crate::llm::Message;

impl History {
    /// Notes that the opening begins.
    pub(in crate::conversation) fn opens(&mut self) {
        self.opening = Some(self.added);
    }

    /// Puts the opening, and what the agent has said right behind it, before all items since the agent's last words
    /// before it.
    pub(in crate::conversation) fn put_opening_first(&mut self) {
        let Some(added) = self.opening.take() else {
            return;
        };
        let is_said =
            |item: &Item| item.number > added && matches!(item.content, Content::Spoken(_));
        let Some(from) = self.items.iter().position(is_said) else {
            return;
        };
        let (before, since) = self.items.split_at(from);
        let open = before.iter().rev().take_while(|item| !item.is_agents());
        let said = since.iter().take_while(|item| is_said(item));
        let (open, said) = (open.count(), said.count());
        self.items[from - open..from + said].rotate_left(open);
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
