//! Clients that run their own recogniser and voice. The user's speech arrives as text. On a barge-in the
//! client has already stopped the agent's voice, and reports which words were heard.

use super::Conversation;
use crate::conversation::Event;
use crate::conversation::timer::Timer;
use crate::conversation::utterance::Utterance;
use crate::time::Micros;

/// If no words come for this long, the turn ends with the words so far. Twilio can be configured to wait for
/// up to 5 s of silence before it sends the final transcript.
const WORDS_OVERDUE: Micros = Micros::from_ms(6_000);

impl Conversation {
    /// Handles a partial transcript, or with `last` the final one.
    pub(super) fn on_said(&mut self, text: &str, last: bool) {
        let text = text.trim();
        if self.ending.machine.is_heard() {
            if last {
                self.leave_message();
            } else if self.ending.machine.is_read() {
                self.await_words();
            }
            return;
        }
        if !self.turn.is_open() {
            if text.is_empty() {
                return;
            }
            self.begin_words();
            if self.client.turn_detection.interrupt {
                self.barge_in();
            }
        }
        self.mark_user_active();
        if let Some(utterance) = self.turn.utterance_mut() {
            utterance.on_words(text, self.common.now);
        }
        if last {
            return self.end_turn(text);
        }
        self.on_partial(text);
        self.await_words();
    }

    /// Handles the client's report that it stopped the agent, and the words that were heard. Words that match
    /// what the agent said are trusted; otherwise the playout estimate is used.
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
            self.confirmation
                .abandon_unheard(&mut self.common, &mut self.history);
        }
        // The playout estimate may have counted more as heard.
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

    /// Handles a barge-in whose words are still to come. If none follow, it was a false interruption, and the
    /// agent says the rest.
    fn stop_for_words(&mut self) {
        if !self.turn.is_open() {
            self.begin_words();
        }
        self.await_words();
        self.barge_in();
    }

    /// Handles the client's report that its voice has finished.
    pub(super) fn on_voice_ended(&mut self) {
        if self.playout.end(self.common.now) {
            self.confirmation.was_heard(self.common.now);
        }
    }

    /// A key was the cause of the client's interruption: no words will follow.
    pub(super) fn drop_wordless_utterance(&mut self) {
        if !self.turn.utterance().is_some_and(Utterance::is_wordless) {
            return;
        }
        self.confirmation.resume();
        self.drop_utterance();
    }

    /// A key without a meaning was the cause of the client's interruption: the agent resumes.
    pub(super) fn resume_after_key(&mut self) {
        if self.turn.utterance().is_some_and(Utterance::is_wordless) {
            self.end_turn("");
        }
    }

    /// Ends the turn with the words so far, since no more have come.
    pub(super) fn on_words_overdue(&mut self) {
        let said = self.turn.utterance().map(|u| u.words().to_owned());
        self.end_turn(&said.unwrap_or_default());
    }

    fn begin_words(&mut self) {
        self.mark_user_active();
        self.turn.begin_words(&mut self.common);
    }

    fn await_words(&mut self) {
        self.common
            .timers
            .set(Timer::AudioStalled, self.common.now + WORDS_OVERDUE);
    }
}
