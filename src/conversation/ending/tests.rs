//! Unit tests of an ending's stages; whole sessions are in `../tests/telephone.rs`.

use super::*;

fn call(id: u64) -> EndingCall {
    EndingCall {
        call: CallId(id),
        name: "hang_up".into(),
        arguments: Map::new(),
        how: EndsCall::HangUp,
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
        assert_eq!(ending.is_handing_over(), finished != 1);
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
