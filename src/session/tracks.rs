//! Both sides of a call on one clock: the user's audio on the left; on the right the agent's audio that was sent and
//! not discarded.

use crate::audio::{Resampler, to_f32, to_i16};
use crate::conversation::{Samples, Time};
use std::collections::VecDeque;
use std::ops::Range;

/// The newest part of both sides, which may still change, ms: audio is sent 200 ms before it is heard, and the user's
/// comes in bursts.
const OPEN_MS: u64 = 1_000;

/// The least gap in the arrival of a user's audio, ms, that is recorded as silence: the client was muted.
const GAP_MS: u64 = 500;

/// The least audio that is taken at once, ms.
const CHUNK_MS: u64 = 1_000;

/// The most audio of one side that waits for its time, ms. Audio that a client sends faster than that is left out.
const AHEAD_MS: u64 = 30_000;

/// Both sides of a call.
pub(super) struct Tracks {
    user: VecDeque<i16>,
    agent: VecDeque<i16>,
    /// The position of the first sample of both that waits.
    from: Samples,
    /// The positions of the last gap in the user's audio.
    gap: Range<u64>,
    resampler: Resampler,
}

impl Tracks {
    /// Tracks of a call that begins now, whose client is sent audio at `rate` Hz.
    pub(super) fn new(rate: u32) -> Self {
        Self {
            user: VecDeque::new(),
            agent: VecDeque::new(),
            from: Samples(0),
            gap: Range::default(),
            resampler: Resampler::new(rate, Samples::RATE),
        }
    }

    /// Adds the user's audio, 16 kHz, which has come in at `now`.
    pub(super) fn user(&mut self, now: Time, samples: &[f32]) {
        let now = position(now).0;
        let begins = now.saturating_sub(samples.len() as u64);
        let end = self.from.0 + self.user.len() as u64;
        if begins >= end + Samples::from_ms(GAP_MS).0 {
            pad(&mut self.user, begins - self.from.0);
            self.gap = end..begins;
        }
        add(&mut self.user, &to_i16(samples));
        self.narrow_gap(now);
    }

    /// Takes back silence if more audio has come than time has passed: it was late, and the client was not muted.
    fn narrow_gap(&mut self, now: u64) {
        let early = (self.from.0 + self.user.len() as u64).saturating_sub(now);
        let kept = self.gap.end.saturating_sub(early);
        let kept = kept.max(self.gap.start).max(self.from.0);
        if kept < self.gap.end {
            let late = kept - self.from.0..self.gap.end - self.from.0;
            self.user.drain(late.start as usize..late.end as usize);
            self.gap.end = kept;
        }
    }

    /// Adds audio that was sent at `now`: it is heard right after what was sent before, or now.
    pub(super) fn agent(&mut self, now: Time, samples: &[i16]) {
        pad(&mut self.agent, position(now).0.saturating_sub(self.from.0));
        let samples = self.resampler.push(&to_f32(samples));
        add(&mut self.agent, &to_i16(&samples));
    }

    /// Drops what was sent and will not be heard.
    pub(super) fn flush(&mut self, now: Time) {
        let heard = position(now).0.saturating_sub(self.from.0);
        self.agent.truncate(heard as usize);
        // Its last milliseconds would begin the next words.
        drop(self.resampler.flush());
    }

    /// Takes what can no longer change, left and right in turn, if it is a second or more.
    pub(super) fn take(&mut self, now: Time) -> Option<Vec<i16>> {
        let until = position(now).minus_ms(OPEN_MS);
        let is_enough = until.since(self.from) >= Samples::from_ms(CHUNK_MS).0;
        is_enough.then(|| self.take_until(until))
    }

    /// Takes everything up to the end of the call.
    pub(super) fn take_rest(&mut self, now: Time) -> Vec<i16> {
        self.take_until(position(now))
    }

    fn take_until(&mut self, until: Samples) -> Vec<i16> {
        let count = until.0.saturating_sub(self.from.0);
        self.from = self.from.max(until);
        let mut taken = Vec::with_capacity(2 * count as usize);
        for _ in 0..count {
            taken.push(self.user.pop_front().unwrap_or(0));
            taken.push(self.agent.pop_front().unwrap_or(0));
        }
        taken
    }
}

/// The position of a time since the beginning of the call.
fn position(at: Time) -> Samples {
    Samples(at.0 * u64::from(Samples::RATE) / 1_000_000)
}

/// Fills up with silence to this length.
fn pad(track: &mut VecDeque<i16>, length: u64) {
    if length > track.len() as u64 {
        track.resize(length as usize, 0);
    }
}

fn add(track: &mut VecDeque<i16>, samples: &[i16]) {
    if track.len() as u64 <= Samples::from_ms(AHEAD_MS).0 {
        track.extend(samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = Samples::RATE;

    fn ms(ms: u64) -> Time {
        Time::from_ms(ms)
    }

    fn sound(length_ms: u64) -> Vec<f32> {
        vec![0.5; Samples::from_ms(length_ms).0 as usize]
    }

    /// Where the sides have sound, ms: first and last.
    fn heard(interleaved: &[i16], side: usize) -> Option<(u64, u64)> {
        let loud = |(at, frame): (usize, &[i16; 2])| (frame[side] != 0).then_some(at as u64);
        let mut loud = interleaved
            .as_chunks::<2>()
            .0
            .iter()
            .enumerate()
            .filter_map(loud);
        let first = loud.next()?;
        let last = loud.next_back().unwrap_or(first);
        Some((Samples(first).as_ms(), Samples(last).as_ms()))
    }

    #[test]
    fn both_sides_have_one_clock() {
        let mut tracks = Tracks::new(RATE);
        tracks.user(ms(2_000), &sound(500));
        tracks.agent(ms(2_300), &to_i16(&sound(400)));
        // Sent before it is heard.
        tracks.agent(ms(2_500), &to_i16(&sound(100)));
        let all = tracks.take_rest(ms(4_000));
        assert_eq!(all.len() as u64, 2 * Samples::from_ms(4_000).0);
        assert_eq!(heard(&all, 0), Some((1_500, 1_999)));
        assert_eq!(heard(&all, 1), Some((2_300, 2_799)));
    }

    #[test]
    fn what_was_thrown_away_is_not_in_it() {
        let mut tracks = Tracks::new(RATE);
        tracks.agent(ms(1_000), &to_i16(&sound(600)));
        tracks.flush(ms(1_250));
        tracks.agent(ms(1_400), &to_i16(&sound(20)));
        let all = tracks.take_rest(ms(2_000));
        let right: Vec<i16> = all
            .as_chunks::<2>()
            .0
            .iter()
            .map(|frame| frame[1])
            .collect();
        let silent = &right[Samples::from_ms(1_250).0 as usize..Samples::from_ms(1_400).0 as usize];
        assert!(silent.iter().all(|sample| *sample == 0));
        assert_eq!(heard(&all, 1), Some((1_000, 1_419)));
    }

    #[test]
    fn the_end_of_what_was_thrown_away_does_not_begin_the_next_words() {
        let mut tracks = Tracks::new(24_000);
        tracks.agent(ms(1_000), &[16_000; 12_000]);
        tracks.flush(ms(1_250));
        tracks.agent(ms(1_400), &[0; 480]);
        let all = tracks.take_rest(ms(2_000));
        assert_eq!(heard(&all, 1), Some((1_000, 1_249)));
    }

    #[test]
    fn bursts_of_the_network_leave_no_gap_and_a_muted_microphone_does() {
        let mut tracks = Tracks::new(RATE);
        tracks.user(ms(100), &sound(100));
        tracks.user(ms(480), &sound(20));
        tracks.user(ms(480), &sound(360));
        tracks.user(ms(3_000), &sound(100));
        let all = tracks.take_rest(ms(3_000));
        let left: Vec<i16> = all
            .as_chunks::<2>()
            .0
            .iter()
            .map(|frame| frame[0])
            .collect();
        let at = |at: u64| left[Samples::from_ms(at).0 as usize] != 0;
        assert!(at(0) && at(150) && at(479));
        assert!(!at(600) && !at(2_890) && at(2_910));
    }

    /// It stayed late for the rest of the call, whose last words were missing.
    #[test]
    fn audio_that_the_network_held_up_stands_where_it_was_said() {
        let mut tracks = Tracks::new(RATE);
        tracks.user(ms(1_000), &sound(1_000));
        for _ in 0..45 {
            tracks.user(ms(1_900), &sound(20));
        }
        tracks.user(ms(1_920), &sound(20));
        let all = tracks.take_rest(ms(2_000));
        assert_eq!(heard(&all, 0), Some((0, 1_919)));
        let silent = all.as_chunks::<2>().0.iter().filter(|frame| frame[0] == 0);
        assert_eq!(Samples(silent.count() as u64).as_ms(), 80);
    }

    #[test]
    fn it_is_taken_in_pieces_of_a_second() {
        let mut tracks = Tracks::new(RATE);
        let mut taken = 0;
        for at in (20..=10_000).step_by(20) {
            tracks.user(ms(at), &sound(20));
            let chunk = tracks.take(ms(at)).unwrap_or_default();
            assert!(chunk.is_empty() || chunk.len() as u64 >= 2 * Samples::from_ms(1_000).0);
            taken += chunk.len();
        }
        taken += tracks.take_rest(ms(10_000)).len();
        assert_eq!(taken as u64, 2 * Samples::from_ms(10_000).0);
    }
}
