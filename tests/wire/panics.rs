//! A model thread that panics while it works for one session: that session is answered all the same, or told why not, and
//! another session notices nothing. `dead_backends.rs` has the language model, the voice and the recogniser; the local
//! brain, the training and the patterns have tests of their own beside them.

use crate::support::Server;
use crate::support::live::{self, Call, Heard, Hears, said};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use undertone::asr::{Asr, AsrError};
use undertone::llm::scripted::Scripted;
use undertone::prediction::{
    Evidence, LocalPredictor, PredictError, Prediction, Router, RouterThread, Source,
};
use undertone::session::Builders;
use undertone::tools::{Registry, builtin};
use undertone::tts::{Speech, Tts, TtsError};
use undertone::turn_model::{TurnModel, TurnModelError};
use undertone::vad::{Begun, Vad, VadError, WINDOW};

const ANSWER: &str = "I am well.";

/// Counts panics.
#[derive(Clone)]
struct Fuse {
    blown: Arc<AtomicUsize>,
    most: usize,
}

impl Default for Fuse {
    fn default() -> Self {
        Self::of(1)
    }
}

impl Fuse {
    fn of(most: usize) -> Self {
        let blown = Arc::default();
        Self { blown, most }
    }

    /// Panics the first times that something loud is there, which only one session hears.
    fn blow(&self, loud: bool) {
        if loud {
            let blown = self.blown.fetch_add(1, SeqCst);
            assert!(blown >= self.most, "a bug in the engine");
        }
    }

    fn blew(&self) -> bool {
        self.blown.load(SeqCst) > 0
    }
}

/// The levels at which the sessions speak.
const LOUD: i16 = 16_000;
const SOFT: i16 = 8_000;

fn is_loud(samples: &[f32]) -> bool {
    samples.iter().any(|sample| sample.abs() > 0.4)
}

struct Detector(Fuse);

impl Vad for Detector {
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError> {
        self.0.blow(is_loud(window));
        let speech = window.iter().any(|sample| sample.abs() > 0.1);
        Ok(Begun::Judged(f32::from(u8::from(speech))))
    }
}

struct Completeness(Fuse);

impl TurnModel for Completeness {
    fn completeness(&mut self, audio: &[f32]) -> Result<f32, TurnModelError> {
        self.0.blow(is_loud(audio));
        Ok(0.9)
    }
}

struct Voice(undertone::tts::Scripted, Fuse);

impl Tts for Voice {
    fn name(&self) -> &str {
        "panics"
    }

    fn sample_rate(&self) -> u32 {
        self.0.sample_rate()
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.1.blow(text == ANSWER);
        self.0.speak(text)
    }
}

struct Predictor(Fuse);

impl LocalPredictor for Predictor {
    fn source(&self) -> Source {
        Source::Rule
    }

    fn predict(&mut self, evidence: &Evidence) -> Result<Vec<Prediction>, PredictError> {
        self.0.blow(evidence.text.contains("loudly"));
        Ok(Vec::new())
    }
}

fn builders() -> Builders {
    // The words say which session it is.
    let hears = |samples: &[f32]| -> Result<String, AsrError> {
        Ok(match is_loud(samples) {
            true => "I say it loudly.".into(),
            false => "How are you?".into(),
        })
    };
    Builders {
        asr: Box::new(move || Ok(Box::new(Hears(hears)) as Box<dyn Asr>)),
        ..live::without_models(Arc::new(Scripted::always(format!(
            "<speech>{ANSWER}</speech>"
        ))))
    }
}

async fn turn(call: &mut Call, level: i16) -> Vec<Heard> {
    call.say(&vec![level; 24 * 600]).await;
    call.until("response.done").await
}

fn is_well(events: &[Heard]) -> bool {
    let done = &events.last().expect("events").event["response"];
    said(events) == ANSWER && done["status"] == "completed"
}

/// The engine panics while one session speaks. Returns what that session was told in this turn.
async fn panics_beside(server: &Server, fuse: &Fuse) -> Vec<Heard> {
    let (mut here, mut there) = (Call::to(server).await, Call::to(server).await);
    let (told, beside) = tokio::join!(turn(&mut here, LOUD), turn(&mut there, SOFT));
    assert!(fuse.blew(), "nothing has panicked");
    let failed = |events: &[Heard]| {
        events
            .iter()
            .any(|event| event.is("undertone.stage_failed"))
    };
    assert!(is_well(&beside) && !failed(&beside), "{}", said(&beside));
    for (call, level) in [(&mut here, LOUD), (&mut there, SOFT)] {
        let next = turn(call, level).await;
        assert!(is_well(&next) && !failed(&next), "{}", said(&next));
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_detector_that_panics_is_made_again_and_the_user_is_heard() {
    // Once for both sessions' windows together, and once for the window alone.
    let fuse = Fuse::of(2);
    let blows = fuse.clone();
    let server = live::serve(Builders {
        vad: Box::new(move || {
            let fuse = blows.clone();
            Box::new(move || Ok(Box::new(Detector(fuse.clone())) as Box<dyn Vad>))
        }),
        ..builders()
    });
    let told = panics_beside(&server, &fuse).await;
    assert!(is_well(&told), "{}", said(&told));
    let is_told = |event: &Heard| event.is("undertone.stage_failed");
    assert!(told.iter().any(is_told), "the client is not told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_of_turn_model_that_panics_leaves_the_end_of_the_turn_to_silence() {
    let fuse = Fuse::default();
    let blows = fuse.clone();
    let server = live::serve(Builders {
        turn_model: Some(Box::new(move || {
            Ok(Box::new(Completeness(blows.clone())) as Box<dyn TurnModel>)
        })),
        ..builders()
    });
    let told = panics_beside(&server, &fuse).await;
    assert!(is_well(&told), "{}", said(&told));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_panics_predicts_nothing_and_the_turn_is_answered() {
    let fuse = Fuse::default();
    let blows = fuse.clone();
    let build = move || Ok(Router::new(vec![Box::new(Predictor(blows.clone())) as _]));
    let router = RouterThread::start(build).expect("a thread");
    // Without tools nothing is predicted.
    let mut tools = Registry::new();
    builtin::register(&mut tools).expect("no duplicates");
    let server = live::serve(Builders {
        tools: tools.into(),
        predictors: vec![Arc::new(router)],
        ..builders()
    });
    let told = panics_beside(&server, &fuse).await;
    assert!(is_well(&told), "{}", said(&told));
}

/// The voice serves both sessions; the one whose clause it was is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voice_that_panics_for_one_session_speaks_to_another() {
    let fuse = Fuse::default();
    let blows = fuse.clone();
    let server = live::serve(Builders {
        tts: Box::new(move || {
            let voice = Voice(undertone::tts::Scripted::new(), blows.clone());
            Ok(Box::new(voice) as Box<dyn Tts>)
        }),
        ..builders()
    });
    let (mut here, mut there) = (Call::to(&server).await, Call::to(&server).await);
    let (one, other) = tokio::join!(turn(&mut here, LOUD), turn(&mut there, SOFT));
    assert!(fuse.blew(), "nothing has panicked");
    assert!(is_well(&one) || is_well(&other), "both notice it");
    // What is synthesised ahead of the turn's end is synthesised again.
    let apology = undertone::llm::Phrases::default().tts_failed;
    let is_told = |events: &[Heard]| is_well(events) || said(events).contains(&apology);
    assert!(
        is_told(&one) && is_told(&other),
        "somebody waits in silence"
    );
    for (call, level) in [(&mut here, LOUD), (&mut there, SOFT)] {
        let next = turn(call, level).await;
        assert!(is_well(&next), "{}", said(&next));
    }
}
