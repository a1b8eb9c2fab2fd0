//! A simulator of a speech service with OpenAI's audio API. `foreign.rs` proves it with the openai package.

use axum::body::{Body, Bytes};
use axum::extract::{Multipart, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use undertone::asr::{self, AsrService};
use undertone::audio::{decode, to_i16, to_pcm16le};
use undertone::tts::{self, TtsService};

/// The key that the service takes.
pub(crate) const KEY: &str = "sk-test";

/// The transcript of everything.
pub(crate) const HEARD: &str = "How are you, from afar?";

/// The level of its voice, of which each word takes 200 ms.
pub(crate) const LEVEL: f32 = 0.75;

/// Hz.
pub(crate) const RATE: usize = 24_000;

/// How long the voices that tell times say a word, ms.
pub(crate) fn word_ms(word: &str) -> usize {
    match word.len() > 10 {
        true => 6_000,
        false => 200,
    }
}

/// How a simulated service treats requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Well,
    /// Answers well, after this delay.
    Late(Duration),
    /// Takes requests and never answers.
    Silent,
    /// Answers with this status.
    Refuses(u16),
    /// Says this many words of a text, then drops the connection.
    Breaks(usize),
    /// Says this many words of a text, then sends nothing more.
    Stalls(usize),
}

impl Manner {
    /// How many words of a text are said.
    pub(crate) fn words(self, text: &str) -> usize {
        let all = text.split_whitespace().count();
        match self {
            Self::Breaks(words) | Self::Stalls(words) => words.min(all),
            _ => all,
        }
    }
}

/// The audio that a simulated service makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Makes {
    /// Bare samples at the usual rate, and nothing else.
    Bare,
    /// Bare samples at this rate, Hz, which the media type names.
    BareAt(usize),
    /// WAV at this rate, Hz, whatever it is asked for.
    Wav(usize),
    /// The same, but refuses to make anything else, in Groq's words.
    OnlyWav(usize),
}

/// A running service.
pub(crate) struct SpeechService {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<Inner>>,
}

struct Inner {
    manner: Manner,
    makes: Makes,
    /// The transcript of everything.
    hears: &'static str,
    /// The fields of transcriptions, with the length of the audio in ms.
    transcriptions: Vec<Value>,
    /// The bodies of requests for speech.
    speeches: Vec<Value>,
}

type Shared = Arc<Mutex<Inner>>;

impl SpeechService {
    pub(crate) fn start() -> Self {
        let state = Arc::new(Mutex::new(Inner {
            manner: Manner::Well,
            makes: Makes::Bare,
            hears: HEARD,
            transcriptions: Vec::new(),
            speeches: Vec::new(),
        }));
        let router = Router::new()
            .route("/v1/audio/transcriptions", post(transcriptions))
            .route("/v1/audio/speech", post(speech))
            .with_state(state.clone());
        let address = super::serve_on_a_thread(router);
        Self { address, state }
    }

    /// From now on it treats requests like this.
    pub(crate) fn be(&self, manner: Manner) {
        self.state.lock().expect("the state").manner = manner;
    }

    /// From now on it makes audio of this kind.
    pub(crate) fn make(&self, makes: Makes) {
        self.state.lock().expect("the state").makes = makes;
    }

    /// From now on this is the transcript of everything.
    pub(crate) fn hear(&self, hears: &'static str) {
        self.state.lock().expect("the state").hears = hears;
    }

    /// The fields of the transcriptions so far, with the length of the audio in ms.
    pub(crate) fn transcriptions(&self) -> Vec<Value> {
        self.state.lock().expect("the state").transcriptions.clone()
    }

    /// The requests for speech so far.
    pub(crate) fn speeches(&self) -> Vec<Value> {
        self.state.lock().expect("the state").speeches.clone()
    }
}

/// The recogniser at this address.
pub(crate) fn recogniser(address: SocketAddr, key: &str) -> Arc<dyn AsrService> {
    let settings = asr::openai::Settings {
        base_url: format!("http://{address}/v1").parse().expect("a URL"),
        model: "whisper-1".into(),
        api_key: Some(key.to_owned().into()),
    };
    Arc::new(asr::openai::OpenAi::new(settings).expect("a client"))
}

/// The voice at this address.
pub(crate) fn voice(address: SocketAddr, key: &str) -> Arc<dyn TtsService> {
    voice_of(address, key, "tts-1")
}

/// The voice of a model at this address.
pub(crate) fn voice_of(address: SocketAddr, key: &str, model: &str) -> Arc<dyn TtsService> {
    let settings = tts::openai::Settings {
        base_url: format!("http://{address}/v1").parse().expect("a URL"),
        model: model.into(),
        voice: "alloy".into(),
        api_key: Some(key.to_owned().into()),
    };
    Arc::new(tts::openai::OpenAi::new(settings).expect("a client"))
}

/// An address that accepts connections and takes what is written, and is dead otherwise.
pub(crate) async fn dead() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0");
    let listener = listener.await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut taken = vec![0; 4_096];
                while socket.read(&mut taken).await.is_ok_and(|read| read > 0) {}
                std::future::pending::<()>().await;
            });
        }
    });
    address
}

fn note(state: &Shared, what: impl FnOnce(&mut Inner)) {
    what(&mut state.lock().expect("the state"));
}

fn refusal(status: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    let error = json!({"message": message, "type": "error", "param": null, "code": null});
    (status, Json(json!({ "error": error }))).into_response()
}

/// Whether the key is right, and what happens before a request is answered.
async fn received(state: &Shared, headers: &HeaderMap) -> Result<Manner, Response> {
    let key = headers
        .get("authorization")
        .and_then(|key| key.to_str().ok());
    if key.and_then(|key| key.strip_prefix("Bearer ")) != Some(KEY) {
        return Err(refusal(401, "Incorrect API key provided."));
    }
    let manner = state.lock().expect("the state").manner;
    match manner {
        Manner::Late(by) => tokio::time::sleep(by).await,
        Manner::Silent => std::future::pending().await,
        Manner::Refuses(status) => return Err(refusal(status, "canary")),
        Manner::Well | Manner::Breaks(_) | Manner::Stalls(_) => {}
    }
    Ok(manner)
}

async fn transcriptions(
    State(state): State<Shared>,
    headers: HeaderMap,
    mut form: Multipart,
) -> Response {
    let mut fields = serde_json::Map::new();
    while let Ok(Some(field)) = form.next_field().await {
        let name = field.name().unwrap_or_default().to_owned();
        let is_file = field.file_name().is_some();
        let bytes = field.bytes().await.expect("a field");
        let value = match is_file {
            false => String::from_utf8(bytes.to_vec()).expect("text").into(),
            true => {
                let file = std::io::Cursor::new(bytes);
                let audio = decode(Box::new(file), Duration::from_secs(60), || true);
                match audio {
                    Ok(audio) => (audio.len() / 16).into(),
                    Err(_) => return refusal(400, "Invalid file format."),
                }
            }
        };
        fields.insert(name, value);
    }
    if !fields.contains_key("file") || !fields.contains_key("model") {
        return refusal(400, "file and model are required");
    }
    note(&state, |known| known.transcriptions.push(fields.into()));
    match received(&state, &headers).await {
        Err(refused) => refused,
        Ok(_) => {
            let text = state.lock().expect("the state").hears;
            Json(json!({ "text": text })).into_response()
        }
    }
}

async fn speech(State(state): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return refusal(400, "not JSON");
    };
    note(&state, |known| known.speeches.push(body.clone()));
    let (Some(text), Some(form)) = (body["input"].as_str(), body["response_format"].as_str())
    else {
        return refusal(400, "input and response_format are required here");
    };
    let makes = state.lock().expect("the state").makes;
    let (rate, kind) = match makes {
        Makes::Bare | Makes::BareAt(_) if form != "pcm" => {
            return refusal(400, "response_format must be one of [pcm]");
        }
        Makes::OnlyWav(_) if form != "wav" => {
            return refusal(400, "response_format must be one of [wav]");
        }
        Makes::Bare => (RATE, "audio/pcm".to_owned()),
        Makes::BareAt(rate) => (rate, format!("audio/pcm;rate={rate}")),
        Makes::Wav(rate) | Makes::OnlyWav(rate) => (rate, "audio/wav".to_owned()),
    };
    if body["model"].as_str().is_none() || body["voice"].as_str().is_none() {
        return refusal(400, "model and voice are required");
    }
    let manner = match received(&state, &headers).await {
        Err(refused) => return refused,
        Ok(manner) => manner,
    };
    let words = manner.words(text);
    let mut audio = match makes {
        Makes::Bare | Makes::BareAt(_) => Vec::new(),
        Makes::Wav(rate) | Makes::OnlyWav(rate) => header(rate),
    };
    audio.extend(to_pcm16le(&to_i16(&vec![LEVEL; words * rate / 5])));
    // Pieces that end within samples.
    let pieces: Vec<_> = audio.chunks(1_001).map(<[u8]>::to_vec).collect();
    let end = async move {
        match manner {
            Manner::Breaks(_) => Err("gone"),
            Manner::Stalls(_) => std::future::pending().await,
            _ => Ok(Vec::new()),
        }
    };
    let audio = stream::iter(pieces).map(Ok).chain(stream::once(end));
    ([("content-type", kind)], Body::from_stream(audio)).into_response()
}

/// The header of WAV whose length is not known beforehand.
fn header(rate: usize) -> Vec<u8> {
    let rate = u32::try_from(rate).expect("a rate");
    let mut header = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    header.extend([rate, 2 * rate].map(u32::to_le_bytes).concat());
    header.extend(b"\x02\0\x10\0LIST\x04\0\0\0INFOdata\xff\xff\xff\xff");
    header
}
