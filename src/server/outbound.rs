//! Calls that the server places, over HTTP: `POST /v1/calls/outbound`, and what became of each.

mod ari;
mod placed;

pub use ari::Ari;
use placed::{LATE, Refused};
pub(super) use placed::{LONGEST, PlacedCalls};

use super::access::{admit_with_token, refusal};
use super::api::{UNFIT_VALUE, read};
use super::calls::busy;
use super::errors::{error, fault};
use super::shared::Shared;
use super::twilio::account::Twilio;
use crate::tools::{Named, Origin, SessionValues};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/v1/calls/outbound";

/// The longest request body, bytes.
const MAX_BODY: usize = 64 * 1024;

/// The longest that a line takes to say whether it dials.
const DIALING: Duration = Duration::from_secs(10);

/// The calls that the server may place.
#[derive(Debug, Clone)]
pub struct OutboundCalls {
    /// Numbers in E.164, or beginnings of numbers followed by `*`.
    pub allow: Vec<String>,
    /// The most calls at a time, ringing ones included.
    pub max_calls: usize,
    /// The most calls within an hour.
    pub per_hour: usize,
    /// The longest that a telephone rings.
    pub ring: Duration,
    /// Said to an answering machine; it is hung up on if this is empty.
    pub message: String,
    /// The line that dials.
    pub line: OutboundLine,
}

/// The line that dials.
#[derive(Debug, Clone)]
pub enum OutboundLine {
    /// Twilio, and shows this number of the account.
    Twilio {
        /// In E.164.
        from: String,
    },
    /// An Asterisk.
    Asterisk(Ari),
}

/// The refusal of a call, or silence instead of an answer.
#[derive(Debug)]
pub(super) struct Undialed {
    /// The words of the line or the network.
    pub(super) reason: String,
    /// The line did not answer, and may dial all the same.
    pub(super) may_ring: bool,
}

impl From<String> for Undialed {
    fn from(reason: String) -> Self {
        Self {
            reason,
            may_ring: false,
        }
    }
}

impl From<reqwest::Error> for Undialed {
    fn from(error: reqwest::Error) -> Self {
        Self {
            may_ring: !(error.is_connect() || error.is_builder()),
            reason: error.without_url().to_string(),
        }
    }
}

impl OutboundCalls {
    /// Whether this number may be called.
    fn allows(&self, number: &str) -> bool {
        let mut allowed = self.allow.iter();
        allowed.any(|allowed| match allowed.strip_suffix('*') {
            Some(begin) => number.starts_with(begin),
            None => number == allowed,
        })
    }
}

/// Whether this is a telephone number in the form of ITU-T E.164.
pub(crate) fn is_telephone_number(number: &str) -> bool {
    let digits = number.strip_prefix('+').unwrap_or_default();
    (7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route(PATH, post(place))
        .route("/v1/calls/outbound/{id}", get(state))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    to: String,
    agent: Option<String>,
    /// Become `session.param` of the call.
    #[serde(default)]
    params: BTreeMap<String, String>,
}

/// Lets in who shows the server's token. Without one nobody may have it place calls.
#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
fn admitted(shared: &Shared, headers: &HeaderMap) -> Result<OutboundCalls, Response> {
    admit_with_token(shared, headers).map_err(|denied| refusal(shared, denied))?;
    let settings = shared.settings();
    let outbound = settings.outbound.clone();
    outbound
        .filter(|_| settings.auth_token.is_some())
        .ok_or_else(|| {
            let message = "This server places no calls; see [outbound] in its configuration.";
            error(StatusCode::FORBIDDEN, "no_outbound_calls", None, message)
        })
}

async fn place(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let outbound = match admitted(&shared, &headers) {
        Ok(outbound) => outbound,
        Err(refused) => return refused,
    };
    let body = match read(&shared, body, MAX_BODY).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let wanted: Wanted = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(wrong) => return bad(None, format!("The body is wrong: {wrong}.")),
    };
    let Wanted { to, agent, params } = wanted;
    if !is_telephone_number(&to) {
        let message = "A number begins with + and the country's code, as in +15551234567.";
        return bad(Some("to"), message.into());
    }
    if !outbound.allows(&to) {
        let message = "This number is not among outbound.allow of the server's configuration.";
        return error(
            StatusCode::FORBIDDEN,
            "number_not_allowed",
            Some("to"),
            message,
        );
    }
    let agents = &shared.settings().agents;
    let agent = match agents.choice(true, agent.as_deref(), None) {
        Ok(agent) => agent,
        Err(wrong) => return fault(&wrong),
    };
    let mut values = SessionValues::default();
    for (name, value) in &params {
        let named = Named::Param(name.clone());
        values.add(named.clone(), value, Origin::Verified);
        if values.get(&named).is_none() {
            return bad(Some(&format!("params.{name}")), UNFIT_VALUE.into());
        }
    }
    // Without it the person who answers would be told that all lines are busy.
    let place = match shared.admission.place(false) {
        Ok(place) => place,
        Err(refusal) => return busy(refusal),
    };
    let begun = shared.placed.begin(&outbound, &to, agent, values);
    let (id, ticket) = match begun {
        Ok(begun) => begun,
        Err(refused) => {
            let (status, code) = match refused {
                Refused::Uncertain => (StatusCode::CONFLICT, "call_uncertain"),
                _ => (StatusCode::TOO_MANY_REQUESTS, "too_many_calls"),
            };
            return error(status, code, None, refused.to_string());
        }
    };
    let lasting = DIALING + outbound.ring + LATE;
    shared.admission.hold(place, lasting);
    // On a task of its own: a client that has left must not stop it halfway, with a telephone that rings.
    let (calling, named) = (shared.clone(), id.clone());
    let dialing = tokio::spawn(async move {
        let dialed = dial(&calling, &outbound, (&named, &ticket), &to).await;
        match &dialed {
            Ok(()) => tracing::info!(id = named, "placed a call"),
            Err(Undialed {
                reason,
                may_ring: true,
            }) => {
                tracing::warn!(reason, id = named, "a call may have been placed or not");
                calling.placed.is_uncertain(&named, outbound.ring);
            }
            Err(Undialed { reason, .. }) => {
                tracing::warn!(reason, id = named, "cannot place a call");
                over(&calling, &named, "failed");
            }
        }
        dialed
    });
    let dialed = dialing.await;
    let dialed = dialed.unwrap_or_else(|error| Err(error.to_string().into()));
    let mut state = json!(shared.placed.state(&id));
    let location = [(LOCATION, format!("{PATH}/{id}"))];
    match dialed {
        Ok(()) => (StatusCode::CREATED, location, Json(state)).into_response(),
        Err(Undialed {
            reason,
            may_ring: true,
        }) => {
            let message = format!(
                "The call may have been placed: {reason}. Its status tells whether somebody answers."
            );
            state["message"] = message.into();
            (StatusCode::ACCEPTED, location, Json(state)).into_response()
        }
        Err(Undialed { reason, .. }) => {
            let message = format!("The call could not be placed: {reason}.");
            error(StatusCode::BAD_GATEWAY, "call_failed", None, message)
        }
    }
}

/// Has the line dial. The call comes back to this server once it is answered.
async fn dial(
    shared: &Arc<Shared>,
    outbound: &OutboundCalls,
    (id, ticket): (&str, &str),
    to: &str,
) -> Result<(), Undialed> {
    match &outbound.line {
        OutboundLine::Twilio { from } => {
            let settings = shared.settings();
            let missing = || "there is no [twilio]".to_owned();
            let twilio: &Twilio = settings.twilio.as_ref().ok_or_else(missing)?;
            twilio.dial(id, to, from, outbound.ring).await
        }
        OutboundLine::Asterisk(ari) => {
            let dialed = ari.dial(id, ticket, to, outbound.ring).await;
            let (ari, id, shared) = (ari.clone(), id.to_owned(), shared.clone());
            if let Err(Undialed { reason, may_ring }) = dialed {
                if may_ring {
                    let ring = outbound.ring;
                    tokio::spawn(async move {
                        let stopped = shared.context.stop.clone();
                        stopped.run_until_cancelled(ari.hang_up(&id, ring)).await
                    });
                }
                // It does not ring for long.
                return Err(reason.into());
            }
            tokio::spawn(async move {
                let stopped = shared.context.stop.clone();
                tokio::select! {
                    () = ari.watch(&id) => over(&shared, &id, "completed"),
                    () = stopped.cancelled() => {}
                }
            });
            Ok(())
        }
    }
}

/// Notes how a call ended that the server has placed.
pub(super) fn over(shared: &Shared, id: &str, how: &'static str) {
    if shared.placed.over(id, how) {
        shared.admission.let_go();
    }
}

async fn state(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = admitted(&shared, &headers) {
        return refused;
    }
    match shared.placed.state(&id) {
        Some(state) => Json(state).into_response(),
        None => error(
            StatusCode::NOT_FOUND,
            "not_found",
            None,
            "There is no such call.",
        ),
    }
}

fn bad(param: Option<&str>, message: String) -> Response {
    error(StatusCode::BAD_REQUEST, "invalid_value", param, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_allowed_whole_or_by_their_beginning() {
        let outbound = OutboundCalls {
            allow: vec!["+15550100".into(), "+4930*".into()],
            max_calls: 1,
            per_hour: 1,
            ring: Duration::from_secs(30),
            message: String::new(),
            line: OutboundLine::Twilio {
                from: "+15550199".into(),
            },
        };
        for (number, allowed) in [
            ("+15550100", true),
            ("+155501001", false),
            ("+49301234567", true),
            ("+4989123456", false),
            ("+4930", true),
        ] {
            assert_eq!(outbound.allows(number), allowed, "{number}");
        }
    }
}
