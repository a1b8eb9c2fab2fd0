//! `undertone stats`.

use crate::stats::{
    Ahead, Collector, Counts, Drafts, LoggedTurn, Quantiles, Stats as Figures, ToolRow,
};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Stats {
    /// A server's turn log, written by `serve --turns`
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(super) fn run(&self) -> Result<()> {
        let name = self.file.display();
        let figures = read(&self.file).with_context(|| format!("cannot read {name}"))?;
        if self.json {
            return super::print_json(&figures);
        }
        super::print(&table(&figures))
    }
}

fn read(path: &Path) -> Result<Figures> {
    let mut collector = Collector::default();
    let (mut turns, mut left_out, mut first) = (0, 0, None);
    let lines = BufReader::new(File::open(path)?).split(b'\n');
    for (line, number) in lines.zip(1_u64..) {
        match serde_json::from_slice::<LoggedTurn>(&line?) {
            Ok(turn) => {
                turns += 1;
                collector.turn(&turn.turn, |tool| turn.reads.contains(tool));
            }
            // The disk was full, or the server was killed.
            Err(error) => {
                left_out += 1;
                first.get_or_insert((number, error));
            }
        }
    }
    match first {
        Some((number, error)) if turns == 0 => {
            bail!("line {number} is no turn of a turn log, which `serve --turns` writes ({error})");
        }
        Some((number, error)) => super::print_error(format!(
            "left out lines that cannot be read: {left_out}, the first is line {number} ({error})"
        )),
        None => {}
    }
    Ok(collector.finish())
}

/// All figures in one table, since single figures mislead.
pub(super) fn table(figures: &Figures) -> String {
    let total = &figures.total;
    let mut lines = vec![
        format!("turns               {}", figures.turns),
        format!("first audio         {}", quantiles(figures.first_audio)),
        format!("answer audio        {}", quantiles(figures.answer_audio)),
        format!("dead air            {}", quantiles(figures.dead_air)),
        format!(
            "immediate recall    {} of {} committed reads",
            percent(figures.immediate_recall),
            figures.committed_reads
        ),
        format!(
            "hit rate            {} the surest that ran, {} among the three surest",
            percent(figures.hit_rate_first),
            percent(figures.hit_rate_among_three)
        ),
        format!(
            "hits per start      {} ({} of {})",
            percent(figures.hits_per_start),
            total.hits,
            total.starts
        ),
        format!("saved               {:.2} s", total.saved_seconds),
        format!(
            "waste               {} calls, {:.2} s, {:.4} in money",
            total.wasted_calls, total.wasted_seconds, total.wasted_cost
        ),
        ahead("asked at the pause", &figures.preemptive),
        ahead("asked at the result", &figures.assumed),
        ahead("asked at the commit", &figures.continued),
        drafts(&figures.drafts),
        format!(
            "fillers             {} said, {} dropped, {:.2} s saved",
            figures.fillers, figures.fillers_dropped, figures.fillers_saved_seconds
        ),
        format!(
            "blocked             {} predictions, {} of them of tools that change something",
            figures.blocked, figures.blocked_state_changing
        ),
    ];
    if !figures.by_tool_and_source.is_empty() {
        lines.push(format!(
            "\n{:<24} {:<10} {:>9} {:>7} {:>6} {:>5} {:>5} {:>5} {:>8} {:>9} {:>9}",
            "tool",
            "source",
            "predicted",
            "blocked",
            "starts",
            "hits",
            "first",
            "of 3",
            "saved s",
            "wasted s",
            "money"
        ));
    }
    for row in &figures.by_tool_and_source {
        lines.push(format!(
            "{:<24} {:<10} {}",
            row.tool,
            row.source,
            counts(&row.counts)
        ));
    }
    if !figures.by_tool.is_empty() {
        lines.push(format!(
            "\n{:<24} {:>9} {:>7} {:>7} {:>7} {:>13}",
            "tool", "committed", "early", "first", "of 3", "tokens wasted"
        ));
    }
    for ToolRow { tool, counts } in &figures.by_tool {
        let share = |of: u64| match counts.committed {
            0 => "-".to_owned(),
            all => format!("{:.0} %", 100.0 * of as f64 / all as f64),
        };
        lines.push(format!(
            "{tool:<24} {:>9} {:>7} {:>7} {:>7} {:>13}",
            counts.committed,
            share(counts.recalled),
            share(counts.first),
            share(counts.among_three),
            counts.wasted_tokens
        ));
    }
    lines.join("\n")
}

/// Generations that were requested before they were certain to be needed.
fn ahead(name: &str, ahead: &Ahead) -> String {
    format!(
        "{name:<19} {} of {} used, {:.2} s saved, {:.2} s and {} tokens wasted",
        ahead.used, ahead.begun, ahead.saved_seconds, ahead.delayed_seconds, ahead.wasted_tokens
    )
}

fn drafts(drafts: &Drafts) -> String {
    format!(
        "draft model         asked {} times, right in {} of {} calls, {} tokens, {} of them wasted, {:.4} in money",
        drafts.asked,
        drafts.accepted,
        drafts.compared,
        drafts.tokens,
        drafts.wasted_tokens,
        drafts.cost
    )
}

fn counts(counts: &Counts) -> String {
    format!(
        "{:>9} {:>7} {:>6} {:>5} {:>5} {:>5} {:>8.2} {:>9.2} {:>9.4}",
        counts.predictions,
        counts.blocked,
        counts.starts,
        counts.hits,
        counts.first,
        counts.among_three,
        counts.saved_seconds,
        counts.wasted_seconds,
        counts.wasted_cost
    )
}

fn quantiles(quantiles: Option<Quantiles>) -> String {
    quantiles.map_or_else(
        || "-".to_owned(),
        |q| {
            format!(
                "p50 {} ms, p95 {} ms ({} turns)",
                q.p50_ms, q.p95_ms, q.count
            )
        },
    )
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", 100.0 * part))
}
