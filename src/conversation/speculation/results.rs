//! Results that set fixed arguments of later calls: for each call the one of the last call of that tool before it, which
//! was committed and has succeeded. A run that took an older one is stale. The result of a plan's step counts if the
//! steps before it have succeeded, too.

use super::Speculation;
use super::ledger::Run;
use super::record::Discard;
use crate::conversation::common::Common;
use crate::conversation::generation::MOST_CALLS;
use crate::conversation::ids::{CallId, RunId};
use crate::conversation::plan::Lost;
use crate::llm::plan::MOST_STEPS;
use crate::tools::Declaration;
use serde_json::{Map, Value};

/// The most calls of one tool whose results are kept: as many as a generation can make, with the steps of its plan.
const KEPT: usize = MOST_CALLS + MOST_STEPS;

/// A step of a plan.
#[derive(Debug)]
pub(super) struct Step {
    tool: String,
    /// The call of the plan.
    plan: CallId,
}

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

    /// Whether a step of another plan before `call` sets an argument of the tool and is undecided. Steps of one plan
    /// wait for each other as the plan has it.
    pub(super) fn awaits_step(&self, tool: &Declaration, call: CallId) -> bool {
        let plan = self.steps.get(&call).map(|step| step.plan);
        let mut before = self.steps.range(..call).map(|(_, step)| step);
        before.any(|step| tool.takes.contains(&step.tool) && Some(step.plan) != plan)
    }

    /// Whether a call behind `call` was committed whose result would set an argument of the tool: `call` may be a step of
    /// a plan that waited.
    pub(super) fn has_newer_result(&self, tool: &Declaration, call: CallId) -> bool {
        let calls = tool.takes.iter().filter_map(|of| self.results.get(of));
        calls
            .filter_map(|calls| calls.last())
            .any(|(of, _)| *of > call)
    }

    /// A call of the tool is committed: its earlier result is no longer the last, nor is what was begun with it.
    pub(super) fn outdate_result(&mut self, common: &mut Common, tool: &Declaration, call: CallId) {
        let name = &tool.spec.name;
        if tool.by_client || !tool.feeds || self.steps.contains_key(&call) {
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
            self.outdate_runs(common, name);
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
            let tool = tool.spec.name.clone();
            self.steps.insert(call, Step { tool, plan });
        }
    }

    /// Forgets all steps of plans but the `open` ones, and the results of the `lost` ones. Then calls that waited start.
    pub(in crate::conversation) fn keep_steps(
        &mut self,
        common: &mut Common,
        open: &[CallId],
        lost: &Lost,
    ) {
        let mut outdated = Vec::new();
        for (tool, calls) in &mut self.results {
            for (_, result) in calls.iter_mut().filter(|(of, _)| lost.void.contains(of)) {
                outdated.extend(result.take().is_some().then(|| tool.clone()));
            }
            calls.retain(|(of, _)| !lost.unbegun.contains(of));
        }
        for tool in outdated {
            self.outdate_runs(common, &tool);
        }
        let before = self.steps.len();
        self.steps.retain(|call, _| open.contains(call));
        if self.steps.len() < before {
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
