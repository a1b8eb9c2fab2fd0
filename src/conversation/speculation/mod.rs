//! The speculation track: tool runs that start early and stay silent until the model commits their calls.
//!
//! A prediction passes the [`gate`] (`predictions`); each run is an entry of the [`ledger`], which ends once, committed
//! or discarded (`runs`). Predictions come from the sources, from the model's own stream, and from a draft model
//! (`drafting`). Nothing here touches the history, the voice or the client's events of the conversation: only a commit
//! does.

mod dependents;
mod drafting;
mod drafts;
mod gate;
mod ledger;
mod open_call;
mod predictions;
mod record;
mod rehearsal;
mod request;
mod results;
mod runs;
mod stream;
mod track;

pub use gate::{Because, Decision, Decline, Verdict, verdict};
pub(super) use ledger::Run;
pub use record::{
    Before, Discard, DraftRecord, Fate, HeldRecord, PredictionRecord, RunRecord, SpeculationEvent,
    TurnRecord,
};
pub use rehearsal::Rehearsal;
pub(super) use request::Request;
pub(super) use track::{Track, TrackId};

use super::common::Common;
use super::experience::Experience;
use super::ids::{CallId, RequestId};
use super::latency::TurnLatency;
use super::output::Event;
use super::wait::{Wait, left};
use crate::prediction::PastCall;
use crate::time::{Micros, Time};
use crate::tools::{Declaration, canonical};
use drafts::Drafts;
use ledger::Ledger;
use results::Results;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The quantile of a tool's latencies that is expected as the wait: three of four calls are faster.
const FORESEEN: f64 = 0.75;

/// The quantile of a tool's latencies that hardly any call undercuts.
const FASTEST: f64 = 0.1;

/// The assumed latency of a tool that has not been called yet.
const UNKNOWN_LATENCY: Micros = Micros::from_ms(1_000);

/// The expected latency of a tool: the quantile `q`, 0..1, of its last calls.
fn expected(experience: &Experience, tool: &str, q: f64) -> Micros {
    experience.latency(tool, q).unwrap_or(UNKNOWN_LATENCY)
}

/// How long a tool usually takes.
pub(super) fn usual(common: &Common, tool: &str) -> Micros {
    expected(&common.experience, tool, FORESEEN)
}

/// How much longer those of the runs take that have no result: the longest of them.
fn longest<'a>(common: &Common, runs: impl Iterator<Item = &'a Run>) -> Wait {
    let known = &common.experience;
    let mut longest = Wait::default();
    for run in runs.filter(|run| run.outcome.is_none()) {
        let elapsed = common.now.since(run.started);
        let least = known.latency(&run.tool, FASTEST).unwrap_or_default();
        longest = longest.max(Wait {
            expected: left(expected(known, &run.tool, FORESEEN), elapsed),
            least: Micros(least.0.saturating_sub(elapsed.0)),
        });
    }
    longest
}

/// A session's tracks and runs.
#[derive(Debug, Default)]
pub(super) struct Speculation {
    ledger: Ledger,
    /// The track of the current utterance, or of the next one.
    listening: Track,
    /// The track of the current answer.
    answering: Option<Track>,
    tracks: u64,
    /// Requests to the router, with their tracks.
    routes: BTreeMap<RequestId, TrackId>,
    warmed: BTreeMap<String, Time>,
    /// Committed calls, oldest first.
    past: Vec<(CallId, PastCall)>,
    /// Results that set fixed arguments of later calls.
    results: Results,
    drafts: Drafts,
}

impl Speculation {
    /// The track of the current utterance, or of the next one.
    pub(super) fn listening(&self) -> &Track {
        &self.listening
    }

    /// The track of the current answer; `None` for fixed phrases.
    pub(super) fn answering(&self) -> Option<&Track> {
        self.answering.as_ref()
    }

    fn track(&mut self, id: TrackId) -> Option<&mut Track> {
        let tracks = [Some(&mut self.listening), self.answering.as_mut()];
        tracks.into_iter().flatten().find(|track| track.id == id)
    }

    /// Whether any run has not ended.
    pub(super) fn has_runs(&self) -> bool {
        self.ledger.runs().next().is_some()
    }

    /// Begins the answer to the utterance, which takes over its track.
    pub(super) fn begin_answer(&mut self) {
        let mut heard = self.take_heard();
        heard.finish_words();
        if heard.is_before_words() {
            heard.renew_limits();
        }
        self.answering = Some(heard);
    }

    fn take_heard(&mut self) -> Track {
        self.tracks += 1;
        let next = Track::new(self.tracks);
        std::mem::replace(&mut self.listening, next)
    }

    /// Ends the answer and discards its uncommitted runs. `describe` completes the record of the turn.
    pub(super) fn end_answer(
        &mut self,
        common: &mut Common,
        reason: Discard,
        describe: impl FnOnce(&mut TurnRecord),
    ) {
        if let Some(track) = self.answering.take() {
            self.close(common, track, reason, describe);
        }
    }

    /// Ends the track of an utterance that led to no turn. What was begun before any words is kept for the next
    /// utterance.
    pub(super) fn drop_heard(&mut self, common: &mut Common, reason: Discard) {
        if reason == Discard::NoTurn && self.listening.is_before_words() {
            return;
        }
        let track = self.take_heard();
        self.close(common, track, reason, |_| {});
    }

    fn close(
        &mut self,
        common: &mut Common,
        track: Track,
        reason: Discard,
        describe: impl FnOnce(&mut TurnRecord),
    ) {
        let id = track.id;
        self.routes.retain(|_, of| *of != id);
        let is_superseded = |run: &Run| run.track == id && run.is_superseded();
        for run in self.ledger.uncommitted(is_superseded) {
            self.discard(common, run, Discard::Superseded);
        }
        for run in self.ledger.uncommitted(|run| run.track == id) {
            self.discard(common, run, reason);
        }
        let mut record = TurnRecord {
            turn: None,
            status: None,
            latency: TurnLatency::default(),
            predictions: track.predictions,
            runs: self.ledger.close(id, common.now),
            fillers: 0,
            fillers_dropped: 0,
            fillers_saved: Micros(0),
            held: std::mem::take(&mut common.held),
            drafts: self.close_drafts(common, id, reason),
            continued: 0,
        };
        describe(&mut record);
        if record.turn.is_some()
            || !record.predictions.is_empty()
            || !record.runs.is_empty()
            || !record.held.is_empty()
            || !record.drafts.is_empty()
        {
            common.notify(Event::TurnRecorded(Box::new(record)));
        }
    }
}

/// How long tools take.
impl Speculation {
    /// How much longer a predicted call is expected to take; `Some(None)` if its tool was never called,
    /// `None` if it already has a result.
    pub(super) fn wait_for_prediction(
        &self,
        track: TrackId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
        common: &Common,
    ) -> Option<Option<Micros>> {
        let name = &tool.spec.name;
        let run = self.ledger.same(track, tool, &canonical(tool, arguments));
        let run = run.and_then(|run| self.ledger.get(run));
        if run.is_some_and(|run| run.outcome.is_some()) {
            return None;
        }
        let elapsed = run.map_or(Micros(0), |run| common.now.since(run.started));
        let expected = common.experience.latency(name, FORESEEN);
        Some(expected.map(|expected| Micros(expected.0.saturating_sub(elapsed.0))))
    }

    /// How much longer the committed calls without results take: the longest of them.
    pub(super) fn remaining_wait(&self, common: &Common, calls: &[CallId]) -> Wait {
        let of = |call: &CallId| self.ledger.runs().find(|run| run.calls.contains(call));
        longest(common, calls.iter().filter_map(of))
    }

    /// How much longer the calls take that have begun early for this answer; `None` if there are none.
    pub(super) fn early_wait(&self, common: &Common) -> Option<Wait> {
        let track = self.answering.as_ref()?.id;
        let of_answer =
            |run: &&Run| run.track == track && run.predicted.is_some() && !run.is_superseded();
        let mut runs = self.ledger.runs().filter(of_answer).peekable();
        runs.peek()?;
        Some(longest(common, runs))
    }

    /// The run of one of these calls.
    pub(super) fn run_of(&self, calls: &[CallId]) -> Option<&Run> {
        let mut runs = self.ledger.runs();
        runs.find(|run| run.calls.iter().any(|call| calls.contains(call)))
    }
}
