//! Everything that a program has started, also what has left its group, its session and its parent.
//!
//! Two signs tell it: its parent is one of them, or its environment has the mark of the run. A program
//! that leaves its parents behind and empties its environment, too, is not found.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Processes started during a round of kills are killed in the next.
const MOST_ROUNDS: usize = 16;

/// A process as `/proc` tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    /// Ticks since the machine started: no other process of this number has the same.
    started: u64,
    /// It is not dead and waiting to be collected.
    lives: bool,
}

/// Kills all that descends from `leader` or carries `mark`, a `NAME=value` of its environment.
/// Where there is no `/proc` nothing is found.
pub(super) fn kill(leader: i32, mark: &str) {
    let mut known = BTreeSet::from([leader]);
    // Processes older than the leader, which most are, cannot be its children.
    let since = Process::read(leader).map_or(0, |leader| leader.started);
    for _ in 0..MOST_ROUNDS {
        let found = relatives(&mut known, mark, since);
        if found.is_empty() {
            return;
        }
        found.iter().for_each(kill_one);
    }
}

/// Living processes whose parent is among `known` or becomes so, and those with the mark.
fn relatives(known: &mut BTreeSet<i32>, mark: &str, since: u64) -> Vec<Process> {
    let mut others = processes();
    others.retain(|one| one.lives && one.started >= since);
    let mut found = Vec::new();
    loop {
        let (new, rest): (Vec<Process>, Vec<Process>) = others.into_iter().partition(|one| {
            known.contains(&one.id) || known.contains(&one.parent) || one.has(mark)
        });
        others = rest;
        if new.is_empty() {
            return found;
        }
        known.extend(new.iter().map(|one| one.id));
        found.extend(new);
    }
}

fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Process::read).collect()
}

impl Process {
    /// `None` if it is gone.
    fn read(id: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name before it may hold anything, brackets and spaces included.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self {
            id,
            parent,
            started,
            lives: !matches!(state, "Z" | "X" | "x"),
        })
    }

    fn has(&self, mark: &str) -> bool {
        let path = PathBuf::from(format!("/proc/{}/environ", self.id));
        let environment = std::fs::read(path).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == mark.as_bytes())
    }
}

/// Kills this very process, not one that has its number meanwhile.
fn kill_one(process: &Process) {
    let Some(id) = Pid::from_raw(process.id) else {
        return;
    };
    let handle = pidfd_open(id, PidfdFlags::empty());
    if Process::read(process.id).is_none_or(|now| now.started != process.started) {
        return;
    }
    // It may be gone already.
    let _ = match handle {
        Ok(handle) => pidfd_send_signal(handle, Signal::KILL),
        Err(_) => kill_process(id, Signal::KILL),
    };
}
