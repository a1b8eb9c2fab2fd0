//! Noise behind a caller, without an end.

use super::scenario::NoiseKind;
use crate::audio::level_dbfs;
use crate::dice::Dice;

/// The length after which it begins again, seconds.
const LENGTH: usize = 10;

/// Noise, sample by sample.
#[derive(Debug, Clone)]
pub(super) struct Noise {
    samples: Vec<f32>,
    at: usize,
}

impl Noise {
    /// Noise of a level, dBFS. `voices` are the sounds that babble is made of.
    pub(super) fn new(
        kind: NoiseKind,
        level: f32,
        rate: u32,
        dice: &mut Dice,
        voices: &[Vec<f32>],
    ) -> Self {
        let length = LENGTH * rate as usize;
        let samples = match kind {
            NoiseKind::White => (0..length).map(|_| uniform(dice)).collect(),
            NoiseKind::Pink => pink(length, dice),
            NoiseKind::Babble => babble(length, voices, dice),
        };
        Self {
            samples: at_level(&samples, level),
            at: 0,
        }
    }

    /// The next sample.
    pub(super) fn next(&mut self) -> f32 {
        let sample = self.samples.get(self.at).copied().unwrap_or_default();
        self.at = (self.at + 1) % self.samples.len().max(1);
        sample
    }
}

/// The samples at another level, dBFS. Silence stays silence.
pub(super) fn at_level(samples: &[f32], level: f32) -> Vec<f32> {
    if samples.iter().all(|sample| *sample == 0.0) {
        return samples.to_vec();
    }
    let gain = 10_f32.powf((level - level_dbfs(samples)) / 20.0);
    samples
        .iter()
        .map(|sample| (sample * gain).clamp(-1.0, 1.0))
        .collect()
}

fn uniform(dice: &mut Dice) -> f32 {
    2.0 * dice.share() as f32 - 1.0
}

/// Random steps of different speeds, summed (Voss's method): each half as often as the one before, which makes every
/// octave as loud as the next.
fn pink(length: usize, dice: &mut Dice) -> Vec<f32> {
    const STEPS: usize = 12;
    let mut steps = [0.0; STEPS];
    let sample = |at: usize| {
        let changed = (at.trailing_zeros() as usize).min(STEPS - 1);
        steps[changed] = uniform(dice);
        steps.iter().sum::<f32>() / STEPS as f32
    };
    (1..=length).map(sample).collect()
}

/// All voices at once, each twice, at random places.
fn babble(length: usize, voices: &[Vec<f32>], dice: &mut Dice) -> Vec<f32> {
    let mut samples = vec![0.0; length];
    for voice in voices.iter().chain(voices) {
        let from = dice.index(length);
        // Without a pause between its repetitions.
        for (at, sound) in voice.iter().cycle().take(length).enumerate() {
            samples[(from + at) % length] += sound;
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(kind: NoiseKind, seed: u64) -> Vec<f32> {
        let voices: Vec<Vec<f32>> = [130.0_f32, 210.0]
            .iter()
            .map(|hertz| {
                (0..9_000)
                    .map(|n| (n as f32 * hertz / 2_546.0).sin())
                    .collect()
            })
            .collect();
        let mut noise = Noise::new(
            kind,
            -38.0,
            16_000,
            &mut Dice::named(seed, "noise"),
            &voices,
        );
        (0..16_000).map(|_| noise.next()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_noise_at_its_level() {
        for kind in [NoiseKind::White, NoiseKind::Pink, NoiseKind::Babble] {
            let samples = noise(kind, 1);
            assert_eq!(samples, noise(kind, 1));
            assert_ne!(samples, noise(kind, 2), "{kind:?}");
            let level = level_dbfs(&samples);
            assert!((level + 38.0).abs() < 3.0, "{kind:?}: {level}");
        }
    }

    #[test]
    fn pink_noise_is_lower_than_white() {
        // The steps from sample to sample are smaller if the low frequencies are louder.
        let steps = |samples: &[f32]| {
            let steps = samples.windows(2).map(|pair| (pair[1] - pair[0]).abs());
            steps.sum::<f32>()
        };
        assert!(2.0 * steps(&noise(NoiseKind::Pink, 1)) < steps(&noise(NoiseKind::White, 1)));
    }

    #[test]
    fn silence_has_no_level() {
        assert_eq!(at_level(&[0.0; 3], -20.0), [0.0; 3]);
        assert!(at_level(&[], -20.0).is_empty());
    }
}
