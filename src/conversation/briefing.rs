//! The instructions and facts that the model gets besides the conversation.

use super::plan::spec_of;
use crate::tools::{Declaration, ToolSpec};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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

impl Briefing {
    /// The `tools` of the server as they are offered to the model, with the one that makes plans.
    pub fn offered(&self, tools: &[Arc<Declaration>]) -> Vec<ToolSpec> {
        let plan = self.plans.then(|| spec_of(tools.iter())).flatten();
        let own = tools.iter().map(|tool| tool.spec.clone());
        own.chain(plan).collect()
    }
}
