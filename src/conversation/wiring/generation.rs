//! The generations of an answer: prompts to the model, and its events.

use super::Conversation;

use super::client::missing_tool;

use crate::conversation::answer::{Answer, BreakOff, Unanswered, tokens_left};
use crate::conversation::client_settings::ClientTools;
use crate::conversation::playout::Words;

use crate::conversation::common::Common;

use crate::conversation::generation::Generation;
use crate::conversation::held::Taken;

use crate::conversation::ids::RequestId;

use crate::conversation::speculation::TrackId;
use crate::conversation::timer::Timer;

use crate::conversation::{Event, Job, Lesson, Output, ResponseTerms};
use crate::llm::{Demands, LlmEvent, Message, Prompt, ToolChoice};
use crate::time::Time;
use crate::tools::ToolSpec;
use serde_json::{Map, Value};
use std::sync::Arc;

impl Conversation {
    /// Starts a generation, or takes over the held-back one. With `after_filler` its first clause is
    /// withheld, in case it is another filler.
    pub(super) fn start_generation(&mut self, after_filler: bool) {
        self.take_over();
        let Some(answer) = &self.answer else {
            return;
        };
        let messages = match &answer.terms.context {
            None => self.history.messages(),
            Some(context) => {
                let mut messages = self.messages_of(context);
                messages.extend(self.history.messages_since(answer.history));
                messages
            }
        };
        let (rounds, used) = (answer.calls.rounds(), answer.usage().output);
        let prompt = self.prompt(messages, &answer.terms, rounds, used);
        let (tokens, may_call) = (prompt.estimate(), prompt.may_call());
        let seen = self
            .common
            .policy
            .briefing
            .tool_cache
            .then(|| prompt.clone());
        let is_outside = answer.terms.is_outside();
        let Taken {
            request,
            began,
            events,
            early,
        } = self.taken_or_asked(prompt, is_outside);
        watch_generation(&mut self.common);
        if let Some(seen) = seen {
            self.held.tool_cache.begin(request, seen);
        }
        if let Some(answer) = &mut self.answer {
            let mut generation = Generation::new(request, began, tokens, after_filler);
            generation.speak(self.common.language());
            if !may_call {
                generation.forbid_calls();
            }
            if events.iter().any(LlmEvent::is_output) {
                generation.begins();
            }
            if let Some(tool) = self.held.assumed.withholds(request) {
                generation.withhold_for(tool);
            }
            answer.begin_generation(generation, began);
            answer.gains.expect(early);
        }
        for event in events {
            self.on_llm(request, event);
        }
    }

    /// Handles the beginning of a tool call by the model.
    pub(super) fn on_tool_opened(&mut self, track: TrackId, name: &str) {
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        self.speculation
            .on_tool_opened(&mut self.common, clients, track, name);
    }

    /// Arguments of the open call are finished.
    pub(super) fn on_arguments_read(
        &mut self,
        track: TrackId,
        arguments: Map<String, Value>,
        whole: bool,
    ) {
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        self.speculation
            .on_arguments_read(&mut self.common, clients, track, arguments, whole);
    }

    /// The track of the answer, if its calls are carried out.
    fn calling_track(&self) -> Option<TrackId> {
        let answer = self.answer.as_ref()?;
        let may_call = answer.generation.as_ref()?.may_call();
        let track = self.speculation.answering()?;
        (may_call && !answer.terms.is_outside()).then_some(track.id)
    }

    /// The prompt after `steps` rounds of tools, of an answer that has used `used` output tokens so far.
    pub(super) fn prompt(
        &self,
        messages: Vec<Message>,
        terms: &ResponseTerms,
        steps: u32,
        used: u64,
    ) -> Prompt {
        let operators = self.common.policy.briefing.instructions.as_deref();
        let own = terms.instructions.as_deref();
        let clients = own.or(self.client.instructions.as_deref());
        let instructions = [operators, clients].into_iter().flatten();
        let instructions: Vec<_> = instructions.filter(|text| !text.is_empty()).collect();
        let most = terms.max_tokens.unwrap_or(self.client.max_tokens);
        let choice = terms.tool_choice.as_ref();
        let choice = choice.unwrap_or(&self.client.tool_choice);
        // They are offered even if none may be called: the beginning of the prompt stays the same.
        let tools = self.offered(terms);
        // A forced call is made once; the next generation talks about its result. The client may have removed
        // the chosen tool in the meantime.
        let tool_choice = match choice {
            ToolChoice::None => ToolChoice::None,
            _ if steps >= self.common.policy.tool_steps => ToolChoice::None,
            _ if steps == 0 && missing_tool(choice, &tools).is_none() => choice.clone(),
            _ => ToolChoice::Auto,
        };
        let notes = self.common.policy.briefing.notes.iter();
        let notes = notes.map(|text| Message::System { text: text.clone() });
        Prompt {
            instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
            day: self.common.policy.briefing.day.clone(),
            messages: notes.chain(messages).collect(),
            tools: Arc::new(tools),
            demands: Demands {
                max_tokens: tokens_left(most, used),
                tool_choice,
                language: self.common.policy.speaker.language.clone(),
                session: 0,
            },
        }
    }

    /// The tools offered in an answer. Outside the conversation the server's are not: their results would
    /// have nowhere to go.
    pub(super) fn offered(&self, terms: &ResponseTerms) -> Vec<ToolSpec> {
        let clients = self.client.tools_in(terms);
        let is_clients = |name: &str| clients.iter().any(|tool| tool.name == name);
        let own = self.common.policy.tools.iter().map(|tool| &tool.spec);
        let own = own.filter(|spec| !terms.is_outside() && !is_clients(&spec.name));
        let plan = self.plan_tool(terms);
        own.chain(clients).cloned().chain(plan).collect()
    }

    pub(super) fn on_llm(&mut self, request: RequestId, event: LlmEvent) {
        if self.asides.on_llm(&mut self.common, request, &event) {
            return;
        }
        if self.held.preempt.is(request) {
            return self.hold(event);
        }
        if self.held.assumed.is(request) {
            return self.hold_next(event);
        }
        let Some(answer) = self.answer.as_mut() else {
            return;
        };
        let turn = answer.turn;
        let llm_first = &mut answer.stamps.latency.llm_first;
        let Some(generation) = answer
            .generation
            .as_mut()
            .filter(|g| g.request() == request)
        else {
            return;
        };
        if event == LlmEvent::Thinking {
            let until = generation.heard() + self.common.policy.timeouts.thinking;
            answer.dead_air.think();
            return watch_thoughts(&mut self.common, until);
        }
        if let LlmEvent::TakesResults { response } = event {
            return self.held.tool_cache.opens(request, response);
        }
        llm_first.get_or_insert(self.common.now);
        generation.hear(self.common.now);
        if generation.begins() {
            let wait = self.common.now.since(generation.asked());
            self.common.learn(Lesson::Began { wait }, false);
        }
        generation.count(&event);
        let beside = self.held.assumed.is_streaming();
        self.common.pace.event(request, self.common.now, beside);
        watch_generation(&mut self.common);
        match event {
            LlmEvent::Speech { text } => self.on_words(&text),
            LlmEvent::ToolOpened { name } => match generation.begin_call(&name) {
                Some(before) => {
                    self.say_before_call(before);
                    if let Some(track) = self.calling_track() {
                        self.on_tool_opened(track, &name);
                    }
                }
                None => {
                    self.cancel_generation(request);
                    self.end_generation();
                }
            },
            LlmEvent::ToolArguments { .. } | LlmEvent::Thinking | LlmEvent::TakesResults { .. } => {
            }
            LlmEvent::GoesOn => self.on_gone_on(request),
            LlmEvent::ToolRead { arguments, whole } => {
                if let Some(track) = self.calling_track() {
                    self.on_arguments_read(track, arguments, whole);
                }
            }
            LlmEvent::ToolClosed { arguments } => {
                if let Some(name) = generation.end_call() {
                    if let Some(track) = self.speculation.answering().map(|track| track.id) {
                        self.speculation.on_tool_closed(
                            &mut self.common,
                            track,
                            arguments.as_ref().ok(),
                        );
                    }
                    self.compare_draft(request, &name, &arguments);
                    self.commit(&name, arguments);
                }
            }
            LlmEvent::Unable => self.common.notify(Event::Unable { turn }),
            LlmEvent::Cut => generation.was_cut(),
            LlmEvent::Used { usage } => generation.was_counted(usage),
            LlmEvent::End => self.end_generation(),
        }
    }

    pub(super) fn cancel_generation(&mut self, request: RequestId) {
        self.common
            .outputs
            .push_back(Output::CancelGeneration { request });
    }

    /// Handles words of the model.
    pub(super) fn on_words(&mut self, text: &str) {
        let Some(generation) = self.answer.as_mut().and_then(Answer::generation) else {
            return;
        };
        let (request, has_called) = (generation.request(), generation.has_begun_call());
        if generation.talks_on(text) {
            // Words after a call cannot know its result: nobody waits for the rest of them.
            self.cancel_generation(request);
            return self.end_generation();
        }
        let clauses = generation.words(text);
        self.say_clauses(clauses);
        self.watch_withheld();
        let Some(answer) = &mut self.answer else {
            return;
        };
        if !answer.length.streamed(text.len()) {
            return;
        }
        if !has_called && answer.has_spoken() {
            return self.end_answer();
        }
        self.cancel_generation(request);
        self.end_generation();
    }

    /// Handles the end of a generation.
    pub(super) fn end_generation(&mut self) {
        self.clear_generation_timers();
        let generation = self.answer.as_mut().and_then(Answer::generation);
        let clauses = generation.map(Generation::finish);
        self.say_clauses(clauses.unwrap_or_default());
        if let Some(alone) = self.answer.as_mut().and_then(Answer::repeated_alone) {
            self.queue_clause(alone, Words::Answer);
        }
        let Some(answer) = &mut self.answer else {
            return;
        };
        if let Some(request) = answer.request() {
            self.speculation.decide_draft(request);
        }
        let own = self.common.policy.max_tokens;
        match answer.end_generation(self.client.max_tokens, own) {
            None => {}
            Some(Unanswered::Cut) => {
                let phrase = self.common.policy.phrases().llm_failed.clone();
                self.speak(&phrase, Words::Own);
            }
            Some(Unanswered::Failed(reason)) => {
                self.fail_response("llm", reason, |p| &p.llm_failed);
            }
        }
    }

    pub(super) fn clear_generation_timers(&mut self) {
        self.common.timers.clear(Timer::GenerationOverdue);
        self.common.timers.clear(Timer::FillerHeld);
    }

    /// Stops the model: the answer is long enough.
    pub(super) fn end_answer(&mut self) {
        self.clear_generation_timers();
        let Some(answer) = &mut self.answer else {
            return;
        };
        answer.length.is_cut = true;
        if let Some(request) = answer.stop_generation() {
            self.cancel_generation(request);
        }
    }

    pub(super) fn on_generation_overdue(&mut self) {
        let Some(request) = self.answer.as_ref().and_then(Answer::request) else {
            return;
        };
        self.on_failed(Job::Generation(request), "the language model has stalled");
    }

    /// Handles a failed generation.
    pub(super) fn on_generation_failed(&mut self, request: RequestId, reason: &str) {
        let Some(answer) = self.answer.as_mut().filter(|a| a.is_generating()) else {
            return;
        };
        let BreakOff::GoesOn { within_call } = answer.breaks_off() else {
            // Of the words that are held back, a filler would promise what nobody does any more.
            return self.fail_response("llm", reason, |p| &p.llm_failed);
        };
        // Without speculation they would have been said as they came.
        self.release_filler();
        if within_call {
            let arguments = Err(BROKEN.to_owned());
            self.on_llm(request, LlmEvent::ToolClosed { arguments });
        }
        self.cancel_generation(request);
        self.end_generation();
    }
}

/// The refusal of a call within which the answer broke off.
const BROKEN: &str = "the answer broke off within it, and nothing was done";

/// A model that streams nothing for this long counts as stalled.
fn watch_generation(common: &mut Common) {
    let overdue = common.now + common.policy.timeouts.generation_timeout;
    common.timers.set(Timer::GenerationOverdue, overdue);
}

/// A model that thinks does not count as stalled, until it has thought for too long.
fn watch_thoughts(common: &mut Common, until: Time) {
    let stalled = common.now + common.policy.timeouts.generation_timeout;
    let overdue = stalled.min(until.max(common.now));
    common.timers.set(Timer::GenerationOverdue, overdue);
}
