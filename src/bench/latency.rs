//! `latency`: how long callers wait for the first sound when more and more of them call the real models at the same time.

use super::caller::Line;
use super::clips::{Clip, questions};
use super::program::{Server, Setup};
use super::report::{Cell, Check, Mark, Plot, Report, Series, Table, quantile};
use super::{BenchError, Settings};
use futures_util::future::join_all;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The calls of each level, and how many questions each caller asks. It ends when p95 has doubled.
const LEVELS: [(usize, usize); 6] = [(1, 6), (2, 3), (4, 3), (8, 2), (16, 2), (32, 2)];

/// The callers of a level arrive within this time.
const ARRIVAL: Duration = Duration::from_secs(3);

/// The most sessions of the server: more than the last level.
const SESSIONS: usize = 64;

/// The figures of one number of calls.
#[derive(Debug, Clone, Default)]
struct Level {
    calls: usize,
    /// From the end of speech to the first sound, s.
    waits: Vec<f64>,
    questions: usize,
    unanswered: usize,
    early: usize,
    refused: usize,
    /// CPU of the server, cores.
    cpu: f64,
}

impl Level {
    fn p95(&self) -> f64 {
        quantile(&self.waits, 0.95)
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let clips = questions(settings.data.as_deref())?;
    let clips: Vec<Clip> = clips.into_iter().filter(|clip| !clip.wants_tool).collect();
    let levels = super::in_real_time(measure(settings, &clips))?;
    Ok(report(settings.seed, &levels))
}

async fn measure(settings: &Settings, clips: &[Clip]) -> Result<Vec<Level>, BenchError> {
    let cache = tempfile::tempdir();
    let cache = cache.map_err(|error| BenchError::sockets("a temporary folder", error))?;
    let setup = Setup {
        sessions: Some(SESSIONS),
        ..Setup::default()
    };
    let server = Server::start(settings.program()?, cache.path(), setup).await?;
    let mut levels: Vec<Level> = Vec::new();
    let plan = match settings.brief {
        true => &[(1, 1)][..],
        false => &LEVELS[..],
    };
    if !settings.brief {
        caller(&server, clips, 0, 1, Duration::ZERO).await?;
    }
    for (calls, questions) in plan {
        let level = level(&server, clips, *calls, *questions).await?;
        tracing::debug!(?level, "measured");
        let doubled = levels
            .first()
            .is_some_and(|one| level.p95() > 2.0 * one.p95());
        levels.push(level);
        if doubled {
            break;
        }
    }
    server.stop().await?;
    Ok(levels)
}

#[allow(clippy::disallowed_methods, reason = "it measures, in real time")]
async fn level(
    server: &Server,
    clips: &[Clip],
    calls: usize,
    questions: usize,
) -> Result<Level, BenchError> {
    let (began, before) = (Instant::now(), server.cpu()?);
    let arrival = |number: usize| ARRIVAL.mul_f64(number as f64 / calls as f64);
    let each = (0..calls).map(|number| caller(server, clips, number, questions, arrival(number)));
    let mut all = Level {
        calls,
        ..Level::default()
    };
    for one in join_all(each).await {
        let one = one?;
        all.waits.extend(one.waits);
        all.questions += one.questions;
        all.unanswered += one.unanswered;
        all.early += one.early;
        all.refused += one.refused;
    }
    let cpu = server.cpu()?.saturating_sub(before);
    all.cpu = cpu.as_secs_f64() / began.elapsed().as_secs_f64();
    Ok(all)
}

async fn caller(
    server: &Server,
    clips: &[Clip],
    number: usize,
    questions: usize,
    after: Duration,
) -> Result<Level, BenchError> {
    sleep(after).await;
    let mut level = Level::default();
    // A line for each question: an answer may end the call.
    for turn in 0..questions {
        let Some(clip) = clips.get((7 * number + turn) % clips.len().max(1)) else {
            break;
        };
        let Some(mut line) = Line::try_open(&server.address).await? else {
            level.refused += 1;
            continue;
        };
        let heard = line.ask(clip, None, true).await?.heard;
        line.close().await?;
        level.questions += 1;
        level.early += usize::from(heard.early);
        level.unanswered += usize::from(heard.first.is_none());
        level.waits.extend(heard.first.filter(|_| !heard.early));
    }
    Ok(level)
}

/// The most calls at which p95 has not doubled and nobody is left without an answer.
fn carried(levels: &[Level]) -> usize {
    let Some(one) = levels.first() else { return 0 };
    let holds = |level: &&Level| {
        level.p95() <= 2.0 * one.p95() && level.refused == 0 && level.unanswered <= one.unanswered
    };
    levels
        .iter()
        .filter(holds)
        .map(|level| level.calls)
        .max()
        .unwrap_or(0)
}

fn report(seed: u64, levels: &[Level]) -> Report {
    let carried = carried(levels);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let one = levels.first().cloned().unwrap_or_default();
    Report {
        name: "latency".into(),
        title: "Real models, many calls".into(),
        seed,
        method: method(cores),
        findings: vec![format!(
            "With the real models on {cores} cores, up to {carried} callers who all ask at the same time hear the first sound within twice \
             the time of a single one (p95 {:.0} ms).",
            1_000.0 * one.p95()
        )],
        tables: vec![table(levels)],
        plots: vec![plot(levels)],
        checks: vec![Check::at_least(
            "calls at once, p95 not doubled",
            carried as f64,
            2.0,
            "",
        )],
    }
}

fn method(cores: usize) -> Vec<String> {
    vec![format!(
        "`undertone serve` in a process of its own, with its real models and the local brain, on {cores} cores that it shares \
         with the callers. Each caller asks spoken questions over a WebSocket one after the other, a call each, and goes \
         on a second after each answer; the callers of a level arrive within {} s. Times are taken outside, as in `spoken`. \
         The number of callers doubles until p95 is twice that of a single one. Callers who are refused for lack of room, \
         and questions without an answer within 12 s, are counted.",
        ARRIVAL.as_secs()
    )]
}

fn table(levels: &[Level]) -> Table {
    let columns = [
        ("calls", 0),
        ("questions", 0),
        ("first sound, p50 ms", 0),
        ("p95", 0),
        ("most", 0),
        ("unanswered", 0),
        ("spoke too early", 0),
        ("refused", 0),
        ("CPU, cores", 2),
    ];
    let mut table = Table::new("After the end of speech", &columns);
    for level in levels {
        let ms = |share| 1_000.0 * quantile(&level.waits, share);
        let counts = [level.unanswered, level.early, level.refused];
        let mut row: Vec<Cell> = vec![(level.calls as f64).into(), (level.questions as f64).into()];
        row.extend([0.5, 0.95, 1.0].map(|share| ms(share).into()));
        row.extend(counts.map(|count| (count as f64).into()));
        row.push(level.cpu.into());
        table.rows.push(row);
    }
    table
}

fn plot(levels: &[Level]) -> Plot {
    let series = |label: &str, share| Series {
        label: label.into(),
        mark: Mark::Both,
        points: levels
            .iter()
            .map(|level| (level.calls as f64, 1_000.0 * quantile(&level.waits, share)))
            .collect(),
    };
    Plot {
        name: "latency-calls".into(),
        title: "The first sound, with many callers at once".into(),
        x: "calls at the same time".into(),
        y: "ms after the end of speech".into(),
        series: vec![series("p95", 0.95), series("median", 0.5)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_carried_until_p95_doubles_or_somebody_is_refused() {
        let level = |calls, wait, refused| Level {
            calls,
            waits: vec![wait],
            questions: 1,
            refused,
            ..Level::default()
        };
        let levels = [
            level(1, 0.2, 0),
            level(2, 0.3, 0),
            level(4, 0.3, 1),
            level(8, 0.5, 0),
        ];
        assert_eq!(carried(&levels), 2);
        let report = report(1, &levels);
        assert!(report.checks[0].holds);
        report.plots[0].svg().unwrap();
        assert!(report.tables[0].markdown().contains("|     8 |"));
    }
}
