//! `undertone say`.

use super::{audio_file, engines};
use crate::config::Config;
use crate::conversation::Clauses;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::io::Read;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Say {
    /// The text; - reads it from stdin
    text: String,
    /// The file for the speech
    #[arg(long, value_name = "FILE.wav")]
    out: PathBuf,
}

impl Say {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let text = self.text()?;
        let mut clauses = Clauses::new();
        let mut spoken = clauses.push(&text);
        spoken.extend(clauses.finish());
        ensure!(!spoken.is_empty(), "there is nothing to say");
        let mut tts = engines::tts(config)?;
        let mut speech = Vec::new();
        for clause in &spoken {
            speech.extend(crate::tts::whole(&mut *tts, clause)?);
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
