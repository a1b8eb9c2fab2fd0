//! An event on the wire: a JSON line, then the JSON data and the payload whose lengths the line
//! gives.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The longest line, bytes.
const MOST_LINE: u64 = 64 * 1024;

/// The most data, bytes: a `transcribe` may list every device in a house.
const MOST_DATA: u64 = 256 * 1024;

/// The largest payload, bytes: 131 s of mono audio at 16 kHz. Most clients send about 64 ms at once, some a whole
/// recording.
const MOST_PAYLOAD: u64 = 4 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// The `type`.
    pub(super) kind: String,
    /// The JSON data.
    pub(super) data: Map<String, Value>,
    /// The binary payload, such as audio.
    pub(super) payload: Vec<u8>,
}

/// The reason the next event cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadEvent {
    #[error("the connection broke off: {0}")]
    Broken(#[from] io::Error),
    #[error("a line of more than {MOST_LINE} bytes: this is not Wyoming")]
    LongLine,
    #[error("not the header of a Wyoming event: {0}")]
    Header(serde_json::Error),
    #[error("{length} bytes of {part}; at most {most} are allowed")]
    Large {
        part: &'static str,
        length: u64,
        most: u64,
    },
    #[error("an event's data is not a JSON object: {0}")]
    Data(serde_json::Error),
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "type")]
    kind: String,
    data: Option<Map<String, Value>>,
    data_length: Option<u64>,
    payload_length: Option<u64>,
}

impl Event {
    /// Reads the next event; `None` if the other side has closed the connection.
    ///
    /// # Errors
    /// [`BadEvent`]. The stream cannot be read any further: where the next event begins is unknown.
    pub(super) async fn read(
        reader: &mut (impl AsyncBufRead + Unpin),
    ) -> Result<Option<Self>, BadEvent> {
        let mut line = Vec::new();
        let mut bounded = (&mut *reader).take(MOST_LINE);
        bounded.read_until(b'\n', &mut line).await?;
        match line.last() {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) if line.len() as u64 == MOST_LINE => return Err(BadEvent::LongLine),
            Some(_) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
        let header: Header = serde_json::from_slice(&line).map_err(BadEvent::Header)?;
        let mut data = header.data.unwrap_or_default();
        let more = take(reader, "data", header.data_length, MOST_DATA).await?;
        if !more.is_empty() {
            let more: Map<String, Value> = serde_json::from_slice(&more).map_err(BadEvent::Data)?;
            data.extend(more);
        }
        Ok(Some(Self {
            kind: header.kind,
            data,
            payload: take(reader, "payload", header.payload_length, MOST_PAYLOAD).await?,
        }))
    }

    /// The data as a `T`.
    ///
    /// # Errors
    /// If a field is missing or has another type.
    pub(super) fn says<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&Value::Object(self.data.clone()))
    }
}

async fn take(
    reader: &mut (impl AsyncBufRead + Unpin),
    part: &'static str,
    length: Option<u64>,
    most: u64,
) -> Result<Vec<u8>, BadEvent> {
    let length = length.unwrap_or(0);
    if length > most {
        return Err(BadEvent::Large { part, length, most });
    }
    let mut bytes = vec![0; length as usize];
    reader.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// An event's bytes on the wire. `data` is an object.
pub(super) fn encode(kind: &str, data: &Value, payload: &[u8]) -> Vec<u8> {
    let data = data.to_string();
    let header = json!({
        "type": kind,
        "data_length": data.len(),
        "payload_length": payload.len(),
    });
    let mut bytes = header.to_string().into_bytes();
    bytes.push(b'\n');
    bytes.extend(data.into_bytes());
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(mut bytes: &[u8]) -> Vec<Result<Option<Event>, String>> {
        let mut events = vec![];
        loop {
            let event = Event::read(&mut bytes).await;
            events.push(event.map_err(|error| error.to_string()));
            if !matches!(events.last(), Some(Ok(Some(_)))) {
                return events;
            }
        }
    }

    fn event(kind: &str, data: &Value, payload: &[u8]) -> Result<Option<Event>, String> {
        Ok(Some(Event {
            kind: kind.into(),
            data: data.as_object().expect("an object").clone(),
            payload: payload.to_vec(),
        }))
    }

    #[tokio::test]
    async fn events_carry_data_in_the_line_and_after_it() {
        let bytes = [
            &b"{\"type\":\"describe\"}\n"[..],
            b"{\"type\":\"ping\",\"data\":{\"text\":\"a\",\"more\":1},\"data_length\":12}\n",
            b"{\"text\":\"b\"}",
            b"{\"type\":\"audio-chunk\",\"version\":\"1.10.2\",\"data\":null,\"payload_length\":3}\n\n{\n",
            &encode("pong", &json!({"text": "ä\n"}), b"\n"),
        ]
        .concat();
        let expected = [
            event("describe", &json!({}), b""),
            event("ping", &json!({"text": "b", "more": 1}), b""),
            event("audio-chunk", &json!({}), b"\n{\n"),
            event("pong", &json!({"text": "ä\n"}), b"\n"),
            Ok(None),
        ];
        assert_eq!(read(&bytes).await, expected);
    }

    #[tokio::test]
    async fn a_malformed_event_says_why() {
        let long = vec![b' '; 70_000];
        let cases: [(&[u8], &str); 9] = [
            (b"GET / HTTP/1.1\r\n\r\n", "not the header"),
            (b"\n", "not the header"),
            (b"{\"data\":{}}\n", "missing field `type`"),
            (b"{\"type\":\"a\",\"data_length\":-1}\n", "not the header"),
            (
                b"{\"type\":\"a\",\"data_length\":2}\n[]",
                "not a JSON object",
            ),
            (
                b"{\"type\":\"a\",\"data_length\":262145}\n",
                "262145 bytes of data",
            ),
            (
                b"{\"type\":\"a\",\"payload_length\":99999999999}\n",
                "bytes of payload",
            ),
            (&long, "a line of more"),
            (b"{\"type\":\"a\",\"payload_length\":2}\n1", "broke off"),
        ];
        for (bytes, reason) in cases {
            let events = read(bytes).await;
            let [Err(error)] = &*events else {
                panic!("{events:?}");
            };
            assert!(error.contains(reason), "{error}: {reason}");
        }
    }
}
