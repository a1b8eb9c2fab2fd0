//! Telephone calls: keys, silence, transfers, and audio that was sent but not heard.

use super::*;

fn keys(sim: &mut Sim, keys: &str) {
    for key in keys.chars() {
        sim.input(Input::Key { key });
    }
}

fn users(sim: &Sim) -> Vec<String> {
    let items = sim.events.iter().filter_map(|(_, event)| match event {
        Event::UserItem {
            text,
            spoken: false,
            ..
        } => Some(text.clone()),
        _ => None,
    });
    items.collect()
}

#[test]
fn a_number_is_complete_with_the_hash_key() {
    let mut sim = sim();
    keys(&mut sim, "0042#");
    sim.silence(1_000);
    assert_eq!(users(&sim), ["Keypad: 0042"]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn a_number_is_complete_when_no_key_follows() {
    let mut sim = sim();
    keys(&mut sim, "4");
    sim.silence(1_500);
    keys(&mut sim, "2");
    sim.silence(1_500);
    assert!(users(&sim).is_empty());
    sim.silence(1_000);
    assert_eq!(users(&sim), ["Keypad: 42"]);
}

#[test]
fn a_key_stops_the_agent() {
    let mut sim = sim();
    let long = "One two three four five six seven eight nine ten.";
    sim.scripts.push_back(vec![say(long), end()]);
    ask(&mut sim, "count", 1_500);
    keys(&mut sim, "5");
    assert!(
        sim.outputs
            .iter()
            .any(|(_, output)| *output == Output::Flush)
    );
    sim.silence(5_000);
    assert_eq!(users(&sim), ["Keypad: 5"]);
}

#[test]
fn an_unknown_key_is_refused() {
    let mut sim = sim();
    keys(&mut sim, "x");
    sim.silence(3_000);
    assert!(sim.saw(|event| matches!(event, Event::Refused { request, .. } if request == "Key")));
    assert!(users(&sim).is_empty());
}

#[test]
fn one_is_yes_and_two_is_no() {
    for (key, started) in [("1", 1), ("2", 0), ("3#", 0)] {
        let mut sim = Sim::new(with(vec![asking("pay", "Shall I pay?")]));
        let mut script = call("pay").to_vec();
        script.push(end());
        sim.scripts.push_back(script);
        ask(&mut sim, "pay it", 3_000);
        assert!(sim.saw(|event| matches!(event, Event::ConfirmationAsked { .. })));
        assert!(sim.tools_started.is_empty());
        keys(&mut sim, key);
        sim.silence(3_000);
        assert_eq!(sim.tools_started.len(), started, "{key}");
    }
}

#[test]
fn a_silent_caller_is_asked_twice_and_then_the_call_ends() {
    let phrases = Phrases::default();
    let mut sim = Sim::new(Policy {
        timeouts: Timeouts {
            silence_prompt: Some(Micros::from_ms(4_000)),
            ..Timeouts::default()
        },
        opening: Opening::greeting("Hello."),
        ..Policy::default()
    });
    while sim.hung_up.is_none() {
        sim.silence(1_000);
    }
    let said = sim.spoken().join(" ");
    let (there, bye) = (&phrases.still_there, &phrases.goodbye_idle);
    assert_eq!(said, format!("Hello. {there} {there} {bye}"));
    assert_eq!(sim.hung_up, Some(HangUpReason::Idle));
}

/// The line stayed silent, whatever the caller said.
#[test]
fn a_caller_who_cannot_be_heard_is_told_so_and_the_call_ends() {
    for speaks in [false, true] {
        let mut sim = sim();
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        if speaks {
            sim.speak("what time is it", 1_000);
        }
        sim.no_audio(5_000);
        sim.input(Input::Unheard);
        sim.no_audio(10_000);
        let sorry = Phrases::default().cannot_hear;
        let spoken = sim.spoken().join(" ");
        assert!(spoken.ends_with(&sorry), "{spoken}");
        assert_eq!(spoken.starts_with("It is noon."), speaks, "{spoken}");
        assert_eq!(sim.hung_up, Some(HangUpReason::Unheard));
    }
}

#[test]
fn a_caller_who_speaks_is_not_asked() {
    let mut sim = Sim::new(Policy {
        timeouts: Timeouts {
            silence_prompt: Some(Micros::from_ms(4_000)),
            ..Timeouts::default()
        },
        ..Policy::default()
    });
    for _ in 0..4 {
        sim.silence(3_000);
        ask(&mut sim, "what time is it", 1_000);
    }
    assert!(!sim.spoken().contains(&Phrases::default().still_there));
}

#[test]
fn the_end_of_an_answer_that_was_sent_but_not_heard_is_cut() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![say("One two three four."), end()]);
    sim.speak("count", 1_000);
    while sim.ended().is_empty() {
        sim.silence(32);
    }
    // The last 200 ms have been sent but not heard; the key stops them.
    keys(&mut sim, "5");
    let heard = sim.events.iter().find_map(|(_, event)| match event {
        Event::ItemTruncated { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(heard, Some("One two three"));
    let interrupted = Message::Agent {
        text: "One two three".into(),
        interrupted: true,
    };
    assert_eq!(sim.core.history.messages()[1], interrupted);
}

/// A caller who asks for a transfer by the tool `name`.
fn put_through(name: &'static str) -> Sim {
    let mut sim = Sim::new(with(vec![ending(name, EndsCall::HandOver)]));
    let mut script = vec![say("I am putting you through to reception now.")];
    script.extend(call(name));
    script.push(end());
    sim.scripts.push_back(script);
    sim.scripts
        .push_back(vec![say("Nobody is there, I am sorry."), end()]);
    ask(&mut sim, "reception please", 1_200);
    assert!(sim.tools_started.is_empty(), "the words are being said");
    assert_eq!(sim.hung_up, None);
    sim
}

#[test]
fn a_transfer_waits_until_its_announcement_was_heard() {
    let mut sim = put_through("transfer");
    sim.silence(10_000);
    assert_eq!(sim.tools_started.len(), 1);
    assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver));
    assert_eq!(
        sim.spoken(),
        ["I am putting you through to reception now."],
        "the model is not asked again"
    );
    let started = sim.outputs.iter().find_map(|(at, output)| match output {
        Output::StartTool { .. } => Some(*at),
        _ => None,
    });
    // The last frame is sent 200 ms before it is heard.
    let (last, _) = sim.sent.last().unwrap();
    assert!(started.unwrap().since(*last) >= Micros::from_ms(150));
}

#[test]
fn a_caller_is_told_that_a_transfer_failed() {
    let mut sim = put_through("broken");
    sim.silence(10_000);
    assert_eq!(sim.tools_started.len(), 1);
    assert_eq!(sim.hung_up, None);
    assert!(
        sim.spoken()
            .ends_with(&["Nobody is there,".into(), "I am sorry.".into()])
    );
}

#[test]
fn a_caller_who_speaks_over_the_announcement_is_not_transferred() {
    let mut sim = put_through("transfer");
    sim.speak("wait", 600);
    sim.silence(10_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.hung_up, None);
}

#[test]
fn a_cough_does_not_keep_the_agent_from_putting_a_caller_through() {
    let mut sim = put_through("transfer");
    sim.speak("", 300);
    sim.silence(10_000);
    assert_eq!(sim.tools_started.len(), 1);
    assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver));
    // The interrupted part is repeated.
    let (first, last) = (sim.spoken().remove(0), sim.spoken().pop().unwrap());
    assert!(last != first && first.ends_with(&last), "{last}");
}

#[test]
fn a_cough_does_not_keep_the_agent_from_hanging_up() {
    let mut sim = Sim::new(with(vec![ending("bye", EndsCall::HangUp)]));
    let mut script = vec![say("Goodbye and have a very nice day.")];
    script.extend(call("bye"));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "bye", 1_200);
    sim.speak("", 300);
    sim.silence(10_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::AgentEnded));
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.prompts.len(), 1);
}

/// The caller heard fillers behind the goodbye until the call was done that they had interrupted before.
#[test]
fn after_a_cough_the_goodbye_does_not_wait_for_a_call_of_an_earlier_answer() {
    let look_up = (*tool("look_up", Effect::Read)).clone();
    let mut sim = Sim::new(with(vec![look_up, ending("bye", EndsCall::HangUp)]));
    sim.tool_times.insert("look_up".into(), 60_000);
    for (words, name) in [
        ("Let me look that up.", "look_up"),
        ("Goodbye and have a very nice day.", "bye"),
    ] {
        let mut script = vec![say(words)];
        script.extend(call(name));
        script.push(end());
        sim.scripts.push_back(script);
    }
    ask(&mut sim, "look it up", 1_500);
    assert_eq!(sim.tools_started, ["look_up"]);
    ask(&mut sim, "never mind bye", 1_200);
    sim.speak("", 300);
    sim.silence(10_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::AgentEnded));
}

/// Asserts that no call is running and no answer waits to be resumed.
fn nothing_is_left(sim: &Sim) {
    let running = &sim.core.running.calls;
    assert!(running.is_empty(), "{running:?}");
    assert!(!sim.core.interruption.is_resuming());
}

#[test]
fn coughs_do_not_keep_the_agent_from_putting_a_caller_through() {
    let mut sim = put_through("transfer");
    for _ in 0..3 {
        sim.speak("", 300);
        sim.silence(900);
    }
    sim.silence(10_000);
    assert_eq!(sim.tools_started.len(), 1);
    assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver));
    nothing_is_left(&sim);
}

#[test]
fn a_key_after_a_cough_calls_the_transfer_off() {
    let mut sim = put_through("transfer");
    sim.speak("", 300);
    sim.silence(900);
    keys(&mut sim, "5#");
    sim.silence(10_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.hung_up, None);
    nothing_is_left(&sim);
}

#[test]
fn a_caller_who_may_not_interrupt_may_still_go_on() {
    let mut sim = put_through("transfer");
    sim.uninterruptible(true);
    sim.speak("no wait", 900);
    sim.silence(10_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.hung_up, None);
    nothing_is_left(&sim);
}

#[test]
fn a_caller_who_coughs_while_being_put_through_is_put_through() {
    for words in ["", "hello"] {
        let mut sim = put_through("transfer");
        sim.tool_ms = 3_000;
        sim.silence(3_000);
        assert_eq!(sim.tools_started.len(), 1);
        assert_eq!(sim.hung_up, None);
        sim.speak(words, 600);
        sim.silence(10_000);
        assert_eq!(sim.tools_started.len(), 1, "{words}");
        assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver), "{words}");
        nothing_is_left(&sim);
    }
}

#[test]
fn a_session_that_ends_calls_its_transfer_off() {
    let mut sim = put_through("transfer");
    sim.speak("", 300);
    sim.silence(400);
    sim.input(Input::HangUp);
    assert!(sim.tools_started.is_empty());
    nothing_is_left(&sim);
}

#[test]
fn a_key_of_a_caller_who_may_not_interrupt_is_waited_for() {
    let mut sim = put_through("transfer");
    sim.uninterruptible(true);
    sim.silence(1_200);
    keys(&mut sim, "5");
    sim.silence(10_000);
    assert_eq!(users(&sim), ["Keypad: 5"]);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.hung_up, None);
    nothing_is_left(&sim);
}

#[test]
fn without_barge_in_speech_still_cancels_a_transfer() {
    let mut sim = put_through("transfer");
    sim.uninterruptible(false);
    sim.speak("no wait", 900);
    sim.silence(10_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.hung_up, None);
    nothing_is_left(&sim);
}

#[test]
fn text_after_a_cough_cancels_the_transfer_and_is_answered() {
    let mut sim = put_through("transfer");
    sim.speak("", 300);
    let text = "wait, one more thing".into();
    let item = NewItem::User { text };
    sim.input(item.at_the_end());
    sim.input(Input::Respond { instructions: None });
    sim.silence(10_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.hung_up, None);
    assert_eq!(sim.prompts.len(), 2);
    nothing_is_left(&sim);
}

#[test]
fn an_answer_cancelled_after_a_cough_is_not_resumed() {
    let mut sim = put_through("transfer");
    sim.speak("", 300);
    let said = sim.spoken().len();
    sim.input(Input::CancelResponse);
    sim.silence(10_000);
    assert!(!sim.saw(|e| matches!(e, Event::Refused { .. })));
    assert_eq!(sim.spoken().len(), said);
    assert!(sim.tools_started.is_empty());
    nothing_is_left(&sim);
}

#[test]
fn no_apology_for_a_model_that_breaks_off_after_its_call() {
    let mut sim = Sim::new(Policy {
        tools: Arc::new(vec![tool("clock", Effect::Read)]),
        ..Policy::default()
    });
    sim.policy().speculation.preemptive = false;
    let mut script = vec![say("Let me see.")];
    script.extend(call("clock"));
    script.push(Step::Break);
    sim.scripts
        .extend([script, vec![say("It is noon."), end()]]);
    ask(&mut sim, "what time is it", 4_000);
    // The answer is there before the filler begins.
    assert_eq!(sim.spoken(), ["It is noon."]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);

    let mut sim = Sim::new(with(vec![ending("transfer", EndsCall::HandOver)]));
    sim.policy().speculation.preemptive = false;
    let mut script = vec![say("I am putting you through.")];
    script.extend(call("transfer"));
    script.push(Step::Break);
    sim.scripts.push_back(script);
    ask(&mut sim, "reception please", 5_000);
    assert_eq!(sim.spoken(), ["I am putting you through."]);
    assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver));
}

#[test]
fn a_yes_counts_while_the_caller_is_being_put_through() {
    let mut sim = put_through("transfer");
    let mut tools = sim.policy().tools.to_vec();
    tools.push(Arc::new(asking("pay", "Shall I pay?")));
    sim.policy().tools = Arc::new(tools);
    sim.tool_times.insert("transfer".into(), 9_000);
    let mut script = call("pay").to_vec();
    script.push(end());
    sim.scripts = [script].into();
    sim.silence(3_000);
    assert_eq!(sim.tools_started, ["transfer"]);
    ask(&mut sim, "pay the bill first", 2_500);
    assert_eq!(sim.spoken().last().unwrap(), "Shall I pay?");
    ask(&mut sim, "Yes.", 1_500);
    assert_eq!(sim.tools_started, ["transfer", "pay"]);
}

/// A caller who is asked "Shall I pay?" after some other words.
fn payer() -> Sim {
    let mut sim = Sim::new(with(vec![asking("pay", "Shall I pay?")]));
    let mut script = vec![say("Thanks, let me see to that at once.")];
    script.extend(call("pay"));
    script.push(end());
    sim.scripts
        .extend([script, vec![say("It is paid with that."), end()]]);
    sim
}

#[test]
fn a_key_before_the_question_does_not_answer_it() {
    let mut sim = payer();
    ask(&mut sim, "pay it", 1_500);
    assert_eq!(sim.spoken(), ["Thanks, let me see to that at once."]);
    keys(&mut sim, "1");
    sim.silence(5_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(users(&sim), ["Keypad: 1"]);
}

#[test]
fn the_hash_key_after_an_answer_adds_nothing() {
    for (key, started, last) in [
        ("1#", 1, "It is paid with that.".to_owned()),
        ("2#", 0, Phrases::default().declined),
    ] {
        let mut sim = payer();
        ask(&mut sim, "pay it", 6_000);
        assert_eq!(sim.spoken().last().unwrap(), "Shall I pay?");
        keys(&mut sim, &key[..1]);
        sim.silence(700);
        keys(&mut sim, &key[1..]);
        sim.silence(4_000);
        assert_eq!(sim.tools_started.len(), started);
        assert_eq!(*sim.spoken().last().unwrap(), last);
        assert!(sim.ended().iter().all(|s| *s == ResponseStatus::Completed));
    }
}

/// A session that says goodbye to a silent caller.
fn in_the_goodbye(listening_words: ListeningWords) -> Sim {
    let mut policy = Policy::default();
    policy.timeouts.silence_prompt = Some(Micros::from_ms(2_000));
    policy.vad.barge_in.listening_words = listening_words;
    let mut sim = Sim::new(policy);
    let goodbye = Phrases::default().goodbye_idle;
    while !sim.spoken().iter().any(|text| goodbye.starts_with(text)) {
        sim.silence(100);
    }
    sim
}

#[test]
fn a_key_in_the_goodbye_keeps_the_call() {
    let mut sim = in_the_goodbye(ListeningWords::Pause);
    keys(&mut sim, "5");
    sim.silence(3_500);
    assert_eq!(sim.hung_up, None);
    assert_eq!(users(&sim), ["Keypad: 5"]);
}

#[test]
fn an_okay_does_not_call_the_transfer_off() {
    for polite in [false, true] {
        let mut sim = put_through("transfer");
        if polite {
            sim.uninterruptible(true);
        }
        sim.speak("Okay.", 500);
        sim.silence(10_000);
        assert_eq!(sim.tools_started.len(), 1);
        assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver));
        let okay = Message::User {
            text: "Okay.".into(),
        };
        assert!(sim.core.history.messages().contains(&okay));
        nothing_is_left(&sim);
    }
}

#[test]
fn words_before_the_transfer_is_asked_for_keep_it_from_running() {
    let mut sim = Sim::new(with(vec![ending("transfer", EndsCall::HandOver)]));
    sim.uninterruptible(true);
    let mut script = vec![say("One moment please while I look."), Step::Wait(3_000)];
    script.extend(call("transfer"));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "reception please", 600);
    sim.speak("no wait", 700);
    sim.silence(10_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.hung_up, None);
    assert_eq!(sim.prompts.len(), 2, "the words are answered");
    nothing_is_left(&sim);
}

/// It threw the answer away, or the transfer, and nothing followed.
#[test]
fn a_hash_key_behind_a_number_that_a_pause_has_completed_takes_nothing_away() {
    let mut sim = Sim::new(with(vec![(*tool("get_order", Effect::Read)).clone()]));
    let mut script = call("get_order").to_vec();
    script.push(end());
    sim.scripts.push_back(script);
    sim.scripts
        .push_back(vec![say("It arrives tomorrow."), end()]);
    sim.tool_ms = 3_000;
    keys(&mut sim, "42");
    sim.silence(2_300);
    assert_eq!(users(&sim), ["Keypad: 42"]);
    keys(&mut sim, "#");
    sim.silence(8_000);
    assert_eq!(sim.spoken().last().unwrap(), "It arrives tomorrow.");

    let mut sim = put_through("transfer");
    keys(&mut sim, "#");
    sim.silence(8_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver));
}

/// Nobody told a caller who had said something meanwhile.
#[test]
fn a_caller_who_has_spoken_while_being_put_through_is_told_that_it_failed() {
    for words in ["Okay, thanks.", "How long will it take?"] {
        let mut sim = put_through("broken");
        sim.tool_ms = 6_000;
        let told = sim.scripts.pop_front().unwrap();
        sim.scripts.push_back(vec![say("Just a moment."), end()]);
        sim.scripts.push_back(told);
        sim.silence(2_500);
        assert_eq!(sim.tools_started.len(), 1);
        sim.speak(words, 900);
        sim.silence(12_000);
        let spoken = sim.spoken().join(" ");
        assert!(spoken.contains("Nobody is there"), "{words} {spoken}");
        assert_eq!(sim.hung_up, None);
        nothing_is_left(&sim);
    }
}

/// The goodbye was said to its end, and the line stayed open.
#[test]
fn a_noise_in_the_goodbye_to_a_silent_caller_does_not_keep_the_line_open() {
    let mut sim = in_the_goodbye(ListeningWords::Pause);
    sim.silence(400);
    sim.speak("", 300);
    sim.silence(6_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::Idle));
}

#[test]
fn a_caller_who_answers_the_goodbye_keeps_the_line() {
    for does in [
        ListeningWords::Interrupt,
        ListeningWords::Pause,
        ListeningWords::Pass,
    ] {
        for words in ["Yes.", "I am still here."] {
            let mut sim = in_the_goodbye(does);
            sim.silence(1_200);
            sim.speak(words, 400);
            sim.silence(3_500);
            assert_eq!(sim.hung_up, None, "{does:?} {words}");
        }
    }
}
