//! `undertone doctor`.

use crate::config::{ConfigError, Loaded};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(&self, loaded: Result<Loaded, ConfigError>) -> Result<ExitCode> {
        let _ = (loaded?, self.json);
        Ok(ExitCode::SUCCESS)
    }
}
