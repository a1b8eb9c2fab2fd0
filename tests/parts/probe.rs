//! Tests `undertone probe` against scripted servers whose abilities are known.

use axum::Router;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::fmt::Write;
use tokio::net::TcpListener;
use undertone::llm::markup::CallForm;
use undertone::llm::probe::{Context, Report, probe};
use undertone::llm::remote::{Dialect, Settings};
use undertone::llm::{Calls, Prompts};

const CITIES: [&str; 9] = [
    "Boulder", "Oslo", "Lisbon", "Denver", "Seattle", "Rome", "Paris", "Chicago", "Vienna",
];

/// The abilities of a scripted server.
#[derive(Clone, Copy)]
struct Scripted {
    markup: bool,
    native: bool,
    /// In markup it writes calls only in the form of its training.
    hermes: bool,
    /// The longest prompt, tokens. The rest is cut without an error.
    context: u64,
}

async fn chat(State(server): State<Scripted>, Json(body): Json<Value>) -> Response {
    let refused = |parameter: &str| {
        let message = format!("Unsupported parameter: {parameter}");
        let body = json!({"error": {"message": message}}).to_string();
        (StatusCode::BAD_REQUEST, body).into_response()
    };
    if body.get("temperature").is_some() {
        return refused("temperature");
    }
    if body.get("tools").is_some() && !server.native {
        return refused("tools");
    }
    let messages = body["messages"].as_array().expect("messages");
    let length: usize = messages
        .iter()
        .map(|m| m["content"].as_str().unwrap().len())
        .sum();
    let last = messages.last().expect("a message");
    let text = last["content"].as_str().expect("text");
    let system = messages[0]["content"].as_str().expect("text");
    let is_native = body.get("tools").is_some();
    let knows_form = !server.hermes || system.contains("<tool_call>");
    let may_call = is_native || server.markup && knows_form && system.contains("Tools:");
    let mut events = String::new();
    let mut send = |delta: Value| {
        let chunk = json!({"choices": [{"delta": delta}]});
        write!(events, "data: {chunk}\n\n").expect("a string");
    };
    let calls = if text.contains("Friday") || text.contains("17,") || text.contains("celsius") {
        send(json!({"content": "It is seventeen degrees, and it arrives on Friday."}));
        Vec::new()
    } else {
        calls_for(text)
    };
    for (index, (tool, argument, value)) in calls.iter().filter(|_| may_call).enumerate() {
        let arguments = json!({ *argument: value }).to_string();
        send(match is_native {
            true => {
                let function = json!({"name": tool, "arguments": arguments});
                json!({"tool_calls": [{"index": index, "id": value, "function": function}]})
            }
            false => json!({"content": format!("<tool>{tool}({argument}=\"{value}\")</tool>")}),
        });
    }
    if events.is_empty() {
        for word in ["I ", "am ", "fine, ", "thank ", "you."] {
            let chunk = json!({"choices": [{"delta": {"content": word}}]});
            write!(events, "data: {chunk}\n\n").expect("a string");
        }
    }
    let tokens = (length as u64 / 4).min(server.context);
    let usage = json!({"prompt_tokens": tokens, "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": tokens / 2}});
    let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage});
    format!("{events}data: {stop}\n\ndata: [DONE]\n\n").into_response()
}

fn calls_for(text: &str) -> Vec<(&'static str, &'static str, String)> {
    let numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .filter(|n| !n.is_empty());
    let orders = numbers.map(|number| ("get_order", "number", number.to_owned()));
    let cities = CITIES.iter().filter(|city| text.contains(**city));
    let cities = cities.map(|city| ("get_weather", "city", (*city).to_owned()));
    orders.chain(cities).collect()
}

/// The same abilities behind Anthropic's Messages, as strict as the real service.
async fn messages(Json(body): Json<Value>) -> Response {
    if let Some(reason) = crate::support::anthropic::refusal(&body) {
        let error = json!({"type": "invalid_request_error", "message": reason});
        let body = json!({"type": "error", "error": error}).to_string();
        return (StatusCode::BAD_REQUEST, body).into_response();
    }
    let last = body["messages"].as_array().expect("messages").last();
    let blocks = last.expect("a message")["content"].as_array();
    let texts = blocks
        .expect("blocks")
        .iter()
        .map(|block| match block["type"].as_str() {
            Some("tool_result") => block["content"].as_str().unwrap_or_default(),
            _ => block["text"].as_str().unwrap_or_default(),
        });
    let text = texts.collect::<Vec<_>>().join("\n");
    let is_native = body.get("tools").is_some();
    let has_tools = is_native
        || body["system"][0]["text"]
            .as_str()
            .expect("text")
            .contains("Tools:");
    let mut events = String::new();
    let mut send = |kind: &str, mut event: Value| {
        event["type"] = json!(kind);
        write!(events, "event: {kind}\ndata: {event}\n\n").expect("a string");
    };
    let tokens = body.to_string().len() / 4;
    let usage = json!({"input_tokens": tokens - tokens / 2, "cache_read_input_tokens": tokens / 2});
    send(
        "message_start",
        json!({"message": {"role": "assistant", "content": [], "usage": usage}}),
    );
    let is_result = text.contains("Friday") || text.contains("celsius");
    let calls = match is_result || !has_tools {
        true => Vec::new(),
        false => calls_for(&text),
    };
    let mut blocks = Vec::new();
    for (tool, argument, value) in &calls {
        let arguments = json!({ *argument: value }).to_string();
        blocks.push(match is_native {
            true => (
                json!({"type": "tool_use", "id": format!("toolu_{value}"), "name": tool, "input": {}}),
                json!({"type": "input_json_delta", "partial_json": arguments}),
            ),
            false => (
                json!({"type": "text", "text": ""}),
                json!({"type": "text_delta", "text": format!("<tool>{tool}({argument}=\"{value}\")</tool>")}),
            ),
        });
    }
    if blocks.is_empty() {
        let words = match is_result {
            true => "It is seventeen degrees, and it arrives on Friday.",
            false => "I am fine, thank you.",
        };
        blocks.push((
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": words}),
        ));
    }
    for (index, (block, delta)) in blocks.into_iter().enumerate() {
        send(
            "content_block_start",
            json!({"index": index, "content_block": block}),
        );
        send(
            "content_block_delta",
            json!({"index": index, "delta": delta}),
        );
        send("content_block_stop", json!({ "index": index }));
    }
    let reason = if is_native && !calls.is_empty() {
        "tool_use"
    } else {
        "end_turn"
    };
    send(
        "message_delta",
        json!({"delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}),
    );
    send("message_stop", json!({}));
    ([("content-type", "text/event-stream")], events).into_response()
}

#[tokio::test]
async fn a_server_of_messages_is_probed_without_a_parameter_that_it_refuses() {
    let routes = Router::new().route("/v1/messages", post(messages));
    let url = format!("http://{}/v1", crate::support::serve_on_a_thread(routes));
    let mut settings = Settings::new(url.parse().expect("an address"), "scripted");
    settings.dialect = Dialect::Messages;
    settings.max_tokens = Some(300);
    let report = probe(&settings, &Prompts::default(), 6_000, &mut |_| ())
        .await
        .expect("a report");
    for mode in [&report.markup, &report.native] {
        assert!((mode.score() - 1.0).abs() < 1e-9, "{report:?}");
        assert_eq!(mode.failures, (0, None));
    }
    assert_eq!(
        (report.calls(), report.form),
        (Calls::Markup, CallForm::Python)
    );
    let none: [&str; 0] = [];
    assert_eq!(report.refused, none, "the seed is the probe's own");
    assert!(matches!(report.context, Context::Fits(_)), "{report:?}");
    assert!(
        report
            .cache
            .is_some_and(|(cached, all)| 0 < cached && cached < all)
    );
}

async fn report(server: Scripted) -> Report {
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(async || StatusCode::NOT_FOUND))
        .with_state(server);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let mut settings = Settings::new(url.parse().expect("an address"), "scripted");
    settings.temperature = Some(0.2);
    probe(&settings, &Prompts::default(), 6_000, &mut |_| ())
        .await
        .expect("a report")
}

#[tokio::test]
async fn a_server_with_native_calls_only_is_told_from_one_with_markup() {
    let native = report(Scripted {
        markup: false,
        native: true,
        hermes: false,
        context: u64::MAX,
    })
    .await;
    assert_eq!(native.calls(), Calls::Native);
    assert!((native.native.score() - 1.0).abs() < 1e-9, "{native:?}");
    assert!(native.markup.score() < 0.6, "{native:?}");
    assert_eq!(native.native.speaks_before_calls, (0, 11));
    assert_eq!(native.refused, ["temperature"]);
    assert!(matches!(native.context, Context::Fits(_)), "{native:?}");
    assert!(
        native
            .cache
            .is_some_and(|(cached, all)| 0 < cached && cached < all)
    );

    let markup = report(Scripted {
        markup: true,
        native: false,
        hermes: false,
        context: 1_000,
    })
    .await;
    assert_eq!(markup.calls(), Calls::Markup);
    assert!((markup.markup.score() - 1.0).abs() < 1e-9, "{markup:?}");
    let (failed, why) = &markup.native.failures;
    assert!(*failed == 19 && why.as_ref().is_some_and(|why| why.contains("tools")));
    assert_eq!(markup.context, Context::Cut(1_000));
}

#[tokio::test]
async fn the_form_of_calls_that_a_model_was_trained_on_is_found() {
    let report = report(Scripted {
        markup: true,
        native: false,
        hermes: true,
        context: u64::MAX,
    })
    .await;
    assert_eq!(report.form, CallForm::Hermes);
    assert_eq!(
        report.forms,
        [
            (CallForm::Python, 0, 11),
            (CallForm::Json, 0, 11),
            (CallForm::Hermes, 11, 11)
        ]
    );
    assert!((report.markup.score() - 1.0).abs() < 1e-9, "{report:?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_an_error() {
    let settings = Settings::new("http://127.0.0.1:1/v1".parse().expect("an address"), "m");
    let error = probe(&settings, &Prompts::default(), 6_000, &mut |_| ())
        .await
        .unwrap_err();
    assert!(
        error.details().contains("127.0.0.1:1"),
        "{}",
        error.details()
    );
}
