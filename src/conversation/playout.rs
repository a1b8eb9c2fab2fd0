//! Sent versus heard: how far each clause is on its way to the user's ear.
//!
//! Sent audio is assumed to play back to back, in real time. A client's playout reports correct this estimate
//! only by the lag between the server and its loudspeaker: reports arrive late or not at all, so the smallest
//! lag of the last few is used.

use super::ids::{ClauseId, ItemId};
use super::sentence::{ends_sentence, words};
use crate::language::Pack;
use crate::language::sentences::QUESTION_MARKS;
use crate::time::{Micros, Time};
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// The most clauses that may be requested from the voice and not yet fully sent. Two keep the audio from running
/// dry; more would be wasted work when the user interrupts.
const AHEAD: usize = 2;

/// The number of recent playout reports whose smallest lag is used.
const REPORTS: usize = 8;

/// The largest lag that a report may show. Later ones are ignored: no telephone line is that slow.
const LATEST_CREDIBLE: Micros = Micros::from_ms(600);

/// The clauses that have not been heard in full, and how far the voice and the client are with each.
#[derive(Debug, Default)]
pub(super) struct Playout {
    clauses: VecDeque<Clause>,
    /// When all audio sent so far would have been heard without any lag.
    sent_until: Time,
    /// When the current stretch of sound without a gap began.
    begun: Time,
    /// When audio was last sent, and how much.
    last: (Time, Micros),
    /// How late the last credible reports of the client were, oldest first.
    lateness: VecDeque<Micros>,
}

/// The source of a clause's words, and their purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// The model's answer.
    Answer,
    /// A fixed phrase or a question from the server.
    Own,
    /// A filler while the user waits.
    Filler,
}

/// One clause.
#[derive(Debug)]
pub(super) struct Clause {
    pub(super) id: ClauseId,
    pub(super) item: ItemId,
    pub(super) text: String,
    /// The estimated length of its audio.
    expected: Micros,
    /// The source of its words. Only answers of the model have a length limit.
    pub(super) words: Words,
    /// Its index among the clauses of its item.
    pub(super) index: usize,
    /// Whether the voice has been asked for it.
    pub(super) asked: bool,
    /// Whether its words have been announced to the client.
    pub(super) announced: bool,
    /// Whether its voice is being loaded.
    pub(super) voice_loads: bool,
    /// The length of its audio synthesised so far.
    made: Micros,
    /// Whether all of its audio has been synthesised.
    complete: bool,
    /// The length of its audio sent so far.
    sent: Micros,
    /// When its audio sent so far would have been heard without any lag.
    sent_until: Time,
}

/// The place of a clause among the model's clauses that have not been said.
#[derive(Debug)]
pub(super) struct Place {
    /// Whether no clause of the model comes before it.
    pub(super) is_first: bool,
    pub(super) begins_sentence: bool,
    /// Its own words, and the words from it to the end of its sentence as far as known.
    pub(super) words: usize,
    pub(super) sentence_words: usize,
}

impl Clause {
    /// Whether it only fills a wait.
    fn is_filler(&self, language: &Pack) -> bool {
        match self.words {
            Words::Own => false,
            Words::Filler => true,
            Words::Answer => language.is_filler(&self.text),
        }
    }

    fn all_sent(&self) -> bool {
        self.complete && self.sent >= self.made
    }

    /// The length of its audio, estimated until all of it is synthesised.
    pub(super) fn length(&self) -> Micros {
        match self.complete {
            true => self.made,
            false => self.made.max(self.expected),
        }
    }
}

impl Playout {
    pub(super) fn push(
        &mut self,
        id: ClauseId,
        (item, index): (ItemId, usize),
        (text, expected): (String, Micros),
        words: Words,
    ) {
        self.clauses.push_back(Clause {
            id,
            item,
            text,
            expected,
            words,
            index,
            asked: false,
            announced: false,
            voice_loads: false,
            made: Micros(0),
            complete: false,
            sent: Micros(0),
            sent_until: Time(0),
        });
    }

    /// The next clause to request from the voice; `None` if enough are under way.
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

    /// The clause that the voice is working on.
    pub(super) fn being_made(&self) -> Option<&Clause> {
        let mut clauses = self.clauses.iter();
        clauses.find(|c| c.asked && !c.complete)
    }

    pub(super) fn get(&mut self, id: ClauseId) -> Option<&mut Clause> {
        self.clauses.iter_mut().find(|c| c.id == id)
    }

    /// The length of a clause of the model that only announces work ("Let me check."), if nothing else is left to
    /// say.
    pub(super) fn announcement(&self, id: ClauseId, language: &Pack) -> Option<Micros> {
        let mut unsent = self.clauses.iter().filter(|c| !c.all_sent());
        let clause = unsent.next().filter(|c| c.id == id)?;
        let announces = clause.words == Words::Answer && clause.is_filler(language);
        (announces && unsent.next().is_none()).then(|| clause.length())
    }

    /// Adds synthesised audio of a clause.
    pub(super) fn made(&mut self, id: ClauseId, length: Micros, last: bool) {
        if let Some(clause) = self.get(id) {
            clause.made = clause.made + length;
            clause.complete |= last;
            clause.voice_loads = false;
        }
    }

    /// Notes that the clause has been sent up to `until`. It plays right after the audio sent before it.
    pub(super) fn sent(&mut self, now: Time, id: ClauseId, until: Micros) {
        let begins = self.sent_until.max(now);
        let Some(clause) = self.get(id) else { return };
        let more = Micros(until.0.saturating_sub(clause.sent.0));
        if more.0 == 0 {
            return;
        }
        clause.sent = until;
        clause.sent_until = begins + more;
        if self.sent_until <= now {
            self.begun = now;
        }
        self.sent_until = begins + more;
        self.last = (now, more);
    }

    /// Handles the report of a client with its own voice that everything has been heard. Returns `false` if the
    /// client would have had to speak at more than twice the estimated pace: the report was then sent before newer
    /// speech had arrived.
    pub(super) fn end(&mut self, now: Time) -> bool {
        let half = |since: Time, length: Micros| 2 * now.since(since).0 >= length.0;
        let all = self.sent_until.since(self.begun);
        if !half(self.begun, all) || !half(self.last.0, self.last.1) {
            return false;
        }
        for clause in &mut self.clauses {
            clause.sent_until = clause.sent_until.min(now);
        }
        self.sent_until = self.sent_until.min(now);
        true
    }

    /// Handles the report of a client with its own voice: how much of each of the last items was heard.
    /// Everything before them was heard.
    pub(super) fn correct(&mut self, now: Time, heard: &[(ItemId, Micros)]) {
        if heard.is_empty() {
            return;
        }
        let mut left = heard.to_vec();
        let mut until = now;
        for clause in &mut self.clauses {
            if let Some((_, left)) = left.iter_mut().find(|(item, _)| *item == clause.item) {
                let heard = clause.sent.min(*left);
                *left = Micros(left.0 - heard.0);
                until = until + Micros(clause.sent.0 - heard.0);
            }
            clause.sent_until = until;
        }
        self.sent_until = until;
    }

    /// Handles a playout report: the client has played the clause up to `until`.
    pub(super) fn played(&mut self, now: Time, id: ClauseId, until: Micros) {
        let Some(clause) = self.get(id) else { return };
        let behind = clause.sent.0.saturating_sub(until.0);
        let without_lag = Time(clause.sent_until.0.saturating_sub(behind));
        let lateness = now.since(without_lag);
        if lateness > LATEST_CREDIBLE {
            return;
        }
        if self.lateness.len() == REPORTS {
            self.lateness.pop_front();
        }
        self.lateness.push_back(lateness);
    }

    /// How long audio takes to reach the user's ear.
    fn lag(&self) -> Micros {
        self.lateness.iter().min().copied().unwrap_or(Micros(0))
    }

    /// When the audio sent so far ends, without the lag: the next audio plays from then on.
    pub(super) fn sent_until(&self) -> Time {
        self.sent_until
    }

    /// When all audio sent so far will have been heard, lag included.
    pub(super) fn audible_until(&self) -> Time {
        self.sent_until + self.lag()
    }

    /// How long the user has been hearing sound without a gap.
    pub(super) fn heard_for(&self, now: Time) -> Micros {
        match self.audible_until() > now {
            true => now.since(self.begun + self.lag()),
            false => Micros(0),
        }
    }

    /// Whether all clauses have been sent in full.
    pub(super) fn all_sent(&self) -> bool {
        self.clauses.iter().all(Clause::all_sent)
    }

    /// Whether all clauses of `item` have been sent in full.
    pub(super) fn item_sent(&self, item: ItemId) -> bool {
        self.clauses
            .iter()
            .filter(|c| c.item == item)
            .all(Clause::all_sent)
    }

    /// How much of `item` the user has heard.
    pub(super) fn heard(&self, item: ItemId, now: Time) -> Micros {
        let lag = self.lag();
        let heard = |c: &Clause| {
            let unheard = (c.sent_until + lag).since(now);
            c.sent.0.saturating_sub(unheard.0)
        };
        let clauses = self.clauses.iter().filter(|c| c.item == item);
        Micros(clauses.map(heard).sum())
    }

    /// Items with audio that was sent and not yet heard, oldest first.
    pub(super) fn unheard_items(&self, now: Time) -> Vec<ItemId> {
        let lag = self.lag();
        let unheard = |c: &&Clause| c.sent.0 > 0 && c.sent_until + lag > now;
        let mut items: Vec<ItemId> = self
            .clauses
            .iter()
            .filter(unheard)
            .map(|c| c.item)
            .collect();
        items.dedup();
        items
    }

    /// Whether the sentence that the user hears, or has heard last, is a question.
    pub(super) fn is_asking(&self, now: Time) -> bool {
        let begun = |c: &Clause| c.sent.0 > 0 && c.sent_until.0.saturating_sub(c.sent.0) <= now.0;
        let heard = self.clauses.iter().rposition(begun);
        let mut rest = self.clauses.iter().skip(heard.unwrap_or(usize::MAX));
        let end = rest.find(|clause| ends_sentence(&clause.text));
        end.is_some_and(|clause| clause.text.trim_end().ends_with(QUESTION_MARKS))
    }

    /// Forgets all clauses; silence begins now.
    pub(super) fn flush(&mut self, now: Time) {
        self.clauses.clear();
        let silent_from = Time(now.0.saturating_sub(self.lag().0));
        self.sent_until = self.sent_until.min(silent_from);
    }

    /// Removes a clause that cannot be synthesised, and all after it, and returns them.
    pub(super) fn drop_from(&mut self, id: ClauseId) -> Vec<Clause> {
        let Some(at) = self.clauses.iter().position(|c| c.id == id) else {
            return Vec::new();
        };
        self.clauses.drain(at..).collect()
    }

    /// The place of a clause of the model; `None` for other words.
    pub(super) fn place_in_answer(&self, id: ClauseId) -> Option<Place> {
        let answer = || self.clauses.iter().filter(|c| c.words == Words::Answer);
        let clause = answer().find(|c| c.id == id)?;
        let before = answer().take_while(|c| c.id != id).last();
        let rest = answer().skip_while(|c| c.id != id);
        let to_the_end = rest.scan(false, |over, c| {
            let counts = !*over;
            *over |= ends_sentence(&c.text);
            counts.then(|| words(&c.text))
        });
        Some(Place {
            is_first: before.is_none(),
            begins_sentence: before.is_none_or(|before| ends_sentence(&before.text)),
            words: words(&clause.text),
            sentence_words: to_the_end.sum(),
        })
    }

    /// The number of words and the length of a clause of the model that was synthesised in full.
    pub(super) fn made_of_answer(&mut self, id: ClauseId) -> Option<(usize, Micros)> {
        let clause = self
            .get(id)
            .filter(|c| c.words == Words::Answer && c.complete)?;
        Some((words(&clause.text), clause.made))
    }

    /// Removes the model's clauses from `from` on, and those of the same sentence before it, unless they were
    /// announced; returns them. If there is no earlier sentence, the clauses before `from` stay.
    pub(super) fn cut_answer(&mut self, from: ClauseId) -> Vec<Clause> {
        let ends_before =
            |c: &&Clause| c.words == Words::Answer && c.id < from && ends_sentence(&c.text);
        let kept = self.clauses.iter().rfind(ends_before).map(|c| c.id);
        let mut cut = Vec::new();
        let goes = |c: &Clause| {
            c.words == Words::Answer
                && !c.announced
                && (c.id >= from || kept.is_some_and(|kept| c.id > kept))
        };
        for clause in std::mem::take(&mut self.clauses) {
            match goes(&clause) {
                true => cut.push(clause),
                false => self.clauses.push_back(clause),
            }
        }
        cut
    }

    /// Removes the fillers whose playout has not begun, and returns them.
    pub(super) fn drop_unsaid_fillers(&mut self, language: &Pack) -> Vec<Clause> {
        let mut dropped = Vec::new();
        for clause in std::mem::take(&mut self.clauses) {
            match clause.is_filler(language) && !clause.announced {
                true => dropped.push(clause),
                false => self.clauses.push_back(clause),
            }
        }
        dropped
    }

    /// Forgets the clauses of an item.
    pub(super) fn forget(&mut self, item: ItemId) {
        self.clauses.retain(|c| c.item != item);
    }

    /// Forgets all clauses once they have been heard.
    pub(super) fn clear(&mut self) {
        self.clauses.clear();
    }
}
