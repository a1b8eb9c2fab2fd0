//! `agent`: a research task of six calls, in five ways to carry it out.

mod figures;

use super::Settings;
use super::clock::{as_seconds, seconds};
use super::report::Report;
use super::world::{self, By, Call, Played, Round, Task, Voice};
use crate::conversation::{Fate, Micros, Policy};
use crate::dice::Dice;
use crate::prediction::{Evidence, Prediction, Source};
use crate::tools::{Declaration, Eligibility};
use serde_json::{Map, Value, json};

/// The task's tools: name, its argument, seconds, and tokens of a result.
const STEPS: [(&str, &str, f64, usize); 6] = [
    ("web_search", "query", 0.4, 1_500),
    ("arxiv_search", "query", 0.5, 300),
    ("fetch_url", "url", 0.6, 12_000),
    ("extract_text", "url", 0.2, 6_000),
    ("summarize", "source_url", 0.3, 400),
    ("synthesize", "notes", 0.4, 300),
];

/// Tokens of the system prompt and the tools: with the results the task has the article's 142,000 prompt tokens.
const SYSTEM: usize = 9_200;

/// The price of a call, $: the article's six calls cost $0.041.
const CALL_COST: f64 = 0.041 / 6.0;

/// Prices of a million tokens, $: of prompts, of prompts found in the cache, of output.
const PRICES: [f64; 3] = [5.0, 0.5, 25.0];
/// Output tokens per second.
const OUTPUT_RATE: f64 = 67.0;
/// The time to write a call, without the reasoning before it, s.
const WRITING: f64 = 0.2;

/// The article's shares of correct guesses: 22 % and 14 % are wrong.
const LEARNED: f64 = 0.78;
const PREDICTOR: f64 = 0.86;
/// The time of a small model relative to the large one: in the paper, 4.05 s against 6.3 s.
const PREDICTOR_TIME: f64 = 4.05 / 6.3;

const TASKS: usize = 40;
const REPEATS: usize = 5;

/// Name, and the model's generation, s. The last is what the article's 38.2 s leave for each of six generations
/// beside 2.4 s of tools.
const REGIMES: [(&str, f64); 3] = [
    ("tool-bound", 0.2),
    ("balanced", 0.4),
    ("model-bound", 5.97),
];

/// A way to carry out the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    Sequential,
    Parallel,
    Learned,
    LearnedTwo,
    Predictor,
    Plan,
}

const ARMS: [Arm; 6] = [
    Arm::Sequential,
    Arm::Parallel,
    Arm::Learned,
    Arm::LearnedTwo,
    Arm::Predictor,
    Arm::Plan,
];

/// Sums over all tasks of one run of an arm.
#[derive(Debug, Default, Clone)]
struct Sums {
    tasks: f64,
    wall: f64,
    steps: Vec<f64>,
    prompt_tokens: f64,
    cached_tokens: f64,
    output_tokens: f64,
    tools: f64,
    starts: f64,
    hits: f64,
    wasted: f64,
    /// The most that right guesses of the next call can hide, s.
    bound: f64,
}

impl Arm {
    fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Parallel => "native parallel",
            Self::Learned => "learned transitions",
            Self::LearnedTwo => "learned, depth 2",
            Self::Predictor => "small predictor",
            Self::Plan => "plan",
        }
    }

    fn accuracy(self) -> f64 {
        match self {
            Self::Learned | Self::LearnedTwo => LEARNED,
            Self::Predictor => PREDICTOR,
            Self::Sequential | Self::Parallel | Self::Plan => 0.0,
        }
    }

    /// The latency of the source of predictions, s.
    fn delay(self, generation: f64) -> f64 {
        match self {
            Self::Predictor => PREDICTOR_TIME * generation,
            _ => 0.000_02,
        }
    }

    /// The first call that it predicts: transitions need a call before it.
    fn first(self) -> usize {
        usize::from(matches!(self, Self::Learned | Self::LearnedTwo))
    }
}

impl Sums {
    /// The cost of the model's tokens and the tools, $ per task.
    fn spend(&self) -> f64 {
        let [fresh, cached, output] = PRICES.map(|price| price / 1e6);
        let model = (self.prompt_tokens - self.cached_tokens) * fresh
            + self.cached_tokens * cached
            + self.output_tokens * output;
        (model + self.tools * CALL_COST) / self.tasks
    }

    fn a_task(&self, sum: f64) -> f64 {
        sum / self.tasks
    }

    /// The quantile of the steps' durations at `share`, s.
    fn quantile(&self, share: f64) -> f64 {
        let mut steps = self.steps.clone();
        steps.sort_by(f64::total_cmp);
        let at = (share * steps.len() as f64).ceil() as usize;
        steps.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

/// All repeats of an arm in a regime.
#[derive(Debug)]
struct Cell {
    regime: &'static str,
    arm: Arm,
    runs: Vec<Sums>,
}

pub(super) fn run(settings: &Settings) -> Report {
    let mut cells: Vec<Cell> = Vec::new();
    for (regime, generation) in REGIMES {
        let mut runs = ARMS.map(|_| Vec::new());
        for repeat in 0..REPEATS {
            let measured = measure(settings.seed, (regime, generation), repeat, TASKS);
            for (runs, sums) in runs.iter_mut().zip(measured) {
                runs.push(sums);
            }
        }
        let of = ARMS.into_iter().zip(runs);
        cells.extend(of.map(|(arm, runs)| Cell { regime, arm, runs }));
    }
    Report {
        name: "agent".into(),
        title: "A research task of six calls".into(),
        seed: settings.seed,
        method: figures::method(),
        findings: figures::findings(&cells),
        tables: REGIMES.map(|regime| figures::table(&cells, regime)).into(),
        plots: vec![figures::plot(&cells)],
        checks: figures::checks(&cells),
    }
}

/// Plays tasks in all arms, one arm after the other for each task.
fn measure(seed: u64, (regime, generation): (&str, f64), repeat: usize, tasks: usize) -> [Sums; 6] {
    let mut all = ARMS.map(|_| Sums::default());
    let mut dice = Dice::named(seed, &format!("agent {regime} {repeat}"));
    for _ in 0..tasks {
        let topic = format!("topic {}", dice.index(1_000_000));
        let luck = STEPS.map(|_| dice.share());
        for (sums, arm) in all.iter_mut().zip(ARMS) {
            play(arm, &topic, generation, &luck, sums);
        }
    }
    all
}

fn play(arm: Arm, topic: &str, generation: f64, luck: &[f64; 6], sums: &mut Sums) {
    let is_plan = arm == Arm::Plan;
    let calls = if is_plan { linked(topic) } else { calls(topic) };
    let groups: &[usize] = match arm {
        Arm::Parallel => &[2, 1, 1, 1, 1],
        Arm::Plan => &[6],
        _ => &[1; 6],
    };
    let mut left = calls.iter().cloned();
    let round = |size: &usize| Round {
        generation: seconds(generation + WRITING * (*size as f64 - 1.0)),
        filler: None,
        written: Micros(0),
        calls: left.by_ref().take(*size).collect(),
        plan: is_plan.then(|| plan(topic)),
    };
    let task = Task {
        words: format!("Summarise what is known about {topic}."),
        by: By::Text,
        rounds: groups.iter().map(round).collect(),
        answer: Micros(0),
        voice: Voice::Server(Micros(0)),
    };
    let right = luck.map(|luck| luck < arm.accuracy());
    let delay = arm.delay(generation);
    let mut sources = |heard: &Evidence| {
        let next = heard.calls.len();
        let mut predictions: Vec<Prediction> = Vec::new();
        if (arm.first()..5).contains(&next) {
            predictions.push(prediction(&calls[next], right[next]));
        }
        if arm == Arm::LearnedTwo && next >= arm.first() && is_known_before(next + 1) {
            // Behind a wrong guess there is no second one.
            let follows = right[next].then(|| prediction(&calls[next + 1], right[next + 1]));
            predictions.extend(follows);
        }
        (!predictions.is_empty()).then(|| (seconds(delay), predictions))
    };
    let speculates = arm.accuracy() > 0.0;
    let mut policy = policy(speculates);
    policy.briefing.plans = is_plan;
    let Some(played) = world::play(policy, &task, &mut sources) else {
        return;
    };
    sums.take(&played, generation, &task);
    if speculates {
        let hidden = (arm.first()..5).filter(|step| right[*step]);
        let hidden = hidden.map(|step| STEPS[step].2.min(generation - delay));
        sums.bound += hidden.sum::<f64>();
    }
}

/// Whether the arguments of this step follow from the call before it, without that call's result.
fn is_known_before(step: usize) -> bool {
    matches!(
        STEPS.get(step),
        Some(("arxiv_search" | "extract_text" | "summarize", ..))
    )
}

impl Sums {
    fn take(&mut self, played: &Played, generation: f64, task: &Task) {
        self.tasks += 1.0;
        let rounds = played.rounds.iter().map(|round| as_seconds(*round));
        self.wall += rounds.clone().sum::<f64>();
        self.steps.extend(rounds);
        self.prompt_tokens += played.prompt_tokens as f64;
        self.cached_tokens += played.cached_tokens as f64;
        let written: f64 = task
            .rounds
            .iter()
            .map(|round| as_seconds(round.generation))
            .sum();
        self.output_tokens += OUTPUT_RATE * (written + generation);
        for run in &played.record.runs {
            self.tools += 1.0;
            let is_hit = matches!(run.fate, Fate::Committed { .. });
            let is_early = run.source == Some(Source::Transition);
            self.starts += f64::from(is_early);
            self.hits += f64::from(is_early && is_hit);
            self.wasted += as_seconds(run.wasted);
        }
    }
}

/// The calls of the task, with what they return.
fn calls(topic: &str) -> [Call; 6] {
    let url = json!(format!("https://arxiv.org/abs/{}", topic.replace(' ', "-")));
    let values = [
        json!(topic),
        json!(topic),
        url.clone(),
        url.clone(),
        url,
        json!(["a summary"]),
    ];
    let mut at = 0;
    STEPS.map(|(tool, argument, takes, tokens)| {
        let value = values[at].clone();
        at += 1;
        Call {
            tool: tool.into(),
            arguments: Map::from_iter([(argument.to_owned(), value)]),
            result: Value::from(text(tokens)),
            takes: seconds(takes),
        }
    })
}

fn prediction(call: &Call, right: bool) -> Prediction {
    let mut arguments = call.arguments.clone();
    if !right {
        arguments
            .values_mut()
            .for_each(|value| *value = json!("something else"));
    }
    Prediction {
        tool: call.tool.clone(),
        arguments,
        confidence: 0.8,
        source: Source::Transition,
        open: Vec::new(),
    }
}

/// Text of this many tokens, as they are estimated.
fn text(tokens: usize) -> String {
    "word".repeat(tokens)
}

fn policy(speculate: bool) -> Policy {
    let tools = STEPS.map(|step| tool(step).into());
    let mut policy = world::policy(tools.into(), speculate);
    policy.briefing.instructions = Some(text(SYSTEM));
    policy
}

fn tool((name, argument, ..): (&str, &str, f64, usize)) -> Declaration {
    let kind = if name == "synthesize" {
        "array"
    } else {
        "string"
    };
    let parameters = json!({
        "type": "object",
        "properties": { argument: { "type": kind } },
        "required": [argument],
    });
    let mut tool = world::early_tool(name, parameters, 0.0);
    if name == "synthesize" {
        tool.speculation.eligibility = Eligibility::Forbid;
    }
    tool
}

/// The calls of the task as a plan makes them: results have the fields that later steps need.
fn linked(topic: &str) -> [Call; 6] {
    let mut calls = calls(topic);
    let url = calls[2].arguments["url"].clone();
    for call in &mut calls {
        call.result = json!({"url": url, "text": call.result});
    }
    let notes = json!([calls[4].result["text"]]);
    calls[5].arguments.insert("notes".into(), notes);
    calls
}

/// The plan that makes these calls: two searches at once, then one step after the other.
fn plan(topic: &str) -> Map<String, Value> {
    let names = ["web", "papers", "page", "body", "summary", "notes"];
    let values = [
        json!(topic),
        json!(topic),
        json!("$papers.url"),
        json!("$page.url"),
        json!("$body.url"),
        json!(["$summary.text"]),
    ];
    let steps = STEPS.iter().zip(names).zip(values);
    let steps = steps.map(|(((tool, argument, ..), name), value)| {
        json!({"name": name, "tool": tool, "arguments": {*argument: value}})
    });
    let steps = ("steps".to_owned(), Value::from_iter(steps));
    let result = ("result".to_owned(), json!({"notes": "$notes.text"}));
    Map::from_iter([steps, result])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(sums: &[Sums; 6], arm: Arm) -> f64 {
        let at = ARMS.iter().position(|other| *other == arm).unwrap();
        sums[at].wall / sums[at].tasks
    }

    #[test]
    fn the_arms_take_what_their_steps_add_up_to() {
        let sums = measure(1, REGIMES[2], 0, 3);
        assert!((wall(&sums, Arm::Sequential) - 38.22).abs() < 0.01);
        let parallel = 5.0 * 5.97 + WRITING + 2.4 - 0.4;
        assert!((wall(&sums, Arm::Parallel) - parallel).abs() < 0.01);
        assert!((wall(&sums, Arm::Plan) - (5.97 + 1.0 + 2.0)).abs() < 0.01);
    }

    #[test]
    fn the_plan_makes_the_calls_of_the_task_in_one_round() {
        let sums = measure(1, REGIMES[0], 0, 2);
        let planned = &sums[5];
        assert_eq!((planned.tools, planned.steps.len()), (12.0, 2));
        assert!(planned.prompt_tokens < 0.2 * sums[0].prompt_tokens);
    }

    #[test]
    fn right_guesses_hide_what_they_can() {
        for regime in REGIMES {
            let sums = measure(2, regime, 0, 10);
            for arm in [Arm::Learned, Arm::Predictor] {
                let at = ARMS.iter().position(|other| *other == arm).unwrap();
                let saved = sums[0].wall - sums[at].wall;
                assert!(
                    saved >= 0.95 * sums[at].bound,
                    "{regime:?} {arm:?}: {saved}"
                );
                assert!(
                    saved <= sums[at].bound + 0.01,
                    "{regime:?} {arm:?}: {saved}"
                );
            }
        }
        let sums = measure(2, REGIMES[0], 0, 10);
        assert!(wall(&sums, Arm::LearnedTwo) < wall(&sums, Arm::Learned));
    }

    #[test]
    fn the_last_step_never_runs_early() {
        let sums = measure(3, REGIMES[1], 0, 20);
        let learned = &sums[2];
        assert!(learned.starts <= 4.0 * learned.tasks);
        assert!(learned.hits < learned.starts, "some guesses are wrong");
        assert_eq!(
            learned.tools,
            6.0 * learned.tasks + learned.starts - learned.hits
        );
    }
}
