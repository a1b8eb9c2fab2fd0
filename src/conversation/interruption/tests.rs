//! Unit tests of an interruption's states; whole sessions are in `../tests/mod.rs`.

use super::*;

fn unfinished(steps: u32) -> Unfinished {
    Unfinished {
        terms: ResponseTerms::default(),
        history: 3,
        calls: Vec::new(),
        steps,
        has_called: false,
        is_for_client: false,
        said_all: true,
    }
}

fn stopped(rest: &str, steps: Option<u32>) -> Option<Stopped> {
    Some(Stopped {
        rest: rest.into(),
        unfinished: steps.map(|steps| Box::new(unfinished(steps))),
        ..Stopped::default()
    })
}

#[test]
fn a_sound_that_stops_nothing_is_not_an_interruption() {
    let mut interruption = Interruption::default();
    assert!(!interruption.begin(None, false));
    assert!(!interruption.is_judging());
    assert_eq!(interruption.was_noise(), None);
}

#[test]
fn after_noise_the_rest_is_said_and_the_answer_goes_on() {
    let mut interruption = Interruption::default();
    assert!(interruption.begin(stopped("and it rains.", Some(1)), false));
    assert_eq!(interruption.was_noise().unwrap(), "and it rains.");
    assert!(interruption.is_resuming());
    assert_eq!(
        interruption.take_unfinished(),
        Some(Box::new(unfinished(1)))
    );
    assert!(!interruption.is_resuming());
}

#[test]
fn a_fully_generated_answer_only_repeats_its_rest() {
    let mut interruption = Interruption::default();
    interruption.begin(stopped("and it rains.", None), false);
    assert_eq!(interruption.was_noise().unwrap(), "and it rains.");
    assert!(!interruption.is_resuming() && !interruption.is_judging());
}

#[test]
fn a_second_noise_keeps_the_interrupted_answer() {
    let mut interruption = Interruption::default();
    interruption.begin(stopped("", Some(1)), false);
    interruption.was_noise();
    assert!(interruption.begin(stopped("One moment.", None), false));
    assert_eq!(
        interruption.take_unfinished(),
        None,
        "not before it is judged"
    );
    assert_eq!(interruption.was_noise().unwrap(), "One moment.");
    assert_eq!(
        interruption.take_unfinished(),
        Some(Box::new(unfinished(1)))
    );
}

#[test]
fn the_answer_that_was_interrupted_last_is_resumed() {
    let mut interruption = Interruption::default();
    interruption.begin(stopped("", Some(1)), false);
    interruption.was_noise();
    interruption.begin(stopped("", Some(2)), false);
    interruption.was_noise();
    assert_eq!(
        interruption.take_unfinished(),
        Some(Box::new(unfinished(2)))
    );
}

#[test]
fn the_word_that_a_sound_broke_off_is_not_more_to_say() {
    for (rest, steps, all_sent, has_more) in [
        ("", None, true, false),
        ("rains.", None, true, false),
        ("it rains.", None, true, true),
        ("Bye.", None, false, true),
        ("rains.", Some(1), true, true),
    ] {
        let mut interruption = Interruption::default();
        assert!(!interruption.has_more());
        let stopped = stopped(rest, steps).map(|stopped| Stopped {
            all_sent,
            ..stopped
        });
        interruption.begin(stopped, false);
        assert_eq!(interruption.has_more(), has_more, "{rest} {steps:?}");
    }
}

#[test]
fn speech_drops_the_interrupted_answer() {
    let mut interruption = Interruption::default();
    interruption.begin(stopped("and it rains.", Some(1)), false);
    interruption.forget();
    assert_eq!(interruption.was_noise(), None);
    assert_eq!(interruption.take_unfinished(), None);
}

#[test]
fn an_interrupted_goodbye_has_no_rest_to_repeat() {
    let mut interruption = Interruption::default();
    assert!(interruption.begin(None, true));
    assert_eq!(interruption.was_noise().unwrap(), "");
}
