//! The journal of calls that change something: on disk before the call, and its result after it.
//! So a call runs at most once, whatever is retried, reconnects or crashes.
//!
//! One JSON object a line, appended and synced. A line that a crash cut short is skipped, and that
//! is safe: an intent that is not whole was never followed by its call, and without its result a
//! call counts as [`Begun::Unknown`] and does not run again.
//!
//! While a line cannot be written, as on a full disk, no call that changes something runs. What was
//! written of the line is cut off at once, and once a second it is tried whether writing works again.

mod figures;

pub use figures::JournalFigures;

use super::ToolError;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Finished calls are kept for a day: nobody retries one for longer.
const KEEP_RESULTS: SignedDuration = SignedDuration::from_hours(24);
/// Calls whose end is unknown, for a month, for an operator to look into.
const KEEP_UNKNOWN: SignedDuration = SignedDuration::from_hours(24 * 30);

/// How often it is tried whether a journal that failed can be written again.
const RETRY: Duration = Duration::from_secs(1);
/// Blank lines that such a try writes: a block of most file systems, and more than most lines.
const PROBE: [u8; 4096] = [b'\n'; 4096];

/// The result for the model of a call that could not be recorded and so did not run.
const NOT_DONE: &str =
    "it was not done, because no record of changes can be kept at the moment; it may work later";

/// Why the journal cannot be used. No call may run without it.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("the journal {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A device, a pipe or a folder: reading it may never end.
    #[error("the journal {} is no regular file", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
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

/// The journal's knowledge of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// Nothing: its intent is on disk now, and it may run.
    Started,
    /// It ran, with this result.
    Done(Result<Value, ToolError>),
    /// It was begun and its end is not known: it runs still, or the server died meanwhile. It must
    /// not run again.
    Unknown,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum JournalLine {
    Intent {
        key: String,
        time: Timestamp,
        tool: String,
        arguments: Map<String, Value>,
    },
    Result {
        key: String,
        time: Timestamp,
        result: Result<Value, ToolError>,
    },
}

#[derive(Debug)]
struct Entry {
    time: Timestamp,
    tool: String,
    arguments: Map<String, Value>,
    result: Option<(Timestamp, Result<Value, ToolError>)>,
}

/// The journal. Clones are the same one. Its methods block for as long as the disk takes to sync,
/// some milliseconds: [`Journal::once`] does that off the runtime's threads.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    path: PathBuf,
    file: File,
    /// Held shared while the journal is open: only who holds it alone may rewrite the file.
    _lock: File,
    entries: HashMap<String, Entry>,
    /// Results of calls that have run, which could not be written down yet.
    unwritten: Vec<JournalLine>,
    figures: JournalFigures,
    /// A task is trying whether writing works again.
    retrying: bool,
}

impl Journal {
    /// Opens the journal at `path`, or makes it with the folders above it. What is older than a day
    /// (a month, where the end is unknown) is left out, if no other process uses the file.
    ///
    /// # Errors
    /// [`JournalError::File`], [`JournalError::NoFile`].
    pub fn open(path: &Path, now: Timestamp) -> Result<Self, JournalError> {
        Self::open_counted(path, now, JournalFigures::default())
    }

    /// The same, and tells `figures` how it is.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_counted(
        path: &Path,
        now: Timestamp,
        figures: JournalFigures,
    ) -> Result<Self, JournalError> {
        Self::check(path)?;
        let state = open(path, now, figures).map_err(|source| JournalError::File {
            path: path.into(),
            source,
        })?;
        Ok(Self(Arc::new(Mutex::new(state))))
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
            Err(source) => Err(JournalError::File {
                path: path.into(),
                source,
            }),
        }
    }

    /// Writes down that the call with this key is about to run, unless it is known already.
    ///
    /// # Errors
    /// [`JournalError`]; the call must not run then.
    pub fn begin(
        &self,
        key: &str,
        tool: &str,
        arguments: &Map<String, Value>,
        now: Timestamp,
    ) -> Result<Begun, JournalError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = state.entries.get(key) {
            if entry.tool != tool || &entry.arguments != arguments {
                return Err(JournalError::KeyReused(key.into()));
            }
            let done = entry.result.as_ref().map(|(_, result)| result.clone());
            return Ok(done.map_or(Begun::Unknown, Begun::Done));
        }
        let line = JournalLine::Intent {
            key: key.into(),
            time: now,
            tool: tool.into(),
            arguments: arguments.clone(),
        };
        state.append(Some(&line))?;
        learn(&mut state.entries, line);
        Ok(Begun::Started)
    }

    /// Writes down what came of a call. If it cannot be written now it is written as soon as it can;
    /// should the server end before that, the call counts as [`Begun::Unknown`].
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn finish(
        &self,
        key: &str,
        result: &Result<Value, ToolError>,
        now: Timestamp,
    ) -> Result<(), JournalError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state
            .entries
            .get(key)
            .is_none_or(|entry| entry.result.is_some())
        {
            return Err(JournalError::NotBegun(key.into()));
        }
        let line = JournalLine::Result {
            key: key.into(),
            time: now,
            result: result.clone(),
        };
        learn(&mut state.entries, line.clone());
        state.unwritten.push(line);
        state.append(None)
    }

    /// Runs `call` unless the call with this key ran before, and gives its result, from the journal
    /// if it did. A call that was interrupted is not run again, and that is what the error says.
    /// `call` is not polled before its intent is on disk. If the future is dropped meanwhile, the
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
        let (journal, time) = (self.clone(), now());
        let (key, tool, arguments) = (key.to_owned(), tool.to_owned(), arguments.clone());
        let begun = blocking({
            let (key, tool) = (key.clone(), tool.clone());
            move || journal.begin(&key, &tool, &arguments, time)
        });
        let begun = begun.await.map_err(|error| {
            tracing::error!(%error, tool, "a call that changes something was not made");
            self.retry();
            ToolError::Failed(NOT_DONE.into())
        });
        match begun? {
            Begun::Done(result) => return result,
            Begun::Unknown => {
                return Err(ToolError::Failed(
                    "it was begun before and interrupted; whether it took effect is not known"
                        .into(),
                ));
            }
            Begun::Started => {}
        }
        let result = call.await;
        let (journal, time, written) = (self.clone(), now(), result.clone());
        let finished = blocking(move || journal.finish(&key, &written, time)).await;
        if let Err(error) = finished {
            // The call has run: its result is the truth, whatever the disk says.
            tracing::error!(%error, tool, "a result could not be written down");
            self.retry();
        }
        result
    }

    /// Tries until writing works again, so that the server is ready again although nobody calls.
    fn retry(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let works = !state.figures.is_failing();
        if works || std::mem::replace(&mut state.retrying, true) {
            return;
        }
        let journal = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RETRY).await;
                let journal = journal.clone();
                if blocking(move || journal.try_again()).await.is_ok() {
                    return;
                }
            }
        });
    }

    fn try_again(&self) -> Result<(), JournalError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.append(None)?;
        state.retrying = false;
        Ok(())
    }

    /// The calls whose end is not known, oldest first: key, tool, arguments, and when each was
    /// begun.
    pub fn unknown(&self) -> Vec<(String, String, Map<String, Value>, Timestamp)> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = state
            .entries
            .iter()
            .filter(|(_, entry)| entry.result.is_none());
        let mut open: Vec<_> = open
            .map(|(key, entry)| {
                (
                    key.clone(),
                    entry.tool.clone(),
                    entry.arguments.clone(),
                    entry.time,
                )
            })
            .collect();
        open.sort_by_key(|(_, _, _, begun)| *begun);
        open
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(JournalError::Panicked))
}

impl State {
    /// Writes down what waits, and `line`.
    fn append(&mut self, line: Option<&JournalLine>) -> Result<(), JournalError> {
        let failing = self.figures.is_failing();
        match self.write(line, failing) {
            Ok(()) => {
                self.unwritten.clear();
                if failing {
                    tracing::info!(journal = %self.path.display(), "the journal can be written again");
                    self.figures.works();
                }
                Ok(())
            }
            Err(source) => {
                if !failing {
                    tracing::error!(
                        journal = %self.path.display(), error = %source,
                        "the journal cannot be written: until it can, no call that changes \
                         something is made"
                    );
                }
                self.figures.failed();
                Err(JournalError::File {
                    path: self.path.clone(),
                    source,
                })
            }
        }
    }

    /// All lines or none, as one process after the other. Whether there is room is tried first
    /// if `probe`.
    fn write(&mut self, line: Option<&JournalLine>, probe: bool) -> io::Result<()> {
        self.file.lock()?;
        let written = self.write_locked(line, probe);
        let unlocked = self.file.unlock();
        written.and(unlocked)
    }

    fn write_locked(&mut self, line: Option<&JournalLine>, probe: bool) -> io::Result<()> {
        let end = cut_torn_line(&mut self.file)?;
        let mut write = || {
            if probe {
                self.file.write_all(&PROBE)?;
                self.file.sync_data()?;
                self.file.set_len(end)?;
            }
            for line in self.unwritten.iter().chain(line) {
                write_line(&mut self.file, line)?;
            }
            self.file.sync_data()
        };
        let written = write();
        if written.is_err() {
            // Should this fail, too, the next line finds the torn one and cuts it off.
            let _ = self.file.set_len(end);
        }
        written
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

fn open(path: &Path, now: Timestamp, figures: JournalFigures) -> io::Result<State> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let lock = private()
        .truncate(false)
        .write(true)
        .open(path.with_extension("lock"))?;
    let alone = lock.try_lock().is_ok();
    if !alone {
        lock.lock_shared()?;
    }
    let mut entries = read(path)?;
    if alone {
        let before = entries.len();
        entries.retain(|_, entry| is_kept(entry, now));
        if entries.len() < before {
            rewrite(path, folder, &entries)?;
        }
        lock.unlock()?;
        lock.lock_shared()?;
    }
    let mut file = private().read(true).append(true).open(path)?;
    end_line(&mut file)?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(State {
        path: path.into(),
        file,
        _lock: lock,
        entries,
        unwritten: Vec::new(),
        figures,
        retrying: false,
    })
}

/// For this user alone: arguments are what people said.
fn private() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// Ends a line that a crash cut short, so that the next one is whole.
fn end_line(file: &mut File) -> io::Result<()> {
    use std::io::Read;
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<HashMap<String, Entry>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let mut entries = HashMap::new();
    for line in bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match serde_json::from_slice(line) {
            Ok(line) => learn(&mut entries, line),
            Err(_) => {
                tracing::warn!(journal = %path.display(), "a line that was cut short is skipped")
            }
        }
    }
    Ok(entries)
}

fn learn(entries: &mut HashMap<String, Entry>, line: JournalLine) {
    match line {
        JournalLine::Intent {
            key,
            time,
            tool,
            arguments,
        } => {
            entries.entry(key).or_insert(Entry {
                time,
                tool,
                arguments,
                result: None,
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
    match &entry.result {
        Some((time, _)) => now.duration_since(*time) < KEEP_RESULTS,
        None => now.duration_since(entry.time) < KEEP_UNKNOWN,
    }
}

/// Writes the entries to a new file, which takes the old one's place at once.
fn rewrite(path: &Path, folder: &Path, entries: &HashMap<String, Entry>) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = private().write(true).truncate(true).open(&new)?;
    for (key, entry) in entries {
        write_line(
            &mut file,
            &JournalLine::Intent {
                key: key.clone(),
                time: entry.time,
                tool: entry.tool.clone(),
                arguments: entry.arguments.clone(),
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
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// In one write, so that lines of several processes do not mix.
fn write_line(file: &mut File, line: &JournalLine) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    fn arguments() -> Map<String, Value> {
        json!({"text": "buy milk"}).as_object().cloned().unwrap()
    }

    fn begin(journal: &Journal, key: &str, hours: i64) -> Begun {
        journal
            .begin(key, "add_note", &arguments(), at(hours))
            .unwrap()
    }

    #[test]
    fn a_call_is_started_once_and_its_result_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/journal.jsonl");
        let journal = Journal::open(&path, at(0)).unwrap();
        assert_eq!(begin(&journal, "a", 0), Begun::Started);
        assert_eq!(begin(&journal, "a", 0), Begun::Unknown);
        let done = Ok(json!({"added": "buy milk"}));
        journal.finish("a", &done, at(0)).unwrap();
        assert!(matches!(
            journal.finish("a", &done, at(0)),
            Err(JournalError::NotBegun(_))
        ));
        let failed = Err(ToolError::Timeout(5));
        assert_eq!(begin(&journal, "b", 0), Begun::Started);
        journal.finish("b", &failed, at(0)).unwrap();
        assert_eq!(begin(&journal, "c", 0), Begun::Started);
        drop(journal);

        let journal = Journal::open(&path, at(1)).unwrap();
        assert_eq!(begin(&journal, "a", 1), Begun::Done(done));
        assert_eq!(begin(&journal, "b", 1), Begun::Done(failed));
        assert_eq!(begin(&journal, "c", 1), Begun::Unknown);
        assert_eq!(journal.unknown().len(), 1);
        let other = journal.begin("a", "add_note", &Map::new(), at(1));
        assert!(matches!(other, Err(JournalError::KeyReused(_))));
    }

    /// Wherever the last line is cut, no call that may have run is started again.
    #[test]
    fn a_torn_last_line_never_lets_a_call_run_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = Journal::open(&path, at(0)).unwrap();
        begin(&journal, "a", 0);
        let intent = std::fs::metadata(&path).unwrap().len() as usize;
        journal.finish("a", &Ok(json!(1)), at(0)).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let journal = Journal::open(&path, at(0)).unwrap();
            let begun = begin(&journal, "a", 0);
            // A line is whole when only its line feed is missing.
            let expected = if cut < intent - 1 {
                Begun::Started
            } else if cut < whole.len() - 1 {
                Begun::Unknown
            } else {
                Begun::Done(Ok(json!(1)))
            };
            assert_eq!(begun, expected, "{cut} of {} bytes", whole.len());
            begin(&journal, "b", 0);
            drop(journal);
            let journal = Journal::open(&path, at(0)).unwrap();
            assert_eq!(begin(&journal, "b", 0), Begun::Unknown, "{cut}");
        }
    }

    #[test]
    fn what_is_old_is_left_out_unless_another_process_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = Journal::open(&path, at(0)).unwrap();
        for key in ["old", "open"] {
            begin(&journal, key, 0);
        }
        journal.finish("old", &Ok(Value::Null), at(0)).unwrap();
        let second = Journal::open(&path, at(48)).unwrap();
        assert_eq!(begin(&second, "old", 48), Begun::Done(Ok(Value::Null)));
        drop((journal, second));

        let journal = Journal::open(&path, at(48)).unwrap();
        assert_eq!(begin(&journal, "old", 48), Begun::Started);
        assert_eq!(begin(&journal, "open", 48), Begun::Unknown);
        drop(journal);
        let journal = Journal::open(&path, at(24 * 31)).unwrap();
        assert_eq!(begin(&journal, "open", 24 * 31), Begun::Started);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_read() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            Path::new("/dev/zero"),
            Path::new("/dev/full"),
            folder.path(),
        ] {
            let refused = Journal::open(path, at(0));
            assert!(
                matches!(refused, Err(JournalError::NoFile { .. })),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn what_a_failed_write_has_left_is_cut_off_before_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = Journal::open(&path, at(0)).unwrap();
        begin(&journal, "a", 0);
        let whole = std::fs::read(&path).unwrap();
        for torn in [
            "{",
            &format!("{{\"line\":\"intent\",\"key\":\"{}", "x".repeat(10_000)),
        ] {
            std::fs::write(&path, [&whole[..], torn.as_bytes()].concat()).unwrap();
            journal.0.lock().unwrap().append(None).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
        std::fs::write(&path, "torn from the first byte on").unwrap();
        begin(&journal, "b", 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[tokio::test]
    async fn once_runs_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let journal = Journal::open(&path, at(0)).unwrap();
        let runs = std::cell::Cell::new(0);
        let run = || async {
            runs.set(runs.get() + 1);
            Ok(json!(runs.get()))
        };
        for _ in 0..3 {
            let result = journal.once("k", "t", &arguments(), || at(0), run()).await;
            assert_eq!(result, Ok(json!(1)));
        }
        // A call that is given up halfway is not run again.
        let never = std::future::pending();
        let noted = arguments();
        let given_up = journal.once("dropped", "t", &noted, || at(0), never);
        let late = tokio::time::timeout(std::time::Duration::from_millis(200), given_up).await;
        assert!(late.is_err());
        let again = journal
            .once("dropped", "t", &arguments(), || at(0), run())
            .await;
        assert!(matches!(again, Err(ToolError::Failed(reason)) if reason.contains("not known")));
        assert_eq!(runs.get(), 1);
    }
}
