//! `sweep`: many agents with tools of 0 to 3 s, a draft model of varying accuracy, one to nine samples.

mod figures;

use super::clock::{as_seconds, seconds};
use super::equations::Engine;
use super::prompts::{self, Prompt};
use super::report::Report;
use super::simulation::{self, Keeps, Turn};
use super::world::{self, By, Call, Round, Task, Voice};
use super::{BenchError, Settings};
use crate::conversation::{Fate, Micros, Policy};
use crate::dice::Dice;
use crate::prediction::{Evidence, Prediction, Source};
use serde_json::{Map, Value, json};

/// The paper's generation of the model and of the draft model, s.
const GENERATION: f64 = 6.3;
const DRAFT: f64 = 4.05;

/// The paper draws tool times from a normal distribution and does not name its deviation.
const DEVIATION: f64 = 0.03;

/// Each cell is run this often with other random numbers, as in the paper.
const REPEATS: usize = 5;

const TOOLS: [f64; 12] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0, 1.5, 2.0, 2.25, 2.5, 3.0];
const SAMPLES: [usize; 5] = [1, 3, 5, 7, 9];

/// Agents, and the prompts that each of them works on.
const AGENTS: [(usize, usize); 5] = [(1, 256), (8, 32), (32, 8), (256, 2), (1_024, 1)];
const USUAL: (usize, usize) = AGENTS[2];

/// A draft model. Calls differ in how hard they are: the probability that a sample is right is drawn for each
/// call from a beta distribution whose parameters add up to one.
#[derive(Debug, Clone, Copy)]
struct Draft {
    name: &'static str,
    acceptance: f64,
}

const DRAFTS: [Draft; 3] = [
    Draft {
        name: "small",
        acceptance: 0.5,
    },
    Draft {
        name: "medium",
        acceptance: 0.65,
    },
    Draft {
        name: "large",
        acceptance: 0.8,
    },
];
const LARGE: Draft = DRAFTS[2];

/// Prices of a million tokens in November 2025 (gpt-5 and gpt-5-nano), and the tokens of one generation.
const PRICES: [(f64, f64); 2] = [(1.25, 10.0), (0.05, 0.40)];
const TOKENS: [f64; 2] = [630.0, 400.0];

/// The engine's figures, which the paper does not give: 2o + delta (R + t) is the model's generation.
const OVERHEAD: f64 = 0.05;
const DECODE: f64 = 0.01;
const CALL: usize = 14;

/// A cell of the sweep.
#[derive(Debug, Clone, Copy)]
struct Point {
    agents: (usize, usize),
    tool: f64,
    draft: Draft,
    samples: usize,
}

/// Sums over all calls of one run of a cell.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    calls: f64,
    answers: f64,
    hits: f64,
    starts: f64,
    wasted: f64,
    /// Rounds of calls without speculation, with it, and with the tool cache in the engine, s.
    standard: f64,
    client: f64,
    engine: f64,
    /// Rounds of calls together with the final answers, s.
    standard_total: f64,
    client_total: f64,
    prompt_tokens: f64,
}

impl Draft {
    /// The probability that at least one of the samples is right, on average over all calls.
    fn hit_rate(self, samples: usize) -> f64 {
        let missed = 1.0 - self.acceptance;
        let all_wrong = (0..samples).map(|at| (missed + at as f64) / (1.0 + at as f64));
        1.0 - all_wrong.product::<f64>()
    }

    /// How likely a sample is right for one call: a draw from the distribution, by Jöhnk's method.
    fn ease(self, dice: &mut Dice) -> f64 {
        loop {
            let right = dice.share().powf(1.0 / self.acceptance);
            let wrong = dice.share().powf(1.0 / (1.0 - self.acceptance));
            if right + wrong <= 1.0 && right + wrong > 0.0 {
                return right / (right + wrong);
            }
        }
    }

    /// The samples for one call: 0 is the right one.
    fn sample(self, dice: &mut Dice, samples: usize) -> Vec<usize> {
        let ease = self.ease(dice);
        let mut one = || match dice.share() < ease {
            true => 0,
            false => 1 + dice.index(4),
        };
        (0..samples).map(|_| one()).collect()
    }
}

impl Sums {
    fn saved(&self) -> f64 {
        100.0 * (1.0 - self.client / self.standard)
    }

    fn saved_by_engine(&self) -> f64 {
        100.0 * (1.0 - self.engine / self.standard)
    }

    fn saved_in_all(&self) -> f64 {
        100.0 * (1.0 - self.client_total / self.standard_total)
    }

    fn hit_rate(&self) -> f64 {
        self.hits / self.calls
    }

    /// Tokens of the model per second of one agent.
    fn throughput(&self, time: f64) -> f64 {
        TOKENS[0] * (self.calls + self.answers) / time
    }

    /// The costs of the model, and of the draft model's samples, for 100 calls.
    fn costs(&self, samples: usize) -> [f64; 2] {
        let prompts = self.prompt_tokens / (self.calls + self.answers);
        let cost = |at: usize| {
            let (input, output) = PRICES[at];
            100.0 * (prompts * input + TOKENS[at] * output) / 1e6
        };
        [cost(0), samples as f64 * cost(1)]
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let prompts = match &settings.data {
        Some(folder) => prompts::bfcl(folder)?,
        None => prompts::generated(&mut Dice::named(settings.seed, "prompts"), 256),
    };
    let sweep = Sweep {
        prompts,
        seed: settings.seed,
    };
    let usual = |tool| Point {
        agents: USUAL,
        tool,
        draft: LARGE,
        samples: 1,
    };
    let by_tool = TOOLS.map(|tool| (usual(tool), sweep.repeats(usual(tool))));
    let by_agents = sweep.by_agents();
    let by_samples = sweep.by_samples();
    Ok(Report {
        name: "sweep".into(),
        title: "Many agents, a draft model, tools of 0 to 3 s".into(),
        seed: settings.seed,
        method: sweep.method(settings),
        findings: figures::findings(&by_tool, &by_samples),
        tables: vec![
            figures::tool_table(&by_tool),
            figures::agents_table(&by_agents),
            figures::samples_table(&by_samples),
        ],
        plots: vec![
            figures::tool_plot(&by_tool),
            figures::samples_plot(&by_samples),
        ],
        checks: figures::checks(&by_tool, &by_agents),
    })
}

struct Sweep {
    prompts: Vec<Prompt>,
    seed: u64,
}

type Run = (Point, Vec<Sums>);

impl Sweep {
    fn by_agents(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for agents in AGENTS {
            for tool in [0.5, 2.25, 3.0] {
                let point = Point {
                    agents,
                    tool,
                    draft: LARGE,
                    samples: 1,
                };
                runs.push((point, self.repeats(point)));
            }
        }
        runs
    }

    fn by_samples(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for draft in DRAFTS {
            for samples in SAMPLES {
                let point = Point {
                    agents: USUAL,
                    tool: 1.5,
                    draft,
                    samples,
                };
                runs.push((point, self.repeats(point)));
            }
        }
        runs
    }

    fn repeats(&self, point: Point) -> Vec<Sums> {
        (0..REPEATS)
            .map(|repeat| self.measure(point, repeat))
            .collect()
    }

    /// Plays every prompt once in each arm, one arm right after the other, with the same random numbers.
    fn measure(&self, point: Point, repeat: usize) -> Sums {
        let mut dice = Dice::named(self.seed, &format!("{point:?} {repeat}"));
        let mut sums = Sums::default();
        let (agents, each) = point.agents;
        for _ in 0..agents * each {
            let prompt = &self.prompts[dice.index(self.prompts.len())];
            self.play(point, prompt, &mut dice, &mut sums);
        }
        sums
    }

    fn play(&self, point: Point, prompt: &Prompt, dice: &mut Dice, sums: &mut Sums) {
        let task = task(point, prompt, dice);
        let guesses: Vec<Vec<usize>> = task
            .rounds
            .iter()
            .map(|_| point.draft.sample(dice, point.samples))
            .collect();
        let mut nobody = |_: &Evidence| None;
        let mut draft = |heard: &Evidence| {
            let at = heard.calls.len();
            let call = task.rounds.get(at)?.calls.first()?;
            Some((seconds(DRAFT), sampled(call, &guesses[at])))
        };
        let standard = world::play(policy(prompt, false), &task, &mut nobody);
        let client = world::play(policy(prompt, true), &task, &mut draft);
        let (Some(standard), Some(client)) = (standard, client) else {
            return;
        };
        sums.answers += 1.0;
        sums.calls += task.rounds.len() as f64;
        for run in &client.record.runs {
            let is_early = run.source == Some(Source::Draft);
            sums.starts += f64::from(is_early);
            sums.hits += f64::from(is_early && matches!(run.fate, Fate::Committed { .. }));
            sums.wasted += as_seconds(run.wasted);
        }
        sums.standard += standard
            .rounds
            .iter()
            .map(|round| as_seconds(*round))
            .sum::<f64>();
        sums.client += client
            .rounds
            .iter()
            .map(|round| as_seconds(*round))
            .sum::<f64>();
        sums.standard_total += as_seconds(standard.total);
        sums.client_total += as_seconds(client.total);
        sums.prompt_tokens += client.prompt_tokens as f64;
        for (round, guesses) in task.rounds.iter().zip(&guesses) {
            let tool = as_seconds(round.calls[0].takes);
            sums.engine += in_engine(tool, guesses.contains(&0));
        }
    }

    fn method(&self, settings: &Settings) -> Vec<String> {
        let prompts = match settings.data {
            Some(_) => format!("{} prompts of BFCL", self.prompts.len()),
            None => format!("{} generated prompts in BFCL's manner", self.prompts.len()),
        };
        vec![
            format!(
                "{prompts}, each with one call after the other and an answer. Every agent is a conversation of the \
                 product in virtual time: its gate decides which guessed call runs, its ledger which run a commit \
                 takes over. Model, draft model and tools are simulated: G = {GENERATION} s, g = {DRAFT} s, tools \
                 drawn around their mean with a deviation of {:.0} %. Each prompt is played in every arm, one right \
                 after the other, with the same random numbers; {REPEATS} runs, and the spread is over them. Time \
                 saved is that of the rounds that call a tool, as in equation 1.",
                100.0 * DEVIATION
            ),
            "Agents share no clock, budget or server, and the simulated servers have no limit, so the saving cannot \
             depend on the number of agents: those rows show how much the draws vary, not that a real server serves \
             1,024 agents. The \
             engine's side is the simulation of `model`, not the product, with o = 50 ms, calls of 14 tokens and \
             10 ms a token: figures that the paper does not give, chosen for a saving in its range. The hit rate of \
             the draft models is injected, and measured in the ledger. Costs: prices of November 2025, 630 tokens of \
             the model and 400 of the draft model a generation."
                .into(),
        ]
    }
}

fn task(point: Point, prompt: &Prompt, dice: &mut Dice) -> Task {
    let mut round = |(tool, arguments): &(String, Map<String, Value>)| Round {
        generation: seconds(GENERATION),
        filler: None,
        written: Micros(0),
        calls: vec![Call {
            tool: tool.clone(),
            arguments: arguments.clone(),
            result: json!({ "ok": true }),
            takes: seconds(dice.normal(point.tool, DEVIATION * point.tool)),
        }],
        plan: None,
    };
    Task {
        words: prompt.words.clone(),
        by: By::Text,
        rounds: prompt.calls.iter().map(&mut round).collect(),
        answer: seconds(GENERATION),
        voice: Voice::Server(Micros(0)),
    }
}

fn policy(prompt: &Prompt, speculate: bool) -> Policy {
    let tool = |offered: &prompts::Offered| {
        world::early_tool(&offered.name, offered.parameters.clone(), 0.0).into()
    };
    world::policy(prompt.tools.iter().map(tool).collect(), speculate)
}

/// The distinct calls among some samples, each with its share of them as confidence.
fn sampled(call: &Call, samples: &[usize]) -> Vec<Prediction> {
    let mut kinds = samples.to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    let prediction = |kind: usize| {
        let mut arguments = call.arguments.clone();
        if kind > 0 {
            arguments.insert("guess".into(), kind.into());
        }
        let alike = samples.iter().filter(|sample| **sample == kind).count();
        Prediction {
            tool: call.tool.clone(),
            arguments,
            confidence: alike as f32 / samples.len() as f32,
            source: Source::Draft,
            open: Vec::new(),
        }
    };
    kinds.into_iter().map(prediction).collect()
}

/// A round of a call with a tool cache in the engine.
fn in_engine(tool: f64, guessed: bool) -> f64 {
    let decoded = ((GENERATION - 2.0 * OVERHEAD) / DECODE).round() as usize;
    let model = Engine {
        turns: 1,
        overhead: OVERHEAD,
        prefill: 0.0,
        decode: DECODE,
        prompt: 0,
        reasoning: decoded - CALL,
        call: CALL,
        output: 0,
        tool,
    };
    let turn = Turn {
        guessed,
        draft: DRAFT,
    };
    as_seconds(simulation::engine(&model, &[turn], Keeps::Sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_injected_hit_rate_is_the_one_that_samples_have() {
        for draft in DRAFTS {
            for samples in [1, 9] {
                let mut dice = Dice::named(1, draft.name);
                let right = |dice: &mut Dice| draft.sample(dice, samples).contains(&0);
                let hits = (0..20_000).filter(|_| right(&mut dice)).count();
                let off = hits as f64 / 20_000.0 - draft.hit_rate(samples);
                assert!(off.abs() < 0.01, "{draft:?} {samples}: {off}");
            }
        }
        let small = DRAFTS[0];
        let gain = small.hit_rate(9) / small.hit_rate(1);
        assert!(
            (1.5..1.7).contains(&gain),
            "the paper's small model gains nearly 60 %"
        );
    }

    fn sweep(seed: u64) -> Sweep {
        let prompts = prompts::generated(&mut Dice::named(seed, "prompts"), 64);
        Sweep { prompts, seed }
    }

    fn point(tool: f64) -> Point {
        Point {
            agents: (8, 10),
            tool,
            draft: LARGE,
            samples: 1,
        }
    }

    #[test]
    fn agents_save_what_the_equation_says_at_their_own_hit_rate() {
        for tool in [0.5, 2.25, 3.0] {
            let sums = sweep(1).measure(point(tool), 0);
            let closed = figures::expected(tool, sums.hit_rate());
            assert!(
                (sums.saved() - closed).abs() < 0.7,
                "{tool}: {} {closed}",
                sums.saved()
            );
            assert!((sums.hit_rate() - 0.8).abs() < 0.12, "{}", sums.hit_rate());
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let saved = |seed| sweep(seed).measure(point(1.0), 0).saved();
        assert_eq!(saved(3), saved(3));
        assert_ne!(saved(3), saved(4));
    }
}
