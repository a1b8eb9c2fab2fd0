//! Configuration: one TOML file, `UNDERTONE_*` variables and a few options. It is read and checked
//! as a whole, and the rest of the program sees only [`Config`].
//!
//! Later layers win: built-in defaults, the file (`--config`, else `UNDERTONE_CONFIG`, else
//! `undertone.toml` in the working directory if it exists), `UNDERTONE_SECTION__KEY` variables,
//! command-line options. A relative path in the file, or one that is the default, is resolved against
//! the file's folder, any other against the working directory. Nothing else in the program reads the
//! environment, except that reqwest looks there for the proxies to the language model and Twilio, and
//! that tools over HTTP say in the log that they use none.

mod agents;
mod check;
mod draft;
mod error;
mod layers;
mod mcp;
mod operation;
mod outbound;
mod raw;
mod speech;
mod validate;
mod verify;

pub use crate::telemetry::LogFormat;
pub use error::{ConfigError, SettingOrigin};
pub use layers::Ignored;
pub use speech::{RemoteAsr, RemoteTts, SpeechServices};

use crate::conversation::{Briefing, Policy, TextLimits};
use crate::llm::{Demands, Prompt, Prompts, remote};
use crate::report::Secret;
use crate::server::{ServerSettings, TlsSettings};
use crate::session::{LanguageDetection, PhoneSettings, Route};
use crate::store::StoreSettings;
use crate::tools::declared::Declared;
use crate::tools::mcp::McpCatalogue;
use crate::tools::{Audience, Registry};
use crate::traces::TraceSettings;
use crate::tts::Speed;
use jiff::tz::TimeZone;
use layers::Layers;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// The default configuration file, in the working directory.
pub const FILE: &str = "undertone.toml";

/// The variable with the key of the webhook's signatures.
const WEBHOOK_SECRET: &str = "UNDERTONE_WEBHOOK_SECRET";

/// The variable with the password of the shared store.
const STORE_PASSWORD: &str = "UNDERTONE_STORE_PASSWORD";

/// The whole configuration, validated, in the types that use it.
#[derive(Debug, Clone)]
pub struct Config {
    /// The sockets, access to them, and the Twilio account whose calls are answered.
    pub server: ServerSettings,
    /// TLS on the server's own port; `None` if it speaks plain HTTP.
    pub tls: Option<TlsSettings>,
    /// The folder of the models, which contains `files.toml`.
    pub models: PathBuf,
    /// Speech recognition.
    pub asr: AsrEngine,
    /// The languages that the local recogniser detects.
    pub detection: LanguageDetection,
    /// The Piper or Kokoro voice to use instead of the default one. Its sha256 is not verified.
    pub voice: Option<PathBuf>,
    /// Further Piper and Kokoro voices, by name, for agents.
    pub voices: BTreeMap<String, PathBuf>,
    /// The memory that they may take together, bytes.
    pub voice_memory: u64,
    /// Words that are likely to be said to agents without keyterms of their own.
    pub keyterms: Arc<[String]>,
    /// Recognisers and voices on servers.
    pub speech: SpeechServices,
    /// The language model.
    pub llm: LlmEngine,
    /// Further models, by name.
    pub further_llms: BTreeMap<String, RemoteLlm>,
    /// The draft model: one of the further ones.
    pub draft: Option<RemoteLlm>,
    /// The policy of conversations, except for the parts that depend on tools and model.
    pub policy: Policy,
    /// The time zone assumed when no place is named.
    pub time_zone: TimeZone,
    /// Settings for telephone calls.
    pub phone: PhoneSettings,
    /// The calls in which agents may press keys; `None`: in no call.
    pub keypad: Option<Keypad>,
    /// The agents; none if the configuration itself is the only one.
    pub agents: Vec<AgentConfig>,
    /// The routes to the agents.
    pub routes: Vec<Route>,
    /// The tools that the operator declared.
    pub tools: ToolsConfig,
    /// The store that is shared with other servers; `None` if this one is alone.
    pub store: Option<StoreSettings>,
    /// A trained head for the router, in addition to the tools' rules.
    pub router_head: Option<PathBuf>,
    /// Where it is kept which call follows which; `None` if calls are not predicted from the calls before them.
    pub patterns: Option<PatternPlace>,
    /// The UDP port of calls over WebRTC.
    pub webrtc: WebrtcConfig,
    /// The address to listen on for Asterisk's AudioSocket calls; `None` for none.
    pub audiosocket: Option<SocketAddr>,
    /// The address to listen on for Wyoming clients such as Home Assistant; `None` for none.
    pub wyoming: Option<SocketAddr>,
    /// The folder for what can be made again; `None` if the environment names no home.
    pub cache: Option<PathBuf>,
    /// Whether the server runs the demonstration for the page.
    pub demonstration: bool,
    /// Where calls are recorded as sound; `None` if they are not.
    pub call_recording: Option<CallRecordingConfig>,
    /// The web service that is told of calls; `None` if there is none.
    pub webhook: Option<WebhookConfig>,
    /// Logging.
    pub log: LogConfig,
    /// Where traces go; `None` if there are none.
    pub traces: Option<TraceSettings>,
    /// The audit log.
    pub audit: AuditConfig,
    /// How long what was kept of sessions stays.
    pub retention: Retention,
}

/// The UDP port of calls over WebRTC, on the server's host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebrtcConfig {
    /// The port; `None` for the same number as the server's TCP port.
    pub port: Option<u16>,
    /// Whether calls over TCP are taken, too, on the same number.
    pub tcp: bool,
    /// The addresses that clients are told; if there are none, those of this machine.
    pub advertise: Vec<IpAddr>,
}

impl WebrtcConfig {
    /// The address of the port, for a server at `server`.
    pub fn address(&self, server: SocketAddr) -> SocketAddr {
        SocketAddr::new(server.ip(), self.port.unwrap_or(server.port()))
    }
}

/// Calls in which agents may press keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keypad {
    /// Those that the server has placed.
    PlacedCalls,
    /// All.
    EveryCall,
}

/// Where calls are recorded as sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecordingConfig {
    /// The folder of the files.
    pub folder: PathBuf,
    /// Spoken first in each call; nothing if empty.
    pub consent: String,
    /// The agents whose calls are recorded; all if there are none.
    pub agents: Vec<String>,
}

/// The file that lists the calls that may have changed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditConfig {
    /// Whether lines are added. Old ones are deleted in any case.
    pub enabled: bool,
    /// The file.
    pub file: PathBuf,
    /// Whether it has the calls' arguments.
    pub arguments: bool,
}

/// How long what was kept of sessions stays, days; for ever if `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Recordings for replays.
    pub recordings: Option<u32>,
    /// Recordings of calls as sound.
    pub calls: Option<u32>,
    /// Lines of the turn log.
    pub turns: Option<u32>,
    /// Lines of the audit log.
    pub audit: Option<u32>,
}

/// The web service that is told of calls.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// Its address.
    pub url: Url,
    /// The key of the signatures.
    pub secret: Secret,
}

/// An agent. What is `None` is as the configuration file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// When other agents hand over to it.
    pub description: String,
    /// Its instructions.
    pub instructions: Option<String>,
    /// Its greeting.
    pub greeting: Option<String>,
    /// Its model, by its name among the further ones.
    pub model: Option<String>,
    /// Its voice, by its name among the further ones.
    pub voice: Option<String>,
    /// How fast it speaks.
    pub speed: Option<Speed>,
    /// The language that it speaks, a BCP 47 tag.
    pub language: Option<String>,
    /// The recogniser of sessions that begin with it, by its name among those on servers.
    pub recogniser: Option<String>,
    /// Words that are likely to be said to it.
    pub keyterms: Option<Arc<[String]>>,
    /// Its tools, by name.
    pub tools: Option<BTreeSet<String>>,
    /// Whether anything may run early.
    pub speculation: Option<bool>,
    /// Whether its model may make plans.
    pub plans: Option<bool>,
    /// The agents that it may hand over to.
    pub handoff: Vec<String>,
    /// Whether any client may choose it by name.
    pub by_name: bool,
}

/// The tools that the operator declared.
#[derive(Debug, Clone)]
pub struct ToolsConfig {
    /// The folder of their declarations; `None` if there is none.
    pub folder: Option<PathBuf>,
    /// The default folder of declarations, if it does not exist.
    pub missing: Option<PathBuf>,
    /// The declarations, checked, with their secrets.
    pub declared: Vec<Declared>,
    /// The MCP servers, and their pinned tools.
    pub mcp: McpCatalogue,
    /// The journal of calls with side effects.
    pub journal: PathBuf,
}

/// The speech recogniser. The sha256 of a `model` other than the default is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AsrEngine {
    /// Whisper on ONNX Runtime: the fastest choice on a CPU.
    WhisperOnnx(OnnxModel),
    /// whisper.cpp, for any ggml model.
    WhisperCpp {
        /// Another ggml file.
        model: Option<PathBuf>,
        /// The number of threads.
        threads: usize,
    },
}

/// A model for ONNX Runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnnxModel {
    /// Whisper tiny.en, and Whisper base for other languages than English if it was downloaded.
    BuiltIn,
    /// Whisper base for all languages.
    Base,
    /// The model in a folder.
    Folder(PathBuf),
}

/// The language model.
#[derive(Debug, Clone)]
pub enum LlmEngine {
    /// The embedded local brain: intents, slots and templates.
    Brain,
    /// A server that speaks one of the dialects.
    Remote(Box<RemoteLlm>),
}

/// A language model on a server.
#[derive(Debug, Clone)]
pub struct RemoteLlm {
    /// Its section of the configuration, such as `llm` or `llm.models.small`.
    pub section: String,
    /// Its dialect, address, model name, key and generation settings.
    pub settings: remote::Settings,
    /// The longest prompt, tokens of about four characters; older turns are left out.
    pub max_prompt_tokens: usize,
    /// The origin of that limit.
    pub limited_by: SettingOrigin,
    /// Its prompts, with this limit.
    pub prompts: Prompts,
    /// The model that answers if this one is dead or slow.
    pub fallback: Option<Box<RemoteLlm>>,
}

/// A model's prompt has no room for a conversation beside the operator's part.
#[derive(Debug, thiserror::Error)]
#[error("{section}.max_prompt_tokens: {error}")]
pub(crate) struct NoRoom {
    /// The section of the model.
    pub section: String,
    /// The origin of its limit.
    pub origin: SettingOrigin,
    /// The agent with whose instructions and tools there is no room; `None` for the common ones.
    pub agent: Option<PathBuf>,
    /// The error, with the lengths in tokens.
    pub error: minijinja::Error,
}

impl LlmEngine {
    fn remote(&self) -> Option<&RemoteLlm> {
        match self {
            Self::Remote(remote) => Some(remote),
            Self::Brain => None,
        }
    }
}

impl Config {
    /// Limits on the text that clients may add to prompts, after the operator's instructions and `tools`:
    /// the lowest of all agents, with their models and those models' fallbacks.
    ///
    /// # Errors
    /// If these leave no room for a conversation.
    pub(crate) fn text_limits(&self, tools: &Registry) -> Result<TextLimits, NoRoom> {
        let shared = &self.policy.briefing;
        let mut lowest = TextLimits {
            set_up: usize::MAX,
            item: usize::MAX,
        };
        lower(&mut lowest, self.llm.remote(), shared, None, tools)?;
        for agent in &self.agents {
            let model = agent.model.as_ref();
            let model = model.map_or(self.llm.remote(), |name| self.further_llms.get(name));
            let briefing = Briefing {
                instructions: agent.instructions.clone().or(shared.instructions.clone()),
                plans: agent.plans.unwrap_or(shared.plans),
                ..Briefing::default()
            };
            lower(&mut lowest, model, &briefing, agent.tools.as_ref(), tools).map_err(|error| {
                NoRoom {
                    agent: Some(agent.file.clone()),
                    ..error
                }
            })?;
        }
        Ok(lowest)
    }
}

/// Lowers `limits` to the room that the prompts of a model and of its fallback leave.
fn lower(
    limits: &mut TextLimits,
    model: Option<&RemoteLlm>,
    briefing: &Briefing,
    own: Option<&BTreeSet<String>>,
    tools: &Registry,
) -> Result<(), NoRoom> {
    let mut lower_to = |TextLimits { set_up, item }| {
        limits.set_up = limits.set_up.min(set_up);
        limits.item = limits.item.min(item);
    };
    let Some(model) = model else {
        lower_to(TextLimits::default());
        return Ok(());
    };
    let offered = Audience::CONFIGURED.into_iter();
    let offered = offered.flat_map(|audience| tools.offered_to(audience));
    let offered = offered.filter(|tool| own.is_none_or(|own| own.contains(&tool.spec.name)));
    let offered: Vec<_> = offered.collect();
    let prompt = Prompt {
        instructions: briefing.instructions.clone(),
        day: None,
        messages: Vec::new(),
        // Without the demonstration's, which must not take room from the operator's.
        tools: Arc::new(briefing.offered(&offered)),
        demands: Demands::default(),
    };
    for model in std::iter::once(model).chain(model.fallback.as_deref()) {
        let room = model.prompts.room_for_clients(&prompt);
        let room = room.map_err(|error| NoRoom {
            section: model.section.clone(),
            origin: model.limited_by.clone(),
            agent: None,
            error,
        })?;
        lower_to(TextLimits {
            set_up: room.set_up,
            item: room.item,
        });
    }
    Ok(())
}

/// Logging.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// A level, or directives of `tracing_subscriber::EnvFilter`.
    pub filter: String,
    /// The format of log lines.
    pub format: LogFormat,
    /// The turn log, for `undertone stats`.
    pub turns: Option<PathBuf>,
}

/// Where learned patterns are kept.
#[derive(Debug, Clone)]
pub enum PatternPlace {
    /// In a file of this machine.
    File(PathBuf),
    /// In the store that several servers share.
    Store(StoreSettings),
}

/// The part of the configuration that a command uses. Only secrets of that part are required.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The models: no secrets and no declared tools.
    Models,
    /// A conversation on this machine: language model and tools, but no telephony.
    Conversation,
    /// A conversation, and the store that servers share.
    Shared,
    /// Everything that the server needs.
    #[default]
    Server,
}

/// Configuration from the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The part that the command uses.
    pub scope: Scope,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--host`.
    pub host: Option<String>,
    /// `--port`.
    pub port: Option<u16>,
    /// `--insecure`.
    pub insecure: bool,
    /// `--turns`.
    pub turns: Option<PathBuf>,
}

/// The process's environment variables.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// One effective setting, for display.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// `section.key`.
    pub key: String,
    /// The value in effect; a placeholder for a secret.
    pub value: Value,
    /// The value's origin.
    pub origin: SettingOrigin,
}

/// A configuration and the origins of its values.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Every setting with its origin, in the order of the example file.
    pub settings: Vec<Setting>,
    /// The configuration file, if one was read.
    pub file: Option<PathBuf>,
    /// Variables with our prefix that are not settings.
    pub ignored: Vec<Ignored>,
    /// Requests of the configuration or of OpenTelemetry's variables that are not carried out, a line each.
    pub warnings: Vec<String>,
}

impl Environment {
    /// The variables of this process. Text that is not UTF-8 is replaced.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .map(|(name, value)| {
                let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
                (text(name), text(value))
            })
            .collect()
    }

    /// The value of a variable, if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    fn ours(&self) -> BTreeMap<String, String> {
        let ours = |(name, _): &(&String, &String)| name.starts_with("UNDERTONE_");
        let owned = |(name, value): (&String, &String)| (name.clone(), value.clone());
        self.0.iter().filter(ours).map(owned).collect()
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

/// Reads and checks the whole configuration, except for secrets, and settings that need them,
/// outside the command's scope.
///
/// # Errors
/// [`ConfigError`] with the first error: an unreadable file, an unknown key or variable, a wrong
/// type, a value out of range, or contradicting settings.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::default();
    let file = file_of(flags, environment);
    if let Some((path, origin)) = &file {
        layers.file(path, &read(path, origin)?)?;
    }
    layers.environment(&environment.ours())?;
    lay_flags(&mut layers, flags);
    let raw = layers.raw()?;
    let mut warnings = Vec::new();
    let config = validate::check(&raw, &layers, environment, flags.scope, &mut warnings)?;
    Ok(Loaded {
        settings: settings(&raw, &layers, &config),
        ignored: layers.ignored().to_vec(),
        warnings,
        config,
        file: file.map(|(path, _)| path),
    })
}

fn file_of(flags: &Flags, environment: &Environment) -> Option<(PathBuf, SettingOrigin)> {
    let flag = || {
        let path = flags.config.clone()?;
        Some((path, SettingOrigin::Flag("--config".into())))
    };
    let variable = || {
        let path = environment.get("UNDERTONE_CONFIG")?;
        Some((path.into(), SettingOrigin::Env("UNDERTONE_CONFIG".into())))
    };
    let here = || {
        let path = Path::new(FILE);
        path.is_file()
            .then(|| (path.into(), SettingOrigin::Default))
    };
    flag().or_else(variable).or_else(here)
}

fn read(path: &Path, origin: &SettingOrigin) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError {
        origin: origin.clone(),
        problem: format!("cannot read {}: {error}", path.display()),
        fix: "name a TOML file; start from undertone.example.toml".into(),
    })
}

fn lay_flags(layers: &mut Layers, flags: &Flags) {
    if let Some(host) = &flags.host {
        layers.flag("server.host", "--host", host.clone().into());
    }
    if let Some(port) = flags.port {
        layers.flag("server.port", "--port", i64::from(port).into());
    }
    if flags.insecure {
        layers.flag("server.insecure", "--insecure", true.into());
    }
    if let Some(turns) = &flags.turns {
        let turns = turns.to_string_lossy().into_owned();
        layers.flag("log.turns", "--turns", turns.into());
    }
}

fn settings(raw: &raw::RawConfig, layers: &Layers, config: &Config) -> Vec<Setting> {
    let mut settings: Vec<Setting> = layers::flatten(raw)
        .into_iter()
        .map(|(key, value)| Setting {
            origin: layers.origin(&key),
            value: shown(&key, value, config),
            key,
        })
        .collect();
    let (server, twilio) = (&config.server, &config.server.twilio);
    let secrets = [
        (
            "server.auth_token",
            "UNDERTONE_AUTH_TOKEN",
            server.auth_token.is_some() && raw.server.auth_token_file.is_empty(),
        ),
        (
            "server.client_secret_key",
            "UNDERTONE_CLIENT_SECRET_KEY",
            server.client_secret_key.is_some() && raw.server.client_secret_key_file.is_empty(),
        ),
        (
            "twilio.auth_token",
            "UNDERTONE_TWILIO_AUTH_TOKEN",
            twilio.is_some() && raw.twilio.auth_token_file.is_empty(),
        ),
        (
            "webhook.secret",
            WEBHOOK_SECRET,
            config.webhook.is_some() && raw.webhook.secret_file.is_empty(),
        ),
        (
            "store.password",
            STORE_PASSWORD,
            raw.store.password_file.is_empty()
                && config
                    .store
                    .as_ref()
                    .is_some_and(|store| store.password.is_some()),
        ),
    ];
    let in_environment = secrets.into_iter().filter(|(_, _, is_set)| *is_set);
    settings.extend(in_environment.map(|(key, variable, _)| Setting {
        key: key.into(),
        value: "<secret>".into(),
        origin: SettingOrigin::Env(variable.into()),
    }));
    settings
}

/// The value in effect for a key, which differs from the typed one where that is empty. An address that may hold a
/// secret is not shown: it may be an MCP server's, whose query may be a key, or be refused in another scope only.
fn shown(key: &str, value: Value, config: &Config) -> Value {
    match key {
        "models.dir" => config.models.display().to_string().into(),
        "session.time_zone" => config.time_zone.iana_name().map_or(value, Into::into),
        _ => without_secrets(value),
    }
}

/// The value with a placeholder for each address in it that may hold a secret.
fn without_secrets(value: Value) -> Value {
    match value {
        Value::String(text) if may_hold_secret(&text) => "<secret>".into(),
        Value::Object(table) => {
            let shown = |(key, value)| (key, without_secrets(value));
            table.into_iter().map(shown).collect()
        }
        Value::Array(values) => values.into_iter().map(without_secrets).collect(),
        value => value,
    }
}

/// Whether a text is an address with a password, a query, or a user who may be a key.
fn may_hold_secret(text: &str) -> bool {
    let is_key = |url: &Url| url.scheme().starts_with("http") && !url.username().is_empty();
    let url = Url::parse(text.trim()).ok().filter(Url::has_host);
    url.is_some_and(|url| url.password().is_some() || url.query().is_some() || is_key(&url))
}
