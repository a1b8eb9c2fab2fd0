//! Barge-in: the agent falls silent at once. After a false interruption it goes on where it stopped.

use super::Conversation;
use crate::conversation::answer::Answer;
use crate::conversation::interruption::Stopped;
use crate::conversation::speculation::Discard;
use crate::conversation::timer::Timer;
use crate::conversation::{Event, Output, ResponseStatus};

impl Conversation {
    /// Stops the agent and flushes its audio. The history keeps the words that were heard. Committed tools
    /// run on, and their results join the history.
    pub(super) fn barge_in(&mut self) {
        let was_ending = self.ending.is_resuming();
        let asked = self.playout.is_asking(self.common.now);
        let mut stopped = self.stop_response(ResponseStatus::Interrupted);
        if stopped.is_none() && self.playout.audible_until() > self.common.now {
            self.common.outputs.push_back(Output::Flush);
            let rest = join(self.cut_done_items());
            self.playout.flush(self.common.now);
            stopped = Some(Stopped {
                rest,
                all_sent: true,
                ..Stopped::default()
            });
        }
        let has_stopped = stopped.is_some();
        let stopped = stopped.map(|stopped| Stopped { asked, ..stopped });
        if self.interruption.begin(stopped, was_ending) {
            self.ending.cut_short();
        }
        if has_stopped {
            self.confirmation.cut_short(&mut self.common);
        }
    }

    /// Ends the current response for good: neither it nor an interrupted one is resumed. `false` if there was
    /// none.
    pub(super) fn stop_for_good(&mut self, status: ResponseStatus) -> bool {
        let waits = self.interruption.is_judging()
            || self.interruption.is_resuming()
            || self.ending.is_resuming();
        self.forget_interrupted();
        let stopped = self.stop_response(status).is_some();
        if stopped {
            self.confirmation
                .abandon_unasked(&mut self.common, &mut self.history);
        }
        self.forget_interrupted();
        stopped || waits
    }

    /// Ends the current response, if there is one.
    fn stop_response(&mut self, status: ResponseStatus) -> Option<Stopped> {
        let mut answer = self.answer.take()?;
        if let Some(request) = answer.request() {
            self.common
                .outputs
                .push_back(Output::CancelGeneration { request });
        }
        self.common.outputs.push_back(Output::Flush);
        let open = self.cut_items(&answer);
        let mut rest = self.cut_done_items();
        let outside = answer.terms.is_outside();
        rest.extend(open.into_iter().filter(|_| !outside));
        self.playout.flush(self.common.now);
        self.clear_response_timers();
        let ends = self.ending.is_promised() && self.ending.cut_short();
        if ends {
            self.ending.waits_for(answer.calls.open());
        }
        // If a client's tool was called, the client requests the next answer itself: only a plan goes on.
        let is_left_to_client =
            answer.calls.has_client_calls() && !self.running.plans.are_under_way();
        let goes_on = !ends && !is_left_to_client && !outside && answer.is_unfinished();
        let unfinished = goes_on.then(|| answer.unfinished());
        self.close_response(answer, status, Discard::Interrupted);
        Some(Stopped {
            rest: join(rest),
            unfinished,
            ..Stopped::default()
        })
    }

    /// Cuts the items that are not done at what was heard, and returns the rest.
    fn cut_items(&mut self, answer: &Answer) -> Vec<String> {
        let mut rest = Vec::new();
        for &item in answer.items.open() {
            let heard = self.playout.heard(item, self.common.now);
            self.playout.forget(item);
            // An item without audio is cut to nothing.
            let text = self.history.cut(item, heard).unwrap_or_default();
            rest.push(self.history.unheard_text(item));
            if answer.items.was_announced(item) {
                self.common.notify(Event::AgentItemDone {
                    item,
                    text,
                    interrupted: true,
                });
            }
        }
        rest
    }

    /// Cuts the items that were sent in full but not yet heard, and returns the rest.
    fn cut_done_items(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        for item in self.playout.unheard_items(self.common.now) {
            let heard = self.playout.heard(item, self.common.now);
            if let Some(text) = self.history.cut(item, heard) {
                self.common
                    .notify(Event::ItemTruncated { item, heard, text });
                // An answer outside the conversation is not repeated in it.
                if !self.history.is_outside(item) {
                    rest.push(self.history.unheard_text(item));
                }
            }
        }
        rest
    }

    /// After a false interruption, or when a client that was away is back: the agent repeats the words that were not
    /// heard and resumes its answer.
    pub(super) fn resume_interrupted(&mut self) {
        if self.agenda.absence.is_on() {
            return;
        }
        let Some(mut rest) = self.interruption.was_noise() else {
            return;
        };
        if rest.is_empty() {
            // A question whose last word was heard is not said on, but a yes counts only right after it.
            rest = self.confirmation.ask_in_whole(rest);
        }
        self.confirmation.resume();
        self.agenda.absence.repeats(self.common.last_item());
        if !rest.is_empty() {
            self.agenda.say_rest(rest);
        }
        self.ending.resume();
    }

    /// After a real interruption: the agent does not resume its answer.
    pub(super) fn forget_interrupted(&mut self) {
        self.forget_resuming();
        self.interruption.forget();
        self.confirmation
            .abandon_cut_short(&mut self.common, &mut self.history);
        if let Some(ending) = self.ending.take_cut_short() {
            self.call_off(ending.call);
        }
        self.ending.stays();
        self.stop_plans();
    }

    /// Cancels a pending end of the conversation, also one that a sound has interrupted.
    pub(super) fn call_off_end(&mut self) {
        let was_promised = self.ending.is_promised();
        let Some(ending) = self.ending.go_on(self.answer.is_some()) else {
            return;
        };
        if let Some(answer) = self.answer.as_mut().filter(|_| was_promised) {
            // From now on an answer is due.
            answer.dead_air.restart(&self.common);
        }
        self.call_off(ending.call);
    }

    /// Drops the answer that was to be resumed after a false interruption.
    pub(super) fn forget_resuming(&mut self) {
        self.interruption.take_unfinished();
        if let Some(ending) = self.ending.take_resuming() {
            self.call_off(ending.call);
        }
    }

    pub(super) fn clear_response_timers(&mut self) {
        self.common.timers.clear(Timer::DeadAir);
        self.clear_generation_timers();
        self.common.timers.clear(Timer::SynthesisOverdue);
    }
}

fn join(mut texts: Vec<String>) -> String {
    texts.retain(|text| !text.is_empty());
    texts.join(" ")
}
