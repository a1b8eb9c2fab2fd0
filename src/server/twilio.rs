//! Twilio calls: the webhook that answers them, the sockets that carry them, and hanging up.
//!
//! Every request must be signed with the account's auth token, and a stream must present the ticket
//! that the webhook issued for its call. Without both, no session opens.

pub(super) mod account;
mod api;
mod transfer;

pub use account::Twilio;
pub use transfer::TransferCall;

use super::api::read;
use super::shared::Shared;
use super::speech::Speech;
use super::upgrade::{Limits, Upgrade, open_admitted};
use crate::audio::g711;
use crate::llm::Phrases;
use crate::metrics::Refusal;
use crate::session::{Profile, SessionOptions};
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::phone::conversation_relay::{self, ConversationRelay};
use crate::transport::phone::media_streams::{Admit, MediaStreams, Provider, Start};
use crate::transport::phone::{numbers, signature, tickets};
use crate::transport::{Admission, Admitted, Placed};
use account::{DIALED, MEDIA, PLACED, PLACED_STATUS, RELAY, VOICE, in_xml};
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// The prefix of a form's fields that are headers of a SIP call.
const SIP_HEADER: &str = "SipHeader_";

/// The longest webhook body, bytes: Twilio posts about 1.5 KB.
const MAX_FORM: usize = 64 * 1024;

/// How long a place is held for a call that was answered, until its socket connects. Words may be said before.
const TO_CONNECT: Duration = Duration::from_secs(15);

/// The header by which a balancer says that it asks another server if this one answers with status 503.
const RETRIES: &str = "x-undertone-retries";

pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route(VOICE, post(answer))
        .route(DIALED, post(after_transfer))
        .route(PLACED, post(answer_placed))
        .route(PLACED_STATUS, post(placed_status))
        .route(MEDIA, get(open_media))
        .route(RELAY, get(open_relay))
}

/// Answers a call: connects it to this server if there is room.
async fn answer(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match asked(&shared, VOICE, &uri, &headers, body).await {
        Ok(form) => {
            let account = form.get("AccountSid").map_or("", String::as_str);
            match super::limits::may_call(&shared, account) {
                true => connected(&shared, &headers, &form, "", Place::New),
                false => busy(&shared, &headers, &form),
            }
        }
        Err(refused) => refused,
    }
}

/// Called when a transferred call ends. If the other side never answered, the caller is connected
/// to this server again.
async fn after_transfer(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let has_ended = |form: &BTreeMap<String, String>| {
        // The other side's call, and the caller's own.
        let calls = ["DialCallStatus", "CallStatus"].map(|call| form.get(call));
        calls
            .into_iter()
            .flatten()
            .any(|status| status == "completed")
    };
    match asked(&shared, DIALED, &uri, &headers, body).await {
        Ok(form) if has_ended(&form) => twiml("<Hangup/>"),
        Ok(form) => {
            let field = |name: &str| form.get(name).map_or("", String::as_str);
            if field("DialCallStatus") == "failed" {
                let (call, code) = (field("CallSid"), field("ErrorCode"));
                let reason = field("ErrorMessage");
                tracing::warn!(call, code, reason, "Twilio could not dial for a transfer");
            }
            let told = say(&shared, &form, |phrases| phrases.nobody_answers);
            connected(&shared, &headers, &form, &told, Place::Promised)
        }
        Err(refused) => refused,
    }
}

/// Names a call that the server has placed.
#[derive(Deserialize)]
struct PlacedQuery {
    call: String,
}

/// Connects a call that the server has placed, once somebody has answered.
async fn answer_placed(
    State(shared): State<Arc<Shared>>,
    Query(placed): Query<PlacedQuery>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let form = match asked(&shared, PLACED, &uri, &headers, body).await {
        Ok(form) => form,
        Err(refused) => return refused,
    };
    let line = form.get("CallSid").map_or("", String::as_str);
    match shared.placed.answered(&placed.call, line) {
        true => connected(&shared, &headers, &form, "", Place::Held),
        false => twiml("<Hangup/>"),
    }
}

/// Notes how a call that the server has placed ended.
async fn placed_status(
    State(shared): State<Arc<Shared>>,
    Query(placed): Query<PlacedQuery>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let form = match asked(&shared, PLACED_STATUS, &uri, &headers, body).await {
        Ok(form) => form,
        Err(refused) => return refused,
    };
    let ended = match form.get("CallStatus").map(String::as_str) {
        Some("completed") => Some("completed"),
        Some("busy") => Some("busy"),
        Some("no-answer") => Some("no_answer"),
        Some("canceled") => Some("canceled"),
        Some("failed") => Some("failed"),
        _ => None,
    };
    if let Some(how) = ended {
        super::outbound::over(&shared, &placed.call, how);
    }
    StatusCode::NO_CONTENT.into_response()
}

/// Returns the form posted to `path` if Twilio signed it.
async fn asked(
    shared: &Shared,
    path: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<BTreeMap<String, String>, Response> {
    let settings = shared.settings();
    let twilio = settings.twilio.as_ref().ok_or_else(not_found)?;
    // Who shows no signature is not waited for.
    if !headers.contains_key(signature::HEADER) {
        return Err(denied(shared));
    }
    let form = read(shared, body, MAX_FORM).await?;
    let parameters: Vec<(String, String)> =
        url::form_urlencoded::parse(&form).into_owned().collect();
    let path = uri.path_and_query().map_or(path, |path| path.as_str());
    if !is_signed(twilio, &twilio.at(path), &parameters, headers) {
        return Err(denied(shared));
    }
    let form: BTreeMap<String, String> = parameters.into_iter().collect();
    if form.get("AccountSid") != Some(&twilio.account_sid) {
        tracing::info!("refused a call of another Twilio account; is twilio.account_sid right?");
        shared.metrics.refused(Refusal::Denied);
        let reason = "the call belongs to another Twilio account than twilio.account_sid";
        return Err((StatusCode::FORBIDDEN, reason).into_response());
    }
    Ok(form)
}

/// The place of a call.
#[derive(Clone, Copy)]
enum Place {
    /// It needs one.
    New,
    /// It was taken before, and gets one even under overload.
    Promised,
    /// The server has placed the call and holds one for it.
    Held,
}

/// Connects a call to this server if there is room, after the TwiML verbs in `first`.
fn connected(
    shared: &Shared,
    headers: &HeaderMap,
    form: &BTreeMap<String, String>,
    first: &str,
    place: Place,
) -> Response {
    let settings = shared.settings();
    let Some(twilio) = &settings.twilio else {
        return not_found();
    };
    let Some(call) = form.get("CallSid") else {
        return (StatusCode::BAD_REQUEST, "CallSid is missing").into_response();
    };
    // Until it is held again, a server that drains must not end.
    let _awaited = shared.tasks.token();
    let place = match place {
        Place::New => shared.admission.place(false),
        Place::Promised => shared.admission.place(true),
        Place::Held => shared.admission.promised(),
    };
    match place {
        Ok(place) => shared.admission.hold(place, TO_CONNECT),
        Err(_) => return busy(shared, headers, form),
    }
    let ticket = shared.tickets.issue(call, told(form));
    let connect = match twilio.relay {
        true => {
            let (_, language) = spoken(shared, form);
            relay(twilio, settings.interrupt, language, &ticket)
        }
        false => stream(twilio, &ticket),
    };
    twiml(&format!("{first}{connect}"))
}

/// The call according to a signed form. SIP headers are the caller's own words.
fn told(form: &BTreeMap<String, String>) -> SessionValues {
    let field = |name: &str| form.get(name).map_or("", String::as_str);
    let signed = Origin::Signalled;
    let values = numbers(field("From"), field("To"), field("ForwardedFrom"), signed);
    let mut values = values.with(Named::CallId, field("CallSid"), signed);
    for (name, value) in form {
        if let Some(header) = name.strip_prefix(SIP_HEADER) {
            let header = Named::Header(header.to_ascii_lowercase());
            values.add(header, value, Origin::Claimed);
        }
    }
    values
}

/// The facts on a call to this server, which has perhaps placed it.
fn facts(values: SessionValues, placed: Option<Placed>) -> Admitted {
    let values = match placed {
        // Twilio names the server's own number, and the person is the called one.
        Some(_) => values.without(&Named::Caller),
        None => values,
    };
    Admitted { values, placed }
}

/// The phrases of the agent that the call leads to, and its language as Twilio calls it; `None` for US English.
fn spoken(shared: &Shared, form: &BTreeMap<String, String>) -> (Phrases, Option<&'static str>) {
    let placed = form
        .get("CallSid")
        .and_then(|call| shared.placed.of_line(call));
    let options = SessionOptions::new(Profile::PhoneCall, g711::RATE);
    let options = facts(told(form), placed).call("twilio", options);
    let engines = shared.speech.as_ref().map(Speech::engines);
    let known = engines.map(|engines| engines.phrases(&options));
    let (phrases, language) = known.unwrap_or_default();
    (phrases, language.as_deref().and_then(account::locale))
}

/// The TwiML with which Twilio says a phrase in the language of the agent that the call leads to.
fn say(
    shared: &Shared,
    form: &BTreeMap<String, String>,
    phrase: impl FnOnce(Phrases) -> String,
) -> String {
    let (phrases, language) = spoken(shared, form);
    let language = language.map_or_else(String::new, |tag| format!(" language=\"{tag}\""));
    format!("<Say{language}>{}</Say>", in_xml(&phrase(phrases)))
}

/// The TwiML that makes Twilio open a socket with the call's text to this server.
fn relay(twilio: &Twilio, interruptible: bool, language: Option<&str>, ticket: &str) -> String {
    let url = in_xml(twilio.socket_at(RELAY).as_str());
    let attributes = conversation_relay::attributes(interruptible, language);
    let ticket = parameters(ticket);
    format!(
        "<Connect><ConversationRelay url=\"{url}\" {attributes}>{ticket}</ConversationRelay></Connect>"
    )
}

/// The TwiML that makes Twilio open a socket with the call's audio to this server.
fn stream(twilio: &Twilio, ticket: &str) -> String {
    let url = in_xml(twilio.socket_at(MEDIA).as_str());
    let ticket = parameters(ticket);
    format!("<Connect><Stream url=\"{url}\">{ticket}</Stream></Connect>")
}

/// A ticket as parameters of a socket.
fn parameters(ticket: &str) -> String {
    let parameters = tickets::parameters(ticket);
    parameters
        .map(|(name, value)| format!("<Parameter name=\"{name}\" value=\"{value}\"/>"))
        .collect()
}

/// The socket with a call's audio.
async fn open_media(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let (twilio, admit) = match caller(&shared, MEDIA, &uri, &headers) {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let dialect = MediaStreams::new(Provider::Twilio, admit);
    let limits = Limits::of_calls(&shared.settings()).promised();
    open_admitted(shared, upgrade, dialect, limits, async move |dialect| {
        if let Some(ended) = dialect.ended() {
            twilio.hang_up(&ended.call).await;
        }
    })
}

/// The socket with a call's text. The session ends the call in a message on it.
async fn open_relay(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let admit = match caller(&shared, RELAY, &uri, &headers) {
        Ok((_, admit)) => admit,
        Err(refused) => return refused,
    };
    let dialect = ConversationRelay::new(admit);
    let limits = Limits::of_calls(&shared.settings()).promised();
    open_admitted(shared, upgrade, dialect, limits, |_| async {})
}

/// Checks the signature of a socket at `path`. Returns the account, and the check that admits its
/// calls.
#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
fn caller(
    shared: &Arc<Shared>,
    path: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(Twilio, Admit), Response> {
    let twilio = shared.settings().twilio.clone().ok_or_else(not_found)?;
    let path = uri.path_and_query().map_or(path, |path| path.as_str());
    if !is_signed(&twilio, &twilio.socket_at(path), &[], headers) {
        return Err(denied(shared));
    }
    let (tickets, account) = (shared.tickets.clone(), twilio.account_sid.clone());
    let shared = shared.clone();
    let admit = move |start: &Start| -> BoxFuture<'static, Admission> {
        let placed = shared.placed.on_line(&start.call);
        let is_ours = start.account == account;
        let redeemed = tickets.redeem(&start.ticket, &start.call);
        let claimed = start.claimed.clone();
        Box::pin(async move {
            let mut values = redeemed.await.filter(|_| is_ours)?;
            // The request was signed, and the ticket proves that our own answer led to it.
            values.extend(claimed.vouched(Origin::Signalled));
            Some(facts(values, placed))
        })
    };
    Ok((twilio, Box::new(admit)))
}

fn is_signed(
    twilio: &Twilio,
    url: &Url,
    parameters: &[(String, String)],
    headers: &HeaderMap,
) -> bool {
    let shown = headers.get(signature::HEADER);
    shown
        .and_then(|shown| shown.to_str().ok())
        .is_some_and(|shown| signature::is_valid(&twilio.auth_token, url, parameters, shown))
}

fn denied(shared: &Shared) -> Response {
    tracing::info!("refused a request without Twilio's signature; is twilio.public_url right?");
    shared.metrics.refused(Refusal::Denied);
    (StatusCode::FORBIDDEN, "the request is not signed by Twilio").into_response()
}

fn not_found() -> Response {
    (
        StatusCode::NOT_FOUND,
        "no Twilio account is configured; see [twilio] in the configuration",
    )
        .into_response()
}

/// Turns a call away. Twilio plays what comes with status 200 only.
fn busy(shared: &Shared, headers: &HeaderMap, form: &BTreeMap<String, String>) -> Response {
    let told = say(shared, form, |phrases| phrases.lines_busy);
    let words = twiml(&format!("{told}<Hangup/>"));
    match headers.contains_key(RETRIES) {
        true => (StatusCode::SERVICE_UNAVAILABLE, words).into_response(),
        false => words,
    }
}

fn twiml(verbs: &str) -> Response {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>{verbs}</Response>");
    ([(CONTENT_TYPE, "text/xml")], body).into_response()
}
