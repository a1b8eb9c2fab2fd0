//! The bounds of speech without a session. What it says and hears is tested with OpenAI's clients, in
//! `foreign.rs`.

use crate::support;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::io::Cursor;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use support::{PATIENCE, Script, Server, live, local};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use undertone::asr::{Asr, AsrError, Hints, Recognised};
use undertone::audio::{RATE, decode};
use undertone::language::code;
use undertone::llm::scripted::Scripted;
use undertone::server::{App, ServerSettings};
use undertone::session::{self, Builders, Engines, SessionOptions};

/// A server whose voice and recogniser are scripted.
fn serve(settings: ServerSettings) -> Server {
    let llm = Arc::new(Scripted::always("<speech>Hello.</speech>"));
    let engines = Engines::start(live::without_models(llm)).expect("engines");
    Server::serve(App {
        speech: Some(engines.clone()),
        ..App::new(
            settings,
            Arc::new(move |options: SessionOptions| Ok(session::open(&engines, &options))),
        )
    })
}

fn at(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address)
}

async fn speech(server: &Server, token: Option<&str>, body: Value) -> reqwest::Response {
    let mut request = reqwest::Client::new()
        .post(at(server, "/v1/audio/speech"))
        .timeout(PATIENCE)
        .json(&body);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    request.send().await.expect("an answer")
}

async fn field_of(refused: reqwest::Response) -> (StatusCode, Value) {
    let status = refused.status();
    let body: Value = refused.json().await.expect("JSON");
    (status, body["error"]["param"].clone())
}

#[tokio::test]
async fn speech_without_a_session_needs_the_servers_token() {
    let server = serve(ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        ..local()
    });
    let body = json!({"input": "Hello.", "voice": "alloy", "response_format": "pcm"});
    assert_eq!(speech(&server, None, body.clone()).await.status(), 401);
    let client = reqwest::Client::new();
    let secret = client.post(at(&server, "/v1/realtime/client_secrets"));
    let secret = secret.bearer_auth("operator").send().await;
    let secret: Value = secret.expect("a secret").json().await.expect("JSON");
    let secret = secret["value"].as_str().expect("a secret");
    let with_secret = speech(&server, Some(secret), body.clone()).await;
    assert_eq!(with_secret.status(), 401);
    let said = speech(&server, Some("operator"), body).await;
    assert_eq!(said.status(), 200);
    assert_eq!(said.headers()["content-type"], "audio/pcm");
    assert!(!said.bytes().await.expect("audio").is_empty());
}

#[tokio::test]
async fn a_request_for_speech_that_cannot_be_served_names_its_field() {
    let server = serve(local());
    for (body, param) in [
        (json!({}), json!("input")),
        (json!({"input": 5}), json!("input")),
        (json!({"input": " "}), json!("input")),
        (json!({"input": "x".repeat(4_097)}), json!("input")),
        (json!({"input": "Hi.", "voice": 5}), json!("voice")),
        (json!({"input": "Hi.", "speed": 4.5}), json!("speed")),
        (
            json!({"input": "Hi.", "response_format": "aac"}),
            json!("response_format"),
        ),
        (
            json!({"input": "Hi.", "stream_format": "none"}),
            json!("stream_format"),
        ),
        (json!(["Hi."]), Value::Null),
    ] {
        let refused = field_of(speech(&server, None, body.clone()).await).await;
        assert_eq!(refused, (StatusCode::BAD_REQUEST, param), "{body}");
    }
    let client = reqwest::Client::new();
    let url = at(&server, "/v1/audio/transcriptions");
    let form = |parts: &[(&str, &str)]| {
        let part = |(name, value): &(&str, &str)| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body: String = parts.iter().map(part).collect();
        client
            .post(&url)
            .header("content-type", "multipart/form-data; boundary=b")
            .body(body + "--b--\r\n")
            .send()
    };
    for (parts, param) in [
        (&[("model", "m")][..], "file"),
        (&[("response_format", "xml")], "response_format"),
        (
            &[("timestamp_granularities[]", "word")],
            "timestamp_granularities",
        ),
        (&[("file", "no audio")], "file"),
    ] {
        let refused = field_of(form(parts).await.expect("an answer")).await;
        assert_eq!(refused, (StatusCode::BAD_REQUEST, json!(param)));
    }
    let wrong = client.post(&url).body("{}").send().await;
    assert_eq!(wrong.expect("an answer").status(), StatusCode::BAD_REQUEST);
}

const SENTENCES: &str = "The kettle is on. The bread is in the oven. The cat is asleep.";

/// The length of a file's audio, s.
fn seconds(file: &[u8]) -> f64 {
    let file = Box::new(Cursor::new(file.to_vec()));
    let audio = decode(file, Duration::from_secs(60), || true);
    audio.expect("audio").len() as f64 / f64::from(RATE)
}

/// Only WAV and PCM were written, and everything else was refused: also mp3, which is OpenAI's default.
#[tokio::test]
async fn clients_get_speech_in_the_form_that_they_ask_for() {
    let server = serve(local());
    let asked = |format: Option<&str>| {
        let body = json!({"input": SENTENCES, "voice": "alloy", "response_format": format});
        speech(&server, None, body)
    };
    let plain = asked(Some("pcm")).await.bytes().await.expect("audio");
    let spoken = plain.len() as f64 / 48_000.0;
    for (format, kind, first) in [
        (None, "audio/mpeg", b"\xff".as_slice()),
        (Some("mp3"), "audio/mpeg", b"\xff"),
        (Some("opus"), "audio/ogg", b"OggS"),
        (Some("flac"), "audio/flac", b"fLaC"),
        (Some("wav"), "audio/wav", b"RIFF"),
    ] {
        let said = asked(format).await;
        assert_eq!(said.status(), StatusCode::OK, "{format:?}");
        assert_eq!(said.headers()["content-type"], kind, "{format:?}");
        let file = said.bytes().await.expect("audio");
        assert!(file.starts_with(first), "{format:?}");
        let heard = seconds(&file);
        assert!(
            (-0.01..0.12).contains(&(heard - spoken)),
            "{format:?}: {heard} s instead of {spoken}"
        );
    }
}

/// LibreChat sends the last marks of an answer alone, Home Assistant a "." to check a key. An error or an empty answer
/// ended what they read out.
#[tokio::test]
async fn a_text_without_a_letter_or_a_digit_is_a_moment_of_silence() {
    let server = serve(local());
    for format in ["mp3", "opus", "flac", "wav"] {
        for input in [".", "🙂", " ** "] {
            let body = json!({"input": input, "response_format": format});
            let said = speech(&server, None, body).await;
            assert_eq!(said.status(), StatusCode::OK, "{format}: {input}");
            let heard = seconds(&said.bytes().await.expect("audio"));
            assert!((0.05..0.5).contains(&heard), "{format}: {heard} s");
        }
    }
}

/// The request of LiveKit's plugin with its default model. It takes the bytes in the events for the form that it named.
#[tokio::test]
async fn events_carry_the_form_that_the_client_named() {
    let server = serve(local());
    let body = json!({"input": SENTENCES, "model": "gpt-4o-mini-tts", "voice": "ash",
        "response_format": "mp3", "speed": 1.0, "stream_format": "sse"});
    let said = speech(&server, None, body).await;
    assert_eq!(said.headers()["content-type"], "text/event-stream");
    let text = said.text().await.expect("text");
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events
        .map(|event| serde_json::from_str(event).expect("JSON"))
        .collect();
    let (done, deltas) = events.split_last().expect("events");
    assert_eq!(done["type"], "speech.audio.done");
    assert!(deltas.len() > 1, "clause by clause: {}", deltas.len());
    let mut file = Vec::new();
    for delta in deltas {
        assert_eq!(delta["type"], "speech.audio.delta");
        let bytes = delta["audio"].as_str().expect("audio");
        file.extend(STANDARD.decode(bytes).expect("base64"));
    }
    assert_eq!(file[0], 0xff);
    assert!(seconds(&file) > 1.0);
    // Typed clients require it, and failed at the last event.
    let usage = &done["usage"];
    let tokens = |field: &str| usage[field].as_u64().expect("a number");
    assert_eq!(tokens("input_tokens"), SENTENCES.len().div_ceil(4) as u64);
    let spoken = tokens("output_tokens") as f64 / 20.0;
    assert!((spoken - seconds(&file)).abs() < 0.2, "{usage}");
    let both = tokens("input_tokens") + tokens("output_tokens");
    assert_eq!(tokens("total_tokens"), both);
}

/// A recogniser of English, German and, by Whisper's name of it, Norwegian. It greets in the language that it is told.
struct ThreeLanguages;

impl Asr for ThreeLanguages {
    fn name(&self) -> &str {
        "scripted"
    }

    fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
        Ok("Hello.".into())
    }

    fn hear_with(&mut self, _: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        let text = match hints.language.as_deref().map(code).as_deref() {
            Some("de") => "Guten Tag.",
            Some("no") => "God dag.",
            _ => "Hello.",
        };
        Ok(text.into())
    }

    fn languages(&self) -> Vec<String> {
        vec!["en".into(), "de".into(), "no".into()]
    }
}

/// Half a second of a tone as WAV.
fn tone() -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut wav = hound::WavWriter::new(&mut file, spec).expect("a header");
    for at in 0..8_000_i32 {
        let sample = if at / 40 % 2 == 0 { 8_000_i16 } else { -8_000 };
        wav.write_sample(sample).expect("a sample");
    }
    wav.finalize().expect("an end");
    file.into_inner()
}

/// The request with a form of these fields and a recording.
fn with_recording(
    request: reqwest::RequestBuilder,
    fields: &[(&str, &str)],
) -> reqwest::RequestBuilder {
    let named = "--b\r\nContent-Disposition: form-data; name=";
    let field = |(name, value): &(&str, &str)| format!("{named}\"{name}\"\r\n\r\n{value}\r\n");
    let mut body: Vec<u8> = fields.iter().map(field).collect::<String>().into();
    body.extend(format!("{named}\"file\"; filename=\"note.wav\"\r\n\r\n").bytes());
    body.extend(tone());
    body.extend(b"\r\n--b--\r\n");
    request
        .header("content-type", "multipart/form-data; boundary=b")
        .body(body)
}

#[tokio::test]
async fn a_recording_is_transcribed_in_each_language_that_the_recogniser_knows() {
    let llm = Arc::new(Scripted::always("<speech>Hello.</speech>"));
    let server = live::serve(Builders {
        asr: Box::new(|| Ok(Box::new(ThreeLanguages))),
        ..live::without_models(llm)
    });
    let url = at(&server, "/v1/audio/transcriptions");
    let ask = async |language: Option<&str>| {
        let mut fields = vec![("response_format", "verbose_json")];
        fields.extend(language.map(|language| ("language", language)));
        let request = reqwest::Client::new().post(&url);
        let answer = with_recording(request, &fields).send().await;
        let answer = answer.expect("an answer");
        let status = answer.status();
        let body: Value = answer.json().await.expect("JSON");
        (status, body)
    };
    for (language, text, name) in [
        (None, "Hello.", "english"),
        (Some("en-GB"), "Hello.", "english"),
        (Some("de"), "Guten Tag.", "german"),
        (Some("de_AT"), "Guten Tag.", "german"),
        (Some("German"), "Guten Tag.", "german"),
    ] {
        let (status, body) = ask(language).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(
            (&body["text"], &body["language"]),
            (&json!(text), &json!(name))
        );
    }
    let (status, body) = ask(Some("fr")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(body["error"]["param"], "language");
    let message = body["error"]["message"].as_str().expect("a reason");
    assert!(message.contains("en, de, no"), "{message}");
}

/// Clients that ask for the times of words and segments were refused, and so were empty fields and the language "auto".
/// `stream=True` had no effect.
#[tokio::test]
async fn forms_as_clients_fill_them_in_are_understood() {
    let server = serve(local());
    let ask = async |fields: &[(&str, &str)]| {
        let request = reqwest::Client::new().post(at(&server, "/v1/audio/transcriptions"));
        let answer = with_recording(request, fields).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{fields:?}");
        answer
    };
    let times = [
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
    ];
    let body: Value = ask(&times).await.json().await.expect("JSON");
    assert_eq!(body["segments"][0]["text"], "How are you?", "{body}");
    assert_eq!(body.get("words"), None);
    let empty = [
        ("response_format", ""),
        ("language", ""),
        ("timestamp_granularities[]", ""),
        ("stream", ""),
    ];
    for fields in [&empty[..], &[("language", "auto")]] {
        let body: Value = ask(fields).await.json().await.expect("JSON");
        assert_eq!(body["text"], "How are you?", "{fields:?}");
    }
    for on in ["true", "True", "1"] {
        let answer = ask(&[("stream", on)]).await;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
    }
}

/// Home Assistant and browsers say "nb".
#[tokio::test]
async fn norwegian_has_two_names() {
    let llm = Arc::new(Scripted::always("<speech>Hello.</speech>"));
    let server = live::serve(Builders {
        asr: Box::new(|| Ok(Box::new(ThreeLanguages))),
        ..live::without_models(llm)
    });
    for language in ["no", "nb", "nb-NO"] {
        let request = reqwest::Client::new().post(at(&server, "/v1/audio/transcriptions"));
        let answer = with_recording(request, &[("language", language)]).send();
        let body: Value = answer.await.expect("an answer").json().await.expect("JSON");
        assert_eq!(body["text"], "God dag.", "{language}");
    }
}

/// LiveKit's plugin names the language in a list, and was not understood.
#[tokio::test]
async fn the_only_language_in_a_list_is_the_language() {
    let llm = Arc::new(Scripted::always("<speech>Hello.</speech>"));
    let server = live::serve(Builders {
        asr: Box::new(|| Ok(Box::new(ThreeLanguages))),
        ..live::without_models(llm)
    });
    for (fields, text) in [
        (&[("languages[]", "de")][..], "Guten Tag."),
        (&[("languages[]", "de"), ("languages[]", "en")], "Hello."),
        (&[("language", "en"), ("languages[]", "de")], "Hello."),
    ] {
        let request = reqwest::Client::new().post(at(&server, "/v1/audio/transcriptions"));
        let answer = with_recording(request, fields).send().await;
        let body: Value = answer.expect("an answer").json().await.expect("JSON");
        assert_eq!(body["text"], text, "{fields:?}");
    }
}

/// The route went on with the engines of the start, in their language.
#[tokio::test]
async fn after_a_reload_a_recording_is_heard_in_the_new_language() {
    let engines = |language: &str| {
        let llm = Arc::new(Scripted::always("<speech>Hello.</speech>"));
        let mut builders = Builders {
            asr: Box::new(|| Ok(Box::new(ThreeLanguages))),
            ..live::without_models(llm)
        };
        builders.policy.speaker.language = Some(language.to_owned());
        Engines::start(builders).expect("engines")
    };
    let current = Arc::new(RwLock::new(engines("en")));
    let server = Server::serve(App {
        speech: Some(current.clone()),
        ..App::new(local(), Arc::new(|_| unreachable!("no session is opened")))
    });
    for (language, text, name) in [("en", "Hello.", "english"), ("de", "Guten Tag.", "german")] {
        *current.write().expect("whole") = engines(language);
        let request = reqwest::Client::new().post(at(&server, "/v1/audio/transcriptions"));
        let answer = with_recording(request, &[("response_format", "verbose_json")]).send();
        let answer = answer.await.expect("an answer");
        let body: Value = answer.json().await.expect("JSON");
        assert_eq!(
            (&body["text"], &body["language"]),
            (&json!(text), &json!(name))
        );
    }
}

const HOUSE: &str = "Das Haus wurde im 19. Jahrhundert gebaut.";

/// The dot behind a number ended the clause, as in English: "Das Haus wurde im 19." And a request without a voice was
/// spoken by the English one, whatever the server's language is.
#[tokio::test]
async fn german_is_cut_by_its_own_rules_and_spoken_by_a_german_voice() {
    for (own, voice) in [
        (None, json!("thorsten")),
        (Some("de"), json!("thorsten")),
        (Some("de"), json!("alloy")),
        (Some("de"), Value::Null),
    ] {
        let voices = ["en", "de"].map(live::Keeps::new);
        let [english, german] = &voices;
        let builders = live::without_models(Arc::new(Scripted::default()));
        let server = live::serve(live::with_voices(own, [english, german], builders));
        let said = speech(&server, None, json!({"input": HOUSE, "voice": voice})).await;
        assert_eq!(said.status(), StatusCode::OK);
        assert!(!said.bytes().await.expect("audio").is_empty());
        assert_eq!(german.take("Jahrhundert"), [HOUSE], "{own:?}, {voice}");
        assert!(english.take("Haus").is_empty(), "{own:?}, {voice}");
    }
}

/// The requests of Open WebUI (backend/open_webui/routers/audio.py) with the engine OpenAI, the server's `/v1` as its URL
/// and its documented settings otherwise.
#[tokio::test]
async fn open_webui_speaks_hears_and_lists_voices_with_its_documented_settings() {
    let server = serve(ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        ..local()
    });
    let client = reqwest::Client::new();
    let post = |path: &str| {
        let request = client.post(at(&server, path)).bearer_auth("operator");
        request
            .header("X-OpenWebUI-User-Name", "A")
            .header("X-OpenWebUI-User-Role", "admin")
    };
    let body = json!({"model": "tts-1", "input": "The kettle is on.", "voice": "alloy"});
    let said = post("/v1/audio/speech").json(&body).send().await;
    let said = said.expect("an answer");
    assert_eq!(said.status(), 200);
    assert_eq!(said.headers()["content-type"], "audio/mpeg");
    assert!(seconds(&said.bytes().await.expect("audio")) > 0.1);

    let request = post("/v1/audio/transcriptions");
    let heard = with_recording(request, &[("model", "whisper-1")]).send();
    let heard = heard.await;
    let heard: Value = heard.expect("an answer").json().await.expect("JSON");
    assert_eq!(heard["text"], "How are you?");

    for (path, list) in [
        ("/v1/audio/voices", "voices"),
        ("/v1/audio/models", "models"),
    ] {
        let listed = client.get(at(&server, path)).bearer_auth("operator");
        let listed: Value = listed
            .send()
            .await
            .expect("a list")
            .json()
            .await
            .expect("JSON");
        assert!(listed[list][0]["id"].is_string(), "{listed}");
    }
}

#[tokio::test]
async fn pages_may_ask_for_speech_and_a_server_without_models_says_so() {
    let server = serve(local());
    let client = reqwest::Client::new();
    let url = at(&server, "/v1/audio/speech");
    let asked = client.request(Method::OPTIONS, url).send().await;
    let asked = asked.expect("an answer");
    assert_eq!(asked.headers()["access-control-allow-origin"], "*");
    let voices = client.get(at(&server, "/v1/audio/voices")).send().await;
    let voices: Value = voices.expect("an answer").json().await.expect("JSON");
    assert_eq!(voices["voices"][0]["id"], "default");

    let server = Server::start(Script::default()).await;
    let refused = speech(&server, None, json!({"input": "Hi."})).await;
    assert_eq!(refused.status(), StatusCode::NOT_IMPLEMENTED);
}

/// Four requests that never send their bodies hold the turns; a fifth is told when to come again.
#[tokio::test]
async fn requests_for_speech_wait_for_their_turn_and_are_told_when_to_come_again() {
    let server = serve(local());
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut slow = TcpStream::connect(server.address).await.expect("open");
        let head = "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\
                    Expect: 100-continue\r\n\r\n";
        slow.write_all(head.as_bytes()).await.expect("sent");
        // The server reads the body only when it is this request's turn.
        let mut told = [0; 12];
        let read = timeout(PATIENCE, slow.read_exact(&mut told)).await;
        read.expect("in time").expect("an answer");
        assert_eq!(&told, b"HTTP/1.1 100");
        held.push(slow);
    }
    let refused = speech(&server, None, json!({"input": "Hi."})).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    // It was plain text.
    let refused: Value = refused.json().await.expect("JSON");
    assert_eq!(refused["error"]["type"], "server_error", "{refused}");
    drop(held);
    let served = speech(&server, None, json!({"input": "Hi."})).await;
    assert_eq!(served.status(), StatusCode::OK);
}

/// A shutdown cut a transcription in progress.
#[tokio::test]
async fn a_drain_waits_for_requests_for_speech_and_takes_no_more() {
    let mut server = serve(local());
    let mut slow = TcpStream::connect(server.address).await.expect("open");
    let head = "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 6\r\n\
                Connection: close\r\nExpect: 100-continue\r\n\r\n";
    slow.write_all(head.as_bytes()).await.expect("sent");
    let mut told = [0; 25];
    let read = timeout(PATIENCE, slow.read_exact(&mut told)).await;
    read.expect("in time").expect("an answer");
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.shutdown.cancel();
    let refused = speech(&server, None, json!({"input": "Hi."})).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!server.task.is_finished());
    slow.write_all(b"--b--\n").await.expect("sent");
    let mut answer = String::new();
    let read = timeout(PATIENCE, slow.read_to_string(&mut answer)).await;
    read.expect("in time").expect("a whole answer");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let ended = timeout(PATIENCE, &mut server.task).await;
    ended
        .expect("in time")
        .expect("no panic")
        .expect("no error");
}

/// The answer had no body, which OpenAI's clients print as the reason.
#[tokio::test]
async fn unknown_paths_and_methods_are_answered_in_openais_form() {
    let server = serve(local());
    let client = reqwest::Client::new();
    for (method, path, status, code) in [
        (Method::GET, "/v1/", 404, "unknown_url"),
        (Method::GET, "/v1/files", 404, "unknown_url"),
        (Method::POST, "/v1/audio/translations", 404, "unknown_url"),
        (Method::POST, "/v1/models/a/b", 404, "unknown_url"),
        (Method::GET, "/v1/audio/speech", 405, "method_not_supported"),
        (Method::PUT, "/v1/models", 405, "method_not_supported"),
    ] {
        let answer = client.request(method, at(&server, path)).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), status, "{path}");
        let allowed = answer.headers().contains_key("access-control-allow-origin");
        assert!(allowed, "pages can read it");
        let body: Value = answer.json().await.expect("JSON");
        assert_eq!(body["error"]["code"], code, "{path}");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        let message = body["error"]["message"].as_str().expect("a reason");
        assert!(message.contains(path), "{message}");
    }
    let put = client.put(at(&server, "/v1/realtime?model=undertone"));
    let answer = put.send().await.expect("an answer");
    assert_eq!(answer.status(), 405);
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(body["error"]["code"], "method_not_supported");
}

/// The whole body was read first, so a stranger held a connection for half a minute.
#[tokio::test]
async fn a_body_that_never_comes_holds_no_connection() {
    let wait = Duration::from_millis(500);
    let secured = ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        header_timeout: 100 * wait,
        ..local()
    };
    let impatient = ServerSettings {
        header_timeout: wait,
        ..local()
    };
    for (settings, status) in [(secured, "401"), (impatient, "408")] {
        let server = serve(settings);
        let mut slow = TcpStream::connect(server.address).await.expect("open");
        let head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n";
        slow.write_all(head.as_bytes()).await.expect("sent");
        let mut told = [0; 12];
        let read = timeout(PATIENCE, slow.read_exact(&mut told)).await;
        read.expect("in time").expect("an answer");
        let told = String::from_utf8_lossy(&told);
        assert_eq!(told, format!("HTTP/1.1 {status}"));
    }
}
