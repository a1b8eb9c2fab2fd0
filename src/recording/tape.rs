//! Records simulated sessions in the format of live ones. It is here because the conversation and
//! its tests do no file I/O.

use super::{Header, RecordingLine};
use crate::conversation::{Experience, Input, Output, Policy, Time};
use serde::Serialize;
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// The environment variable with the folder for recordings.
const FOLDER: &str = "RECORD_TO";

/// Writes a file in the repository.
pub(crate) fn commit(path: &str, text: &str) {
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), text).unwrap();
}

/// A recording that is written to the folder when dropped, if the variable is set.
pub(crate) struct Tape {
    name: String,
    text: String,
}

thread_local! {
    /// The sessions of this test so far: each test runs in a thread named after it.
    static SESSIONS: Cell<u32> = const { Cell::new(0) };
}

impl Tape {
    /// A tape named after the running test; `None` if the variable is not set.
    pub(crate) fn of_this_test(policy: &Policy) -> Option<Self> {
        std::env::var_os(FOLDER)?;
        let number = SESSIONS.replace(SESSIONS.get() + 1);
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test").replace("::", ".");
        Some(Self::start(policy, format!("{test}-{number}")))
    }

    pub(crate) fn start(policy: &Policy, name: String) -> Self {
        let mut tape = Self {
            name,
            text: String::new(),
        };
        tape.write(&Header::new(policy.clone(), Experience::default()));
        tape
    }

    pub(crate) fn step(&mut self, at: Time, input: Option<Input>) {
        self.write(&RecordingLine::step(at, input));
    }

    pub(crate) fn output(&mut self, output: Output) {
        self.write(&RecordingLine::output(output));
    }

    /// All lines so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Drops the tape without writing it.
    pub(crate) fn discard(mut self) {
        self.text.clear();
    }

    fn write(&mut self, line: &impl Serialize) {
        self.text += &serde_json::to_string(line).unwrap();
        self.text.push('\n');
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        let Some(folder) = std::env::var_os(FOLDER).filter(|_| !self.text.is_empty()) else {
            return;
        };
        self.write(&RecordingLine::end());
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{}.jsonl", self.name)), &self.text).unwrap();
    }
}
