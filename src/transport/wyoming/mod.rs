//! Wyoming over TCP, for Home Assistant: speech to text, text to speech, and the agent.
//!
//! Client to server, and what is answered; events that are not in the table are ignored.
//!
//! | event | answer |
//! |---|---|
//! | `describe` | `info` |
//! | `transcribe`, `audio-start`, `audio-chunk`…, `audio-stop` | `transcript` |
//! | `synthesize` | `audio-start`, `audio-chunk`…, `audio-stop` |
//! | `synthesize-start`, `synthesize-chunk`…, `synthesize-stop` | the same while the text comes in, then `synthesize-stopped` |
//! | `transcript` | `handled` with the agent's answer; `not-handled` with its words if it cannot do that |
//! | `ping` | `pong` |
//!
//! A sentence for the agent may name a conversation (`context.conversation_id`), which then goes on
//! over any connection. Clients built on the `wyoming` package before 1.7 cannot: a sentence without a
//! name goes on with the one before it over the same connection, or over another one from the same
//! address if that was answered less than a minute ago.
//!
//! A request that cannot be served gets `error`, and the connection closes: clients that wait for an
//! answer do not all know that event.

mod agent;
mod connection;
mod event;
mod info;
mod kept;
mod recording;

pub use connection::{Service, serve, turn_away};
pub use kept::{ConversationMemory, ConversationName, ConversationStore};

/// Why a client's event is not answered.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Event(#[from] event::BadEvent),
    #[error("{kind}: {error}")]
    Data {
        kind: String,
        error: serde_json::Error,
    },
    #[error("the language \"{0}\" is not known here; use \"en\"")]
    Language(String),
    #[error("there is no voice \"{0}\" here; describe tells what there is")]
    Voice(String),
    #[error("text in the format \"{0}\" cannot be spoken; use \"text\"")]
    TextFormat(String),
    #[error("more than {} bytes of text", connection::MOST_TEXT)]
    LongText,
    #[error("a conversation_id of more than {} bytes", connection::MOST_NAME)]
    LongName,
    #[error("audio as {0:?}: use 2 bytes a sample, 1 or 2 channels, 8000 to 48000 Hz")]
    Format(recording::Format),
    #[error("the audio's format changed before audio-stop")]
    FormatChanged,
    #[error("more than 30 s of audio before audio-stop")]
    LongAudio,
}
