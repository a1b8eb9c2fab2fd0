//! Clients with their own recogniser and voice: words come in, words go out.

use super::sim::{Sim, call, call_with, end, say};
use super::*;
use crate::prediction::{Prediction, Source};
use crate::tools::{Eligibility, EndsCall};
use serde_json::json;

fn relayed(policy: Policy) -> Sim {
    let mut sim = Sim::new(policy);
    sim.client_speaks = true;
    sim
}

fn said(sim: &mut Sim, text: &str, last: bool) {
    let text = text.into();
    sim.input(Input::Said { text, last });
}

fn stopped(sim: &mut Sim, heard: &str) {
    let heard = heard.into();
    sim.input(Input::Stopped { heard });
}

/// The agent's last words in the history, and whether they were cut.
fn agent(sim: &Sim) -> (String, bool) {
    let messages = sim.core.history.messages().into_iter().rev();
    let mut agents = messages.filter_map(|message| match message {
        Message::Agent { text, interrupted } => Some((text, interrupted)),
        _ => None,
    });
    agents.next().unwrap_or_default()
}

fn users(sim: &Sim) -> Vec<String> {
    let items = sim.events.iter().filter_map(|(_, event)| match event {
        Event::UserItem {
            text, spoken: true, ..
        } => Some(text.clone()),
        _ => None,
    });
    items.collect()
}

/// An agent that is two seconds into six seconds of counting.
fn counting() -> Sim {
    let mut sim = relayed(Policy::default());
    let count = "One two three four five six, seven eight nine ten eleven twelve, \
                 and so on and on and on and on.";
    sim.scripts.push_back(vec![say(count), end()]);
    said(&mut sim, "Count.", true);
    sim.no_audio(2_000);
    assert_eq!(
        sim.ended(),
        [ResponseStatus::Completed],
        "all words are out"
    );
    sim
}

#[test]
fn words_are_answered_in_words() {
    let mut sim = relayed(Policy::default());
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    said(&mut sim, "What time", false);
    sim.no_audio(300);
    said(&mut sim, "What time is it?", false);
    sim.no_audio(300);
    assert!(sim.prompts.is_empty());
    said(&mut sim, "What time is it?", true);
    sim.no_audio(100);
    assert_eq!(users(&sim), ["What time is it?"]);
    assert_eq!(sim.spoken(), ["It is noon."]);
    assert_eq!(agent(&sim), ("It is noon.".into(), false));
    let latency = sim.latency();
    let ms = |at: Option<Time>| at.map(|at| at.0 / 1_000);
    assert_eq!(ms(latency.speech_end), Some(300), "the last new words");
    assert_eq!(ms(latency.end_of_turn), Some(600));
    assert_eq!(ms(latency.first_audio), Some(620), "with the model's words");
}

#[test]
fn unfinished_words_run_a_read_early() {
    let mut weather = (*tool("weather", Effect::Read)).clone();
    weather.speculation.eligibility = Eligibility::Full;
    let mut sim = relayed(Policy {
        tools: Arc::new(vec![Arc::new(weather)]),
        ..Policy::default()
    });
    sim.router = Box::new(|heard| {
        let predicted = Prediction {
            tool: "weather".into(),
            arguments: json!({"city": "boulder"}).as_object().cloned().unwrap(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        };
        let known = heard.text.contains("boulder");
        known.then_some(predicted).into_iter().collect()
    });
    let mut script = call_with("weather", json!({"city": "boulder"})).to_vec();
    script.push(end());
    sim.scripts.push_back(script);
    said(&mut sim, "the weather in boulder", false);
    sim.no_audio(100);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    said(&mut sim, "the weather in boulder please", true);
    sim.no_audio(3_000);
    assert_eq!(sim.started().len(), 1, "the early run is taken over");
    let runs = &sim.records()[0].runs;
    assert!(matches!(runs[0].fate, Fate::Committed { .. }));
}

#[test]
fn the_client_says_which_words_were_heard() {
    let mut sim = counting();
    // The playout estimate is at "six"; the client's voice is slower.
    stopped(&mut sim, "one two three");
    let heard = ("One two three".to_owned(), true);
    assert_eq!(agent(&sim), heard);
    assert!(
        sim.outputs
            .iter()
            .any(|(_, output)| *output == Output::Flush)
    );
    said(&mut sim, "Stop.", true);
    sim.no_audio(3_000);
    let told = sim.prompts[1].messages.iter();
    let cut = told.filter(
        |message| matches!(message, Message::Agent { text, interrupted: true } if *text == heard.0),
    );
    assert_eq!(cut.count(), 1, "{:?}", sim.prompts[1].messages);
}

#[test]
fn words_that_were_not_said_leave_the_playout_estimate() {
    let mut sim = counting();
    stopped(&mut sim, "something else");
    assert_eq!(agent(&sim), ("One two three four five six,".into(), true));
}

#[test]
fn the_clients_report_corrects_a_fast_playout_estimate() {
    let mut sim = counting();
    sim.no_audio(10_000);
    stopped(&mut sim, "One two three four five six, seven");
    assert_eq!(
        agent(&sim),
        ("One two three four five six, seven".into(), true)
    );
    assert!(!sim.core.turn.is_open(), "nothing was stopped");
}

#[test]
fn after_a_noise_the_agent_says_what_was_not_heard() {
    let mut sim = counting();
    stopped(
        &mut sim,
        "One two three four five six, seven eight nine ten",
    );
    sim.no_audio(5_000);
    let before = sim.spoken().len();
    sim.no_audio(2_000);
    let again = sim.spoken()[before..].join(" ");
    assert!(again.starts_with("eleven twelve, and so on"), "{again}");
    assert!(sim.saw(|event| *event == Event::UtteranceDropped));
}

#[test]
fn words_without_a_final_end_the_turn_after_a_timeout() {
    let mut sim = relayed(Policy::default());
    said(&mut sim, "What time is it", false);
    sim.no_audio(5_000);
    assert!(users(&sim).is_empty());
    sim.no_audio(2_000);
    assert_eq!(users(&sim), ["What time is it"]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

/// "Shall I pay the bill now?" takes 1.8 s by the playout estimate.
fn asked_to_pay() -> Sim {
    let mut sim = relayed(with(vec![asking("pay", "Shall I pay the bill now?")]));
    let mut script = call("pay").to_vec();
    script.push(end());
    sim.scripts.push_back(script);
    said(&mut sim, "Pay it.", true);
    sim.no_audio(100);
    assert_eq!(sim.spoken(), ["Shall I pay the bill now?"]);
    sim
}

#[test]
fn a_yes_counts_when_the_question_was_heard() {
    for (ended, wait, started) in [(true, 1_300, 1), (false, 1_300, 0), (false, 2_000, 1)] {
        let mut sim = asked_to_pay();
        sim.no_audio(wait);
        if ended {
            // The client's voice is faster than the playout estimate.
            sim.input(Input::VoiceEnded);
        }
        said(&mut sim, "Yes.", true);
        sim.no_audio(3_000);
        assert_eq!(sim.tools_started.len(), started, "{ended} after {wait} ms");
    }
}

#[test]
fn a_finished_voice_that_has_not_seen_newer_words_is_ignored() {
    let mut sim = asked_to_pay();
    // The client has not received the question yet.
    sim.input(Input::VoiceEnded);
    said(&mut sim, "Yes.", true);
    sim.no_audio(3_000);
    assert!(sim.tools_started.is_empty());
}

#[test]
fn a_key_that_stops_the_question_answers_it() {
    for (key, started) in [('1', 1), ('2', 0), ('3', 0)] {
        let mut sim = asked_to_pay();
        sim.no_audio(500);
        stopped(&mut sim, "Shall I pay");
        sim.input(Input::Key { key });
        sim.no_audio(10_000);
        assert_eq!(sim.tools_started.len(), started, "{key}");
        assert!(!sim.core.turn.is_open() && !sim.core.confirmation.is_open());
    }
}

#[test]
fn a_question_that_a_hash_key_stops_is_asked_on() {
    let mut sim = asked_to_pay();
    sim.no_audio(500);
    stopped(&mut sim, "Shall I pay");
    sim.input(Input::Key { key: '#' });
    sim.no_audio(3_000);
    assert!(sim.core.confirmation.is_asked());
    sim.input(Input::Key { key: '1' });
    sim.no_audio(3_000);
    assert_eq!(sim.tools_started.len(), 1);
}

#[test]
fn a_yes_to_a_question_that_was_not_heard_in_full_does_not_count() {
    let mut sim = asked_to_pay();
    sim.no_audio(3_000);
    stopped(&mut sim, "Shall I pay");
    said(&mut sim, "Yes.", true);
    sim.no_audio(3_000);
    assert!(sim.tools_started.is_empty());
}

#[test]
fn a_question_interrupted_by_noise_is_repeated() {
    let mut sim = asked_to_pay();
    sim.no_audio(500);
    stopped(&mut sim, "Shall I pay");
    sim.no_audio(8_500);
    assert_eq!(sim.spoken().last().unwrap(), "the bill now?");
    said(&mut sim, "Yes.", true);
    sim.no_audio(1_000);
    assert_eq!(sim.tools_started, ["pay"]);
}

#[test]
fn the_goodbye_is_heard_before_the_end() {
    let mut sim = relayed(with(vec![ending("hang_up", EndsCall::HangUp)]));
    let mut script = vec![say("Goodbye and thank you.")];
    script.extend(call("hang_up"));
    script.push(end());
    sim.scripts.push_back(script);
    said(&mut sim, "Bye.", true);
    sim.no_audio(1_000);
    assert_eq!(sim.hung_up, None);
    sim.no_audio(500);
    assert_eq!(sim.hung_up, Some(HangUpReason::AgentEnded));
}

#[test]
fn an_answer_that_is_being_made_is_dropped_when_the_user_goes_on() {
    let mut sim = relayed(Policy::default());
    sim.scripts
        .push_back(vec![super::sim::Step::Wait(2_000), say("Sunny."), end()]);
    said(&mut sim, "How is the weather?", true);
    sim.no_audio(500);
    said(&mut sim, "In Boulder", false);
    sim.no_audio(500);
    said(&mut sim, "In Boulder, I mean.", true);
    sim.no_audio(3_000);
    assert_eq!(sim.spoken(), ["All right."]);
    assert_eq!(users(&sim), ["How is the weather?", "In Boulder, I mean."]);
}

/// It was dropped as if it belonged to the turn before, and the agent said nothing more.
#[test]
fn a_please_over_the_last_word_of_a_question_is_a_turn() {
    let mut sim = relayed(Policy::default());
    sim.scripts
        .push_back(vec![say("Would you like to hear it?"), end()]);
    said(&mut sim, "What is new?", true);
    sim.no_audio(1_700);
    stopped(&mut sim, "Would you like to hear");
    said(&mut sim, "Please.", true);
    sim.no_audio(2_000);
    assert_eq!(users(&sim), ["What is new?", "Please."]);
    assert_eq!(sim.spoken().last().unwrap(), "All right.");
}
