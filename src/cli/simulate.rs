//! `undertone simulate`.

use super::engines;
use crate::config::{Config, RemoteLlm};
use crate::llm::{Calls, Llm, Prompts, Remote};
use crate::recording::Header;
use crate::session::{DEFAULT_AGENT, Engines, Observers};
use crate::simulate::{
    Comparison, FailedRun, Line, Plan, Report, Run, Scenario, ScenarioError, Stage, compare, mute,
    simulate,
};
use crate::tools::Registry;
use crate::tools::declared::Kind;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The report in the folder of `--out`.
const REPORT: &str = "report.json";

/// The folder of failed runs beside it.
const FAILED_RUNS: &str = "failed";

#[derive(Debug, Args)]
pub(super) struct Simulate {
    /// Scenario files, or folders of them
    #[arg(value_name = "SCENARIO.toml", required = true)]
    scenarios: Vec<PathBuf>,
    /// Send the caller's words as text, without speech models: as fast as the language model answers
    #[arg(long)]
    text: bool,
    /// How often each scenario is played
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    runs: u16,
    /// Decides the callers' noise
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Conversations at the same time; by default one for every two cores, with --text one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    jobs: Option<u16>,
    /// Run all tools for real that only read, unless a scenario has a reply. Tools that may change something never run
    #[arg(long)]
    real_reads: bool,
    /// Write the report, and the transcript, recording and sound of each failed run, into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// An earlier report. A scenario that does worse fails this command; one that fails as before does not
    #[arg(long, value_name = "REPORT.json")]
    baseline: Option<PathBuf>,
    /// Print the transcript of each conversation
    #[arg(long)]
    transcripts: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Simulate {
    /// Fails if a run went wrong, or with a baseline, if a scenario does worse than there.
    pub(super) fn run(&self, config: &Config) -> Result<ExitCode> {
        let baseline = self.baseline.as_deref().map(read_report).transpose()?;
        let scenarios = self.checked_scenarios(config)?;
        let (report, comparison) = super::runtime()?.block_on(async {
            let report = self.play(scenarios, config).await?;
            let comparison = baseline.map(|baseline| compare(&baseline, &report));
            anyhow::Ok((report, comparison))
        })?;
        let since = comparison.as_ref().map(told).unwrap_or_default();
        match self.json {
            true => {
                super::print_json(&report)?;
                if comparison.is_some() {
                    super::print_error(since.trim_start().to_owned());
                }
            }
            false => super::print(&(report.table() + &since))?,
        }
        let has_failed = match &comparison {
            Some(comparison) => !comparison.regressions.is_empty(),
            None => report.has_failures(),
        };
        Ok(match has_failed {
            true => super::FAILED.into(),
            false => ExitCode::SUCCESS,
        })
    }

    fn checked_scenarios(&self, config: &Config) -> Result<Vec<Scenario>> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for path in &self.scenarios {
            for scenario in Scenario::read_all(path)? {
                if let Some(other) = scenarios.iter().find(|other| other.name == scenario.name) {
                    bail!(ScenarioError {
                        problem: format!("{} has the same name", other.file.display()),
                        file: scenario.file,
                        line: 1,
                        key: String::new(),
                        fix: "rename one of them: reports tell scenarios apart by the names of their files".into(),
                    });
                }
                scenarios.push(scenario);
            }
        }
        let tools = engines::registry(config)?;
        let agents = config.agents.iter().map(|agent| agent.name.clone());
        let agents: Vec<String> = agents.chain([DEFAULT_AGENT.to_owned()]).collect();
        let own_voices = config.voices.keys().chain(config.speech.voices.keys());
        let own_voices: Vec<String> = own_voices.cloned().collect();
        let elsewhere = of_mcp_servers(config);
        for scenario in &mut scenarios {
            scenario.fits(&tools, &agents, &own_voices, &elsewhere)?;
            if self.real_reads {
                scenario.run_for_real(reads(&tools, &elsewhere));
            }
            if let Some(model) = scenario.model()
                && !config.further_llms.contains_key(model)
            {
                let names: Vec<&str> = config.further_llms.keys().map(String::as_str).collect();
                let fix = match names.is_empty() {
                    true => format!(
                        "add a section [llm.models.{model}] with base_url and model to the configuration"
                    ),
                    false => format!("use one of {}", names.join(", ")),
                };
                let problem = format!("there is no model \"{model}\" among llm.models");
                bail!(scenario.wrong("caller.model", problem, fix));
            }
        }
        Ok(scenarios)
    }

    async fn play(&self, scenarios: Vec<Scenario>, config: &Config) -> Result<Report> {
        let recorded = match &self.out {
            Some(out) => Some(prepared(out)?),
            None => None,
        };
        let observers = Observers {
            recordings: super::recordings(recorded.as_ref().map(|folder| folder.path()))?,
            ..Observers::default()
        };
        let plan = Plan {
            models: models(config, &scenarios)?,
            scenarios,
            runs: self.runs.into(),
            seed: self.seed,
            jobs: self.jobs.map_or_else(|| usual_jobs(self.text), usize::from),
            text: self.text,
            token_price: config.policy.speculation.token_price,
        };
        let stage = Arc::new(Stage::default());
        let builders = engines::rehearsal(config, observers, |tools| Ok(stage.set(tools)?))?;
        let builders = if self.text { mute(builders) } else { builders };
        let engines = Engines::start(builders)?;
        let count = plan.scenarios.len() * plan.runs;
        let mut done = 0;
        let mut printed = Ok(());
        let mut ended = |run: &Run| {
            done += 1;
            let name = &plan.scenarios[run.scenario].name;
            let how = if run.succeeded() { "passed" } else { "FAILED" };
            super::print_error(format!("{done}/{count} {name} run {}: {how}", run.number));
            if self.transcripts && printed.is_ok() {
                let title = format!("{name}, run {}\n", run.number);
                let text = title + &transcript(&run.lines);
                match self.json {
                    true => super::print_error(text),
                    false => printed = super::print(&text),
                }
            }
        };
        let (mut report, runs) = simulate(&plan, &engines, &stage, &mut ended).await;
        printed?;
        engines.finish_sessions().await;
        engines.settle().await;
        if let (Some(out), Some(recorded)) = (&self.out, &recorded) {
            keep(out, recorded.path(), &mut report, &runs)?;
        }
        Ok(report)
    }
}

fn read_report(path: &Path) -> Result<Report> {
    let unusable = |error: String| ScenarioError {
        file: path.to_owned(),
        line: 1,
        key: String::new(),
        problem: format!("it is no report to compare with: {error}"),
        fix: format!("make one with --out FOLDER and name its {REPORT}"),
    };
    let text = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    Ok(Report::parse(&text).map_err(unusable)?)
}

/// The tools of MCP servers, which are not connected here.
fn of_mcp_servers(config: &Config) -> BTreeSet<String> {
    let declared = config.tools.declared.iter();
    let elsewhere = declared.filter(|tool| matches!(tool.kind, Kind::Mcp(_)));
    elsewhere
        .map(|tool| tool.declaration.spec.name.clone())
        .collect()
}

/// The tools that may run for real.
fn reads(tools: &Registry, elsewhere: &BTreeSet<String>) -> Vec<String> {
    let all = tools.declarations().into_iter();
    let reads = all.filter(|tool| !tool.effect.changes() && !elsewhere.contains(&tool.spec.name));
    reads.map(|tool| tool.spec.name.clone()).collect()
}

/// The models that play callers.
fn models(config: &Config, scenarios: &[Scenario]) -> Result<BTreeMap<String, Arc<dyn Llm>>> {
    let mut models: BTreeMap<String, Arc<dyn Llm>> = BTreeMap::new();
    for name in scenarios.iter().filter_map(Scenario::model) {
        if let Some(remote) = config.further_llms.get(name)
            && !models.contains_key(name)
        {
            models.insert(name.to_owned(), Arc::new(as_caller(remote)?));
        }
    }
    Ok(models)
}

/// A model with the prompt of a caller.
fn as_caller(remote: &RemoteLlm) -> Result<Remote> {
    let prompts = Prompts::of_caller().limited(remote.max_prompt_tokens);
    let played = RemoteLlm {
        prompts,
        ..remote.clone()
    };
    engines::remote_llm(&played, |settings| settings.calls = Calls::Native)
}

/// Local models share the cores with the conversations that wait for them.
fn usual_jobs(text: bool) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match text {
        true => cores,
        false => (cores / 2).max(1),
    }
}

/// Makes the folder, and one in it for the recordings of all runs, which is removed in the end.
fn prepared(out: &Path) -> Result<tempfile::TempDir> {
    let make = || {
        DirBuilder::new().recursive(true).mode(0o700).create(out)?;
        tempfile::Builder::new()
            .prefix("recordings")
            .tempdir_in(out)
    };
    make().with_context(|| format!("cannot write into {}", out.display()))
}

/// Writes the report, and what is left of the failed runs, which it names.
fn keep(out: &Path, recorded: &Path, report: &mut Report, runs: &[Run]) -> Result<()> {
    let recordings = recordings_of(recorded)?;
    let scenarios = report.scenarios.iter_mut().enumerate();
    for (at, scenario) in scenarios {
        for failed in &mut scenario.failed {
            let run = runs
                .iter()
                .find(|run| run.scenario == at && run.number == failed.run);
            if let Some(run) = run {
                let recording = recordings.get(&run.session);
                keep_run(out, &scenario.name, run, recording, failed)?;
            }
        }
    }
    let path = out.join(REPORT);
    let write = || {
        let mut file = BufWriter::new(private(&path)?);
        serde_json::to_writer_pretty(&mut file, report)?;
        writeln!(file)?;
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn keep_run(
    out: &Path,
    scenario: &str,
    run: &Run,
    recording: Option<&PathBuf>,
    failed: &mut FailedRun,
) -> Result<()> {
    let place = |end: &str| format!("{FAILED_RUNS}/{scenario}-{}.{end}", run.number);
    let write = |failed: &mut FailedRun| {
        let folder = out.join(FAILED_RUNS);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let name = place("txt");
        let reasons = run.reasons.iter().map(|reason| format!("- {reason}\n"));
        let text = reasons.collect::<String>() + "\n" + &transcript(&run.lines);
        private(&out.join(&name))?.write_all(text.as_bytes())?;
        failed.transcript = Some(name);
        if let Some(recording) = recording {
            let name = place("jsonl");
            fs::rename(recording, out.join(&name))?;
            failed.recording = Some(name);
        }
        if let Some((samples, rate)) = &run.sound {
            let name = place("wav");
            let file = BufWriter::new(private(&out.join(&name))?);
            write_both(file, samples, *rate).map_err(std::io::Error::other)?;
            failed.sound = Some(name);
        }
        std::io::Result::Ok(())
    };
    write(failed).with_context(|| format!("cannot write into {}", out.display()))
}

/// A file that only its owner may read: it has what was said.
fn private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

/// The caller on the left, the agent on the right.
fn write_both(file: BufWriter<File>, samples: &[i16], rate: u32) -> Result<(), hound::Error> {
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: rate,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::new(file, spec)?;
    for sample in samples {
        writer.write_sample(*sample)?;
    }
    writer.finalize()
}

/// The recordings in a folder by their sessions.
fn recordings_of(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let find = || {
        let mut found = BTreeMap::new();
        for entry in folder.read_dir()? {
            let path = entry?.path();
            let mut first = String::new();
            BufReader::new(File::open(&path)?).read_line(&mut first)?;
            let header: Option<Header> = serde_json::from_str(&first).ok();
            if let Some(session) = header.and_then(|header| header.session) {
                found.insert(session, path);
            }
        }
        std::io::Result::Ok(found)
    };
    find().with_context(|| format!("cannot read the recordings in {}", folder.display()))
}

fn transcript(lines: &[Line]) -> String {
    let line = |line: &Line| {
        let seconds = line.at_ms as f64 / 1_000.0;
        format!("{seconds:8.2}  {:<7} {}\n", line.who.name(), line.text)
    };
    lines.iter().map(line).collect()
}

fn told(comparison: &Comparison) -> String {
    let Comparison {
        changes,
        regressions,
    } = comparison;
    let mut text = "\n\nsince the baseline:".to_owned();
    if changes.is_empty() {
        text += " nothing has changed";
    }
    for change in changes {
        text += &format!("\n  {change}");
    }
    for regression in regressions {
        text += &format!("\nREGRESSION {regression}");
    }
    text
}
