//! Audio formats on the wire. The session uses one rate in both directions, [`RATE`]; telephone
//! bridges use G.711 at 8 kHz.

use super::fault::Fault;
use crate::audio::g711::{self, Law};
use crate::audio::{Resampler, from_pcm16le, to_f32, to_i16, to_pcm16le};
use serde_json::{Value, json};

/// Rate of a Realtime client's audio in both directions, Hz: the only one in the protocol.
pub const RATE: u32 = 24_000;

/// Bytes of G.711 that are decoded at once, so that a long message takes little memory beside its samples.
const PIECE: usize = 8_000;

/// An audio format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// `audio/pcm`: 16 bits, little-endian, at [`RATE`].
    #[default]
    Pcm,
    /// `audio/pcmu` or `audio/pcma`: G.711 at 8 kHz.
    G711(Law),
}

impl Format {
    /// The sample rate, Hz.
    fn rate(self) -> u32 {
        match self {
            Self::Pcm => RATE,
            Self::G711(_) => g711::RATE,
        }
    }

    /// The format's JSON in the protocol.
    pub(super) fn to_json(self) -> Value {
        match self {
            Self::Pcm => json!({"type": "audio/pcm", "rate": RATE}),
            Self::G711(Law::Mu) => json!({"type": "audio/pcmu"}),
            Self::G711(Law::A) => json!({"type": "audio/pcma"}),
        }
    }
}

/// Decodes the client's audio.
#[derive(Debug)]
pub(super) struct Decoder {
    format: Format,
    resampler: Resampler,
}

impl Decoder {
    pub(super) fn new(format: Format) -> Self {
        let resampler = Resampler::new(format.rate(), RATE);
        Self { format, resampler }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Decodes audio into samples at [`RATE`].
    ///
    /// # Errors
    /// [`Fault`] if PCM ends in the middle of a sample.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<Vec<i16>, Fault> {
        match self.format {
            Format::Pcm => from_pcm16le(bytes).map_err(|_| {
                let message =
                    "The audio must be whole 16-bit samples, but it has an odd number of bytes.";
                Fault::new("invalid_value", "audio", message)
            }),
            Format::G711(law) => {
                let pieces = bytes.chunks(PIECE).flat_map(|piece| {
                    let samples = to_f32(&law.decode(piece));
                    to_i16(&self.resampler.push(&samples))
                });
                Ok(pieces.collect())
            }
        }
    }
}

impl Decoder {
    /// Flushes the resampler at the end of a recording, about 10 ms.
    pub(super) fn finish(&mut self) -> Vec<i16> {
        to_i16(&self.resampler.flush())
    }
}

/// Encodes the agent's audio.
#[derive(Debug)]
pub(super) struct Encoder {
    format: Format,
    resampler: Resampler,
}

impl Encoder {
    pub(super) fn new(format: Format) -> Self {
        let resampler = Resampler::new(RATE, format.rate());
        Self { format, resampler }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Encodes samples at [`RATE`]. The resampler may hold some of them back.
    pub(super) fn encode(&mut self, samples: &[i16]) -> Vec<u8> {
        match self.format {
            Format::Pcm => to_pcm16le(samples),
            Format::G711(law) => law.encode(&to_i16(&self.resampler.push(&to_f32(samples)))),
        }
    }

    /// Flushes the resampler at the end of an utterance, about 10 ms.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        match self.format {
            Format::Pcm => Vec::new(),
            Format::G711(law) => law.encode(&to_i16(&self.resampler.flush())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32) -> Vec<i16> {
        let step = std::f32::consts::TAU * 440.0 / rate as f32;
        let samples: Vec<f32> = (0..rate).map(|i| 0.5 * (i as f32 * step).sin()).collect();
        to_i16(&samples)
    }

    fn error(a: &[i16], b: &[i16]) -> f64 {
        let middle = a.len() / 10..a.len() * 9 / 10;
        let squares = (a[middle.clone()].iter().zip(&b[middle.clone()]))
            .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
        (squares.sum::<f64>() / middle.len() as f64).sqrt()
    }

    #[test]
    fn a_tone_survives_encoding_in_either_law() {
        for law in [Law::Mu, Law::A] {
            let format = Format::G711(law);
            let mut encoder = Encoder::new(format);
            let mut bytes = Vec::new();
            for piece in tone(RATE).chunks(481) {
                bytes.extend(encoder.encode(piece));
            }
            bytes.extend(encoder.finish());
            assert_eq!(bytes.len(), 8_000, "one second, a byte a sample");
            // G.711's eight bits leave an error of a few percent of the amplitude.
            assert!(
                error(&law.decode(&bytes), &tone(8_000)) < 500.0,
                "{law:?} out"
            );
            let mut decoder = Decoder::new(format);
            let mut heard = Vec::new();
            for piece in law.encode(&tone(8_000)).chunks(160) {
                heard.extend(decoder.decode(piece).expect("any bytes are samples"));
            }
            heard.resize(RATE as usize, 0);
            assert!(error(&heard, &tone(RATE)) < 700.0, "{law:?} in");
        }
    }

    #[test]
    fn half_a_sample_is_refused_only_in_pcm() {
        assert!(Decoder::new(Format::Pcm).decode(&[1, 2, 3]).is_err());
        assert!(
            Decoder::new(Format::G711(Law::Mu))
                .decode(&[1, 2, 3])
                .is_ok()
        );
    }
}
