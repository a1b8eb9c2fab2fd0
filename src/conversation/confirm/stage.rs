//! The stages of a question.

use crate::conversation::ids::ClauseId;
use crate::time::Time;

/// The stage of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is being spoken.
    Asking(Spoken),
    /// A sound that may be noise has interrupted it, or the client is away.
    CutShort(Spoken),
    /// All of it was sent.
    Asked(Window),
}

/// How much of the question has been spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    /// Nothing. Its clauses have larger ids than this.
    After(ClauseId),
    /// Some of it, so a key may answer it.
    Partly,
}

/// The time in which a yes counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// When the question has been heard.
    pub(super) heard: Time,
    /// When a yes no longer counts.
    pub(super) expires: Time,
    /// A yes was typed, and the client has not requested a response yet.
    pub(super) accepted: bool,
}
