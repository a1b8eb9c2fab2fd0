//! Scripted conversations under a virtual clock.

mod absence;
mod answer_end;
mod assumed;
mod breaks;
mod confirmation;
mod drafts;
mod early_tools;
mod fillers;
mod foresight;
mod handoff;
mod listening;
mod machine;
mod plans;
mod properties;
mod relayed;
mod results;
mod sessions;
mod sim;
mod speculation;
mod telephone;
mod terms;
mod text_limits;
mod tool_cache;
mod verdicts;

use super::*;
use crate::asr::Doubt;
use crate::conversation::sentence::bare;
use crate::llm::{LlmEvent, Message, Phrases, Prompt, Prompts};
use crate::tools::{Confirmation, Declaration, Effect, EndsCall, ToolSpec};
use crate::tts::{Speaker, Speed};
use sim::{Sim, Step, call, end, say};
use std::sync::Arc;
use std::time::Duration;

/// A tool without arguments that may not run early.
fn tool(name: &str, effect: Effect) -> Arc<Declaration> {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    };
    let timeout = Duration::from_secs(10);
    Arc::new(Declaration::new(spec, effect, timeout))
}

/// A tool that asks this question first.
fn asking(name: &str, question: &str) -> Declaration {
    let mut asking = (*tool(name, Effect::Irreversible)).clone();
    asking.confirmation = Confirmation::Spoken {
        question: Some(question.into()),
        expiry: Duration::from_secs(30),
    };
    asking
}

/// A tool that ends the conversation.
fn ending(name: &str, how: EndsCall) -> Declaration {
    let mut ending = (*tool(name, Effect::Irreversible)).clone();
    ending.ends_call = Some(how);
    ending
}

fn with(tools: Vec<Declaration>) -> Policy {
    Policy {
        tools: Arc::new(tools.into_iter().map(Arc::new).collect()),
        ..Policy::default()
    }
}

fn sim() -> Sim {
    Sim::new(Policy::default())
}

/// A user who asks a question and waits for `ms`.
fn ask(sim: &mut Sim, words: &str, ms: u64) {
    sim.speak(words, 1_000);
    sim.silence(ms);
}

fn typed(sim: &mut Sim, text: &str) {
    sim.input(NewItem::User { text: text.into() }.at_the_end());
}

#[test]
fn every_clause_names_its_voice_and_language() {
    let speaker = Speaker {
        voice: Some("anna".into()),
        language: Some("de".into()),
        speed: Speed::of(1.2),
    };
    for speaker in [speaker, Speaker::default()] {
        let mut sim = Sim::new(Policy {
            opening: Opening::greeting("Hello there."),
            speaker: speaker.clone(),
            ..Policy::default()
        });
        sim.silence(2_000);
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        ask(&mut sim, "what time is it", 3_000);
        let spoken = sim.outputs.iter().filter_map(|(_, output)| match output {
            Output::Speak { text, speaker, .. } => Some((text.as_str(), speaker)),
            _ => None,
        });
        let expected = ["Hello there.", "It is noon."].map(|text| (text, &speaker));
        assert_eq!(spoken.collect::<Vec<_>>(), expected);
        let written = serde_json::to_string(sim.policy()).unwrap();
        assert_eq!(written.contains("speaker"), !speaker.is_default());
    }
}

#[test]
fn the_client_changes_voice_and_speed_of_what_is_said_from_then_on() {
    let mut sim = sim();
    sim.silence(500);
    let chosen = Speaker {
        voice: Some("anna".into()),
        speed: Speed::of(0.5),
        ..Speaker::default()
    };
    let mut expected = Vec::new();
    for speaker in [chosen, Speaker::default()] {
        sim.input(Input::Configure(Box::new(Settings {
            speaker: Some(speaker.clone()),
            ..Settings::default()
        })));
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        ask(&mut sim, "what time is it", 5_000);
        expected.push(speaker);
    }
    let spoken = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Speak { speaker, .. } => Some(speaker),
        _ => None,
    });
    assert_eq!(spoken.cloned().collect::<Vec<_>>(), expected);
}

#[test]
fn the_client_changes_the_language_of_words_prompt_and_voice() {
    let mut sim = sim();
    sim.silence(500);
    sim.input(Input::Configure(Box::new(Settings {
        language: Some("en-GB".into()),
        ..Settings::default()
    })));
    assert_eq!(
        sim.policy().speaker,
        Speaker::default(),
        "it is English already"
    );
    sim.input(Input::Configure(Box::new(Settings {
        language: Some("tlh".into()),
        ..Settings::default()
    })));
    sim.scripts.push_back(vec![say("nuqneH."), end()]);
    ask(&mut sim, "nuqneH", 3_000);
    let languages = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Speak { speaker, .. } => speaker.language.as_deref(),
        Output::Generate { prompt, .. } => prompt.demands.language.as_deref(),
        _ => None,
    });
    let languages: Vec<_> = languages.collect();
    assert!(languages.len() >= 2 && languages.iter().all(|tag| *tag == "tlh"));
}

#[test]
fn a_question_gets_an_answer() {
    let mut sim = sim();
    sim.silence(500);
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(sim.spoken(), ["It is noon."]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    let latency = sim.latency();
    let wait = latency
        .first_audio
        .unwrap()
        .since(latency.speech_end.unwrap());
    assert!(wait <= Micros::from_ms(320), "{} ms", wait.as_ms());
    assert_eq!(
        sim.core.history.messages(),
        [
            Message::User {
                text: "what time is it".into()
            },
            Message::Agent {
                text: "It is noon.".into(),
                interrupted: false
            },
        ]
    );
}

#[test]
fn partials_come_every_half_second_of_speech() {
    let mut sim = sim();
    sim.speak("what", 600);
    sim.speak("what time", 600);
    sim.speak("what time is it", 600);
    let partials = sim
        .events
        .iter()
        .filter(|(_, e)| matches!(e, Event::PartialTranscript { .. }));
    assert_eq!(partials.count(), 3);
}

/// Nothing was predicted from the words of a fluent speaker before a pause.
#[test]
fn partials_come_from_a_recogniser_that_is_slower_than_the_gaps_between_words() {
    let mut sim = sim();
    sim.asr_ms = 400;
    let words = "what time is it in rome if it is noon in paris and in berlin";
    for (end, _) in words.match_indices(' ') {
        sim.speak(&words[..end], 192);
        sim.fade(32);
    }
    let partials = sim
        .events
        .iter()
        .filter(|(_, e)| matches!(e, Event::PartialTranscript { .. }));
    assert!(partials.count() >= 4);
}

/// A turn too long for the recogniser was cut in the middle of a word, although the user had paused.
#[test]
fn a_long_turn_is_transcribed_in_parts_that_begin_in_its_pauses() {
    let mut sim = sim();
    sim.completeness = 0.1;
    sim.speak("first of all and", 10_016);
    sim.silence(320);
    sim.speak("first of all and then", 16_000);
    let parts = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Transcribe { from, .. } => Some(from.as_ms()),
        _ => None,
    });
    let parts: Vec<u64> = parts.collect();
    let in_pause = |from: &u64| (10_016..10_336).contains(from);
    assert!(parts.iter().any(in_pause), "{parts:?}");
    assert!(
        parts.iter().all(|from| *from == 0 || in_pause(from)),
        "{parts:?}"
    );
}

#[test]
fn an_unfinished_sentence_ends_after_a_second_of_silence() {
    let mut sim = sim();
    sim.speak("set a timer for", 1_000);
    sim.silence(900);
    assert!(sim.prompts.is_empty());
    sim.speak("set a timer for ten minutes", 600);
    sim.silence(600);
    assert_eq!(sim.prompts.len(), 1);
    assert_eq!(
        sim.prompts[0].messages,
        [Message::User {
            text: "set a timer for ten minutes".into()
        }]
    );
}

#[test]
fn a_transcript_of_an_earlier_pause_is_dead() {
    let mut sim = sim();
    sim.asr_ms = 150;
    sim.speak("what time", 1_000);
    sim.silence(128);
    sim.speak("what time is it", 320);
    sim.silence(1_000);
    let items = sim.events.iter().filter_map(|(_, e)| match e {
        Event::UserItem { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(items.collect::<Vec<_>>(), ["what time is it"]);
}

#[test]
fn noise_makes_no_turn() {
    let mut sim = sim();
    ask(&mut sim, "", 1_500);
    assert!(sim.saw(|e| *e == Event::UtteranceDropped));
    assert!(sim.prompts.is_empty());
}

/// Certain speech without a recognised word.
fn mumble(sim: &mut Sim, ms: u64) {
    sim.words = String::new();
    sim.windows(ms, 0.99);
    sim.silence(3_000);
}

#[test]
fn the_user_is_asked_once_to_repeat_clear_speech_without_words() {
    let again = || Phrases::default().asr_failed;
    let mut sim = sim();
    mumble(&mut sim, 1_100);
    assert!(sim.saw(|e| *e == Event::UtteranceDropped));
    assert!(sim.prompts.is_empty());
    assert_eq!(sim.spoken(), [again()]);
    mumble(&mut sim, 2_000);
    assert_eq!(sim.spoken(), [again()], "others may be speaking");
    ask(&mut sim, "what time is it", 3_000);
    let spoken = sim.spoken().len();
    mumble(&mut sim, 2_000);
    assert_eq!(sim.spoken()[spoken..], [again()]);
}

#[test]
fn a_quiet_yes_that_the_recogniser_doubts_is_not_dropped_in_silence() {
    let quiet_yes = |doubt| {
        let mut sim = sim();
        sim.words = String::new();
        sim.doubt = Some(doubt);
        sim.windows(640, 0.96);
        sim.silence(3_000);
        sim
    };
    let heard = quiet_yes(Doubt::NoSpeech("Yes.".into()));
    let is_yes = |e: &Event| matches!(e, Event::UserItem { text, .. } if text == "Yes.");
    assert!(heard.saw(is_yes));
    let unclear = quiet_yes(Doubt::Unclear);
    assert_eq!(unclear.spoken(), [Phrases::default().asr_failed]);
}

#[test]
fn the_user_is_not_asked_to_repeat_doubtful_speech() {
    let mut sim = sim();
    mumble(&mut sim, 900);
    ask(&mut sim, "", 5_000);
    sim.uninterruptible(false);
    mumble(&mut sim, 2_000);
    assert_eq!(sim.spoken(), Vec::<String>::new());
}

#[test]
fn an_answer_that_unclear_speech_has_stopped_goes_on() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![say("It is five past three in the afternoon."), end()]);
    ask(&mut sim, "what time is it", 900);
    mumble(&mut sim, 1_500);
    let spoken = sim.spoken().join(" ");
    assert!(!spoken.contains(&Phrases::default().asr_failed), "{spoken}");
    assert_eq!(sim.ended().len(), 2, "{spoken}");
}

#[test]
fn a_click_begins_no_utterance() {
    let mut sim = sim();
    sim.speak("", 64);
    sim.silence(1_000);
    assert_eq!(sim.events, []);
}

#[test]
fn speech_over_the_voice_stops_it_and_the_history_says_what_was_heard() {
    let mut sim = sim();
    sim.scripts.push_back(vec![
        say("One two three four five six seven eight nine ten."),
        end(),
    ]);
    ask(&mut sim, "count", 1_500);
    sim.speak("stop", 500);
    let at = sim
        .outputs
        .iter()
        .find(|(_, o)| *o == Output::Flush)
        .expect("a flush")
        .0;
    let cut = sim.core.history.messages()[1].clone();
    let Message::Agent {
        text,
        interrupted: true,
    } = cut
    else {
        panic!("{cut:?}")
    };
    let words = text.split(' ').count();
    assert!((3..=5).contains(&words), "{text}");
    assert!(
        sim.sent.iter().all(|(when, _)| *when <= at),
        "audio after the flush"
    );
    assert_eq!(sim.ended(), [ResponseStatus::Interrupted]);
}

#[test]
fn a_cough_over_the_voice_does_not_stop_it() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![say("One two three four five six."), end()]);
    ask(&mut sim, "count", 1_000);
    sim.speak("", 96);
    sim.silence(3_000);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn after_a_false_interruption_the_agent_goes_on_where_it_was_cut() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![say("One two three four five six seven eight."), end()]);
    ask(&mut sim, "count", 1_500);
    sim.speak("", 300);
    sim.silence(5_000);
    assert_eq!(
        sim.ended(),
        [ResponseStatus::Interrupted, ResponseStatus::Completed]
    );
    let agent: Vec<_> = sim
        .core
        .history
        .messages()
        .into_iter()
        .filter_map(|m| match m {
            Message::Agent { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(agent.join(" "), "One two three four five six seven eight.");
}

/// The agent apologised for a model that had said everything before the cough, but for the end of its stream.
#[test]
fn a_model_that_has_nothing_to_add_after_a_cough_has_not_failed() {
    let coughed_after = |words: &str| {
        let mut sim = sim();
        let unended = vec![say(words), Step::Wait(5_000), end()];
        sim.scripts.extend([unended, vec![end()]]);
        ask(&mut sim, "what time is it", 900);
        sim.speak("", 300);
        sim.silence(10_000);
        assert_eq!(sim.prompts.len(), 2);
        sim.ended().pop()
    };
    let answered = coughed_after("It is five past three in the afternoon. ");
    assert_eq!(answered, Some(ResponseStatus::Completed));
    for more_to_come in ["Let me check. ", "Here are the three steps: "] {
        let announced = coughed_after(more_to_come);
        assert_eq!(announced, Some(ResponseStatus::Failed), "{more_to_come}");
    }
}

/// Without an apology the user would hear nothing of the result.
#[test]
fn a_model_that_says_nothing_of_a_result_after_a_cough_has_failed() {
    let mut sim = Sim::new(with(vec![(*tool("look_up", Effect::Read)).clone()]));
    sim.tool_times.insert("look_up".into(), 1_000);
    let mut script = vec![say("I have your order right here in front of me. ")];
    script.extend(call("look_up"));
    script.push(end());
    sim.scripts.extend([script, vec![end()]]);
    ask(&mut sim, "where is my order", 900);
    sim.speak("", 300);
    sim.silence(12_000);
    assert_eq!(sim.prompts.len(), 2);
    assert_eq!(sim.ended().pop(), Some(ResponseStatus::Failed));
}

/// The second cough came while the model was asked for more.
#[test]
fn a_model_that_has_nothing_to_add_after_two_coughs_has_not_failed() {
    let mut sim = sim();
    let words = say("It is five past three in the afternoon. ");
    let unended = vec![words, Step::Wait(5_000), end()];
    let silent = vec![Step::Wait(5_000), end()];
    sim.scripts.extend([unended, silent, vec![end()]]);
    ask(&mut sim, "what time is it", 900);
    for asked in [2, 3] {
        sim.speak("", 300);
        for _ in 0..200 {
            if sim.prompts.len() < asked {
                sim.silence(32);
            }
        }
        assert_eq!(sim.prompts.len(), asked);
    }
    sim.silence(5_000);
    assert_eq!(sim.ended().pop(), Some(ResponseStatus::Completed));
}

#[test]
fn going_on_before_the_answer_cancels_it_and_keeps_both_sentences() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![Step::Wait(1_000), say("It is noon here."), end()]);
    ask(&mut sim, "what time is it", 400);
    sim.speak("in Tokyo", 600);
    sim.silence(2_000);
    let last = sim.prompts.last().unwrap();
    assert_eq!(
        last.messages,
        [
            Message::User {
                text: "what time is it".into()
            },
            Message::User {
                text: "in Tokyo".into()
            }
        ]
    );
    assert!(!sim.spoken().contains(&"It is noon here.".to_owned()));
}

#[test]
fn noise_while_the_answer_is_made_does_not_swallow_it() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![Step::Wait(1_000), say("Lost."), end()]);
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    ask(&mut sim, "what time is it", 400);
    sim.speak("", 300);
    sim.silence(3_000);
    assert_eq!(sim.spoken(), ["It is noon."]);
}

#[test]
fn the_answer_follows_the_filler() {
    let mut sim = sim();
    sim.tool_ms = 300;
    let mut first = vec![say("Let me look that up for you.")];
    first.extend(call("clock"));
    first.push(say("It is surely noon."));
    first.push(end());
    sim.scripts.push_back(first);
    sim.scripts.push_back(vec![say("It is five."), end()]);
    ask(&mut sim, "what time is it", 5_000);
    assert_eq!(sim.tools_started, ["clock"]);
    assert_eq!(
        sim.spoken(),
        ["Let me look that up for you.", "It is five."]
    );
    assert_eq!(sim.latency().dead_air, Some(Micros(0)));
    let roles: Vec<_> = sim
        .core
        .history
        .messages()
        .iter()
        .map(|m| {
            serde_json::to_value(m).unwrap()["role"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        roles,
        ["user", "agent", "tool_call", "tool_result", "agent"]
    );
}

#[test]
fn a_long_answer_is_not_followed_by_a_filler() {
    let mut sim = sim();
    let mut first = call("clock").to_vec();
    first.push(end());
    sim.scripts.push_back(first);
    sim.scripts
        .push_back(vec![say("It is five past three in the afternoon."), end()]);
    ask(&mut sim, "what time is it", 8_000);
    assert_eq!(sim.spoken(), ["It is five past three in the afternoon."]);
}

#[test]
fn a_failed_tool_is_told_to_the_model_in_plain_words() {
    let mut sim = sim();
    let mut first = call("broken").to_vec();
    first.push(end());
    sim.scripts.push_back(first);
    ask(&mut sim, "do it", 2_000);
    assert!(matches!(
        sim.prompts[1].messages.last(),
        Some(Message::ToolResult { output, .. }) if output["error"] == "it is not working right now"
    ));
    assert!(!format!("{:?}", sim.prompts).contains("10.0.0.7"));
}

#[test]
fn a_call_that_cannot_be_read_never_runs() {
    let mut sim = sim();
    sim.scripts.push_back(vec![
        Step::Event(LlmEvent::ToolOpened {
            name: "clock".into(),
        }),
        Step::Event(LlmEvent::ToolClosed {
            arguments: Err("no closing bracket".into()),
        }),
        end(),
    ]);
    ask(&mut sim, "what time is it", 2_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.prompts.len(), 2);
}

#[test]
fn tool_steps_are_bounded() {
    let mut sim = Sim::new(Policy {
        tools: std::sync::Arc::new(vec![tool("clock", Effect::Read)]),
        ..Policy::default()
    });
    for _ in 0..5 {
        let mut script = call("clock").to_vec();
        script.push(end());
        sim.scripts.push_back(script);
    }
    ask(&mut sim, "what time is it", 5_000);
    assert_eq!(sim.prompts.len(), 6);
    assert!(sim.prompts[4].may_call() && !sim.prompts[5].may_call());
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn a_call_beyond_the_last_round_does_not_run_and_is_no_silence() {
    for words in [None, Some("Let me look again.")] {
        let mut sim = Sim::new(Policy {
            tools: std::sync::Arc::new(vec![tool("clock", Effect::Read)]),
            tool_steps: 1,
            ..Policy::default()
        });
        let [opened, closed] = call("clock");
        let promised = words.map(say).into_iter();
        let again = promised.chain(call("clock")).chain([end()]).collect();
        sim.scripts.extend([vec![opened, closed, end()], again]);
        ask(&mut sim, "what time is it", 5_000);
        assert_eq!(sim.tools_started.len(), 1);
        let mut expected: Vec<String> = words.map(str::to_owned).into_iter().collect();
        expected.push(Phrases::default().llm_failed);
        assert_eq!(sim.spoken().join(" "), expected.join(" "));
        assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    }
}

/// The messages of a prompt as one text, without the note about this answer only.
fn prefix(prompt: &Prompt) -> String {
    let chat = Prompts::default().chat(prompt).unwrap();
    let mut text: String = chat
        .iter()
        .map(|m| format!("{:?}: {}\n", m.role, m.content))
        .collect();
    text.truncate(text.trim_end().len());
    if !prompt.may_call() {
        let note = text.rfind("\n<note>").unwrap();
        assert!(text[note..].contains("No tool can be called"), "{text}");
        text.truncate(note);
    }
    text
}

#[test]
fn every_prompt_begins_with_the_one_before() {
    let mut sim = Sim::new(Policy {
        tools: std::sync::Arc::new(vec![tool("clock", Effect::Read)]),
        tool_steps: 2,
        briefing: Briefing {
            agent: None,
            day: Some("Sunday, 1 March 2026".into()),
            instructions: Some("Be kind.".into()),
            ..Briefing::default()
        },
        ..Policy::default()
    });
    for _ in 0..3 {
        for _ in 0..2 {
            let mut script = vec![say("Let me look.")];
            script.extend(call("clock"));
            script.push(end());
            sim.scripts.push_back(script);
        }
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        ask(&mut sim, "what time is it", 8_000);
    }
    assert_eq!(sim.prompts.len(), 9);
    let texts: Vec<String> = sim.prompts.iter().map(prefix).collect();
    for pair in texts.windows(2) {
        assert!(
            pair[1].starts_with(&pair[0]),
            "{}\n---\n{}",
            pair[0],
            pair[1]
        );
    }
    assert!(texts[0].contains("Sunday, 1 March 2026"));
}

#[test]
fn a_result_after_barge_in_joins_the_history_and_is_not_spoken() {
    let mut sim = sim();
    sim.tool_ms = 1_000;
    let mut first = vec![say("Let me look that up for you.")];
    first.extend(call("clock"));
    first.push(end());
    sim.scripts.push_back(first);
    sim.scripts.push_back(vec![say("You are welcome."), end()]);
    ask(&mut sim, "what time is it", 700);
    sim.speak("never mind thanks", 800);
    sim.silence(3_000);
    assert_eq!(
        sim.spoken(),
        ["Let me look that up for you.", "You are welcome."]
    );
    let results = sim.core.history.messages();
    assert!(
        results
            .iter()
            .any(|m| matches!(m, Message::ToolResult { .. }))
    );
}

#[test]
fn a_dead_model_gets_an_apology_and_the_session_goes_on() {
    let mut sim = sim();
    // All preemptive generations fail, and so does their repetition.
    sim.scripts.extend((0..4).map(|_| vec![Step::Break]));
    ask(&mut sim, "what time is it", 8_000);
    assert_eq!(sim.spoken().join(" "), Phrases::default().llm_failed);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(
        sim.ended(),
        [ResponseStatus::Failed, ResponseStatus::Completed]
    );
}

#[test]
fn a_stalled_model_gets_a_filler_and_then_an_apology() {
    let mut sim = sim();
    sim.scripts.push_back(vec![Step::Wait(60_000), end()]);
    ask(&mut sim, "what time is it", 10_000);
    let spoken = sim.spoken().join(" ");
    assert!(
        spoken.starts_with(&Phrases::default().one_moment),
        "{spoken}"
    );
    assert!(spoken.ends_with(&Phrases::default().llm_failed), "{spoken}");
    let filler = sim
        .events
        .iter()
        .find(|(_, e)| matches!(e, Event::AgentSpeech { .. }))
        .unwrap()
        .0;
    assert!(
        filler <= Time::from_ms(1_000 + 200 + 1_500 + 200),
        "{filler:?}"
    );
}

/// Thoughts for `seconds`, one each second, and an answer.
fn thoughtful(seconds: usize) -> Vec<Step> {
    let thought = [Step::Event(LlmEvent::Thinking), Step::Wait(1_000)];
    let thoughts = std::iter::repeat_n(thought, seconds).flatten();
    thoughts.chain([say("It is noon."), end()]).collect()
}

#[test]
fn a_model_that_thinks_is_waited_for_and_bridged() {
    let mut sim = sim();
    sim.scripts.push_back(thoughtful(9));
    ask(&mut sim, "what time is it", 14_000);
    let spoken = sim.spoken().join(" ");
    assert!(spoken.ends_with("It is noon."), "{spoken}");
    assert!(!spoken.contains(&Phrases::default().llm_failed), "{spoken}");
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    // A filler, and at most twice the time after which the first one came.
    let starts = sim
        .events
        .iter()
        .filter_map(|(at, event)| matches!(event, Event::AgentSpeech { .. }).then_some(*at));
    let starts: Vec<Time> = starts.collect();
    assert!(starts.len() >= 3, "{starts:?}");
    let patience = Timeouts::default().dead_air;
    for pair in starts.windows(2) {
        let gap = pair[1].since(pair[0]);
        assert!(gap <= Micros(3 * patience.0), "{starts:?}");
    }
}

#[test]
fn a_model_that_thinks_for_too_long_is_given_up() {
    let mut sim = sim();
    sim.scripts.push_back(thoughtful(60));
    ask(&mut sim, "what time is it", 25_000);
    let spoken = sim.spoken().join(" ");
    assert!(spoken.ends_with(&Phrases::default().llm_failed), "{spoken}");
}

#[test]
fn a_model_that_says_nothing_has_failed() {
    let mut sim = sim();
    sim.scripts.push_back(vec![end()]);
    ask(&mut sim, "what time is it", 6_000);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
}

#[test]
fn a_dead_recogniser_asks_the_user_again() {
    let mut sim = sim();
    sim.asr_fails = true;
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(sim.spoken(), [Phrases::default().asr_failed]);
}

#[test]
fn a_slow_recogniser_asks_the_user_again_within_its_time() {
    let mut sim = sim();
    sim.asr_ms = 60_000;
    ask(&mut sim, "what time is it", 4_500);
    assert_eq!(sim.spoken(), [Phrases::default().asr_failed]);
}

#[test]
fn a_recogniser_that_takes_two_seconds_is_waited_for() {
    let mut sim = sim();
    sim.asr_ms = 2_000;
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    ask(&mut sim, "what time is it", 6_000);
    assert_eq!(sim.spoken(), ["It is noon."]);
}

#[test]
fn a_stall_of_the_network_in_a_gap_between_words_ends_no_turn() {
    let mut sim = sim();
    sim.speak("what time is it", 1_000);
    sim.silence(96);
    sim.no_audio(400);
    sim.speak("what time is it in Rome", 500);
    sim.silence(2_000);
    let whole = "what time is it in Rome";
    assert!(sim.saw(|event| matches!(event, Event::UserItem { text, .. } if text == whole)));
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn after_the_voice_fails_the_history_has_only_what_was_spoken() {
    let mut sim = sim();
    sim.tts_fails.insert("This one fails.".into());
    sim.scripts
        .push_back(vec![say("Here we go then. This one fails. And on."), end()]);
    ask(&mut sim, "go", 8_000);
    let spoken = sim.spoken().join(" ");
    assert_eq!(
        spoken,
        format!("Here we go then. {}", Phrases::default().tts_failed)
    );
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    assert!(!format!("{:?}", sim.core.history.messages()).contains("fails"));
}

#[test]
fn an_announcement_waits_for_silence() {
    let mut sim = sim();
    sim.speak("what time is it", 600);
    sim.input(Input::Announce {
        text: "Your timer rings.".into(),
    });
    sim.speak("what time is it", 400);
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.silence(6_000);
    assert_eq!(sim.spoken(), ["It is noon.", "Your timer rings."]);
}

#[test]
fn a_greeting_is_the_first_thing_said() {
    let mut sim = Sim::new(Policy {
        opening: Opening::greeting("Hello there."),
        ..Policy::default()
    });
    sim.silence(2_000);
    assert_eq!(sim.spoken(), ["Hello there."]);
}

/// A session whose client sets it up first.
fn waiting() -> Sim {
    Sim::new(Policy {
        opening: Opening {
            waits_for_client: true,
            ..Opening::greeting("Hello there.")
        },
        ..Policy::default()
    })
}

/// When the first words were to be spoken, and in which voice.
fn first_words(sim: &Sim) -> Option<(Time, Speaker)> {
    let mut outputs = sim.outputs.iter();
    outputs.find_map(|(at, output)| match output {
        Output::Speak { speaker, .. } => Some((*at, speaker.clone())),
        _ => None,
    })
}

/// It began before the client's settings had come, in another voice and format.
#[test]
fn an_opening_waits_for_the_clients_settings_but_not_for_long() {
    let mut sim = waiting();
    let speaker = Speaker {
        voice: Some("anna".into()),
        ..Speaker::default()
    };
    sim.no_audio(400);
    assert_eq!(first_words(&sim), None);
    // Those of the query leave the rest to come.
    sim.input(Input::Configure(Box::default()));
    assert_eq!(first_words(&sim), None);
    sim.input(Input::Configure(Box::new(Settings {
        speaker: Some(speaker.clone()),
        releases_opening: true,
        ..Settings::default()
    })));
    let at = Time(0) + Micros::from_ms(400);
    assert_eq!(first_words(&sim), Some((at, speaker)));
    sim.no_audio(5_000);
    assert_eq!(sim.spoken(), ["Hello there."]);

    let mut sim = waiting();
    sim.no_audio(5_000);
    let at = Time(0) + Micros::from_ms(500);
    assert_eq!(first_words(&sim), Some((at, Speaker::default())));
    assert_eq!(sim.spoken(), ["Hello there."]);
}

/// It was refused.
#[test]
fn a_response_that_is_requested_while_the_opening_waits_or_is_spoken_follows_it() {
    for ms in [100, 700] {
        for place in [ResponsePlace::Conversation, ResponsePlace::Aloud] {
            let mut sim = waiting();
            sim.no_audio(ms);
            sim.input(Input::RespondWith(Box::new(ResponseTerms {
                place,
                ..ResponseTerms::default()
            })));
            sim.no_audio(5_000);
            let expected = ["Hello there.", "All right."];
            assert_eq!(sim.spoken(), expected, "{place:?} after {ms} ms");
            assert_eq!(sim.ended(), [ResponseStatus::Completed; 2]);
            assert_eq!(openings(&sim), [true, false]);
            assert!(!sim.saw(|event| matches!(event, Event::Refused { .. })));
        }
    }
}

/// Whether each response says an opening that has waited.
fn openings(sim: &Sim) -> Vec<bool> {
    let opens = |(_, event): &(Time, Event)| match event {
        Event::ResponseStarted { opens, .. } => Some(*opens),
        _ => None,
    };
    sim.events.iter().filter_map(opens).collect()
}

/// Any response that ended while the opening was due was taken for it, and an answer that was requested during the
/// opening was refused then.
#[test]
fn an_announcement_while_the_opening_waits_is_not_the_opening() {
    let mut sim = waiting();
    sim.input(Input::Announce {
        text: "Ding dong.".into(),
    });
    sim.no_audio(100);
    sim.input(Input::Configure(Box::new(Settings {
        releases_opening: true,
        ..Settings::default()
    })));
    sim.no_audio(900);
    assert_eq!(openings(&sim), [false, true]);
    sim.input(Input::RespondWith(Box::new(ResponseTerms {
        place: ResponsePlace::Aloud,
        ..ResponseTerms::default()
    })));
    sim.no_audio(5_000);
    let expected = ["Ding dong.", "Hello there.", "All right."];
    assert_eq!(sim.spoken(), expected);
}

/// The messages of a prompt for the answer to a question behind the greeting.
fn greeted(question: &str) -> [Message; 2] {
    let greeting = Message::Agent {
        text: "Hello there.".into(),
        interrupted: false,
    };
    let text = question.into();
    [greeting, Message::User { text }]
}

/// The answer was lost, because the opening followed the question; and it was asked for early, in vain.
#[test]
fn who_speaks_while_the_opening_waits_hears_it_before_the_answer() {
    let mut sim = waiting();
    sim.scripts = vec![vec![say("It is noon."), end()]; 3].into();
    ask(&mut sim, "what time is it", 6_000);
    assert_eq!(sim.spoken(), ["Hello there.", "It is noon."]);
    let [prompt] = &sim.prompts[..] else {
        panic!("{:?}", sim.prompts);
    };
    assert_eq!(prompt.messages, greeted("what time is it"));
}

/// The same with a client that asks in writing as soon as it is connected.
#[test]
fn what_is_written_while_the_opening_waits_is_answered_behind_it() {
    for place in [ResponsePlace::Conversation, ResponsePlace::Aloud] {
        let mut sim = waiting();
        sim.no_audio(100);
        typed(&mut sim, "what time is it");
        sim.input(Input::RespondWith(Box::new(ResponseTerms {
            place,
            ..ResponseTerms::default()
        })));
        sim.no_audio(5_000);
        assert_eq!(sim.spoken(), ["Hello there.", "All right."]);
        let prompt = sim.prompts.last().unwrap();
        assert_eq!(prompt.messages, greeted("what time is it"), "{place:?}");
    }
}

#[test]
fn an_opening_that_waits_is_not_said_after_the_goodbye() {
    let mut sim = waiting();
    sim.input(Input::Farewell);
    sim.no_audio(10_000);
    assert_eq!(sim.spoken().join(" "), Phrases::default().goodbye_too_long);
    assert_eq!(sim.hung_up, Some(HangUpReason::Shutdown));
}

/// A caller who said "Hello?" while the agent told of the recording was recorded without having heard of it. A notice
/// that is said with other spaces than it is written with was repeated before every answer.
#[test]
fn a_notice_is_repeated_until_it_was_heard() {
    let plain = "This call is recorded from now on.";
    let dashed = "This call is recorded—by us and by nobody else.";
    let japanese = "この通話は録音されます。ご了承ください。";
    for (notice, wait, times) in [
        (plain, 0, 2),
        (plain, 10_000, 1),
        (dashed, 10_000, 1),
        (japanese, 10_000, 1),
    ] {
        let said = |sim: &Sim| {
            let spoken = bare(&sim.spoken().join(" "));
            spoken.matches(&bare(notice)).count()
        };
        let mut sim = Sim::new(Policy {
            opening: Opening {
                notice: notice.into(),
                ..Opening::greeting("Hello there.")
            },
            ..Policy::default()
        });
        sim.scripts = vec![vec![say("Yes, I am here."), end()]; 3].into();
        sim.silence(300 + wait);
        ask(&mut sim, "hello is anybody there", 8_000);
        assert_eq!(said(&sim), times, "{notice}");
        let spoken = sim.spoken().join(" ");
        assert!(spoken.ends_with("Yes, I am here."), "{spoken}");
        ask(&mut sim, "what time is it", 8_000);
        assert_eq!(said(&sim), times, "{notice}");
    }
}

#[test]
fn an_idle_session_ends() {
    let mut sim = Sim::new(Policy {
        timeouts: Timeouts {
            idle: Micros::from_ms(5_000),
            ..Timeouts::default()
        },
        ..Policy::default()
    });
    sim.silence(12_000);
    assert_eq!(sim.spoken().join(" "), Phrases::default().goodbye_idle);
    assert_eq!(sim.hung_up, Some(HangUpReason::Idle));
}

#[test]
fn a_session_at_its_maximum_length_says_goodbye() {
    let mut sim = Sim::new(Policy {
        timeouts: Timeouts {
            session: Micros::from_ms(5_000),
            ..Timeouts::default()
        },
        ..Policy::default()
    });
    sim.silence(15_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::TooLong));
    assert_eq!(sim.spoken().join(" "), Phrases::default().goodbye_too_long);
}

#[test]
fn nothing_extends_a_session_past_its_maximum_length() {
    let policy = || Policy {
        timeouts: Timeouts {
            session: Micros::from_ms(20_000),
            ..Timeouts::default()
        },
        ..Policy::default()
    };
    let long = "One two three four five six seven eight nine ten eleven twelve.";
    let talk: [fn(&mut Sim); 5] = [
        |sim| sim.speak("la la la", 3_000),
        |sim| {
            // Interrupts every answer, even the goodbye.
            sim.speak("no", 500);
            sim.silence(1_000);
        },
        |sim| {
            sim.input(Input::Key { key: '5' });
            sim.input(Input::Key { key: '#' });
            sim.silence(1_000);
        },
        |sim| {
            sim.input(Input::Respond { instructions: None });
            sim.silence(500);
        },
        |sim| {
            for last in [false, true] {
                let text = "hang on".into();
                sim.input(Input::Said { text, last });
                sim.no_audio(500);
            }
            sim.input(Input::Stopped {
                heard: String::new(),
            });
        },
    ];
    for talk in talk {
        let mut sim = Sim::new(policy());
        sim.scripts = vec![vec![say(long), end()]; 100].into();
        for _ in 0..60 {
            if sim.hung_up.is_none() {
                talk(&mut sim);
            }
        }
        assert_eq!(sim.hung_up, Some(HangUpReason::TooLong));
        let goodbye = Phrases::default().goodbye_too_long;
        assert!(
            sim.spoken().join(" ").ends_with(&goodbye),
            "{:?}",
            sim.spoken()
        );
    }
}

#[test]
fn draining_finishes_the_turn() {
    let mut sim = sim();
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.speak("what time is it", 1_000);
    sim.input(Input::Drain);
    sim.silence(4_000);
    assert_eq!(sim.spoken(), ["It is noon."]);
    assert_eq!(sim.hung_up, Some(HangUpReason::Shutdown));
}

/// A caller who was thinking heard the line go dead when the server shut down.
#[test]
fn a_caller_who_cannot_come_back_hears_a_goodbye_before_the_line_is_closed() {
    for turn in [true, false] {
        let mut sim = sim();
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        if turn {
            sim.speak("what time is it", 1_000);
        }
        sim.input(Input::Farewell);
        sim.silence(8_000);
        let goodbye = Phrases::default().goodbye_too_long;
        let said = match turn {
            true => format!("It is noon. {goodbye}"),
            false => goodbye,
        };
        assert_eq!(sim.spoken().join(" "), said);
        assert_eq!(sim.hung_up, Some(HangUpReason::Shutdown));
    }
}

/// A session whose agent a noise has stopped in the middle of a sentence behind which the model still writes.
fn stopped_by_noise() -> Sim {
    let mut sim = sim();
    let first = "One two three four five six seven eight nine. ";
    let script = vec![say(first), Step::Wait(4_000), say("Ten."), end()];
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("Eleven."), end()]);
    ask(&mut sim, "count", 1_500);
    sim.speak("", 200);
    sim
}

/// The goodbye came between the rest of a clause and the rest of the answer.
#[test]
fn after_noise_the_answer_is_said_to_its_end_before_the_goodbye() {
    let mut sim = stopped_by_noise();
    sim.input(Input::Farewell);
    sim.silence(12_000);
    let goodbye = Phrases::default().goodbye_too_long;
    let spoken = sim.spoken().join(" ");
    assert!(spoken.ends_with(&format!("Eleven. {goodbye}")), "{spoken}");
    assert_eq!(sim.hung_up, Some(HangUpReason::Shutdown));
}

#[test]
fn after_noise_words_come_in_their_order_although_the_server_drains() {
    let mut sim = stopped_by_noise();
    sim.input(Input::Drain);
    sim.silence(12_000);
    let spoken = sim.spoken().join(" ");
    assert!(spoken.ends_with("eight nine. Eleven."), "{spoken}");
    assert_eq!(sim.hung_up, Some(HangUpReason::Shutdown));
}

/// The client had cleared audio in which nothing was said.
#[test]
fn an_answer_goes_on_after_noise_although_the_client_clears_its_audio() {
    let mut sim = stopped_by_noise();
    sim.silence(800);
    sim.input(Input::ClearAudio);
    sim.silence(8_000);
    assert_eq!(sim.spoken().last().unwrap(), "Eleven.");
}

/// It waited for a call of the answer before, however long that took.
#[test]
fn after_noise_an_answer_waits_only_for_its_own_calls() {
    let mut sim = Sim::new(with(vec![(*tool("look_up", Effect::Read)).clone()]));
    sim.tool_ms = 20_000;
    let mut script = call("look_up").to_vec();
    script.push(end());
    sim.scripts.push_back(script);
    let first = "One two three four five six seven eight nine. ";
    let script = vec![say(first), Step::Wait(4_000), say("Ten."), end()];
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("Eleven."), end()]);
    ask(&mut sim, "look it up", 1_000);
    ask(&mut sim, "meanwhile, count", 1_500);
    sim.speak("", 200);
    sim.silence(6_000);
    assert_eq!(sim.spoken().last().unwrap(), "Eleven.");
}

#[test]
fn a_dead_detector_is_told_to_the_client() {
    let mut sim = sim();
    sim.input(Input::Failed {
        job: Job::Detection,
        reason: "dead".into(),
    });
    assert!(sim.saw(|e| matches!(e, Event::StageFailed { stage, .. } if stage == "vad")));
}

#[test]
fn long_speech_is_transcribed_in_pieces() {
    let mut sim = sim();
    sim.speak("la", 60_000);
    sim.silence(1_000);
    let longest = sim.outputs.iter().filter_map(|(_, o)| match o {
        Output::Transcribe { from, to, .. } => Some(to.since(*from)),
        _ => None,
    });
    assert!(longest.max().unwrap() <= Samples::from_ms(26_000).0);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "la la la")));
}

#[test]
fn a_client_may_end_the_turn_itself() {
    let mut sim = sim();
    sim.input(Input::Configure(Box::new(Settings {
        turn_detection: Some(TurnDetection {
            rule: EndOfTurnRule::Client,
            respond: false,
            interrupt: false,
            ..TurnDetection::default()
        }),
        ..Settings::default()
    })));
    sim.speak("what time is it", 1_000);
    sim.silence(2_000);
    assert!(sim.prompts.is_empty());
    sim.input(Input::CommitAudio);
    sim.silence(500);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { .. })));
    assert!(sim.prompts.is_empty());
    sim.input(Input::Respond {
        instructions: Some("Be brief.".into()),
    });
    sim.silence(2_000);
    assert_eq!(sim.prompts[0].instructions.as_deref(), Some("Be brief."));
    sim.input(Input::ClearAudio);
    sim.input(Input::CommitAudio);
    assert!(sim.saw(|e| matches!(e, Event::NothingToCommit { .. })));
}

#[test]
fn a_response_that_is_asked_for_although_nothing_is_new_may_be_empty() {
    let mut sim = sim();
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.scripts.push_back(vec![end()]);
    ask(&mut sim, "what time is it", 2_000);
    sim.input(Input::Respond { instructions: None });
    sim.silence(2_000);
    assert_eq!(sim.prompts.len(), 2, "the model is asked again");
    assert_eq!(sim.spoken(), ["It is noon."]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed; 2]);
    assert!(!sim.saw(|e| matches!(e, Event::StageFailed { .. })));
}

#[test]
fn a_model_that_says_nothing_to_the_user_has_failed() {
    let mut sim = sim();
    sim.scripts.push_back(vec![end()]);
    ask(&mut sim, "what time is it", 4_000);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
}

#[test]
fn a_clients_tool_ends_the_response_and_its_output_begins_the_next() {
    let mut sim = sim();
    sim.client_has(&["weather"]);
    let mut first = vec![say("Let me see.")];
    first.extend(call("weather"));
    first.push(end());
    sim.scripts.push_back(first);
    sim.scripts.push_back(vec![say("It rains."), end()]);
    ask(&mut sim, "what is the weather", 2_000);
    assert!(sim.tools_started.is_empty());
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    let call = sim.events.iter().find_map(|(_, e)| match e {
        Event::ToolCalled {
            call,
            by_client: true,
            ..
        } => Some(*call),
        _ => None,
    });
    let item = NewItem::ToolOutput {
        call: call.unwrap(),
        output: "rain".into(),
    };
    sim.input(item.at_the_end());
    sim.input(Input::Respond { instructions: None });
    sim.silence(2_000);
    assert_eq!(sim.spoken(), ["Let me see.", "It rains."]);
}

#[test]
fn a_history_that_the_client_brings_along_is_in_the_prompt_in_its_order() {
    let mut sim = sim();
    let [user, call_item, output, agent, before] = [1, 2, 3, 4, 5].map(ItemId::of_client);
    let call = CallId::of_client(2);
    let mut add = |id, place, item| {
        let id = Some(id);
        sim.input(Input::AddItem { id, place, item });
    };
    let text = |text: &str| text.to_owned();
    let name = text("get_weather");
    let arguments = serde_json::Map::new();
    let called = NewItem::ToolCall {
        call,
        name,
        arguments,
    };
    let question = NewItem::User {
        text: text("The weather in Rome?"),
    };
    let answer = NewItem::Agent {
        text: text("It is sunny."),
    };
    let sunny = NewItem::ToolOutput {
        call,
        output: "sunny".into(),
    };
    let note = NewItem::System { text: text("Hi.") };
    add(user, Place::Start, question);
    add(agent, Place::After(user), answer);
    add(call_item, Place::After(user), called);
    add(output, Place::After(user), sunny.clone());
    add(before, Place::Start, note);
    add(ItemId::of_client(6), Place::End, sunny);
    assert!(
        sim.saw(|e| matches!(e, Event::Refused { .. })),
        "a second output"
    );
    sim.scripts.push_back(vec![say("Eleven."), end()]);
    ask(&mut sim, "5 plus 6", 2_000);
    let kinds: Vec<&str> = sim.prompts[0].messages.iter().map(kind).collect();
    assert_eq!(kinds, ["system", "user", "call", "result", "agent", "user"]);
}

fn kind(message: &Message) -> &'static str {
    match message {
        Message::System { .. } => "system",
        Message::User { .. } => "user",
        Message::Agent { .. } => "agent",
        Message::ToolCall { .. } => "call",
        Message::ToolResult { .. } => "result",
    }
}

#[test]
fn a_cough_does_not_repeat_a_clients_call() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    sim.client_has(&["weather"]);
    sim.tool_ms = 3_000;
    let script = [call("weather"), call("clock")].concat();
    sim.scripts.push_back([script, vec![end()]].concat());
    ask(&mut sim, "what is the weather", 1_000);
    sim.speak("", 300);
    sim.silence(6_000);
    assert_eq!(sim.prompts.len(), 1, "the client has not asked for more");
}

#[test]
fn the_client_corrects_what_was_heard() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![say("One two three four."), end()]);
    ask(&mut sim, "count", 3_000);
    let item = sim.events.iter().find_map(|(_, e)| match e {
        Event::AgentItemStarted { item } => Some(*item),
        _ => None,
    });
    let item = item.unwrap();
    sim.input(Input::Truncate {
        item,
        heard: Micros::from_ms(9_000),
    });
    let all = "One two three four.";
    assert!(
        sim.saw(|e| matches!(e, Event::ItemTruncated { text, .. } if text == all)),
        "more than all is all"
    );
    sim.input(Input::Truncate {
        item,
        heard: Micros::from_ms(650),
    });
    assert!(sim.saw(|e| matches!(e, Event::ItemTruncated { text, .. } if text == "One two")));
}
