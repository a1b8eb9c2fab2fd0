//! The speculation of one utterance and of the answer to it.

use super::open_call::OpenCall;
use super::record::PredictionRecord;
use super::request::Request;
use crate::prediction::{Evidence, Prediction, Source};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A tool, and its arguments in the form in which they are compared.
pub(super) type Call = (String, Map<String, Value>);

/// Identifies a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::conversation) struct TrackId(pub(super) u64);

/// The predictions for one utterance and its answer.
#[derive(Debug, Default)]
pub(in crate::conversation) struct Track {
    pub(in crate::conversation) id: TrackId,
    pub(super) predictions: Vec<PredictionRecord>,
    /// The likeliest of the last predictions for each tool, used if the model begins to call it.
    pub(super) candidates: BTreeMap<String, Prediction>,
    /// Speculative runs started, by tool.
    pub(super) started: BTreeMap<String, u32>,
    /// Speculative runs that failed, which are not repeated early.
    pub(super) failed: Vec<Call>,
    /// Calls that were allowed to start again before words, because their results had expired.
    pub(super) restarted: Vec<Call>,
    /// The call that the model has begun.
    pub(super) open: Option<OpenCall>,
    /// Calls that the client runs although they did not begin early.
    pub(super) handed: Vec<Call>,
    /// The last input of the prediction sources.
    pub(super) asked: Evidence,
    /// No source has answered it yet: what was predicted before may be outdated.
    pub(super) unanswered: bool,
    /// The request that the words make, as far as the sources have answered.
    pub(in crate::conversation) request: Request,
}

impl Track {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id: TrackId(id),
            ..Self::default()
        }
    }

    /// The likeliest call predicted from the words so far: what usually follows is not announced before the model
    /// wants it.
    pub(in crate::conversation) fn likeliest(&self) -> Option<&Prediction> {
        let by_confidence =
            |a: &&Prediction, b: &&Prediction| a.confidence.total_cmp(&b.confidence);
        let candidates = self.candidates.values();
        candidates
            .filter(|one| one.source != Source::Transition)
            .max_by(by_confidence)
    }

    /// Remembers a prediction. The others of its answer for the same tool are less likely; the model's stream is
    /// surer than any.
    pub(super) fn consider(&mut self, prediction: Prediction) {
        let tool = prediction.tool.clone();
        match prediction.source {
            Source::Stream => drop(self.candidates.insert(tool, prediction)),
            _ => drop(self.candidates.entry(tool).or_insert(prediction)),
        }
    }

    /// The result of this call has expired before there are words: it may start once more.
    pub(super) fn allow_restart(&mut self, call: Call) {
        if let Some(started) = self.started.get_mut(&call.0) {
            *started = started.saturating_sub(1);
        }
        self.restarted.push(call);
    }

    /// Forgets the starts and failures so far: they no longer count against the limits.
    pub(super) fn renew_limits(&mut self) {
        self.started.clear();
        self.failed.clear();
    }

    /// Whether nothing in it depends on words.
    pub(super) fn is_before_words(&self) -> bool {
        self.asked.moment.is_before_words()
    }
}
