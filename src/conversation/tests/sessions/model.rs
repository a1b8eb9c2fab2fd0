//! The model and the prediction sources of a generated session.

use super::super::sim::{Sample, Script, Sources, Step, call_with, end, read, say, streamed};
use super::super::*;
use super::{Dice, Kind};
use crate::llm::TokenUsage;
use crate::llm::plan::PLAN;
use crate::prediction::{Prediction, Source};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::rc::Rc;

pub(super) const SENTENCES: &[&str] = &[
    "Some words to say. ",
    "One two three four five six seven eight nine ten. ",
    "It is noon. ",
    "Let me look that up for you. ",
    "On and on and on and on and on and on and on and on and on and on ",
];

pub(super) fn numbered(n: u64) -> Map<String, Value> {
    Map::from_iter([("n".to_owned(), json!(n))])
}

/// Answers of the prediction sources; the nth request gets the nth of them.
pub(super) fn guesses(dice: &mut Dice, calls: &'static [&'static str]) -> Sources {
    let sources = [
        Source::Rule,
        Source::Intent,
        Source::Example,
        Source::Transition,
        Source::Draft,
    ];
    let guess = |dice: &mut Dice| Prediction {
        tool: dice.pick(calls).into(),
        arguments: numbered(dice.below(3)),
        confidence: dice.pick(&[0.3, 0.6, 0.9, 0.99]),
        source: dice.pick(&sources),
        open: Vec::new(),
    };
    let guesses: Rc<[Vec<Prediction>]> = (0..8)
        .map(|_| (0..dice.below(3)).map(|_| guess(dice)).collect())
        .collect();
    let asked = std::cell::Cell::new(0);
    Box::new(move |_| {
        let nth = asked.replace(asked.get() + 1);
        guesses[nth % guesses.len()].clone()
    })
}

/// The samples of the draft model, question by question.
pub(super) fn drafts(dice: &mut Dice, calls: &[&str]) -> VecDeque<Vec<Sample>> {
    let sample = |dice: &mut Dice| {
        let call = SampledCall {
            tool: dice.pick(calls).into(),
            arguments: numbered(dice.below(2)),
        };
        let call = dice.chance(80).then_some(call);
        (dice.pick(&[10, 60, 200, 1_500]), call)
    };
    (0..12)
        .map(|_| (0..3).map(|_| sample(dice)).collect())
        .collect()
}

/// One answer of the model.
pub(super) fn script(dice: &mut Dice, kind: &Kind) -> Script {
    let mut script = Vec::new();
    if kind.caching > 0 && dice.chance(kind.caching) {
        let response = format!("answer-{}", dice.below(3));
        script.push(Step::Event(LlmEvent::TakesResults { response }));
    }
    if dice.chance(20) {
        script.push(Step::Wait(dice.pick(&[300, 1_000, 2_500])));
    }
    if dice.chance(60) {
        script.push(say(dice.pick(SENTENCES)));
    }
    if dice.chance(kind.calling) {
        for _ in 0..1 + dice.below(2) {
            script.extend(called(dice, kind.calls));
            if kind.caching > 0 && dice.chance(kind.caching) {
                script.push(Step::Event(LlmEvent::GoesOn));
            }
        }
    }
    if dice.chance(50) {
        script.push(say(dice.pick(SENTENCES)));
    }
    if dice.chance(kind.faults) {
        script.extend(fault(dice));
    }
    if dice.chance(40) {
        let usage = TokenUsage {
            input: 100 + dice.below(100),
            cached: dice.below(50),
            output: dice.below(50),
            ..TokenUsage::default()
        };
        script.push(Step::Event(LlmEvent::Used { usage }));
    }
    script.push(end());
    script
}

fn called(dice: &mut Dice, calls: &[&str]) -> Script {
    let n = dice.below(3);
    let name = dice.pick(calls);
    if name == PLAN {
        return planned(dice, calls);
    }
    let [opened, closed] = call_with(name, json!({ "n": n }));
    if dice.chance(60) {
        return vec![opened, closed];
    }
    let piece = format!("{{\"n\": {n}");
    let piece = Step::Event(LlmEvent::ToolArguments { piece });
    if dice.chance(40) {
        return vec![opened, piece, Step::Wait(dice.pick(&[100, 800])), closed];
    }
    let mut script = streamed(
        dice.pick(calls),
        json!({ "n": n }),
        dice.pick(&[20, 300]),
        dice.pick(&[30, 800]),
    );
    if dice.chance(20) {
        // The call turns out to be another one.
        let other = read(json!({ "n": n + 1 }), dice.chance(50));
        script.splice(3..3, [other, Step::Wait(dice.pick(&[10, 500]))]);
    }
    script.insert(2, piece);
    script
}

/// A plan of these calls, some of which need what an earlier step returns, or a part that is not there.
fn planned(dice: &mut Dice, calls: &[&str]) -> Script {
    let step = |at: u64, dice: &mut Dice| {
        let mut arguments = json!({"n": dice.below(3)});
        if dice.chance(40) {
            let part = dice.pick(&["", "", "[0]"]);
            arguments["of"] = json!(format!("$step{}{part}", dice.below(at + 1)));
        }
        json!({"tool": dice.pick(&calls[2..]), "arguments": arguments})
    };
    let steps: Vec<Value> = (0..1 + dice.below(4)).map(|at| step(at, dice)).collect();
    call_with(PLAN, json!({ "steps": steps })).to_vec()
}

fn fault(dice: &mut Dice) -> Script {
    match dice.below(6) {
        0 if dice.chance(50) => {
            let name = "read".into();
            let opened = Step::Event(LlmEvent::ToolOpened { name });
            vec![opened, Step::Wait(50), Step::Break]
        }
        0 => vec![Step::Break],
        1 => vec![Step::Wait(60_000)],
        2 => vec![
            Step::Event(LlmEvent::Thinking),
            Step::Wait(3_000),
            Step::Event(LlmEvent::Thinking),
            Step::Event(LlmEvent::Unable),
        ],
        3 => vec![Step::Event(LlmEvent::Cut)],
        4 => {
            let name = "read".into();
            let arguments = Err("no closing bracket".into());
            vec![
                Step::Event(LlmEvent::ToolOpened { name }),
                Step::Event(LlmEvent::ToolClosed { arguments }),
            ]
        }
        _ => vec![say(&"Nine words are said in this one, you see. ".repeat(80))],
    }
}
