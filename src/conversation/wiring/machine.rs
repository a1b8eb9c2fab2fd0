//! An answering machine at the other end of a call that the server has placed.

use super::Conversation;
use crate::conversation::endpointer::Window;
use crate::conversation::machine::Machine;
use crate::conversation::outcome::{HangUpReason, ResponseStatus};
use crate::conversation::output::Event;
use crate::time::{Micros, Samples};

impl Conversation {
    /// Watches a call that the server has placed. A machine gets this message, or is hung up on if it is empty.
    pub(super) fn watch_for_machine(&mut self, message: String) {
        self.ending.machine = Machine::watch(message, self.common.now);
    }

    /// Whether these words of the user's, which are `all` of the turn's, tell that a machine has answered. Nothing that
    /// it says is answered.
    pub(super) fn meets_machine(&mut self, words: &str, all: bool) -> bool {
        let now = self.common.now;
        // Only who speaks first can be a machine that greets; later a person may dictate something.
        let is_first = self.history.is_unanswered();
        let utterance = self.turn.utterance().filter(|_| is_first);
        let spoken = utterance.map_or(Micros(0), |utterance| match utterance.is_in_words() {
            true => now.since(utterance.began()),
            false => {
                let speech = utterance.last_speech().since(utterance.from());
                Micros::of_samples(speech, Samples::RATE)
            }
        });
        if !self.ending.machine.answers(words, all, spoken, now) {
            return false;
        }
        let ends_turns = self.turn.utterance().is_some_and(|u| u.is_in_words());
        self.listen_to_machine();
        // There is no audio by which its silence could be told: its last words tell it.
        if ends_turns && all {
            self.leave_message();
        }
        true
    }

    /// Handles the end of an answering machine's tone: the message is left now.
    pub(super) fn on_beep(&mut self) {
        if self.ending.machine.beeps(self.common.now) {
            self.listen_to_machine();
        }
        self.leave_message();
    }

    /// Hears a machine.
    pub(super) fn on_machine_window(&mut self, window: Window) {
        if self.ending.machine.on_window(window) {
            self.leave_message();
        }
    }

    /// Stops speaking, and answers nothing any more.
    fn listen_to_machine(&mut self) {
        self.common.notify(Event::MachineAnswered);
        self.agenda.silence.is_broken(&mut self.common);
        self.barge_in();
        self.stop_for_good(ResponseStatus::Interrupted);
        self.turn.forget_committed();
        self.drop_utterance();
        self.drop_held();
        self.agenda.clear_announcements();
        self.agenda.take_next_answer();
        if !self.ending.machine.has_message() {
            self.leave_message();
        }
    }

    /// Says the message, if there is one, and hangs up after it.
    pub(super) fn leave_message(&mut self) {
        let Some(message) = self.ending.machine.take_message() else {
            return;
        };
        if !message.is_empty() {
            self.agenda.announce_only(message);
        }
        self.ending.hang_up_for(HangUpReason::Machine);
    }
}
