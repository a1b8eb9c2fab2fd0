//! Results that set fixed arguments of later calls: for each call the one of the last call of that tool before it, which
//! was committed and has succeeded. A run that took an older one is stale.

use super::Speculation;
use super::record::Discard;
use crate::conversation::common::Common;
use crate::conversation::generation::MOST_CALLS;
use crate::conversation::ids::{CallId, RunId};
use crate::tools::Declaration;
use serde_json::{Map, Value};

/// The most calls of one tool whose results are kept: as many as a generation can make.
const KEPT: usize = MOST_CALLS;

impl Speculation {
    /// The results that fixed arguments of a call come from, as far as they are there. `call` is `None` if it is not
    /// committed: then all calls so far come before it.
    pub(super) fn taken_by(
        &self,
        tool: Option<&Declaration>,
        call: Option<CallId>,
    ) -> Map<String, Value> {
        let takes = tool.into_iter().flat_map(|tool| &tool.takes);
        let taken = takes.filter_map(|of| Some((of.clone(), self.last_result(of, call)?.clone())));
        taken.collect()
    }

    /// The result of the last call of this tool before `call`.
    fn last_result(&self, tool: &str, call: Option<CallId>) -> Option<&Value> {
        let is_before = |of: CallId| call.is_none_or(|call| of < call);
        let mut calls = self.results.get(tool)?.iter().rev();
        calls.find(|(of, _)| is_before(*of))?.1.as_ref()
    }

    /// A fixed argument of the tool has no value yet.
    pub(super) fn lacks_result(&self, tool: &Declaration) -> bool {
        let mut takes = tool.takes.iter();
        takes.any(|of| self.last_result(of, None).is_none())
    }

    /// A call before `call` runs, or will run, whose result sets an argument of the tool.
    pub(super) fn awaits_result(&self, tool: &Declaration, call: CallId) -> bool {
        let mut runs = self.ledger.runs();
        self.awaits_step(tool, call)
            || runs.any(|run| {
                run.calls.iter().any(|of| *of < call)
                    && run.outcome.is_none()
                    && run.feeds()
                    && tool.takes.contains(&run.tool)
            })
    }

    /// A step of a plan before `call` has not begun whose result sets an argument of the tool.
    pub(super) fn awaits_step(&self, tool: &Declaration, call: CallId) -> bool {
        let mut coming = self.coming.range(..call);
        coming.any(|(_, of)| tool.takes.contains(of))
    }

    /// A call of the tool is committed: its earlier result is no longer the last, nor is what was begun with it.
    pub(super) fn outdate_result(&mut self, common: &mut Common, tool: &Declaration, call: CallId) {
        let name = &tool.spec.name;
        if tool.by_client || !tool.feeds || self.coming.remove(&call).is_some() {
            return;
        }
        let had_result = self.last_result(name, None).is_some();
        let calls = self.results.entry(name.clone()).or_default();
        // A step of a plan may be committed after a call that comes behind it.
        let at = calls.partition_point(|(of, _)| *of < call);
        calls.insert(at, (call, None));
        if calls.len() > KEPT {
            calls.remove(0);
        }
        if had_result {
            for run in self.ledger.mark_stale(|run| run.takes().contains(name)) {
                self.discard(common, run, Discard::Stale);
            }
        }
    }

    /// A plan is committed with these steps. A call behind it waits for those whose results set its arguments, however
    /// far the plan is by then.
    pub(in crate::conversation) fn expect_steps<'a>(
        &mut self,
        common: &mut Common,
        steps: impl Iterator<Item = (CallId, &'a Declaration)>,
    ) {
        for (call, tool) in steps.filter(|(_, tool)| tool.feeds && !tool.by_client) {
            self.outdate_result(common, tool, call);
            self.coming.insert(call, tool.spec.name.clone());
        }
    }

    /// Only these steps of plans may still begin. Calls that waited for others go on without them.
    pub(in crate::conversation) fn keep_steps(&mut self, common: &mut Common, steps: &[CallId]) {
        let before = self.coming.len();
        let results = &mut self.results;
        self.coming.retain(|call, tool| {
            let stays = steps.contains(call);
            if let Some(calls) = results.get_mut(tool).filter(|_| !stays) {
                calls.retain(|(of, _)| of != call);
            }
            stays
        });
        if self.coming.len() < before {
            self.start_all_deferred(common);
        }
    }

    pub(super) fn start_all_deferred(&mut self, common: &mut Common) {
        let deferred = self.ledger.runs().filter(|run| run.deferred);
        let deferred: Vec<RunId> = deferred.map(|run| run.id).collect();
        for id in deferred {
            self.start_deferred(common, id);
        }
    }

    /// Keeps the result of a committed run for this call, if others may be set from it.
    pub(super) fn keep_result(&mut self, run: RunId, call: CallId) {
        let run = self.ledger.get(run);
        if let Some(run) = run.filter(|run| run.is_committed() && run.feeds())
            && let Some((_, Ok(result))) = &run.outcome
            && let Some(calls) = self.results.get_mut(&run.tool)
            && let Some((_, kept)) = calls.iter_mut().find(|(of, _)| *of == call)
        {
            *kept = Some(result.clone());
        }
    }
}
