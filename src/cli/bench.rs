//! `undertone bench`.

use super::signals::Signals;
use crate::bench::{
    Bench as Name, Delays, Folder, MODEL, Part, Program, Report, Settings, Simulation,
};
use crate::config::{ConfigError, Loaded};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Bench {
    #[command(subcommand)]
    command: Option<Command>,
    /// The benches to run; all if none is named
    #[arg(value_enum, value_name = "NAME")]
    names: Vec<Name>,
    /// Data to use instead of generated data: for `sweep` a folder in BFCL's format, BFCL_*.json and possible_answer/; for
    /// `next-call` conversations in the format of EVA (*_dataset.json, with *_agent.yaml beside it) or tau-bench (historical
    /// runs), a file or a folder; for `spoken` a folder of WAV files with a question each. Those with "weather" in their
    /// names ask for a city's weather
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Write the page benchmarks.md here, and reports and plots to benchmarks/ in it; without it nothing is written
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of times that `spoken` asks each question
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Do the least that shows that the benches that start a server work; their figures then mean nothing
    #[arg(long)]
    brief: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keep the benches' model server and tool running, to try a configuration on
    Serve(Serve),
    /// A process that a bench starts
    #[command(subcommand, hide = true)]
    Part(Part),
}

#[derive(Debug, Args)]
struct Serve {
    /// The TCP port on this machine; 0 takes any free one
    #[arg(long, default_value_t = 9090)]
    port: u16,
    /// Write the declaration of the tool into this folder
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// How long the tool takes, seconds
    #[arg(long, value_name = "SECONDS", value_parser = span, default_value = "1.5")]
    tool: Duration,
    /// Until the model's first words, seconds
    #[arg(long, value_name = "SECONDS", value_parser = span, default_value = "0.57")]
    first: Duration,
    /// Until its call, seconds
    #[arg(long, value_name = "SECONDS", value_parser = span, default_value = "0.9")]
    call: Duration,
    /// Until an answer, seconds
    #[arg(long, value_name = "SECONDS", value_parser = span, default_value = "0.3")]
    answer: Duration,
    /// The model says nothing before a call
    #[arg(long)]
    silent: bool,
}

fn span(seconds: &str) -> Result<Duration, String> {
    let seconds: f64 = seconds.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Serve {
    /// Until a signal.
    fn run(&self) -> Result<()> {
        super::runtime()?.block_on(async {
            let mut signals = Signals::listen()?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
            let simulation = Simulation::open(address, self.delays()).await?;
            if let Some(folder) = &self.tools {
                declare(&simulation, folder)?;
            }
            super::print(&self.welcome(&simulation))?;
            signals.stop().await;
            super::print(&format!("the tool was run {} times", simulation.runs()))
        })
    }

    fn delays(&self) -> Delays {
        let usual = Delays::default();
        Delays {
            first: (!self.silent).then_some(self.first.min(self.call)),
            call: self.call,
            written: usual.written.min(self.call),
            answer: self.answer,
            token: None,
            tool: self.tool,
        }
    }

    fn welcome(&self, simulation: &Simulation) -> String {
        let url = simulation.base_url();
        let tools = match &self.tools {
            Some(folder) => format!(" \\\n    UNDERTONE_TOOLS__FOLDER={}", folder.display()),
            None => String::new(),
        };
        format!(
            "a simulated model at {url}. Try your configuration on it, in another terminal:\n\n  \
             UNDERTONE_LLM__ENGINE=openai-compatible UNDERTONE_LLM__MODEL={MODEL} \\\n    \
             UNDERTONE_LLM__BASE_URL={url}{tools} \\\n    undertone serve\n\n\
             It calls its tool, whose declaration --tools DIR writes, when it is asked for the weather in a city,\n\
             and any other that somebody types as: call NAME KEY=VALUE, KEY=VALUE"
        )
    }
}

fn declare(simulation: &Simulation, folder: &Path) -> Result<()> {
    let (name, text) = simulation.declaration();
    let path = folder.join(name);
    let write = || {
        fs::create_dir_all(folder)?;
        fs::write(&path, text)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

impl Bench {
    /// Fails if an expected value is not met.
    /// `configuration` is read for benches that start a server, and only names the models.
    pub(super) fn run(
        mut self,
        configuration: impl FnOnce() -> Result<Loaded, ConfigError>,
    ) -> Result<ExitCode> {
        match self.command {
            Some(Command::Serve(serve)) => return super::done(serve.run()),
            Some(Command::Part(part)) => return super::done(part.run().map_err(Into::into)),
            None => {}
        }
        if self.names.is_empty() {
            self.names = Name::ALL.to_vec();
        }
        if let Some(data) = &self.data {
            check_data(data, &self.names)?;
        }
        let program = match self.names.iter().any(|name| name.needs_program()) {
            true => Some(Program {
                file: std::env::current_exe().context("cannot find this program's file")?,
                models: std::path::absolute(configuration()?.config.models)?,
            }),
            false => None,
        };
        let settings = Settings {
            seed: self.seed,
            data: self.data,
            repeat: self.repeat.into(),
            brief: self.brief,
            program,
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

/// Refuses data that one of the benches would not read.
fn check_data(data: &Path, names: &[Name]) -> Result<()> {
    let Some(other) = names.iter().find(|name| !name.reads_data()) else {
        return Ok(());
    };
    let readers = Name::ALL.into_iter().filter(|name| name.reads_data());
    let readers: Vec<&str> = readers.map(Name::name).collect();
    bail!(
        "--data {}: the bench {} reads no data; name only benches that do: {}",
        data.display(),
        other.name(),
        readers.join(", ")
    )
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
