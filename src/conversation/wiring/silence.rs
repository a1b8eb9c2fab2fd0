//! Prompts for a silent user.

use super::Conversation;
use crate::conversation::outcome::HangUpReason;
use crate::conversation::silence::Silent;
use crate::time::Micros;

impl Conversation {
    /// Starts to count the user's silence. A machine that greets is not asked whether it is still there, nor is anybody
    /// in a session that only transcribes.
    pub(super) fn watch_silence(&mut self) {
        if self.ending.machine.is_heard() || self.client.transcribe_only {
            return;
        }
        let set = self.idle_timeout();
        self.agenda.silence.watch(&mut self.common, set);
    }

    /// The silence that the client allows; `None` for the operator's setting.
    fn idle_timeout(&self) -> Option<Micros> {
        let timeout = self.client.turn_detection.idle_timeout_ms;
        timeout.map(Micros::from_ms)
    }

    /// Notes that the user is there.
    pub(super) fn mark_user_active(&mut self) {
        self.agenda.silence.is_broken(&mut self.common);
        if self.ending.stay_for_user() {
            let goodbye = &self.common.policy.phrases().goodbye_idle;
            if self.agenda.retract(goodbye) {
                // Nobody has heard it.
                self.ending.stays();
            }
        }
    }

    pub(super) fn on_silent_user(&mut self) {
        let (set, to) = (self.idle_timeout(), self.turn.audio_end());
        match self.agenda.silence.lasts(&mut self.common, set, to) {
            Silent::Ask => {
                let question = self.common.policy.phrases().still_there.clone();
                self.agenda.announce(question);
            }
            Silent::Leave => self.say_goodbye(HangUpReason::Idle),
            Silent::Wait => {}
        }
    }
}
