//! How sessions, confirmations and responses end.

use serde::{Deserialize, Serialize};

/// The reason for a session's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HangUpReason {
    /// The session was idle for too long.
    Idle,
    /// The session reached its maximum length.
    TooLong,
    /// The server is shutting down.
    Shutdown,
    /// The agent ended the session, and its goodbye was heard.
    AgentEnded,
    /// A tool transferred the call to somebody else.
    HandedOver,
    /// An answering machine took a call that the server had placed.
    Machine,
    /// The caller could not be heard.
    Unheard,
}

/// How the wait for a confirmation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationOutcome {
    /// The user said yes: the call runs.
    Accepted,
    /// The user said no.
    Declined,
    /// The user said something else or spoke over the question, the agent said something after it, or it
    /// could not be spoken.
    Abandoned,
    /// No answer came in time.
    Expired,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// The whole answer was spoken.
    Completed,
    /// The user spoke over it.
    Interrupted,
    /// The client cancelled it.
    Cancelled,
    /// The language model or the voice failed; an apology was spoken.
    Failed,
    /// The answer was too long: it was ended after a sentence, or cut at its token limit.
    Incomplete,
}
