//! Protocols over bare TCP, as the server admits their clients.

use super::pump::PumpContext;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

/// A protocol over bare TCP in which the client speaks first.
pub trait Door: Send + Sync {
    /// The places that its connections take.
    fn places(&self) -> Places;

    /// Serves a client until it leaves or the server stops.
    fn serve(&self, stream: TcpStream, context: PumpContext) -> BoxFuture<'static, ()>;

    /// Refuses a client because the server is full.
    fn turn_away(&self, stream: TcpStream) -> BoxFuture<'static, ()>;
}

/// The places that a door's connections take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// Each connection is a session and takes a session's place.
    OfSessions,
    /// A client may stay connected for days before it opens a session, so connections have places of
    /// their own, as many as there are sessions. A session opens only while the models have room.
    OfTheirOwn,
}
