//! Echo cancellation: removes the loudspeaker's audio from the microphone's, so that barge-in works
//! and the agent does not mistake its own voice for the user's.
//!
//! The canceller is WebRTC's AEC3, as ported by the crate `aec3`. Noise suppression and gain
//! control stay off: the VAD and recognition models were trained on noisy speech, not on the
//! artefacts of suppressors; the figures are in `docs/desktop.md`.

use super::DesktopError;
use crate::audio::Resampler;
use aec3::nodes::audio::AudioFormat;
use aec3::pipelines::linear::{self, LinearPipeline};
use std::collections::VecDeque;

/// Rate of all audio in this module, Hz.
pub const RATE: u32 = 16_000;

/// Samples in a canceller frame: 10 ms.
pub const FRAME: usize = 160;

/// How often the loudspeaker's lead is checked, frames: 1 s.
const WATCH: u32 = 100;

/// The lead that is tolerated, frames: 20 ms.
const TOLERANCE: usize = 2;

/// The most played audio that is kept for the microphone, samples: 2 s.
const LONGEST: usize = 2 * RATE as usize;

/// Removes the echo from one pair of streams.
pub struct EchoCanceller(LinearPipeline);

impl EchoCanceller {
    /// An untrained canceller. It finds delays of up to half a second, and adapts to the room
    /// within the first second of echo.
    ///
    /// # Errors
    /// [`DesktopError::Echo`] if the canceller cannot be built.
    pub fn new() -> Result<Self, DesktopError> {
        let format = AudioFormat::ten_ms(RATE, 1);
        linear::builder(format, format)
            .enable_noise_suppression(false)
            .enable_gain_controller2(false)
            .enable_post_filter(false)
            .build()
            .map(Self)
            .map_err(failed)
    }

    /// Removes the echo of `played` from `heard`. Both are [`FRAME`] samples at [`RATE`]; `played`
    /// must not come later than its echo.
    ///
    /// # Errors
    /// [`DesktopError::Echo`] if the canceller fails.
    pub fn process(
        &mut self,
        played: &[f32; FRAME],
        heard: &[f32; FRAME],
    ) -> Result<[f32; FRAME], DesktopError> {
        let mut clean = [0.0; FRAME];
        self.0.handle_render_frame(played).map_err(failed)?;
        let done = self.0.process_capture_frame(heard, &mut clean);
        done.map_err(failed).map(|_| clean)
    }
}

impl std::fmt::Debug for EchoCanceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EchoCanceller").finish_non_exhaustive()
    }
}

fn failed(error: impl std::fmt::Display) -> DesktopError {
    DesktopError::Echo(error.to_string())
}

/// Pairs both devices' audio and returns the microphone's without echo.
///
/// The devices have clocks and chunk sizes of their own. Their samples are paired in order of
/// arrival, so that the delay between a sound and its echo stays constant, which the canceller has
/// to learn. If the computer is too busy to feed the loudspeaker, it goes silent once its buffer is
/// empty. The same amount is held back here, so the samples missing from the pairing are exactly
/// that silence.
#[derive(Debug)]
pub struct EchoFilter {
    canceller: EchoCanceller,
    microphone: Resampler,
    loudspeaker: Resampler,
    heard: VecDeque<f32>,
    played: VecDeque<f32>,
    /// How much of `played` is held back, samples.
    slack: usize,
    hearing: bool,
    /// The smallest amount held back during the last `watched` frames, samples.
    least: usize,
    watched: u32,
}

impl EchoFilter {
    /// A filter for a microphone and a loudspeaker at these rates, Hz. The loudspeaker buffers up
    /// to `buffer_ms` of audio that it has not played yet.
    ///
    /// # Errors
    /// [`DesktopError::Echo`] if the canceller cannot be built.
    pub fn new(microphone: u32, loudspeaker: u32, buffer_ms: u32) -> Result<Self, DesktopError> {
        Ok(Self {
            canceller: EchoCanceller::new()?,
            microphone: Resampler::new(microphone, RATE),
            loudspeaker: Resampler::new(loudspeaker, RATE),
            heard: VecDeque::new(),
            played: VecDeque::new(),
            slack: (buffer_ms * RATE / 1_000) as usize,
            hearing: false,
            least: usize::MAX,
            watched: 0,
        })
    }

    /// Adds samples that the loudspeaker accepted, at its rate.
    pub fn played(&mut self, samples: &[f32]) {
        self.played.extend(self.loudspeaker.push(samples));
        let over = self.played.len().saturating_sub(LONGEST);
        self.played.drain(..over);
    }

    /// Adds samples from the microphone, at its rate. Returns the audio that is ready, without
    /// echo, in whole frames at [`RATE`].
    ///
    /// # Errors
    /// [`DesktopError::Echo`] if the canceller fails.
    pub fn heard(&mut self, samples: &[f32]) -> Result<Vec<f32>, DesktopError> {
        self.heard.extend(self.microphone.push(samples));
        if !self.heard.is_empty() && !std::mem::replace(&mut self.hearing, true) {
            self.align();
        }
        let mut clean = Vec::with_capacity(self.heard.len());
        while self.heard.len() >= FRAME {
            let played = take(&mut self.played);
            let heard = take(&mut self.heard);
            clean.extend(self.canceller.process(&played, &heard)?);
            self.watch();
        }
        Ok(clean)
    }

    /// Starts with the loudspeaker's latest audio: as much as was heard, and `slack`, so that no sound comes later than
    /// its echo. What is accepted is added before the chunk that was heard meanwhile, and devices buffer two chunks: one
    /// less is held back.
    fn align(&mut self) {
        let chunk = self.heard.len().min(self.slack / 2);
        let wanted = self.slack + self.heard.len() - chunk;
        let over = self.played.len().saturating_sub(wanted);
        self.played.drain(..over);
        for _ in self.played.len()..wanted {
            self.played.push_front(0.0);
        }
    }

    /// Drops the loudspeaker's lead, which would otherwise grow until the echo came before its
    /// sound. A faster loudspeaker clock builds it up gradually, audio lost by the microphone at
    /// once.
    fn watch(&mut self) {
        self.least = self.least.min(self.played.len());
        self.watched += 1;
        if self.watched < WATCH {
            return;
        }
        if self.least > self.slack + TOLERANCE * FRAME {
            tracing::debug!(
                samples = self.least - self.slack,
                "dropped the loudspeaker's lead"
            );
            self.played.drain(..self.least - self.slack);
        }
        (self.least, self.watched) = (usize::MAX, 0);
    }
}

/// The next frame, padded with silence.
fn take(waiting: &mut VecDeque<f32>) -> [f32; FRAME] {
    let mut frame = [0.0; FRAME];
    let count = waiting.len().min(FRAME);
    for (to, sample) in frame.iter_mut().zip(waiting.drain(..count)) {
        *to = sample;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::level_dbfs;

    /// Reproducible noise.
    fn noise(samples: usize) -> Vec<f32> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..samples).map(|_| next() * 0.2).collect()
    }

    fn delayed(samples: &[f32], by: usize) -> Vec<f32> {
        let silence = std::iter::repeat_n(0.0, by);
        silence.chain(samples.iter().map(|s| s * 0.5)).collect()
    }

    #[test]
    fn the_echo_is_removed_at_any_rate_and_chunk_size() {
        for (rate, played_by, heard_by) in [(48_000, 960, 960), (44_100, 4_410, 441)] {
            let played = noise(6 * rate as usize);
            let heard = delayed(&played, rate as usize / 5);
            let mut filter = EchoFilter::new(rate, rate, played_by as u32 * 1_000 / rate).unwrap();
            let mut clean = Vec::new();
            let mut at = 0;
            for chunk in played.chunks(played_by) {
                filter.played(chunk);
                let end = at + chunk.len();
                for chunk in heard[at..end].chunks(heard_by) {
                    clean.extend(filter.heard(chunk).unwrap());
                }
                at = end;
            }
            let last = &clean[4 * RATE as usize..];
            assert!(level_dbfs(last) < -50.0, "{rate}: {}", level_dbfs(last));
        }
    }

    /// Nothing was held back any more if a lot was heard at first, as it is while a server is connected to.
    #[test]
    fn a_starved_loudspeaker_keeps_the_delay_to_its_echo() {
        for first in [FRAME, 10 * FRAME] {
            let left = left_after_a_stall(first);
            assert!(left < -50.0, "{first}: {left}");
        }
    }

    #[test]
    fn a_first_chunk_takes_nothing_of_the_reserve_and_moves_no_sound_behind_its_echo() {
        let mut filter = EchoFilter::new(RATE, RATE, 60).unwrap();
        filter.played(&[0.1; 6 * FRAME]);
        filter.heard(&[0.0; 3 * FRAME]).unwrap();
        assert_eq!(filter.played, vec![0.1; 3 * FRAME]);
    }

    /// The computer is busy for a quarter of a second: the loudspeaker plays its buffered 20 ms,
    /// then silence, then gets another 20 ms at once. The microphone's `first` samples come at once, too. Returns the
    /// level of the echo that is left, dBFS.
    fn left_after_a_stall(first: usize) -> f32 {
        const BUFFER: usize = 2 * FRAME;
        const GAP: usize = 4_000;
        let sound = noise(8 * RATE as usize);
        let stall = 5 * RATE as usize;
        let mut out = sound.clone();
        out.splice(stall..stall, vec![0.0; GAP - BUFFER]);
        let heard = delayed(&out, BUFFER + 1_600);
        let mut filter = EchoFilter::new(RATE, RATE, 20).unwrap();
        filter.played(&sound[..BUFFER]);
        let (mut fed, mut clean) = (BUFFER, Vec::new());
        let mut recorded = Vec::new();
        for (at, chunk) in heard.chunks(FRAME).enumerate() {
            let now = at * FRAME;
            let starves = (stall - BUFFER..stall - BUFFER + GAP - FRAME).contains(&now);
            if !starves {
                let until = if now < stall {
                    now + BUFFER
                } else {
                    now + 2 * BUFFER - GAP
                };
                let until = (until + FRAME).min(sound.len());
                filter.played(&sound[fed.min(until)..until]);
                fed = fed.max(until);
            }
            recorded.extend_from_slice(chunk);
            if now + FRAME >= first {
                clean.extend(filter.heard(&recorded).unwrap());
                recorded.clear();
            }
        }
        let after = stall + BUFFER + 1_600 + GAP;
        level_dbfs(&clean[after..after + 8_000])
    }

    #[test]
    fn the_lead_of_a_fast_loudspeaker_is_dropped() {
        let mut filter = EchoFilter::new(RATE, RATE, 20).unwrap();
        for _ in 0..3_000 {
            filter.played(&[0.0; FRAME + 1]);
            filter.heard(&[0.0; FRAME]).unwrap();
        }
        let most = filter.slack + (TOLERANCE + 1) * FRAME + 2 * WATCH as usize;
        assert!(filter.played.len() <= most, "{}", filter.played.len());
    }
}
