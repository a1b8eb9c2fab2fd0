//! The client's connection is lost: the agent stops as after a false interruption, and goes on when the client is back.

use super::Conversation;
use crate::conversation::input::HeardUpTo;
use crate::conversation::timer::Timer;
use crate::conversation::{Event, ItemId, Micros};

impl Conversation {
    /// Stops the agent, because nobody is listening. The user's words so far are a turn if no more follow, and its
    /// answer waits.
    pub(super) fn on_client_lost(&mut self) {
        if !self.agenda.absence.begin() {
            return;
        }
        self.ignore_overlap();
        self.barge_in();
        self.confirmation.suspend(&mut self.common);
        let rest = self.interruption.rest().to_owned();
        self.repeat_later(rest);
        self.common.timers.clear(Timer::Silence);
    }

    /// The client is back: the agent goes on with the first word that was not heard. If the user is speaking, it is
    /// known when they are done whether it does.
    pub(super) fn on_client_back(&mut self, heard: Option<HeardUpTo>) {
        if !self.agenda.absence.end() {
            return;
        }
        self.common.notify(Event::ClientReturned);
        self.common.mark_activity();
        if let Some(heard) = heard {
            let rest = self.hear_up_to(heard);
            self.repeat_later(rest);
        }
        if !self.turn.is_open() {
            self.resume_interrupted();
        }
    }

    /// Has these words said, and a question that was waiting for its answer in whole, once the client is back.
    fn repeat_later(&mut self, rest: String) {
        let rest = self.confirmation.ask_in_whole(rest);
        self.interruption.correct(rest);
    }

    /// Cuts what the agent has said since the user's last turn at the client's report, which is better than the
    /// playout estimate: much may have been sent into a connection that was dead already. Returns the words that were
    /// not heard.
    fn hear_up_to(&mut self, HeardUpTo { item: last, until }: HeardUpTo) -> String {
        let mut rest = Vec::new();
        for item in self.history.said_since_the_user() {
            if item < last || !self.agenda.absence.is_owed(item) {
                continue;
            }
            let heard = if item == last { until } else { Micros(0) };
            self.cut_at(item, heard);
            rest.push(self.history.unheard_text(item));
        }
        rest.retain(|text| !text.is_empty());
        rest.join(" ")
    }

    /// Cuts an item, and tells the client if that changes its words.
    fn cut_at(&mut self, item: ItemId, heard: Micros) {
        let before = self.history.spoken_text(item);
        let text = self.history.cut(item, heard).unwrap_or_default();
        if text != before {
            self.common
                .notify(Event::ItemTruncated { item, heard, text });
        }
    }
}
