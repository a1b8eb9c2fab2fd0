//! The server's own routes.

use super::access::{self, admit, admit_with_token, refusal};
use super::api::as_set;
use super::shared::Shared;
use super::upgrade::{Limits, Upgrade, open, open_admitted};
use super::{HEALTHY, api, errors, page, twilio};
use crate::metrics;
use crate::transport::pcm::{self, Pcm};
use crate::transport::phone::chan_websocket::ChanWebsocket;
use crate::transport::phone::media_streams::{MediaStreams, Provider};
use crate::transport::realtime::{self, Realtime};
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use std::sync::Arc;

/// Longest client or model name that is kept, bytes.
const MAX_NAME: usize = 200;

/// Builds the router.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(api::router())
        .merge(page::router())
        .merge(twilio::router())
        .route("/healthz", get(async || HEALTHY))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/realtime", get(open_realtime))
        .route("/v1/pcm", get(open_pcm))
        .route("/asterisk/media", get(open_asterisk))
        .route("/telnyx/media", get(open_telnyx))
        .route("/plivo/media", get(open_plivo))
        .with_state(shared)
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    if shared.context.drain.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining").into_response()
    } else if shared.metrics.journal().is_failing() {
        let why = "the journal cannot be written: tools with side effects do not run";
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    } else {
        "ready".into_response()
    }
}

/// Metrics for Prometheus. They reveal the server's activity, so they need the server's token like
/// sessions; a client secret is not enough.
async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Err(denied) = admit_with_token(&shared, &headers) {
        return refusal(&shared, denied);
    }
    let text = shared.metrics.render();
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

#[derive(Deserialize)]
struct RealtimeQuery {
    model: Option<String>,
    call_id: Option<String>,
    intent: Option<String>,
    vendor_events: Option<String>,
    demonstration: Option<String>,
}

async fn open_realtime(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    query: Result<Query<RealtimeQuery>, QueryRejection>,
    upgrade: Upgrade,
) -> Response {
    let Query(query) = match query {
        Ok(query) => query,
        Err(rejection) => return rejection.into_response(),
    };
    if query.call_id.is_some() {
        let message =
            "This server has no calls over WebRTC or SIP: omit call_id to open a session.";
        return errors::error(
            StatusCode::NOT_FOUND,
            "call_not_found",
            Some("call_id"),
            message,
        );
    }
    let session = match admit(&shared, &headers) {
        Ok(session) => session,
        Err(refused) => return refused,
    };
    let is_set = |flag: Option<String>| flag.is_some_and(|value| value == "1" || value == "true");
    let vendor_events = is_set(query.vendor_events);
    let dialect = Realtime::new(query.model.map(clip), client(&headers), vendor_events);
    let dialect = match as_set(dialect, &shared.settings()).configured(session) {
        Ok(dialect) => dialect
            .beta(realtime::asks_for_beta(&headers))
            .demonstrating(is_set(query.demonstration)),
        // The operator may have changed limits since the secret was issued.
        Err(wrong) => return errors::fault(&wrong),
    };
    let dialect = match query.intent.as_deref() {
        Some("transcription") => dialect.transcribing(),
        _ => dialect,
    };
    let limit = Limits {
        message: shared.settings().max_realtime_message,
        intake: shared.settings().realtime_intake,
        rate: realtime::RATE,
        promised: false,
    };
    let protocols = ["realtime", realtime::BETA_PROTOCOL];
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(protocols));
    open_admitted(shared, upgrade, dialect, limit, |_| async {})
}

async fn open_pcm(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let limit = Limits {
        message: shared.settings().max_pcm_message,
        intake: shared.settings().pcm_intake,
        rate: pcm::DEFAULT_RATE,
        promised: false,
    };
    let dialect = Pcm::new(client(&headers));
    open(shared, &headers, upgrade, dialect, limit)
}

async fn open_asterisk(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let limits = Limits::of_calls(&shared.settings());
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(["media"]));
    let dialect = ChanWebsocket::new(client(&headers));
    open(shared, &headers, upgrade, dialect, limits)
}

#[derive(Deserialize)]
struct ProviderQuery {
    token: Option<String>,
}

async fn open_telnyx(
    shared: State<Arc<Shared>>,
    query: Query<ProviderQuery>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    open_provider(Provider::Telnyx, shared, query, &headers, upgrade)
}

async fn open_plivo(
    shared: State<Arc<Shared>>,
    query: Query<ProviderQuery>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    open_provider(Provider::Plivo, shared, query, &headers, upgrade)
}

/// A call from a provider that can present the server's token only in the URL.
fn open_provider(
    provider: Provider,
    State(shared): State<Arc<Shared>>,
    Query(query): Query<ProviderQuery>,
    headers: &HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let token = query.token.as_deref();
    if !token.is_some_and(|shown| access::is_token(shown, &shared.settings()))
        && let Err(refused) = admit(&shared, headers)
    {
        return refused;
    }
    let dialect = MediaStreams::new(provider, Box::new(|_| Box::pin(async { true })));
    let limits = Limits::of_calls(&shared.settings());
    open_admitted(shared, upgrade, dialect, limits, |_| async {})
}

fn client(headers: &HeaderMap) -> Option<String> {
    headers
        .get(USER_AGENT)?
        .to_str()
        .ok()
        .map(|name| clip(name.to_owned()))
}

fn clip(mut name: String) -> String {
    let end = (0..=MAX_NAME.min(name.len()))
        .rev()
        .find(|at| name.is_char_boundary(*at));
    name.truncate(end.unwrap_or(0));
    name
}
