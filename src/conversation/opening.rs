//! The words with which the agent begins a conversation.

use crate::time::Micros;
use serde::{Deserialize, Serialize};

/// The longest that an opening waits for the client.
pub(super) const LONGEST_WAIT: Micros = Micros::from_ms(500);

/// The agent's words before anybody has said something.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// The words that every user must hear, such as that the call is recorded. Spoken first, and again before the next
    /// answer until they were heard whole; nothing if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notice: String,
    /// The greeting; nothing if empty.
    pub greeting: String,
    /// Whether it waits until the client has set up the session, half a second at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_client: bool,
}

impl Opening {
    /// A greeting without a notice.
    pub fn greeting(text: impl Into<String>) -> Self {
        Self {
            greeting: text.into(),
            ..Self::default()
        }
    }

    /// All of it, in the order in which it is spoken.
    pub fn words(&self) -> String {
        let words = [self.notice.trim(), self.greeting.trim()].join(" ");
        words.trim().to_owned()
    }
}
