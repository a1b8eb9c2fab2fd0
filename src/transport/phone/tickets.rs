//! Proves that a stream belongs to a call that we answered: Twilio drops the query of a stream's
//! URL, so a ticket travels as a parameter of the stream. It is valid for one call, once, for a
//! minute. With it the stream gets what the webhook knows of the caller.

use crate::tools::SessionValues;
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
    /// A new ticket for the call with the id `call`, of whose caller `values` are known; `None` if too
    /// many are outstanding.
    fn issue(&self, call: &str, values: SessionValues) -> BoxFuture<'static, Option<String>>;

    /// Redeems a ticket. Returns what is known of the caller, `None` if it was not valid for this call; a
    /// ticket presented for another call is used up.
    fn redeem(&self, ticket: &str, call: &str) -> BoxFuture<'static, Option<SessionValues>>;
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
    values: SessionValues,
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

    fn give(&self, call: &str, values: SessionValues) -> Option<String> {
        let (now, mut out) = (Instant::now(), self.out());
        out.retain(|_, ticket| ticket.expires > now);
        if out.len() == MOST {
            return None;
        }
        // 122 random bits from the system's generator.
        let ticket = Uuid::new_v4().simple().to_string();
        let call = call.to_owned();
        let expires = now + GOOD_FOR;
        let issued = Ticket {
            call,
            values,
            expires,
        };
        out.insert(hash(&ticket), issued);
        Some(ticket)
    }

    fn take(&self, ticket: &str, call: &str) -> Option<SessionValues> {
        let issued = self.out().remove(&hash(ticket))?;
        (issued.call == call && issued.expires > Instant::now()).then_some(issued.values)
    }
}

impl TicketStore for TicketMemory {
    fn issue(&self, call: &str, values: SessionValues) -> BoxFuture<'static, Option<String>> {
        Box::pin(std::future::ready(self.give(call, values)))
    }

    fn redeem(&self, ticket: &str, call: &str) -> BoxFuture<'static, Option<SessionValues>> {
        Box::pin(std::future::ready(self.take(ticket, call)))
    }
}

fn hash(ticket: &str) -> [u8; 32] {
    Sha256::digest(ticket).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Named, Origin};
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_valid_for_one_call_once_and_for_a_minute() {
        let tickets = TicketMemory::default();
        let values = SessionValues::default().with(Named::Caller, "+1", Origin::Signalled);
        let give = |call| tickets.give(call, values.clone()).unwrap();
        let good = give("CA1");
        advance(Duration::from_secs(59)).await;
        assert_eq!(tickets.take(&good, "CA1"), Some(values.clone()));
        assert_eq!(tickets.take(&good, "CA1"), None);
        let mismatched = give("CA1");
        assert_eq!(tickets.take(&mismatched, "CA2"), None);
        assert_eq!(tickets.take(&mismatched, "CA1"), None);
        let late = give("CA1");
        advance(Duration::from_secs(60)).await;
        assert_eq!(tickets.take(&late, "CA1"), None);
        assert_eq!(tickets.take("", "CA1"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn outstanding_tickets_are_bounded() {
        let tickets = TicketMemory::default();
        let give = || tickets.give("CA1", SessionValues::default());
        for _ in 0..MOST {
            assert!(give().is_some());
        }
        assert_eq!(give(), None);
        advance(GOOD_FOR).await;
        assert!(give().is_some());
    }
}
