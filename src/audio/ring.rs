//! The user's recent audio, by position since the beginning of the session.

use super::{to_f32, to_i16};
use crate::time::Samples;
use std::collections::VecDeque;

/// Audio at 16 kHz from some position on. It is kept as 16-bit samples and its memory shrinks with its
/// content, because it is most of the memory of a silent session.
#[derive(Debug, Default)]
pub struct Ring {
    samples: VecDeque<i16>,
    /// Position of the first sample that is kept.
    from: u64,
}

impl Ring {
    /// The most audio that is kept: 60 s. Audio that a client commits by hand may be longer than the recogniser takes
    /// at once.
    pub const LONGEST: Samples = Samples::from_ms(60_000);

    /// An empty ring at position zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty ring at `position`.
    pub fn at(position: Samples) -> Self {
        Self {
            samples: VecDeque::new(),
            from: position.0,
        }
    }

    /// The first sample that is kept.
    pub fn start(&self) -> Samples {
        Samples(self.from)
    }

    /// Appends samples.
    pub fn push(&mut self, samples: &[f32]) {
        if self.samples.len() + samples.len() > self.samples.capacity() {
            let room = samples.len().max(self.samples.len() / 8);
            self.samples.reserve_exact(room);
        }
        self.samples.extend(to_i16(samples));
        let over = self.samples.len().saturating_sub(Self::LONGEST.0 as usize);
        self.drop_front(over);
    }

    /// One past the last sample.
    pub fn end(&self) -> Samples {
        Samples(self.from + self.samples.len() as u64)
    }

    /// The samples between two positions, as far as they are still kept.
    pub fn range(&self, from: Samples, to: Samples) -> Vec<f32> {
        let at = |position: Samples| {
            (position.0.saturating_sub(self.from) as usize).min(self.samples.len())
        };
        let (from, to) = (at(from), at(to));
        let samples: Vec<i16> = self.samples.range(from..to.max(from)).copied().collect();
        to_f32(&samples)
    }

    /// Drops the audio before `position`.
    pub fn forget_before(&mut self, position: Samples) {
        let count = position.0.saturating_sub(self.from) as usize;
        self.drop_front(count.min(self.samples.len()));
        if self.samples.capacity() > 2 * self.samples.len().max(Samples::RATE as usize / 2) {
            self.samples.shrink_to(self.samples.len() * 9 / 8);
        }
    }

    fn drop_front(&mut self, count: usize) {
        self.samples.drain(..count);
        self.from += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(from: u64, to: u64) -> Vec<f32> {
        (from..to).map(|n| n as f32 / 32_768.0).collect()
    }

    #[test]
    fn positions_stay_valid_when_old_audio_is_dropped() {
        let mut ring = Ring::new();
        ring.push(&numbers(0, 1_000));
        ring.forget_before(Samples(400));
        ring.push(&numbers(1_000, 1_200));
        assert_eq!(ring.end(), Samples(1_200));
        assert_eq!(
            ring.range(Samples(990), Samples(1_010)),
            numbers(990, 1_010)
        );
        assert_eq!(ring.range(Samples(0), Samples(402)), numbers(400, 402));
        assert_eq!(
            ring.range(Samples(1_199), Samples(9_999)),
            numbers(1_199, 1_200)
        );
        assert!(ring.range(Samples(500), Samples(450)).is_empty());
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let mut ring = Ring::new();
        for _ in 0..100 {
            ring.push(&vec![0.0; Samples::RATE as usize]);
        }
        assert_eq!(ring.samples.len(), Ring::LONGEST.0 as usize);
        ring.forget_before(Samples(ring.end().0 - 8_000));
        assert!(
            ring.samples.capacity() * 2 <= 64 * 1024,
            "{}",
            ring.samples.capacity()
        );
    }

    #[test]
    fn memory_is_little_more_than_the_samples() {
        let mut ring = Ring::new();
        for _ in 0..1_000 {
            ring.push(&[0.0; 320]);
            ring.forget_before(Samples(ring.end().0.saturating_sub(16_000)));
        }
        assert!(ring.samples.capacity() <= 16_320 * 9 / 8);
    }
}
