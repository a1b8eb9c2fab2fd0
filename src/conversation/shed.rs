//! The optional work that is left undone while users wait for the models.

use serde::{Deserialize, Serialize};

/// The optional work that the server has no room for. Each level adds to the one before it: first goes what
/// only may be useful, last what makes nearly every answer quicker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shed {
    /// There is room for everything.
    #[default]
    Nothing,
    /// Speculative runs, samples of the draft model, assumed commits.
    Speculation,
    /// Partials, too.
    Partials,
    /// Answers before the end of the turn, too.
    PreemptiveAnswers,
}

impl Shed {
    /// Reads a level, or what recordings had before there were levels: whether partials were left out.
    ///
    /// # Errors
    /// Those of the deserialiser, for anything else.
    pub(super) fn read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Busy(bool),
            Level(Shed),
        }
        Ok(match Written::deserialize(from)? {
            Written::Busy(false) => Self::Nothing,
            Written::Busy(true) => Self::Partials,
            Written::Level(level) => level,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Input;

    #[test]
    fn recordings_from_before_the_levels_are_read() {
        let read = |text: &str| serde_json::from_str::<Input>(text).unwrap();
        for (busy, shed) in [("false", Shed::Nothing), ("true", Shed::Partials)] {
            let old = read(&format!(r#"{{"type":"load","busy":{busy}}}"#));
            assert_eq!(old, Input::Load { shed });
        }
        let written = serde_json::to_string(&Input::Load {
            shed: Shed::PreemptiveAnswers,
        });
        let written = written.unwrap();
        assert_eq!(written, r#"{"type":"load","shed":"preemptive_answers"}"#);
        assert_eq!(
            read(&written),
            Input::Load {
                shed: Shed::PreemptiveAnswers
            }
        );
    }
}
