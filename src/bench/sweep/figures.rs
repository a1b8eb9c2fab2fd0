//! Tables, plots and checks of `sweep`.

use super::{CALL, DECODE, DRAFT, DRAFTS, GENERATION, OVERHEAD, Run, Sums};
use crate::bench::equations::Request;
use crate::bench::report::{Cell, Check, Mark, Plot, Series, Spread, Table};

fn spread(runs: &[Sums], figure: impl Fn(&Sums) -> f64) -> Spread {
    Spread::of(runs.iter().map(figure).collect())
}

/// Equation 1, %.
pub(super) fn expected(tool: f64, hit_rate: f64) -> f64 {
    let request = Request {
        generation: GENERATION,
        tool,
        draft: DRAFT,
    };
    100.0 * request.saved(hit_rate)
}

pub(super) fn tool_table(runs: &[Run]) -> Table {
    let columns = [
        ("tool, s", 2),
        ("equation 1, %", 1),
        ("client saved, %", 1),
        ("engine saved, %", 1),
        ("with the answers, %", 1),
        ("tokens/s before", 1),
        ("after", 1),
    ];
    let mut table = Table::new(
        "Time saved by tool time: 32 agents, acceptance 0.8, one sample",
        &columns,
    );
    for (point, runs) in runs {
        table.rows.push(vec![
            point.tool.into(),
            expected(point.tool, 0.8).into(),
            spread(runs, Sums::saved).into(),
            spread(runs, Sums::saved_by_engine).into(),
            spread(runs, Sums::saved_in_all).into(),
            spread(runs, |sums| sums.throughput(sums.standard_total))
                .median
                .into(),
            spread(runs, |sums| sums.throughput(sums.client_total))
                .median
                .into(),
        ]);
    }
    table
}

pub(super) fn agents_table(runs: &[Run]) -> Table {
    let columns = [
        ("agents", 0),
        ("tool, s", 2),
        ("hit rate", 3),
        ("client saved, %", 1),
    ];
    let mut table = Table::new(
        "Time saved by number of agents, which share no clock, budget or server: flat by construction",
        &columns,
    );
    for (point, runs) in runs {
        table.rows.push(vec![
            (point.agents.0 as f64).into(),
            point.tool.into(),
            spread(runs, Sums::hit_rate).into(),
            spread(runs, Sums::saved).into(),
        ]);
    }
    table
}

pub(super) fn samples_table(runs: &[Run]) -> Table {
    let columns = [
        ("draft model", 0),
        ("samples", 0),
        ("hit rate injected", 3),
        ("measured", 3),
        ("time saved, %", 1),
        ("starts a call", 2),
        ("tool wasted a call, s", 2),
        ("draft cost of 100 calls, $", 3),
        ("added cost, %", 1),
    ];
    let mut table = Table::new("Samples: tools of 1.5 s, 32 agents", &columns);
    for (point, runs) in runs {
        let costs = |sums: &Sums| sums.costs(point.samples);
        let row: [Cell; 9] = [
            point.draft.name.into(),
            (point.samples as f64).into(),
            point.draft.hit_rate(point.samples).into(),
            spread(runs, Sums::hit_rate).into(),
            spread(runs, Sums::saved).into(),
            spread(runs, |sums| sums.starts / sums.calls).median.into(),
            spread(runs, |sums| sums.wasted / sums.calls).median.into(),
            spread(runs, |sums| costs(sums)[1]).median.into(),
            spread(runs, |sums| 100.0 * costs(sums)[1] / costs(sums)[0])
                .median
                .into(),
        ];
        table.rows.push(row.into());
    }
    table
}

pub(super) fn tool_plot(runs: &[Run]) -> Plot {
    let points = |figure: &dyn Fn(&Sums) -> f64| {
        let points = runs
            .iter()
            .map(|(point, runs)| (point.tool, spread(runs, figure).median));
        points.collect()
    };
    let line = (0..=60).map(|at| f64::from(at) / 20.0);
    let series = |label: &str, mark, points| Series {
        label: label.into(),
        mark,
        points,
    };
    Plot {
        name: "sweep-tools".into(),
        title: "Time saved by a draft model with acceptance 0.8".into(),
        x: "mean tool time, s".into(),
        y: "time saved, %".into(),
        series: vec![
            series(
                "equation 1",
                Mark::Line,
                line.map(|tool| (tool, expected(tool, 0.8))).collect(),
            ),
            series(
                "client side, on the product's rules",
                Mark::Points,
                points(&Sums::saved),
            ),
            series(
                "engine side, simulated",
                Mark::Both,
                points(&Sums::saved_by_engine),
            ),
        ],
    }
}

pub(super) fn samples_plot(runs: &[Run]) -> Plot {
    let of = |name: &str| {
        let of = runs.iter().filter(|(point, _)| point.draft.name == name);
        let point = |(point, runs): &Run| {
            let costs = |sums: &Sums| sums.costs(point.samples);
            let added = spread(runs, |sums| 100.0 * costs(sums)[1] / costs(sums)[0]);
            (added.median, spread(runs, Sums::saved).median)
        };
        of.map(point).collect()
    };
    let series = |draft: &super::Draft| Series {
        label: format!("{} draft model, 1 to 9 samples", draft.name),
        mark: Mark::Both,
        points: of(draft.name),
    };
    Plot {
        name: "sweep-samples".into(),
        title: "More samples: what they save and what they cost (tools of 1.5 s)".into(),
        x: "added cost of the draft model, %".into(),
        y: "time saved, %".into(),
        series: DRAFTS.iter().map(series).collect(),
    }
}

fn at(runs: &[Run], tool: f64) -> &[Sums] {
    let found = runs.iter().find(|(point, _)| point.tool == tool);
    found.map_or(&[], |(_, runs)| runs.as_slice())
}

pub(super) fn findings(by_tool: &[Run], by_samples: &[Run]) -> Vec<String> {
    let saved = |tool| spread(at(by_tool, tool), Sums::saved).median;
    let small = |samples: usize| {
        let mut runs = by_samples.iter();
        let found =
            runs.find(|(point, _)| point.draft.acceptance == 0.5 && point.samples == samples);
        found.map_or([0.0; 3], |(_, runs)| {
            [
                spread(runs, Sums::saved).median,
                spread(runs, |sums| {
                    100.0 * sums.costs(samples)[1] / sums.costs(samples)[0]
                })
                .median,
                spread(runs, |sums| sums.wasted / sums.calls).median,
            ]
        })
    };
    let ([one, cost, waste], [nine, nine_cost, nine_waste]) = (small(1), small(9));
    vec![
        format!(
            "An agent with a draft model that guesses 80 % of the calls saves {:.1} % of its time with tools of 0.5 s, \
             {:.1} % with 2.25 s and {:.1} % with 3 s: most where the tool just fits behind the model.",
            saved(0.5),
            saved(2.25),
            saved(3.0)
        ),
        format!(
            "Nine samples instead of one raise what a weak draft model saves from {one:.1} to {nine:.1} %, its cost \
             from {cost:.0} to {nine_cost:.0} % of the model's, and the tool time wasted a call from {waste:.1} to \
             {nine_waste:.1} s."
        ),
    ]
}

pub(super) fn checks(by_tool: &[Run], by_agents: &[Run]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (tool, percent) in [(0.5, 5.9), (2.25, 21.0), (3.0, 19.4)] {
        for (point, runs) in by_agents.iter().filter(|(point, _)| point.tool == tool) {
            let what = format!("time saved, {} agents, tools of {tool} s", point.agents.0);
            let saved = spread(runs, Sums::saved).median;
            checks.push(Check::near(&what, saved, percent, 1.0, " %"));
        }
    }
    let more = |sums: &Sums| sums.saved_by_engine() - sums.saved();
    for (point, runs) in by_tool
        .iter()
        .filter(|(point, _)| (0.1..=1.5).contains(&point.tool))
    {
        let what = format!("engine above client, tools of {} s", point.tool);
        checks.push(Check::near(
            &what,
            spread(runs, more).median,
            2.5,
            0.5,
            " points",
        ));
    }
    // The simulation and the closed form for one call of 0.5 s.
    let saved = super::in_engine(0.5, false) - super::in_engine(0.5, true);
    let closed = 2.0 * OVERHEAD + DECODE * (CALL as f64 - 1.0) + 0.5;
    let what = "equation 6 at acceptance 1, a call of 0.5 s";
    checks.push(Check::near(what, saved, closed, 0.001, " s"));
    checks
}
