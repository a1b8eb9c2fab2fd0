//! Load tests with many clients and real sessions: clients that never read, idle clients, clients
//! that send too much, and more callers than the machine can serve. `make soak` runs them at full
//! size, `make test` smaller ones.

#[allow(dead_code, reason = "each test program uses a part of it")]
mod common;
#[allow(dead_code, reason = "each test program uses a part of it")]
mod support;

use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::live::{self, Call};
use support::real;
use support::{PATIENCE, Server, base64_of, local};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use undertone::llm::scripted::Scripted;
use undertone::llm::{Llm, LlmEvent, LlmStream, Prompt};
use undertone::server::{App, ServerSettings, SocketLimits};
use undertone::session::{self, Builders, Engines};
use undertone::transport::intake::IntakeLimits;
use undertone::tts::{Piper, Speed};
use undertone::vad::{Gated, SileroModel, Vad};

/// Counts allocated bytes. Resident memory is not a measure on a busy machine, since it mostly
/// reflects past backlogs.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The most memory that an idle session may take.
const IDLE_BYTES: usize = 64 * 1024;

/// Serialises the tests, because they measure this process's time and memory.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Answers with this many words of 200 ms each, in clauses of five.
struct Talker(usize);

impl Llm for Talker {
    fn name(&self) -> &str {
        "talker"
    }

    fn generate(&self, _: Prompt) -> LlmStream {
        let text = "one two three four five. ".repeat(self.0 / 5);
        let events = [LlmEvent::Speech { text }, LlmEvent::End];
        futures_util::stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

/// A client with small buffers, including the kernel's, so that unread data stays with the server.
async fn thin_client(server: &Server) -> WebSocketStream<TcpStream> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let stream = socket.connect(server.address).await.expect("a connection");
    let url = format!("ws://{}/v1/realtime", server.address);
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0);
    let opened = client_async_with_config(url, stream, Some(config)).await;
    opened.expect("the socket opens").0
}

async fn send(client: &mut WebSocketStream<TcpStream>, event: Value) {
    let sent = client.send(Message::text(event.to_string())).await;
    sent.expect("sent");
}

async fn next(client: &mut WebSocketStream<TcpStream>) -> Value {
    loop {
        let message = timeout(PATIENCE, client.next()).await.expect("in time");
        if let Message::Text(text) = message.expect("open").expect("a message") {
            return serde_json::from_str(&text).expect("JSON");
        }
    }
}

/// The gaps between an answer's audio frames after the first second, measured for `length`.
async fn gaps(server: &Server, length: Duration) -> Vec<Duration> {
    let mut client = thin_client(server).await;
    send(&mut client, json!({"type": "response.create"})).await;
    let mut last: Option<Instant> = None;
    let began = support::now();
    let mut gaps = vec![];
    while began.elapsed() < length {
        let event = next(&mut client).await;
        if event["type"] != "response.output_audio.delta" {
            continue;
        }
        let now = support::now();
        if let Some(last) = last.filter(|_| began.elapsed() > Duration::from_secs(1)) {
            gaps.push(now - last);
        }
        last = Some(now);
    }
    gaps
}

/// The 99th percentile of the gaps of four listeners.
async fn p99(server: &Server, length: Duration) -> Duration {
    let all = join_all((0..4).map(|_| gaps(server, length))).await;
    let mut all: Vec<_> = all.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(
        all.len() > 100,
        "the answer was too short: {} gaps",
        all.len()
    );
    all[all.len() * 99 / 100]
}

/// Runs `count` clients that ask and never read. The server's backlog for them must be bounded, and
/// it must disconnect them. Returns the frame gaps of other clients without and with them.
async fn never_read(count: usize, limits: SocketLimits) -> (Duration, Duration) {
    let settings = ServerSettings {
        max_sessions: count + 8,
        socket: limits,
        ..local()
    };
    let server = &live::serve_with(settings, live::without_models(Arc::new(Talker(300))));
    let listening = limits.write_timeout + Duration::from_secs(3);
    let alone = p99(server, listening).await;
    let before = resident();
    let began = support::now();
    let mut slow = join_all((0..count).map(async |_| {
        let mut client = thin_client(server).await;
        send(&mut client, json!({"type": "response.create"})).await;
        client
    }))
    .await;
    let (among, (closed, kept)) =
        tokio::join!(p99(server, listening), all_closed(server, count, began));
    println!(
        "{count} clients that never read: closed after {closed:?}, {} KiB each before that; \
         99 % of the others' frames came {alone:?} apart without them, {among:?} with them",
        kept.saturating_sub(before) / 1024 / count,
    );
    let dropped = server.counters.audio_out_dropped.load(Relaxed);
    assert!(dropped > 0, "nothing was too much for anyone");
    for client in &mut slow {
        client.get_mut().shutdown().await.ok();
    }
    (alone, among)
}

/// Waits until all slow clients are disconnected. Returns how long that took, and the peak memory.
async fn all_closed(server: &Server, count: usize, began: Instant) -> (Duration, usize) {
    let mut watch = interval(Duration::from_millis(100));
    let mut most = 0;
    let closed = async {
        while server.counters.slow_clients.load(Relaxed) < count as u64 {
            watch.tick().await;
            most = most.max(resident());
        }
    };
    timeout(6 * PATIENCE, closed).await.expect("closed in time");
    (began.elapsed(), most)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_are_disconnected_without_effect_on_others() {
    let _alone = ALONE.lock().await;
    let write_timeout = Duration::from_secs(2);
    let limits = SocketLimits {
        write_timeout,
        ..SocketLimits::default()
    };
    let (_, among) = never_read(20, limits).await;
    // If others waited for such a client, they would wait for its write timeout.
    assert!(among < write_timeout / 2, "{among:?} among them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak"]
async fn a_hundred_clients_that_never_read_are_disconnected_without_effect_on_others() {
    let _alone = ALONE.lock().await;
    let (alone, among) = never_read(100, SocketLimits::default()).await;
    // A tenth, plus the timer jitter of a busy machine.
    let bound = alone.mul_f64(1.1) + Duration::from_millis(15);
    assert!(among < bound, "{alone:?} alone, {among:?} among them");
}

/// The resident memory of this process, bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: usize| pages * 4096)
}

/// The bytes that are allocated and not freed.
fn allocated() -> usize {
    let stats = HEAP.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated)
}

fn with_real_vad() -> Builders {
    let silero = common::weights().join("silero/silero_vad.onnx");
    Builders {
        vad: Box::new(move || {
            let model = SileroModel::load(&silero).expect("the model");
            Box::new(move || Ok(Box::new(Gated::new(model.detector())) as Box<dyn Vad>))
        }),
        ..live::without_models(Arc::new(Talker(5)))
    }
}

/// The memory per session of `count` sessions when open, and after two seconds of silence. Clients
/// and server share the process, so the clients' sockets count, too.
async fn idle_sessions(count: usize) -> (usize, usize) {
    let settings = ServerSettings {
        max_sessions: count + 16,
        ..local()
    };
    let server = &live::serve_with(settings, with_real_vad());
    // The first sessions create what is created once: threads, pools, lazy statics.
    let mut warm = join_all((0..16).map(|_| thin_client(server))).await;
    hear_silence(&mut warm).await;
    let before = (allocated(), resident());
    let mut clients = vec![];
    for _ in 0..count {
        let mut client = thin_client(server).await;
        assert_eq!(next(&mut client).await["type"], "session.created");
        clients.push(client);
    }
    let opened = (allocated(), resident());
    hear_silence(&mut clients).await;
    let mut listening = (allocated(), resident());
    // On a busy machine some of the audio is still being judged.
    for _ in 0..10 {
        clear(&mut clients).await;
        listening = listening.min((allocated(), resident()));
    }
    let each = |now: usize, before: usize| now.saturating_sub(before) / count;
    for (when, (heap, memory)) in [("open", opened), ("listening to silence", listening)] {
        println!(
            "{count} idle sessions, {when}: {} bytes of heap each, {} resident",
            each(heap, before.0),
            each(memory, before.1)
        );
    }
    (each(opened.0, before.0), each(listening.0, before.0))
}

/// Sends two seconds of silence from each client in real time or slower: a burst would fill the
/// sessions' queues more than a microphone does.
async fn hear_silence(clients: &mut [WebSocketStream<TcpStream>]) {
    let audio = base64_of(&[0; 480]);
    let append = json!({"type": "input_audio_buffer.append", "audio": audio});
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..100 {
        pace.tick().await;
        for client in &mut *clients {
            send(client, append.clone()).await;
        }
    }
    clear(clients).await;
}

/// Discards the audio of all clients, and waits until the sessions have.
async fn clear(clients: &mut [WebSocketStream<TcpStream>]) {
    for client in clients {
        send(client, json!({"type": "input_audio_buffer.clear"})).await;
        while next(client).await["type"] != "input_audio_buffer.cleared" {}
    }
}

#[tokio::test]
async fn an_idle_session_costs_little() {
    let _alone = ALONE.lock().await;
    let (opened, listening) = idle_sessions(100).await;
    assert!(opened <= IDLE_BYTES, "{opened} bytes");
    assert!(listening <= 2 * IDLE_BYTES, "{listening} bytes");
}

#[tokio::test]
#[ignore = "at full size: make soak"]
async fn two_hundred_idle_sessions_cost_little() {
    let _alone = ALONE.lock().await;
    let (opened, listening) = idle_sessions(200).await;
    assert!(opened <= IDLE_BYTES, "{opened} bytes");
    assert!(listening <= 2 * IDLE_BYTES, "{listening} bytes");
}

/// Sends audio at ten times real time.
async fn flood(seconds: u64) {
    let server = live::serve(live::without_models(Arc::new(Talker(5))));
    let mut client = server.open("/v1/pcm").await;
    let mut pace = interval(Duration::from_millis(20));
    let began = support::now();
    let mut sent = 0_u64;
    while began.elapsed() < Duration::from_secs(seconds) {
        pace.tick().await;
        client.send_bytes(vec![0; 10 * 640]).await;
        sent += 200;
    }
    let real = began.elapsed().as_millis() as u64;
    assert_eq!(client.event().await["type"], "error");
    // The answer to this message shows that everything before it has been read.
    client.send(json!({"type": "hello"})).await;
    client.event().await;
    let read = began.elapsed().as_millis() as u64;
    let dropped = server.counters.audio_in_dropped.load(Relaxed) / 1_000;
    println!("{sent} ms of audio within {real} ms: {dropped} ms dropped");
    let limits = IntakeLimits::LIVE;
    let passes = limits.burst.as_millis() as u64 + u64::from(limits.speed) * read;
    let waits = (limits.burst + limits.backlog).as_millis() as u64;
    let kept = sent - dropped;
    assert!(kept <= passes + waits, "{kept} ms were kept");
    assert!(kept >= real, "{kept} ms were kept");
}

#[tokio::test]
async fn audio_at_ten_times_real_time_is_dropped_and_counted() {
    let _alone = ALONE.lock().await;
    flood(2).await;
}

#[tokio::test]
#[ignore = "at full size: make soak"]
async fn half_a_minute_of_audio_at_ten_times_real_time_is_dropped_and_counted() {
    let _alone = ALONE.lock().await;
    flood(30).await;
}

/// The measurements of all callers.
#[derive(Default)]
struct Served {
    /// The time from the last word of each question to the first audio of its answer.
    waits: Vec<Duration>,
    refused: usize,
    unanswered: usize,
}

impl Served {
    /// The median and the 95th percentile of the waits.
    fn quantiles(&mut self) -> (Duration, Duration) {
        self.waits.sort_unstable();
        let last = self.waits.len().checked_sub(1).expect("an answer");
        (self.waits[last / 2], self.waits[last * 95 / 100])
    }
}

/// A caller who asks again some time after each answer.
async fn caller(server: &Server, question: &[i16], number: u64, until: Instant) -> Served {
    let mut served = Served::default();
    let Ok(mut call) = Call::try_to(server).await else {
        served.refused = 1;
        return served;
    };
    let length = Duration::from_millis(question.len() as u64 / 24);
    let mut turn = 0;
    while support::now() < until {
        // Spreads the callers without randomness.
        let pause = 500 + (number * 733 + turn * 419) % 3_000;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        turn += 1;
        let ended = call.say(question).await + length;
        let answer = async {
            let mut first = None;
            for heard in call.until("response.done").await {
                first = first.or((heard.audio_ms() > 0).then_some(heard.at));
            }
            first
        };
        match timeout(Duration::from_secs(9), answer).await {
            Ok(Some(first)) => served.waits.push(first.saturating_duration_since(ended)),
            Ok(None) | Err(_) => {
                served.unanswered += 1;
                return served;
            }
        }
    }
    served
}

/// Cuts speech after the last 10 ms louder than a hundredth of full scale, where the user's wait
/// starts.
fn without_the_silence_after(mut spoken: Vec<i16>) -> Vec<i16> {
    let quiet = |part: &[i16]| part.iter().all(|sample| sample.unsigned_abs() < 328);
    while spoken.len() > 240 && quiet(&spoken[spoken.len() - 240..]) {
        spoken.truncate(spoken.len() - 240);
    }
    spoken
}

/// Runs `count` callers, who arrive within two seconds, for `length` on a server with real models.
/// With `admission`, an overloaded server refuses callers.
async fn callers(count: u64, admission: bool, length: Duration) -> Served {
    let weights = common::weights();
    let question = {
        let mut voice = Piper::load(&weights.join("piper-joe")).expect("a voice");
        let spoken = common::spoken_at_once(
            &mut voice,
            "What time is it in Tokyo?",
            24_000,
            Speed::NORMAL,
        );
        without_the_silence_after(spoken)
    };
    let builders = Builders {
        llm: Arc::new(Talker(10)),
        ..real::engines(&weights, &Scripted::default())
    };
    let engines = Engines::start(builders).expect("engines");
    let (opener, room) = (engines.clone(), engines);
    let settings = ServerSettings {
        max_sessions: 1_000,
        ..local()
    };
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let server = &Server::serve(App {
        room: Arc::new(move || !admission || room.admit()),
        ..App::new(settings, sessions)
    });
    let until = support::now() + length;
    let each = (0..count).map(async |number| {
        tokio::time::sleep(Duration::from_millis(number * 2_000 / count)).await;
        caller(server, &question, number, until).await
    });
    let each = join_all(each).await;
    each.into_iter().fold(Served::default(), |mut all, one| {
        all.waits.extend(one.waits);
        all.refused += one.refused;
        all.unanswered += one.unanswered;
        all
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak"]
async fn admitted_callers_are_served_quickly() {
    let _alone = ALONE.lock().await;
    let length = Duration::from_secs(30);
    let mut figures = vec![];
    for (count, admission) in [(2, true), (60, false), (60, true)] {
        let mut served = callers(count, admission, length).await;
        let (median, most) = served.quantiles();
        println!(
            "{count} callers, admission by load {}: {} turns, {median:?} in the middle, {most:?} for \
             95 %; {} callers refused, {} left without an answer",
            if admission { "on" } else { "off" },
            served.waits.len(),
            served.refused,
            served.unanswered,
        );
        figures.push((most, served.unanswered));
    }
    let [(quiet, _), _, (loaded, unanswered)] = figures[..] else {
        unreachable!("three runs");
    };
    assert_eq!(unanswered, 0);
    assert!(
        loaded <= 2 * quiet,
        "{loaded:?}, and {quiet:?} when it is quiet"
    );
}

/// The resources that this process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holds {
    heap: usize,
    files: usize,
    threads: usize,
}

fn holds() -> Holds {
    let count = |folder: &str| std::fs::read_dir(folder).expect("Linux").count();
    Holds {
        heap: allocated(),
        files: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
    }
}

/// The resources that this process holds once the calls' ends have been handled.
async fn holds_at_rest() -> Holds {
    let mut before = holds();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = holds();
        if (now.files, now.threads) == (before.files, before.threads) {
            return now;
        }
        before = now;
    }
}

/// The same, once there are no more files and threads than `before`; idle threads end after ten seconds.
async fn holds_again(before: Holds) -> Holds {
    let until = support::now() + PATIENCE;
    loop {
        let now = holds_at_rest().await;
        let is_back = now.files <= before.files && now.threads <= before.threads;
        if is_back || support::now() > until {
            return now;
        }
    }
}

/// Calls again and again, as long as `goes_on` with the number of calls so far. In every third call the caller
/// interrupts the answer. Returns that number.
async fn call_again(server: &Server, number: u64, goes_on: impl Fn(u64) -> bool) -> u64 {
    let mut calls = 0;
    while goes_on(calls) {
        let mut call = Call::to(server).await;
        call.say(&live::tone(300)).await;
        call.until("response.output_audio.delta").await;
        if (calls + number).is_multiple_of(3) {
            call.say(&live::tone(300)).await;
            call.until("response.done").await;
        }
        call.until("response.done").await;
        calls += 1;
    }
    calls
}

/// `sessions` callers who call again and again. What the process holds afterwards must be what it held after the
/// first calls of all.
async fn loops(sessions: u64, goes_on: impl Fn(u64) -> bool) {
    let server = &live::serve(live::without_models(Arc::new(Talker(5))));
    let callers = async |goes_on: &dyn Fn(u64) -> bool| {
        let each = (0..sessions).map(|number| call_again(server, number, goes_on));
        join_all(each).await.into_iter().sum::<u64>()
    };
    // They create what is created once, and fill what is kept of the last calls.
    callers(&|calls| calls < 3).await;
    let before = holds_at_rest().await;
    let resident_before = resident();
    let calls = callers(&goes_on).await;
    let after = holds_again(before).await;
    let grown = after.heap.saturating_sub(before.heap);
    println!(
        "{sessions} sessions, {calls} calls: {before:?} before, {after:?} after; {grown} bytes of heap more, {} resident",
        resident().saturating_sub(resident_before)
    );
    assert!(grown < 1024 * 1024, "{grown} bytes were not freed");
    assert!(
        after.files <= before.files,
        "open files: {before:?}, {after:?}"
    );
    assert!(
        after.threads <= before.threads,
        "threads: {before:?}, {after:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_one_after_the_other_leave_nothing_behind() {
    let _alone = ALONE.lock().await;
    loops(4, |calls| calls < 3).await;
}

/// For as long as `UNDERTONE_SOAK_SECONDS` says, by default a minute; `make soak-hour` an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak, make soak-hour"]
async fn twenty_sessions_in_a_loop_leave_nothing_behind() {
    let _alone = ALONE.lock().await;
    let seconds = std::env::var("UNDERTONE_SOAK_SECONDS");
    let seconds = seconds.map_or(60, |text| text.parse().expect("whole seconds"));
    let until = support::now() + Duration::from_secs(seconds);
    loops(20, |_| support::now() < until).await;
}
