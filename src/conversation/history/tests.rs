//! Unit tests of the history.

use super::*;

fn spoken(clauses: &[(&str, u64)]) -> History {
    let mut history = History::default();
    history.begin_speech(ItemId(1), false);
    for (index, (text, ms)) in clauses.iter().enumerate() {
        history.add_clause(ItemId(1), text);
        history.lengthen_clause(ItemId(1), index, Micros::from_ms(*ms), &[]);
    }
    history
}

#[test]
fn an_answer_is_cut_at_the_last_whole_word_heard() {
    let mut history = spoken(&[("It is five past three,", 1_000), ("and it rains.", 1_000)]);
    let cut = |history: &mut History, ms| history.cut(ItemId(1), Micros::from_ms(ms));
    assert_eq!(
        cut(&mut history, 1_500).unwrap(),
        "It is five past three, and it"
    );
    assert_eq!(cut(&mut history, 700).unwrap(), "It is five past");
    assert_eq!(cut(&mut history, 0).unwrap(), "");
    assert_eq!(cut(&mut history, 2_001), cut(&mut history, 2_000));
    assert_eq!(cut(&mut history, 0).unwrap(), "");
    assert_eq!(history.messages(), []);
}

#[test]
fn an_answer_is_cut_where_the_voice_says_that_its_words_end() {
    let mut history = History::default();
    history.begin_speech(ItemId(1), false);
    let ms = |ms: &[u64]| -> Vec<Micros> { ms.iter().map(|ms| Micros::from_ms(*ms)).collect() };
    let index = history.add_clause(ItemId(1), "A thunderstorm  is on its way.");
    history.lengthen_clause(ItemId(1), index, Micros::from_ms(600), &ms(&[50, 600]));
    // The voice does not tell when the last three words end.
    history.lengthen_clause(ItemId(1), index, Micros::from_ms(1_000), &ms(&[1_000]));
    let mut cut = |ms| history.cut(ItemId(1), Micros::from_ms(ms)).unwrap();
    assert_eq!(cut(49), "");
    assert_eq!(cut(50), "A");
    assert_eq!(cut(599), "A");
    assert_eq!(cut(999), "A thunderstorm");
    assert_eq!(cut(1_000), "A thunderstorm  is");
    assert_eq!(cut(1_400), "A thunderstorm  is on its");
    assert_eq!(cut(1_600), "A thunderstorm  is on its way.");
}

#[test]
fn an_answer_is_cut_after_the_words_that_the_client_reports() {
    let mut history = History::default();
    for (id, clauses) in [
        (1, &["One moment."][..]),
        (
            2,
            &[
                "No, no, it's five past three,",
                "and the sun — 21°C — shines.",
            ],
        ),
        (3, &["No. Bye."]),
    ] {
        history.begin_speech(ItemId(id), false);
        for (index, text) in clauses.iter().enumerate() {
            history.add_clause(ItemId(id), text);
            history.lengthen_clause(ItemId(id), index, Micros::from_ms(1_000), &[]);
        }
    }
    let mut left = |words: &str| {
        let heard = history.heard_with(words);
        let cut = heard.iter().map(|(id, heard)| history.cut(*id, *heard));
        cut.collect::<Option<Vec<_>>>().unwrap()
    };
    assert_eq!(
        left("No no Its Five past"),
        ["No, no, it's five past", ""],
        "other marks and capitals"
    );
    assert_eq!(
        left("five past three, and the sun - 21 C"),
        ["No, no, it's five past three, and the sun — 21°C", ""],
        "from one clause into the next"
    );
    assert_eq!(
        left("No, no, it's five past three, and the sun sh"),
        Vec::<String>::new(),
        "words that were not said"
    );
    assert_eq!(
        left("No, no, it's fi"),
        ["No, no, it's", ""],
        "whole words only"
    );
    assert_eq!(left("no"), ["No."], "the last that begins so");
    assert_eq!(
        left("One moment. No, no"),
        ["No, no,", ""],
        "from one answer into the next"
    );
    assert_eq!(left("One moment"), ["One moment.", "", ""]);
    assert_eq!(left("three"), ["No, no, it's five past three,", ""]);
    assert_eq!(left("No. Bye"), ["No. Bye."]);
    for unknown in ["", "...", "Hello", "One moment. No. Bye. And"] {
        assert_eq!(left(unknown), Vec::<String>::new(), "{unknown}");
    }
    let user = Message::User { text: "Hm.".into() };
    history.push(ItemId(4), user);
    assert_eq!(history.heard_with("One moment"), [], "of an earlier turn");
}

#[test]
fn an_opening_that_has_waited_goes_before_what_was_said_to_the_agent_meanwhile() {
    let user = |text: &str| Message::User { text: text.into() };
    let mut history = History::default();
    let (text, interrupted) = ("Earlier.".into(), false);
    history.push(ItemId(1), Message::Agent { text, interrupted });
    let text = "Note.".into();
    history.push(ItemId(2), Message::System { text });
    history.push(ItemId(3), user("One."));
    history.opens();
    history.push(ItemId(4), user("Two."));
    for id in [5, 6] {
        history.begin_speech(ItemId(id), false);
        history.add_clause(ItemId(id), "Hello.");
    }
    history.push(ItemId(7), user("Three."));
    let order = |history: &History| -> Vec<u64> {
        let ids = history.items.iter().map(|item| item.id.0);
        ids.collect()
    };
    history.take_up_question();
    assert_eq!(order(&history), [1, 5, 6, 2, 3, 4, 7]);
    assert!(!history.ends_with_the_agent());
    history.begin_speech(ItemId(8), false);
    history.take_up_question();
    assert_eq!(order(&history), [1, 5, 6, 2, 3, 4, 7, 8]);
}

#[test]
fn a_result_joins_its_call_once() {
    let mut history = History::default();
    history.add_call(ItemId(1), CallId(7), "clock", Map::new());
    assert!(!history.add_result(ItemId(2), CallId(8), Value::Null));
    assert!(history.add_result(ItemId(2), CallId(7), Value::Null));
    assert!(!history.add_result(ItemId(3), CallId(7), Value::Null));
    assert_eq!(history.messages().len(), 2);
}
