//! SIGHUP: reloads the configuration for new sessions.

use super::server_settings::settings;
use super::{engines, playground, serve};
use crate::config::{Flags, Loaded};
use crate::server::{Demonstration, Renewed, Tls};
use crate::session::{Engines, LiveEngines};
use crate::telemetry;
use anyhow::{Context, Result, ensure};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Settings that take effect only at the next start, because they are loaded, opened or bound once.
const AT_START: [&str; 30] = [
    "server.host",
    "server.port",
    "server.max_sessions",
    "server.drain_seconds",
    "server.client_secret_key_file",
    "tls.",
    "acme.",
    "models.",
    "asr.engine",
    "asr.model",
    "asr.threads",
    "asr.service",
    "asr.languages",
    "asr.follow_language",
    "tts.voice",
    "tts.memory_mb",
    "tts.services",
    "tools.journal",
    "store.",
    "speculation.patterns",
    "asterisk.",
    "wyoming.",
    "playground.",
    "webrtc.",
    "call_recording.",
    "log.format",
    "log.turns",
    "audit.",
    "telemetry.",
    "retention.",
];

/// The engines for new sessions.
pub(super) type Current = Arc<RwLock<Arc<Engines>>>;

/// Reloads the settings that can change while the server runs.
pub(super) struct Reloader {
    flags: Flags,
    loaded: Loaded,
    demonstration: Option<Demonstration>,
    engines: Current,
    renew: watch::Sender<Renewed>,
    tls: Option<Arc<Tls>>,
}

impl Reloader {
    pub(super) fn new(
        flags: Flags,
        loaded: Loaded,
        demonstration: Option<Demonstration>,
        engines: Current,
        renew: watch::Sender<Renewed>,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        Self {
            flags,
            loaded,
            demonstration,
            engines,
            renew,
            tls,
        }
    }

    /// Reads the configuration again on a blocking thread. If it is invalid, the error is logged
    /// and nothing changes.
    pub(super) fn start(mut self) -> JoinHandle<Self> {
        tokio::task::spawn_blocking(move || {
            if let Some(tls) = &self.tls {
                tls.reload();
            }
            match self.reload() {
                Ok(()) => tracing::info!("reloaded the configuration for new sessions"),
                Err(error) => tracing::error!(
                    error = format!("{error:#}"),
                    "the configuration stays as it was"
                ),
            }
            self
        })
    }

    fn reload(&mut self) -> Result<()> {
        let mut loaded = super::load(&self.flags)?;
        loaded.verify()?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(demonstration) = &self.demonstration {
            demonstration.declare(&mut loaded.config.tools.declared);
        }
        let config = &loaded.config;
        let address = self.renew.borrow().settings.bind;
        ensure!(
            config.server.is_safe_on(address.ip()),
            "the server still listens on {address} until its next start, and would let other machines in without a token: \
             restart it, or keep the token"
        );
        let old = self.engines.clone().now();
        let renewal = engines::renewal(config, &old)?;
        let runtime = Handle::try_current().context("no async runtime")?;
        let engines = runtime.block_on(old.renewed(renewal));
        if let Some(webhook) = engines.webhook() {
            webhook.change(serve::service(config));
        }
        telemetry::change(&config.log.filter, super::secrets(config))?;
        let settings = settings(config, address, &engines);
        let playground = playground::of(&engines);
        *self.engines.write().unwrap_or_else(PoisonError::into_inner) = engines;
        self.renew.send_replace(Renewed::new(settings, playground));
        for key in stays(&self.loaded, &loaded) {
            tracing::warn!(key, "this setting takes effect at the next start");
        }
        self.loaded = loaded;
        Ok(())
    }
}

/// Changed settings that take effect only at the next start.
fn stays(old: &Loaded, new: &Loaded) -> Vec<String> {
    let is_read_once = |key: &str| AT_START.iter().any(|begin| key.starts_with(begin));
    let settings = new.settings.iter().filter(|new| is_read_once(&new.key));
    let changed = settings.filter(|new| {
        let same = |old: &&crate::config::Setting| old.key == new.key;
        let old = old.settings.iter().find(same);
        old.is_none_or(|old| old.value != new.value)
    });
    changed.map(|setting| setting.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load};

    fn with(variables: &[(&str, &str)]) -> Loaded {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load(&Flags::default(), &variables.collect::<Environment>()).expect("a configuration")
    }

    /// The engines keep what they detect: the reload used to accept another choice without a word and to ignore it.
    #[test]
    fn languages_to_detect_wait_for_the_next_start_and_keyterms_do_not() {
        let new = with(&[
            ("UNDERTONE_ASR__FOLLOW_LANGUAGE", "false"),
            ("UNDERTONE_ASR__KEYTERMS", "Siobhan"),
        ]);
        assert_eq!(stays(&with(&[]), &new), ["asr.follow_language"]);
    }

    /// The reload used to accept a new folder for recordings without a word and to keep the old one.
    #[test]
    fn a_changed_recording_is_named_as_waiting_for_the_next_start_and_a_webhook_does_not_wait() {
        let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        let new = with(&[
            ("UNDERTONE_WEBHOOK__URL", "https://example.com/calls"),
            ("UNDERTONE_WEBHOOK_SECRET", secret),
            ("UNDERTONE_CALL_RECORDING__CONSENT", "Recorded."),
            ("UNDERTONE_SESSION__GREETING", "Hello."),
        ]);
        let named = stays(&with(&[]), &new);
        assert_eq!(named, ["call_recording.consent"]);
    }

    /// The reload used to say nothing of patterns that it went on to learn, and to name the speed, which it changes.
    #[test]
    fn learning_patterns_or_not_waits_for_the_next_start_and_the_speed_does_not() {
        let new = with(&[
            ("UNDERTONE_SPECULATION__PATTERNS", "false"),
            ("UNDERTONE_TTS__SPEED", "1.2"),
        ]);
        assert_eq!(stays(&with(&[]), &new), ["speculation.patterns"]);
    }
}
