//! Handoffs to another agent.

use super::Conversation;
use crate::conversation::agent::Agent;
use crate::conversation::{Event, Policy};

impl Conversation {
    /// Hands the session over from the next generation on, so that the calls of this one keep their declarations.
    pub(super) fn hand_over_to(&mut self, agent: Agent) {
        self.common.changed_tools = None;
        self.common.handoff.to(agent);
    }

    /// The reason why the session cannot be handed over now, for the model.
    pub(crate) fn refuses_handoff(&self) -> Option<&'static str> {
        self.common.handoff.refusal()
    }

    /// The agent that goes on takes over, if nobody answers or listens to an interruption. Called before an
    /// input is handled.
    pub(super) fn take_over_between_answers(&mut self) {
        let is_answering = self.answer.is_some()
            || self.interruption.is_judging()
            || self.interruption.is_resuming();
        if !is_answering {
            self.take_over();
        }
    }

    /// The agent that goes on takes over. Nothing that was begun for the one before it, and not committed, is
    /// left.
    pub(super) fn take_over(&mut self) {
        let Some(agent) = self.common.handoff.take() else {
            return;
        };
        self.drop_held();
        self.held.assumed.drop(&mut self.common, false);
        self.confirmation
            .put_off(&mut self.common, &mut self.history);
        self.speculation.change_agent(&mut self.common);
        let Agent {
            briefing,
            tools,
            speaker,
            speculation,
            max_tokens,
        } = agent;
        self.common.change_voice(speaker);
        self.client.may_speculate = speculation && !self.client.transcribe_only;
        let name = briefing.agent.clone();
        let policy = &mut self.common.policy;
        *policy = Policy {
            briefing,
            tools,
            max_tokens,
            ..std::mem::take(policy)
        };
        policy.speculation.enabled = self.client.speculates();
        self.common.notify(Event::AgentChanged {
            agent: name.unwrap_or_default(),
        });
    }
}
