//! The voices: local models on one thread that all sessions share, and services, which are opened for
//! each session. Their prepared phrases are kept here.

use super::INBOX;
use super::builders::{Build, OtherVoice};
use super::clause::{MARGIN, SpeakJob, TakeChunk};
use super::load::{Gauge, Stage};
use super::local_voice::{Home, LocalVoice};
use super::phrases::{Sayings, as_clauses};
use super::remote_voice::{RemoteVoice, try_out};
use super::shelf::Shelf;
use super::source::{Report, Source};
use crate::audio::Resampler;
use crate::language::{base, packs};
use crate::metrics::Metrics;
use crate::tts::{Formant, Kept, OnDemand, Prepared, Speaker, Speed, Tts, TtsError, TtsService};
use crate::worker::{Overloaded, SpawnError, Worker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub(super) type OnThread = Worker<SpeakJob, Result<(), TtsError>>;

/// The voices of a server.
pub(super) struct Voices {
    shared: OnThread,
    shelf: Arc<Shelf>,
    /// The local voices: the server's default, those that sessions choose by name, espeak-ng's.
    local: Vec<Local>,
    services: BTreeMap<String, Service>,
    prepared: Prepared,
    /// The speeds at which phrases were prepared at the start.
    speeds: Vec<Option<Speed>>,
}

/// A local voice.
struct Local {
    home: Home,
    /// The name under which sessions choose it; `None` for the server's default, and for those of languages.
    choice: Option<String>,
    /// The primary language that it speaks; `None` if it speaks any.
    language: Option<String>,
    /// It is chosen by its language alone.
    stands_in: bool,
    /// The engine's name for it.
    name: String,
    rate: u32,
}

/// A local voice, as clients may choose it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownVoice<'a> {
    /// The name by which clients choose it.
    pub name: &'a str,
    /// The engine's name for it, such as `kokoro af_heart`.
    pub engine: &'a str,
    /// How sessions choose it.
    pub speaker: Speaker,
    /// The primary language that it speaks; `None` if it speaks any.
    pub language: Option<&'a str>,
}

struct Service {
    service: Arc<dyn TtsService>,
    source: Arc<Source>,
    /// Locked while its phrases are prepared.
    preparing: tokio::sync::Mutex<()>,
}

impl Voices {
    /// Starts the thread and synthesises `sayings` in each local voice, unless they are `kept` in a folder
    /// from an earlier start. Further voices may take `memory` bytes together.
    pub(super) fn start(
        own: Build<dyn Tts, TtsError>,
        (others, memory): (BTreeMap<String, OtherVoice>, u64),
        sayings: &Sayings,
        kept: Option<&Path>,
        gauge: &Arc<Gauge>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, SpawnError<TtsError>> {
        let (mut on_demand, mut choices, mut services) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (name, voice) in others {
            match voice {
                OtherVoice::Local(voice) => {
                    on_demand.push(voice);
                    choices.push(name);
                }
                OtherVoice::Service(service) => {
                    let service = Service::new(service, &name, metrics);
                    services.insert(name, service);
                }
            }
        }
        let spoken = on_demand.iter().map(|voice| voice.language.clone());
        let mut build = builder(own, spoken.collect(), sayings.languages());
        let mut first = build().map_err(SpawnError::State)?;
        let shelved = on_demand.iter().zip(choices).enumerate();
        let shelved = shelved.map(|(at, (about, name))| Local::shelved(at, name, about));
        let thread = first.iter().enumerate();
        let mut thread = thread.map(|(at, tts)| Local::on_thread(at, &**tts));
        let local: Vec<Local> = thread
            .next()
            .into_iter()
            .chain(shelved)
            .chain(thread)
            .collect();
        let shelf = Arc::new(Shelf::start(on_demand, memory)?);
        let prepared = Prepared::default();
        for voice in &local {
            let made = prepare(voice, &mut first, &shelf, sayings, kept, &prepared);
            for each in made.map_err(SpawnError::State)? {
                // So the time of a clause is known before the first user comes.
                gauge.took(Stage::Voice, each);
            }
        }
        let (mut first, gauge) = (Some(first), gauge.clone());
        let shared = Worker::spawn_in_steps(
            "tts",
            INBOX,
            move || first.take().map_or_else(&mut build, Ok),
            move |voices: &mut Vec<Box<dyn Tts>>, job: SpeakJob, _| job.step_with(voices, &gauge),
        )?;
        Ok(Self {
            shared,
            shelf,
            local,
            services,
            prepared,
            speeds: sayings.speeds(),
        })
    }

    /// The name and the sample rate, Hz, of the server's default voice.
    pub(super) fn own(&self) -> (&str, u32) {
        match self.local.first() {
            Some(own) => (&own.name, own.rate),
            None => ("", 0),
        }
    }

    /// The local voices.
    pub(super) fn local(&self) -> impl Iterator<Item = KnownVoice<'_>> {
        self.local.iter().map(|voice| KnownVoice {
            name: voice.choice.as_deref().unwrap_or(&voice.name),
            engine: &voice.name,
            speaker: voice.speaker(None),
            language: voice.language.as_deref(),
        })
    }

    /// The number of jobs on the thread that are due by `now` and still waiting.
    pub(super) fn overdue(&self, now: Instant) -> usize {
        self.shared.overdue(now)
    }

    /// Opens a voice for one session: the server's default if the name is unknown. `report` is told when the
    /// local one has to do the work of a service.
    pub(super) fn open(&self, speaker: &Speaker, report: Report) -> Voice {
        if let Some(remote) = self.remote(speaker, report) {
            return Voice {
                speaker: Service::key(speaker),
                language: None,
                rate: remote.rate(),
                engine: Engine::Service(remote),
            };
        }
        let language = speaker.language.as_deref().map(base);
        let named = |voice: &Local| voice.choice.is_some() && voice.choice == speaker.voice;
        let speaks = |voice: &Local| language.as_deref().is_none_or(|tag| voice.speaks(tag));
        let named = self
            .local
            .iter()
            .position(|voice| named(voice) && speaks(voice));
        if let (Some(name), None) = (&speaker.voice, named) {
            tracing::warn!(
                name,
                language,
                "there is no such voice in this language: using another"
            );
        }
        let index = named.unwrap_or_else(|| self.speaking(speaker.language.as_deref()));
        let voice = self.local_voice(index, speaker.speed());
        // It is loaded while the user speaks.
        drop(voice.ready());
        let known = self.local.get(index);
        let key = known.map(|own| own.speaker(speaker.speed));
        Voice {
            speaker: key.unwrap_or_default(),
            language: known.and_then(|own| own.language.clone()),
            rate: voice.rate,
            engine: Engine::Local(voice),
        }
    }

    fn local_voice(&self, index: usize, speed: Speed) -> LocalVoice {
        let known = self.local.get(index);
        LocalVoice {
            thread: self.shared.clone(),
            shelf: self.shelf.clone(),
            home: known.map_or(Home::Thread(0), |voice| voice.home),
            speed,
            rate: known.map_or(0, |voice| voice.rate),
        }
    }

    /// The first local voice that speaks this language: the server's default if it does, or if none does.
    fn speaking(&self, language: Option<&str>) -> usize {
        let Some(language) = language.map(base) else {
            return 0;
        };
        let found = self.local.iter().position(|voice| voice.speaks(&language));
        if found.is_none() {
            tracing::warn!(language, "no voice speaks this language: using the default");
        }
        found.unwrap_or(0)
    }

    fn remote(&self, speaker: &Speaker, report: Report) -> Option<RemoteVoice> {
        let Service {
            service, source, ..
        } = self.services.get(speaker.voice.as_ref()?)?;
        source.is_needed();
        let language = speaker.language.as_deref();
        let local = self.local_voice(self.speaking(language), speaker.speed());
        // If the service fails, the user waits.
        drop(local.ready());
        Some(RemoteVoice::open(
            &**service, language, source, local, report,
        ))
    }

    /// The prepared audio of `text` in this voice.
    pub(super) fn prepared(&self, voice: &Voice, text: &str) -> Option<Clip> {
        let samples = self.prepared.get(&voice.speaker, text)?;
        let rate = voice.rate;
        Some(Clip { samples, rate })
    }

    /// The prepared audio of `text` in the server's default voice, at any speed, for a session whose own voice
    /// failed before its phrases were prepared.
    pub(super) fn prepared_in_own(&self, text: &str) -> Option<Clip> {
        let own = |speed: &Option<Speed>| Speaker {
            speed: *speed,
            ..Speaker::default()
        };
        let prepared = |speed| self.prepared.get(&own(speed), text);
        let samples = self.speeds.iter().find_map(prepared)?;
        let rate = self.own().1;
        Some(Clip { samples, rate })
    }

    /// Synthesises those of `sayings` that the local voices have not prepared yet.
    pub(super) async fn prepare_local(&self, sayings: &Sayings) {
        for voice in &self.local {
            for (speed, sayings) in sayings.of(voice.language.as_deref()) {
                let speaker = voice.speaker(speed);
                self.prepare(&speaker, voice.rate, &sayings).await;
            }
        }
    }

    /// Synthesises the clauses of `texts` in a local voice, to be said at once.
    pub(super) async fn prepare_answers(&self, speaker: &Speaker, texts: &[String]) {
        let voice = speaker.voice.as_ref();
        if voice.is_some_and(|voice| self.services.contains_key(voice)) {
            return;
        }
        let voice = self.open(speaker, unreported());
        let language = speaker.language.as_deref();
        let clauses = texts.iter().flat_map(|text| as_clauses(text, language));
        let clauses: Vec<String> = clauses.collect();
        self.prepare(&voice.speaker, voice.rate, &clauses).await;
    }

    /// Synthesises `sayings` with a service when a session chooses it, until it fails. Only one session at a time does
    /// this.
    pub(super) async fn prepare_service(&self, speaker: &Speaker, sayings: &[String]) {
        let name = speaker.voice.as_ref();
        let key = Service::key(speaker);
        if let Some(known) = name.and_then(|name| self.services.get(name))
            && let Ok(_alone) = known.preparing.try_lock()
            && sayings
                .iter()
                .any(|text| self.prepared.get(&key, text).is_none())
            && let Some(mut remote) = self.remote(speaker, unreported())
        {
            for text in sayings {
                if self.prepared.get(&key, text).is_some() {
                    continue;
                }
                if remote.is_local() {
                    return;
                }
                let Some(clip) = remote.prepare(text).await else {
                    return;
                };
                self.prepared.put(&key, text.clone(), clip);
            }
        }
    }

    async fn prepare(&self, speaker: &Speaker, rate: u32, sayings: &[String]) {
        for text in sayings {
            if self.prepared.get(speaker, text).is_none()
                && let Some(clip) = self.say(speaker, text, rate).await
            {
                self.prepared.put(speaker, text.clone(), clip);
            }
        }
    }

    /// Synthesises `text` outside of any session: mono at `rate` Hz, in -1..1. `None` if the voice is
    /// busy or fails, which is logged.
    pub(super) async fn say(&self, speaker: &Speaker, text: &str, rate: u32) -> Option<Vec<f32>> {
        let mut spoken = self.speak(speaker, text, rate);
        let mut audio = Vec::new();
        while let Some(samples) = spoken.next().await {
            match samples {
                Ok(samples) => audio.extend(samples),
                Err(failure) => {
                    tracing::warn!(failure, "a text was not spoken");
                    return None;
                }
            }
        }
        Some(audio)
    }

    /// Synthesises a text clause by clause: in the voice's own language if the speaker names none.
    pub(super) fn speak(&self, speaker: &Speaker, text: &str, rate: u32) -> Spoken {
        let voice = self.open(speaker, unreported());
        let language = speaker.language.as_ref().or(voice.language.as_ref());
        Spoken {
            resampler: Some(Resampler::new(voice.rate, rate)),
            clauses: as_clauses(text, language.map(String::as_str)).into(),
            voice,
        }
    }

    /// The names by which sessions choose voices, beside the default: the local ones, and `services` too.
    pub(super) fn names(&self, services: bool) -> impl Iterator<Item = &str> {
        let local = self
            .local
            .iter()
            .filter_map(|voice| voice.choice.as_deref());
        let remote = self.services.keys().filter(move |_| services);
        local.chain(remote.map(String::as_str))
    }
}

/// For speech outside of any session: no client is told of failures, which the source logs.
fn unreported() -> Report {
    Arc::new(|_| ())
}

/// A text that is spoken outside of any session.
pub struct Spoken {
    voice: Voice,
    clauses: VecDeque<String>,
    /// `None` once everything was spoken.
    resampler: Option<Resampler>,
}

impl Spoken {
    /// The audio of its next clause, mono in -1..1; `None` at the end.
    ///
    /// # Errors
    /// An error if the voice is busy or fails.
    pub async fn next(&mut self) -> Option<Result<Vec<f32>, String>> {
        let Some(clause) = self.clauses.pop_front() else {
            return self.resampler.take().map(|mut rest| Ok(rest.flush()));
        };
        let samples = self.voice.whole(clause).await;
        let resampler = self.resampler.as_mut()?;
        Some(samples.map(|samples| resampler.push(&samples)))
    }
}

/// Builds the voices on the thread: the server's own, and espeak-ng's for the languages that have a pack or are spoken
/// by an agent, and that neither it nor those of `others` speaks.
fn builder(
    mut own: Build<dyn Tts, TtsError>,
    others: Vec<Option<String>>,
    wanted: BTreeSet<String>,
) -> impl FnMut() -> Result<Vec<Box<dyn Tts>>, TtsError> + Send {
    move || {
        let own = own()?;
        let known = others.iter().map(Option::as_deref).chain([own.language()]);
        let known: Option<BTreeSet<String>> = known.map(|language| language.map(base)).collect();
        let missing: Vec<String> = match known {
            Some(known) => {
                let packs = packs().map(|pack| pack.tag.to_owned());
                let wanted: BTreeSet<String> = packs.chain(wanted.iter().cloned()).collect();
                wanted.difference(&known).cloned().collect()
            }
            None => Vec::new(),
        };
        let stand_in = |language: &String| Box::new(Formant::new(language)) as Box<dyn Tts>;
        Ok([own]
            .into_iter()
            .chain(missing.iter().map(stand_in))
            .collect())
    }
}

/// Prepares the phrases of a local voice that were not kept. Returns what a clause took at each speed.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: how long jobs take is measured in real time"
)]
fn prepare(
    voice: &Local,
    thread: &mut [Box<dyn Tts>],
    shelf: &Shelf,
    sayings: &Sayings,
    kept: Option<&Path>,
    prepared: &Prepared,
) -> Result<Vec<Duration>, TtsError> {
    let fingerprint = match voice.home {
        _ if kept.is_none() => None,
        Home::Thread(at) => thread.get(at).and_then(|tts| tts.fingerprint()),
        Home::Shelf(at) => shelf.about(at).and_then(OnDemand::fingerprint),
    };
    let mut took = Vec::new();
    for (speed, mut sayings) in sayings.of(voice.language.as_deref()) {
        let speaker = voice.speaker(speed);
        let kept = kept.zip(fingerprint.as_ref());
        let kept = kept.map(|(folder, voice)| match speed {
            Some(speed) => Kept::new(folder, &format!("{voice} {}", speed.factor())),
            None => Kept::new(folder, voice),
        });
        if let Some(kept) = &kept {
            // One of the thread's voices is always synthesised: its time tells what a clause takes.
            let first = usize::from(matches!(voice.home, Home::Thread(_)));
            prepared.recall(&speaker, kept, sayings.iter().skip(first));
        }
        sayings.retain(|text| prepared.get(&speaker, text).is_none());
        if sayings.is_empty() {
            continue;
        }
        let began = Instant::now();
        let made = match voice.home {
            Home::Thread(at) => match thread.get_mut(at) {
                Some(tts) => prepared.render(&speaker, &mut **tts, sayings),
                None => continue,
            },
            Home::Shelf(at) => {
                let tts = shelf.now(at)?;
                let mut tts = tts.lock().unwrap_or_else(PoisonError::into_inner);
                prepared.render(&speaker, &mut **tts, sayings)
            }
        };
        if let Some(each) = began.elapsed().checked_div(made.len() as u32)
            && matches!(voice.home, Home::Thread(_))
        {
            took.push(each);
        }
        if let Some(kept) = kept {
            prepared.keep(&speaker, &kept, &made);
        }
    }
    Ok(took)
}

impl Service {
    fn new(service: Arc<dyn TtsService>, name: &str, metrics: &Arc<Metrics>) -> Self {
        let tried = service.clone();
        let try_out = Box::new(move || try_out(&*tried));
        Self {
            source: Source::new(name, "tts", metrics.clone(), try_out),
            service,
            preparing: tokio::sync::Mutex::default(),
        }
    }

    /// The key of the phrases that are prepared for this speaker: the same however the tag of its language is written.
    fn key(speaker: &Speaker) -> Speaker {
        Speaker {
            language: speaker.language.as_deref().map(base),
            ..speaker.clone()
        }
    }
}

impl Local {
    /// The server's own voice, or one of espeak-ng's.
    fn on_thread(at: usize, tts: &dyn Tts) -> Self {
        Self {
            home: Home::Thread(at),
            choice: None,
            language: tts.language().map(base),
            stands_in: at > 0,
            name: tts.name().to_owned(),
            rate: tts.sample_rate(),
        }
    }

    /// One that sessions choose by its name.
    fn shelved(at: usize, name: String, about: &OnDemand) -> Self {
        Self {
            home: Home::Shelf(at),
            choice: Some(name),
            language: about.language.as_deref().map(base),
            stands_in: false,
            name: about.name.clone(),
            rate: about.sample_rate,
        }
    }

    /// Whether it speaks this primary language.
    fn speaks(&self, language: &str) -> bool {
        self.language.as_deref().is_none_or(|own| own == language)
    }

    /// The key of its phrases that are prepared at this speed. A voice that is chosen by name has one language.
    fn speaker(&self, speed: Option<Speed>) -> Speaker {
        Speaker {
            voice: self.choice.clone(),
            language: self.language.clone().filter(|_| self.stands_in),
            speed,
        }
    }
}

/// Prepared audio, mono in -1..1.
pub(super) struct Clip {
    pub(super) samples: Arc<[f32]>,
    /// Hz.
    pub(super) rate: u32,
}

/// A clause to synthesise.
pub(super) struct Wanted {
    pub(super) text: String,
    /// When the user will have heard everything before it.
    pub(super) needed: Instant,
    /// When a user started to wait for it; `None` if nobody does, such as for a later clause.
    pub(super) asked: Option<Instant>,
    /// Tells when it is needed after all, if it is made in advance.
    pub(super) sooner: Option<oneshot::Receiver<Instant>>,
}

impl Wanted {
    /// For somebody outside of the conversations.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: when audio is needed is a matter of real time"
    )]
    pub(super) fn unhurried(text: String) -> Self {
        Self {
            text,
            needed: Instant::now() + MARGIN,
            asked: None,
            sooner: None,
        }
    }
}

/// One session's voice.
pub(super) struct Voice {
    /// The key of its prepared phrases.
    speaker: Speaker,
    /// The primary language that it speaks; `None` if it speaks any.
    language: Option<String>,
    rate: u32,
    engine: Engine,
}

enum Engine {
    /// On the shared thread.
    Local(LocalVoice),
    /// A service.
    Service(RemoteVoice),
}

impl Voice {
    /// Whether it is a service.
    pub(super) fn is_service(&self) -> bool {
        matches!(self.engine, Engine::Service(_))
    }

    /// Whether it is a service that fails, so that the local voice speaks.
    pub(super) fn is_lost(&self) -> bool {
        matches!(&self.engine, Engine::Service(remote) if remote.is_local())
    }

    /// Begins the next answer: a service that failed in the last one is asked again.
    pub(super) fn next_answer(&mut self) {
        if let Engine::Service(remote) = &mut self.engine {
            remote.next_answer();
        }
    }

    /// The sample rate of its audio, Hz.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// Whether it has to be loaded before it speaks.
    pub(super) fn loads(&self) -> bool {
        match &self.engine {
            Engine::Local(voice) => voice.loads(),
            Engine::Service(remote) => remote.loads(),
        }
    }

    /// Synthesises a clause. `chunk` receives its audio; `done` is called at the end or with the reason
    /// of a failure, on any thread. Cancelling stops it between chunks; then `done` may not be called.
    pub(super) fn speak(
        &mut self,
        wanted: Wanted,
        cancel: CancellationToken,
        tasks: &mut JoinSet<()>,
        chunk: TakeChunk,
        done: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> Result<(), Overloaded> {
        match &mut self.engine {
            Engine::Local(voice) => voice.begin(wanted, cancel, tasks, chunk, done),
            Engine::Service(remote) => {
                let speech = remote.speak(wanted, chunk);
                let job = async move {
                    if let Some(spoken) = cancel.run_until_cancelled(speech).await {
                        done(spoken);
                    }
                };
                tasks.spawn(job.in_current_span());
                Ok(())
            }
        }
    }

    /// Synthesises a whole clause, for use outside of sessions.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: when audio is needed is a matter of real time"
    )]
    async fn whole(&mut self, text: String) -> Result<Vec<f32>, String> {
        let audio = Arc::new(Mutex::new(Vec::new()));
        let taken = audio.clone();
        let chunk: TakeChunk = Box::new(move |piece| {
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.extend(piece.samples);
            ControlFlow::Continue(())
        });
        match &mut self.engine {
            Engine::Local(voice) => voice.speak(Wanted::unhurried(text), chunk).await?,
            Engine::Service(remote) => {
                let wanted = Wanted {
                    text,
                    needed: Instant::now(),
                    asked: None,
                    sooner: None,
                };
                remote.speak(wanted, chunk).await?;
            }
        }
        let mut audio = audio.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut audio))
    }
}
