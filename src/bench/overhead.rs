//! `overhead`: what the server itself adds to an answer, over real sockets, with stub engines of fixed delays.

use super::report::{Cell, Check, Mark, Plot, Report, Series, Spread, Table, quantile};
use super::served::{Served, builders, started};
use super::simulated::{Delays, Simulation};
use super::socket::{Socket, broken, connect};
use super::stubs::{Hears, Loudness, Tone};
use super::{BenchError, Settings};
use crate::conversation::Policy;
use crate::server::ANYWHERE;
use crate::session::{Builders, Engines};
use crate::tools::Registry;
use crate::vad::Vad;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

/// The stubs' times: recogniser, model, voice.
const HEARS: Duration = Duration::from_millis(30);
const ANSWERS: Duration = Duration::from_millis(50);
const SPEAKS: Duration = Duration::from_millis(20);

/// The length of an answer.
const ANSWER: Duration = Duration::from_millis(60);

/// A question: 200 ms of a loud tone at 24 kHz, in frames of 20 ms.
const FRAMES: usize = 10;
const FRAME: usize = 480;
const LOUD: i16 = 8_000;

/// A frame of audio, ms.
const FRAME_MS: f64 = 20.0;

const SESSIONS: usize = 8;
const TURNS: usize = 25;

/// The goals, ms: the median, and the 99th percentile beyond one frame.
const MEDIAN: f64 = 5.0;
const LAST: f64 = 20.0;

/// The longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let sessions = super::in_real_time(measure(SESSIONS, TURNS))?;
    Ok(report(settings.seed, &sessions))
}

/// The response latency of each turn of each session, ms.
async fn measure(sessions: usize, turns: usize) -> Result<Vec<Vec<f64>>, BenchError> {
    let delays = Delays {
        answer: ANSWERS,
        ..Delays::default()
    };
    let simulation = Simulation::open(ANYWHERE, delays).await?;
    let server = Served::start(engines(&simulation)?)?;
    let mut all = Vec::new();
    for _ in 0..sessions {
        let mut client = Client::open(&server).await?;
        let mut waits = Vec::new();
        for _ in 0..turns {
            waits.push(1_000.0 * client.ask().await?.as_secs_f64());
        }
        client.close().await?;
        all.push(waits);
    }
    server.stop().await?;
    Ok(all)
}

fn engines(simulation: &Simulation) -> Result<Arc<Engines>, BenchError> {
    let builders = builders(simulation, Registry::new(), Vec::new(), Policy::default())?;
    started(Builders {
        vad: Box::new(|| Box::new(|| Ok(Box::new(Loudness) as Box<dyn Vad>))),
        asr: Box::new(|| {
            Ok(Box::new(Hears {
                words: "how are you",
                after: HEARS,
            }))
        }),
        tts: Box::new(|| {
            Ok(Box::new(Tone {
                after: SPEAKS,
                length: ANSWER,
                rate: 24_000,
            }))
        }),
        ..builders
    })
}

/// A Realtime client that commits its turns by hand.
struct Client(Socket);

impl Client {
    async fn open(server: &Served) -> Result<Self, BenchError> {
        let url = format!("ws://{}/v1/realtime", server.address);
        let mut client = Self(connect(url).await?);
        client.until("session.created").await?;
        let session = json!({
            "type": "realtime", "audio": { "input": { "turn_detection": null } },
        });
        client
            .send(&json!({ "type": "session.update", "session": session }))
            .await?;
        client.until("session.updated").await?;
        Ok(client)
    }

    /// Asks, and hears the answer to its end: the server answers the next question only then. Returns the time from
    /// the end of the question to the first audio.
    #[allow(clippy::disallowed_methods, reason = "it measures, in real time")]
    async fn ask(&mut self) -> Result<Duration, BenchError> {
        let frame: Vec<u8> = [LOUD; FRAME].iter().flat_map(|s| s.to_le_bytes()).collect();
        let audio = STANDARD.encode(frame);
        for _ in 0..FRAMES {
            self.send(&json!({ "type": "input_audio_buffer.append", "audio": audio }))
                .await?;
        }
        self.send(&json!({ "type": "input_audio_buffer.commit" }))
            .await?;
        self.send(&json!({ "type": "response.create" })).await?;
        let asked = Instant::now();
        self.until("response.output_audio.delta").await?;
        let began = Instant::now();
        self.until("response.done").await?;
        sleep_until(began + ANSWER).await;
        Ok(began - asked)
    }

    async fn send(&mut self, event: &Value) -> Result<(), BenchError> {
        let message = Message::text(event.to_string());
        self.0.send(message).await.map_err(broken)
    }

    /// Reads on until an event of this type.
    async fn until(&mut self, kind: &str) -> Result<(), BenchError> {
        loop {
            let next = timeout(PATIENCE, self.0.next()).await;
            let late = |_| broken(format!("{kind} did not come"));
            let message = next.map_err(late)?.ok_or_else(|| broken("it was closed"))?;
            let Message::Text(text) = message.map_err(broken)? else {
                continue;
            };
            let event: Value = serde_json::from_str(&text).map_err(broken)?;
            if event["type"] == "error" {
                return Err(broken(&event["error"]["message"]));
            }
            if event["type"] == kind {
                return Ok(());
            }
        }
    }

    async fn close(mut self) -> Result<(), BenchError> {
        self.0.close(None).await.map_err(broken)
    }
}

/// The time that the stubs take, ms.
fn stubs() -> f64 {
    1_000.0 * (HEARS + ANSWERS + SPEAKS).as_secs_f64()
}

/// The times of all turns less that of the stubs, ms, ascending.
fn overheads(sessions: &[Vec<f64>]) -> Vec<f64> {
    let mut all: Vec<f64> = sessions.iter().flatten().map(|ms| ms - stubs()).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn report(seed: u64, sessions: &[Vec<f64>]) -> Report {
    let all = overheads(sessions);
    let (median, last) = (quantile(&all, 0.5), quantile(&all, 0.99));
    let beyond = (last - FRAME_MS).max(0.0);
    Report {
        name: "overhead".into(),
        title: "What the server adds to an answer".into(),
        seed,
        method: method(),
        findings: vec![format!(
            "Of the wait for an answer {median:.1} ms are the server's own (99th percentile {last:.1} ms), over real sockets \
             and with engines that take {:.0} ms.",
            stubs()
        )],
        tables: vec![table(sessions)],
        plots: vec![plot(&all)],
        checks: vec![
            Check::at_most("overhead, median", median, MEDIAN, " ms"),
            Check::at_most(
                "overhead beyond one frame, 99th percentile",
                beyond,
                LAST,
                " ms",
            ),
        ],
    }
}

fn method() -> Vec<String> {
    vec![format!(
        "{SESSIONS} sessions of {TURNS} turns, one after the other. A client of the Realtime API sends 200 ms of sound over a \
         WebSocket, says that its turn is over, and waits for the first audio of the answer. The server is the product's, \
         with its session, core, prompts and pacing; the model's server is a real HTTP server on the same machine, and \
         recogniser and voice are threads as with real models. The stubs take {} ms to hear, {} ms to the model's words and \
         {} ms to the first sound. Overhead is the rest of the wait: sockets, scheduling, timers that are rounded up to a \
         millisecond, and the server's own work. The client runs in the same process, on the same cores.",
        HEARS.as_millis(),
        ANSWERS.as_millis(),
        SPEAKS.as_millis()
    )]
}

fn table(sessions: &[Vec<f64>]) -> Table {
    let columns = [("overhead, ms", 0), ("of all turns", 1), ("by session", 1)];
    let mut table = Table::new("Response latency minus the engines' own times", &columns);
    let all = overheads(sessions);
    let each: Vec<Vec<f64>> = sessions
        .iter()
        .map(|one| overheads(std::slice::from_ref(one)))
        .collect();
    for (name, share) in [("median", 0.5), ("p95", 0.95), ("p99", 0.99), ("most", 1.0)] {
        let by_session = each.iter().map(|one| quantile(one, share));
        table.rows.push(vec![
            name.into(),
            Cell::from(quantile(&all, share)),
            Spread::of(by_session.collect()).into(),
        ]);
    }
    table
}

fn plot(sorted: &[f64]) -> Plot {
    let count = sorted.len().max(1) as f64;
    let share = |(at, ms): (usize, &f64)| (*ms, 100.0 * (at + 1) as f64 / count);
    Plot {
        name: "overhead-turns".into(),
        title: "Response latency minus the engines' own times".into(),
        x: "overhead, ms".into(),
        y: "turns that take no longer, %".into(),
        series: vec![Series {
            label: "turns".into(),
            mark: Mark::Line,
            points: sorted.iter().enumerate().map(share).collect(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_turn_is_answered_after_the_engines_times() {
        let sessions = measure(2, 2).await.unwrap();
        assert_eq!(sessions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        assert!(
            overheads(&sessions).iter().all(|ms| *ms >= 0.0),
            "{sessions:?}"
        );
    }

    #[test]
    fn the_report_has_the_quantiles_of_all_turns() {
        let sessions = vec![
            (1..=50)
                .map(|ms| stubs() + f64::from(ms))
                .collect::<Vec<_>>(),
            (51..=100).map(|ms| stubs() + f64::from(ms)).collect(),
        ];
        let report = report(1, &sessions);
        let found: Vec<_> = report
            .checks
            .iter()
            .map(|check| (&*check.found, check.holds))
            .collect();
        assert_eq!(found, [("50.5000 ms", false), ("79.0100 ms", false)]);
        let table = report.tables[0].markdown();
        assert!(table.contains("| p95          |         95."), "{table}");
        assert!(report.plots[0].svg().unwrap().contains("no longer"));
    }
}
