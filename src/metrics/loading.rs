//! The language models that do not answer.

use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// The number of them, as Prometheus reads it.
    pub(super) fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// The reason that one of them does not answer, if there is one.
    pub(super) fn because(&self) -> Option<String> {
        let causes = self.lock();
        let known = causes.values().flatten().next();
        let unknown = || "it has not answered yet: it is loading or cannot be reached".to_owned();
        (!causes.is_empty()).then(|| known.cloned().unwrap_or_else(unknown))
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
