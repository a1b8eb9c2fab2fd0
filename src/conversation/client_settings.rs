//! The client's settings for the session.

use super::input::{MaxTokens, ResponseTerms};
use super::policy::Policy;
use super::turn_detection::TurnDetection;
use crate::llm::ToolChoice;
use crate::tools::{Declaration, ToolSpec};
use std::sync::Arc;

/// The client's settings for all answers and turns.
#[derive(Debug)]
pub(super) struct ClientSettings {
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<ToolSpec>,
    pub(super) turn_detection: TurnDetection,
    pub(super) tool_choice: ToolChoice,
    pub(super) max_tokens: MaxTokens,
    /// The session transcribes, and nothing is answered.
    pub(super) transcribe_only: bool,
    /// The operator's switch: a client may turn speculation off, and on again only if this is on.
    pub(super) may_speculate: bool,
}

impl ClientSettings {
    /// The settings before the client changes any.
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            instructions: None,
            tools: Vec::new(),
            turn_detection: policy.turn_detection,
            tool_choice: ToolChoice::Auto,
            max_tokens: MaxTokens::Unlimited,
            transcribe_only: false,
            may_speculate: policy.speculation.enabled,
        }
    }

    /// The client's tools in an answer on these terms. They take the place of the server's of the same
    /// name.
    pub(super) fn tools_in<'a>(&'a self, terms: &'a ResponseTerms) -> &'a [ToolSpec] {
        terms.tools.as_ref().unwrap_or(&self.tools)
    }
}

/// The client's tools, in the answer that is being given and in the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientTools<'a> {
    this: &'a [ToolSpec],
    next: &'a [ToolSpec],
}

impl<'a> ClientTools<'a> {
    /// While an answer is given on these terms, if there is one.
    pub(super) fn of(client: &'a ClientSettings, terms: Option<&'a ResponseTerms>) -> Self {
        Self {
            this: terms.map_or(&[], |terms| client.tools_in(terms)),
            next: &client.tools,
        }
    }

    /// The server's tool of this name, if it is the server that runs it when it is called.
    pub(super) fn servers<'p>(
        self,
        policy: &'p Policy,
        name: &str,
    ) -> Option<&'p Arc<Declaration>> {
        let mut clients = self.next.iter().chain(self.this);
        let is_clients = clients.any(|tool| tool.name == name);
        policy.tool(name).filter(|_| !is_clients)
    }
}
