//! A file with one line for each turn: what was done and when, without a word that was said.

use crate::conversation::TurnRecord;
use crate::metrics::UNKNOWN_TOOL;
use crate::telemetry::{Throttle, WholeLines};
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Turns that may wait for the disk.
const QUEUE: usize = 1_024;

/// How long the last lines may take when the server stops.
const LAST_LINES: Duration = Duration::from_secs(10);

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedTurn {
    /// The session, by its number since the server started.
    pub session: u64,
    /// Those tools of the turn that only read.
    pub reads: BTreeSet<String>,
    /// The turn, without arguments.
    pub turn: TurnRecord,
}

impl LoggedTurn {
    /// The line of a turn. Arguments are left out, and so are names that only the model made up:
    /// `only_reads` says of a tool that the server has whether it only reads, else `None`.
    pub fn new(
        session: u64,
        mut turn: TurnRecord,
        only_reads: impl Fn(&str) -> Option<bool>,
    ) -> Self {
        let mut reads = BTreeSet::new();
        let mut clean = |tool: &mut String| match only_reads(tool) {
            Some(true) => drop(reads.insert(tool.clone())),
            Some(false) => {}
            None => UNKNOWN_TOOL.clone_into(tool),
        };
        for prediction in &mut turn.predictions {
            clean(&mut prediction.tool);
        }
        for run in &mut turn.runs {
            clean(&mut run.tool);
            run.arguments.clear();
        }
        Self {
            session,
            reads,
            turn,
        }
    }
}

/// Appends turns to a file, on a thread of its own. What cannot be written is lost and counted; as soon
/// as writing works again, it goes on.
#[derive(Debug, Clone)]
pub struct TurnLog {
    entries: SyncSender<Entry>,
    lost: Counter,
}

#[derive(Debug)]
enum Entry {
    Turn(Box<LoggedTurn>),
    /// All before it is written.
    Mark(oneshot::Sender<()>),
}

impl TurnLog {
    /// Opens the file at its end, or makes it: only its owner may read it.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no thread to be had.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        let (entries, waiting) = sync_channel(QUEUE);
        let lost = Counter::default();
        let counted = lost.clone();
        std::thread::Builder::new()
            .name("turn-log".into())
            .spawn(move || write(file, &waiting, &counted))?;
        Ok(Self { entries, lost })
    }

    /// Has a turn written. If the disk is too slow for it, it is not.
    pub fn put(&self, turn: LoggedTurn) {
        if self.entries.try_send(Entry::Turn(Box::new(turn))).is_err() {
            self.lost.inc();
            tracing::warn!("a turn was not written: the disk is too slow");
        }
    }

    /// Turns that could not be written.
    pub fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Waits until all that was put is written, ten seconds at most.
    pub async fn finish(&self) {
        let (mark, reached) = oneshot::channel();
        let sent = self.entries.try_send(Entry::Mark(mark));
        let written = tokio::time::timeout(LAST_LINES, reached).await;
        if sent.is_err() || !matches!(written, Ok(Ok(()))) {
            tracing::warn!("the last turns were not written");
        }
    }
}

/// Each line in one piece and at once: others may append to the same file and read it meanwhile.
fn write(file: impl Write, entries: &Receiver<Entry>, lost: &Counter) {
    let mut lines = WholeLines::new(file);
    let mut warnings = Throttle::default();
    while let Ok(entry) = entries.recv() {
        let turn = match entry {
            Entry::Turn(turn) => turn,
            // Whoever waits may have given up.
            Entry::Mark(mark) => {
                let _ = mark.send(());
                continue;
            }
        };
        let written = serde_json::to_vec(&turn).map_err(io::Error::from);
        let written = written.and_then(|mut line| {
            line.push(b'\n');
            lines.append(&line)
        });
        if let Err(error) = written {
            lost.inc();
            warnings.warn(|more| tracing::warn!(%error, more, "a turn was not written"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{early_run, record};
    use super::*;

    #[test]
    fn no_word_is_written() {
        let mut turn = record();
        turn.runs.push(early_run("made up by the model", None));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turns.jsonl");
        let log = TurnLog::open(&path).unwrap();
        let logged = LoggedTurn::new(7, turn, |tool| (tool == "weather").then_some(true));
        log.put(logged.clone());
        log.put(logged.clone());
        tokio::runtime::Runtime::new()
            .unwrap()
            .block_on(log.finish());
        let text = std::fs::read_to_string(&path).unwrap();
        let read: Vec<LoggedTurn> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read, [logged.clone(), logged]);
        assert!(
            !text.contains("Secretville") && !text.contains("made up"),
            "{text}"
        );
        assert_eq!(read[0].turn.runs[1].tool, UNKNOWN_TOOL);
    }

    /// Is full for the first writes.
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
    fn a_disk_that_was_full_loses_turns_and_not_the_log() {
        let (entries, waiting) = sync_channel(4);
        for session in 1..=3 {
            let turn = LoggedTurn::new(session, record(), |_| None);
            entries.try_send(Entry::Turn(Box::new(turn))).unwrap();
        }
        drop(entries);
        let (mut disk, lost) = (Full(2, Vec::new()), Counter::default());
        write(&mut disk, &waiting, &lost);
        assert_eq!(lost.get(), 2);
        let turn: LoggedTurn = serde_json::from_slice(&disk.1).unwrap();
        assert_eq!(turn.session, 3);
    }
}
