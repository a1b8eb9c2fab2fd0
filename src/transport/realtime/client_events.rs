//! Parses a Realtime client's events into typed requests or the fault to report.

use super::codec::Format;
use super::fault::{Fault, check_metadata, clip, missing, read};
use super::fields::{self, Ineffective};
use super::session_config::{self, SessionUpdate};
use crate::conversation::MaxTokens;
use crate::llm::ToolChoice;
use crate::tools::ToolSpec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The events that a client may send.
pub const CLIENT_EVENTS: [&str; 13] = [
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "conversation.item.create",
    "conversation.item.retrieve",
    "conversation.item.truncate",
    "conversation.item.delete",
    "response.create",
    "response.cancel",
    "output_audio_buffer.clear",
    "undertone.confirmation.respond",
];

/// Longest item id that a client may choose, bytes.
const MAX_ID: usize = 128;

/// Longest text of an item that a client creates, bytes.
const MAX_ITEM_TEXT: usize = 32 * 1024;

/// The type of a part that is a picture.
const IMAGE: &str = "input_image";

/// The words that stand for a picture.
pub(super) const PICTURE: &str = "(a picture, which cannot be seen here)";

/// Longest output of a client's tool, bytes. The prompt shows as much of it as fits.
const MAX_OUTPUT: usize = 256 * 1024;

/// One event of a client.
#[derive(Debug, PartialEq)]
pub struct ClientEvent {
    /// The client's own id for the event; quoted in errors about it.
    pub event_id: Option<String>,
    /// The request.
    pub request: ClientRequest,
    /// Fields of the event that have no effect.
    pub ineffective: Vec<Ineffective>,
}

/// A client's request.
#[derive(Debug, PartialEq)]
pub enum ClientRequest {
    /// `session.update`.
    Update(Box<SessionUpdate>),
    /// `input_audio_buffer.append`: bytes in the session's input format.
    Append(Vec<u8>),
    /// `input_audio_buffer.commit`.
    Commit,
    /// `input_audio_buffer.clear`.
    Clear,
    /// `conversation.item.create`.
    Create {
        /// The id of the item to insert after; `root` inserts at the start, `None` at the end.
        previous: Option<String>,
        /// The item.
        item: ClientItem,
    },
    /// `conversation.item.retrieve`.
    Retrieve(String),
    /// `conversation.item.truncate`.
    Truncate {
        /// The agent's item.
        item: String,
        /// How much of the item the user heard, ms.
        audio_end_ms: u64,
    },
    /// `conversation.item.delete`.
    Delete(String),
    /// `response.create`.
    Respond(ResponseRequest),
    /// `response.cancel`.
    Cancel {
        /// Cancels only if this response is the active one.
        response: Option<String>,
    },
    /// `output_audio_buffer.clear`.
    ClearOutput,
    /// `undertone.confirmation.respond`.
    Confirm {
        /// The call's id, as sent to the client.
        call: String,
        /// Yes or no.
        accept: bool,
    },
}

/// An item that a client adds.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientItem {
    /// The client's own id for the item.
    pub id: Option<String>,
    /// The content.
    pub content: ItemContent,
}

/// The kinds of items that a client may add.
#[derive(Debug, Clone, PartialEq)]
pub enum ItemContent {
    /// A system message.
    System(String),
    /// A user message, typed.
    User(String),
    /// A user message as recorded audio, not transcribed yet.
    Spoken {
        /// Text in the same message.
        text: String,
        /// The audio parts in the session's input format, each with its index in the content.
        audio: Vec<(usize, Vec<u8>)>,
    },
    /// A user message of pictures alone.
    Pictures,
    /// An agent message.
    Agent(String),
    /// A call to one of the client's tools, from an earlier conversation.
    ToolCall {
        /// The client's id for the call, if it gives one.
        call: Option<String>,
        /// The tool's name.
        name: String,
        /// The arguments by name.
        arguments: Map<String, Value>,
    },
    /// The result of a client's tool.
    ToolOutput {
        /// The call's id, as sent to the client.
        call: String,
        /// The result, verbatim.
        output: String,
    },
}

/// The settings of one response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResponseRequest {
    /// Instructions for this response alone.
    pub instructions: Option<String>,
    /// Whether to answer in text instead of audio; the session's setting if `None`.
    pub text_only: Option<bool>,
    /// Echoed in the response.
    pub metadata: Option<Value>,
    /// Whether the response stays out of the conversation.
    pub outside: bool,
    /// Items to show the model instead of the conversation.
    pub input: Option<Vec<InputItem>>,
    /// The client's tools for this response; the session's if `None`.
    pub tools: Option<Vec<ToolSpec>>,
    /// The tool choice; the session's if `None`.
    pub tool_choice: Option<ToolChoice>,
    /// The token limit; the session's if `None`.
    pub max_tokens: Option<MaxTokens>,
    /// The output audio format; the session's if `None`.
    pub output: Option<Format>,
}

/// One item that the model is given in place of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum InputItem {
    /// An item of the conversation, by its id.
    Reference(String),
    /// An item that is not part of the conversation.
    Item(ItemContent),
}

/// Parses one event.
pub fn parse(text: &str) -> Result<ClientEvent, Fault> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        Fault::whole("invalid_json", format!("The event is not JSON: {error}."))
    })?;
    let Value::Object(mut event) = value else {
        return Err(Fault::whole(
            "invalid_json",
            "The event must be a JSON object.",
        ));
    };
    let event_id = event
        .remove("event_id")
        .and_then(|id| id.as_str().map(clip));
    match request(event) {
        Ok((request, ineffective)) => Ok(ClientEvent {
            event_id,
            request,
            ineffective,
        }),
        Err(fault) => Err(Fault { event_id, ..fault }),
    }
}

fn request(mut event: Map<String, Value>) -> Result<(ClientRequest, Vec<Ineffective>), Fault> {
    let Some(kind) = event.remove("type") else {
        return Err(Fault::new(
            "missing_required_parameter",
            "type",
            "The event has no type.",
        ));
    };
    let kind = kind.as_str().unwrap_or_default();
    let ineffective = fields::look_through(kind, &event)?;
    let rest = Value::Object(event);
    let request = match kind {
        "session.update" => update(rest),
        "transcription_session.update" => update(of_transcription(rest)),
        "input_audio_buffer.append" => append(rest),
        "input_audio_buffer.commit" => Ok(ClientRequest::Commit),
        "input_audio_buffer.clear" => Ok(ClientRequest::Clear),
        "conversation.item.create" => create(rest),
        "conversation.item.retrieve" => Ok(ClientRequest::Retrieve(item_id(rest)?)),
        "conversation.item.truncate" => truncate(rest),
        "conversation.item.delete" => Ok(ClientRequest::Delete(item_id(rest)?)),
        "response.create" => respond(rest),
        "response.cancel" => cancel(rest),
        "output_audio_buffer.clear" => Ok(ClientRequest::ClearOutput),
        "undertone.confirmation.respond" => confirm(rest),
        other => Err(Fault::value(
            "type",
            other,
            &format!("'{}'", CLIENT_EVENTS.join("', '")),
        )),
    }?;
    Ok((request, ineffective))
}

/// Turns the beta's update of a transcription session into a GA `session.update`.
fn of_transcription(mut event: Value) -> Value {
    if let Some(session) = event.get_mut("session").and_then(Value::as_object_mut) {
        session.insert("type".into(), "transcription".into());
    }
    event
}

fn update(event: Value) -> Result<ClientRequest, Fault> {
    #[derive(Deserialize)]
    struct Event {
        session: Value,
    }
    let event: Event = read(event, "")?;
    Ok(ClientRequest::Update(Box::new(session_config::parse(
        event.session,
    )?)))
}

fn confirm(event: Value) -> Result<ClientRequest, Fault> {
    #[derive(Deserialize)]
    struct Event {
        call_id: String,
        accept: bool,
    }
    let event: Event = read(event, "")?;
    Ok(ClientRequest::Confirm {
        call: event.call_id,
        accept: event.accept,
    })
}

fn append(event: Value) -> Result<ClientRequest, Fault> {
    #[derive(Deserialize)]
    struct Event {
        audio: String,
    }
    let event: Event = read(event, "")?;
    let bytes = STANDARD.decode(&event.audio).map_err(|error| {
        Fault::new(
            "invalid_value",
            "audio",
            format!("The audio is not base64: {error}."),
        )
    })?;
    Ok(ClientRequest::Append(bytes))
}

fn item_id(event: Value) -> Result<String, Fault> {
    #[derive(Deserialize)]
    struct Event {
        item_id: String,
    }
    read::<Event>(event, "").map(|event| event.item_id)
}

fn truncate(event: Value) -> Result<ClientRequest, Fault> {
    #[derive(Deserialize)]
    struct Event {
        item_id: String,
        content_index: u64,
        audio_end_ms: u64,
    }
    let event: Event = read(event, "")?;
    if event.content_index != 0 {
        return Err(Fault::value(
            "content_index",
            &event.content_index.to_string(),
            "0",
        ));
    }
    Ok(ClientRequest::Truncate {
        item: event.item_id,
        audio_end_ms: event.audio_end_ms,
    })
}

fn cancel(event: Value) -> Result<ClientRequest, Fault> {
    #[derive(Deserialize)]
    struct Event {
        response_id: Option<String>,
    }
    read::<Event>(event, "").map(|event| ClientRequest::Cancel {
        response: event.response_id,
    })
}

fn respond(event: Value) -> Result<ClientRequest, Fault> {
    #[derive(Deserialize)]
    struct Event {
        response: Option<Response>,
    }
    #[derive(Deserialize)]
    struct Response {
        instructions: Option<String>,
        #[serde(alias = "modalities")]
        output_modalities: Option<Vec<String>>,
        metadata: Option<Map<String, Value>>,
        conversation: Option<String>,
        input: Option<Vec<Value>>,
        tools: Option<Vec<Value>>,
        tool_choice: Option<Value>,
        #[serde(alias = "max_response_output_tokens")]
        max_output_tokens: Option<Value>,
        audio: Option<Audio>,
        output_audio_format: Option<Value>,
    }
    #[derive(Deserialize)]
    struct Audio {
        output: Option<Output>,
    }
    #[derive(Deserialize)]
    struct Output {
        format: Option<Value>,
    }
    let Some(response) = read::<Event>(event, "")?.response else {
        return Ok(ClientRequest::Respond(ResponseRequest::default()));
    };
    let outside = match response.conversation.as_deref() {
        None | Some("auto") => false,
        Some("none") => true,
        Some(other) => {
            let allowed = "'auto' and 'none'";
            return Err(Fault::value("response.conversation", other, allowed));
        }
    };
    let text_only = response
        .output_modalities
        .map(|names| session_config::text_only(&names, "response.output_modalities"))
        .transpose()?;
    let metadata = response.metadata.map(Value::Object);
    if let Some(metadata) = &metadata {
        check_metadata(metadata)?;
    }
    let flat =
        session_config::format(response.output_audio_format, "response.output_audio_format")?;
    let nested = response.audio.and_then(|audio| audio.output?.format);
    let output = session_config::format(nested, "response.audio.output.format")?.or(flat);
    Ok(ClientRequest::Respond(ResponseRequest {
        instructions: response.instructions,
        text_only,
        metadata,
        outside,
        input: response.input.map(input).transpose()?,
        tools: response
            .tools
            .map(|values| session_config::tools(values, "response.tools"))
            .transpose()?
            .map(|(tools, _)| tools),
        tool_choice: response
            .tool_choice
            .map(|choice| session_config::tool_choice(&choice, "response.tool_choice"))
            .transpose()?,
        max_tokens: response
            .max_output_tokens
            .map(|most| session_config::max_tokens(&most, "response.max_output_tokens"))
            .transpose()?,
        output,
    }))
}

fn input(values: Vec<Value>) -> Result<Vec<InputItem>, Fault> {
    let items = values.into_iter().enumerate().map(|(index, value)| {
        let param = format!("response.input[{index}]");
        let item: RawItem = read(value, &param)?;
        match (item.kind.as_str(), &item.id) {
            ("item_reference", Some(id)) => Ok(InputItem::Reference(id.clone())),
            ("item_reference", None) => Err(missing(&param, "id")),
            _ => match content(&item) {
                Ok(ItemContent::Spoken { .. }) => {
                    let message = "Audio is transcribed in the conversation: create the item there \
                                   and refer to it with an item_reference.";
                    Err(Fault::new("unsupported_parameter", param, message))
                }
                Ok(content) => Ok(InputItem::Item(content)),
                Err(fault) => Err(Fault {
                    param: fault.param.map(|path| path.replacen("item", &param, 1)),
                    ..fault
                }),
            },
        }
    });
    items.collect()
}

#[derive(Deserialize)]
struct RawItem {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    role: Option<String>,
    content: Option<Vec<RawPart>>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    output: Option<String>,
}

#[derive(Deserialize)]
struct RawPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    transcript: Option<String>,
    audio: Option<String>,
}

fn create(event: Value) -> Result<ClientRequest, Fault> {
    #[derive(Deserialize)]
    struct Event {
        previous_item_id: Option<String>,
        item: RawItem,
    }
    let event: Event = read(event, "")?;
    let content = content(&event.item)?;
    let id = event
        .item
        .id
        .map(|id| check_id(id, "item.id"))
        .transpose()?;
    Ok(ClientRequest::Create {
        previous: event.previous_item_id,
        item: ClientItem { id, content },
    })
}

fn content(item: &RawItem) -> Result<ItemContent, Fault> {
    let content = match item.kind.as_str() {
        "message" => message(item)?,
        "function_call" => call(item)?,
        "function_call_output" => {
            let field =
                |value: &Option<String>, name| value.clone().ok_or_else(|| missing("item", name));
            ItemContent::ToolOutput {
                call: check_id(field(&item.call_id, "call_id")?, "item.call_id")?,
                output: field(&item.output, "output")?,
            }
        }
        other => {
            let allowed = "'message', 'function_call' and 'function_call_output'";
            return Err(Fault::value("item.type", other, allowed));
        }
    };
    let most = match content {
        ItemContent::ToolOutput { .. } => MAX_OUTPUT,
        _ => MAX_ITEM_TEXT,
    };
    if content.size() > most {
        let message = format!("The item is over {most} bytes long.");
        return Err(Fault::new("string_above_max_length", "item", message));
    }
    Ok(content)
}

fn call(item: &RawItem) -> Result<ItemContent, Fault> {
    let name = item.name.clone().ok_or_else(|| missing("item", "name"))?;
    let arguments = match item.arguments.as_deref().map(str::trim) {
        None => return Err(missing("item", "arguments")),
        Some("") => Map::new(),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            let message = format!("The arguments are not a JSON object: {error}.");
            Fault::new("invalid_value", "item.arguments", message)
        })?,
    };
    let id = item.call_id.clone();
    Ok(ItemContent::ToolCall {
        call: id.map(|id| check_id(id, "item.call_id")).transpose()?,
        name,
        arguments,
    })
}

fn check_id(id: String, param: &str) -> Result<String, Fault> {
    if id.is_empty() || id.len() > MAX_ID || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = format!("An id must be 1 to {MAX_ID} visible ASCII characters.");
        return Err(Fault::new("invalid_value", param, message));
    }
    Ok(id)
}

/// The audio parts of a user message that come without a transcript.
fn audio_of(item: &RawItem) -> Result<Vec<(usize, Vec<u8>)>, Fault> {
    let mut audio = Vec::new();
    for (index, part) in item.content.iter().flatten().enumerate() {
        if let Some(base64) = part.untold_audio() {
            let bytes = STANDARD.decode(base64).map_err(|error| {
                let param = format!("item.content[{index}].audio");
                let message = format!("The audio is not base64: {error}.");
                Fault::new("invalid_value", param, message)
            })?;
            audio.push((index, bytes));
        }
    }
    Ok(audio)
}

fn message(item: &RawItem) -> Result<ItemContent, Fault> {
    let parts = || item.content.iter().flatten().enumerate();
    let is_users = item.role.as_deref() == Some("user");
    if is_users && parts().any(|(_, part)| part.untold_audio().is_some()) {
        let text = parts().filter(|(_, part)| part.untold_audio().is_none());
        let text = text.map(|(index, part)| part.words(index));
        return Ok(ItemContent::Spoken {
            text: text.collect::<Result<Vec<_>, _>>()?.join(" "),
            audio: audio_of(item)?,
        });
    }
    let is_pictures = parts().next().is_some() && parts().all(|(_, part)| part.kind == IMAGE);
    if is_users && is_pictures {
        return Ok(ItemContent::Pictures);
    }
    let text = parts()
        .map(|(index, part)| part.words(index))
        .collect::<Result<Vec<_>, _>>()?
        .join(" ");
    match item.role.as_deref() {
        Some("system") => Ok(ItemContent::System(text)),
        Some("user") => Ok(ItemContent::User(text)),
        Some("assistant") => Ok(ItemContent::Agent(text)),
        Some(other) => Err(Fault::value(
            "item.role",
            other,
            "'system', 'user' and 'assistant'",
        )),
        None => Err(missing("item", "role")),
    }
}

impl RawPart {
    /// The part's base64 audio, if it comes without a transcript.
    fn untold_audio(&self) -> Option<&str> {
        let is_audio = matches!(self.kind.as_str(), "input_audio" | "audio");
        let told = self
            .transcript
            .as_ref()
            .is_some_and(|words| !words.is_empty());
        self.audio.as_deref().filter(|_| is_audio && !told)
    }

    /// The text of the part; for audio its transcript, which is required here.
    fn words(&self, index: usize) -> Result<&str, Fault> {
        let param = format!("item.content[{index}]");
        let (field, words) = match self.kind.as_str() {
            "input_text" | "output_text" | "text" => ("text", &self.text),
            "input_audio" | "output_audio" | "audio" => ("transcript", &self.transcript),
            IMAGE => return Ok(PICTURE),
            other => {
                let allowed =
                    "'input_text', 'output_text', 'input_audio', 'output_audio' and 'input_image'";
                return Err(Fault::value(format!("{param}.type"), other, allowed));
            }
        };
        words.as_deref().ok_or_else(|| missing(&param, field))
    }
}

impl ItemContent {
    /// The item's text including the id of a call, bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::System(text)
            | Self::User(text)
            | Self::Agent(text)
            | Self::Spoken { text, .. } => text.len(),
            Self::Pictures => PICTURE.len(),
            Self::ToolCall {
                call,
                name,
                arguments,
            } => {
                let call = call.as_ref().map_or(0, String::len);
                call + name.len() + json!(arguments).to_string().len()
            }
            Self::ToolOutput { call, output } => call.len() + output.len(),
        }
    }

    /// The item's JSON in the protocol.
    pub fn to_json(&self, id: &str) -> Value {
        let message = |role: &str, part: &str, text: &str| {
            json!({
                "id": id, "object": "realtime.item", "type": "message", "status": "completed",
                "role": role, "content": [{"type": part, "text": text}],
            })
        };
        match self {
            Self::System(text) => message("system", "input_text", text),
            Self::User(text) => message("user", "input_text", text),
            Self::Pictures => message("user", "input_text", PICTURE),
            Self::Spoken { text, .. } => spoken_message(id, text, None),
            Self::Agent(text) => message("assistant", "output_text", text),
            Self::ToolCall {
                call,
                name,
                arguments,
            } => json!({
                "id": id, "object": "realtime.item", "type": "function_call",
                "status": "completed", "call_id": call, "name": name,
                "arguments": json!(arguments).to_string(),
            }),
            Self::ToolOutput { call, output } => json!({
                "id": id, "object": "realtime.item", "type": "function_call_output",
                "status": "completed", "call_id": call, "output": output,
            }),
        }
    }
}

/// A user message with recorded audio and any text typed beside it; `transcript` is null until it
/// is known.
pub(super) fn spoken_message(id: &str, text: &str, transcript: Option<&str>) -> Value {
    let typed = (!text.is_empty()).then(|| json!({"type": "input_text", "text": text}));
    let spoken = json!({"type": "input_audio", "transcript": transcript});
    let content: Vec<Value> = typed.into_iter().chain([spoken]).collect();
    json!({
        "id": id, "object": "realtime.item", "type": "message", "status": "completed",
        "role": "user", "content": content,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::g711::Law;

    fn fault(text: &str) -> Fault {
        parse(text).expect_err(text)
    }

    #[test]
    fn faults_name_the_field_and_the_event() {
        let cases = [
            ("{}", "type"),
            (r#"{"type":"x"}"#, "type"),
            (r#"{"type":5}"#, "type"),
            (r#"{"type":"input_audio_buffer.append"}"#, "audio"),
            (r#"{"type":"input_audio_buffer.append","audio":7}"#, "audio"),
            (
                r#"{"type":"input_audio_buffer.append","audio":"%%"}"#,
                "audio",
            ),
            (r#"{"type":"conversation.item.retrieve"}"#, "item_id"),
            (
                r#"{"type":"conversation.item.truncate","item_id":"a","content_index":0,"audio_end_ms":-1}"#,
                "audio_end_ms",
            ),
            (
                r#"{"type":"conversation.item.truncate","item_id":"a","content_index":1,"audio_end_ms":1}"#,
                "content_index",
            ),
            (
                r#"{"type":"conversation.item.create","item":{"type":"message"}}"#,
                "item.role",
            ),
            (
                r#"{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_audio","audio":"%"}]}}"#,
                "item.content[0].audio",
            ),
            (
                r#"{"type":"conversation.item.create","item":{"type":"function_call_output","output":"1"}}"#,
                "item.call_id",
            ),
            (
                r#"{"type":"conversation.item.create","item":{"type":"function_call","arguments":"{}"}}"#,
                "item.name",
            ),
            (
                r#"{"type":"conversation.item.create","item":{"type":"function_call","name":"f","arguments":"[1]"}}"#,
                "item.arguments",
            ),
            (
                r#"{"type":"conversation.item.create","item":{"type":"function_call","call_id":"a b","name":"f","arguments":""}}"#,
                "item.call_id",
            ),
            (
                r#"{"type":"response.create","response":{"conversation":"other"}}"#,
                "response.conversation",
            ),
            (
                r#"{"type":"response.create","response":{"input":[{"type":"item_reference"}]}}"#,
                "response.input[0].id",
            ),
            (
                r#"{"type":"response.create","response":{"input":[{"type":"message"}]}}"#,
                "response.input[0].role",
            ),
            (
                r#"{"type":"response.create","response":{"tools":[{"type":"function"}]}}"#,
                "response.tools[0].name",
            ),
            (
                r#"{"type":"response.create","response":{"tool_choice":"perhaps"}}"#,
                "response.tool_choice",
            ),
            (
                r#"{"type":"response.create","response":{"audio":{"output":{"format":{"type":"mp3"}}}}}"#,
                "response.audio.output.format.type",
            ),
            (
                r#"{"type":"response.create","response":{"output_modalities":["smell"]}}"#,
                "response.output_modalities",
            ),
            (r#"{"type":"session.update"}"#, "session"),
        ];
        for (text, param) in cases {
            assert_eq!(fault(text).param.as_deref(), Some(param), "{text}");
        }
        let named = fault(r#"{"event_id":"mine","type":"conversation.item.delete"}"#);
        assert_eq!(named.event_id.as_deref(), Some("mine"));
    }

    #[test]
    fn a_response_has_the_token_limit_and_the_format_that_a_client_of_the_beta_asks_for() {
        let event = r#"{"type":"response.create","response":{"modalities":["audio","text"],"voice":"sage",
            "max_response_output_tokens":50,"output_audio_format":"g711_ulaw","temperature":0.8}}"#;
        let parsed = parse(event).expect("valid");
        let request = ResponseRequest {
            text_only: Some(false),
            max_tokens: Some(MaxTokens::At(50)),
            output: Some(Format::G711(Law::Mu)),
            ..ResponseRequest::default()
        };
        assert_eq!(parsed.request, ClientRequest::Respond(request));
        assert!(parsed.ineffective.iter().all(|field| field.known));
        let wrong = r#"{"type":"response.create","response":{"output_audio_format":"mp3"}}"#;
        let param = fault(wrong).param;
        assert_eq!(param.as_deref(), Some("response.output_audio_format"));
    }

    #[test]
    fn an_event_that_is_not_a_json_object_is_invalid_json() {
        for text in [
            "",
            "nonsense",
            "[]",
            "7",
            "null",
            "{\"type\":",
            &"[".repeat(10_000),
        ] {
            assert_eq!(fault(text).code, "invalid_json", "{text:.20}");
        }
    }

    #[test]
    fn audio_is_decoded() {
        let event = parse(r#"{"type":"input_audio_buffer.append","audio":"AQD//w=="}"#);
        assert_eq!(
            event.map(|event| event.request),
            Ok(ClientRequest::Append(vec![1, 0, 255, 255]))
        );
    }

    /// Both were refused.
    #[test]
    fn a_picture_is_a_remark_beside_words_and_alone_a_message_without_any() {
        let content = |parts: &str| {
            let item = format!(r#"{{"type":"message","role":"user","content":[{parts}]}}"#);
            let text = format!(r#"{{"type":"conversation.item.create","item":{item}}}"#);
            match parse(&text).expect("valid").request {
                ClientRequest::Create { item, .. } => item.content,
                other => panic!("{other:?}"),
            }
        };
        let picture = r#"{"type":"input_image","image_url":"data:image/png;base64,AA"}"#;
        let words = r#"{"type":"input_text","text":"Look:"}"#;
        let expected = ItemContent::User(format!("Look: {PICTURE}"));
        assert_eq!(content(&format!("{words},{picture}")), expected);
        let alone = content(&format!("{picture},{picture}"));
        assert_eq!(alone, ItemContent::Pictures);
        assert_eq!(content(""), ItemContent::User(String::new()));
    }

    #[test]
    fn items_keep_the_clients_id_and_join_their_parts() {
        let event = parse(
            r#"{"type":"conversation.item.create","previous_item_id":"root","item":{"id":"mine",
            "type":"message","role":"user","content":[{"type":"input_text","text":"Hello"},
            {"type":"input_audio","transcript":"there"}]}}"#,
        );
        let item = ClientItem {
            id: Some("mine".into()),
            content: ItemContent::User("Hello there".into()),
        };
        let request = ClientRequest::Create {
            previous: Some("root".into()),
            item,
        };
        assert_eq!(event.map(|event| event.request), Ok(request));
    }
}
