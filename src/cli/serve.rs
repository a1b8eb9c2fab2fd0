//! `undertone serve`.

use super::{Common, playground};
use crate::config::{Config, Flags, Scope};
use crate::server::{self, App, ServerSettings, Twilio};
use crate::session::{self, Witnesses};
use crate::stats::TurnLog;
use anyhow::{Context, Result};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

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
    /// Record every session in this folder, for `undertone replay`. The files hold all that was
    /// said: only their owner may read them
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// Append a line for each turn to this file, for `undertone stats`: times, tools and what
    /// speculation came to, no words
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

    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let witnesses = Witnesses {
            recordings: super::recordings(self.record.as_deref())?,
            turns: turn_log(config.log.turns.as_deref())?,
            ..Witnesses::default()
        };
        super::runtime()?.block_on(serve(config, witnesses))
    }
}

pub(super) fn turn_log(path: Option<&Path>) -> Result<Option<TurnLog>> {
    let open = |path: &Path| {
        TurnLog::open(path).with_context(|| format!("cannot write {}", path.display()))
    };
    path.map(open).transpose()
}

async fn serve(config: &Config, witnesses: Witnesses) -> Result<()> {
    // Before the models are loaded: a taken port is known at once.
    let listener = server::bind(SocketAddr::new(config.server.host, config.server.port))?;
    let address = listener.local_addr()?;
    let audiosocket = config.asterisk.audiosocket;
    let audiosocket = audiosocket.map(server::bind_audiosocket).transpose()?;
    let calls = audiosocket.as_ref().map(TcpListener::local_addr);
    let calls = calls.transpose()?;
    let wyoming = config
        .wyoming
        .listen
        .map(server::bind_wyoming)
        .transpose()?;
    let home = wyoming.as_ref().map(TcpListener::local_addr).transpose()?;
    let metrics = witnesses.metrics.clone();
    let engines = super::engines::witnessed(config, witnesses)?;
    let settings = settings(config, address);
    let opener = engines.clone();
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let shutdown = CancellationToken::new();
    tokio::spawn(cancel_on_signal(shutdown.clone())?);
    super::print(&welcome(address, calls, home, config.twilio.as_ref()))?;
    let app = App {
        metrics,
        audiosocket,
        wyoming: wyoming.map(|listener| (listener, engines.clone())),
        playground: playground::of(&engines),
        ..App::new(settings, sessions)
    };
    server::run(listener, app, shutdown).await?;
    engines.finish_changes().await;
    engines.finish_sessions().await;
    Ok(())
}

fn settings(config: &Config, bind: SocketAddr) -> ServerSettings {
    ServerSettings {
        bind,
        max_sessions: config.server.max_sessions,
        auth_token: config.server.auth_token.clone(),
        client_secret_key: config.server.client_secret_key.clone(),
        allowed_origins: config.server.allowed_origins.clone(),
        insecure: config.server.insecure,
        interrupt: config.turn.interrupt,
        drain_deadline: config.server.drain,
        twilio: config.twilio.clone(),
        ..ServerSettings::default()
    }
}

fn welcome(
    address: SocketAddr,
    calls: Option<SocketAddr>,
    home: Option<SocketAddr>,
    twilio: Option<&Twilio>,
) -> String {
    let calls = calls.map_or_else(String::new, |calls| {
        format!("\x20 Asterisk's AudioSocket   {calls}\n")
    });
    let home = home.map_or_else(String::new, |home| {
        format!("\x20 Home Assistant (Wyoming) {home}\n")
    });
    let twilio = twilio.map_or_else(String::new, |twilio| {
        format!("\x20 Twilio's calls           {}\n", twilio.voice_url())
    });
    format!(
        "undertone listens on http://{address}\n\
         \x20 OpenAI Realtime clients  ws://{address}/v1/realtime\n\
         \x20 plain 16 kHz PCM         ws://{address}/v1/pcm\n\
         {calls}\
         {home}\
         {twilio}\
         open it in a browser, or try, in another shell:\n\
         \x20 undertone say \"What time is it in Tokyo?\" --out question.wav\n\
         \x20 undertone ask question.wav --out answer.wav"
    )
}

/// Cancels `shutdown` at the first SIGTERM or Ctrl-C.
pub(super) fn cancel_on_signal(shutdown: CancellationToken) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        shutdown.cancel();
    })
}
