//! Proves that a stream belongs to a call that was answered here: Twilio drops the query of a stream's
//! URL, so a ticket travels in parameters of the stream. It is valid for one call, once, for a minute. It
//! contains what the webhook knows of the caller, and is signed, so that every server with the same key
//! takes it.
//!
//! [`TicketStore`] remembers the tickets that were used: [`TicketMemory`] those of one server,
//! [`SharedTickets`] those of all servers with the same store.

use crate::store::{Store, key};
use crate::tools::SessionValues;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use uuid::Uuid;

/// How long a ticket is valid.
pub const GOOD_FOR: Duration = Duration::from_secs(60);

/// How much longer it is remembered that a ticket was used: servers' clocks differ.
const SLACK: Duration = Duration::from_secs(60);

/// The longest value of a parameter. Twilio takes 500 characters for a parameter's name and value.
const MOST_PER_PARAMETER: usize = 480;

/// The most parameters that are read as a ticket.
const MOST_PARAMETERS: usize = 64;

/// The name of a ticket's first parameter. The others have a number from 2 on: `ticket-2`.
const NAME: &str = "ticket";

/// Signed before a ticket, so that nothing else signed with the key is one.
const PURPOSE: &[u8] = b"undertone ticket\n";

/// Remembers the tickets that were used.
pub trait TicketStore: Send + Sync {
    /// Whether this is the first use of the ticket with this id, which may be used for `lasting` still.
    fn use_up(&self, id: String, lasting: Duration) -> BoxFuture<'static, bool>;
}

/// The used tickets, in this server's memory. Those that are not valid any more are forgotten.
#[derive(Debug, Clone, Default)]
pub struct TicketMemory(Arc<Mutex<HashMap<String, Instant>>>);

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: tickets expire in real time"
)]
impl TicketMemory {
    fn note(&self, id: String, lasting: Duration) -> bool {
        let now = Instant::now();
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, until| *until > now);
        used.insert(id, now + lasting).is_none()
    }
}

impl TicketStore for TicketMemory {
    fn use_up(&self, id: String, lasting: Duration) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(self.note(id, lasting)))
    }
}

/// The used tickets of all servers with the same store. While it does not answer, those of this server.
#[derive(Debug, Clone)]
pub struct SharedTickets {
    store: Store,
    own: TicketMemory,
}

impl SharedTickets {
    /// Remembers them in `store`.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            own: TicketMemory::default(),
        }
    }
}

impl TicketStore for SharedTickets {
    fn use_up(&self, id: String, lasting: Duration) -> BoxFuture<'static, bool> {
        let (store, is_first) = (self.store.clone(), self.own.note(id.clone(), lasting));
        Box::pin(async move {
            let key = key(&["ticket", &id]);
            // No answer is no reason to refuse a caller: the request was signed by the provider, too.
            is_first && store.claim(&key, lasting).await.unwrap_or(true)
        })
    }
}

/// Issues and redeems tickets.
#[derive(Clone)]
pub struct Tickets {
    key: SecretString,
    store: Arc<dyn TicketStore>,
}

/// The contents of a ticket, as short as can be.
#[derive(Debug, Serialize, Deserialize)]
struct Contents(
    /// Unlike any other ticket's.
    String,
    /// When it expires, seconds since 1970.
    u64,
    /// The call.
    String,
    /// The facts on the caller.
    SessionValues,
);

impl Tickets {
    /// Signs with the operator's key, or else with a random one, which no other server has.
    pub fn new(key: Option<SecretString>, store: Arc<dyn TicketStore>) -> Self {
        // 244 random bits from the system's generator.
        let random = || format!("{}{}", Uuid::new_v4(), Uuid::new_v4()).into();
        let key = key.unwrap_or_else(random);
        Self { key, store }
    }

    /// A new ticket for the call with the id `call`, of whose caller `values` are known.
    pub fn issue(&self, call: &str, values: SessionValues) -> String {
        self.issue_at(call, values, now())
    }

    /// Redeems a ticket. Returns what is known of the caller, `None` if it was not valid for this call; a
    /// ticket presented for another call is used up.
    pub fn redeem(&self, ticket: &str, call: &str) -> BoxFuture<'static, Option<SessionValues>> {
        self.redeem_at(ticket, call, now())
    }

    fn issue_at(&self, call: &str, values: SessionValues, now: u64) -> String {
        let expires = now + GOOD_FOR.as_secs();
        // 122 random bits from the system's generator.
        let id = URL_SAFE_NO_PAD.encode(Uuid::new_v4());
        let contents = Contents(id, expires, call.to_owned(), values);
        let contents = serde_json::to_vec(&contents).unwrap_or_default();
        let signature = self.mac(&contents).finalize().into_bytes();
        let [contents, signature] =
            [&contents[..], &signature].map(|part| URL_SAFE_NO_PAD.encode(part));
        format!("{contents}.{signature}")
    }

    fn redeem_at(
        &self,
        ticket: &str,
        call: &str,
        now: u64,
    ) -> BoxFuture<'static, Option<SessionValues>> {
        let Some(Contents(id, expires, issued_for, values)) = self.verified(ticket) else {
            return Box::pin(std::future::ready(None));
        };
        let is_valid = issued_for == call && now < expires;
        let lasting = Duration::from_secs(expires.saturating_sub(now)) + SLACK;
        let first = self.store.use_up(id, lasting);
        Box::pin(async move { (first.await && is_valid).then_some(values) })
    }

    fn verified(&self, ticket: &str) -> Option<Contents> {
        let (contents, signature) = ticket.split_once('.')?;
        let contents = URL_SAFE_NO_PAD.decode(contents).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.mac(&contents).verify_slice(&signature).ok()?;
        serde_json::from_slice(&contents).ok()
    }

    fn mac(&self, contents: &[u8]) -> Hmac<Sha256> {
        let key = self.key.expose_secret().as_bytes();
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length will do");
        mac.update(PURPOSE);
        mac.update(contents);
        mac
    }
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

/// The parameters of a stream that carry `ticket`: names and values.
pub fn parameters(ticket: &str) -> impl Iterator<Item = (String, &str)> {
    // A ticket is ASCII.
    let parts = ticket.as_bytes().chunks(MOST_PER_PARAMETER);
    let parts = parts.map(|part| str::from_utf8(part).unwrap_or_default());
    (1..).map(name).zip(parts)
}

/// The ticket in the parameters of a stream; empty if there is none.
pub fn ticket_in(parameters: &Value) -> String {
    let parts = (1..=MOST_PARAMETERS).map_while(|number| parameters[name(number)].as_str());
    parts.collect()
}

/// Whether a parameter of this name carries a ticket.
pub fn is_parameter(name: &str) -> bool {
    let rest = name.strip_prefix(NAME);
    rest.is_some_and(|rest| {
        rest.is_empty()
            || rest
                .strip_prefix('-')
                .is_some_and(|number| number.parse::<usize>().is_ok())
    })
}

fn name(number: usize) -> String {
    match number {
        1 => NAME.to_owned(),
        number => format!("{NAME}-{number}"),
    }
}

/// Seconds since 1970.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: a ticket expires by the wall clock"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Named, Origin};
    use tokio::time::advance;

    fn values() -> SessionValues {
        SessionValues::default().with(Named::Caller, "+1", Origin::Signalled)
    }

    fn tickets() -> Tickets {
        Tickets::new(None, Arc::new(TicketMemory::default()))
    }

    #[tokio::test]
    async fn a_ticket_is_valid_for_one_call_once_and_for_a_minute() {
        let tickets = tickets();
        let give = || tickets.issue_at("CA1", values(), 1_000);
        let good = give();
        let take = async |ticket: &str, call, now| tickets.redeem_at(ticket, call, now).await;
        assert_eq!(take(&good, "CA1", 1_059).await, Some(values()));
        assert_eq!(take(&good, "CA1", 1_059).await, None);
        let mismatched = give();
        assert_eq!(take(&mismatched, "CA2", 1_000).await, None);
        assert_eq!(take(&mismatched, "CA1", 1_000).await, None);
        assert_eq!(take(&give(), "CA1", 1_060).await, None);
        for nonsense in ["", ".", "e30.", "💥.💥"] {
            assert_eq!(take(nonsense, "CA1", 1_000).await, None);
        }
        let whole = give();
        for at in 0..whole.len() {
            let mut changed = whole.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(take(&changed, "CA1", 1_000).await, None, "{at}");
        }
    }

    #[tokio::test]
    async fn servers_with_the_same_key_take_each_others_tickets() {
        let server = |key: Option<&str>, store: &TicketMemory| {
            Tickets::new(key.map(Into::into), Arc::new(store.clone()))
        };
        let (store, other) = (TicketMemory::default(), TicketMemory::default());
        let here = server(Some("the operator's"), &store);
        let there = server(Some("the operator's"), &store);
        let ticket = here.issue("CA1", values());
        assert_eq!(there.redeem(&ticket, "CA1").await, Some(values()));
        assert_eq!(here.redeem(&ticket, "CA1").await, None, "it was used there");
        // Without a common store each takes it once.
        let apart = server(Some("the operator's"), &other);
        assert_eq!(apart.redeem(&ticket, "CA1").await, Some(values()));
        for stranger in [server(Some("another"), &other), server(None, &other)] {
            let ticket = here.issue("CA1", values());
            assert_eq!(stranger.redeem(&ticket, "CA1").await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn used_tickets_are_forgotten_when_they_are_not_valid_any_more() {
        let used = TicketMemory::default();
        for number in 0..1_000 {
            assert!(used.note(number.to_string(), GOOD_FOR));
        }
        assert!(!used.note("7".into(), GOOD_FOR));
        advance(GOOD_FOR).await;
        assert!(used.note("new".into(), GOOD_FOR));
        assert_eq!(used.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_long_ticket_travels_in_several_parameters() {
        let mut values = values();
        for number in 0..8 {
            let header = Named::Header(format!("x-{number}"));
            values.add(header, &"v".repeat(200), Origin::Claimed);
        }
        let tickets = tickets();
        for values in [values, SessionValues::default()] {
            let ticket = tickets.issue("CA1", values.clone());
            let carried: serde_json::Map<_, _> = parameters(&ticket)
                .map(|(name, value)| {
                    assert!(is_parameter(&name), "{name}");
                    assert!(name.len() + value.len() <= 500);
                    (name, value.into())
                })
                .collect();
            assert_eq!(carried.len() == 1, values.is_empty());
            assert_eq!(ticket_in(&Value::Object(carried)), ticket);
        }
        for other in ["tickets", "ticket-", "ticket-x", "my-ticket", "tick"] {
            assert!(!is_parameter(other), "{other}");
        }
        assert_eq!(ticket_in(&Value::Null), "");
    }
}
