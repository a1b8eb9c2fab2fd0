//! The ledger: every tool run from its start to its end, of which there is exactly one.

use super::record::{Discard, Fate, RunRecord};
use super::track::TrackId;
use crate::conversation::ids::{CallId, RunId};
use crate::prediction::Source;
use crate::time::{Micros, Time};
use crate::tools::{Declaration, ToolError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A run that has not ended. Uncommitted while `calls` is empty.
#[derive(Debug)]
pub(in crate::conversation) struct Run {
    pub id: RunId,
    pub track: TrackId,
    pub tool: String,
    /// The tool when the run began; `None` if there was no such tool.
    pub declaration: Option<Arc<Declaration>>,
    pub arguments: Map<String, Value>,
    /// The arguments in the form in which they are compared.
    pub key: Map<String, Value>,
    /// `None` if a commit started it.
    pub predicted: Option<Predicted>,
    pub started: Time,
    /// It waits for a write to end, or for a result, and has not been started.
    pub deferred: bool,
    pub outcome: Option<(Time, Result<Value, ToolError>)>,
    pub calls: Vec<CallId>,
    pub committed: Option<Time>,
    pub cost: f64,
    /// A committed write has changed its data since.
    pub stale: bool,
    /// It is in the record of its turn, and only its calls still wait for the result.
    pub told: bool,
}

/// The prediction that began a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::conversation) struct Predicted {
    pub source: Source,
    /// The confidence with which it began the run.
    pub confidence: f32,
    /// The confidence for the words as they are now, for which the model's stream may have confirmed the call.
    pub confirmed: f32,
    /// When another source would have begun it.
    pub rivalled: Option<Time>,
    /// Its result is there, and the words since make its tool's call with other arguments likely.
    pub superseded: bool,
    /// The words have changed since it began, or since the model's stream confirmed it.
    pub outdated: bool,
}

impl Predicted {
    pub(super) fn by(source: Source, confidence: f32) -> Self {
        Self {
            source,
            confidence,
            confirmed: confidence,
            rivalled: None,
            superseded: false,
            outdated: false,
        }
    }
}

impl Run {
    /// An uncommitted run that starts now.
    pub(super) fn new(
        id: RunId,
        track: TrackId,
        (name, tool): (&str, Option<&Arc<Declaration>>),
        arguments: Map<String, Value>,
        now: Time,
    ) -> Self {
        Self {
            id,
            track,
            tool: name.to_owned(),
            declaration: tool.cloned(),
            arguments,
            key: Map::new(),
            predicted: None,
            started: now,
            deferred: false,
            outcome: None,
            calls: Vec::new(),
            committed: None,
            cost: 0.0,
            stale: false,
            told: false,
        }
    }

    pub(in crate::conversation) fn is_committed(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether its call is not expected any more. A commit may still take it over.
    pub(super) fn is_superseded(&self) -> bool {
        !self.is_committed() && self.predicted.is_some_and(|one| one.superseded)
    }

    /// Whether the model's stream began it for the words as they are now, which is surer than any other prediction.
    pub(super) fn is_streamed(&self) -> bool {
        let is_streamed = |one: Predicted| one.source == Source::Stream && !one.outdated;
        self.predicted.is_some_and(is_streamed)
    }

    /// Whether the client runs it.
    pub(in crate::conversation) fn is_clients(&self) -> bool {
        self.declaration.as_ref().is_some_and(|tool| tool.by_client)
    }

    fn is_of(&self, tool: &Declaration) -> bool {
        self.tool == tool.spec.name && self.is_clients() == tool.by_client
    }

    /// The labels of what it changes.
    pub(super) fn writes(&self) -> &[String] {
        self.declaration.as_ref().map_or(&[], |tool| &tool.writes)
    }

    /// The labels of what its result depends on.
    pub(super) fn reads(&self) -> &[String] {
        self.declaration.as_ref().map_or(&[], |tool| &tool.reads)
    }

    /// The tools whose results set arguments of it.
    pub(super) fn takes(&self) -> &[String] {
        self.declaration.as_ref().map_or(&[], |tool| &tool.takes)
    }

    /// Its result sets arguments of other tools.
    pub(super) fn feeds(&self) -> bool {
        let feeds = |tool: &Declaration| tool.feeds && !tool.by_client;
        self.declaration.as_deref().is_some_and(feeds)
    }

    fn is_running(&self) -> bool {
        self.outcome.is_none()
    }

    /// How much earlier it has begun because of a source, if it is committed `now`: until it was done, or until another
    /// source would have begun it.
    pub(super) fn saved_by(&self, source: Source, now: Time) -> Micros {
        let Some(predicted) = self.predicted.filter(|one| one.source == source) else {
            return Micros(0);
        };
        let done = self.outcome.as_ref().map(|(at, _)| *at);
        let until = [done, predicted.rivalled].into_iter().flatten().min();
        until.unwrap_or(now).since(self.started)
    }

    fn ran(&self, now: Time) -> Micros {
        let until = self.outcome.as_ref().map_or(now, |(at, _)| *at);
        until.since(self.started)
    }

    fn record(&self, now: Time, fate: Fate) -> RunRecord {
        let saved = match (&self.committed, self.predicted) {
            // The time until it was committed or finished, whichever came first, is saved.
            (Some(at), Some(_)) => {
                let until = self.outcome.as_ref().map_or(*at, |(done, _)| *done);
                until.min(*at).since(self.started)
            }
            _ => Micros(0),
        };
        let wasted = match fate {
            Fate::Discarded { .. } => self.ran(now),
            Fate::Committed { .. } => Micros(0),
        };
        RunRecord {
            run: self.id,
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            source: self.predicted.map(|one| one.source),
            confidence: self.predicted.map_or(1.0, |one| one.confidence),
            started: self.started,
            finished: self.outcome.as_ref().map(|(at, _)| *at),
            ok: matches!(self.outcome, Some((_, Ok(_)))),
            fate,
            saved,
            wasted,
            cost: self.cost,
        }
    }
}

/// All open runs of a session.
#[derive(Debug, Default)]
pub(in crate::conversation) struct Ledger {
    runs: BTreeMap<RunId, Run>,
    /// Runs that were discarded, until their track closes.
    discarded: Vec<(TrackId, RunRecord)>,
}

impl Ledger {
    /// Forgets finished runs that are in the record of their turn.
    pub(in crate::conversation) fn forget_told(&mut self) {
        self.runs.retain(|_, run| !run.told || run.is_running());
    }

    pub(in crate::conversation) fn insert(&mut self, run: Run) {
        self.runs.insert(run.id, run);
    }

    pub(in crate::conversation) fn get(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    pub(in crate::conversation) fn get_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.get_mut(&id)
    }

    pub(in crate::conversation) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// Uncommitted runs without a result.
    pub(in crate::conversation) fn speculating(&self) -> u32 {
        let open = |run: &&Run| run.is_running() && !run.is_committed();
        u32::try_from(self.runs().filter(open).count()).unwrap_or(u32::MAX)
    }

    /// The run of exactly this call in this track, committed or not.
    pub(in crate::conversation) fn same(
        &self,
        track: TrackId,
        tool: &Declaration,
        key: &Map<String, Value>,
    ) -> Option<RunId> {
        let same = |run: &&Run| run.track == track && run.is_of(tool) && run.key == *key;
        self.runs().find(same).map(|run| run.id)
    }

    /// The run that a commit of this call may take over: of this track, neither stale nor failed, and not
    /// taken over by another commit unless the tool is shareable.
    pub(in crate::conversation) fn committable(
        &self,
        track: TrackId,
        tool: &Declaration,
        key: &Map<String, Value>,
    ) -> Option<RunId> {
        let fits = |run: &&Run| {
            run.track == track
                && run.is_of(tool)
                && run.key == *key
                && !run.stale
                && !matches!(run.outcome, Some((_, Err(_))))
                && (!run.is_committed() || tool.speculation.shareable)
        };
        self.runs().find(fits).map(|run| run.id)
    }

    /// Whether a result is older than the tool's `ttl`.
    pub(in crate::conversation) fn is_expired(
        &self,
        id: RunId,
        tool: &Declaration,
        now: Time,
    ) -> bool {
        let finished = self.get(id).and_then(|run| run.outcome.as_ref());
        let ttl = u64::try_from(tool.speculation.ttl.as_micros()).unwrap_or(u64::MAX);
        finished.is_some_and(|(at, _)| now.since(*at).0 > ttl)
    }

    /// Uncommitted runs that fit.
    pub(in crate::conversation) fn uncommitted(&self, fits: impl Fn(&Run) -> bool) -> Vec<RunId> {
        let open = |run: &&Run| !run.is_committed() && fits(run);
        self.runs().filter(open).map(|run| run.id).collect()
    }

    /// Keeps the result of an uncommitted run whose call is not expected any more. `false` if it has none.
    pub(in crate::conversation) fn supersede(&mut self, id: RunId, superseded: bool) -> bool {
        let run = self.get_mut(id).filter(|run| !run.is_running());
        let predicted = run.and_then(|run| run.predicted.as_mut());
        predicted.map(|one| one.superseded = superseded).is_some()
    }

    /// The model's stream has the call of this run with this confidence.
    pub(in crate::conversation) fn confirm(&mut self, id: RunId, confidence: f32) {
        let predicted = self.get_mut(id).and_then(|run| run.predicted.as_mut());
        if let Some(predicted) = predicted {
            predicted.confirmed = predicted.confirmed.max(confidence);
            predicted.outdated = false;
        }
    }

    /// The words of a track are others now: a call that the model's stream has begun or confirmed for those before is as
    /// likely as its prediction again, and no surer than others, until it is confirmed for these.
    pub(in crate::conversation) fn unconfirm(&mut self, track: TrackId) {
        let runs = self.runs.values_mut();
        let open = runs.filter(|run| run.track == track && !run.is_committed());
        for predicted in open.filter_map(|run| run.predicted.as_mut()) {
            predicted.confirmed = predicted.confidence;
            predicted.outdated = true;
        }
    }

    /// Marks runs as stale, whose results no later commit may use, and returns the uncommitted ones.
    pub(in crate::conversation) fn mark_stale(
        &mut self,
        outdated: impl Fn(&Run) -> bool,
    ) -> Vec<RunId> {
        let mut uncommitted = Vec::new();
        for run in self.runs.values_mut().filter(|run| outdated(run)) {
            run.stale = true;
            if !run.is_committed() {
                uncommitted.push(run.id);
            }
        }
        uncommitted
    }

    /// Stores a result. `false` if the run is dead or already has one.
    pub(in crate::conversation) fn finish(
        &mut self,
        id: RunId,
        now: Time,
        result: Result<Value, ToolError>,
    ) -> bool {
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.is_running()) else {
            return false;
        };
        run.outcome = Some((now, result));
        true
    }

    /// Discards an uncommitted run. Returns the wasted time, and whether it is still running and must be
    /// aborted.
    pub(in crate::conversation) fn discard(
        &mut self,
        id: RunId,
        now: Time,
        reason: Discard,
    ) -> Option<(Micros, bool)> {
        if self.get(id)?.is_committed() {
            return None;
        }
        let run = self.runs.remove(&id)?;
        let (track, running) = (run.track, run.is_running());
        let record = run.record(now, Fate::Discarded { at: now, reason });
        let wasted = record.wasted;
        self.discarded.push((track, record));
        Some((wasted, running))
    }

    /// Closes a track and returns the records of its runs. Uncommitted runs must have been discarded.
    /// Committed runs that are still running stay until their results come.
    pub(in crate::conversation) fn close(&mut self, track: TrackId, now: Time) -> Vec<RunRecord> {
        let mut records = Vec::new();
        self.discarded.retain(|(of, record)| {
            if *of == track {
                records.push(record.clone());
            }
            *of != track
        });
        for run in self
            .runs
            .values_mut()
            .filter(|run| run.track == track && !run.told)
        {
            let fate = Fate::Committed {
                at: run.committed.unwrap_or(now),
                calls: run.calls.clone(),
            };
            records.push(run.record(now, fate));
            run.told = true;
        }
        self.forget_told();
        records
    }
}
