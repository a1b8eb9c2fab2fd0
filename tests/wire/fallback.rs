//! A primary that is dead, slow, or only kept alive, and one that dies in mid-answer, each with a fallback, in a real
//! session over a socket: the user hears one answer, or one apology.

use crate::support::live::{self, Call, Heard, said};
use crate::support::ports;
use crate::support::serve_on_a_thread;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::{StreamExt, stream};
use serde_json::json;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use undertone::conversation::Policy;
use undertone::llm::remote::Settings;
use undertone::llm::{Fallback, FallbackFigures, Phrases, Prompts, Remote};
use undertone::session::Builders;

const ANSWER: &str = "The fallback speaks.";

/// The way of a scripted server.
#[derive(Clone, Copy)]
enum Way {
    Answers,
    /// The headers never come.
    Silent,
    /// Headers, then comments and nothing else.
    KeptAlive,
    /// Headers, then thoughts and nothing else.
    Thinks,
}

fn chunk(delta: &serde_json::Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}))
}

async fn chat(State(way): State<Way>) -> Response {
    let text = |text: &str| chunk(&json!({ "content": text }));
    let finish =
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let repeated = |piece: String| {
        let pieces = stream::unfold((), move |()| {
            let piece = Bytes::from(piece.clone());
            async move {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Some((Ok::<_, std::io::Error>(piece), ()))
            }
        });
        Body::from_stream(pieces)
    };
    let body = match way {
        Way::Answers => Body::from(text(&format!("<speech>{ANSWER}</speech>")) + finish),
        Way::Silent => std::future::pending().await,
        Way::KeptAlive => repeated(": OPENROUTER PROCESSING\n\n".into()),
        Way::Thinks => repeated(chunk(&json!({"reasoning_content": "hm"}))),
    };
    ([("content-type", "text/event-stream")], body).into_response()
}

fn start(way: Way) -> SocketAddr {
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .with_state(way);
    serve_on_a_thread(routes)
}

/// A server that breaks off after a few words of every answer.
fn dying() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a client");
            let (mut request, mut piece) = (String::new(), [0; 64 * 1024]);
            let is_whole = |request: &str| {
                let (head, body) = request.split_once("\r\n\r\n")?;
                let head = head.to_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length:"));
                let length: usize = length.map_or(Some(0), |length| length.trim().parse().ok())?;
                (body.len() >= length).then_some(())
            };
            while is_whole(&request).is_none() {
                match socket.read(&mut piece) {
                    Ok(read @ 1..) => request.push_str(&String::from_utf8_lossy(&piece[..read])),
                    _ => break,
                }
            }
            let words = chunk(&json!({"content": "<speech>It is sunny today. And it "}));
            // The stream is shorter than it claims, so it ends early. The client may have hung up.
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
            let _ = socket.write_all(format!("{head}{words}").as_bytes());
        }
    });
    address
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], ports::free()))
}

fn remote(address: SocketAddr, effort: Option<&str>) -> Arc<Remote> {
    let url = format!("http://{address}/v1").parse().expect("a URL");
    let settings = Settings {
        reasoning_effort: effort.map(str::to_owned),
        has_fallback: true,
        ..Settings::new(url, "m")
    };
    Arc::new(Remote::new(settings, Prompts::default()).expect("a client"))
}

/// Two turns with this primary, with the shipped deadlines.
async fn turns(primary: Arc<Remote>) -> [Vec<Heard>; 2] {
    let backup = remote(start(Way::Answers), None);
    let llm = Fallback::new(primary, backup).counted(&FallbackFigures::default());
    let server = live::serve(Builders {
        policy: Policy::default(),
        ..live::without_models(Arc::new(llm))
    });
    let mut call = Call::to(&server).await;
    let mut turns = [Vec::new(), Vec::new()];
    for turn in &mut turns {
        call.say(&vec![8_000; 24 * 600]).await;
        *turn = call.until("response.done").await;
    }
    turns
}

fn apologies(events: &[Heard]) -> usize {
    said(events)
        .matches(Phrases::default().llm_failed.as_str())
        .count()
}

fn is_completed(events: &[Heard]) -> bool {
    events.last().expect("events").event["response"]["status"] == "completed"
}

#[tokio::test]
async fn a_primary_without_an_answer_hands_over_within_the_turn_and_nobody_apologises() {
    let cases = [
        ("dead", remote(nobody(), None)),
        ("silent", remote(start(Way::Silent), None)),
        // It would be waited for, as a model that thinks, without a fallback.
        (
            "silent, and told to think",
            remote(start(Way::Silent), Some("low")),
        ),
        (
            "kept alive by comments",
            remote(start(Way::KeptAlive), None),
        ),
        ("kept alive by thoughts", remote(start(Way::Thinks), None)),
    ];
    let cases = cases.map(|(name, primary)| async move { (name, turns(primary).await) });
    let done: Vec<_> = stream::iter(cases).buffer_unordered(5).collect().await;
    for (name, turns) in done {
        for events in &turns {
            let words = said(events);
            assert!(words.ends_with(ANSWER), "{name}: {words}");
            assert_eq!(words.matches(ANSWER).count(), 1, "{name}: {words}");
            assert_eq!(apologies(events), 0, "{name}: {words}");
            assert!(is_completed(events), "{name}");
        }
        // The primary rests, so nobody has to be put off in the second turn.
        assert_eq!(said(&turns[1]), ANSWER, "{name}");
    }
}

/// Another model's answer would not fit after the first words.
#[tokio::test]
async fn a_primary_that_dies_after_its_first_words_costs_one_apology() {
    for events in turns(remote(dying(), None)).await {
        let words = said(&events);
        assert!(words.starts_with("It is sunny today."), "{words}");
        assert_eq!(apologies(&events), 1, "{words}");
        assert!(!words.contains(ANSWER), "{words}");
    }
}
