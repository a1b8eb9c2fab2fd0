//! The agents of a server, between whom a session may be handed over.

use super::briefing::Briefing;
use super::ids::ClauseId;
use super::policy::Declarations;
use crate::tts::Speaker;
use serde::{Deserialize, Serialize};

/// All that is different when another agent goes on with a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its instructions, and its name.
    #[serde(flatten)]
    pub briefing: Briefing,
    /// Its tools.
    pub tools: Declarations,
    /// Its voice and language.
    #[serde(default, skip_serializing_if = "Speaker::is_default")]
    pub speaker: Speaker,
    /// Whether anything may run early.
    pub speculation: bool,
    /// The operator's limit on the tokens of one generation; unlimited if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
}

/// The most handoffs of a session: agents that pass a caller round in circles help nobody.
const MOST: u32 = 4;

/// The agent that goes on, and how those before it sound to their ends.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    /// Begins with the next generation.
    next: Option<Box<Agent>>,
    /// The last clause of each agent before, and its voice, oldest first.
    before: Vec<(ClauseId, Speaker)>,
    /// The handoffs of the session so far.
    made: u32,
}

impl Handoff {
    /// Hands the session over.
    pub(super) fn to(&mut self, agent: Agent) {
        self.next = Some(Box::new(agent));
        self.made += 1;
    }

    /// The reason why the session cannot be handed over now, for the model.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        if self.is_under_way() {
            Some("the conversation is being handed over already")
        } else if self.made >= MOST {
            Some("the conversation has been handed over too often: go on with the user yourself")
        } else {
            None
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.next.is_some()
    }

    /// The agent that goes on.
    pub(super) fn next(&mut self) -> Option<&mut Agent> {
        self.next.as_deref_mut()
    }

    pub(super) fn take(&mut self) -> Option<Agent> {
        self.next.take().map(|agent| *agent)
    }

    /// The voice before ends with the clause `last`. One that has said nothing since the last change leaves no trace.
    pub(super) fn end_voice(&mut self, last: ClauseId, speaker: Speaker) {
        if self.before.last().is_none_or(|(before, _)| *before < last) {
            self.before.push((last, speaker));
        }
    }

    /// The voice of a clause, if it is one of an agent before.
    pub(super) fn voice_before(&self, clause: ClauseId) -> Option<&Speaker> {
        let mut before = self.before.iter();
        let (_, speaker) = before.find(|(last, _)| clause <= *last)?;
        Some(speaker)
    }
}
