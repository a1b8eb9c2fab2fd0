//! A user who says nothing: asked twice whether they are still there, then left with a goodbye.

use super::timer::Timer;
use super::{Conversation, HangUpReason};

/// How often a silent user is asked.
const PROMPTS: u32 = 2;

impl Conversation {
    /// Nobody speaks and nothing waits: from here on the silence counts.
    pub(super) fn watch_silence(&mut self) {
        if let Some(patience) = self.policy.silence_prompt
            && !self.timers.is_set(Timer::Silence)
        {
            self.timers.set(Timer::Silence, self.now + patience);
        }
    }

    /// A sign of life.
    pub(super) fn hear_from_user(&mut self) {
        self.mark_activity();
        self.timers.clear(Timer::Silence);
        self.prompted = 0;
        if self.ending == Some(HangUpReason::Idle) {
            self.ending = None;
            let goodbye = &self.policy.phrases.goodbye_idle;
            self.announcements.retain(|text| text != goodbye);
        }
    }

    pub(super) fn on_silent_user(&mut self) {
        if self.prompted == PROMPTS {
            return self.say_goodbye(HangUpReason::Idle);
        }
        self.prompted += 1;
        let question = self.policy.phrases.still_there.clone();
        self.announcements.push_back(question);
    }
}
