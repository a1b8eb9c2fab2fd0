//! A simulator of ElevenLabs' voices, `/v1/text-to-speech/{voice}/stream/with-timestamps`. `foreign.rs` checks it
//! against ElevenLabs' SDK for Python.

use super::speech_services::{KEY, LEVEL, Manner, RATE, word_ms};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use undertone::audio::{to_i16, to_pcm16le};
use undertone::tts::TtsService;
use undertone::tts::elevenlabs::{ElevenLabs, Settings};

/// The voice's id.
pub(crate) const VOICE: &str = "JBFqnCBsd6RMkjVDRZzb";

/// The fields of requests that are simulated.
const KNOWN: [&str; 3] = ["text", "model_id", "language_code"];

/// A running service.
pub(crate) struct ElevenLabsService {
    pub(crate) address: SocketAddr,
    known: Shared,
}

struct Known {
    manner: Manner,
    /// The bodies of requests.
    speeches: Vec<Value>,
}

type Shared = Arc<Mutex<Known>>;

impl ElevenLabsService {
    pub(crate) fn start() -> Self {
        let known = Arc::new(Mutex::new(Known {
            manner: Manner::Well,
            speeches: Vec::new(),
        }));
        let path = "/v1/text-to-speech/{voice}/stream/with-timestamps";
        let router = Router::new()
            .route(path, post(speech))
            .with_state(known.clone());
        let address = super::serve_on_a_thread(router);
        Self { address, known }
    }

    /// Changes how it treats requests from now on.
    pub(crate) fn be(&self, manner: Manner) {
        self.known.lock().expect("the state").manner = manner;
    }

    /// The bodies of requests so far.
    pub(crate) fn speeches(&self) -> Vec<Value> {
        self.known.lock().expect("the state").speeches.clone()
    }
}

/// The voice at this address.
pub(crate) fn voice(address: SocketAddr, key: &str) -> Arc<dyn TtsService> {
    let settings = Settings {
        base_url: format!("http://{address}/v1").parse().expect("a URL"),
        model: "eleven_flash_v2_5".into(),
        voice: VOICE.into(),
        api_key: Some(key.to_owned().into()),
    };
    Arc::new(ElevenLabs::new(settings).expect("a client"))
}

fn refusal(status: u16, kind: &str) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    let detail = json!({"status": kind, "message": kind});
    (status, Json(json!({ "detail": detail }))).into_response()
}

async fn speech(
    State(known): State<Shared>,
    Path(voice): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return refusal(422, "not JSON");
    };
    let manner = {
        let mut known = known.lock().expect("the state");
        known.speeches.push(body.clone());
        known.manner
    };
    let key = headers.get("xi-api-key").and_then(|key| key.to_str().ok());
    if key != Some(KEY) {
        return refusal(401, "invalid_api_key");
    }
    if voice != VOICE {
        return refusal(404, "voice_not_found");
    }
    if query.get("output_format").map(String::as_str) != Some("pcm_24000") {
        return refusal(400, "output_format_not_simulated");
    }
    let fields = body
        .as_object()
        .map(|body| body.keys().all(|key| KNOWN.contains(&key.as_str())));
    let (Some(text), Some(_), Some(true)) =
        (body["text"].as_str(), body["model_id"].as_str(), fields)
    else {
        return refusal(422, "validation_error");
    };
    match manner {
        Manner::Late(by) => tokio::time::sleep(by).await,
        Manner::Silent => std::future::pending().await,
        Manner::Refuses(status) => return refusal(status, "canary"),
        Manner::Well | Manner::Breaks(_) | Manner::Stalls(_) => {}
    }
    let lines = lines(text, manner.words(text)).concat();
    // Pieces that do not end at the ends of lines.
    let pieces: Vec<_> = lines
        .as_bytes()
        .chunks(10_007)
        .map(<[u8]>::to_vec)
        .collect();
    let end = async move {
        match manner {
            Manner::Breaks(_) => {
                // The audio so far has to be sent first.
                tokio::task::yield_now().await;
                Err("gone")
            }
            Manner::Stalls(_) => std::future::pending().await,
            _ => Ok(Vec::new()),
        }
    };
    let body = stream::iter(pieces).map(Ok).chain(stream::once(end));
    (
        [("content-type", "application/json")],
        Body::from_stream(body),
    )
        .into_response()
}

/// The first `count` words of a text, a line for each.
fn lines(text: &str, count: usize) -> Vec<String> {
    let mut begins = 0.0;
    let all = text.split_whitespace().count();
    let words = text.split_whitespace().take(count);
    let lines = words.enumerate().map(|(nth, word)| {
        let seconds = word_ms(word) as f64 / 1_000.0;
        let mut characters: Vec<String> = word.chars().map(String::from).collect();
        if nth + 1 < all {
            characters.push(" ".into());
        }
        let each = seconds / characters.len() as f64;
        let start: Vec<f64> = (0..characters.len())
            .map(|at| begins + each * at as f64)
            .collect();
        let end: Vec<f64> = start.iter().map(|start| start + each).collect();
        begins += seconds;
        let audio = vec![LEVEL; word_ms(word) * RATE / 1_000];
        let alignment = json!({
            "characters": characters, "character_start_times_seconds": start,
            "character_end_times_seconds": end,
        });
        let line = json!({
            "audio_base64": BASE64_STANDARD.encode(to_pcm16le(&to_i16(&audio))),
            "alignment": alignment, "normalized_alignment": alignment,
        });
        format!("{line}\n")
    });
    lines.collect()
}
