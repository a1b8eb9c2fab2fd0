//! Any server that speaks `/v1/chat/completions` with `"stream": true`: OpenAI, Groq, OpenRouter,
//! vLLM, llama.cpp's server, Ollama, LM Studio.
//!
//! The prompt tells the model to answer in markup, which [`crate::llm::markup`] parses. Native `tool_calls`
//! give the same events.

mod wire;

use super::http::{self, Server};
use super::prompt::{ChatMessage, Prompts};
use super::{Llm, LlmError, LlmEvent, LlmStream, Prompt};
use futures_util::{Stream, StreamExt, stream};
use reqwest::{RequestBuilder, Response};
use secrecy::SecretString;
use serde::Serialize;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use url::Url;
use wire::Decoder;

/// The path of the model list.
const MODELS: &str = "models";

/// The most bytes read of a model list.
const MAX_MODELS_BYTES: usize = 4 * 1024 * 1024;

/// The server's address and the parameters of requests.
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
    /// The token limit of an answer; the server's default if absent.
    pub max_tokens: Option<u32>,
    /// The timeout of connecting, TLS included.
    pub connect_timeout: Duration,
    /// The longest silence before the headers and between two pieces of the stream.
    pub stall_timeout: Duration,
}

impl Settings {
    /// Settings with a connect timeout of 3 s and a stall timeout of 30 s, in which a local server can load
    /// its model. The conversation's own deadlines are shorter.
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

/// The result of [`OpenAiCompatible::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Time from the request to the end of the response, connecting included.
    pub latency: Duration,
    /// The names of the server's models; `None` if it has no model list.
    pub models: Option<Vec<String>>,
    /// Whether the list has the configured model; `None` without a list.
    pub model_listed: Option<bool>,
}

/// A model behind an OpenAI-compatible server.
///
/// Connections are reused. Dropping a stream closes its connection, which makes the server stop generating.
#[derive(Clone)]
pub struct OpenAiCompatible {
    name: String,
    endpoint: Arc<Endpoint>,
    prompts: Prompts,
}

struct Endpoint {
    server: Arc<Server>,
    model: String,
    temperature: Option<f32>,
    max_tokens: Option<u32>,
    /// What the server takes. What it refused is remembered, so that only one request is made twice.
    takes: Mutex<Takes>,
}

/// Which optional parameters a server takes.
#[derive(Debug, Clone, Copy)]
struct Takes {
    /// Token counts with the stream.
    counts: bool,
    temperature: bool,
    limit: Limit,
}

/// The name of the token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// `max_tokens`: most servers.
    Old,
    /// `max_completion_tokens`: OpenAI's models from the o-series and GPT-5 on.
    New,
}

impl Takes {
    /// The same without what the server has refused; `None` if the refusal names nothing that can be left out.
    fn without(self, refusal: &LlmError) -> Option<Self> {
        let LlmError::Status {
            status: 400 | 422,
            body,
            ..
        } = refusal
        else {
            return None;
        };
        let names = |parameter: &str| body.contains(parameter);
        if self.counts && (names("stream_options") || names("include_usage")) {
            let counts = false;
            return Some(Self { counts, ..self });
        }
        if self.limit == Limit::Old && names("max_completion_tokens") {
            let limit = Limit::New;
            return Some(Self { limit, ..self });
        }
        let temperature = false;
        (self.temperature && names("temperature")).then_some(Self {
            temperature,
            ..self
        })
    }
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
    max_completion_tokens: Option<u32>,
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
    /// [`LlmError::Engine`] if the address is not `http` or `https`, the key cannot be sent in a header, or
    /// TLS is unavailable.
    pub fn new(settings: Settings, prompts: Prompts) -> Result<Self, LlmError> {
        Ok(Self {
            name: format!("openai-compatible {}", settings.model),
            endpoint: Arc::new(Endpoint::new(settings)?),
            prompts,
        })
    }

    /// Opens a connection and leaves it in the pool for the first turn.
    ///
    /// # Errors
    /// [`LlmError::Unreachable`] or [`LlmError::Stream`]. An error status is not an error here, since the
    /// connection is open.
    pub async fn warm(&self) -> Result<(), LlmError> {
        let server = &self.endpoint.server;
        let response = server.send(server.get(MODELS)).await?;
        server.read(response, MAX_MODELS_BYTES).await.map(drop)
    }

    /// Requests the model list, to check that the server is reachable, accepts the key and has the model.
    ///
    /// # Errors
    /// [`LlmError::Unreachable`] if it cannot be reached, [`LlmError::Status`] if it refuses. A server
    /// without a model list (404, 405 or 501) counts as healthy.
    #[allow(clippy::disallowed_methods, reason = "it measures")]
    pub async fn check(&self) -> Result<Health, LlmError> {
        let began = Instant::now();
        let server = &self.endpoint.server;
        let response = server.send(server.get(MODELS)).await?;
        let listless = matches!(response.status().as_u16(), 404 | 405 | 501);
        if !response.status().is_success() && !listless {
            return Err(self.endpoint.refusal(response).await);
        }
        let body = server.read(response, MAX_MODELS_BYTES).await?;
        let models = wire::model_names(&body).filter(|_| !listless);
        let model_listed = models
            .as_ref()
            .map(|names| names.contains(&self.endpoint.model));
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
            .field("url", &self.endpoint.server.shown())
            .field("model", &self.endpoint.model)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("base_url", &http::shown(&self.base_url))
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

async fn open(
    endpoint: Arc<Endpoint>,
    messages: Vec<ChatMessage>,
    max_tokens: Option<u32>,
) -> Result<LlmStream, LlmError> {
    let mut takes = *endpoint
        .takes
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    loop {
        let request = endpoint.post_chat(&messages, max_tokens, takes);
        let response = endpoint.server.send(request).await?;
        if response.status().is_success() {
            return Ok(events(response, &endpoint.server));
        }
        let refusal = endpoint.refusal(response).await;
        // Each parameter is left out once, so this ends.
        let Some(fewer) = takes.without(&refusal) else {
            return Err(refusal);
        };
        let reason = refusal.details();
        tracing::info!(
            reason,
            "a parameter is left out from now on: the server refuses it"
        );
        takes = fewer;
        *endpoint
            .takes
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = takes;
    }
}

/// A stream that is being read.
struct Reading<S> {
    messages: S,
    decoder: Decoder,
    server: Arc<Server>,
}

fn events(response: Response, server: &Arc<Server>) -> LlmStream {
    let reading = Reading {
        messages: Box::pin(http::messages(server.clone(), response)),
        decoder: Decoder::default(),
        server: server.clone(),
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

impl<S: Stream<Item = Result<String, String>> + Unpin> Reading<S> {
    async fn next(&mut self) -> Vec<Result<LlmEvent, LlmError>> {
        let (events, error) = match self.messages.next().await {
            Some(Ok(data)) => self.decoder.message(&data),
            Some(Err(reason)) => (Vec::new(), Some(reason)),
            None => self.decoder.end_of_stream(),
        };
        let error = error.map(|reason| {
            let reason = self.server.redacted(&reason);
            tracing::debug!(reason, "the language model's stream broke");
            Err(LlmError::Stream(reason))
        });
        events.into_iter().map(Ok).chain(error).collect()
    }
}

impl Endpoint {
    fn new(settings: Settings) -> Result<Self, LlmError> {
        Ok(Self {
            server: Arc::new(Server::new(
                settings.base_url,
                settings.api_key,
                settings.connect_timeout,
                settings.stall_timeout,
            )?),
            model: settings.model,
            temperature: settings.temperature,
            max_tokens: settings.max_tokens,
            takes: Mutex::new(Takes {
                counts: true,
                temperature: settings.temperature.is_some(),
                limit: Limit::Old,
            }),
        })
    }

    /// The request for a completion. A client can lower the operator's token limit, not raise it.
    fn post_chat(
        &self,
        messages: &[ChatMessage],
        max_tokens: Option<u32>,
        takes: Takes,
    ) -> RequestBuilder {
        let limit = [self.max_tokens, max_tokens].into_iter().flatten().min();
        self.server.post("chat/completions").json(&ChatRequest {
            model: &self.model,
            messages,
            stream: true,
            temperature: self.temperature.filter(|_| takes.temperature),
            max_tokens: limit.filter(|_| takes.limit == Limit::Old),
            max_completion_tokens: limit.filter(|_| takes.limit == Limit::New),
            stream_options: takes.counts.then_some(StreamOptions {
                include_usage: true,
            }),
        })
    }

    /// The error for a response with an error status.
    async fn refusal(&self, response: Response) -> LlmError {
        self.server.refusal(response, wire::error_message).await
    }
}
