//! How the end of the user's turn is found, as the operator or the client sets it.

use serde::{Deserialize, Serialize};

/// How the end of the user's turn is found, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TurnDetection {
    /// The rule.
    pub rule: EndOfTurnRule,
    /// Answer when the turn is over.
    pub respond: bool,
    /// Stop the agent when the user begins to speak.
    pub interrupt: bool,
    /// A window from this probability on is speech; the operator's if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f32>,
    /// Audio before the first window of speech that belongs to it, ms; the operator's if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_padding_ms: Option<u64>,
    /// A user who says nothing for so long after the agent has spoken is asked whether they are
    /// still there, ms; the operator's if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// How soon a pause is taken for the end, where the rule is [`EndOfTurnRule::Semantic`].
    #[serde(default, skip_serializing_if = "Eagerness::is_auto")]
    pub eagerness: Eagerness,
}

/// How soon a pause of the user is taken for the end of the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eagerness {
    /// Late: the user may think aloud.
    Low,
    /// As the operator has set it.
    #[default]
    Auto,
    /// Soon.
    High,
}

impl Eagerness {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Which rule ends the user's turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EndOfTurnRule {
    /// Silence, the end-of-turn model and the transcript together: the default.
    Semantic,
    /// A fixed length of silence.
    Silence {
        /// Milliseconds of silence.
        ms: u64,
    },
    /// The client says so with [`CommitAudio`](super::Input::CommitAudio).
    Client,
}

impl Default for TurnDetection {
    /// All rules together; the agent answers and may be interrupted.
    fn default() -> Self {
        Self {
            rule: EndOfTurnRule::Semantic,
            respond: true,
            interrupt: true,
            threshold: None,
            prefix_padding_ms: None,
            idle_timeout_ms: None,
            eagerness: Eagerness::Auto,
        }
    }
}
