//! Runs whose arguments come from results of earlier calls: one that took an older result is stale, and one whose result
//! is still to come waits.

use super::Speculation;
use super::ledger::Run;
use super::record::Discard;
use crate::conversation::common::Common;
use crate::conversation::ids::{CallId, RunId};
use crate::conversation::plan::Lost;
use crate::tools::Declaration;

impl Speculation {
    /// Whether a call before `call` runs, or will run, whose result sets an argument of the tool.
    pub(super) fn awaits_result(&self, tool: &Declaration, call: CallId) -> bool {
        let mut runs = self.ledger.runs();
        self.results.await_step(tool, call)
            || runs.any(|run| {
                run.calls.iter().any(|of| *of < call)
                    && run.outcome.is_none()
                    && run.feeds()
                    && tool.takes.contains(&run.tool)
            })
    }

    /// A call of the tool is committed: its earlier result is no longer the last, nor is what was begun with it.
    pub(super) fn outdate_result(&mut self, common: &mut Common, tool: &Declaration, call: CallId) {
        if self.results.committed(tool, call) {
            self.outdate_runs(common, &tool.spec.name);
        }
    }

    /// The runs that have taken a result of this tool are stale.
    fn outdate_runs(&mut self, common: &mut Common, tool: &str) {
        let takes = |run: &Run| run.takes().iter().any(|of| of == tool);
        for run in self.ledger.mark_stale(takes) {
            self.discard(common, run, Discard::Stale);
        }
    }

    /// The plan `plan` is committed with these steps. A call behind it waits for those whose results set its arguments,
    /// however far the plan is by then.
    pub(in crate::conversation) fn expect_steps<'a>(
        &mut self,
        common: &mut Common,
        plan: CallId,
        steps: impl Iterator<Item = (CallId, &'a Declaration)>,
    ) {
        for (call, tool) in steps {
            self.outdate_result(common, tool, call);
            self.results.expect_step(plan, call, tool);
        }
    }

    /// Forgets all steps of plans but the `open` ones, and the results of the `lost` ones. Then calls that waited start.
    pub(in crate::conversation) fn keep_steps(
        &mut self,
        common: &mut Common,
        open: &[CallId],
        lost: &Lost,
    ) {
        for tool in self.results.lose(lost) {
            self.outdate_runs(common, &tool);
        }
        if self.results.keep_steps(open) {
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
        {
            self.results.keep(&run.tool, call, result);
        }
    }
}
