//! The state of a speech service, shared by all sessions: how long its results are waited for, whether it is asked at
//! all, and the probes while it is not.

mod health;

use crate::conversation::{Micros, Time};
use crate::metrics::Metrics;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use health::Health;
pub(super) use health::LONGEST;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The time without a result after which a service is probed when a session begins: its connection has to be opened,
/// and it may be down.
const STALE: Duration = Duration::from_secs(60);

/// Probes the service with a small job, which ends with the first sign of a result.
pub(super) type TryOut = Box<dyn Fn() -> BoxFuture<'static, Result<(), Trouble>> + Send + Sync>;

/// Called when a service fails and the local engine goes on.
pub(super) type Report = Arc<dyn Fn(Setback) + Send + Sync>;

/// A service failed, and the local engine goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setback {
    /// Its name in events and metrics.
    pub(super) stage: &'static str,
    /// The service, and what happened.
    pub(super) message: String,
}

/// A failure of a service, as clients may see it. The operator's log has the details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// Nothing came within this time.
    #[error("nothing came within {} ms", .0.as_millis())]
    Late(Duration),
    /// It refuses the key.
    #[error("it refuses the key")]
    Denied(String),
    /// It said why, or its connection broke.
    #[error("it failed")]
    Failed(String),
}

impl Trouble {
    /// Its name in metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::Late(_) => "late",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
        }
    }

    /// With the reason, which may name the server's address.
    fn details(&self) -> String {
        match self {
            Self::Late(_) => self.to_string(),
            Self::Denied(reason) | Self::Failed(reason) => reason.clone(),
        }
    }
}

/// A speech service.
pub(super) struct Source {
    name: String,
    stage: &'static str,
    began: Instant,
    known: Mutex<Known>,
    metrics: Arc<Metrics>,
    try_out: TryOut,
}

#[derive(Default)]
struct Known {
    health: Health,
    /// The time of its last result, since the start.
    last: Option<Time>,
    /// The time that this voice takes for a character, the mean of the last clauses, s.
    character: Option<f64>,
}

impl Source {
    /// `stage` is `asr` or `tts`.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: its rules are told the time"
    )]
    pub(super) fn new(
        name: &str,
        stage: &'static str,
        metrics: Arc<Metrics>,
        try_out: TryOut,
    ) -> Arc<Self> {
        metrics.service_is_up(stage, name, true);
        Arc::new(Self {
            name: name.to_owned(),
            stage,
            began: Instant::now(),
            known: Mutex::default(),
            metrics,
            try_out,
        })
    }

    /// Whether the service is used now.
    pub(super) fn is_up(&self) -> bool {
        self.lock().health.is_up()
    }

    /// How long a result is waited for.
    pub(super) fn deadline(&self) -> Duration {
        self.lock().health.deadline().duration()
    }

    /// Probes the service if needed, since a session begins that will use it.
    pub(super) fn is_needed(self: &Arc<Self>) {
        let now = self.now();
        let mut known = self.lock();
        let is_stale = |last: Time| now.since(last).duration() >= STALE;
        if known.health.is_up() && known.last.is_none_or(is_stale) {
            known.last = Some(now);
            drop(known);
            let source = self.clone();
            tokio::spawn(async move {
                if let Err(trouble) = source.tried().await {
                    source.failed(&trouble);
                }
            });
        }
    }

    /// Records a result that came after `time`, in time or not.
    pub(super) fn took(&self, time: Duration) {
        let (now, time) = (self.now(), micros(time));
        let mut known = self.lock();
        known.last = Some(now);
        known.health.took(time);
    }

    /// Records a failure.
    pub(super) fn failed(self: &Arc<Self>, trouble: &Trouble) -> Setback {
        let now = self.now();
        let (name, stage) = (&self.name, self.stage);
        self.metrics.service_failed(stage, name, trouble.name());
        let reason = trouble.details();
        tracing::warn!(service = name, stage, reason, "a speech service failed");
        let mut known = self.lock();
        known.last = Some(now);
        if let Trouble::Denied(_) = trouble {
            if !known.health.is_denied() {
                known.health.denied();
                tracing::error!(
                    service = name,
                    stage,
                    "a speech service refuses the key, and is not used again: correct the key in the \
                     configuration and restart the server"
                );
            }
        } else if let Some(wait) = known.health.failed(now) {
            let seconds = wait.0 / 1_000_000;
            tracing::error!(
                service = name,
                stage,
                seconds,
                "a speech service is down: the local engine takes over until it is back"
            );
            tokio::spawn(try_until_up(Arc::downgrade(self), wait));
        }
        let is_up = known.health.is_up();
        drop(known);
        self.metrics.service_is_up(stage, name, is_up);
        Setback {
            stage,
            message: format!("{name}: {trouble}; the local engine goes on"),
        }
    }

    /// Records the length of a clause with this number of characters.
    pub(super) fn said(&self, characters: usize, length: Duration) {
        if characters > 0 {
            let each = length.as_secs_f64() / characters as f64;
            let mut known = self.lock();
            let mean = known.character.map_or(each, |mean| 0.8 * mean + 0.2 * each);
            known.character = Some(mean);
        }
    }

    /// The time that the voice takes for a character, if it has spoken.
    pub(super) fn character(&self) -> Option<Duration> {
        self.lock().character.map(Duration::from_secs_f64)
    }

    /// Probes the service. Returns how long the result took.
    #[allow(clippy::disallowed_methods, reason = "an edge: it measures")]
    async fn tried(&self) -> Result<Duration, Trouble> {
        let began = Instant::now();
        let job = AssertUnwindSafe((self.try_out)()).catch_unwind();
        let longest = LONGEST.duration();
        match timeout(longest, job).await {
            Ok(Ok(done)) => done.map(|()| {
                let time = began.elapsed();
                self.took(time);
                time
            }),
            Ok(Err(_)) => Err(Trouble::Failed("its client panicked".into())),
            Err(_) => Err(Trouble::Late(longest)),
        }
    }

    fn now(&self) -> Time {
        Time(micros(self.began.elapsed()).0)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Probes a service that is down until it works or nobody needs it any more.
async fn try_until_up(source: Weak<Source>, mut wait: Micros) {
    loop {
        sleep(wait.duration()).await;
        let Some(source) = source.upgrade() else {
            return;
        };
        let is_new = source.lock().health.is_new();
        let in_time = match is_new {
            true => LONGEST.duration(),
            false => source.deadline(),
        };
        let tried = source.tried().await;
        if let Err(trouble @ Trouble::Denied(_)) = &tried {
            source.failed(trouble);
            return;
        }
        let (now, works) = (source.now(), tried.is_ok_and(|time| time <= in_time));
        let next = source.lock().health.tried(now, works);
        let Some(next) = next else {
            let (name, stage) = (&source.name, source.stage);
            tracing::info!(service = name, stage, "a speech service is back");
            source.metrics.service_is_up(stage, name, true);
            return;
        };
        wait = next;
    }
}

fn micros(time: Duration) -> Micros {
    Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}
