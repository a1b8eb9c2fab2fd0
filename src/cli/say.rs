//! `undertone say`.

use super::play::Play;
use super::{audio_file, engines};
use crate::config::Config;
use crate::conversation::Clauses;
use crate::language::pack;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::io::Read;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Say {
    /// The text; - reads it from stdin
    text: String,
    /// The file for the speech
    #[arg(long, value_name = "FILE.wav", required_unless_present = "play")]
    out: Option<PathBuf>,
    #[command(flatten)]
    play: Play,
}

impl Say {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let text = self.text()?;
        let is_empty = Clauses::of(pack(None), &text).is_empty();
        ensure!(!is_empty, "there is nothing to say");
        let mut tts = engines::tts(config)?;
        let spoken = Clauses::of(pack(tts.language()), &text);
        let speed = config.policy.speaker.speed();
        let mut loudspeaker = self.play.open(tts.sample_rate())?;
        let mut speech = Vec::new();
        for clause in &spoken {
            let clause = crate::tts::whole_at(&mut *tts, clause, speed)?;
            loudspeaker.play(&clause)?;
            speech.extend(clause);
        }
        if let Some(out) = &self.out {
            audio_file::write(out, tts.sample_rate(), &speech)?;
        }
        loudspeaker.finish()
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
