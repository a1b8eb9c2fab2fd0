//! The server's own routes.

use super::access::{self, admit, admit_with_token, refusal};
use super::api::as_set;
use super::shared::Shared;
use super::speech::session_offer;
use super::upgrade::{Limits, Upgrade, open_admitted, open_with};
use super::{HEALTHY, api, calls, errors, limits, outbound, page, resume, speech, twilio};
use crate::metrics;
use crate::tools::{Named, Origin, SessionValues};
use crate::traces::Parent;
use crate::transport::Admission;
use crate::transport::pcm::{self, Pcm};
use crate::transport::phone::chan_websocket::ChanWebsocket;
use crate::transport::phone::media_streams::{MediaStreams, Provider, Start};
use crate::transport::phone::numbers;
use crate::transport::realtime::{self, Fault, Offered, Realtime};
use crate::tts::{Speaker, Speed};
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::future;
use std::sync::Arc;

/// Longest client or model name that is kept, bytes.
const MAX_NAME: usize = 200;

/// Builds the router.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    let openings = Router::new()
        .route("/v1/realtime", get(open_realtime))
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

/// The query of a Realtime client.
#[derive(Default, Deserialize)]
pub(super) struct RealtimeQuery {
    pub(super) model: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) intent: Option<String>,
    pub(super) vendor_events: Option<String>,
    pub(super) demonstration: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) voice: Option<String>,
    pub(super) language: Option<String>,
    /// The client may come back if its connection is lost.
    pub(super) resumable: Option<String>,
    /// The secret with which a client comes back, and what it has received and heard.
    pub(super) resume: Option<String>,
    pub(super) last_event_id: Option<String>,
    pub(super) item_id: Option<String>,
    pub(super) audio_end_ms: Option<u64>,
}

impl RealtimeQuery {
    /// Whether the client may come back if its connection is lost.
    pub(super) fn is_resumable(&self) -> bool {
        is_set(self.resumable.as_deref())
    }

    /// The session's configuration in it, which unlike `session.update` comes before the greeting.
    fn session(&self) -> Value {
        let mut audio = Map::new();
        if let Some(voice) = &self.voice {
            audio.insert("output".into(), json!({"voice": voice}));
        }
        if let Some(language) = &self.language {
            let transcription = json!({"language": language});
            audio.insert("input".into(), json!({"transcription": transcription}));
        }
        match audio.is_empty() {
            true => Value::Null,
            false => json!({"type": "realtime", "audio": audio}),
        }
    }
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

/// Whether a flag of a query is set.
fn is_set(flag: Option<&str>) -> bool {
    flag.is_some_and(|value| value == "1" || value == "true")
}

/// Admits a Realtime client, and sets up its side of a session.
#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
pub(super) fn realtime_client(
    shared: &Shared,
    uri: &Uri,
    headers: &HeaderMap,
    query: RealtimeQuery,
) -> Result<Realtime, Response> {
    let admitted = admit(shared, headers)?;
    let asked = query.session();
    let vendor_events = is_set(query.vendor_events.as_deref());
    let agents = &shared.settings().agents;
    let agent = admitted.agent(agents, query.agent.as_deref(), query.model.as_deref());
    let agent = agent.map_err(|wrong| errors::fault(&wrong))?;
    let dialect = Realtime::new(query.model.map(clip), client(headers), vendor_events)
        .with_agent(agent)
        .knowing(admitted.values)
        .knowing(told(uri, "realtime", Origin::Claimed));
    let granted = session_offer(shared, admitted.services);
    let dialect = as_set(dialect, &shared.settings(), granted).configured(admitted.session);
    // The operator may have changed limits since the secret was issued.
    let dialect = dialect.map_err(|wrong| errors::fault(&wrong))?;
    let dialect = dialect
        .offering(session_offer(shared, admitted.is_trusted))
        .configured(asked)
        .map_err(|wrong| errors::fault(&wrong))?
        .beta(realtime::asks_for_beta(headers))
        .traced(parent(headers))
        .demonstrating(is_set(query.demonstration.as_deref()));
    Ok(match query.intent.as_deref() {
        Some("transcription") => dialect.transcribing(),
        _ => dialect,
    })
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
    values.extend(told(&uri, "pcm", Origin::Claimed));
    let dialect = Pcm::new(client(&headers))
        .with_agent(agent)
        .with_voice(speaker)
        .traced(parent(&headers))
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
    if let Err(refused) = admit(&shared, &headers) {
        return refused;
    }
    let limits = Limits::of_calls(&shared.settings());
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(["media"]));
    let origin = trunk(access::shows_token(&headers, &shared.settings()));
    let values = told(&uri, "asterisk", origin);
    let dialect = ChanWebsocket::new(client(&headers)).knowing(values, origin);
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
    if !has_token && let Err(refused) = admit(&shared, headers) {
        return refused;
    }
    let origin = trunk(has_token || access::shows_token(headers, &shared.settings()));
    let asked = told(uri, "", origin);
    let admit = move |start: &Start| -> BoxFuture<'static, Admission> {
        let mut values = asked.clone();
        values.extend(start.claimed.clone().vouched(origin));
        Box::pin(future::ready(Some(values.into())))
    };
    let dialect = MediaStreams::new(provider, Box::new(admit));
    let limits = Limits::of_calls(&shared.settings());
    open_admitted(shared, upgrade, dialect, limits, |_| async {})
}

/// The caller according to a request's query, and the way by which it came.
fn told(uri: &Uri, transport: &str, origin: Origin) -> SessionValues {
    let query = uri.query().unwrap_or_default().as_bytes();
    let query: Vec<_> = url::form_urlencoded::parse(query).into_owned().collect();
    let field = |name: &str| {
        let found = query.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let numbers = numbers(
        field("caller"),
        field("called"),
        field("forwarded_from"),
        origin,
    );
    let mut values = numbers.with(Named::Transport, transport, Origin::Verified);
    for (name, value) in &query {
        if let Some(name) = name.strip_prefix("param.") {
            values.add(Named::Param(name.to_owned()), value, origin);
        }
    }
    values
}

/// The origin of what a provider or an Asterisk tells: `is_authenticated` if it has shown the server's token.
fn trunk(is_authenticated: bool) -> Origin {
    match is_authenticated {
        true => Origin::Signalled,
        false => Origin::Claimed,
    }
}

fn client(headers: &HeaderMap) -> Option<String> {
    headers
        .get(USER_AGENT)?
        .to_str()
        .ok()
        .map(|name| clip(name.to_owned()))
}

/// The client's span, if it is traced.
fn parent(headers: &HeaderMap) -> Option<Parent> {
    Parent::read(headers.get("traceparent")?.to_str().ok()?)
}

fn clip(mut name: String) -> String {
    let end = (0..=MAX_NAME.min(name.len()))
        .rev()
        .find(|at| name.is_char_boundary(*at));
    name.truncate(end.unwrap_or(0));
    name
}
