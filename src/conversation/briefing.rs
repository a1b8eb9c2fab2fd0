//! The instructions and facts that the model gets besides the conversation.

use serde::{Deserialize, Serialize};

/// The model's instructions besides the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Briefing {
    /// The agent's name, if the server has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The operator's instructions.
    pub instructions: Option<String>,
    /// The day on which the session began, in words: `Sunday, 1 March 2026`. The core has no clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// The model may make plans: several calls at once, some of which need the results of others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plans: bool,
    /// The facts on the caller. Untrusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The model's server takes results of tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tool_cache: bool,
}
