//! When which audio goes out: in the order of the clauses, in frames of 20 ms, and never more than
//! 200 ms ahead of what the user should be hearing.

use crate::conversation::{ClauseId, ItemId, Micros, Time};
use std::collections::VecDeque;

/// One frame of outgoing audio.
const FRAME: Micros = Micros::from_ms(20);

/// The most that audio may run ahead of playing. TCP does not pace: without this a socket swallows more
/// than a minute of it.
const LEAD: Micros = Micros::from_ms(200);

/// Audio that waits to be sent.
#[derive(Debug)]
pub(crate) struct Pacer {
    frame: usize,
    rate: u32,
    clauses: VecDeque<Clause>,
    /// When everything that was sent so far will have been played.
    played: Time,
    /// Tones of telephone keys.
    tones: VecDeque<i16>,
    /// Tones are being played: what is to be said waits, and nothing is flushed.
    dialing: bool,
}

#[derive(Debug)]
struct Clause {
    id: ClauseId,
    item: ItemId,
    /// How long it will be, about.
    length: Micros,
    /// Frames: each goes out as it is, and its memory with it. Only the last may be short.
    waiting: VecDeque<Vec<i16>>,
    sent: u64,
    made: u64,
    complete: bool,
}

impl Clause {
    fn add(&mut self, mut samples: &[i16], frame: usize) {
        if let Some(last) = self.waiting.back_mut() {
            let filled = samples.len().min(frame - last.len());
            last.extend(&samples[..filled]);
            samples = &samples[filled..];
        }
        for part in samples.chunks(frame) {
            let mut samples = Vec::with_capacity(frame);
            samples.extend(part);
            self.waiting.push_back(samples);
        }
    }

    /// Whether a frame can go out: a short one only at the end.
    fn has_frame(&self, frame: usize) -> bool {
        self.complete || self.made - self.sent >= frame as u64
    }
}

/// A frame to be sent now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) item: ItemId,
    pub(crate) clause: ClauseId,
    /// 20 ms, the clause's last frame padded with silence.
    pub(crate) samples: Vec<i16>,
    /// It is the first of its clause.
    pub(crate) first: bool,
    /// How much of the clause has been sent with it.
    pub(crate) until: Micros,
}

impl Pacer {
    /// A pacer of audio at `rate` Hz.
    pub(crate) fn new(rate: u32) -> Self {
        let frame = (u64::from(rate) * FRAME.0 / 1_000_000) as usize;
        Self {
            frame,
            rate,
            clauses: VecDeque::new(),
            played: Time(0),
            tones: VecDeque::new(),
            dialing: false,
        }
    }

    /// A clause of about this length will come; it is played after those that were expected before.
    pub(crate) fn expect(&mut self, id: ClauseId, item: ItemId, length: Micros) {
        let waiting = VecDeque::new();
        self.clauses.push_back(Clause {
            id,
            item,
            length,
            waiting,
            sent: 0,
            made: 0,
            complete: false,
        });
    }

    /// How long it takes to play all that was expected so far, about.
    pub(crate) fn ahead(&self, now: Time) -> Micros {
        let left = self.clauses.iter().map(|clause| {
            let made = Micros::of_samples(clause.made, self.rate);
            let length = if clause.complete {
                made
            } else {
                made.max(clause.length)
            };
            length.0 - Micros::of_samples(clause.sent, self.rate).0
        });
        Micros(self.played.since(now).0 + left.sum::<u64>())
    }

    /// Adds synthesised audio of a clause and returns its length. `None` if the clause is dead.
    pub(crate) fn push(&mut self, id: ClauseId, samples: &[i16], last: bool) -> Option<Micros> {
        let rate = self.rate;
        let clause = self.clauses.iter_mut().find(|c| c.id == id)?;
        let before = Micros::of_samples(clause.made, rate);
        clause.made += samples.len() as u64;
        clause.add(samples, self.frame);
        clause.complete |= last;
        Some(Micros(Micros::of_samples(clause.made, rate).0 - before.0))
    }

    /// The next frame, if one is due and made.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Frame> {
        self.clauses
            .retain(|c| !(c.complete && c.waiting.is_empty()));
        if self.dialing || self.played.since(now) >= LEAD {
            return None;
        }
        let clause = self.clauses.front_mut()?;
        if !clause.has_frame(self.frame) {
            return None;
        }
        let mut samples = clause.waiting.pop_front()?;
        let first = clause.sent == 0;
        clause.sent += samples.len() as u64;
        samples.resize(self.frame, 0);
        self.played = self.played.max(now) + FRAME;
        let until = Micros::of_samples(clause.sent, self.rate);
        Some(Frame {
            item: clause.item,
            clause: clause.id,
            samples,
            first,
            until,
        })
    }

    /// Tones follow what is being said.
    pub(crate) fn dial(&mut self, tones: &[i16]) {
        self.tones.extend(tones);
    }

    /// The next 20 ms of tones, if they are due: they begin once everything that was sent has been played.
    pub(crate) fn pop_tones(&mut self, now: Time) -> Option<Vec<i16>> {
        self.dialing |= !self.tones.is_empty() && self.clauses.is_empty() && self.played <= now;
        if !self.dialing || self.tones.is_empty() || self.played.since(now) >= LEAD {
            return None;
        }
        let count = self.tones.len().min(self.frame);
        let mut samples: Vec<i16> = self.tones.drain(..count).collect();
        samples.resize(self.frame, 0);
        self.played = self.played.max(now) + FRAME;
        Some(samples)
    }

    /// Whether the tones have just been played to their end.
    pub(crate) fn has_dialed(&mut self, now: Time) -> bool {
        let is_over = self.dialing && self.tones.is_empty() && self.played <= now;
        self.dialing &= !is_over;
        is_over
    }

    /// Whether tones are being played.
    pub(crate) fn is_dialing(&self) -> bool {
        self.dialing
    }

    /// When the next frame is due; `None` while none is made.
    pub(crate) fn due(&self) -> Option<Time> {
        let soon = Time((self.played.0 + 1).saturating_sub(LEAD.0));
        match (self.dialing, self.tones.is_empty()) {
            (true, false) => return Some(soon),
            (true, true) => return Some(self.played),
            (false, false) if self.clauses.is_empty() => return Some(self.played),
            (false, _) => {}
        }
        let clause = self
            .clauses
            .iter()
            .find(|c| !(c.complete && c.waiting.is_empty()))?;
        clause.has_frame(self.frame).then_some(soon)
    }

    /// Forgets a clause.
    pub(crate) fn cancel(&mut self, id: ClauseId) {
        self.clauses.retain(|c| c.id != id);
    }

    /// Forgets everything that is not sent, and that what was sent would still be playing.
    pub(crate) fn flush(&mut self, now: Time) {
        self.clauses.clear();
        if !self.dialing {
            self.played = self.played.min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 16_000;

    fn drain(pacer: &mut Pacer, now: Time) -> Vec<Frame> {
        std::iter::from_fn(|| pacer.pop(now)).collect()
    }

    #[test]
    fn audio_runs_at_most_200_ms_ahead() {
        let mut pacer = Pacer::new(RATE);
        pacer.expect(ClauseId(1), ItemId(1), Micros(0));
        pacer.push(ClauseId(1), &vec![1; RATE as usize], true);
        assert_eq!(drain(&mut pacer, Time::from_ms(1_000)).len(), 10);
        assert_eq!(drain(&mut pacer, Time::from_ms(1_000)).len(), 0);
        let due = pacer.due().unwrap();
        assert!(
            due > Time::from_ms(1_000) && due <= Time::from_ms(1_001),
            "{due:?}"
        );
        assert_eq!(drain(&mut pacer, Time::from_ms(1_100)).len(), 5);
    }

    #[test]
    fn audio_that_went_out_leaves_no_memory_behind() {
        let mut pacer = Pacer::new(RATE);
        pacer.expect(ClauseId(1), ItemId(1), Micros(0));
        for piece in vec![1; 3 * RATE as usize].chunks(7_001) {
            pacer.push(ClauseId(1), piece, false);
        }
        for second in 1..3 {
            for frame in 0..50 {
                let now = Time::from_ms(10_000 * second + 20 * frame);
                assert!(pacer.pop(now).is_some(), "{now:?}");
            }
            let waiting = &pacer.clauses[0].waiting;
            let held: usize = waiting.iter().map(Vec::capacity).sum();
            assert_eq!(held, (3 - second as usize) * RATE as usize);
        }
    }

    #[test]
    fn clauses_keep_their_order_whichever_is_made_first() {
        let mut pacer = Pacer::new(RATE);
        pacer.expect(ClauseId(1), ItemId(1), Micros(0));
        pacer.expect(ClauseId(2), ItemId(1), Micros(0));
        pacer.push(ClauseId(2), &[2; 320], true);
        assert_eq!(pacer.pop(Time(0)), None);
        assert_eq!(pacer.due(), None);
        pacer.push(ClauseId(1), &[1; 400], true);
        let frames = drain(&mut pacer, Time(0));
        assert_eq!(
            frames.iter().map(|f| f.clause.0).collect::<Vec<_>>(),
            [1, 1, 2]
        );
        assert_eq!(frames[1].samples.len(), 320);
        assert_eq!(frames[1].until, Micros::from_ms(25));
        assert_eq!(
            frames.iter().map(|f| f.first).collect::<Vec<_>>(),
            [true, false, true]
        );
    }

    #[test]
    fn what_is_ahead_is_what_was_made_or_else_expected() {
        let mut pacer = Pacer::new(RATE);
        let now = Time::from_ms(1_000);
        assert_eq!(pacer.ahead(now), Micros(0));
        pacer.expect(ClauseId(1), ItemId(1), Micros::from_ms(800));
        pacer.expect(ClauseId(2), ItemId(1), Micros::from_ms(500));
        assert_eq!(pacer.ahead(now), Micros::from_ms(1_300));
        pacer.push(ClauseId(1), &vec![1; RATE as usize], true);
        assert_eq!(pacer.ahead(now), Micros::from_ms(1_500));
        drain(&mut pacer, now);
        assert_eq!(pacer.ahead(now), Micros::from_ms(1_500));
        assert_eq!(pacer.ahead(Time::from_ms(1_100)), Micros::from_ms(1_400));
    }

    #[test]
    fn lengths_made_add_up_to_the_length_sent() {
        let mut pacer = Pacer::new(22_050);
        pacer.expect(ClauseId(1), ItemId(1), Micros(0));
        let made: u64 = [100, 333, 1, 7, 222]
            .iter()
            .map(|n| pacer.push(ClauseId(1), &vec![0; *n], *n == 222).unwrap().0)
            .sum();
        assert_eq!(
            drain(&mut pacer, Time(0)).last().unwrap().until,
            Micros(made)
        );
    }

    #[test]
    fn tones_follow_what_is_being_said_and_hold_back_the_rest() {
        let mut pacer = Pacer::new(RATE);
        pacer.expect(ClauseId(1), ItemId(1), Micros(0));
        pacer.push(ClauseId(1), &[1; 1_600], true);
        pacer.dial(&[7; 6_400]);
        let now = Time::from_ms(1_000);
        assert_eq!(pacer.pop_tones(now), None);
        assert_eq!(drain(&mut pacer, now).len(), 5);
        let voice_over = Time::from_ms(1_100);
        assert_eq!(
            (pacer.due(), pacer.pop_tones(now)),
            (Some(voice_over), None)
        );
        let tones = |pacer: &mut Pacer, now| std::iter::from_fn(|| pacer.pop_tones(now)).count();
        assert_eq!(tones(&mut pacer, voice_over), 10);
        pacer.expect(ClauseId(2), ItemId(2), Micros(0));
        pacer.push(ClauseId(2), &[2; 320], true);
        pacer.flush(voice_over);
        pacer.expect(ClauseId(3), ItemId(3), Micros(0));
        pacer.push(ClauseId(3), &[3; 320], true);
        assert_eq!(pacer.pop(voice_over), None);
        assert_eq!(tones(&mut pacer, Time::from_ms(1_300)), 10);
        assert!(!pacer.has_dialed(Time::from_ms(1_499)));
        assert_eq!(pacer.due(), Some(Time::from_ms(1_500)));
        assert!(pacer.has_dialed(Time::from_ms(1_500)) && !pacer.is_dialing());
        assert_eq!(pacer.pop(Time::from_ms(1_500)).unwrap().clause, ClauseId(3));
    }

    #[test]
    fn nothing_flushed_is_sent_and_new_audio_starts_at_once() {
        let mut pacer = Pacer::new(RATE);
        pacer.expect(ClauseId(1), ItemId(1), Micros(0));
        pacer.push(ClauseId(1), &vec![1; RATE as usize], true);
        drain(&mut pacer, Time(0));
        pacer.flush(Time::from_ms(50));
        assert_eq!(pacer.push(ClauseId(1), &[1; 320], true), None);
        pacer.expect(ClauseId(2), ItemId(2), Micros(0));
        pacer.push(ClauseId(2), &vec![2; RATE as usize], true);
        assert_eq!(drain(&mut pacer, Time::from_ms(50)).len(), 10);
    }
}
