//! Proves that a stream belongs to a call that we answered: Twilio drops the query of a stream's
//! URL, so a ticket travels as a parameter of the stream. It is valid for one call, once, for a
//! minute.

use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a ticket is valid.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The most outstanding tickets: more calls than this do not ring within a minute.
const MOST: usize = 10_000;

/// Issues and redeems tickets. A store shared by several servers lets one of them answer a call and
/// another carry its stream.
pub trait TicketStore: Send + Sync {
    /// A new ticket for the call with the id `call`; `None` if too many are outstanding.
    fn issue(&self, call: &str) -> BoxFuture<'static, Option<String>>;

    /// Redeems a ticket. Returns whether it was valid for this call; a ticket presented for another
    /// call is used up.
    fn redeem(&self, ticket: &str, call: &str) -> BoxFuture<'static, bool>;
}

/// The outstanding tickets, in this server's memory.
#[derive(Debug, Default)]
pub struct TicketMemory {
    /// By the ticket's SHA-256, so that the time of a lookup reveals nothing about valid tickets.
    out: Mutex<HashMap<[u8; 32], Ticket>>,
}

#[derive(Debug)]
struct Ticket {
    call: String,
    expires: Instant,
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: tickets expire in real time"
)]
impl TicketMemory {
    fn out(&self) -> MutexGuard<'_, HashMap<[u8; 32], Ticket>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, call: &str) -> Option<String> {
        let (now, mut out) = (Instant::now(), self.out());
        out.retain(|_, ticket| ticket.expires > now);
        if out.len() == MOST {
            return None;
        }
        // 122 random bits from the system's generator.
        let ticket = Uuid::new_v4().simple().to_string();
        let call = call.to_owned();
        let expires = now + GOOD_FOR;
        out.insert(hash(&ticket), Ticket { call, expires });
        Some(ticket)
    }

    fn take(&self, ticket: &str, call: &str) -> bool {
        let known = self.out().remove(&hash(ticket));
        known.is_some_and(|known| known.call == call && known.expires > Instant::now())
    }
}

impl TicketStore for TicketMemory {
    fn issue(&self, call: &str) -> BoxFuture<'static, Option<String>> {
        Box::pin(std::future::ready(self.give(call)))
    }

    fn redeem(&self, ticket: &str, call: &str) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(self.take(ticket, call)))
    }
}

fn hash(ticket: &str) -> [u8; 32] {
    Sha256::digest(ticket).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_valid_for_one_call_once_and_for_a_minute() {
        let tickets = TicketMemory::default();
        let good = tickets.give("CA1").unwrap();
        advance(Duration::from_secs(59)).await;
        assert!(tickets.take(&good, "CA1"));
        assert!(!tickets.take(&good, "CA1"));
        let mismatched = tickets.give("CA1").unwrap();
        assert!(!tickets.take(&mismatched, "CA2"));
        assert!(!tickets.take(&mismatched, "CA1"));
        let late = tickets.give("CA1").unwrap();
        advance(Duration::from_secs(60)).await;
        assert!(!tickets.take(&late, "CA1"));
        assert!(!tickets.take("", "CA1"));
    }

    #[tokio::test(start_paused = true)]
    async fn outstanding_tickets_are_bounded() {
        let tickets = TicketMemory::default();
        for _ in 0..MOST {
            assert!(tickets.give("CA1").is_some());
        }
        assert_eq!(tickets.give("CA1"), None);
        advance(GOOD_FOR).await;
        assert!(tickets.give("CA1").is_some());
    }
}
