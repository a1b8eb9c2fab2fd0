//! Audio samples, and their processing before a model sees them. No I/O, no clock.
//!
//! Inside the server the user's audio is 16 kHz mono `f32` in -1..1; on the wire it is PCM16.

mod beep;
mod decode;
pub mod dtmf;
pub mod g711;
mod ring;
mod stretches;
#[cfg(test)]
pub(crate) mod testing;

pub use beep::Beeps;
pub(crate) use decode::{RATES, mono};
pub use decode::{decode, write_wav};
pub use ring::Ring;
pub use stretches::{stretches, stretches_within};
pub use undertone_signal::{Resampler, level_dbfs, mel, to_f32, to_i16, to_pcm16le};

use std::borrow::Cow;

/// The rate inside the server, Hz.
pub const RATE: u32 = 16_000;

/// The bytes end in the middle of a PCM16 sample. Contains the number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes of audio are not whole 16-bit samples")]
pub struct OddLength(pub usize);

/// Little-endian PCM16 bytes to samples.
///
/// # Errors
/// [`OddLength`] if the last sample is incomplete.
pub fn from_pcm16le(bytes: &[u8]) -> Result<Vec<i16>, OddLength> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(OddLength(bytes.len()));
    }
    Ok(pairs.iter().copied().map(i16::from_le_bytes).collect())
}

/// The loudest 32 ms of quiet speech are raised to this level, dBFS RMS, from below [`QUIET_DBFS`].
const USUAL_DBFS: f32 = -20.0;

/// Speech whose loudest 32 ms are below this level, dBFS RMS, is quiet.
const QUIET_DBFS: f32 = -30.0;

/// The most that speech is raised, dB: below -60 dBFS there is little but noise.
const MOST_GAIN_DB: f32 = 40.0;

/// Speech, 16 kHz, at a usual level: recognisers misread quiet speech, since they are trained on recordings.
pub fn at_usual_level(samples: &[f32]) -> Cow<'_, [f32]> {
    let levels = samples.chunks(512).map(level_dbfs);
    let loudest = levels.fold(f32::NEG_INFINITY, f32::max);
    if loudest >= QUIET_DBFS || samples.is_empty() {
        return samples.into();
    }
    let gain = 10_f32.powf((USUAL_DBFS - loudest).min(MOST_GAIN_DB) / 20.0);
    let raised = samples
        .iter()
        .map(|sample| (sample * gain).clamp(-1.0, 1.0));
    raised.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pcm16_survives_a_round_trip(samples: Vec<i16>) {
            prop_assert_eq!(&to_i16(&to_f32(&samples)), &samples);
            prop_assert_eq!(from_pcm16le(&to_pcm16le(&samples)), Ok(samples));
        }
    }

    #[test]
    fn half_a_sample_is_an_error() {
        assert_eq!(from_pcm16le(&[1, 2, 3]), Err(OddLength(3)));
    }

    #[test]
    fn quiet_speech_is_raised_and_loud_speech_is_left_alone() {
        let speech: Vec<f32> = (0..16_000).map(|n| (n as f32 / 9.0).sin()).collect();
        let at = |dbfs: f32| -> Vec<f32> {
            let gain = 10_f32.powf((dbfs - level_dbfs(&speech)) / 20.0);
            speech.iter().map(|sample| sample * gain).collect()
        };
        for quiet in [-58.0, -45.0, -31.0] {
            let level = level_dbfs(&at_usual_level(&at(quiet)));
            assert!((level - USUAL_DBFS).abs() < 0.5, "{quiet}: {level}");
        }
        let loud = at(-29.0);
        assert!(matches!(at_usual_level(&loud), Cow::Borrowed(_)));
        let noise = level_dbfs(&at_usual_level(&at(-90.0)));
        assert!((noise + 50.0).abs() < 0.5, "{noise}");
        assert!(at_usual_level(&[]).is_empty());
    }
}
