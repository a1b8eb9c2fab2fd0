//! A voice behind OpenAI's audio API, `POST /v1/audio/speech`: at OpenAI and others, or on a server of one's
//! own. One request for each clause; its audio is streamed.

use super::pcm::Pcm;
use super::{Piece, SpeechStream, Speed, TtsError, TtsService, TtsSession};
use crate::backend::{Backend, KeyForm};
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use secrecy::SecretString;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

const PATH: &str = "audio/speech";

/// Samples per second of `pcm`, Hz: a convention, which responses do not name.
const RATE: u32 = 24_000;

/// The most bytes of a refusal that are read.
const MAX_REFUSAL: usize = 16 * 1024;

/// The longest silence of the server. Sessions wait less.
const STALLED: Duration = Duration::from_secs(10);

/// The timeout of connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(3);

/// Parts of media types that are not bare samples: as such they would be noise.
const OTHER_FORMS: [&str; 9] = [
    "json", "text", "mpeg", "mp3", "ogg", "opus", "flac", "aac", "wav",
];

/// The service's address and the parameters of requests.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address up to and including `/v1`.
    pub base_url: Url,
    /// The model's name there.
    pub model: String,
    /// The voice's name there.
    pub voice: String,
    /// Sent as a bearer token. Never shown.
    pub api_key: Option<SecretString>,
}

/// The voice.
pub struct OpenAi {
    backend: Arc<Backend>,
    model: String,
    voice: String,
}

impl OpenAi {
    /// Sets up the client; connects to nothing.
    ///
    /// # Errors
    /// [`TtsError::Run`] if the address or the key cannot be used.
    pub fn new(settings: Settings) -> Result<Self, TtsError> {
        let Settings {
            base_url,
            model,
            voice,
            api_key,
        } = settings;
        let backend = Backend::new(base_url, api_key, CONNECT, STALLED);
        Ok(Self {
            backend: Arc::new(backend.map_err(TtsError::Run)?),
            model,
            voice,
        })
    }
}

impl TtsService for OpenAi {
    fn sample_rate(&self) -> u32 {
        RATE
    }

    /// The voice speaks the language of the text.
    fn open(&self, language: Option<&str>) -> Box<dyn TtsSession> {
        self.open_at(language, Speed::NORMAL)
    }

    fn open_at(&self, _: Option<&str>, speed: Speed) -> Box<dyn TtsSession> {
        Box::new(Session {
            backend: self.backend.clone(),
            model: self.model.clone(),
            voice: self.voice.clone(),
            speed,
        })
    }
}

struct Session {
    backend: Arc<Backend>,
    model: String,
    voice: String,
    speed: Speed,
}

impl TtsSession for Session {
    fn speak(&mut self, text: &str) -> SpeechStream {
        let mut body = json!({
            "model": self.model,
            "voice": self.voice,
            "input": text,
            "response_format": "pcm",
        });
        // Not every server knows the field.
        if self.speed != Speed::NORMAL {
            body["speed"] = self.speed.factor().into();
        }
        let spoken = begin(self.backend.clone(), body);
        stream::once(spoken).try_flatten().boxed()
    }
}

async fn begin(
    backend: Arc<Backend>,
    body: serde_json::Value,
) -> Result<impl stream::Stream<Item = Result<Piece, TtsError>> + Send + use<>, TtsError> {
    let request = backend.post(PATH).json(&body);
    let response = backend
        .send(request, KeyForm::Bearer)
        .await
        .map_err(TtsError::Run)?;
    let (url, status) = (backend.shown(), response.status());
    if !status.is_success() {
        let body = backend
            .read(response, MAX_REFUSAL)
            .await
            .unwrap_or_default();
        tracing::debug!(url, body = backend.redacted(&body), "speech refused");
        let reason = format!("{url} answered {}", status.as_u16());
        return Err(match status.as_u16() {
            401 | 403 => TtsError::Denied(reason),
            _ => TtsError::Run(reason),
        });
    }
    if let Some(form) = other_form(&response) {
        let reason = format!("{url} answered {form} instead of bare samples");
        return Err(TtsError::Run(reason));
    }
    let mut bytes = Pcm::default();
    let audio = response.bytes_stream().map(move |piece| match piece {
        Ok(piece) => bytes.push(&piece).map(Piece::from).map_err(|found| {
            TtsError::Run(format!("{url} answered {found} instead of bare samples"))
        }),
        Err(error) => Err(TtsError::Run(backend.explain(&error))),
    });
    Ok(audio)
}

/// The media type, if it is not one of bare samples.
fn other_form(response: &Response) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.to_ascii_lowercase();
    OTHER_FORMS
        .iter()
        .any(|form| kind.contains(form))
        .then_some(kind)
}
