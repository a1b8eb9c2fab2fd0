//! Metrics for Prometheus: counts and times, by tool and source of prediction. Never words,
//! arguments or secrets.

use crate::conversation::{
    Discard, DraftRecord, Fate, HeldRecord, Micros, RunRecord, Time, TurnRecord,
};
use crate::llm::FallbackFigures;
use crate::prediction::Source;
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
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram bounds for delays that a user notices, seconds.
const WAITS: [f64; 14] = [
    0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0,
];

/// Histogram bounds for the server's own reactions, seconds.
const REACTIONS: [f64; 10] = [
    0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
];

/// Histogram bounds for the queueing delay of jobs, seconds.
const QUEUEING: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// The label of all tools that the server does not have: a model may call any name.
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
struct Generation {
    before: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Before {
    before: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tool {
    tool: String,
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

/// The language models that do not answer. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LoadingModels {
    gauge: Gauge,
    /// Why, if that is known: one entry for each, by a number of its own.
    causes: Arc<Mutex<BTreeMap<u64, Option<String>>>>,
}

impl LoadingModels {
    /// Counts a language model as loading until the returned guard is dropped.
    pub fn begin(&self) -> LoadingModel {
        self.gauge.inc();
        let mut causes = self.lock();
        let id = causes.last_key_value().map_or(0, |(last, _)| last + 1);
        causes.insert(id, None);
        LoadingModel {
            all: self.clone(),
            id,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Option<String>>> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A language model that is loading, refuses, or cannot be reached.
#[derive(Debug)]
pub struct LoadingModel {
    all: LoadingModels,
    id: u64,
}

impl LoadingModel {
    /// Says why the model does not answer. Anybody may read it.
    pub fn because(&self, cause: String) {
        self.all.lock().insert(self.id, Some(cause));
    }
}

impl Drop for LoadingModel {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
        self.all.gauge.dec();
    }
}

/// The server's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    predictions: Family<Predicted, Counter>,
    started: Family<Early, Counter>,
    committed: Family<Early, Counter>,
    committed_first: Family<Early, Counter>,
    committed_among_three: Family<Early, Counter>,
    wasted: Family<Wasted, Counter>,
    refused_runs: Family<Wasted, Counter>,
    serial: Family<Tool, Counter>,
    hidden_seconds: Family<Early, Seconds>,
    wasted_seconds: Family<Early, Seconds>,
    wasted_cost: Family<Early, Seconds>,
    early_generations: Family<Generation, Counter>,
    early_tokens: Family<Generation, Counter>,
    early_saved: Family<Before, Seconds>,
    early_delayed: Family<Before, Seconds>,
    drafts: Family<Outcome, Counter>,
    draft_tokens: Counter,
    draft_cost: Seconds,
    fillers: Counter,
    dropped_fillers: Counter,
    fillers_saved: Seconds,
    end_of_turn: Histogram,
    first_audio: Histogram,
    answer_audio: Histogram,
    dead_air: Histogram,
    barge_in: Histogram,
    sessions: Gauge,
    stage_failures: Family<Stage, Counter>,
    tool_failures: Family<ToolFailure, Counter>,
    service_failures: Family<ServiceFailure, Counter>,
    services_up: Family<ServiceLabel, Gauge>,
    refused: Family<Reason, Counter>,
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
    loading: LoadingModels,
    agent_turns: Family<AgentLabel, Counter>,
    handoffs: Family<Handoff, Counter>,
    mcp: McpFigures,
    patterns: PatternFigures,
    fallbacks: FallbackFigures,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram = |bounds: &[f64]| Histogram::new(bounds.iter().copied());
        let mut metrics = Self {
            registry: Registry::with_prefix("undertone"),
            predictions: Family::default(),
            started: Family::default(),
            committed: Family::default(),
            committed_first: Family::default(),
            committed_among_three: Family::default(),
            wasted: Family::default(),
            refused_runs: Family::default(),
            serial: Family::default(),
            hidden_seconds: Family::default(),
            wasted_seconds: Family::default(),
            wasted_cost: Family::default(),
            early_generations: Family::default(),
            early_tokens: Family::default(),
            early_saved: Family::default(),
            early_delayed: Family::default(),
            drafts: Family::default(),
            draft_tokens: Counter::default(),
            draft_cost: Seconds::default(),
            fillers: Counter::default(),
            dropped_fillers: Counter::default(),
            fillers_saved: Seconds::default(),
            end_of_turn: histogram(&WAITS),
            first_audio: histogram(&WAITS),
            answer_audio: histogram(&WAITS),
            dead_air: histogram(&WAITS),
            barge_in: histogram(&REACTIONS),
            sessions: Gauge::default(),
            stage_failures: Family::default(),
            tool_failures: Family::default(),
            service_failures: Family::default(),
            services_up: Family::default(),
            refused: Family::default(),
            certificate_expires: Family::default(),
            webrtc_calls: Family::default(),
            webrtc_dropped: Family::default(),
            lost: Family::default(),
            queue_delay: Family::new_with_constructor(|| Histogram::new(QUEUEING)),
            load: Gauge::default(),
            losses: Mutex::default(),
            journal: JournalFigures::default(),
            store: StoreFigures::default(),
            loading: LoadingModels::default(),
            agent_turns: Family::default(),
            handoffs: Family::default(),
            mcp: McpFigures::default(),
            patterns: PatternFigures::default(),
            fallbacks: FallbackFigures::default(),
        };
        metrics.register_speculation();
        metrics.register_early_answers();
        metrics.register_drafts();
        metrics.register_latencies();
        metrics.register_operation();
        metrics.register_models_and_agents();
        metrics
    }
}

impl Metrics {
    fn register_speculation(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "predictions",
            "Predicted tool calls, by decision",
            self.predictions.clone(),
        );
        registry.register(
            "speculative_runs",
            "Runs that started before the model called the tool",
            self.started.clone(),
        );
        registry.register(
            "speculative_hits",
            "Speculative runs that were committed",
            self.committed.clone(),
        );
        registry.register(
            "speculative_first_hits",
            "Of these, the surest of the runs that waited for a commit then",
            self.committed_first.clone(),
        );
        registry.register(
            "speculative_among_three_hits",
            "Of these, those among the three surest",
            self.committed_among_three.clone(),
        );
        registry.register(
            "speculative_wasted",
            "Speculative runs that were discarded",
            self.wasted.clone(),
        );
        registry.register(
            "speculative_refused",
            "Speculative runs that the server did not start: no budget, or overloaded",
            self.refused_runs.clone(),
        );
        registry.register(
            "serial_runs",
            "Runs that started only when the model called the tool",
            self.serial.clone(),
        );
        registry.register_with_unit(
            "speculative_hidden",
            "How much earlier results were available than if their runs had started at the commit",
            Unit::Seconds,
            self.hidden_seconds.clone(),
        );
        registry.register_with_unit(
            "speculative_wasted_run",
            "How long discarded speculative runs ran",
            Unit::Seconds,
            self.wasted_seconds.clone(),
        );
        registry.register(
            "speculative_wasted_cost",
            "Cost of discarded speculative runs, in the operator's currency",
            self.wasted_cost.clone(),
        );
    }

    fn register_early_answers(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "early_generations",
            "Generations that were requested before they were certain to be needed, by what they were held back for",
            self.early_generations.clone(),
        );
        registry.register(
            "early_generation_tokens",
            "Tokens of these generations, prompts included",
            self.early_tokens.clone(),
        );
        registry.register_with_unit(
            "early_generation_saved",
            "How much earlier the first words of the used ones were heard",
            Unit::Seconds,
            self.early_saved.clone(),
        );
        registry.register_with_unit(
            "early_generation_delayed",
            "How long the model's words were held back for the discarded ones",
            Unit::Seconds,
            self.early_delayed.clone(),
        );
        registry.register(
            "fillers",
            "Fillers said by the server rather than the model",
            self.fillers.clone(),
        );
        registry.register(
            "dropped_fillers",
            "Fillers that were not said because the answer was there",
            self.dropped_fillers.clone(),
        );
        registry.register_with_unit(
            "dropped_fillers_saved",
            "How much earlier answers were heard because of that",
            Unit::Seconds,
            self.fillers_saved.clone(),
        );
    }

    fn register_drafts(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "drafts",
            "Questions to the draft model, by what became of its calls",
            self.drafts.clone(),
        );
        registry.register(
            "draft_tokens",
            "Tokens of the draft model, prompts included",
            self.draft_tokens.clone(),
        );
        registry.register(
            "draft_cost",
            "Their cost, in the operator's currency",
            self.draft_cost.clone(),
        );
    }

    fn register_latencies(&mut self) {
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
                "Detection of a barge-in to the last audio sent",
                &self.barge_in,
            ),
        ];
        for (name, help, histogram) in histograms {
            let registry = &mut self.registry;
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
    }

    fn register_operation(&mut self) {
        let registry = &mut self.registry;
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
            self.loading.gauge.clone(),
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

    /// The language models that do not answer.
    pub fn loading(&self) -> LoadingModels {
        self.loading.clone()
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

    /// The reason that a language model does not answer, if there is one.
    pub fn loading_because(&self) -> Option<String> {
        let causes = self.loading.lock();
        let known = causes.values().flatten().next();
        let unknown = || "it has not answered yet: it is loading or cannot be reached".to_owned();
        (!causes.is_empty()).then(|| known.cloned().unwrap_or_else(unknown))
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
        OpenSession(self.sessions.clone())
    }

    /// Counts a failure of a stage.
    pub fn stage_failed(&self, stage: &str) {
        let stage = stage.to_owned();
        self.stage_failures.get_or_create(&Stage { stage }).inc();
    }

    /// Counts a call of a tool that broke or did not answer in time.
    pub fn tool_failed(&self, tool: &str, error: &ToolError) {
        let reason = match error {
            ToolError::Timeout(_) => "late",
            ToolError::Broken(_) => "broken",
            // The tool works; it could not do what was asked.
            ToolError::Unknown(_) | ToolError::Arguments(_) | ToolError::Failed(_) => return,
        };
        let tool = tool.to_owned();
        let failure = ToolFailure { tool, reason };
        self.tool_failures.get_or_create(&failure).inc();
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

    /// Records the TLS certificate that is shown: a name that it is for, and when it expires.
    pub fn certificate(&self, name: &str, until: jiff::Timestamp) {
        let label = CertificateLabel { name: name.into() };
        if self.certificate_expires.get(&label).is_none() {
            self.certificate_expires.clear();
        }
        let expires = self.certificate_expires.get_or_create(&label);
        expires.set(until.as_second());
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

    /// Records the time from detecting a barge-in to the last audio sent.
    pub fn barge_in(&self, stop: Micros) {
        self.barge_in.observe(seconds(stop));
    }

    /// Records a finished turn. All tools that are not `known` share one label.
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
            self.run(run, tool_of(&run.tool), rank(run, &record.runs));
        }
        record.held.iter().for_each(|held| self.generation(held));
        record.drafts.iter().for_each(|draft| self.draft(draft));
        self.fillers.inc_by(u64::from(record.fillers));
        self.dropped_fillers
            .inc_by(u64::from(record.fillers_dropped));
        self.fillers_saved.inc_by(seconds(record.fillers_saved));
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

    fn rank(&self, early: &Early, rank: Option<usize>) {
        let is_first = u64::from(rank == Some(0));
        let is_among_three = u64::from(rank.is_some_and(|rank| rank < 3));
        self.committed_first.get_or_create(early).inc_by(is_first);
        let among_three = self.committed_among_three.get_or_create(early);
        among_three.inc_by(is_among_three);
    }

    fn generation(&self, held: &HeldRecord) {
        let before = held.before.name();
        let outcome = match held.used {
            true => "used",
            false => "discarded",
        };
        let labels = Generation { before, outcome };
        self.early_generations.get_or_create(&labels).inc();
        let tokens = self.early_tokens.get_or_create(&labels);
        tokens.inc_by(held.usage.total());
        let (time, span) = match held.used {
            true => (&self.early_saved, held.saved),
            false => (&self.early_delayed, held.delayed),
        };
        time.get_or_create(&Before { before }).inc_by(seconds(span));
    }

    fn draft(&self, draft: &DraftRecord) {
        let outcome = match draft.accepted {
            Some(true) => "accepted",
            Some(false) => "rejected",
            None if draft.calls == 0 => "silent",
            None => "unused",
        };
        self.drafts.get_or_create(&Outcome { outcome }).inc();
        self.draft_tokens.inc_by(draft.usage.total());
        self.draft_cost.inc_by(draft.cost);
    }

    fn run(&self, run: &RunRecord, tool: String, rank: Option<usize>) {
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
                self.rank(&early, rank);
                // Shown as 0, or else the sum of both would be missing.
                self.serial.get_or_create(&Tool { tool }).inc_by(0);
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

/// Whether the server never started the run.
pub(crate) fn was_refused(reason: Discard) -> bool {
    matches!(reason, Discard::Budget | Discard::Overloaded)
}

/// How many surer speculative runs waited for a commit when this one was committed; `None` if it was not speculative,
/// or not committed.
pub(crate) fn rank(run: &RunRecord, all: &[RunRecord]) -> Option<usize> {
    let Fate::Committed { at, .. } = run.fate else {
        return None;
    };
    run.source?;
    let waited = |other: &&RunRecord| {
        let until = match other.fate {
            Fate::Committed { at, .. } | Fate::Discarded { at, .. } => at,
        };
        let was_run = !matches!(other.fate, Fate::Discarded { reason, .. } if was_refused(reason));
        other.source.is_some() && was_run && other.started <= at && at <= until
    };
    let waited = all.iter().filter(waited);
    Some(
        waited
            .filter(|other| other.confidence > run.confidence)
            .count(),
    )
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
mod contrib;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::testing::{early_run, record};

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
