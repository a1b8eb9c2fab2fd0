//! A request to speak a text.

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

/// The form of the audio: mono PCM16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    /// With a header whose length is open, because the end is not known when it is sent.
    Wav,
    /// Samples alone.
    Pcm,
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
        if !text.chars().any(char::is_alphanumeric) {
            return invalid("input", "There is nothing to say.");
        }
        let container = match field("response_format").map(Value::as_str) {
            None | Some(Some("wav")) => Container::Wav,
            Some(Some("pcm")) => Container::Pcm,
            Some(_) => return invalid("response_format", "It must be wav, the default, or pcm."),
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

impl Container {
    /// The bytes before the samples, which have `rate`, Hz.
    pub(super) fn header(self, rate: u32) -> Vec<u8> {
        if self == Self::Pcm {
            return Vec::new();
        }
        const OPEN: [u8; 4] = u32::MAX.to_le_bytes();
        [
            b"RIFF".as_slice(),
            &OPEN,
            b"WAVEfmt ",
            &16_u32.to_le_bytes(),
            // PCM, one channel.
            &1_u16.to_le_bytes(),
            &1_u16.to_le_bytes(),
            &rate.to_le_bytes(),
            &(2 * rate).to_le_bytes(),
            // Bytes and bits of a sample.
            &2_u16.to_le_bytes(),
            &16_u16.to_le_bytes(),
            b"data",
            &OPEN,
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::{decode, to_pcm16le};
    use std::io::Cursor;
    use std::time::Duration;

    #[test]
    fn a_header_of_open_length_is_read_to_the_end_of_the_samples() {
        let mut wav = Container::Wav.header(16_000);
        wav.extend(to_pcm16le(&[0, 16_384, -16_384]));
        let audio = decode(Box::new(Cursor::new(wav)), Duration::from_secs(1), || true).unwrap();
        assert_eq!(audio, [0.0, 0.5, -0.5]);
        assert!(Container::Pcm.header(16_000).is_empty());
    }
}
