//! Sessions with assumed commits: the answer to a call is generated before the model has made it.

use super::sim::{Script, Sim, Step, call_with, end, read, say, streamed};
use super::speculation::prediction;
use super::*;
use crate::llm::Message;
use crate::prediction::{Prediction, Source};
use crate::recording::Recording;
use crate::tools::Eligibility;
use crate::what_if::what_if;
use serde_json::{Value, json};

const QUESTION: &str = "what is the weather in boulder";

fn early(name: &str) -> Declaration {
    let mut tool = (*tool(name, Effect::Read)).clone();
    tool.speculation.eligibility = Eligibility::Full;
    tool
}

/// The model says a filler for `filler_ms`, then takes `call_ms` for its call.
fn calling(city: &str, filler_ms: u64, call_ms: u64) -> Script {
    let mut script = vec![
        Step::Wait(330),
        say("Checking the forecast for you. "),
        Step::Wait(filler_ms),
    ];
    let [opened, closed] = call_with("weather", json!({"city": city}));
    script.extend([opened, Step::Wait(call_ms), closed, Step::Wait(15), end()]);
    script
}

fn answering() -> Script {
    vec![Step::Wait(330), say("It is sunny."), end()]
}

/// A session in which rules predict the weather for the last word.
fn session(scripts: impl IntoIterator<Item = Script>, tool_ms: u64) -> Sim {
    scripted(Sim::new(policy()), scripts, tool_ms)
}

fn policy() -> Policy {
    with(vec![early("weather"), early("clock")])
}

fn scripted(mut sim: Sim, scripts: impl IntoIterator<Item = Script>, tool_ms: u64) -> Sim {
    sim.router = Box::new(|heard| {
        let city = heard.text.split(' ').next_back().unwrap_or_default();
        let arguments = json!({ "city": city }).as_object().cloned().unwrap();
        let weather = Prediction {
            tool: "weather".into(),
            arguments,
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        };
        if heard.text.contains("weather") {
            vec![weather]
        } else {
            Vec::new()
        }
    });
    sim.tool_ms = tool_ms;
    sim.scripts.extend(scripts);
    sim
}

fn asked(scripts: impl IntoIterator<Item = Script>, tool_ms: u64) -> Sim {
    let mut sim = session(scripts, tool_ms);
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    sim
}

fn held(sim: &Sim) -> Vec<HeldRecord> {
    let records = sim.records().into_iter().flat_map(|record| record.held);
    records.filter(|held| held.tool.is_some()).collect()
}

/// From the commit to the first sound of the answer, ms.
fn after_commit(sim: &Sim) -> u64 {
    let latency = sim.latency();
    latency
        .answer_audio
        .unwrap()
        .since(latency.commit.unwrap())
        .as_ms()
}

#[test]
fn a_result_before_the_first_word_makes_the_filler_unnecessary() {
    let sim = asked([calling("boulder", 100, 150), answering()], 100);
    assert_eq!(sim.spoken(), ["It is sunny."]);
    assert!(after_commit(&sim) <= 100, "{} ms", after_commit(&sim));
    let held = held(&sim);
    assert!(
        held.len() == 1 && held[0].used && held[0].saved >= Micros::from_ms(200),
        "{held:?}"
    );
    assert_eq!(sim.records()[0].fillers_dropped, 1);
    let roles = sim.core.history.messages();
    assert!(matches!(&roles[1], Message::ToolCall { .. }), "{roles:?}");
}

#[test]
fn a_result_after_the_first_word_is_used_behind_the_filler() {
    // The result comes while the model says its filler; the second generation starts when its call opens.
    let sim = asked([calling("boulder", 500, 300), answering()], 1_600);
    assert_eq!(
        sim.spoken(),
        ["Checking the forecast for you.", "It is sunny."]
    );
    let held = held(&sim);
    assert!(held.len() == 1 && held[0].used, "{held:?}");
    let prompt = &sim.prompts[1].messages;
    assert_eq!(prompt[..], sim.core.history.messages()[..prompt.len()]);
}

#[test]
fn a_call_without_a_word_before_it_is_assumed_while_its_arguments_are_streamed() {
    let [opened, closed] = call_with("weather", json!({"city": "boulder"}));
    let first = vec![Step::Wait(450), opened, Step::Wait(900), closed, end()];
    let sim = asked([first, answering()], 900);
    assert_eq!(sim.spoken(), ["It is sunny."]);
    let held = held(&sim);
    assert!(held.len() == 1 && held[0].used, "{held:?}");
    assert!(after_commit(&sim) <= 100, "{} ms", after_commit(&sim));
}

#[test]
fn words_without_a_call_are_said_and_the_assumed_answer_is_not() {
    let no = vec![Step::Wait(330), say("All right, I won't."), end()];
    let sim = asked([no, answering()], 100);
    assert_eq!(sim.spoken(), ["All right, I won't."]);
    let held = held(&sim);
    assert!(
        held.len() == 1 && !held[0].used && held[0].usage.input > 0,
        "{held:?}"
    );
    let first = sim.latency().first_audio.unwrap();
    let asked = sim.latency().generation.unwrap();
    assert!(
        first.since(asked) < Micros::from_ms(600),
        "the words were held back too long"
    );
}

#[test]
fn another_call_is_answered_by_its_own_result() {
    let other = vec![answering(), vec![Step::Wait(100), say("It rains."), end()]];
    let scripts = [calling("denver", 100, 150)].into_iter().chain(other);
    let sim = asked(scripts, 100);
    assert_eq!(
        sim.spoken(),
        ["Checking the forecast for you.", "It rains."]
    );
    assert!(held(&sim).iter().all(|held| !held.used));
}

/// The words that matter come last: "what is the weather" has a result before "in boulder" is said.
#[test]
fn a_result_for_fewer_words_is_not_assumed_while_the_router_reads_the_rest() {
    let mut sim = session([calling("boulder", 100, 150), answering()], 20);
    sim.router_ms = 10;
    sim.speak("what is the weather", 1_000);
    sim.speak(QUESTION, 400);
    sim.silence(6_000);
    assert_eq!(sim.spoken(), ["It is sunny."]);
    let held = held(&sim);
    assert!(held.len() == 1 && held[0].used, "{held:?}");
    let said = serde_json::to_string(&sim.prompts[1].messages).unwrap();
    assert!(said.contains(r#"{"city":"boulder"}"#), "{said}");
}

/// The call that an early answer had begun, to words behind which the user went on, was taken for the likeliest one, and
/// for the one that the model was still making.
#[test]
fn a_call_of_an_early_answer_is_not_expected_of_the_answer_to_more_words() {
    let [opened, closed] = call_with("weather", json!({"city": "boulder"}));
    let arguments = read(json!({"city": "boulder"}), true);
    let early = vec![opened, arguments, Step::Wait(5_000), closed, end()];
    let mut sim = session([early, calling("denver", 100, 150), answering()], 20);
    sim.router = Box::new(|heard| {
        let known = heard.text.ends_with("denver");
        let denver = known.then(|| prediction("weather", json!({"city": "denver"}), 0.9));
        denver.into_iter().collect()
    });
    sim.completeness = 0.5;
    sim.asr_ms = 40;
    sim.speak(QUESTION, 1_500);
    for _ in 0..10 {
        if sim.prompts.is_empty() {
            sim.silence(32);
        }
    }
    assert_eq!(sim.prompts.len(), 1, "the early answer is being made");
    sim.speak("what is the weather in boulder or rather in denver", 1_000);
    sim.silence(6_000);
    assert_eq!(sim.spoken(), ["It is sunny."]);
    let held = held(&sim);
    assert!(held.len() == 1 && held[0].used, "{held:?}");
    let said = serde_json::to_string(&sim.prompts[2].messages).unwrap();
    assert!(said.contains(r#"{"city":"denver"}"#), "{said}");
}

/// A model that calls at once: its call is complete before the turn is over.
#[test]
fn the_answer_to_a_call_that_is_held_back_is_prepared_before_the_turn_is_over() {
    let [opened, closed] = call_with("weather", json!({"city": "boulder"}));
    let prompt = vec![opened, closed, end()];
    let quick = vec![say("It is sunny."), end()];
    let mut sim = session([prompt, quick], 1);
    sim.router = Box::new(|_| Vec::new());
    sim.completeness = 0.5;
    sim.speak(QUESTION, 1_500);
    sim.silence(6_000);
    assert_eq!(sim.spoken(), ["It is sunny."]);
    let held = held(&sim);
    assert!(held.len() == 1 && held[0].used, "{held:?}");
    let over = sim.latency().end_of_turn.unwrap();
    assert!(held[0].began < over, "{held:?}, {over:?}");
}

/// Without a prediction, and before the end of the call.
#[test]
fn a_result_of_a_run_that_the_stream_started_is_answered_before_the_commit() {
    let mut first = vec![Step::Wait(330), say("Let me see. "), Step::Wait(500)];
    first.extend(streamed("clock", json!({}), 50, 400));
    first.push(end());
    let mut sim = session([first, answering()], 20);
    ask(&mut sim, "how late are we", 12_000);
    assert_eq!(sim.spoken(), ["Let me see.", "It is sunny."]);
    let held = held(&sim);
    assert!(held.len() == 1 && held[0].used, "{held:?}");
    let run = &sim.records()[0].runs[0];
    assert_eq!(run.source, Some(Source::Stream));
}

/// The run of an open call kept the confidence of the guess that had begun it, whether its result came before the
/// arguments or after them.
#[test]
fn a_guess_that_the_stream_confirms_is_worth_its_tokens() {
    let opened = |token_price, tool_ms, is_read| {
        let mut policy = policy();
        policy.speculation.token_price = token_price;
        let mut call = streamed("weather", json!({"city": "boulder"}), 50, 400);
        call.retain(|step| is_read || !matches!(step, Step::Event(LlmEvent::ToolRead { .. })));
        let mut first = vec![Step::Wait(330), say("Let me see. "), Step::Wait(500)];
        first.extend(call);
        first.push(end());
        let mut sim = scripted(Sim::new(policy), [first, answering()], tool_ms);
        sim.router = Box::new(|_| vec![prediction("weather", json!({"city": "boulder"}), 0.45)]);
        ask(&mut sim, QUESTION, 12_000);
        sim
    };
    let before_commit = |sim: &Sim| {
        let assumed = held(sim).into_iter();
        let assumed = assumed.filter(|held| held.before == Before::Commit);
        assumed.map(|held| held.used).collect::<Vec<bool>>()
    };
    let free = opened(0.0, 20, true);
    assert_eq!(free.records()[0].runs[0].confidence, 0.45);
    // Too much for the guess, and not for a call whose arguments are read.
    let price = 5_000.0 / free.prompts[1].estimate() as f64;
    let guessed = before_commit(&opened(price, 20, false));
    assert!(guessed.is_empty(), "{guessed:?}");
    for tool_ms in [20, 100] {
        let confirmed = before_commit(&opened(price, tool_ms, true));
        assert_eq!(confirmed, [true], "{tool_ms} ms");
    }
}

/// The call was predicted for Boulder; when the stream says Denver, the answer about Boulder is dropped before
/// the call is complete.
#[test]
fn an_assumed_answer_is_dropped_when_the_stream_shows_another_call() {
    let mut first = vec![Step::Wait(330), say("Checking the forecast for you. ")];
    first.extend(streamed("weather", json!({"city": "denver"}), 200, 1_000));
    first.push(end());
    let rains = vec![Step::Wait(100), say("It rains."), end()];
    let sim = asked([first, answering(), rains.clone(), rains], 100);
    let held = held(&sim);
    let wrong = held.first().expect("an assumed commit");
    assert!(!wrong.used);
    let commit = sim.latency().commit.unwrap();
    assert!(
        commit.since(wrong.ended) >= Micros::from_ms(900),
        "{held:?}"
    );
    let runs = &sim.records()[0].runs;
    assert!(runs.iter().any(|run| run.arguments["city"] == "denver"
        && run.source == Some(Source::Stream)
        && run.saved > Micros(0)));
}

#[test]
fn a_part_of_the_answer_before_the_call_is_said() {
    let mut first = calling("boulder", 100, 100);
    first[1] = say("It is noon. ");
    let sim = asked([first, answering(), answering()], 100);
    assert_eq!(sim.spoken(), ["It is noon.", "It is sunny."]);
}

/// It answered the user's question, and was left unsaid because the result was there.
#[test]
fn a_yes_before_a_call_is_said_and_a_yes_that_announces_it_is_not() {
    let spoken = |words: &str| {
        let mut first = calling("boulder", 100, 100);
        first[1] = say(words);
        asked([first, answering(), answering()], 100).spoken()
    };
    assert_eq!(spoken("Yes. "), ["Yes.", "It is sunny."]);
    assert_eq!(spoken("Yes, one moment. "), ["It is sunny."]);
}

#[test]
fn a_second_call_in_the_same_breath_is_not_lost() {
    let mut both = calling("boulder", 50, 50);
    both.truncate(both.len() - 1);
    both.extend(call_with("clock", json!({})));
    both.push(end());
    let sim = asked(
        [both, answering(), vec![say("Sunny, at noon."), end()]],
        100,
    );
    assert_eq!(sim.spoken(), ["Sunny, at noon."]);
    let calls = |message: &Message| matches!(message, Message::ToolCall { .. });
    let history = sim.core.history.messages();
    assert_eq!(history.iter().filter(|m| calls(m)).count(), 2);
}

/// The second generation was held back, is over when it is taken over, and its own call has a result by then.
#[test]
fn a_held_back_answer_with_a_call_of_its_own_is_followed_by_the_answer_to_that() {
    let call = |name, wait| {
        let [opened, closed] = call_with(name, json!({"city": "boulder"}));
        vec![opened, closed, Step::Wait(wait), end()]
    };
    let mut sim = session(
        [
            call("weather", 200),
            call("clock", 0),
            vec![say("Done."), end()],
        ],
        0,
    );
    sim.router = Box::new(|_| {
        let arguments = json!({"city": "boulder"}).as_object().cloned().unwrap();
        let predict = |tool: &str| Prediction {
            tool: tool.into(),
            arguments: arguments.clone(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        };
        vec![predict("clock")]
    });
    sim.speak(QUESTION, 1_500);
    sim.silence(5_000);
    assert_eq!(sim.spoken(), ["Done."]);
}

#[test]
fn words_are_held_back_for_a_limited_time() {
    let sim = asked(
        [calling("boulder", 2_000, 100), answering(), answering()],
        100,
    );
    assert_eq!(
        sim.spoken(),
        ["Checking the forecast for you.", "It is sunny."]
    );
    let (first, generation) = (
        sim.latency().first_audio.unwrap(),
        sim.latency().generation.unwrap(),
    );
    assert!(first.since(generation) < Micros::from_ms(1_000));
    assert_eq!(sim.records()[0].fillers_dropped, 0);
}

/// Such words waited for a call that never came until they were followed by more, or for 400 ms.
#[test]
fn words_that_are_no_filler_are_not_held_back() {
    let waits = |words: &str| {
        let answers = vec![
            Step::Wait(330),
            say(words),
            Step::Wait(300),
            say("Is that all?"),
            end(),
        ];
        let sim = asked([answers, answering()], 100);
        assert_eq!(held(&sim).len(), 1, "the call was assumed");
        assert_eq!(sim.spoken(), [words.trim(), "Is that all?"]);
        let latency = sim.latency();
        let asked = latency.generation.unwrap();
        latency.first_audio.unwrap().since(asked)
    };
    let (answer, filler) = (waits("It is sunny. "), waits("Let me see. "));
    assert!(
        filler >= answer + Micros::from_ms(200),
        "{answer:?}, {filler:?}"
    );
}

/// The model breaks off within a call about this city, after `before`.
fn broken(before: &[Step], city: &str) -> Script {
    let [opened, _] = call_with("weather", json!({ "city": city }));
    let arguments = read(json!({ "city": city }), true);
    let mut script = before.to_vec();
    script.extend([opened, arguments, Step::Wait(50), Step::Break]);
    script
}

/// Whether the agent said these words and then apologised.
fn says_and_apologises(sim: &Sim, words: &str) -> bool {
    sim.spoken().join(" ") == format!("{words} {}", Phrases::default().llm_failed)
}

#[test]
fn words_held_back_are_said_before_the_apology_for_a_break_within_words() {
    let breaks = vec![
        Step::Wait(330),
        say("It is noon. It was "),
        Step::Wait(50),
        Step::Break,
    ];
    let sim = asked([breaks, answering()], 100);
    assert_eq!(held(&sim).len(), 1, "the call was assumed");
    // The clause that the break has cut says something else than its sentence would have: it is not spoken.
    let words = "It is noon.";
    assert!(says_and_apologises(&sim, words), "{:?}", sim.spoken());
}

#[test]
fn a_filler_held_back_for_an_assumed_call_is_not_said_before_the_apology() {
    let words = [Step::Wait(330), say("Checking the forecast for you. ")];
    let mut within_words = words.to_vec();
    within_words.extend([Step::Wait(50), Step::Break]);
    let sim = asked([within_words, answering()], 100);
    assert_eq!(held(&sim).len(), 1, "the call was assumed");
    assert_eq!(sim.spoken().join(" "), Phrases::default().llm_failed);
    // The second call that breaks off: the model is not asked again.
    let scripts = [broken(&[], "boulder"), broken(&words, "boulder")];
    let mut sim = session(scripts, 100);
    sim.by_prompt = true;
    sim.policy().speculation.assumed_per_turn = 4;
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    assert!(held(&sim).len() > 1, "the second call was assumed too");
    assert_eq!(sim.spoken().join(" "), Phrases::default().llm_failed);
    let history = format!("{:?}", sim.core.history.messages());
    assert!(!history.contains("Checking"), "{history}");
}

#[test]
fn words_held_back_for_a_call_that_breaks_off_come_once_and_before_it() {
    let words = [Step::Wait(330), say("Checking the forecast for you. ")];
    let again = calling("boulder", 20, 50);
    let mut sim = session([broken(&words, "boulder"), again, answering()], 100);
    sim.by_prompt = true;
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    assert!(!held(&sim).is_empty(), "the call was assumed");
    assert_eq!(
        sim.spoken(),
        ["Checking the forecast for you.", "It is sunny."]
    );
    let history = sim.core.history.messages();
    let [_, words, broken, refused, ..] = &history[..] else {
        panic!("{history:?}");
    };
    assert!(matches!(words, Message::Agent { .. }), "{history:?}");
    assert!(matches!(broken, Message::ToolCall { .. }), "{history:?}");
    assert!(matches!(refused, Message::ToolResult { .. }), "{history:?}");
}

#[test]
fn words_held_back_are_not_said_once_the_client_has_cancelled() {
    let mut sim = session([calling("boulder", 300, 300), answering()], 100);
    sim.speak(QUESTION, 1_500);
    let holds = |sim: &Sim| {
        let generation = sim.core.answer.as_ref().and_then(|a| a.generation.as_ref());
        generation.is_some_and(|g| g.withholds_for_call() && g.usage().output > 0)
    };
    for _ in 0..100 {
        if !holds(&sim) {
            sim.silence(32);
        }
    }
    assert!(holds(&sim), "words are held back");
    sim.input(Input::CancelResponse);
    sim.silence(6_000);
    assert_eq!(sim.spoken(), Vec::<String>::new());
    assert_eq!(sim.ended(), [ResponseStatus::Cancelled]);
}

#[test]
fn a_model_that_talks_on_behind_its_call_delays_nothing() {
    let talk = |words: usize| {
        let mut script = calling("boulder", 100, 100);
        script.truncate(script.len() - 1);
        for _ in 0..words {
            script.extend([say("and on "), Step::Wait(15)]);
        }
        script.push(end());
        script
    };
    let brief = after_commit(&asked([talk(0), answering()], 1_600));
    let long = after_commit(&asked([talk(200), answering()], 1_600));
    assert!(long <= brief + 20, "{brief} and {long} ms");
}

#[test]
fn the_history_has_the_call_that_the_assumed_answer_saw() {
    let mut sim = session([calling("Boulder", 100, 100), answering()], 100);
    let mut weather = early("weather");
    weather.equivalence = [("city".to_owned(), vec![crate::tools::Equivalence::Case])].into();
    sim.policy().tools = Arc::new(vec![Arc::new(weather)]);
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    assert!(held(&sim)[0].used);
    let history = sim.core.history.messages();
    let call = history.iter().find_map(|message| match message {
        Message::ToolCall { arguments, .. } => arguments.get("city").cloned(),
        _ => None,
    });
    assert_eq!(call, Some(Value::from("boulder")));
}

#[test]
fn nothing_is_assumed_where_the_operator_forbids_it() {
    let mut sim = session([calling("boulder", 100, 100), answering()], 100);
    let mut weather = early("weather");
    weather.speculation.assume = false;
    sim.policy().tools = Arc::new(vec![Arc::new(weather)]);
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    assert_eq!(sim.spoken().len(), 2);
    let mut sim = session([calling("boulder", 100, 100), answering()], 100);
    sim.policy().speculation.assumed_per_turn = 0;
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    assert_eq!(sim.spoken().len(), 2);
}

/// It counted as one that had not made the call, so that nothing was assumed after some failures.
#[test]
fn a_model_that_fails_before_its_call_says_nothing_of_how_often_the_tool_is_called() {
    let broken = vec![Step::Wait(600), Step::Break];
    let mut sim = asked([broken, answering()], 100);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    assert_eq!(held(&sim).len(), 1);
    let lessons = sim.core.take_lessons();
    let counts = |lesson: &Lesson| matches!(lesson, Lesson::Assumed { .. });
    assert!(!lessons.iter().any(counts), "{lessons:?}");
}

#[test]
fn a_barge_in_discards_the_assumed_answer() {
    let mut sim = session([calling("boulder", 300, 300), answering()], 100);
    sim.speak(QUESTION, 1_500);
    sim.silence(500);
    sim.speak("stop", 700);
    sim.silence(5_000);
    assert!(held(&sim).iter().all(|held| !held.used));
    assert!(!sim.spoken().contains(&"It is sunny.".to_owned()));
}

/// A filler begins soon after the model's own, and an answer is never late because of one.
#[test]
fn a_wait_behind_a_filler_is_filled_without_delaying_the_answer() {
    for tool_ms in (0..4_000).step_by(100) {
        let mut policy = with(vec![early("weather")]);
        policy.speculation.enabled = false;
        let mut sim = Sim::new(policy);
        sim.tool_ms = tool_ms;
        sim.scripts
            .extend([calling("boulder", 100, 150), answering()]);
        sim.speak(QUESTION, 1_500);
        sim.silence(15_000);
        let latency = sim.latency();
        let ended = latency.tool_result.unwrap();
        let answer = latency.answer_audio.unwrap().since(ended).as_ms();
        let filler = 5 * 300;
        let after_filler = (latency.first_audio.unwrap() + Micros::from_ms(filler)).since(ended);
        assert!(
            answer <= (350 + 400).max(after_filler.as_ms()),
            "{answer} ms after the result of {tool_ms} ms"
        );
    }
}

/// The saving in the records is the difference to the same session without.
#[test]
fn what_is_saved_is_what_the_user_hears_sooner() {
    let run = |assumed, preemptive, filler_ms, tool_ms| {
        let scripts = [calling("boulder", filler_ms, 300)];
        let answers = std::iter::repeat_with(answering).take(4);
        let mut sim = session(scripts.into_iter().chain(answers), tool_ms);
        sim.by_prompt = true;
        sim.policy().speculation.assumed_per_turn = assumed;
        sim.policy().speculation.preemptive = preemptive;
        sim.speak(QUESTION, 1_500);
        sim.silence(12_000);
        sim
    };
    // Audio is sent up to 200 ms before it is heard.
    let answer = |sim: &Sim| {
        let latency = sim.latency();
        let ahead = if latency.dead_air == Some(Micros(0)) {
            200
        } else {
            0
        };
        latency.answer_audio.unwrap().as_ms() as i64 + ahead
    };
    let first = |sim: &Sim| sim.latency().first_audio.unwrap().as_ms() as i64;
    let saved = |sim: &Sim, before| -> i64 {
        let records = sim.records().into_iter().flat_map(|record| record.held);
        let of = records.filter(|held| held.before == before);
        of.map(|held| held.saved.as_ms() as i64 - held.delayed.as_ms() as i64)
            .sum()
    };
    // A filler that is not said has an estimated length. The simulated voice takes 300 ms a word.
    let longer = spoken_length("Checking the forecast for you.").as_ms() as i64 - 5 * 300;
    let mut most = 0;
    for filler_ms in [100, 500, 1_500, 2_500] {
        for tool_ms in [100, 700, 1_300, 1_600, 2_200] {
            let with = run(1, true, filler_ms, tool_ms);
            let without = run(0, true, filler_ms, tool_ms);
            let unsaid = with.records()[0].fillers_dropped > 0;
            let counted = saved(&with, Before::Commit) - if unsaid { longer } else { 0 };
            let heard = answer(&without) - answer(&with);
            let case = format!("{filler_ms} and {tool_ms} ms: {counted} counted, {heard} heard");
            // A second filler that it makes unnecessary is not counted.
            assert!(counted <= heard && heard <= counted + 700, "{case}");
            most = most.max(counted);
            let without = run(1, false, filler_ms, tool_ms);
            let heard = first(&without) - first(&with);
            assert_eq!(saved(&with, Before::EndOfTurn), heard, "{case}");
        }
    }
    assert!(most > 1_000, "{most} ms");
}

#[test]
fn a_recording_tells_what_other_settings_would_have_done() {
    let scripts = [calling("boulder", 100, 150), answering()];
    let sim = Sim::recorded(policy(), "what-if".into());
    let mut sim = scripted(sim, scripts, 100);
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    let recording = Recording::read(sim.recording().as_bytes()).unwrap();
    let under = |change: fn(&mut Policy)| {
        let mut policy = policy();
        change(&mut policy);
        let found = what_if(&recording, policy, None).unwrap();
        assert_eq!(found.turns.len(), 1, "{:?}", found.turns);
        assert_eq!((found.unknown.runs, found.unknown.generations), (0, 0));
        let changed = found.turns[0].changed.unwrap();
        (found.turns[0].recorded.unwrap(), changed, found.changed)
    };
    let (was, same, _) = under(|_| {});
    let moved = |a: Option<u64>, b: Option<u64>| a.unwrap() as i64 - b.unwrap() as i64;
    assert_eq!(same, was);
    assert_eq!(was.fillers_dropped, 1);
    let (_, without, stats) = under(|policy| policy.speculation.assumed_per_turn = 0);
    let later = moved(without.answer_audio_ms, was.answer_audio_ms);
    assert!(later >= 800, "{later} ms");
    assert_eq!((without.fillers_dropped, stats.assumed.begun), (0, 0));
    let (_, without, stats) = under(|policy| policy.speculation.preemptive = false);
    let later = moved(without.answer_audio_ms, was.answer_audio_ms);
    assert!((20..300).contains(&later), "{later} ms");
    assert_eq!(stats.preemptive.begun, 0);
}

/// A tool whose results are never committed is tried only now and then, over many conversations.
#[test]
fn a_conversation_begins_with_the_experience_of_earlier_ones() {
    let mut known = Experience::default();
    let mut tries = 0;
    for _ in 0..60 {
        let sim = Sim::experienced(policy(), known.clone());
        let no = vec![Step::Wait(330), say("All right, I won't."), end()];
        let mut sim = scripted(sim, [no, answering()], 100);
        sim.speak(QUESTION, 1_500);
        sim.silence(5_000);
        tries += held(&sim).len();
        let lessons = sim.core.take_lessons();
        assert!(!lessons.is_empty() && sim.core.take_lessons().is_empty());
        lessons.into_iter().for_each(|lesson| known.learn(lesson));
    }
    assert!((4..15).contains(&tries), "{tries} of 60");
    assert_eq!(known.latency("weather", 0.5), Some(Micros::from_ms(100)));
}

#[test]
fn without_a_budget_for_tokens_nothing_is_asked_early() {
    let mut sim = session([calling("boulder", 100, 150), answering()], 100);
    sim.input(Input::TokenBudget { spent: true });
    sim.speak(QUESTION, 1_500);
    sim.silence(12_000);
    let asked = sim.records().into_iter().flat_map(|record| record.held);
    let early: Vec<_> = asked
        .filter(|held| held.before != Before::EndOfStream)
        .collect();
    assert_eq!(early, []);
    assert_eq!(sim.spoken().last().unwrap(), "It is sunny.");
}
