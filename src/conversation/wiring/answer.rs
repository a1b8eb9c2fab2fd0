//! The agent's answer, from start to finish.

use super::Conversation;

use crate::conversation::answer::{Answer, NextAnswer};
use crate::conversation::calls::Calls;
use crate::conversation::clauses::Clauses;
use crate::conversation::playout::Words;
use crate::conversation::sentence::ends_sentence;

use crate::conversation::ending::EndingCall;

use crate::conversation::generation::Generation;

use crate::conversation::interruption::Unfinished;

use crate::conversation::latency::TurnLatency;

use crate::conversation::speculation::Discard;

use crate::conversation::timer::Timer;

use crate::conversation::{Event, Job, Output, ResponseStatus, ResponseTerms};
use crate::llm::{Message, Phrases, TokenUsage};

impl Conversation {
    /// Answers the history as it stands.
    pub(super) fn respond(&mut self) {
        self.start_response(TurnLatency::of_turn_at(self.common.now));
    }

    /// Answers a turn whose stamps so far are in `latency`. The answer waits until the current response has
    /// ended, all items have been transcribed, and the client is there.
    pub(super) fn start_response(&mut self, latency: TurnLatency) {
        let is_away = self.agenda.absence.is_on();
        if self.answer.is_some() || is_away || !self.agenda.is_transcribed() {
            let next = self.agenda.take_next_answer().unwrap_or_default();
            return self.respond_after_this(next);
        }
        self.open_response(latency);
        self.history.take_up_question();
        let nothing_new = self.history.ends_with_the_agent();
        if let Some(answer) = &mut self.answer {
            answer.nothing_new = nothing_new;
        }
        let speaks = self.held.preempt.began_without_filler();
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

    /// Queues an answer for after the current one, which then no longer ends the conversation.
    pub(super) fn respond_after_this(&mut self, next: NextAnswer) {
        self.agenda.answer_next(next);
        self.call_off_end();
    }

    /// Drops the queued answer. If the client requested it, the client is told that it was cancelled;
    /// otherwise returns `false`.
    pub(super) fn drop_next_answer(&mut self) -> bool {
        let dropped = self.agenda.take_next_answer();
        let requested = dropped.is_some_and(|next| next.requested);
        if requested {
            self.cancel_unbegun();
        }
        requested
    }

    /// Drops the spoken response outside the conversation that waits, and tells the client. `false` if there is none.
    pub(super) fn drop_late_response(&mut self) -> bool {
        let dropped = self.agenda.drop_late_response();
        if dropped {
            self.cancel_unbegun();
        }
        dropped
    }

    /// Tells the client that a response which it requested was cancelled before it began.
    fn cancel_unbegun(&mut self) {
        let turn = self.common.turn_id();
        self.common.notify(Event::ResponseStarted {
            turn,
            requested: true,
            opens: false,
        });
        self.common.notify(Event::ResponseDone {
            turn,
            status: ResponseStatus::Cancelled,
            latency: Box::default(),
            usage: TokenUsage::default(),
        });
    }

    /// Resumes the answer after a false interruption: at once, or when the calls that are still running are
    /// done.
    pub(super) fn resume_response(&mut self, half: Unfinished) {
        let is_new = self.agenda.has_next_answer();
        // Those of earlier answers are not waited for.
        let mut running = half.calls;
        running.retain(|call| self.running.calls.contains_key(call));
        if half.is_for_client && running.is_empty() && !is_new {
            return;
        }
        self.open_response(TurnLatency::of_turn_at(self.common.now));
        let nothing_new = half.said_all && self.ends_with_an_answer();
        if let Some(answer) = self.answer.as_mut().filter(|_| !is_new) {
            answer.nothing_new = nothing_new;
            answer.terms = half.terms;
            answer.history = half.history;
            let rounds = half.steps + u32::from(half.has_called && running.is_empty());
            answer.calls = Calls::after(rounds);
            if half.is_for_client {
                answer.calls.hand_to_client();
            }
        }
        if running.is_empty() {
            return self.start_generation(false);
        }
        for call in running {
            self.wait_for(call, None);
        }
        self.running.plans.resume();
        self.go_on_with_plans();
    }

    /// Whether the last words of the conversation are a whole sentence of the agent's that announces nothing.
    fn ends_with_an_answer(&self) -> bool {
        let messages = self.history.messages();
        let said = messages.iter().rev().map_while(|message| match message {
            Message::Agent { text, .. } => Some(text.as_str()),
            _ => None,
        });
        // Also words of which a sound has cut off the end.
        let mut said: Vec<&str> = said.collect();
        said.reverse();
        let language = self.common.language();
        let last = Clauses::of(language, &said.join(" ")).pop();
        last.is_some_and(|last| ends_sentence(&last) && !language.announces(&last))
    }

    /// Resumes ending the conversation after a false interruption of the goodbye.
    pub(super) fn resume_ending(&mut self, ending: EndingCall) {
        self.open_response(TurnLatency::of_turn_at(self.common.now));
        // Those of earlier answers are not waited for.
        let mut running = ending.beside.clone();
        running.retain(|call| self.running.calls.contains_key(call));
        for call in running {
            self.wait_for(call, None);
        }
        self.ending.promise(ending);
        self.running.plans.resume();
        self.go_on_with_plans();
    }

    /// Says a fixed text, without the model.
    pub(super) fn say(&mut self, text: &str) {
        self.open_untracked(TurnLatency::default(), NextAnswer::default());
        self.speak(text, Words::Own);
    }

    /// Opens a response to what was heard. It also serves as the queued answer, if there is one, and takes
    /// over its terms.
    pub(super) fn open_response(&mut self, latency: TurnLatency) {
        self.speculation.begin_answer();
        self.held.assumed.begin_turn();
        let next = self.agenda.take_next_answer().unwrap_or_default();
        self.forget_resuming();
        self.open_untracked(latency, next);
    }

    pub(super) fn open_untracked(&mut self, latency: TurnLatency, next: NextAnswer) {
        let NextAnswer { terms, requested } = next;
        self.confirmation
            .withdraw_asked(&mut self.common, &mut self.history);
        self.ending.response_begins();
        let turn = self.common.turn_id();
        let (now, most) = (self.common.now, self.common.policy.answer);
        let items = self.history.added();
        self.answer = Some(Answer::new(turn, now, latency, terms, items, most));
        self.common.notify(Event::ResponseStarted {
            turn,
            requested,
            opens: self.agenda.says_opening(),
        });
    }

    /// Gives an answer that the user hears but that does not join the history.
    pub(super) fn respond_aloud(&mut self, terms: ResponseTerms) {
        let next = NextAnswer::requested(terms);
        self.history.answers();
        self.open_untracked(TurnLatency::of_turn_at(self.common.now), next);
        self.start_generation(false);
    }

    /// Asks the model again when all calls have their results. `false` if that is not due. A generation that
    /// was held back may be over at once, and its calls may have results.
    fn begin_next_round(&mut self) -> bool {
        self.take_results();
        let is_due = |answer: &Answer| {
            !answer.is_generating() && answer.calls.is_next_round_due() && answer.may_go_on()
        };
        let Some(answer) = self.answer.as_mut().filter(|answer| is_due(answer)) else {
            return false;
        };
        if self.ending.is_promised() {
            return false;
        }
        answer.begin_round();
        let may_repeat = answer.calls.may_repeat();
        self.start_generation(may_repeat);
        true
    }

    /// Advances the response: requests audio and the next generation, and ends it when all is done.
    pub(super) fn advance_response(&mut self) {
        while self.begin_next_round() {}
        while let Some(clause) = self.playout.next_to_ask().map(|clause| clause.id) {
            if self.ends_before(clause) {
                continue;
            }
            let Some(clause) = self.playout.get(clause) else {
                break;
            };
            clause.asked = true;
            let (clause, item, text) = (clause.id, clause.item, clause.text.clone());
            let speaker = self.speaker_of(clause);
            self.common.outputs.push_back(Output::Speak {
                clause,
                item,
                text,
                speaker,
            });
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
        if self.confirmation.wanted().is_some() && !answer.has_failed() {
            if answer.calls.has_client_calls() || self.agenda.has_next_answer() {
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

    /// Reports the end of a response and closes its speculation.
    pub(super) fn close_response(
        &mut self,
        mut answer: Answer,
        status: ResponseStatus,
        reason: Discard,
    ) {
        self.confirmation
            .forget_wanted(&mut self.common, &mut self.history);
        self.running.plans.pause();
        self.agenda.response_ended();
        if let Some(ending) = self.ending.take_promised() {
            self.call_off(ending.call);
        }
        self.add_results(answer.calls.take_all());
        let (turn, latency) = (answer.turn, answer.stamps.latency);
        let (usage, fillers) = (answer.usage(), answer.dead_air.fillers());
        let (dropped, spared) = (answer.dead_air.unsaid(), answer.dead_air.spared());
        let continued = answer.continued;
        self.common.held.extend(answer.gains.take());
        self.common.notify(Event::ResponseDone {
            turn,
            status,
            latency: Box::new(latency),
            usage,
        });
        self.speculation
            .end_answer(&mut self.common, reason, |record| {
                record.turn = Some(turn);
                record.status = Some(status);
                record.latency = latency;
                record.fillers = fillers;
                record.fillers_dropped = dropped;
                record.fillers_saved = spared;
                record.continued = continued;
            });
    }

    /// Handles a failed job. The user is told if it matters, and the conversation goes on.
    pub(super) fn on_failed(&mut self, job: Job, reason: &str) {
        match job {
            Job::Detection => self.common.notify(Event::StageFailed {
                stage: "vad".into(),
                message: reason.into(),
            }),
            Job::Transcription(request) => self.on_transcript(request, Err(())),
            Job::Completeness(_) => {}
            Job::Generation(request) => {
                if self.asides.on_failed(&mut self.common, request) {
                } else if self.held.preempt.is(request) {
                    // Nobody waits for it yet; it is requested again when needed.
                    self.held.preempt.fail(&mut self.common);
                    self.speculation.forget_open_call();
                } else if self.held.assumed.is(request) {
                    self.held.assumed.fail(&mut self.common);
                } else if self.answer.as_ref().and_then(Answer::request) == Some(request) {
                    self.on_generation_failed(request, reason);
                }
            }
            Job::Synthesis(clause) => self.on_synthesis_failed(clause, reason),
        }
    }

    /// Ends the response early with an apology.
    pub(super) fn fail_response(
        &mut self,
        stage: &str,
        reason: &str,
        phrase: impl Fn(&Phrases) -> &String,
    ) {
        self.clear_response_timers();
        self.common.notify(Event::StageFailed {
            stage: stage.into(),
            message: reason.into(),
        });
        let Some(answer) = &mut self.answer else {
            return;
        };
        self.confirmation
            .forget_wanted(&mut self.common, &mut self.history);
        self.running.plans.pause();
        let (generation, speaks) = (answer.fail(), !answer.has_lost_its_voice());
        let results = answer.calls.give_up();
        if let Some(request) = generation.as_ref().map(Generation::request) {
            self.cancel_generation(request);
        }
        self.add_results(results);
        if let Some(mut generation) = generation.filter(|_| speaks) {
            let last_words = generation.break_off();
            self.say_clauses(last_words);
        }
        if let Some(answer) = &mut self.answer {
            answer.items.close();
        }
        let phrase = phrase(self.common.policy.phrases()).clone();
        self.speak(&phrase, Words::Own);
    }
}
