//! Playout to the caller: a 20 ms frame every 20 ms.

use crate::conversation::Micros;
use crate::transport::outbox::MAX_AUDIO;
use std::collections::VecDeque;

/// One frame.
const FRAME: Micros = Micros::from_ms(20);

/// Frames that are later than this are not made up for: after the machine has slept they would all
/// go out at once, and the caller would hear what is left of them late for the rest of the call.
const LATEST: Micros = Micros::from_ms(200);

/// The agent's audio on its way to one caller. Has no clock: times are since the call began.
#[derive(Debug)]
pub struct Line {
    rate: u32,
    waiting: VecDeque<i16>,
    due: Micros,
}

impl Line {
    /// Nothing waits; the first frame is due at `now`. `rate` is in Hz.
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

    /// Has another rate from now on, Hz. What waits is dropped, the beat goes on.
    pub fn set_rate(&mut self, rate: u32) {
        self.rate = rate;
        self.waiting.clear();
    }

    /// Takes in audio at the line's rate. Returns how much of it is dropped because too much waits:
    /// all or nothing.
    pub fn push(&mut self, samples: &[i16]) -> Micros {
        let length = Micros::of_samples(samples.len() as u64, self.rate);
        let waiting = Micros::of_samples(self.waiting.len() as u64, self.rate);
        if waiting + length > MAX_AUDIO {
            return length;
        }
        self.waiting.extend(samples);
        Micros(0)
    }

    /// Drops what waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Nothing waits: the next frame will be silence.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the next frame is to go out.
    pub fn due(&self) -> Micros {
        self.due
    }

    /// The frame that is to go out by now: audio, filled up with silence. Late ones follow each
    /// other at once until the beat is caught up with; none is ever early.
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

    fn frames(line: &mut Line, now: Micros) -> Vec<Vec<i16>> {
        std::iter::from_fn(|| line.pop(now)).collect()
    }

    #[test]
    fn a_frame_every_20_ms_and_silence_when_there_is_nothing_to_say() {
        let mut line = Line::new(RATE, Micros(0));
        assert_eq!(line.push(&[5; 200]), Micros(0));
        assert_eq!(frames(&mut line, Micros(0)), [vec![5; 160]]);
        assert_eq!(frames(&mut line, Micros(19_999)), Vec::<Vec<i16>>::new());
        let mut rest = vec![5; 40];
        rest.resize(160, 0);
        assert_eq!(frames(&mut line, Micros(20_000)), [rest]);
        assert!(line.is_empty());
        assert_eq!(frames(&mut line, Micros(45_000)), [vec![0; 160]]);
        assert_eq!(line.due(), Micros(60_000));
    }

    #[test]
    fn what_is_late_is_made_up_for_and_what_is_very_late_is_not() {
        let mut line = Line::new(RATE, Micros(0));
        assert_eq!(frames(&mut line, Micros::from_ms(100)).len(), 6);
        assert_eq!(frames(&mut line, Micros::from_ms(119)).len(), 0);
        assert_eq!(frames(&mut line, Micros::from_ms(5_000)).len(), 1);
        assert_eq!(line.due(), Micros::from_ms(5_020));
    }

    #[test]
    fn nothing_of_before_a_clear_goes_out_after_it() {
        let mut line = Line::new(RATE, Micros(0));
        line.push(&[1; 1_600]);
        assert_eq!(frames(&mut line, Micros(0)), [vec![1; 160]]);
        line.clear();
        line.push(&[2; 160]);
        assert_eq!(
            frames(&mut line, Micros::from_ms(40)),
            [vec![2; 160], vec![0; 160]]
        );
    }

    #[test]
    fn half_a_second_waits_and_no_more() {
        let mut line = Line::new(44_100, Micros(0));
        let frame = vec![1; 882];
        let kept = (0..100).filter(|_| line.push(&frame) == Micros(0)).count();
        assert_eq!(kept, 25);
        assert_eq!(line.push(&frame), Micros::from_ms(20));
        assert_eq!(line.pop(Micros(0)), Some(frame));
    }

    proptest! {
        #[test]
        fn never_more_frames_than_time_has_passed(
            steps in prop::collection::vec(0..400_000_u64, 0..200),
        ) {
            let mut line = Line::new(RATE, Micros(0));
            let (mut now, mut sent) = (0, 0);
            for step in steps {
                now += step;
                sent += frames(&mut line, Micros(now)).len() as u64;
                prop_assert!(sent <= now / FRAME.0 + 1);
                prop_assert!(line.due() > Micros(now));
            }
        }
    }
}
