//! The generations whose output nobody hears yet.

use super::assumed::Assumed;
use super::preempt::Preempt;

/// The generations that are held back.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    /// Until the end of the turn is certain.
    pub(super) preempt: Preempt,
    /// Until a call is committed.
    pub(super) assumed: Assumed,
}
