//! Finds the tone of an answering machine in 16 kHz audio.

use super::RATE;
use std::f32::consts::TAU;

/// Samples of one frame: 20 ms, so that frequencies are told apart by 50 Hz.
const FRAME: usize = RATE as usize / 50;
const STEP_HZ: usize = 50;

/// The band of such tones, Hz. Exchanges ring in lower ones, 350 to 480 Hz (ITU-T E.180): a call that is put through to
/// somebody else may ring after it was answered.
const LOWEST: usize = 500;
const HIGHEST: usize = 2_500;

/// The part of a frame's energy that a pure tone has in the two steps around it, at the least.
const PURE: f32 = 0.75;

/// The least level of a tone, of full scale: -46 dBFS.
const LEVEL: f32 = 0.005;

/// The shortest and the longest such tone, frames: 160 ms to 3 s.
const SHORTEST: u32 = 8;
const LONGEST: u32 = 150;

/// Listens for a single steady tone.
#[derive(Debug, Default)]
pub struct Beeps {
    rest: Vec<f32>,
    /// The tone that sounds, in steps, and for how many frames.
    tone: Option<(usize, u32)>,
}

impl Beeps {
    /// Listens on. Whether a tone has just ended.
    pub fn push(&mut self, samples: &[f32]) -> bool {
        self.rest.extend(samples);
        let whole = self.rest.len() / FRAME * FRAME;
        let frames: Vec<f32> = self.rest.drain(..whole).collect();
        let mut ended = false;
        for frame in frames.chunks(FRAME) {
            let now = tone(frame);
            self.tone = match (self.tone, now) {
                (Some((known, frames)), Some(now)) if known.abs_diff(now) <= 1 => {
                    Some((known, frames + 1))
                }
                (before, now) => {
                    ended |=
                        before.is_some_and(|(_, frames)| (SHORTEST..=LONGEST).contains(&frames));
                    now.map(|now| (now, 1))
                }
            };
        }
        ended
    }
}

/// The frequency of a frame that is a pure tone, in steps.
fn tone(frame: &[f32]) -> Option<usize> {
    let total: f32 = frame.iter().map(|sample| sample * sample).sum();
    if total < LEVEL * LEVEL * frame.len() as f32 {
        return None;
    }
    let steps = LOWEST / STEP_HZ..=HIGHEST / STEP_HZ;
    let energies: Vec<f32> = steps.clone().map(|step| energy(frame, step)).collect();
    let best = (0..energies.len()).max_by(|a, b| energies[*a].total_cmp(&energies[*b]))?;
    let beside = |at: Option<usize>| at.and_then(|at| energies.get(at)).copied().unwrap_or(0.0);
    let around = beside(best.checked_sub(1)).max(beside(Some(best + 1)));
    (energies[best] + around >= PURE * total).then_some(steps.start() + best)
}

/// The part of the energy at this many steps (Goertzel).
fn energy(frame: &[f32], step: usize) -> f32 {
    let coefficient = 2.0 * (TAU * (step * STEP_HZ) as f32 / RATE as f32).cos();
    let (mut one, mut two) = (0.0, 0.0);
    for sample in frame {
        let next = sample + coefficient * one - two;
        (two, one) = (one, next);
    }
    (one * one + two * two - coefficient * one * two) * 2.0 / frame.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(hz: f32, ms: usize, level: f32) -> Vec<f32> {
        let wave = |at: usize| level * (TAU * hz * at as f32 / RATE as f32).sin();
        (0..ms * RATE as usize / 1_000).map(wave).collect()
    }

    fn beeps(parts: &[Vec<f32>]) -> usize {
        let mut beeps = Beeps::default();
        let all: Vec<f32> = parts.concat();
        all.chunks(333).filter(|part| beeps.push(part)).count()
    }

    #[test]
    fn tones_of_machines_are_found_when_they_end() {
        let quiet = sine(0.0, 500, 0.0);
        for hz in [520.0, 1_000.0, 1_023.0, 1_400.0, 2_100.0] {
            let heard = [quiet.clone(), sine(hz, 400, 0.1), quiet.clone()];
            assert_eq!(beeps(&heard), 1, "{hz} Hz");
        }
        assert_eq!(
            beeps(&[quiet.clone(), sine(1_000.0, 400, 0.1)]),
            0,
            "it goes on"
        );
    }

    /// A telephone that rang on after the call had been put through counted as a machine.
    #[test]
    fn ringing_and_busy_tones_are_none() {
        let quiet = sine(0.0, 500, 0.0);
        let both = |low: f32, high: f32, ms: usize| -> Vec<f32> {
            let pairs = sine(low, ms, 0.1).into_iter().zip(sine(high, ms, 0.1));
            pairs.map(|(low, high)| low + high).collect()
        };
        for tone in [
            sine(425.0, 1_000, 0.1),
            sine(450.0, 1_000, 0.1),
            both(440.0, 480.0, 2_000),
            both(400.0, 450.0, 400),
            both(480.0, 620.0, 500),
        ] {
            assert_eq!(beeps(&[quiet.clone(), tone, quiet.clone()]), 0);
        }
    }

    #[test]
    fn clicks_keys_and_long_tones_are_none() {
        let quiet = sine(0.0, 500, 0.0);
        let key = sine(697.0, 300, 0.1)
            .into_iter()
            .zip(sine(1_209.0, 300, 0.1));
        let key = key.map(|(low, high)| low + high).collect();
        for other in [
            sine(1_000.0, 60, 0.1),
            sine(1_000.0, 4_000, 0.1),
            sine(1_000.0, 400, 0.002),
            key,
        ] {
            assert_eq!(beeps(&[quiet.clone(), other, quiet.clone()]), 0);
        }
    }
}
