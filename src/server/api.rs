//! The HTTP endpoints of the Realtime API beside calls: client secrets and the list of models; and what is told where
//! there is no endpoint.

use super::access::{self, Admitted, admit_with_token, refusal};
use super::errors::{error, fault};
use super::secrets::{self, Grant, MAX_SESSION};
use super::settings::ServerSettings;
use super::shared::Shared;
use super::speech::session_offer;
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::realtime::{self, Fault, Offered, Realtime};
use crate::transport::{Action, Dialect};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::map_response;
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, extract::Path};
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;
use std::sync::Arc;
use tokio::time::timeout;

/// How long a client secret may be valid, seconds: OpenAI's bounds.
const SECONDS: RangeInclusive<u64> = 10..=secrets::LONGEST;

/// How long a client secret is valid by default, seconds: OpenAI's default.
const DEFAULT_SECONDS: u64 = 600;

/// How long after its beginning a session is said to expire, seconds. Nothing ends it then, but clients require a time.
const SAID_TO_LAST: u64 = 24 * 60 * 60;

/// The longest request body, bytes.
const MAX_BODY: usize = 64 * 1024;

/// The `created` field of the model, seconds since 1970, for clients that sort by it.
const CREATED: u64 = 1_767_225_600;

/// The routes. Pages of any origin may read the responses: access depends on tokens and the origin,
/// never on cookies.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route(
            "/v1/realtime/client_secrets",
            post(client_secret).options(preflight),
        )
        .route(
            "/v1/realtime/sessions",
            post(beta_session).options(preflight),
        )
        .route(
            "/v1/realtime/transcription_sessions",
            post(beta_transcription_session).options(preflight),
        )
        .route("/v1/models", get(models).options(preflight))
        .route("/v1/models/{model}", get(model).options(preflight))
        .route("/v1/", any(unknown))
        .route("/v1/{*unknown}", any(unknown))
        .method_not_allowed_fallback(wrong_method)
        .layer(map_response(readable_everywhere))
}

/// Lets pages of any origin read a response.
pub(super) async fn readable_everywhere(mut response: Response) -> Response {
    let any = HeaderValue::from_static("*");
    response
        .headers_mut()
        .insert(ACCESS_CONTROL_ALLOW_ORIGIN, any);
    response
}

/// The answer to a page that asks what it may send: any header, because clients describe themselves in more and more of
/// them. No header is trusted but the token.
pub(super) async fn preflight(headers: HeaderMap) -> impl IntoResponse {
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let allowed = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
        (ACCESS_CONTROL_MAX_AGE, "86400"),
        (VARY, "access-control-request-headers"),
    ];
    let asked = asked.map(|asked| [(ACCESS_CONTROL_ALLOW_HEADERS, asked)]);
    (
        StatusCode::NO_CONTENT,
        allowed,
        asked.map(AppendHeaders),
        (),
    )
}

/// The answer at a path that the server does not have.
async fn unknown(method: Method, uri: Uri) -> Response {
    let message = format!("There is no {method} {} here.", uri.path());
    error(StatusCode::NOT_FOUND, "unknown_url", None, message)
}

/// The answer to a method that a path does not have.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}.", uri.path());
    let status = StatusCode::METHOD_NOT_ALLOWED;
    error(status, "method_not_supported", None, message)
}

/// Applies the operator's settings to a Realtime client that comes at `now`, seconds since 1970, and may choose what is
/// `offered`.
pub(super) fn as_set(
    dialect: Realtime,
    settings: &ServerSettings,
    offered: Offered,
    now: u64,
) -> Realtime {
    dialect
        .expiring(now + SAID_TO_LAST)
        .offering(offered)
        .turns(settings.interrupt, settings.vad_threshold)
        .within(settings.text)
}

/// Reads a body of at most `most` bytes.
pub(super) async fn read(shared: &Shared, body: Body, most: usize) -> Result<Bytes, Response> {
    let reading = timeout(shared.settings().header_timeout, to_bytes(body, most));
    match reading.await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let message = format!("The body is longer than {most} bytes.");
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            Err(error(status, "request_too_large", None, message))
        }
        Err(_) => {
            let message = "The body arrives too slowly.";
            let status = StatusCode::REQUEST_TIMEOUT;
            Err(error(status, "request_timeout", None, message))
        }
    }
}

/// Issues a client secret.
async fn client_secret(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match issued(&shared, &headers, body, |body| body).await {
        Ok(Issued {
            value,
            expires_at,
            dialect,
        }) => {
            let session = dialect.shown();
            Json(json!({"value": value, "expires_at": expires_at, "session": session}))
                .into_response()
        }
        Err(refused) => refused,
    }
}

/// Issues a client secret in the beta's form.
async fn beta_session(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    beta(&shared, &headers, body, "realtime").await
}

/// The same for a transcription session.
async fn beta_transcription_session(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    beta(&shared, &headers, body, "transcription").await
}

async fn beta(shared: &Shared, headers: &HeaderMap, body: Body, kind: &'static str) -> Response {
    let issued = issued(shared, headers, body, |body| of_beta(body, kind));
    match issued.await {
        Ok(Issued {
            value,
            expires_at,
            dialect,
        }) => {
            let mut session = seen_by_beta(dialect);
            session["client_secret"] = json!({"value": value, "expires_at": expires_at});
            Json(session).into_response()
        }
        Err(refused) => refused,
    }
}

/// A request of the beta as one of today. Its body is the session, flat, and in it `client_secret` says how long the
/// secret is valid.
fn of_beta(mut body: Map<String, Value>, kind: &str) -> Map<String, Value> {
    let secret = body.remove("client_secret").unwrap_or_default();
    // The second name is that of transcription sessions.
    let names = ["expires_after", "expires_at"];
    let expires_after = names.iter().find_map(|name| secret.get(name)).cloned();
    body.insert("type".into(), kind.into());
    Map::from_iter([
        ("session".to_owned(), Value::Object(body)),
        (
            "expires_after".to_owned(),
            expires_after.unwrap_or_default(),
        ),
    ])
}

/// The session with which a client of the beta begins.
fn seen_by_beta(dialect: Realtime) -> Value {
    let mut begun = dialect.beta(true).start().into_iter();
    let session = begun.find_map(|action| match action {
        Action::Send(event) => {
            let mut event: Value = serde_json::from_str(&event).ok()?;
            event.get_mut("session").map(Value::take)
        }
        _ => None,
    });
    session.unwrap_or_default()
}

/// A client secret, and the dialect of its sessions.
struct Issued {
    value: String,
    expires_at: u64,
    dialect: Realtime,
}

/// Issues a client secret for a body that becomes a request by `form`. A client secret is not enough to request another.
async fn issued(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
    form: impl FnOnce(Map<String, Value>) -> Map<String, Value>,
) -> Result<Issued, Response> {
    if let Err(denied) = admit_with_token(shared, headers) {
        return Err(refusal(shared, denied));
    }
    let body = read(shared, body, MAX_BODY).await?;
    let settings = shared.settings();
    // Without a token, whoever opens sessions may ask for secrets, too.
    let origin = match access::shows_token(headers, &settings) {
        true => Origin::Verified,
        false => Origin::Claimed,
    };
    let offered = session_offer(shared, origin == Origin::Verified);
    let asked = object(&body).map(form);
    let granted =
        asked.and_then(|asked| granted(&asked, secrets::now(), &settings, origin, offered));
    let (grant, dialect) = granted.map_err(|wrong| fault(&wrong))?;
    Ok(Issued {
        value: shared.secrets.issue(&grant),
        expires_at: grant.expires_at,
        dialect,
    })
}

/// The object in a body, which may be empty.
fn object(body: &[u8]) -> Result<Map<String, Value>, Fault> {
    match body.trim_ascii() {
        b"" => Ok(Map::new()),
        body => serde_json::from_slice(body).map_err(|error| {
            Fault::whole(
                "invalid_json",
                format!("The body is not a JSON object: {error}."),
            )
        }),
    }
}

/// The error of a session's value that is not taken.
pub(super) const UNFIT_VALUE: &str =
    "It must have 1 to 1024 bytes and no control characters; 64 values at most.";

/// Parses a request for a client secret made at `now`, seconds since 1970; `origin` is that of what it
/// tells of the caller. Returns the grant, and the dialect of a client that has it.
fn granted(
    body: &Map<String, Value>,
    now: u64,
    settings: &ServerSettings,
    origin: Origin,
    offered: Offered,
) -> Result<(Grant, Realtime), Fault> {
    let session = body.get("session").cloned().unwrap_or_default();
    let dialect = as_set(Realtime::new(None, None, false), settings, offered, now);
    let dialect = dialect.configured(session.clone())?;
    if session.to_string().len() > MAX_SESSION {
        let message = format!(
            "A client secret carries at most {MAX_SESSION} bytes of session; set the rest with \
             session.update."
        );
        return Err(Fault::new("string_above_max_length", "session", message));
    }
    let seconds = seconds(body.get("expires_after").unwrap_or(&Value::Null))?;
    let expires_at = now + seconds;
    let mut told = body.get("undertone").cloned().unwrap_or_default();
    let agent = told.as_object_mut().and_then(|told| told.remove("agent"));
    let agent = agent.map(|agent| match agent {
        Value::String(name) => Ok(name),
        _ => Err(Fault::new(
            "invalid_value",
            "undertone.agent",
            "It must be a text.",
        )),
    });
    let agent = agent.transpose()?;
    let model = session.get("model").and_then(Value::as_str);
    let is_trusted = origin == Origin::Verified;
    let agent = settings.agents.choice(is_trusted, agent.as_deref(), model);
    let agent = agent.map_err(|fault| Fault {
        param: Some("undertone.agent".into()),
        ..fault
    })?;
    let values = caller(&told, origin)?;
    let grant = Grant {
        expires_at,
        session,
        values,
        agent,
        services: is_trusted,
    };
    Ok((grant, dialect))
}

/// The caller according to the field `undertone` of a request.
fn caller(told: &Value, origin: Origin) -> Result<SessionValues, Fault> {
    let wrong = |param: String, message: &str| Err(Fault::new("invalid_value", &param, message));
    let mut values = SessionValues::default();
    let told = match told {
        Value::Null => return Ok(values),
        Value::Object(told) => told,
        _ => return wrong("undertone".into(), "It must be an object."),
    };
    let mut texts = Vec::new();
    for (name, value) in told {
        match (name.as_str(), value) {
            ("caller", value) => texts.push((name.clone(), Named::Caller, value)),
            ("called", value) => texts.push((name.clone(), Named::Called, value)),
            ("forwarded_from", value) => texts.push((name.clone(), Named::ForwardedFrom, value)),
            ("param", Value::Object(params)) => texts.extend(
                params
                    .iter()
                    .map(|(of, value)| (format!("param.{of}"), Named::Param(of.clone()), value)),
            ),
            _ => {
                let message = "Known are agent, caller, called and forwarded_from, which are texts, and \
                               param, an object of texts.";
                return wrong(format!("undertone.{name}"), message);
            }
        }
    }
    for (at, name, value) in texts {
        let Some(text) = value.as_str() else {
            return wrong(format!("undertone.{at}"), "It must be a text.");
        };
        values.add(name.clone(), text, origin);
        if values.get(&name).is_none() {
            return wrong(format!("undertone.{at}"), UNFIT_VALUE);
        }
    }
    Ok(values)
}

fn seconds(expires_after: &Value) -> Result<u64, Fault> {
    match expires_after.get("anchor") {
        None | Some(Value::Null) => {}
        Some(anchor) if anchor == "created_at" => {}
        Some(_) => {
            let message = "The anchor must be 'created_at'.";
            return Err(Fault::new("invalid_value", "expires_after.anchor", message));
        }
    }
    match expires_after.get("seconds") {
        None | Some(Value::Null) => Ok(DEFAULT_SECONDS),
        Some(seconds) => {
            let seconds = seconds.as_u64().filter(|seconds| SECONDS.contains(seconds));
            seconds.ok_or_else(|| {
                let (least, most) = SECONDS.into_inner();
                let message = format!("A client secret is valid for {least} to {most} seconds.");
                Fault::new("invalid_value", "expires_after.seconds", message)
            })
        }
    }
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    match access::admit(&shared, &headers) {
        Ok(client) => {
            let data: Vec<Value> = offered(&shared, &client)
                .iter()
                .map(|name| entry(name))
                .collect();
            Json(json!({"object": "list", "data": data})).into_response()
        }
        Err(refused) => refused,
    }
}

/// The models that a client may name: the server's, and agents.
fn offered(shared: &Shared, client: &Admitted) -> Vec<String> {
    let settings = shared.settings();
    let agents = settings.agents.names(client.is_trusted).map(str::to_owned);
    let own = [realtime::DEFAULT_MODEL.to_owned()].into_iter();
    own.chain(client.agent.clone()).chain(agents).collect()
}

/// Describes one model; other names are not found.
async fn model(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match access::admit(&shared, &headers) {
        Ok(client) if offered(&shared, &client).contains(&name) => {
            Json(entry(&name)).into_response()
        }
        Ok(_) => {
            let message = format!("The model '{name}' does not exist.");
            error(
                StatusCode::NOT_FOUND,
                "model_not_found",
                Some("model"),
                message,
            )
        }
        Err(refused) => refused,
    }
}

fn entry(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": CREATED, "owned_by": "undertone"})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::TextLimits;

    fn refused(body: Value) -> Option<String> {
        let settings = ServerSettings {
            text: TextLimits {
                set_up: MAX_SESSION - 100,
                ..TextLimits::default()
            },
            ..ServerSettings::default()
        };
        grant(&body.to_string(), 0, &settings, Origin::Verified)
            .err()?
            .param
    }

    fn grant(
        body: &str,
        now: u64,
        settings: &ServerSettings,
        origin: Origin,
    ) -> Result<Grant, Fault> {
        let body = object(body.as_bytes())?;
        let granted = granted(&body, now, settings, origin, Offered::default());
        granted.map(|(grant, _)| grant)
    }

    /// Its session was applied as if whoever asked for it had shown the token, so it chose a paid recogniser.
    #[test]
    fn a_secret_chooses_services_only_for_those_who_show_the_token() {
        let session = json!({"audio": {"input": {"transcription": {"model": "nova"}}}});
        let body = json!({ "session": session }).to_string();
        for origin in [Origin::Claimed, Origin::Verified] {
            let grant = grant(&body, 0, &ServerSettings::default(), origin);
            let grant = grant.expect("a grant");
            assert_eq!(grant.services, origin == Origin::Verified, "{origin:?}");
        }
    }

    #[test]
    fn a_secret_is_valid_for_ten_minutes_by_default() {
        let expires = |body: &str| {
            let settings = ServerSettings::default();
            let grant = grant(body, 1_000, &settings, Origin::Verified);
            grant.map(|grant| grant.expires_at)
        };
        assert_eq!(expires(""), Ok(1_600));
        assert_eq!(expires("{}"), Ok(1_600));
        let minute = r#"{"expires_after": {"anchor": "created_at", "seconds": 60}}"#;
        assert_eq!(expires(minute), Ok(1_060));
    }

    #[test]
    fn an_invalid_request_names_the_field() {
        for (body, param) in [
            (
                json!({"expires_after": {"seconds": 9}}),
                "expires_after.seconds",
            ),
            (
                json!({"expires_after": {"seconds": "60"}}),
                "expires_after.seconds",
            ),
            (
                json!({"expires_after": {"anchor": "never"}}),
                "expires_after.anchor",
            ),
            (json!({"session": {"type": "dance"}}), "session.type"),
            (json!({"undertone": "+1"}), "undertone"),
            (json!({"undertone": {"caller": 1}}), "undertone.caller"),
            (json!({"undertone": {"caller": ""}}), "undertone.caller"),
            (json!({"undertone": {"header": {}}}), "undertone.header"),
            (
                json!({"undertone": {"param": {"plan": []}}}),
                "undertone.param.plan",
            ),
            (
                json!({"session": {"prompt": {"id": "p"}}}),
                "session.prompt",
            ),
            (
                json!({"session": {"instructions": "x".repeat(MAX_SESSION)}}),
                "session.instructions",
            ),
            (
                json!({"session": {"instructions": "x".repeat(MAX_SESSION - 99), "type": "transcription"}}),
                "session.instructions",
            ),
            (
                json!({"session": {
                    "tracing": {"group_id": "x".repeat(MAX_SESSION / 2)},
                    "include": ["x".repeat(MAX_SESSION / 2)],
                }}),
                "session",
            ),
        ] {
            assert_eq!(refused(body.clone()).as_deref(), Some(param), "{body}");
        }
        let broken = grant("[1]", 0, &ServerSettings::default(), Origin::Verified);
        let broken = broken.expect_err("no object");
        assert_eq!(broken.code, "invalid_json");
    }

    #[test]
    fn the_beta_says_in_its_session_how_long_a_secret_is_valid() {
        for (name, kind) in [
            ("expires_after", "realtime"),
            ("expires_at", "transcription"),
        ] {
            let validity = json!({"anchor": "created_at", "seconds": 60});
            let body =
                json!({"input_audio_format": "g711_ulaw", "client_secret": {name: validity}});
            let body = object(body.to_string().as_bytes()).expect("an object");
            let asked = Value::Object(of_beta(body, kind));
            let session = json!({"input_audio_format": "g711_ulaw", "type": kind});
            assert_eq!(
                asked,
                json!({"session": session, "expires_after": validity})
            );
            let settings = ServerSettings::default();
            let grant = grant(&asked.to_string(), 0, &settings, Origin::Verified);
            assert_eq!(grant.map(|grant| grant.expires_at), Ok(60));
        }
    }
}
