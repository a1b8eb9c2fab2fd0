//! Unit tests of rounds of calls; whole sessions are in `../tests/`.

use super::*;
use serde_json::json;

const A: CallId = CallId(1);
const B: CallId = CallId(2);

#[test]
fn a_round_is_over_when_every_call_has_its_result() {
    let mut calls = Calls::default();
    calls.wait_for(A, None);
    calls.wait_for(B, None);
    assert_eq!(calls.finish(B, json!(2)), Ok(()));
    assert_eq!(calls.open(), [A]);
    assert!(calls.take_complete(true).is_empty());
    assert_eq!(calls.finish(A, json!(1)), Ok(()));
    let results = calls.take_complete(true);
    let results: Vec<_> = results.into_iter().map(|w| (w.call, w.result)).collect();
    assert_eq!(results, [(A, Some(json!(1))), (B, Some(json!(2)))]);
    assert!(calls.is_next_round_due());
    calls.begin_round();
    calls.were_told();
    assert_eq!(calls.rounds(), 1);
    assert!(!calls.is_next_round_due() && !calls.are_under_way());
}

#[test]
fn without_calls_no_round_follows() {
    let mut calls = Calls::default();
    assert!(calls.take_complete(true).is_empty());
    assert!(!calls.is_next_round_due());
}

#[test]
fn a_result_that_nothing_waits_for_is_returned() {
    let mut calls = Calls::default();
    assert_eq!(calls.finish(A, json!(1)), Err(json!(1)));
}

#[test]
fn a_clients_call_starts_no_round() {
    let mut calls = Calls::default();
    calls.wait_for(A, Some(json!({"error": "unreadable"})));
    calls.hand_to_client();
    assert_eq!(calls.take_complete(true).len(), 1);
    assert!(!calls.is_next_round_due());
}

#[test]
fn a_failed_answer_starts_no_round() {
    let mut calls = Calls::default();
    calls.wait_for(A, Some(json!(1)));
    calls.take_complete(true);
    calls.wait_for(B, None);
    assert_eq!(calls.give_up().len(), 1);
    assert!(!calls.is_next_round_due() && !calls.are_under_way());
}
