//! Tests telephone calls over Twilio's protocol: a conversation, a barge-in, the keypad, lost and
//! late marks, and a thousand unauthorised sockets.

use crate::{common, support};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::live::{self, without_models};
use support::log::Log;
use support::real;
use support::twilio::{
    ACCOUNT, CALL, PUBLIC, TOKEN, ring, ring_at, settings, sign, socket_signature, start,
    start_of_others, tell, ticket,
};
use support::{Client, Server, local};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_tungstenite::tungstenite::Message as Frame;
use undertone::asr::{Asr, WhisperOnnx};
use undertone::audio::from_pcm16le;
use undertone::audio::g711::Law;
use undertone::audio::{Resampler, to_f32, to_pcm16le};
use undertone::llm::Message;
use undertone::llm::scripted::{Cue, Scripted, Step};
use undertone::server::{
    App, OpeningLimits, OutboundCalls, OutboundLine, ServerSettings, TransferCall,
};
use undertone::session::{AgentSettings, Builders, Cast, PhoneSettings, Route};
use undertone::tools::{Named, Origin, Registry, builtin};
use undertone::transport::phone::tickets::TicketMemory;
use undertone::tts::{Speech, Tts, TtsError};

/// A request to Twilio's API: path, credentials, body.
type Asked = (String, String, String);

/// Simulates Twilio's API on loopback.
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
    let engines = of_calls(&settings, without_models(Arc::new(llm.clone())));
    live::serve_with(settings, engines)
}

/// The engines with a greeting and tools.
fn of_calls(settings: &ServerSettings, engines: Builders) -> Builders {
    let mut tools = Registry::new();
    builtin::register(&mut tools).expect("no duplicates");
    if let Some((transfer, hints)) = TransferCall::new(settings) {
        tools
            .register_with(Arc::new(transfer), hints)
            .expect("no duplicates");
    }
    Builders {
        tools: tools.into(),
        phone: PhoneSettings {
            greeting: "Hello.".into(),
            silence_prompt: None,
        },
        ..engines
    }
}

/// A telephone line's delays of audio and marks.
#[derive(Clone, Copy)]
struct Line {
    /// The delay of audio to the caller, in frames of 20 ms.
    lag: u64,
    /// The delay of the mark with this number, in frames; `None` if it is lost.
    marks: fn(usize) -> Option<u64>,
}

const GOOD_LINE: Line = Line {
    lag: 0,
    marks: |_| Some(0),
};

/// A telephone: sends 20 ms of audio every 20 ms, plays the received audio, and returns marks when
/// they have been played or cleared, subject to its line's delays.
pub(crate) struct Phone {
    orders: mpsc::Sender<Order>,
    events: mpsc::Receiver<Value>,
}

pub(crate) enum Order {
    /// Make a noise for this many frames.
    Noise(usize),
    Press(char),
}

impl Phone {
    pub(crate) async fn call(server: &Server) -> Self {
        Self::call_over(server, GOOD_LINE).await
    }

    /// Calls this number.
    pub(crate) async fn call_at(server: &Server, called: &str) -> Self {
        let answered = ring_at(server, CALL, called).await;
        Self::answered(server, answered, GOOD_LINE).await
    }

    async fn call_over(server: &Server, line: Line) -> Self {
        let answered = ring(server, CALL, None).await;
        Self::answered(server, answered, line).await
    }

    /// A call that Twilio was told to connect like this.
    pub(crate) async fn answered_as(server: &Server, answered: (u16, String)) -> Self {
        Self::answered(server, answered, GOOD_LINE).await
    }

    async fn answered(server: &Server, answered: (u16, String), line: Line) -> Self {
        let (status, instructions) = answered;
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
        tokio::spawn(hold(client, line, ordered, told));
        Self { orders, events }
    }

    pub(crate) async fn order(&self, order: Order) {
        assert!(self.orders.send(order).await.is_ok(), "the call goes on");
    }

    async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(support::PATIENCE, self.events.recv())
            .await
            .expect("an event in time")
    }

    pub(crate) async fn until(&mut self, kind: &str) -> Vec<Value> {
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
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// The audio on its way to the caller.
#[derive(Default)]
struct Playing {
    /// Ticks since the call began, and frames that were heard.
    ticks: u64,
    heard: u64,
    /// Frames and marks in order, each with the earliest tick at which it is heard; the name is set
    /// for marks.
    waiting: VecDeque<(u64, Option<String>)>,
    marks: usize,
    /// Marks to return, each with its tick.
    echoes: Vec<(u64, String)>,
}

impl Playing {
    /// Advances by 20 ms: one frame is heard, and the marks after it are passed. Returns the marks
    /// that are due back.
    fn tick(&mut self, line: Line) -> Vec<String> {
        self.ticks += 1;
        let now = self.ticks;
        let due = |(due, mark): &(u64, Option<String>)| mark.is_none() && *due <= now;
        if self.waiting.front().is_some_and(due) {
            self.waiting.pop_front();
            self.heard += 1;
        }
        while let Some((_, Some(mark))) = self.waiting.front().cloned() {
            self.waiting.pop_front();
            self.pass(mark, line);
        }
        let echoes = self.echoes.extract_if(.., |(at, _)| *at <= now);
        echoes.map(|(_, mark)| mark).collect()
    }

    fn pass(&mut self, mark: String, line: Line) {
        self.marks += 1;
        if let Some(late) = (line.marks)(self.marks) {
            self.echoes.push((self.ticks + late, mark));
        }
    }

    /// Drops audio that was not heard; its marks count as passed.
    fn clear(&mut self, line: Line) {
        for (_, mark) in std::mem::take(&mut self.waiting) {
            if let Some(mark) = mark {
                self.pass(mark, line);
            }
        }
    }
}

async fn hold(
    mut client: Client,
    line: Line,
    mut orders: mpsc::Receiver<Order>,
    told: mpsc::Sender<Value>,
) {
    use futures_util::{SinkExt, StreamExt};
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut noise, mut chunk, mut playing) = (0_usize, 0_u64, Playing::default());
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
                for name in playing.tick(line) {
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
                let mut event: Value = serde_json::from_str(&text).expect("JSON");
                let due = playing.ticks + line.lag + 1;
                match event["event"].as_str() {
                    Some("media") => playing.waiting.push_back((due, None)),
                    Some("mark") => {
                        let name = event["mark"]["name"].as_str().expect("a name").to_owned();
                        playing.waiting.push_back((due, Some(name)));
                    }
                    _ => {
                        event["heard_ms"] = (playing.heard * 20).into();
                        playing.clear(line);
                    }
                }
                if told.send(event).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// A model that calls the clock in its first answer.
fn clock() -> Scripted {
    Scripted::default()
        .on(
            Cue::Turn(1),
            "<speech>Let me see.</speech><tool>get_time(place=\"Tokyo\")</tool>",
        )
        .on(
            Cue::result("get_time"),
            "<speech>It is noon there.</speech>",
        )
}

fn frames(events: &[Value]) -> usize {
    events.iter().filter(|e| e["event"] == "media").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_greeted_answered_and_ended_by_the_agent() {
    let (api, mut asked) = twilio_api().await;
    let llm = clock().on(
        Cue::Turn(2),
        "<speech>Goodbye!</speech><tool>hang_up()</tool>",
    );
    let server = serve(settings(&api), &llm);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    let prompt = llm.asked(Cue::result("get_time")).await;
    assert!(prompt.tools.iter().any(|tool| tool.name == "hang_up"));
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
async fn a_caller_is_transferred_after_the_announcement() {
    let (api, mut asked) = twilio_api().await;
    let llm = Scripted::always(
        "<speech>I'll put you through.</speech><tool>transfer_call(to=\"reception\")</tool>",
    );
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
    let dial = format!(
        "<Response><Dial action=\"https://{PUBLIC}/twilio/dialed\">+15557654321</Dial></Response>"
    );
    assert_eq!(verbs, [("Twiml".to_owned(), dial)]);
    let more = tokio::time::timeout(Duration::from_millis(500), asked.recv()).await;
    assert!(
        more.is_err(),
        "the call is not ours to end any more: {more:?}"
    );
    let offered = llm.prompts()[0].tools.clone();
    assert!(offered.iter().any(|tool| tool.name == "transfer_call"));
}

/// Twilio refused to dial: it wants a number to show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_a_telephone_number_is_transferred_with_another_shown() {
    let (api, mut asked) = twilio_api().await;
    let llm = Scripted::always(
        "<speech>I'll put you through.</speech><tool>transfer_call(to=\"reception\")</tool>",
    );
    let settings = ServerSettings {
        outbound: Some(OutboundCalls {
            allow: vec!["+1555*".into()],
            max_calls: 1,
            per_hour: 1,
            ring: Duration::from_secs(30),
            message: String::new(),
            line: OutboundLine::Twilio {
                from: "+15550199".into(),
            },
        }),
        ..settings(&api)
    };
    let server = serve(settings, &llm);
    for (from, to, shown) in [
        ("+266696687", "+15551230001", "+15551230001"),
        ("sip:anna@example.com", "sip:100@example.com", "+15550199"),
        ("client:anna", "+15559990000", "+15550199"),
    ] {
        let form = [
            ("AccountSid", ACCOUNT),
            ("CallSid", CALL),
            ("From", from),
            ("To", to),
        ];
        let answered = tell(&server, "voice", &form, None).await;
        let mut phone = Phone::answered_as(&server, answered).await;
        phone.until("mark").await;
        phone.order(Order::Noise(30)).await;
        phone.rest().await;
        let (_, _, body) = asked.recv().await.expect("Twilio is told");
        let told = url::form_urlencoded::parse(body.as_bytes()).next();
        let (_, verbs) = told.expect("TwiML");
        let dial = format!("callerId=\"{shown}\">+15557654321</Dial>");
        assert!(verbs.contains(&dial), "{from}: {verbs}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frame_of_an_interrupted_answer_follows_the_clear() {
    let (api, _asked) = twilio_api().await;
    let story = "<speech>One two three four five six seven eight nine ten eleven twelve. \
                 And so on and on and on, without an end that anybody could see.</speech>";
    let llm = Scripted::default()
        .on(Cue::Turn(1), story)
        // The model never answers the interruption, so all audio belongs to the story.
        .on(Cue::Turn(2), Step::Hang);
    let server = serve(settings(&api), &llm);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    llm.asked(Cue::Turn(1)).await;
    for _ in 0..5 {
        phone.until("mark").await;
    }
    phone.order(Order::Noise(30)).await;
    phone.until("clear").await;
    let prompt = llm.asked(Cue::Turn(2)).await;
    while let Ok(event) = phone.events.try_recv() {
        assert_ne!(event["event"], "media", "audio of a flushed answer");
    }
    let messages = &prompt.messages;
    let interrupted = messages.iter().rev().find_map(|message| match message {
        Message::Agent { text, interrupted } => Some((text.clone(), *interrupted)),
        _ => None,
    });
    let (heard, interrupted) = interrupted.expect("an answer");
    assert!(interrupted && heard.starts_with("One two"), "{heard}");
}

/// A voice with a word every 250 ms.
struct Drawl;

const WORD_MS: u64 = 250;

impl Tts for Drawl {
    fn name(&self) -> &str {
        "drawl"
    }

    fn sample_rate(&self) -> u32 {
        8_000
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        let word = vec![0.2; 8 * WORD_MS as usize];
        let words = text.split_whitespace().count();
        Ok(Box::new(std::iter::repeat_n(word, words).map(Ok)))
    }
}

/// On a line with half a second of delay, a third of the marks are lost and another third come up
/// to 13 s late. Without the rest, the history would be two words ahead of the caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_unreliable_marks_the_history_is_at_most_a_word_off() {
    let (api, _asked) = twilio_api().await;
    let story = "Tick tock tick tock tick tock tick tock. ".repeat(8);
    let llm = Scripted::default()
        .on(Cue::Turn(1), format!("<speech>{story}</speech>"))
        .on(Cue::Turn(2), Step::Hang);
    let engines = Builders {
        tts: Box::new(|| Ok(Box::new(Drawl) as Box<dyn Tts>)),
        ..without_models(Arc::new(llm.clone()))
    };
    let server = live::serve_with(settings(&api), engines);
    let line = Line {
        lag: 25,
        marks: |number| match number % 6 {
            0 | 3 => None,
            1 => Some(650),
            4 => Some(100),
            _ => Some(1),
        },
    };
    let mut phone = Phone::call_over(&server, line).await;
    phone.order(Order::Noise(30)).await;
    for _ in 0..20 {
        phone.until("mark").await;
    }
    phone.order(Order::Noise(30)).await;
    let events = phone.until("clear").await;
    let heard = events.last().expect("a clear")["heard_ms"].as_u64();
    let messages = llm.asked(Cue::Turn(2)).await.messages;
    let Some(Message::Agent { text, .. }) = messages.iter().rev().nth(1) else {
        panic!("no answer before the interruption: {messages:?}");
    };
    let (words, truly) = (
        text.split_whitespace().count() as u64,
        heard.expect("ms") / WORD_MS,
    );
    println!("{words} words in the history, {truly} were heard");
    assert!(
        truly >= 10 && words.abs_diff(truly) <= 1,
        "{words} for {truly}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_may_be_entered_on_the_keypad() {
    let (api, _asked) = twilio_api().await;
    let llm = Scripted::always("<speech>Thank you.</speech>");
    let server = serve(settings(&api), &llm);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    for key in "42#".chars() {
        phone.order(Order::Press(key)).await;
    }
    phone.until("mark").await;
    let typed = Message::User {
        text: "Keypad: 42".into(),
    };
    let asked = llm.asked(Cue::Turn(1)).await;
    assert_eq!(asked.messages.last(), Some(&typed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_tells_the_caller() {
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

/// Two callers used to be taken at the last free place, and one of them cut off without a word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_taken_has_a_place() {
    let (api, _asked) = twilio_api().await;
    let settings = ServerSettings {
        max_sessions: 1,
        ..settings(&api)
    };
    let server = serve(settings, &Scripted::default());
    let taken = ring(&server, CALL, None).await;
    assert!(taken.1.contains("ticket"), "{taken:?}");
    let (_, second) = ring(&server, "CA2", None).await;
    assert!(!second.contains("ticket"), "{second}");
    let mut phone = Phone::answered_as(&server, taken).await;
    phone.until("media").await;
}

#[tokio::test]
async fn calls_beyond_the_limit_of_a_minute_are_told_that_all_lines_are_busy() {
    let (api, _asked) = twilio_api().await;
    let settings = ServerSettings {
        openings: OpeningLimits {
            per_token: 1,
            ..OpeningLimits::default()
        },
        ..settings(&api)
    };
    let server = serve(settings, &Scripted::default());
    let (_, first) = ring(&server, "CA1", None).await;
    assert!(first.contains("ticket"), "{first}");
    let (status, second) = ring(&server, "CA2", None).await;
    assert_eq!(status, 200, "Twilio speaks only what comes with 200");
    assert!(
        second.contains("<Hangup/>") && !second.contains("ticket"),
        "{second}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_unanswered_transfer_the_agent_takes_the_call_back() {
    let (api, _asked) = twilio_api().await;
    let server = serve(settings(&api), &Scripted::default());
    let dialed = |status| {
        [
            ("AccountSid", ACCOUNT),
            ("CallSid", CALL),
            ("DialCallStatus", status),
        ]
    };
    for status in ["no-answer", "busy", "failed", "canceled"] {
        let (code, instructions) = tell(&server, "dialed", &dialed(status), None).await;
        assert_eq!(code, 200, "{status}");
        assert!(instructions.contains("<Say>Nobody answers there.</Say><Connect>"));
        assert!(!ticket(&instructions).is_empty());
    }
    let (_, over) = tell(&server, "dialed", &dialed("completed"), None).await;
    assert!(
        over.contains("<Hangup/>") && !over.contains("ticket"),
        "{over}"
    );
    let (code, _) = tell(&server, "dialed", &dialed("busy"), Some("forged")).await;
    assert_eq!(code, 403);
}

/// The operator saw nothing of a transfer that Twilio refused to dial.
#[tokio::test]
async fn a_transfer_that_twilio_cannot_dial_is_logged_with_its_reason() {
    const REASON: &str = "callerId must be provided for SIP calls when using Dial";
    let (log, _guard) = Log::begin(tracing::Level::INFO);
    let server = serve(settings("http://127.0.0.1:1"), &Scripted::default());
    let dialed = |status| {
        [
            ("AccountSid", ACCOUNT),
            ("CallSid", CALL),
            ("DialCallStatus", status),
            ("ErrorCode", "13214"),
            ("ErrorMessage", REASON),
        ]
    };
    let is_told = |line: &str| line.contains("WARN") && line.contains(REASON);
    for (status, lines) in [("no-answer", 0), ("failed", 1)] {
        tell(&server, "dialed", &dialed(status), None).await;
        let log = log.text();
        let told = log.lines().filter(|line| is_told(line));
        assert_eq!(told.count(), lines, "{log}");
    }
}

/// A place was held for the caller, and the next one heard that all lines were busy.
#[tokio::test]
async fn a_caller_who_hangs_up_while_a_transfer_rings_takes_no_place() {
    let settings = ServerSettings {
        max_sessions: 1,
        ..settings("http://127.0.0.1:1")
    };
    let server = serve(settings, &Scripted::default());
    let dialed = [
        ("AccountSid", ACCOUNT),
        ("CallSid", CALL),
        ("CallStatus", "completed"),
        ("DialCallStatus", "no-answer"),
    ];
    let (_, over) = tell(&server, "dialed", &dialed, None).await;
    assert!(over.contains("<Hangup/>"), "{over}");
    let (_, next) = ring(&server, "CA2", None).await;
    assert!(next.contains("ticket"), "{next}");
}

/// Both were hung up on as soon as their sockets connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_drains_serves_calls_that_it_has_answered_or_takes_back_from_a_transfer() {
    let settings = ServerSettings {
        drain_deadline: Duration::from_secs(3_600),
        ..settings("http://127.0.0.1:1")
    };
    let server = serve(settings, &Scripted::default());
    let answered = ring(&server, CALL, None).await;
    server.shutdown.cancel();
    let mut phone = Phone::answered_as(&server, answered).await;
    phone.until("mark").await;
    let dialed = [
        ("AccountSid", ACCOUNT),
        ("CallSid", CALL),
        ("DialCallStatus", "busy"),
    ];
    let returned = tell(&server, "dialed", &dialed, None).await;
    let mut returned = Phone::answered_as(&server, returned).await;
    returned.until("mark").await;
}

/// Every caller heard English.
#[tokio::test]
async fn what_twilio_says_is_in_the_language_of_the_agent_that_the_call_leads_to() {
    let called = "+15551230009";
    let mut builders = of_calls(&local(), without_models(Arc::new(Scripted::default())));
    builders.policy.speaker.language = Some("de".into());
    builders.agents = Cast {
        agents: vec![AgentSettings {
            language: Some("es".into()),
            ..AgentSettings::new("lola")
        }],
        routes: vec![Route {
            transport: Some("twilio".into()),
            values: vec![(Named::Called, called.into())],
            trust: Origin::Signalled,
            agent: "lola".into(),
        }],
        ..Cast::default()
    };
    let settings = ServerSettings {
        max_sessions: 1,
        ..settings("http://127.0.0.1:1")
    };
    let server = live::serve_with(settings, builders);
    let dialed = [
        ("AccountSid", ACCOUNT),
        ("CallSid", CALL),
        ("DialCallStatus", "busy"),
    ];
    let (_, told) = tell(&server, "dialed", &dialed, None).await;
    let german = "<Say language=\"de-DE\">Dort geht niemand ans Telefon.</Say><Connect>";
    assert!(told.contains(german), "{told}");
    // That call has the only place.
    let (_, told) = ring_at(&server, "CA2", called).await;
    let spanish = "<Say language=\"es-ES\">Todas nuestras líneas están ocupadas.";
    assert!(told.contains(spanish), "{told}");
}

#[tokio::test]
async fn a_call_that_one_server_has_answered_streams_to_another_once() {
    let used = TicketMemory::default();
    let server = |key: &str, used: &TicketMemory| {
        let settings = ServerSettings {
            client_secret_key: Some(key.into()),
            ..settings("http://127.0.0.1:1")
        };
        let llm = Scripted::default();
        let engines = of_calls(&local(), without_models(Arc::new(llm)));
        Server::serve(App {
            tickets: Arc::new(used.clone()),
            ..App::new(settings, live::sessions(engines))
        })
    };
    let answers = server("the operator's key", &used);
    let carries = server("the operator's key", &used);
    let stranger = server("another key", &TicketMemory::default());
    let (status, instructions) = ring(&answers, CALL, None).await;
    assert_eq!(status, 200, "{instructions}");
    let open = async |server: &Server| {
        let signature = socket_signature();
        let signed = [("x-twilio-signature", signature.as_str())];
        let opened = server.try_open("/twilio/media", &signed).await;
        let mut client = opened.expect("the socket opens");
        client
            .send(start(CALL, ACCOUNT, ticket(&instructions)))
            .await;
        client
    };
    let close = open(&stranger).await.close_frame().await;
    assert_eq!(u16::from(close.code), 1008, "{close}");
    let mut caller = open(&carries).await;
    while caller.event().await["event"] != "media" {}
    for server in [&carries, &answers] {
        let close = open(server).await.close_frame().await;
        assert_eq!(u16::from(close.code), 1008, "{close}");
    }
    assert_eq!(carries.counters.sessions.load(SeqCst), 1);
}

/// A ticket with all numbers and headers of a call is longer than a parameter may be.
#[tokio::test]
async fn a_ticket_with_many_facts_comes_back_in_several_parameters() {
    let (api, _asked) = twilio_api().await;
    let server = serve(settings(&api), &Scripted::default());
    let header = "x".repeat(300);
    let form = [
        ("AccountSid", ACCOUNT),
        ("CallSid", CALL),
        ("From", "+15551230000"),
        ("To", "+15551230001"),
        ("ForwardedFrom", "+15551230002"),
        ("SipHeader_X-Customer", header.as_str()),
    ];
    let (status, instructions) = tell(&server, "voice", &form, None).await;
    assert_eq!(status, 200, "{instructions}");
    let parameters = instructions.split("<Parameter ").skip(1).map(|part| {
        let quoted: Vec<&str> = part.split('"').collect();
        assert!(quoted[1].len() + quoted[3].len() <= 500, "{part}");
        (quoted[1].to_owned(), quoted[3].into())
    });
    let parameters: serde_json::Map<String, Value> = parameters.collect();
    assert!(parameters.len() > 1, "{instructions}");
    let signature = socket_signature();
    let signed = [("x-twilio-signature", signature.as_str())];
    let opened = server.try_open("/twilio/media", &signed).await;
    let mut client = opened.expect("the socket opens");
    let mut first = start(CALL, ACCOUNT, "");
    first["start"]["customParameters"] = parameters.into();
    client.send(first).await;
    assert_eq!(client.event().await["event"], "media", "the greeting");
}

/// Missing, wrong, replayed and mismatched credentials: no session opens, and the model is not
/// asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_unauthorised_sockets_open_no_session() {
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

/// Requests signed with this account's token but for another account are refused before the call is
/// connected, not right after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_another_account_is_refused_before_it_is_connected() {
    let (api, _asked) = twilio_api().await;
    let server = serve(settings(&api), &Scripted::default());
    let other = "AC00000000000000000000000000000002";
    let call = ("CallSid", CALL);
    for form in [vec![call, ("AccountSid", other)], vec![call]] {
        for hook in ["voice", "dialed"] {
            let (status, said) = tell(&server, hook, &form, None).await;
            assert_eq!(status, 403, "{hook} {form:?}: {said}");
            assert!(said.contains("another Twilio account"), "{said}");
            assert!(!said.contains("<Connect>"), "{said}");
        }
    }
    let metrics = server.get("/metrics", "").await;
    let counted = r#"undertone_refused_connections_total{reason="denied"} 4"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn without_an_account_there_is_no_twilio() {
    let server = live::serve(without_models(Arc::new(Scripted::default())));
    let refused = server.try_open("/twilio/media", &[]).await.err();
    assert_eq!(refused, Some(404));
    assert_eq!(ring(&server, CALL, None).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telnyx_and_plivo_present_the_servers_token_in_the_url() {
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
        client.send(start_of_others()).await;
        let greeting = client.event().await;
        assert!(
            greeting["event"] == "media" || greeting["event"] == "playAudio",
            "{greeting}"
        );
    }
}

/// Runs a third-party program and returns its report.
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

/// A call that Twilio's own library has signed: the signature of its socket, and its ticket.
async fn announced(server: &Server) -> (String, String) {
    let requests = json!([
        [format!("https://{PUBLIC}/twilio/voice"), {"AccountSid": ACCOUNT, "CallSid": CALL, "From": "+15551230000"}],
        [format!("wss://{PUBLIC}/twilio/media"), {}],
    ]);
    let signatures = report("node", &["sign.mjs", TOKEN, &requests.to_string()]).await;
    let signature = |at: usize| signatures[at].as_str().expect("a signature");
    let (status, instructions) = ring(server, CALL, Some(signature(0))).await;
    assert_eq!(status, 200, "{instructions}");
    (signature(1).into(), ticket(&instructions).into())
}

/// Twilio's library signs the requests, and a third-party simulator makes the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_third_party_tools() {
    let (api, _asked) = twilio_api().await;
    let llm = clock();
    let server = serve(settings(&api), &llm);
    let (signature, ticket) = announced(&server).await;
    let folder = tempfile::tempdir().expect("a folder");
    let wav = folder.path().join("speech.wav");
    speech(&wav);
    let url = format!("ws://{}/twilio/media", server.address);
    let wav = wav.to_str().expect("a path");
    let arguments = ["call.py", &url, &signature, &ticket, ACCOUNT, CALL, wav];
    let heard = report(".venv/bin/python", &arguments).await;
    assert_eq!(heard["violations"], json!([]), "{heard}");
    assert_eq!(heard["unknown"], json!([]), "{heard}");
    assert_eq!(heard["marks"], heard["echoed"], "{heard}");
    assert!(llm.was_asked(&Cue::result("get_time")), "{heard}");
    // The greeting, the filler and the answer: the scripted voice takes its time for each.
    assert!(heard["audio_ms"].as_u64() > Some(1_000), "{heard}");
}

/// Transcribes mono PCM16 at 8 kHz.
fn transcribe(weights: &std::path::Path, pcm: &[u8]) -> String {
    let mut resampler = Resampler::new(8_000, 16_000);
    let mut audio = resampler.push(&to_f32(&from_pcm16le(pcm).expect("whole samples")));
    audio.extend(resampler.flush());
    let mut whisper = WhisperOnnx::load(&weights.join("whisper-tiny.en")).expect("the model");
    whisper.transcribe(&audio).expect("text").to_lowercase()
}

/// With a real recogniser and voice, and a client without marks: a question is answered with a
/// tool, and a barge-in stops the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipecats_client_asks_is_answered_and_interrupts() {
    let _together = common::together().await;
    let weights = common::weights();
    let (api, _asked) = twilio_api().await;
    let llm = Scripted::default()
        .on(
            Cue::words("Tokyo"),
            "<speech>Let me see.</speech><tool>get_time(place=\"Tokyo\")</tool>",
        )
        .on(
            Cue::result("get_time"),
            "<speech>It is noon in Tokyo. The sun stands high above the city, the trains are \
             full, and the shops have opened. People sit in the parks and eat their lunch.</speech>",
        )
        // Any audio after the interruption belongs to the answer before it.
        .on(Cue::Always, Step::Hang);
    let server = live::serve_with(
        settings(&api),
        of_calls(&local(), real::engines(&weights, &llm)),
    );
    let (signature, ticket) = announced(&server).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut booth = common::Booth::new(&weights);
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let paths = [file("question"), file("interruption"), file("answer")];
    let spoken = [
        "What time is it in Tokyo?",
        "Please stop talking, that is enough.",
    ];
    for (text, path) in spoken.iter().zip(&paths) {
        let speech = booth.say(text, 8_000);
        std::fs::write(path, to_pcm16le(&speech)).expect("written");
    }
    let url = format!("ws://{}/twilio/media", server.address);
    let mut arguments = vec!["pipecat.mjs", &url, &signature, &ticket, ACCOUNT, CALL];
    arguments.extend(paths.iter().map(String::as_str));
    let heard = report("node", &arguments).await;
    assert_eq!(heard["phase"], "over", "{heard}");
    assert!(heard["greeting"].as_u64() > Some(0), "{heard}");
    assert_eq!(heard["stale"], 0, "audio after the clear: {heard}");
    assert!(llm.was_asked(&Cue::words("Tokyo")), "{:?}", llm.prompts());
    assert!(llm.was_asked(&Cue::result("get_time")), "{heard}");
    let answer = transcribe(&weights, &std::fs::read(&paths[2]).expect("the answer"));
    println!("{heard}: {answer}");
    let said = common::words(&answer);
    let expected = ["tokyo", "sun", "stands", "high", "above", "city"];
    let heard = expected
        .iter()
        .filter(|word| said.iter().any(|said| said == *word));
    // The recogniser may mishear one or two of them at 8 kHz.
    assert!(heard.count() >= 4, "{expected:?} in {answer:?}");
}
