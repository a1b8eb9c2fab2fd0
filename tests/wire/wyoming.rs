//! Tests Wyoming with real models and the `wyoming` package from PyPI, which Home Assistant uses,
//! and with misbehaving clients.

use crate::{agents, common, support};
use common::Errors;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use support::log::Log;
use support::{PATIENCE, Server, live, local};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;
use undertone::asr::{Asr, AsrError, Hints, Recognised};
use undertone::config::{Environment, Flags};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Llm, Phrases};
use undertone::server::{App, ServerSettings};
use undertone::session::{self, Builders, Engines, SessionHandle};
use undertone::transport::wyoming::{
    ConversationMemory, ConversationName, ConversationStore, Service,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");

/// A server with a Wyoming listener, and its address.
fn serve(settings: ServerSettings, engines: &Arc<Engines>) -> (Server, SocketAddr) {
    serve_keeping(settings, engines, Arc::new(ConversationMemory::default()))
}

/// A server with a Wyoming listener and this store of conversations, and its address.
fn serve_keeping(
    settings: ServerSettings,
    engines: &Arc<Engines>,
    conversations: Arc<dyn ConversationStore>,
) -> (Server, SocketAddr) {
    let door = Service::new(engines.clone(), conversations);
    serve_at(settings, engines, door)
}

/// A server with this Wyoming listener, and its address.
fn serve_at(
    settings: ServerSettings,
    engines: &Arc<Engines>,
    door: Service,
) -> (Server, SocketAddr) {
    let listener = undertone::server::bind(([127, 0, 0, 1], 0).into());
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let opener = engines.clone();
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let app = App {
        doors: vec![(listener, Arc::new(door))],
        ..App::new(settings, sessions)
    };
    (Server::serve(app), address)
}

/// A server with a Wyoming listener and no models, whose recogniser always returns "How are you?",
/// and its address.
fn serve_told(settings: ServerSettings, llm: impl Llm + 'static) -> (Server, SocketAddr) {
    let engines = Engines::start(live::without_models(Arc::new(llm))).expect("engines");
    serve(settings, &engines)
}

/// Runs Home Assistant's client and returns its report.
async fn home(address: SocketAddr, mode: &str, rest: &[&str]) -> Value {
    let python = Path::new(FOLDER).join(".venv/bin/python");
    assert!(python.exists(), "no client: run `make test-tools`");
    let port = address.port().to_string();
    let mut client = Command::new(python);
    client
        .current_dir(FOLDER)
        .args(["home.py", &port, mode])
        .args(rest);
    let output = timeout(6 * PATIENCE, client.kill_on_drop(true).output()).await;
    let output = output.expect("in time").expect("the client runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{mode} {rest:?}: {said}\n{complained}"
    );
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("a report")
}

/// Writes a 16-bit WAV file with the same samples on each channel.
fn write(path: &Path, rate: u32, channels: u16, samples: &[f32]) {
    let spec = hound::WavSpec {
        channels,
        sample_rate: rate,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut file = hound::WavWriter::create(path, spec).expect("a file");
    for sample in undertone::audio::to_i16(samples) {
        for _ in 0..channels {
            file.write_sample(sample).expect("written");
        }
    }
    file.finalize().expect("written");
}

/// Everything that Home Assistant uses, on one server with real models.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn home_assistants_client_is_heard_spoken_to_and_answered() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let engines = undertone::cli::engines::all(&configured(folder.path())).expect("engines");
    let (server, address) = serve(local(), &engines);
    let info = home(address, "info", &[]).await;
    let expected = json!({
        "asr": ["undertone", [["en"]]],
        "tts": ["undertone", [["en"]], true],
        "handle": [["undertone", [["en", "de", "es"]]]],
        "pong": "still there?",
    });
    assert_eq!(info, expected);
    speaks_and_hears(address, folder.path()).await;
    hears_strangers(address, folder.path()).await;
    answers(address).await;
    does_not_pretend(address).await;
    changes_what_was_agreed_to(address, folder.path()).await;
    assert_eq!(server.counters.bad_clients.load(Relaxed), 0);
}

/// A configuration with a note tool that asks for confirmation.
fn configured(folder: &Path) -> undertone::config::Config {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/add_note.toml");
    let notes = std::fs::read_to_string(shipped).expect("a tool");
    let notes = notes.replace("data/notes.json", "notes.json");
    let notes = format!("{notes}\n[confirm]\nspoken = true\n");
    std::fs::create_dir(folder.join("tools")).expect("a folder");
    std::fs::write(folder.join("tools/add_note.toml"), notes).expect("a tool");
    let config = folder.join("undertone.toml");
    let text = format!(
        "[models]\ndir = \"{0}\"\n[asr]\nmodel = \"{0}/whisper-tiny.en\"\n\
         [session]\ngreeting = \"Welcome home.\"\n\
         [tools]\nfolder = \"tools\"\njournal = \"journal.jsonl\"\n",
        common::weights().display()
    );
    std::fs::write(&config, text).expect("a configuration");
    let flags = Flags {
        config: Some(config),
        ..Flags::default()
    };
    undertone::config::load(&flags, &Environment::default())
        .expect("a configuration")
        .config
}

const SENTENCE: &str =
    "What time is it in London, and what will the weather be like tomorrow morning?";

/// How often a sentence is tried: the voice varies, and may be misheard once.
const TRIES: usize = 4;

/// The recogniser understands the voice's speech, whole and streamed, in each format.
async fn speaks_and_hears(address: SocketAddr, folder: &Path) {
    let path = |name: &str| folder.join(name).display().to_string();
    let (whole, pieces, stereo) = (path("whole.wav"), path("pieces.wav"), path("stereo.wav"));
    let (first, last) = SENTENCE.split_at(20);
    let in_pieces = json!([
        "audio-start",
        "audio-chunk",
        "audio-stop",
        "synthesize-stopped"
    ]);
    let mut misheard = Vec::new();
    for _ in 0..TRIES {
        let spoken = home(address, "synthesize", &[&whole, SENTENCE]).await;
        let at_once = json!(["audio-start", "audio-chunk", "audio-stop"]);
        assert_eq!(
            (&spoken["types"], &spoken["rate"]),
            (&at_once, &json!(22_050))
        );
        let streamed = home(address, "stream", &[&pieces, first, last]).await;
        assert_eq!(streamed["types"], in_pieces);
        in_stereo(Path::new(&whole), Path::new(&stereo));
        misheard.clear();
        for (mode, path) in [
            ("transcribe", &whole),
            ("transcribe", &pieces),
            ("transcribe", &stereo),
            ("dribble", &stereo),
        ] {
            let heard = home(address, mode, &[path]).await;
            let text = heard["text"].as_str().expect("text");
            let mut errors = Errors::default();
            errors.add(SENTENCE, text);
            if errors.wrong > 3 {
                misheard.push(format!("{mode} {path}: {text}"));
            }
        }
        if misheard.is_empty() {
            return;
        }
    }
    panic!("{misheard:#?}");
}

/// Converts a WAV file to another rate and two channels.
fn in_stereo(from: &Path, to: &Path) {
    let samples = common::read(from);
    write(to, 44_100, 2, &common::resampled(&samples, 16_000, 44_100));
}

async fn hears_strangers(address: SocketAddr, folder: &Path) {
    let mut errors = Errors::default();
    // Three voices.
    for clip in common::speech::clips().iter().step_by(7).take(3) {
        let path = folder.join(&clip.name);
        write(&path, 16_000, 1, &clip.samples);
        let heard = home(address, "transcribe", &[&path.display().to_string()]).await;
        errors.add(&clip.text, heard["text"].as_str().expect("text"));
    }
    assert!(errors.percent() <= 20.0, "{errors:?}");
}

/// Home Assistant opens a connection per sentence, and sends a conversation id.
async fn answers(address: SocketAddr) {
    let sums = ["What is 12 times 12?", "Say that again."];
    let answers = json!([
        {"handled": "12 times 12 is 144."},
        {"handled": "I said: 12 times 12 is 144."},
    ]);
    let named = home(address, "ask", &["sums", sums[0], sums[1]]).await;
    assert_eq!(named, answers);
    assert_eq!(home(address, "talk", &sums).await, answers);
    assert_eq!(home(address, "nameless", &sums).await, answers);
    let other = home(address, "ask", &["other", sums[1]]).await;
    assert_eq!(other, json!([{"handled": "I have not said anything yet."}]));
}

/// Home Assistant shows a declined request as an error, not as done.
async fn does_not_pretend(address: SocketAddr) {
    let refused = home(
        address,
        "ask",
        &["light", "Turn on the light in the kitchen."],
    )
    .await;
    let said = refused[0]["not handled"].as_str();
    let said = said.unwrap_or_else(|| panic!("{refused}"));
    assert!(said.starts_with("I can't do that"), "{said}");
}

/// A call with side effects waits for the confirmation, which arrives over another connection.
async fn changes_what_was_agreed_to(address: SocketAddr, folder: &Path) {
    let notes = || std::fs::read_to_string(folder.join("tools/notes.json")).unwrap_or_default();
    let asked = home(address, "ask", &["notes", "Add a note buy milk"]).await;
    let question = asked[0]["handled"].as_str().expect("a question");
    assert!(
        question.contains("buy milk") && question.ends_with('?'),
        "{question}"
    );
    assert!(!notes().contains("milk"), "{}", notes());
    let agreed = home(address, "ask", &["notes", "Yes, add it, thanks."]).await;
    assert_eq!(agreed, json!([{"handled": "Okay, I noted: buy milk."}]));
    assert!(notes().contains("buy milk"), "{}", notes());
}

#[tokio::test]
async fn an_answer_has_everything_that_the_agent_says() {
    let llm = Scripted::default()
        .on(
            Cue::words("How are you?"),
            "<speech>I am well. And you?</speech>",
        )
        .on(Cue::words("I am fine."), "<speech>Good.</speech>");
    let (_server, address) = serve_told(local(), llm);
    let mut guest = Guest::connect(address).await;
    for (sentence, answer) in [
        ("How are you?", "I am well. And you?"),
        ("I am fine.", "Good."),
    ] {
        let sentence = json!({"text": sentence, "language": "en-GB"});
        guest.send("transcript", sentence, &[]).await;
        let (kind, data, _) = guest.event().await.expect("an answer");
        assert_eq!((&*kind, &data["text"]), ("handled", &json!(answer)));
    }
}

#[tokio::test]
async fn an_apology_is_not_an_answer() {
    let (_server, address) = serve_told(local(), Scripted::default());
    let mut guest = Guest::connect(address).await;
    guest
        .send("transcript", json!({"text": "Who are you?"}), &[])
        .await;
    let (kind, data, _) = guest.event().await.expect("an answer");
    let apology = &Phrases::default().llm_failed;
    assert_eq!((&*kind, &data["text"]), ("not-handled", &json!(apology)));
    guest.send("transcript", json!({"text": "  "}), &[]).await;
    let (kind, data, _) = guest.event().await.expect("an answer");
    assert_eq!((&*kind, &data["text"]), ("not-handled", &json!("")));
}

/// The package that Home Assistant used up to 2025.2 cannot send a conversation id, and opens a
/// connection per sentence.
#[tokio::test]
async fn a_sentence_without_an_id_continues_the_conversation() {
    let llm = Scripted::default()
        .on(Cue::Turn(1), "<speech>I am well.</speech>")
        .on(Cue::Turn(2), "<speech>Good.</speech>");
    let (server, address) = serve_told(local(), llm.clone());
    for text in ["How are you?", "And now?"] {
        let mut guest = Guest::connect(address).await;
        guest.send("transcript", json!({ "text": text }), &[]).await;
        let (kind, ..) = guest.event().await.expect("an answer");
        assert_eq!(kind, "handled");
    }
    let prompts = llm.prompts();
    let last = format!("{:?}", prompts.last().expect("a prompt").messages);
    assert!(
        last.contains("How are you?") && last.contains("I am well."),
        "{last}"
    );
    assert_eq!(server.counters.sessions.load(Relaxed), 1);
}

#[tokio::test]
async fn a_route_leads_a_conversation_to_its_agent() {
    let (engines, llm) = agents::billing_by("wyoming");
    let engines = Engines::start(engines).expect("engines");
    let (_server, address) = serve(local(), &engines);
    let mut guest = Guest::connect(address).await;
    let text = json!({"text": "My invoice is wrong."});
    guest.send("transcript", text, &[]).await;
    agents::reached_billing(&llm, "invoice").await;
    let (kind, ..) = guest.event().await.expect("an answer");
    assert_eq!(kind, "handled");
}

/// Home Assistant's speech-to-text API passes chunks on as it reads them, even if they split a
/// sample.
#[tokio::test]
async fn chunks_of_odd_length_do_not_close_the_connection() {
    let (server, address) = serve_told(local(), Scripted::default());
    let mut guest = Guest::connect(address).await;
    let tone = 8_000_i16.to_le_bytes().repeat(16_000);
    for chunk in tone.chunks(1_111) {
        guest.send("audio-chunk", pcm(), chunk).await;
    }
    guest.send("audio-stop", json!({}), &[]).await;
    let (kind, data, _) = guest.event().await.expect("an answer");
    assert_eq!(
        (&*kind, &data["text"]),
        ("transcript", &json!("How are you?"))
    );
    assert_eq!(server.counters.bad_clients.load(Relaxed), 0);
}

/// Home Assistant itself, unmodified: its integrations `wyoming`, `stt`, `tts` and `assist_pipeline`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Home Assistant itself, which is heavy: make verify"]
async fn home_assistant_itself_hears_speaks_and_runs_its_pipeline() {
    const SENTENCE: &str = "What is the temperature in the garden?";
    let folder = tempfile::tempdir().expect("a folder");
    let engines = undertone::cli::engines::all(&configured(folder.path())).expect("engines");
    let (server, address) = serve(local(), &engines);
    let python = Path::new(FOLDER).join(".venv-home/bin/python");
    assert!(python.exists(), "no Home Assistant: run `make verify`");
    let home = folder.path().join("home");
    std::fs::create_dir(&home).expect("a folder");
    let mut client = Command::new(python);
    client.current_dir(FOLDER).arg("assist.py").arg(&home);
    client.arg(address.port().to_string()).arg(SENTENCE);
    let output = client.kill_on_drop(true).output().await.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    println!("{said}");
    let report: Value =
        serde_json::from_str(said.lines().last().unwrap_or_default()).expect("a report");
    assert_eq!(report["title"], "undertone");
    assert_eq!(
        report["entities"],
        json!(["stt.undertone", "tts.undertone"])
    );
    let turns = report["turns"].as_array().expect("turns");
    let answered = || turns.iter().filter(|turn| turn["answered"] == true);
    assert_eq!(answered().count(), 2, "{report:#}");
    for turn in answered() {
        assert_eq!(turn["said"], "It is eighteen degrees in the garden.");
    }
    // Each sentence was tried several times, so the best try counts.
    for (what, expected) in [
        ("rest", SENTENCE),
        ("heard_back", "It is eighteen degrees in the garden."),
    ] {
        let mut best = usize::MAX;
        for turn in turns {
            let mut errors = Errors::default();
            errors.add(
                expected,
                turn[what].as_str().unwrap_or_else(|| panic!("{report:#}")),
            );
            best = best.min(errors.wrong);
        }
        assert!(best <= 2, "{what}: {report:#}");
    }
    assert_eq!(server.counters.bad_clients.load(Relaxed), 0);
}

/// A client of our own, which may misbehave.
struct Guest(BufReader<TcpStream>);

impl Guest {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        Self(BufReader::new(stream))
    }

    async fn bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("sent");
    }

    async fn send(&mut self, kind: &str, data: Value, payload: &[u8]) {
        let header = json!({"type": kind, "data": data, "payload_length": payload.len()});
        self.bytes(format!("{header}\n").as_bytes()).await;
        self.bytes(payload).await;
    }

    /// Half a second of a tone, as one chunk.
    async fn chunk(&mut self) {
        let tone = 8_000_i16.to_le_bytes().repeat(8_000);
        self.send("audio-chunk", pcm(), &tone).await;
    }

    /// The next event; `None` once the connection is closed.
    async fn event(&mut self) -> Option<(String, Value, Vec<u8>)> {
        let event = async {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let header: Value = serde_json::from_str(&line).expect("a header");
            let mut take = async |part: &str| {
                let length = header[part].as_u64().expect("a length");
                let mut bytes = vec![0; length as usize];
                self.0.read_exact(&mut bytes).await.expect("all of it");
                bytes
            };
            let data = take("data_length").await;
            let payload = take("payload_length").await;
            let kind = header["type"].as_str().expect("a type").to_owned();
            Some((kind, serde_json::from_slice(&data).expect("data"), payload))
        };
        timeout(PATIENCE, event).await.expect("in time")
    }

    /// Expects an error and the end of the connection. Returns the reason.
    async fn sent_away(&mut self) -> String {
        let (kind, data, _) = self.event().await.expect("a reason");
        assert_eq!(kind, "error");
        assert!(self.event().await.is_none());
        data["text"].as_str().expect("words").to_owned()
    }

    /// Reads events up to the first of this kind.
    async fn until(&mut self, last: &str) {
        while self.event().await.expect("an event").0 != last {}
    }

    async fn is_served(&mut self) {
        self.send("ping", json!({"text": "you"}), &[]).await;
        let (kind, data, _) = self.event().await.expect("an answer");
        assert_eq!((&*kind, &data["text"]), ("pong", &json!("you")));
    }
}

fn pcm() -> Value {
    json!({"rate": 16_000, "width": 2, "channels": 1})
}

/// A shared, slow store of conversations.
#[derive(Default)]
struct Scattered(Mutex<Vec<(ConversationName, SessionHandle)>>);

impl ConversationStore for Scattered {
    fn take(&self, name: &ConversationName) -> BoxFuture<'_, Option<SessionHandle>> {
        let name = name.clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            let mut kept = self.0.lock().expect("no panic");
            let goes_on =
                |(known, _): &(ConversationName, _)| known.goes_on_with(&name, Duration::ZERO);
            let at = kept.iter().rposition(goes_on)?;
            Some(kept.remove(at).1)
        })
    }

    fn put(&self, name: ConversationName, session: SessionHandle) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.lock().expect("no panic").push((name, session));
        })
    }
}

#[tokio::test]
async fn a_conversation_goes_on_at_another_server_that_shares_the_store() {
    let llm = Scripted::default()
        .on(Cue::Turn(1), "The first answer.")
        .on(Cue::Turn(2), "The second answer.");
    let engines = Engines::start(live::without_models(Arc::new(llm))).expect("engines");
    let kept = Arc::new(Scattered::default());
    let (here, first) = serve_keeping(local(), &engines, kept.clone());
    let (there, second) = serve_keeping(local(), &engines, kept);
    for (address, name, answer) in [
        (first, json!("a"), "The first answer."),
        (second, json!("a"), "The second answer."),
        (second, json!("b"), "The first answer."),
        (first, json!("b"), "The second answer."),
    ] {
        let mut client = Guest::connect(address).await;
        let sentence = json!({"text": "Go on.", "context": {"conversation_id": name}});
        client.send("transcript", sentence, &[]).await;
        let (kind, data, _) = client.event().await.expect("an answer");
        assert_eq!((&*kind, &data["text"]), ("handled", &json!(answer)));
    }
    let opened = |server: &Server| server.counters.sessions.load(Relaxed);
    assert_eq!((opened(&here), opened(&there)), (1, 1));
}

#[tokio::test]
async fn invalid_requests_get_a_reason_and_do_not_affect_others() {
    let (server, address) = serve_told(local(), Scripted::default());
    let mut bystander = Guest::connect(address).await;
    bystander.is_served().await;
    let endless = vec![b'x'; 70_000];
    let garbage: [(&[u8], &str); 6] = [
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "not the header of a Wyoming event",
        ),
        (&endless, "a line of more than 65536 bytes"),
        (
            b"{\"type\":\"ping\",\"data_length\":3}\nabc",
            "not a JSON object",
        ),
        (
            b"{\"type\":\"ping\",\"data_length\":300000}\n",
            "300000 bytes of data",
        ),
        (
            b"{\"type\":\"audio-chunk\",\"payload_length\":5000000}\n",
            "5000000 bytes of payload",
        ),
        (&[0xff, 0xfe, b'\n'], "not the header of a Wyoming event"),
    ];
    for (bytes, reason) in garbage {
        let mut stranger = Guest::connect(address).await;
        stranger.bytes(bytes).await;
        let said = stranger.sent_away().await;
        assert!(said.contains(reason), "{said}");
    }
    let long = "x".repeat(5_000);
    let wrong = [
        (
            "transcribe",
            json!({"language": "de"}),
            "the language \"de\"",
        ),
        (
            "audio-chunk",
            json!({"rate": 16_000}),
            "audio-chunk: missing field",
        ),
        (
            "audio-start",
            json!({"rate": 16_000, "width": 4, "channels": 1}),
            "width: 4",
        ),
        (
            "synthesize",
            json!({"text": "a", "text_format": "ssml"}),
            "format \"ssml\"",
        ),
        (
            "synthesize",
            json!({"text": long}),
            "more than 4096 characters",
        ),
        (
            "transcript",
            json!({"text": long}),
            "more than 4096 characters",
        ),
        (
            "transcript",
            json!({"text": "a", "context": {"conversation_id": long}}),
            "conversation_id",
        ),
    ];
    for (kind, data, reason) in wrong {
        let mut client = Guest::connect(address).await;
        client.send(kind, data, &[]).await;
        let said = client.sent_away().await;
        assert!(said.contains(reason), "{said}");
    }
    // Unknown events are ignored.
    bystander.send("run-satellite", json!({}), &[]).await;
    bystander.is_served().await;
    assert_eq!(server.counters.bad_clients.load(Relaxed), 13);
}

/// Bytes were counted, of which a Cyrillic letter has two: a long answer broke off in the middle.
#[tokio::test]
async fn a_long_text_is_measured_in_characters() {
    let (_server, address) = serve_told(local(), Scripted::default());
    let text = json!({"text": "Это хорошо. ".repeat(250)});
    let mut client = Guest::connect(address).await;
    client.send("synthesize", text.clone(), &[]).await;
    client.until("audio-stop").await;
    client.send("synthesize-start", json!({}), &[]).await;
    client.send("synthesize-chunk", text, &[]).await;
    client.send("synthesize-stop", json!({}), &[]).await;
    client.until("synthesize-stopped").await;
}

/// A recogniser of two languages, and a voice of each.
struct Two;

impl Asr for Two {
    fn name(&self) -> &str {
        "scripted"
    }

    fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
        Ok("Hello.".into())
    }

    fn hear_with(&mut self, _: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        let language = hints.language.as_deref();
        let is_german = language.is_some_and(|tag| tag.starts_with("de"));
        Ok(if is_german { "Guten Tag." } else { "Hello." }.into())
    }

    fn languages(&self) -> Vec<String> {
        vec!["en".into(), "de".into()]
    }
}

#[tokio::test]
async fn a_client_is_heard_and_answered_in_each_language_that_is_announced() {
    let llm = Scripted::always("<speech>Guten Tag.</speech>");
    let engines = Engines::start(Builders {
        asr: Box::new(|| Ok(Box::new(Two))),
        ..live::without_models(Arc::new(llm.clone()))
    });
    let (_server, address) = serve(local(), &engines.expect("engines"));
    let mut client = Guest::connect(address).await;
    client.send("describe", json!({}), &[]).await;
    let (_, info, _) = client.event().await.expect("an answer");
    assert_eq!(
        info["asr"][0]["models"][0]["languages"],
        json!(["en", "de"])
    );
    let answered = info["handle"][0]["models"][0]["languages"].clone();
    assert_eq!(answered, json!(["en", "de", "es"]));

    for (language, text) in [("de_DE", "Guten Tag."), ("en", "Hello.")] {
        client
            .send("transcribe", json!({"language": language}), &[])
            .await;
        let format = json!({"rate": 16_000, "width": 2, "channels": 1});
        client.send("audio-start", format.clone(), &[]).await;
        client.send("audio-chunk", format, &[0; 3_200]).await;
        client.send("audio-stop", json!({}), &[]).await;
        let (kind, heard, _) = client.event().await.expect("an answer");
        assert_eq!((&*kind, &heard["text"]), ("transcript", &json!(text)));
    }

    let sentence = json!({"text": "Wie geht es Ihnen?", "language": "de"});
    client.send("transcript", sentence, &[]).await;
    let (kind, answer, _) = client.event().await.expect("an answer");
    assert_eq!((&*kind, &answer["text"]), ("handled", &json!("Guten Tag.")));
    let prompt = llm.asked(Cue::words("Wie geht es")).await;
    assert_eq!(prompt.demands.language.as_deref(), Some("de"));

    let voice = json!({"text": "Guten Tag.", "voice": {"language": "de"}});
    client.send("synthesize", voice, &[]).await;
    let (kind, _, _) = client.event().await.expect("an answer");
    assert_eq!(kind, "audio-start");
}

const HOUSE: &str = "Das Haus wurde im 19. Jahrhundert gebaut.";

/// The dot behind a number ended the clause, as in English: "Das Haus wurde im 19." And a request without a voice was
/// spoken by the English one, whatever the server's language is.
#[tokio::test]
async fn german_is_cut_by_its_own_rules_and_spoken_by_a_german_voice() {
    let (by_name, by_language) = (json!({"name": "thorsten"}), json!({"language": "de_DE"}));
    for (own, voice) in [
        (None, by_name.clone()),
        (None, by_language.clone()),
        (Some("de"), by_name),
        (Some("de"), by_language),
        (Some("de"), Value::Null),
    ] {
        let voices = ["en", "de"].map(live::Keeps::new);
        let llm = Arc::new(Scripted::default());
        let [english, german] = &voices;
        let builders = live::with_voices(own, [english, german], live::without_models(llm));
        let (_server, address) = serve(local(), &Engines::start(builders).expect("engines"));
        let mut client = Guest::connect(address).await;
        let whole = json!({"text": HOUSE, "voice": voice});
        client.send("synthesize", whole, &[]).await;
        client.until("audio-stop").await;
        assert_eq!(german.take("Jahrhundert"), [HOUSE], "{own:?}, {voice}");

        let start = json!({ "voice": voice });
        client.send("synthesize-start", start, &[]).await;
        let text = json!({ "text": HOUSE });
        client.send("synthesize-chunk", text, &[]).await;
        client.send("synthesize-stop", json!({}), &[]).await;
        client.until("synthesize-stopped").await;
        assert_eq!(german.take("Jahrhundert"), [HOUSE], "{own:?}, {voice}");
        assert!(english.take("Haus").is_empty(), "{own:?}, {voice}");
    }
}

/// Home Assistant keeps the name of a voice that was removed, and fell silent.
#[tokio::test]
async fn a_voice_that_is_no_longer_there_is_replaced_by_the_servers() {
    let (log, _guard) = Log::begin(tracing::Level::INFO);
    let voices = ["en", "de"].map(live::Keeps::new);
    let [english, german] = &voices;
    let llm = Arc::new(Scripted::default());
    let builders = live::with_voices(Some("de"), [english, german], live::without_models(llm));
    let (_server, address) = serve(local(), &Engines::start(builders).expect("engines"));
    let mut client = Guest::connect(address).await;
    for (voice, speaks) in [
        (json!({"name": "removed"}), german),
        (json!({"name": "removed", "language": "en"}), english),
    ] {
        let request = json!({"text": HOUSE, "voice": voice});
        client.send("synthesize", request, &[]).await;
        client.until("audio-stop").await;
        assert!(!speaks.take("Haus").is_empty(), "{voice}");
    }
    let log = log.text();
    let told = log.lines().filter(|line| line.contains("removed"));
    assert_eq!(told.count(), 1, "{log}");
}

/// Home Assistant was told the language that the server had when it started.
#[tokio::test]
async fn after_a_reload_a_transcript_has_the_new_language() {
    let engines = |language: &str| {
        let mut builders = live::without_models(Arc::new(Scripted::default()));
        builders.policy.speaker.language = Some(language.to_owned());
        Engines::start(builders).expect("engines")
    };
    let current = Arc::new(RwLock::new(engines("es")));
    let conversations = Arc::new(ConversationMemory::default());
    let door = Service::new(current.clone(), conversations);
    let (_server, address) = serve_at(local(), &engines("es"), door);
    let mut client = Guest::connect(address).await;
    for language in ["es", "de"] {
        *current.write().expect("whole") = engines(language);
        client.chunk().await;
        client.send("audio-stop", json!({}), &[]).await;
        let (kind, heard, _) = client.event().await.expect("an answer");
        assert_eq!(
            (&*kind, &heard["language"]),
            ("transcript", &json!(language))
        );
    }
}

#[tokio::test]
async fn a_recording_without_an_end_is_not_kept() {
    let (_server, address) = serve_told(local(), Scripted::default());
    let mut client = Guest::connect(address).await;
    let two_minutes = vec![0; 120 * 2 * 16_000];
    for _ in 0..6 {
        client.send("audio-chunk", pcm(), &two_minutes).await;
    }
    let said = client.sent_away().await;
    assert!(said.contains("more than 10 minutes"), "{said}");
}

/// A recording of more than 30 s was refused, and so was one of 8 s in a single chunk.
#[tokio::test]
async fn a_long_recording_in_large_chunks_is_transcribed_up_to_each_pause() {
    let lengths = |audio: &[f32]| Ok::<_, AsrError>(format!("{} ms.", audio.len() / 16));
    let engines = Engines::start(Builders {
        asr: Box::new(move || Ok(Box::new(live::Hears(lengths)))),
        ..live::without_models(Arc::new(Scripted::default()))
    });
    let (_server, address) = serve(local(), &engines.expect("engines"));
    let mut client = Guest::connect(address).await;
    let tone = |seconds: usize| 8_000_i16.to_le_bytes().repeat(seconds * 16_000);
    let pause = vec![0; 2 * 16_000];
    let recording = [tone(15), pause.clone(), tone(20), pause, tone(20)].concat();
    for chunk in recording.chunks(1_000_000) {
        client.send("audio-chunk", pcm(), chunk).await;
    }
    client.send("audio-stop", json!({}), &[]).await;
    let (kind, heard, _) = client.event().await.expect("an answer");
    let each = "15500 ms. 21000 ms. 20500 ms.";
    assert_eq!((&*kind, &heard["text"]), ("transcript", &json!(each)));
}

/// An agent that waits for its tools writes nothing for a while, and the rest of its words was not spoken.
#[tokio::test]
async fn a_text_that_pauses_is_read_out_to_its_end() {
    let mut settings = local();
    settings.socket.gone_after = Duration::from_secs(1);
    let (_server, address) = serve_told(settings, Scripted::default());
    let mut agent = Guest::connect(address).await;
    agent.send("synthesize-start", json!({}), &[]).await;
    agent.until("audio-start").await;
    // A client that falls silent in a recording is gone after a second, which has then passed for both.
    let mut silent = Guest::connect(address).await;
    silent.chunk().await;
    assert!(silent.event().await.is_none());
    let rest = json!({"text": "It is noon."});
    agent.send("synthesize-chunk", rest, &[]).await;
    agent.send("synthesize-stop", json!({}), &[]).await;
    agent.until("audio-chunk").await;
    agent.until("synthesize-stopped").await;
}

#[tokio::test]
async fn a_client_that_vanishes_during_audio_frees_its_place() {
    let mut settings = ServerSettings {
        max_sessions: 1,
        ..local()
    };
    settings.socket.gone_after = Duration::from_millis(500);
    let (server, address) = serve_told(settings, Scripted::default());
    let admitted = async || loop {
        let mut client = Guest::connect(address).await;
        client.send("ping", json!({"text": "you"}), &[]).await;
        // Its place may be freed a moment after its connection is closed.
        match client.event().await {
            Some((kind, ..)) if kind == "pong" => return client,
            _ => {}
        }
    };
    // One client falls silent in the middle of a chunk, another disconnects there.
    let mut silent = admitted().await;
    silent.chunk().await;
    silent
        .bytes(b"{\"type\":\"audio-chunk\",\"payload_length\":9}\n1")
        .await;
    let mut gone = timeout(PATIENCE, admitted()).await.expect("a place");
    gone.chunk().await;
    gone.bytes(b"{\"type\":\"aud").await;
    drop(gone);
    timeout(PATIENCE, admitted()).await.expect("a place");
    assert_eq!(server.counters.vanished_clients.load(Relaxed), 2);
}

#[tokio::test]
async fn a_client_beyond_the_limit_gets_a_reason_and_is_counted() {
    let settings = ServerSettings {
        max_sessions: 1,
        ..local()
    };
    let (server, address) = serve_told(settings, Scripted::default());
    let mut first = Guest::connect(address).await;
    first.is_served().await;
    let mut second = Guest::connect(address).await;
    second.send("describe", json!({}), &[]).await;
    let said = second.sent_away().await;
    assert!(said.contains("busy"), "{said}");
    let metrics = server.get("/metrics", "").await;
    let counted = r#"undertone_refused_connections_total{reason="full"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    first.is_served().await;
}

#[tokio::test]
async fn a_drain_lets_a_recording_end_and_admits_none() {
    let settings = ServerSettings {
        drain_deadline: Duration::from_secs(60),
        ..local()
    };
    let (mut server, address) = serve_told(settings, Scripted::default());
    let (mut idle, mut busy) = (Guest::connect(address).await, Guest::connect(address).await);
    idle.is_served().await;
    busy.is_served().await;
    busy.chunk().await;
    busy.is_served().await;
    server.shutdown.cancel();
    assert!(idle.sent_away().await.contains("shuts down"));
    Guest::connect(address).await.sent_away().await;
    busy.chunk().await;
    busy.send("audio-stop", json!({}), &[]).await;
    let (kind, data, _) = busy.event().await.expect("an answer");
    assert_eq!(
        (&*kind, &data["text"]),
        ("transcript", &json!("How are you?"))
    );
    assert!(busy.sent_away().await.contains("shuts down"));
    drop((idle, busy));
    let result = timeout(PATIENCE, &mut server.task).await;
    result
        .expect("in time")
        .expect("no panic")
        .expect("no error");
}
