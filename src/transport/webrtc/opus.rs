//! Opus, as both sides of a call use it: the codec's only user for live audio.
//!
//! Opus decodes to any of its rates whatever the sender's was, so nothing is resampled here.

use opus::{Application, Bitrate, Channels, Decoder, Encoder, Error, packet};

/// The clock of Opus in RTP, Hz, whatever the audio's rate is (RFC 7587).
pub const CLOCK: u32 = 48_000;

/// The rate of the client's audio once decoded, Hz: that of the session's models.
pub const RATE: u32 = 16_000;

/// The rate of the agent's audio before it is encoded, Hz.
pub const VOICE_RATE: u32 = 24_000;

/// The longest packet, 120 ms.
const LONGEST: usize = RATE as usize * 120 / 1000;

/// The largest packet that is sent, bytes.
const LARGEST: usize = 1_200;

/// Transparent for speech.
const BITS_PER_SECOND: i32 = 32_000;

/// The loss for which the agent's audio carries redundancy, percent.
const EXPECTED_LOSS: i32 = 10;

/// Decodes a client's audio into mono PCM16 at [`RATE`].
pub(super) struct OpusDecoder(Decoder);

impl OpusDecoder {
    pub(super) fn new() -> Result<Self, Error> {
        Decoder::new(RATE, Channels::Mono).map(Self)
    }

    /// The length of a packet, samples; `None` if it is malformed.
    pub(super) fn length(packet: &[u8]) -> Option<usize> {
        let length = packet::get_nb_samples(packet, RATE).ok()?;
        (1..=LONGEST).contains(&length).then_some(length)
    }

    /// The audio of a packet; `None` if it is malformed.
    pub(super) fn decode(&mut self, packet: &[u8]) -> Option<Vec<i16>> {
        self.run(packet, LONGEST, false)
    }

    /// The last `length` samples before a packet, from the redundancy that it carries.
    pub(super) fn recover(&mut self, packet: &[u8], length: usize) -> Option<Vec<i16>> {
        self.run(packet, length, true)
    }

    /// `length` samples that continue the sound before a gap.
    pub(super) fn conceal(&mut self, length: usize) -> Option<Vec<i16>> {
        self.run(&[], length, false)
    }

    fn run(&mut self, packet: &[u8], length: usize, redundancy: bool) -> Option<Vec<i16>> {
        let mut samples = vec![0; length];
        let decoded = self.0.decode(packet, &mut samples, redundancy).ok()?;
        samples.truncate(decoded);
        Some(samples)
    }
}

/// Encodes the agent's audio, mono PCM16 at [`VOICE_RATE`].
pub(super) struct OpusEncoder(Encoder);

impl OpusEncoder {
    pub(super) fn new() -> Result<Self, Error> {
        let mut encoder = Encoder::new(VOICE_RATE, Channels::Mono, Application::Voip)?;
        encoder.set_bitrate(Bitrate::Bits(BITS_PER_SECOND))?;
        encoder.set_inband_fec(true)?;
        encoder.set_packet_loss_perc(EXPECTED_LOSS)?;
        Ok(Self(encoder))
    }

    /// The packet of a frame of 20 ms.
    pub(super) fn encode(&mut self, frame: &[i16]) -> Result<Vec<u8>, Error> {
        self.0.encode_vec(frame, LARGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f32::consts::TAU;

    /// The mean square.
    fn energy(samples: &[i16]) -> f32 {
        let squares = samples.iter().map(|&sample| f32::from(sample).powi(2));
        squares.sum::<f32>() / samples.len() as f32
    }

    fn tone(frames: usize) -> Vec<i16> {
        let sample = |at: usize| (at as f32 / VOICE_RATE as f32 * 440.0 * TAU).sin() * 8_000.0;
        (0..frames * 480).map(|at| sample(at) as i16).collect()
    }

    fn packets(frames: usize) -> Vec<Vec<u8>> {
        let mut encoder = OpusEncoder::new().unwrap();
        let tone = tone(frames);
        tone.chunks(480)
            .map(|frame| encoder.encode(frame).unwrap())
            .collect()
    }

    #[test]
    fn speech_survives_without_a_resampler() {
        let mut decoder = OpusDecoder::new().unwrap();
        let mut heard = Vec::new();
        for packet in packets(50) {
            assert_eq!(OpusDecoder::length(&packet), Some(320));
            heard.extend(decoder.decode(&packet).unwrap());
        }
        assert_eq!(heard.len(), 16_000);
        assert!(energy(&heard[1_600..]) > 0.5 * energy(&tone(50)));
    }

    #[test]
    fn a_lost_packet_leaves_no_hole() {
        let packets = packets(50);
        let mut decoder = OpusDecoder::new().unwrap();
        for packet in &packets[..20] {
            decoder.decode(packet).unwrap();
        }
        let whole = energy(&decoder.decode(&packets[20]).unwrap());
        let recovered = decoder.recover(&packets[22], 320).unwrap();
        assert_eq!(recovered.len(), 320);
        assert!(energy(&recovered) > 0.3 * whole);
        decoder.decode(&packets[22]).unwrap();
        let concealed = decoder.conceal(320).unwrap();
        assert_eq!(concealed.len(), 320);
        assert!(energy(&concealed) > 0.3 * whole);
    }

    #[test]
    fn malformed_packets_are_refused() {
        assert_eq!(OpusDecoder::length(&[]), None);
        assert_eq!(OpusDecoder::length(&[0xff, 0xff, 0xff]), None);
        assert_eq!(OpusDecoder::new().unwrap().decode(&[0xff, 0x3f]), None);
    }
}
