//! The session's data that tools may read and change.

use super::builtin::Timers;
use jiff::{Timestamp, tz::TimeZone};
use std::sync::Arc;
use tokio::time::Instant;

/// Where tools read the time, so that tests can set it.
pub trait Clock: Send + Sync {
    /// The time of day.
    fn now(&self) -> Timestamp;

    /// Time that only moves forward, for timers.
    #[allow(clippy::disallowed_methods, reason = "the clock itself")]
    fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the clock itself")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// One session's state as tools see it: its clock, its time zone, its timers. Clones share it.
#[derive(Clone)]
pub struct SessionTools(Arc<State>);

struct State {
    clock: Arc<dyn Clock>,
    zone: TimeZone,
    timers: Timers,
    call: Option<String>,
}

impl SessionTools {
    /// A session that takes `zone` for the user's and has no timers yet.
    pub fn new(zone: TimeZone, clock: Arc<dyn Clock>) -> Self {
        Self::of_call(zone, clock, None)
    }

    /// The same for a telephone call, by the name that its provider gives it.
    pub fn of_call(zone: TimeZone, clock: Arc<dyn Clock>, call: Option<String>) -> Self {
        Self(Arc::new(State {
            clock,
            zone,
            timers: Timers::default(),
            call,
        }))
    }

    /// The clock.
    pub fn clock(&self) -> &dyn Clock {
        self.0.clock.as_ref()
    }

    /// The zone meant when no place is named.
    pub fn zone(&self) -> &TimeZone {
        &self.0.zone
    }

    /// The telephone call that this is, if its provider can put it through to others.
    pub fn call(&self) -> Option<&str> {
        self.0.call.as_deref()
    }

    /// The session's timers.
    pub fn timers(&self) -> &Timers {
        &self.0.timers
    }
}

/// The machine's clock and zone.
impl Default for SessionTools {
    fn default() -> Self {
        Self::new(TimeZone::system(), Arc::new(SystemClock))
    }
}

impl std::fmt::Debug for SessionTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionTools")
            .field("zone", &self.0.zone)
            .field("timers", &self.0.timers)
            .finish_non_exhaustive()
    }
}
