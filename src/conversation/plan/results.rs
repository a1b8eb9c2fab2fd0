//! The steps whose results count for later calls: those that have succeeded, in a plan whose steps before them have
//! succeeded, too. So the arguments of a later call do not depend on which of two steps is faster. Of a plan that was
//! stopped, all steps count that were done by then.

use super::{Plans, Stage, StepCall, UnderWay};
use crate::conversation::ids::CallId;
use crate::tools::Declaration;
use std::sync::Arc;

/// Steps whose results do not count.
#[derive(Debug, Default)]
pub(in crate::conversation) struct Lost {
    /// The step that failed, and all behind it, whether they ran or not: a later call gets no value from them, and none
    /// from before either.
    pub(in crate::conversation) void: Vec<CallId>,
    /// Those that never begin, as if the model had not called them.
    pub(in crate::conversation) unbegun: Vec<CallId>,
}

impl UnderWay {
    /// Steps whose results are undecided: they or a step before them may still fail.
    fn open(&self) -> impl Iterator<Item = CallId> {
        let done = self.results.iter().take_while(|result| result.is_some());
        let open = self.steps[..self.wanted()].iter().skip(done.count());
        let never_begins = |step: &&StepCall| step.is_waiting() && self.stage == Stage::Stopped;
        open.filter(move |step| !never_begins(step))
            .map(|step| step.call)
    }
}

impl Plans {
    /// The steps whose results are undecided.
    pub(in crate::conversation) fn open(&self) -> Vec<CallId> {
        self.under_way.iter().flat_map(UnderWay::open).collect()
    }

    /// The steps that have not begun of the plan that was made, or is resumed, as `call`.
    pub(in crate::conversation) fn unbegun(&self, call: CallId) -> Vec<(CallId, Arc<Declaration>)> {
        let plan = self.under_way.iter().filter(|plan| plan.call == call);
        let steps = plan.flat_map(|plan| &plan.steps);
        let unbegun = steps.filter(|step| step.is_waiting());
        unbegun.map(|step| (step.call, step.tool.clone())).collect()
    }

    /// The steps whose results do not count. Those of plans under way are told each time, since they may still run.
    pub(in crate::conversation) fn take_lost(&mut self) -> Lost {
        let mut lost = std::mem::take(&mut self.lost);
        for plan in &self.under_way {
            lost.add(plan, plan.stage == Stage::Stopped);
        }
        lost
    }

    /// Notes the steps of a plan that is no longer under way.
    pub(super) fn lose(&mut self, plan: &UnderWay) {
        self.lost.add(plan, true);
    }
}

impl Lost {
    /// `ends`: none of the plan's steps begins any more.
    fn add(&mut self, plan: &UnderWay, ends: bool) {
        let (wanted, behind) = plan.steps.split_at(plan.wanted());
        self.void.extend(behind.iter().map(|step| step.call));
        let unbegun = wanted.iter().filter(|step| ends && step.is_waiting());
        self.unbegun.extend(unbegun.map(|step| step.call));
    }
}
