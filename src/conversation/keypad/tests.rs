//! Unit tests of the keypad; whole calls are in `../tests/telephone.rs`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::policy::Policy;
use crate::time::Time;

fn typed(keys: &str) -> (Keypad, Common) {
    let (mut keypad, mut common) = (
        Keypad::default(),
        Common::new(Policy::default(), Experience::default()),
    );
    for key in keys.chars() {
        assert!(!keypad.push(&mut common, key), "{key}");
    }
    (keypad, common)
}

#[test]
fn a_number_is_complete_with_the_hash_key() {
    let (mut keypad, mut common) = typed("12*");
    assert!(keypad.push(&mut common, '#'));
    assert_eq!(keypad.take(&mut common, false).unwrap(), "12*");
    assert!(!common.timers.is_set(Timer::KeysComplete));
    assert_eq!(keypad.take(&mut common, false), None, "it is taken once");
}

#[test]
fn a_number_is_complete_when_no_key_follows() {
    let (_, mut common) = typed("1");
    let at = Time::from_ms(COMPLETE_MS);
    assert!(matches!(
        common.timers.take_due(at),
        Some(Timer::KeysComplete)
    ));
}

#[test]
fn a_number_waits_for_the_end_of_what_the_user_says() {
    let (mut keypad, mut common) = typed("12");
    assert_eq!(keypad.take(&mut common, true), None);
    assert!(common.timers.is_set(Timer::KeysComplete));
    assert_eq!(keypad.take(&mut common, false).unwrap(), "12");
}

#[test]
fn keys_answer_only_if_no_number_has_begun() {
    let (keypad, _) = typed("");
    assert_eq!(keypad.answer('1'), Some(true));
    assert_eq!(keypad.answer('2'), Some(false));
    assert_eq!(keypad.answer('3'), None);
    let (keypad, _) = typed("3");
    assert_eq!(keypad.answer('1'), None);
}

#[test]
fn a_hash_key_that_ends_no_number_is_ignored() {
    let (mut keypad, mut common) = typed("");
    assert!(keypad.ends_nothing('#'));
    assert!(!keypad.ends_nothing('1'));
    keypad.push(&mut common, '1');
    assert!(!keypad.ends_nothing('#'));
}

#[test]
fn keys_of_a_number_are_bounded() {
    let keys = "1".repeat(MOST_KEYS);
    let (mut keypad, mut common) = typed(&(keys.clone() + "2"));
    assert_eq!(keypad.take(&mut common, false).unwrap(), keys);
}
