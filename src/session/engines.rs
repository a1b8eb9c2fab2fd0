//! Everything that all sessions share: the models, the tools, and the settings of new sessions.

use super::INBOX;
use super::agents::{Agent, Agents, DEFAULT_AGENT, Shared};
use super::budget::BudgetStore;
use super::builders::{Builders, LanguageDetection, Renewal, StartError};
use super::detectors::{self, Judged, VadJob};
use super::experience::SharedExperience;
use super::load::Gauge;
use super::notes;
use super::observers::Observers;
use super::options::{Profile, SessionOptions, SpokenBy};
use super::recognisers::{Recogniser, Recognisers};
use super::source::{LONGEST, Report};
use super::voices::{KnownVoice, Spoken, Voices};
use super::warmth::Warmth;
use crate::asr::{Hints, Recognised, TellTurn};
use crate::conversation::{self, Briefing, Declarations, Opening, Policy, Shed};
use crate::language::{ENGLISH, base, packs};
use crate::llm::{Llm, Phrases};
use crate::metrics::Metrics;
use crate::prediction::patterns::Memory;
use crate::prediction::{Evidence, Predictor, Question};
use crate::report::Webhook;
use crate::tools::{Clock, Found, Journal, LiveTools, Registry, SystemClock};
use crate::tts::{Speaker, Speed};
use crate::turn_model::TurnModelError;
use crate::vad::VadError;
use crate::worker::Worker;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// The timeout of committed changes when the server stops.
const LAST_CHANGES: Duration = Duration::from_secs(10);

/// Everything that sessions share.
pub struct Engines {
    pub(super) vad: Worker<VadJob, Result<Judged, VadError>>,
    recognisers: Arc<Recognisers>,
    /// The recogniser for sessions and agents that name none; the local one if `None`.
    recogniser: Option<String>,
    pub(super) detection: LanguageDetection,
    pub(super) turn_model: Option<Worker<Vec<f32>, Result<f32, TurnModelError>>>,
    pub(super) voices: Arc<Voices>,
    pub(super) agents: Agents,
    pub(super) tools: LiveTools,
    /// The draft model.
    pub(super) draft: Option<Arc<Warmth>>,
    /// The sources of predictions, the cheapest first.
    pub(super) predictors: Vec<Arc<dyn Predictor>>,
    pub(super) budget: Arc<dyn BudgetStore>,
    pub(super) experience: Arc<SharedExperience>,
    pub(super) journal: Option<Journal>,
    /// Committed calls that change something: they outlive the session that asked for them.
    pub(super) changes: TaskTracker,
    pub(super) zone: jiff::tz::TimeZone,
    pub(super) observers: Observers,
    /// Sessions that are open.
    pub(super) sessions: TaskTracker,
    gauge: Arc<Gauge>,
}

impl Engines {
    /// Starts all models, and synthesises the phrases that must be audible even when one of them fails.
    ///
    /// # Errors
    /// [`StartError`] if a model cannot be loaded.
    pub fn start(builders: Builders) -> Result<Arc<Self>, StartError> {
        let Builders {
            vad,
            asr,
            recognisers,
            recogniser,
            detection,
            turn_model,
            threads,
            tts,
            voices,
            voice_memory,
            clips,
            llm,
            draft,
            tools,
            predictors,
            journal,
            budget,
            zone,
            policy,
            phone,
            agents,
            observers,
        } = builders;
        let shared = Shared {
            llm,
            policy,
            phone,
            tools: &tools.now(),
            metrics: observers.metrics.clone(),
        };
        let agents = Agents::start(agents, &shared);
        let draft = draft_of(&agents, draft);
        observers.show_lost();
        let gauge = Gauge::new(observers.metrics.clone(), threads.recogniser);
        let sayings = agents.sayings();
        Ok(Arc::new(Self {
            vad: detectors::start(vad)?,
            recognisers: Recognisers::start(
                asr,
                threads.recogniser,
                recognisers,
                gauge.clone(),
                &observers.metrics,
            )?
            .into(),
            recogniser,
            detection,
            turn_model: turn_model
                .map(|build| {
                    let threads = threads.turn_model;
                    Worker::spawn_pool(
                        "turn-model",
                        threads,
                        INBOX,
                        build,
                        |model, audio: Vec<f32>, _| model.completeness(&audio),
                    )
                })
                .transpose()?,
            voices: Voices::start(
                tts,
                (voices, voice_memory),
                &sayings,
                clips.as_deref(),
                &gauge,
                &observers.metrics,
            )?
            .into(),
            draft,
            predictors,
            budget,
            experience: Arc::default(),
            journal,
            changes: TaskTracker::new(),
            agents,
            tools,
            zone,
            observers,
            sessions: TaskTracker::new(),
            gauge,
        })
        .prepared())
    }

    /// Begins to synthesise the answers that are often given, if there is a runtime. Nobody waits for that.
    fn prepared(self: Arc<Self>) -> Arc<Self> {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (voices, answers) = (self.voices.clone(), self.agents.often_said());
            runtime.spawn(async move {
                for (speaker, texts) in answers {
                    voices.prepare_answers(&speaker, &texts).await;
                }
            });
        }
        self
    }

    /// Engines with the same models and other settings, for sessions that begin from now on. Open ones
    /// keep their settings; both share the budgets.
    pub async fn renewed(&self, renewal: Renewal) -> Arc<Self> {
        let Renewal {
            llm,
            draft,
            tools,
            predictors,
            zone,
            policy,
            phone,
            agents,
        } = renewal;
        let shared = Shared {
            llm,
            policy,
            phone,
            tools: &tools.now(),
            metrics: self.observers.metrics.clone(),
        };
        let agents = Agents::start(agents, &shared);
        let draft = draft_of(&agents, draft);
        self.voices.prepare_local(&agents.sayings()).await;
        let warmths = self.agents.all().map(|agent| &agent.warmth);
        warmths
            .chain(&self.draft)
            .for_each(|warmth| warmth.retire());
        Arc::new(Self {
            vad: self.vad.clone(),
            recognisers: self.recognisers.clone(),
            recogniser: self.recogniser.clone(),
            detection: self.detection.clone(),
            turn_model: self.turn_model.clone(),
            voices: self.voices.clone(),
            agents,
            tools,
            draft,
            predictors,
            budget: self.budget.clone(),
            experience: self.experience.clone(),
            journal: self.journal.clone(),
            changes: self.changes.clone(),
            zone,
            observers: self.observers.clone(),
            sessions: self.sessions.clone(),
            gauge: self.gauge.clone(),
        })
        .prepared()
    }
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

    /// Waits until the sessions are over and their recordings, turns and patterns are written, ten seconds at most
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
        if let Some(audit) = &self.observers.audit {
            audit.finish().await;
        }
        if let Some(recordings) = &self.observers.recordings {
            recordings.finish().await;
        }
        if let Some(calls) = &self.observers.calls {
            calls.finish().await;
        }
        if let Some(webhook) = &self.observers.webhook {
            let told = tokio::time::timeout(LAST_CHANGES, webhook.finish());
            if told.await.is_err() {
                tracing::warn!("the last reports were not sent to the webhook");
            }
        }
        if let Some(traces) = &self.observers.traces {
            let sent = tokio::time::timeout(LAST_CHANGES, traces.finish());
            if sent.await.is_err() {
                tracing::warn!("the last traces were not sent to the collector");
            }
        }
        let kept = tokio::time::timeout(LAST_CHANGES, self.observers.patterns.finish());
        if kept.await.is_err() {
            tracing::warn!(
                "recently learned patterns were not saved: their file or store is too slow"
            );
        }
    }
}

impl Engines {
    /// Asks the detector and each source of predictions for nothing, and waits for the answers: what they were at work
    /// on is done by then. A process whose sessions are over may then end; a model that is still at work while ONNX
    /// Runtime is unloaded crashes. A detector with a full queue is not waited for, nor are client tools, recognisers
    /// and voices.
    pub async fn settle(&self) {
        let (done, is_done) = oneshot::channel();
        // Jobs are done in the order in which they came.
        let last = VadJob::Close { session: 0 };
        let done = move |_| {
            let _ = done.send(());
        };
        if self
            .vad
            .try_send(last, CancellationToken::new(), done)
            .is_ok()
        {
            // An error means that there is no detector any more.
            let _ = is_done.await;
        }
        let nothing = Arc::new(Question {
            session: Uuid::nil(),
            agent: DEFAULT_AGENT.into(),
            came_by: None,
            history: Vec::new(),
            evidence: Evidence {
                paused: true,
                ..Evidence::default()
            },
            tools: Arc::default(),
        });
        for predictor in &self.predictors {
            // Its answer does not matter.
            let _ = predictor.predict(nothing.clone()).await;
        }
    }

    /// The tools that the server runs now.
    pub fn tools(&self) -> Arc<Registry> {
        self.tools.now()
    }

    /// The server's tools, which may change.
    pub fn live_tools(&self) -> &LiveTools {
        &self.tools
    }

    /// The learned patterns of all sessions.
    pub fn patterns(&self) -> &Memory {
        &self.observers.patterns
    }

    /// The metrics of all sessions.
    pub fn metrics(&self) -> &Metrics {
        &self.observers.metrics
    }

    /// The numbers behind the rules of the agent `default`, in sessions other than telephone calls.
    pub fn policy(&self) -> &Policy {
        &self.agents.default().policy
    }

    /// The numbers behind the rules of a new session with an agent that is offered these tools.
    pub(super) fn policy_of(
        &self,
        agent: &Agent,
        options: &SessionOptions,
        tools: Declarations,
    ) -> Policy {
        let policy = match options.profile {
            Profile::Conversation => agent.policy.clone(),
            Profile::ClientFirst => Policy {
                opening: Opening::default(),
                ..agent.policy.clone()
            },
            Profile::PhoneCall => agent.phone_policy.clone(),
        };
        let mut timeouts = policy.timeouts;
        // A client may still choose a service.
        if self.recognisers.services().next().is_some() {
            // The local recogniser goes on in time.
            timeouts.transcript_timeout = timeouts.transcript_timeout + LONGEST;
        }
        let speaker = speaker_of(agent, options);
        let calls = self.observers.calls_of(&agent.name, options);
        Policy {
            tools,
            timeouts,
            opening: Opening {
                notice: calls.map_or_else(String::new, |calls| calls.notice(speaker.pack())),
                greeting: notes::greeting(policy.opening.greeting, &options.values),
                waits_for_client: options.opens_later,
            },
            speaker,
            briefing: self.briefing_of(agent, options, &Found::new()),
            ..policy
        }
    }

    /// The words with which a session of these options begins; empty if the client speaks first.
    pub(crate) fn greeting(&self, options: &SessionOptions) -> String {
        let agent = self.agents.of(options);
        let policy = self.policy_of(agent, options, Declarations::default());
        policy.opening.words()
    }

    /// The fixed phrases of a session of these options, and its language, a BCP 47 tag; English if `None`.
    pub(crate) fn phrases(&self, options: &SessionOptions) -> (Phrases, Option<String>) {
        let agent = self.agents.of(options);
        let policy = self.policy_of(agent, options, Declarations::default());
        (policy.phrases().clone(), policy.speaker.language)
    }

    fn briefing_of(&self, agent: &Agent, options: &SessionOptions, found: &Found) -> Briefing {
        Briefing {
            day: Some(self.day()),
            notes: agent.instructions.notes(&options.values, found),
            tool_cache: agent.llm.takes_results(),
            ..agent.policy.briefing.clone()
        }
    }

    /// The role of an agent in a session whose lookups have `found` these values.
    pub(super) fn role_of(
        &self,
        agent: &Agent,
        options: &SessionOptions,
        tools: Declarations,
        found: &Found,
    ) -> conversation::Agent {
        conversation::Agent {
            briefing: self.briefing_of(agent, options, found),
            tools,
            speaker: speaker_of(agent, options),
            speculation: agent.policy.speculation.enabled,
            max_tokens: agent.policy.max_tokens,
        }
    }

    /// Today, in words.
    fn day(&self) -> String {
        let now = SystemClock.now().to_zoned(self.zone.clone());
        now.strftime("%A, %-d %B %Y").to_string()
    }

    /// The recogniser of a session with this agent, for the language that it speaks, or others if it `detects` them.
    /// `report` is told when the local one has to do the work of a service.
    pub(super) fn recogniser_of(
        &self,
        agent: &Agent,
        options: &SessionOptions,
        detects: bool,
        report: Report,
        turns: Option<TellTurn>,
    ) -> Recogniser {
        let name = self.recogniser_name(agent, options);
        let own = agent.policy.speaker.language.as_deref().unwrap_or(ENGLISH);
        let others = if detects {
            self.among(own)
        } else {
            Arc::default()
        };
        let hints = Hints {
            language: speaker_of(agent, options).language,
            others,
            keyterms: options.keyterms.as_ref().unwrap_or(&agent.keyterms).clone(),
            ..Hints::default()
        };
        self.recognisers.open(name, hints, report, turns)
    }

    /// The languages that are detected, and `own`; none if nothing is detected.
    fn among(&self, own: &str) -> Arc<[String]> {
        let among = self.detection.among.iter().cloned();
        let own = (!self.detection.among.is_empty()).then(|| own.to_owned());
        among.chain(own).collect()
    }

    fn recogniser_name<'a>(
        &'a self,
        agent: &'a Agent,
        options: &'a SessionOptions,
    ) -> Option<&'a str> {
        let own = options.recogniser.as_ref().or(agent.recogniser.as_ref());
        own.or(self.recogniser.as_ref()).map(String::as_str)
    }

    /// The operator's web service that is told of calls.
    pub fn webhook(&self) -> Option<&Webhook> {
        self.observers.webhook.as_ref()
    }

    /// The name and the sample rate, Hz, of the server's default voice.
    pub fn voice(&self) -> (&str, u32) {
        self.voices.own()
    }

    /// Transcribes audio outside of any session: 16 kHz mono in -1..1, at most
    /// [`crate::asr::MAX_SAMPLES`]. `None` if the recogniser is busy or fails, which is logged.
    ///
    /// `language` is that of the speaker, a BCP 47 tag; the server's if `None`.
    pub async fn transcribe(&self, audio: Vec<f32>, language: Option<&str>) -> Option<String> {
        let hints = self.hints(language);
        self.recognisers.transcribe(audio, hints).await
    }

    /// Transcribes audio that no user is waiting for: live speech goes first, and this wait does not count
    /// as load.
    ///
    /// # Errors
    /// An error if the recogniser is busy or fails.
    pub async fn transcribe_aside(
        &self,
        audio: Vec<f32>,
        language: Option<&str>,
    ) -> Result<Recognised, String> {
        let hints = self.hints(language);
        self.recognisers.transcribe_aside(audio, hints).await
    }

    /// This language; otherwise the server's or those that it detects.
    fn hints(&self, language: Option<&str>) -> Hints {
        let own = self.language();
        match language {
            Some(language) => Hints::language(language),
            None => Hints {
                others: self.among(&own),
                ..Hints::language(&own)
            },
        }
    }

    /// The language of the agent `default`, a BCP 47 tag.
    pub fn language(&self) -> String {
        let own = self.policy().speaker.language.as_deref();
        own.unwrap_or(ENGLISH).to_owned()
    }

    /// Whether the local recogniser knows a language.
    pub fn hears(&self, language: &str) -> bool {
        self.recognisers.hears(None, language)
    }

    /// The languages that the local recogniser knows, without regions.
    pub fn heard_languages(&self) -> &[String] {
        self.recognisers.languages()
    }

    /// The names by which sessions choose voices, beside the server's default: the local ones, and `services` too.
    pub fn voice_names(&self, services: bool) -> impl Iterator<Item = &str> {
        self.voices.names(services)
    }

    /// The names by which sessions choose recognisers, beside the server's default.
    pub fn recogniser_names(&self) -> impl Iterator<Item = &str> {
        self.recognisers.services()
    }

    /// The local voices, the server's default first.
    pub fn local_voices(&self) -> impl Iterator<Item = KnownVoice<'_>> {
        self.voices.local()
    }

    /// The languages of the agents and those that are detected, without regions, that of the agent `default` first.
    pub fn languages(&self) -> Vec<String> {
        let agents = self.agent_languages().into_values();
        let detected = self.detection.among.iter().map(|tag| base(tag));
        let mut all = vec![base(&self.language())];
        for language in agents.chain(detected) {
            if !all.contains(&language) {
                all.push(language);
            }
        }
        all
    }

    /// The languages that a user may choose for a conversation, without regions: of those that the server has words
    /// for or that its operator named, the ones that the recogniser of the agent `default` knows. That agent's own
    /// comes first.
    pub fn offered_languages(&self) -> Vec<String> {
        let own = self.agents.default().recogniser.as_ref();
        let recogniser = own.or(self.recogniser.as_ref()).map(String::as_str);
        let mut all = self.languages();
        for pack in packs() {
            if !all.iter().any(|known| known == pack.tag) {
                all.push(pack.tag.to_owned());
            }
        }
        let own = base(&self.language());
        all.retain(|language| *language == own || self.recognisers.hears(recogniser, language));
        all
    }

    /// The language of all agents, without a region; `None` if they differ.
    pub fn common_language(&self) -> Option<String> {
        let own = base(&self.language());
        let mut agents = self.agent_languages().into_values();
        agents.all(|language| language == own).then_some(own)
    }

    /// The languages of the agents by their names, without regions.
    pub fn agent_languages(&self) -> BTreeMap<String, String> {
        let spoken = |agent: &Arc<Agent>| {
            let language = agent.policy.speaker.language.as_deref();
            (agent.name.clone(), base(language.unwrap_or(ENGLISH)))
        };
        self.agents.all().map(spoken).collect()
    }

    /// Synthesises `text` outside of any session, clause by clause: mono at `rate` Hz, in -1..1. Without a speed of its
    /// own it has the agents'.
    pub fn speak(&self, speaker: &Speaker, text: &str, rate: u32) -> Spoken {
        let speaker = Speaker {
            speed: speaker.speed.or(self.policy().speaker.speed),
            ..speaker.clone()
        };
        self.voices.speak(&speaker, text, rate)
    }

    /// Synthesises `text` outside of any session: mono at `rate` Hz, in -1..1. Without a speed of its own it has the
    /// agents'. `None` if the voice is busy or fails, which is logged.
    pub async fn say(&self, speaker: &Speaker, text: &str, rate: u32) -> Option<Vec<f32>> {
        let speaker = Speaker {
            speed: speaker.speed.or(self.policy().speaker.speed),
            ..speaker.clone()
        };
        self.voices.say(&speaker, text, rate).await
    }

    /// Has a service prepare the phrases that its sessions may need when it fails.
    pub(super) async fn prepare_service(&self, speaker: &Speaker) {
        let mut sayings = self.agents.sayings().of(speaker.language.as_deref());
        // A service is paid for; a speed that a single client has chosen is not prepared.
        if let Some(sayings) = sayings.remove(&speaker.speed) {
            self.voices.prepare_service(speaker, &sayings).await;
        }
    }

    /// The optional work that is skipped because users wait for the models.
    pub(super) fn shed(&self) -> Shed {
        match self.sessions.len() {
            // A single session's waits are caused by itself.
            0 | 1 => Shed::Nothing,
            _ => self.gauge.level(self.waiting()).shed(),
        }
    }

    /// Whether there is capacity for one more session, which is then counted.
    pub fn admit(&self) -> bool {
        self.gauge.admit(self.waiting(), self.sessions.len())
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long jobs wait is measured in real time"
    )]
    fn waiting(&self) -> [usize; 2] {
        let now = Instant::now();
        [self.recognisers.overdue(now), self.voices.overdue(now)]
    }
}

/// The draft model; `None` if no agent may run anything early.
fn draft_of(agents: &Agents, llm: Option<Arc<dyn Llm>>) -> Option<Arc<Warmth>> {
    let may_guess = |agent: &Agent| agent.policy.speculation.enabled;
    let llm = llm.filter(|_| agents.all().any(|agent| may_guess(agent)))?;
    Some(Warmth::start_beside(llm, &agents.default().policy))
}

/// The voice of an agent and how fast it speaks, unless the session has its own. Clients that speak themselves have one
/// speed.
pub(super) fn speaker_of(agent: &Agent, options: &SessionOptions) -> Speaker {
    let own = agent.policy.speaker.clone();
    Speaker {
        voice: options.speaker.voice.clone().or(own.voice),
        language: options.speaker.language.clone().or(own.language),
        speed: options
            .speaker
            .speed
            .or(own.speed)
            .filter(|speed| *speed != Speed::NORMAL && options.spoken_by == SpokenBy::Server),
    }
}
