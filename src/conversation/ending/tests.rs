//! Unit tests of an ending's stages; whole sessions are in `../tests/telephone.rs`.

use super::*;

fn call(id: u64) -> EndingCall {
    EndingCall {
        call: CallId(id),
        name: "hang_up".into(),
        arguments: Map::new(),
        how: EndsCall::HangUp,
        beside: Vec::new(),
    }
}

fn promised() -> Ending {
    let mut ending = Ending::default();
    assert_eq!(ending.promise(call(1)), Promise::Kept);
    ending
}

#[test]
fn a_response_ends_the_conversation_by_one_call() {
    let mut ending = promised();
    assert_eq!(ending.promise(call(2)), Promise::Already);
    assert_eq!(ending.take_promised(), Some(call(1)));
    assert!(!ending.is_near());
}

#[test]
fn a_goodbye_interrupted_by_noise_is_resumed() {
    let mut ending = promised();
    assert!(ending.cut_short());
    assert!(ending.is_near() && !ending.is_promised() && !ending.is_resuming());
    ending.resume();
    assert!(ending.is_resuming());
    assert_eq!(ending.take_resuming(), Some(call(1)));
}

#[test]
fn a_second_noise_leaves_the_goodbye_to_be_resumed() {
    let mut ending = promised();
    for _ in 0..2 {
        assert!(ending.cut_short());
        ending.resume();
    }
    assert_eq!(ending.take_resuming(), Some(call(1)));
}

#[test]
fn a_goodbye_interrupted_by_speech_is_cancelled() {
    let mut ending = promised();
    assert!(ending.cut_short());
    assert_eq!(ending.take_cut_short(), Some(call(1)));
    ending.resume();
    assert!(!ending.is_near() && !ending.is_resuming());
}

#[test]
fn speech_during_a_response_cancels_only_its_own_ending() {
    let mut ending = promised();
    assert_eq!(ending.go_on(true), Some(call(1)));
    assert_eq!(ending.promise(call(2)), Promise::CalledOff);
    ending.response_begins();
    assert_eq!(ending.promise(call(3)), Promise::Kept);
}

fn transfer() -> Ending {
    let mut ending = Ending::default();
    let how = EndsCall::HandOver;
    ending.promise(EndingCall { how, ..call(1) });
    ending
}

#[test]
fn a_transfer_starts_when_its_goodbye_has_been_heard() {
    let (mut ending, ms) = (transfer(), Time::from_ms);
    assert_eq!(
        ending.was_said(ms(400), ms(900), true),
        Goodbye::HeardAt(ms(900))
    );
    assert_eq!(ending.was_said(ms(900), ms(900), true), Goodbye::Held);
    assert!(ending.is_promised(), "the user has something to say");
    let how = EndsCall::HandOver;
    let starts = Goodbye::Starts(EndingCall { how, ..call(1) });
    assert_eq!(ending.was_said(ms(900), ms(900), false), starts);
    assert!(ending.handing_over().is_some() && !ending.is_near());
    assert_eq!(ending.was_said(ms(950), ms(900), false), Goodbye::Held);
}

#[test]
fn a_hang_up_waits_for_its_goodbye_and_holds_nothing_open_behind_it() {
    let (mut ending, ms) = (promised(), Time::from_ms);
    let said = ending.was_said(ms(400), ms(900), false);
    assert_eq!(said, Goodbye::HeardAt(ms(900)));
    assert_eq!(ending.was_said(ms(900), ms(900), false), Goodbye::Said);
    assert!(ending.is_promised(), "it is carried out with the response");
    let mut none = Ending::default();
    assert_eq!(none.was_said(ms(400), ms(900), true), Goodbye::Said);
}

#[test]
fn only_a_successful_transfer_hangs_up() {
    for (finished, succeeded, reason) in [
        (1, true, Some(HangUpReason::HandedOver)),
        (1, false, None),
        (2, true, None),
    ] {
        let mut ending = Ending::default();
        ending.hand_over(CallId(1));
        ending.call_finished(CallId(finished), succeeded);
        assert_eq!(ending.hang_up(), reason);
        assert_eq!(ending.handing_over().is_some(), finished != 1);
    }
}

#[test]
fn an_active_user_cancels_only_an_idle_hang_up() {
    let mut ending = Ending::default();
    ending.hang_up_for(HangUpReason::Shutdown);
    assert!(!ending.stay_for_user());
    assert_eq!(ending.hang_up(), Some(HangUpReason::Shutdown));
    ending.hang_up_for(HangUpReason::Idle);
    assert!(ending.stay_for_user());
    assert_eq!(ending.hang_up(), None);
}
