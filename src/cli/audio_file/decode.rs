//! Decodes audio files, which are told apart by their content.

use super::{LONGEST_FILE_SECONDS, RATE};
use crate::audio::Resampler;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::path::Path;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;

/// The formats that are read.
const FORMATS: &str = "WAV, MP3, FLAC and Ogg Vorbis are read";

/// Reads a file as mono in -1..1 at [`RATE`].
pub(super) fn decode(path: &Path, file: File) -> Result<Vec<f32>> {
    let shown = path.display();
    let stream = MediaSourceStream::new(Box::new(file), Default::default());
    let mut format = symphonia::default::get_probe()
        .probe(
            &Hint::new(),
            stream,
            FormatOptions::default(),
            MetadataOptions::default(),
        )
        .with_context(|| {
            format!("{shown} is damaged, or not an audio file of a known format: {FORMATS}")
        })?;
    let mut audio = Audio::default();
    let mut track = Track::of(&*format).with_context(|| shown.to_string())?;
    loop {
        match format.next_packet() {
            Ok(Some(packet)) if packet.track_id == track.id => {
                match track.decoder.decode(&packet) {
                    Ok(decoded) => {
                        let spec = decoded.spec();
                        let (rate, channels) = (spec.rate(), spec.channels().count());
                        let mut samples = Vec::new();
                        decoded.copy_to_vec_interleaved::<f32>(&mut samples);
                        ensure!(
                            rate > 0 && channels > 0,
                            "{shown} has no channels or no rate"
                        );
                        audio.add(rate, &mono(&samples, channels));
                    }
                    Err(error) => audio.damaged(&error),
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            // The next of several recordings in one file.
            Err(Error::ResetRequired) => {
                track = Track::of(&*format).with_context(|| shown.to_string())?;
            }
            Err(error) => {
                audio.damaged(&error);
                break;
            }
        }
        ensure!(
            audio.samples.len() / (RATE as usize) < LONGEST_FILE_SECONDS as usize,
            "{shown} is longer than {LONGEST_FILE_SECONDS} s"
        );
    }
    audio.finish().with_context(|| shown.to_string())
}

/// The audio of one recording in a file.
struct Track {
    id: u32,
    decoder: Box<dyn AudioDecoder>,
}

impl Track {
    fn of(format: &dyn FormatReader) -> Result<Self> {
        let track = format
            .default_track(TrackType::Audio)
            .with_context(|| format!("the file has no audio that is known: {FORMATS}"))?;
        let Some(CodecParameters::Audio(codec)) = &track.codec_params else {
            bail!("the file does not say how its audio is coded");
        };
        ensure!(
            codec.codec != CODEC_ID_OPUS,
            "Opus is not read: {FORMATS}; convert it, such as with `ffmpeg -i FILE.opus FILE.wav`"
        );
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(codec, &AudioDecoderOptions::default())
            .with_context(|| format!("its audio is in a coding that is not read: {FORMATS}"))?;
        Ok(Self {
            id: track.id,
            decoder,
        })
    }
}

/// The audio decoded so far.
#[derive(Default)]
struct Audio {
    /// At [`RATE`].
    samples: Vec<f32>,
    resampler: Option<(u32, Resampler)>,
    /// The parts that could not be decoded, and why the first could not.
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
            self.samples.extend(resampler.push(samples));
        }
    }

    fn flush(&mut self) {
        if let Some((_, resampler)) = &mut self.resampler {
            self.samples.extend(resampler.flush());
        }
    }

    fn damaged(&mut self, error: &Error) {
        self.damaged += 1;
        self.reason.get_or_insert_with(|| error.to_string());
    }

    /// All audio. What is missing is logged.
    fn finish(mut self) -> Result<Vec<f32>> {
        self.flush();
        match self.reason {
            Some(reason) if self.samples.is_empty() => bail!("the file is damaged: {reason}"),
            None if self.samples.is_empty() => bail!("the file contains no audio"),
            Some(reason) => tracing::warn!(
                parts = self.damaged,
                reason,
                "the file is damaged; some of its audio is missing"
            ),
            None => {}
        }
        Ok(self.samples)
    }
}

fn mono(samples: &[f32], channels: usize) -> Vec<f32> {
    samples
        .chunks_exact(channels)
        .map(|frame| frame.iter().sum::<f32>() / channels as f32)
        .collect()
}
