//! The server's own routes.

use super::access::{self, admit, admit_with_token, refusal};
use super::realtime_client::{PATHS, RealtimeQuery, realtime_client};
use super::shared::Shared;
use super::speech::session_offer;
use super::upgrade::{Limits, Upgrade, open_admitted, open_with};
use super::{HEALTHY, api, calls, client, errors, limits, outbound, page, resume, speech, twilio};
use crate::metrics;
use crate::tools::Origin;
use crate::transport::Admission;
use crate::transport::pcm::{self, Pcm};
use crate::transport::phone::chan_websocket::ChanWebsocket;
use crate::transport::phone::media_streams::{MediaStreams, Provider, Start};
use crate::transport::realtime::{self, Fault, Offered};
use crate::tts::{Speaker, Speed};
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use std::future;
use std::sync::Arc;

/// Builds the router.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    let mut openings = Router::new();
    for path in PATHS {
        openings = openings.route(path, get(open_realtime));
    }
    let openings = openings
        .route("/v1/pcm", get(open_pcm))
        .route("/asterisk/media", get(open_asterisk))
        .route("/telnyx/media", get(open_telnyx))
        .route("/plivo/media", get(open_plivo))
        .route_layer(from_fn_with_state(shared.clone(), limits::limit));
    Router::new()
        .merge(api::router())
        .merge(calls::router(&shared))
        .merge(outbound::router())
        .merge(openings)
        .merge(page::router())
        .merge(speech::router())
        .merge(twilio::router())
        .route("/healthz", get(async || HEALTHY))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(api::wrong_method)
        .with_state(shared)
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    if shared.context.drain.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining").into_response()
    } else if shared.metrics.journal().is_failing() && !shared.metrics.store().is_used() {
        let why = "the journal cannot be written: tools with side effects do not run";
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    } else if let Some(cause) = shared.metrics.loading_because() {
        let why = format!("the language model is not ready: {cause}");
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    } else {
        // It serves without their tools.
        let mut told = String::from("ready");
        // All servers miss it at once: if none were ready, nobody would be served.
        if shared.metrics.store().is_down() {
            told += "; the shared store does not answer: tools with side effects do not run";
        }
        let failing = shared.metrics.failing_models();
        if !failing.is_empty() {
            told += &format!("; language models that fail: {}", failing.join("; "));
        }
        let down = shared.metrics.mcp().down();
        if !down.is_empty() {
            told += &format!("; MCP servers that are not connected: {}", down.join(", "));
        }
        told.into_response()
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

async fn open_realtime(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    query: Result<Query<RealtimeQuery>, QueryRejection>,
    upgrade: Upgrade,
) -> Response {
    let Query(query) = match query {
        Ok(query) => query,
        Err(rejection) => return rejection.into_response(),
    };
    if let Some(id) = &query.call_id {
        return calls::join(shared, &headers, id, upgrade);
    }
    if query.resume.is_some() {
        return resume::come_back(&shared, &headers, query, upgrade);
    }
    let way_back = query.is_resumable().then(|| shared.resumptions.open());
    let dialect = match realtime_client(&shared, &uri, &headers, query) {
        Ok(dialect) => dialect,
        Err(refused) => return refused,
    };
    let limit = Limits {
        message: shared.settings().max_realtime_message,
        intake: shared.settings().realtime_intake,
        rate: realtime::RATE,
        promised: false,
    };
    let protocols = ["realtime", realtime::BETA_PROTOCOL];
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(protocols));
    open_with(shared, upgrade, dialect, limit, way_back, |_| async {})
}

/// The query of a PCM client.
#[derive(Deserialize)]
struct PcmQuery {
    agent: Option<String>,
    voice: Option<String>,
    speed: Option<f64>,
}

impl PcmQuery {
    /// The voice and the speed that the client wants.
    fn speaker(&self, offered: &Offered) -> Result<Speaker, Fault> {
        let voice = self.voice.as_deref();
        let voice = voice.map(|name| offered.voice(name, "voice"));
        let speed = self.speed.map(|factor| {
            let wrong = || Fault::new("invalid_value", "speed", "It must be 0.25 to 4.");
            Speed::of(factor).ok_or_else(wrong)
        });
        Ok(Speaker {
            voice: voice.transpose()?.flatten(),
            speed: speed.transpose()?,
            ..Speaker::default()
        })
    }
}

async fn open_pcm(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<PcmQuery>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let limit = Limits {
        message: shared.settings().max_pcm_message,
        intake: shared.settings().pcm_intake,
        rate: pcm::DEFAULT_RATE,
        promised: false,
    };
    let admitted = match admit(&shared, &headers) {
        Ok(admitted) => admitted,
        Err(refused) => return refused,
    };
    if admitted.configures() {
        let message = "The client secret has a session configuration, which clients of /v1/pcm cannot have. Make it \
                       without `session`, or with its `type` and `model` alone.";
        return errors::fault(&Fault::new("invalid_value", "session", message));
    }
    let agents = &shared.settings().agents;
    let agent = match admitted.agent(agents, query.agent.as_deref(), None) {
        Ok(agent) => agent,
        Err(wrong) => return errors::fault(&wrong),
    };
    let offered = session_offer(&shared, admitted.is_trusted);
    let speaker = match query.speaker(&offered) {
        Ok(speaker) => speaker,
        Err(wrong) => return errors::fault(&wrong),
    };
    let mut values = admitted.values;
    values.extend(client::values(&uri, "pcm", Origin::Claimed));
    // A browser that shows its key as a subprotocol needs another one that is chosen.
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(["pcm", "realtime"]));
    let dialect = Pcm::new(client::name(&headers))
        .with_agent(agent)
        .with_voice(speaker)
        .traced(client::parent(&headers))
        .knowing(values);
    open_admitted(shared, upgrade, dialect, limit, |_| async {})
}

#[derive(Deserialize)]
struct TicketQuery {
    ticket: Option<String>,
}

async fn open_asterisk(
    State(shared): State<Arc<Shared>>,
    Query(TicketQuery { ticket }): Query<TicketQuery>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    if let Err(denied) = admit_with_token(&shared, &headers) {
        return refusal(&shared, denied);
    }
    let limits = Limits::of_calls(&shared.settings());
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(["media"]));
    let origin = trunk(access::shows_token(&headers, &shared.settings()));
    let values = client::values(&uri, "asterisk", origin);
    let dialect = ChanWebsocket::new(client::name(&headers)).knowing(values, origin);
    // Asterisk brings the ticket of a call that the server has placed.
    let (dialect, limits) = match ticket {
        None => (dialect, limits),
        Some(ticket) => match shared.placed.redeem(&ticket) {
            Some(placed) => (dialect.placed(placed), limits.promised()),
            None => {
                tracing::info!("refused a call with an unknown ticket");
                return (StatusCode::FORBIDDEN, "the ticket is not valid").into_response();
            }
        },
    };
    open_admitted(shared, upgrade, dialect, limits, |_| async {})
}

#[derive(Deserialize)]
struct ProviderQuery {
    token: Option<String>,
}

async fn open_telnyx(
    shared: State<Arc<Shared>>,
    query: Query<ProviderQuery>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    open_provider(Provider::Telnyx, shared, query, &uri, &headers, upgrade)
}

async fn open_plivo(
    shared: State<Arc<Shared>>,
    query: Query<ProviderQuery>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    open_provider(Provider::Plivo, shared, query, &uri, &headers, upgrade)
}

/// A call from a provider that can present the server's token only in the URL.
fn open_provider(
    provider: Provider,
    State(shared): State<Arc<Shared>>,
    Query(query): Query<ProviderQuery>,
    uri: &Uri,
    headers: &HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let token = query.token.as_deref();
    let has_token = token.is_some_and(|shown| access::is_token(shown, &shared.settings()));
    if !has_token && let Err(denied) = admit_with_token(&shared, headers) {
        return refusal(&shared, denied);
    }
    let origin = trunk(has_token || access::shows_token(headers, &shared.settings()));
    let asked = client::values(uri, "", origin);
    let admit = move |start: &Start| -> BoxFuture<'static, Admission> {
        let mut values = asked.clone();
        values.extend(start.claimed.clone().vouched(origin));
        Box::pin(future::ready(Some(values.into())))
    };
    let dialect = MediaStreams::new(provider, Box::new(admit));
    let limits = Limits::of_calls(&shared.settings());
    open_admitted(shared, upgrade, dialect, limits, |_| async {})
}

/// The origin of what a provider or an Asterisk tells: `is_authenticated` if it has shown the server's token.
fn trunk(is_authenticated: bool) -> Origin {
    match is_authenticated {
        true => Origin::Signalled,
        false => Origin::Claimed,
    }
}
