//! The client's settings for the session.

use super::early_tools::EarlyTools;
use super::input::{MaxTokens, ResponseTerms};
use super::policy::Policy;
use super::turn_detection::{EndOfTurnRule, TurnDetection};
use crate::llm::ToolChoice;
use crate::tools::{Declaration, ToolSpec};
use std::sync::Arc;

/// The client's settings for all answers and turns of the session.
#[derive(Debug)]
pub(super) struct ClientSettings {
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<ToolSpec>,
    pub(super) early: EarlyTools,
    pub(super) turn_detection: TurnDetection,
    pub(super) tool_choice: ToolChoice,
    pub(super) max_tokens: MaxTokens,
    /// The session only transcribes and answers nothing.
    pub(super) transcribe_only: bool,
    /// Whether the client may turn speculation on. It may always turn it off.
    pub(super) may_speculate: bool,
    /// The client has not turned it off.
    pub(super) wants_speculation: bool,
}

impl ClientSettings {
    /// The initial settings.
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            instructions: None,
            tools: Vec::new(),
            early: EarlyTools::default(),
            turn_detection: policy.turn_detection,
            tool_choice: ToolChoice::Auto,
            max_tokens: MaxTokens::Unlimited,
            transcribe_only: false,
            may_speculate: policy.speculation.enabled,
            wants_speculation: true,
        }
    }

    /// Whether anything may run early.
    pub(super) fn speculates(&self) -> bool {
        self.may_speculate && self.wants_speculation
    }

    /// Whether the agent answers the user's turns by itself.
    pub(super) fn answers_turns(&self) -> bool {
        self.turn_detection.respond && !self.transcribe_only
    }

    /// Whether a turn may have the words of only some of its parts: nobody acts on them but the client, or it has ended the
    /// turn by hand.
    pub(super) fn takes_parts(&self) -> bool {
        self.transcribe_only || self.turn_detection.rule == EndOfTurnRule::Client
    }

    /// The client's tools in an answer with these terms. They replace the server's tools of the same names.
    pub(super) fn tools_in<'a>(&'a self, terms: &'a ResponseTerms) -> &'a [ToolSpec] {
        terms.tools.as_ref().unwrap_or(&self.tools)
    }
}

/// The client's tools in the current answer and in the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientTools<'a> {
    this: &'a [ToolSpec],
    next: &'a [ToolSpec],
    /// `None` if the current answer has tools of its own, or nowhere to put results.
    early: Option<&'a EarlyTools>,
}

impl<'a> ClientTools<'a> {
    /// The client's tools, with the terms of the current answer if there is one.
    pub(super) fn of(client: &'a ClientSettings, terms: Option<&'a ResponseTerms>) -> Self {
        Self {
            this: terms.map_or(&[], |terms| client.tools_in(terms)),
            next: &client.tools,
            early: terms
                .is_none_or(|terms| terms.tools.is_none() && !terms.is_outside())
                .then_some(&client.early),
        }
    }

    /// The tool of this name that the conversation may start: the server's, or the client's that replaces it
    /// if that may run early.
    pub(super) fn declared(self, policy: &'a Policy, name: &str) -> Option<&'a Arc<Declaration>> {
        let mut clients = self.next.iter().chain(self.this);
        match clients.any(|tool| tool.name == name) {
            true => self.early?.get(name),
            false => policy.tool(name),
        }
    }
}
