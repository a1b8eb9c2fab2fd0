//! The speculation of one utterance and of the answer to it.

use super::open_call::OpenCall;
use super::record::PredictionRecord;
use super::request::Request;
use crate::conversation::ids::RequestId;
use crate::prediction::{Evidence, Prediction, Source};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A tool, and its arguments in the form in which they are compared.
pub(super) type Call = (String, Map<String, Value>);

/// Identifies a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::conversation) struct TrackId(pub(super) u64);

/// A predicted call, used if the model begins to call its tool.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) call: Prediction,
    /// The question that was answered with it.
    asked: Option<RequestId>,
}

/// The predictions for one utterance and its answer.
#[derive(Debug, Default)]
pub(in crate::conversation) struct Track {
    pub(in crate::conversation) id: TrackId,
    pub(super) predictions: Vec<PredictionRecord>,
    /// The likeliest of the last predictions for each tool.
    pub(super) candidates: BTreeMap<String, Candidate>,
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
    /// The first question about its words, if the sources have not answered about them yet.
    new_words: Option<RequestId>,
    /// The first question about the last words about which they have.
    words_since: Option<RequestId>,
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

    /// The sources are asked about this. Returns whether the words are others than before.
    pub(super) fn ask(&mut self, request: RequestId, heard: Evidence) -> bool {
        let are_others = self.asked.text != heard.text;
        if are_others {
            self.new_words = Some(request);
        }
        (self.asked, self.unanswered, self.request) = (heard, true, Request::default());
        are_others
    }

    /// A source has answered: what was predicted from fewer words is outdated.
    pub(super) fn answered(&mut self, request: RequestId) {
        if self.new_words.is_some_and(|asked| request >= asked) {
            self.words_since = self.new_words.take();
        }
    }

    /// The words are final, and the model's first one may come before the sources' answer.
    pub(super) fn finish_words(&mut self) {
        self.unanswered = false;
        self.words_since = self.last_words();
        self.new_words = None;
    }

    /// The first question about its words.
    pub(super) fn last_words(&self) -> Option<RequestId> {
        self.new_words.or(self.words_since)
    }

    /// The likeliest call predicted from the last words: what usually follows is not announced before the model wants
    /// it.
    pub(in crate::conversation) fn likeliest(&self) -> Option<&Prediction> {
        let by_confidence =
            |a: &&Prediction, b: &&Prediction| a.confidence.total_cmp(&b.confidence);
        let candidates = self.candidates.values();
        candidates
            .filter(|one| self.is_of_last_words(one))
            .map(|one| &one.call)
            .filter(|call| call.source != Source::Transition)
            .max_by(by_confidence)
    }

    fn is_of_last_words(&self, candidate: &Candidate) -> bool {
        candidate.asked >= self.words_since
    }

    /// Remembers a prediction, unless a likelier call of its tool was predicted from the same words. The model's stream is
    /// surer than any.
    pub(super) fn consider(&mut self, asked: Option<RequestId>, call: Prediction) {
        let new = Candidate { call, asked };
        let is_stream = |one: &Candidate| one.call.source == Source::Stream;
        let rank = |one: &Candidate| {
            let confidence = one.call.confidence;
            (self.is_of_last_words(one), is_stream(one), confidence)
        };
        let known = self.candidates.get(&new.call.tool);
        if is_stream(&new) || known.is_none_or(|known| rank(known) < rank(&new)) {
            self.candidates.insert(new.call.tool.clone(), new);
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
