//! The version, completions for shells, manual pages.

use super::Cli;
use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

const FEATURES: &str = if cfg!(feature = "desktop") {
    "desktop"
} else {
    "none"
};

/// The version with what it was built from.
pub(super) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        // A development build has no date.
        let commit = concat!(env!("BUILT_FROM"), " ", env!("BUILT_DATE")).trim_end();
        let (version, target) = (env!("CARGO_PKG_VERSION"), env!("BUILT_FOR"));
        format!("{version}\ncommit   {commit}\nfor      {target}\nfeatures {FEATURES}")
    });
    &VERSION
}

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints them, for the folder in which the shell looks for them.
    pub(super) fn run(&self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "undertone", &mut script);
        print(&script)
    }
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// Write a page for each command into this folder, instead of printing the first
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> Result<()> {
        let Some(folder) = &self.out else {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            return print(&page);
        };
        let written = std::fs::create_dir_all(folder);
        let written = written.and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
        written.with_context(|| format!("cannot write into {}", folder.display()))
    }
}

/// Prints bytes on stdout. A closed pipe is not an error.
fn print(bytes: &[u8]) -> Result<()> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}
