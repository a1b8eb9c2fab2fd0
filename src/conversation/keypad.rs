//! Telephone keys. 1 and 2 answer a confirmation; all other keys form a number, which is treated like words.
//! The hash key completes a number, and so does a pause.

use super::common::Common;
use super::timer::Timer;
use crate::time::Micros;

#[cfg(test)]
mod tests;

/// The pause that completes a number, ms.
const COMPLETE_MS: u64 = 2_000;

/// The most keys of one number, enough for any account number. More are ignored.
const MOST_KEYS: usize = 40;

const YES: char = '1';
const NO: char = '2';
const ENTER: char = '#';

/// The keys pressed so far.
#[derive(Debug, Default)]
pub(super) struct Keypad {
    /// The number being entered.
    keys: String,
}

impl Keypad {
    /// Whether this is a telephone key.
    pub(super) fn has(key: char) -> bool {
        matches!(key, '0'..='9' | '*' | '#' | 'A'..='D')
    }

    /// Whether no number is being entered.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether the key is a hash that ends no number, as after the answer to a confirmation ("1#") or a number that a
    /// pause has completed. It is ignored: callers are used to ending numbers that way.
    pub(super) fn ends_nothing(&self, key: char) -> bool {
        self.keys.is_empty() && key == ENTER
    }

    /// The answer to a confirmation: `Some(true)` is a yes, `None` is not an answer.
    pub(super) fn answer(&self, key: char) -> Option<bool> {
        let answers = self.keys.is_empty() && matches!(key, YES | NO);
        answers.then_some(key == YES)
    }

    /// Adds a key to the number. `true` if that completes it; otherwise a pause does.
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

    /// Takes the complete number. While the user is speaking it waits.
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
