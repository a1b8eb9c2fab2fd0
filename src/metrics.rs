//! Numbers for Prometheus: counts and times, by tool and by who predicted. Never words, arguments
//! or secrets.

use crate::conversation::{Discard, Fate, Micros, RunRecord, Time, TurnRecord};
use crate::prediction::Source;
use crate::telemetry;
use crate::tools::journal::JournalFigures;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds for what a user waits for, seconds.
const WAITS: [f64; 14] = [
    0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0,
];

/// Bounds for what the server does by itself, seconds.
const REACTIONS: [f64; 10] = [
    0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
];

/// Bounds for what a job waits for its model, seconds.
const QUEUEING: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// The name of every tool that the server does not have: a model may ask for any.
pub const UNKNOWN_TOOL: &str = "unknown";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Predicted {
    tool: String,
    source: &'static str,
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Early {
    tool: String,
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Wasted {
    tool: String,
    source: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tool {
    tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
    stage: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct What {
    what: &'static str,
}

type Seconds = Counter<f64, AtomicU64>;

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It showed no valid token, or came from a strange page.
    Denied,
    /// All sessions are taken.
    Full,
    /// The models have as much to do as they can.
    Overloaded,
    /// The server shuts down.
    Draining,
    /// Too many connections are open: this one, or one that asked for nothing, is closed.
    Connections,
    /// It asked for nothing in time.
    Silent,
}

impl Refusal {
    fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Full => "full",
            Self::Overloaded => "overloaded",
            Self::Draining => "draining",
            Self::Connections => "connections",
            Self::Silent => "silent",
        }
    }
}

/// The server's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    predictions: Family<Predicted, Counter>,
    started: Family<Early, Counter>,
    committed: Family<Early, Counter>,
    wasted: Family<Wasted, Counter>,
    refused_runs: Family<Wasted, Counter>,
    serial: Family<Tool, Counter>,
    hidden_seconds: Family<Early, Seconds>,
    wasted_seconds: Family<Early, Seconds>,
    wasted_cost: Family<Early, Seconds>,
    end_of_turn: Histogram,
    first_audio: Histogram,
    answer_audio: Histogram,
    dead_air: Histogram,
    barge_in: Histogram,
    sessions: Gauge,
    stage_failures: Family<Stage, Counter>,
    refused: Family<Reason, Counter>,
    lost: Family<What, Counter>,
    queue_delay: Family<Stage, Histogram, fn() -> Histogram>,
    load: Gauge,
    /// Where losses are counted.
    losses: Mutex<Vec<(&'static str, Counter)>>,
    journal: JournalFigures,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram = |bounds: &[f64]| Histogram::new(bounds.iter().copied());
        let mut metrics = Self {
            registry: Registry::with_prefix("undertone"),
            predictions: Family::default(),
            started: Family::default(),
            committed: Family::default(),
            wasted: Family::default(),
            refused_runs: Family::default(),
            serial: Family::default(),
            hidden_seconds: Family::default(),
            wasted_seconds: Family::default(),
            wasted_cost: Family::default(),
            end_of_turn: histogram(&WAITS),
            first_audio: histogram(&WAITS),
            answer_audio: histogram(&WAITS),
            dead_air: histogram(&WAITS),
            barge_in: histogram(&REACTIONS),
            sessions: Gauge::default(),
            stage_failures: Family::default(),
            refused: Family::default(),
            lost: Family::default(),
            queue_delay: Family::new_with_constructor(|| Histogram::new(QUEUEING)),
            load: Gauge::default(),
            losses: Mutex::default(),
            journal: JournalFigures::default(),
        };
        metrics.register_speculation();
        metrics.register_the_rest();
        metrics
    }
}

impl Metrics {
    fn register_speculation(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "predictions",
            "Tool calls that were predicted, by what became of them",
            self.predictions.clone(),
        );
        registry.register(
            "speculative_runs",
            "Runs that started before the model asked for them",
            self.started.clone(),
        );
        registry.register(
            "speculative_hits",
            "Speculative runs that the model then asked for",
            self.committed.clone(),
        );
        registry.register(
            "speculative_wasted",
            "Speculative runs whose result nobody saw",
            self.wasted.clone(),
        );
        registry.register(
            "speculative_refused",
            "Speculative runs that the server did not start: no budget, or too busy",
            self.refused_runs.clone(),
        );
        registry.register(
            "serial_runs",
            "Runs that started only when the model asked for them",
            self.serial.clone(),
        );
        registry.register_with_unit(
            "speculative_hidden",
            "How much sooner results were there than if their runs had started at the commit",
            Unit::Seconds,
            self.hidden_seconds.clone(),
        );
        registry.register_with_unit(
            "speculative_wasted_run",
            "How long speculative runs ran for nothing",
            Unit::Seconds,
            self.wasted_seconds.clone(),
        );
        registry.register(
            "speculative_wasted_cost",
            "What wasted runs cost, in the operator's currency",
            self.wasted_cost.clone(),
        );
    }

    fn register_the_rest(&mut self) {
        let histograms = [
            (
                "end_of_turn",
                "End of speech to the end of the turn",
                &self.end_of_turn,
            ),
            (
                "first_audio",
                "End of speech to the agent's first audio",
                &self.first_audio,
            ),
            (
                "answer_audio",
                "End of speech to the answer, in turns with a tool",
                &self.answer_audio,
            ),
            (
                "dead_air",
                "Silence between filler and answer, in turns with a tool",
                &self.dead_air,
            ),
            (
                "barge_in_stop",
                "The user is found to speak over the agent to the last audio sent",
                &self.barge_in,
            ),
        ];
        for (name, help, histogram) in histograms {
            let registry = &mut self.registry;
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
        let registry = &mut self.registry;
        registry.register("sessions", "Sessions that are open", self.sessions.clone());
        registry.register(
            "stage_failures",
            "Failures of recognition, language model, voice, ...",
            self.stage_failures.clone(),
        );
        registry.register(
            "refused_connections",
            "Clients that were not let in",
            self.refused.clone(),
        );
        registry.register_with_unit(
            "queue_delay",
            "How long a transcript or the first clause of an answer waits for its model",
            Unit::Seconds,
            self.queue_delay.clone(),
        );
        registry.register(
            "load",
            "0: everything is done; 1: early work is left undone; 2: new sessions are refused, too",
            self.load.clone(),
        );
        registry.register(
            "lost",
            "What could not be written: lines of the log, turns of the turn log, recordings",
            self.lost.clone(),
        );
        registry.register(
            "journal_failures",
            "Times that the journal of changes could not be written",
            self.journal.failures.clone(),
        );
        registry.register(
            "journal_failing",
            "1 while the journal cannot be written and no change is made",
            self.journal.failing.clone(),
        );
    }

    /// Shows what `counter` counts as lost.
    pub fn show_lost(&self, what: &'static str, counter: Counter) {
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.push((what, counter));
    }

    fn update_lost(&self) {
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = losses.iter().map(|(what, counter)| (*what, counter.get()));
        for (what, lost) in counted.chain([("log_line", telemetry::lost())]) {
            let shown = self.lost.get_or_create(&What { what });
            shown.inner().store(lost, Ordering::Relaxed);
        }
    }

    /// All numbers in the text format of OpenMetrics, which Prometheus reads.
    pub fn render(&self) -> String {
        self.update_lost();
        let mut out = String::new();
        // Writing into a `String` does not fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    /// The figures through which the journal of changes reports its state.
    pub fn journal(&self) -> JournalFigures {
        self.journal.clone()
    }

    /// A session is open as long as this lives.
    pub fn session(&self) -> OpenSession {
        self.sessions.inc();
        OpenSession(self.sessions.clone())
    }

    /// A stage failed.
    pub fn stage_failed(&self, stage: &str) {
        let stage = stage.to_owned();
        self.stage_failures.get_or_create(&Stage { stage }).inc();
    }

    /// A job that a user waits for was begun so late.
    pub fn queued(&self, stage: &str, delay: Duration) {
        let stage = stage.to_owned();
        let delays = self.queue_delay.get_or_create(&Stage { stage });
        delays.observe(delay.as_secs_f64());
    }

    /// How much there is to do: 0, 1 or 2.
    pub fn load(&self, level: i64) {
        self.load.set(level);
    }

    /// A client was not let in.
    pub fn refused(&self, refusal: Refusal) {
        let reason = refusal.name();
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    /// The agent fell silent, so long after the user was found to speak over it.
    pub fn barge_in(&self, stop: Micros) {
        self.barge_in.observe(seconds(stop));
    }

    /// A turn is over. Tools that are not `known` to the server are counted as one.
    pub fn turn(&self, record: &TurnRecord, known: impl Fn(&str) -> bool) {
        let tool_of = |tool: &str| match known(tool) {
            true => tool.to_owned(),
            false => UNKNOWN_TOOL.to_owned(),
        };
        for prediction in &record.predictions {
            let labels = Predicted {
                tool: tool_of(&prediction.tool),
                source: prediction.source.name(),
                decision: prediction.decision.name(),
            };
            self.predictions.get_or_create(&labels).inc();
        }
        for run in &record.runs {
            self.run(run, tool_of(&run.tool));
        }
        let latency = &record.latency;
        let from_speech = |histogram: &Histogram, to: Option<Time>| {
            if let (Some(from), Some(to)) = (latency.speech_end, to) {
                histogram.observe(seconds(to.since(from)));
            }
        };
        from_speech(&self.end_of_turn, latency.end_of_turn);
        from_speech(&self.first_audio, latency.first_audio);
        if latency.commit.is_some() {
            from_speech(&self.answer_audio, latency.answer_audio);
        }
        if let Some(dead_air) = latency.dead_air {
            self.dead_air.observe(seconds(dead_air));
        }
    }

    fn run(&self, run: &RunRecord, tool: String) {
        let Some(source) = run.source.map(Source::name) else {
            self.serial.get_or_create(&Tool { tool }).inc();
            return;
        };
        let early = Early {
            tool: tool.clone(),
            source,
        };
        match run.fate {
            Fate::Committed { .. } => {
                self.started.get_or_create(&early).inc();
                self.committed.get_or_create(&early).inc();
                self.hidden_seconds
                    .get_or_create(&early)
                    .inc_by(seconds(run.saved));
            }
            Fate::Discarded { reason, .. } => {
                let labels = Wasted {
                    tool,
                    source,
                    reason: reason.name(),
                };
                if was_refused(reason) {
                    self.refused_runs.get_or_create(&labels).inc();
                    return;
                }
                self.started.get_or_create(&early).inc();
                self.wasted.get_or_create(&labels).inc();
                self.wasted_seconds
                    .get_or_create(&early)
                    .inc_by(seconds(run.wasted));
                self.wasted_cost.get_or_create(&early).inc_by(run.cost);
            }
        }
    }
}

/// The server never started it.
pub(crate) fn was_refused(reason: Discard) -> bool {
    matches!(reason, Discard::Budget | Discard::Overloaded)
}

fn seconds(span: Micros) -> f64 {
    span.duration().as_secs_f64()
}

/// Counts as an open session until it is dropped.
#[derive(Debug)]
pub struct OpenSession(Gauge);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::testing::{early_run, record};

    #[test]
    fn runs_are_counted_once_and_by_their_end() {
        let metrics = Metrics::default();
        let mut record = record();
        record
            .runs
            .push(early_run("weather", Some(Discard::Superseded)));
        record
            .runs
            .push(early_run("weather", Some(Discard::Budget)));
        record.runs.push(early_run("what the model said", None));
        metrics.turn(&record, |tool| tool == "weather");
        metrics.stage_failed("asr");
        metrics.refused(Refusal::Full);
        metrics.barge_in(Micros::from_ms(3));
        let turns = Counter::default();
        metrics.show_lost("turn", turns.clone());
        turns.inc_by(2);
        let text = metrics.render();
        let weather = r#"{tool="weather",source="rule"}"#;
        for line in [
            format!("undertone_speculative_runs_total{weather} 2"),
            format!("undertone_speculative_hits_total{weather} 1"),
            format!("undertone_speculative_hidden_seconds_total{weather} 0.8"),
            format!("undertone_speculative_wasted_run_seconds_total{weather} 0.3"),
            format!("undertone_speculative_wasted_cost_total{weather} 0.02"),
            r#"undertone_speculative_wasted_total{tool="weather",source="rule",reason="superseded"} 1"#.into(),
            r#"undertone_speculative_refused_total{tool="weather",source="rule",reason="budget"} 1"#.into(),
            r#"undertone_predictions_total{tool="weather",source="rule",decision="started"} 1"#.into(),
            "undertone_first_audio_seconds_count 1".into(),
            "undertone_dead_air_seconds_sum 0.25".into(),
            "undertone_barge_in_stop_seconds_count 1".into(),
            r#"undertone_stage_failures_total{stage="asr"} 1"#.into(),
            r#"undertone_refused_connections_total{reason="full"} 1"#.into(),
            r#"undertone_lost_total{what="turn"} 2"#.into(),
            r#"undertone_lost_total{what="log_line"} 0"#.into(),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("the model said") && text.contains(UNKNOWN_TOOL));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_session_is_open_until_it_is_dropped() {
        let metrics = Metrics::default();
        let open = metrics.session();
        assert!(metrics.render().contains("undertone_sessions 1\n"));
        drop(open);
        assert!(metrics.render().contains("undertone_sessions 0\n"));
    }
}
