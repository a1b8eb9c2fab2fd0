//! The parts that the pumps of all protocols share: what they use of the server, how they reach the
//! session, and how a connection ends.

use crate::session::SessionFactory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the last words may take.
const CLOSING: Duration = Duration::from_secs(1);

/// Timeouts of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketLimits {
    /// A silent client is pinged, or asked for a sign of life, this often.
    pub ping_every: Duration,
    /// A client that has not sent a frame for this long is gone.
    pub gone_after: Duration,
    /// A client that has not read a frame for this long, while one waits, is disconnected.
    pub write_timeout: Duration,
    /// A client that has not opened its session for this long is disconnected: it holds a place.
    pub open_within: Duration,
    /// A session whose client's connection was lost, and that may come back, waits for it this long.
    pub return_within: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(20),
            gone_after: Duration::from_secs(30),
            write_timeout: Duration::from_secs(5),
            open_within: Duration::from_secs(10),
            return_within: Duration::from_secs(30),
        }
    }
}

/// Counters over all connections since the server started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sessions that were opened.
    pub sessions: AtomicU64,
    /// Microseconds of clients' audio that came too fast.
    pub audio_in_dropped: AtomicU64,
    /// Microseconds of the agent's audio that clients were too slow to read.
    pub audio_out_dropped: AtomicU64,
    /// Clients that were disconnected because they did not read.
    pub slow_clients: AtomicU64,
    /// Clients that vanished without a word.
    pub vanished_clients: AtomicU64,
    /// Sockets closed because of what the client sent.
    pub bad_clients: AtomicU64,
}

/// The parts of the server that a pump uses.
#[derive(Clone)]
pub struct PumpContext {
    /// Opens the session.
    pub sessions: SessionFactory,
    /// Timeouts.
    pub limits: SocketLimits,
    /// Counted into.
    pub counters: Arc<Counters>,
    /// The server shuts down: the session is asked to finish. Telephone calls go on.
    pub drain: CancellationToken,
    /// Little time is left: telephone calls, whose callers cannot come back by themselves, are asked to finish.
    pub farewell: CancellationToken,
    /// No more time: the socket is closed.
    pub stop: CancellationToken,
}

/// The reason for a connection's end. `B` is the client's violation, `C` our reason to close it.
#[derive(Debug, PartialEq)]
pub enum End<B, C = &'static str> {
    /// The client closed it.
    Left,
    /// The client vanished or the network broke.
    Vanished,
    /// The client does not read.
    Slow,
    /// The client sent what it may not.
    Bad(B),
    /// The server closes it.
    Closed(C),
}

impl<B, C> End<B, C> {
    /// Counts those ends that clients are to blame for.
    pub fn count(&self, counters: &Counters) {
        match self {
            Self::Slow => counters.slow_clients.fetch_add(1, Relaxed),
            Self::Vanished => counters.vanished_clients.fetch_add(1, Relaxed),
            Self::Bad(_) => counters.bad_clients.fetch_add(1, Relaxed),
            Self::Left | Self::Closed(_) => return,
        };
    }
}

/// Sends the last words over TCP, and waits until the other side has closed: a socket that is closed
/// over unread data is reset, and then they may be lost.
pub(super) async fn say_last(mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf, words: &[u8]) {
    let goodbye = async {
        writer.write_all(words).await?;
        writer.shutdown().await?;
        copy(&mut reader, &mut sink()).await
    };
    if let Ok(Err(error)) = timeout(CLOSING, goodbye).await {
        tracing::trace!(%error, "last words cut short");
    }
}
