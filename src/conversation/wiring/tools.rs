//! The server's tools change while the session goes on.

use super::Conversation;
use crate::conversation::policy::Declarations;

impl Conversation {
    /// The tools of the server that the session works with.
    pub(crate) fn tools(&self) -> &Declarations {
        &self.common.policy.tools
    }

    /// Adopts changed tools once nothing is in flight: a call keeps the declaration that it was offered
    /// with, from its prediction or its commit to its result. This comes before an input is handled,
    /// so what was decided before is carried out with the tools before.
    pub(super) fn adopt_tools(&mut self) {
        let in_flight = self.answer.is_some()
            || !self.running.is_empty()
            || self.speculation.has_runs()
            || !self.preempt.is_idle()
            || self.confirmation.is_wanted()
            || self.confirmation.awaited().is_some()
            || self.ending.is_near()
            || self.interruption.is_judging()
            || self.interruption.is_resuming();
        if !in_flight && let Some(tools) = self.common.changed_tools.take() {
            self.common.policy.tools = tools;
        }
    }
}
