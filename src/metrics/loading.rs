//! The language models, and which of them do not answer.

use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The language models that the server needs. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LoadingModels {
    gauge: Gauge,
    /// By a number of its own.
    models: Arc<Mutex<BTreeMap<u64, State>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// It was asked and has not answered yet.
    Loading,
    /// The last attempt failed, for this reason.
    Failing(String),
    Ready,
}

impl LoadingModels {
    /// Adds a language model, which is loading, until the returned guard is dropped.
    pub fn add(&self) -> LoadingModel {
        let mut models = self.lock();
        let id = models.last_key_value().map_or(0, |(last, _)| last + 1);
        models.insert(id, State::Loading);
        self.count(&models);
        LoadingModel {
            all: self.clone(),
            id,
        }
    }

    /// The number of those that do not answer, as Prometheus reads it.
    pub(super) fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// The reason that the server cannot serve, if there is one: a model has not answered yet, or none answers. If only
    /// some fail, other agents' callers are served.
    pub(super) fn because(&self) -> Option<String> {
        let models = self.lock();
        let is_loading = models.values().any(|state| *state == State::Loading);
        if !is_loading && models.values().any(|state| *state == State::Ready) {
            return None;
        }
        let unknown = || "it has not answered yet: it is loading or cannot be reached".to_owned();
        (!models.is_empty()).then(|| failing(&models).next().unwrap_or_else(unknown))
    }

    /// The reasons for which models fail, each once.
    pub(super) fn failing(&self) -> Vec<String> {
        let mut causes: Vec<String> = failing(&self.lock()).collect();
        causes.sort_unstable();
        causes.dedup();
        causes
    }

    fn set(&self, id: u64, state: State) {
        let mut models = self.lock();
        if let Some(known) = models.get_mut(&id) {
            *known = state;
        }
        self.count(&models);
    }

    fn remove(&self, id: u64) {
        let mut models = self.lock();
        models.remove(&id);
        self.count(&models);
    }

    fn count(&self, models: &BTreeMap<u64, State>) {
        let missing = models.values().filter(|state| **state != State::Ready);
        self.gauge.set(missing.count() as i64);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, State>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failing(models: &BTreeMap<u64, State>) -> impl Iterator<Item = String> {
    models.values().filter_map(|state| match state {
        State::Failing(cause) => Some(cause.clone()),
        State::Loading | State::Ready => None,
    })
}

/// A language model of the server.
#[derive(Debug)]
pub struct LoadingModel {
    all: LoadingModels,
    id: u64,
}

impl LoadingModel {
    /// Says why the model does not answer. Anybody may read it.
    pub fn fails(&self, cause: String) {
        self.all.set(self.id, State::Failing(cause));
    }

    /// The model answers.
    pub fn is_ready(&self) {
        self.all.set(self.id, State::Ready);
    }

    /// The server needs it no more.
    pub fn retire(&self) {
        self.all.remove(self.id);
    }
}

impl Drop for LoadingModel {
    fn drop(&mut self) {
        self.retire();
    }
}
