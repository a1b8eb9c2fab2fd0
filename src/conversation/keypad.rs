//! The keys of a telephone: 1 and 2 answer a confirmation, anything else is typed in, to be
//! understood like words. A number is complete with the hash key, or when no key follows.

use super::common::Common;
use super::timer::Timer;
use crate::time::Micros;

#[cfg(test)]
mod tests;

/// The pause after a key that completes a number, ms.
const COMPLETE_MS: u64 = 2_000;

/// Keys of one number, enough for any account. More are not taken in.
const MOST_KEYS: usize = 40;

const YES: char = '1';
const NO: char = '2';
const ENTER: char = '#';

/// The keys that the caller has pressed.
#[derive(Debug, Default)]
pub(super) struct Keypad {
    /// A number that is being typed in.
    keys: String,
    /// The last key answered a confirmation.
    has_answered: bool,
}

impl Keypad {
    /// Whether a telephone has this key.
    pub(super) fn has(key: char) -> bool {
        matches!(key, '0'..='9' | '*' | '#' | 'A'..='D')
    }

    /// No number is being typed in.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether the key only ends an answer that is complete: "1#", since callers learn that a number ends
    /// so.
    pub(super) fn ends_answer(&mut self, key: char) -> bool {
        std::mem::take(&mut self.has_answered) && key == ENTER
    }

    /// Answers a confirmation: `Some(true)` is a yes, `None` no answer to it.
    pub(super) fn answer(&mut self, key: char) -> Option<bool> {
        let answers = self.keys.is_empty() && matches!(key, YES | NO);
        answers.then(|| {
            self.has_answered = true;
            key == YES
        })
    }

    /// The user has said something since the last key.
    pub(super) fn forget_answer(&mut self) {
        self.has_answered = false;
    }

    /// A key of a number. `true` if it is complete; else it is when no key follows.
    pub(super) fn push(&mut self, common: &mut Common, key: char) -> bool {
        let is_complete = key == ENTER;
        if !is_complete && self.keys.len() < MOST_KEYS {
            self.keys.push(key);
        }
        if !is_complete {
            wait(common);
        }
        is_complete
    }

    /// Takes the number, which is complete. It waits for the end of what the user is saying.
    pub(super) fn take(&mut self, common: &mut Common, user_speaks: bool) -> Option<String> {
        if user_speaks {
            wait(common);
            return None;
        }
        common.timers.clear(Timer::KeysComplete);
        let keys = std::mem::take(&mut self.keys);
        (!keys.is_empty()).then_some(keys)
    }
}

fn wait(common: &mut Common) {
    let complete = common.now + Micros::from_ms(COMPLETE_MS);
    common.timers.set(Timer::KeysComplete, complete);
}
