//! Tests calls from Asterisk: AudioSocket over TCP, and `chan_websocket` over a WebSocket.

use crate::{agents, support};
use futures_util::StreamExt;
use futures_util::future::join_all;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::scripted::{self, ANSWER_FRAMES};
use support::{Client, PATIENCE, Script, Server, live, local};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use undertone::audio::g711::Law;
use undertone::audio::{dtmf, from_pcm16le};
use undertone::conversation::{ClauseId, HangUpReason, Input, ItemId, Micros};
use undertone::llm::{Llm, LlmEvent, LlmStream, Prompt};
use undertone::server::{ServerSettings, SessionFactory, SessionOptions, SocketLimits};
use undertone::session::{Inbound, Outbound, Profile, SessionHandle};

const HANG_UP: u8 = 0x00;
const UUID: u8 = 0x01;
const KEY: u8 = 0x03;
const AUDIO_8: u8 = 0x10;
const AUDIO_16: u8 = 0x12;
const AUDIO_48: u8 = 0x16;

fn limits(change: impl FnOnce(&mut SocketLimits)) -> ServerSettings {
    let mut settings = local();
    change(&mut settings.socket);
    settings
}

/// A session that the test controls.
struct Played {
    options: SessionOptions,
    inbound: mpsc::Receiver<Inbound>,
    outbound: mpsc::Sender<Outbound>,
}

impl Played {
    /// Sends `frames` frames of 20 ms at once, whose samples all have the value `tag`.
    fn say(&self, tag: i16, frames: usize) {
        let samples = vec![tag; self.options.output_rate as usize / 50];
        for _ in 0..frames {
            self.send(Outbound::Audio {
                item: ItemId(1),
                clause: ClauseId(1),
                samples: samples.clone(),
            });
        }
    }

    fn send(&self, outbound: Outbound) {
        self.outbound.try_send(outbound).expect("room");
    }

    async fn next(&mut self) -> Option<Inbound> {
        timeout(PATIENCE, self.inbound.recv())
            .await
            .expect("in time")
    }

    /// Waits for loud audio.
    async fn loud(&mut self) {
        loop {
            match self.next().await {
                Some(Inbound::Audio(samples)) if samples.iter().any(|s| *s > 1_000) => return,
                Some(_) => {}
                None => panic!("the call is over"),
            }
        }
    }
}

/// Opens sessions that the test controls, delivered in order.
fn by_hand() -> (SessionFactory, mpsc::Receiver<Played>) {
    let (opened, sessions) = mpsc::channel(64);
    let factory: SessionFactory = Arc::new(move |options| {
        let (into, inbound) = mpsc::channel(64);
        let (outbound, out_of) = mpsc::channel(256);
        let played = Played {
            options,
            inbound,
            outbound,
        };
        opened.try_send(played).expect("the test takes it");
        Ok(SessionHandle {
            inbound: into,
            outbound: out_of,
            span: tracing::Span::none(),
        })
    });
    (factory, sessions)
}

async fn opened(sessions: &mut mpsc::Receiver<Played>) -> Played {
    let session = timeout(PATIENCE, sessions.recv()).await;
    session.expect("in time").expect("a session")
}

/// Asterisk's side of a call.
struct Caller(TcpStream);

impl Caller {
    async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.expect("a connection"))
    }

    async fn dial(address: SocketAddr) -> Self {
        let mut caller = Self::connect(address).await;
        caller.send(UUID, &[7; 16]).await;
        caller
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![kind];
        frame.extend((payload.len() as u16).to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.expect("sent");
    }

    /// Sends `frames` of 20 ms.
    async fn say(&mut self, kind: u8, rate: usize, sample: i16, frames: usize) {
        let payload = sample.to_le_bytes().repeat(rate / 50);
        for _ in 0..frames {
            self.send(kind, &payload).await;
        }
    }

    /// The next frame; `None` once the call is closed.
    async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let frame = async {
            let kind = self.0.read_u8().await.ok()?;
            let length = self.0.read_u16().await.expect("a length");
            let mut payload = vec![0; usize::from(length)];
            self.0.read_exact(&mut payload).await.expect("a payload");
            Some((kind, payload))
        };
        timeout(PATIENCE, frame).await.expect("in time")
    }

    /// The value of all samples of the next frame.
    async fn tag(&mut self, kind: u8) -> i16 {
        let (got, payload) = self.frame().await.expect("a frame");
        assert_eq!(got, kind);
        let tag = [payload[0], payload[1]];
        assert!(payload.chunks(2).all(|sample| sample == tag), "{payload:?}");
        i16::from_le_bytes(tag)
    }

    /// Reads frames from the tag `first` on until half a second of silence. Returns the tag of each
    /// frame. A busy machine may leave a gap between two.
    async fn said(&mut self, kind: u8, first: i16) -> Vec<i16> {
        self.until(kind, first).await;
        let (mut tags, mut quiet) = (vec![first], 0);
        while quiet < 25 {
            match self.tag(kind).await {
                0 => quiet += 1,
                tag => {
                    tags.push(tag);
                    quiet = 0;
                }
            }
        }
        tags
    }

    /// Reads up to this tag. Returns the tags before it, with equal neighbours merged.
    async fn until(&mut self, kind: u8, last: i16) -> Vec<i16> {
        let mut tags = vec![];
        loop {
            match self.tag(kind).await {
                tag if tag == last => break,
                tag => tags.push(tag),
            }
        }
        tags.dedup();
        tags
    }

    /// Reads silence until the server hangs up and closes.
    async fn hung_up(&mut self) {
        loop {
            match self.frame().await {
                Some((HANG_UP, payload)) => {
                    assert!(payload.is_empty());
                    assert_eq!(self.frame().await, None);
                    return;
                }
                Some((_, payload)) => assert!(payload.iter().all(|byte| *byte == 0)),
                None => panic!("closed without a hang-up"),
            }
        }
    }

    /// Speaks a turn and counts the frames of the answer.
    async fn turn(&mut self) -> usize {
        self.say(AUDIO_8, 8_000, 8_000, 25).await;
        self.say(AUDIO_8, 8_000, 0, 25).await;
        self.said(AUDIO_8, 4_000).await.len()
    }
}

#[tokio::test]
async fn a_spoken_turn_is_answered_a_frame_at_a_time() {
    let (server, address) = Server::of_calls(local(), scripted::factory(Script::default()));
    let mut caller = Caller::dial(address).await;
    for _ in 0..2 {
        assert_eq!(caller.turn().await, ANSWER_FRAMES);
    }
    assert_eq!(server.counters.sessions.load(Relaxed), 1);
}

#[tokio::test]
async fn the_first_audio_sets_the_rate_and_a_silent_caller_gets_8_khz() {
    let (factory, mut sessions) = by_hand();
    let (_server, address) = Server::of_calls(local(), factory);
    let mut wide = Caller::dial(address).await;
    wide.say(AUDIO_16, 16_000, 1, 1).await;
    let session = opened(&mut sessions).await;
    let rates = (session.options.input_rate, session.options.output_rate);
    assert_eq!(
        (rates, session.options.profile),
        ((16_000, 16_000), Profile::PhoneCall)
    );
    session.say(5, 1);
    loop {
        match wide.frame().await.expect("open") {
            // Silence from before the rate was known.
            (AUDIO_8, _) => {}
            (AUDIO_16, payload) if payload.iter().all(|byte| *byte == 0) => {}
            frame => break assert_eq!(frame, (AUDIO_16, [5, 0].repeat(320))),
        }
    }

    let mut muted = Caller::dial(address).await;
    let mut session = opened(&mut sessions).await;
    assert_eq!(session.options.input_rate, 8_000);
    // Later audio at another rate is resampled.
    muted.say(AUDIO_48, 48_000, 8_000, 20).await;
    session.loud().await;
    session.say(6, 1);
    muted.until(AUDIO_8, 6).await;
}

#[tokio::test]
async fn silence_is_sent_while_the_agent_says_nothing() {
    let (factory, mut sessions) = by_hand();
    let (_server, address) = Server::of_calls(local(), factory);
    let mut caller = Caller::dial(address).await;
    for _ in 0..5 {
        assert_eq!(caller.tag(AUDIO_8).await, 0);
    }
    caller.say(AUDIO_8, 8_000, 1, 1).await;
    let session = opened(&mut sessions).await;
    session.say(3, 2);
    assert_eq!(caller.said(AUDIO_8, 3).await, [3, 3]);
}

#[tokio::test]
async fn no_audio_from_before_a_clear_is_sent_after_it() {
    let (factory, mut sessions) = by_hand();
    let (_server, address) = Server::of_calls(local(), factory);
    let mut caller = Caller::dial(address).await;
    caller.say(AUDIO_8, 8_000, 1, 1).await;
    let mut session = opened(&mut sessions).await;
    // All in one poll of this thread, so that any frame of the old audio is an error.
    session.say(1, 20);
    session.send(Outbound::Clear);
    session.say(2, 20);
    let before = caller.until(AUDIO_8, 2).await;
    assert!(before.iter().all(|tag| *tag == 0), "{before:?}");
    // Interrupted by the caller.
    caller.say(AUDIO_8, 8_000, 8_000, 1).await;
    session.loud().await;
    session.send(Outbound::Clear);
    session.say(3, 5);
    assert_eq!(caller.said(AUDIO_8, 3).await, [3; 5]);
    session.say(4, 1);
    caller.until(AUDIO_8, 4).await;
}

#[tokio::test]
async fn tones_of_keys_are_audio() {
    let (factory, mut sessions) = by_hand();
    let (_server, address) = Server::of_calls(local(), factory);
    let mut caller = Caller::dial(address).await;
    caller.say(AUDIO_8, 8_000, 1, 1).await;
    let session = opened(&mut sessions).await;
    for frame in dtmf::tones("5#", 8_000).chunks(160) {
        session.send(Outbound::Tones(frame.to_vec()));
    }
    let mut audio = Vec::new();
    while support::dtmf::keys(&audio, 8_000) != "5#" {
        let (kind, payload) = caller.frame().await.expect("a frame");
        assert_eq!(kind, AUDIO_8);
        audio.extend(from_pcm16le(&payload).expect("whole samples"));
    }
}

#[tokio::test]
async fn a_stalled_call_is_dropped_without_effect_on_another() {
    let settings = limits(|limits| limits.write_timeout = Duration::from_millis(300));
    let (server, address) = Server::of_calls(settings, scripted::factory(Script::default()));
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("a small buffer");
    let stalled = socket.connect(address).await.expect("a connection");
    let mut stalled = Caller(stalled);
    stalled.send(UUID, &[1; 16]).await;
    // The widest frames fill the buffers soonest.
    stalled.say(AUDIO_48, 48_000, 0, 1).await;
    let mut caller = Caller::dial(address).await;
    while server.counters.slow_clients.load(Relaxed) == 0 {
        caller.tag(AUDIO_8).await;
    }
    assert_eq!(caller.turn().await, ANSWER_FRAMES);
}

#[tokio::test]
async fn the_caller_hangs_up() {
    let (factory, mut sessions) = by_hand();
    let (_server, address) = Server::of_calls(local(), factory);
    for with_a_frame in [true, false] {
        let mut caller = Caller::dial(address).await;
        caller.say(AUDIO_8, 8_000, 1, 1).await;
        let mut session = opened(&mut sessions).await;
        if with_a_frame {
            caller.send(HANG_UP, &[]).await;
        } else {
            drop(caller);
        }
        while session.next().await.is_some() {}
    }
}

#[tokio::test]
async fn the_agent_hangs_up_when_its_last_words_have_been_played() {
    let (factory, mut sessions) = by_hand();
    let (_server, address) = Server::of_calls(local(), factory);
    let mut caller = Caller::dial(address).await;
    caller.say(AUDIO_8, 8_000, 1, 1).await;
    let session = opened(&mut sessions).await;
    session.say(9, 10);
    session.send(Outbound::HangUp(HangUpReason::AgentEnded));
    drop(session);
    // Unread audio from the caller must not prevent the hang-up.
    caller.say(AUDIO_8, 8_000, 1, 100).await;
    let mut words = 0;
    while words < 10 {
        words += usize::from(caller.tag(AUDIO_8).await == 9);
    }
    caller.hung_up().await;
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_hung_up_and_counted() {
    let settings = ServerSettings {
        max_sessions: 1,
        ..local()
    };
    let (server, address) = Server::of_calls(settings, scripted::factory(Script::default()));
    let mut first = Caller::dial(address).await;
    first.tag(AUDIO_8).await;
    Caller::dial(address).await.hung_up().await;
    let metrics = server.get("/metrics", "").await;
    let counted = r#"undertone_refused_connections_total{reason="full"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    first.send(HANG_UP, &[]).await;
    while first.frame().await.is_some() {}
    let admitted = async {
        // Its place may be given back a moment after its socket is closed.
        while matches!(
            Caller::dial(address).await.frame().await,
            Some((HANG_UP, _))
        ) {}
    };
    timeout(PATIENCE, admitted).await.expect("admitted in time");
}

#[tokio::test]
async fn invalid_calls_are_closed_without_effect_on_others() {
    let settings = ServerSettings {
        header_timeout: Duration::from_secs(2),
        ..limits(|limits| limits.open_within = Duration::from_millis(300))
    };
    let (server, address) = Server::of_calls(settings, scripted::factory(Script::default()));
    let mut bystander = Caller::dial(address).await;
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        // Audio before the UUID, an invalid UUID, half a sample.
        &[AUDIO_8, 0, 2, 1, 0],
        &[UUID, 0, 3, 1, 2, 3],
        &[
            UUID, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, AUDIO_8, 0, 1, 7,
        ],
        // No data, and an incomplete frame.
        &[],
        &[AUDIO_8, 0xff, 0xff, 0],
    ] {
        let mut stranger = Caller::connect(address).await;
        stranger.0.write_all(bytes).await.expect("sent");
        stranger.hung_up().await;
    }
    // A connection that sends nothing is not counted as a violation.
    assert_eq!(server.counters.bad_clients.load(Relaxed), 5);
    assert_eq!(bystander.turn().await, ANSWER_FRAMES);
}

#[tokio::test]
async fn keys_reach_the_session() {
    let (factory, mut sessions) = by_hand();
    let (server, address) = Server::of_calls(local(), factory);
    let mut caller = Caller::dial(address).await;
    for key in b"5#d" {
        caller.send(KEY, &[*key]).await;
    }
    let mut client = server.open(MEDIA).await;
    for line in [
        START,
        "DTMF_END digit:5",
        "DTMF_END digit:#",
        "DTMF_END digit:d",
    ] {
        client.send_text(line).await;
    }
    for _ in 0..2 {
        let mut session = opened(&mut sessions).await;
        for pressed in ['5', '#', 'D'] {
            match session.next().await {
                Some(Inbound::Request(Input::Key { key })) => assert_eq!(key, pressed),
                other => panic!("not a key: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn unknown_frame_types_are_skipped() {
    let (_server, address) = Server::of_calls(local(), scripted::factory(Script::default()));
    let mut caller = Caller::dial(address).await;
    for kind in [0x02, 0x19, 0x80, 0xff, UUID] {
        caller.send(kind, &[0; 16]).await;
    }
    assert_eq!(caller.turn().await, ANSWER_FRAMES);
}

#[tokio::test]
async fn a_call_that_vanished_is_freed() {
    // A call may be silent ten times longer than a WebSocket, which answers pings.
    let settings = limits(|limits| limits.gone_after = Duration::from_millis(50));
    let (server, address) = Server::of_calls(settings, scripted::factory(Script::default()));
    let mut caller = Caller::dial(address).await;
    while caller.frame().await.is_some() {}
    assert_eq!(server.counters.vanished_clients.load(Relaxed), 1);
}

#[tokio::test]
async fn a_drain_lets_calls_end_and_takes_none() {
    let settings = ServerSettings {
        // Calls go on for half of it.
        drain_deadline: Duration::from_secs(4),
        ..local()
    };
    let (factory, mut sessions) = by_hand();
    let (mut server, address) = Server::of_calls(settings, factory);
    let mut caller = Caller::dial(address).await;
    caller.say(AUDIO_8, 8_000, 1, 1).await;
    let mut session = opened(&mut sessions).await;
    server.shutdown.cancel();
    Caller::dial(address).await.hung_up().await;
    while !matches!(
        session.next().await,
        Some(Inbound::Request(Input::Farewell))
    ) {}
    session.say(1, 3);
    session.send(Outbound::HangUp(HangUpReason::Shutdown));
    caller.until(AUDIO_8, 1).await;
    caller.until(AUDIO_8, 1).await;
    caller.until(AUDIO_8, 1).await;
    caller.hung_up().await;
    drop(caller);
    let result = timeout(PATIENCE, &mut server.task).await;
    result
        .expect("in time")
        .expect("no panic")
        .expect("no error");
}

/// It was hung up on: its session opens a moment after the connection.
#[tokio::test]
async fn a_call_that_has_just_connected_goes_on_while_the_server_drains() {
    let settings = ServerSettings {
        drain_deadline: Duration::from_secs(3_600),
        ..limits(|limits| limits.open_within = PATIENCE)
    };
    let (factory, mut sessions) = by_hand();
    let (server, address) = Server::of_calls(settings, factory);
    let mut client = server.open(MEDIA).await;
    let mut caller = Caller::dial(address).await;
    caller.tag(AUDIO_8).await;
    server.shutdown.cancel();
    caller.say(AUDIO_8, 8_000, 1, 1).await;
    let session = opened(&mut sessions).await;
    session.say(3, 1);
    caller.until(AUDIO_8, 3).await;
    client.send_text(START).await;
    media_until(&mut client, "ANSWER").await;
}

#[tokio::test]
async fn a_stuck_call_is_hung_up_at_the_deadline() {
    let settings = ServerSettings {
        drain_deadline: Duration::from_millis(300),
        ..local()
    };
    let script = Script {
        stuck: true,
        ..Script::default()
    };
    let (server, address) = Server::of_calls(settings, scripted::factory(script));
    let mut caller = Caller::dial(address).await;
    caller.say(AUDIO_8, 8_000, 1, 1).await;
    while server.counters.sessions.load(Relaxed) == 0 {
        caller.tag(AUDIO_8).await;
    }
    server.shutdown.cancel();
    caller.hung_up().await;
}

/// A model that answers with six words of 200 ms each.
struct SixWords;

impl Llm for SixWords {
    fn name(&self) -> &str {
        "six words"
    }

    fn generate(&self, _: Prompt) -> LlmStream {
        let text = "one two three four five six.".into();
        let events = [LlmEvent::Speech { text }, LlmEvent::End];
        futures_util::stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_session_answers_a_call() {
    let sessions = live::sessions(live::without_models(Arc::new(SixWords)));
    let (_server, address) = Server::of_calls(local(), sessions);
    let mut caller = Caller::dial(address).await;
    caller.say(AUDIO_8, 8_000, 8_000, 40).await;
    caller.say(AUDIO_8, 8_000, 0, 60).await;
    let (mut spoken, mut quiet) = (0, 0);
    // Until a second of silence after 1.2 s of speech.
    while spoken < 55 || quiet < 50 {
        let (_, payload) = caller.frame().await.expect("open");
        let silent = payload.iter().all(|byte| *byte == 0);
        spoken += usize::from(!silent);
        quiet = if silent { quiet + 1 } else { 0 };
    }
    assert!((55..=65).contains(&spoken), "{spoken} frames of speech");
}

/// Media frames up to this text message. Marks are skipped.
async fn media_until(client: &mut Client, last: &str) -> Vec<Vec<u8>> {
    let mut media = vec![];
    loop {
        match client.message().await {
            Some(Message::Binary(bytes)) => media.push(bytes.to_vec()),
            Some(Message::Text(text)) if text.as_str() == last => return media,
            Some(Message::Text(text)) => assert!(text.contains("MARK_MEDIA"), "{text}"),
            other => panic!("unexpected: {other:?}"),
        }
    }
}

async fn media(client: &mut Client) -> Vec<u8> {
    match client.message().await {
        Some(Message::Binary(bytes)) => bytes.to_vec(),
        other => panic!("not media: {other:?}"),
    }
}

const MEDIA: &str = "/asterisk/media";
const START: &str = "MEDIA_START connection_id:media channel:WebSocket/media/0x1 \
                     channel_id:1761245643.1 format:ulaw optimal_frame_size:160 ptime:20";
const START_JSON: &str = r#"{"event":"MEDIA_START","connection_id":"media","format":"slin16",
    "channel":"WebSocket/media/0x1","optimal_frame_size":640,"ptime":20,"channel_variables":{}}"#;

#[tokio::test]
async fn chan_websocket_takes_a_spoken_turn_in_either_form() {
    let server = Server::start(Script::default()).await;
    let ulaw = |sample| Law::Mu.encode(&[sample; 160]);
    let linear = |sample: i16| sample.to_le_bytes().repeat(320);
    type Encode<'a> = &'a dyn Fn(i16) -> Vec<u8>;
    let forms: [(&str, &str, Encode); 2] = [
        (START, "ANSWER", &ulaw),
        (START_JSON, r#"{"command":"ANSWER"}"#, &linear),
    ];
    for (start, answer, encode) in forms {
        let mut client = server.open(MEDIA).await;
        client.send_text(start).await;
        assert_eq!(
            media_until(&mut client, answer).await,
            Vec::<Vec<u8>>::new()
        );
        for sample in [8_000, 0] {
            for _ in 0..25 {
                client.send_bytes(encode(sample)).await;
            }
        }
        for _ in 0..ANSWER_FRAMES {
            assert_eq!(media(&mut client).await, encode(4_000));
        }
    }
}

#[tokio::test]
async fn a_route_leads_a_call_to_its_agent() {
    let (engines, llm) = agents::billing_by("asterisk");
    let server = live::serve_with(local(), engines);
    let mut client = server.open(MEDIA).await;
    client.send_text(START).await;
    for sample in [[8_000; 40], [0; 40]].concat() {
        client.send_bytes(Law::Mu.encode(&[sample; 160])).await;
    }
    agents::reached_billing(&llm, "how are you").await;
}

#[tokio::test]
async fn chan_websocket_flushes_an_interrupted_answer() {
    let (factory, mut sessions) = by_hand();
    let (server, _) = Server::of_calls(local(), factory);
    let mut client = server.open(MEDIA).await;
    client.send_text(START).await;
    media_until(&mut client, "ANSWER").await;
    let mut session = opened(&mut sessions).await;
    let (before, after) = (
        Law::Mu.encode(&[1_000; 160]),
        Law::Mu.encode(&[-1_000; 160]),
    );
    session.say(1_000, 10);
    assert_eq!(media(&mut client).await, before);
    client.send_bytes(Law::Mu.encode(&[8_000; 160])).await;
    session.loud().await;
    session.say(1_000, 10);
    session.send(Outbound::Clear);
    session.say(-1_000, 10);
    session.send(Outbound::HangUp(HangUpReason::AgentEnded));
    let flushed = media_until(&mut client, "FLUSH_MEDIA").await;
    assert!(flushed.iter().all(|frame| *frame == before));
    assert_eq!(media_until(&mut client, "HANGUP").await, vec![after; 10]);
    assert_eq!(u16::from(client.close_frame().await.code), 1000);
}

#[tokio::test]
async fn chan_websocket_waits_while_asterisks_queue_is_full() {
    let (factory, mut sessions) = by_hand();
    let (server, _) = Server::of_calls(local(), factory);
    let mut client = server.open(MEDIA).await;
    client.send_text(START).await;
    media_until(&mut client, "ANSWER").await;
    let mut session = opened(&mut sessions).await;
    client.send_text("MEDIA_XOFF channel_id:1").await;
    // Control and media arrive in order, so the session has seen the full queue once it hears this.
    client.send_bytes(Law::Mu.encode(&[8_000; 160])).await;
    session.loud().await;
    session.say(1_000, 3);
    session.send(Outbound::Clear);
    session.say(-1_000, 3);
    assert!(media_until(&mut client, "FLUSH_MEDIA").await.is_empty());
    client.send_text("MEDIA_XON channel_id:1").await;
    for _ in 0..3 {
        assert_eq!(media(&mut client).await, Law::Mu.encode(&[-1_000; 160]));
    }
}

#[tokio::test]
async fn chan_websocket_marks_report_playout() {
    let (factory, mut sessions) = by_hand();
    let (server, _) = Server::of_calls(local(), factory);
    let mut client = server.open(MEDIA).await;
    // A busy Asterisk may send media before the start.
    client.send_bytes(Law::Mu.encode(&[0; 160])).await;
    client.send_text(START).await;
    media_until(&mut client, "ANSWER").await;
    let mut session = opened(&mut sessions).await;
    session.say(1_000, 10);
    assert_eq!(media_until(&mut client, "MARK_MEDIA 1/200").await.len(), 10);
    client.send_text("ERROR channel_id:1 error_text:odd").await;
    client.send_text("MEDIA_MARK_PROCESSED 1/200").await;
    let played = Input::Played {
        clause: ClauseId(1),
        until: Micros::from_ms(200),
    };
    match session.next().await {
        Some(Inbound::Request(told)) => assert_eq!(told, played),
        other => panic!("not what was played: {other:?}"),
    }
}

#[tokio::test]
async fn a_silent_chan_websocket_is_probed_with_get_status() {
    let settings = limits(|limits| limits.ping_every = Duration::from_millis(50));
    let server = Server::with(settings, Script::default()).await;
    let mut client = server.open(MEDIA).await;
    client.send_text(START).await;
    for expected in ["ANSWER", "GET_STATUS", "GET_STATUS"] {
        let next = timeout(PATIENCE, client.socket.next()).await;
        let message = next.expect("in time").expect("open").expect("a message");
        assert_eq!(message, Message::text(expected));
    }
}

#[tokio::test]
async fn invalid_chan_websocket_messages_close_with_the_reason() {
    let server = Server::start(Script::default()).await;
    for (start, code) in [
        ("MEDIA_START format:opus optimal_frame_size:0", 1003),
        ("MEDIA_START format:slin optimal_frame_size:3", 1007),
    ] {
        let mut client = server.open(MEDIA).await;
        client.send_text(start).await;
        let frame = client.close_frame().await;
        assert_eq!(u16::from(frame.code), code, "{start}: {frame}");
    }
    assert_eq!(server.counters.bad_clients.load(Relaxed), 2);
}

#[tokio::test]
async fn chan_websocket_presents_the_token_as_a_password() {
    let settings = ServerSettings {
        auth_token: Some("secret".into()),
        ..local()
    };
    let server = Server::with(settings, Script::default()).await;
    let with = async |value| {
        let header = [("authorization", value)];
        server.try_open(MEDIA, &header).await.err()
    };
    // asterisk:secret and asterisk:wrong
    assert_eq!(with("Basic YXN0ZXJpc2s6c2VjcmV0").await, None);
    assert_eq!(with("Basic YXN0ZXJpc2s6d3Jvbmc=").await, Some(401));
}

/// Measures the frame jitter of 20 concurrent calls with agents that speak all the time: `cargo
/// test --test wire how_even -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures"]
async fn how_even_the_frames_of_20_calls_are() {
    const CALLS: usize = 20;
    const FRAMES: u32 = 1_000;
    const FRAME: Duration = Duration::from_millis(20);
    let (factory, mut sessions) = by_hand();
    let (_server, address) = Server::of_calls(
        ServerSettings {
            max_sessions: CALLS,
            ..local()
        },
        factory,
    );
    let frame = Outbound::Audio {
        item: ItemId(1),
        clause: ClauseId(1),
        samples: vec![1; 160],
    };
    tokio::spawn(async move {
        while let Some(session) = sessions.recv().await {
            let frame = frame.clone();
            tokio::spawn(async move {
                session.say(1, 10);
                let mut beat = tokio::time::interval(FRAME);
                // To the end of the call.
                while session.outbound.try_send(frame.clone()).is_ok() {
                    beat.tick().await;
                }
            });
        }
    });
    let calls = join_all((0..CALLS).map(async |call| {
        // Staggers the calls.
        tokio::time::sleep(Duration::from_millis(7 * call as u64)).await;
        let mut caller = Caller::dial(address).await;
        caller.say(AUDIO_8, 8_000, 0, 1).await;
        caller.until(AUDIO_8, 1).await;
        let began = support::now();
        let (mut last, mut gaps, mut late) = (began, vec![], vec![]);
        for frame in 1..=FRAMES {
            assert_eq!(caller.tag(AUDIO_8).await, 1);
            let now = support::now();
            gaps.push((now - last).abs_diff(FRAME));
            late.push((now - began).abs_diff(FRAME * frame));
            last = now;
        }
        (gaps, late)
    }))
    .await;
    let (gaps, late): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    for (what, times) in [("between frames", gaps), ("from the beat", late)] {
        let mut times = times.concat();
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!(
            "{CALLS} calls, jitter {what}: p50 {:?}, p99 {:?}, worst {:?}",
            at(50),
            at(99),
            at(100)
        );
    }
}
