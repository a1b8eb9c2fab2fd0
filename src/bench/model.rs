//! `model`: the paper's equations against a simulation of its algorithms.

use super::Settings;
use super::clock::as_seconds;
use super::equations::{Engine, Request, mean_of_least};
use super::report::{Cell, Check, Mark, Plot, Report, Series, Table};
use super::simulation::{self, Drawn, Keeps, Turn};
use crate::dice::Dice;

/// Requests in each cell of the grid.
const REQUESTS: usize = 400;

const ACCEPTANCES: [f64; 6] = [0.0, 0.25, 0.5, 0.75, 0.8, 1.0];
const GENERATIONS: [f64; 2] = [0.9, 6.3];
/// g/G; above 1 the draft model is the slower one.
const DRAFTS: [f64; 6] = [0.05, 0.25, 0.5, 4.05 / 6.3, 0.9, 1.2];
/// T/G.
const TOOLS: [f64; 6] = [0.05, 0.25, 0.5, 1.0, 2.0, 4.0];

/// The largest allowed difference from a closed form, %.
const TOLERANCE: f64 = 0.1;

/// The differences from one equation over its grid.
#[derive(Debug, Default)]
struct Difference {
    cells: usize,
    worst: f64,
    at: String,
}

impl Difference {
    fn take(&mut self, simulated: f64, closed: f64, at: impl FnOnce() -> String) {
        let off = 100.0 * ((simulated - closed) / closed).abs();
        self.cells += 1;
        if self.cells == 1 || off > self.worst {
            (self.worst, self.at) = (off, at());
        }
    }

    fn row(&self, name: &str, form: &str) -> Vec<Cell> {
        let cells = (self.cells as f64).into();
        vec![
            name.into(),
            form.into(),
            cells,
            self.worst.into(),
            self.at.as_str().into(),
        ]
    }
}

/// The cells of equations 1 to 3 and of Lemma 1.
#[derive(Debug, Default)]
struct ClientGrid {
    standard: Difference,
    speculative: Difference,
    speedup: Difference,
    /// Cells in which equation 3 and the simulation disagree.
    wrong_gains: usize,
    /// Cells in which a greater acceptance did not give a greater speed-up, or the bound was exceeded.
    wrong_lemma: usize,
    largest: f64,
}

pub(super) fn run(settings: &Settings) -> Report {
    let mut dice = Dice::named(settings.seed, "model");
    let client = client_grid(&mut dice);
    let engine = engine_grid(&mut dice);
    let forms = [
        client.standard.row("1, standard", "N (G + T)"),
        client.speculative.row(
            "1, speculative",
            "N (a max(G, min(g, G) + T) + (1 - a) (G + T))",
        ),
        client.speedup.row("2", "speed-up, the ratio of both"),
        engine[0].row("4", "engine without a cache"),
        engine[1].row("5", "engine with a prefix cache"),
        engine[2].row("6", "engine with a tool cache"),
        engine[3].row("6 at a = 1", "saves 2Ko + delta (sum t - K) + sum T"),
    ];
    let mut table = Table::new(
        "Closed form against simulation",
        &[
            ("equation", 0),
            ("form", 0),
            ("cells", 0),
            ("largest difference, %", 4),
            ("where", 0),
        ],
    );
    table.rows.extend(forms);
    let all = [&client.standard, &client.speculative, &client.speedup];
    let worst = all
        .into_iter()
        .chain(&engine)
        .map(|of| of.worst)
        .fold(0.0, f64::max);
    Report {
        name: "model".into(),
        title: "The cost model: equations against a simulation".into(),
        seed: settings.seed,
        method: method(),
        findings: vec![
            format!(
                "The published cost model (equations 1 to 6) and a simulation of its algorithms differ by at most \
                 {:.4} % in {} cells.",
                worst.max(0.000_1),
                all.into_iter()
                    .chain(&engine)
                    .map(|of| of.cells)
                    .sum::<usize>()
            ),
            format!(
                "One call of look-ahead never doubles the speed: the greatest speed-up in the grid is {:.2}, \
                 with a fast draft model and a tool that takes as long as the model.",
                client.largest
            ),
        ],
        tables: vec![table, varying_tools(&mut dice), late_results()],
        plots: vec![speedups(&mut dice), engine_plot(&mut dice)],
        checks: vec![
            Check::at_most(
                "largest difference from a closed form",
                worst,
                TOLERANCE,
                " %",
            ),
            Check::at_most(
                "cells against equation 3",
                client.wrong_gains as f64,
                0.0,
                "",
            ),
            Check::at_most("cells against Lemma 1", client.wrong_lemma as f64, 0.0, ""),
        ],
    }
}

fn method() -> Vec<String> {
    vec![
        "A simulation of the algorithms of arXiv 2512.15834, event by event in virtual time: agents that generate, \
         a draft model, tools, and an engine that prefills and decodes token by token. It is the paper's setting, \
         not the product: no conversation takes part. In each cell exactly the share `a` of the calls is guessed, \
         in random order."
            .into(),
        "Three notes on the equations. The paper writes `g + T` in equation 1; a draft model that is slower than \
         the model does no harm, so `min(g, G) + T` is right. Equations 5 and 6 count the prefill of the last \
         tool's output and equation 4 does not; the simulation ends accordingly. They also leave out the way of \
         the first prompt to the engine and of the last answer back, 2o in all, which no cache saves."
            .into(),
    ]
}

fn client_grid(dice: &mut Dice) -> ClientGrid {
    let mut grid = ClientGrid::default();
    for generation in GENERATIONS {
        for draft in DRAFTS.map(|share| share * generation) {
            for tool in TOOLS.map(|share| share * generation) {
                let request = Request {
                    generation,
                    tool,
                    draft,
                };
                client_cells(dice, &mut grid, request);
            }
        }
    }
    grid
}

/// All acceptance rates of one combination of times.
fn client_cells(dice: &mut Dice, grid: &mut ClientGrid, request: Request) {
    let at = |acceptance: f64| {
        let Request {
            generation,
            tool,
            draft,
        } = request;
        format!("G {generation:.2} s, T {tool:.2} s, g {draft:.2} s, a {acceptance}")
    };
    let mut before = 0.0;
    for acceptance in ACCEPTANCES {
        let drawn = draw(dice, request, acceptance);
        let standard = as_seconds(simulation::client(&drawn, false));
        let speculative = as_seconds(simulation::client(&drawn, true));
        let speedup = standard / speculative;
        let many = REQUESTS as f64;
        grid.standard
            .take(standard, many * request.standard(), || at(acceptance));
        let closed = many * request.speculative(acceptance);
        grid.speculative
            .take(speculative, closed, || at(acceptance));
        grid.speedup
            .take(speedup, request.speedup(acceptance), || at(acceptance));
        if (speedup > 1.0 + 1e-9) != request.gains(acceptance) {
            grid.wrong_gains += 1;
        }
        let is_lemmas = request.draft < request.generation;
        if is_lemmas && (speedup <= before || speedup > request.bound() || speedup >= 2.0) {
            grid.wrong_lemma += 1;
        }
        before = speedup;
        grid.largest = grid.largest.max(speedup);
    }
}

/// Requests that all take the same time.
fn draw(dice: &mut Dice, times: Request, acceptance: f64) -> Vec<Drawn> {
    let hits = dice.exactly(acceptance, REQUESTS).into_iter();
    hits.map(|hit| Drawn { times, hit }).collect()
}

/// A plausible engine: a large model on one accelerator.
const ENGINE: Engine = Engine {
    turns: 10,
    overhead: 0.05,
    prefill: 0.000_2,
    decode: 0.01,
    prompt: 2_000,
    reasoning: 250,
    call: 16,
    output: 200,
    tool: 0.5,
};

/// Equations 4, 5, 6, and the saving of equation 6 at acceptance 1.
fn engine_grid(dice: &mut Dice) -> [Difference; 4] {
    let mut grid: [Difference; 4] = Default::default();
    for turns in [1, 4, 20] {
        for overhead in [0.01, 0.1] {
            for (reasoning, tool) in [(50, 0.2), (250, 0.5), (250, 2.0), (600, 4.0)] {
                for call in [8, 40] {
                    let model = Engine {
                        turns,
                        overhead,
                        reasoning,
                        tool,
                        call,
                        ..ENGINE
                    };
                    engine_cells(dice, &mut grid, &model);
                }
            }
        }
    }
    grid
}

fn engine_cells(dice: &mut Dice, grid: &mut [Difference; 4], model: &Engine) {
    let at = |acceptance: f64| {
        let Engine {
            turns,
            overhead,
            reasoning,
            call,
            tool,
            ..
        } = model;
        format!("K {turns}, o {overhead} s, R {reasoning}, t {call}, T {tool} s, a {acceptance}")
    };
    let vanilla = simulate(dice, model, 0.0, Keeps::Nothing);
    grid[0].take(vanilla, model.vanilla(), || at(0.0));
    let cached = simulate(dice, model, 0.0, Keeps::Prefix);
    grid[1].take(cached, model.cached(), || at(0.0));
    for acceptance in [0.0, 0.25, 0.5, 0.75, 1.0] {
        // Only whole turns can be guessed.
        let guessed = (acceptance * model.turns as f64).round() / model.turns as f64;
        let speculative = simulate(dice, model, guessed, Keeps::Sequence);
        grid[2].take(speculative, model.speculative(guessed), || at(guessed));
        if guessed == 1.0 {
            grid[3].take(cached - speculative, model.greatest_saving(), || {
                at(guessed)
            });
        }
    }
}

/// Turns whose early results are there in time, as equation 6 assumes: their drafts take no time.
fn simulate(dice: &mut Dice, model: &Engine, acceptance: f64, keeps: Keeps) -> f64 {
    let guessed = dice.exactly(acceptance, model.turns).into_iter();
    let turns: Vec<Turn> = guessed
        .map(|guessed| Turn {
            guessed,
            draft: 0.0,
        })
        .collect();
    as_seconds(simulation::engine(model, &turns, keeps))
}

/// The closed form takes means. Less of a tool's time is hidden if it varies, above all where it just fits.
fn varying_tools(dice: &mut Dice) -> Table {
    let mut table = Table::new(
        "What means hide: the same with tools that vary (G 6.3 s, g 4.05 s, a 0.8)",
        &[
            ("mean T, s", 2),
            ("deviation of T, %", 0),
            ("saved by equation 1, %", 2),
            ("saved with the deviation, %", 2),
            ("simulated, %", 2),
        ],
    );
    let times = |tool| Request {
        generation: 6.3,
        tool,
        draft: 4.05,
    };
    for tool in [0.5, 2.25, 3.0] {
        for percent in [10.0, 30.0] {
            let deviation: f64 = tool * percent / 100.0;
            let hits = dice.exactly(0.8, 20_000).into_iter();
            let drawn = |hit| {
                let times = times(dice.normal(tool, deviation));
                Drawn { times, hit }
            };
            let drawn: Vec<Drawn> = hits.map(drawn).collect();
            let took = |speculate| as_seconds(simulation::client(&drawn, speculate));
            let simulated = 1.0 - took(true) / took(false);
            let hidden = 0.8 * mean_of_least(tool, deviation, 6.3 - 4.05);
            table.rows.push(vec![
                tool.into(),
                percent.into(),
                (100.0 * times(tool).saved(0.8)).into(),
                (100.0 * hidden / times(tool).standard()).into(),
                (100.0 * simulated).into(),
            ]);
        }
    }
    table
}

/// Equation 6 assumes that every early result is there before the call.
fn late_results() -> Table {
    let mut table = Table::new(
        "Where equation 6 promises too much: results that come after the call (a 1, one turn, R 250 tokens of 10 ms)",
        &[("T, s", 1), ("equation 6, s", 2), ("simulated, s", 2)],
    );
    for tool in [0.5, 2.0, 2.4, 3.0, 5.0] {
        let model = Engine {
            turns: 1,
            tool,
            ..ENGINE
        };
        let turn = Turn {
            guessed: true,
            draft: 0.0,
        };
        let simulated = as_seconds(simulation::engine(&model, &[turn], Keeps::Sequence));
        table.rows.push(vec![
            tool.into(),
            model.speculative(1.0).into(),
            simulated.into(),
        ]);
    }
    table
}

fn speedups(dice: &mut Dice) -> Plot {
    let mut series = Vec::new();
    for (acceptance, share) in [(1.0, 0.05), (0.8, 0.05), (0.8, 0.5), (0.8, 4.05 / 6.3)] {
        let times = |tool| Request {
            generation: 1.0,
            tool,
            draft: share,
        };
        let line = (1..=80).map(|at| f64::from(at) / 20.0);
        series.push(Series {
            label: format!("a {acceptance}, g/G {share:.2}"),
            mark: Mark::Line,
            points: line
                .map(|tool| (tool, times(tool).speedup(acceptance)))
                .collect(),
        });
        let simulated = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0].map(|tool| {
            let drawn = draw(dice, times(tool), acceptance);
            let took = |speculate| as_seconds(simulation::client(&drawn, speculate));
            (tool, took(false) / took(true))
        });
        series.push(Series {
            label: "simulated".into(),
            mark: Mark::Points,
            points: simulated.to_vec(),
        });
    }
    Plot {
        name: "model-speed-up".into(),
        title: "Speed-up of an agent, never above 2".into(),
        x: "tool time T in units of the model's generation G".into(),
        y: "speed-up".into(),
        series,
    }
}

fn engine_plot(dice: &mut Dice) -> Plot {
    let shares: Vec<f64> = (0..=10).map(|at| f64::from(at) / 10.0).collect();
    let line = |label: &str, mark, time: &mut dyn FnMut(f64) -> f64| Series {
        label: label.into(),
        mark,
        points: shares.iter().map(|a| (*a, time(*a))).collect(),
    };
    let series = vec![
        line("4: no cache", Mark::Line, &mut |_| ENGINE.vanilla()),
        line("5: prefix cache", Mark::Line, &mut |_| ENGINE.cached()),
        line("6: tool cache", Mark::Line, &mut |a| ENGINE.speculative(a)),
        line("simulated", Mark::Points, &mut |a| {
            simulate(dice, &ENGINE, a, Keeps::Sequence)
        }),
    ];
    Plot {
        name: "model-engine".into(),
        title: "Ten turns in the engine: 250 tokens of thought, a call, a tool of 0.5 s".into(),
        x: "acceptance rate a".into(),
        y: "time for ten turns, s".into(),
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_equations_hold_within_a_tenth_of_a_percent() {
        for seed in [1, 7] {
            let report = run(&Settings {
                seed,
                ..Settings::default()
            });
            let failed: Vec<_> = report.checks.iter().filter(|check| !check.holds).collect();
            assert!(failed.is_empty(), "{failed:?}");
        }
    }

    #[test]
    fn a_tool_that_varies_is_met_by_its_own_closed_form() {
        let table = varying_tools(&mut Dice::named(1, "varying"));
        let number = |cell: &Cell| match cell {
            Cell::Number(number) => *number,
            other => panic!("{other:?}"),
        };
        for row in &table.rows {
            assert!((number(&row[3]) - number(&row[4])).abs() < 0.1, "{row:?}");
        }
    }
}
