//! Checks everything that can be checked at the start without loading models.

use super::{Config, ConfigError, Loaded, SettingOrigin};
use crate::prediction::Heads;
use crate::server::{Tls, TlsSettings};
use crate::tools::{JournalFile, declared};
use crate::tts;

impl Loaded {
    /// Checks what the settings refer to: the tools' programs, the router's head, the journal, further voices, the
    /// certificate, and whether prompts have room for a conversation.
    ///
    /// # Errors
    /// [`ConfigError`] with the first error.
    pub fn verify(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        declared::verify(&config.tools.declared)?;
        if let Some(head) = &config.router_head {
            Heads::load(head).map_err(|error| {
                let fix = "train one, or remove the key to run without it";
                self.wrong("router.head", &error, fix)
            })?;
        }
        JournalFile::check(&config.tools.journal).map_err(|error| {
            let fix = "name a file on a disk; it is created if missing";
            self.wrong("tools.journal", &error, fix)
        })?;
        for (name, path) in &config.voices {
            tts::on_demand(path, config.voice_memory).map_err(|error| {
                let fix = "name a Piper or Kokoro voice, or raise tts.memory_mb";
                self.wrong("tts.voices", &format!("{name}: {error}"), fix)
            })?;
        }
        if let Some(tls) = &config.tls {
            self.verify_tls(tls)?;
        }
        self.verify_prompts(config)
    }

    fn verify_tls(&self, tls: &TlsSettings) -> Result<(), ConfigError> {
        let (key, fix) = match tls {
            TlsSettings::Files { .. } => (
                "tls.cert",
                "name the certificate with those of its issuers, and its private key, both in PEM form",
            ),
            TlsSettings::Acme(_) => (
                "acme.cache",
                "name a folder that this user may write, and in acme.root a certificate",
            ),
        };
        let opened = Tls::open(tls).map_err(|error| self.wrong(key, &error, fix));
        opened.map(drop)
    }

    fn verify_prompts(&self, config: &Config) -> Result<(), ConfigError> {
        let key = "llm.max_prompt_tokens";
        let fix = "raise it, shorten the instructions, or declare fewer tools";
        let tools = declared::registry(&config.tools.declared);
        let tools = tools.map_err(|error| self.wrong(key, &error, fix))?;
        let room = config.text_limits(&tools);
        room.map(drop).map_err(|none| {
            let problem = none.to_string();
            let (origin, fix) = match none.agent {
                None => (none.origin, fix),
                Some(path) => (
                    SettingOrigin::File { path, line: 1 },
                    "raise its model's max_prompt_tokens, shorten the instructions, or give it fewer tools",
                ),
            };
            ConfigError {
                origin,
                problem,
                fix: fix.into(),
            }
        })
    }

    fn wrong(&self, key: &str, problem: &dyn std::fmt::Display, fix: &str) -> ConfigError {
        let setting = self.settings.iter().find(|setting| setting.key == key);
        ConfigError {
            origin: setting.map_or(SettingOrigin::Default, |setting| setting.origin.clone()),
            problem: format!("{key}: {problem}"),
            fix: fix.into(),
        }
    }
}
