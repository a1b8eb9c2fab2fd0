//! The opening: at once, or when the client has set up the session.

use super::Conversation;
use crate::conversation::opening::LONGEST_WAIT;
use crate::conversation::timer::Timer;

impl Conversation {
    /// Queues the opening, if there is one, or holds it for the client.
    pub(super) fn begin_opening(&mut self) {
        let opening = &self.common.policy.opening;
        let words = opening.words();
        if words.is_empty() {
            return;
        }
        if !opening.waits_for_client {
            return self.agenda.announce(words);
        }
        self.agenda.hold_opening();
        let until = self.common.now + LONGEST_WAIT;
        self.common.timers.set(Timer::OpeningHeld, until);
    }

    /// Has an opening spoken that is held.
    pub(super) fn release_opening(&mut self) {
        self.common.timers.clear(Timer::OpeningHeld);
        self.agenda.release_opening();
    }

    /// Says an opening that has waited. `false` if none is due.
    pub(super) fn say_opening(&mut self) -> bool {
        let is_due = self.agenda.take_opening();
        if is_due {
            self.history.opens();
            let words = self.common.policy.opening.words();
            self.say(&words);
        }
        is_due
    }
}
