//! Requests for a message, without the parameters that the server has refused. Pure.
//!
//! The messages are those for chat completions in another shape, so that the rules of a history have one owner
//! (`prompt.rs`, `prompt/native.rs`). What is added here is what this dialect alone asks for:
//!
//! - The system prompt is a field of its own, with a cache mark.
//! - Roles alternate strictly, and no block of text is empty.
//! - All results of a round are blocks of one user message, before anything else in it.
//! - Ids are unique, and names of tools have letters, digits, `_` and `-` only.
//! - While the model thinks, the thoughts before the calls of the round in progress come back with them.

use crate::llm::opaque::{Block, Blocks, OfSession};
use crate::llm::prompt::{ChatCall, ChatMessage, Role, by_name};
use crate::llm::remote::{FORCED, Settings, Takes, Vocabulary};
use crate::llm::untrusted::{sanitise, sanitise_json};
use crate::llm::{Calls, Prompt, ToolChoice};
use crate::tools::ToolSpec;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The token limit if none is set. The dialect requires one.
const DEFAULT_LIMIT: u32 = 1_024;

/// Stands for a message of the user without a word, which is refused.
const NOTHING: &str = "<note>The user said nothing.</note>";

/// The automatic mark on the conversation.
const AUTOMATIC: &str = "cache_control";
const MARK: &str = "system.cache_control";
const HOUR: &str = "system.cache_control.ttl";
const EAGER: &str = "tools.eager_input_streaming";

/// How the model thinks, by its type. Newer models know other types than older ones, and some always think.
const THINKING: &str = "thinking";
const ENABLED: &str = "thinking.enabled";
const DISABLED: &str = "thinking.disabled";
const BETWEEN: &str = "thinking.between_tools";

/// The parameters that a server may refuse. The parts come before the whole, so that a mark outlives its duration.
pub(super) static VOCABULARY: Vocabulary = Vocabulary {
    limits: &[],
    optional: &[
        (EAGER, &["eager_input_streaming"]),
        (HOUR, &[".ttl", "`ttl`", "'ttl'", "\"ttl\""]),
        (MARK, &["system.0.cache_control"]),
        (AUTOMATIC, &["cache_control"]),
        (MARK, &["cache_control"]),
        // Before the effort, which such a refusal recommends.
        (ENABLED, &["thinking.type.enabled"]),
        (DISABLED, &["thinking.type.disabled", "between_tools"]),
        (BETWEEN, &["between_tools"]),
        (
            THINKING,
            &[
                "thinking.type",
                "thinking: Extra inputs",
                "thinking: Input",
                "hinking is not supported",
            ],
        ),
        ("output_config", &["output_config", "effort"]),
        ("temperature", &["temperature"]),
        (FORCED, &["tool_choice"]),
        ("tool_choice", &["tool_choice"]),
        ("seed", &["seed"]),
        // Servers that do not know it at all. Errors about blocks of thoughts have it in other marks.
        (
            THINKING,
            &["'thinking'", "\"thinking\"", "field `thinking`"],
        ),
    ],
};

/// The request's body. A client can lower the operator's token limit, not raise it.
pub(super) fn body(
    settings: &Settings,
    prompt: &Prompt,
    messages: &[ChatMessage],
    takes: &Takes,
    blocks: &Blocks,
) -> Map<String, Value> {
    let thoughts = thoughts(messages, blocks.of_session(prompt.demands.session));
    let limits = [settings.max_tokens, prompt.demands.max_tokens];
    let limit = limits.into_iter().flatten().min().unwrap_or(DEFAULT_LIMIT);
    let mut body = settings.extra_body.clone();
    body.retain(|name, _| takes.has(name));
    let effort = settings.reasoning_effort.as_deref();
    let is_quiet = matches!(effort, None | Some("none" | "minimal"));
    let thinking = thinking(body.remove(THINKING), is_quiet, takes);
    let thinking = thinking.filter(|thinking| may_think(thinking, limit, messages, &thoughts));
    let thinks = (thinking.as_ref()).is_some_and(|thinking| thinking["type"] != "disabled");
    body.extend(thinking.map(|thinking| (THINKING.to_owned(), thinking)));
    let (system, messages) = converted(messages, thinks.then_some(thoughts));

    body.insert("model".into(), json!(settings.model));
    body.insert("max_tokens".into(), json!(limit));
    body.insert("stream".into(), json!(true));
    if !system.is_empty() {
        body.insert("system".into(), json!([system_block(&system, takes)]));
    }
    if takes.has(AUTOMATIC) {
        body.entry(AUTOMATIC)
            .or_insert_with(|| json!({"type": "ephemeral"}));
    }
    // A model that thinks takes no temperature but its own.
    let temperature = settings.temperature.filter(|_| !thinks);
    if let Some(temperature) = temperature.filter(|_| takes.has("temperature")) {
        body.insert("temperature".into(), json!(temperature));
    }
    // The least effort that it knows; older models, which need not be told, know none.
    let least = (effort.is_some() || !takes.has(BETWEEN)).then_some("low");
    let effort = if is_quiet { least } else { effort };
    if let Some(effort) = effort.filter(|_| takes.has("output_config")) {
        let config = body.entry("output_config").or_insert_with(|| json!({}));
        if let Some(config) = config.as_object_mut() {
            let is_own = settings.reasoning_effort.is_none() && config.contains_key("effort");
            if !is_own {
                config.insert("effort".into(), json!(effort));
            }
        }
    }
    if settings.calls == Calls::Native {
        add_tools(&mut body, prompt, &messages, takes, thinks);
    }
    body.insert("messages".into(), Value::Array(messages));
    body
}

/// Adds the tools, and which of them the model may call.
fn add_tools(
    body: &mut Map<String, Value>,
    prompt: &Prompt,
    messages: &[Value],
    takes: &Takes,
    thinks: bool,
) {
    let mut tools: Vec<Value> = by_name(&prompt.tools)
        .into_iter()
        .map(|tool| offered(tool, takes))
        .collect();
    let mut choice = tool_choice(&prompt.demands.tool_choice);
    if tools.is_empty() {
        // A history with calls is refused without tools.
        tools = withdrawn(messages);
        choice = Some(json!({"type": "none"}));
    }
    if tools.is_empty() {
        return;
    }
    body.insert("tools".into(), Value::Array(tools));
    // A model that thinks cannot be made to call; the note at the end of the messages asks it to.
    let choice = choice.filter(|choice| !thinks || choice["type"] == "none");
    let may = !prompt.demands.tool_choice.is_forced() || takes.has(FORCED);
    if let Some(choice) = choice.filter(|_| may && takes.has("tool_choice")) {
        body.insert("tool_choice".into(), choice);
    }
}

fn system_block(text: &str, takes: &Takes) -> Value {
    let mut block = json!({"type": "text", "text": text});
    if takes.has(MARK) {
        // The same for all sessions of the agent, so it is worth more than five minutes.
        block["cache_control"] = match takes.has(HOUR) {
            true => json!({"type": "ephemeral", "ttl": "1h"}),
            false => json!({"type": "ephemeral"}),
        };
    }
    block
}

fn offered(tool: &ToolSpec, takes: &Takes) -> Value {
    let mut schema = sanitise_json(&tool.parameters);
    if let Some(schema) = schema.as_object_mut() {
        schema.entry("type").or_insert_with(|| json!("object"));
    }
    let mut offered = json!({
        "name": tool.name,
        "description": sanitise(&tool.description),
        "input_schema": schema,
    });
    if takes.has(EAGER) {
        offered["eager_input_streaming"] = json!(true);
    }
    offered
}

/// Declarations of the tools that the history calls and nobody offers any more.
fn withdrawn(messages: &[Value]) -> Vec<Value> {
    let blocks = messages
        .iter()
        .filter_map(|message| message["content"].as_array());
    let names: BTreeSet<&str> = blocks
        .flatten()
        .filter(|block| block["type"] == "tool_use")
        .filter_map(|block| block["name"].as_str())
        .collect();
    let declared = |name| {
        let schema = json!({"type": "object", "properties": {}});
        json!({"name": name, "description": "No longer available.", "input_schema": schema})
    };
    names.into_iter().map(declared).collect()
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!({"type": "none"})),
        ToolChoice::Required => Some(json!({"type": "any"})),
        ToolChoice::Function(name) => Some(json!({"type": "tool", "name": name})),
    }
}

/// How the model is to think: as the operator says, or not at all if it is to be `quiet`; in the way next to that if
/// the server refuses it, and `None` if there is no other.
fn thinking(given: Option<Value>, quiet: bool, takes: &Takes) -> Option<Value> {
    let wanted = given.or_else(|| quiet.then(|| json!({"type": "disabled"})));
    let wanted = wanted.filter(|_| takes.has(THINKING))?;
    match wanted["type"].as_str().unwrap_or_default() {
        "enabled" if !takes.has(ENABLED) => Some(json!({"type": "adaptive"})),
        "disabled" if !takes.has(DISABLED) => {
            let between = json!({"type": "between_tools"});
            takes.has(BETWEEN).then_some(between)
        }
        "between_tools" if !takes.has(BETWEEN) => None,
        _ => Some(wanted),
    }
}

/// Whether the model may think like this for this answer. With a budget there has to be room for it, and the calls of
/// the round in progress need the thoughts that led to them: calls that another model or this server wrote have none,
/// and are refused then.
fn may_think(
    thinking: &Value,
    limit: u32,
    messages: &[ChatMessage],
    thoughts: &[Vec<Value>],
) -> bool {
    let budget = thinking["budget_tokens"].as_u64();
    if thinking["type"] != "enabled" && budget.is_none() {
        return true;
    }
    let in_progress = messages.iter().zip(thoughts).rev();
    let mut in_progress = in_progress.take_while(|(message, _)| message.role != Role::User);
    budget.is_none_or(|budget| budget < u64::from(limit))
        && in_progress
            .all(|(message, thoughts)| message.tool_calls.is_empty() || !thoughts.is_empty())
}

/// The thoughts before the calls of each message.
fn thoughts(messages: &[ChatMessage], blocks: OfSession<'_>) -> Vec<Vec<Value>> {
    let thoughts = |blocks: Vec<Option<&Block>>| {
        let mut blocks = blocks.into_iter().flatten();
        let found = blocks.find_map(|block| block.extra.as_ref()?.as_array().cloned());
        found.unwrap_or_default()
    };
    blocks.of(messages).into_iter().map(thoughts).collect()
}

/// The system prompt, and the messages in the shape of this dialect. `thoughts` come back with their calls.
fn converted(messages: &[ChatMessage], thoughts: Option<Vec<Vec<Value>>>) -> (String, Vec<Value>) {
    let mut system = String::new();
    let mut history = History::default();
    let mut thoughts = thoughts.into_iter().flatten();
    for message in messages {
        let thoughts = thoughts.next().unwrap_or_default();
        match message.role {
            Role::System => system.push_str(&message.content),
            Role::User => {
                let said = text(&message.content);
                history.add("user", said.or_else(|| text(NOTHING)));
            }
            Role::Assistant => history.agent(message, thoughts),
            Role::Tool => history.result(&message.content),
        }
    }
    (system, history.messages)
}

fn text(text: &str) -> Option<Value> {
    let text = text.trim();
    (!text.is_empty()).then(|| json!({"type": "text", "text": text}))
}

#[derive(Default)]
struct History {
    messages: Vec<Value>,
    ids: BTreeSet<String>,
    /// The calls of the last message that have no result yet, the first one first.
    open: Vec<String>,
}

impl History {
    /// Adds blocks to the last message if it has this role, else as a new message.
    fn add(&mut self, role: &str, blocks: impl IntoIterator<Item = Value>) {
        let mut blocks: Vec<Value> = blocks.into_iter().collect();
        if blocks.is_empty() {
            return;
        }
        let last = self
            .messages
            .last_mut()
            .filter(|last| last["role"] == role)
            .and_then(|last| last["content"].as_array_mut());
        match last {
            Some(content) => content.append(&mut blocks),
            None => self.messages.push(json!({"role": role, "content": blocks})),
        }
    }

    fn agent(&mut self, message: &ChatMessage, thoughts: Vec<Value>) {
        let mut blocks = thoughts;
        blocks.extend(text(&message.content));
        self.open.clear();
        for call in &message.tool_calls {
            let id = self.unique(&call.id);
            blocks.push(json!({
                "type": "tool_use",
                "id": id,
                "name": call.function.name,
                "input": arguments(call),
            }));
            self.open.push(id);
        }
        self.add("assistant", blocks);
    }

    /// Adds the result of the first call that has none: results come in the order of their calls.
    fn result(&mut self, content: &str) {
        if self.open.is_empty() {
            return;
        }
        let id = self.open.remove(0);
        let mut result = json!({"type": "tool_result", "tool_use_id": id});
        if !content.trim().is_empty() {
            result["content"] = json!(content);
        }
        self.add("user", [result]);
    }

    fn unique(&mut self, id: &str) -> String {
        let mut unique = id.to_owned();
        while !self.ids.insert(unique.clone()) {
            unique.push('x');
        }
        unique
    }
}

fn arguments(call: &ChatCall) -> Map<String, Value> {
    serde_json::from_str(&call.function.arguments).unwrap_or_default()
}

#[cfg(test)]
mod tests;
