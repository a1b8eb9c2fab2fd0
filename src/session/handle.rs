//! A transport's end of a session: what goes in, what comes out, and how one is opened.

use super::options::SessionOptions;
use crate::conversation::{ClauseId, Event, HangUpReason, Input, ItemId, Time};
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::Span;

/// Input that a transport sends into a session.
#[derive(Debug)]
pub enum Inbound {
    /// The user's audio: mono PCM16 at the session's input rate. Any length up to 1 s.
    Audio(Vec<i16>),
    /// An item of the user's that was spoken elsewhere, of any length: it is added, and its words when
    /// it has been transcribed. 64 of them may wait for that.
    Spoken {
        /// Mono PCM16 at the session's input rate.
        audio: Vec<i16>,
        /// The item's id.
        id: ItemId,
        /// `AddItem` of that id with [`crate::conversation::NewItem::Spoken`].
        item: Box<Input>,
    },
    /// A request of the client: `Configure`, `CommitAudio`, `AddItem`, ... Never one that the
    /// session makes itself, such as `Vad` or `Llm`.
    Request(Input),
}

/// Output that a session sends to its transport, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Outbound {
    /// The agent's audio: 20 ms of mono PCM16 at the session's output rate, paced at most 200 ms
    /// ahead of what is playing.
    Audio {
        /// The item it belongs to.
        item: ItemId,
        /// The clause it belongs to.
        clause: ClauseId,
        /// The samples.
        samples: Vec<i16>,
    },
    /// Tones of telephone keys, like [`Outbound::Audio`] but of no clause. They are never cleared.
    Tones(Vec<i16>),
    /// Press these keys, if the client makes the agent's voice: `w` is a wait of half a second.
    Keys(String),
    /// Drop all audio that was sent and is not played yet. No audio of before follows it.
    Clear,
    /// Something to tell the client, or not, as the dialect has it.
    Event {
        /// When it happened, since the session began.
        at: Time,
        /// The event.
        event: Event,
    },
    /// One of the session's timers rings. It is announced in words once nobody speaks.
    TimerRings,
    /// The session is over; nothing follows.
    HangUp(HangUpReason),
}

/// A transport's end of a session. Dropping `inbound` ends the session.
#[derive(Debug)]
pub struct SessionHandle {
    /// Into the session. When it is full, audio is to be dropped and counted.
    pub inbound: mpsc::Sender<Inbound>,
    /// Out of the session.
    pub outbound: mpsc::Receiver<Outbound>,
    /// The session's name in the log.
    pub span: Span,
}

/// An error of a session that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No capacity is left; the client may try again later. Close code 1013.
    #[error("the server is overloaded")]
    Overloaded,
    /// The session could not be set up. Close code 1011; the text goes to the log only.
    #[error("the session could not be opened: {0}")]
    Failed(String),
}

/// Opens sessions. Must not block.
pub type SessionFactory =
    Arc<dyn Fn(SessionOptions) -> Result<SessionHandle, SessionError> + Send + Sync>;
