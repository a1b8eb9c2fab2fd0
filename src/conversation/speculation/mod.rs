//! The speculation track: tools that run before they are certain, and stay silent until the model
//! commits them.
//!
//! A prediction goes through the [`gate`]; what runs is an entry of the [`ledger`]; the entry ends
//! once, committed or discarded. Nothing here touches the history, the voice or the clients'
//! conversation: only a commit does, in `commit`.

mod gate;
mod ledger;
mod record;

pub use gate::{Because, Decision, Decline, Verdict, verdict};
pub(super) use ledger::{Ledger, TrackId};
pub use record::{Discard, Fate, PredictionRecord, RunRecord, SpeculationEvent, TurnRecord};

use super::ids::{CallId, RequestId, RunId};
use super::time::Time;
use super::{Conversation, Event, Output, ResponseTerms};
use crate::llm::{ToolChoice, ToolSpec};
use crate::router::{Heard, PastCall, Prediction, Source};
use crate::tools::{Declaration, Eligibility, ToolError, canonical};
use gate::Situation;
use ledger::Run;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How sure the model's own stream makes a call: it has only not closed the tag.
const STREAMED: f32 = 0.95;

/// Connections that were opened stay open at least this long (reqwest's pool: 90 s).
const STAYS_WARM_MS: u64 = 60_000;

/// Committed calls that sources of predictions are told of.
const PAST_CALLS: usize = 16;

/// The speculation of one utterance and the answer to it.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) id: TrackId,
    predictions: Vec<PredictionRecord>,
    /// What was predicted last of each tool, to be followed if the model begins to call it.
    candidates: BTreeMap<String, Prediction>,
    started: BTreeMap<String, u32>,
    /// Calls that have failed: they would fail again.
    failed: Vec<(String, Map<String, Value>)>,
    /// What the sources were asked about last.
    asked: Heard,
}

impl Track {
    fn new(id: u64) -> Self {
        Self {
            id: TrackId(id),
            predictions: Vec::new(),
            candidates: BTreeMap::new(),
            started: BTreeMap::new(),
            failed: Vec::new(),
            asked: Heard::default(),
        }
    }

    /// The likeliest call that was predicted from the words so far.
    pub(super) fn likeliest(&self) -> Option<&Prediction> {
        let by_confidence =
            |a: &&Prediction, b: &&Prediction| a.confidence.total_cmp(&b.confidence);
        self.candidates.values().max_by(by_confidence)
    }
}

/// What a session knows of its speculation beside the ledger.
#[derive(Debug)]
pub(super) struct Speculation {
    pub(super) ledger: Ledger,
    /// The track of the utterance that is going on, or of the next one.
    pub(super) listening: Track,
    tracks: u64,
    /// Questions to the router, and the tracks that they are about.
    routes: BTreeMap<RequestId, TrackId>,
    warmed: BTreeMap<String, Time>,
    /// Committed calls, oldest first.
    past: Vec<(CallId, PastCall)>,
}

impl Default for Speculation {
    fn default() -> Self {
        Self {
            ledger: Ledger::default(),
            listening: Track::new(0),
            tracks: 0,
            routes: BTreeMap::new(),
            warmed: BTreeMap::new(),
            past: Vec::new(),
        }
    }
}

impl Conversation {
    /// The client's tools in an answer. They take the place of the server's of the same name.
    pub(super) fn clients_in<'a>(&'a self, terms: &'a ResponseTerms) -> &'a [ToolSpec] {
        terms.tools.as_ref().unwrap_or(&self.client.tools)
    }

    /// A tool that the server is going to run if it is called: neither in the answer that is being
    /// given nor in the next one is the name the client's.
    pub(super) fn declaration(&self, name: &str) -> Option<Arc<Declaration>> {
        let running = self.answer.as_ref().map(|a| self.clients_in(&a.terms));
        let mut clients = self
            .client
            .tools
            .iter()
            .chain(running.into_iter().flatten());
        let is_clients = clients.any(|tool| tool.name == name);
        self.operators(name).filter(|_| !is_clients).cloned()
    }

    /// The operator's tool of this name, also if the client has taken the name since: what was
    /// committed as the server's stays the server's.
    pub(super) fn operators(&self, name: &str) -> Option<&Arc<Declaration>> {
        let mut tools = self.common.policy.tools.iter();
        tools.find(|tool| tool.spec.name == name)
    }

    /// Asks the sources what the words so far may need.
    pub(super) fn route(&mut self, text: &str, paused: bool) {
        let calls = self.past_calls();
        let heard = Heard {
            text: text.to_owned(),
            paused,
            calls,
        };
        if text.is_empty() || self.speculation.listening.asked == heard || !self.may_speculate() {
            return;
        }
        self.speculation.listening.asked = heard.clone();
        self.ask_router(self.speculation.listening.id, heard);
    }

    /// Asks the sources what may follow a call.
    pub(super) fn route_after_call(&mut self) {
        let calls = self.past_calls();
        let may = self.may_speculate();
        let Some(track) = self.answer.as_mut().and_then(|a| a.track.as_mut()) else {
            return;
        };
        let heard = Heard {
            calls,
            ..track.asked.clone()
        };
        if !may || track.asked == heard {
            return;
        }
        track.asked = heard.clone();
        let id = track.id;
        self.ask_router(id, heard);
    }

    fn ask_router(&mut self, track: TrackId, heard: Heard) {
        let request = self.common.request_id();
        self.speculation.routes.insert(request, track);
        self.common
            .outputs
            .push_back(Output::Route { request, heard });
    }

    fn may_speculate(&self) -> bool {
        let policy = &self.common.policy.speculation;
        let may = |tool: &Arc<Declaration>| gate::eligibility(tool, policy) > Eligibility::Forbid;
        self.client.tool_choice != ToolChoice::None && self.common.policy.tools.iter().any(may)
    }

    fn past_calls(&self) -> Vec<PastCall> {
        let past = self.speculation.past.iter().map(|(_, call)| call.clone());
        past.collect()
    }

    pub(super) fn on_predicted(&mut self, request: RequestId, predictions: Vec<Prediction>) {
        let Some(id) = self.speculation.routes.remove(&request) else {
            return;
        };
        // What was asked before it is about fewer words: an answer that was overtaken is dead.
        let routes = &mut self.speculation.routes;
        routes.retain(|asked, of| *of != id || *asked > request);
        if self.track(id).is_none() {
            return;
        }
        self.supersede(id, &predictions);
        for prediction in predictions {
            self.follow(id, prediction);
        }
    }

    /// Runs of a tool that is now predicted with other arguments only.
    fn supersede(&mut self, track: TrackId, predictions: &[Prediction]) {
        let mut wanted: BTreeMap<&str, Vec<Map<String, Value>>> = BTreeMap::new();
        for prediction in predictions {
            if let Some(tool) = self.declaration(&prediction.tool) {
                let keys = wanted.entry(&prediction.tool).or_default();
                keys.push(canonical(&tool, &prediction.arguments));
            }
        }
        let outdated = |run: &Run| {
            let others = wanted.get(run.tool.as_str());
            run.track == track
                && !matches!(run.predicted, Some((Source::Stream, _)))
                && others.is_some_and(|keys| !keys.contains(&run.key))
        };
        for run in self.speculation.ledger.uncommitted(outdated) {
            self.discard(run, Discard::Superseded);
        }
    }

    /// Puts a prediction through the gate and does what it says.
    fn follow(&mut self, id: TrackId, prediction: Prediction) {
        let now = self.common.now;
        let decision = match self.declaration(&prediction.tool) {
            None => Decision::Declined(Decline::UnknownTool),
            Some(tool) => {
                let key = canonical(&tool, &prediction.arguments);
                let decision = self.judge(id, &tool, &key, prediction.confidence);
                match decision {
                    Decision::Started => self.start_early(id, &tool, key, &prediction),
                    Decision::WarmedUp => self.warm_up(&prediction.tool),
                    Decision::Known | Decision::Declined(_) => {}
                }
                decision
            }
        };
        let record = PredictionRecord {
            at: now,
            tool: prediction.tool.clone(),
            source: prediction.source,
            confidence: prediction.confidence,
            decision,
        };
        self.common
            .notify(Event::Speculation(SpeculationEvent::Predicted {
                prediction: record.clone(),
                arguments: prediction.arguments.clone(),
            }));
        if let Some(track) = self.track(id) {
            track.predictions.push(record);
            track.candidates.insert(prediction.tool.clone(), prediction);
        }
    }

    fn judge(
        &mut self,
        id: TrackId,
        tool: &Declaration,
        key: &Map<String, Value>,
        confidence: f32,
    ) -> Decision {
        let name = &tool.spec.name;
        let policy = self.common.policy.speculation;
        if gate::eligibility(tool, &policy) == Eligibility::Full
            && self.speculation.ledger.same(id, name, key).is_some()
        {
            return Decision::Known;
        }
        let write_pending = self.write_pending(&tool.reads);
        let running = self.speculation.ledger.speculating();
        let failed = self
            .track(id)
            .is_some_and(|track| track.failed.contains(&(name.clone(), key.clone())));
        let expected = self.speculation.ledger.expected(name, 0.5);
        let started = self.track(id).map(|track| {
            let of_tool = track.started.get(name).copied().unwrap_or(0);
            (track.started.values().sum(), of_tool)
        });
        let (started, started_of_tool) = started.unwrap_or_default();
        let situation = Situation {
            started,
            started_of_tool,
            running,
            failed,
            write_pending,
            expected,
        };
        gate::decide(tool, confidence, situation, &policy)
    }

    fn start_early(
        &mut self,
        track: TrackId,
        tool: &Declaration,
        key: Map<String, Value>,
        prediction: &Prediction,
    ) {
        let run = self.common.run_id();
        let name = &tool.spec.name;
        if let Some(track) = self.track(track) {
            *track.started.entry(name.clone()).or_default() += 1;
        }
        self.speculation.ledger.insert(Run {
            id: run,
            track,
            tool: name.clone(),
            arguments: prediction.arguments.clone(),
            key,
            predicted: Some((prediction.source, prediction.confidence)),
            started: self.common.now,
            deferred: false,
            outcome: None,
            calls: Vec::new(),
            committed: None,
            cost: tool.speculation.cost,
            stale: false,
            told: false,
        });
        self.common.outputs.push_back(Output::StartTool {
            run,
            committed: None,
            name: name.clone(),
            arguments: prediction.arguments.clone(),
        });
        self.common
            .notify(Event::Speculation(SpeculationEvent::Started {
                at: self.common.now,
                run,
                tool: name.clone(),
                arguments: prediction.arguments.clone(),
                source: prediction.source,
                confidence: prediction.confidence,
            }));
    }

    fn warm_up(&mut self, name: &str) {
        let warm = self.speculation.warmed.get(name);
        if warm.is_some_and(|at| self.common.now.since(*at).as_ms() < STAYS_WARM_MS) {
            return;
        }
        self.speculation
            .warmed
            .insert(name.to_owned(), self.common.now);
        let tool = name.to_owned();
        self.common.outputs.push_back(Output::WarmUp { tool });
    }

    /// The model has begun to call a tool: what was predicted of it is as good as asked for.
    pub(super) fn on_tool_opened(&mut self, track: TrackId, name: &str) {
        let candidate = self.track(track).and_then(|t| t.candidates.get(name));
        if let Some(candidate) = candidate.cloned() {
            self.follow(
                track,
                Prediction {
                    confidence: candidate.confidence.max(STREAMED),
                    source: Source::Stream,
                    ..candidate
                },
            );
        } else if self.declaration(name).is_some_and(|tool| {
            gate::eligibility(&tool, &self.common.policy.speculation) > Eligibility::Forbid
        }) {
            self.warm_up(name);
        }
    }

    /// An answer that is being held back asks for a tool: it is not committed before the answer is.
    pub(super) fn on_held_call(
        &mut self,
        track: TrackId,
        tool: &str,
        arguments: Map<String, Value>,
    ) {
        self.follow(
            track,
            Prediction {
                tool: tool.to_owned(),
                arguments,
                confidence: STREAMED,
                source: Source::Stream,
            },
        );
    }

    fn track(&mut self, id: TrackId) -> Option<&mut Track> {
        if self.speculation.listening.id == id {
            return Some(&mut self.speculation.listening);
        }
        let track = self.answer.as_mut().and_then(|a| a.track.as_mut());
        track.filter(|track| track.id == id)
    }

    /// The track of what was heard, for the answer to it.
    pub(super) fn take_track(&mut self) -> Track {
        self.speculation.tracks += 1;
        let next = Track::new(self.speculation.tracks);
        std::mem::replace(&mut self.speculation.listening, next)
    }

    /// Ends a track: whatever was not committed is discarded.
    pub(super) fn close_track(
        &mut self,
        track: Track,
        reason: Discard,
        told: impl FnOnce(&mut TurnRecord),
    ) {
        let id = track.id;
        self.speculation.routes.retain(|_, of| *of != id);
        for run in self.speculation.ledger.uncommitted(|run| run.track == id) {
            self.discard(run, reason);
        }
        let mut record = TurnRecord {
            turn: None,
            status: None,
            latency: super::TurnLatency::default(),
            predictions: track.predictions,
            runs: self.speculation.ledger.close(id, self.common.now),
            fillers: 0,
        };
        told(&mut record);
        if record.turn.is_some() || !record.predictions.is_empty() || !record.runs.is_empty() {
            self.common.notify(Event::TurnRecorded(Box::new(record)));
        }
    }

    /// What was heard came to no turn.
    pub(super) fn drop_listening(&mut self, reason: Discard) {
        let track = self.take_track();
        self.close_track(track, reason, |_| {});
    }

    /// Ends an uncommitted run. Its task is aborted; a result that comes all the same finds no
    /// entry.
    pub(super) fn discard(&mut self, run: RunId, reason: Discard) {
        let Some((wasted, running)) = self
            .speculation
            .ledger
            .discard(run, self.common.now, reason)
        else {
            return;
        };
        if running {
            self.common.outputs.push_back(Output::AbortTool { run });
        }
        self.common
            .notify(Event::Speculation(SpeculationEvent::Discarded {
                at: self.common.now,
                run,
                reason,
                wasted,
            }));
    }

    /// Commits a call: takes over the run that was predicted, or starts one.
    pub(super) fn commit_run(
        &mut self,
        track: TrackId,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
    ) {
        let tool = self.operators(name).cloned();
        self.remember_call(call, name, &arguments);
        if let Some(tool) = &tool {
            self.make_stale(&tool.writes);
            if let Some(run) = self.take_over(track, tool, call, &arguments) {
                if self
                    .speculation
                    .ledger
                    .get(run)
                    .is_some_and(|r| r.outcome.is_some())
                {
                    self.deliver(run, call);
                }
                return;
            }
        }
        self.start_committed(track, call, name, arguments, tool.as_deref());
    }

    fn take_over(
        &mut self,
        track: TrackId,
        tool: &Declaration,
        call: CallId,
        arguments: &Map<String, Value>,
    ) -> Option<RunId> {
        if gate::eligibility(tool, &self.common.policy.speculation) < Eligibility::Full {
            return None;
        }
        let key = canonical(tool, arguments);
        let run = self.speculation.ledger.committable(track, tool, &key)?;
        if self
            .speculation
            .ledger
            .is_expired(run, tool, self.common.now)
        {
            self.discard(run, Discard::Expired);
            return None;
        }
        let now = self.common.now;
        let entry = self.speculation.ledger.get_mut(run)?;
        entry.calls.push(call);
        entry.committed.get_or_insert(now);
        let (ready, predicted) = (entry.outcome.is_some(), entry.predicted.is_some());
        if predicted {
            self.common
                .notify(Event::Speculation(SpeculationEvent::Committed {
                    at: now,
                    run,
                    call,
                    ready,
                }));
        }
        Some(run)
    }

    fn start_committed(
        &mut self,
        track: TrackId,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
        tool: Option<&Declaration>,
    ) {
        let run = self.common.run_id();
        let deferred = tool.is_some_and(|tool| {
            self.write_pending(&tool.reads) || self.write_pending(&tool.writes)
        });
        self.speculation.ledger.insert(Run {
            id: run,
            track,
            tool: name.to_owned(),
            key: tool.map_or_else(Map::new, |tool| canonical(tool, &arguments)),
            arguments: arguments.clone(),
            predicted: None,
            started: self.common.now,
            deferred,
            outcome: None,
            calls: vec![call],
            committed: Some(self.common.now),
            cost: tool.map_or(0.0, |tool| tool.speculation.cost),
            stale: false,
            told: false,
        });
        if !deferred {
            self.common.outputs.push_back(Output::StartTool {
                run,
                committed: Some(call),
                name: name.to_owned(),
                arguments,
            });
        }
    }

    /// A run ended. If nobody asked for it yet, nobody hears of it.
    pub(super) fn on_tool_finished(&mut self, run: RunId, result: Result<Value, ToolError>) {
        let failed = result.is_err();
        if !self.speculation.ledger.finish(run, self.common.now, result) {
            return;
        }
        let calls = self.speculation.ledger.get(run).map(|r| r.calls.clone());
        match calls.unwrap_or_default().as_slice() {
            [] if failed => self.discard_failed(run),
            [] => self
                .common
                .notify(Event::Speculation(SpeculationEvent::Ready {
                    at: self.common.now,
                    run,
                })),
            calls => {
                for call in calls {
                    self.deliver(run, *call);
                }
                self.after_write(run);
            }
        }
        self.speculation.ledger.forget_told();
    }

    fn discard_failed(&mut self, run: RunId) {
        let failed = self.speculation.ledger.get(run);
        let failed = failed.map(|run| (run.track, (run.tool.clone(), run.key.clone())));
        if let Some((track, call)) = failed
            && let Some(track) = self.track(track)
        {
            track.failed.push(call);
        }
        self.discard(run, Discard::Failed);
    }

    /// The server did not start a speculative run. If it was committed in the meantime, it is
    /// speculative no more.
    pub(super) fn on_run_refused(&mut self, run: RunId, reason: Discard) {
        let Some(refused) = self.speculation.ledger.get_mut(run) else {
            return;
        };
        let Some(call) = refused.calls.first().copied() else {
            return self.discard(run, reason);
        };
        (refused.predicted, refused.started) = (None, self.common.now);
        let (name, arguments) = (refused.tool.clone(), refused.arguments.clone());
        self.common.outputs.push_back(Output::StartTool {
            run,
            committed: Some(call),
            name,
            arguments,
        });
    }

    /// Hands the result of a committed run to its call.
    fn deliver(&mut self, run: RunId, call: CallId) {
        let outcome = self
            .speculation
            .ledger
            .get(run)
            .and_then(|r| r.outcome.clone());
        let Some((_, result)) = outcome else { return };
        let past = self.speculation.past.iter_mut().find(|(id, _)| *id == call);
        if let Some((_, past)) = past {
            past.result = result.as_ref().ok().cloned();
        }
        self.on_call_finished(call, result);
        self.route_after_call();
    }

    fn remember_call(&mut self, call: CallId, name: &str, arguments: &Map<String, Value>) {
        let past = &mut self.speculation.past;
        past.push((
            call,
            PastCall {
                tool: name.to_owned(),
                arguments: arguments.clone(),
                result: None,
            },
        ));
        if past.len() > PAST_CALLS {
            past.remove(0);
        }
    }

    /// A committed write to one of these is under way.
    fn write_pending(&self, labels: &[String]) -> bool {
        let writes = |run: &Run| {
            run.is_committed()
                && run.outcome.is_none()
                && self
                    .operators(&run.tool)
                    .is_some_and(|tool| tool.writes.iter().any(|label| labels.contains(label)))
        };
        !labels.is_empty() && self.speculation.ledger.runs().any(writes)
    }

    /// What was read before a write must not be used after it.
    fn make_stale(&mut self, written: &[String]) {
        if written.is_empty() {
            return;
        }
        let tools = self.common.policy.tools.clone();
        let reads = |run: &Run| {
            let tool = tools.iter().find(|tool| tool.spec.name == run.tool);
            tool.is_some_and(|tool| tool.reads.iter().any(|label| written.contains(label)))
        };
        for run in self.speculation.ledger.mark_stale(reads) {
            self.discard(run, Discard::Stale);
        }
    }

    /// A write has ended: what waited for it starts, in the order in which it was committed.
    fn after_write(&mut self, run: RunId) {
        let Some(name) = self.speculation.ledger.get(run).map(|run| run.tool.clone()) else {
            return;
        };
        let tool = self.operators(&name).cloned();
        let Some(tool) = tool.filter(|tool| !tool.writes.is_empty()) else {
            return;
        };
        self.make_stale(&tool.writes);
        let waiting: Vec<RunId> = self
            .speculation
            .ledger
            .runs()
            .filter(|run| run.deferred)
            .map(|run| run.id)
            .collect();
        for id in waiting {
            self.start_deferred(id);
        }
    }

    fn start_deferred(&mut self, id: RunId) {
        let Some(run) = self.speculation.ledger.get(id) else {
            return;
        };
        let (name, arguments, call) = (
            run.tool.clone(),
            run.arguments.clone(),
            run.calls.first().copied(),
        );
        let Some(tool) = self.operators(&name) else {
            return;
        };
        // Its own entry must not count as the write that it waits for.
        let labels = tool.reads.iter().chain(&tool.writes);
        let blocked = self.speculation.ledger.runs().any(|other| {
            other.id < id
                && other.is_committed()
                && other.outcome.is_none()
                && self
                    .operators(&other.tool)
                    .is_some_and(|other| labels.clone().any(|label| other.writes.contains(label)))
        });
        if blocked {
            return;
        }
        let now = self.common.now;
        if let Some(run) = self.speculation.ledger.get_mut(id) {
            run.deferred = false;
            run.started = now;
        }
        self.common.outputs.push_back(Output::StartTool {
            run: id,
            committed: call,
            name,
            arguments,
        });
    }

    /// How much longer the committed calls that have no result yet are expected to take: the
    /// longest of them, at the quantile `q`. `None` if nothing is known of one of them.
    pub(super) fn remaining_wait(&self, calls: &[CallId], q: f64) -> Option<super::Micros> {
        let ledger = &self.speculation.ledger;
        let of = |call: &CallId| ledger.runs().find(|run| run.calls.contains(call));
        let mut longest = super::Micros(0);
        for run in calls.iter().filter_map(of).filter(|r| r.outcome.is_none()) {
            let expected = ledger.observed(&run.tool, q)?;
            let elapsed = self.common.now.since(run.started);
            longest = longest.max(super::Micros(expected.0.saturating_sub(elapsed.0)));
        }
        Some(longest)
    }
}
