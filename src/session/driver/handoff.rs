//! Handoffs of a session to another agent.

use super::{Done, Driver};
use crate::conversation::{Input, RunId};
use crate::session::agents::Agent;
use crate::session::engines::speaker_of;
use crate::tools::{Declaration, ToolError, builtin};
use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tracing::Instrument;

impl Driver {
    /// Carries out a call of the tool that hands over: the agent that it names goes on from the next
    /// generation.
    pub(super) fn hand_to_agent(
        &mut self,
        run: RunId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) {
        let result = self.agent_for(tool, arguments).map(|agent| {
            let name = agent.name.clone();
            self.change_agent(agent);
            json!({"agent": name, "status": "handed over: this agent goes on with the user"})
        });
        self.input(Input::ToolFinished { run, result });
    }

    fn agent_for(
        &self,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) -> Result<Arc<Agent>, ToolError> {
        let refused = |why: &str| Err(ToolError::Failed(why.into()));
        let names = builtin::agents_of(tool);
        let wanted = arguments.get("agent").and_then(Value::as_str);
        let Some(name) = wanted.filter(|name| names.contains(name)) else {
            let names = names.join(", ");
            return Err(ToolError::Arguments(format!("agent: use one of {names}")));
        };
        if let Some(why) = self.conversation.refuses_handoff() {
            return refused(why);
        }
        let agent = self.engines.agents.get(name).cloned();
        agent.map_or_else(|| refused("there is no such agent any more"), Ok)
    }

    fn change_agent(&mut self, agent: Arc<Agent>) {
        let before = std::mem::replace(&mut self.agent, agent);
        let languages =
            [&before, &self.agent].map(|agent| speaker_of(agent, &self.options).language);
        if languages[0] != languages[1] {
            self.open_recogniser();
        }
        self.routing.change_agent(&self.agent.name);
        let (from, to) = (&before.name, &self.agent.name);
        tracing::info!(from, to, "handed over to another agent");
        self.engines.observers.metrics.handed_over(from, to);
        self.agent.warmth.use_now();
        let tools = self.offer.change_agent(self.agent.clone());
        let found = self.tools.found().now_or_never();
        let looks_up = found.is_none();
        let found = found.unwrap_or_default();
        let agent = self
            .engines
            .role_of(&self.agent, &self.options, tools, &found);
        self.input(Input::Agent(Box::new(agent)));
        if looks_up {
            self.await_notes();
        }
    }

    /// Has the agent's notes made when the lookups are done.
    pub(super) fn await_notes(&mut self) {
        let (agent, tools) = (self.agent.clone(), self.tools.clone());
        let (values, results) = (self.options.values.clone(), self.results.clone());
        let task = async move {
            let notes = agent.instructions.notes(&values, &tools.found().await);
            let agent = agent.name.clone();
            drop(results.send(Done::Notes { agent, notes }).await);
        };
        self.tasks.spawn(task.in_current_span());
    }
}
