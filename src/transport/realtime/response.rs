//! The active response and its end.

use super::client_events::ResponseRequest;
use super::codec::{Encoder, Format};
use super::session_config::tokens_json;
use super::session_object::Session;
use crate::conversation::{Micros, ResponseStatus};
use serde_json::{Value, json};

/// One response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) id: String,
    pub(super) text_only: bool,
    pub(super) metadata: Option<Value>,
    /// Whether the response stays out of the conversation.
    pub(super) outside: bool,
    pub(super) max_tokens: Value,
    pub(super) encoder: Encoder,
    /// The length of its audio that was sent.
    pub(super) audio: Micros,
    /// The names of its items, in order.
    pub(super) output: Vec<String>,
    /// The open speech item. It closes when another item of the response is sent, or the response
    /// ends.
    pub(super) speech: Option<Speech>,
    /// Whether it called one of the client's tools.
    pub(super) client_called: bool,
    /// Whether it is the opening of the session.
    pub(super) opens: bool,
}

/// An open speech item.
#[derive(Debug)]
pub(super) struct Speech {
    pub(super) name: String,
    pub(super) index: usize,
    /// The words so far.
    pub(super) text: String,
    /// Whether the agent is speaking it; otherwise the item stays open for what the agent says
    /// next.
    pub(super) is_spoken: bool,
}

impl Response {
    /// A new response with the request's settings, or the session's where the request has none.
    pub(super) fn new(id: String, request: ResponseRequest, session: &Session) -> Self {
        Self {
            id,
            text_only: request.text_only.unwrap_or(session.text_only),
            metadata: request.metadata,
            outside: request.outside,
            max_tokens: tokens_json(request.max_tokens.unwrap_or(session.max_tokens)),
            encoder: Encoder::new(request.output.unwrap_or(session.output)),
            audio: Micros(0),
            output: Vec::new(),
            speech: None,
            client_called: false,
            opens: false,
        }
    }

    /// Sends what follows of an opening in this format, which the client has chosen meanwhile.
    pub(super) fn change_format(&mut self, format: Format) {
        if self.opens && self.encoder.format() != format {
            self.encoder = Encoder::new(format);
        }
    }

    /// Opens the item that was added last. Returns its [`place`](Self::place).
    pub(super) fn open_speech(&mut self, name: String) -> Value {
        let index = self.output.len().saturating_sub(1);
        let place = self.place(&name, index);
        self.speech = Some(Speech {
            name,
            index,
            text: String::new(),
            is_spoken: true,
        });
        place
    }

    /// Whether the open speech item is the last item.
    pub(super) fn ends_with_speech(&self) -> bool {
        let speech = self.speech.as_ref();
        speech.is_some_and(|speech| speech.index + 1 == self.output.len())
    }

    /// Adds words to the open item, with a space before them where one is needed. Returns the
    /// item's [`place`](Self::place) and the text that was added.
    pub(super) fn say(&mut self, text: &str) -> Option<(Value, String)> {
        let speech = self.speech.as_mut()?;
        let joined = speech.text.is_empty()
            || speech.text.ends_with(char::is_whitespace)
            || text.starts_with(char::is_whitespace);
        let delta = format!("{}{text}", if joined { "" } else { " " });
        speech.text.push_str(&delta);
        let (name, index) = (speech.name.clone(), speech.index);
        Some((self.place(&name, index), delta))
    }

    /// Adds text to the open item verbatim. Returns the item's [`place`](Self::place).
    pub(super) fn write(&mut self, text: &str) -> Option<Value> {
        let speech = self.speech.as_mut()?;
        speech.text.push_str(text);
        let (name, index) = (speech.name.clone(), speech.index);
        Some(self.place(&name, index))
    }

    /// The fields with which events refer to an item's only content part.
    pub(super) fn place(&self, name: &str, index: usize) -> Value {
        json!({
            "response_id": self.id, "item_id": name, "output_index": index, "content_index": 0,
        })
    }
}

/// The response's status and `status_details` in the protocol. `failure` is a code and a message.
pub(super) fn end_of(
    status: ResponseStatus,
    failure: Option<(String, String)>,
) -> (&'static str, Value) {
    let cancelled = |reason| ("cancelled", json!({"type": "cancelled", "reason": reason}));
    match status {
        ResponseStatus::Completed => ("completed", Value::Null),
        ResponseStatus::Interrupted => cancelled("turn_detected"),
        ResponseStatus::Cancelled => cancelled("client_cancelled"),
        ResponseStatus::Incomplete => {
            let reason = json!({"type": "incomplete", "reason": "max_output_tokens"});
            ("incomplete", reason)
        }
        ResponseStatus::Failed => {
            let error = failure.map(
                |(code, message)| json!({"type": "server_error", "code": code, "message": message}),
            );
            ("failed", json!({"type": "failed", "error": error}))
        }
    }
}
