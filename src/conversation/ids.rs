//! Identifiers. A result with a dead identifier is dropped. That makes the conversation correct; cancellation
//! only saves work.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// One turn: the user's words and everything that the agent does in reply.
    TurnId, "turn_"
);
id!(
    /// One job for the shell: a transcription, an end-of-turn score, a generation, or a request to the
    /// prediction sources.
    RequestId, "req_"
);
id!(
    /// One clause of speech: the unit of synthesis and of playout.
    ClauseId, "clause_"
);
id!(
    /// One tool call. It also identifies the result.
    CallId, "call_"
);
id!(
    /// One entry of the history.
    ItemId, "item_"
);
id!(
    /// One run of a tool, predicted or committed.
    RunId, "run_"
);

/// The first id for items and calls from clients. The session's own ids count up from one and never get
/// there.
const CLIENTS: u64 = 1 << 52;

impl ItemId {
    /// The `n`th id for items that a client adds, chosen by its transport.
    pub fn of_client(n: u64) -> Self {
        Self(CLIENTS + n)
    }
}

impl CallId {
    /// The `n`th id for calls that a client adds to the history, chosen by its transport.
    pub fn of_client(n: u64) -> Self {
        Self(CLIENTS + n)
    }
}

/// A job of the shell, named when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Voice activity detection.
    Detection,
    /// A transcription.
    Transcription(RequestId),
    /// An end-of-turn score.
    Completeness(RequestId),
    /// A generation of the language model.
    Generation(RequestId),
    /// The synthesis of a clause.
    Synthesis(ClauseId),
}
