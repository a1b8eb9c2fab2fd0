//! Asks one spoken question over every transport: each must commit the same call.

use crate::{common, support};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::twilio;
use support::{Client, Server, base64_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;
use undertone::audio::g711::Law;
use undertone::audio::{Resampler, to_i16};
use undertone::session::{self, Observers, Recordings};

const QUESTION: &str = "What time is it in Tokyo?";

/// Silence that ends the answer.
const QUIET: Duration = Duration::from_secs(2);

/// A timeout that five conversations of one question do not reach.
const PATIENCE: Duration = Duration::from_secs(600);

/// The question at 22,050 Hz, after a pause.
fn question() -> (Vec<f32>, u32) {
    const RATE: u32 = 22_050;
    let mut speech = vec![0.0; RATE as usize / 2];
    let question = common::Booth::new(&common::weights()).say(QUESTION, RATE);
    speech.extend(undertone::audio::to_f32(&question));
    (speech, RATE)
}

/// The question in frames of 20 ms at `rate` Hz.
fn frames(question: &(Vec<f32>, u32), rate: u32) -> Vec<Vec<i16>> {
    let mut resampler = Resampler::new(question.1, rate);
    let mut samples = resampler.push(&question.0);
    samples.extend(resampler.flush());
    let frame = (rate / 50) as usize;
    let chunks = samples.chunks_exact(frame);
    chunks.map(to_i16).collect()
}

/// Sends the question frame by frame, then silence, until an answer has arrived and ended.
async fn converse(
    mut client: Client,
    spoken: Vec<Message>,
    silence: Message,
    is_audio: fn(&Message) -> bool,
) {
    let (mut spoken, mut heard) = (spoken.into_iter(), None::<Instant>);
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while heard.is_none_or(|at| at.elapsed() < QUIET) {
        tokio::select! {
            _ = pace.tick() => {
                let next = spoken.next().unwrap_or_else(|| silence.clone());
                client.socket.send(next).await.expect("sent");
            }
            message = client.socket.next() => {
                let message = message.expect("the call goes on").expect("a message");
                if is_audio(&message) {
                    heard = Some(support::now());
                }
            }
        }
    }
    client.socket.close(None).await.expect("closed");
}

fn has(text: &str, event: &str) -> bool {
    serde_json::from_str::<Value>(text)
        .is_ok_and(|message| message["event"] == event || message["type"] == event)
}

async fn over_realtime(server: &Server, question: &(Vec<f32>, u32)) {
    let append = |frame: &[i16]| {
        let event = json!({"type": "input_audio_buffer.append", "audio": base64_of(frame)});
        Message::text(event.to_string())
    };
    let spoken = frames(question, 24_000).iter().map(|f| append(f)).collect();
    let client = server.realtime().await;
    converse(client, spoken, append(&[0; 480]), |message| {
        matches!(message, Message::Text(text) if has(text, "response.output_audio.delta"))
    })
    .await;
}

async fn over_pcm(server: &Server, question: &(Vec<f32>, u32)) {
    let bytes = |frame: &[i16]| Message::binary(undertone::audio::to_pcm16le(frame));
    let spoken = frames(question, 16_000).iter().map(|f| bytes(f)).collect();
    let client = server.open("/v1/pcm").await;
    converse(client, spoken, bytes(&[0; 320]), Message::is_binary).await;
}

async fn over_twilio(server: &Server, question: &(Vec<f32>, u32)) {
    let media = |frame: &[i16]| {
        let payload = STANDARD.encode(Law::Mu.encode(frame));
        let event = json!({"event": "media", "media": {"track": "inbound", "payload": payload}});
        Message::text(event.to_string())
    };
    let client = twilio::call(server).await;
    let spoken = frames(question, 8_000).iter().map(|f| media(f)).collect();
    converse(
        client,
        spoken,
        media(&[0; 160]),
        |message| matches!(message, Message::Text(text) if has(text, "media")),
    )
    .await;
}

async fn over_chan_websocket(server: &Server, question: &(Vec<f32>, u32)) {
    let bytes = |frame: &[i16]| Message::binary(undertone::audio::to_pcm16le(frame));
    let mut client = server.open("/asterisk/media").await;
    client
        .send_text("MEDIA_START connection_id:c channel:d format:slin16 optimal_frame_size:640")
        .await;
    let spoken = frames(question, 16_000).iter().map(|f| bytes(f)).collect();
    converse(client, spoken, bytes(&[0; 320]), Message::is_binary).await;
}

async fn over_audiosocket(address: SocketAddr, question: &(Vec<f32>, u32)) {
    let frame_of = |kind: u8, payload: &[u8]| {
        let mut frame = vec![kind];
        frame.extend((payload.len() as u16).to_be_bytes());
        frame.extend(payload);
        frame
    };
    let audio = |frame: &[i16]| frame_of(0x10, &undertone::audio::to_pcm16le(frame));
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut reader, mut writer) = stream.into_split();
    writer
        .write_all(&frame_of(0x01, &[7; 16]))
        .await
        .expect("sent");
    let speak = async {
        let mut pace = interval(Duration::from_millis(20));
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut spoken = frames(question, 8_000).into_iter();
        loop {
            pace.tick().await;
            let frame = spoken.next().unwrap_or_else(|| vec![0; 160]);
            writer.write_all(&audio(&frame)).await.expect("sent");
        }
    };
    let listen = async {
        let mut heard = None::<Instant>;
        while heard.is_none_or(|at| at.elapsed() < QUIET) {
            let _kind = reader.read_u8().await.expect("the call goes on");
            let length = reader.read_u16().await.expect("a length");
            let mut payload = vec![0; usize::from(length)];
            reader.read_exact(&mut payload).await.expect("audio");
            if payload.iter().any(|byte| *byte != 0) {
                heard = Some(support::now());
            }
        }
    };
    tokio::select! {
        () = listen => {}
        () = speak => {}
    }
}

/// Runs the real program with a virtual microphone and loudspeaker.
#[cfg(feature = "desktop")]
fn at_the_desk(folder: &Path, question: &(Vec<f32>, u32)) {
    let sound = common::sound::Sound::start();
    let spoken = frames(question, undertone::desktop::echo::RATE).concat();
    let folder = folder.to_str().expect("a path in UTF-8");
    let mut talk = sound.undertone(&["talk", "--record", folder]);
    talk.line("microphone mic, ");
    let spoken = undertone::audio::to_f32(&spoken);
    talk.ask(&sound, &spoken, |answer| answer.contains("Tokyo"));
    talk.interrupt();
}

/// The committed calls of each recorded session, with tools and arguments.
fn committed(folder: &Path) -> Vec<Vec<Value>> {
    let files = std::fs::read_dir(folder).expect("recordings");
    let calls = files.map(|file| {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
        let outputs = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["output"].take());
        let (mut called, mut told) = (Vec::new(), Vec::new());
        for output in outputs {
            match output["type"].as_str() {
                Some("tool_called") => called.push(json!([output["name"], output["arguments"]])),
                Some("user_item" | "agent_speech" | "stage_failed") => told.push(output.clone()),
                _ => {}
            }
        }
        println!("called {called:?} after {told:?}");
        called
    });
    calls.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_question_commits_the_same_call_over_every_transport() {
    let _together = common::together().await;
    let question = question();
    let folder = tempfile::tempdir().expect("a folder");
    let observers = Observers {
        recordings: Some(Recordings::new(folder.path()).expect("a folder")),
        ..Observers::default()
    };
    let engines = support::real::shipped(|config| config.phone.greeting.clear(), observers);
    let opener = engines.clone();
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let settings = twilio::settings("http://127.0.0.1:9");
    let (server, audiosocket) = Server::of_calls(settings, sessions);
    let calls = async {
        over_realtime(&server, &question).await;
        over_pcm(&server, &question).await;
        over_twilio(&server, &question).await;
        over_chan_websocket(&server, &question).await;
        over_audiosocket(audiosocket, &question).await;
    };
    timeout(PATIENCE, calls)
        .await
        .expect("an answer at each door");
    server.shutdown.cancel();
    engines.finish_sessions().await;
    let expected = vec![json!(["get_time", {"place": "Tokyo"}])];
    assert_eq!(committed(folder.path()), vec![expected.clone(); 5]);

    #[cfg(feature = "desktop")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        at_the_desk(folder.path(), &question);
        assert_eq!(committed(folder.path()), [expected]);
    }
}
