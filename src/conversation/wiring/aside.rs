//! Text responses outside the conversation.

use super::Conversation;
use crate::conversation::input::{Context, ResponseTerms};
use crate::llm::Message;

impl Conversation {
    pub(super) fn respond_aside(&mut self, terms: &ResponseTerms) {
        let messages = match &terms.context {
            None => self.history.messages(),
            Some(context) => self.messages_of(context),
        };
        let prompt = self.prompt(messages, terms, 0, 0);
        self.asides.begin(&mut self.common, prompt);
    }

    /// The messages for a context that replaces the history. Deleted items are left out.
    pub(super) fn messages_of(&self, context: &[Context]) -> Vec<Message> {
        let message = |context: &Context| match context {
            Context::Item(id) => self.history.message(*id),
            Context::Message(message) => Some(message.clone()),
        };
        context.iter().filter_map(message).collect()
    }
}
