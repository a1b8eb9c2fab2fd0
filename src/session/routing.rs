//! A session's questions to the sources of predictions: gives them the context, merges their answers
//! as they come, and passes on what was committed.

use super::course::Course;
use super::driver::Done;
use crate::conversation::{EarlyTool, Event, Input, RequestId};
use crate::prediction::{Evidence, LentTools, Prediction, Predictor, Question, merged};
use crate::tools::{Registry, RouterHints, ToolSpec, canonical};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;
use uuid::Uuid;

/// Questions of a session that each source may have open; the oldest is cancelled for a new one.
const OPEN: usize = 8;

/// The answer of one source.
pub(super) struct Answer {
    request: RequestId,
    /// The source's place in the list.
    source: usize,
    predictions: Vec<Prediction>,
}

/// The sources, as one session sees them.
pub(super) struct Routing {
    sources: Vec<Arc<dyn Predictor>>,
    session: Uuid,
    agent: Arc<str>,
    came_by: Option<Arc<str>>,
    course: Course,
    /// The client's tools that may run early.
    lent: LentTools,
    /// The answers to each open question so far, one list for each source.
    answers: BTreeMap<RequestId, Vec<Vec<Prediction>>>,
    /// The open questions of each source, oldest first.
    open: Vec<VecDeque<AbortHandle>>,
}

impl Routing {
    /// `came_by`: [`Question::came_by`].
    pub(super) fn new(
        sources: Vec<Arc<dyn Predictor>>,
        session: Uuid,
        agent: &str,
        came_by: Option<&str>,
    ) -> Self {
        Self {
            open: sources.iter().map(|_| VecDeque::new()).collect(),
            sources,
            session,
            agent: agent.into(),
            came_by: came_by.map(Arc::from),
            course: Course::default(),
            lent: LentTools::default(),
            answers: BTreeMap::new(),
        }
    }

    /// Whether there are no sources.
    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Changes the agent of the session.
    pub(super) fn change_agent(&mut self, agent: &str) {
        self.agent = agent.into();
    }

    /// Handles the client's declaration of `tools`, of which those in `early` may run early.
    pub(super) fn lend(&mut self, tools: &[ToolSpec], early: &[EarlyTool]) {
        let lent = EarlyTool::declarations(tools, early).map(|tool| {
            let hints = RouterHints::of_client(&tool.spec);
            (tool, hints)
        });
        let lent: LentTools = Arc::new(lent.collect());
        if lent == self.lent {
            return;
        }
        self.lent = lent;
        for source in &self.sources {
            source.lent(self.session, &self.lent);
        }
    }

    /// Asks all sources. Each answers for itself, as [`Done::Predicted`].
    pub(super) fn ask(
        &mut self,
        request: RequestId,
        evidence: Evidence,
        tasks: &mut JoinSet<()>,
        results: &mpsc::Sender<Done>,
    ) {
        let question = Arc::new(Question {
            session: self.session,
            agent: self.agent.clone(),
            came_by: self.came_by.clone(),
            history: self.course.history(),
            evidence,
            tools: self.lent.clone(),
        });
        self.answers
            .insert(request, vec![Vec::new(); self.sources.len()]);
        if self.answers.len() > OPEN {
            self.answers.pop_first();
        }
        let sources = self.sources.iter().zip(&mut self.open).enumerate();
        for (source, (predictor, open)) in sources {
            let (predicted, results) = (predictor.predict(question.clone()), results.clone());
            let answer = async move {
                let predictions = predicted.await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "a source of predictions failed");
                    Vec::new()
                });
                let answer = Answer {
                    request,
                    source,
                    predictions,
                };
                drop(results.send(Done::Predicted(answer)).await);
            };
            open.retain(|task| !task.is_finished());
            if open.len() == OPEN
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            open.push_back(tasks.spawn(answer.in_current_span()));
        }
    }

    /// Adds a source's answer to those of the others. `None` if the question is too old.
    pub(super) fn answered(&mut self, answer: Answer) -> Option<Input> {
        let Answer {
            request,
            source,
            predictions,
        } = answer;
        let answers = self.answers.get_mut(&request)?;
        *answers.get_mut(source)? = predictions;
        let predictions = merged(answers.iter().cloned());
        Some(Input::Predicted {
            request,
            predictions,
        })
    }

    /// Remembers what was said, and passes on what was committed.
    pub(super) fn observe(&mut self, event: &Event, tools: &Registry) {
        let canonical = |name: &str, arguments: &Map<String, Value>| {
            let declared = tools.declaration(name);
            declared.map_or_else(|| arguments.clone(), |tool| canonical(tool, arguments))
        };
        if let Some(call) = self.course.observe(event, canonical) {
            for source in &self.sources {
                source.committed(self.session, &call);
            }
        }
    }
}

impl Drop for Routing {
    fn drop(&mut self) {
        for source in &self.sources {
            source.ended(self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::PredictError;
    use futures_util::future::BoxFuture;
    use tokio::sync::watch;

    /// A source that never answers, and the questions that it works on.
    struct Endless(watch::Sender<Vec<RequestId>>);

    struct Asked(watch::Sender<Vec<RequestId>>, RequestId);

    impl Drop for Asked {
        fn drop(&mut self) {
            self.0
                .send_modify(|open| open.retain(|request| *request != self.1));
        }
    }

    impl Predictor for Endless {
        fn predict(
            &self,
            question: Arc<Question>,
        ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
            let request = RequestId(question.evidence.text.parse().expect("a number"));
            self.0.send_modify(|open| open.push(request));
            let asked = Asked(self.0.clone(), request);
            Box::pin(async move {
                let _asked = asked;
                std::future::pending().await
            })
        }
    }

    #[tokio::test]
    async fn the_oldest_of_too_many_questions_is_cancelled() {
        let open = watch::Sender::new(Vec::new());
        let sources: Vec<Arc<dyn Predictor>> = vec![Arc::new(Endless(open.clone()))];
        let mut routing = Routing::new(sources, Uuid::nil(), "", None);
        let (results, _incoming) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        for number in 0..12 {
            let evidence = Evidence {
                text: number.to_string(),
                ..Evidence::default()
            };
            routing.ask(RequestId(number), evidence, &mut tasks, &results);
        }
        let mut open = open.subscribe();
        let newest: Vec<_> = (4..12).map(RequestId).collect();
        let left = open.wait_for(|open| *open == newest).await;
        left.expect("the source lives");
        assert_eq!(routing.answers.len(), OPEN);
    }
}
