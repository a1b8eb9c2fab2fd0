//! The clients' end of WebSockets.

use super::BenchError;
use std::fmt::Display;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// Bytes of a socket's read buffer. The library clears the whole buffer before each read, and its own are of 128 KiB.
const READ_BUFFER: usize = 4096;

pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The settings of the bench's sockets, at the clients' end and at that of an echo.
pub(super) fn config() -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(READ_BUFFER)
}

/// Opens a WebSocket. Small messages leave at once: with Nagle's algorithm they would wait up to 40 ms for the
/// acknowledgement of the one before.
pub(super) async fn connect(request: impl IntoClientRequest + Unpin) -> Result<Socket, BenchError> {
    let socket = try_connect(request).await?;
    socket.ok_or_else(|| broken("the server has no room"))
}

/// Opens a WebSocket like [`connect`]; `None` if the server has no room for it.
pub(super) async fn try_connect(
    request: impl IntoClientRequest + Unpin,
) -> Result<Option<Socket>, BenchError> {
    match connect_async_with_config(request, Some(config()), true).await {
        Ok((socket, _)) => Ok(Some(socket)),
        Err(Error::Http(answer)) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => Ok(None),
        Err(error) => Err(broken(error)),
    }
}

pub(super) fn broken(reason: impl Display) -> BenchError {
    BenchError::sockets("a socket of the bench", reason)
}
