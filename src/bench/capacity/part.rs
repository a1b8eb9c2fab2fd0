//! The hidden processes of `capacity`, `undertone bench part`. They talk to the bench in lines on stdout, and end when
//! their stdin does.

use super::load::{Load, Tally};
use crate::asr::Asr;
use crate::bench::BenchError;
use crate::bench::served::{Served, started, with_llm};
use crate::bench::socket::config;
use crate::bench::stubs::{Hears, Loudness, Says, Tone};
use crate::conversation::Policy;
use crate::models::Models;
use crate::server::{ANYWHERE, ServerSettings};
use crate::session::Builders;
use crate::tools::Registry;
use crate::tts::Tts;
use crate::vad::{Gated, SileroModel, Vad};
use futures_util::{SinkExt, StreamExt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_tungstenite::accept_async_with_config;

/// The lines of the load before its result.
pub(super) const OPENING: &str = "opening";
pub(super) const MEASURING: &str = "measuring";

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A WebSocket that sends back what it gets
    Echo,
    /// The server with stubs instead of models
    Stubs,
    /// The server with stubs and the real voice activity detector
    Detector,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Stubs => "stubs",
            Self::Detector => "detector",
        }
    }

    /// The answers' clauses, of [`CLAUSE`] each. Callers of the detector speak about half of the time.
    fn clauses(self) -> usize {
        match self {
            Self::Detector => 1,
            Self::Echo | Self::Stubs => 10,
        }
    }
}

const CLAUSE: Duration = Duration::from_secs(3);

/// A process of the bench `capacity`.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Part {
    /// A server
    Server {
        /// Its kind
        #[arg(long, value_enum)]
        kind: Kind,
        /// The most calls
        #[arg(long)]
        calls: usize,
        /// The folder with the models
        #[arg(long)]
        models: PathBuf,
        /// The core to run on
        #[arg(long)]
        core: Option<usize>,
    },
    /// Callers
    Load {
        /// The server
        #[arg(long)]
        address: String,
        /// Its kind
        #[arg(long, value_enum)]
        kind: Kind,
        /// Their number
        #[arg(long)]
        calls: usize,
        /// The seconds for which they are measured
        #[arg(long)]
        seconds: f64,
        /// Their words to a real detector
        #[arg(long)]
        clip: PathBuf,
        /// The core to run on
        #[arg(long)]
        core: Option<usize>,
    },
}

impl Part {
    /// The command line of the process.
    pub(super) fn arguments(&self) -> Vec<String> {
        let (name, core, values) = match self {
            Self::Server {
                kind,
                calls,
                models,
                core,
            } => {
                let values = [
                    ("kind", kind.name().to_owned()),
                    ("calls", calls.to_string()),
                    ("models", models.display().to_string()),
                ];
                ("server", core, values.to_vec())
            }
            Self::Load {
                address,
                kind,
                calls,
                seconds,
                clip,
                core,
            } => {
                let values = [
                    ("address", address.clone()),
                    ("kind", kind.name().to_owned()),
                    ("calls", calls.to_string()),
                    ("seconds", seconds.to_string()),
                    ("clip", clip.display().to_string()),
                ];
                ("load", core, values.to_vec())
            }
        };
        let core = core.map(|core| ("core", core.to_string()));
        let options = values.into_iter().chain(core);
        let options = options.flat_map(|(name, value)| [format!("--{name}"), value]);
        let words = ["bench", "part", name].map(str::to_owned);
        words.into_iter().chain(options).collect()
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// [`BenchError`] if it cannot serve or call.
    pub fn run(self) -> Result<(), BenchError> {
        let core = match &self {
            Self::Server { core, .. } | Self::Load { core, .. } => *core,
        };
        // Before the runtime starts its threads, one for each core that it finds.
        if let Some(core) = core {
            let mut only = CpuSet::new();
            only.set(core);
            sched_setaffinity(None, &only).map_err(wrong)?;
        }
        raise_files();
        match self {
            Self::Server {
                kind,
                calls,
                models,
                ..
            } => crate::bench::in_real_time(serve(kind, calls, &models)),
            Self::Load {
                address,
                kind,
                calls,
                seconds,
                clip,
                ..
            } => {
                let length = Duration::from_secs_f64(seconds);
                let load = Load::new(address, kind, calls, length, &clip)?;
                let tally: Tally = crate::bench::in_real_time(load.run())?;
                tell(&serde_json::to_string(&tally).map_err(wrong)?)
            }
        }
    }
}

/// As many open files as are allowed.
fn raise_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

async fn serve(kind: Kind, calls: usize, models: &Path) -> Result<(), BenchError> {
    if kind == Kind::Echo {
        let listener = TcpListener::bind(ANYWHERE).await.map_err(wrong)?;
        tell(&listener.local_addr().map_err(wrong)?.to_string())?;
        let echoing = async {
            while let Ok((stream, _)) = listener.accept().await {
                echo(stream);
            }
        };
        tokio::select! {
            () = echoing => {}
            () = parent() => {}
        }
        return Ok(());
    }
    let settings = ServerSettings {
        max_sessions: calls + 16,
        max_connections: 2 * calls + 64,
        ..ServerSettings::default()
    };
    let server = Served::start_with(started(engines(kind, models)?)?, settings)?;
    tell(&server.address.to_string())?;
    parent().await;
    Ok(())
}

fn echo(stream: tokio::net::TcpStream) {
    tokio::spawn(async move {
        stream.set_nodelay(true).ok();
        let Ok(mut socket) = accept_async_with_config(stream, Some(config())).await else {
            return;
        };
        while let Some(Ok(message)) = socket.next().await {
            if message.is_binary() && socket.send(message).await.is_err() {
                return;
            }
        }
    });
}

fn engines(kind: Kind, models: &Path) -> Result<Builders, BenchError> {
    let llm = Arc::new(Says(kind.clauses()));
    let builders = with_llm(llm, Registry::new(), Vec::new(), Policy::default());
    let silero = match kind {
        Kind::Detector => {
            let models = Models::open(models).map_err(wrong)?;
            crate::onnx::init(&models.onnx_runtime()).map_err(wrong)?;
            Some(SileroModel::load(&models.silero()).map_err(wrong)?)
        }
        Kind::Echo | Kind::Stubs => None,
    };
    Ok(Builders {
        vad: Box::new(move || {
            let silero = silero.clone();
            Box::new(move || {
                Ok(match &silero {
                    Some(model) => Box::new(Gated::new(model.detector())) as Box<dyn Vad>,
                    None => Box::new(Loudness),
                })
            })
        }),
        asr: Box::new(|| {
            Ok(Box::new(Hears {
                words: "how are you",
                after: Duration::ZERO,
            }) as Box<dyn Asr>)
        }),
        tts: Box::new(|| {
            Ok(Box::new(Tone {
                after: Duration::ZERO,
                length: CLAUSE,
                rate: crate::bench::listener::RATE,
            }) as Box<dyn Tts>)
        }),
        ..builders
    })
}

/// Waits until the bench has closed this process's stdin, as it does when it ends.
async fn parent() {
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink())
        .await
        .ok();
}

/// Prints a line.
pub(super) fn tell(line: &str) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(wrong)
}

fn wrong(reason: impl std::fmt::Display) -> BenchError {
    BenchError::sockets("a part of the bench", reason)
}
