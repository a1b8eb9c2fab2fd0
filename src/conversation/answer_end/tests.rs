//! Unit tests of an answer's length; whole sessions are in `../tests/answer_end.rs`.

use super::*;

fn length(words: usize, speech_ms: u64) -> Length {
    Length::within(AnswerPolicy {
        words,
        speech: Micros::from_ms(speech_ms),
    })
}

fn place(is_first: bool, begins_sentence: bool, sentence_words: usize) -> Place {
    Place {
        is_first,
        begins_sentence,
        words: 3,
        sentence_words,
    }
}

#[test]
fn words_are_counted_up_to_the_limit() {
    let mut length = length(5, 60_000);
    assert!(!length.said(5));
    assert!(length.said(1));
}

#[test]
fn endless_streaming_is_noticed() {
    let mut length = length(1, 60_000);
    let most = length.most.bytes();
    assert!(!length.streamed(most));
    assert!(length.streamed(1));
}

#[test]
fn a_sentence_begins_only_if_it_is_likely_to_end_in_time() {
    let mut length = length(500, 4_000);
    assert!(length.ask(&place(true, true, 20)), "the first always does");
    assert!(
        !length.ask(&place(false, true, 8)),
        "3 and 8 words of 400 ms"
    );
    assert!(length.ask(&place(false, true, 7)));
}

#[test]
fn a_sentence_that_has_begun_goes_on_while_its_words_fit() {
    let mut length = length(500, 4_000);
    assert!(length.ask(&place(true, true, 20)));
    assert!(length.ask(&place(false, false, 17)));
    assert!(length.ask(&place(false, false, 14)));
    assert!(!length.ask(&place(false, false, 11)), "12 words of 400 ms");
}

#[test]
fn estimates_follow_the_pace_of_the_voice() {
    let mut length = length(500, 4_000);
    length.ask(&place(true, true, 20));
    length.made(3, Micros::from_ms(300));
    assert!(length.ask(&place(false, true, 37)), "37 words of 100 ms");
    assert!(
        !length.ask(&place(false, true, 35)),
        "3 of the last are not made yet"
    );
}
