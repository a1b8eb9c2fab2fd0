//! Unit tests of a generation; whole sessions are in `../tests/`.

use super::*;

fn generation() -> Generation {
    Generation::new(RequestId(1), Time(0), 10, false)
}

fn after_filler() -> Generation {
    Generation::new(RequestId(1), Time(0), 10, true)
}

#[test]
fn words_become_clauses() {
    let mut generation = generation();
    assert_eq!(generation.words("It is noon. And it"), ["It is noon."]);
    assert_eq!(generation.words(" rains."), Vec::<String>::new());
    assert_eq!(generation.finish(), ["And it rains."]);
}

#[test]
fn words_after_a_call_are_dropped() {
    let mut generation = generation();
    generation.words("One moment.");
    assert_eq!(generation.begin_call("clock").unwrap(), ["One moment."]);
    assert_eq!(generation.words("It is noon. "), Vec::<String>::new());
    assert_eq!(generation.end_call().unwrap(), "clock");
    assert_eq!(generation.finish(), Vec::<String>::new());
}

#[test]
fn one_clause_after_a_filler_may_be_another_filler() {
    let mut generation = after_filler();
    assert_eq!(generation.words("One moment. "), Vec::<String>::new());
    let before = generation.begin_call("clock").unwrap();
    assert_eq!(before, Vec::<String>::new(), "the filler bridges the wait");
}

#[test]
fn a_part_of_an_answer_between_a_filler_and_a_call_is_spoken() {
    for (text, before) in [
        ("It is noon. ", "It is noon."),
        ("It is noon", "It is noon"),
        ("Let me see. It is noon", "It is noon"),
        ("Yes. ", "Yes."),
    ] {
        let mut generation = after_filler();
        assert_eq!(generation.words(text), Vec::<String>::new(), "{text}");
        assert_eq!(generation.begin_call("clock").unwrap(), [before], "{text}");
    }
}

#[test]
fn two_clauses_after_a_filler_are_an_answer() {
    let mut generation = after_filler();
    let clauses = generation.words("It is noon. It rains. And");
    assert_eq!(clauses, ["It is noon.", "It rains."]);
    assert_eq!(generation.finish(), ["And"]);
}

#[test]
fn a_short_answer_after_a_filler_is_spoken_at_its_end() {
    let mut generation = after_filler();
    assert_eq!(generation.words("It is noon."), Vec::<String>::new());
    assert_eq!(generation.finish(), ["It is noon."]);
}

#[test]
fn a_call_counts_when_it_is_complete() {
    let mut generation = generation();
    generation.begin_call("clock");
    assert!(generation.has_begun_call() && !generation.has_called());
    generation.end_call();
    assert!(generation.has_called());
    generation.overstep();
    assert!(!generation.has_called());
}

#[test]
fn calls_of_a_generation_are_bounded() {
    let mut generation = generation();
    for _ in 0..MOST_CALLS {
        assert!(generation.begin_call("clock").is_some());
        generation.end_call();
    }
    assert!(generation.begin_call("clock").is_none());
}

#[test]
fn tokens_that_the_engine_counts_are_not_estimated() {
    let text = "Some words that are said.".to_owned();
    let mut generation = generation();
    generation.count(&LlmEvent::Speech { text });
    let estimate = generation.usage();
    assert_eq!(estimate.input, 10);
    assert!(estimate.output > 0);
    let counted = TokenUsage {
        input: 12,
        cached: 4,
        output: 6,
        ..TokenUsage::default()
    };
    generation.was_counted(counted);
    assert_eq!(generation.usage(), counted);
}

#[test]
fn only_fillers_are_withheld_before_a_call() {
    let withholding = || {
        let mut generation = generation();
        generation.withhold_for("clock");
        generation
    };
    let mut filler = withholding();
    assert_eq!(filler.words("Sure. Let me check"), Vec::<String>::new());
    assert_eq!(filler.begin_call("clock").unwrap(), Vec::<String>::new());
    assert_eq!(filler.end_withholding(), ["Sure.", "Let me check"]);
    let mut answer = withholding();
    assert_eq!(answer.words("It is noon. And"), ["It is noon."]);
    assert!(!answer.withholds_for_call());
    assert_eq!(answer.begin_call("clock").unwrap(), ["And"]);
    // The words that the call ends, too.
    let mut unended = withholding();
    assert_eq!(unended.words("It is noon"), Vec::<String>::new());
    assert_eq!(unended.begin_call("clock").unwrap(), ["It is noon"]);
}
