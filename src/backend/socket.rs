//! WebSockets to servers of models, opened like any other request: with the server's key, proxy and errors.

use super::{Backend, KeyForm, MAX_ERROR_BYTES, clipped};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{RequestBuilder, StatusCode, Upgraded};
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// The most bytes of a message: many times what a result takes.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// The most bytes of a refusal that are read.
const MAX_REFUSAL: usize = 16 * 1024;

/// How long opening one may take, TLS included.
const OPENING: Duration = Duration::from_secs(5);

/// How long a server may take to accept a message. A connection that takes longer is dead.
const WRITING: Duration = Duration::from_secs(2);

/// How long a server may take to close.
const CLOSING: Duration = Duration::from_secs(1);

/// A connection that could not be opened, or was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The server refuses the key.
    #[error("{0}")]
    Denied(String),
    /// It said why, or the connection broke. Names the server.
    #[error("{0}")]
    Failed(String),
}

/// A WebSocket to a server.
pub struct Socket {
    stream: WebSocketStream<Upgraded>,
    /// The server's address, without secrets.
    url: String,
}

impl Socket {
    /// Opens one with this GET request.
    ///
    /// # Errors
    /// [`Lost::Denied`] for status 401 or 403; [`Lost::Failed`] for any other answer, and if there is none within
    /// 5 s.
    pub async fn open(
        backend: &Backend,
        request: RequestBuilder,
        key: KeyForm,
    ) -> Result<Self, Lost> {
        let url = backend.shown();
        let Ok(upgraded) = timeout(OPENING, upgraded(backend, request, key)).await else {
            let ms = OPENING.as_millis();
            return Err(Lost::Failed(format!("{url} did not answer within {ms} ms")));
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let stream = WebSocketStream::from_raw_socket(upgraded?, Role::Client, Some(config));
        let stream = stream.await;
        Ok(Self { stream, url })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Lost::Failed`] if the connection is gone, or takes nothing for 2 s.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Lost> {
        match timeout(WRITING, self.stream.send(message.into())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failed(&error.to_string())),
            Err(_) => Err(self.failed("takes nothing any more")),
        }
    }

    /// The next text. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`Lost::Failed`] once the connection is gone, with code and reason if the server closed it.
    pub async fn next(&mut self) -> Result<Utf8Bytes, Lost> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Close(Some(frame)))) => {
                    let (code, reason) = (u16::from(frame.code), &frame.reason);
                    return Err(self.failed(&format!("closed the connection: {code} {reason}")));
                }
                Some(Ok(Message::Close(None))) => return Err(self.failed("closed the connection")),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(self.failed(&error.to_string())),
                None => return Err(self.failed("is gone")),
            }
        }
    }

    /// The error for a server that did `what`, with the server's address.
    pub fn failed(&self, what: &str) -> Lost {
        Lost::Failed(format!("{} {}", self.url, clipped(what, MAX_ERROR_BYTES)))
    }

    /// Sends a last message and lets the server close the connection, for 1 s at most.
    pub async fn finish(mut self, last: impl Into<Message>) {
        let end = async {
            self.stream.send(last.into()).await?;
            while self.stream.next().await.transpose()?.is_some() {}
            self.stream.close(None).await
        };
        // There is nothing to be done for a connection that nobody needs.
        drop(timeout(CLOSING, end).await);
    }
}

async fn upgraded(
    backend: &Backend,
    request: RequestBuilder,
    key: KeyForm,
) -> Result<Upgraded, Lost> {
    let (url, nonce) = (backend.shown(), generate_key());
    let request = request
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &nonce);
    let response = backend.send(request, key).await;
    let response = response.map_err(|reason| Lost::Failed(format!("{url}: {reason}")))?;
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let body = backend.read(response, MAX_REFUSAL).await;
        let body = backend.redacted(&body.unwrap_or_default());
        tracing::debug!(url, body, "a WebSocket was refused");
        let reason = format!("{url} answered {}", status.as_u16());
        return Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Lost::Denied(reason),
            _ => Lost::Failed(reason),
        });
    }
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
    if accepted.is_none_or(|accept| *accept != derive_accept_key(nonce.as_bytes())) {
        return Err(Lost::Failed(format!("{url} opened no WebSocket")));
    }
    let connection = response.upgrade().await;
    connection.map_err(|error| Lost::Failed(backend.explain(&error)))
}
