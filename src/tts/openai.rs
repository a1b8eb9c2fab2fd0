//! A voice behind OpenAI's audio API, `POST /v1/audio/speech`: at OpenAI and others, or on a server of one's
//! own. One request for each clause; its audio is streamed.

use super::pcm::{Pcm, RATE};
use super::{Piece, SpeechStream, Speed, TtsError, TtsService, TtsSession};
use crate::backend::{Backend, KeyForm};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use secrecy::SecretString;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use url::Url;

const PATH: &str = "audio/speech";

/// The forms of audio that are asked for: bare samples, and WAV where a server makes nothing else.
const BARE: &str = "pcm";
const WAV: &str = "wav";

/// The most bytes of a refusal that are read.
const MAX_REFUSAL: usize = 16 * 1024;

/// The longest silence of the server. Sessions wait less.
const STALLED: Duration = Duration::from_secs(10);

/// The timeout of connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(3);

/// Parts of media types that are neither bare samples nor WAV: as such they would be noise.
const OTHER_FORMS: [&str; 8] = ["json", "text", "mpeg", "mp3", "ogg", "opus", "flac", "aac"];

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
    wants_wav: Arc<AtomicBool>,
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
        // Piper's voices have other rates, which speaches tells in WAV only.
        let is_piper = model.to_ascii_lowercase().contains("piper");
        Ok(Self {
            backend: Arc::new(backend.map_err(TtsError::Run)?),
            model,
            voice,
            wants_wav: Arc::new(is_piper.into()),
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
            wants_wav: self.wants_wav.clone(),
        })
    }
}

struct Session {
    backend: Arc<Backend>,
    model: String,
    voice: String,
    speed: Speed,
    /// Whether WAV is asked for.
    wants_wav: Arc<AtomicBool>,
}

impl TtsSession for Session {
    fn speak(&mut self, text: &str) -> SpeechStream {
        let form = match self.wants_wav.load(Relaxed) {
            true => WAV,
            false => BARE,
        };
        let mut body = json!({
            "model": self.model,
            "voice": self.voice,
            "input": text,
            "response_format": form,
        });
        // Not every server knows the field.
        if self.speed != Speed::NORMAL {
            body["speed"] = self.speed.factor().into();
        }
        let spoken = begin(self.backend.clone(), body, self.wants_wav.clone());
        stream::once(spoken).try_flatten().boxed()
    }
}

/// Has a clause said: in the other form if the server refuses this one, and from then on.
async fn begin(
    backend: Arc<Backend>,
    mut body: Value,
    wants_wav: Arc<AtomicBool>,
) -> Result<impl Stream<Item = Result<Piece, TtsError>> + Send + use<>, TtsError> {
    let mut asked = ask(&backend, &body).await;
    let is_form = asked.as_ref().is_err_and(|refused| refused.is_form);
    if is_form {
        let is_wav = body["response_format"] == BARE;
        let other = if is_wav { WAV } else { BARE };
        body["response_format"] = other.into();
        asked = ask(&backend, &body).await;
        if asked.is_ok() {
            wants_wav.store(is_wav, Relaxed);
        }
    }
    let response = asked.map_err(|refused| refused.error)?;
    let (url, mut pcm) = (backend.shown(), Pcm::at(rate(&response)));
    let end = stream::once(async { Ok(None) });
    let pieces = response.bytes_stream().map_ok(Some).chain(end);
    Ok(pieces.map(move |piece| {
        let piece = piece.map_err(|error| TtsError::Run(backend.explain(&error)))?;
        let samples = match piece {
            Some(bytes) => pcm.push(&bytes),
            None => pcm.finish(),
        };
        let unread = |found: String| TtsError::Run(format!("{url} answered {found}"));
        samples.map(Piece::from).map_err(unread)
    }))
}

/// A request that was not answered with audio.
struct Refused {
    error: TtsError,
    /// Whether it is about the form of the audio.
    is_form: bool,
}

impl From<TtsError> for Refused {
    fn from(error: TtsError) -> Self {
        Self {
            error,
            is_form: false,
        }
    }
}

/// Asks for the audio of a clause.
async fn ask(backend: &Backend, body: &Value) -> Result<Response, Refused> {
    let request = backend.post(PATH).json(body);
    let sent = backend.send(request, KeyForm::Bearer).await;
    let response = sent.map_err(TtsError::Run)?;
    let (url, status) = (backend.shown(), response.status());
    if !status.is_success() {
        let body = backend
            .read(response, MAX_REFUSAL)
            .await
            .unwrap_or_default();
        tracing::debug!(url, body = backend.redacted(&body), "speech refused");
        let reason = format!("{url} answered {}", status.as_u16());
        let mut names = ["response_format", BARE, WAV].into_iter();
        return Err(match status.as_u16() {
            401 | 403 => TtsError::Denied(reason).into(),
            400 | 422 => Refused {
                error: TtsError::Run(reason),
                is_form: names.any(|name| body.contains(name)),
            },
            _ => TtsError::Run(reason).into(),
        });
    }
    match other_form(&response) {
        Some(form) => {
            let reason = format!("{url} answered {form} instead of bare samples or WAV");
            Err(TtsError::Run(reason).into())
        }
        None => Ok(response),
    }
}

fn media_type(response: &Response) -> Option<&str> {
    response.headers().get(CONTENT_TYPE)?.to_str().ok()
}

/// The rate of bare samples, Hz: as in `audio/pcm;rate=22050`, or that of the convention.
fn rate(response: &Response) -> u32 {
    let parameters = media_type(response).unwrap_or_default().split(';');
    let mut rates = parameters.filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_rate = name.trim().eq_ignore_ascii_case("rate");
        is_rate.then(|| value.trim().parse().ok())?
    });
    rates.next().unwrap_or(RATE)
}

/// The media type, if it is neither one of bare samples nor of WAV.
fn other_form(response: &Response) -> Option<String> {
    let kind = media_type(response)?.to_ascii_lowercase();
    OTHER_FORMS
        .iter()
        .any(|form| kind.contains(form))
        .then_some(kind)
}
