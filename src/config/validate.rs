//! Validates the typed settings into the types that use them. Stops at the first error.

use super::agents::Known;
use super::check::TAGS;
use super::check::{Check, Checked};
use super::error::{ConfigError, nearest};
use super::layers::Layers;
use super::raw::{
    RawAsr, RawCallRecording, RawConfig, RawFiller, RawLlm, RawLog, RawModel, RawPhone, RawServer,
    RawSession, RawSpeculation, RawTools, RawTurn, RawTwilio, RawWebhook, RawWebrtc,
};
use super::*;
use crate::conversation::{
    AnswerPolicy, BargeInPolicy, Briefing, EndpointPolicy, FillerLead, FillerPolicy,
    ListeningWords, Opening, SpeculationPolicy, Timeouts, TurnDetection, VadPolicy,
};
use crate::language::{ENGLISH, Pack, is_tag, pack};
use crate::llm::markup::CallForm;
use crate::llm::plan::PLAN;
use crate::llm::remote::{self, Dialect};
use crate::llm::{Calls, Phrases};
use crate::server::{Choosable, Twilio, is_telephone_number};
use crate::session::{DEFAULT_AGENT, check_greeting, check_instructions};
use crate::tools::declared;
use crate::tools::mcp::McpCatalogue;
use crate::tts::{Speaker, Speed};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use url::Url;

/// The shortest token, bytes: a shorter one could be guessed.
const SHORTEST_TOKEN: usize = 16;
const DAY_SECONDS: i64 = 86_400;
/// The value of `asr.model` for Whisper base.
const WHISPER_BASE: &str = "whisper-base";
/// Where Anthropic's own models are.
const ANTHROPIC: &str = "https://api.anthropic.com/v1";
/// The first part of the names of this program's modules.
const PROGRAM: &str = "undertone";
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

pub(super) fn check(
    raw: &RawConfig,
    layers: &Layers,
    env: &Environment,
    scope: Scope,
    warnings: &mut Vec<String>,
) -> Checked<Config> {
    let check = Check { layers, env, scope };
    let policy = check.policy(raw)?;
    let mcp = check.mcp(&raw.mcp)?;
    let (further_llms, voices) = (
        check.further_llms(&raw.llm)?,
        check.voices(&raw.tts.voices)?,
    );
    let speech = check.speech(&raw.asr, &raw.tts)?;
    let (tools, twilio) = (check.tools(&raw.tools, mcp)?, check.twilio(&raw.twilio)?);
    let agents = check.agents(&Known {
        models: &further_llms,
        voices: voices.keys().chain(speech.voices.keys()).collect(),
        recognisers: speech.recognisers.keys().collect(),
        tools: &tools,
        twilio: twilio.as_ref(),
        keypad: check.keypad(&raw.phone)?,
    })?;
    let llm = check.llm(&raw.llm)?;
    if agents.iter().any(|agent| agent.plans == Some(true)) || policy.briefing.plans {
        check.nothing_is_named(PLAN, "what models call to make plans", &tools)?;
    }
    let call_recording = check.call_recording(&raw.call_recording, &agents)?;
    let server = check.server(&raw.server)?;
    let store = check.store(&raw.store)?;
    let config = Config {
        server: ServerSettings {
            outbound: check.outbound(&raw.outbound, twilio.is_some(), &server)?,
            agents: choosable(&agents),
            interrupt: policy.turn_detection.interrupt,
            vad_threshold: policy.vad.threshold,
            twilio,
            openings: check.limits(&raw.limits)?,
            ..server
        },
        tls: check.tls(&raw.tls, &raw.acme)?,
        models: check
            .path("models.dir", &raw.models.dir)
            .unwrap_or_else(crate::models::default_dir),
        asr: check.asr(&raw.asr)?,
        detection: check.detection(&raw.asr)?,
        voice: check.existing("tts.voice", &raw.tts.voice)?,
        draft: check.draft_model(&raw.draft, &further_llms, &llm, &agents)?,
        llm,
        further_llms,
        voices,
        voice_memory: check.whole::<u64>("tts.memory_mb", raw.tts.memory_mb, 64..=65_536)?
            * 1024
            * 1024,
        keyterms: check.keyterms(&raw.asr.keyterms)?,
        speech,
        policy,
        time_zone: check.time_zone(&raw.session.time_zone)?,
        phone: check.phone(&raw.phone)?,
        keypad: check.keypad(&raw.phone)?,
        routes: check.routes(&raw.route, &agents)?,
        agents,
        tools,
        router_head: check.existing("router.head", &raw.router.head)?,
        patterns: check.patterns(&raw.speculation, store.as_ref()),
        store,
        webrtc: check.webrtc(&raw.webrtc)?,
        audiosocket: check.trusting(
            &AUDIOSOCKET,
            &raw.asterisk.audiosocket,
            raw.server.insecure,
        )?,
        cache: check.cache_folder(),
        wyoming: check.trusting(&WYOMING, &raw.wyoming.listen, raw.server.insecure)?,
        demonstration: raw.playground.demonstration,
        call_recording,
        webhook: check.webhook(&raw.webhook)?,
        log: check.log(&raw.log)?,
        traces: check.telemetry(&raw.telemetry, warnings)?,
        audit: check.audit(&raw.audit),
        retention: check.retention(&raw.retention)?,
    };
    warnings.extend(ignored_languages(&config));
    Ok(config)
}

/// A line on languages that are to be detected in sessions whose recogniser is a service.
fn ignored_languages(config: &Config) -> Option<String> {
    let agents = config.agents.iter();
    let open = agents.filter(|agent| agent.language.is_none());
    let mut own = open.filter_map(|agent| agent.recogniser.as_ref());
    let (service, or) = match &config.speech.recogniser {
        Some(service) => (service, ""),
        None => (own.next()?, ", or give their agents a `language`"),
    };
    (!config.detection.among.is_empty()).then(|| {
        format!(
            "asr.languages has no effect in sessions with the recogniser \"{service}\": services do not detect \
             languages; leave these sessions to the local recogniser{or}"
        )
    })
}

/// The agents that clients may choose, with the one that is always there.
fn choosable(agents: &[AgentConfig]) -> Choosable {
    let default = (DEFAULT_AGENT.to_owned(), false);
    let default = Some(default).filter(|_| !agents.is_empty());
    let named = agents
        .iter()
        .map(|agent| (agent.name.clone(), agent.by_name));
    default.into_iter().chain(named).collect()
}

/// A listener for a protocol without authentication.
struct TrustingDoor {
    key: &'static str,
    protocol: &'static str,
    /// The fix to show if the address is malformed.
    example: &'static str,
    /// A safer choice to suggest if the address is reachable from other machines.
    safer: &'static str,
}

const AUDIOSOCKET: TrustingDoor = TrustingDoor {
    key: "asterisk.audiosocket",
    protocol: "AudioSocket",
    example: "use 127.0.0.1:9092 for an Asterisk on this machine",
    safer: "a loopback address or chan_websocket",
};

const WYOMING: TrustingDoor = TrustingDoor {
    key: "wyoming.listen",
    protocol: "Wyoming",
    example: "use 127.0.0.1:10300 for a Home Assistant on this machine",
    safer: "a loopback address",
};

/// Whether this is a Twilio account SID.
fn is_account(sid: &str) -> bool {
    let digits = sid.strip_prefix("AC").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The first word of a log filter that may have been meant as a level, if nothing in the filter lets this program log.
/// [`EnvFilter`] takes it for the name of a module.
fn no_level(filter: &str) -> Option<&str> {
    let directives = || filter.split(',').filter(|directive| !directive.is_empty());
    let lets_log = |directive: &str| {
        let target = directive.split(['=', '[']).next().unwrap_or_default();
        let is_level = directive.parse::<LevelFilter>().is_ok();
        is_level || PROGRAM.starts_with(target) || target.starts_with(PROGRAM)
    };
    let is_word =
        |directive: &&str| !directive.contains("::") && !directive.contains(['=', '[', '_']);
    match directives().any(lets_log) {
        true => None,
        false => directives().find(is_word),
    }
}

impl Check<'_> {
    fn webrtc(&self, raw: &RawWebrtc) -> Checked<WebrtcConfig> {
        let port: u16 = self.whole("webrtc.udp_port", raw.udp_port, 0..=65_535)?;
        let read = |typed: &String| {
            let address = typed.trim().parse::<IpAddr>().ok();
            let told = address.filter(|address| !address.is_unspecified());
            told.ok_or_else(|| {
                let key = "webrtc.advertise";
                let problem = format!("{key}: \"{typed}\" is not the IP address of a machine");
                let fix = "list the addresses at which browsers reach this server, such as \"203.0.113.7\"";
                self.wrong(key, problem, fix)
            })
        };
        Ok(WebrtcConfig {
            port: Some(port).filter(|port| *port != 0),
            tcp: raw.tcp,
            advertise: raw.advertise.iter().map(read).collect::<Checked<_>>()?,
        })
    }

    fn server(&self, raw: &RawServer) -> Checked<ServerSettings> {
        let port = self.whole("server.port", raw.port, 0..=65_535)?;
        let drain = self.seconds("server.drain_seconds", raw.drain_seconds, 0..=3_600)?;
        let server = ServerSettings {
            bind: SocketAddr::new(self.host(&raw.host)?, port),
            max_sessions: self.whole("server.max_sessions", raw.max_sessions, 1..=10_000)?,
            allowed_origins: self.origins(&raw.allowed_origins)?,
            auth_token: self.token(
                "server.auth_token_file",
                &raw.auth_token_file,
                "UNDERTONE_AUTH_TOKEN",
            )?,
            client_secret_key: self.token(
                "server.client_secret_key_file",
                &raw.client_secret_key_file,
                "UNDERTONE_CLIENT_SECRET_KEY",
            )?,
            insecure: raw.insecure,
            offer_services: raw.offer_services,
            drain_deadline: drain.duration(),
            ..ServerSettings::default()
        };
        let host = server.bind.ip();
        if server.is_safe_on(host) || self.scope < Scope::Server {
            return Ok(server);
        }
        Err(self.wrong(
            "server.host",
            format!("server.host = \"{host}\" lets other machines in without a token"),
            "set UNDERTONE_AUTH_TOKEN or server.auth_token_file, or use --insecure if that is intended",
        ))
    }

    fn asr(&self, raw: &RawAsr) -> Checked<AsrEngine> {
        let is_base = raw.model == WHISPER_BASE;
        let named = if is_base { "" } else { &raw.model };
        let model = self.existing("asr.model", named)?;
        let threads = self.whole("asr.threads", raw.threads, 1..=64)?;
        let onnx = AsrEngine::WhisperOnnx(match &model {
            Some(folder) => OnnxModel::Folder(folder.clone()),
            None if is_base => OnnxModel::Base,
            None => OnnxModel::BuiltIn,
        });
        let cpp = AsrEngine::WhisperCpp { model, threads };
        let engines = [("whisper-onnx", onnx), ("whisper-cpp", cpp)];
        let engine = self.choice("asr.engine", &raw.engine, &engines)?;
        if is_base && matches!(engine, AsrEngine::WhisperCpp { .. }) {
            let problem = format!("asr.model: {WHISPER_BASE} is no model for whisper-cpp");
            let fix = "set asr.engine to \"whisper-onnx\", or name a ggml file";
            return Err(self.wrong("asr.model", problem, fix));
        }
        Ok(engine)
    }

    fn detection(&self, raw: &RawAsr) -> Checked<LanguageDetection> {
        if let Some(language) = raw.languages.iter().find(|language| !is_tag(language)) {
            let problem = format!("asr.languages: \"{language}\" is no BCP 47 tag");
            return Err(self.wrong("asr.languages", problem, TAGS));
        }
        if let (Some(language), "whisper-cpp") = (raw.languages.first(), &*raw.engine) {
            let problem =
                format!("asr.languages: whisper-cpp cannot detect \"{language}\" or any language");
            let fix = "set asr.engine to \"whisper-onnx\", or leave asr.languages empty";
            return Err(self.wrong("asr.languages", problem, fix));
        }
        Ok(LanguageDetection {
            among: raw.languages.clone(),
            follow: raw.follow_language,
        })
    }

    fn policy(&self, raw: &RawConfig) -> Checked<Policy> {
        let RawConfig { llm, session, .. } = raw;
        Ok(Policy {
            vad: self.vad(&raw.turn)?,
            endpoint: self.endpoint(&raw.turn)?,
            turn_detection: TurnDetection {
                interrupt: raw.turn.interrupt,
                ..TurnDetection::default()
            },
            timeouts: self.timeouts(raw)?,
            tool_steps: self.whole("session.max_tool_steps", session.max_tool_steps, 0..=20)?,
            answer: self.answer(&raw.session)?,
            opening: Opening::greeting(self.greeting("session.greeting", &session.greeting)?),
            briefing: Briefing {
                instructions: self.instructions(llm)?,
                plans: session.plans,
                ..Briefing::default()
            },
            speculation: SpeculationPolicy {
                draft: self.draft_policy(&raw.draft)?,
                ..self.speculation(&raw.speculation)?
            },
            filler: self.filler(&raw.filler)?,
            phrases: self.phrases(pack(Some(&session.language)), &session.phrases_file)?,
            speaker: Speaker {
                voice: self.one_service("tts.service", &raw.tts.service, &raw.tts.services)?,
                speed: self.speed(raw.tts.speed)?,
                ..self.speaker(&session.language)?
            },
            ..Policy::default()
        })
    }

    fn timeouts(&self, raw: &RawConfig) -> Checked<Timeouts> {
        let RawConfig { llm, session, .. } = raw;
        let (idle, session) = (session.idle_seconds, session.max_seconds);
        let timeouts = Timeouts {
            dead_air: self.millis("llm.stall_filler_ms", llm.stall_filler_ms, 100..=60_000)?,
            generation_timeout: self.millis("llm.give_up_ms", llm.give_up_ms, 500..=120_000)?,
            thinking: self.millis("llm.think_ms", llm.think_ms, 500..=600_000)?,
            idle: self.seconds("session.idle_seconds", idle, 5..=DAY_SECONDS)?,
            session: self.seconds("session.max_seconds", session, 10..=DAY_SECONDS)?,
            ..Timeouts::default()
        };
        self.ordered(
            ("llm.stall_filler_ms", llm.stall_filler_ms),
            ("llm.give_up_ms", llm.give_up_ms),
        )?;
        Ok(timeouts)
    }

    fn vad(&self, raw: &RawTurn) -> Checked<VadPolicy> {
        let threshold = self.real("turn.vad_threshold", raw.vad_threshold, 0.05..=0.95)?;
        let start_ms = self.whole("turn.start_ms", raw.start_ms, 32..=1_000)?;
        let listening_words = [
            ("pause", ListeningWords::Pause),
            ("pass", ListeningWords::Pass),
            ("interrupt", ListeningWords::Interrupt),
        ];
        let typed = &raw.listening_words;
        let listening_words = self.choice("turn.listening_words", typed, &listening_words)?;
        Ok(VadPolicy {
            barge_in: BargeInPolicy {
                listening_words,
                min_words: self.whole("turn.min_words", raw.min_words, 1..=10)?,
            },
            ..VadPolicy::at(threshold as f32, start_ms)
        })
    }

    fn endpoint(&self, raw: &RawTurn) -> Checked<EndpointPolicy> {
        let endpoint = EndpointPolicy {
            partial_every_ms: self.whole("turn.partial_ms", raw.partial_ms, 100..=10_000)?,
            complete_ms: self.whole("turn.complete_ms", raw.complete_ms, 100..=5_000)?,
            unsure_ms: self.whole("turn.unsure_ms", raw.unsure_ms, 100..=10_000)?,
            incomplete_ms: self.whole("turn.incomplete_ms", raw.incomplete_ms, 100..=20_000)?,
            ..EndpointPolicy::default()
        };
        let unsure = ("turn.unsure_ms", endpoint.unsure_ms);
        self.ordered(("turn.complete_ms", endpoint.complete_ms), unsure)?;
        self.ordered(unsure, ("turn.incomplete_ms", endpoint.incomplete_ms))?;
        Ok(endpoint)
    }

    fn answer(&self, raw: &RawSession) -> Checked<AnswerPolicy> {
        let (words, seconds) = (raw.max_answer_words, raw.max_answer_seconds);
        Ok(AnswerPolicy {
            words: self.whole("session.max_answer_words", words, 10..=100_000)?,
            speech: self.seconds("session.max_answer_seconds", seconds, 5..=DAY_SECONDS)?,
        })
    }

    /// The remote servers' settings are checked even if another engine is selected.
    fn llm(&self, raw: &RawLlm) -> Checked<LlmEngine> {
        let engines = [
            ("brain", false),
            ("openai-compatible", true),
            ("anthropic", true),
        ];
        let is_remote = self.choice("llm.engine", &raw.engine, &engines)?;
        let primary = self.remote("llm", &raw.model(), is_remote)?;
        let fallback = self.fallback("llm", &raw.fallback, &self.entries(raw)?)?;
        self.chosen_engine(raw)?;
        Ok(match primary.filter(|_| is_remote) {
            Some(primary) => LlmEngine::Remote(Box::new(RemoteLlm {
                fallback,
                ..primary
            })),
            None => LlmEngine::Brain,
        })
    }

    /// Refuses settings of a model on a server if no engine was chosen: the local brain would answer without them.
    fn chosen_engine(&self, raw: &RawLlm) -> Checked<()> {
        let is_chosen = self.layers.origin("llm.engine") != SettingOrigin::Default;
        let of_servers = [
            ("llm.base_url", &raw.base_url),
            ("llm.model", &raw.model),
            ("llm.fallback", &raw.fallback),
        ];
        let mut of_servers = of_servers.into_iter();
        match of_servers.find(|(_, typed)| !typed.trim().is_empty()) {
            Some((key, _)) if !is_chosen => Err(self.wrong(
                key,
                format!("{key} is set, but without llm.engine the local brain answers"),
                "add engine = \"openai-compatible\" to [llm] (or \"anthropic\"; \"brain\" keeps the local brain)",
            )),
            _ => Ok(()),
        }
    }

    /// The further models, each with its fallback.
    fn further_llms(&self, raw: &RawLlm) -> Checked<BTreeMap<String, RemoteLlm>> {
        let entries = self.entries(raw)?;
        let mut models = entries.clone();
        for (name, model) in &mut models {
            let section = format!("llm.models.{name}");
            let typed = raw.models.get(name).map_or("", |entry| &entry.fallback);
            if typed.trim() == name {
                return Err(self.wrong(
                    &format!("{section}.fallback"),
                    format!("{section}.fallback names the model itself"),
                    "name another model, or remove it",
                ));
            }
            model.fallback = self.fallback(&section, typed, &entries)?;
        }
        Ok(models)
    }

    /// The model that answers in place of another. Its own fallback is not asked.
    fn fallback(
        &self,
        section: &str,
        typed: &str,
        entries: &BTreeMap<String, RemoteLlm>,
    ) -> Checked<Option<Box<RemoteLlm>>> {
        let name = typed.trim();
        match entries.get(name) {
            Some(model) => Ok(Some(Box::new(model.clone()))),
            None if name.is_empty() => Ok(None),
            None => {
                let key = format!("{section}.fallback");
                let problem = format!("{key} = \"{name}\" is not among llm.models");
                let fix =
                    "add a section [llm.models.NAME] with base_url and model, and name it here";
                Err(self.wrong(&key, problem, fix))
            }
        }
    }

    /// The further models without their fallbacks.
    fn entries(&self, raw: &RawLlm) -> Checked<BTreeMap<String, RemoteLlm>> {
        let mut models = BTreeMap::new();
        for (name, entry) in &raw.models {
            let section = format!("llm.models.{name}");
            models.extend(
                self.remote(&section, entry, true)?
                    .map(|model| (name.clone(), model)),
            );
        }
        Ok(models)
    }

    /// A model on a server; `None` if there is no address, which is an error if it is `needed`.
    fn remote(&self, section: &str, raw: &RawModel, needed: bool) -> Checked<Option<RemoteLlm>> {
        let key = |name: &str| format!("{section}.{name}");
        let dialects = [
            ("openai-compatible", Dialect::ChatCompletions),
            ("anthropic", Dialect::Messages),
        ];
        let dialect = self.choice(&key("engine"), &raw.engine, &dialects)?;
        let typed = match dialect {
            Dialect::Messages if raw.base_url.trim().is_empty() => ANTHROPIC,
            _ => &raw.base_url,
        };
        let base_url = self.base_url(&key("base_url"), typed, needed, dialect)?;
        let fix = "name the model to ask for";
        let model = self.needed(&key("model"), &raw.model, needed, fix)?;
        let api_key = self.api_key(section, &raw.api_key_file, &raw.api_key_env)?;
        let api_key_file = self.path(&key("api_key_file"), &raw.api_key_file);
        let temperature = raw
            .temperature
            .map(|typed| self.real(&key("temperature"), typed, 0.0..=2.0))
            .transpose()?
            .map(|temperature| temperature as f32);
        let max_tokens = self.whole(&key("max_tokens"), raw.max_tokens, 1..=32_768)?;
        let (most, range) = (raw.max_prompt_tokens, 500..=1_000_000);
        let max_prompt_tokens = self.whole(&key("max_prompt_tokens"), most, range)?;
        let kinds = [("markup", Calls::Markup), ("native", Calls::Native)];
        let calls = self.choice(&key("calls"), &raw.calls, &kinds)?;
        let can_go_on = dialect == Dialect::ChatCompletions && calls == Calls::Native;
        if raw.tool_cache && !can_go_on {
            return Err(self.wrong(
                &key("tool_cache"),
                format!("{section}.tool_cache is only for native calls of chat completions"),
                &format!("set {section}.calls = \"native\" with engine = \"openai-compatible\", or remove it"),
            ));
        }
        let prompts = self.prompts(section, raw)?;
        let effort = raw.reasoning_effort.trim();
        Ok(base_url.map(|base_url| RemoteLlm {
            section: section.to_owned(),
            settings: remote::Settings {
                dialect,
                api_key_file: api_key_file.filter(|_| api_key.is_some()),
                api_key,
                temperature,
                max_tokens: Some(max_tokens),
                reasoning_effort: (!effort.is_empty()).then(|| effort.to_owned()),
                calls,
                thinks_first: raw.thinks_first,
                tool_cache: raw.tool_cache,
                extra_body: raw.extra_body.clone(),
                ..remote::Settings::new(base_url, model)
            },
            max_prompt_tokens,
            limited_by: self.layers.origin(&key("max_prompt_tokens")),
            prompts: prompts.limited(max_prompt_tokens),
            fallback: None,
        }))
    }

    /// How the prompts of a model are written.
    fn prompts(&self, section: &str, raw: &RawModel) -> Checked<Prompts> {
        let forms = [
            ("python", CallForm::Python),
            ("json", CallForm::Json),
            ("hermes", CallForm::Hermes),
        ];
        let form = self.choice(&format!("{section}.call_form"), &raw.call_form, &forms)?;
        let prompts = Prompts::default()
            .in_form(form)
            .with_words_before_calls(raw.speaks_before_calls);
        let key = format!("{section}.prompt_file");
        let (path, text) = (
            self.path(&key, &raw.prompt_file),
            self.text_file(&key, &raw.prompt_file)?,
        );
        let (Some(path), Some(text)) = (path, text) else {
            return Ok(prompts);
        };
        prompts.with_template(&text).map_err(|error| ConfigError {
            origin: SettingOrigin::File {
                path,
                line: error.line,
            },
            problem: format!("{key}: {}", error.problem),
            fix: error.fix,
        })
    }

    /// The server's default voice in this language.
    fn speaker(&self, language: &str) -> Checked<Speaker> {
        if !is_tag(language) {
            let problem = format!("session.language: \"{language}\" is no BCP 47 tag");
            return Err(self.wrong("session.language", problem, TAGS));
        }
        // Recordings and prompts of those who never chose a language name none.
        let chosen = (language != ENGLISH).then(|| language.to_owned());
        Ok(Speaker {
            language: chosen,
            ..Speaker::default()
        })
    }

    /// The speed of the server's voices; `None` if it is the usual one.
    fn speed(&self, typed: f64) -> Checked<Option<Speed>> {
        let speed = Speed::of(self.real("tts.speed", typed, 0.25..=4.0)?);
        Ok(speed.filter(|speed| *speed != Speed::NORMAL))
    }

    fn phrases(&self, language: &Pack, typed: &str) -> Checked<Phrases> {
        let key = "session.phrases_file";
        Phrases::load(language, self.path(key, typed).as_deref()).map_err(|error| {
            let fix = "name a TOML file with some of the keys of prompts/phrases.toml";
            self.wrong(key, format!("{key}: {error}"), fix)
        })
    }

    fn phone(&self, raw: &RawPhone) -> Checked<PhoneSettings> {
        let silence = self.seconds("phone.silence_seconds", raw.silence_seconds, 0..=300)?;
        Ok(PhoneSettings {
            greeting: self.greeting("phone.greeting", &raw.greeting)?,
            silence_prompt: (raw.silence_seconds > 0).then_some(silence),
        })
    }

    /// The calls in which agents may press keys.
    fn keypad(&self, raw: &RawPhone) -> Checked<Option<Keypad>> {
        let calls = [
            ("never", None),
            ("placed", Some(Keypad::PlacedCalls)),
            ("always", Some(Keypad::EveryCall)),
        ];
        self.choice("phone.send_digits", &raw.send_digits, &calls)
    }

    fn call_recording(
        &self,
        raw: &RawCallRecording,
        agents: &[AgentConfig],
    ) -> Checked<Option<CallRecordingConfig>> {
        let Some(folder) = self.path("call_recording.folder", &raw.folder) else {
            return Ok(None);
        };
        let names = agents.iter().map(|agent| agent.name.as_str());
        let names: Vec<&str> = names.chain([DEFAULT_AGENT]).collect();
        let mut named = raw.agents.iter();
        let unknown = named.find(|name| !names.contains(&name.as_str()));
        // Models need no agents, so none were read.
        if let Some(unknown) = unknown.filter(|_| self.scope > Scope::Models) {
            let problem = format!("call_recording.agents: there is no agent \"{unknown}\"");
            let fix = format!("name some of: {}", names.join(", "));
            return Err(self.wrong("call_recording.agents", problem, &fix));
        }
        Ok(Some(CallRecordingConfig {
            folder,
            consent: raw.consent.clone(),
            agents: raw.agents.clone(),
        }))
    }

    fn webhook(&self, raw: &RawWebhook) -> Checked<Option<WebhookConfig>> {
        if self.scope < Scope::Server || raw.url.trim().is_empty() {
            return Ok(None);
        }
        let example = "give the address of your service, as in https://example.com/calls";
        let url = self.address("webhook.url", &raw.url, example)?;
        let fix = "make one with: echo whsec_$(openssl rand -base64 32)";
        let typed = self.secret("webhook.secret_file", &raw.secret_file, WEBHOOK_SECRET)?;
        let Some((origin, typed)) = typed else {
            let problem = format!(
                "webhook.url is set, but neither webhook.secret_file nor {WEBHOOK_SECRET} has a secret to sign with"
            );
            return Err(self.wrong("webhook.url", problem, fix));
        };
        let secret = Secret::new(&typed);
        let secret = secret.map_err(|error| {
            let problem = format!("{origin} has no secret: {error}");
            self.wrong("webhook.secret_file", problem, fix)
        })?;
        Ok(Some(WebhookConfig { url, secret }))
    }

    fn twilio(&self, raw: &RawTwilio) -> Checked<Option<Twilio>> {
        if self.scope < Scope::Server {
            return Ok(None);
        }
        let token = self.secret(
            "twilio.auth_token_file",
            &raw.auth_token_file,
            "UNDERTONE_TWILIO_AUTH_TOKEN",
        )?;
        if raw.public_url.trim().is_empty() {
            return Ok(None);
        }
        let public_url = self.address(
            "twilio.public_url",
            &raw.public_url,
            "give the address that Twilio calls, as in https://voice.example.com",
        )?;
        if !is_account(&raw.account_sid) {
            return Err(self.wrong(
                "twilio.account_sid",
                "twilio.account_sid is not \"AC\" and 32 hexadecimal digits".into(),
                "copy the Account SID from Twilio's console",
            ));
        }
        let Some((_, auth_token)) = token else {
            return Err(self.wrong(
                "twilio.public_url",
                "twilio.public_url is set, but there is no auth token to verify Twilio's signatures"
                    .into(),
                "set UNDERTONE_TWILIO_AUTH_TOKEN or twilio.auth_token_file",
            ));
        };
        Ok(Some(Twilio {
            public_url,
            account_sid: raw.account_sid.clone(),
            auth_token: auth_token.into(),
            api_url: self.address(
                "twilio.api_url",
                &raw.api_url,
                "leave it out: https://api.twilio.com is the default",
            )?,
            transfer: self.transfer(&raw.transfer)?,
            relay: raw.relay,
        }))
    }

    fn transfer(&self, raw: &BTreeMap<String, String>) -> Checked<BTreeMap<String, String>> {
        for (name, number) in raw {
            if name.trim().is_empty() || !is_telephone_number(number) {
                return Err(self.wrong(
                    "twilio.transfer",
                    format!("twilio.transfer: {name:?} = {number:?} is not a telephone number"),
                    "write it with + and the country's code, without spaces, as in \"+15551234567\"",
                ));
            }
        }
        Ok(raw.clone())
    }

    fn speculation(&self, raw: &RawSpeculation) -> Checked<SpeculationPolicy> {
        let (value, price) = (raw.value_per_second, raw.token_price);
        let assumed = raw.assumed_per_turn;
        let most = raw.token_cost_per_day;
        let most = self.real("speculation.token_cost_per_day", most, 0.0..=1_000_000.0)?;
        if most > 0.0 && price == 0.0 {
            return Err(self.wrong(
                "speculation.token_cost_per_day",
                "speculation.token_cost_per_day limits what tokens cost, and speculation.token_price is 0".into(),
                "set speculation.token_price to the price of a million tokens",
            ));
        }
        Ok(SpeculationPolicy {
            enabled: raw.enabled,
            per_turn: self.whole("speculation.per_turn", raw.per_turn, 0..=20)?,
            at_once: self.whole("speculation.at_once", raw.at_once, 0..=20)?,
            value_per_second: self.real("speculation.value_per_second", value, 0.0..=1_000.0)?,
            preemptive: raw.preemptive,
            assumed_per_turn: self.whole("speculation.assumed_per_turn", assumed, 0..=5)?,
            token_price: self.real("speculation.token_price", price, 0.0..=100_000.0)?,
            token_cost_per_day: (most > 0.0).then_some(most),
            ..SpeculationPolicy::default()
        })
    }

    fn filler(&self, raw: &RawFiller) -> Checked<FillerPolicy> {
        let leads = [("model", FillerLead::Model), ("router", FillerLead::Router)];
        Ok(FillerPolicy {
            lead: self.choice("filler.lead", &raw.lead, &leads)?,
            confidence: self.real("filler.confidence", raw.confidence, 0.0..=1.0)? as f32,
            worth_ms: self.whole("filler.worth_ms", raw.worth_ms, 0..=60_000)?,
            long_ms: self.whole("filler.long_ms", raw.long_ms, 0..=60_000)?,
        })
    }

    /// The tools' settings. The folder may be missing if no setting names it.
    fn tools(&self, raw: &RawTools, mcp: McpCatalogue) -> Checked<ToolsConfig> {
        let key = "tools.folder";
        let folder = self.path(key, &raw.folder);
        let folder = folder.filter(|_| self.scope > Scope::Models);
        let (folder, missing) = match folder {
            Some(folder) if !folder.is_dir() => {
                (None, Some(std::path::absolute(&folder).unwrap_or(folder)))
            }
            folder => (folder, None),
        };
        let is_named = self.layers.origin(key) != SettingOrigin::Default;
        if let Some(missing) = missing.as_ref().filter(|_| is_named) {
            return Err(self.wrong(
                key,
                format!("{key}: there is no folder {}", missing.display()),
                "correct the path, or set it to \"\" for the built-in tools only",
            ));
        }
        let variable = |name: &str| self.env.get(name).map(str::to_owned);
        let declared = folder
            .as_deref()
            .map(|folder| declared::load_with(folder, &variable, &mcp));
        let declared = declared
            .transpose()
            .map_err(ConfigError::from)?
            .unwrap_or_default();
        let journal = self.path("tools.journal", &raw.journal);
        Ok(ToolsConfig {
            folder,
            missing,
            declared,
            mcp,
            journal: journal.unwrap_or_else(|| self.state_folder().join("journal.jsonl")),
        })
    }

    /// Servers with a shared store learn together, unless a file is named.
    fn patterns(
        &self,
        raw: &RawSpeculation,
        store: Option<&StoreSettings>,
    ) -> Option<PatternPlace> {
        let named = self.path("speculation.patterns_file", &raw.patterns_file);
        let place = match (named, store) {
            (Some(file), _) => PatternPlace::File(file),
            (None, Some(store)) => PatternPlace::Store(store.clone()),
            (None, None) => PatternPlace::File(self.state_folder().join("patterns.json")),
        };
        (raw.enabled && raw.patterns).then_some(place)
    }

    /// The state folder of the XDG Base Directory Specification.
    pub(super) fn state_folder(&self) -> PathBuf {
        let state = self.home_folder("XDG_STATE_HOME", ".local/state");
        state.unwrap_or_else(|| std::env::temp_dir().join("undertone"))
    }

    /// The cache folder of the same specification. Without a home there is none: others could write to a
    /// folder that all users share.
    fn cache_folder(&self) -> Option<PathBuf> {
        self.home_folder("XDG_CACHE_HOME", ".cache")
    }

    fn home_folder(&self, variable: &str, in_home: &str) -> Option<PathBuf> {
        let named = self.env.get(variable).map(PathBuf::from);
        let named = named.filter(|path| path.is_absolute());
        let home = || Some(Path::new(self.env.get("HOME")?).join(in_home));
        Some(named.or_else(home)?.join("undertone"))
    }

    fn log(&self, raw: &RawLog) -> Checked<LogConfig> {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let fix = "use error, warn, info, debug or trace, or directives such as undertone=debug";
        let (key, typed) = ("log.level", &raw.level);
        let is_blank = |directive: &str| directive.trim().is_empty();
        if typed.split(',').all(is_blank) {
            let problem = format!("{key} = \"{typed}\" logs nothing");
            return Err(self.wrong(key, problem, &format!("{fix}, or off for no log at all")));
        }
        if let Err(error) = EnvFilter::try_new(typed) {
            return Err(self.wrong(key, format!("{key} = \"{typed}\": {error}"), fix));
        }
        if let Some(word) = no_level(typed) {
            let meant = nearest(word.trim().to_lowercase().as_str(), &LOG_LEVELS)
                .map(|near| format!("did you mean \"{near}\"? "))
                .unwrap_or_default();
            let problem =
                format!("{key} = \"{typed}\" logs nothing of this program: \"{word}\" is no level");
            return Err(self.wrong(key, problem, &format!("{meant}{fix}")));
        }
        Ok(LogConfig {
            filter: raw.level.clone(),
            format: self.choice("log.format", &raw.format, &formats)?,
            turns: self.path("log.turns", &raw.turns),
        })
    }

    /// The address of a protocol without authentication: loopback only, unless `insecure`.
    fn trusting(
        &self,
        door: &TrustingDoor,
        typed: &str,
        insecure: bool,
    ) -> Checked<Option<SocketAddr>> {
        let TrustingDoor {
            key,
            protocol,
            example,
            safer,
        } = door;
        if typed.is_empty() {
            return Ok(None);
        }
        let address: SocketAddr = typed.parse().map_err(|_| {
            let problem = format!("{key} = \"{typed}\" is not an IP address and a port");
            self.wrong(key, problem, example)
        })?;
        if address.ip().is_loopback() || insecure {
            return Ok(Some(address));
        }
        Err(self.wrong(
            key,
            format!(
                "{key} = \"{typed}\" lets other machines in, but {protocol} has no authentication"
            ),
            &format!("use {safer}, or --insecure if a firewall restricts access"),
        ))
    }

    fn host(&self, typed: &str) -> Checked<IpAddr> {
        if typed == "localhost" {
            return Ok(IpAddr::from([127, 0, 0, 1]));
        }
        typed.parse().map_err(|_| {
            self.wrong(
                "server.host",
                format!("server.host = \"{typed}\" is not an IP address"),
                "use 127.0.0.1 for this machine only, 0.0.0.0 for every IPv4 interface",
            )
        })
    }

    fn origins(&self, typed: &[String]) -> Checked<Vec<String>> {
        typed.iter().map(|origin| self.web_origin(origin)).collect()
    }

    fn web_origin(&self, typed: &str) -> Checked<String> {
        let origin = Url::parse(typed).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none()
        });
        origin
            .map(|url| url.origin().ascii_serialization())
            .ok_or_else(|| {
                self.wrong(
                    "server.allowed_origins",
                    format!("server.allowed_origins has \"{typed}\", which is not a web origin"),
                    "write only scheme, host and port, as in https://example.org",
                )
            })
    }

    /// A secret that must be long enough not to be guessed.
    fn token(&self, key: &str, file: &str, variable: &str) -> Checked<Option<SecretString>> {
        if self.scope == Scope::Models {
            return Ok(None);
        }
        let Some((key, token)) = self.secret(key, file, variable)? else {
            return Ok(None);
        };
        if token.len() < SHORTEST_TOKEN {
            return Err(self.wrong(
                key,
                format!("the token of {key} is too short to be safe"),
                &format!("use at least {SHORTEST_TOKEN} characters: `openssl rand -hex 32`"),
            ));
        }
        Ok(Some(token.into()))
    }

    /// The key in the file or in the variable that a section names.
    pub(super) fn api_key(
        &self,
        section: &str,
        file: &str,
        variable: &str,
    ) -> Checked<Option<SecretString>> {
        if self.scope == Scope::Models {
            return Ok(None);
        }
        let (in_file, in_env) = (
            format!("{section}.api_key_file"),
            format!("{section}.api_key_env"),
        );
        let file = self.secret_file(&in_file, file)?;
        if variable.is_empty() {
            return Ok(file.map(Into::into));
        }
        if file.is_some() {
            return Err(self.wrong(
                &in_env,
                format!("{in_file} and {in_env} are both set"),
                "keep one of them",
            ));
        }
        match self.env.get(variable) {
            Some(key) => Ok(Some(key.trim().into())),
            None => Err(self.wrong(
                &in_env,
                format!(
                    "{in_env} names a variable that is not set: {}",
                    self.name_or_hint(variable)
                ),
                "set that variable, or name the one that holds the key (the name, not the key)",
            )),
        }
    }

    /// The variable's name, unless it may be the key itself, typed by mistake: that must not be
    /// printed.
    pub(super) fn name_or_hint<'a>(&self, typed: &'a str) -> &'a str {
        let is_name = typed
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        if is_name { typed } else { "<not shown>" }
    }

    fn greeting(&self, key: &str, typed: &str) -> Checked<String> {
        let typed = typed.trim();
        check_greeting(typed)
            .map_err(|(problem, fix)| self.wrong(key, format!("{key}: {problem}"), &fix))?;
        Ok(typed.to_owned())
    }

    fn instructions(&self, raw: &RawLlm) -> Checked<Option<String>> {
        let file = self.text_file("llm.instructions_file", &raw.instructions_file)?;
        if file.is_some() && !raw.instructions.is_empty() {
            return Err(self.wrong(
                "llm.instructions_file",
                "llm.instructions and llm.instructions_file are both set".into(),
                "keep one of them",
            ));
        }
        let key = match file {
            Some(_) => "llm.instructions_file",
            None => "llm.instructions",
        };
        let text = file.unwrap_or_else(|| raw.instructions.clone());
        check_instructions(&text)
            .map_err(|(problem, fix)| self.wrong(key, format!("{key}: {problem}"), &fix))?;
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    fn base_url(
        &self,
        key: &str,
        typed: &str,
        needed: bool,
        dialect: Dialect,
    ) -> Checked<Option<Url>> {
        let fix = "give the address up to /v1, as in http://127.0.0.1:11434/v1, and the key in \
                   api_key_file or the variable that api_key_env names";
        if self.needed(key, typed, needed, fix)?.is_empty() {
            return Ok(None);
        }
        let is_azure = dialect == Dialect::ChatCompletions && typed.contains(".azure.com/");
        let of_azure = match is_azure {
            true => {
                "; Azure's address is https://RESOURCE.openai.azure.com/openai/v1, and model is \
                 the deployment's name"
            }
            false => "",
        };
        self.address(key, typed, &format!("{fix}{of_azure}"))
            .map(Some)
    }

    fn needed(&self, key: &str, typed: &str, needed: bool, fix: &str) -> Checked<String> {
        if !needed || !typed.trim().is_empty() {
            return Ok(typed.trim().to_owned());
        }
        Err(match key.strip_prefix("llm.models.") {
            Some(_) => self.wrong("llm.models", format!("{key} is missing"), fix),
            None => {
                let problem = format!("a language model on a server needs {key}");
                self.wrong("llm.engine", problem, fix)
            }
        })
    }

    fn time_zone(&self, typed: &str) -> Checked<TimeZone> {
        if typed.is_empty() {
            return Ok(TimeZone::try_system().unwrap_or(TimeZone::UTC));
        }
        TimeZone::get(typed).map_err(|_| {
            self.wrong(
                "session.time_zone",
                format!("session.time_zone = \"{typed}\" is not a time zone of this system"),
                "use a name of the IANA database such as Europe/Berlin (package tzdata)",
            )
        })
    }
}
