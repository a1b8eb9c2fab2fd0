//! `undertone doctor`: checks what most often goes wrong.

use super::engines::{
    asr_builder, asr_service, remote_llm, threads, tts_builder, tts_service, verified_models,
};
use super::{WRITABLE, ignored, probe, running, serve};
use crate::asr::{Hints, Utterance};
use crate::config::{AgentConfig, Config, ConfigError, LlmEngine, Loaded, RemoteLlm};
use crate::conversation::Samples;
use crate::models::Models;
use crate::server::{HEALTHY, Tls};
use crate::store::StoreSettings;
use crate::tools::{JournalFile, declared};
use crate::transport::webrtc;
use crate::tts::{Piece, TtsError};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use futures_util::StreamExt;
use reqwest::StatusCode;
use serde::Serialize;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// How long a language model's server may take to answer: a slower one cannot hold a conversation.
const BACKEND_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only ask the running server whether it takes sessions, as health checks of containers do
    #[arg(long, conflicts_with = "json")]
    ready: bool,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    name: Cow<'static, str>,
    #[serde(flatten)]
    outcome: Outcome,
    /// How long the check took, ms.
    ms: u64,
}

#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Outcome {
    Ok { detail: String },
    Broken { detail: String, mend: String },
    Skipped { detail: String },
}

impl Doctor {
    pub(super) fn run(&self, loaded: Result<Loaded, ConfigError>) -> Result<ExitCode> {
        if self.ready {
            let ready = asked(&loaded?.config, "readyz")?;
            super::print(&ready)?;
            return Ok(ExitCode::SUCCESS);
        }
        let findings = match loaded {
            Ok(loaded) => examine(&loaded),
            Err(error) => vec![misconfigured(&error)],
        };
        let broken = |finding: &Finding| matches!(finding.outcome, Outcome::Broken { .. });
        let ok = !findings.iter().any(broken);
        if self.json {
            super::print_json(&serde_json::json!({ "ok": ok, "checks": findings }))?;
        } else {
            findings.iter().try_for_each(|f| super::print(&line(f)))?;
        }
        Ok(if ok {
            ExitCode::SUCCESS
        } else {
            super::FAILED.into()
        })
    }
}

fn examine(loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let mut findings = examine_parts(loaded);
    let after = findings
        .iter()
        .position(|finding| finding.name == "language model");
    let at = after.map_or(findings.len(), |at| at + 1);
    findings.splice(at..at, further_models(config));
    findings
}

/// Checks each `[llm.models.NAME]`, with its part in the conversation.
fn further_models(config: &Config) -> Vec<Finding> {
    let check = |(name, remote): (&String, &RemoteLlm)| {
        let mend =
            format!("see llm.models.{name} in the configuration, and whether its server runs");
        let finding = format!("model {name}");
        try_out(finding, &mend, || {
            let part = part_of(config, name, remote);
            match model_on_a_server(config, remote, Some(name)) {
                Ok(detail) => Ok(format!("{part}{detail}")),
                Err(error) => bail!("{part}{error:#}"),
            }
        })
    };
    config.further_llms.iter().map(check).collect()
}

/// The part of a further model: whose fallback it is, whether it is the draft model, and the agents that have it.
fn part_of(config: &Config, name: &str, remote: &RemoteLlm) -> String {
    let is_it = |other: &RemoteLlm| {
        let (own, other) = (&remote.settings, &other.settings);
        (&own.base_url, &own.model) == (&other.base_url, &other.model)
    };
    let stands_in = |model: &RemoteLlm| model.fallback.as_deref().is_some_and(is_it);
    let mut parts = Vec::new();
    if let LlmEngine::Remote(main) = &config.llm
        && stands_in(main)
    {
        parts.push("fallback of the language model".to_owned());
    }
    let others = config.further_llms.iter();
    let others = others.filter(|(_, other)| stands_in(other));
    parts.extend(others.map(|(other, _)| format!("fallback of {other}")));
    if config.draft.as_ref().is_some_and(is_it) {
        parts.push("draft model".to_owned());
    }
    let agents = config.agents.iter();
    let agents = agents.filter(|agent| agent.model.as_deref() == Some(name));
    parts.extend(agents.map(|agent| format!("agent {}", agent.name)));
    match parts.as_slice() {
        [] => String::new(),
        parts => format!("({}) ", parts.join(", ")),
    }
}

fn examine_parts(loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let mut verified = None;
    let models = try_out("models", "run `make models`", || {
        let models = verified_models(config)?;
        let detail = format!(
            "{} files in {} match their sha256",
            models.files().len(),
            models.dir().display()
        );
        verified = Some(models);
        Ok(detail)
    });
    let with_models = |name, mend, trial: fn(&Config, &Models) -> Result<String>| match &verified {
        Some(models) => try_out(name, mend, || trial(config, models)),
        None => skipped(name, "needs the models"),
    };
    vec![
        try_out("configuration", "", || {
            loaded.verify()?;
            let lines = std::iter::once(source(loaded)).chain(ignored(loaded));
            Ok(lines.collect::<Vec<_>>().join("; "))
        }),
        models,
        try_out("espeak-ng", "install the package espeak-ng", espeak),
        with_models(
            "speech recognition",
            "see asr.* in the configuration",
            listen,
        ),
        with_models("voice", "see tts.* in the configuration", speak),
        match config.speech.recognisers.is_empty() {
            true => skipped("recognition services", "there are none"),
            false => try_out(
                "recognition services",
                "see asr.services in the configuration, and whether the server runs",
                || recognition_services(config),
            ),
        },
        match config.speech.voices.is_empty() {
            true => skipped("voice services", "there are none"),
            false => try_out(
                "voice services",
                "see tts.services in the configuration, and whether the server runs",
                || voice_services(config),
            ),
        },
        try_out(
            "language model",
            "see llm.base_url, llm.model and the key in the configuration, and whether the server runs",
            || language_model(config),
        ),
        try_out("tools", "see tools.folder in the configuration", || {
            tools(config)
        }),
        try_out("files", WRITABLE, || written(config)),
        match &config.store {
            None => skipped("shared store", "there is none: this server is alone"),
            Some(settings) => try_out(
                "shared store",
                "see [store] in the configuration, and whether Redis or Valkey runs there",
                || shared_store(settings),
            ),
        },
        match config.agents.as_slice() {
            [] => skipped("agents", "there are none beside the configuration itself"),
            agents => try_out("agents", "", || Ok(named(agents, config.routes.len()))),
        },
        match config.tools.mcp.servers.as_slice() {
            [] => skipped("MCP servers", "there are none"),
            _ => try_out(
                "MCP servers",
                "see [mcp.NAME] in the configuration; `undertone mcp diff` shows changed tools and \
                 `undertone mcp pin` accepts them; a `description` in the declaration may be shorter",
                || super::mcp::examine(config),
            ),
        },
        try_out(
            "port",
            "stop the program that listens there, or choose another address",
            || port(config),
        ),
        match &config.tls {
            None => skipped(
                "TLS",
                "the server speaks plain HTTP; a proxy may speak TLS for it",
            ),
            Some(settings) => try_out(
                "TLS",
                "see [tls] and [acme] in the configuration; renew a certificate that has expired or soon does",
                || certificate(&*Tls::open(settings)?),
            ),
        },
        try_out(
            "UDP port of WebRTC",
            "stop the program that uses it, or set webrtc.udp_port; in containers and behind NAT set webrtc.advertise",
            || udp_port(config),
        ),
    ]
}

fn named(agents: &[AgentConfig], routes: usize) -> String {
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    format!("{}; {routes} routes", names.join(", "))
}

#[allow(clippy::disallowed_methods, reason = "an edge: it measures")]
fn try_out(
    name: impl Into<Cow<'static, str>>,
    mend: &str,
    trial: impl FnOnce() -> Result<String>,
) -> Finding {
    let began = Instant::now();
    let outcome = match trial() {
        Ok(detail) => Outcome::Ok { detail },
        Err(error) => Outcome::Broken {
            detail: format!("{error:#}"),
            mend: mend.into(),
        },
    };
    Finding {
        name: name.into(),
        outcome,
        ms: millis(began),
    }
}

fn skipped(name: &'static str, why: &str) -> Finding {
    Finding {
        name: name.into(),
        outcome: Outcome::Skipped { detail: why.into() },
        ms: 0,
    }
}

/// The finding for a bad configuration, without which nothing else can be checked.
fn misconfigured(error: &ConfigError) -> Finding {
    Finding {
        name: "configuration".into(),
        outcome: Outcome::Broken {
            detail: format!("{}: {}", error.origin, error.problem),
            mend: error.fix.clone(),
        },
        ms: 0,
    }
}

fn line(finding: &Finding) -> String {
    let name = &finding.name;
    match &finding.outcome {
        Outcome::Ok { detail } => format!("ok       {name:<20} {detail}"),
        Outcome::Skipped { detail } => format!("skipped  {name:<20} {detail}"),
        Outcome::Broken { detail, mend } => {
            format!(
                "BROKEN   {name:<20} {detail}\n         {:<20} fix: {mend}",
                ""
            )
        }
    }
}

fn source(loaded: &Loaded) -> String {
    loaded.file.as_ref().map_or_else(
        || "no file: built-in settings".into(),
        |file| file.display().to_string(),
    )
}

fn espeak() -> Result<String> {
    let answer = Command::new("espeak-ng")
        .arg("--version")
        .output()
        .context("cannot run espeak-ng")?;
    ensure!(answer.status.success(), "espeak-ng: {}", answer.status);
    let version = String::from_utf8_lossy(&answer.stdout);
    Ok(version.lines().next().unwrap_or_default().trim().to_owned())
}

#[allow(clippy::disallowed_methods, reason = "an edge: it measures")]
fn listen(config: &Config, models: &Models) -> Result<String> {
    crate::onnx::init(&models.onnx_runtime())?;
    let mut asr = asr_builder(config, models)()?;
    let threads = threads(config).recogniser;
    let silence = vec![0.0; 2 * crate::audio::RATE as usize];
    let began = Instant::now();
    asr.transcribe(&silence)?;
    Ok(format!(
        "{}: 2 s of audio in {} ms; threads of the server: {threads}",
        asr.name(),
        millis(began)
    ))
}

#[allow(clippy::disallowed_methods, reason = "an edge: it measures")]
fn speak(config: &Config, models: &Models) -> Result<String> {
    crate::onnx::init(&models.onnx_runtime())?;
    let mut tts = tts_builder(config, models)()?;
    let began = Instant::now();
    match tts.speak("Everything works.")?.next() {
        Some(chunk) => chunk?,
        None => bail!("{} makes no sound", tts.name()),
    };
    let first = millis(began);
    Ok(format!("{}: first audio after {first} ms", tts.name()))
}

/// Has each service transcribe a second of silence, with the client that sessions use.
#[allow(clippy::disallowed_methods, reason = "an edge: it measures")]
fn recognition_services(config: &Config) -> Result<String> {
    let runtime = runtime()?;
    let _context = runtime.enter();
    let hints = Hints {
        keyterms: config.keyterms.clone(),
        ..Hints::default()
    };
    let checks = config.speech.recognisers.iter().map(|(name, settings)| {
        let mut session = asr_service(settings)?.open(&hints);
        let part = Utterance {
            from: Samples(0),
            audio: vec![0.0; crate::audio::RATE as usize],
            partial: false,
        };
        session.listen(part.from, &part.audio);
        let began = Instant::now();
        let heard = async { timeout(BACKEND_PATIENCE, session.transcribe(part)).await };
        in_time(name, runtime.block_on(heard).map(|heard| heard.map(drop)))?;
        Ok(format!("{name}: 1 s of audio in {} ms", millis(began)))
    });
    Ok(checks.collect::<Result<Vec<_>>>()?.join("; "))
}

/// Has each service begin to speak.
#[allow(clippy::disallowed_methods, reason = "an edge: it measures")]
fn voice_services(config: &Config) -> Result<String> {
    let runtime = runtime()?;
    let _context = runtime.enter();
    let checks = config.speech.voices.iter().map(|(name, settings)| {
        let mut session = tts_service(settings)?.open(None);
        let began = Instant::now();
        let speech = session.speak("Everything works.");
        let is_empty = |piece: &Result<Piece, TtsError>| {
            let is_empty = |piece: &Piece| piece.samples.is_empty();
            std::future::ready(piece.as_ref().is_ok_and(is_empty))
        };
        let mut audible = std::pin::pin!(speech.skip_while(is_empty));
        let first = async { timeout(BACKEND_PATIENCE, audible.next()).await };
        let first = runtime.block_on(first).map(Option::transpose);
        if let Ok(Ok(None)) = first {
            bail!("{name} makes no sound");
        }
        in_time(name, first.map(|first| first.map(drop)))?;
        Ok(format!("{name}: first audio after {} ms", millis(began)))
    });
    Ok(checks.collect::<Result<Vec<_>>>()?.join("; "))
}

/// The error of a service that failed or did not answer.
fn in_time<E: std::error::Error + Send + Sync + 'static>(
    name: &str,
    done: Result<Result<(), E>, Elapsed>,
) -> Result<()> {
    let late = || {
        format!(
            "{name} did not answer within {} s",
            BACKEND_PATIENCE.as_secs()
        )
    };
    done.map_err(|_| anyhow!(late()))?
        .with_context(|| name.to_owned())
}

fn language_model(config: &Config) -> Result<String> {
    match &config.llm {
        LlmEngine::Remote(remote) => model_on_a_server(config, remote, None),
        LlmEngine::Brain => Ok("the embedded brain".into()),
    }
}

/// Asks the server for its list of models with the client that sessions use. The request is free
/// and tests address, key and latency.
fn model_on_a_server(config: &Config, remote: &RemoteLlm, entry: Option<&str>) -> Result<String> {
    let model = remote_llm(remote, |settings| {
        settings.connect_timeout = BACKEND_PATIENCE;
        settings.stall_timeout = BACKEND_PATIENCE;
    })?;
    let health = runtime()?
        .block_on(model.check())
        .map_err(|error| anyhow!("{}", error.details()))?;
    let name = &remote.settings.model;
    let probed = config
        .cache
        .as_deref()
        .and_then(|cache| probe::last(cache, remote));
    let advice = match probed {
        None => {
            let entry = entry.map_or_else(String::new, |entry| format!(" {entry}"));
            format!("; it was never probed: run `undertone probe{entry}`")
        }
        Some(probed) if probed.calls != remote.settings.calls => {
            "; it was probed, and the other value of `calls` is better".into()
        }
        Some(_) => "; it was probed".to_owned(),
    };
    let delay = health.latency.as_millis();
    match health.model_listed {
        Some(true) => Ok(format!(
            "{name} is available; the server answered after {delay} ms{advice}"
        )),
        // Some servers do not list aliases or newly loaded models.
        Some(false) => Ok(format!(
            "the server answered after {delay} ms, but {name} is not on its list of {} models{advice}",
            health.models.map_or(0, |models| models.len())
        )),
        None if health.may_list => Ok(format!(
            "the server answered after {delay} ms; it lists no models{advice}"
        )),
        None => Ok(format!(
            "the server answered after {delay} ms; this key may not list its models{advice}"
        )),
    }
}

/// Counts the tools of each kind.
fn tools(config: &Config) -> Result<String> {
    declared::verify(&config.tools.declared)?;
    let own = declared::registry(&config.tools.declared)?;
    let kinds = ["builtin", "http", "subprocess", "mcp"];
    let count = |kind: &str| {
        config
            .tools
            .declared
            .iter()
            .filter(|tool| tool.kind.name() == kind)
            .count()
    };
    let declared: Vec<String> = kinds
        .iter()
        .map(|kind| format!("{} {kind}", count(kind)))
        .collect();
    let missing = config.tools.missing.as_ref();
    let missing = missing.map_or_else(String::new, |folder| {
        format!(" (there is no folder {})", folder.display())
    });
    let declared = declared.join(", ") + &missing;
    let count = own.specs().len();
    Ok(format!("{count} tools; declared: {declared}"))
}

/// Opens what the server writes, as it does. Nothing that it makes stays: it would belong to this user, who may be
/// another one than the server's.
fn written(config: &Config) -> Result<String> {
    let audit = Some(&config.audit.file).filter(|_| config.audit.enabled);
    let calls = config.call_recording.as_ref().map(|calls| &calls.folder);
    let named = [
        ("turn log", config.log.turns.as_ref()),
        ("audit log", audit),
        ("recordings of calls", calls),
    ];
    let journal_file = config.tools.journal.as_path();
    let lock = journal_file.with_extension("lock");
    let logs = named.iter();
    let logs = logs.filter_map(|(_, path)| path.map(PathBuf::as_path));
    let paths = logs.chain([journal_file, lock.as_path()]);
    let absent: Vec<&Path> = paths.flat_map(absent).collect();
    let opened = journal(config).and_then(|journal| serve::logs(config).map(|_| journal));
    for path in absent {
        let found = std::fs::symlink_metadata(path);
        // Folders that are not empty stay as well.
        let _ = match found.is_ok_and(|found| found.is_file() && found.len() == 0) {
            true => std::fs::remove_file(path),
            false => std::fs::remove_dir(path),
        };
    }
    let named = named.into_iter();
    let named = named.filter_map(|(what, path)| Some(format!("; {what} {}", path?.display())));
    Ok(opened? + &named.collect::<String>())
}

/// The path and the folders above it that are not there, each before the one that it is in.
fn absent(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().take_while(|path| {
        let found = std::fs::symlink_metadata(path);
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    })
}

#[allow(clippy::disallowed_methods, reason = "an edge: old calls are left out")]
fn journal(config: &Config) -> Result<String> {
    if config.store.is_some() {
        return Ok("the journal is in the shared store".into());
    }
    let path = &config.tools.journal;
    let journal = JournalFile::open(path, jiff::Timestamp::now()).context("tools.journal")?;
    let unknown = match journal.unknown().len() {
        0 => String::new(),
        calls => format!(", with {calls} calls whose outcome is unknown"),
    };
    Ok(format!("journal {}{unknown}", path.display()))
}

fn shared_store(settings: &StoreSettings) -> Result<String> {
    let tried = runtime()?.block_on(settings.try_out());
    tried.with_context(|| settings.url.to_string())?;
    Ok(format!("{} answers and can be written", settings.url))
}

/// Opening it has shown that key and certificate belong together.
#[allow(clippy::disallowed_methods, reason = "an edge: certificates expire")]
fn certificate(tls: &Tls) -> Result<String> {
    let Some(certificate) = tls.certificate() else {
        return Ok(
            "there is no certificate yet: the server asks the ACME server for it when it runs"
                .into(),
        );
    };
    let (names, until) = (certificate.names.join(", "), certificate.until);
    let now = jiff::Timestamp::now();
    ensure!(
        certificate.from <= now,
        "the certificate for {names} is valid from {} on",
        certificate.from
    );
    ensure!(
        until > now,
        "the certificate for {names} expired at {until}"
    );
    ensure!(
        !certificate.expires_soon(now),
        "the certificate for {names} expires at {until}"
    );
    Ok(format!(
        "the key matches; the certificate for {names} is valid until {until}"
    ))
}

/// Whether the addresses of all listeners can be bound, at the same time.
fn port(config: &Config) -> Result<String> {
    let server = config.server.bind;
    let doors = [
        ("server.port", Some(server)),
        ("asterisk.audiosocket", config.audiosocket),
        ("wyoming.listen", config.wyoming),
    ];
    let mut bound = Vec::new();
    for (key, address) in doors {
        let Some(address) = address else { continue };
        match TcpListener::bind(address) {
            Ok(listener) => bound.push(listener),
            Err(_) if is_served(config) => return Ok(format!("a server is up on {server}")),
            Err(error) => {
                return Err(error).with_context(|| format!("{key}: cannot listen on {address}"));
            }
        }
    }
    let addresses = bound
        .iter()
        .filter_map(|listener| listener.local_addr().ok());
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    Ok(format!("free: {}", addresses.join(", ")))
}

/// Whether the port of calls over WebRTC can be bound, and which addresses browsers are told.
fn udp_port(config: &Config) -> Result<String> {
    let server = config.server.bind;
    let address = config.webrtc.address(server);
    let bound = match webrtc::bind(address, &config.webrtc.advertise) {
        Ok(bound) => bound,
        Err(_) if is_served(config) => return Ok(format!("a server is up on {server}")),
        Err(error) => return Err(error).with_context(|| format!("cannot use UDP port {address}")),
    };
    if config.webrtc.tcp && address.port() != server.port() {
        TcpListener::bind(address).with_context(|| format!("cannot use TCP port {address}"))?;
    }
    let told: Vec<String> = bound
        .addresses()
        .iter()
        .map(SocketAddr::to_string)
        .collect();
    let reach = match bound.is_private() {
        true => "; other networks cannot reach them: set webrtc.advertise if browsers there should",
        false => "",
    };
    Ok(format!(
        "{address} is free; browsers are told {}{reach}",
        told.join(", ")
    ))
}

/// Whether this server already listens there, judged by its health check.
fn is_served(config: &Config) -> bool {
    asked(config, "healthz").is_ok_and(|text| text == HEALTHY)
}

/// The answer of the running server to a GET request.
fn asked(config: &Config, path: &str) -> Result<String> {
    let url = format!("{}/{path}", running::address(config));
    let asked = async || -> Result<(StatusCode, String)> {
        let client = running::client(BACKEND_PATIENCE)?;
        let answer = client.get(&url).send().await?;
        Ok((answer.status(), answer.text().await?))
    };
    let (status, text) = runtime()?.block_on(asked())?;
    ensure!(status.is_success(), "{url}: {status}: {text}");
    Ok(text)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn millis(began: Instant) -> u64 {
    began.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
}
