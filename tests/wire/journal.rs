//! The real program, killed in the midst of a call that changes something.

use crate::{common, support};
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::Client;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;
use undertone::tools::{Begun, Journal};

/// Every model is checked and loaded meanwhile, on whatever machine this is.
const START: Duration = Duration::from_secs(120);

/// A language model that books a room whenever it is asked to, and the service that books it: it
/// counts, and does not answer.
#[derive(Clone)]
struct World {
    bookings: Arc<AtomicUsize>,
    booked: mpsc::Sender<String>,
}

async fn complete(body: String) -> ([(&'static str, &'static str); 1], String) {
    let request: Value = serde_json::from_str(&body).expect("JSON");
    let messages = request["messages"].as_array().expect("messages");
    let last = messages.last().expect("one")["content"].to_string();
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
    std::future::pending().await
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

/// A running server, its address, and where its log goes.
struct Served {
    process: Child,
    address: String,
}

async fn serve(folder: &Path, log: &Path) -> Served {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNDERTONE_") {
            command.env_remove(name);
        }
    }
    let mut process = command
        .current_dir(folder)
        .arg("serve")
        .env("UNDERTONE_MODELS", common::weights())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(log).expect("a log"))
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let first = timeout(START, lines.next_line()).await.expect("in time");
    let first = first.expect("text").unwrap_or_else(|| {
        panic!("{}", std::fs::read_to_string(log).expect("a log"));
    });
    let address = first.rsplit('/').next().expect("an address").to_owned();
    Served { process, address }
}

impl Served {
    /// A client that has written `text` and wants an answer.
    async fn asked(&self, text: &str) -> Client {
        let url = format!("ws://{}/v1/realtime", self.address);
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
async fn a_call_that_was_under_way_at_kill_9_is_not_run_again_and_the_operator_hears_of_it() {
    let _alone = common::alone().await;
    let (booked, mut bookings) = mpsc::channel(8);
    let world = World {
        bookings: Arc::default(),
        booked,
    };
    let routes = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/book", post(book))
        .with_state(world.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let service = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::create_dir(folder.join("tools")).expect("made");
    std::fs::write(folder.join("tools/book.toml"), declaration(&service)).expect("written");
    let settings = format!(
        "[server]\nport = 0\n[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\n\
         base_url = \"{service}/v1\"\n[tools]\njournal = \"journal.jsonl\"\n"
    );
    std::fs::write(folder.join("undertone.toml"), settings).expect("written");

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

    // Whoever came with this very call again would be refused.
    let now = lines[0]["time"]
        .as_str()
        .expect("a time")
        .parse()
        .expect("a time");
    let journal = Journal::open(&path, now).expect("a journal");
    let arguments = lines[0]["arguments"].as_object().expect("arguments");
    let again = journal.begin(key, "book_room", arguments, now);
    assert_eq!(again.expect("known"), Begun::Unknown);
}
