//! Commits of complete calls, and the delivery of their results.

use super::Conversation;
use super::plan::ONE_YES;
use crate::conversation::answer::Answer;
use crate::conversation::calls::Waiting;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::confirm::{Pending, tell_put_off};
use crate::conversation::ending::{EndingCall, Goodbye, Promise};
use crate::conversation::ids::{CallId, RunId};
use crate::conversation::latency::TurnLatency;
use crate::conversation::plan;
use crate::conversation::playout::Words;
use crate::conversation::speculation::TrackId;
use crate::conversation::template::render;
use crate::conversation::timer::Timer;
use crate::conversation::{Event, HangUpReason, ResponseStatus};
use crate::llm::plan::PLAN;
use crate::tools::{Declaration, EndsCall, ToolError};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The side that runs a committed call.
#[derive(Debug, Clone, Copy)]
enum RunBy {
    Server,
    /// The client, which requests the next response itself.
    Client,
    /// The client, which has begun early: the answer goes on when it has the output.
    ClientEarly(RunId),
}

impl Conversation {
    /// Commits a complete call of the model. Nothing before this point lets a call take effect.
    pub(super) fn commit(&mut self, name: &str, arguments: Result<Map<String, Value>, String>) {
        let call = self.common.call_id();
        let now = self.common.now;
        let Some(terms) = self.answer.as_ref().map(|a| &a.terms) else {
            return;
        };
        let is_clients = self
            .client
            .tools_in(terms)
            .iter()
            .any(|tool| tool.name == name);
        // An answer outside the conversation is not in the history, so its result would have nowhere to go.
        let is_lost = terms.is_outside() && (!is_clients || arguments.is_err());
        let Some(answer) = &mut self.answer else {
            return;
        };
        if is_lost {
            if let Some(generation) = answer.generation() {
                generation.overstep();
            }
            return;
        }
        answer.stamps.latency.commit.get_or_insert(now);
        let mut arguments = match arguments {
            Ok(arguments) => arguments,
            Err(reason) => {
                self.release_filler();
                let item = self.common.item_id();
                self.history.add_call(item, call, name, Map::new());
                let error = format!("the call could not be read: {reason}");
                return self.wait_for(call, Some(json!({ "error": error })));
            }
        };
        if is_clients {
            return self.commit_clients(call, name, arguments);
        }
        if let Some(tool) = self.common.policy.tool(name) {
            tool.without_fixed(&mut arguments);
        }
        let arguments = self.meet_assumption(name, arguments);
        if name == PLAN && self.makes_plans() {
            return self.begin_plan(call, arguments);
        }
        match self.common.policy.tool(name).cloned() {
            Some(tool) if self.asks_first(call, &tool, &arguments) => {}
            tool => self.carry_out(call, name, arguments, tool.as_ref()),
        }
    }

    /// Holds a call until the user says yes; `false` if its tool needs none. Beside a plan that asks it is put off,
    /// wherever that plan has come to: otherwise the speed of the plan's reads would decide which of the two is asked.
    fn asks_first(
        &mut self,
        call: CallId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) -> bool {
        let made_by = self.answer.as_ref().and_then(Answer::request);
        if plan::asks(tool) && self.running.plans.ask_for(made_by) {
            let (common, history) = (&mut self.common, &mut self.history);
            tell_put_off(common, history, &tool.spec.name, ONE_YES);
            return true;
        }
        let language = self.common.language();
        self.confirmation.want(language, call, tool, arguments)
    }

    /// Carries out a call that needs no confirmation or has been confirmed.
    pub(super) fn carry_out(
        &mut self,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
        tool: Option<&Arc<Declaration>>,
    ) {
        match tool.and_then(|tool| Some((tool, tool.ends_call?))) {
            Some((tool, how)) => self.end_call(call, tool, how, arguments),
            None => self.run_call(call, (name, tool), arguments, None),
        }
    }

    /// Runs a confirmed call in its own response.
    pub(super) fn run_confirmed(&mut self, confirmed: Pending, latency: TurnLatency) {
        self.stop_for_good(ResponseStatus::Interrupted);
        self.open_response(latency);
        if self.resume_plan(&confirmed) {
            return;
        }
        let tool = self.common.policy.tool(&confirmed.name).cloned();
        self.carry_out(
            confirmed.call,
            &confirmed.name,
            confirmed.arguments,
            tool.as_ref(),
        );
    }

    /// Commits a call of the client's tool: takes over its early run, or hands the call to the client.
    fn commit_clients(&mut self, call: CallId, name: &str, arguments: Map<String, Value>) {
        let Some(tool) = self.declared(name) else {
            return self.hand_to_client(call, name, arguments);
        };
        let arguments = self.meet_assumption(name, arguments);
        match self.run_for(name, &arguments) {
            Some(run) => self.run_call(call, (name, Some(&tool)), arguments, Some(run)),
            None => {
                self.speculation.hand_over(&tool, &arguments);
                self.hand_to_client(call, name, arguments);
            }
        }
    }

    fn hand_to_client(&mut self, call: CallId, name: &str, arguments: Map<String, Value>) {
        if let Some(answer) = &mut self.answer {
            answer.calls.hand_to_client();
        }
        self.announce_call(call, name, arguments, RunBy::Client);
    }

    /// The tool of this name that the conversation may start in the current answer.
    pub(super) fn declared(&self, name: &str) -> Option<Arc<Declaration>> {
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        clients.declared(&self.common.policy, name).cloned()
    }

    /// The run that a commit of this call would take over.
    pub(super) fn run_for(&self, name: &str, arguments: &Map<String, Value>) -> Option<RunId> {
        let track = self.speculation.answering()?.id;
        let tool = self.declared(name)?;
        self.speculation
            .run_for(&self.common, track, &tool, arguments)
    }

    /// Starts a committed call, or takes over its speculative run. `by_client`: the run that the client has
    /// begun.
    fn run_call(
        &mut self,
        call: CallId,
        (name, tool): (&str, Option<&Arc<Declaration>>),
        arguments: Map<String, Value>,
        by_client: Option<RunId>,
    ) {
        let Some(track) = self.speculation.answering().map(|track| track.id) else {
            return;
        };
        let by = by_client.map_or(RunBy::Server, RunBy::ClientEarly);
        self.announce_call(call, name, arguments.clone(), by);
        self.wait_for(call, None);
        self.commit_run(track, call, (name, tool), arguments.clone());
        self.fill_silent_call(call, name, &arguments);
    }

    /// Adds the call to the history and tells the client about it.
    fn announce_call(
        &mut self,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
        by: RunBy,
    ) {
        let item = self.common.item_id();
        let outside = self.answer.as_ref().is_some_and(|a| a.terms.is_outside());
        if !outside {
            self.history.add_call(item, call, name, arguments.clone());
        }
        if !matches!(by, RunBy::Client) {
            self.running.calls.insert(call, item);
        }
        let run = match by {
            RunBy::ClientEarly(run) => Some(run),
            RunBy::Server | RunBy::Client => None,
        };
        if run.is_some() {
            self.client.early.was_committed(call);
        }
        self.common.notify(Event::ToolCalled {
            item,
            call,
            name: name.to_owned(),
            arguments,
            by_client: !matches!(by, RunBy::Server),
            run,
        });
    }

    pub(super) fn wait_for(&mut self, call: CallId, result: Option<Value>) {
        if let Some(answer) = &mut self.answer {
            answer.calls.wait_for(call, result);
        }
    }

    /// Notes that this call ends the conversation. It runs when the goodbye has been heard.
    fn end_call(
        &mut self,
        call: CallId,
        tool: &Declaration,
        how: EndsCall,
        arguments: Map<String, Value>,
    ) {
        let name = tool.spec.name.clone();
        self.announce_call(call, &name, arguments.clone(), RunBy::Server);
        let filler = self.common.fillers(tool).short.first();
        let words = filler.and_then(|template| render(tool, template, &arguments));
        let promise = self.ending.promise(EndingCall {
            call,
            name,
            arguments,
            how,
            beside: Vec::new(),
        });
        match promise {
            Promise::CalledOff => self.call_off(call),
            Promise::Already => {
                let already = json!({ "status": "the conversation ends already" });
                self.on_call_finished(call, Ok(already));
            }
            Promise::Kept if self.answer.as_ref().is_some_and(|a| !a.has_spoken()) => {
                let goodbye = &self.common.policy.phrases().goodbye;
                let words = words.unwrap_or_else(|| goodbye.clone());
                self.speak(&words, Words::Own);
            }
            Promise::Kept => {}
        }
    }

    /// Called when all speech has been sent. `true` while the response must stay open for a call that ends
    /// the conversation: its own call, which starts only after the goodbye has been heard, or one that is
    /// already running.
    pub(super) fn awaits_ending_call(&mut self) -> bool {
        let Some(track) = self.speculation.answering().map(|track| track.id) else {
            return self.ending.handing_over().is_some();
        };
        let heard = self.playout.audible_until();
        let user_acts = self.turn.is_open() || !self.keypad.is_empty();
        match self.ending.was_said(self.common.now, heard, user_acts) {
            Goodbye::Said => return false,
            Goodbye::Held => self.await_transfer(),
            Goodbye::HeardAt(heard) => self.common.timers.set(Timer::PlayoutEnd, heard),
            Goodbye::Starts(ending) => {
                if let Some(answer) = &mut self.answer {
                    answer.dead_air.restart(&self.common);
                }
                self.wait_for(ending.call, None);
                let tool = self.common.policy.tool(&ending.name).cloned();
                let called = (ending.name.as_str(), tool.as_ref());
                self.commit_run(track, ending.call, called, ending.arguments);
                self.watch_dead_air();
            }
        }
        true
    }

    /// Has the answer wait for a transfer that an earlier one has begun, so that its failure is told.
    fn await_transfer(&mut self) {
        let waits = |a: &Answer, call| a.calls.all().any(|waiting| waiting == call);
        let can_tell = |a: &Answer| a.may_go_on() && !a.calls.has_client_calls();
        if let Some(call) = self.ending.handing_over()
            && let Some(answer) = &self.answer
            && can_tell(answer)
            && !waits(answer, call)
        {
            self.wait_for(call, None);
            self.watch_dead_air();
        }
    }

    /// Commits a call, and delivers its result if a speculative run already has one.
    pub(super) fn commit_run(
        &mut self,
        track: TrackId,
        call: CallId,
        tool: (&str, Option<&Arc<Declaration>>),
        arguments: Map<String, Value>,
    ) {
        let common = &mut self.common;
        let done = self
            .speculation
            .commit(common, track, call, tool, arguments);
        match done {
            Some(run) => {
                self.deliver(run, call);
                // A call behind the plan of this one may wait for the result.
                self.speculation.settle(&mut self.common, run);
            }
            None => self
                .speculation
                .route_after_call(&mut self.common, &self.client),
        }
    }

    /// A run of a tool has ended.
    pub(super) fn on_tool_finished(&mut self, run: RunId, result: Result<Value, ToolError>) {
        let Some(calls) = self.speculation.finish(&mut self.common, run, result) else {
            return;
        };
        for call in calls {
            self.deliver(run, call);
        }
        self.speculation.settle(&mut self.common, run);
    }

    /// Hands the result of a committed run to its call.
    fn deliver(&mut self, run: RunId, call: CallId) {
        if let Some(result) = self.speculation.result(run, call) {
            self.on_call_finished(call, result);
            self.speculation
                .route_after_call(&mut self.common, &self.client);
        }
    }

    /// Hangs up: the goodbye has been heard.
    pub(super) fn end_with(&mut self, ending: &EndingCall) {
        let ends = json!({ "status": "the conversation ends" });
        self.on_call_finished(ending.call, Ok(ends));
        self.ending.hang_up_for(HangUpReason::AgentEnded);
    }

    /// Cancels a call that was to end the conversation, because the conversation goes on.
    pub(super) fn call_off(&mut self, call: CallId) {
        let went_on = json!({ "error": "the user spoke on, so the conversation did not end" });
        self.on_call_finished(call, Ok(went_on));
    }

    /// Handles the result of a committed call. It joins the history even if the user has interrupted.
    pub(super) fn on_call_finished(&mut self, call: CallId, result: Result<Value, ToolError>) {
        if self.on_step_finished(call, &result) {
            return;
        }
        let Some(item) = self.running.calls.remove(&call) else {
            return;
        };
        let is_stranded = self.ending.call_finished(call, result.is_ok());
        let output = match &result {
            Ok(output) => output.clone(),
            Err(error) => json!({ "error": error.to_string() }),
        };
        self.common
            .notify(Event::ToolFinished { item, call, result });
        let is_awaited = self.hand_in(call, output);
        if is_stranded && !is_awaited && !self.goes_on_with_results() && self.client.answers_turns()
        {
            // The caller waits to be put through.
            let next = self.agenda.take_next_answer().unwrap_or_default();
            self.respond_after_this(next);
        }
    }

    /// Whether the answer has another round, whose prompt has all results so far.
    fn goes_on_with_results(&self) -> bool {
        self.answer.as_ref().is_some_and(|a| {
            let waits = a.calls.are_under_way() && !a.calls.has_client_calls();
            waits && a.may_go_on() && !a.is_generating()
        })
    }

    /// Hands the result of a call to the answer that waits for it, or adds it to the history. `true` if an answer waits.
    pub(super) fn hand_in(&mut self, call: CallId, output: Value) -> bool {
        let Some(answer) = &mut self.answer else {
            self.add_result(call, output);
            return false;
        };
        match answer.calls.finish(call, output) {
            Ok(()) => {
                let latency = &mut answer.stamps.latency;
                latency.tool_result = Some(self.common.now);
                if let Some(commit) = latency.commit {
                    answer.gains.waited(self.common.now.since(commit));
                }
                true
            }
            Err(output) => {
                self.add_result(call, output);
                false
            }
        }
    }

    fn add_result(&mut self, call: CallId, output: Value) {
        let item = self.common.item_id();
        let by_client = self.client.early.has_output(call);
        let told = by_client.then(|| output.clone());
        let added = self.history.add_result(item, call, output);
        if let Some(output) = told.filter(|_| added) {
            self.common
                .notify(Event::OutputAdded { item, call, output });
        }
    }

    /// Adds results to the history in the order of their calls, not of their arrival: speculation must not
    /// change the prompt.
    pub(super) fn add_results(&mut self, waiting: Vec<Waiting>) {
        for Waiting { call, result, .. } in waiting {
            if let Some(output) = result {
                self.add_result(call, output);
            }
        }
    }

    /// Moves the results of a round to the history once the generation has ended and all of them have
    /// arrived.
    pub(super) fn take_results(&mut self) {
        if let Some(answer) = self.answer.as_mut().filter(|a| !a.is_generating()) {
            let results = answer.calls.take_complete(answer.may_go_on());
            self.add_results(results);
        }
    }
}
