//! The routes and the upgrade of a request to a session.

use super::secrets::{self, Unfit};
use super::{HEALTHY, ServerSettings, Shared, access, api, playground, twilio};
use crate::audio::g711;
use crate::metrics::{self, Refusal};
use crate::transport::Dialect;
use crate::transport::intake::IntakeLimits;
use crate::transport::pcm::{self, Pcm};
use crate::transport::phone::chan_websocket::ChanWebsocket;
use crate::transport::phone::media_streams::{MediaStreams, Provider};
use crate::transport::realtime::{self, Realtime};
use crate::transport::socket;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Seconds after which a client that found no room may try again.
const RETRY_SECONDS: &str = "5";

/// Longest name that a client may give itself or the model, bytes.
const MAX_NAME: usize = 200;

/// The server's own routes.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(api::router())
        .merge(playground::router())
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

pub(super) type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    if shared.around.drain.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining").into_response()
    } else if shared.metrics.journal().is_failing() {
        let why = "the journal cannot be written: no tool that changes something is run";
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    } else {
        "ready".into_response()
    }
}

/// For Prometheus. What a server does is nobody else's business: the rules are those of sessions.
async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Err(denied) = admit_with_token(&shared, &headers) {
        return refusal(&shared, denied);
    }
    let text = shared.metrics.render();
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// Lets a client open a session, or says why not. Returns the configuration that its client secret
/// carries; null if it shows none or that has none.
#[allow(
    clippy::result_large_err,
    reason = "the error is the answer, made once for each stranger"
)]
pub(super) fn admit(shared: &Shared, headers: &HeaderMap) -> Result<Value, Response> {
    let mut expired = false;
    for shown in access::shown(headers) {
        match shared.secrets.read(&shown, secrets::now()) {
            Ok(grant) => return Ok(grant.session),
            Err(Unfit::Expired) => expired = true,
            Err(Unfit::Unknown) => {}
        }
    }
    match admit_with_token(shared, headers) {
        Ok(()) => Ok(Value::Null),
        Err(access::Denied::Token) if expired => Err(refusal(shared, access::Denied::Expired)),
        Err(denied) => Err(refusal(shared, denied)),
    }
}

/// Lets in who may do more than open sessions: a client secret is not enough.
pub(super) fn admit_with_token(shared: &Shared, headers: &HeaderMap) -> Result<(), access::Denied> {
    access::check(headers, &shared.settings(), shared.address)
}

/// Says why a client stays out, as OpenAI's clients read it.
pub(super) fn refusal(shared: &Shared, denied: access::Denied) -> Response {
    tracing::info!(%denied, "a client stays out");
    shared.metrics.refused(Refusal::Denied);
    let challenge = [(WWW_AUTHENTICATE, "Bearer")];
    let code = match denied.status() {
        StatusCode::UNAUTHORIZED => "invalid_api_key",
        _ => "forbidden",
    };
    let error = api::error(denied.status(), code, None, denied.to_string());
    (challenge, error).into_response()
}

#[derive(Deserialize)]
struct RealtimeQuery {
    model: Option<String>,
    call_id: Option<String>,
    intent: Option<String>,
    vendor_events: Option<String>,
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
            "There are no calls over WebRTC or SIP here: leave call_id out to open a session.";
        return api::error(
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
    let vendor_events = query
        .vendor_events
        .is_some_and(|value| value == "1" || value == "true");
    let dialect = Realtime::new(query.model.map(clip), client(&headers), vendor_events);
    let dialect = match as_set(dialect, &shared.settings()).configured(session) {
        Ok(dialect) => dialect.beta(realtime::asks_for_beta(&headers)),
        // The operator may have set other limits since the secret was made.
        Err(wrong) => return api::fault(&wrong),
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

/// A Realtime client, as the operator would have it.
pub(super) fn as_set(dialect: Realtime, settings: &ServerSettings) -> Realtime {
    dialect
        .turns(settings.interrupt, settings.vad_threshold)
        .within(settings.text)
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

/// A call of a provider that can show the server's token only in the address.
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
    let dialect = MediaStreams::new(provider, Box::new(|_| true));
    let limits = Limits::of_calls(&shared.settings());
    open_admitted(shared, upgrade, dialect, limits, |_| async {})
}

/// Limits for a dialect's sockets.
pub(super) struct Limits {
    /// Bytes of a message.
    message: usize,
    intake: IntakeLimits,
    /// Of the client's audio, Hz.
    rate: u32,
    /// A place was found when the call was answered.
    promised: bool,
}

impl Limits {
    /// Calls over a provider's media stream.
    pub(super) fn of_calls(settings: &ServerSettings) -> Self {
        Self {
            message: settings.max_pcm_message,
            intake: settings.pcm_intake,
            rate: g711::RATE,
            promised: false,
        }
    }

    /// Calls that were answered already.
    pub(super) fn promised(self) -> Self {
        Self {
            promised: true,
            ..self
        }
    }
}

/// Admits a client, or says why not, and drives its socket.
fn open(
    shared: Arc<Shared>,
    headers: &HeaderMap,
    upgrade: Upgrade,
    dialect: impl Dialect,
    limits: Limits,
) -> Response {
    match admit(&shared, headers) {
        Ok(_) => open_admitted(shared, upgrade, dialect, limits, |_| async {}),
        Err(refused) => refused,
    }
}

/// Drives the socket of a client that may come in, and sees to what its dialect leaves to be done.
pub(super) fn open_admitted<D: Dialect, F: Future<Output = ()> + Send>(
    shared: Arc<Shared>,
    upgrade: Upgrade,
    dialect: D,
    limits: Limits,
    afterwards: impl FnOnce(D) -> F + Send + 'static,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    let permit = match shared.place(limits.promised) {
        Ok(permit) => permit,
        Err(Refusal::Draining) => return busy("the server shuts down"),
        Err(Refusal::Overloaded) => return busy("the server has as much to do as it can"),
        Err(_) => return busy("all sessions are taken"),
    };
    let (around, task) = (shared.around.clone(), shared.tasks.token());
    // Boxed: the future would keep two copies of it.
    let dialect = Box::new(dialect);
    socket::limit(upgrade, limits.message).on_upgrade(async move |socket| {
        let dialect = socket::drive(socket, dialect, limits.intake, limits.rate, around).await;
        drop(permit);
        afterwards(*dialect).await;
        drop(task);
    })
}

pub(super) fn busy(reason: &'static str) -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(RETRY_AFTER, RETRY_SECONDS)],
        reason,
    )
        .into_response()
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
