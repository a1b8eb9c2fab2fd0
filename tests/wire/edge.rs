//! Tests the server's edge: malformed frames, half-open handshakes, access control, slow and
//! vanished clients, and draining.

use crate::support;
use futures_util::{SinkExt, StreamExt, stream};
use serde_json::Value;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::{PATIENCE, Script, Server, local, scripted};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use undertone::server::{App, ServerSettings, SocketLimits};

/// The number of malformed frames; each one's number is its seed.
const MALFORMED: u64 = 2000;

/// xorshift64*, for reproducible test data.
struct Random(u64);

impl Random {
    fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// A masked frame. `first` has FIN, RSV and the opcode.
fn frame(first: u8, payload: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    let mask = random.bytes(4);
    bytes.extend(&mask);
    bytes.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    bytes
}

/// A malformed client: the path, the bytes it sends, and the expected close code.
fn malformed(seed: u64) -> (&'static str, Vec<u8>, u16) {
    let random = &mut Random::seeded(seed);
    let payload = |random: &mut Random, longest| {
        let length = random.below(longest) as usize;
        random.bytes(length)
    };
    const PCM: &str = "/v1/pcm";
    const REALTIME: &str = "/v1/realtime";
    match seed % 11 {
        0 => {
            let opcode = [3, 4, 5, 6, 7, 11, 12, 13, 14, 15][random.below(10) as usize];
            let data = payload(random, 100);
            (PCM, frame(0x80 | opcode, &data, random), 1002)
        }
        1 => {
            let reserved = (1 + random.below(7) as u8) << 4;
            let data = payload(random, 100);
            (PCM, frame(0x82 | reserved, &data, random), 1002)
        }
        2 => {
            let data = payload(random, 125);
            let mut bytes = vec![0x82, data.len() as u8];
            bytes.extend(data);
            (PCM, bytes, 1002)
        }
        3 => (
            PCM,
            frame([0x08, 0x09, 0x0A][random.below(3) as usize], b"", random),
            1002,
        ),
        4 => {
            let data = [b'x'; 126].repeat(1 + random.below(3) as usize);
            (
                PCM,
                frame(0x89 + random.below(2) as u8, &data, random),
                1002,
            )
        }
        5 => {
            let data = payload(random, 200);
            (PCM, frame(0x80, &data, random), 1002)
        }
        6 => {
            let mut data = b"{\"type\": \"".to_vec();
            data.push([0xC0, 0xFF, 0x80, 0xF8][random.below(4) as usize]);
            (REALTIME, frame(0x81, &data, random), 1007)
        }
        7 => {
            let mut bytes = vec![0x82, 0x80 | 127];
            bytes.extend((65_537 + random.below(1 << 40)).to_be_bytes());
            bytes.extend(random.bytes(4));
            (PCM, bytes, 1009)
        }
        8 => {
            let half = vec![0; 40_000];
            let mut bytes = frame(0x02, &half, random);
            bytes.extend(frame(0x80, &half, random));
            (PCM, bytes, 1009)
        }
        9 => {
            let data = payload(random, 500);
            (REALTIME, frame(0x82, &data, random), 1003)
        }
        _ => {
            let odd = 1 + 2 * random.below(300) as usize;
            let data = random.bytes(odd);
            (PCM, frame(0x82, &data, random), 1007)
        }
    }
}

async fn raw_socket(server: &Server, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address)
        .await
        .expect("a connection");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.address
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = vec![];
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("the answer"));
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 101"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    stream
}

/// Reads server frames until a close frame. Returns its code.
async fn close_code(stream: &mut TcpStream) -> u16 {
    loop {
        let first = stream.read_u8().await.expect("a frame");
        let length = match stream.read_u8().await.expect("a length") {
            126 => usize::from(stream.read_u16().await.expect("a length")),
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.expect("a payload");
        if first & 0x0F == 8 {
            return u16::from_be_bytes([payload[0], payload[1]]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_frames_get_the_right_close_code() {
    malformed_clients(MALFORMED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak"]
async fn ten_thousand_malformed_frames_get_the_right_close_code() {
    malformed_clients(10_000).await;
}

/// Connects `count` malformed clients, 16 at a time.
async fn malformed_clients(count: u64) {
    let settings = ServerSettings {
        max_sessions: 1000,
        ..local()
    };
    let server = &Server::with(settings, Script::default()).await;
    let mut times: Vec<Duration> = stream::iter(0..count)
        .map(async |seed| {
            let (path, bytes, expected) = malformed(seed);
            let mut stream = raw_socket(server, path).await;
            let sent = support::now();
            stream.write_all(&bytes).await.expect("sent");
            let code = timeout(PATIENCE, close_code(&mut stream))
                .await
                .expect("a close in time");
            assert_eq!(code, expected, "seed {seed}");
            sent.elapsed()
        })
        .buffer_unordered(16)
        .collect()
        .await;
    assert_eq!(server.counters.bad_clients.load(Relaxed), count);
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{count} malformed frames closed after {:?} (median), {:?} (99 %), {:?} (worst)",
        at(50),
        at(99),
        at(100)
    );
}

#[tokio::test]
async fn noise_after_the_handshake_does_not_affect_others() {
    let server = Server::start(Script::default()).await;
    let mut bystander = server.realtime().await;
    for seed in 0..200 {
        let mut stream = raw_socket(&server, "/v1/realtime").await;
        let noise = Random::seeded(seed).bytes(300);
        stream.write_all(&noise).await.expect("sent");
    }
    bystander.speak(500, 400).await;
    bystander.until("response.done").await;
}

#[tokio::test]
async fn half_open_handshakes_are_closed() {
    half_open(500, Duration::from_millis(200)).await;
}

#[tokio::test]
#[ignore = "at full size: make soak"]
async fn two_thousand_half_open_handshakes_are_closed_within_ten_seconds() {
    let timeout = ServerSettings::default().header_timeout;
    let worst = half_open(2_000, timeout).await;
    assert!(worst < Duration::from_secs(10), "{worst:?}");
}

/// Opens `count` connections that never finish their headers, and waits until all are closed.
/// Returns how long that took.
async fn half_open(count: usize, header_timeout: Duration) -> Duration {
    let settings = ServerSettings {
        header_timeout,
        ..local()
    };
    let server = &Server::with(settings, Script::default()).await;
    let started = support::now();
    stream::iter(0..count)
        .for_each_concurrent(count, async |_| {
            let mut stream = TcpStream::connect(server.address)
                .await
                .expect("a connection");
            stream
                .write_all(b"GET /v1/realtime HTTP/1.1\r\nHost:")
                .await
                .expect("sent");
            let mut rest = vec![];
            // Closed or reset: either frees the connection.
            let _ = timeout(2 * PATIENCE, stream.read_to_end(&mut rest))
                .await
                .expect("closed in time");
        })
        .await;
    let elapsed = started.elapsed();
    println!("{count} half-open handshakes are closed after {elapsed:?}");
    assert!(server.get("/healthz", "").await.starts_with("HTTP/1.1 200"));
    elapsed
}

/// Opens and returns `count` connections that send nothing.
async fn silent(address: std::net::SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(TcpStream::connect(address).await.expect("a connection"));
    }
    open
}

/// Waits until the server has closed a connection.
async fn is_closed(stream: &mut TcpStream) {
    let mut rest = vec![];
    // Closed or reset: either frees the connection.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest))
        .await
        .expect("closed in time");
}

#[tokio::test]
async fn connections_that_send_nothing_are_closed() {
    let settings = ServerSettings {
        header_timeout: Duration::from_millis(200),
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    for mut stream in silent(server.address, 200).await {
        is_closed(&mut stream).await;
    }
    let metrics = server.get("/metrics", "").await;
    let counted = r#"undertone_refused_connections_total{reason="silent"} 200"#;
    assert!(metrics.contains(counted), "{metrics}");
}

/// They were served, with WebSockets that failed and without the limits per connection.
#[tokio::test]
async fn clients_that_know_http_2_beforehand_are_not_served() {
    let server = Server::start(Script::default()).await;
    let mut stream = TcpStream::connect(server.address).await.expect("a socket");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    stream.write_all(preface).await.expect("sent");
    let mut answer = vec![];
    // Closed or reset: there is no frame with settings before it.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .expect("closed in time");
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let settings = ServerSettings {
        header_timeout: Duration::from_secs(600),
        max_connections: 64,
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let mut before = server.realtime().await;
    let _silent = silent(server.address, 500).await;
    assert!(server.get("/healthz", "").await.starts_with("HTTP/1.1 200"));
    let mut after = server.realtime().await;
    for client in [&mut before, &mut after] {
        client.speak(500, 400).await;
        client.until("response.done").await;
    }
}

#[tokio::test]
async fn a_response_can_be_read_to_its_end_during_a_flood() {
    let long = "x".repeat(16 * 1024 * 1024);
    let settings = ServerSettings {
        header_timeout: Duration::from_secs(600),
        max_connections: 8,
        ..local()
    };
    let answer = long.clone();
    let route = axum::routing::get(move || std::future::ready(answer.clone()));
    let server = Server::serve(App {
        routes: axum::Router::new().route("/long", route),
        ..App::new(settings, scripted::factory(Script::default()))
    });
    let mut reader = TcpStream::connect(server.address).await.expect("a socket");
    let request = b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    reader.write_all(request).await.expect("a request");
    let mut first = [0; 12];
    reader.read_exact(&mut first).await.expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200");
    let _silent = silent(server.address, 50).await;
    assert!(server.get("/healthz", "").await.starts_with("HTTP/1.1 200"));
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await.expect("the rest");
    assert!(rest.ends_with(long.as_bytes()), "{} bytes", rest.len());
}

#[tokio::test]
async fn silent_calls_take_no_place() {
    let settings = ServerSettings {
        header_timeout: Duration::from_millis(300),
        max_sessions: 1,
        ..local()
    };
    let sessions = scripted::factory(Script::default());
    let (server, calls) = Server::of_calls(settings, sessions);
    let silent = silent(calls, 20).await;
    assert_eq!(server.try_open("/v1/pcm", &[]).await.err(), None);
    for mut stream in silent {
        is_closed(&mut stream).await;
    }
}

#[tokio::test]
async fn a_message_over_the_limit_gets_code_1009() {
    let server = Server::start(Script::default()).await;
    let limits = ServerSettings::default();
    for (path, first, most) in [
        ("/v1/pcm", 0x82, limits.max_pcm_message),
        ("/v1/realtime", 0x81, limits.max_realtime_message),
    ] {
        let mut stream = raw_socket(&server, path).await;
        let too_big = frame(first, &vec![b' '; most + 1], &mut Random::seeded(1));
        stream.write_all(&too_big).await.expect("all is taken");
        assert_eq!(close_code(&mut stream).await, 1009, "{path}");
        // After a reset, a client that is still sending could not read the code.
        let mut rest = vec![];
        let closed = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        closed.expect("in time").expect("closed, not reset");
    }
}

#[tokio::test]
async fn pages_of_strangers_get_no_session() {
    let server = Server::start(Script::default()).await;
    let origin = async |origin| {
        server
            .try_open("/v1/realtime", &[("origin", origin)])
            .await
            .err()
    };
    assert_eq!(origin("https://evil.example").await, Some(403));
    assert_eq!(origin("null").await, Some(403));
    assert_eq!(origin("http://localhost:5173").await, None);
}

#[tokio::test]
async fn what_a_proxy_passes_on_gets_no_session_without_a_token() {
    let server = Server::start(Script::default()).await;
    let with = async |headers: &[_]| server.try_open("/v1/pcm", headers).await.err();
    assert_eq!(with(&[("x-forwarded-for", "203.0.113.7")]).await, Some(403));
    assert_eq!(with(&[]).await, None);
}

#[tokio::test]
async fn the_doctor_does_not_report_a_running_server_as_an_error() {
    let server = Server::start(Script::default()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_undertone"));
    doctor
        .args(["doctor", "--json"])
        .current_dir(folder.path())
        .env("UNDERTONE_MODELS", "nowhere")
        .env("UNDERTONE_SERVER__PORT", server.address.port().to_string());
    let output = tokio::task::spawn_blocking(move || doctor.output()).await;
    let report = output.expect("a thread").expect("a report").stdout;
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let port = checks.iter().find(|check| check["name"] == "port");
    assert_eq!(port.expect("a port")["status"], "ok", "{report}");
}

#[tokio::test]
async fn a_valid_token_opens_a_session() {
    let settings = ServerSettings {
        auth_token: Some("secret".into()),
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let with = async |headers: &[_]| server.try_open("/v1/pcm", headers).await.err();
    assert_eq!(with(&[]).await, Some(401));
    assert_eq!(with(&[("authorization", "Bearer wrong")]).await, Some(401));
    assert_eq!(with(&[("authorization", "Bearer secret")]).await, None);
    let browser = [
        ("origin", "https://page.example"),
        (
            "sec-websocket-protocol",
            "realtime, openai-insecure-api-key.secret",
        ),
    ];
    assert_eq!(server.try_open("/v1/realtime", &browser).await.err(), None);
    assert!(server.get("/healthz", "").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn beyond_max_sessions_clients_get_retry_after() {
    let settings = ServerSettings {
        max_sessions: 1,
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let mut first = server.realtime().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = server.get("/v1/realtime", upgrade).await.to_lowercase();
    assert!(
        answer.starts_with("http/1.1 503") && answer.contains("retry-after:"),
        "{answer}"
    );
    first.socket.close(None).await.expect("closed");
    while first.message().await.is_some() {}
    admitted(&server).await;
}

/// Waits until the server admits a client again.
async fn admitted(server: &Server) {
    let admission = async {
        while server.try_open("/v1/pcm", &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, admission)
        .await
        .expect("admitted in time");
}

#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() {
    let socket = SocketLimits {
        write_timeout: Duration::from_millis(500),
        ..SocketLimits::default()
    };
    let settings = ServerSettings {
        max_sessions: 1,
        socket,
        ..local()
    };
    let server = Server::with(
        settings,
        Script {
            flood: true,
            ..Script::default()
        },
    )
    .await;
    let mut client = server.open("/v1/realtime").await;
    client.speak(100, 0).await;
    // It has the only place, so nobody is admitted before it is disconnected.
    admitted(&server).await;
    assert_eq!(server.counters.slow_clients.load(Relaxed), 1);
    assert!(server.counters.audio_out_dropped.load(Relaxed) > 0);
}

#[tokio::test]
async fn a_client_that_vanished_is_freed() {
    let socket = SocketLimits {
        ping_every: Duration::from_millis(100),
        gone_after: Duration::from_millis(300),
        ..SocketLimits::default()
    };
    let settings = ServerSettings {
        max_sessions: 1,
        socket,
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let _silent = raw_socket(&server, "/v1/realtime").await;
    admitted(&server).await;
    assert_eq!(server.counters.vanished_clients.load(Relaxed), 1);
}

#[tokio::test]
async fn a_client_that_opens_no_session_frees_its_place() {
    let socket = SocketLimits {
        open_within: Duration::from_millis(300),
        ..SocketLimits::default()
    };
    let settings = ServerSettings {
        max_sessions: 1,
        socket,
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let mut idle = server.open("/v1/pcm").await;
    // An invalid hello does not open a session.
    idle.send_text(r#"{"type":"hello","sample_rate":1}"#).await;
    assert_eq!(server.try_open("/v1/pcm", &[]).await.err(), Some(503));
    assert_eq!(u16::from(idle.close_frame().await.code), 1008);
    admitted(&server).await;
}

#[tokio::test]
async fn an_idle_client_that_answers_pings_stays() {
    let socket = SocketLimits {
        ping_every: Duration::from_millis(20),
        gone_after: Duration::from_millis(200),
        ..SocketLimits::default()
    };
    let server = Server::with(ServerSettings { socket, ..local() }, Script::default()).await;
    let mut client = server.realtime().await;
    for _ in 0..20 {
        let next = timeout(PATIENCE, client.socket.next())
            .await
            .expect("a ping in time");
        assert!(next.expect("open").expect("a message").is_ping());
        client.socket.flush().await.expect("answered");
    }
    assert_eq!(server.counters.vanished_clients.load(Relaxed), 0);
}

#[tokio::test]
async fn a_flood_of_live_audio_is_dropped_and_counted() {
    let server = Server::start(Script::default()).await;
    let mut client = server.open("/v1/pcm").await;
    for _ in 0..100 {
        client.send_bytes(vec![0; 6400]).await;
    }
    // The answer shows that everything before it has been read.
    client.send_text("no JSON").await;
    assert_eq!(client.event().await["type"], "error");
    assert_eq!(client.event().await["type"], "error");
    assert!(server.counters.audio_in_dropped.load(Relaxed) >= 1_000_000);
}

#[tokio::test]
async fn a_drain_lets_sessions_end_and_admits_none() {
    let settings = ServerSettings {
        drain_deadline: Duration::from_secs(60),
        ..local()
    };
    let mut server = Server::with(settings, Script::default()).await;
    let mut client = server.realtime().await;
    server.shutdown.cancel();
    assert_eq!(u16::from(client.close_frame().await.code), 1001);
    while client.message().await.is_some() {}
    let result = timeout(PATIENCE, &mut server.task)
        .await
        .expect("ends in time");
    result.expect("no panic").expect("no error");
}

#[tokio::test]
async fn a_stuck_session_is_closed_at_the_deadline() {
    let settings = ServerSettings {
        drain_deadline: Duration::from_millis(500),
        ..local()
    };
    let mut server = Server::with(
        settings,
        Script {
            stuck: true,
            ..Script::default()
        },
    )
    .await;
    let mut client = server.realtime().await;
    assert!(server.get("/readyz", "").await.starts_with("HTTP/1.1 200"));
    server.shutdown.cancel();
    assert!(server.get("/readyz", "").await.starts_with("HTTP/1.1 503"));
    assert_eq!(server.try_open("/v1/pcm", &[]).await.err(), Some(503));
    assert_eq!(u16::from(client.close_frame().await.code), 1001);
    while client.message().await.is_some() {}
    let result = timeout(PATIENCE, &mut server.task)
        .await
        .expect("ends in time");
    result.expect("no panic").expect("no error");
}
