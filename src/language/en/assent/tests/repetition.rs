//! Replies that repeat the question.

use super::*;

#[test]
fn a_number_is_not_repeated_in_parts() {
    let time = || {
        let question = "Shall I book at 3:30 for 2?";
        (question, "book", json!({"time": "3:30", "people": 2}))
    };
    check(
        time,
        &[
            ("Yes, at 3:30.", Yes),
            ("Yes, book at 3:30 for two.", Yes),
            ("Yes, for two.", Yes),
            ("Yes, at 3.", Other),
            ("Yes, 3.", Other),
            ("Yes, book at 3.", Other),
            ("Yes, at 3 for two.", Other),
            ("Yes, 30.", Other),
        ],
    );
    let timer = || ("Set it to 1 hour 30 minutes?", "set", json!({}));
    check(
        timer,
        &[
            ("Yes, 1 hour 30 minutes.", Yes),
            ("Yes, 1 hour.", Other),
            ("Yes, to 1 hour.", Other),
            ("Yes, 30 minutes.", Other),
        ],
    );
    let half = || ("Shall I book at half past 3?", "book", json!({}));
    check(
        half,
        &[
            ("Yes, book at half past three.", Yes),
            ("Yes, 3.", Other),
            ("Yes, at 3.", Other),
        ],
    );
}

#[test]
fn a_value_in_another_place_is_not_a_yes() {
    let move_money = || {
        let arguments = json!({"amount": 50, "from": "checking", "to": "savings"});
        let question = "Transfer 50 dollars from checking to savings?";
        (question, "transfer_money", arguments)
    };
    check(
        move_money,
        &[
            ("Yes, from checking to savings.", Yes),
            ("Yes, transfer 50 dollars to savings.", Yes),
            ("Yes, transfer $50.", Yes),
            ("Yes, transfer it.", Yes),
            ("Yes, fifty dollars.", Yes),
            ("Yes, from savings to checking.", Other),
            ("Yes, from savings.", Other),
            ("Yes, to checking.", Other),
            ("Yes, to savings from checking.", Other),
            ("Yes, five dollars.", Other),
            ("Yes, transfer 50 euros.", Other),
        ],
    );
}

#[test]
fn a_question_that_lists_or_excludes_is_repeated_whole() {
    let note = || {
        let question = "Shall I add note with text milk and eggs?";
        (question, "add_note", json!({"text": "milk and eggs"}))
    };
    check(
        note,
        &[
            ("Yes, add it.", Yes),
            ("Yes, add the note.", Yes),
            ("Yes, milk and eggs.", Yes),
            ("Yes, add a note with text milk and eggs.", Yes),
            ("Yes, eggs.", Other),
            ("Yes, add milk.", Other),
            ("Yes, eggs and milk.", Other),
            ("Yes, milk and eggs and bread.", Other),
        ],
    );
    let pizza = || {
        let question = "Order a pizza without onions?";
        (
            question,
            "order_food",
            json!({"dish": "pizza without onions"}),
        )
    };
    check(
        pizza,
        &[
            ("Yes, order it.", Yes),
            ("Yes, a pizza without onions.", Yes),
            ("Yes, onions.", Other),
            ("Yes, a pizza.", Other),
            ("Yes, with onions.", Other),
            ("Yes, not a pizza.", Other),
        ],
    );
    let two = || {
        let question = "Send 5 dollars to Ann and 7 dollars to Bob?";
        (question, "send", json!({"list": [5, 7]}))
    };
    check(
        two,
        &[
            ("Yes, send it.", Yes),
            ("Yes, 5 dollars to Ann and 7 dollars to Bob.", Other),
            ("Yes, send 5 dollars to Ann and 7 dollars to Bob.", Yes),
            ("Yes, 5 dollars to Bob.", Other),
            ("Yes, to Bob.", Other),
        ],
    );
    for text in [
        "milk & eggs",
        "milk + eggs",
        "milk/eggs",
        "milk / eggs",
        "milk | eggs",
        "milk - eggs",
    ] {
        let question = format!("Shall I add note with text {text}?");
        let asked = || (question.as_str(), "add_note", json!({ "text": text }));
        assert_eq!(answer("Yes, add it.", asked()), Yes, "{text}");
        assert_eq!(answer("Yes, eggs.", asked()), Other, "{text}");
        assert_eq!(answer("Yes, milk.", asked()), Other, "{text}");
    }
    let ampersand = || ("Buy milk & eggs?", "buy", json!({"what": "milk & eggs"}));
    check(ampersand, &[("Yes, milk and eggs.", Yes)]);
    let commas = || ("Buy milk, eggs?", "buy", json!({"what": "milk, eggs"}));
    check(commas, &[("Yes, eggs.", Other), ("Yes, milk, eggs.", Yes)]);
    let thousands = || ("Send 12,500 US dollars to Ann?", "send", json!({}));
    check(
        thousands,
        &[
            ("Yes, $12,500.", Yes),
            ("Yes, 12500 dollars to Ann.", Yes),
            ("Yes, 12 dollars.", Other),
        ],
    );
}

#[test]
fn words_of_refusal_are_repeated_only_as_the_tools_own_verb() {
    let cancel = || {
        let question = "Shall I cancel the booking at Luigi's?";
        (question, "cancel_booking", json!({"place": "Luigi's"}))
    };
    check(
        cancel,
        &[
            ("Yes, cancel it.", Yes),
            ("Yes, cancel the booking.", Yes),
            ("Yes, cancel the booking at Luigi's.", Yes),
            ("Yes, cancel.", Other),
            ("Yes, cancel that.", Other),
            ("Cancel.", No),
            ("No, don't cancel it.", Other),
        ],
    );
    let note = || {
        let question = "Shall I add the note cancel the meeting?";
        (question, "add_note", json!({"text": "cancel the meeting"}))
    };
    check(
        note,
        &[
            ("Yes, add it.", Yes),
            ("Yes, cancel the meeting.", Other),
            ("Yes, cancel it.", Other),
        ],
    );
    let lights = || ("Stop the music?", "play", json!({}));
    check(
        lights,
        &[("Yes, stop it.", Other), ("Yes, stop the music.", Other)],
    );
}

#[test]
fn my_in_the_reply_matches_your_in_the_question() {
    let call = || {
        (
            "Shall I call your wife?",
            "call",
            json!({"who": "your wife"}),
        )
    };
    check(
        call,
        &[
            ("Yes, call my wife.", Yes),
            ("Yes, my wife.", Yes),
            ("Yes, to my wife.", Other),
            ("Yes, his wife.", Other),
        ],
    );
}
