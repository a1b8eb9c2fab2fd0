//! Telephone calls over Twilio's protocol: a conversation, an interruption, the keypad, and a
//! thousand strangers that get nothing.

#![allow(clippy::disallowed_methods, reason = "a test: it speaks in real time")]

mod support;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::live::{self, without_models};
use support::twilio::{
    ACCOUNT, CALL, PUBLIC, TOKEN, ring, settings, sign, socket_signature, start, ticket,
};
use support::{Client, Server, local};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_tungstenite::tungstenite::Message as Frame;
use undertone::audio::g711::Law;
use undertone::llm::Message;
use undertone::llm::scripted::{Scripted, Step};
use undertone::server::{ServerSettings, TransferCall};
use undertone::session::PhoneManners;
use undertone::tools::{Registry, builtin};

/// What Twilio's own interface was asked: path, credentials, body.
type Asked = (String, String, String);

/// Stands for Twilio's own interface on loopback.
async fn twilio_api() -> (String, mpsc::Receiver<Asked>) {
    let (told, asked) = mpsc::channel(8);
    let answer = |State(told): State<mpsc::Sender<Asked>>,
                  Path(path): Path<String>,
                  headers: HeaderMap,
                  body: String| async move {
        let shown = headers["authorization"].to_str().expect("text").to_owned();
        told.send((path, shown, body)).await.expect("room");
        "{}"
    };
    let app = Router::new()
        .route("/2010-04-01/{*path}", post(answer))
        .with_state(told);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{address}"), asked)
}

fn serve(settings: ServerSettings, llm: &Scripted) -> Server {
    let mut tools = Registry::new();
    builtin::register(&mut tools).expect("no duplicates");
    if let Some((transfer, hints)) = settings.twilio.as_ref().and_then(TransferCall::new) {
        tools
            .register_with(Arc::new(transfer), hints)
            .expect("no duplicates");
    }
    let builders = undertone::session::Builders {
        tools: Arc::new(tools),
        phone: PhoneManners {
            greeting: "Hello.".into(),
            silence_prompt: None,
        },
        ..without_models(Arc::new(llm.clone()))
    };
    live::serve_with(settings, builders)
}

/// A telephone: sends 20 ms of audio every 20 ms, plays what comes, and gives marks back when they
/// have been played.
struct Phone {
    orders: mpsc::Sender<Order>,
    events: mpsc::Receiver<Value>,
}

enum Order {
    /// Make a noise for so many frames.
    Noise(usize),
    Press(char),
}

impl Phone {
    async fn call(server: &Server) -> Self {
        let (status, instructions) = ring(server, CALL, None).await;
        assert_eq!(status, 200, "{instructions}");
        assert!(
            instructions.contains(&format!("url=\"wss://{PUBLIC}/twilio/media\"")),
            "{instructions}"
        );
        let signature = socket_signature();
        let signed = [("x-twilio-signature", signature.as_str())];
        let mut client = server
            .try_open("/twilio/media", &signed)
            .await
            .expect("the socket opens");
        client
            .send(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
            .await;
        client
            .send(start(CALL, ACCOUNT, ticket(&instructions)))
            .await;
        let (orders, ordered) = mpsc::channel(8);
        let (told, events) = mpsc::channel(4_096);
        tokio::spawn(hold(client, ordered, told));
        Self { orders, events }
    }

    async fn order(&self, order: Order) {
        assert!(self.orders.send(order).await.is_ok(), "the call goes on");
    }

    async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(support::PATIENCE, self.events.recv())
            .await
            .expect("an event in time")
    }

    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let last = event["event"] == kind;
            events.push(event);
            if last {
                return events;
            }
        }
        panic!("the call is over, without {kind}: {events:?}");
    }

    /// Everything up to the end of the call.
    async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

async fn hold(mut client: Client, mut orders: mpsc::Receiver<Order>, told: mpsc::Sender<Value>) {
    use futures_util::{SinkExt, StreamExt};
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut noise, mut chunk, mut playing) = (0_usize, 0_u64, std::collections::VecDeque::new());
    loop {
        tokio::select! {
            _ = pace.tick() => {
                let level = if noise > 0 { 12_000 } else { 0 };
                noise = noise.saturating_sub(1);
                chunk += 1;
                let payload = STANDARD.encode(Law::Mu.encode(&[level; 160]));
                let media = json!({"event": "media", "streamSid": "MZ1", "media": {
                    "track": "inbound", "chunk": chunk.to_string(), "payload": payload
                }});
                if client.socket.send(Frame::text(media.to_string())).await.is_err() {
                    return;
                }
                // One frame is played; marks behind it are given back.
                playing.pop_front();
                while playing.front().is_some_and(Option::is_some) {
                    let mark: Option<Option<String>> = playing.pop_front();
                    let name = mark.flatten();
                    let echo = json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": name}});
                    client.send(echo).await;
                }
            }
            order = orders.recv() => match order {
                Some(Order::Noise(frames)) => noise = frames,
                Some(Order::Press(key)) => {
                    let dtmf = json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {
                        "track": "inbound_track", "digit": key
                    }});
                    client.send(dtmf).await;
                }
                None => return,
            },
            message = client.socket.next() => {
                let Some(Ok(Frame::Text(text))) = message else { return };
                let event: Value = serde_json::from_str(&text).expect("JSON");
                match event["event"].as_str() {
                    Some("media") => playing.push_back(None),
                    Some("mark") => {
                        let name = event["mark"]["name"].as_str().expect("a name").to_owned();
                        playing.push_back(Some(name));
                    }
                    _ => playing.clear(),
                }
                if told.send(event).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn frames(events: &[Value]) -> usize {
    events.iter().filter(|e| e["event"] == "media").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_greeted_answered_and_ended_by_the_agent() {
    let (api, mut asked) = twilio_api().await;
    let llm = Scripted::answers([
        "<speech>Let me see.</speech><tool>get_time(place=\"Tokyo\")</tool>",
        "<speech>It is noon there.</speech>",
        "<speech>Goodbye!</speech><tool>hang_up()</tool>",
    ]);
    let server = serve(settings(&api), &llm);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    while llm.prompts().len() < 2 {
        phone.until("mark").await;
    }
    let prompt = &llm.prompts()[1];
    assert!(prompt.tools.iter().any(|tool| tool.name == "hang_up"));
    assert!(
        matches!(prompt.messages.last(), Some(Message::ToolResult { name, .. }) if name == "get_time"),
        "{:?}",
        prompt.messages
    );
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    let goodbye = phone.rest().await;
    assert!(frames(&goodbye) > 0);
    let (path, shown, body) = asked.recv().await.expect("Twilio is told");
    assert_eq!(path, format!("Accounts/{ACCOUNT}/Calls/{CALL}.json"));
    let credentials = STANDARD.encode(format!("{ACCOUNT}:{TOKEN}"));
    assert_eq!(
        (shown, body.as_str()),
        (format!("Basic {credentials}"), "Status=completed")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_is_put_through_after_hearing_so() {
    let (api, mut asked) = twilio_api().await;
    let llm = Scripted::answers([
        "<speech>I'll put you through.</speech><tool>transfer_call(to=\"reception\")</tool>",
    ]);
    let server = serve(settings(&api), &llm);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    let words = phone.rest().await;
    assert!(frames(&words) > 0);
    let (path, _, body) = asked.recv().await.expect("Twilio is told");
    assert_eq!(path, format!("Accounts/{ACCOUNT}/Calls/{CALL}.json"));
    let verbs: Vec<(String, String)> = url::form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect();
    let dial = "<Response><Dial>+15557654321</Dial></Response>";
    assert_eq!(verbs, [("Twiml".to_owned(), dial.to_owned())]);
    let more = tokio::time::timeout(Duration::from_millis(500), asked.recv()).await;
    assert!(
        more.is_err(),
        "the call is not ours to end any more: {more:?}"
    );
    let offered = llm.prompts()[0].tools.clone();
    assert!(offered.iter().any(|tool| tool.name == "transfer_call"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frame_of_an_interrupted_answer_follows_the_clear() {
    let (api, _asked) = twilio_api().await;
    let story = "<speech>One two three four five six seven eight nine ten eleven twelve. \
                 And so on and on and on, without an end that anybody could see.</speech>";
    let llm = Scripted::new([
        vec![Step::text(story)],
        // The answer to the interruption never comes: whatever is heard is of the story.
        vec![Step::Hang],
    ]);
    let server = serve(settings(&api), &llm);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    while llm.prompts().is_empty() {
        phone.next().await;
    }
    for _ in 0..5 {
        phone.until("mark").await;
    }
    phone.order(Order::Noise(30)).await;
    phone.until("clear").await;
    while llm.prompts().len() < 2 {
        let pending = tokio::time::timeout(Duration::from_millis(20), phone.events.recv());
        if let Ok(event) = pending.await {
            let event = event.expect("the call goes on");
            assert_ne!(event["event"], "media", "audio of a flushed answer");
        }
    }
    let messages = &llm.prompts()[1].messages;
    let interrupted = messages.iter().rev().find_map(|message| match message {
        Message::Agent { text, interrupted } => Some((text.clone(), *interrupted)),
        _ => None,
    });
    let (heard, interrupted) = interrupted.expect("an answer");
    assert!(interrupted && heard.starts_with("One two"), "{heard}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_may_be_typed_in() {
    let (api, _asked) = twilio_api().await;
    let llm = Scripted::answers(["<speech>Thank you.</speech>"]);
    let server = serve(settings(&api), &llm);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    for key in "42#".chars() {
        phone.order(Order::Press(key)).await;
    }
    phone.until("mark").await;
    while llm.prompts().is_empty() {
        phone.next().await;
    }
    let typed = Message::User {
        text: "Keypad: 42".into(),
    };
    assert_eq!(llm.prompts()[0].messages.last(), Some(&typed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_says_so_to_the_caller() {
    let (api, _asked) = twilio_api().await;
    let settings = ServerSettings {
        max_sessions: 1,
        ..settings(&api)
    };
    let server = serve(settings, &Scripted::default());
    let mut phone = Phone::call(&server).await;
    phone.until("media").await;
    let (status, instructions) = ring(&server, "CA2", None).await;
    assert_eq!(status, 200, "Twilio speaks only what comes with 200");
    assert!(instructions.contains("<Say>") && instructions.contains("<Hangup/>"));
    assert!(!instructions.contains("ticket"), "{instructions}");
}

/// Missing, wrong, replayed and mismatched: no session, no call of the model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_strangers_get_nothing() {
    let (api, _asked) = twilio_api().await;
    let llm = Scripted::default();
    let server = serve(settings(&api), &llm);
    let signature = socket_signature();
    let signed = [("x-twilio-signature", signature.as_str())];

    // One good call uses its ticket up.
    let (_, instructions) = ring(&server, CALL, None).await;
    let used = ticket(&instructions).to_owned();
    let mut good = server
        .try_open("/twilio/media", &signed)
        .await
        .expect("it opens");
    good.send(start(CALL, ACCOUNT, &used)).await;
    assert_eq!(good.event().await["event"], "media", "the greeting");

    for at in 0..250 {
        let wrong = sign(&format!("wss://{PUBLIC}/twilio/media?{at}"), &[]);
        let refused = server.try_open("/twilio/media", &[]).await.err();
        assert_eq!(refused, Some(403), "no signature");
        let other = [("x-twilio-signature", wrong.as_str())];
        let refused = server.try_open("/twilio/media", &other).await.err();
        assert_eq!(refused, Some(403), "the signature of something else");
        let (status, said) = ring(&server, CALL, Some(&wrong)).await;
        assert_eq!(status, 403);
        assert!(!said.contains("ticket"), "{said}");

        let (_, instructions) = ring(&server, CALL, None).await;
        let fresh = ticket(&instructions);
        let begin = match at % 4 {
            0 => start(CALL, ACCOUNT, &used),
            1 => start("CA2", ACCOUNT, fresh),
            2 => start(CALL, "AC2", fresh),
            _ => start(CALL, ACCOUNT, &fresh.to_uppercase().replace('A', "B")),
        };
        let mut client = server
            .try_open("/twilio/media", &signed)
            .await
            .expect("it opens");
        client.send(begin).await;
        assert_eq!(u16::from(client.close_frame().await.code), 1008);
    }
    assert_eq!(
        server.counters.sessions.load(SeqCst),
        1,
        "the good one alone"
    );
    assert!(llm.prompts().is_empty());
}

#[tokio::test]
async fn without_an_account_there_is_no_twilio() {
    let server = live::serve(without_models(Arc::new(Scripted::default())));
    let refused = server.try_open("/twilio/media", &[]).await.err();
    assert_eq!(refused, Some(404));
    assert_eq!(ring(&server, CALL, None).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_telnyx_and_plivo_show_the_servers_token_in_the_address() {
    let settings = ServerSettings {
        auth_token: Some(TOKEN.into()),
        ..local()
    };
    let server = serve(settings, &Scripted::default());
    for path in ["/telnyx/media", "/plivo/media"] {
        for query in ["", "?token=", "?token=wrong"] {
            let refused = server.try_open(&format!("{path}{query}"), &[]).await.err();
            assert_eq!(refused, Some(401), "{path}{query}");
        }
        let shown = format!("{path}?token={TOKEN}");
        let mut client = server.try_open(&shown, &[]).await.expect("it opens");
        client
            .send(json!({
                "event": "start", "stream_id": "s",
                "start": {
                    "callId": "c", "streamId": "s", "call_control_id": "c",
                    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
                    "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}
                }
            }))
            .await;
        let greeting = client.event().await;
        assert!(
            greeting["event"] == "media" || greeting["event"] == "playAudio",
            "{greeting}"
        );
    }
}

/// Runs a program of others and returns what it reports.
async fn report(program: &str, arguments: &[&str]) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .await
        .unwrap_or_else(|error| panic!("{program}: {error}; run `make test-tools`"));
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("a report")
}

/// Two seconds of silence, a noise, and silence again.
fn speech(path: &std::path::Path) {
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 8_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut file = hound::WavWriter::create(path, spec).expect("a file");
    for (level, ms) in [(0, 2_000), (12_000, 600), (0, 1_000)] {
        for _ in 0..ms * 8 {
            file.write_sample::<i16>(level).expect("written");
        }
    }
    file.finalize().expect("written");
}

/// Twilio's library signs, the simulator of others calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_tools_that_others_wrote() {
    let (api, _asked) = twilio_api().await;
    let llm = Scripted::answers([
        "<speech>Let me see.</speech><tool>get_time(place=\"Tokyo\")</tool>",
        "<speech>It is noon there.</speech>",
    ]);
    let server = serve(settings(&api), &llm);
    let requests = json!([
        [format!("https://{PUBLIC}/twilio/voice"), {"CallSid": CALL, "From": "+15551230000"}],
        [format!("wss://{PUBLIC}/twilio/media"), {}],
    ]);
    let signatures = report("node", &["sign.mjs", TOKEN, &requests.to_string()]).await;
    let signature = |at: usize| signatures[at].as_str().expect("a signature");
    let (status, instructions) = ring(&server, CALL, Some(signature(0))).await;
    assert_eq!(status, 200, "{instructions}");
    let folder = tempfile::tempdir().expect("a folder");
    let wav = folder.path().join("speech.wav");
    speech(&wav);
    let url = format!("ws://{}/twilio/media", server.address);
    let arguments = [
        "call.py",
        &url,
        signature(1),
        ticket(&instructions),
        ACCOUNT,
        CALL,
        wav.to_str().expect("a path"),
    ];
    let heard = report(".venv/bin/python", &arguments).await;
    assert_eq!(heard["violations"], json!([]), "{heard}");
    assert_eq!(heard["unknown"], json!([]), "{heard}");
    assert_eq!(heard["marks"], heard["echoed"], "{heard}");
    assert_eq!(llm.prompts().len(), 2, "the answer to the tool's result");
    // The greeting, the filler and the answer: the scripted voice takes its time for each.
    assert!(heard["audio_ms"].as_u64() > Some(1_000), "{heard}");
}
