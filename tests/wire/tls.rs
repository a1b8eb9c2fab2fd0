//! TLS on the server's own port.

use crate::common;
use crate::support::program::{self, Program, answer, until};
use crate::support::scripted;
use crate::support::tls::{Authority, NAME, connect, connector, first, shown, tunnel};
use crate::support::{Client, PATIENCE, Script, Server, local};
use rustix::process::Signal;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::connect_async;
use undertone::server::{App, OpeningLimits, ServerSettings, Tls, TlsSettings};

const HTTP: &[u8] = b"http/1.1";

/// A server with a certificate of `authority` in `folder`.
fn serve(settings: ServerSettings, authority: &Authority, folder: &Path) -> Server {
    let (cert, key) = authority.issue_into(folder);
    let tls = Tls::open(&TlsSettings::Files { cert, key }).expect("a certificate");
    Server::serve(App {
        tls: Some(tls),
        ..App::new(settings, scripted::factory(Script::default()))
    })
}

#[tokio::test]
async fn a_conversation_over_tls() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let server = serve(local(), &authority, folder.path());
    let connector = connector(&authority.pem(), &[b"h2", HTTP]);
    let stream = connect(&connector, server.address, NAME)
        .await
        .expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(HTTP));
    drop(stream);

    let entrance = tunnel(connector, server.address).await;
    let opened = connect_async(format!("ws://{entrance}/v1/realtime?model=test")).await;
    let mut client = Client {
        socket: opened.expect("a WebSocket").0,
        protocol: None,
    };
    assert_eq!(client.event().await["type"], "session.created");
    client.speak(600, 1_000).await;
    let events = client.until("response.done").await;
    let of_type = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert!(of_type("response.output_audio.delta") > 0, "{events:?}");
}

#[tokio::test]
async fn a_client_that_speaks_only_http_2_is_refused() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let server = serve(local(), &authority, folder.path());
    let connector = connector(&authority.pem(), &[b"h2"]);
    assert!(connect(&connector, server.address, NAME).await.is_err());
}

#[tokio::test]
async fn a_request_over_plain_http_is_told_to_use_tls() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let server = serve(local(), &authority, folder.path());
    let answer = server.get("/healthz", "").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("connect to https:// or wss://"), "{answer}");
}

#[tokio::test]
async fn handshakes_that_stop_block_nobody_and_end_at_the_headers_deadline() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let settings = ServerSettings {
        header_timeout: Duration::from_secs(1),
        ..local()
    };
    let server = serve(settings, &authority, folder.path());
    let mut silent = Vec::new();
    for nth in 0..100 {
        let mut stream = TcpStream::connect(server.address)
            .await
            .expect("a connection");
        // Nothing, the beginning of a handshake record, or of its content.
        let begun: &[u8] = [&b""[..], &[22], &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]][nth % 3];
        stream.write_all(begun).await.expect("sent");
        silent.push(stream);
    }
    let connector = connector(&authority.pem(), &[HTTP]);
    let mut stream = connect(&connector, server.address, NAME)
        .await
        .expect("a handshake");
    let request = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        server.address
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("ok"), "{answer}");
    for mut stream in silent {
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        // A reset ends it, too.
        let _ = ended.expect("closed in time");
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart_and_a_broken_one_is_not() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path();
    let (cert, key) = authority.issue_into(folder);
    let settings = "[server]\nport = 0\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n[tools]\njournal = \"journal.jsonl\"\n";
    std::fs::write(folder.join("undertone.toml"), settings).expect("written");
    let mut command = program::command(folder, &common::weights(), "");
    command.stderr(File::create(folder.join("log")).expect("a log"));
    let program = Program::start(command).await;
    let address = program.address.parse().expect("an address");
    let connector = connector(&authority.pem(), &[HTTP]);
    let is_shown = async |pem: &str| {
        let seen = shown(&connector, address, NAME).await.expect("a handshake");
        seen == first(pem)
    };
    let logged = |text: &str| {
        let log = std::fs::read_to_string(folder.join("log")).expect("a log");
        log.contains(text)
    };
    let old = std::fs::read_to_string(&cert).expect("a certificate");
    assert!(is_shown(&old).await);

    // The certificate changes and its key does not.
    let (new, private) = authority.issue();
    std::fs::write(&cert, &new).expect("written");
    until(async || logged("is not that of the certificate in").then_some(())).await;
    assert!(is_shown(&old).await, "the old one is kept");

    std::fs::write(&key, private).expect("written");
    until(async || is_shown(&new).await.then_some(())).await;

    // SIGHUP reads it, too, and a conversation goes on over it.
    std::fs::write(&key, "no key").expect("written");
    program.signal(Signal::HUP);
    until(async || logged("there is no private key in PEM form").then_some(())).await;
    assert!(is_shown(&new).await);
    let entrance = tunnel(connector.clone(), address).await;
    let opened = connect_async(format!("ws://{entrance}/v1/realtime")).await;
    let mut client = Client {
        socket: opened.expect("a WebSocket").0,
        protocol: None,
    };
    let said = answer(&mut client, "What is two plus two?").await;
    assert!(said.contains('4'), "{said}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_an_error_at_the_start() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let (cert, _) = authority.issue_into(folder.path());
    let missing = folder.path().join("none.pem");
    let opened = Tls::open(&TlsSettings::Files {
        cert: cert.clone(),
        key: missing,
    });
    let error = opened
        .map(|_: Arc<Tls>| ())
        .expect_err("no key")
        .to_string();
    assert!(error.contains("none.pem: cannot be read"), "{error}");
}

#[tokio::test]
async fn responses_have_security_headers() {
    let has = |answer: &str, header: &str| answer.to_ascii_lowercase().contains(header);
    let server = Server::start(Script::default()).await;
    for path in ["/", "/healthz", "/metrics", "/v1/models", "/nothing"] {
        let answer = server.get(path, "").await;
        assert!(
            has(&answer, "x-content-type-options: nosniff\r\n"),
            "{path}: {answer}"
        );
        assert!(
            has(&answer, "frame-ancestors 'none'\r\n"),
            "{path}: {answer}"
        );
        assert!(
            has(&answer, "referrer-policy: no-referrer\r\n"),
            "{path}: {answer}"
        );
        assert!(
            !has(&answer, "strict-transport-security"),
            "{path}: {answer}"
        );
    }
    // The page has its own.
    let page = server.get("/", "").await;
    assert!(
        has(&page, "default-src 'self'") && has(&page, "cache-control: no-cache\r\n"),
        "{page}"
    );

    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let server = serve(local(), &authority, folder.path());
    let entrance = tunnel(connector(&authority.pem(), &[HTTP]), server.address).await;
    let answer = reqwest::get(format!("http://{entrance}/healthz"))
        .await
        .expect("an answer");
    let told = &answer.headers()["strict-transport-security"];
    assert_eq!(told, "max-age=31536000");
}

#[tokio::test]
async fn a_token_opens_so_many_sessions_a_minute_and_no_more() {
    let settings = ServerSettings {
        auth_token: Some("a token that is long enough".into()),
        openings: OpeningLimits {
            per_address: 1,
            per_token: 2,
        },
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let shown = [("authorization", "Bearer a token that is long enough")];
    let open = async || server.try_open("/v1/realtime", &shown).await;
    assert!(open().await.is_ok());
    assert!(open().await.is_ok());
    assert_eq!(open().await.err(), Some(429));
    let asked = "Authorization: Bearer a token that is long enough\r\n";
    let answer = server.get("/v1/pcm", asked).await.to_ascii_lowercase();
    assert!(
        answer.starts_with("http/1.1 429 ") && answer.contains("\r\nretry-after: "),
        "{answer}"
    );
    assert!(answer.contains("rate_limit_exceeded"), "{answer}");
    // Nothing else is limited by it, and clients without a good token are not told about it.
    assert!(
        server
            .get("/metrics", asked)
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    for _ in 0..3 {
        let made_up = [("authorization", "Bearer made up")];
        let refused = server.try_open("/v1/realtime", &made_up).await;
        assert_eq!(refused.err(), Some(401));
    }
}

/// It used to speak plain HTTP to its own server, which answered "400 Bad Request".
#[tokio::test(flavor = "multi_thread")]
async fn the_call_command_reaches_its_own_server_over_tls() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path();
    let server = serve(local(), &authority, folder);
    let port = server.address.port();
    let settings =
        format!("[server]\nport = {port}\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n");
    std::fs::write(folder.join("undertone.toml"), settings).expect("written");
    let asked = program::command(folder, folder, "exec \"$0\" call +15550100;")
        .output()
        .await
        .expect("it runs");
    let told = String::from_utf8_lossy(&asked.stderr);
    assert!(told.contains("This server places no calls"), "{told}");
}
