//! Text responses outside the conversation.

use super::Conversation;
use crate::conversation::input::{Context, ResponseTerms};
use crate::llm::{Message, Prompt};

impl Conversation {
    pub(super) fn respond_aside(&mut self, terms: ResponseTerms) {
        self.common.mark_activity();
        self.asides.begin(&mut self.common, terms);
        self.ask_asides();
    }

    /// Asks the model for the responses whose context has all its words.
    pub(super) fn ask_asides(&mut self) {
        let due = self.asides.waiting();
        let due = due.filter(|(_, terms)| !self.agenda.lacks_words(terms));
        let due: Vec<_> = due
            .map(|(id, terms)| (id, self.aside_prompt(terms)))
            .collect();
        for (id, prompt) in due {
            self.asides.ask(&mut self.common, id, prompt);
        }
    }

    fn aside_prompt(&self, terms: &ResponseTerms) -> Prompt {
        let messages = match &terms.context {
            None => self.history.messages(),
            Some(context) => self.messages_of(context),
        };
        self.prompt(messages, terms, 0, 0)
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
