//! Second clients of a call's session: WebSockets that get its events and may send their own, as a page's own server
//! does while the page has the audio.

use crate::transport::close_code;
use crate::transport::pump::SocketLimits;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Events that may wait for a second client. One that falls further behind gets no more of them.
pub(super) const EVENTS: usize = 256;

/// Bytes of events that may wait in one queue. A longer event may wait alone.
const BYTES: u32 = 4 * 1024 * 1024;

/// The sending end of a queue of events between a call and its second clients, limited by number and by bytes.
#[derive(Debug, Clone)]
pub(super) struct EventSender {
    events: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

/// The receiving end.
pub(super) type EventReceiver = mpsc::Receiver<Waiting>;

/// An event in a queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) event: String,
    /// Its share of the queue's bytes.
    _room: OwnedSemaphorePermit,
}

/// A queue of at most `most` events.
pub(super) fn queue(most: usize) -> (EventSender, EventReceiver) {
    let (events, receiver) = mpsc::channel(most);
    let room = Arc::new(Semaphore::new(BYTES as usize));
    (EventSender { events, room }, receiver)
}

impl EventSender {
    /// Adds an event. False if there is no room for it, or nobody receives it any more.
    #[must_use]
    pub(super) fn send(&self, event: String) -> bool {
        let Ok(room) = self.room.clone().try_acquire_many_owned(share(&event)) else {
            return false;
        };
        let waiting = Waiting { event, _room: room };
        self.events.try_send(waiting).is_ok()
    }

    /// Adds the event, if there is one, once there is room for it. False if nobody receives it any more. Cancelling it
    /// leaves the event where it is.
    async fn send_later(&self, event: &mut Option<String>) -> bool {
        let bytes = event.as_deref().map_or(0, share);
        let Ok(room) = self.room.clone().acquire_many_owned(bytes).await else {
            return false;
        };
        let Ok(place) = self.events.reserve().await else {
            return false;
        };
        if let Some(event) = event.take() {
            place.send(Waiting { event, _room: room });
        }
        true
    }

    /// Whether somebody receives the events.
    fn is_received(&self) -> bool {
        !self.events.is_closed()
    }
}

/// An event's share of a queue's bytes.
fn share(event: &str) -> u32 {
    u32::try_from(event.len()).map_or(BYTES, |bytes| bytes.min(BYTES))
}

/// A second client's end of a call's session.
pub struct Sideband {
    pub(super) events: EventReceiver,
    pub(super) requests: EventSender,
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
        let mut takes_part = false;
        // Until the call has room for it, nothing more is read.
        let mut unsent: Option<String> = None;
        let mut pings = interval(limits.ping_every);
        loop {
            let message = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    return Some((close_code::GOING_AWAY, "the server shuts down"));
                }
                waiting = self.events.recv() => match waiting {
                    Some(waiting) => {
                        takes_part = true;
                        Message::Text(waiting.event.into())
                    }
                    None => return Some(self.no_more(takes_part)),
                },
                sent = self.requests.send_later(&mut unsent), if unsent.is_some() => {
                    heard = Instant::now();
                    match sent {
                        true => continue,
                        false => return Some(self.no_more(takes_part)),
                    }
                }
                message = socket.recv(), if unsent.is_none() => {
                    heard = Instant::now();
                    match received(message?.ok()?) {
                        Ok(event) => {
                            unsent = event;
                            continue;
                        }
                        Err(reason) => return reason,
                    }
                }
                _ = pings.tick() => Message::Ping(bytes::Bytes::new()),
                () = sleep_until(heard + limits.gone_after), if unsent.is_none() => return None,
            };
            timeout(limits.write_timeout, socket.send(message))
                .await
                .ok()?
                .ok()?;
        }
    }

    /// The reason why no more events come. `takes_part`: the client has had some.
    fn no_more(&self, takes_part: bool) -> Reason {
        match (self.requests.is_received(), takes_part) {
            (false, _) => (close_code::NORMAL, "the call is over"),
            (true, true) => (close_code::POLICY, "too many events are unread"),
            (true, false) => (close_code::POLICY, "as many clients take part as may"),
        }
    }
}

/// The event in a message, if there is one, or why the socket is to be closed.
fn received(message: Message) -> Result<Option<String>, Option<Reason>> {
    match message {
        Message::Text(text) => Ok(Some(text.to_string())),
        Message::Binary(_) => Err(Some((close_code::UNSUPPORTED, "events are text messages"))),
        Message::Close(_) => Err(None),
        Message::Ping(_) | Message::Pong(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn events_that_a_second_client_does_not_read_do_not_take_a_gigabyte() {
        let (sender, mut receiver) = queue(EVENTS);
        let echo = "x".repeat(1024 * 1024);
        let kept = (0..EVENTS).filter(|_| sender.send(echo.clone())).count();
        assert_eq!(kept, 4);
        assert_eq!(receiver.try_recv().unwrap().event, echo);
        assert!(sender.send(echo.clone()));
        assert!(!sender.send("x".into()));
        while receiver.try_recv().is_ok() {}
        assert!(sender.send(echo.repeat(5)), "alone");
        assert!(!sender.send("x".into()));
        assert_eq!(receiver.try_recv().unwrap().event.len(), 5 * echo.len());
        assert!(sender.send("x".into()));
    }

    #[test]
    fn a_second_client_that_is_left_out_is_not_told_that_the_call_is_over() {
        let (requests, requested) = queue(1);
        let (_, events) = queue(1);
        let sideband = Sideband { events, requests };
        let unread = (close_code::POLICY, "too many events are unread");
        assert_eq!(sideband.no_more(true), unread);
        assert_eq!(sideband.no_more(false).0, close_code::POLICY);
        drop(requested);
        for takes_part in [true, false] {
            assert_eq!(sideband.no_more(takes_part).0, close_code::NORMAL);
        }
    }

    #[tokio::test]
    async fn an_event_waits_for_room_and_is_kept_meanwhile() {
        let (sender, mut receiver) = queue(1);
        assert!(sender.send("first".into()));
        let mut unsent = Some("second".to_owned());
        assert_eq!(sender.send_later(&mut unsent).now_or_never(), None);
        assert_eq!(unsent.as_deref(), Some("second"));
        assert_eq!(receiver.recv().await.unwrap().event, "first");
        assert!(sender.send_later(&mut unsent).await);
        assert_eq!(unsent, None);
        assert_eq!(receiver.recv().await.unwrap().event, "second");
        drop(receiver);
        assert!(!sender.send_later(&mut Some("third".to_owned())).await);
    }

    #[test]
    fn events_are_limited_by_number_and_need_a_receiver() {
        let (sender, mut receiver) = queue(2);
        let kept = (0..9).filter(|_| sender.send("x".into())).count();
        assert_eq!(kept, 2);
        while receiver.try_recv().is_ok() {}
        drop(receiver);
        assert!(!sender.send("x".into()));
    }
}
