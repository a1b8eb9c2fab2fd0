//! The journal in a store that several servers share: a call that one of them has begun is begun by no
//! other.
//!
//! A record is there from the call's intent on, and its result is added to it. While the store does not
//! answer, no call is begun; the results of those that have run are kept here until it does. If the answer to
//! an intent is lost, the call does not run, and what may have been recorded of it is taken back later, for some
//! minutes, since the store may get the intent late.
//!
//! The calls without a result are listed in a set. One whose server is not alive any more was interrupted; each
//! server reports it once.

use super::{
    Intent, JournalError, JournalFigures, JournalStore, Record, Recorded, earlier_attempts,
    warn_of_unknown,
};
use crate::store::{self, Store, StoreError};
use crate::tools::ToolError;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use redis::{FromRedisValue, cmd};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

/// Finished calls are kept for a day, as in a file.
const KEEP_RESULTS: Duration = Duration::from_hours(24);
/// Calls whose end is unknown, for a month.
const KEEP_UNKNOWN: Duration = Duration::from_hours(24 * 30);

/// How often it is looked for interrupted calls. One is reported if its server was gone twice in a row, so that
/// servers that were kept from showing themselves have the time to do so.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often an intent is taken back, once each look: for five minutes. TCP sends on for about two what a closed
/// connection has left.
const TAKE_BACKS: u32 = 60;

/// The most calls without a result that are looked at.
const MOST_OPEN: usize = 10_000;

/// Records an intent unless there is a record, which is returned then. The records of earlier attempts, the further
/// keys, are kept as long as this one counts.
const BEGIN: &str = "
    if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
        for at = 3, #KEYS do
            if redis.call('PTTL', KEYS[at]) < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[at], ARGV[4]) end
        end
        redis.call('SADD', KEYS[2], ARGV[3])
        return false
    end
    return redis.call('GET', KEYS[1])";

/// Puts a record with its result in the place of the one without.
const FINISH: &str = "
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    redis.call('SREM', KEYS[2], ARGV[3])
    return 1";

/// Takes back an intent whose call did not run.
const TAKE_BACK: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then
        redis.call('DEL', KEYS[1])
        redis.call('SREM', KEYS[2], ARGV[2])
    end
    return 1";

/// Strikes a call off the open ones if it has no record any more, because its time is over.
const STRIKE_OFF: &str = "
    if redis.call('EXISTS', KEYS[1]) == 0 then
        redis.call('SREM', KEYS[2], ARGV[1])
    end
    return 1";

/// The form of a record in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    /// The run of the server that has begun the call.
    server: String,
    /// Unlike any other intent's, so that its server knows its own again.
    lease: String,
    time: Timestamp,
    tool: String,
    arguments: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Recorded>,
}

impl Kept {
    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn read(text: &str) -> Result<Self, JournalError> {
        let broken = |error| JournalError::Store(format!("a record that cannot be read: {error}"));
        serde_json::from_str(text).map_err(broken)
    }

    fn record(self) -> Record {
        Record {
            result: self.result.map(|result| result.read(&self.tool)),
            tool: self.tool,
            arguments: self.arguments,
            time: self.time,
            age: None,
        }
    }
}

impl From<StoreError> for JournalError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

/// A journal in a store. Clones are the same one.
#[derive(Debug, Clone)]
pub struct JournalShared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    figures: JournalFigures,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The calls that run here, by key.
    running: HashMap<String, Kept>,
    /// Records with results that the store does not have yet, by key.
    unwritten: HashMap<String, Kept>,
    /// Keys of intents that the store may have although their calls did not run, by the record's text.
    lost: HashMap<String, String>,
}

/// An intent whose call did not run and that was taken back. No call takes it over any more: its record may go at any
/// time.
struct TakenBack {
    /// The record's text.
    text: String,
    key: String,
    /// How many more times.
    more: u32,
}

impl JournalShared {
    /// A journal in `store`, which keeps `figures` up to date. Must be called within the runtime.
    pub fn new(store: Store, figures: JournalFigures) -> Self {
        let journal = Self(Arc::new(Inner {
            store,
            figures,
            state: Mutex::default(),
        }));
        tokio::spawn(watch(Arc::downgrade(&journal.0)));
        journal
    }

    async fn begin(self, intent: Intent) -> Result<Option<Record>, JournalError> {
        let Intent {
            key,
            tool,
            arguments,
            time,
            span,
            ..
        } = intent;
        if let Some(done) = self.state().unwritten.get(&key) {
            return Ok(Some(done.clone().record()));
        }
        let kept = Kept {
            server: self.0.store.server().to_owned(),
            lease: Uuid::new_v4().simple().to_string(),
            time,
            tool,
            arguments,
            result: None,
        };
        let text = kept.text();
        let span = span.unwrap_or_default();
        let begun = self.0.ask(BEGIN, &key, &text, (KEEP_UNKNOWN, span)).await;
        let found: Option<String> = match begun {
            Ok(found) => found,
            Err(error) => {
                if matches!(error, StoreError::Failed(_)) {
                    self.state().lost.insert(text, key);
                }
                self.0.figures.failed();
                return Err(error.into());
            }
        };
        let mut state = self.state();
        let mine = match found {
            None => kept,
            // It was recorded although the answer was lost, and its call did not run.
            Some(found) if state.lost.remove(&found).is_some() => Kept::read(&found)?,
            Some(found) => return Kept::read(&found).map(|kept| Some(kept.record())),
        };
        state.running.insert(key, mine);
        Ok(None)
    }

    async fn finish(
        self,
        key: String,
        result: Result<Value, ToolError>,
    ) -> Result<(), JournalError> {
        {
            let mut state = self.state();
            let Some(mut kept) = state.running.remove(&key) else {
                return Err(JournalError::NotBegun(key));
            };
            kept.result = Some(Recorded::Known(result));
            state.unwritten.insert(key.clone(), kept);
        }
        let written = self.0.write_result(&key).await;
        if written.is_err() {
            self.0.figures.failed();
        }
        Ok(written?)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }
}

impl JournalStore for JournalShared {
    fn begin(&self, intent: Intent) -> BoxFuture<'static, Result<Option<Record>, JournalError>> {
        Box::pin(self.clone().begin(intent))
    }

    fn finish(
        &self,
        key: String,
        result: Result<Value, ToolError>,
        _: Timestamp,
    ) -> BoxFuture<'static, Result<(), JournalError>> {
        Box::pin(self.clone().finish(key, result))
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> String {
        store::key(&["journal-open"])
    }

    fn record(&self, key: &str) -> String {
        store::key(&["journal", key])
    }

    async fn ask<T: FromRedisValue>(
        &self,
        script: &str,
        key: &str,
        text: &str,
        keep: (Duration, Duration),
    ) -> Result<T, StoreError> {
        let [keep, keep_earlier] =
            <[Duration; 2]>::from(keep).map(|keep| keep.as_millis().to_string());
        self.run(script, key, &[text, &keep, key, &keep_earlier])
            .await
    }

    /// Runs a script on a call's record, the set of the open calls, and the records of earlier attempts.
    async fn run<T: FromRedisValue>(
        &self,
        script: &str,
        key: &str,
        arguments: &[&str],
    ) -> Result<T, StoreError> {
        let earlier = earlier_attempts(key);
        let earlier = earlier.iter().map(|key| self.record(key));
        let keys: Vec<String> = [self.record(key), self.open()]
            .into_iter()
            .chain(earlier)
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.store.run(script, &keys, arguments).await
    }

    fn has_waiting(&self) -> bool {
        let state = self.state();
        !state.unwritten.is_empty() || !state.lost.is_empty()
    }

    /// Writes the result of a call, if the store does not have it yet.
    async fn write_result(&self, key: &str) -> Result<(), StoreError> {
        // No call with this key begins as long as the result waits.
        let Some(kept) = self.state().unwritten.get(key).cloned() else {
            return Ok(());
        };
        let keep = (KEEP_RESULTS, Duration::ZERO);
        let _: u32 = self.ask(FINISH, key, &kept.text(), keep).await?;
        self.state().unwritten.remove(key);
        Ok(())
    }

    /// Writes the results that wait, and takes back the intents whose calls did not run.
    async fn write_waiting(
        &self,
        taken_back: &mut Vec<TakenBack>,
        is_look: bool,
    ) -> Result<(), StoreError> {
        let unwritten: Vec<String> = self.state().unwritten.keys().cloned().collect();
        for key in unwritten {
            self.write_result(&key).await?;
        }
        self.take_back(taken_back, is_look).await
    }

    /// Takes back the intents whose calls did not run, and again those that were taken back before: the store may get
    /// an intent late, over a connection that was given up. Only those at a look are counted, as they are some time apart.
    async fn take_back(
        &self,
        taken_back: &mut Vec<TakenBack>,
        is_look: bool,
    ) -> Result<(), StoreError> {
        let lost = std::mem::take(&mut self.state().lost);
        taken_back.extend(lost.into_iter().map(|(text, key)| TakenBack {
            text,
            key,
            more: TAKE_BACKS,
        }));
        for intent in &mut *taken_back {
            let TakenBack { text, key, .. } = &*intent;
            let _: u32 = self.run(TAKE_BACK, key, &[text, key]).await?;
            intent.more = intent.more.saturating_sub(u32::from(is_look));
        }
        taken_back.retain(|intent| intent.more > 0);
        Ok(())
    }

    /// Reports the calls that were interrupted, each once. `gone` are those whose server was gone at the last look.
    async fn look(
        &self,
        gone: &mut HashSet<String>,
        told: &mut HashSet<String>,
    ) -> Result<(), StoreError> {
        let mut open = cmd("SRANDMEMBER");
        open.arg(self.open()).arg(MOST_OPEN);
        let open: HashSet<String> = self.store.ask(&open).await?;
        told.retain(|key| open.contains(key));
        let mut now = HashSet::new();
        for key in open {
            if told.contains(&key) || self.state().running.contains_key(&key) {
                continue;
            }
            let mut get = cmd("GET");
            get.arg(self.record(&key));
            let Some(text) = self.store.ask::<Option<String>>(&get).await? else {
                let _: u32 = self.run(STRIKE_OFF, &key, &[&key]).await?;
                continue;
            };
            // One that cannot be read is of another version of the server, which reports it.
            let Ok(kept) = Kept::read(&text) else {
                continue;
            };
            // It may have got its result meanwhile.
            if kept.result.is_some() {
                continue;
            }
            let is_here = kept.server == self.store.server();
            if is_here || self.store.is_alive(&kept.server).await? {
                continue;
            }
            if gone.contains(&key) {
                warn_of_unknown(&key, &kept.tool, kept.time, "the shared store");
                told.insert(key);
            } else {
                now.insert(key);
            }
        }
        *gone = now;
        Ok(())
    }
}

/// Writes what waits, at once when the store answers again, and looks for interrupted calls, as long as the journal is
/// there.
async fn watch(journal: Weak<Inner>) {
    let Some(mut changes) = journal.upgrade().map(|inner| inner.store.changes()) else {
        return;
    };
    let (mut gone, mut told) = (HashSet::new(), HashSet::new());
    let mut taken_back = Vec::new();
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_change = tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = looks.tick() => false,
        };
        let Some(inner) = journal.upgrade() else {
            return;
        };
        let is_up = *changes.borrow_and_update();
        let failing = inner.figures.is_failing();
        if !is_up {
            if is_change || !failing {
                inner.figures.failed();
            }
            continue;
        }
        if failing || inner.has_waiting() || !taken_back.is_empty() {
            match inner.write_waiting(&mut taken_back, !is_change).await {
                Ok(()) if failing => {
                    inner.figures.works();
                    tracing::info!("the journal can be written again");
                }
                Ok(()) => {}
                Err(error) => {
                    inner.figures.failed();
                    tracing::warn!(%error, "results wait for the journal");
                }
            }
        }
        if !is_change && let Err(error) = inner.look(&mut gone, &mut told).await {
            tracing::debug!(%error, "could not look for interrupted calls");
        }
    }
}
