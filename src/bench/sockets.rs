//! `sockets`: four arms of `turn` over real sockets and in real time, with all delays a tenth as long.
//!
//! Every turn has a simulation, a server and a client of its own, so nothing that was learned carries over, as in
//! virtual time.

use super::clock::seconds;
use super::relay::{Relay, Told};
use super::report::{Cell, Check, Mark, Plot, Report, Series, Spread, Table};
use super::served::{Served, builders, started};
use super::simulated::{ANSWER, Delays, Simulation, WORDS};
use super::turn::{self, Arm, MIDDLE, Times};
use super::world::Voice;
use super::{BenchError, Settings};
use crate::dice::Dice;
use crate::prediction::{PredictError, Prediction, Predictor, Question};
use crate::server::ANYWHERE;
use crate::tools::declared;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The factor by which the delays of `turn` are multiplied.
const SCALE: f64 = 0.1;

/// The tool's delay before scaling, s.
const TOOL: f64 = 1.0;

/// The arms. The first is the baseline of the others.
const CELLS: [Arm; 4] = [Arm::SpeechFirst, Arm::Router, Arm::Partials, Arm::Assumed];

const REPEATS: usize = 25;

/// The largest difference between the ratios, percentage points.
const APART: f64 = 5.0;

/// A turn over sockets, and the same turn in virtual time.
#[derive(Debug, Clone, Copy)]
struct Pair {
    sockets: Turn,
    virtual_time: Turn,
    /// How often the tool ran over sockets.
    runs: u64,
}

/// When the client receives the first words and the answer, s after the end of speech.
#[derive(Debug, Clone, Copy)]
struct Turn {
    first: f64,
    answer: f64,
}

/// All repeats of one arm.
struct Point {
    arm: Arm,
    pairs: Vec<Pair>,
}

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let points = super::in_real_time(measure(settings.seed, REPEATS))?;
    Ok(report(settings.seed, &points))
}

/// Plays all arms in each repeat, one after the other in random order.
async fn measure(seed: u64, repeats: usize) -> Result<Vec<Point>, BenchError> {
    let mut points = CELLS.map(|arm| Point {
        arm,
        pairs: Vec::new(),
    });
    for repeat in 0..repeats {
        let mut dice = Dice::named(seed, &format!("sockets {repeat}"));
        let times = match repeat {
            0 => MIDDLE,
            _ => Times::draw(&mut dice),
        };
        let mut order = [0, 1, 2, 3];
        dice.shuffle(&mut order);
        for at in order {
            let point = &mut points[at];
            let pair = play(point.arm, times.scaled(SCALE), SCALE * TOOL).await?;
            point.pairs.push(pair);
        }
    }
    Ok(points.into())
}

/// Plays a turn over sockets and in virtual time.
async fn play(arm: Arm, times: Times, tool: f64) -> Result<Pair, BenchError> {
    let simulation = Simulation::open(ANYWHERE, delays(&times, tool)).await?;
    let registry = declared::registry(&[simulation.tool()?])
        .map_err(|error| BenchError::sockets("the tools", error))?;
    let tools = registry.declarations();
    let router: Arc<dyn Predictor> = Arc::new(SimulatedRouter { arm, times });
    let policy = arm.policy(tools.clone());
    let engines = started(builders(&simulation, registry, vec![router], policy)?)?;
    let server = Served::start(engines)?;
    let mut call = Relay::call(&server).await?;
    let partial = arm.partial(&times).map(|at| (span(at), false));
    let last = (span(times.speech + times.heard), true);
    let prompts: Vec<(Duration, bool)> = partial.into_iter().chain([last]).collect();
    let Told { first, answer } = call.ask(WORDS, &prompts, ANSWER).await?;
    call.close().await?;
    server.stop().await?;
    let after = |at: Duration| at.as_secs_f64() - times.speech;
    let heard = turn::play_with(arm, &times, tool, tools, Voice::Client)
        .ok_or_else(|| BenchError::sockets(arm.name(), "no answer in virtual time"))?;
    Ok(Pair {
        sockets: Turn {
            first: after(first),
            answer: after(answer),
        },
        virtual_time: Turn {
            first: heard.first,
            answer: heard.answer,
        },
        runs: simulation.runs(),
    })
}

fn span(at: f64) -> Duration {
    seconds(at).duration()
}

fn delays(times: &Times, tool: f64) -> Delays {
    Delays {
        first: Some(span(times.first)),
        call: span(times.call),
        written: span(times.written),
        answer: span(times.answer),
        token: None,
        tool: span(tool),
    }
}

/// The router of an arm, in real time.
struct SimulatedRouter {
    arm: Arm,
    times: Times,
}

impl Predictor for SimulatedRouter {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        let answer = self.arm.predict(&self.times, &question.evidence);
        Box::pin(async move {
            let Some((wait, predictions)) = answer else {
                return Ok(Vec::new());
            };
            sleep(wait.duration()).await;
            Ok(predictions)
        })
    }
}

fn report(seed: u64, points: &[Point]) -> Report {
    Report {
        name: "sockets".into(),
        title: "The same turn over real sockets".into(),
        seed,
        method: method(),
        findings: findings(points),
        tables: vec![table(points)],
        plots: vec![plot(points)],
        checks: checks(points),
    }
}

fn method() -> Vec<String> {
    vec![
        "Four cells of `turn` with a tool of 1 s, played in real time at a tenth of the times, and in virtual time at the \
         same times. The product's server listens on a port of this machine, and its client opens a WebSocket to it as a \
         telephone call over ConversationRelay: the client transcribes and speaks, so the times are those at which it has \
         the words. The model's server and the tool are real HTTP servers (`undertone bench serve` keeps them running). \
         Only the router is simulated within the process. 25 repeats with the times of `turn`, the arms of each in random \
         order; a server, a model and a client of its own for every turn."
            .into(),
        "\"Later\" is how much later the answer comes over sockets than in virtual time, where computing and sockets take \
         no time: the time that this machine needs. It is a fixed cost, so at a tenth of the times it weighs ten times as \
         much. The ratio to the first arm is the effect of speculation, and must be the same on other machines."
            .into(),
    ]
}

fn spread(point: &Point, figure: impl Fn(&Pair) -> f64) -> Spread {
    Spread::of(point.pairs.iter().map(figure).collect())
}

/// The answer times of an arm as a share of the first arm's in the same repeat, %: over sockets, in virtual time.
fn ratios(points: &[Point], point: &Point) -> (Spread, Spread) {
    let base = points.first().map_or(&[][..], |base| &base.pairs);
    let both = || point.pairs.iter().zip(base);
    let of = |turn: fn(&Pair) -> Turn| {
        let ratio = |(pair, base)| 100.0 * turn(pair).answer / turn(base).answer;
        Spread::of(both().map(ratio).collect())
    };
    (of(|pair| pair.sockets), of(|pair| pair.virtual_time))
}

fn table(points: &[Point]) -> Table {
    let columns = [
        ("arm", 0),
        ("first words, ms", 0),
        ("virtual", 0),
        ("answer, ms", 0),
        ("virtual", 0),
        ("later, ms", 1),
        ("of speech first, %", 1),
        ("virtual", 1),
        ("tool runs a turn", 2),
    ];
    let title = "After the end of speech: median of 25, least and greatest";
    let mut table = Table::new(title, &columns);
    for point in points {
        let ms = |figure: fn(&Pair) -> f64| spread(point, |pair| 1_000.0 * figure(pair));
        let (sockets, virtual_time) = ratios(points, point);
        let runs: u64 = point.pairs.iter().map(|pair| pair.runs).sum();
        table.rows.push(vec![
            point.arm.name().into(),
            ms(|pair| pair.sockets.first).into(),
            ms(|pair| pair.virtual_time.first).median.into(),
            ms(|pair| pair.sockets.answer).into(),
            ms(|pair| pair.virtual_time.answer).median.into(),
            ms(later).into(),
            sockets.into(),
            virtual_time.median.into(),
            Cell::from(runs as f64 / point.pairs.len().max(1) as f64),
        ]);
    }
    table
}

fn later(pair: &Pair) -> f64 {
    pair.sockets.answer - pair.virtual_time.answer
}

fn plot(points: &[Point]) -> Plot {
    let pairs = points.iter().flat_map(|point| &point.pairs);
    let ms = |pair: &Pair| {
        let [x, y] = [pair.virtual_time, pair.sockets].map(|turn| 1_000.0 * turn.answer);
        (x, y)
    };
    let mut turns: Vec<(f64, f64)> = pairs.map(ms).collect();
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = [turns.first(), turns.last()];
    let equal = ends.into_iter().flatten().map(|(x, _)| (*x, *x));
    let series = |label: &str, mark, points| Series {
        label: label.into(),
        mark,
        points,
    };
    Plot {
        name: "sockets-answers".into(),
        title: "A turn over real sockets and in virtual time".into(),
        x: "answer in virtual time, ms".into(),
        y: "answer over sockets, ms".into(),
        series: vec![
            series("equal", Mark::Line, equal.collect()),
            series("turns", Mark::Points, turns),
        ],
    }
}

fn findings(points: &[Point]) -> Vec<String> {
    let Some(last) = points.last() else {
        return Vec::new();
    };
    let later = Spread::of(
        points
            .iter()
            .flat_map(|point| &point.pairs)
            .map(|pair| 1_000.0 * later(pair))
            .collect(),
    );
    let (sockets, virtual_time) = ratios(points, last);
    vec![format!(
        "Over real sockets at a tenth of the times, a turn with an assumed commit takes {:.1} % ({:.1} to {:.1}) of one \
         without early tools, and {:.1} % in virtual time; answers come {:.1} ms later than there (median; {:.1} to {:.1}).",
        sockets.median,
        sockets.low,
        sockets.high,
        virtual_time.median,
        later.median,
        later.low,
        later.high
    )]
}

fn checks(points: &[Point]) -> Vec<Check> {
    let mut checks = Vec::new();
    for point in points.iter().skip(1) {
        let (sockets, virtual_time) = ratios(points, point);
        let what = format!("share of speech first, {}", point.arm.name());
        let wanted = (10.0 * virtual_time.median).round() / 10.0;
        checks.push(Check::near(&what, sockets.median, wanted, APART, " %"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_arm_answers_over_sockets_and_runs_its_tool_once() {
        let points = measure(1, 1).await.unwrap();
        for point in &points {
            let pair = point.pairs[0];
            assert_eq!(pair.runs, 1, "{:?}", point.arm);
            assert!(pair.sockets.first <= pair.sockets.answer, "{pair:?}");
            // The stated delays have really passed.
            let least = match point.arm {
                Arm::SpeechFirst => MIDDLE.heard + MIDDLE.call + TOOL + MIDDLE.answer,
                _ => MIDDLE.heard + MIDDLE.call,
            };
            assert!(pair.sockets.answer >= SCALE * least, "{pair:?}");
        }
    }

    #[test]
    fn ratios_are_taken_within_a_repeat() {
        let turn = |answer| Turn { first: 0.1, answer };
        let point = |arm, answers: [(f64, f64); 2]| Point {
            arm,
            pairs: answers
                .map(|(sockets, virtual_time)| Pair {
                    sockets: turn(sockets),
                    virtual_time: turn(virtual_time),
                    runs: 1,
                })
                .into(),
        };
        let points = [
            point(Arm::SpeechFirst, [(0.2, 0.2), (0.4, 0.4)]),
            point(Arm::Router, [(0.12, 0.1), (0.24, 0.2)]),
        ];
        let (sockets, virtual_time) = ratios(&points, &points[1]);
        assert!((sockets.low - 60.0).abs() < 1e-9 && (sockets.high - 60.0).abs() < 1e-9);
        assert!((virtual_time.median - 50.0).abs() < 1e-9);
        let report = report(1, &points);
        assert!(
            !report.checks[0].holds,
            "ten points apart: {:?}",
            report.checks
        );
        assert!(report.tables[0].markdown().contains("| + router     |"));
        assert!(report.plots[0].svg().unwrap().contains("over sockets"));
    }
}
