//! The annotations of a tool: hints from a server that need not be true. They only tighten.

use crate::tools::Effect;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A hint that a declaration may disregard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hint {
    /// The tool changes nothing.
    ReadOnlyHint,
    /// Its changes may be lost.
    DestructiveHint,
    /// It deals with more than the server's own data.
    OpenWorldHint,
}

impl Hint {
    fn key(self) -> &'static str {
        match self {
            Self::ReadOnlyHint => "readOnlyHint",
            Self::DestructiveHint => "destructiveHint",
            Self::OpenWorldHint => "openWorldHint",
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// The hints that a tool has, without those that the operator disregards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    read_only: Option<bool>,
    destructive: Option<bool>,
    open_world: Option<bool>,
}

impl Hints {
    /// The hints of a tool object.
    pub fn of(tool: &Value, disregarded: &[Hint]) -> Self {
        let hint = |hint: Hint| {
            let given = tool.get("annotations")?.get(hint.key())?.as_bool();
            given.filter(|_| !disregarded.contains(&hint))
        };
        Self {
            read_only: hint(Hint::ReadOnlyHint),
            destructive: hint(Hint::DestructiveHint),
            open_world: hint(Hint::OpenWorldHint),
        }
    }

    /// The stricter of the declared effect and the one that the hints imply. An absent hint implies
    /// nothing.
    pub fn effect(self, declared: Effect) -> Effect {
        let mut effect = declared;
        if self.read_only == Some(false) && !effect.changes() {
            effect = Effect::Reversible;
        }
        if self.destructive == Some(true) {
            effect = Effect::Irreversible;
        }
        effect
    }

    /// The hint that makes the declared effect stricter.
    pub fn contradicts(self, declared: Effect) -> Option<Hint> {
        let stricter = self.effect(declared).strictness() > declared.strictness();
        stricter.then_some(match self.destructive {
            Some(true) => Hint::DestructiveHint,
            _ => Hint::ReadOnlyHint,
        })
    }

    /// Whether the server declares that the tool deals with nothing but its own data.
    pub fn is_closed(self) -> bool {
        self.open_world == Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hints(annotations: Value, disregarded: &[Hint]) -> Hints {
        Hints::of(
            &json!({"name": "t", "annotations": annotations}),
            disregarded,
        )
    }

    #[test]
    fn hints_only_tighten() {
        let all = [
            Effect::Read,
            Effect::ReadCostly,
            Effect::Keyed,
            Effect::Reversible,
            Effect::Irreversible,
        ];
        let given = [None, Some(false), Some(true)];
        for declared in all {
            for read_only in given {
                for destructive in given {
                    let annotations =
                        json!({"readOnlyHint": read_only, "destructiveHint": destructive});
                    let effect = hints(annotations, &[]).effect(declared);
                    assert!(effect.strictness() >= declared.strictness());
                    if destructive == Some(true) {
                        assert_eq!(effect, Effect::Irreversible);
                    }
                }
            }
            let silent = Hints::of(&json!({"name": "t"}), &[]);
            assert_eq!(silent.effect(declared), declared);
            assert_eq!(silent.contradicts(declared), None);
        }
        let writes = hints(json!({"readOnlyHint": false}), &[]);
        assert_eq!(writes.effect(Effect::ReadCostly), Effect::Reversible);
        assert_eq!(writes.effect(Effect::Keyed), Effect::Keyed);
        assert_eq!(writes.contradicts(Effect::Read), Some(Hint::ReadOnlyHint));
    }

    #[test]
    fn a_disregarded_hint_implies_nothing() {
        let annotations = json!({"destructiveHint": true, "openWorldHint": false});
        let all = hints(annotations.clone(), &[]);
        assert_eq!(all.effect(Effect::Read), Effect::Irreversible);
        assert_eq!(all.contradicts(Effect::Read), Some(Hint::DestructiveHint));
        assert!(all.is_closed());
        let some = hints(annotations, &[Hint::DestructiveHint, Hint::OpenWorldHint]);
        assert_eq!(some.effect(Effect::Read), Effect::Read);
        assert!(!some.is_closed());
    }
}
