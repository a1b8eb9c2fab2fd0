//! `undertone patterns`: shows and edits learned call patterns.

mod edit;
mod learning;

use crate::config::Config;
use anyhow::Result;
use clap::Subcommand;

/// `undertone patterns ..`
#[derive(Debug, Subcommand)]
pub(super) enum Patterns {
    /// Print which call follows which, the most certain first
    List(edit::List),
    /// Print what comes before a tool, and where its arguments come from
    Show(edit::Show),
    /// Forget one tool or all; a running server follows within ten seconds
    Forget(edit::Forget),
    /// Print everything that was learned, in the form of its file
    Export,
    /// Learn from recordings of sessions, and from conversations in the formats of EVA and tau-bench
    Learn(learning::Learn),
}

impl Patterns {
    /// `config` reads the configuration.
    pub(super) fn run(&self, config: impl FnOnce() -> Result<Config>) -> Result<()> {
        match self {
            Self::List(list) => list.run(&config()?),
            Self::Show(show) => show.run(&config()?),
            Self::Forget(forget) => forget.run(&config()?),
            Self::Export => edit::export(&config()?),
            Self::Learn(learn) => learn.run(&config()?),
        }
    }
}
