//! Work that waits until nobody speaks and the client is there: announcements, the next answer, and the prompt to a
//! silent user.

use super::absence::Absence;
use super::answer::NextAnswer;
use super::ids::ItemId;
use super::input::{Context, ResponseTerms};
use super::silence::Silence;
use std::collections::{BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

/// Work that waits until nobody speaks.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    announcements: VecDeque<String>,
    opening: WaitingOpening,
    next: Option<NextAnswer>,
    /// A spoken response outside the conversation that waits for the opening, or for the words of its context.
    aloud: Option<Box<ResponseTerms>>,
    /// Items that are still being transcribed. Answers wait for them.
    untranscribed: BTreeSet<ItemId>,
    /// The user has heard the notice of the policy.
    noticed: bool,
    pub(super) silence: Silence,
    pub(super) absence: Absence,
}

/// The state of an opening that waits for the client.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WaitingOpening {
    /// The client has not set up the session.
    Held,
    /// It is spoken before all else.
    Due,
    /// The response that is open says it.
    Spoken,
    /// It was spoken, or never waited.
    #[default]
    Over,
}

/// An opening that waits for the client.
impl Agenda {
    /// Holds the opening.
    pub(super) fn hold_opening(&mut self) {
        self.opening = WaitingOpening::Held;
    }

    /// Has the opening spoken, if it is held.
    pub(super) fn release_opening(&mut self) {
        if self.opening == WaitingOpening::Held {
            self.opening = WaitingOpening::Due;
        }
    }

    /// Takes the opening, whose response begins now. `false` if it is not due.
    pub(super) fn take_opening(&mut self) -> bool {
        let is_due = self.opening == WaitingOpening::Due;
        if is_due {
            self.opening = WaitingOpening::Spoken;
        }
        is_due
    }

    /// Whether an opening that waited is still held or spoken.
    pub(super) fn is_opening(&self) -> bool {
        self.opening != WaitingOpening::Over
    }

    /// Whether the response that is open, or begins now, says an opening that waited.
    pub(super) fn says_opening(&self) -> bool {
        self.opening == WaitingOpening::Spoken
    }

    /// Notes that the open response has ended.
    pub(super) fn response_ended(&mut self) {
        if self.says_opening() {
            self.opening = WaitingOpening::Over;
        }
    }
}

/// Announcements.
impl Agenda {
    /// Queues an announcement after all others.
    pub(super) fn announce(&mut self, text: String) {
        self.announcements.push_back(text);
    }

    /// Queues an announcement before all others, unless it is already the next.
    pub(super) fn announce_next(&mut self, text: String) {
        if self.announcements.front() != Some(&text) {
            self.announcements.push_front(text);
        }
    }

    /// Queues the rest of an interrupted answer before all announcements.
    pub(super) fn say_rest(&mut self, text: String) {
        self.announcements.push_front(text);
    }

    /// Replaces all announcements with this one, and an opening that waits.
    pub(super) fn announce_only(&mut self, text: String) {
        self.clear_announcements();
        self.announcements.push_back(text);
    }

    /// Queues the `notice` before all others unless it `was_heard`. `true` if it did.
    pub(super) fn give_notice(
        &mut self,
        notice: &str,
        was_heard: impl FnOnce(&str) -> bool,
    ) -> bool {
        self.noticed = self.noticed || notice.is_empty() || was_heard(notice);
        if !self.noticed {
            self.announce_next(notice.to_owned());
        }
        !self.noticed
    }

    /// Removes an announcement. `false` if it is not waiting.
    pub(super) fn retract(&mut self, text: &str) -> bool {
        let before = self.announcements.len();
        self.announcements.retain(|waiting| waiting != text);
        self.announcements.len() < before
    }

    /// Whether this announcement is the next.
    pub(super) fn is_next(&self, text: &str) -> bool {
        self.announcements.front().is_some_and(|next| next == text)
    }

    pub(super) fn clear_announcements(&mut self) {
        self.announcements.clear();
        self.opening = WaitingOpening::Over;
    }

    pub(super) fn take_announcement(&mut self) -> Option<String> {
        self.announcements.pop_front()
    }
}

/// The next answer.
impl Agenda {
    /// Queues an answer. It replaces one that is already queued.
    pub(super) fn answer_next(&mut self, next: NextAnswer) {
        self.next = Some(next);
    }

    pub(super) fn has_next_answer(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn take_next_answer(&mut self) -> Option<NextAnswer> {
        self.next.take()
    }

    /// Whether an answer is queued and need not wait for a transcript.
    pub(super) fn is_answer_due(&self) -> bool {
        self.has_next_answer() && self.is_transcribed()
    }

    /// Makes answers wait for the transcript of this item.
    pub(super) fn wait_for(&mut self, item: ItemId) {
        self.untranscribed.insert(item);
    }

    /// Notes that an item was transcribed, or cannot be.
    pub(super) fn was_transcribed(&mut self, item: ItemId) {
        self.untranscribed.remove(&item);
    }

    /// Keeps a spoken response outside the conversation until its context has all its words. `false` if there is one.
    pub(super) fn respond_later(&mut self, terms: ResponseTerms) -> bool {
        let is_free = self.aloud.is_none();
        self.aloud.get_or_insert_with(|| Box::new(terms));
        is_free
    }

    /// Takes the kept response if its context has all its words.
    pub(super) fn take_due_response(&mut self) -> Option<ResponseTerms> {
        let is_due = !self.lacks_words(self.aloud.as_deref()?);
        self.aloud.take_if(|_| is_due).map(|terms| *terms)
    }

    /// Drops the kept response. `false` if there is none.
    pub(super) fn drop_late_response(&mut self) -> bool {
        self.aloud.take().is_some()
    }

    /// Whether a response is to see items that are still being transcribed.
    pub(super) fn lacks_words(&self, terms: &ResponseTerms) -> bool {
        let is_awaited = |part: &Context| match part {
            Context::Item(id) => self.untranscribed.contains(id),
            Context::Message(_) => false,
        };
        match &terms.context {
            None => !self.is_transcribed(),
            Some(context) => context.iter().any(is_awaited),
        }
    }

    /// Items that are still being transcribed.
    pub(super) fn untranscribed(&self) -> &BTreeSet<ItemId> {
        &self.untranscribed
    }

    /// Whether all items have been transcribed.
    pub(super) fn is_transcribed(&self) -> bool {
        self.untranscribed.is_empty()
    }
}
