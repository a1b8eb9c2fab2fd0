//! Samples from services: bare ones, and those in WAV.

use crate::audio::{RATES, Resampler, mono, to_f32};

/// Samples per second that voices on services make, Hz.
pub(super) const RATE: u32 = 24_000;

/// The first bytes of WAV, and where its first chunk begins.
const RIFF: &[u8] = b"RIFF";
const FIRST_CHUNK: usize = 12;

/// The bytes of a chunk's name and length.
const CHUNK: usize = 8;

/// The most bytes in front of the samples.
const MAX_HEADER: usize = 64 * 1024;

/// The least length of samples, bytes, that stands for an unknown one, as 0 does: servers that stream do not know it
/// beforehand.
const UNKNOWN: usize = 0x7fff_0000;

/// The kinds of samples: whole numbers, and floats. Under `EXTENSIBLE` the kind is further behind.
const INT: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xFFFE;

/// The audio of a clause, which may be cut anywhere: bare PCM16 of one channel, or WAV.
pub(super) struct Pcm {
    /// That of bare samples, Hz.
    rate: u32,
    /// The form of the samples, once it is known.
    form: Option<Form>,
    /// Bytes of a header or of a sample that is not complete.
    rest: Vec<u8>,
}

impl Default for Pcm {
    fn default() -> Self {
        Self::at(RATE)
    }
}

impl Pcm {
    /// Samples at `rate`, Hz, unless they are in WAV, which names its own.
    pub(super) fn at(rate: u32) -> Self {
        Self {
            rate,
            form: None,
            rest: Vec::new(),
        }
    }

    /// The samples so far, mono in -1..1 at [`RATE`].
    ///
    /// # Errors
    /// The form of the audio, if it is one that is not read.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Vec<f32>, String> {
        self.rest.extend_from_slice(piece);
        if self.form.is_none() {
            self.form = self.begin()?;
        }
        let Some(form) = &mut self.form else {
            return Ok(Vec::new());
        };
        // Behind the samples there may be other chunks.
        self.rest.truncate(form.left);
        let incomplete = self.rest.len() % form.frame();
        let rest = self.rest.split_off(self.rest.len() - incomplete);
        let frames = std::mem::replace(&mut self.rest, rest);
        form.left -= frames.len();
        Ok(form.samples(&frames))
    }

    /// The rest of the samples.
    ///
    /// # Errors
    /// The fault, if the samples have not begun.
    pub(super) fn finish(&mut self) -> Result<Vec<f32>, String> {
        match &mut self.form {
            Some(form) => Ok(form.resampler.flush()),
            None if self.rest.is_empty() => Ok(Vec::new()),
            None => Err("WAV without samples".into()),
        }
    }

    /// The form of the samples, without what is in front of them. `None` if more bytes have to tell.
    fn begin(&mut self) -> Result<Option<Form>, String> {
        let known = self.rest.len().min(RIFF.len());
        if self.rest[..known] != RIFF[..known] {
            return Form::new(Kind::Int16, 1, self.rate).map(Some);
        }
        let found = header(&self.rest)?;
        Ok(found.map(|(form, length)| {
            self.rest.drain(..length);
            form
        }))
    }
}

/// How a sample is written, in little-endian bytes.
#[derive(Clone, Copy)]
enum Kind {
    Int16,
    Float32,
}

/// The form of samples.
struct Form {
    kind: Kind,
    channels: usize,
    /// The most bytes that are to come.
    left: usize,
    resampler: Resampler,
}

impl Form {
    fn new(kind: Kind, channels: usize, rate: u32) -> Result<Self, String> {
        if !RATES.contains(&rate) {
            return Err(format!("samples at {rate} Hz"));
        }
        Ok(Self {
            kind,
            channels,
            left: usize::MAX,
            resampler: Resampler::new(rate, RATE),
        })
    }

    /// The bytes of a sample of each channel.
    fn frame(&self) -> usize {
        let bytes = match self.kind {
            Kind::Int16 => 2,
            Kind::Float32 => 4,
        };
        bytes * self.channels
    }

    /// The samples of whole frames.
    fn samples(&mut self, frames: &[u8]) -> Vec<f32> {
        let samples = match self.kind {
            Kind::Int16 => {
                let (samples, _) = frames.as_chunks::<2>();
                let samples = samples.iter().copied().map(i16::from_le_bytes);
                to_f32(&samples.collect::<Vec<_>>())
            }
            Kind::Float32 => {
                let (samples, _) = frames.as_chunks::<4>();
                samples.iter().copied().map(f32::from_le_bytes).collect()
            }
        };
        self.resampler.push(&mono(&samples, self.channels))
    }
}

/// The form of the samples in WAV, and where they begin. `None` if more bytes have to tell.
fn header(bytes: &[u8]) -> Result<Option<(Form, usize)>, String> {
    let (mut described, mut at) = (None, FIRST_CHUNK);
    while let Some(chunk) = bytes.get(at..at + CHUNK) {
        let (name, length) = chunk.split_at(4);
        let length = length.first_chunk::<4>().copied();
        let length = length.map_or(0, u32::from_le_bytes) as usize;
        let begin = at + CHUNK;
        if name == b"data" {
            let (kind, channels, rate) = described.ok_or("WAV without a form of its samples")?;
            let mut form = Form::new(kind, channels, rate)?;
            if (1..UNKNOWN).contains(&length) {
                form.left = length;
            }
            return Ok(Some((form, begin)));
        }
        let end = begin + length;
        if end > MAX_HEADER {
            return Err(format!(
                "WAV whose samples do not begin in the first {MAX_HEADER} bytes"
            ));
        }
        if name == b"fmt " {
            let Some(fmt) = bytes.get(begin..end) else {
                return Ok(None);
            };
            described = Some(description(fmt)?);
        }
        // Chunks begin at even positions.
        at = end + length % 2;
    }
    Ok(None)
}

/// How samples are written, the number of their channels, and their rate, Hz.
fn description(fmt: &[u8]) -> Result<(Kind, usize, u32), String> {
    let short = |at: usize| {
        let bytes = fmt.get(at..)?.first_chunk::<2>()?;
        Some(u16::from_le_bytes(*bytes))
    };
    let rate = fmt.get(4..).and_then(|rest| rest.first_chunk::<4>());
    let rate = rate.copied().map(u32::from_le_bytes);
    let kind = short(0).map(|kind| match kind {
        EXTENSIBLE => short(24).unwrap_or(kind),
        kind => kind,
    });
    let (Some(kind), Some(channels @ 1..), Some(rate), Some(bits)) =
        (kind, short(2), rate, short(14))
    else {
        return Err("WAV with a damaged header".into());
    };
    let kind = match (kind, bits) {
        (INT, 16) => Kind::Int16,
        (FLOAT, 32) => Kind::Float32,
        _ => return Err(format!("WAV with {bits} bits of kind {kind}")),
    };
    Ok((kind, usize::from(channels), rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All samples of audio that comes in pieces of so many bytes.
    fn heard(mut pcm: Pcm, audio: &[u8], piece: usize) -> Result<Vec<f32>, String> {
        let mut heard = Vec::new();
        for piece in audio.chunks(piece) {
            heard.extend(pcm.push(piece)?);
        }
        heard.extend(pcm.finish()?);
        Ok(heard)
    }

    /// WAV of samples whose number is not known beforehand, with a chunk of an odd length in front of them.
    fn wav(kind: u16, channels: u16, rate: u32, bits: u16, samples: &[u8]) -> Vec<u8> {
        let frame = channels * bits / 8;
        let mut file = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0".to_vec();
        file.extend([kind, channels].map(u16::to_le_bytes).concat());
        let rates = [rate, rate * u32::from(frame)];
        file.extend(rates.map(u32::to_le_bytes).concat());
        file.extend([frame, bits].map(u16::to_le_bytes).concat());
        file.extend(b"LIST\x05\0\0\0fmt 5\0data\xff\xff\xff\xff");
        file.extend(samples);
        file
    }

    fn int16(samples: &[i16]) -> Vec<u8> {
        samples.iter().copied().flat_map(i16::to_le_bytes).collect()
    }

    #[test]
    fn a_sample_that_is_cut_in_two_is_whole_again() {
        let mut samples = Pcm::default();
        let mut heard = Vec::new();
        for piece in [&[0, 0x40, 0][..], &[], &[0xc0], &[0, 0x20, 7]] {
            heard.extend(samples.push(piece).unwrap());
        }
        assert_eq!(heard, [0.5, -0.5, 0.25]);
    }

    /// It was refused, and voices that make nothing else never spoke.
    #[test]
    fn wav_is_read_wherever_it_is_cut_and_whatever_length_it_names() {
        let stereo = int16(&[0x4000, 0, -0x4000, -0x4000, 0, 0x2000]);
        let stereo = wav(INT, 2, RATE, 16, &stereo);
        let mut unknown = stereo.clone();
        let length = unknown.len() - 12 - 4;
        unknown[length..length + 4].fill(0);
        let floats = [0.25, -0.5, 0.125_f32].map(f32::to_le_bytes).concat();
        let floats = wav(FLOAT, 1, RATE, 32, &floats);
        for file in [&stereo, &unknown, &floats] {
            for piece in 1..=file.len() {
                let samples = heard(Pcm::default(), file, piece).unwrap();
                assert_eq!(samples, [0.25, -0.5, 0.125], "in pieces of {piece} bytes");
            }
        }
    }

    /// Each clause ended with a click.
    #[test]
    fn a_chunk_behind_the_samples_is_no_sound() {
        let samples = int16(&[0x4000, -0x4000, 0x2000]);
        let mut file = wav(INT, 1, RATE, 16, &samples);
        let length = file.len() - samples.len() - 4;
        file[length..length + 4].copy_from_slice(&[6, 0, 0, 0]);
        file.extend(b"LIST\x04\0\0\0INFO");
        for piece in 1..=file.len() {
            let samples = heard(Pcm::default(), &file, piece).unwrap();
            assert_eq!(samples, [0.5, -0.5, 0.25], "in pieces of {piece} bytes");
        }
    }

    /// They were spoken too fast or too slowly.
    #[test]
    fn samples_of_another_rate_last_as_long_as_before() {
        for rate in [16_000, 22_050, 44_100] {
            let second = int16(&vec![0x4000; rate as usize]);
            let file = wav(INT, 1, rate, 16, &second);
            for (pcm, audio) in [(Pcm::at(rate), &second), (Pcm::default(), &file)] {
                let samples = heard(pcm, audio, 1_001).unwrap();
                assert_eq!(samples.len(), RATE as usize, "{rate} Hz");
                let middle = samples[samples.len() / 2];
                assert!((middle - 0.5).abs() < 0.01, "{rate} Hz: {middle}");
            }
        }
    }

    #[test]
    fn a_form_that_is_not_read_is_named() {
        let begun = b"RIFF....WAVEfmt ".to_vec();
        let mut long = b"RIFF....WAVELIST".to_vec();
        long.extend([0xff; 4]);
        for (pcm, audio, named) in [
            (Pcm::at(7_000), vec![0; 4], "7000 Hz"),
            (Pcm::default(), wav(INT, 1, 399_989, 16, &[]), "399989 Hz"),
            (Pcm::default(), wav(INT, 1, RATE, 24, &[]), "24 bits"),
            (Pcm::default(), wav(INT, 0, RATE, 16, &[]), "damaged"),
            (Pcm::default(), long, "first 65536 bytes"),
            (Pcm::default(), begun, "without samples"),
        ] {
            let error = heard(pcm, &audio, 7).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
