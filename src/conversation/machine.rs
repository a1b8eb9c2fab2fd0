//! Calls that the server has placed: whether a machine has answered, and when it takes a message.

use super::endpointer::Window;
use crate::language::machines;
use crate::time::{Micros, Samples, Time};

/// The time within which words and tones can tell a machine: later, a person may speak of one.
const WATCHED: Micros = Micros::from_ms(40_000);

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
    /// It is not known yet. A machine would get this message.
    Watched(String),
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
    /// Whether these words, after `spoken` of speech, show that a machine has answered. Partials are passed as well, which
    /// are not `all` words.
    pub(super) fn answers(&mut self, words: &str, all: bool, spoken: Micros, now: Time) -> bool {
        let long = if all { LONG } else { LONGEST };
        let is_speech = spoken >= long && !machines::is_menu(words);
        (is_speech || machines::tells(words)) && self.is_found(now)
    }

    /// Notes that a machine has answered. `false` if none can have.
    pub(super) fn is_found(&mut self, now: Time) -> bool {
        match self {
            Self::Watched(message) if now.since(Time(0)) < WATCHED => {
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
