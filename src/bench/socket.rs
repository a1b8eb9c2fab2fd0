//! The clients' end of WebSockets.

use super::BenchError;
use std::fmt::Display;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Opens a WebSocket. Small messages leave at once: with Nagle's algorithm they would wait up to 40 ms for the
/// acknowledgement of the one before.
pub(super) async fn connect(request: impl IntoClientRequest + Unpin) -> Result<Socket, BenchError> {
    let (socket, _) = connect_async_with_config(request, None, true)
        .await
        .map_err(broken)?;
    Ok(socket)
}

pub(super) fn broken(reason: impl Display) -> BenchError {
    BenchError::sockets("a socket of the bench", reason)
}
