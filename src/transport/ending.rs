//! How a client's connection ends, whatever its protocol: why, who is blamed, and the last words.

#![allow(
    clippy::disallowed_methods,
    reason = "an edge: last words are waited for in real time"
)]

use super::socket::Counters;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// How long the last words may take.
const CLOSING: Duration = Duration::from_secs(1);

/// Why a connection ends. `B` is what the client did wrong, `C` why we close it.
#[derive(Debug, PartialEq)]
pub(super) enum End<B, C = &'static str> {
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
    pub(super) fn count(&self, counters: &Counters) {
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
