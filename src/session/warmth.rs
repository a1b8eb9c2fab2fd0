//! Keeps the language model loaded, and knows whether it is: at the start, again before a session if nobody has used it
//! for a while, and after an answer that failed.

use crate::conversation::Policy;
use crate::llm::{Demands, Llm, LlmError, Prompt};
use crate::metrics::{LanguageModel, Metrics};
use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The time without use after which a model is warmed up before a session. Ollama unloads after five minutes.
const COLD_AFTER: Duration = Duration::from_secs(240);

/// The first and the longest time between two attempts.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The state of one language model.
pub(super) struct Warmth {
    llm: Arc<dyn Llm>,
    /// The beginning of every conversation.
    prompt: Prompt,
    used: Mutex<Option<Instant>>,
    /// Attempts are being made.
    is_warming: AtomicBool,
    /// Its state, as the server knows it; `None` if the server can do without it.
    loading: Option<LanguageModel>,
    /// Ends the attempts when this model is replaced.
    attempts: CancellationToken,
    _end: DropGuard,
}

impl Warmth {
    /// Begins to warm up the model if there is a runtime. Until it has answered, the server is not ready.
    pub(super) fn start(llm: Arc<dyn Llm>, policy: &Policy, metrics: &Metrics) -> Arc<Self> {
        Self::started(llm, policy, Some(metrics.language_models().add()))
    }

    /// Begins to warm up a model that the server can do without: the server is ready before that.
    pub(super) fn start_beside(llm: Arc<dyn Llm>, policy: &Policy) -> Arc<Self> {
        Self::started(llm, policy, None)
    }

    fn started(llm: Arc<dyn Llm>, policy: &Policy, loading: Option<LanguageModel>) -> Arc<Self> {
        let attempts = CancellationToken::new();
        let warmth = Arc::new(Self {
            llm,
            prompt: Prompt {
                instructions: policy.briefing.instructions.clone(),
                day: None,
                messages: Vec::new(),
                tools: Arc::new(policy.briefing.offered(&policy.tools)),
                demands: Demands {
                    language: policy.speaker.language.clone(),
                    ..Demands::default()
                },
            },
            used: Mutex::new(None),
            is_warming: AtomicBool::new(false),
            loading,
            _end: attempts.clone().drop_guard(),
            attempts,
        });
        warmth.warm();
        warmth
    }

    /// The model.
    pub(super) fn llm(&self) -> &Arc<dyn Llm> {
        &self.llm
    }

    /// Texts that the model answers with again and again.
    pub(super) fn often_said(&self) -> Vec<String> {
        self.llm.often_said(&self.prompt)
    }

    /// Another model takes its place.
    pub(super) fn retire(&self) {
        self.attempts.cancel();
        if let Some(loading) = &self.loading {
            loading.retire();
        }
    }

    /// A session uses the model. One that may have been unloaded meanwhile is warmed up in the background, so that
    /// a caller who hangs up does not stop it from loading. If that fails, and no other model of the server answers, the
    /// server is not ready.
    pub(super) fn use_now(self: &Arc<Self>) {
        if self.used().is_some_and(|at| at.elapsed() > COLD_AFTER) {
            self.warm();
        }
    }

    /// An answer failed. The server may have unloaded the model and may abort loading it when the question is given up,
    /// so one attempt is made in the background. If it fails, the server stays as ready as it was: one request may have
    /// failed alone, and all servers share the model.
    pub(super) fn failed(self: &Arc<Self>) {
        let warmth = self.clone();
        self.in_background(async move {
            match warmth.attempt().await {
                Ok(()) => warmth.is_ready(),
                Err(error) => {
                    let (model, reason) = (warmth.llm.name(), error.details());
                    tracing::warn!(model, reason, "the language model does not answer");
                }
            }
        });
    }

    /// Notes that the model is used, and returns when it was before.
    #[allow(clippy::disallowed_methods, reason = "an edge: it reads the clock")]
    fn used(&self) -> Option<Instant> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.replace(Instant::now())
    }

    fn attempt(&self) -> BoxFuture<'static, Result<(), LlmError>> {
        self.llm.warm_up(self.prompt.clone())
    }

    /// Makes attempts in the background until one succeeds.
    fn warm(self: &Arc<Self>) {
        let warmth = self.clone();
        self.in_background(async move { warmth.until_warm().await });
    }

    /// Makes attempts in the background, if there is a runtime and none are being made.
    fn in_background(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.tell_ready();
        };
        if self.is_warming.swap(true, Ordering::Relaxed) {
            return;
        }
        let (warmth, attempts) = (self.clone(), self.attempts.clone());
        runtime.spawn(async move {
            attempts.run_until_cancelled(work).await;
            warmth.is_warming.store(false, Ordering::Relaxed);
        });
    }

    fn tell_ready(&self) {
        if let Some(loading) = &self.loading {
            loading.answered();
        }
    }

    async fn until_warm(&self) {
        let (mut wait, longest) = BACK_OFF;
        while let Err(error) = self.attempt().await {
            if let Some(loading) = &self.loading {
                loading.failed(error.cause());
            }
            let (model, reason) = (self.llm.name(), error.details());
            let seconds = wait.as_secs();
            tracing::warn!(
                model,
                reason,
                seconds,
                "the language model is not ready yet; it is asked again in a while"
            );
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
        self.is_ready();
    }

    fn is_ready(&self) {
        self.used();
        self.tell_ready();
        tracing::info!(model = self.llm.name(), "the language model is ready");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::LlmStream;
    use tokio::time::sleep;

    /// A model that takes time to load, or fails to.
    #[derive(Default)]
    struct Loads {
        /// The time that loading takes from now on, and the status that it ends with.
        next: Mutex<(Duration, Option<u16>)>,
        attempts: Mutex<usize>,
        /// Attempts that were given up before they ended.
        given_up: Arc<AtomicBool>,
    }

    /// Notes an attempt that is dropped.
    struct Attempt(Arc<AtomicBool>, bool);

    impl Drop for Attempt {
        fn drop(&mut self) {
            self.0.fetch_or(!self.1, Ordering::Relaxed);
        }
    }

    impl Llm for Loads {
        fn name(&self) -> &str {
            "loads"
        }

        fn generate(&self, _: Prompt) -> LlmStream {
            unreachable!("it is only warmed up")
        }

        fn warm_up(&self, _: Prompt) -> BoxFuture<'static, Result<(), LlmError>> {
            *self.attempts.lock().unwrap() += 1;
            let (time, status) = *self.next.lock().unwrap();
            let given_up = self.given_up.clone();
            Box::pin(async move {
                let mut attempt = Attempt(given_up, false);
                sleep(time).await;
                attempt.1 = true;
                let refusal = |status| LlmError::Status {
                    url: "http://secret.example/v1".into(),
                    status,
                    body: "Incorrect API key provided: sk-secret".into(),
                };
                status.map_or(Ok(()), |status| Err(refusal(status)))
            })
        }
    }

    impl Loads {
        fn set(&self, seconds: u64, status: Option<u16>) {
            *self.next.lock().unwrap() = (Duration::from_secs(seconds), status);
        }

        fn attempts(&self) -> usize {
            *self.attempts.lock().unwrap()
        }
    }

    fn start(seconds: u64, status: Option<u16>) -> (Arc<Loads>, Arc<Warmth>, Metrics) {
        let (llm, metrics) = (Arc::new(Loads::default()), Metrics::default());
        llm.set(seconds, status);
        let warmth = Warmth::start(llm.clone(), &Policy::default(), &metrics);
        (llm, warmth, metrics)
    }

    async fn pass(seconds: f64) {
        sleep(Duration::from_secs_f64(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_takes_a_minute_to_load_is_waited_for() {
        let (llm, _warmth, metrics) = start(60, None);
        pass(59.9).await;
        let why = metrics.loading_because().expect("it is loading");
        assert!(why.contains("loading"), "{why}");
        pass(0.2).await;
        assert_eq!(metrics.loading_because(), None);
        assert_eq!(llm.attempts(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_whose_server_says_for_a_minute_that_it_loads_is_asked_again() {
        let (llm, _warmth, metrics) = start(0, Some(503));
        pass(60.0).await;
        let why = metrics.loading_because().expect("it is loading");
        assert_eq!(why, "it is loading (status 503)");
        llm.set(0, None);
        // The longest time between two attempts.
        pass(30.1).await;
        assert_eq!(metrics.loading_because(), None);
        assert!(llm.attempts() < 10, "{}", llm.attempts());
    }

    /// The server said that it was ready after a refusal.
    #[tokio::test(start_paused = true)]
    async fn a_model_that_refuses_is_not_ready_and_says_why_without_secrets() {
        for (status, part) in [
            (400, "refuses the request"),
            (401, "the key"),
            (404, "the model or the path"),
            (422, "refuses the request"),
        ] {
            let (llm, _warmth, metrics) = start(1, Some(status));
            for _ in 0..10 {
                pass(60.0).await;
                let why = metrics.loading_because().expect("it refuses");
                assert!(
                    why.contains(part) && why.contains(&status.to_string()),
                    "{why}"
                );
                assert!(!why.contains("secret"), "{why}");
            }
            // Once the operator has mended it, it needs no restart.
            llm.set(1, None);
            pass(40.0).await;
            assert_eq!(metrics.loading_because(), None, "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_was_unloaded_is_loaded_again_in_the_background() {
        let (llm, warmth, metrics) = start(0, None);
        pass(1.0).await;
        llm.set(60, None);
        pass(200.0).await;
        warmth.use_now();
        assert_eq!(llm.attempts(), 1, "it is still warm");
        pass(241.0).await;
        warmth.use_now();
        pass(10.0).await;
        // The next callers wait for the same attempt.
        warmth.use_now();
        assert_eq!(llm.attempts(), 2);
        pass(55.0).await;
        assert!(!llm.given_up.load(Ordering::Relaxed));
        assert_eq!(metrics.loading_because(), None, "it did not fail");

        llm.set(1, Some(500));
        pass(300.0).await;
        warmth.use_now();
        pass(2.0).await;
        let why = metrics.loading_because().expect("it fails");
        assert!(why.contains("500"), "{why}");
        llm.set(1, None);
        pass(10.0).await;
        assert_eq!(metrics.loading_because(), None);
    }

    /// Each question of the session began to load the model, and gave up before it was loaded.
    #[tokio::test(start_paused = true)]
    async fn a_model_that_was_unloaded_in_mid_session_is_loaded_when_an_answer_fails() {
        let (llm, warmth, metrics) = start(0, None);
        pass(1.0).await;
        llm.set(60, None);
        for _ in 0..5 {
            warmth.failed();
            pass(8.0).await;
        }
        assert_eq!(llm.attempts(), 2, "one loads it for all");
        pass(30.0).await;
        assert!(!llm.given_up.load(Ordering::Relaxed));

        llm.set(0, Some(429));
        warmth.failed();
        pass(5.0).await;
        assert_eq!(llm.attempts(), 3, "the next failed answer makes another");
        assert_eq!(metrics.loading_because(), None, "the server stays ready");
        pass(300.0).await;
        warmth.use_now();
        pass(31.0).await;
        let why = metrics
            .loading_because()
            .expect("a session found it failing");
        assert!(why.contains("429"), "{why}");
    }

    /// A key that was revoked for one agent's model took all servers out of the balancer.
    #[tokio::test(start_paused = true)]
    async fn a_model_that_fails_leaves_the_server_ready_for_the_agents_of_others() {
        let (llm, warmth, metrics) = start(0, None);
        let other = Arc::new(Loads::default());
        other.set(5, Some(401));
        let others = Warmth::start(other.clone(), &Policy::default(), &metrics);
        pass(4.0).await;
        assert!(metrics.loading_because().is_some(), "it may still load");
        pass(2.0).await;
        assert_eq!(metrics.loading_because(), None);
        let failing = metrics.failing_models();
        assert!(
            failing.len() == 1 && failing[0].contains("the key"),
            "{failing:?}"
        );

        llm.set(1, Some(500));
        pass(300.0).await;
        warmth.use_now();
        pass(2.0).await;
        let why = metrics.loading_because();
        assert!(why.is_some(), "none answers");
        other.set(0, None);
        pass(40.0).await;
        assert_eq!(metrics.loading_because(), None);
        assert!(metrics.failing_models()[0].contains("500"));
        drop((warmth, others));
    }

    /// A session that still held the old model took its successor out of the list when it ended.
    #[tokio::test(start_paused = true)]
    async fn a_model_that_is_replaced_leaves_the_state_of_its_successor_alone() {
        let (_, old, metrics) = start(0, None);
        pass(1.0).await;
        old.retire();
        let other = Arc::new(Loads::default());
        other.set(1, Some(401));
        let _successor = Warmth::start(other, &Policy::default(), &metrics);
        pass(2.0).await;
        drop(old);
        assert!(metrics.loading_because().is_some(), "none answers");
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_is_replaced_is_not_asked_again() {
        let (llm, warmth, metrics) = start(1, Some(401));
        pass(10.0).await;
        warmth.retire();
        pass(1.0).await;
        assert_eq!(metrics.loading_because(), None);
        let attempts = llm.attempts();
        pass(600.0).await;
        assert_eq!(llm.attempts(), attempts);
    }
}
