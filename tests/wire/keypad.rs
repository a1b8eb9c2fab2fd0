//! Tests the keys that an agent presses: the tones arrive on the line, whoever speaks meanwhile.

use crate::support;
use crate::twilio::{Order, Phone};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::sync::Arc;
use support::live::{self, without_models};
use support::{Client, dtmf, local, twilio};
use tokio_tungstenite::tungstenite::Message;
use undertone::audio::g711::Law;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::server::ServerSettings;
use undertone::session::{Builders, PhoneSettings};
use undertone::tools::Registry;
use undertone::tools::builtin::SendDigits;

/// Hz.
const RATE: usize = 8_000;

/// A model that presses these keys when it is spoken to.
fn pressing(digits: &str) -> Scripted {
    let press =
        format!("<speech>One moment please.</speech><tool>send_digits(digits=\"{digits}\")</tool>");
    Scripted::default().on(Cue::Turn(1), press).on(
        Cue::result("send_digits"),
        "<speech>I pressed them.</speech>",
    )
}

/// Engines whose agents may press keys in every call.
pub(crate) fn engines(llm: &Scripted, every_call: bool) -> Builders {
    let mut tools = Registry::new();
    let keypad = SendDigits::new(every_call);
    tools.register(Arc::new(keypad)).expect("no duplicates");
    Builders {
        tools: tools.into(),
        phone: PhoneSettings {
            greeting: "Hello.".into(),
            silence_prompt: None,
        },
        ..without_models(Arc::new(llm.clone()))
    }
}

/// The events of a call until these keys have been heard on it after this audio, and nothing else.
async fn pressed(phone: &mut Phone, mut audio: Vec<i16>, keys: &str) -> Vec<Value> {
    let mut others = Vec::new();
    while dtmf::keys(&audio, RATE) != keys {
        for event in phone.until("media").await {
            match event["media"]["payload"].as_str() {
                Some(payload) => {
                    audio.extend(Law::Mu.decode(&STANDARD.decode(payload).expect("base64")));
                }
                None => others.push(event),
            }
        }
        let heard = dtmf::keys(&audio, RATE);
        assert!(keys.starts_with(&heard), "{heard}");
    }
    others
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_tones_on_a_providers_line() {
    let llm = pressing("1w9 #");
    let server = live::serve_with(twilio::settings("http://127.0.0.1:9"), engines(&llm, true));
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    pressed(&mut phone, Vec::new(), "19#").await;
    llm.asked(Cue::result("send_digits")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_who_speaks_over_the_tones_cuts_none_of_them() {
    let llm = pressing("1234567890").on(Cue::Turn(2), "<speech>Yes?</speech>");
    let server = live::serve_with(twilio::settings("http://127.0.0.1:9"), engines(&llm, true));
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    let mut audio = Vec::new();
    while dtmf::keys(&audio, RATE).is_empty() {
        let media = phone.until("media").await.pop().expect("media");
        let payload = media["media"]["payload"].as_str().expect("a payload");
        audio.extend(Law::Mu.decode(&STANDARD.decode(payload).expect("base64")));
    }
    phone.order(Order::Noise(60)).await;
    let others = pressed(&mut phone, audio, "1234567890").await;
    assert!(
        !others.iter().any(|event| event["event"] == "clear"),
        "{others:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_tones_to_asterisk() {
    let llm = pressing("42*");
    let server = live::serve_with(local(), engines(&llm, true));
    let mut client = server.open("/asterisk/media").await;
    let start = "MEDIA_START connection_id:media channel:WebSocket/media/0x1 \
                 channel_id:1.1 format:ulaw optimal_frame_size:160 ptime:20";
    client.send_text(start).await;
    for sample in [[8_000; 40], [0; 40]].concat() {
        client.send_bytes(Law::Mu.encode(&[sample; 160])).await;
    }
    let mut audio = Vec::new();
    while dtmf::keys(&audio, RATE) != "42*" {
        if let Some(Message::Binary(bytes)) = client.message().await {
            audio.extend(Law::Mu.decode(&bytes));
        }
    }
}

async fn is_offered(llm: &Scripted) -> bool {
    let prompt = llm.asked(Cue::Turn(1)).await;
    prompt.tools.iter().any(|tool| tool.name == "send_digits")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_for_telephone_calls_that_the_configuration_names() {
    let settings: ServerSettings = twilio::settings("http://127.0.0.1:9");
    let llm = Scripted::default().on(Cue::Turn(1), "<speech>Yes.</speech>");
    let server = live::serve_with(settings.clone(), engines(&llm, true));
    let mut browser: Client = server.realtime().await;
    browser.speak(600, 600).await;
    assert!(!is_offered(&llm).await, "a browser has no keys");
    // It has not placed the call.
    let llm = Scripted::default().on(Cue::Turn(1), "<speech>Yes.</speech>");
    let server = live::serve_with(settings, engines(&llm, false));
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    assert!(!is_offered(&llm).await);
}
