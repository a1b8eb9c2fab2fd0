//! Queues of the session shell that are full: the models behind them are stuck for as long as the test says.

use crate::support::PATIENCE;
use crate::support::live::{Hears, without_models};
use crate::support::program::until;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use tokio::time::timeout;
use undertone::asr::{Asr, AsrError};
use undertone::conversation::{Event, Input, Micros};
use undertone::llm::Phrases;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::session::{
    self, Builders, Engines, Inbound, Outbound, Profile, SessionHandle, SessionOptions, SpokenBy,
};
use undertone::tts::{Speech, Tts, TtsError};
use undertone::turn_model::{TurnModel, TurnModelError};
use undertone::vad::{Begun, Vad, VadError, WINDOW};

const ANSWER: &str = "I am well.";

/// More sessions than a model's queue has places.
const MANY: usize = 40;

/// A gate at which models wait.
#[derive(Clone)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn new(open: bool) -> Self {
        Self(Arc::new((Mutex::new(open), Condvar::new())))
    }

    fn set(&self, open: bool) {
        *self.0.0.lock().expect("whole") = open;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.0.lock().expect("whole");
        drop(self.0.1.wait_while(open, |open| !*open).expect("whole"));
    }
}

/// However a test ends, no thread is left behind.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

fn builders() -> Builders {
    without_models(Arc::new(Scripted::always(format!(
        "<speech>{ANSWER}</speech>"
    ))))
}

fn open(engines: &Arc<Engines>, spoken_by: SpokenBy) -> SessionHandle {
    let options = SessionOptions {
        spoken_by,
        ..SessionOptions::new(Profile::ClientFirst, 16_000)
    };
    session::open(engines, &options)
}

/// Says something for 640 ms and then nothing for 960 ms. The detector has room for what all sessions say at once: a window
/// that it skips may be speech.
async fn speak(session: &SessionHandle) {
    for at in 0..50 {
        let level = if at < 20 { 8_000 } else { 0 };
        let sent = session.inbound.send(Inbound::Audio(vec![level; WINDOW]));
        sent.await.expect("the session goes on");
    }
}

async fn say(session: &SessionHandle, text: &str) {
    let said = Input::Said {
        text: text.into(),
        last: true,
    };
    let sent = session.inbound.send(Inbound::Request(said));
    sent.await.expect("the session goes on");
}

/// The agent's words up to the end of its answer.
async fn answer(session: &mut SessionHandle) -> String {
    let mut words = String::new();
    loop {
        let next = timeout(PATIENCE, session.outbound.recv()).await;
        match next.expect("in time").expect("the session goes on") {
            Outbound::Event {
                event: Event::AgentSpeech { text, .. },
                ..
            } => words.push_str(&text),
            Outbound::Event {
                event: Event::ResponseDone { .. },
                ..
            } => return words,
            _ => {}
        }
    }
}

/// Many users speak at once. The gate is opened when the first of them is told something, and all are. Returns what
/// they are told.
async fn many(engines: &Arc<Engines>, gate: &Gate, spoken_by: SpokenBy) -> Vec<String> {
    let mut sessions: Vec<_> = (0..MANY).map(|_| open(engines, spoken_by)).collect();
    for session in &sessions {
        speak(session).await;
    }
    let mut answers: FuturesUnordered<_> = sessions.iter_mut().map(answer).collect();
    let mut told = vec![answers.next().await.expect("an answer")];
    gate.set(true);
    while let Some(answer) = answers.next().await {
        told.push(answer);
    }
    told
}

fn count(told: &[String], phrase: &str) -> usize {
    told.iter().filter(|words| words.contains(phrase)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_a_full_recogniser_cannot_hear_is_asked_to_repeat() {
    let gate = Gate::new(false);
    let _opens = Opens(gate.clone());
    let stuck = gate.clone();
    let engines = Engines::start(Builders {
        asr: Box::new(move || {
            let gate = stuck.clone();
            let hears = move |_: &[f32]| -> Result<String, AsrError> {
                gate.pass();
                Ok("How are you?".into())
            };
            Ok(Box::new(Hears(hears)) as Box<dyn Asr>)
        }),
        ..builders()
    })
    .expect("engines");
    let told = many(&engines, &gate, SpokenBy::Nobody).await;
    let again = count(&told, &Phrases::default().asr_failed);
    assert!(again > 0, "{told:?}");
    assert_eq!(again + count(&told, ANSWER), MANY, "{told:?}");
}

struct Slow(Gate);

impl TurnModel for Slow {
    fn completeness(&mut self, _: &[f32]) -> Result<f32, TurnModelError> {
        self.0.pass();
        Ok(0.9)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_full_end_of_turn_model_silence_ends_the_turn() {
    let gate = Gate::new(false);
    let _opens = Opens(gate.clone());
    let stuck = gate.clone();
    let engines = Engines::start(Builders {
        turn_model: Some(Box::new(move || {
            Ok(Box::new(Slow(stuck.clone())) as Box<dyn TurnModel>)
        })),
        ..builders()
    })
    .expect("engines");
    // It stays stuck.
    let told = many(&engines, &Gate::new(false), SpokenBy::Nobody).await;
    assert_eq!(count(&told, ANSWER), MANY, "{told:?}");
}

/// A voice that is stuck on the answer, but not on what is prepared.
struct Stuck(undertone::tts::Scripted, Gate);

impl Tts for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }

    fn sample_rate(&self) -> u32 {
        self.0.sample_rate()
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        if text == ANSWER {
            self.1.pass();
        }
        self.0.speak(text)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_a_full_voice_cannot_answer_hears_an_apology() {
    let gate = Gate::new(false);
    let _opens = Opens(gate.clone());
    let stuck = gate.clone();
    let engines = Engines::start(Builders {
        tts: Box::new(move || {
            let voice = Stuck(undertone::tts::Scripted::new(), stuck.clone());
            Ok(Box::new(voice) as Box<dyn Tts>)
        }),
        ..builders()
    })
    .expect("engines");
    let told = many(&engines, &gate, SpokenBy::Server).await;
    let sorry = count(&told, &Phrases::default().tts_failed);
    assert!(sorry > 0, "{told:?}");
    let answered = told.iter().filter(|words| *words == ANSWER).count();
    assert_eq!(sorry + answered, MANY, "{told:?}");
}

/// Counts windows, and waits at each.
struct Detector(Gate, Arc<AtomicUsize>);

impl Vad for Detector {
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError> {
        self.0.pass();
        self.1.fetch_add(1, SeqCst);
        let loud = window.iter().any(|sample| sample.abs() > 0.1);
        Ok(Begun::Judged(f32::from(u8::from(loud))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audio_that_a_full_detector_cannot_judge_is_skipped_and_the_session_goes_on() {
    const PLACES: usize = 2_048;
    // Beside those that wait.
    const IN_HAND: usize = 16;
    let gate = Gate::new(false);
    let _opens = Opens(gate.clone());
    let (stuck, judged) = (gate.clone(), Arc::<AtomicUsize>::default());
    let counted = judged.clone();
    let engines = Engines::start(Builders {
        vad: Box::new(move || {
            let (gate, judged) = (stuck.clone(), counted.clone());
            Box::new(move || Ok(Box::new(Detector(gate.clone(), judged.clone())) as Box<dyn Vad>))
        }),
        ..builders()
    })
    .expect("engines");
    let mut session = open(&engines, SpokenBy::Nobody);
    for _ in 0..PLACES + 200 {
        let sent = session.inbound.send(Inbound::Audio(vec![0; WINDOW]));
        sent.await.expect("the session goes on");
    }
    say(&session, "How are you?").await;
    assert_eq!(answer(&mut session).await, ANSWER);
    gate.set(true);
    let all = || judged.load(SeqCst);
    until(async || (all() >= PLACES).then_some(())).await;
    assert!(all() <= PLACES + IN_HAND, "{} windows were judged", all());
    speak(&session).await;
    assert_eq!(answer(&mut session).await, ANSWER);
}

/// One client reads nothing of an endless answer; another one asks meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_client_reads_nothing_ends_and_another_goes_on() {
    let story = format!("<speech>{}</speech>", "Once upon a time. ".repeat(400));
    let llm = Scripted::default()
        .on(Cue::words("story"), story)
        .on(Cue::Always, format!("<speech>{ANSWER}</speech>"));
    let mut builders = without_models(Arc::new(llm));
    builders.policy.answer.words = 10_000;
    builders.policy.answer.speech = Micros::from_ms(3_600_000);
    let engines = Engines::start(builders).expect("engines");
    let (stalled, mut other) = (
        open(&engines, SpokenBy::Nobody),
        open(&engines, SpokenBy::Nobody),
    );
    say(&stalled, "Tell me a story.").await;
    let ended = timeout(PATIENCE, stalled.inbound.closed()).await;
    ended.expect("it waits for its client");
    say(&other, "How are you?").await;
    assert_eq!(answer(&mut other).await, ANSWER);
}
