//! The turn log: one line per turn with its times and tool runs, without anything that was said.

use crate::conversation::TurnRecord;
use crate::metrics::UNKNOWN_TOOL;
use crate::telemetry::LineLog;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedTurn {
    /// When it was over; `None` in lines of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
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
            time: None,
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
pub struct TurnLog(LineLog<LoggedTurn>);

impl TurnLog {
    /// Opens the file for appending, or creates it readable by its owner only.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(path: &Path) -> io::Result<Self> {
        LineLog::open(path, "turn log").map(Self)
    }

    /// Queues a turn for writing, or drops it if the queue is full.
    pub fn put(&self, turn: LoggedTurn) {
        self.0.put(turn);
    }

    /// The count of dropped turns.
    pub fn lost(&self) -> Counter {
        self.0.lost()
    }

    /// Waits until all queued turns are written, ten seconds at most.
    pub async fn finish(&self) {
        self.0.finish().await;
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
}
