//! Sessions with calls that need the user's yes.

use super::sim::{Sim, Step, call_with, end, say};
use super::*;
use crate::llm::Phrases;
use crate::tools::Confirmation;
use serde_json::json;
use std::time::Duration;

fn transfer() -> Sim {
    let mut transfer = (*tool("transfer", Effect::Irreversible)).clone();
    transfer.confirmation = Confirmation::Spoken {
        question: Some("Send {{ amount }} dollars to {{ to }}?".into()),
        expiry: Duration::from_secs(10),
    };
    let mut sim = Sim::new(Policy {
        tools: Arc::new(vec![Arc::new(transfer)]),
        ..Policy::default()
    });
    let mut script = vec![say("I can do that.")];
    script.extend(call_with("transfer", json!({"amount": 5, "to": "Ann"})));
    script.push(end());
    sim.scripts.push_back(script);
    sim
}

fn asked() -> Sim {
    let mut sim = transfer();
    ask(&mut sim, "send five dollars to ann", 4_500);
    assert_eq!(sim.spoken(), ["I can do that.", "Send 5 dollars to Ann?"]);
    assert_eq!(sim.tools_started.len(), 0);
    assert!(!format!("{:?}", sim.core.history.messages()).contains("ToolCall"));
    sim
}

fn outcome(sim: &Sim) -> Option<ConfirmationOutcome> {
    sim.events.iter().rev().find_map(|(_, event)| match event {
        Event::ConfirmationEnded { outcome, .. } => Some(*outcome),
        _ => None,
    })
}

fn pending(sim: &Sim) -> CallId {
    let asked = sim.events.iter().rev().find_map(|(_, event)| match event {
        Event::ConfirmationAsked { call, .. } => Some(*call),
        _ => None,
    });
    asked.expect("a confirmation was asked for")
}

#[test]
fn a_yes_runs_it_once_with_the_arguments_that_were_read_back() {
    let mut sim = asked();
    ask(&mut sim, "Yes, please.", 3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Accepted));
    let history = sim.core.history.messages();
    assert!(matches!(&history[4], Message::ToolCall { arguments, .. }
        if *arguments == *json!({"amount": 5, "to": "Ann"}).as_object().unwrap()));
    assert!(matches!(history[5], Message::ToolResult { .. }));
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started.len(), 1, "a second yes is just a word");
}

#[test]
fn a_please_behind_a_yes_is_no_turn_of_its_own() {
    for gap in (50..1_500).step_by(50) {
        let mut sim = asked();
        sim.scripts
            .push_back(vec![say("The money is on its way to Ann."), end()]);
        sim.speak("Yes.", 200);
        sim.silence(gap);
        // Within the turn the recogniser hears both.
        // The detector may notice the next word two windows late.
        let noticed = gap + 64;
        let is_within = noticed < Policy::default().endpoint.complete_ms;
        sim.speak(if is_within { "Yes. Please." } else { "Please." }, 300);
        sim.silence(8_000);
        assert_eq!(sim.tools_started, ["transfer"], "{gap} ms");
        let messages = sim.core.history.messages();
        let is_please = |m: &Message| matches!(m, Message::User { text } if text == "Please.");
        assert!(!messages.iter().any(is_please), "{gap} ms: {messages:?}");
        let Some(Message::Agent { text, interrupted }) = messages.last() else {
            panic!("{gap} ms: {messages:?}");
        };
        assert!(
            !interrupted && text.ends_with("to Ann."),
            "{gap} ms: {text}"
        );
    }
}

#[test]
fn a_please_behind_a_request_waits_for_the_same_answer() {
    for gap in [200, 300, 400, 600, 800] {
        let mut sim = Sim::new(Policy::default());
        for _ in 0..2 {
            let answer = say("The shop opens at nine in the morning.");
            sim.scripts.push_back(vec![Step::Wait(600), answer, end()]);
        }
        sim.speak("when does the shop open?", 900);
        sim.silence(gap);
        sim.speak("Please.", 300);
        sim.silence(9_000);
        let messages = sim.core.history.messages();
        let users = messages
            .iter()
            .filter(|m| matches!(m, Message::User { .. }));
        assert_eq!(users.count(), 1, "{gap} ms: {messages:?}");
        let Some(Message::Agent { text, .. }) = messages.last() else {
            panic!("{gap} ms: {messages:?}");
        };
        assert!(text.ends_with("in the morning."), "{gap} ms: {text}");
    }
}

#[test]
fn anything_but_a_yes_runs_nothing() {
    for (words, expected) in [
        ("No.", ConfirmationOutcome::Declined),
        ("Yes, but make it six.", ConfirmationOutcome::Abandoned),
        ("What time is it?", ConfirmationOutcome::Abandoned),
    ] {
        let mut sim = asked();
        ask(&mut sim, words, 3_000);
        assert_eq!(outcome(&sim), Some(expected), "{words}");
        assert_eq!(sim.spoken().last().unwrap(), "All right.");
        ask(&mut sim, "Yes.", 3_000);
        assert_eq!(sim.tools_started.len(), 0, "{words}");
    }
}

/// The first call is asked about, and the model is told that the others were not run.
#[test]
fn one_of_several_calls_is_asked_about_and_the_model_is_told_of_the_others() {
    let mut sim = transfer();
    let to = |name: &str| call_with("transfer", json!({"amount": 5, "to": name}));
    let calls = ["Ann", "Ann", "Bob"].into_iter().flat_map(to);
    let script = calls.chain([end()]).collect();
    sim.scripts = [script].into();
    ask(&mut sim, "send five dollars to ann and to bob", 4_500);
    assert_eq!(sim.spoken(), ["Send 5 dollars to Ann?"]);
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
    let history = sim.core.history.messages();
    let told = |message: &&Message| matches!(message, Message::System { text } if text.contains("was not run"));
    assert_eq!(history.iter().filter(told).count(), 1, "{history:?}");
    let sent = |message: &Message| matches!(message, Message::ToolCall { arguments, .. } if arguments["to"] == "Ann");
    assert!(history.iter().any(sent));
}

#[test]
fn a_yes_that_comes_too_late_does_not_count() {
    let mut sim = asked();
    sim.silence(11_000);
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Expired));
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started.len(), 0);
}

#[test]
fn a_yes_over_the_question_does_not_count() {
    let mut sim = transfer();
    ask(&mut sim, "send five dollars to ann", 2_000);
    sim.speak("Yes.", 500);
    sim.silence(5_000);
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Abandoned));
    assert_eq!(sim.tools_started.len(), 0);
}

#[test]
fn a_short_answer_without_words_is_asked_for_again() {
    let mut sim = asked();
    let said = sim.spoken().len();
    sim.words = String::new();
    sim.windows(400, 0.96);
    sim.silence(6_000);
    let again = Phrases::default().asr_failed;
    assert_eq!(sim.spoken()[said..], [&again, "Send 5 dollars to Ann?"]);
    ask(&mut sim, "yes", 3_000);
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Accepted));
}

#[test]
fn noise_over_the_question_repeats_it() {
    let mut sim = transfer();
    ask(&mut sim, "send five dollars to ann", 2_000);
    sim.speak("", 300);
    sim.silence(6_000);
    assert_eq!(outcome(&sim), None);
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
}

#[test]
fn a_click_counts_as_an_answer() {
    let mut sim = asked();
    let call = pending(&sim);
    sim.input(Input::Confirm {
        call,
        accepted: true,
    });
    sim.silence(3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
    sim.input(Input::Confirm {
        call,
        accepted: true,
    });
    sim.silence(3_000);
    assert_eq!(sim.tools_started.len(), 1);
    let refused = |e: &Event| matches!(e, Event::Refused { request, .. } if request == "Confirm");
    assert!(sim.saw(refused));

    let mut sim = asked();
    let call = pending(&sim);
    sim.input(Input::Confirm {
        call,
        accepted: false,
    });
    sim.silence(2_000);
    let declined = Phrases::default().declined;
    assert_eq!(sim.spoken().last(), Some(&declined), "a key is answered");
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started.len(), 0);
}

/// The call ran, and an answer began.
#[test]
fn a_yes_runs_nothing_once_the_client_wants_transcripts_alone() {
    for clicks in [false, true] {
        let mut sim = asked();
        let call = pending(&sim);
        sim.input(Input::Configure(Box::new(Settings {
            transcribe_only: true,
            ..Settings::default()
        })));
        assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Abandoned));
        sim.events.clear();
        if clicks {
            let accepted = true;
            sim.input(Input::Confirm { call, accepted });
        } else {
            sim.speak("Yes.", 1_000);
        }
        sim.silence(3_000);
        assert!(sim.tools_started.is_empty(), "clicks: {clicks}");
        let began = |e: &Event| matches!(e, Event::ResponseStarted { .. });
        assert!(!sim.saw(began), "clicks: {clicks}");
    }
}

#[test]
fn without_a_template_the_arguments_are_read_back_by_name() {
    let mut add = (*tool("add_note", Effect::Reversible)).clone();
    add.confirmation = Confirmation::Spoken {
        question: None,
        expiry: Duration::from_secs(10),
    };
    let mut sim = Sim::new(Policy {
        tools: Arc::new(vec![Arc::new(add)]),
        ..Policy::default()
    });
    let mut script = call_with("add_note", json!({"text": "<b>milk", "due_day": 2})).to_vec();
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "note milk", 4_000);
    let said = sim.spoken().join(" ");
    assert_eq!(said, "Shall I add note with text ‹b›milk, due day 2?");
}

#[test]
fn a_yes_to_something_else_runs_nothing() {
    let mut sim = asked();
    sim.input(Input::Announce {
        text: "Your tea timer rings now.".into(),
    });
    sim.silence(800);
    ask(&mut sim, "Okay.", 3_000);
    assert_eq!(sim.tools_started.len(), 0);
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Abandoned));

    let mut sim = asked();
    sim.input(Input::Respond { instructions: None });
    ask(&mut sim, "Okay.", 3_000);
    assert_eq!(sim.tools_started.len(), 0);
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Abandoned));
}

#[test]
fn a_question_followed_by_an_announcement_is_repeated() {
    let mut sim = asked();
    sim.policy().timeouts.silence_prompt = Some(Micros::from_ms(3_000));
    sim.silence(6_500);
    let there = &Phrases::default().still_there;
    assert_eq!(sim.spoken()[2..], [there, "Send 5 dollars to Ann?"]);
    sim.policy().timeouts.silence_prompt = None;
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
}

#[test]
fn a_goodbye_does_not_repeat_the_question() {
    let mut sim = asked();
    sim.policy().timeouts.silence_prompt = Some(Micros::from_ms(1_000));
    while sim.hung_up.is_none() {
        sim.silence(1_000);
    }
    assert_eq!(sim.spoken().last().unwrap(), "Goodbye.");

    let mut sim = asked();
    sim.policy().timeouts.silence_prompt = Some(Micros::from_ms(1_000));
    while sim.spoken().last().unwrap() != "Goodbye." {
        sim.silence(32);
    }
    sim.silence(500);
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started.len(), 0, "a yes to the goodbye");
}

#[test]
fn an_answer_may_be_typed() {
    let mut sim = asked();
    typed(&mut sim, "no, leave it");
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Declined));
    sim.input(Input::Respond { instructions: None });
    sim.silence(3_000);
    ask(&mut sim, "Okay.", 3_000);
    assert_eq!(sim.tools_started.len(), 0);

    let mut sim = asked();
    typed(&mut sim, "yes");
    sim.silence(500);
    assert_eq!(sim.tools_started.len(), 0, "no answer is asked for yet");
    sim.input(Input::Respond { instructions: None });
    sim.silence(3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
    assert_eq!(sim.prompts.len(), 2, "one answer to the yes");
}

#[test]
fn a_typed_yes_counts_before_the_question_was_heard() {
    let mut sim = transfer();
    sim.speak("send five dollars to ann", 1_000);
    while !sim.core.confirmation.is_asked() {
        sim.silence(32);
    }
    typed(&mut sim, "yes");
    sim.input(Input::Respond { instructions: None });
    sim.silence(3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
}

#[test]
fn a_question_waits_for_the_answer_to_a_clients_call() {
    let mut sim = transfer();
    sim.client_has(&["show_card"]);
    let sends = call_with("transfer", json!({"amount": 5, "to": "Ann"}));
    let both = [call("show_card"), sends.clone()].concat();
    sim.scripts = [
        [both, vec![end()]].concat(),
        [sends.to_vec(), vec![end()]].concat(),
    ]
    .into();
    ask(&mut sim, "send five dollars to ann", 2_000);
    assert!(sim.spoken().is_empty());
    sim.input(Input::Respond { instructions: None });
    sim.silence(3_000);
    assert_eq!(sim.spoken(), ["Send 5 dollars to Ann?"]);
    ask(&mut sim, "Yes.", 2_000);
    assert_eq!(sim.tools_started, ["transfer"]);
}

#[test]
fn a_question_that_cannot_be_said_is_not_asked() {
    let mut sim = transfer();
    sim.tts_fails.insert("Send 5 dollars to Ann?".into());
    ask(&mut sim, "send five dollars to ann", 5_000);
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Abandoned));
    ask(&mut sim, "Okay.", 3_000);
    assert_eq!(sim.tools_started.len(), 0);
}

#[test]
fn a_key_confirms_although_its_tone_is_heard() {
    for (key, started) in [('1', 1), ('2', 0)] {
        let mut sim = transfer();
        ask(&mut sim, "send five dollars to ann", 2_500);
        sim.speak("", 400);
        assert!(
            sim.core.interruption.is_judging(),
            "the tone stops the agent"
        );
        sim.input(Input::Key { key });
        sim.silence(4_000);
        assert_eq!(sim.tools_started.len(), started);
        assert!(!sim.saw(|e| matches!(e, Event::Refused { .. })));
        let declined = Phrases::default().declined;
        assert_eq!(sim.spoken().contains(&declined), key == '2');
    }
}

#[test]
fn without_barge_in_a_yes_ends_the_current_response() {
    let mut sim = asked();
    sim.uninterruptible(true);
    sim.speak("Yes.", 400);
    sim.input(Input::Announce {
        text: "Your tea timer rings now.".into(),
    });
    sim.silence(6_000);
    let began = |e: &&(Time, Event)| matches!(e.1, Event::ResponseStarted { .. });
    let started = sim.events.iter().filter(began).count();
    assert_eq!(sim.ended().len(), started);
    assert_eq!(sim.tools_started, ["transfer"]);
}

/// Nothing was said after the noise, so a yes to the next announcement ran the call.
#[test]
fn noise_behind_the_last_word_of_a_question_has_it_asked_again() {
    let mut sim = transfer();
    sim.tells_words = true;
    let question = "Send 5 dollars to Ann?";
    ask(&mut sim, "send five dollars to ann", 0);
    while !sim.spoken().iter().any(|text| text == question) {
        sim.silence(32);
    }
    while !sim.core.playout.all_sent() {
        sim.silence(32);
    }
    // The last word has been heard when the sound is noticed, and the silence behind it has not.
    sim.windows(160, 0.95);
    assert!(sim.core.interruption.is_judging());
    sim.words = String::new();
    sim.silence(4_000);
    let asked = sim.spoken().iter().filter(|text| *text == question).count();
    assert_eq!(asked, 2, "{:?}", sim.spoken());
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
}

/// A yes ran the call whose question the client had cut off.
#[test]
fn a_yes_does_not_count_if_the_client_reports_that_the_question_was_not_heard() {
    let mut sim = asked();
    let item = sim.heard_of_the_last_item(0).unwrap().item;
    let heard = Micros::from_ms(300);
    sim.input(Input::Truncate { item, heard });
    assert_eq!(outcome(&sim), Some(ConfirmationOutcome::Abandoned));
    ask(&mut sim, "Yes.", 3_000);
    assert!(sim.tools_started.is_empty());

    let mut sim = asked();
    let item = sim.heard_of_the_last_item(0).unwrap().item;
    let heard = Micros::from_ms(60_000);
    sim.input(Input::Truncate { item, heard });
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(sim.tools_started, ["transfer"], "all of it was heard");
}
