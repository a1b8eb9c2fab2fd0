//! `undertone say`.

use super::{audio_file, engines};
use crate::config::Config;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::PathBuf;
use unicode_segmentation::UnicodeSegmentation;

#[derive(Debug, Args)]
pub(super) struct Say {
    /// The text; - reads it from stdin
    text: String,
    /// Where the speech goes
    #[arg(long, value_name = "FILE.wav")]
    out: PathBuf,
}

impl Say {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let text = self.text()?;
        ensure!(!text.trim().is_empty(), "there is nothing to say");
        let mut tts = engines::tts(config)?;
        let mut speech = Vec::new();
        for sentence in text.unicode_sentences() {
            tts.speak(sentence.trim(), &mut |chunk| {
                speech.extend_from_slice(chunk);
                ControlFlow::Continue(())
            })?;
        }
        audio_file::write(&self.out, tts.sample_rate(), &speech)
    }

    fn text(&self) -> Result<String> {
        if self.text != "-" {
            return Ok(self.text.clone());
        }
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read the text from stdin")?;
        Ok(text)
    }
}
