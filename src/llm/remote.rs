//! A language model on a server, whatever the dialect: requests, retries, warm-ups and streams.
//!
//! A `Protocol` makes the bodies of requests and reads the events of streams. Everything else is here, once.

mod takes;

use super::http::{self, Headers, Server, Sign};
use super::markup::Parser;
use super::opaque::{Blocks, Complete};
use super::prompt::{ChatMessage, Prompts};
use super::{
    Calls, GivenResult, Llm, LlmError, LlmEvent, LlmStream, ModelId, Prompt, anthropic,
    openai_compatible,
};
use crate::backend::retry_after;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use reqwest::Response;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use std::fmt;
use std::iter;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use takes::has_part;
pub(super) use takes::{Takes, Vocabulary};
use url::Url;

/// A forced call, as a part of the parameter `tool_choice`: some servers take only "auto" and "none". The note at
/// the end of the prompt asks for the call, too.
pub(super) const FORCED: &str = "tool_choice.forced";

/// The thoughts of the agent's messages, which some servers want back and others do not know. All or none have them.
pub(super) const THOUGHTS_BACK: &str = "messages.reasoning_content";

/// Thoughts of a message that has both words and calls: gpt-oss's template takes them beside one of the two only.
pub(super) const THOUGHTS_BESIDE_BOTH: &str = "messages.reasoning_content.beside_both";

/// Calls without words before them, which gateways to Claude refuse.
pub(super) const NO_WORDS: &str = "messages.content.empty";

/// The path of the model list.
const MODELS: &str = "models";

/// The path of results for an answer, beside the base address.
const TOOL_CACHE: &str = "cache-tool-output";

/// The path of the properties of llama.cpp's server, beside the base address.
const PROPERTIES: &str = "props";

/// The most bytes read of a model list.
const MAX_MODELS_BYTES: usize = 4 * 1024 * 1024;

/// The longest time that a request is put off because the server asks for it: somebody waits for the answer.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// How long a request is put off if the server does not say.
const PATIENCE: Duration = Duration::from_millis(250);

/// The statuses of a server that has no room now.
const BUSY: [u16; 3] = [429, 503, 529];

/// The same in an error of Anthropic's, or of LiteLLM's.
const BUSY_TYPES: [&str; 3] = ["overloaded_error", "rate_limit_error", "throttling_error"];

/// The same in an outcome of MiniMax's.
const BUSY_OUTCOME: u16 = 1002;

/// The least time between two reports of thoughts.
const THOUGHTS: Duration = Duration::from_millis(250);

/// The time between two reports of a model that is known to think, until its first word. OpenAI's servers send nothing
/// meanwhile.
const STILL_THINKING: Duration = Duration::from_secs(1);

/// The token limit of a warm-up. Some servers refuse one in which a thought does not fit; they are asked with the
/// configured limit.
const WARM_UP_TOKENS: u32 = 16;

/// The error of an answer that was cut off before its first word.
pub(super) const ALL_THOUGHTS: &str = "the token limit was reached before the first word: a model that thinks needs a larger llm.max_tokens";

/// The error of an answer whose thoughts never end, from a model that thinks first.
pub(super) const UNCLOSED_THOUGHTS: &str = "the whole answer was a thought, because its closing tag never came: llm.thinks_first = false is for a model that does not think";

/// The error of an answer that the server's content filter has stopped.
pub(super) const FILTERED: &str = "the server's content filter stopped the answer";

/// The error of a prompt that leaves no room for an answer.
pub(super) const CONTEXT_FULL: &str =
    "the prompt fills the model's context: a smaller llm.max_prompt_tokens leaves room";

/// Errors of a model that is at work. Any other error before the first word, under whatever status, may come from a
/// server without a model.
const AT_WORK: [&str; 4] = [ALL_THOUGHTS, UNCLOSED_THOUGHTS, FILTERED, CONTEXT_FULL];

/// The protocol of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's chat completions.
    #[default]
    ChatCompletions,
    /// Anthropic's Messages.
    Messages,
}

/// A dialect at work: what requests look like, and what streams mean.
pub(super) trait Protocol: Send + Sync {
    /// The name for logs.
    fn name(&self) -> &'static str;

    /// The path of requests, below the base address.
    fn path(&self) -> &'static str;

    /// The headers of requests.
    fn headers(&self) -> Headers;

    /// The parameters that a server may refuse.
    fn vocabulary(&self) -> &'static Vocabulary;

    /// The body of a request, without what the server does not take, and with the `blocks` of its calls.
    fn body(
        &self,
        settings: &Settings,
        prompt: &Prompt,
        messages: &[ChatMessage],
        takes: &Takes,
        blocks: &Blocks,
    ) -> Map<String, Value>;

    /// A reader for one answer of a model that is offered these tools.
    fn reader(&self, settings: &Settings, tools: Vec<String>) -> Box<dyn Reader>;

    /// The content of an event, as the server sends it.
    fn look(&self, data: &str) -> Look;

    /// The model's text in the body of a refusal.
    fn answer_in(&self, refusal: &str) -> Option<String>;
}

/// Events, and the error that ended the stream, if any.
pub(super) type Decoded = (Vec<LlmEvent>, Option<String>);

/// A piece of an answer as the server sends it.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    /// The model's text, markup included.
    pub(super) text: String,
    /// It has a thought.
    pub(super) thinks: bool,
    /// Its pieces of native calls.
    pub(super) calls: Vec<CallPiece>,
}

/// A piece of a native call as the server sends it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CallPiece {
    pub(super) index: Option<u64>,
    /// It has an id that is not empty.
    pub(super) has_id: bool,
    /// It has a name that is not empty.
    pub(super) has_name: bool,
    /// It has a part of the arguments.
    pub(super) has_arguments: bool,
}

/// Reads the messages of one stream.
pub(super) trait Reader: Send {
    /// Reads the data of one server-sent event.
    fn message(&mut self, data: &str) -> Decoded;

    /// Handles the end of the stream. It is an error unless the answer is over.
    fn end_of_stream(&mut self) -> Decoded;

    /// Handles a stream that broke off. It is an error unless nothing of the answer can be missing.
    fn breaks_off(&mut self) -> Decoded {
        self.end_of_stream()
    }

    /// Whether thoughts have come that the server may want back.
    fn thinks(&self) -> bool {
        false
    }

    /// The calls that were completed since this was last asked, with the blocks that came with them.
    fn blocks(&mut self) -> Vec<Complete>;
}

/// The server's address and the parameters of requests.
#[derive(Clone)]
pub struct Settings {
    /// The server's protocol.
    pub dialect: Dialect,
    /// The address up to and including `/v1`.
    pub base_url: Url,
    /// The model's name at the server.
    pub model: String,
    /// Sent as the dialect has it. Never shown.
    pub api_key: Option<SecretString>,
    /// The file that has the key, which is read again once the server refuses it.
    pub api_key_file: Option<PathBuf>,
    /// Sampling temperature; the server's default if absent.
    pub temperature: Option<f32>,
    /// The token limit of an answer; the server's default if absent.
    pub max_tokens: Option<u32>,
    /// How much the model thinks, in the server's words (`none`, `low`); the server's default if absent.
    pub reasoning_effort: Option<String>,
    /// How the model calls tools.
    pub calls: Calls,
    /// Its answers begin with thoughts that only a closing tag marks.
    pub thinks_first: bool,
    /// Another model answers in its place if it is slow. A server that has not sent its headers then counts as
    /// silent, even if the model is known to think.
    pub has_fallback: bool,
    /// The server takes results of tools while it answers, at `/cache-tool-output/{response_id}`.
    pub tool_cache: bool,
    /// Fields that are added to each request.
    pub extra_body: Map<String, Value>,
    /// The timeout of connecting, TLS included.
    pub connect_timeout: Duration,
    /// The longest silence before the headers and between two pieces of the stream.
    pub stall_timeout: Duration,
    /// The longest silence in a warm-up, during which the server may load the model.
    pub load_timeout: Duration,
}

impl Settings {
    /// Settings for chat completions with a connect timeout of 3 s, a stall timeout of 30 s and a load timeout of 5
    /// minutes, for calls in markup. The conversation's own deadlines are shorter.
    pub fn new(base_url: Url, model: impl Into<String>) -> Self {
        Self {
            dialect: Dialect::default(),
            base_url,
            model: model.into(),
            api_key: None,
            api_key_file: None,
            temperature: None,
            max_tokens: None,
            reasoning_effort: None,
            calls: Calls::Markup,
            thinks_first: false,
            has_fallback: false,
            tool_cache: false,
            extra_body: Map::new(),
            connect_timeout: Duration::from_secs(3),
            stall_timeout: Duration::from_secs(30),
            load_timeout: Duration::from_secs(300),
        }
    }
}

/// The result of [`Remote::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Time from the request to the end of the response, connecting included.
    pub latency: Duration,
    /// The names of the server's models; `None` if it has no model list.
    pub models: Option<Vec<String>>,
    /// Whether the key may read the list.
    pub may_list: bool,
    /// Whether the list has the configured model; `None` without a list.
    pub model_listed: Option<bool>,
}

/// A model on a server.
///
/// Connections are reused. Dropping a stream closes its connection, which makes the server stop generating.
#[derive(Clone)]
pub struct Remote {
    name: String,
    endpoint: Arc<Endpoint>,
    prompts: Prompts,
}

struct Endpoint {
    server: Arc<Server>,
    /// The server with the timeouts of warm-ups.
    patient: Arc<Server>,
    settings: Settings,
    protocol: Box<dyn Protocol>,
    /// The parameters that the server takes. Each one that it refused is remembered, so that only one request is
    /// made twice.
    takes: Mutex<Takes>,
    /// Blocks that have to come back with native calls.
    blocks: Mutex<Blocks>,
}

impl Remote {
    /// Sets up the client; connects to nothing.
    ///
    /// # Errors
    /// [`LlmError::Engine`] if the address is not `http` or `https`, the key cannot be sent in a header, or
    /// TLS is unavailable.
    pub fn new(settings: Settings, prompts: Prompts) -> Result<Self, LlmError> {
        let prompts = prompts.for_calls(settings.calls);
        let endpoint = Endpoint::new(settings)?;
        Ok(Self {
            name: format!("{} {}", endpoint.protocol.name(), endpoint.settings.model),
            prompts,
            endpoint: Arc::new(endpoint),
        })
    }

    /// Opens a connection and leaves it in the pool for the first turn.
    ///
    /// # Errors
    /// [`LlmError::Unreachable`] or [`LlmError::Stream`]. An error status is not an error here, since the
    /// connection is open.
    async fn warm(&self) -> Result<(), LlmError> {
        let server = &self.endpoint.server;
        let response = server.send(server.get(MODELS)).await?;
        server.read(response, MAX_MODELS_BYTES).await.map(drop)
    }

    /// Requests the model list, to check that the server is reachable, accepts the key and has the model.
    ///
    /// # Errors
    /// [`LlmError::Unreachable`] if it cannot be reached, [`LlmError::Status`] if it refuses. A server
    /// without a model list (404, 405 or 501) counts as healthy, as does one whose key may not read it.
    #[allow(clippy::disallowed_methods, reason = "it measures")]
    pub async fn check(&self) -> Result<Health, LlmError> {
        let began = Instant::now();
        let server = &self.endpoint.server;
        let response = server.send(server.get(MODELS)).await?;
        let listless = matches!(response.status().as_u16(), 404 | 405 | 501);
        if !response.status().is_success() && !listless {
            let (refusal, _) = self.endpoint.refusal(response).await;
            if !lacks_scope(&refusal) {
                return Err(refusal);
            }
            return Ok(Health {
                latency: began.elapsed(),
                models: None,
                may_list: false,
                model_listed: None,
            });
        }
        let body = server.read(response, MAX_MODELS_BYTES).await?;
        let models = model_names(&body).filter(|_| !listless);
        let model = &self.endpoint.settings.model;
        let model_listed = models
            .as_ref()
            .map(|names| names.iter().any(|name| is_name_of(name, model)));
        Ok(Health {
            latency: began.elapsed(),
            models,
            may_list: true,
            model_listed,
        })
    }
}

impl Llm for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> ModelId {
        let settings = &self.endpoint.settings;
        let url = &settings.base_url;
        let host = url.host_str().unwrap_or_default().to_owned();
        ModelId {
            dialect: match settings.dialect {
                Dialect::ChatCompletions => "openai",
                Dialect::Messages => "anthropic",
            },
            server: Some((host, url.port_or_known_default().unwrap_or_default())),
            name: settings.model.clone(),
        }
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let stream = answer(self.endpoint.clone(), self.messages(&prompt), prompt);
        let settings = &self.endpoint.settings;
        match settings.is_known_to_think() {
            true => with_thoughts(stream, settings.has_fallback),
            false => stream,
        }
    }

    fn warm_up(&self, mut prompt: Prompt) -> BoxFuture<'static, Result<(), LlmError>> {
        let endpoint = self.endpoint.clone();
        let messages = self.messages(&prompt);
        let warm = self.clone();
        Box::pin(async move {
            prompt.demands.max_tokens = Some(WARM_UP_TOKENS);
            let mut asked = Asked {
                server: endpoint.patient.clone(),
                prompt,
                messages: messages?,
            };
            let opened = open(&endpoint, asked.clone()).await;
            let mut events = match opened {
                // Perhaps because the limit leaves no room for a thought: answers have the configured one.
                Err(LlmError::Status {
                    status: 400 | 422, ..
                }) => {
                    asked.prompt.demands.max_tokens = None;
                    open(&endpoint, asked).await?
                }
                opened => opened?,
            };
            let mut has_begun = false;
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => has_begun |= event.is_output(),
                    Err(error) if has_begun || is_at_work(&error) => {
                        tracing::debug!(reason = error.details(), "the warm-up's answer broke off");
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            // Leaves a connection in the pool for the first turn.
            warm.warm().await
        })
    }

    fn takes_results(&self) -> bool {
        self.endpoint.settings.tool_cache
    }

    fn give(
        &self,
        response: &str,
        result: GivenResult,
    ) -> BoxFuture<'static, Result<(), LlmError>> {
        let endpoint = self.endpoint.clone();
        let request = endpoint.server.post_beside(&[TOOL_CACHE, response]);
        let request = request.json(&json!([{
            "name": result.tool,
            "params": result.arguments,
            "output": self.prompts.result(&result.result),
            "keep_alive": result.keep_alive.duration().as_secs_f64(),
        }]));
        Box::pin(async move {
            let response = endpoint.server.send(request).await?;
            match response.status().is_success() {
                true => Ok(()),
                false => Err(endpoint.refusal(response).await.0),
            }
        })
    }
}

impl Remote {
    /// The names of the parameters that the server has refused so far.
    pub fn refused(&self) -> Vec<&'static str> {
        let vocabulary = self.endpoint.protocol.vocabulary();
        self.endpoint.takes().refused(vocabulary)
    }

    /// The effort of thinking that the server takes in place of the configured one.
    pub fn effort(&self) -> Option<&'static str> {
        self.endpoint.takes().effort()
    }

    /// An answer as the server sends it: all of its text, markup included, and the pieces of its native calls.
    ///
    /// # Errors
    /// As a generation.
    pub(super) async fn sample(&self, prompt: Prompt) -> Result<Look, LlmError> {
        let messages = self.messages(&prompt)?;
        let server = &self.endpoint.server;
        let mut all = Look::default();
        let response = match request(&self.endpoint, server, &prompt, &messages, true).await? {
            Opened::Stream(response) => response,
            Opened::Text { text, .. } => {
                return Ok(Look { text, ..all });
            }
        };
        let mut signs = http::messages(server.clone(), response, error_message).boxed();
        while let Some(sign) = signs.next().await {
            if let Sign::Data(data) = sign.map_err(LlmError::Stream)? {
                let look = self.endpoint.protocol.look(&data);
                all.text.push_str(&look.text);
                all.thinks |= look.thinks;
                all.calls.extend(look.calls);
            }
        }
        Ok(all)
    }

    /// The properties of llama.cpp's server, at `/props` beside the base address; `None` if the server is another.
    pub(super) async fn properties(&self) -> Option<Value> {
        let server = &self.endpoint.server;
        let response = server.send(server.get_beside(&[PROPERTIES])).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let body = server.read(response, MAX_MODELS_BYTES).await.ok()?;
        serde_json::from_str(&body).ok()
    }

    fn messages(&self, prompt: &Prompt) -> Result<Vec<ChatMessage>, LlmError> {
        let messages = self.prompts.chat(prompt);
        messages.map_err(|e| LlmError::Engine(e.to_string()))
    }
}

impl Settings {
    /// Whether the operator asks the model to think, so that it may be silent for long before its first word.
    /// Anthropic's dialect streams thoughts and pings, and `effort` there does not mean thinking.
    fn is_known_to_think(&self) -> bool {
        let effort = self.reasoning_effort.as_deref();
        self.dialect == Dialect::ChatCompletions
            && effort.is_some_and(|effort| !matches!(effort, "none" | "minimal"))
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.endpoint.server.shown())
            .field("model", &self.endpoint.settings.model)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("base_url", &crate::backend::shown(&self.base_url))
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Whether an error shows that the model is loaded.
fn is_at_work(error: &LlmError) -> bool {
    matches!(error, LlmError::Stream(reason) if AT_WORK.contains(&reason.as_str()))
}

/// The events of an answer. The first says that the server is at work, once it has sent its headers.
fn answer(
    endpoint: Arc<Endpoint>,
    messages: Result<Vec<ChatMessage>, LlmError>,
    prompt: Prompt,
) -> LlmStream {
    stream::once(async move {
        let alive = stream::once(std::future::ready(Ok(LlmEvent::Thinking)));
        let asked = Asked {
            server: endpoint.server.clone(),
            prompt,
            messages: messages?,
        };
        let events = open(&endpoint, asked).await?;
        Ok(alive.chain(events).boxed())
    })
    .map(|opened| match opened {
        Ok(events) => events,
        Err(error) => stream::once(std::future::ready(Err(error))).boxed(),
    })
    .flatten()
    .boxed()
}

/// Adds signs of thought until the first word or call, at regular intervals; not before the headers if they are
/// `waited_for`.
fn with_thoughts(events: LlmStream, waited_for: bool) -> LlmStream {
    let state = (events, waited_for, false);
    stream::unfold(state, |(mut events, waits, has_begun)| async move {
        let next = match waits || has_begun {
            true => events.next().await,
            false => match tokio::time::timeout(STILL_THINKING, events.next()).await {
                Ok(event) => event,
                Err(_) => Some(Ok(LlmEvent::Thinking)),
            },
        }?;
        let begins = !matches!(&next, Ok(event) if !event.is_output());
        // The first event says that the headers have come.
        Some((next, (events, false, has_begun || begins)))
    })
    .boxed()
}

/// Requests an answer. Parameters that the server refuses are left out, and a server that is busy is asked a
/// second time if it has room soon, even if it says so only in its stream.
async fn open(endpoint: &Arc<Endpoint>, asked: Asked) -> Result<LlmStream, LlmError> {
    let opened = request(
        endpoint,
        &asked.server,
        &asked.prompt,
        &asked.messages,
        true,
    );
    Ok(match opened.await? {
        Opened::Stream(response) => events(response, endpoint.clone(), asked),
        Opened::Text { events, .. } => stream::iter(events.into_iter().map(Ok)).boxed(),
    })
}

/// The words and calls of a model in the whole text of an answer that its server has refused. `None` without a call:
/// the text may be the server's own, and is not spoken.
pub(super) fn refused_answer(text: &str, tools: Vec<String>) -> Option<Vec<LlmEvent>> {
    let mut parser = Parser::default().tools(tools);
    let mut events = parser.push(text);
    events.extend(parser.finish_whole());
    events.push(LlmEvent::End);
    let calls = |event: &LlmEvent| matches!(event, LlmEvent::ToolOpened { .. });
    events.iter().any(calls).then_some(events)
}

/// A server's answer to a request.
enum Opened {
    Stream(Response),
    /// The whole answer, from a refusal.
    Text {
        text: String,
        events: Vec<LlmEvent>,
    },
}

/// Makes a request, without the parameters that the server refuses. `may_wait`: once more if it has no room now.
async fn request(
    endpoint: &Endpoint,
    server: &Server,
    prompt: &Prompt,
    messages: &[ChatMessage],
    mut may_wait: bool,
) -> Result<Opened, LlmError> {
    let mut takes = endpoint.takes().clone();
    loop {
        let protocol = &endpoint.protocol;
        let settings = &endpoint.settings;
        let body = protocol.body(settings, prompt, messages, &takes, &endpoint.blocks());
        let request = server.post(protocol.path()).json(&body);
        let response = server.send(request).await?;
        if response.status().is_success() {
            let is_forced = prompt.demands.tool_choice.is_forced();
            if is_forced && settings.calls == Calls::Native && !body.contains_key("tool_choice") {
                tracing::warn!(
                    choice = ?prompt.demands.tool_choice,
                    "the server refuses a forced tool_choice: a note in the prompt asks for the call instead"
                );
            }
            return Ok(Opened::Stream(response));
        }
        let wait = retry_after(response.headers()).unwrap_or(PATIENCE);
        let (refusal, answer) = server.refusal(response, error_message).await;
        if let Some(text) = protocol.answer_in(&answer)
            && let Some(events) = refused_answer(&text, prompt.tool_names())
        {
            return Ok(Opened::Text { text, events });
        }
        // None are left afterwards, so this ends.
        if refuses_thoughts(&refusal) && endpoint.blocks().forget(prompt.demands.session) {
            tracing::info!("the server refuses thoughts that it got back: they are forgotten");
            continue;
        }
        // Each message has them afterwards, so this ends. The other dialect has no such field.
        let may_want = settings.dialect == Dialect::ChatCompletions
            && takes.has(THOUGHTS_BACK)
            && takes.has(THOUGHTS_BESIDE_BOTH);
        if may_want && misses_thoughts(&refusal, &body) {
            endpoint.blocks().want_thoughts();
            tracing::info!("the server wants thoughts with each message of the agent");
            continue;
        }
        let is_busy = matches!(&refusal, LlmError::Status { status, .. } if BUSY.contains(status));
        if is_busy && may_wait && wait <= MOST_PATIENCE {
            may_wait = false;
            tokio::time::sleep(wait).await;
            continue;
        }
        // Each parameter is left out once, so this ends.
        let Some(fewer) = takes.without(&refusal, &body, protocol.vocabulary()) else {
            return Err(refusal);
        };
        tracing::debug!(reason = refusal.details(), "refused");
        tracing::info!(
            refused = ?fewer.refused(protocol.vocabulary()),
            effort = fewer.effort(),
            "a parameter is left out or changed from now on: the server refuses it"
        );
        let mut known = endpoint.takes();
        known.merge(&fewer);
        takes = known.clone();
    }
}

/// Whether a refusal is about thoughts that went back: Claude's newer models take them only behind the very messages
/// that they came behind, of which the oldest may be gone.
fn refuses_thoughts(refusal: &LlmError) -> bool {
    let LlmError::Status { body: reason, .. } = refusal else {
        return false;
    };
    reason.contains("`thinking` block")
        || reason.contains("thinking") && reason.contains("cannot be modified")
}

/// Whether a refusal is about thoughts that the agent's messages lack: it names them, and none were sent. DeepSeek and
/// MiMo want them with each one, whoever wrote it, if there are tools.
fn misses_thoughts(refusal: &LlmError, body: &Map<String, Value>) -> bool {
    let LlmError::Status {
        status: 400 | 422,
        body: reason,
        ..
    } = refusal
    else {
        return false;
    };
    let messages = body.get("messages").and_then(Value::as_array);
    let mut messages = messages.into_iter().flatten();
    reason.contains("reasoning_content")
        && messages.any(|message| message["role"] == "assistant")
        && !has_part(body, "reasoning_content")
}

/// Whether the error in an event says that the server is busy.
fn says_busy(data: &str) -> bool {
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    let error = &event["error"];
    // LiteLLM writes it as text.
    let code = error["code"].as_str().and_then(|code| code.parse().ok());
    let has_code = |status: &u16| error["code"] == *status || code == Some(*status);
    BUSY.iter().any(has_code)
        || BUSY_TYPES.iter().any(|kind| error["type"] == *kind)
        || event["base_resp"]["status_code"] == BUSY_OUTCOME
}

/// A request that can be repeated.
#[derive(Clone)]
struct Asked {
    server: Arc<Server>,
    prompt: Prompt,
    messages: Vec<ChatMessage>,
}

/// A stream that is being read.
struct Reading {
    server: Arc<Server>,
    messages: BoxStream<'static, Result<Sign, String>>,
    reader: Box<dyn Reader>,
    endpoint: Arc<Endpoint>,
    session: u64,
    /// A word or a call has come.
    has_begun: bool,
    /// When a thought was last reported.
    thought: Option<Instant>,
    /// The request, unless it has been repeated.
    again: Option<Asked>,
}

fn events(response: Response, endpoint: Arc<Endpoint>, again: Asked) -> LlmStream {
    let reading = Reading {
        server: again.server.clone(),
        messages: http::messages(again.server.clone(), response, error_message).boxed(),
        reader: endpoint.reader(&again.prompt),
        endpoint,
        session: again.prompt.demands.session,
        has_begun: false,
        thought: None,
        again: Some(again),
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

impl Reading {
    async fn next(&mut self) -> Vec<Result<LlmEvent, LlmError>> {
        let (mut events, error) = match self.messages.next().await {
            Some(Ok(Sign::Data(data))) => {
                let read = self.reader.message(&data);
                if read.1.is_some()
                    && !self.has_begun
                    && says_busy(&data)
                    && let Some(again) = self.again.take()
                {
                    return self.ask(again).await;
                }
                read
            }
            Some(Ok(Sign::Alive)) => (vec![LlmEvent::Thinking], None),
            // Nothing but counts could have followed the finish reason.
            Some(Err(reason)) => match self.reader.breaks_off() {
                (events, None) => (events, None),
                (_, Some(_)) => (Vec::new(), Some(reason)),
            },
            None => self.reader.end_of_stream(),
        };
        if self.endpoint.settings.calls == Calls::Native {
            let mut blocks = self.endpoint.blocks();
            if self.reader.thinks() {
                blocks.want_thoughts();
            }
            for (name, arguments, block) in self.reader.blocks() {
                blocks.keep(self.session, &name, &arguments, block);
            }
        }
        self.has_begun |= events.iter().any(LlmEvent::is_output);
        if events.is_empty() && error.is_none() && !self.has_begun {
            // A thought that the server leaves in the text.
            events.push(LlmEvent::Thinking);
        }
        if events.contains(&LlmEvent::Thinking) && !self.tells_thought() {
            events.retain(|event| *event != LlmEvent::Thinking);
        }
        let error = error.map(|reason| {
            let reason = self.server.redacted(&reason);
            tracing::debug!(reason, "the language model's stream broke");
            Err(LlmError::Stream(reason))
        });
        events.into_iter().map(Ok).chain(error).collect()
    }

    /// Makes the request again, whose answer takes the place of this one. Returns the first events.
    async fn ask(&mut self, again: Asked) -> Vec<Result<LlmEvent, LlmError>> {
        tracing::debug!("the server is busy: it is asked once more");
        tokio::time::sleep(PATIENCE).await;
        let Asked {
            server,
            prompt,
            messages,
        } = again;
        let opened = request(&self.endpoint, &server, &prompt, &messages, false).await;
        match opened {
            Ok(Opened::Stream(response)) => {
                self.messages = http::messages(server, response, error_message).boxed();
                self.reader = self.endpoint.reader(&prompt);
                Vec::new()
            }
            Ok(Opened::Text { events, .. }) => events.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    /// Whether a thought is reported now: not each of thousands.
    #[allow(clippy::disallowed_methods, reason = "an edge: it limits a rate")]
    fn tells_thought(&mut self) -> bool {
        let is_due = self.thought.is_none_or(|last| last.elapsed() >= THOUGHTS);
        if is_due {
            self.thought = Some(Instant::now());
        }
        is_due
    }
}

impl Endpoint {
    fn new(settings: Settings) -> Result<Self, LlmError> {
        let protocol: Box<dyn Protocol> = match settings.dialect {
            Dialect::ChatCompletions => Box::new(openai_compatible::ChatCompletions),
            Dialect::Messages => Box::new(anthropic::Messages),
        };
        let server = |silence: Duration| {
            let (url, key) = (settings.base_url.clone(), settings.api_key.clone());
            let (file, headers) = (settings.api_key_file.clone(), protocol.headers());
            let connect = settings.connect_timeout;
            Server::new(url, key, file, headers, connect, silence).map(Arc::new)
        };
        Ok(Self {
            server: server(settings.stall_timeout)?,
            patient: server(settings.load_timeout)?,
            settings,
            protocol,
            takes: Mutex::default(),
            blocks: Mutex::default(),
        })
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader for the answer to a prompt.
    fn reader(&self, prompt: &Prompt) -> Box<dyn Reader> {
        self.protocol.reader(&self.settings, prompt.tool_names())
    }

    fn takes(&self) -> MutexGuard<'_, Takes> {
        self.takes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for a response with an error status, and its body.
    async fn refusal(&self, response: Response) -> (LlmError, String) {
        self.server.refusal(response, error_message).await
    }
}

/// A count in any form of number; `None` if there is none.
pub(super) fn count_in(sent: &Value) -> Option<u64> {
    sent.as_f64().map(|count| count as u64)
}

/// The reason in MiniMax's outcome, if that is an error. It comes under status 200:
/// `{"base_resp": {"status_code": 1004, "status_msg": "login fail"}}`.
pub(super) fn failure_in(outcome: &Value) -> Option<&Value> {
    let code = outcome["status_code"].as_i64();
    let has_failed = code.is_some_and(|code| code != 0);
    let reason = outcome.get("status_msg");
    let reason = reason.filter(|reason| reason.as_str().is_some_and(|reason| !reason.is_empty()));
    has_failed.then(|| reason.unwrap_or(outcome))
}

/// The message in an error body such as `{"error": {"message": "..."}}`.
pub(super) fn error_message(body: &str) -> Option<String> {
    let mut body: Value = serde_json::from_str(body).ok()?;
    // Gemini puts its error into a list.
    if let Some(first) = body.as_array_mut().and_then(|list| list.drain(..).next()) {
        body = first;
    }
    let is_error = body.get("object").is_some_and(|object| object == "error");
    let error = body.get("error").filter(|error| !error.is_null());
    let error = error.or_else(|| is_error.then_some(&body));
    let has_details = body.get("detail").is_some_and(Value::is_array);
    let error = error.or_else(|| has_details.then_some(&body));
    let error = error.or_else(|| failure_in(body.get("base_resp")?))?;
    let message = message_of(error);
    let parameter = error.get("param").and_then(Value::as_str);
    Some(match parameter.filter(|name| !message.contains(name)) {
        Some(parameter) => format!("{message} ({parameter})"),
        None => message,
    })
}

/// The message of an error, which may be text alone, with its details. OpenRouter says there only that a provider
/// refused; the provider's own error is added.
pub(super) fn message_of(error: &Value) -> String {
    let own = error.get("message");
    let details: Vec<String> = iter::once(error).chain(own).flat_map(details_in).collect();
    let details = details.join("; ");
    let message = match own.unwrap_or(error) {
        said if details.is_empty() => text_of(said),
        Value::String(said) => format!("{said}: {details}"),
        _ => details,
    };
    let metadata = &error["metadata"];
    let raw = match &metadata["raw"] {
        Value::Null => return message,
        raw => text_of(raw),
    };
    let cause = error_message(&raw).unwrap_or(raw);
    match metadata["provider_name"].as_str() {
        Some(provider) => format!("{message}: {provider}: {cause}"),
        None => format!("{message}: {cause}"),
    }
}

/// The fields that the details of an error name, each with what is wrong with it, as pydantic and Google list them.
/// Pydantic's `input`, which may be the user's words, is left out.
fn details_in(error: &Value) -> Vec<String> {
    let lists = [&error["details"], &error["detail"]];
    let entries = lists.into_iter().filter_map(Value::as_array).flatten();
    let entries = entries.flat_map(|entry| match entry["fieldViolations"].as_array() {
        Some(violations) => violations.as_slice(),
        None => std::slice::from_ref(entry),
    });
    let told = |entry: &Value| {
        let field = match &entry["loc"] {
            Value::Array(steps) => steps.iter().map(text_of).collect::<Vec<_>>().join("."),
            _ => entry["field"].as_str().unwrap_or_default().to_owned(),
        };
        let reason = entry["msg"].as_str().or(entry["description"].as_str());
        let reason = reason.map(str::to_owned);
        let parts = [Some(field).filter(|field| !field.is_empty()), reason];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    };
    entries.map(told).filter(|told| !told.is_empty()).collect()
}

/// A text, or anything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether a refusal says only that the key may not do this, as those of OpenAI's restricted keys do.
fn lacks_scope(refusal: &LlmError) -> bool {
    match refusal {
        LlmError::Status {
            status: 401 | 403,
            body,
            ..
        } => body.contains("Missing scopes"),
        _ => false,
    }
}

/// The ids in a model list: `{"data": [{"id": "..."}]}`, or the list alone, as Together sends it.
fn model_names(body: &str) -> Option<Vec<String>> {
    let body: Value = serde_json::from_str(body).ok()?;
    let list = body.get("data").unwrap_or(&body).as_array()?;
    let ids = list.iter().filter_map(|model| model.get("id")?.as_str());
    Some(ids.map(str::to_owned).collect())
}

/// Whether a name on a list is that of the model: Gemini lists `models/m` and Ollama `m:latest`.
fn is_name_of(listed: &str, model: &str) -> bool {
    listed == model
        || listed.strip_prefix("models/") == Some(model)
        || listed.strip_suffix(":latest") == Some(model)
}
