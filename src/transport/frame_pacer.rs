//! Playout to a client without a playout clock of its own: a 20 ms frame every 20 ms.

use super::outbox::MAX_AUDIO;
use crate::conversation::Micros;
use std::collections::VecDeque;

/// One frame.
pub const FRAME: Micros = Micros::from_ms(20);

/// Beyond this delay late frames are skipped instead of sent in a burst. Otherwise all frames
/// missed while the machine slept would go out at once and stay queued, delaying audio for the rest
/// of the call.
const LATEST: Micros = Micros::from_ms(200);

/// Queues and paces the agent's audio for one client. Has no clock: times are since the call began.
#[derive(Debug)]
pub struct FramePacer {
    rate: u32,
    waiting: VecDeque<i16>,
    due: Micros,
}

impl FramePacer {
    /// An empty queue whose first frame is due at `now`. `rate` is in Hz.
    pub fn new(rate: u32, now: Micros) -> Self {
        Self {
            rate,
            waiting: VecDeque::new(),
            due: now,
        }
    }

    /// The audio's rate, Hz.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Changes the rate, Hz. Drops the queued audio and keeps the frame timing.
    pub fn set_rate(&mut self, rate: u32) {
        self.rate = rate;
        self.waiting.clear();
    }

    /// Queues audio at the pacer's rate. If the queue would exceed [`MAX_AUDIO`], drops all of it.
    /// Returns how much was dropped.
    pub fn push(&mut self, samples: &[i16]) -> Micros {
        let length = Micros::of_samples(samples.len() as u64, self.rate);
        if self.waiting() + length > MAX_AUDIO {
            return length;
        }
        self.waiting.extend(samples);
        Micros(0)
    }

    /// Drops the queued audio.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How much audio is queued.
    pub fn waiting(&self) -> Micros {
        Micros::of_samples(self.waiting.len() as u64, self.rate)
    }

    /// Whether the queue is empty, so that the next frame will be silence.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the next frame is due.
    pub fn due(&self) -> Micros {
        self.due
    }

    /// The next frame if it is due at `now`: queued audio, padded with silence. Late frames are
    /// returned one after the other until the schedule is met; no frame is early.
    pub fn pop(&mut self, now: Micros) -> Option<Vec<i16>> {
        if now < self.due {
            return None;
        }
        if now.0 - self.due.0 > LATEST.0 {
            self.due = now;
        }
        self.due = self.due + FRAME;
        let length = (u64::from(self.rate) * FRAME.0 / 1_000_000) as usize;
        let ready = self.waiting.len().min(length);
        let mut samples: Vec<i16> = self.waiting.drain(..ready).collect();
        samples.resize(length, 0);
        Some(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: u32 = 8_000;

    fn frames(pacer: &mut FramePacer, now: Micros) -> Vec<Vec<i16>> {
        std::iter::from_fn(|| pacer.pop(now)).collect()
    }

    #[test]
    fn a_frame_every_20_ms_and_silence_when_there_is_nothing_to_say() {
        let mut pacer = FramePacer::new(RATE, Micros(0));
        assert_eq!(pacer.push(&[5; 200]), Micros(0));
        assert_eq!(frames(&mut pacer, Micros(0)), [vec![5; 160]]);
        assert_eq!(frames(&mut pacer, Micros(19_999)), Vec::<Vec<i16>>::new());
        let mut rest = vec![5; 40];
        rest.resize(160, 0);
        assert_eq!(frames(&mut pacer, Micros(20_000)), [rest]);
        assert!(pacer.is_empty());
        assert_eq!(frames(&mut pacer, Micros(45_000)), [vec![0; 160]]);
        assert_eq!(pacer.due(), Micros(60_000));
    }

    #[test]
    fn late_frames_are_sent_and_very_late_ones_are_skipped() {
        let mut pacer = FramePacer::new(RATE, Micros(0));
        assert_eq!(frames(&mut pacer, Micros::from_ms(100)).len(), 6);
        assert_eq!(frames(&mut pacer, Micros::from_ms(119)).len(), 0);
        assert_eq!(frames(&mut pacer, Micros::from_ms(5_000)).len(), 1);
        assert_eq!(pacer.due(), Micros::from_ms(5_020));
    }

    #[test]
    fn clear_drops_all_queued_audio() {
        let mut pacer = FramePacer::new(RATE, Micros(0));
        pacer.push(&[1; 1_600]);
        assert_eq!(frames(&mut pacer, Micros(0)), [vec![1; 160]]);
        pacer.clear();
        pacer.push(&[2; 160]);
        assert_eq!(
            frames(&mut pacer, Micros::from_ms(40)),
            [vec![2; 160], vec![0; 160]]
        );
    }

    #[test]
    fn at_most_half_a_second_is_queued() {
        let mut pacer = FramePacer::new(44_100, Micros(0));
        let frame = vec![1; 882];
        let kept = (0..100).filter(|_| pacer.push(&frame) == Micros(0)).count();
        assert_eq!(kept, 25);
        assert_eq!(pacer.push(&frame), Micros::from_ms(20));
        assert_eq!(pacer.pop(Micros(0)), Some(frame));
    }

    proptest! {
        #[test]
        fn frames_are_never_early(
            steps in prop::collection::vec(0..400_000_u64, 0..200),
        ) {
            let mut pacer = FramePacer::new(RATE, Micros(0));
            let (mut now, mut sent) = (0, 0);
            for step in steps {
                now += step;
                sent += frames(&mut pacer, Micros(now)).len() as u64;
                prop_assert!(sent <= now / FRAME.0 + 1);
                prop_assert!(pacer.due() > Micros(now));
            }
        }
    }
}
