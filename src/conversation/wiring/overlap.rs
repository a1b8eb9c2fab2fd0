//! Speech over the agent's voice, until it is known whether it interrupts.

use super::Conversation;
use crate::conversation::utterance::Utterance;
use crate::conversation::{Event, Micros, Samples};
use crate::prediction::Moment;

impl Conversation {
    /// Begins an utterance. Over the agent's voice it may have to be judged before it interrupts; a yes to a
    /// question that waits for one interrupts at once.
    pub(super) fn begin_speech(&mut self, at: Samples) {
        let interrupts = self.client.turn_detection.interrupt;
        let heard = self.playout.heard_for(self.common.now);
        let policy = self.common.policy.vad.barge_in;
        let is_free = interrupts && !self.confirmation.is_open();
        if is_free && policy.waits_for_words(heard) {
            return self.turn.begin_overlap(&self.common, at);
        }
        self.turn.begin_speech(&mut self.common, at);
        // An okay to a goodbye or a transfer belongs in the history.
        if is_free && policy.pauses() && heard > Micros(0) && !self.ending.is_near() {
            self.turn.stops_agent();
        }
        if interrupts {
            self.barge_in();
        }
        self.route_before_words(Moment::Speech);
    }

    /// Interrupts the agent if the speech over its voice is now known to.
    pub(super) fn judge_overlap(&mut self) {
        let policy = self.common.policy.vad.barge_in;
        if self.turn.must_interrupt(policy, self.common.language()) {
            self.interrupt();
        }
    }

    /// The speech over the agent's voice interrupts it.
    pub(super) fn interrupt(&mut self) {
        self.turn.interrupt(&mut self.common);
        self.barge_in();
        self.route_before_words(Moment::Speech);
        let words = self.turn.utterance().map(Utterance::words);
        if let Some(words) = words.filter(|words| !words.is_empty()) {
            let text = words.to_owned();
            self.route(&text, false);
            self.common.notify(Event::PartialTranscript { text });
        }
    }

    /// Handles the end of speech with these words that has not interrupted the agent. `true` if the agent speaks
    /// on.
    pub(super) fn end_overlap(&mut self, text: &str) -> bool {
        if !self.turn.is_unheeded() {
            return false;
        }
        if text.is_empty() || (self.keeps_turn() && !self.interrupts(text)) {
            return self.ignore_overlap();
        }
        self.interrupt();
        false
    }

    /// Handles the end of speech that has not interrupted the agent and whose words are lost. `true` if the agent speaks
    /// on.
    pub(super) fn lose_overlap(&mut self) -> bool {
        if !self.turn.is_unheeded() || self.keeps_turn() {
            return self.ignore_overlap();
        }
        self.interrupt();
        false
    }

    /// Whether the agent has more to say and asks nothing, so that words over its voice may mean nothing.
    fn keeps_turn(&self) -> bool {
        let has_more = self.answer.is_some() || self.playout.audible_until() > self.common.now;
        has_more && !self.playout.is_asking(self.common.now)
    }

    /// Whether an utterance with these words should not have interrupted the agent, as it did before they were
    /// known. A "please" behind a turn belongs to it, also if nothing of the answer was heard. Listening words are a
    /// turn if nothing is left to say.
    pub(super) fn was_nothing(&self, text: &str) -> bool {
        let has_more = || self.interruption.has_more() || self.ending.is_near();
        let listens = || self.turn.has_interrupted() && has_more() && !self.interrupts(text);
        let adds_nothing = || self.common.language().is_politeness(text);
        // "Would you like to hear it?" "Please."
        let is_reply = self.interruption.was_asking();
        self.interruption.is_judging() && !is_reply && (listens() || adds_nothing())
    }

    fn interrupts(&self, text: &str) -> bool {
        let policy = self.common.policy.vad.barge_in;
        policy.interrupts(text, self.common.language())
    }

    /// Drops the utterance if it has not interrupted the agent. `false` if it has.
    pub(super) fn ignore_overlap(&mut self) -> bool {
        self.turn.is_unheeded() && self.turn.end(&mut self.common).is_some()
    }
}
