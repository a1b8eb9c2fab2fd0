//! How many sessions a client may open a minute.
//!
//! A client that shows a token or a client secret is counted by it, so that those who share a proxy's address, or a
//! telephone provider's, do not share a limit; any other by its address. Clients on this machine are not counted by
//! address: they may be a proxy for everybody. Clients of the protocols over bare TCP show no token. Twilio's calls are
//! counted together, by the account that has signed them. A client that comes back to its session is not counted.

use super::access;
use super::connections::{Place, is_here};
use super::errors::error;
use super::realtime_client::{PATHS, RealtimeQuery};
use super::resume::Resumptions;
use super::secrets;
use super::shared::Shared;
use crate::metrics::Refusal;
use axum::extract::{Query, Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// The most clients that are remembered. Beyond that, those whose minute is over are forgotten, and if that is not
/// enough, all: a flood from that many addresses is for a firewall.
const MOST: usize = 20_000;

/// How many sessions a client may open a minute; 0: as many as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpeningLimits {
    /// From one address (for IPv6, one /64 network) without a token.
    pub per_address: u32,
    /// With one token or client secret.
    pub per_token: u32,
}

impl Default for OpeningLimits {
    /// Two a second from one address, ten a second with one token.
    fn default() -> Self {
        Self {
            per_address: 120,
            per_token: 600,
        }
    }
}

/// A client, as far as openings are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Client {
    Address(IpAddr),
    /// The hash of a token: the token itself is not kept.
    Token([u8; 32]),
}

/// The openings of all clients within the last minute. For each client only the time is kept at which its allowance is
/// whole again (the generic cell rate algorithm).
#[derive(Debug, Default)]
pub(super) struct Openings(Mutex<HashMap<Client, Instant>>);

impl Openings {
    /// Counts an opening at `now`, or says how long to wait. A whole minute's allowance may be used at once.
    fn take(&self, client: Client, per_minute: u32, now: Instant) -> Result<(), Duration> {
        if per_minute == 0 {
            return Ok(());
        }
        let each = MINUTE / per_minute;
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MOST {
            clients.retain(|_, whole| *whole > now);
        }
        if clients.len() >= MOST {
            clients.clear();
        }
        let whole = clients
            .get(&client)
            .copied()
            .map_or(now, |whole| whole.max(now));
        let after = whole + each;
        let wait = (after - now).saturating_sub(MINUTE);
        if !wait.is_zero() {
            return Err(wait);
        }
        clients.insert(client, after);
        Ok(())
    }
}

/// Counts a session that a client at this address opens over bare TCP. `false` if it has opened too many.
pub(super) fn may_open(shared: &Shared, address: IpAddr) -> bool {
    let Some(address) = elsewhere(address) else {
        return true;
    };
    counted(shared, Client::Address(address))
}

/// Counts a call of a Twilio account. `false` if there were too many.
pub(super) fn may_call(shared: &Shared, account: &str) -> bool {
    counted(shared, Client::Token(Sha256::digest(account).into()))
}

#[allow(clippy::disallowed_methods, reason = "an edge: openings a minute")]
fn counted(shared: &Shared, client: Client) -> bool {
    let limits = shared.settings().openings;
    let most = match client {
        Client::Address(_) => limits.per_address,
        Client::Token(_) => limits.per_token,
    };
    let taken = shared.openings.take(client, most, Instant::now());
    if taken.is_err() {
        shared.metrics.refused(Refusal::TooMany);
        tracing::info!("refused a client that has opened too many sessions within a minute");
    }
    taken.is_ok()
}

/// Refuses a request to open a session if its client has opened too many within the last minute.
#[allow(clippy::disallowed_methods, reason = "an edge: openings a minute")]
pub(super) async fn limit(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    if comes_back(&shared.resumptions, request.method(), request.uri()) {
        return next.run(request).await;
    }
    let limits = shared.settings().openings;
    let is_good = |shown: &str| {
        let is_secret = || shared.secrets.read(shown, secrets::now()).is_ok();
        access::is_token(shown, &shared.settings()) || is_secret()
    };
    let counted = match token(&request, is_good) {
        Some(token) => Some((Client::Token(token), limits.per_token)),
        None => address(&request).map(|address| (Client::Address(address), limits.per_address)),
    };
    let taken = counted.map(|(client, most)| shared.openings.take(client, most, Instant::now()));
    match taken {
        Some(Err(wait)) => refused(&shared, wait),
        Some(Ok(())) | None => next.run(request).await,
    }
}

/// Whether a client comes back to its session with a valid secret. Other routes take no secrets, so there they prove
/// nothing.
fn comes_back(sessions: &Resumptions, method: &Method, uri: &Uri) -> bool {
    if method != Method::GET || !PATHS.contains(&uri.path()) {
        return false;
    }
    let query = Query::<RealtimeQuery>::try_from_uri(uri).ok();
    let query = query.filter(|Query(query)| query.call_id.is_none());
    let secret = query.and_then(|Query(query)| query.resume);
    secret.is_some_and(|secret| sessions.find(&secret).is_some())
}

/// The hash of the good token that a request shows, in its headers or, as telephone providers do, in its query. Another
/// one does not count: a client may make up as many as it likes.
fn token(request: &Request, is_good: impl Fn(&str) -> bool) -> Option<[u8; 32]> {
    let in_query = || {
        let query = request.uri().query()?.as_bytes();
        let mut fields = url::form_urlencoded::parse(query);
        let token = fields.find(|(name, _)| name == "token")?.1;
        Some(token.into_owned())
    };
    let shown = access::shown(request.headers())
        .into_iter()
        .chain(in_query());
    let good = shown.into_iter().find(|shown| is_good(shown))?;
    Some(Sha256::digest(good).into())
}

/// The address that a request comes from, unless it is this machine's.
fn address(request: &Request) -> Option<IpAddr> {
    let place = request.extensions().get::<Arc<Place>>()?;
    elsewhere(place.address())
}

/// The address, unless it is this machine's.
fn elsewhere(address: IpAddr) -> Option<IpAddr> {
    (!is_here(address)).then_some(address)
}

fn refused(shared: &Shared, wait: Duration) -> Response {
    shared.metrics.refused(Refusal::TooMany);
    let seconds = wait.as_secs() + 1;
    let message =
        format!("Too many sessions were opened within a minute: try again in {seconds} s.");
    let refused = error(
        StatusCode::TOO_MANY_REQUESTS,
        "rate_limit_exceeded",
        None,
        message,
    );
    ([(RETRY_AFTER, seconds.to_string())], refused).into_response()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any instant will do")]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::Address([203, 0, 113, last].into())
    }

    #[test]
    fn a_minutes_allowance_may_be_used_at_once_and_comes_back_bit_by_bit() {
        let (openings, now) = (Openings::default(), Instant::now());
        for _ in 0..6 {
            assert_eq!(openings.take(client(1), 6, now), Ok(()));
        }
        let wait = openings.take(client(1), 6, now);
        assert_eq!(wait, Err(Duration::from_secs(10)));
        assert_eq!(openings.take(client(2), 6, now), Ok(()), "another client");
        let later = now + Duration::from_secs(10);
        assert_eq!(openings.take(client(1), 6, later), Ok(()));
        assert!(openings.take(client(1), 6, later).is_err());
        let much_later = now + Duration::from_secs(600);
        for _ in 0..6 {
            assert_eq!(openings.take(client(1), 6, much_later), Ok(()));
        }
        assert!(openings.take(client(1), 6, much_later).is_err());
    }

    #[test]
    fn without_a_limit_nothing_is_remembered() {
        let (openings, now) = (Openings::default(), Instant::now());
        for _ in 0..1_000 {
            assert_eq!(openings.take(client(1), 0, now), Ok(()));
        }
        assert!(openings.0.lock().unwrap().is_empty());
    }

    #[test]
    fn this_machine_is_not_counted() {
        for here in ["127.0.0.1", "::1", "::"] {
            assert_eq!(elsewhere(here.parse().unwrap()), None, "{here}");
        }
        let phone_system: IpAddr = [192, 0, 2, 7].into();
        assert_eq!(elsewhere(phone_system), Some(phone_system));
    }

    #[test]
    fn memory_is_bounded() {
        let (openings, now) = (Openings::default(), Instant::now());
        for number in 0..2 * u32::try_from(MOST).unwrap() {
            let address = IpAddr::from(number.to_be_bytes());
            assert_eq!(openings.take(Client::Address(address), 6, now), Ok(()));
        }
        assert!(openings.0.lock().unwrap().len() <= MOST);
    }

    #[test]
    fn a_client_comes_back_with_a_valid_secret_and_at_the_route_of_its_session() {
        let sessions = Resumptions::default();
        let mut way_back = sessions.open();
        let secret = way_back.secrets.renew();
        let by = |method, uri: String| comes_back(&sessions, &method, &uri.parse().unwrap());
        let comes_back = |uri: String| by(Method::GET, uri);
        assert!(comes_back(format!("/v1/realtime?resume={secret}")));
        assert!(comes_back(format!(
            "/v1/realtime?last_event_id=event_1&resume={secret}"
        )));
        assert!(comes_back(format!("/openai/realtime?resume={secret}")));
        for opening in [
            "/v1/realtime".to_owned(),
            format!("/v1/realtime?resume={secret}0"),
            format!("/v1/realtime?call_id=rtc_1&resume={secret}"),
            format!("/v1/realtime/calls?resume={secret}"),
            format!("/v1/pcm?resume={secret}"),
        ] {
            assert!(!comes_back(opening.clone()), "{opening}");
        }
        let offer = by(Method::POST, format!("/v1/realtime?resume={secret}"));
        assert!(!offer, "an offer opens a session");
        drop(way_back);
        assert!(
            !comes_back(format!("/v1/realtime?resume={secret}")),
            "it is over"
        );
    }

    #[test]
    fn tokens_are_found_in_headers_and_in_the_query() {
        let request = |uri: &str, token: Option<&str>| {
            let request = Request::builder().uri(uri);
            let request = match token {
                Some(token) => request.header("authorization", format!("Bearer {token}")),
                None => request,
            };
            let request = request.body(axum::body::Body::empty()).unwrap();
            super::token(&request, |shown| ["secret", "other"].contains(&shown))
        };
        let shown = request("/v1/realtime", Some("secret"));
        assert!(shown.is_some());
        assert_eq!(request("/telnyx/media?token=secret", None), shown);
        assert_ne!(request("/telnyx/media?token=other", None), shown);
        assert_eq!(request("/telnyx/media?token=made-up", None), None);
        assert_eq!(
            request("/telnyx/media?token=secret", Some("made-up")),
            shown
        );
        assert_eq!(request("/v1/realtime?model=test", None), None);
    }
}
