//! The facts that a session has on its caller, `session.*` in templates, and who says so.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The findings of a session's lookups, by name, and the origin of what they were asked with.
pub(crate) type Found = BTreeMap<String, (Value, Origin)>;

/// The longest value, bytes. A longer one is dropped: cut, it might be another's.
const MAX_VALUE: usize = 1_024;

/// The most values of a session.
const MAX_VALUES: usize = 64;

/// The party that vouches for a value. One with a greater rank may be used where a smaller one is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Nobody: the client says so, as in a query string or a header of an open trunk.
    Claimed,
    /// An authenticated provider or trunk. A caller's number comes from the telephone network, where it
    /// can be forged.
    Signalled,
    /// The server's operator: a client secret that was issued for this, or a lookup.
    Verified,
}

impl Origin {
    /// As it is written in a declaration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Signalled => "signalled",
            Self::Verified => "verified",
        }
    }
}

/// Names a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Named {
    /// `session.call_id`: the provider's id of the call.
    CallId,
    /// `session.transport`: the way by which the client came, such as `twilio` or `realtime`.
    Transport,
    /// `session.caller`: the caller's number or address.
    Caller,
    /// `session.called`: the number or address that was called.
    Called,
    /// `session.forwarded_from`: the number that forwarded the call.
    ForwardedFrom,
    /// `session.header["x-line"]`: a SIP header, its name in lower case.
    Header(String),
    /// `session.param["plan"]`: a parameter of the stream, the query or the client secret.
    Param(String),
}

/// The names under `session` in templates.
pub(crate) const NAMES: [&str; 8] = [
    "call_id",
    "transport",
    "caller",
    "called",
    "forwarded_from",
    "header",
    "param",
    "lookup",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    name: Named,
    value: String,
    origin: Origin,
}

/// The values of a session. What is not known is absent, never an empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionValues(Vec<Known>);

impl SessionValues {
    /// Adds a value, unless it is empty, longer than 1,024 bytes or has control characters, or one of
    /// higher origin is there.
    #[must_use]
    pub fn with(mut self, name: Named, value: &str, origin: Origin) -> Self {
        self.add(name, value, origin);
        self
    }

    /// Adds a value as [`SessionValues::with`] does.
    pub fn add(&mut self, name: Named, value: &str, origin: Origin) {
        let value = value.trim();
        if value.is_empty() || value.len() > MAX_VALUE || value.contains(char::is_control) {
            return;
        }
        let value = value.to_owned();
        let known = self.0.iter_mut().find(|known| known.name == name);
        if let Some(known) = known {
            if known.origin <= origin {
                (known.value, known.origin) = (value, origin);
            }
        } else if self.0.len() < MAX_VALUES {
            self.0.push(Known {
                name,
                value,
                origin,
            });
        }
    }

    /// Adds all values of `others`.
    pub fn extend(&mut self, others: Self) {
        for known in others.0 {
            self.add(known.name, &known.value, known.origin);
        }
    }

    /// These values without this one.
    #[must_use]
    pub fn without(mut self, name: &Named) -> Self {
        self.0.retain(|known| known.name != *name);
        self
    }

    /// These values, each with at least the origin `origin`.
    #[must_use]
    pub fn vouched(mut self, origin: Origin) -> Self {
        for known in &mut self.0 {
            known.origin = known.origin.max(origin);
        }
        self
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A value and its origin.
    pub fn get(&self, name: &Named) -> Option<(&str, Origin)> {
        let known = self.0.iter().find(|known| known.name == *name)?;
        Some((&known.value, known.origin))
    }

    /// All values of any origin, as `session` in templates.
    pub(crate) fn all(&self) -> Map<String, Value> {
        self.seen(Origin::Claimed)
    }

    /// The `session` of templates: the values whose origin is `least` or higher, also of what lookups
    /// have found.
    pub(crate) fn seen_with(&self, least: Origin, found: &Found) -> Map<String, Value> {
        let mut seen = self.seen(least);
        let trusted = found.iter().filter(|(_, (_, origin))| *origin >= least);
        let trusted = trusted.map(|(name, (value, _))| (name.clone(), value.clone()));
        seen.insert("lookup".into(), Value::Object(trusted.collect()));
        seen
    }

    /// The values whose origin is `least` or higher, without lookups.
    pub(crate) fn seen(&self, least: Origin) -> Map<String, Value> {
        let mut seen = Map::new();
        let mut groups: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        for group in ["header", "param", "lookup"] {
            groups.insert(group, Map::new());
        }
        for known in self.0.iter().filter(|known| known.origin >= least) {
            let value = Value::from(known.value.as_str());
            let name = match &known.name {
                Named::CallId => "call_id",
                Named::Transport => "transport",
                Named::Caller => "caller",
                Named::Called => "called",
                Named::ForwardedFrom => "forwarded_from",
                Named::Header(name) => {
                    groups
                        .entry("header")
                        .or_default()
                        .insert(name.clone(), value);
                    continue;
                }
                Named::Param(name) => {
                    groups
                        .entry("param")
                        .or_default()
                        .insert(name.clone(), value);
                    continue;
                }
            };
            seen.insert(name.to_owned(), value);
        }
        for (group, values) in groups {
            seen.insert(group.to_owned(), Value::Object(values));
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_known_is_absent() {
        let long = "1".repeat(MAX_VALUE + 1);
        let mut values = SessionValues::default();
        for nothing in ["", " ", "a\nb", "\0", &long] {
            values.add(Named::Caller, nothing, Origin::Verified);
        }
        assert_eq!(values, SessionValues::default());
        let nothing = json!({"header": {}, "param": {}, "lookup": {}});
        assert_eq!(Value::from(values.seen(Origin::Claimed)), nothing);
    }

    #[test]
    fn a_value_is_never_replaced_by_one_of_lower_origin() {
        let values = SessionValues::default()
            .with(Named::Caller, "+1", Origin::Signalled)
            .with(Named::Caller, "+2", Origin::Claimed);
        assert_eq!(values.get(&Named::Caller), Some(("+1", Origin::Signalled)));
        let values = values.with(Named::Caller, "+3", Origin::Verified);
        assert_eq!(values.get(&Named::Caller), Some(("+3", Origin::Verified)));
    }

    #[test]
    fn templates_see_only_what_is_trusted_enough() {
        let values = SessionValues::default()
            .with(Named::Caller, "+1", Origin::Signalled)
            .with(Named::Header("x-line".into()), "9", Origin::Claimed)
            .with(Named::Param("plan".into()), "gold", Origin::Verified);
        let seen = |least| Value::from(values.seen(least));
        assert_eq!(
            seen(Origin::Claimed),
            json!({"caller": "+1", "header": {"x-line": "9"}, "param": {"plan": "gold"}, "lookup": {}})
        );
        assert_eq!(
            seen(Origin::Verified),
            json!({"header": {}, "param": {"plan": "gold"}, "lookup": {}})
        );
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let mut values = SessionValues::default();
        for at in 0..2 * MAX_VALUES {
            values.add(Named::Param(at.to_string()), "v", Origin::Claimed);
        }
        assert_eq!(values.0.len(), MAX_VALUES);
    }
}
