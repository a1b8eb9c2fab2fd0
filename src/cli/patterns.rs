//! `undertone patterns`: calls that are learned from calls.

mod edit;
mod learning;

use crate::config::Config;
use crate::prediction::patterns::{Conversation, Figures, NextCall, next_calls};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use jiff::civil::Date;
use std::fmt::Write;
use std::path::PathBuf;

/// `undertone patterns ..`
#[derive(Debug, Subcommand)]
pub(super) enum Patterns {
    /// Print which call follows which, the surest first
    List(edit::List),
    /// Print what comes before a tool, and where its arguments come from
    Show(edit::Show),
    /// Forget a tool, or all; a server that runs follows within ten seconds
    Forget(edit::Forget),
    /// Print everything that was learned, in the form of its file
    Export,
    /// Learn from recordings of sessions, and from conversations in the formats of EVA and tau-bench
    Learn(learning::Learn),
    /// Learn from the conversations of all tasks but one, predict the calls of that one, for every task
    Evaluate(Evaluate),
}

#[derive(Debug, Args)]
pub(super) struct Evaluate {
    /// Conversations: a `*_dataset.json` of EVA, or historical runs of tau-bench
    #[arg(value_name = "FILE.json")]
    file: PathBuf,
    /// The tools that may run early; only their calls are predicted. All by default
    #[arg(long, value_name = "TOOL,..", value_delimiter = ',')]
    early: Vec<String>,
    /// The day of the conversations, for dates without a year
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "2026-01-01")]
    date: Date,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Patterns {
    /// `config` reads the configuration.
    pub(super) fn run(&self, config: impl FnOnce() -> Result<Config>) -> Result<()> {
        match self {
            Self::List(list) => list.run(&config()?),
            Self::Show(show) => show.run(&config()?),
            Self::Forget(forget) => forget.run(&config()?),
            Self::Export => edit::export(&config()?),
            Self::Learn(learn) => learn.run(&config()?),
            Self::Evaluate(evaluate) => evaluate.run(),
        }
    }
}

impl Evaluate {
    fn run(&self) -> Result<()> {
        let figures = self.figures()?;
        if self.json {
            return super::print_json(&figures);
        }
        super::print(&table(&figures))
    }

    fn figures(&self) -> Result<Figures> {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file);
        let text = text.with_context(|| format!("cannot read {name}"))?;
        let conversations = Conversation::read(&text).with_context(|| name.to_string())?;
        let schemas = Conversation::schemas(&conversations);
        let may_run_early =
            |tool: &str| self.early.is_empty() || self.early.iter().any(|early| early == tool);
        let figures = next_calls(&conversations, &schemas, self.date, may_run_early);
        for tool in &self.early {
            if !figures.tools.contains_key(tool) {
                bail!("no conversation of {name} calls {tool}: see --early");
            }
        }
        Ok(figures)
    }
}

fn table(figures: &Figures) -> String {
    let width = figures
        .tools
        .keys()
        .map(String::len)
        .max()
        .unwrap_or(0)
        .max(4);
    let mut lines = format!(
        "{:width$}  calls  first  starts per hit  among three  starts per hit\n",
        "tool"
    );
    let mut line = |name: &str, one: &NextCall| {
        let per_hit = |starts: u32, hits: u32| match hits {
            0 => "-".to_owned(),
            hits => format!("{:.2}", f64::from(starts) / f64::from(hits)),
        };
        let _ = writeln!(
            lines,
            "{name:width$}  {:5}  {:4.1} %  {:>14}  {:9.1} %  {:>14}",
            one.calls,
            100.0 * one.first_share(),
            per_hit(one.first_starts, one.first),
            100.0 * one.three_share(),
            per_hit(one.three_starts, one.among_three),
        );
    };
    for (tool, one) in &figures.tools {
        line(tool, one);
    }
    line("all", &figures.may_run_early);
    lines
}
