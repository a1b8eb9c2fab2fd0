//! `undertone bench`: what speculation buys and costs, on generated data.
//!
//! A bench returns a [`Report`]: sentences, tables, plots and checks. In virtual time the same seed gives the same
//! report on every machine; benches in real time measure the machine that they run on. [`Folder`] keeps reports as
//! JSON with their plots, and writes one page about all of them. [`Simulation`] is the model server and the tool of
//! benches in real time.
//!
//! | bench | subject |
//! |---|---|
//! | `turn` | a spoken turn with a tool, on the product's rules |
//! | `agent` | a research task of six calls, on the product's rules |
//! | `sweep` | many agents with a draft model, on the product's rules |
//! | `next-call` | exact next calls by patterns learned from other conversations |
//! | `sockets` | four cells of `turn` over real sockets, in real time |
//! | `model` | the paper's equations against a simulation of its algorithms |
//! | `spoken` | spoken questions to the real models, as callers hear the answers, in real time |
//! | `latency` | the same with many callers at once |
//! | `barge-in` | how long the agent is heard after a caller has begun to speak |
//! | `capacity` | how many calls a core carries without models |
//! | `overhead` | what the server adds to an answer, over real sockets |

mod agent;
mod barge_in;
mod caller;
mod capacity;
mod clips;
mod clock;
mod equations;
mod folder;
#[doc(hidden)]
pub mod hot;
mod latency;
mod listener;
mod model;
mod next_call;
mod overhead;
mod plot;
mod program;
mod prompts;
mod relay;
mod report;
mod served;
mod simulated;
mod simulation;
mod socket;
mod sockets;
mod spoken;
mod stubs;
mod sweep;
mod turn;
mod world;

pub use capacity::Part;
pub use folder::{Folder, FolderError};
pub use plot::PlotError;
pub use program::Program;
pub use report::{Cell, Check, Column, Mark, Plot, Report, Series, Spread, Table};
pub use simulated::{Delays, MODEL, Simulation};

use std::fmt::Display;
use std::path::PathBuf;

/// A bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Bench {
    /// A spoken turn with a tool, with ever more speculation
    Turn,
    /// Four cells of `turn` over real sockets, in real time
    Sockets,
    /// A research task of six calls, in six ways to carry it out
    Agent,
    /// Many agents with a draft model, and tools of 0 to 3 s
    Sweep,
    /// The exact next call, by patterns learned from other conversations
    NextCall,
    /// The equations of the cost model against a simulation
    Model,
    /// Spoken questions to the real models, in real time
    Spoken,
    /// The real models with many callers at once, in real time
    Latency,
    /// Callers who speak over the agent, in real time
    BargeIn,
    /// The calls that a core carries without models, in real time
    Capacity,
    /// The time that the server itself adds to an answer, over real sockets
    Overhead,
}

/// The settings of a bench.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Data to use instead of generated data, for the benches that read any: `sweep` a folder in BFCL's format,
    /// `next-call` a file in the format of EVA or tau-bench, or a folder of them, `spoken` a folder of WAV files.
    pub data: Option<PathBuf>,
    /// The number of times that `spoken` asks each question.
    pub repeat: usize,
    /// Benches of the real models do the least that shows that they work. Their figures then mean nothing.
    pub brief: bool,
    /// The program whose server is measured, for the benches that start one: [`Bench::needs_program`].
    pub program: Option<Program>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            data: None,
            repeat: 1,
            brief: false,
            program: None,
        }
    }
}

impl Settings {
    fn program(&self) -> Result<&Program, BenchError> {
        let missing = || BenchError::sockets("the server's process", "no program is given");
        self.program.as_ref().ok_or_else(missing)
    }
}

/// Runs a bench in real time to its end.
fn in_real_time<T>(bench: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|reason| BenchError::sockets("the async runtime", reason))?;
    runtime.block_on(bench)
}

/// A bench could not run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The data cannot be used.
    #[error("cannot use {path}: {reason}")]
    Data {
        /// The file or folder.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A bench over real sockets broke off.
    #[error("{doing}: {reason}")]
    Sockets {
        /// The step that failed, or its subject.
        doing: String,
        /// The problem.
        reason: String,
    },
}

impl BenchError {
    fn sockets(doing: impl Into<String>, reason: impl Display) -> Self {
        Self::Sockets {
            doing: doing.into(),
            reason: reason.to_string(),
        }
    }
}

impl Bench {
    /// All benches, in the order of the page.
    pub const ALL: [Self; 11] = [
        Self::Turn,
        Self::Sockets,
        Self::Agent,
        Self::Sweep,
        Self::NextCall,
        Self::Model,
        Self::Spoken,
        Self::Latency,
        Self::BargeIn,
        Self::Capacity,
        Self::Overhead,
    ];

    /// The name on the command line and of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Sockets => "sockets",
            Self::Agent => "agent",
            Self::Sweep => "sweep",
            Self::NextCall => "next-call",
            Self::Model => "model",
            Self::Spoken => "spoken",
            Self::Latency => "latency",
            Self::BargeIn => "barge-in",
            Self::Capacity => "capacity",
            Self::Overhead => "overhead",
        }
    }

    /// Says whether it takes data instead of generated data.
    pub fn reads_data(self) -> bool {
        matches!(self, Self::Sweep | Self::NextCall | Self::Spoken)
    }

    /// Says whether it starts the program's own server.
    pub fn needs_program(self) -> bool {
        matches!(
            self,
            Self::Spoken | Self::Latency | Self::BargeIn | Self::Capacity
        )
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`] if the data cannot be used, or a bench over real sockets breaks off.
    pub fn run(self, settings: &Settings) -> Result<Report, BenchError> {
        match self {
            Self::Turn => Ok(turn::run(settings)),
            Self::Sockets => sockets::run(settings),
            Self::Agent => Ok(agent::run(settings)),
            Self::Sweep => sweep::run(settings),
            Self::NextCall => next_call::run(settings),
            Self::Model => Ok(model::run(settings)),
            Self::Spoken => spoken::run(settings),
            Self::Latency => latency::run(settings),
            Self::BargeIn => barge_in::run(settings),
            Self::Capacity => capacity::run(settings),
            Self::Overhead => overhead::run(settings),
        }
    }
}
