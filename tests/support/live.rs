//! A live server with real sessions and the engines that a test chooses, and a client that speaks
//! and listens in real time.

use super::{Client, PATIENCE, Server, base64_of, local, samples_of};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;
use undertone::asr::{Asr, AsrError};
use undertone::conversation::{Micros, Policy, Timeouts};
use undertone::llm::Llm;
use undertone::server::{App, ServerSettings, SessionFactory, SessionOptions};
use undertone::session::{
    self, Builders, Engines, LanguageDetection, ModelThreads, OtherVoice, SpokenBy,
};
use undertone::tools::Registry;
use undertone::tts::{OnDemand, Speech, Tts, TtsError};
use undertone::vad::{Begun, Vad, VadError, WINDOW};

/// Samples of 20 ms at the Realtime rate.
const FRAME: usize = 480;

/// The most events queued for the test.
const EVENTS: usize = 4_096;

/// A detector that takes loud windows for speech.
struct Loudness;

impl Vad for Loudness {
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError> {
        let loud = window.iter().any(|sample| sample.abs() > 0.1);
        Ok(Begun::Judged(f32::from(u8::from(loud))))
    }
}

/// A recogniser that returns what the function returns.
pub(crate) struct Hears<F>(pub(crate) F);

impl<F: FnMut(&[f32]) -> Result<String, AsrError> + Send> Asr for Hears<F> {
    fn name(&self) -> &str {
        "told"
    }

    fn transcribe(&mut self, samples: &[f32]) -> Result<String, AsrError> {
        (self.0)(samples)
    }
}

/// A voice of one language that keeps what it says.
#[derive(Clone)]
pub(crate) struct Keeps {
    language: &'static str,
    said: Arc<Mutex<Vec<String>>>,
}

impl Keeps {
    pub(crate) fn new(language: &'static str) -> Self {
        Self {
            language,
            said: Arc::default(),
        }
    }

    /// The clauses with this word that it has said since this was last asked.
    pub(crate) fn take(&self, word: &str) -> Vec<String> {
        let mut said = std::mem::take(&mut *self.said.lock().expect("whole"));
        said.retain(|clause| clause.contains(word));
        said
    }
}

impl Tts for Keeps {
    fn name(&self) -> &str {
        self.language
    }

    fn sample_rate(&self) -> u32 {
        22_050
    }

    fn language(&self) -> Option<&str> {
        Some(self.language)
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.said.lock().expect("whole").push(text.to_owned());
        undertone::tts::Scripted::new().speak(text)
    }
}

/// These engines with an English voice, and a German one of the name "thorsten", of a server in a language.
pub(crate) fn with_voices(
    own: Option<&str>,
    [english, german]: [&Keeps; 2],
    builders: Builders,
) -> Builders {
    let (english, german) = (english.clone(), german.clone());
    let loaded = german.clone();
    let german = OnDemand::of(&german, move || Ok(Box::new(loaded.clone())));
    let mut builders = Builders {
        tts: Box::new(move || Ok(Box::new(english.clone()))),
        voices: [("thorsten".to_owned(), OtherVoice::Local(german))].into(),
        ..builders
    };
    builders.policy.speaker.language = own.map(str::to_owned);
    builders
}

/// The policy with long timeouts, so that tests do not depend on the machine's speed.
pub(crate) fn patient(policy: Policy) -> Policy {
    let hour = Micros::from_ms(3_600_000);
    Policy {
        timeouts: Timeouts {
            dead_air: hour,
            generation_timeout: hour,
            synthesis_timeout: hour,
            audio_timeout: hour,
            transcript_timeout: hour,
            ..policy.timeouts
        },
        ..policy
    }
}

/// Engines without models: loud audio is speech, every transcript is "how are you", and the voice
/// is a tone.
pub(crate) fn without_models(llm: Arc<dyn Llm>) -> Builders {
    Builders {
        vad: Box::new(|| Box::new(|| Ok(Box::new(Loudness) as Box<dyn Vad>))),
        asr: Box::new(|| Ok(Box::new(Hears(|_: &[f32]| Ok("How are you?".into()))))),
        recognisers: BTreeMap::new(),
        recogniser: None,
        detection: LanguageDetection::default(),
        turn_model: None,
        threads: ModelThreads::SINGLE,
        tts: Box::new(|| Ok(Box::new(undertone::tts::Scripted::new()))),
        voices: BTreeMap::new(),
        voice_memory: 0,
        clips: None,
        llm,
        draft: None,
        tools: Registry::new().into(),
        predictors: Vec::new(),
        journal: None,
        budget: Arc::new(session::BudgetMemory::default()),
        phone: undertone::session::PhoneSettings::default(),
        agents: undertone::session::Cast::default(),
        observers: undertone::session::Observers::default(),
        zone: jiff::tz::TimeZone::UTC,
        policy: patient(Policy::default()),
    }
}

/// Serves real sessions with these engines.
pub(crate) fn serve(builders: Builders) -> Server {
    serve_with(local(), builders)
}

pub(crate) fn serve_with(settings: ServerSettings, builders: Builders) -> Server {
    let engines = Engines::start(builders).expect("engines");
    Server::serve(App {
        speech: Some(engines.clone()),
        ..App::new(settings, sessions_of(engines))
    })
}

/// Opens real sessions with these engines.
pub(crate) fn sessions(builders: Builders) -> SessionFactory {
    sessions_of(Engines::start(builders).expect("engines"))
}

/// Opens real sessions with these engines, whose words take no time because nobody speaks them.
pub(crate) fn silent_sessions(builders: Builders) -> SessionFactory {
    let open = sessions(builders);
    Arc::new(move |options| {
        open(SessionOptions {
            spoken_by: SpokenBy::Nobody,
            ..options
        })
    })
}

fn sessions_of(engines: Arc<Engines>) -> SessionFactory {
    Arc::new(move |options| Ok(session::open(&engines, &options)))
}

/// An event and its arrival time. The `delta` of audio is replaced by its length in ms.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    /// The loudest sample of the audio in it.
    pub(crate) peak: u16,
    pub(crate) event: Value,
}

impl Heard {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.event["type"] == kind
    }

    /// Milliseconds of audio in it.
    pub(crate) fn audio_ms(&self) -> u64 {
        match self.is("response.output_audio.delta") {
            true => self.event["delta"].as_u64().expect("a length"),
            false => 0,
        }
    }
}

/// The words of a response.
pub(crate) fn said(events: &[Heard]) -> String {
    let words = events
        .iter()
        .filter(|heard| heard.is("response.output_audio_transcript.delta"));
    words
        .map(|heard| heard.event["delta"].as_str().expect("words"))
        .collect()
}

enum Command {
    Say(Vec<i16>, oneshot::Sender<Instant>),
    Hush,
    Send(Value),
}

/// A client with an open microphone, which sends silence while the test does not speak.
pub(crate) struct Call {
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<Heard>,
    /// All events so far but audio, for the message of a test that waits in vain.
    seen: Vec<String>,
    task: JoinHandle<()>,
}

impl Call {
    /// Opens a Realtime client with vendor events.
    pub(crate) async fn to(server: &Server) -> Self {
        Self::try_to(server).await.expect("a session")
    }

    /// Opens a Realtime client with vendor events, or returns the HTTP status that refused it.
    pub(crate) async fn try_to(server: &Server) -> Result<Self, u16> {
        Self::at(server, "/v1/realtime?vendor_events=1").await
    }

    /// Opens a Realtime client at a path of its own.
    pub(crate) async fn at(server: &Server, path: &str) -> Result<Self, u16> {
        let client = server.try_open(path, &[]).await?;
        let (commands, orders) = mpsc::channel(8);
        let (told, events) = mpsc::channel(EVENTS);
        let task = tokio::spawn(hold(client, orders, told));
        Ok(Self {
            commands,
            events,
            seen: Vec::new(),
            task,
        })
    }

    /// Speaks mono PCM16 at 24 kHz. Returns the time at which the first sample is sent.
    pub(crate) async fn say(&mut self, samples: &[i16]) -> Instant {
        let (began, begins) = oneshot::channel();
        self.order(Command::Say(samples.to_vec(), began)).await;
        begins.await.expect("the call goes on")
    }

    /// Drops what is still to be spoken.
    pub(crate) async fn hush(&mut self) {
        self.order(Command::Hush).await;
    }

    pub(crate) async fn send(&mut self, event: Value) {
        self.order(Command::Send(event)).await;
    }

    async fn order(&self, command: Command) {
        let sent = self.commands.send(command).await;
        assert!(sent.is_ok(), "the call is over");
    }

    pub(crate) async fn next(&mut self) -> Heard {
        let Ok(heard) = timeout(PATIENCE, self.events.recv()).await else {
            panic!("no event in time after\n{}", self.seen.join("\n"));
        };
        let heard = heard.expect("the call goes on");
        if !heard.is("response.output_audio.delta") {
            self.seen.push(heard.event.to_string());
        }
        heard
    }

    /// All events up to and including the first of type `last`.
    pub(crate) async fn until(&mut self, last: &str) -> Vec<Heard> {
        let mut heard = vec![];
        loop {
            heard.push(self.next().await);
            if heard.last().is_some_and(|heard| heard.is(last)) {
                return heard;
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn hold(mut client: Client, mut orders: mpsc::Receiver<Command>, told: mpsc::Sender<Heard>) {
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut speech: VecDeque<i16> = VecDeque::new();
    let mut began = None;
    loop {
        tokio::select! {
            _ = pace.tick() => {
                if let Some(began) = began.take() {
                    let _ = oneshot::Sender::send(began, super::now());
                }
                let mut frame: Vec<i16> = speech.drain(..FRAME.min(speech.len())).collect();
                frame.resize(FRAME, 0);
                let append = json!({
                    "type": "input_audio_buffer.append", "audio": base64_of(&frame),
                });
                if client.socket.send(Message::text(append.to_string())).await.is_err() {
                    return;
                }
            }
            order = orders.recv() => match order {
                Some(Command::Say(samples, first)) => {
                    speech.extend(samples);
                    began = Some(first);
                }
                Some(Command::Hush) => speech.clear(),
                Some(Command::Send(event)) => client.send(event).await,
                None => return,
            },
            message = client.socket.next() => {
                let Some(Ok(message)) = message else { return };
                if let Message::Text(text) = message
                    && told.send(stamp(&text)).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

fn stamp(text: &str) -> Heard {
    let (at, mut peak) = (super::now(), 0);
    let mut event: Value = serde_json::from_str(text).expect("JSON");
    if event["type"] == "response.output_audio.delta" {
        let samples = samples_of(event["delta"].as_str().expect("audio"));
        peak = samples.iter().map(|s| s.unsigned_abs()).max().unwrap_or(0);
        event["delta"] = (samples.len() / 24).into();
    }
    Heard { at, peak, event }
}

/// A loud tone at 24 kHz.
pub(crate) fn tone(ms: usize) -> Vec<i16> {
    vec![8_000; 24 * ms]
}
