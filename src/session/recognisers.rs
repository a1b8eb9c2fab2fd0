//! The recognisers: a local model on threads that all sessions share, and services, which are opened
//! for each session.

use super::builders::BuildEach;
use super::load::{Gauge, Stage};
use super::source::{LONGEST, Report, Source, Trouble};
use super::{INBOX, reason};
use crate::asr::{Asr, AsrError, AsrService, AsrSession, Hints, Recognised, TellTurn, Utterance};
use crate::audio::RATE;
use crate::conversation::Samples;
use crate::language::code;
use crate::metrics::Metrics;
use crate::worker::{Overloaded, SpawnError, Worker};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// How long a recording may wait to be transcribed while users speak, and how long a service may take
/// for any job, so that those of a service that hangs do not pile up.
const IN_TIME: Duration = Duration::from_secs(10);

type Shared = Worker<HearJob, Result<Recognised, AsrError>>;

/// Audio for the recogniser.
pub(super) struct HearJob {
    audio: Vec<f32>,
    hints: Hints,
    /// The time since which a user waits for it; `None` if nobody does.
    asked: Option<Instant>,
}

/// The recognisers of a server.
pub(super) struct Recognisers {
    shared: Shared,
    /// The languages that the local one knows, without regions.
    known: Vec<String>,
    services: BTreeMap<String, Service>,
}

struct Service {
    service: Arc<dyn AsrService>,
    source: Arc<Source>,
}

impl Recognisers {
    pub(super) fn start(
        build: BuildEach<dyn Asr, AsrError>,
        threads: NonZeroUsize,
        services: BTreeMap<String, Arc<dyn AsrService>>,
        gauge: Arc<Gauge>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, SpawnError<AsrError>> {
        let known: Arc<OnceLock<Vec<String>>> = Arc::default();
        let learnt = known.clone();
        let build = move || {
            let asr = build()?;
            learnt.get_or_init(|| asr.languages());
            Ok(asr)
        };
        let shared =
            Worker::spawn_pool("asr", threads, INBOX, build, move |asr, job: HearJob, _| {
                if let Some(asked) = job.asked {
                    gauge.begun(Stage::Recogniser, asked);
                }
                let (heard, time) =
                    gauge.measure(Stage::Recogniser, || asr.hear_with(&job.audio, &job.hints));
                gauge.took(Stage::Recogniser, time);
                heard
            })?;
        let services = services.into_iter().map(|(name, service)| {
            let tried = service.clone();
            let try_out = Box::new(move || try_out(&*tried));
            let source = Source::new(&name, "asr", metrics.clone(), try_out);
            (name, Service { service, source })
        });
        Ok(Self {
            shared,
            known: known.get().cloned().unwrap_or_default(),
            services: services.collect(),
        })
    }

    /// Opens a recogniser for one session: the local one if `name` is unknown. `report` is told when the
    /// local one has to do the work of a service, `turns` what a service thinks of the user's turn while it is up.
    pub(super) fn open(
        &self,
        name: Option<&str>,
        hints: Hints,
        report: Report,
        turns: Option<TellTurn>,
    ) -> Recogniser {
        let service = name.and_then(|name| self.services.get(name));
        if let (Some(name), None) = (name, service) {
            tracing::warn!(name, "unknown recogniser: using the default");
        }
        let session = service.map(|known| known.service.open(&hints));
        let local = OnThread {
            worker: self.shared.clone(),
            hints,
            heard: Arc::default(),
        };
        let (Some(Service { source, .. }), Some(mut session)) = (service, session) else {
            return Recogniser::Shared(local);
        };
        source.is_needed();
        if let Some(tell) = turns {
            let source = source.clone();
            session.tell_turns(Arc::new(move |turn| {
                if source.is_up() {
                    tell(turn);
                }
            }));
        }
        Recogniser::Service(Remote {
            session,
            source: source.clone(),
            local,
            report,
        })
    }

    /// The names of the services.
    pub(super) fn services(&self) -> impl Iterator<Item = &str> {
        self.services.keys().map(String::as_str)
    }

    /// Whether a recogniser, the local one if `name` is unknown, knows the language of a BCP 47 tag.
    pub(super) fn hears(&self, name: Option<&str>, language: &str) -> bool {
        let language = code(language);
        match name.and_then(|name| self.services.get(name)) {
            Some(known) => known.service.hears(&language),
            None => self.known.contains(&language),
        }
    }

    /// The languages that the local recogniser knows, without regions.
    pub(super) fn languages(&self) -> &[String] {
        &self.known
    }

    /// The number of jobs for the local one that are due by `now` and still waiting.
    pub(super) fn overdue(&self, now: Instant) -> usize {
        self.shared.overdue(now)
    }

    /// Transcribes audio outside of any session. `None` if the recogniser is busy or fails, which is
    /// logged.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub(super) async fn transcribe(&self, audio: Vec<f32>, hints: Hints) -> Option<String> {
        let now = Instant::now();
        let asked = Some(now);
        let job = HearJob {
            audio,
            hints,
            asked,
        };
        let heard = self.shared.call_by(now, job).await;
        logged(heard.map_err(reason).and_then(text_of))
    }

    /// Transcribes audio that no user is waiting for: live speech goes first, and this wait does not
    /// count as load.
    ///
    /// # Errors
    /// An error if the recogniser is busy or fails.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub(super) async fn transcribe_aside(
        &self,
        audio: Vec<f32>,
        hints: Hints,
    ) -> Result<Recognised, String> {
        let job = HearJob {
            audio,
            hints,
            asked: None,
        };
        let heard = self.shared.call_by(Instant::now() + IN_TIME, job).await;
        heard.map_err(reason)?.map_err(reason)
    }
}

/// Has a service transcribe a second of silence.
fn try_out(service: &dyn AsrService) -> BoxFuture<'static, Result<(), Trouble>> {
    let mut session = service.open(&Hints::default());
    let part = Utterance {
        from: Samples(0),
        audio: vec![0.0; RATE as usize],
        partial: false,
    };
    session.listen(part.from, &part.audio);
    async move {
        let heard = session.transcribe(part).await;
        heard.map(drop).map_err(Trouble::from)
    }
    .boxed()
}

impl From<AsrError> for Trouble {
    fn from(error: AsrError) -> Self {
        match error {
            AsrError::Denied(_) => Self::Denied(reason(error)),
            error => Self::Failed(reason(error)),
        }
    }
}

/// The recogniser on the shared threads, for one session.
#[derive(Clone)]
pub(super) struct OnThread {
    worker: Shared,
    hints: Hints,
    heard: Arc<Mutex<Heard>>,
}

/// The last words of a session, and where their audio begins.
#[derive(Default)]
struct Heard {
    from: Samples,
    words: Option<String>,
}

impl OnThread {
    /// The words that were last heard in audio that begins at this sample.
    fn heard_from(&self, from: Samples) -> Option<String> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        (heard.from == from).then(|| heard.words.clone())?
    }

    fn job(&self, audio: Vec<f32>, asked: Option<Instant>) -> HearJob {
        HearJob {
            audio,
            hints: self.hints.clone(),
            asked,
        }
    }
}

/// One session's recogniser.
pub(super) enum Recogniser {
    /// On the shared threads.
    Shared(OnThread),
    /// A service.
    Service(Remote),
}

/// One session's connection to a service, with the local recogniser behind it.
pub(super) struct Remote {
    session: Box<dyn AsrSession>,
    source: Arc<Source>,
    local: OnThread,
    report: Report,
}

type RecogniserResult = Result<Recognised, String>;

impl Remote {
    /// Whether the service is asked for this part, which the user has spoken.
    fn is_asked(&self, part: &Utterance) -> bool {
        !part.partial && self.can_hear(part)
    }

    fn can_hear(&self, part: &Utterance) -> bool {
        self.source.is_up() && self.session.can_hear(part)
    }

    /// The words of a user who is still speaking, if the service has heard them.
    fn so_far(&self, part: &Utterance) -> Option<String> {
        let asked = part.partial && self.source.is_up();
        asked.then(|| self.session.so_far(part))?
    }

    /// Has the service transcribe a part, and the local recogniser if that fails or is late. Then the first
    /// result is used.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long users wait is measured in real time"
    )]
    fn transcribe(
        &mut self,
        part: Utterance,
        done: impl FnOnce(RecogniserResult) + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let (source, local) = (self.source.clone(), self.local.clone());
        let report = self.report.clone();
        let began = Instant::now();
        let audio = part.audio.clone();
        let heard = AssertUnwindSafe(self.session.transcribe(part)).catch_unwind();
        let measured = source.clone();
        let heard = heard.map(move |heard| match heard {
            Ok(Ok(text)) => {
                measured.took(began.elapsed());
                Ok(Recognised::from(text))
            }
            Ok(Err(error)) => Err(Trouble::from(error)),
            Err(_) => Err(Trouble::Failed("the recogniser panicked".into())),
        });
        let job = async move {
            let (mut heard, deadline) = (Box::pin(heard), source.deadline());
            let trouble = match timeout(deadline, &mut heard).await {
                Ok(Ok(heard)) => return done(Ok(heard)),
                Ok(Err(trouble)) => trouble,
                Err(_) => Trouble::Late(deadline),
            };
            let is_late = matches!(trouble, Trouble::Late(_));
            report(source.failed(&trouble));
            let asked = Some(Instant::now());
            let job = local.job(audio, asked);
            let instead = pin!(local.worker.call_by(Instant::now(), job));
            let instead = instead.map(|heard| heard.map_err(reason)?.map_err(reason));
            let both = |failure: String| format!("{trouble}; then the local one: {failure}");
            if !is_late {
                return done(instead.await.map_err(both));
            }
            let rest = LONGEST.duration().saturating_sub(deadline);
            let late = pin!(timeout(rest, heard));
            match select(instead, late).await {
                Either::Left((Ok(heard), late)) => {
                    done(Ok(heard));
                    // Its time still counts in the service's statistics.
                    drop(late.await);
                }
                Either::Left((Err(failure), late)) => done(match late.await {
                    Ok(Ok(heard)) => Ok(heard),
                    _ => Err(both(failure)),
                }),
                Either::Right((Ok(Ok(heard)), _)) => done(Ok(heard)),
                Either::Right((_, instead)) => done(instead.await.map_err(both)),
            }
        };
        job.boxed()
    }

    /// Has the service transcribe audio that no user is waiting for. `None` if it fails or is down.
    async fn transcribe_in_time(&mut self, audio: &[f32]) -> Option<String> {
        if !self.source.is_up() {
            return None;
        }
        let part = Utterance {
            from: Samples(0),
            audio: audio.to_vec(),
            partial: false,
        };
        let heard = AssertUnwindSafe(self.session.transcribe(part)).catch_unwind();
        let trouble = match timeout(IN_TIME, heard).await {
            Ok(Ok(Ok(text))) => return Some(text),
            Ok(Ok(Err(error))) => error.into(),
            Ok(Err(_)) => Trouble::Failed("the recogniser panicked".into()),
            Err(_) => Trouble::Late(IN_TIME),
        };
        (self.report)(self.source.failed(&trouble));
        None
    }
}

impl Recogniser {
    /// From now on the user is taken to speak this language, a BCP 47 tag, unless another one is detected.
    pub(super) fn expect(&mut self, language: &str) {
        let local = match self {
            Self::Shared(local) => local,
            Self::Service(remote) => &mut remote.local,
        };
        local.hints.language = Some(language.to_owned());
    }

    /// Receives the user's audio as it arrives.
    pub(super) fn listen(&mut self, from: Samples, audio: &[f32]) {
        match self {
            Self::Shared(_) => {}
            Self::Service(remote) if remote.source.is_up() => remote.session.listen(from, audio),
            // While it is down, nothing is sent there.
            Self::Service(_) => {}
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
        if let Self::Service(remote) = self
            && let Some(words) = remote.so_far(&part)
        {
            done(Ok(words.into()));
            return Ok(());
        }
        let (local, instead) = match self {
            Self::Service(remote) if remote.is_asked(&part) => {
                tasks.spawn(remote.transcribe(part, done).in_current_span());
                return Ok(());
            }
            Self::Service(remote) => (&remote.local, remote.can_hear(&part)),
            Self::Shared(local) => (&*local, false),
        };
        let (audio, cancel, partial) = (part.audio, cancel.clone(), part.partial);
        let asked = (!partial).then(Instant::now);
        let mut job = local.job(audio, asked);
        job.hints.partial = partial;
        job.hints.so_far = local.heard_from(part.from);
        let (known, from) = (local.heard.clone(), part.from);
        let (hints, samples) = (job.hints.clone(), job.audio.len());
        let done = move |heard: Result<Result<Recognised, _>, _>| {
            let heard = heard.map_err(reason);
            let heard = heard.and_then(|heard| heard.map_err(reason));
            if let Ok(Recognised { text, .. }) = &heard
                && !text.is_empty()
            {
                let words = Some(text.clone());
                *known.lock().unwrap_or_else(PoisonError::into_inner) = Heard { from, words };
            }
            done(heard.map(|heard| Recognised {
                provisional: partial && (instead || hints.leave_open(&heard, samples)),
                ..heard
            }));
        };
        match partial {
            true => local.worker.offer(job, cancel, done),
            false => local.worker.try_send(job, cancel, done),
        }
    }

    /// Transcribes audio that no user is waiting for: live speech goes first, and this wait does not
    /// count as load. `None` if the recogniser is busy, fails or takes too long, which is logged.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub(super) async fn transcribe_in_time(&mut self, audio: Vec<f32>) -> Option<String> {
        let local = match self {
            Self::Shared(local) => local,
            Self::Service(remote) => {
                if let Some(text) = remote.transcribe_in_time(&audio).await {
                    return Some(text);
                }
                &remote.local
            }
        };
        let due = Instant::now() + IN_TIME;
        let job = local.job(audio, None);
        let heard = local.worker.call_by(due, job).await;
        logged(heard.map_err(reason).and_then(text_of))
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
    use crate::session::source::Setback;
    use futures_util::future::pending;
    use std::sync::Barrier;
    use tokio::sync::oneshot;

    /// A service whose every result takes this time; `None`: for ever.
    struct After(Option<Duration>);

    impl AsrService for After {
        fn open(&self, _: &Hints) -> Box<dyn AsrSession> {
            Box::new(Self(self.0))
        }
    }

    impl AsrSession for After {
        fn transcribe(&mut self, _: Utterance) -> BoxFuture<'static, Result<String, AsrError>> {
            let wait = self.0;
            async move {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => pending().await,
                }
                Ok("elsewhere".into())
            }
            .boxed()
        }
    }

    /// A local recogniser that hears `here`, or fails.
    struct Local(bool);

    impl Asr for Local {
        fn name(&self) -> &str {
            "scripted"
        }

        fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
            match self.0 {
                true => Ok("here".into()),
                false => Err(AsrError::Run("dead".into())),
            }
        }
    }

    fn recognisers(service: Option<Duration>, local: bool) -> Recognisers {
        recognisers_with(Arc::new(After(service)), local)
    }

    fn recognisers_with(service: Arc<dyn AsrService>, local: bool) -> Recognisers {
        let metrics = Arc::<Metrics>::default();
        let started = Recognisers::start(
            Box::new(move || Ok(Box::new(Local(local)) as Box<dyn Asr>)),
            NonZeroUsize::MIN,
            [("far".to_owned(), service)].into(),
            Gauge::new(metrics.clone(), NonZeroUsize::MIN),
            &metrics,
        );
        started.expect("a recogniser")
    }

    /// A local recogniser that repeats the words that were heard so far, and one more.
    struct GoesOn;

    impl Asr for GoesOn {
        fn name(&self) -> &str {
            "scripted"
        }

        fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
            unreachable!("it is asked with hints")
        }

        fn hear_with(&mut self, _: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
            let so_far = hints.so_far.as_deref().unwrap_or_default();
            Ok(format!("{so_far} more").trim().to_owned().into())
        }
    }

    #[tokio::test]
    async fn the_words_so_far_are_known_to_the_next_partial_of_the_same_utterance() {
        let metrics = Arc::<Metrics>::default();
        let known = Recognisers::start(
            Box::new(|| Ok(Box::new(GoesOn) as Box<dyn Asr>)),
            NonZeroUsize::MIN,
            BTreeMap::new(),
            Gauge::new(metrics.clone(), NonZeroUsize::MIN),
            &metrics,
        );
        let known = known.expect("a recogniser");
        let open = || known.open(None, Hints::default(), Arc::new(|_| ()), None);
        let (mut one, mut another) = (open(), open());
        let heard = async |recogniser: &mut Recogniser, from: u64| {
            let (done, outcome) = oneshot::channel();
            let part = Utterance {
                from: Samples(from),
                audio: Vec::new(),
                partial: true,
            };
            let (cancel, mut tasks) = (CancellationToken::new(), JoinSet::new());
            let sent = recogniser.transcribe(part, &cancel, &mut tasks, |heard| {
                done.send(heard).unwrap();
            });
            assert_eq!(sent, Ok(()));
            outcome.await.unwrap().unwrap().text
        };
        assert_eq!(heard(&mut one, 0).await, "more");
        assert_eq!(heard(&mut one, 0).await, "more more");
        assert_eq!(heard(&mut another, 0).await, "more");
        assert_eq!(heard(&mut one, 16_000).await, "more");
        assert_eq!(heard(&mut one, 16_000).await, "more more");
    }

    /// A local recogniser that does this with the audio of each part.
    struct Does<F>(F);

    impl<F: Fn(&[f32]) + Send> Asr for Does<F> {
        fn name(&self) -> &str {
            "scripted"
        }

        fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError> {
            (self.0)(audio);
            Ok(format!("{audio:?}"))
        }
    }

    fn local_ones<F>(threads: usize, does: F) -> Recognisers
    where
        F: Fn(&[f32]) + Clone + Send + Sync + 'static,
    {
        let metrics = Arc::<Metrics>::default();
        let threads = NonZeroUsize::new(threads).unwrap();
        let started = Recognisers::start(
            Box::new(move || Ok(Box::new(Does(does.clone())) as Box<dyn Asr>)),
            threads,
            BTreeMap::new(),
            Gauge::new(metrics.clone(), threads),
            &metrics,
        );
        started.expect("a recogniser")
    }

    fn session(recognisers: &Recognisers) -> Recogniser {
        recognisers.open(None, Hints::default(), Arc::new(|_| ()), None)
    }

    /// Sends a part whose audio is `sample`.
    fn sent(recogniser: &mut Recogniser, sample: f32) -> oneshot::Receiver<RecogniserResult> {
        let part = Utterance {
            from: Samples(0),
            audio: vec![sample],
            partial: false,
        };
        let (done, outcome) = oneshot::channel();
        let done = |heard| done.send(heard).unwrap();
        let sent =
            recogniser.transcribe(part, &CancellationToken::new(), &mut JoinSet::new(), done);
        assert_eq!(sent, Ok(()));
        outcome
    }

    #[tokio::test]
    async fn two_threads_transcribe_two_sessions_at_once() {
        let both = Arc::new(Barrier::new(2));
        // Each ends when both have begun.
        let known = local_ones(2, move |_| {
            both.wait();
        });
        let (mut here, mut there) = (session(&known), session(&known));
        let (one, other) = (sent(&mut here, 1.0), sent(&mut there, 2.0));
        assert_eq!(one.await.unwrap(), Ok("[1.0]".into()));
        assert_eq!(other.await.unwrap(), Ok("[2.0]".into()));
    }

    #[tokio::test]
    async fn one_thread_transcribes_one_session_after_the_other() {
        let at_work = Arc::new(Mutex::new(()));
        let known = local_ones(1, move |_| {
            let _alone = at_work.try_lock().expect("nothing else is transcribed");
            std::thread::yield_now();
        });
        let (mut here, mut there) = (session(&known), session(&known));
        let all: Vec<_> = (0..10_u8)
            .flat_map(|n| {
                let sample = f32::from(n);
                [sent(&mut here, sample), sent(&mut there, sample)]
            })
            .collect();
        for heard in all {
            assert!(heard.await.unwrap().is_ok());
        }
    }

    /// Transcribes one part. Returns its words and the setbacks on the way.
    async fn heard(recognisers: &Recognisers, partial: bool) -> (RecogniserResult, Vec<Setback>) {
        let setbacks = Arc::new(Mutex::new(Vec::new()));
        let told = setbacks.clone();
        let report: Report = Arc::new(move |setback| told.lock().unwrap().push(setback));
        let mut recogniser = recognisers.open(Some("far"), Hints::default(), report, None);
        let part = Utterance {
            from: Samples(0),
            audio: Vec::new(),
            partial,
        };
        let (done, outcome) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let sent = recogniser.transcribe(part, &CancellationToken::new(), &mut tasks, |heard| {
            done.send(heard).unwrap();
        });
        assert_eq!(sent, Ok(()));
        let heard = outcome.await.unwrap();
        let setbacks = setbacks.lock().unwrap().clone();
        (heard, setbacks)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_service_hears_in_time_is_believed() {
        let known = recognisers(Some(Duration::from_millis(100)), true);
        let (words, setbacks) = heard(&known, false).await;
        assert_eq!(words, Ok("elsewhere".into()));
        assert_eq!(setbacks, []);
    }

    #[tokio::test(start_paused = true)]
    async fn partials_are_no_requests_to_a_service_that_does_not_stream() {
        let known = recognisers(Some(Duration::from_millis(100)), true);
        let until_the_pause = Recognised {
            provisional: true,
            ..Recognised::from("here")
        };
        assert_eq!(heard(&known, true).await.0, Ok(until_the_pause));
    }

    /// A local recogniser that detects German.
    struct German;

    impl Asr for German {
        fn name(&self) -> &str {
            "scripted"
        }

        fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
            Ok("Wie spät ist es?".into())
        }

        fn hear(&mut self, audio: &[f32]) -> Result<Recognised, AsrError> {
            Ok(Recognised {
                language: Some("de".into()),
                ..self.transcribe(audio)?.into()
            })
        }
    }

    /// Only the words of a pause change the language of a session.
    #[tokio::test]
    async fn words_in_another_language_than_expected_are_heard_again_at_the_pause() {
        let metrics = Arc::<Metrics>::default();
        let known = Recognisers::start(
            Box::new(|| Ok(Box::new(German) as Box<dyn Asr>)),
            NonZeroUsize::MIN,
            BTreeMap::new(),
            Gauge::new(metrics.clone(), NonZeroUsize::MIN),
            &metrics,
        );
        let known = known.expect("a recogniser");
        let german = || Hints::language("de-AT");
        let several = Hints {
            others: Arc::new(["en".to_owned()]),
            ..german()
        };
        for (hints, samples, partial, again) in [
            (Hints::language("en"), 32_000, true, true),
            (Hints::language("en"), 32_000, false, false),
            (Hints::default(), 32_000, true, true),
            (german(), 8_000, true, false),
            (several.clone(), 32_000, true, false),
            // Too short for another language to be heard.
            (several, 20_000, true, true),
        ] {
            let case = format!("{hints:?} {samples} {partial}");
            let mut recogniser = known.open(None, hints, Arc::new(|_| ()), None);
            let (done, outcome) = oneshot::channel();
            let part = Utterance {
                from: Samples(0),
                audio: vec![0.0; samples],
                partial,
            };
            let (cancel, mut tasks) = (CancellationToken::new(), JoinSet::new());
            let sent = recogniser.transcribe(part, &cancel, &mut tasks, |heard| {
                done.send(heard).unwrap();
            });
            assert_eq!(sent, Ok(()));
            let heard = outcome.await.unwrap().unwrap();
            assert_eq!(heard.provisional, again, "{case}");
        }
    }

    /// A streaming service, if it has not missed anything.
    struct Along(bool);

    impl AsrService for Along {
        fn open(&self, _: &Hints) -> Box<dyn AsrSession> {
            Box::new(Self(self.0))
        }
    }

    impl AsrSession for Along {
        fn so_far(&self, _: &Utterance) -> Option<String> {
            self.0.then(|| "so far".into())
        }

        fn can_hear(&self, _: &Utterance) -> bool {
            self.0
        }

        fn transcribe(&mut self, _: Utterance) -> BoxFuture<'static, Result<String, AsrError>> {
            std::future::ready(Ok("elsewhere".into())).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_hears_along_makes_the_partials() {
        let known = recognisers_with(Arc::new(Along(true)), true);
        assert_eq!(heard(&known, true).await.0, Ok("so far".into()));
        assert_eq!(heard(&known, false).await.0, Ok("elsewhere".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_service_has_missed_is_heard_here_and_nothing_has_failed() {
        let known = recognisers_with(Arc::new(Along(false)), true);
        for partial in [true, false] {
            let (words, setbacks) = heard(&known, partial).await;
            assert_eq!((words, setbacks), (Ok("here".into()), Vec::new()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_a_service_never_finishes_is_done_here() {
        let known = recognisers(None, true);
        let (words, setbacks) = heard(&known, false).await;
        assert_eq!(words, Ok("here".into()));
        assert_eq!(setbacks[0].stage, "asr");
        assert!(
            setbacks[0]
                .message
                .starts_with("far: nothing came within 400 ms")
        );
        let mut recogniser = known.open(Some("far"), Hints::default(), Arc::new(|_| ()), None);
        let words = recogniser.transcribe_in_time(Vec::new()).await;
        assert_eq!(words.as_deref(), Some("here"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_result_is_better_than_none() {
        let known = recognisers(Some(Duration::from_millis(900)), false);
        assert_eq!(heard(&known, false).await.0, Ok("elsewhere".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn it_fails_only_if_both_do() {
        let known = recognisers(None, false);
        let (words, _) = heard(&known, false).await;
        let failure = words.unwrap_err();
        assert!(failure.contains("nothing came within 400 ms"), "{failure}");
        assert!(failure.contains("dead"), "{failure}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_down_is_not_asked() {
        let known = recognisers(None, true);
        for _ in 0..3 {
            let (words, _) = heard(&known, false).await;
            assert_eq!(words, Ok("here".into()));
        }
        let (words, setbacks) = heard(&known, false).await;
        assert_eq!((words, setbacks), (Ok("here".into()), Vec::new()));
    }
}
