//! Replies by class of words.

mod repetition;

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn answer(text: &str, (question, tool, arguments): (&str, &str, Value)) -> Reply {
    let arguments = arguments.as_object().unwrap();
    let asked = Asked {
        question,
        tool,
        arguments,
    };
    reply(text, asked)
}

fn table() -> (&'static str, &'static str, Value) {
    let arguments = json!({"people": 2, "place": "Luigi's", "day": "Friday"});
    let question = "Shall I book a table for 2 at Luigi's on Friday?";
    (question, "book_table", arguments)
}

fn check(asked: impl Fn() -> (&'static str, &'static str, Value), cases: &[(&str, Reply)]) {
    let wrong: Vec<_> = cases
        .iter()
        .map(|(said, expected)| (said, expected, answer(said, asked())))
        .filter(|(_, expected, is)| *expected != is)
        .collect();
    assert!(wrong.is_empty(), "to {:?}: {wrong:#?}", asked().0);
}

use Reply::{No, Other, Yes};

/// A hundred replies to one question.
#[test]
fn agreement_that_adds_nothing_new_is_a_yes() {
    let cases = [
        // Agreement.
        ("Yes.", Yes),
        ("Yes, please.", Yes),
        ("Yeah, go ahead!", Yes),
        ("OK", Yes),
        ("That's right.", Yes),
        ("Sure.", Yes),
        ("Sure thing!", Yes),
        ("Yep, do it.", Yes),
        ("Please do.", Yes),
        ("Absolutely.", Yes),
        ("Yes, that works.", Yes),
        ("That works for me.", Yes),
        ("Yes, I would like that.", Yes),
        ("Yes, I'd love that.", Yes),
        ("Sounds good to me.", Yes),
        ("Yes, that'd be great.", Yes),
        ("Okay, fine.", Yes),
        ("All right.", Yes),
        ("Fine.", Yes),
        ("Go for it.", Yes),
        ("By all means.", Yes),
        ("Yes, I'm sure.", Yes),
        ("Yes, ma'am.", Yes),
        ("Yes, do.", Yes),
        ("Yes, proceed.", Yes),
        ("Yes, go on.", Yes),
        ("Yes, book that.", Yes),
        ("Yes, confirm it.", Yes),
        ("Mm-hmm.", Yes),
        ("Uh-huh.", Yes),
        ("Yes, I am.", Yes),
        ("Yes, I would.", Yes),
        ("Yes, it is, thanks.", Yes),
        ("Yes, that's it.", Yes),
        ("Yes, that's fine, thanks.", Yes),
        ("That's fine.", Yes),
        ("It's okay, go ahead.", Yes),
        // Politeness.
        ("Yes, thanks.", Yes),
        ("Yes, thank you very much.", Yes),
        ("Oh yes, please do.", Yes),
        ("Um, yes.", Yes),
        ("Great, yes, thanks!", Yes),
        ("Perfect, go ahead then.", Yes),
        ("Okay, thanks.", Yes),
        ("Thank you, yes.", Yes),
        ("(Yes!)", Yes),
        // The question's words.
        ("Yes, book it.", Yes),
        ("Please book it.", Yes),
        ("Book it, please.", Yes),
        ("Yes, go ahead and book it.", Yes),
        ("Yes, I would like to book it.", Yes),
        ("Yes, you can book the table.", Yes),
        ("Yes, book the table for two.", Yes),
        ("Yes, for two.", Yes),
        ("Yes, on Friday.", Yes),
        ("Yes, Friday.", Yes),
        ("Yes, a table for 2 at Luigi's.", Yes),
        (
            "Yes, book a table for two at Luigi's on Friday, please.",
            Yes,
        ),
        ("Yes. Book it for two, please. Thanks.", Yes),
        ("Yes, at Luigi's on Friday.", Yes),
        ("Yes, book the table on Friday.", Yes),
        ("Yes please, the table at Luigi's.", Yes),
        // Refusals.
        ("No.", No),
        ("No, thanks.", No),
        ("No, thank you.", No),
        ("No, cancel that.", No),
        ("Don't do it.", No),
        ("Please don't.", No),
        ("Never mind.", No),
        ("Nope, forget it.", No),
        ("Not now.", No),
        ("Stop!", No),
        ("Absolutely not.", No),
        ("No, leave it, sorry.", No),
        // Something new, or doubt.
        ("", Other),
        ("Yes, but not now.", Other),
        ("Yeah, no.", Other),
        ("Yes and no.", Other),
        ("Yes to my wife.", Other),
        ("Yes, tomorrow.", Other),
        ("Yes, and also order a cake.", Other),
        ("Yes, but make it five.", Other),
        ("Yes, for three.", Other),
        ("Yes, for 2 or 3.", Other),
        ("Yes, on Saturday.", Other),
        ("Yes, book it for tomorrow.", Other),
        ("Yes, book it at Mario's.", Other),
        ("Yes, if it is free.", Other),
        ("Yes, wait.", Other),
        ("Yes, cancel.", Other),
        ("Yes, later.", Other),
        ("Yes, not for two.", Other),
        ("Yes, I want to", Other),
        ("Yes, for", Other),
        ("Yes, book the", Other),
        ("Yes, I would like to change it.", Other),
        ("Yes, I would like that changed.", Other),
        ("Yes, that is wrong.", Other),
        ("Yes, do it later.", Other),
        ("Yes, table 2.", Other),
        ("Yes, at two.", Other),
        ("Yes, Friday for Luigi's.", Other),
        ("Yes, on Luigi's.", Other),
        ("Yes, I know.", Other),
        ("Yes, I'm sure it is not.", Other),
        ("Yes, hello?", Other),
        ("Yes?", Other),
        ("Okay?", Other),
        ("Book it?", Other),
        ("What would it cost?", Other),
        ("Sure thing is that you don't.", Other),
        ("Yesterday.", Other),
        ("Fine, thanks.", Other),
        ("Thanks.", Other),
        ("Great.", Other),
        ("Book it.", Other),
        ("For two.", Other),
        ("Luigi's on Friday.", Other),
        ("Well then.", Other),
        ("I would like to", Other),
    ];
    assert!(cases.len() >= 100, "{}", cases.len());
    check(table, &cases);
}

#[test]
fn a_polite_refusal_is_not_a_yes() {
    let declining = [
        "I'm good.",
        "I'm good, thanks.",
        "Yeah, I'm good, thanks.",
        "I'm fine, thanks.",
        "I'm okay.",
        "Okay, I'm okay.",
        "I'm okay, thank you.",
        "I'm all right, thanks.",
        "I'm all set.",
        "I'm set, thanks.",
        "I'm happy as is.",
        "I'm happy with that, thanks.",
        "I'm sure it's fine.",
        "It's fine, I'm sure.",
        "It's okay.",
        "It's okay, thanks.",
        "Oh, it's okay, thank you very much.",
        "It's fine.",
        "It's fine, thanks.",
        "It's all right.",
        "It's alright, thanks.",
        "It's good.",
        "It's all good.",
        "Please, it's okay.",
        "Okay, it's fine.",
        "It's okay, you can leave it.",
        "That's okay, thanks.",
        "That's ok, thank you.",
        "That's fine, thank you.",
        "Oh, that's all right, thanks.",
        "Thanks, that's alright.",
        "Okay, that's fine, thanks.",
        "Okay, that's it, thanks.",
        "Okay, that's it.",
        "That's it.",
        "That's it, thanks.",
        "That's all.",
        "That's all, thanks.",
        "That is all for now.",
        "That's good, thanks.",
        "Okay, that's good.",
        "That's enough.",
        "Okay, that'll do.",
        "That'll do, thanks.",
        "That will be all.",
        "All good, thanks.",
        "All right, thanks.",
        "Right, thanks.",
        "Great, thanks.",
        "Perfect, thanks.",
        "Good, thanks.",
        "We're good.",
        "We're fine, thanks.",
        "We're okay.",
        "You're all right, thanks.",
        "You're fine.",
        "No need.",
        "No need, thanks.",
        "There is no need.",
        "I'll pass.",
        "I'll leave it.",
        "Hard pass.",
        "I think I'll pass, thanks.",
        "Not right now, thanks.",
        "Not today.",
        "Not really.",
        "Not yet.",
        "Maybe later.",
        "Maybe another time.",
        "Another time, thanks.",
        "Some other time.",
        "Later, thanks.",
        "Okay, later.",
        "Let's not.",
        "Let me think.",
        "Don't worry about it.",
        "Okay, don't worry.",
        "Don't bother.",
        "Leave it.",
        "Okay, leave it.",
        "You can leave it.",
        "Sure, whatever.",
        "I'd rather not.",
        "I wouldn't.",
        "I don't think so.",
        "I guess not.",
        "I appreciate it, but I'm fine.",
        "Thanks anyway.",
        "Thank you, I'm fine.",
        "Thanks, but that's okay.",
        "Uh-uh.",
        "Nuh-uh.",
        "Mm-mm.",
        "Hm.",
    ];
    let taken: Vec<_> = declining
        .iter()
        .filter(|said| answer(said, table()) == Yes || agrees(said))
        .collect();
    assert!(taken.is_empty(), "{taken:#?}");
}

#[test]
fn a_sarcastic_yeah_right_is_not_a_yes() {
    check(
        table,
        &[
            ("Yeah, right.", Other),
            ("Yeah right!", Other),
            ("Oh yeah, right.", Other),
            ("Yeah, right, sure.", Other),
            ("Right, yeah.", Yes),
            ("Yes, right.", Yes),
            ("Yeah, that's right.", Yes),
            ("Yeah, all right.", Yes),
            ("Yeah, right, book it please.", Yes),
            ("Yeah, right, for Friday.", Other),
        ],
    );
    assert!(!agrees("Yeah, right."));
    let call = || ("Shall I call them right away?", "call", json!({}));
    check(
        call,
        &[
            ("Yeah, right away please.", Yes),
            ("Yeah, right away.", Yes),
            ("Yeah, right.", Other),
        ],
    );
}

#[test]
fn an_unfinished_sentence_is_not_a_yes() {
    for said in [
        "I would…",
        "Well, I would",
        "Um, I am",
        "We would.",
        "I do",
        "Okay, I would...",
        "You can",
        "Please, I am",
        "It is",
        "Do",
    ] {
        assert_eq!(answer(said, table()), Other, "{said}");
    }
}

#[test]
fn without_a_question_only_agreement_agrees() {
    assert!(agrees("Yes, please. That works, thanks."));
    assert!(!agrees("Yes, book it."));
    assert!(!agrees("Thanks."));
    assert!(!agrees("Fine, thanks."));
}

/// Agreement mixed with politeness and the question's own words.
fn plain_yes() -> impl Strategy<Value = Vec<&'static str>> {
    let around = prop::sample::select(vec!["oh", "um", "please", "great", "thank you"]);
    let agreement =
        prop::sample::select(vec!["yes", "sure", "go ahead", "that works", "of course"]);
    let question = prop::sample::select(vec![
        "book it",
        "book the table for two",
        "on Friday",
        "at Luigi's",
        "",
    ]);
    (around, agreement, question)
        .prop_map(|(around, agreement, question)| vec![around, agreement, question])
}

proptest! {
    /// Any new word anywhere means that it is not a yes.
    #[test]
    fn a_yes_with_any_new_word_runs_nothing(
        parts in plain_yes(),
        word in prop::sample::select(vec![
            "but", "not", "no", "if", "tomorrow", "three", "7", "Mario's", "instead", "wait",
            "maybe", "except", "without", "later", "don't", "cancel", "or", "change", "wife",
            "never", "stop", "unless", "whatever", "half",
        ]),
        at in 0usize..16,
    ) {
        let text = parts.join(" ");
        prop_assert_eq!(answer(&text, table()), Yes, "{}", text);
        let mut words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        words.insert(at % (words.len() + 1), word);
        let text = words.join(" ");
        prop_assert_ne!(answer(&text, table()), Yes, "{}", text);
    }

    /// No text is slow to classify or causes a panic.
    #[test]
    fn any_text_is_classified(text in ".{0,200}", question in ".{0,200}", value in ".{0,100}") {
        let arguments = json!({ "a": value });
        let arguments = arguments.as_object().unwrap();
        let asked = Asked { question: &question, tool: "t", arguments };
        let _ = reply(&text, asked);
    }
}

#[test]
fn an_endless_question_is_classified_quickly() {
    let question = "to x ".repeat(2_000);
    let asked = Asked {
        question: &question,
        tool: "t",
        arguments: &Map::new(),
    };
    assert_eq!(reply(&format!("yes {}", "to x ".repeat(15)), asked), Other);
    assert_eq!(
        reply(&format!("yes {}", "to x ".repeat(2_000)), asked),
        Other
    );
}
