//! `capacity`: how many calls a core carries. Server and load are processes of their own, on a core each.

mod load;
mod part;
mod report;

pub use part::Part;

use super::clips::say;
use super::program::{Program, cpu, memory};
use super::report::Report;
use super::{BenchError, Settings};
use crate::audio::{to_f32, write_wav};
use load::Tally;
use part::{Kind, MEASURING, OPENING};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

/// The share of frames that may miss their time, and of answers that may fail to come.
const MISSES: f64 = 0.001;

/// The generator is the bound if it sends this much too late, 99th percentile, ms.
const GENERATOR_LAG: f64 = 20.0;

/// The time for which one level is measured.
const LENGTH: Duration = Duration::from_secs(5);

/// The longest wait for a process's next line.
const PATIENCE: Duration = Duration::from_mins(2);

/// After this a server that was started has its usual memory.
const SETTLING: Duration = Duration::from_millis(300);

/// The calls of each level, until one fails.
const LEVELS: [(Kind, &[usize]); 3] = [
    (Kind::Echo, &[250, 1_000]),
    (Kind::Stubs, &[250, 500, 1_000, 2_000]),
    (Kind::Detector, &[50, 100, 200, 400]),
];

/// The words that callers of a real detector say.
const WORDS: (&str, &str) = ("en-us", "Could you tell me how all of this works, please?");

/// The figures of one number of calls.
#[derive(Debug, Clone)]
struct Level {
    kind: Kind,
    calls: usize,
    tally: Tally,
    /// CPU time of the server and of the generator, s.
    cpu: f64,
    generator: f64,
    /// The growth of the server's own memory, half-way through the measured time, bytes a call.
    memory: f64,
}

impl Level {
    /// CPU time of the server for a frame in and a frame out, µs.
    fn pair(&self) -> f64 {
        1e6 * self.cpu / self.tally.sent.max(1) as f64
    }

    fn late(&self) -> f64 {
        self.tally.late as f64 / self.tally.heard.max(1) as f64
    }

    fn unanswered(&self) -> f64 {
        self.tally.unanswered as f64 / self.tally.asked.max(1) as f64
    }

    fn holds(&self) -> bool {
        let is_whole = self.tally.refused == 0 && self.tally.heard > 0;
        is_whole && self.late() <= MISSES && self.unanswered() <= MISSES && !self.is_generators()
    }

    /// The generator could not keep up, so the level says nothing of the server.
    fn is_generators(&self) -> bool {
        self.tally.lag_ms > GENERATOR_LAG
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let program = settings.program()?;
    let levels = super::in_real_time(measure(program, settings.brief))?;
    Ok(report::report(settings, &levels, cores()))
}

/// The cores that are used: one for all, or one each.
fn cores() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(2)
}

async fn measure(program: &Program, brief: bool) -> Result<Vec<Level>, BenchError> {
    let folder = tempfile::tempdir().map_err(wrong)?;
    let clip = folder.path().join("words.wav");
    write_clip(&clip)?;
    let mut levels = Vec::new();
    for (kind, calls) in LEVELS {
        let calls = match brief {
            true => &[4][..],
            false => calls,
        };
        for calls in calls {
            let level = level(program, kind, *calls, &clip, brief).await?;
            tracing::debug!(?level, "measured");
            let holds = level.holds();
            levels.push(level);
            if !holds {
                break;
            }
        }
    }
    Ok(levels)
}

fn write_clip(path: &Path) -> Result<(), BenchError> {
    let words = say(WORDS.0, WORDS.1)?;
    let file = BufWriter::new(File::create(path).map_err(wrong)?);
    write_wav(file, super::listener::RATE, &to_f32(&words)).map_err(wrong)
}

async fn level(
    program: &Program,
    kind: Kind,
    calls: usize,
    clip: &Path,
    brief: bool,
) -> Result<Level, BenchError> {
    let length = match brief {
        true => Duration::from_secs(1),
        false => LENGTH,
    };
    let core = |number: usize| (cores() > 1).then_some(number);
    let server = Part::Server {
        kind,
        calls,
        models: program.models.clone(),
        core: core(0),
    };
    let mut server = Process::start(&program.file, &server)?;
    let address = server.line().await?;
    sleep(SETTLING).await;
    let empty = memory(server.child.id())?;
    let load = Part::Load {
        address,
        kind,
        calls,
        seconds: length.as_secs_f64(),
        clip: PathBuf::from(clip),
        core: core(1),
    };
    let mut load = Process::start(&program.file, &load)?;
    for awaited in [OPENING, MEASURING] {
        let line = load.line().await?;
        if line != awaited {
            return Err(wrong(format!(
                "the load said {line:?} instead of {awaited:?}"
            )));
        }
    }
    let before = times(&server, &load)?;
    // While the calls are open.
    sleep(length / 2).await;
    let full = memory(server.child.id())?;
    let tally = load.line().await?;
    let after = times(&server, &load)?;
    Ok(Level {
        kind,
        calls,
        tally: serde_json::from_str(&tally).map_err(wrong)?,
        cpu: after.0.saturating_sub(before.0).as_secs_f64(),
        generator: after.1.saturating_sub(before.1).as_secs_f64(),
        memory: full.saturating_sub(empty) as f64 / calls as f64,
    })
}

/// The CPU times of both so far.
fn times(server: &Process, load: &Process) -> Result<(Duration, Duration), BenchError> {
    Ok((cpu(server.child.id())?, cpu(load.child.id())?))
}

/// A process of this bench. It ends when this is dropped.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(program: &Path, part: &Part) -> Result<Self, BenchError> {
        let mut child = Command::new(program)
            .args(part.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(wrong)?;
        let stdout = child.stdout.take();
        let stdout = stdout.ok_or_else(|| wrong("its output is not read"))?;
        Ok(Self {
            child,
            lines: BufReader::new(stdout).lines(),
        })
    }

    async fn line(&mut self) -> Result<String, BenchError> {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.map_err(wrong)?.map_err(wrong)?;
        line.ok_or_else(|| wrong("it ended early; its error is above"))
    }
}

fn wrong(reason: impl std::fmt::Display) -> BenchError {
    BenchError::sockets("a process of the bench", reason)
}
