//! HTTP for servers of language models, shared by all dialects: errors without secrets, and event streams
//! with a maximum event size.

use super::LlmError;
use super::markup::Utf8Decoder;
use crate::backend::{Backend, KeyForm, clipped};
use eventsource_stream::{Event, EventStreamError, Eventsource};
use futures_util::{Stream, StreamExt, stream};
use reqwest::{RequestBuilder, Response, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use url::Url;

/// The most bytes between two events, many times more than a server has reason to send.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// The most bytes of an error that are shown.
const MAX_ERROR_BYTES: usize = 600;

/// The most bytes of a refusal's body that are read.
const MAX_REFUSAL_BYTES: usize = 32 * 1024;

/// The least time between two looks for another key.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// How long that may take.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The headers that a dialect wants beside the usual ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Headers {
    /// How the key is sent.
    pub(super) key: KeyForm,
    /// Names and values that never change.
    pub(super) fixed: &'static [(&'static str, &'static str)],
}

impl Headers {
    /// The key as a bearer token, and nothing else.
    pub(super) const BEARER: Self = Self {
        key: KeyForm::Bearer,
        fixed: &[],
    };
}

/// A server of language models. Connections are reused.
pub(super) struct Server {
    /// With the key of now.
    backend: Mutex<Arc<Backend>>,
    key_file: Option<PathBuf>,
    /// When the key was last looked for; held while it is.
    looked: tokio::sync::Mutex<Option<Instant>>,
    headers: Headers,
}

impl Server {
    /// As [`Backend::new`]. When the server refuses the key, it is read again from `key_file`.
    ///
    /// # Errors
    /// [`LlmError::Engine`] if the address is not `http` or `https`, the key cannot be sent in a header, or
    /// TLS is unavailable.
    pub(super) fn new(
        base_url: Url,
        api_key: Option<SecretString>,
        key_file: Option<PathBuf>,
        headers: Headers,
        connect_timeout: Duration,
        stall_timeout: Duration,
    ) -> Result<Self, LlmError> {
        let backend = Backend::new(base_url, api_key, connect_timeout, stall_timeout);
        let engine = |reason| LlmError::Engine(format!("language model: {reason}"));
        Ok(Self {
            backend: Mutex::new(Arc::new(backend.map_err(engine)?)),
            key_file,
            looked: tokio::sync::Mutex::default(),
            headers,
        })
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Backend>> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backend(&self) -> Arc<Backend> {
        self.locked().clone()
    }

    /// The server with another key than the one that it has refused, if there is one by now.
    #[allow(clippy::disallowed_methods, reason = "an edge: it limits a rate")]
    async fn with_another_key(&self, refused: &Arc<Backend>) -> Option<Arc<Backend>> {
        let file = self.key_file.as_ref()?;
        let mut looked = self.looked.lock().await;
        let backend = self.backend();
        if !Arc::ptr_eq(refused, &backend) {
            return Some(backend);
        }
        let now = Instant::now();
        if looked.is_some_and(|looked| now < looked + NEXT_LOOK) {
            return None;
        }
        *looked = Some(now);
        let read = tokio::time::timeout(LONGEST_LOOK, tokio::fs::read_to_string(file)).await;
        let read = read.map_err(|late| late.to_string());
        let read = read.and_then(|read| read.map_err(|error| error.to_string()));
        let another = read.and_then(|key| match key.trim() {
            "" => Err("the file is empty".into()),
            key => backend.with_key(key.into()),
        });
        let url = backend.shown();
        let another = another.inspect_err(|reason| {
            tracing::warn!(
                url,
                reason,
                file = %file.display(),
                "the key cannot be read again: write it to api_key_file, readable for this server"
            );
        });
        let another = Arc::new(another.ok()??);
        tracing::info!(url, "the key is another one from now on");
        self.locked().clone_from(&another);
        Some(another)
    }

    /// A GET request for a path below the base address.
    pub(super) fn get(&self, path: &str) -> RequestBuilder {
        self.backend().get(path)
    }

    /// A POST request to a path below the base address.
    pub(super) fn post(&self, path: &str) -> RequestBuilder {
        self.backend().post(path)
    }

    /// A GET request for a path beside the base address's `/v1`.
    pub(super) fn get_beside(&self, segments: &[&str]) -> RequestBuilder {
        let backend = self.backend();
        backend.get_from(beside(backend.base_url(), segments))
    }

    /// A POST request to a path beside the base address's `/v1`.
    pub(super) fn post_beside(&self, segments: &[&str]) -> RequestBuilder {
        let backend = self.backend();
        backend.post_to(beside(backend.base_url(), segments))
    }

    /// The base address without user, password, query and fragment.
    pub(super) fn shown(&self) -> String {
        self.backend().shown()
    }

    /// Sends a request, with the key and the dialect's headers; once more if the server refuses the key and its file
    /// has another.
    ///
    /// # Errors
    /// [`LlmError::Unreachable`].
    pub(super) async fn send(&self, mut request: RequestBuilder) -> Result<Response, LlmError> {
        for (name, value) in self.headers.fixed {
            request = request.header(*name, *value);
        }
        let again = request.try_clone();
        let backend = self.backend();
        let mut sent = backend.send(request, self.headers.key).await;
        let is_refused = |response: &Response| response.status() == StatusCode::UNAUTHORIZED;
        if sent.as_ref().is_ok_and(is_refused)
            && let Some(again) = again
            && let Some(another) = self.with_another_key(&backend).await
        {
            sent = another.send(again, self.headers.key).await;
        }
        sent.map_err(|reason| {
            let url = self.shown();
            tracing::warn!(url, reason, "the language model cannot be reached");
            LlmError::Unreachable { url, reason }
        })
    }

    /// The error for an unsuccessful response, with the `Retry-After` header, and the body. `message_of` extracts
    /// the message from a body. The body is logged only at DEBUG, because it may repeat the user's words.
    pub(super) async fn refusal(
        &self,
        response: Response,
        message_of: fn(&str) -> Option<String>,
    ) -> (LlmError, String) {
        let status = response.status().as_u16();
        let wait = response.headers().get(reqwest::header::RETRY_AFTER);
        let wait = wait
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let answer = self
            .read(response, MAX_REFUSAL_BYTES)
            .await
            .unwrap_or_default();
        let message = message_of(&answer).unwrap_or_else(|| answer.clone());
        let message = clipped(&message, MAX_ERROR_BYTES);
        let body = match wait {
            Some(wait) => format!("{message} (retry after {})", clipped(&wait, 40)),
            None => message.to_owned(),
        };
        let (url, body) = (self.shown(), self.redacted(&body));
        tracing::warn!(
            url,
            status,
            "the language model's server refused the request"
        );
        tracing::debug!(body, "the language model's server refused the request");
        (LlmError::Status { url, status, body }, answer)
    }

    /// The body's first `limit` bytes as text.
    ///
    /// # Errors
    /// [`LlmError::Stream`] if the body breaks off.
    pub(super) async fn read(&self, response: Response, limit: usize) -> Result<String, LlmError> {
        let read = self.backend().read(response, limit).await;
        read.map_err(LlmError::Stream)
    }

    /// As [`Backend::redacted`].
    pub(super) fn redacted(&self, text: &str) -> String {
        self.backend().redacted(text)
    }

    /// Logs why an event stream broke and returns the reason.
    fn broken(&self, error: EventStreamError<Broken>) -> String {
        let reason = match error {
            EventStreamError::Transport(Broken::Transport(error)) => self.backend().explain(&error),
            EventStreamError::Transport(Broken::TooLong) => {
                format!("one event is longer than {MAX_EVENT_BYTES} bytes")
            }
            EventStreamError::Utf8(_) | EventStreamError::Parser(_) => {
                "the response is not an event stream".into()
            }
        };
        tracing::warn!(
            url = self.shown(),
            reason,
            "the language model's stream broke"
        );
        reason
    }
}

/// A sign of life in an event stream.
pub(super) enum Sign {
    /// The data of a server-sent event.
    Data(String),
    /// Bytes without a whole event, such as a comment that keeps the connection alive, or an event without data.
    Alive,
}

impl Sign {
    fn of(event: Event) -> Self {
        let is_blank = matches!(event.data.trim(), "" | "\"\"");
        match is_blank && event.event != "error" {
            true => Self::Alive,
            false => Self::Data(data_in(event)),
        }
    }
}

/// The events of a response, or why the stream broke. `message_of` extracts the message from a body that is an error
/// instead of events, as some gateways send it under status 200. A body that is JSON without an error is one event: the
/// server does not stream.
pub(super) fn messages(
    server: Arc<Server>,
    response: Response,
    message_of: fn(&str) -> Option<String>,
) -> impl Stream<Item = Result<Sign, String>> + Send + 'static {
    let unread = Arc::new(Unread::default());
    let mut reported = 0;
    let events = bounded_text(response.bytes_stream(), unread.clone()).eventsource();
    let mut events = Box::pin(events);
    stream::poll_fn(move |context| match events.poll_next_unpin(context) {
        Poll::Ready(None) => {
            let body = unread.take();
            Poll::Ready(match message_of(&body) {
                Some(message) => Some(Err(server.redacted(&message))),
                None if is_object(&body) => Some(Ok(Sign::Data(body))),
                None => None,
            })
        }
        Poll::Ready(event) => {
            unread.take();
            reported = 0;
            Poll::Ready(event.map(|event: Result<Event, _>| {
                event.map(Sign::of).map_err(|error| server.broken(error))
            }))
        }
        Poll::Pending => {
            let known = std::mem::replace(&mut reported, unread.bytes());
            match reported > known {
                true => Poll::Ready(Some(Ok(Sign::Alive))),
                false => Poll::Pending,
            }
        }
    })
}

fn is_object(body: &str) -> bool {
    serde_json::from_str::<Value>(body).is_ok_and(|body| body.is_object())
}

/// The data of an event. The one that is called an error may be that alone.
fn data_in(event: Event) -> String {
    if event.event != "error" {
        return event.data;
    }
    match serde_json::from_str::<Value>(&event.data) {
        Ok(error) if error.get("error").is_some() => event.data,
        Ok(error) => json!({ "error": error }).to_string(),
        Err(_) => json!({ "error": event.data }).to_string(),
    }
}

/// The text since the last event: how long it is, and its beginning.
#[derive(Default)]
struct Unread(Mutex<(usize, String)>);

impl Unread {
    fn lock(&self) -> MutexGuard<'_, (usize, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds text and the number of its bytes, and returns how many there are.
    fn add(&self, bytes: usize, text: &str) -> usize {
        let mut unread = self.lock();
        unread.0 += bytes;
        if unread.1.len() < MAX_REFUSAL_BYTES {
            unread.1.push_str(text);
        }
        unread.0
    }

    /// Its beginning; there is no text after it.
    fn take(&self) -> String {
        std::mem::take(&mut *self.lock()).1
    }

    fn bytes(&self) -> usize {
        self.lock().0
    }
}

/// The error if the bytes ended early.
enum Broken {
    Transport(reqwest::Error),
    TooLong,
}

/// A field that llama.cpp's server sent until the end of 2025 in place of an event. Readers of event streams skip it.
const ERROR: &str = "error:";

/// Makes events of the fields [`ERROR`].
#[derive(Default)]
struct Fields {
    /// The beginning of a line that may be such a field.
    held: String,
    /// Within a line that is none.
    is_within: bool,
}

impl Fields {
    fn push(&mut self, text: &str) -> String {
        let mut read = String::with_capacity(text.len());
        for c in text.chars() {
            self.held.push(c);
            if !self.is_within && self.held == ERROR {
                self.held = "event: error\ndata:".to_owned();
            } else if !self.is_within && ERROR.starts_with(self.held.as_str()) {
                continue;
            }
            read.push_str(&self.held);
            self.held.clear();
            self.is_within = !matches!(c, '\n' | '\r');
        }
        read
    }
}

/// The bytes as text, with an error if an event is too long. A blank line is added at the end, to complete a
/// last event that lacks its own.
fn bounded_text<S, B>(
    bytes: S,
    unread: Arc<Unread>,
) -> impl Stream<Item = Result<String, Broken>> + Send + 'static
where
    S: Stream<Item = reqwest::Result<B>> + Send + 'static,
    B: AsRef<[u8]> + Send + 'static,
{
    let (mut utf8, mut fields) = (Utf8Decoder::default(), Fields::default());
    bytes
        .map(move |chunk| {
            let chunk = chunk.map_err(Broken::Transport)?;
            let text = utf8.push(chunk.as_ref());
            if unread.add(chunk.as_ref().len(), &text) > MAX_EVENT_BYTES {
                return Err(Broken::TooLong);
            }
            Ok(fields.push(&text))
        })
        .chain(stream::once(std::future::ready(Ok("\n\n".to_owned()))))
}

/// The data of the events in a stream that comes in pieces of at most `most` bytes, until it breaks.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn data_of(bytes: &[u8], most: usize) -> Vec<String> {
    use futures_util::FutureExt;
    let pieces: Vec<_> = bytes.chunks(most).map(<[u8]>::to_vec).collect();
    let pieces = stream::iter(pieces.into_iter().map(Ok));
    let events = bounded_text(pieces, Arc::default()).eventsource();
    let events = events.take_while(|event| std::future::ready(event.is_ok()));
    let data = events.filter_map(async |event| match Sign::of(event.ok()?) {
        Sign::Data(data) => Some(data),
        Sign::Alive => None,
    });
    data.collect().now_or_never().unwrap_or_default()
}

/// The address without its last segment `v1`, with these segments after it.
fn beside(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    let has_version = base.path().trim_end_matches('/').ends_with("/v1");
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty();
        if has_version {
            path.pop();
        }
        path.extend(segments);
    }
    url
}
