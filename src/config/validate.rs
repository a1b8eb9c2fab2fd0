//! From what was typed to what is meant. The first thing that is wrong ends it.

use super::error::{ConfigError, nearest};
use super::layers::Layers;
use super::raw::{
    RawAsr, RawAsterisk, RawConfig, RawFiller, RawLlm, RawLog, RawPhone, RawServer, RawSession,
    RawSpeculation, RawTools, RawTts, RawTurn, RawTwilio, RawWyoming,
};
use super::*;
use crate::conversation::FillerLead;
use crate::tools::declared;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

type Checked<T> = Result<T, ConfigError>;

/// A shorter token can be guessed.
const SHORTEST_TOKEN: usize = 16;
const DAY_SECONDS: i64 = 86_400;

pub(super) fn check(
    raw: &RawConfig,
    layers: &Layers,
    env: &Environment,
    scope: Scope,
) -> Checked<Config> {
    let check = Check { layers, env, scope };
    Ok(Config {
        server: check.server(&raw.server)?,
        models: check.models(&raw.models.dir)?,
        asr: check.asr(&raw.asr)?,
        tts: check.tts(&raw.tts)?,
        turn: check.turn(&raw.turn)?,
        llm: check.llm(&raw.llm)?,
        session: check.session(&raw.session)?,
        phone: check.phone(&raw.phone)?,
        twilio: check.twilio(&raw.twilio)?,
        tools: check.tools(&raw.tools)?,
        speculation: check.speculation(&raw.speculation)?,
        filler: check.filler(&raw.filler)?,
        router_head: check.existing("router.head", &raw.router.head)?,
        asterisk: check.asterisk(&raw.asterisk, raw.server.insecure)?,
        wyoming: check.wyoming(&raw.wyoming, raw.server.insecure)?,
        log: check.log(&raw.log)?,
    })
}

/// A telephone number as ITU-T E.164 writes it.
fn is_telephone_number(number: &str) -> bool {
    let digits = number.strip_prefix('+').unwrap_or_default();
    (7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// An address at which whoever reaches it may talk.
struct TrustingDoor {
    key: &'static str,
    protocol: &'static str,
    /// An example to show when the address is malformed.
    example: &'static str,
    /// An address that only this machine reaches, to suggest instead.
    safer: &'static str,
}

/// A name that Twilio gives to an account.
fn is_account(sid: &str) -> bool {
    let digits = sid.strip_prefix("AC").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

struct Check<'a> {
    layers: &'a Layers,
    env: &'a Environment,
    scope: Scope,
}

impl Check<'_> {
    fn server(&self, raw: &RawServer) -> Checked<ServerConfig> {
        let server = ServerConfig {
            host: self.host(&raw.host)?,
            port: self.whole("server.port", raw.port, 0..=65_535)?,
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
            drain: self.seconds("server.drain_seconds", raw.drain_seconds, 0..=3_600)?,
        };
        let is_safe = server.host.is_loopback() || server.auth_token.is_some() || server.insecure;
        if is_safe || self.scope < Scope::Server {
            return Ok(server);
        }
        Err(self.wrong(
            "server.host",
            format!(
                "server.host = \"{}\" lets other machines in, and no token is asked of them",
                server.host
            ),
            "set UNDERTONE_AUTH_TOKEN or server.auth_token_file, or say --insecure if that is meant",
        ))
    }

    fn models(&self, typed: &str) -> Checked<ModelsConfig> {
        let dir = self
            .path("models.dir", typed)
            .unwrap_or_else(crate::models::default_dir);
        Ok(ModelsConfig { dir })
    }

    fn asr(&self, raw: &RawAsr) -> Checked<AsrConfig> {
        let engines = [
            ("whisper-onnx", AsrEngine::WhisperOnnx),
            ("whisper-cpp", AsrEngine::WhisperCpp),
        ];
        Ok(AsrConfig {
            engine: self.choice("asr.engine", &raw.engine, &engines)?,
            model: self.existing("asr.model", &raw.model)?,
            threads: self.whole("asr.threads", raw.threads, 1..=64)?,
        })
    }

    fn tts(&self, raw: &RawTts) -> Checked<TtsConfig> {
        Ok(TtsConfig {
            voice: self.existing("tts.voice", &raw.voice)?,
        })
    }

    fn turn(&self, raw: &RawTurn) -> Checked<TurnConfig> {
        let turn = TurnConfig {
            vad_threshold: self.real("turn.vad_threshold", raw.vad_threshold, 0.05..=0.95)?,
            start_ms: self.whole("turn.start_ms", raw.start_ms, 32..=1_000)?,
            partial_ms: self.whole("turn.partial_ms", raw.partial_ms, 100..=10_000)?,
            complete_ms: self.whole("turn.complete_ms", raw.complete_ms, 100..=5_000)?,
            unsure_ms: self.whole("turn.unsure_ms", raw.unsure_ms, 100..=10_000)?,
            incomplete_ms: self.whole("turn.incomplete_ms", raw.incomplete_ms, 100..=20_000)?,
            interrupt: raw.interrupt,
        };
        self.ordered(
            ("turn.complete_ms", turn.complete_ms),
            ("turn.unsure_ms", turn.unsure_ms),
        )?;
        self.ordered(
            ("turn.unsure_ms", turn.unsure_ms),
            ("turn.incomplete_ms", turn.incomplete_ms),
        )?;
        Ok(turn)
    }

    fn llm(&self, raw: &RawLlm) -> Checked<LlmConfig> {
        let engines = [
            ("brain", LlmEngine::Brain),
            ("openai-compatible", LlmEngine::OpenAiCompatible),
        ];
        let engine = self.choice("llm.engine", &raw.engine, &engines)?;
        let remote = engine == LlmEngine::OpenAiCompatible;
        self.ordered(
            ("llm.stall_filler_ms", raw.stall_filler_ms.unsigned_abs()),
            ("llm.give_up_ms", raw.give_up_ms.unsigned_abs()),
        )?;
        Ok(LlmConfig {
            engine,
            base_url: self.base_url(&raw.base_url, remote)?,
            model: self.needed("llm.model", &raw.model, remote, "name the model to ask for")?,
            api_key: self.api_key(raw)?,
            temperature: raw
                .temperature
                .map(|typed| self.real("llm.temperature", typed, 0.0..=2.0))
                .transpose()?,
            max_tokens: self.whole("llm.max_tokens", raw.max_tokens, 1..=32_768)?,
            max_prompt_tokens: self.whole(
                "llm.max_prompt_tokens",
                raw.max_prompt_tokens,
                500..=1_000_000,
            )?,
            instructions: self.instructions(raw)?,
            stall_filler: self.millis("llm.stall_filler_ms", raw.stall_filler_ms, 100..=60_000)?,
            give_up: self.millis("llm.give_up_ms", raw.give_up_ms, 500..=120_000)?,
        })
    }

    fn session(&self, raw: &RawSession) -> Checked<SessionConfig> {
        Ok(SessionConfig {
            greeting: raw.greeting.trim().to_owned(),
            idle: self.seconds("session.idle_seconds", raw.idle_seconds, 5..=DAY_SECONDS)?,
            max: self.seconds("session.max_seconds", raw.max_seconds, 10..=DAY_SECONDS)?,
            max_tool_steps: self.whole("session.max_tool_steps", raw.max_tool_steps, 0..=20)?,
            max_answer_words: self.whole(
                "session.max_answer_words",
                raw.max_answer_words,
                10..=100_000,
            )?,
            max_answer: self.seconds(
                "session.max_answer_seconds",
                raw.max_answer_seconds,
                5..=DAY_SECONDS,
            )?,
            time_zone: self.time_zone(&raw.time_zone)?,
            phrases: self.phrases(&raw.phrases_file)?,
        })
    }

    fn phrases(&self, typed: &str) -> Checked<Phrases> {
        let key = "session.phrases_file";
        Phrases::load(self.path(key, typed).as_deref()).map_err(|error| {
            let fix = "name a TOML file with some of the keys of prompts/phrases.toml";
            self.wrong(key, format!("{key}: {error}"), fix)
        })
    }

    fn phone(&self, raw: &RawPhone) -> Checked<PhoneConfig> {
        let silence = self.seconds("phone.silence_seconds", raw.silence_seconds, 0..=300)?;
        Ok(PhoneConfig {
            greeting: raw.greeting.trim().to_owned(),
            silence: (!silence.is_zero()).then_some(silence),
        })
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
                "twilio.public_url is set, and there is no token to check Twilio's signatures by"
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
                    format!("twilio.transfer: {name:?} = {number:?} is no telephone number"),
                    "write it with + and the country's code, without spaces, as in \"+15551234567\"",
                ));
            }
        }
        Ok(raw.clone())
    }

    /// An http or https address without a query or a password.
    fn address(&self, key: &str, typed: &str, fix: &str) -> Checked<Url> {
        let plain = |url: &Url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        };
        let url = Url::parse(typed.trim()).ok().filter(plain);
        url.ok_or_else(|| {
            let problem = format!("{key} is not a plain http or https address");
            self.wrong(key, problem, fix)
        })
    }

    fn speculation(&self, raw: &RawSpeculation) -> Checked<SpeculationPolicy> {
        let value = raw.value_per_second;
        Ok(SpeculationPolicy {
            enabled: raw.enabled,
            per_turn: self.whole("speculation.per_turn", raw.per_turn, 0..=20)?,
            at_once: self.whole("speculation.at_once", raw.at_once, 0..=20)?,
            value_per_second: self
                .real("speculation.value_per_second", value, 0.0..=1_000.0)
                .map(f64::from)?,
            preemptive: raw.preemptive,
            ..SpeculationPolicy::default()
        })
    }

    fn filler(&self, raw: &RawFiller) -> Checked<FillerPolicy> {
        let leads = [("model", FillerLead::Model), ("router", FillerLead::Router)];
        Ok(FillerPolicy {
            lead: self.choice("filler.lead", &raw.lead, &leads)?,
            confidence: self.real("filler.confidence", raw.confidence, 0.0..=1.0)?,
            worth_ms: self.whole("filler.worth_ms", raw.worth_ms, 0..=60_000)?,
            long_ms: self.whole("filler.long_ms", raw.long_ms, 0..=60_000)?,
        })
    }

    /// The default folder may be absent; one that is named may not.
    fn tools(&self, raw: &RawTools) -> Checked<ToolsConfig> {
        let folder = self.path("tools.folder", &raw.folder);
        let folder = folder.filter(|_| self.scope > Scope::Models);
        let named = raw.folder != RawTools::default().folder;
        let folder = folder.filter(|folder| named || folder.is_dir());
        if let Some(missing) = folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(self.wrong(
                "tools.folder",
                format!("tools.folder: there is no folder {}", missing.display()),
                "correct the path, or set it to \"\" for the built-in tools alone",
            ));
        }
        let variable = |name: &str| self.env.get(name).map(str::to_owned);
        let declared = folder
            .as_deref()
            .map(|folder| declared::load(folder, &variable));
        let declared = declared
            .transpose()
            .map_err(ConfigError::from)?
            .unwrap_or_default();
        let journal = self.path("tools.journal", &raw.journal);
        Ok(ToolsConfig {
            folder,
            declared,
            journal: journal.unwrap_or_else(|| self.state_folder().join("journal.jsonl")),
        })
    }

    /// Where the XDG Base Directory Specification puts what a program remembers.
    fn state_folder(&self) -> PathBuf {
        let state = self.env.get("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.filter(|path| path.is_absolute());
        let home = || {
            self.env
                .get("HOME")
                .map(|home| Path::new(home).join(".local/state"))
        };
        state
            .or_else(home)
            .unwrap_or_else(std::env::temp_dir)
            .join("undertone")
    }

    fn log(&self, raw: &RawLog) -> Checked<LogConfig> {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&raw.level) {
            return Err(self.wrong(
                "log.level",
                format!("log.level = \"{}\": {error}", raw.level),
                "use error, warn, info, debug or trace, or directives such as undertone=debug",
            ));
        }
        Ok(LogConfig {
            filter: raw.level.clone(),
            format: self.choice("log.format", &raw.format, &formats)?,
            turns: self.path("log.turns", &raw.turns),
        })
    }

    fn asterisk(&self, raw: &RawAsterisk, insecure: bool) -> Checked<AsteriskConfig> {
        let door = TrustingDoor {
            key: "asterisk.audiosocket",
            protocol: "AudioSocket",
            example: "use 127.0.0.1:9092 for an Asterisk on this machine",
            safer: "a loopback address or chan_websocket",
        };
        Ok(AsteriskConfig {
            audiosocket: self.trusting(&door, &raw.audiosocket, insecure)?,
        })
    }

    fn wyoming(&self, raw: &RawWyoming, insecure: bool) -> Checked<WyomingConfig> {
        let door = TrustingDoor {
            key: "wyoming.listen",
            protocol: "Wyoming",
            example: "use 127.0.0.1:10300 for a Home Assistant on this machine",
            safer: "a loopback address",
        };
        Ok(WyomingConfig {
            listen: self.trusting(&door, &raw.listen, insecure)?,
        })
    }

    /// Where a protocol without passwords comes in: on this machine alone, unless the operator means
    /// otherwise.
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
                "{key} = \"{typed}\" lets other machines in, and {protocol} knows no token or password"
            ),
            &format!("use {safer}, or say --insecure if a firewall sees to it"),
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
                "use 127.0.0.1 for this machine alone, 0.0.0.0 for every IPv4 interface",
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
                    "write scheme, host and port alone, as in https://example.org",
                )
            })
    }

    /// A secret that strangers might guess at.
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

    /// A secret from the file that `key` names or from the environment, and where it was found.
    fn secret<'a>(
        &self,
        key: &'a str,
        file: &str,
        variable: &'a str,
    ) -> Checked<Option<(&'a str, String)>> {
        match (self.secret_file(key, file)?, self.env.get(variable)) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(self.wrong(
                key,
                format!("{key} and {variable} are both set"),
                "keep one of them",
            )),
            (Some(secret), None) => Ok(Some((key, secret))),
            (None, Some(secret)) => Ok(Some((variable, secret.trim().to_owned()))),
        }
    }

    fn api_key(&self, raw: &RawLlm) -> Checked<Option<SecretString>> {
        if self.scope == Scope::Models {
            return Ok(None);
        }
        let file = self.secret_file("llm.api_key_file", &raw.api_key_file)?;
        if raw.api_key_env.is_empty() {
            return Ok(file.map(Into::into));
        }
        if file.is_some() {
            return Err(self.wrong(
                "llm.api_key_env",
                "llm.api_key_file and llm.api_key_env are both set".into(),
                "keep one of them",
            ));
        }
        match self.env.get(&raw.api_key_env) {
            Some(key) => Ok(Some(key.trim().into())),
            None => Err(self.wrong(
                "llm.api_key_env",
                format!(
                    "llm.api_key_env names a variable that is not set: {}",
                    self.name_or_hint(&raw.api_key_env)
                ),
                "set that variable, or name the one that holds the key (the name, not the key)",
            )),
        }
    }

    /// A key typed where its variable's name belongs must not be printed.
    fn name_or_hint<'a>(&self, typed: &'a str) -> &'a str {
        let is_name = typed
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        if is_name { typed } else { "<not shown>" }
    }

    fn secret_file(&self, key: &str, typed: &str) -> Checked<Option<String>> {
        self.text_file(key, typed)?
            .map(|text| match text.trim() {
                "" => Err(self.wrong(
                    key,
                    format!("{key}: {typed} is empty"),
                    "put the secret in it",
                )),
                secret => Ok(secret.to_owned()),
            })
            .transpose()
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
        let text = file.unwrap_or_else(|| raw.instructions.clone());
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    fn text_file(&self, key: &str, typed: &str) -> Checked<Option<String>> {
        let Some(path) = self.path(key, typed) else {
            return Ok(None);
        };
        std::fs::read_to_string(&path).map(Some).map_err(|error| {
            self.wrong(
                key,
                format!("{key}: cannot read {}: {error}", path.display()),
                "name a file that this user may read",
            )
        })
    }

    fn base_url(&self, typed: &str, needed: bool) -> Checked<Option<Url>> {
        let hint = "give the address up to /v1, as in http://127.0.0.1:11434/v1";
        if self.needed("llm.base_url", typed, needed, hint)?.is_empty() {
            return Ok(None);
        }
        let url = Url::parse(typed)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                self.wrong(
                    "llm.base_url",
                    "llm.base_url is not an http or https address".into(),
                    hint,
                )
            })?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(self.wrong(
                "llm.base_url",
                "llm.base_url carries a password or a query".into(),
                "put the key into llm.api_key_file or name its variable in llm.api_key_env",
            ));
        }
        Ok(Some(url))
    }

    fn needed(&self, key: &str, typed: &str, needed: bool, fix: &str) -> Checked<String> {
        if needed && typed.trim().is_empty() {
            let problem = format!("llm.engine = \"openai-compatible\" needs {key}");
            return Err(self.wrong("llm.engine", problem, fix));
        }
        Ok(typed.trim().to_owned())
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

    /// The path in `key`, made absolute where it counts from the file's folder; `None` if empty.
    fn path(&self, key: &str, typed: &str) -> Option<PathBuf> {
        let base = self.layers.base_of(key).unwrap_or_default();
        (!typed.is_empty()).then(|| base.join(typed))
    }

    fn existing(&self, key: &str, typed: &str) -> Checked<Option<PathBuf>> {
        let path = self.path(key, typed);
        match path.as_ref().filter(|path| !path.exists()) {
            None => Ok(path),
            Some(path) => Err(self.wrong(
                key,
                format!("{key}: there is nothing at {}", path.display()),
                "correct the path, or remove the key to use the built-in model",
            )),
        }
    }

    fn whole<T: TryFrom<i64>>(
        &self,
        key: &str,
        typed: i64,
        range: RangeInclusive<i64>,
    ) -> Checked<T> {
        let fitting = range.contains(&typed).then(|| T::try_from(typed).ok());
        fitting
            .flatten()
            .ok_or_else(|| self.out_of(key, typed, &range))
    }

    fn seconds(&self, key: &str, typed: i64, range: RangeInclusive<i64>) -> Checked<Duration> {
        self.whole(key, typed, range).map(Duration::from_secs)
    }

    fn millis(&self, key: &str, typed: i64, range: RangeInclusive<i64>) -> Checked<Duration> {
        self.whole(key, typed, range).map(Duration::from_millis)
    }

    fn real(&self, key: &str, typed: f64, range: RangeInclusive<f64>) -> Checked<f32> {
        if range.contains(&typed) {
            return Ok(typed as f32);
        }
        Err(self.out_of(key, typed, &range))
    }

    fn out_of<T: std::fmt::Display>(
        &self,
        key: &str,
        typed: T,
        range: &RangeInclusive<T>,
    ) -> ConfigError {
        self.wrong(
            key,
            format!("{key} = {typed} is out of range"),
            &format!("use {} to {}", range.start(), range.end()),
        )
    }

    fn ordered(&self, less: (&str, u64), more: (&str, u64)) -> Checked<()> {
        if less.1 <= more.1 {
            return Ok(());
        }
        let (key, other) = (less.0, more.0);
        let is_default = self.layers.origin(key) == Origin::Default;
        Err(self.wrong(
            if is_default { other } else { key },
            format!("{key} = {} is longer than {other} = {}", less.1, more.1),
            "the first must not be longer than the second",
        ))
    }

    fn choice<T: Copy>(&self, key: &str, typed: &str, choices: &[(&str, T)]) -> Checked<T> {
        let found = choices.iter().find(|(name, _)| *name == typed);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let meant = nearest(typed, &names)
                .map(|near| format!("did you mean \"{near}\"? "))
                .unwrap_or_default();
            self.wrong(
                key,
                format!("{key} = \"{typed}\" is unknown"),
                &format!("{meant}use one of: {}", names.join(", ")),
            )
        })
    }

    fn wrong(&self, key: &str, problem: String, fix: &str) -> ConfigError {
        let origin = if key.starts_with("UNDERTONE_") {
            Origin::Env(key.into())
        } else {
            self.layers.origin(key)
        };
        ConfigError {
            origin,
            problem,
            fix: fix.into(),
        }
    }
}
