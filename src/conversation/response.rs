//! The agent's answer: generation, tools, speech, and the end of it.

use super::clauses::Clauses;
use super::ids::{CallId, ClauseId, ItemId, RequestId, TurnId};
use super::latency::TurnLatency;
use super::time::{Micros, Time};
use super::timer::Timer;
use super::{Conversation, Event, Job, Output, ResponseStatus};
use crate::llm::{LlmEvent, Phrases, Prompt};
use crate::tools::ToolError;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// "One moment" is said at most so often in one response.
const DEAD_AIR_FILLERS: u32 = 2;

/// An answer that is being given.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) turn: TurnId,
    pub(super) latency: TurnLatency,
    /// Agent items that are not done, oldest first.
    pub(super) open_items: Vec<ItemId>,
    /// Items that the client was told of.
    announced: Vec<ItemId>,
    instructions: Option<String>,
    began: Time,
    generation: Option<RequestId>,
    cutter: Clauses,
    /// The item that the next clause belongs to.
    item: Option<ItemId>,
    open_tool: Option<String>,
    /// The running generation has called a tool: what it says after that it cannot know.
    called: bool,
    /// Calls whose results the next generation needs.
    waiting: Vec<CallId>,
    /// A call ended, and the model has not been told.
    owes_answer: bool,
    /// A call is the client's to run; the client asks for the next response.
    client_called: bool,
    steps: u32,
    fillers: u32,
    said: bool,
    failed: bool,
    /// The first clause after a tool's result.
    answer_from: Option<ClauseId>,
}

impl Response {
    fn new(turn: TurnId, began: Time, latency: TurnLatency, instructions: Option<String>) -> Self {
        Self {
            turn,
            latency,
            open_items: Vec::new(),
            announced: Vec::new(),
            instructions,
            began,
            generation: None,
            cutter: Clauses::default(),
            item: None,
            open_tool: None,
            called: false,
            waiting: Vec::new(),
            owes_answer: false,
            client_called: false,
            steps: 0,
            fillers: 0,
            said: false,
            failed: false,
            answer_from: None,
        }
    }

    pub(super) fn generation(&self) -> Option<RequestId> {
        self.generation
    }

    pub(super) fn announced(&self, item: ItemId) -> bool {
        self.announced.contains(&item)
    }

    /// More is to come than what is already in words.
    pub(super) fn unfinished(&self) -> bool {
        self.generation.is_some() || !self.waiting.is_empty() || self.owes_answer
    }
}

impl Conversation {
    /// Answers what the history asks.
    pub(super) fn respond(&mut self, instructions: Option<String>) {
        let latency = TurnLatency {
            end_of_turn: Some(self.now),
            ..TurnLatency::default()
        };
        self.start_response(latency, instructions);
    }

    /// Answers a turn whose stages so far are in `latency`. While another response is being given
    /// the answer waits for its end.
    pub(super) fn start_response(&mut self, latency: TurnLatency, instructions: Option<String>) {
        if self.response.is_some() {
            self.respond_next = Some(instructions);
            return;
        }
        self.open_response(latency, instructions);
        self.start_generation();
    }

    /// Says words of our own.
    pub(super) fn say(&mut self, text: &str) {
        self.open_response(TurnLatency::default(), None);
        self.speak(text);
    }

    fn open_response(&mut self, latency: TurnLatency, instructions: Option<String>) {
        let turn = self.turn_id();
        self.response = Some(Response::new(turn, self.now, latency, instructions));
        self.notify(Event::ResponseStarted { turn });
    }

    fn start_generation(&mut self) {
        let request = self.request_id();
        let Some(response) = &mut self.response else {
            return;
        };
        response.generation = Some(request);
        response.called = false;
        response.owes_answer = false;
        let turn = response.turn;
        let instructions: Vec<_> = [
            self.policy.instructions.as_deref(),
            self.client.instructions.as_deref(),
            response.instructions.as_deref(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let tools = if response.steps < self.policy.tool_steps {
            self.policy
                .tools
                .iter()
                .chain(&self.client.tools)
                .cloned()
                .collect()
        } else {
            Vec::new()
        };
        let prompt = Prompt {
            instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
            messages: self.history.messages(),
            tools: Arc::new(tools),
        };
        self.timers.set(
            Timer::GenerationOverdue,
            self.now + self.policy.generation_timeout,
        );
        self.outputs.push_back(Output::Generate {
            request,
            turn,
            prompt,
        });
    }

    pub(super) fn on_llm(&mut self, request: RequestId, event: LlmEvent) {
        let now = self.now;
        let Some(response) = self
            .response
            .as_mut()
            .filter(|r| r.generation == Some(request))
        else {
            return;
        };
        response.latency.llm_first.get_or_insert(now);
        self.timers.set(
            Timer::GenerationOverdue,
            now + self.policy.generation_timeout,
        );
        match event {
            LlmEvent::Speech { .. } if response.called => {}
            LlmEvent::Speech { text } => {
                for clause in response.cutter.push(&text) {
                    self.queue_clause(clause);
                }
            }
            LlmEvent::ToolOpened { name } => {
                response.open_tool = Some(name);
                response.called = true;
                self.finish_item();
            }
            LlmEvent::ToolArguments { .. } => {}
            LlmEvent::ToolClosed { arguments } => {
                if let Some(name) = response.open_tool.take() {
                    self.commit(&name, arguments);
                }
            }
            LlmEvent::End => self.end_generation(),
        }
    }

    fn end_generation(&mut self) {
        self.timers.clear(Timer::GenerationOverdue);
        self.finish_item();
        let Some(response) = &mut self.response else {
            return;
        };
        response.generation = None;
        let silent = !response.said && !response.called;
        if silent {
            self.fail_response("llm", "the language model said nothing", |p| &p.llm_failed);
        }
    }

    /// The model asked for a tool and the call is complete: this, and nothing before it, makes it
    /// count.
    fn commit(&mut self, name: &str, arguments: Result<Map<String, Value>, String>) {
        let call = CallId(self.ids.next());
        let item = self.item_id();
        let now = self.now;
        let by_client = self.client.tools.iter().any(|tool| tool.name == name);
        let Some(response) = &mut self.response else {
            return;
        };
        response.latency.commit.get_or_insert(now);
        match arguments {
            Err(reason) => {
                response.owes_answer = true;
                self.history.add_call(item, call, name, Map::new());
                let output = json!({ "error": format!("the call could not be read: {reason}") });
                let result = self.item_id();
                self.history.add_result(result, call, output);
            }
            Ok(arguments) => {
                if by_client {
                    response.client_called = true;
                } else {
                    response.waiting.push(call);
                    self.running.insert(call, item);
                }
                self.history.add_call(item, call, name, arguments.clone());
                let name = name.to_owned();
                if !by_client {
                    self.outputs.push_back(Output::StartTool {
                        call,
                        name: name.clone(),
                        arguments: arguments.clone(),
                    });
                }
                self.notify(Event::ToolCalled {
                    item,
                    call,
                    name,
                    arguments,
                    by_client,
                });
            }
        }
    }

    /// A committed tool ended. Its result joins the history even if the user has gone on.
    pub(super) fn on_tool_finished(&mut self, call: CallId, result: Result<Value, ToolError>) {
        let Some(item) = self.running.remove(&call) else {
            return;
        };
        let id = self.item_id();
        let output = match &result {
            Ok(output) => output.clone(),
            Err(error) => json!({ "error": error.to_string() }),
        };
        self.history.add_result(id, call, output);
        self.notify(Event::ToolFinished { item, call, result });
        let now = self.now;
        if let Some(response) = self.response.as_mut().filter(|r| r.waiting.contains(&call)) {
            response.waiting.retain(|waiting| *waiting != call);
            response.owes_answer = true;
            response.latency.tool_result = Some(now);
        }
    }

    /// Speaks `text` as part of the response, clause by clause.
    fn speak(&mut self, text: &str) {
        let mut cutter = Clauses::default();
        let mut clauses = cutter.push(text);
        clauses.extend(cutter.finish());
        for clause in clauses {
            self.queue_clause(clause);
        }
    }

    fn queue_clause(&mut self, text: String) {
        let clause = ClauseId(self.ids.next());
        let fresh = self.item_id();
        let Some(response) = &mut self.response else {
            return;
        };
        let item = *response.item.get_or_insert_with(|| {
            response.open_items.push(fresh);
            self.history.begin_speech(fresh);
            fresh
        });
        response.said = true;
        if response.latency.tool_result.is_some() {
            response.answer_from.get_or_insert(clause);
        }
        let index = self.history.add_clause(item, &text);
        self.playout.push(clause, item, index, text);
    }

    /// What is said from here on is another item.
    fn finish_item(&mut self) {
        let Some(response) = &mut self.response else {
            return;
        };
        if let Some(clause) = std::mem::take(&mut response.cutter).finish() {
            self.queue_clause(clause);
        }
        if let Some(response) = &mut self.response {
            response.item = None;
        }
    }

    pub(super) fn on_synthesised(&mut self, clause: ClauseId, length: Micros, last: bool) {
        let Some(known) = self.playout.get(clause) else {
            return;
        };
        self.history
            .lengthen_clause(known.item, known.index, length);
        self.playout.made(clause, length, last);
        if let Some(response) = &mut self.response {
            response.latency.first_synthesis.get_or_insert(self.now);
        }
    }

    /// The shell is about to send audio of a clause (`until` is zero) or has sent it.
    pub(super) fn on_sent(&mut self, id: ClauseId, until: Micros) {
        self.announce_clause(id);
        self.playout.sent(self.now, id, until);
        self.mark_activity();
    }

    /// Tells the client what is about to be heard.
    fn announce_clause(&mut self, id: ClauseId) {
        let audible_until = self.playout.audible_until();
        let (Some(clause), Some(response)) = (self.playout.get(id), &mut self.response) else {
            return;
        };
        if std::mem::replace(&mut clause.announced, true) {
            return;
        }
        let (item, text) = (clause.item, clause.text.clone());
        response.latency.first_audio.get_or_insert(self.now);
        if response.answer_from.is_some_and(|first| id >= first)
            && response.latency.answer_audio.is_none()
        {
            response.latency.answer_audio = Some(self.now);
            let filler = !response.announced.is_empty();
            response.latency.dead_air = filler.then(|| self.now.since(audible_until));
        }
        if !response.announced.contains(&item) {
            response.announced.push(item);
            self.notify(Event::AgentItemStarted { item });
        }
        self.notify(Event::AgentSpeech {
            item,
            clause: id,
            text,
        });
    }

    /// Carries a response on: asks for audio, for the next generation, and ends what is done.
    pub(super) fn advance_response(&mut self) {
        if self.response.as_ref().is_some_and(|r| {
            r.owes_answer
                && r.generation.is_none()
                && r.waiting.is_empty()
                && !r.client_called
                && !r.failed
        }) {
            if let Some(response) = &mut self.response {
                response.steps += 1;
            }
            self.start_generation();
        }
        while let Some(clause) = self.playout.next_to_ask() {
            clause.asked = true;
            let (clause, item, text) = (clause.id, clause.item, clause.text.clone());
            self.outputs.push_back(Output::Speak { clause, item, text });
        }
        self.close_items();
        let Some(response) = &self.response else {
            return;
        };
        let owed =
            response.generation.is_some() || (!response.waiting.is_empty() && !response.failed);
        if owed {
            self.watch_dead_air();
        } else {
            self.timers.clear(Timer::DeadAir);
            if self.playout.all_sent() {
                self.finish_response();
            }
        }
    }

    /// Items whose audio was all sent are done, in order.
    fn close_items(&mut self) {
        while let Some(response) = &mut self.response {
            let Some(&item) = response.open_items.first() else {
                return;
            };
            if response.item == Some(item) && response.generation.is_some()
                || !self.playout.item_sent(item)
            {
                return;
            }
            response.open_items.remove(0);
            if response.item == Some(item) {
                response.item = None;
            }
            let announced = response.announced(item);
            let text = self.history.spoken_text(item);
            if announced {
                self.notify(Event::AgentItemDone {
                    item,
                    text,
                    interrupted: false,
                });
            }
        }
    }

    fn finish_response(&mut self) {
        let Some(response) = self.response.take() else {
            return;
        };
        self.clear_response_timers();
        self.playout.clear();
        let status = if response.failed {
            ResponseStatus::Failed
        } else {
            ResponseStatus::Completed
        };
        self.notify(Event::ResponseDone {
            turn: response.turn,
            status,
            latency: response.latency,
        });
    }

    /// While an answer is owed and nothing is being said, silence must not last.
    fn watch_dead_air(&mut self) {
        let Some(response) = &self.response else {
            return;
        };
        if !self.playout.all_sent() || response.fillers >= DEAD_AIR_FILLERS {
            self.timers.clear(Timer::DeadAir);
            return;
        }
        let since = self.playout.audible_until().max(response.began);
        let wait = Micros(self.policy.dead_air.0 * u64::from(response.fillers + 1));
        self.timers.set(Timer::DeadAir, since + wait);
    }

    pub(super) fn fill_dead_air(&mut self) {
        let Some(response) = &mut self.response else {
            return;
        };
        response.fillers += 1;
        let said = response.said;
        let phrase = self.policy.phrases.still_working.clone();
        self.speak(&phrase);
        if let Some(response) = &mut self.response {
            response.said = said;
        }
    }

    pub(super) fn on_generation_overdue(&mut self) {
        let Some(request) = self.response.as_ref().and_then(Response::generation) else {
            return;
        };
        self.on_failed(Job::Generation(request), "the language model has stalled");
    }

    /// A job failed: the user hears about it, and the conversation goes on.
    pub(super) fn on_failed(&mut self, job: Job, reason: &str) {
        match job {
            Job::Transcription(request) => self.on_transcript(request, Err(())),
            Job::Completeness(_) => {}
            Job::Generation(request) => {
                if self
                    .response
                    .as_ref()
                    .is_some_and(|r| r.generation == Some(request))
                {
                    self.fail_response("llm", reason, |p| &p.llm_failed);
                }
            }
            Job::Synthesis(clause) => self.on_synthesis_failed(clause, reason),
        }
    }

    fn on_synthesis_failed(&mut self, id: ClauseId, reason: &str) {
        let Some(clause) = self.playout.get(id) else {
            return;
        };
        let apology = clause.text == self.policy.phrases.tts_failed;
        for clause in self.playout.drop_from(id) {
            self.history.drop_clause(clause.item, clause.index);
            self.outputs
                .push_back(Output::CancelClause { clause: clause.id });
        }
        if apology {
            // Not even the apology can be spoken: end in silence rather than try for ever.
            if let Some(response) = &mut self.response {
                response.failed = true;
            }
        } else {
            self.fail_response("tts", reason, |p| &p.tts_failed);
        }
    }

    /// Gives up the rest of the response and says so.
    fn fail_response(&mut self, stage: &str, reason: &str, phrase: impl Fn(&Phrases) -> &String) {
        self.clear_response_timers();
        self.notify(Event::StageFailed {
            stage: stage.into(),
            message: reason.into(),
        });
        let Some(response) = &mut self.response else {
            return;
        };
        response.failed = true;
        response.owes_answer = false;
        response.waiting.clear();
        if let Some(request) = response.generation.take() {
            self.outputs.push_back(Output::CancelGeneration { request });
        }
        self.finish_item();
        let phrase = phrase(&self.policy.phrases).clone();
        self.speak(&phrase);
    }
}
