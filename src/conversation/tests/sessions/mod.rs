//! Generated sessions of every kind with fixed seeds. As long as no rule changes, each replays byte for byte:
//! `digests.txt` has a digest of each.

mod coverage;
mod kinds;
mod model;
mod moves;

use super::*;
use crate::dice::Dice;
use crate::recording::{Recording, replay, tape};
use kinds::{KINDS, Kind};
use moves::Session;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Sessions of each kind.
const SEEDS: u64 = 40;

/// The random numbers of a session of this kind.
fn dice(kind: &Kind, seed: u64) -> Dice {
    let name = kind.name.bytes().fold(0, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    Dice::new(name.wrapping_mul(1_000).wrapping_add(seed))
}

/// The recordings of all sessions, by name.
static SESSIONS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let seeds = |kind| (0..SEEDS).map(move |seed| (kind, seed));
    let session = |(kind, seed): (&Kind, u64)| {
        let sim = Session::new(kind, seed).run();
        (format!("{}-{seed:02}", kind.name), sim.recording().into())
    };
    KINDS.iter().flat_map(seeds).map(session).collect()
});

/// A digest of all inputs and decisions. The header is left out, because it names the program's version.
fn digest(recording: &str) -> String {
    let (_, lines) = recording.split_once('\n').unwrap();
    let digest = Sha256::digest(lines);
    digest[..16].iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn sessions_match_their_digests() {
    let lines = include_str!("digests.txt").lines();
    let lines = lines.map(|line| line.split_once(' ').unwrap());
    let before: BTreeMap<&str, &str> = lines.collect();
    let same = |name: &str, recording| before.get(name) == Some(&digest(recording).as_str());
    let changed = SESSIONS.iter().filter(|(name, text)| !same(name, text));
    let changed: Vec<_> = changed.map(|(name, _)| name).collect();
    assert!(
        changed.is_empty(),
        "{} of {} sessions go otherwise than before: {changed:?}.\n\
         To see where, record them with the code as it was, and replay them with this code:\n  \
         RECORD_TO=target/golden cargo test --lib sessions_match_their_digests\n  \
         REPLAY_FROM=target/golden cargo test --lib recordings_in_a_folder -- --ignored\n\
         If a rule was changed on purpose, commit the new digests with it:\n  \
         cargo test --lib write_session_digests -- --ignored",
        changed.len(),
        SESSIONS.len(),
    );
    assert_eq!(
        before.len(),
        SESSIONS.len(),
        "digests.txt is of other sessions"
    );
}

#[test]
#[ignore = "rewrites digests.txt, after a rule was changed on purpose"]
fn write_session_digests() {
    let line = |(name, recording): (&String, &String)| format!("{name} {}\n", digest(recording));
    let lines: String = SESSIONS.iter().map(line).collect();
    tape::commit("src/conversation/tests/sessions/digests.txt", &lines);
}

#[test]
fn recorded_sessions_replay() {
    for (name, recording) in SESSIONS.iter() {
        let recording = Recording::read(recording.as_bytes()).unwrap();
        assert_eq!(replay(&recording).difference, None, "{name}");
    }
}

#[test]
fn sessions_cover_every_input_decision_and_outcome() {
    let mut seen = coverage::Seen::default();
    SESSIONS.values().for_each(|recording| seen.take(recording));
    assert_eq!(seen.missing(), Vec::<String>::new());
}
