//! Results that set fixed arguments of later calls: for each call the one of the last call of that tool before it, which
//! was committed and has succeeded. The result of a plan's step counts if the steps before it have succeeded, too.

use crate::conversation::generation::MOST_CALLS;
use crate::conversation::ids::CallId;
use crate::conversation::plan::Lost;
use crate::llm::plan::MOST_STEPS;
use crate::tools::Declaration;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The most calls of one tool whose results are kept: as many as a generation can make, with the steps of its plan.
const KEPT: usize = MOST_CALLS + MOST_STEPS;

/// A step of a plan.
#[derive(Debug)]
struct Step {
    tool: String,
    /// The call of the plan.
    plan: CallId,
}

/// The results of a session.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// The last committed calls of each tool, in order, with their results; `None` while a call runs, or if it has
    /// failed.
    calls: BTreeMap<String, Vec<(CallId, Option<Value>)>>,
    /// The steps of plans that are such calls, until it is certain whether their results count.
    steps: BTreeMap<CallId, Step>,
}

impl Results {
    /// The results that fixed arguments of a call come from, as far as they are there. `call` is `None` if it is not
    /// committed: then all calls so far come before it.
    pub(super) fn taken_by(
        &self,
        tool: Option<&Declaration>,
        call: Option<CallId>,
    ) -> Map<String, Value> {
        let takes = tool.into_iter().flat_map(|tool| &tool.takes);
        let taken = takes.filter_map(|of| Some((of.clone(), self.last(of, call)?.clone())));
        taken.collect()
    }

    /// The result of the last call of this tool before `call`.
    fn last(&self, tool: &str, call: Option<CallId>) -> Option<&Value> {
        let is_before = |of: CallId| call.is_none_or(|call| of < call);
        let mut calls = self.calls.get(tool)?.iter().rev();
        calls.find(|(of, _)| is_before(*of))?.1.as_ref()
    }

    /// Whether a fixed argument of the tool has no value yet.
    pub(super) fn lack_one_for(&self, tool: &Declaration) -> bool {
        let mut takes = tool.takes.iter();
        takes.any(|of| self.last(of, None).is_none())
    }

    /// Whether a step of another plan before `call` sets an argument of the tool and is undecided. Steps of one plan
    /// wait for each other as the plan has it.
    pub(super) fn await_step(&self, tool: &Declaration, call: CallId) -> bool {
        let plan = self.steps.get(&call).map(|step| step.plan);
        let mut before = self.steps.range(..call).map(|(_, step)| step);
        before.any(|step| tool.takes.contains(&step.tool) && Some(step.plan) != plan)
    }

    /// Whether a call behind `call` was committed whose result would set an argument of the tool: `call` may be a step of
    /// a plan that waited.
    pub(super) fn have_newer(&self, tool: &Declaration, call: CallId) -> bool {
        let calls = tool.takes.iter().filter_map(|of| self.calls.get(of));
        calls
            .filter_map(|calls| calls.last())
            .any(|(of, _)| *of > call)
    }

    /// Notes that a call of the tool is committed. Returns whether there was a result, which is no longer the last.
    pub(super) fn committed(&mut self, tool: &Declaration, call: CallId) -> bool {
        let name = &tool.spec.name;
        if tool.by_client || !tool.feeds || self.steps.contains_key(&call) {
            return false;
        }
        let had_result = self.last(name, None).is_some();
        let calls = self.calls.entry(name.clone()).or_default();
        // A step of a plan may be committed after a call that comes behind it.
        let at = calls.partition_point(|(of, _)| *of < call);
        calls.insert(at, (call, None));
        if calls.len() > KEPT {
            calls.remove(0);
        }
        had_result
    }

    /// Notes a step of the plan `plan` that was committed.
    pub(super) fn expect_step(&mut self, plan: CallId, call: CallId, tool: &Declaration) {
        let tool = tool.spec.name.clone();
        self.steps.insert(call, Step { tool, plan });
    }

    /// Forgets the results of the `lost` steps. Returns the tools that had such results.
    pub(super) fn lose(&mut self, lost: &Lost) -> Vec<String> {
        let mut outdated = Vec::new();
        for (tool, calls) in &mut self.calls {
            for (_, result) in calls.iter_mut().filter(|(of, _)| lost.void.contains(of)) {
                outdated.extend(result.take().is_some().then(|| tool.clone()));
            }
            calls.retain(|(of, _)| !lost.unbegun.contains(of));
        }
        outdated
    }

    /// Forgets all steps of plans but the `open` ones. Returns whether there were others.
    pub(super) fn keep_steps(&mut self, open: &[CallId]) -> bool {
        let before = self.steps.len();
        self.steps.retain(|call, _| open.contains(call));
        self.steps.len() < before
    }

    /// Keeps the result of a committed call.
    pub(super) fn keep(&mut self, tool: &str, call: CallId, result: &Value) {
        if let Some(calls) = self.calls.get_mut(tool)
            && let Some((_, kept)) = calls.iter_mut().find(|(of, _)| *of == call)
        {
            *kept = Some(result.clone());
        }
    }
}
