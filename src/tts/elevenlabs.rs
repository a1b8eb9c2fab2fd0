//! ElevenLabs' voices, `POST /v1/text-to-speech/{voice}/stream/with-timestamps`: one request for each clause,
//! whose audio is streamed together with the times of its characters. ElevenLabs' WebSocket is for texts that are
//! not complete yet. A clause is complete, and its request is cancelled by dropping it.

use super::pcm::{Pcm, RATE};
use super::timing::Timing;
use super::{Piece, SpeechStream, TtsError, TtsService, TtsSession};
use crate::backend::{Backend, KeyForm};
use crate::language::code;
use crate::time::Micros;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use reqwest::{Response, StatusCode};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// The address of ElevenLabs.
pub const BASE_URL: &str = "https://api.elevenlabs.io/v1";

/// The name of [`RATE`] there. Higher rates need a larger plan.
const FORMAT: &str = "pcm_24000";

/// The languages of Flash v2.5 and Turbo v2.5, which v3 knows, too. A language that a model does not know is refused.
const LANGUAGES: [&str; 32] = [
    "ar", "bg", "cs", "da", "de", "el", "en", "es", "fi", "fil", "fr", "hi", "hr", "hu", "id",
    "it", "ja", "ko", "ms", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sv", "ta", "tr", "uk", "vi",
    "zh",
];

/// The header of the key.
const KEY: KeyForm = KeyForm::Header("xi-api-key");

/// The most bytes of a line: half a minute of audio.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// The most bytes of a refusal that are read.
const MAX_REFUSAL: usize = 16 * 1024;

/// The longest silence of the server. Sessions wait less.
const STALLED: Duration = Duration::from_secs(10);

/// The timeout of connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(3);

/// The service's address and the parameters of requests.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address up to and including `/v1`.
    pub base_url: Url,
    /// The model's name there, such as `eleven_flash_v2_5`.
    pub model: String,
    /// The voice's id there.
    pub voice: String,
    /// Sent in the header `xi-api-key`. Never shown.
    pub api_key: Option<SecretString>,
}

/// The voice.
pub struct ElevenLabs {
    backend: Arc<Backend>,
    model: String,
    path: String,
}

impl ElevenLabs {
    /// Sets up the client; connects to nothing.
    ///
    /// # Errors
    /// [`TtsError::Run`] if the address, the voice's id or the key cannot be used.
    pub fn new(settings: Settings) -> Result<Self, TtsError> {
        let Settings {
            base_url,
            model,
            voice,
            api_key,
        } = settings;
        if !voice.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let reason = format!("\"{voice}\" is no id of a voice: it has letters and digits only");
            return Err(TtsError::Run(reason));
        }
        let backend = Backend::new(base_url, api_key, CONNECT, STALLED);
        Ok(Self {
            backend: Arc::new(backend.map_err(TtsError::Run)?),
            model,
            path: format!("text-to-speech/{voice}/stream/with-timestamps"),
        })
    }
}

impl TtsService for ElevenLabs {
    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn open(&self, language: Option<&str>) -> Box<dyn TtsSession> {
        Box::new(Session {
            backend: self.backend.clone(),
            model: self.model.clone(),
            language: language.and_then(|tag| told(&self.model, tag)),
            path: self.path.clone(),
        })
    }
}

/// The name of a language, a BCP 47 tag, at ElevenLabs. `None` if the model does not know it, or takes no language: it
/// then speaks that of the text.
fn told(model: &str, tag: &str) -> Option<&'static str> {
    let takes_one = ["eleven_flash_v2_5", "eleven_turbo_v2_5"].contains(&model);
    if !takes_one && !model.starts_with("eleven_v3") {
        return None;
    }
    let code = code(tag);
    let name = match code.as_str() {
        "tl" => "fil",
        name => name,
    };
    LANGUAGES.into_iter().find(|known| *known == name)
}

struct Session {
    backend: Arc<Backend>,
    model: String,
    /// Its name at ElevenLabs.
    language: Option<&'static str>,
    path: String,
}

impl TtsSession for Session {
    fn speak(&mut self, text: &str) -> SpeechStream {
        let mut body = json!({"text": text, "model_id": self.model});
        if let Some(language) = self.language {
            body["language_code"] = language.into();
        }
        let backend = self.backend.clone();
        let request = backend.post_with(&self.path, &[("output_format", FORMAT)]);
        let request = request.json(&body);
        let clause = Clause {
            url: backend.shown(),
            timing: Timing::of(text),
            pcm: Pcm::default(),
            made: 0,
        };
        let spoken = async move {
            let sent = backend.send(request, KEY).await;
            let response = accepted(&backend, sent.map_err(TtsError::Run)?).await?;
            Ok::<_, TtsError>(clause.spoken(lines(backend, response)))
        };
        spoken.into_stream().try_flatten().boxed()
    }
}

/// The response, if the server speaks.
async fn accepted(backend: &Backend, response: Response) -> Result<Response, TtsError> {
    let (url, status) = (backend.shown(), response.status());
    if status.is_success() {
        return Ok(response);
    }
    let body = backend.read(response, MAX_REFUSAL).await;
    let body = body.unwrap_or_default();
    tracing::debug!(url, body = backend.redacted(&body), "speech refused");
    let reason = format!("{url} answered {}", status.as_u16());
    // The same status as for a wrong key.
    let is_spent = body.contains("quota_exceeded");
    Err(match status {
        StatusCode::UNAUTHORIZED if is_spent => TtsError::Run(format!("{reason}: quota exceeded")),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => TtsError::Denied(reason),
        _ => TtsError::Run(reason),
    })
}

/// The response's lines.
fn lines(
    backend: Arc<Backend>,
    response: Response,
) -> BoxStream<'static, Result<Vec<u8>, TtsError>> {
    let bytes = response.bytes_stream();
    let end = stream::once(async { Ok(bytes::Bytes::from_static(b"\n")) });
    let mut line = Vec::new();
    let lines = bytes.chain(end).map(move |piece| {
        let piece = piece.map_err(|error| TtsError::Run(backend.explain(&error)))?;
        line.extend_from_slice(&piece);
        if line.len() > MAX_LINE {
            let reason = format!("{} sent a line over {MAX_LINE} bytes", backend.shown());
            return Err(TtsError::Run(reason));
        }
        let whole = line
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let rest = line.split_off(whole);
        let whole = std::mem::replace(&mut line, rest);
        let lines = whole.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let lines = lines.filter(|line| !line.is_empty());
        Ok(lines.map(<[u8]>::to_vec).collect::<Vec<_>>())
    });
    lines
        .map_ok(|lines| stream::iter(lines).map(Ok::<_, TtsError>))
        .try_flatten()
        .boxed()
}

/// A line of the response.
#[derive(Deserialize)]
struct Chunk {
    audio_base64: String,
    alignment: Option<Alignment>,
}

/// The times of the text's characters, seconds.
#[derive(Deserialize)]
struct Alignment {
    characters: Vec<String>,
    character_start_times_seconds: Vec<f64>,
    character_end_times_seconds: Vec<f64>,
}

/// A clause that is being said.
struct Clause {
    url: String,
    timing: Timing,
    pcm: Pcm,
    /// Samples so far.
    made: usize,
}

impl Clause {
    fn spoken(
        mut self,
        lines: BoxStream<'static, Result<Vec<u8>, TtsError>>,
    ) -> impl stream::Stream<Item = Result<Piece, TtsError>> + Send {
        let lines = lines.map_ok(Some).chain(stream::once(async { Ok(None) }));
        lines.map(move |line| match line? {
            Some(line) => self.piece(&line),
            None => Ok(Piece {
                word_ends: self.timing.finish().into_iter().collect(),
                ..Piece::default()
            }),
        })
    }

    fn piece(&mut self, line: &[u8]) -> Result<Piece, TtsError> {
        let wrong = |what: &str| TtsError::Run(format!("{} sent {what}", self.url));
        let chunk: Chunk = match serde_json::from_slice(line) {
            Ok(chunk) => chunk,
            Err(_) => {
                let said: Option<Value> = serde_json::from_slice(line).ok();
                tracing::debug!(?said, "speech broke off");
                return Err(wrong("what is no audio"));
            }
        };
        let bytes = BASE64_STANDARD.decode(chunk.audio_base64);
        let bytes = bytes.map_err(|_| wrong("what is no base64"))?;
        let samples = self.pcm.push(&bytes);
        let samples =
            samples.map_err(|found| wrong(&format!("{found} instead of bare samples")))?;
        let made = self.made as f64 / f64::from(RATE);
        self.made += samples.len();
        let times = chunk
            .alignment
            .map(|alignment| self.times(&alignment, made));
        Ok(Piece {
            samples,
            word_ends: times.unwrap_or_default(),
        })
    }

    fn times(&mut self, alignment: &Alignment, made: f64) -> Vec<Micros> {
        if let Some(start) = alignment.character_start_times_seconds.first() {
            self.timing.piece(*start, made);
        }
        let ends = &alignment.character_end_times_seconds;
        let characters = alignment.characters.iter().zip(ends);
        characters
            .filter_map(|(character, end)| self.timing.character(character, *end))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was told to no model.
    #[test]
    fn a_language_is_told_to_the_models_that_take_it() {
        for (model, tag, name) in [
            ("eleven_flash_v2_5", "de-AT", Some("de")),
            ("eleven_turbo_v2_5", "nb-NO", Some("no")),
            ("eleven_v3_conversational", "fil", Some("fil")),
            ("eleven_v3", "tl", Some("fil")),
            ("eleven_v4", "de", None),
            ("eleven_flash_v2_5", "fa", None),
            ("eleven_multilingual_v2", "de", None),
            ("eleven_flash_v2", "en", None),
        ] {
            assert_eq!(told(model, tag), name, "{model}, {tag}");
        }
    }
}
