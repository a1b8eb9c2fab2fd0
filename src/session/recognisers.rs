//! The recognisers: one local model on a thread that all sessions share, and services, which are opened
//! for each session.

use super::builders::Build;
use super::load::{Gauge, Stage};
use super::{INBOX, reason};
use crate::asr::{Asr, AsrError, AsrService, AsrSession, Recognised, Utterance};
use crate::conversation::Samples;
use crate::worker::{Overloaded, SpawnError, Worker};
use futures_util::FutureExt;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// How long a recording may wait to be transcribed while users speak, and how long a service may take
/// for any job, so that those of a service that hangs do not pile up.
const IN_TIME: Duration = Duration::from_secs(10);

type OnThread = Worker<HearJob, Result<Recognised, AsrError>>;

/// Audio for the recogniser.
pub(super) struct HearJob {
    audio: Vec<f32>,
    /// Since when a user waits for it; `None` if nobody does.
    asked: Option<Instant>,
}

/// The recognisers of a server.
pub(super) struct Recognisers {
    shared: OnThread,
    services: BTreeMap<String, Arc<dyn AsrService>>,
}

impl Recognisers {
    pub(super) fn start(
        build: Build<dyn Asr, AsrError>,
        services: BTreeMap<String, Arc<dyn AsrService>>,
        gauge: Arc<Gauge>,
    ) -> Result<Self, SpawnError<AsrError>> {
        let shared = Worker::spawn("asr", INBOX, build, move |asr, job: HearJob, _| {
            if let Some(asked) = job.asked {
                gauge.begun(Stage::Recogniser, asked);
            }
            let (heard, time) = gauge.measure(Stage::Recogniser, || asr.hear(&job.audio));
            gauge.took(Stage::Recogniser, time);
            heard
        })?;
        Ok(Self { shared, services })
    }

    /// Opens a recogniser for one session: the server's default if `name` is unknown.
    pub(super) fn open(&self, name: Option<&str>, language: Option<&str>) -> Recogniser {
        let service = name.and_then(|name| self.services.get(name));
        if let (Some(name), None) = (name, service) {
            tracing::warn!(name, "unknown recogniser: using the default");
        }
        match service {
            Some(service) => Recogniser::Service(service.open(language)),
            None => Recogniser::Shared(self.shared.clone()),
        }
    }

    /// The number of jobs on the thread that are due by `now` and still waiting.
    pub(super) fn overdue(&self, now: Instant) -> usize {
        self.shared.overdue(now)
    }

    /// Transcribes audio outside of any session. `None` if the recogniser is busy or fails, which is
    /// logged.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub(super) async fn transcribe(&self, audio: Vec<f32>) -> Option<String> {
        let now = Instant::now();
        let asked = Some(now);
        let heard = self.shared.call_by(now, HearJob { audio, asked }).await;
        logged(heard.map_err(reason).and_then(text_of))
    }

    /// Transcribes audio that no user is waiting for: live speech goes first, and this wait does not
    /// count as load.
    ///
    /// # Errors
    /// Why the recogniser did not: it is busy or fails.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub(super) async fn transcribe_aside(&self, audio: Vec<f32>) -> Result<String, String> {
        let job = HearJob { audio, asked: None };
        let heard = self.shared.call_by(Instant::now() + IN_TIME, job).await;
        heard.map_err(reason).and_then(text_of)
    }
}

/// One session's recogniser.
pub(super) enum Recogniser {
    /// On the shared thread.
    Shared(OnThread),
    /// This session's connection to a service.
    Service(Box<dyn AsrSession>),
}

impl Recogniser {
    /// Receives the user's audio as it arrives.
    pub(super) fn listen(&mut self, from: Samples, audio: &[f32]) {
        match self {
            Self::Shared(_) => {}
            Self::Service(session) => session.listen(from, audio),
        }
    }

    /// Transcribes a part of the user's audio. `done` is called with what was heard or the reason of a failure,
    /// on any thread. A partial never delays the final transcript of any session.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long users wait is measured in real time"
    )]
    pub(super) fn transcribe(
        &mut self,
        part: Utterance,
        cancel: &CancellationToken,
        tasks: &mut JoinSet<()>,
        done: impl FnOnce(Result<Recognised, String>) + Send + 'static,
    ) -> Result<(), Overloaded> {
        let worker = match self {
            Self::Shared(worker) => worker,
            Self::Service(session) => {
                let text = timeout(IN_TIME, session.transcribe(part));
                let text = AssertUnwindSafe(text).catch_unwind();
                let job = async move {
                    done(match text.await {
                        Ok(Ok(text)) => text.map(Recognised::from).map_err(reason),
                        Ok(Err(_)) => Err("the recogniser does not answer".into()),
                        Err(_) => Err("the recogniser panicked".into()),
                    });
                };
                tasks.spawn(job.in_current_span());
                return Ok(());
            }
        };
        let (audio, cancel) = (part.audio, cancel.clone());
        let asked = (!part.partial).then(Instant::now);
        let job = HearJob { audio, asked };
        let done = move |heard: Result<Result<_, _>, _>| {
            done(
                heard
                    .map_err(reason)
                    .and_then(|heard| heard.map_err(reason)),
            );
        };
        match part.partial {
            true => worker.offer(job, cancel, done),
            false => worker.try_send(job, cancel, done),
        }
    }

    /// Transcribes audio that no user is waiting for: live speech goes first, and this wait does not
    /// count as load. `None` if the recogniser is busy, fails or takes too long, which is logged.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub(super) async fn transcribe_in_time(&mut self, audio: Vec<f32>) -> Option<String> {
        logged(match self {
            Self::Shared(worker) => {
                let asked = None;
                let due = Instant::now() + IN_TIME;
                let heard = worker.call_by(due, HearJob { audio, asked }).await;
                heard.map_err(reason).and_then(text_of)
            }
            Self::Service(session) => {
                let whole = Utterance {
                    from: Samples(0),
                    audio,
                    partial: false,
                };
                let text = timeout(IN_TIME, session.transcribe(whole)).await;
                text.map_err(reason).and_then(|text| text.map_err(reason))
            }
        })
    }
}

fn text_of(heard: Result<Recognised, AsrError>) -> Result<String, String> {
    heard.map(|heard| heard.text).map_err(reason)
}

fn logged(text: Result<String, String>) -> Option<String> {
    let warn = |failure: &String| tracing::warn!(failure, "audio was not transcribed");
    text.inspect_err(warn).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::{BoxFuture, pending};
    use tokio::sync::oneshot;

    struct Stuck;

    impl AsrSession for Stuck {
        fn transcribe(&mut self, _: Utterance) -> BoxFuture<'static, Result<String, AsrError>> {
            pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_a_service_never_finishes_is_dropped_and_fails() {
        let mut recogniser = Recogniser::Service(Box::new(Stuck));
        let part = Utterance {
            from: Samples(0),
            audio: Vec::new(),
            partial: false,
        };
        let (done, outcome) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let sent = recogniser.transcribe(part, &CancellationToken::new(), &mut tasks, |text| {
            done.send(text).unwrap();
        });
        assert_eq!(sent, Ok(()));
        let failure = Err("the recogniser does not answer".to_owned());
        assert_eq!(outcome.await, Ok(failure));
        assert_eq!(recogniser.transcribe_in_time(Vec::new()).await, None);
    }
}
