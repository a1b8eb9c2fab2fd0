//! The signals that a server handles.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// This process's signals. While this exists, none of them ends the process by default action.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user1: Signal,
    user2: Signal,
    /// A reload was requested and has not been reported yet.
    reload: bool,
}

/// The request that a signal makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// SIGTERM or Ctrl-C: stop.
    Stop,
    /// SIGHUP: reload the configuration.
    Reload,
    /// A signal that is ignored.
    Nothing(&'static str),
}

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
            user1: listen(SignalKind::user_defined1())?,
            user2: listen(SignalKind::user_defined2())?,
            reload: false,
        })
    }

    /// The next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Asked {
        match std::mem::take(&mut self.reload) {
            true => Asked::Reload,
            false => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Asked {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hang_up.recv() => Asked::Reload,
            _ = self.user1.recv() => Asked::Nothing("SIGUSR1"),
            _ = self.user2.recv() => Asked::Nothing("SIGUSR2"),
        }
    }

    /// Returns at a stop signal; a reload is kept for [`Signals::next`].
    pub(super) async fn stop(&mut self) {
        loop {
            match self.receive().await {
                Asked::Stop => return,
                Asked::Reload => self.reload = true,
                Asked::Nothing(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_reload_requested_during_startup_is_kept() {
        let mut signals = Signals::listen().unwrap();
        let kill = format!("kill -HUP {}", std::process::id());
        let mut sent = std::process::Command::new("sh");
        assert!(sent.args(["-c", &kill]).status().unwrap().success());
        while !signals.reload {
            let stopped = timeout(Duration::from_millis(1), signals.stop()).await;
            assert!(stopped.is_err());
        }
        assert_eq!(signals.next().await, Asked::Reload);
        assert!(!signals.reload);
    }
}
