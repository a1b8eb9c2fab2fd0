//! Lessons that sessions pass on to each other, kept in memory until the server ends.

use crate::conversation::{Experience, Lesson, Policy};
use std::sync::{Mutex, PoisonError};

/// The experience of all sessions of this server.
#[derive(Debug, Default)]
pub(super) struct SharedExperience(Mutex<Experience>);

impl SharedExperience {
    /// The lessons that a session with these rules begins with.
    pub(super) fn of(&self, policy: &Policy) -> Experience {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.of(policy)
    }

    /// Adds what a session has learned.
    pub(super) fn learn(&self, lessons: Vec<Lesson>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lessons.into_iter().for_each(|lesson| known.learn(lesson));
    }
}
