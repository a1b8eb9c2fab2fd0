//! The words with which the agent begins a conversation.

use serde::{Deserialize, Serialize};

/// The agent's words before anybody has said something.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// The words that every user must hear, such as that the call is recorded. Spoken first, and again before the next
    /// answer until they were heard whole; nothing if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notice: String,
    /// The greeting; nothing if empty.
    pub greeting: String,
}

impl Opening {
    /// A greeting without a notice.
    pub fn greeting(text: impl Into<String>) -> Self {
        Self {
            notice: String::new(),
            greeting: text.into(),
        }
    }

    /// All of it, in the order in which it is spoken.
    pub fn words(&self) -> String {
        let words = [self.notice.trim(), self.greeting.trim()].join(" ");
        words.trim().to_owned()
    }
}
