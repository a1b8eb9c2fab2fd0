//! Chat completions and the tool cache over HTTP.

use crate::cache::{Posted, ToolCache};
use crate::chat::ChatRequest;
use crate::counters::{Counters, Counts};
use crate::scheduler::{Event, Finish, Job, Usage};
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// Events of an answer that may wait for the client. An answer whose client lets more pile up is dropped.
const WAITING: usize = 4_096;

/// The largest body.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// State that the handlers share.
#[derive(Debug, Clone)]
pub struct Engine {
    jobs: mpsc::Sender<Job>,
    cache: Arc<ToolCache>,
    counters: Arc<Counters>,
    answers: Arc<AtomicU64>,
}

impl Engine {
    /// An engine whose jobs go to a scheduler with this cache and these counters.
    pub fn new(jobs: mpsc::Sender<Job>, cache: Arc<ToolCache>, counters: Arc<Counters>) -> Self {
        Self {
            jobs,
            cache,
            counters,
            answers: Arc::default(),
        }
    }
}

/// Serves the endpoints until the scheduler's thread has ended, which `ended` tells with its result; a dropped sender
/// is a panic.
///
/// # Errors
/// The thread has ended, or the listener fails: without its model the engine is of no use, and whoever supervises it is
/// to start it again.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    ended: oneshot::Receiver<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        served = axum::serve(listener, routes(engine)).into_future() => Ok(served?),
        result = ended => Err(why_it_ended(result)),
    }
}

/// The reason why the scheduler's thread has ended.
pub fn why_it_ended(
    result: Result<anyhow::Result<()>, oneshot::error::RecvError>,
) -> anyhow::Error {
    match result {
        Ok(Ok(())) => anyhow::anyhow!("the model's thread has ended"),
        Ok(Err(error)) => error.context("the model's thread has ended"),
        Err(_) => anyhow::anyhow!("the model's thread has panicked"),
    }
}

/// The endpoints.
pub fn routes(engine: Engine) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(models))
        .route("/cache-tool-output/{response}", post(keep))
        .route("/counters", get(counters))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(engine)
}

async fn counters(State(engine): State<Engine>) -> Json<Counts> {
    Json(engine.counters.now())
}

async fn models() -> Json<Value> {
    Json(json!({"object": "list", "data": [{"id": "smollm2", "object": "model"}]}))
}

async fn keep(
    State(engine): State<Engine>,
    Path(response): Path<String>,
    Json(posted): Json<Vec<Posted>>,
) -> Json<Value> {
    let cached = engine.cache.put(&response, posted);
    engine.counters.cached_outputs.add(cached);
    Json(json!({ "cached": cached }))
}

async fn complete(State(engine): State<Engine>, Json(request): Json<ChatRequest>) -> Response {
    if let Some(fault) = request.fault() {
        let error = json!({"error": {"message": fault, "type": "invalid_request_error"}});
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    let nth = engine.answers.fetch_add(1, Ordering::Relaxed);
    let response = format!("chatcmpl-{}-{nth}", std::process::id());
    let streams = request.stream;
    let (events, answer) = mpsc::channel(WAITING);
    // Before the cache has something of it, which only the scheduler takes out again: the client may leave meanwhile.
    let Ok(place) = engine.jobs.reserve().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    engine.cache.open(&response);
    place.send(Job {
        response: response.clone(),
        request,
        events,
    });
    let chunks = Chunks {
        response,
        calls: 0,
        is_new: true,
    };
    match streams {
        true => stream_of(chunks, answer),
        false => whole(chunks, answer).await,
    }
}

/// Turns events into the deltas of the protocol.
struct Chunks {
    response: String,
    /// Calls so far.
    calls: usize,
    is_new: bool,
}

impl Chunks {
    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        json!({
            "id": self.response, "object": "chat.completion.chunk", "model": "smollm2",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    }

    fn id(&self) -> String {
        format!("call_{}_{}", self.response, self.calls)
    }

    fn of(&mut self, event: Event) -> Vec<Value> {
        let index = self.calls.saturating_sub(1);
        match event {
            Event::Words(words) => vec![self.chunk(&json!({"content": words}), None)],
            Event::Opened(name) => {
                self.calls += 1;
                let function = json!({"name": name, "arguments": ""});
                let call = json!({
                    "index": self.calls - 1, "id": self.id(), "type": "function",
                    "function": function,
                });
                vec![self.chunk(&json!({"tool_calls": [call]}), None)]
            }
            Event::Called(arguments) => {
                let function = json!({"arguments": Value::Object(arguments).to_string()});
                let call = json!({"index": index, "function": function});
                vec![self.chunk(&json!({"tool_calls": [call]}), None)]
            }
            Event::GoesOn => {
                let used = json!([{"tool_call_id": self.id()}]);
                vec![self.chunk(&json!({"tool_outputs": used}), None)]
            }
            Event::Took(_) => Vec::new(),
            Event::Ended(finish, usage) => {
                let mut usage_chunk = self.chunk(&json!({}), None);
                usage_chunk["choices"] = json!([]);
                usage_chunk["usage"] = usage_of(usage);
                vec![self.chunk(&json!({}), Some(name_of(finish))), usage_chunk]
            }
            Event::Failed(reason) => vec![json!({"error": {"message": reason}})],
        }
    }
}

fn name_of(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Calls => "tool_calls",
        Finish::Length => "length",
    }
}

fn usage_of(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt, "completion_tokens": usage.written,
        "total_tokens": usage.prompt + usage.written,
    })
}

/// An event of the stream.
fn data(chunk: Value) -> String {
    format!("data: {chunk}\n\n")
}

/// The first chunk comes at once: it has the name under which results are posted.
fn stream_of(chunks: Chunks, answer: mpsc::Receiver<Event>) -> Response {
    let next = async |(mut chunks, mut answer): (Chunks, mpsc::Receiver<Event>)| {
        if std::mem::take(&mut chunks.is_new) {
            let first = data(chunks.chunk(&json!({"role": "assistant"}), None));
            return Some((Ok::<_, Infallible>(first), (chunks, answer)));
        }
        let event = answer.recv().await?;
        let is_last = matches!(event, Event::Ended(..) | Event::Failed(_));
        let mut text: String = chunks.of(event).into_iter().map(data).collect();
        if is_last {
            text.push_str("data: [DONE]\n\n");
            answer.close();
        }
        Some((Ok(text), (chunks, answer)))
    };
    let body = Body::from_stream(stream::unfold((chunks, answer), next));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// The answer in one piece.
async fn whole(chunks: Chunks, mut answer: mpsc::Receiver<Event>) -> Response {
    let (mut words, mut calls, mut name) = (String::new(), Vec::new(), String::new());
    let mut answered = 0;
    while let Some(event) = answer.recv().await {
        match event {
            Event::Words(more) => words.push_str(&more),
            Event::Opened(opened) => name = opened,
            Event::Called(arguments) => {
                let arguments = Value::Object(arguments).to_string();
                calls.push(json!({
                    "id": format!("call_{}_{}", chunks.response, calls.len() + 1),
                    "type": "function", "function": {"name": name, "arguments": arguments},
                }));
            }
            Event::GoesOn => answered = calls.len(),
            Event::Took(_) => {}
            Event::Ended(finish, usage) => {
                // Those that were answered are over.
                let open = calls.split_off(answered);
                let mut message = json!({"role": "assistant", "content": words});
                if !open.is_empty() {
                    message["tool_calls"] = json!(open);
                }
                return Json(json!({
                    "id": chunks.response, "object": "chat.completion", "model": "smollm2",
                    "choices": [{
                        "index": 0, "message": message, "finish_reason": name_of(finish),
                    }],
                    "usage": usage_of(usage),
                }))
                .into_response();
            }
            Event::Failed(reason) => {
                let error = json!({"error": {"message": reason}});
                return (StatusCode::BAD_REQUEST, Json(error)).into_response();
            }
        }
    }
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    async fn served_until(result: Option<anyhow::Result<()>>) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let (jobs, _waiting) = mpsc::channel(1);
        let engine = Engine::new(jobs, Arc::default(), Arc::default());
        let (over, ended) = oneshot::channel();
        match result {
            Some(result) => over.send(result).expect("a server"),
            None => drop(over),
        }
        let error = serve(listener, engine, ended).await.expect_err("it ends");
        format!("{error:#}")
    }

    /// The cache kept an entry of each of them.
    #[tokio::test]
    async fn a_client_that_leaves_before_its_turn_leaves_nothing_in_the_cache() {
        let (jobs, _waiting) = mpsc::channel(1);
        let cache = Arc::<ToolCache>::default();
        let engine = Engine::new(jobs, Arc::clone(&cache), Arc::default());
        let asks = || {
            let request = json!({"messages": [{"role": "user", "content": "Hi."}], "stream": true});
            let request = serde_json::from_value(request).expect("a request");
            complete(State(engine.clone()), Json(request)).now_or_never()
        };
        assert!(asks().is_some());
        assert!(asks().is_none(), "the queue is full");
        let takes = |nth: u64| {
            let response = format!("chatcmpl-{}-{nth}", std::process::id());
            let posted = json!([{"name": "clock", "output": "noon"}]);
            cache.put(&response, serde_json::from_value(posted).expect("a result"))
        };
        assert_eq!([0, 1].map(takes), [1, 0]);
    }

    #[tokio::test]
    async fn the_engine_does_not_outlive_its_model() {
        let failed = served_until(Some(Err(anyhow::anyhow!("no memory")))).await;
        assert_eq!(failed, "the model's thread has ended: no memory");
        assert_eq!(
            served_until(Some(Ok(()))).await,
            "the model's thread has ended"
        );
        assert_eq!(served_until(None).await, "the model's thread has panicked");
    }
}
