//! `undertone` in a tool of the session: the client's permission to run it early, and examples of requests for it.

use super::fault::{Fault, read};
use crate::conversation::{EarlyTool, Micros};
use crate::tools::SpeculationLimits;
use serde::Deserialize;
use serde_json::Value;

/// The most examples of one tool.
const MAX_EXAMPLES: usize = 10;

/// The most tools that may run early: each is learnt when it is declared.
const MAX_EARLY: usize = 16;

/// The longest example, characters.
const MAX_EXAMPLE: usize = 200;

/// Allowed values of `ttl_ms`.
const TTL_MS: std::ops::RangeInclusive<u64> = 100..=300_000;

#[derive(Deserialize)]
struct RawEarly {
    effect: Option<String>,
    early: Option<bool>,
    examples: Option<Vec<String>>,
    ttl_ms: Option<u64>,
}

/// The field of this server in a tool, and its path. `param` is the path of the tool.
fn own(tool: &Value, param: &str) -> Result<Option<(RawEarly, String)>, Fault> {
    let Some(own) = tool.get("undertone").filter(|own| !own.is_null()) else {
        return Ok(None);
    };
    let param = format!("{param}.undertone");
    Ok(Some((read(own.clone(), &param)?, param)))
}

/// The sentences of users who need this tool. `param` is its path.
pub(super) fn examples(tool: &Value, param: &str) -> Result<Vec<String>, Fault> {
    let Some((raw, param)) = own(tool, param)? else {
        return Ok(Vec::new());
    };
    let examples = raw.examples.unwrap_or_default();
    if examples.len() > MAX_EXAMPLES {
        let message = format!("At most {MAX_EXAMPLES} examples may be given.");
        let param = format!("{param}.examples");
        return Err(Fault::new("array_above_max_length", param, message));
    }
    for (index, example) in examples.iter().enumerate() {
        let length = example.trim().chars().count();
        if length == 0 || length > MAX_EXAMPLE {
            let message = format!("An example is a sentence of 1 to {MAX_EXAMPLE} characters.");
            let param = format!("{param}.examples[{index}]");
            return Err(Fault::new("invalid_value", param, message));
        }
    }
    Ok(examples)
}

/// The tools that may run early. `param` is the path of the tools.
pub(super) fn parse<'a>(
    tools: impl Iterator<Item = &'a Value>,
    param: &str,
) -> Result<Vec<EarlyTool>, Fault> {
    let mut early = Vec::new();
    for (index, tool) in tools.enumerate() {
        let Some((raw, param)) = own(tool, &format!("{param}[{index}]"))? else {
            continue;
        };
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        early.extend(raw.check(name, &param)?);
        if early.len() > MAX_EARLY {
            let message = format!("At most {MAX_EARLY} tools may run early.");
            return Err(Fault::new(
                "invalid_value",
                format!("{param}.early"),
                message,
            ));
        }
    }
    Ok(early)
}

impl RawEarly {
    /// The permission; `None` if it is not given.
    fn check(self, name: &str, param: &str) -> Result<Option<EarlyTool>, Fault> {
        let is_early = self.early == Some(true);
        match self.effect.as_deref() {
            Some("read") => {}
            Some(other) => {
                return Err(Fault::value(format!("{param}.effect"), other, "'read'"));
            }
            None if is_early => {
                let message = "A tool that may run early must have the effect 'read': declare it \
                               only for a tool that changes nothing.";
                let param = format!("{param}.effect");
                return Err(Fault::new("missing_required_parameter", param, message));
            }
            None => {}
        }
        let usual = SpeculationLimits::default().ttl;
        let ttl_ms = self.ttl_ms.unwrap_or(usual.as_millis() as u64);
        if !TTL_MS.contains(&ttl_ms) {
            let param = format!("{param}.ttl_ms");
            let allowed = format!("{} to {}", TTL_MS.start(), TTL_MS.end());
            return Err(Fault::value(param, &ttl_ms.to_string(), &allowed));
        }
        Ok(is_early.then(|| EarlyTool {
            name: name.to_owned(),
            ttl: Micros::from_ms(ttl_ms),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(own: Value) -> Result<Vec<EarlyTool>, String> {
        let tools = [
            json!({"type": "function", "name": "a"}),
            json!({"type": "function", "name": "b", "undertone": own}),
        ];
        let examples = examples(&tools[1], "session.tools[1]").map(|_| ());
        let parsed = examples.and_then(|()| parse(tools.iter(), "session.tools"));
        parsed.map_err(|fault| fault.param.unwrap_or_default())
    }

    #[test]
    fn a_permission_has_defaults() {
        let early = EarlyTool {
            name: "b".into(),
            ttl: Micros::from_ms(30_000),
        };
        let own = json!({"effect": "read", "early": true});
        assert_eq!(parsed(own), Ok(vec![early]));
        for none in [
            json!(null),
            json!({}),
            json!({"effect": "read"}),
            json!({"early": false}),
        ] {
            assert_eq!(parsed(none), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_fault_names_the_field() {
        let long = "x".repeat(MAX_EXAMPLE + 1);
        for (own, field) in [
            (json!("read"), ""),
            (json!({"early": true}), ".effect"),
            (json!({"effect": "write", "early": true}), ".effect"),
            (json!({"effect": "read", "early": "yes"}), ".early"),
            (json!({"effect": "read", "ttl_ms": 0}), ".ttl_ms"),
            (json!({"effect": "read", "ttl_ms": -1}), ".ttl_ms"),
            (json!({"examples": [""]}), ".examples[0]"),
            (json!({"examples": ["x", long]}), ".examples[1]"),
            (json!({"examples": vec!["x"; 11]}), ".examples"),
        ] {
            let fault = parsed(own.clone());
            let path = format!("session.tools[1].undertone{field}");
            assert_eq!(fault, Err(path), "{own}");
        }
    }
}
