//! The models that all sessions share, each on its own thread.

use super::budget::BudgetStore;
use super::clause::SpeakJob;
use super::load::{Gauge, Level, Stage};
use super::options::{Profile, SessionOptions};
use super::recorder::Recordings;
use crate::asr::{Asr, AsrError};
use crate::audio::Resampler;
use crate::conversation::{Clauses, Micros, Policy, Samples, Timeouts, TurnRecord};
use crate::llm::Llm;
use crate::llm::untrusted::sanitise;
use crate::metrics::Metrics;
use crate::prediction::Predictor;
use crate::stats::{LoggedTurn, TurnLog};
use crate::tools::builtin;
use crate::tools::{Declaration, Effect, Fillers, Journal, Registry};
use crate::tts::{Prepared, Tts, TtsError};
use crate::turn_model::{TurnModel, TurnModelError};
use crate::vad::{Vad, VadError, WINDOW};
use crate::worker::{SpawnError, Worker};
use serde_json::Map;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Jobs that wait in front of a model before it counts as overloaded. At 70 ms a transcription
/// this is two seconds of work.
const INBOX: usize = 32;

/// Windows of all sessions that wait in front of the voice activity detector: two seconds of 32
/// sessions.
const VAD_INBOX: usize = 2_048;

/// How long the last changes may take when the server stops.
const LAST_CHANGES: Duration = Duration::from_secs(10);

/// Windows for one session's voice activity detector, oldest first.
#[derive(Debug)]
pub(super) enum VadJob {
    /// Judge these windows; the first of them ends at `end`.
    Judge {
        session: u64,
        end: Samples,
        windows: Vec<[f32; WINDOW]>,
    },
    /// The session is over: forget its state now. If this is lost, the next session's first job
    /// sees to it.
    Close { session: u64 },
}

/// The end of each window and its probability of speech.
pub(super) type Judged = Vec<(Samples, f32)>;

/// How long a recording may wait to be transcribed while users speak.
const IN_TIME: Duration = Duration::from_secs(10);

/// Audio for the recogniser.
pub(super) struct HearJob {
    pub(super) audio: Vec<f32>,
    /// Since when a user waits for it; `None` if nobody does.
    pub(super) asked: Option<Instant>,
}

type Build<T, E> = Box<dyn FnMut() -> Result<Box<T>, E> + Send>;
type MakeVad = Box<dyn FnMut() -> Result<Box<dyn Vad>, VadError>>;

/// Everything that sessions share.
pub struct Engines {
    pub(super) vad: Worker<VadJob, Result<Judged, VadError>>,
    pub(super) asr: Worker<HearJob, Result<String, AsrError>>,
    pub(super) turn_model: Option<Worker<Vec<f32>, Result<f32, TurnModelError>>>,
    pub(super) tts: Worker<SpeakJob, Result<(), TtsError>>,
    pub(super) tts_rate: u32,
    /// The voice's name.
    voice: String,
    pub(super) prepared: Prepared,
    pub(super) llm: Arc<dyn Llm>,
    pub(super) tools: Arc<Registry>,
    /// The sources of predictions, the cheapest first.
    pub(super) predictors: Vec<Arc<dyn Predictor>>,
    pub(super) budget: Arc<dyn BudgetStore>,
    pub(super) journal: Option<Journal>,
    /// Committed calls that change something: they outlive the session that asked for them.
    pub(super) changes: TaskTracker,
    pub(super) zone: jiff::tz::TimeZone,
    policy: Policy,
    phone_policy: Policy,
    pub(super) observers: Observers,
    /// Sessions that are open.
    pub(super) sessions: TaskTracker,
    gauge: Arc<Gauge>,
}

/// Recorders, turn log and metrics.
#[derive(Debug, Clone, Default)]
pub struct Observers {
    /// Records every session.
    pub recordings: Option<Recordings>,
    /// Logs every turn.
    pub turns: Option<TurnLog>,
    /// Counts everything.
    pub metrics: Arc<Metrics>,
}

impl Observers {
    /// Has the metrics show what could not be kept.
    fn show_lost(&self) {
        if let Some(turns) = &self.turns {
            self.metrics.show_lost("turn", turns.lost());
        }
        if let Some(recordings) = &self.recordings {
            self.metrics.show_lost("recording", recordings.lost());
        }
    }

    /// A turn of a session is over.
    pub(super) fn turn(&self, session: u64, record: &TurnRecord, tools: &Registry) {
        let only_reads = |tool: &str| {
            let declaration = tools.declaration(tool)?;
            Some(declaration.effect <= Effect::ReadCostly)
        };
        self.metrics.turn(record, |tool| only_reads(tool).is_some());
        if let Some(turns) = &self.turns {
            turns.put(LoggedTurn::new(session, record.clone(), only_reads));
        }
    }
}

/// How to build each engine. The models' builders run on the threads that will own them, and
/// again if a model has panicked.
pub struct Builders {
    /// Makes a builder of voice activity detectors, one detector for each session.
    pub vad: Box<dyn FnMut() -> MakeVad + Send>,
    /// Makes the recogniser.
    pub asr: Build<dyn Asr, AsrError>,
    /// Makes the end-of-turn model, if there is to be one.
    pub turn_model: Option<Build<dyn TurnModel, TurnModelError>>,
    /// Makes the voice.
    pub tts: Build<dyn Tts, TtsError>,
    /// The language model.
    pub llm: Arc<dyn Llm>,
    /// The tools that the server runs.
    pub tools: Arc<Registry>,
    /// The sources of predictions, the cheapest first.
    pub predictors: Vec<Arc<dyn Predictor>>,
    /// Remembers calls that change something; without it they are not remembered.
    pub journal: Option<Journal>,
    /// Keeps count of what speculation has spent today.
    pub budget: Arc<dyn BudgetStore>,
    /// The time zone of users who name none.
    pub zone: jiff::tz::TimeZone,
    /// The numbers behind the rules. Its tools are replaced by the registry's.
    pub policy: Policy,
    /// Settings for telephone calls.
    pub phone: PhoneSettings,
    /// Recorders, turn log and metrics.
    pub observers: Observers,
}

/// The parts that a running server may change for new sessions: see [`Builders`] for each.
pub struct Renewal {
    /// The language model.
    pub llm: Arc<dyn Llm>,
    /// The tools that the server runs.
    pub tools: Arc<Registry>,
    /// The sources of predictions, the cheapest first.
    pub predictors: Vec<Arc<dyn Predictor>>,
    /// The time zone of users who name none.
    pub zone: jiff::tz::TimeZone,
    /// The numbers behind the rules.
    pub policy: Policy,
    /// Settings for telephone calls.
    pub phone: PhoneSettings,
}

/// Settings for telephone calls.
#[derive(Debug, Clone, Default)]
pub struct PhoneSettings {
    /// Said when a call is answered; nothing if empty.
    pub greeting: String,
    /// A caller who says nothing for so long is asked whether they are still there.
    pub silence_prompt: Option<Micros>,
}

impl PhoneSettings {
    /// The numbers behind the rules of a call. The agent may end it.
    fn policy(self, policy: &Policy) -> Policy {
        let mut tools = policy.tools.to_vec();
        // The operator's own takes its place.
        if !tools.iter().any(|tool| tool.spec.name == builtin::HANG_UP) {
            tools.push(Arc::new(builtin::hang_up()));
        }
        Policy {
            greeting: self.greeting,
            timeouts: Timeouts {
                silence_prompt: self.silence_prompt,
                ..policy.timeouts
            },
            tools: Arc::new(tools),
            ..policy.clone()
        }
    }
}

/// Why the engines could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The voice activity detector.
    #[error(transparent)]
    Vad(#[from] SpawnError<VadError>),
    /// The recogniser.
    #[error(transparent)]
    Asr(#[from] SpawnError<AsrError>),
    /// The end-of-turn model.
    #[error(transparent)]
    TurnModel(#[from] SpawnError<TurnModelError>),
    /// The voice.
    #[error(transparent)]
    Tts(#[from] SpawnError<TtsError>),
}

impl Engines {
    /// Starts all models, and makes the audio of what must be sayable when one of them is dead.
    ///
    /// # Errors
    /// [`StartError`] if a model cannot be loaded.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub fn start(builders: Builders) -> Result<Arc<Self>, StartError> {
        let Builders {
            vad,
            asr,
            turn_model,
            mut tts,
            llm,
            tools,
            predictors,
            journal,
            budget,
            zone,
            mut policy,
            phone,
            observers,
        } = builders;
        let phone_policy = policies(&mut policy, phone, &tools);
        observers.show_lost();
        let mut first_voice = tts().map_err(SpawnError::State)?;
        let (tts_rate, voice) = (first_voice.sample_rate(), first_voice.name().to_owned());
        let gauge = Gauge::new(observers.metrics.clone());
        let began = Instant::now();
        let prepared = Prepared::render(&mut *first_voice, sayings(&policy, &phone_policy));
        if let Some(each) = began.elapsed().checked_div(prepared.len() as u32) {
            // What a clause takes is known before the first user comes.
            gauge.took(Stage::Voice, each);
        }
        let (recognising, speaking) = (gauge.clone(), gauge.clone());
        let mut first_voice = Some(first_voice);
        Ok(Arc::new(Self {
            vad: Worker::spawn("vad", VAD_INBOX, vad_state(vad), Detectors::handle)?,
            asr: Worker::spawn("asr", INBOX, asr, move |asr, job: HearJob, _| {
                if let Some(asked) = job.asked {
                    recognising.begun(Stage::Recogniser, asked);
                }
                let (text, time) =
                    recognising.measure(Stage::Recogniser, || asr.transcribe(&job.audio));
                recognising.took(Stage::Recogniser, time);
                text
            })?,
            turn_model: turn_model
                .map(|build| {
                    Worker::spawn("turn-model", INBOX, build, |model, audio: Vec<f32>, _| {
                        model.completeness(&audio)
                    })
                })
                .transpose()?,
            tts: Worker::spawn_in_steps(
                "tts",
                INBOX,
                move || first_voice.take().map_or_else(&mut tts, Ok),
                move |tts, job: SpeakJob, _| job.step(&mut **tts, tts_rate, &speaking),
            )?,
            predictors,
            budget,
            journal,
            changes: TaskTracker::new(),
            tts_rate,
            voice,
            prepared,
            llm,
            tools,
            zone,
            policy,
            phone_policy,
            observers,
            sessions: TaskTracker::new(),
            gauge,
        }))
    }
}

impl Engines {
    /// The same models with other settings, for sessions that begin from now on. Those that are open
    /// keep what they began with, and both share what they may spend.
    pub async fn renewed(&self, renewal: Renewal) -> Arc<Self> {
        let Renewal {
            llm,
            tools,
            predictors,
            zone,
            mut policy,
            phone,
        } = renewal;
        let phone_policy = policies(&mut policy, phone, &tools);
        let mut prepared = self.prepared.clone();
        for text in sayings(&policy, &phone_policy) {
            if prepared.get(&text).is_none()
                && let Some(clip) = self.say(&text, self.tts_rate).await
            {
                prepared.put(text, clip);
            }
        }
        Arc::new(Self {
            vad: self.vad.clone(),
            asr: self.asr.clone(),
            turn_model: self.turn_model.clone(),
            tts: self.tts.clone(),
            tts_rate: self.tts_rate,
            voice: self.voice.clone(),
            prepared,
            llm,
            tools,
            predictors,
            budget: self.budget.clone(),
            journal: self.journal.clone(),
            changes: self.changes.clone(),
            zone,
            policy,
            phone_policy,
            observers: self.observers.clone(),
            sessions: self.sessions.clone(),
            gauge: self.gauge.clone(),
        })
    }
}

/// Gives the rules their tools. Returns the rules of calls.
fn policies(policy: &mut Policy, phone: PhoneSettings, tools: &Registry) -> Policy {
    policy.tools = Arc::new(tools.of_all_sessions());
    phone.policy(policy)
}

/// Phrases to prepare, so that they can be said when the voice is dead or late.
fn sayings(policy: &Policy, phone_policy: &Policy) -> Vec<String> {
    let phrases = policy.phrases.all().map(str::to_owned);
    let greetings = [policy.greeting.clone(), phone_policy.greeting.clone()];
    let greetings = greetings.into_iter().filter(|text| !text.is_empty());
    let fillers = policy.tools.iter().flat_map(|tool| fixed_fillers(tool));
    let sayings = phrases.into_iter().chain(greetings).chain(fillers);
    sayings.flat_map(as_spoken).collect()
}

/// A phrase whole and in the clauses that a response would cut it into: the voice is asked for
/// those, and what it was prepared for must be found under their names.
fn as_spoken(phrase: String) -> Vec<String> {
    let mut texts = as_clauses(&phrase);
    texts.push(phrase);
    texts
}

fn as_clauses(text: &str) -> Vec<String> {
    let mut clauses = Clauses::new();
    let mut texts = clauses.push(text);
    texts.extend(clauses.finish());
    texts
}

/// The fillers of a tool that are the same for every call.
fn fixed_fillers(tool: &Declaration) -> Vec<String> {
    let Fillers { short, long, again } = &tool.fillers;
    let templates = short.iter().chain(long).chain(again);
    let fixed = templates.filter(|template| !template.contains('{'));
    // As the conversation would say them.
    fixed
        .filter_map(|template| crate::tools::say(tool, template, &Map::new(), None))
        .map(|text| sanitise(&text))
        .collect()
}

impl Engines {
    /// Waits for committed calls that change something and are still under way, ten seconds at
    /// most: the session that asked for them may be gone.
    pub async fn finish_changes(&self) {
        self.changes.close();
        let wait = tokio::time::timeout(LAST_CHANGES, self.changes.wait());
        if wait.await.is_err() {
            tracing::warn!(
                left = self.changes.len(),
                "calls that change something were cut short"
            );
        }
    }

    /// Waits until the sessions are over and what is kept of them is written, ten seconds at most
    /// for each.
    pub async fn finish_sessions(&self) {
        self.sessions.close();
        let wait = tokio::time::timeout(LAST_CHANGES, self.sessions.wait());
        if wait.await.is_err() {
            tracing::warn!(left = self.sessions.len(), "sessions were cut short");
        }
        if let Some(turns) = &self.observers.turns {
            turns.finish().await;
        }
        if let Some(recordings) = &self.observers.recordings {
            recordings.finish().await;
        }
    }
}

impl Engines {
    /// The tools that the server runs.
    pub fn tools(&self) -> &Registry {
        &self.tools
    }

    /// The numbers behind the rules of every new session that is no telephone call.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The numbers behind the rules of a new session.
    pub(super) fn policy_of(&self, options: &SessionOptions) -> Policy {
        let mut policy = match options.profile {
            Profile::Conversation => self.policy.clone(),
            Profile::ClientFirst => Policy {
                greeting: String::new(),
                ..self.policy.clone()
            },
            Profile::PhoneCall => self.phone_policy.clone(),
        };
        if options.call.is_some() {
            Arc::make_mut(&mut policy.tools).extend(self.tools.of_calls());
        }
        policy
    }

    /// The voice's name, and its sample rate, Hz.
    pub fn voice(&self) -> (&str, u32) {
        (&self.voice, self.tts_rate)
    }

    /// Transcribes audio outside of any session: 16 kHz mono in -1..1, at most
    /// [`crate::asr::MAX_SAMPLES`]. `None` if the recogniser is busy or fails, which is logged.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub async fn transcribe(&self, audio: Vec<f32>) -> Option<String> {
        let now = Instant::now();
        let asked = Some(now);
        self.hear(HearJob { audio, asked }, now).await
    }

    /// The same for what nobody waits for at a microphone: those who do go before it, and its wait is
    /// none of theirs.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    pub(super) async fn transcribe_in_time(&self, audio: Vec<f32>) -> Option<String> {
        let asked = None;
        let due = Instant::now() + IN_TIME;
        self.hear(HearJob { audio, asked }, due).await
    }

    async fn hear(&self, job: HearJob, due: Instant) -> Option<String> {
        let failure = match self.asr.call_by(due, job).await {
            Ok(Ok(text)) => return Some(text),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(failure, "audio was not transcribed");
        None
    }

    /// Speaks a text outside of any session: mono at `rate` Hz, in -1..1. `None` if the voice is
    /// busy or fails, which is logged.
    pub async fn say(&self, text: &str, rate: u32) -> Option<Vec<f32>> {
        let resampler = Arc::new(Mutex::new(Resampler::new(self.tts_rate, rate)));
        let audio = Arc::new(Mutex::new(Vec::new()));
        for text in as_clauses(text) {
            let (resampler, out) = (resampler.clone(), audio.clone());
            let chunk = move |chunk: &[f32]| match (resampler.lock(), out.lock()) {
                (Ok(mut resampler), Ok(mut out)) => {
                    out.extend(resampler.push(chunk));
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            };
            let chunk = Box::new(chunk);
            let job = SpeakJob::unhurried(text, chunk);
            let failure = match self.tts.call(job).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(failure, "a text was not spoken");
            return None;
        }
        let mut audio = std::mem::take(&mut *audio.lock().ok()?);
        audio.extend(resampler.lock().ok()?.flush());
        Some(audio)
    }

    /// Users wait for the models: what only may be useful is left undone.
    pub(super) fn are_busy(&self) -> bool {
        // What a single session has to wait for is its own.
        self.sessions.len() > 1 && self.gauge.level(self.waiting()) > Level::Calm
    }

    /// Whether one more session finds the models free; it is counted if so.
    pub fn admit(&self) -> bool {
        self.gauge.admit(self.waiting(), self.sessions.len())
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    fn waiting(&self) -> [usize; 2] {
        let now = Instant::now();
        [self.asr.overdue(now), self.tts.overdue(now)]
    }
}

/// The detectors of all sessions.
struct Detectors {
    make: MakeVad,
    sessions: HashMap<u64, Detector>,
}

/// The detector of one session.
struct Detector {
    vad: Box<dyn Vad>,
    /// Cancelled when the session is over.
    over: CancellationToken,
}

fn vad_state(
    mut builder: Box<dyn FnMut() -> MakeVad + Send>,
) -> impl FnMut() -> Result<Detectors, VadError> + Send {
    move || {
        let mut make = builder();
        // A model that cannot be loaded is found now, not when the first user speaks.
        make()?;
        Ok(Detectors {
            make,
            sessions: HashMap::new(),
        })
    }
}

impl Detectors {
    /// `over` is the session's token, which is cancelled when the session ends.
    fn handle(&mut self, job: VadJob, over: &CancellationToken) -> Result<Judged, VadError> {
        match job {
            VadJob::Close { session } => {
                self.sessions.remove(&session);
                Ok(Vec::new())
            }
            VadJob::Judge {
                session,
                end,
                windows,
            } => {
                let vad = self.detector(session, over)?;
                windows
                    .iter()
                    .enumerate()
                    .map(|(i, window)| {
                        let end = Samples(end.0 + (i * WINDOW) as u64);
                        Ok((end, vad.push(window)?))
                    })
                    .collect()
            }
        }
    }

    /// The session's detector, made when it is first needed. Those of sessions that are over are
    /// forgotten on the way, so that they cannot pile up.
    fn detector(
        &mut self,
        session: u64,
        over: &CancellationToken,
    ) -> Result<&mut Box<dyn Vad>, VadError> {
        if !self.sessions.contains_key(&session) {
            self.sessions.retain(|_, other| !other.over.is_cancelled());
        }
        Ok(match self.sessions.entry(session) {
            Entry::Occupied(known) => &mut known.into_mut().vad,
            Entry::Vacant(new) => {
                let vad = (self.make)()?;
                let over = over.clone();
                &mut new.insert(Detector { vad, over }).vad
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use crate::tts::Scripted;

    struct Silent;

    impl Vad for Silent {
        fn push(&mut self, _: &[f32; WINDOW]) -> Result<f32, VadError> {
            Ok(0.0)
        }
    }

    #[test]
    fn a_session_that_could_not_say_goodbye_is_forgotten() {
        let make = || Ok(Box::new(Silent) as Box<dyn Vad>);
        let mut detectors = vad_state(Box::new(move || Box::new(make)))().unwrap();
        let mut judge = |session, over: &CancellationToken| {
            let windows = vec![[0.0; WINDOW]];
            let end = Samples(WINDOW as u64);
            let job = VadJob::Judge {
                session,
                end,
                windows,
            };
            assert_eq!(detectors.handle(job, over).unwrap(), [(end, 0.0)]);
            detectors.sessions.len()
        };
        let tokens = [1, 2, 3].map(|_| CancellationToken::new());
        assert_eq!(judge(1, &tokens[0]), 1);
        assert_eq!(judge(2, &tokens[1]), 2);
        tokens[0].cancel();
        assert_eq!(judge(2, &tokens[1]), 2);
        assert_eq!(judge(3, &tokens[2]), 2);
    }

    #[test]
    fn fillers_that_are_always_the_same_are_prepared() {
        let spec = ToolSpec {
            name: "get_weather".into(),
            description: String::new(),
            parameters: serde_json::json!({"properties": {"city": {}}}),
        };
        let mut tool = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        tool.fillers = Fillers {
            short: vec!["Let me look.".into(), "{{ city }}, let me see.".into()],
            long: vec!["This takes  a while. Please bear with me.".into()],
            again: vec!["Still looking.".into()],
        };
        let sayings = fixed_fillers(&tool).into_iter().flat_map(as_spoken);
        let prepared = Prepared::render(&mut Scripted::new(), sayings);
        let mut cutter = Clauses::new();
        let mut spoken = vec!["Let me look.".to_owned(), "Still looking.".into()];
        spoken.extend(cutter.push("This takes a while. Please bear with me."));
        spoken.extend(cutter.finish());
        assert!(spoken.len() > 2, "{spoken:?}");
        for clause in spoken {
            assert!(prepared.get(&clause).is_some(), "{clause}");
        }
    }
}
