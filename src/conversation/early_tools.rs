//! The client's tools that may run before the model has committed their calls.

use super::ids::CallId;
use crate::time::Micros;
use crate::tools::{Declaration, Effect, Eligibility, SpeculationLimits, ToolSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a client may take for a call that has begun early. After that the call has failed.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A client's promise that one of its tools changes nothing, and its permission to run it early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlyTool {
    /// The tool's name.
    pub name: String,
    /// How long a result without a commit may be used.
    pub ttl: Micros,
}

impl EarlyTool {
    /// The declarations of those of the client's `tools` that may run early. A permission without a tool is
    /// ignored.
    pub fn declarations<'a>(
        tools: &'a [ToolSpec],
        early: &'a [Self],
    ) -> impl Iterator<Item = Arc<Declaration>> {
        early.iter().filter_map(|early| {
            let spec = tools.iter().find(|spec| spec.name == early.name)?;
            Some(Arc::new(early.declaration(spec.clone())))
        })
    }

    fn declaration(&self, spec: ToolSpec) -> Declaration {
        Declaration {
            by_client: true,
            speculation: SpeculationLimits {
                eligibility: Eligibility::Full,
                ttl: self.ttl.duration(),
                ..SpeculationLimits::default()
            },
            ..Declaration::new(spec, Effect::Read, CLIENT_TIMEOUT)
        }
    }
}

/// The client's tools that may run early, and their calls.
#[derive(Debug, Default)]
pub(super) struct EarlyTools {
    declared: Vec<Arc<Declaration>>,
    /// Committed calls that took over an early run, until their outputs are in the history.
    committed: BTreeSet<CallId>,
}

impl EarlyTools {
    /// Replaces the tools.
    pub(super) fn replace(&mut self, tools: &[ToolSpec], early: &[EarlyTool]) {
        self.declared = EarlyTool::declarations(tools, early).collect();
    }

    pub(super) fn all(&self) -> &[Arc<Declaration>] {
        &self.declared
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Declaration>> {
        self.declared.iter().find(|tool| tool.spec.name == name)
    }

    /// Notes that a call took over an early run.
    pub(super) fn was_committed(&mut self, call: CallId) {
        self.committed.insert(call);
    }

    /// The output of a call joins the history. Returns whether the call took over an early run of the client.
    pub(super) fn has_output(&mut self, call: CallId) -> bool {
        self.committed.remove(&call)
    }
}
