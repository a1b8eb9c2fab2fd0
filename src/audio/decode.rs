//! Decodes audio files, whose format is recognised by their content, and writes WAV.

use super::{RATE, Resampler, to_i16};
use anyhow::{Context, Result, bail, ensure};
use hound::{SampleFormat, WavSpec, WavWriter};
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::AudioDecoderOptions;
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

/// The supported formats, for error messages.
const FORMATS: &str = "WAV, MP3, FLAC, Ogg (Vorbis, Opus), WebM, M4A";

/// The supported sample rates, Hz. Any other rate is refused, because a crafted one would cost memory: a resampler's
/// need grows with the rate divided by its greatest common divisor with [`RATE`].
pub(crate) const RATES: [u32; 14] = [
    8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200, 96_000,
    176_400, 192_000,
];

/// The longest Opus packet, samples at [`RATE`]: 120 ms.
const LONGEST_PACKET: usize = RATE as usize * 120 / 1_000;

/// Decodes an audio file to mono samples in -1..1 at [`RATE`]. All of them are kept in memory, so audio longer than
/// `longest`, in whole seconds, is refused. Stops early, with the audio so far, once `wants` returns `false`.
///
/// # Errors
/// The file is not in a supported format, is damaged from the start, contains no audio, or is too long; the message
/// says which. Damaged parts after the start are left out and logged.
pub fn decode(
    source: Box<dyn MediaSource>,
    longest: Duration,
    wants: impl Fn() -> bool,
) -> Result<Vec<f32>> {
    // Some decoders panic at crafted files.
    let decoded = catch_unwind(AssertUnwindSafe(|| read(source, longest, wants)));
    decoded.unwrap_or_else(|_| bail!("it is damaged: its decoder has failed"))
}

fn read(
    source: Box<dyn MediaSource>,
    longest: Duration,
    wants: impl Fn() -> bool,
) -> Result<Vec<f32>> {
    let stream = MediaSourceStream::new(source, Default::default());
    let mut format = symphonia::default::get_probe()
        .probe(
            &Hint::new(),
            stream,
            FormatOptions::default(),
            MetadataOptions::default(),
        )
        .with_context(|| {
            format!("it is damaged, or not an audio file in a supported format: {FORMATS}")
        })?;
    let mut audio = Audio {
        longest: longest.as_secs() as usize * RATE as usize,
        ..Audio::default()
    };
    let mut track = Track::of(&*format)?;
    while wants() && !audio.is_too_long() {
        match format.next_packet() {
            Ok(Some(packet)) if packet.track_id == track.id => match track.decode(&packet) {
                Ok((rate, samples)) => audio.add(rate, &samples),
                Err(reason) => audio.damaged(reason),
            },
            Ok(Some(_)) => {}
            Ok(None) => break,
            // The file goes on with another recording.
            Err(Error::ResetRequired) => track = Track::of(&*format)?,
            Err(error) => {
                audio.damaged(error.to_string());
                break;
            }
        }
    }
    ensure!(
        !audio.is_too_long(),
        "it is longer than {} s",
        longest.as_secs()
    );
    audio.finish()
}

/// Writes mono audio in -1..1 at `rate`, Hz, as 16-bit WAV.
///
/// # Errors
/// [`hound::Error`] if it cannot be written.
pub fn write_wav(sink: impl Write + Seek, rate: u32, samples: &[f32]) -> Result<(), hound::Error> {
    let spec = WavSpec {
        channels: 1,
        sample_rate: rate,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };
    let mut writer = WavWriter::new(sink, spec)?;
    for sample in to_i16(samples) {
        writer.write_sample(sample)?;
    }
    writer.finalize()
}

/// One recording in a file, and its decoder.
struct Track {
    id: u32,
    decoder: Decoder,
}

enum Decoder {
    Any(Box<dyn symphonia::core::codecs::audio::AudioDecoder>),
    Opus(opus::Decoder),
}

impl Track {
    fn of(format: &dyn FormatReader) -> Result<Self> {
        let track = format
            .default_track(TrackType::Audio)
            .with_context(|| format!("it has no audio track in a supported format: {FORMATS}"))?;
        let Some(CodecParameters::Audio(codec)) = &track.codec_params else {
            bail!("it does not name the codec of its audio");
        };
        let decoder = if codec.codec == CODEC_ID_OPUS {
            Decoder::Opus(opus::Decoder::new(RATE, opus::Channels::Mono)?)
        } else {
            let decoder = symphonia::default::get_codecs()
                .make_audio_decoder(codec, &AudioDecoderOptions::default())
                .with_context(|| {
                    format!("its audio codec is not supported; the formats are {FORMATS}")
                })?;
            Decoder::Any(decoder)
        };
        Ok(Self {
            id: track.id,
            decoder,
        })
    }

    /// Decodes a packet to mono samples. Returns their rate, Hz, and the samples.
    fn decode(&mut self, packet: &Packet) -> Result<(u32, Vec<f32>), String> {
        match &mut self.decoder {
            Decoder::Any(decoder) => {
                let decoded = decoder.decode(packet).map_err(|error| error.to_string())?;
                let spec = decoded.spec();
                let (rate, channels) = (spec.rate(), spec.channels().count());
                if !RATES.contains(&rate) {
                    return Err(format!("a sample rate of {rate} Hz is not supported"));
                }
                if channels == 0 {
                    return Err("it has no channels".into());
                }
                let mut samples = Vec::new();
                decoded.copy_to_vec_interleaved::<f32>(&mut samples);
                Ok((rate, mono(&samples, channels)))
            }
            Decoder::Opus(decoder) => {
                let mut samples = vec![0.0; LONGEST_PACKET];
                let decoded = decoder.decode_float(&packet.data, &mut samples, false);
                samples.truncate(decoded.map_err(|error| error.to_string())?);
                Ok((RATE, samples))
            }
        }
    }
}

/// The audio decoded so far.
#[derive(Default)]
struct Audio {
    /// Mono, at [`RATE`].
    samples: Vec<f32>,
    /// The most samples.
    longest: usize,
    resampler: Option<(u32, Resampler)>,
    /// The number of parts that could not be decoded, and the error of the first.
    damaged: usize,
    reason: Option<String>,
}

impl Audio {
    /// Adds mono samples at `rate`, Hz.
    fn add(&mut self, rate: u32, samples: &[f32]) {
        if self.resampler.as_ref().is_none_or(|(of, _)| *of != rate) {
            self.flush();
            self.resampler = Some((rate, Resampler::new(rate, RATE)));
        }
        if let Some((_, resampler)) = &mut self.resampler {
            // A single packet may exceed the limit of the whole recording.
            for second in samples.chunks(rate as usize) {
                if self.samples.len() > self.longest {
                    break;
                }
                self.samples.extend(resampler.push(second));
            }
        }
    }

    fn is_too_long(&self) -> bool {
        self.samples.len() > self.longest
    }

    fn flush(&mut self) {
        if let Some((_, resampler)) = &mut self.resampler {
            self.samples.extend(resampler.flush());
        }
    }

    fn damaged(&mut self, reason: String) {
        self.damaged += 1;
        self.reason.get_or_insert(reason);
    }

    /// Returns all audio, and logs how many parts are missing.
    fn finish(mut self) -> Result<Vec<f32>> {
        self.flush();
        match self.reason {
            Some(reason) if self.samples.is_empty() => bail!("it is damaged: {reason}"),
            None if self.samples.is_empty() => bail!("it contains no audio"),
            Some(reason) => tracing::warn!(
                parts = self.damaged,
                reason,
                "an audio file is damaged; some of its audio is missing"
            ),
            None => {}
        }
        Ok(self.samples)
    }
}

/// The mean of the channels. NaN becomes silence, and samples above full scale saturate.
pub(crate) fn mono(samples: &[f32], channels: usize) -> Vec<f32> {
    let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
    let bounded = |sample: f32| {
        if sample.is_nan() {
            0.0
        } else {
            sample.clamp(-1.0, 1.0)
        }
    };
    samples
        .chunks_exact(channels)
        .map(|frame| bounded(mean(frame)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A WAV file of floats at any rate.
    fn wav(rate: u32, samples: &[f32]) -> Vec<u8> {
        let spec = WavSpec {
            channels: 1,
            sample_rate: rate,
            bits_per_sample: 32,
            sample_format: SampleFormat::Float,
        };
        let mut file = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut file, spec).unwrap();
        for sample in samples {
            writer.write_sample(*sample).unwrap();
        }
        writer.finalize().unwrap();
        file.into_inner()
    }

    fn decoded(file: Vec<u8>, longest: u64) -> Result<Vec<f32>> {
        decode(
            Box::new(Cursor::new(file)),
            Duration::from_secs(longest),
            || true,
        )
    }

    /// The decoder multiplies the number of channels, and panics in a build that checks for overflow.
    #[test]
    fn a_file_at_which_a_decoder_panics_is_damaged() {
        let mut file = wav(16_000, &[0.5; 100]);
        file[20..24].copy_from_slice(&[1, 0, 0xFF, 0xFF]);
        file[34] = 16;
        let error = decoded(file, 1).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn a_rate_that_would_cost_memory_is_refused() {
        for rate in [1, 383_987, 15_999_989, 400_000_009] {
            let refused = decoded(wav(rate, &[0.5; 64]), 1).unwrap_err().to_string();
            assert!(refused.contains(&rate.to_string()), "{refused}");
        }
    }

    #[test]
    fn samples_are_bounded_and_so_is_their_number() {
        let odd = wav(RATE, &[f32::NAN, f32::INFINITY, -1e30, 0.25]);
        assert_eq!(decoded(odd, 1).unwrap(), [0.0, 1.0, -1.0, 0.25]);
        let long = decoded(wav(8_000, &[0.1; 8_000 * 4]), 2).unwrap_err();
        assert_eq!(long.to_string(), "it is longer than 2 s");
    }

    #[test]
    fn what_nobody_wants_is_not_decoded() {
        let file = Cursor::new(wav(RATE, &[0.1; 16_000]));
        let audio = decode(Box::new(file), Duration::from_secs(2), || false);
        assert_eq!(audio.unwrap_err().to_string(), "it contains no audio");
    }
}
