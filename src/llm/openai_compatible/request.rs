//! Requests for a chat completion, without the parameters that the server has refused.

use crate::llm::prompt::{BETWEEN, ChatMessage, Role, by_name};
use crate::llm::remote::{
    FORCED, NO_WORDS, Settings, THOUGHTS_BACK, THOUGHTS_BESIDE_BOTH, Takes, Vocabulary,
};
use crate::llm::untrusted::{sanitise, sanitise_json};
use crate::llm::{Calls, Prompt, ToolChoice};
use crate::tools::ToolSpec;
use serde_json::{Map, Value, json};

/// Parts of the messages that providers want back with calls.
const DETAILS: &str = "messages.reasoning_details";
const EXTRA: &str = "messages.extra_content";

/// The parameters that a server may refuse. Most know `max_tokens`, OpenAI's models from the o-series and GPT-5 on
/// only the other name.
pub(super) static VOCABULARY: Vocabulary = Vocabulary {
    limits: &["max_tokens", "max_completion_tokens"],
    optional: &[
        ("stream_options", &["stream_options", "include_usage"]),
        (
            "reasoning_effort",
            &[
                "reasoning_effort",
                "reasoning.effort",
                ".effort",
                "reasoningEffort",
            ],
        ),
        ("temperature", &["temperature"]),
        ("parallel_tool_calls", &["parallel_tool_calls"]),
        (FORCED, &["tool_choice"]),
        ("tool_choice", &["tool_choice"]),
        ("seed", &["seed"]),
        (THOUGHTS_BACK, &["reasoning_content"]),
        (DETAILS, &["reasoning_details"]),
        (EXTRA, &["extra_content"]),
    ],
};

/// Takes out of the messages what the server does not take, and adds words where it wants some. A gateway may send
/// thoughts of a provider that refuses to get them back.
pub(super) fn fit(messages: &mut [ChatMessage], takes: &Takes) {
    for message in messages {
        let is_mute = message.role == Role::Assistant && message.content.is_empty();
        if is_mute && !takes.has(NO_WORDS) {
            BETWEEN.clone_into(&mut message.content);
        }
        let has_both = !message.content.is_empty() && !message.tool_calls.is_empty();
        let may_think = !has_both || takes.has(THOUGHTS_BESIDE_BOTH);
        if !may_think || !takes.has(THOUGHTS_BACK) {
            message.reasoning_content = None;
        }
        if !takes.has(DETAILS) {
            message.reasoning_details.clear();
        }
        if !takes.has(EXTRA) {
            for call in &mut message.tool_calls {
                call.extra_content = None;
            }
        }
    }
}

/// The request's body. A client can lower the operator's token limit, not raise it.
pub(super) fn body(
    settings: &Settings,
    prompt: &Prompt,
    messages: &[ChatMessage],
    takes: &Takes,
) -> Map<String, Value> {
    let mut body = settings.extra_body.clone();
    body.retain(|name, _| takes.has(name));
    let mut set = |name: &'static str, value: Option<Value>| {
        if let Some(value) = value.filter(|_| takes.has(name)) {
            body.insert(name.to_owned(), value);
        }
    };
    let limits = [settings.max_tokens, prompt.demands.max_tokens];
    let limit = limits.into_iter().flatten().min();
    set("model", Some(json!(settings.model)));
    set("messages", Some(json!(messages)));
    set("stream", Some(json!(true)));
    set("stream_options", Some(json!({"include_usage": true})));
    set("temperature", settings.temperature.map(|t| json!(t)));
    let effort = takes.effort().or(settings.reasoning_effort.as_deref());
    set("reasoning_effort", effort.map(|effort| json!(effort)));
    if let Some(name) = takes.limit(&VOCABULARY) {
        set(name, limit.map(|limit| json!(limit)));
    }
    if settings.calls == Calls::Native && !prompt.tools.is_empty() {
        let tools: Vec<Value> = by_name(&prompt.tools).into_iter().map(function).collect();
        set("tools", Some(json!(tools)));
        set("parallel_tool_calls", Some(json!(true)));
        let choice = &prompt.demands.tool_choice;
        let may = !choice.is_forced() || takes.has(FORCED);
        set("tool_choice", tool_choice(choice).filter(|_| may));
    }
    body
}

fn function(tool: &ToolSpec) -> Value {
    let function = json!({
        "name": tool.name,
        "description": sanitise(&tool.description),
        "parameters": sanitise_json(&tool.parameters),
    });
    json!({"type": "function", "function": function})
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Function(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}
