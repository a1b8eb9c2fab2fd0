//! The steps whose results count for later calls: those that have succeeded, in a plan whose steps before them have
//! succeeded, too. So the arguments of a later call do not depend on which of two steps is faster.

use super::super::ids::CallId;
use super::{Plans, Stage, StepCall, UnderWay};

impl UnderWay {
    /// The steps whose results may come to count, or not: a step before them, or they themselves, may still fail.
    fn open(&self) -> impl Iterator<Item = CallId> {
        let done = self.results.iter().take_while(|result| result.is_some());
        let open = self.steps[..self.wanted()].iter().skip(done.count());
        open.filter(|step| !self.is_given_up(step))
            .map(|step| step.call)
    }

    /// The steps whose results do not count, so far: those behind a failed one, and those that never begin.
    fn lost(&self) -> impl Iterator<Item = CallId> {
        let steps = self.steps.iter().enumerate();
        let lost = steps.filter(|(at, step)| *at >= self.wanted() || self.is_given_up(step));
        lost.map(|(_, step)| step.call)
    }

    fn is_given_up(&self, step: &StepCall) -> bool {
        step.is_waiting() && self.stage == Stage::Stopped
    }
}

impl Plans {
    /// The steps whose results may still count or not.
    pub(in crate::conversation) fn open(&self) -> Vec<CallId> {
        self.under_way.iter().flat_map(UnderWay::open).collect()
    }

    /// The steps whose results do not count.
    pub(in crate::conversation) fn take_lost(&mut self) -> Vec<CallId> {
        let mut lost = std::mem::take(&mut self.lost);
        lost.extend(self.under_way.iter().flat_map(UnderWay::lost));
        lost
    }

    /// Notes the steps of a plan that is no longer under way: without results, they have none that counts.
    pub(super) fn lose(&mut self, plan: &UnderWay) {
        let steps = plan.steps.iter().zip(&plan.results);
        let without = steps.filter(|(_, result)| result.is_none());
        self.lost.extend(without.map(|(step, _)| step.call));
        self.lost.extend(plan.lost());
    }
}
