//! The journal in a file of this machine: on disk before the call, and its result after it.
//!
//! One JSON object a line, appended and synced. A line that a crash cut short is skipped, and that
//! is safe: an intent that is not whole was never followed by its call, and without its result a
//! call counts as unknown and does not run again. A whole line that a newer version of the server has
//! written in a form of its own is not read, and stays in the file.
//!
//! Several processes may share the file, as an old server and a new one do while the old one drains.
//! Each holds the file's lock while it writes, and before that reads what the others have added.
//!
//! While a line cannot be written, as on a full disk, no call that changes something runs. What was
//! written of the line is cut off at once, and once a second it is tried whether writing works again.

use super::{
    Intent, JournalError, JournalFigures, JournalStore, Record, Recorded, earlier_attempts,
};
use crate::tools::{Clock, SystemClock, ToolError};
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Finished calls are kept for a day: nobody retries one for longer.
const KEEP_RESULTS: SignedDuration = SignedDuration::from_hours(24);
/// Calls whose end is unknown, for a month, for an operator to look into.
const KEEP_UNKNOWN: SignedDuration = SignedDuration::from_hours(24 * 30);

/// How often it is looked for what is older than that.
const PRUNE_EVERY: Duration = Duration::from_hours(1);

/// How often it is tried whether a journal that failed can be written again.
const RETRY: Duration = Duration::from_secs(1);
/// Blank lines that such a try writes: a block of most file systems, and more than most lines.
const PROBE: [u8; 4096] = [b'\n'; 4096];

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum JournalLine {
    Intent {
        key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        time: Timestamp,
        tool: String,
        arguments: Map<String, Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        span: Option<Duration>,
    },
    Result {
        key: String,
        time: Timestamp,
        result: Recorded,
    },
}

#[derive(Debug)]
struct Entry {
    call: Option<String>,
    time: Timestamp,
    tool: String,
    arguments: Map<String, Value>,
    span: Option<Duration>,
    result: Option<(Timestamp, Recorded)>,
    /// When this process learned of it, by a clock that does not jump; `None` if it was there at the start.
    learned: Option<Instant>,
}

/// A journal in a file. Clones are the same one. It syncs, which takes some milliseconds, off the
/// runtime's threads.
#[derive(Debug, Clone)]
pub struct JournalFile(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    path: PathBuf,
    file: File,
    /// Held shared while the journal is open: only who holds it alone may rewrite the file.
    _lock: File,
    entries: HashMap<String, Entry>,
    /// Where the lines begin that other processes may have added.
    read: u64,
    /// Results of calls that have run, which could not be written down yet.
    unwritten: Vec<JournalLine>,
    figures: JournalFigures,
    /// A task is trying whether writing works again.
    retrying: bool,
}

impl JournalFile {
    /// Opens the journal at `path`, or makes it with the folders above it. What is older than a day
    /// (a month, where the end is unknown) is left out if no other process uses the file: now and, within a Tokio
    /// runtime, every hour.
    ///
    /// # Errors
    /// [`JournalError::File`], [`JournalError::NoFile`].
    pub fn open(path: &Path, now: Timestamp) -> Result<Self, JournalError> {
        Self::open_counted(path, now, JournalFigures::default())
    }

    /// Like [`Self::open`], and keeps `figures` up to date.
    ///
    /// # Errors
    /// As [`JournalFile::open`].
    pub fn open_counted(
        path: &Path,
        now: Timestamp,
        figures: JournalFigures,
    ) -> Result<Self, JournalError> {
        Self::check(path)?;
        let state =
            open(path, now, figures, HashMap::new()).map_err(|error| JournalError::File {
                path: path.into(),
                error,
            })?;
        let journal = Self(Arc::new(Mutex::new(state)));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(prune_hourly(Arc::downgrade(&journal.0)));
        }
        Ok(journal)
    }

    /// Forgets the calls that `is_theirs` by their key within their session and by their values, which are the arguments and
    /// the result, or only counts them if it is a `trial`. `None` if another process uses the file, and nothing can be taken out.
    ///
    /// # Errors
    /// [`JournalError::File`], [`JournalError::NoFile`].
    pub fn forget(
        path: &Path,
        is_theirs: impl Fn(&str, &[Value]) -> bool,
        trial: bool,
    ) -> Result<Option<usize>, JournalError> {
        Self::check(path)?;
        let forgotten = forget(path, is_theirs, trial);
        forgotten.map_err(|error| JournalError::File {
            path: path.into(),
            error,
        })
    }

    /// Whether a journal can be at `path`: a regular file is there, or nothing.
    ///
    /// # Errors
    /// [`JournalError::NoFile`], or [`JournalError::File`] if the path cannot be looked at.
    pub fn check(path: &Path) -> Result<(), JournalError> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(()),
            Ok(_) => Err(JournalError::NoFile { path: path.into() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(JournalError::File {
                path: path.into(),
                error,
            }),
        }
    }

    /// The calls whose end is not known, oldest first.
    pub fn unknown(&self) -> Vec<Intent> {
        let state = self.state();
        let open = state
            .entries
            .iter()
            .filter(|(_, entry)| entry.result.is_none());
        let mut open: Vec<_> = open
            .map(|(key, entry)| Intent {
                key: key.clone(),
                call: entry.call.clone(),
                tool: entry.tool.clone(),
                arguments: entry.arguments.clone(),
                time: entry.time,
                span: entry.span,
            })
            .collect();
        open.sort_by_key(|intent| intent.time);
        open
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the file where blocking is allowed. If it fails, the file is tried again until it
    /// works, so that the server is ready again although nobody calls.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut State) -> Result<T, JournalError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, JournalError>> {
        let journal = self.clone();
        Box::pin(async move {
            let (worker, session) = (journal.clone(), tracing::Span::current());
            let work = move || session.in_scope(|| work(&mut worker.state()));
            let done = tokio::task::spawn_blocking(work).await;
            let done = done.unwrap_or(Err(JournalError::Panicked));
            if done.is_err() {
                journal.retry();
            }
            done
        })
    }

    fn retry(&self) {
        let mut state = self.state();
        let works = !state.figures.is_failing();
        if works || std::mem::replace(&mut state.retrying, true) {
            return;
        }
        let journal = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RETRY).await;
                if journal.blocking(State::try_again).await.is_ok() {
                    return;
                }
            }
        });
    }
}

impl JournalStore for JournalFile {
    fn begin(&self, intent: Intent) -> BoxFuture<'static, Result<Option<Record>, JournalError>> {
        self.blocking(move |state| state.begin(intent))
    }

    fn finish(
        &self,
        key: String,
        result: Result<Value, ToolError>,
        now: Timestamp,
    ) -> BoxFuture<'static, Result<(), JournalError>> {
        self.blocking(move |state| state.finish(key, result, now))
    }
}

impl State {
    fn begin(&mut self, intent: Intent) -> Result<Option<Record>, JournalError> {
        let key = intent.key.clone();
        let is_over = |entry: &Entry| entry.result.is_some();
        if !self.entries.get(&key).is_some_and(is_over) {
            let line = JournalLine::Intent {
                key: intent.key,
                call: intent.call,
                time: intent.time,
                tool: intent.tool,
                arguments: intent.arguments,
                span: intent.span,
            };
            match self.append(Some(&line)) {
                Ok(true) => {
                    learn(&mut self.entries, line, Some(now()));
                    return Ok(None);
                }
                Err(error) if !self.entries.contains_key(&key) => return Err(error),
                _ => {}
            }
        }
        Ok(self.entries.get(&key).map(|entry| {
            let result = entry.result.as_ref();
            Record {
                tool: entry.tool.clone(),
                arguments: entry.arguments.clone(),
                time: entry.time,
                result: result.map(|(_, result)| result.clone().read(&entry.tool)),
                age: entry.age(),
            }
        }))
    }

    /// Leaves out what is old, as at the start. A server that runs for months would keep it otherwise.
    fn prune(&mut self, now: Timestamp) -> io::Result<()> {
        if self.entries.values().all(|entry| is_kept(entry, now)) {
            return Ok(());
        }
        self._lock.unlock()?;
        let learned = self.entries.iter();
        let learned = learned.filter_map(|(key, entry)| Some((key.clone(), entry.learned?)));
        let anew = match open(&self.path, now, self.figures.clone(), learned.collect()) {
            Ok(anew) => anew,
            Err(error) => {
                self._lock.lock_shared()?;
                return Err(error);
            }
        };
        let old = std::mem::replace(self, anew);
        for line in &old.unwritten {
            learn(&mut self.entries, line.clone(), None);
        }
        (self.unwritten, self.retrying) = (old.unwritten, old.retrying);
        Ok(())
    }

    fn finish(
        &mut self,
        key: String,
        result: Result<Value, ToolError>,
        time: Timestamp,
    ) -> Result<(), JournalError> {
        let entry = self.entries.get(&key);
        if entry.is_none_or(|entry| entry.result.is_some()) {
            return Err(JournalError::NotBegun(key));
        }
        let result = Recorded::Known(result);
        let line = JournalLine::Result { key, time, result };
        learn(&mut self.entries, line.clone(), None);
        self.unwritten.push(line);
        self.append(None).map(drop)
    }

    fn try_again(&mut self) -> Result<(), JournalError> {
        self.append(None)?;
        self.retrying = false;
        Ok(())
    }

    /// Writes down what waits, and `intent` unless some process has begun its call. Returns whether it was
    /// written.
    fn append(&mut self, intent: Option<&JournalLine>) -> Result<bool, JournalError> {
        let failing = self.figures.is_failing();
        match self.write(intent, failing) {
            Ok(written) => {
                self.unwritten.clear();
                if failing {
                    self.figures.works();
                    tracing::info!(journal = %self.path.display(), "the journal can be written again");
                }
                Ok(written)
            }
            Err(source) => {
                self.figures.failed();
                if !failing {
                    tracing::error!(
                        journal = %self.path.display(), error = %source,
                        "the journal cannot be written: until it can, no call that changes \
                         something is made"
                    );
                }
                Err(JournalError::File {
                    path: self.path.clone(),
                    error: source,
                })
            }
        }
    }

    /// All lines or none, as one process after the other. Whether there is room is tried first
    /// if `probe`.
    fn write(&mut self, intent: Option<&JournalLine>, probe: bool) -> io::Result<bool> {
        self.follow()?;
        self.file.lock()?;
        let written = self.write_locked(intent, probe);
        let unlocked = self.file.unlock();
        written.and_then(|written| unlocked.map(|()| written))
    }

    /// Opens the file again if it is not the one at its path any more: lines in a deleted file would be lost.
    fn follow(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_own = |there: &Metadata| (there.dev(), there.ino()) == (own.dev(), own.ino());
        match std::fs::metadata(&self.path) {
            Ok(there) if is_own(&there) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.file = private().read(true).append(true).open(&self.path)?;
        self.read = 0;
        Ok(())
    }

    fn write_locked(&mut self, intent: Option<&JournalLine>, probe: bool) -> io::Result<bool> {
        let end = cut_torn_line(&mut self.file)?;
        self.catch_up(end)?;
        let is_new = |line: &&JournalLine| !self.entries.contains_key(line.key());
        let intent = intent.filter(is_new);
        let mut write = || {
            if probe {
                self.file.write_all(&PROBE)?;
                self.file.sync_data()?;
                self.file.set_len(end)?;
            }
            let mut written = 0;
            for line in self.unwritten.iter().chain(intent) {
                written += write_line(&mut self.file, line)?;
            }
            if written > 0 {
                self.file.sync_data()?;
            }
            io::Result::Ok(end + written)
        };
        match write() {
            Ok(end) => {
                self.read = end;
                Ok(intent.is_some())
            }
            Err(error) => {
                // Should this fail, too, the next line finds the torn one and cuts it off.
                let _ = self.file.set_len(end);
                Err(error)
            }
        }
    }

    /// Reads the lines before `end` that other processes have added.
    fn catch_up(&mut self, end: u64) -> io::Result<()> {
        use std::io::Read;
        let mut lines = vec![0; end.saturating_sub(self.read) as usize];
        self.file.seek(SeekFrom::Start(self.read.min(end)))?;
        self.file.read_exact(&mut lines)?;
        learn_all(&mut self.entries, &lines, &self.path, Some(now()));
        self.read = end;
        Ok(())
    }
}

impl Entry {
    /// All that it has of people's words: the arguments, and the result or why there is none.
    fn values(&self) -> [Value; 2] {
        let result = self.result.as_ref().map(|(_, result)| result);
        let result = match result {
            Some(Recorded::Known(Ok(value)) | Recorded::Newer(value)) => value.clone(),
            Some(Recorded::Known(Err(error))) => error.to_string().into(),
            None => Value::Null,
        };
        [Value::Object(self.arguments.clone()), result]
    }

    /// How long this process has known it.
    fn age(&self) -> Option<Duration> {
        self.learned.map(|learned| now().duration_since(learned))
    }
}

/// Leaves out what is old every hour, as long as the journal is there.
async fn prune_hourly(journal: Weak<Mutex<State>>) {
    loop {
        tokio::time::sleep(PRUNE_EVERY).await;
        let Some(journal) = journal.upgrade().map(JournalFile) else {
            return;
        };
        let prune = |state: &mut State| {
            if let Err(error) = state.prune(SystemClock.now()) {
                warn_of_old(&state.path, &error);
            }
            Ok(())
        };
        // Nothing that it does makes the journal fail.
        let _ = journal.blocking(prune).await;
    }
}

fn warn_of_old(journal: &Path, error: &io::Error) {
    tracing::warn!(%error, journal = %journal.display(), "old calls stay in the journal");
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: the clock of the day may be set while calls are kept"
)]
fn now() -> Instant {
    Instant::now()
}

impl JournalLine {
    fn key(&self) -> &str {
        match self {
            Self::Intent { key, .. } | Self::Result { key, .. } => key,
        }
    }
}

/// Cuts off what a write has left that did not get through, and returns where the next line goes.
fn cut_torn_line(file: &mut File) -> io::Result<u64> {
    use std::io::Read;
    let mut end = file.seek(SeekFrom::End(0))?;
    let whole = end;
    let mut block = [0; 4096];
    loop {
        let from = end.saturating_sub(block.len() as u64);
        file.seek(SeekFrom::Start(from))?;
        let block = &mut block[..(end - from) as usize];
        file.read_exact(block)?;
        let last = block.iter().rposition(|byte| *byte == b'\n');
        end = last.map_or(from, |at| from + at as u64 + 1);
        if last.is_some() || from == 0 {
            break;
        }
    }
    if end < whole {
        file.set_len(end)?;
    }
    Ok(end)
}

/// Opens the file and leaves out what is old. `learned` is when this process learned of its calls.
fn open(
    path: &Path,
    now: Timestamp,
    figures: JournalFigures,
    learned: HashMap<String, Instant>,
) -> io::Result<State> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder)?;
    let lock = private()
        .truncate(false)
        .write(true)
        .open(path.with_extension("lock"))?;
    let alone = lock.try_lock().is_ok();
    if !alone {
        lock.lock_shared()?;
    }
    if alone {
        let (mut entries, mut newer) = read(path)?;
        let before = entries.len();
        for (key, entry) in &mut entries {
            entry.learned = learned.get(key).copied();
        }
        let counting = entries.iter().filter(|(_, entry)| counts(entry, now));
        let needed: HashSet<String> = counting
            .flat_map(|(key, _)| earlier_attempts(key))
            .collect();
        entries.retain(|key, entry| is_kept(entry, now) || needed.contains(key));
        if entries.len() < before {
            newer.retain(|line| is_young(line, now));
            // It is of use as it is, for instance on a full disk.
            if let Err(error) = rewrite(path, folder, &entries, &newer) {
                warn_of_old(path, &error);
            }
        }
        lock.unlock()?;
        lock.lock_shared()?;
    }
    let file = private().read(true).append(true).open(path)?;
    let mut state = State {
        path: path.into(),
        file,
        _lock: lock,
        entries: HashMap::new(),
        read: 0,
        unwritten: Vec::new(),
        figures,
        retrying: false,
    };
    state.file.lock()?;
    let end = end_line(&mut state.file)?;
    state.catch_up(end)?;
    for (key, entry) in &mut state.entries {
        entry.learned = learned.get(key).copied();
    }
    state.file.unlock()?;
    state.file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(state)
}

fn forget(
    path: &Path,
    is_theirs: impl Fn(&str, &[Value]) -> bool,
    trial: bool,
) -> io::Result<Option<usize>> {
    if !path.exists() {
        return Ok(Some(0));
    }
    let lock = private()
        .truncate(false)
        .write(true)
        .open(path.with_extension("lock"))?;
    // Before it is read: what a server adds meanwhile would be lost.
    let is_free = !trial && lock.try_lock().is_ok();
    let (mut entries, mut newer) = read(path)?;
    let before = entries.len() + newer.len();
    entries.retain(|key, entry| {
        let own = entry.call.as_deref().unwrap_or(key);
        !is_theirs(own, &entry.values())
    });
    newer.retain(|line| {
        let key = line["call"].as_str().or(line["key"].as_str());
        !is_theirs(key.unwrap_or_default(), std::slice::from_ref(line))
    });
    let theirs = before - entries.len() - newer.len();
    if trial || theirs == 0 {
        return Ok(Some(theirs));
    }
    if !is_free {
        return Ok(None);
    }
    rewrite(path, folder_of(path), &entries, &newer)?;
    Ok(Some(theirs))
}

fn folder_of(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// For this user alone: arguments are what people said.
fn private() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// Ends a line that a crash cut short, so that the next one is whole. Returns where that goes.
fn end_line(file: &mut File) -> io::Result<u64> {
    use std::io::Read;
    let end = file.seek(SeekFrom::End(0))?;
    if end == 0 {
        return Ok(end);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(end);
    }
    file.write_all(b"\n")?;
    Ok(end + 1)
}

/// The calls of a file, and its lines that only a newer version of the server can read.
fn read(path: &Path) -> io::Result<(HashMap<String, Entry>, Vec<Value>)> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let mut entries = HashMap::new();
    let newer = learn_all(&mut entries, &bytes, path, None);
    Ok((entries, newer))
}

/// Learns the calls of these lines. Returns the lines that only a newer version of the server can read.
fn learn_all(
    entries: &mut HashMap<String, Entry>,
    bytes: &[u8],
    path: &Path,
    learned: Option<Instant>,
) -> Vec<Value> {
    let mut newer = Vec::new();
    let lines = bytes.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        if let Ok(line) = serde_json::from_slice(line) {
            learn(entries, line, learned);
        } else if let Ok(line @ Value::Object(_)) = serde_json::from_slice(line) {
            newer.push(line);
        } else {
            tracing::warn!(journal = %path.display(), "a line that was cut short is skipped");
        }
    }
    if !newer.is_empty() {
        tracing::warn!(
            journal = %path.display(), lines = newer.len(),
            "lines of a newer version of the server are not read, and stay in the journal"
        );
    }
    newer
}

fn learn(entries: &mut HashMap<String, Entry>, line: JournalLine, learned: Option<Instant>) {
    match line {
        JournalLine::Intent {
            key,
            call,
            time,
            tool,
            arguments,
            span,
        } => {
            entries.entry(key).or_insert(Entry {
                call,
                time,
                tool,
                arguments,
                span,
                result: None,
                learned,
            });
        }
        JournalLine::Result { key, time, result } => {
            if let Some(entry) = entries.get_mut(&key) {
                entry.result.get_or_insert((time, result));
            }
        }
    }
}

fn is_kept(entry: &Entry, now: Timestamp) -> bool {
    let (time, keep) = match &entry.result {
        Some((time, _)) => (*time, KEEP_RESULTS),
        None => (entry.time, KEEP_UNKNOWN),
    };
    // The clock of the day may have been set forward meanwhile.
    let is_young = entry.age().is_some_and(|age| age < keep.unsigned_abs());
    is_young || now.duration_since(time) < keep
}

/// Whether a line of a newer version of the server is to stay.
fn is_young(line: &Value, now: Timestamp) -> bool {
    let time = line["time"]
        .as_str()
        .and_then(|time| time.parse::<Timestamp>().ok());
    time.is_none_or(|time| now.duration_since(time) < KEEP_UNKNOWN)
}

/// Whether another call would be the same change.
fn counts(entry: &Entry, now: Timestamp) -> bool {
    let within = |span: Duration| {
        let is_young = entry.age().is_some_and(|age| age < span);
        is_young || now.duration_since(entry.time).unsigned_abs() < span
    };
    entry.span.is_some_and(within)
}

/// Writes the entries and the lines of a newer version to a new file, which takes the old one's place at once. Nothing
/// is left of a file that could not be written.
fn rewrite(
    path: &Path,
    folder: &Path,
    entries: &HashMap<String, Entry>,
    newer: &[Value],
) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = write_all(&new, entries, newer).and_then(|()| {
        keep_owner(path, &new);
        std::fs::rename(&new, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written?;
    File::open(folder)?.sync_all()
}

/// Gives the new file the owner of the old one, as far as it may: root may look at the journal of another user.
fn keep_owner(old: &Path, new: &Path) {
    if let Ok(old) = std::fs::metadata(old) {
        let _ = std::os::unix::fs::chown(new, Some(old.uid()), Some(old.gid()));
    }
}

fn write_all(path: &Path, entries: &HashMap<String, Entry>, newer: &[Value]) -> io::Result<()> {
    let mut file = private().write(true).truncate(true).open(path)?;
    for (key, entry) in entries {
        write_line(
            &mut file,
            &JournalLine::Intent {
                key: key.clone(),
                call: entry.call.clone(),
                time: entry.time,
                tool: entry.tool.clone(),
                arguments: entry.arguments.clone(),
                span: entry.span,
            },
        )?;
        if let Some((time, result)) = &entry.result {
            write_line(
                &mut file,
                &JournalLine::Result {
                    key: key.clone(),
                    time: *time,
                    result: result.clone(),
                },
            )?;
        }
    }
    for line in newer {
        write_line(&mut file, line)?;
    }
    file.sync_all()
}

/// In one write, so that lines of several processes do not mix. Returns the bytes.
fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<u64> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::{Begun, Journal};
    use super::*;
    use serde_json::json;
    use tokio::time::advance;

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    fn intent(key: &str, hours: i64) -> Intent {
        Intent {
            key: key.into(),
            call: None,
            tool: "add_note".into(),
            arguments: json!({"text": "buy milk"}).as_object().cloned().unwrap(),
            time: at(hours),
            span: None,
        }
    }

    fn open(path: &Path, hours: i64) -> JournalFile {
        JournalFile::open(path, at(hours)).unwrap()
    }

    async fn begin(journal: &JournalFile, key: &str, hours: i64) -> Begun {
        let journal = Journal::new(journal.clone());
        journal.begin(intent(key, hours)).await.unwrap()
    }

    async fn finish(
        journal: &JournalFile,
        key: &str,
        result: &Result<Value, ToolError>,
    ) -> Result<(), JournalError> {
        journal.finish(key.into(), result.clone(), at(0)).await
    }

    #[tokio::test]
    async fn a_call_is_started_once_and_its_result_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/journal.jsonl");
        let journal = open(&path, 0);
        assert_eq!(begin(&journal, "a", 0).await, Begun::Started);
        assert_eq!(begin(&journal, "a", 0).await, Begun::Unknown);
        let done = Ok(json!({"added": "buy milk"}));
        finish(&journal, "a", &done).await.unwrap();
        assert!(matches!(
            finish(&journal, "a", &done).await,
            Err(JournalError::NotBegun(_))
        ));
        let failed = Err(ToolError::Timeout(5));
        assert_eq!(begin(&journal, "b", 0).await, Begun::Started);
        finish(&journal, "b", &failed).await.unwrap();
        assert_eq!(begin(&journal, "c", 0).await, Begun::Started);
        drop(journal);

        let journal = open(&path, 1);
        assert_eq!(begin(&journal, "a", 1).await, Begun::Done(done));
        assert_eq!(begin(&journal, "b", 1).await, Begun::Done(failed));
        assert_eq!(begin(&journal, "c", 1).await, Begun::Unknown);
        assert_eq!(journal.unknown(), [intent("c", 0)]);
        let other = Intent {
            arguments: Map::new(),
            ..intent("a", 1)
        };
        let other = Journal::new(journal).begin(other).await;
        assert!(matches!(other, Err(JournalError::KeyReused(_))));
    }

    /// Wherever the last line is cut, no call that may have run is started again.
    #[tokio::test]
    async fn a_torn_last_line_never_lets_a_call_run_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        begin(&journal, "a", 0).await;
        let intent = std::fs::metadata(&path).unwrap().len() as usize;
        finish(&journal, "a", &Ok(json!(1))).await.unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let journal = open(&path, 0);
            let begun = begin(&journal, "a", 0).await;
            // A line is whole when only its line feed is missing.
            let expected = if cut < intent - 1 {
                Begun::Started
            } else if cut < whole.len() - 1 {
                Begun::Unknown
            } else {
                Begun::Done(Ok(json!(1)))
            };
            assert_eq!(begun, expected, "{cut} of {} bytes", whole.len());
            begin(&journal, "b", 0).await;
            drop(journal);
            let journal = open(&path, 0);
            assert_eq!(begin(&journal, "b", 0).await, Begun::Unknown, "{cut}");
        }
    }

    #[tokio::test]
    async fn what_is_old_is_left_out_unless_another_process_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        for key in ["old", "open"] {
            begin(&journal, key, 0).await;
        }
        finish(&journal, "old", &Ok(Value::Null)).await.unwrap();
        let second = open(&path, 48);
        let known = begin(&second, "old", 48).await;
        assert_eq!(known, Begun::Done(Ok(Value::Null)));
        drop((journal, second));

        let journal = open(&path, 48);
        assert_eq!(begin(&journal, "old", 48).await, Begun::Started);
        assert_eq!(begin(&journal, "open", 48).await, Begun::Unknown);
        drop(journal);
        let journal = open(&path, 24 * 31);
        assert_eq!(begin(&journal, "open", 24 * 31).await, Begun::Started);
    }

    /// A server whose disk had filled up did not start, although it needs the room for changes only.
    #[tokio::test]
    async fn a_journal_that_cannot_be_rewritten_opens_with_all_that_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        begin(&journal, "old", 0).await;
        finish(&journal, "old", &Ok(Value::Null)).await.unwrap();
        drop(journal);
        let new = path.with_extension("new");
        std::fs::create_dir(&new).unwrap();
        let journal = open(&path, 48);
        let known = begin(&journal, "old", 48).await;
        assert_eq!(known, Begun::Done(Ok(Value::Null)));
        assert_eq!(begin(&journal, "young", 48).await, Begun::Started);
        drop(journal);
        std::fs::remove_dir(&new).unwrap();
        let journal = open(&path, 48);
        assert_eq!(begin(&journal, "old", 48).await, Begun::Started);
        assert_eq!(begin(&journal, "young", 48).await, Begun::Unknown);
    }

    /// It stayed, with what people had said, and took the room of a full disk.
    #[test]
    fn nothing_is_left_of_a_file_that_could_not_take_the_journals_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a folder");
        std::fs::create_dir(&path).unwrap();
        let written = rewrite(&path, folder.path(), &HashMap::new(), &[]);
        assert!(written.is_err());
        assert!(!path.with_extension("new").exists());
    }

    #[tokio::test]
    async fn earlier_attempts_at_a_change_are_kept_as_long_as_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        let refused = Err(ToolError::Failed("no room is free".into()));
        for (key, hour) in [
            ("once-x", 0),
            ("once-x-1", 10),
            ("once-y", 0),
            ("once-y-1", 1),
        ] {
            let intent = Intent {
                span: Some(Duration::from_hours(24)),
                ..intent(key, hour)
            };
            Journal::new(journal.clone()).begin(intent).await.unwrap();
            let finished = journal.finish(key.into(), refused.clone(), at(hour));
            finished.await.unwrap();
        }
        drop(journal);
        let journal = open(&path, 30);
        let known = Begun::Done(refused);
        assert_eq!(begin(&journal, "once-x", 30).await, known);
        assert_eq!(begin(&journal, "once-x-1", 30).await, known);
        assert_eq!(begin(&journal, "once-y", 30).await, Begun::Started);
    }

    /// The words of callers stayed in the file of a server that made no further change.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_runs_on_leaves_out_what_is_old_also_if_nobody_calls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        let done = Ok(json!(1));
        for key in ["a", "b"] {
            assert_eq!(begin(&journal, key, 0).await, Begun::Started);
        }
        finish(&journal, "a", &done).await.unwrap();
        // The task has set its timer.
        tokio::task::yield_now().await;
        advance(Duration::from_hours(25)).await;
        let text = || std::fs::read_to_string(&path).unwrap();
        let left_out = async {
            while text().contains("\"a\"") {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_mins(1), left_out).await;
        in_time.expect("it is left out");
        assert_eq!(begin(&journal, "c", 25).await, Begun::Started);
        let text = text();
        assert!(text.contains("\"b\"") && text.contains("\"c\""), "{text}");
        // Another process still sees it in use, and what is written goes to the new file.
        finish(&journal, "b", &done).await.unwrap();
        assert_eq!(
            JournalFile::forget(&path, |key, _| key == "b", false).unwrap(),
            None
        );
        drop(journal);
        let journal = open(&path, 25);
        assert_eq!(begin(&journal, "c", 25).await, Begun::Unknown);
    }

    /// A day later by the clock, a moment later in truth.
    #[tokio::test]
    async fn a_clock_that_is_set_forward_lets_no_change_be_made_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder.path().join("journal.jsonl"), 0);
        let (journal, runs) = (Journal::new(file.clone()), std::cell::Cell::new(0));
        let same = crate::tools::Same {
            key: "a".into(),
            span: Duration::from_hours(24),
            takes: Duration::from_secs(1),
            is_keyed: false,
        };
        let arguments = intent("a", 0).arguments;
        for hours in [0, 25, 24 * 40, 1, -25] {
            file.state().prune(at(hours)).unwrap();
            let call = async |_| {
                runs.set(runs.get() + 1);
                Ok(json!({"room": runs.get()}))
            };
            let time = || at(hours);
            let told = journal.once_per(&same, "s-call_1", "book", &arguments, time, call);
            assert_eq!(told.await.unwrap()["room"], 1, "after {hours} hours");
        }
    }

    #[tokio::test]
    async fn calls_are_forgotten_when_no_process_uses_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        assert_eq!(
            JournalFile::forget(&path, |_, _| true, false).unwrap(),
            Some(0)
        );
        let journal = open(&path, 0);
        for key in ["a-1", "b-1"] {
            begin(&journal, key, 0).await;
        }
        let is_theirs = |key: &str, _: &[Value]| key.starts_with("a-");
        assert_eq!(
            JournalFile::forget(&path, is_theirs, true).unwrap(),
            Some(1)
        );
        assert_eq!(JournalFile::forget(&path, is_theirs, false).unwrap(), None);
        drop(journal);
        assert_eq!(
            JournalFile::forget(&path, is_theirs, false).unwrap(),
            Some(1)
        );
        let journal = open(&path, 0);
        assert_eq!(begin(&journal, "a-1", 0).await, Begun::Started);
        assert_eq!(begin(&journal, "b-1", 0).await, Begun::Unknown);
    }

    /// An older server that shares the file skipped the results of a newer one, and lost them when it left out what is old.
    #[tokio::test]
    async fn what_a_newer_server_has_written_is_not_lost_and_no_call_of_it_runs_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        for key in ["old", "a"] {
            assert_eq!(begin(&journal, key, 0).await, Begun::Started);
        }
        finish(&journal, "old", &Ok(json!(1))).await.unwrap();
        drop(journal);
        let newer = [
            json!({"line": "result", "key": "a", "time": at(20), "result": {"Err": {"Unheard": 5}}}),
            json!({"line": "amends", "key": "a", "time": at(20), "why": "for Ann"}),
        ];
        let added = newer.each_ref().map(|line| format!("{line}\n")).concat();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(added.as_bytes()).unwrap();

        let journal = open(&path, 30);
        let begun = begin(&journal, "a", 30).await;
        assert!(
            matches!(begun, Begun::Done(Err(ToolError::Uncertain(_)))),
            "{begun:?}"
        );
        drop(journal);
        let lines = std::fs::read_to_string(&path).unwrap();
        assert!(!lines.contains("\"old\""), "{lines}");
        for line in &newer {
            let is_there = |kept: &str| serde_json::from_str::<Value>(kept).unwrap() == *line;
            assert!(lines.lines().any(is_there), "{line}: {lines}");
        }
        let of_ann =
            |_: &str, values: &[Value]| values.iter().any(|value| value["why"] == "for Ann");
        let forgotten = JournalFile::forget(&path, of_ann, false).unwrap();
        assert_eq!(forgotten, Some(1));
        let lines = std::fs::read_to_string(&path).unwrap();
        assert!(
            !lines.contains("Ann") && lines.contains("Unheard"),
            "{lines}"
        );
    }

    /// After a daily pruning that failed halfway, calls were recorded in the old file, which nobody reads again.
    #[tokio::test]
    async fn calls_are_recorded_in_the_file_that_is_at_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        assert_eq!(begin(&journal, "a", 0).await, Begun::Started);
        std::fs::copy(&path, path.with_extension("new")).unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        assert_eq!(begin(&journal, "b", 0).await, Begun::Started);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(begin(&journal, "c", 0).await, Begun::Started);
        assert_eq!(begin(&journal, "a", 0).await, Begun::Unknown);
        assert_eq!(begin(&open(&path, 0), "c", 0).await, Begun::Unknown);
    }

    #[tokio::test]
    async fn a_call_begun_by_another_process_is_not_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (one, other) = (open(&path, 0), open(&path, 0));
        assert_eq!(begin(&one, "a", 0).await, Begun::Started);
        assert_eq!(begin(&other, "a", 0).await, Begun::Unknown);
        let done = Ok(json!({"added": "buy milk"}));
        finish(&one, "a", &done).await.unwrap();
        assert_eq!(begin(&other, "a", 0).await, Begun::Done(done));

        let started = std::sync::atomic::AtomicUsize::new(0);
        let keys = (0..40).map(|number| format!("k{}", number / 2));
        let both = keys.enumerate().map(async |(number, key)| {
            let journal = if number % 2 == 0 { &one } else { &other };
            if begin(journal, &key, 0).await == Begun::Started {
                started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        futures_util::future::join_all(both).await;
        assert_eq!(started.into_inner(), 20);
        let lines = std::fs::read_to_string(&path).unwrap();
        assert_eq!(lines.lines().count(), 22);
    }

    #[tokio::test]
    async fn a_change_that_runs_in_another_process_is_waited_for_and_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (one, other) = (open(&path, 0), open(&path, 0));
        assert_eq!(begin(&one, "a", 0).await, Begun::Started);
        let same = crate::tools::Same {
            key: "a".into(),
            span: Duration::from_secs(60),
            takes: Duration::from_secs(60),
            is_keyed: false,
        };
        let (journal, arguments) = (Journal::new(other), intent("a", 0).arguments);
        let second = journal.once_per(
            &same,
            "s-call_1",
            "add_note",
            &arguments,
            || at(0),
            async |_| unreachable!("it was made already"),
        );
        tokio::pin!(second);
        assert!(futures_util::poll!(&mut second).is_pending());
        finish(&one, "a", &Ok(json!({"added": "milk"})))
            .await
            .unwrap();
        let told = second.await.unwrap();
        assert_eq!(told["added"], "milk");
        assert!(told["already_done"].is_string(), "{told}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_read() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            Path::new("/dev/zero"),
            Path::new("/dev/full"),
            folder.path(),
        ] {
            let refused = JournalFile::open(path, at(0));
            assert!(
                matches!(refused, Err(JournalError::NoFile { .. })),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn a_journal_on_a_read_only_disk_is_named_at_the_start() {
        // Nobody may make a file there.
        let path = Path::new("/sys/kernel/journal.jsonl");
        let refused = JournalFile::open(path, at(0)).unwrap_err().to_string();
        assert!(refused.contains("/sys/kernel/journal.jsonl"), "{refused}");
    }

    #[tokio::test]
    async fn what_a_failed_write_has_left_is_cut_off_before_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = open(&path, 0);
        begin(&journal, "a", 0).await;
        let whole = std::fs::read(&path).unwrap();
        for torn in [
            "{",
            &format!("{{\"line\":\"intent\",\"key\":\"{}", "x".repeat(10_000)),
        ] {
            std::fs::write(&path, [&whole[..], torn.as_bytes()].concat()).unwrap();
            journal.state().append(None).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
        std::fs::write(&path, "torn from the first byte on").unwrap();
        begin(&journal, "b", 0).await;
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }
}
