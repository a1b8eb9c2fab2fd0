//! Keeps the language model loaded, and knows whether it is: at the start, and again before a session if nobody
//! has used it for a while.

use crate::conversation::Policy;
use crate::llm::{Demands, Llm, LlmError, Prompt};
use crate::metrics::{LoadingModel, Metrics};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A model that nobody has used for so long is warmed up before a session. Ollama unloads after five minutes.
const COLD_AFTER: Duration = Duration::from_secs(240);

/// The first and the longest time between two attempts.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The state of one language model.
pub(super) struct Warmth {
    llm: Arc<dyn Llm>,
    /// The beginning of every conversation.
    prompt: Prompt,
    used: Mutex<Option<Instant>>,
    /// Ends the attempts of the start when this model is replaced.
    attempts: CancellationToken,
    _end: DropGuard,
}

impl Warmth {
    /// Begins to warm up the model if there is a runtime. Until it has succeeded, the server is not ready.
    pub(super) fn start(llm: Arc<dyn Llm>, policy: &Policy, metrics: &Metrics) -> Arc<Self> {
        Self::started(llm, policy, Some(metrics.model_loading()))
    }

    /// The same for a model that the server can do without: it is ready all the same.
    pub(super) fn start_beside(llm: Arc<dyn Llm>, policy: &Policy) -> Arc<Self> {
        Self::started(llm, policy, None)
    }

    fn started(llm: Arc<dyn Llm>, policy: &Policy, loading: Option<LoadingModel>) -> Arc<Self> {
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
            _end: attempts.clone().drop_guard(),
            attempts,
        });
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (first, attempts) = (warmth.attempt(), warmth.attempts.clone());
            let until_warm = warmth.clone().until_warm(first);
            runtime.spawn(async move {
                let _loading = loading;
                attempts.run_until_cancelled(until_warm).await
            });
        }
        warmth
    }

    /// The model.
    pub(super) fn llm(&self) -> &Arc<dyn Llm> {
        &self.llm
    }

    /// Another model takes its place.
    pub(super) fn retire(&self) {
        self.attempts.cancel();
    }

    /// A session uses the model. One that may have been unloaded meanwhile is warmed up in the background, so that
    /// a caller who hangs up does not stop it from loading.
    #[allow(clippy::disallowed_methods, reason = "an edge: it reads the clock")]
    pub(super) fn use_now(self: &Arc<Self>) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_cold = used.is_some_and(|at| at.elapsed() > COLD_AFTER);
        *used = Some(Instant::now());
        if is_cold && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let attempt = self.attempt();
            runtime.spawn(async move {
                if let Err(error) = attempt.await {
                    tracing::warn!(
                        reason = error.details(),
                        "the language model could not be warmed up"
                    );
                }
            });
        }
    }

    fn attempt(&self) -> futures_util::future::BoxFuture<'static, Result<(), LlmError>> {
        self.llm.warm_up(self.prompt.clone())
    }

    async fn until_warm(
        self: Arc<Self>,
        mut attempt: futures_util::future::BoxFuture<'static, Result<(), LlmError>>,
    ) {
        let (mut wait, longest) = BACK_OFF;
        while let Err(error) = attempt.await {
            let reason = error.details();
            if matches!(
                error,
                LlmError::Status {
                    status: 400 | 422,
                    ..
                }
            ) {
                tracing::warn!(
                    reason,
                    "the language model refuses the warm-up's request; see `undertone doctor`"
                );
                break;
            }
            tracing::warn!(reason, "the language model is not ready yet");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(longest);
            attempt = self.attempt();
        }
        self.use_now();
        tracing::info!(model = self.llm.name(), "the language model is ready");
    }
}
