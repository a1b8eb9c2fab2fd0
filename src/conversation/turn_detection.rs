//! How the end of the user's turn is detected, as set by the operator or the client.

use serde::{Deserialize, Serialize};

/// How the end of the user's turn is detected, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TurnDetection {
    /// The rule.
    pub rule: EndOfTurnRule,
    /// Whether to answer when the turn is over.
    pub respond: bool,
    /// Whether the user can barge in.
    pub interrupt: bool,
    /// The VAD threshold, 0..1; the operator's if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f32>,
    /// Audio before the first window of speech that belongs to the utterance, ms; the operator's if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_padding_ms: Option<u64>,
    /// Silence of the user, after the agent has spoken, before they are asked whether they are still there,
    /// ms; the operator's if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// How soon a pause counts as the end, with [`EndOfTurnRule::Semantic`].
    #[serde(default, skip_serializing_if = "Eagerness::is_auto")]
    pub eagerness: Eagerness,
}

/// How soon a pause counts as the end of the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eagerness {
    /// Late, for users who think aloud.
    Low,
    /// As the operator configured it.
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

/// The rule that ends the user's turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EndOfTurnRule {
    /// Silence, the end-of-turn model and the transcript together. The default.
    Semantic,
    /// A fixed length of silence.
    Silence {
        /// Milliseconds of silence.
        ms: u64,
    },
    /// The client's [`CommitAudio`](super::Input::CommitAudio).
    Client,
}

impl Default for TurnDetection {
    /// Semantic detection; the agent answers and may be interrupted.
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
