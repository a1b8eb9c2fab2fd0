//! `undertone replay`.

use super::Common;
use crate::recording::{Difference, Recording, Replayed, replay};
use anyhow::{Context, Result};
use clap::Args;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Characters of a long line that are shown around the first difference.
const SHOWN: usize = 160;

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// A recording, made with `serve --record` or `ask --record`
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(&self, _common: Common) -> Result<ExitCode> {
        let recording = self.read()?;
        let replayed = replay(&recording);
        if self.json {
            super::print_json(&replayed)?;
        } else {
            super::print(&summary(&replayed, &recording))?;
        }
        Ok(match replayed.difference {
            None => ExitCode::SUCCESS,
            Some(_) => super::FAILED.into(),
        })
    }

    fn read(&self) -> Result<Recording> {
        let read = || {
            let file = BufReader::new(File::open(&self.file)?);
            anyhow::Ok(Recording::read(file)?)
        };
        read().with_context(|| format!("cannot read {}", self.file.display()))
    }
}

fn summary(replayed: &Replayed, recording: &Recording) -> String {
    let Replayed { steps, outputs, .. } = replayed;
    let Some(difference) = &replayed.difference else {
        let end = match replayed.complete {
            true => "",
            false => " (the recording was cut short)",
        };
        return format!("{steps} steps, {outputs} decisions: the same, byte for byte{end}");
    };
    let made_by = &recording.header.made_by;
    let version = match made_by == env!("CARGO_PKG_VERSION") {
        true => String::new(),
        false => format!("\nthe recording was made by version {made_by}"),
    };
    let Difference { line, .. } = difference;
    let (recorded, replayed) = around_difference(difference);
    format!(
        "line {line}: the first difference, after {outputs} decisions that are the same\n\
         recorded: {recorded}\nreplayed: {replayed}{version}"
    )
}

/// Both lines from a little before they part.
fn around_difference(difference: &Difference) -> (String, String) {
    let (Some(recorded), Some(replayed)) = (&difference.recorded, &difference.replayed) else {
        let shown = |line: &Option<String>| {
            let line = line.as_deref().unwrap_or("no decision");
            line.chars().take(SHOWN).collect()
        };
        return (shown(&difference.recorded), shown(&difference.replayed));
    };
    let pairs = recorded.chars().zip(replayed.chars());
    let same = pairs.take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(SHOWN / 2);
    let shown = |line: &str| {
        let before = if from > 0 { "..." } else { "" };
        let part: String = line.chars().skip(from).take(SHOWN).collect();
        format!("{before}{part}")
    };
    (shown(recorded), shown(replayed))
}
