//! Identifiers. A result that carries a dead identifier is dropped; that is what makes the
//! conversation correct, cancellation only saves work.

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
    /// One turn: what the user said and everything the agent does about it.
    TurnId, "turn_"
);
id!(
    /// One job given to the shell: a transcription, an end-of-turn score, a generation.
    RequestId, "req_"
);
id!(
    /// One clause of speech: the unit of synthesis and of playout.
    ClauseId, "clause_"
);
id!(
    /// One tool call, and the key that joins it with its result.
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

/// The first number of those that clients choose; the session counts up from one and never gets
/// there.
const CLIENTS: u64 = 1 << 52;

impl ItemId {
    /// The `n`th id that a client's side chooses, for an item that it adds.
    pub fn of_client(n: u64) -> Self {
        Self(CLIENTS + n)
    }
}

impl CallId {
    /// The `n`th id that a client's side chooses, for a call that it adds to the history.
    pub fn of_client(n: u64) -> Self {
        Self(CLIENTS + n)
    }
}
