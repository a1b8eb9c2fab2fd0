//! Sessions whose recogniser judges turns itself.

use super::*;
use crate::asr::{TurnReport, TurnState};
use TurnState::{Open, Over, PerhapsOver, Resumed};

fn judged(sim: &mut Sim, state: TurnState) {
    let to = sim.audio();
    sim.input(Input::TurnJudged(TurnReport { state, to }));
}

/// Silence before and in which the recogniser says four times a second that the turn is open.
fn open(sim: &mut Sim, ms: u64) {
    judged(sim, Open);
    for _ in 0..ms.div_ceil(256) {
        sim.silence(256);
        judged(sim, Open);
    }
}

fn has_ended(sim: &Sim) -> bool {
    sim.saw(|event| matches!(event, Event::UserItem { .. }))
}

#[test]
fn the_model_is_asked_at_the_probable_end_and_heard_at_the_end() {
    let mut sim = sim();
    sim.scripts.push_back(vec![say("For how long?"), end()]);
    sim.speak("set a timer for", 1_000);
    open(&mut sim, 256);
    assert_eq!(sim.prompts.len(), 0, "the words lead on");
    judged(&mut sim, PerhapsOver);
    sim.silence(256);
    assert_eq!(sim.prompts.len(), 1);
    assert!(sim.sent.is_empty() && !has_ended(&sim));
    judged(&mut sim, Over);
    assert!(has_ended(&sim));
    sim.silence(2_000);
    assert_eq!(sim.spoken(), ["For how long?"]);
    assert_eq!((sim.prompts.len(), sim.given_up.len()), (1, 0));
}

#[test]
fn nothing_is_heard_of_an_answer_to_a_user_who_goes_on() {
    let mut sim = sim();
    for answer in ["For how long?", "Ten minutes it is."] {
        sim.scripts.push_back(vec![say(answer), end()]);
    }
    sim.speak("set a timer for", 1_000);
    judged(&mut sim, PerhapsOver);
    sim.silence(256);
    assert_eq!(sim.prompts.len(), 1);
    judged(&mut sim, Resumed);
    assert_eq!(sim.given_up.len(), 1);
    open(&mut sim, 512);
    assert_eq!(sim.prompts.len(), 1, "not again for the same words");
    sim.speak("set a timer for ten minutes", 500);
    sim.silence(96);
    judged(&mut sim, PerhapsOver);
    sim.silence(128);
    judged(&mut sim, Over);
    sim.silence(2_000);
    assert_eq!(sim.spoken(), ["Ten minutes it is."]);
}

#[test]
fn a_turn_that_reads_complete_is_open_as_long_as_the_recogniser_says_so() {
    let mut sim = sim();
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.speak("what time is it", 1_000);
    open(&mut sim, 1_024);
    assert!(!has_ended(&sim));
    judged(&mut sim, PerhapsOver);
    judged(&mut sim, Over);
    sim.silence(96);
    assert!(has_ended(&sim));
}

#[test]
fn a_recogniser_that_reports_no_more_delays_a_turn_by_little() {
    let ends_after = |reports_ms: u64| {
        let mut sim = sim();
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        sim.speak("what time is it", 1_000);
        let spoke = sim.now();
        if reports_ms > 0 {
            open(&mut sim, reports_ms);
        }
        sim.silence(3_000);
        let item = |(_, event): &&(Time, Event)| matches!(event, Event::UserItem { .. });
        let (at, _) = sim.events.iter().find(item).expect("the turn ends");
        at.since(spoke).as_ms()
    };
    let alone = ends_after(0);
    assert!(alone < 600, "{alone}");
    let hung = ends_after(256);
    assert!((700..800).contains(&hung), "{hung}");
    let longest = ends_after(2_560);
    assert!((1_400..1_600).contains(&longest), "{longest}");
}

#[test]
fn a_verdict_on_an_earlier_turn_ends_none() {
    let mut sim = sim();
    for answer in ["It is noon.", "It is sunny."] {
        sim.scripts.push_back(vec![say(answer), end()]);
    }
    ask(&mut sim, "what time is it", 4_000);
    let to = sim.audio();
    sim.events.clear();
    sim.speak("set a timer for", 1_000);
    sim.silence(128);
    sim.input(Input::TurnJudged(TurnReport { state: Over, to }));
    sim.silence(128);
    assert!(!has_ended(&sim));
}

#[test]
fn a_fixed_length_of_silence_needs_no_verdict() {
    let mut sim = sim();
    sim.input(Input::Configure(Box::new(Settings {
        turn_detection: Some(TurnDetection {
            rule: EndOfTurnRule::Silence { ms: 400 },
            ..TurnDetection::default()
        }),
        ..Settings::default()
    })));
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.speak("what time is it", 1_000);
    sim.silence(128);
    judged(&mut sim, Over);
    sim.silence(128);
    assert!(!has_ended(&sim));
    judged(&mut sim, Open);
    sim.silence(192);
    assert!(has_ended(&sim));
}
