//! Engines with a real recogniser and voice, and a scripted language model.

use super::live;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone::asr::WhisperOnnx;
use undertone::config::{Config, Environment, Flags};
use undertone::llm::Llm;
use undertone::llm::scripted::Scripted;
use undertone::session::{Builders, Engines, Observers};
use undertone::tts::{Piper, Tts};
use undertone::turn_model::{SmartTurn, TurnModel};
use undertone::vad::{Gated, SileroModel, Vad};

/// Engines with the shipped settings and all models, but long timeouts.
pub(crate) fn shipped(change: impl FnOnce(&mut Config), observers: Observers) -> Arc<Engines> {
    let mut config = defaults();
    change(&mut config);
    configured(&config, observers)
}

/// The same with another language model.
pub(crate) fn shipped_with(llm: Arc<dyn Llm>) -> Arc<Engines> {
    let built = built(&defaults(), Observers::default());
    Engines::start(Builders { llm, ..built }).expect("engines")
}

/// The engines of a configuration, but with long timeouts.
pub(crate) fn configured(config: &Config, observers: Observers) -> Arc<Engines> {
    Engines::start(built(config, observers)).expect("engines")
}

fn defaults() -> Config {
    let loaded = undertone::config::load(&Flags::default(), &Environment::default());
    let mut config = loaded.expect("the defaults").config;
    config.cache = Some(cache());
    config
}

pub(crate) fn built(config: &Config, observers: Observers) -> Builders {
    let built = undertone::cli::engines::builders(config, observers).expect("the models");
    Builders {
        policy: live::patient(built.policy),
        ..built
    }
}

/// A cache of the tests' own, so that the engines of one run synthesise the fixed phrases once.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

/// Engines with the models in `weights`.
pub(crate) fn engines(weights: &Path, llm: &Scripted) -> Builders {
    let file = |name: &str| weights.join(name);
    let (silero, whisper) = (file("silero/silero_vad.onnx"), file("whisper-tiny.en"));
    let (turn, piper) = (file("smart-turn/smart-turn-v3.2.onnx"), file("piper-joe"));
    Builders {
        vad: Box::new(move || {
            let model = SileroModel::load(&silero).expect("the model");
            Box::new(move || Ok(Box::new(Gated::new(model.detector())) as Box<dyn Vad>))
        }),
        asr: Box::new(move || Ok(Box::new(WhisperOnnx::load(&whisper)?))),
        turn_model: Some(Box::new(move || {
            Ok(Box::new(SmartTurn::load(&turn)?) as Box<dyn TurnModel>)
        })),
        tts: Box::new(move || Ok(Box::new(Piper::load(&piper)?) as Box<dyn Tts>)),
        clips: Some(cache().join("clips")),
        ..live::without_models(Arc::new(llm.clone()))
    }
}
