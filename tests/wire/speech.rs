//! Recognisers and voices other than the server's defaults, in real sessions over sockets: scripted
//! services that answer, fail, stall or panic, and several voices on one server.

use crate::support;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use support::live::{self, Call, Heard, said};
use support::{PATIENCE, Server, local};
use tokio::sync::mpsc;
use tokio::time::timeout;
use undertone::asr::{AsrError, AsrService, AsrSession, Hints, Utterance};
use undertone::conversation::{Samples, Timeouts};
use undertone::llm::scripted::{Scripted, Step};
use undertone::llm::{Llm, Phrases};
use undertone::server::App;
use undertone::session::{self, Builders, Engines, OtherVoice};
use undertone::tts::{OnDemand, Speech, SpeechStream, Tts, TtsError, TtsService, TtsSession};

const WELL: &str = "I am well.";

/// The voice of [`undertone::tts::Scripted`], by how loud it is.
const OWN: u16 = 8_192;

/// The outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Fails,
    Panics,
    /// Begins, and is never over.
    Stuck,
}

fn answers() -> Arc<dyn Llm> {
    Arc::new(Scripted::always(format!("<speech>{WELL}</speech>")))
}

/// A server whose clients choose recogniser and voice by `?model=`, and both understand English.
fn serve(builders: Builders) -> Server {
    let engines = Engines::start(builders).expect("engines");
    let sessions = Arc::new(move |mut options: session::SessionOptions| {
        options.recogniser.clone_from(&options.model);
        options.speaker.voice.clone_from(&options.model);
        options.speaker.language = Some("en".into());
        Ok(session::open(&engines, &options))
    });
    Server::serve(App::new(local(), sessions))
}

async fn call(server: &Server, model: &str) -> Call {
    let path = format!("/v1/realtime?vendor_events=1&model={model}");
    Call::at(server, &path).await.expect("a session")
}

/// Speaks, and listens to the end of the response.
async fn turn(call: &mut Call) -> Vec<Heard> {
    call.say(&live::tone(600)).await;
    call.until("response.done").await
}

/// The level of a response, rounded to hundredths because resampling ripples.
fn loudness(events: &[Heard]) -> u16 {
    events.iter().map(|heard| heard.peak).max().unwrap_or(0)
}

#[track_caller]
fn is_about(loudness: u16, expected: u16) {
    let close = loudness.abs_diff(expected) < expected / 5;
    assert!(close, "{loudness} is not the voice of {expected}");
}

/// Tells when a job is dropped.
struct Told(mpsc::Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

async fn is_dropped(told: &mut mpsc::Receiver<()>) {
    let dropped = timeout(PATIENCE, told.recv()).await;
    dropped.expect("it is dropped in time").expect("a job");
}

/// A recogniser elsewhere.
struct Ear {
    fate: Fate,
    dropped: mpsc::Sender<()>,
}

/// One session's part of it: it keeps what it has listened to.
struct Listener {
    fate: Fate,
    dropped: mpsc::Sender<()>,
    audio: Vec<f32>,
}

impl AsrService for Ear {
    fn open(&self, hints: &Hints) -> Box<dyn AsrSession> {
        // `None`: it is tried out.
        let language = hints.language.as_deref();
        assert!(language.is_none_or(|tag| tag == "en"));
        Box::new(Listener {
            fate: self.fate,
            dropped: self.dropped.clone(),
            audio: Vec::new(),
        })
    }
}

impl AsrSession for Listener {
    fn listen(&mut self, from: Samples, audio: &[f32]) {
        assert_eq!(from.0 as usize, self.audio.len(), "without a gap");
        self.audio.extend(audio);
    }

    fn transcribe(&mut self, part: Utterance) -> BoxFuture<'static, Result<String, AsrError>> {
        let heard = self.audio[part.from.0 as usize..].iter().zip(&part.audio);
        let same = heard.clone().count() == part.audio.len()
            && heard
                .clone()
                .all(|(heard, part)| (heard - part).abs() < 1e-3);
        let (fate, told) = (self.fate, Told(self.dropped.clone()));
        async move {
            let _told = told;
            match fate {
                Fate::Done if same => Ok("How are you?".into()),
                Fate::Done => Err(AsrError::Run("this is not what was heard".into())),
                Fate::Fails => Err(AsrError::Run("no line".into())),
                Fate::Panics => panic!("a bug in the service"),
                Fate::Stuck => std::future::pending().await,
            }
        }
        .boxed()
    }
}

fn with_ear(fate: Fate) -> (Builders, mpsc::Receiver<()>) {
    let (dropped, told) = mpsc::channel(16);
    let ear: Arc<dyn AsrService> = Arc::new(Ear { fate, dropped });
    let builders = Builders {
        recognisers: [("elsewhere".to_owned(), ear)].into(),
        ..live::without_models(answers())
    };
    (builders, told)
}

#[tokio::test]
async fn a_recogniser_elsewhere_listens_along() {
    let (builders, _) = with_ear(Fate::Done);
    let server = serve(builders);
    let events = turn(&mut call(&server, "elsewhere").await).await;
    assert_eq!(said(&events), WELL);
}

#[tokio::test]
async fn a_recogniser_elsewhere_that_fails_panics_or_is_stuck_leaves_its_work_to_the_local_one() {
    for fate in [Fate::Fails, Fate::Panics, Fate::Stuck] {
        let (builders, _) = with_ear(fate);
        let server = serve(builders);
        let events = turn(&mut call(&server, "elsewhere").await).await;
        assert_eq!(said(&events), WELL, "{fate:?}");
        let failed =
            |heard: &Heard| heard.is("undertone.stage_failed") && heard.event["stage"] == "asr";
        assert!(events.iter().any(failed), "{fate:?}");
    }
}

#[tokio::test]
async fn a_recogniser_elsewhere_that_is_stuck_keeps_no_other_session_waiting() {
    let (builders, mut dropped) = with_ear(Fate::Stuck);
    let server = serve(builders);
    let mut stuck = call(&server, "elsewhere").await;
    let mut other = call(&server, "own").await;
    let (here, answer) = tokio::join!(turn(&mut stuck), turn(&mut other));
    assert_eq!(said(&here), WELL);
    assert_eq!(said(&answer), WELL);
    drop(stuck);
    is_dropped(&mut dropped).await;
}

/// A voice of one loudness, on the thread or elsewhere. Each word is 200 ms.
#[derive(Clone)]
struct Level {
    level: f32,
    fate: Arc<Mutex<Fate>>,
    /// Texts that it was asked for.
    asked: mpsc::Sender<String>,
    dropped: mpsc::Sender<()>,
}

/// Hz.
const RATE: u32 = 24_000;

impl Level {
    fn new(level: f32, fate: Fate) -> (Self, mpsc::Receiver<String>, mpsc::Receiver<()>) {
        let (asked, texts) = mpsc::channel(256);
        let (dropped, told) = mpsc::channel(256);
        let fate = Arc::new(Mutex::new(fate));
        let voice = Self {
            level,
            fate,
            asked,
            dropped,
        };
        (voice, texts, told)
    }

    fn loudness(&self) -> u16 {
        (self.level * 32_768.0) as u16
    }

    fn word(&self) -> Vec<f32> {
        vec![self.level; RATE as usize / 5]
    }
}

impl TtsService for Level {
    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn open(&self, language: Option<&str>) -> Box<dyn TtsSession> {
        // `None`: it is tried out.
        assert!(language.is_none_or(|tag| tag == "en"));
        Box::new(self.clone())
    }
}

impl TtsSession for Level {
    fn speak(&mut self, text: &str) -> SpeechStream {
        let _ = self.asked.try_send(text.to_owned());
        let (fate, word) = (*self.fate.lock().expect("a fate"), self.word());
        let told = Told(self.dropped.clone());
        let words = text.split_whitespace().count();
        let end = async move {
            let _told = told;
            match fate {
                Fate::Done => None,
                Fate::Fails => Some(Err(TtsError::Run("no line".into()))),
                Fate::Panics => panic!("a bug in the service"),
                Fate::Stuck => std::future::pending().await,
            }
        };
        let words = if fate == Fate::Fails { 0 } else { words };
        let words = stream::iter(std::iter::repeat_n(word, words)).map(|word| Ok(word.into()));
        words
            .chain(stream::once(end).filter_map(std::future::ready))
            .boxed()
    }
}

fn with_voice(voice: &Level) -> Builders {
    let voice: Arc<dyn TtsService> = Arc::new(voice.clone());
    Builders {
        voices: [("elsewhere".to_owned(), OtherVoice::Service(voice))].into(),
        ..live::without_models(answers())
    }
}

#[tokio::test]
async fn a_voice_elsewhere_speaks_for_the_session_that_chose_it() {
    let (voice, _, _) = Level::new(0.75, Fate::Done);
    let server = serve(with_voice(&voice));
    for (model, loudest) in [("elsewhere", voice.loudness()), ("own", OWN)] {
        let events = turn(&mut call(&server, model).await).await;
        assert_eq!(said(&events), WELL);
        is_about(loudness(&events), loudest);
    }
}

#[tokio::test]
async fn a_voice_elsewhere_that_fails_or_panics_leaves_its_work_to_the_local_one() {
    for fate in [Fate::Fails, Fate::Panics] {
        let (voice, _, _) = Level::new(0.75, fate);
        let server = serve(with_voice(&voice));
        let events = turn(&mut call(&server, "elsewhere").await).await;
        assert_eq!(said(&events), WELL, "{fate:?}: {events:?}");
        let failed =
            |heard: &Heard| heard.is("undertone.stage_failed") && heard.event["stage"] == "tts";
        assert!(events.iter().any(failed), "{fate:?}");
    }
}

#[tokio::test]
async fn a_voice_elsewhere_that_is_stuck_keeps_no_other_session_waiting() {
    let (voice, _, mut dropped) = Level::new(0.75, Fate::Stuck);
    let server = serve(with_voice(&voice));
    let mut stuck = call(&server, "elsewhere").await;
    let mut other = call(&server, "own").await;
    let (here, answer) = tokio::join!(turn(&mut stuck), turn(&mut other));
    assert_eq!(said(&here), WELL);
    assert_eq!(said(&answer), WELL);
    is_dropped(&mut dropped).await;
}

#[tokio::test]
async fn what_a_voice_elsewhere_makes_is_dropped_when_the_answer_is_cancelled() {
    let (voice, _, mut dropped) = Level::new(0.75, Fate::Stuck);
    let server = serve(with_voice(&voice));
    let mut call = call(&server, "elsewhere").await;
    call.say(&live::tone(600)).await;
    call.until("response.output_audio.delta").await;
    call.send(json!({"type": "response.cancel"})).await;
    is_dropped(&mut dropped).await;
    call.until("response.done").await;
}

/// A voice on the thread that dies when it is told to.
struct Mortal {
    voice: Level,
    dead: Arc<AtomicBool>,
}

impl Tts for Mortal {
    fn name(&self) -> &str {
        "mortal"
    }

    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        if self.dead.load(Relaxed) {
            return Err(TtsError::Run("dead".into()));
        }
        let words = text.split_whitespace().count();
        let word = self.voice.word();
        Ok(Box::new(std::iter::repeat_n(word, words).map(Ok)))
    }
}

#[tokio::test]
async fn what_was_prepared_is_said_in_the_sessions_own_voice() {
    let dead = Arc::new(AtomicBool::new(false));
    let mortal = |level| {
        let (voice, _, _) = Level::new(level, Fate::Done);
        let (loudness, dead) = (voice.loudness(), dead.clone());
        let build = move || {
            let (voice, dead) = (voice.clone(), dead.clone());
            Ok(Box::new(Mortal { voice, dead }) as Box<dyn Tts>)
        };
        (build, loudness)
    };
    let (own, own_level) = mortal(0.2);
    let (second, second_level) = mortal(0.45);
    let like = second().expect("a voice");
    let second = OnDemand::of(&*like, second);
    let (service, mut asked, _) = Level::new(0.9, Fate::Done);
    let voices = [
        ("second".to_owned(), OtherVoice::Local(second)),
        (
            "elsewhere".to_owned(),
            OtherVoice::Service(Arc::new(service.clone())),
        ),
    ];
    let mut builders = live::without_models(Arc::new(Scripted::always(Step::Hang)));
    let Timeouts {
        dead_air,
        generation_timeout,
        ..
    } = Timeouts::default();
    builders.policy.timeouts.dead_air = dead_air;
    builders.policy.timeouts.generation_timeout = generation_timeout;
    builders.tts = Box::new(own);
    builders.voices = voices.into();
    let server = serve(builders);
    let phrases = Phrases::default();
    // The first session with a service's voice has it prepare the phrases, one after the other.
    let first = call(&server, "elsewhere").await;
    let last = &phrases.goodbye_too_long;
    while !last.starts_with(&asked.recv().await.expect("a text")) {}
    drop(first);
    dead.store(true, Relaxed);
    *service.fate.lock().expect("a fate") = Fate::Fails;
    let voices = [
        ("own", own_level),
        ("second", second_level),
        ("elsewhere", service.loudness()),
    ];
    let turns = voices.map(|(model, level)| {
        let server = &server;
        async move { (model, level, turn(&mut call(server, model).await).await) }
    });
    for (model, level, events) in futures_util::future::join_all(turns).await {
        let said = said(&events);
        for phrase in [&phrases.one_moment, &phrases.llm_failed] {
            assert!(said.contains(phrase), "{model}: {said}");
        }
        let quietest = events.iter().filter(|heard| heard.audio_ms() > 0);
        // The last frame of a clause may be mostly silence, but not all of it.
        let quietest = quietest.map(|heard| heard.peak).min().unwrap_or(0);
        is_about(loudness(&events), level);
        is_about(quietest, level);
    }
}
