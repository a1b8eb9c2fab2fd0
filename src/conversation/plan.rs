//! Plans under way: which of their steps may start, and when a plan is over.
//!
//! A plan is committed whole, and each of its steps is a call of the ledger like any other. Steps that need nothing of
//! each other run at the same time. A step that may change something, or that asks for a yes, waits for all steps
//! before it, and all steps after it wait for it. So its result does not depend on which of two steps is faster.

mod results;

use super::ids::{CallId, ItemId, RequestId};
use crate::llm::plan::{self, Done, PLAN, Plan};
use crate::tools::{Confirmation, Declaration, ToolError, ToolSpec, builtin};
pub(super) use results::Lost;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Committed calls whose results are awaited.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// The calls in the history, with their items. A plan is one of them, its steps are not.
    pub(super) calls: BTreeMap<CallId, ItemId>,
    pub(super) plans: Plans,
}

/// The plans of a session.
#[derive(Debug, Default)]
pub(super) struct Plans {
    under_way: Vec<UnderWay>,
    /// The plan whose next step waits for the user's yes.
    asked: Option<UnderWay>,
    /// The generation that made the last plan.
    made_by: Option<RequestId>,
    /// The generation that made the last plan with a step that asks for a yes.
    asking: Option<RequestId>,
    /// Steps of plans that are no longer under way.
    lost: Lost,
}

/// A plan that is being carried out.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// The call of the plan itself.
    call: CallId,
    plan: Plan,
    steps: Vec<StepCall>,
    results: Vec<Option<Value>>,
    stage: Stage,
    /// The first step that failed, and why. No step after it starts.
    failure: Option<(usize, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// Its answer was stopped, and may be resumed.
    Paused,
    /// No further step starts.
    Stopped,
}

/// The call of a step.
#[derive(Debug, Clone)]
pub(super) struct StepCall {
    pub(super) call: CallId,
    pub(super) item: ItemId,
    pub(super) tool: Arc<Declaration>,
    state: State,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Waiting,
    /// The user has said yes to these arguments.
    Confirmed(Map<String, Value>),
    Running,
    Over,
}

/// The next thing to do for a plan.
#[derive(Debug)]
pub(super) enum Next {
    /// Run a step, which now counts as running. `of` is the call of its plan.
    Run {
        of: CallId,
        step: StepCall,
        arguments: Map<String, Value>,
    },
    /// Ask the user for a yes to a step; then [`Plans::put_aside`] or [`Plans::fail`] it.
    Ask {
        step: StepCall,
        arguments: Map<String, Value>,
    },
    /// A plan is over, with this result.
    Over { call: CallId, output: Value },
}

impl StepCall {
    pub(super) fn new(call: CallId, item: ItemId, tool: Arc<Declaration>) -> Self {
        let state = State::Waiting;
        Self {
            call,
            item,
            tool,
            state,
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting | State::Confirmed(_))
    }
}

/// Whether a tool asks for the user's yes.
pub(super) fn asks(tool: &Declaration) -> bool {
    tool.confirmation != Confirmation::None
}

/// Whether a step of this tool runs alone.
pub(super) fn is_barrier(tool: &Declaration) -> bool {
    asks(tool) || tool.effect.changes()
}

/// The reason why a tool of the server cannot be a step, for the model.
pub(super) fn refusal(tool: &Declaration) -> Option<&'static str> {
    if tool.ends_call.is_some() {
        Some("it ends the conversation, so it is no step of a plan: call it alone")
    } else if tool.spec.name == builtin::TRANSFER_TO_AGENT {
        Some("it hands the conversation over, so it is no step of a plan: call it alone")
    } else {
        None
    }
}

/// The tool that makes plans of calls of these tools; `None` if none of them can be a step, or one has its name.
pub(super) fn spec_of<'a>(tools: impl Iterator<Item = &'a Arc<Declaration>>) -> Option<ToolSpec> {
    let mut names = Vec::new();
    for tool in tools {
        if tool.spec.name == PLAN {
            return None;
        }
        if refusal(tool).is_none() {
            names.push(tool.spec.name.as_str());
        }
    }
    (!names.is_empty()).then(|| plan::spec(&names))
}

impl UnderWay {
    /// Creates a plan with the calls of its steps.
    pub(super) fn new(call: CallId, plan: Plan, steps: Vec<StepCall>) -> Self {
        Self {
            call,
            results: vec![None; steps.len()],
            plan,
            steps,
            stage: Stage::Running,
            failure: None,
        }
    }

    /// The steps that may run: those before the one that failed.
    fn wanted(&self) -> usize {
        let failed = self.failure.as_ref().map(|(at, _)| *at);
        failed.unwrap_or(self.steps.len())
    }

    fn is_done(&self, step: usize) -> bool {
        self.results[step].is_some()
    }

    /// The first step that may start now.
    fn startable(&self) -> Option<usize> {
        if self.stage != Stage::Running {
            return None;
        }
        for (at, step) in self.steps[..self.wanted()].iter().enumerate() {
            let is_barrier = is_barrier(&step.tool);
            let is_free = match is_barrier {
                true => (0..at).all(|before| self.is_done(before)),
                false => self
                    .plan
                    .needs(at)
                    .iter()
                    .all(|needed| self.is_done(*needed)),
            };
            if step.is_waiting() && is_free {
                return Some(at);
            }
            if is_barrier && !self.is_done(at) {
                return None;
            }
        }
        None
    }

    /// Starts a step, or fails the plan if its arguments cannot be filled in.
    fn start(&mut self, at: usize) -> Option<Next> {
        let step = &mut self.steps[at];
        let state = std::mem::replace(&mut step.state, State::Running);
        let is_confirmed = matches!(state, State::Confirmed(_));
        let arguments = match state {
            State::Confirmed(arguments) => Ok(arguments),
            _ => self.plan.arguments_of(at, &self.results),
        };
        let step = step.clone();
        match arguments {
            Ok(arguments) if asks(&step.tool) && !is_confirmed => {
                Some(Next::Ask { step, arguments })
            }
            Ok(arguments) => Some(Next::Run {
                of: self.call,
                step,
                arguments,
            }),
            Err(why) => {
                self.fail(at, why);
                None
            }
        }
    }

    fn fail(&mut self, at: usize, why: String) {
        self.steps[at].state = State::Over;
        if at < self.wanted() {
            self.failure = Some((at, why));
        }
    }

    /// The result, if the plan is over.
    fn output(&self) -> Option<Value> {
        let is_running = self.steps.iter().any(|step| step.state == State::Running);
        let is_done = (0..self.wanted()).all(|step| self.is_done(step));
        if is_running || !(is_done || self.stage == Stage::Stopped) {
            return None;
        }
        if let Some((_, why)) = &self.failure {
            return Some(self.early_end(why));
        }
        if !is_done {
            return Some(self.early_end("the answer was stopped, and the plan with it"));
        }
        let outcome = self.plan.outcome(&self.results);
        Some(outcome.unwrap_or_else(|why| self.early_end(&why)))
    }

    /// The result of a plan that ends early.
    fn early_end(&self, why: &str) -> Value {
        self.report("error", why)
    }

    /// The steps that were done, with what changes have returned, and `text` under `key`.
    fn report(&self, key: &str, text: &str) -> Value {
        let wanted = self.steps[..self.wanted()].iter();
        let done = wanted.zip(&self.plan.steps).zip(&self.results);
        let done = done.filter_map(|((call, step), result)| {
            Some(Done {
                name: &step.name,
                result: result.as_ref()?,
                is_told: is_barrier(&call.tool),
            })
        });
        plan::report(done, key, text)
    }
}

impl Plans {
    /// Begins a plan that this generation has made.
    pub(super) fn begin(&mut self, plan: UnderWay, made_by: Option<RequestId>) {
        self.made_by = made_by;
        if plan.steps.iter().any(|step| asks(&step.tool)) {
            self.asking = made_by;
        }
        self.under_way.push(plan);
    }

    /// Whether a plan is being carried out.
    pub(super) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether this generation has made a plan.
    pub(super) fn were_made_by(&self, generation: Option<RequestId>) -> bool {
        generation.is_some() && self.made_by == generation
    }

    /// Whether this generation has made a plan with a step that asks for a yes, now or later.
    pub(super) fn ask_for(&self, generation: Option<RequestId>) -> bool {
        generation.is_some() && self.asking == generation
    }

    /// The next thing to do, if anything is due.
    pub(super) fn next(&mut self) -> Option<Next> {
        let over = self.under_way.iter().enumerate();
        let over = over
            .filter_map(|(at, plan)| Some((at, plan.output()?)))
            .next();
        if let Some((at, output)) = over {
            let plan = self.under_way.remove(at);
            self.lose(&plan);
            let call = plan.call;
            return Some(Next::Over { call, output });
        }
        let mut plans = self.under_way.iter_mut();
        let (step, plan) = plans.find_map(|plan| Some((plan.startable()?, plan)))?;
        // A step whose arguments cannot be filled in ends its plan.
        plan.start(step).or_else(|| self.next())
    }

    fn step(&mut self, call: CallId) -> Option<(&mut UnderWay, usize)> {
        self.under_way.iter_mut().find_map(|plan| {
            let is_it = |step: &StepCall| step.call == call && step.state == State::Running;
            let at = plan.steps.iter().position(is_it)?;
            Some((plan, at))
        })
    }

    /// Stores the result of a step. Returns its item; `None` if the call is not a step.
    pub(super) fn finish(
        &mut self,
        call: CallId,
        result: &Result<Value, ToolError>,
    ) -> Option<ItemId> {
        let (plan, at) = self.step(call)?;
        let item = plan.steps[at].item;
        let failed = |why: String| format!("step {}, {}: {why}", at + 1, plan.plan.steps[at].tool);
        let kept = match result {
            Ok(output) => plan::kept(output, plan.steps[at].tool.effect.changes()).map_err(failed),
            Err(error) => Err(failed(error.to_string())),
        };
        match kept {
            Ok(output) => {
                plan.steps[at].state = State::Over;
                plan.results[at] = Some(output);
            }
            Err(why) => plan.fail(at, why),
        }
        Some(item)
    }

    /// Fails the plan, because a step cannot run.
    pub(super) fn fail(&mut self, call: CallId, why: &str) {
        if let Some((plan, at)) = self.step(call) {
            let why = format!("step {}, {}: {why}", at + 1, plan.plan.steps[at].tool);
            plan.fail(at, why);
        }
    }

    /// Puts the plan aside until the user has said yes to its step `call`. Returns the plan's call, and its result for
    /// the model so far.
    pub(super) fn put_aside(&mut self, call: CallId) -> Option<(CallId, Value)> {
        let position = |plan: &UnderWay| plan.steps.iter().position(|step| step.call == call);
        let mut plans = self.under_way.iter().enumerate();
        let (at, step) = plans.find_map(|(at, plan)| Some((at, position(plan)?)))?;
        let mut plan = self.under_way.remove(at);
        plan.steps[step].state = State::Waiting;
        self.lose(&plan);
        let status = format!(
            "step {}, {}, waits for the user's yes, who is asked next. It has not run, and neither have the steps \
             behind it",
            step + 1,
            plan.plan.steps[step].tool
        );
        let told = (plan.call, plan.report("status", &status));
        self.asked = Some(plan);
        Some(told)
    }

    /// Resumes a plan as `call` after the user's yes to the step `confirmed`, if all tools of its other steps are still
    /// among `tools`. Returns the arguments of that call, and its result if the plan does not go on; `None` if it
    /// is not a step.
    pub(super) fn go_on(
        &mut self,
        confirmed: CallId,
        call: CallId,
        arguments: &Map<String, Value>,
        tools: &[Arc<Declaration>],
    ) -> Option<(Map<String, Value>, Option<Value>)> {
        let mut plan = self.asked.take()?;
        let at = plan.steps.iter().position(|step| step.call == confirmed)?;
        let rest = plan.plan.rest(at, arguments);
        if let Some(gone) = plan.steps[at..].iter().find(|s| !tools.contains(&s.tool)) {
            let why = format!(
                "the tools have changed since then, {} among them: no step from {} on has run",
                gone.tool.spec.name, plan.plan.steps[at].name
            );
            return Some((rest, Some(plan.early_end(&why))));
        }
        plan.call = call;
        plan.stage = Stage::Running;
        plan.steps[at].state = State::Confirmed(arguments.clone());
        self.under_way.push(plan);
        Some((rest, None))
    }

    /// Pauses all plans, because the answer has ended or was stopped: nothing starts until it is resumed.
    pub(super) fn pause(&mut self) {
        self.change(Stage::Running, Stage::Paused);
    }

    pub(super) fn resume(&mut self) {
        self.change(Stage::Paused, Stage::Running);
    }

    /// Stops paused plans, because the answer is not resumed. Returns whether any was paused.
    pub(super) fn stop_paused(&mut self) -> bool {
        self.change(Stage::Paused, Stage::Stopped)
    }

    fn change(&mut self, from: Stage, to: Stage) -> bool {
        let mut changed = false;
        for plan in self.under_way.iter_mut().filter(|plan| plan.stage == from) {
            plan.stage = to;
            changed = true;
        }
        changed
    }

    /// Replaces plans among these calls by their running steps.
    pub(super) fn run_for(&self, calls: &[CallId]) -> Vec<CallId> {
        let mut all = Vec::new();
        for call in calls {
            match self.under_way.iter().find(|plan| plan.call == *call) {
                Some(plan) => {
                    let running = plan
                        .steps
                        .iter()
                        .filter(|step| step.state == State::Running);
                    all.extend(running.map(|step| step.call));
                }
                None => all.push(*call),
            }
        }
        all
    }

    /// The tools of the steps that have not started, of plans that are among these calls.
    pub(super) fn to_come(&self, calls: &[CallId]) -> impl Iterator<Item = &str> {
        let plans = self
            .under_way
            .iter()
            .filter(|plan| calls.contains(&plan.call));
        let steps = plans.flat_map(|plan| &plan.steps[..plan.wanted()]);
        let waiting = steps.filter(|step| step.state == State::Waiting);
        waiting.map(|step| step.tool.spec.name.as_str())
    }
}
