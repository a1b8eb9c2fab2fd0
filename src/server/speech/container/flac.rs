//! FLAC, frame by frame. The header gives neither length nor checksum, because it is sent first.

use super::{Writer, reason};
use flacenc::bitsink::ByteSink;
use flacenc::component::{BitRepr, Stream, StreamInfo};
use flacenc::config::Encoder;
use flacenc::encode_fixed_size_frame;
use flacenc::error::{Verified, Verify};
use flacenc::source::{Fill, FrameBuf};

/// Samples of a frame. Only the last one may have fewer.
const FRAME: usize = 4_096;

pub(super) struct Flac {
    config: Verified<Encoder>,
    info: StreamInfo,
    buffer: FrameBuf,
    /// Empty once it was written.
    header: Vec<u8>,
    /// Samples that do not fill a frame yet.
    rest: Vec<i32>,
    /// Frames so far.
    frames: usize,
}

impl Flac {
    pub(super) fn new(rate: u32) -> Result<Self, String> {
        let config = Encoder::default().into_verified();
        let config = config.map_err(|(_, wrong)| reason(wrong))?;
        let mut info = StreamInfo::new(rate as usize, 1, 16).map_err(reason)?;
        info.set_block_sizes(FRAME, FRAME).map_err(reason)?;
        // Zero means unknown.
        info.set_frame_sizes(0, 0).map_err(reason)?;
        let mut header = ByteSink::new();
        let stream = Stream::with_stream_info(info.clone());
        stream.write(&mut header).map_err(reason)?;
        Ok(Self {
            config,
            info,
            buffer: FrameBuf::with_size(1, FRAME).map_err(reason)?,
            header: header.into_inner(),
            rest: Vec::new(),
            frames: 0,
        })
    }

    /// These samples in frames, behind the header if it was not written yet.
    fn encoded(&mut self, samples: &[i32]) -> Result<Vec<u8>, String> {
        let mut bytes = std::mem::take(&mut self.header);
        for samples in samples.chunks(FRAME) {
            self.buffer.fill_interleaved(samples).map_err(reason)?;
            let frame =
                encode_fixed_size_frame(&self.config, &self.buffer, self.frames, &self.info);
            self.frames += 1;
            let mut encoded = ByteSink::new();
            let frame = frame.map_err(reason)?;
            frame.write(&mut encoded).map_err(reason)?;
            bytes.extend(encoded.as_slice());
        }
        Ok(bytes)
    }
}

impl Writer for Flac {
    fn write(&mut self, samples: &[i16]) -> Result<Vec<u8>, String> {
        self.rest.extend(samples.iter().copied().map(i32::from));
        let whole = self.rest.len() / FRAME * FRAME;
        let rest = self.rest.split_off(whole);
        let whole = std::mem::replace(&mut self.rest, rest);
        self.encoded(&whole)
    }

    fn end(&mut self) -> Result<Vec<u8>, String> {
        let rest = std::mem::take(&mut self.rest);
        self.encoded(&rest)
    }
}
