//! A call that a server streams as data, in every dialect that has such calls.

use super::LlmEvent;
use super::markup::{MAX_ARGUMENT_BYTES, MAX_NAME_CHARS, Reported, parse_arguments, parse_begun};
use super::remote::count_in;
use serde_json::{Map, Value};

/// The most native calls in one answer.
pub(super) const MAX_CALLS: usize = 16;

/// A native call, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct NativeCall {
    name: String,
    raw: String,
    /// How many bytes of `raw` were reported; `None` before the call was opened.
    told: Option<usize>,
    /// The finished arguments that were reported.
    read: Reported,
    error: Option<&'static str>,
}

impl NativeCall {
    /// The tool's name; empty if it is not known yet.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Names the tool, unless it has a name.
    pub(super) fn call_it(&mut self, name: String) {
        if self.name.is_empty() {
            self.name = name;
        }
        if self.error.is_none() && self.name.chars().count() > MAX_NAME_CHARS {
            self.error = Some("the tool's name is too long");
            self.name = self.name.chars().take(MAX_NAME_CHARS).collect();
        }
    }

    /// Adds a piece of the arguments.
    pub(super) fn push(&mut self, piece: &str) {
        self.raw.push_str(piece);
        if self.raw.len() > MAX_ARGUMENT_BYTES {
            self.error = Some("the arguments are too long");
            self.raw.clear();
        }
    }

    /// Whether no argument has come.
    pub(super) fn is_bare(&self) -> bool {
        self.error.is_none() && self.raw.trim().is_empty()
    }

    /// Whether its arguments are a complete object.
    pub(super) fn is_whole(&self) -> bool {
        self.error.is_none() && parse_object(&self.raw).is_ok()
    }

    /// Reports the new part of the call, once its name is known.
    pub(super) fn tell(&mut self, events: &mut Vec<LlmEvent>) {
        if self.told.is_none() && !self.name.is_empty() {
            self.told = Some(0);
            events.push(LlmEvent::ToolOpened {
                name: self.name.clone(),
            });
        }
        if let Some(piece) = self.told.and_then(|told| self.raw.get(told..))
            && !piece.is_empty()
        {
            events.push(LlmEvent::ToolArguments {
                piece: piece.to_owned(),
            });
            self.told = Some(self.raw.len());
        }
    }

    /// Reports the arguments that are finished.
    pub(super) fn tell_read(&mut self, events: &mut Vec<LlmEvent>) {
        let is_empty = self.raw.trim().is_empty();
        if self.told.is_none() || self.error.is_some() || !(is_empty || is_object(&self.raw)) {
            return;
        }
        let read = parse_begun(&self.raw);
        events.extend(read.and_then(|(arguments, whole)| self.read.tell(arguments, whole)));
    }

    /// Closes the call, which commits it if it is known to be `whole` and can be read. Returns the arguments, or
    /// why they could not be read.
    pub(super) fn close(
        &mut self,
        whole: bool,
        events: &mut Vec<LlmEvent>,
    ) -> Result<Map<String, Value>, String> {
        if self.name.is_empty() {
            self.error = Some("the call has no name");
            self.name.push_str("invalid");
        }
        self.tell(events);
        let arguments = match self.error {
            Some(error) => Err(error.to_owned()),
            None if !whole => Err("the answer was cut off within the call".to_owned()),
            None if self.raw.trim().is_empty() => Ok(Map::new()),
            None => parse_object(&self.raw),
        };
        events.push(LlmEvent::ToolClosed {
            arguments: arguments.clone(),
        });
        arguments
    }
}

/// The name of a tool as a server sends it, without the special tokens of gpt-oss that vLLM leaves behind it.
pub(super) fn tool_name(sent: &str) -> &str {
    sent.split("<|").next().unwrap_or_default()
}

/// The index of a call as a server sends it, as a number or text; `None` if it is neither.
pub(super) fn index_in(sent: &Value) -> Option<u64> {
    count_in(sent).or_else(|| sent.as_str()?.trim().parse().ok())
}

fn is_object(raw: &str) -> bool {
    raw.trim_start().starts_with('{')
}

fn parse_object(raw: &str) -> Result<Map<String, Value>, String> {
    if is_object(raw) {
        parse_arguments(raw)
    } else {
        Err("the arguments are not an object".into())
    }
}
