//! `undertone bench`: what speculation buys and costs, on generated data, in virtual time.
//!
//! A bench returns a [`Report`]: sentences, tables, plots and checks. The same seed gives the same report on every
//! machine. [`Folder`] keeps reports as JSON with their plots, and writes one page about all of them.
//!
//! | bench | subject |
//! |---|---|
//! | `model` | the paper's equations against a simulation of its algorithms |

mod clock;
mod dice;
mod equations;
mod folder;
mod model;
mod plot;
mod report;
mod simulation;

pub use folder::{Folder, FolderError};
pub use plot::PlotError;
pub use report::{Cell, Check, Column, Mark, Plot, Report, Series, Spread, Table};

/// A bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Bench {
    /// The equations of the cost model against a simulation
    Model,
}

/// What a bench runs with.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Bench {
    /// All benches, in the order of the page.
    pub const ALL: [Self; 1] = [Self::Model];

    /// The name on the command line and of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
        }
    }

    /// Runs it.
    pub fn run(self, settings: &Settings) -> Report {
        match self {
            Self::Model => model::run(settings),
        }
    }
}
