//! Bare samples from services.

use crate::audio::to_f32;

/// PCM16 that may be cut within a sample.
#[derive(Default)]
pub(super) struct Pcm {
    has_begun: bool,
    /// The first byte of a sample.
    half: Option<u8>,
}

impl Pcm {
    /// The whole samples so far, mono in -1..1.
    ///
    /// # Errors
    /// The container, if there is one around them.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Vec<f32>, &'static str> {
        if !std::mem::replace(&mut self.has_begun, true) && piece.starts_with(b"RIFF") {
            return Err("WAV");
        }
        let bytes: Vec<u8> = self.half.take().into_iter().chain(piece.to_vec()).collect();
        let (pairs, rest) = bytes.as_chunks::<2>();
        self.half = rest.first().copied();
        let samples = pairs.iter().map(|pair| i16::from_le_bytes(*pair));
        Ok(to_f32(&samples.collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_is_cut_in_two_is_whole_again() {
        let mut samples = Pcm::default();
        let mut heard = Vec::new();
        for piece in [&[0, 0x40, 0][..], &[], &[0xc0], &[0, 0x20, 7]] {
            heard.extend(samples.push(piece).unwrap());
        }
        assert_eq!(heard, [0.5, -0.5, 0.25]);
    }

    #[test]
    fn a_container_is_not_taken_for_samples() {
        assert_eq!(Pcm::default().push(b"RIFF....WAVE"), Err("WAV"));
    }
}
