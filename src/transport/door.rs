//! A protocol over bare TCP, as the server lets its clients in.

use super::pump::PumpContext;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

/// A protocol over bare TCP in which the client speaks first.
pub trait Door: Send + Sync {
    /// The places that its connections take.
    fn places(&self) -> Places;

    /// Serves a client until it leaves or the server stops.
    fn serve(&self, stream: TcpStream, context: PumpContext) -> BoxFuture<'static, ()>;

    /// Tells a client that there is no place for it.
    fn turn_away(&self, stream: TcpStream) -> BoxFuture<'static, ()>;
}

/// The places that a door's connections take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// A connection is a session, and takes a session's place.
    OfSessions,
    /// A connection may stay for days before it opens a session. There are as many places as there are
    /// sessions, and none of them is a session's; a session opens while the models have room for one.
    OfTheirOwn,
}
