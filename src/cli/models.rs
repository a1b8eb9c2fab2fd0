//! `undertone models`.

mod pack;

use crate::config::Config;
use crate::models::{Checked, Found, Models as Folder, ModelsError};
use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum Models {
    /// List every file with its size and sha256
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Download missing files and build derived ones (runs models/pull.py)
    Pull {
        /// Sets to download too: whisper-base hears many languages (130 MB)
        sets: Vec<String>,
    },
    /// Check the size and sha256 of every file
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write all files into one archive, for machines without compiler and Python
    Pack {
        /// The archive, such as undertone-models.tar
        file: PathBuf,
    },
    /// Read such an archive, and check the files
    Unpack {
        /// The archive
        file: PathBuf,
        /// The folder for the models; models.dir by default
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
}

impl Models {
    pub(super) fn run(&self, config: &Config) -> Result<ExitCode> {
        let dir = &config.models;
        match self {
            Self::List { json } => list(&Folder::open(dir)?, *json)?,
            Self::Pull { sets } => pull(dir, sets)?,
            Self::Verify { json: false } => verify(&Folder::open(dir)?)?,
            Self::Pack { file } => {
                pack::pack(&Folder::open(dir)?, file)?;
                super::print(&format!("packed the models into {}", file.display()))?;
            }
            Self::Unpack { file, into } => {
                let models = pack::unpack(file, into.as_ref().unwrap_or(dir))?;
                let (files, dir) = (models.files().len(), models.dir().display());
                super::print(&format!("all {files} files in {dir} match their sha256"))?;
            }
            Self::Verify { json: true } => return verify_json(&Folder::open(dir)?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(models: &Folder, json: bool) -> Result<()> {
    if json {
        return super::print_json(&json!({ "dir": models.dir(), "files": models.files() }));
    }
    for file in models.files() {
        super::print(&format!(
            "{:<36} {:>9}  {}",
            file.path,
            megabytes(file.bytes),
            file.sha256
        ))?;
    }
    Ok(())
}

fn verify(models: &Folder) -> Result<()> {
    models.verify()?;
    let bytes = models.files().iter().map(|file| file.bytes).sum();
    super::print(&format!(
        "all {} files in {}, {}, match their sha256",
        models.files().len(),
        models.dir().display(),
        megabytes(bytes)
    ))
}

/// Prints the report to stdout in any case; the exit code says whether it is good.
fn verify_json(models: &Folder) -> Result<ExitCode> {
    let files = models.check();
    let right = |checked: &Checked| checked.found == Found::Right;
    let ok = files.iter().all(right);
    super::print_json(&json!({ "ok": ok, "dir": models.dir(), "files": files }))?;
    let damaged: Vec<Checked> = files.into_iter().filter(|file| !right(file)).collect();
    if damaged.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(ModelsError::Damaged(damaged).into())
}

fn pull(dir: &Path, sets: &[String]) -> Result<()> {
    let script = script(dir)?;
    let status = std::process::Command::new("python3")
        .arg(&script)
        .arg("--")
        .args(sets)
        .env("UNDERTONE_MODELS", std::path::absolute(dir)?)
        .status()
        .context("cannot run python3: install Python 3.10 or newer")?;
    ensure!(status.success(), "{} failed: {status}", script.display());
    Ok(())
}

/// Finds `pull.py` in the parent of the weights' folder, or in the source tree.
fn script(dir: &Path) -> Result<PathBuf> {
    let beside = |dir: &Path| {
        std::path::absolute(dir)
            .ok()?
            .parent()
            .map(|p| p.join("pull.py"))
    };
    let places = [beside(dir), beside(&crate::models::default_dir())];
    places
        .into_iter()
        .flatten()
        .find(|script| script.is_file())
        .with_context(|| {
            format!(
                "there is no pull.py beside {}: run the command in undertone's source tree, with UNDERTONE_MODELS naming \
                 this folder, or on the machine that builds, before `undertone models pack`",
                dir.display()
            )
        })
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
