//! Ids and common JSON shapes of the events for a Realtime client.

use super::beta;
use super::fault::Fault;
use crate::conversation::Micros;
use crate::llm::TokenUsage;
use serde_json::{Map, Value, json};

/// Events that clients of Azure's preview do not know: Azure's for JavaScript ends with the first one.
const UNKNOWN_TO_AZURE: [&str; 2] = [
    "conversation.created",
    "conversation.item.input_audio_transcription.delta",
];

/// Makes ids and writes events. A random part keeps the ids of sessions apart.
#[derive(Debug)]
pub(super) struct Writer {
    unique: String,
    events: u64,
    ids: u64,
    /// Whether the client uses the protocol's beta.
    pub(super) beta: bool,
    /// Whether it is a client of Azure's preview.
    pub(super) azure: bool,
}

impl Writer {
    pub(super) fn new() -> Self {
        let mut unique = uuid::Uuid::new_v4().simple().to_string();
        unique.truncate(16);
        Self {
            unique,
            events: 0,
            ids: 0,
            beta: false,
            azure: false,
        }
    }

    /// The session's own id, with a prefix such as `sess`.
    pub(super) fn session_id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.unique)
    }

    /// A new id, with a prefix such as `item`.
    pub(super) fn id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}_{}{:04}", self.unique, self.ids)
    }

    /// The number of the event with this id, or in this message.
    pub(super) fn number(&self, event: &str) -> Option<u64> {
        let name = format!("event_{}", self.unique);
        let (_, number) = event.split_once(&name)?;
        let end = number.find(|c: char| !c.is_ascii_digit());
        number[..end.unwrap_or(number.len())].parse().ok()
    }

    /// An event with its type, its id and `fields`; `None` if the client's protocol version has no
    /// such event.
    pub(super) fn event(&mut self, kind: &str, fields: Value) -> Option<String> {
        if self.azure && UNKNOWN_TO_AZURE.contains(&kind) {
            return None;
        }
        let (kind, fields) = match self.beta {
            true => beta::translate(kind, fields)?,
            false => (kind, fields),
        };
        Some(self.write(kind, fields))
    }

    fn write(&mut self, kind: &str, fields: Value) -> String {
        self.events += 1;
        let mut event = Map::new();
        event.insert("type".into(), kind.into());
        event.insert(
            "event_id".into(),
            format!("event_{}{:04}", self.unique, self.events).into(),
        );
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        Value::Object(event).to_string()
    }

    /// An `error` event about a client event.
    pub(super) fn fault(&mut self, fault: &Fault) -> String {
        let error = json!({
            "type": "invalid_request_error",
            "code": fault.code,
            "message": fault.message,
            "param": fault.param,
            "event_id": fault.event_id,
        });
        self.write("error", json!({ "error": error }))
    }

    /// An `error` event about a server-side failure.
    pub(super) fn server_error(&mut self, code: &str, message: &str) -> String {
        let error = json!({
            "type": "server_error", "code": code, "message": message,
            "param": null, "event_id": null,
        });
        self.write("error", json!({ "error": error }))
    }
}

/// A user speech item; `transcript` is null until it is known.
pub(super) fn spoken_item(id: &str, transcript: Option<&str>) -> Value {
    json!({
        "id": id, "object": "realtime.item", "type": "message", "status": "completed",
        "role": "user", "content": [{"type": "input_audio", "transcript": transcript}],
    })
}

/// An agent speech item, without content yet if `text` is `None`.
pub(super) fn agent_item(id: &str, status: &str, text_only: bool, text: Option<&str>) -> Value {
    let content = match text {
        None => json!([]),
        Some(text) if text_only => json!([{"type": "output_text", "text": text}]),
        Some(text) => json!([{"type": "output_audio", "transcript": text}]),
    };
    json!({
        "id": id, "object": "realtime.item", "type": "message", "status": status,
        "role": "assistant", "content": content,
    })
}

/// The only content part of an agent item.
pub(super) fn content_part(text_only: bool, text: &str) -> Value {
    if text_only {
        json!({"type": "text", "text": text})
    } else {
        json!({"type": "audio", "transcript": text})
    }
}

/// A call to one of the client's own tools.
pub(super) fn function_call(
    id: &str,
    call: &str,
    name: &str,
    status: &str,
    arguments: &str,
) -> Value {
    json!({
        "id": id, "object": "realtime.item", "type": "function_call", "status": status,
        "call_id": call, "name": name, "arguments": arguments,
    })
}

/// A call to one of the server's tools.
pub(super) fn server_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({
        "id": id, "object": "realtime.item", "type": "mcp_call", "server_label": "undertone",
        "name": name, "arguments": arguments, "approval_request_id": null,
        "output": null, "error": null,
    })
}

/// User audio and agent audio per token, as OpenAI counts them.
const HEARD_TOKEN: Micros = Micros::from_ms(100);
const SPOKEN_TOKEN: Micros = Micros::from_ms(50);

/// Usage of a response: the language model's tokens, the user audio that led to it, and the agent
/// audio.
pub(super) fn usage(text: TokenUsage, heard: Micros, spoken: Micros) -> Value {
    let heard = heard.0.div_ceil(HEARD_TOKEN.0);
    let spoken = spoken.0.div_ceil(SPOKEN_TOKEN.0);
    let (input, output) = (text.input + heard, text.output + spoken);
    json!({
        "total_tokens": input + output, "input_tokens": input, "output_tokens": output,
        "input_token_details": {
            "text_tokens": text.input, "audio_tokens": heard, "cached_tokens": text.cached,
            "cached_tokens_details": {"text_tokens": text.cached, "audio_tokens": 0},
        },
        "output_token_details": {"text_tokens": text.output, "audio_tokens": spoken},
    })
}
