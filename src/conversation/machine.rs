//! Calls that the server has placed: whether a machine has answered, and when it takes a message.

use super::endpointer::Window;
use crate::language::machines;
use crate::time::{Micros, Samples, Time};

/// The time within which words and tones can tell a machine: later, a person may speak of one. A service that screens
/// calls starts it anew: a machine may follow.
const WATCHED: Micros = Micros::from_ms(40_000);

/// The turns of the user's after which a tone alone is no machine's but, for instance, an exchange's that records.
const TURNS: u32 = 3;

/// A person who answers says less than this in one breath.
const LONG: Micros = Micros::from_ms(9_000);

/// The speech after which a menu has told what to press, although it goes on.
const LONGEST: Micros = Micros::from_ms(20_000);

/// The silence after a machine's words, ms, after which the message is left even if no tone was heard.
const QUIET_MS: u64 = 2_500;

/// The longest wait for the tone, ms of audio.
const PATIENCE_MS: u64 = 40_000;

/// A window with less than this probability is silence.
const SILENCE: f32 = 0.5;

/// Whether a machine has answered the call.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Machine {
    /// The server has not placed the call.
    #[default]
    NotWatched,
    /// It is not known yet.
    Watched {
        /// The message that a machine would get.
        message: String,
        since: Time,
        /// The user's turns since then; `None` if a service that screens calls was the last to speak.
        turns: Option<u32>,
    },
    /// It has, and speaks.
    Speaks {
        message: String,
        /// The position at which it was found.
        from: Option<Samples>,
        /// The position at which it was heard last.
        heard: Option<Samples>,
    },
    /// The message is being left, or there is none.
    Left,
}

impl Machine {
    /// Watches from now on. A machine gets this message.
    pub(super) fn watch(message: String, now: Time) -> Self {
        Self::Watched {
            message,
            since: now,
            turns: Some(0),
        }
    }

    /// Whether these words, after `spoken` of speech, show that a machine has answered. Partials are passed as well, which
    /// are not `all` words.
    pub(super) fn answers(&mut self, words: &str, all: bool, spoken: Micros, now: Time) -> bool {
        let Self::Watched { since, turns, .. } = self else {
            return false;
        };
        if now.since(*since) >= WATCHED {
            return false;
        }
        if machines::screens(words) {
            (*since, *turns) = (now, None);
            return false;
        }
        let long = if all { LONG } else { LONGEST };
        let is_speech = spoken >= long && !machines::is_menu(words);
        if is_speech || machines::tells(words, all) {
            return self.is_found(now);
        }
        if all && !words.is_empty() {
            *turns = Some(turns.map_or(1, |turns| turns + 1));
        }
        false
    }

    /// Whether a tone shows that a machine has answered.
    pub(super) fn beeps(&mut self, now: Time) -> bool {
        // A service that screens calls may have one, too, after which it wants to be told who calls.
        let may_be = matches!(self, Self::Watched { turns: Some(turns), .. } if *turns < TURNS);
        may_be && self.is_found(now)
    }

    /// Notes that a machine has answered. `false` if none can have.
    fn is_found(&mut self, now: Time) -> bool {
        match self {
            Self::Watched { message, since, .. } if now.since(*since) < WATCHED => {
                *self = Self::Speaks {
                    message: std::mem::take(message),
                    from: None,
                    heard: None,
                };
                true
            }
            _ => false,
        }
    }

    /// Whether what is heard is a machine's.
    pub(super) fn is_heard(&self) -> bool {
        matches!(self, Self::Speaks { .. } | Self::Left)
    }

    /// Whether a machine speaks of which there are only words: no audio has come since it was found.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Speaks { from: None, .. })
    }

    /// Listens to a machine. Returns whether it has been silent long enough to take a message.
    pub(super) fn on_window(&mut self, window: Window) -> bool {
        let Self::Speaks { from, heard, .. } = self else {
            return false;
        };
        let from = *from.get_or_insert(window.end);
        let last = heard.get_or_insert(window.end);
        if window.probability >= SILENCE {
            *last = window.end;
        }
        window.end.minus_ms(QUIET_MS) >= *last || window.end.minus_ms(PATIENCE_MS) >= from
    }

    /// Takes the message, which may be empty, to leave it now.
    pub(super) fn take_message(&mut self) -> Option<String> {
        match self {
            Self::Speaks { message, .. } => {
                let message = std::mem::take(message);
                *self = Self::Left;
                Some(message)
            }
            _ => None,
        }
    }

    /// Whether there is a message to leave.
    pub(super) fn has_message(&self) -> bool {
        matches!(self, Self::Speaks { message, .. } if !message.is_empty())
    }
}
