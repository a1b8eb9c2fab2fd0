//! Sessions whose client runs its own tool before the model has called it.

use super::sim::{Script, Sim, Step, call_with, end, may_run_early, say};
use super::*;
use crate::llm::Message;
use crate::prediction::{Prediction, Source};
use crate::tools::{Eligibility, ToolError};
use serde_json::{Value, json};

const QUESTION: &str = "what is the weather in boulder";

/// A session in which rules predict the weather for the last word, and the client takes `tool_ms`.
fn session(scripts: impl IntoIterator<Item = Script>, tool_ms: u64) -> Sim {
    let mut sim = Sim::new(Policy::default());
    predict(&mut sim);
    sim.tool_ms = tool_ms;
    sim.scripts.extend(scripts);
    sim.client_lends(&["weather"], &["weather"]);
    sim
}

fn predict(sim: &mut Sim) {
    sim.router = Box::new(|heard| {
        let city = heard.text.split(' ').next_back().unwrap_or_default();
        let weather = Prediction {
            tool: "weather".into(),
            arguments: json!({ "city": city }).as_object().cloned().unwrap(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        };
        let known = heard.text.contains("weather");
        known.then_some(weather).into_iter().collect()
    });
}

fn calling(city: &str, ms: u64) -> Script {
    let mut script = vec![
        Step::Wait(330),
        say("Checking the forecast for you. "),
        Step::Wait(ms),
    ];
    script.extend(call_with("weather", json!({ "city": city })));
    script.push(end());
    script
}

fn answering() -> Script {
    vec![Step::Wait(330), say("It is sunny."), end()]
}

/// The early calls of the client, by their runs, and whether each was committed at its start.
fn early(sim: &Sim) -> Vec<(RunId, bool)> {
    let runs = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::StartTool {
            run,
            committed,
            by_client: true,
            ..
        } => Some((*run, committed.is_some())),
        _ => None,
    });
    runs.collect()
}

/// The committed calls of the client, and whether each had begun early.
fn called(sim: &Sim) -> Vec<bool> {
    let calls = sim.events.iter().filter_map(|(_, event)| match event {
        Event::ToolCalled {
            by_client: true,
            run,
            ..
        } => Some(run.is_some()),
        _ => None,
    });
    calls.collect()
}

fn outputs(sim: &Sim) -> Vec<Value> {
    let added = sim.events.iter().filter_map(|(_, event)| match event {
        Event::OutputAdded { output, .. } => Some(output.clone()),
        _ => None,
    });
    added.collect()
}

fn discards(sim: &Sim) -> Vec<Discard> {
    let discarded = sim.events.iter().filter_map(|(_, event)| match event {
        Event::Speculation(SpeculationEvent::Discarded { reason, .. }) => Some(*reason),
        _ => None,
    });
    discarded.collect()
}

#[test]
fn the_client_runs_its_tool_while_the_user_speaks() {
    let mut sim = session([calling("boulder", 100), answering()], 500);
    ask(&mut sim, QUESTION, 10_000);
    assert_eq!(early(&sim).len(), 1);
    assert!(!early(&sim)[0].1, "it was not committed then");
    assert_eq!(called(&sim), [true]);
    assert_eq!(sim.spoken().last().unwrap(), "It is sunny.");
    assert_eq!(
        sim.ended(),
        [ResponseStatus::Completed],
        "in the same response"
    );
    let output = json!("weather of {\"city\":\"boulder\"}");
    assert_eq!(outputs(&sim), [output]);
    let messages = sim.core.history.messages();
    let called = messages
        .iter()
        .position(|m| matches!(m, Message::ToolCall { .. }));
    let at = called.expect("a call");
    assert!(matches!(&messages[at + 1], Message::ToolResult { .. }));
    let record = &sim.records()[0];
    assert!(matches!(record.runs[0].fate, Fate::Committed { .. }));
    assert!(record.runs[0].saved > Micros(0), "{record:?}");
}

#[test]
fn the_answer_to_an_early_output_is_generated_before_the_commit() {
    let mut sim = session([calling("boulder", 100), answering()], 100);
    ask(&mut sim, QUESTION, 10_000);
    let record = &sim.records()[0];
    let assumed: Vec<_> = record.held.iter().filter(|h| h.tool.is_some()).collect();
    assert!(assumed.len() == 1 && assumed[0].used, "{:?}", record.held);
    assert_eq!(sim.spoken(), ["It is sunny."]);
    assert_eq!(outputs(&sim).len(), 1);
}

#[test]
fn an_output_that_comes_after_the_commit_is_waited_for() {
    let mut sim = session([calling("boulder", 100), answering()], 3_000);
    ask(&mut sim, QUESTION, 10_000);
    assert_eq!(called(&sim), [true]);
    assert_eq!(outputs(&sim).len(), 1);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    assert_eq!(sim.spoken().last().unwrap(), "It is sunny.");
}

#[test]
fn a_wrong_guess_leaves_no_trace() {
    let mut sim = session(
        [vec![Step::Wait(330), say("All right, I won't."), end()]],
        100,
    );
    ask(&mut sim, "i do not want to hear the weather", 8_000);
    assert_eq!(early(&sim).len(), 1);
    assert!(called(&sim).is_empty());
    assert_eq!(outputs(&sim), [] as [Value; 0]);
    assert_eq!(discards(&sim), [Discard::TurnEnded]);
    assert_eq!(sim.core.history.messages().len(), 2);
}

#[test]
fn other_arguments_are_an_ordinary_call() {
    let mut sim = session([calling("denver", 100)], 100);
    ask(&mut sim, QUESTION, 8_000);
    assert_eq!(early(&sim).len(), 1);
    assert_eq!(called(&sim), [false], "the client runs it now");
    assert_eq!(outputs(&sim), [] as [Value; 0]);
    assert_eq!(discards(&sim), [Discard::TurnEnded]);
    assert_eq!(sim.spoken(), ["Checking the forecast for you."]);
}

#[test]
fn a_call_that_the_client_has_is_not_begun_again() {
    let mut sim = session([calling("boulder", 100)], 100);
    sim.router_ms = 2_000;
    ask(&mut sim, QUESTION, 8_000);
    assert_eq!(called(&sim), [false]);
    assert!(early(&sim).is_empty(), "{:?}", early(&sim));
    let predictions = &sim.records()[0].predictions;
    assert!(predictions.iter().any(|p| p.decision == Decision::Known));
}

#[test]
fn without_permission_nothing_runs_early() {
    for setting in ["tools", "speculation", "operator"] {
        let mut sim = session([calling("boulder", 100)], 100);
        match setting {
            "tools" => sim.client_has(&["weather"]),
            "speculation" => sim.input(Input::Configure(Box::new(Settings {
                speculation: Some(false),
                ..Settings::default()
            }))),
            _ => sim.policy().speculation.enabled = false,
        }
        ask(&mut sim, QUESTION, 8_000);
        assert!(early(&sim).is_empty(), "{setting}");
        assert_eq!(called(&sim), [false], "{setting}");
    }
}

#[test]
fn a_tool_that_the_client_removes_or_changes_is_withdrawn() {
    for (names, early_ones) in [(&[][..], &[][..]), (&["weather"], &[])] {
        let mut sim = session([calling("boulder", 100)], 5_000);
        sim.speak(QUESTION, 1_000);
        assert_eq!(early(&sim).len(), 1);
        sim.client_lends(names, early_ones);
        assert_eq!(discards(&sim), [Discard::Withdrawn]);
        sim.silence(8_000);
        assert_eq!(outputs(&sim), [] as [Value; 0]);
    }
    let mut same = session([calling("boulder", 100), answering()], 500);
    same.speak(QUESTION, 1_000);
    same.client_lends(&["weather"], &["weather"]);
    same.silence(8_000);
    assert!(discards(&same).is_empty());
    assert_eq!(outputs(&same).len(), 1);
}

#[test]
fn the_server_s_run_does_not_answer_the_client_s_call() {
    let mut tool = (*tool("weather", Effect::Read)).clone();
    tool.speculation.eligibility = Eligibility::Full;
    let mut sim = Sim::new(with(vec![tool]));
    predict(&mut sim);
    sim.tool_ms = 100;
    sim.scripts.push_back(calling("boulder", 100));
    sim.speak(QUESTION, 1_000);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    sim.client_lends(&["weather"], &["weather"]);
    assert_eq!(discards(&sim), [Discard::Withdrawn]);
    sim.silence(8_000);
    assert!(!sim.saw(|event| matches!(
        event,
        Event::ToolCalled {
            by_client: false,
            ..
        }
    )));
}

#[test]
fn a_response_with_its_own_tools_does_not_take_an_early_output() {
    let mut sim = session([calling("boulder", 100)], 100);
    let tools = Some(vec![tool("weather", Effect::Read).spec.clone()]);
    typed(&mut sim, QUESTION);
    sim.input(Input::RespondWith(Box::new(ResponseTerms {
        tools,
        ..ResponseTerms::default()
    })));
    sim.silence(8_000);
    assert_eq!(called(&sim), [false]);
    assert_eq!(outputs(&sim), [] as [Value; 0]);
}

#[test]
fn speech_over_the_answer_discards_an_early_call() {
    let mut sim = session(
        [vec![
            Step::Wait(100),
            say("Let me think about that for you now."),
            Step::Wait(9_000),
            end(),
        ]],
        20_000,
    );
    ask(&mut sim, QUESTION, 1_500);
    assert_eq!(early(&sim).len(), 1);
    ask(&mut sim, "never mind that", 3_000);
    assert!(discards(&sim).contains(&Discard::Interrupted));
    assert!(called(&sim).is_empty());
}

#[test]
fn an_output_joins_the_history_although_the_user_has_interrupted() {
    let mut sim = session([calling("boulder", 100)], 6_000);
    ask(&mut sim, QUESTION, 2_000);
    assert_eq!(called(&sim), [true]);
    ask(&mut sim, "never mind that", 9_000);
    assert_eq!(outputs(&sim).len(), 1);
    let messages = sim.core.history.messages();
    let results = messages
        .iter()
        .filter(|m| matches!(m, Message::ToolResult { .. }));
    assert_eq!(results.count(), 1);
}

#[test]
fn a_client_that_never_answers_is_given_up() {
    let mut sim = session([calling("boulder", 100), answering()], 60_000);
    ask(&mut sim, QUESTION, 4_000);
    assert_eq!(called(&sim), [true]);
    let run = early(&sim)[0].0;
    let result = Err(ToolError::Timeout(30_000));
    sim.input(Input::ToolFinished { run, result });
    sim.silence(8_000);
    assert_eq!(
        outputs(&sim),
        [json!({"error": "it took too long to answer"})]
    );
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn a_permission_belongs_to_a_tool() {
    let mut sim = Sim::new(Policy::default());
    predict(&mut sim);
    sim.input(Input::Configure(Box::new(Settings {
        tools: Some(Vec::new()),
        early: vec![may_run_early("weather")],
        ..Settings::default()
    })));
    ask(&mut sim, QUESTION, 3_000);
    assert!(early(&sim).is_empty());
}
