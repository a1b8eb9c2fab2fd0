//! Generations that begin before the one before them has ended: after an assumed commit, or when all calls so
//! far have results.

use super::Conversation;
use crate::conversation::answer::Answer;
use crate::conversation::assumed::{Guess, HOLD, Main, Useless};
use crate::conversation::client_settings::ClientTools;
use crate::conversation::generation::Generation;
use crate::conversation::held::{Held, Taken};
use crate::conversation::ids::RequestId;
use crate::conversation::input::ResponseTerms;
use crate::conversation::shed::Shed;
use crate::conversation::timer::Timer;
use crate::llm::{LlmEvent, Message, Prompt};
use serde_json::{Map, Value};

impl Conversation {
    /// Runs after every change: discards a held-back generation that can no longer be used, and requests one
    /// if there is a reason to.
    pub(super) fn look_ahead(&mut self) {
        self.watch_drafts();
        self.drop_useless();
        // The agent that goes on has another prompt, once it has taken over.
        let may = !self.common.handoff.is_under_way();
        if may && self.held.assumed.is_idle() && !self.go_on_at_once() {
            self.assume_commit();
        }
    }

    fn drop_useless(&mut self) {
        let Some(main) = self.held.assumed.main() else {
            return;
        };
        let main = match &self.answer {
            _ if self.held.preempt.is(main) => Main::Held,
            // A model that fails has not done something else.
            Some(answer) if !answer.has_failed() => answer.main(main),
            _ => Main::Gone,
        };
        let is_ready = |run| self.speculation.is_ready(&self.common, run);
        if let Some(why) = self.held.assumed.useless(main, is_ready) {
            let missed = why == Useless::Missed;
            self.held.assumed.drop(&mut self.common, missed);
        }
    }

    /// Requests the next generation if all calls so far have results: the rest of the model's stream is not
    /// waited for, unless it brings another call.
    fn go_on_at_once(&mut self) -> bool {
        let Some(answer) = &self.answer else {
            return false;
        };
        let Some(main) = answer.awaits_only_the_stream() else {
            return false;
        };
        let is_held_up = self.ending.is_promised() || self.confirmation.wanted().is_some();
        // Its server goes on by itself, or the stream ends now.
        let is_answered = self.server_has_results(main);
        if is_held_up || is_answered || !answer.terms.keep_the_prompt(self.client.max_tokens) {
            return false;
        }
        let mut messages = self.history.messages();
        messages.extend(answer.calls.results(&messages));
        let tool = match messages.last() {
            Some(Message::ToolResult { name, .. }) => name.clone(),
            _ => return false,
        };
        let prompt = self.prompt(messages, &answer.terms, answer.calls.rounds() + 1, 0);
        let draft = self.wants_draft(&prompt).then(|| prompt.clone());
        self.held
            .assumed
            .go_on(&mut self.common, prompt, main, &tool);
        if let (Some(prompt), Some(held)) = (draft, self.held.assumed.held()) {
            self.ask_draft(held.request, prompt);
        }
        true
    }

    /// Requests the generation after a call that the model has not committed yet, if its result is ready and
    /// the commit is likely.
    fn assume_commit(&mut self) {
        let Some((main, base, has_words)) = self.foreseen() else {
            return;
        };
        let terms = ResponseTerms::default();
        let terms = self.answer.as_ref().map_or(&terms, |answer| &answer.terms);
        if !terms.keep_the_prompt(self.client.max_tokens)
            || !self.turn.has_room_for(Shed::Speculation)
        {
            return;
        }
        let generation = self.answer.as_ref().and_then(|a| a.generation.as_ref());
        let called = generation.and_then(Generation::open_call);
        let has_begun_call = called.is_some();
        let clients = ClientTools::of(&self.client, self.answer.as_ref().map(|a| &a.terms));
        let held = self.held.preempt.held().map(Held::only_call);
        let guess = match held {
            Some(held) => self.speculation.guess_held(&self.common, clients, held),
            None => self.speculation.guess_next(&self.common, called),
        };
        let Some(guess) = guess.filter(|guess| self.held.assumed.is_allowed(&self.common, guess))
        else {
            return;
        };
        let base = base.map_or_else(|| self.history.messages(), <[Message]>::to_vec);
        let rounds = self.answer.as_ref().map_or(0, |a| a.calls.rounds());
        let prompt = self.prompt(self.with_call(base, &guess), terms, rounds + 1, 0);
        let tokens = prompt.estimate();
        if !self
            .held
            .assumed
            .is_worth_it(&mut self.common, &guess, tokens)
        {
            return;
        }
        let tool = guess.tool.clone();
        self.held
            .assumed
            .assume(&mut self.common, prompt, main, has_words, guess);
        if let Some(generation) = self.answer.as_mut().and_then(Answer::generation)
            && !has_words
            && !has_begun_call
        {
            generation.withhold_for(&tool);
        }
    }

    /// The generation whose next event may be a call, the messages before it if they are not the history's,
    /// and whether its words so far are complete and part of them.
    fn foreseen(&self) -> Option<(RequestId, Option<&[Message]>, bool)> {
        if let Some(held) = self.held.preempt.held() {
            let base = Some(held.prompt().messages.as_slice());
            return held.may_call_next().then_some((held.request, base, false));
        }
        let (answer, ends) = (self.answer.as_ref()?, self.ending.is_promised());
        let (request, has_words) = answer.may_call_next(self.common.now, ends)?;
        Some((request, None, has_words))
    }

    fn with_call(&self, mut messages: Vec<Message>, guess: &Guess) -> Vec<Message> {
        let id = self.common.ids.coming_call().to_string();
        messages.push(Message::ToolCall {
            id: id.clone(),
            name: guess.tool.clone(),
            arguments: guess.arguments.clone(),
        });
        messages.push(Message::ToolResult {
            id,
            name: guess.tool.clone(),
            output: guess.result.clone(),
        });
        messages
    }

    /// Keeps an event of the held-back generation after the current one.
    pub(super) fn hold_next(&mut self, event: LlmEvent) {
        self.held.assumed.hold(&mut self.common, event);
    }

    /// Handles the commit of a call: the words before it are said now, or never if the answer to the call is
    /// there already. Returns the arguments for the history.
    pub(super) fn meet_assumption(
        &mut self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Map<String, Value> {
        self.common.timers.clear(Timer::FillerHeld);
        let taken = self.run_for(name, &arguments);
        let generation = self.answer.as_mut().and_then(Answer::generation);
        let unsaid = generation.map(Generation::end_withholding);
        let unsaid = unsaid.unwrap_or_default();
        let seen = self.held.assumed.commit(&mut self.common, taken, &unsaid);
        match seen {
            Some(seen) => {
                if let Some(answer) = &mut self.answer {
                    answer.dead_air.leave_unsaid(unsaid.len());
                }
                seen
            }
            None => {
                self.say_before_call(unsaid);
                arguments
            }
        }
    }

    /// Says the words before a call.
    pub(super) fn say_before_call(&mut self, clauses: Vec<String>) {
        self.say_clauses(clauses);
        if let Some(answer) = &mut self.answer {
            answer.items.close();
        }
    }

    /// Says the words that were held back: the call that was assumed takes too long, or will not come.
    pub(super) fn release_filler(&mut self) {
        self.common.timers.clear(Timer::FillerHeld);
        let generation = self.answer.as_mut().and_then(Answer::generation);
        let Some(generation) = generation else {
            return;
        };
        let is_calling = generation.open_call().is_some();
        let clauses = generation.end_withholding();
        match is_calling {
            true => self.say_before_call(clauses),
            false => self.say_clauses(clauses),
        }
    }

    /// Limits how long the model's words are held back.
    pub(super) fn watch_withheld(&mut self) {
        let generation = self.answer.as_mut().and_then(Answer::generation);
        let withholds = generation.is_some_and(|generation| generation.withholds_for_call());
        if withholds && !self.common.timers.is_set(Timer::FillerHeld) {
            let end = self.common.now + HOLD;
            self.held.assumed.withhold(self.common.now);
            self.common.timers.set(Timer::FillerHeld, end);
        }
    }

    /// Asks the model, and the draft model beside it, or takes over a generation with this prompt.
    pub(super) fn taken_or_asked(&mut self, prompt: Prompt, outside: bool) -> Taken {
        if !outside {
            if let Some(taken) = self.held.preempt.take(&mut self.common, &prompt) {
                return taken;
            }
            self.speculation.forget_open_call();
            if let Some(taken) = self.held.assumed.take(&mut self.common, &prompt) {
                // While its call was only assumed, nothing was drafted from the result.
                let is_drafted = self.speculation.is_drafted(taken.request);
                if !is_drafted && taken.is_undecided() && self.wants_draft(&prompt) {
                    self.ask_draft(taken.request, prompt);
                }
                return taken;
            }
        }
        let draft = (!outside && self.wants_draft(&prompt)).then(|| prompt.clone());
        let taken = Taken::begin(&mut self.common, prompt);
        if let Some(prompt) = draft {
            self.ask_draft(taken.request, prompt);
        }
        taken
    }
}
