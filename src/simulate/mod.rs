//! `undertone simulate`: scripted and model-driven callers talk to the configured agent, and a report says what it did.
//!
//! | files | subject |
//! |---|---|
//! | `scenario`, `check` | a scenario file; the first thing that is wrong with it |
//! | `wanted` | PURE: whether arguments and words are those that a scenario wants |
//! | `stage` | the agent's tools with the replies of a scenario: nothing changes for real |
//! | `caller`, `model` | whose turn comes next: lines of the scenario, or a language model's |
//! | `talk`, `text`, `voice` | one conversation; its words as text, or as sound |
//! | `voices`, `noise` | callers' voices; what is heard behind them |
//! | `log`, `verdict` | what happened in a conversation; whether that was right |
//! | `matching` | PURE: which of the calls that were made are the expected ones |
//! | `report`, `compare` | figures over all conversations; what has changed since a baseline |

mod caller;
mod check;
mod compare;
mod log;
mod matching;
mod model;
mod noise;
mod report;
mod scenario;
mod stage;
mod talk;
mod text;
mod verdict;
mod voice;
pub(crate) mod voices;
mod wanted;

pub use compare::{Comparison, compare};
pub use log::{Line, Who};
pub use report::{Calls, Early, FailedRun, Figures, Percentiles, Report, ScenarioReport, Tokens};
pub use scenario::{Scenario, ScenarioError};
pub use stage::Stage;
pub(crate) use text::Silent;
pub use text::mute;

use crate::audio::{RATE, g711};
use crate::conversation::{Fate, TurnRecord};
use crate::llm::Llm;
use crate::session::{Engines, PHONE, Profile, SessionOptions, SpokenBy};
use crate::stats::Collector;
use crate::tools::{Named, Origin, SessionValues};
use caller::Caller;
use futures_util::{StreamExt, stream};
use log::Log;
use report::Tally;
use stage::Props;
use std::collections::BTreeMap;
use std::sync::Arc;
use talk::{Medium, talk};
use uuid::Uuid;
use verdict::Verdict;
use voice::Voice;

/// The parameter of a simulated session by which its tools find its replies.
const CONVERSATION: &str = "undertone-simulation";

/// How scenarios are played.
pub struct Plan {
    /// The scenarios, in the order of the report.
    pub scenarios: Vec<Scenario>,
    /// How often each is played.
    pub runs: usize,
    /// Decides the noise.
    pub seed: u64,
    /// Conversations at the same time.
    pub jobs: usize,
    /// The caller's words go in as text, and the agent's come out as text: no speech models.
    pub text: bool,
    /// The price of a million tokens, in the operator's currency.
    pub token_price: f64,
    /// Language models that play callers, by the names that scenarios use.
    pub models: BTreeMap<String, Arc<dyn Llm>>,
}

/// One conversation that is over.
#[derive(Debug, Clone)]
pub struct Run {
    /// The scenario's place in the plan.
    pub scenario: usize,
    /// Counted from 1.
    pub number: usize,
    /// Its session, as recordings name it.
    pub session: String,
    /// The reasons why it failed; none if it succeeded.
    pub reasons: Vec<String>,
    /// The words and calls, in order.
    pub lines: Vec<Line>,
    /// Caller and agent as they were heard, interleaved, and their rate, Hz; `None` in text.
    pub sound: Option<(Vec<i16>, u32)>,
    verdict: Verdict,
    log: Log,
}

impl Run {
    /// Whether everything was as the scenario wants it.
    pub fn succeeded(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Plays all scenarios. `ended` is told of each conversation, in the order in which they end.
///
/// `stage` must hold the tools of `engines`.
pub async fn simulate(
    plan: &Plan,
    engines: &Arc<Engines>,
    stage: &Arc<Stage>,
    ended: &mut dyn FnMut(&Run),
) -> (Report, Vec<Run>) {
    let all = plan.scenarios.iter().enumerate();
    let all = all.flat_map(|(at, _)| (1..=plan.runs).map(move |number| (at, number)));
    let played = all.map(|(at, number)| play(plan, engines, stage, at, number));
    let mut played = stream::iter(played).buffer_unordered(plan.jobs.max(1));
    let mut runs = Vec::new();
    while let Some(run) = played.next().await {
        ended(&run);
        runs.push(run);
    }
    drop(played);
    runs.sort_by_key(|run| (run.scenario, run.number));
    (reported(plan, engines, &runs), runs)
}

async fn play(
    plan: &Plan,
    engines: &Arc<Engines>,
    stage: &Arc<Stage>,
    at: usize,
    number: usize,
) -> Run {
    let scenario = &plan.scenarios[at];
    let id = Uuid::new_v4().to_string();
    let on_stage = stage.enter(&id, Props::of(scenario));
    let options = options(scenario, plan.text, &id);
    let parts = async {
        let caller = Caller::new(scenario, plan)?;
        let medium = match plan.text {
            true => Medium::Text {
                spoken: options.spoken_by == SpokenBy::Client,
            },
            false => {
                let voice =
                    Voice::of(scenario, engines, number, plan.seed, options.input_rate).await?;
                Medium::Voice(Box::new(voice))
            }
        };
        Ok((caller, medium))
    };
    let (session, log, sound) = match parts.await {
        Ok((caller, medium)) => talk(engines, &options, scenario, caller, medium).await,
        Err(problem) => (String::new(), Log::failed(problem), None),
    };
    drop(on_stage);
    let tools = engines.tools();
    let verdict = Verdict::of(scenario, &log, |tool| {
        let declaration = tools.declaration(tool);
        declaration.is_some_and(|tool| tool.effect.changes())
    });
    Run {
        scenario: at,
        number,
        session,
        reasons: verdict.reasons.clone(),
        lines: log.lines().cloned().collect(),
        sound,
        verdict,
        log,
    }
}

/// The options of a session for a caller of this scenario.
fn options(scenario: &Scenario, text: bool, id: &str) -> SessionOptions {
    let caller = &scenario.caller;
    let transport = caller.transport.as_str();
    let is_phone = PHONE.contains(&transport);
    let mut values = SessionValues::default()
        .with(Named::Transport, transport, Origin::Verified)
        .with(Named::Caller, &caller.number, Origin::Signalled)
        .with(Named::Called, &caller.called, Origin::Signalled);
    for (name, value) in &caller.params {
        values.add(Named::Param(name.clone()), value, Origin::Verified);
    }
    values.add(Named::Param(CONVERSATION.into()), id, Origin::Verified);
    let profile = match is_phone {
        true => Profile::PhoneCall,
        false => Profile::Conversation,
    };
    let rate = match is_phone || caller.telephone {
        true => g711::RATE,
        false => RATE,
    };
    SessionOptions {
        values,
        agent: scenario.agent.clone(),
        call: (transport == "twilio").then(|| id.to_owned()),
        spoken_by: match text {
            true if scenario.interrupts() => SpokenBy::Client,
            true => SpokenBy::Nobody,
            false => SpokenBy::Server,
        },
        // A run must not depend on those before it.
        begins_anew: true,
        ..SessionOptions::new(profile, rate)
    }
}

/// The report on all runs.
fn reported(plan: &Plan, engines: &Arc<Engines>, runs: &[Run]) -> Report {
    let tools = engines.tools();
    let reads = |tool: &str| {
        let declaration = tools.declaration(tool);
        declaration.is_none_or(|tool| !tool.effect.changes())
    };
    let mut total = Tally::default();
    let mut collected = Collector::default();
    let scenarios = plan.scenarios.iter().enumerate().map(|(at, scenario)| {
        let mut tally = Tally::default();
        let mut own = Collector::default();
        for run in runs.iter().filter(|run| run.scenario == at) {
            tally.add(run);
            total.add(run);
            for turn in run.log.turns() {
                own.turn(turn, reads);
                collected.turn(turn, reads);
            }
        }
        let figures = tally.figures(&own.finish(), plan.token_price);
        let failed = runs.iter().filter(|run| run.scenario == at);
        let failed = failed.filter(|run| !run.succeeded()).map(|run| FailedRun {
            run: run.number,
            reasons: run.reasons.clone(),
            ..FailedRun::default()
        });
        ScenarioReport {
            name: scenario.name.clone(),
            over_limit: scenario.limits.exceeded(&figures),
            asserts_limits: scenario.limits.assert,
            failed: failed.collect(),
            figures,
        }
    });
    let scenarios: Vec<_> = scenarios.collect();
    Report {
        total: total.figures(&collected.finish(), plan.token_price),
        ..Report::new(plan, scenarios)
    }
}

/// The costs of the runs of tools in a turn.
fn cost_of_runs(turn: &TurnRecord) -> f64 {
    let runs = turn.runs.iter();
    // A run that was refused before it began costs nothing.
    let paid = runs.filter(|run| match run.fate {
        Fate::Committed { .. } => true,
        Fate::Discarded { reason, .. } => !crate::metrics::was_refused(reason),
    });
    paid.map(|run| run.cost).sum()
}
