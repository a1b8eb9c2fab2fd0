//! Sessions with speculation: which tools run early, how much time that saves, and that it does no harm.

use super::sim::{Script, Sim, Step, call_with, end, read, say, streamed};
use super::*;
use crate::prediction::{Prediction, Source};
use crate::tools::{Eligibility, EndsCall};
use serde_json::{Value, json};

/// A read-only tool that may run early.
pub(super) fn early(name: &str) -> Declaration {
    let mut tool = (*tool(name, Effect::Read)).clone();
    tool.speculation.eligibility = Eligibility::Full;
    tool
}

fn off(mut policy: Policy) -> Policy {
    policy.speculation.enabled = false;
    policy
}

pub(super) fn prediction(tool: &str, arguments: Value, confidence: f32) -> Prediction {
    Prediction {
        tool: tool.into(),
        arguments: arguments.as_object().cloned().unwrap(),
        confidence,
        source: Source::Rule,
        open: Vec::new(),
    }
}

/// The router hears "weather" and the last word is the city.
fn weather_router(sim: &mut Sim) {
    sim.router = Box::new(|heard| {
        let city = heard.text.split(' ').next_back().unwrap_or_default();
        let known = heard.text.contains("weather");
        known
            .then(|| prediction("weather", json!({"city": city}), 0.9))
            .into_iter()
            .collect()
    });
}

fn weather_answer(city: &str) -> [Script; 2] {
    let mut first = vec![Step::Wait(300), say("Checking the forecast for you.")];
    first.extend(call_with("weather", json!({"city": city})));
    first.push(end());
    [first, vec![Step::Wait(100), say("It is sunny."), end()]]
}

fn asked_for_weather(policy: Policy, tool_ms: u64) -> Sim {
    let mut sim = Sim::new(policy);
    weather_router(&mut sim);
    sim.tool_ms = tool_ms;
    sim.scripts.extend(weather_answer("boulder"));
    sim.speak("what is the weather in boulder", 1_500);
    sim.silence(12_000);
    sim
}

#[test]
fn a_change_that_any_source_predicts_is_refused_by_the_gate() {
    let effects = [Effect::Keyed, Effect::Reversible, Effect::Irreversible];
    let sources = [
        Source::Rule,
        Source::Intent,
        Source::Example,
        Source::Transition,
        Source::Draft,
        Source::Stream,
    ];
    let cases = effects
        .into_iter()
        .flat_map(|effect| sources.map(|source| (effect, source)));
    for (effect, source) in cases {
        let mut book = (*tool("book", effect)).clone();
        book.speculation.eligibility = Eligibility::Full;
        book.speculation.min_confidence = 0.0;
        let mut sim = Sim::new(with(vec![early("weather"), book]));
        sim.router = Box::new(move |_| {
            vec![Prediction {
                source,
                open: Vec::new(),
                ..prediction("book", json!({"city": "boulder"}), 1.0)
            }]
        });
        sim.scripts.push_back(vec![say("Nothing to do."), end()]);
        sim.speak("what is the weather in boulder", 1_500);
        sim.silence(6_000);
        let record = &sim.records()[0];
        assert!(
            record.runs.is_empty(),
            "{effect:?} by {source:?}: {:?}",
            record.runs
        );
        let decided = record.predictions.iter().map(|one| one.decision.name());
        let expected = match effect {
            Effect::Keyed => "warmed_up",
            _ => "forbidden",
        };
        assert!(!record.predictions.is_empty() && decided.into_iter().all(|name| name == expected));
    }
}

#[test]
fn the_answer_follows_the_filler_without_dead_air() {
    let policy = with(vec![early("weather")]);
    let fast = asked_for_weather(policy.clone(), 1_500);
    let slow = asked_for_weather(off(policy), 1_500);
    assert_eq!(fast.spoken(), slow.spoken());
    assert_eq!(fast.core.history.messages(), slow.core.history.messages());
    assert_eq!(fast.started(), [(false, "weather".to_owned())]);
    assert_eq!(slow.started(), [(true, "weather".to_owned())]);
    let answered = |sim: &Sim| {
        let latency = sim.latency();
        latency
            .answer_audio
            .unwrap()
            .since(latency.speech_end.unwrap())
    };
    assert_eq!(fast.latency().dead_air, Some(Micros(0)));
    assert!(answered(&fast) < answered(&slow));
    let runs = &fast.records()[0].runs;
    assert_eq!(runs.len(), 1);
    assert!(matches!(runs[0].fate, Fate::Committed { .. }));
    assert!(runs[0].saved > Micros::from_ms(800), "{:?}", runs[0].saved);
}

#[test]
fn with_speculation_off_the_wait_is_there() {
    let slow = asked_for_weather(off(with(vec![early("weather")])), 2_000);
    let latency = slow.latency();
    let waited = latency.answer_audio.unwrap().since(latency.commit.unwrap());
    assert!(waited > Micros::from_ms(2_000));
    assert_eq!(
        slow.records()[0].fillers,
        1,
        "all that covers it is a second filler"
    );
}

#[test]
fn a_negated_question_leaves_no_trace() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.tool_ms = 300;
    sim.scripts
        .push_back(vec![say("All right, I won't."), end()]);
    ask(&mut sim, "i do not want to check the weather", 5_000);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    let seen = |event: &Event| !matches!(event, Event::Speculation(_) | Event::TurnRecorded(_));
    let told: Vec<_> = sim.events.iter().filter(|(_, e)| seen(e)).collect();
    assert!(!format!("{told:?}").contains("weather of"));
    assert!(
        !told
            .iter()
            .any(|(_, e)| matches!(e, Event::ToolCalled { .. }))
    );
    assert_eq!(sim.core.history.messages().len(), 2);
    let record = &sim.records()[0];
    assert!(matches!(
        record.runs[0].fate,
        Fate::Discarded {
            reason: Discard::TurnEnded,
            ..
        }
    ));
    assert!(record.runs[0].wasted >= Micros::from_ms(300));
}

#[test]
fn two_identical_calls_in_one_turn_do_not_share_a_result() {
    let twice = |tool: Declaration| {
        let mut sim = Sim::new(with(vec![tool]));
        weather_router(&mut sim);
        let mut script = call_with("weather", json!({"city": "boulder"})).to_vec();
        script.extend(call_with("weather", json!({"city": "boulder"})));
        script.push(end());
        sim.scripts.push_back(script);
        ask(&mut sim, "weather in boulder", 5_000);
        sim
    };
    let sim = twice(early("weather"));
    let runs = sim.started();
    assert_eq!(runs.iter().filter(|(committed, _)| !committed).count(), 1);
    assert_eq!(runs.len(), 2);
    let mut shareable = early("weather");
    shareable.speculation.shareable = true;
    let sim = twice(shareable);
    assert_eq!(sim.started().len(), 1);
    let results = sim.core.history.messages().into_iter();
    let results = results.filter(|m| matches!(m, Message::ToolResult { .. }));
    assert_eq!(results.count(), 2);
}

/// Two identical calls, of which the second one's run ends first.
#[test]
fn results_are_joined_on_the_id_of_their_call_and_not_on_its_name_and_arguments() {
    let mut sim = Sim::new(off(with(vec![early("weather")])));
    sim.tool_ms = 60_000;
    let twice = [(); 2].map(|()| call_with("weather", json!({"city": "boulder"})));
    sim.scripts
        .push_back(twice.into_iter().flatten().chain([end()]).collect());
    ask(&mut sim, "weather in boulder", 2_000);
    let runs = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::StartTool { run, committed, .. } => Some((*run, committed.expect("a commit"))),
        _ => None,
    });
    let runs: Vec<(RunId, CallId)> = runs.collect();
    assert_eq!(runs.len(), 2);
    for (run, call) in runs.iter().rev() {
        let result = Ok(json!(format!("the result of {call}")));
        sim.input(Input::ToolFinished { run: *run, result });
    }
    sim.silence(3_000);
    let results = sim.core.history.messages().into_iter();
    let results = results.filter_map(|message| match message {
        Message::ToolResult { id, output, .. } => Some((id, output)),
        _ => None,
    });
    let expected = runs
        .iter()
        .map(|(_, call)| (call.to_string(), json!(format!("the result of {call}"))));
    assert!(results.eq(expected));
}

/// A read, and `add`, which writes the same data.
fn notes() -> Vec<Declaration> {
    let mut read = early("read");
    read.reads = vec!["notes".into()];
    read.speculation.shareable = true;
    let mut add = (*tool("add", Effect::Reversible)).clone();
    add.writes = vec!["notes".into()];
    add.speculation.eligibility = Eligibility::Full;
    vec![read, add]
}

#[test]
fn a_write_between_a_read_s_start_and_its_commit_makes_it_stale() {
    let mut sim = Sim::new(with(notes()));
    sim.router = Box::new(|_| vec![prediction("read", json!({}), 0.9)]);
    sim.tool_ms = 200;
    let mut script = call_with("add", json!({"text": "milk"})).to_vec();
    script.extend(call_with("read", json!({})));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "add milk and read my notes", 5_000);
    let started = sim.started();
    assert_eq!(
        started,
        [
            (false, "read".to_owned()),
            (true, "add".to_owned()),
            (true, "read".to_owned())
        ]
    );
    let at = |nth: usize| {
        let starts = sim
            .outputs
            .iter()
            .filter(|(_, o)| matches!(o, Output::StartTool { .. }));
        starts.map(|(at, _)| *at).nth(nth).unwrap()
    };
    assert!(
        at(2).since(at(1)) >= Micros::from_ms(200),
        "it waits for the write"
    );
    let stale = |run: &RunRecord| {
        matches!(
            run.fate,
            Fate::Discarded {
                reason: Discard::Stale,
                ..
            }
        )
    };
    assert_eq!(sim.records()[0].runs.iter().filter(|r| stale(r)).count(), 1);
}

#[test]
fn a_shared_result_is_not_shared_past_a_write() {
    let mut sim = Sim::new(with(notes()));
    let mut script = call_with("read", json!({})).to_vec();
    script.extend(call_with("add", json!({"text": "milk"})));
    script.extend(call_with("read", json!({})));
    script.push(end());
    // Without this, the first script would go to a preemptive answer that is discarded.
    sim.policy().speculation.preemptive = false;
    sim.scripts.push_back(script);
    ask(&mut sim, "go", 5_000);
    assert_eq!(sim.started().len(), 3);
}

#[test]
fn a_run_that_fails_after_its_commit_fails_like_any_other() {
    let run = |policy: Policy| {
        let mut sim = Sim::new(policy);
        sim.router = Box::new(|_| vec![prediction("broken", json!({}), 0.9)]);
        sim.tool_ms = 3_000;
        let mut script = vec![say("One moment.")];
        script.extend(call_with("broken", json!({})));
        script.push(end());
        sim.scripts.push_back(script);
        ask(&mut sim, "try it", 8_000);
        sim
    };
    let policy = with(vec![early("broken")]);
    let (fast, slow) = (run(policy.clone()), run(off(policy)));
    assert_eq!(fast.started(), [(false, "broken".to_owned())]);
    assert_eq!(fast.core.history.messages(), slow.core.history.messages());
    let record = &fast.records()[0].runs[0];
    assert!(matches!(record.fate, Fate::Committed { .. }) && !record.ok);
}

#[test]
fn a_tool_that_failed_before_its_commit_is_run_again() {
    let mut sim = Sim::new(with(vec![early("broken")]));
    sim.router = Box::new(|_| vec![prediction("broken", json!({}), 0.9)]);
    let mut script = vec![Step::Wait(500)];
    script.extend(call_with("broken", json!({})));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "try it", 5_000);
    assert_eq!(
        sim.started(),
        [(false, "broken".to_owned()), (true, "broken".to_owned())]
    );
    let runs = &sim.records()[0].runs;
    assert!(matches!(
        runs[0].fate,
        Fate::Discarded {
            reason: Discard::Failed,
            ..
        }
    ));
}

#[test]
fn results_of_a_tool_that_ignores_cancellation_are_dropped() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.tool_ms = 2_000;
    sim.marked = true;
    sim.scripts.push_back(vec![say("Hello."), end()]);
    ask(&mut sim, "the weather is fine", 6_000);
    let aborted = sim
        .outputs
        .iter()
        .any(|(_, o)| matches!(o, Output::AbortTool { .. }));
    assert!(aborted);
    assert!(!format!("{:?}", sim.events).contains("result of"));
    assert!(!format!("{:?}", sim.core.history.messages()).contains("result of"));
    assert_eq!(sim.records()[0].runs.len(), 1);
}

#[test]
fn a_result_that_arrives_after_barge_in_joins_the_history_if_it_was_committed() {
    let mut sim = Sim::new(with(vec![early("weather"), early("other")]));
    sim.router = Box::new(|heard| {
        let both = heard.text.contains("weather");
        let names = both.then_some(["weather", "other"]).into_iter().flatten();
        names.map(|name| prediction(name, json!({}), 0.9)).collect()
    });
    sim.marked = true;
    sim.tool_ms = 4_000;
    let mut script = vec![say("Let me see what there is to see.")];
    script.extend(call_with("weather", json!({})));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "the weather", 1_500);
    sim.speak("stop", 700);
    sim.silence(8_000);
    let history = format!("{:?}", sim.core.history.messages());
    assert_eq!(history.matches("result of").count(), 1, "{history}");
    let runs: Vec<_> = sim.records().into_iter().flat_map(|r| r.runs).collect();
    let fate = |name: &str| {
        runs.iter()
            .find(|run| run.tool == name)
            .unwrap()
            .fate
            .clone()
    };
    assert!(matches!(fate("weather"), Fate::Committed { .. }));
    assert!(matches!(
        fate("other"),
        Fate::Discarded {
            reason: Discard::Interrupted,
            ..
        }
    ));
}

#[test]
fn newer_arguments_replace_older_ones() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.tool_ms = 1_000;
    sim.scripts.extend(weather_answer("york"));
    sim.speak("weather in new", 600);
    sim.speak("weather in new york", 700);
    sim.silence(6_000);
    let runs = &sim.records()[0].runs;
    assert_eq!(runs.len(), 2);
    assert!(matches!(
        runs[0].fate,
        Fate::Discarded {
            reason: Discard::Superseded,
            ..
        }
    ));
    assert!(matches!(runs[1].fate, Fate::Committed { .. }));
    assert_eq!(
        runs[1].arguments,
        *json!({"city": "york"}).as_object().unwrap()
    );
}

/// The arguments and the fate of all runs.
fn fates(sim: &Sim) -> Vec<(Value, Fate)> {
    let runs = sim.records().into_iter().flat_map(|record| record.runs);
    runs.map(|run| (json!(run.arguments), run.fate)).collect()
}

fn is_discarded(fate: &Fate, wanted: Discard) -> bool {
    matches!(fate, Fate::Discarded { reason, .. } if *reason == wanted)
}

/// The calls that began early, by their city.
fn begun_early(sim: &Sim) -> Vec<String> {
    let starts = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::StartTool {
            committed: None,
            arguments,
            ..
        } => Some(arguments["city"].as_str().unwrap_or_default().to_owned()),
        _ => None,
    });
    starts.collect()
}

/// The user names one city, then another, then the first again.
fn undecided(tool: Declaration, tool_ms: u64) -> Sim {
    let mut sim = Sim::new(with(vec![tool]));
    weather_router(&mut sim);
    sim.tool_ms = tool_ms;
    sim.scripts.extend(weather_answer("boulder"));
    for city in ["boulder", "denver", "boulder"] {
        sim.speak(&format!("weather in {city}"), 700);
    }
    sim.silence(8_000);
    sim
}

#[test]
fn a_call_that_is_predicted_again_is_not_made_again() {
    let sim = undecided(early("weather"), 20);
    assert_eq!(begun_early(&sim), ["boulder", "denver"]);
    assert_eq!(sim.started().len(), 2);
    let fates = fates(&sim);
    let [(denver, dropped), (boulder, kept)] = &fates[..] else {
        panic!("{fates:?}");
    };
    assert_eq!([&denver["city"], &boulder["city"]], ["denver", "boulder"]);
    assert!(is_discarded(dropped, Discard::Superseded), "{dropped:?}");
    assert!(matches!(kept, Fate::Committed { .. }), "{kept:?}");
    // One without a result is still aborted at once.
    let sim = undecided(early("weather"), 5_000);
    assert_eq!(begun_early(&sim), ["boulder", "denver", "boulder"]);
}

#[test]
fn a_superseded_result_that_is_too_old_is_fetched_again() {
    let mut tool = early("weather");
    tool.speculation.ttl = Duration::from_millis(600);
    let sim = undecided(tool, 20);
    assert_eq!(begun_early(&sim)[..3], ["boulder", "denver", "boulder"]);
    let fates = fates(&sim);
    assert!(is_discarded(&fates[0].1, Discard::Expired), "{fates:?}");
}

/// The result that had expired counted as the same call, which was not made again before its commit.
#[test]
fn a_result_that_expires_while_the_user_speaks_is_fetched_again_for_the_last_words() {
    let mut tool = early("weather");
    tool.speculation.ttl = Duration::from_millis(1_200);
    let mut sim = Sim::new(with(vec![tool]));
    weather_router(&mut sim);
    sim.tool_ms = 20;
    sim.scripts.extend(weather_answer("boulder"));
    sim.speak("weather in boulder", 3_000);
    sim.silence(6_000);
    assert_eq!(begun_early(&sim), ["boulder", "boulder"]);
    assert_eq!(sim.started().len(), 2);
    let fates = fates(&sim);
    assert!(is_discarded(&fates[0].1, Discard::Expired), "{fates:?}");
    assert!(matches!(fates[1].1, Fate::Committed { .. }), "{fates:?}");
}

/// With every partial it was made again as soon as its result had expired, which used up the starts of the turn.
#[test]
fn a_result_that_expires_while_the_user_speaks_leaves_a_start_for_the_last_words() {
    let mut weather = early("weather");
    weather.speculation.ttl = Duration::from_millis(1_200);
    let mut sim = Sim::new(with(vec![weather, early("news")]));
    sim.router = Box::new(|heard| {
        let weather = prediction("weather", json!({"city": "boulder"}), 0.9);
        let news = prediction("news", json!({"city": "denver"}), 0.9);
        let news = heard.text.ends_with("news").then_some(news);
        [Some(weather), news].into_iter().flatten().collect()
    });
    sim.tool_ms = 20;
    sim.scripts.push_back(vec![say("Let me see."), end()]);
    let mut words = "weather in boulder".to_owned();
    for more in ["", " please", " and after that", " the latest", " news"] {
        words.push_str(more);
        sim.speak(&words, 1_500);
    }
    assert_eq!(begun_early(&sim), ["boulder", "denver"]);
    sim.silence(6_000);
    assert_eq!(begun_early(&sim), ["boulder", "denver", "boulder"]);
    let records = sim.records();
    let decisions = records[0].predictions.iter().map(|one| one.decision);
    let capped = Decision::Declined(Decline::TurnCap);
    assert!(decisions.into_iter().all(|decision| decision != capped));
}

#[test]
fn a_superseded_result_answers_the_call_that_the_model_makes_after_all() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.scripts.extend(weather_answer("boulder"));
    sim.tool_ms = 20;
    sim.speak("weather in boulder", 700);
    sim.tool_ms = 9_000;
    sim.speak("weather in denver", 700);
    sim.silence(8_000);
    // It is not expected, so nothing is generated from it.
    let assumed = sim.records().into_iter().flat_map(|record| record.held);
    assert!(
        assumed
            .into_iter()
            .all(|held| held.before != Before::Commit)
    );
    assert_eq!(begun_early(&sim), ["boulder", "denver"]);
    assert_eq!(sim.started().len(), 2);
    assert_eq!(sim.spoken().last().unwrap(), "It is sunny.");
    let latency = sim.latency();
    assert_eq!(latency.tool_result, latency.commit);
}

#[test]
fn a_superseded_result_goes_stale_like_any_other() {
    let mut sim = Sim::new(with(notes()));
    sim.router = Box::new(|heard| {
        let list = heard.text.split(' ').next_back().unwrap_or_default();
        vec![prediction("read", json!({"list": list}), 0.9)]
    });
    sim.tool_ms = 20;
    let mut script = call_with("add", json!({"text": "milk"})).to_vec();
    script.extend(call_with("read", json!({"list": "food"})));
    script.push(end());
    sim.scripts.push_back(script);
    sim.speak("add milk and read food", 700);
    sim.speak("add milk and read tools", 700);
    sim.silence(5_000);
    let committed = sim
        .started()
        .into_iter()
        .filter(|(committed, _)| *committed);
    let committed: Vec<String> = committed.map(|(_, tool)| tool).collect();
    assert_eq!(committed, ["add", "read"], "{:?}", fates(&sim));
    let stale = |(_, fate): &(Value, Fate)| is_discarded(fate, Discard::Stale);
    assert_eq!(fates(&sim).iter().filter(|run| stale(run)).count(), 2);
}

#[test]
fn a_slower_source_adds_to_the_answer_of_a_quicker_one() {
    let mut sim = Sim::new(with(vec![early("weather"), early("news")]));
    weather_router(&mut sim);
    let both = || {
        let weather = prediction("weather", json!({"city": "york"}), 0.9);
        vec![weather, prediction("news", json!({}), 0.9)]
    };
    sim.slower = Some((Box::new(move |_| both()), 400));
    sim.tool_ms = 3_000;
    sim.scripts.extend(weather_answer("york"));
    sim.speak("weather in york", 700);
    sim.silence(8_000);
    let started = sim.started();
    assert_eq!(
        started,
        ["weather", "news"].map(|tool| (false, tool.to_owned()))
    );
    let runs = &sim.records()[0].runs;
    let committed = runs
        .iter()
        .find(|run| run.tool == "weather")
        .map(|run| &run.fate);
    assert!(matches!(committed, Some(Fate::Committed { .. })));
}

/// The answer to a request in mid-sentence may come after the answer to the request in the pause.
#[test]
fn an_overtaken_prediction_supersedes_nothing() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.tool_ms = 3_000;
    sim.scripts.extend(weather_answer("york"));
    sim.router_ms = 1_200;
    sim.speak("weather in new", 800);
    sim.router_ms = 10;
    sim.speak("weather in new york", 700);
    sim.silence(8_000);
    let runs = &sim.records()[0].runs;
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(matches!(runs[0].fate, Fate::Committed { .. }));
    assert_eq!(
        runs[0].arguments,
        *json!({"city": "york"}).as_object().unwrap()
    );
}

/// When the model begins its call, or at the commit if no more calls may begin early.
#[test]
fn an_expired_result_is_fetched_again() {
    for (per_turn, at_commit) in [(3, false), (1, true)] {
        let mut tool = early("weather");
        tool.speculation.ttl = Duration::from_millis(700);
        tool.speculation.per_turn = per_turn;
        let mut sim = Sim::new(with(vec![tool]));
        weather_router(&mut sim);
        let [mut first, second] = weather_answer("boulder");
        first.insert(0, Step::Wait(1_000));
        sim.scripts.extend([first, second]);
        ask(&mut sim, "weather in boulder", 6_000);
        let weather = || "weather".to_owned();
        assert_eq!(sim.started(), [(false, weather()), (at_commit, weather())]);
        let fates = fates(&sim);
        assert!(is_discarded(&fates[0].1, Discard::Expired), "{fates:?}");
    }
}

#[test]
fn a_refused_run_starts_at_its_commit() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.refuses = true;
    sim.scripts.extend(weather_answer("boulder"));
    ask(&mut sim, "weather in boulder", 6_000);
    let refused = |run: &RunRecord| {
        matches!(
            run.fate,
            Fate::Discarded {
                reason: Discard::Budget,
                ..
            }
        )
    };
    assert!(sim.records()[0].runs.iter().any(refused));
    assert_eq!(sim.started().last(), Some(&(true, "weather".to_owned())));
    assert_eq!(sim.spoken().last().unwrap(), "It is sunny.");
}

#[test]
fn a_tool_the_model_begins_to_call_is_started_before_its_arguments_are_there() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    sim.router = Box::new(|_| vec![prediction("weather", json!({"city": "boulder"}), 0.2)]);
    sim.tool_ms = 500;
    sim.policy().speculation.preemptive = false;
    let [open, close] = call_with("weather", json!({"city": "boulder"}));
    let first = vec![say("Let me look."), open, Step::Wait(400), close, end()];
    sim.scripts
        .extend([first, vec![say("It is sunny."), end()]]);
    ask(&mut sim, "boulder", 5_000);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    let run = &sim.records()[0].runs[0];
    assert_eq!(run.source, Some(Source::Stream));
    assert_eq!(run.saved, Micros::from_ms(400));
}

/// Once its tool was open, any guess counted as almost certain.
#[test]
fn an_unlikely_guess_of_an_open_call_is_not_worth_its_cost() {
    let opened = |cost| {
        let mut quote = early("quote");
        quote.effect = Effect::ReadCostly;
        quote.speculation.cost = cost;
        let mut policy = with(vec![quote]);
        policy.speculation.preemptive = false;
        let mut sim = Sim::new(policy);
        sim.router = Box::new(|_| vec![prediction("quote", json!({"share": "acme"}), 0.02)]);
        let [open, close] = call_with("quote", json!({"share": "acme"}));
        let first = vec![say("Let me look."), open, Step::Wait(400), close, end()];
        sim.scripts
            .extend([first, vec![say("It is at ten."), end()]]);
        ask(&mut sim, "how is acme", 5_000);
        sim
    };
    let sim = opened(0.01);
    assert_eq!(sim.started(), [(true, "quote".to_owned())]);
    let record = &sim.records()[0];
    let mut of_stream = record.predictions.iter();
    let of_stream = of_stream.find(|one| one.source == Source::Stream);
    let told = of_stream.map(|one| (one.confidence, one.decision));
    let not_worth_it = Decision::Declined(Decline::NotWorthIt);
    assert_eq!(told, Some((0.02, not_worth_it)));
    assert_eq!(opened(0.0).started(), [(false, "quote".to_owned())]);
}

/// A read with these parameters, required or not, that may run early.
fn taking(name: &str, required: &[&str], optional: &[&str]) -> Declaration {
    let mut tool = early(name);
    let all = required.iter().chain(optional);
    let properties: serde_json::Map<_, _> = all
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    tool.spec.parameters =
        json!({"type": "object", "properties": properties, "required": required});
    tool
}

/// A session without predictions whose model streams a call, and the tool takes 600 ms.
fn streaming(tool: Declaration, call: Script) -> Sim {
    let mut sim = Sim::new(with(vec![tool]));
    sim.tool_ms = 600;
    // The call begins when the turn is over.
    let mut first = vec![Step::Wait(1_000), say("Let me check.")];
    first.extend(call);
    first.push(end());
    sim.scripts.push_back(first);
    sim.scripts.push_back(vec![say("It is sunny."), end()]);
    ask(&mut sim, "how is it outside", 6_000);
    sim
}

#[test]
fn what_the_model_writes_for_a_fixed_argument_is_dropped() {
    let mut balance = taking("balance", &[], &["currency"]);
    balance.fixed = vec!["account".into()];
    let mut sim = Sim::new(with(vec![balance]));
    sim.router = Box::new(|_| vec![prediction("balance", json!({"currency": "EUR"}), 0.9)]);
    let mut first = vec![Step::Wait(300), say("Let me check.")];
    let call = json!({"account": "another's", "currency": "EUR"});
    first.extend(streamed("balance", call, 45, 15));
    first.push(end());
    sim.scripts
        .extend([first, vec![say("It is twelve euros."), end()]]);
    ask(&mut sim, "what is my balance", 6_000);
    assert_eq!(sim.started(), [(false, "balance".to_owned())], "one run");
    let run = &sim.records()[0].runs[0];
    assert!(matches!(run.fate, Fate::Committed { .. }));
    for seen in [
        format!("{:?}", sim.core.history.messages()),
        format!("{:?}", sim.outputs),
        format!("{:?}", sim.events),
    ] {
        assert!(!seen.contains("another's"), "{seen}");
    }
}

fn run_started(sim: &Sim, nth: usize) -> Time {
    let starts = sim.outputs.iter();
    let mut starts = starts.filter(|(_, o)| matches!(o, Output::StartTool { .. }));
    starts.nth(nth).expect("a run").0
}

/// How much earlier the run began than the call was committed, ms.
fn ahead(sim: &Sim, nth: usize) -> u64 {
    let commit = sim.latency().commit.expect("a commit");
    commit.since(run_started(sim, nth)).as_ms()
}

#[test]
fn a_tool_without_parameters_starts_at_its_name() {
    let call = streamed("clock", json!({}), 45, 15);
    let sim = streaming(taking("clock", &[], &[]), call.clone());
    assert_eq!(sim.started(), [(false, "clock".to_owned())]);
    assert_eq!(ahead(&sim, 0), 60);
    let record = &sim.records()[0];
    let run = &record.runs[0];
    assert_eq!(
        (run.source, run.saved),
        (Some(Source::Stream), Micros::from_ms(60))
    );
    assert_eq!(record.predictions.len(), 1, "{:?}", record.predictions);
    let late = |sim: &Sim| {
        let latency = sim.latency();
        latency.tool_result.unwrap().since(latency.commit.unwrap())
    };
    let mut off = taking("clock", &[], &[]);
    off.speculation.eligibility = Eligibility::WarmUp;
    let slow = streaming(off, call);
    assert_eq!(late(&slow).as_ms() - late(&sim).as_ms(), 60);
    assert_eq!(sim.core.history.messages(), slow.core.history.messages());
}

#[test]
fn a_tool_with_optional_arguments_starts_at_its_name_and_again_with_them() {
    let clock = || taking("clock", &[], &["place"]);
    let sim = streaming(clock(), streamed("clock", json!({}), 45, 15));
    assert_eq!(
        (sim.started().len(), ahead(&sim, 0)),
        (1, 60),
        "it was right"
    );
    let sim = streaming(clock(), streamed("clock", json!({"place": "Rome"}), 45, 15));
    let twice = [(false, "clock".to_owned()), (false, "clock".to_owned())];
    assert_eq!(sim.started(), twice);
    assert_eq!((ahead(&sim, 0), ahead(&sim, 1)), (60, 15));
    let runs = &sim.records()[0].runs;
    let superseded = |run: &RunRecord| {
        let reason = Discard::Superseded;
        matches!(run.fate, Fate::Discarded { reason: was, .. } if was == reason)
    };
    assert!(superseded(&runs[0]), "{runs:?}");
    assert_eq!(runs[0].wasted, Micros::from_ms(45), "it is aborted at once");
    assert!(matches!(runs[1].fate, Fate::Committed { .. }));
    let aborts = sim.outputs.iter();
    let aborts = aborts.filter(|(_, o)| matches!(o, Output::AbortTool { .. }));
    assert_eq!(aborts.count(), 1);
    let mut sure = clock();
    sure.speculation.min_confidence = 0.9;
    let sim = streaming(sure, streamed("clock", json!({}), 45, 15));
    assert_eq!((sim.started().len(), ahead(&sim, 0)), (1, 15));
}

#[test]
fn a_call_starts_when_its_arguments_are_complete() {
    let weather = || taking("weather", &["city"], &[]);
    let call = streamed("weather", json!({"city": "Denver"}), 100, 40);
    let sim = streaming(weather(), call);
    assert_eq!((sim.started().len(), ahead(&sim, 0)), (1, 40));
    // No other argument can follow, so the list need not be closed.
    let mut call = streamed("weather", json!({"city": "Denver"}), 100, 40);
    call.splice(
        2..2,
        [Step::Wait(50), read(json!({"city": "Denver"}), false)],
    );
    let sim = streaming(weather(), call);
    assert_eq!((sim.started().len(), ahead(&sim, 0)), (1, 140));
    // Another may follow: the list must be closed.
    let mut call = streamed("weather", json!({"city": "Denver"}), 100, 40);
    call.splice(
        2..2,
        [Step::Wait(50), read(json!({"city": "Denver"}), false)],
    );
    let sim = streaming(taking("weather", &["city"], &["day"]), call);
    assert_eq!((sim.started().len(), ahead(&sim, 0)), (1, 40));
}

#[test]
fn an_open_call_runs_nothing_that_its_end_would_not() {
    let call = || streamed("weather", json!({"city": "Denver"}), 100, 40);
    let mut missing = call();
    missing.truncate(2);
    missing.push(Step::Wait(200));
    missing.push(read(json!({"day": "Monday"}), true));
    missing.push(Step::Event(LlmEvent::ToolClosed {
        arguments: Err("the list is not closed".into()),
    }));
    let sim = streaming(taking("weather", &["city"], &["day"]), missing);
    assert_eq!(sim.started(), [], "a required argument is missing");
    let mut write = taking("weather", &["city"], &[]);
    write.effect = Effect::Reversible;
    let sim = streaming(write, call());
    assert_eq!(sim.started(), [(true, "weather".to_owned())]);
    let mut policy = off(with(vec![taking("weather", &["city"], &[])]));
    policy.timeouts.dead_air = Micros::from_ms(60_000);
    let mut sim = Sim::new(policy);
    let mut script = call();
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "how is it outside", 6_000);
    assert_eq!(sim.started(), [(true, "weather".to_owned())]);
}

#[test]
fn a_predicted_call_in_the_stream_is_one_run() {
    let mut sim = Sim::new(with(vec![taking("weather", &["city"], &[])]));
    weather_router(&mut sim);
    sim.tool_ms = 600;
    let mut script = vec![Step::Wait(300)];
    script.extend(streamed("weather", json!({"city": "boulder"}), 100, 40));
    script.push(end());
    sim.scripts.push_back(script);
    ask(&mut sim, "weather in boulder", 6_000);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    assert_eq!(sim.records()[0].runs[0].source, Some(Source::Rule));
}

#[test]
fn a_held_back_call_starts_its_tool_once() {
    // The model calls at the first pause, before the turn is over.
    let mut sim = Sim::new(with(vec![taking("weather", &["city"], &[])]));
    sim.tool_ms = 600;
    let mut script = streamed("weather", json!({"city": "Denver"}), 20, 10);
    script.push(end());
    sim.scripts.push_back(script);
    sim.scripts.push_back(vec![say("It is sunny."), end()]);
    sim.completeness = 0.5;
    ask(&mut sim, "how is it outside", 6_000);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    let record = &sim.records()[0];
    assert!(matches!(record.runs[0].fate, Fate::Committed { .. }));
    assert_eq!(record.runs[0].source, Some(Source::Stream));
}

#[test]
fn a_question_runs_a_tool_early_only_when_a_response_is_requested() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    let question = NewItem::User {
        text: "what is the weather in rome".into(),
    };
    let answer = NewItem::Agent {
        text: "It is sunny.".into(),
    };
    for item in [question.clone(), answer, question] {
        sim.input(item.at_the_end());
        sim.silence(500);
    }
    assert_eq!(sim.started(), []);
    sim.scripts.push_back(vec![Step::Wait(500), end()]);
    sim.input(Input::Respond { instructions: None });
    sim.silence(100);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
}

#[test]
fn a_busy_server_gives_up_partials_before_preemptive_answers() {
    let run = |shed: Shed| {
        let mut sim = Sim::new(Policy::default());
        sim.completeness = 0.5;
        sim.input(Input::Load { shed });
        for _ in 0..2 {
            sim.scripts.push_back(vec![say("It is noon."), end()]);
        }
        ask(&mut sim, "what time is it", 3_000);
        assert_eq!(sim.spoken(), ["It is noon."]);
        let latency = sim.latency();
        let early = latency.generation < latency.end_of_turn;
        let partial = |(_, output): &(Time, Output)| {
            matches!(output, Output::Transcribe { partial: true, .. })
        };
        (early, sim.outputs.iter().any(partial))
    };
    assert_eq!(run(Shed::Nothing), (true, true));
    assert_eq!(run(Shed::Speculation), (true, true));
    assert_eq!(run(Shed::Partials), (true, false));
    assert_eq!(run(Shed::PreemptiveAnswers), (false, false));
}

#[test]
fn an_early_answer_is_kept_if_the_user_was_done() {
    let mut sim = Sim::new(Policy::default());
    sim.completeness = 0.5;
    sim.scripts
        .push_back(vec![Step::Wait(200), say("It is noon."), end()]);
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(sim.prompts.len(), 1);
    let latency = sim.latency();
    assert!(latency.generation < latency.end_of_turn);
    let heard = latency
        .first_audio
        .unwrap()
        .since(latency.end_of_turn.unwrap());
    assert!(heard <= Micros::from_ms(70), "only the voice is waited for");
}

#[test]
fn the_model_is_asked_while_the_detector_still_hears_a_voice_that_has_ended() {
    let mut sim = Sim::new(Policy::default());
    sim.completeness = 0.97;
    sim.scripts
        .push_back(vec![Step::Wait(300), say("It is noon."), end()]);
    sim.speak("what time is it", 1_000);
    sim.fade(128);
    assert_eq!(sim.prompts.len(), 1);
    sim.silence(3_000);
    assert_eq!(sim.prompts.len(), 1, "the same generation");
    assert_eq!(sim.spoken(), ["It is noon."]);
}

#[test]
fn an_answer_to_words_behind_which_a_low_voice_goes_on_is_never_heard() {
    let mut sim = Sim::new(Policy::default());
    sim.completeness = 0.97;
    sim.scripts
        .push_back(vec![Step::Wait(300), say("It is noon."), end()]);
    sim.scripts.push_back(vec![say("It is one there."), end()]);
    sim.speak("what time is it", 1_000);
    sim.fade(128);
    assert_eq!(sim.prompts.len(), 1);
    sim.words = "what time is it in rome".into();
    sim.fade(300);
    sim.silence(3_000);
    assert_eq!(sim.prompts.len(), 2);
    assert_eq!(sim.spoken(), ["It is one there."]);
}

/// The user says `first`, is answered early, and has said `words` in all `more_ms` of speech later.
fn goes_on(policy: Policy, first: &str, words: &str, more_ms: u64) -> Sim {
    let mut sim = Sim::new(policy);
    sim.completeness = 0.97;
    for answer in ["It is noon.", "It is one there."] {
        sim.scripts
            .push_back(vec![Step::Wait(900), say(answer), end()]);
    }
    sim.speak(first, 1_000);
    sim.fade(128);
    assert_eq!(sim.prompts.len(), 1);
    sim.speak(words, more_ms);
    sim.silence(3_000);
    sim
}

#[test]
fn a_please_behind_words_that_are_being_answered_keeps_the_answer() {
    let all = "What time is it, please?";
    let sim = goes_on(Policy::default(), "what time is it", all, 400);
    assert_eq!(sim.prompts.len(), 1, "the same generation");
    assert_eq!(sim.spoken(), ["It is noon."]);
    let told = |event: &Event| matches!(event, Event::UserItem { text, .. } if text == all);
    assert!(sim.saw(told), "the client gets all words");
}

#[test]
fn a_please_that_the_detector_does_not_hear_keeps_the_answer() {
    let all = "What time is it, please?";
    let mut sim = Sim::new(Policy::default());
    sim.completeness = 0.97;
    sim.provisional = true;
    sim.scripts
        .push_back(vec![Step::Wait(300), say("It is noon."), end()]);
    sim.speak("what time is it", 1_000);
    sim.fade(128);
    sim.words = all.into();
    sim.silence(3_000);
    assert_eq!(sim.prompts.len(), 1, "the same generation");
    assert_eq!(sim.spoken(), ["It is noon."]);
    let told = |event: &Event| matches!(event, Event::UserItem { text, .. } if text == all);
    assert!(sim.saw(told), "the client gets all words");
}

#[test]
fn a_breath_behind_words_that_are_being_answered_keeps_the_answer() {
    let sim = goes_on(Policy::default(), "what time is it", "what time is it", 96);
    assert_eq!(sim.prompts.len(), 1, "the same generation");
    assert_eq!(sim.spoken(), ["It is noon."]);
}

#[test]
fn other_words_behind_those_that_are_being_answered_drop_the_answer() {
    for (first, words, more_ms) in [
        ("what time is it", "what time is it please in rome", 400),
        ("what time is it", "what time is it there", 100),
        ("what time is it", "what time is it please", 1_000),
        ("what is c", "what is c#", 300),
    ] {
        let sim = goes_on(Policy::default(), first, words, more_ms);
        assert_eq!(sim.spoken(), ["It is one there."], "{words}");
        let told = |event: &Event| matches!(event, Event::UserItem { text, .. } if text == words);
        assert!(sim.saw(told), "{words}");
    }
}

/// A service hears the pause; the local recogniser hears the words up to there.
#[test]
fn an_answer_to_words_that_the_pause_reads_otherwise_is_never_heard() {
    let mut sim = Sim::new(Policy::default());
    sim.completeness = 0.97;
    sim.provisional = true;
    sim.scripts
        .push_back(vec![Step::Wait(300), say("It is noon."), end()]);
    sim.scripts.push_back(vec![say("It is one there."), end()]);
    sim.speak("what time is it", 1_000);
    sim.fade(128);
    assert_eq!(sim.prompts.len(), 1);
    sim.words = "what time is it in rome".into();
    sim.silence(3_000);
    assert_eq!(sim.prompts.len(), 2);
    assert_eq!(sim.spoken(), ["It is one there."]);
}

/// A client that detects speech itself sends hardly any silence.
#[test]
fn words_up_to_a_gap_that_come_after_the_last_audio_are_used_at_once() {
    let stopped = |completeness| {
        let mut sim = Sim::new(Policy::default());
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        sim.speak("what time is it", 800);
        sim.completeness = completeness;
        sim.fade(64);
        sim.silence(32);
        let asked = |sim: &Sim| {
            let pauses = |(_, output): &&(Time, Output)| {
                matches!(output, Output::Transcribe { partial: false, .. })
            };
            sim.outputs.iter().filter(pauses).count()
        };
        assert_eq!(asked(&sim), 0, "the words are awaited");
        sim.no_audio(100);
        let asked = asked(&sim);
        sim.no_audio(5_000);
        assert_eq!(sim.spoken(), ["It is noon."], "{completeness}");
        (asked, sim)
    };
    let (asked, sim) = stopped(0.97);
    assert_eq!(asked, 0);
    let stamps = sim.latency();
    let wait = stamps
        .end_of_turn
        .unwrap()
        .since(stamps.speech_end.unwrap());
    assert!(wait.as_ms() < 700, "{} ms", wait.as_ms());
    let (asked, _) = stopped(0.1);
    assert_eq!(asked, 1, "they are not all");
}

#[test]
fn a_gap_within_a_word_delays_and_costs_no_answer() {
    let mut sim = Sim::new(Policy::default());
    sim.completeness = 0.97;
    for words in ["what", "what time", "what time is it"] {
        sim.speak(words, 400);
        sim.fade(64);
    }
    let partial = |e: &Event| matches!(e, Event::PartialTranscript { .. });
    assert!(sim.events.iter().filter(|(_, e)| partial(e)).count() >= 2);
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.speak("what time is it", 100);
    sim.silence(3_000);
    assert_eq!(sim.spoken(), ["It is noon."]);
    assert_eq!(sim.core.history.messages().len(), 2);
}

#[test]
fn an_early_answer_is_never_said_if_the_user_goes_on() {
    let mut sim = Sim::new(with(vec![early("weather"), notes().remove(1)]));
    sim.completeness = 0.5;
    sim.marked = true;
    let mut early = vec![say("Too early.")];
    early.extend(call_with("weather", json!({"city": "a"})));
    early.extend(call_with("add", json!({"text": "b"})));
    early.push(end());
    sim.scripts.extend([early, vec![say("Now."), end()]]);
    sim.speak("what time is it", 1_000);
    sim.silence(350);
    assert_eq!(sim.prompts.len(), 1, "the answer is being made");
    assert_eq!(
        sim.started(),
        [(false, "weather".to_owned())],
        "only the read runs"
    );
    sim.speak("what is the weather like on mars", 800);
    sim.silence(4_000);
    assert_eq!(sim.spoken(), ["Now."]);
    let cancelled = |o: &Output| matches!(o, Output::CancelGeneration { .. });
    assert!(sim.outputs.iter().any(|(_, o)| cancelled(o)));
    assert!(!format!("{:?}", sim.events).contains("result of"));
    assert_eq!(sim.core.history.messages().len(), 2);
}

#[test]
fn a_silent_call_is_filled_with_the_tool_s_own_words_if_the_wait_is_long() {
    let mut tool = (*tool("weather", Effect::Read)).clone();
    tool.fillers.short = vec!["Looking at {{ city }}.".into()];
    let mut sim = Sim::new(with(vec![tool]));
    sim.tool_ms = 1_500;
    let [mut first, second] = weather_answer("boulder");
    first.remove(1);
    sim.scripts.extend([first.clone(), second.clone()]);
    ask(&mut sim, "weather", 6_000);
    let said = ["Looking at boulder.", "One moment.", "It is sunny."];
    assert_eq!(sim.spoken(), said);
    assert_eq!(sim.records()[0].fillers, 2);
    sim.tool_ms = 100;
    for _ in 0..40 {
        sim.scripts.extend([first.clone(), second.clone()]);
        ask(&mut sim, "weather", 4_000);
    }
    let spoken = sim.spoken();
    assert_eq!(spoken[spoken.len() - 2..], ["It is sunny.", "It is sunny."]);
}

#[test]
fn the_router_s_filler_is_said_once_and_at_once() {
    let mut tool = early("weather");
    tool.fillers.short = vec!["Checking {{ city }}.".into()];
    let mut policy = with(vec![tool]);
    policy.filler.lead = FillerLead::Router;
    policy.speculation.preemptive = false;
    let sim = asked_for_weather(policy.clone(), 4_000);
    assert_eq!(
        sim.spoken(),
        ["Checking boulder.", "One moment.", "It is sunny."]
    );
    let prompt = sim.prompts[0].messages.last().unwrap();
    assert!(matches!(prompt, Message::Agent { text, .. } if text == "Checking boulder."));
    let latency = sim.latency();
    let first = latency
        .first_audio
        .unwrap()
        .since(latency.end_of_turn.unwrap());
    assert!(first <= Micros::from_ms(70), "{first:?}");
    // The router was wrong; the answer is still spoken.
    let mut sim = Sim::new(policy);
    weather_router(&mut sim);
    sim.tool_ms = 9_000;
    sim.scripts.push_back(vec![say("I like it."), end()]);
    ask(&mut sim, "i talked about the weather", 5_000);
    assert_eq!(sim.spoken().last().unwrap(), "I like it.");
}

/// It was taken for a second filler and never said.
#[test]
fn a_part_of_the_answer_between_the_router_s_filler_and_a_call_is_said() {
    let mut tool = early("weather");
    tool.fillers.short = vec!["Checking {{ city }}.".into()];
    let mut policy = with(vec![tool]);
    policy.filler.lead = FillerLead::Router;
    policy.speculation.preemptive = false;
    let mut sim = Sim::new(policy);
    weather_router(&mut sim);
    sim.tool_ms = 4_000;
    let [mut first, second] = weather_answer("boulder");
    first[1] = say("Your flight is on time.");
    sim.scripts.extend([first, second]);
    sim.speak("what is the weather in boulder", 1_500);
    sim.silence(12_000);
    let spoken = sim.spoken();
    assert_eq!(
        spoken[..2],
        ["Checking boulder.", "Your flight is on time."]
    );
    assert_eq!(spoken.last().unwrap(), "It is sunny.");
}

/// A tool was announced until a later answer of the sources predicted it again.
#[test]
fn a_tool_that_the_last_words_do_not_ask_for_is_not_announced() {
    for preemptive in [false, true] {
        let mut tool = early("weather");
        tool.fillers.short = vec!["Checking {{ city }}.".into()];
        let mut policy = with(vec![tool]);
        policy.filler.lead = FillerLead::Router;
        policy.speculation.preemptive = preemptive;
        let mut sim = Sim::new(policy);
        sim.router = Box::new(|heard| {
            let asks = heard.text.ends_with("boulder");
            let weather = prediction("weather", json!({"city": "boulder"}), 0.95);
            asks.then_some(weather).into_iter().collect()
        });
        (sim.by_prompt, sim.tool_ms) = (true, 4_000);
        sim.scripts
            .push_back(vec![Step::Wait(300), say("So do I."), end()]);
        sim.speak("i like the weather in boulder", 1_000);
        assert_eq!(sim.started().len(), 1);
        sim.speak("i like the weather in boulder in spring", 800);
        sim.silence(6_000);
        assert_eq!(sim.spoken(), ["So do I."], "{preemptive}");
    }
}

#[test]
fn tools_that_are_only_warmed_up_do_not_run() {
    let mut tool = early("weather");
    tool.speculation.eligibility = Eligibility::WarmUp;
    let sim = asked_for_weather(with(vec![tool]), 300);
    assert_eq!(sim.started(), [(true, "weather".to_owned())]);
    let warmed = sim
        .outputs
        .iter()
        .filter(|(_, o)| matches!(o, Output::WarmUp { .. }));
    assert_eq!(warmed.count(), 1);
}

#[test]
fn a_client_s_tool_takes_the_place_of_the_server_s() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.input(Input::Configure(Box::new(Settings {
        tools: Some(vec![early("weather").spec]),
        ..Settings::default()
    })));
    sim.scripts.push_back(weather_answer("boulder")[0].clone());
    ask(&mut sim, "weather in boulder", 4_000);
    assert_eq!(sim.started(), []);
    assert_eq!(sim.prompts[0].tools.len(), 1);
    assert!(sim.saw(|e| matches!(
        e,
        Event::ToolCalled {
            by_client: true,
            ..
        }
    )));
}

#[test]
fn a_call_that_waits_for_a_write_runs_although_the_client_takes_the_names() {
    for taken in ["add", "read"] {
        let mut sim = Sim::new(with(notes()));
        sim.policy().speculation.preemptive = false;
        sim.tool_ms = 3_000;
        let mut script = call_with("add", json!({"text": "milk"})).to_vec();
        script.extend(call_with("read", json!({})));
        script.push(end());
        sim.scripts.push_back(script);
        ask(&mut sim, "add milk and read my notes", 1_500);
        assert_eq!(sim.started(), [(true, "add".to_owned())]);
        sim.input(Input::Configure(Box::new(Settings {
            tools: Some(vec![early(taken).spec]),
            ..Settings::default()
        })));
        sim.silence(10_000);
        assert_eq!(sim.started().last(), Some(&(true, "read".to_owned())));
        assert_eq!(sim.ended(), [ResponseStatus::Completed], "{taken}");
        let history = sim.core.history.messages().into_iter();
        let results = history.filter(|m| matches!(m, Message::ToolResult { .. }));
        assert_eq!(results.count(), 2);
    }
}

#[test]
fn a_client_may_turn_speculation_off_and_not_on() {
    let switch = |sim: &mut Sim, on| {
        sim.input(Input::Configure(Box::new(Settings {
            speculation: Some(on),
            ..Settings::default()
        })));
    };
    let early_runs = |operator: bool, client: &[bool]| {
        let mut policy = with(vec![early("weather")]);
        policy.speculation.enabled = operator;
        let mut sim = Sim::new(policy);
        weather_router(&mut sim);
        client.iter().for_each(|on| switch(&mut sim, *on));
        sim.scripts.extend(weather_answer("boulder"));
        ask(&mut sim, "weather in boulder", 4_000);
        let started = sim.started();
        started.iter().filter(|(committed, _)| !committed).count()
    };
    assert_eq!(early_runs(true, &[]), 1);
    assert_eq!(early_runs(true, &[false]), 0);
    assert_eq!(early_runs(true, &[false, true]), 1);
    assert_eq!(early_runs(false, &[true]), 0);
}

#[test]
fn hanging_up_ends_every_run() {
    let mut sim = Sim::new(with(vec![early("weather")]));
    weather_router(&mut sim);
    sim.tool_ms = 60_000;
    sim.speak("weather in boulder", 1_500);
    sim.input(Input::HangUp);
    assert!(matches!(
        sim.records()[0].runs[0].fate,
        Fate::Discarded {
            reason: Discard::HungUp,
            ..
        }
    ));
}

#[test]
fn a_call_that_ends_the_conversation_waits_for_its_goodbye() {
    let goodbye = || {
        let mut sim = Sim::new(with(vec![ending("end_call", EndsCall::HangUp)]));
        let mut script = vec![say("Goodbye and have a very nice day.")];
        script.extend(call_with("end_call", json!({})));
        script.push(end());
        sim.scripts.push_back(script);
        ask(&mut sim, "bye", 1_200);
        sim
    };
    let mut sim = goodbye();
    assert_eq!(sim.hung_up, None, "the goodbye is being said");
    sim.silence(4_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::AgentEnded));
    // Speaking over the goodbye keeps the call open.
    let mut sim = goodbye();
    sim.speak("wait", 600);
    sim.silence(4_000);
    assert_eq!(sim.hung_up, None);
    assert_eq!(sim.spoken().last().unwrap(), "All right.");
}

#[test]
fn a_model_that_keeps_calling_tools_is_stopped() {
    let mut policy = with(vec![(*tool("add", Effect::Reversible)).clone()]);
    policy.tool_steps = 2;
    let mut sim = Sim::new(policy);
    for _ in 0..20 {
        let mut script = call_with("add", json!({})).to_vec();
        script.push(end());
        sim.scripts.push_back(script);
    }
    ask(&mut sim, "go", 10_000);
    assert_eq!(sim.started().len(), 2);
    assert_eq!(sim.spoken().join(" "), Phrases::default().llm_failed);
}

#[test]
fn a_generation_with_endless_calls_is_stopped() {
    let mut sim = Sim::new(with(vec![(*tool("add", Effect::Reversible)).clone()]));
    let calls = (0..100).flat_map(|n| call_with("add", json!({ "n": n })));
    sim.scripts
        .extend([calls.collect(), vec![say("They are added."), end()]]);
    ask(&mut sim, "go", 10_000);
    assert_eq!(sim.started().len(), 16);
    assert_eq!(sim.spoken().join(" "), "They are added.");
}

#[test]
fn noise_while_a_tool_runs_does_not_lose_its_result() {
    let mut sim = Sim::new(with(vec![(*tool("add", Effect::Reversible)).clone()]));
    sim.policy().speculation.preemptive = false;
    sim.tool_ms = 3_000;
    let mut script = vec![say("Adding it now.")];
    script.extend(call_with("add", json!({})));
    script.push(end());
    sim.scripts
        .extend([script, vec![say("It is added."), end()]]);
    ask(&mut sim, "add milk", 800);
    sim.speak("", 300);
    sim.silence(8_000);
    assert_eq!(sim.started(), [(true, "add".to_owned())]);
    assert_eq!(sim.spoken().last().unwrap(), "It is added.");
    assert_eq!(sim.prompts.len(), 2);
}

#[test]
fn a_client_that_mutes_itself_in_mid_sentence_is_answered() {
    let mut sim = Sim::new(Policy::default());
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    sim.speak("what time is it", 1_000);
    sim.no_audio(5_000);
    assert_eq!(sim.spoken(), ["It is noon."]);
}

#[test]
fn a_voice_that_hangs_is_given_up() {
    let mut sim = Sim::new(Policy::default());
    sim.tts_hangs = true;
    ask(&mut sim, "what time is it", 20_000);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
}

/// A large voice takes more than four seconds to load on a busy machine, and counted as stalled.
#[test]
fn a_voice_that_is_being_loaded_is_waited_for() {
    for (wait, status) in [
        (10_000, ResponseStatus::Completed),
        (40_000, ResponseStatus::Failed),
    ] {
        let mut sim = Sim::new(Policy::default());
        sim.voice_loads_ms = Some(wait);
        ask(&mut sim, "what time is it", 60_000);
        assert_eq!(sim.ended(), [status], "{wait} ms");
    }
}

#[test]
fn a_timer_is_announced_although_no_audio_comes() {
    let mut sim = Sim::new(Policy::default());
    sim.input(Input::Announce {
        text: "Your timer is done.".into(),
    });
    sim.no_audio(5_000);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}
