//! Clients with a recogniser and a voice of their own: what the user says comes in as words, and when
//! the user speaks over the agent, the client has stopped it already and tells which words were heard.

use super::Conversation;
use crate::conversation::Event;
use crate::conversation::timer::Timer;
use crate::conversation::utterance::Utterance;
use crate::time::Micros;

/// The client owes the words that end a turn so long after the last that came: the longest silence
/// that Twilio can be told to wait for is 5 s.
const WORDS_OVERDUE: Micros = Micros::from_ms(6_000);

impl Conversation {
    /// Handles the user's words so far, or, with `last`, all of them.
    pub(super) fn on_said(&mut self, text: &str, last: bool) {
        let text = text.trim();
        if !self.turn.is_open() {
            if text.is_empty() {
                return;
            }
            self.begin_words();
            if self.client.turn_detection.interrupt {
                self.barge_in();
            }
        }
        self.hear_from_user();
        if let Some(utterance) = self.turn.utterance_mut() {
            utterance.on_words(text, self.common.now);
        }
        if last {
            return self.end_turn(text);
        }
        self.on_partial(text);
        self.await_words();
    }

    /// The client has stopped the agent: these are the words that were heard. What they are of the
    /// agent's words is believed; words that the agent has not said leave it to the clock.
    pub(super) fn on_stopped(&mut self, words: &str) {
        let heard = self.history.heard_with(words);
        self.playout.correct(self.common.now, &heard);
        if heard
            .iter()
            .any(|(item, heard)| *heard < self.history.length(*item))
        {
            self.confirmation.was_not_heard(&mut self.common);
        }
        let amid_an_item = self.answer.as_ref().is_some_and(|a| a.items.is_speaking());
        if self.playout.audible_until() > self.common.now || amid_an_item {
            self.stop_for_words();
        } else {
            self.confirmation.was_heard(self.common.now);
            self.confirmation.abandon_unheard(&mut self.common);
        }
        // The clock may have taken more for heard.
        for (item, heard) in heard {
            let before = self.history.spoken_text(item);
            if let Some(text) = self.history.cut(item, heard)
                && text != before
            {
                self.common
                    .notify(Event::ItemTruncated { item, heard, text });
            }
        }
    }

    /// The user has spoken over the agent, and the words are still to come. If none do, the agent
    /// says what was not heard.
    fn stop_for_words(&mut self) {
        if !self.turn.is_open() {
            self.begin_words();
        }
        self.await_words();
        self.barge_in();
    }

    /// The client's voice has said all that it was given, as far as the client knows.
    pub(super) fn on_voice_ended(&mut self) {
        if self.playout.end(self.common.now) {
            self.confirmation.was_heard(self.common.now);
        }
    }

    /// It was a key that the client has stopped the agent for: no words will come.
    pub(super) fn expect_no_words(&mut self) {
        if !self.turn.utterance().is_some_and(Utterance::is_wordless) {
            return;
        }
        self.confirmation.resume();
        self.drop_utterance();
    }

    /// It was a key that means nothing: what the client has stopped goes on.
    pub(super) fn expect_nothing(&mut self) {
        if self.turn.utterance().is_some_and(Utterance::is_wordless) {
            self.end_turn("");
        }
    }

    /// No more words come: what was said so far is all.
    pub(super) fn on_words_overdue(&mut self) {
        let said = self.turn.utterance().map(|u| u.words().to_owned());
        self.end_turn(&said.unwrap_or_default());
    }

    fn begin_words(&mut self) {
        self.hear_from_user();
        self.turn.begin_words(&mut self.common);
    }

    fn await_words(&mut self) {
        self.common
            .timers
            .set(Timer::AudioStalled, self.common.now + WORDS_OVERDUE);
    }
}
