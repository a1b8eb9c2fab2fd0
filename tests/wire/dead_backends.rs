//! Backends that refuse, stall, disconnect, fail or panic, each in a real session over a socket: the
//! user hears an apology, and the conversation goes on.

use crate::support;
use crate::twilio::Phone;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use support::desk::Desk;
use support::live::{self, Call, Heard, Hears, said};
use support::log::Log;
use support::{PATIENCE, ports, twilio};
use tokio::time::{Instant, timeout};
use undertone::asr::AsrError;
use undertone::conversation::Policy;
use undertone::llm::remote::Settings;
use undertone::llm::scripted::{Cue, Scripted, Step};
use undertone::llm::{Llm, LlmError, LlmStream, Phrases, Prompt, Prompts, Remote};
use undertone::session::Builders;
use undertone::tools::declared;
use undertone::tts::{Speech, Tts, TtsError};
use undertone::vad::{Begun, Vad, VadError, WINDOW};

const FIRST: &str = "I am well.";
const WELL: &str = "I am well again.";

/// The length of the user's speech, ms.
const SPEECH: usize = 600;

/// A model that fails in the user's first turn and works from then on.
struct DeadFirst(Box<dyn Llm>);

impl Llm for DeadFirst {
    fn name(&self) -> &str {
        "dead first"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        match Cue::Turn(1).fits(&prompt) {
            true => self.0.generate(prompt),
            false => working_model().generate(prompt),
        }
    }
}

/// A model without a warm-up.
struct Cold(Remote);

impl Llm for Cold {
    fn name(&self) -> &str {
        "cold"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        self.0.generate(prompt)
    }
}

/// A model whose stream panics.
struct Panics;

impl Llm for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn generate(&self, _: Prompt) -> LlmStream {
        futures_util::stream::once(async { panic!("a bug in the engine") }).boxed()
    }
}

fn with_model(dead: impl Llm + 'static) -> Builders {
    live::without_models(Arc::new(DeadFirst(Box::new(dead))))
}

/// A model that works.
fn working_model() -> Arc<dyn Llm> {
    let first = Cue::Turn(1);
    let scripted = Scripted::default().on(first, format!("<speech>{FIRST}</speech>"));
    Arc::new(scripted.on(Cue::Always, format!("<speech>{WELL}</speech>")))
}

/// A voice that fails on the first answer, and speaks everything else as a tone.
struct Mute {
    voice: undertone::tts::Scripted,
    fail: fn() -> TtsError,
}

impl Tts for Mute {
    fn name(&self) -> &str {
        "mute"
    }

    fn sample_rate(&self) -> u32 {
        self.voice.sample_rate()
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        if text == FIRST {
            return Err((self.fail)());
        }
        self.voice.speak(text)
    }
}

fn voice(fail: fn() -> TtsError) -> Builders {
    let build = move || {
        Ok(Box::new(Mute {
            voice: undertone::tts::Scripted::new(),
            fail,
        }) as Box<dyn Tts>)
    };
    Builders {
        tts: Box::new(build),
        ..live::without_models(working_model())
    }
}

/// A recogniser that fails in the user's first turn.
fn failing_recogniser(fail: fn() -> AsrError) -> Builders {
    let build = move || {
        let first = f32::from(LEVELS[0].midpoint(LEVELS[1])) / 32_768.0;
        let asr = Hears(
            move |samples: &[f32]| match samples.iter().any(|s| *s > first) {
                false => Err(fail()),
                true => Ok("How are you?".into()),
            },
        );
        Ok(Box::new(asr) as Box<dyn undertone::asr::Asr>)
    };
    Builders {
        asr: Box::new(build),
        // An utterance that was not recognised is not a turn.
        ..live::without_models(Arc::new(Scripted::always(format!(
            "<speech>{WELL}</speech>"
        ))))
    }
}

/// The user's level in the first turn and in later turns.
const LEVELS: [i16; 2] = [8_000, 16_000];

/// Speaks and listens to the end of the response. Returns when the speech ended, and the events.
async fn turn(call: &mut Call, level: i16) -> (Instant, Vec<Heard>) {
    let began = call.say(&vec![level; 24 * SPEECH]).await;
    let events = call.until("response.done").await;
    (began + Duration::from_millis(SPEECH as u64), events)
}

/// The arrival time of the first audio of a phrase, which may be spoken in several clauses.
fn heard_at(events: &[Heard], phrase: &str) -> Instant {
    assert!(said(events).contains(phrase), "{}", said(events));
    let begins = |heard: &Heard| {
        heard.is("response.output_audio_transcript.delta")
            && heard.event["delta"]
                .as_str()
                .is_some_and(|delta| phrase.starts_with(delta.trim()))
    };
    let from = events.iter().position(begins).expect("its first clause");
    let audio = events[from..].iter().find(|heard| heard.audio_ms() > 0);
    audio.expect("audio of it").at
}

/// Asks one question while the backend fails and one when it works again. Returns the delay from
/// the end of the user's speech to each phrase.
async fn survives(name: &str, builders: Builders, phrases: &[&str]) -> Vec<Duration> {
    let server = live::serve(builders);
    let mut call = Call::to(&server).await;
    let (end, events) = turn(&mut call, LEVELS[0]).await;
    let delays: Vec<_> = phrases
        .iter()
        .map(|phrase| heard_at(&events, phrase) - end)
        .collect();
    let audio: u64 = events.iter().map(Heard::audio_ms).sum();
    assert!(audio > 500, "{audio} ms of audio");
    println!("{name}: {phrases:?} heard {delays:?} after the end of speech");
    let (_, events) = turn(&mut call, LEVELS[1]).await;
    assert_eq!(said(&events), WELL, "{name}");
    let done = &events.last().expect("events").event["response"];
    assert_eq!(done["status"], "completed", "{name}");
    delays
}

#[tokio::test]
async fn a_model_that_refuses() {
    let nobody = format!("127.0.0.1:{}", ports::free());
    survives(
        "refused",
        with_model(remote(nobody)),
        &[&Phrases::default().llm_failed],
    )
    .await;
}

fn remote(address: impl std::fmt::Display) -> Remote {
    let url = format!("http://{address}/v1").parse().expect("a URL");
    let prompts = Prompts::default();
    Remote::new(Settings::new(url, "m"), prompts).expect("a client")
}

/// A name that no server of names knows, by RFC 2606.
const NOWHERE: &str = "no-such-server.invalid";

#[tokio::test]
async fn a_model_whose_name_does_not_resolve() {
    let (log, _guard) = Log::begin(tracing::Level::INFO);
    let apology = Phrases::default().llm_failed;
    survives("no name", with_model(remote(NOWHERE)), &[&apology]).await;
    let log = log.text();
    let is_told =
        |line: &str| line.contains("WARN") && line.contains(NOWHERE) && line.contains("lookup");
    assert!(log.lines().any(is_told), "{log}");
}

#[tokio::test]
async fn a_tool_whose_name_does_not_resolve() {
    const SORRY: &str = "I could not book it.";
    let (log, _guard) = Log::begin(tracing::Level::INFO);
    let tool = Desk::declaration(NOWHERE, "timeout_ms = 60000");
    let tool = declared::parse(std::path::Path::new("a.toml"), &tool).expect("a declaration");
    let llm = Scripted::default()
        .on(Cue::Turn(1), "<tool>book_room(who=\"Ann\")</tool>")
        .on(
            Cue::result("book_room"),
            format!("<speech>{SORRY}</speech>"),
        )
        .on(Cue::Always, format!("<speech>{WELL}</speech>"));
    let server = live::serve(Builders {
        tools: declared::registry(&[tool]).expect("a tool").into(),
        ..live::without_models(Arc::new(llm))
    });
    let (mut call, mut other) = (Call::to(&server).await, Call::to(&server).await);
    let (_, events) = turn(&mut call, LEVELS[0]).await;
    assert!(said(&events).ends_with(SORRY), "{}", said(&events));
    let log = log.text();
    let is_told =
        |line: &str| line.contains("WARN") && line.contains(NOWHERE) && line.contains("lookup");
    assert!(log.lines().any(is_told), "{log}");
    let (_, events) = turn(&mut call, LEVELS[0]).await;
    assert_eq!(said(&events), WELL);
    let (_, events) = turn(&mut other, LEVELS[0]).await;
    assert!(said(&events).ends_with(SORRY), "{}", said(&events));
}

/// Whether a request has arrived with its whole body.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    body.len() >= length.unwrap_or(0)
}

/// A server that answers every request with an error whose body must stay private.
async fn refusing_with(body: &'static str) -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = String::new();
            while !is_whole(&request) {
                let mut piece = vec![0; 64 * 1024];
                let Ok(read @ 1..) = socket.read(&mut piece).await else {
                    break;
                };
                request.push_str(&String::from_utf8_lossy(&piece[..read]));
            }
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 500 Oops\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn a_model_servers_error_body_reaches_neither_clients_nor_the_log() {
    const CANARY: &str = "sk-canary-of-somebody-else";
    let (log, _guard) = Log::begin(tracing::Level::INFO);
    let address = refusing_with(CANARY).await;
    let server = live::serve(with_model(remote(address)));
    let mut call = Call::to(&server).await;
    let (_, events) = turn(&mut call, LEVELS[0]).await;
    let failed = events
        .iter()
        .find(|heard| heard.is("undertone.stage_failed"))
        .expect("the client is told");
    let message = failed.event["message"].as_str().expect("why");
    assert!(!message.is_empty());
    for heard in &events {
        let event = heard.event.to_string();
        assert!(!event.contains(CANARY), "{event}");
        assert!(!event.contains(&address.to_string()), "{event}");
    }
    let log = log.text();
    assert!(!log.contains(CANARY), "{log}");
    let logged = log.contains("the language model's server refused the request")
        && log.contains(&address.to_string());
    assert!(logged, "the operator is told which server it was: {log}");
}

/// One answer of a scripted server of chat completions.
enum Reply {
    /// A status and a body.
    Refusal(u16, &'static str),
    /// Thoughts for this time, then this text.
    Thinks(Duration, &'static str),
    /// This part of a stream, then a closed connection.
    Breaks(&'static str),
}

/// A chunk with this delta.
fn chunk(delta: serde_json::Value) -> String {
    let chunk = serde_json::json!({"choices": [{"index": 0, "delta": delta}]});
    format!("data: {chunk}\n\n")
}

const FINISH: &str =
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// The time between two pieces of the model's thoughts.
const THOUGHT: Duration = Duration::from_millis(200);

/// Answers one request with each reply, then closes. Returns the requests' bodies.
async fn replies(listener: tokio::net::TcpListener, replies: Vec<Reply>) -> Vec<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut bodies = Vec::new();
    for reply in replies {
        let (mut socket, _) = listener.accept().await.expect("a client");
        let mut request = String::new();
        while !is_whole(&request) {
            let mut piece = vec![0; 64 * 1024];
            let Ok(read @ 1..) = socket.read(&mut piece).await else {
                break;
            };
            request.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        bodies.push(
            request
                .split("\r\n\r\n")
                .nth(1)
                .unwrap_or_default()
                .to_owned(),
        );
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        // The client may have hung up.
        let mut send = async |text: String| drop(socket.write_all(text.as_bytes()).await);
        match reply {
            Reply::Refusal(status, body) => {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} No\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                send(format!("{head}{body}")).await;
            }
            Reply::Thinks(time, text) => {
                send(head.into()).await;
                for _ in 0..time.as_millis() / THOUGHT.as_millis() {
                    send(chunk(serde_json::json!({"reasoning_content": "hm"}))).await;
                    tokio::time::sleep(THOUGHT).await;
                }
                let text = chunk(serde_json::json!({ "content": text }));
                send(format!("{text}{FINISH}")).await;
            }
            Reply::Breaks(text) => {
                let text = chunk(serde_json::json!({ "content": text }));
                // The stream is shorter than it claims, so it ends early.
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
                send(format!("{head}{text}")).await;
            }
        }
    }
    bodies
}

/// Like OpenAI's thinking models: another name for the token limit, and six seconds before the first word, longer than
/// a model may be silent. Its thoughts show that it is at work.
#[tokio::test]
async fn a_model_that_refuses_max_tokens_and_thinks_for_six_seconds_is_heard_without_an_apology() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let refusal = "{\"error\":{\"message\":\"Unsupported parameter: 'max_tokens' is not supported with this model. \
                   Use 'max_completion_tokens' instead.\"}}";
    let script = vec![
        Reply::Refusal(400, refusal),
        Reply::Thinks(Duration::from_secs(6), "<speech>I am well.</speech>"),
    ];
    let serving = tokio::spawn(replies(listener, script));
    let url = format!("http://{address}/v1").parse().expect("a URL");
    let mut settings = Settings::new(url, "m");
    settings.max_tokens = Some(300);
    let llm = Remote::new(settings, Prompts::default()).expect("a client");
    let thinks = Builders {
        policy: Policy::default(),
        ..with_model(llm)
    };
    let phrases = Phrases::default();
    let delays = survives("thinking", thinks, &[&phrases.one_moment, FIRST]).await;
    assert!(delays[0] < delays[1], "{delays:?}");
    assert!(delays[1] >= Duration::from_secs(6), "{delays:?}");
    let bodies = serving.await.expect("two requests");
    assert!(bodies[0].contains("\"max_tokens\":300"), "{bodies:?}");
    assert!(
        bodies[1].contains("\"max_completion_tokens\":300"),
        "{bodies:?}"
    );
}

/// The server dies within an answer, is down for a turn, and comes back.
#[tokio::test]
async fn a_model_server_that_dies_in_mid_call_and_comes_back() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let dies = Reply::Breaks("<speech>It is sunny.</speech><tool>book(n=1)");
    let serving = tokio::spawn(replies(listener, vec![dies]));
    let server = live::serve(live::without_models(Arc::new(Cold(remote(address)))));
    let mut call = Call::to(&server).await;
    let apology = Phrases::default().llm_failed;
    let apologies = |events: &[Heard]| said(events).matches(apology.as_str()).count();

    let (_, events) = turn(&mut call, LEVELS[0]).await;
    assert_eq!(apologies(&events), 1, "{}", said(&events));
    assert!(!said(&events).contains("book"), "{}", said(&events));
    serving.await.expect("the server has died");
    let (_, events) = turn(&mut call, LEVELS[0]).await;
    assert_eq!(said(&events), apology, "nobody listens");

    let listener = tokio::net::TcpListener::bind(address)
        .await
        .expect("the port");
    let back = Reply::Thinks(Duration::ZERO, "<speech>I am well again.</speech>");
    let serving = tokio::spawn(replies(listener, vec![back]));
    let (_, events) = turn(&mut call, LEVELS[0]).await;
    assert_eq!(said(&events), WELL);
    serving.await.expect("one request");
}

/// The kernel accepts the connection, but no server answers.
#[tokio::test]
async fn a_model_that_stalls() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let stalls = Builders {
        policy: Policy::default(),
        ..with_model(remote(address))
    };
    let phrases = Phrases::default();
    let wanted = [phrases.one_moment.as_str(), phrases.llm_failed.as_str()];
    let delays = survives("stalled", stalls, &wanted).await;
    assert!(delays[0] < delays[1], "{delays:?}");
    drop(listener);
}

/// A model whose server has unloaded it: answers wait in vain, and loading begins when it is warmed up.
struct Unloaded(Arc<AtomicUsize>);

impl Llm for Unloaded {
    fn name(&self) -> &str {
        "unloaded"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        match self.0.load(Relaxed) {
            1 => futures_util::stream::pending().boxed(),
            _ => working_model().generate(prompt),
        }
    }

    fn warm_up(&self, _: Prompt) -> BoxFuture<'static, Result<(), LlmError>> {
        self.0.fetch_add(1, Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Each question of the session began to load the model and gave up, so the agent apologised for good.
#[tokio::test]
async fn a_model_that_was_unloaded_in_mid_session_is_loaded_again() {
    let warm_ups = Arc::new(AtomicUsize::new(0));
    let unloaded = Builders {
        policy: Policy::default(),
        ..live::without_models(Arc::new(Unloaded(warm_ups.clone())))
    };
    survives("unloaded", unloaded, &[&Phrases::default().llm_failed]).await;
    assert_eq!(
        warm_ups.load(Relaxed),
        2,
        "at the start, and after the failure"
    );
}

#[tokio::test]
async fn a_model_that_disconnects() {
    let broken = Scripted::always(vec![
        Step::text("<speech>The answer to your question is "),
        Step::Error("connection reset".into()),
    ]);
    survives(
        "broken off",
        with_model(broken),
        &[&Phrases::default().llm_failed],
    )
    .await;
}

#[tokio::test]
async fn a_model_that_panics() {
    survives(
        "panicked",
        with_model(Panics),
        &[&Phrases::default().llm_failed],
    )
    .await;
}

#[tokio::test]
async fn a_voice_that_fails() {
    let fail = || TtsError::Run("no voice".into());
    survives(
        "voice failed",
        voice(fail),
        &[&Phrases::default().tts_failed],
    )
    .await;
}

#[tokio::test]
async fn a_voice_that_panics() {
    let panics = || panic!("a bug in the voice");
    survives(
        "voice panicked",
        voice(panics),
        &[&Phrases::default().tts_failed],
    )
    .await;
}

#[tokio::test]
async fn a_recogniser_that_fails() {
    let fail = || AsrError::Run("no recogniser".into());
    survives(
        "recogniser failed",
        failing_recogniser(fail),
        &[&Phrases::default().asr_failed],
    )
    .await;
}

#[tokio::test]
async fn a_recogniser_that_panics() {
    let panics = || panic!("a bug in the recogniser");
    survives(
        "recogniser panicked",
        failing_recogniser(panics),
        &[&Phrases::default().asr_failed],
    )
    .await;
}

/// A detector that fails at every window.
struct FailingDetector;

impl Vad for FailingDetector {
    fn begin(&mut self, _: &[f32; WINDOW]) -> Result<Begun, VadError> {
        Err(VadError("no detector".into()))
    }
}

#[tokio::test]
async fn a_failing_detector_is_reported_once() {
    let make = || Ok(Box::new(FailingDetector) as Box<dyn Vad>);
    let server = live::serve(Builders {
        vad: Box::new(move || Box::new(make)),
        ..live::without_models(working_model())
    });
    let mut call = Call::to(&server).await;
    let told = |events: &[Heard]| {
        let told =
            |heard: &&Heard| heard.is("undertone.stage_failed") && heard.event["stage"] == "vad";
        events.iter().filter(told).count()
    };
    let events = call.until("undertone.stage_failed").await;
    assert_eq!(told(&events), 1);
    // Twenty more windows fail while the agent speaks.
    call.send(serde_json::json!({"type": "response.create"}))
        .await;
    let events = call.until("response.done").await;
    assert_eq!(said(&events), WELL);
    assert_eq!(told(&events), 0);
}

/// The line stayed silent until the caller gave up: a telephone shows no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_whom_the_detector_does_not_hear_is_told_so_and_the_call_ends() {
    let make = || Ok(Box::new(FailingDetector) as Box<dyn Vad>);
    let engines = Builders {
        vad: Box::new(move || Box::new(make)),
        ..live::without_models(working_model())
    };
    let server = live::serve_with(twilio::settings("http://127.0.0.1:1"), engines);
    let mut phone = Phone::call(&server).await;
    let rest = timeout(PATIENCE, phone.rest()).await.expect("it hangs up");
    let media = rest.iter().filter(|event| event["event"] == "media");
    assert!(media.count() >= 50, "a second of the apology");
}

/// The apology was synthesised when the server started.
#[tokio::test]
async fn without_model_and_voice_the_user_still_hears_an_apology() {
    let dead = Arc::new(AtomicBool::new(false));
    let is_dead = dead.clone();
    let build = move || {
        Ok(Box::new(DeadVoice {
            voice: undertone::tts::Scripted::new(),
            dead: is_dead.clone(),
        }) as Box<dyn Tts>)
    };
    let refusing = Scripted::always(Step::Error("refused".into()));
    let server = live::serve(Builders {
        tts: Box::new(build),
        ..with_model(refusing)
    });
    dead.store(true, Relaxed);
    let mut call = Call::to(&server).await;
    let phrases = Phrases::default();
    for phrase in [&phrases.llm_failed, &phrases.tts_failed] {
        let (end, events) = turn(&mut call, LEVELS[0]).await;
        assert_eq!(said(&events), *phrase);
        let audio: u64 = events.iter().map(Heard::audio_ms).sum();
        let words = phrase.split_whitespace().count() as u64;
        assert!(audio >= words * 200, "{audio} ms of audio of {words} words");
        let delay = heard_at(&events, phrase) - end;
        println!("no voice: {phrase:?} heard {delay:?} after the end of speech");
    }
}

/// A voice that fails on command.
struct DeadVoice {
    voice: undertone::tts::Scripted,
    dead: Arc<AtomicBool>,
}

impl Tts for DeadVoice {
    fn name(&self) -> &str {
        "dead"
    }

    fn sample_rate(&self) -> u32 {
        self.voice.sample_rate()
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        match self.dead.load(Relaxed) {
            true => Err(TtsError::Run("dead".into())),
            false => self.voice.speak(text),
        }
    }
}

/// A model's server that dies once, in the middle of a tool call.
#[derive(Clone)]
struct DiesInCall {
    /// The number of answers that broke off.
    died: Arc<AtomicUsize>,
    /// Whether it refuses every request after that.
    for_good: bool,
}

const CALLS: &str = "<speech>Let me count.</speech><tool>calculate(expression=\"20 + 3\")</tool>";
const COUNTED: &str = "<speech>It is twenty three.</speech>";

impl DiesInCall {
    async fn open(for_good: bool) -> (Self, std::net::SocketAddr) {
        let server = Self {
            died: Arc::default(),
            for_good,
        };
        let routes = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(Self::answer))
            .with_state(server.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (server, address)
    }

    async fn answer(
        axum::extract::State(server): axum::extract::State<Self>,
        body: String,
    ) -> axum::response::Response {
        use axum::response::IntoResponse;
        let chunk = |text: &str, reason: Option<&str>| {
            let delta = serde_json::json!({"content": text});
            let chunk = serde_json::json!({"choices": [{"delta": delta, "finish_reason": reason}]});
            format!("data: {chunk}\n\n")
        };
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let messages = body["messages"].as_array().expect("messages");
        let last = messages.last().expect("one")["content"].to_string();
        if server.for_good && server.died.load(Relaxed) > 0 {
            return axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        let body = if last.contains("broke off") {
            axum::body::Body::from(chunk(CALLS, Some("stop")))
        } else if last.contains("<tool_result") {
            axum::body::Body::from(chunk(COUNTED, Some("stop")))
        } else {
            server.died.fetch_add(1, Relaxed);
            let begun = chunk(&CALLS[..CALLS.len() - 12], None);
            let begun = futures_util::stream::once(async { Ok(begun) });
            let dies = async {
                // The text so far has to be sent first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(std::io::Error::other("dies"))
            };
            let dies = futures_util::stream::once(dies);
            axum::body::Body::from_stream(begun.chain(dies))
        };
        ([("content-type", "text/event-stream")], body).into_response()
    }
}

/// Engines with this model and the tools that every server has.
fn with_tools(llm: Arc<dyn Llm>) -> Builders {
    let mut tools = undertone::tools::Registry::new();
    undertone::tools::builtin::register(&mut tools).expect("no duplicates");
    let mut engines = Builders {
        tools: tools.into(),
        ..live::without_models(llm)
    };
    engines.policy.speculation.preemptive = false;
    engines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_dies_in_mid_call_and_comes_back_is_asked_again() {
    let (model, address) = DiesInCall::open(false).await;
    let server = live::serve(with_tools(Arc::new(Cold(remote(address)))));
    let mut call = Call::to(&server).await;
    let (_, events) = turn(&mut call, LEVELS[0]).await;
    let words = said(&events);
    assert!(words.starts_with("Let me count."), "{words}");
    assert!(words.ends_with("It is twenty three."), "{words}");
    assert!(!words.contains(&Phrases::default().llm_failed), "{words}");
    let done = &events.last().expect("events").event["response"];
    assert_eq!(done["status"], "completed");
    assert_eq!(model.died.load(Relaxed), 1);
    let failed = |heard: &Heard| heard.is("error") || heard.is("undertone.stage_failed");
    assert!(!events.iter().any(failed), "{words}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fallback_answers_if_the_model_dies_in_mid_call_for_good() {
    let (model, address) = DiesInCall::open(true).await;
    let backup = Scripted::default()
        .on(Cue::result("calculate"), COUNTED)
        .on(
            Cue::Always,
            "<speech>Sorry, once more: it is twenty three.</speech>",
        );
    let llm =
        undertone::llm::Fallback::new(Arc::new(Cold(remote(address))), Arc::new(backup.clone()));
    let server = live::serve(with_tools(Arc::new(llm)));
    let mut call = Call::to(&server).await;
    let (_, events) = turn(&mut call, LEVELS[0]).await;
    let words = said(&events);
    assert!(words.starts_with("Let me count."), "{words}");
    assert!(
        words.ends_with("it is twenty three.") || words.ends_with("It is twenty three."),
        "{words}"
    );
    assert_eq!(model.died.load(Relaxed), 1);
    let prompt = backup.prompts().pop().expect("it was asked");
    let refused = prompt.messages.iter().any(|message| {
        matches!(message, undertone::llm::Message::ToolResult { output, .. } if output["error"].to_string().contains("broke off"))
    });
    assert!(refused, "{prompt:?}");
}
