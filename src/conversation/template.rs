//! The words that a tool's declaration has for a call.

use crate::llm::untrusted::sanitise;
use crate::tools::Declaration;
use serde_json::{Map, Value};

/// A template of a tool with a call's arguments filled in; `None` if it does not fit them.
pub(super) fn render(
    tool: &Declaration,
    template: &str,
    arguments: &Map<String, Value>,
) -> Option<String> {
    crate::tools::say(tool, template, arguments, None).map(|text| sanitise(&text))
}
