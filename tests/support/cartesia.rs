//! A simulator of Cartesia's voices, `/tts/websocket`. `foreign.rs` proves it with Cartesia's SDK for Python.

use super::speech_services::{KEY, LEVEL, Manner, RATE, word_ms};
use axum::Router;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use undertone::audio::{to_i16, to_pcm16le};
use undertone::tts::TtsService;
use undertone::tts::cartesia::{Cartesia, Settings};

/// The voice's id.
pub(crate) const VOICE: &str = "a0e99841-438c-4a64-b679-ae501e7d6091";

/// Everything received so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Requests for speech.
    pub(crate) speeches: Vec<Value>,
    /// The transcripts that were cancelled while they were being said.
    pub(crate) cancelled: Vec<String>,
    /// Connections so far.
    pub(crate) connections: usize,
    /// Those that are open.
    pub(crate) open: usize,
    /// Errors of clients, which Cartesia would refuse.
    pub(crate) mistakes: Vec<String>,
}

/// A running service.
pub(crate) struct CartesiaService {
    pub(crate) address: SocketAddr,
    known: Arc<Known>,
    seen: watch::Receiver<Seen>,
}

struct Known {
    manner: watch::Sender<Manner>,
    seen: watch::Sender<Seen>,
}

impl CartesiaService {
    pub(crate) fn start() -> Self {
        let (seen, watched) = watch::channel(Seen::default());
        let known = Arc::new(Known {
            manner: watch::Sender::new(Manner::Well),
            seen,
        });
        let router = Router::new()
            .route("/tts/websocket", get(open))
            .with_state(known.clone());
        Self {
            address: super::serve_on_a_thread(router),
            known,
            seen: watched,
        }
    }

    /// From now on it treats requests like this.
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

/// The voice at this address.
pub(crate) fn voice(address: SocketAddr, key: &str) -> Arc<dyn TtsService> {
    let settings = Settings {
        base_url: format!("http://{address}").parse().expect("a URL"),
        model: "sonic-3".into(),
        voice: VOICE.into(),
        api_key: Some(key.to_owned().into()),
    };
    Arc::new(Cartesia::new(settings).expect("a client"))
}

async fn open(
    State(known): State<Arc<Known>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if header("authorization").and_then(|key| key.strip_prefix("Bearer ")) != Some(KEY) {
        return (StatusCode::UNAUTHORIZED, "Unauthorized").into_response();
    }
    if header("cartesia-version").is_none() {
        return (StatusCode::BAD_REQUEST, "Cartesia-Version is required").into_response();
    }
    if let Manner::Refuses(status) = *known.manner.borrow() {
        let status = StatusCode::from_u16(status).expect("a status");
        return (status, "canary").into_response();
    }
    upgrade.on_upgrade(async move |socket| serve(known, socket).await)
}

async fn serve(known: Arc<Known>, mut socket: WebSocket) {
    known.seen.send_modify(|seen| {
        seen.connections += 1;
        seen.open += 1;
    });
    let (outgoing, mut said) = mpsc::channel::<Message>(64);
    let mut contexts: BTreeMap<String, (JoinHandle<()>, String)> = BTreeMap::new();
    loop {
        let message = tokio::select! {
            Some(message) = said.recv() => {
                if socket.send(message).await.is_err() {
                    break;
                }
                continue;
            }
            message = socket.next() => message,
        };
        let Some(Ok(Message::Text(text))) = message else {
            if matches!(message, Some(Ok(Message::Ping(_) | Message::Pong(_)))) {
                continue;
            }
            break;
        };
        let request: Value = serde_json::from_str(&text).unwrap_or_default();
        let id = request["context_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if request["cancel"] == true {
            let running = contexts.remove(&id).filter(|(task, _)| !task.is_finished());
            if let Some((task, transcript)) = running {
                task.abort();
                known
                    .seen
                    .send_modify(|seen| seen.cancelled.push(transcript));
            }
            continue;
        }
        known
            .seen
            .send_modify(|seen| seen.speeches.push(request.clone()));
        if let Some(mistake) = mistake(&request) {
            known
                .seen
                .send_modify(|seen| seen.mistakes.push(mistake.clone()));
            drop(outgoing.send(error(&id, 400, &mistake)).await);
            continue;
        }
        let manner = *known.manner.borrow();
        let transcript = request["transcript"].as_str().expect("a text").to_owned();
        let speaking = tokio::spawn(speak(request, manner, outgoing.clone()));
        contexts.insert(id, (speaking, transcript));
    }
    contexts.values().for_each(|(speaking, _)| speaking.abort());
    known.seen.send_modify(|seen| seen.open -= 1);
}

/// The first fault of a request.
fn mistake(request: &Value) -> Option<String> {
    let known = [
        "model_id",
        "transcript",
        "voice",
        "output_format",
        "context_id",
        "continue",
        "add_timestamps",
        "language",
        "max_buffer_delay_ms",
    ];
    let Some(fields) = request.as_object() else {
        return Some("no JSON".into());
    };
    if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Some(format!("unknown field {unknown}"));
    }
    let format = json!({"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE});
    let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let id = request["context_id"].as_str().unwrap_or_default();
    let checks = [
        ("model_id", request["model_id"].is_string()),
        (
            "voice",
            request["voice"] == json!({"mode": "id", "id": VOICE}),
        ),
        ("output_format", request["output_format"] == format),
        ("context_id", !id.is_empty() && id.chars().all(is_id)),
        (
            "transcript",
            request["transcript"]
                .as_str()
                .is_some_and(|text| !text.trim().is_empty()),
        ),
    ];
    let wrong = checks.iter().find(|(_, is_right)| !is_right);
    wrong.map(|(field, _)| format!("invalid {field}"))
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

fn error(id: &str, status: u16, message: &str) -> Message {
    text(&json!({
        "type": "error", "context_id": id, "status_code": status, "done": true, "title": "Bad Request",
        "message": message, "error_code": "bad_request", "request_id": "r",
    }))
}

/// Says a context's transcript, word by word.
async fn speak(request: Value, manner: Manner, said: mpsc::Sender<Message>) {
    let id = request["context_id"].as_str().expect("an id");
    match manner {
        Manner::Late(by) => tokio::time::sleep(by).await,
        Manner::Silent => std::future::pending().await,
        Manner::Refuses(status) => {
            drop(said.send(error(id, status, "canary")).await);
            return;
        }
        Manner::Well | Manner::Breaks(_) | Manner::Stalls(_) => {}
    }
    let transcript = request["transcript"].as_str().expect("a text");
    let mut begins = 0.0;
    for word in transcript.split_whitespace().take(manner.words(transcript)) {
        let seconds = word_ms(word) as f64 / 1_000.0;
        let audio = vec![LEVEL; word_ms(word) * RATE / 1_000];
        let chunk = json!({
            "type": "chunk", "context_id": id, "status_code": 206, "done": false, "step_time": 1.0,
            "data": BASE64_STANDARD.encode(to_pcm16le(&to_i16(&audio))),
        });
        let times = json!({"words": [word], "start": [begins], "end": [begins + seconds]});
        let timestamps = json!({
            "type": "timestamps", "context_id": id, "status_code": 206, "done": false,
            "word_timestamps": times,
        });
        begins += seconds;
        let mut messages = vec![chunk];
        messages.extend((request["add_timestamps"] == true).then_some(timestamps));
        for message in messages {
            if said.send(text(&message)).await.is_err() {
                return;
            }
        }
    }
    let end = match manner {
        Manner::Breaks(_) => {
            let reason = "canary".into();
            Message::Close(Some(CloseFrame { code: 1011, reason }))
        }
        Manner::Stalls(_) => std::future::pending().await,
        _ => text(&json!({"type": "done", "context_id": id, "status_code": 200, "done": true})),
    };
    drop(said.send(end).await);
}
