use super::*;
use crate::asr::{TurnReport, TurnState};
use crate::conversation::{
    CallId, ClauseId, Conversation, Experience, Job, Micros, Opening, RequestId, RunId, Samples,
    Time,
};
use crate::llm::LlmEvent;
use crate::prediction::{Prediction, Source};
use crate::tools::{Declaration, Effect, Eligibility, ToolError, ToolSpec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

fn policy() -> Policy {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: "weather".into(),
        description: "The weather".into(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
    };
    let mut tool = Declaration::new(spec, Effect::Read, Duration::from_millis(1_234));
    tool.speculation.eligibility = Eligibility::Full;
    tool.speculation.cost = 0.1 + 0.2;
    Policy {
        opening: Opening::greeting("Hello there."),
        tools: Arc::new(vec![Arc::new(tool)]),
        ..Policy::default()
    }
}

/// Floats of every size, including some that a parser with double rounding reads wrongly.
fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        prop::num::f64::NORMAL,
        Just(0.1 + 0.2),
        Just(5e-324),
        Just(1.797_693_134_862_315_7e308),
    ]
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    (
        floats(),
        prop::sample::select(vec!["Boulder", "Rome \"\u{1F600}\n"]),
    )
        .prop_map(|(number, city)| {
            let arguments = json!({"z": number, "city": city, "a": [null, true, -1, u64::MAX]});
            arguments.as_object().cloned().unwrap_or_default()
        })
}

/// Any input. Ids are few, so that many inputs match jobs that are running.
fn inputs() -> impl Strategy<Value = Input> {
    let request = || (0u64..8).prop_map(RequestId);
    let turn_state = prop::sample::select(vec![
        TurnState::Open,
        TurnState::PerhapsOver,
        TurnState::Resumed,
        TurnState::Over,
    ]);
    let clause = || (0u64..6).prop_map(ClauseId);
    let text = || prop::sample::select(vec!["", "what is the weather in Boulder", "yes", "stop."]);
    let event = prop_oneof![
        text().prop_map(|text| LlmEvent::Speech { text: text.into() }),
        Just(LlmEvent::ToolOpened {
            name: "weather".into()
        }),
        arguments().prop_map(|arguments| LlmEvent::ToolClosed {
            arguments: Ok(arguments)
        }),
        Just(LlmEvent::End),
    ];
    let result = prop_oneof![
        arguments().prop_map(|value| Ok(Value::Object(value))),
        Just(Err(ToolError::Failed("down".into()))),
    ];
    prop_oneof![
        8 => (0u64..200, 0f32..1.0, -60i16..0).prop_map(|(window, probability, level)| Input::Vad {
            end: Samples(512 * window),
            probability,
            level,
        }),
        4 => (request(), text(), any::<bool>()).prop_map(|(request, text, provisional)| Input::Transcript {
            request,
            text: text.into(),
            marks: None,
            doubt: None,
            provisional,
        }),
        2 => (request(), 0f32..1.0).prop_map(|(request, probability)| Input::Completeness {
            request,
            probability,
        }),
        2 => (turn_state, 0u64..200).prop_map(|(state, window)| {
            let to = Samples(512 * window);
            Input::TurnJudged(TurnReport { state, to })
        }),
        6 => (request(), event).prop_map(|(request, event)| Input::Llm { request, event }),
        3 => (request(), arguments(), 0f32..1.0).prop_map(|(request, arguments, confidence)| {
            let prediction = Prediction {
                tool: "weather".into(),
                arguments,
                confidence,
                source: Source::Rule,
                open: Vec::new(),
            };
            Input::Predicted { request, predictions: vec![prediction] }
        }),
        2 => ((0u64..8).prop_map(RunId), result).prop_map(|(run, result)| {
            Input::ToolFinished { run, result }
        }),
        3 => (
            clause(),
            0u64..2_000_000,
            any::<bool>(),
            prop::collection::vec((0u64..2_000_000).prop_map(Micros), 0..3),
        )
            .prop_map(|(clause, length, last, word_ends)| {
                Input::Synthesised { clause, length: Micros(length), last, word_ends }
            }),
        3 => (clause(), 0u64..2_000_000).prop_map(|(clause, until)| Input::Sent {
            clause,
            until: Micros(until),
        }),
        1 => request().prop_map(|request| Input::Failed {
            job: Job::Generation(request),
            reason: "down".into(),
        }),
        1 => text().prop_map(|text| Input::Announce { text: text.into() }),
        1 => Just(Input::CommitAudio),
        1 => Just(Input::Respond { instructions: None }),
        1 => (0u64..8, any::<bool>()).prop_map(|(call, accepted)| Input::Confirm {
            call: CallId(call),
            accepted,
        }),
    ]
}

/// The recording of a session with these inputs, each with its delay after the previous one in ms.
fn record(happened: Vec<(u64, Option<Input>)>) -> String {
    let mut lines =
        vec![serde_json::to_string(&Header::new(policy(), Experience::default())).unwrap()];
    let mut conversation = Conversation::new(policy());
    let decided = |conversation: &mut Conversation, lines: &mut Vec<String>| {
        while let Some(output) = conversation.poll_output() {
            lines.push(replay::text_of(output));
        }
    };
    decided(&mut conversation, &mut lines);
    let mut now = Time(0);
    for (ms, input) in happened {
        now = now + Micros(ms * 1_000 + 7);
        lines.push(serde_json::to_string(&RecordingLine::step(now, input.clone())).unwrap());
        match input {
            Some(input) => conversation.handle_input(now, input),
            None => conversation.handle_timeout(now),
        }
        decided(&mut conversation, &mut lines);
    }
    lines.push(serde_json::to_string(&RecordingLine::end()).unwrap());
    lines.join("\n") + "\n"
}

/// One utterance: speech, then silence.
fn one_turn() -> String {
    let mut happened = Vec::new();
    for window in 1..60 {
        let probability = if window < 20 { 0.95 } else { 0.01 };
        let vad = Input::Vad {
            end: Samples(512 * window),
            probability,
            level: -20,
        };
        happened.push((32, Some(vad)));
        happened.push((0, None));
    }
    record(happened)
}

fn read(text: &str) -> Result<Recording, RecordingError> {
    Recording::read(text.as_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_session_replays(
        happened in prop::collection::vec((0u64..700, prop::option::weighted(0.85, inputs())), 0..60),
    ) {
        let text = record(happened);
        let recording = read(&text).unwrap();
        let replayed = replay(&recording);
        prop_assert_eq!(&replayed.difference, &None);
        prop_assert!(replayed.complete);
        let outputs = text.lines().filter(|line| line.starts_with(r#"{"output""#)).count();
        prop_assert_eq!(replayed.outputs, outputs);
    }

    #[test]
    fn numbers_survive_serialisation(number in floats(), small in any::<f32>()) {
        let text = serde_json::to_string(&number).unwrap();
        let read: f64 = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.to_bits(), number.to_bits());
        prop_assume!(small.is_finite());
        let vad = Input::Vad {
            end: Samples(1),
            probability: small,
            level: -20,
        };
        let text = serde_json::to_string(&vad).unwrap();
        prop_assert_eq!(serde_json::from_str::<Input>(&text).unwrap(), vad);
    }
}

#[test]
fn a_changed_decision_is_found() {
    let text = one_turn();
    let number = text
        .lines()
        .position(|line| line.contains(r#""decision":"transcribe""#))
        .expect("something is transcribed");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let original = lines[number].clone();
    lines[number] = original.replace(r#""from":0"#, r#""from":1"#);
    assert_ne!(lines[number], original);
    let difference = replay(&read(&lines.join("\n")).unwrap()).difference;
    let difference = difference.expect("the changed line");
    assert_eq!(difference.line, number + 1);
    assert_eq!(difference.recorded.as_ref(), Some(&lines[number]));
    assert_eq!(difference.replayed, Some(original));
}

#[test]
fn a_changed_input_and_a_removed_decision_are_found() {
    let text = one_turn();
    let loud = text.replacen("\"probability\":0.95", "\"probability\":0.05", 17);
    assert_ne!(loud, text);
    assert!(replay(&read(&loud).unwrap()).difference.is_some());
    let number = text
        .lines()
        .position(|line| line.starts_with(r#"{"output""#))
        .unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.remove(number);
    let difference = replay(&read(&(lines.join("\n") + "\n")).unwrap()).difference;
    assert_eq!(difference.unwrap().line, number + 1);
}

#[test]
fn a_truncated_recording_replays_as_far_as_it_goes() {
    let text = one_turn();
    for cut in (text.find('\n').unwrap() + 1..text.len() - 1).step_by(97) {
        if !text.is_char_boundary(cut) {
            continue;
        }
        let recording = read(&text[..cut]).unwrap();
        let replayed = replay(&recording);
        assert_eq!(replayed.difference, None, "cut at {cut}");
        assert!(!replayed.complete);
    }
}

#[test]
fn a_recording_that_ends_within_a_character_is_read_up_to_that_line() {
    let text = one_turn();
    let whole = text.trim_end().rfind('\n').unwrap() + 1;
    let torn = [&text.as_bytes()[..whole], b"{\"output\":\"Z\xc3"].concat();
    let recording = Recording::read(&torn[..]).unwrap();
    assert_eq!(recording.steps, read(&text[..whole]).unwrap().steps);
}

#[test]
fn an_invalid_recording_is_refused_with_the_line_number() {
    let error = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(error(""), "the file is empty");
    assert!(error("{}\n").starts_with("line 1: not a recording"));
    let header = serde_json::to_string(&Header::new(policy(), Experience::default())).unwrap();
    let newer = header.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(
        error(&format!("{newer}\n")),
        "line 1: the recording has version 2, this program reads version 1"
    );
    let after = |line: &str| error(&format!("{header}\n{line}\n"));
    assert!(after("{\"t\":1}").starts_with("line 2: not a step"));
    assert!(after("{\"t\":1,\"inputs\":{}}").starts_with("line 2: unknown field"));
    assert!(after("{\"end\":true}\n{\"t\":1,\"timeout\":true}").starts_with("line 3"));
}

/// The file has each kind once; their order means nothing to a conversation.
#[test]
fn every_kind_of_line_of_version_1_loads() {
    let text = include_str!("version-1.jsonl");
    let recording = read(text).unwrap();
    assert!(recording.complete);
    let outputs = recording.steps.iter().flat_map(|step| &step.outputs);
    let outputs: Vec<&String> = outputs.collect();
    for line in &outputs {
        let read: Result<RecordingLine, _> = serde_json::from_str(line);
        assert!(read.is_ok_and(|line| line.output.is_some()), "{line}");
    }
    let (first, last) = (1, 1);
    let lines = first + recording.steps.len() + outputs.len() + last;
    assert_eq!(lines, text.lines().count());
}

#[test]
fn the_policy_survives_serialisation() {
    let text = serde_json::to_string(&Header::new(policy(), Experience::default())).unwrap();
    let read: Header = serde_json::from_str(&text).unwrap();
    assert_eq!(read.policy, policy());
}

#[test]
#[ignore = "replays all recordings in the folder that REPLAY_FROM names"]
fn recordings_in_a_folder_replay() {
    let folder = std::env::var_os("REPLAY_FROM").expect("REPLAY_FROM names a folder");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "jsonl"));
    files.sort();
    let mut changed = 0;
    for file in &files {
        let name = file.display();
        let text = std::fs::read(file).unwrap();
        let recording = Recording::read(text.as_slice()).unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some(difference) = replay(&recording).difference {
            changed += 1;
            println!("{name}:{}", difference.line);
            println!("  recorded: {}", difference.recorded.unwrap_or_default());
            println!("  replayed: {}", difference.replayed.unwrap_or_default());
        }
    }
    assert!(!files.is_empty(), "there are no recordings in the folder");
    assert_eq!(changed, 0, "of {} recordings", files.len());
}
