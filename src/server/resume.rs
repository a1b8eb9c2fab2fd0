//! Clients that come back to their session after their connection was lost: the secrets that prove who they are.
//!
//! A secret names its session and is good for one return. Those before it stay valid until the client has shown that it
//! has the next one, since a connection may break before the secret arrives.

use super::access::admit;
use super::realtime_client::RealtimeQuery;
use super::shared::Shared;
use super::upgrade::Upgrade;
use crate::transport::realtime::{self, BETA_PROTOCOL, Fault};
use crate::transport::resume::{Returning, Secrets, Seen, WayBack};
use crate::transport::{Close, close_code, socket};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Connections of one client that may arrive at once. The last one goes on.
const ARRIVALS: usize = 4;

/// Secrets of one session that are valid at once. A client that loses several connections in a row before it has proven
/// that it has a secret of theirs may have any of them.
const MOST_VALID: usize = 8;

/// The sessions whose clients may come back. Each holds a place, so there are at most `server.max_sessions`.
#[derive(Clone, Default)]
pub(super) struct Resumptions(Arc<Mutex<HashMap<Uuid, Entry>>>);

struct Entry {
    /// The hashes of the valid secrets: the last one that was confirmed (before that, the first), then those offered
    /// since.
    valid: Vec<[u8; 32]>,
    arrivals: mpsc::Sender<Returning>,
}

impl Resumptions {
    /// Opens the way back into a new session.
    pub(super) fn open(&self) -> WayBack {
        let (sender, arrivals) = mpsc::channel(ARRIVALS);
        let session = Uuid::new_v4();
        let entry = Entry {
            valid: Vec::new(),
            arrivals: sender,
        };
        self.with(|sessions| sessions.insert(session, entry));
        let secrets = Box::new(OfSession {
            session,
            sessions: self.clone(),
        });
        WayBack { secrets, arrivals }
    }

    /// Where the connections of the client with this secret arrive.
    pub(super) fn find(&self, shown: &str) -> Option<mpsc::Sender<Returning>> {
        let (session, secret) = shown.split_once('.')?;
        let session = Uuid::try_parse(session).ok()?;
        let shown = hash(secret);
        self.with(|sessions| {
            let entry = sessions.get(&session)?;
            let all = entry.valid.iter();
            let is_valid = all.fold(Choice::from(0), |any, valid| any | valid.ct_eq(&shown));
            bool::from(is_valid).then(|| entry.arrivals.clone())
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Uuid, Entry>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The secrets of one session.
struct OfSession {
    session: Uuid,
    sessions: Resumptions,
}

impl Secrets for OfSession {
    fn renew(&mut self) -> String {
        // 244 random bits from the system's generator.
        let [one, two] = [(); 2].map(|()| Uuid::new_v4().simple().to_string());
        let secret = one + &two;
        self.sessions.with(|sessions| {
            if let Some(entry) = sessions.get_mut(&self.session) {
                if entry.valid.len() == MOST_VALID {
                    entry.valid.remove(1);
                }
                entry.valid.push(hash(&secret));
            }
        });
        format!("{}.{secret}", self.session.simple())
    }

    fn confirm(&mut self) {
        self.sessions.with(|sessions| {
            if let Some(entry) = sessions.get_mut(&self.session) {
                let last = entry.valid.pop();
                entry.valid = last.into_iter().collect();
            }
        });
    }
}

impl Drop for OfSession {
    fn drop(&mut self) {
        self.sessions
            .with(|sessions| sessions.remove(&self.session));
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Serves a client that comes back with a secret. It needs the same access as for a new session, but no place: its
/// session has kept one.
pub(super) fn come_back(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    query: RealtimeQuery,
    upgrade: Upgrade,
) -> Response {
    if let Err(refused) = admit(shared, headers) {
        return refused;
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade.protocols(["realtime", BETA_PROTOCOL]),
        Err(rejection) => return rejection.into_response(),
    };
    let session = query
        .resume
        .and_then(|secret| shared.resumptions.find(&secret));
    let seen = Seen {
        event: query.last_event_id,
        heard: query.item_id.zip(query.audio_end_ms),
    };
    let longest = shared.settings().max_realtime_message;
    let task = shared.tasks.token();
    socket::limit(upgrade, longest).on_upgrade(async move |socket| {
        match session {
            Some(session) => {
                let socket = Box::new(socket);
                let returning = Returning { socket, seen };
                if let Err(late) = session.try_send(returning) {
                    let (mpsc::error::TrySendError::Full(late)
                    | mpsc::error::TrySendError::Closed(late)) = late;
                    refuse(*late.socket).await;
                }
            }
            None => refuse(socket).await,
        }
        drop(task);
    })
}

/// Tells a client that there is no session to come back to. Browsers show pages nothing of a refused handshake, so it is
/// told in the protocol.
async fn refuse(socket: axum::extract::ws::WebSocket) {
    let message = "There is no session to resume: the secret is not valid, or has been used, or the session is over. \
                   Connect without resume to open a new session.";
    let event = realtime::refusal(&Fault::new("session_not_resumable", "resume", message));
    let close = Close {
        code: close_code::POLICY,
        reason: "there is no session to resume",
    };
    socket::refuse(socket, event, close).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_valid_until_the_client_has_the_next() {
        let sessions = Resumptions::default();
        let mut way = sessions.open();
        let first = way.secrets.renew();
        assert!(first.len() >= 64 + 32, "long enough to be secret");
        assert!(sessions.find(&first).is_some());
        let second = way.secrets.renew();
        assert!(sessions.find(&first).is_some(), "the second may be lost");
        assert!(sessions.find(&second).is_some());
        way.secrets.confirm();
        assert!(sessions.find(&first).is_none());
        assert!(sessions.find(&second).is_some());
    }

    #[test]
    fn connections_that_bring_no_secret_cost_no_client_the_one_that_it_has() {
        let sessions = Resumptions::default();
        let mut way = sessions.open();
        way.secrets.renew();
        let confirmed = way.secrets.renew();
        way.secrets.confirm();
        let offered: Vec<_> = (0..20).map(|_| way.secrets.renew()).collect();
        let is_valid = |secret: &String| sessions.find(secret).is_some();
        assert!(is_valid(&confirmed), "the client has no other");
        let (old, last) = offered.split_at(offered.len() + 1 - MOST_VALID);
        assert!(last.iter().all(is_valid));
        assert!(!old.iter().any(is_valid));
        way.secrets.confirm();
        assert!(!is_valid(&confirmed));
        assert!(is_valid(&offered[19]) && !is_valid(&offered[18]));
    }

    #[test]
    fn a_secret_opens_its_own_session_and_only_while_that_lasts() {
        let sessions = Resumptions::default();
        let (mut one, mut other) = (sessions.open(), sessions.open());
        let (mine, others) = (one.secrets.renew(), other.secrets.renew());
        let (id, _) = others.split_once('.').unwrap();
        let (_, secret) = mine.split_once('.').unwrap();
        assert!(sessions.find(&format!("{id}.{secret}")).is_none());
        for wrong in [
            "",
            ".",
            secret,
            id,
            &mine[..mine.len() - 1],
            "a.b",
            &format!("{mine}0"),
        ] {
            assert!(sessions.find(wrong).is_none(), "{wrong}");
        }
        drop(one);
        assert!(sessions.find(&mine).is_none());
        assert!(sessions.find(&others).is_some());
        drop(other);
        assert_eq!(sessions.with(|sessions| sessions.len()), 0);
    }
}
