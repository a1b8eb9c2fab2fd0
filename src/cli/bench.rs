//! `undertone bench`.

use crate::bench::{Bench as Name, Folder, Report, Settings};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Bench {
    /// The benches to run; all if none is named
    #[arg(value_enum, value_name = "NAME")]
    names: Vec<Name>,
    /// Data to use instead of generated data: for `sweep` a folder in BFCL's format, BFCL_*.json and possible_answer/; for
    /// `next-call` conversations in the format of EVA (*_dataset.json) or tau-bench (historical runs), a file or a folder
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Write the page benchmarks.md here, and reports and plots to benchmarks/ in it; without it nothing is written
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Bench {
    /// Fails if an expected value is not met.
    pub(super) fn run(mut self) -> Result<ExitCode> {
        if self.names.is_empty() {
            self.names = Name::ALL.to_vec();
        }
        let settings = Settings {
            seed: self.seed,
            data: self.data,
        };
        let folder = self.out.map(Folder::new);
        let mut is_met = true;
        for name in self.names {
            super::print_error(format!("... {}", name.name()));
            let report = name.run(&settings)?;
            super::print(&text(&report))?;
            is_met &= report.checks.iter().all(|check| check.holds);
            if let Some(folder) = &folder {
                folder.keep(&report)?;
            }
        }
        if let Some(folder) = folder {
            super::print(&format!("wrote {}", folder.write_page()?.display()))?;
        }
        Ok(match is_met {
            true => ExitCode::SUCCESS,
            false => super::FAILED.into(),
        })
    }
}

fn text(report: &Report) -> String {
    let mut lines = vec![report.title.clone(), String::new()];
    lines.extend(report.findings.iter().map(|finding| format!("- {finding}")));
    for table in &report.tables {
        lines.extend([String::new(), table.title.clone(), table.markdown()]);
    }
    lines.push(String::new());
    for check in &report.checks {
        let holds = if check.holds { "met" } else { "NOT MET" };
        lines.push(format!("{holds:<8} {}: {}", check.what, check.found));
    }
    lines.join("\n") + "\n"
}
