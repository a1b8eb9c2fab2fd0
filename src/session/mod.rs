//! The async shell around one conversation, and the channel by which transports reach it.
//!
//! | files | subject |
//! |---|---|
//! | `driver`, `driver/handoff` | the loop that drives one conversation; handoffs between agents |
//! | `handle`, `options` | a transport's end of a session, and the options that it opens with |
//! | `builders`, `engines`, `live_engines`, `observers` | everything that all sessions share, and what it is built from |
//! | `agents` | the agents, and the one that a session begins with |
//! | `recognisers`, `voices`, `detectors` | the models on their threads, and services instead of them |
//! | `source`, `source/health` | the state of a speech service: deadlines, and when it is not asked |
//! | `remote_voice`, `local_voice`, `shelf` | a voice on a service; a local one; local ones that are loaded on demand |
//! | `clause`, `ahead`, `pacer`, `phrases` | synthesis in chunks and in advance; real-time frames; prepared phrases |
//! | `routing`, `course`, `drafts` | questions to sources of predictions, with their context; draft models |
//! | `offer`, `notes` | the server's tools as a session knows them; the operator's texts with values of the session |
//! | `items` | spoken items from clients, on their way to the recogniser |
//! | `load`, `budget`, `experience`, `warmth` | over all sessions: load, budget, lessons, a loaded model |
//! | `recorder`, `call_audio`, `tracks` | recordings of decisions, and of sound |

mod agents;
mod ahead;
mod budget;
mod builders;
mod call_audio;
mod clause;
mod course;
mod detectors;
mod drafts;
mod driver;
mod engines;
mod experience;
mod handle;
mod items;
mod live_engines;
mod load;
mod local_voice;
mod notes;
mod observers;
mod offer;
mod options;
mod pacer;
mod phrases;
mod recognisers;
mod recorder;
mod remote_voice;
mod routing;
mod shelf;
mod source;
mod tracks;
mod voices;
mod warmth;

pub use agents::{AgentSettings, Cast, DEFAULT_AGENT, Route};
pub(crate) use agents::{PHONE, TRANSPORTS};
pub use budget::{BudgetMemory, BudgetShared, BudgetStore, Spending};
pub use builders::{
    Builders, LanguageDetection, ModelThreads, OtherVoice, PhoneSettings, Renewal, StartError,
};
pub use call_audio::{CALL_INDEX, CallRecordings};
pub(crate) use course::Course;
pub use engines::Engines;
pub use handle::{Inbound, Outbound, SessionError, SessionFactory, SessionHandle};
pub use live_engines::LiveEngines;
pub(crate) use notes::{check_greeting, check_instructions};
pub use observers::Observers;
pub use options::{PlacedCall, Profile, SessionOptions, SpokenBy};
pub(crate) use pacer::Pacer;
pub use recorder::Recordings;
pub use voices::{KnownVoice, Spoken};

use driver::Driver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tracing::Instrument;
use uuid::Uuid;
use warmth::Warmth;

/// Jobs that wait in front of a model before it counts as overloaded. At 70 ms a transcription
/// this is two seconds of work.
const INBOX: usize = 32;

/// Messages of a client that may wait for its session.
const INBOUND: usize = 64;

/// Messages that may wait for a client; audio is at most 10 of them.
const OUTBOUND: usize = 256;

static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// Opens a session on a task of its own.
pub fn open(engines: &Arc<Engines>, options: &SessionOptions) -> SessionHandle {
    open_known(engines, options).1
}

/// Opens a session as [`open`] does. Its name is the one that recordings and reports have.
pub(crate) fn open_known(
    engines: &Arc<Engines>,
    options: &SessionOptions,
) -> (Uuid, SessionHandle) {
    let id = SESSIONS.fetch_add(1, Ordering::Relaxed);
    // Unique among the sessions of all servers.
    let key = Uuid::new_v4();
    let span = tracing::info_span!("session", id = %key);
    let entered = span.clone().entered();
    let agent = engines.agents.of(options).clone();
    agent.warmth.use_now();
    if agent.policy.speculation.enabled {
        engines.draft.iter().for_each(Warmth::use_now);
    }
    let (inbound, incoming) = mpsc::channel(INBOUND);
    let (outgoing, outbound) = mpsc::channel(OUTBOUND);
    let (driver, results) = Driver::new((id, key), engines.clone(), agent, options, outgoing);
    drop(entered);
    let running = Box::new(driver).run(incoming, results);
    engines.sessions.spawn(running.instrument(span.clone()));
    let handle = SessionHandle {
        inbound,
        outbound,
        span,
    };
    (key, handle)
}

/// The failure of a worker's job, in words.
fn reason(error: impl std::fmt::Display) -> String {
    error.to_string()
}
