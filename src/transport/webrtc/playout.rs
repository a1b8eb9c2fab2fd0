//! Estimates when the client hears the agent's audio, from RTCP's round trips. No I/O and no clock.

use crate::conversation::{ClauseId, Micros};
use std::collections::VecDeque;

/// The session is told this often.
const EVERY: Micros = Micros::from_ms(100);

/// The end of a frame within its clause.
type Mark = (ClauseId, Micros);

/// The agent's audio between the session and the client's loudspeaker. The delay of the client's jitter buffer is not
/// known.
#[derive(Debug, Default)]
pub(super) struct Playout {
    /// Frames in the queue, and their lengths.
    waiting: VecDeque<(Mark, Micros)>,
    /// How much of the first of them has left.
    left: Micros,
    /// Frames on their way, and when they left.
    sent: VecDeque<(Micros, Mark)>,
    /// The last frame that was queued.
    given: Option<Mark>,
    round_trip: Micros,
    told: Option<Micros>,
}

impl Playout {
    /// Sets how long a packet takes to the client and back.
    pub(super) fn takes(&mut self, round_trip: Micros) {
        self.round_trip = round_trip;
    }

    /// Adds a frame of a clause to the queue.
    pub(super) fn push(&mut self, clause: ClauseId, length: Micros) {
        let before = match self.given {
            Some((same, until)) if same == clause => until,
            _ => Micros(0),
        };
        let mark = (clause, before + length);
        self.given = Some(mark);
        self.waiting.push_back((mark, length));
    }

    /// Records the amount of audio sent. Returns the clause of the last frame that left whole, and how much of it
    /// had left before and with it.
    pub(super) fn sent(
        &mut self,
        now: Micros,
        length: Micros,
    ) -> Option<(ClauseId, Micros, Micros)> {
        let mut last = None;
        self.left = self.left + length;
        while let Some((mark, length)) = self.waiting.front()
            && *length <= self.left
        {
            self.left = Micros(self.left.0 - length.0);
            let (clause, until) = *mark;
            last = Some((clause, Micros(until.0 - length.0), until));
            self.sent.push_back((now, *mark));
            self.waiting.pop_front();
        }
        last
    }

    /// Records that the queue was cleared.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.left = Micros(0);
        self.sent.clear();
    }

    /// The client's playout position, if the session is to be told now.
    pub(super) fn report(&mut self, now: Micros) -> Option<Mark> {
        if self.told.is_some_and(|told| now < told + EVERY) {
            return None;
        }
        let way = self.round_trip.0 / 2;
        let mut heard = None;
        while let Some((at, mark)) = self.sent.front() {
            if at.0 + way > now.0 {
                break;
            }
            heard = Some(*mark);
            self.sent.pop_front();
        }
        if heard.is_some() {
            self.told = Some(now);
        }
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Micros = Micros::from_ms(20);

    fn ms(ms: u64) -> Micros {
        Micros::from_ms(ms)
    }

    #[test]
    fn audio_is_heard_half_a_round_trip_after_it_has_left() {
        let mut playout = Playout::default();
        playout.takes(ms(80));
        for _ in 0..10 {
            playout.push(ClauseId(1), FRAME);
        }
        for frame in 0..5 {
            playout.sent(ms(1_000 + 20 * frame), FRAME);
        }
        assert_eq!(playout.report(ms(1_039)), None);
        assert_eq!(playout.report(ms(1_040)), Some((ClauseId(1), ms(20))));
        assert_eq!(playout.report(ms(1_060)), None, "told a moment ago");
        assert_eq!(playout.report(ms(1_140)), Some((ClauseId(1), ms(100))));
        assert_eq!(playout.report(ms(1_300)), None, "nothing new");
    }

    #[test]
    fn nothing_of_a_cleared_line_is_heard_and_clauses_count_from_their_own_start() {
        let mut playout = Playout::default();
        playout.push(ClauseId(1), FRAME);
        playout.sent(ms(0), FRAME);
        playout.clear();
        assert_eq!(playout.report(ms(500)), None);
        playout.push(ClauseId(2), FRAME);
        playout.sent(ms(500), FRAME);
        assert_eq!(playout.report(ms(500)), Some((ClauseId(2), FRAME)));
    }
}
