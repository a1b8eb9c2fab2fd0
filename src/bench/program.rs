//! Processes of this program: the server as users run it, and what the system tells of a process.

use super::BenchError;
use super::simulated::{MODEL, Simulation};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The longest start, in which all models are verified and loaded.
const START: Duration = Duration::from_mins(2);

/// The longest time that a server may take to stop.
const STOP: Duration = Duration::from_secs(30);

/// This program and the models that its server loads.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program's file.
    pub file: PathBuf,
    /// The folder with the models.
    pub models: PathBuf,
}

/// The settings of a server that are not the default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Setup<'a> {
    /// Its model and its tool; without one it has the local brain.
    pub(super) simulation: Option<&'a Simulation>,
    /// Tools never run early.
    pub(super) is_serial: bool,
    /// A folder for recordings of the sessions.
    pub(super) recordings: Option<&'a Path>,
    /// The most sessions; by default the server's own default.
    pub(super) sessions: Option<usize>,
}

/// A running `undertone serve`. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    /// Host and port.
    pub(super) address: String,
    _folder: TempDir,
}

impl Server {
    /// Starts it with the default settings but for `setup`, and waits until it serves. What it keeps for later starts
    /// goes to `cache`.
    pub(super) async fn start(
        program: &Program,
        cache: &Path,
        setup: Setup<'_>,
    ) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(wrong)?;
        write(folder.path(), setup).map_err(wrong)?;
        let mut command = Command::new(&program.file);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("UNDERTONE_") {
                command.env_remove(name);
            }
        }
        command.arg("serve");
        if let Some(folder) = setup.recordings {
            command.arg("--record").arg(folder);
        }
        command
            .current_dir(folder.path())
            .env("UNDERTONE_MODELS", &program.models)
            .env("XDG_CACHE_HOME", cache)
            .env("XDG_STATE_HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().map_err(wrong)?;
        let line = first_line(&mut process).await?;
        let address = line.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self {
            process,
            address,
            _folder: folder,
        })
    }

    /// The CPU time of it and its children so far.
    pub(super) fn cpu(&self) -> Result<Duration, BenchError> {
        cpu(self.process.id())
    }

    /// Stops it.
    pub(super) async fn stop(mut self) -> Result<(), BenchError> {
        if let Some(id) = self.process.id().and_then(pid) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM).map_err(wrong)?;
        }
        let ended = timeout(STOP, self.process.wait()).await;
        ended.map_err(wrong)?.map_err(wrong)?;
        Ok(())
    }
}

/// The first line that a process prints.
pub(super) async fn first_line(process: &mut Child) -> Result<String, BenchError> {
    let stdout = process.stdout.take();
    let stdout = stdout.ok_or_else(|| wrong("its output is not read"))?;
    let mut lines = BufReader::new(stdout).lines();
    let line = timeout(START, lines.next_line()).await;
    let line = line.map_err(wrong)?.map_err(wrong)?;
    // The rest is read and dropped, so that printing never fails.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    line.ok_or_else(|| wrong("it ended at once; its error is above"))
}

fn write(folder: &Path, setup: Setup<'_>) -> std::io::Result<()> {
    let mut settings = "[log]\nlevel = \"warn\"\n[server]\nport = 0\n".to_owned();
    let tools = folder.join("tools");
    fs::create_dir(&tools)?;
    if let Some(sessions) = setup.sessions {
        settings += &format!("max_sessions = {sessions}\n");
    }
    if let Some(simulation) = setup.simulation {
        settings += &format!(
            "[llm]\nengine = \"openai-compatible\"\nmodel = \"{MODEL}\"\nbase_url = \"{}\"\n",
            simulation.base_url()
        );
        let (name, text) = simulation.declaration();
        fs::write(tools.join(name), text)?;
    }
    if setup.is_serial {
        settings += "[speculation]\nenabled = false\n";
    }
    fs::write(folder.join("undertone.toml"), settings)
}

fn wrong(reason: impl std::fmt::Display) -> BenchError {
    BenchError::sockets("the server's process", reason)
}

fn pid(id: u32) -> Option<rustix::process::Pid> {
    i32::try_from(id)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
}

/// The CPU time of a process and its living children.
pub(super) fn cpu(id: Option<u32>) -> Result<Duration, BenchError> {
    let id = id.ok_or_else(|| wrong("it has ended"))?;
    let own = fs::read_to_string(format!("/proc/{id}/stat")).map_err(wrong)?;
    let mut ticks = ticks(&own);
    for child in children(id) {
        // A child may end in between.
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        ticks += self::ticks(&stat);
    }
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(Duration::from_secs_f64(ticks as f64 / per_second))
}

fn children(id: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task"))
        .into_iter()
        .flatten();
    let lists = tasks.flatten().filter_map(|task| {
        let list = fs::read_to_string(task.path().join("children"));
        list.ok()
    });
    let ids = lists.flat_map(|list| {
        let ids = list.split_whitespace().filter_map(|id| id.parse().ok());
        ids.collect::<Vec<u32>>()
    });
    ids.collect()
}

/// User and system time in a line of `/proc/PID/stat`. The name of the program may contain anything.
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// The resident memory that is a process's own, bytes. Pages of files, such as the weights of models, are shared and do
/// not count.
pub(super) fn memory(id: Option<u32>) -> Result<u64, BenchError> {
    let id = id.ok_or_else(|| wrong("it has ended"))?;
    let status = fs::read_to_string(format!("/proc/{id}/status")).map_err(wrong)?;
    anonymous(&status).ok_or_else(|| wrong("the system tells no RssAnon of it"))
}

fn anonymous(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(1024 * kilobytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_are_found_in_the_systems_words() {
        let stat = "7 (a ) name) S 1 7 7 0 -1 4194304 2 3 0 0 120 30 9 9 20 0 4 0 77 1 1";
        assert_eq!(ticks(stat), 150);
        assert_eq!(ticks(""), 0);
        let status = "Name:\tx\nVmRSS:\t  9000 kB\nRssAnon:\t  2048 kB\nThreads:\t3\n";
        assert_eq!(anonymous(status), Some(2 << 20));
        assert_eq!(anonymous("Name:\tx\n"), None, "of a process that has ended");
    }

    #[test]
    fn this_process_takes_time_and_memory() {
        let id = Some(std::process::id());
        let held = std::hint::black_box(vec![1_u8; 8 << 20]);
        assert!(memory(id).unwrap() > 1 << 20);
        drop(held);
        cpu(id).unwrap();
    }
}
