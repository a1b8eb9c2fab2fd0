//! Sessions with a model whose answer breaks off within a call.

use super::sim::{Script, call_with, read};
use super::*;
use crate::prediction::{Prediction, Source};
use crate::tools::Eligibility;
use serde_json::json;

const WORDS: &str = "Let me look that up for you.";

/// An answer that breaks off within a call of this tool.
fn broken(name: &str) -> Vec<Step> {
    let [opened, _] = call_with(name, json!({}));
    let arguments = read(json!({"n": 1}), true);
    vec![say(WORDS), opened, arguments, Step::Wait(50), Step::Break]
}

fn reader() -> Sim {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    sim.policy().speculation.preemptive = false;
    sim
}

fn is_apology(sim: &Sim) -> bool {
    sim.spoken()
        .join(" ")
        .ends_with(&Phrases::default().llm_failed)
}

#[test]
fn a_model_that_breaks_off_within_a_call_is_asked_once_more() {
    let mut sim = reader();
    let mut again = call("clock").to_vec();
    again.push(end());
    let answer = vec![say("It is noon."), end()];
    sim.scripts.extend([broken("clock"), again, answer]);
    ask(&mut sim, "what time is it", 8_000);
    assert_eq!(sim.spoken(), [WORDS, "It is noon."]);
    assert_eq!(sim.tools_started, ["clock"]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    assert!(!sim.saw(|event| matches!(event, Event::StageFailed { .. })));
    // The second prompt has what was said, and the call that was refused.
    let [.., Message::Agent { text, .. }, called, refused] = &sim.prompts[1].messages[..] else {
        panic!("{:?}", sim.prompts[1].messages);
    };
    assert_eq!(text, WORDS);
    assert!(
        matches!(called, Message::ToolCall { name, arguments, .. } if name == "clock" && arguments.is_empty())
    );
    assert!(
        matches!(refused, Message::ToolResult { output, .. } if output["error"].to_string().contains("broke off"))
    );
    assert!(sim.prompts[1].may_call());
}

#[test]
fn only_a_second_break_gets_an_apology() {
    let mut sim = reader();
    sim.scripts.extend([broken("clock"), broken("clock")]);
    ask(&mut sim, "what time is it", 8_000);
    assert!(is_apology(&sim), "{:?}", sim.spoken());
    let repeated = sim
        .spoken()
        .iter()
        .filter(|clause| *clause == WORDS)
        .count();
    assert_eq!(repeated, 1, "the filler is said once");
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    assert_eq!(sim.prompts.len(), 2);
    assert!(sim.tools_started.is_empty());
    // The next answer has its own chance.
    let answer = vec![say("It is noon."), end()];
    sim.scripts.extend([broken("clock"), answer]);
    ask(&mut sim, "what time is it now", 8_000);
    assert_eq!(sim.ended().last(), Some(&ResponseStatus::Completed));
}

#[test]
fn a_model_that_stalls_within_a_call_is_asked_once_more() {
    let mut sim = reader();
    let mut stalls = broken("clock");
    stalls.pop();
    sim.scripts
        .extend([stalls, vec![say("It is noon."), end()]]);
    ask(&mut sim, "what time is it", 12_000);
    assert_eq!(sim.spoken().last().map(String::as_str), Some("It is noon."));
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn a_complete_call_before_the_broken_one_is_not_made_again() {
    let mut sim = reader();
    let mut script = call("clock").to_vec();
    script.extend(broken("clock").split_off(1));
    sim.scripts
        .extend([script, vec![say("It is noon."), end()]]);
    ask(&mut sim, "what time is it", 8_000);
    assert_eq!(sim.tools_started, ["clock"]);
    assert_eq!(sim.spoken().last().map(String::as_str), Some("It is noon."));
    // Both calls have an answer, one of them a refusal.
    let results = sim.prompts[1]
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::ToolResult { output, .. } => Some(output.get("error").is_some()),
            _ => None,
        });
    assert_eq!(results.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_break_within_words_gets_an_apology_at_once() {
    let mut sim = reader();
    sim.scripts.push_back(vec![say("It is "), Step::Break]);
    ask(&mut sim, "what time is it", 8_000);
    assert!(is_apology(&sim), "{:?}", sim.spoken());
    assert_eq!(sim.prompts.len(), 1);
}

/// The agent's words before it apologises.
fn before_the_apology(sim: &Sim) -> String {
    let spoken = sim.spoken().join(" ");
    let before = spoken.strip_suffix(&Phrases::default().llm_failed);
    before.expect("an apology").trim().to_owned()
}

#[test]
fn half_a_sentence_is_not_spoken_before_the_apology() {
    for (text, before) in [
        ("It is noon. It was ", "It is noon."),
        ("It was ", ""),
        ("It is noon.", "It is noon."),
    ] {
        let mut sim = reader();
        sim.scripts.push_back(vec![say(text), Step::Break]);
        ask(&mut sim, "what time is it", 8_000);
        assert_eq!(before_the_apology(&sim), before, "{text}");
        let history = sim.core.history.messages();
        assert!(!format!("{history:?}").contains("It was"), "{history:?}");
    }
}

/// A session in which the router says "Checking noon." before the model says a word.
fn led_by_the_router(script: Script) -> Sim {
    let mut clock = (*tool("clock", Effect::Read)).clone();
    clock.speculation.eligibility = Eligibility::Full;
    clock.fillers.short = vec!["Checking {{ time }}.".into()];
    let mut policy = with(vec![clock]);
    policy.filler.lead = FillerLead::Router;
    policy.speculation.preemptive = false;
    let mut sim = Sim::new(policy);
    sim.router = Box::new(|_| {
        vec![Prediction {
            tool: "clock".into(),
            arguments: json!({"time": "noon"}).as_object().cloned().unwrap(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        }]
    });
    sim.tool_ms = 4_000;
    sim.scripts.push_back(script);
    ask(&mut sim, "is it noon", 8_000);
    sim
}

#[test]
fn a_clause_withheld_after_a_filler_is_not_lost_when_the_answer_breaks_off() {
    for (text, before) in [
        ("It is noon. ", "Checking noon. It is noon."),
        // It may be the answer.
        ("Yes. ", "Checking noon. Yes."),
        ("Yes. It was ", "Checking noon. Yes."),
        ("Let me see. ", "Checking noon."),
        ("Let me see.", "Checking noon."),
    ] {
        let sim = led_by_the_router(vec![say(text), Step::Wait(100), Step::Break]);
        assert_eq!(before_the_apology(&sim), before, "{text}");
    }
}

#[test]
fn a_voice_that_has_failed_says_no_more_of_the_answer() {
    let mut sim = reader();
    sim.tts_fails.insert("This one fails.".into());
    let text = "This one fails. And this is the rest.";
    sim.scripts
        .push_back(vec![say(text), Step::Wait(4_000), end()]);
    ask(&mut sim, "what time is it", 8_000);
    assert_eq!(sim.spoken().join(" "), Phrases::default().tts_failed);
}
