//! A user who says nothing: asked twice whether they are still there, then left with a goodbye.

use super::common::Common;
use super::output::Event;
use super::timer::Timer;
use crate::time::{Micros, Samples};

#[cfg(test)]
mod tests;

/// How often a silent user is asked.
const PROMPTS: u32 = 2;

/// The silence of the user.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// How often the user has been asked since the last sign of life.
    prompted: u32,
}

/// The reaction to a silent user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Silent {
    /// They are asked whether they are still there.
    Ask,
    /// The server hangs up.
    Leave,
    /// Nothing more: how such a session ends is up to the client.
    Wait,
}

impl Silence {
    /// Nobody speaks and nothing waits: from here on the silence counts. A client may have `set` how
    /// much of it is allowed.
    pub(super) fn watch(&self, common: &mut Common, set: Option<Micros>) {
        if let Some(patience) = set.or(common.policy.timeouts.silence_prompt)
            && !common.timers.is_set(Timer::Silence)
        {
            common.timers.set(Timer::Silence, common.now + patience);
        }
    }

    /// The user has given a sign of life.
    pub(super) fn is_broken(&mut self, common: &mut Common) {
        common.mark_activity();
        common.timers.clear(Timer::Silence);
        self.prompted = 0;
    }

    /// The silence has lasted, up to `to` in the user's audio.
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
