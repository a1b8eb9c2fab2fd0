//! Unit tests of assumed commits; whole sessions are in `../tests/assumed.rs`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::output::Output;
use crate::conversation::policy::Policy;
use crate::llm::Demands;
use crate::tools::{Declaration, Effect, ToolSpec};
use std::sync::Arc;
use std::time::Duration;

const MAIN: RequestId = RequestId(100);

fn prompt(instructions: &str) -> Prompt {
    Prompt {
        instructions: Some(instructions.into()),
        messages: Vec::new(),
        day: None,
        tools: Arc::default(),
        demands: Demands::default(),
    }
}

fn guess(run: u64) -> Guess {
    Guess {
        run: RunId(run),
        tool: "weather".into(),
        arguments: Map::new(),
        confidence: 0.9,
        result: Value::Null,
        by_client: false,
        is_made: false,
    }
}

fn may_begin(assumed: &mut Assumed, common: &mut Common, run: u64) -> bool {
    let guess = guess(run);
    assumed.is_allowed(common, &guess) && assumed.is_worth_it(common, &guess, 1_000)
}

fn common() -> Common {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: "weather".into(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    };
    let tool = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
    let policy = Policy {
        tools: Arc::new(vec![Arc::new(tool)]),
        ..Policy::default()
    };
    Common::new(policy, Experience::default())
}

/// Tries once; returns whether that was allowed.
fn try_once(assumed: &mut Assumed, common: &mut Common, run: u64, hit: bool) -> bool {
    assumed.begin_turn();
    if !may_begin(assumed, common, run) {
        return false;
    }
    assumed.assume(common, prompt("a"), MAIN, false, guess(run));
    let taken = hit.then_some(RunId(run));
    assert_eq!(assumed.commit(common, taken, &[]).is_some(), hit);
    assert_eq!(assumed.take(common, &prompt("a")).is_some(), hit);
    true
}

#[test]
fn a_committed_guess_is_taken_over_with_the_same_prompt_only() {
    for (words, same) in [("a", true), ("b", false)] {
        let (mut common, mut assumed) = (common(), Assumed::default());
        assumed.assume(&mut common, prompt("a"), MAIN, false, guess(1));
        assert_eq!(assumed.withholds(MAIN), Some("weather"));
        assert!(assumed.commit(&mut common, Some(RunId(1)), &[]).is_some());
        assert_eq!(assumed.withholds(MAIN), None);
        assert_eq!(assumed.take(&mut common, &prompt(words)).is_some(), same);
        assert!(assumed.is_idle());
    }
}

#[test]
fn without_a_commit_it_is_never_taken_over() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    assumed.assume(&mut common, prompt("a"), MAIN, false, guess(1));
    assert!(assumed.take(&mut common, &prompt("a")).is_none());
    let cancelled = common.outputs.back();
    assert!(matches!(cancelled, Some(Output::CancelGeneration { .. })));
    assert!(!common.held[0].used);
}

#[test]
fn there_is_one_in_a_turn() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    assert!(try_once(&mut assumed, &mut common, 1, true));
    assert!(!may_begin(&mut assumed, &mut common, 2));
    assumed.begin_turn();
    assert!(may_begin(&mut assumed, &mut common, 2));
}

#[test]
fn a_tool_that_is_often_not_called_is_assumed_only_now_and_then() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    let tries = (0..200).filter(|run| try_once(&mut assumed, &mut common, *run, false));
    let tries = tries.count();
    assert!((5..20).contains(&tries), "{tries} of 200");
    let hits = (200..1_600).filter(|run| try_once(&mut assumed, &mut common, *run, true));
    assert!(hits.count() > 500, "it recovers");
}

/// It counted as an assumed commit that came true, and never as one that did not, since an early answer that is dropped
/// takes it along.
#[test]
fn a_call_that_an_early_answer_has_made_says_nothing_of_how_often_its_tool_is_called() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    let made = |run| Guess {
        is_made: true,
        ..guess(run)
    };
    assumed.assume(&mut common, prompt("a"), MAIN, false, made(1));
    assert!(assumed.commit(&mut common, Some(RunId(1)), &[]).is_some());
    assert_eq!(common.experience.assumed("weather"), (0, 0));
    assumed.drop(&mut common, true);
    for run in 2..100 {
        try_once(&mut assumed, &mut common, run, false);
    }
    assert!(!assumed.is_worth_it(&mut common, &guess(100), 1_000));
    assert!(assumed.is_worth_it(&mut common, &made(100), 1_000));
}

#[test]
fn tokens_must_be_worth_their_price() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    common.policy.speculation.token_price = 0.5;
    assert!(may_begin(&mut assumed, &mut common, 1));
    common.policy.speculation.token_price = 500.0;
    assert!(!may_begin(&mut assumed, &mut common, 2));
}

/// A call that was not worth it while it was unlikely stayed declined when it was certain.
#[test]
fn a_call_that_becomes_likelier_is_considered_again() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    common.policy.speculation.token_price = 5.0;
    let mut guess = guess(1);
    guess.confidence = 0.45;
    assert!(!assumed.is_worth_it(&mut common, &guess, 1_000));
    assert!(!assumed.is_allowed(&common, &guess), "asked once");
    guess.confidence = 0.95;
    assert!(assumed.is_allowed(&common, &guess));
    assert!(assumed.is_worth_it(&mut common, &guess, 1_000));
}

#[test]
fn a_stale_result_or_another_call_ends_it() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    assumed.assume(&mut common, prompt("a"), MAIN, false, guess(1));
    let ready = |_: RunId| true;
    assert!(assumed.may_be_used(false, None, ready));
    assert!(assumed.may_be_used(false, Some("weather"), ready));
    assert!(!assumed.may_be_used(false, Some("clock"), ready));
    assert!(
        !assumed.may_be_used(true, None, ready),
        "the words were said"
    );
    assert!(!assumed.may_be_used(false, None, |_| false));
}

#[test]
fn a_generation_behind_an_answer_that_is_gone_has_not_missed() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    let ready = |_: RunId| true;
    assert_eq!(assumed.useless(Main::Over, ready), None, "there is none");
    assumed.assume(&mut common, prompt("a"), MAIN, false, guess(1));
    assert_eq!(assumed.useless(Main::Held, |_| false), None);
    assert_eq!(assumed.useless(Main::Gone, ready), Some(Useless::Gone));
    assert_eq!(assumed.useless(Main::Over, ready), Some(Useless::Missed));
    let streams = |called| Main::Streams {
        spoken: false,
        called,
    };
    assert_eq!(assumed.useless(streams(Some("weather")), ready), None);
    let other = assumed.useless(streams(Some("clock")), ready);
    assert_eq!(other, Some(Useless::Missed));
}

#[test]
fn a_server_that_takes_results_is_not_asked_twice() {
    let (mut common, mut assumed) = (common(), Assumed::default());
    common.policy.briefing.tool_cache = true;
    assert!(!may_begin(&mut assumed, &mut common, 1));
}
