//! Calls that the server has placed, answered by a person or a machine.

use super::*;

const GREETING: &str = "Hello there.";
const MACHINE: &str =
    "Hi you have reached Bob I am out right now so please leave a message after the tone";
const MESSAGE: &str = "Your cake is ready.";

/// A call that the server has placed, with this message for machines.
fn placed(message: &str) -> Sim {
    let mut sim = Sim::new(Policy {
        opening: Opening::greeting(GREETING),
        ..Policy::default()
    });
    sim.input(Input::Placed {
        message: message.into(),
    });
    sim
}

fn hung_up(sim: &Sim) -> Option<(Time, HangUpReason)> {
    let mut outputs = sim.outputs.iter();
    outputs.find_map(|(at, output)| match output {
        Output::HangUp { reason } => Some((*at, *reason)),
        _ => None,
    })
}

fn is_machine(event: &Event) -> bool {
    matches!(event, Event::MachineAnswered)
}

#[test]
fn a_machine_gets_the_message_once_it_is_silent() {
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    sim.speak(MACHINE, 6_000);
    sim.silence(1_000);
    assert!(sim.saw(is_machine));
    assert_eq!(sim.spoken().last().map(String::as_str), Some(GREETING));
    sim.silence(1_000);
    assert!(!sim.spoken().iter().any(|said| said == MESSAGE));
    sim.silence(8_000);
    assert_eq!(sim.spoken().last().map(String::as_str), Some(MESSAGE));
    assert_eq!(hung_up(&sim).unwrap().1, HangUpReason::Machine);
    assert!(sim.prompts.is_empty(), "nobody is answered");
}

#[test]
fn a_machine_that_greets_for_long_is_not_asked_whether_it_is_still_there() {
    let mut sim = placed(MESSAGE);
    sim.policy().timeouts.silence_prompt = Some(Micros::from_ms(8_000));
    sim.silence(500);
    sim.speak(MACHINE, 6_000);
    sim.silence(1_000);
    sim.speak("press one to speak to somebody", 14_000);
    sim.silence(1_000);
    assert_eq!(sim.spoken(), [GREETING]);
    sim.silence(8_000);
    assert_eq!(sim.spoken(), [GREETING, MESSAGE]);
    assert_eq!(hung_up(&sim).unwrap().1, HangUpReason::Machine);
}

/// Somebody who dictated an address was hung up on.
#[test]
fn a_person_who_has_answered_may_speak_for_long() {
    let mut sim = placed("");
    sim.speak("hello", 600);
    sim.silence(3_000);
    sim.speak("it is seventeen Harbour Street on the third floor", 10_000);
    sim.silence(4_000);
    assert!(!sim.saw(is_machine));
    assert_eq!(sim.hung_up, None);
    let mut sim = placed("");
    sim.speak("hello you are through to the offices of a company", 10_000);
    sim.silence(4_000);
    assert!(sim.saw(is_machine));
}

#[test]
fn a_tone_takes_the_message_at_once_and_nothing_interrupts_it() {
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    sim.speak(MACHINE, 6_000);
    sim.silence(500);
    sim.input(Input::Beep);
    sim.speak("goodbye", 600);
    sim.silence(6_000);
    assert_eq!(sim.spoken().last().map(String::as_str), Some(MESSAGE));
    assert_eq!(hung_up(&sim).unwrap().1, HangUpReason::Machine);
}

/// The machine recorded that the caller could not be heard, in place of the message.
#[test]
fn a_machine_that_is_not_heard_any_more_gets_the_message() {
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    sim.speak(MACHINE, 6_000);
    sim.silence(1_000);
    assert!(sim.saw(is_machine));
    sim.no_audio(5_000);
    assert_eq!(sim.spoken(), [GREETING]);
    sim.input(Input::Unheard);
    sim.no_audio(6_000);
    assert_eq!(sim.spoken(), [GREETING, MESSAGE]);
    assert_eq!(hung_up(&sim).unwrap().1, HangUpReason::Machine);
}

#[test]
fn a_tone_alone_tells_a_machine() {
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    sim.speak("hello this is Bob", 1_200);
    sim.input(Input::Beep);
    sim.silence(6_000);
    assert_eq!(sim.spoken().last().map(String::as_str), Some(MESSAGE));
}

/// An exchange that records warns with a tone every 15 s: the agent hung up on the person.
#[test]
fn a_tone_after_three_turns_of_a_person_is_no_machine() {
    let mut sim = placed("");
    sim.silence(500);
    for words in ["hello", "yes thank you", "at nine please"] {
        sim.speak(words, 800);
        sim.silence(5_000);
    }
    sim.input(Input::Beep);
    sim.silence(3_000);
    assert!(!sim.saw(is_machine));
    assert_eq!((sim.prompts.len(), hung_up(&sim)), (3, None));
}

#[test]
fn a_tone_after_a_greeting_that_was_answered_by_mistake_tells_a_machine() {
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    sim.speak("hello this is Bob", 1_200);
    sim.silence(3_000);
    assert_eq!(sim.prompts.len(), 1);
    sim.input(Input::Beep);
    sim.silence(6_000);
    assert_eq!(sim.spoken().last().map(String::as_str), Some(MESSAGE));
    assert_eq!(hung_up(&sim).unwrap().1, HangUpReason::Machine);
}

/// The agent fell silent and hung up on a service that asks who calls, and did not know the machine after it.
#[test]
fn a_screening_service_is_answered_and_the_machine_after_it_gets_the_message() {
    let first = "hi the person you're calling is using";
    let service = "hi the person you're calling is using a screening service and will get a copy";
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    sim.scripts.push_back(vec![say("It is the bakery."), end()]);
    sim.speak(first, 1_000);
    sim.speak(service, 11_000);
    sim.silence(4_000);
    // Its own tone, after which it wants to be told who calls.
    sim.input(Input::Beep);
    assert!(!sim.saw(is_machine));
    let answer = sim.spoken().pop();
    assert_eq!(answer.as_deref(), Some("It is the bakery."));
    sim.silence(28_500);
    assert!(sim.now() > Time::from_ms(44_000), "the first watch is over");
    sim.speak(MACHINE, 6_000);
    sim.silence(9_000);
    assert!(sim.saw(is_machine));
    assert_eq!(sim.spoken().last().map(String::as_str), Some(MESSAGE));
    assert_eq!(hung_up(&sim).unwrap().1, HangUpReason::Machine);
}

#[test]
fn without_a_message_a_machine_is_hung_up_on() {
    let mut sim = placed("");
    sim.silence(500);
    sim.speak(MACHINE, 6_000);
    sim.silence(1_000);
    let (_, reason) = hung_up(&sim).expect("it hangs up");
    assert_eq!(reason, HangUpReason::Machine);
}

#[test]
fn somebody_who_speaks_on_and_on_is_a_machine() {
    let mut sim = placed("");
    sim.silence(500);
    sim.speak(
        "welcome to the bakery on main street we are open every day",
        12_000,
    );
    sim.silence(2_000);
    assert_eq!(
        hung_up(&sim).map(|(_, reason)| reason),
        Some(HangUpReason::Machine)
    );
}

/// The agent fell silent, left its message to the menu and hung up.
#[test]
fn a_menu_that_speaks_for_long_is_answered() {
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    let menu = "thank you for calling the bakery for orders press one for all else press two";
    sim.speak(menu, 14_000);
    sim.silence(4_000);
    assert!(!sim.saw(is_machine));
    assert!(!sim.prompts.is_empty(), "the model may press a key");
    assert_eq!(hung_up(&sim), None);
}

/// Its words since the recogniser's last part name no key.
#[test]
fn a_menu_that_goes_on_in_another_part_is_no_machine() {
    let mut sim = placed(MESSAGE);
    sim.completeness = 0.1;
    sim.silence(500);
    let menu = "for orders press one for all else press two";
    sim.speak(menu, 16_000);
    sim.silence(300);
    sim.speak(menu, 500);
    sim.speak("please stay on the line", 8_000);
    assert!(!sim.saw(is_machine));
    sim.silence(4_000);
    assert!(!sim.saw(is_machine));
    assert_eq!(hung_up(&sim), None);
}

#[test]
fn a_person_is_answered_and_may_speak_of_machines_later() {
    let mut sim = placed(MESSAGE);
    sim.silence(500);
    for words in ["hello", "yes thank you"] {
        sim.scripts.push_back(vec![say("Very well."), end()]);
        sim.speak(words, 800);
        sim.silence(20_000);
    }
    assert_eq!(sim.prompts.len(), 2);
    sim.scripts.push_back(vec![say("I will."), end()]);
    sim.speak("next time just leave a message", 2_000);
    sim.silence(5_000);
    assert!(!sim.saw(is_machine));
    assert_eq!((sim.prompts.len(), hung_up(&sim)), (3, None));
}

/// The message was read out over the greeting, before the tone, and so was not recorded.
#[test]
fn a_machine_that_is_told_by_partial_words_gets_the_message_after_its_last_words() {
    let said = |sim: &mut Sim, text: &str, last| {
        let text = text.into();
        sim.input(Input::Said { text, last });
    };
    for has_last_words in [true, false] {
        let mut sim = placed(MESSAGE);
        sim.client_speaks = true;
        sim.no_audio(2_000);
        said(&mut sim, MACHINE, false);
        assert!(sim.saw(is_machine));
        sim.no_audio(4_000);
        let more = format!("{MACHINE} or call again tomorrow");
        said(&mut sim, &more, false);
        sim.no_audio(4_000);
        assert_eq!(sim.spoken(), [GREETING], "it still speaks");
        if has_last_words {
            said(&mut sim, &more, true);
        } else {
            sim.no_audio(3_000);
        }
        assert_eq!(sim.spoken(), [GREETING, MESSAGE]);
        sim.no_audio(3_000);
        assert_eq!(hung_up(&sim).unwrap().1, HangUpReason::Machine);
        assert!(sim.prompts.is_empty(), "nobody is answered");
    }
}

#[test]
fn calls_that_came_in_are_not_watched() {
    let mut sim = sim();
    sim.scripts.push_back(vec![say("Of course."), end()]);
    ask(&mut sim, MACHINE, 3_000);
    sim.input(Input::Beep);
    assert!(!sim.saw(is_machine));
    assert_eq!(sim.prompts.len(), 1);
}
