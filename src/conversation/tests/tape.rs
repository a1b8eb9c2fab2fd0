//! The recording of a simulated session, in the format of a live one.

use super::super::{Input, Output, Policy, Time};
use crate::recording::{Header, Line};
use serde::Serialize;
use std::cell::Cell;
use std::path::PathBuf;

/// Names the folder that recordings are written to.
const FOLDER: &str = "RECORD_TO";

/// Written when it is dropped, if there is a folder for it.
pub(super) struct Tape {
    name: String,
    text: String,
}

thread_local! {
    /// Each test runs in a thread of its own, under its own name.
    static SESSIONS: Cell<u32> = const { Cell::new(0) };
}

impl Tape {
    /// Named after the test that is running; `None` if nobody wants recordings.
    pub(super) fn of_this_test(policy: &Policy) -> Option<Self> {
        std::env::var_os(FOLDER)?;
        let number = SESSIONS.replace(SESSIONS.get() + 1);
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test").replace("::", ".");
        Some(Self::start(policy, format!("{test}-{number}")))
    }

    pub(super) fn start(policy: &Policy, name: String) -> Self {
        let mut tape = Self {
            name,
            text: String::new(),
        };
        tape.write(&Header::new(policy.clone()));
        tape
    }

    pub(super) fn step(&mut self, at: Time, input: Option<Input>) {
        self.write(&Line::step(at, input));
    }

    pub(super) fn output(&mut self, output: Output) {
        self.write(&Line::output(output));
    }

    /// All lines so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Nothing is written.
    pub(super) fn discard(mut self) {
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
        self.write(&Line::end());
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{}.jsonl", self.name)), &self.text).unwrap();
    }
}
