//! The command line. It prints errors once, with their whole chain.

mod about;
mod ask;
mod audio_file;
mod bench;
mod call;
mod config;
mod doctor;
pub mod engines;
mod forget;
mod mcp;
mod models;
mod patterns;
mod play;
mod playground;
mod probe;
mod reload;
mod replay;
mod retention;
mod router;
mod running;
mod say;
mod serve;
mod server_settings;
mod signals;
mod simulate;
mod stats;
#[cfg(feature = "desktop")]
mod talk;
mod transcribe;

use crate::config::{
    Config, ConfigError, Environment, Flags, Ignored, LlmEngine, Loaded, Scope, SettingOrigin,
};
use crate::models::ModelsError;
use crate::server::OutboundLine;
use crate::session::DEFAULT_AGENT;
use crate::session::Recordings;
use crate::simulate::ScenarioError;
use crate::telemetry::{self, Secrets};
use crate::tools::declared::Declared;
use crate::worker;
use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use secrecy::SecretString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

const FAILED: u8 = 1;
const BAD_CONFIGURATION: u8 = 2;
const BAD_MODELS: u8 = 3;

/// How long the models may take for the jobs in which the command's end meets them: more than one step of any of them.
const LAST_JOBS: Duration = Duration::from_secs(1);

/// How long printing the final error may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How to mend a file or folder that cannot be written.
const WRITABLE: &str = "let this user write there, or name another place";

const AFTER_HELP: &str = "\
Settings come from undertone.toml, UNDERTONE_SECTION__KEY variables and options, the last one wins;
`undertone config show` prints each value in effect and its origin.

Exit codes:
  0  done
  1  failed; with doctor: a check failed; with simulate: a run failed, or did worse than the baseline
  2  wrong usage, configuration or scenario
  3  models are missing or do not match their sha256: `make models`";

/// A voice agent server: speech in, a language model's answer out as speech, in real time.
#[derive(Debug, Parser)]
#[command(name = "undertone", version, long_version = about::version(), after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Common {
    /// The configuration file; by default UNDERTONE_CONFIG, or undertone.toml if it exists
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Serve),
    /// Talk with the microphone and the loudspeaker of this machine
    #[cfg(feature = "desktop")]
    Talk(talk::Talk),
    /// Ask one question from an audio file, and save or play the spoken answer
    Ask(ask::Ask),
    /// Have a running server place a telephone call
    Call(call::Call),
    /// Replay a recorded session and compare its decisions
    Replay(replay::Replay),
    /// Print turn latencies, and the time that speculation saved and wasted
    Stats(stats::Stats),
    /// Transcribe an audio file
    Transcribe(transcribe::Transcribe),
    /// Synthesise a text into a WAV file, or play it
    Say(say::Say),
    /// List, fetch, check or pack the models
    #[command(subcommand)]
    Models(models::Models),
    /// List, pin or compare the tools of MCP servers
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    /// Train or evaluate the predictor of tool calls
    #[command(subcommand)]
    Router(router::Router),
    /// Show, edit, train or measure the learned patterns of which call follows which
    #[command(subcommand)]
    Patterns(patterns::Patterns),
    /// Check the configuration, or show the values in effect
    #[command(subcommand)]
    Config(config::Command),
    /// Ask a language model some forty questions, and print what it can do and how to set its entry
    Probe(probe::Probe),
    /// Measure what speculation buys and costs, and what calls cost the server
    Bench(bench::Bench),
    /// Have simulated callers talk to the agent, and report what it did
    Simulate(simulate::Simulate),
    /// Delete what is stored about a session or a caller
    Forget(forget::Forget),
    /// Print completions for a shell
    Completions(about::Completions),
    /// Print the manual page, or write one for each command
    Man(about::Man),
    /// Check everything that the server needs, and say how to fix what is broken
    Doctor(doctor::Doctor),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let outcome = run(Cli::parse());
    worker::finish(LAST_JOBS);
    telemetry::finish();
    match outcome {
        Ok(code) => code,
        Err(error) => {
            print_error(format!("error: {error:#}"));
            exit_code(&error)
        }
    }
}

/// Prints a line on stderr. It waits at most [`LAST_WORDS`], because stderr may be a pipe that
/// nobody reads.
fn print_error(line: String) {
    let (printed, is_printed) = sync_channel(1);
    std::thread::spawn(move || {
        let _ = writeln!(std::io::stderr(), "{line}");
        let _ = printed.send(());
    });
    let _ = is_printed.recv_timeout(LAST_WORDS);
}

fn run(cli: Cli) -> Result<ExitCode> {
    let common = cli.common;
    match cli.command {
        Command::Serve(serve) => {
            let flags = serve.flags(common);
            done(serve.run(start_whole(&flags)?, flags))
        }
        #[cfg(feature = "desktop")]
        Command::Talk(talk) => {
            done(talk.run(&start_whole(&common.flags(Scope::Conversation))?.config))
        }
        Command::Ask(ask) => {
            done(ask.run(&start_whole(&common.flags(Scope::Conversation))?.config))
        }
        Command::Call(call) => done(call.run(&start(&common.flags(Scope::Server))?)),
        Command::Probe(probe) => {
            done(probe.run(&start_whole(&common.flags(Scope::Conversation))?.config))
        }
        Command::Transcribe(transcribe) => {
            done(transcribe.run(&start(&common.flags(Scope::Models))?))
        }
        Command::Say(say) => done(say.run(&start(&common.flags(Scope::Models))?)),
        Command::Replay(replay) => replay.run(),
        Command::Patterns(patterns) => done(patterns.run(|| start(&common.flags(Scope::Shared)))),
        Command::Stats(stats) => done(stats.run()),
        Command::Router(router) => done(router.run(&start(&common.flags(router.scope()))?)),
        Command::Mcp(mcp) => mcp.run(&start(&common.flags(Scope::Conversation))?),
        Command::Models(models) => models.run(&load(&common.flags(Scope::Models))?.config),
        Command::Config(command) => done(command.run(&load(&common.flags(command.scope()))?)),
        Command::Forget(forget) => forget.run(&load(&common.flags(Scope::Server))?.config),
        Command::Bench(bench) => bench.run(|| load(&common.flags(Scope::Models))),
        Command::Simulate(simulate) => {
            simulate.run(&start_quietly(&common.flags(Scope::Conversation))?.config)
        }
        Command::Completions(completions) => done(completions.run()),
        Command::Man(man) => done(man.run()),
        Command::Doctor(doctor) => doctor.run(load(&common.flags(Scope::Server))),
    }
}

fn done(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

fn load(flags: &Flags) -> Result<Loaded, ConfigError> {
    crate::config::load(flags, &Environment::of_process())
}

/// Reads the configuration and starts the log.
fn start(flags: &Flags) -> Result<Config> {
    begin(load(flags)?).map(|loaded| loaded.config)
}

/// Like [`start`], but also verifies everything that conversations need.
fn start_whole(flags: &Flags) -> Result<Loaded> {
    let loaded = load(flags)?;
    loaded.verify()?;
    begin(loaded)
}

/// Like [`start_whole`], for many conversations at once: the log has warnings alone, unless its level is configured.
fn start_quietly(flags: &Flags) -> Result<Loaded> {
    let mut loaded = load(flags)?;
    loaded.verify()?;
    let mut settings = loaded.settings.iter();
    let level = settings.find(|setting| setting.key == "log.level");
    if level.is_some_and(|level| level.origin == SettingOrigin::Default) {
        loaded.config.log.filter = "warn".into();
    }
    begin(loaded)
}

fn begin(loaded: Loaded) -> Result<Loaded> {
    let log = &loaded.config.log;
    telemetry::init(&log.filter, log.format, secrets(&loaded.config))?;
    for Ignored { name, meant } in &loaded.ignored {
        tracing::warn!(
            variable = name,
            did_you_mean = meant,
            "ignored a variable that is not a setting; settings are UNDERTONE_SECTION__KEY"
        );
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded)
}

/// A line for each variable that may be meant for a setting, and each warning, for commands without a log.
fn ignored(loaded: &Loaded) -> impl Iterator<Item = String> {
    let variables = loaded.ignored.iter().map(|Ignored { name, meant }| {
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!(
            "ignored {name}, which is not a setting: settings are UNDERTONE_SECTION__KEY{meant}"
        )
    });
    variables.chain(loaded.warnings.iter().cloned())
}

/// The async runtime of commands that hold conversations. The models run on threads of their own.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("cannot start the async runtime")
}

/// Refuses an agent that the configuration does not have.
fn check_agent(name: Option<&str>, config: &Config) -> Result<()> {
    let known = config.agents.iter().map(|agent| agent.name.as_str());
    let known: Vec<&str> = known.chain([DEFAULT_AGENT]).collect();
    match name {
        Some(name) if !known.contains(&name) => {
            anyhow::bail!(
                "--agent: there is no \"{name}\"; known are: {}",
                known.join(", ")
            )
        }
        _ => Ok(()),
    }
}

/// The shortest value of a collector's header that may be a key, bytes.
const LEAST_KEY: usize = 8;

fn secrets(config: &Config) -> Secrets {
    let server = &config.server;
    let main = match &config.llm {
        LlmEngine::Brain => None,
        LlmEngine::Remote(remote) => Some(&**remote),
    };
    let models = main.into_iter().chain(config.further_llms.values());
    let models = models.map(|model| &model.settings.api_key);
    let secrets = [&server.auth_token, &server.client_secret_key].into_iter();
    let secrets = secrets.chain(models).flatten();
    let tools = config.tools.declared.iter().flat_map(Declared::secrets);
    let mcp = config
        .tools
        .mcp
        .servers
        .iter()
        .flat_map(|server| server.secrets());
    let twilio = server.twilio.as_ref().map(|twilio| &twilio.auth_token);
    let store = config.store.as_ref();
    let store = store.and_then(|store| store.password.as_ref());
    let ari = match server.outbound.as_ref().map(|outbound| &outbound.line) {
        Some(OutboundLine::Asterisk(ari)) => Some(&ari.password),
        _ => None,
    };
    let traces = config
        .traces
        .iter()
        .flat_map(|traces| traces.headers.values());
    let traces = traces.filter_map(|value| value.to_str().ok());
    // A short one, such as a tenant's number, is no key, and occurs everywhere.
    let traces = traces
        .filter(|value| value.len() >= LEAST_KEY)
        .map(SecretString::from);
    let traces: Vec<_> = traces.collect();
    let all = secrets
        .chain(config.speech.secrets())
        .chain(&traces)
        .chain(twilio)
        .chain(ari)
        .chain(store)
        .chain(tools)
        .chain(mcp);
    all.cloned().collect()
}

/// The recorder of sessions, if there is a folder.
fn recordings(folder: Option<&Path>) -> Result<Option<Recordings>> {
    let open = |folder: &Path| {
        Recordings::new(folder).with_context(|| format!("cannot create {}", folder.display()))
    };
    folder.map(open).transpose()
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    let code = if error.is::<ConfigError>() || error.is::<ScenarioError>() {
        BAD_CONFIGURATION
    } else if error.chain().any(|cause| cause.is::<ModelsError>()) {
        BAD_MODELS
    } else {
        FAILED
    };
    code.into()
}

/// Prints a line on stdout. A closed pipe, as with `| head`, is not an error.
fn print(line: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

impl Common {
    /// The flags for a command that uses this part of the configuration.
    fn flags(self, scope: Scope) -> Flags {
        Flags {
            scope,
            config: self.config,
            ..Flags::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
