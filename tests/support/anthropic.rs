//! The rules by which Anthropic's Messages refuses a request, as far as a history or a parameter can break them.

use serde_json::Value;
use std::collections::BTreeSet;

const FIELDS: [&str; 12] = [
    "model",
    "max_tokens",
    "stream",
    "system",
    "messages",
    "temperature",
    "tools",
    "tool_choice",
    "cache_control",
    "output_config",
    "thinking",
    "metadata",
];

/// The service's error for this request; `None` if it takes it.
pub fn refusal(body: &Value) -> Option<String> {
    check(body).err()
}

fn check(body: &Value) -> Result<(), String> {
    let fields = body.as_object().ok_or("the body is not an object")?;
    for field in fields.keys() {
        ensure(FIELDS.contains(&field.as_str()), || {
            format!("{field}: Extra inputs are not permitted")
        })?;
    }
    ensure(body["model"].is_string(), || "model: Field required".into())?;
    let limit = body["max_tokens"].as_u64();
    ensure(limit.is_some_and(|limit| limit > 0), || {
        "max_tokens: Field required".into()
    })?;
    let marks = marks(body);
    ensure(marks <= 4, || {
        format!("a maximum of 4 blocks with cache_control, found {marks}")
    })?;
    for block in body["system"].as_array().into_iter().flatten() {
        check_text("system", block)?;
    }
    let declared = check_tools(body)?;
    let messages = body["messages"]
        .as_array()
        .ok_or("messages: Field required")?;
    ensure(!messages.is_empty(), || {
        "messages: at least one message is required".into()
    })?;
    check_thinking(body, limit.unwrap_or_default(), messages)?;
    check_messages(messages, !declared.is_empty())
}

fn marks(value: &Value) -> usize {
    match value {
        Value::Object(fields) => {
            let own = usize::from(fields.contains_key("cache_control"));
            own + fields.values().map(marks).sum::<usize>()
        }
        Value::Array(values) => values.iter().map(marks).sum(),
        _ => 0,
    }
}

fn check_tools(body: &Value) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for tool in body["tools"].as_array().into_iter().flatten() {
        let name = tool["name"].as_str().unwrap_or_default();
        ensure(is_name(name), || format!("tools.name: {name:?}"))?;
        ensure(names.insert(name.to_owned()), || {
            "tools: Tool names must be unique.".into()
        })?;
        ensure(tool["input_schema"]["type"] == "object", || {
            "tools.input_schema.type: Field required".into()
        })?;
    }
    let choice = &body["tool_choice"];
    if !choice.is_null() {
        ensure(!names.is_empty(), || {
            "tool_choice may only be specified while providing tools".into()
        })?;
        let kind = choice["type"].as_str().unwrap_or_default();
        ensure(["auto", "any", "tool", "none"].contains(&kind), || {
            format!("tool_choice: {choice}")
        })?;
        let name = choice["name"].as_str();
        ensure(name.is_none_or(|name| names.contains(name)), || {
            format!("tool_choice: no tool {choice}")
        })?;
        ensure(!thinks(body) || kind == "none" || kind == "auto", || {
            "Thinking may not be enabled when tool_choice forces tool use.".into()
        })?;
    }
    Ok(names)
}

/// Whether the request asks for thoughts.
fn thinks(body: &Value) -> bool {
    let kind = body["thinking"]["type"].as_str();
    kind.is_some_and(|kind| kind != "disabled")
}

/// While the model thinks within a budget, the round in progress begins with a thought.
fn check_thinking(body: &Value, limit: u64, messages: &[Value]) -> Result<(), String> {
    let thinking = &body["thinking"];
    if !thinks(body) {
        return Ok(());
    }
    let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
    ensure(limit > budget, || {
        "`max_tokens` must be greater than `thinking.budget_tokens`".into()
    })?;
    ensure(body["temperature"].is_null(), || {
        "`temperature` may only be set to 1 when thinking is enabled".into()
    })?;
    if thinking["type"] != "enabled" {
        return Ok(());
    }
    for message in messages.iter().rev() {
        let blocks = message["content"].as_array().into_iter().flatten();
        let kinds: Vec<&str> = blocks.filter_map(|block| block["type"].as_str()).collect();
        match message["role"].as_str() {
            Some("user") if kinds.contains(&"text") => break,
            Some("assistant") if kinds.contains(&"tool_use") => {
                ensure(kinds[0].contains("thinking"), || {
                    "Expected `thinking` or `redacted_thinking`, but found `tool_use`".into()
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_messages(messages: &[Value], has_tools: bool) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut last = "assistant".to_owned();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        ensure(["user", "assistant"].contains(&role.as_str()), || {
            format!("messages: the role {role:?}")
        })?;
        ensure(role != last, || format!("messages: {role} follows {role}"))?;
        let blocks = message["content"].as_array().ok_or("messages: no blocks")?;
        ensure(!blocks.is_empty(), || {
            "messages: all messages must have non-empty content".into()
        })?;
        let answered = std::mem::take(&mut open);
        let mut results = BTreeSet::new();
        let mut text_before = false;
        for block in blocks {
            match (role.as_str(), block["type"].as_str().unwrap_or_default()) {
                (_, "text") => {
                    check_text("messages", block)?;
                    text_before = true;
                }
                ("assistant", "thinking" | "redacted_thinking") => {}
                ("assistant", "tool_use") => {
                    let (id, name) = (&block["id"], &block["name"]);
                    let (id, name) = (id.as_str().unwrap_or(""), name.as_str().unwrap_or(""));
                    ensure(is_name(id), || format!("tool_use.id: {id:?}"))?;
                    ensure(is_name(name), || format!("tool_use.name: {name:?}"))?;
                    ensure(block["input"].is_object(), || "tool_use.input".into())?;
                    ensure(ids.insert(id.to_owned()), || {
                        "`tool_use` ids must be unique".into()
                    })?;
                    open.insert(id.to_owned());
                }
                ("user", "tool_result") => {
                    ensure(!text_before, || "text before a `tool_result`".into())?;
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    ensure(answered.contains(id), || {
                        format!("unexpected `tool_use_id` found in `tool_result` blocks: {id}")
                    })?;
                    ensure(results.insert(id.to_owned()), || {
                        "each tool_use must have a single result".into()
                    })?;
                }
                (role, kind) => return Err(format!("{role}: a block of type {kind:?}")),
            }
        }
        ensure(results == answered, || {
            "`tool_use` ids were found without `tool_result` blocks immediately after".into()
        })?;
        last = role;
    }
    ensure(open.is_empty(), || {
        "`tool_use` ids were found without results".into()
    })?;
    ensure(last == "user", || {
        "the conversation must end with a user message".into()
    })?;
    ensure(ids.is_empty() || has_tools, || {
        "Requests which include `tool_use` or `tool_result` blocks must define tools".into()
    })
}

fn check_text(place: &str, block: &Value) -> Result<(), String> {
    let text = block["text"].as_str().unwrap_or_default();
    ensure(!text.trim().is_empty(), || {
        format!("{place}: text content blocks must contain non-whitespace text")
    })
}

/// The pattern of ids and names.
fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(allowed)
}

fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(reason()),
    }
}
