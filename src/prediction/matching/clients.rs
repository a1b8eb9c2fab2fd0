//! Clients' own tools, compared with what users say like the server's. They compete with the server's tools
//! for words, so each set of them is learned together with those, on a thread that nobody else waits for.

use super::learning::{Memory, Trained};
use super::{Compared, Matched, masks};
use crate::prediction::router::ask;
use crate::prediction::{
    Evidence, LentTools, PredictError, Prediction, Predictor, Question, Settings, Source, unusable,
};
use crate::worker::{SpawnError, Worker};
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Jobs that wait for the thread.
const INBOX: usize = 32;

/// The sets of tools that are remembered. Sessions of one application declare the same.
const REMEMBERED: usize = 16;

/// Predicts calls of the tools that clients let run early.
#[derive(Debug)]
pub struct ClientMatching(Worker<Job, Vec<Prediction>>);

#[derive(Debug)]
enum Job {
    /// These tools will be asked about soon.
    Learn(LentTools),
    Predict(Arc<Question>),
}

impl ClientMatching {
    /// Starts the thread. It loads its model when the first client lets a tool run early.
    ///
    /// # Errors
    /// [`SpawnError`] if there is no thread.
    pub fn start(settings: Arc<Settings>) -> Result<Self, SpawnError<PredictError>> {
        let build = move || Ok(Studio::new(settings.clone()));
        let work = |studio: &mut Studio, job, _: &_| match job {
            Job::Learn(tools) => {
                studio.learn(&tools);
                Vec::new()
            }
            Job::Predict(question) => studio.predict(&question),
        };
        Worker::spawn("client-tools", INBOX, build, work).map(Self)
    }
}

impl Predictor for ClientMatching {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        if question.tools.is_empty() || question.evidence.moment.is_before_words() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        let paused = question.evidence.paused;
        let answered = ask(&self.0, Job::Predict(question), paused);
        Box::pin(async move { Ok(answered.await) })
    }

    fn lent(&self, _: Uuid, tools: &LentTools) {
        if tools.is_empty() {
            return;
        }
        let job = Job::Learn(tools.clone());
        // If the thread is busy, they are learned when they are asked about.
        drop(self.0.try_send(job, CancellationToken::new(), |_| {}));
    }
}

/// The thread's state.
pub(super) struct Studio {
    settings: Arc<Settings>,
    /// The server's tools; `None` until a client needs them.
    server: Option<Trained>,
    /// The model could not be loaded or used.
    failed: bool,
    /// The last one used comes first.
    sets: VecDeque<Set>,
    /// The last embedded texts.
    last: Vec<(String, Vec<f32>)>,
}

/// A set of clients' tools, with those of the server beside them.
struct Set {
    lent: LentTools,
    tools: Vec<Matched>,
    memory: Memory,
}

impl Studio {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            server: None,
            failed: false,
            sets: VecDeque::new(),
            last: Vec::new(),
        }
    }

    /// The likeliest calls of the client's tools.
    pub(super) fn predict(&mut self, question: &Question) -> Vec<Prediction> {
        self.learn(&question.tools);
        let compared = self.compare(&question.tools, &question.evidence);
        compared.unwrap_or_else(|error| {
            tracing::warn!(%error, "a source of predictions failed");
            Vec::new()
        })
    }

    fn compare(
        &mut self,
        lent: &LentTools,
        evidence: &Evidence,
    ) -> Result<Vec<Prediction>, PredictError> {
        let set = self.sets.front().filter(|set| set.lent == *lent);
        let (Some(set), Some(server)) = (set, &mut self.server) else {
            return Ok(Vec::new());
        };
        let compared = Compared {
            tools: &set.tools,
            memory: &set.memory,
            today: self.settings.today.date(),
        };
        let mut predictions = compared.predict(evidence, &mut server.embedder, &mut self.last)?;
        let is_lent = |name: &str| lent.iter().any(|(tool, _)| tool.spec.name == name);
        predictions.retain(|one| is_lent(&one.tool));
        Ok(predictions)
    }

    /// Learns a set of tools unless it is known, and puts it first.
    fn learn(&mut self, lent: &LentTools) {
        let known = self.sets.iter().position(|set| set.lent == *lent);
        let set = match known.and_then(|at| self.sets.remove(at)) {
            Some(set) => set,
            None if self.failed => return,
            None => match self.studied(lent) {
                Ok(set) => set,
                Err(error) => {
                    self.failed = true;
                    return tracing::warn!(%error, "clients' tools are not predicted");
                }
            },
        };
        self.sets.truncate(REMEMBERED - 1);
        self.sets.push_front(set);
    }

    fn studied(&mut self, lent: &LentTools) -> Result<Set, PredictError> {
        let today = self.settings.today.date();
        let matched = |tools: &[_]| -> Vec<Matched> {
            let tools = tools.iter();
            tools
                .map(|(tool, hints): &(Arc<_>, _)| Matched::of(tool, hints))
                .collect()
        };
        let samples = |tools: &[Matched]| -> Vec<_> {
            let tools = tools.iter();
            tools.flat_map(|tool| masks::samples(tool, today)).collect()
        };
        let (mut tools, clients) = (matched(&self.settings.tools), matched(lent));
        let server = match self.server.take() {
            Some(server) => server,
            None => {
                let trained = self.settings.files.learn(None, &samples(&tools));
                trained.map_err(unusable(Source::Example))?
            }
        };
        let server = self.server.insert(server);
        let memory = server.memory.with(&samples(&clients), &mut server.embedder);
        tools.retain(|tool| clients.iter().all(|own| own.name != tool.name));
        tools.extend(clients);
        Ok(Set {
            lent: lent.clone(),
            tools,
            memory: memory.map_err(unusable(Source::Example))?,
        })
    }
}
