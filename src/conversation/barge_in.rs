//! The user speaks over the agent: it falls silent at once, and if it was no speech after all, it
//! goes on where it stopped.

use super::commit::EndingCall;
use super::confirm::Pending;
use super::output::ConfirmationOutcome;
use super::response::Response;
use super::speculation::Discard;
use super::timer::Timer;
use super::{Conversation, Event, Output, ResponseStatus};

/// A response that was cut short by an utterance that may turn out to be none.
#[derive(Debug, Default)]
pub(super) struct Interrupted {
    /// What of its words was not heard.
    rest: String,
    /// It had more to come: the model had not ended, or a tool was still running.
    unfinished: bool,
    /// The confirmation that it was asking for.
    question: Option<Pending>,
    /// The call that was to end the conversation after it.
    ending: Option<EndingCall>,
}

impl Interrupted {
    /// These words were on their way, too, and were not heard.
    pub(super) fn say_again(&mut self, rest: &str) {
        let gap = if self.rest.is_empty() || rest.is_empty() {
            ""
        } else {
            " "
        };
        self.rest.extend([gap, rest]);
    }

    /// If it was no speech, a yes counts again when this has been heard to its end.
    pub(super) fn ask_again(&mut self, question: Option<Pending>) {
        self.question = self.question.take().or(question);
    }

    pub(super) fn take_question(&mut self) -> Option<Pending> {
        self.question.take()
    }
}

impl Conversation {
    /// Stops the agent: no sound of this response follows. The history keeps what was heard;
    /// committed tools run on, and their results join the history.
    pub(super) fn barge_in(&mut self) {
        let before = self.take_resuming();
        let stopped = self.stop_response(ResponseStatus::Interrupted);
        if stopped.is_none() && self.playout.audible_until() > self.now {
            self.abandon_unheard_question();
            self.outputs.push_back(Output::Flush);
            self.cut_done_items();
            self.playout.flush(self.now);
        }
        let interrupted = match (stopped, before) {
            (Some(stopped), Some(before)) => Some(Interrupted {
                unfinished: stopped.unfinished || before.unfinished,
                ending: stopped.ending.or(before.ending),
                ..stopped
            }),
            (stopped, before) => stopped.or(before),
        };
        if interrupted.is_some() {
            self.forget_interrupted();
            self.interrupted = interrupted;
        }
    }

    /// What an earlier noise cut short and what has not been taken up again.
    fn take_resuming(&mut self) -> Option<Interrupted> {
        let unfinished = std::mem::take(&mut self.resume);
        let ending = self.ends_next.take();
        (unfinished || ending.is_some()).then(|| Interrupted {
            unfinished,
            ending,
            ..Interrupted::default()
        })
    }

    /// Ends the response that is being given, if there is one.
    pub(super) fn stop_response(&mut self, status: ResponseStatus) -> Option<Interrupted> {
        let mut response = self.response.take()?;
        if let Some(request) = response.generation() {
            self.outputs.push_back(Output::CancelGeneration { request });
        }
        self.outputs.push_back(Output::Flush);
        let open = self.cut_items(&response);
        let mut rest = self.cut_done_items();
        rest.extend(open);
        rest.retain(|text| !text.is_empty());
        self.playout.flush(self.now);
        self.clear_response_timers();
        let unfinished = response.unfinished();
        let question = self.confirmation.take_if(|pending| !pending.is_asked());
        let ending = response.ends_with.take_if(|ending| !ending.begun());
        self.close_response(response, status, Discard::Interrupted);
        Some(Interrupted {
            rest: rest.join(" "),
            unfinished,
            question,
            ending,
        })
    }

    /// Cuts what is still being said at what was heard, and returns the rest.
    fn cut_items(&mut self, response: &Response) -> Vec<String> {
        let mut rest = Vec::new();
        for &item in &response.open_items {
            let heard = self.playout.heard(item, self.now);
            self.playout.forget(item);
            // Cannot be longer than what was made; an item without audio is cut to nothing.
            let text = self.history.cut(item, heard).unwrap_or_default();
            rest.push(self.history.unheard_text(item));
            if response.announced(item) {
                self.notify(Event::AgentItemDone {
                    item,
                    text,
                    interrupted: true,
                });
            }
        }
        rest
    }

    /// Cuts what was all sent but is still on its way to the user's ear, and returns the rest.
    fn cut_done_items(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        for item in self.playout.unheard_items(self.now) {
            let heard = self.playout.heard(item, self.now);
            if let Ok(text) = self.history.cut(item, heard) {
                self.notify(Event::ItemTruncated { item, heard, text });
                rest.push(self.history.unheard_text(item));
            }
        }
        rest
    }

    /// What stopped the agent was no speech: it says what was not heard, or answers anew if the
    /// answer was still being made.
    pub(super) fn resume_interrupted(&mut self) {
        let Some(interrupted) = self.interrupted.take() else {
            return;
        };
        if interrupted.question.is_some() {
            self.confirmation = interrupted.question;
        }
        if !interrupted.rest.is_empty() {
            self.announcements.push_front(interrupted.rest);
        }
        self.resume = interrupted.unfinished || interrupted.ending.is_some();
        self.ends_next = interrupted.ending;
    }

    /// What stopped the agent was speech: what it was saying is not taken up again.
    pub(super) fn forget_interrupted(&mut self) {
        let interrupted = self.interrupted.take();
        for interrupted in [interrupted, self.take_resuming()].into_iter().flatten() {
            if let Some(pending) = interrupted.question {
                self.confirmation = Some(pending);
                self.end_confirmation(ConfirmationOutcome::Abandoned);
            }
            if let Some(ending) = interrupted.ending {
                self.call_off(&ending);
            }
        }
    }

    pub(super) fn clear_response_timers(&mut self) {
        self.timers.clear(Timer::DeadAir);
        self.timers.clear(Timer::GenerationOverdue);
        self.timers.clear(Timer::SynthesisOverdue);
    }
}
