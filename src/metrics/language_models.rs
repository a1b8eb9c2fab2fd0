//! The language models, and which of them do not answer.

use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The language models that the server needs. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LanguageModels {
    gauge: Gauge,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    models: BTreeMap<u64, State>,
    /// The id of the next one. None is used again: whoever still holds a retired model must not take another one out.
    next: u64,
    /// At some time all had answered or failed once, and one had answered.
    has_served: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// It was asked and has not answered yet.
    Loading,
    /// The last attempt failed, for this reason.
    Failing(String),
    Ready,
}

impl LanguageModels {
    /// Adds a language model, which is loading, until the returned guard is dropped.
    pub fn add(&self) -> LanguageModel {
        let mut known = self.lock();
        let id = known.next;
        known.next += 1;
        known.models.insert(id, State::Loading);
        self.count(&mut known);
        LanguageModel {
            all: self.clone(),
            id,
        }
    }

    /// The number of those that do not answer, as Prometheus reads it.
    pub(super) fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// The reason that the server cannot serve, if there is one: at the start a model has not answered yet, or none
    /// answers. If only some fail, other agents' callers are served. A model that a reloaded configuration brings is
    /// no reason while it loads: servers that reload at the same time would refuse every caller.
    pub(super) fn because(&self) -> Option<String> {
        let known = self.lock();
        let models = &known.models;
        let failing = failing(models).next();
        match known.has_served {
            true => failing.filter(|_| !is_any(models, &State::Ready)),
            false if models.is_empty() => None,
            false => failing.or_else(|| {
                Some("it has not answered yet: it is loading or cannot be reached".to_owned())
            }),
        }
    }

    /// The reasons for which models fail, each once.
    pub(super) fn failing(&self) -> Vec<String> {
        let mut causes: Vec<String> = failing(&self.lock().models).collect();
        causes.sort_unstable();
        causes.dedup();
        causes
    }

    fn set(&self, id: u64, state: State) {
        let mut known = self.lock();
        if let Some(old) = known.models.get_mut(&id) {
            *old = state;
        }
        self.count(&mut known);
    }

    fn remove(&self, id: u64) {
        let mut known = self.lock();
        known.models.remove(&id);
        self.count(&mut known);
    }

    fn count(&self, known: &mut Known) {
        let models = &known.models;
        known.has_served |= is_any(models, &State::Ready) && !is_any(models, &State::Loading);
        let missing = models.values().filter(|state| **state != State::Ready);
        self.gauge.set(missing.count() as i64);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_any(models: &BTreeMap<u64, State>, wanted: &State) -> bool {
    models.values().any(|state| state == wanted)
}

fn failing(models: &BTreeMap<u64, State>) -> impl Iterator<Item = String> {
    models.values().filter_map(|state| match state {
        State::Failing(cause) => Some(cause.clone()),
        State::Loading | State::Ready => None,
    })
}

/// A language model of the server.
#[derive(Debug)]
pub struct LanguageModel {
    all: LanguageModels,
    id: u64,
}

impl LanguageModel {
    /// Notes why the model did not answer. Anybody may read it.
    pub fn failed(&self, cause: String) {
        self.all.set(self.id, State::Failing(cause));
    }

    /// Notes that the model has answered.
    pub fn answered(&self) {
        self.all.set(self.id, State::Ready);
    }

    /// The server needs it no more.
    pub fn retire(&self) {
        self.all.remove(self.id);
    }
}

impl Drop for LanguageModel {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reload made the server unready until its models had answered again.
    #[test]
    fn a_model_that_a_reload_brings_is_not_waited_for_and_one_that_fails_is_told() {
        let all = LanguageModels::default();
        assert_eq!(all.because(), None);
        let first = all.add();
        assert!(all.because().is_some_and(|why| why.contains("loading")));
        first.answered();
        assert_eq!(all.because(), None);
        let second = all.add();
        assert_eq!(all.because(), None, "the first still answers");
        drop(first);
        assert_eq!(all.because(), None, "new sessions wait for it");
        second.failed("status 401".into());
        assert_eq!(all.because().as_deref(), Some("status 401"));
        second.answered();
        assert_eq!(all.because(), None);
    }
}
