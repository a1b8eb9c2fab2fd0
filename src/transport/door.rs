//! Protocols over bare TCP: their interface to the server, which admits their clients.

use super::pump::PumpContext;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

/// A protocol over bare TCP in which the client speaks first.
pub trait Door: Send + Sync {
    /// The kind of place that a connection takes.
    fn places(&self) -> Places;

    /// Serves a client until it leaves or the server stops.
    fn serve(&self, stream: TcpStream, context: PumpContext) -> BoxFuture<'static, ()>;

    /// Refuses a client because the server is full.
    fn turn_away(&self, stream: TcpStream) -> BoxFuture<'static, ()>;
}

/// The kind of place that each of a door's connections takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// Each connection is a session and takes a session's place.
    OfSessions,
    /// Connections have places of their own, as many as there are for sessions, because a client may stay connected for
    /// days before it opens a session. A session opens only while the models have room.
    OfTheirOwn,
}
