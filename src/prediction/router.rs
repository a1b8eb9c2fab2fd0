//! The sources that share a thread, and the merger of what sources predict.

use super::{Evidence, LocalPredictor, PredictError, Prediction, Predictor, Question};
use crate::worker::{SpawnError, Worker};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Questions that wait for the thread.
const INBOX: usize = 32;

/// More predictions than this are not passed on: by default three calls are started in a turn.
const MOST: usize = 8;

/// Asks every source and makes one list of what they predict.
#[derive(Default)]
pub struct Router {
    predictors: Vec<Box<dyn LocalPredictor>>,
}

impl Router {
    /// These sources, the cheapest first.
    pub fn new(predictors: Vec<Box<dyn LocalPredictor>>) -> Self {
        Self { predictors }
    }

    /// The calls that may be needed, the likeliest first, each once. A source that fails is logged
    /// and changes nothing for the others.
    pub fn predict(&mut self, evidence: &Evidence) -> Vec<Prediction> {
        merged(self.predictors.iter_mut().map(|predictor| {
            predictor.predict(evidence).unwrap_or_else(|error| {
                tracing::warn!(%error, "a source of predictions failed");
                Vec::new()
            })
        }))
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sources = self.predictors.iter().map(|predictor| predictor.source());
        f.debug_list().entries(sources).finish()
    }
}

/// The [`Router`] on a thread of its own. When it is busy, nothing is predicted.
#[derive(Debug)]
pub struct RouterThread(Worker<Arc<Question>, Vec<Prediction>>);

impl RouterThread {
    /// Starts the thread; `build` makes the router there, and again if it has panicked.
    ///
    /// # Errors
    /// [`SpawnError`] if there is no thread, or `build` failed.
    pub fn start(
        build: impl FnMut() -> Result<Router, PredictError> + Send + 'static,
    ) -> Result<Self, SpawnError<PredictError>> {
        let predict = |router: &mut Router, question: Arc<Question>, _: &_| {
            router.predict(&question.evidence)
        };
        Worker::spawn("router", INBOX, build, predict).map(Self)
    }
}

impl Predictor for RouterThread {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        if question.evidence.moment.is_before_words() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        let lent = question.tools.clone();
        let paused = question.evidence.paused;
        let answered = ask(&self.0, question, paused);
        Box::pin(async move {
            let mut predictions = answered.await;
            // The client's tool replaces the server's of the same name.
            predictions.retain(|one| lent.iter().all(|(tool, _)| tool.spec.name != one.tool));
            Ok(predictions)
        })
    }
}

/// Asks the thread of a source. Nothing is predicted if it does not take the question, or fails. Dropping the
/// answer cancels the question.
pub(super) fn ask<J: Send + 'static>(
    thread: &Worker<J, Vec<Prediction>>,
    question: J,
    paused: bool,
) -> impl Future<Output = Vec<Prediction>> + Send + use<J> {
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    let (answer, answered) = oneshot::channel();
    let done = |predictions: Result<_, _>| drop(answer.send(predictions.unwrap_or_default()));
    // Partials change soon; the words up to a pause may be final. A question that is not
    // taken drops `answer`.
    let _ = match paused {
        true => thread.try_send(question, cancel, done),
        false => thread.offer(question, cancel, done),
    };
    async move {
        let predictions = answered.await.unwrap_or_default();
        guard.disarm();
        predictions
    }
}

/// The predictions of several sources in one list: the likeliest first, each once, the cheapest
/// source named.
pub fn merged(answers: impl IntoIterator<Item = Vec<Prediction>>) -> Vec<Prediction> {
    let mut merged = Vec::new();
    for predictions in answers {
        merge(&mut merged, best_of_each(predictions));
    }
    sort(&mut merged);
    merged.truncate(MOST);
    merged
}

fn is_same(a: &Prediction, b: &Prediction) -> bool {
    a.tool == b.tool && a.arguments == b.arguments && a.open == b.open
}

/// Stable: of two equally likely calls the cheaper source's stays first.
fn sort(predictions: &mut [Prediction]) {
    predictions.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
}

/// Two rules of one source that match the same words count once.
fn best_of_each(mut predictions: Vec<Prediction>) -> Vec<Prediction> {
    predictions.retain(|one| one.confidence.is_finite());
    sort(&mut predictions);
    let mut best: Vec<Prediction> = Vec::new();
    for prediction in predictions {
        if !best.iter().any(|other| is_same(other, &prediction)) {
            best.push(prediction);
        }
    }
    best
}

/// Merges predictions. Sources that agree are combined as if they were independent: both are wrong less often than
/// either.
fn merge(merged: &mut Vec<Prediction>, more: Vec<Prediction>) {
    for prediction in more {
        match merged.iter_mut().find(|other| is_same(other, &prediction)) {
            Some(same) => {
                let both_wrong = (1.0 - same.confidence) * (1.0 - prediction.confidence);
                same.confidence = (1.0 - both_wrong).clamp(0.0, 1.0);
            }
            None => merged.push(prediction),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::Source;
    use serde_json::{Map, json};

    struct Says(Source, Vec<Prediction>);

    impl LocalPredictor for Says {
        fn source(&self) -> Source {
            self.0
        }

        fn predict(&mut self, _: &Evidence) -> Result<Vec<Prediction>, PredictError> {
            Ok(self.1.clone())
        }
    }

    struct Fails;

    impl LocalPredictor for Fails {
        fn source(&self) -> Source {
            Source::Draft
        }

        fn predict(&mut self, _: &Evidence) -> Result<Vec<Prediction>, PredictError> {
            Err(PredictError {
                predictor: Source::Draft,
                reason: "gone".into(),
            })
        }
    }

    fn call(tool: &str, city: &str, confidence: f32, source: Source) -> Prediction {
        let mut arguments = Map::new();
        arguments.insert("city".into(), json!(city));
        Prediction {
            tool: tool.into(),
            arguments,
            confidence,
            source,
            open: Vec::new(),
        }
    }

    #[test]
    fn sources_that_agree_are_surer_and_the_cheaper_one_is_named() {
        let rule = |city, confidence| call("weather", city, confidence, Source::Rule);
        let intent = |city, confidence| call("weather", city, confidence, Source::Intent);
        let mut router = Router::new(vec![
            Box::new(Says(
                Source::Rule,
                vec![rule("Rome", 0.6), rule("Rome", 0.5)],
            )),
            Box::new(Fails),
            Box::new(Says(
                Source::Intent,
                vec![intent("Rome", 0.5), intent("Paris", 0.7)],
            )),
        ]);
        let predictions = router.predict(&Evidence::default());
        let [rome, paris] = predictions.as_slice() else {
            panic!("{predictions:?}");
        };
        assert_eq!((rome.source, paris.source), (Source::Rule, Source::Intent));
        assert!((rome.confidence - 0.8).abs() < 1e-6, "{rome:?}");
        assert_eq!(paris.confidence, 0.7);
    }

    #[test]
    fn the_list_is_sorted_and_bounded() {
        let many = (0..50u8).map(|at| {
            let city = at.to_string();
            call("weather", &city, f32::from(at) / 50.0, Source::Rule)
        });
        let broken = call("weather", "nowhere", f32::NAN, Source::Rule);
        let all = many.chain([broken]).collect();
        let mut router = Router::new(vec![Box::new(Says(Source::Rule, all))]);
        let predictions = router.predict(&Evidence::default());
        assert_eq!(predictions.len(), MOST);
        assert!(
            predictions
                .windows(2)
                .all(|two| two[0].confidence >= two[1].confidence)
        );
        assert_eq!(predictions[0].arguments["city"], "49");
    }
}
