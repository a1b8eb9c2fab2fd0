//! A recogniser behind OpenAI's audio API, `POST /v1/audio/transcriptions`: at OpenAI and others, or on a
//! server of one's own. One request for each utterance, with all of its audio.

use super::decode::words;
use super::keyterms::{self, Budget};
use super::{AsrError, AsrService, AsrSession, Hints, Utterance};
use crate::audio::{RATE, write_wav};
use crate::backend::{Backend, KeyForm};
use crate::language::code;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::CONTENT_TYPE;
use secrecy::SecretString;
use serde_json::Value;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

const PATH: &str = "audio/transcriptions";

/// The most bytes of a response: many times what can be said in one utterance.
const MAX_RESPONSE: usize = 64 * 1024;

/// The most bytes of keyterms: Groq refuses a prompt of more than 896 characters.
const MOST_KEYTERMS: usize = 800;

/// The longest silence of the server. Sessions wait less.
const STALLED: Duration = Duration::from_secs(10);

/// The timeout of connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(3);

/// The service's address and the parameters of requests.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address up to and including `/v1`.
    pub base_url: Url,
    /// The model's name there.
    pub model: String,
    /// Sent as a bearer token. Never shown.
    pub api_key: Option<SecretString>,
}

/// The recogniser.
pub struct OpenAi {
    backend: Arc<Backend>,
    model: String,
    keyterms: Budget,
}

impl OpenAi {
    /// Sets up the client; connects to nothing.
    ///
    /// # Errors
    /// [`AsrError::Run`] if the address or the key cannot be used.
    pub fn new(settings: Settings) -> Result<Self, AsrError> {
        let Settings {
            base_url,
            model,
            api_key,
        } = settings;
        let backend = Backend::new(base_url, api_key, CONNECT, STALLED);
        Ok(Self {
            backend: Arc::new(backend.map_err(AsrError::Run)?),
            model,
            keyterms: Budget::of(MOST_KEYTERMS, keyterms::bytes),
        })
    }
}

impl AsrService for OpenAi {
    fn open(&self, hints: &Hints) -> Box<dyn AsrSession> {
        Box::new(Session {
            backend: self.backend.clone(),
            model: self.model.clone(),
            language: hints.language.as_deref().map(code),
            prompt: keyterms::prompt(self.keyterms.first(&hints.keyterms, &self.model)),
        })
    }
}

struct Session {
    backend: Arc<Backend>,
    model: String,
    language: Option<String>,
    /// The keyterms.
    prompt: Option<String>,
}

impl AsrSession for Session {
    fn transcribe(&mut self, part: Utterance) -> BoxFuture<'static, Result<String, AsrError>> {
        let backend = self.backend.clone();
        let form = self.form(&part.audio);
        async move {
            let (boundary, body) = form?;
            let kind = format!("multipart/form-data; boundary={boundary}");
            let request = backend.post(PATH).header(CONTENT_TYPE, kind).body(body);
            let response = backend
                .send(request, KeyForm::Bearer)
                .await
                .map_err(AsrError::Run)?;
            let (url, status) = (backend.shown(), response.status());
            let body = backend.read(response, MAX_RESPONSE).await;
            let body = body.map_err(AsrError::Run)?;
            if !status.is_success() {
                let body = backend.redacted(&body);
                tracing::debug!(url, body, "a transcription was refused");
                let reason = format!("{url} answered {}", status.as_u16());
                return Err(match status.as_u16() {
                    401 | 403 => AsrError::Denied(reason),
                    _ => AsrError::Run(reason),
                });
            }
            let answer: Option<Value> = serde_json::from_str(&body).ok();
            let text = answer.as_ref().and_then(|answer| answer["text"].as_str());
            text.map(words)
                .ok_or_else(|| AsrError::Run(format!("{url} answered no transcript")))
        }
        .boxed()
    }
}

impl Session {
    /// The boundary and the body of a form.
    fn form(&self, audio: &[f32]) -> Result<(String, Vec<u8>), AsrError> {
        let mut wav = Cursor::new(Vec::new());
        write_wav(&mut wav, RATE, audio).map_err(|error| AsrError::Run(error.to_string()))?;
        let boundary = uuid::Uuid::new_v4().simple().to_string();
        let fields = [
            ("model", Some(self.model.as_str())),
            ("response_format", Some("json")),
            ("language", self.language.as_deref()),
            ("prompt", self.prompt.as_deref()),
        ];
        let mut body = String::new();
        for (name, value) in fields {
            if let Some(value) = value {
                body += &format!(
                    "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
                );
            }
        }
        body += &format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"audio.wav\"\r\n\
             Content-Type: audio/wav\r\n\r\n"
        );
        let mut body = body.into_bytes();
        body.extend(wav.into_inner());
        body.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
        Ok((boundary, body))
    }
}
