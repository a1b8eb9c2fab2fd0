//! Handoffs between the agents of a server.

use super::sim::{Sim, call_with, end, say};
use super::*;
use crate::prediction::{Prediction, Source};
use crate::tools::Eligibility;
use serde_json::json;

fn billing() -> Input {
    Input::Agent(Box::new(Agent {
        briefing: Briefing {
            agent: Some("billing".into()),
            instructions: Some("You are billing.".into()),
            ..Briefing::default()
        },
        tools: Arc::new(vec![tool("pay", Effect::Reversible)]),
        speaker: Speaker {
            voice: Some("deep".into()),
            ..Speaker::default()
        },
        speculation: true,
        max_tokens: Some(80),
    }))
}

/// A desk that hands over, and a router that predicts its tool `read` for every word.
fn desk() -> Sim {
    let mut read = (*tool("read", Effect::Read)).clone();
    read.speculation.eligibility = Eligibility::Full;
    let mut policy = with(vec![read, (*tool("transfer", Effect::Reversible)).clone()]);
    policy.briefing.agent = Some("desk".into());
    policy.briefing.instructions = Some("You are the desk.".into());
    // Held-back generations would take the scripts of others.
    (
        policy.speculation.preemptive,
        policy.speculation.assumed_per_turn,
    ) = (false, 0);
    let mut sim = Sim::new(policy);
    sim.router = Box::new(|_| {
        vec![Prediction {
            tool: "read".into(),
            arguments: serde_json::Map::new(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        }]
    });
    sim.tool_times.insert("transfer".into(), 1_000);
    sim
}

/// The agents that were asked, with the instructions and the tools in their prompts.
fn asked(sim: &Sim) -> Vec<(String, String, Vec<String>)> {
    let asked = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Generate { prompt, agent, .. } => {
            let tools = prompt.tools.iter().map(|tool| tool.name.clone());
            let instructions = prompt.instructions.clone().unwrap_or_default();
            Some((
                agent.clone().unwrap_or_default(),
                instructions,
                tools.collect(),
            ))
        }
        _ => None,
    });
    asked.collect()
}

#[test]
fn the_next_agent_goes_on_in_the_same_turn_and_nothing_of_the_one_before_it_commits() {
    let mut sim = desk();
    let mut script = vec![say("One moment. ")];
    script.extend(call_with("transfer", json!({"agent": "billing"})));
    script.push(end());
    sim.scripts.push_back(script);
    let mut script = call_with("read", json!({})).to_vec();
    script.push(end());
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("Billing here."), end()]);
    ask(&mut sim, "my invoice is wrong", 600);
    assert!(
        sim.started().contains(&(false, "read".to_owned())),
        "it ran early"
    );
    assert!(sim.started().contains(&(true, "transfer".to_owned())));
    sim.input(billing());
    sim.silence(8_000);

    let asked = asked(&sim);
    let by_the_desk = ("desk".to_owned(), "You are the desk.".to_owned());
    let by_billing = ("billing".to_owned(), "You are billing.".to_owned());
    let is = |nth: usize| (asked[nth].0.clone(), asked[nth].1.clone());
    assert_eq!((is(0), is(1)), (by_the_desk, by_billing));
    assert_eq!(asked[1].2, ["pay"]);
    let heard = &sim.prompts[1].messages;
    assert!(matches!(&heard[0], Message::User { text } if text == "my invoice is wrong"));
    assert!(
        heard
            .iter()
            .any(|m| matches!(m, Message::Agent { text, .. } if text == "One moment."))
    );
    assert!(matches!(heard.last(), Some(Message::ToolResult { name, .. }) if name == "transfer"));

    assert!(sim.saw(|event| matches!(event, Event::AgentChanged { agent } if agent == "billing")));
    assert_eq!(sim.ended(), [ResponseStatus::Completed], "it is one answer");
    let voices = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Speak { text, speaker, .. } => Some((text.as_str(), speaker.voice.as_deref())),
        _ => None,
    });
    assert_eq!(
        voices.collect::<Vec<_>>(),
        [("One moment.", None), ("Billing here.", Some("deep"))]
    );
    let runs = &sim.records()[0].runs;
    let early = runs.iter().find(|run| run.source.is_some()).unwrap();
    let is_dropped = |fate: &Fate| {
        let reason = Discard::AgentChanged;
        matches!(fate, Fate::Discarded { reason: why, .. } if *why == reason)
    };
    assert!(is_dropped(&early.fate), "{early:?}");
    assert_eq!(
        runs.iter().filter(|run| run.source.is_some()).count(),
        1,
        "none began later"
    );
}

#[test]
fn a_voice_that_is_still_to_be_heard_stays_that_of_its_agent() {
    let mut sim = desk();
    let words = "I am going to put you through now. Please stay on the line. It takes a moment. ";
    let mut script = vec![say(words)];
    script.extend(call_with("transfer", json!({"agent": "billing"})));
    script.push(end());
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("Billing here."), end()]);
    ask(&mut sim, "my invoice is wrong", 600);
    sim.input(billing());
    sim.silence(15_000);
    let voices = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Speak { text, speaker, .. } => {
            Some((text.contains("Billing"), speaker.voice.is_some()))
        }
        _ => None,
    });
    let voices: Vec<_> = voices.collect();
    assert!(
        voices.len() > 2 && voices.iter().all(|(is_new, deep)| is_new == deep),
        "{voices:?}"
    );
}

#[test]
fn a_caller_who_interrupts_a_handoff_speaks_to_the_next_agent() {
    let mut sim = desk();
    let mut script = vec![say(
        "One moment, I am going to put you through to somebody. ",
    )];
    script.extend(call_with("transfer", json!({"agent": "billing"})));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "my invoice is wrong", 600);
    sim.input(billing());
    sim.speak("wait", 1_000);
    sim.scripts.push_back(vec![say("Billing here."), end()]);
    sim.silence(6_000);
    let asked = asked(&sim);
    assert_eq!(
        asked.last().map(|(agent, ..)| agent.as_str()),
        Some("billing")
    );
    assert!(sim.saw(|event| matches!(event, Event::AgentChanged { .. })));
}

#[test]
fn a_client_that_has_turned_speculation_off_keeps_it_off_after_a_handoff() {
    let mut sim = desk();
    sim.input(Input::Configure(Box::new(Settings {
        speculation: Some(false),
        ..Settings::default()
    })));
    sim.input(billing());
    sim.silence(100);
    assert!(!sim.policy().speculation.enabled);
    sim.input(Input::Configure(Box::new(Settings {
        speculation: Some(true),
        ..Settings::default()
    })));
    assert!(sim.policy().speculation.enabled);
}

#[test]
fn a_caller_is_not_passed_round_for_ever() {
    let mut sim = desk();
    for made in 0..4 {
        assert_eq!(sim.core.refuses_handoff(), None, "{made}");
        sim.input(billing());
        sim.silence(100);
    }
    let why = sim.core.refuses_handoff();
    assert!(why.is_some_and(|why| why.contains("too often")), "{why:?}");
}
