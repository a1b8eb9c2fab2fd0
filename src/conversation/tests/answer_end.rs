//! Sessions with a model that does not stop.

use super::sim::{call_with, say};
use super::*;
use crate::conversation::sentence::{ends_sentence, words};
use proptest::prelude::*;
use serde_json::json;

fn within(words: usize, seconds: u64) -> Policy {
    Policy {
        answer: AnswerPolicy {
            words,
            speech: Micros::from_ms(seconds * 1_000),
        },
        ..patient()
    }
}

/// Never hangs up on a silent user.
fn patient() -> Policy {
    Policy {
        timeouts: Timeouts {
            idle: Micros::from_ms(3_000_000),
            ..Timeouts::default()
        },
        ..Policy::default()
    }
}

/// Asks a question of a model that answers with this script.
fn hear(policy: Policy, script: Vec<Step>) -> Sim {
    let mut sim = Sim::new(policy);
    sim.scripts.push_back(script);
    ask(&mut sim, "what time is it", 600_000);
    sim
}

fn spoken_words(sim: &Sim) -> usize {
    sim.spoken().iter().map(|clause| words(clause)).sum()
}

fn stopped(sim: &Sim) -> bool {
    let cancels = |(_, output): &(Time, Output)| matches!(output, Output::CancelGeneration { .. });
    sim.outputs.iter().any(cancels)
}

#[test]
fn an_answer_of_100_000_words_ends_after_a_sentence_and_the_model_is_stopped() {
    let sentence = "Here is yet another sentence of nine words, too. ";
    let script = (0..11_112).map(|_| say(sentence)).collect();
    let mut sim = hear(patient(), script);
    let most = AnswerPolicy::default().words;
    assert_eq!(spoken_words(&sim), most / 9 * 9);
    assert!(ends_sentence(sim.spoken().last().unwrap()));
    assert_eq!(sim.ended(), [ResponseStatus::Incomplete]);
    assert!(stopped(&sim), "the model was not stopped");
    let heard = sim.core.history.messages().pop();
    let Some(Message::Agent { text, interrupted }) = heard else {
        panic!("{heard:?}");
    };
    assert_eq!((words(&text), interrupted), (most / 9 * 9, false));
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    ask(&mut sim, "and what time is it", 3_000);
    assert_eq!(sim.spoken().last().unwrap(), "It is noon.");
    assert_eq!(sim.ended().last(), Some(&ResponseStatus::Completed));
}

#[test]
fn an_answer_that_takes_too_long_to_say_ends_after_a_sentence() {
    // At 300 ms a word, 9 words take 2.7 s.
    let script = vec![
        say(&"Here is yet another sentence of nine words, too. ".repeat(40)),
        end(),
    ];
    let sim = hear(within(500, 10), script);
    assert_eq!(spoken_words(&sim), 27, "{:?}", sim.spoken());
    assert!(ends_sentence(sim.spoken().last().unwrap()));
    assert_eq!(sim.ended(), [ResponseStatus::Incomplete]);
}

/// It ended at the comma.
#[test]
fn an_answer_in_hindi_or_urdu_ends_after_a_sentence() {
    let half = "यह एक और वाक्य है जिसमें नौ शब्द हैं";
    for end_mark in ['।', '۔'] {
        let sentence = format!("{half}, {half}{end_mark} ");
        let sim = hear(within(500, 10), vec![say(&sentence.repeat(10)), end()]);
        assert_eq!(spoken_words(&sim), 18, "{:?}", sim.spoken());
        assert!(sim.spoken().last().unwrap().ends_with(end_mark));
        assert_eq!(sim.ended(), [ResponseStatus::Incomplete]);
    }
}

#[test]
fn a_sentence_without_an_end_is_cut_between_its_clauses() {
    let script = (0..5_000).map(|_| say("on and on ")).collect();
    let sim = hear(within(100, 60), script);
    assert!((80..=100).contains(&spoken_words(&sim)));
    assert_eq!(sim.ended(), [ResponseStatus::Incomplete]);
    let script = (0..5_000).map(|_| say("on and on ")).collect();
    let sim = hear(within(1_000, 10), script);
    assert!(
        (20..=33).contains(&spoken_words(&sim)),
        "{:?}",
        sim.spoken()
    );
}

#[test]
fn an_answer_within_its_limits_is_left_alone() {
    let script = vec![
        say("One two three four. Five six seven eight nine ten."),
        end(),
    ];
    let sim = hear(within(10, 5), script);
    assert_eq!(spoken_words(&sim), 10);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    assert!(!stopped(&sim));
}

#[test]
fn a_question_is_asked_although_the_answer_before_it_was_too_long() {
    let mut policy = patient();
    policy.tools = with(vec![asking("book", "Shall I book it?")]).tools;
    policy.answer = within(500, 5).answer;
    let mut script = vec![say(&"This is one of many sentences. ".repeat(10))];
    script.extend(call_with("book", json!({})));
    script.push(end());
    let sim = hear(policy, script);
    assert_eq!(sim.spoken().last().unwrap(), "Shall I book it?");
    assert!(spoken_words(&sim) <= 16 + 4, "{:?}", sim.spoken());
    assert!(sim.saw(|event| matches!(event, Event::ConfirmationAsked { .. })));
}

#[test]
fn endless_words_after_a_call_do_not_delay_its_result() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    let mut script: Vec<Step> = call("clock").into();
    script.extend((0..60_000).flat_map(|_| [say("and "), Step::Wait(1)]));
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    ask(&mut sim, "what time is it", 30_000);
    assert_eq!(sim.spoken().last().unwrap(), "It is noon.");
}

#[test]
fn a_stream_without_a_word_to_speak_is_given_up() {
    let script = (0..40_000)
        .flat_map(|_| [say("🎉 \n"), Step::Wait(1)])
        .collect();
    let sim = hear(patient(), script);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    assert!(stopped(&sim));
}

proptest! {
    /// The limits hold for any sentences, and a sentence is cut only if it alone is too long.
    #[test]
    fn answers_stay_within_their_limits(
        sentences in prop::collection::vec(1usize..30, 1..40),
        most in 10usize..150,
        seconds in 5u64..40,
        waits in prop::bool::weighted(0.3),
        client_speaks in any::<bool>(),
    ) {
        let mut sim = Sim::new(within(most, seconds));
        sim.client_speaks = client_speaks;
        let mut script = Vec::new();
        for length in &sentences {
            script.push(say(&format!("{}end. ", "word ".repeat(length - 1))));
            script.extend(waits.then_some(Step::Wait(900)));
        }
        script.push(end());
        sim.scripts.push_back(script);
        ask(&mut sim, "what time is it", 200_000);
        let spoken = spoken_words(&sim);
        // 300 ms a word.
        let fitting = most.min(usize::try_from(seconds * 1_000 / 300).unwrap_or(most));
        prop_assert!(spoken <= fitting.max(12), "{spoken} of {fitting} words");
        let all: usize = sentences.iter().sum();
        let cut = spoken < all;
        let status = if cut { ResponseStatus::Incomplete } else { ResponseStatus::Completed };
        prop_assert_eq!(sim.ended(), [status]);
        if !waits && sentences.iter().all(|length| length + 12 <= fitting) {
            prop_assert!(ends_sentence(sim.spoken().last().unwrap()), "{:?}", sim.spoken());
        }
    }
}
