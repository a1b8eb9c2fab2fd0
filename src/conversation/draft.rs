//! The draft model, as the rules see it: a small model that is asked beside the main one, for calls alone.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How the draft model is asked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DraftPolicy {
    /// Its samples at the same time: lambda of the published algorithm, at least 1.
    pub samples: u32,
    /// The price of a million of its tokens, in the operator's currency.
    pub token_price: f64,
    /// The most that its tokens may cost in a day, over all sessions, in the operator's currency; unlimited if
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_cost_per_day: Option<f64>,
}

impl DraftPolicy {
    /// The cost of this many tokens, in the operator's currency.
    pub fn cost(&self, tokens: u64) -> f64 {
        tokens as f64 * self.token_price / 1e6
    }
}

/// The first complete call of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledCall {
    /// The tool's name.
    pub tool: String,
    /// The arguments by name.
    pub arguments: Map<String, Value>,
}
