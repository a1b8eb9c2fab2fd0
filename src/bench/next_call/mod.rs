//! `next-call`: the share of exactly predicted next calls, on conversations of tasks that were not learned.

mod baselines;
mod data;

use super::report::{Cell, Check, Mark, Plot, Report, Series, Spread, Table};
use super::{BenchError, Settings};
use crate::dice::Dice;
use crate::prediction::patterns::{Figures, MOST, NextCall, PastConversation, learnt, next_calls};
use baselines::Counts;
use data::DataSet;
use std::collections::BTreeMap;
use std::path::Path;

/// Generated data sets with other random numbers, or parts of a data set that was read.
const PARTS: usize = 5;

/// The lead over the better baseline that is expected of learned patterns, points.
const BETTER: f64 = 10.0;

/// The same on conversations that are read, which may be about anything.
const BETTER_ON_DATA: f64 = 7.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    Frequent,
    Bigram,
    Learned,
}

const ARMS: [Arm; 3] = [Arm::Frequent, Arm::Bigram, Arm::Learned];

impl Arm {
    fn name(self) -> &'static str {
        match self {
            Self::Frequent => "most frequent tool",
            Self::Bigram => "bigram, copied",
            Self::Learned => "learned patterns",
        }
    }

    fn predict(self, set: &DataSet) -> Figures {
        let reads = |tool: &str| set.reads.contains(tool);
        let talks = &set.conversations;
        match self {
            Self::Frequent => next_calls(talks, reads, |known| {
                let counts = Counts::of(known, set);
                move |talk: &PastConversation| counts.most_frequent(talk)
            }),
            Self::Bigram => next_calls(talks, reads, |known| {
                let counts = Counts::of(known, set);
                move |talk: &PastConversation| counts.bigram(talk)
            }),
            Self::Learned => next_calls(talks, reads, |known| {
                let patterns = learnt(known.iter().copied(), &set.schemas);
                move |talk: &PastConversation| patterns.guesses(talk, &set.schemas, reads)
            }),
        }
    }
}

/// The figures of an arm on a data set, in each of its parts.
struct Row {
    set: String,
    arm: Arm,
    parts: [NextCall; PARTS],
    tools: BTreeMap<String, NextCall>,
}

impl Row {
    fn new(set: &str, arm: Arm) -> Self {
        Self {
            set: set.to_owned(),
            arm,
            parts: [NextCall::default(); PARTS],
            tools: BTreeMap::new(),
        }
    }

    fn all(&self) -> NextCall {
        let mut all = NextCall::default();
        self.parts.iter().for_each(|part| all += *part);
        all
    }

    fn spread(&self, figure: impl Fn(&NextCall) -> f64) -> Spread {
        Spread::of(self.parts.iter().map(figure).collect())
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let (rows, wanted) = match &settings.data {
        Some(path) => (on_data(path)?, BETTER_ON_DATA),
        None => (on_generated(settings.seed), BETTER),
    };
    let mut tables = vec![table(&rows), better_table(&rows)];
    if settings.data.is_some() {
        tables.push(tool_table(&rows));
    }
    Ok(Report {
        name: "next-call".into(),
        title: "The exact next call, learned from other conversations".into(),
        seed: settings.seed,
        method: method(settings),
        findings: findings(&rows),
        tables,
        plots: vec![plot(&rows)],
        checks: checks(&rows, wanted),
    })
}

/// All domains together, and each of them: a part has random numbers of its own.
fn on_generated(seed: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = ARMS.map(|arm| Row::new(ALL, arm)).into();
    for part in 0..PARTS {
        let mut dice = Dice::named(seed, &format!("next-call {part}"));
        for set in data::generated(&mut dice) {
            for arm in ARMS {
                let figures = arm.predict(&set);
                for name in [ALL, &set.name] {
                    row(&mut rows, name, arm).parts[part] += figures.all();
                }
            }
        }
    }
    rows
}

/// Stands for all generated domains.
const ALL: &str = "all domains";

fn row<'a>(rows: &'a mut Vec<Row>, set: &str, arm: Arm) -> &'a mut Row {
    let is_it = |row: &Row| row.set == set && row.arm == arm;
    let at = rows.iter().position(is_it).unwrap_or_else(|| {
        rows.push(Row::new(set, arm));
        rows.len() - 1
    });
    &mut rows[at]
}

/// Runs all arms on the data sets at `path`. Each part has every fifth task.
fn on_data(path: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for set in data::read(path)? {
        for arm in ARMS {
            let figures = arm.predict(&set);
            let mut row = Row::new(&set.name, arm);
            for (at, of_task) in figures.tasks.values().enumerate() {
                row.parts[at % PARTS] += *of_task;
            }
            row.tools = figures.tools;
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The rows of each data set, with the learned patterns last.
fn sets(rows: &[Row]) -> impl Iterator<Item = (&[Row], &Row)> {
    let sets = rows.chunk_by(|one, other| one.set == other.set);
    sets.filter_map(|set| set.split_last().map(|(learned, others)| (others, learned)))
}

/// The sets that are not part of another.
fn whole_sets(rows: &[Row]) -> impl Iterator<Item = (&[Row], &Row)> {
    let is_generated = rows.iter().any(|row| row.set == ALL);
    sets(rows).filter(move |(_, learned)| !is_generated || learned.set == ALL)
}

/// How many points more calls are predicted than by the better of the `others`, with as many starts.
fn better(others: &[Row], learned: &Row, most: usize) -> Spread {
    let points = learned.parts.iter().enumerate().map(|(part, figures)| {
        let starts = figures.starts(most);
        let baselines = others.iter().map(|row| row.parts[part].share_at(starts));
        100.0 * (figures.share(most) - baselines.fold(0.0, f64::max))
    });
    Spread::of(points.collect())
}

fn percent(row: &Row, most: usize) -> Spread {
    row.spread(|part| 100.0 * part.share(most))
}

/// The starts that a hit costs.
fn per_hit(figures: NextCall, most: usize) -> Cell {
    match figures.hits[most - 1] {
        0 => "-".into(),
        hits => (f64::from(figures.starts[most - 1]) / f64::from(hits)).into(),
    }
}

fn table(rows: &[Row]) -> Table {
    let columns = [
        ("conversations", 0),
        ("arm", 0),
        ("calls", 0),
        ("first, %", 1),
        ("median, least and greatest of five parts", 1),
        ("starts a hit", 2),
        ("among three, %", 1),
        ("median, least and greatest of five parts", 1),
        ("starts a hit", 2),
    ];
    let title = "Exact next calls of tools that only read";
    let mut table = Table::new(title, &columns);
    for row in rows {
        let all = row.all();
        table.rows.push(vec![
            row.set.as_str().into(),
            row.arm.name().into(),
            f64::from(all.calls).into(),
            (100.0 * all.share(1)).into(),
            percent(row, 1).into(),
            per_hit(all, 1),
            (100.0 * all.share(MOST)).into(),
            percent(row, MOST).into(),
            per_hit(all, MOST),
        ]);
    }
    table
}

fn better_table(rows: &[Row]) -> Table {
    let columns = [
        ("conversations", 0),
        ("first, points", 1),
        ("among three, points", 1),
    ];
    let title = "Learned patterns above the better baseline, at equal starts";
    let mut table = Table::new(title, &columns);
    for (others, learned) in sets(rows) {
        let points = [1, MOST].map(|most| Cell::from(better(others, learned, most)));
        let [first, three] = points;
        table
            .rows
            .push(vec![learned.set.as_str().into(), first, three]);
    }
    table
}

/// The learned patterns by tool.
fn tool_table(rows: &[Row]) -> Table {
    let columns = [
        ("conversations", 0),
        ("tool", 0),
        ("calls", 0),
        ("first, %", 1),
        ("starts a hit", 2),
        ("among three, %", 1),
        ("starts a hit", 2),
    ];
    let mut table = Table::new("Learned patterns by tool", &columns);
    for (_, learned) in sets(rows) {
        for (tool, figures) in &learned.tools {
            table.rows.push(vec![
                learned.set.as_str().into(),
                tool.as_str().into(),
                f64::from(figures.calls).into(),
                (100.0 * figures.share(1)).into(),
                per_hit(*figures, 1),
                (100.0 * figures.share(MOST)).into(),
                per_hit(*figures, MOST),
            ]);
        }
    }
    table
}

/// Hits against starts of the first data set.
fn plot(rows: &[Row]) -> Plot {
    let first = rows.first().map(|row| row.set.clone()).unwrap_or_default();
    let series = |row: &Row| {
        let all = row.all();
        let points = (1..=MOST).map(|most| (all.starts(most), 100.0 * all.share(most)));
        Series {
            label: row.arm.name().into(),
            mark: Mark::Both,
            points: points.collect(),
        }
    };
    let of_first = rows.iter().filter(|row| row.set == first);
    Plot {
        name: "next-call-hits".into(),
        title: format!("Exact next calls by starts: {first}"),
        x: "starts a call, with one, two and three predictions".into(),
        y: "calls predicted, %".into(),
        series: of_first.map(series).collect(),
    }
}

fn findings(rows: &[Row]) -> Vec<String> {
    let finding = |(others, learned): (&[Row], &Row)| {
        let share = |row: &Row, most| 100.0 * row.all().share(most);
        let best = |most| {
            let shares = others.iter().map(|row| share(row, most));
            shares.fold(0.0, f64::max)
        };
        format!(
            "Patterns learned from other tasks ({}) name the exact next call, with all its arguments, in {:.0} % of the \
             cases at the first try and in {:.0} % within three; plain counts with copied arguments in {:.0} and {:.0} %.",
            learned.set,
            share(learned, 1),
            share(learned, MOST),
            best(1),
            best(MOST),
        )
    };
    whole_sets(rows).map(finding).collect()
}

fn checks(rows: &[Row], wanted: f64) -> Vec<Check> {
    let mut checks = Vec::new();
    for (others, learned) in whole_sets(rows) {
        for (most, name) in [(1, "first"), (MOST, "among three")] {
            let what = format!("{}, {name}, above the better baseline", learned.set);
            let points = better(others, learned, most).median;
            checks.push(Check::at_least(&what, points, wanted, " points"));
        }
    }
    checks
}

fn method(settings: &Settings) -> Vec<String> {
    let data = match &settings.data {
        Some(_) => {
            "Conversations in the formats of EVA and tau-bench. EVA's `NAME_agent.yaml` beside `NAME_dataset.json` says \
             which tools only read, and which values an argument may have. Of tools that it does not declare as reads or \
             writes, those whose names begin with `get`, `list`, `search`, `find`, `look`, `check`, `read`, `show`, `query` \
             or `fetch` count as reads. The five parts have every fifth task each."
        }
        None => {
            "Generated conversations of five domains with five tasks each, six conversations a task: codes, names and days \
             that the user says, some of them misheard at first; values of earlier results by their place, one after the \
             other or the one that the user chooses; constants; steps that only some conversations have. The five parts \
             are generated from random numbers of their own."
        }
    };
    vec![
        format!(
            "{data} The patterns learn from the conversations of all tasks but one, and each call of that one is \
             predicted from what was before it, for every task; so do the baselines. A prediction is right if the tool and \
             all arguments are. Every prediction is a start, whether it is sure or not; the product starts only sure ones. \
             Only calls of tools that only read count."
        ),
        "*Most frequent tool*: the tools by their frequency, with the last values that arguments of these names had in the \
         conversation. *Bigram, copied*: the tools by how often they follow the last one, with the latest value of the \
         argument's name in a result or an argument, the latest spoken code that looks like one of its values, or its most \
         frequent value. A baseline that cannot fill an argument predicts nothing, so it has fewer starts; the comparison \
         is at equal starts, in proportion between one, two and three predictions."
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learned_patterns_are_better_than_counts() {
        let settings = Settings {
            seed: 7,
            ..Settings::default()
        };
        let report = run(&settings).expect("generated");
        assert!(
            report.checks.iter().all(|check| check.holds),
            "{:?}",
            report.checks
        );
        assert_eq!(report, run(&settings).expect("generated"));
    }
}
