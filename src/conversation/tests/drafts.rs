//! Sessions with a draft model: its calls start tools early, and it is asked no longer than it is worth it.

use super::sim::{SAMPLED, Sample, Sim, Sources, Step, call_with, end, sampled, say};
use super::*;
use crate::recording::Recording;
use crate::tools::Eligibility;
use crate::what_if::{MissingSamples, what_if};
use serde_json::{Value, json};

fn early(name: &str, effect: Effect) -> Declaration {
    let mut tool = (*tool(name, effect)).clone();
    tool.speculation.eligibility = Eligibility::Full;
    tool
}

/// A policy with these tools and three samples, at a price for a million tokens.
fn drafting(tools: Vec<Declaration>, token_price: f64) -> Policy {
    let mut policy = with(tools);
    policy.speculation.draft = Some(DraftPolicy {
        samples: 3,
        token_price,
        token_cost_per_day: None,
    });
    policy
}

fn boulder() -> Value {
    json!({"city": "boulder"})
}

/// Asks for the weather: the model calls the tool after 1.5 s.
fn asked(sim: &mut Sim, drafts: Vec<Sample>) {
    let mut first = vec![Step::Wait(1_500)];
    first.extend(call_with("weather", boulder()));
    first.push(end());
    sim.scripts
        .extend([first, vec![Step::Wait(100), say("It is sunny."), end()]]);
    sim.drafts.extend([drafts, Vec::new()]);
    sim.tool_ms = 400;
    ask(sim, "what is the weather in boulder", 9_000);
}

fn weather(drafts: Vec<Sample>) -> Sim {
    let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read)], 0.0));
    asked(&mut sim, drafts);
    sim
}

fn predicted(sim: &Sim) -> Vec<(f32, &'static str)> {
    let records = sim.records();
    let predictions = records.iter().flat_map(|record| &record.predictions);
    let of_draft = predictions.filter(|one| one.source == crate::prediction::Source::Draft);
    of_draft
        .map(|one| (one.confidence, one.decision.name()))
        .collect()
}

fn questions(sim: &Sim) -> usize {
    let asks = |(_, output): &&(Time, Output)| matches!(output, Output::AskDraft { .. });
    sim.outputs.iter().filter(asks).count()
}

fn stops(sim: &Sim) -> Vec<Time> {
    let stops = sim.outputs.iter();
    let stops = stops.filter(|(_, output)| matches!(output, Output::StopDraft { .. }));
    stops.map(|(at, _)| *at).collect()
}

#[test]
fn a_call_starts_when_enough_samples_have_made_it() {
    let sim = weather(sampled([100, 300, 500], "weather", boulder()));
    assert_eq!(
        predicted(&sim),
        [
            (1.0 / 3.0, "unlikely"),
            (2.0 / 3.0, "started"),
            (1.0, "known")
        ],
        "the confidence is the share of all samples"
    );
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    let record = &sim.records()[0];
    let run = &record.runs[0];
    assert!(matches!(run.fate, Fate::Committed { .. }), "{run:?}");
    assert!(run.saved >= Micros::from_ms(400), "{run:?}");
    let draft = &record.drafts[0];
    assert_eq!((draft.samples, draft.calls), (3, 3));
    assert_eq!(draft.accepted, Some(true));
    assert_eq!(draft.usage.total(), 3 * SAMPLED.total());
}

#[test]
fn what_the_draft_says_is_neither_heard_nor_remembered() {
    let talk = |mut policy: Policy| {
        // A filler depends on the wait, which the draft shortens.
        policy.timeouts.dead_air = Micros::from_ms(60_000);
        let mut sim = Sim::new(policy);
        asked(&mut sim, sampled([100, 300, 500], "weather", boulder()));
        sim
    };
    let tools = || vec![early("weather", Effect::Read)];
    let (with_draft, without) = (talk(drafting(tools(), 0.0)), talk(with(tools())));
    assert_eq!((questions(&with_draft), questions(&without)), (2, 0));
    assert_eq!(with_draft.spoken(), without.spoken());
    assert_eq!(
        with_draft.core.history.messages(),
        without.core.history.messages()
    );
}

#[test]
fn it_is_asked_at_the_pause_together_with_the_model() {
    let sim = weather(Vec::new());
    let at = |wanted: fn(&Output) -> bool| {
        let mut outputs = sim.outputs.iter();
        outputs.find(|(_, output)| wanted(output)).expect("one").0
    };
    let asked = at(|output| matches!(output, Output::AskDraft { .. }));
    assert_eq!(
        asked,
        at(|output| matches!(output, Output::Generate { .. }))
    );
    let over = |event: &Event| matches!(event, Event::UserItem { .. });
    let over = sim.events.iter().find(|(_, event)| over(event));
    assert!(asked < over.expect("a turn").0, "the answer was held back");
}

/// The second call of a turn is drafted from the result of the first: whether that comes after the model's stream has
/// ended, between the commit and the end, or so shortly before the commit that the commit was assumed.
#[test]
fn each_step_of_a_chain_of_calls_is_drafted() {
    for tool_ms in [3_000, 1_600, 1_300] {
        let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read)], 0.0));
        sim.tool_ms = tool_ms;
        for city in ["boulder", "rome"] {
            let mut script = vec![Step::Wait(1_500)];
            script.extend(call_with("weather", json!({ "city": city })));
            script.extend([Step::Wait(300), end()]);
            sim.scripts.push_back(script);
            sim.drafts
                .push_back(sampled([50, 60, 70], "weather", json!({ "city": city })));
        }
        sim.scripts.push_back(vec![say("Sunny in both."), end()]);
        ask(
            &mut sim,
            "what is the weather in boulder and in rome",
            15_000,
        );
        let runs = &sim.records()[0].runs;
        let sources: Vec<_> = runs.iter().map(|run| run.source).collect();
        let drafted = Some(crate::prediction::Source::Draft);
        assert_eq!(sources, [drafted, drafted], "{tool_ms} ms: {runs:?}");
    }
}

#[test]
fn it_is_stopped_when_the_model_commits() {
    let sim = weather(sampled([100, 5_000, 5_000], "weather", boulder()));
    let commit = sim.records()[0].latency.commit.expect("a commit");
    assert_eq!(stops(&sim).first(), Some(&commit));
    let decisions = predicted(&sim);
    assert_eq!(
        decisions,
        [(1.0 / 3.0, "unlikely")],
        "later samples are ignored"
    );
}

#[test]
fn it_is_stopped_when_the_model_answers() {
    let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read)], 0.0));
    sim.scripts.push_back(vec![
        Step::Wait(1_500),
        say("It is a fine day. "),
        say("The sun shines. "),
        Step::Wait(2_000),
        say("So it goes on."),
        end(),
    ]);
    sim.drafts
        .push_back(sampled([4_000, 4_000, 4_000], "weather", boulder()));
    ask(&mut sim, "how are you", 9_000);
    let begun = sim.latency().llm_first.expect("words");
    assert_eq!(stops(&sim), [begun], "at its second sentence");
    assert_eq!(sim.started(), []);
}

/// A draft ended with the answer that was interrupted, without what its samples had written.
#[test]
fn samples_that_an_interruption_stops_are_counted_with_what_they_have_written() {
    let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read)], 0.0));
    sim.scripts
        .extend([vec![Step::Wait(60_000)], vec![say("All right."), end()]]);
    sim.drafts
        .push_back(sampled([2_000; 3], "weather", boulder()));
    ask(&mut sim, "what is the weather", 800);
    sim.speak("no wait", 1_000);
    sim.silence(6_000);
    sim.input(Input::HangUp);
    let records = sim.records();
    assert_eq!(records[0].status, Some(ResponseStatus::Interrupted));
    assert_eq!(records[0].drafts, []);
    let drafts: Vec<_> = records.iter().flat_map(|record| &record.drafts).collect();
    assert_eq!(drafts.len(), questions(&sim));
    for draft in drafts {
        assert_eq!(draft.usage.total(), 3 * SAMPLED.total(), "{draft:?}");
    }
}

#[test]
fn it_is_stopped_when_the_user_goes_on() {
    let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read)], 0.0));
    sim.scripts
        .extend([vec![Step::Wait(60_000)], vec![Step::Wait(60_000)]]);
    sim.drafts
        .push_back(sampled([100, 40_000, 40_000], "weather", boulder()));
    sim.speak("what is the weather", 1_000);
    sim.silence(192);
    assert_eq!(questions(&sim), 1);
    sim.speak("what is the weather in rome today", 900);
    sim.silence(300);
    assert_eq!(stops(&sim).len(), 1);
    assert_eq!(questions(&sim), 2, "and asked again with the new words");
}

/// It was announced although the user went on.
#[test]
fn a_call_that_was_sampled_for_fewer_words_is_not_announced() {
    let mut tool = early("weather", Effect::Read);
    tool.fillers.short = vec!["Checking {{ city }}.".into()];
    let mut policy = drafting(vec![tool], 0.0);
    policy.filler.lead = FillerLead::Router;
    let mut sim = Sim::new(policy);
    (sim.by_prompt, sim.tool_ms, sim.completeness) = (true, 4_000, 0.5);
    sim.scripts
        .push_back(vec![Step::Wait(600), say("So do I."), end()]);
    sim.drafts
        .push_back(sampled([10, 20, 30], "weather", boulder()));
    sim.speak("i like the weather in boulder", 1_000);
    sim.silence(350);
    assert_eq!(sim.started(), [(false, "weather".to_owned())]);
    sim.speak("i like the weather in boulder in spring", 800);
    sim.silence(6_000);
    assert_eq!(sim.spoken(), ["So do I."]);
}

/// The first call that was sampled stayed the likeliest of its tool.
#[test]
fn the_call_that_most_samples_made_starts_when_the_model_begins_one() {
    let mut tool = early("weather", Effect::Read);
    tool.speculation.min_confidence = 0.9;
    let mut sim = Sim::new(drafting(vec![tool], 0.0));
    let mut drafts = sampled([10, 200, 300], "weather", boulder());
    drafts[0] = sampled([10; 3], "weather", json!({"city": "rome"}))[0].clone();
    sim.drafts.extend([drafts, Vec::new()]);
    let [opened, closed] = call_with("weather", boulder());
    let first = vec![Step::Wait(1_500), opened, Step::Wait(300), closed, end()];
    sim.scripts
        .extend([first, vec![say("It is sunny."), end()]]);
    ask(&mut sim, "what is the weather in boulder", 9_000);
    let runs = &sim.records()[0].runs;
    let cities: Vec<&Value> = runs.iter().map(|run| &run.arguments["city"]).collect();
    assert_eq!(cities, ["boulder"]);
}

#[test]
fn a_call_that_changes_something_is_refused_by_the_gate() {
    for effect in [Effect::Keyed, Effect::Reversible, Effect::Irreversible] {
        let mut book = early("book", effect);
        book.speculation.min_confidence = 0.0;
        let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read), book], 0.0));
        sim.scripts
            .push_back(vec![Step::Wait(1_500), say("Nothing to do."), end()]);
        sim.drafts
            .push_back(sampled([10, 20, 30], "book", boulder()));
        ask(&mut sim, "book a table in boulder", 6_000);
        let record = &sim.records()[0];
        assert!(record.runs.is_empty(), "{effect:?}: {:?}", record.runs);
        let refused = match effect {
            Effect::Keyed => "warmed_up",
            _ => "forbidden",
        };
        let decisions = predicted(&sim);
        assert_eq!(decisions.len(), 3);
        assert!(decisions.iter().all(|(_, name)| *name == refused));
    }
}

#[test]
fn without_a_tool_that_may_run_early_it_is_not_asked() {
    let mut sim = Sim::new(drafting(vec![early("book", Effect::Reversible)], 0.0));
    asked(&mut sim, Vec::new());
    assert_eq!(questions(&sim), 0);
}

#[test]
fn a_spent_budget_and_a_busy_server_ask_nothing() {
    for input in [
        Input::DraftBudget { spent: true },
        Input::Load {
            shed: Shed::Speculation,
        },
    ] {
        let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read)], 0.0));
        sim.input(input);
        asked(&mut sim, Vec::new());
        assert_eq!(questions(&sim), 0);
    }
}

/// The experience of drafts of these tokens, that were right or wrong, and saved a second each if they were right.
fn after(drafts: &[bool], tokens: u64) -> Experience {
    let mut experience = Experience::default();
    for hit in drafts {
        experience.learn(Lesson::Drafted {
            tool: "weather".into(),
            hit: *hit,
        });
        experience.learn(Lesson::DraftCost {
            tokens,
            saved: Micros::from_ms(1_000 * u64::from(*hit)),
        });
    }
    experience
}

/// Whether a session with this experience asks the draft model.
fn asks(experience: Experience, token_price: f64) -> bool {
    let policy = drafting(vec![early("weather", Effect::Read)], token_price);
    let mut sim = Sim::experienced(policy, experience);
    asked(&mut sim, Vec::new());
    questions(&sim) > 0
}

#[test]
fn below_break_even_it_is_not_asked() {
    assert!(asks(Experience::default(), 0.0));
    assert!(asks(after(&[true; 20], 1_000), 0.0));
    assert!(!asks(after(&[false; 20], 1_000), 0.0), "it is never right");
    assert!(
        !asks(
            after(&[true, false, false, false, false, false, false], 0),
            0.0
        ),
        "too often wrong for the tool's least confidence"
    );
    // A second is worth 0.01: as much as a thousand tokens at 10 a million.
    assert!(asks(after(&[true; 20], 1_000), 9.9));
    assert!(!asks(after(&[true; 20], 1_000), 10.1), "it costs too much");
}

#[test]
fn a_draft_below_break_even_is_tried_again_and_recovers() {
    let mut sim = Sim::experienced(
        drafting(vec![early("weather", Effect::Read)], 0.0),
        after(&[false; 4], 0),
    );
    let right = || sampled([100, 200, 300], "weather", boulder());
    for _ in 0..4 {
        asked(&mut sim, right());
    }
    assert_eq!(questions(&sim), 0, "eight generations, in four turns");
    sim.drafts.clear();
    asked(&mut sim, right());
    assert_eq!(questions(&sim), 1, "the tenth chance is taken");
}

#[test]
fn the_tool_s_acceptance_rate_bounds_the_probability() {
    let policy = drafting(
        vec![early("weather", Effect::Read), early("news", Effect::Read)],
        0.0,
    );
    let mut experience = after(&[false; 20], 0);
    // Another tool keeps the draft worth asking.
    for _ in 0..20 {
        let (tool, hit) = ("news".into(), true);
        experience.learn(Lesson::Drafted { tool, hit });
    }
    let mut sim = Sim::experienced(policy, experience);
    asked(&mut sim, sampled([100, 200, 300], "weather", boulder()));
    let decisions = predicted(&sim);
    assert_eq!(decisions.len(), 3);
    assert!(decisions.iter().all(|(_, name)| *name == "unlikely"));
}

/// The time that calls began earlier because of drafts, ms, as the lessons tell.
fn saved(sim: &mut Sim) -> u64 {
    let lessons = sim.core.take_lessons().into_iter();
    let saved = lessons.filter_map(|lesson| match lesson {
        Lesson::DraftCost { saved, .. } => Some(saved.as_ms()),
        _ => None,
    });
    saved.sum()
}

fn foreseen() -> Sources {
    Box::new(|_| {
        vec![crate::prediction::Prediction {
            tool: "weather".into(),
            arguments: boulder().as_object().cloned().unwrap(),
            confidence: 0.9,
            source: crate::prediction::Source::Rule,
            open: Vec::new(),
        }]
    })
}

/// The first sample alone starts nothing, and what a rule starts was not started by a draft.
#[test]
fn a_draft_saves_what_its_run_was_ahead_and_no_more() {
    let mut alone = weather(sampled([100, 900, 4_000], "weather", boulder()));
    let run = alone.records()[0].runs[0].clone();
    assert_eq!(run.source, Some(crate::prediction::Source::Draft));
    let of_run = run.saved.as_ms();
    assert_eq!(saved(&mut alone), of_run);
    let policy = || drafting(vec![early("weather", Effect::Read)], 0.0);
    let mut second = Sim::new(policy());
    second.router = foreseen();
    asked(&mut second, sampled([100, 200, 300], "weather", boulder()));
    assert_eq!(saved(&mut second), 0, "the rule was first");
    let mut late_rule = Sim::new(policy());
    late_rule.router = foreseen();
    late_rule.router_ms = 600;
    late_rule.tool_ms = 5_000;
    asked(&mut late_rule, sampled([10, 20, 30], "weather", boulder()));
    let ahead = saved(&mut late_rule);
    assert!((1..=600).contains(&ahead), "{ahead} ms until the rule");
}

/// A policy whose model makes plans.
fn planning() -> Policy {
    let mut policy = drafting(vec![early("weather", Effect::Read)], 0.0);
    policy.briefing.plans = true;
    policy
}

fn plan() -> Value {
    json!({"steps": [{"tool": "weather", "arguments": boulder()}]})
}

#[test]
fn a_drafted_call_is_compared_with_the_steps_of_a_plan() {
    let planned = |drafts: Vec<Sample>| {
        let mut sim = Sim::new(planning());
        let mut script = vec![Step::Wait(1_500)];
        script.extend(call_with(crate::llm::plan::PLAN, plan()));
        script.push(end());
        sim.scripts.extend([script, vec![say("Sunny."), end()]]);
        sim.drafts.push_back(drafts);
        sim.tool_ms = 400;
        ask(&mut sim, "what is the weather in boulder", 9_000);
        let lessons = sim.core.take_lessons().into_iter();
        let drafted: Vec<bool> = lessons
            .filter_map(|lesson| match lesson {
                Lesson::Drafted { hit, .. } => Some(hit),
                _ => None,
            })
            .collect();
        (drafted, sim.started().len())
    };
    let right = sampled([100, 200, 300], "weather", boulder());
    assert_eq!(planned(right), (vec![true], 1));
    let wrong = sampled([100, 200, 300], "weather", json!({"city": "rome"}));
    assert_eq!(planned(wrong), (vec![false], 2));
    let in_a_plan = sampled([100, 200, 300], crate::llm::plan::PLAN, plan());
    assert_eq!(
        planned(in_a_plan),
        (vec![true], 1),
        "a sample may be a plan"
    );
}

#[test]
fn a_recording_tells_what_another_number_of_samples_would_have_done() {
    let policy = |samples| {
        let mut policy = drafting(vec![early("weather", Effect::Read)], 0.0);
        policy.speculation.draft = policy
            .speculation
            .draft
            .map(|draft| DraftPolicy { samples, ..draft });
        policy
    };
    let mut sim = Sim::recorded(policy(3), "samples".into());
    let mut drafts = sampled([100, 300, 500], "weather", boulder());
    drafts[1] = sampled([300; 3], "weather", json!({"city": "rome"}))[0].clone();
    asked(&mut sim, drafts);
    let recording = Recording::read(sim.recording().as_bytes()).expect("a recording");
    let under = |samples| what_if(&recording, policy(samples), None);
    let told = |samples| {
        let found = under(samples).expect("as many samples");
        let total = found.changed.total;
        let saved = (total.saved_seconds * 1_000.0).round() as i64;
        let hits = (total.starts, total.hits);
        (hits, saved, found.changed.drafts, found.unknown.predictions)
    };
    // The router's questions have no answer in the recording.
    let (hits, was, drafts, unknown) = told(3);
    assert_eq!((hits, drafts.accepted), ((1, 1), 1), "two of three agreed");
    let (hits, one, fewer, same) = told(1);
    assert_eq!((hits, fewer.accepted), ((1, 1), 1), "the first was right");
    assert_eq!(same, unknown);
    assert_eq!(one, was, "the result was there long before the call");
    assert!(fewer.tokens < drafts.tokens, "{fewer:?}");
    let (recorded, asked) = (3, 5);
    let missing = MissingSamples::Fewer { recorded, asked };
    assert_eq!(under(5), Err(missing), "two of five would have agreed");
    let error = missing.to_string();
    for part in ["3 samples", "asks for 5", "draft.samples"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_recording_without_a_draft_model_tells_nothing_about_its_samples() {
    let without = || with(vec![early("weather", Effect::Read)]);
    let mut sim = Sim::recorded(without(), "no-samples".into());
    asked(&mut sim, Vec::new());
    let recording = Recording::read(sim.recording().as_bytes()).expect("a recording");
    assert!(what_if(&recording, without(), None).is_ok());
    let policy = drafting(vec![early("weather", Effect::Read)], 0.0);
    let missing = MissingSamples::NoDraft { asked: 3 };
    assert_eq!(what_if(&recording, policy, None), Err(missing));
}

#[test]
fn another_call_of_the_tool_and_a_late_one_are_misses() {
    let lessons = |drafts: Vec<Sample>| {
        let mut sim = weather(drafts);
        let lessons = sim.core.take_lessons();
        let drafted = |lesson: &Lesson| matches!(lesson, Lesson::Drafted { .. });
        lessons.into_iter().filter(drafted).collect::<Vec<_>>()
    };
    let lesson = |hit| Lesson::Drafted {
        tool: "weather".into(),
        hit,
    };
    let city = |city: &str| sampled([100, 200, 300], "weather", json!({ "city": city }));
    assert_eq!(lessons(city("boulder")), [lesson(true)]);
    assert_eq!(lessons(city("rome")), [lesson(false)]);
    let late = sampled([4_000, 4_000, 4_000], "weather", boulder());
    assert_eq!(lessons(late), [lesson(false)]);
}

#[test]
fn a_prediction_of_the_router_does_not_take_the_place_of_a_sampled_call() {
    let mut sim = Sim::new(drafting(vec![early("weather", Effect::Read)], 0.0));
    sim.router_ms = 500;
    sim.router = Box::new(|_| {
        vec![crate::prediction::Prediction {
            tool: "weather".into(),
            arguments: json!({"city": "in"}).as_object().cloned().unwrap(),
            confidence: 0.9,
            source: crate::prediction::Source::Rule,
            open: Vec::new(),
        }]
    });
    asked(&mut sim, sampled([10, 20, 30], "weather", boulder()));
    let record = &sim.records()[0];
    let committed = record
        .runs
        .iter()
        .find(|run| matches!(run.fate, Fate::Committed { .. }));
    let source = committed.and_then(|run| run.source);
    assert_eq!(source, Some(crate::prediction::Source::Draft));
}
