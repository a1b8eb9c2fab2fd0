//! The session's data that tools may read and change.

use super::SessionValues;
use super::builtin::Timers;
use super::values::{Found, Origin};
use futures_util::future::{BoxFuture, Shared, join_all};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::{mpsc, oneshot};
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

/// A lookup that is under way or done: its result, with the origin of what it was asked with.
pub(crate) type Lookup = Shared<BoxFuture<'static, Option<(Value, Origin)>>>;

/// One session's state as tools see it: its clock, its time zone, its timers. Clones share it.
#[derive(Clone)]
pub struct SessionTools(Arc<State>);

struct State {
    clock: Arc<dyn Clock>,
    zone: TimeZone,
    timers: Timers,
    call: Option<String>,
    values: SessionValues,
    lookups: OnceLock<BTreeMap<String, Lookup>>,
    keypad: OnceLock<mpsc::Sender<KeyPress>>,
}

/// Keys that a tool presses.
#[derive(Debug)]
pub(crate) struct KeyPress {
    /// Keys, and `w` for a wait of half a second.
    pub(crate) keys: String,
    /// Told when they have sounded.
    pub(crate) done: oneshot::Sender<()>,
}

impl SessionTools {
    /// A session that takes `zone` for the user's, has no timers yet and knows nothing of its caller.
    pub fn new(zone: TimeZone, clock: Arc<dyn Clock>) -> Self {
        Self::of_call(zone, clock, None, SessionValues::default())
    }

    /// A session for a telephone call: `call` is the provider's id, `values` is what is known of the caller.
    pub fn of_call(
        zone: TimeZone,
        clock: Arc<dyn Clock>,
        call: Option<String>,
        values: SessionValues,
    ) -> Self {
        Self(Arc::new(State {
            clock,
            zone,
            timers: Timers::default(),
            call,
            values,
            lookups: OnceLock::new(),
            keypad: OnceLock::new(),
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

    /// The facts on the caller.
    pub fn values(&self) -> &SessionValues {
        &self.0.values
    }

    /// Sets the way to the keys of the session's telephone line, once.
    pub(crate) fn press_at(&self, keypad: mpsc::Sender<KeyPress>) {
        let _ = self.0.keypad.set(keypad);
    }

    /// Presses keys of the session's telephone line, and waits until they have sounded. `false` if there is no line, or none
    /// any more.
    pub(crate) async fn press(&self, keys: String) -> bool {
        let (done, sounded) = oneshot::channel();
        let Some(keypad) = self.0.keypad.get() else {
            return false;
        };
        keypad.try_send(KeyPress { keys, done }).is_ok() && sounded.await.is_ok()
    }

    /// Sets the lookups, once.
    pub(crate) fn look_up(&self, lookups: BTreeMap<String, Lookup>) {
        let _ = self.0.lookups.set(lookups);
    }

    /// Waits for the lookups. One that has failed is absent.
    pub(crate) async fn found(&self) -> Found {
        let lookups = self.0.lookups.get().into_iter().flatten();
        let results =
            lookups.map(async |(name, lookup)| Some((name.clone(), lookup.clone().await?)));
        join_all(results).await.into_iter().flatten().collect()
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
