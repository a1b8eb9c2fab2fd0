//! Any server that speaks `/v1/chat/completions` with `"stream": true`: OpenAI, Groq, OpenRouter,
//! vLLM, llama.cpp's server, Ollama, LM Studio.
//!
//! The model is taught to answer in markup, which [`crate::llm::markup`] reads. A server that sends
//! native `tool_calls` nonetheless gives the same events.

mod wire;

use super::prompt::{ChatMessage, Prompts};
use super::{Llm, LlmError, LlmEvent, LlmStream, Prompt};
use crate::llm::markup::Utf8Decoder;
use eventsource_stream::Eventsource;
use futures_util::{Stream, StreamExt, stream};
use reqwest::{Client, RequestBuilder, Response, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use url::{Host, Url};
use wire::Decoder;

/// The most bytes between two events: many times the largest a server has reason to send.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// The most bytes of an error's body that are read and shown.
const MAX_ERROR_BYTES: usize = 600;

/// The most bytes of a list of models that are read.
const MAX_MODELS_BYTES: usize = 4 * 1024 * 1024;

/// How long an unused connection is kept: longer than most pauses in a conversation.
const POOL_IDLE: Duration = Duration::from_secs(120);

/// Where the model is and how it is asked.
#[derive(Clone)]
pub struct Settings {
    /// The address up to and including `/v1`.
    pub base_url: Url,
    /// The model's name at the server.
    pub model: String,
    /// Sent as a bearer token. Never shown.
    pub api_key: Option<SecretString>,
    /// Sampling temperature; the server's default if absent.
    pub temperature: Option<f32>,
    /// The most tokens of an answer; the server's default if absent.
    pub max_tokens: Option<u32>,
    /// For the connection, TLS included.
    pub connect_timeout: Duration,
    /// The longest silence: before the headers, and between any two pieces of the stream.
    pub stall_timeout: Duration,
}

impl Settings {
    /// Settings with a connect timeout of 3 s and a stall timeout of 30 s, which leaves a local
    /// server time to load its model. The conversation's own deadlines are shorter.
    pub fn new(base_url: Url, model: impl Into<String>) -> Self {
        Self {
            base_url,
            model: model.into(),
            api_key: None,
            temperature: None,
            max_tokens: None,
            connect_timeout: Duration::from_secs(3),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// What [`OpenAiCompatible::check`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// From the request to the end of the answer, connecting included.
    pub latency: Duration,
    /// The names of the server's models; `None` if it has no such list.
    pub models: Option<Vec<String>>,
    /// Whether the list names our model; `None` without a list.
    pub model_listed: Option<bool>,
}

/// A model behind an OpenAI-compatible server.
///
/// Connections are reused. Dropping a stream closes its connection, which makes the server stop.
#[derive(Clone)]
pub struct OpenAiCompatible {
    name: String,
    endpoint: Arc<Endpoint>,
    prompts: Prompts,
}

struct Endpoint {
    client: Client,
    settings: Settings,
    chat: Url,
    models: Url,
    /// The server is asked to count tokens; false once it has refused.
    counts: AtomicBool,
}

#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: &'a [ChatMessage],
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl OpenAiCompatible {
    /// Sets up the client; connects to nothing.
    ///
    /// # Errors
    /// [`LlmError::Engine`] if the address is not `http` or `https`, the key cannot be sent in a
    /// header, or there is no TLS to be had.
    pub fn new(settings: Settings, prompts: Prompts) -> Result<Self, LlmError> {
        Ok(Self {
            name: format!("openai-compatible {}", settings.model),
            endpoint: Arc::new(Endpoint::new(settings)?),
            prompts,
        })
    }

    /// Opens a connection and leaves it in the pool, so that the first turn need not.
    ///
    /// # Errors
    /// [`LlmError::Unreachable`] or [`LlmError::Stream`]; an error status is none, for the
    /// connection is open all the same.
    pub async fn warm(&self) -> Result<(), LlmError> {
        let response = self.endpoint.send(self.endpoint.get_models()).await?;
        self.endpoint
            .read(response, MAX_MODELS_BYTES)
            .await
            .map(drop)
    }

    /// Asks the server for its models: is it there, is the key right, does it know the model?
    ///
    /// # Errors
    /// [`LlmError::Unreachable`] if it cannot be reached, [`LlmError::Status`] if it refuses. A
    /// server that has no such list (404, 405 or 501) is taken to be well.
    #[allow(clippy::disallowed_methods, reason = "it measures")]
    pub async fn check(&self) -> Result<Health, LlmError> {
        let began = Instant::now();
        let response = self.endpoint.send(self.endpoint.get_models()).await?;
        let listless = matches!(response.status().as_u16(), 404 | 405 | 501);
        if !response.status().is_success() && !listless {
            return Err(self.endpoint.refusal(response).await);
        }
        let body = self.endpoint.read(response, MAX_MODELS_BYTES).await?;
        let models = wire::model_names(&body).filter(|_| !listless);
        let model_listed = models
            .as_ref()
            .map(|names| names.contains(&self.endpoint.settings.model));
        Ok(Health {
            latency: began.elapsed(),
            models,
            model_listed,
        })
    }
}

impl Llm for OpenAiCompatible {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let endpoint = self.endpoint.clone();
        let max_tokens = prompt.demands.max_tokens;
        let messages = self
            .prompts
            .chat(&prompt)
            .map_err(|e| LlmError::Engine(e.to_string()));
        stream::once(async move { open(endpoint, messages?, max_tokens).await })
            .map(|opened| match opened {
                Ok(events) => events,
                Err(error) => stream::once(std::future::ready(Err(error))).boxed(),
            })
            .flatten()
            .boxed()
    }
}

impl fmt::Debug for OpenAiCompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiCompatible")
            .field("url", &shown(&self.endpoint.chat))
            .field("model", &self.endpoint.settings.model)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("base_url", &shown(&self.base_url))
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

async fn open(
    endpoint: Arc<Endpoint>,
    messages: Vec<ChatMessage>,
    max_tokens: Option<u32>,
) -> Result<LlmStream, LlmError> {
    let counts = endpoint.counts.load(Ordering::Relaxed);
    let request = endpoint.post_chat(&messages, max_tokens, counts);
    let mut response = endpoint.send(request).await?;
    if !response.status().is_success() {
        let refusal = endpoint.refusal(response).await;
        if !(counts && is_about_counting(&refusal)) {
            return Err(refusal);
        }
        // Remembered, so that only the first turn pays for it.
        endpoint.counts.store(false, Ordering::Relaxed);
        response = endpoint
            .send(endpoint.post_chat(&messages, max_tokens, false))
            .await?;
        if !response.status().is_success() {
            return Err(endpoint.refusal(response).await);
        }
    }
    Ok(events(response.bytes_stream(), endpoint))
}

/// Some servers know no `stream_options`, and refuse what they do not know.
fn is_about_counting(refusal: &LlmError) -> bool {
    matches!(refusal, LlmError::Status { status: 400 | 422, body, .. }
        if body.contains("stream_options") || body.contains("include_usage"))
}

/// What is left to read of a stream.
struct Reading<S> {
    messages: S,
    decoder: Decoder,
    endpoint: Arc<Endpoint>,
    /// Bytes since the last event.
    unread: Arc<AtomicUsize>,
}

fn events<S, B>(bytes: S, endpoint: Arc<Endpoint>) -> LlmStream
where
    S: Stream<Item = reqwest::Result<B>> + Send + 'static,
    B: AsRef<[u8]> + Send + 'static,
{
    let unread = Arc::new(AtomicUsize::new(0));
    let reading = Reading {
        messages: Box::pin(bounded_text(bytes, unread.clone()).eventsource()),
        decoder: Decoder::default(),
        endpoint,
        unread,
    };
    stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        let events = reading.next().await;
        let ended = matches!(events.last(), Some(Ok(LlmEvent::End) | Err(_)));
        Some((stream::iter(events), (!ended).then_some(reading)))
    })
    .flatten()
    .boxed()
}

/// Why the bytes ended early.
enum Broken {
    Transport(reqwest::Error),
    TooLong,
}

/// The bytes as text, given up when an event has grown too long. The blank line at the end
/// completes an event that lacks its own.
fn bounded_text<S, B>(
    bytes: S,
    unread: Arc<AtomicUsize>,
) -> impl Stream<Item = Result<String, Broken>> + Send + 'static
where
    S: Stream<Item = reqwest::Result<B>> + Send + 'static,
    B: AsRef<[u8]> + Send + 'static,
{
    let mut utf8 = Utf8Decoder::default();
    bytes
        .map(move |chunk| {
            let chunk = chunk.map_err(Broken::Transport)?;
            let held = unread.fetch_add(chunk.as_ref().len(), Ordering::Relaxed);
            if held + chunk.as_ref().len() > MAX_EVENT_BYTES {
                return Err(Broken::TooLong);
            }
            Ok(utf8.push(chunk.as_ref()))
        })
        .chain(stream::once(std::future::ready(Ok("\n\n".to_owned()))))
}

type SseResult = Result<eventsource_stream::Event, eventsource_stream::EventStreamError<Broken>>;

impl<S: Stream<Item = SseResult> + Unpin> Reading<S> {
    async fn next(&mut self) -> Vec<Result<LlmEvent, LlmError>> {
        let message = self.messages.next().await;
        self.unread.store(0, Ordering::Relaxed);
        let (events, error) = match message {
            Some(Ok(message)) => self.decoder.message(&message.data),
            Some(Err(error)) => (Vec::new(), Some(self.broken(error))),
            None => self.decoder.end_of_stream(),
        };
        let error = error.map(|reason| {
            let reason = self.endpoint.redacted(&reason);
            tracing::debug!(reason, "the language model's stream broke");
            Err(LlmError::Stream(reason))
        });
        events.into_iter().map(Ok).chain(error).collect()
    }

    fn broken(&self, error: eventsource_stream::EventStreamError<Broken>) -> String {
        use eventsource_stream::EventStreamError::{Parser, Transport, Utf8};
        let reason = match error {
            Transport(Broken::Transport(error)) => self.endpoint.explain(&error),
            Transport(Broken::TooLong) => {
                format!("one event is longer than {MAX_EVENT_BYTES} bytes")
            }
            Utf8(_) | Parser(_) => "it is no event stream".into(),
        };
        let url = shown(&self.endpoint.settings.base_url);
        tracing::warn!(url, reason, "the language model's stream broke");
        reason
    }
}

impl Endpoint {
    fn new(mut settings: Settings) -> Result<Self, LlmError> {
        let engine = |reason: String| LlmError::Engine(format!("language model: {reason}"));
        if !matches!(settings.base_url.scheme(), "http" | "https") {
            let url = shown(&settings.base_url);
            return Err(engine(format!("{url} must begin with http:// or https://")));
        }
        let key = settings.api_key.as_ref().map(|key| key.expose_secret());
        if key.is_some_and(|key| !key.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(engine(
                "the API key has white space or other odd characters".into(),
            ));
        }
        if settings.api_key.is_some() {
            without_login(&mut settings.base_url);
        }
        let client = client(&settings).map_err(|e| engine(causes(&e)))?;
        Ok(Self {
            client,
            chat: below(&settings.base_url, "chat/completions"),
            models: below(&settings.base_url, "models"),
            counts: AtomicBool::new(true),
            settings,
        })
    }

    /// The operator's limit of tokens stays: a client can only ask for fewer.
    fn post_chat(
        &self,
        messages: &[ChatMessage],
        max_tokens: Option<u32>,
        counts: bool,
    ) -> RequestBuilder {
        let settings = &self.settings;
        let limits = [settings.max_tokens, max_tokens];
        self.client.post(self.chat.clone()).json(&ChatRequest {
            model: &settings.model,
            messages,
            stream: true,
            temperature: settings.temperature,
            max_tokens: limits.into_iter().flatten().min(),
            stream_options: counts.then_some(StreamOptions {
                include_usage: true,
            }),
        })
    }

    fn get_models(&self) -> RequestBuilder {
        self.client.get(self.models.clone())
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, LlmError> {
        let request = match &self.settings.api_key {
            Some(key) => request.bearer_auth(key.expose_secret()),
            None => request,
        };
        request.send().await.map_err(|error| {
            let (url, reason) = (shown(&self.settings.base_url), self.explain(&error));
            tracing::warn!(url, reason, "the language model cannot be reached");
            LlmError::Unreachable { url, reason }
        })
    }

    /// What an error status means, with the start of the body and when to try again. The body is
    /// logged at DEBUG alone: it may repeat what was said.
    async fn refusal(&self, response: Response) -> LlmError {
        let status = response.status().as_u16();
        let wait = response.headers().get(reqwest::header::RETRY_AFTER);
        let wait = wait
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let body = self
            .read(response, MAX_ERROR_BYTES)
            .await
            .unwrap_or_default();
        let message = wire::error_message(&body).unwrap_or(body);
        let body = match wait {
            Some(wait) => format!("{message} (retry after {})", clipped(&wait, 40)),
            None => message,
        };
        let (url, body) = (shown(&self.settings.base_url), self.redacted(&body));
        tracing::warn!(url, status, "the language model refuses");
        tracing::debug!(body, "the language model refuses");
        LlmError::Status { url, status, body }
    }

    /// The body's first `limit` bytes as text.
    async fn read(&self, mut response: Response, limit: usize) -> Result<String, LlmError> {
        let mut body = Vec::new();
        while body.len() < limit {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Err(LlmError::Stream(self.explain(&error))),
            }
        }
        body.truncate(limit);
        Ok(String::from_utf8_lossy(&body).trim().to_owned())
    }

    fn explain(&self, error: &reqwest::Error) -> String {
        let settings = &self.settings;
        if error.is_timeout() && error.is_connect() {
            return format!(
                "no connection within {} ms",
                settings.connect_timeout.as_millis()
            );
        }
        if error.is_timeout() {
            return format!("nothing came for {} ms", settings.stall_timeout.as_millis());
        }
        self.redacted(&causes(error))
    }

    /// Without the key, which some servers repeat in their errors, and not too long.
    fn redacted(&self, text: &str) -> String {
        let text = match &self.settings.api_key {
            Some(key) if !key.expose_secret().is_empty() => {
                text.replace(key.expose_secret(), "[key]")
            }
            _ => text.to_owned(),
        };
        clipped(&text, MAX_ERROR_BYTES).to_owned()
    }
}

fn client(settings: &Settings) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .user_agent(concat!("undertone/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(settings.connect_timeout)
        .read_timeout(settings.stall_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .tcp_nodelay(true)
        .redirect(redirect::Policy::none());
    if is_loopback(&settings.base_url) {
        builder.no_proxy().build()
    } else {
        builder.build()
    }
}

/// A proxy from the environment is of no use to reach our own machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        None => false,
    }
}

/// A user and password in the address would take the place of the key in the same header.
fn without_login(url: &mut Url) {
    // Both fail only for addresses that can have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
}

fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

/// The address without user, password, query and fragment.
fn shown(url: &Url) -> String {
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    format!(
        "{}://{}{port}{}",
        url.scheme(),
        url.host_str().unwrap_or_default(),
        url.path()
    )
}

/// The error's innermost cause, which says more than "error sending request for url (...)".
fn causes(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if std::ptr::addr_eq(innermost, error) {
        "the request failed".into()
    } else {
        innermost.to_string()
    }
}

fn clipped(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
