//! `undertone serve`.

use super::engines;
use super::reload::{Current, Reloader};
use super::retention::Kept;
use super::server_settings::{max_connections, settings};
use super::signals::{Asked, Signals};
use super::{Common, WRITABLE, playground};
use crate::config::{
    AuditConfig, CallRecordingConfig, Config, Flags, Loaded, Scope, WebhookConfig,
};
use crate::metrics::Metrics;
use crate::report::{Secret, Webhook};
use crate::server::{self, App, Demonstration, Renewed, ServerError, ServerSettings, Tls, Twilio};
use crate::session::{
    self, CallRecordings, Engines, LiveEngines, ModelThreads, Observers, SessionOptions,
};
use crate::stats::TurnLog;
use crate::store::Store;
use crate::tools::AuditLog;
use crate::traces::{TraceSettings, Traces};
use crate::transport::door::Door;
use crate::transport::phone::audiosocket::{self, AudioSocket};
use crate::transport::phone::tickets::{SharedTickets, TicketMemory, TicketStore};
use crate::transport::webrtc;
use crate::transport::wyoming::{self, ConversationMemory};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// How long remaining threads may take to finish after the server has stopped.
const LAST_TASKS: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The address to listen on; 0.0.0.0 for every interface
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// The TCP port; 0 takes any free one
    #[arg(long)]
    port: Option<u16>,
    /// Let other machines in without a token
    #[arg(long)]
    insecure: bool,
    /// Record every session in this folder, for `undertone replay`. The files contain everything
    /// that was said; only their owner can read them
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// Append a line for each turn to this file, for `undertone stats`: times, tools and the
    /// outcome of speculation, no words
    #[arg(long, value_name = "FILE.jsonl")]
    turns: Option<PathBuf>,
}

impl Serve {
    pub(super) fn flags(&self, common: Common) -> Flags {
        Flags {
            host: self.host.clone(),
            port: self.port,
            insecure: self.insecure,
            turns: self.turns.clone(),
            ..common.flags(Scope::Server)
        }
    }

    pub(super) fn run(&self, loaded: Loaded, flags: Flags) -> Result<()> {
        let logs = logs(&loaded.config).map_err(|error| anyhow!("{error:#}; {WRITABLE}"))?;
        let observers = Observers {
            recordings: super::recordings(self.record.as_deref())?,
            webhook: Some(webhook(&loaded.config)),
            traces: traces(&loaded.config)?,
            patterns: engines::patterns(&loaded.config),
            ..logs
        };
        let kept = Kept::new(&loaded.config, self.record.as_deref());
        let runtime = super::runtime()?;
        let served = runtime.block_on(serve(loaded, flags, observers, kept));
        // Remaining tasks have had their time, or a second signal cut them short.
        runtime.shutdown_timeout(LAST_TASKS);
        served
    }
}

/// The files that the server writes of sessions, opened.
pub(super) fn logs(config: &Config) -> Result<Observers> {
    Ok(Observers {
        turns: turn_log(config.log.turns.as_deref())?,
        calls: calls(config)?,
        audit: audit(config)?,
        ..Observers::default()
    })
}

pub(super) fn turn_log(path: Option<&Path>) -> Result<Option<TurnLog>> {
    let open = |path: &Path| {
        let opened = TurnLog::open(path);
        opened.with_context(|| format!("log.turns: cannot write {}", path.display()))
    };
    path.map(open).transpose()
}

fn calls(config: &Config) -> Result<Option<CallRecordings>> {
    let record = |config: &CallRecordingConfig| {
        let CallRecordingConfig {
            folder,
            consent,
            agents,
        } = config.clone();
        let recordings = CallRecordings::new(&folder, consent, agents);
        recordings.with_context(|| {
            format!(
                "call_recording.folder: cannot record calls in {}",
                folder.display()
            )
        })
    };
    config.call_recording.as_ref().map(record).transpose()
}

fn audit(config: &Config) -> Result<Option<AuditLog>> {
    let open = |config: &AuditConfig| {
        let opened = AuditLog::open(&config.file, config.arguments);
        opened.with_context(|| format!("audit.file: cannot write {}", config.file.display()))
    };
    let audit = Some(&config.audit).filter(|audit| audit.enabled);
    audit.map(open).transpose()
}

/// The web service that is told of calls, with a folder for reports that it does not take.
fn webhook(config: &Config) -> Webhook {
    Webhook::keeping(service(config), reports(config))
}

/// The collector of traces.
fn traces(config: &Config) -> Result<Option<Traces>> {
    let open = |settings: &TraceSettings| {
        let opened = Traces::new(settings.clone());
        opened.map_err(|error| anyhow!("telemetry.endpoint: {error}"))
    };
    config.traces.as_ref().map(open).transpose()
}

/// The folder of reports that the web service has not taken, beside the journal.
pub(super) fn reports(config: &Config) -> PathBuf {
    config.tools.journal.with_file_name("reports")
}

/// The web service of the configuration.
pub(super) fn service(config: &Config) -> Option<(Url, Secret)> {
    let WebhookConfig { url, secret } = config.webhook.clone()?;
    Some((url, secret))
}

async fn serve(
    mut loaded: Loaded,
    flags: Flags,
    mut observers: Observers,
    kept: Kept,
) -> Result<()> {
    let mut signals = Signals::listen()?;
    // Before the models are loaded, so that a port in use is reported at once.
    let mut sockets = Sockets::open(&loaded.config)?;
    let demonstration = demonstration(&mut loaded.config, server::ANYWHERE);
    let config = &loaded.config;
    let metrics = observers.metrics.clone();
    observers.store = store(config, &metrics).await?;
    let tickets = tickets(observers.store.as_ref());
    let (loading, stopped) = (load(config.clone(), observers), signals.stop());
    let engines = tokio::select! {
        engines = loading => engines?,
        () = stopped => return Ok(()),
    };
    if let Some(webhook) = engines.webhook() {
        webhook.resume();
    }
    let settings = ServerSettings {
        max_connections: max_connections(config.server.max_sessions),
        ..settings(config, sockets.address, &engines)
    };
    super::print(&sockets.welcome(config.server.twilio.as_ref()))?;
    let tls = sockets.tls.take();
    let (renew, renewed) = watch::channel(Renewed::new(settings.clone(), playground::of(&engines)));
    let current = Arc::new(RwLock::new(engines.clone()));
    let (opener, gauged) = (current.clone(), engines.clone());
    let sessions =
        Arc::new(move |options: SessionOptions| Ok(session::open(&opener.clone().now(), &options)));
    let calls = sockets.webrtc.take();
    let (listener, further) = sockets.open_to(&settings, &current);
    let app = App {
        metrics,
        tickets,
        doors: further,
        renewed: Some(renewed),
        speech: Some(current.clone()),
        webrtc: calls,
        tls: tls.clone(),
        room: Arc::new(move || gauged.admit()),
        ..App::new(settings, sessions)
    };
    let shutdown = CancellationToken::new();
    let serving = async {
        server::run(listener, app, shutdown.clone()).await?;
        engines.finish_changes().await;
        engines.finish_sessions().await;
        Ok(())
    };
    let reloader = Reloader::new(flags, loaded, demonstration, current, renew, tls);
    let _deleting = AbortOnDropHandle::new(tokio::spawn(kept.keep()));
    tokio::select! {
        served = serving => served,
        ended = obey(signals, &shutdown, reloader) => ended,
    }
}

/// The store that is shared with other servers.
async fn store(config: &Config, metrics: &Metrics) -> Result<Option<Store>> {
    let Some(settings) = &config.store else {
        return Ok(None);
    };
    let store = Store::open(settings, metrics.store()).await;
    store.map(Some).context("store.url")
}

/// Remembers the tickets that were used.
fn tickets(store: Option<&Store>) -> Arc<dyn TicketStore> {
    match store {
        Some(store) => Arc::new(SharedTickets::new(store.clone())),
        None => Arc::new(TicketMemory::default()),
    }
}

/// Starts the demonstration and adds its tools, unless it is switched off. A failure is only logged:
/// the server can do without it.
fn demonstration(config: &mut Config, at: SocketAddr) -> Option<Demonstration> {
    if !config.demonstration {
        return None;
    }
    match Demonstration::open(at) {
        Ok(demonstration) => {
            tracing::info!(
                address = %demonstration.address(),
                "the page has a demonstration: a shop with made-up data that takes 1.5 s to answer; \
                 playground.demonstration = false switches it off"
            );
            demonstration.declare(&mut config.tools.declared);
            Some(demonstration)
        }
        Err(error) => {
            tracing::warn!(%error, "the page has no demonstration");
            None
        }
    }
}

/// Loads the models on a blocking thread, so that signals are handled meanwhile.
async fn load(config: Config, observers: Observers) -> Result<Arc<Engines>> {
    let ModelThreads {
        recogniser,
        turn_model,
    } = super::engines::threads(&config);
    tracing::info!(recogniser, turn_model, "threads of the models");
    let load = move || super::engines::observed(&config, observers);
    tokio::task::spawn_blocking(load).await?
}

/// Handles signals. Returns an error at the second stop signal, which cuts the drain short.
async fn obey(
    mut signals: Signals,
    shutdown: &CancellationToken,
    reloader: Reloader,
) -> Result<()> {
    let mut idle = Some(reloader);
    let mut reloading: Option<JoinHandle<Reloader>> = None;
    let mut again = false;
    loop {
        let asked = tokio::select! {
            asked = signals.next() => asked,
            done = finished(&mut reloading) => {
                (reloading, idle) = (None, Some(done?));
                if !std::mem::take(&mut again) {
                    continue;
                }
                Asked::Reload
            }
        };
        match asked {
            Asked::Stop if shutdown.is_cancelled() => {
                bail!("stopped by a second signal; conversations were cut short")
            }
            Asked::Stop => shutdown.cancel(),
            Asked::Reload => match idle.take() {
                Some(reloader) => reloading = Some(reloader.start()),
                None => again = true,
            },
            Asked::Nothing(signal) => tracing::info!(signal, "ignored a signal"),
        }
    }
}

async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Result<T> {
    match task {
        Some(task) => Ok(task.await?),
        None => std::future::pending().await,
    }
}

/// A listener for a protocol other than HTTP.
type Further = (TcpListener, Arc<dyn Door>);

/// The listening sockets.
struct Sockets {
    listener: TcpListener,
    address: SocketAddr,
    webrtc: Option<webrtc::Bound>,
    tls: Option<Arc<Tls>>,
    audiosocket: Option<TcpListener>,
    wyoming: Option<TcpListener>,
}

impl Sockets {
    fn open(config: &Config) -> Result<Self> {
        let address = config.server.bind;
        let listener = named("server.host, server.port", server::bind(address))?;
        let bind_calls = |address| server::bind_with(address, audiosocket::SEND_BUFFER);
        let calls = config.audiosocket.map(bind_calls);
        let home = config.wyoming.map(server::bind);
        let address = listener.local_addr()?;
        Ok(Self {
            address,
            listener,
            audiosocket: calls
                .map(|bound| named("asterisk.audiosocket", bound))
                .transpose()?,
            wyoming: home
                .map(|bound| named("wyoming.listen", bound))
                .transpose()?,
            tls: config.tls.as_ref().map(Tls::open).transpose()?,
            // It logs, and a failure must be one line.
            webrtc: Some(webrtc_port(config, address)?),
        })
    }

    /// The listener for HTTP, and the others with their doors.
    fn open_to(self, settings: &ServerSettings, engines: &Current) -> (TcpListener, Vec<Further>) {
        let calls = self.audiosocket.map(|listener| {
            let door = AudioSocket::new(settings.pcm_intake);
            (listener, Arc::new(door) as Arc<dyn Door>)
        });
        let home = self.wyoming.map(|listener| {
            let conversations = Arc::new(ConversationMemory::default());
            let door = wyoming::Service::new(engines.clone(), conversations);
            (listener, Arc::new(door) as Arc<dyn Door>)
        });
        (self.listener, calls.into_iter().chain(home).collect())
    }

    fn welcome(&self, twilio: Option<&Twilio>) -> String {
        let address = self.address;
        let door = |name: &str, listener: &Option<TcpListener>| {
            let address = listener.as_ref()?.local_addr().ok()?;
            Some(format!("\x20 {name:<24} {address}\n"))
        };
        let calls = door("Asterisk's AudioSocket", &self.audiosocket).unwrap_or_default();
        let home = door("Home Assistant (Wyoming)", &self.wyoming).unwrap_or_default();
        let twilio = twilio.map_or_else(String::new, |twilio| {
            format!("\x20 Twilio's calls           {}\n", twilio.voice_url())
        });
        let webrtc = self.webrtc.iter().flat_map(webrtc::Bound::addresses);
        let webrtc: Vec<_> = webrtc.map(|address| format!("udp {address}")).collect();
        let webrtc = webrtc.join(", ");
        let (http, ws) = match &self.tls {
            Some(_) => ("https", "wss"),
            None => ("http", "ws"),
        };
        let certificate = self.tls.as_deref().map(Tls::certificate);
        let certificate = certificate.map_or_else(String::new, |shown| {
            let shown = shown.map_or_else(
                || "none yet: the ACME server is asked for it".to_owned(),
                |shown| format!("{}, until {}", shown.names.join(", "), shown.until),
            );
            format!("\x20 TLS certificate          {shown}\n")
        });
        format!(
            "undertone listens on {http}://{address}\n\
             \x20 OpenAI Realtime clients  {ws}://{address}/v1/realtime\n\
             \x20 the same over WebRTC     {http}://{address}/v1/realtime/calls, {webrtc}\n\
             \x20 plain 16 kHz PCM         {ws}://{address}/v1/pcm\n\
             {certificate}\
             {calls}\
             {home}\
             {twilio}\
             open it in a browser, or try, in another shell:\n\
             \x20 undertone say \"What time is it in Tokyo?\" --out question.wav\n\
             \x20 undertone ask question.wav --out answer.wav"
        )
    }
}

/// How often a number is tried that is free for both UDP and TCP.
const TRIES: usize = 8;

/// Binds the port of WebRTC.
fn webrtc_port(config: &Config, server: SocketAddr) -> Result<webrtc::Bound> {
    let address = config.webrtc.address(config.server.bind);
    let bind = || match config.webrtc.tcp {
        true => over_tcp(udp_port(config, address)?, server, address.ip()),
        false => udp_port(config, address),
    };
    // A number that the system chose for UDP may be taken for TCP.
    let chosen = (address.port() == 0).then(|| (1..TRIES).find_map(|_| bind().ok()));
    let bound = chosen.flatten().map_or_else(bind, Ok)?;
    tracing::info!(addresses = ?bound.addresses(), "WebRTC clients are offered these addresses");
    if bound.is_private() {
        tracing::warn!(
            addresses = ?bound.addresses(),
            "browsers on other networks cannot reach these addresses: set webrtc.advertise to those that they can"
        );
    }
    Ok(bound)
}

fn udp_port(config: &Config, address: SocketAddr) -> Result<webrtc::Bound> {
    webrtc::bind(address, &config.webrtc.advertise).map_err(|error| {
        anyhow!(
            "webrtc.udp_port: cannot use UDP port {} of {}: {error}; stop the program that uses it, or \
             choose another port",
            address.port(),
            address.ip()
        )
    })
}

/// Takes calls over TCP on the number of the UDP port, which may be that of the server's own listener.
fn over_tcp(bound: webrtc::Bound, server: SocketAddr, ip: IpAddr) -> Result<webrtc::Bound> {
    let number = bound.port();
    if number == server.port() {
        return Ok(bound.over(webrtc::Tcp::Shared));
    }
    let listener = named(
        "webrtc.udp_port, webrtc.tcp",
        server::bind(SocketAddr::new(ip, number)),
    )?;
    Ok(bound.over(webrtc::Tcp::Own(listener)))
}

/// Adds the settings' names to the error of an address that cannot be listened on.
fn named(keys: &str, bound: Result<TcpListener, ServerError>) -> Result<TcpListener> {
    bound.map_err(|error| {
        anyhow!("{keys}: {error}; stop the program that listens there, or choose another address")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load};
    use crate::models::Models;

    fn names(config: &Config) -> Vec<&str> {
        let tools = config.tools.declared.iter();
        tools.map(|tool| &*tool.declaration.spec.name).collect()
    }

    #[tokio::test]
    async fn the_demonstration_is_there_unless_it_is_switched_off_or_its_port_is_taken() {
        let shipped = load(&Flags::default(), &Environment::default())
            .unwrap()
            .config;
        let mut config = shipped.clone();
        let running = demonstration(&mut config, server::ANYWHERE).unwrap();
        assert!(names(&config).contains(&"get_demo_order"));

        let mut config = shipped.clone();
        assert!(demonstration(&mut config, running.address()).is_none());
        assert_eq!(names(&config), names(&shipped));

        config.demonstration = false;
        assert!(demonstration(&mut config, server::ANYWHERE).is_none());
        assert_eq!(names(&config), names(&shipped));
    }

    #[tokio::test]
    async fn the_demonstrations_tools_compete_with_no_others_for_words() {
        let mut config = load(&Flags::default(), &Environment::default())
            .unwrap()
            .config;
        let _running = demonstration(&mut config, server::ANYWHERE).unwrap();
        let models = Models::open(&config.models).unwrap();
        let (_, settings) = super::super::engines::predictable(&config, &models).unwrap();
        let is_shown = |name: &str| name.contains("demo");
        assert!(!settings.tools.is_empty() && !settings.by_rules.is_empty());
        assert!(
            !settings
                .tools
                .iter()
                .any(|(tool, _)| is_shown(&tool.spec.name))
        );
        assert!(
            settings
                .by_rules
                .iter()
                .all(|(tool, _)| is_shown(&tool.spec.name))
        );
    }
}
