//! Tests several servers: real processes with a real Redis and a real HAProxy, which are killed, drained and replaced.

use super::journal::{booking_once, try_call_relay, world};
use crate::common;
use crate::support::live::{self, without_models};
use crate::support::program::{self, Program, said, until};
use crate::support::replicas::{Redis, balancer, own_address};
use crate::support::{Client, PATIENCE, twilio};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt, stream};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use undertone::llm::scripted::Scripted;

const TOKEN: &str = "the-token-of-all-servers";

/// One of several servers, with a folder and an address of its own.
struct Replica {
    folder: TempDir,
    address: SocketAddr,
    program: Program,
}

impl Replica {
    /// Starts one whose language model and booking service are `service`.
    async fn start(redis: &Redis, service: &str) -> Self {
        let (folder, address) = (tempfile::tempdir().expect("a folder"), own_address().await);
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        std::fs::create_dir(folder.path().join("tools")).expect("made");
        // The next call waits as long as this one might still run.
        let booking = booking_once(service).replace("timeout_ms = 120000", "timeout_ms = 3000");
        write("tools/book.toml", &booking);
        write("token", TOKEN);
        write("key", "the key of all servers");
        write("twilio", twilio::TOKEN);
        let (host, port, store) = (address.ip(), address.port(), redis.url());
        let (public, account) = (twilio::PUBLIC, twilio::ACCOUNT);
        let settings = format!(
            "[server]\nhost = \"{host}\"\nport = {port}\nmax_sessions = 64\nauth_token_file = \"token\"\n\
             client_secret_key_file = \"key\"\ndrain_seconds = 600\n\
             [limits]\nopenings_per_token = 0\n\
             [llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\nbase_url = \"{service}/v1\"\n\
             [store]\nurl = \"{store}\"\n\
             [twilio]\npublic_url = \"https://{public}\"\naccount_sid = \"{account}\"\n\
             auth_token_file = \"twilio\"\napi_url = \"http://127.0.0.1:1\"\nrelay = true\n"
        );
        write("undertone.toml", &settings);
        let program = Self::run(folder.path()).await;
        let replica = Self {
            folder,
            address,
            program,
        };
        replica.is_ready().await;
        replica
    }

    async fn run(folder: &Path) -> Program {
        let mut command = program::command(folder, &common::weights(), "");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("log"));
        command.stderr(log.expect("a log"));
        Program::start(command).await
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.program.get(path, Some(TOKEN)).await
    }

    async fn is_ready(&self) {
        until(async || (self.get("/readyz").await.0 == 200).then_some(())).await;
    }

    async fn has(&self, metric: &str) -> bool {
        self.get("/metrics").await.1.contains(metric)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    /// A Realtime client.
    async fn open(&self) -> Client {
        open(&self.address.to_string()).await.expect("a session")
    }

    /// Drains it, and starts it again at the same address.
    async fn replace(&mut self) {
        self.program.signal(Signal::TERM);
        assert!(self.program.ended().await.success(), "{}", self.log());
        self.program = Self::run(self.folder.path()).await;
        self.is_ready().await;
    }
}

/// A Realtime client, or the HTTP status that refused it.
async fn open(address: &str) -> Result<Client, u16> {
    let url = format!("ws://{address}/v1/realtime?caller=%2B15551230000");
    let mut request = url.into_client_request().expect("a request");
    let shown = format!("Bearer {TOKEN}").parse().expect("a header");
    request.headers_mut().insert("authorization", shown);
    match connect_async(request).await {
        Ok((socket, _)) => Ok(Client {
            socket,
            protocol: None,
        }),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("no answer: {error}"),
    }
}

/// The model was told that a change was begun before and that nobody knows its end.
const UNKNOWN: [&str; 1] = ["whether it took effect is not known"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_booking_at_a_server_that_was_killed_is_not_made_again_at_another() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(false).await;
    let redis = Redis::start().await;
    let replicas = [
        Replica::start(&redis, &service).await,
        Replica::start(&redis, &service).await,
    ];
    let (_balancer, address) = balancer(&replicas.each_ref().map(|one| one.address)).await;
    let line = until(async || try_call_relay(&address).await).await;
    let booked = timeout(program::START, bookings.recv()).await;
    booked.expect("in time").expect("a booking");
    let mut has_call = Vec::new();
    for replica in &replicas {
        has_call.push(replica.has("undertone_sessions 1\n").await);
    }
    let killed = has_call.iter().position(|has| *has).expect("a call");
    assert_eq!(has_call, [killed == 0, killed == 1]);
    let [first, second] = replicas;
    let (mut killed, other) = if killed == 0 {
        (first, second)
    } else {
        (second, first)
    };
    killed.program.signal(Signal::KILL);
    killed.program.ended().await;
    drop(line);

    let line = until(async || try_call_relay(&address).await).await;
    until(async || world.was_told(&UNKNOWN).then_some(())).await;
    assert!(other.has("undertone_sessions 1\n").await);
    assert_eq!(world.bookings.load(SeqCst), 1, "it was booked twice");
    drop(line);
    // An operator is told of the interrupted call without a restart, and without the words.
    let told = until(async || {
        let log = other.log();
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains("has no result") && line.contains("book_room"));
        line.map(str::to_owned)
    })
    .await;
    assert!(told.contains("WARN"), "{told}");
    assert!(!other.log().contains("Canary"));
}

/// Both servers die of every POST, before they answer and maybe after they have done what it asks for.
#[tokio::test]
async fn the_balancer_makes_no_call_twice() {
    let posts = Arc::new(AtomicUsize::new(0));
    let servers = [own_address().await, own_address().await];
    for address in servers {
        let listener = TcpListener::bind(address).await.expect("its port");
        let posts = posts.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer_all_but_posts(stream, posts.clone()));
            }
        });
    }
    let (_balancer, address) = balancer(&servers).await;
    let post = async |path: &str| {
        let before = posts.load(SeqCst);
        // Over a connection of its own: the balancer would close one that has been used without an answer.
        let request = reqwest::Client::new().post(format!("http://{address}{path}"));
        assert_eq!(request.send().await.expect("an answer").status(), 502);
        posts.load(SeqCst) - before
    };
    let repeated = post("/v1/realtime/client_secrets").await;
    assert!(repeated > 1, "a request that may be repeated is");
    assert_eq!(post("/v1/calls/outbound").await, 1);
}

/// A Realtime client that shows the balancer's cookie if it has one, and the cookie that it is given.
async fn open_with(address: &str, query: &str, cookie: Option<&str>) -> (Client, Option<String>) {
    let url = format!("ws://{address}/v1/realtime?{query}");
    let mut request = url.into_client_request().expect("a request");
    if let Some(cookie) = cookie {
        let shown = cookie.parse().expect("a header");
        request.headers_mut().insert("cookie", shown);
    }
    let (socket, response) = connect_async(request).await.expect("a session");
    let given = response.headers().get("set-cookie");
    let given = given.map(|cookie| cookie.to_str().expect("text"));
    // Without its attributes.
    let given = given.and_then(|cookie| cookie.split(';').next());
    let client = Client {
        socket,
        protocol: None,
    };
    (client, given.map(str::to_owned))
}

/// Others have their sessions there, too, so that without the cookie it would be sent to another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_balancers_cookie_leads_a_client_back_to_its_session() {
    let servers = [(); 2].map(|()| {
        let llm = Scripted::always("<speech>Hello.</speech>");
        live::serve(without_models(Arc::new(llm)))
    });
    let addresses = servers.each_ref().map(|server| server.address);
    let (_balancer, address) = balancer(&addresses).await;
    let (mut client, cookie) = open_with(&address, "resumable=1", None).await;
    let cookie = cookie.expect("a cookie");
    let offered = client.until("undertone.session.resumable").await;
    let secret = offered.last().expect("one")["resume"]
        .as_str()
        .expect("text");
    let mut others = Vec::new();
    for _ in 0..2 {
        let (other, given) = open_with(&address, "", Some(&cookie)).await;
        assert_eq!(given, None, "it is at the server of its cookie");
        others.push(other);
    }
    // The connection is lost.
    drop(client);
    let query = format!("resume={secret}");
    let (mut client, _) = open_with(&address, &query, Some(&cookie)).await;
    client.until("undertone.session.resumed").await;
    drop(others);
}

async fn answer_all_but_posts(mut stream: TcpStream, posts: Arc<AtomicUsize>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    if request.starts_with(b"POST") {
        posts.fetch_add(1, SeqCst);
        return;
    }
    let ready = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    // The balancer may not wait for it.
    drop(stream.write_all(ready).await);
}

/// Asks in text, and waits for the end of the answer.
async fn ask(client: &mut Client, words: &str) {
    program::ask(client, words).await;
    said(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_store_sessions_go_on_and_nothing_is_booked_until_it_is_back() {
    let _together = common::together().await;
    let (world, mut bookings, service) = world(true).await;
    let mut redis = Redis::start().await;
    let replica = Replica::start(&redis, &service).await;
    let mut client = replica.open().await;
    ask(&mut client, "How are you?").await;
    assert_eq!(replica.get("/readyz").await, (200, "ready".into()));

    redis.stop().await;
    until(async || replica.has("undertone_store_up 0\n").await.then_some(())).await;
    ask(&mut client, "Book a room for Ann.").await;
    assert!(world.was_told(&["it was not done", "it may work later"]));
    assert_eq!(world.bookings.load(SeqCst), 0, "it was booked");
    ask(&mut client, "How are you?").await;
    let (status, told) = replica.get("/readyz").await;
    assert_eq!(status, 200, "callers may still talk");
    assert!(told.contains("shared store"), "{told}");
    assert!(replica.has("undertone_journal_failing 1\n").await);

    redis.resume().await;
    until(async || {
        replica
            .has("undertone_journal_failing 0\n")
            .await
            .then_some(())
    })
    .await;
    ask(&mut client, "Book a room for Ann.").await;
    let booked = timeout(program::START, bookings.recv()).await;
    booked.expect("in time").expect("a booking");
    assert_eq!(world.bookings.load(SeqCst), 1);
    // In another session it is the same change.
    let mut again = replica.open().await;
    ask(&mut again, "Book a room for Ann.").await;
    assert!(world.was_told(&["already_done", "room"]));
    assert_eq!(world.bookings.load(SeqCst), 1);
    assert!(replica.log().contains("the shared store answers again"));
}

/// The words of an answer; the last one shows that it is whole.
const WORDS: usize = 3;

/// A language model that takes its time for each of its words.
async fn slow_model() -> String {
    let answer = async || {
        let words = (0..WORDS + 2).map(|number| match number {
            0 => "<speech>".to_owned(),
            last if last == WORDS + 1 => "whole.</speech>".to_owned(),
            number => format!("Word {number}, "),
        });
        let piece = |text: String| {
            format!(
                "data: {}\n\n",
                json!({"choices": [{"delta": {"content": text}}]})
            )
        };
        let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
        let pieces: Vec<String> = words
            .map(piece)
            .chain([format!("data: {stop}\n\ndata: [DONE]\n\n")])
            .collect();
        let paced = stream::unfold(pieces.into_iter(), async |mut pieces| {
            // It speaks as a model does; nothing depends on how fast.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let piece = pieces.next()?;
            Some((Ok::<_, Infallible>(piece), pieces))
        });
        let body = Body::from_stream(paced);
        ([("content-type", "text/event-stream")], body)
    };
    let routes = Router::new().route("/v1/chat/completions", post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

/// How long callers think before they go on.
const PAUSE: Duration = Duration::from_secs(1);

/// Counts of all callers.
#[derive(Default)]
struct Tally {
    turns: AtomicUsize,
    /// Calls that were refused with 503, and made again.
    refused: AtomicUsize,
    /// Lines that the server closed, between turns.
    moved: AtomicUsize,
    is_over: AtomicBool,
}

/// The end of a turn.
#[derive(Debug, PartialEq)]
enum Turn {
    /// The whole answer arrived.
    Answered,
    /// The line was closed before the server had begun to answer.
    NotBegun,
}

/// Takes one turn. Panics if it is cut.
async fn turn(client: &mut Client) -> Turn {
    ask_for_text(client).await;
    let (mut begun, mut text) = (false, String::new());
    loop {
        // A line that was closed while this side was writing may also end with an error.
        let message = timeout(PATIENCE, client.socket.next()).await;
        let event = match message.expect("a message in time") {
            Some(Ok(Message::Text(event))) => event,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            end => {
                assert!(!begun, "a turn was cut by {end:?} after {text:?}");
                return Turn::NotBegun;
            }
        };
        let event: Value = serde_json::from_str(&event).expect("JSON");
        match event["type"].as_str().expect("a type") {
            "response.created" => begun = true,
            "response.output_text.done" => text += event["text"].as_str().expect("text"),
            "response.done" => {
                let status = &event["response"]["status"];
                assert_eq!(
                    status, "completed",
                    "a turn was cut after {text:?}: {event}"
                );
                assert!(text.ends_with("whole."), "{text:?}");
                return Turn::Answered;
            }
            "error" => panic!("{event}"),
            _ => {}
        }
    }
}

/// Asks for an answer in text. The line may be closed already, which the next message shows.
async fn ask_for_text(client: &mut Client) {
    let content = json!([{"type": "input_text", "text": "Tell me something."}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    let response = json!({"output_modalities": ["text"]});
    for event in [
        json!({"type": "conversation.item.create", "item": item}),
        json!({"type": "response.create", "response": response}),
    ] {
        let sent = client.socket.send(Message::text(event.to_string())).await;
        drop(sent);
    }
}

/// Calls, and takes turns until everything is over. Calls again whenever the line is closed.
async fn caller(address: String, tally: Arc<Tally>) {
    while !tally.is_over.load(SeqCst) {
        let mut client = match open(&address).await {
            Ok(client) => client,
            // All lines are busy.
            Err(503) => {
                tally.refused.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(status) => panic!("refused with {status}"),
        };
        while !tally.is_over.load(SeqCst) {
            match turn(&mut client).await {
                Turn::Answered => {
                    tally.turns.fetch_add(1, SeqCst);
                    // A person pauses after an answer; a server that drains ends the session then.
                    tokio::time::sleep(PAUSE).await;
                }
                Turn::NotBegun => {
                    tally.moved.fetch_add(1, SeqCst);
                    break;
                }
            }
        }
    }
}

/// It was turned away, because Twilio's answers have status 200 whatever they say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_telephone_call_that_reaches_a_server_that_drains_is_taken_by_another() {
    let _together = common::together().await;
    let redis = Redis::start().await;
    let service = slow_model().await;
    let drains = Replica::start(&redis, &service).await;
    let others = [
        Replica::start(&redis, &service).await,
        Replica::start(&redis, &service).await,
    ];
    // The call that it has answered keeps it from ending.
    let parameters = [
        ("AccountSid", twilio::ACCOUNT),
        ("CallSid", twilio::CALL),
        ("From", "+15551230000"),
    ];
    let ring = async |address: &str| twilio::tell_at(address, "voice", &parameters, None).await;
    let (_, taken) = ring(&drains.address.to_string()).await;
    assert!(taken.contains("<Connect"), "{taken}");
    drains.program.signal(Signal::TERM);
    until(async || (drains.get("/readyz").await.0 == 503).then_some(())).await;
    let (_, refused) = ring(&drains.address.to_string()).await;
    assert!(refused.contains("All our lines are busy"), "{refused}");
    let (_balancer, address) =
        balancer(&[drains.address, others[0].address, others[1].address]).await;
    for _ in 0..6 {
        let (status, answer) = ring(&address).await;
        assert_eq!(status, 200);
        assert!(answer.contains("<Connect"), "{answer}");
    }
    drop(others);
    until(async || {
        let (status, answer) = ring(&address).await;
        (status == 200 && answer.contains("All our lines are busy")).then_some(())
    })
    .await;
}

/// Replaces three servers, one after the other, under this many callers.
async fn roll(callers: usize) {
    let redis = Redis::start().await;
    let service = slow_model().await;
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(Replica::start(&redis, &service).await);
    }
    let addresses: Vec<_> = replicas.iter().map(|one| one.address).collect();
    let (_balancer, address) = balancer(&addresses).await;
    let tally = Arc::new(Tally::default());
    let calls = (0..callers).map(|_| tokio::spawn(caller(address.clone(), tally.clone())));
    let calls: Vec<_> = calls.collect();
    for replica in &mut replicas {
        // Callers are in mid-turn.
        let before = tally.turns.load(SeqCst);
        until(async || (tally.turns.load(SeqCst) >= before + callers).then_some(())).await;
        let was_in_use = sessions(replica).await > 0;
        assert!(was_in_use, "it has no calls: nothing is tested");
        replica.replace().await;
        // It takes calls again before the next one goes.
        let mut probe = None;
        until(async || {
            probe = open(&address).await.ok().or(probe.take());
            (sessions(replica).await > 0).then_some(())
        })
        .await;
    }
    let before = tally.turns.load(SeqCst);
    until(async || (tally.turns.load(SeqCst) >= before + callers).then_some(())).await;
    tally.is_over.store(true, SeqCst);
    for call in join_all(calls).await {
        call.expect("no turn was cut");
    }
    let (turns, moved) = (tally.turns.load(SeqCst), tally.moved.load(SeqCst));
    let refused = tally.refused.load(SeqCst);
    println!(
        "{callers} callers, {turns} turns, {moved} lines moved, {refused} calls refused; no turn was cut"
    );
    assert!(moved > 0, "no line was moved");
    for replica in &replicas {
        let log = replica.log();
        assert!(!log.contains("deadline has passed"), "{log}");
    }
}

async fn sessions(replica: &Replica) -> u64 {
    let (_, metrics) = replica.get("/metrics").await;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("undertone_sessions "));
    line.expect("a metric").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_is_cut_when_servers_are_replaced_one_after_the_other() {
    let _together = common::together().await;
    roll(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak"]
async fn no_turn_of_thirty_callers_is_cut_when_servers_are_replaced() {
    let _together = common::together().await;
    roll(30).await;
}
