//! Clients choose the voice of their session, over real sockets. Voices are told apart by their loudness.

use crate::support;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use support::live::{self, Call, Heard, said};
use support::speech_services::{self, KEY, SpeechService};
use support::{Client, Server, local};
use tokio_tungstenite::tungstenite::Message;
use undertone::audio::g711::Law;
use undertone::conversation::Opening;
use undertone::llm::scripted::Scripted;
use undertone::server::ServerSettings;
use undertone::session::{Builders, OtherVoice};
use undertone::tts::{
    OnDemand, Speech, SpeechStream, Speed, Tts, TtsError, TtsService, TtsSession,
};

/// Samples per second of all voices, Hz.
const RATE: u32 = 24_000;

/// A word takes 200 ms.
const WORD: usize = RATE as usize / 5;

/// The loudness of the server's default voice, of another local one, and of one on a server.
const OWN: f32 = 0.2;
const SECOND: f32 = 0.5;
const FAR: f32 = 0.8;

const WELL: &str = "I am well.";

/// Says every word as a steady level.
#[derive(Clone)]
struct Level(f32);

impl Level {
    fn said(&self, text: &str, speed: Speed) -> Vec<f32> {
        let words = (WORD * text.split_whitespace().count()) as f64;
        vec![self.0; (words / speed.factor()) as usize]
    }
}

impl Tts for Level {
    fn name(&self) -> &str {
        "level"
    }

    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.speak_at(text, Speed::NORMAL)
    }

    fn speak_at(&mut self, text: &str, speed: Speed) -> Result<Speech, TtsError> {
        Ok(Box::new(std::iter::once(Ok(self.said(text, speed)))))
    }
}

impl TtsService for Level {
    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn open(&self, _: Option<&str>) -> Box<dyn TtsSession> {
        Box::new(self.clone())
    }
}

impl TtsSession for Level {
    fn speak(&mut self, text: &str) -> SpeechStream {
        let said = self.said(text, Speed::NORMAL);
        Box::pin(futures_util::stream::once(async { Ok(said.into()) }))
    }
}

fn builders() -> Builders {
    let second = Level(SECOND);
    let load = move || Ok(Box::new(Level(SECOND)) as Box<dyn Tts>);
    let second = OtherVoice::Local(OnDemand::of(&second, load));
    let far = OtherVoice::Service(Arc::new(Level(FAR)));
    let llm = Scripted::always(format!("<speech>{WELL}</speech>"));
    Builders {
        tts: Box::new(|| Ok(Box::new(Level(OWN)))),
        voices: [("second".to_owned(), second), ("far".to_owned(), far)].into(),
        ..live::without_models(Arc::new(llm))
    }
}

/// The loudness of an answer.
async fn loudness(call: &mut Call) -> f32 {
    call.say(&live::tone(600)).await;
    let events = call.until("response.done").await;
    assert_eq!(said(&events), WELL);
    let loudest = events.iter().map(|heard| heard.peak).max();
    f32::from(loudest.expect("events")) / 32_768.0
}

#[track_caller]
fn is_about(level: f32, expected: f32) {
    assert!((level - expected).abs() < 0.1, "{level}, not {expected}");
}

/// The server's answer to an update of the session's `audio.output`.
async fn update(call: &mut Call, output: Value) -> Value {
    let session = json!({"type": "realtime", "audio": {"output": output}});
    call.send(json!({"type": "session.update", "session": session}))
        .await;
    let answers = |heard: &Heard| heard.is("session.updated") || heard.is("error");
    loop {
        let heard = call.next().await;
        if answers(&heard) {
            return heard.event;
        }
    }
}

#[tokio::test]
async fn a_client_chooses_the_voice_until_the_agent_was_heard() {
    let server = live::serve(builders());
    let mut call = Call::to(&server).await;
    let unknown = update(&mut call, json!({"voice": "nobody"})).await;
    assert_eq!(unknown["error"]["param"], "session.audio.output.voice");
    assert_eq!(unknown["error"]["code"], "invalid_value");
    for (voice, shown) in [
        (json!("marin"), "marin"),
        (json!("second"), "second"),
        (json!("alloy"), "alloy"),
        (json!({"id": "second"}), "second"),
    ] {
        let updated = update(&mut call, json!({ "voice": voice })).await;
        assert_eq!(updated["session"]["audio"]["output"]["voice"], shown);
    }
    is_about(loudness(&mut call).await, SECOND);
    let again = update(&mut call, json!({"voice": "second"})).await;
    assert_eq!(again["type"], "session.updated", "{again}");
    for other in ["default", "marin"] {
        let refused = update(&mut call, json!({ "voice": other })).await;
        assert_eq!(refused["error"]["code"], "cannot_update_voice", "{refused}");
    }
    is_about(loudness(&mut call).await, SECOND);
}

#[tokio::test]
async fn a_client_that_names_one_of_openais_voices_hears_the_agents_own() {
    let mut builders = builders();
    builders.policy.speaker.voice = Some("second".into());
    let server = live::serve(builders);
    let mut call = Call::to(&server).await;
    let updated = update(&mut call, json!({"voice": "marin"})).await;
    assert_eq!(updated["type"], "session.updated");
    is_about(loudness(&mut call).await, SECOND);
    // Both names mean the same voice.
    let updated = update(&mut call, json!({"voice": "alloy"})).await;
    assert_eq!(updated["type"], "session.updated", "{updated}");
}

fn with_token(offer_services: bool) -> ServerSettings {
    ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        offer_services,
        ..local()
    }
}

/// A client secret for sessions with this voice, or the field that was refused.
async fn secret(server: &Server, voice: &str) -> Result<String, Value> {
    let session = json!({"type": "realtime", "audio": {"output": {"voice": voice}}});
    let answer = reqwest::Client::new()
        .post(format!(
            "http://{}/v1/realtime/client_secrets",
            server.address
        ))
        .bearer_auth("operator")
        .json(&json!({ "session": session }))
        .send()
        .await
        .expect("an answer");
    let body: Value = answer.json().await.expect("JSON");
    match body["value"].as_str() {
        Some(secret) => Ok(secret.to_owned()),
        None => Err(body["error"]["param"].clone()),
    }
}

async fn named_after_opening(server: &Server, token: &str, voice: &str) -> Vec<Value> {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let client = server.try_open("/v1/realtime", &headers).await;
    let mut client: Client = client.expect("a session");
    let mut answers = vec![client.event().await];
    let session = json!({"type": "realtime", "audio": {"output": {"voice": voice}}});
    client
        .send(json!({"type": "session.update", "session": session}))
        .await;
    answers.push(client.event().await);
    answers
}

#[tokio::test]
async fn a_voice_on_a_server_is_chosen_by_those_who_may() {
    let server = live::serve_with(with_token(false), builders());
    assert_eq!(
        secret(&server, "nobody").await,
        Err(json!("session.audio.output.voice"))
    );
    let far = secret(&server, "far").await.expect("a secret");
    let answers = named_after_opening(&server, &far, "far").await;
    assert_eq!(answers[0]["session"]["audio"]["output"]["voice"], "far");
    assert_eq!(answers[1]["type"], "session.updated", "it has it already");
    let other = secret(&server, "marin").await.expect("a secret");
    let answers = named_after_opening(&server, &other, "far").await;
    assert_eq!(answers[1]["error"]["code"], "invalid_value", "{answers:?}");
    let answers = named_after_opening(&server, &other, "second").await;
    assert_eq!(answers[1]["type"], "session.updated", "{answers:?}");
    let answers = named_after_opening(&server, "operator", "far").await;
    assert_eq!(answers[1]["type"], "session.updated", "{answers:?}");

    let server = live::serve_with(with_token(true), builders());
    let other = secret(&server, "marin").await.expect("a secret");
    let answers = named_after_opening(&server, &other, "far").await;
    assert_eq!(answers[1]["type"], "session.updated", "{answers:?}");
}

/// The loudest sample of the first answer to a PCM client.
async fn pcm_loudness(server: &Server, path: &str) -> f32 {
    let mut client = server.open(path).await;
    for level in [8_000_i16, 0] {
        for _ in 0..30 {
            client
                .send_bytes(level.to_le_bytes().repeat(16_000 / 50))
                .await;
        }
    }
    let mut loudest = 0;
    loop {
        match client.message().await {
            Some(Message::Binary(bytes)) => {
                let samples = bytes.as_chunks::<2>().0.iter().copied();
                let samples = samples.map(|two| i16::from_le_bytes(two).unsigned_abs());
                loudest = samples.max().unwrap_or(0).max(loudest);
            }
            Some(Message::Text(text)) => {
                let text: Value = serde_json::from_str(&text).expect("JSON");
                if text["role"] == "agent" && text["final"] == true {
                    return f32::from(loudest) / 32_768.0;
                }
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_pcm_client_chooses_its_voice_by_the_query() {
    let server = live::serve(builders());
    is_about(pcm_loudness(&server, "/v1/pcm?voice=second").await, SECOND);
    is_about(pcm_loudness(&server, "/v1/pcm?voice=marin").await, OWN);
    let refused = server.try_open("/v1/pcm?voice=nobody", &[]).await;
    assert_eq!(refused.err(), Some(400));
}

/// Milliseconds of an answer's audio.
async fn length(call: &mut Call) -> u64 {
    call.say(&live::tone(600)).await;
    let events = call.until("response.done").await;
    assert_eq!(said(&events), WELL);
    events.iter().map(Heard::audio_ms).sum()
}

#[tokio::test]
async fn a_client_chooses_the_speed_between_responses() {
    let server = live::serve(builders());
    let mut call = Call::to(&server).await;
    for wrong in [0.2, 1.6] {
        let refused = update(&mut call, json!({ "speed": wrong })).await;
        assert_eq!(refused["error"]["param"], "session.audio.output.speed");
    }
    // Three words, then the rest of a frame.
    for (speed, ms) in [(0.5, 1_200), (1.5, 400), (1.0, 600)] {
        let updated = update(&mut call, json!({ "speed": speed })).await;
        assert_eq!(updated["session"]["audio"]["output"]["speed"], speed);
        let heard = length(&mut call).await;
        assert!((ms..ms + 60).contains(&heard), "{heard} ms at {speed}");
    }
    call.say(&live::tone(600)).await;
    call.until("response.created").await;
    let refused = update(&mut call, json!({"speed": 1.2})).await;
    assert_eq!(refused["error"]["code"], "cannot_update_speed", "{refused}");
    let same = update(&mut call, json!({"speed": 1.0})).await;
    assert_eq!(same["type"], "session.updated", "{same}");
}

#[tokio::test]
async fn an_agent_has_a_speed_of_its_own_and_what_was_prepared_has_it_too() {
    let mut builders = builders();
    builders.policy.speaker.speed = Speed::of(2.0);
    builders.policy.opening = Opening::greeting("Hello there.");
    let server = live::serve(builders);
    let mut call = Call::to(&server).await;
    let greeting = call.until("response.done").await;
    let heard: u64 = greeting.iter().map(Heard::audio_ms).sum();
    assert!((200..260).contains(&heard), "{heard} ms");
    let heard = length(&mut call).await;
    assert!((300..360).contains(&heard), "{heard} ms");
    let speech = reqwest::Client::new()
        .post(format!("http://{}/v1/audio/speech", server.address))
        .json(&json!({"input": WELL, "response_format": "pcm", "speed": 4}))
        .send()
        .await
        .expect("an answer");
    let bytes = speech.bytes().await.expect("audio").len();
    assert!((7_000..8_000).contains(&bytes), "{bytes} bytes");
}

fn greeting() -> Builders {
    let mut builders = builders();
    builders.policy.opening = Opening::greeting("Hello there.");
    builders
}

/// The bytes of the agent's audio in events.
fn audio_of(events: &[Value]) -> Vec<u8> {
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_audio.delta");
    let bytes = deltas.map(|event| STANDARD.decode(event["delta"].as_str().expect("text")));
    bytes.flat_map(|bytes| bytes.expect("base64")).collect()
}

/// A telephone bridge updates its session as soon as it is told of it. The greeting went on as PCM, and the update was
/// refused because the agent was speaking.
#[tokio::test]
async fn the_first_update_of_a_client_that_is_greeted_is_taken_whole() {
    let server = live::serve(greeting());
    let mut client = server.open("/v1/realtime").await;
    assert_eq!(client.event().await["type"], "session.created");
    let output = json!({"format": {"type": "audio/pcmu"}, "voice": "second", "speed": 1.5});
    let session =
        json!({"type": "realtime", "instructions": "Be brief.", "audio": {"output": output}});
    client
        .send(json!({"type": "session.update", "session": session}))
        .await;
    client.send(json!({"type": "response.create"})).await;
    let mut events = Vec::new();
    for _ in 0..2 {
        events.extend(client.until("response.done").await);
    }
    assert!(!support::types(&events).contains(&"error"), "{events:?}");
    let mut after = events.iter();
    let updated = after.find(|event| event["type"] == "session.updated");
    assert!(updated.is_some(), "{events:?}");
    let audio = audio_of(after.as_slice());
    // Five words at most, with 8 bytes a millisecond: as PCM, two would have 12,800.
    assert!((3_000..9_000).contains(&audio.len()), "{}", audio.len());
    let heard = Law::Mu.decode(&audio).into_iter();
    let loudest = heard.map(i16::unsigned_abs).max().expect("audio");
    // What is not G.711 is as loud as can be.
    is_about(f32::from(loudest) / 32_768.0, SECOND);
}

/// It was refused while the agent greeted, and clients end on that.
#[tokio::test]
async fn a_response_that_is_requested_during_the_greeting_follows_it() {
    let server = live::serve(greeting());
    let mut client = server.open("/v1/realtime").await;
    let mut events = client.until("response.created").await;
    client.send(json!({"type": "response.create"})).await;
    for _ in 0..2 {
        events.extend(client.until("response.done").await);
    }
    assert!(!support::types(&events).contains(&"error"), "{events:?}");
    let kind = "response.output_audio_transcript.done";
    let said = events.iter().filter(|event| event["type"] == kind);
    let said: Vec<&Value> = said.map(|event| &event["transcript"]).collect();
    assert_eq!(said, ["Hello there.", WELL]);
}

#[tokio::test]
async fn a_voice_on_a_server_is_told_another_speed_and_not_the_usual_one() {
    let service = SpeechService::start();
    let voice = OtherVoice::Service(speech_services::voice(service.address, KEY));
    let mut builders = builders();
    builders.voices.insert("service".into(), voice);
    builders.policy.speaker.voice = Some("service".into());
    let server = live::serve(builders);
    let mut call = Call::to(&server).await;
    length(&mut call).await;
    update(&mut call, json!({"speed": 1.5})).await;
    length(&mut call).await;
    let asked = service.speeches().into_iter();
    let asked = asked.filter(|body| body["input"] == WELL);
    let speeds: Vec<Value> = asked.map(|body| body["speed"].clone()).collect();
    assert_eq!(speeds, [Value::Null, json!(1.5)]);
}
