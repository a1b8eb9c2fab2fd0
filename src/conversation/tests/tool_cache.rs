//! Sessions with a server that goes on by itself when the model calls a tool whose result it was given.

use super::sim::{Script, Sim, Step, call_with, end, say};
use super::*;
use crate::llm::GivenResult;
use crate::prediction::{Prediction, Source};
use crate::tools::Eligibility;
use serde_json::{Map, Value, json};

const QUESTION: &str = "what is the weather in boulder";

fn early(name: &str) -> Declaration {
    let mut tool = (*tool(name, Effect::Read)).clone();
    tool.speculation.eligibility = Eligibility::Full;
    tool
}

fn takes() -> Step {
    let response = "answer".into();
    Step::Event(LlmEvent::TakesResults { response })
}

fn goes_on() -> Step {
    Step::Event(LlmEvent::GoesOn)
}

fn called(city: &str) -> [Step; 2] {
    call_with("weather", json!({ "city": city }))
}

/// The model calls after `ms`, and the server goes on with these words.
fn going_on(city: &str, ms: u64, words: &str) -> Script {
    let mut script = vec![
        takes(),
        say("Checking the forecast for you. "),
        Step::Wait(ms),
    ];
    script.extend(called(city));
    script.extend([goes_on(), Step::Wait(50), say(words), end()]);
    script
}

fn policy(weather: Declaration) -> Policy {
    let mut notes = early("notes");
    notes.reads = vec!["notes".into()];
    let mut write = (*tool("write", Effect::Reversible)).clone();
    write.writes = vec!["notes".into()];
    let mut policy = with(vec![weather, notes, write]);
    policy.briefing.tool_cache = true;
    // One request a turn, so that each script has its prompt.
    policy.speculation.preemptive = false;
    policy
}

/// A session in which rules predict the weather for the last word, or the notes.
fn session(policy: Policy, scripts: impl IntoIterator<Item = Script>, tool_ms: u64) -> Sim {
    let mut sim = Sim::new(policy);
    sim.router = Box::new(|heard| {
        let last = heard.text.split(' ').next_back().unwrap_or_default();
        let (tool, arguments) = match last {
            "notes" => ("notes", json!({})),
            city => ("weather", json!({ "city": city })),
        };
        vec![Prediction {
            tool: tool.into(),
            arguments: arguments.as_object().cloned().unwrap(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        }]
    });
    sim.tool_ms = tool_ms;
    sim.scripts.extend(scripts);
    sim
}

fn asked(scripts: impl IntoIterator<Item = Script>, tool_ms: u64) -> Sim {
    let mut sim = session(policy(early("weather")), scripts, tool_ms);
    sim.speak(QUESTION, 1_500);
    sim.silence(10_000);
    sim
}

fn given(sim: &Sim) -> Vec<(Time, GivenResult)> {
    let given = sim.outputs.iter().filter_map(|(at, output)| match output {
        Output::GiveResult { result, .. } => Some((*at, result.clone())),
        _ => None,
    });
    given.collect()
}

/// The order of what the model calls, hears and says.
fn roles(sim: &Sim) -> Vec<&'static str> {
    let role = |message: &Message| match message {
        Message::System { .. } => "system",
        Message::User { .. } => "user",
        Message::Agent { .. } => "agent",
        Message::ToolCall { .. } => "call",
        Message::ToolResult { .. } => "result",
    };
    sim.core.history.messages().iter().map(role).collect()
}

fn continued(sim: &Sim) -> u32 {
    sim.records().iter().map(|record| record.continued).sum()
}

const SERIAL: [&str; 5] = ["user", "agent", "call", "result", "agent"];

/// At each input: a result may be large.
#[test]
fn a_result_that_the_server_has_is_not_copied_again() {
    let script = going_on("boulder", 8_000, "It is sunny.");
    let mut sim = session(policy(early("weather")), [script], 100);
    sim.speak(QUESTION, 1_500);
    sim.silence(2_000);
    assert_eq!(given(&sim).len(), 1, "and the model has not called");
    let core = &sim.core;
    let track = core.speculation.answering().expect("an answer").id;
    let usable = |is_wanted: bool| {
        let wanted = |_: &str, _: &Map<String, Value>| is_wanted;
        core.speculation.usable(&core.common, track, wanted).len()
    };
    assert_eq!((usable(true), usable(false)), (1, 0));
}

#[test]
fn a_server_that_has_the_result_answers_in_the_same_stream() {
    let sim = asked([going_on("boulder", 400, "It is sunny.")], 100);
    assert_eq!(sim.prompts.len(), 1);
    assert_eq!(
        sim.spoken(),
        ["Checking the forecast for you.", "It is sunny."]
    );
    assert_eq!(roles(&sim), SERIAL);
    assert_eq!(continued(&sim), 1);
    let (at, result) = given(&sim).remove(0);
    assert_eq!(result.tool, "weather");
    assert_eq!(Value::Object(result.arguments), json!({"city": "boulder"}));
    let run = &sim.records()[0].runs[0];
    let age = at.since(run.finished.unwrap());
    let ttl = early("weather").speculation.ttl;
    assert_eq!(age + result.keep_alive, Micros(ttl.as_micros() as u64));
    let commit = sim.latency().commit.unwrap();
    assert!(at < commit);
    assert_eq!(sim.tools_started, ["weather"]);
}

/// The same words, history and calls as without a cache.
#[test]
fn the_history_is_that_of_two_requests() {
    let one = asked([going_on("boulder", 400, "It is sunny.")], 100);
    let mut first = going_on("boulder", 400, "");
    first.truncate(5);
    first.push(end());
    let two = asked([first, vec![say("It is sunny."), end()]], 100);
    assert_eq!((two.prompts.len(), continued(&two)), (2, 0));
    assert_eq!(one.spoken(), two.spoken());
    assert_eq!(one.core.history.messages(), two.core.history.messages());
}

/// A held-back generation is given results, too, and nothing of it is heard before the turn is over.
#[test]
fn a_preemptive_answer_is_given_results() {
    let mut policy = policy(early("weather"));
    policy.speculation.preemptive = true;
    let mut sim = session(policy, [going_on("boulder", 30, "It is sunny.")], 20);
    sim.completeness = 0.5;
    sim.speak(QUESTION, 1_500);
    sim.silence(10_000);
    assert_eq!((sim.prompts.len(), continued(&sim)), (1, 1));
    assert_eq!(roles(&sim), SERIAL);
    let over = sim.latency().end_of_turn.unwrap();
    assert!(given(&sim)[0].0 < over);
    assert!(sim.latency().first_audio.unwrap() >= over);
}

#[test]
fn a_result_that_comes_too_late_is_used_as_ever() {
    let mut first = going_on("boulder", 100, "");
    first.truncate(5);
    first.push(end());
    let sim = asked([first, vec![say("It is sunny."), end()]], 1_800);
    assert_eq!((sim.prompts.len(), continued(&sim)), (2, 0));
    assert_eq!(sim.spoken().last().unwrap(), "It is sunny.");
    assert_eq!(roles(&sim), SERIAL);
}

#[test]
fn a_result_that_expires_after_it_was_given_is_not_answered() {
    let mut weather = early("weather");
    weather.speculation.ttl = Duration::from_millis(300);
    let scripts = [
        going_on("boulder", 1_500, "It is old."),
        vec![say("It is new."), end()],
    ];
    let mut sim = session(policy(weather), scripts, 900);
    sim.speak(QUESTION, 1_500);
    sim.silence(10_000);
    assert_eq!(given(&sim).len(), 1);
    assert_eq!(sim.tools_started, ["weather", "weather"]);
    let spoken = sim.spoken();
    assert!(!spoken.contains(&"It is old.".to_owned()), "{spoken:?}");
    assert_eq!(spoken.last().unwrap(), "It is new.");
    assert_eq!(continued(&sim), 0);
}

/// It could not be told which of two results the server used.
#[test]
fn a_server_that_has_an_old_result_is_not_given_a_new_one() {
    let mut weather = early("weather");
    weather.speculation.ttl = Duration::from_millis(300);
    let [opened, closed] = called("boulder");
    let old = vec![
        takes(),
        Step::Wait(1_500),
        opened,
        super::sim::read(json!({"city": "boulder"}), true),
        Step::Wait(1_500),
        closed,
        goes_on(),
        say("It is old."),
        end(),
    ];
    let scripts = [old, vec![say("It is new."), end()]];
    let mut sim = session(policy(weather), scripts, 1_300);
    sim.speak(QUESTION, 1_500);
    sim.silence(10_000);
    assert_eq!(given(&sim).len(), 1);
    assert_eq!(sim.tools_started, ["weather", "weather"]);
    assert_eq!(sim.spoken().last().unwrap(), "It is new.");
    assert!(!sim.spoken().contains(&"It is old.".to_owned()));
}

/// The model writes, and reads what was read before the write.
#[test]
fn a_result_from_before_a_write_is_not_answered() {
    let mut stale = vec![takes(), Step::Wait(400)];
    stale.extend(call_with("write", json!({})));
    stale.extend(call_with("notes", json!({})));
    stale.extend([goes_on(), say("There are none."), end()]);
    let scripts = [stale, vec![say("There is one."), end()]];
    let mut sim = session(policy(early("weather")), scripts, 100);
    sim.speak("read my notes", 1_500);
    sim.silence(10_000);
    assert_eq!(given(&sim).len(), 1);
    assert_eq!(sim.spoken().last().unwrap(), "There is one.");
    assert!(!sim.spoken().contains(&"There are none.".to_owned()));
    assert_eq!(sim.tools_started, ["notes", "write", "notes"]);
    assert_eq!(continued(&sim), 0);
}

#[test]
fn an_answer_to_another_call_is_not_heard() {
    let scripts = [
        going_on("denver", 400, "It is sunny."),
        vec![say("It rains."), end()],
    ];
    let sim = asked(scripts, 100);
    assert_eq!(
        sim.spoken(),
        ["Checking the forecast for you.", "It rains."]
    );
    assert_eq!((sim.prompts.len(), continued(&sim)), (2, 0));
    let asked_with = serde_json::to_string(&sim.prompts[1].messages).unwrap();
    assert!(asked_with.contains(r#"weather of {\"city\":\"denver\"}"#));
}

/// Two calls do not share a result, whatever the server makes of it.
#[test]
fn a_second_call_of_the_same_kind_has_a_result_of_its_own() {
    let mut twice = vec![takes(), Step::Wait(400)];
    twice.extend(called("boulder"));
    twice.push(goes_on());
    twice.extend(called("boulder"));
    twice.extend([goes_on(), say("Still sunny."), end()]);
    let sim = asked([twice, vec![say("It rains now."), end()]], 100);
    assert_eq!(sim.spoken(), ["It rains now."]);
    assert_eq!(sim.tools_started, ["weather", "weather"]);
    assert_eq!(continued(&sim), 1);
}

/// Whatever it adds: an item of the assistant is not what the model wrote, either.
#[test]
fn what_the_client_added_meanwhile_is_not_overlooked() {
    let text = || "The user's name is Ann.".to_owned();
    let system = || NewItem::System { text: text() };
    let agent = || NewItem::Agent { text: text() };
    for item in [system(), agent()] {
        let scripts = [
            going_on("boulder", 1_000, "It is sunny."),
            vec![say("Ann is in the sun."), end()],
        ];
        let mut sim = session(policy(early("weather")), scripts, 100);
        sim.speak(QUESTION, 1_500);
        sim.silence(500);
        sim.input(item.at_the_end());
        sim.silence(10_000);
        assert_eq!(sim.spoken().last().unwrap(), "Ann is in the sun.");
        assert_eq!((sim.prompts.len(), continued(&sim)), (2, 0));
    }
}

/// Said in an item of its own, or after the model's words.
#[test]
fn a_filler_that_the_model_has_not_written_is_not_overlooked() {
    let silent = vec![takes(), Step::Wait(3_500)];
    let speaking = vec![
        takes(),
        say("Checking the forecast for you. "),
        Step::Wait(3_900),
    ];
    for mut first in [silent, speaking] {
        first.extend(called("boulder"));
        first.extend([goes_on(), Step::Wait(50), say("It is sunny."), end()]);
        let scripts = [first, vec![say("As I said: it is sunny."), end()]];
        let mut policy = policy(early("weather"));
        policy.timeouts.generation_timeout = Micros::from_ms(20_000);
        let mut sim = session(policy, scripts, 100);
        sim.speak(QUESTION, 1_500);
        sim.silence(12_000);
        assert_eq!(given(&sim).len(), 1);
        let fillers: u32 = sim.records().iter().map(|record| record.fillers).sum();
        assert!(fillers > 0, "{:?}", sim.spoken());
        assert_eq!((sim.prompts.len(), continued(&sim)), (2, 0));
        assert!(!sim.spoken().contains(&"It is sunny.".to_owned()));
    }
}

/// The model's own words have long been heard when its server goes on.
#[test]
fn words_that_were_heard_before_the_call_are_still_its_own() {
    let mut script = going_on("boulder", 300, "Sunny in Boulder. ");
    script.pop();
    script.insert(1, say("One second. "));
    let at = script.len() - 2;
    script.insert(at, Step::Wait(1_200));
    script.push(end());
    let sim = asked([script], 100);
    assert_eq!((sim.prompts.len(), continued(&sim)), (1, 1));
    assert_eq!(roles(&sim), SERIAL);
}

/// The first of two models is slow, and the second names its answer, too. The first was given a result that has
/// expired, the second a new one: which of them goes on cannot be told.
#[test]
fn an_answer_with_two_names_is_not_heard() {
    let mut weather = early("weather");
    weather.speculation.ttl = Duration::from_millis(300);
    let [opened, closed] = called("boulder");
    let response = "another".into();
    let old = vec![
        takes(),
        Step::Wait(1_500),
        Step::Event(LlmEvent::TakesResults { response }),
        opened,
        super::sim::read(json!({"city": "boulder"}), true),
        Step::Wait(1_500),
        closed,
        goes_on(),
        say("It is old."),
        end(),
    ];
    let scripts = [old, vec![say("It is new."), end()]];
    let mut sim = session(policy(weather), scripts, 1_300);
    sim.speak(QUESTION, 1_500);
    sim.silence(10_000);
    assert_eq!(given(&sim).len(), 1);
    assert_eq!(sim.tools_started, ["weather", "weather"]);
    assert_eq!(sim.spoken().last().unwrap(), "It is new.");
    assert!(!sim.spoken().contains(&"It is old.".to_owned()));
    assert_eq!((sim.prompts.len(), continued(&sim)), (2, 0));
}

/// A server that takes no results costs nothing: its calls are answered as ever.
#[test]
fn nothing_is_given_without_a_name() {
    let mut first = going_on("boulder", 400, "");
    first.remove(0);
    first.truncate(4);
    first.push(end());
    let sim = asked([first, vec![say("It is sunny."), end()]], 100);
    assert_eq!(given(&sim), []);
    assert_eq!((sim.prompts.len(), continued(&sim)), (2, 0));
    assert_eq!(roles(&sim), SERIAL);
}

#[test]
fn a_barge_in_ends_the_answer_and_the_call_stays() {
    let mut script = going_on("boulder", 100, "It is sunny, and warm, and so it stays. ");
    script.truncate(script.len() - 1);
    script.extend([Step::Wait(3_000), say("And tomorrow it rains."), end()]);
    let mut sim = session(policy(early("weather")), [script], 50);
    sim.speak(QUESTION, 1_500);
    sim.silence(2_500);
    sim.speak("stop", 900);
    sim.silence(6_000);
    let spoken = sim.spoken();
    assert!(
        !spoken.iter().any(|text| text.contains("tomorrow")),
        "{spoken:?}"
    );
    assert_eq!(roles(&sim)[..4], SERIAL[..4]);
    assert_eq!(continued(&sim), 1);
}

/// The answer after the last step has to be asked for without tools.
#[test]
fn nothing_is_given_in_the_last_step() {
    let mut policy = policy(early("weather"));
    policy.tool_steps = 1;
    let mut first = going_on("boulder", 400, "");
    first.truncate(5);
    first.push(end());
    let mut sim = session(policy, [first, vec![say("It is sunny."), end()]], 100);
    sim.speak(QUESTION, 1_500);
    sim.silence(10_000);
    assert_eq!(given(&sim), []);
    assert!(!sim.prompts[1].may_call());
    assert_eq!(sim.spoken().last().unwrap(), "It is sunny.");
}

/// A server that marks an answer although nothing was called.
#[test]
fn a_mark_without_a_call_changes_nothing() {
    let script = vec![takes(), say("It is "), goes_on(), say("noon."), end()];
    let sim = asked([script], 100);
    assert_eq!(sim.spoken(), ["It is noon."]);
    assert_eq!(continued(&sim), 0);
}
