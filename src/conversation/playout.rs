//! Sent versus heard: which clause is where on its way to the user's ear.

use super::ids::{ClauseId, ItemId};
use super::time::{Micros, Time};
use std::collections::VecDeque;

/// Clauses whose audio is asked for before the one in front of them is all sent. Two keep the
/// voice from running dry; more would be work for nothing when the user interrupts.
const AHEAD: usize = 2;

/// The clauses of a response, from words to sound.
#[derive(Debug, Default)]
pub(super) struct Playout {
    clauses: VecDeque<Clause>,
    /// When all audio that was sent so far will have been heard.
    audible_until: Time,
}

/// One clause.
#[derive(Debug)]
pub(super) struct Clause {
    pub(super) id: ClauseId,
    pub(super) item: ItemId,
    pub(super) text: String,
    /// Its place among the clauses of its item.
    pub(super) index: usize,
    pub(super) asked: bool,
    pub(super) announced: bool,
    made: Micros,
    complete: bool,
    sent: Micros,
    /// When what was sent of it will have been heard.
    audible_until: Time,
}

impl Clause {
    fn all_sent(&self) -> bool {
        self.complete && self.sent >= self.made
    }

    fn heard(&self, now: Time) -> Micros {
        Micros(self.sent.0.saturating_sub(self.audible_until.since(now).0))
    }
}

impl Playout {
    pub(super) fn push(&mut self, id: ClauseId, item: ItemId, index: usize, text: String) {
        self.clauses.push_back(Clause {
            id,
            item,
            text,
            index,
            asked: false,
            announced: false,
            made: Micros(0),
            complete: false,
            sent: Micros(0),
            audible_until: Time(0),
        });
    }

    /// The next clause whose audio should be made now.
    pub(super) fn next_to_ask(&mut self) -> Option<&mut Clause> {
        let under_way = self
            .clauses
            .iter()
            .filter(|c| c.asked && !c.all_sent())
            .count();
        (under_way < AHEAD)
            .then(|| self.clauses.iter_mut().find(|c| !c.asked))
            .flatten()
    }

    /// The clause that the voice is at.
    pub(super) fn being_made(&self) -> Option<ClauseId> {
        let mut clauses = self.clauses.iter();
        clauses.find(|c| c.asked && !c.complete).map(|c| c.id)
    }

    pub(super) fn get(&mut self, id: ClauseId) -> Option<&mut Clause> {
        self.clauses.iter_mut().find(|c| c.id == id)
    }

    /// More audio of a clause was made.
    pub(super) fn made(&mut self, id: ClauseId, length: Micros, last: bool) {
        if let Some(clause) = self.get(id) {
            clause.made = clause.made + length;
            clause.complete |= last;
        }
    }

    /// `until` of the clause has been sent in all. It is heard right behind what was sent before.
    pub(super) fn sent(&mut self, now: Time, id: ClauseId, until: Micros) {
        let begins = self.audible_until.max(now);
        let Some(clause) = self.get(id) else { return };
        let more = Micros(until.0.saturating_sub(clause.sent.0));
        if more.0 == 0 {
            return;
        }
        clause.sent = until;
        clause.audible_until = begins + more;
        self.audible_until = begins + more;
    }

    /// When all audio that was sent so far will have been heard.
    pub(super) fn audible_until(&self) -> Time {
        self.audible_until
    }

    /// All that was asked for has been sent.
    pub(super) fn all_sent(&self) -> bool {
        self.clauses.iter().all(Clause::all_sent)
    }

    /// All clauses of `item` have been sent.
    pub(super) fn item_sent(&self, item: ItemId) -> bool {
        self.clauses
            .iter()
            .filter(|c| c.item == item)
            .all(Clause::all_sent)
    }

    /// How much of `item` the user has heard.
    pub(super) fn heard(&self, item: ItemId, now: Time) -> Micros {
        Micros(
            self.clauses
                .iter()
                .filter(|c| c.item == item)
                .map(|c| c.heard(now).0)
                .sum(),
        )
    }

    /// Forgets everything that is not heard yet, and what was.
    pub(super) fn flush(&mut self, now: Time) {
        self.clauses.clear();
        self.audible_until = self.audible_until.min(now);
    }

    /// Forgets a clause that cannot be made and all behind it, and returns them.
    pub(super) fn drop_from(&mut self, id: ClauseId) -> Vec<Clause> {
        let Some(at) = self.clauses.iter().position(|c| c.id == id) else {
            return Vec::new();
        };
        self.clauses.drain(at..).collect()
    }

    /// Forgets a finished response.
    pub(super) fn clear(&mut self) {
        self.clauses.clear();
    }
}
