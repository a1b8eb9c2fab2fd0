//! Virtual time: events come in the order in which they are due, and nothing sleeps.

use crate::time::{Micros, Time};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Clock<E> {
    pub(super) now: Time,
    counter: u64,
    due: BTreeMap<(Time, u64), E>,
}

impl<E> Clock<E> {
    pub(super) fn new() -> Self {
        Self {
            now: Time(0),
            counter: 0,
            due: BTreeMap::new(),
        }
    }

    /// Schedules an event. Of two at the same time, the one that was scheduled first comes first.
    pub(super) fn after(&mut self, wait: Micros, event: E) {
        self.counter += 1;
        self.due.insert((self.now + wait, self.counter), event);
    }

    /// The time at which the next event is due.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Drops everything that is due.
    pub(super) fn forget(&mut self) {
        self.due.clear();
    }

    /// Takes the next event and sets the clock to its time.
    pub(super) fn next(&mut self) -> Option<E> {
        let ((at, _), event) = self.due.pop_first()?;
        self.now = at;
        Some(event)
    }
}

/// A span of this many seconds, to the nearest microsecond.
pub(super) fn seconds(seconds: f64) -> Micros {
    Micros((seconds * 1e6).round() as u64)
}

pub(super) fn as_seconds(span: Micros) -> f64 {
    span.0 as f64 / 1e6
}
