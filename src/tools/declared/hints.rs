//! How people ask for a tool, for the sources that predict calls from words.

use crate::tools::ToolSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ways to ask for a tool, as its declaration lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterHints {
    /// Regular expressions as [`crate::prediction::Rules`] reads them: over lower-case words without
    /// punctuation, numbers as digits. Named groups are arguments.
    pub rules: Vec<String>,
    /// Sentences that ask for it.
    pub examples: Vec<String>,
    /// By argument: what a word that a rule caught stands for, such as "dollars" for "USD".
    pub words: BTreeMap<String, BTreeMap<String, String>>,
    /// Intents of a trained head that ask for it, beside the one of its own name.
    pub intents: Vec<String>,
    /// By primary language (BCP 47) other than English: the question that the page offers to play. In English it is the
    /// first example.
    pub questions: BTreeMap<String, String>,
}

impl RouterHints {
    /// How users ask for a client's tool.
    pub fn of_client(tool: &ToolSpec) -> Self {
        Self {
            examples: tool.examples.clone(),
            ..Self::default()
        }
    }
}
