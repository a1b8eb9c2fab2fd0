//! `set_timer`, `list_timers`, `cancel_timer`, and the list they work on.

use super::{CURRENT, declare, lookup, text};
use crate::language::en::durations;
use crate::tools::{CallContext, Declaration, Effect, Tool, ToolError};
use futures_util::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// More than anybody can keep in mind; bounds what a session can hold.
const MOST: usize = 20;
/// A session lasts an hour at most by default; a day leaves room for longer ones.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// One running timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// 1, 2, 3 ... in the order of setting; never used twice in a session.
    pub id: u64,
    /// The user's name for it.
    pub label: Option<String>,
    /// From setting to ringing.
    pub length: Duration,
    /// When it rings.
    pub due: Instant,
}

impl Timer {
    /// The announcement when it rings: "Your 5 minute timer is done."
    pub fn announcement(&self) -> String {
        match &self.label {
            Some(label) => format!("Your {label} timer is done."),
            None => format!(
                "Your {} timer is done.",
                durations::in_words(self.length, false)
            ),
        }
    }

    fn describe(&self, now: Instant) -> Value {
        let left = self.due.saturating_duration_since(now);
        let mut result = json!({
            "id": self.id,
            "seconds": self.length.as_secs(),
            "remaining_seconds": left.as_millis().div_ceil(1000) as u64,
        });
        if let (Some(label), Some(result)) = (&self.label, result.as_object_mut()) {
            result.insert("label".into(), label.as_str().into());
        }
        result
    }
}

/// The timers to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The only one.
    Only,
    /// By its id.
    Id(u64),
    /// By its label, in any case.
    Label(String),
    /// By the length it was set to.
    Length(Duration),
    /// All of them.
    All,
}

/// An error of a timer that cannot be set or cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimerError {
    /// The list is full.
    #[error("there are already {0} timers, the maximum")]
    TooMany(usize),
    /// Shorter than a second or longer than a day.
    #[error("a timer can run from 1 second to 24 hours")]
    Length,
    /// No timer is running.
    #[error("no timer is running")]
    None,
    /// None of the running ones is meant.
    #[error("there is no such timer")]
    NoSuch,
    /// Several could be meant.
    #[error("there are {0} timers; say which one")]
    Ambiguous(usize),
}

#[derive(Debug, Default)]
struct List {
    timers: Vec<Timer>,
    last_id: u64,
}

/// A session's timers. The session sleeps until [`Timers::next_due`] and then announces what
/// [`Timers::take_due`] hands out.
#[derive(Debug, Default)]
pub struct Timers(Mutex<List>);

impl Timers {
    /// Starts a timer of `length` at `now`.
    ///
    /// # Errors
    /// [`TimerError::TooMany`] or [`TimerError::Length`].
    pub fn set(
        &self,
        length: Duration,
        label: Option<String>,
        now: Instant,
    ) -> Result<Timer, TimerError> {
        if length < Duration::from_secs(1) || length > LONGEST {
            return Err(TimerError::Length);
        }
        let mut list = self.lock();
        if list.timers.len() >= MOST {
            return Err(TimerError::TooMany(MOST));
        }
        list.last_id += 1;
        let timer = Timer {
            id: list.last_id,
            label,
            length,
            due: now + length,
        };
        list.timers.push(timer.clone());
        Ok(timer)
    }

    /// The running timers, the next to ring first.
    pub fn running(&self) -> Vec<Timer> {
        let mut timers = self.lock().timers.clone();
        timers.sort_by_key(|timer| (timer.due, timer.id));
        timers
    }

    /// Stops timers and returns them.
    ///
    /// # Errors
    /// [`TimerError`] if none or more than one is meant by a `which` that means one.
    pub fn cancel(&self, which: &Which) -> Result<Vec<Timer>, TimerError> {
        let mut list = self.lock();
        let meant = |timer: &Timer| match which {
            Which::Only | Which::All => true,
            Which::Id(id) => timer.id == *id,
            Which::Length(length) => timer.length == *length,
            Which::Label(wanted) => timer
                .label
                .as_deref()
                .is_some_and(|label| label.to_lowercase() == wanted.to_lowercase()),
        };
        let count = list.timers.iter().filter(|timer| meant(timer)).count();
        match count {
            _ if list.timers.is_empty() => Err(TimerError::None),
            0 => Err(TimerError::NoSuch),
            2.. if *which != Which::All => Err(TimerError::Ambiguous(count)),
            _ => Ok(list.timers.extract_if(.., |timer| meant(timer)).collect()),
        }
    }

    /// When the next timer rings.
    pub fn next_due(&self) -> Option<Instant> {
        self.lock().timers.iter().map(|timer| timer.due).min()
    }

    /// Removes and returns the timers that ring at `now` or earlier, in the order of ringing.
    pub fn take_due(&self, now: Instant) -> Vec<Timer> {
        let mut due: Vec<Timer> = self
            .lock()
            .timers
            .extract_if(.., |timer| timer.due <= now)
            .collect();
        due.sort_by_key(|timer| (timer.due, timer.id));
        due
    }

    /// Nothing under the lock can panic half-way, so a poisoned list is still whole.
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `set_timer{seconds, label?}`: `{id, label?, seconds, remaining_seconds}`.
pub struct SetTimer(Declaration);

impl Default for SetTimer {
    fn default() -> Self {
        let mut declaration = declare(
            "set_timer",
            "Starts a timer that rings after a length of time. It cannot ring at a time of day.",
            Effect::Reversible,
            json!({
                "type": "object",
                "properties": {
                    "seconds": {
                        "type": "integer", "minimum": 1, "maximum": LONGEST.as_secs(),
                        "description": "How long, in seconds."
                    },
                    "label": {
                        "type": "string", "maxLength": 60,
                        "description": "What the timer is for, if the user said so."
                    }
                },
                "required": ["seconds"],
                "additionalProperties": false
            }),
        );
        declaration.writes = vec!["timers".into()];
        Self(declaration)
    }
}

impl Tool for SetTimer {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let session = context.session.clone();
        Box::pin(async move {
            let seconds = arguments.get("seconds").and_then(whole).unwrap_or(0);
            let label = text(&arguments, "label").map(str::to_owned);
            let now = session.clock().instant();
            let timer = session
                .timers()
                .set(Duration::from_secs(seconds), label, now);
            timer.map(|timer| timer.describe(now)).map_err(failed)
        })
    }
}

/// `list_timers{}`: `{timers: [{id, label?, seconds, remaining_seconds}]}`, the next first.
pub struct ListTimers(Declaration);

impl Default for ListTimers {
    fn default() -> Self {
        let mut declaration = lookup(
            "list_timers",
            "The timers that are running, and how long each has left.",
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
            CURRENT,
        );
        declaration.reads = vec!["timers".into()];
        Self(declaration)
    }
}

impl Tool for ListTimers {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        _: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let session = &context.session;
        let now = session.clock().instant();
        Box::pin(ready(Ok(list(&session.timers().running(), now, "timers"))))
    }
}

/// `cancel_timer{id? | label? | seconds? | all?}`: `{cancelled: [...]}`. Without arguments it
/// means the only timer.
pub struct CancelTimer(Declaration);

impl Default for CancelTimer {
    fn default() -> Self {
        let mut declaration = declare(
            "cancel_timer",
            "Stops a timer. Name it by one of the arguments; with none, the only timer is meant.",
            Effect::Reversible,
            json!({
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "minimum": 1, "description": "The timer's id."},
                    "label": {"type": "string", "maxLength": 60, "description": "The timer's label."},
                    "seconds": {
                        "type": "integer", "minimum": 1,
                        "description": "The length that the timer was set to, in seconds."
                    },
                    "all": {"type": "boolean", "description": "Stop all timers."}
                },
                "maxProperties": 1,
                "additionalProperties": false
            }),
        );
        declaration.writes = vec!["timers".into()];
        Self(declaration)
    }
}

impl Tool for CancelTimer {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let session = context.session.clone();
        Box::pin(async move {
            let now = session.clock().instant();
            let stopped = session.timers().cancel(&which(&arguments));
            stopped
                .map(|timers| list(&timers, now, "cancelled"))
                .map_err(failed)
        })
    }
}

fn which(arguments: &Map<String, Value>) -> Which {
    let number = |name: &str| arguments.get(name).and_then(whole);
    if arguments.get("all") == Some(&Value::Bool(true)) {
        Which::All
    } else if let Some(id) = number("id") {
        Which::Id(id)
    } else if let Some(label) = text(arguments, "label") {
        Which::Label(label.to_owned())
    } else if let Some(seconds) = number("seconds") {
        Which::Length(Duration::from_secs(seconds))
    } else {
        Which::Only
    }
}

/// JSON Schema takes `300.0` for an integer.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().map(|v| v as u64))
}

fn list(timers: &[Timer], now: Instant, name: &str) -> Value {
    let timers: Vec<Value> = timers.iter().map(|timer| timer.describe(now)).collect();
    json!({ name: timers })
}

fn failed(error: TimerError) -> ToolError {
    ToolError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::SessionTools;

    const MINUTE: Duration = Duration::from_secs(60);

    #[expect(clippy::disallowed_methods, reason = "the paused clock is read")]
    fn now() -> Instant {
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn rings_in_order_and_once() {
        let timers = Timers::default();
        let start = now();
        timers.set(5 * MINUTE, None, start).unwrap();
        timers.set(MINUTE, Some("tea".into()), start).unwrap();
        assert_eq!(timers.next_due(), Some(start + MINUTE));
        tokio::time::sleep(10 * MINUTE).await;
        let rung = timers.take_due(now());
        let words: Vec<String> = rung.iter().map(Timer::announcement).collect();
        assert_eq!(
            words,
            ["Your tea timer is done.", "Your 5 minute timer is done."]
        );
        assert_eq!(timers.take_due(now()), []);
        assert_eq!(timers.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cancels_only_what_is_meant() {
        let (timers, now) = (Timers::default(), now());
        assert_eq!(timers.cancel(&Which::Only), Err(TimerError::None));
        timers.set(MINUTE, Some("Tea".into()), now).unwrap();
        timers.set(2 * MINUTE, None, now).unwrap();
        assert_eq!(timers.cancel(&Which::Only), Err(TimerError::Ambiguous(2)));
        assert_eq!(timers.cancel(&Which::Id(9)), Err(TimerError::NoSuch));
        assert_eq!(timers.cancel(&Which::Label("tea".into())).unwrap()[0].id, 1);
        assert_eq!(timers.cancel(&Which::Only).unwrap()[0].id, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_label_is_found_in_any_case_also_with_an_umlaut() {
        let (timers, now) = (Timers::default(), now());
        timers.set(MINUTE, Some("Äpfel".into()), now).unwrap();
        let stopped = timers.cancel(&Which::Label("äpfel".into()));
        assert_eq!(stopped.unwrap()[0].id, 1);
    }

    #[test]
    fn is_bounded() {
        let (timers, now) = (Timers::default(), now());
        assert_eq!(
            timers.set(Duration::ZERO, None, now),
            Err(TimerError::Length)
        );
        assert_eq!(
            timers.set(LONGEST + MINUTE, None, now),
            Err(TimerError::Length)
        );
        (0..MOST).for_each(|_| drop(timers.set(MINUTE, None, now).unwrap()));
        assert_eq!(timers.set(MINUTE, None, now), Err(TimerError::TooMany(20)));
        assert_eq!(timers.cancel(&Which::All).unwrap().len(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn the_tools_share_the_session_s_list() {
        let context = CallContext::new(SessionTools::default(), "key");
        let set = json!({"seconds": 90, "label": "eggs"})
            .as_object()
            .cloned()
            .unwrap();
        let timer = SetTimer::default().call(set, &context).await.unwrap();
        assert_eq!(
            timer,
            json!({"id": 1, "seconds": 90, "remaining_seconds": 90, "label": "eggs"})
        );
        tokio::time::sleep(MINUTE).await;
        let all = ListTimers::default()
            .call(Map::new(), &context)
            .await
            .unwrap();
        assert_eq!(all["timers"][0]["remaining_seconds"], 30);
        let gone = CancelTimer::default()
            .call(Map::new(), &context)
            .await
            .unwrap();
        assert_eq!(gone["cancelled"][0]["label"], "eggs");
        let none = CancelTimer::default()
            .call(Map::new(), &context)
            .await
            .unwrap_err();
        assert_eq!(none.to_string(), "no timer is running");
    }
}
