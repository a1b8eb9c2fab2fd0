//! Metrics for Prometheus: counts and times, by tool and source of prediction. Never words,
//! arguments or secrets.

use crate::conversation::{Micros, TurnRecord};
use crate::llm::FallbackFigures;
use crate::prediction::patterns::PatternFigures;
use crate::store::StoreFigures;
use crate::telemetry;
use crate::tools::ToolError;
use crate::tools::journal::JournalFigures;
use crate::tools::mcp::McpFigures;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use turns::TurnFigures;

#[cfg(test)]
mod contrib;
mod language_models;
mod turns;

pub use language_models::{LanguageModel, LanguageModels};
pub(crate) use turns::{rank, was_refused};

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram bounds for the server's own reactions, seconds.
const REACTIONS: [f64; 10] = [
    0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
];

/// Histogram bounds for the queueing delay of jobs, seconds.
const QUEUEING: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// The label of all tools that the server does not have: a model may call any name.
pub const UNKNOWN_TOOL: &str = "unknown";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolFailure {
    tool: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabel {
    agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handoff {
    from: String,
    to: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
    stage: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabel {
    stage: &'static str,
    service: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceFailure {
    stage: &'static str,
    service: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    name: String,
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

/// The reason a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It had no valid token, or came from a foreign web page.
    Denied,
    /// All sessions are taken.
    Full,
    /// The models are overloaded.
    Overloaded,
    /// The server is shutting down.
    Draining,
    /// Too many connections are open: this one, or an idle one, was closed.
    Connections,
    /// It sent no request in time.
    Silent,
    /// Its client has opened too many sessions within a minute.
    TooMany,
}

impl Refusal {
    const ALL: [Self; 7] = [
        Self::Denied,
        Self::Full,
        Self::Overloaded,
        Self::Draining,
        Self::Connections,
        Self::Silent,
        Self::TooMany,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Full => "full",
            Self::Overloaded => "overloaded",
            Self::Draining => "draining",
            Self::Connections => "connections",
            Self::Silent => "silent",
            Self::TooMany => "too_many",
        }
    }
}

/// The outcome of a call over WebRTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The connection came up.
    Connected,
    /// The client was answered and never reached the UDP port.
    NeverConnected,
    /// A fault of the server.
    Failed,
}

/// The reason why a UDP packet of a WebRTC client was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpLoss {
    /// It belongs to no call.
    Stray,
    /// Too many wait for its call.
    Busy,
}

/// The stages that can fail in every server.
const STAGES: [&str; 4] = ["vad", "asr", "llm", "tts"];

/// The server's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    turns: TurnFigures,
    barge_in: Histogram,
    sessions: Gauge,
    stage_failures: Family<Stage, Counter>,
    tool_failures: Family<ToolFailure, Counter>,
    service_failures: Family<ServiceFailure, Counter>,
    services_up: Family<ServiceLabel, Gauge>,
    refused: Family<Reason, Counter>,
    certificate_begins: Family<CertificateLabel, Gauge>,
    certificate_expires: Family<CertificateLabel, Gauge>,
    webrtc_calls: Family<Outcome, Counter>,
    webrtc_dropped: Family<Reason, Counter>,
    lost: Family<What, Counter>,
    queue_delay: Family<Stage, Histogram, fn() -> Histogram>,
    load: Gauge,
    /// Counters of lost items, by kind.
    losses: Mutex<Vec<(&'static str, Counter)>>,
    journal: JournalFigures,
    store: StoreFigures,
    language_models: LanguageModels,
    agent_turns: Family<AgentLabel, Counter>,
    handoffs: Family<Handoff, Counter>,
    mcp: McpFigures,
    patterns: PatternFigures,
    fallbacks: FallbackFigures,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("undertone"),
            turns: TurnFigures::default(),
            barge_in: Histogram::new(REACTIONS),
            sessions: Gauge::default(),
            stage_failures: Family::default(),
            tool_failures: Family::default(),
            service_failures: Family::default(),
            services_up: Family::default(),
            refused: Family::default(),
            certificate_begins: Family::default(),
            certificate_expires: Family::default(),
            webrtc_calls: Family::default(),
            webrtc_dropped: Family::default(),
            lost: Family::default(),
            queue_delay: Family::new_with_constructor(|| Histogram::new(QUEUEING)),
            load: Gauge::default(),
            losses: Mutex::default(),
            journal: JournalFigures::default(),
            store: StoreFigures::default(),
            language_models: LanguageModels::default(),
            agent_turns: Family::default(),
            handoffs: Family::default(),
            mcp: McpFigures::default(),
            patterns: PatternFigures::default(),
            fallbacks: FallbackFigures::default(),
        };
        metrics.turns.register(&mut metrics.registry);
        metrics.register_operation();
        metrics.show_zeros();
        metrics.register_models_and_agents();
        metrics
    }
}

impl Metrics {
    /// Has the counters that alerts read begin at 0: Prometheus sees no increase in a counter that appears with its
    /// first event.
    fn show_zeros(&self) {
        for refusal in Refusal::ALL {
            let reason = refusal.name();
            drop(self.refused.get_or_create(&Reason { reason }));
        }
        for stage in STAGES {
            let stage = stage.to_owned();
            drop(self.stage_failures.get_or_create(&Stage { stage }));
        }
    }

    fn register_operation(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "barge_in_stop",
            "Detection of a barge-in to the last audio sent",
            Unit::Seconds,
            self.barge_in.clone(),
        );
        registry.register("sessions", "Open sessions", self.sessions.clone());
        registry.register(
            "stage_failures",
            "Failures by stage: recognition, language model, voice, ...",
            self.stage_failures.clone(),
        );
        registry.register(
            "tool_failures",
            "Calls of tools that broke or did not answer in time",
            self.tool_failures.clone(),
        );
        registry.register(
            "service_failures",
            "Failures of speech services, after which the local engine went on",
            self.service_failures.clone(),
        );
        registry.register(
            "service_up",
            "1: the speech service is used; 0: it is down, or refuses the key",
            self.services_up.clone(),
        );
        registry.register(
            "refused_connections",
            "Refused connections, by reason",
            self.refused.clone(),
        );
        registry.register(
            "certificate_begins_timestamp_seconds",
            "When the TLS certificate begins to be valid, in seconds since 1970",
            self.certificate_begins.clone(),
        );
        registry.register(
            "certificate_expires_timestamp_seconds",
            "When the TLS certificate expires, in seconds since 1970",
            self.certificate_expires.clone(),
        );
        registry.register(
            "webrtc_calls",
            "Calls over WebRTC that are over, by whether the client ever reached the UDP port",
            self.webrtc_calls.clone(),
        );
        registry.register(
            "webrtc_dropped_packets",
            "UDP packets that belonged to no call, or for which too many were waiting",
            self.webrtc_dropped.clone(),
        );
        registry.register_with_unit(
            "queue_delay",
            "How long a transcript or the first clause of an answer waits for its model",
            Unit::Seconds,
            self.queue_delay.clone(),
        );
        registry.register(
            "load",
            "0: normal; 1: speculative runs are skipped; 2: partials, too; 3: answers before the end of the turn, too; 4: \
             new sessions are refused, too",
            self.load.clone(),
        );
        registry.register(
            "lost",
            "Items that could not be written: log lines, turns of the turn log, recordings",
            self.lost.clone(),
        );
        registry.register(
            "journal_failures",
            "Failures to write the journal of calls with side effects",
            self.journal.failures.clone(),
        );
        registry.register(
            "journal_failing",
            "1 while the journal cannot be written and tools with side effects do not run",
            self.journal.failing.clone(),
        );
        registry.register(
            "store_up",
            "1 while the store that several servers share answers, or if there is none",
            self.store.up.clone(),
        );
        registry.register(
            "budgets_counted_alone",
            "Spendings of daily budgets that this server counted by itself, because the shared store did not answer",
            self.store.local_budgets.clone(),
        );
    }

    fn register_models_and_agents(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "mcp_up",
            "1 while an MCP server is connected",
            self.mcp.up.clone(),
        );
        registry.register(
            "mcp_tools_drifted",
            "Tools of MCP servers that were withdrawn because they are no longer the pinned ones",
            self.mcp.drifted.clone(),
        );
        registry.register(
            "patterns_stopped",
            "Tools whose calls are not predicted from the calls before, because those predictions became wrong",
            self.patterns.stopped.clone(),
        );
        registry.register(
            "patterns_drifted",
            "How often a tool was stopped for that",
            self.patterns.drifts.clone(),
        );
        registry.register(
            "llm_loading",
            "Language models that have not answered since the start, or were asked for in vain after a pause: each \
             agent has one, with its prompt",
            self.language_models.gauge(),
        );
        registry.register(
            "llm_fallback_answers",
            "Answers, and parts of answers between calls, that a fallback gave",
            self.fallbacks.answers.clone(),
        );
        registry.register(
            "agent_turns",
            "Turns of each agent, if there are several",
            self.agent_turns.clone(),
        );
        registry.register(
            "handoffs",
            "Handoffs from one agent to another",
            self.handoffs.clone(),
        );
    }

    /// Exports `counter` as the number of lost items of a kind.
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

    /// All metrics in the OpenMetrics text format, which Prometheus reads.
    pub fn render(&self) -> String {
        self.update_lost();
        let mut out = String::new();
        // Writing into a `String` does not fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    /// The language models that the server needs.
    pub fn language_models(&self) -> LanguageModels {
        self.language_models.clone()
    }

    /// The answers of fallbacks.
    pub fn fallbacks(&self) -> FallbackFigures {
        self.fallbacks.clone()
    }

    /// A session was handed over from one agent to another.
    pub fn handed_over(&self, from: &str, to: &str) {
        let labels = Handoff {
            from: from.to_owned(),
            to: to.to_owned(),
        };
        self.handoffs.get_or_create(&labels).inc();
    }

    /// A turn of an agent is over.
    pub fn agent_turn(&self, agent: &str) {
        let agent = agent.to_owned();
        self.agent_turns.get_or_create(&AgentLabel { agent }).inc();
    }

    /// The reason that the server cannot serve, if there is one: a language model has not answered yet, or none
    /// answers.
    pub fn loading_because(&self) -> Option<String> {
        self.language_models.because()
    }

    /// The reasons for which language models fail, each once.
    pub fn failing_models(&self) -> Vec<String> {
        self.language_models.failing()
    }

    /// The metrics of the MCP servers.
    pub fn mcp(&self) -> McpFigures {
        self.mcp.clone()
    }

    /// The metrics of calls that are predicted from the calls before.
    pub fn patterns(&self) -> PatternFigures {
        self.patterns.clone()
    }

    /// The metrics of the store that several servers share.
    pub fn store(&self) -> StoreFigures {
        self.store.clone()
    }

    /// The metrics of the journal of calls with side effects.
    pub fn journal(&self) -> JournalFigures {
        self.journal.clone()
    }

    /// Counts a session as open until the returned guard is dropped.
    pub fn session(&self) -> OpenSession {
        self.sessions.inc();
        OpenSession {
            sessions: self.sessions.clone(),
            load: self.load.clone(),
        }
    }

    /// Counts a failure of a stage.
    pub fn stage_failed(&self, stage: &str) {
        let stage = stage.to_owned();
        self.stage_failures.get_or_create(&Stage { stage }).inc();
    }

    /// Counts a call of a tool that broke or did not answer in time. Returns whether it was one.
    pub fn tool_failed(&self, tool: &str, error: &ToolError) -> bool {
        let reason = match error {
            ToolError::Timeout(_) | ToolError::Unanswered(_) => "late",
            ToolError::Broken(_) | ToolError::NotBegun(_) | ToolError::Uncertain(_) => "broken",
            // The tool works; it could not do what was asked.
            ToolError::Unknown(_) | ToolError::Arguments(_) | ToolError::Failed(_) => return false,
        };
        let tool = tool.to_owned();
        let failure = ToolFailure { tool, reason };
        self.tool_failures.get_or_create(&failure).inc();
        true
    }

    /// Counts a failure of a speech service.
    pub fn service_failed(&self, stage: &'static str, service: &str, reason: &'static str) {
        let failure = ServiceFailure {
            stage,
            service: service.to_owned(),
            reason,
        };
        self.service_failures.get_or_create(&failure).inc();
    }

    /// Records the TLS certificate that is shown: a name that it is for, when it begins to be valid, and when it expires.
    pub fn certificate(&self, name: &str, from: jiff::Timestamp, until: jiff::Timestamp) {
        let label = CertificateLabel { name: name.into() };
        for (figures, time) in [
            (&self.certificate_begins, from),
            (&self.certificate_expires, until),
        ] {
            if figures.get(&label).is_none() {
                figures.clear();
            }
            figures.get_or_create(&label).set(time.as_second());
        }
    }

    /// Records whether a speech service is asked.
    pub fn service_is_up(&self, stage: &'static str, service: &str, is_up: bool) {
        let label = ServiceLabel {
            stage,
            service: service.to_owned(),
        };
        self.services_up.get_or_create(&label).set(is_up.into());
    }

    /// Records the queueing delay of a job that a user waits for.
    pub fn queued(&self, stage: &str, delay: Duration) {
        let stage = stage.to_owned();
        let delays = self.queue_delay.get_or_create(&Stage { stage });
        delays.observe(delay.as_secs_f64());
    }

    /// Sets the load level: 0, 1 or 2.
    pub fn load(&self, level: i64) {
        self.load.set(level);
    }

    /// Counts a refused connection.
    pub fn refused(&self, refusal: Refusal) {
        let reason = refusal.name();
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a call over WebRTC that is over.
    pub fn call_ended(&self, end: CallEnd) {
        let outcome = match end {
            CallEnd::Connected => "connected",
            CallEnd::NeverConnected => "never_connected",
            CallEnd::Failed => "failed",
        };
        self.webrtc_calls.get_or_create(&Outcome { outcome }).inc();
    }

    /// Counts a dropped UDP packet of a WebRTC client.
    pub fn udp_lost(&self, loss: UdpLoss) {
        let reason = match loss {
            UdpLoss::Stray => "stray",
            UdpLoss::Busy => "busy",
        };
        self.webrtc_dropped.get_or_create(&Reason { reason }).inc();
    }

    /// Records a finished turn. All tools that are not `known` share one label.
    pub fn turn(&self, record: &TurnRecord, known: impl Fn(&str) -> bool) {
        self.turns.record(record, known);
    }

    /// Records the time from detecting a barge-in to the last audio sent.
    pub fn barge_in(&self, stop: Micros) {
        self.barge_in.observe(seconds(stop));
    }
}

fn seconds(span: Micros) -> f64 {
    span.duration().as_secs_f64()
}

/// Counts as an open session until it is dropped.
#[derive(Debug)]
pub struct OpenSession {
    sessions: Gauge,
    load: Gauge,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let others = self.sessions.dec() - 1;
        // Nobody measures the load any more, and whoever is left waits for nobody.
        if others <= 1 {
            self.load.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Discard;
    use crate::stats::testing::{early_run, record};

    /// The load of two sessions was shown for the whole night after both had ended.
    #[test]
    fn a_server_with_one_session_or_none_has_no_load() {
        let metrics = Metrics::default();
        let load = |load: i64| format!("\nundertone_load {load}\n");
        let sessions = [metrics.session(), metrics.session(), metrics.session()];
        metrics.load(2);
        let [one, other, last] = sessions;
        drop(one);
        assert!(metrics.render().contains(&load(2)), "others may wait");
        drop(other);
        assert!(metrics.render().contains(&load(0)));
        drop(last);
    }

    #[test]
    fn counters_that_alerts_read_begin_at_zero() {
        let text = Metrics::default().render();
        for line in [
            r#"undertone_refused_connections_total{reason="full"} 0"#,
            r#"undertone_stage_failures_total{stage="llm"} 0"#,
        ] {
            assert!(text.contains(line), "{line}");
        }
    }

    #[test]
    fn runs_are_counted_once_by_outcome() {
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
            format!("undertone_speculative_first_hits_total{weather} 1"),
            format!("undertone_speculative_hidden_seconds_total{weather} 0.8"),
            format!("undertone_speculative_wasted_run_seconds_total{weather} 0.3"),
            format!("undertone_speculative_wasted_cost_total{weather} 0.02"),
            r#"undertone_speculative_wasted_total{tool="weather",source="rule",reason="superseded"} 1"#.into(),
            r#"undertone_speculative_refused_total{tool="weather",source="rule",reason="budget"} 1"#.into(),
            r#"undertone_predictions_total{tool="weather",source="rule",decision="started"} 1"#.into(),
            r#"undertone_early_generations_total{before="commit",outcome="used"} 1"#.into(),
            r#"undertone_early_generation_tokens_total{before="commit",outcome="used"} 920"#.into(),
            r#"undertone_early_generation_saved_seconds_total{before="commit"} 0.2"#.into(),
            r#"undertone_drafts_total{outcome="accepted"} 1"#.into(),
            "undertone_draft_tokens_total 2730".into(),
            "undertone_draft_cost_total 0.001".into(),
            "undertone_fillers_total 0".into(),
            "undertone_dropped_fillers_total 1".into(),
            "undertone_dropped_fillers_saved_seconds_total 0.7".into(),
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

    /// A late answer of an MCP server to a change was counted as a broken connection.
    #[test]
    fn a_change_without_an_answer_is_counted_as_late() {
        let metrics = Metrics::default();
        assert!(metrics.tool_failed("book", &ToolError::Unanswered(300)));
        assert!(metrics.tool_failed("book", &ToolError::Uncertain("connection reset".into())));
        let text = metrics.render();
        for reason in ["late", "broken"] {
            let line =
                format!(r#"undertone_tool_failures_total{{tool="book",reason="{reason}"}} 1"#);
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn hits_are_counted_by_their_rank_among_the_runs_that_waited() {
        let metrics = Metrics::default();
        let mut turn = record();
        turn.runs[0].confidence = 0.4;
        let surer = |tool: &str| {
            let mut run = early_run(tool, Some(Discard::TurnEnded));
            run.confidence = 0.9;
            run
        };
        turn.runs.push(surer("stock"));
        metrics.turn(&turn, |_| true);
        turn.runs.extend(["calendar", "orders"].map(surer));
        metrics.turn(&turn, |_| true);
        let weather = r#"{tool="weather",source="rule"}"#;
        let text = metrics.render();
        for (name, count) in [("", 2), ("_first", 0), ("_among_three", 1)] {
            let line = format!("undertone_speculative{name}_hits_total{weather} {count}");
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r#"hits_total{tool="stock""#), "{text}");
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
