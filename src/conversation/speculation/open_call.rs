//! A call that the model has begun.

use crate::conversation::ids::RunId;
use crate::tools::{Declaration, canonical};
use serde_json::{Map, Value};

/// A call that the model has begun.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) tool: String,
    /// The run that the call so far has started.
    pub(super) run: Option<RunId>,
    /// The arguments that are finished, and whether there are no others.
    pub(super) read: (Map<String, Value>, bool),
}

impl OpenCall {
    /// Whether the call turns out to be another than that of a run: its tool, and its canonical arguments.
    pub(super) fn differs_from(
        &self,
        (run_tool, run_key): (&str, &Map<String, Value>),
        tool: &Declaration,
    ) -> bool {
        let (arguments, whole) = &self.read;
        let key = canonical(tool, arguments);
        let differs = |name: &String| run_key.get(name) != key.get(name);
        run_tool == self.tool && (arguments.keys().any(differs) || (*whole && *run_key != key))
    }
}
