//! Interruptions: any sound stops the agent at once. If it turns out to be speech, the rest of the answer is
//! dropped; if it was a false interruption, the agent resumes.

use super::ids::CallId;
use super::input::ResponseTerms;
use super::sentence::words;

#[cfg(test)]
mod tests;

/// The interrupted answer.
#[derive(Debug, Default)]
pub(super) enum Interruption {
    /// None.
    #[default]
    None,
    /// It is not yet known whether the sound is speech, or whether a client that is away comes back.
    Judging(Stopped),
    /// False interruption: the answer is resumed when nobody speaks.
    Resuming(Box<Unfinished>),
}

/// The part of an answer that was not heard.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    /// Words that had been generated but not heard.
    pub(super) rest: String,
    /// State for generating the rest, if the model was not done.
    pub(super) unfinished: Option<Box<Unfinished>>,
    /// The agent was asking something.
    pub(super) asked: bool,
    /// The whole answer had been sent.
    pub(super) all_sent: bool,
}

/// State for resuming an answer after a false interruption.
#[derive(Debug, PartialEq)]
pub(super) struct Unfinished {
    pub(super) terms: ResponseTerms,
    /// The items that had been added to the history when the answer began.
    pub(super) history: u64,
    /// Its calls without a result.
    pub(super) calls: Vec<CallId>,
    /// Rounds of tools whose results the model has seen.
    pub(super) steps: u32,
    /// The next round had begun.
    pub(super) has_called: bool,
    /// The client requests the next answer itself: only a plan goes on.
    pub(super) is_for_client: bool,
    /// No call was under way, and the model had spoken or had nothing to say: it may have been done.
    pub(super) said_all: bool,
}

impl Interruption {
    /// Handles the beginning of a sound, with the speech that it `stopped`, if any. An answer that was about
    /// to be resumed waits again, as does a goodbye (`ending`). `false` if nothing is left to resume.
    pub(super) fn begin(&mut self, stopped: Option<Stopped>, ending: bool) -> bool {
        let earlier = self.take_unfinished();
        if stopped.is_none() && earlier.is_none() && !ending {
            return false;
        }
        let stopped = stopped.unwrap_or_default();
        *self = Self::Judging(Stopped {
            unfinished: stopped.unfinished.or(earlier),
            ..stopped
        });
        true
    }

    /// Sets words to be said if the sound turns out to be noise.
    pub(super) fn say_after_noise(&mut self, words: String) {
        *self = Self::Judging(Stopped {
            rest: words,
            ..Stopped::default()
        });
    }

    /// The words that had not been heard when a sound, or the loss of the client, stopped the agent.
    pub(super) fn rest(&self) -> &str {
        match self {
            Self::Judging(stopped) => &stopped.rest,
            Self::None | Self::Resuming(_) => "",
        }
    }

    /// Whether the agent was asking something when it was stopped.
    pub(super) fn was_asking(&self) -> bool {
        matches!(self, Self::Judging(stopped) if stopped.asked)
    }

    /// Whether the agent has more to say than the word that the sound broke off.
    pub(super) fn has_more(&self) -> bool {
        let is_more = |stopped: &Stopped| {
            let rest = words(&stopped.rest);
            stopped.unfinished.is_some() || rest > 1 || (rest > 0 && !stopped.all_sent)
        };
        matches!(self, Self::Judging(stopped) if is_more(stopped))
    }

    /// Sets the words that were not heard, which are now known better.
    pub(super) fn correct(&mut self, rest: String) {
        match self {
            Self::Judging(stopped) => stopped.rest = rest,
            Self::None if !rest.is_empty() => self.say_after_noise(rest),
            Self::None | Self::Resuming(_) => {}
        }
    }

    /// Handles a false interruption. Returns the words to repeat, possibly none; `None` if nothing was
    /// interrupted.
    pub(super) fn was_noise(&mut self) -> Option<String> {
        let Self::Judging(stopped) = self else {
            return None;
        };
        let Stopped {
            rest, unfinished, ..
        } = std::mem::take(stopped);
        *self = unfinished.map_or(Self::None, Self::Resuming);
        Some(rest)
    }

    /// Drops the interrupted answer: the sound was speech.
    pub(super) fn forget(&mut self) {
        *self = Self::None;
    }

    /// Whether it is still unknown if the sound is speech.
    pub(super) fn is_judging(&self) -> bool {
        matches!(self, Self::Judging(_))
    }

    /// Whether an answer is to be resumed when nobody speaks.
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self, Self::Resuming(_))
    }

    /// Takes the answer to resume: it is resumed now, or replaced by another.
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
