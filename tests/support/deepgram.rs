//! A simulator of Deepgram's streaming recogniser, `/v1/listen`, and of Flux beside it. `foreign.rs` proves it with
//! Deepgram's SDK for Python.

use super::speech_services::{HEARD, KEY};
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use undertone::asr::AsrService;
use undertone::asr::deepgram::{Deepgram, Settings};
use undertone::audio::from_pcm16le;

/// Hz, of the audio that it takes.
pub(super) const RATE: usize = 16_000;

/// How long each word of the transcript lasts, in samples. Loud audio is speech.
pub(super) const WORD: usize = 110 * RATE / 1_000;

/// Silence after which the transcript begins anew, in samples.
const PAUSE: usize = 300 * RATE / 1_000;

/// Audio between two interim results, and the most that has no final one, in samples.
const INTERIM: usize = 200 * RATE / 1_000;
const LONGEST: usize = 3 * RATE;

/// Audio that is not worth an answer to `Finalize`, in samples.
const LITTLE: usize = 50 * RATE / 1_000;

/// Messages that may wait. A client that needs more is gone.
const MESSAGES: usize = 1_024;

/// How long a client may send neither audio nor `KeepAlive`.
const IDLE: Duration = Duration::from_secs(10);

/// How it treats connections, those that are open included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Well,
    /// All results come this much later.
    Late(Duration),
    /// Takes everything and says nothing.
    Silent,
    /// Answers an upgrade with this status.
    Refuses(u16),
    /// Closes the connection with this code and reason instead of the next result.
    Closes(u16, &'static str),
    /// The same, once.
    ClosesOnce(u16, &'static str),
    /// Gives interim results alone: no turn of Flux ends.
    NeverFinal,
    /// Is silent from a turn's probable end on.
    SilentFromEager,
    /// Says that something went wrong instead of the next result.
    Errs,
}

/// Everything received so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The queries of connections.
    pub(crate) queries: Vec<Value>,
    /// The types of the clients' messages.
    pub(crate) messages: Vec<String>,
    /// Errors of clients, which Deepgram would refuse.
    pub(crate) mistakes: Vec<String>,
    /// Connections that are open.
    pub(crate) open: usize,
}

/// A running service.
pub(crate) struct DeepgramService {
    pub(crate) address: SocketAddr,
    known: Arc<Known>,
    seen: watch::Receiver<Seen>,
}

pub(super) struct Known {
    pub(super) manner: watch::Sender<Manner>,
    pub(super) seen: watch::Sender<Seen>,
}

impl Known {
    pub(super) fn mistake(&self, what: &str) {
        let what = what.to_owned();
        self.seen.send_modify(|seen| seen.mistakes.push(what));
    }
}

impl DeepgramService {
    pub(crate) fn start() -> Self {
        let (seen, watched) = watch::channel(Seen::default());
        let known = Arc::new(Known {
            manner: watch::Sender::new(Manner::Well),
            seen,
        });
        let router = Router::new()
            .route("/v1/listen", get(listen))
            .route("/v2/listen", get(super::flux::listen))
            .with_state(known.clone());
        Self {
            address: super::serve_on_a_thread(router),
            known,
            seen: watched,
        }
    }

    /// From now on it treats connections like this.
    pub(crate) fn be(&self, manner: Manner) {
        self.known.manner.send_replace(manner);
    }

    /// Everything received so far.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until this has come in.
    pub(crate) async fn until(&self, is_there: impl FnMut(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.clone();
        let there = timeout(super::PATIENCE, seen.wait_for(is_there)).await;
        there.expect("in time").expect("a service").clone()
    }
}

/// The recogniser at this address.
pub(crate) fn recogniser(address: SocketAddr, key: &str) -> Arc<dyn AsrService> {
    let settings = Settings {
        base_url: format!("http://{address}/v1").parse().expect("a URL"),
        model: "nova-3".into(),
        api_key: Some(key.to_owned().into()),
    };
    Arc::new(Deepgram::new(settings).expect("a client"))
}

pub(super) fn refusal(status: u16, code: &str, message: &str) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    let body = json!({"err_code": code, "err_msg": message, "request_id": "r"});
    (status, Json(body)).into_response()
}

/// The refusal of a connection with this key and in the manner of the moment.
pub(super) fn refused(known: &Known, headers: &HeaderMap) -> Option<Response> {
    let key = headers
        .get("authorization")
        .and_then(|key| key.to_str().ok());
    if key.and_then(|key| key.strip_prefix("Token ")) != Some(KEY) {
        return Some(refusal(401, "INVALID_AUTH", "Invalid credentials."));
    }
    match *known.manner.borrow() {
        Manner::Refuses(status) => Some(refusal(status, "canary", "canary")),
        _ => None,
    }
}

async fn listen(
    State(known): State<Arc<Known>>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    known
        .seen
        .send_modify(|seen| seen.queries.push(shown(&query)));
    if let Some(refusal) = refused(&known, &headers) {
        return refusal;
    }
    let query: BTreeMap<_, _> = query.into_iter().collect();
    let is = |name: &str, value: &str| query.get(name).is_none_or(|given| given == value);
    let right = is("encoding", "linear16")
        && query.get("sample_rate").is_some_and(|rate| rate == "16000")
        && is("channels", "1")
        && query.contains_key("model");
    if !right {
        return refusal(400, "Bad Request", "Bad Request: unsupported audio format.");
    }
    let interim = query.get("interim_results").is_some_and(|on| on == "true");
    upgrade.on_upgrade(async move |socket| {
        known.seen.send_modify(|seen| seen.open += 1);
        Hearing::new(&known, interim).serve(socket).await;
        known.seen.send_modify(|seen| seen.open -= 1);
    })
}

/// A query, in which what may be given several times is a list.
pub(super) fn shown(query: &[(String, String)]) -> Value {
    let mut shown = serde_json::Map::new();
    for (name, value) in query {
        match (name.as_str(), shown.get_mut(name)) {
            ("keyterm", Some(Value::Array(terms))) => terms.push(json!(value)),
            ("keyterm", _) => drop(shown.insert(name.clone(), json!([value]))),
            _ => drop(shown.insert(name.clone(), json!(value))),
        }
    }
    shown.into()
}

/// A message, and when it is sent.
pub(super) type Due = (Instant, Message);

/// One connection, which begins with `first`. `take` returns what there is to say to a message, and whether the
/// connection goes on.
pub(super) async fn converse(
    known: &Known,
    socket: WebSocket,
    first: Vec<Message>,
    mut take: impl FnMut(&Message) -> (Vec<Message>, bool),
) {
    let (sink, mut stream) = socket.split();
    let (outgoing, due) = mpsc::channel(MESSAGES);
    let sending = tokio::spawn(send(sink, due));
    let (mut results, mut goes_on) = (first, true);
    while answer(known, results, &outgoing).is_some() && goes_on {
        let Ok(message) = timeout(IDLE, stream.next()).await else {
            let reason = "Deepgram did not receive audio data or a text message within the timeout window. \
                See https://dpgr.am/net0001";
            known.mistake("was idle");
            drop(outgoing.try_send((super::now(), closed(1011, reason))));
            break;
        };
        let Some(Ok(message)) = message else { break };
        (results, goes_on) = take(&message);
    }
    drop(outgoing);
    drop(sending.await);
    // Closing a socket with unread data would lose the close frame.
    let rest = async { while let Some(Ok(_)) = stream.next().await {} };
    drop(timeout(IDLE, rest).await);
}

/// Sends results in the manner of the moment. `None` if the connection is over.
fn answer(known: &Known, results: Vec<Message>, outgoing: &mpsc::Sender<Due>) -> Option<()> {
    let manner = *known.manner.borrow();
    let now = super::now();
    for result in results {
        let due = match manner {
            Manner::Late(by) => now + by,
            _ => now,
        };
        let (result, goes_on) = match manner {
            Manner::Silent => continue,
            Manner::Closes(code, reason) => (closed(code, reason), false),
            Manner::ClosesOnce(code, reason) => {
                known.manner.send_replace(Manner::Well);
                (closed(code, reason), false)
            }
            Manner::Errs => {
                let error = json!({
                    "type": "Error", "variant": "canary", "code": "canary", "description": "canary",
                    "sequence_id": 1,
                });
                (text(&error), true)
            }
            _ => (result, true),
        };
        outgoing.try_send((due, result)).ok()?;
        if !goes_on {
            return None;
        }
    }
    Some(())
}

/// One connection.
struct Hearing<'a> {
    known: &'a Known,
    interim: bool,
    /// Samples so far.
    received: usize,
    /// Where the results so far end that will not change.
    final_to: usize,
    interim_to: usize,
    /// Where somebody began to speak, and spoke last.
    speech: Option<(usize, usize)>,
    /// Words after the final ones, with their beginning.
    words: Vec<(&'static str, usize)>,
    /// Words since somebody began to speak.
    spoken: usize,
}

impl<'a> Hearing<'a> {
    fn new(known: &'a Known, interim: bool) -> Self {
        Self {
            known,
            interim,
            received: 0,
            final_to: 0,
            interim_to: 0,
            speech: None,
            words: Vec::new(),
            spoken: 0,
        }
    }

    async fn serve(mut self, socket: WebSocket) {
        let known = self.known;
        converse(known, socket, Vec::new(), |message| self.take(message)).await;
    }

    fn mistake(&self, what: &str) {
        self.known.mistake(what);
    }

    /// Takes in a message. Returns what there is to say, and whether the connection goes on.
    fn take(&mut self, message: &Message) -> (Vec<Message>, bool) {
        let typed = match message {
            Message::Binary(audio) if audio.is_empty() => {
                self.mistake("an empty message");
                return (vec![closed(1000, "")], false);
            }
            Message::Binary(audio) => match from_pcm16le(audio) {
                Ok(samples) => return (self.hear(&samples), true),
                Err(_) => {
                    self.mistake("half a sample");
                    return (vec![closed(1008, "DATA-0000")], false);
                }
            },
            Message::Text(text) => serde_json::from_str::<Value>(text).unwrap_or_default(),
            Message::Close(_) => return (Vec::new(), false),
            Message::Ping(_) | Message::Pong(_) => return (Vec::new(), true),
        };
        let kind = typed["type"].as_str().unwrap_or_default().to_owned();
        self.known
            .seen
            .send_modify(|seen| seen.messages.push(kind.clone()));
        match kind.as_str() {
            "KeepAlive" => (Vec::new(), true),
            "Finalize" => {
                let is_little = self.received - self.final_to < LITTLE;
                let result = (!is_little).then(|| self.settle(true));
                (result.into_iter().collect(), true)
            }
            "CloseStream" => {
                let metadata = json!({
                    "type": "Metadata", "transaction_key": "deprecated", "request_id": "r", "sha256": "0",
                    "created": "2026-11-01T00:00:00Z", "channels": 1, "duration": seconds(self.received),
                });
                let last = [self.settle(false), text(&metadata), closed(1000, "")];
                (last.into(), false)
            }
            _ => {
                self.mistake(&format!("a message of the type {kind}"));
                let description = "Could not deserialize last text message";
                let error = json!({
                    "type": "Error", "variant": "SchemaError", "description": description,
                });
                (vec![text(&error)], true)
            }
        }
    }

    fn hear(&mut self, samples: &[i16]) -> Vec<Message> {
        let mut results = Vec::new();
        let all: Vec<&'static str> = HEARD.split_whitespace().collect();
        for sample in samples {
            let at = self.received;
            self.received += 1;
            if sample.unsigned_abs() > 3_000 {
                let pause = self.speech.is_none_or(|(_, last)| at - last > PAUSE);
                if pause {
                    self.speech = Some((at, at));
                    self.spoken = 0;
                }
                let (begun, last) = self.speech.as_mut().expect("speech");
                *last = at;
                let due = *begun + self.spoken * WORD;
                if at >= due + WORD - 1
                    && let Some(word) = all.get(self.spoken)
                {
                    self.words.push((word, due));
                    self.spoken += 1;
                }
            }
            if self.received - self.final_to >= LONGEST {
                results.push(self.settle(false));
            } else if self.interim && self.received - self.interim_to >= INTERIM {
                self.interim_to = self.received;
                results.push(self.result(false, false));
            }
        }
        results
    }

    /// The final result of everything so far.
    fn settle(&mut self, from_finalize: bool) -> Message {
        if *self.known.manner.borrow() == Manner::NeverFinal {
            return self.result(false, false);
        }
        let result = self.result(true, from_finalize);
        self.final_to = self.received;
        self.interim_to = self.received;
        self.words.clear();
        result
    }

    fn result(&self, is_final: bool, from_finalize: bool) -> Message {
        let words = self.words.iter().map(|(word, begun)| {
            let plain = word.trim_matches(|c: char| !c.is_alphanumeric());
            json!({
                "word": plain.to_lowercase(), "punctuated_word": word, "confidence": 0.99,
                "start": seconds(*begun), "end": seconds(begun + WORD),
            })
        });
        let transcript: Vec<&str> = self.words.iter().map(|(word, _)| *word).collect();
        text(&json!({
            "type": "Results", "channel_index": [0, 1], "start": seconds(self.final_to),
            "duration": seconds(self.received - self.final_to), "is_final": is_final,
            "speech_final": from_finalize, "from_finalize": from_finalize,
            "channel": {"alternatives": [{
                "transcript": transcript.join(" "), "confidence": 0.99,
                "words": words.collect::<Vec<_>>(),
            }]},
            "metadata": {
                "request_id": "r", "model_uuid": "m",
                "model_info": {"name": "nova-3", "version": "1", "arch": "nova-3"},
            },
        }))
    }
}

pub(super) fn seconds(samples: usize) -> f64 {
    samples as f64 / RATE as f64
}

pub(super) fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

pub(super) fn closed(code: u16, reason: &'static str) -> Message {
    let reason = reason.into();
    Message::Close(Some(CloseFrame { code, reason }))
}

/// Sends each message when it is due.
async fn send(mut sink: SplitSink<WebSocket, Message>, mut due: mpsc::Receiver<Due>) {
    while let Some((at, message)) = due.recv().await {
        sleep_until(at).await;
        if sink.send(message).await.is_err() {
            return;
        }
    }
}
