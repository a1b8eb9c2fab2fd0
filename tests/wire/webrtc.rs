//! Calls over WebRTC, as far as HTTP goes: offers, their answers, access and places. The calls themselves are tested
//! in `transport/webrtc/tests.rs`, and with a browser in `tests/playground.rs`.

use crate::support;
use futures_util::future::join_all;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::scripted::ANSWER_FRAMES;
use support::webrtc::Peer;
use support::{PATIENCE, Script, Server, local, scripted};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use undertone::server::{App, ServerSettings};
use undertone::transport::webrtc;

const TOKEN: &str = "the operator's token";

/// An offer of a browser's kind: a track without a stream, the events' channel, and no candidates.
const OFFER: &str = "v=0\r\n\
o=- 4611731400430051336 2 IN IP4 127.0.0.1\r\n\
s=-\r\n\
t=0 0\r\n\
a=group:BUNDLE 0 1\r\n\
a=extmap-allow-mixed\r\n\
a=msid-semantic: WMS\r\n\
m=audio 9 UDP/TLS/RTP/SAVPF 111 63 0 8\r\n\
c=IN IP4 0.0.0.0\r\n\
a=rtcp:9 IN IP4 0.0.0.0\r\n\
a=ice-ufrag:abcd\r\n\
a=ice-pwd:abcdefghijklmnopqrstuvwx\r\n\
a=ice-options:trickle\r\n\
a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n\
a=setup:actpass\r\n\
a=mid:0\r\n\
a=sendrecv\r\n\
a=msid:- 2b7a2d42-8b8e-4e0a-bd0a-6b1f5a3a7e11\r\n\
a=rtcp-mux\r\n\
a=rtpmap:111 opus/48000/2\r\n\
a=fmtp:111 minptime=10;useinbandfec=1\r\n\
a=rtpmap:63 red/48000/2\r\n\
a=fmtp:63 111/111\r\n\
a=rtpmap:0 PCMU/8000\r\n\
a=rtpmap:8 PCMA/8000\r\n\
a=ssrc:1234567 cname:someone\r\n\
m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n\
c=IN IP4 0.0.0.0\r\n\
a=ice-ufrag:abcd\r\n\
a=ice-pwd:abcdefghijklmnopqrstuvwx\r\n\
a=ice-options:trickle\r\n\
a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n\
a=setup:actpass\r\n\
a=mid:1\r\n\
a=sctp-port:5000\r\n\
a=max-message-size:262144\r\n";

/// A server with a UDP port of its own.
fn serve(settings: ServerSettings) -> Server {
    let bound = webrtc::bind(settings.bind, &[]).expect("a UDP port");
    Server::serve(App {
        webrtc: Some(bound),
        ..App::new(settings, scripted::factory(Script::default()))
    })
}

fn with_token() -> ServerSettings {
    ServerSettings {
        auth_token: Some(TOKEN.into()),
        ..local()
    }
}

fn request(server: &Server, method: Method, path: &str) -> RequestBuilder {
    let url = format!("http://{}{path}", server.address);
    reqwest::Client::new().request(method, url)
}

fn offer(server: &Server) -> RequestBuilder {
    request(server, Method::POST, "/v1/realtime/calls")
}

fn sdp(server: &Server) -> RequestBuilder {
    offer(server)
        .header(CONTENT_TYPE, "application/sdp")
        .body(OFFER)
}

async fn send(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

/// Asserts that an offer was answered. Returns the call's id.
async fn answered(response: Response) -> String {
    let status = response.status();
    let header = |name| {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("text").to_owned())
    };
    let (kind, place) = (header(CONTENT_TYPE), header(LOCATION));
    let exposed = header(reqwest::header::ACCESS_CONTROL_EXPOSE_HEADERS);
    let body = response.text().await.expect("a body");
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(kind.as_deref(), Some("application/sdp"));
    assert_eq!(exposed.as_deref(), Some("location"));
    for part in [
        "a=ice-lite",
        "opus/48000/2",
        " typ host",
        "webrtc-datachannel",
        "useinbandfec=1",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    let stream = body
        .lines()
        .find_map(|line| line.strip_prefix("a=msid:"))
        .expect("a stream");
    assert!(!stream.starts_with("- "), "{body}");
    let place = place.expect("a location");
    let id = place.strip_prefix("/v1/realtime/calls/").expect("a call");
    id.to_owned()
}

/// Asserts that a request was refused in the form that OpenAI's SDKs show. Returns the error's code.
async fn refused(response: Response, status: StatusCode) -> String {
    let given = response.status();
    let allowed = response
        .headers()
        .get("access-control-allow-origin")
        .cloned();
    let error: Value = response.json().await.expect("JSON");
    assert_eq!(given, status, "{error}");
    assert_eq!(allowed.expect("CORS"), "*");
    assert!(error["error"]["message"].is_string(), "{error}");
    error["error"]["code"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn an_offer_is_answered_in_all_three_forms() {
    let server = serve(local());
    let session = json!({"type": "realtime", "model": "undertone", "instructions": "Be kind."});
    answered(send(sdp(&server)).await).await;
    let whole = json!({"sdp": OFFER, "session": session});
    answered(send(offer(&server).json(&whole)).await).await;
    answered(send(offer(&server).json(&json!({ "sdp": OFFER }))).await).await;
    // Without types is how a browser's FormData sends them.
    for (sdp_type, session_type) in [
        (
            "Content-Type: application/sdp\r\n",
            "Content-Type: application/json\r\n",
        ),
        ("", ""),
    ] {
        let part = |name: &str, kind: &str, value: &str| {
            let disposition = format!("Content-Disposition: form-data; name=\"{name}\"");
            format!("--x\r\n{disposition}\r\n{kind}\r\n{value}\r\n")
        };
        let parts =
            part("sdp", sdp_type, OFFER) + &part("session", session_type, &session.to_string());
        let form = offer(&server)
            .header(CONTENT_TYPE, "multipart/form-data; boundary=x")
            .body(parts + "--x--\r\n");
        answered(send(form).await).await;
    }
}

/// It was answered with status 405, and so was what browsers ask before.
#[tokio::test]
async fn an_offer_at_the_address_of_the_beta_is_answered_and_events_have_its_names() {
    let server = serve(local());
    let path = "/v1/realtime?model=gpt-4o-realtime-preview";
    let asked = request(&server, Method::OPTIONS, path)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization");
    let allowed = send(asked).await;
    assert_eq!(allowed.status(), StatusCode::NO_CONTENT);
    assert_eq!(allowed.headers()["access-control-allow-origin"], "*");
    let posted = request(&server, Method::POST, path).header(CONTENT_TYPE, "application/sdp");
    answered(send(posted.body(OFFER)).await).await;
    let posted = request(&server, Method::POST, path).header(CONTENT_TYPE, "application/sdp");
    let bad = refused(send(posted.body("hello")).await, StatusCode::BAD_REQUEST);
    assert_eq!(bad.await, "invalid_offer");
    let plain = send(request(&server, Method::GET, path)).await;
    assert_eq!(plain.status(), StatusCode::BAD_REQUEST, "no upgrade");

    let mut peer = Peer::call_at(&server, path).await;
    assert!(peer.events[0]["session"]["modalities"].is_array());
    peer.speak(25, 25).await;
    peer.until(|peer| peer.has("response.done")).await;
    assert!(peer.has("conversation.item.created"));
    assert!(!peer.has("conversation.item.added"));
    let mut peer = Peer::call(&server).await;
    peer.speak(25, 25).await;
    peer.until(|peer| peer.has("conversation.item.added")).await;
}

#[tokio::test]
async fn a_bad_offer_is_refused_with_a_message_for_the_developer() {
    let server = serve(local());
    let bad = StatusCode::BAD_REQUEST;
    let with = |kind: &str, body: &str| {
        offer(&server)
            .header(CONTENT_TYPE, kind)
            .body(body.to_owned())
    };
    for (kind, body) in [
        ("application/sdp", "hello"),
        ("application/sdp", ""),
        ("application/json", "{}"),
        ("application/json", "v=0"),
        ("multipart/form-data; boundary=x", "--x\r\n"),
        ("multipart/form-data", ""),
    ] {
        assert_eq!(
            refused(send(with(kind, body)).await, bad).await,
            "invalid_offer",
            "{kind} {body}"
        );
    }
    let silent = OFFER.replace("m=audio", "m=video");
    refused(send(with("application/sdp", &silent)).await, bad).await;
    // A call without Opus was answered, and silent.
    let telephone = OFFER.replace("SAVPF 111 63 0 8", "SAVPF 0 8");
    let is_kept = |line: &&str| !line.contains(":111 ") && !line.contains(":63 ");
    let telephone: Vec<&str> = telephone.lines().filter(is_kept).collect();
    let telephone = telephone.join("\r\n") + "\r\n";
    let refusal = send(with("application/sdp", &telephone)).await;
    assert_eq!(refusal.status(), bad);
    let error: Value = refusal.json().await.expect("JSON");
    let message = error["error"]["message"].as_str().expect("text");
    assert!(message.contains("no Opus (opus/48000/2)"), "{message}");
    let session = json!({"sdp": OFFER, "session": {"type": "realtime", "prompt": {"id": "p"}}});
    let code = refused(send(offer(&server).json(&session)).await, bad).await;
    assert_eq!(code, "unsupported_parameter");
    let other = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    assert_eq!(
        refused(send(with("text/plain", OFFER)).await, other).await,
        "unsupported_content_type"
    );
    refused(send(offer(&server).body(OFFER)).await, other).await;
    let without = Server::start(Script::default()).await;
    let code = refused(send(sdp(&without)).await, StatusCode::NOT_IMPLEMENTED).await;
    assert_eq!(code, "webrtc_not_supported");
}

#[tokio::test]
async fn access_is_as_for_websockets() {
    let server = serve(with_token());
    let denied = StatusCode::UNAUTHORIZED;
    assert_eq!(
        refused(send(sdp(&server)).await, denied).await,
        "invalid_api_key"
    );
    let id = answered(send(sdp(&server).bearer_auth(TOKEN)).await).await;
    let secret = request(&server, Method::POST, "/v1/realtime/client_secrets").bearer_auth(TOKEN);
    let secret: Value = send(secret.json(&json!({})))
        .await
        .json()
        .await
        .expect("JSON");
    let secret = secret["value"].as_str().expect("a secret");
    answered(send(sdp(&server).bearer_auth(secret)).await).await;
    let hang_up = format!("/v1/realtime/calls/{id}/hangup");
    refused(send(request(&server, Method::POST, &hang_up)).await, denied).await;
    let hung_up = send(request(&server, Method::POST, &hang_up).bearer_auth(secret)).await;
    assert_eq!(hung_up.status(), StatusCode::OK);

    let open = serve(local());
    let foreign = sdp(&open).header("origin", "https://example.org");
    assert_eq!(
        refused(send(foreign).await, StatusCode::FORBIDDEN).await,
        "forbidden"
    );
    let asked = request(&open, Method::OPTIONS, "/v1/realtime/calls")
        .header("origin", "http://127.0.0.1:3000")
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization,content-type,x-openai-agents-sdk",
        );
    let allowed = send(asked).await;
    assert_eq!(allowed.status(), StatusCode::NO_CONTENT);
    let headers = allowed.headers()["access-control-allow-headers"]
        .to_str()
        .expect("text");
    for header in ["authorization", "content-type", "x-openai-agents-sdk"] {
        assert!(headers.contains(header), "{headers}");
    }
    answered(send(sdp(&open).header("origin", "http://127.0.0.1:3000")).await).await;
}

#[tokio::test]
async fn a_call_takes_a_place_until_it_is_hung_up() {
    let server = serve(ServerSettings {
        max_sessions: 1,
        ..local()
    });
    let full = StatusCode::SERVICE_UNAVAILABLE;
    for method in [Method::POST, Method::DELETE] {
        let id = loop {
            // The place of the call before is free once its task has ended.
            let response = send(sdp(&server)).await;
            if response.status() != full {
                break answered(response).await;
            }
            tokio::task::yield_now().await;
        };
        let code = refused(send(sdp(&server)).await, full).await;
        assert_eq!(code, "no_place");
        assert!(server.try_open("/v1/realtime", &[]).await.is_err());
        let path = match method {
            Method::POST => format!("/v1/realtime/calls/{id}/hangup"),
            _ => format!("/v1/realtime/calls/{id}"),
        };
        let hung_up = send(request(&server, method.clone(), &path)).await;
        assert_eq!(hung_up.status(), StatusCode::OK);
    }
    let unknown = request(&server, Method::DELETE, "/v1/realtime/calls/rtc_1");
    assert_eq!(
        refused(send(unknown).await, StatusCode::NOT_FOUND).await,
        "call_not_found"
    );
}

#[tokio::test]
async fn an_answered_offer_holds_up_no_shutdown() {
    let mut server = serve(ServerSettings {
        drain_deadline: Duration::from_secs(3_600),
        ..local()
    });
    answered(send(sdp(&server)).await).await;
    server.shutdown.cancel();
    let stopped = timeout(PATIENCE, &mut server.task).await;
    stopped
        .expect("in time")
        .expect("no panic")
        .expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_calls_share_a_port() {
    let server = serve(local());
    let mut peers = join_all((0..50).map(|_| Peer::call(&server))).await;
    // Not all speak at once: a machine that stalls meanwhile would lose packets.
    for speaking in peers.chunks_mut(10) {
        join_all(speaking.iter_mut().map(|peer| async {
            peer.speak(25, 25).await;
            peer.until(|peer| peer.has("output_audio_buffer.stopped"))
                .await;
        }))
        .await;
    }
    for peer in peers {
        assert!(peer.packets > ANSWER_FRAMES, "{}", peer.packets);
        let kinds = support::types(&peer.events);
        let count = |kind: &str| kinds.iter().filter(|other| **other == kind).count();
        for kind in [
            "input_audio_buffer.speech_started",
            "response.done",
            "output_audio_buffer.started",
        ] {
            assert_eq!(count(kind), 1, "{kind}: {kinds:?}");
        }
        assert_eq!(count("error"), 0, "{:?}", peer.events);
    }
    assert_eq!(server.counters.sessions.load(Relaxed), 50);
}

/// A UDP port, and a listener for TCP with the same number.
fn both() -> (webrtc::Bound, TcpListener) {
    loop {
        let bound = webrtc::bind(local().bind, &[]).expect("a UDP port");
        // The number may be taken for TCP.
        if let Ok(listener) = undertone::server::bind(bound.addresses()[0]) {
            return (bound, listener);
        }
    }
}

/// A server that takes HTTP and calls over UDP and TCP at one number.
fn serve_at_one_number() -> Server {
    let (bound, listener) = both();
    let bind = bound.addresses()[0];
    drop(listener);
    Server::serve(App {
        webrtc: Some(bound.over(webrtc::Tcp::Shared)),
        ..App::new(
            ServerSettings { bind, ..local() },
            scripted::factory(Script::default()),
        )
    })
}

/// Speaks, hears an answer, and hangs up.
async fn talks_and_leaves(server: &Server, mut peer: Peer) {
    peer.speak(25, 25).await;
    peer.until(|peer| peer.has("output_audio_buffer.stopped"))
        .await;
    assert!(peer.packets > ANSWER_FRAMES, "{}", peer.packets);
    let hang_up = format!("/v1/realtime/calls/{}/hangup", peer.id);
    send(request(server, Method::POST, &hang_up)).await;
    peer.until(|peer| peer.is_closed).await;
}

#[tokio::test]
async fn a_client_to_which_no_udp_port_is_open_calls_over_tcp_at_the_port_of_http() {
    let server = serve_at_one_number();
    let peer = Peer::call_over_tcp(&server, server.address).await;
    // Requests over HTTP are answered beside it.
    let ready = send(request(&server, Method::GET, "/readyz")).await;
    assert_eq!(ready.status(), StatusCode::OK);
    talks_and_leaves(&server, peer).await;
}

#[tokio::test]
async fn calls_over_tcp_may_have_a_port_of_their_own() {
    let (bound, listener) = both();
    let port = bound.addresses()[0];
    let server = Server::serve(App {
        webrtc: Some(bound.over(webrtc::Tcp::Own(listener))),
        ..App::new(local(), scripted::factory(Script::default()))
    });
    let sdp = send(sdp(&server)).await.text().await.expect("SDP");
    let candidates: Vec<_> = sdp
        .lines()
        .filter(|line| line.starts_with("a=candidate:"))
        .collect();
    assert!(
        candidates
            .iter()
            .any(|line| line.contains("tcptype passive")),
        "{candidates:?}"
    );
    let peer = Peer::call_over_tcp(&server, port).await;
    talks_and_leaves(&server, peer).await;
}

#[tokio::test]
async fn connections_that_name_no_call_are_closed() {
    let server = serve_at_one_number();
    for packet in [&[0, 4, 1, 2, 3, 4][..], &[0, 0], &[7, 255]] {
        let mut stream = TcpStream::connect(server.address)
            .await
            .expect("a connection");
        stream.write_all(packet).await.expect("written");
        stream.shutdown().await.expect("shut down");
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        // It may also be reset.
        assert!(read.expect("it is closed").is_err() || answer.is_empty());
    }
}

#[tokio::test]
async fn a_call_that_is_cut_off_goes_on_over_a_websocket() {
    let server = serve(local());
    let mut peer = Peer::call_resumable(&server).await;
    peer.speak(25, 25).await;
    peer.until(|peer| peer.has("response.done") && peer.has("undertone.session.resumable"))
        .await;
    let offered = peer.events.iter().find(|event| event["resume"].is_string());
    let secret = offered.expect("a secret")["resume"].as_str().expect("text");
    let mut client = server.open(&format!("/v1/realtime?resume={secret}")).await;
    client.until("undertone.session.resumed").await;
    peer.until(|peer| peer.is_closed).await;
    // Audio is in events now, in both directions.
    client.speak(500, 400).await;
    let events = client.until("response.done").await;
    let kinds = support::types(&events);
    assert!(kinds.contains(&"response.output_audio.delta"), "{kinds:?}");
    assert!(!kinds.contains(&"output_audio_buffer.started"), "{kinds:?}");
    assert_eq!(
        server.counters.sessions.load(Relaxed),
        1,
        "the same session"
    );
}

#[tokio::test]
async fn a_second_client_takes_part_in_a_call() {
    let server = serve(with_token());
    let mut peer = Peer::call_with(&server, Some(TOKEN)).await;
    let path = format!("/v1/realtime?call_id={}", peer.id);
    assert_eq!(server.try_open(&path, &[]).await.err(), Some(401));
    let shown = format!("Bearer {TOKEN}");
    let headers = [("authorization", shown.as_str())];
    let unknown = server
        .try_open("/v1/realtime?call_id=rtc_1", &headers)
        .await;
    assert_eq!(unknown.err(), Some(404));
    let mut side = server.try_open(&path, &headers).await.expect("it opens");
    assert_eq!(side.event().await["type"], "session.created");
    side.send(json!({"type": "session.update", "session": {"type": "realtime", "instructions": "Be kind."}})).await;
    let updated = side.until("session.updated").await;
    assert_eq!(
        updated.last().expect("it")["session"]["instructions"],
        "Be kind."
    );
    peer.until(|peer| peer.has("session.updated")).await;
    let append = side
        .error_of(json!({"type": "input_audio_buffer.append", "audio": "AAAA"}))
        .await;
    assert_eq!(append["code"], "invalid_event_for_transport");
    peer.speak(20, 20).await;
    peer.until(|peer| peer.has("response.done")).await;
    let told = side.until("response.done").await;
    assert!(support::types(&told).contains(&"output_audio_buffer.started"));
    let hang_up = format!("/v1/realtime/calls/{}/hangup", peer.id);
    send(request(&server, Method::POST, &hang_up).bearer_auth(TOKEN)).await;
    peer.until(|peer| peer.is_closed).await;
    assert_eq!(u16::from(side.close_frame().await.code), 1000);
}

/// Behind the 64th that waited for the session they were refused, and with 64 more the second client was closed.
#[tokio::test]
async fn a_history_that_a_second_client_restores_at_once_is_added_whole() {
    const ITEMS: usize = 200;
    let server = serve(local());
    let peer = Peer::call(&server).await;
    let path = format!("/v1/realtime?call_id={}", peer.id);
    let mut side = server.open(&path).await;
    side.until("session.created").await;
    for n in 0..ITEMS {
        let content = json!([{"type": "input_text", "text": format!("It is {n}.")}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        side.send(json!({"type": "conversation.item.create", "item": item}))
            .await;
    }
    let mut added = 0;
    while added < ITEMS {
        let event = side.event().await;
        assert_ne!(event["type"], "error", "{event}");
        added += usize::from(event["type"] == "conversation.item.added");
    }
}
