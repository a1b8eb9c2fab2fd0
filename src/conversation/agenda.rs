//! Work for the next moment in which nobody speaks: announcements, the next answer, and the question to a
//! silent user.

use super::answer::NextAnswer;
use super::ids::ItemId;
use super::silence::Silence;
use std::collections::{BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

/// Work that waits until nobody speaks.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    announcements: VecDeque<String>,
    next: Option<NextAnswer>,
    /// Items of the history whose words are not known yet: answers wait for them.
    unheard: BTreeSet<ItemId>,
    pub(super) silence: Silence,
}

/// Words of our own.
impl Agenda {
    /// Has words said after all others.
    pub(super) fn announce(&mut self, text: String) {
        self.announcements.push_back(text);
    }

    /// Has words said before all others, and once if they are the next already.
    pub(super) fn announce_next(&mut self, text: String) {
        if self.announcements.front() != Some(&text) {
            self.announcements.push_front(text);
        }
    }

    /// Has the rest of what was being said said before all others.
    pub(super) fn say_rest(&mut self, text: String) {
        self.announcements.push_front(text);
    }

    /// Has only these words said.
    pub(super) fn announce_only(&mut self, text: String) {
        self.announcements = VecDeque::from([text]);
    }

    /// These words are not said after all.
    pub(super) fn retract(&mut self, text: &str) {
        self.announcements.retain(|waiting| waiting != text);
    }

    pub(super) fn clear_announcements(&mut self) {
        self.announcements.clear();
    }

    pub(super) fn take_announcement(&mut self) -> Option<String> {
        self.announcements.pop_front()
    }
}

/// The next answer.
impl Agenda {
    /// Has an answer given on these terms. It takes the place of another that waits.
    pub(super) fn answer_next(&mut self, next: NextAnswer) {
        self.next = Some(next);
    }

    pub(super) fn has_next_answer(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn take_next_answer(&mut self) -> Option<NextAnswer> {
        self.next.take()
    }

    /// An answer waits, and nothing keeps it.
    pub(super) fn is_answer_due(&self) -> bool {
        self.has_next_answer() && self.is_heard()
    }

    /// Answers wait for the words of this item.
    pub(super) fn wait_for(&mut self, item: ItemId) {
        self.unheard.insert(item);
    }

    /// An item has its words, or will have none.
    pub(super) fn was_heard(&mut self, item: ItemId) {
        self.unheard.remove(&item);
    }

    /// Items whose words are not known yet.
    pub(super) fn unheard(&self) -> &BTreeSet<ItemId> {
        &self.unheard
    }

    /// The words of all items are known.
    pub(super) fn is_heard(&self) -> bool {
        self.unheard.is_empty()
    }
}
