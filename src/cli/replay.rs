//! `undertone replay`.

use crate::config::{Flags, Scope};
use crate::conversation::Policy;
use crate::prediction::patterns::{PatternFile, PatternStore};
use crate::recording::{Difference, Recording, Replayed, replay};
use crate::stats::{Ahead, Drafts, Quantiles, Stats};
use crate::what_if::{Foresight, TurnChange, TurnFigures, Unknown, WhatIf, what_if};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How much of a long line is shown around the first difference, characters.
const SHOWN: usize = 160;

/// The names of the rows of [`column`].
const FIGURES: [&str; 20] = [
    "",
    "turns",
    "first audio p50",
    "answer audio p50",
    "dead air p50",
    "immediate recall",
    "starts",
    "hits",
    "saved",
    "wasted calls",
    "wasted time",
    "wasted money",
    "blocked state-changing",
    "asked at the pause",
    "asked at the result",
    "asked at the commit",
    "draft model right",
    "fillers said",
    "fillers dropped",
    "tokens",
];

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// A recording, made with `--record` of `serve`, `ask` or `talk`
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// Another configuration: print the outcome with its [speculation], [filler] and [turn]
    /// sections
    #[arg(long, value_name = "FILE.toml")]
    policy: Option<PathBuf>,
    /// Learned patterns (`speculation.patterns_file` of a server): print the outcome if they predict the calls, one
    /// call ahead and two, in place of what was predicted from calls in the recording
    #[arg(long, value_name = "FILE.json", requires = "policy")]
    patterns: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let recording = self.read()?;
        if let Some(path) = &self.policy {
            return super::done(self.what_if(&recording, path));
        }
        let replayed = replay(&recording);
        if self.json {
            super::print_json(&replayed)?;
        } else {
            super::print(&summary(&replayed, &recording))?;
        }
        Ok(match replayed.difference {
            None => ExitCode::SUCCESS,
            Some(_) => super::FAILED.into(),
        })
    }

    fn what_if(&self, recording: &Recording, path: &Path) -> Result<()> {
        let policy = other_policy(recording, path)?;
        let Some(patterns) = &self.patterns else {
            let changed = what_if(recording, policy, None)?;
            return match self.json {
                true => super::print_json(&changed),
                false => super::print(&side_by_side(&[("changed", &changed)])),
            };
        };
        let book = PatternFile::at(patterns).load()?.unwrap_or_default().book;
        if book.0.is_empty() {
            bail!(
                "{} has no patterns; the server writes them to speculation.patterns_file",
                patterns.display()
            );
        }
        let ahead = |depth| {
            let book = book.clone();
            what_if(recording, policy.clone(), Some(&Foresight { book, depth }))
        };
        let (one, two) = (ahead(1)?, ahead(2)?);
        match self.json {
            true => super::print_json(&json!({ "depth_1": one, "depth_2": two })),
            false => super::print(&side_by_side(&[("depth 1", &one), ("depth 2", &two)])),
        }
    }

    fn read(&self) -> Result<Recording> {
        let read = || {
            let file = BufReader::new(File::open(&self.file)?);
            anyhow::Ok(Recording::read(file)?)
        };
        read().with_context(|| format!("cannot read {}", self.file.display()))
    }
}

/// The recorded policy, with the sections that can be tried out taken from another configuration. Its tools, agents and MCP
/// servers may be those of another server.
fn other_policy(recording: &Recording, path: &Path) -> Result<Policy> {
    let flags = Flags {
        config: Some(path.to_owned()),
        scope: Scope::Models,
        ..Flags::default()
    };
    let other = super::load(&flags)?.config.policy;
    Ok(Policy {
        vad: other.vad,
        endpoint: other.endpoint,
        turn_detection: other.turn_detection,
        speculation: other.speculation,
        filler: other.filler,
        ..recording.header.policy.clone()
    })
}

/// The recorded figures beside those of one or more other versions; turn by turn the last of them.
fn side_by_side(versions: &[(&str, &WhatIf)]) -> String {
    let Some((_, last)) = versions.last() else {
        return String::new();
    };
    let mut columns = vec![column("recorded", &last.recorded, last.tokens.0)];
    let changed = versions.iter();
    columns.extend(changed.map(|(name, one)| column(name, &one.changed, one.tokens.1)));
    let row = |(at, name): (usize, &&str)| {
        let cells = columns.iter().map(|column| format!(" {:>12}", column[at]));
        format!("{name:<24}{}", cells.collect::<String>())
    };
    let mut lines: Vec<String> = FIGURES.iter().enumerate().map(row).collect();
    lines.extend(turn_by_turn(&last.turns));
    lines.push(caveat(last));
    lines.join("\n")
}

/// One column of the comparison: the name, then a cell for each of [`FIGURES`].
fn column(name: &str, stats: &Stats, tokens: u64) -> [String; FIGURES.len()] {
    let part = |part: Option<f64>| part.map_or("-".into(), |p| format!("{:.1} %", 100.0 * p));
    let median = |q: Option<Quantiles>| q.map_or("-".into(), |q| format!("{} ms", q.p50_ms));
    let total = &stats.total;
    [
        name.to_owned(),
        stats.turns.to_string(),
        median(stats.first_audio),
        median(stats.answer_audio),
        median(stats.dead_air),
        part(stats.immediate_recall),
        total.starts.to_string(),
        total.hits.to_string(),
        format!("{:.0} ms", 1_000.0 * total.saved_seconds),
        total.wasted_calls.to_string(),
        format!("{:.0} ms", 1_000.0 * total.wasted_seconds),
        format!("{:.4}", total.wasted_cost),
        stats.blocked_state_changing.to_string(),
        ahead(&stats.preemptive),
        ahead(&stats.assumed),
        ahead(&stats.continued),
        drafts(&stats.drafts),
        stats.fillers.to_string(),
        stats.fillers_dropped.to_string(),
        tokens.to_string(),
    ]
}

fn ahead(ahead: &Ahead) -> String {
    let saved = 1_000.0 * ahead.saved_seconds;
    format!("{}/{} {saved:.0} ms", ahead.used, ahead.begun)
}

fn drafts(drafts: &Drafts) -> String {
    format!("{}/{}", drafts.accepted, drafts.asked)
}

/// A line for each turn: waits since the end of speech, and what they cost.
fn turn_by_turn(turns: &[TurnChange]) -> Vec<String> {
    if turns.is_empty() {
        return Vec::new();
    }
    let columns = format!(
        "{:>8} {:>8} {:>8} {:>8} {:>8}",
        "first", "answer", "silence", "tokens", "fillers"
    );
    let figures = |turn: Option<TurnFigures>| match turn {
        None => format!("{:<44}", "  no such turn"),
        Some(turn) => {
            let ms = |ms: Option<u64>| ms.map_or("-".to_owned(), |ms| ms.to_string());
            format!(
                "{:>8} {:>8} {:>8} {:>8} {:>8}",
                ms(turn.first_audio_ms),
                ms(turn.answer_audio_ms),
                ms(turn.dead_air_ms),
                turn.tokens,
                format!("{} ({})", turn.fillers, turn.fillers_dropped),
            )
        }
    };
    let mut lines = vec![
        format!(
            "\n{:>9}  {:<44} | {:<44}",
            "", "recorded, ms", "changed, ms"
        ),
        format!("{:>9}  {columns} | {columns}", "turn at"),
    ];
    lines.extend(turns.iter().map(|turn| {
        let at = format!("{:.1} s", turn.at.as_ms() as f64 / 1_000.0);
        format!(
            "{at:>9}  {} | {}",
            figures(turn.recorded),
            figures(turn.changed)
        )
    }));
    lines.push("fillers: said by the server (dropped because the answer was there)".into());
    lines
}

fn caveat(found: &WhatIf) -> String {
    let Unknown {
        runs,
        generations,
        predictions,
        approximated,
        estimated_clauses,
    } = found.unknown;
    let other = found.difference.map_or_else(String::new, |line| {
        format!(
            "\nThis version decides otherwise from line {line} of the recording on: \"recorded\" is then not what was \
             recorded.\n`undertone replay` without --policy shows the difference."
        )
    });
    format!(
        "{other}\nThe user, the models and the tools behave as in the recording. Jobs that were not recorded \
         have no result:\n{runs} tool runs and {generations} generations never end, and {predictions} \
         predictions are missing. {approximated} transcripts and\nscores are those of the nearest audio, \
         and {estimated_clauses} clauses have an estimated length."
    )
}

fn summary(replayed: &Replayed, recording: &Recording) -> String {
    let Replayed { steps, outputs, .. } = replayed;
    let Some(difference) = &replayed.difference else {
        let end = match replayed.complete {
            true => "",
            false => " (the recording is incomplete)",
        };
        return format!("{steps} steps, {outputs} decisions: the same, byte for byte{end}");
    };
    let made_by = &recording.header.made_by;
    let version = match made_by == env!("CARGO_PKG_VERSION") {
        true => String::new(),
        false => format!("\nthe recording was made by version {made_by}"),
    };
    let Difference { line, .. } = difference;
    let (recorded, replayed) = around_difference(difference);
    format!(
        "line {line}: the first difference, after {outputs} equal decisions\n\
         recorded: {recorded}\nreplayed: {replayed}{version}"
    )
}

/// Both lines, from a little before they differ.
fn around_difference(difference: &Difference) -> (String, String) {
    let (Some(recorded), Some(replayed)) = (&difference.recorded, &difference.replayed) else {
        let shown = |line: &Option<String>| {
            let line = line.as_deref().unwrap_or("no decision");
            line.chars().take(SHOWN).collect()
        };
        return (shown(&difference.recorded), shown(&difference.replayed));
    };
    let pairs = recorded.chars().zip(replayed.chars());
    let same = pairs.take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(SHOWN / 2);
    let shown = |line: &str| {
        let before = if from > 0 { "..." } else { "" };
        let part: String = line.chars().skip(from).take(SHOWN).collect();
        format!("{before}{part}")
    };
    (shown(recorded), shown(replayed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers that were asked for at the commit were left out.
    #[test]
    fn a_policy_is_judged_by_all_answers_that_were_asked_for_early_as_in_stats() {
        let asked = |begun, saved_seconds| Ahead {
            begun,
            used: 1,
            saved_seconds,
            ..Ahead::default()
        };
        let stats = Stats {
            preemptive: asked(1, 0.1),
            assumed: asked(2, 0.2),
            continued: asked(3, 0.3),
            ..Stats::default()
        };
        let shown = FIGURES.into_iter().zip(column("changed", &stats, 0));
        let shown = shown.filter(|(name, _)| name.starts_with("asked at"));
        let shown: Vec<String> = shown.map(|(name, cell)| format!("{name} {cell}")).collect();
        let all = [
            "asked at the pause 1/1 100 ms",
            "asked at the result 1/2 200 ms",
            "asked at the commit 1/3 300 ms",
        ];
        assert_eq!(shown, all);
        let table = crate::cli::stats::table(&stats);
        let names = table.lines().filter(|line| line.starts_with("asked at"));
        assert_eq!(names.count(), all.len());
    }
}
