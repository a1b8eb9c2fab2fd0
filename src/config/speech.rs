//! The speech services: recognisers and voices on servers, by name.

use super::check::{Check, Checked};
use super::error::suggest;
use super::raw::{RawAsr, RawAsrService, RawTts, RawTtsService};
use crate::asr::{deepgram, keyterms, openai as recogniser};
use crate::tts::{cartesia, elevenlabs, openai as voice};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::sync::Arc;
use url::Url;

/// A recogniser on a server.
#[derive(Debug, Clone)]
pub enum RemoteAsr {
    /// OpenAI's audio API.
    OpenAi(recogniser::Settings),
    /// Deepgram's `/v1/listen`, or with a model of Flux `/v2/listen`.
    Deepgram(deepgram::Settings),
}

/// A voice on a server.
#[derive(Debug, Clone)]
pub enum RemoteTts {
    /// OpenAI's audio API.
    OpenAi(voice::Settings),
    /// ElevenLabs.
    ElevenLabs(elevenlabs::Settings),
    /// Cartesia.
    Cartesia(cartesia::Settings),
}

/// The speech services, and which of them are used by default.
#[derive(Debug, Clone, Default)]
pub struct SpeechServices {
    /// Recognisers, by name.
    pub recognisers: BTreeMap<String, RemoteAsr>,
    /// The recogniser of sessions whose agent has none of its own; `None`: the local one.
    pub recogniser: Option<String>,
    /// Voices, by name.
    pub voices: BTreeMap<String, RemoteTts>,
}

impl SpeechServices {
    /// Their keys.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretString> {
        let recognisers = self
            .recognisers
            .values()
            .map(|recogniser| match recogniser {
                RemoteAsr::OpenAi(settings) => settings.api_key.as_ref(),
                RemoteAsr::Deepgram(settings) => settings.api_key.as_ref(),
            });
        let voices = self.voices.values().map(|voice| match voice {
            RemoteTts::OpenAi(settings) => settings.api_key.as_ref(),
            RemoteTts::ElevenLabs(settings) => settings.api_key.as_ref(),
            RemoteTts::Cartesia(settings) => settings.api_key.as_ref(),
        });
        recognisers.chain(voices).flatten()
    }
}

/// The engines of recognisers on servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AsrEngine {
    OpenAi,
    Deepgram,
}

/// The engines of voices on servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TtsEngine {
    OpenAi,
    ElevenLabs,
    Cartesia,
}

impl Check<'_> {
    /// Words that are likely to be said.
    pub(super) fn keyterms(&self, typed: &[String]) -> Checked<Arc<[String]>> {
        match keyterms::wrong(typed) {
            Some((problem, fix)) => Err(self.wrong("asr.keyterms", problem, fix)),
            None => Ok(typed.into()),
        }
    }

    /// The services. Without secrets only their settings are checked.
    pub(super) fn speech(&self, asr: &RawAsr, tts: &RawTts) -> Checked<SpeechServices> {
        let mut services = SpeechServices::default();
        for (name, raw) in &asr.services {
            let recogniser = self.recogniser(&format!("asr.services.{name}"), raw)?;
            services.recognisers.insert(name.clone(), recogniser);
        }
        for (name, raw) in &tts.services {
            let section = format!("tts.services.{name}");
            if tts.voices.contains_key(name) {
                let problem = format!("tts.services and tts.voices both have \"{name}\"");
                return Err(self.wrong("tts.services", problem, "rename one of them"));
            }
            let voice = self.voice(&section, raw)?;
            services.voices.insert(name.clone(), voice);
        }
        services.recogniser = self.one_service("asr.service", &asr.service, &asr.services)?;
        Ok(services)
    }

    /// The service that `key` names; `None` if it names none.
    pub(super) fn one_service<T>(
        &self,
        key: &str,
        typed: &str,
        services: &BTreeMap<String, T>,
    ) -> Checked<Option<String>> {
        let name = typed.trim();
        if name.is_empty() || services.contains_key(name) {
            return Ok((!name.is_empty()).then(|| name.to_owned()));
        }
        let names: Vec<&str> = services.keys().map(String::as_str).collect();
        let fix = match names.is_empty() {
            true => format!("add a section [{key}s.{name}] with base_url and model"),
            false => suggest(name, names),
        };
        let problem = format!("{key} = \"{name}\" is not among {key}s");
        Err(self.wrong(key, problem, &fix))
    }

    fn recogniser(&self, section: &str, raw: &RawAsrService) -> Checked<RemoteAsr> {
        let engines = [
            ("openai-compatible", AsrEngine::OpenAi),
            ("deepgram", AsrEngine::Deepgram),
        ];
        let engine = self.choice(&format!("{section}.engine"), &raw.engine, &engines)?;
        let usual = match engine {
            AsrEngine::OpenAi => None,
            AsrEngine::Deepgram => Some(deepgram::base_url(raw.model.trim())),
        };
        let base_url = self.speech_url(section, &raw.base_url, usual)?;
        let model = self.speech_name(section, "model", &raw.model)?;
        if engine == AsrEngine::Deepgram {
            self.fits_model(section, &base_url, &model)?;
        }
        let api_key = self.api_key(section, &raw.api_key_file, &raw.api_key_env)?;
        Ok(match engine {
            AsrEngine::OpenAi => RemoteAsr::OpenAi(recogniser::Settings {
                base_url,
                model,
                api_key,
            }),
            AsrEngine::Deepgram => RemoteAsr::Deepgram(deepgram::Settings {
                base_url,
                model,
                api_key,
            }),
        })
    }

    /// Checks that an address of Deepgram is not that of the other version of its interface.
    fn fits_model(&self, section: &str, base_url: &Url, model: &str) -> Checked<()> {
        let version = deepgram::version(model);
        let last = base_url.path().trim_end_matches('/').rsplit('/').next();
        if last.is_none_or(|last| !["v1", "v2"].contains(&last) || last == version) {
            return Ok(());
        }
        let key = format!("{section}.base_url");
        let problem = format!("{key} is not where {model} is");
        Err(self.wrong(
            &key,
            problem,
            &format!("let it end in /{version}, or omit it"),
        ))
    }

    fn voice(&self, section: &str, raw: &RawTtsService) -> Checked<RemoteTts> {
        let engines = [
            ("openai-compatible", TtsEngine::OpenAi),
            ("elevenlabs", TtsEngine::ElevenLabs),
            ("cartesia", TtsEngine::Cartesia),
        ];
        let engine = self.choice(&format!("{section}.engine"), &raw.engine, &engines)?;
        let usual = match engine {
            TtsEngine::OpenAi => None,
            TtsEngine::ElevenLabs => Some(elevenlabs::BASE_URL),
            TtsEngine::Cartesia => Some(cartesia::BASE_URL),
        };
        let base_url = self.speech_url(section, &raw.base_url, usual)?;
        let model = self.speech_name(section, "model", &raw.model)?;
        let voice = self.speech_name(section, "voice", &raw.voice)?;
        let api_key = self.api_key(section, &raw.api_key_file, &raw.api_key_env)?;
        Ok(match engine {
            TtsEngine::OpenAi => RemoteTts::OpenAi(voice::Settings {
                base_url,
                model,
                voice,
                api_key,
            }),
            TtsEngine::ElevenLabs => RemoteTts::ElevenLabs(elevenlabs::Settings {
                base_url,
                model,
                voice,
                api_key,
            }),
            TtsEngine::Cartesia => RemoteTts::Cartesia(cartesia::Settings {
                base_url,
                model,
                voice,
                api_key,
            }),
        })
    }

    /// The address of a service: its vendor's `usual` one if none is given.
    fn speech_url(&self, section: &str, typed: &str, usual: Option<&str>) -> Checked<Url> {
        let fix = "give the address up to /v1, as in https://api.openai.com/v1";
        let typed = match usual {
            Some(usual) if typed.trim().is_empty() => usual,
            _ => typed,
        };
        self.address(&format!("{section}.base_url"), typed, fix)
    }

    fn speech_name(&self, section: &str, key: &str, typed: &str) -> Checked<String> {
        let typed = typed.trim();
        let is_sendable = |c: char| !c.is_control() && c != '"';
        if !typed.is_empty() && typed.chars().all(is_sendable) {
            return Ok(typed.to_owned());
        }
        let key = format!("{section}.{key}");
        let problem = match typed {
            "" => format!("{key} is missing"),
            _ => format!("{key} has a character that no name has"),
        };
        Err(self.wrong(&key, problem, "give the name that the server knows"))
    }
}
