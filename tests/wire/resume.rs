//! Clients whose connection is lost, and that come back to their session.

use crate::support;
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::live::{self, without_models};
use support::program;
use support::{Client, PATIENCE, Script, Server, local};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_tungstenite::MaybeTlsStream;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::server::{OpeningLimits, ServerSettings, SocketLimits};
use undertone::session::Builders;
use undertone::tools::declared;

/// The time that the scripted voice takes for a word, ms.
const WORD_MS: u64 = 200;

/// Words of equal length: what was heard of them is cut in proportion to their letters.
const ANSWER: &str = "apple bread chair dream eagle flame grape house index juice knife lemon mango night ocean \
                      paper queen river stone tiger";

/// A client that may come back, and what it has heard.
struct Line {
    client: Client,
    /// The secret for the next return.
    secret: String,
    event: Option<String>,
    /// The agent's last item of which it has heard some, and how much, ms.
    heard: Option<(String, u64)>,
    /// The audio and the words that it has got over this connection.
    audio_ms: u64,
    words: Vec<String>,
}

impl Line {
    async fn to(server: &Server) -> Self {
        Self::at(server, "/v1/realtime?resumable=1").await
    }

    async fn at(server: &Server, path: &str) -> Self {
        let client = server.open(path).await;
        let mut line = Self {
            client,
            secret: String::new(),
            event: None,
            heard: None,
            audio_ms: 0,
            words: Vec::new(),
        };
        line.until("undertone.session.resumable").await;
        line
    }

    /// Takes in an event.
    async fn next(&mut self) -> Value {
        let event = self.client.event().await;
        let text = |name: &str| event[name].as_str().expect("text").to_owned();
        self.event = Some(text("event_id"));
        match event["type"].as_str() {
            Some("undertone.session.resumable" | "undertone.session.resumed") => {
                self.secret = text("resume");
            }
            Some("response.output_audio.delta") => {
                let ms = support::samples_of(&text("delta")).len() as u64 / 24;
                let item = text("item_id");
                let before = self.heard.take().filter(|(other, _)| *other == item);
                self.heard = Some((item, before.map_or(0, |(_, ms)| ms) + ms));
                self.audio_ms += ms;
            }
            Some("response.output_audio_transcript.delta") => {
                let delta = text("delta");
                let words = delta.split_whitespace();
                self.words.extend(words.map(str::to_owned));
            }
            _ => {}
        }
        event
    }

    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.next().await);
            if events.last().expect("one")["type"] == kind {
                return events;
            }
        }
    }

    async fn until_ping(&mut self) {
        loop {
            let message = timeout(PATIENCE, self.client.socket.next()).await;
            let message = message.expect("in time").expect("open");
            if message.expect("a message").is_ping() {
                return;
            }
        }
    }

    /// The server has handled everything that the client has sent.
    async fn is_heard(&mut self) {
        let session = json!({"type": "realtime"});
        self.client
            .send(json!({"type": "session.update", "session": session}))
            .await;
        self.until("session.updated").await;
    }

    async fn listen(&mut self, ms: u64) {
        while self.audio_ms < ms {
            self.next().await;
        }
    }

    async fn ask(&mut self, question: &str) {
        program::ask(&mut self.client, question).await;
    }

    /// The connection is reset.
    fn cut(self) -> Lost {
        let MaybeTlsStream::Plain(stream) = self.client.socket.get_ref() else {
            panic!("a plain connection")
        };
        stream.set_zero_linger().expect("a reset");
        self.without_connection()
    }

    fn without_connection(self) -> Lost {
        self.hold().1
    }

    /// The connection stays half-open.
    fn hold(self) -> (Client, Lost) {
        let Self {
            client,
            secret,
            event,
            heard,
            audio_ms,
            words,
        } = self;
        let lost = Lost {
            secret,
            event,
            heard,
            words,
            audio_ms,
        };
        (client, lost)
    }
}

/// The knowledge of a client whose connection is lost.
#[derive(Clone)]
struct Lost {
    secret: String,
    event: Option<String>,
    heard: Option<(String, u64)>,
    words: Vec<String>,
    audio_ms: u64,
}

impl Lost {
    fn path(&self) -> String {
        let heard = self.heard.as_ref().map_or(String::new(), |(item, ms)| {
            format!("&item_id={item}&audio_end_ms={ms}")
        });
        let event = self.event.as_deref().unwrap_or_default();
        format!(
            "/v1/realtime?resume={}&last_event_id={event}{heard}",
            self.secret
        )
    }

    /// Comes back. Returns the line, and the events that it had missed.
    async fn come_back(&self, server: &Server) -> (Line, Vec<Value>) {
        let mut line = Line {
            client: server.open(&self.path()).await,
            secret: String::new(),
            event: self.event.clone(),
            heard: self.heard.clone(),
            audio_ms: 0,
            words: Vec::new(),
        };
        let mut missed = line.until("undertone.session.resumed").await;
        missed.pop();
        // What is said from now on is not what was announced before.
        line.words.clear();
        (line, missed)
    }

    /// The error with which a return is refused.
    async fn is_refused(&self, server: &Server) {
        let mut client = server.open(&self.path()).await;
        let event = client.event().await;
        assert_eq!(event["type"], "error", "{event}");
        assert_eq!(event["error"]["code"], "session_not_resumable");
        assert!(
            event["error"]["message"]
                .as_str()
                .expect("text")
                .contains("Connect without resume")
        );
        assert_eq!(u16::from(client.close_frame().await.code), 1008);
    }
}

fn answering() -> Server {
    let llm = Scripted::always(format!("<speech>{ANSWER}.</speech>"));
    live::serve(without_models(Arc::new(llm)))
}

/// That the words over both connections are the answer: the second goes on with the word in which the first ended, or
/// after it if hardly anything of it was missing.
fn goes_on(before: usize, audio_ms: u64, after: &[String]) -> usize {
    let all: Vec<&str> = ANSWER.split(' ').collect();
    let after: Vec<&str> = after
        .iter()
        .map(|word| word.trim_end_matches('.'))
        .collect();
    let from = all.len() - after.len();
    assert_eq!(all[from..], after, "the rest, in order");
    let heard = before + usize::try_from(audio_ms / WORD_MS).expect("few");
    let most = heard + usize::from(audio_ms % WORD_MS >= WORD_MS * 3 / 4);
    assert!(
        (heard..=most).contains(&from),
        "{heard} words were heard, and then {after:?}"
    );
    from
}

async fn freed(server: &Server) {
    let freed = async {
        while server.try_open("/v1/pcm", &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, freed).await.expect("freed in time");
}

fn one_place(return_within: Duration) -> ServerSettings {
    ServerSettings {
        max_sessions: 1,
        socket: SocketLimits {
            return_within,
            ..SocketLimits::default()
        },
        ..local()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_goes_on_over_another_connection_with_the_first_unheard_word() {
    let server = answering();
    let mut line = Line::to(&server).await;
    line.ask("Tell me.").await;
    line.listen(1_100).await;
    let lost = line.cut();
    let (mut line, _) = lost.come_back(&server).await;
    assert_ne!(line.secret, lost.secret, "a secret is good for one return");
    line.until("response.done").await;
    goes_on(0, lost.audio_ms, &line.words);
    // Everything is as before: the next question is answered.
    line.ask("Again.").await;
    line.until("response.done").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_come_back_twice_and_hears_nothing_twice() {
    let server = answering();
    let mut line = Line::to(&server).await;
    line.ask("Tell me.").await;
    line.listen(700).await;
    let first = line.cut();
    let (mut line, _) = first.come_back(&server).await;
    line.listen(900).await;
    let second = line.cut();
    let from = goes_on(0, first.audio_ms, &rest_from(&second.words[0]));
    let (mut line, _) = second.come_back(&server).await;
    line.until("response.done").await;
    goes_on(from, second.audio_ms, &line.words);
}

/// The answer from a word on.
fn rest_from(word: &str) -> Vec<String> {
    let words = ANSWER.split(' ').skip_while(|other| *other != word);
    words.map(str::to_owned).collect()
}

/// The client reports what it had heard before the first loss: of the second connection it has got nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_before_it_brings_anything_costs_nothing() {
    let server = answering();
    let mut line = Line::to(&server).await;
    line.ask("Tell me.").await;
    line.listen(700).await;
    let lost = line.cut();
    let mut broken = server.open(&lost.path()).await;
    broken.event().await;
    drop(broken);
    // The secret of before is still valid: the next one may not have arrived.
    let (mut line, _) = lost.come_back(&server).await;
    line.until("response.done").await;
    goes_on(0, lost.audio_ms, &line.words);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_back_displaces_its_half_open_connection() {
    let server = answering();
    let mut line = Line::to(&server).await;
    line.ask("Tell me.").await;
    line.listen(700).await;
    let (mut old, lost) = line.hold();
    let (mut line, _) = lost.come_back(&server).await;
    let close = old.close_frame().await;
    assert_eq!(u16::from(close.code), 1001);
    assert!(close.reason.contains("came back"), "{close:?}");
    line.until("response.done").await;
    goes_on(0, lost.audio_ms, &line.words);
}

#[tokio::test]
async fn a_client_that_comes_back_too_late_is_told_so_and_its_place_is_free() {
    let settings = one_place(Duration::from_millis(300));
    let server = Server::with(settings, Script::default()).await;
    let lost = Line::to(&server).await.cut();
    freed(&server).await;
    lost.is_refused(&server).await;
}

#[tokio::test]
async fn a_session_that_waits_keeps_its_place_and_a_wrong_secret_does_not_open_it() {
    let settings = one_place(Duration::from_secs(3_600));
    let server = Server::with(settings, Script::default()).await;
    let lost = Line::to(&server).await.cut();
    assert_eq!(server.try_open("/v1/pcm", &[]).await.err(), Some(503));
    let mut secret = lost.secret.clone();
    let last = secret.pop().expect("a secret");
    secret.push(if last == '0' { '1' } else { '0' });
    for secret in [secret, "nonsense".into(), format!("{}0", lost.secret)] {
        let wrong = Lost {
            secret,
            ..lost.clone()
        };
        wrong.is_refused(&server).await;
    }
    let (mut line, _) = lost.come_back(&server).await;
    line.client.speak(500, 400).await;
    line.until("response.done").await;
    // The answer to the ping behind its new secret goes before what it says next.
    line.client.speak(500, 400).await;
    line.until("response.done").await;
    lost.is_refused(&server).await;
}

/// Browsers and proxies may send pongs that answer no ping.
#[tokio::test]
async fn a_pong_that_answers_no_ping_does_not_prove_that_the_new_secret_has_arrived() {
    let server = Server::start(Script::default()).await;
    let lost = Line::to(&server).await.cut();
    let (mut line, _) = lost.come_back(&server).await;
    line.until_ping().await;
    // It takes the place of the answer that the library would send with its next message.
    let own = Message::Pong(Bytes::new());
    line.client.socket.send(own).await.expect("sent");
    line.is_heard().await;
    line.cut();
    let (mut line, _) = lost.come_back(&server).await;
    line.until_ping().await;
    // The library's answer goes behind the first event.
    line.is_heard().await;
    line.is_heard().await;
    line.cut();
    lost.is_refused(&server).await;
}

#[tokio::test]
async fn a_client_that_says_goodbye_or_did_not_ask_to_come_back_frees_its_place_at_once() {
    let settings = one_place(Duration::from_secs(3_600));
    let server = Server::with(settings, Script::default()).await;
    let mut line = Line::to(&server).await;
    line.client.socket.close(None).await.expect("closed");
    freed(&server).await;
    line.without_connection().is_refused(&server).await;
    for path in [
        "/v1/realtime",
        "/v1/realtime?vendor_events=1",
        "/v1/pcm?resumable=1",
        "/telnyx/media?resumable=1",
        "/plivo/media?resumable=1",
        "/asterisk/media?resumable=1",
    ] {
        let client = loop {
            match server.try_open(path, &[]).await {
                Ok(client) => break client,
                Err(status) => assert_eq!(status, 503),
            }
            tokio::task::yield_now().await;
        };
        let MaybeTlsStream::Plain(stream) = client.socket.get_ref() else {
            panic!("a plain connection")
        };
        stream.set_zero_linger().expect("a reset");
        drop(client);
        freed(&server).await;
    }
}

#[tokio::test]
async fn only_who_may_open_a_session_may_come_back_to_one() {
    let token = |shown: &'static str| [("authorization", shown)];
    let settings = ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let path = "/v1/realtime?resumable=1";
    let mut client = server
        .try_open(path, &token("Bearer operator"))
        .await
        .expect("a session");
    let offered = client.until("undertone.session.resumable").await;
    let secret = offered.last().expect("one")["resume"].clone();
    drop(client);
    let path = format!("/v1/realtime?resume={}", secret.as_str().expect("text"));
    for headers in [&[][..], &token("Bearer wrong")] {
        assert_eq!(server.try_open(&path, headers).await.err(), Some(401));
    }
    let mut client = server
        .try_open(&path, &token("Bearer operator"))
        .await
        .expect("back");
    client.until("undertone.session.resumed").await;
}

#[tokio::test]
async fn a_client_that_comes_back_opens_no_session_that_counts() {
    let settings = ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        openings: OpeningLimits {
            per_token: 1,
            ..OpeningLimits::default()
        },
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let shown = [("authorization", "Bearer operator")];
    let mut path = "/v1/realtime?resumable=1".to_owned();
    let mut last = "undertone.session.resumable";
    for _ in 0..4 {
        let client = server.try_open(&path, &shown).await;
        let events = client.expect("a session").until(last).await;
        let secret = events.last().expect("one")["resume"].clone();
        path = format!("/v1/realtime?resume={}", secret.as_str().expect("text"));
        last = "undertone.session.resumed";
    }
    for new in ["/v1/realtime", "/v1/realtime?resume=nonsense"] {
        assert_eq!(server.try_open(new, &shown).await.err(), Some(429), "{new}");
    }
}

#[tokio::test]
async fn a_hundred_sessions_wait_within_the_limit_and_end_with_the_server() {
    let settings = ServerSettings {
        max_sessions: 100,
        drain_deadline: Duration::from_secs(3_600),
        socket: SocketLimits {
            return_within: Duration::from_secs(3_600),
            ..SocketLimits::default()
        },
        ..local()
    };
    let mut server = Server::with(settings, Script::default()).await;
    let mut lost = Vec::new();
    for _ in 0..100 {
        lost.push(Line::to(&server).await.cut());
    }
    assert_eq!(server.try_open("/v1/realtime", &[]).await.err(), Some(503));
    let (mut line, _) = lost[42].come_back(&server).await;
    server.shutdown.cancel();
    assert_eq!(u16::from(line.client.close_frame().await.code), 1001);
    while line.client.message().await.is_some() {}
    let ended = timeout(PATIENCE, &mut server.task).await;
    ended
        .expect("in time")
        .expect("no panic")
        .expect("no error");
}

/// A bank that keeps the transfers it gets, and carries them out when the test lets it.
#[derive(Clone)]
struct Bank {
    transfers: Arc<Mutex<Vec<String>>>,
    begun: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
}

impl Bank {
    async fn open() -> (Self, String) {
        let bank = Self {
            transfers: Arc::default(),
            begun: Arc::new(Semaphore::new(0)),
            may_end: Arc::new(Semaphore::new(0)),
        };
        let transfer = |State(bank): State<Bank>, body: String| async move {
            bank.transfers.lock().expect("no panic").push(body);
            bank.begun.add_permits(1);
            drop(bank.may_end.acquire().await);
            json!({"status": "sent"}).to_string()
        };
        let routes = Router::new()
            .route("/transfer", post(transfer))
            .with_state(bank.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (bank, address.to_string())
    }

    fn transfers(&self) -> Vec<String> {
        self.transfers.lock().expect("no panic").clone()
    }
}

fn transferring(address: &str, confirm: &str) -> (Server, Scripted) {
    let tool = format!(
        "name = \"send_money\"\nkind = \"http\"\ndescription = \"Sends.\"\neffect = \"reversible\"\n\
         timeout_ms = 60000\nparameters = {{ properties = {{ to = {{ type = \"string\" }} }}, required = [\"to\"] }}\n\
         {confirm}\n[http]\nallow_private = true\nmethod = \"POST\"\nurl = \"http://{address}/transfer\"\n\
         json = {{ to = \"{{{{ to }}}}\" }}\n"
    );
    let tool = declared::parse(Path::new("a.toml"), &tool).expect("a declaration");
    let llm = Scripted::default()
        .on(
            Cue::result("send_money"),
            "<speech>The money is on its way.</speech>",
        )
        .on(
            Cue::Always,
            "<speech>I will do that.</speech><tool>send_money(to=\"Ann\")</tool>",
        );
    let server = live::serve(Builders {
        tools: declared::registry(&[tool]).expect("tools").into(),
        ..without_models(Arc::new(llm.clone()))
    });
    (server, llm)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_runs_at_the_loss_is_made_once_and_told_after_the_return() {
    let (bank, address) = Bank::open().await;
    let (server, _) = transferring(&address, "");
    let mut line = Line::to(&server).await;
    line.ask("Send it to Ann.").await;
    let begun = timeout(PATIENCE, bank.begun.acquire()).await;
    begun.expect("in time").expect("open").forget();
    let lost = line.cut();
    bank.may_end.add_permits(9);
    let (mut line, _) = lost.come_back(&server).await;
    let is_told = |words: &[String]| words.join(" ").contains("The money is on its way.");
    while !is_told(&line.words) {
        line.next().await;
    }
    line.until("response.done").await;
    assert_eq!(bank.transfers(), [r#"{"to":"Ann"}"#]);
    let all = line.words.join(" ");
    assert_eq!(all.matches("The money").count(), 1, "{all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_was_open_at_the_loss_is_asked_again_and_then_a_yes_counts_once() {
    let (bank, address) = Bank::open().await;
    bank.may_end.add_permits(9);
    let confirm = "confirm = { spoken = true, question = \"Send it to {{ to }}?\" }";
    let (server, _) = transferring(&address, confirm);
    let mut line = Line::at(&server, "/v1/realtime?resumable=1&vendor_events=1").await;
    line.ask("Send it to Ann.").await;
    line.until("undertone.confirmation.asked").await;
    line.until("response.done").await;
    let lost = line.cut();
    let (mut line, _) = lost.come_back(&server).await;
    line.until("response.done").await;
    let again = line.words.join(" ");
    assert!(again.ends_with("Send it to Ann?"), "{again}");
    assert_eq!(again.matches("Ann").count(), 1, "{again}");
    assert_eq!(bank.transfers().len(), 0);
    line.ask("Yes.").await;
    let events = line.until("undertone.confirmation.ended").await;
    assert_eq!(events.last().expect("one")["outcome"], "accepted");
    line.until("response.done").await;
    assert_eq!(bank.transfers(), [r#"{"to":"Ann"}"#]);
}

/// Whether the loss is noticed before the call is made or after it, the client gets the call once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_the_client_has_missed_are_sent_again() {
    let llm = Scripted::always("<tool>get_order(order=\"A12\")</tool>");
    let server = live::serve(without_models(Arc::new(llm)));
    let mut line = Line::to(&server).await;
    let tool = json!({"type": "function", "name": "get_order", "parameters": {"type": "object"}});
    line.client
        .send(json!({"type": "session.update", "session": {"type": "realtime", "tools": [tool]}}))
        .await;
    line.until("session.updated").await;
    line.ask("Where is my order?").await;
    line.until("response.created").await;
    let lost = line.cut();
    let (mut line, mut events) = lost.come_back(&server).await;
    let is_call = |event: &Value| event["type"] == "response.function_call_arguments.done";
    while !events.iter().any(is_call) || events.last().expect("one")["type"] != "response.done" {
        events.push(line.next().await);
    }
    assert_eq!(events.iter().filter(|event| is_call(event)).count(), 1);
    let ids: BTreeSet<_> = events
        .iter()
        .map(|event| event["event_id"].to_string())
        .collect();
    assert_eq!(ids.len(), events.len(), "no event comes twice");
}
