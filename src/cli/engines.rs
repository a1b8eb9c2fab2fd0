//! From the configuration to loaded models: the one place that knows which engine is which.

use crate::asr::{Asr, AsrError, WhisperCpp, WhisperOnnx};
use crate::config::{AsrEngine, Config, LlmConfig, LlmEngine};
use crate::conversation::{EndpointPolicy, Micros, Policy, TurnDetection, VadPolicy};
use crate::llm::{Brain, Llm, OpenAiCompatible, Phrases, Prompts, openai_compatible};
use crate::models::Models;
use crate::session::{Builders, Engines};
use crate::tools::{Registry, declared};
use crate::tts::{Piper, Tts, TtsError};
use crate::turn_model::{SmartTurn, TurnModel};
use crate::vad::{Gated, SileroModel, Vad};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The models, held to their sha256: nothing is loaded that does not match.
pub(super) fn verified_models(config: &Config) -> Result<Models> {
    let models = Models::open(&config.models.dir)?;
    models.verify()?;
    Ok(models)
}

fn with_runtime(config: &Config) -> Result<Models> {
    let models = verified_models(config)?;
    crate::onnx::init(&models.onnx_runtime())?;
    Ok(models)
}

/// The speech recogniser.
pub(super) fn asr(config: &Config) -> Result<Box<dyn Asr>> {
    let models = with_runtime(config)?;
    Ok(asr_builder(config, &models)()?)
}

/// The voice.
pub(super) fn tts(config: &Config) -> Result<Box<dyn Tts>> {
    let models = with_runtime(config)?;
    Ok(tts_builder(config, &models)()?)
}

/// Everything that a session needs.
///
/// # Errors
/// A model is missing, is not the file that belongs there, or cannot be loaded.
pub fn all(config: &Config) -> Result<Arc<Engines>> {
    let models = with_runtime(config)?;
    let tools = declared::registry(&config.tools.declared)?;
    let silero = models.silero();
    let smart_turn = models.smart_turn();
    let engines = Engines::start(Builders {
        vad: Box::new(move || {
            let path = silero.clone();
            let mut model: Option<SileroModel> = None;
            Box::new(move || {
                let loaded = match &model {
                    Some(model) => model.clone(),
                    None => model.insert(SileroModel::load(&path)?).clone(),
                };
                Ok(Box::new(Gated::new(loaded.detector())) as Box<dyn Vad>)
            })
        }),
        asr: Box::new(asr_builder(config, &models)),
        turn_model: Some(Box::new(move || {
            Ok(Box::new(SmartTurn::load(&smart_turn)?) as Box<dyn TurnModel>)
        })),
        tts: Box::new(tts_builder(config, &models)),
        llm: llm(&config.llm, &models, &tools)?,
        tools: Arc::new(tools),
        zone: config.session.time_zone.clone(),
        policy: policy(config)?,
    })?;
    Ok(engines)
}

pub(super) fn asr_builder(
    config: &Config,
    models: &Models,
) -> impl FnMut() -> Result<Box<dyn Asr>, AsrError> + Send + use<> {
    let engine = config.asr.engine;
    let threads = config.asr.threads;
    let built_in = match engine {
        AsrEngine::WhisperOnnx => models.whisper_onnx(),
        AsrEngine::WhisperCpp => models.whisper_ggml(),
    };
    let path = config.asr.model.clone().unwrap_or(built_in);
    move || match engine {
        AsrEngine::WhisperOnnx => Ok(Box::new(WhisperOnnx::load(&path)?) as Box<dyn Asr>),
        AsrEngine::WhisperCpp => Ok(Box::new(WhisperCpp::load(&path, threads)?)),
    }
}

pub(super) fn tts_builder(
    config: &Config,
    models: &Models,
) -> impl FnMut() -> Result<Box<dyn Tts>, TtsError> + Send + use<> {
    let path: PathBuf = config.tts.voice.clone().unwrap_or_else(|| models.voice());
    move || Ok(Box::new(Piper::load(&path)?) as Box<dyn Tts>)
}

fn llm(config: &LlmConfig, models: &Models, tools: &Registry) -> Result<Arc<dyn Llm>> {
    match config.engine {
        LlmEngine::Brain => Ok(Arc::new(Brain::start(&models.minilm(), tools)?)),
        LlmEngine::OpenAiCompatible => {
            let url = config.base_url.clone().context("llm.base_url is not set")?;
            let settings = openai_compatible::Settings {
                api_key: config.api_key.clone(),
                temperature: config.temperature,
                max_tokens: Some(config.max_tokens),
                ..openai_compatible::Settings::new(url, &config.model)
            };
            Ok(Arc::new(OpenAiCompatible::new(
                settings,
                Prompts::load(None)?,
            )?))
        }
    }
}

/// The numbers behind the conversation's rules, from the configuration.
fn policy(config: &Config) -> Result<Policy> {
    let (turn, session) = (&config.turn, &config.session);
    let micros = |duration: std::time::Duration| Micros(duration.as_micros() as u64);
    let windows = |ms: u64| u32::try_from(ms.div_ceil(32)).unwrap_or(u32::MAX).max(1);
    let vad = VadPolicy::default();
    let phrases = Phrases::load(None)?;
    Ok(Policy {
        vad: VadPolicy {
            threshold: turn.vad_threshold,
            // Silero's own hysteresis.
            release: (turn.vad_threshold - 0.15).max(0.01),
            start_windows: windows(turn.start_ms),
            interrupt_windows: vad.interrupt_windows.max(windows(turn.start_ms)),
            ..vad
        },
        endpoint: EndpointPolicy {
            partial_every_ms: turn.partial_ms,
            complete_ms: turn.complete_ms,
            unsure_ms: turn.unsure_ms,
            incomplete_ms: turn.incomplete_ms,
            ..EndpointPolicy::default()
        },
        turn_detection: TurnDetection {
            interrupt: turn.interrupt,
            ..TurnDetection::default()
        },
        dead_air: micros(config.llm.stall_filler),
        generation_timeout: micros(config.llm.give_up),
        idle: micros(session.idle),
        session: micros(session.max),
        tool_steps: session.max_tool_steps,
        greeting: session.greeting.clone(),
        instructions: config.llm.instructions.clone(),
        phrases,
        ..Policy::default()
    })
}
