//! Plans: their steps become calls of the ledger, and their results one result.

use super::Conversation;
use crate::conversation::answer::Answer;
use crate::conversation::confirm::Pending;
use crate::conversation::ids::CallId;
use crate::conversation::plan::{self, Next, StepCall, UnderWay};
use crate::conversation::{Event, ResponseTerms};
use crate::llm::plan::{PLAN, Plan, reason};
use crate::tools::{Declaration, ToolError, ToolSpec};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The result of a second call that needs a yes, which is not run.
pub(super) const ONE_YES: &str =
    "only one call at a time can wait for the user's yes: call it again after that one";

/// The result of a second plan of the same generation, which is not run.
const ONE_PLAN: &str =
    "only one plan at a time: call it again when the result of the other one is there";

impl Conversation {
    /// The tool that makes plans, if it is offered in an answer with these terms.
    pub(super) fn plan_tool(&self, terms: &ResponseTerms) -> Option<ToolSpec> {
        let clients = self.client.tools_in(terms);
        let is_clients = |name: &str| clients.iter().any(|tool| tool.name == name);
        if !self.makes_plans() || terms.is_outside() || is_clients(PLAN) {
            return None;
        }
        let own = self.common.policy.tools.iter();
        plan::spec_of(own.filter(|tool| !is_clients(&tool.spec.name)))
    }

    /// Whether a call of [`PLAN`] is a plan.
    pub(super) fn makes_plans(&self) -> bool {
        self.common.policy.briefing.plans && self.common.policy.tool(PLAN).is_none()
    }

    /// Carries out a committed plan.
    pub(super) fn begin_plan(&mut self, call: CallId, arguments: Map<String, Value>) {
        let made_by = self.answer.as_ref().and_then(Answer::request);
        let plan = match self.running.plans.were_made_by(made_by) {
            true => Err(ONE_PLAN.to_owned()),
            false => self.plan_of(&arguments),
        };
        let (plan, tools) = match plan {
            Ok(plan) => plan,
            Err(why) => {
                let item = self.common.item_id();
                self.history.add_call(item, call, PLAN, arguments);
                return self.wait_for(call, Some(json!({"error": reason(&why)})));
            }
        };
        // A call that needs a yes joins the history only after it.
        if tools.first().is_some_and(|tool| !plan::asks(tool)) {
            self.add_plan(call, plan.arguments());
        }
        // All at once, so that ids do not depend on how long a step takes.
        let steps = tools
            .into_iter()
            .map(|tool| StepCall::new(self.common.call_id(), self.common.item_id(), tool));
        let steps: Vec<StepCall> = steps.collect();
        let plan = UnderWay::new(call, plan, steps);
        self.running.plans.begin(plan, made_by);
        self.start_plan(call);
    }

    fn start_plan(&mut self, call: CallId) {
        let steps = self.running.plans.unbegun(call);
        let steps = steps.iter().map(|(call, tool)| (*call, &**tool));
        self.speculation.expect_steps(&mut self.common, call, steps);
        self.go_on_with_plans();
    }

    fn add_plan(&mut self, call: CallId, arguments: Map<String, Value>) {
        let item = self.common.item_id();
        self.history.add_call(item, call, PLAN, arguments);
        self.running.calls.insert(call, item);
        self.wait_for(call, None);
    }

    /// The plan, and the tools of its steps, or why it cannot be carried out.
    fn plan_of(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<(Plan, Vec<Arc<Declaration>>), String> {
        let mut plan = Plan::read(arguments)?;
        let mut tools = Vec::new();
        for (at, step) in plan.steps.iter_mut().enumerate() {
            let tool = self.step_tool(&step.tool);
            let tool = tool.map_err(|why| format!("step {}, {}: {why}", at + 1, step.tool))?;
            tool.without_fixed(&mut step.arguments);
            tools.push(tool);
        }
        for (at, tool) in tools.iter().enumerate() {
            let feeds = |before: &usize| tool.takes.contains(&tools[*before].spec.name);
            plan.feed(at, (0..at).filter(feeds).collect());
        }
        let asks_first = tools.first().is_some_and(|tool| plan::asks(tool));
        match asks_first && self.confirmation.wanted().is_some() {
            true => Err(format!("step 1, {}: {ONE_YES}", plan.steps[0].tool)),
            false => Ok((plan, tools)),
        }
    }

    fn step_tool(&self, name: &str) -> Result<Arc<Declaration>, String> {
        let terms = self
            .answer
            .as_ref()
            .map(|answer| self.client.tools_in(&answer.terms));
        if terms.into_iter().flatten().any(|tool| tool.name == name) {
            return Err("the client runs it, so it is no step of a plan: call it alone".into());
        }
        if name == PLAN {
            return Err("a plan is no step of a plan".into());
        }
        let tool = self.common.policy.tool(name);
        let tool = tool.ok_or_else(|| ToolError::Unknown(name.to_owned()).to_string())?;
        match plan::refusal(tool) {
            Some(why) => Err(why.into()),
            None => Ok(tool.clone()),
        }
    }

    /// The calls that a call which the model has written, and not committed, begins with: the steps of a plan that need
    /// no other, or itself.
    pub(super) fn begun_by(
        &self,
        name: String,
        arguments: Map<String, Value>,
    ) -> Vec<(String, Map<String, Value>)> {
        if name != PLAN || !self.makes_plans() {
            return vec![(name, arguments)];
        }
        let Ok((plan, tools)) = self.plan_of(&arguments) else {
            return Vec::new();
        };
        let reads = tools
            .iter()
            .take_while(|tool| !plan::is_barrier(tool))
            .count();
        let first = (0..reads).filter(|step| plan.needs(*step).is_empty());
        let calls = first.filter_map(|step| {
            Some((
                plan.steps[step].tool.clone(),
                plan.arguments_of(step, &[]).ok()?,
            ))
        });
        calls.collect()
    }

    /// Starts the steps that may start, and hands in the results of plans that are over.
    pub(super) fn go_on_with_plans(&mut self) {
        while let Some(next) = self.running.plans.next() {
            match next {
                Next::Run {
                    of,
                    step,
                    arguments,
                } => self.run_step(of, step, arguments),
                Next::Ask { step, arguments } => self.ask_for_step(&step, &arguments),
                Next::Over { call, output } => self.end_plan(call, output),
            }
        }
        let (open, lost) = (self.running.plans.open(), self.running.plans.take_lost());
        self.speculation.keep_steps(&mut self.common, &open, &lost);
    }

    fn end_plan(&mut self, call: CallId, output: Value) {
        self.running.calls.remove(&call);
        self.hand_in(call, output);
    }

    fn run_step(&mut self, of: CallId, step: StepCall, arguments: Map<String, Value>) {
        let StepCall {
            call, item, tool, ..
        } = step;
        let name = tool.spec.name.clone();
        let Some(track) = self.speculation.answering().map(|track| track.id) else {
            return self.running.plans.fail(call, "the answer was stopped");
        };
        self.history.add_step(item);
        self.common.notify(Event::ToolCalled {
            item,
            call,
            name: name.clone(),
            arguments: arguments.clone(),
            by_client: false,
            run: None,
        });
        self.commit_run(track, call, (&name, Some(&tool)), arguments.clone());
        self.fill_silent_call(of, &name, &arguments);
    }

    /// Has the user asked for a yes to a step. Its plan waits; the model is told so with the next generation.
    fn ask_for_step(&mut self, step: &StepCall, arguments: &Map<String, Value>) {
        let language = self.common.language();
        self.confirmation
            .want(language, step.call, &step.tool, arguments);
        if self.confirmation.wanted() != Some(step.call) {
            return self.running.plans.fail(step.call, ONE_YES);
        }
        let Some((call, status)) = self.running.plans.put_aside(step.call) else {
            return;
        };
        if self.running.calls.remove(&call).is_some() {
            self.confirmation.was_told();
        }
        if let Some(answer) = &mut self.answer {
            answer.calls.finish_quietly(call, status);
        }
    }

    /// Goes on with the plan of a confirmed step, or ends it if its tools have changed, as after a handoff. `false` if
    /// the call is not a step.
    pub(super) fn resume_plan(&mut self, confirmed: &Pending) -> bool {
        let call = self.common.ids.coming_call();
        let Pending {
            call: step,
            arguments,
            ..
        } = confirmed;
        let tools = &self.common.policy.tools;
        let Some((rest, refused)) = self.running.plans.go_on(*step, call, arguments, tools) else {
            return false;
        };
        let call = self.common.call_id();
        self.add_plan(call, rest);
        match refused {
            Some(output) => self.end_plan(call, output),
            None => self.start_plan(call),
        }
        true
    }

    /// Handles the result of a step. `false` if the call is not a step.
    pub(super) fn on_step_finished(
        &mut self,
        call: CallId,
        result: &Result<Value, ToolError>,
    ) -> bool {
        let Some(item) = self.running.plans.finish(call, result) else {
            return false;
        };
        let result = result.clone();
        self.common
            .notify(Event::ToolFinished { item, call, result });
        self.go_on_with_plans();
        true
    }

    /// Ends the plans of an answer that was stopped and is not resumed.
    pub(super) fn stop_plans(&mut self) {
        let may_resume = self.interruption.is_judging()
            || self.interruption.is_resuming()
            || self.ending.is_near();
        if !may_resume && self.running.plans.stop_paused() {
            self.go_on_with_plans();
        }
    }
}
