//! `undertone ask`.

use crate::config::Config;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Ask {
    /// The spoken question
    #[arg(value_name = "QUESTION.wav")]
    question: PathBuf,
    /// Where the spoken answer goes
    #[arg(long, value_name = "ANSWER.wav")]
    out: PathBuf,
    /// Where to write what happened in the conversation, one JSON object a line
    #[arg(long, value_name = "FILE.jsonl")]
    events: Option<PathBuf>,
}

impl Ask {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        super::audio_file::read(&self.question)?;
        super::engines::verified_models(config)?;
        bail!(
            "ask is not built yet: {} is not written{}",
            self.out.display(),
            self.events.as_ref().map_or("", |_| ", nor are the events")
        )
    }
}
