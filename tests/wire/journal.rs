//! Tests the journal with the real program, killed during a call with side effects, and on a full
//! disk.

use crate::{common, support};
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Client;
use support::program::until;
use support::twilio;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use undertone::tools::journal::{Begun, Intent, Journal, JournalFile};

/// The longest start, in which all models are verified and loaded, even on a slow machine.
const START: Duration = Duration::from_secs(120);

/// A language model that books a room whenever it is asked to, and the booking service, which
/// counts bookings and answers only if told to.
#[derive(Clone)]
pub(super) struct World {
    pub(super) bookings: Arc<AtomicUsize>,
    booked: mpsc::Sender<String>,
    answers: bool,
    /// The last message of each prompt.
    prompts: Arc<Mutex<Vec<String>>>,
}

async fn complete(
    State(world): State<World>,
    body: String,
) -> ([(&'static str, &'static str); 1], String) {
    let request: Value = serde_json::from_str(&body).expect("JSON");
    let messages = request["messages"].as_array().expect("messages");
    let last = messages.last().expect("one")["content"].to_string();
    world.prompts.lock().expect("whole").push(last.clone());
    let answer = match last.contains("Book") {
        true => r#"<tool>book_room(who="Ann Canary")</tool>"#,
        false => "<speech>Hello.</speech>",
    };
    let piece = json!({"choices": [{"delta": {"content": answer}}]});
    let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    let stream = format!("data: {piece}\n\ndata: {stop}\n\ndata: [DONE]\n\n");
    ([("content-type", "text/event-stream")], stream)
}

async fn book(State(world): State<World>, body: String) -> String {
    world.bookings.fetch_add(1, Ordering::SeqCst);
    world.booked.send(body).await.expect("the test listens");
    if world.answers {
        return r#"{"room": 7}"#.into();
    }
    std::future::pending().await
}

/// Serves a world at an address of its own.
pub(super) async fn world(answers: bool) -> (World, mpsc::Receiver<String>, String) {
    let (booked, bookings) = mpsc::channel(8);
    let world = World {
        bookings: Arc::default(),
        booked,
        answers,
        prompts: Arc::default(),
    };
    let routes = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/book", post(book))
        .with_state(world.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let service = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (world, bookings, service)
}

/// A folder with a configuration for the world, and a journal.
fn home(service: &str) -> tempfile::TempDir {
    home_with(&declaration(service), service)
}

fn home_with(tool: &str, service: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path();
    std::fs::create_dir(folder.join("tools")).expect("made");
    std::fs::write(folder.join("tools/book.toml"), tool).expect("written");
    let settings = format!(
        "[server]\nport = 0\n[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\n\
         base_url = \"{service}/v1\"\n[tools]\njournal = \"journal.jsonl\"\n"
    );
    std::fs::write(folder.join("undertone.toml"), settings).expect("written");
    home
}

fn declaration(service: &str) -> String {
    format!(
        r#"
name = "book_room"
kind = "http"
description = "Books a room."
effect = "reversible"
timeout_ms = 120000
[parameters.properties.who]
type = "string"
[parameters]
required = ["who"]
[http]
method = "POST"
allow_private = true
url = "{service}/book"
json = {{ who = "{{{{ who }}}}" }}
"#
    )
}

/// A running server and its address.
struct Served {
    process: Child,
    address: String,
}

async fn serve(folder: &Path, log: &Path) -> Served {
    let program = Command::new(env!("CARGO_BIN_EXE_undertone"));
    let log = std::fs::File::create(log).expect("a log");
    start(program, folder, log.into()).await
}

async fn start(mut command: Command, folder: &Path, log: Stdio) -> Served {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNDERTONE_") {
            command.env_remove(name);
        }
    }
    let mut process = command
        .current_dir(folder)
        .arg("serve")
        .env("UNDERTONE_MODELS", common::weights())
        .env("XDG_STATE_HOME", folder)
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let first = timeout(START, lines.next_line()).await.expect("in time");
    let first = first.expect("text").expect("it ended; its log tells why");
    let address = first.rsplit('/').next().expect("an address").to_owned();
    Served { process, address }
}

impl Served {
    /// A client that has sent `text` and requested a response.
    async fn asked(&self, text: &str) -> Client {
        let url = format!("ws://{}/v1/realtime?caller=%2B15551230000", self.address);
        let (socket, _) = tokio_tungstenite::connect_async(url).await.expect("open");
        let mut client = Client {
            socket,
            protocol: None,
        };
        let item = json!({"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": text}]});
        client
            .send(json!({"type": "conversation.item.create", "item": item}))
            .await;
        client.send(json!({"type": "response.create"})).await;
        client
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_interrupted_by_kill_9_is_not_run_again_and_is_reported() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(false).await;
    let home = home(&service);
    let folder = home.path();

    let mut first = serve(folder, &folder.join("first.log")).await;
    let client = first.asked("Book a room for Ann.").await;
    let body = timeout(START, bookings.recv()).await.expect("in time");
    assert!(body.expect("a call").contains("Ann Canary"));
    first.process.kill().await.expect("SIGKILL");
    drop(client);

    let path = folder.join("journal.jsonl");
    let journal = std::fs::read_to_string(&path).expect("a journal");
    let lines: Vec<Value> = journal
        .lines()
        .map(|line| serde_json::from_str(line).expect("a whole line"))
        .collect();
    assert_eq!(lines.len(), 1, "{journal}");
    assert_eq!(lines[0]["line"], "intent");
    let key = lines[0]["key"].as_str().expect("a key");

    let mut second = serve(folder, &folder.join("second.log")).await;
    let log = std::fs::read_to_string(folder.join("second.log")).expect("a log");
    let told = log.lines().find(|line| line.contains("not known"));
    let told = told.unwrap_or_else(|| panic!("nobody is told: {log}"));
    assert!(told.contains("WARN") && told.contains("book_room") && told.contains(key));
    assert!(!log.contains("Canary"), "what was said is not for the log");

    let mut client = second.asked("How are you?").await;
    let events = client.until("response.done").await;
    let done = &events.last().expect("one")["response"];
    assert_eq!(done["status"], "completed", "{done}");
    second.process.kill().await.expect("SIGKILL");
    assert_eq!(world.bookings.load(Ordering::SeqCst), 1);

    // A repetition of this call would be refused.
    let now = lines[0]["time"]
        .as_str()
        .expect("a time")
        .parse()
        .expect("a time");
    let journal = Journal::new(JournalFile::open(&path, now).expect("a journal"));
    let again = Intent {
        key: key.to_owned(),
        call: None,
        tool: "book_room".into(),
        arguments: lines[0]["arguments"]
            .as_object()
            .expect("arguments")
            .clone(),
        time: now,
        span: None,
    };
    let again = journal.begin(again).await;
    assert_eq!(again.expect("known"), Begun::Unknown);
}

/// The declaration of a tool that books once per caller and guest.
pub(super) fn booking_once(service: &str) -> String {
    let once = "once_per = \"caller + who\"\nfixed_trust = \"claimed\"\ntimeout_ms = 120000";
    declaration(service).replace("timeout_ms = 120000", once)
}

impl World {
    /// Whether a prompt since the last call has all of `words` in its last message. Other prompts may come
    /// after it, such as the warm-up of a server that has just started.
    pub(super) fn was_told(&self, words: &[&str]) -> bool {
        let prompts = std::mem::take(&mut *self.prompts.lock().expect("whole"));
        let told = |prompt: &String| words.iter().all(|word| prompt.contains(word));
        let is_told = prompts.iter().any(told);
        if !is_told {
            println!("{prompts:#?}");
        }
        is_told
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_booking_that_a_kill_interrupted_is_not_made_again_by_the_next_call() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(false).await;
    // The next call waits as long as this one might still run.
    let booking = booking_once(&service).replace("timeout_ms = 120000", "timeout_ms = 3000");
    let home = home_with(&booking, &service);
    let folder = home.path();
    let mut first = serve(folder, &folder.join("first.log")).await;
    let client = first.asked("Book a room for Ann.").await;
    timeout(START, bookings.recv()).await.expect("in time");
    first.process.kill().await.expect("SIGKILL");
    drop(client);

    let second = serve(folder, &folder.join("second.log")).await;
    second.book().await;
    assert_eq!(
        world.bookings.load(Ordering::SeqCst),
        1,
        "it was booked twice"
    );
    assert!(world.was_told(&["whether it took effect is not known"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_lost_the_line_and_books_again_has_booked_once() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(true).await;
    let home = home_with(&booking_once(&service), &service);
    let folder = home.path();
    let mut served = serve(folder, &folder.join("first.log")).await;
    let lost = served.asked("Book a room for Ann.").await;
    timeout(START, bookings.recv()).await.expect("in time");
    drop(lost);

    served.book().await;
    assert_eq!(
        world.bookings.load(Ordering::SeqCst),
        1,
        "it was booked twice"
    );
    assert!(world.was_told(&["already_done", "room"]));

    served.process.kill().await.expect("SIGKILL");
    let served = serve(folder, &folder.join("second.log")).await;
    served.book().await;
    assert_eq!(world.bookings.load(Ordering::SeqCst), 1, "after a restart");
    assert!(world.was_told(&["already_done", "room"]));

    // The audit log has all three calls, of three sessions, and no words.
    let audit = until(async || {
        let text = std::fs::read_to_string(folder.join("undertone/audit.jsonl")).ok()?;
        (text.lines().count() == 3).then_some(text)
    })
    .await;
    let lines: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let results: Vec<_> = lines
        .iter()
        .map(|line| line["result"].as_str().expect("text"))
        .collect();
    assert_eq!(results, ["done", "already_done", "already_done"]);
    assert_ne!(lines[0]["session"], lines[1]["session"]);
    for line in &lines {
        assert_eq!(
            (&line["tool"], &line["transport"]),
            (&json!("book_room"), &json!("realtime"))
        );
        assert_eq!(line["arguments_sha256"], lines[0]["arguments_sha256"]);
        assert_eq!(line["confirmed"], json!(false));
    }
    assert!(!audit.contains("Canary"), "{audit}");
}

/// A telephone call over Twilio's ConversationRelay, which brings the caller's words and number.
async fn call_relay(address: &str) -> Client {
    try_call_relay(address).await.expect("a line")
}

/// Such a call, unless the server's lines are busy.
pub(super) async fn try_call_relay(address: &str) -> Option<Client> {
    let number = [
        ("AccountSid", twilio::ACCOUNT),
        ("CallSid", twilio::CALL),
        ("From", "+15551230000"),
    ];
    let (status, instructions) = twilio::tell_at(address, "voice", &number, None).await;
    assert_eq!(status, 200, "{instructions}");
    let url = format!("ws://{address}/twilio/relay");
    let mut request = url.into_client_request().expect("a request");
    let signature = twilio::sign(&format!("wss://{}/twilio/relay", twilio::PUBLIC), &[]);
    let signature = signature.parse().expect("a header");
    request
        .headers_mut()
        .insert("x-twilio-signature", signature);
    let (socket, _) = match tokio_tungstenite::connect_async(request).await {
        Err(Error::Http(refusal)) if refusal.status() == 503 => return None,
        opened => opened.expect("open"),
    };
    let mut client = Client {
        socket,
        protocol: None,
    };
    let setup = json!({
        "type": "setup", "sessionId": "VX1", "accountSid": twilio::ACCOUNT,
        "callSid": twilio::CALL, "from": "+15551230000", "to": "+15551230001",
        "direction": "inbound", "customParameters": {"ticket": twilio::ticket(&instructions)}
    });
    client.send(setup).await;
    let words = json!({"type": "prompt", "voicePrompt": "Book a room for Ann.", "lang": "en-US", "last": true});
    client.send(words).await;
    Some(client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_whose_line_a_kill_cut_calls_again_and_has_booked_once() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(false).await;
    let once = "once_per = \"caller + who\"\ntimeout_ms = 3000";
    let booking = declaration(&service).replace("timeout_ms = 120000", once);
    let home = home_with(&booking, &service);
    let folder = home.path();
    let settings = folder.join("undertone.toml");
    let text = std::fs::read_to_string(&settings).expect("settings");
    let twilio = format!(
        "[twilio]\npublic_url = \"https://{}\"\naccount_sid = \"{}\"\nauth_token_file = \"token\"\n\
         api_url = \"http://127.0.0.1:1\"\nrelay = true\n",
        twilio::PUBLIC,
        twilio::ACCOUNT
    );
    std::fs::write(folder.join("token"), twilio::TOKEN).expect("written");
    std::fs::write(&settings, format!("{text}{twilio}")).expect("written");

    let mut first = serve(folder, &folder.join("first.log")).await;
    let line = call_relay(&first.address).await;
    timeout(START, bookings.recv()).await.expect("in time");
    first.process.kill().await.expect("SIGKILL");
    drop(line);

    let second = serve(folder, &folder.join("second.log")).await;
    let line = call_relay(&second.address).await;
    let unknown = ["whether it took effect is not known"];
    until(async || world.was_told(&unknown).then_some(())).await;
    let bookings = world.bookings.load(Ordering::SeqCst);
    assert_eq!(bookings, 1, "it was booked twice");
    drop(line);
}

/// Ignores SIGXFSZ, so that a write beyond a file size limit fails as on a full disk, after the
/// bytes that still fit.
fn program_with_limits() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_undertone"));
    command
}

impl Served {
    /// Limits the size of the files that the program writes from now on.
    fn limit_files(&self, bytes: Option<u64>) {
        let id = i32::try_from(self.process.id().expect("it runs")).expect("a number");
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        prlimit(Pid::from_raw(id), Resource::Fsize, limit).expect("may be limited");
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let answer = reqwest::get(url).await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("text"))
    }

    /// Asks for a room and waits for the end of the answer.
    async fn book(&self) {
        let mut client = self.asked("Book a room for Ann.").await;
        client.until("response.done").await;
    }
}

/// Forwards the lines of a stream.
fn lines_of(stream: impl AsyncRead + Unpin + Send + 'static) -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(10_000);
    tokio::spawn(async move {
        let mut stream = BufReader::new(stream).lines();
        while let Ok(Some(line)) = stream.next_line().await {
            if send.send(line).await.is_err() {
                return;
            }
        }
    });
    lines
}

async fn line_with(lines: &mut mpsc::Receiver<String>, part: &str) -> String {
    let found = async {
        loop {
            let line = lines.recv().await.expect("the log goes on");
            if line.contains(part) {
                return line;
            }
        }
    };
    timeout(START, found).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_blocks_calls_with_side_effects_until_there_is_room() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(true).await;
    let home = home(&service);
    let folder = home.path();
    let mut served = start(program_with_limits(), folder, Stdio::piped()).await;
    let mut log = lines_of(served.process.stderr.take().expect("a pipe"));
    let path = folder.join("journal.jsonl");
    let journal = || std::fs::read_to_string(&path).expect("a journal");
    until(async || (served.get("/readyz").await.0 == 200).then_some(())).await;
    served.book().await;
    timeout(START, bookings.recv()).await.expect("in time");
    let before = journal();
    assert_eq!(before.lines().count(), 2, "{before}");

    served.limit_files(Some(before.len() as u64 + 40));
    served.book().await;
    assert_eq!(world.bookings.load(Ordering::SeqCst), 1, "it was booked");
    assert_eq!(journal(), before, "half a line was left");
    let told = world.prompts.lock().expect("whole").last().cloned();
    let told = told.expect("a prompt");
    assert!(told.contains("was not done"), "{told}");
    assert!(
        !told.contains("journal") && !told.contains("os error"),
        "{told}"
    );
    let error = line_with(&mut log, "the journal cannot be written").await;
    assert!(error.contains("ERROR"), "{error}");
    let (status, why) = served.get("/readyz").await;
    assert_eq!(status, 503, "{why}");
    assert!(why.contains("journal"), "{why}");
    let metrics = served.get("/metrics").await.1;
    assert!(metrics.contains("undertone_journal_failing 1"), "{metrics}");
    assert!(
        !metrics.contains("undertone_journal_failures_total 0"),
        "{metrics}"
    );

    served.limit_files(None);
    line_with(&mut log, "the journal can be written again").await;
    assert_eq!(served.get("/readyz").await.0, 200);
    let metrics = served.get("/metrics").await.1;
    assert!(metrics.contains("undertone_journal_failing 0"), "{metrics}");
    served.book().await;
    assert_eq!(world.bookings.load(Ordering::SeqCst), 2);
    let after = journal();
    assert!(after.starts_with(&before), "{after}");
    assert_eq!(
        after.lines().filter(|line| !line.is_empty()).count(),
        4,
        "{after}"
    );
    served.process.kill().await.expect("SIGKILL");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_could_not_be_written_is_written_once_there_is_room() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(true).await;
    let home = home(&service);
    let folder = home.path();
    let mut served = start(program_with_limits(), folder, Stdio::piped()).await;
    let mut log = lines_of(served.process.stderr.take().expect("a pipe"));
    served.book().await;
    timeout(START, bookings.recv()).await.expect("in time");
    let path = folder.join("journal.jsonl");
    let journal = || std::fs::read_to_string(&path).expect("a journal");
    let before = journal();
    let intent = before.lines().next().expect("one").len() as u64 + 1;

    served.limit_files(Some(before.len() as u64 + intent + 10));
    served.book().await;
    assert_eq!(
        world.bookings.load(Ordering::SeqCst),
        2,
        "it was not booked"
    );
    let told = world.prompts.lock().expect("whole").last().cloned();
    assert!(
        told.is_some_and(|told| told.contains("room")),
        "the result is lost"
    );
    line_with(&mut log, "could not be journalled").await;
    assert_eq!(journal().lines().count(), 3, "{}", journal());
    served.limit_files(None);
    line_with(&mut log, "the journal can be written again").await;
    let lines = journal();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a whole line"))
        .collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        (&lines[3]["line"], &lines[3]["key"]),
        (&json!("result"), &lines[2]["key"])
    );
    served.process.kill().await.expect("SIGKILL");
}
