//! Unit tests of the user's side; whole sessions are in `../tests/`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::policy::Policy;

const BY_HAND: EndOfTurnRule = EndOfTurnRule::Client;
const BY_SILENCE: EndOfTurnRule = EndOfTurnRule::Semantic;

fn at(ms: u64) -> Samples {
    Samples::from_ms(ms)
}

fn loud(end: Samples) -> Window {
    Window {
        end,
        probability: 0.9,
        level: -20,
    }
}

fn heard(ms: u64) -> (Turn, Common) {
    let mut turn = Turn::default();
    turn.received(at(ms));
    (turn, Common::new(Policy::default(), Experience::default()))
}

/// Feeds `windows` of speech from `from_ms` on, 32 ms each, and returns the changes.
fn speak(
    turn: &mut Turn,
    from_ms: u64,
    windows: u64,
    agent_is_heard: bool,
) -> Vec<Option<Activity>> {
    let vad = VadPolicy::default();
    let ends = (1..=windows).map(|n| at(from_ms + 32 * n));
    ends.map(|end| turn.on_window(&vad, BY_SILENCE, loud(end), agent_is_heard))
        .collect()
}

#[test]
fn more_speech_interrupts_the_agent_than_begins_a_turn() {
    let begins = |agent_is_heard| {
        let (mut turn, _) = heard(0);
        let heard = speak(&mut turn, 1_000, 8, agent_is_heard);
        let begun = |heard: &Option<Activity>| matches!(heard, Some(Activity::Started(_)));
        heard.iter().position(begun).unwrap() + 1
    };
    let vad = VadPolicy::default();
    assert_eq!(begins(false), vad.start_windows as usize);
    assert_eq!(begins(true), vad.interrupt_windows as usize);
}

#[test]
fn the_pre_roll_does_not_reach_into_the_turn_before() {
    let (mut turn, _) = heard(1_000);
    turn.forget_audio();
    let heard = speak(&mut turn, 1_000, 3, false);
    assert_eq!(heard[2], Some(Activity::Started(at(1_000))));
}

#[test]
fn no_speech_is_detected_if_the_client_commits_turns() {
    let (mut turn, _) = heard(0);
    let vad = VadPolicy::default();
    assert_eq!(turn.on_window(&vad, BY_HAND, loud(at(32)), false), None);
    assert_eq!(turn.audio_end(), at(32));
}

#[test]
fn the_next_utterance_begins_behind_the_last() {
    let (mut turn, mut common) = heard(0);
    turn.begin_speech(&mut common, at(0));
    turn.received(at(2_000));
    assert!(turn.is_open());
    assert!(turn.end(&mut common).is_some());
    assert!(!turn.is_open());
    assert_eq!(
        turn.audio_needed_from(&VadPolicy::default(), BY_HAND),
        at(2_000)
    );
    assert!(turn.end(&mut common).is_none(), "it has ended");
}

#[test]
fn a_commit_needs_audio_and_turns_that_the_client_ends() {
    let (mut turn, mut common) = heard(MIN_COMMIT_MS - 1);
    assert_eq!(turn.commit(&mut common, BY_HAND), None);
    turn.received(at(MIN_COMMIT_MS));
    assert_eq!(turn.commit(&mut common, BY_SILENCE), None);
    assert_eq!(turn.commit(&mut common, BY_HAND), Some(Commit::Audio));
    assert_eq!(turn.commit(&mut common, BY_HAND), None, "it is committed");
}

#[test]
fn a_commit_ends_the_utterance_that_is_going_on() {
    let (mut turn, mut common) = heard(1_000);
    turn.begin_speech(&mut common, at(0));
    assert_eq!(
        turn.commit(&mut common, BY_SILENCE),
        Some(Commit::Utterance)
    );
    assert!(turn.is_committed());
}

#[test]
fn committed_turns_are_heard_one_after_the_other() {
    let (mut turn, mut common) = heard(0);
    for ms in [1_000, 2_000] {
        turn.received(at(ms));
        turn.commit(&mut common, BY_HAND);
    }
    for from in [at(0), at(1_000)] {
        assert!(turn.begin_committed_turn(&mut common));
        assert!(!turn.begin_committed_turn(&mut common), "one at a time");
        assert_eq!(turn.utterance().unwrap().from(), from);
        turn.end(&mut common);
    }
    assert!(!turn.begin_committed_turn(&mut common));
}

#[test]
fn the_last_committed_turn_is_given_up() {
    let (mut turn, mut common) = heard(0);
    assert!(!turn.give_up_committed());
    for ms in [1_000, 2_000] {
        turn.received(at(ms));
        turn.commit(&mut common, BY_HAND);
    }
    assert!(turn.give_up_committed());
    for given_up in [false, true] {
        turn.begin_committed_turn(&mut common);
        assert_eq!(turn.end(&mut common).unwrap().is_given_up(), given_up);
    }
}

#[test]
fn a_cancel_gives_up_one_question() {
    let (mut turn, mut common) = heard(0);
    assert!(turn.gives_up_question(false));
    assert!(turn.gives_up_question(true), "no turn was committed");
    turn.begin_speech(&mut common, at(0));
    assert!(!turn.gives_up_question(false), "the user speaks on");
    turn.end(&mut common);
    turn.received(at(1_000));
    turn.commit(&mut common, BY_HAND);
    assert!(!turn.gives_up_question(true), "the committed turn's");
    turn.begin_committed_turn(&mut common);
    assert!(turn.end(&mut common).unwrap().is_given_up());
}

#[test]
fn waiting_committed_turns_are_bounded() {
    let (mut turn, mut common) = heard(0);
    for n in 1..=MOST_COMMITTED as u64 {
        turn.received(at(n * 1_000));
        assert!(turn.commit(&mut common, BY_HAND).is_some());
    }
    turn.received(at(100_000));
    assert_eq!(turn.commit(&mut common, BY_HAND), None);
}

/// An utterance with `windows` of certain speech.
fn certain(turn: &mut Turn, common: &mut Common, windows: usize) -> Utterance {
    turn.begin_speech(common, at(0));
    for _ in 0..windows {
        turn.watch_audio(common, 0.99);
    }
    turn.end(common).unwrap()
}

fn misheard(expected: bool) -> Misheard {
    Misheard {
        expected,
        answers: true,
        is_followed: false,
        interrupts: false,
    }
}

#[test]
fn a_user_who_was_not_understood_is_asked_once_to_say_it_again() {
    let (mut turn, mut common) = heard(0);
    let mut short = certain(&mut turn, &mut common, 31);
    assert!(
        !turn.may_ask_again(&common, &mut short, misheard(false)),
        "992 ms"
    );
    assert!(
        turn.may_ask_again(&common, &mut short, misheard(true)),
        "an answer is expected"
    );
    let mut long = certain(&mut turn, &mut common, 32);
    assert!(turn.may_ask_again(&common, &mut long, misheard(false)));
    turn.ask_again();
    assert!(!turn.may_ask_again(&common, &mut long, misheard(false)));
    turn.was_understood();
    assert!(turn.may_ask_again(&common, &mut long, misheard(false)));
}
