//! Second clients of a call's session: WebSockets that get its events and may send their own, as a page's own server
//! does while the page has the audio.

use crate::transport::close_code;
use crate::transport::pump::SocketLimits;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Events that may wait for a second client. One that falls further behind gets no more of them.
pub(super) const EVENTS: usize = 256;

/// A second client's end of a call's session.
pub struct Sideband {
    pub(super) events: mpsc::Receiver<String>,
    pub(super) requests: mpsc::Sender<String>,
}

/// A reason to close the socket: a code and words.
type Reason = (u16, &'static str);

impl Sideband {
    /// Carries events until either side leaves or the server stops.
    pub async fn drive(
        mut self,
        mut socket: WebSocket,
        limits: SocketLimits,
        stop: CancellationToken,
    ) {
        let Some((code, reason)) = self.run(&mut socket, limits, stop).await else {
            return;
        };
        let reason = Utf8Bytes::from_static(reason);
        let close = Message::Close(Some(CloseFrame { code, reason }));
        let _ = timeout(limits.write_timeout, socket.send(close)).await;
    }

    /// Returns why the socket is to be closed; `None` if it is gone.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    async fn run(
        &mut self,
        socket: &mut WebSocket,
        limits: SocketLimits,
        stop: CancellationToken,
    ) -> Option<Reason> {
        let mut heard = Instant::now();
        let mut pings = interval(limits.ping_every);
        loop {
            let message = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    return Some((close_code::GOING_AWAY, "the server shuts down"));
                }
                event = self.events.recv() => match event {
                    Some(event) => Message::Text(event.into()),
                    None => return Some((close_code::NORMAL, "the call is over")),
                },
                message = socket.recv() => {
                    heard = Instant::now();
                    match self.received(message?.ok()?) {
                        Ok(()) => continue,
                        Err(reason) => return reason,
                    }
                }
                _ = pings.tick() => Message::Ping(bytes::Bytes::new()),
                () = sleep_until(heard + limits.gone_after) => return None,
            };
            timeout(limits.write_timeout, socket.send(message))
                .await
                .ok()?
                .ok()?;
        }
    }

    fn received(&self, message: Message) -> Result<(), Option<Reason>> {
        match message {
            Message::Text(text) => {
                let taken = self.requests.try_send(text.to_string());
                taken.map_err(|_| Some((close_code::POLICY, "too many requests are waiting")))
            }
            Message::Binary(_) => Err(Some((close_code::UNSUPPORTED, "events are text messages"))),
            Message::Close(_) => Err(None),
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        }
    }
}
