//! Figures over all conversations, as a table and as JSON.

use super::{Plan, Run, cost_of_runs};
use crate::llm::TokenUsage;
use crate::stats::{Quantiles, Stats};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The version of the format.
const VERSION: u32 = 1;

/// The report on all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the format.
    pub version: u32,
    /// The version of the program.
    pub made_by: String,
    /// The conversations were text: no speech models.
    pub text: bool,
    /// How often each scenario was played.
    pub runs: usize,
    /// The seed of the noise.
    pub seed: u64,
    /// Conversations at the same time.
    pub jobs: usize,
    /// The scenarios.
    pub scenarios: Vec<ScenarioReport>,
    /// All of them together.
    pub total: Figures,
}

/// The report on one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioReport {
    /// The scenario.
    pub name: String,
    /// The figures over its runs.
    pub figures: Figures,
    /// Its limits that were exceeded, in words: the limit's name, `:` and the figures.
    pub over_limit: Vec<String>,
    /// Exceeding one is a failure.
    pub asserts_limits: bool,
    /// The runs that failed.
    pub failed: Vec<FailedRun>,
}

/// A run that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Counted from 1.
    pub run: usize,
    /// The reasons.
    pub reasons: Vec<String>,
    /// The file with its transcript, beside the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<String>,
    /// The file with its recording, for `undertone replay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
    /// The file with its sound: the caller left, the agent right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<String>,
}

/// The figures over some conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Conversations.
    pub runs: u64,
    /// Conversations in which everything was as the scenario wants it.
    pub succeeded: u64,
    /// The agent's calls.
    pub calls: Calls,
    /// Interruptions of the agent that came in time.
    pub interruptions: u64,
    /// Interruptions of scripts that came too late: the agent had said less.
    pub missed_interruptions: u64,
    /// Words that the agent had begun to say and that were not heard because of interruptions.
    pub words_cut: u64,
    /// End of the caller's speech to the agent's first sound; in text, to its first words.
    pub first_ms: Option<Percentiles>,
    /// The same to the answer, of turns with a tool.
    pub answer_ms: Option<Percentiles>,
    /// Runs of tools before their calls.
    pub early: Early,
    /// The language model's tokens.
    pub tokens: Tokens,
    /// The cost of tokens and tools, in the operator's currency; 0 if the configuration has no prices.
    pub cost: f64,
}

/// Counts of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Expected ones.
    pub right: u64,
    /// Of an expected tool with other arguments or once too often, or of another tool that changes something.
    pub wrong: u64,
    /// Expected ones that were not made.
    pub missing: u64,
    /// Ones that must not be made.
    pub forbidden: u64,
}

/// Median and 95th percentile, ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The number of values.
    pub count: usize,
    /// The median, ms.
    pub p50: u64,
    /// The 95th percentile, ms.
    pub p95: u64,
}

impl From<Quantiles> for Percentiles {
    fn from(quantiles: Quantiles) -> Self {
        Self {
            count: quantiles.count,
            p50: quantiles.p50_ms,
            p95: quantiles.p95_ms,
        }
    }
}

/// Runs of tools before the model had made their calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Early {
    /// Started.
    pub starts: u64,
    /// Of these, those whose call the model made.
    pub hits: u64,
    /// Of these, those that ran in vain.
    pub wasted: u64,
    /// How much earlier results were there, ms in all.
    pub saved_ms: u64,
}

/// Tokens of the language model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Of prompts.
    pub input: u64,
    /// Of those, found in the server's prompt cache.
    pub cached: u64,
    /// Of answers.
    pub output: u64,
    /// Of answers that were requested before they were certain to be needed and then were not, and of draft models.
    pub wasted: u64,
}

/// Sums over conversations.
#[derive(Debug, Default)]
pub(super) struct Tally {
    figures: Figures,
    usage: TokenUsage,
    run_cost: f64,
}

impl Tally {
    pub(super) fn add(&mut self, run: &Run) {
        let (figures, verdict, log) = (&mut self.figures, &run.verdict, &run.log);
        figures.runs += 1;
        figures.succeeded += u64::from(run.succeeded());
        figures.calls.right += verdict.right;
        figures.calls.wrong += verdict.wrong;
        figures.calls.missing += verdict.missing;
        figures.calls.forbidden += verdict.forbidden;
        figures.interruptions += log.interrupted;
        figures.missed_interruptions += log.planned.saturating_sub(log.interrupted);
        figures.words_cut += log.words_cut() as u64;
        self.usage.add(log.usage());
        self.run_cost += log.turns().iter().map(cost_of_runs).sum::<f64>();
    }

    /// The figures, with those of the turns. `price`: of a million tokens.
    pub(super) fn figures(self, turns: &Stats, price: f64) -> Figures {
        let ahead = [turns.preemptive, turns.assumed, turns.continued];
        let unused: u64 = ahead.iter().map(|ahead| ahead.wasted_tokens).sum();
        let tokens = Tokens {
            input: self.usage.input,
            cached: self.usage.cached,
            output: self.usage.output,
            wasted: unused + turns.drafts.tokens,
        };
        let priced = tokens.input + tokens.output + unused;
        Figures {
            first_ms: turns.first_audio.map(Into::into),
            answer_ms: turns.answer_audio.map(Into::into),
            early: Early {
                starts: turns.total.starts,
                hits: turns.total.hits,
                wasted: turns.total.wasted_calls,
                saved_ms: (1_000.0 * turns.total.saved_seconds) as u64,
            },
            tokens,
            cost: priced as f64 * price / 1e6 + turns.drafts.cost + self.run_cost,
            ..self.figures
        }
    }
}

impl Report {
    pub(super) fn new(plan: &Plan, scenarios: Vec<ScenarioReport>) -> Self {
        Self {
            version: VERSION,
            made_by: env!("CARGO_PKG_VERSION").into(),
            text: plan.text,
            runs: plan.runs,
            seed: plan.seed,
            jobs: plan.jobs,
            scenarios,
            total: Figures::default(),
        }
    }

    /// Reads a report.
    ///
    /// # Errors
    /// It is no report, or one of a later version of the program.
    pub fn parse(text: &str) -> Result<Self, String> {
        let report: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match report.version {
            VERSION => Ok(report),
            other => Err(format!(
                "its format is {other}, and this program reads {VERSION}"
            )),
        }
    }

    /// The failures: runs that went wrong, and limits that were exceeded and are asserted.
    pub fn has_failures(&self) -> bool {
        self.scenarios.iter().any(ScenarioReport::has_failed)
    }

    /// The figures as a table, and the reasons of failures below it.
    pub fn table(&self) -> String {
        let rows = self
            .scenarios
            .iter()
            .map(|one| (one.name.as_str(), &one.figures));
        let mut rows: Vec<_> = rows.collect();
        if rows.len() > 1 {
            rows.push(("all", &self.total));
        }
        let mut cells = vec![HEADER.map(str::to_owned)];
        cells.extend(rows.into_iter().map(|(name, figures)| row(name, figures)));
        let mut text = aligned(&cells);
        for scenario in &self.scenarios {
            for failed in &scenario.failed {
                for reason in &failed.reasons {
                    let _ = write!(text, "\n{} run {}: {reason}", scenario.name, failed.run);
                }
            }
            for limit in &scenario.over_limit {
                let _ = write!(text, "\n{}: over the limit: {limit}", scenario.name);
            }
        }
        text
    }
}

impl ScenarioReport {
    fn has_failed(&self) -> bool {
        !self.failed.is_empty() || (self.asserts_limits && !self.over_limit.is_empty())
    }
}

const HEADER: [&str; 11] = [
    "scenario",
    "passed",
    "right",
    "wrong",
    "missing",
    "words cut",
    "first p50/p95",
    "answer p50/p95",
    "early hit/start",
    "tokens in/out",
    "cost",
];

fn row(name: &str, figures: &Figures) -> [String; HEADER.len()] {
    let Figures {
        calls,
        early,
        tokens,
        ..
    } = figures;
    let ms = |of: Option<Percentiles>| of.map_or("-".into(), |of| format!("{}/{}", of.p50, of.p95));
    [
        name.to_owned(),
        format!("{}/{}", figures.succeeded, figures.runs),
        calls.right.to_string(),
        (calls.wrong + calls.forbidden).to_string(),
        calls.missing.to_string(),
        figures.words_cut.to_string(),
        ms(figures.first_ms),
        ms(figures.answer_ms),
        format!("{}/{}", early.hits, early.starts),
        format!("{}/{}", tokens.input, tokens.output),
        money(figures.cost),
    ]
}

pub(super) fn money(cost: f64) -> String {
    match cost > 0.0 {
        true => format!("{cost:.4}"),
        false => "-".into(),
    }
}

/// Rows in columns of the same width, the first on the left.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    });
    lines.collect::<Vec<_>>().join("\n")
}
