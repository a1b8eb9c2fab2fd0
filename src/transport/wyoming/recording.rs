//! Audio that a client wants transcribed, collected as it arrives.

use super::Refused;
use crate::asr::MAX_SAMPLES;
use crate::audio::{Resampler, stretches, to_f32};
use crate::conversation::Samples;
use serde::Deserialize;

/// The accepted rates, Hz: those of sound cards. Resampling between unusual rates is expensive.
const RATES: [u32; 9] = [
    8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000,
];

/// The longest recording, minutes.
pub(super) const MOST_MINUTES: usize = 10;

/// The same in samples.
const LONGEST: usize = MOST_MINUTES * 60 * Samples::RATE as usize;

/// The most bytes to push at once: 2 s of mono audio at 16 kHz, so that converting a large chunk takes little memory.
pub(super) const PART: usize = 64 * 1024;

/// The format of a client's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Format {
    /// Hz.
    rate: u32,
    /// Bytes per sample.
    width: u16,
    /// 1: mono.
    channels: u16,
}

/// Audio at the recogniser's rate.
pub(super) struct Recording {
    format: Format,
    /// The start of a sample frame that the next chunk completes.
    begun: Vec<u8>,
    resampler: Resampler,
    /// The audio that is not transcribed yet.
    samples: Vec<f32>,
    /// Samples before that.
    before: usize,
    /// The words in those.
    words: String,
}

impl Recording {
    /// A recording of audio in this format: PCM16, mono or stereo.
    pub(super) fn begin(format: Format) -> Result<Self, Refused> {
        if format.width != 2 || !(1..=2).contains(&format.channels) || !RATES.contains(&format.rate)
        {
            return Err(Refused::Format(format));
        }
        Ok(Self {
            format,
            begun: Vec::new(),
            resampler: Resampler::new(format.rate, Samples::RATE),
            samples: Vec::new(),
            before: 0,
            words: String::new(),
        })
    }

    /// Adds a chunk of any length; clients may split chunks in the middle of a sample frame.
    pub(super) fn push(&mut self, format: Format, payload: &[u8]) -> Result<(), Refused> {
        if format != self.format {
            return Err(Refused::FormatChanged);
        }
        let channels = usize::from(format.channels);
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(payload);
        let whole = bytes.len() - bytes.len() % (2 * channels);
        self.begun = bytes.split_off(whole);
        let samples: Vec<i16> = bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|sample| i16::from_le_bytes(*sample))
            .collect();
        let mono: Vec<f32> = to_f32(&samples)
            .chunks(channels)
            .map(|frame| frame.iter().sum::<f32>() / f32::from(format.channels))
            .collect();
        self.samples.extend(self.resampler.push(&mono));
        if self.before + self.samples.len() > LONGEST {
            return Err(Refused::LongAudio);
        }
        Ok(())
    }

    /// Takes the audio up to a pause out of more than the recogniser takes at once: mono at 16 kHz.
    pub(super) fn cut(&mut self) -> Option<Vec<f32>> {
        if self.samples.len() <= MAX_SAMPLES {
            return None;
        }
        let length = stretches(&self.samples).first()?.len();
        self.before += length;
        Some(self.samples.drain(..length).collect())
    }

    /// Adds the words in audio that was cut off.
    pub(super) fn heard(&mut self, words: &str) {
        self.words = followed(&self.words, words);
    }

    /// The words so far, and the rest of the audio: mono at 16 kHz, without an incomplete frame at its end.
    pub(super) fn end(mut self) -> (String, Vec<f32>) {
        self.samples.extend(self.resampler.flush());
        (self.words, self.samples)
    }
}

/// Words, and those that follow them.
pub(super) fn followed(words: &str, others: &str) -> String {
    format!("{words} {}", others.trim()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::to_pcm16le;

    const STEREO: Format = Format {
        rate: 48_000,
        width: 2,
        channels: 2,
    };

    #[test]
    fn stereo_is_mixed_and_resampled_across_chunks() {
        let mut recording = Recording::begin(STEREO).unwrap();
        let quarter_and_silence = [8_192, 0].repeat(48_000);
        for chunk in to_pcm16le(&quarter_and_silence).chunks(4 * 1_000) {
            recording.push(STEREO, chunk).unwrap();
        }
        let (_, samples) = recording.end();
        assert_eq!(samples.len(), 16_000);
        let steady = &samples[1_000..15_000];
        assert!(steady.iter().all(|s| (s - 0.125).abs() < 1e-3));
    }

    #[test]
    fn chunk_lengths_do_not_change_the_recording() {
        let frames: Vec<i16> = (0..9_600).flat_map(|i| [i, -i]).collect();
        let bytes = to_pcm16le(&frames);
        let recorded = |chunks: &mut dyn Iterator<Item = &[u8]>| {
            let mut recording = Recording::begin(STEREO).unwrap();
            chunks.for_each(|chunk| recording.push(STEREO, chunk).unwrap());
            recording.end()
        };
        let whole = recorded(&mut bytes.chunks(4 * 480));
        for length in [1, 2, 3, 5, 999, 4_097] {
            assert_eq!(recorded(&mut bytes.chunks(length)), whole, "{length}");
        }
        let cut_off = bytes.len() - 3;
        let mut recording = Recording::begin(STEREO).unwrap();
        recording.push(STEREO, &bytes[..cut_off]).unwrap();
        assert_eq!(recording.begun.len(), 1, "half a frame is no audio");
    }

    #[test]
    fn unsupported_audio_says_why() {
        let reason = |result: Result<(), Refused>| result.unwrap_err().to_string();
        for format in [
            Format { width: 4, ..STEREO },
            Format {
                channels: 6,
                ..STEREO
            },
            Format { rate: 0, ..STEREO },
            Format {
                rate: 47_999,
                ..STEREO
            },
        ] {
            let begun = Recording::begin(format).map(drop);
            assert!(reason(begun).contains("2 bytes"));
        }
        let mut recording = Recording::begin(STEREO).unwrap();
        let other = Format {
            channels: 1,
            ..STEREO
        };
        assert!(reason(recording.push(other, &[])).contains("changed"));
        let mono = Format {
            rate: 16_000,
            ..other
        };
        let mut recording = Recording::begin(mono).unwrap();
        let minute = vec![0; 60 * 2 * 16_000];
        for _ in 0..MOST_MINUTES {
            recording.push(mono, &minute).unwrap();
            while recording.cut().is_some() {}
        }
        assert!(recording.samples.len() <= MAX_SAMPLES);
        assert!(reason(recording.push(mono, &[0; 2])).contains("10 minutes"));
    }

    #[test]
    fn a_recording_that_is_too_long_for_the_recogniser_is_cut_at_a_pause() {
        let mono = Format {
            rate: 16_000,
            channels: 1,
            ..STEREO
        };
        let sound = |seconds: usize| vec![8_192; seconds * 16_000];
        let audio = [sound(12), vec![0; 16_000], sound(18)].concat();
        let mut recording = Recording::begin(mono).unwrap();
        recording.push(mono, &to_pcm16le(&audio)).unwrap();
        let first = recording.cut().unwrap();
        assert_eq!(first.len(), 25 * 16_000 / 2, "half of the pause");
        assert_eq!(recording.cut(), None);
        recording.heard(" One. ");
        let (words, rest) = recording.end();
        assert_eq!(first.len() + rest.len(), audio.len());
        assert_eq!(followed(&words, "Two."), "One. Two.");
    }
}
