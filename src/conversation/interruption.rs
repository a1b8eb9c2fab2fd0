//! Interruptions: a sound stops the agent at once. If it turns out to be speech, what the agent was
//! saying is given up; if it was a false interruption, the agent says the rest.

use super::input::ResponseTerms;

#[cfg(test)]
mod tests;

/// The answer that a sound has stopped.
#[derive(Debug, Default)]
pub(super) enum Interruption {
    /// There is none.
    #[default]
    None,
    /// Nobody knows yet whether the sound is speech.
    Judging(Stopped),
    /// The sound was noise: the answer goes on when nobody speaks.
    Resuming(Box<Unfinished>),
}

/// The part of an answer that the user has not heard.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    /// Words that were ready to be spoken.
    pub(super) rest: String,
    /// The part that the model had not made yet.
    pub(super) unfinished: Option<Box<Unfinished>>,
}

/// State for resuming an answer after a false interruption.
#[derive(Debug, PartialEq)]
pub(super) struct Unfinished {
    pub(super) terms: ResponseTerms,
    /// Items of the history before it began.
    pub(super) history: usize,
    /// Rounds of tools whose results the model has been given.
    pub(super) steps: u32,
    /// Calls of the round after them have been made.
    pub(super) has_called: bool,
}

impl Interruption {
    /// A sound has begun, and has `stopped` the agent if it was speaking. An answer that was about to go
    /// on after an earlier noise waits again; so does a goodbye (`ending`). `false` if nothing waits.
    pub(super) fn begin(&mut self, stopped: Option<Stopped>, ending: bool) -> bool {
        let earlier = self.take_unfinished();
        if stopped.is_none() && earlier.is_none() && !ending {
            return false;
        }
        let Stopped { rest, unfinished } = stopped.unwrap_or_default();
        *self = Self::Judging(Stopped {
            rest,
            unfinished: unfinished.or(earlier),
        });
        true
    }

    /// Has these words said if the sound turns out to be noise.
    pub(super) fn say_after_noise(&mut self, words: String) {
        *self = Self::Judging(Stopped {
            rest: words,
            unfinished: None,
        });
    }

    /// The sound was noise. Returns the words to be said again, possibly none, if it has stopped
    /// anything.
    pub(super) fn was_noise(&mut self) -> Option<String> {
        let Self::Judging(stopped) = self else {
            return None;
        };
        let Stopped { rest, unfinished } = std::mem::take(stopped);
        *self = unfinished.map_or(Self::None, Self::Resuming);
        Some(rest)
    }

    /// The user has spoken: the answer is given up.
    pub(super) fn forget(&mut self) {
        *self = Self::None;
    }

    /// Nobody knows yet whether the sound is speech.
    pub(super) fn is_judging(&self) -> bool {
        matches!(self, Self::Judging(_))
    }

    /// An answer is to go on when nobody speaks.
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self, Self::Resuming(_))
    }

    /// Takes the answer that is to go on: it does so now, or another takes its place.
    pub(super) fn take_unfinished(&mut self) -> Option<Box<Unfinished>> {
        match std::mem::take(self) {
            Self::Resuming(unfinished) => Some(unfinished),
            other => {
                *self = other;
                None
            }
        }
    }
}
