//! How a client whose connection was lost comes back to its session.
//!
//! The pump keeps session and dialect, and waits for a new connection, which arrives through a [`WayBack`]. What the
//! client has not received is sent again: events from a [`Replay`], and the agent's words by the session.

use crate::conversation::HeardUpTo;
use crate::transport::Action;
use crate::transport::outbox::Outbox;
use axum::extract::ws::WebSocket;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;

/// The events that are kept for a client that comes back: at most this many, and this many bytes.
const MAX_EVENTS: usize = 512;
const MAX_BYTES: usize = 512 * 1024;

/// A connection over which a client comes back, and what it says of the one before.
pub struct Returning {
    /// The connection.
    pub socket: Box<WebSocket>,
    /// The last event that it has received, and the words that it has heard.
    pub seen: Seen,
}

/// The last event that a returning client has received, and the words that it has heard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The id of the last event that it received.
    pub event: Option<String>,
    /// The name of the agent's last item that it has heard some of, and how much of it, ms. A client that tells of an
    /// event and not of this has heard nothing.
    pub heard: Option<(String, u64)>,
}

/// The secrets with which a client may come back to one session. Dropped when the session is over.
pub trait Secrets: Send {
    /// Makes the secret for the next return. The last confirmed one stays valid until [`Secrets::confirm`].
    fn renew(&mut self) -> String;

    /// The client has the last secret: those before are void.
    fn confirm(&mut self);
}

/// The way back into one session.
pub struct WayBack {
    /// The secrets that open it.
    pub secrets: Box<dyn Secrets>,
    /// Where the client's new connections arrive.
    pub arrivals: mpsc::Receiver<Returning>,
}

impl WayBack {
    /// The next connection of the client. Never, if none can arrive any more. Cancel-safe.
    pub async fn arrival(&mut self) -> Returning {
        match self.arrivals.recv().await {
            Some(returning) => returning,
            None => std::future::pending().await,
        }
    }
}

/// The state of a session whose client may come back, whichever pump serves it.
pub(super) struct Keeping {
    pub(super) way: WayBack,
    pub(super) replay: Replay,
    pub(super) is_away: bool,
    /// Returns of the client that the session has not answered yet. Until then it may still say what was meant for the
    /// connection before.
    pub(super) unanswered: u32,
    /// The number of the last event that was sent before the connection was lost.
    pub(super) sent: u64,
    pub(super) proof: Proof,
}

/// Whether the client has the secret for its next return. Its answer to a ping behind the secret proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// The secret waits to be written.
    Unsent,
    /// No ping behind it has been answered.
    Asked,
    /// It is proven, or this connection has brought no secret.
    NotNeeded,
}

impl Keeping {
    pub(super) fn new(way: WayBack) -> Self {
        Self {
            way,
            replay: Replay::default(),
            is_away: false,
            unanswered: 0,
            sent: 0,
            proof: Proof::NotNeeded,
        }
    }

    /// Tells the client the secret with which it may come back. False if there is no room: the client must go.
    #[must_use]
    pub(super) fn offer(
        &mut self,
        returns: &mut dyn Returns,
        within: Duration,
        back: bool,
        outbox: &mut Outbox,
    ) -> bool {
        let secret = self.way.secrets.renew();
        let actions = returns.offer(&secret, within, back);
        // They are not kept for a return: the next secret replaces this one.
        actions.into_iter().all(|action| match action {
            Action::Send(text) => outbox.push(text),
            _ => true,
        })
    }

    /// Keeps an event of a dialect.
    pub(super) fn record(&mut self, returns: &dyn Returns, event: &str) {
        if let Some(number) = returns.number(event) {
            self.replay.push(number, event);
        }
    }
}

/// The next connection of a client that may come back.
pub(super) async fn arrival(keeping: &mut Option<Keeping>) -> Returning {
    match keeping {
        Some(keeping) => keeping.way.arrival().await,
        None => std::future::pending().await,
    }
}

/// The part of a dialect whose clients may come back.
pub trait Returns {
    /// Tells the client how it may come back: with `secret`, at most `within` after its connection was lost. `back`: it
    /// just has.
    fn offer(&mut self, secret: &str, within: Duration, back: bool) -> Vec<Action>;

    /// The number of the event in a message, or of an event's id. Later events have larger ones.
    fn number(&self, event: &str) -> Option<u64>;

    /// Up to where a client that has `seen` this has heard the agent; `None` if that does not follow from it.
    fn heard_up_to(&self, seen: &Seen) -> Option<HeardUpTo>;
}

/// The last events of a session, other than audio.
#[derive(Debug, Default)]
pub struct Replay {
    events: VecDeque<(u64, String)>,
    bytes: usize,
}

impl Replay {
    /// Keeps an event. The oldest ones are forgotten.
    pub fn push(&mut self, number: u64, event: &str) {
        self.bytes += event.len();
        self.events.push_back((number, event.to_owned()));
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
        }
    }

    /// The number of the last event but `waiting`: those have not been sent.
    pub fn sent(&self, waiting: usize) -> u64 {
        let last = self.events.iter().rev().nth(waiting);
        last.map_or(0, |(number, _)| *number)
    }

    /// The events after the one of this number.
    pub fn after(&self, number: u64) -> impl Iterator<Item = &str> {
        let events = self.events.iter();
        let later = events.filter(move |(other, _)| *other > number);
        later.map(|(_, event)| event.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_after_the_last_one_received_are_sent_again() {
        let mut replay = Replay::default();
        assert_eq!(replay.sent(0), 0);
        // Number 3 was audio.
        for number in [1, 2, 4, 5] {
            replay.push(number, &number.to_string());
        }
        assert_eq!(replay.after(3).collect::<Vec<_>>(), ["4", "5"]);
        assert_eq!(replay.after(5).count(), 0);
        assert_eq!((replay.sent(0), replay.sent(2), replay.sent(9)), (5, 2, 0));
    }

    #[test]
    fn what_is_kept_for_a_return_is_bounded() {
        let mut replay = Replay::default();
        for number in 0..2_000 {
            replay.push(number, "event");
        }
        assert_eq!(replay.after(0).count(), MAX_EVENTS);
        let long = "x".repeat(MAX_BYTES / 4);
        for number in 2_000..2_010 {
            replay.push(number, &long);
        }
        assert_eq!(replay.after(0).count(), 4);
        assert!(replay.bytes <= MAX_BYTES);
    }
}
