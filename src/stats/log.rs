//! The turn log: one line per turn with its times and tool runs, without anything that was said.

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

/// The most turns queued for the disk.
const QUEUE: usize = 1_024;

/// How long writing the last lines may take when the server stops.
const LAST_LINES: Duration = Duration::from_secs(10);

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedTurn {
    /// The session, by its number since the server started.
    pub session: u64,
    /// The agent whose turn it was, if the server has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The turn's tools that only read.
    pub reads: BTreeSet<String>,
    /// The turn, without arguments.
    pub turn: TurnRecord,
}

impl LoggedTurn {
    /// The line of a turn. Arguments are left out, and so are tool names that the model invented:
    /// `only_reads` returns whether a tool only reads, or `None` if the server does not have it.
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
        for held in &mut turn.held {
            held.tool.as_mut().map(&mut clean);
        }
        for draft in &mut turn.drafts {
            draft.tool.as_mut().map(&mut clean);
        }
        Self {
            session,
            agent: None,
            reads,
            turn,
        }
    }
}

/// Appends turns to a file, on a thread of its own. Turns that cannot be written are dropped and
/// counted; logging resumes as soon as writing works again.
#[derive(Debug, Clone)]
pub struct TurnLog {
    entries: SyncSender<Entry>,
    lost: Counter,
}

#[derive(Debug)]
enum Entry {
    Turn(Box<LoggedTurn>),
    /// Signals that all entries before it have been handled.
    Mark(oneshot::Sender<()>),
}

impl TurnLog {
    /// Opens the file for appending, or creates it readable by its owner only.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
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

    /// Queues a turn for writing, or drops it if the queue is full.
    pub fn put(&self, turn: LoggedTurn) {
        if self.entries.try_send(Entry::Turn(Box::new(turn))).is_err() {
            self.lost.inc();
            tracing::warn!("dropped a turn from the turn log: the disk is too slow");
        }
    }

    /// The count of dropped turns.
    pub fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Waits until all queued turns are written, ten seconds at most.
    pub async fn finish(&self) {
        let (mark, reached) = oneshot::channel();
        let sent = self.entries.try_send(Entry::Mark(mark));
        let written = tokio::time::timeout(LAST_LINES, reached).await;
        if sent.is_err() || !matches!(written, Ok(Ok(()))) {
            tracing::warn!("the last turns were not written to the turn log");
        }
    }
}

/// Writes entries. Each line is written whole and flushed at once, because other processes may read
/// the file or append to it.
fn write(file: impl Write, entries: &Receiver<Entry>, lost: &Counter) {
    let mut lines = WholeLines::new(file);
    let mut warnings = Throttle::default();
    while let Ok(entry) = entries.recv() {
        let turn = match entry {
            Entry::Turn(turn) => turn,
            // The receiver may have timed out.
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
            warnings.warn(|more| tracing::warn!(%error, more, "cannot write to the turn log"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{early_run, record};
    use super::*;

    #[test]
    fn nothing_that_was_said_is_written() {
        let mut turn = record();
        turn.runs.push(early_run("made up by the model", None));
        turn.drafts[0].tool = Some("made up by the draft".into());
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
        assert_eq!(read[0].turn.drafts[0].tool.as_deref(), Some(UNKNOWN_TOOL));
    }

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
    fn a_full_disk_loses_turns_but_logging_resumes() {
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
