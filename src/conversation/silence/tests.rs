//! Unit tests of the user's silence; whole calls are in `../tests/telephone.rs`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::policy::Policy;
use crate::time::Time;

const SET: Option<Micros> = Some(Micros::from_ms(3_000));

fn common() -> Common {
    Common::new(Policy::default(), Experience::default())
}

#[test]
fn a_silent_user_is_asked_twice_and_then_the_session_ends() {
    let (mut silence, mut common) = (Silence::default(), common());
    let mut lasts = || silence.lasts(&mut common, None, Samples(0));
    assert_eq!(
        [lasts(), lasts(), lasts()],
        [Silent::Ask, Silent::Ask, Silent::Leave]
    );
}

#[test]
fn a_client_with_its_own_idle_timeout_ends_the_session_itself() {
    let (mut silence, mut common) = (Silence::default(), common());
    let mut lasts = || silence.lasts(&mut common, SET, Samples(64_000));
    assert_eq!(
        [lasts(), lasts(), lasts()],
        [Silent::Ask, Silent::Ask, Silent::Wait]
    );
    assert_eq!(common.outputs.len(), 2, "it is told of each question");
}

#[test]
fn activity_resets_the_count() {
    let (mut silence, mut common) = (Silence::default(), common());
    silence.lasts(&mut common, None, Samples(0));
    silence.lasts(&mut common, None, Samples(0));
    silence.is_broken(&mut common);
    assert_eq!(silence.lasts(&mut common, None, Samples(0)), Silent::Ask);
}

#[test]
fn silence_counts_from_its_beginning() {
    let (silence, mut common) = (Silence::default(), common());
    silence.watch(&mut common, SET);
    common.now = Time::from_ms(1_000);
    silence.watch(&mut common, SET);
    let due = common.timers.take_due(Time::from_ms(3_000));
    assert!(matches!(due, Some(Timer::Silence)));
}

#[test]
fn without_a_limit_nobody_is_prompted() {
    let (silence, mut common) = (Silence::default(), common());
    silence.watch(&mut common, None);
    assert!(!common.timers.is_set(Timer::Silence));
}
