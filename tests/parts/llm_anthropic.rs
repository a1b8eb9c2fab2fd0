//! Tests the client of Anthropic's Messages against a server as strict as the real one.

use crate::support::{PATIENCE, anthropic, serve_on_a_thread};
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
use std::sync::{Arc, Mutex};
use undertone::llm::remote::{Dialect, Remote, Settings};
use undertone::llm::{
    Calls, Demands, Llm, LlmError, LlmEvent, LlmStream, Message, Prompt, Prompts, TokenUsage,
};
use undertone::tools::ToolSpec;

const KEY: &str = "sk-ant-canary-4711";

/// A reply to a request that the service does not refuse.
#[derive(Clone)]
enum Reply {
    /// Pieces of an event stream.
    Stream(Vec<Vec<u8>>),
    /// A status, a `Retry-After`, and the body.
    Status(u16, &'static str, Value),
}

#[derive(Clone, Default)]
struct Service {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    seen: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

impl Service {
    fn start(replies: impl IntoIterator<Item = Reply>) -> (Self, String) {
        let service = Self::default();
        service.replies.lock().unwrap().extend(replies);
        let routes = Router::new()
            .route("/v1/messages", post(messages))
            .route("/v1/models", get(models))
            .with_state(service.clone());
        let address = serve_on_a_thread(routes);
        (service, format!("http://{address}/v1"))
    }

    fn body(&self, nth: usize) -> Value {
        self.seen.lock().unwrap()[nth].1.clone()
    }
}

async fn messages(
    State(service): State<Service>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    service.seen.lock().unwrap().push((headers, body.clone()));
    if let Some(reason) = anthropic::refusal(&body) {
        return refused(400, &error("invalid_request_error", &reason));
    }
    let reply = service.replies.lock().unwrap().pop_front();
    match reply.expect("a reply") {
        Reply::Stream(pieces) => {
            let pieces = pieces
                .into_iter()
                .map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
            let body = Body::from_stream(stream::iter(pieces));
            ([("content-type", "text/event-stream")], body).into_response()
        }
        Reply::Status(status, wait, body) => {
            let mut response = refused(status, &body);
            if !wait.is_empty() {
                let headers = response.headers_mut();
                headers.insert("retry-after", wait.parse().unwrap());
            }
            response
        }
    }
}

fn refused(status: u16, body: &Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

async fn models(headers: HeaderMap) -> Response {
    match headers.get("x-api-key").is_some_and(|key| key == KEY) {
        true => Json(json!({"data": [{"type": "model", "id": "tiny"}]})).into_response(),
        false => refused(
            401,
            &error(
                "authentication_error",
                &format!("invalid x-api-key, not {KEY}"),
            ),
        ),
    }
}

fn settings(url: &str) -> Settings {
    Settings {
        dialect: Dialect::Messages,
        api_key: Some(SecretString::from(KEY)),
        calls: Calls::Native,
        max_tokens: Some(300),
        ..Settings::new(url.parse().unwrap(), "tiny")
    }
}

fn client(url: &str) -> Remote {
    Remote::new(settings(url), Prompts::default()).unwrap()
}

fn prompt(messages: Vec<Message>) -> Prompt {
    let tool = |name: &str| ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: "Looks it up".into(),
        parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
    };
    Prompt {
        instructions: None,
        day: None,
        messages,
        tools: vec![tool("weather"), tool("news")].into(),
        demands: Demands::default(),
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn call(id: &str) -> Message {
    Message::ToolCall {
        id: id.into(),
        name: "weather".into(),
        arguments: json!({"n": 1}).as_object().cloned().unwrap(),
    }
}

fn result(id: &str) -> Message {
    Message::ToolResult {
        id: id.into(),
        name: "weather".into(),
        output: json!({"sky": id}),
    }
}

/// Events in the service's own format.
fn sse(events: &[Value]) -> String {
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    let one = |event: &Value| format!("event: {}\ndata: {event}\n\n", kind(event));
    events.iter().map(one).collect()
}

/// The shape of an answer with words and a call, in which the service's stream is told in full.
fn words_and_a_call() -> String {
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let piece = |text: &str| delta(1, json!({"type": "input_json_delta", "partial_json": text}));
    sse(&[
        json!({"type": "message_start", "message": {"type": "message", "role": "assistant", "content": [],
            "stop_reason": null, "usage": {"input_tokens": 30, "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 0, "output_tokens": 2}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        delta(0, json!({"type": "text_delta", "text": "Grüße, 😀"})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}}),
        piece(""),
        piece("{\"n\":"),
        piece(" 1}"),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"output_tokens": 40}}),
        json!({"type": "message_stop"}),
    ])
}

fn hello() -> Reply {
    let text = sse(&[
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ]);
    Reply::Stream(vec![text.into_bytes()])
}

async fn all(stream: LlmStream) -> (Vec<LlmEvent>, Option<LlmError>) {
    let (mut events, mut error) = (Vec::new(), None);
    let read = stream.for_each(|item| {
        match item {
            Ok(LlmEvent::Thinking) => {}
            Ok(event) => events.push(event),
            Err(e) => error = Some(e),
        }
        std::future::ready(())
    });
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    (events, error)
}

fn spoken(events: &[LlmEvent]) -> String {
    let words = events.iter().filter_map(|event| match event {
        LlmEvent::Speech { text } => Some(text.as_str()),
        _ => None,
    });
    words.collect::<String>().trim().to_owned()
}

#[tokio::test]
async fn an_answer_is_the_same_under_every_chunking() {
    let text = words_and_a_call();
    let bytes = text.as_bytes();
    let usage = TokenUsage {
        input: 120,
        cached: 90,
        output: 40,
        ..TokenUsage::default()
    };
    for size in [1, 2, 3, 7, 64, bytes.len()] {
        let pieces = bytes.chunks(size).map(<[u8]>::to_vec).collect();
        let (service, url) = Service::start([Reply::Stream(pieces)]);
        let (events, error) = all(client(&url).generate(prompt(vec![user("Hi")]))).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Grüße, 😀");
        let arguments = Ok(json!({"n": 1}).as_object().cloned().unwrap());
        assert!(events.contains(&LlmEvent::ToolClosed { arguments }));
        let last = [LlmEvent::Used { usage }, LlmEvent::End];
        assert_eq!(events[events.len() - 2..], last);
        let (headers, body) = service.seen.lock().unwrap()[0].clone();
        assert_eq!(headers["x-api-key"], KEY);
        assert_eq!(headers["anthropic-version"], "2023-06-01");
        assert!(headers.get("authorization").is_none());
        assert_eq!(
            (&body["stream"], &body["max_tokens"]),
            (&json!(true), &json!(300))
        );
    }
}

#[tokio::test]
async fn the_service_takes_the_history_of_a_whole_conversation() {
    let agent = |text: &str, interrupted| Message::Agent {
        text: text.into(),
        interrupted,
    };
    let history = vec![
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
        Message::System {
            text: "The line is bad.".into(),
        },
    ];
    for calls in [Calls::Native, Calls::Markup] {
        for until in 0..=history.len() {
            let (service, url) = Service::start([hello()]);
            let settings = Settings {
                calls,
                ..settings(&url)
            };
            let llm = Remote::new(settings, Prompts::default()).unwrap();
            let (events, error) = all(llm.generate(prompt(history[..until].to_vec()))).await;
            assert!(error.is_none(), "{until}: {error:?}\n{:#}", service.body(0));
            assert_eq!(spoken(&events), "Hello.");
        }
    }
    let (service, url) = Service::start([hello()]);
    all(client(&url).generate(prompt(history))).await;
    let body = service.body(0);
    let messages = body["messages"].as_array().unwrap();
    let shape: Vec<String> = (messages.iter())
        .map(|message| {
            let blocks = message["content"].as_array().unwrap().iter();
            let kinds: Vec<&str> = blocks
                .map(|block| block["type"].as_str().unwrap())
                .collect();
            format!("{}: {}", message["role"].as_str().unwrap(), kinds.join(" "))
        })
        .collect();
    assert_eq!(
        shape,
        [
            "user: text",
            "assistant: text tool_use tool_use",
            "user: tool_result tool_result",
            "assistant: text",
            "user: text",
            "assistant: tool_use",
            "user: tool_result",
            "assistant: text",
            "user: text",
            "assistant: text",
            "user: text",
            "assistant: tool_use",
            "user: tool_result",
            "assistant: text",
            "user: text",
        ]
    );
}

#[tokio::test]
async fn what_the_service_does_not_take_is_left_out_and_remembered() {
    let refusal = |reason: &str| Reply::Status(400, "", error("invalid_request_error", reason));
    let (service, url) = Service::start([
        refusal("tools.0.custom.eager_input_streaming: Extra inputs are not permitted"),
        refusal("system.0.cache_control.ephemeral.ttl: Extra inputs are not permitted"),
        refusal("cache_control: Extra inputs are not permitted"),
        hello(),
        hello(),
    ]);
    let llm = client(&url);
    for _ in 0..2 {
        let (events, error) = all(llm.generate(prompt(vec![user("Hi")]))).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Hello.");
    }
    assert_eq!(service.seen.lock().unwrap().len(), 5);
    let body = service.body(4);
    assert_eq!(body["tools"][0].get("eager_input_streaming"), None);
    assert_eq!(
        body["system"][0]["cache_control"],
        json!({"type": "ephemeral"})
    );
    assert_eq!(body.get("cache_control"), None);
}

#[tokio::test]
async fn an_overloaded_service_is_asked_once_more_and_never_after_a_word() {
    let overloaded = error("overloaded_error", "Overloaded");
    for (status, wait, may) in [(529, "0", true), (429, "1", true), (429, "20", false)] {
        let busy = Reply::Status(status, wait, overloaded.clone());
        let (_, url) = Service::start([busy, hello()]);
        let (events, error) = all(client(&url).generate(prompt(vec![user("Hi")]))).await;
        assert_eq!(error.is_none(), may, "{status} {wait}: {error:?}");
        assert_eq!(spoken(&events), if may { "Hello." } else { "" });
    }
    // It may say so after its headers.
    let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 30}}});
    let busy = Reply::Stream(vec![sse(&[start, overloaded.clone()]).into_bytes()]);
    let (service, url) = Service::start([busy.clone(), hello(), busy.clone(), busy]);
    let llm = client(&url);
    let (events, error) = all(llm.generate(prompt(vec![user("Hi")]))).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Hello.");
    let (_, error) = all(llm.generate(prompt(vec![user("Hi")]))).await;
    assert!(error.unwrap().details().contains("Overloaded"));
    assert_eq!(service.seen.lock().unwrap().len(), 4);
    let mut text = words_and_a_call();
    let from = text.find("event: content_block_stop").unwrap();
    text.truncate(from);
    text.push_str(&sse(&[overloaded]));
    let (service, url) = Service::start([Reply::Stream(vec![text.into_bytes()])]);
    let (events, error) = all(client(&url).generate(prompt(vec![user("Hi")]))).await;
    assert_eq!(spoken(&events), "Grüße, 😀");
    assert!(error.unwrap().details().contains("Overloaded"));
    assert_eq!(service.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_broken_message_stream_commits_nothing() {
    let whole = words_and_a_call();
    let committed = whole.find("\" 1}\"").unwrap();
    for until in (0..committed).step_by(5) {
        let until = whole.floor_char_boundary(until);
        let piece = whole.as_bytes()[..until].to_vec();
        let (_, url) = Service::start([Reply::Stream(vec![piece])]);
        let (events, error) = all(client(&url).generate(prompt(vec![user("Hi")]))).await;
        assert!(error.is_some(), "{until}");
        let commits = |event: &LlmEvent| matches!(event, LlmEvent::ToolClosed { arguments: Ok(_) });
        assert!(!events.iter().any(commits), "{until}: {events:?}");
    }
}

/// Claude's newer models think unless they are told otherwise, and some always.
#[tokio::test]
async fn a_model_that_cannot_stop_thinking_is_asked_for_the_least_effort() {
    let refusal = |kind: &str| {
        let reason = format!(
            "\"thinking.type.{kind}\" is not supported for this model. Use \"thinking.type.adaptive\" and \
             \"output_config.effort\" to control thinking behavior."
        );
        Reply::Status(400, "", error("invalid_request_error", &reason))
    };
    let replies = [
        refusal("disabled"),
        refusal("between_tools"),
        hello(),
        hello(),
    ];
    let (service, url) = Service::start(replies);
    let settings = Settings {
        reasoning_effort: Some("none".into()),
        ..settings(&url)
    };
    let llm = Remote::new(settings, Prompts::default()).unwrap();
    for _ in 0..2 {
        let (events, error) = all(llm.generate(prompt(vec![user("Hi")]))).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Hello.");
    }
    for (nth, kind) in [Some("disabled"), Some("between_tools"), None, None]
        .into_iter()
        .enumerate()
    {
        let body = service.body(nth);
        assert_eq!(body["thinking"]["type"].as_str(), kind);
        assert_eq!(body["output_config"], json!({"effort": "low"}));
    }
}

/// An answer with a thought, words and a call.
fn thought_and_a_call() -> Reply {
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let text = sse(&[
        json!({"type": "content_block_start", "index": 0, "content_block":
            {"type": "thinking", "thinking": "", "signature": ""}}),
        delta(json!({"type": "thinking_delta", "thinking": "hmm"})),
        delta(json!({"type": "signature_delta", "signature": "canary"})),
        json!({"type": "content_block_stop", "index": 0}),
    ]);
    Reply::Stream(vec![(text + &words_and_a_call()).into_bytes()])
}

/// With thinking on, the service refuses the request after a call if its thought does not come back.
#[tokio::test]
async fn a_thought_comes_back_with_its_call() {
    let thought = json!({"type": "thinking", "thinking": "hmm", "signature": "canary"});
    let (service, url) = Service::start([thought_and_a_call(), hello()]);
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 200}});
    let settings = Settings {
        extra_body: thinking.as_object().cloned().unwrap(),
        ..settings(&url)
    };
    let llm = Remote::new(settings, Prompts::default()).unwrap();
    let (events, error) = all(llm.generate(prompt(vec![user("Hi")]))).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Grüße, 😀");
    let history = vec![user("Hi"), call("x"), result("x")];
    let (_, error) = all(llm.generate(prompt(history))).await;
    assert!(error.is_none(), "{error:?}");
    let body = service.body(1);
    assert_eq!(body["messages"][1]["content"][0], thought);
    assert_eq!(body["thinking"]["budget_tokens"], 200);
}

/// Claude's newer models take a thought only behind the messages that it came behind: once these had changed, every
/// request of the call was refused.
#[tokio::test]
async fn thoughts_that_the_service_no_longer_takes_are_forgotten() {
    let bound = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different \
                 conversation.";
    let refusal = Reply::Status(400, "", error("invalid_request_error", bound));
    let (service, url) = Service::start([thought_and_a_call(), refusal, hello(), hello()]);
    let thinking = json!({"thinking": {"type": "adaptive"}});
    let settings = Settings {
        extra_body: thinking.as_object().cloned().unwrap(),
        ..settings(&url)
    };
    let llm = Remote::new(settings, Prompts::default()).unwrap();
    let (_, error) = all(llm.generate(prompt(vec![user("Hi")]))).await;
    assert!(error.is_none(), "{error:?}");
    for _ in 0..2 {
        let history = vec![user("Hi"), call("x"), result("x")];
        let (events, error) = all(llm.generate(prompt(history))).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(spoken(&events), "Hello.");
    }
    for (nth, first) in [(1, "thinking"), (2, "tool_use"), (3, "tool_use")] {
        let body = service.body(nth);
        assert_eq!(body["messages"][1]["content"][0]["type"], first);
        assert_eq!(body["thinking"], thinking["thinking"]);
    }
}

#[tokio::test]
async fn doctor_and_the_warm_up_know_the_dialect() {
    let (service, url) = Service::start([hello()]);
    let llm = client(&url);
    let health = llm.check().await.unwrap();
    assert_eq!(health.model_listed, Some(true));
    llm.warm_up(prompt(Vec::new())).await.unwrap();
    assert_eq!(service.body(0)["max_tokens"], 16);
    let wrong = Settings {
        api_key: Some(SecretString::from("sk-ant-other")),
        ..settings(&url)
    };
    let refused = Remote::new(wrong, Prompts::default()).unwrap();
    let error = refused.check().await.unwrap_err().details();
    assert!(
        error.contains("401") && error.contains("x-api-key"),
        "{error}"
    );
    // The service repeats the key.
    let (_, url) = Service::start([Reply::Status(403, "", error_with_key())]);
    let (_, error) = all(client(&url).generate(prompt(Vec::new()))).await;
    let error = error.unwrap().details();
    assert!(error.contains("[key]") && !error.contains(KEY), "{error}");
}

#[tokio::test]
async fn events_without_data_end_no_answer() {
    let Reply::Stream(pieces) = hello() else {
        unreachable!("a stream");
    };
    let text = String::from_utf8(pieces.concat()).unwrap();
    let text = text.replace("\n\n", "\n\nevent: ping\ndata:\n\n");
    let (_, url) = Service::start([Reply::Stream(vec![text.into_bytes()])]);
    let (events, error) = all(client(&url).generate(prompt(Vec::new()))).await;
    assert!(error.is_none(), "{error:?}");
    let hello = LlmEvent::Speech {
        text: "Hello.".into(),
    };
    assert!(events.contains(&hello), "{events:?}");
}

fn error_with_key() -> Value {
    error("permission_error", &format!("the key {KEY} may not"))
}
