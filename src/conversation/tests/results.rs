//! Sessions with a tool whose fixed argument comes from the result of another.

use super::sim::{Script, call_with};
use super::speculation::prediction;
use super::*;
use crate::conversation::{Decision, Decline, Fate};
use crate::llm::plan::PLAN;
use crate::tools::Eligibility;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// `find` finds a customer, from whose result `balance` gets its account. Both may run early.
fn bank(finder: &str) -> Policy {
    let early = |name: &str| {
        let mut tool = (*tool(name, Effect::Read)).clone();
        tool.speculation.eligibility = Eligibility::Full;
        tool
    };
    let (mut find, mut balance) = (early(finder), early("balance"));
    find.feeds = true;
    (balance.fixed, balance.takes) = (vec!["account".into()], vec![finder.to_owned()]);
    let mut policy = with(vec![find, balance]);
    policy.speculation.preemptive = false;
    policy
}

/// Runs of `balance`: whether they were committed at their start, and what they took.
fn taken(sim: &Sim) -> Vec<(bool, Value)> {
    let runs = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::StartTool {
            committed,
            name,
            taken,
            ..
        } if name == "balance" => Some((committed.is_some(), Value::Object(taken.clone()))),
        _ => None,
    });
    runs.collect()
}

fn calling(calls: &[(&str, Value)]) -> Script {
    let mut script = vec![Step::Wait(400)];
    for (name, arguments) in calls {
        script.extend(call_with(name, arguments.clone()));
    }
    script.push(end());
    script
}

fn answer() -> Script {
    vec![say("All right."), end()]
}

fn expect_balance(sim: &mut Sim) {
    sim.router = Box::new(|_| vec![prediction("balance", json!({}), 0.9)]);
}

/// A session in which the customer was found.
fn found(finder: &str) -> Sim {
    let mut sim = Sim::new(bank(finder));
    sim.results.insert("find".into(), json!({"id": "c-7"}));
    sim.scripts
        .extend([calling(&[(finder, json!({}))]), answer()]);
    ask(&mut sim, "it is ann", 6_000);
    expect_balance(&mut sim);
    sim
}

#[test]
fn a_tool_does_not_start_early_before_the_result_that_it_needs() {
    let mut sim = Sim::new(bank("find"));
    expect_balance(&mut sim);
    sim.scripts
        .extend([calling(&[("balance", json!({"account": "c-1"}))]), answer()]);
    ask(&mut sim, "what is my balance", 6_000);
    assert_eq!(taken(&sim), [(true, json!({}))], "the tool itself refuses");
    let declined = Decision::Declined(Decline::ResultMissing);
    assert_eq!(sim.records()[0].predictions[0].decision, declined);
}

#[test]
fn an_early_run_takes_the_result_of_the_committed_call() {
    let mut sim = found("find");
    sim.scripts
        .extend([calling(&[("balance", json!({"account": "c-1"}))]), answer()]);
    ask(&mut sim, "what is my balance", 6_000);
    assert_eq!(taken(&sim), [(false, json!({"find": {"id": "c-7"}}))]);
    let runs = &sim.records()[1].runs;
    assert!(matches!(runs[0].fate, Fate::Committed { .. }), "{runs:?}");
    let seen = format!("{:?}", sim.core.history.messages());
    assert!(!seen.contains("c-1"), "{seen}");
}

#[test]
fn a_run_with_the_result_before_a_newer_call_is_stale() {
    let mut sim = found("find");
    sim.results.insert("find".into(), json!({"id": "c-8"}));
    sim.tool_ms = 300;
    let both = [("find", json!({"name": "Ben"})), ("balance", json!({}))];
    sim.scripts.extend([calling(&both), answer()]);
    ask(&mut sim, "and what has ben", 8_000);
    let all = [
        (false, json!({"find": {"id": "c-7"}})),
        // It waits for the newer result.
        (true, json!({"find": {"id": "c-8"}})),
    ];
    assert_eq!(taken(&sim), all);
    let stale = |run: &crate::conversation::RunRecord| {
        matches!(
            run.fate,
            Fate::Discarded {
                reason: Discard::Stale,
                ..
            }
        )
    };
    assert!(sim.records()[1].runs.iter().any(stale));
}

#[test]
fn a_result_of_a_later_call_that_began_early_sets_no_argument() {
    for early in [true, false] {
        let mut sim = planning(bank("find"), early);
        // The balance of the first customer, and a search for the second.
        let steps = json!([
            {"tool": "balance", "arguments": {}},
            {"tool": "find", "arguments": {"name": "Ben"}},
        ]);
        let calls = [
            ("find", json!({"name": "Ann"})),
            (PLAN, json!({ "steps": steps })),
        ];
        let mut script = calling(&calls);
        script.remove(0);
        sim.scripts.extend([script, answer()]);
        ask(&mut sim, "what is her balance", 8_000);
        let first = json!({"find": "find of {\"name\":\"Ann\"}"});
        assert_eq!(taken(&sim), [(true, first)], "early: {early}");
    }
}

/// A session whose model makes plans. `early`: whether it speculates.
fn planning(mut policy: Policy, early: bool) -> Sim {
    policy.briefing.plans = true;
    policy.speculation.preemptive = true;
    policy.speculation.enabled = early;
    let mut sim = Sim::new(policy);
    (sim.tool_ms, sim.by_prompt) = (600, true);
    sim
}

/// `change` is a step that all steps behind it wait for. Returns what `balance`, which is called behind the plan, took.
fn behind_a_plan(change: &str, early: bool) -> Vec<(bool, Value)> {
    let mut sim = with_call_behind_a_plan(change, early);
    ask(&mut sim, "what is his balance", 12_000);
    assert_eq!(sim.spoken().last().map(String::as_str), Some("All right."));
    taken(&sim)
}

fn with_call_behind_a_plan(change: &str, early: bool) -> Sim {
    let mut policy = bank("find");
    Arc::make_mut(&mut policy.tools).push(tool(change, Effect::Reversible));
    let mut sim = planning(policy, early);
    let steps = json!([
        {"tool": change, "arguments": {}},
        {"tool": "find", "arguments": {"name": "Ben"}},
    ]);
    let mut script = calling(&[(PLAN, json!({ "steps": steps })), ("balance", json!({}))]);
    script.remove(0);
    sim.scripts.extend([script, answer()]);
    sim
}

/// It waited for ever, because the step took over a run that was over.
#[test]
fn a_call_behind_a_plan_goes_on_when_its_step_takes_over_a_result() {
    let mut sim = with_call_behind_a_plan("change", true);
    sim.router = Box::new(|_| vec![prediction("find", json!({"name": "Ben"}), 0.9)]);
    ask(&mut sim, "what is his balance", 12_000);
    assert!(sim.started().contains(&(false, "find".to_owned())));
    assert_eq!(sim.spoken().last().map(String::as_str), Some("All right."));
    let found = json!({"find": "find of {\"name\":\"Ben\"}"});
    assert_eq!(taken(&sim), [(true, found)]);
}

#[test]
fn a_call_behind_a_plan_waits_for_the_step_that_sets_its_argument() {
    for early in [false, true] {
        let found = json!({"find": "find of {\"name\":\"Ben\"}"});
        assert_eq!(
            behind_a_plan("change", early),
            [(true, found)],
            "early: {early}"
        );
    }
}

#[test]
fn a_call_behind_a_plan_that_ends_early_goes_on_without_its_steps() {
    for early in [false, true] {
        let nothing = Value::Object(Map::new());
        assert_eq!(
            behind_a_plan("broken", early),
            [(true, nothing)],
            "early: {early}"
        );
    }
}

/// Such a result counted or not, whichever of the two steps was faster, so a run that had begun early changed what later
/// calls got.
#[test]
fn the_result_of_a_step_behind_a_failed_one_does_not_count() {
    for (broken_ms, early, is_behind) in [
        (100, false, true),
        (1_000, false, true),
        (1_000, true, true),
        (100, false, false),
        (1_000, false, false),
        (1_000, true, false),
    ] {
        let mut policy = bank("find");
        Arc::make_mut(&mut policy.tools).push(tool("broken", Effect::Read));
        let mut sim = planning(policy, early);
        sim.tool_times = [("broken".to_owned(), broken_ms)].into();
        let steps = json!([
            {"tool": "broken", "arguments": {}},
            {"tool": "find", "arguments": {"name": "Ben"}},
        ]);
        let plan = (PLAN, json!({ "steps": steps }));
        let balance = ("balance", json!({}));
        if is_behind {
            sim.scripts.extend([calling(&[plan, balance]), answer()]);
        } else {
            let (plan, balance) = (calling(&[plan]), calling(&[balance]));
            sim.scripts.extend([plan, balance, answer()]);
        }
        ask(&mut sim, "what is his balance", 12_000);
        assert_eq!(sim.spoken().last().map(String::as_str), Some("All right."));
        let case = format!("broken after {broken_ms} ms, early: {early}, behind: {is_behind}");
        let committed = taken(&sim).into_iter().filter(|(committed, _)| *committed);
        let took: Vec<Value> = committed.map(|(_, took)| took).collect();
        assert_eq!(took, [Value::Object(Map::new())], "{case}");
    }
}

/// The result of such a step counted for nobody.
#[test]
fn a_step_behind_a_yes_feeds_those_behind_it() {
    let mut policy = bank("find");
    let tools = Arc::make_mut(&mut policy.tools);
    Arc::make_mut(&mut tools[0]).confirmation = asking("find", "Shall I?").confirmation;
    let mut sim = planning(policy, false);
    let steps = ["find", "balance"].map(|tool| json!({"tool": tool, "arguments": {"name": "Ben"}}));
    let plan = calling(&[(PLAN, json!({ "steps": steps }))]);
    sim.scripts.extend([plan, answer()]);
    ask(&mut sim, "what is the balance of Ben", 5_000);
    assert_eq!(sim.spoken().last().map(String::as_str), Some("Shall I?"));
    ask(&mut sim, "Yes.", 9_000);
    let ben = json!({"find": "find of {\"name\":\"Ben\"}"});
    assert_eq!(taken(&sim), [(true, ben)]);
}

/// A call got the result from before the plan instead of none.
#[test]
fn a_step_that_has_failed_and_those_behind_it_leave_no_older_result() {
    for (steps, early) in [
        (["find", "broken"], false),
        (["broken", "find"], false),
        (["broken", "find"], true),
    ] {
        let mut policy = bank("find");
        Arc::make_mut(&mut policy.tools).push(tool("broken", Effect::Read));
        let mut sim = planning(policy, early);
        let is_before = steps[0] == "find";
        let steps = steps.map(|tool| json!({"tool": tool, "arguments": {"name": "Ben"}}));
        let found = ("find", json!({"name": "Ann"}));
        sim.scripts.extend([
            calling(&[found]),
            calling(&[(PLAN, json!({ "steps": steps }))]),
            calling(&[("balance", json!({}))]),
            answer(),
        ]);
        ask(&mut sim, "what is his balance", 15_000);
        let ben = json!({"find": "find of {\"name\":\"Ben\"}"});
        let nothing = Value::Object(Map::new());
        let expected = if is_before { ben } else { nothing };
        let committed = taken(&sim).into_iter().filter(|(committed, _)| *committed);
        let took: Vec<Value> = committed.map(|(_, took)| took).collect();
        assert_eq!(took, [expected], "{steps:?}, early: {early}");
    }
}

/// It waited for a step that neither of the two needs, and for ever if that never began.
#[test]
fn a_step_that_takes_a_result_waits_for_no_other_step_of_its_plan() {
    let mut policy = bank("find");
    Arc::make_mut(&mut policy.tools).push(tool("slow", Effect::Read));
    let mut sim = planning(policy, false);
    sim.tool_times = [("slow".to_owned(), 5_000)].into();
    let steps = ["slow", "find", "balance"].map(|tool| json!({"tool": tool, "arguments": {}}));
    sim.scripts
        .extend([calling(&[(PLAN, json!({ "steps": steps }))]), answer()]);
    ask(&mut sim, "what is his balance", 12_000);
    let at = |tool: &str| {
        let starts = sim.outputs.iter().find_map(|(at, output)| match output {
            Output::StartTool { name, .. } if name == tool => Some(*at),
            _ => None,
        });
        starts.expect("it starts")
    };
    let waited = at("balance").since(at("find"));
    assert_eq!(waited, Micros::from_ms(600), "as long as `find` takes");
}

/// A run that began while the plan waited for the yes had taken the result of a call behind the plan.
#[test]
fn a_step_behind_a_yes_takes_the_result_before_its_plan() {
    for early in [false, true] {
        let mut policy = bank("find");
        Arc::make_mut(&mut policy.tools).push(Arc::new(asking("pay", "Shall I pay it?")));
        let mut sim = planning(policy, early);
        sim.tool_ms = 50;
        sim.router = Box::new(|_| vec![prediction("balance", json!({}), 0.9)]);
        let steps = json!([
            {"tool": "pay", "arguments": {}},
            {"tool": "balance", "arguments": {}},
        ]);
        let found = ("find", json!({"name": "Ann"}));
        let first = calling(&[found, (PLAN, json!({ "steps": steps }))]);
        let second = calling(&[("find", json!({"name": "Ben"}))]);
        sim.scripts.extend([first, second, answer(), answer()]);
        ask(&mut sim, "pay the bill of Ann", 6_000);
        ask(&mut sim, "Yes.", 6_000);
        let committed = taken(&sim).into_iter().filter(|(committed, _)| *committed);
        let took: Vec<Value> = committed.map(|(_, took)| took).collect();
        let ann = json!({"find": "find of {\"name\":\"Ann\"}"});
        assert_eq!(took, [ann], "early: {early}");
    }
}

#[test]
fn a_call_that_has_failed_leaves_no_older_result() {
    let mut sim = found("broken");
    sim.scripts
        .extend([calling(&[("balance", json!({}))]), answer()]);
    ask(&mut sim, "what is my balance", 6_000);
    assert_eq!(taken(&sim), [(true, json!({}))]);
}

#[test]
fn a_speculative_result_sets_nothing() {
    let mut sim = Sim::new(bank("find"));
    sim.router = Box::new(|_| vec![prediction("find", json!({}), 0.9)]);
    sim.scripts
        .extend([calling(&[("balance", json!({}))]), answer()]);
    ask(&mut sim, "what is my balance", 6_000);
    assert!(sim.started().contains(&(false, "find".to_owned())));
    assert_eq!(taken(&sim), [(true, Value::Object(Map::new()))]);
}

/// Whichever was done last used to count, so that a run that had begun early changed what a later call got.
#[test]
fn of_calls_side_by_side_the_last_one_counts_although_it_was_done_first() {
    let mut sim = Sim::new(bank("find"));
    sim.policy().speculation.assumed_per_turn = 0;
    sim.router = Box::new(|_| vec![prediction("find", json!({"n": 2}), 0.9)]);
    let both = [("find", json!({"n": 1})), ("find", json!({"n": 2}))];
    sim.scripts
        .extend([calling(&both), calling(&[("balance", json!({}))]), answer()]);
    ask(&mut sim, "find both of them", 9_000);
    let last = json!({"find": "find of {\"n\":2}"});
    assert_eq!(taken(&sim), [(true, last)]);
}
