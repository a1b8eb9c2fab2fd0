//! Unit tests of the ledger; whole sessions are in `../../tests/speculation.rs`.

use super::*;
use crate::tools::{Effect, ToolSpec};
use serde_json::json;
use std::time::Duration;

fn at(ms: u64) -> Time {
    Time(ms * 1_000)
}

fn tool() -> Declaration {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: "weather".into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
    };
    Declaration::new(spec, Effect::Read, Duration::from_secs(1))
}

/// A speculative run of `track` that started at zero.
fn predicted(id: u64, track: u64) -> Run {
    Run {
        id: RunId(id),
        track: TrackId(track),
        tool: "weather".into(),
        declaration: None,
        arguments: Map::new(),
        key: Map::new(),
        predicted: Some(Predicted::by(Source::Rule, 0.9)),
        started: at(0),
        deferred: false,
        outcome: None,
        calls: Vec::new(),
        committed: None,
        cost: 0.0,
        stale: false,
        told: false,
    }
}

fn ledger(runs: impl IntoIterator<Item = Run>) -> Ledger {
    let mut ledger = Ledger::default();
    runs.into_iter().for_each(|run| ledger.insert(run));
    ledger
}

fn commit(ledger: &mut Ledger, id: u64, now: Time) {
    let run = ledger.get_mut(RunId(id)).unwrap();
    run.calls.push(CallId(id));
    run.committed = Some(now);
}

fn finish(ledger: &mut Ledger, id: u64, now: Time) -> bool {
    ledger.finish(RunId(id), now, Ok(json!("sunny")))
}

#[test]
fn only_open_uncommitted_runs_are_speculating() {
    let mut ledger = ledger((1..=4).map(|id| predicted(id, 0)));
    assert_eq!(ledger.speculating(), 4);
    finish(&mut ledger, 1, at(10));
    assert_eq!(ledger.speculating(), 3);
    commit(&mut ledger, 2, at(20));
    assert_eq!(ledger.speculating(), 2);
    commit(&mut ledger, 1, at(20));
    assert_eq!(ledger.speculating(), 2);
    ledger.discard(RunId(3), at(30), Discard::TurnEnded);
    assert_eq!(ledger.speculating(), 1);
}

#[test]
fn a_run_ends_once() {
    let mut ledger = ledger([predicted(1, 0), predicted(2, 0)]);
    assert!(finish(&mut ledger, 1, at(10)));
    assert!(!finish(&mut ledger, 1, at(20)), "it has its result");
    assert!(!finish(&mut ledger, 3, at(20)), "there is no such run");
    commit(&mut ledger, 1, at(20));
    assert_eq!(ledger.discard(RunId(1), at(30), Discard::TurnEnded), None);
    let discarded = ledger.discard(RunId(2), at(30), Discard::TurnEnded);
    assert_eq!(discarded, Some((Micros::from_ms(30), true)));
    assert!(!finish(&mut ledger, 2, at(40)), "it is dead");
    assert_eq!(ledger.discard(RunId(2), at(40), Discard::TurnEnded), None);
}

#[test]
fn closing_a_track_returns_its_own_runs_once() {
    let mut ledger = ledger([
        predicted(1, 7),
        predicted(2, 7),
        predicted(3, 8),
        predicted(4, 8),
        predicted(5, 7),
    ]);
    finish(&mut ledger, 1, at(10));
    for id in [1, 2, 3] {
        commit(&mut ledger, id, at(20));
    }
    ledger.discard(RunId(4), at(30), Discard::Superseded);
    ledger.discard(RunId(5), at(30), Discard::TurnEnded);
    let told = |ledger: &mut Ledger, track| {
        let records = ledger.close(TrackId(track), at(50)).into_iter();
        records.map(|record| record.run.0).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut ledger, 7), [5, 1, 2]);
    assert!(told(&mut ledger, 7).is_empty());
    assert!(ledger.get(RunId(1)).is_none(), "it owes nothing");
    assert!(ledger.get(RunId(2)).is_some(), "its call waits for it");
    assert_eq!(told(&mut ledger, 8), [4, 3]);
    finish(&mut ledger, 2, at(60));
    ledger.forget_told();
    assert!(ledger.get(RunId(2)).is_none());
    assert!(ledger.get(RunId(3)).is_some());
}

#[test]
fn a_record_says_how_much_was_saved_and_wasted() {
    let mut ledger = ledger((1..=5).map(|id| predicted(id, 0)));
    finish(&mut ledger, 1, at(300));
    commit(&mut ledger, 1, at(500));
    commit(&mut ledger, 2, at(400));
    finish(&mut ledger, 2, at(900));
    commit(&mut ledger, 3, at(250));
    finish(&mut ledger, 4, at(200));
    ledger.discard(RunId(4), at(600), Discard::TurnEnded);
    ledger.get_mut(RunId(5)).unwrap().predicted = None;
    commit(&mut ledger, 5, at(100));
    let records = ledger.close(TrackId(0), at(1_000)).into_iter();
    let times = records.map(|r| (r.run.0, r.saved.as_ms(), r.wasted.as_ms(), r.ok));
    assert_eq!(
        times.collect::<Vec<_>>(),
        [
            (4, 0, 200, true),
            (1, 300, 0, true),
            (2, 400, 0, true),
            (3, 250, 0, false),
            (5, 0, 0, false),
        ]
    );
}

#[test]
fn a_result_expires_after_its_ttl() {
    let mut tool = tool();
    tool.speculation.ttl = Duration::from_millis(100);
    let mut ledger = ledger([predicted(1, 0)]);
    let expired = |ledger: &Ledger, ms| ledger.is_expired(RunId(1), &tool, at(ms));
    assert!(!expired(&ledger, 5_000), "it runs still");
    finish(&mut ledger, 1, at(50));
    assert!(!expired(&ledger, 150));
    assert!(expired(&ledger, 151));
}
