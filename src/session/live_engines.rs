//! Engines that a reload may replace, for what is asked outside of any session.

use super::Engines;
use std::sync::{Arc, PoisonError, RwLock};

/// Engines that may be replaced by others while the server runs.
pub trait LiveEngines: Send + Sync {
    /// Those with which a new session would begin.
    fn now(self: Arc<Self>) -> Arc<Engines>;
}

/// They stay as they are.
impl LiveEngines for Engines {
    fn now(self: Arc<Self>) -> Arc<Engines> {
        self
    }
}

impl LiveEngines for RwLock<Arc<Engines>> {
    fn now(self: Arc<Self>) -> Arc<Engines> {
        self.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
