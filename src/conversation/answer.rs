//! The current answer: its generation, tool calls, spoken items, and how it ends.

use super::answer_end::{AnswerPolicy, Length};
use super::assumed::{HOLD, Main};
use super::calls::Calls;
use super::common::Common;
use super::filler::DeadAir;
use super::gain::Gains;
use super::generation::Generation;
use super::history::History;
use super::ids::{CallId, ClauseId, RequestId, TurnId};
use super::input::{MaxTokens, ResponseTerms};
use super::interruption::Unfinished;
use super::items::Items;
use super::latency::{Stamps, TurnLatency};
use super::outcome::ResponseStatus;
use super::output::Event;
use super::playout::{Playout, Words};
use super::wait::left;
use crate::llm::TokenUsage;
use crate::time::{Micros, Time};

#[cfg(test)]
mod tests;

/// A queued answer, given when nobody speaks.
#[derive(Debug, Default)]
pub(super) struct NextAnswer {
    pub(super) terms: ResponseTerms,
    /// The client requested it.
    pub(super) requested: bool,
}

impl NextAnswer {
    pub(super) fn requested(terms: ResponseTerms) -> Self {
        let requested = true;
        Self { terms, requested }
    }
}

/// The current answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) turn: TurnId,
    pub(super) terms: ResponseTerms,
    /// The items that had been added to the history when it began.
    pub(super) history: u64,
    pub(super) stamps: Stamps,
    usage: TokenUsage,
    pub(super) generation: Option<Generation>,
    pub(super) items: Items,
    pub(super) calls: Calls,
    pub(super) dead_air: DeadAir,
    pub(super) gains: Gains,
    pub(super) length: Length,
    /// Something other than a filler was queued since the generation began.
    has_spoken: bool,
    /// Nothing was said or done since the agent last spoke, so the model may say nothing.
    pub(super) nothing_new: bool,
    failure: Option<Failure>,
    /// Rounds of tools that the model's server answered by itself.
    pub(super) continued: u32,
}

/// How an answer failed. The user was told, if the voice still works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// A stage before the voice failed.
    Stage,
    /// The voice failed, perhaps after an earlier stage.
    Voice,
}

/// The consequence of a generation that broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakOff {
    /// The answer fails, and the user hears an apology.
    Fails,
    /// The answer goes on. `within_call`: the open call is refused.
    GoesOn { within_call: bool },
}

/// A generation that ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// By a limit of the client, which is told the status `Incomplete`; the user hears an apology.
    Cut,
    /// For this reason.
    Failed(&'static str),
}

/// The tokens left of `most` after `used`: at least one. `None` if there is no limit.
pub(super) fn tokens_left(most: MaxTokens, used: u64) -> Option<u32> {
    let most = most.number()?;
    let used = u32::try_from(used).unwrap_or(most);
    Some(most.saturating_sub(used).max(1))
}

impl Answer {
    /// An answer of which nothing has been said.
    pub(super) fn new(
        turn: TurnId,
        now: Time,
        latency: TurnLatency,
        terms: ResponseTerms,
        history: u64,
        most: AnswerPolicy,
    ) -> Self {
        Self {
            turn,
            terms,
            history,
            stamps: Stamps::from(latency),
            usage: TokenUsage::default(),
            generation: None,
            items: Items::default(),
            calls: Calls::default(),
            dead_air: DeadAir::since(now),
            gains: Gains::default(),
            length: Length::within(most),
            has_spoken: false,
            nothing_new: false,
            failure: None,
            continued: 0,
        }
    }

    /// Whether the model may be asked for more.
    pub(super) fn may_go_on(&self) -> bool {
        self.failure.is_none() && !self.length.is_cut
    }

    /// Whether more is to come than the words so far.
    pub(super) fn is_unfinished(&self) -> bool {
        (self.is_generating() || self.calls.are_under_way()) && !self.length.is_cut
    }

    /// Whether a generation or a tool of this answer is still running.
    pub(super) fn is_being_made(&self) -> bool {
        self.is_generating() || (!self.calls.open().is_empty() && self.may_go_on())
    }

    /// Takes everything that is needed to resume the answer after a false interruption.
    pub(super) fn unfinished(&mut self) -> Box<Unfinished> {
        Box::new(Unfinished {
            terms: std::mem::take(&mut self.terms),
            history: self.history,
            calls: self.calls.open(),
            steps: self.calls.rounds(),
            has_called: self.calls.are_under_way(),
            is_for_client: self.calls.has_client_calls(),
            said_all: (self.has_spoken || self.nothing_new) && !self.calls.are_under_way(),
        })
    }

    /// Whether a call is under way, or its result is known and the model has not said a word about it.
    pub(super) fn awaits_result(&self) -> bool {
        let is_next = self.calls.rounds() > 0 && self.is_generating() && !self.has_spoken;
        self.calls.are_under_way() || is_next
    }

    /// Whether something other than a filler was queued since the generation began.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// The status if nobody interrupts it.
    pub(super) fn status(&self) -> ResponseStatus {
        if self.has_failed() {
            ResponseStatus::Failed
        } else if self.length.is_cut {
            ResponseStatus::Incomplete
        } else {
            ResponseStatus::Completed
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether the voice has failed, so that nothing but an apology is worth a try.
    pub(super) fn has_lost_its_voice(&self) -> bool {
        self.failure == Some(Failure::Voice)
    }

    /// Notes that the voice failed. `false` if it had failed before, so that not even an apology can be
    /// spoken.
    pub(super) fn voice_fails(&mut self) -> bool {
        self.failure.replace(Failure::Voice) != Some(Failure::Voice)
    }
}

/// Its generation.
impl Answer {
    pub(super) fn begin_generation(&mut self, generation: Generation, asked: Time) {
        self.generation = Some(generation);
        self.dead_air.announced.begin_generation();
        self.has_spoken = false;
        self.calls.were_told();
        self.stamps.latency.generation.get_or_insert(asked);
    }

    /// The model's server goes on with the answer to all calls so far: a round of its own.
    pub(super) fn go_on(&mut self) {
        if let Some(generation) = &mut self.generation {
            generation.go_on();
        }
        self.items.close();
        self.dead_air.announced.begin_generation();
        self.has_spoken = false;
        self.begin_round();
        self.calls.were_told();
        self.continued += 1;
    }

    /// A generation with new results begins.
    pub(super) fn begin_round(&mut self) {
        self.calls.begin_round();
        self.nothing_new = false;
    }

    pub(super) fn is_generating(&self) -> bool {
        self.generation.is_some()
    }

    /// The running generation.
    pub(super) fn generation(&mut self) -> Option<&mut Generation> {
        self.generation.as_mut()
    }

    /// The generation whose calls so far all have results, so that only the rest of its stream is missing.
    pub(super) fn awaits_only_the_stream(&self) -> Option<RequestId> {
        let generation = self.generation.as_ref()?;
        let has_results = generation.has_called()
            && generation.open_call().is_none()
            && self.calls.have_all_results();
        (has_results && self.may_go_on()).then(|| generation.request())
    }

    /// The generation whose next event may be its first call or the end of that call, and whether words before it have
    /// been said, which are complete then. `ends`: a call is going to end the conversation.
    pub(super) fn may_call_next(&self, now: Time, ends: bool) -> Option<(RequestId, bool)> {
        if self.calls.are_under_way() || ends {
            return None;
        }
        let generation = self.generation.as_ref().filter(|g| g.may_call())?;
        let has_begun = generation.open_call().is_some();
        let may = match has_begun {
            true => !generation.has_called(),
            // Later the words before the call would have to be held back for too long.
            false => {
                let in_time = now.since(generation.asked()) <= HOLD;
                in_time && !self.has_spoken && !generation.has_begun_call()
            }
        };
        may.then(|| (generation.request(), self.has_spoken))
    }

    /// The state of the generation `request`, which another one follows.
    pub(super) fn main(&self, request: RequestId) -> Main<'_> {
        match self.generation.as_ref().filter(|g| g.request() == request) {
            Some(generation) => Main::Streams {
                spoken: self.has_spoken,
                called: generation.open_call(),
            },
            None => Main::Over,
        }
    }

    /// How long it still takes until the first event of the generation that answers, which is expected `first` after
    /// its request. `next`: the same of a held-back generation.
    pub(super) fn first_event(&self, first: Micros, next: Option<Micros>, now: Time) -> Micros {
        match &self.generation {
            Some(generation) if !self.calls.are_under_way() => {
                left(first, now.since(generation.asked()))
            }
            _ => next.unwrap_or(first),
        }
    }

    /// Whether this call is under way and nothing has been said since the generation began.
    pub(super) fn waits_in_silence(&self, call: CallId) -> bool {
        let is_silent = !self.has_spoken && self.dead_air.fillers() == 0;
        is_silent && self.calls.open().contains(&call)
    }

    /// Handles a generation that breaks off. A call that is open is refused, and the model is told. If another one is
    /// complete, the generation counts as ended, since nothing after a call is spoken; if none is, the model is asked
    /// once more.
    pub(super) fn breaks_off(&mut self) -> BreakOff {
        let Some(generation) = &self.generation else {
            return BreakOff::Fails;
        };
        let within_call =
            generation.open_call().is_some() && generation.may_call() && !self.terms.is_outside();
        // If it goes on, the words that are held back are said.
        let spoke = self.has_spoken
            || self.dead_air.announced.has_repeated()
            || generation.has_withheld_for_call();
        let goes_on = generation.has_called() || within_call && self.calls.ask_again(spoke);
        match goes_on {
            true => BreakOff::GoesOn { within_call },
            false => BreakOff::Fails,
        }
    }

    /// The request of the running generation.
    pub(super) fn request(&self) -> Option<RequestId> {
        self.generation.as_ref().map(Generation::request)
    }

    /// Ends the generation, all of whose words are queued. `most`: the client's token limit, unless the answer
    /// has its own; `own`: the operator's. Returns how the user was left without an answer, if that is so.
    pub(super) fn end_generation(
        &mut self,
        most: MaxTokens,
        own: Option<u32>,
    ) -> Option<Unanswered> {
        let most = self.terms.max_tokens.unwrap_or(most);
        let left = tokens_left(most, self.usage.output);
        let is_clients = left.is_some_and(|left| own.is_none_or(|own| left <= own));
        let is_cut = self.generation.as_ref().is_some_and(Generation::is_cut);
        let reason = self.close_generation(is_clients)?;
        if left.is_none() || !is_cut {
            return Some(Unanswered::Failed(reason));
        }
        self.length.is_cut = true;
        Some(Unanswered::Cut)
    }

    /// Ends the generation. Returns the reason if the user was left without an answer. The client's token limit
    /// (`has_limit`) may do that; the operator's may not.
    fn close_generation(&mut self, has_limit: bool) -> Option<&'static str> {
        self.items.close();
        let generation = self.take_generation()?;
        let (is_cut, has_called) = (generation.is_cut(), generation.has_begun_call());
        // If the operator's limit cuts a call, the model is told and asked again, so that the user does not
        // hear silence.
        let is_answer = self.has_spoken && !has_called;
        self.length.is_cut |= is_cut && (has_limit || is_answer);
        let oversteps = generation.leaves_the_user_waiting();
        let is_silent = oversteps || (!self.has_spoken && !has_called);
        let may_be_silent = self.nothing_new && !is_cut;
        if !is_silent || may_be_silent || self.length.is_cut {
            return None;
        }
        Some(match is_cut {
            true => "the language model reached its most tokens before its first word",
            false if oversteps => "the language model called a tool that it must not call",
            false => "the language model said nothing",
        })
    }

    /// Stops the model. Returns the request to cancel.
    pub(super) fn stop_generation(&mut self) -> Option<RequestId> {
        self.items.close();
        self.take_generation()
            .map(|generation| generation.request())
    }

    /// Gives up the rest of the answer. Returns the generation, of which whole sentences are still spoken.
    pub(super) fn fail(&mut self) -> Option<Generation> {
        self.failure.get_or_insert(Failure::Stage);
        self.take_generation()
    }

    /// Takes the generation and adds up its tokens.
    fn take_generation(&mut self) -> Option<Generation> {
        let generation = self.generation.take()?;
        self.usage.add(generation.usage());
        Some(generation)
    }

    /// The tokens of all its generations.
    pub(super) fn usage(&self) -> TokenUsage {
        let mut usage = self.usage;
        usage.add(
            self.generation
                .as_ref()
                .map(Generation::usage)
                .unwrap_or_default(),
        );
        usage
    }
}

/// Its speech.
impl Answer {
    /// The announcement that the generation has repeated, if it ends without another word or a call: it is its answer.
    pub(super) fn repeated_alone(&mut self) -> Option<String> {
        let has_called = self.generation.as_ref()?.has_begun_call();
        let alone = self.dead_air.announced.take_repeated()?;
        (!has_called && !self.length.is_cut).then_some(alone)
    }

    /// Queues a clause after all others.
    pub(super) fn queue(
        &mut self,
        common: &mut Common,
        history: &mut History,
        playout: &mut Playout,
        text: String,
        words: Words,
    ) -> ClauseId {
        let clause = ClauseId(common.ids.next());
        let fresh = common.item_id();
        let item = self.items.current(fresh);
        if item == fresh {
            history.begin_speech(item, self.terms.is_outside());
        }
        if words != Words::Filler {
            self.has_spoken = true;
            self.stamps.queued(clause);
        }
        if words == Words::Answer {
            self.gains.queued(clause);
        }
        let announced = &mut self.dead_air.announced;
        announced.queue(&text, words, common.language());
        let index = history.add_clause(item, &text);
        let expected = common.spoken_length(&text);
        playout.push(clause, (item, index), (text, expected), words);
        clause
    }

    /// Announces a clause to the client, once, before its first audio. `false` if it was announced before.
    pub(super) fn announce(
        &mut self,
        common: &mut Common,
        playout: &mut Playout,
        clause: ClauseId,
    ) -> bool {
        let sent_until = playout.sent_until();
        let Some(said) = playout.get(clause).filter(|clause| !clause.announced) else {
            return false;
        };
        said.announced = true;
        let (item, text) = (said.item, said.text.clone());
        let is_first = self.items.has_announced_none();
        self.stamps.heard(common.now, clause, sent_until, is_first);
        self.gains.heard(clause, common.now, sent_until);
        if self.items.announce(item) {
            common.notify(Event::AgentItemStarted { item });
        }
        common.notify(Event::AgentSpeech { item, clause, text });
        true
    }
}
