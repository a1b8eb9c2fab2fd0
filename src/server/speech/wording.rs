//! A request to speak a text.

use super::container::Container;
use crate::transport::realtime::{Fault, Offered};
use crate::tts::{Speaker, Speed};
use serde_json::{Map, Value};

/// The longest text, characters: OpenAI's bound.
const MAX_TEXT: usize = 4_096;

/// A text, with the voice and form in which it is wanted.
pub(super) struct Wording {
    pub(super) text: String,
    pub(super) speaker: Speaker,
    pub(super) container: Container,
    /// Whether the audio is sent as events instead of bytes.
    pub(super) as_events: bool,
}

impl Wording {
    /// Reads a request. Every `model` means the server's voices; `instructions` change nothing.
    ///
    /// # Errors
    /// [`Fault`] names the field.
    pub(super) fn read(body: &[u8], offered: &Offered) -> Result<Self, Fault> {
        let body: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
            let message = format!("The body is not a JSON object: {error}.");
            Fault::whole("invalid_json", message)
        })?;
        let field = |name: &str| body.get(name).filter(|value| !value.is_null());
        let text = match field("input") {
            Some(Value::String(text)) => text.clone(),
            Some(_) => return invalid("input", "It must be a text."),
            None => {
                let code = "missing_required_parameter";
                return Err(Fault::new(code, "input", "It is missing."));
            }
        };
        if text.chars().count() > MAX_TEXT {
            let message = format!("It is longer than {MAX_TEXT} characters.");
            return Err(Fault::new("string_above_max_length", "input", message));
        }
        if text.trim().is_empty() {
            return invalid("input", "There is nothing to say.");
        }
        let container = match field("response_format") {
            None => Some(Container::Mp3),
            Some(name) => name.as_str().and_then(Container::named),
        };
        let Some(container) = container else {
            let message = "It must be mp3, the default, opus, flac, wav or pcm.";
            return invalid("response_format", message);
        };
        let as_events = match field("stream_format").map(Value::as_str) {
            None | Some(Some("audio")) => false,
            Some(Some("sse")) => true,
            Some(_) => return invalid("stream_format", "It must be audio, the default, or sse."),
        };
        let speed = field("speed").map(|speed| speed.as_f64().and_then(Speed::of));
        if speed == Some(None) {
            return invalid("speed", "It must be a number from 0.25 to 4.");
        }
        Ok(Self {
            text,
            speaker: Speaker {
                speed: speed.flatten(),
                ..speaker(field("voice"), offered)?
            },
            container,
            as_events,
        })
    }
}

fn speaker(voice: Option<&Value>, offered: &Offered) -> Result<Speaker, Fault> {
    let name = match voice {
        None => return Ok(Speaker::default()),
        Some(Value::String(name)) => Some(name.as_str()),
        Some(voice) => voice.get("id").and_then(Value::as_str),
    };
    let Some(name) = name else {
        return invalid("voice", "A voice must be a name, or an object with an id.");
    };
    Ok(Speaker {
        voice: offered.voice(name, "voice")?,
        ..Speaker::default()
    })
}

fn invalid<T>(param: &str, message: &str) -> Result<T, Fault> {
    Err(Fault::new("invalid_value", param, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(format: Value) -> Option<Container> {
        let body = json!({"input": "Hello.", "response_format": format}).to_string();
        let wording = Wording::read(body.as_bytes(), &Offered::default());
        wording.ok().map(|wording| wording.container)
    }

    #[test]
    fn speech_is_mp3_unless_the_client_wants_another_form() {
        assert_eq!(container(Value::Null), Some(Container::Mp3));
        for (name, wanted) in [
            ("mp3", Container::Mp3),
            ("opus", Container::Opus),
            ("flac", Container::Flac),
            ("wav", Container::Wav),
            ("pcm", Container::Pcm),
        ] {
            assert_eq!(container(json!(name)), Some(wanted));
        }
        for unknown in [json!("aac"), json!("MP3"), json!(""), json!(3)] {
            assert_eq!(container(unknown.clone()), None, "{unknown}");
        }
    }
}
