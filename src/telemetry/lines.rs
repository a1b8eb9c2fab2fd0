//! Files of JSON lines to which this server and others append, and from which old lines are taken out.

use super::{Throttle, WholeLines};
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// The most lines queued for the disk.
const QUEUE: usize = 1_024;

/// How long writing the last lines may take when the server stops.
const LAST_LINES: Duration = Duration::from_secs(10);

/// Appends lines to a file, on a thread of its own. Lines that cannot be written are dropped and counted; writing
/// resumes as soon as it works again.
#[derive(Debug)]
pub struct LineLog<T> {
    /// The file's name in warnings.
    name: &'static str,
    entries: SyncSender<Entry<T>>,
    lost: Counter,
}

impl<T> Clone for LineLog<T> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            entries: self.entries.clone(),
            lost: self.lost.clone(),
        }
    }
}

#[derive(Debug)]
enum Entry<T> {
    Line(Box<T>),
    /// Signals that all entries before it have been handled.
    Mark(oneshot::Sender<()>),
}

impl<T: Serialize + Send + 'static> LineLog<T> {
    /// Opens the file for appending, or creates it readable by its owner only. `name` says in warnings what it is.
    ///
    /// # Errors
    /// The file cannot be opened or read, or the thread cannot be started.
    pub fn open(path: &Path, name: &'static str) -> io::Result<Self> {
        let lines = opened(path)?;
        let (entries, waiting) = sync_channel(QUEUE);
        let lost = Counter::default();
        let counted = lost.clone();
        std::thread::Builder::new()
            .name(name.replace(' ', "-"))
            .spawn(move || write(lines, &waiting, name, &counted))?;
        Ok(Self {
            name,
            entries,
            lost,
        })
    }

    /// Queues a line for writing, or drops it if the queue is full.
    pub fn put(&self, line: T) {
        if self.entries.try_send(Entry::Line(Box::new(line))).is_err() {
            self.lost.inc();
            tracing::warn!(file = self.name, "dropped a line: the disk is too slow");
        }
    }

    /// The count of dropped lines.
    pub fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Waits until all queued lines are written, ten seconds at most.
    pub async fn finish(&self) {
        let (mark, reached) = oneshot::channel();
        let sent = self.entries.try_send(Entry::Mark(mark));
        let written = tokio::time::timeout(LAST_LINES, reached).await;
        if sent.is_err() || !matches!(written, Ok(Ok(()))) {
            tracing::warn!(file = self.name, "the last lines were not written");
        }
    }
}

/// A file that is locked while a line is written, so that [`retain`] loses none.
#[derive(Debug)]
struct Locked(File);

impl Write for Locked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock()?;
        let written = self.0.write(bytes);
        self.0.unlock()?;
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes entries. Each line is written whole and flushed at once, because other processes may read
/// the file or append to it.
fn write<T: Serialize>(
    mut lines: WholeLines<impl Write>,
    entries: &Receiver<Entry<T>>,
    name: &'static str,
    lost: &Counter,
) {
    let mut warnings = Throttle::default();
    while let Ok(entry) = entries.recv() {
        let line = match entry {
            Entry::Line(line) => line,
            // The receiver may have timed out.
            Entry::Mark(mark) => {
                let _ = mark.send(());
                continue;
            }
        };
        let written = serde_json::to_vec(&line).map_err(io::Error::from);
        let written = written.and_then(|mut line| {
            line.push(b'\n');
            lines.append(&line)
        });
        if let Err(error) = written {
            lost.inc();
            warnings.warn(|more| tracing::warn!(%error, more, file = name, "cannot write"));
        }
    }
}

/// Appends a line to a file, which is made readable by its owner only. One that was cut off before it is ended first.
///
/// # Errors
/// The file cannot be read or written.
pub fn append(path: &Path, line: &Value) -> io::Result<()> {
    opened(path)?.append(format!("{line}\n").as_bytes())
}

/// Opens a file for appending, or creates it readable by its owner only.
fn opened(path: &Path) -> io::Result<WholeLines<Locked>> {
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(path)?;
    // A pipe may not be opened for reading: it would never break.
    let is_file = file.metadata()?.is_file();
    file.lock()?;
    let torn = if is_file { is_torn(path) } else { Ok(false) };
    file.unlock()?;
    let (out, torn) = (Locked(file), torn?);
    Ok(WholeLines { out, torn })
}

/// Whether the last line was cut off. Unknown, so `false`, if this user may only write the file.
fn is_torn(path: &Path) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        opened => opened?,
    };
    let mut last = Vec::new();
    // An empty file has no last byte.
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_to_end(&mut last)?;
    }
    Ok(last.first().is_some_and(|byte| *byte != b'\n'))
}

/// Takes the lines out of a file that are not to be kept, while others may append to it. `keep` is given a line that is no
/// JSON, such as one that a full disk has cut off, as a text. Returns how many were taken out; none if there is no file.
///
/// # Errors
/// The file cannot be read or written.
pub fn retain(path: &Path, keep: impl Fn(&Value) -> bool) -> io::Result<usize> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    // In place, since the others hold the file open.
    file.lock()?;
    let retained = retain_locked(&mut file, keep);
    file.unlock()?;
    retained
}

fn retain_locked(file: &mut File, keep: impl Fn(&Value) -> bool) -> io::Result<usize> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let is_kept = |line: &&[u8]| {
        let text = |_: serde_json::Error| Value::from(String::from_utf8_lossy(line));
        keep(&serde_json::from_slice(line).unwrap_or_else(text))
    };
    let lines = || text.split_inclusive(|byte| *byte == b'\n');
    let kept: Vec<u8> = lines().filter(is_kept).flatten().copied().collect();
    let removed = lines().count() - lines().filter(is_kept).count();
    if removed > 0 {
        file.rewind()?;
        file.write_all(&kept)?;
        file.set_len(kept.len() as u64)?;
        file.sync_data()?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A disk that is full for the first writes.
    struct Full(usize, Vec<u8>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 > 0 {
                self.0 -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_on_a_read_only_disk_is_refused_at_the_start() {
        // Nobody may make a file there.
        let path = Path::new("/sys/kernel/turns.jsonl");
        assert!(LineLog::<Value>::open(path, "turn log").is_err());
    }

    #[test]
    fn a_full_disk_loses_lines_but_writing_resumes() {
        let (entries, waiting) = sync_channel(4);
        for number in 1..=3 {
            entries.try_send(Entry::Line(Box::new(number))).unwrap();
        }
        drop(entries);
        let (mut disk, lost) = (Full(2, Vec::new()), Counter::default());
        write(WholeLines::new(&mut disk), &waiting, "test", &lost);
        assert_eq!((lost.get(), disk.1.as_slice()), (2, &b"3\n"[..]));
    }

    #[test]
    fn lines_are_taken_out_while_another_appends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        assert_eq!(retain(&path, |_| false).unwrap(), 0);
        let log = LineLog::open(&path, "test").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for number in 1..=4 {
            log.put(json!({ "number": number }));
        }
        runtime.block_on(log.finish());
        assert_eq!(retain(&path, |line| line["number"] != 2).unwrap(), 1);
        log.put(json!({"number": 5}));
        runtime.block_on(log.finish());
        let text = std::fs::read_to_string(&path).unwrap();
        let numbers = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let numbers: Vec<_> = numbers
            .map(|line| line["number"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, [1, 3, 4, 5]);
        assert_eq!(retain(&path, |_| true).unwrap(), 0);
    }

    /// The next line was added to it, and neither could be read.
    #[test]
    fn a_line_is_not_added_to_one_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        append(&path, &json!({"a": 1})).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"b\":").unwrap();
        append(&path, &json!({"c": 3})).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"a\":1}\n{\"b\":\n{\"c\":3}\n");
    }

    /// After a restart the first line was added to it.
    #[test]
    fn a_log_does_not_go_on_in_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for (before, after) in [
            ("", "2\n"),
            ("1\n", "1\n2\n"),
            ("1\n{\"b\":", "1\n{\"b\":\n2\n"),
        ] {
            std::fs::write(&path, before).unwrap();
            let log = LineLog::open(&path, "test").unwrap();
            log.put(2);
            runtime.block_on(log.finish());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_log_may_be_a_device() {
        assert!(LineLog::<Value>::open(Path::new("/dev/null"), "test").is_ok());
    }

    #[test]
    fn what_is_no_json_is_a_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        std::fs::write(&path, "torn{\n{\"a\":1}\nend").unwrap();
        assert_eq!(retain(&path, Value::is_string).unwrap(), 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "torn{\nend");
        let is_end = |line: &Value| line == "end";
        assert_eq!(retain(&path, is_end).unwrap(), 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "end");
    }
}
