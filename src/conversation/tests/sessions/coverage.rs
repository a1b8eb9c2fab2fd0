//! Finds which inputs, decisions and outcomes occur in recordings.

use super::*;
use crate::asr::TurnState;
use crate::llm::ToolChoice;
use crate::prediction::{Moment, Source};
use crate::tools::ToolError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// A place in a line: a key and the one above it.
type At = (&'static str, &'static str);

/// The variants seen in each place, out of all that exist.
pub(super) struct Seen {
    wanted: BTreeMap<At, BTreeSet<String>>,
}

impl Default for Seen {
    fn default() -> Self {
        let kinds = [
            (("input", "type"), variants::<Input>("type")),
            (("input", "job"), variants::<Job>("")),
            (("input", "state"), variants::<TurnState>("")),
            (("event", "type"), variants::<LlmEvent>("type")),
            (("item", "kind"), variants::<NewItem>("kind")),
            (("input", "place"), variants::<Place>("")),
            (("input", "place"), variants::<ResponsePlace>("")),
            (("input", "context"), variants::<Context>("")),
            (("input", "max_tokens"), variants::<MaxTokens>("")),
            (("input", "tool_choice"), variants::<ToolChoice>("")),
            (("rule", "kind"), variants::<EndOfTurnRule>("kind")),
            (("turn_detection", "eagerness"), variants::<Eagerness>("")),
            (("result", "Err"), variants::<ToolError>("")),
            (("output", "decision"), variants::<Output>("decision")),
            (("output", "type"), variants::<Event>("type")),
            (("output", "outcome"), variants::<ConfirmationOutcome>("")),
            (("output", "status"), variants::<ResponseStatus>("")),
            (("output", "reason"), variants::<HangUpReason>("")),
            (("output", "kind"), variants::<SpeculationEvent>("kind")),
            (("heard", "moment"), variants::<Moment>("")),
            (("predictions", "source"), variants::<Source>("")),
            (("predictions", "decision"), variants::<Decision>("")),
            (("decision", "declined"), variants::<Decline>("")),
            (("fate", "kind"), variants::<Fate>("kind")),
            (("fate", "reason"), variants::<Discard>("")),
        ];
        let mut wanted: BTreeMap<At, BTreeSet<String>> = BTreeMap::new();
        for (at, names) in kinds {
            wanted.entry(at).or_default().extend(names);
        }
        // Defaults are not serialised.
        let eagerness = wanted.entry(("turn_detection", "eagerness")).or_default();
        eagerness.remove("auto");
        wanted
            .entry(("heard", "moment"))
            .or_default()
            .remove("words");
        Self { wanted }
    }
}

/// The names of an enum's variants, from serde's error for an unknown one.
fn variants<T: DeserializeOwned + Debug>(tag: &str) -> Vec<String> {
    let unknown = match tag {
        "" => json!("?"),
        tag => json!({ tag: "?" }),
    };
    let error = serde_json::from_value::<T>(unknown)
        .unwrap_err()
        .to_string();
    let names = error.split('`').skip(3).step_by(2).map(str::to_owned);
    let names: Vec<String> = names.collect();
    assert!(names.len() > 1, "{error}");
    names
}

impl Seen {
    pub(super) fn take(&mut self, recording: &str) {
        for line in recording.lines().skip(1) {
            self.walk("", "", &serde_json::from_str(line).unwrap());
        }
    }

    /// Collects strings and objects with a single key, which is how serde writes variants.
    fn walk(&mut self, above: &str, key: &str, value: &Value) {
        let name = match value {
            Value::String(name) => Some(name),
            Value::Object(fields) if fields.len() == 1 => fields.keys().next(),
            _ => None,
        };
        let at = self.wanted.iter_mut().find(|(at, _)| **at == (above, key));
        if let (Some(name), Some((_, missing))) = (name, at) {
            missing.remove(name);
        }
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    self.walk(key, field, value);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| self.walk(above, key, value)),
            _ => {}
        }
    }

    pub(super) fn missing(&self) -> Vec<String> {
        let all = self.wanted.iter();
        let missing = all.flat_map(|(at, names)| names.iter().map(move |name| (at, name)));
        missing
            .map(|((above, key), name)| format!("{above}.{key}: {name}"))
            .collect()
    }
}
