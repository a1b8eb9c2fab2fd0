//! The agent's answer: generation, tools, speech, and the end of it.

use super::answer_end::Said;
use super::clauses::Clauses;
use super::client::missing_tool;
use super::commit::Waiting;
use super::ending::EndingCall;
use super::ids::{CallId, ClauseId, ItemId, RequestId, TurnId};
use super::interruption::Unfinished;
use super::latency::TurnLatency;
use super::policy::AnswerPolicy;
use super::preempt::Held;
use super::speculation::{Discard, Track};
use super::time::{Micros, Time};
use super::timer::Timer;
use super::{Conversation, Event, Job, Output, ResponseStatus, ResponseTerms};
use crate::llm::{
    Demands, LlmEvent, Message, Phrases, Prompt, TokenUsage, ToolChoice, ToolSpec, tokens_of,
};
use std::sync::Arc;

/// Clauses of the model that are withheld after the router's filler: one may be a filler of its own,
/// two are an answer.
const WITHHELD: usize = 1;

/// Calls of one generation: a model that asks for more has lost its way, and is cut there.
const MOST_CALLS: usize = 16;

/// What words are to the one who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// The model's.
    Answer,
    /// Ours, in place of an answer.
    Own,
    Filler,
}

/// An answer that is to be given when nobody speaks.
#[derive(Debug, Default)]
pub(super) struct NextAnswer {
    terms: ResponseTerms,
    /// The client has asked for it.
    requested: bool,
}

impl NextAnswer {
    pub(super) fn requested(terms: ResponseTerms) -> Self {
        let requested = true;
        Self { terms, requested }
    }
}

/// An answer that is being given.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) turn: TurnId,
    pub(super) latency: TurnLatency,
    /// Agent items that are not done, oldest first.
    pub(super) open_items: Vec<ItemId>,
    /// Items that the client was told of.
    announced: Vec<ItemId>,
    pub(super) terms: ResponseTerms,
    /// Items of the history before it began.
    history: usize,
    pub(super) usage: TokenUsage,
    /// The running generation has reached its most tokens.
    breaks_off: bool,
    /// What the running generation was asked, in tokens, and the characters of its answer.
    estimate: (u64, usize),
    /// The speculation of the turn that this answers; none for words of our own.
    pub(super) track: Option<Track>,
    pub(super) began: Time,
    generation: Option<RequestId>,
    cutter: Clauses,
    /// The item that the next clause belongs to.
    item: Option<ItemId>,
    open_tool: Option<String>,
    /// Calls of the running generation: what it says after the first it cannot know.
    calls: usize,
    /// Calls whose results the next generation needs, in the order of their commits.
    pub(super) waiting: Vec<Waiting>,
    /// A call ended, and the model has not been told.
    pub(super) owes_answer: bool,
    /// A call is the client's to run; the client asks for the next response.
    pub(super) client_called: bool,
    pub(super) steps: u32,
    /// The model called a tool although none was offered any more.
    pub(super) overstepped: bool,
    pub(super) fillers: u32,
    /// No filler before this, since the answer is near.
    pub(super) silent_until: Time,
    /// After the router's filler: what the model says waits here until it is known to be more than
    /// another filler.
    withheld: Option<Vec<String>>,
    pub(super) said: bool,
    /// What the model has said in all.
    pub(super) answer: Said,
    /// The model may keep silent: nothing has been said or done since the agent last spoke.
    nothing_new: bool,
    pub(super) failed: bool,
    /// The apology for the voice was tried.
    apologised: bool,
    /// The first clause after a tool's result.
    answer_from: Option<ClauseId>,
}

impl Response {
    fn new(
        turn: TurnId,
        began: Time,
        latency: TurnLatency,
        terms: ResponseTerms,
        most: AnswerPolicy,
    ) -> Self {
        Self {
            turn,
            latency,
            open_items: Vec::new(),
            announced: Vec::new(),
            terms,
            history: 0,
            usage: TokenUsage::default(),
            breaks_off: false,
            estimate: (0, 0),
            track: None,
            began,
            generation: None,
            cutter: Clauses::default(),
            item: None,
            open_tool: None,
            calls: 0,
            waiting: Vec::new(),
            owes_answer: false,
            client_called: false,
            steps: 0,
            overstepped: false,
            fillers: 0,
            silent_until: Time(0),
            withheld: None,
            apologised: false,
            said: false,
            answer: Said::within(most),
            nothing_new: false,
            failed: false,
            answer_from: None,
        }
    }

    pub(super) fn generation(&self) -> Option<RequestId> {
        self.generation
    }

    /// The generation that is to be cancelled; what it says from here on is not heard.
    pub(super) fn stop_generation(&mut self) -> Option<RequestId> {
        self.cutter = Clauses::default();
        self.withheld = None;
        self.open_tool = None;
        self.item = None;
        self.generation.take()
    }

    /// Counts the running generation by its characters, if nobody has counted its tokens.
    fn count(&mut self) {
        let (input, chars) = std::mem::take(&mut self.estimate);
        self.usage.add(TokenUsage {
            input,
            cached: 0,
            output: tokens_of(chars),
        });
    }

    pub(super) fn announced(&self, item: ItemId) -> bool {
        self.announced.contains(&item)
    }

    /// It has begun to say something that has not ended.
    pub(super) fn is_speaking(&self) -> bool {
        self.open_items.iter().any(|item| self.announced(*item))
    }

    /// More is to come than what is already in words.
    pub(super) fn unfinished(&self) -> bool {
        let more = self.generation.is_some() || !self.waiting.is_empty() || self.owes_answer;
        more && !self.answer.is_cut
    }

    /// The running generation has asked for a call in full.
    fn has_called(&self) -> bool {
        self.calls > usize::from(self.open_tool.is_some()) && !self.overstepped
    }

    /// What is left of it to give, if it is cut short.
    pub(super) fn second_half(&mut self) -> Box<Unfinished> {
        Box::new(Unfinished {
            terms: std::mem::take(&mut self.terms),
            history: self.history,
            steps: self.steps,
            has_called: !self.waiting.is_empty() || self.owes_answer,
        })
    }

    /// Something is still being made: the model's words, or a result.
    fn owes(&self) -> bool {
        let open = self.waiting.iter().any(|waiting| waiting.result.is_none());
        self.generation.is_some() || (open && self.may_go_on())
    }
}

impl Conversation {
    /// Answers what the history asks.
    pub(super) fn respond(&mut self) {
        self.start_response(TurnLatency::of_turn_at(self.common.now));
    }

    /// Answers a turn whose stages so far are in `latency`. While another response is being given
    /// the answer waits for its end, and for items whose words are not known.
    pub(super) fn start_response(&mut self, latency: TurnLatency) {
        if self.response.is_some() || !self.unheard.is_empty() {
            let next = self.respond_next.take().unwrap_or_default();
            return self.respond_after_this(next);
        }
        self.open_response(latency);
        self.history.take_up_question();
        let nothing_new = self.history.ends_with_the_agent();
        if let Some(response) = &mut self.response {
            response.nothing_new = nothing_new;
        }
        let speaks = self.held.as_ref().is_some_and(Held::speaks_for_itself);
        let filler = self
            .response
            .as_ref()
            .and_then(|r| self.router_filler(r.track.as_ref()?));
        if let Some(filler) = filler.filter(|_| !speaks) {
            self.say_filler(&filler);
            self.finish_item();
            if let Some(response) = &mut self.response {
                response.withheld = Some(Vec::new());
            }
        }
        self.start_generation();
    }

    /// The user has gone on while an answer is being given: the conversation does not end with it.
    pub(super) fn respond_after_this(&mut self, next: NextAnswer) {
        self.respond_next = Some(next);
        self.call_off_end();
    }

    /// Gives up the answer that is next. A client that has asked for it is told that it was
    /// cancelled; `false` if none has.
    pub(super) fn drop_next_answer(&mut self) -> bool {
        let dropped = self.respond_next.take();
        let requested = dropped.is_some_and(|next| next.requested);
        if requested {
            let turn = self.common.turn_id();
            self.common
                .notify(Event::ResponseStarted { turn, requested });
            self.common.notify(Event::ResponseDone {
                turn,
                status: ResponseStatus::Cancelled,
                latency: TurnLatency::default(),
                usage: TokenUsage::default(),
            });
        }
        requested
    }

    /// Takes up again the answer that noise cut short: when the calls that still run are done, or at
    /// once.
    pub(super) fn resume_response(&mut self, half: Unfinished) {
        let is_new = self.respond_next.is_some();
        self.open_response(TurnLatency::of_turn_at(self.common.now));
        let running: Vec<CallId> = self.running.keys().copied().collect();
        if let Some(response) = self.response.as_mut().filter(|_| !is_new) {
            response.terms = half.terms;
            response.history = half.history;
            response.steps = half.steps + u32::from(half.has_called && running.is_empty());
        }
        if running.is_empty() {
            return self.start_generation();
        }
        for call in running {
            self.wait_for(call, None);
        }
    }

    /// Takes up again the end of the conversation, whose goodbye noise cut short.
    pub(super) fn resume_ending(&mut self, ending: EndingCall) {
        self.open_response(TurnLatency::of_turn_at(self.common.now));
        let running: Vec<CallId> = self.running.keys().copied().collect();
        for call in running.into_iter().filter(|call| *call != ending.call) {
            self.wait_for(call, None);
        }
        self.ending.promise(ending);
    }

    /// Says words of our own.
    pub(super) fn say(&mut self, text: &str) {
        self.open_untracked(TurnLatency::default(), NextAnswer::default());
        self.speak(text, Words::Own);
    }

    /// Opens a response to what was heard. Whatever else asked for an answer gets this one, on its
    /// terms.
    pub(super) fn open_response(&mut self, latency: TurnLatency) {
        let track = self.take_track();
        let next = self.respond_next.take().unwrap_or_default();
        self.forget_resuming();
        self.open_untracked(latency, next);
        if let Some(response) = &mut self.response {
            response.track = Some(track);
        }
    }

    fn open_untracked(&mut self, latency: TurnLatency, next: NextAnswer) {
        let NextAnswer { terms, requested } = next;
        self.confirmation
            .withdraw_asked(&mut self.common, &mut self.history);
        self.ending.response_begins();
        let turn = self.common.turn_id();
        let response = Response::new(
            turn,
            self.common.now,
            latency,
            terms,
            self.common.policy.answer,
        );
        self.response = Some(Response {
            history: self.history.len(),
            ..response
        });
        self.common
            .notify(Event::ResponseStarted { turn, requested });
    }

    /// Says something that the user alone hears: it is in no history.
    pub(super) fn respond_aloud(&mut self, terms: ResponseTerms) {
        let next = NextAnswer::requested(terms);
        self.open_untracked(TurnLatency::of_turn_at(self.common.now), next);
        self.start_generation();
    }

    fn start_generation(&mut self) {
        let Some(response) = &self.response else {
            return;
        };
        let messages = match &response.terms.context {
            None => self.history.messages(),
            Some(context) => {
                let mut messages = self.messages_of(context);
                messages.extend(self.history.messages_from(response.history));
                messages
            }
        };
        let used = response.usage.output;
        let prompt = self.prompt(messages, &response.terms, response.steps, used);
        let asked = prompt.estimate();
        let held = match response.terms.is_outside() {
            true => None,
            false => self.take_held(&prompt),
        };
        let (request, began, events) = match held {
            Some(held) => held,
            None => {
                let request = self.common.request_id();
                self.common
                    .outputs
                    .push_back(Output::Generate { request, prompt });
                (request, self.common.now, Vec::new())
            }
        };
        self.common.timers.set(
            Timer::GenerationOverdue,
            self.common.now + self.common.policy.timeouts.generation_timeout,
        );
        if let Some(response) = &mut self.response {
            response.generation = Some(request);
            response.estimate = (asked, 0);
            response.calls = 0;
            response.said = false;
            response.owes_answer = false;
            response.latency.generation.get_or_insert(began);
        }
        for event in events {
            self.on_llm(request, event);
        }
    }

    /// What the model is given after `steps` of tools, and when it has `used` so many tokens in the
    /// answer.
    pub(super) fn prompt(
        &self,
        messages: Vec<Message>,
        terms: &ResponseTerms,
        steps: u32,
        used: u64,
    ) -> Prompt {
        let instructions: Vec<_> = [
            self.common.policy.instructions.as_deref(),
            self.client.instructions.as_deref(),
            terms.instructions.as_deref(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let most = terms.max_tokens.unwrap_or(self.client.max_tokens);
        let left = |most: u32| {
            most.saturating_sub(u32::try_from(used).unwrap_or(most))
                .max(1)
        };
        let choice = terms.tool_choice.as_ref();
        let choice = choice.unwrap_or(&self.client.tool_choice);
        let tools = match choice {
            ToolChoice::None => Vec::new(),
            _ if steps < self.common.policy.tool_steps => self.offered(terms),
            _ => Vec::new(),
        };
        // A call that was asked for is made once; what follows is said about its result. The client
        // may have taken back the tool that it has chosen.
        let tool_choice = match steps {
            0 if missing_tool(choice, &tools).is_none() => choice.clone(),
            _ => ToolChoice::Auto,
        };
        Prompt {
            instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
            messages,
            tools: Arc::new(tools),
            demands: Demands {
                max_tokens: most.number().map(left),
                tool_choice,
            },
        }
    }

    /// The tools of an answer. Outside of the conversation the server runs none: its results would
    /// have nowhere to go.
    pub(super) fn offered(&self, terms: &ResponseTerms) -> Vec<ToolSpec> {
        let clients = self.clients_in(terms);
        let is_clients = |name: &str| clients.iter().any(|tool| tool.name == name);
        let own = self.common.policy.tools.iter().map(|tool| &tool.spec);
        let own = own.filter(|spec| !terms.is_outside() && !is_clients(&spec.name));
        own.chain(clients).cloned().collect()
    }

    pub(super) fn on_llm(&mut self, request: RequestId, event: LlmEvent) {
        let now = self.common.now;
        if self.on_aside(request, &event) {
            return;
        }
        if self.held.as_ref().is_some_and(|h| h.request == request) {
            return self.hold(event);
        }
        let Some(response) = self
            .response
            .as_mut()
            .filter(|r| r.generation == Some(request))
        else {
            return;
        };
        response.latency.llm_first.get_or_insert(now);
        self.common.timers.set(
            Timer::GenerationOverdue,
            now + self.common.policy.timeouts.generation_timeout,
        );
        match &event {
            LlmEvent::Speech { text } => response.estimate.1 += text.chars().count(),
            LlmEvent::ToolOpened { name } => response.estimate.1 += name.chars().count(),
            LlmEvent::ToolArguments { piece } => response.estimate.1 += piece.chars().count(),
            _ => {}
        }
        match event {
            LlmEvent::Speech { text } => self.on_words(&text),
            LlmEvent::ToolOpened { .. } if response.calls == MOST_CALLS => {
                self.common
                    .outputs
                    .push_back(Output::CancelGeneration { request });
                self.end_generation();
            }
            LlmEvent::ToolOpened { name } => {
                response.open_tool = Some(name.clone());
                response.calls += 1;
                let track = response.track.as_ref().map(|track| track.id);
                self.drop_second_filler();
                self.finish_item();
                if let Some(track) = track {
                    self.on_tool_opened(track, &name);
                }
            }
            LlmEvent::ToolArguments { .. } => {}
            LlmEvent::ToolClosed { arguments } => {
                if let Some(name) = response.open_tool.take() {
                    self.commit(&name, arguments);
                }
            }
            LlmEvent::Unable => {
                let turn = response.turn;
                self.common.notify(Event::Unable { turn });
            }
            LlmEvent::Cut => response.breaks_off = true,
            LlmEvent::Used { usage } => {
                response.usage.add(usage);
                response.estimate = (0, 0);
            }
            LlmEvent::End => self.end_generation(),
        }
    }

    /// The model says words. Behind a call they are dropped: it cannot know its result yet.
    fn on_words(&mut self, text: &str) {
        let Some(response) = &mut self.response else {
            return;
        };
        let (has_called, request) = (response.calls > 0, response.generation);
        if !has_called {
            for clause in response.cutter.push(text) {
                self.say_clause(clause);
            }
        }
        if !self.is_endless(text) {
            return;
        }
        let said = self.response.as_ref().is_some_and(|r| r.said);
        if !has_called && said {
            return self.end_answer();
        }
        if let Some(request) = request {
            self.common
                .outputs
                .push_back(Output::CancelGeneration { request });
        }
        self.end_generation();
    }

    /// Speaks a clause of the model.
    fn say_clause(&mut self, clause: String) {
        let Some(response) = &mut self.response else {
            return;
        };
        if let Some(withheld) = response.withheld.as_mut().filter(|w| w.len() < WITHHELD) {
            return withheld.push(clause);
        }
        self.say_withheld();
        self.queue_answer(clause);
    }

    fn say_withheld(&mut self) {
        let withheld = self.response.as_mut().and_then(|r| r.withheld.take());
        for clause in withheld.into_iter().flatten() {
            self.queue_answer(clause);
        }
    }

    /// The words before the call were to bridge the wait, as the router's filler already does.
    fn drop_second_filler(&mut self) {
        let Some(response) = &mut self.response else {
            return;
        };
        if response.withheld.take().is_some() {
            response.cutter = Clauses::default();
        }
    }

    fn end_generation(&mut self) {
        self.common.timers.clear(Timer::GenerationOverdue);
        self.say_withheld();
        self.finish_item();
        let Some(response) = &mut self.response else {
            return;
        };
        response.generation = None;
        response.count();
        let breaks_off = std::mem::take(&mut response.breaks_off);
        let most = response.terms.max_tokens;
        let by_client = most.unwrap_or(self.client.max_tokens).number().is_some();
        // A call that our own limit cut is told to the model, and silence is not what the user hears.
        let is_answer = response.said && response.calls == 0;
        response.answer.is_cut |= breaks_off && (by_client || is_answer);
        let silent = !response.said && (response.calls == 0 || response.overstepped);
        let nothing_new = response.nothing_new && response.steps == 0 && !breaks_off;
        if silent && !nothing_new && !response.answer.is_cut {
            let reason = match breaks_off {
                true => "the language model reached its most tokens before its first word",
                false => "the language model said nothing",
            };
            self.fail_response("llm", reason, |p| &p.llm_failed);
        }
    }

    /// Speaks `text` as part of the response, clause by clause.
    pub(super) fn speak(&mut self, text: &str, words: Words) {
        let mut cutter = Clauses::default();
        let mut clauses = cutter.push(text);
        clauses.extend(cutter.finish());
        for clause in clauses {
            self.queue_clause(clause, words);
        }
    }

    pub(super) fn queue_clause(&mut self, text: String, words: Words) -> Option<ClauseId> {
        let clause = ClauseId(self.common.ids.next());
        let fresh = self.common.item_id();
        let response = self.response.as_mut()?;
        let item = *response.item.get_or_insert_with(|| {
            response.open_items.push(fresh);
            self.history
                .begin_speech(fresh, response.terms.is_outside());
            fresh
        });
        if words != Words::Filler {
            response.said = true;
            if response.latency.tool_result.is_some() {
                response.answer_from.get_or_insert(clause);
            }
        }
        let index = self.history.add_clause(item, &text);
        let of_model = words == Words::Answer;
        self.playout.push(clause, (item, index), text, of_model);
        Some(clause)
    }

    /// What is said from here on is another item.
    fn finish_item(&mut self) {
        let Some(response) = &mut self.response else {
            return;
        };
        if let Some(clause) = std::mem::take(&mut response.cutter).finish() {
            self.say_clause(clause);
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
        if last {
            self.answer_was_made(clause);
        }
        if let Some(response) = &mut self.response {
            response
                .latency
                .first_synthesis
                .get_or_insert(self.common.now);
        }
        self.watch_synthesis();
    }

    /// A voice that hangs is as dead as one that fails.
    pub(super) fn watch_synthesis(&mut self) {
        if self.playout.being_made().is_some() {
            let due = self.common.now + self.common.policy.timeouts.synthesis_timeout;
            self.common.timers.set(Timer::SynthesisOverdue, due);
        } else {
            self.common.timers.clear(Timer::SynthesisOverdue);
        }
    }

    pub(super) fn on_synthesis_overdue(&mut self) {
        if let Some(clause) = self.playout.being_made() {
            self.on_failed(Job::Synthesis(clause), "the voice has stalled");
        }
    }

    /// The shell is about to send audio of a clause (`until` is zero) or has sent it.
    pub(super) fn on_sent(&mut self, id: ClauseId, until: Micros) {
        self.announce_clause(id);
        self.playout.sent(self.common.now, id, until);
        self.common.mark_activity();
    }

    /// Tells the client what is about to be heard.
    fn announce_clause(&mut self, id: ClauseId) {
        let sent_until = self.playout.sent_until();
        let (Some(clause), Some(response)) = (self.playout.get(id), &mut self.response) else {
            return;
        };
        if std::mem::replace(&mut clause.announced, true) {
            return;
        }
        let (item, text) = (clause.item, clause.text.clone());
        response.latency.first_audio.get_or_insert(self.common.now);
        if response.answer_from.is_some_and(|first| id >= first)
            && response.latency.answer_audio.is_none()
        {
            response.latency.answer_audio = Some(self.common.now);
            let filler = !response.announced.is_empty();
            response.latency.dead_air = filler.then(|| self.common.now.since(sent_until));
        }
        if !response.announced.contains(&item) {
            response.announced.push(item);
            self.common.notify(Event::AgentItemStarted { item });
        }
        self.confirmation.clause_begins(id);
        self.common.notify(Event::AgentSpeech {
            item,
            clause: id,
            text,
        });
    }

    /// Carries a response on: asks for audio, for the next generation, and ends what is done.
    pub(super) fn advance_response(&mut self) {
        self.take_results();
        if self.response.as_ref().is_some_and(|r| {
            r.owes_answer
                && r.generation.is_none()
                && r.waiting.is_empty()
                && !r.client_called
                && r.may_go_on()
                && !self.ending.is_promised()
        }) {
            if let Some(response) = &mut self.response {
                response.steps += 1;
            }
            self.start_generation();
        }
        while let Some(clause) = self.playout.next_to_ask().map(|clause| clause.id) {
            if self.ends_before(clause) {
                continue;
            }
            let Some(clause) = self.playout.get(clause) else {
                break;
            };
            clause.asked = true;
            let (clause, item, text) = (clause.id, clause.item, clause.text.clone());
            self.common
                .outputs
                .push_back(Output::Speak { clause, item, text });
            self.watch_synthesis();
        }
        self.close_items();
        let Some(response) = &self.response else {
            return;
        };
        if response.owes() {
            return self.watch_dead_air();
        }
        self.common.timers.clear(Timer::DeadAir);
        if self.confirmation.is_wanted() && !response.failed {
            if response.client_called || self.respond_next.is_some() {
                self.confirmation
                    .put_off(&mut self.common, &mut self.history);
                return self.advance_response();
            }
            self.call_off_end();
            let question = self.confirmation.ask(&mut self.common, &mut self.history);
            if let Some(question) = question {
                self.speak(&question, Words::Own);
            }
            return self.advance_response();
        }
        if self.playout.all_sent() {
            let heard = self.playout.audible_until();
            self.confirmation.was_sent(&mut self.common, heard);
            if !self.awaits_ending_call() {
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
                self.common.notify(Event::AgentItemDone {
                    item,
                    text,
                    interrupted: false,
                });
            }
        }
    }

    pub(super) fn finish_response(&mut self) {
        let Some(response) = self.response.take() else {
            return;
        };
        self.clear_response_timers();
        if let Some(ending) = self.ending.take_promised() {
            self.end_with(&ending);
        }
        let status = if response.failed {
            ResponseStatus::Failed
        } else if response.answer.is_cut {
            ResponseStatus::Incomplete
        } else {
            ResponseStatus::Completed
        };
        self.close_response(response, status, Discard::TurnEnded);
    }

    /// Tells that a response is over, and ends its speculation.
    pub(super) fn close_response(
        &mut self,
        mut response: Response,
        status: ResponseStatus,
        reason: Discard,
    ) {
        self.confirmation.forget_wanted();
        if let Some(ending) = self.ending.take_promised() {
            self.call_off(ending.call);
        }
        let waiting = std::mem::take(&mut response.waiting);
        self.add_results(waiting);
        response.count();
        let (turn, latency, fillers) = (response.turn, response.latency, response.fillers);
        self.common.notify(Event::ResponseDone {
            turn,
            status,
            latency,
            usage: response.usage,
        });
        if let Some(track) = response.track {
            self.close_track(track, reason, |record| {
                record.turn = Some(turn);
                record.status = Some(status);
                record.latency = latency;
                record.fillers = fillers;
            });
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
            Job::Detection => self.common.notify(Event::StageFailed {
                stage: "vad".into(),
                message: reason.into(),
            }),
            Job::Transcription(request) => self.on_transcript(request, Err(())),
            Job::Completeness(_) => {}
            Job::Generation(request) => {
                if self.on_aside_failed(request) {
                } else if self.held.as_ref().is_some_and(|h| h.request == request) {
                    // Nobody waits for it yet: it is asked for again when somebody does.
                    self.held = None;
                } else if self
                    .response
                    .as_ref()
                    .is_some_and(|r| r.generation == Some(request))
                {
                    self.on_generation_failed(request, reason);
                }
            }
            Job::Synthesis(clause) => self.on_synthesis_failed(clause, reason),
        }
    }

    /// After a call there was nothing more to say: what was asked for in full is carried out.
    fn on_generation_failed(&mut self, request: RequestId, reason: &str) {
        if self.response.as_ref().is_some_and(Response::has_called) {
            self.common
                .outputs
                .push_back(Output::CancelGeneration { request });
            return self.end_generation();
        }
        self.fail_response("llm", reason, |p| &p.llm_failed);
    }

    fn on_synthesis_failed(&mut self, id: ClauseId, reason: &str) {
        if self.playout.get(id).is_none() {
            return;
        }
        self.common.timers.clear(Timer::SynthesisOverdue);
        self.confirmation
            .withdraw_unasked(&mut self.common, &mut self.history);
        for clause in self.playout.drop_from(id) {
            self.history.drop_clause(clause.item, clause.index);
            self.common
                .outputs
                .push_back(Output::CancelClause { clause: clause.id });
        }
        let Some(response) = &mut self.response else {
            return;
        };
        if std::mem::replace(&mut response.apologised, true) {
            // Not even the apology can be spoken: end in silence rather than try for ever.
            response.failed = true;
        } else {
            self.fail_response("tts", reason, |p| &p.tts_failed);
        }
    }

    /// Gives up the rest of the response and says so.
    fn fail_response(&mut self, stage: &str, reason: &str, phrase: impl Fn(&Phrases) -> &String) {
        self.clear_response_timers();
        self.common.notify(Event::StageFailed {
            stage: stage.into(),
            message: reason.into(),
        });
        let Some(response) = &mut self.response else {
            return;
        };
        response.failed = true;
        response.owes_answer = false;
        self.confirmation.forget_wanted();
        let waiting = std::mem::take(&mut response.waiting);
        if let Some(request) = response.generation.take() {
            self.common
                .outputs
                .push_back(Output::CancelGeneration { request });
        }
        self.add_results(waiting);
        self.finish_item();
        let phrase = phrase(&self.common.policy.phrases).clone();
        self.speak(&phrase, Words::Own);
    }
}
