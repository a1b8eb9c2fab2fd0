//! Configuration: one TOML file, `UNDERTONE_*` variables and a few options, read once, checked
//! whole, and never looked at again in another form than [`Config`].
//!
//! Later layers win: built-in defaults, the file (`--config`, else `UNDERTONE_CONFIG`, else
//! `undertone.toml` in the working directory if there is one), `UNDERTONE_SECTION__KEY`
//! variables, options of the command line. A relative path in the file counts from the file's
//! folder, elsewhere from the working directory. Nothing else in the program reads the
//! environment, but for the proxies that reqwest finds there for the language model and Twilio.

mod error;
mod layers;
mod raw;
mod validate;
mod verify;

pub use error::{ConfigError, Origin};
pub use layers::Ignored;

use crate::conversation::{FillerPolicy, SpeculationPolicy};
use crate::llm::Phrases;
use crate::server::Twilio;
use crate::tools::declared::Declared;
use jiff::tz::TimeZone;
use layers::Layers;
use secrecy::SecretString;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// The file that is read from the working directory when no other is named.
pub const FILE: &str = "undertone.toml";

/// Everything the program needs to know, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The socket and who may use it.
    pub server: ServerConfig,
    /// Where the models are.
    pub models: ModelsConfig,
    /// Speech recognition.
    pub asr: AsrConfig,
    /// The voice.
    pub tts: TtsConfig,
    /// When the user is speaking, and when the user is done.
    pub turn: TurnConfig,
    /// The language model.
    pub llm: LlmConfig,
    /// Limits and habits of one conversation.
    pub session: SessionConfig,
    /// Manners of telephone calls.
    pub phone: PhoneConfig,
    /// The Twilio account whose calls are answered, if there is one.
    pub twilio: Option<Twilio>,
    /// The tools that the operator declared.
    pub tools: ToolsConfig,
    /// Which tools may run speculatively.
    pub speculation: SpeculationPolicy,
    /// Filler while the user waits.
    pub filler: FillerPolicy,
    /// A trained head for the router, beside the rules of the tools.
    pub router_head: Option<PathBuf>,
    /// Calls from Asterisk.
    pub asterisk: AsteriskConfig,
    /// Home Assistant.
    pub wyoming: WyomingConfig,
    /// Logging.
    pub log: LogConfig,
}

/// The socket and who may use it.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address to listen on.
    pub host: IpAddr,
    /// The TCP port; 0 takes any free one.
    pub port: u16,
    /// Sessions at once; one more is answered 503.
    pub max_sessions: usize,
    /// Origins of web pages that may connect, as browsers send them (`https://example.org`), in
    /// addition to the server's own.
    pub allowed_origins: Vec<String>,
    /// The token that clients must present; `None` admits everyone.
    pub auth_token: Option<SecretString>,
    /// Signs the secrets that are made for clients; a key of each process alone if `None`.
    pub client_secret_key: Option<SecretString>,
    /// Listening beyond this machine without a token, or behind a proxy, is intended.
    pub insecure: bool,
    /// How long running conversations may go on after the signal to stop.
    pub drain: Duration,
}

/// Where the models are.
#[derive(Debug, Clone)]
pub struct ModelsConfig {
    /// The folder that holds `files.toml`.
    pub dir: PathBuf,
}

/// The tools that the operator declared.
#[derive(Debug, Clone)]
pub struct ToolsConfig {
    /// Where their declarations were read; `None` if there are none.
    pub folder: Option<PathBuf>,
    /// The declarations, checked, with their secrets.
    pub declared: Vec<Declared>,
    /// The file that remembers calls which change something.
    pub journal: PathBuf,
}

/// Which program transcribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsrEngine {
    /// Whisper on ONNX Runtime: the fastest on a CPU.
    WhisperOnnx,
    /// whisper.cpp, for any ggml model.
    WhisperCpp,
}

/// Speech recognition.
#[derive(Debug, Clone)]
pub struct AsrConfig {
    /// Which program transcribes.
    pub engine: AsrEngine,
    /// Another model than the built-in choice: a folder for ONNX, a ggml file for whisper.cpp. It
    /// is the operator's own and not held to any sha256.
    pub model: Option<PathBuf>,
    /// Threads of whisper.cpp; ONNX Runtime always takes one.
    pub threads: usize,
}

/// The voice.
#[derive(Debug, Clone)]
pub struct TtsConfig {
    /// The folder of another Piper voice than the built-in choice. It is the operator's own and
    /// not held to any sha256.
    pub voice: Option<PathBuf>,
}

/// When the user is speaking, and when the user is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnConfig {
    /// A window of 32 ms from this probability on is speech, 0..1.
    pub vad_threshold: f32,
    /// Speech that begins an utterance, ms.
    pub start_ms: u64,
    /// Speech between two partial transcripts, ms.
    pub partial_ms: u64,
    /// Silence that ends a turn which sounds complete, ms.
    pub complete_ms: u64,
    /// Silence that ends a turn which may be complete or not, ms.
    pub unsure_ms: u64,
    /// Silence that ends a turn which sounds unfinished, ms.
    pub incomplete_ms: u64,
    /// The user may interrupt the agent by speaking.
    pub interrupt: bool,
}

/// Which language model answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LlmEngine {
    /// The embedded one: intents, slots and templates.
    Brain,
    /// Any server that speaks OpenAI's chat completions.
    OpenAiCompatible,
}

/// The language model.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// Which one.
    pub engine: LlmEngine,
    /// The address up to and without `/chat/completions`; there if the engine is remote.
    pub base_url: Option<Url>,
    /// The model's name at that address; empty for the brain.
    pub model: String,
    /// Sent as a bearer token; `None` sends none.
    pub api_key: Option<SecretString>,
    /// Sampling temperature, 0..2; `None` leaves it to the server.
    pub temperature: Option<f32>,
    /// The longest answer, tokens.
    pub max_tokens: u32,
    /// The longest prompt, tokens of some four characters; older turns are left out.
    pub max_prompt_tokens: usize,
    /// The operator's instructions, added to the system prompt.
    pub instructions: Option<String>,
    /// Silence while an answer is owed, before the agent says that it takes a moment.
    pub stall_filler: Duration,
    /// Silence of the model after which it counts as dead and the agent apologises.
    pub give_up: Duration,
}

/// Limits and habits of one conversation.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Said when the session begins; nothing if empty.
    pub greeting: String,
    /// Nobody speaks for this long: the session ends.
    pub idle: Duration,
    /// The longest session.
    pub max: Duration,
    /// Tool steps of one turn.
    pub max_tool_steps: u32,
    /// The most words of an answer.
    pub max_answer_words: usize,
    /// The most speech of an answer.
    pub max_answer: Duration,
    /// The zone meant when no place is named.
    pub time_zone: TimeZone,
    /// Fixed phrases that need no language model.
    pub phrases: Phrases,
}

/// Calls from Asterisk.
#[derive(Debug, Clone)]
pub struct AsteriskConfig {
    /// Where AudioSocket calls come in; `None` takes none.
    pub audiosocket: Option<SocketAddr>,
}

/// Home Assistant.
#[derive(Debug, Clone)]
pub struct WyomingConfig {
    /// Where Wyoming clients come in; `None` takes none.
    pub listen: Option<SocketAddr>,
}

/// Manners of telephone calls.
#[derive(Debug, Clone)]
pub struct PhoneConfig {
    /// Said when a call is answered; nothing if empty.
    pub greeting: String,
    /// A caller who says nothing for so long is asked whether they are still there.
    pub silence: Option<Duration>,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Logging.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// A level, or directives of `tracing_subscriber::EnvFilter`.
    pub filter: String,
    /// How a line is written.
    pub format: LogFormat,
    /// A file that gets a line for each turn, for `undertone stats`.
    pub turns: Option<PathBuf>,
}

/// The part of the configuration that a command uses. Only the secrets of that part are required.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The models: no secret at all, and no declared tool.
    Models,
    /// A conversation on this machine: what language model and tools need, and no telephone.
    Conversation,
    /// Everything, as the server needs it.
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

/// The process's environment, as far as it matters here.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// One effective setting, for showing.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// `section.key`.
    pub key: String,
    /// The value in effect; of a secret only that there is one.
    pub value: Value,
    /// Where it was found.
    pub origin: Origin,
}

/// A configuration, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Every setting with its origin, in the order of the example file.
    pub settings: Vec<Setting>,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Variables that begin like ours and are no settings.
    pub ignored: Vec<Ignored>,
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

    /// A variable that is set and not empty.
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

/// Reads and checks the configuration: all of it but the secrets, and what needs them, beyond the
/// scope of the command.
///
/// # Errors
/// [`ConfigError`] with the first thing that is wrong: a file that cannot be read, an unknown key
/// or variable, a wrong type, a value out of range, settings that contradict each other.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::default();
    let file = file_of(flags, environment);
    if let Some((path, origin)) = &file {
        layers.file(path, &read(path, origin)?)?;
    }
    layers.environment(&environment.ours())?;
    lay_flags(&mut layers, flags);
    let raw = layers.raw()?;
    let config = validate::check(&raw, &layers, environment, flags.scope)?;
    Ok(Loaded {
        settings: settings(&raw, &layers, &config),
        ignored: layers.ignored().to_vec(),
        config,
        file: file.map(|(path, _)| path),
    })
}

fn file_of(flags: &Flags, environment: &Environment) -> Option<(PathBuf, Origin)> {
    let flag = || {
        let path = flags.config.clone()?;
        Some((path, Origin::Flag("--config".into())))
    };
    let variable = || {
        let path = environment.get("UNDERTONE_CONFIG")?;
        Some((path.into(), Origin::Env("UNDERTONE_CONFIG".into())))
    };
    let here = || {
        let path = Path::new(FILE);
        path.is_file().then(|| (path.into(), Origin::Default))
    };
    flag().or_else(variable).or_else(here)
}

fn read(path: &Path, origin: &Origin) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError {
        origin: origin.clone(),
        problem: format!("cannot read {}: {error}", path.display()),
        fix: "name a TOML file; undertone.example.toml is one to start from".into(),
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
    if config.server.auth_token.is_some() && raw.server.auth_token_file.is_empty() {
        settings.push(Setting {
            key: "server.auth_token".into(),
            value: "<secret>".into(),
            origin: Origin::Env("UNDERTONE_AUTH_TOKEN".into()),
        });
    }
    settings
}

/// The value in effect for a key; an empty value stands for a built-in choice.
fn shown(key: &str, value: Value, config: &Config) -> Value {
    match key {
        "models.dir" => config.models.dir.display().to_string().into(),
        "session.time_zone" => config
            .session
            .time_zone
            .iana_name()
            .map_or(value, Into::into),
        _ => value,
    }
}
