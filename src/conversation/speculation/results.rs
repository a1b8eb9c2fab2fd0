//! Results that set fixed arguments of later calls: the last one of each tool, from a committed call that has
//! succeeded. A run that took an older one is stale.

use super::Speculation;
use super::record::Discard;
use crate::conversation::common::Common;
use crate::conversation::ids::{CallId, RunId};
use crate::tools::Declaration;
use serde_json::{Map, Value};

impl Speculation {
    /// The results that fixed arguments of a tool come from, as far as they are there.
    pub(super) fn taken_by(&self, tool: Option<&Declaration>) -> Map<String, Value> {
        let takes = tool.into_iter().flat_map(|tool| &tool.takes);
        let taken = takes.filter_map(|of| Some((of.clone(), self.results.get(of)?.1.clone())));
        taken.collect()
    }

    /// A fixed argument of the tool has no value yet.
    pub(super) fn lacks_result(&self, tool: &Declaration) -> bool {
        let mut takes = tool.takes.iter();
        takes.any(|of| !self.results.contains_key(of))
    }

    /// A committed call runs whose result sets an argument of the tool.
    pub(super) fn awaits_result(&self, tool: &Declaration) -> bool {
        let mut runs = self.ledger.runs();
        runs.any(|run| {
            run.is_committed()
                && run.outcome.is_none()
                && run.feeds()
                && tool.takes.contains(&run.tool)
        })
    }

    /// A call of the tool is committed: its earlier result is no longer the last, nor is what was begun with it.
    pub(super) fn outdate_result(&mut self, common: &mut Common, tool: &Declaration) {
        let name = &tool.spec.name;
        if tool.by_client || self.results.remove(name).is_none() {
            return;
        }
        for run in self.ledger.mark_stale(|run| run.takes().contains(name)) {
            self.discard(common, run, Discard::Stale);
        }
    }

    /// Keeps the result of a committed run for this call, if others may be set from it. Of calls that run side by side
    /// the last one counts, whichever is done first.
    pub(super) fn keep_result(&mut self, run: RunId, call: CallId) {
        let run = self.ledger.get(run);
        if let Some(run) = run.filter(|run| run.is_committed() && run.feeds())
            && let Some((_, Ok(result))) = &run.outcome
            && self
                .results
                .get(&run.tool)
                .is_none_or(|(last, _)| *last <= call)
        {
            self.results
                .insert(run.tool.clone(), (call, result.clone()));
        }
    }
}
