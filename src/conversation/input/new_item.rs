//! Items that clients add to the history.

use crate::conversation::ids::{CallId, ItemId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where an item goes in the history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// At the end.
    #[default]
    End,
    /// At the beginning.
    Start,
    /// Right after this item.
    After(ItemId),
}

/// An item that a client adds to the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NewItem {
    /// Instructions or facts for the model.
    System {
        /// The words.
        text: String,
    },
    /// A typed message of the user.
    User {
        /// The words.
        text: String,
    },
    /// A message of the agent from an earlier conversation.
    Agent {
        /// The words.
        text: String,
    },
    /// A call of one of the client's own tools, from an earlier conversation.
    ToolCall {
        /// The call's id, which its output refers to: [`CallId::of_client`].
        call: CallId,
        /// The tool's name.
        name: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
    /// Speech of the user in audio that the client supplied. Its transcript follows as [`super::Input::ItemHeard`],
    /// and answers wait for it.
    Spoken {
        /// Text of the same message.
        text: String,
    },
    /// The result of a call of one of the client's own tools.
    ToolOutput {
        /// The call.
        call: CallId,
        /// The result.
        output: Value,
    },
}
