//! The journal of calls that change something: a call is recorded before it runs, and its result
//! after it. So a call runs at most once, whatever is retried, reconnects or crashes.
//!
//! The rules are here. A [`JournalStore`] keeps the records: [`JournalFile`] in a file of this
//! machine, [`JournalShared`] in a store that several servers share.

mod figures;
mod file;
mod shared;

pub use figures::JournalFigures;
pub use file::JournalFile;
pub use shared::JournalShared;

use super::{Same, ToolError};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The result for the model of a call that could not be recorded and so did not run.
pub(super) const NOT_DONE: &str =
    "it was not done, because no record of changes can be kept at the moment; it may work later";

/// The result of a call that was begun before and has no result.
pub(super) const UNKNOWN: &str =
    "it was begun before and interrupted; whether it took effect is not known";

/// The field that marks the result of a change that was made before.
pub(crate) const ALREADY_DONE: &str = "already_done";

/// How often it is looked whether a call that runs elsewhere has its result.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// An error of the journal. No call may run without it.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("the journal {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A device, a pipe or a folder: reading it may never end.
    #[error("the journal {} is not a regular file", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// A store elsewhere does not work.
    #[error("the journal's store: {0}")]
    Store(String),
    /// One key for two different calls.
    #[error("the key {0} belongs to another call")]
    KeyReused(String),
    /// A result without an intent, or a second one.
    #[error("no call with the key {0} is running")]
    NotBegun(String),
    /// The thread that was writing has panicked.
    #[error("the journal's thread has panicked")]
    Panicked,
}

/// A call that is about to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Intent {
    /// Unlike any other call's.
    pub key: String,
    /// The call's key within its session, if `key` names the change that it makes.
    pub call: Option<String>,
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// When it was begun.
    pub time: Timestamp,
    /// How long it counts as the change that it is: the records of earlier attempts are kept as long, because each leads
    /// to the next. `None` if it is no such change.
    pub span: Option<Duration>,
}

/// A call that was begun.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// When it was begun.
    pub time: Timestamp,
    /// Its result, once there is one.
    pub result: Option<Result<Value, ToolError>>,
    /// How long ago that was at most, by a clock that does not jump; `None` if the store does not know.
    pub age: Option<Duration>,
}

impl Record {
    /// How long ago it was begun. A clock that was set back, or forward, makes nothing older than it is.
    fn age(&self, now: Timestamp) -> Duration {
        let by_day = Duration::try_from(now.duration_since(self.time)).unwrap_or_default();
        self.age.map_or(by_day, |age| age.min(by_day))
    }
}

/// A result as it is recorded. One of a newer version of the server may have a form that is unknown here: it is written
/// back as it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Recorded {
    Known(Result<Value, ToolError>),
    Newer(Value),
}

impl Recorded {
    /// The result. The call has run, so one that cannot be read says that the change may have been made.
    fn read(self, tool: &str) -> Result<Value, ToolError> {
        match self {
            Self::Known(result) => result,
            Self::Newer(_) => {
                tracing::warn!(
                    tool,
                    "the result of a call is in a form of a newer version of the server: it counts as unknown"
                );
                let why = "its result was recorded by a newer version of the server";
                Err(ToolError::Uncertain(why.into()))
            }
        }
    }
}

/// Keeps the records of calls.
pub trait JournalStore: Send + Sync {
    /// Records that a call is about to run, unless there is a record with its key: that is returned
    /// then, and nothing changes. `None` means that the intent will outlive a crash, and that nobody
    /// else has begun a call with this key or ever will.
    ///
    /// # Errors
    /// [`JournalError`] if the intent may be lost.
    fn begin(&self, intent: Intent) -> BoxFuture<'static, Result<Option<Record>, JournalError>>;

    /// Adds the result to the record of a call that was begun. If it cannot be written now it is
    /// written as soon as it can; should the server end before that, the call counts as unknown.
    ///
    /// # Errors
    /// [`JournalError::NotBegun`] without such a call, or if it has a result; any other if the result
    /// is not written yet.
    fn finish(
        &self,
        key: String,
        result: Result<Value, ToolError>,
        now: Timestamp,
    ) -> BoxFuture<'static, Result<(), JournalError>>;
}

/// The journal's knowledge of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// Nothing: its intent is recorded now, and it may run.
    Started,
    /// It ran, with this result.
    Done(Result<Value, ToolError>),
    /// It was begun and its end is not known: it runs still, or the server died meanwhile. It must
    /// not run again.
    Unknown,
}

/// The journal. Clones are the same one.
#[derive(Clone)]
pub struct Journal(Arc<dyn JournalStore>);

impl Journal {
    /// A journal whose records are in `store`.
    pub fn new(store: impl JournalStore + 'static) -> Self {
        Self(Arc::new(store))
    }

    /// Records that a call is about to run, unless it is known already.
    ///
    /// # Errors
    /// [`JournalError`]; the call must not run then.
    pub async fn begin(&self, intent: Intent) -> Result<Begun, JournalError> {
        let Some(record) = self.0.begin(intent.clone()).await? else {
            return Ok(Begun::Started);
        };
        if (record.tool, record.arguments) != (intent.tool, intent.arguments) {
            return Err(JournalError::KeyReused(intent.key));
        }
        Ok(record.result.map_or(Begun::Unknown, Begun::Done))
    }

    /// Runs `call` unless the call with this key ran before, and gives its result, from the journal
    /// if it did. A call that was interrupted is not run again, and that is what the error says.
    /// `call` is not polled before its intent is recorded. If the future is dropped meanwhile, the
    /// call counts as [`Begun::Unknown`].
    ///
    /// # Errors
    /// The call's own, or [`ToolError::Failed`].
    pub async fn once(
        &self,
        key: &str,
        tool: &str,
        arguments: &Map<String, Value>,
        now: impl Fn() -> Timestamp,
        call: impl Future<Output = Result<Value, ToolError>>,
    ) -> Result<Value, ToolError> {
        let intent = Intent {
            key: key.to_owned(),
            call: None,
            tool: tool.to_owned(),
            arguments: arguments.clone(),
            time: now(),
            span: None,
        };
        match self
            .begin(intent)
            .await
            .map_err(|error| not_done(&error, tool))?
        {
            Begun::Done(result) => return result,
            Begun::Unknown => return Err(ToolError::Failed(UNKNOWN.into())),
            Begun::Started => {}
        }
        let result = call.await;
        self.finish(key, tool, &result, now()).await;
        result
    }

    /// Runs `call`, whose key within its session is `own`, with its idempotency key unless the change `same` was made within
    /// its span: then the old result is given, with the field `already_done`. A call that is still running is waited for. One that
    /// failed may be made again; one whose end is not known only if the tool takes idempotency keys.
    ///
    /// # Errors
    /// The call's own, or [`ToolError::Failed`].
    pub async fn once_per<F>(
        &self,
        same: &Same,
        own: &str,
        tool: &str,
        arguments: &Map<String, Value>,
        now: impl Fn() -> Timestamp,
        call: impl FnOnce(String) -> F,
    ) -> Result<Value, ToolError>
    where
        F: Future<Output = Result<Value, ToolError>>,
    {
        let (mut key, mut idempotency_key) = (same.key.clone(), same.key.clone());
        let mut attempt = 0_u32;
        let mut waited = Duration::ZERO;
        loop {
            let intent = Intent {
                key: key.clone(),
                call: Some(own.to_owned()),
                tool: tool.to_owned(),
                arguments: arguments.clone(),
                time: now(),
                span: Some(same.span),
            };
            let begun = self.0.begin(intent).await;
            let Some(record) = begun.map_err(|error| not_done(&error, tool))? else {
                break;
            };
            let age = record.age(now());
            let is_over = age > same.span;
            let (is_unknown, keeps_key) = match record.result {
                _ if is_over => (false, false),
                Some(Ok(result)) => return Ok(already(result)),
                Some(Err(
                    ToolError::Broken(_)
                    | ToolError::Uncertain(_)
                    | ToolError::Unanswered(_)
                    | ToolError::Timeout(_),
                )) => (true, true),
                // An attempt before it may have taken effect under the key.
                Some(Err(ToolError::NotBegun(_))) => (false, true),
                Some(Err(_)) => (false, false),
                // By the clock it may have been begun in the future.
                None if age < same.takes && waited < same.takes => {
                    tokio::time::sleep(LOOK_EVERY).await;
                    waited += LOOK_EVERY;
                    continue;
                }
                None => (true, true),
            };
            if is_unknown && !same.is_keyed {
                return Err(ToolError::Failed(UNKNOWN.into()));
            }
            attempt += 1;
            key = nth_attempt(&same.key, attempt);
            if !keeps_key {
                idempotency_key.clone_from(&key);
            }
        }
        let result = call(idempotency_key).await;
        self.finish(&key, tool, &result, now()).await;
        result
    }

    async fn finish(
        &self,
        key: &str,
        tool: &str,
        result: &Result<Value, ToolError>,
        now: Timestamp,
    ) {
        let recorded = self.0.finish(key.to_owned(), result.clone(), now);
        if let Err(error) = recorded.await {
            // The call has run: its result is the truth, whatever the store says.
            tracing::error!(
                %error, tool,
                "the result of a call could not be journalled: it is written later, if the server does not end before"
            );
        }
    }
}

/// The beginning of the keys of changes that `once_per` names.
pub(super) const ONCE: &str = "once-";

/// The key of the change `key` when it is made again.
fn nth_attempt(key: &str, attempt: u32) -> String {
    format!("{key}-{attempt}")
}

/// The keys of the earlier attempts at a change.
fn earlier_attempts(key: &str) -> Vec<String> {
    let of_change = key
        .strip_prefix(ONCE)
        .and_then(|change| change.split_once('-'));
    let Some((change, Ok(attempt))) = of_change.map(|(change, n)| (change, n.parse())) else {
        return Vec::new();
    };
    let first = format!("{ONCE}{change}");
    let others = (1..attempt).map(|attempt| nth_attempt(&first, attempt));
    std::iter::once(first.clone()).chain(others).collect()
}

/// Warns about a call that was interrupted. Its arguments stay in the journal, because people said them.
pub(crate) fn warn_of_unknown(key: &str, tool: &str, begun: Timestamp, journal: &str) {
    tracing::warn!(
        key, tool, %begun, journal,
        "a call that changes something has no result: whether it took effect is not known, and it is not run again"
    );
}

fn not_done(error: &JournalError, tool: &str) -> ToolError {
    tracing::error!(%error, tool, "a call that changes something was not made");
    ToolError::Failed(NOT_DONE.into())
}

/// The result of a change that was made before.
fn already(result: Value) -> Value {
    let mark = "This was already done before, and was not done again. Tell the user so.";
    match result {
        Value::Object(mut fields) => {
            fields.insert(ALREADY_DONE.into(), mark.into());
            Value::Object(fields)
        }
        other => json!({"result": other, ALREADY_DONE: mark}),
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Journal").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::sync::Mutex;
    use tokio::sync::oneshot;

    /// A store elsewhere, which several servers use and which answers only when its task runs.
    #[derive(Clone, Default)]
    struct Scripted {
        records: Arc<Mutex<HashMap<String, Record>>>,
        down: bool,
    }

    impl Scripted {
        async fn answer(&self) -> Result<(), JournalError> {
            tokio::task::yield_now().await;
            match self.down {
                true => Err(JournalError::Store("unreachable".into())),
                false => Ok(()),
            }
        }
    }

    impl JournalStore for Scripted {
        fn begin(
            &self,
            intent: Intent,
        ) -> BoxFuture<'static, Result<Option<Record>, JournalError>> {
            let store = self.clone();
            Box::pin(async move {
                store.answer().await?;
                let mut records = store.records.lock().unwrap();
                if let Some(known) = records.get(&intent.key) {
                    return Ok(Some(known.clone()));
                }
                let record = Record {
                    tool: intent.tool,
                    arguments: intent.arguments,
                    time: intent.time,
                    result: None,
                    age: None,
                };
                records.insert(intent.key, record);
                Ok(None)
            })
        }

        fn finish(
            &self,
            key: String,
            result: Result<Value, ToolError>,
            _: Timestamp,
        ) -> BoxFuture<'static, Result<(), JournalError>> {
            let store = self.clone();
            Box::pin(async move {
                store.answer().await?;
                let mut records = store.records.lock().unwrap();
                let record = records.get_mut(&key);
                match record.filter(|record| record.result.is_none()) {
                    Some(record) => record.result = Some(result),
                    None => return Err(JournalError::NotBegun(key)),
                }
                Ok(())
            })
        }
    }

    async fn once(
        journal: &Journal,
        key: &str,
        call: impl Future<Output = Result<Value, ToolError>>,
    ) -> Result<Value, ToolError> {
        let now = || Timestamp::UNIX_EPOCH;
        journal.once(key, "book", &Map::new(), now, call).await
    }

    fn is_unknown(result: &Result<Value, ToolError>) -> bool {
        matches!(result, Err(ToolError::Failed(reason)) if reason.contains("not known"))
    }

    #[tokio::test]
    async fn once_runs_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let file = JournalFile::open(&path, Timestamp::UNIX_EPOCH).unwrap();
        for journal in [Journal::new(file), Journal::new(Scripted::default())] {
            let runs = Cell::new(0);
            let run = || async {
                runs.set(runs.get() + 1);
                Ok(json!(runs.get()))
            };
            for _ in 0..3 {
                assert_eq!(once(&journal, "k", run()).await, Ok(json!(1)));
            }
            // A call that is given up halfway is not run again.
            let (began, begins) = oneshot::channel();
            let endless = async {
                began.send(()).unwrap();
                std::future::pending().await
            };
            tokio::select! {
                _ = once(&journal, "dropped", endless) => unreachable!(),
                begun = begins => begun.unwrap(),
            }
            assert!(is_unknown(&once(&journal, "dropped", run()).await));
            assert_eq!(runs.get(), 1);
        }
    }

    /// A call at `second` that ends with `result`; also the idempotency key, if it runs.
    async fn again(
        journal: &Journal,
        is_keyed: bool,
        second: i64,
        result: Result<Value, ToolError>,
    ) -> (Result<Value, ToolError>, Option<String>) {
        let ran = Cell::new(None);
        let now = || Timestamp::from_second(second).unwrap();
        let call = |key: String| {
            ran.set(Some(key));
            std::future::ready(result)
        };
        let (same, arguments) = (same(is_keyed), Map::new());
        let once = journal.once_per(&same, "s-call_1", "book", &arguments, now, call);
        (once.await, ran.take())
    }

    fn same(is_keyed: bool) -> Same {
        Same {
            key: "k".into(),
            span: Duration::from_secs(60),
            takes: Duration::from_secs(5),
            is_keyed,
        }
    }

    #[tokio::test]
    async fn a_change_is_made_once_within_its_span() {
        let journal = Journal::new(Scripted::default());
        let at = async |second, result| again(&journal, false, second, result).await;
        let refused = Err(ToolError::Failed("no room is free".into()));
        assert_eq!(at(0, refused.clone()).await.0, refused);
        let (first, key) = at(10, Ok(json!({"room": 7}))).await;
        assert_eq!(
            (first, key.as_deref()),
            (Ok(json!({"room": 7})), Some("k-1"))
        );
        let (second, ran) = at(70, Ok(json!({"room": 8}))).await;
        let second = second.unwrap();
        assert_eq!((&second["room"], ran), (&json!(7), None));
        assert!(second["already_done"].as_str().unwrap().contains("already"));
        let (later, key) = at(71, Ok(json!({"room": 9}))).await;
        assert_eq!(
            (later, key.as_deref()),
            (Ok(json!({"room": 9})), Some("k-2"))
        );
    }

    #[tokio::test]
    async fn a_change_that_could_not_begin_may_be_made_again() {
        let journal = Journal::new(Scripted::default());
        let unreached = Err(ToolError::NotBegun("connection refused".into()));
        assert_eq!(
            again(&journal, false, 0, unreached.clone()).await.0,
            unreached
        );
        let (second, key) = again(&journal, false, 10, Ok(json!(1))).await;
        assert_eq!((second, key.as_deref()), (Ok(json!(1)), Some("k")));
    }

    #[tokio::test]
    async fn an_attempt_that_could_not_begin_leaves_the_idempotency_key() {
        let journal = Journal::new(Scripted::default());
        let late = Err(ToolError::Timeout(5));
        let unreached = Err(ToolError::NotBegun("connection refused".into()));
        for (second, result) in [(0, late), (10, unreached), (20, Ok(json!(1)))] {
            let (_, key) = again(&journal, true, second, result).await;
            assert_eq!(key.as_deref(), Some("k"));
        }
    }

    #[tokio::test]
    async fn a_change_over_a_connection_that_broke_is_not_made_again() {
        for lost in [
            ToolError::Uncertain("connection reset".into()),
            ToolError::Unanswered(5),
        ] {
            let (journal, lost) = (Journal::new(Scripted::default()), Err(lost));
            assert_eq!(again(&journal, false, 0, lost.clone()).await.0, lost);
            let (second, key) = again(&journal, false, 10, Ok(json!(1))).await;
            assert!(is_unknown(&second) && key.is_none());
        }
    }

    #[tokio::test]
    async fn a_change_whose_end_is_not_known_is_made_again_only_with_its_key() {
        let late = Err(ToolError::Timeout(5));
        for is_keyed in [false, true] {
            let journal = Journal::new(Scripted::default());
            assert_eq!(again(&journal, is_keyed, 0, late.clone()).await.0, late);
            let (second, key) = again(&journal, is_keyed, 10, Ok(json!(1))).await;
            match is_keyed {
                true => assert_eq!((second, key.as_deref()), (Ok(json!(1)), Some("k"))),
                false => assert!(is_unknown(&second) && key.is_none()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_being_made_is_waited_for() {
        let journal = Journal::new(Scripted::default());
        let (begins, began) = oneshot::channel();
        let now = || Timestamp::UNIX_EPOCH;
        let (same, arguments) = (same(false), Map::new());
        let slow = |_| async {
            begins.send(()).unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(json!({"room": 7}))
        };
        let first = journal.once_per(&same, "s-call_1", "book", &arguments, now, slow);
        let second = async {
            began.await.unwrap();
            again(&journal, false, 1, Ok(json!("twice"))).await
        };
        let (first, (second, ran)) = tokio::join!(first, second);
        assert_eq!(first, Ok(json!({"room": 7})));
        assert_eq!((&second.unwrap()["room"], ran), (&json!(7), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_lets_no_change_be_made_twice() {
        let journal = Journal::new(Scripted::default());
        let day = 24 * 60 * 60;
        let done = Ok(json!({"room": 7}));
        again(&journal, false, day, done.clone()).await.0.unwrap();
        let (told, ran) = again(&journal, false, 10, done.clone()).await;
        assert_eq!((&told.unwrap()["room"], ran), (&json!(7), None));

        // One that was interrupted is waited for, but not until the clock has caught up.
        let journal = Journal::new(Scripted::default());
        let (same, arguments) = (same(false), Map::new());
        let (begun, begins) = oneshot::channel();
        let endless = |_| async {
            begun.send(()).unwrap();
            std::future::pending().await
        };
        let now = || Timestamp::from_second(day).unwrap();
        tokio::select! {
            _ = journal.once_per(&same, "s-call_1", "book", &arguments, now, endless) => unreachable!(),
            begun = begins => begun.unwrap(),
        }
        let (told, ran) = again(&journal, false, 10, done).await;
        assert!(is_unknown(&told), "{told:?}");
        assert_eq!(ran, None);
    }

    #[tokio::test]
    async fn a_call_that_was_begun_at_one_server_is_not_run_at_another() {
        let store = Scripted::default();
        let (here, there) = (Journal::new(store.clone()), Journal::new(store));
        let runs = Cell::new(0);
        let elsewhere = || async {
            runs.set(runs.get() + 1);
            Ok(Value::Null)
        };
        let meanwhile = async {
            assert!(is_unknown(&once(&there, "k", elsewhere()).await));
            Ok(json!("booked"))
        };
        assert_eq!(once(&here, "k", meanwhile).await, Ok(json!("booked")));
        let again = once(&there, "k", elsewhere()).await;
        assert_eq!((again, runs.get()), (Ok(json!("booked")), 0));
    }

    #[tokio::test]
    async fn without_its_store_no_call_is_made() {
        let down = Scripted {
            down: true,
            ..Scripted::default()
        };
        let never = async { panic!("it ran") };
        let result = once(&Journal::new(down), "k", never).await;
        assert_eq!(result, Err(ToolError::Failed(NOT_DONE.into())));
    }
}
