//! Recordings of sessions: the conversation's inputs with their times, and its decisions. The
//! conversation is pure, so the same inputs at the same times give the same decisions, byte for
//! byte.
//!
//! A recording is a file of JSON lines:
//!
//! | line | meaning |
//! |---|---|
//! | `{"version":1,"made_by":...,"policy":{...},"experience":{...}}` | the first line: the session's policy, and what earlier sessions had learned, if anything |
//! | `{"t":µs,"input":{...}}` | an input |
//! | `{"t":µs,"timeout":true}` | a deadline passed |
//! | `{"output":{...}}` | a decision that followed from the input or timeout above |
//! | `{"end":true}` | the session ended; missing if the recording was cut short |

mod replay;
#[cfg(test)]
pub(crate) mod tape;

pub use replay::{Difference, Replayed, replay};

use crate::conversation::{Conversation, Experience, Input, Output, Policy, Time};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead};

/// The version of the format.
pub const VERSION: u32 = 1;

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The version of the program that recorded it: another version may decide differently.
    pub made_by: String,
    /// The session, as reports name it; `None` in recordings of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The caller's number or address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The policy, including the tools.
    pub policy: Policy,
    /// The lessons of earlier sessions when it began.
    #[serde(default, skip_serializing_if = "Experience::is_empty")]
    pub experience: Experience,
}

impl Header {
    /// The header of a new recording.
    pub fn new(policy: Policy, experience: Experience) -> Self {
        Self {
            version: VERSION,
            made_by: env!("CARGO_PKG_VERSION").to_owned(),
            session: None,
            caller: None,
            policy,
            experience,
        }
    }

    /// The day of the session, if its model was told.
    pub fn day(&self) -> Option<Date> {
        let day = self.policy.briefing.day.as_deref()?;
        Date::strptime("%A, %d %B %Y", day).ok()
    }

    /// The conversation that was recorded, before its first input.
    pub fn conversation(&self) -> Conversation {
        Conversation::experienced(self.policy.clone(), self.experience.clone())
    }
}

/// Any later line.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RecordingLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    t: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Input>,
    #[serde(skip_serializing_if = "is_false")]
    timeout: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Output>,
    #[serde(skip_serializing_if = "is_false")]
    end: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl RecordingLine {
    /// An input, or a timeout if `input` is `None`.
    pub(crate) fn step(at: Time, input: Option<Input>) -> Self {
        Self {
            t: Some(at),
            timeout: input.is_none(),
            input,
            ..Self::default()
        }
    }

    pub(crate) fn output(output: Output) -> Self {
        Self {
            output: Some(output),
            ..Self::default()
        }
    }

    pub(crate) fn end() -> Self {
        Self {
            end: true,
            ..Self::default()
        }
    }
}

/// One step of a session and the decisions that followed.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its line number, from 1.
    pub line: usize,
    /// When it happened.
    pub at: Time,
    /// The input; `None` for a timeout.
    pub input: Option<Input>,
    /// The decisions' lines, verbatim.
    pub outputs: Vec<String>,
}

/// A recorded session.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The first line.
    pub header: Header,
    /// Decisions before the first step, such as the greeting.
    pub opening: Vec<String>,
    /// The inputs and decisions.
    pub steps: Vec<Step>,
    /// Whether the recording extends to the end of the session.
    pub complete: bool,
}

/// The reason a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// An invalid line.
    #[error("line {line}: {problem}")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
}

impl Recording {
    /// Reads a recording. An incomplete last line is left out.
    ///
    /// # Errors
    /// [`RecordingError`] if it cannot be read or is not a recording of this [`VERSION`].
    pub fn read(mut file: impl BufRead) -> Result<Self, RecordingError> {
        let mut line = Vec::new();
        if file.read_until(b'\n', &mut line)? == 0 {
            return Err(RecordingError::Empty);
        }
        let mut recording = Self {
            header: header(&String::from_utf8_lossy(&line))?,
            opening: Vec::new(),
            steps: Vec::new(),
            complete: false,
        };
        for number in 2.. {
            line.clear();
            // It may be cut in the middle of a character.
            if file.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
                break;
            }
            recording.take(number, String::from_utf8_lossy(&line).trim_end())?;
        }
        Ok(recording)
    }

    fn take(&mut self, line: usize, text: &str) -> Result<(), RecordingError> {
        let wrong = |problem: &str| RecordingError::Line {
            line,
            problem: problem.to_owned(),
        };
        if self.complete {
            return Err(wrong("the recording has already ended"));
        }
        // Decisions are compared as text; whether this version could read them does not matter.
        if text.starts_with(r#"{"output":"#) {
            let outputs = match self.steps.last_mut() {
                Some(step) => &mut step.outputs,
                None => &mut self.opening,
            };
            outputs.push(text.to_owned());
            return Ok(());
        }
        let read: RecordingLine = serde_json::from_str(text).map_err(|e| wrong(&e.to_string()))?;
        match (read.t, read.input, read.timeout, read.end) {
            (None, None, false, true) => self.complete = true,
            (Some(at), input, timeout, false) if input.is_some() != timeout => {
                self.steps.push(Step {
                    line,
                    at,
                    input,
                    outputs: Vec::new(),
                });
            }
            _ => return Err(wrong("not a step, an output or an end")),
        }
        Ok(())
    }
}

fn header(text: &str) -> Result<Header, RecordingError> {
    let wrong = |problem: String| RecordingError::Line { line: 1, problem };
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } =
        serde_json::from_str(text).map_err(|error| wrong(format!("not a recording: {error}")))?;
    if version != VERSION {
        return Err(wrong(format!(
            "the recording has version {version}, this program reads version {VERSION}"
        )));
    }
    serde_json::from_str(text).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests;
