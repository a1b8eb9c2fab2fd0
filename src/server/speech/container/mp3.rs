//! MP3.

use super::{Writer, reason};
use rusty_mp3::{Mp3Encoder, Mp3EncoderConfig};

/// The bitrate, kilobits per second.
const KILOBITS: u32 = 96;

pub(super) struct Mp3 {
    encoder: Mp3Encoder,
    rate: u32,
    /// The encoder's first frame was left out.
    begun: bool,
}

impl Mp3 {
    pub(super) fn new(rate: u32) -> Self {
        let config = Mp3EncoderConfig {
            bitrate_kbps: KILOBITS,
            vbr_quality: None,
        };
        Self {
            encoder: Mp3Encoder::new(config),
            rate,
            begun: false,
        }
    }

    fn frames(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Ok(frame) = self.encoder.next_packet() {
            // The first one is silent and gives the length of the file, which nobody knows when it is sent.
            if std::mem::replace(&mut self.begun, true) {
                bytes.extend(frame);
            }
        }
        bytes
    }
}

impl Writer for Mp3 {
    fn write(&mut self, samples: &[i16]) -> Result<Vec<u8>, String> {
        let pushed = self.encoder.push_pcm_s16(samples, 1, self.rate);
        pushed.map_err(reason)?;
        Ok(self.frames())
    }

    fn end(&mut self) -> Result<Vec<u8>, String> {
        self.encoder.finish();
        Ok(self.frames())
    }
}
