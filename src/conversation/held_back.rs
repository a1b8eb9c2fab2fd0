//! The generations whose output is held back, and the results that their server was given.

use super::assumed::Assumed;
use super::preempt::Preempt;
use super::tool_cache::ToolCache;

/// The generations that are held back.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    /// Until the end of the turn is certain.
    pub(super) preempt: Preempt,
    /// Until a call is committed.
    pub(super) assumed: Assumed,
    /// The results that the server of the current generation was given, whether its output is held back or not.
    pub(super) tool_cache: ToolCache,
}
