//! Tests the plain PCM dialect over real sockets.

use crate::support;
use serde_json::{Value, json};
use support::scripted::ANSWER_FRAMES;
use support::{Client, Script, Server};
use tokio_tungstenite::tungstenite::Message;

async fn speak(client: &mut Client, rate: usize) {
    for sample in [8000_i16, 0] {
        for _ in 0..25 {
            client
                .send_bytes(sample.to_le_bytes().repeat(rate / 50))
                .await;
        }
    }
}

/// Texts and the lengths of audio messages until the agent's final transcript.
async fn turn(client: &mut Client) -> (Vec<Value>, Vec<usize>) {
    let (mut texts, mut audio) = (vec![], vec![]);
    loop {
        match client.message().await {
            Some(Message::Text(text)) => texts.push(serde_json::from_str(&text).expect("JSON")),
            Some(Message::Binary(bytes)) => audio.push(bytes.len()),
            other => panic!("unexpected: {other:?}"),
        }
        if texts
            .last()
            .is_some_and(|text: &Value| text["role"] == "agent" && text["final"] == true)
        {
            return (texts, audio);
        }
    }
}

#[tokio::test]
async fn a_turn_at_16_khz_needs_nothing_but_audio() {
    let server = Server::start(Script::default()).await;
    let mut client = server.open("/v1/pcm").await;
    speak(&mut client, 16_000).await;
    let (texts, audio) = turn(&mut client).await;
    assert_eq!(audio, [640; ANSWER_FRAMES]);
    let user = json!({"type": "transcript", "role": "user", "text": "What is the weather in Paris?",
        "final": true});
    assert!(texts.contains(&user), "{texts:?}");
}

#[tokio::test]
async fn hello_asks_for_24_khz() {
    let server = Server::start(Script::default()).await;
    let mut client = server.open("/v1/pcm").await;
    client
        .send(json!({"type": "hello", "sample_rate": 24000}))
        .await;
    assert_eq!(
        client.event().await,
        json!({"type": "ready", "sample_rate": 24000})
    );
    speak(&mut client, 24_000).await;
    assert_eq!(turn(&mut client).await.1, [960; ANSWER_FRAMES]);
}

#[tokio::test]
async fn unknown_text_gets_an_error_and_the_session_goes_on() {
    let server = Server::start(Script::default()).await;
    let mut client = server.open("/v1/pcm").await;
    for text in [
        "",
        "hello",
        "[]",
        r#"{"type":"bye"}"#,
        r#"{"type":"hello","sample_rate":8000}"#,
    ] {
        client.send_text(text).await;
        assert_eq!(client.event().await["type"], "error", "{text}");
    }
    speak(&mut client, 16_000).await;
    turn(&mut client).await;
}

#[tokio::test]
async fn half_a_sample_closes_the_socket() {
    let server = Server::start(Script::default()).await;
    let mut client = server.open("/v1/pcm").await;
    client.send_bytes(vec![0; 641]).await;
    assert_eq!(u16::from(client.close_frame().await.code), 1007);
}
