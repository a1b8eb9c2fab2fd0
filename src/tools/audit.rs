//! The audit log: a line for each call that may have changed something. The journal makes sure that such a call runs once
//! and forgets it; this file is for people who want to know later who changed what, and nothing waits for it.

use super::journal::{ALREADY_DONE, NOT_DONE, UNKNOWN};
use super::{Confirmation, Declaration, Named, Origin, SessionValues, ToolError};
use crate::telemetry::LineLog;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Appends calls to a file. What cannot be written is dropped and counted.
#[derive(Debug, Clone)]
pub struct AuditLog {
    lines: LineLog<AuditLine>,
    with_arguments: bool,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct AuditLine {
    /// When the call was over.
    time: Timestamp,
    /// The session, as reports and file names of recordings have it.
    session: String,
    /// The call's idempotency key.
    call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// The way by which the client came.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    /// The origin of the caller's number; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<Origin>,
    tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Map<String, Value>>,
    /// Of the arguments as JSON with sorted keys and without spaces.
    arguments_sha256: String,
    /// The user was asked and said yes.
    confirmed: bool,
    result: &'static str,
}

/// A call that is about to run.
#[derive(Debug)]
pub struct Audited {
    log: AuditLog,
    line: AuditLine,
}

/// The session of a call.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Its name in reports.
    pub session: uuid::Uuid,
    /// Its agent, if the server has several.
    pub agent: Option<&'a str>,
    /// The facts on its caller.
    pub values: &'a SessionValues,
}

impl AuditLog {
    /// Opens the file, or makes it readable by its owner only. Without `with_arguments` there are only their hashes.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, with_arguments: bool) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let lines = LineLog::open(path, "audit log")?;
        Ok(Self {
            lines,
            with_arguments,
        })
    }

    /// The count of dropped lines.
    pub fn lost(&self) -> Counter {
        self.lines.lost()
    }

    /// Waits until all lines are written, ten seconds at most.
    pub async fn finish(&self) {
        self.lines.finish().await;
    }

    /// Begins the line of a call of `tool` with the idempotency key `call`.
    pub fn begin(&self, caller: Caller<'_>, tool: &Declaration, call: &str) -> Audited {
        let value = |name| caller.values.get(&name);
        let line = AuditLine {
            time: Timestamp::UNIX_EPOCH,
            session: caller.session.to_string(),
            call: call.to_owned(),
            agent: caller.agent.map(str::to_owned),
            transport: value(Named::Transport).map(|(name, _)| name.to_owned()),
            caller: value(Named::Caller).map(|(_, origin)| origin),
            tool: tool.spec.name.to_string(),
            arguments: None,
            arguments_sha256: String::new(),
            // The conversation starts such a call only after a yes.
            confirmed: matches!(tool.confirmation, Confirmation::Spoken { .. }),
            result: "",
        };
        Audited {
            log: self.clone(),
            line,
        }
    }
}

impl Audited {
    /// Adds how the call ended.
    pub fn ended(
        mut self,
        time: Timestamp,
        arguments: Option<&Map<String, Value>>,
        result: &Result<Value, ToolError>,
    ) {
        self.line.time = time;
        self.line.arguments_sha256 = arguments.map(hash).unwrap_or_default();
        self.line.arguments = arguments.filter(|_| self.log.with_arguments).cloned();
        self.line.result = outcome(result);
        self.log.lines.put(self.line);
    }
}

fn outcome(result: &Result<Value, ToolError>) -> &'static str {
    match result {
        Ok(value) if value.get(ALREADY_DONE).is_some() => "already_done",
        Ok(_) => "done",
        // Whether anything changed is not known.
        Err(ToolError::Timeout(_) | ToolError::Unanswered(_)) => "late",
        Err(ToolError::Broken(_) | ToolError::Uncertain(_)) => "broken",
        // An earlier run of this call was interrupted.
        Err(ToolError::Failed(why)) if why == UNKNOWN => "broken",
        Err(ToolError::Failed(why)) if why == NOT_DONE => "not_begun",
        Err(ToolError::NotBegun(_)) => "not_begun",
        Err(ToolError::Failed(_)) => "failed",
        Err(ToolError::Arguments(_) | ToolError::Unknown(_)) => "refused",
    }
}

fn hash(arguments: &Map<String, Value>) -> String {
    let mut sorted = Value::Object(arguments.clone());
    sorted.sort_all_objects();
    Sha256::digest(sorted.to_string())
        .iter()
        .fold(String::new(), |mut hex, byte| {
            // Writing into a `String` does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn the_hash_is_that_of_sorted_json_without_spaces() {
        let one = hash(&arguments(json!({"b": {"y": 1, "x": 2}, "a": "é"})));
        let other = hash(&arguments(json!({"a": "é", "b": {"x": 2, "y": 1}})));
        assert_eq!(one, other);
        // printf '{"a":1}' | sha256sum
        let known = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(hash(&arguments(json!({"a": 1}))), known);
    }

    #[test]
    fn results_are_told_apart_without_their_words() {
        let failed = |error| outcome(&Err(error));
        assert_eq!(outcome(&Ok(json!({"id": 7}))), "done");
        assert_eq!(
            outcome(&Ok(json!({"id": 7, ALREADY_DONE: "so"}))),
            "already_done"
        );
        assert_eq!(
            failed(ToolError::Failed("no table is free".into())),
            "failed"
        );
        assert_eq!(failed(ToolError::Failed(UNKNOWN.into())), "broken");
        assert_eq!(failed(ToolError::Failed(NOT_DONE.into())), "not_begun");
        assert_eq!(failed(ToolError::Timeout(5_000)), "late");
        assert_eq!(failed(ToolError::Unanswered(5_000)), "late");
        assert_eq!(failed(ToolError::Broken("503".into())), "broken");
        assert_eq!(failed(ToolError::Arguments("no day".into())), "refused");
    }
}
