//! Telephone keys.

use super::Conversation;
use crate::conversation::keypad::Keypad;
use crate::conversation::latency::TurnLatency;

impl Conversation {
    /// Handles one key.
    pub(super) fn press(&mut self, key: char) {
        if !Keypad::has(key) {
            let message = format!("{key:?} is no key of a telephone");
            return self.common.refuse("Key", message);
        }
        self.mark_user_active();
        self.ending.stays();
        if self.keypad.ends_nothing(key) {
            return self.resume_after_key();
        }
        self.drop_wordless_utterance();
        if let Some(call) = self.confirmation.awaited_by_key()
            && let Some(accepted) = self.keypad.answer(key)
        {
            return self.confirm(call, accepted);
        }
        if self.client.turn_detection.interrupt {
            self.barge_in();
            self.forget_interrupted();
            self.confirmation
                .abandon_unheard(&mut self.common, &mut self.history);
        }
        if self.keypad.push(&mut self.common, key) {
            self.take_keys();
        }
    }

    /// Handles a complete key sequence.
    pub(super) fn take_keys(&mut self) {
        let user_speaks = self.turn.is_open();
        let keys = self.keypad.take(&mut self.common, user_speaks);
        if let Some(keys) = keys {
            let latency = TurnLatency::of_turn_at(self.common.now);
            let text = format!("Keypad: {keys}");
            self.take_user_turn(&text, false, self.common.now, latency);
        }
    }
}
