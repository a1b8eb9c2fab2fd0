//! Tests `undertone probe` against scripted servers whose abilities are known.

use axum::Router;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use tokio::net::TcpListener;
use undertone::llm::markup::CallForm;
use undertone::llm::probe::{Context, Indexes, Report, probe};
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
    /// The longest prompt, tokens.
    context: usize,
    long: Long,
    /// It counts tokens.
    counts: bool,
    thoughts: Thoughts,
    /// The efforts of thinking that it takes; any if there are none.
    efforts: &'static [&'static str],
    /// With tools it takes this effort alone.
    with_tools: Option<&'static str>,
    /// How long it reads a prompt of more than 1,000 tokens.
    reads: Duration,
}

/// A server that can do everything.
const ABLE: Scripted = Scripted {
    markup: true,
    native: true,
    hermes: false,
    context: usize::MAX,
    long: Long::Cut,
    counts: true,
    thoughts: Thoughts::None,
    efforts: &[],
    with_tools: None,
    reads: Duration::ZERO,
};

/// A server's way with a prompt that is too long.
#[derive(Clone, Copy, PartialEq)]
enum Long {
    /// The oldest messages are dropped without a word, but not the system prompt, as Ollama does it.
    Cut,
    /// It is refused.
    Refused,
    /// It is refused, and the server says how long it may be, as llama.cpp's does.
    Told,
}

/// A model's thoughts.
#[derive(Clone, Copy, PartialEq)]
enum Thoughts {
    /// None, but a comment keeps the connection alive.
    None,
    /// In a field of their own.
    Beside,
    /// In the text, between tags.
    Tagged,
    /// In the text, with a closing tag alone.
    Untagged,
    /// Only the count of tokens tells.
    Hidden,
}

/// Tokens of a message, at four characters each.
fn tokens(message: &Value) -> usize {
    message["content"].as_str().expect("text").len().div_ceil(4)
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
    if let Some(message) = refused_effort(&server, &body) {
        let error = json!({"message": message, "param": "reasoning_effort"});
        return (
            StatusCode::BAD_REQUEST,
            json!({ "error": error }).to_string(),
        )
            .into_response();
    }
    let mut messages = body["messages"].as_array().expect("messages").clone();
    let length = |messages: &[Value]| messages.iter().map(tokens).sum::<usize>();
    if length(&messages) > server.context && server.long != Long::Cut {
        let message = "the request exceeds the available context size";
        let error = json!({"code": 400, "message": message, "type": "exceed_context_size_error"});
        return (
            StatusCode::BAD_REQUEST,
            json!({ "error": error }).to_string(),
        )
            .into_response();
    }
    while length(&messages) > server.context && messages.len() > 2 {
        messages.remove(1);
    }
    let tokens = length(&messages);
    if tokens > 1_000 {
        tokio::time::sleep(server.reads).await;
    }
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
    if server.thoughts == Thoughts::Beside {
        send(json!({"reasoning_content": "They ask me something."}));
    }
    let opens = match server.thoughts {
        Thoughts::Tagged => Some("<think>"),
        Thoughts::Untagged => Some(""),
        _ => None,
    };
    if let Some(opens) = opens {
        send(json!({"content": format!("{opens}They ask me something.")}));
        // The thoughts alone are as long as an answer is allowed to be without thoughts.
        if body["max_tokens"].as_u64().is_some_and(|most| most <= 120) {
            let cut = json!({"choices": [{"delta": {}, "finish_reason": "length"}]});
            return format!("{events}data: {cut}\n\ndata: [DONE]\n\n").into_response();
        }
        send(json!({"content": "</think>"}));
    }
    let remembered = messages.iter().find_map(|message| {
        let text = message["content"].as_str()?;
        let (_, word) = text.split_once("The word is ")?;
        Some(word.split('.').next()?.to_owned())
    });
    let asks_for_word = text.contains("Which word");
    if asks_for_word {
        let word = remembered.unwrap_or_else(|| "I do not know".into());
        send(json!({ "content": word }));
    }
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
    let has_answered = asks_for_word || events.contains("seventeen");
    if !has_answered && (calls.is_empty() || !may_call) {
        for word in ["I ", "am ", "fine, ", "thank ", "you."] {
            let chunk = json!({"choices": [{"delta": {"content": word}}]});
            write!(events, "data: {chunk}\n\n").expect("a string");
        }
    }
    let mut stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    if server.counts {
        let thoughts = if server.thoughts == Thoughts::Hidden {
            64
        } else {
            0
        };
        stop["usage"] = json!({"prompt_tokens": tokens, "completion_tokens": 5 + thoughts,
            "prompt_tokens_details": {"cached_tokens": tokens / 2},
            "completion_tokens_details": {"reasoning_tokens": thoughts}});
    }
    format!(": keep-alive\n\n{events}data: {stop}\n\ndata: [DONE]\n\n").into_response()
}

/// The refusals of OpenAI's models that think.
fn refused_effort(server: &Scripted, body: &Value) -> Option<String> {
    let effort = body.get("reasoning_effort").and_then(Value::as_str);
    if let Some(wanted) = server.with_tools.filter(|_| body.get("tools").is_some())
        && effort != Some(wanted)
    {
        return Some(format!(
            "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. To use function \
             tools, use /v1/responses or set reasoning_effort to '{wanted}'."
        ));
    }
    let effort =
        effort.filter(|effort| !server.efforts.is_empty() && !server.efforts.contains(effort))?;
    let known: Vec<_> = server
        .efforts
        .iter()
        .map(|known| format!("'{known}'"))
        .collect();
    Some(format!(
        "Unsupported value: '{effort}' is not supported with the 'm' model. Supported values are: {}.",
        known.join(", ")
    ))
}

async fn props(State(server): State<Scripted>) -> Response {
    if server.long != Long::Told {
        return StatusCode::NOT_FOUND.into_response();
    }
    let properties = json!({"default_generation_settings": {"n_ctx": server.context}, "total_slots": 2,
        "chat_template": "{{ messages }}"});
    properties.to_string().into_response()
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
    assert!(matches!(report.context, Context::Fits { .. }), "{report:?}");
    assert!(
        report
            .cache
            .is_some_and(|(cached, all)| 0 < cached && cached < all)
    );
}

async fn report(server: Scripted) -> Report {
    report_with(server, None).await
}

/// The report of a probe with default settings, but for the effort of thinking.
async fn report_with(server: Scripted, effort: Option<&str>) -> Report {
    probed(server, |settings| {
        settings.reasoning_effort = effort.map(str::to_owned);
    })
    .await
}

async fn probed(server: Scripted, adapt: impl FnOnce(&mut Settings)) -> Report {
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(async || StatusCode::NOT_FOUND))
        .route("/props", get(props))
        .with_state(server);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let mut settings = Settings::new(url.parse().expect("an address"), "scripted");
    settings.temperature = Some(0.2);
    adapt(&mut settings);
    let default = undertone::llm::prompt::DEFAULT_TOKENS;
    probe(&settings, &Prompts::default(), default, &mut |_| ())
        .await
        .expect("a report")
}

/// llama.cpp on a processor reads 6,000 tokens for a minute, and sends nothing meanwhile.
#[tokio::test]
async fn a_server_that_reads_a_long_prompt_for_longer_than_the_stall_timeout_has_its_context_told()
{
    let slow = Scripted {
        reads: Duration::from_millis(500),
        ..ABLE
    };
    let stall = Duration::from_millis(250);
    let found = probed(slow, |settings| settings.stall_timeout = stall).await;
    assert!(
        matches!(found.context, Context::Fits { tokens, .. } if tokens > 5_500),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_server_with_native_calls_only_is_told_from_one_with_markup() {
    let native = report(Scripted {
        markup: false,
        ..ABLE
    })
    .await;
    assert_eq!(native.calls(), Calls::Native);
    assert!((native.native.score() - 1.0).abs() < 1e-9, "{native:?}");
    assert!(native.markup.score() < 0.6, "{native:?}");
    assert_eq!(native.native.speaks_before_calls, (0, 11));
    assert_eq!(native.refused, ["temperature"]);
    let shape = native.shape.expect("native calls");
    assert_eq!((shape.calls, shape.pieces), (2, 2));
    assert_eq!((shape.indexes, shape.has_ids), (Indexes::Own, true));
    assert!(
        native
            .cache
            .is_some_and(|(cached, all)| 0 < cached && cached < all)
    );

    let markup = report(Scripted {
        native: false,
        ..ABLE
    })
    .await;
    assert_eq!(markup.calls(), Calls::Markup);
    assert!((markup.markup.score() - 1.0).abs() < 1e-9, "{markup:?}");
    let (failed, why) = &markup.native.failures;
    assert!(*failed == 19 && why.as_ref().is_some_and(|why| why.contains("tools")));
    assert_eq!(markup.shape, None);
}

/// Ollama's default, which is below the default of `llm.max_prompt_tokens`.
#[tokio::test]
async fn a_prompt_that_is_silently_cut_at_4096_tokens_is_noticed_with_default_settings() {
    let cut = Scripted {
        context: 4_096,
        ..ABLE
    };
    let found = report(cut).await.context;
    let Context::Cut { arrived, sent, .. } = found else {
        panic!("{found:?}");
    };
    assert!(
        arrived <= 4_096 && 5_500 < sent && sent <= 6_000,
        "{found:?}"
    );
    // 4,096 less one message, less the answer, less a tenth.
    let limit = found.limit().expect("a limit");
    assert!((3_300..=3_600).contains(&limit), "{limit}");

    // Without the server's count, the model's memory tells.
    let found = report(Scripted {
        counts: false,
        ..cut
    });
    let limit = Some(3_000);
    assert_eq!(found.await.context, Context::Forgotten { limit });
}

#[tokio::test]
async fn a_prompt_that_arrives_whole_is_known_by_the_count_or_by_its_first_word() {
    let found = report(ABLE).await.context;
    let Context::Fits { tokens, recalls } = found else {
        panic!("{found:?}");
    };
    assert!((5_500..=6_000).contains(&tokens), "{found:?}");
    assert_eq!(recalls, Some(true));
    let uncounted = Scripted {
        counts: false,
        ..ABLE
    };
    assert_eq!(report(uncounted).await.context, Context::Recalled);
}

#[tokio::test]
async fn a_server_that_refuses_long_prompts_gets_a_limit_that_fits() {
    let refuses = |long| Scripted {
        context: 4_096,
        long,
        ..ABLE
    };
    let told = report(refuses(Long::Told)).await;
    let known = told.properties.as_ref().expect("properties");
    assert_eq!((known.context, known.slots), (Some(4_096), Some(2)));
    assert!(known.lacks_tools, "its template has none");
    // 4,096 less the answer's 120, less a tenth.
    assert_eq!(told.context.limit(), Some(3_500));
    let tried = report(refuses(Long::Refused)).await;
    assert_eq!(tried.properties, None);
    assert_eq!(tried.context.limit(), Some(3_000));
    let Context::Refused { why, .. } = tried.context else {
        panic!("{tried:?}");
    };
    assert!(why.contains("exceeds"), "{why}");
}

#[tokio::test]
async fn thoughts_are_told_from_signs_of_life_and_take_nothing_from_the_answers() {
    let able = report(ABLE).await.markup.score();
    for (thoughts, thinks, thinks_first) in [
        (Thoughts::None, false, false),
        (Thoughts::Beside, true, false),
        (Thoughts::Hidden, true, false),
        (Thoughts::Tagged, true, false),
        (Thoughts::Untagged, true, true),
    ] {
        let found = report(Scripted { thoughts, ..ABLE }).await;
        let told = (found.thinks, found.thinks_first);
        assert_eq!(told, (thinks, thinks_first), "{found:?}");
        assert_eq!(found.markup.score(), able, "{found:?}");
    }
}

#[tokio::test]
async fn the_effort_of_thinking_that_a_server_takes_is_found() {
    let gpt_5 = Scripted {
        efforts: &["minimal", "low", "medium", "high"],
        ..ABLE
    };
    let found = report_with(gpt_5, Some("none")).await;
    assert_eq!(
        (found.effort, found.refused.as_slice()),
        (Some("minimal"), &["temperature"][..])
    );
    assert!((found.native.score() - 1.0).abs() < 1e-9, "{found:?}");
    // From GPT-5.4 on tools need it, and nobody has set it.
    let gpt_5_4 = Scripted {
        with_tools: Some("none"),
        ..ABLE
    };
    let found = report(gpt_5_4).await;
    assert_eq!(found.effort, Some("none"));
    assert_eq!(found.native.failures, (0, None));
}

#[tokio::test]
async fn the_form_of_calls_that_a_model_was_trained_on_is_found() {
    let report = report(Scripted {
        native: false,
        hermes: true,
        ..ABLE
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
