//! The protocol's beta: the same events under their older names and in their older shapes.
//!
//! Translates finished GA events, so that no other module depends on the beta. The parser accepts
//! the beta's client events directly; they need no translation.

use axum::http::HeaderMap;
use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use serde_json::{Map, Value, json};

/// The subprotocol with which a client requests the beta.
pub const BETA_PROTOCOL: &str = "openai-beta.realtime-v1";

/// The temperature reported in beta sessions by default. It has no effect.
const TEMPERATURE: f64 = 0.8;

/// Whether a client requests the beta, with the header `OpenAI-Beta: realtime=v1` or a subprotocol.
pub fn asks_for_beta(headers: &HeaderMap) -> bool {
    let has = |name: &str, wanted: &str| {
        let values = headers.get_all(name).iter();
        let mut texts = values.filter_map(|value| value.to_str().ok());
        texts.any(|text| text.split(',').any(|one| one.trim() == wanted))
    };
    has("openai-beta", "realtime=v1") || has(SEC_WEBSOCKET_PROTOCOL.as_str(), BETA_PROTOCOL)
}

/// An event's name and fields in the beta; `None` if the beta has no such event.
pub(super) fn translate(kind: &str, mut fields: Value) -> Option<(&str, Value)> {
    let name = match kind {
        "conversation.item.done" => return None,
        "conversation.item.added" => "conversation.item.created",
        "response.output_audio.delta" => "response.audio.delta",
        "response.output_audio.done" => "response.audio.done",
        "response.output_audio_transcript.delta" => "response.audio_transcript.delta",
        "response.output_audio_transcript.done" => "response.audio_transcript.done",
        "response.output_text.delta" => "response.text.delta",
        "response.output_text.done" => "response.text.done",
        "session.created" if is_transcription(&fields) => "transcription_session.created",
        "session.updated" if is_transcription(&fields) => "transcription_session.updated",
        other => other,
    };
    if let Some(item) = fields.get_mut("item") {
        rename_parts(item);
    }
    if let Some(response) = fields.get_mut("response").and_then(Value::as_object_mut) {
        flatten_response(response);
    }
    if let Some(session) = fields.get_mut("session").and_then(Value::as_object_mut) {
        flatten_session(session);
    }
    Some((name, fields))
}

fn is_transcription(fields: &Value) -> bool {
    fields["session"]["type"] == "transcription"
}

/// Gives the content parts of the agent's messages their beta names.
fn rename_parts(item: &mut Value) {
    let parts = item.get_mut("content").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten() {
        let name = match part["type"].as_str() {
            Some("output_text") => "text",
            Some("output_audio") => "audio",
            _ => continue,
        };
        part["type"] = name.into();
    }
}

fn flatten_response(response: &mut Map<String, Value>) {
    let items = response.get_mut("output").and_then(Value::as_array_mut);
    items.into_iter().flatten().for_each(rename_parts);
    let audio = response.remove("audio").unwrap_or_default();
    take_modalities(response);
    let output = &audio["output"];
    response.insert("voice".into(), output["voice"].clone());
    response.insert("output_audio_format".into(), format(&output["format"]));
    response.insert("temperature".into(), TEMPERATURE.into());
}

fn flatten_session(session: &mut Map<String, Value>) {
    session.remove("type");
    let audio = session.remove("audio").unwrap_or_default();
    take_modalities(session);
    let (input, output) = (&audio["input"], &audio["output"]);
    let limit = session.remove("max_output_tokens");
    let flat = json!({
        "voice": output["voice"],
        "speed": output["speed"],
        "input_audio_format": format(&input["format"]),
        "output_audio_format": format(&output["format"]),
        "input_audio_transcription": input["transcription"],
        "input_audio_noise_reduction": input["noise_reduction"],
        "turn_detection": input["turn_detection"],
        "max_response_output_tokens": limit,
    });
    session.extend(flat.as_object().cloned().unwrap_or_default());
    session
        .entry("temperature")
        .or_insert_with(|| TEMPERATURE.into());
}

/// The beta lists `text` beside `audio`, since audio comes with a transcript.
fn take_modalities(fields: &mut Map<String, Value>) {
    let modalities = match fields.remove("output_modalities") {
        Some(names) if names == json!(["audio"]) => json!(["audio", "text"]),
        Some(names) => names,
        None => return,
    };
    fields.insert("modalities".into(), modalities);
}

fn format(format: &Value) -> Value {
    match format["type"].as_str() {
        Some("audio/pcmu") => "g711_ulaw".into(),
        Some("audio/pcma") => "g711_alaw".into(),
        _ => "pcm16".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_beta_is_asked_for_by_header_or_subprotocol() {
        let asks = |name: &'static str, value: &'static str| {
            asks_for_beta(&HeaderMap::from_iter([(
                name.parse().expect("a name"),
                HeaderValue::from_static(value),
            )]))
        };
        assert!(asks("openai-beta", "realtime=v1"));
        let offered = "realtime, openai-insecure-api-key.x, openai-beta.realtime-v1";
        assert!(asks("sec-websocket-protocol", offered));
        assert!(!asks("openai-beta", "assistants=v2"));
        assert!(!asks("sec-websocket-protocol", "realtime"));
    }

    #[test]
    fn events_have_the_names_and_shapes_of_the_beta() {
        let session = json!({"session": {"type": "transcription", "audio": {"input": {}}}});
        let named = translate("session.updated", session).map(|(name, _)| name);
        assert_eq!(named, Some("transcription_session.updated"));
        let part = json!({"type": "output_audio", "transcript": "Hi."});
        let item = json!({"id": "a", "type": "message", "role": "assistant", "content": [part]});
        let old = json!([{"type": "audio", "transcript": "Hi."}]);
        assert_eq!(
            translate("conversation.item.done", json!({ "item": item })),
            None
        );
        let (name, fields) =
            translate("conversation.item.added", json!({ "item": item })).expect("an event");
        assert_eq!(name, "conversation.item.created");
        assert_eq!(fields["item"]["content"], old);
        let output = json!({"format": {"type": "audio/pcmu"}, "voice": "joe"});
        let response = json!({
            "id": "r", "output": [item], "output_modalities": ["audio"],
            "audio": {"output": output},
        });
        let (name, fields) =
            translate("response.done", json!({ "response": response })).expect("an event");
        let response = &fields["response"];
        assert_eq!(name, "response.done");
        assert_eq!(response["output"][0]["content"], old);
        assert_eq!(response["modalities"], json!(["audio", "text"]));
        assert_eq!(response["output_audio_format"], "g711_ulaw");
        assert_eq!(response["voice"], "joe");
        assert!(response.get("audio").is_none());
    }
}
