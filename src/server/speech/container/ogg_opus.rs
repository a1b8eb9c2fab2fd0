//! Opus in Ogg (RFC 7845). A page ends with each piece of audio, so that nothing waits.

use super::{Writer, reason};
use ogg::{PacketWriteEndInfo, PacketWriter};
use opus::{Application, Bitrate, Channels, Encoder};

/// The clock of positions, Hz, whatever the audio's rate is.
const CLOCK: u32 = 48_000;

/// Packets a second: each is 20 ms long.
const PACKETS: u32 = 50;

/// Transparent for speech.
const BITS_PER_SECOND: i32 = 48_000;

/// The largest packet, bytes.
const LARGEST: usize = 1_275;

/// The number of the file's only stream.
const SERIAL: u32 = 1;

/// The program that encoded the file.
const VENDOR: &[u8] = b"undertone";

pub(super) struct OggOpus {
    encoder: Encoder,
    pages: PacketWriter<'static, Vec<u8>>,
    /// Samples of a packet.
    packet: usize,
    /// Ticks of the clock for each sample.
    ticks: u64,
    /// By how many samples the decoder's audio is late.
    delay: usize,
    /// Samples that do not fill a packet yet.
    rest: Vec<i16>,
    /// Samples so far.
    samples: u64,
    /// The position behind the last packet.
    position: u64,
}

impl OggOpus {
    pub(super) fn new(rate: u32) -> Result<Self, String> {
        let mut encoder = Encoder::new(rate, Channels::Mono, Application::Audio).map_err(reason)?;
        let bitrate = Bitrate::Bits(BITS_PER_SECOND);
        encoder.set_bitrate(bitrate).map_err(reason)?;
        let delay = encoder.get_lookahead().map_err(reason)?;
        let delay = usize::try_from(delay).map_err(reason)?;
        let ticks = u64::from(CLOCK / rate);
        let skipped = u16::try_from(delay as u64 * ticks).map_err(reason)?;
        let head = [
            b"OpusHead".as_slice(),
            // Version 1, one channel.
            &[1, 1],
            &skipped.to_le_bytes(),
            &rate.to_le_bytes(),
            // No gain, and the channel is mono.
            &[0, 0, 0],
        ];
        let tags = [
            b"OpusTags".as_slice(),
            &(VENDOR.len() as u32).to_le_bytes(),
            VENDOR,
            // No comments.
            &[0; 4],
        ];
        let mut pages = PacketWriter::new(Vec::new());
        for page in [head.concat(), tags.concat()] {
            let end = PacketWriteEndInfo::EndPage;
            pages.write_packet(page, SERIAL, end, 0).map_err(reason)?;
        }
        Ok(Self {
            encoder,
            pages,
            packet: (rate / PACKETS) as usize,
            ticks,
            delay,
            rest: Vec::new(),
            samples: 0,
            position: 0,
        })
    }

    /// All whole packets, in pages. With `end` the last packet is the last of the file, which ends at that position.
    fn encoded(&mut self, end: Option<u64>) -> Result<Vec<u8>, String> {
        let samples = std::mem::take(&mut self.rest);
        let packets = samples.chunks_exact(self.packet);
        self.rest = packets.remainder().to_vec();
        let mut left = packets.len();
        for samples in packets {
            let packet = self.encoder.encode_vec(samples, LARGEST);
            let packet = packet.map_err(reason)?;
            self.position += samples.len() as u64 * self.ticks;
            left -= 1;
            let (kind, position) = match (left, end) {
                (0, Some(end)) => (PacketWriteEndInfo::EndStream, end),
                (0, None) => (PacketWriteEndInfo::EndPage, self.position),
                _ => (PacketWriteEndInfo::NormalPacket, self.position),
            };
            let written = self.pages.write_packet(packet, SERIAL, kind, position);
            written.map_err(reason)?;
        }
        Ok(std::mem::take(self.pages.inner_mut()))
    }
}

impl Writer for OggOpus {
    fn write(&mut self, samples: &[i16]) -> Result<Vec<u8>, String> {
        self.samples += samples.len() as u64;
        self.rest.extend(samples);
        self.encoded(None)
    }

    fn end(&mut self) -> Result<Vec<u8>, String> {
        let last = (self.rest.len() + self.delay).next_multiple_of(self.packet);
        self.rest.resize(last, 0);
        let end = (self.delay as u64 + self.samples) * self.ticks;
        self.encoded(Some(end))
    }
}
