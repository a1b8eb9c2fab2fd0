//! `undertone transcribe`.

use super::{audio_file, engines};
use crate::asr::Hints;
use crate::config::Config;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Transcribe {
    /// The audio: WAV, MP3, FLAC, Ogg (Vorbis, Opus), WebM or M4A, any number of channels, the usual rates from 8 to 192 kHz
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print a JSON object with text and seconds
    #[arg(long)]
    json: bool,
}

impl Transcribe {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let audio = audio_file::read(&self.file)?;
        let mut asr = engines::asr(config)?;
        let hints = Hints {
            language: config.policy.speaker.language.clone(),
            others: config.detection.among.as_slice().into(),
            keyterms: config.keyterms.clone(),
            ..Hints::default()
        };
        let mut texts = Vec::new();
        for stretch in crate::audio::stretches(&audio) {
            texts.push(asr.hear_with(stretch, &hints)?.text);
        }
        texts.retain(|text| !text.trim().is_empty());
        let text = texts.join(" ");
        if !self.json {
            return super::print(text.trim());
        }
        let seconds = audio.len() as f64 / f64::from(crate::audio::RATE);
        super::print_json(&serde_json::json!({ "text": text.trim(), "seconds": seconds }))
    }
}
