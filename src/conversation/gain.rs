//! The user's gain from a generation that was requested early: how much sooner its first words are heard. Not
//! the time at which the model began counts, but the time at which the user hears it: after a filler that is
//! being said anyway, nothing is gained.

use super::ids::ClauseId;
use super::speculation::HeldRecord;
use crate::time::{Micros, Time};

/// A generation that was requested early and is used.
#[derive(Debug)]
pub(super) struct Early {
    /// Its record, without the gain.
    pub(super) record: HeldRecord,
    /// How much later its first clause or call would have been complete.
    pub(super) later: Micros,
    /// When the filler would have ended that is not said because of it.
    pub(super) unsaid_until: Option<Time>,
}

/// The generations of an answer that were requested early.
#[derive(Debug, Default)]
pub(super) struct Gains {
    /// Those of which no word has been heard yet, with their first clauses.
    expected: Vec<(Early, Option<First>)>,
    heard: Vec<HeldRecord>,
}

/// The first clause of a generation.
#[derive(Debug)]
struct First {
    clause: ClauseId,
    /// When its first audio was synthesised.
    made: Option<Time>,
}

impl Gains {
    /// Notes that the next clause is the first of this generation.
    pub(super) fn expect(&mut self, early: Option<Early>) {
        self.expected.extend(early.map(|early| (early, None)));
    }

    /// A clause of the model is queued. It is also the first of an earlier generation that had no words.
    pub(super) fn queued(&mut self, clause: ClauseId) {
        for (_, first) in &mut self.expected {
            first.get_or_insert(First { clause, made: None });
        }
    }

    /// Notes that a clause will not be said.
    pub(super) fn drop_clause(&mut self, clause: ClauseId) {
        for (_, first) in &mut self.expected {
            first.take_if(|first| first.clause == clause);
        }
    }

    /// Records the wait from the commit of a call to its result. Without the early generations the commit would have
    /// been later, but a run that began early would have ended at the same time.
    pub(super) fn waited(&mut self, since_commit: Micros) {
        let silent = self
            .expected
            .iter_mut()
            .filter(|(_, first)| first.is_none());
        for (early, _) in silent {
            early.later = Micros(early.later.0.saturating_sub(since_commit.0));
        }
    }

    /// Notes that audio of a clause was synthesised.
    pub(super) fn made(&mut self, clause: ClauseId, now: Time) {
        let firsts = self
            .expected
            .iter_mut()
            .filter_map(|(_, first)| first.as_mut());
        for first in firsts.filter(|first| first.clause == clause) {
            first.made.get_or_insert(now);
        }
    }

    /// Notes that a clause is about to play, after audio that ends at `sent_until`.
    pub(super) fn heard(&mut self, clause: ClauseId, now: Time, sent_until: Time) {
        for (mut early, first) in std::mem::take(&mut self.expected) {
            match first {
                Some(first) if first.clause <= clause => {
                    let made = first.made.unwrap_or(now);
                    let unsaid = early.unsaid_until.unwrap_or_default();
                    let otherwise = (made + early.later).max(unsaid);
                    early.record.saved = otherwise.since(now.max(sent_until));
                    self.heard.push(early.record);
                }
                first => self.expected.push((early, first)),
            }
        }
    }

    /// The records of all generations. Those that were not heard have gained nothing.
    pub(super) fn take(&mut self) -> Vec<HeldRecord> {
        let unheard = std::mem::take(&mut self.expected).into_iter();
        let mut records = std::mem::take(&mut self.heard);
        records.extend(unheard.map(|(early, _)| early.record));
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::speculation::Before;
    use crate::llm::TokenUsage;

    const FIRST: ClauseId = ClauseId(7);

    fn ms(ms: u64) -> Time {
        Time::from_ms(ms)
    }

    fn early(later: u64, unsaid_until: Option<u64>) -> Gains {
        let record = HeldRecord {
            before: Before::Commit,
            tool: None,
            began: ms(500),
            ended: ms(900),
            used: true,
            saved: Micros(0),
            delayed: Micros(0),
            usage: TokenUsage::default(),
        };
        let mut gains = Gains::default();
        gains.expect(Some(Early {
            record,
            later: Micros::from_ms(later),
            unsaid_until: unsaid_until.map(ms),
        }));
        gains
    }

    /// The gain of an answer that is synthesised at 1,000 ms and heard at once, but not before `busy_until`.
    fn gain(mut gains: Gains, busy_until: u64) -> u64 {
        gains.queued(FIRST);
        gains.made(FIRST, ms(1_000));
        gains.heard(FIRST, ms(1_000.max(busy_until - 200)), ms(busy_until));
        let records = gains.take();
        assert_eq!(records.len(), 1);
        records[0].saved.as_ms()
    }

    #[test]
    fn an_answer_into_silence_gains_all_the_time() {
        assert_eq!(gain(early(350, None), 200), 350);
    }

    #[test]
    fn what_a_filler_hides_is_not_gained() {
        assert_eq!(gain(early(350, None), 1_100), 250);
        assert_eq!(gain(early(350, None), 1_350), 0);
        assert_eq!(gain(early(350, None), 2_000), 0);
    }

    #[test]
    fn a_filler_that_is_not_said_is_gained() {
        assert_eq!(gain(early(350, Some(1_800)), 200), 800);
        assert_eq!(gain(early(350, Some(1_200)), 200), 350);
    }

    #[test]
    fn a_silent_call_gains_only_what_its_result_does_not_take() {
        let mut gains = early(350, None);
        gains.waited(Micros::from_ms(300));
        assert_eq!(gain(gains, 200), 50);
    }

    #[test]
    fn words_that_nobody_hears_gain_nothing() {
        let mut gains = early(350, None);
        gains.queued(FIRST);
        assert_eq!(gains.take()[0].saved, Micros(0));
        let mut gains = early(350, None);
        gains.queued(ClauseId(6));
        gains.drop_clause(ClauseId(6));
        assert_eq!(gain(gains, 200), 350, "the next words are the first");
    }
}
