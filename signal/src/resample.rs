//! Streaming resampling: the phase is kept across pieces of any length.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler as _};

/// The length of audio that is transformed at once, ms. 10 ms cause a delay of 5 ms.
const CHUNK_MS: u32 = 10;

/// A streaming resampler of one mono channel.
///
/// The output is aligned with the input to within half a sample, but comes up to 15 ms later;
/// [`Resampler::flush`] returns the rest.
pub struct Resampler {
    /// `None` if the rates are equal.
    fft: Option<Fft<f32>>,
    ratio: f64,
    waiting: Vec<f32>,
    /// Samples still to be dropped from the beginning of the output, due to the filter's delay.
    to_skip: usize,
    taken: u64,
    given: u64,
}

impl std::fmt::Debug for Resampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resampler")
            .field("ratio", &self.ratio)
            .finish_non_exhaustive()
    }
}

impl Resampler {
    /// A resampler from `from` Hz to `to` Hz.
    ///
    /// # Panics
    /// If a rate is zero.
    pub fn new(from: u32, to: u32) -> Self {
        let fft = (from != to).then(|| {
            let chunk = (from * CHUNK_MS / 1_000).max(1) as usize;
            Fft::new_custom(
                from as usize,
                to as usize,
                chunk,
                1,
                1,
                rubato::WindowFunction::BlackmanHarris2,
                FixedSync::Both,
            )
            .expect("sample rates are not zero")
        });
        Self {
            to_skip: fft.as_ref().map_or(0, rubato::Resampler::output_delay),
            fft,
            ratio: f64::from(to) / f64::from(from),
            waiting: Vec::new(),
            taken: 0,
            given: 0,
        }
    }

    /// Adds any number of samples and returns the output that is ready.
    pub fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        if self.fft.is_none() {
            return samples.to_vec();
        }
        self.taken += samples.len() as u64;
        self.waiting.extend(samples);
        self.process()
    }

    /// Returns the rest of the output and resets the stream.
    pub fn flush(&mut self) -> Vec<f32> {
        let Some(fft) = &self.fft else {
            return Vec::new();
        };
        let whole = (self.taken as f64 * self.ratio).round() as u64;
        let missing = whole.saturating_sub(self.given) as usize;
        let chunk = fft.input_frames_next();
        let mut out = Vec::with_capacity(missing + chunk);
        while out.len() < missing {
            self.waiting
                .resize(self.waiting.len().next_multiple_of(chunk).max(chunk), 0.0);
            out.extend(self.process());
        }
        out.truncate(missing);
        self.waiting.clear();
        (self.taken, self.given) = (0, 0);
        if let Some(fft) = &mut self.fft {
            fft.reset();
            self.to_skip = fft.output_delay();
        }
        out
    }

    fn process(&mut self) -> Vec<f32> {
        let Some(fft) = &mut self.fft else {
            return Vec::new();
        };
        let chunk = fft.input_frames_next();
        let chunks = self.waiting.len() / chunk;
        let mut out = vec![0.0; chunks * fft.output_frames_max()];
        let mut made = 0;
        for input in self.waiting.chunks_exact(chunk) {
            let room = out.len() - made;
            let done = InterleavedSlice::new(input, 1, chunk)
                .ok()
                .zip(InterleavedSlice::new_mut(&mut out[made..], 1, room).ok());
            if let Some((input, mut output)) = done
                && let Ok((_, written)) = fft.process_into_buffer(&input, &mut output, None)
            {
                made += written;
            }
        }
        out.truncate(made);
        self.waiting.drain(..chunks * chunk);
        let skip = self.to_skip.min(out.len());
        self.to_skip -= skip;
        out.drain(..skip);
        self.given += out.len() as u64;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tone(rate: u32, hz: f32, samples: usize) -> Vec<f32> {
        let step = std::f32::consts::TAU * hz / rate as f32;
        (0..samples).map(|i| (i as f32 * step).sin()).collect()
    }

    fn whole(from: u32, to: u32, input: &[f32]) -> Vec<f32> {
        let mut resampler = Resampler::new(from, to);
        let mut out = resampler.push(input);
        out.extend(resampler.flush());
        out
    }

    #[test]
    fn a_tone_keeps_its_pitch_and_position() {
        for (from, to) in [
            (24_000, 16_000),
            (22_050, 16_000),
            (22_050, 24_000),
            (8_000, 16_000),
            (48_000, 16_000),
        ] {
            let out = whole(from, to, &tone(from, 440.0, from as usize));
            assert_eq!(out.len(), to as usize);
            let wanted = tone(to, 440.0, to as usize);
            let middle = to as usize / 10..to as usize * 9 / 10;
            let error: f32 = out[middle.clone()]
                .iter()
                .zip(&wanted[middle.clone()])
                .map(|(a, b)| (a - b).powi(2))
                .sum::<f32>()
                / middle.len() as f32;
            // 0.05: at 440 Hz, half a sample.
            assert!(error.sqrt() < 0.05, "{from} -> {to}: {}", error.sqrt());
        }
    }

    #[test]
    fn a_flush_resets_the_stream() {
        let input = tone(24_000, 300.0, 5_000);
        let mut resampler = Resampler::new(24_000, 16_000);
        for _ in 0..2 {
            let mut out = resampler.push(&input);
            out.extend(resampler.flush());
            assert_eq!(out, whole(24_000, 16_000, &input));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn cutting_makes_no_difference(cuts in prop::collection::vec(0usize..900, 1..20)) {
            let input = tone(22_050, 500.0, cuts.iter().sum());
            let mut resampler = Resampler::new(22_050, 16_000);
            let mut out = Vec::new();
            let mut at = 0;
            for cut in cuts {
                out.extend(resampler.push(&input[at..at + cut]));
                at += cut;
            }
            out.extend(resampler.flush());
            prop_assert_eq!(out, whole(22_050, 16_000, &input));
        }
    }
}
