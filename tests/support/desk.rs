//! A hotel's front desk: a language model that books rooms, and the service that takes the bookings, each a server of
//! its own.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The words before the guest's name, which a full stop ends.
const ASKS: &str = "Book a room for ";

/// The words of a caller who wants a room for this guest.
pub(crate) fn request_for(guest: &str) -> String {
    format!("{ASKS}{guest}.")
}

/// The agent's words once a room is booked.
pub(crate) const BOOKED: &str = "It is booked.";
/// Its words if it was booked before.
pub(crate) const BOOKED_BEFORE: &str = "It was booked before.";
/// Its words if nobody knows whether it was.
pub(crate) const UNKNOWN: &str = "I do not know whether it was booked.";
/// Its words if it was not.
pub(crate) const NOT_BOOKED: &str = "It did not work.";

/// Both servers, which run until this is dropped.
pub(crate) struct Desk {
    inner: Arc<Inner>,
    pub(crate) model: SocketAddr,
    pub(crate) booking: SocketAddr,
    _serving: JoinSet<()>,
}

struct Inner {
    /// How often each guest was booked.
    rooms: Mutex<BTreeMap<String, usize>>,
    /// Bookings that have come in, and those that were answered.
    progress: watch::Sender<(usize, usize)>,
    /// The time that a booking takes.
    takes: Mutex<Duration>,
}

impl Desk {
    pub(crate) async fn open() -> Self {
        let inner = Arc::new(Inner {
            rooms: Mutex::default(),
            progress: watch::Sender::new((0, 0)),
            takes: Mutex::default(),
        });
        let model = Router::new().route("/v1/chat/completions", post(complete));
        let booking = Router::new()
            .route("/book", post(book))
            .with_state(inner.clone());
        let mut serving = JoinSet::new();
        Self {
            inner,
            model: serve(model, &mut serving).await,
            booking: serve(booking, &mut serving).await,
            _serving: serving,
        }
    }

    /// How often a guest was booked.
    pub(crate) fn rooms_of(&self, guest: &str) -> usize {
        let rooms = self.inner.rooms.lock().expect("whole");
        rooms.get(guest).copied().unwrap_or_default()
    }

    /// All guests that were booked.
    pub(crate) fn guests(&self) -> Vec<String> {
        let rooms = self.inner.rooms.lock().expect("whole");
        rooms.keys().cloned().collect()
    }

    /// Sets the time that a booking takes from now on.
    pub(crate) fn takes(&self, time: Duration) {
        *self.inner.takes.lock().expect("whole") = time;
    }

    /// Bookings that have come in, and those that were answered.
    pub(crate) fn progress(&self) -> watch::Receiver<(usize, usize)> {
        self.inner.progress.subscribe()
    }

    /// The declaration of the tool, whose service is at `booking`, with further lines.
    pub(crate) fn declaration(booking: impl Display, more: &str) -> String {
        format!(
            r#"
name = "book_room"
kind = "http"
description = "Books a room."
effect = "reversible"
{more}
[parameters.properties.who]
type = "string"
[parameters]
required = ["who"]
[http]
method = "POST"
allow_private = true
url = "http://{booking}/book"
json = {{ who = "{{{{ who }}}}" }}
"#
        )
    }
}

async fn serve(router: Router, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tasks.spawn(async move { axum::serve(listener, router).await.expect("a server") });
    address
}

/// Books whoever the user has named last, and says how that went.
async fn complete(body: String) -> Response {
    let request: Value = serde_json::from_str(&body).expect("JSON");
    let messages = request["messages"].as_array().expect("messages");
    let texts = messages
        .iter()
        .map(|message| message["content"].to_string());
    let prompt = texts.collect::<Vec<_>>().join("\n");
    let asked = prompt.rfind(ASKS);
    let result = prompt.rfind("<tool_result").filter(|at| Some(*at) > asked);
    let result = result
        .map(|at| &prompt[at..])
        .filter(|result| !result.contains("broke off"));
    let guest = asked.and_then(|at| prompt[at + ASKS.len()..].split_once('.'));
    let pieces: Vec<String> = match (result, guest) {
        (Some(result), _) => vec!["<speech>".into(), spoken(result).into(), "</speech>".into()],
        (None, Some((guest, _))) => vec![
            "<speech>I book".into(),
            " it.</speech>".into(),
            "<tool>book_room(who=\"".into(),
            guest.into(),
            "\")".into(),
            "</tool>".into(),
        ],
        (None, None) => vec!["<speech>Hello.</speech>".into()],
    };
    let chunk = |delta: Value, reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let mut stream: Vec<String> = pieces
        .iter()
        .map(|piece| chunk(json!({"content": piece}), None))
        .collect();
    stream.push(chunk(json!({}), Some("stop")));
    stream.push("data: [DONE]\n\n".into());
    let stream = futures_util::stream::iter(stream.into_iter().map(Ok::<_, Infallible>));
    let head = [("content-type", "text/event-stream")];
    (head, Body::from_stream(stream)).into_response()
}

fn spoken(result: &str) -> &'static str {
    match result {
        _ if result.contains("already_done") => BOOKED_BEFORE,
        _ if result.contains("not known") => UNKNOWN,
        _ if result.contains("room\\\":") => BOOKED,
        _ => NOT_BOOKED,
    }
}

async fn book(State(desk): State<Arc<Inner>>, body: String) -> String {
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let guest = body["who"].as_str().expect("a guest").to_owned();
    *desk.rooms.lock().expect("whole").entry(guest).or_default() += 1;
    desk.progress.send_modify(|(came, _)| *came += 1);
    let takes = *desk.takes.lock().expect("whole");
    if !takes.is_zero() {
        tokio::time::sleep(takes).await;
    }
    desk.progress.send_modify(|(_, answered)| *answered += 1);
    r#"{"room": 7}"#.into()
}
