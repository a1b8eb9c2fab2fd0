//! Whatever happens in whatever order, these hold.

use super::super::*;
use super::sim::{Sim, Step, call, end, say};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Move {
    Speak(u64, &'static str),
    Silence(u64),
    Cancel,
    Commit,
    Clear,
    Respond,
    Announce,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let words = prop::sample::select(vec!["", "what time is it", "set a timer for", "stop"]);
    let one = prop_oneof![
        4 => (32u64..1_500, words).prop_map(|(ms, words)| Move::Speak(ms, words)),
        4 => (32u64..4_000).prop_map(Move::Silence),
        1 => Just(Move::Cancel),
        1 => Just(Move::Commit),
        1 => Just(Move::Clear),
        1 => Just(Move::Respond),
        1 => Just(Move::Announce),
    ];
    prop::collection::vec(one, 1..12)
}

fn scripts() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        4 => Just(vec![say("Some words to say. ")]),
        2 => Just(call("clock").to_vec()),
        1 => Just(call("broken").to_vec()),
        1 => (0u64..6_000).prop_map(|ms| vec![Step::Wait(ms)]),
        1 => Just(vec![Step::Break]),
    ];
    let script = prop::collection::vec(step, 0..4).prop_map(|steps| {
        let mut script: Vec<Step> = steps.into_iter().flatten().collect();
        script.push(end());
        script
    });
    prop::collection::vec(script, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn invariants_hold_for_any_interleaving(
        moves in moves(),
        scripts in scripts(),
        completeness in 0f32..1.0,
        tool_ms in 0u64..3_000,
        asr_fails in prop::bool::weighted(0.1),
    ) {
        let mut sim = Sim::new(Policy::default());
        sim.scripts.extend(scripts);
        sim.completeness = completeness;
        sim.tool_ms = tool_ms;
        sim.asr_fails = asr_fails;
        for step in moves {
            match step {
                Move::Speak(ms, words) => sim.speak(words, ms),
                Move::Silence(ms) => sim.silence(ms),
                Move::Cancel => sim.input(Input::CancelResponse),
                Move::Commit => sim.input(Input::CommitAudio),
                Move::Clear => sim.input(Input::ClearAudio),
                Move::Respond => sim.input(Input::Respond { instructions: None }),
                Move::Announce => sim.input(Input::Announce { text: "Ding dong.".into() }),
            }
        }
        sim.silence(60_000);
        responses_do_not_overlap(&sim)?;
        nothing_flushed_is_sent(&sim)?;
        tools_run_once_and_only_when_committed(&sim)?;
        prop_assert!(sim.core.response.is_none() && sim.core.utterance.is_none(), "it ends");
    }
}

fn responses_do_not_overlap(sim: &Sim) -> Result<(), TestCaseError> {
    let mut open = None;
    for (_, event) in &sim.events {
        match event {
            Event::ResponseStarted { turn } => {
                prop_assert_eq!(open.replace(*turn), None);
            }
            Event::ResponseDone { turn, .. } => prop_assert_eq!(open.take(), Some(*turn)),
            Event::AgentSpeech { .. } | Event::AgentItemStarted { .. } => {
                prop_assert!(open.is_some(), "speech outside of a response");
            }
            _ => {}
        }
    }
    prop_assert_eq!(open, None);
    Ok(())
}

fn nothing_flushed_is_sent(sim: &Sim) -> Result<(), TestCaseError> {
    let flushes = sim
        .outputs
        .iter()
        .filter(|(_, o)| *o == Output::Flush)
        .map(|(at, _)| *at);
    for at in flushes {
        let asked_before = |id: &ClauseId| {
            sim.outputs.iter().any(|(when, o)| {
                *when < at && matches!(o, Output::Speak { clause, .. } if clause == id)
            })
        };
        let stale = sim
            .sent
            .iter()
            .find(|(when, id)| *when > at && asked_before(id));
        prop_assert_eq!(stale, None);
    }
    Ok(())
}

fn tools_run_once_and_only_when_committed(sim: &Sim) -> Result<(), TestCaseError> {
    let called: Vec<_> = sim
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            Event::ToolCalled {
                call,
                by_client: false,
                ..
            } => Some(*call),
            _ => None,
        })
        .collect();
    let started: Vec<_> = sim
        .outputs
        .iter()
        .filter_map(|(_, o)| match o {
            Output::StartTool { call, .. } => Some(*call),
            _ => None,
        })
        .collect();
    prop_assert_eq!(called, started);
    Ok(())
}
