//! The agent's answer: generation, tools, speech, and the end of it.

use super::answer::{Answer, NextAnswer, Words};
use super::calls::Calls;
use super::clauses::Clauses;
use super::client::missing_tool;
use super::client_settings::ClientTools;
use super::common::Common;
use super::ending::EndingCall;
use super::generation::Generation;
use super::ids::{CallId, ClauseId, RequestId};
use super::interruption::Unfinished;
use super::latency::TurnLatency;
use super::preempt::Held;
use super::sentence::words;
use super::speculation::{Discard, TrackId};
use super::time::Micros;
use super::timer::Timer;
use super::{Conversation, Event, Job, Output, ResponseStatus, ResponseTerms};
use crate::llm::{Demands, LlmEvent, Message, Phrases, Prompt, TokenUsage, ToolChoice};
use crate::tools::ToolSpec;
use std::sync::Arc;

impl Conversation {
    /// Answers what the history asks.
    pub(super) fn respond(&mut self) {
        self.start_response(TurnLatency::of_turn_at(self.common.now));
    }

    /// Answers a turn whose stages so far are in `latency`. While another response is being given
    /// the answer waits for its end, and for items whose words are not known.
    pub(super) fn start_response(&mut self, latency: TurnLatency) {
        if self.answer.is_some() || !self.unheard.is_empty() {
            let next = self.respond_next.take().unwrap_or_default();
            return self.respond_after_this(next);
        }
        self.open_response(latency);
        self.history.take_up_question();
        let nothing_new = self.history.ends_with_the_agent();
        if let Some(answer) = &mut self.answer {
            answer.nothing_new = nothing_new;
        }
        let speaks = self.held.as_ref().is_some_and(Held::speaks_for_itself);
        let track = self.speculation.answering();
        let filler = track.and_then(|track| self.router_filler(track));
        let filler = filler.filter(|_| !speaks);
        if let Some(filler) = &filler {
            self.say_filler(filler);
            if let Some(answer) = &mut self.answer {
                answer.items.close();
            }
        }
        self.start_generation(filler.is_some());
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
        if let Some(answer) = self.answer.as_mut().filter(|_| !is_new) {
            answer.terms = half.terms;
            answer.history = half.history;
            let rounds = half.steps + u32::from(half.has_called && running.is_empty());
            answer.calls = Calls::after(rounds);
        }
        if running.is_empty() {
            return self.start_generation(false);
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
        self.speculation.begin_answer();
        let next = self.respond_next.take().unwrap_or_default();
        self.forget_resuming();
        self.open_untracked(latency, next);
    }

    fn open_untracked(&mut self, latency: TurnLatency, next: NextAnswer) {
        let NextAnswer { terms, requested } = next;
        self.confirmation
            .withdraw_asked(&mut self.common, &mut self.history);
        self.ending.response_begins();
        let turn = self.common.turn_id();
        let (now, most) = (self.common.now, self.common.policy.answer);
        let items = self.history.len();
        self.answer = Some(Answer::new(turn, now, latency, terms, items, most));
        self.common
            .notify(Event::ResponseStarted { turn, requested });
    }

    /// Says something that the user alone hears: it is in no history.
    pub(super) fn respond_aloud(&mut self, terms: ResponseTerms) {
        let next = NextAnswer::requested(terms);
        self.open_untracked(TurnLatency::of_turn_at(self.common.now), next);
        self.start_generation(false);
    }

    /// Asks the model for more of the answer. What it says first is withheld `after_filler`.
    fn start_generation(&mut self, after_filler: bool) {
        let Some(answer) = &self.answer else {
            return;
        };
        let messages = match &answer.terms.context {
            None => self.history.messages(),
            Some(context) => {
                let mut messages = self.messages_of(context);
                messages.extend(self.history.messages_from(answer.history));
                messages
            }
        };
        let (rounds, used) = (answer.calls.rounds(), answer.usage().output);
        let prompt = self.prompt(messages, &answer.terms, rounds, used);
        let tokens = prompt.estimate();
        let held = match answer.terms.is_outside() {
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
        watch_generation(&mut self.common);
        if let Some(answer) = &mut self.answer {
            let generation = Generation::new(request, tokens, after_filler);
            answer.begin_generation(generation, began);
        }
        for event in events {
            self.on_llm(request, event);
        }
    }

    /// The model has begun to call a tool.
    pub(super) fn on_tool_opened(&mut self, track: TrackId, name: &str) {
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        self.speculation
            .on_tool_opened(&mut self.common, clients, track, name);
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
                max_tokens: most.number().map(|most| left_of(most, used)),
                tool_choice,
            },
        }
    }

    /// The tools of an answer. Outside of the conversation the server runs none: its results would
    /// have nowhere to go.
    pub(super) fn offered(&self, terms: &ResponseTerms) -> Vec<ToolSpec> {
        let clients = self.client.tools_in(terms);
        let is_clients = |name: &str| clients.iter().any(|tool| tool.name == name);
        let own = self.common.policy.tools.iter().map(|tool| &tool.spec);
        let own = own.filter(|spec| !terms.is_outside() && !is_clients(&spec.name));
        own.chain(clients).cloned().collect()
    }

    pub(super) fn on_llm(&mut self, request: RequestId, event: LlmEvent) {
        if self.on_aside(request, &event) {
            return;
        }
        if self.held.as_ref().is_some_and(|h| h.request == request) {
            return self.hold(event);
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
        llm_first.get_or_insert(self.common.now);
        generation.count(&event);
        watch_generation(&mut self.common);
        match event {
            LlmEvent::Speech { text } => self.on_words(&text),
            LlmEvent::ToolOpened { name } => match generation.begin_call(&name) {
                Some(before) => {
                    self.say_clauses(before);
                    if let Some(answer) = &mut self.answer {
                        answer.items.close();
                    }
                    if let Some(track) = self.speculation.answering().map(|track| track.id) {
                        self.on_tool_opened(track, &name);
                    }
                }
                None => {
                    self.cancel_generation(request);
                    self.end_generation();
                }
            },
            LlmEvent::ToolArguments { .. } => {}
            LlmEvent::ToolClosed { arguments } => {
                if let Some(name) = generation.end_call() {
                    self.commit(&name, arguments);
                }
            }
            LlmEvent::Unable => self.common.notify(Event::Unable { turn }),
            LlmEvent::Cut => generation.was_cut(),
            LlmEvent::Used { usage } => generation.was_counted(usage),
            LlmEvent::End => self.end_generation(),
        }
    }

    fn cancel_generation(&mut self, request: RequestId) {
        self.common
            .outputs
            .push_back(Output::CancelGeneration { request });
    }

    /// The model says words.
    fn on_words(&mut self, text: &str) {
        let Some(generation) = self.answer.as_mut().and_then(Answer::generation) else {
            return;
        };
        let (request, has_called) = (generation.request(), generation.has_begun_call());
        let clauses = generation.words(text);
        self.say_clauses(clauses);
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

    /// Speaks clauses of the model, as far as the answer does not become too long with them.
    fn say_clauses(&mut self, clauses: Vec<String>) {
        for text in clauses {
            let Some(answer) = self.answer.as_mut().filter(|a| !a.length.is_cut) else {
                return;
            };
            let is_over = answer.length.said(words(&text));
            let clause = self.queue_clause(text, Words::Answer);
            if let Some(clause) = clause.filter(|_| is_over) {
                self.cut_answer(clause);
            }
        }
    }

    /// The model has said everything.
    fn end_generation(&mut self) {
        self.common.timers.clear(Timer::GenerationOverdue);
        let generation = self.answer.as_mut().and_then(Answer::generation);
        let clauses = generation.map(Generation::finish);
        self.say_clauses(clauses.unwrap_or_default());
        let Some(answer) = &mut self.answer else {
            return;
        };
        let most = answer.terms.max_tokens.unwrap_or(self.client.max_tokens);
        let left = most
            .number()
            .map(|most| left_of(most, answer.earlier_usage().output));
        let own = self.common.policy.max_tokens;
        let is_clients = left.is_some_and(|left| own.is_none_or(|own| left <= own));
        let is_cut = answer
            .generation()
            .is_some_and(|generation| generation.is_cut());
        let Some(reason) = answer.end_generation(is_clients) else {
            return;
        };
        if left.is_some() && is_cut {
            // A client with a limit of its own knows such an end, the user does not.
            answer.length.is_cut = true;
            let phrase = self.common.policy.phrases.llm_failed.clone();
            return self.speak(&phrase, Words::Own);
        }
        self.fail_response("llm", reason, |p| &p.llm_failed);
    }

    /// Ends the answer before the clause `from`, and behind a whole sentence as far as the words
    /// before it are not being said yet. The model is stopped.
    fn cut_answer(&mut self, from: ClauseId) {
        for clause in self.playout.cut_answer(from) {
            self.history.drop_clause(clause.item, clause.index);
            if clause.asked {
                let clause = clause.id;
                self.common
                    .outputs
                    .push_back(Output::CancelClause { clause });
            }
        }
        self.watch_synthesis();
        self.end_answer();
    }

    /// The model says nothing more in this response.
    fn end_answer(&mut self) {
        self.common.timers.clear(Timer::GenerationOverdue);
        let Some(answer) = &mut self.answer else {
            return;
        };
        answer.length.is_cut = true;
        if let Some(request) = answer.stop_generation() {
            self.cancel_generation(request);
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

    /// Queues a clause, to be spoken behind all others.
    fn queue_clause(&mut self, text: String, words: Words) -> Option<ClauseId> {
        let answer = self.answer.as_mut()?;
        let (common, history) = (&mut self.common, &mut self.history);
        Some(answer.queue(common, history, &mut self.playout, text, words))
    }

    pub(super) fn on_synthesised(&mut self, clause: ClauseId, length: Micros, last: bool) {
        let Some(known) = self.playout.get(clause) else {
            return;
        };
        self.history
            .lengthen_clause(known.item, known.index, length);
        self.playout.made(clause, length, last);
        if let Some(answer) = &mut self.answer {
            if let Some((words, length)) = self.playout.made_of_answer(clause).filter(|_| last) {
                answer.length.made(words, length);
            }
            let first = &mut answer.stamps.latency.first_synthesis;
            first.get_or_insert(self.common.now);
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
        if let Some(answer) = &mut self.answer
            && answer.announce(&mut self.common, &mut self.playout, id)
        {
            self.confirmation.clause_begins(id);
        }
        self.playout.sent(self.common.now, id, until);
        self.common.mark_activity();
    }

    /// Carries a response on: asks for audio, for the next generation, and ends what is done.
    pub(super) fn advance_response(&mut self) {
        self.take_results();
        if let Some(answer) = &mut self.answer
            && !answer.is_generating()
            && answer.calls.is_next_round_due()
            && answer.may_go_on()
            && !self.ending.is_promised()
        {
            answer.calls.begin_round();
            self.start_generation(false);
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
        let Some(answer) = &self.answer else {
            return;
        };
        if answer.is_being_made() {
            return self.watch_dead_air();
        }
        self.common.timers.clear(Timer::DeadAir);
        if self.confirmation.is_wanted() && !answer.has_failed() {
            if answer.calls.has_client_s() || self.respond_next.is_some() {
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

    /// A clause is about to be asked for: ends the answer before it if there is no time for the rest of
    /// its sentence. `true` if the clause is gone.
    fn ends_before(&mut self, clause: ClauseId) -> bool {
        let place = self.playout.place_in_answer(clause);
        let (Some(place), Some(answer)) = (place, &mut self.answer) else {
            return false;
        };
        if answer.length.ask(&place) {
            return false;
        }
        self.cut_answer(clause);
        true
    }

    /// Items whose audio was all sent are done, in order.
    fn close_items(&mut self) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        let is_generating = answer.is_generating();
        let was_sent = |item| self.playout.item_sent(item);
        while let Some(item) = answer.items.take_done(is_generating, was_sent) {
            if answer.items.was_announced(item) {
                self.common.notify(Event::AgentItemDone {
                    item,
                    text: self.history.spoken_text(item),
                    interrupted: false,
                });
            }
        }
    }

    pub(super) fn finish_response(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        self.clear_response_timers();
        if let Some(ending) = self.ending.take_promised() {
            self.end_with(&ending);
        }
        let status = answer.status();
        self.close_response(answer, status, Discard::TurnEnded);
    }

    /// Tells that a response is over, and ends its speculation.
    pub(super) fn close_response(
        &mut self,
        mut answer: Answer,
        status: ResponseStatus,
        reason: Discard,
    ) {
        self.confirmation.forget_wanted();
        if let Some(ending) = self.ending.take_promised() {
            self.call_off(ending.call);
        }
        self.add_results(answer.calls.take_all());
        let (turn, latency) = (answer.turn, answer.stamps.latency);
        let (usage, fillers) = (answer.usage(), answer.dead_air.fillers());
        self.common.notify(Event::ResponseDone {
            turn,
            status,
            latency,
            usage,
        });
        self.speculation
            .end_answer(&mut self.common, reason, |record| {
                record.turn = Some(turn);
                record.status = Some(status);
                record.latency = latency;
                record.fillers = fillers;
            });
    }

    pub(super) fn on_generation_overdue(&mut self) {
        let Some(request) = self.answer.as_ref().and_then(Answer::request) else {
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
                } else if self.answer.as_ref().and_then(Answer::request) == Some(request) {
                    self.on_generation_failed(request, reason);
                }
            }
            Job::Synthesis(clause) => self.on_synthesis_failed(clause, reason),
        }
    }

    /// After a call there was nothing more to say: what was asked for in full is carried out.
    fn on_generation_failed(&mut self, request: RequestId, reason: &str) {
        let generation = self.answer.as_mut().and_then(Answer::generation);
        if generation.is_some_and(|generation| generation.has_called()) {
            self.cancel_generation(request);
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
        if self.answer.as_mut().is_some_and(Answer::voice_fails) {
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
        let Some(answer) = &mut self.answer else {
            return;
        };
        self.confirmation.forget_wanted();
        let generation = answer.fail();
        let results = answer.calls.give_up();
        if let Some(request) = generation.as_ref().map(Generation::request) {
            self.cancel_generation(request);
        }
        self.add_results(results);
        let last_words = generation.map(|mut generation| generation.last_words());
        self.say_clauses(last_words.unwrap_or_default());
        if let Some(answer) = &mut self.answer {
            answer.items.close();
        }
        let phrase = phrase(&self.common.policy.phrases).clone();
        self.speak(&phrase, Words::Own);
    }
}

/// A model that says nothing is taken for dead after a while.
fn watch_generation(common: &mut Common) {
    let overdue = common.now + common.policy.timeouts.generation_timeout;
    common.timers.set(Timer::GenerationOverdue, overdue);
}

/// The tokens that an answer may still have, of which `used` are used up: at least one.
fn left_of(most: u32, used: u64) -> u32 {
    let used = u32::try_from(used).unwrap_or(most);
    most.saturating_sub(used).max(1)
}
