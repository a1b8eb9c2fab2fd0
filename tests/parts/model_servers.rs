//! Scripted servers of chat completions, one for each server that people use: each refuses what the real one refuses
//! and streams in its shape. Beside them, one for each family of models that writes calls as text. Every stream is
//! replayed under many cuts, and broken off at many places.

use crate::support::{PATIENCE, live, serve_on_a_thread};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use undertone::conversation::Clauses;
use undertone::language::pack;
use undertone::llm::remote::{Remote, Settings};
use undertone::llm::{
    Calls, Demands, Llm, LlmError, LlmEvent, Message, Phrases, Prompt, Prompts, ToolChoice,
};
use undertone::session::Builders;
use undertone::tools::{CallContext, Declaration, Effect, Registry, Tool, ToolError, ToolSpec};

/// A status and a body.
type Refusal = (u16, Value);

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    refuses: fn(&Value) -> Option<Refusal>,
    /// Sent before the first chunk.
    before: &'static str,
    /// A chunk with this delta and finish reason.
    chunk: fn(Value, Value) -> Value,
    style: Style,
    /// The finish reason after calls.
    reason: &'static str,
    /// Parameters that it has refused after two turns.
    refused: &'static [&'static str],
    /// The effort of thinking that is configured, and the one that is sent in its place after the first turn.
    effort: (Option<&'static str>, Option<&'static str>),
    /// The model's answer to a question, in which the server fails to read a call.
    failed: Option<Failed>,
}

/// How Groq reports such an answer.
#[derive(Debug, Clone, Copy)]
enum Failed {
    Refused(&'static str),
    /// In a stream that has begun.
    InStream(&'static str),
}

impl Failed {
    fn response(self) -> Response {
        let (Self::Refused(text) | Self::InStream(text)) = self;
        let message = "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.";
        let error = json!({"message": message, "type": "invalid_request_error", "code": "tool_use_failed",
            "failed_generation": text});
        let mut error = json!({ "error": error });
        match self {
            Self::Refused(_) => (StatusCode::BAD_REQUEST, axum::Json(error)).into_response(),
            Self::InStream(_) => {
                error["error"]["status_code"] = json!(400);
                let begun = plain(json!({"role": "assistant", "content": ""}), Value::Null);
                let text = format!("data: {begun}\n\nevent: error\ndata: {error}\n\n");
                ([("content-type", "text/event-stream")], text).into_response()
            }
        }
    }
}

/// The shape of calls in a stream.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// A name, then its arguments in pieces.
    Pieces,
    /// The same, with empty ids and names after the first piece.
    EmptyIds,
    /// The same, with another id after the first piece.
    OtherIds,
    Whole,
    /// Whole, and every call has the index 0.
    SameIndex,
    /// Whole, without index and id, signed.
    Signed,
    /// As this text.
    InText(&'static str),
    /// The second call is left in the text.
    SecondInText,
    /// Whole and without words: the server parses the answer as JSON, and streams no text before it.
    Generic,
    /// As text, with numbers that are tokens of their own, as in the words.
    Numbers,
}

const WORDS: &str = "Let me look.";
const NUMBERS: &str = "Let me look 7 days ahead.";
const ANSWER: &str = "It is sunny.";
const DONE: &str = "data: [DONE]\n\n";

fn nothing(_: &Value) -> Option<Refusal> {
    None
}

fn error(status: u16, message: &str) -> Option<Refusal> {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": null, "code": null});
    Some((status, json!({ "error": error })))
}

/// OpenAI's o-series, GPT-5 and later, and the same models at Azure.
fn openai(body: &Value) -> Option<Refusal> {
    if body.get("max_tokens").is_some() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
                       'max_completion_tokens' instead.";
        return error(400, message);
    }
    match body.get("temperature") {
        Some(value) if *value != 1.0 => {
            let message = format!(
                "Unsupported value: 'temperature' does not support {value} with this model. Only the \
                 default (1) value is supported."
            );
            error(400, &message)
        }
        _ => None,
    }
}

/// A model of OpenAI that thinks and knows these efforts.
fn efforts(body: &Value, known: &[&str]) -> Option<Refusal> {
    let effort = body.get("reasoning_effort").and_then(Value::as_str);
    if let Some(effort) = effort.filter(|effort| !known.contains(effort)) {
        let known: Vec<_> = known.iter().map(|known| format!("'{known}'")).collect();
        let message = format!(
            "Unsupported value: '{effort}' is not supported with the 'm' model. Supported values are: {}.",
            known.join(", ")
        );
        let error = json!({"message": message, "type": "invalid_request_error", "param": "reasoning_effort",
            "code": "unsupported_value"});
        return Some((400, json!({ "error": error })));
    }
    openai(body)
}

fn o_series(body: &Value) -> Option<Refusal> {
    efforts(body, &["low", "medium", "high"])
}

fn gpt_5(body: &Value) -> Option<Refusal> {
    efforts(body, &["minimal", "low", "medium", "high"])
}

fn gpt_5_1(body: &Value) -> Option<Refusal> {
    efforts(body, &["none", "low", "medium", "high"])
}

/// From GPT-5.4 on: an effort that is not sent is not `none`.
fn gpt_5_4(body: &Value) -> Option<Refusal> {
    let effort = body.get("reasoning_effort").and_then(Value::as_str);
    if body.get("tools").is_some() && effort != Some("none") {
        let message = "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. To use \
                       function tools, use /v1/responses or set reasoning_effort to 'none'.";
        let error = json!({"message": message, "type": "invalid_request_error", "param": "reasoning_effort",
            "code": null});
        return Some((400, json!({ "error": error })));
    }
    efforts(body, &["none", "low", "medium", "high", "xhigh"])
}

/// A model that does not think.
fn gpt_4(body: &Value) -> Option<Refusal> {
    body.get("reasoning_effort").and_then(|_| {
        error(
            400,
            "Unrecognized request argument supplied: reasoning_effort",
        )
    })
}

fn groq(body: &Value) -> Option<Refusal> {
    let is_named = |message: &Value| message.get("name").is_some();
    let fields = ["logprobs", "logit_bias", "top_logprobs", "n"];
    let field = fields.into_iter().find(|field| body.get(field).is_some());
    let field = field.or_else(|| {
        messages(body)
            .iter()
            .any(is_named)
            .then_some("messages.name")
    });
    error(400, &format!("property '{}' is unsupported", field?))
}

/// Groq behind a gateway that sends its thoughts and hands messages on as they are.
fn groq_behind_a_gateway(body: &Value) -> Option<Refusal> {
    let thinks = |message: &Value| message.get("reasoning_content").is_some();
    let Some(at) = messages(body).iter().position(thinks) else {
        return groq(body);
    };
    let message = format!(
        "'messages.{at}' : for 'role:assistant' the following must be satisfied[('messages.{at}' : property \
         'reasoning_content' is unsupported)]"
    );
    error(400, &message)
}

/// A gateway that checks messages.
fn takes_no_thoughts(body: &Value) -> Option<Refusal> {
    let thinks = |message: &Value| message.get("reasoning_content").is_some();
    match messages(body).iter().any(thinks) {
        true => error(422, "\"messages[1].reasoning_content\" is not allowed"),
        false => None,
    }
}

/// OpenRouter puts the provider's error into a text.
fn gpt_5_behind_openrouter(body: &Value) -> Option<Refusal> {
    let (status, error) = gpt_5(body)?;
    let metadata = json!({"raw": error.to_string(), "provider_name": "OpenAI"});
    let error = json!({"message": "Provider returned error", "code": status, "metadata": metadata});
    Some((status, json!({"error": error, "user_id": "user_1"})))
}

/// gpt-oss cannot be kept from thinking.
fn groq_gpt_oss(body: &Value) -> Option<Refusal> {
    let effort = body.get("reasoning_effort").and_then(Value::as_str);
    match effort.is_some_and(|effort| !["low", "medium", "high"].contains(&effort)) {
        true => error(
            400,
            "`reasoning_effort` must be one of `low`, `medium`, or `high`",
        ),
        false => groq(body),
    }
}

/// The template of Qwen 3.8 knows efforts of its own.
fn qwen_template(body: &Value) -> Option<String> {
    let effort = body.get("reasoning_effort").and_then(Value::as_str)?;
    let is_known = ["xhigh", "medium", "low"].contains(&effort);
    (!is_known).then(|| {
        format!(
            "Unexpected reasoning effort {effort}. Supported types are xhigh (default), medium, and low."
        )
    })
}

/// A server that passes the error of a template on as the client's.
fn qwen(body: &Value) -> Option<Refusal> {
    qwen_template(body).and_then(|message| error(400, &message))
}

/// A server that passes it on as its own.
fn qwen_as_a_fault_of_the_server(body: &Value) -> Option<Refusal> {
    qwen_template(body).and_then(|message| error(500, &message))
}

/// LiteLLM before Claude up to 4.5: with an effort, it wants thoughts with each call of the history.
fn claude_behind_litellm(body: &Value) -> Option<Refusal> {
    let has_calls = messages(body)
        .iter()
        .any(|message| message.get("tool_calls").is_some());
    let message = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. \
                   When `thinking` is enabled, a final `assistant` message must start with a thinking block.";
    let is_refused = has_calls && body.get("reasoning_effort").is_some();
    is_refused.then(|| error(400, message)).flatten()
}

/// Most models of xAI think as they like.
fn xai(body: &Value) -> Option<Refusal> {
    let message = "Model m does not support parameter reasoningEffort.";
    let error = json!({"code": "Client specified an invalid argument", "error": message});
    body.get("reasoning_effort").map(|_| (400, error))
}

fn mistral(body: &Value) -> Option<Refusal> {
    if let Some(options) = body.get("stream_options") {
        let detail = json!({"type": "extra_forbidden", "loc": ["body", "stream_options"],
            "msg": "Extra inputs are not permitted", "input": options});
        return Some((422, json!({ "detail": [detail] })));
    }
    let refusal = |message: String| {
        Some((
            400,
            json!({"object": "error", "message": message, "type": "invalid_request_error", "code": "3230"}),
        ))
    };
    for pair in messages(body).windows(2) {
        if pair[0]["role"] == "tool" && pair[1]["role"] == "user" {
            return refusal("Unexpected role 'user' after role 'tool'".into());
        }
    }
    let ids = messages(body)
        .iter()
        .flat_map(calls)
        .map(|call| call["id"].clone());
    for id in ids {
        let id = id.as_str().unwrap_or_default();
        if id.len() != 9 || !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return refusal(format!(
                "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
            ));
        }
    }
    None
}

/// V4 Pro, and MiMo's models.
fn deepseek(body: &Value) -> Option<Refusal> {
    let lacks = |message: &Value| {
        let thoughts = message["reasoning_content"].as_str();
        message["role"] == "assistant" && thoughts.is_none_or(str::is_empty)
    };
    match body.get("tools").is_some() && messages(body).iter().any(lacks) {
        true => error(
            400,
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
        ),
        false => None,
    }
}

fn kimi(body: &Value) -> Option<Refusal> {
    let lacks = |message: &Value| {
        let thoughts = message["reasoning_content"].as_str();
        !calls(message).is_empty() && thoughts.is_none_or(str::is_empty)
    };
    let at = messages(body).iter().position(lacks)?;
    let message = format!(
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index {at}"
    );
    error(400, &message)
}

/// gpt-oss's template in llama.cpp.
fn gpt_oss_in_llama(body: &Value) -> Option<Refusal> {
    let has_all = |message: &Value| {
        let has = |field: &str| message[field].as_str().is_some_and(|text| !text.is_empty());
        has("content") && has("reasoning_content") && !calls(message).is_empty()
    };
    let message = "Cannot pass both content and thinking in an assistant message with tool calls! Put the analysis \
                   message in one or the other, but not both. at row 290, column 178:";
    let error = json!({"code": 500, "message": message, "type": "server_error"});
    let is_refused = messages(body).iter().any(has_all);
    is_refused.then(|| (500, json!({ "error": error })))
}

/// Databricks' Claude, and gateways before Bedrock.
fn databricks(body: &Value) -> Option<Refusal> {
    let is_empty = |message: &Value| message["role"] == "assistant" && message["content"] == "";
    let inner = json!({"message": "messages: text content blocks must be non-empty"}).to_string();
    let error = json!({"error_code": "BAD_REQUEST", "message": inner});
    let is_refused = messages(body).iter().any(is_empty);
    is_refused.then_some((400, error))
}

/// Mistral's models at Azure: only the details name the field.
fn azure_ai(body: &Value) -> Option<Refusal> {
    let fields = ["stream_options", "parallel_tool_calls"];
    let field = fields.into_iter().find(|field| body.get(field).is_some())?;
    let detail = json!({"type": "extra_forbidden", "loc": ["body", field],
        "msg": "Extra inputs are not permitted", "input": body[field]});
    let error = json!({"code": "Invalid input", "status": 422, "message": "invalid input error",
        "details": [detail]});
    Some((422, json!({ "error": error })))
}

fn gemini(body: &Value) -> Option<Refusal> {
    let lacks = |message: &Value| {
        let first = calls(message).into_iter().next();
        first.is_some_and(|call| call["extra_content"]["google"]["thought_signature"].is_null())
    };
    let message = "Function call is missing a thought_signature in functionCall parts.";
    let error = json!({"code": 400, "message": message, "status": "INVALID_ARGUMENT"});
    messages(body)
        .iter()
        .any(lacks)
        .then(|| (400, json!([{ "error": error }])))
}

/// A model of Google's that thinks, with its error for the efforts that it does not know.
fn gemini_efforts(body: &Value, refused: &[&str], message: &str) -> Option<Refusal> {
    let effort = body.get("reasoning_effort").and_then(Value::as_str);
    let error = json!({"code": 400, "message": message, "status": "INVALID_ARGUMENT"});
    match effort.is_some_and(|effort| refused.contains(&effort)) {
        true => Some((400, json!([{ "error": error }]))),
        false => gemini(body),
    }
}

fn gemini_2_5_pro(body: &Value) -> Option<Refusal> {
    let message = "Budget 0 is invalid. This model only works in thinking mode.";
    gemini_efforts(body, &["none"], message)
}

fn gemini_3_pro(body: &Value) -> Option<Refusal> {
    let message = "Thinking level MINIMAL is not supported for this model. Please retry with other thinking level.";
    gemini_efforts(body, &["none", "minimal"], message)
}

/// A gateway in front of the same.
fn gemini_3_pro_behind_a_gateway(body: &Value) -> Option<Refusal> {
    let message = "Thinking level is unsupported: THINKING_LEVEL_MINIMAL";
    gemini_efforts(body, &["none", "minimal"], message)
}

/// A model that does not think.
fn ollama_llama(body: &Value) -> Option<Refusal> {
    let refused = |_| error(400, "\"m\" does not support thinking");
    body.get("reasoning_effort").and_then(refused)
}

fn vllm_without_a_parser(body: &Value) -> Option<Refusal> {
    let message =
        "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set";
    let error = json!({"object": "error", "message": message, "type": "BadRequestError", "param": null, "code": 400});
    body.get("tools").map(|_| (400, error))
}

fn llama_without_jinja(body: &Value) -> Option<Refusal> {
    let error = json!({"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"});
    body.get("tools").map(|_| (500, json!({ "error": error })))
}

/// The order of messages that every server asks for.
fn order(body: &Value) -> Option<Refusal> {
    let mut open: Vec<Value> = Vec::new();
    for message in messages(body) {
        if message["role"] == "tool" {
            let Some(at) = open.iter().position(|id| *id == message["tool_call_id"]) else {
                return error(
                    400,
                    "messages with role 'tool' must be a response to 'tool_calls'",
                );
            };
            open.remove(at);
        } else if !open.is_empty() {
            return error(
                400,
                "'tool_calls' must be followed by tool messages responding to each",
            );
        }
        open.extend(calls(message).into_iter().map(|call| call["id"].clone()));
        if !message["content"].is_string() {
            return error(400, "content: a string is required");
        }
    }
    None
}

fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().map_or(&[], Vec::as_slice)
}

fn calls(message: &Value) -> Vec<&Value> {
    message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .collect()
}

fn plain(delta: Value, reason: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]})
}

fn azure(delta: Value, reason: Value) -> Value {
    let mut chunk = plain(delta, reason);
    chunk["choices"][0]["content_filter_results"] =
        json!({"hate": {"filtered": false, "severity": "safe"}});
    chunk
}

fn openrouter(delta: Value, reason: Value) -> Value {
    let mut chunk = plain(delta, reason.clone());
    chunk["provider"] = json!("Some");
    chunk["choices"][0]["native_finish_reason"] = reason;
    chunk["choices"][0]["delta"]["reasoning"] = json!("canary");
    chunk["choices"][0]["delta"]["reasoning_details"] =
        json!([{"type": "reasoning.text", "text": "canary"}]);
    chunk
}

fn together(mut delta: Value, reason: Value) -> Value {
    let text = delta["content"].as_str().unwrap_or_default().to_owned();
    if delta.get("tool_calls").is_none() {
        delta["tool_calls"] = Value::Null;
    }
    delta["token_id"] = json!(11);
    let choice =
        json!({"index": 0, "text": text, "delta": delta, "seed": null, "finish_reason": reason});
    json!({"id": "o", "choices": [choice], "usage": null})
}

/// DeepSeek thinks before every piece.
fn deepseek_chunk(mut delta: Value, reason: Value) -> Value {
    if delta.get("content").is_none() {
        delta["content"] = Value::Null;
    }
    delta["reasoning_content"] = match delta["content"].is_null() && reason.is_null() {
        true => json!("canary"),
        false => Value::Null,
    };
    plain(delta, reason)
}

/// Cloudflare sends a token that is a number as one.
fn cloudflare(mut delta: Value, reason: Value) -> Value {
    let number = delta["content"].as_str().map(str::parse::<u64>);
    if let Some(Ok(number)) = number {
        delta["content"] = json!(number);
    }
    plain(delta, reason)
}

/// Bedrock leaves the thoughts of gpt-oss in the text.
fn bedrock(mut delta: Value, reason: Value) -> Value {
    if delta.get("role").is_some() {
        delta["content"] = json!("<reasoning>canary</reasoning>");
    }
    plain(delta, reason)
}

/// SGLang counts with every piece, llama.cpp at the end.
fn counted(mut delta: Value, reason: Value) -> Value {
    delta["reasoning_content"] = Value::Null;
    let mut chunk = plain(delta, reason);
    chunk["usage"] = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    chunk["timings"] = json!({"prompt_n": 1});
    chunk
}

/// vLLM leaves special tokens of gpt-oss behind the names of tools.
fn gpt_oss(mut delta: Value, reason: Value) -> Value {
    let name = delta.pointer_mut("/tool_calls/0/function/name");
    if let Some(Value::String(name)) = name {
        name.push_str("<|channel|>commentary");
    }
    plain(delta, reason)
}

/// Gateways in front of other models, and older Ollama.
fn empty_reasons(delta: Value, reason: Value) -> Value {
    plain(delta, if reason.is_null() { json!("") } else { reason })
}

const ROW: Row = Row {
    name: "",
    refuses: nothing,
    before: "",
    chunk: plain,
    style: Style::Pieces,
    reason: "tool_calls",
    refused: &[],
    effort: (None, None),
    failed: None,
};

/// Calls that a model writes as text, in the form of its family, and that its server does not read.
const FAMILIES: [(&str, &str); 29] = [
    (
        "Hermes, Qwen 2.5, Granite 4",
        r#"<tool_call>
{"name": "weather", "arguments": {"city": "Rome"}}
</tool_call>
<tool_call>
{"name": "news", "arguments": {}}
</tool_call>"#,
    ),
    (
        "Qwen3-Coder, Qwen 3.5",
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>\n\
         <tool_call>\n<function=news>\n</function>\n</tool_call>",
    ),
    (
        "Functionary 3.1",
        r#"<function=weather>{"city": "Rome"}</function><function=news>{}</function>"#,
    ),
    (
        "Functionary 3.2",
        "\n>>>weather\n{\"city\": \"Rome\"}\n>>>news\n{}",
    ),
    (
        "Llama 3.x",
        r#"{"name": "weather", "parameters": {"city": "Rome"}}; {"name": "news", "parameters": {}}"#,
    ),
    (
        "Llama 3.x, after its token",
        r#"<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}; {"name": "news", "parameters": {}}<|eom_id|>"#,
    ),
    (
        "Llama 3.x, without the end of its tag",
        r#"<function=weather{"city": "Rome"}</function><function=news{}</function>"#,
    ),
    (
        "Llama 3.2 small, Llama 4",
        r#"[weather(city="Rome"), news()]"#,
    ),
    (
        "Olmo 3",
        "<function_calls>\nweather(city=\"Rome\")\nnews()\n</function_calls>",
    ),
    (
        "LFM",
        r#"<|tool_call_start|>[weather(city="Rome"), news()]<|tool_call_end|>"#,
    ),
    (
        "Mistral",
        r#"[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "news", "arguments": {}}]"#,
    ),
    (
        "Mistral, newer",
        r#"[TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]news[ARGS]{}"#,
    ),
    (
        "LM Studio",
        r#"[TOOL_REQUEST]{"name": "weather", "arguments": {"city": "Rome"}}[END_TOOL_REQUEST]
[TOOL_REQUEST]{"name": "news", "arguments": {}}[END_TOOL_REQUEST]"#,
    ),
    (
        "DeepSeek V3, R1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Rome\"}\n```\
         <｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>news\n```json\n{}\n```<｜tool▁call▁end｜>\
         <｜tool▁calls▁end｜>",
    ),
    (
        "DeepSeek V3.1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Rome\"}<｜tool▁call▁end｜>\
         <｜tool▁call▁begin｜>news<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "Granite 3",
        r#"<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "news", "arguments": {}}]"#,
    ),
    (
        "GLM",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>\n\
         <tool_call>news\n</tool_call>",
    ),
    (
        "Kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>\
         {\"city\": \"Rome\"}<|tool_call_end|><|tool_call_begin|>functions.news:1<|tool_call_argument_begin|>{}\
         <|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        "MiniMax",
        "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Rome</parameter>\n</invoke>\n\
         <invoke name=\"news\">\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "MiniMax M3",
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"weather\">]<]minimax[>[<city>Rome]<]minimax[>[</city>\
         ]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name=\"news\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
    (
        "Seed",
        "<seed:tool_call>\n<function=weather>\n<parameter=city>Rome</parameter>\n</function>\n<function=news>\n\
         </function>\n</seed:tool_call>",
    ),
    (
        "Nemotron",
        r#"<TOOLCALL>[{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "news", "arguments": {}}]</TOOLCALL>"#,
    ),
    (
        "xLAM",
        r#"[{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "news", "arguments": {}}]"#,
    ),
    (
        "xLAM, in a fence",
        "```json\n[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}, \
         {\"name\": \"news\", \"arguments\": {}}]\n```",
    ),
    (
        "gpt-oss",
        "<|channel|>analysis<|message|>canary<|end|><|start|>assistant<|channel|>commentary to=functions.weather \
         <|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|><|start|>assistant<|channel|>commentary \
         to=functions.news <|constrain|>json<|message|>{}<|call|>",
    ),
    (
        "Gemma 3",
        "```tool_code\nweather(city=\"Rome\")\nnews()\n```",
    ),
    (
        "FunctionGemma",
        "<start_function_call>call:weather{city:<escape>Rome<escape>}<end_function_call>\
         <start_function_call>call:news{}<end_function_call>",
    ),
    (
        "Gemma 4",
        "<|channel>thought\ncanary<channel|><|tool_call>call:weather{city:<|\"|>Rome<|\"|>}<tool_call|>\
         <|tool_call>call:news{}<tool_call|>",
    ),
    (
        "Phi 4 mini",
        r#"functools[{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "news", "arguments": {}}]"#,
    ),
];

fn rows() -> Vec<Row> {
    let families = FAMILIES.map(|(name, calls)| Row {
        name,
        style: Style::InText(calls),
        reason: "stop",
        ..ROW
    });
    [servers(), families.to_vec()].concat()
}

fn servers() -> Vec<Row> {
    let azure_first = "data: {\"choices\":[],\"created\":0,\"id\":\"\",\"model\":\"\",\"object\":\"\",\
                       \"prompt_filter_results\":[{\"prompt_index\":0}]}\n\n";
    let limits: &[&str] = &["max_tokens", "temperature"];
    vec![
        Row {
            name: "OpenAI",
            refuses: openai,
            refused: limits,
            ..ROW
        },
        Row {
            name: "OpenAI, o-series",
            refuses: o_series,
            refused: limits,
            effort: (Some("none"), Some("low")),
            ..ROW
        },
        Row {
            name: "OpenAI, GPT-5",
            refuses: gpt_5,
            refused: limits,
            effort: (Some("none"), Some("minimal")),
            ..ROW
        },
        Row {
            name: "OpenAI, GPT-5.1",
            refuses: gpt_5_1,
            refused: limits,
            effort: (Some("minimal"), Some("none")),
            ..ROW
        },
        Row {
            name: "OpenAI, GPT-5.4",
            refuses: gpt_5_4,
            refused: limits,
            effort: (None, Some("none")),
            ..ROW
        },
        Row {
            name: "OpenAI, GPT-5.4, told to think",
            refuses: gpt_5_4,
            refused: limits,
            effort: (Some("high"), Some("none")),
            ..ROW
        },
        Row {
            name: "OpenAI, GPT-4",
            refuses: gpt_4,
            refused: &["reasoning_effort"],
            effort: (Some("none"), None),
            ..ROW
        },
        Row {
            name: "Azure OpenAI",
            refuses: openai,
            refused: limits,
            before: azure_first,
            chunk: azure,
            ..ROW
        },
        Row {
            name: "Azure AI, Mistral",
            refuses: azure_ai,
            style: Style::Whole,
            refused: &["parallel_tool_calls", "stream_options"],
            ..ROW
        },
        Row {
            name: "Cloudflare",
            chunk: cloudflare,
            style: Style::Numbers,
            reason: "stop",
            ..ROW
        },
        Row {
            name: "Databricks, Claude",
            refuses: databricks,
            style: Style::Generic,
            refused: &["messages.content.empty"],
            ..ROW
        },
        Row {
            name: "Groq",
            refuses: groq,
            style: Style::Whole,
            ..ROW
        },
        Row {
            name: "Groq, gpt-oss",
            refuses: groq_gpt_oss,
            style: Style::Whole,
            effort: (Some("none"), Some("low")),
            ..ROW
        },
        Row {
            name: "Qwen 3.8, asked for few thoughts",
            refuses: qwen,
            effort: (Some("minimal"), Some("low")),
            ..ROW
        },
        Row {
            name: "Qwen 3.8, asked for many thoughts",
            refuses: qwen,
            refused: &["reasoning_effort"],
            effort: (Some("high"), None),
            ..ROW
        },
        Row {
            name: "Qwen 3.8, whose template's errors are the server's",
            refuses: qwen_as_a_fault_of_the_server,
            effort: (Some("minimal"), Some("low")),
            ..ROW
        },
        Row {
            name: "LiteLLM, Claude with an effort",
            refuses: claude_behind_litellm,
            refused: &["reasoning_effort"],
            effort: (Some("low"), None),
            ..ROW
        },
        Row {
            name: "LiteLLM, Groq",
            refuses: groq_behind_a_gateway,
            chunk: deepseek_chunk,
            refused: &["messages.reasoning_content"],
            ..ROW
        },
        Row {
            name: "a gateway that takes no thoughts",
            refuses: takes_no_thoughts,
            chunk: deepseek_chunk,
            refused: &["messages.reasoning_content"],
            ..ROW
        },
        Row {
            name: "xAI",
            refuses: xai,
            refused: &["reasoning_effort"],
            effort: (Some("none"), None),
            ..ROW
        },
        Row {
            name: "OpenRouter",
            before: ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
            chunk: openrouter,
            ..ROW
        },
        Row {
            name: "OpenRouter, GPT-5",
            refuses: gpt_5_behind_openrouter,
            chunk: openrouter,
            refused: limits,
            effort: (Some("none"), Some("minimal")),
            ..ROW
        },
        Row {
            name: "Together",
            chunk: together,
            ..ROW
        },
        Row {
            name: "Poolside",
            style: Style::OtherIds,
            ..ROW
        },
        Row {
            name: "Mistral",
            refuses: mistral,
            style: Style::Whole,
            refused: &["stream_options"],
            ..ROW
        },
        Row {
            name: "DeepSeek",
            refuses: deepseek,
            before: ": keep-alive\n\n",
            chunk: deepseek_chunk,
            ..ROW
        },
        Row {
            name: "Kimi",
            refuses: kimi,
            chunk: deepseek_chunk,
            ..ROW
        },
        Row {
            name: "Gemini",
            refuses: gemini,
            style: Style::Signed,
            reason: "stop",
            ..ROW
        },
        Row {
            name: "Gemini 2.5 Pro",
            refuses: gemini_2_5_pro,
            style: Style::Signed,
            reason: "stop",
            effort: (Some("none"), Some("minimal")),
            ..ROW
        },
        Row {
            name: "Gemini 3 Pro",
            refuses: gemini_3_pro,
            style: Style::Signed,
            reason: "stop",
            effort: (Some("none"), Some("low")),
            ..ROW
        },
        Row {
            name: "LiteLLM, Gemini 3 Pro",
            refuses: gemini_3_pro_behind_a_gateway,
            style: Style::Signed,
            reason: "stop",
            effort: (Some("none"), Some("low")),
            ..ROW
        },
        Row {
            name: "vLLM",
            ..ROW
        },
        Row {
            name: "vLLM, a parser that leaks",
            style: Style::SecondInText,
            ..ROW
        },
        Row {
            name: "vLLM, gpt-oss",
            chunk: gpt_oss,
            ..ROW
        },
        Row {
            name: "Bedrock, gpt-oss",
            chunk: bedrock,
            ..ROW
        },
        Row {
            name: "SGLang",
            chunk: counted,
            style: Style::EmptyIds,
            reason: "stop",
            ..ROW
        },
        Row {
            name: "llama.cpp",
            chunk: counted,
            ..ROW
        },
        Row {
            name: "llama.cpp, gpt-oss",
            refuses: gpt_oss_in_llama,
            chunk: deepseek_chunk,
            refused: &["messages.reasoning_content.beside_both"],
            ..ROW
        },
        Row {
            name: "llama.cpp, the generic form",
            style: Style::Generic,
            chunk: counted,
            ..ROW
        },
        Row {
            name: "Ollama",
            style: Style::Whole,
            ..ROW
        },
        Row {
            name: "Ollama, a model that does not think",
            refuses: ollama_llama,
            style: Style::Whole,
            refused: &["reasoning_effort"],
            effort: (Some("low"), None),
            ..ROW
        },
        Row {
            name: "Ollama, older",
            style: Style::SameIndex,
            reason: "stop",
            chunk: empty_reasons,
            ..ROW
        },
        Row {
            name: "TGI",
            style: Style::Whole,
            reason: "eos_token",
            ..ROW
        },
        Row {
            name: "a gateway",
            chunk: empty_reasons,
            ..ROW
        },
    ]
}

impl Row {
    /// The stream that answers a request.
    fn answer(&self, body: &Value) -> String {
        let is_asked = messages(body)
            .last()
            .is_some_and(|message| message["role"] == "user");
        let is_first = !messages(body)
            .iter()
            .any(|message| message["role"] == "tool");
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        let (words, reason) = match is_asked && is_first {
            true => (self.words(), self.reason),
            false => (ANSWER, "stop"),
        };
        deltas.extend(self.pieces(words));
        if is_asked && is_first {
            deltas.extend(self.calls());
        }
        let mut chunks: Vec<Value> = deltas
            .into_iter()
            .map(|delta| (self.chunk)(delta, Value::Null))
            .collect();
        chunks.push((self.chunk)(json!({}), json!(reason)));
        if body["stream_options"]["include_usage"] == true {
            let usage = json!({"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29});
            chunks.push(json!({"id": "chatcmpl-1", "choices": [], "usage": usage}));
        }
        let chunks: String = chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect();
        format!("{}{chunks}{DONE}", self.before)
    }

    /// The most places at which its stream is cut. The parser of text has its own test with every cut.
    fn places(&self) -> usize {
        match self.style {
            Style::InText(_) => 20,
            _ => 80,
        }
    }

    /// The deltas of a text.
    fn pieces(&self, text: &str) -> Vec<Value> {
        let is_same = |a: &char, b: &char| a.is_ascii_digit() == b.is_ascii_digit();
        let chars: Vec<char> = text.chars().collect();
        let pieces: Vec<&[char]> = match self.style {
            Style::Numbers => chars.chunk_by(is_same).collect(),
            _ => chars.chunks(chars.len().div_ceil(2).max(1)).collect(),
        };
        let pieces = pieces.into_iter().map(String::from_iter);
        pieces
            .map(|piece: String| json!({ "content": piece }))
            .collect()
    }

    /// The words before the calls.
    fn words(&self) -> &'static str {
        match self.style {
            Style::Generic => "",
            Style::Numbers => NUMBERS,
            _ => WORDS,
        }
    }

    /// The deltas of the calls.
    fn calls(&self) -> Vec<Value> {
        let deltas = |calls: Vec<Value>| {
            calls
                .into_iter()
                .map(|call| json!({"tool_calls": [call]}))
                .collect()
        };
        let whole = |index: usize, id: &str, name: &str, arguments: &str| {
            json!({"index": index, "id": id, "type": "function",
                "function": {"name": name, "arguments": arguments}})
        };
        let rome = "{\"city\":\"Rome\"}";
        let pieces = |more: &dyn Fn(&str) -> Value| {
            let mut calls = vec![whole(0, "call_rome", "weather", "")];
            calls.extend(["{\"ci", "ty\":\"", "Rome", "\"}"].map(more));
            calls.push(whole(1, "call_news", "news", "{}"));
            calls
        };
        match self.style {
            Style::Pieces => deltas(pieces(
                &|piece| json!({"index": 0, "function": {"arguments": piece}}),
            )),
            Style::EmptyIds => deltas(pieces(
                &|piece| json!({"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": piece}}),
            )),
            Style::OtherIds => deltas(pieces(
                &|piece| json!({"index": 0, "id": "call_other", "function": {"arguments": piece}}),
            )),
            Style::Whole | Style::Generic => deltas(vec![
                whole(0, "call_rome", "weather", rome),
                whole(1, "call_news", "news", "{}"),
            ]),
            Style::SameIndex => deltas(vec![
                whole(0, "call_rome", "weather", rome),
                whole(0, "call_news", "news", "{}"),
            ]),
            Style::Signed => {
                let call = |name: &str, arguments: &str| {
                    json!({"type": "function",
                    "function": {"name": name, "arguments": arguments}})
                };
                let mut first = call("weather", rome);
                first["extra_content"] = json!({"google": {"thought_signature": "canary"}});
                deltas(vec![first, call("news", "{}")])
            }
            Style::InText(calls) => {
                let chars: Vec<char> = calls.chars().collect();
                let pieces = chars
                    .chunks(5)
                    .map(|piece| piece.iter().collect::<String>());
                pieces.map(|piece| json!({ "content": piece })).collect()
            }
            Style::Numbers => self.pieces(
                "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome 7\"}}</tool_call>\
                 <tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
            ),
            Style::SecondInText => vec![
                json!({"tool_calls": [whole(0, "call_rome", "weather", rome)]}),
                json!({"content": "<tool_call>{\"name\": \"news\", \"arg"}),
                json!({"content": "uments\": {}}</tool_call>"}),
            ],
        }
    }

    /// The calls that are committed.
    fn expected(&self) -> Vec<(String, Value)> {
        let city = match self.style {
            Style::Numbers => "Rome 7",
            _ => "Rome",
        };
        let weather = ("weather".to_owned(), json!({ "city": city }));
        vec![weather, ("news".to_owned(), json!({}))]
    }
}

/// How a stream is cut into pieces.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Pieces(usize),
    At(usize),
    Random(u64),
    /// The connection ends here.
    Broken(usize),
}

impl Cut {
    fn pieces(self, text: &str) -> Vec<Bytes> {
        let bytes = text.as_bytes();
        let mut pieces = Vec::new();
        match self {
            Self::Pieces(size) => pieces.extend(bytes.chunks(size)),
            Self::At(at) => pieces.extend([&bytes[..at], &bytes[at..]]),
            Self::Broken(at) => pieces.push(&bytes[..at]),
            Self::Random(mut seed) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let size = (1 + (seed >> 33) as usize % 40).min(rest.len());
                    pieces.push(&rest[..size]);
                    rest = &rest[size..];
                }
            }
        }
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        pieces.map(Bytes::copy_from_slice).collect()
    }
}

#[derive(Clone)]
struct Scripted {
    row: Row,
    cut: Arc<Mutex<Cut>>,
    /// The length of the last stream.
    length: Arc<Mutex<usize>>,
    /// Instead of the row's stream.
    stream: Option<String>,
}

async fn chat(State(server): State<Scripted>, Json(body): Json<Value>) -> Response {
    if let Some((status, body)) = (server.row.refuses)(&body).or_else(|| order(&body)) {
        let status = StatusCode::from_u16(status).expect("a status");
        return (status, axum::Json(body)).into_response();
    }
    let is_first = messages(&body).iter().all(|m| m["role"] != "tool");
    if let Some(failed) = server.row.failed.filter(|_| is_first) {
        return failed.response();
    }
    let text = server
        .stream
        .clone()
        .unwrap_or_else(|| server.row.answer(&body));
    *server.length.lock().expect("a length") = text.len();
    let pieces = server.cut.lock().expect("a cut").pieces(&text);
    let pieces = stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
    (
        [("content-type", "text/event-stream")],
        Body::from_stream(pieces),
    )
        .into_response()
}

impl Scripted {
    fn start(row: Row, stream: Option<String>, calls: Calls) -> (Self, Remote) {
        let server = Self {
            row,
            cut: Arc::new(Mutex::new(Cut::Pieces(usize::MAX))),
            length: Arc::default(),
            stream,
        };
        let routes = Router::new()
            .route("/v1/chat/completions", post(chat))
            .with_state(server.clone());
        let url = format!("http://{}/v1", serve_on_a_thread(routes));
        let mut settings = Settings::new(url.parse().expect("an address"), "m");
        settings.temperature = Some(0.5);
        settings.max_tokens = Some(300);
        settings.calls = calls;
        settings.reasoning_effort = row.effort.0.map(str::to_owned);
        let llm = Remote::new(settings, Prompts::default()).expect("a client");
        (server, llm)
    }

    fn cut(&self, cut: Cut) {
        *self.cut.lock().expect("a cut") = cut;
    }

    /// Places in the last stream, at most this many, evenly spread.
    fn places(&self, most: usize) -> impl Iterator<Item = usize> {
        let length = *self.length.lock().expect("a length");
        (1..length).step_by(length.div_ceil(most))
    }
}

fn prompt(messages: Vec<Message>) -> Prompt {
    let tool = |name: &str| ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: "Looks it up.".into(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
    };
    Prompt {
        instructions: None,
        day: None,
        messages,
        tools: vec![tool("weather"), tool("news")].into(),
        demands: Demands::default(),
    }
}

fn question() -> Vec<Message> {
    vec![Message::User {
        text: "What is new in Rome?".into(),
    }]
}

/// The question, the calls and their results, and an interruption of the answer.
fn history(row: &Row) -> Vec<Message> {
    let mut messages = question();
    messages.push(Message::Agent {
        text: row.words().into(),
        interrupted: false,
    });
    let calls = row.expected();
    for (name, arguments) in &calls {
        messages.push(Message::ToolCall {
            id: format!("call_{name}"),
            name: name.clone(),
            arguments: arguments.as_object().cloned().expect("arguments"),
        });
    }
    for (name, _) in &calls {
        messages.push(Message::ToolResult {
            id: format!("call_{name}"),
            name: name.clone(),
            output: json!({"sky": "clear"}),
        });
    }
    messages.push(Message::User {
        text: "And now?".into(),
    });
    messages
}

/// Words, committed calls, refused calls, and the error.
type Outcome = (String, Vec<(String, Value)>, usize, Option<LlmError>);

async fn outcome(llm: &Remote, messages: Vec<Message>) -> Outcome {
    let (mut words, mut calls, mut refused) = (String::new(), Vec::new(), 0);
    let (mut open, mut error, mut has_ended) = (String::new(), None, false);
    let read = llm.generate(prompt(messages)).for_each(|event| {
        match event {
            Ok(LlmEvent::Speech { text }) => words.push_str(&text),
            Ok(LlmEvent::ToolOpened { name }) => open = name,
            Ok(LlmEvent::ToolClosed { arguments: Ok(map) }) => {
                calls.push((open.clone(), Value::Object(map)));
            }
            Ok(LlmEvent::ToolClosed { .. }) => refused += 1,
            Ok(LlmEvent::End) => has_ended = true,
            Ok(_) => {}
            Err(reason) => error = Some(reason),
        }
        std::future::ready(())
    });
    tokio::time::timeout(PATIENCE, read).await.expect("an end");
    assert!(has_ended != error.is_some(), "an end or an error");
    (words.trim().to_owned(), calls, refused, error)
}

#[tokio::test]
async fn every_server_is_understood_under_every_cut() {
    for row in rows() {
        let (server, llm) = Scripted::start(row, None, Calls::Native);
        let (expected, name) = (row.expected(), row.name);
        let (_, _, _, error) = outcome(&llm, question()).await;
        assert!(error.is_none(), "{name}: {error:?}");
        let sizes = [1, 2, 3, 7].map(Cut::Pieces);
        let random = (0..12).map(Cut::Random);
        let cuts: Vec<Cut> = server
            .places(row.places())
            .map(Cut::At)
            .chain(sizes)
            .chain(random)
            .collect();
        for cut in cuts {
            server.cut(cut);
            let (words, calls, refused, error) = outcome(&llm, question()).await;
            assert!(
                error.is_none() && refused == 0,
                "{name}, {cut:?}: {error:?}"
            );
            assert_eq!(
                (words.as_str(), &calls),
                (row.words(), &expected),
                "{name}, {cut:?}"
            );
        }
        for cut in [Cut::Pieces(1), Cut::Pieces(5), Cut::Random(7)] {
            server.cut(cut);
            let (words, calls, _, error) = outcome(&llm, history(&row)).await;
            assert!(error.is_none(), "{name}: {error:?}");
            assert_eq!((words.as_str(), calls.len()), (ANSWER, 0), "{name}");
        }
        let mut refused = llm.refused();
        refused.sort_unstable();
        assert_eq!(refused, row.refused, "{name}");
        assert_eq!(llm.effort(), row.effort.1, "{name}");
    }
}

#[tokio::test]
async fn a_stream_of_any_server_that_breaks_off_commits_nothing_but_whole_calls() {
    for row in rows() {
        let (server, llm) = Scripted::start(row, None, Calls::Native);
        let (expected, name) = (row.expected(), row.name);
        assert!(outcome(&llm, question()).await.3.is_none());
        let places: Vec<usize> = server.places(row.places()).collect();
        for at in places {
            server.cut(Cut::Broken(at));
            let (words, calls, _, _) = outcome(&llm, question()).await;
            assert!(row.words().starts_with(&words), "{name}, {at}: {words}");
            assert!(expected.starts_with(&calls), "{name}, {at}: {calls:?}");
        }
    }
}

/// Each turn behind a thoughtful answer without a call was refused, and so were the first turn behind a greeting, behind
/// a call without thoughts, and behind another model.
#[tokio::test]
async fn deepseek_gets_thoughts_with_every_message_of_the_agent() {
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    fn refuses(body: &Value) -> Option<Refusal> {
        let refusal = deepseek(body);
        REFUSED.fetch_add(usize::from(refusal.is_some()), Relaxed);
        refusal
    }
    let row = Row {
        name: "DeepSeek",
        refuses,
        chunk: deepseek_chunk,
        ..ROW
    };
    let said = |text: &str| Message::Agent {
        text: text.into(),
        interrupted: false,
    };
    let greeted = || [vec![said("Hello!")], question()].concat();
    let answered = || [greeted(), vec![said(ANSWER)], question()].concat();
    let chunks = [
        deepseek_chunk(json!({}), Value::Null),
        deepseek_chunk(json!({"content": ANSWER}), Value::Null),
        deepseek_chunk(json!({}), json!("stop")),
    ];
    let chunks = chunks.map(|chunk| format!("data: {chunk}\n\n"));
    let thoughtful = format!("{}{DONE}", chunks.concat());
    // Its own thoughts show what it wants; before, it is refused once.
    for (first, refusals) in [(question(), 0), (greeted(), 1), (history(&row), 1)] {
        let (_, llm) = Scripted::start(row, Some(thoughtful.clone()), Calls::Native);
        for messages in [first, answered(), history(&row), answered()] {
            let (words, _, _, error) = outcome(&llm, messages).await;
            assert!(error.is_none(), "{error:?}");
            assert_eq!(words, ANSWER);
        }
        assert_eq!(REFUSED.swap(0, Relaxed), refusals);
        assert!(llm.refused().is_empty());
    }
}

/// It was taken for one that does not know them.
#[tokio::test]
async fn a_server_that_misses_thoughts_gets_them_whatever_its_words() {
    fn refuses(body: &Value) -> Option<Refusal> {
        deepseek(body)?;
        let message = "Unexpected message: without reasoning_content it is not supported.";
        error(422, message)
    }
    let row = Row {
        name: "a gateway",
        refuses,
        ..ROW
    };
    let (_, llm) = Scripted::start(row, None, Calls::Native);
    let (words, _, _, error) = outcome(&llm, history(&row)).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(words, ANSWER);
    assert!(llm.refused().is_empty());
}

/// Behind a gateway one provider may want thoughts back that another does not know.
#[tokio::test]
async fn a_server_that_refuses_a_history_with_thoughts_and_without_them_is_not_asked_on_and_on() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    fn refuses(body: &Value) -> Option<Refusal> {
        ASKED.fetch_add(1, Relaxed);
        groq_behind_a_gateway(body).or_else(|| deepseek(body))
    }
    let row = Row {
        name: "a gateway",
        refuses,
        ..ROW
    };
    let (_, llm) = Scripted::start(row, None, Calls::Native);
    // Without, with, and without from then on.
    for asked in [3, 1] {
        let (_, _, _, error) = outcome(&llm, history(&row)).await;
        let error = error.expect("a refusal").details();
        assert!(error.contains("must be passed back"), "{error}");
        assert_eq!(ASKED.swap(0, Relaxed), asked);
    }
    assert_eq!(llm.refused(), ["messages.reasoning_content"]);
}

/// In markup such a server needs no parser of calls.
#[tokio::test]
async fn a_server_without_native_calls_says_so_and_answers_in_markup() {
    for (name, refuses, reason) in [
        (
            "vLLM",
            vllm_without_a_parser as fn(&Value) -> Option<Refusal>,
            "--enable-auto-tool-choice",
        ),
        ("llama.cpp", llama_without_jinja, "--jinja"),
    ] {
        let row = Row {
            name,
            refuses,
            ..ROW
        };
        let (_, native) = Scripted::start(row, None, Calls::Native);
        let (words, calls, _, error) = outcome(&native, question()).await;
        assert!(words.is_empty() && calls.is_empty(), "{name}");
        let error = error.expect("a refusal").details();
        assert!(error.contains(reason), "{name}: {error}");
        let text = "<speech>Let me look.</speech><tool>weather(city=\"Rome\")</tool>";
        let chunks = [
            plain(json!({"content": text}), Value::Null),
            plain(json!({}), json!("stop")),
        ];
        let stream: String = chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect();
        let (_, markup) = Scripted::start(row, Some(format!("{stream}{DONE}")), Calls::Markup);
        let (words, calls, _, error) = outcome(&markup, question()).await;
        assert!(error.is_none(), "{name}: {error:?}");
        assert_eq!((words.as_str(), calls.len()), (WORDS, 1), "{name}");
    }
}

/// Streams with a call whose arguments look complete, and a bad end: the name, the stream, and a part of the error.
fn bad_ends() -> Vec<(&'static str, String, &'static str)> {
    let call = json!({"index": 0, "id": "a", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}});
    let calls = plain(json!({"tool_calls": [call]}), Value::Null);
    let reason = |reason: &str| plain(json!({}), json!(reason));
    let llama =
        json!({"error": {"code": 500, "message": "Failed to parse input", "type": "server_error"}});
    let openrouter = json!({"id": "gen", "error": {"code": 502, "message": "Provider disconnected"},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
    let ends = [
        (
            "DeepSeek, out of capacity",
            Some(reason("insufficient_system_resource")),
            "",
        ),
        ("vLLM, aborted", Some(reason("abort")), ""),
        ("the token limit", Some(reason("length")), ""),
        (
            "the content filter",
            Some(reason("content_filter")),
            "content filter",
        ),
        ("LM Studio, context overrun: no reason", None, ""),
        (
            "llama.cpp, its parser failed",
            Some(llama),
            "Failed to parse input",
        ),
        (
            "OpenRouter, after the first token",
            Some(openrouter),
            "Provider disconnected",
        ),
        (
            "older vLLM",
            Some(json!({"object": "error", "message": "too long", "code": 400})),
            "too long",
        ),
        (
            "Mistral",
            Some(json!({"object": "error", "message": {"detail": [{"msg": "bad"}]}, "code": null})),
            "bad",
        ),
    ];
    let stream = |last: Option<Value>| {
        let words = plain(json!({"content": WORDS}), Value::Null);
        let chunks = [Some(words), Some(calls.clone()), last];
        let chunks = chunks.iter().flatten();
        let stream: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).collect();
        format!("{stream}{DONE}")
    };
    let older = json!({"code": 400, "message": "exceeds the available context", "type": "invalid_request_error"});
    let older = stream(None).replace(DONE, &format!("error: {older}\n\n{DONE}"));
    let older = ("llama.cpp, until the end of 2025", older, "exceeds the");
    let ends = ends.into_iter();
    ends.map(|(name, last, part)| (name, stream(last), part))
        .chain([older])
        .collect()
}

#[tokio::test]
async fn no_bad_end_commits_a_call_under_any_cut() {
    for (name, stream, error_part) in bad_ends() {
        let (server, llm) = Scripted::start(ROW, Some(stream), Calls::Native);
        outcome(&llm, question()).await;
        let cuts: Vec<Cut> = server
            .places(60)
            .map(Cut::At)
            .chain([Cut::Pieces(1)])
            .collect();
        for cut in cuts {
            server.cut(cut);
            let (words, calls, refused, error) = outcome(&llm, question()).await;
            assert_eq!((words.as_str(), calls), (WORDS, vec![]), "{name}, {cut:?}");
            let error = error.map(|error| error.details());
            let is_told = error
                .as_ref()
                .is_some_and(|error| error.contains(error_part));
            assert!(
                is_told || error_part.is_empty() && refused == 1,
                "{name}, {cut:?}: {error:?}"
            );
        }
    }
}

/// A tool that notes its runs.
struct Noted {
    declaration: Declaration,
    runs: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Tool for Noted {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let run = (self.declaration.spec.name.clone(), Value::Object(arguments));
        self.runs.lock().expect("no panic").push(run);
        Box::pin(std::future::ready(Ok(json!({"sky": "clear"}))))
    }
}

/// A question to a session with this model: what was said, how the response ended, and the runs of its tools in the
/// order of their names.
async fn session(llm: Remote) -> (String, String, Vec<(String, Value)>) {
    let runs = Arc::default();
    let mut tools = Registry::new();
    for spec in prompt(Vec::new()).tools.iter() {
        let declaration =
            Declaration::new(spec.clone(), Effect::Reversible, Duration::from_secs(9));
        let runs = Arc::clone(&runs);
        let tool = Arc::new(Noted { declaration, runs });
        tools.register(tool).expect("no duplicates");
    }
    let server = live::serve(Builders {
        tools: tools.into(),
        ..live::without_models(Arc::new(llm))
    });
    let mut client = server.realtime().await;
    let item = json!({"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "What is new in Rome?"}]});
    let item = json!({"type": "conversation.item.create", "item": item});
    client.send(item).await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    let words = events
        .iter()
        .filter(|event| event["type"] == "response.output_audio_transcript.delta")
        .filter_map(|event| event["delta"].as_str());
    let status = &events.last().expect("one")["response"]["status"];
    let status = status.as_str().expect("a status").to_owned();
    let mut runs = std::mem::take(&mut *runs.lock().expect("no panic"));
    runs.sort_by(|a: &(String, Value), b| a.0.cmp(&b.0));
    (words.collect(), status, runs)
}

/// The outcomes of these sessions, a few at a time: a server whose client waits for its turn hangs up.
async fn a_few_at_a_time<S: Future>(sessions: impl IntoIterator<Item = S>) -> Vec<S::Output> {
    stream::iter(sessions).buffered(4).collect().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_every_server_a_session_answers_aloud_and_makes_each_call_once() {
    let sessions = rows().into_iter().map(|row| async move {
        let (server, llm) = Scripted::start(row, None, Calls::Native);
        server.cut(Cut::Random(11));
        (row, session(llm).await)
    });
    for (row, (said, status, runs)) in a_few_at_a_time(sessions).await {
        let name = row.name;
        assert_eq!(status, "completed", "{name}: {said}");
        let rest = without_fillers(&said).replace([' ', '\n'], "");
        let answer = ANSWER.replace(' ', "");
        let before = rest.strip_suffix(&answer);
        let announced = row.words().replace(' ', "");
        // An announcement is not said if the answer is there before it.
        assert!(
            before.is_some_and(|before| before.is_empty() || before == announced),
            "{name}: {said}"
        );
        let mut expected = row.expected();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(runs, expected, "{name}");
    }
}

/// Leaves out the server's own fillers, which bridge waits: on a busy machine there are some.
fn without_fillers(said: &str) -> String {
    let phrases = Phrases::default();
    let mut said = said.to_owned();
    for filler in [phrases.still_working, phrases.one_moment] {
        for clause in Clauses::of(pack(None), &filler) {
            said = said.replace(&clause, "");
        }
    }
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_every_bad_end_a_session_apologises_once_and_calls_nothing() {
    let sessions = bad_ends().into_iter().map(|(name, stream, _)| async move {
        let (_, llm) = Scripted::start(ROW, Some(stream), Calls::Native);
        (name, session(llm).await)
    });
    let apology = Phrases::default().llm_failed;
    for (name, (said, status, runs)) in a_few_at_a_time(sessions).await {
        assert_eq!(runs, [], "{name}");
        assert_eq!(status, "failed", "{name}: {said}");
        let rest = without_fillers(&said.replace(&apology, "#")).replace(WORDS, "");
        assert_eq!(rest.trim(), "#", "{name}: {said}");
    }
}

/// A server that refuses a forced call: the note in the prompt asks for it, and `none` is still sent.
#[tokio::test]
async fn a_forced_call_that_the_server_refuses_is_asked_for_by_the_note() {
    static SEEN: Mutex<Vec<Value>> = Mutex::new(Vec::new());
    fn refuses(body: &Value, refusal: impl Fn() -> Option<Refusal>) -> Option<Refusal> {
        SEEN.lock().expect("no panic").push(body.clone());
        let choice = &body["tool_choice"];
        match choice.is_null() || choice == "auto" || choice == "none" {
            true => None,
            false => refusal(),
        }
    }
    fn by_name(body: &Value) -> Option<Refusal> {
        let message = "tool_choice: only \"auto\" and \"none\" are supported";
        refuses(body, || error(400, message))
    }
    fn openrouter(body: &Value) -> Option<Refusal> {
        let message = "No endpoints found that support the provided 'tool_choice' value.";
        refuses(body, || {
            Some((404, json!({"error": {"message": message, "code": 404}})))
        })
    }
    for refuses in [by_name as fn(&Value) -> Option<Refusal>, openrouter] {
        let row = Row {
            name: "no forced calls",
            refuses,
            ..ROW
        };
        let (_, llm) = Scripted::start(row, None, Calls::Native);
        forced_calls_are_asked_for_by_the_note(&llm).await;
        let seen = std::mem::take(&mut *SEEN.lock().expect("no panic"));
        let choices: Vec<_> = seen
            .iter()
            .map(|body| body["tool_choice"].clone())
            .collect();
        assert_eq!(
            choices,
            [json!("required"), Value::Null, Value::Null, json!("none")]
        );
        for body in &seen[..3] {
            let last = body["messages"].as_array().expect("messages").last();
            let last = last.expect("one")["content"].to_string();
            assert!(
                last.contains("Answer with a call to one of your tools."),
                "{last}"
            );
        }
    }
}

/// Asks for two forced calls and one answer without a call.
async fn forced_calls_are_asked_for_by_the_note(llm: &Remote) {
    let mut forced = prompt(question());
    forced.demands.tool_choice = ToolChoice::Required;
    let mut forbidden = prompt(question());
    forbidden.demands.tool_choice = ToolChoice::None;
    for prompt in [forced.clone(), forced, forbidden] {
        let events: Vec<_> = llm.generate(prompt).collect().await;
        assert!(events.iter().all(Result::is_ok), "{events:?}");
    }
    assert_eq!(llm.refused(), ["tool_choice.forced"]);
}

/// A row for Groq's parser, which could not read the call in the model's answer.
fn groq_failed(failed: Failed) -> Row {
    Row {
        name: "Groq",
        refuses: groq,
        failed: Some(failed),
        ..ROW
    }
}

#[tokio::test]
async fn groqs_failed_generation_is_read_once() {
    let text = "Let me look. <function=weather>{\"city\": \"Rome\"}</function>";
    for failed in [Failed::Refused(text), Failed::InStream(text)] {
        let (_, llm) = Scripted::start(groq_failed(failed), None, Calls::Native);
        let (words, calls, _, error) = outcome(&llm, question()).await;
        assert!(error.is_none(), "{failed:?}: {error:?}");
        let rome = ("weather".to_owned(), json!({"city": "Rome"}));
        assert_eq!((words.as_str(), calls), (WORDS, vec![rome]), "{failed:?}");
    }
}

/// The outcome of an answer that Groq's server could not read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The call is made, and its result answered.
    Calls,
    /// The call is refused, and the model answers without it.
    Answers,
    /// There is no call in it, so none of it is spoken.
    Apologises,
}

/// Forms that users of Groq report, and worse ones.
const FAILED: [(&str, Then); 12] = [
    (
        "Let me look. <function=weather>{\"city\": \"Rome\"}</function>",
        Then::Calls,
    ),
    (
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>",
        Then::Calls,
    ),
    (
        "<function=weather{\"city\": \"Rome\"}</function>",
        Then::Calls,
    ),
    (
        "<function=weather={\"city\": \"Rome\"}</function>",
        Then::Calls,
    ),
    (
        "<function=weather({\"city\": \"Rome\"})></function>",
        Then::Calls,
    ),
    ("<function=weather{\"city\": \"Rome\"}", Then::Calls),
    ("<function=weather{\"city\": \"Ro</function>", Then::Answers),
    ("<function=weather>{\"city\": \"Ro", Then::Answers),
    ("<function=erase>{}</function>", Then::Answers),
    (
        "Tool use failed: JSON does not match the expected schema for tool calls",
        Then::Apologises,
    ),
    ("It is sunny.", Then::Apologises),
    ("", Then::Apologises),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_groqs_failed_generation_a_session_answers_or_apologises_and_makes_no_other_call() {
    let cases = FAILED.into_iter().flat_map(|(text, then)| {
        [Failed::Refused(text), Failed::InStream(text)].map(|failed| (failed, then))
    });
    let sessions = cases.map(|(failed, then)| async move {
        let (_, llm) = Scripted::start(groq_failed(failed), None, Calls::Native);
        (failed, then, session(llm).await)
    });
    let apology = Phrases::default().llm_failed;
    let rome = ("weather".to_owned(), json!({"city": "Rome"}));
    for (failed, then, (said, status, runs)) in a_few_at_a_time(sessions).await {
        let (expected, ends, calls) = match then {
            Then::Calls => (ANSWER, "completed", vec![rome.clone()]),
            Then::Answers => (ANSWER, "completed", vec![]),
            Then::Apologises => (apology.as_str(), "failed", vec![]),
        };
        // An announcement is not said if the answer is there before it.
        let said = said.replace([' ', '\n'], "");
        let said = said.trim_start_matches(&WORDS.replace(' ', ""));
        assert_eq!(said, expected.replace(' ', ""), "{failed:?}");
        assert_eq!((status.as_str(), runs), (ends, calls), "{failed:?}");
    }
}
