//! Texts about a call: a template of its tool, or a generic question.

use crate::language::Pack;
use crate::llm::untrusted::sanitise;
use crate::tools::{Declaration, plain};
use serde_json::{Map, Value};

/// A template of a tool with a call's arguments filled in; `None` if the arguments do not fit.
pub(super) fn render(
    tool: &Declaration,
    template: &str,
    arguments: &Map<String, Value>,
) -> Option<String> {
    crate::tools::say(tool, template, arguments, None).map(|text| sanitise(&text))
}

/// The question before a call, with its exact arguments.
pub(super) fn question(
    language: &Pack,
    tool: &Declaration,
    template: Option<&str>,
    arguments: &Map<String, Value>,
) -> String {
    let own = template.and_then(|template| render(tool, template, arguments));
    own.unwrap_or_else(|| {
        let name = tool.spec.name.replace(['_', '-'], " ");
        let list = arguments.iter().map(|(key, value)| {
            let value = match plain(value.clone()) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            format!("{} {value}", key.replace(['_', '-'], " "))
        });
        let list = list.collect::<Vec<_>>().join(", ");
        sanitise(&language.question(&tool.spec.name, arguments, (&name, &list)))
    })
}

/// The note for the model about a call that was not run.
pub(super) fn not_run(name: &str, why: &str) -> String {
    format!("A call of {name} was not run: {why}")
}
