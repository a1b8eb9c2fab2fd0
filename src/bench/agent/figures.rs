//! Tables, plots and checks of `agent`.

use super::{ARMS, Arm, CALL_COST, Cell, REGIMES, Sums};
use crate::bench::report::{self, Check, Mark, Plot, Series, Spread, Table};

fn spread(cell: &Cell, figure: impl Fn(&Sums) -> f64) -> Spread {
    Spread::of(cell.runs.iter().map(figure).collect())
}

fn find<'c>(cells: &'c [Cell], regime: &str, arm: Arm) -> Option<&'c Cell> {
    cells
        .iter()
        .find(|cell| cell.regime == regime && cell.arm == arm)
}

fn wall(cells: &[Cell], regime: &str, arm: Arm) -> f64 {
    find(cells, regime, arm).map_or(0.0, |cell| {
        spread(cell, |sums| sums.a_task(sums.wall)).median
    })
}

/// By how much an arm is faster than the sequential one in the same run, over what right guesses can hide, %.
fn of_bound(cells: &[Cell], regime: &str, arm: Arm) -> f64 {
    let (Some(serial), Some(cell)) = (
        find(cells, regime, Arm::Sequential),
        find(cells, regime, arm),
    ) else {
        return 0.0;
    };
    let pairs = serial.runs.iter().zip(&cell.runs);
    let shares = pairs.map(|(serial, sums)| 100.0 * (serial.wall - sums.wall) / sums.bound);
    Spread::of(shares.collect()).median
}

pub(super) fn method() -> Vec<String> {
    vec![
        "The task of the PASTE article: `web_search`, `arxiv_search`, `fetch_url`, `extract_text`, `summarize`, \
         `synthesize`, with its tool times (2.4 s in all) and its share of wrong guesses (22 % for transitions, \
         14 % for a small model). All arms are conversations of the product in virtual time, with its gate and \
         ledger; `synthesize` must not run early. Which guesses are right is drawn once for each task and \
         the same in all arms. The learned transitions are simulated by their hit rate, and predict nothing before \
         the first call; `undertone bench next-call` measures what is really learned."
            .into(),
        "The plan is carried out by the product, too: the model thinks once, writes six calls at 0.2 s each, and sees \
         the notes alone. Tokens are estimated as the product estimates them, with results of plausible sizes, so that \
         the sequential arm has the article's 142,000 prompt tokens; the prices are $5, $0.50 (cached) and $25 a \
         million tokens, and $0.0068 a call."
            .into(),
        "The model-bound regime has the article's 38.2 s for the sequential arm: six generations of 5.97 s and 2.4 s of \
         tools."
            .into(),
        "Depth 2 starts a call one generation of the model earlier than depth 1, if its arguments need no result: here \
         `extract_text` (0.2 s) and `summarize` (0.3 s). It gains what one generation does not hide of them, which is \
         0.1 s of `summarize` beside a generation of 0.2 s. Generations of 0.4 s and 5.97 s hide both whole at depth 1, \
         so the other two regimes have a gain of exactly 0; `fetch_url` (0.6 s) needs an address from a result."
            .into(),
    ]
}

pub(super) fn table(cells: &[Cell], (regime, generation): (&'static str, f64)) -> Table {
    let columns = [
        ("arm", 0),
        ("wall, s", 2),
        ("of the one-step bound, %", 1),
        ("p50 step, s", 2),
        ("p95", 2),
        ("p99", 2),
        ("prompt tokens", 0),
        ("cached, %", 0),
        ("hits of starts, %", 0),
        ("wasted tools, s", 2),
        ("wasted, $", 4),
        ("tools, $", 4),
        ("in all, $", 3),
    ];
    let title = format!("{regime}: G = {generation} s, for each task");
    let mut table = Table::new(&title, &columns);
    for arm in ARMS {
        let Some(cell) = find(cells, regime, arm) else {
            continue;
        };
        let guesses = arm.accuracy() > 0.0;
        let only = |cell: report::Cell| if guesses { cell } else { "-".into() };
        let each = |figure: fn(&Sums) -> f64| spread(cell, |sums| figure(sums) / sums.tasks);
        let quantile = |share| -> report::Cell {
            match arm {
                Arm::Plan => "-".into(),
                _ => spread(cell, |sums| sums.quantile(share)).median.into(),
            }
        };
        table.rows.push(vec![
            arm.name().into(),
            each(|sums| sums.wall).into(),
            only(of_bound(cells, regime, arm).into()),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            each(|sums| sums.prompt_tokens).median.into(),
            spread(cell, |sums| 100.0 * sums.cached_tokens / sums.prompt_tokens)
                .median
                .into(),
            only(spread(cell, |sums| 100.0 * sums.hits / sums.starts).into()),
            each(|sums| sums.wasted).median.into(),
            each(|sums| (sums.starts - sums.hits) * CALL_COST)
                .median
                .into(),
            each(|sums| sums.tools * CALL_COST).median.into(),
            spread(cell, Sums::spend).median.into(),
        ]);
    }
    table
}

pub(super) fn plot(cells: &[Cell]) -> Plot {
    let share = |arm| {
        let of = |(regime, generation): (&str, f64)| {
            (
                generation,
                100.0 * wall(cells, regime, arm) / wall(cells, regime, Arm::Sequential),
            )
        };
        REGIMES.map(of).to_vec()
    };
    let series = |arm: &Arm| Series {
        label: arm.name().into(),
        mark: Mark::Both,
        points: share(*arm),
    };
    Plot {
        name: "agent-wall".into(),
        title: "Wall time of the research task, sequential = 100 %".into(),
        x: "the model's generation G, s".into(),
        y: "wall time, %".into(),
        series: ARMS.iter().map(series).collect(),
    }
}

pub(super) fn findings(cells: &[Cell]) -> Vec<String> {
    let saved = |regime, arm| {
        100.0 * (1.0 - wall(cells, regime, arm) / wall(cells, regime, Arm::Sequential))
    };
    let balanced = |arm, figure: fn(&Sums) -> f64| {
        find(cells, "balanced", arm).map_or(0.0, |cell| spread(cell, figure).median)
    };
    let spend = |arm| balanced(arm, Sums::spend);
    let prompts = |arm| balanced(arm, |sums| sums.a_task(sums.prompt_tokens) / 1_000.0);
    let (serial, plan) = (prompts(Arm::Sequential), prompts(Arm::Plan));
    vec![
        format!(
            "In a research task of six calls, transitions that are right in 78 % of the cases save {:.0} % of the time \
             if the model takes as long as a tool (0.4 s), and {:.0} % if it takes 5.97 s.",
            saved("balanced", Arm::Learned),
            saved("model-bound", Arm::Learned)
        ),
        format!(
            "A plan that the server carries out saves {:.0} % with the slower model, and costs ${:.3} a task instead of \
             ${:.3} with the faster one: where a model can write one, it is worth more than guessing.",
            saved("model-bound", Arm::Plan),
            spend(Arm::Plan),
            spend(Arm::Sequential)
        ),
        format!(
            "That plan takes {plan:.0} thousand prompt tokens instead of {serial:.0} thousand, {:.0} % less, where the \
             article quotes 37 % fewer tokens for code that calls tools: all six calls fit one plan here, and the model \
             reads none of the long results.",
            100.0 * (1.0 - plan / serial)
        ),
        "The article's 38.2 to 17.1 s cannot come from early tools: its six tools take 2.4 s in all, so at least 35.8 s \
         would be left."
            .into(),
    ]
}

pub(super) fn checks(cells: &[Cell]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (regime, _) in REGIMES {
        for arm in [Arm::Learned, Arm::Predictor] {
            let what = format!("of the one-step bound, {}, {regime}", arm.name());
            checks.push(Check::at_least(
                &what,
                of_bound(cells, regime, arm),
                95.0,
                " %",
            ));
        }
        let (one, two) = (
            of_bound(cells, regime, Arm::Learned),
            of_bound(cells, regime, Arm::LearnedTwo),
        );
        let what = format!("depth 2 against depth 1, {regime}");
        checks.push(match regime {
            "tool-bound" => Check::at_least(&what, two - one, 5.0, " points"),
            // A generation hides both calls that depth 2 can start.
            _ => Check::near(&what, two - one, 0.0, 0.01, " points"),
        });
    }
    checks.push(Check::near(
        "sequential, model-bound",
        wall(cells, "model-bound", Arm::Sequential),
        38.2,
        0.1,
        " s",
    ));
    checks
}
