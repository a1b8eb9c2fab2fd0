//! Calls over WebRTC: `POST /v1/realtime/calls` answers a client's SDP offer, as OpenAI's Realtime API does, and so
//! does `POST /v1/realtime`, the address of its beta.

use super::accept::accept;
use super::access;
use super::api::{preflight, read, readable_everywhere};
use super::connections::Place;
use super::errors::{error, fault};
use super::limits;
use super::realtime_client::{RealtimeQuery, realtime_client};
use super::shared::Shared;
use super::upgrade::{RETRY_SECONDS, Upgrade};
use crate::metrics::Refusal;
use crate::transport::realtime::Realtime;
use crate::transport::resume::WayBack;
use crate::transport::socket;
use crate::transport::webrtc;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Multipart, Path, Query, Request, State};
use axum::http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use serde::Deserialize;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

const SDP: &str = "application/sdp";

/// The longest offer, bytes, with the session's configuration.
const MAX_OFFER: usize = 1024 * 1024;

/// The address to which clients of the protocol's beta post their offers.
const BETA: &str = "/v1/realtime";

/// The routes. Pages of any origin may read the responses: access depends on tokens and the origin.
pub(super) fn router(shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    let limited = from_fn_with_state(shared.clone(), limits::limit);
    Router::new()
        .route(BETA, post(open).layer(limited.clone()).options(preflight))
        .route(
            "/v1/realtime/calls",
            post(open).layer(limited).options(preflight),
        )
        .route(
            "/v1/realtime/calls/{id}",
            delete(hang_up).options(preflight),
        )
        .route(
            "/v1/realtime/calls/{id}/hangup",
            post(hang_up).options(preflight),
        )
        .layer(map_response(readable_everywhere))
}

/// An offer, and the configuration of the session.
#[derive(Debug, Default, PartialEq, Deserialize)]
struct Offer {
    sdp: String,
    #[serde(default)]
    session: Value,
}

async fn open(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    query: Result<Query<RealtimeQuery>, QueryRejection>,
    body: Body,
) -> Response {
    let Query(query) = match query {
        Ok(query) => query,
        Err(rejection) => return invalid(rejection.body_text()),
    };
    // Before the body is read: it may be long.
    if let Err(refused) = access::admit(&shared, &headers) {
        return refused;
    }
    let offer = match offer(&shared, &headers, body).await {
        Ok(offer) => offer,
        Err(refused) => return refused,
    };
    let model = offer.session.get("model").and_then(Value::as_str);
    let query = RealtimeQuery {
        model: query.model.or(model.map(str::to_owned)),
        ..query
    };
    let way_back = query.is_resumable().then(|| shared.resumptions.open());
    let dialect = match realtime_client(&shared, &uri, &headers, query) {
        // Its clients say so in no other way.
        Ok(dialect) if uri.path() == BETA => dialect.on_track().beta(true),
        Ok(dialect) => dialect.on_track(),
        Err(refused) => return refused,
    };
    match dialect.configured(offer.session) {
        Ok(dialect) => answer(&shared, dialect, way_back, &offer.sdp),
        Err(wrong) => fault(&wrong),
    }
}

/// Answers the offer of a client that has access, if there is a place, and runs its call.
fn answer(
    shared: &Arc<Shared>,
    dialect: Realtime,
    way_back: Option<WayBack>,
    offer: &str,
) -> Response {
    let Some(calls) = &shared.calls else {
        let message = "This server has no port for WebRTC. Connect a WebSocket to /v1/realtime.";
        return error(
            StatusCode::NOT_IMPLEMENTED,
            "webrtc_not_supported",
            None,
            message,
        );
    };
    let permit = match shared.admission.place(false) {
        Ok(permit) => permit,
        Err(refusal) => return busy(refusal),
    };
    let answered = match calls.answer(offer) {
        Ok(answered) => answered,
        Err(bad) => return invalid(bad.to_string()),
    };
    let (context, task) = (shared.context.clone(), shared.tasks.token());
    let intake = shared.settings().pcm_intake;
    let dialect = Box::new(dialect);
    tokio::spawn(async move {
        answered
            .seat
            .serve(dialect, intake, context, way_back)
            .await;
        drop((permit, task));
    });
    let headers = [
        (CONTENT_TYPE, SDP.to_owned()),
        (LOCATION, format!("/v1/realtime/calls/{}", answered.id)),
        (ACCESS_CONTROL_EXPOSE_HEADERS, LOCATION.to_string()),
    ];
    (StatusCode::CREATED, headers, answered.sdp).into_response()
}

/// Reads an offer in any of the three forms in which OpenAI's clients send it.
async fn offer(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<Offer, Response> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let essence = kind
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    let form = match essence.trim().to_ascii_lowercase().as_str() {
        SDP => Form::Sdp,
        "application/json" => Form::Json,
        "multipart/form-data" => Form::Parts,
        _ => {
            let message = "Send the SDP offer as application/sdp, as multipart/form-data with the fields sdp and \
                           session, or as application/json with the same.";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(error(status, "unsupported_content_type", None, message));
        }
    };
    let bytes = read(shared, body, MAX_OFFER).await?;
    match form {
        Form::Sdp => text(&bytes).map(|sdp| Offer {
            sdp,
            session: Value::Null,
        }),
        Form::Json => serde_json::from_slice(&bytes)
            .map_err(|wrong| invalid(format!("The body is not an object with an sdp: {wrong}."))),
        Form::Parts => parts(headers, bytes).await,
    }
}

enum Form {
    Sdp,
    Json,
    Parts,
}

async fn parts(headers: &HeaderMap, body: Bytes) -> Result<Offer, Response> {
    let mut request = Request::new(Body::from(body));
    *request.headers_mut() = headers.clone();
    let mut parts = Multipart::from_request(request, &())
        .await
        .map_err(|wrong| invalid(wrong.body_text()))?;
    let mut offer = Offer::default();
    while let Some(part) = parts
        .next_field()
        .await
        .map_err(|wrong| invalid(wrong.body_text()))?
    {
        let name = part.name().map(str::to_owned);
        let bytes = part
            .bytes()
            .await
            .map_err(|wrong| invalid(wrong.body_text()))?;
        match name.as_deref() {
            Some("sdp") => offer.sdp = text(&bytes)?,
            Some("session") => {
                offer.session = serde_json::from_slice(&bytes)
                    .map_err(|wrong| invalid(format!("The field session is not JSON: {wrong}.")))?;
            }
            _ => {}
        }
    }
    Ok(offer)
}

#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
fn text(bytes: &[u8]) -> Result<String, Response> {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|_| invalid("The SDP offer is not UTF-8.".into()))
}

fn invalid(message: String) -> Response {
    error(StatusCode::BAD_REQUEST, "invalid_offer", None, message)
}

pub(super) fn busy(refusal: Refusal) -> Response {
    let message = match refusal {
        Refusal::Draining => "The server shuts down.",
        Refusal::Overloaded => "The server is overloaded: try again later.",
        _ => "All sessions are taken: try again later.",
    };
    let refused = error(StatusCode::SERVICE_UNAVAILABLE, "no_place", None, message);
    ([(RETRY_AFTER, RETRY_SECONDS)], refused).into_response()
}

/// Serves a connection if its client speaks as those of calls over TCP do. Returns it if it does not.
pub(super) async fn serve_tcp(
    stream: TcpStream,
    place: &Place,
    shared: &Shared,
) -> Option<TcpStream> {
    let Some(calls) = shared.calls.as_ref().filter(|calls| calls.has_tcp()) else {
        return Some(stream);
    };
    let patience = shared.settings().header_timeout;
    let serving = async {
        let (mut first, client) = ([0], stream.peer_addr().ok()?);
        match stream.peek(&mut first).await {
            Ok(1..) if webrtc::is_call(first[0]) => {}
            _ => return Some(stream),
        }
        calls.carry(stream, client, || place.admitted()).await;
        None
    };
    tokio::select! {
        biased;
        () = place.displaced() => None,
        other = serving => other,
        // Once its call is named, the call decides how long the connection lasts.
        () = place.overdue(patience, Duration::MAX, Duration::MAX) => None,
    }
}

/// Accepts calls over TCP forever, if they have a listener of their own.
pub(super) async fn accept_tcp(listener: Option<&TcpListener>, shared: &Arc<Shared>) -> Infallible {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let serve = |stream, place: Arc<Place>| {
        let shared = shared.clone();
        tokio::spawn(async move { serve_tcp(stream, &place, &shared).await });
    };
    accept(listener, &shared.connections, serve).await
}

/// Opens a second client of a call's session.
pub(super) fn join(
    shared: Arc<Shared>,
    headers: &HeaderMap,
    id: &str,
    upgrade: Upgrade,
) -> Response {
    if let Err(refused) = access::admit(&shared, headers) {
        return refused;
    }
    let Some(sideband) = shared.calls.as_ref().and_then(|calls| calls.join(id)) else {
        let message = "There is no call with this id: omit call_id to open a session.";
        let (status, code) = (StatusCode::NOT_FOUND, "call_not_found");
        return error(status, code, Some("call_id"), message);
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade.protocols(["realtime"]),
        Err(rejection) => return rejection.into_response(),
    };
    let (context, task) = (shared.context.clone(), shared.tasks.token());
    let longest = shared.settings().max_realtime_message;
    socket::limit(upgrade, longest).on_upgrade(async move |socket| {
        sideband.drive(socket, context.limits, context.stop).await;
        drop(task);
    })
}

/// Ends a call. Whoever knows its id, and has access, may.
async fn hang_up(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = access::admit(&shared, &headers) {
        return refused;
    }
    match shared
        .calls
        .as_ref()
        .is_some_and(|calls| calls.hang_up(&id))
    {
        true => StatusCode::OK.into_response(),
        false => {
            let message = "There is no call with this id; it may have ended.";
            error(StatusCode::NOT_FOUND, "call_not_found", None, message)
        }
    }
}
