//! `spoken`: spoken questions to the server as users run it, with its real models, in real time: what a caller hears and
//! when. The language model and its tool are simulated, and voices of other programs ask.
//!
//! A server starts afresh for each arm and each delay of the tool, because it learns how long tools take.

mod report;

use super::caller::{Heard, Line};
use super::clips::{Clip, questions};
use super::program::{Program, Server, Setup};
use super::report::Report;
use super::simulated::{Delays, FORECAST_TOLD, Logged, Simulation};
use super::{BenchError, Settings};
use crate::dice::Dice;
use crate::server::ANYWHERE;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// The model's pace: to the first token, and between two.
const FIRST: Duration = Duration::from_millis(350);
const TOKEN: Duration = Duration::from_millis(15);

/// The delays of the tool.
const TOOLS: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_millis(1_000),
    Duration::from_millis(1_500),
    Duration::from_millis(2_000),
];

/// The time to first audio that the floor assumes for the voice, s.
const VOICE: f64 = 0.09;

/// The length of a silent call.
const SILENCE: Duration = Duration::from_secs(20);

/// A delay of the tool, and the turns without and with speculation.
type ToolArms = (Duration, [Vec<Turn>; 2]);

/// Everything that was measured.
#[derive(Debug, Default)]
struct Measured {
    tool: Vec<ToolArms>,
    /// Without a tool: the local brain, the simulated model.
    plain: [Vec<Turn>; 2],
    /// CPU use of the server during a silent call, in cores.
    silence: Option<f64>,
}

/// A call with one question.
#[derive(Debug, Clone, Copy)]
struct Turn {
    heard: Heard,
    /// The tool call; `None` if there was none.
    call: Option<Call>,
    /// CPU time of the server, and the length of the call, s.
    cpu: f64,
    length: f64,
}

/// A call of the tool, s after the end of the question.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// When the model had written it.
    committed: f64,
    /// When the run that gave its result began and ended.
    began: f64,
    ended: f64,
}

impl Call {
    /// The earliest time at which the answer can be heard: the model is asked for it when the result arrives, and it
    /// is played once the call is committed.
    fn floor(self, delay: Duration) -> f64 {
        let asked = self.began + delay.as_secs_f64();
        self.committed.max(asked + FIRST.as_secs_f64()) + VOICE
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let program = settings.program()?;
    let clips = questions(settings.data.as_deref())?;
    let tools = match settings.brief {
        true => &TOOLS[..1],
        false => &TOOLS[..],
    };
    let bench = Bench {
        program,
        settings,
        clips,
    };
    let measured = super::in_real_time(bench.measure(tools))?;
    Ok(report::report(settings, &measured))
}

struct Bench<'a> {
    program: &'a Program,
    settings: &'a Settings,
    clips: Vec<Clip>,
}

impl Bench<'_> {
    async fn measure(&self, tools: &[Duration]) -> Result<Measured, BenchError> {
        let cache = tempfile::tempdir();
        let cache = cache.map_err(|e| BenchError::sockets("a temporary folder", e))?;
        let mut measured = Measured::default();
        let has_tool = self.clips.iter().any(|clip| clip.wants_tool);
        for delay in tools.iter().filter(|_| has_tool) {
            let arms = self.with_tool(cache.path(), *delay).await?;
            measured.tool.push((*delay, arms));
        }
        if self.settings.brief {
            return Ok(measured);
        }
        let simulation = Simulation::open(ANYWHERE, delays(Duration::ZERO)).await?;
        let setup = |simulation| Setup {
            simulation,
            ..Setup::default()
        };
        let brain = Server::start(self.program, cache.path(), setup(None)).await?;
        let model = Server::start(self.program, cache.path(), setup(Some(&simulation))).await?;
        let arms = [&brain, &model].map(|server| (server, None));
        measured.plain = self.ask(false, "plain", arms).await?;
        measured.silence = Some(self.silence(&brain).await?);
        brain.stop().await?;
        model.stop().await?;
        Ok(measured)
    }

    async fn with_tool(&self, cache: &Path, delay: Duration) -> Result<[Vec<Turn>; 2], BenchError> {
        let simulations = [
            Simulation::open(ANYWHERE, delays(delay)).await?,
            Simulation::open(ANYWHERE, delays(delay)).await?,
        ];
        let setup = |is_serial: bool| Setup {
            simulation: Some(&simulations[usize::from(!is_serial)]),
            is_serial,
            ..Setup::default()
        };
        let off = Server::start(self.program, cache, setup(true)).await?;
        let on = Server::start(self.program, cache, setup(false)).await?;
        let arms = [(&off, Some(&simulations[0])), (&on, Some(&simulations[1]))];
        let turns = self.ask(true, &format!("tool {delay:?}"), arms).await?;
        off.stop().await?;
        on.stop().await?;
        Ok(turns)
    }

    /// Asks two servers the same questions, one after the other, in random order. The first call of each is not counted.
    async fn ask(
        &self,
        wants_tool: bool,
        name: &str,
        arms: [(&Server, Option<&Simulation>); 2],
    ) -> Result<[Vec<Turn>; 2], BenchError> {
        let mut dice = Dice::named(self.settings.seed, &format!("spoken {name}"));
        let mut clips: Vec<&Clip> = self
            .clips
            .iter()
            .filter(|c| c.wants_tool == wants_tool)
            .collect();
        let mut turns = [Vec::new(), Vec::new()];
        let Some(first) = clips.first() else {
            return Ok(turns);
        };
        match self.settings.brief {
            true => clips.truncate(1),
            false => {
                for (server, simulation) in arms {
                    turn(server, simulation, first, false).await?;
                }
            }
        }
        for _ in 0..self.settings.repeat {
            let mut order = clips.clone();
            dice.shuffle(&mut order);
            for clip in order {
                let mut both = [0, 1];
                dice.shuffle(&mut both);
                for at in both {
                    let (server, simulation) = arms[at];
                    let turn = turn(server, simulation, clip, !wants_tool).await?;
                    tracing::debug!(name, arm = at, clip = clip.name, ?turn, "asked");
                    turns[at].push(turn);
                }
            }
        }
        Ok(turns)
    }

    async fn silence(&self, server: &Server) -> Result<f64, BenchError> {
        let before = server.cpu()?;
        let mut line = Line::open(&server.address).await?;
        line.be_silent(SILENCE).await?;
        line.close().await?;
        let cpu = server.cpu()?.saturating_sub(before);
        Ok(cpu.as_secs_f64() / SILENCE.as_secs_f64())
    }
}

fn delays(tool: Duration) -> Delays {
    Delays {
        answer: FIRST,
        token: Some(TOKEN),
        tool,
        ..Delays::default()
    }
}

#[allow(clippy::disallowed_methods, reason = "it measures, in real time")]
async fn turn(
    server: &Server,
    simulation: Option<&Simulation>,
    clip: &Clip,
    to_end: bool,
) -> Result<Turn, BenchError> {
    if let Some(simulation) = simulation {
        simulation.take_log();
    }
    let (began, before) = (Instant::now(), server.cpu()?);
    let mut line = Line::open(&server.address).await?;
    let awaited = simulation.map(|_| FORECAST_TOLD);
    let asked = line.ask(clip, awaited, to_end).await?;
    line.close().await?;
    Ok(Turn {
        heard: asked.heard,
        call: simulation.and_then(|simulation| call(&simulation.take_log(), asked.ended)),
        cpu: server.cpu()?.saturating_sub(before).as_secs_f64(),
        length: began.elapsed().as_secs_f64(),
    })
}

/// The last call of the model, and the run with its result. The log is newest first.
fn call(log: &[Logged], ended: Instant) -> Option<Call> {
    let after = |at: Instant| match at.checked_duration_since(ended) {
        Some(later) => later.as_secs_f64(),
        None => -(ended - at).as_secs_f64(),
    };
    let (wanted, committed) = log.iter().find_map(|logged| match logged {
        Logged::Called { city, at } => Some((city, after(*at))),
        Logged::Ran { .. } => None,
    })?;
    log.iter().find_map(|logged| match logged {
        Logged::Ran { city, began, ended } if city == wanted => Some(Call {
            committed,
            began: after(*began),
            ended: after(*ended),
        }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_commit_or_the_result_and_the_models_first_token() {
        let call = |committed, began| Call {
            committed,
            began,
            ended: 0.0,
        };
        let delay = Duration::from_secs(1);
        assert!((call(0.9, -0.5).floor(delay) - 0.99).abs() < 1e-9);
        assert!((call(0.9, -0.05).floor(delay) - 1.39).abs() < 1e-9);
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods, reason = "moments to compare")]
    async fn a_call_is_joined_with_the_run_for_its_city() {
        let end = Instant::now() + Duration::from_secs(9);
        let at = |ms: u64| end + Duration::from_millis(ms) - Duration::from_secs(1);
        let ran = |city: &str, began, ended| Logged::Ran {
            city: city.into(),
            began: at(began),
            ended: at(ended),
        };
        let called = |city: &str, ms| Logged::Called {
            city: city.into(),
            at: at(ms),
        };
        let log = [
            called("bonn", 1_800),
            ran("rome", 950, 1_250),
            ran("bonn", 900, 1_200),
        ];
        let call = call(&log, end).unwrap();
        assert!((call.committed - 0.8).abs() < 1e-6, "{call:?}");
        assert!((call.began + 0.1).abs() < 1e-6 && (call.ended - 0.2).abs() < 1e-6);
        assert!(super::call(&log[1..], end).is_none());
    }
}
