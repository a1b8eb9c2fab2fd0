//! The answer that is being given: the model's generation, its calls, the items that are spoken, and how
//! it ends.

use super::answer_end::Length;
use super::calls::Calls;
use super::common::Common;
use super::filler::DeadAir;
use super::generation::Generation;
use super::history::History;
use super::ids::{ClauseId, ItemId, RequestId, TurnId};
use super::input::ResponseTerms;
use super::interruption::Unfinished;
use super::latency::{Stamps, TurnLatency};
use super::outcome::ResponseStatus;
use super::output::Event;
use super::playout::Playout;
use super::policy::AnswerPolicy;
use crate::llm::TokenUsage;
use crate::time::Time;

#[cfg(test)]
mod tests;

/// Whose words they are, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// The model's.
    Answer,
    /// Ours, in place of an answer.
    Own,
    /// Said while the user waits.
    Filler,
}

/// An answer that is to be given when nobody speaks.
#[derive(Debug, Default)]
pub(super) struct NextAnswer {
    pub(super) terms: ResponseTerms,
    /// The client has asked for it.
    pub(super) requested: bool,
}

impl NextAnswer {
    pub(super) fn requested(terms: ResponseTerms) -> Self {
        let requested = true;
        Self { terms, requested }
    }
}

/// An answer that is being given.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) turn: TurnId,
    pub(super) terms: ResponseTerms,
    /// Items of the history before it began.
    pub(super) history: usize,
    pub(super) stamps: Stamps,
    usage: TokenUsage,
    pub(super) generation: Option<Generation>,
    pub(super) items: Items,
    pub(super) calls: Calls,
    pub(super) dead_air: DeadAir,
    pub(super) length: Length,
    /// Something other than fillers has been said since the generation began.
    has_spoken: bool,
    /// The model may keep silent: nothing has been said or done since the agent last spoke.
    pub(super) nothing_new: bool,
    failure: Option<Failure>,
}

/// How an answer has failed. The user has been told, or cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Something has failed before the voice.
    Stage,
    /// The voice has failed, and perhaps something before it.
    Voice,
}

impl Answer {
    /// Nothing of it has been said.
    pub(super) fn new(
        turn: TurnId,
        now: Time,
        latency: TurnLatency,
        terms: ResponseTerms,
        history: usize,
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
            length: Length::within(most),
            has_spoken: false,
            nothing_new: false,
            failure: None,
        }
    }

    /// More of the model may come than it has said so far.
    pub(super) fn may_go_on(&self) -> bool {
        self.failure.is_none() && !self.length.is_cut
    }

    /// More is to come than what is already in words.
    pub(super) fn is_unfinished(&self) -> bool {
        (self.is_generating() || self.calls.are_under_way()) && !self.length.is_cut
    }

    /// Something is still being made: the model's words, or a result.
    pub(super) fn is_being_made(&self) -> bool {
        self.is_generating() || (!self.calls.open().is_empty() && self.may_go_on())
    }

    /// Takes everything that is needed to resume the answer after a false interruption.
    pub(super) fn unfinished(&mut self) -> Box<Unfinished> {
        Box::new(Unfinished {
            terms: std::mem::take(&mut self.terms),
            history: self.history,
            steps: self.calls.rounds(),
            has_called: self.calls.are_under_way(),
        })
    }

    /// Something other than fillers has been said since the generation began.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// How it ends if it ends by itself.
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

    /// The voice has failed. `false` if it has failed before, so that not even an apology can be spoken.
    pub(super) fn voice_fails(&mut self) -> bool {
        self.failure.replace(Failure::Voice) != Some(Failure::Voice)
    }
}

/// The generation.
impl Answer {
    pub(super) fn begin_generation(&mut self, generation: Generation, asked: Time) {
        self.generation = Some(generation);
        self.has_spoken = false;
        self.calls.were_told();
        self.stamps.latency.generation.get_or_insert(asked);
    }

    pub(super) fn is_generating(&self) -> bool {
        self.generation.is_some()
    }

    /// The generation that is running.
    pub(super) fn generation(&mut self) -> Option<&mut Generation> {
        self.generation.as_mut()
    }

    /// The request of the running generation.
    pub(super) fn request(&self) -> Option<RequestId> {
        self.generation.as_ref().map(Generation::request)
    }

    /// The model has ended, and all its words are queued. Returns why that is a failure, if it is one.
    /// A limit of the client's (`has_limit`) may leave an answer without a word, ours may not.
    pub(super) fn end_generation(&mut self, has_limit: bool) -> Option<&'static str> {
        self.items.close();
        let generation = self.take_generation()?;
        let (is_cut, has_called) = (generation.is_cut(), generation.has_begun_call());
        // A call that our own limit cut is told to the model, and silence is not what the user hears.
        let is_answer = self.has_spoken && !has_called;
        self.length.is_cut |= is_cut && (has_limit || is_answer);
        let is_silent = !self.has_spoken && (!has_called || generation.has_overstepped());
        let may_be_silent = self.nothing_new && self.calls.rounds() == 0 && !is_cut;
        if !is_silent || may_be_silent || self.length.is_cut {
            return None;
        }
        Some(match is_cut {
            true => "the language model reached its most tokens before its first word",
            false => "the language model said nothing",
        })
    }

    /// Stops the model: returns the request that is to be cancelled.
    pub(super) fn stop_generation(&mut self) -> Option<RequestId> {
        self.items.close();
        self.take_generation()
            .map(|generation| generation.request())
    }

    /// Gives up the rest of the answer. Returns the generation, whose last words are still said.
    pub(super) fn fail(&mut self) -> Option<Generation> {
        self.failure.get_or_insert(Failure::Stage);
        self.take_generation()
    }

    /// The tokens so far are counted.
    fn take_generation(&mut self) -> Option<Generation> {
        let generation = self.generation.take()?;
        self.usage.add(generation.usage());
        Some(generation)
    }

    /// The tokens of its generations before the running one.
    pub(super) fn earlier_usage(&self) -> TokenUsage {
        self.usage
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

/// The speech.
impl Answer {
    /// Queues a clause, to be spoken behind all others.
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
        let index = history.add_clause(item, &text);
        let of_model = words == Words::Answer;
        playout.push(clause, (item, index), text, of_model);
        clause
    }

    /// The client is about to hear a clause, the first time: tells it. What was sent before is heard
    /// until `sent_until`.
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
        if self.items.announce(item) {
            common.notify(Event::AgentItemStarted { item });
        }
        common.notify(Event::AgentSpeech { item, clause, text });
        true
    }
}

/// The items of an answer, from words to sound.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Those that are not done, oldest first.
    open: Vec<ItemId>,
    /// Those that the client was told of.
    announced: Vec<ItemId>,
    /// The one that the next clause belongs to.
    current: Option<ItemId>,
}

impl Items {
    /// The item that the next clause belongs to: `fresh` if it begins one.
    fn current(&mut self, fresh: ItemId) -> ItemId {
        if self.current.is_none() {
            self.open.push(fresh);
        }
        *self.current.get_or_insert(fresh)
    }

    /// The next clause begins another item.
    pub(super) fn close(&mut self) {
        self.current = None;
    }

    /// Those that are not done, oldest first.
    pub(super) fn open(&self) -> &[ItemId] {
        &self.open
    }

    /// The client is told of an item. `false` if it has been told before.
    fn announce(&mut self, item: ItemId) -> bool {
        let is_new = !self.was_announced(item);
        if is_new {
            self.announced.push(item);
        }
        is_new
    }

    fn has_announced_none(&self) -> bool {
        self.announced.is_empty()
    }

    pub(super) fn was_announced(&self, item: ItemId) -> bool {
        self.announced.contains(&item)
    }

    /// Something is being said that has not ended.
    pub(super) fn is_speaking(&self) -> bool {
        self.open.iter().any(|item| self.was_announced(*item))
    }

    /// Takes the oldest item if it is done: all of it was sent, and no generation adds to it.
    pub(super) fn take_done(
        &mut self,
        is_generating: bool,
        was_sent: impl Fn(ItemId) -> bool,
    ) -> Option<ItemId> {
        let item = *self.open.first()?;
        let is_current = self.current == Some(item);
        if is_current && is_generating || !was_sent(item) {
            return None;
        }
        if is_current {
            self.close();
        }
        Some(self.open.remove(0))
    }
}
