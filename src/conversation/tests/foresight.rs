//! Calls that are foreseen from the calls before them: when a session opens, when the user begins to speak, and after
//! each call. They run early like others, and decide nothing about the turn.

use super::sim::{Sim, Step, call_with, end, say};
use super::speculation::{early, prediction};
use super::*;
use crate::llm::ToolChoice;
use crate::prediction::patterns::{Book, Happened, PastConversation, Patterns, Schemas};
use crate::prediction::{Evidence, Moment, Prediction, Source};
use crate::recording::Recording;
use crate::what_if::{Foresight, WhatIf, what_if};
use serde_json::json;

/// A prediction of a call that usually follows.
fn usual(tool: &str, confidence: f32) -> Prediction {
    Prediction {
        source: Source::Transition,
        open: Vec::new(),
        ..prediction(tool, json!({"n": 1}), confidence)
    }
}

/// A session with the read tool `profile`, which is foreseen at these moments.
fn foreseen(at: &'static [Moment]) -> Sim {
    let mut sim = Sim::new(with(vec![early("profile")]));
    sim.tool_ms = 400;
    sim.router = Box::new(|heard| {
        let is_first = at.contains(&heard.moment) && heard.calls.is_empty();
        is_first
            .then(|| usual("profile", 0.9))
            .into_iter()
            .collect()
    });
    sim.foresee();
    let mut script = vec![Step::Wait(300)];
    script.extend(call_with("profile", json!({"n": 1})));
    script.push(end());
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("It is sunny."), end()]);
    sim
}

/// When each run began, ms, and whether it was committed then.
fn starts(sim: &Sim) -> Vec<(u64, bool)> {
    let outputs = sim.outputs.iter();
    let starts = outputs.filter_map(|(at, output)| match output {
        Output::StartTool { committed, .. } => Some((at.0 / 1_000, committed.is_some())),
        _ => None,
    });
    starts.collect()
}

fn moments(sim: &Sim) -> Vec<Moment> {
    let outputs = sim.outputs.iter();
    let asked = outputs.filter_map(|(_, output)| match output {
        Output::Route { heard, .. } => Some(heard.moment),
        _ => None,
    });
    asked.collect()
}

fn reasons(sim: &Sim) -> Vec<Discard> {
    let records = sim.records().into_iter().flat_map(|one| one.runs);
    let reasons = records.filter_map(|run| match run.fate {
        Fate::Discarded { reason, .. } => Some(reason),
        Fate::Committed { .. } => None,
    });
    reasons.collect()
}

#[test]
fn a_foreseen_read_starts_when_the_session_opens_and_is_committed_in_the_first_turn() {
    let mut sim = foreseen(&[Moment::Opened]);
    sim.silence(2_000);
    assert_eq!(starts(&sim), [(10, false)]);
    ask(&mut sim, "what is my balance", 6_000);
    assert_eq!(starts(&sim), [(10, false)]);
    assert_eq!(sim.spoken(), ["It is sunny."]);
    let run = &sim.records()[0].runs[0];
    assert!(matches!(run.fate, Fate::Committed { .. }), "{run:?}");
    assert_eq!(run.saved, Micros::from_ms(400));
}

#[test]
fn a_foreseen_read_starts_when_the_user_begins_to_speak() {
    let mut sim = foreseen(&[Moment::Speech]);
    sim.silence(1_000);
    assert_eq!(starts(&sim), []);
    sim.speak("what is my balance", 256);
    assert_eq!(starts(&sim).len(), 1);
    assert!(sim.heard.iter().all(|heard| heard.text.is_empty()));
    sim.silence(6_000);
    assert_eq!(starts(&sim).len(), 1);
}

#[test]
fn sources_are_asked_when_a_session_opens_and_speech_begins_and_after_each_call_and_result() {
    let mut sim = foreseen(&[]);
    ask(&mut sim, "what is my balance", 6_000);
    let all = moments(&sim);
    assert_eq!(all[..2], [Moment::Opened, Moment::Speech]);
    assert!(all[2..].iter().all(|moment| *moment == Moment::Words));
    let calls: Vec<&Evidence> = sim
        .heard
        .iter()
        .filter(|one| !one.calls.is_empty())
        .collect();
    let [committed, finished] = calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!(committed.calls[0].result, None);
    assert!(finished.calls[0].result.is_some());
    assert_eq!(committed.text, finished.text);
}

/// On a noisy line a read that is foreseen runs once, not with every sound.
#[test]
fn noise_neither_ends_nor_repeats_what_was_begun_before_words() {
    let mut sim = foreseen(&[Moment::Opened, Moment::Speech]);
    for _ in 0..4 {
        sim.speak("", 400);
        sim.silence(3_000);
    }
    assert_eq!(starts(&sim), [(10, false)]);
    assert_eq!(moments(&sim), [Moment::Opened, Moment::Speech]);
    ask(&mut sim, "what is my balance", 6_000);
    assert_eq!(starts(&sim).len(), 1);
    assert_eq!(reasons(&sim), []);
}

#[test]
fn a_result_that_expires_before_the_user_speaks_is_fetched_again() {
    let mut sim = foreseen(&[Moment::Opened, Moment::Speech]);
    sim.silence(40_000);
    ask(&mut sim, "what is my balance", 6_000);
    let [(10, false), (_, false)] = starts(&sim)[..] else {
        panic!("{:?}", starts(&sim));
    };
    assert_eq!(reasons(&sim), [Discard::Expired]);
}

#[test]
fn what_was_foreseen_and_not_called_ends_with_the_turn() {
    let mut sim = foreseen(&[Moment::Speech]);
    sim.scripts.clear();
    sim.scripts.push_back(vec![say("Good morning."), end()]);
    ask(&mut sim, "hello", 6_000);
    assert_eq!(starts(&sim).len(), 1);
    assert_eq!(reasons(&sim), [Discard::TurnEnded]);
    assert_eq!(sim.spoken(), ["Good morning."]);
}

#[test]
fn a_session_that_ends_without_a_word_ends_what_was_begun() {
    let mut sim = foreseen(&[Moment::Opened]);
    sim.silence(100);
    sim.input(Input::HangUp);
    assert_eq!(reasons(&sim), [Discard::HungUp]);
    let aborts = |(_, output): &&(Time, Output)| matches!(output, Output::AbortTool { .. });
    assert_eq!(sim.outputs.iter().filter(aborts).count(), 1);
}

/// When the turn of words that read half finished ended, ms, if this is predicted at every moment.
fn end_of_turn(predicted: Option<Prediction>) -> u64 {
    let mut sim = Sim::new(with(vec![early("profile")]));
    sim.completeness = 0.5;
    sim.router = Box::new(move |_| predicted.iter().cloned().collect());
    sim.foresee();
    sim.scripts.push_back(vec![say("All right."), end()]);
    ask(&mut sim, "so i was at the airport", 6_000);
    let ended = sim.latency().end_of_turn.expect("the turn ends");
    ended.0 / 1_000
}

/// Words that give a tool all its arguments are a whole request; a call that usually follows is not.
#[test]
fn what_usually_follows_ends_no_turn() {
    let rule = Prediction {
        source: Source::Rule,
        open: Vec::new(),
        ..usual("profile", 0.99)
    };
    let unpredicted = end_of_turn(None);
    assert!(end_of_turn(Some(rule)) < unpredicted);
    assert_eq!(end_of_turn(Some(usual("profile", 0.99))), unpredicted);
}

#[test]
fn what_usually_follows_is_not_announced_before_the_model_calls_it() {
    let mut tool = early("profile");
    tool.fillers.short = vec!["Looking up your profile.".into()];
    let talk = |source| {
        let mut policy = with(vec![tool.clone()]);
        policy.filler.lead = FillerLead::Router;
        policy.speculation.preemptive = false;
        let mut sim = Sim::new(policy);
        sim.tool_ms = 4_000;
        sim.router = Box::new(move |_| {
            vec![Prediction {
                source,
                open: Vec::new(),
                ..usual("profile", 0.99)
            }]
        });
        sim.foresee();
        sim.scripts
            .push_back(vec![Step::Wait(300), say("You are welcome."), end()]);
        ask(&mut sim, "thank you very much", 6_000);
        sim.spoken()
    };
    assert_eq!(talk(Source::Rule)[0], "Looking up your profile.");
    assert_eq!(talk(Source::Transition), ["You are welcome."]);
}

/// Of several predictions for one tool the last one was taken, which is the least likely.
#[test]
fn a_call_that_the_model_begins_is_the_likeliest_that_was_predicted() {
    let mut profile = early("profile");
    profile.speculation.min_confidence = 0.95;
    let mut sim = Sim::new(with(vec![profile]));
    sim.router = Box::new(|_| {
        let likely = |n: u8, confidence| prediction("profile", json!({"n": n}), confidence);
        vec![likely(1, 0.8), likely(2, 0.5)]
    });
    let [opened, closed] = call_with("profile", json!({"n": 1}));
    sim.scripts
        .push_back(vec![opened, Step::Wait(500), closed, end()]);
    ask(&mut sim, "show me my profile", 6_000);
    let arguments = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::StartTool { arguments, .. } => Some(arguments["n"].clone()),
        _ => None,
    });
    assert_eq!(arguments.collect::<Vec<_>>(), [json!(1)]);
}

/// The calls that began early: their tools, in order.
fn begun_early(sim: &Sim) -> Vec<String> {
    let started = sim.started().into_iter();
    let early = started.filter(|(is_committed, _)| !is_committed);
    early.map(|(_, tool)| tool).collect()
}

/// A session with four read tools. The first three are foreseen before words, and `weather` is predicted from words.
fn foreseen_beside_words() -> Sim {
    let tools = ["profile", "bookings", "news", "weather"];
    let mut policy = with(tools.map(early).to_vec());
    policy.speculation.at_once = 4;
    let mut sim = Sim::new(policy);
    sim.tool_ms = 200;
    sim.router = Box::new(move |heard| match heard.moment.is_before_words() {
        true => tools[..3].iter().map(|tool| usual(tool, 0.9)).collect(),
        false => vec![prediction("weather", json!({"n": 1}), 0.9)],
    });
    sim.foresee();
    let mut script = vec![Step::Wait(300)];
    script.extend(call_with("weather", json!({"n": 1})));
    script.push(end());
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("It is sunny."), end()]);
    sim
}

#[test]
fn what_begins_before_words_takes_nothing_from_the_limit_of_the_first_request() {
    let mut sim = foreseen_beside_words();
    sim.silence(1_000);
    assert_eq!(begun_early(&sim), ["profile", "bookings", "news"]);
    ask(&mut sim, "what is the weather", 6_000);
    assert_eq!(begun_early(&sim)[3..], ["weather"]);
    assert_eq!(sim.started().len(), 4, "the call takes over the early run");
    let records = sim.records();
    let decisions = records[0].predictions.iter().map(|one| one.decision);
    let capped = Decision::Declined(Decline::TurnCap);
    assert!(decisions.into_iter().all(|decision| decision != capped));
}

/// Results expire after 30 s. Each call is made again once before words, and not with every noise.
#[test]
fn on_a_noisy_line_each_call_is_made_again_once_and_the_request_has_its_own() {
    let mut sim = foreseen_beside_words();
    for _ in 0..3 {
        sim.silence(40_000);
        sim.speak("", 400);
        sim.silence(3_000);
    }
    let begun = begun_early(&sim);
    let times = |tool: &str| begun.iter().filter(|begun| *begun == tool).count();
    assert_eq!(["profile", "bookings", "news"].map(times), [2, 2, 2]);
    sim.silence(40_000);
    ask(&mut sim, "what is the weather", 6_000);
    assert_eq!(begun_early(&sim)[6..], ["weather"]);
    assert_eq!(sim.spoken(), ["It is sunny."]);
}

/// A result that expired twice before words is fetched again for words that ask for it.
#[test]
fn words_may_begin_a_call_again_that_failed_or_expired_before_them() {
    let sessions = [("broken", 4_000), ("profile", 40_000)];
    for (tool, silence) in sessions {
        let mut sim = Sim::new(with(vec![early(tool)]));
        sim.router = Box::new(move |_| vec![usual(tool, 0.9)]);
        sim.tool_ms = 100;
        sim.foresee();
        for _ in 0..3 {
            sim.silence(silence);
            sim.speak("", 400);
            sim.silence(3_000);
        }
        let before = begun_early(&sim).len();
        sim.silence(silence);
        sim.speak("what is my balance", 1_000);
        assert_eq!(begun_early(&sim).len(), before + 1, "{tool}");
    }
}

/// Three ways by which a client turns early calls off.
fn turned_off() -> [Settings; 3] {
    [
        Settings {
            speculation: Some(false),
            ..Settings::default()
        },
        Settings {
            tool_choice: Some(ToolChoice::None),
            ..Settings::default()
        },
        Settings {
            transcribe_only: true,
            ..Settings::default()
        },
    ]
}

#[test]
fn what_runs_early_ends_when_the_client_turns_it_off() {
    for settings in turned_off() {
        let mut sim = foreseen(&[Moment::Opened]);
        sim.silence(100);
        assert_eq!(starts(&sim), [(10, false)]);
        sim.input(Input::Configure(Box::new(settings.clone())));
        let aborts = |(_, output): &&(Time, Output)| matches!(output, Output::AbortTool { .. });
        let aborted = sim.outputs.iter().filter(aborts).count();
        assert_eq!(aborted, 1, "{settings:?}");
        ask(&mut sim, "what is my balance", 6_000);
        assert_eq!(begun_early(&sim).len(), 1, "{settings:?}");
        sim.input(Input::HangUp);
        assert_eq!(reasons(&sim), [Discard::Withdrawn], "{settings:?}");
    }
}

#[test]
fn a_prediction_that_comes_after_the_client_turned_it_off_starts_nothing() {
    for settings in turned_off() {
        let mut sim = foreseen(&[Moment::Opened]);
        sim.input(Input::Configure(Box::new(settings.clone())));
        sim.silence(1_000);
        assert_eq!(starts(&sim), [], "{settings:?}");
    }
}

#[test]
fn other_settings_leave_what_runs_early() {
    let mut sim = foreseen(&[Moment::Opened]);
    sim.silence(100);
    sim.input(Input::Configure(Box::new(Settings {
        speculation: Some(true),
        tool_choice: Some(ToolChoice::Auto),
        ..Settings::default()
    })));
    ask(&mut sim, "what is my balance", 6_000);
    assert_eq!(starts(&sim), [(10, false)]);
    assert_eq!(reasons(&sim), []);
}

/// Patterns of an agent from forty calls in which `orders` followed `profile`.
fn usual_calls(policy: &Policy, agent: &str) -> Book {
    let called = |tool: &str| Happened::Called(tool.into(), Default::default());
    let said = Happened::Said("where is my order".into());
    let result = || Happened::Resulted(json!({"ok": true}));
    let call = PastConversation {
        task: String::new(),
        day: Default::default(),
        happened: vec![
            said,
            called("profile"),
            result(),
            called("orders"),
            result(),
        ],
    };
    let schemas = Schemas::of(policy.tools.iter().map(|tool| &**tool));
    let mut patterns = Patterns::default();
    for _ in 0..40 {
        patterns.study(&call, &schemas);
    }
    Book([(agent.to_owned(), patterns)].into())
}

#[test]
fn a_recording_tells_what_looking_further_ahead_would_have_gained() {
    let mut policy = with(vec![early("profile"), early("orders")]);
    policy.speculation.assumed_per_turn = 0;
    let mut sim = Sim::recorded(policy.clone(), "look-ahead".into());
    sim.tool_ms = 1_500;
    for tool in ["profile", "orders"] {
        let mut script = vec![Step::Wait(1_000)];
        script.extend(call_with(tool, json!({})));
        script.push(end());
        sim.scripts.push_back(script);
    }
    sim.scripts.push_back(vec![say("It is on its way."), end()]);
    ask(&mut sim, "where is my order", 12_000);
    let recording = Recording::read(sim.recording().as_bytes()).unwrap();
    let book = usual_calls(&policy, "default");
    let ahead = |depth| {
        let book = book.clone();
        what_if(&recording, policy.clone(), Some(&Foresight { book, depth })).unwrap()
    };
    let (one, two) = (ahead(1), ahead(2));
    assert_eq!(one.recorded.total.starts, 0);
    for found in [&one, &two] {
        let unknown = (found.unknown.runs, found.unknown.generations);
        assert_eq!(unknown, (0, 0), "all of it is in the recording");
        let total = &found.changed.total;
        assert_eq!((total.starts, total.hits, total.wasted_calls), (2, 2, 0));
    }
    let answer = |found: &WhatIf| found.turns[0].changed.unwrap().answer_audio_ms.unwrap();
    let earlier = answer(&one) as i64 - answer(&two) as i64;
    assert!((150..=500).contains(&earlier), "{earlier} ms");
    let gained = two.changed.total.saved_seconds - one.changed.total.saved_seconds;
    let left = "of the second call, half a second was left";
    assert!((0.4..=0.6).contains(&gained), "{gained} s: {left}");
}

/// The tools, and the patterns, of the agent that had handed over were those of the whole recording.
#[test]
fn a_recording_is_counted_by_the_tools_and_patterns_of_the_agent_that_goes_on() {
    let transfer = (*tool("transfer", Effect::Reversible)).clone();
    let mut policy = with(vec![transfer, early("news")]);
    policy.briefing.agent = Some("desk".into());
    (
        policy.speculation.preemptive,
        policy.speculation.assumed_per_turn,
    ) = (false, 0);
    let mut sim = Sim::recorded(policy.clone(), "handed-over".into());
    sim.tool_ms = 1_500;
    for tool in ["transfer", "profile", "orders"] {
        let mut script = vec![Step::Wait(500)];
        script.extend(call_with(tool, json!({})));
        script.push(end());
        sim.scripts.push_back(script);
    }
    sim.scripts.push_back(vec![say("It is on its way."), end()]);
    ask(&mut sim, "where is my order", 1_500);
    let next = with(vec![early("profile"), early("orders")]);
    sim.input(Input::Agent(Box::new(Agent {
        briefing: Briefing {
            agent: Some("billing".into()),
            ..Briefing::default()
        },
        tools: next.tools.clone(),
        speaker: Speaker::default(),
        speculation: true,
        max_tokens: None,
    })));
    sim.silence(12_000);
    let recording = Recording::read(sim.recording().as_bytes()).unwrap();
    let foresight = Foresight {
        book: usual_calls(&next, "billing"),
        depth: 1,
    };
    let found = what_if(&recording, policy, Some(&foresight)).unwrap();
    assert_eq!(found.unknown.runs, 0);
    let reads = (
        found.recorded.committed_reads,
        found.changed.committed_reads,
    );
    assert_eq!(reads, (2, 2));
    let total = &found.changed.total;
    assert_eq!((total.starts, total.hits), (1, 1));
}
