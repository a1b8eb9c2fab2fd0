//! Wyoming over TCP, for Home Assistant: speech to text, text to speech, and the agent.
//!
//! Client events and their answers; other events are ignored.
//!
//! | event | answer |
//! |---|---|
//! | `describe` | `info` |
//! | `transcribe`, `audio-start`, `audio-chunk`…, `audio-stop` | `transcript` |
//! | `synthesize` | `audio-start`, `audio-chunk`…, `audio-stop` |
//! | `synthesize-start`, `synthesize-chunk`…, `synthesize-stop` | the same while the text arrives, then `synthesize-stopped` |
//! | `transcript` | `handled` with the agent's answer, or `not-handled` with its answer if it could not do what was asked |
//! | `ping` | `pong` |
//!
//! A sentence for the agent may carry a conversation id (`context.conversation_id`) and then
//! continues that conversation over any connection. Clients built on the `wyoming` package before
//! 1.7 cannot: a sentence without an id continues the previous conversation on its connection, or
//! else the last one from the same address if that was answered less than a minute ago.
//!
//! A request that cannot be served gets `error`, and the connection closes, because not all clients
//! that wait for an answer understand `error`.

mod agent;
mod connection;
mod event;
mod info;
mod kept;
mod recording;

pub use connection::Service;
pub use kept::{ConversationMemory, ConversationName, ConversationStore};

/// The reason a client's event is refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Event(#[from] event::BadEvent),
    #[error("{kind}: {error}")]
    Data {
        kind: String,
        error: serde_json::Error,
    },
    #[error("the language \"{0}\" is not supported; `describe` lists the languages")]
    Language(String),
    #[error("text in the format \"{0}\" is not supported; use \"text\"")]
    TextFormat(String),
    #[error("more than {} characters of text", connection::MOST_TEXT)]
    LongText,
    #[error("a conversation_id of more than {} bytes", connection::MOST_NAME)]
    LongName,
    #[error(
        "audio as {0:?} is not supported: use 2 bytes per sample, 1 or 2 channels, 8000 to 48000 Hz"
    )]
    Format(recording::Format),
    #[error("the audio's format changed before audio-stop")]
    FormatChanged,
    #[error(
        "more than {} minutes of audio before audio-stop",
        recording::MOST_MINUTES
    )]
    LongAudio,
}

/// Reads events until they end or break off, for [`super::READERS`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_events(mut bytes: &[u8]) {
    use futures_util::FutureExt;
    let mut begun: Option<recording::Recording> = None;
    while let Some(Ok(Some(event))) = event::Event::read(&mut bytes).now_or_never() {
        let Ok(format) = event.says::<recording::Format>() else {
            continue;
        };
        match &mut begun {
            None => begun = recording::Recording::begin(format).ok(),
            Some(recording) => {
                drop(recording.push(format, &event.payload));
                while recording.cut().is_some() {}
            }
        }
    }
    begun.map(recording::Recording::end);
}
