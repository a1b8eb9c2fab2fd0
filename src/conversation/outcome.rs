//! How sessions, confirmations and responses end.

use serde::{Deserialize, Serialize};

/// Why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HangUpReason {
    /// Nobody spoke for too long.
    Idle,
    /// The session reached its greatest length.
    TooLong,
    /// The server shuts down.
    Shutdown,
    /// The agent ended the call, and its goodbye was heard.
    AgentEnded,
    /// A tool has taken the call over: the line is not ours any more.
    HandedOver,
}

/// How the wait for a confirmation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationOutcome {
    /// The user said yes: the call runs.
    Accepted,
    /// The user said no.
    Declined,
    /// The user said something else or spoke over the question, something else was said behind it,
    /// or it could not be said.
    Abandoned,
    /// The user said nothing for too long.
    Expired,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// All was said.
    Completed,
    /// The user spoke over it.
    Interrupted,
    /// The client cancelled it.
    Cancelled,
    /// The language model or the voice failed; an apology was spoken.
    Failed,
    /// The answer became too long: it was ended behind a sentence, or cut at its most tokens.
    Incomplete,
}
