//! Unit tests of a held-back answer; whole sessions are in `../tests/speculation.rs`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::output::Output;
use crate::conversation::policy::Policy;
use crate::llm::Demands;
use serde_json::Map;

fn prompt(instructions: &str) -> Prompt {
    Prompt {
        instructions: Some(instructions.into()),
        day: None,
        messages: Vec::new(),
        tools: std::sync::Arc::default(),
        demands: Demands::default(),
    }
}

/// A held-back answer that has begun, and the state that it takes as an argument.
fn begun() -> (Preempt, Common) {
    let mut common = Common::new(Policy::default(), Experience::default());
    let mut preempt = Preempt::default();
    preempt.begin(&mut common, prompt("Be brief."), false);
    common.outputs.clear();
    (preempt, common)
}

fn words(text: &str) -> LlmEvent {
    LlmEvent::Speech { text: text.into() }
}

#[test]
fn the_answer_to_the_same_prompt_is_taken_over() {
    let (mut preempt, mut common) = begun();
    assert!(!preempt.began_without_filler());
    preempt.hold(&mut common, words("It is noon."));
    assert!(preempt.began_without_filler());
    let taken = preempt.take(&mut common, &prompt("Be brief."));
    assert_eq!(taken.unwrap().events, [words("It is noon.")]);
    assert!(preempt.is_idle() && common.outputs.is_empty());
}

#[test]
fn the_answer_to_another_prompt_is_cancelled() {
    let (mut preempt, mut common) = begun();
    assert!(preempt.take(&mut common, &prompt("Be long.")).is_none());
    assert!(preempt.is_idle());
    let cancelled = common.outputs.pop_front();
    assert!(matches!(cancelled, Some(Output::CancelGeneration { .. })));
}

#[test]
fn a_call_is_returned_when_it_begins_and_when_it_is_complete() {
    let (mut preempt, mut common) = begun();
    let name = "clock".to_owned();
    let opened = preempt.hold(&mut common, LlmEvent::ToolOpened { name });
    assert!(matches!(opened, Some(HeldCall::Opened(name)) if name == "clock"));
    let arguments = Ok(Map::new());
    let closed = preempt.hold(&mut common, LlmEvent::ToolClosed { arguments });
    assert!(matches!(closed, Some(HeldCall::Complete(name, _)) if name == "clock"));
}

#[test]
fn an_answer_without_an_end_is_cancelled_once() {
    let (mut preempt, mut common) = begun();
    let endless = "and on ".repeat(common.policy.answer.bytes());
    for _ in 0..2 {
        preempt.hold(&mut common, words(&endless));
    }
    let cancelled = |output: &&Output| matches!(output, Output::CancelGeneration { .. });
    assert_eq!(common.outputs.iter().filter(cancelled).count(), 1);
    assert!(!preempt.is_idle(), "its beginning may be said");
}

#[test]
fn an_answer_that_was_led_by_a_filler_does_not_speak_for_itself() {
    let (mut preempt, mut common) = begun();
    preempt.begin(&mut common, prompt("Be brief."), true);
    preempt.hold(&mut common, words("It is noon."));
    assert!(!preempt.began_without_filler());
}
