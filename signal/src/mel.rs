//! Whisper's log-mel spectrogram, the input of Whisper and Smart Turn.

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::ops::Range;
use std::sync::Arc;

/// Mel bands of one frame, of most models.
pub const BANDS: usize = 80;

/// Mel bands of one frame, of Whisper large-v3 and the models made from it.
pub const FINE_BANDS: usize = 128;

/// Samples from one frame to the next: 10 ms at 16 kHz.
pub const HOP: usize = 160;

/// Samples of one frame: 25 ms at 16 kHz.
const WINDOW: usize = 400;

/// Frequency bins of one frame.
const BINS: usize = WINDOW / 2 + 1;

/// The lowest energy of a band, whose logarithm is -10.
const LOWEST: f32 = 1e-10;

/// Computes log-mel spectrograms. Holds the FFT plan and the filters.
pub struct LogMel {
    fft: Arc<dyn RealToComplex<f32>>,
    window: Vec<f32>,
    filters: Vec<Band>,
}

/// A triangular filter: its weights from bin `first` on.
struct Band {
    first: usize,
    weights: Vec<f32>,
}

impl Default for LogMel {
    fn default() -> Self {
        Self::new()
    }
}

impl LogMel {
    /// [`BANDS`] bands of audio at 16 kHz.
    pub fn new() -> Self {
        Self::of_bands(BANDS)
    }

    /// So many bands of audio at 16 kHz, [`BANDS`] or [`FINE_BANDS`].
    pub fn of_bands(bands: usize) -> Self {
        let hann = |i: usize| 0.5 - 0.5 * (std::f32::consts::TAU * i as f32 / WINDOW as f32).cos();
        Self {
            fft: RealFftPlanner::new().plan_fft_forward(WINDOW),
            window: (0..WINDOW).map(hann).collect(),
            filters: slaney_filters(bands),
        }
    }

    /// The bands of one frame.
    pub fn bands(&self) -> usize {
        self.filters.len()
    }

    /// The features of `audio`, 16 kHz mono: [`Self::bands`] rows of `audio.len() / HOP` frames, row by
    /// row, roughly within -1..2. Frames are centred; the ends are padded by reflection.
    pub fn features(&self, audio: &[f32]) -> Vec<f32> {
        let frames = audio.len() / HOP;
        let padded = reflect(audio, WINDOW / 2);
        // Most of what the models hear is padding: digital silence has the lowest value in every band.
        let mut features = vec![LOWEST.log10(); self.bands() * frames];
        let mut input = self.fft.make_input_vec();
        let mut spectrum = self.fft.make_output_vec();
        let mut power = [0.0; BINS];
        for frame in frames_with_sound(audio) {
            let samples = &padded[frame * HOP..frame * HOP + WINDOW];
            for ((to, sample), weight) in input.iter_mut().zip(samples).zip(&self.window) {
                *to = sample * weight;
            }
            if self.fft.process(&mut input, &mut spectrum).is_ok() {
                for (to, bin) in power.iter_mut().zip(&spectrum) {
                    *to = Complex::norm_sqr(bin);
                }
            }
            for (band, filter) in self.filters.iter().enumerate() {
                features[band * frames + frame] = filter.energy(&power).max(LOWEST).log10();
            }
        }
        normalise(&mut features);
        features
    }
}

impl Band {
    fn energy(&self, power: &[f32; BINS]) -> f32 {
        self.weights
            .iter()
            .zip(&power[self.first..])
            .map(|(w, p)| w * p)
            .sum()
    }
}

/// The frames of `audio` that are not digital silence, and those between them.
fn frames_with_sound(audio: &[f32]) -> Range<usize> {
    let is_sound = |sample: &f32| *sample != 0.0;
    let (first, last) = (
        audio.iter().position(is_sound),
        audio.iter().rposition(is_sound),
    );
    let (Some(first), Some(last)) = (first, last) else {
        return 0..0;
    };
    let end = (last + WINDOW / 2) / HOP + 1;
    first.saturating_sub(WINDOW / 2) / HOP..end.min(audio.len() / HOP)
}

/// Applies Whisper's scaling: at most 8 (80 dB) below the loudest value, then `(x + 4) / 4`.
fn normalise(features: &mut [f32]) {
    let loudest = features.iter().copied().fold(f32::MIN, f32::max);
    for value in features {
        *value = (value.max(loudest - 8.0) + 4.0) / 4.0;
    }
}

/// `audio` with `pad` samples mirrored at both ends, the end samples themselves not repeated.
fn reflect(audio: &[f32], pad: usize) -> Vec<f32> {
    let at = |i: isize| -> f32 {
        let last = audio.len() as isize - 1;
        let mirrored = if i < 0 {
            -i
        } else if i > last {
            2 * last - i
        } else {
            i
        };
        audio.get(mirrored.max(0) as usize).copied().unwrap_or(0.0)
    };
    (-(pad as isize)..(audio.len() + pad) as isize)
        .map(at)
        .collect()
}

/// The mel filters of librosa's default: Slaney's scale, each band of equal area.
fn slaney_filters(bands: usize) -> Vec<Band> {
    let top = hz_to_mel(8_000.0);
    let edges: Vec<f64> = (0..bands + 2)
        .map(|i| mel_to_hz(top * i as f64 / (bands + 1) as f64))
        .collect();
    edges
        .windows(3)
        .map(|edge| triangle(edge[0], edge[1], edge[2]))
        .collect()
}

fn triangle(low: f64, centre: f64, high: f64) -> Band {
    let weight = |bin: usize| {
        let hz = bin as f64 * 8_000.0 / (BINS - 1) as f64;
        let rise = (hz - low) / (centre - low);
        let fall = (high - hz) / (high - centre);
        rise.min(fall).max(0.0) * 2.0 / (high - low)
    };
    let first = (0..BINS).find(|&bin| weight(bin) > 0.0).unwrap_or(0);
    let weights = (first..BINS)
        .map(weight)
        .take_while(|w| *w > 0.0)
        .map(|w| w as f32);
    Band {
        first,
        weights: weights.collect(),
    }
}

/// Linear below 1 kHz (66.7 Hz a mel), logarithmic above (27 mels from 1 kHz to 6.4 kHz).
fn hz_to_mel(hz: f64) -> f64 {
    if hz < 1_000.0 {
        hz * 3.0 / 200.0
    } else {
        15.0 + (hz / 1_000.0).ln() * 27.0 / 6.4f64.ln()
    }
}

fn mel_to_hz(mel: f64) -> f64 {
    if mel < 15.0 {
        mel * 200.0 / 3.0
    } else {
        1_000.0 * (6.4f64.ln() / 27.0 * (mel - 15.0)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_lights_up_its_band() {
        let audio: Vec<f32> = (0..16_000)
            .map(|i| (i as f32 * std::f32::consts::TAU * 1_000.0 / 16_000.0).sin())
            .collect();
        let features = LogMel::new().features(&audio);
        assert_eq!(features.len(), BANDS * 100);
        let column: Vec<f32> = (0..BANDS).map(|band| features[band * 100 + 50]).collect();
        let loudest = (0..BANDS)
            .max_by(|a, b| column[*a].total_cmp(&column[*b]))
            .unwrap();
        let centre = mel_to_hz(hz_to_mel(8_000.0) * (loudest + 1) as f64 / (BANDS + 1) as f64);
        assert!((centre - 1_000.0).abs() < 40.0, "{centre}");
    }

    #[test]
    fn scales_are_inverse_and_filters_cover_all_bands() {
        for hz in [0.0, 440.0, 1_000.0, 7_999.0] {
            assert!((mel_to_hz(hz_to_mel(hz)) - hz).abs() < 1e-6);
        }
        for bands in [BANDS, FINE_BANDS] {
            let filters = slaney_filters(bands);
            assert!(filters.iter().all(|band| !band.weights.is_empty()));
        }
    }

    /// By librosa's definition, `filters.mel(sr=16000, n_fft=400, n_mels=128)`, computed apart from this code.
    #[test]
    fn the_filters_of_128_bands_are_those_of_librosa() {
        let filters = slaney_filters(FINE_BANDS);
        let expected: [(usize, usize, &[f32]); 7] = [
            (0, 1, &[0.012_373_986]),
            (1, 1, &[0.030_392_565]),
            (10, 6, &[0.011_289_184, 0.001_084_802]),
            (40, 24, &[0.040_376_365]),
            (64, 42, &[0.006_749_683, 0.018_091_518]),
            (
                100,
                100,
                &[0.002_578_351, 0.006_775_829, 0.009_409_416, 0.005_311_946],
            ),
            (
                127,
                191,
                &[0.000_475_695, 0.001_617_172, 0.002_758_648, 0.003_900_125],
            ),
        ];
        for (band, first, weights) in expected {
            assert_eq!(filters[band].first, first, "band {band}");
            for (weight, expected) in filters[band].weights.iter().zip(weights) {
                assert!((weight - expected).abs() < 1e-7, "band {band}: {weight}");
            }
        }
        let all: f32 = filters.iter().flat_map(|band| &band.weights).sum();
        assert!((all - 3.190_985_5).abs() < 1e-4, "{all}");
    }

    #[test]
    fn features_have_a_row_for_each_of_128_bands() {
        let mel = LogMel::of_bands(FINE_BANDS);
        assert_eq!(mel.bands(), 128);
        assert_eq!(mel.features(&[0.1; 1_600]).len(), 128 * 10);
    }

    #[test]
    fn padding_does_not_change_a_frame_of_sound() {
        let mut audio = vec![0.0; 8_000];
        for (i, sample) in audio.iter_mut().enumerate().skip(3_000).take(1_000) {
            *sample = (i as f32 * 0.7).sin();
        }
        // A sample that cannot be heard keeps the padding from being digital silence.
        let mut noisy = audio.clone();
        for sample in &mut noisy {
            *sample += 1e-12;
        }
        let mel = LogMel::new();
        assert_eq!(frames_with_sound(&audio), 17..27);
        assert_eq!(frames_with_sound(&noisy), 0..50);
        for (quiet, noisy) in mel.features(&audio).iter().zip(mel.features(&noisy)) {
            assert!((quiet - noisy).abs() < 1e-5, "{quiet} {noisy}");
        }
    }

    #[test]
    fn silence_is_flat_and_short_audio_does_not_panic() {
        let mel = LogMel::new();
        assert!(
            mel.features(&vec![0.0; 1_600])
                .iter()
                .all(|x| (*x + 1.5).abs() < 1e-6)
        );
        assert!(mel.features(&[]).is_empty());
        assert_eq!(mel.features(&[0.1; 170]).len(), BANDS);
    }
}
