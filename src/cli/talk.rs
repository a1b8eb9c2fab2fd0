//! `undertone talk`.

use super::{engines, serve};
use crate::config::Config;
use crate::desktop::devices::{self, Direction};
use crate::desktop::line::{Agent, LocalAgent, Remote};
use crate::desktop::screen::Screen;
use crate::desktop::{self, Desk};
use crate::session::Observers;
use anyhow::{Context, Result};
use clap::Args;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The most presses of Enter that may be queued.
const PRESSES: usize = 8;

#[derive(Debug, Args)]
pub(super) struct Talk {
    /// Talk to the server at this address, such as ws://host:8787, instead of loading models here;
    /// its token comes from UNDERTONE_AUTH_TOKEN or server.auth_token_file
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The microphone, by a name that --list-devices shows; by default the system's
    #[arg(long, value_name = "NAME")]
    input: Option<String>,
    /// The loudspeaker, by a name that --list-devices shows; by default the system's
    #[arg(long, value_name = "NAME")]
    output: Option<String>,
    /// List the microphones and loudspeakers of this machine, and exit
    #[arg(long)]
    list_devices: bool,
    /// Start with the microphone muted: Enter unmutes and mutes it
    #[arg(long)]
    push_to_talk: bool,
    /// No chime when a timer rings, and no sound while a tool runs
    #[arg(long)]
    no_sounds: bool,
    /// The agent to talk to; by default the one that the routes lead to
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Record every conversation in this folder, for `undertone replay`. The files contain
    /// everything that was said; only their owner can read them
    #[arg(long, value_name = "FOLDER", conflicts_with = "server")]
    record: Option<PathBuf>,
}

impl Talk {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        if self.list_devices {
            return list();
        }
        super::runtime()?.block_on(self.talk(config))
    }

    async fn talk(&self, config: &Config) -> Result<()> {
        let (input, output) = (self.input.as_deref(), self.output.as_deref());
        // Before the models are loaded, so that a missing microphone is reported at once.
        devices::check(input, output)?;
        let stop = CancellationToken::new();
        tokio::spawn(cancel_on_signal(stop.clone())?);
        let agent = self.agent(config)?;
        let stdout = std::io::stdout();
        let mut screen = Screen::new(&stdout, stdout.is_terminal());
        screen.line(if self.push_to_talk {
            "press Enter to speak, and again when you are done; Ctrl-C ends"
        } else {
            "speak; Enter mutes the microphone, Ctrl-C ends"
        })?;
        let desk = Desk {
            input: self.input.clone(),
            output: self.output.clone(),
            toggle: presses(),
            listening: !self.push_to_talk,
            sounds: !self.no_sounds,
        };
        let over = desktop::talk(desk, &agent, &mut screen, &stop).await;
        let shown = screen.finish();
        if let Agent::Local(LocalAgent(engines, _)) = &agent {
            engines.finish_changes().await;
            engines.finish_sessions().await;
        }
        let over = over?;
        shown?;
        screen.line(&format!("({over})"))?;
        screen.finish()?;
        Ok(())
    }

    fn agent(&self, config: &Config) -> Result<Agent> {
        if let Some(url) = &self.server {
            return Ok(Agent::Remote(Remote {
                url: url.clone(),
                token: config.server.auth_token.clone(),
                agent: self.agent.clone(),
            }));
        }
        super::check_agent(self.agent.as_deref(), config)?;
        let observers = Observers {
            recordings: super::recordings(self.record.as_deref())?,
            turns: serve::turn_log(config.log.turns.as_deref())?,
            patterns: engines::patterns(config),
            ..Observers::default()
        };
        let engines = engines::observed(config, observers)?;
        Ok(Agent::Local(LocalAgent(engines, self.agent.clone())))
    }
}

fn list() -> Result<()> {
    for (title, direction) in [
        ("microphones (--input)", Direction::Input),
        ("loudspeakers (--output)", Direction::Output),
    ] {
        super::print(title)?;
        let devices = devices::list(direction)?;
        if devices.is_empty() {
            super::print("  none")?;
        }
        for device in devices {
            super::print(&format!("  {:<40} {}", device.name, device.description))?;
        }
    }
    Ok(())
}

/// Sends a message for every line typed on stdin.
fn presses() -> mpsc::Receiver<()> {
    let (press, presses) = mpsc::channel(PRESSES);
    // Reading cannot be cancelled: the thread ends with the process.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || press.blocking_send(()).is_err() {
                return;
            }
        }
    });
    presses
}

/// Cancels `shutdown` at the first SIGTERM or Ctrl-C.
fn cancel_on_signal(shutdown: CancellationToken) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        shutdown.cancel();
    })
}
