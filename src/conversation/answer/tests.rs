//! Unit tests of an answer; whole sessions are in `../tests/`.

use super::*;
use crate::conversation::experience::Experience;

fn answer() -> Answer {
    Answer::new(
        TurnId(1),
        Time(0),
        TurnLatency::default(),
        ResponseTerms::default(),
        0,
        AnswerPolicy::default(),
    )
}

fn generating() -> Answer {
    let mut answer = answer();
    answer.begin_generation(Generation::new(RequestId(1), Time(0), 10, false), Time(0));
    answer
}

/// The answer with one clause queued.
fn spoken(mut answer: Answer, words: Words) -> Answer {
    let mut common = Common::new(
        crate::conversation::Policy::default(),
        Experience::default(),
    );
    let (mut history, mut playout) = (History::default(), Playout::default());
    let text = "It is noon.".to_owned();
    answer.queue(&mut common, &mut history, &mut playout, text, words);
    answer
}

#[test]
fn a_model_that_says_something_has_answered() {
    let mut answer = spoken(generating(), Words::Answer);
    assert_eq!(answer.end_generation(false), None);
    assert!(!answer.is_generating() && !answer.is_unfinished());
    assert_eq!(answer.status(), ResponseStatus::Completed);
}

#[test]
fn a_model_that_says_nothing_has_failed() {
    let mut answer = generating();
    let reason = answer.end_generation(false);
    assert_eq!(reason, Some("the language model said nothing"));
    let mut answer = spoken(generating(), Words::Filler);
    assert!(
        answer.end_generation(false).is_some(),
        "a filler is no answer"
    );
}

#[test]
fn a_model_may_keep_silent_if_nothing_is_new() {
    let mut answer = generating();
    answer.nothing_new = true;
    assert_eq!(answer.end_generation(false), None);
}

#[test]
fn a_model_that_is_cut_leaves_an_incomplete_answer() {
    let mut answer = spoken(generating(), Words::Answer);
    answer.generation().unwrap().was_cut();
    assert_eq!(answer.end_generation(false), None);
    assert_eq!(answer.status(), ResponseStatus::Incomplete);
    assert!(!answer.may_go_on());
}

#[test]
fn only_a_clients_limit_may_leave_an_answer_without_words() {
    for (has_limit, failed) in [(true, false), (false, true)] {
        let mut answer = generating();
        answer.generation().unwrap().was_cut();
        assert_eq!(answer.end_generation(has_limit).is_some(), failed);
    }
}

#[test]
fn only_the_first_failure_of_the_voice_gets_an_apology() {
    let mut answer = answer();
    answer.fail();
    assert!(answer.voice_fails());
    answer.fail();
    assert!(!answer.voice_fails());
    assert_eq!(answer.status(), ResponseStatus::Failed);
}

#[test]
fn the_tokens_of_all_generations_are_counted() {
    let mut answer = generating();
    assert_eq!(answer.usage().input, 10, "of the one that is running, too");
    answer.stop_generation();
    answer.begin_generation(Generation::new(RequestId(2), Time(0), 5, false), Time(0));
    assert_eq!(answer.usage().input, 15);
}

#[test]
fn items_are_done_in_order() {
    let mut items = Items::default();
    assert_eq!(items.current(ItemId(1)), ItemId(1));
    assert_eq!(items.current(ItemId(2)), ItemId(1));
    assert_eq!(items.take_done(true, |_| true), None, "the model may go on");
    items.close();
    assert_eq!(items.current(ItemId(3)), ItemId(3));
    assert_eq!(items.take_done(true, |item| item == ItemId(3)), None);
    assert_eq!(items.take_done(true, |_| true), Some(ItemId(1)));
    assert_eq!(items.take_done(true, |_| true), None);
    assert_eq!(items.take_done(false, |_| true), Some(ItemId(3)));
    assert!(items.open().is_empty());
}
