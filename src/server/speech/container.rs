//! The forms in which speech is sent. Each is written while the text is still being spoken.

mod flac;
mod mp3;
mod ogg_opus;

use crate::audio::to_pcm16le;
use flac::Flac;
use mp3::Mp3;
use ogg_opus::OggOpus;
use std::fmt::Display;

/// The form of the audio, which is mono.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Mp3,
    /// Opus in Ogg.
    Opus,
    Flac,
    /// PCM16 behind a header whose length is open, because the end is not known when it is sent.
    Wav,
    /// PCM16 alone.
    Pcm,
}

/// Writes audio in one form, piece by piece.
pub(super) trait Writer: Send {
    /// The bytes that can be sent once these samples are there: with the first ones the beginning, and maybe none.
    ///
    /// # Errors
    /// The reason the samples cannot be encoded.
    fn write(&mut self, samples: &[i16]) -> Result<Vec<u8>, String>;

    /// The bytes behind the last sample. Nothing is written after it.
    ///
    /// # Errors
    /// The reason the last samples cannot be encoded.
    fn end(&mut self) -> Result<Vec<u8>, String>;
}

impl Container {
    /// The container that OpenAI's API calls so, if it is written here.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "mp3" => Some(Self::Mp3),
            "opus" => Some(Self::Opus),
            "flac" => Some(Self::Flac),
            "wav" => Some(Self::Wav),
            "pcm" => Some(Self::Pcm),
            _ => None,
        }
    }

    /// The media type.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::Opus => "audio/ogg",
            Self::Flac => "audio/flac",
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
        }
    }

    /// A writer of samples that have `rate`, Hz, one of 8,000, 12,000, 16,000, 24,000 and 48,000.
    ///
    /// # Errors
    /// The reason there is no encoder.
    pub(super) fn writer(self, rate: u32) -> Result<Box<dyn Writer>, String> {
        let writer: Box<dyn Writer> = match self {
            Self::Mp3 => Box::new(Mp3::new(rate)),
            Self::Opus => Box::new(OggOpus::new(rate)?),
            Self::Flac => Box::new(Flac::new(rate)?),
            Self::Wav => Box::new(Plain { header: wav(rate) }),
            Self::Pcm => Box::new(Plain { header: Vec::new() }),
        };
        Ok(writer)
    }
}

/// Samples as they are, behind a header.
struct Plain {
    /// Empty once it was written.
    header: Vec<u8>,
}

impl Writer for Plain {
    fn write(&mut self, samples: &[i16]) -> Result<Vec<u8>, String> {
        let mut bytes = std::mem::take(&mut self.header);
        bytes.extend(to_pcm16le(samples));
        Ok(bytes)
    }

    fn end(&mut self) -> Result<Vec<u8>, String> {
        self.write(&[])
    }
}

/// The header of a WAV file of open length.
fn wav(rate: u32) -> Vec<u8> {
    const OPEN: [u8; 4] = u32::MAX.to_le_bytes();
    [
        b"RIFF".as_slice(),
        &OPEN,
        b"WAVEfmt ",
        &16_u32.to_le_bytes(),
        // PCM, one channel.
        &1_u16.to_le_bytes(),
        &1_u16.to_le_bytes(),
        &rate.to_le_bytes(),
        &(2 * rate).to_le_bytes(),
        // Bytes and bits of a sample.
        &2_u16.to_le_bytes(),
        &16_u16.to_le_bytes(),
        b"data",
        &OPEN,
    ]
    .concat()
}

/// An encoder's error as a reason.
fn reason(error: impl Display) -> String {
    format!("the audio cannot be encoded: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::{RATE, decode, level_dbfs, to_f32};
    use std::f32::consts::TAU;
    use std::io::Cursor;
    use std::time::Duration;

    const VOICE_RATE: u32 = 24_000;

    /// A tone of 440 Hz that fades in, so that no two frames of it are the same.
    fn tone(rate: u32, samples: usize) -> Vec<i16> {
        let at = |at: usize| {
            let fade = at as f32 / samples as f32;
            (at as f32 / rate as f32 * 440.0 * TAU).sin() * 12_000.0 * fade
        };
        (0..samples).map(|sample| at(sample) as i16).collect()
    }

    /// A file of samples that come in pieces of this length.
    fn written(container: Container, rate: u32, samples: &[i16], piece: usize) -> Vec<u8> {
        let mut writer = container.writer(rate).unwrap();
        let mut file = Vec::new();
        for piece in samples.chunks(piece) {
            file.extend(writer.write(piece).unwrap());
        }
        file.extend(writer.end().unwrap());
        file
    }

    fn heard(file: Vec<u8>) -> Vec<f32> {
        decode(Box::new(Cursor::new(file)), Duration::from_secs(5), || true).unwrap()
    }

    /// LiveKit's plugin and the AI SDK ask for mp3, and got a 400.
    #[test]
    fn speech_in_every_container_is_read_back() {
        let samples = tone(VOICE_RATE, 24_000);
        let level = level_dbfs(&to_f32(&samples));
        for container in [
            Container::Mp3,
            Container::Opus,
            Container::Flac,
            Container::Wav,
        ] {
            for piece in [100, 5_000, 24_000] {
                let heard = heard(written(container, VOICE_RATE, &samples, piece));
                let about = format!("{container:?} of {piece}: {} samples", heard.len());
                // MP3 has a frame or three more at its ends.
                assert!((15_900..17_700).contains(&heard.len()), "{about}");
                let difference = level_dbfs(&heard) - level;
                assert!(difference.abs() < 1.5, "{about}, {difference} dB");
            }
        }
    }

    #[test]
    fn flac_and_wav_lose_nothing() {
        for length in [3, 63, 4_096, 10_000] {
            let samples = tone(RATE, length);
            for container in [Container::Flac, Container::Wav] {
                for piece in [1_000, 4_096] {
                    let file = written(container, RATE, &samples, piece);
                    assert_eq!(heard(file), to_f32(&samples), "{container:?} of {length}");
                }
            }
        }
    }

    #[test]
    fn half_of_the_bytes_are_there_before_the_end() {
        let samples = tone(VOICE_RATE, 24_000);
        for container in [Container::Mp3, Container::Opus, Container::Flac] {
            let mut writer = container.writer(VOICE_RATE).unwrap();
            let early = writer.write(&samples).unwrap().len();
            let late = writer.end().unwrap().len();
            assert!(early > late && late > 0, "{container:?}: {early}, {late}");
            let plain = samples.len() * 2;
            assert!(early + late < plain, "{container:?}: {}", early + late);
        }
    }

    #[test]
    fn pcm_has_no_header() {
        let samples = [0, 16_384, -16_384];
        let file = written(Container::Pcm, RATE, &samples, 2);
        assert_eq!(file, to_pcm16le(&samples));
    }

    #[test]
    fn a_text_without_a_sound_is_a_whole_file() {
        for (container, first) in [
            (Container::Opus, b"OggS".as_slice()),
            (Container::Flac, b"fLaC"),
            (Container::Wav, b"RIFF"),
        ] {
            let file = written(container, VOICE_RATE, &[], 1);
            assert!(file.starts_with(first), "{container:?}");
        }
    }
}
