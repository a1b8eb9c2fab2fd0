//! Runs: which run a commit takes over, when a run is stale, and how it ends.

use super::gate;
use super::ledger::Run;
use super::record::{Discard, SpeculationEvent};
use super::{Speculation, Track, TrackId};
use crate::conversation::assumed::Guess;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::common::Common;
use crate::conversation::experience::Lesson;
use crate::conversation::ids::{CallId, RunId};
use crate::conversation::output::{Event, Output};
use crate::conversation::tool_cache::Call;
use crate::llm::GivenResult;
use crate::prediction::PastCall;
use crate::time::Micros;
use crate::tools::{Declaration, Eligibility, ToolError, canonical};
use serde_json::{Map, Value};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The most committed calls shown to the prediction sources.
const PAST_CALLS: usize = 16;

/// Commits.
impl Speculation {
    /// Commits a call: takes over a speculative run or starts a new one. Returns the run if it already has
    /// its result.
    pub(in crate::conversation) fn commit(
        &mut self,
        common: &mut Common,
        track: TrackId,
        call: CallId,
        (name, tool): (&str, Option<&Arc<Declaration>>),
        arguments: Map<String, Value>,
    ) -> Option<RunId> {
        self.remember_call(call, name, &arguments);
        if let Some(tool) = tool {
            self.make_stale(common, &tool.writes);
            self.outdate_result(common, tool, call);
            // A run that has begun early took the newest result, which may be of a call behind this one.
            let is_other =
                self.results.await_step(tool, call) || self.results.have_newer(tool, call);
            if !is_other && let Some(run) = self.take_over(common, track, tool, call, &arguments) {
                self.keep_result(run, call);
                let taken = self.ledger.get(run)?;
                return taken.outcome.is_some().then_some(run);
            }
        }
        self.start_committed(common, track, call, (name, tool), arguments);
        None
    }

    /// Notes that the client runs a call of its tool that did not begin early; it cannot begin early any more.
    pub(in crate::conversation) fn hand_over(
        &mut self,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) {
        if let Some(track) = &mut self.answering {
            let key = canonical(tool, arguments);
            track.handed.push((tool.spec.name.clone(), key));
        }
    }

    /// The run that a commit of this call would take over.
    pub(in crate::conversation) fn run_for(
        &self,
        common: &Common,
        track: TrackId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) -> Option<RunId> {
        let run = self.early_run(common, track, tool, arguments)?;
        (!self.ledger.is_expired(run, tool, common.now)).then_some(run)
    }

    /// The run of this call that has begun early, fresh or expired.
    fn early_run(
        &self,
        common: &Common,
        track: TrackId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) -> Option<RunId> {
        let may_run = gate::eligibility(tool, &common.policy.speculation) == Eligibility::Full;
        let key = canonical(tool, arguments);
        self.ledger
            .committable(track, tool, &key)
            .filter(|_| may_run)
    }

    /// Whether a run has a result that a commit is expected to use, and is not committed. A call that the model has
    /// begun with other arguments will not use it.
    pub(in crate::conversation) fn is_ready(&self, common: &Common, run: RunId) -> bool {
        let Some(run) = self.ledger.get(run) else {
            return false;
        };
        let is_fresh = |tool| !self.ledger.is_expired(run.id, tool, common.now);
        let tool = run.declaration.as_deref();
        matches!(run.outcome, Some((_, Ok(_))))
            && !run.stale
            && !run.is_committed()
            && !run.is_superseded()
            && tool.is_some_and(|tool| is_fresh(tool) && !self.is_refuted(run, tool))
    }

    /// The likeliest call of this track whose result is ready; only of the tool `called` if the model is
    /// calling one. Predictions from fewer words do not count.
    fn ready(&self, common: &Common, track: &Track, called: Option<&str>) -> Option<Guess> {
        let is_outdated =
            |run: &Run| track.unanswered && !run.is_streamed() && !self.drafts.have(run);
        let runs = self.ledger.runs().filter(|run| {
            run.track == track.id && called.is_none_or(|tool| tool == run.tool) && !is_outdated(run)
        });
        let likelier = |a: &Guess, b: &Guess| a.confidence.total_cmp(&b.confidence);
        runs.filter_map(|run| self.guess(common, run.id))
            .max_by(likelier)
    }

    /// The assumption that a held-back answer commits a call: its only one so far if that is complete, or the
    /// likeliest one if it has none.
    pub(in crate::conversation) fn guess_held(
        &self,
        common: &Common,
        clients: ClientTools,
        call: Option<(&str, &Map<String, Value>)>,
    ) -> Option<Guess> {
        let track = self.listening();
        let Some((name, arguments)) = call else {
            return self.ready(common, track, None);
        };
        let tool = clients.declared(&common.policy, name)?;
        let run = self.run_for(common, track.id, tool, arguments)?;
        let guess = self.guess(common, run)?;
        Some(Guess {
            is_made: true,
            ..guess
        })
    }

    /// The assumption that the model commits a call in the current answer, of the tool `called` if it has begun one.
    pub(in crate::conversation) fn guess_next(
        &self,
        common: &Common,
        called: Option<&str>,
    ) -> Option<Guess> {
        self.ready(common, self.answering()?, called)
    }

    /// The assumption that the model commits the call of this run; `None` if its result is not ready.
    fn guess(&self, common: &Common, run: RunId) -> Option<Guess> {
        let run = self.ledger.get(run)?;
        let predicted = run.predicted.filter(|_| self.is_ready(common, run.id))?;
        let (_, result) = run.outcome.as_ref()?;
        Some(Guess {
            run: run.id,
            tool: run.tool.clone(),
            arguments: run.arguments.clone(),
            confidence: predicted.confirmed,
            result: result.as_ref().ok()?.clone(),
            by_client: run.is_clients(),
            is_made: false,
        })
    }

    /// The runs of this track that a commit could take over now and that are wanted, with their results.
    pub(in crate::conversation) fn usable(
        &self,
        common: &Common,
        track: TrackId,
        is_wanted: impl Fn(&str, &Map<String, Value>) -> bool,
    ) -> Vec<(RunId, Call, GivenResult)> {
        let runs = self.ledger.runs();
        let runs = runs.filter(|run| run.track == track && is_wanted(&run.tool, &run.key));
        let given = |run: &Run| {
            let tool = run.declaration.as_deref()?;
            let (at, result) = run.outcome.as_ref()?;
            let may = self.is_ready(common, run.id)
                && self.run_for(common, track, tool, &run.arguments) == Some(run.id);
            let ttl = u64::try_from(tool.speculation.ttl.as_micros()).unwrap_or(u64::MAX);
            let given = GivenResult {
                tool: run.tool.clone(),
                arguments: run.arguments.clone(),
                result: result.as_ref().ok()?.clone(),
                keep_alive: Micros(ttl.saturating_sub(common.now.since(*at).0)),
            };
            let call = (run.tool.clone(), run.key.clone());
            (may && given.keep_alive.0 > 0).then_some((run.id, call, given))
        };
        runs.filter_map(given).collect()
    }

    fn take_over(
        &mut self,
        common: &mut Common,
        track: TrackId,
        tool: &Declaration,
        call: CallId,
        arguments: &Map<String, Value>,
    ) -> Option<RunId> {
        let now = common.now;
        let run = self.early_run(common, track, tool, arguments)?;
        if self.ledger.is_expired(run, tool, now) {
            self.discard(common, run, Discard::Expired);
            return None;
        }
        let entry = self.ledger.get_mut(run)?;
        entry.calls.push(call);
        entry.committed.get_or_insert(now);
        let (ready, predicted) = (entry.outcome.is_some(), entry.predicted.is_some());
        if predicted {
            common.notify(Event::Speculation(SpeculationEvent::Committed {
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
        common: &mut Common,
        track: TrackId,
        call: CallId,
        (name, tool): (&str, Option<&Arc<Declaration>>),
        arguments: Map<String, Value>,
    ) {
        let run = common.run_id();
        let deferred = tool.is_some_and(|tool| self.is_deferred(tool, call));
        self.ledger.insert(Run {
            key: tool.map_or_else(Map::new, |tool| canonical(tool, &arguments)),
            deferred,
            calls: vec![call],
            committed: Some(common.now),
            cost: tool.map_or(0.0, |tool| tool.speculation.cost),
            ..Run::new(run, track, (name, tool), arguments.clone(), common.now)
        });
        if !deferred {
            common.outputs.push_back(Output::StartTool {
                run,
                committed: Some(call),
                name: name.to_owned(),
                arguments,
                by_client: tool.is_some_and(|tool| tool.by_client),
                taken: self.results.taken_by(tool.map(Arc::as_ref), Some(call)),
            });
        }
    }

    fn remember_call(&mut self, call: CallId, name: &str, arguments: &Map<String, Value>) {
        let past = PastCall {
            tool: name.to_owned(),
            arguments: arguments.clone(),
            result: None,
        };
        self.past.push((call, past));
        if self.past.len() > PAST_CALLS {
            self.past.remove(0);
        }
    }
}

/// Results.
impl Speculation {
    /// Handles the end of a run. Returns the calls that wait for its result, possibly none; `None` if the run
    /// is dead. Deliver the result to them, then call [`Self::settle`].
    pub(in crate::conversation) fn finish(
        &mut self,
        common: &mut Common,
        run: RunId,
        result: Result<Value, ToolError>,
    ) -> Option<Vec<CallId>> {
        let failed = result.is_err();
        if !self.ledger.finish(run, common.now, result) {
            return None;
        }
        let ended = self.ledger.get(run)?;
        let calls = ended.calls.clone();
        if !failed {
            let took = Lesson::Took {
                tool: ended.tool.clone(),
                latency: common.now.since(ended.started),
            };
            common.learn(took, ended.is_clients());
        }
        // All of them, before one is delivered and another call starts because of it.
        for call in &calls {
            self.keep_result(run, *call);
        }
        if calls.is_empty() && failed {
            self.discard_failed(common, run);
        } else if calls.is_empty() {
            let at = common.now;
            common.notify(Event::Speculation(SpeculationEvent::Ready { at, run }));
        }
        Some(calls)
    }

    /// The result of a committed run for one of its calls.
    pub(in crate::conversation) fn result(
        &mut self,
        run: RunId,
        call: CallId,
    ) -> Option<Result<Value, ToolError>> {
        let (_, result) = self.ledger.get(run)?.outcome.clone()?;
        if let Some((_, past)) = self.past.iter_mut().find(|(id, _)| *id == call) {
            past.result = result.as_ref().ok().cloned();
        }
        Some(result)
    }

    /// Called after the result was delivered. The runs that waited for it start, in the order of their commits: for
    /// a write, or for a result that sets one of their arguments.
    pub(in crate::conversation) fn settle(&mut self, common: &mut Common, run: RunId) {
        let run = self.ledger.get(run).filter(|run| run.is_committed());
        let written = run.map_or(&[][..], Run::writes).to_vec();
        let feeds = run.is_some_and(Run::feeds);
        if !written.is_empty() || feeds {
            self.make_stale(common, &written);
            self.start_all_deferred(common);
        }
        self.ledger.forget_told();
    }

    pub(super) fn start_deferred(&mut self, common: &mut Common, id: RunId) {
        let Some(run) = self.ledger.get(id) else {
            return;
        };
        let (call, tool) = (run.calls.first().copied(), run.declaration.as_deref());
        // A run that began early may belong to a later call.
        if let Some((tool, call)) = tool.zip(call)
            && self.is_deferred(tool, call)
        {
            return;
        }
        let started = common.now;
        let taken = self.results.taken_by(tool, call);
        if let Some(run) = self.ledger.get_mut(id) {
            (run.deferred, run.started) = (false, started);
            common.outputs.push_back(Output::StartTool {
                run: id,
                committed: run.calls.first().copied(),
                name: run.tool.clone(),
                arguments: run.arguments.clone(),
                by_client: run.is_clients(),
                taken,
            });
        }
    }

    /// Handles the server's refusal to start a speculative run. If it was committed in the meantime, it is
    /// started after all.
    pub(in crate::conversation) fn on_refused(
        &mut self,
        common: &mut Common,
        run: RunId,
        reason: Discard,
    ) {
        let Some(refused) = self.ledger.get(run) else {
            return;
        };
        let call = refused.calls.first().copied();
        let taken = self.results.taken_by(refused.declaration.as_deref(), call);
        let Some(refused) = self.ledger.get_mut(run) else {
            return;
        };
        let Some(call) = refused.calls.first().copied() else {
            return self.discard(common, run, reason);
        };
        (refused.predicted, refused.started) = (None, common.now);
        common.outputs.push_back(Output::StartTool {
            run,
            committed: Some(call),
            name: refused.tool.clone(),
            arguments: refused.arguments.clone(),
            by_client: refused.is_clients(),
            taken,
        });
    }
}

/// Discards.
impl Speculation {
    /// Discards an uncommitted run and aborts its task. A result that still comes is ignored.
    pub(super) fn discard(&mut self, common: &mut Common, run: RunId, reason: Discard) {
        let Some((wasted, running)) = self.ledger.discard(run, common.now, reason) else {
            return;
        };
        if running {
            common.outputs.push_back(Output::AbortTool { run });
        }
        common.notify(Event::Speculation(SpeculationEvent::Discarded {
            at: common.now,
            run,
            reason,
            wasted,
        }));
    }

    fn discard_failed(&mut self, common: &mut Common, run: RunId) {
        let failed = self.ledger.get(run);
        let failed = failed.map(|run| (run.track, (run.tool.clone(), run.key.clone())));
        if let Some((track, call)) = failed
            && let Some(track) = self.track(track)
        {
            track.failed.push(call);
        }
        self.discard(common, run, Discard::Failed);
    }

    /// Whether a committed write to one of these labels is running.
    pub(super) fn write_pending(&self, labels: &[String]) -> bool {
        self.pending_writes(labels).next().is_some()
    }

    /// Whether a committed call waits: for a write of a call before it to what it reads or writes, or for a result that
    /// sets an argument of it. A step of a plan may be committed after a call that comes behind it.
    fn is_deferred(&self, tool: &Declaration, call: CallId) -> bool {
        let is_before = |run: &Run| run.calls.iter().any(|of| *of < call);
        let mut labels = [&tool.reads, &tool.writes].into_iter();
        labels.any(|labels| self.pending_writes(labels).any(is_before))
            || self.awaits_result(tool, call)
    }

    fn pending_writes(&self, labels: &[String]) -> impl Iterator<Item = &Run> {
        self.ledger.runs().filter(move |run| {
            run.is_committed()
                && run.outcome.is_none()
                && run.writes().iter().any(|label| labels.contains(label))
        })
    }

    /// Marks reads as stale that started before a write of their data.
    fn make_stale(&mut self, common: &mut Common, written: &[String]) {
        if written.is_empty() {
            return;
        }
        let reads = |run: &Run| run.reads().iter().any(|label| written.contains(label));
        for run in self.ledger.mark_stale(reads) {
            self.discard(common, run, Discard::Stale);
        }
    }
}
