//! Limits on the text that a client may add to the prompt.

use super::input::{Context, NewItem, ResponseTerms};
use super::policy::TextLimits;
use crate::llm::Message;
use crate::tools::ToolSpec;

/// The most characters of output of a client's tool. The prompt shows less of it.
const LONGEST_OUTPUT: usize = 256 * 1024;

impl TextLimits {
    /// Checks the length of the client's instructions and tools.
    ///
    /// # Errors
    /// A message for the client.
    pub fn check_set_up(&self, instructions: usize, tools: &[ToolSpec]) -> Result<(), String> {
        let size = instructions + tools.iter().map(size_of).sum::<usize>();
        if size <= self.set_up {
            return Ok(());
        }
        Err(format!(
            "the client's instructions and tools are {size} characters long, and at most {} fit into a \
             prompt here; shorten them, or have the operator raise llm.max_prompt_tokens",
            self.set_up
        ))
    }

    /// Checks the text of a response request. Without instructions and tools of its own it has the session's: `set`
    /// characters, and `tools`.
    ///
    /// # Errors
    /// A message for the client.
    pub fn check_terms(
        &self,
        terms: &ResponseTerms,
        set: usize,
        tools: &[ToolSpec],
    ) -> Result<(), String> {
        let own = terms.instructions.as_ref();
        let instructions = own.map_or(set, |text| text.chars().count());
        self.check_set_up(instructions, terms.tools.as_deref().unwrap_or(tools))?;
        let context = terms.context.iter().flatten();
        context.into_iter().try_for_each(|part| match part {
            Context::Message(message) => self.check_message(message),
            Context::Item(_) => Ok(()),
        })
    }

    fn check_message(&self, message: &Message) -> Result<(), String> {
        match message {
            Message::System { text } | Message::User { text } | Message::Agent { text, .. } => {
                check("the text", text, self.item)
            }
            Message::ToolCall { arguments, .. } => {
                let arguments = serde_json::to_string(arguments).unwrap_or_default();
                check("the call", &arguments, self.item)
            }
            Message::ToolResult { output, .. } => {
                check("the output", &output.to_string(), LONGEST_OUTPUT)
            }
        }
    }

    /// Checks an item that the client adds.
    ///
    /// # Errors
    /// A message for the client.
    pub fn check_item(&self, item: &NewItem) -> Result<(), String> {
        match item {
            NewItem::System { text }
            | NewItem::User { text }
            | NewItem::Agent { text }
            | NewItem::Spoken { text, .. } => check("the text", text, self.item),
            NewItem::ToolCall {
                name, arguments, ..
            } => {
                let arguments = serde_json::to_string(arguments).unwrap_or_default();
                check("the call", &(name.clone() + &arguments), self.item)
            }
            NewItem::ToolOutput { output, .. } => {
                check("the output", &output.to_string(), LONGEST_OUTPUT)
            }
        }
    }
}

/// The approximate size of a tool in the prompt.
fn size_of(tool: &ToolSpec) -> usize {
    let schema = tool.parameters.to_string();
    let texts = [tool.name.as_str(), &tool.description, &schema];
    texts.iter().map(|text| text.chars().count() + 16).sum()
}

pub(super) fn check(what: &str, text: &str, most: usize) -> Result<(), String> {
    let size = text.chars().count();
    if size <= most {
        return Ok(());
    }
    Err(format!(
        "{what} is {size} characters long, and at most {most} are taken here; shorten it"
    ))
}
