//! Loads the engines that the configuration selects.

use super::WRITABLE;
use crate::asr::{
    self, Asr, AsrError, AsrService, ByLanguage, WhisperCpp, WhisperLayout, WhisperOnnx,
};
use crate::brain::Brain;
use crate::config::{
    AgentConfig, AsrEngine, Config, Keypad, LlmEngine, OnnxModel, PatternPlace, RemoteAsr,
    RemoteLlm, RemoteTts,
};
use crate::conversation::Policy;
use crate::language::{ENGLISH, base};
use crate::llm::{Fallback, Llm, Remote, remote};
use crate::metrics::Metrics;
use crate::models::Models;
use crate::prediction::patterns::{Memory, PatternFile, PatternStore, SharedPatterns, Transitions};
use crate::prediction::{self, ExampleFiles, Predictor, Settings, Today};
use crate::server::TransferCall;
use crate::session::{
    AgentSettings, BudgetMemory, BudgetShared, Builders, Cast, Engines, ModelThreads, Observers,
    OtherVoice, Renewal,
};
use crate::tools::builtin::SendDigits;
use crate::tools::declared::{self, Kind};
use crate::tools::journal::{JournalShared, warn_of_unknown};
use crate::tools::{Clock, Journal, JournalFile, LiveTools, Registry, SystemClock};
use crate::tts::{self, Tts, TtsError, TtsService};
use crate::turn_model::{SmartTurn, TurnModel};
use crate::vad::{Gated, SileroModel, Vad};
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

/// The models, verified by their sha256.
pub(super) fn verified_models(config: &Config) -> Result<Models> {
    let models = Models::open(&config.models)?;
    models.verify()?;
    Ok(models)
}

/// The verified models, with ONNX Runtime loaded.
pub(super) fn with_runtime(config: &Config) -> Result<Models> {
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
/// A model is missing, does not match its sha256, or cannot be loaded.
pub fn all(config: &Config) -> Result<Arc<Engines>> {
    observed(config, Observers::default())
}

/// Everything that a session needs, with recorders, turn log and metrics.
///
/// # Errors
/// As [`all`].
pub fn observed(config: &Config, observers: Observers) -> Result<Arc<Engines>> {
    Ok(Engines::start(builders(config, observers)?)?)
}

/// Builds the parts of the engines.
///
/// # Errors
/// A model is missing or does not match its sha256, or a setting cannot be used.
pub fn builders(config: &Config, observers: Observers) -> Result<Builders> {
    let models = with_runtime(config)?;
    let (metrics, patterns) = (&observers.metrics, &observers.patterns);
    let renewal = renewal_with(config, &models, false, (metrics, patterns), |tools| {
        Ok(live(tools, config, metrics, None))
    })?;
    let journal = Some(journal(config, &observers)?);
    assembled(config, &models, observers, renewal, journal)
}

/// Builds the parts of engines that change nothing outside of this process: there is no journal, no MCP server is
/// connected, and `stage` replaces the tools, whose examples are learned when this returns. One session learns nothing from
/// another's calls.
///
/// # Errors
/// As [`builders`], and those of `stage`.
pub fn rehearsal(
    config: &Config,
    observers: Observers,
    stage: impl FnOnce(&Registry) -> Result<Registry>,
) -> Result<Builders> {
    let config = &Config {
        patterns: None,
        ..config.clone()
    };
    let models = with_runtime(config)?;
    let (metrics, patterns) = (&observers.metrics, &observers.patterns);
    let renewal = renewal_with(config, &models, true, (metrics, patterns), |tools| {
        Ok(stage(tools)?.into())
    })?;
    assembled(config, &models, observers, renewal, None)
}

fn assembled(
    config: &Config,
    models: &Models,
    observers: Observers,
    renewal: Renewal,
    journal: Option<Journal>,
) -> Result<Builders> {
    let silero = models.silero();
    let smart_turn = models.smart_turn();
    Ok(Builders {
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
        asr: Box::new(asr_builder(config, models)),
        recognisers: recognisers(config)?,
        recogniser: config.speech.recogniser.clone(),
        detection: config.detection.clone(),
        turn_model: Some(Box::new(move || {
            Ok(Box::new(SmartTurn::load(&smart_turn)?) as Box<dyn TurnModel>)
        })),
        threads: threads(config),
        tts: Box::new(tts_builder(config, models)),
        voices: voices(config)?,
        voice_memory: config.voice_memory,
        clips: config.cache.as_deref().map(|cache| cache.join("clips")),
        journal,
        budget: match &observers.store {
            Some(store) => Arc::new(BudgetShared::new(store.clone())),
            None => Arc::new(BudgetMemory::default()),
        },
        observers,
        llm: renewal.llm,
        draft: renewal.draft,
        tools: renewal.tools,
        predictors: renewal.predictors,
        zone: renewal.zone,
        policy: renewal.policy,
        phone: renewal.phone,
        agents: renewal.agents,
    })
}

/// Builds the parts that a running server adopts from a reloaded configuration.
///
/// # Errors
/// As [`all`].
pub(super) fn renewal(config: &Config, before: &Engines) -> Result<Renewal> {
    let models = verified_models(config)?;
    let (metrics, patterns) = (before.metrics(), before.patterns());
    renewal_with(config, &models, false, (metrics, patterns), |tools| {
        Ok(live(tools, config, metrics, Some(before.live_tools())))
    })
}

/// The tools of the configuration, also those of MCP servers, although nothing is connected.
pub(super) fn registry(config: &Config) -> Result<Registry> {
    let mut tools = declared::registry(&config.tools.declared)?;
    if let Some((transfer, hints)) = TransferCall::new(&config.server) {
        tools.register_with(Arc::new(transfer), hints)?;
    }
    if let Some(keypad) = config.keypad {
        tools.register(Arc::new(SendDigits::new(keypad == Keypad::EveryCall)))?;
    }
    Ok(tools)
}

/// The registry of a running server. Tools of MCP servers are added and removed as their servers come and go.
fn live(
    tools: &Registry,
    config: &Config,
    metrics: &Metrics,
    before: Option<&LiveTools>,
) -> LiveTools {
    let mut connected = tools.clone();
    for tool in &config.tools.declared {
        if let Kind::Mcp(plan) = &tool.kind {
            let name = &tool.declaration.spec.name;
            connected.remove(name);
            if plan.pin.is_none() {
                let server = &plan.server.name;
                tracing::warn!(
                    server,
                    tool = name,
                    "a tool is not pinned and not offered; `undertone mcp pin` pins it"
                );
            }
        }
    }
    let live = LiveTools::from(connected);
    let mcp = &config.tools.mcp.servers;
    if tokio::runtime::Handle::try_current().is_ok() {
        let servers = declared::mcp_servers(mcp, &config.tools.declared, before);
        servers.run(&live, &metrics.mcp());
    }
    live
}

/// `awaits`: the tools' examples are learned before this returns.
fn renewal_with(
    config: &Config,
    models: &Models,
    awaits: bool,
    (metrics, patterns): (&Metrics, &Memory),
    offered: impl FnOnce(&Registry) -> Result<LiveTools>,
) -> Result<Renewal> {
    warn_of_missing_tools(config);
    let tools = registry(config)?;
    let text = config.text_limits(&tools)?;
    Ok(Renewal {
        llm: llm(config, models, awaits, &tools, metrics)?,
        draft: draft(config)?,
        predictors: predictors(config, models, awaits, &tools, (metrics, patterns))?,
        tools: offered(&tools)?,
        zone: config.time_zone.clone(),
        policy: Policy {
            text,
            max_tokens: match &config.llm {
                LlmEngine::Remote(remote) => remote.settings.max_tokens,
                LlmEngine::Brain => None,
            },
            ..config.policy.clone()
        },
        phone: config.phone.clone(),
        agents: cast(config, metrics)?,
    })
}

/// Warns if the default folder of tools does not exist.
fn warn_of_missing_tools(config: &Config) {
    if let Some(missing) = &config.tools.missing {
        tracing::warn!(
            folder = %missing.display(),
            "there is no folder of tools: agents have the built-in ones only; \
             tools.folder = \"\" says that this is meant"
        );
    }
}

/// Opens the journal, and warns about each call of an earlier run that has no result.
fn journal(config: &Config, observers: &Observers) -> Result<Journal> {
    let figures = observers.metrics.journal();
    if let Some(store) = &observers.store {
        return Ok(Journal::new(JournalShared::new(store.clone(), figures)));
    }
    let path = &config.tools.journal;
    let journal = JournalFile::open_counted(path, SystemClock.now(), figures)
        .map_err(|error| anyhow!("tools.journal: {error}; {WRITABLE}"))?;
    for call in journal.unknown() {
        warn_of_unknown(&call.key, &call.tool, call.time, &path.to_string_lossy());
    }
    Ok(Journal::new(journal))
}

/// The patterns that the server has learned so far; empty if learning is off.
pub(super) fn patterns(config: &Config) -> Memory {
    pattern_store(config).map_or_else(Memory::default, Memory::kept)
}

/// The store of the learned patterns; `None` if learning is off.
pub(super) fn pattern_store(config: &Config) -> Option<Box<dyn PatternStore>> {
    let place = config.patterns.as_ref()?;
    Some(match place {
        PatternPlace::File(path) => Box::new(PatternFile::at(path)),
        PatternPlace::Store(settings) => Box::new(SharedPatterns::at(settings.clone())),
    })
}

fn predictors(
    config: &Config,
    models: &Models,
    awaits: bool,
    tools: &Registry,
    (metrics, patterns): (&Metrics, &Memory),
) -> Result<Vec<Arc<dyn Predictor>>> {
    let settings = Settings {
        awaits,
        ..prediction_settings(config, models, tools)
    };
    let today = settings.today.clone();
    let mut sources = prediction::sources(settings)?;
    if config.patterns.is_some() {
        let declared = tools.declarations();
        sources.push(Arc::new(Transitions::new(
            &declared,
            today,
            metrics.patterns(),
            patterns.clone(),
        )));
    }
    Ok(sources)
}

/// The tools of a server, and the settings of its sources of predictions.
pub(super) fn predictable(
    config: &Config,
    models: &Models,
) -> Result<(Registry, prediction::Settings)> {
    let tools = registry(config)?;
    let settings = prediction_settings(config, models, &tools);
    Ok((tools, settings))
}

fn prediction_settings(config: &Config, models: &Models, tools: &Registry) -> prediction::Settings {
    let files = ExampleFiles {
        embedder: models.minilm(),
        cache: config.cache.as_ref().map(|cache| cache.join("router.json")),
    };
    let today = Today::new(Arc::new(SystemClock), config.time_zone.clone());
    Settings {
        head: config.router_head.clone(),
        ..Settings::of(tools, files, today)
    }
}

/// The threads of the models on this machine.
pub(super) fn threads(config: &Config) -> ModelThreads {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = ModelThreads::for_cores(cores);
    match &config.asr {
        AsrEngine::WhisperOnnx(_) => threads,
        // It has threads of its own, which spin while they wait for a core.
        AsrEngine::WhisperCpp { threads: own, .. } => ModelThreads {
            recogniser: NonZeroUsize::new(threads.recogniser.get() / own)
                .unwrap_or(NonZeroUsize::MIN),
            ..threads
        },
    }
}

pub(super) fn asr_builder(
    config: &Config,
    models: &Models,
) -> impl Fn() -> Result<Box<dyn Asr>, AsrError> + Send + Sync + use<> {
    let (engine, models) = (config.asr.clone(), models.clone());
    let needs_base = hears_other_languages(config);
    move || {
        let many = || -> Result<_, AsrError> { WhisperOnnx::load(&models.whisper_base()?) };
        let loaded: Box<dyn Asr> = match &engine {
            AsrEngine::WhisperOnnx(OnnxModel::Folder(folder)) => {
                match WhisperLayout::is_in(folder) {
                    true => Box::new(WhisperLayout::load(folder)?),
                    false => Box::new(WhisperOnnx::load(folder)?),
                }
            }
            AsrEngine::WhisperOnnx(OnnxModel::Base) => Box::new(many()?),
            AsrEngine::WhisperOnnx(OnnxModel::BuiltIn) => {
                let english = Box::new(WhisperOnnx::load(&models.whisper_onnx())?);
                match needs_base || models.whisper_base().is_ok() {
                    true => Box::new(ByLanguage::new(english, Box::new(many()?))),
                    false => english,
                }
            }
            AsrEngine::WhisperCpp { model, threads } => {
                let ggml = models.whisper_ggml();
                Box::new(WhisperCpp::load(model.as_ref().unwrap_or(&ggml), *threads)?)
            }
        };
        Ok(loaded)
    }
}

/// Whether the local recogniser has to know another language than English, according to the configuration.
fn hears_other_languages(config: &Config) -> bool {
    let is_other = |tag: &String| base(tag) != ENGLISH;
    // Behind a service the local one only stands in.
    let has_own =
        |agent: &&AgentConfig| agent.recogniser.is_none() && config.speech.recogniser.is_none();
    let agents = config.agents.iter().filter(has_own);
    let agents = agents.filter_map(|agent| agent.language.as_ref());
    let own = config.policy.speaker.language.as_ref();
    let own = own.filter(|_| config.speech.recogniser.is_none());
    let detected = config.detection.among.iter();
    agents.chain(own).chain(detected).any(is_other)
}

pub(super) fn tts_builder(
    config: &Config,
    models: &Models,
) -> impl FnMut() -> Result<Box<dyn Tts>, TtsError> + Send + use<> {
    let path: PathBuf = config.voice.clone().unwrap_or_else(|| models.voice());
    move || tts::load(&path)
}

fn llm(
    config: &Config,
    models: &Models,
    awaits: bool,
    tools: &Registry,
    metrics: &Metrics,
) -> Result<Arc<dyn Llm>> {
    match &config.llm {
        LlmEngine::Brain => {
            let settings = Settings {
                awaits,
                ..prediction_settings(config, models, tools)
            };
            Ok(Arc::new(Brain::start(settings, tools)?))
        }
        LlmEngine::Remote(remote) => with_fallback(remote, metrics),
    }
}

/// The model on a server, with the one that answers in its place.
fn with_fallback(remote: &RemoteLlm, metrics: &Metrics) -> Result<Arc<dyn Llm>> {
    let Some(other) = &remote.fallback else {
        return Ok(Arc::new(remote_llm(remote, |_| ())?));
    };
    let model = remote_llm(remote, |settings| settings.has_fallback = true)?;
    let other = remote_llm(other, |_| ())?;
    let both = Fallback::new(Arc::new(model), Arc::new(other));
    Ok(Arc::new(both.counted(&metrics.fallbacks())))
}

fn draft(config: &Config) -> Result<Option<Arc<dyn Llm>>> {
    let model = config.draft.as_ref();
    let model = model.map(|remote| remote_llm(remote, |_| ()));
    Ok(model
        .transpose()?
        .map(|model| Arc::new(model) as Arc<dyn Llm>))
}

/// The agents, with one connection to each model that they share, and the routes to them.
fn cast(config: &Config, metrics: &Metrics) -> Result<Cast> {
    let mut models: BTreeMap<&str, Arc<dyn Llm>> = BTreeMap::new();
    let mut agents = Vec::new();
    for agent in &config.agents {
        let named = agent.model.as_deref();
        let entry = named.and_then(|name| Some((name, config.further_llms.get(name)?)));
        let model = match entry {
            None => None,
            Some((name, remote)) => {
                let llm = match models.get(name) {
                    Some(known) => known.clone(),
                    None => with_fallback(remote, metrics)?,
                };
                models.insert(name, llm.clone());
                Some((llm, remote.settings.max_tokens))
            }
        };
        agents.push(AgentSettings {
            name: agent.name.clone(),
            description: agent.description.clone(),
            model,
            instructions: agent.instructions.clone(),
            greeting: agent.greeting.clone(),
            voice: agent.voice.clone(),
            speed: agent.speed,
            language: agent.language.clone(),
            recogniser: agent.recogniser.clone(),
            keyterms: agent.keyterms.clone(),
            tools: agent.tools.clone(),
            speculation: agent.speculation,
            plans: agent.plans,
            handoff: agent.handoff.clone(),
        });
    }
    Ok(Cast {
        agents,
        routes: config.routes.clone(),
        keyterms: config.keyterms.clone(),
    })
}

fn voices(config: &Config) -> Result<BTreeMap<String, OtherVoice>> {
    let mut voices = BTreeMap::new();
    for (name, path) in &config.voices {
        let voice = tts::on_demand(path, config.voice_memory);
        let voice = voice.with_context(|| format!("tts.voices.{name}"))?;
        voices.insert(name.clone(), OtherVoice::Local(voice));
    }
    for (name, voice) in &config.speech.voices {
        voices.insert(name.clone(), OtherVoice::Service(tts_service(voice)?));
    }
    Ok(voices)
}

fn recognisers(config: &Config) -> Result<BTreeMap<String, Arc<dyn AsrService>>> {
    let recognisers = config.speech.recognisers.iter();
    recognisers
        .map(|(name, recogniser)| Ok((name.clone(), asr_service(recogniser)?)))
        .collect()
}

/// The recogniser on a server.
pub(super) fn asr_service(recogniser: &RemoteAsr) -> Result<Arc<dyn AsrService>> {
    Ok(match recogniser {
        RemoteAsr::OpenAi(settings) => Arc::new(asr::openai::OpenAi::new(settings.clone())?),
        RemoteAsr::Deepgram(settings) => Arc::new(asr::deepgram::Deepgram::new(settings.clone())?),
    })
}

/// The voice on a server.
pub(super) fn tts_service(voice: &RemoteTts) -> Result<Arc<dyn TtsService>> {
    Ok(match voice {
        RemoteTts::OpenAi(settings) => Arc::new(tts::openai::OpenAi::new(settings.clone())?),
        RemoteTts::ElevenLabs(settings) => {
            Arc::new(tts::elevenlabs::ElevenLabs::new(settings.clone())?)
        }
        RemoteTts::Cartesia(settings) => Arc::new(tts::cartesia::Cartesia::new(settings.clone())?),
    })
}

/// The model on a server, with the settings changed by `adapt`.
pub(super) fn remote_llm(
    remote: &RemoteLlm,
    adapt: impl FnOnce(&mut remote::Settings),
) -> Result<Remote> {
    let mut settings = remote.settings.clone();
    adapt(&mut settings);
    Ok(Remote::new(settings, remote.prompts.clone())?)
}
