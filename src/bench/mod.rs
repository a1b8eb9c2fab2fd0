//! `undertone bench`: what speculation buys and costs, on generated data.
//!
//! A bench returns a [`Report`]: sentences, tables, plots and checks. In virtual time the same seed gives the same
//! report on every machine; `sockets` and `overhead` measure the machine that they run on. [`Folder`] keeps reports as
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
//! | `overhead` | what the server adds to an answer, over real sockets |

mod agent;
mod clock;
mod dice;
mod equations;
mod folder;
mod model;
mod next_call;
mod overhead;
mod plot;
mod prompts;
mod relay;
mod report;
mod served;
mod simulated;
mod simulation;
mod socket;
mod sockets;
mod stubs;
mod sweep;
mod turn;
mod world;

pub use folder::{Folder, FolderError};
pub use plot::PlotError;
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
    /// The time that the server itself adds to an answer, over real sockets
    Overhead,
}

/// The settings of a bench.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Data to use instead of generated data, for the benches that read any: `sweep` a folder in BFCL's format,
    /// `next-call` a file in the format of EVA or tau-bench, or a folder of them.
    pub data: Option<PathBuf>,
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
    pub const ALL: [Self; 7] = [
        Self::Turn,
        Self::Sockets,
        Self::Agent,
        Self::Sweep,
        Self::NextCall,
        Self::Model,
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
            Self::Overhead => "overhead",
        }
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
            Self::Overhead => overhead::run(settings),
        }
    }
}
