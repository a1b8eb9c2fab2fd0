//! A simulated model server and a simulated tool: real HTTP servers on one port of this machine, with delays that are
//! stated. Benches run the product against them over real sockets, and users their own configuration.
//!
//! | route | answers |
//! |---|---|
//! | `POST /v1/chat/completions` | as a model does, streamed: see `model` |
//! | `GET /v1/models` | the name of the only model |
//! | `GET /forecast?city=...` | made-up weather, after [`Delays::tool`] |

mod model;

use super::BenchError;
use crate::tools::declared::{self, Declared};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures_util::stream;
use model::{Asked, Piece};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

pub(super) use model::{ANSWER, FORECAST_TOLD};

/// The name of the model.
pub const MODEL: &str = "simulated";

/// The name of the tool.
pub(super) const FORECAST: &str = "get_forecast";

/// A question that the model calls the tool for, and the city in it.
pub(super) const WORDS: &str = "what is the weather in boulder";
pub(super) const CITY: &str = "boulder";

/// The declaration of the tool, and the address in it that stands for the server's.
const DECLARATION: (&str, &str) = (
    "forecast.toml",
    include_str!("../../../tools/simulated/forecast.toml"),
);
const PLACEHOLDER: &str = "127.0.0.1:0";

/// How long the model and the tool take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// Until the words before a call; without it the model says nothing before it.
    pub first: Option<Duration>,
    /// Until a call is complete.
    pub call: Duration,
    /// How long before that its arguments are written.
    pub written: Duration,
    /// Until an answer.
    pub answer: Duration,
    /// Between two tokens. With it the model writes token by token, calls too, the first after `answer`; `first`, `call`
    /// and `written` do not matter.
    pub token: Option<Duration>,
    /// The tool.
    pub tool: Duration,
}

impl Default for Delays {
    /// The mid values of the two-tracks article, as in `undertone bench turn`, and a tool of 1.5 s.
    fn default() -> Self {
        Self {
            first: Some(Duration::from_millis(570)),
            call: Duration::from_millis(900),
            written: Duration::from_millis(150),
            answer: Duration::from_millis(300),
            token: None,
            tool: Duration::from_millis(1_500),
        }
    }
}

/// The running servers. They stop when this is dropped.
#[derive(Debug)]
pub struct Simulation {
    address: SocketAddr,
    base_url: Url,
    site: Arc<Site>,
    _serving: AbortOnDropHandle<std::io::Result<()>>,
}

#[derive(Debug)]
struct Site {
    delays: Delays,
    /// Requests that the tool has had.
    runs: AtomicU64,
    log: Mutex<VecDeque<Logged>>,
}

/// Something that the servers did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Logged {
    /// The model has written a whole call for this city.
    Called { city: String, at: Instant },
    /// The tool has run for this city.
    Ran {
        city: String,
        began: Instant,
        ended: Instant,
    },
}

/// The most entries of the log: more than one turn needs.
const LOG: usize = 256;

impl Site {
    fn log(&self, logged: Logged) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.truncate(LOG - 1);
        log.push_front(logged);
    }
}

impl Simulation {
    /// Serves at `address` on the current runtime; port 0 takes any free port.
    ///
    /// # Errors
    /// [`BenchError::Sockets`] if the address cannot be used.
    pub async fn open(address: SocketAddr, delays: Delays) -> Result<Self, BenchError> {
        let cannot = |reason| BenchError::sockets(format!("cannot listen on {address}"), reason);
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let base_url = format!("http://{address}/v1");
        let base_url = Url::parse(&base_url).map_err(|e| BenchError::sockets(base_url, e))?;
        let site = Arc::new(Site {
            delays,
            runs: AtomicU64::new(0),
            log: Mutex::default(),
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/models", get(models))
            .route("/forecast", get(forecast))
            .with_state(site.clone());
        // Pieces leave at once, as from real servers: with Nagle's algorithm they would wait for an acknowledgement.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot send small packets at once");
            }
        });
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            address,
            base_url,
            site,
            _serving: AbortOnDropHandle::new(serving),
        })
    }

    /// The base address of the model, as a configuration has it.
    pub fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// The declaration of the tool: the name of its file, and its text with the address of this server.
    pub fn declaration(&self) -> (&'static str, String) {
        let (name, text) = DECLARATION;
        (name, text.replace(PLACEHOLDER, &self.address.to_string()))
    }

    /// The tool, ready to be registered.
    ///
    /// # Errors
    /// [`BenchError::Sockets`] if the declaration is wrong.
    pub(super) fn tool(&self) -> Result<Declared, BenchError> {
        let (name, text) = self.declaration();
        declared::parse(name.as_ref(), &text).map_err(|reason| BenchError::sockets(name, reason))
    }

    /// The events since the last call, the latest first.
    pub(super) fn take_log(&self) -> Vec<Logged> {
        let mut log = self.site.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.drain(..).collect()
    }

    /// How often the tool was run.
    pub fn runs(&self) -> u64 {
        self.site.runs.load(Ordering::Relaxed)
    }
}

async fn models() -> Json<Value> {
    let model = json!({ "id": MODEL, "object": "model", "owned_by": "undertone bench" });
    Json(json!({ "object": "list", "data": [model] }))
}

#[derive(Debug, Deserialize)]
struct Place {
    city: String,
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: a simulated tool takes real time"
)]
async fn forecast(State(site): State<Arc<Site>>, Query(place): Query<Place>) -> Json<Value> {
    site.runs.fetch_add(1, Ordering::Relaxed);
    let began = Instant::now();
    sleep(site.delays.tool).await;
    site.log(Logged::Ran {
        city: place.city.clone(),
        began,
        ended: Instant::now(),
    });
    Json(json!({ "city": place.city, "sky": "clear", "degrees": 21 }))
}

async fn complete(State(site): State<Arc<Site>>, Json(asked): Json<Asked>) -> Response {
    if !asked.stream {
        let error =
            json!({ "error": { "message": "this model only streams: set stream to true" } });
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    let pieces = asked.answer(&site.delays);
    let stream = Body::from_stream(streamed(site, pieces));
    ([(CONTENT_TYPE, "text/event-stream")], stream).into_response()
}

/// The pieces as server-sent events, each at its time after now.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: a simulated model takes real time"
)]
fn streamed(
    site: Arc<Site>,
    pieces: Vec<Piece>,
) -> impl stream::Stream<Item = std::io::Result<String>> {
    let began = Instant::now();
    let pieces = pieces.into_iter();
    stream::unfold(Some((pieces, site)), move |left| async move {
        let (mut pieces, site) = left?;
        let Some(Piece { at, chunk, called }) = pieces.next() else {
            return Some((Ok("data: [DONE]\n\n".to_owned()), None));
        };
        sleep_until(began + at).await;
        if let Some(city) = called {
            let at = Instant::now();
            site.log(Logged::Called { city, at });
        }
        Some((Ok(format!("data: {chunk}\n\n")), Some((pieces, site))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ANYWHERE;
    use crate::tools::{CallContext, SessionTools};
    use serde_json::Map;

    const AT_ONCE: Delays = Delays {
        first: Some(Duration::ZERO),
        call: Duration::ZERO,
        written: Duration::ZERO,
        answer: Duration::ZERO,
        token: None,
        tool: Duration::ZERO,
    };

    #[tokio::test]
    async fn the_declared_tool_reaches_the_server() {
        let simulation = Simulation::open(ANYWHERE, AT_ONCE).await.unwrap();
        let registry = declared::registry(&[simulation.tool().unwrap()]).unwrap();
        let context = CallContext::new(SessionTools::default(), "key");
        let city = Map::from_iter([("city".to_owned(), json!("Rome"))]);
        let found = registry.call(FORECAST, city, &context).await.unwrap();
        assert_eq!(
            (&found["city"], &found["sky"]),
            (&json!("Rome"), &json!("clear"))
        );
        assert_eq!(simulation.runs(), 1);
    }

    #[tokio::test]
    async fn the_model_streams_and_refuses_what_it_cannot_do() {
        let simulation = Simulation::open(ANYWHERE, AT_ONCE).await.unwrap();
        let url = format!("{}/chat/completions", simulation.base_url());
        let ask = |stream: bool| {
            let message = json!({ "role": "user", "content": WORDS });
            let body = json!({ "model": MODEL, "stream": stream, "messages": [message] });
            reqwest::Client::new().post(&url).json(&body).send()
        };
        let answer = ask(true).await.unwrap();
        assert_eq!(answer.headers()[CONTENT_TYPE], "text/event-stream");
        let text = answer.text().await.unwrap();
        assert!(
            text.contains(FORECAST) && text.ends_with("data: [DONE]\n\n"),
            "{text}"
        );
        assert_eq!(ask(false).await.unwrap().status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_it() {
        let first = Simulation::open(ANYWHERE, AT_ONCE).await.unwrap();
        let second = Simulation::open(first.address, AT_ONCE).await.unwrap_err();
        assert!(
            second.to_string().contains(&first.address.to_string()),
            "{second}"
        );
    }
}
