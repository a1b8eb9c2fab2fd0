//! The queue of audio between the session and the loudspeaker's real-time thread.
//!
//! The module uses cpal directly, not rodio: the agent is one mono stream without decoding, the echo
//! canceller needs every sample in the order played, and a barge-in must clear the queue at once.
//! The other sounds need no mixer either: [`super::sounds`] makes them where they are played.

use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Creates a queue for `capacity` samples.
pub fn queue(capacity: usize) -> (Feed, Drain) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let cleared = Arc::new(AtomicU64::new(0));
    let feed = Feed {
        samples: producer,
        cleared: cleared.clone(),
        written: 0,
    };
    let drain = Drain {
        samples: consumer,
        cleared,
        read: 0,
    };
    (feed, drain)
}

/// The writing end.
#[derive(Debug)]
pub struct Feed {
    samples: Producer<f32>,
    cleared: Arc<AtomicU64>,
    written: u64,
}

impl Feed {
    /// Appends samples. Returns how many did not fit and were dropped.
    pub fn push(&mut self, samples: &[f32]) -> usize {
        let (kept, lost) = self.samples.push_partial_slice(samples);
        self.written += kept.len() as u64;
        lost.len()
    }

    /// Discards everything pushed so far.
    pub fn clear(&mut self) {
        self.cleared.store(self.written, Ordering::Release);
    }

    /// The number of queued samples, including cleared ones.
    pub fn waiting(&self) -> usize {
        self.samples.buffer().capacity() - self.samples.slots()
    }
}

/// The loudspeaker's end. It never locks, allocates or blocks.
#[derive(Debug)]
pub struct Drain {
    samples: Consumer<f32>,
    cleared: Arc<AtomicU64>,
    read: u64,
}

impl Drain {
    /// Drops cleared samples. To be called before each chunk.
    pub fn catch_up(&mut self) {
        let stale = self
            .cleared
            .load(Ordering::Acquire)
            .saturating_sub(self.read) as usize;
        let stale = stale.min(self.samples.slots());
        if let Ok(chunk) = self.samples.read_chunk(stale) {
            chunk.commit_all();
            self.read += stale as u64;
        }
    }

    /// The next sample; silence if the queue is empty.
    pub fn next_sample(&mut self) -> f32 {
        self.samples.pop().map_or(0.0, |sample| {
            self.read += 1;
            sample
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn play(drain: &mut Drain, count: usize) -> Vec<f32> {
        drain.catch_up();
        (0..count).map(|_| drain.next_sample()).collect()
    }

    #[test]
    fn cleared_samples_are_skipped_at_once() {
        let (mut feed, mut drain) = queue(100);
        assert_eq!(feed.push(&[1.0; 60]), 0);
        assert_eq!(play(&mut drain, 10), [1.0; 10]);
        feed.clear();
        feed.push(&[2.0; 5]);
        assert_eq!(play(&mut drain, 6), [2.0, 2.0, 2.0, 2.0, 2.0, 0.0]);
        assert_eq!(feed.waiting(), 0);
    }

    #[test]
    fn dropped_samples_are_counted() {
        let (mut feed, _drain) = queue(10);
        assert_eq!(feed.push(&[1.0; 12]), 2);
        assert_eq!(feed.waiting(), 10);
    }

    proptest! {
        /// In any order of steps, a clear drops everything older and nothing newer.
        #[test]
        fn nothing_stale_is_played(steps in prop::collection::vec(0u8..4, 0..200)) {
            let (mut feed, mut drain) = queue(10_000);
            let (mut next, mut stale, mut played) = (1u32, 0u32, 0u32);
            for step in steps {
                match step {
                    0 | 1 => {
                        feed.push(&[next as f32]);
                        next += 1;
                    }
                    2 => {
                        feed.clear();
                        stale = next - 1;
                    }
                    _ => {
                        let sample = play(&mut drain, 1)[0] as u32;
                        let wanted = played.max(stale) + 1;
                        prop_assert_eq!(sample, if wanted < next { wanted } else { 0 });
                        played = played.max(sample);
                    }
                }
            }
        }
    }
}
