//! The keys of a telephone: 1 and 2 answer a confirmation, anything else is typed in, to be
//! understood like words. A number is complete with the hash key, or when no key follows.

use super::Conversation;
use crate::conversation::latency::TurnLatency;
use crate::conversation::timer::Timer;
use crate::time::Micros;

/// The pause after a key that completes a number, ms.
const COMPLETE_MS: u64 = 2_000;

/// Keys of one number, enough for any account. More are not taken in.
const MOST_KEYS: usize = 40;

const YES: char = '1';
const NO: char = '2';
const ENTER: char = '#';

impl Conversation {
    /// The caller pressed a key.
    pub(super) fn press(&mut self, key: char) {
        if !matches!(key, '0'..='9' | '*' | '#' | 'A'..='D') {
            let message = format!("{key:?} is no key of a telephone");
            return self.common.refuse("Key", message);
        }
        self.hear_from_user();
        if std::mem::take(&mut self.answered_by_key) && key == ENTER {
            // "1#": callers learn that a number ends so.
            return self.expect_nothing();
        }
        self.expect_no_words();
        if let Some(call) = self.confirmation.awaited_by_key()
            && self.keys.is_empty()
            && matches!(key, YES | NO)
        {
            self.answered_by_key = true;
            return self.confirm(call, key == YES);
        }
        if self.client.turn_detection.interrupt {
            self.barge_in();
            self.forget_interrupted();
            self.confirmation.abandon_unheard(&mut self.common);
        }
        if key != ENTER && self.keys.len() < MOST_KEYS {
            self.keys.push(key);
        }
        if key == ENTER {
            self.take_keys();
        } else {
            let complete = self.common.now + Micros::from_ms(COMPLETE_MS);
            self.common.timers.set(Timer::KeysComplete, complete);
        }
    }

    /// What was typed in is complete. It waits for the end of what the user is saying.
    pub(super) fn take_keys(&mut self) {
        if self.utterance.is_some() {
            let later = self.common.now + Micros::from_ms(COMPLETE_MS);
            return self.common.timers.set(Timer::KeysComplete, later);
        }
        self.common.timers.clear(Timer::KeysComplete);
        let keys = std::mem::take(&mut self.keys);
        if keys.is_empty() {
            return;
        }
        let latency = TurnLatency::of_turn_at(self.common.now);
        self.take_user_turn(&format!("Keypad: {keys}"), false, self.common.now, latency);
    }
}
