//! The async shell around one conversation, and the channel by which transports reach it.

mod budget;
mod clause;
mod driver;
mod engines;
mod handle;
mod items;
mod load;
mod options;
mod pacer;
mod recorder;
mod routing;

pub use budget::{BudgetMemory, BudgetStore, Spending};
pub use engines::{Builders, Engines, Observers, PhoneSettings, Renewal, StartError};
pub use handle::{Inbound, Outbound, SessionError, SessionFactory, SessionHandle};
pub use options::{Profile, SessionOptions, SpokenBy};
pub(crate) use pacer::{CHARACTER, Pacer};
pub use recorder::Recordings;

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
