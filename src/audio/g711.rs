//! G.711, the audio codec of telephones: 8 kHz, eight bits a sample, µ-law in North America and Japan, A-law
//! elsewhere.

use audio_codec_algorithms::{decode_alaw, decode_ulaw, encode_alaw, encode_ulaw};

/// The sample rate of telephones, Hz.
pub const RATE: u32 = 8_000;

/// The companding law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// PCMU.
    Mu,
    /// PCMA.
    A,
}

impl Law {
    /// Decodes bytes, one per sample.
    pub fn decode(self, bytes: &[u8]) -> Vec<i16> {
        let decode = match self {
            Self::Mu => decode_ulaw,
            Self::A => decode_alaw,
        };
        bytes.iter().copied().map(decode).collect()
    }

    /// Encodes samples, one byte each.
    pub fn encode(self, samples: &[i16]) -> Vec<u8> {
        let encode = match self {
            Self::Mu => encode_ulaw,
            Self::A => encode_alaw,
        };
        samples.iter().copied().map(encode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values for silence and the loudest samples, from the tables of the standard.
    #[test]
    fn the_codes_are_those_of_the_standard() {
        assert_eq!(Law::Mu.decode(&[0x00, 0x80, 0xff]), [-32_124, 32_124, 0]);
        assert_eq!(Law::A.decode(&[0x2a, 0xaa, 0xd5]), [-32_256, 32_256, 8]);
        assert_eq!(Law::Mu.encode(&[0]), [0xff]);
        assert_eq!(Law::A.encode(&[0]), [0xd5]);
    }

    #[test]
    fn every_code_survives_a_round_trip() {
        let codes: Vec<u8> = (0..=255).collect();
        for law in [Law::Mu, Law::A] {
            let samples = law.decode(&codes);
            assert_eq!(law.decode(&law.encode(&samples)), samples, "{law:?}");
        }
    }
}
