//! The queue of audio between the session and the loudspeaker's real-time thread.
//!
//! Playing is done on cpal itself, not on rodio: the agent is one mono stream without a file to
//! decode or sources to mix, the echo canceller has to know each sample that is played and when, and
//! an interruption must empty the queue at once.

use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A queue for `capacity` samples.
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

/// The end that is written to.
#[derive(Debug)]
pub struct Feed {
    samples: Producer<f32>,
    cleared: Arc<AtomicU64>,
    written: u64,
}

impl Feed {
    /// Appends samples. Returns how many found no room and are lost.
    pub fn push(&mut self, samples: &[f32]) -> usize {
        let (kept, lost) = self.samples.push_partial_slice(samples);
        self.written += kept.len() as u64;
        lost.len()
    }

    /// Nothing of what was pushed so far is played any more.
    pub fn clear(&mut self) {
        self.cleared.store(self.written, Ordering::Release);
    }

    /// Samples that wait, cleared or not.
    pub fn waiting(&self) -> usize {
        self.samples.buffer().capacity() - self.samples.slots()
    }
}

/// The loudspeaker's end. It takes no lock and no memory, and never waits.
#[derive(Debug)]
pub struct Drain {
    samples: Consumer<f32>,
    cleared: Arc<AtomicU64>,
    read: u64,
}

impl Drain {
    /// Drops what was cleared. Called before each chunk that is played.
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

    /// The next sample; silence if none waits.
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
    fn what_is_cleared_is_not_played_and_what_follows_is_at_once() {
        let (mut feed, mut drain) = queue(100);
        assert_eq!(feed.push(&[1.0; 60]), 0);
        assert_eq!(play(&mut drain, 10), [1.0; 10]);
        feed.clear();
        feed.push(&[2.0; 5]);
        assert_eq!(play(&mut drain, 6), [2.0, 2.0, 2.0, 2.0, 2.0, 0.0]);
        assert_eq!(feed.waiting(), 0);
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let (mut feed, _drain) = queue(10);
        assert_eq!(feed.push(&[1.0; 12]), 2);
        assert_eq!(feed.waiting(), 10);
    }

    proptest! {
        /// In any order of steps: a clear drops everything older, and nothing newer is lost.
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
