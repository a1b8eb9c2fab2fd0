//! Sessions in which the user speaks over the agent's voice without interrupting it, or interrupts it.

use super::sim::{Sim, call, end, say};
use super::*;

/// An answer of nine seconds.
const STORY: &str = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
                     sixteen seventeen eighteen nineteen twenty. Thirty forty fifty sixty seventy eighty ninety.";

/// A session in which listening words do not stop the agent. By default they make it pause.
fn lenient(policy: Policy) -> Sim {
    let mut sim = Sim::new(policy);
    sim.policy().vad.barge_in.listening_words = ListeningWords::Pass;
    sim
}

/// Such a session whose agent has begun to tell a long story.
fn story() -> Sim {
    story_of(STORY)
}

fn story_of(text: &str) -> Sim {
    let mut sim = lenient(Policy::default());
    sim.scripts.push_back(vec![say(text), end()]);
    ask(&mut sim, "count", 1_500);
    sim.events.clear();
    sim
}

fn is_of_the_user(event: &Event) -> bool {
    matches!(
        event,
        Event::SpeechStarted { .. }
            | Event::SpeechStopped { .. }
            | Event::PartialTranscript { .. }
            | Event::UtteranceDropped
            | Event::UserItem { .. }
    )
}

#[track_caller]
fn is_not_interrupted(sim: &Sim) {
    assert!(!sim.saw(is_of_the_user), "{:?}", sim.events);
    let flushes = sim.outputs.iter().filter(|(_, o)| *o == Output::Flush);
    assert_eq!(flushes.count(), 0);
    assert_eq!(sim.prompts.len(), 1, "the model is not asked again");
}

/// How long after `begin` the agent was stopped, ms.
#[track_caller]
fn stopped_after(sim: &Sim, begin: Time) -> u64 {
    let flush = sim.outputs.iter().find(|(_, o)| *o == Output::Flush);
    flush.expect("a flush").0.since(begin).as_ms()
}

#[test]
fn listening_words_do_not_interrupt_the_agent() {
    for (words, ms) in [
        ("Mm-hm.", 500),
        ("Yeah.", 300),
        ("Okay.", 500),
        ("Oh, okay, I see.", 1_300),
        ("Right, right, right.", 2_000),
        // With a pause between two.
        ("Yeah.", 0),
    ] {
        let mut sim = story();
        let before = sim.sent.len();
        sim.speak(words, ms.max(300));
        if ms == 0 {
            sim.silence(300);
            sim.speak(words, 600);
        }
        sim.silence(9_000);
        is_not_interrupted(&sim);
        assert_eq!(sim.ended(), [ResponseStatus::Completed], "{words}");
        let gaps = sim.sent[before..].windows(2);
        let longest = gaps.map(|pair| pair[1].0.since(pair[0].0).as_ms()).max();
        assert!(longest <= Some(20), "{words}: {longest:?} ms without audio");
    }
}

#[test]
fn a_word_that_wants_the_turn_interrupts_when_it_has_ended() {
    let mut sim = story();
    let begin = sim.now();
    sim.speak("Stop.", 350);
    sim.silence(2_000);
    let stopped = stopped_after(&sim, begin);
    assert!((350..=480).contains(&stopped), "{stopped} ms");
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "Stop.")));
    let first = sim.events.iter().find(|(_, e)| is_of_the_user(e));
    assert!(matches!(first, Some((_, Event::SpeechStarted { .. }))));
}

#[test]
fn a_sentence_interrupts_while_it_is_being_said() {
    let mut sim = story();
    let begin = sim.now();
    sim.speak("Yeah, but what about Monday?", 2_000);
    let stopped = stopped_after(&sim, begin);
    assert!(stopped <= 480, "{stopped} ms");
    sim.silence(2_000);
    assert_eq!(sim.prompts.len(), 2);
}

#[test]
fn a_sentence_that_begins_with_no_clear_word_interrupts_a_little_later() {
    let mut sim = story();
    let begin = sim.now();
    sim.speak("And the meeting is on Monday.", 2_000);
    let stopped = stopped_after(&sim, begin);
    assert!((600..=750).contains(&stopped), "{stopped} ms");
}

#[test]
fn speech_that_the_recogniser_is_too_busy_for_interrupts() {
    let mut sim = story();
    sim.input(Input::Load {
        shed: Shed::Partials,
    });
    let begin = sim.now();
    sim.speak("I would like to say something else.", 2_000);
    let stopped = stopped_after(&sim, begin);
    assert!(stopped <= 1_050, "{stopped} ms");
}

#[test]
fn listening_words_that_stopped_the_agent_before_they_were_known_let_it_go_on() {
    let mut sim = story();
    sim.input(Input::Load {
        shed: Shed::Partials,
    });
    sim.speak("Yeah, yeah, okay, yeah.", 1_500);
    sim.silence(9_000);
    assert!(sim.saw(|e| *e == Event::UtteranceDropped));
    assert_eq!(
        sim.ended(),
        [ResponseStatus::Interrupted, ResponseStatus::Completed]
    );
    assert_eq!(sim.prompts.len(), 1, "only the rest is repeated");
}

#[test]
fn noise_over_the_voice_leaves_no_gap() {
    let mut sim = story();
    sim.speak("", 700);
    sim.silence(9_000);
    is_not_interrupted(&sim);
}

#[test]
fn a_yes_to_a_question_of_the_agent_is_a_turn() {
    let question =
        "One two three four five six seven eight nine ten. Shall I go on with the next part of it?";
    let mut sim = story_of(question);
    sim.silence(3_700);
    sim.speak("Yes.", 400);
    sim.silence(3_000);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "Yes.")));
    let mut early = story_of(question);
    early.speak("Yes.", 400);
    early.silence(900);
    is_not_interrupted(&early);
}

#[test]
fn a_word_behind_the_agents_last_one_is_a_turn() {
    let mut sim = story_of("One two three four five six.");
    let until = sim.core.playout.audible_until();
    while sim.now() + Micros::from_ms(250) < until {
        sim.silence(32);
    }
    sim.speak("Okay.", 400);
    sim.silence(3_000);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "Okay.")));
    assert!(!sim.saw(|e| *e == Event::UtteranceDropped));
}

/// The user waited for an answer to it in vain.
#[test]
fn a_word_behind_the_agents_last_one_that_the_recogniser_loses_is_asked_for_again() {
    let mut sim = story_of("One two three four five six.");
    let until = sim.core.playout.audible_until();
    while sim.now() + Micros::from_ms(250) < until {
        sim.silence(32);
    }
    sim.asr_ms = 60_000;
    sim.speak("Okay.", 400);
    sim.silence(6_000);
    assert_eq!(sim.spoken().last(), Some(&Phrases::default().asr_failed));
    let mut amid = story();
    amid.asr_fails = true;
    amid.speak("Okay.", 400);
    amid.silence(2_000);
    is_not_interrupted(&amid);
}

#[test]
fn a_yes_over_the_question_that_needs_one_interrupts_it_at_once() {
    let mut sim = lenient(Policy {
        tools: Arc::new(vec![Arc::new(asking(
            "book",
            "Shall I book a table for two?",
        ))]),
        ..Policy::default()
    });
    let mut script = call("book").to_vec();
    script.push(end());
    sim.scripts.push_back(script);
    sim.speak("book it", 1_000);
    for _ in 0..100 {
        if sim.saw(|e| matches!(e, Event::AgentSpeech { .. })) {
            break;
        }
        sim.silence(32);
    }
    sim.silence(320);
    let begin = sim.now();
    sim.speak("Yes.", 400);
    let stopped = stopped_after(&sim, begin);
    assert!(stopped <= 160, "{stopped} ms");
}

#[test]
fn a_server_that_asks_for_more_words_is_not_interrupted_by_fewer() {
    let mut sim = story();
    sim.policy().vad.barge_in.min_words = 3;
    sim.speak("Not that.", 600);
    sim.silence(500);
    is_not_interrupted(&sim);
    sim.speak("Not that one please.", 1_000);
    sim.silence(500);
    assert!(sim.saw(|e| matches!(e, Event::SpeechStarted { .. })));
}

/// A session with the shipped settings whose agent has begun to tell a long story.
fn shipped() -> Sim {
    let mut sim = story();
    sim.policy().vad.barge_in = Policy::default().vad.barge_in;
    sim
}

#[test]
fn as_shipped_any_word_stops_the_agent_at_once() {
    for word in ["Yeah.", "Stop."] {
        let mut sim = shipped();
        let begin = sim.now();
        sim.speak(word, 300);
        assert!(stopped_after(&sim, begin) <= 160, "{word}");
    }
}

#[test]
fn as_shipped_the_agent_goes_on_after_listening_words() {
    for words in ["Mm-hm.", "Yeah, yeah.", "Oh, okay, I see."] {
        let mut sim = shipped();
        sim.speak(words, 500);
        sim.silence(2_000);
        sim.speak("Okay.", 400);
        sim.silence(12_000);
        assert_eq!(sim.ended().last(), Some(&ResponseStatus::Completed));
        assert_eq!(sim.prompts.len(), 1, "{words}: only the rest is repeated");
        let is_turn = |e: &Event| matches!(e, Event::UserItem { .. });
        assert!(!sim.saw(is_turn), "{words}: {:?}", sim.events);
    }
}

/// It was dropped, and the agent said its last word again.
#[test]
fn as_shipped_a_word_behind_the_agents_last_one_is_a_turn() {
    for tells_words in [false, true] {
        let mut sim = Sim::new(Policy::default());
        sim.tells_words = tells_words;
        let answer = say("One two three four five six.");
        sim.scripts.push_back(vec![answer, end()]);
        ask(&mut sim, "count", 1_500);
        sim.events.clear();
        // Each word takes 300 ms.
        let until = sim.sent[0].0 + Micros::from_ms(1_800);
        while sim.now() + Micros::from_ms(250) < until {
            sim.silence(32);
        }
        sim.speak("Okay.", 400);
        let stops = |(_, output): &(Time, Output)| *output == Output::Flush;
        assert!(sim.outputs.iter().any(stops), "the agent was still heard");
        sim.silence(3_000);
        let is_turn = |e: &Event| matches!(e, Event::UserItem { text, .. } if text == "Okay.");
        assert!(sim.saw(is_turn), "{tells_words}: {:?}", sim.events);
        assert!(!sim.saw(|e| *e == Event::UtteranceDropped));
        assert_eq!(sim.spoken(), ["All right."], "it is answered");
    }
}

#[test]
fn as_shipped_the_agent_goes_on_soon_after_words_that_read_unfinished() {
    let mut sim = shipped();
    sim.speak("Yeah, um,", 500);
    let until = sim.now();
    sim.silence(3_000);
    let goes_on = sim.events.iter().find_map(|(at, event)| match event {
        Event::AgentSpeech { .. } if *at > until => Some(at.since(until)),
        _ => None,
    });
    assert!(
        goes_on.is_some_and(|after| after.as_ms() <= 700),
        "{goes_on:?}"
    );
}

#[test]
fn as_shipped_words_that_want_the_turn_take_it() {
    for words in [
        "Stop.",
        "Yeah, but what about Monday?",
        "No.",
        "Okay, stop.",
    ] {
        let mut sim = shipped();
        sim.speak(words, 700);
        sim.silence(3_000);
        let is_turn = |e: &Event| matches!(e, Event::UserItem { text, .. } if text == words);
        assert!(sim.saw(is_turn), "{words}: {:?}", sim.events);
        assert_eq!(sim.prompts.len(), 2, "{words}");
    }
}

#[test]
fn as_shipped_an_okay_to_a_question_is_a_turn() {
    for word in ["Okay.", "Please."] {
        let mut sim =
            story_of("One two three four five six. Shall I go on with the next part of it now?");
        sim.policy().vad.barge_in = Policy::default().vad.barge_in;
        sim.silence(2_500);
        sim.speak(word, 400);
        sim.silence(3_000);
        assert!(
            sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == word)),
            "{word}"
        );
    }
}

/// It was dropped as if it belonged to the turn before.
#[test]
fn a_please_to_a_question_is_a_turn_whatever_listening_words_do() {
    for does in [
        ListeningWords::Interrupt,
        ListeningWords::Pause,
        ListeningWords::Pass,
    ] {
        let mut sim =
            story_of("One two three four five six. Shall I go on with the next part of it now?");
        sim.policy().vad.barge_in.listening_words = does;
        sim.silence(2_500);
        sim.speak("Please.", 400);
        sim.silence(3_000);
        let is_turn = |e: &Event| matches!(e, Event::UserItem { text, .. } if text == "Please.");
        assert!(sim.saw(is_turn), "{does:?}");
    }
}

#[test]
fn a_user_who_goes_on_after_a_pause_stops_the_agent_at_once() {
    let mut sim = lenient(Policy::default());
    sim.scripts.push_back(vec![say(STORY), end()]);
    ask(&mut sim, "count", 700);
    let begin = sim.now();
    sim.speak("to ten", 400);
    assert!(stopped_after(&sim, begin) <= 160);
}

#[test]
fn audio_that_the_client_commits_over_the_voice_is_a_turn() {
    let mut sim = story();
    sim.speak("Okay.", 300);
    sim.input(Input::CommitAudio);
    sim.silence(2_000);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "Okay.")));
}

#[test]
fn an_okay_over_the_announcement_of_a_transfer_is_not_answered() {
    let mut sim = lenient(with(vec![ending("transfer", EndsCall::HandOver)]));
    let mut script = vec![say(STORY)];
    script.extend(call("transfer"));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "a person please", 1_500);
    sim.speak("Okay.", 500);
    sim.silence(12_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::HandedOver));
    assert_eq!(sim.prompts.len(), 1);
}
