//! `barge-in`: how long the agent is still heard after a caller has begun to speak over it.

use super::caller::{Interrupted, Line};
use super::clips::{Clip, say};
use super::program::{Server, Setup};
use super::report::{Check, Mark, Plot, Report, Series, Table, quantile};
use super::simulated::{Delays, Simulation};
use super::{BenchError, Settings};
use crate::server::ANYWHERE;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// Interruptions: voices, times.
const VOICES: [&str; 5] = ["slt", "rms", "awb", "kal16", "en-gb"];
const ROUNDS: usize = 3;

/// The question, and the words that are said over the answer.
const QUESTION: &str = "What can you tell me about your hotel?";
const OVER: &str = "Wait, please stop for a moment.";

/// The time for which the agent has been heard when it is interrupted, in each round.
const HEARD: [Duration; ROUNDS] = [
    Duration::from_millis(700),
    Duration::from_millis(1_100),
    Duration::from_millis(1_500),
];

/// The longest wait for a complete recording, and the pause between two looks.
const RECORDED: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// The goal: from the verdict to the last sound, p99, ms.
const AFTER: f64 = 120.0;

/// An interruption, ms after the first sound of it.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// The core decided that it is one.
    verdict: f64,
    /// The agent's last sound.
    silent: f64,
}

#[derive(Debug, Default)]
struct Measured {
    cuts: Vec<Cut>,
    /// The agent spoke on.
    missed: usize,
}

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let measured = super::in_real_time(measure(settings))?;
    Ok(report(settings.seed, &measured))
}

async fn measure(settings: &Settings) -> Result<Measured, BenchError> {
    let delays = Delays {
        answer: Duration::from_millis(100),
        token: Some(Duration::from_millis(5)),
        ..Delays::default()
    };
    let simulation = Simulation::open(ANYWHERE, delays).await?;
    let folder = tempfile::tempdir().map_err(wrong)?;
    let recordings = folder.path().join("recordings");
    let setup = Setup {
        simulation: Some(&simulation),
        recordings: Some(&recordings),
        ..Setup::default()
    };
    let server = Server::start(settings.program()?, folder.path(), setup).await?;
    let mut measured = Measured::default();
    let (voices, rounds) = match settings.brief {
        true => (&VOICES[..1], 1),
        false => (&VOICES[..], ROUNDS),
    };
    for voice in voices {
        let question = Clip::new(QUESTION, say(voice, QUESTION)?);
        let over = Clip::new(OVER, say(voice, OVER)?);
        for heard in &HEARD[..rounds] {
            let mut line = Line::open(&server.address).await?;
            let cut = line.interrupt(&question, &over, *heard).await?;
            line.close().await?;
            match cut {
                Some(cut) => measured.cuts.push(joined(cut, &recordings).await?),
                None => {
                    taken(&recordings).await?;
                    measured.missed += 1;
                }
            }
        }
    }
    server.stop().await?;
    Ok(measured)
}

/// Both times of an interruption: outside, and the core's own from the recording of the session.
async fn joined(cut: Interrupted, recordings: &Path) -> Result<Cut, BenchError> {
    let recording = taken(recordings).await?;
    let verdict = flushes(&recording).into_iter().find(|at| *at > cut.onset);
    let verdict = verdict.ok_or_else(|| wrong("the recording has no interruption"))?;
    Ok(Cut {
        verdict: 1_000.0 * (verdict - cut.onset),
        silent: 1_000.0 * (cut.silent - cut.onset),
    })
}

/// Waits for the only recording of the folder, and removes it.
async fn taken(folder: &Path) -> Result<String, BenchError> {
    let tries = RECORDED.as_millis() / LOOK.as_millis();
    for _ in 0..tries {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        for file in files.map(|file| file.path()) {
            let text = fs::read_to_string(&file).map_err(wrong)?;
            if text.trim_end().ends_with(r#"{"end":true}"#) {
                fs::remove_file(&file).map_err(wrong)?;
                return Ok(text);
            }
        }
        sleep(LOOK).await;
    }
    Err(wrong("the session was not recorded"))
}

/// The times at which the core dropped all audio that was not played, s after the session's first audio.
fn flushes(recording: &str) -> Vec<f64> {
    let mut now = 0.0;
    let mut times = Vec::new();
    for line in recording.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        now = line["t"].as_f64().map_or(now, |micros| micros / 1e6);
        if line["output"]["decision"] == "flush" {
            times.push(now);
        }
    }
    times
}

fn wrong(reason: impl std::fmt::Display) -> BenchError {
    BenchError::sockets("an interruption", reason)
}

fn report(seed: u64, measured: &Measured) -> Report {
    let of = |figure: fn(&Cut) -> f64| -> Vec<f64> { measured.cuts.iter().map(figure).collect() };
    let rows = [
        (
            "first sound over the agent to the verdict",
            of(|cut| cut.verdict),
        ),
        (
            "verdict to the agent's last sound",
            of(|cut| cut.silent - cut.verdict),
        ),
        (
            "first sound to the agent's last sound",
            of(|cut| cut.silent),
        ),
    ];
    let columns = [("", 0), ("p50, ms", 0), ("p95", 0), ("p99", 0), ("most", 0)];
    let mut table = Table::new("Interruptions", &columns);
    for (name, values) in &rows {
        let at = |share: f64| quantile(values, share).into();
        table
            .rows
            .push(vec![(*name).into(), at(0.5), at(0.95), at(0.99), at(1.0)]);
    }
    let [_, (_, after), (_, all)] = &rows;
    let count = measured.cuts.len() + measured.missed;
    Report {
        name: "barge-in".into(),
        title: "Speaking over the agent".into(),
        seed,
        method: method(count),
        findings: vec![format!(
            "A caller who speaks over the agent hears its last sound {:.0} ms after the own first one (median), {:.0} ms at most after \
             the server has decided that it is an interruption.",
            quantile(all, 0.5),
            quantile(after, 1.0),
        )],
        tables: vec![table],
        plots: vec![plot(all)],
        checks: vec![
            Check::at_most(
                "verdict to the last sound, p99",
                quantile(after, 0.99),
                AFTER,
                " ms",
            ),
            Check::at_most(
                "interruptions without effect",
                measured.missed as f64,
                0.0,
                "",
            ),
        ],
    }
}

fn method(count: usize) -> Vec<String> {
    vec![format!(
        "`undertone serve` with its real models and default settings, and a simulated language model with a long answer. {count} \
         calls over bare PCM by five voices of flite and espeak-ng: a question, and 0.7 to 1.5 s into the answer \"{OVER}\". \
         The first sound is the first 10 ms above 5 % of the loudest; the last sound is what a listener hears who plays \
         audio as it arrives and drops what the server says is to be dropped. The verdict is the core's decision in the \
         recording of the session; its clock and the caller's agree to about a millisecond."
    )]
}

fn plot(times: &[f64]) -> Plot {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len().max(1) as f64;
    let share = |(at, ms): (usize, &f64)| (*ms, 100.0 * (at + 1) as f64 / count);
    let mut points: Vec<(f64, f64)> = sorted.iter().enumerate().map(share).collect();
    if points.is_empty() {
        points.push((0.0, 0.0));
    }
    Plot {
        name: "barge-in-silence".into(),
        title: "How long the agent is heard after a caller has begun to speak".into(),
        x: "ms after the first sound".into(),
        y: "interruptions after which it is silent, %".into(),
        series: vec![Series {
            label: "interruptions".into(),
            mark: Mark::Both,
            points,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_has_the_time_of_what_led_to_it() {
        let recording = r#"{"version":1}
            {"t":1500000,"input":{}}
            {"output":{"decision":"notify"}}
            {"t":2000000,"timeout":true}
            {"output":{"decision":"flush"}}
            {"end":true}"#;
        assert_eq!(flushes(recording), [2.0]);
    }

    #[test]
    fn the_report_tells_the_verdict_from_the_rest() {
        let cut = |verdict, silent| Cut { verdict, silent };
        let measured = Measured {
            cuts: vec![cut(150.0, 160.0), cut(150.0, 300.0)],
            missed: 1,
        };
        let report = report(1, &measured);
        let holds: Vec<bool> = report.checks.iter().map(|check| check.holds).collect();
        assert_eq!(holds, [false, false]);
        assert!(
            report.tables[0]
                .markdown()
                .contains("verdict to the agent's last sound")
        );
        report.plots[0].svg().unwrap();
    }
}
