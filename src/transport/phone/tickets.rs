//! That a stream belongs to a call that we answered: Twilio drops the query of a stream's address,
//! so a ticket travels as a parameter of the stream. It is good for one call, once, for a minute.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a ticket is good.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// Tickets that are out. More calls than this do not ring within a minute.
const MOST: usize = 10_000;

/// The tickets that are out.
#[derive(Debug, Default)]
pub struct Tickets {
    /// By the SHA-256 of the ticket: looking it up tells nothing of it.
    out: HashMap<[u8; 32], Ticket>,
}

#[derive(Debug)]
struct Ticket {
    call: String,
    expires: Instant,
}

impl Tickets {
    /// A new ticket for the call named `call`; `None` if too many are out.
    pub fn issue(&mut self, call: &str, now: Instant) -> Option<String> {
        self.out.retain(|_, ticket| ticket.expires > now);
        if self.out.len() == MOST {
            return None;
        }
        // 122 random bits of the system's generator.
        let ticket = Uuid::new_v4().simple().to_string();
        let call = call.to_owned();
        let expires = now + GOOD_FOR;
        self.out.insert(hash(&ticket), Ticket { call, expires });
        Some(ticket)
    }

    /// Takes a ticket back. Whether it was good for this call: a ticket shown for another is lost.
    pub fn redeem(&mut self, ticket: &str, call: &str, now: Instant) -> bool {
        let known = self.out.remove(&hash(ticket));
        known.is_some_and(|known| known.call == call && known.expires > now)
    }
}

fn hash(ticket: &str) -> [u8; 32] {
    Sha256::digest(ticket).into()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "any time will do")]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_one_call_once_and_for_a_minute() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        let good = tickets.issue("CA1", now).unwrap();
        assert!(tickets.redeem(&good, "CA1", now + Duration::from_secs(59)));
        assert!(!tickets.redeem(&good, "CA1", now));
        let mismatched = tickets.issue("CA1", now).unwrap();
        assert!(!tickets.redeem(&mismatched, "CA2", now));
        assert!(!tickets.redeem(&mismatched, "CA1", now));
        let late = tickets.issue("CA1", now).unwrap();
        assert!(!tickets.redeem(&late, "CA1", now + Duration::from_secs(60)));
        assert!(!tickets.redeem("", "CA1", now));
    }

    #[test]
    fn tickets_that_are_out_are_bounded() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        for _ in 0..MOST {
            assert!(tickets.issue("CA1", now).is_some());
        }
        assert_eq!(tickets.issue("CA1", now), None);
        assert!(tickets.issue("CA1", now + GOOD_FOR).is_some());
    }
}
