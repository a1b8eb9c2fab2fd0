//! Tests the OpenAI-compatible client against a real HTTP server that misbehaves on request.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{StreamExt, stream};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, mpsc, oneshot};
use undertone::llm::prompt::Prompts;
use undertone::llm::remote::{Remote, Settings};
use undertone::llm::{
    Calls, Demands, Llm, LlmError, LlmEvent, LlmStream, Message, Prompt, TokenUsage, ToolChoice,
};
use undertone::tools::ToolSpec;

const KEY: &str = "sk-canary-4711";

type Pieces = mpsc::Receiver<Result<Bytes, std::io::Error>>;

/// The `Authorization` header and the body of a request.
type Seen = (Option<String>, Value);

/// The server's reply to the next chat request.
enum Reply {
    /// Streams the pieces from the channel, which closes when the client disconnects.
    Stream(Pieces),
    Status(u16, &'static [(&'static str, &'static str)], String),
    /// The same, when as many requests have come as the barrier waits for.
    Together(Arc<Barrier>, Box<Self>),
    /// No headers, ever.
    Never,
}

#[derive(Clone, Default)]
struct Server {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    models: Arc<Mutex<Option<(u16, Value)>>>,
}

impl Server {
    /// Queues a reply for a later request.
    fn then(&self, reply: Reply) {
        self.replies.lock().unwrap().push_back(reply);
    }

    async fn start(reply: Reply) -> (Self, Remote) {
        let server = Self::default();
        server.then(reply);
        let routes = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/models", get(models))
            .with_state(server.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://user:{KEY}@{}/v1/?k={KEY}",
            listener.local_addr().unwrap()
        );
        tokio::spawn(async move { axum_serve(listener, routes).await });
        let llm = client(&url);
        (server, llm)
    }
}

async fn axum_serve(listener: TcpListener, routes: Router) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let service = hyper_util::service::TowerToHyperService::new(routes.clone());
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(hyper_util::rt::TokioIo::new(socket), service),
        );
    }
}

async fn chat(
    State(server): State<Server>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let key = headers
        .get("authorization")
        .map(|v| v.to_str().unwrap().to_owned());
    server.seen.lock().unwrap().push((key, body));
    let reply = match server.replies.lock().unwrap().pop_front() {
        Some(Reply::Together(barrier, reply)) => Some((Some(barrier), *reply)),
        reply => reply.map(|reply| (None, reply)),
    };
    if let Some((Some(barrier), _)) = &reply {
        barrier.wait().await;
    }
    match reply.map(|(_, reply)| reply) {
        Some(Reply::Stream(pieces)) => {
            let body = stream::unfold(pieces, |mut rx| async { Some((rx.recv().await?, rx)) });
            (
                [("content-type", "text/event-stream")],
                Body::from_stream(body),
            )
                .into_response()
        }
        Some(Reply::Status(status, headers, body)) => {
            let status = StatusCode::from_u16(status).unwrap();
            let mut response = (status, body).into_response();
            for &(name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        Some(Reply::Never | Reply::Together(..)) | None => std::future::pending().await,
    }
}

async fn models(State(server): State<Server>) -> Response {
    match server.models.lock().unwrap().clone() {
        Some((status, body)) => {
            (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn settings(url: &str) -> Settings {
    let mut settings = Settings::new(url.parse().unwrap(), "tiny");
    settings.api_key = Some(SecretString::from(KEY));
    settings.temperature = Some(0.5);
    settings
}

fn client(url: &str) -> Remote {
    Remote::new(settings(url), Prompts::default()).unwrap()
}

fn prompt() -> Prompt {
    Prompt {
        instructions: None,
        day: None,
        messages: vec![Message::User {
            text: "Hi <tool>".into(),
        }],
        tools: Vec::new().into(),
        demands: Demands::default(),
    }
}

#[tokio::test]
async fn no_request_exceeds_max_prompt_tokens() {
    let (server, llm) =
        Server::start(whole([sse("<speech>Hi.</speech>").into(), STOP.into()])).await;
    let user = |text: String| Message::User { text };
    let prompt = Prompt {
        instructions: Some("Be kind. ".repeat(100_844)),
        day: None,
        messages: (0..20_000)
            .map(|n| user(format!("Item {n}: {}", "long ".repeat(20))))
            .chain([user("What time is it?".into())])
            .collect(),
        tools: Vec::new().into(),
        demands: Demands::default(),
    };
    let (_, error) = all(llm.generate(prompt)).await;
    assert!(error.is_none(), "{error:?}");
    let (_, body) = server.seen.lock().unwrap()[0].clone();
    let contents = body["messages"].as_array().unwrap().iter();
    let sizes = contents.map(|message| message["content"].as_str().unwrap().chars().count());
    let size: usize = sizes.sum();
    assert!((12_000..=24_000).contains(&size), "{size}");
    let last = body["messages"].as_array().unwrap().last().unwrap();
    assert!(
        last["content"]
            .as_str()
            .unwrap()
            .ends_with("What time is it?")
    );
}

fn piece(bytes: impl Into<Bytes>) -> Result<Bytes, std::io::Error> {
    Ok(bytes.into())
}

fn sse(text: &str) -> String {
    format!(
        "data: {}\n\n",
        json!({"choices": [{"delta": {"content": text}}]})
    )
}

const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// A reply whose pieces are all available at once.
fn whole(pieces: impl IntoIterator<Item = Vec<u8>>) -> Reply {
    let pieces: Vec<_> = pieces.into_iter().collect();
    let (tx, rx) = mpsc::channel(pieces.len().max(1));
    pieces
        .into_iter()
        .for_each(|bytes| tx.try_send(piece(bytes)).unwrap());
    Reply::Stream(rx)
}

async fn all(stream: LlmStream) -> (Vec<LlmEvent>, Option<LlmError>) {
    let (mut events, mut error) = (Vec::new(), None);
    let read = stream.for_each(|item| {
        assert!(error.is_none(), "an event after an error");
        match item {
            Ok(LlmEvent::Thinking) => {}
            Ok(event) => events.push(event),
            Err(e) => error = Some(e),
        }
        std::future::ready(())
    });
    tokio::time::timeout(Duration::from_secs(60), read)
        .await
        .unwrap();
    (events, error)
}

/// The first event that is more than a sign of life.
async fn first(stream: &mut LlmStream) -> Result<LlmEvent, LlmError> {
    loop {
        match stream.next().await.unwrap() {
            Ok(LlmEvent::Thinking) => {}
            other => return other,
        }
    }
}

fn spoken(events: &[LlmEvent]) -> String {
    let words = events.iter().filter_map(|event| match event {
        LlmEvent::Speech { text } => Some(text.as_str()),
        _ => None,
    });
    words.collect()
}

#[tokio::test]
async fn a_request_and_its_streamed_answer() {
    let (server, llm) = Server::start(whole([format!(
        ": keep-alive\n\n{}{}{STOP}{DONE}",
        sse("<speech>Hel"),
        sse("lo.</speech>")
    )
    .into_bytes()]))
    .await;
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Hello.\n");
    assert_eq!(events.last(), Some(&LlmEvent::End));
    let (key, body) = server.seen.lock().unwrap()[0].clone();
    assert_eq!(key, Some(format!("Bearer {KEY}")));
    assert_eq!(
        (&body["model"], &body["stream"]),
        (&json!("tiny"), &json!(true))
    );
    assert_eq!(
        (&body["temperature"], &body["max_tokens"]),
        (&json!(0.5), &Value::Null)
    );
    assert_eq!(body["messages"][0]["role"], "system");
    assert_eq!(
        body["messages"][1],
        json!({"role": "user", "content": "Hi ‹tool›"})
    );
}

#[tokio::test]
async fn usage_comes_from_the_server_and_max_tokens_is_sent() {
    let counted = json!({"choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 5}}});
    let text = format!(
        "{}{}data: {counted}\n\n{DONE}",
        sse("<speech>Once upon a"),
        STOP.replace("stop", "length")
    );
    let (server, llm) = Server::start(whole([text.into_bytes()])).await;
    let mut prompt = prompt();
    prompt.demands.max_tokens = Some(7);
    let (events, error) = all(llm.generate(prompt)).await;
    assert!(error.is_none(), "{error:?}");
    let usage = TokenUsage {
        input: 120,
        cached: 64,
        output: 7,
        reasoning: 5,
    };
    let last = [LlmEvent::Cut, LlmEvent::Used { usage }, LlmEvent::End];
    assert_eq!(events[events.len() - 3..], last);
    let (_, body) = server.seen.lock().unwrap()[0].clone();
    assert_eq!(body["max_tokens"], 7);
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
}

#[tokio::test]
async fn a_server_without_usage_support_is_retried_once_without_it() {
    let refusal = json!({"error": {"message": "Unknown field: stream_options"}}).to_string();
    let answer = || {
        let text = format!("{}{STOP}{DONE}", sse("<speech>Hello.</speech>"));
        whole([text.into_bytes()])
    };
    let (server, llm) = Server::start(Reply::Status(422, &[], refusal)).await;
    server.then(answer());
    server.then(answer());
    for _ in 0..2 {
        let (events, error) = all(llm.generate(prompt())).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Hello.\n");
    }
    let seen = server.seen.lock().unwrap();
    let asked: Vec<_> = (seen.iter())
        .map(|(_, body)| body.get("stream_options").is_some())
        .collect();
    assert_eq!(asked, [true, false, false]);
}

/// OpenAI's models from the o-series on: another name for the limit, and no temperature but the default.
#[tokio::test]
async fn refused_parameters_are_named_otherwise_or_left_out_and_remembered() {
    let refusal = |message: &str| {
        let body = json!({"error": {"message": message, "type": "invalid_request_error"}});
        Reply::Status(400, &[], body.to_string())
    };
    let limit = "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
                 'max_completion_tokens' instead.";
    let temperature = "Unsupported value: 'temperature' does not support 0.5 with this model.";
    let answer = || {
        let text = format!("{}{STOP}{DONE}", sse("<speech>Hello.</speech>"));
        whole([text.into_bytes()])
    };
    let (server, llm) = Server::start(refusal(limit)).await;
    server.then(refusal(temperature));
    server.then(answer());
    server.then(answer());
    for _ in 0..2 {
        let mut limited = prompt();
        limited.demands.max_tokens = Some(300);
        let (events, error) = all(llm.generate(limited)).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Hello.\n");
    }
    let seen = server.seen.lock().unwrap();
    let asked: Vec<_> = (seen.iter())
        .map(|(_, body)| {
            let has = |name: &str| body.get(name).is_some();
            (
                has("max_tokens"),
                has("max_completion_tokens"),
                has("temperature"),
            )
        })
        .collect();
    let last = (false, true, false);
    assert_eq!(
        asked,
        [(true, false, true), (false, true, true), last, last]
    );
}

/// Each of two requests at the same time overwrote what the other had found out.
#[tokio::test]
async fn what_two_requests_at_once_are_refused_is_remembered_of_both() {
    let both = Arc::new(Barrier::new(2));
    let refusal = |parameter: &str| {
        let body = json!({"error": {"message": format!("Unknown parameter: {parameter}")}});
        let refusal = Reply::Status(400, &[], body.to_string());
        Reply::Together(both.clone(), Box::new(refusal))
    };
    let answer = || whole([sse("<speech>Hi.</speech>").into(), STOP.into()]);
    let (server, llm) = Server::start(refusal("temperature")).await;
    server.then(refusal("stream_options"));
    (0..3).for_each(|_| server.then(answer()));
    let (one, two) = (llm.generate(prompt()), llm.generate(prompt()));
    let (one, two) = futures_util::future::join(all(one), all(two)).await;
    assert!(one.1.is_none() && two.1.is_none(), "{one:?} {two:?}");
    assert!(all(llm.generate(prompt())).await.1.is_none());
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.len(), 5);
    let (_, last) = &seen[4];
    assert_eq!(
        (last.get("temperature"), last.get("stream_options")),
        (None, None)
    );
    assert_eq!(llm.refused().len(), 2);
}

/// A gateway's error under status 200 counted as a model that is loaded.
#[tokio::test]
async fn a_warm_up_that_meets_an_error_under_status_200_has_not_succeeded() {
    let error = json!({"error": {"message": "no such model", "code": 404}}).to_string();
    let event = format!("data: {error}\n\n{DONE}");
    let (server, llm) = Server::start(whole([error.into_bytes()])).await;
    server.then(whole([event.into_bytes()]));
    server.then(whole([b": keep-alive\n\n".to_vec()]));
    for reason in ["no such model", "no such model", "it ended before"] {
        let error = llm.warm_up(prompt()).await.unwrap_err().details();
        assert!(error.contains(reason), "{error}");
    }
    // A model that only thought in the few tokens of a warm-up is loaded.
    let thought = json!({"choices": [{"delta": {"reasoning": "Hm"}, "finish_reason": "length"}]});
    server.then(whole([format!("data: {thought}\n\n{DONE}").into_bytes()]));
    llm.warm_up(prompt()).await.unwrap();
}

/// "it ended before the model was done": some gateways and small servers ignore `stream`.
#[tokio::test]
async fn an_answer_of_a_server_that_does_not_stream_is_spoken_and_its_call_made() {
    let call = json!({"id": "a", "type": "function",
        "function": {"name": "f", "arguments": "{\"n\":1}"}});
    let whole_answer = |content: &str, calls: Value| {
        let message = json!({"role": "assistant", "content": content, "tool_calls": calls});
        let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
        let answer = json!({"object": "chat.completion", "choices": choices, "error": null});
        let body = serde_json::to_vec_pretty(&answer).unwrap();
        whole(body.chunks(50).map(<[u8]>::to_vec))
    };
    let arguments = json!({"n": 1}).as_object().cloned().unwrap();
    let closed = LlmEvent::ToolClosed {
        arguments: Ok(arguments),
    };
    let (server, llm) = Server::start(whole_answer("<speech>Hi.</speech>", json!(null))).await;
    server.then(whole_answer("<tool>f(n=1)</tool>", json!([])));
    server.then(whole_answer("<speech>Hi.</speech>", json!([call])));
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Hi.\n");
    for _ in 0..2 {
        let (events, error) = all(llm.generate(prompt())).await;
        assert!(error.is_none(), "{error:?}");
        assert!(events.contains(&closed), "{events:?}");
    }
    // A body that breaks off commits nothing.
    let cut = json!({"choices": [{"message": {"content": "<tool>f(n=1)</tool>"}}]}).to_string();
    server.then(whole([cut.as_bytes()[..cut.len() - 2].to_vec()]));
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(!events.contains(&closed) && error.is_some(), "{events:?}");
}

#[tokio::test]
async fn a_refusal_that_names_no_parameter_is_not_repeated() {
    for (status, message) in [
        (
            400,
            "This model's maximum context length is 4096 tokens, 5000 with max_tokens.",
        ),
        // DeepSeek: it lacks the field, and takes it.
        (
            400,
            "The reasoning_content in the thinking mode must be passed back to the API.",
        ),
        (404, "The model `tiny` does not exist."),
        // A template's, if no such message was sent.
        (500, "Cannot pass both content and thinking in a message."),
    ] {
        let body = json!({"error": {"message": message}}).to_string();
        let (server, llm) = Server::start(Reply::Status(status, &[], body)).await;
        let (_, error) = all(llm.generate(prompt())).await;
        assert!(error.unwrap().details().contains(message));
        assert_eq!(server.seen.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn chunk_boundaries_do_not_matter() {
    let text = format!(
        "{}{}{STOP}{DONE}",
        sse("<speech>Grüße, 😀</speech>"),
        sse("<tool>f(a=\"é\")</tool>")
    );
    for size in [1, 2, 3, 7] {
        let pieces = text.replace('\n', "\r\n").into_bytes();
        let (_, llm) = Server::start(whole(pieces.chunks(size).map(<[u8]>::to_vec))).await;
        let (events, error) = all(llm.generate(prompt())).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Grüße, 😀\n");
        let arguments = json!({"a": "é"}).as_object().cloned().unwrap();
        assert!(events.contains(&LlmEvent::ToolClosed {
            arguments: Ok(arguments)
        }));
    }
}

#[tokio::test]
async fn native_tool_calls() {
    let delta = |call: Value| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"delta": {"tool_calls": [call]}}]})
        )
    };
    let text = [
        delta(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
        delta(json!({"index": 0, "function": {"arguments": "{\"n\":"}})),
        delta(json!({"index": 0, "function": {"arguments": "1}"}})),
        delta(json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}})),
        STOP.replace("stop", "tool_calls"),
    ]
    .concat();
    let (_, llm) = Server::start(whole([text.into_bytes()])).await;
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(error.is_none(), "an end without [DONE] is fine: {error:?}");
    let closed: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            LlmEvent::ToolClosed { arguments } => Some(json!(arguments.clone().unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(closed, [json!({"n": 1}), json!({})]);
    assert_eq!(events.last(), Some(&LlmEvent::End));
}

#[tokio::test]
async fn the_last_event_may_lack_its_blank_line() {
    let (_, llm) = Server::start(whole(
        [format!("{}{}", sse("Hi"), STOP.trim()).into_bytes()],
    ))
    .await;
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(events.last(), Some(&LlmEvent::End));
}

#[tokio::test]
async fn refusals_say_why_without_the_key() {
    let repeated = json!({"error": {"message": format!("Incorrect API key: {KEY}")}}).to_string();
    let (_, llm) = Server::start(Reply::Status(401, &[], repeated)).await;
    let error = all(llm.generate(prompt())).await.1.unwrap();
    assert!(matches!(error, LlmError::Status { status: 401, .. }));
    assert!(
        error.details().contains("Incorrect API key: [key]"),
        "{}",
        error.details()
    );
    assert!(!format!("{error:?} {error} {llm:?} {}", error.details()).contains(KEY));

    let (_, llm) = Server::start(Reply::Status(
        429,
        &[("retry-after", "7")],
        "slow down".into(),
    ))
    .await;
    let error = all(llm.generate(prompt())).await.1.unwrap().details();
    assert!(error.contains("429: slow down (retry after 7)"), "{error}");

    let (_, llm) = Server::start(Reply::Status(500, &[], "é".repeat(100_000))).await;
    let error = all(llm.generate(prompt())).await.1.unwrap().details();
    assert!(
        error.contains("500") && error.len() < 1000,
        "{}",
        error.len()
    );

    let (_, llm) = Server::start(Reply::Status(
        307,
        &[("location", "http://example.com/")],
        String::new(),
    ))
    .await;
    let error = all(llm.generate(prompt())).await.1.unwrap();
    assert!(matches!(error, LlmError::Status { status: 307, .. }));
}

/// Every session ended with the key that was read at the start.
#[tokio::test]
async fn a_key_that_expires_is_replaced_by_the_next_one_in_its_file() {
    const NEXT: &str = "sk-canary-0815";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let answer = || whole([sse("<speech>Hi.</speech>").into(), STOP.into()]);
    let refusal = |text: &str| Reply::Status(401, &[], text.to_owned());
    let (server, _) = Server::start(answer()).await;
    let settings = Settings {
        api_key_file: Some(file.clone()),
        ..settings(&address(&server).await)
    };
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    let other = Remote::new(settings.clone(), Prompts::default()).unwrap();
    assert_eq!(spoken(&all(other.generate(prompt())).await.0), "Hi.\n");
    server.then(refusal("its file has the same key"));
    assert!(all(other.generate(prompt())).await.1.is_some());

    let llm = Remote::new(settings, Prompts::default()).unwrap();
    std::fs::write(&file, format!("{NEXT}\n")).unwrap();
    server.then(refusal("it has expired"));
    server.then(answer());
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Hi.\n");

    // The file was read a moment ago.
    server.then(refusal(&format!("neither {KEY} nor {NEXT}")));
    let error = all(llm.generate(prompt())).await.1.unwrap().details();
    assert!(error.contains("neither [key] nor [key]"), "{error}");
    let seen = server.seen.lock().unwrap();
    let keys: Vec<_> = seen.iter().map(|(key, _)| key.clone().unwrap()).collect();
    let expected = [KEY, KEY, KEY, NEXT, NEXT].map(|key| format!("Bearer {key}"));
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_broken_stream_commits_nothing() {
    let open = sse("<speech>Hi</speech><tool>pay(n=1)");
    for ending in [None, Some(std::io::Error::other("gone"))] {
        let (tx, rx) = mpsc::channel(2);
        tx.try_send(piece(open.clone())).unwrap();
        let (_, llm) = Server::start(Reply::Stream(rx)).await;
        let mut stream = llm.generate(prompt());
        assert!(matches!(
            first(&mut stream).await,
            Ok(LlmEvent::Speech { .. })
        ));
        ending
            .into_iter()
            .for_each(|error| tx.try_send(Err(error)).unwrap());
        drop(tx);
        let (events, error) = all(stream).await;
        assert!(matches!(error, Some(LlmError::Stream(_))), "{error:?}");
        assert!(
            !events
                .iter()
                .any(|e| matches!(e, LlmEvent::ToolClosed { .. } | LlmEvent::End))
        );
    }
}

#[tokio::test]
async fn an_error_within_the_stream() {
    let text = format!(
        "{}data: {{\"error\":{{\"message\":\"overloaded {KEY}\"}}}}\n\n",
        sse("Hi")
    );
    let (_, llm) = Server::start(whole([text.into_bytes()])).await;
    let (events, error) = all(llm.generate(prompt())).await;
    assert_eq!(spoken(&events), "Hi");
    assert!(error.unwrap().details().ends_with("overloaded [key]"));
}

#[tokio::test]
async fn an_endless_line_is_given_up() {
    let endless = (0..64).map(|_| vec![b'x'; 64 * 1024]);
    let (_, llm) = Server::start(whole(endless)).await;
    let error = all(llm.generate(prompt())).await.1.unwrap().details();
    assert!(error.contains("longer than"), "{error}");
}

#[tokio::test]
async fn silence_ends_with_an_error() {
    let (tx, rx) = mpsc::channel(2);
    tx.try_send(piece(sse("Hi"))).unwrap();
    for reply in [Reply::Stream(rx), Reply::Never] {
        let (server, _) = Server::start(reply).await;
        let url = address(&server).await;
        let mut settings = settings(&url);
        settings.stall_timeout = Duration::from_millis(200);
        let llm = Remote::new(settings, Prompts::default()).unwrap();
        let error = all(llm.generate(prompt())).await.1.unwrap().details();
        assert!(error.contains("nothing came for 200 ms"), "{error}");
    }
    drop(tx);
}

/// A model that takes longer to load than an answer may take is warmed up all the same, but not for ever.
#[tokio::test]
async fn a_warm_up_waits_for_the_load_timeout() {
    let (tx, rx) = mpsc::channel(2);
    let (server, _) = Server::start(Reply::Stream(rx)).await;
    server.then(Reply::Never);
    server.then(Reply::Never);
    let mut settings = settings(&address(&server).await);
    settings.stall_timeout = Duration::from_millis(100);
    settings.load_timeout = Duration::from_secs(120);
    let llm = Remote::new(settings.clone(), Prompts::default()).unwrap();
    let warming = tokio::spawn(llm.warm_up(prompt()));
    // The server is silent until an answer has been given up.
    let error = all(llm.generate(prompt())).await.1.unwrap().details();
    assert!(error.contains("nothing came for 100 ms"), "{error}");
    let first = format!("{}{STOP}{DONE}", sse("Hi."));
    tx.send(piece(first)).await.unwrap();
    drop(tx);
    warming.await.unwrap().unwrap();

    settings.load_timeout = Duration::from_millis(200);
    let llm = Remote::new(settings, Prompts::default()).unwrap();
    let error = llm.warm_up(prompt()).await.unwrap_err().details();
    assert!(error.contains("nothing came for 200 ms"), "{error}");
}

/// Serves the same server at another address.
async fn address(server: &Server) -> String {
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .with_state(server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum_serve(listener, routes).await });
    url
}

#[tokio::test]
async fn dropping_the_stream_hangs_up() {
    let (tx, rx) = mpsc::channel(2);
    tx.try_send(piece(sse("Hi"))).unwrap();
    let (_, llm) = Server::start(Reply::Stream(rx)).await;
    let mut stream = llm.generate(prompt());
    assert!(matches!(
        first(&mut stream).await,
        Ok(LlmEvent::Speech { .. })
    ));
    assert!(!tx.is_closed());
    drop(stream);
    tokio::time::timeout(Duration::from_secs(60), tx.closed())
        .await
        .unwrap();
}

#[tokio::test]
async fn dropping_before_the_headers_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let llm = client(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let (hung_up, gone) = oneshot::channel();
    let (accepted, here) = oneshot::channel();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        accepted.send(()).unwrap();
        let mut buffer = [0; 4096];
        while socket.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
        hung_up.send(()).unwrap();
    });
    let mut stream = llm.generate(prompt());
    tokio::select! {
        _ = stream.next() => panic!("an answer from nowhere"),
        _ = here => {}
    }
    drop(stream);
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let llm = client(&url);
    let error = all(llm.generate(prompt())).await.1.unwrap();
    assert!(matches!(error, LlmError::Unreachable { .. }));
    let details = error.details();
    assert!(details.contains("refused"), "{details}");
    assert!(matches!(
        llm.check().await,
        Err(LlmError::Unreachable { .. })
    ));
}

/// Reads a request with its body.
async fn read_request(socket: &mut TcpStream) {
    let mut reader = BufReader::new(socket);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).await.unwrap();
}

/// A server that closes each connection when a request comes behind so many answers, as servers do whose limit of idle
/// time ends just then. Its first two answers wait for each other. Returns its address and its connections' number.
async fn closing_after(answers: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let both = Arc::new(Barrier::new(2));
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let is_early = count.fetch_add(1, Relaxed) < 2;
            let both = both.clone();
            tokio::spawn(async move {
                for _ in 0..answers {
                    read_request(&mut socket).await;
                    if is_early {
                        both.wait().await;
                    }
                    let body = format!("{}{STOP}{DONE}", sse("<speech>Hi.</speech>"));
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
                // The first byte of the next request.
                let _ = socket.read_u8().await;
            });
        }
    });
    (url, opened)
}

/// A turn failed if its server closed the idle connection just when the request came.
#[tokio::test]
async fn a_request_on_a_connection_that_the_server_closes_is_sent_again_on_a_new_one() {
    let (url, opened) = closing_after(1).await;
    let llm = client(&url);
    // Two connections are kept, and both are closed by the next request.
    let (one, other) = tokio::join!(llm.check(), llm.check());
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    assert_eq!(opened.load(Relaxed), 2);
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events).trim(), "Hi.");
    assert_eq!(opened.load(Relaxed), 3);
}

#[tokio::test]
async fn a_server_that_closes_every_connection_is_asked_twice() {
    let (url, opened) = closing_after(0).await;
    let (_, error) = all(client(&url).generate(prompt())).await;
    assert!(
        matches!(error, Some(LlmError::Unreachable { .. })),
        "{error:?}"
    );
    assert_eq!(opened.load(Relaxed), 2);
}

#[tokio::test]
async fn the_health_check_lists_models() {
    let (server, llm) = Server::start(Reply::Never).await;
    assert_eq!(
        llm.check().await.unwrap().models,
        None,
        "no list is no error"
    );
    *server.models.lock().unwrap() = Some((200, json!({"data": [{"id": "tiny"}, {"id": "big"}]})));
    let health = llm.check().await.unwrap();
    assert_eq!(health.models, Some(vec!["tiny".into(), "big".into()]));
    assert_eq!(health.model_listed, Some(true));
    *server.models.lock().unwrap() = Some((401, json!({"error": "bad key"})));
    assert!(
        llm.check()
            .await
            .unwrap_err()
            .details()
            .ends_with("401: bad key")
    );
}

/// A model that answers was called broken or not listed.
#[tokio::test]
async fn the_health_check_knows_restricted_keys_and_the_lists_of_all_servers() {
    let (server, llm) = Server::start(Reply::Never).await;
    let list = |status, list| *server.models.lock().unwrap() = Some((status, list));
    let message = "Insufficient permissions. Missing scopes: api.model.read.";
    for status in [401, 403] {
        list(status, json!({"error": {"message": message}}));
        let health = llm.check().await.unwrap();
        assert_eq!((health.models, health.may_list), (None, false));
    }
    for (models, is_listed) in [
        (json!([{"id": "big"}, {"id": "tiny"}]), true),
        (json!([{"id": "big"}]), false),
        (json!({"data": [{"id": "models/tiny"}]}), true),
        (json!({"data": [{"id": "tiny:latest"}]}), true),
        (json!([{"id": "tiny:8b"}, {"id": "not-tiny"}]), false),
    ] {
        list(200, models);
        let health = llm.check().await.unwrap();
        assert_eq!(health.model_listed, Some(is_listed), "{health:?}");
        assert!(health.may_list);
    }
}

/// "unexpected data: EOF while parsing a value": proxies keep a connection alive with events without data.
#[tokio::test]
async fn events_without_data_end_no_answer() {
    let blank = "data:\n\ndata: \n\nevent: ping\ndata: \"\"\n\n";
    let (begin, end) = (sse("<speech>Hi, "), sse("Ann.</speech>"));
    let text = format!("{blank}{begin}{blank}{end}{STOP}{blank}{DONE}");
    let (_, llm) = Server::start(whole([text.into_bytes()])).await;
    let (events, error) = all(llm.generate(prompt())).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Hi, Ann.\n");
    // A sign of life.
    let (pieces, mut events) = at_work().await;
    pieces.send(piece("data:\n\n")).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap(), LlmEvent::Thinking);
    // An error without words is one all the same.
    let (_, llm) = Server::start(whole([b"event: error\ndata:\n\n".to_vec()])).await;
    assert!(all(llm.generate(prompt())).await.1.is_some());
}

/// "it ended before the model was done", and not a word of the cause.
#[tokio::test]
async fn minimaxs_error_under_status_200_is_told() {
    let outcome = json!({"status_code": 1004, "status_msg": "login fail"});
    let error = json!({"id": "", "choices": null, "base_resp": outcome}).to_string();
    for body in [error.clone(), format!("data: {error}\n\n")] {
        let (_, llm) = Server::start(whole([body.into_bytes()])).await;
        let error = all(llm.generate(prompt())).await.1.unwrap().details();
        assert!(error.ends_with("login fail"), "{error}");
    }
    let (_, llm) = Server::start(Reply::Status(401, &[], error)).await;
    let error = all(llm.generate(prompt())).await.1.unwrap().details();
    assert!(error.ends_with("401: login fail"), "{error}");
    // It stands beside answers as well.
    let outcome = json!({"status_code": 0, "status_msg": ""});
    let well = sse("Hi.").replace("}\n", &format!(",\"base_resp\":{outcome}}}\n"));
    let (_, llm) = Server::start(whole([well.into_bytes(), STOP.into()])).await;
    assert_eq!(spoken(&all(llm.generate(prompt())).await.0), "Hi.");
}

/// An answer whose server has sent its headers, and the way to send what follows.
async fn at_work() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, LlmStream) {
    let (pieces, rx) = mpsc::channel(1);
    let (_, llm) = Server::start(Reply::Stream(rx)).await;
    let mut events = llm.generate(prompt());
    assert_eq!(events.next().await.unwrap().unwrap(), LlmEvent::Thinking);
    (pieces, events)
}

/// DeepSeek and OpenRouter keep a slow stream alive with comments, and models that think stream thoughts.
#[tokio::test]
async fn thoughts_and_comments_are_signs_of_life_and_never_speech() {
    let (pieces, mut events) = at_work().await;
    pieces.send(piece(": keep-alive\n\n")).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap(), LlmEvent::Thinking);
    let thought = |field: &str, thought: Value| {
        let chunk = json!({"choices": [{"delta": {field: thought, "content": null}}]});
        format!("data: {chunk}\n\n")
    };
    let answer = [
        thought("reasoning_content", json!("canary")),
        thought("reasoning", json!("canary")),
        thought("reasoning_details", json!([{"text": "canary"}])),
        thought(
            "content",
            json!([{"type": "thinking", "thinking": [{"text": "canary"}]}]),
        ),
        sse("<speech>Hello.</speech>"),
        STOP.to_owned(),
        DONE.to_owned(),
    ];
    pieces.send(piece(answer.concat())).await.unwrap();
    let (events, error) = all(events).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Hello.\n");
}

/// Servers without a reader for them leave thoughts in the text.
#[tokio::test]
async fn thoughts_in_the_text_are_signs_of_life_and_never_speech() {
    let (pieces, mut events) = at_work().await;
    let thought = sse("<think>The canary sings.");
    pieces.send(piece(thought)).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap(), LlmEvent::Thinking);
    let answer = [
        sse(" So I greet.</think><speech>Hello.</speech>"),
        STOP.to_owned(),
        DONE.to_owned(),
    ];
    pieces.send(piece(answer.concat())).await.unwrap();
    let (events, error) = all(events).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Hello.\n");
}

/// OpenAI's servers send nothing while a model thinks.
#[tokio::test(start_paused = true)]
async fn a_model_that_is_told_to_think_shows_it() {
    let (server, _) = Server::start(Reply::Never).await;
    let thinks = Remote::new(
        Settings {
            reasoning_effort: Some("low".into()),
            ..settings(&address(&server).await)
        },
        Prompts::default(),
    );
    let mut events = thinks.unwrap().generate(prompt());
    for _ in 0..6 {
        assert_eq!(events.next().await.unwrap().unwrap(), LlmEvent::Thinking);
    }
}

/// The fallback is not kept waiting by a server that may be dead.
#[tokio::test(start_paused = true)]
async fn a_model_with_a_fallback_shows_no_thought_before_its_servers_headers() {
    let (server, _) = Server::start(Reply::Never).await;
    let thinks = Remote::new(
        Settings {
            reasoning_effort: Some("low".into()),
            has_fallback: true,
            ..settings(&address(&server).await)
        },
        Prompts::default(),
    );
    let mut events = thinks.unwrap().generate(prompt());
    let ten_seconds = std::time::Duration::from_secs(10);
    let event = tokio::time::timeout(ten_seconds, events.next()).await;
    assert!(event.is_err(), "{event:?}");
}

#[tokio::test]
async fn a_busy_server_is_asked_once_more_if_it_has_room_soon() {
    let answer = || whole([sse("<speech>Hi.</speech>").into(), STOP.into()]);
    for (status, wait, may) in [
        (429, "0", true),
        (503, "1", true),
        (529, "0.2", true),
        (429, "a moment in ms", true),
        (429, "a date that is over", true),
        (429, "a date", false),
        (429, "20", false),
        (500, "0", false),
    ] {
        let headers: &[_] = match wait {
            "0" => &[("retry-after", "0")],
            "1" => &[("retry-after", "1")],
            "0.2" => &[("retry-after", "0.2")],
            "a moment in ms" => &[("retry-after-ms", "30"), ("retry-after", "20")],
            "a date that is over" => &[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")],
            "a date" => &[("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT")],
            _ => &[("retry-after", "20")],
        };
        let busy = Reply::Status(status, headers, "busy".into());
        let (server, llm) = Server::start(busy).await;
        server.then(answer());
        let (events, error) = all(llm.generate(prompt())).await;
        assert_eq!(error.is_none(), may, "{status} {wait}: {error:?}");
        assert_eq!(spoken(&events), if may { "Hi.\n" } else { "" });
        // Once.
        server.then(Reply::Status(429, &[], "busy".into()));
        server.then(Reply::Status(429, &[], "busy".into()));
        if may {
            assert!(all(llm.generate(prompt())).await.1.is_some());
            assert!(server.replies.lock().unwrap().is_empty());
        }
    }
    // OpenRouter and LiteLLM say so in the stream, if their provider does, and so does MiniMax.
    let outcome = json!({"status_code": 1002, "status_msg": "rate limit exceeded"});
    for error in [
        json!({"error": {"code": 429, "message": "busy"}, "choices": []}),
        json!({"error": {"code": "429", "message": "busy", "type": "None", "param": "None"}}),
        json!({"error": {"code": null, "message": "busy", "type": "throttling_error"}}),
        json!({"choices": null, "base_resp": outcome}),
    ] {
        let busy = whole([format!("data: {error}\n\n").into_bytes()]);
        let (server, llm) = Server::start(busy).await;
        server.then(answer());
        let (events, error) = all(llm.generate(prompt())).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Hi.\n");
    }
}

fn native(url: &str) -> Remote {
    let settings = Settings {
        calls: Calls::Native,
        reasoning_effort: Some("none".into()),
        extra_body: json!({"chat_template_kwargs": {"enable_thinking": false}})
            .as_object()
            .cloned()
            .unwrap(),
        ..settings(url)
    };
    Remote::new(settings, Prompts::default()).unwrap()
}

fn with_tools(messages: Vec<Message>) -> Prompt {
    let tool = |name: &str| ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: "Looks it up".into(),
        parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
    };
    Prompt {
        messages,
        tools: vec![tool("weather"), tool("news")].into(),
        ..prompt()
    }
}

#[tokio::test]
async fn a_native_request_lists_the_tools_by_name_and_has_the_operators_fields() {
    let answer = || whole([sse("Hi.").into(), STOP.into()]);
    let (server, _) = Server::start(answer()).await;
    let llm = native(&address(&server).await);
    let mut prompt = with_tools(vec![Message::User { text: "Hi".into() }]);
    prompt.demands.tool_choice = ToolChoice::None;
    assert_eq!(spoken(&all(llm.generate(prompt)).await.0), "Hi.");
    let (_, body) = server.seen.lock().unwrap()[0].clone();
    let names: Vec<_> = (body["tools"].as_array().unwrap().iter())
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["news", "weather"]);
    assert_eq!(body["tool_choice"], "none");
    assert_eq!(body["reasoning_effort"], "none");
    assert_eq!(
        body["chat_template_kwargs"],
        json!({"enable_thinking": false})
    );
    let system = body["messages"][0]["content"].as_str().unwrap();
    assert!(
        !system.contains("weather") && !system.contains("<tool>"),
        "{system}"
    );
    assert!(!system.contains("<speech>"), "{system}");
}

/// Calls stand right before their results, whatever was said in between, and nothing follows a result but the
/// assistant.
#[tokio::test]
async fn a_native_history_keeps_to_the_order_that_every_server_takes() {
    let (server, _) = Server::start(whole([sse("Hi.").into(), STOP.into()])).await;
    let llm = native(&address(&server).await);
    let call = |id: &str| Message::ToolCall {
        id: id.into(),
        name: "weather".into(),
        arguments: json!({"n": 1}).as_object().cloned().unwrap(),
    };
    let result = |id: &str| Message::ToolResult {
        id: id.into(),
        name: "weather".into(),
        output: json!({"sky": id}),
    };
    let user = |text: &str| Message::User { text: text.into() };
    let agent = |text: &str, interrupted| Message::Agent {
        text: text.into(),
        interrupted,
    };
    let messages = vec![
        user("Weather?"),
        agent("Let me look.", false),
        call("call_one"),
        call("call_two"),
        agent("Just a moment.", false),
        result("call_two"),
        result("call_one"),
        user("Hello?"),
        call("call_late"),
        user("Are you there?"),
        result("call_late"),
        agent("It is", true),
        user("Stop."),
        call("call_last"),
        result("call_last"),
    ];
    all(llm.generate(with_tools(messages))).await;
    let (_, body) = server.seen.lock().unwrap()[0].clone();
    let messages = body["messages"].as_array().unwrap();
    let shape: Vec<String> = (messages.iter().skip(1))
        .map(|message| {
            let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
            let text = message["content"].as_str().unwrap();
            format!("{} {calls} {text}", message["role"].as_str().unwrap())
        })
        .collect();
    let interrupted = "<note>The user interrupted you here and heard no more.</note>";
    assert_eq!(
        shape,
        [
            "user 0 Weather?",
            "assistant 2 Let me look. Just a moment.",
            "tool 0 {\"sky\":\"call_one\"}",
            "tool 0 {\"sky\":\"call_two\"}",
            "assistant 0 Okay.",
            "user 0 Hello?",
            "assistant 1 ",
            "tool 0 {\"status\":\"no result yet\"}",
            "assistant 0 Okay.",
            "user 0 Are you there?\n<tool_result name=\"weather\">{\"sky\":\"call_late\"}</tool_result>",
            "assistant 0 It is",
            &format!("user 0 {interrupted}\nStop."),
            "assistant 1 ",
            "tool 0 {\"sky\":\"call_last\"}",
        ]
    );
    let calls = messages
        .iter()
        .flat_map(|m| m["tool_calls"].as_array().cloned());
    let asked: Vec<_> = calls.flatten().map(|call| call["id"].clone()).collect();
    let answered: Vec<_> = (messages.iter())
        .filter_map(|m| m.get("tool_call_id").cloned())
        .collect();
    assert_eq!(asked, answered);
    let nine = |id: &Value| {
        let id = id.as_str().unwrap();
        id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    assert!(asked.iter().all(nine), "{asked:?}");
}

/// The message of the assistant in the next request, if a server has answered with a call of `weather` after these
/// deltas.
async fn after_a_call(deltas: &[Value]) -> Value {
    let chunks = deltas
        .iter()
        .map(|delta| json!({"choices": [{"delta": delta}]}));
    let mut text: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).collect();
    text.push_str(&format!("{STOP}{DONE}"));
    let (server, _) = Server::start(whole([text.into_bytes()])).await;
    server.then(whole([sse("Hi.").into(), STOP.into()]));
    let llm = native(&address(&server).await);
    let (events, _) = all(llm.generate(with_tools(Vec::new()))).await;
    assert_eq!(spoken(&events), "");
    let call = Message::ToolCall {
        id: "x".into(),
        name: "weather".into(),
        arguments: json!({"n": 1}).as_object().cloned().unwrap(),
    };
    all(llm.generate(with_tools(vec![call]))).await;
    let (_, body) = server.seen.lock().unwrap()[1].clone();
    let mut sent = body["messages"].as_array().unwrap().iter();
    sent.find(|m| m.get("tool_calls").is_some())
        .unwrap()
        .clone()
}

/// Its function.
fn of_weather() -> Value {
    json!({"name": "weather", "arguments": "{\"n\":1}"})
}

/// Gemini refuses the request after a call if the call comes back without its signature.
#[tokio::test]
async fn a_signature_comes_back_with_its_call() {
    let signature = json!({"google": {"thought_signature": "canary"}});
    let call = json!({"function": of_weather(), "extra_content": signature});
    let called = after_a_call(&[json!({"tool_calls": [call]})]).await;
    assert_eq!(called["tool_calls"][0]["extra_content"], signature);
}

/// OpenRouter wants the blocks back as its models sent them.
#[tokio::test]
async fn openrouters_blocks_of_thoughts_come_back_whole_and_in_order() {
    let detail = |piece: Value| json!({"reasoning": "", "reasoning_details": [piece]});
    let text = |text: &str| {
        json!({"type": "reasoning.text", "text": text, "signature": null,
            "format": "anthropic-claude-v1", "index": 0})
    };
    let mut signature = text("");
    signature["signature"] = json!("canary");
    let sealed =
        |id: &str| json!({"type": "reasoning.encrypted", "data": "c2VhbGVk", "id": id, "index": 1});
    let call = json!({"index": 0, "id": "a", "function": of_weather()});
    let called = after_a_call(&[
        detail(text("They ask ")),
        detail(text("about rain.")),
        detail(signature),
        detail(sealed("a")),
        detail(sealed("b")),
        json!({"tool_calls": [call]}),
    ])
    .await;
    let mut whole = text("They ask about rain.");
    whole["signature"] = json!("canary");
    // The call has another id here.
    let ours = called["tool_calls"][0]["id"].as_str().unwrap();
    assert_ne!(ours, "a");
    let all = json!([whole, sealed(ours), sealed("b")]);
    assert_eq!(called["reasoning_details"], all);
    assert!(called.get("reasoning_content").is_none(), "{called}");
}

/// A name that no server takes made it refuse each later request of the session.
#[tokio::test]
async fn an_invented_name_goes_back_in_a_form_that_servers_take() {
    let (server, _) = Server::start(whole([sse("Hi.").into(), STOP.into()])).await;
    let llm = native(&address(&server).await);
    let call = |name: &str| Message::ToolCall {
        id: name.into(),
        name: name.into(),
        arguments: serde_json::Map::new(),
    };
    let invented = ["weather.today (now)", "", "2nd", &"x".repeat(100)].map(call);
    all(llm.generate(with_tools(invented.to_vec()))).await;
    let (_, body) = server.seen.lock().unwrap()[0].clone();
    let sent = body["messages"].as_array().unwrap().iter();
    let calls = sent.filter_map(|m| m["tool_calls"].as_array());
    let names: Vec<_> = calls
        .flatten()
        .map(|call| call["function"]["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["weather_today__now_", "unnamed", "_2nd", &"x".repeat(64)]
    );
}

/// Groq refuses the whole answer if its parser cannot read the call in it, and sends the model's text.
#[tokio::test]
async fn a_call_that_the_server_could_not_read_is_read_from_its_refusal() {
    let text = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"n\": 1}}</tool_call>";
    let refusal = json!({"error": {"message": "Failed to call a function.",
        "code": "tool_use_failed", "failed_generation": text}});
    let (server, _) = Server::start(Reply::Status(400, &[], refusal.to_string())).await;
    let llm = native(&address(&server).await);
    let (events, error) = all(llm.generate(with_tools(Vec::new()))).await;
    assert!(error.is_none(), "{error:?}");
    let arguments = Ok(json!({"n": 1}).as_object().cloned().unwrap());
    assert!(
        events.contains(&LlmEvent::ToolClosed { arguments }),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_warm_up_sends_the_beginning_of_every_conversation_and_says_why_it_failed() {
    let loading = json!({"error": {"code": 503, "message": "Loading model"}}).to_string();
    let (server, llm) = Server::start(Reply::Status(503, &[], loading.clone())).await;
    server.then(Reply::Status(503, &[], loading));
    let error = llm.warm_up(with_tools(Vec::new())).await.unwrap_err();
    assert!(
        error.details().contains("Loading model"),
        "{}",
        error.details()
    );
    server.then(whole([sse("Hi.").into(), STOP.into()]));
    llm.warm_up(with_tools(Vec::new())).await.unwrap();
    let (_, body) = server.seen.lock().unwrap().last().unwrap().clone();
    assert_eq!(body["max_tokens"], 16);
    let system = body["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("- weather: "), "{system}");
}

#[test]
fn settings_that_cannot_work() {
    let new = |settings| Remote::new(settings, Prompts::default());
    let error = new(settings("ftp://host/v1")).unwrap_err().to_string();
    assert!(
        error.contains("ftp://host/v1 must begin with http"),
        "{error}"
    );
    let mut bad = settings("http://host/v1");
    bad.api_key = Some(SecretString::from(format!("{KEY}\n")));
    let error = new(bad).unwrap_err().to_string();
    assert!(error.contains("API key") && !error.contains(KEY), "{error}");
}
