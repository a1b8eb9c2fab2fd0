//! Takes what the loudspeaker plays out of what the microphone hears, so that the agent can be
//! interrupted while it speaks and does not take its own voice for the user's.
//!
//! The canceller is WebRTC's AEC3 in the port of the crate `aec3`. Noise suppression and gain
//! control stay off: voice activity and recognition were trained on noisy speech, and what
//! suppressors do to it they were not; the figures are in `docs/desktop.md`.

use super::DesktopError;
use crate::audio::Resampler;
use aec3::nodes::audio::AudioFormat;
use aec3::pipelines::linear::{self, LinearPipeline};
use std::collections::VecDeque;

/// Rate of everything in here, Hz.
pub const RATE: u32 = 16_000;

/// Samples of one of the canceller's frames: 10 ms.
pub const FRAME: usize = 160;

/// Frames after which the loudspeaker's lead is looked at: 1 s.
const WATCH: u32 = 100;

/// Frames of lead that do no harm: 20 ms.
const TOLERANCE: usize = 2;

/// The longest that played audio waits for the microphone, samples: 2 s.
const LONGEST: usize = 2 * RATE as usize;

/// Removes the echo from one pair of streams.
pub struct EchoCanceller(LinearPipeline);

impl EchoCanceller {
    /// A canceller that knows nothing of the room yet. It finds delays of up to half a second, and
    /// learns the room within the first second that it hears it.
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

    /// Removes the echo of `played` from the 10 ms that the microphone `heard`. Both are
    /// [`FRAME`] samples at [`RATE`]; `played` must not lie behind its echo.
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

/// The microphone's audio without the loudspeaker's.
///
/// Both devices have clocks and chunks of their own. Sample by sample they are paired in the order
/// in which they come, so that the distance between a sound and its echo stays the same, which is
/// what the canceller has to learn. When the computer is too busy to feed the loudspeaker, it falls
/// silent as soon as its buffer is empty; exactly as much is held back here, so what is missing
/// then is that silence.
#[derive(Debug)]
pub struct Ear {
    canceller: EchoCanceller,
    microphone: Resampler,
    loudspeaker: Resampler,
    heard: VecDeque<f32>,
    played: VecDeque<f32>,
    /// How much of `played` is held back, samples.
    slack: usize,
    hearing: bool,
    /// The least that was held back, and over how many frames.
    least: usize,
    watched: u32,
}

impl Ear {
    /// An ear for a microphone and a loudspeaker at these rates, Hz. The loudspeaker holds up to
    /// `buffer_ms` that it has taken and not played.
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

    /// The loudspeaker took these samples, at its rate.
    pub fn played(&mut self, samples: &[f32]) {
        self.played.extend(self.loudspeaker.push(samples));
        let over = self.played.len().saturating_sub(LONGEST);
        self.played.drain(..over);
    }

    /// The microphone gave these samples, at its rate. Returns what is ready without echo, at
    /// [`RATE`], in whole frames.
    ///
    /// # Errors
    /// [`DesktopError::Echo`] if the canceller fails.
    pub fn heard(&mut self, samples: &[f32]) -> Result<Vec<f32>, DesktopError> {
        if !samples.is_empty() && !std::mem::replace(&mut self.hearing, true) {
            self.align();
        }
        self.heard.extend(self.microphone.push(samples));
        let mut clean = Vec::with_capacity(self.heard.len());
        while self.heard.len() >= FRAME {
            let played = take(&mut self.played);
            let heard = take(&mut self.heard);
            clean.extend(self.canceller.process(&played, &heard)?);
            self.watch();
        }
        Ok(clean)
    }

    /// Begins with `slack` of the loudspeaker's latest audio: then no sound lies behind its echo.
    fn align(&mut self) {
        let over = self.played.len().saturating_sub(self.slack);
        self.played.drain(..over);
        for _ in self.played.len()..self.slack {
            self.played.push_front(0.0);
        }
    }

    /// A loudspeaker with a faster clock gets ahead bit by bit, one whose microphone loses audio at
    /// once, until the echo would come before the sound.
    fn watch(&mut self) {
        self.least = self.least.min(self.played.len());
        self.watched += 1;
        if self.watched < WATCH {
            return;
        }
        if self.least > self.slack + TOLERANCE * FRAME {
            tracing::debug!(
                samples = self.least - self.slack,
                "the loudspeaker is ahead"
            );
            self.played.drain(..self.least - self.slack);
        }
        (self.least, self.watched) = (usize::MAX, 0);
    }
}

/// The next frame; what is missing is silence.
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

    /// A second of noise, always the same.
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
    fn the_echo_goes_whatever_the_chunks_and_rates() {
        for (rate, played_by, heard_by) in [(48_000, 960, 960), (44_100, 4_410, 441)] {
            let played = noise(6 * rate as usize);
            let heard = delayed(&played, rate as usize / 5);
            let mut ear = Ear::new(rate, rate, played_by as u32 * 1_000 / rate).unwrap();
            let mut clean = Vec::new();
            let mut at = 0;
            for chunk in played.chunks(played_by) {
                ear.played(chunk);
                let end = at + chunk.len();
                for chunk in heard[at..end].chunks(heard_by) {
                    clean.extend(ear.heard(chunk).unwrap());
                }
                at = end;
            }
            let last = &clean[4 * RATE as usize..];
            assert!(level_dbfs(last) < -50.0, "{rate}: {}", level_dbfs(last));
        }
    }

    /// The computer is busy for a quarter of a second: the loudspeaker plays the 40 ms that it has,
    /// then nothing, then all at once gets another 40 ms.
    #[test]
    fn a_loudspeaker_that_starves_keeps_the_distance_to_its_echo() {
        const BUFFER: usize = 640;
        const GAP: usize = 4_000;
        let sound = noise(8 * RATE as usize);
        let stall = 5 * RATE as usize;
        let mut out = sound.clone();
        out.splice(stall..stall, vec![0.0; GAP - BUFFER]);
        let heard = delayed(&out, BUFFER + 1_600);
        let mut ear = Ear::new(RATE, RATE, 40).unwrap();
        ear.played(&sound[..BUFFER]);
        let (mut fed, mut clean) = (BUFFER, Vec::new());
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
                ear.played(&sound[fed.min(until)..until]);
                fed = fed.max(until);
            }
            clean.extend(ear.heard(chunk).unwrap());
        }
        let after = stall + BUFFER + 1_600 + GAP;
        let left = level_dbfs(&clean[after..after + 8_000]);
        assert!(left < -50.0, "{left}");
    }

    #[test]
    fn a_loudspeaker_that_is_fast_is_held_back() {
        let mut ear = Ear::new(RATE, RATE, 20).unwrap();
        for _ in 0..3_000 {
            ear.played(&[0.0; FRAME + 1]);
            ear.heard(&[0.0; FRAME]).unwrap();
        }
        let most = ear.slack + (TOLERANCE + 1) * FRAME + 2 * WATCH as usize;
        assert!(ear.played.len() <= most, "{}", ear.played.len());
    }
}
