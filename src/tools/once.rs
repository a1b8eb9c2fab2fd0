//! Tells whether two calls are the same change, also in two sessions: `once_per` in a declaration.

use super::journal::ONCE;
use super::values::{Origin, SessionValues};
use super::{Declaration, canonical};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::time::Duration;

/// The session's values that may be named.
const OF_SESSION: [&str; 3] = ["caller", "called", "forwarded_from"];

/// The time for which a change counts, by default and at most: the journal keeps results for as long.
pub(crate) const MOST: Duration = Duration::from_hours(24);

/// The values that make two calls of a tool the same change, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OncePer {
    parts: Vec<Part>,
    span: Duration,
    trust: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Argument(String),
    /// A value of the session.
    Session(&'static str),
}

/// A change that must not be made twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Same {
    /// The same for all calls that are this change.
    pub key: String,
    /// How long after the first call another is this change.
    pub span: Duration,
    /// How long the first call may take.
    pub takes: Duration,
    /// The call may be made again with its idempotency key if its end is not known.
    pub is_keyed: bool,
}

impl OncePer {
    /// Reads names joined by `+`: of `arguments`, or of values of the session whose origin is `trust` or
    /// higher.
    ///
    /// # Errors
    /// The problem, and what is allowed.
    pub(crate) fn new(
        typed: &str,
        arguments: &BTreeSet<String>,
        span: Duration,
        trust: Origin,
    ) -> Result<Self, (String, String)> {
        let part = |name: &str| {
            let of_session = name.strip_prefix("session.").unwrap_or(name);
            if arguments.contains(name) {
                return Ok(Part::Argument(name.to_owned()));
            }
            let known = OF_SESSION.into_iter().find(|known| *known == of_session);
            known.map(Part::Session).ok_or_else(|| {
                let arguments = arguments.iter().map(String::as_str);
                let known: Vec<&str> = arguments.chain(OF_SESSION).collect();
                (
                    format!("`{name}` is neither a parameter nor a value of the session"),
                    format!("join names by \" + \"; known are: {}", known.join(", ")),
                )
            })
        };
        let parts: Result<_, _> = typed.split('+').map(|name| part(name.trim())).collect();
        Ok(Self {
            parts: parts?,
            span,
            trust,
        })
    }

    /// The change that a call is; `None` if the session lacks a value, so that no two calls are known to be
    /// the same. `arguments` are complete.
    pub(crate) fn same(
        &self,
        tool: &Declaration,
        arguments: &Map<String, Value>,
        session: &SessionValues,
    ) -> Option<Same> {
        let (level, seen) = (canonical(tool, arguments), session.seen(self.trust));
        let value = |part: &Part| match part {
            Part::Argument(name) => {
                let given = level.get(name).or_else(|| arguments.get(name));
                Some(given.cloned().unwrap_or_default())
            }
            Part::Session(name) => seen.get(*name).cloned(),
        };
        let values: Option<Vec<Value>> = self.parts.iter().map(value).collect();
        let Some(values) = values else {
            let tool = &tool.spec.name;
            tracing::warn!(
                tool,
                "once_per has no effect on a call: a value of the session is not known"
            );
            return None;
        };
        let of = json!([tool.spec.name, values]).to_string();
        let digest = Sha256::digest(of);
        let key = digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        Some(Same {
            key: format!("{ONCE}{key}"),
            span: self.span,
            takes: tool.timeout,
            is_keyed: tool.effect == super::Effect::Keyed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, Equivalence, Named, ToolSpec};

    fn book() -> Declaration {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "book".into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"date": {}, "note": {}}}),
        };
        let mut book = Declaration::new(spec, Effect::Reversible, Duration::from_secs(1));
        let case = vec![Equivalence::Case];
        book.equivalence = [("date".to_owned(), case)].into();
        book
    }

    fn once(typed: &str) -> Result<OncePer, (String, String)> {
        let known = ["date", "note"].map(str::to_owned).into();
        OncePer::new(typed, &known, MOST, Origin::Signalled)
    }

    fn key(typed: &str, arguments: Value, caller: Option<&str>) -> Option<String> {
        let mut session = SessionValues::default();
        if let Some(caller) = caller {
            session.add(Named::Caller, caller, Origin::Signalled);
        }
        let arguments = arguments.as_object().unwrap();
        let same = once(typed).unwrap().same(&book(), arguments, &session)?;
        Some(same.key)
    }

    #[test]
    fn a_change_is_the_same_if_the_named_values_are() {
        let of = |arguments, caller| key("caller + date", arguments, Some(caller)).unwrap();
        let first = of(json!({"date": "Monday", "note": "by the window"}), "+1");
        assert_eq!(of(json!({"date": "monday"}), "+1"), first);
        assert_ne!(of(json!({"date": "Tuesday"}), "+1"), first);
        assert_ne!(of(json!({"date": "Monday"}), "+2"), first);
        assert_ne!(of(json!({}), "+1"), first);
    }

    #[test]
    fn callers_who_are_not_known_are_not_taken_for_one() {
        assert_eq!(key("caller + date", json!({"date": "Monday"}), None), None);
        assert!(key("date", json!({"date": "Monday"}), None).is_some());
        let claimed = SessionValues::default().with(Named::Caller, "+1", Origin::Claimed);
        let same = once("session.caller")
            .unwrap()
            .same(&book(), &Map::new(), &claimed);
        assert_eq!(same, None);
    }

    #[test]
    fn unknown_names_are_found_when_the_file_is_read() {
        let (problem, fix) = once("caller + dat").unwrap_err();
        assert!(problem.contains("`dat`"), "{problem}");
        assert!(fix.contains("date, note, caller"), "{fix}");
        assert!(once("").is_err());
    }
}
