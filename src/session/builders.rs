//! The parts from which the engines are built.

use super::agents::Cast;
use super::budget::BudgetStore;
use super::detectors::VadBuilder;
use super::observers::Observers;
use crate::asr::{Asr, AsrError, AsrService};
use crate::conversation::{Micros, Opening, Policy, Timeouts};
use crate::llm::Llm;
use crate::prediction::Predictor;
use crate::tools::{Journal, LiveTools};
use crate::tts::{OnDemand, Tts, TtsError, TtsService};
use crate::turn_model::{TurnModel, TurnModelError};
use crate::vad::VadError;
use crate::worker::SpawnError;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds an engine on the thread that will own it, and again if it has panicked.
pub(super) type Build<T, E> = Box<dyn FnMut() -> Result<Box<T>, E> + Send>;

/// Like [`Build`], on several threads at the same time.
pub(super) type BuildEach<T, E> = Box<dyn Fn() -> Result<Box<T>, E> + Send + Sync>;

/// How to build each engine. The models' builders run on the threads that will own them, and
/// again if a model has panicked.
pub struct Builders {
    /// Makes a builder of voice activity detectors, one detector for each session.
    pub vad: VadBuilder,
    /// Builds the server's default recogniser.
    pub asr: BuildEach<dyn Asr, AsrError>,
    /// Other recognisers, by the names under which sessions choose them.
    pub recognisers: BTreeMap<String, Arc<dyn AsrService>>,
    /// The recogniser for sessions and agents that name none; the server's default if `None`.
    pub recogniser: Option<String>,
    /// The languages that the local recogniser detects.
    pub detection: LanguageDetection,
    /// Makes the end-of-turn model, if there is to be one.
    pub turn_model: Option<BuildEach<dyn TurnModel, TurnModelError>>,
    /// The threads of recogniser and end-of-turn model.
    pub threads: ModelThreads,
    /// Builds the server's default voice.
    pub tts: Build<dyn Tts, TtsError>,
    /// Other voices, by the names under which sessions choose them.
    pub voices: BTreeMap<String, OtherVoice>,
    /// The memory that local ones among the other voices may take together, bytes.
    pub voice_memory: u64,
    /// The folder in which the audio of fixed phrases is kept between starts; `None` to make it each time.
    pub clips: Option<PathBuf>,
    /// The language model.
    pub llm: Arc<dyn Llm>,
    /// The draft model; [`SpeculationPolicy::draft`](crate::conversation::SpeculationPolicy::draft) configures how it
    /// is asked.
    pub draft: Option<Arc<dyn Llm>>,
    /// The tools that the server runs.
    pub tools: LiveTools,
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
    /// The agents, and the routes to them.
    pub agents: Cast,
    /// Recorders, turn log and metrics.
    pub observers: Observers,
}

/// The numbers of threads of the models that may have several. Each thread has a model of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelThreads {
    /// Those of the local recogniser.
    pub recogniser: NonZeroUsize,
    /// Those of the end-of-turn model.
    pub turn_model: NonZeroUsize,
}

impl ModelThreads {
    /// One for each model.
    pub const SINGLE: Self = Self {
        recogniser: NonZeroUsize::MIN,
        turn_model: NonZeroUsize::MIN,
    };

    /// As many as suit a machine with so many cores: half of them transcribe, since the voice, the other models and the
    /// sessions work at the same time. The end of turn is judged once a pause, in less time. Each thread takes memory,
    /// so there is a limit.
    pub fn for_cores(cores: NonZeroUsize) -> Self {
        let share = |part: usize, most: usize| {
            let threads = NonZeroUsize::new((cores.get() / part).min(most));
            threads.unwrap_or(NonZeroUsize::MIN)
        };
        Self {
            recogniser: share(2, 8),
            turn_model: share(4, 4),
        }
    }
}

/// The languages that users may speak beside that of their session.
#[derive(Debug, Clone, Default)]
pub struct LanguageDetection {
    /// BCP 47 tags; nothing is detected if there are none.
    pub among: Vec<String>,
    /// The session goes on in the language that is detected: its phrases, voice and answers. Otherwise it is only
    /// transcribed.
    pub follow: bool,
}

/// A voice other than the server's default.
pub enum OtherVoice {
    /// A local model, loaded when a session needs it.
    Local(OnDemand),
    /// An asynchronous service.
    Service(Arc<dyn TtsService>),
}

/// The parts that a running server may change for new sessions: see [`Builders`] for each.
pub struct Renewal {
    /// The language model.
    pub llm: Arc<dyn Llm>,
    /// The draft model.
    pub draft: Option<Arc<dyn Llm>>,
    /// The tools that the server runs.
    pub tools: LiveTools,
    /// The sources of predictions, the cheapest first.
    pub predictors: Vec<Arc<dyn Predictor>>,
    /// The time zone of users who name none.
    pub zone: jiff::tz::TimeZone,
    /// The numbers behind the rules.
    pub policy: Policy,
    /// Settings for telephone calls.
    pub phone: PhoneSettings,
    /// The agents, and the routes to them.
    pub agents: Cast,
}

/// Settings for telephone calls.
#[derive(Debug, Clone, Default)]
pub struct PhoneSettings {
    /// Said when a call is answered; nothing if empty.
    pub greeting: String,
    /// The silence after which a caller is asked whether they are still there; `None`: never.
    pub silence_prompt: Option<Micros>,
}

impl PhoneSettings {
    /// The numbers behind the rules of a call.
    pub(super) fn policy(self, policy: &Policy) -> Policy {
        Policy {
            opening: Opening::greeting(self.greeting),
            timeouts: Timeouts {
                silence_prompt: self.silence_prompt,
                ..policy.timeouts
            },
            ..policy.clone()
        }
    }
}

/// An error of engines that could not be started.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_has_one_thread_for_each_model_and_a_large_one_a_limited_number() {
        let threads = |cores| {
            let threads = ModelThreads::for_cores(NonZeroUsize::new(cores).unwrap());
            (threads.recogniser.get(), threads.turn_model.get())
        };
        let all = [1, 2, 3, 4, 8, 16, 64].map(threads);
        assert_eq!(
            all,
            [(1, 1), (1, 1), (1, 1), (2, 1), (4, 2), (8, 4), (8, 4)]
        );
    }
}
