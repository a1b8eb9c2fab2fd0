//! Speech without a session, in the form of OpenAI's audio API: recordings become text, text becomes
//! speech. The models are those of the sessions, and live conversations go first.

mod container;
mod recording;
mod wording;

use super::access::{self, refusal, shows_token};
use super::api::{self, preflight, readable_everywhere, wrong_method};
use super::connections::Place;
use super::errors::{error, fault};
use super::shared::Shared;
use super::upgrade::RETRY_SECONDS;
use crate::audio::{RATE, decode, stretches_within, to_i16};
use crate::llm::tokens_of;
use crate::session::{Engines, KnownVoice, LiveEngines, Spoken};
use crate::transport::realtime::Offered;
use crate::tts::Speaker;
use axum::body::Body;
use axum::extract::multipart::MultipartRejection;
use axum::extract::{DefaultBodyLimit, Multipart, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use container::Writer;
use futures_util::{Stream, StreamExt, stream};
use recording::{Segment, Transcription};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use wording::Wording;

/// The largest recording, bytes: OpenAI's bound.
const MAX_FILE: usize = 25 * 1024 * 1024;

/// The most that the other fields of a form may take together, bytes.
const MAX_FIELDS: usize = 64 * 1024;

/// The longest recording. It is kept in memory as samples: 115 MB.
const LONGEST: Duration = Duration::from_mins(30);

/// The longest piece that is transcribed at once, samples: 10 s.
const LONGEST_PIECE: usize = 10 * RATE as usize;

/// Requests that are served at once.
const AT_ONCE: usize = 4;

/// How long a request waits for its turn, and how long its body may take then.
const WAIT: Duration = Duration::from_secs(10);
const READ: Duration = Duration::from_secs(25);

/// Samples per second of the speech, Hz: a convention of OpenAI's clients, which `pcm` does not tell.
const SPEECH_RATE: u32 = 24_000;

/// Samples of speech that count as a token: 50 ms, as in sessions.
const TOKEN: usize = SPEECH_RATE as usize / 20;

/// Samples of the silence that a text without a letter or a digit sounds like: 200 ms.
const SILENCE: usize = SPEECH_RATE as usize / 5;

const EVENTS: &str = "text/event-stream";

/// The models behind these routes.
pub(super) struct Speech {
    engines: Arc<dyn LiveEngines>,
    turns: Arc<Semaphore>,
}

impl Speech {
    pub(super) fn new(engines: Arc<dyn LiveEngines>) -> Self {
        Self {
            engines,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// The engines of a request that comes now.
    pub(super) fn engines(&self) -> Arc<Engines> {
        self.engines.clone().now()
    }
}

/// The routes. Pages of any origin may read the responses, as those of the Realtime API.
pub(super) fn router() -> Router<Arc<Shared>> {
    let largest = DefaultBodyLimit::max(MAX_FILE + MAX_FIELDS);
    Router::new()
        .route(
            "/v1/audio/transcriptions",
            post(transcriptions).layer(largest).options(preflight),
        )
        .route("/v1/audio/speech", post(speech).options(preflight))
        .route("/v1/audio/voices", get(voices).options(preflight))
        .route("/v1/audio/models", get(models).options(preflight))
        .method_not_allowed_fallback(wrong_method)
        .layer(map_response(readable_everywhere))
}

/// The models for somebody who may ask them.
struct Admitted<'a> {
    engines: Arc<Engines>,
    turns: &'a Arc<Semaphore>,
}

/// A request that may be served.
struct Turn {
    engines: Arc<Engines>,
    place: Arc<Place>,
    /// Until it is dropped, the request counts as served.
    _permit: OwnedSemaphorePermit,
    /// A server that shuts down waits for it.
    _served: TaskTrackerToken,
}

#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
fn admitted<'a>(shared: &'a Shared, headers: &HeaderMap) -> Result<Admitted<'a>, Response> {
    if let Err(denied) = access::admit_with_token(shared, headers) {
        return Err(refusal(shared, denied));
    }
    let Some(speech) = &shared.speech else {
        let message = "This server has no models for speech without a session.";
        let status = StatusCode::NOT_IMPLEMENTED;
        return Err(error(status, "no_speech", None, message));
    };
    Ok(Admitted {
        engines: speech.engines(),
        turns: &speech.turns,
    })
}

#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
async fn turn(shared: &Shared, headers: &HeaderMap, place: Arc<Place>) -> Result<Turn, Response> {
    let speech = admitted(shared, headers)?;
    if shared.context.drain.is_cancelled() {
        return Err(unavailable("The server shuts down."));
    }
    let permit = timeout(WAIT, speech.turns.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(unavailable(
            "As many requests for speech are served as may be at once.",
        ));
    };
    place.goes_on();
    Ok(Turn {
        engines: speech.engines,
        place,
        _permit: permit,
        _served: shared.tasks.token(),
    })
}

async fn transcriptions(
    State(shared): State<Arc<Shared>>,
    Extension(place): Extension<Arc<Place>>,
    headers: HeaderMap,
    form: Result<Multipart, MultipartRejection>,
) -> Response {
    let turn = match turn(&shared, &headers, place).await {
        Ok(turn) => turn,
        Err(refused) => return refused,
    };
    let form = match form {
        Ok(form) => form,
        Err(rejection) => {
            let message = format!("The body must be multipart/form-data: {rejection}.");
            return error(StatusCode::BAD_REQUEST, "invalid_form", None, message);
        }
    };
    let asked = match timeout(READ, Transcription::read(form)).await {
        Ok(Ok(asked)) => asked,
        Ok(Err(refused)) => return refused,
        Err(_) => return too_slow(),
    };
    let Transcription {
        file,
        shape,
        language,
        streams,
    } = asked;
    if let Some(tag) = language.as_ref().filter(|tag| !turn.engines.hears(tag)) {
        return recording::unknown_language(tag, turn.engines.heard_languages());
    }
    turn.place.goes_on();
    // A client that hangs up ends the decoding, and its turn lasts as long as that.
    let wanted = CancellationToken::new();
    let unwanted = wanted.clone();
    let _unwanted_if_dropped = wanted.drop_guard();
    let decoding = move || {
        let audio = decode(Box::new(Cursor::new(file)), LONGEST, || {
            !unwanted.is_cancelled()
        });
        (turn, audio)
    };
    let (turn, audio) = match tokio::task::spawn_blocking(decoding).await {
        Ok((turn, Ok(audio))) => (turn, audio),
        Ok((_, Err(wrong))) => {
            let message = format!("The file cannot be transcribed: {wrong:#}.");
            return error(
                StatusCode::BAD_REQUEST,
                "invalid_file",
                Some("file"),
                message,
            );
        }
        Err(_) => {
            let message = "The file cannot be decoded.";
            return error(
                StatusCode::BAD_REQUEST,
                "invalid_file",
                Some("file"),
                message,
            );
        }
    };
    let seconds = audio.len() as f64 / f64::from(RATE);
    let segments = segments(turn, audio, language);
    if streams {
        return events(deltas(segments));
    }
    let segments: Result<Vec<Segment>, String> =
        segments.collect::<Vec<_>>().await.into_iter().collect();
    match segments {
        Ok(segments) => shape.response(&segments, seconds),
        Err(failure) => failed(&failure),
    }
}

/// Transcribes a recording segment by segment, cut at pauses: in a language, or in one that is detected. The stream ends
/// after the first error.
fn segments(
    turn: Turn,
    audio: Vec<f32>,
    language: Option<String>,
) -> impl Stream<Item = Result<Segment, String>> {
    // Each is one job of the recogniser, so a live user waits for at most one.
    let pieces = stretches_within(&audio, LONGEST_PIECE).into_iter();
    let lengths: VecDeque<usize> = pieces.map(<[f32]>::len).collect();
    let state = (turn, audio, language, 0, lengths);
    stream::unfold(state, async |(turn, audio, language, from, mut lengths)| {
        let to = from + lengths.pop_front()?;
        let piece = audio.get(from..to)?.to_vec();
        let heard = turn.engines.transcribe_aside(piece, language.as_deref());
        let heard = heard.await;
        turn.place.goes_on();
        if heard.is_err() {
            lengths.clear();
        }
        let second = |sample: usize| sample as f64 / f64::from(RATE);
        let own = || language.clone().unwrap_or_else(|| turn.engines.language());
        let segment = heard.map(|heard| Segment {
            start: second(from),
            end: second(to),
            text: heard.text.trim().to_owned(),
            language: heard.language.unwrap_or_else(own),
        });
        Some((segment, (turn, audio, language, to, lengths)))
    })
    .filter(|segment| {
        let is_silent = matches!(segment, Ok(segment) if segment.text.is_empty());
        std::future::ready(!is_silent)
    })
}

/// A transcript as events of OpenAI's API.
fn deltas(segments: impl Stream<Item = Result<Segment, String>>) -> impl Stream<Item = Value> {
    segments.map(Some).chain(stream::once(async { None })).scan(
        Some(String::new()),
        |text, segment| {
            let event = text.as_mut().map(|so_far| match &segment {
                Some(Ok(segment)) => {
                    let space = if so_far.is_empty() { "" } else { " " };
                    let delta = format!("{space}{}", segment.text);
                    so_far.push_str(&delta);
                    json!({"type": "transcript.text.delta", "delta": delta})
                }
                Some(Err(failure)) => broken(failure),
                None => json!({"type": "transcript.text.done", "text": so_far}),
            });
            if matches!(segment, Some(Err(_))) {
                *text = None;
            }
            std::future::ready(event)
        },
    )
}

async fn speech(
    State(shared): State<Arc<Shared>>,
    Extension(place): Extension<Arc<Place>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // Before the body is read, which may never come. It takes nobody's turn while it comes.
    if let Err(refused) = admitted(&shared, &headers) {
        return refused;
    }
    let body = match api::read(&shared, body, MAX_FIELDS).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let turn = match turn(&shared, &headers, place).await {
        Ok(turn) => turn,
        Err(refused) => return refused,
    };
    let services = may_use_services(&shared, shows_token(&headers, &shared.settings()));
    let wording = match Wording::read(&body, &offered(&turn.engines, services)) {
        Ok(wording) => wording,
        Err(wrong) => return fault(&wrong),
    };
    let writer = match wording.container.writer(SPEECH_RATE) {
        Ok(writer) => writer,
        Err(failure) => return failed(&failure),
    };
    let speaker = in_its_language(&turn.engines, wording.speaker);
    // Clients that send an answer piece by piece send its last marks alone, and stop reading at an error or no audio.
    let has_words = wording.text.chars().any(char::is_alphanumeric);
    let text = if has_words { &wording.text } else { "" };
    let mut spoken = turn.engines.speak(&speaker, text, SPEECH_RATE);
    // The status must tell if the voice is busy or dead, so the first clause is waited for.
    let first = match spoken.next().await {
        _ if !has_words => vec![0.0; SILENCE],
        Some(Ok(samples)) => samples,
        Some(Err(failure)) => return failed(&failure),
        None => Vec::new(),
    };
    let audio = written(turn, first, spoken, writer);
    if wording.as_events {
        let asked = tokens_of(wording.text.chars().count());
        return events(audio_events(audio, asked));
    }
    let kind = wording.container.kind();
    let audio = audio.map(|piece| piece.map(|(bytes, _)| bytes));
    ([(CONTENT_TYPE, kind)], Body::from_stream(audio)).into_response()
}

/// Bytes of the speech, and the number of samples spoken so far.
type Piece = (Vec<u8>, usize);

/// All clauses in their container. An error ends them: the connection breaks, so that the client does not take a part
/// for the whole.
fn written(
    turn: Turn,
    first: Vec<f32>,
    spoken: Spoken,
    writer: Box<dyn Writer>,
) -> impl Stream<Item = Result<Piece, String>> {
    let state = Some((turn, Some(first), spoken, writer, 0_usize));
    stream::unfold(state, async |state| {
        let (turn, first, mut spoken, writer, before) = state?;
        let samples = match first {
            Some(first) => Ok(Some(first)),
            None => spoken.next().await.transpose(),
        };
        turn.place.goes_on();
        let so_far = match &samples {
            Ok(Some(samples)) => before + samples.len(),
            _ => before,
        };
        let written = match samples {
            Ok(samples) => encoded(writer, samples).await,
            Err(failure) => Err(failure),
        };
        match written {
            Ok((bytes, writer)) => {
                let rest = writer.map(|writer| (turn, None, spoken, writer, so_far));
                Some((Ok((bytes, so_far)), rest))
            }
            Err(failure) => {
                tracing::warn!(failure, "a text was only partly spoken");
                Some((Err(failure), None))
            }
        }
    })
    // An encoder may wait for more samples.
    .filter(|piece| std::future::ready(!matches!(piece, Ok((bytes, _)) if bytes.is_empty())))
}

/// Bytes to send, and what writes the next ones; `None` behind the last.
type Encoded = (Vec<u8>, Option<Box<dyn Writer>>);

/// Writes samples, or the end if there are none. It takes milliseconds, so it is done where no session waits.
async fn encoded(
    mut writer: Box<dyn Writer>,
    samples: Option<Vec<f32>>,
) -> Result<Encoded, String> {
    let encoding = move || -> Result<Encoded, String> {
        Ok(match samples {
            Some(samples) => (writer.write(&to_i16(&samples))?, Some(writer)),
            None => (writer.end()?, None),
        })
    };
    let encoded = tokio::task::spawn_blocking(encoding).await;
    encoded.unwrap_or_else(|_| Err("the encoder has failed".to_owned()))
}

/// Speech as events of OpenAI's API. `asked` is the length of its text, tokens.
fn audio_events(
    audio: impl Stream<Item = Result<Piece, String>>,
    asked: u64,
) -> impl Stream<Item = Value> {
    audio.map(Some).chain(stream::once(async { None })).scan(
        Some(0),
        move |spoken: &mut Option<usize>, piece| {
            let event = spoken.as_mut().map(|spoken| match &piece {
                Some(Ok((bytes, so_far))) => {
                    *spoken = *so_far;
                    json!({"type": "speech.audio.delta", "audio": STANDARD.encode(bytes)})
                }
                Some(Err(failure)) => broken(failure),
                None => {
                    let said = spoken.div_ceil(TOKEN) as u64;
                    let usage = json!({
                        "input_tokens": asked, "output_tokens": said, "total_tokens": asked + said,
                    });
                    json!({"type": "speech.audio.done", "usage": usage})
                }
            });
            if matches!(piece, Some(Err(_))) {
                *spoken = None;
            }
            std::future::ready(event)
        },
    )
}

fn events(events: impl Stream<Item = Value> + Send + 'static) -> Response {
    let lines = events.map(|event| Ok::<_, Infallible>(format!("data: {event}\n\n")));
    let about = [(CONTENT_TYPE, EVENTS), (CACHE_CONTROL, "no-cache")];
    (about, Body::from_stream(lines)).into_response()
}

fn broken(failure: &str) -> Value {
    json!({"type": "error", "error": {"type": "server_error", "message": failure}})
}

fn failed(failure: &str) -> Response {
    tracing::warn!(failure, "a request for speech was not served");
    unavailable("The model is busy or has failed.")
}

/// A refusal that says when to come again.
pub(super) fn unavailable(message: &str) -> Response {
    let refused = error(
        StatusCode::SERVICE_UNAVAILABLE,
        "unavailable",
        None,
        message,
    );
    ([(RETRY_AFTER, RETRY_SECONDS)], refused).into_response()
}

fn too_slow() -> Response {
    let message = "The body arrives too slowly.";
    error(
        StatusCode::REQUEST_TIMEOUT,
        "request_timeout",
        None,
        message,
    )
}

/// The voices and recognisers that clients may choose, with services or without.
fn offered(engines: &Engines, services: bool) -> Offered {
    let voices: Offered = engines.voice_names(services).map(str::to_owned).collect();
    let recognisers = engines.recogniser_names().filter(|_| services);
    voices.with_recognisers(recognisers.map(str::to_owned))
}

/// The voices and recognisers that a client may choose for a session. Services cost the operator money: whoever shows
/// the server's token may, and others if the operator says so.
pub(super) fn session_offer(shared: &Shared, is_trusted: bool) -> Offered {
    let engines = shared.speech.as_ref().map(Speech::engines);
    let services = may_use_services(shared, is_trusted);
    engines.map_or_else(Offered::default, |engines| offered(&engines, services))
}

fn may_use_services(shared: &Shared, is_trusted: bool) -> bool {
    is_trusted || shared.settings().offer_services
}

/// The voices of [`session_offer`] beside the agent's own. `language` is the primary tag of a voice that speaks one
/// language only.
pub(super) fn voices_json(shared: &Shared, is_trusted: bool) -> Vec<Value> {
    let Some(speech) = &shared.speech else {
        return Vec::new();
    };
    let engines = speech.engines();
    let names = engines.voice_names(may_use_services(shared, is_trusted));
    let voices = names.map(|name| {
        let local = local_voice(&engines, name);
        json!({"name": name, "language": local.and_then(|voice| voice.language)})
    });
    voices.collect()
}

/// The local voice that sessions choose by this name.
fn local_voice<'a>(engines: &'a Engines, name: &str) -> Option<KnownVoice<'a>> {
    let is_named = |voice: &KnownVoice<'_>| voice.speaker.voice.as_deref() == Some(name);
    engines.local_voices().find(is_named)
}

/// This speaker in the language of the voice that it names, if that has only one; otherwise in the server's, as in a
/// session.
fn in_its_language(engines: &Engines, speaker: Speaker) -> Speaker {
    let named = speaker.voice.as_deref();
    let named = named.and_then(|name| local_voice(engines, name));
    let own = engines.policy().speaker.language.as_deref();
    let language = named.and_then(|voice| voice.language).or(own);
    Speaker {
        language: language.map(str::to_owned),
        ..speaker
    }
}

/// The voices, in the form that Open WebUI asks for.
async fn voices(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    match admitted(&shared, &headers) {
        Ok(speech) => {
            let services = may_use_services(&shared, shows_token(&headers, &shared.settings()));
            let offered = offered(&speech.engines, services);
            let voices = offered
                .voices()
                .map(|name| json!({"id": name, "name": name}));
            let voices: Vec<Value> = voices.collect();
            Json(json!({ "voices": voices })).into_response()
        }
        Err(refused) => refused,
    }
}

/// The models for speech, in the form that Open WebUI asks for. Every name means the server's voice.
async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    match admitted(&shared, &headers) {
        Ok(_) => Json(json!({"models": [{"id": "tts-1"}]})).into_response(),
        Err(refused) => refused,
    }
}
