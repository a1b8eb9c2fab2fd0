//! The async shell around one conversation, and the channel by which transports reach it.

mod budget;
mod clause;
mod driver;
mod engines;
mod items;
mod load;
mod pacer;
mod recorder;

pub use engines::{Builders, Engines, Manners, PhoneManners, RouterBuilder, StartError, Witnesses};
pub(crate) use pacer::{CHARACTER, Pacer};
pub use recorder::Recordings;

use crate::conversation::{ClauseId, Event, HangUpReason, Input, ItemId, Time};
use crate::transport::SessionOptions;
use driver::Driver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tracing::Instrument;

/// Messages of a client that may wait for its session.
const INBOUND: usize = 64;

/// Messages that may wait for a client; audio is at most 10 of them.
const OUTBOUND: usize = 256;

static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// Opens a session on a task of its own.
pub fn open(engines: &Arc<Engines>, options: &SessionOptions) -> SessionHandle {
    let id = SESSIONS.fetch_add(1, Ordering::Relaxed);
    let (inbound, incoming) = mpsc::channel(INBOUND);
    let (outgoing, outbound) = mpsc::channel(OUTBOUND);
    let (driver, results) = Driver::new(id, engines.clone(), options, outgoing);
    let span = tracing::info_span!("session", id);
    let running = Box::new(driver).run(incoming, results).instrument(span);
    engines.sessions.spawn(running);
    SessionHandle { inbound, outbound }
}

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
    /// Drop all audio that was sent and is not played yet. No audio of before follows it.
    Clear,
    /// Something to tell the client, or not, as the dialect has it.
    Event {
        /// When it happened, since the session began.
        at: Time,
        /// The event.
        event: Event,
    },
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
}
