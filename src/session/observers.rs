//! The recordings, turn log, traces, metrics and patterns of all sessions, and what they share with other servers.

use super::call_audio::CallRecordings;
use super::options::{SessionOptions, SpokenBy};
use super::recorder::Recordings;
use crate::conversation::TurnRecord;
use crate::metrics::Metrics;
use crate::prediction::patterns::Memory;
use crate::report::Webhook;
use crate::stats::{LoggedTurn, TurnLog};
use crate::store::Store;
use crate::tools::{AuditLog, Registry};
use crate::traces::Traces;
use std::sync::Arc;

/// Recorders, turn log, traces, metrics, patterns, and the store that is shared with other servers.
#[derive(Debug, Clone, Default)]
pub struct Observers {
    /// Records every session.
    pub recordings: Option<Recordings>,
    /// Logs every turn.
    pub turns: Option<TurnLog>,
    /// Records calls as sound.
    pub calls: Option<CallRecordings>,
    /// Lists every call that may have changed something.
    pub audit: Option<AuditLog>,
    /// Is told of every call when it is over.
    pub webhook: Option<Webhook>,
    /// Shows every conversation as a trace.
    pub traces: Option<Traces>,
    /// Counts everything.
    pub metrics: Arc<Metrics>,
    /// The learned patterns: which call follows which.
    pub patterns: Memory,
    /// The store that several servers share; `None` if this one is alone.
    pub store: Option<Store>,
}

impl Observers {
    /// Has the metrics show what could not be kept.
    pub(super) fn show_lost(&self) {
        if let Some(turns) = &self.turns {
            self.metrics.show_lost("turn", turns.lost());
        }
        if let Some(recordings) = &self.recordings {
            self.metrics.show_lost("recording", recordings.lost());
        }
        if let Some(calls) = &self.calls {
            self.metrics.show_lost("call_recording", calls.lost());
        }
        if let Some(audit) = &self.audit {
            self.metrics.show_lost("audit", audit.lost());
        }
        if let Some(webhook) = &self.webhook {
            self.metrics.show_lost("report", webhook.lost());
        }
        if let Some(traces) = &self.traces {
            self.metrics.show_lost("span", traces.lost());
        }
    }

    /// Where a session with this agent is recorded as sound; `None` if it is not, or has none.
    pub(super) fn calls_of(
        &self,
        agent: &str,
        options: &SessionOptions,
    ) -> Option<&CallRecordings> {
        let calls = self.calls.as_ref()?;
        let has_sound = options.spoken_by == SpokenBy::Server;
        (has_sound && calls.records(agent)).then_some(calls)
    }

    /// A turn of a session is over. `agent`: whose it was, if the server has several.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: lines of the log grow old"
    )]
    pub(super) fn turn(
        &self,
        session: u64,
        agent: Option<&str>,
        record: &TurnRecord,
        tools: &Registry,
    ) {
        let only_reads = |tool: &str| {
            let declaration = tools.declaration(tool)?;
            Some(!declaration.effect.changes())
        };
        if let Some(agent) = agent {
            self.metrics.agent_turn(agent);
        }
        self.metrics.turn(record, |tool| only_reads(tool).is_some());
        if let Some(turns) = &self.turns {
            let turn = LoggedTurn::new(session, record.clone(), only_reads);
            let agent = agent.map(str::to_owned);
            let time = Some(jiff::Timestamp::now());
            turns.put(LoggedTurn {
                time,
                agent,
                ..turn
            });
        }
    }
}
