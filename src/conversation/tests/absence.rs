//! Sessions whose client loses its connection and comes back.

use super::sim::{Sim, call, call_with, end, say};
use super::*;
use serde_json::json;

const COUNT: &str = "One two three four five six seven eight nine ten.";

fn lose(sim: &mut Sim) {
    sim.input(Input::ClientLost);
}

fn come_back(sim: &mut Sim, heard: Option<HeardUpTo>) {
    sim.input(Input::ClientBack { heard });
}

/// A session in the middle of counting to ten.
fn counting() -> Sim {
    let mut sim = sim();
    sim.scripts.push_back(vec![say(COUNT), end()]);
    ask(&mut sim, "count", 1_500);
    sim
}

/// The words of the agent that were heard, according to the history.
fn heard(sim: &Sim) -> String {
    let messages = sim.core.history.messages();
    let texts = messages.iter().filter_map(|message| match message {
        Message::Agent { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn outcomes(sim: &Sim) -> Vec<ConfirmationOutcome> {
    let ended = sim.events.iter().filter_map(|(_, event)| match event {
        Event::ConfirmationEnded { outcome, .. } => Some(*outcome),
        _ => None,
    });
    ended.collect()
}

#[test]
fn the_answer_goes_on_with_the_first_word_that_was_not_heard() {
    let mut sim = counting();
    lose(&mut sim);
    assert!(sim.outputs.iter().any(|(_, o)| *o == Output::Flush));
    assert_eq!(sim.ended(), [ResponseStatus::Interrupted]);
    let before = sim.spoken().len();
    sim.no_audio(10_000);
    assert_eq!(sim.spoken().len(), before, "nobody listens");
    let so_far = heard(&sim);
    assert!(COUNT.starts_with(&so_far) && so_far.len() < COUNT.len());
    come_back(&mut sim, None);
    sim.silence(6_000);
    assert_eq!(heard(&sim), COUNT);
    assert_eq!(sim.prompts.len(), 1, "the model is not asked again");
}

#[test]
fn the_client_knows_better_what_it_has_heard() {
    let mut sim = counting();
    sim.silence(1_000);
    lose(&mut sim);
    let report = sim.heard_of_the_last_item(700);
    come_back(&mut sim, report);
    sim.silence(6_000);
    assert_eq!(sim.spoken()[1], "three four five six seven eight nine ten.");
    assert_eq!(heard(&sim), COUNT);
}

#[test]
fn an_answer_that_was_sent_into_a_dead_connection_is_said_again() {
    let mut sim = counting();
    sim.silence(6_000);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    lose(&mut sim);
    let report = sim.heard_of_the_last_item(1_000);
    come_back(&mut sim, report);
    sim.silence(6_000);
    assert_eq!(sim.spoken()[1], "four five six seven eight nine ten.");
    assert_eq!(heard(&sim), COUNT);
}

#[test]
fn whoever_has_heard_everything_hears_nothing_again() {
    let mut sim = counting();
    sim.silence(6_000);
    lose(&mut sim);
    let report = sim.heard_of_the_last_item(60_000);
    come_back(&mut sim, report);
    sim.silence(6_000);
    assert_eq!(sim.spoken(), [COUNT]);
}

/// It was taken for heard, because it stands before the question that had come first.
#[test]
fn a_greeting_that_was_lost_with_the_answer_behind_it_is_said_again() {
    let mut sim = waiting();
    sim.scripts.push_back(vec![say(COUNT), end()]);
    sim.no_audio(100);
    typed(&mut sim, "count");
    sim.input(Input::RespondWith(Box::default()));
    sim.no_audio(100);
    let greeting = sim.heard_of_the_last_item(0);
    sim.no_audio(2_000);
    assert_eq!(sim.spoken()[..1], ["Hello there."]);
    let before = sim.spoken().len();
    assert!(before > 1, "the answer has begun");
    lose(&mut sim);
    come_back(&mut sim, greeting);
    sim.silence(10_000);
    assert_eq!(
        sim.spoken()[before..].join(" "),
        format!("Hello there. {COUNT}")
    );
}

/// The first return is lost, too, before any of its audio arrives: the client reports the same as before.
#[test]
fn a_second_loss_repeats_nothing_twice() {
    let mut sim = counting();
    lose(&mut sim);
    let report = sim.heard_of_the_last_item(700);
    for _ in 0..2 {
        come_back(&mut sim, report);
        sim.silence(320);
        lose(&mut sim);
    }
    come_back(&mut sim, report);
    sim.silence(6_000);
    assert_eq!(heard(&sim), COUNT);
}

#[test]
fn the_words_before_the_users_last_turn_are_not_said_again() {
    let mut sim = counting();
    let report = sim.heard_of_the_last_item(300);
    sim.scripts.push_back(vec![say("All right."), end()]);
    ask(&mut sim, "Stop.", 4_000);
    lose(&mut sim);
    come_back(&mut sim, report);
    sim.silence(6_000);
    let again = sim.spoken();
    assert_eq!(again[1..], ["All right.", "All right."]);
}

#[test]
fn a_call_goes_on_while_the_client_is_away_and_its_result_is_told_after_the_return() {
    let mut sim = Sim::new(with(vec![(*tool("write", Effect::Irreversible)).clone()]));
    sim.tool_ms = 3_000;
    sim.scripts
        .push_back([&call("write")[..], &[end()]].concat());
    sim.scripts.push_back(vec![say("It is done."), end()]);
    ask(&mut sim, "write it down", 1_500);
    assert_eq!(sim.tools_started, ["write"]);
    lose(&mut sim);
    sim.no_audio(10_000);
    assert!(sim.saw(|e| matches!(e, Event::ToolFinished { result: Ok(_), .. })));
    assert!(!sim.spoken().contains(&"It is done.".into()));
    come_back(&mut sim, None);
    sim.silence(3_000);
    assert_eq!(sim.spoken().last().unwrap(), "It is done.");
    assert_eq!(sim.tools_started, ["write"]);
}

#[test]
fn a_call_that_still_runs_at_the_return_is_waited_for() {
    let mut sim = Sim::new(with(vec![(*tool("write", Effect::Irreversible)).clone()]));
    sim.tool_ms = 6_000;
    sim.scripts
        .push_back([&call("write")[..], &[end()]].concat());
    sim.scripts.push_back(vec![say("It is done."), end()]);
    ask(&mut sim, "write it down", 1_500);
    lose(&mut sim);
    sim.no_audio(1_000);
    come_back(&mut sim, None);
    sim.silence(8_000);
    assert_eq!(sim.spoken().last().unwrap(), "It is done.");
    assert_eq!(sim.tools_started, ["write"]);
}

/// A session in which the agent has asked whether to send the money, or is asking.
fn asked(ms: u64) -> Sim {
    let mut sim = Sim::new(with(vec![asking("transfer", "Send 5 dollars to Ann?")]));
    let mut script = vec![say("I can do that.")];
    script.extend(call_with("transfer", json!({"amount": 5})));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "send five dollars to ann", ms);
    sim
}

#[test]
fn a_question_is_asked_again_after_the_return_and_a_yes_counts_then() {
    // Within the words before it, within the question, and after it.
    for ms in [900, 2_300, 4_500] {
        let mut sim = asked(ms);
        lose(&mut sim);
        let before = sim.spoken().len();
        sim.no_audio(28_000);
        come_back(&mut sim, None);
        sim.silence(5_000);
        let again = sim.spoken()[before..].join(" ");
        assert!(again.ends_with("Send 5 dollars to Ann?"), "{ms}: {again}");
        assert_eq!(again.matches("dollars").count(), 1, "{ms}: {again}");
        assert_eq!(outcomes(&sim), [], "{ms}");
        ask(&mut sim, "Yes, please.", 3_000);
        assert_eq!(sim.tools_started, ["transfer"], "{ms}");
        assert_eq!(outcomes(&sim), [ConfirmationOutcome::Accepted], "{ms}");
    }
}

/// The user may have gone on: "Yes, but make it six."
#[test]
fn a_yes_that_the_loss_may_have_cut_off_runs_nothing() {
    let mut sim = asked(4_500);
    sim.speak("Yes.", 500);
    lose(&mut sim);
    sim.no_audio(10_000);
    assert_eq!(outcomes(&sim), [ConfirmationOutcome::Abandoned]);
    come_back(&mut sim, None);
    sim.silence(3_000);
    assert_eq!(sim.tools_started.len(), 0);
    assert_eq!(
        sim.spoken().last().unwrap(),
        "All right.",
        "the turn is answered"
    );
}

#[test]
fn a_noise_before_the_loss_leaves_the_question_to_be_asked_again() {
    let mut sim = asked(4_500);
    sim.speak("", 300);
    lose(&mut sim);
    sim.no_audio(10_000);
    come_back(&mut sim, None);
    sim.silence(4_000);
    assert_eq!(sim.spoken().last().unwrap(), "Send 5 dollars to Ann?");
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
}

#[test]
fn a_click_while_the_client_is_away_is_refused() {
    let mut sim = asked(4_500);
    lose(&mut sim);
    let call = sim.core.confirmation.awaited().unwrap();
    sim.input(Input::Confirm {
        call,
        accepted: true,
    });
    assert!(sim.saw(|e| matches!(e, Event::Refused { request, .. } if request == "Confirm")));
    assert_eq!(sim.tools_started.len(), 0);
}

#[test]
fn half_an_utterance_is_a_turn_and_answered_after_the_return() {
    let mut sim = sim();
    sim.silence(500);
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.speak("what time is it", 1_000);
    lose(&mut sim);
    sim.no_audio(5_000);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "what time is it")));
    assert!(!sim.saw(|e| matches!(e, Event::ResponseStarted { .. })));
    come_back(&mut sim, None);
    sim.silence(2_000);
    assert_eq!(heard(&sim), "It is noon.");
}

#[test]
fn speech_that_began_before_the_loss_and_goes_on_after_the_return_is_one_turn() {
    let mut sim = sim();
    sim.silence(500);
    sim.speak("what time", 500);
    lose(&mut sim);
    sim.no_audio(100);
    come_back(&mut sim, None);
    ask(&mut sim, "what time is it", 3_000);
    let items = sim.events.iter().filter_map(|(_, event)| match event {
        Event::UserItem { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(items.collect::<Vec<_>>(), ["what time is it"]);
}

#[test]
fn whoever_is_away_is_neither_prompted_nor_sent_off() {
    let mut policy = Policy::default();
    policy.timeouts.silence_prompt = Some(Micros::from_ms(3_000));
    policy.timeouts.idle = Micros::from_ms(5_000);
    let mut sim = Sim::new(policy);
    sim.silence(1_000);
    lose(&mut sim);
    sim.no_audio(29_000);
    assert_eq!((sim.spoken().len(), sim.hung_up), (0, None));
    come_back(&mut sim, None);
    sim.silence(4_000);
    assert_eq!(sim.spoken(), [Phrases::default().still_there]);
}

#[test]
fn a_timer_that_rings_while_the_client_is_away_is_announced_after_the_return() {
    let mut sim = sim();
    sim.silence(500);
    lose(&mut sim);
    let text = "Your timer is over.".to_owned();
    sim.input(Input::Announce { text: text.clone() });
    sim.no_audio(5_000);
    assert_eq!(sim.spoken().len(), 0);
    come_back(&mut sim, None);
    sim.silence(3_000);
    assert_eq!(sim.spoken(), [text]);
}

/// It was given aloud to nobody.
#[test]
fn a_response_that_has_waited_for_words_is_given_after_the_return() {
    let mut sim = sim();
    sim.silence(500);
    let audio = NewItem::Spoken {
        text: String::new(),
    };
    sim.input(audio.at_the_end());
    let added = sim.events.iter().find_map(|(_, event)| match event {
        Event::ItemAdded { item } => Some(*item),
        _ => None,
    });
    let item = added.expect("it is added at once");
    sim.input(Input::RespondWith(Box::new(ResponseTerms {
        place: ResponsePlace::Aloud,
        ..ResponseTerms::default()
    })));
    lose(&mut sim);
    let words = Some("a dog barks".into());
    sim.input(Input::ItemHeard { item, words });
    sim.no_audio(3_000);
    let began = |e: &Event| matches!(e, Event::ResponseStarted { .. });
    assert!(!sim.saw(began), "nobody listens");
    come_back(&mut sim, None);
    sim.silence(3_000);
    assert!(sim.saw(began));
    assert_eq!(sim.spoken(), ["All right."]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn a_shutdown_or_the_longest_session_ends_one_whose_client_is_away() {
    let mut sim = counting();
    lose(&mut sim);
    sim.input(Input::Drain);
    assert_eq!(sim.hung_up, Some(HangUpReason::Shutdown));
    let mut policy = Policy::default();
    policy.timeouts.session = Micros::from_ms(10_000);
    let mut sim = Sim::new(policy);
    sim.silence(5_000);
    lose(&mut sim);
    sim.no_audio(6_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::TooLong));
}

#[test]
fn a_goodbye_that_the_loss_cut_off_is_said_to_its_end_before_the_call_ends() {
    let mut sim = Sim::new(with(vec![ending("ends", EndsCall::HangUp)]));
    let goodbye = say("Goodbye and have a very nice day.");
    let script = [&[goodbye], &call("ends")[..], &[end()]].concat();
    sim.scripts.push_back(script);
    ask(&mut sim, "that is all", 1_500);
    lose(&mut sim);
    sim.no_audio(20_000);
    assert_eq!(sim.hung_up, None);
    come_back(&mut sim, None);
    sim.silence(6_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::AgentEnded));
    assert_eq!(heard(&sim), "Goodbye and have a very nice day.");
}
