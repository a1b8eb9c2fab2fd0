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

/// Ends the generation of an answer whose client has set no limit.
fn ends(answer: &mut Answer, own: Option<u32>) -> Option<Unanswered> {
    answer.end_generation(MaxTokens::Unlimited, own)
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
    assert_eq!(ends(&mut answer, None), None);
    assert!(!answer.is_generating() && !answer.is_unfinished());
    assert_eq!(answer.status(), ResponseStatus::Completed);
}

#[test]
fn a_model_that_says_nothing_has_failed() {
    let mut answer = generating();
    let reason = "the language model said nothing";
    let failed = Some(Unanswered::Failed(reason));
    assert_eq!(ends(&mut answer, None), failed);
    let mut answer = spoken(generating(), Words::Filler);
    assert!(ends(&mut answer, None).is_some(), "a filler is no answer");
}

#[test]
fn a_model_may_keep_silent_if_nothing_is_new() {
    let mut answer = generating();
    answer.nothing_new = true;
    assert_eq!(ends(&mut answer, None), None);
}

#[test]
fn a_model_that_is_cut_leaves_an_incomplete_answer() {
    let mut answer = spoken(generating(), Words::Answer);
    answer.generation().unwrap().was_cut();
    assert_eq!(ends(&mut answer, None), None);
    assert_eq!(answer.status(), ResponseStatus::Incomplete);
    assert!(!answer.may_go_on());
}

#[test]
fn only_a_clients_limit_may_leave_an_answer_without_words() {
    let cut = |most: Option<u32>, own| {
        let mut answer = generating();
        answer.generation().unwrap().was_cut();
        let most = most.map_or(MaxTokens::Unlimited, MaxTokens::At);
        let ended = answer.end_generation(most, own);
        (ended, answer.status())
    };
    assert_eq!(cut(Some(9), None), (None, ResponseStatus::Incomplete));
    assert_eq!(cut(Some(9), Some(9)).0, None, "the client's counts first");
    let (ended, status) = cut(Some(9), Some(8));
    assert_eq!(ended, Some(Unanswered::Cut), "the user hears an apology");
    assert_eq!(status, ResponseStatus::Incomplete);
    let (ended, _) = cut(None, Some(8));
    assert!(matches!(ended, Some(Unanswered::Failed(_))), "{ended:?}");
}

#[test]
fn a_limit_counts_the_tokens_of_all_generations_of_an_answer() {
    let at = MaxTokens::At(100);
    assert_eq!(tokens_left(at, 30), Some(70));
    assert_eq!(
        tokens_left(at, 300),
        Some(1),
        "an engine needs at least one"
    );
    assert_eq!(tokens_left(MaxTokens::Unlimited, 30), None);
}

#[test]
fn an_answer_that_breaks_off_within_a_call_goes_on_once() {
    let mut answer = generating();
    assert_eq!(answer.breaks_off(), BreakOff::Fails, "within words");
    answer.generation().unwrap().begin_call("clock");
    let within_call = true;
    assert_eq!(answer.breaks_off(), BreakOff::GoesOn { within_call });
    assert_eq!(answer.breaks_off(), BreakOff::Fails);
    let generation = answer.generation().unwrap();
    generation.end_call();
    let within_call = false;
    let goes_on = BreakOff::GoesOn { within_call };
    assert_eq!(answer.breaks_off(), goes_on, "behind a complete call");
}

#[test]
fn a_call_that_is_not_carried_out_is_not_made_again() {
    let mut answer = generating();
    let generation = answer.generation().unwrap();
    generation.forbid_calls();
    generation.begin_call("clock");
    assert_eq!(answer.breaks_off(), BreakOff::Fails);
}

#[test]
fn the_wait_for_the_model_counts_from_its_request_until_a_call_waits_for_another_one() {
    let (first, now) = (Micros::from_ms(300), Time::from_ms(100));
    let mut answer = generating();
    assert_eq!(answer.first_event(first, None, now), Micros::from_ms(200));
    answer.calls.wait_for(CallId(1), None);
    assert_eq!(answer.first_event(first, None, now), first);
    let next = Some(Micros::from_ms(50));
    assert_eq!(answer.first_event(first, next, now), Micros::from_ms(50));
}

#[test]
fn only_a_call_without_a_word_before_it_is_silent() {
    let mut answer = generating();
    assert!(!answer.waits_in_silence(CallId(1)), "there is no such call");
    answer.calls.wait_for(CallId(1), None);
    assert!(answer.waits_in_silence(CallId(1)));
    let spoken = spoken(answer, Words::Answer);
    assert!(!spoken.waits_in_silence(CallId(1)));
}

#[test]
fn no_call_is_foreseen_behind_another_one_or_before_the_end_of_the_conversation() {
    let mut answer = generating();
    let next = Some((RequestId(1), false));
    assert_eq!(answer.may_call_next(Time(0), false), next);
    assert_eq!(answer.may_call_next(Time(0), true), None);
    answer.calls.wait_for(CallId(1), None);
    assert_eq!(answer.may_call_next(Time(0), false), None);
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
