//! Runs the real program as an operator does, with a configuration folder, a log and signals.

use super::{Client, PATIENCE};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{interval, timeout};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// The longest start, in which all models are verified and loaded, even on a slow machine.
pub(crate) const START: Duration = Duration::from_secs(120);

/// A running `undertone serve`.
pub(crate) struct Program {
    process: Child,
    pub(crate) address: String,
}

/// `undertone serve` in `folder` with these models and only the folder's settings, after the shell
/// commands in `shell`.
pub(crate) fn command(folder: &Path, models: &Path, shell: &str) -> Command {
    let mut command = Command::new("sh");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNDERTONE_") {
            command.env_remove(name);
        }
    }
    command
        .arg("-c")
        .arg(format!("{shell} exec \"$0\" serve"))
        .arg(env!("CARGO_BIN_EXE_undertone"))
        .current_dir(folder)
        .env("UNDERTONE_MODELS", models)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("XDG_STATE_HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Program {
    /// Starts it, and waits until it serves.
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut process = command.spawn().expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let first = timeout(START, lines.next_line()).await.expect("in time");
        let first = first.expect("text").expect("it serves");
        let address = first.rsplit('/').next().expect("an address").to_owned();
        Self { process, address }
    }

    fn id(&self) -> Pid {
        let id = self.process.id().expect("it runs");
        let id = i32::try_from(id).ok().and_then(Pid::from_raw);
        id.expect("an id")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).expect("sent");
    }

    /// Limits the size of the files that it writes from now on. If it ignores SIGXFSZ, a write beyond that fails as on a
    /// full disk, after the bytes that still fit.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        prlimit(Some(self.id()), Resource::Fsize, limit).expect("may be limited");
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = timeout(6 * PATIENCE, self.process.wait()).await;
        ended.expect("in time").expect("a status")
    }

    /// A Realtime client, or the HTTP status that refused it.
    pub(crate) async fn open(&self, token: Option<&str>) -> Result<Client, u16> {
        let url = format!("ws://{}/v1/realtime", self.address);
        let mut request = url.into_client_request().expect("a request");
        if let Some(token) = token {
            let shown = format!("Bearer {token}").parse().expect("a header");
            request.headers_mut().insert("authorization", shown);
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Client {
                socket,
                protocol: None,
            }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Sends a GET request. Returns the status and the body.
    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let mut request = reqwest::Client::new().get(url).timeout(PATIENCE);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.text().await.expect("text"))
    }
}

/// Asks in text. Returns everything the agent said until its answer was done.
pub(crate) async fn answer(client: &mut Client, question: &str) -> String {
    ask(client, question).await;
    said(client).await
}

/// Asks in text.
pub(crate) async fn ask(client: &mut Client, question: &str) {
    for event in asking(question) {
        client.send(event).await;
    }
}

/// The events of a client that asks in text.
pub(crate) fn asking(question: &str) -> [Value; 2] {
    let content = json!([{"type": "input_text", "text": question}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    [
        json!({"type": "conversation.item.create", "item": item}),
        json!({"type": "response.create"}),
    ]
}

/// The agent's words in its next response.
pub(crate) async fn said(client: &mut Client) -> String {
    let events = client.until("response.done").await;
    let is_transcript = |event: &&Value| event["type"] == "response.output_audio_transcript.done";
    let texts = events.iter().filter(is_transcript);
    let texts: Vec<_> = texts.filter_map(|e| e["transcript"].as_str()).collect();
    texts.join(" ")
}

/// Polls `look` until it returns something.
pub(crate) async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut pace = interval(Duration::from_millis(20));
    let found = async {
        loop {
            pace.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    timeout(6 * PATIENCE, found).await.expect("in time")
}
