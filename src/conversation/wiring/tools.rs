//! Changes of the server's tools during a session.

use super::Conversation;
use crate::conversation::policy::Declarations;

impl Conversation {
    /// Handles changed tools of the server. After a handoff they are those of the next agent.
    pub(super) fn change_tools(&mut self, tools: Declarations) {
        match self.common.handoff.next() {
            Some(agent) => agent.tools = tools,
            None => self.common.changed_tools = Some(tools),
        }
    }

    /// Takes new notes on the caller. After a handoff they are those of the next agent.
    pub(super) fn take_notes(&mut self, notes: Vec<String>) {
        match self.common.handoff.next() {
            Some(agent) => agent.briefing.notes = notes,
            None => self.common.policy.briefing.notes = notes,
        }
    }

    /// The server's tools as this session uses them.
    pub(crate) fn tools(&self) -> &Declarations {
        &self.common.policy.tools
    }

    /// Adopts changed tools once nothing is in flight, so that a call keeps its declaration from prediction
    /// or commit to result. Called before an input is handled, so that earlier decisions are carried out with
    /// the earlier tools.
    pub(super) fn adopt_tools(&mut self) {
        if self.common.changed_tools.is_none() {
            return;
        }
        let in_flight = self.answer.is_some()
            || !self.running.calls.is_empty()
            || self.speculation.has_runs()
            || !self.held.preempt.is_idle()
            || self.confirmation.wanted().is_some()
            || self.confirmation.awaited().is_some()
            || self.ending.is_near()
            || self.interruption.is_judging()
            || self.interruption.is_resuming();
        if !in_flight && let Some(tools) = self.common.changed_tools.take() {
            self.common.policy.tools = tools;
        }
    }
}
