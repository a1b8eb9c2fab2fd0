//! The benefit and the cost of speculation over many turns. A hit rate means nothing without the
//! number of starts, so all figures are computed and shown together.

mod log;

pub use log::{LoggedTurn, TurnLog};

use crate::conversation::{
    Before, Decision, Decline, DraftRecord, Fate, HeldRecord, Micros, Time, TurnLatency, TurnRecord,
};
use crate::metrics::{rank, was_refused};
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of many turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Turns that were answered.
    pub turns: usize,
    /// End of speech to the agent's first audio.
    pub first_audio: Option<Quantiles>,
    /// End of speech to the answer, of turns with a tool.
    pub answer_audio: Option<Quantiles>,
    /// Silence between filler and answer, of turns with a tool.
    pub dead_air: Option<Quantiles>,
    /// Committed runs of read-only tools.
    pub committed_reads: u64,
    /// The share of these that had started speculatively: 0..1.
    pub immediate_recall: Option<f64>,
    /// The share of these that were the surest of the runs that waited for a commit then: 0..1.
    pub hit_rate_first: Option<f64>,
    /// The share of these that were among the three surest: 0..1.
    pub hit_rate_among_three: Option<f64>,
    /// The share of speculative runs that were committed: 0..1.
    pub hits_per_start: Option<f64>,
    /// Predictions of tools with side effects that speculation was not allowed to run.
    pub blocked_state_changing: u64,
    /// Predictions of any tool that speculation was not allowed to run.
    pub blocked: u64,
    /// Answers that were requested before the end of the turn was certain.
    pub preemptive: Ahead,
    /// Answers that were requested before the model had committed the call that they speak of.
    pub assumed: Ahead,
    /// Answers that were requested when the calls had their results, before the model's stream had ended.
    pub continued: Ahead,
    /// Questions to the draft model.
    pub drafts: Drafts,
    /// Fillers said by the conversation rather than the model.
    pub fillers: u64,
    /// Fillers that were not said because the answer was there.
    pub fillers_dropped: u64,
    /// How much earlier answers were heard because of that, seconds.
    pub fillers_saved_seconds: f64,
    /// All tools and sources together.
    pub total: Counts,
    /// By tool and source of the prediction.
    pub by_tool_and_source: Vec<Row>,
    /// By tool: the calls that were committed, predicted or not.
    pub by_tool: Vec<ToolRow>,
}

/// Median and 95th percentile, by nearest rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The number of values.
    pub count: usize,
    /// The median, ms.
    pub p50_ms: u64,
    /// The 95th percentile, ms.
    pub p95_ms: u64,
}

/// Generations that were requested before it was certain that they are needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Ahead {
    /// Requested.
    pub begun: u64,
    /// Used.
    pub used: u64,
    /// How much earlier the first words of the used ones were heard, seconds.
    pub saved_seconds: f64,
    /// How long other words were held back for the discarded ones, seconds.
    pub delayed_seconds: f64,
    /// Tokens of the discarded ones, prompts included.
    pub wasted_tokens: u64,
}

impl Ahead {
    fn add(&mut self, held: &HeldRecord) {
        self.begun += 1;
        self.used += u64::from(held.used);
        self.saved_seconds += seconds(held.saved);
        self.delayed_seconds += seconds(held.delayed);
        if !held.used {
            self.wasted_tokens += held.usage.total();
        }
    }
}

/// Questions to the draft model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Drafts {
    /// Asked.
    pub asked: u64,
    /// Those with a call, of which the main model made one or none.
    pub compared: u64,
    /// Of these, those of which the main model made one.
    pub accepted: u64,
    /// Tokens of all samples, prompts included.
    pub tokens: u64,
    /// Of these, tokens of questions that gave no call of the main model.
    pub wasted_tokens: u64,
    /// Their cost, in the operator's currency.
    pub cost: f64,
}

impl Drafts {
    fn add(&mut self, draft: &DraftRecord) {
        self.asked += 1;
        self.compared += u64::from(draft.accepted.is_some());
        self.accepted += u64::from(draft.accepted == Some(true));
        self.tokens += draft.usage.total();
        if draft.accepted != Some(true) {
            self.wasted_tokens += draft.usage.total();
        }
        self.cost += draft.cost;
    }
}

/// The figures of one tool and one source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The tool.
    pub tool: String,
    /// The source of the predictions.
    pub source: &'static str,
    /// The figures.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The figures of one tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolRow {
    /// The tool.
    pub tool: String,
    /// The figures.
    #[serde(flatten)]
    pub counts: ToolCounts,
}

/// Counts of the committed calls of a tool, and of what was not run or in vain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ToolCounts {
    /// Committed runs.
    pub committed: u64,
    /// Of these, runs that had started speculatively: over `committed` it is the immediate recall.
    pub recalled: u64,
    /// Of these, the surest of the runs that waited for a commit then.
    pub first: u64,
    /// Of these, runs among the three surest.
    pub among_three: u64,
    /// Tokens of answers that were requested because of a call that the model did not make.
    pub wasted_tokens: u64,
}

/// Counts of predictions, speculative runs, hits and waste.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Predictions.
    pub predictions: u64,
    /// Those that speculation was not allowed to run.
    pub blocked: u64,
    /// Speculative runs.
    pub starts: u64,
    /// Speculative runs that were committed.
    pub hits: u64,
    /// Hits that were the surest of the runs that waited for a commit then.
    pub first: u64,
    /// Hits that were among the three surest.
    pub among_three: u64,
    /// Speculative runs that were discarded.
    pub wasted_calls: u64,
    /// How long the discarded runs ran, seconds.
    pub wasted_seconds: f64,
    /// The cost of the discarded runs, in the operator's currency.
    pub wasted_cost: f64,
    /// How much earlier speculation made results available, seconds.
    pub saved_seconds: f64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.predictions += other.predictions;
        self.blocked += other.blocked;
        self.starts += other.starts;
        self.hits += other.hits;
        self.first += other.first;
        self.among_three += other.among_three;
        self.wasted_calls += other.wasted_calls;
        self.wasted_seconds += other.wasted_seconds;
        self.wasted_cost += other.wasted_cost;
        self.saved_seconds += other.saved_seconds;
    }
}

/// Collects the figures turn by turn.
#[derive(Debug, Default)]
pub struct Collector {
    stats: Stats,
    rows: BTreeMap<(String, &'static str), Counts>,
    tools: BTreeMap<String, ToolCounts>,
    /// Committed reads by their rank among the runs that waited then: the surest, the three surest.
    first: u64,
    among_three: u64,
    first_audio: Vec<u64>,
    answer_audio: Vec<u64>,
    dead_air: Vec<u64>,
    /// Committed runs of read-only tools that had started speculatively.
    recalled: u64,
}

impl Collector {
    /// Adds a turn; `reads` says whether a tool only reads.
    pub fn turn(&mut self, record: &TurnRecord, reads: impl Fn(&str) -> bool) {
        if record.turn.is_some() {
            self.stats.turns += 1;
        }
        self.latency(&record.latency);
        self.stats.fillers_dropped += u64::from(record.fillers_dropped);
        self.stats.fillers += u64::from(record.fillers);
        self.stats.fillers_saved_seconds += seconds(record.fillers_saved);
        for held in &record.held {
            if let (Some(tool), false) = (&held.tool, held.used) {
                self.tool(tool).wasted_tokens += held.usage.total();
            }
            match held.before {
                Before::EndOfTurn => self.stats.preemptive.add(held),
                Before::Commit => self.stats.assumed.add(held),
                Before::EndOfStream => self.stats.continued.add(held),
            }
        }
        record
            .drafts
            .iter()
            .for_each(|draft| self.stats.drafts.add(draft));
        for prediction in &record.predictions {
            let row = self.row(&prediction.tool, prediction.source.name());
            row.predictions += 1;
            if prediction.decision == Decision::Declined(Decline::Forbidden) {
                row.blocked += 1;
                self.stats.blocked += 1;
                self.stats.blocked_state_changing += u64::from(!reads(&prediction.tool));
            }
        }
        for run in &record.runs {
            let rank = rank(run, &record.runs);
            let is_first = u64::from(rank == Some(0));
            let is_among_three = u64::from(rank.is_some_and(|rank| rank < 3));
            if matches!(run.fate, Fate::Committed { .. }) {
                let recalled = u64::from(run.source.is_some());
                let tool = self.tool(&run.tool);
                tool.committed += 1;
                tool.recalled += recalled;
                tool.first += is_first;
                tool.among_three += is_among_three;
                if reads(&run.tool) {
                    self.stats.committed_reads += 1;
                    self.recalled += recalled;
                    self.first += is_first;
                    self.among_three += is_among_three;
                }
            }
            let Some(source) = run.source else { continue };
            let row = self.row(&run.tool, source.name());
            match run.fate {
                Fate::Committed { .. } => {
                    row.starts += 1;
                    row.hits += 1;
                    row.first += is_first;
                    row.among_three += is_among_three;
                    row.saved_seconds += seconds(run.saved);
                }
                Fate::Discarded { reason, .. } if was_refused(reason) => {}
                Fate::Discarded { .. } => {
                    row.starts += 1;
                    row.wasted_calls += 1;
                    row.wasted_seconds += seconds(run.wasted);
                    row.wasted_cost += run.cost;
                }
            }
        }
    }

    fn row(&mut self, tool: &str, source: &'static str) -> &mut Counts {
        self.rows.entry((tool.to_owned(), source)).or_default()
    }

    fn tool(&mut self, tool: &str) -> &mut ToolCounts {
        self.tools.entry(tool.to_owned()).or_default()
    }

    fn latency(&mut self, latency: &TurnLatency) {
        let since_speech = |to: Option<Time>| Some(to?.since(latency.speech_end?).as_ms());
        self.first_audio.extend(since_speech(latency.first_audio));
        if latency.commit.is_some() {
            self.answer_audio.extend(since_speech(latency.answer_audio));
        }
        self.dead_air.extend(latency.dead_air.map(Micros::as_ms));
    }

    /// The figures.
    pub fn finish(self) -> Stats {
        let mut total = Counts::default();
        self.rows.values().for_each(|counts| total.add(counts));
        let part = |of: u64, all: u64| (all > 0).then(|| of as f64 / all as f64);
        let row = |((tool, source), counts)| Row {
            tool,
            source,
            counts,
        };
        let tool_row = |(tool, counts)| ToolRow { tool, counts };
        Stats {
            first_audio: quantiles(self.first_audio),
            answer_audio: quantiles(self.answer_audio),
            dead_air: quantiles(self.dead_air),
            immediate_recall: part(self.recalled, self.stats.committed_reads),
            hit_rate_first: part(self.first, self.stats.committed_reads),
            hit_rate_among_three: part(self.among_three, self.stats.committed_reads),
            hits_per_start: part(total.hits, total.starts),
            total,
            by_tool_and_source: self.rows.into_iter().map(row).collect(),
            by_tool: self.tools.into_iter().map(tool_row).collect(),
            ..self.stats
        }
    }
}

/// Computes quantiles by nearest rank.
fn quantiles(mut values: Vec<u64>) -> Option<Quantiles> {
    values.sort_unstable();
    let rank = |percent: usize| (values.len() * percent).div_ceil(100).saturating_sub(1);
    Some(Quantiles {
        count: values.len(),
        p50_ms: *values.get(rank(50))?,
        p95_ms: *values.get(rank(95))?,
    })
}

fn seconds(span: Micros) -> f64 {
    span.duration().as_secs_f64()
}

#[cfg(test)]
pub(crate) mod testing {
    use crate::conversation::{
        Before, CallId, Decision, Discard, DraftRecord, Fate, HeldRecord, Micros, PredictionRecord,
        ResponseStatus, RunId, RunRecord, Time, TurnId, TurnLatency, TurnRecord,
    };
    use crate::llm::TokenUsage;
    use crate::prediction::Source;
    use serde_json::json;

    /// A speculative run, committed unless `discarded` gives a reason.
    pub(crate) fn early_run(tool: &str, discarded: Option<Discard>) -> RunRecord {
        let at = Time::from_ms(1_500);
        let (fate, saved, wasted) = match discarded {
            None => {
                let calls = vec![CallId(3)];
                (Fate::Committed { at, calls }, 800, 0)
            }
            Some(reason) => (Fate::Discarded { at, reason }, 0, 300),
        };
        RunRecord {
            run: RunId(1),
            tool: tool.into(),
            arguments: json!({"city": "Secretville"}).as_object().cloned().unwrap(),
            source: Some(Source::Rule),
            confidence: 0.9,
            started: Time::from_ms(700),
            finished: Some(at),
            ok: true,
            fate,
            saved: Micros::from_ms(saved),
            wasted: Micros::from_ms(wasted),
            cost: 0.02,
        }
    }

    /// A turn with one prediction and one hit.
    pub(crate) fn record() -> TurnRecord {
        let at = |ms| Some(Time::from_ms(ms));
        TurnRecord {
            continued: 0,
            turn: Some(TurnId(1)),
            status: Some(ResponseStatus::Completed),
            latency: TurnLatency {
                speech_end: at(1_000),
                end_of_turn: at(1_200),
                commit: at(1_500),
                first_audio: at(1_900),
                answer_audio: at(2_600),
                dead_air: Some(Micros::from_ms(250)),
                ..TurnLatency::default()
            },
            predictions: vec![PredictionRecord {
                at: Time::from_ms(700),
                tool: "weather".into(),
                source: Source::Rule,
                confidence: 0.9,
                decision: Decision::Started,
            }],
            runs: vec![early_run("weather", None)],
            fillers: 0,
            fillers_dropped: 1,
            fillers_saved: Micros::from_ms(700),
            held: vec![HeldRecord {
                before: Before::Commit,
                tool: Some("weather".into()),
                began: Time::from_ms(1_300),
                ended: Time::from_ms(1_500),
                used: true,
                saved: Micros::from_ms(200),
                delayed: Micros(0),
                usage: TokenUsage {
                    input: 900,
                    output: 20,
                    ..TokenUsage::default()
                },
            }],
            drafts: vec![DraftRecord {
                began: Time::from_ms(1_200),
                samples: 3,
                calls: 2,
                tool: Some("weather".into()),
                accepted: Some(true),
                usage: TokenUsage {
                    input: 2_700,
                    output: 30,
                    ..TokenUsage::default()
                },
                cost: 0.001,
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{early_run, record};
    use super::*;
    use crate::conversation::Discard;

    #[test]
    fn a_turn_contributes_to_all_figures() {
        let mut collector = Collector::default();
        let mut turn = record();
        turn.runs
            .push(early_run("weather", Some(Discard::TurnEnded)));
        turn.runs
            .push(early_run("weather", Some(Discard::Overloaded)));
        let mut serial = early_run("weather", None);
        serial.source = None;
        turn.runs.push(serial);
        let mut forbidden = turn.predictions[0].clone();
        forbidden.tool = "book".into();
        forbidden.decision = Decision::Declined(Decline::Forbidden);
        turn.predictions.push(forbidden);
        collector.turn(&turn, |tool| tool == "weather");
        let stats = collector.finish();
        let one = |ms| {
            Some(Quantiles {
                count: 1,
                p50_ms: ms,
                p95_ms: ms,
            })
        };
        assert_eq!(stats.turns, 1);
        assert_eq!(stats.first_audio, one(900));
        assert_eq!(stats.answer_audio, one(1_600));
        assert_eq!(stats.dead_air, one(250));
        assert_eq!(
            (stats.committed_reads, stats.immediate_recall),
            (2, Some(0.5))
        );
        assert_eq!(stats.hits_per_start, Some(0.5), "a refused run is no start");
        assert_eq!((stats.blocked, stats.blocked_state_changing), (1, 1));
        let total = Counts {
            predictions: 2,
            blocked: 1,
            starts: 2,
            hits: 1,
            first: 1,
            among_three: 1,
            wasted_calls: 1,
            wasted_seconds: 0.3,
            wasted_cost: 0.02,
            saved_seconds: 0.8,
        };
        assert_eq!(stats.total, total);
        let rows: Vec<_> = stats
            .by_tool_and_source
            .iter()
            .map(|row| row.tool.as_str())
            .collect();
        assert_eq!(rows, ["book", "weather"]);
        assert_eq!((stats.assumed.begun, stats.assumed.used), (1, 1));
        assert!((stats.assumed.saved_seconds - 0.2).abs() < 1e-9);
        assert_eq!((stats.preemptive.begun, stats.fillers_dropped), (0, 1));
        let drafts = Drafts {
            asked: 1,
            compared: 1,
            accepted: 1,
            tokens: 2_730,
            wasted_tokens: 0,
            cost: 0.001,
        };
        assert_eq!(stats.drafts, drafts);
        let weather = ToolCounts {
            committed: 2,
            recalled: 1,
            first: 1,
            among_three: 1,
            wasted_tokens: 0,
        };
        let by_tool: Vec<_> = stats
            .by_tool
            .iter()
            .map(|row| (row.tool.as_str(), row.counts))
            .collect();
        assert_eq!(by_tool, [("weather", weather)]);
        assert_eq!(
            (stats.hit_rate_first, stats.hit_rate_among_three),
            (Some(0.5), Some(0.5))
        );
    }

    #[test]
    fn a_hit_counts_by_the_surer_runs_that_waited_beside_it() {
        let mut turn = record();
        turn.runs[0].confidence = 0.4;
        for confidence in [0.9, 0.8, 0.3] {
            let mut other = early_run("weather", Some(Discard::TurnEnded));
            other.confidence = confidence;
            turn.runs.push(other);
        }
        let mut earlier = early_run("weather", Some(Discard::Superseded));
        earlier.fate = Fate::Discarded {
            at: Time::from_ms(1_000),
            reason: Discard::Superseded,
        };
        turn.runs.push(earlier);
        let mut unused = turn.held[0].clone();
        unused.used = false;
        turn.held.push(unused);
        let mut missed = turn.drafts[0].clone();
        missed.accepted = Some(false);
        turn.drafts.push(missed);
        let mut collector = Collector::default();
        collector.turn(&turn, |_| true);
        let stats = collector.finish();
        assert_eq!(
            (stats.total.hits, stats.total.first, stats.total.among_three),
            (1, 0, 1)
        );
        assert_eq!(
            (stats.hit_rate_first, stats.hit_rate_among_three),
            (Some(0.0), Some(1.0))
        );
        assert_eq!(stats.by_tool[0].counts.wasted_tokens, 920);
        assert_eq!(
            (stats.drafts.tokens, stats.drafts.wasted_tokens),
            (2 * 2_730, 2_730)
        );
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        assert_eq!(quantiles(vec![]), None);
        let hundred = quantiles((1..=100).rev().collect()).unwrap();
        assert_eq!(
            (hundred.count, hundred.p50_ms, hundred.p95_ms),
            (100, 50, 95)
        );
    }

    #[test]
    fn rates_without_runs_are_undefined() {
        let stats = Collector::default().finish();
        assert_eq!((stats.immediate_recall, stats.hits_per_start), (None, None));
    }
}
