//! A user who says nothing: asked twice whether they are still there, then left with a goodbye.

use super::Conversation;
use crate::conversation::timer::Timer;
use crate::conversation::{Event, HangUpReason};
use crate::time::Micros;

/// How often a silent user is asked.
const PROMPTS: u32 = 2;

impl Conversation {
    /// Nobody speaks and nothing waits: from here on the silence counts.
    pub(super) fn watch_silence(&mut self) {
        if let Some(patience) = self
            .idle_timeout()
            .or(self.common.policy.timeouts.silence_prompt)
            && !self.common.timers.is_set(Timer::Silence)
        {
            self.common
                .timers
                .set(Timer::Silence, self.common.now + patience);
        }
    }

    /// The silence that the client allows.
    fn idle_timeout(&self) -> Option<Micros> {
        let timeout = self.client.turn_detection.idle_timeout_ms;
        timeout
            .filter(|_| !self.client.transcribe_only)
            .map(Micros::from_ms)
    }

    /// A sign of life.
    pub(super) fn hear_from_user(&mut self) {
        self.common.mark_activity();
        self.common.timers.clear(Timer::Silence);
        self.prompted = 0;
        if self.ending.stay_for_user() {
            let goodbye = &self.common.policy.phrases.goodbye_idle;
            self.announcements.retain(|text| text != goodbye);
        }
    }

    pub(super) fn on_silent_user(&mut self) {
        let timeout = self.idle_timeout();
        if self.prompted == PROMPTS {
            // Who ends a session that the client watches over is the client's affair.
            return match timeout {
                Some(_) => {}
                None => self.say_goodbye(HangUpReason::Idle),
            };
        }
        self.prompted += 1;
        if let Some(timeout) = timeout {
            let to = self.audio_end;
            let from = to.minus_ms(timeout.as_ms());
            self.common.notify(Event::IdleTimeout { from, to });
        }
        let question = self.common.policy.phrases.still_there.clone();
        self.announcements.push_back(question);
    }
}
