//! Sessions in which the agent bridges the wait for a slow tool: how long it is silent before the answer, and how
//! much its own words delay the answer.

use super::sim::{Script, Sim, Step, call_with, end, say};
use super::*;
use crate::prediction::{Prediction, Source};
use crate::tools::Eligibility;
use serde_json::json;

/// The model's announcement takes 0.7 s.
const ANNOUNCEMENT: &str = "Let me see.";
const ANSWER: &str = "It is sunny.";
/// The length of a frame, ms. A clause is sent in whole frames, so it may be longer than its audio by up to one.
const FRAME_MS: u64 = 20;

/// A clause as the user hears it.
#[derive(Debug)]
struct Said {
    text: String,
    /// When it begins, ms after the end of speech.
    at: u64,
    /// The silence before it, ms.
    silence: u64,
}

/// How a question was answered.
struct Answered {
    said: Vec<Said>,
    /// When the answer could have been heard if nothing had been said before it, ms after the end of speech.
    ready: u64,
}

impl Answered {
    fn answer(&self) -> &Said {
        let answer = self.said.last().expect("an answer");
        assert_eq!(answer.text, ANSWER);
        answer
    }

    /// How much later it was heard because of the words before it, ms.
    fn delay(&self) -> u64 {
        self.answer().at.saturating_sub(self.ready)
    }
}

/// 350 ms to the model's first words, another 0.3 s to the end of its call.
fn calling() -> Script {
    let [opened, closed] = call_with("weather", json!({"city": "boulder"}));
    let said = say(&format!("{ANNOUNCEMENT} "));
    let mut script = vec![Step::Wait(330), said, Step::Wait(150)];
    script.extend([opened, Step::Wait(150), closed, end()]);
    script
}

/// 350 ms to the model's first words, and 15 ms for each of the other tokens.
fn answering() -> Script {
    let (first, rest) = ANSWER.split_at(3);
    vec![
        Step::Wait(330),
        say(first),
        Step::Wait(90),
        say(rest),
        end(),
    ]
}

/// The call is known 70 ms before the end of speech.
fn ask(sim: &mut Sim) {
    sim.speak("what is the weather in", 1_000);
    sim.speak("what is the weather in boulder", 640);
}

/// A session in which rules predict the weather, whose tool takes `tool_ms` and was called `before` times.
fn answered(tool_ms: u64, early: bool, before: usize) -> Answered {
    let mut tool = (*tool("weather", Effect::Read)).clone();
    if early {
        tool.speculation.eligibility = Eligibility::Full;
    }
    let mut sim = Sim::new(with(vec![tool]));
    sim.router = Box::new(|heard| {
        let weather = Prediction {
            tool: "weather".into(),
            arguments: json!({"city": "boulder"}).as_object().cloned().unwrap(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        };
        let asks = heard.text.contains("boulder");
        asks.then_some(weather).into_iter().collect()
    });
    (sim.tool_ms, sim.completeness) = (tool_ms, 0.97);
    (sim.by_prompt, sim.speaks_as_estimated) = (true, true);
    for _ in 0..=before {
        sim.scripts.extend([calling(), answering()]);
    }
    for _ in 0..before {
        ask(&mut sim);
        sim.silence(9_000);
    }
    sim.sent.clear();
    sim.outputs.clear();
    ask(&mut sim);
    let end = sim.now();
    sim.silence(9_000);
    let said = said(&sim, end);
    let asked = |o: &Output| matches!(o, Output::Generate { .. });
    let mut asked = sim
        .outputs
        .iter()
        .filter(|(_, o)| asked(o))
        .map(|(at, _)| *at);
    let asked = asked.next_back().expect("a generation for the answer");
    let commit = sim.latency().commit.expect("a call");
    // 20 ms until the model's stream begins, 60 ms for the voice.
    let words = asked + Micros::from_ms(20 + 330 + 90);
    let ready = words.max(commit).since(end).as_ms() + 60;
    Answered { said, ready }
}

/// The clauses since `end`, from the frames that were sent.
fn said(sim: &Sim, end: Time) -> Vec<Said> {
    let text = |wanted: ClauseId| {
        let mut outputs = sim.outputs.iter();
        outputs.find_map(|(_, output)| match output {
            Output::Speak { clause, text, .. } if *clause == wanted => Some(text.clone()),
            _ => None,
        })
    };
    let (mut said, mut last, mut plays) = (Vec::new(), None, end);
    for (at, clause) in &sim.sent {
        let begins = plays.max(*at);
        if last != Some(*clause) {
            said.push(Said {
                text: text(*clause).unwrap_or_default(),
                at: begins.since(end).as_ms(),
                silence: begins.since(plays).as_ms(),
            });
        }
        (last, plays) = (Some(*clause), begins + Micros::from_ms(20));
    }
    said
}

/// The greatest silence before any clause but the first, ms.
fn silence(answered: &Answered) -> u64 {
    let said = answered.said.iter().skip(1);
    said.map(|said| said.silence).max().unwrap_or(0)
}

#[test]
fn an_announcement_lasts_until_an_answer_that_comes_soon() {
    // Of a tool that was never called before, and of one whose latency is known. At its usual speed the
    // announcement would leave 200 ms of silence.
    for (tool_ms, before) in [(1_000, 0), (1_300, 3)] {
        let answered = answered(tool_ms, true, before);
        assert!(answered.answer().silence <= 100, "{:?}", answered.said);
        assert!(answered.delay() <= FRAME_MS, "{} ms", answered.delay());
    }
}

#[test]
fn a_second_filler_follows_the_first_without_a_gap() {
    let answered = answered(2_000, true, 3);
    assert_eq!(answered.said.len(), 3, "{:?}", answered.said);
    assert!(silence(&answered) <= 150, "{:?}", answered.said);
}

#[test]
fn no_filler_delays_an_answer_noticeably() {
    for (early, kind) in [(true, "early"), (false, "late")] {
        for before in [0, 1, 3] {
            for tool_ms in (100..=4_000).step_by(100) {
                let answered = answered(tool_ms, early, before);
                assert!(
                    answered.delay() <= 300 + FRAME_MS,
                    "{kind} {before} {tool_ms}: {:?}",
                    answered.said
                );
            }
        }
    }
}

/// A question to a model that looks at the clock, whose tool takes `tool_ms`; the model's words before its call and
/// after the result.
fn two_passes(tool_ms: u64, before: &str, after: &str) -> Sim {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    sim.policy().speculation.preemptive = false;
    sim.tool_ms = tool_ms;
    let [opened, closed] = call_with("clock", json!({}));
    let first = vec![Step::Wait(330), say(before), opened, closed, end()];
    let second = vec![Step::Wait(330), say(after), end()];
    sim.scripts.extend([first, second]);
    sim.speak("what time is it", 1_000);
    sim.silence(9_000);
    sim
}

/// The agent's words as the model sees them.
fn agents_words(sim: &Sim) -> String {
    let messages = sim.core.history.messages().into_iter();
    let texts = messages.filter_map(|message| match message {
        Message::Agent { text, .. } => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_second_pass_does_not_repeat_an_announcement() {
    for (before, after, said) in [
        (
            "One moment. ",
            "One moment. It is noon.",
            "One moment. It is noon.",
        ),
        (
            "One moment, please. ",
            "One moment please! It is noon.",
            "One moment, please. It is noon.",
        ),
        // Other words than an announcement of work may be the answer.
        (
            "Okay. One moment. ",
            "Okay. It is noon.",
            "Okay. One moment. Okay. It is noon.",
        ),
        ("It is late. ", "It is late.", "It is late. It is late."),
        // An answer is never nothing.
        ("One moment. ", "One moment.", "One moment. One moment."),
    ] {
        let sim = two_passes(600, before, after);
        assert_eq!(sim.spoken().join(" "), said);
        assert_eq!(agents_words(&sim), said);
        assert_eq!(sim.ended(), [ResponseStatus::Completed], "{after}");
    }
}

#[test]
fn an_announcement_that_was_not_heard_may_still_be_made() {
    // The second pass begins before the last words of the first are heard.
    let before = "Let me look that up in the calendar. One moment. ";
    let sim = two_passes(0, before, "One moment. It is noon.");
    let said = [
        "Let me look that up in the calendar.",
        "One moment.",
        "It is noon.",
    ];
    assert_eq!(sim.spoken(), said);
}

#[test]
fn the_server_does_not_repeat_the_announcement_of_the_model() {
    for tool_ms in (1_000..=4_000).step_by(250) {
        let sim = two_passes(tool_ms, "One moment. ", "It is noon.");
        let spoken = sim.spoken();
        let repeated = spoken.iter().filter(|said| *said == "One moment.").count();
        assert_eq!(repeated, 1, "{tool_ms} ms: {spoken:?}");
        assert_eq!(spoken.last().unwrap(), "It is noon.");
    }
}
