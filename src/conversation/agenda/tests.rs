//! Unit tests of the agenda.

use super::*;

fn said(agenda: &mut Agenda) -> Vec<String> {
    std::iter::from_fn(|| agenda.take_announcement()).collect()
}

#[test]
fn an_interrupted_rest_comes_before_announcements_in_order() {
    let mut agenda = Agenda::default();
    agenda.announce("Ding dong.".into());
    agenda.announce("Hello.".into());
    agenda.say_rest("and it rains.".into());
    assert_eq!(said(&mut agenda), ["and it rains.", "Ding dong.", "Hello."]);
}

#[test]
fn an_apology_is_said_once() {
    let mut agenda = Agenda::default();
    agenda.announce_next("Sorry?".into());
    agenda.announce_next("Sorry?".into());
    assert_eq!(said(&mut agenda), ["Sorry?"]);
}

#[test]
fn a_goodbye_is_the_only_thing_said_and_may_be_retracted() {
    let mut agenda = Agenda::default();
    agenda.announce("Ding dong.".into());
    agenda.announce_only("Goodbye.".into());
    agenda.retract("Goodbye.");
    assert!(said(&mut agenda).is_empty());
}

#[test]
fn an_opening_is_over_with_the_response_that_says_it_and_with_no_other() {
    let mut agenda = Agenda::default();
    agenda.hold_opening();
    agenda.release_opening();
    agenda.response_ended();
    assert!(agenda.is_opening() && !agenda.says_opening());
    assert!(agenda.take_opening() && agenda.says_opening());
    assert!(!agenda.take_opening());
    agenda.response_ended();
    assert!(!agenda.is_opening());
}

#[test]
fn an_answer_waits_for_transcripts() {
    let mut agenda = Agenda::default();
    agenda.wait_for(ItemId(1));
    agenda.answer_next(NextAnswer::default());
    assert!(agenda.has_next_answer() && !agenda.is_answer_due());
    agenda.was_transcribed(ItemId(1));
    assert!(agenda.is_answer_due());
    assert!(agenda.take_next_answer().is_some());
    assert!(!agenda.is_answer_due());
}
