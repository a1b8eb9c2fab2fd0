//! Prompts for a silent user: asked twice whether they are still there, then sent off with a goodbye.

use super::common::Common;
use super::output::Event;
use super::timer::Timer;
use crate::time::{Micros, Samples};

#[cfg(test)]
mod tests;

/// The most prompts to a silent user.
const PROMPTS: u32 = 2;

/// The user's silence.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Prompts since the user was last active.
    prompted: u32,
}

/// The reaction to a silent user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Silent {
    /// Ask whether they are still there.
    Ask,
    /// Say goodbye and hang up.
    Leave,
    /// Do nothing: the client decides when such a session ends.
    Wait,
}

impl Silence {
    /// Starts to count the silence, unless it is being counted already. `set` is the client's limit, if it
    /// has one.
    pub(super) fn watch(&self, common: &mut Common, set: Option<Micros>) {
        if let Some(patience) = set.or(common.policy.timeouts.silence_prompt)
            && !common.timers.is_set(Timer::Silence)
        {
            common.timers.set(Timer::Silence, common.now + patience);
        }
    }

    /// Notes that the user is active.
    pub(super) fn is_broken(&mut self, common: &mut Common) {
        common.mark_activity();
        common.timers.clear(Timer::Silence);
        self.prompted = 0;
    }

    /// Handles the end of the allowed silence, at `to` in the user's audio.
    pub(super) fn lasts(
        &mut self,
        common: &mut Common,
        set: Option<Micros>,
        to: Samples,
    ) -> Silent {
        if self.prompted == PROMPTS {
            return set.map_or(Silent::Leave, |_| Silent::Wait);
        }
        self.prompted += 1;
        if let Some(timeout) = set {
            let from = to.minus_ms(timeout.as_ms());
            common.notify(Event::IdleTimeout { from, to });
        }
        Silent::Ask
    }
}
