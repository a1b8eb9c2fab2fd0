//! Calls under a paused clock: a client, a network that loses, delays and reorders, the pump, and a scripted
//! session.

use super::call::{BadCall, End, Seat, broken};
use super::opus::{CLOCK, OpusDecoder, OpusEncoder};
use super::peer::client::{Client, Direction, Got};
use super::peer::{Identity, Peer};
use super::port::{Packet, Way, Wire};
use super::sideband::{EventSender, queue};
use crate::asr::Asr;
use crate::audio::{Resampler, to_f32, to_i16};
use crate::conversation::{
    ClauseId, Event, HangUpReason, Input, ItemId, Micros, ResponseStatus, Time, TurnId,
};
use crate::llm::TokenUsage;
use crate::metrics::Metrics;
use crate::session::{Inbound, Outbound, SessionHandle, SessionOptions};
use crate::transport::intake::IntakeLimits;
use crate::transport::pump::{Counters, PumpContext, SocketLimits};
use crate::transport::realtime::Realtime;
use crate::tts::Tts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

#[path = "../../../tests/common/steady.rs"]
mod steady;

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 8787);
const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 2], 40_000);

/// A client's frame: 20 ms.
const FRAME: Duration = Duration::from_millis(20);
const FRAME_TICKS: u64 = CLOCK as u64 / 50;

/// The session's samples in a frame of the user's audio.
const HEARD: usize = 320;

/// How a network treats packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Weather {
    /// In both directions.
    delay: Duration,
    /// On top of it, at random, which reorders.
    jitter: Duration,
    /// Of a thousand packets: of media, and of all kinds once the call is up.
    lost: u64,
}

/// Packets on their way, by the time of their arrival.
struct Network {
    weather: Weather,
    is_up: bool,
    random: u64,
    count: u64,
    on_its_way: BTreeMap<(Instant, u64), Vec<u8>>,
}

impl Network {
    fn new(weather: Weather, seed: u64) -> Self {
        Self {
            weather,
            is_up: false,
            random: seed,
            count: 0,
            on_its_way: BTreeMap::new(),
        }
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % sides
    }

    #[expect(clippy::disallowed_methods, reason = "the paused clock is read")]
    fn send(&mut self, bytes: &[u8]) {
        let is_media = matches!(bytes.first(), Some(128..192));
        let lost = self.dice(1_000) < self.weather.lost;
        if (is_media || self.is_up) && lost {
            return;
        }
        let jitter = self.weather.jitter.as_micros() as u64;
        let jitter = Duration::from_micros(self.dice(jitter.max(1)));
        let at = Instant::now() + self.weather.delay + jitter;
        self.count += 1;
        self.on_its_way.insert((at, self.count), bytes.to_vec());
    }

    fn next(&self) -> Option<Instant> {
        self.on_its_way.keys().next().map(|(at, _)| *at)
    }

    fn arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        let entry = self.on_its_way.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

/// The server's way out.
struct Downlink {
    network: Mutex<Network>,
    sent: Notify,
}

impl Wire for Downlink {
    fn send(&self, _: Way, to: SocketAddr, bytes: &[u8]) {
        assert_eq!(to, SocketAddr::from(CLIENT));
        self.network.lock().unwrap().send(bytes);
        self.sent.notify_one();
    }
}

/// A call with everything around it.
struct World {
    client: Client,
    up: Network,
    down: Arc<Downlink>,
    packets: mpsc::Sender<Packet>,
    joins: mpsc::Sender<EventSender>,
    requests: EventSender,
    hang_up: CancellationToken,
    context: PumpContext,
    metrics: Arc<Metrics>,
    heard: Option<mpsc::Receiver<Inbound>>,
    says: Option<mpsc::Sender<Outbound>>,
    call: JoinHandle<()>,
    /// The options with which the session opened.
    options: Arc<Mutex<Option<SessionOptions>>>,
    encoder: OpusEncoder,
    /// Frames that the client has spoken.
    spoken: u64,
    spoken_at: Instant,
    /// Received events.
    events: Vec<Value>,
    /// Received audio: when, RTP time, whether it is loud.
    audio: Vec<(Instant, u64, bool)>,
    decoder: OpusDecoder,
    is_open: bool,
    is_closed: bool,
}

#[expect(clippy::disallowed_methods, reason = "the paused clock is read")]
fn now() -> Instant {
    Instant::now()
}

impl World {
    fn new(weather: Weather, seed: u64) -> Self {
        Self::with_channels(weather, seed, &["oai-events"])
    }

    fn with_channels(weather: Weather, seed: u64, labels: &[&str]) -> Self {
        Self::with_lines(weather, seed, &[Direction::SendRecv], labels)
    }

    fn with_lines(weather: Weather, seed: u64, lines: &[Direction], labels: &[&str]) -> Self {
        let begins = now();
        let offered = Client::offer_lines(CLIENT.into(), begins.into_std(), lines, labels);
        Self::with_offer(weather, seed, offered, str::to_owned)
    }

    /// A call of a client with this offer, which gets the answer with these changes.
    fn with_offer(
        weather: Weather,
        seed: u64,
        (mut client, offer): (Client, String),
        changed: impl Fn(&str) -> String,
    ) -> Self {
        let begins = now();
        let identity = Identity::new().unwrap();
        let here = vec![SocketAddr::from(SERVER)];
        let answered = Peer::answer(&offer, &here, false, &identity, begins.into_std());
        let (peer, answer) = answered.unwrap();
        client.accept(&changed(&answer));
        let down = Arc::new(Downlink {
            network: Mutex::new(Network::new(weather, seed + 1)),
            sent: Notify::new(),
        });
        let (packets, receiver) = mpsc::channel(64);
        let (joins, joining) = mpsc::channel(64);
        let (requests, requested) = queue(64);
        let (hang_up, metrics) = (CancellationToken::new(), Arc::new(Metrics::default()));
        let seat = Seat {
            peer,
            packets: receiver,
            joins: joining,
            requests: requested,
            hang_up: hang_up.clone(),
            here,
            wire: down.clone(),
            metrics: metrics.clone(),
        };
        let (inbound, heard) = mpsc::channel(64);
        let (says, outbound) = mpsc::channel(64);
        let handle = Mutex::new(Some(SessionHandle {
            inbound,
            outbound,
            span: tracing::Span::none(),
        }));
        let options = Arc::new(Mutex::new(None));
        let opened = options.clone();
        let context = PumpContext {
            sessions: Arc::new(move |options| {
                *opened.lock().unwrap() = Some(options);
                Ok(handle.lock().unwrap().take().unwrap())
            }),
            limits: SocketLimits::default(),
            counters: Arc::<Counters>::default(),
            drain: CancellationToken::new(),
            farewell: CancellationToken::new(),
            stop: CancellationToken::new(),
        };
        let dialect = Box::new(Realtime::new(None, None, false).on_track());
        let call = tokio::spawn(seat.serve(dialect, IntakeLimits::LIVE, context.clone(), None));
        Self {
            client,
            up: Network::new(weather, seed),
            down,
            packets,
            joins,
            requests,
            hang_up,
            context,
            metrics,
            heard: Some(heard),
            says: Some(says),
            call,
            options,
            encoder: OpusEncoder::new().unwrap(),
            spoken: 0,
            spoken_at: begins,
            events: Vec::new(),
            audio: Vec::new(),
            decoder: OpusDecoder::new().unwrap(),
            is_open: false,
            is_closed: false,
        }
    }

    /// A call whose session is open.
    async fn open(weather: Weather, seed: u64) -> Self {
        let mut world = Self::new(weather, seed);
        world
            .pass(Duration::from_secs(5), |world| world.is_open)
            .await;
        assert!(world.is_open, "the call did not come up");
        world
            .pass(4 * weather.delay + Duration::from_millis(100), |_| false)
            .await;
        world.up.is_up = true;
        world.down.network.lock().unwrap().is_up = true;
        world
    }

    /// Lets time pass until `done`.
    async fn pass(&mut self, length: Duration, done: impl Fn(&Self) -> bool) {
        let end = now() + length;
        while now() < end && !done(self) {
            let arrival = self.down.network.lock().unwrap().next();
            let wakes = [
                self.up.next(),
                arrival,
                Some(Instant::from_std(self.client.wait())),
            ];
            let next = wakes.into_iter().flatten().fold(end, Instant::min);
            tokio::select! {
                () = sleep_until(next.max(now() + Duration::from_micros(100))) => self.step(),
                () = self.down.sent.notified() => {}
            }
        }
    }

    fn step(&mut self) {
        while let Some(bytes) = self.up.arrived(now()) {
            let packet = Packet {
                at: now().into_std(),
                way: Way::Udp,
                from: CLIENT.into(),
                bytes,
            };
            // The call may be over.
            let _ = self.packets.try_send(packet);
        }
        loop {
            let arrived = self.down.network.lock().unwrap().arrived(now());
            let Some(bytes) = arrived else { break };
            let got = self
                .client
                .step(now().into_std(), Some((SERVER.into(), &bytes)));
            self.got(got);
        }
        let got = self.client.step(now().into_std(), None);
        self.got(got);
    }

    fn got(&mut self, got: Vec<Got>) {
        for packet in std::mem::take(&mut self.client.sends) {
            self.up.send(&packet);
        }
        for got in got {
            match got {
                Got::Connected => {}
                Got::Opened => self.is_open = true,
                Got::Text(text) => self.events.push(serde_json::from_str(&text).unwrap()),
                Got::Audio(time, packet) => {
                    let heard = self.decoder.decode(&packet).unwrap();
                    let is_loud = heard.iter().any(|sample| sample.unsigned_abs() > 1_000);
                    self.audio.push((now(), time, is_loud));
                }
                Got::Closed => self.is_closed = true,
            }
        }
    }

    fn tell(&mut self, event: Value) {
        let got = self.client.tell(&event.to_string());
        self.got(got);
    }

    /// Sends a binary message over the channel of events.
    fn send_binary(&mut self, message: &[u8]) {
        let got = self.client.send(true, message);
        self.got(got);
    }

    /// Asserts that the session opens, and hears the client.
    async fn is_heard(&mut self) {
        self.pass(Duration::from_secs(5), |world| world.is_open)
            .await;
        self.speak(25, |_| true).await;
        self.pass(ms(100), |_| false).await;
        let (heard, _) = self.reached();
        assert!(heard.len() >= 20 * HEARD, "{}", heard.len());
        assert!(heard.iter().any(|sample| sample.unsigned_abs() > 2_000));
    }

    /// Speaks `frames` frames in real time, loud in those for which `is_loud` says so.
    async fn speak(&mut self, frames: u64, is_loud: impl Fn(u64) -> bool) {
        for _ in 0..frames {
            let level = if is_loud(self.spoken) { 8_000.0 } else { 0.0 };
            self.say(&tone(level)).await;
        }
    }

    /// Says a frame in real time.
    async fn say(&mut self, frame: &[i16]) {
        self.spoken_at = self.spoken_at.max(now());
        let packet = self.encoder.encode(frame).unwrap();
        let time = 77_000 + self.spoken * FRAME_TICKS;
        let got = self.client.speak(now().into_std(), time, packet);
        self.got(got);
        self.spoken += 1;
        self.spoken_at += FRAME;
        let left = self.spoken_at.saturating_duration_since(now());
        self.pass(left, |_| false).await;
    }

    /// The audio that has reached the session, and its requests.
    fn reached(&mut self) -> (Vec<i16>, Vec<Input>) {
        let (mut audio, mut requests) = (Vec::new(), Vec::new());
        let heard = self.heard.as_mut().unwrap();
        while let Ok(inbound) = heard.try_recv() {
            match inbound {
                Inbound::Audio(samples) => audio.extend(samples),
                Inbound::Request(Input::Played { .. }) => {}
                Inbound::Request(request) => requests.push(request),
                Inbound::Spoken { item, .. } => requests.push(*item),
            }
        }
        (audio, requests)
    }

    fn says(&self, outbound: Outbound) {
        self.says.as_ref().unwrap().try_send(outbound).unwrap();
    }

    fn happens(&self, event: Event) {
        let at = Time(0);
        self.says(Outbound::Event { at, event });
    }

    /// The agent begins an answer, up to its words.
    fn answers(&self) {
        self.happens(Event::ResponseStarted {
            turn: TurnId(1),
            requested: false,
            opens: false,
        });
        self.happens(Event::AgentItemStarted { item: ItemId(2) });
        self.happens(Event::AgentSpeech {
            item: ItemId(2),
            clause: ClauseId(3),
            text: "Nine o'clock.".into(),
        });
    }

    fn plays(&self, frames: usize) {
        for _ in 0..frames {
            self.says(Outbound::Audio {
                item: ItemId(2),
                clause: ClauseId(3),
                samples: tone(8_000.0),
            });
        }
    }

    fn done(&self, status: ResponseStatus) {
        self.happens(Event::AgentItemDone {
            item: ItemId(2),
            text: "Nine o'clock.".into(),
            interrupted: status == ResponseStatus::Interrupted,
        });
        self.happens(Event::ResponseDone {
            turn: TurnId(1),
            status,
            latency: Box::default(),
            usage: TokenUsage::default(),
        });
    }

    fn kinds(&self) -> Vec<&str> {
        let kinds = self.events.iter().map(|event| event["type"].as_str());
        kinds.map(|kind| kind.unwrap()).collect()
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let events = self.events.iter();
        events.filter(|event| event["type"] == kind).collect()
    }

    /// How many loud frames the client has got since `since`.
    fn loud_since(&self, since: Instant) -> usize {
        let audio = self.audio.iter();
        audio
            .filter(|(at, _, is_loud)| *is_loud && *at >= since)
            .count()
    }

    /// Waits until the call's task has ended.
    async fn ends(&mut self) {
        self.pass(Duration::from_secs(60), |world| world.call.is_finished())
            .await;
        assert!(self.call.is_finished());
    }
}

/// A frame of the agent's, of 440 Hz.
fn tone(level: f32) -> Vec<i16> {
    let angle = |at: usize| at as f32 * 440.0 / 24_000.0 * std::f32::consts::TAU;
    (0..480)
        .map(|at| (angle(at).sin() * level) as i16)
        .collect()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const CALM: Weather = Weather {
    delay: Duration::from_millis(10),
    jitter: Duration::ZERO,
    lost: 0,
};

const STORM: Weather = Weather {
    delay: Duration::from_millis(40),
    jitter: Duration::from_millis(40),
    lost: 50,
};

/// How long a client holds back a packet that may follow a missing one, at most.
const HELD: Duration = Duration::from_millis(60);

/// How long an event may take in a storm: what is lost is sent again after a second or more.
const AGAIN: Duration = Duration::from_secs(20);

/// A calm network and several storms, each with its seed.
fn networks() -> impl Iterator<Item = (Weather, u64)> {
    let storms = (2..10).map(|seed| (STORM, seed));
    std::iter::once((CALM, 1)).chain(storms)
}

#[tokio::test(start_paused = true)]
async fn the_session_opens_with_the_channel_and_the_client_is_told_first() {
    let mut world = World::open(CALM, 1).await;
    assert_eq!(world.kinds(), ["session.created"]);
    let options = world.options.lock().unwrap().take().unwrap();
    assert_eq!((options.input_rate, options.output_rate), (16_000, 24_000));
    world.tell(json!({"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}}));
    world.pass(ms(100), |_| false).await;
    assert_eq!(world.kinds(), ["session.created", "session.updated"]);
    let (_, requests) = world.reached();
    assert!(
        matches!(&requests[..], [Input::Configure(_)]),
        "{requests:?}"
    );
}

/// The sessions of clients that name their channel otherwise, as Microsoft's examples do, never opened.
#[tokio::test(start_paused = true)]
async fn events_go_over_a_channel_of_any_name_and_over_theirs_if_there_are_two() {
    for labels in [&["realtime-channel"][..], &["telemetry", "oai-events"]] {
        let mut world = World::with_channels(CALM, 1, labels);
        world
            .pass(Duration::from_secs(5), |world| world.is_open)
            .await;
        world.pass(ms(500), |_| false).await;
        assert_eq!(world.kinds(), ["session.created"], "{labels:?}");
        world.tell(json!({"type": "session.update", "session": {"type": "realtime"}}));
        world.pass(ms(100), |_| false).await;
        assert_eq!(world.kinds(), ["session.created", "session.updated"]);
    }
}

/// Nothing that was sent over the other channel is read on this one, so it begins with the session.
#[tokio::test(start_paused = true)]
async fn events_that_move_to_their_own_channel_begin_with_the_session_and_go_on() {
    let mut world = World::with_channels(CALM, 1, &["telemetry"]);
    world
        .pass(Duration::from_secs(5), |world| world.is_open)
        .await;
    world.pass(ms(100), |_| false).await;
    assert_eq!(world.kinds(), ["session.created"]);
    let got = world.client.open_channel("oai-events");
    world.got(got);
    world.pass(ms(500), |_| false).await;
    assert_eq!(world.kinds(), ["session.created"; 2]);
    world.tell(json!({"type": "session.update", "session": {"type": "realtime"}}));
    world.pass(ms(100), |_| false).await;
    assert_eq!(world.kinds()[2..], ["session.updated"]);
    assert!(!world.call.is_finished());
}

/// Its greeting waited half a second for an update that could not come.
#[tokio::test(start_paused = true)]
async fn a_call_without_events_opens_at_once_unless_a_second_client_may_update_it() {
    for is_attended in [false, true] {
        let mut world = World::with_channels(CALM, 1, &[]);
        let (member, _events) = queue(64);
        if is_attended {
            world.joins.try_send(member).unwrap();
        }
        let is_open = |world: &World| world.options.lock().unwrap().is_some();
        world.pass(Duration::from_secs(5), is_open).await;
        assert!(is_open(&world), "the call did not come up");
        world.pass(ms(100), |_| false).await;
        let opens =
            |request: &Input| matches!(request, Input::Configure(set) if set.releases_opening);
        assert_eq!(world.reached().1.iter().any(opens), !is_attended);
        let update = json!({"type": "session.update", "session": {"type": "realtime"}});
        assert!(world.requests.send(update.to_string()));
        world.pass(ms(100), |_| false).await;
        assert_eq!(world.reached().1.iter().any(opens), is_attended);
    }
}

/// The first frame for a line on which the client takes no audio broke the connection.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_audio_on_a_line_is_not_cut_off() {
    use Direction::{Inactive, RecvOnly, SendOnly};
    for lines in [&[SendOnly][..], &[SendOnly, RecvOnly], &[Inactive]] {
        let mut world = World::with_lines(CALM, 1, lines, &["oai-events"]);
        world
            .pass(Duration::from_secs(5), |world| world.is_open)
            .await;
        world.pass(ms(100), |_| false).await;
        let began = now();
        world.answers();
        world.plays(10);
        match lines[0] {
            SendOnly => world.speak(25, |_| true).await,
            _ => world.pass(ms(500), |_| false).await,
        }
        world.pass(ms(100), |_| false).await;
        assert!(!world.call.is_finished(), "{lines:?}");
        let (heard, _) = world.reached();
        let is_loud = heard.iter().any(|sample| sample.unsigned_abs() > 2_000);
        assert_eq!(is_loud, lines[0] == SendOnly, "{lines:?}");
        let speaks = world.loud_since(began) >= 10;
        assert_eq!(speaks, lines.contains(&RecvOnly), "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_names_a_stream_for_the_track() {
    let (_, offer) = Client::offer(CLIENT.into(), now().into_std());
    let offer = offer.replace("a=msid:", "a=ignored:");
    let identity = Identity::new().unwrap();
    let here = [SocketAddr::from(SERVER)];
    let answer = |offer: &str| {
        Peer::answer(offer, &here, true, &identity, now().into_std()).map(|(_, answer)| answer)
    };
    // As the official SDK for browsers offers its track: without a stream.
    let bare = offer.replace("a=sendrecv", "a=msid:- 1234\r\na=sendrecv");
    let answer_to_bare = answer(&bare).unwrap();
    let msid = answer_to_bare
        .lines()
        .find_map(|line| line.strip_prefix("a=msid:"));
    let stream = msid.and_then(|msid| msid.split(' ').next()).unwrap();
    assert!(stream.len() > 1, "{answer_to_bare}");
    for line in ["a=ice-lite", "opus/48000/2", "192.0.2.1 8787 typ host"] {
        assert!(answer_to_bare.contains(line), "{line}: {answer_to_bare}");
    }
    for bad in ["", "v=0", "hello", &offer.replace("m=audio", "m=video")] {
        assert!(answer(bad).is_err(), "{bad}");
    }
}

/// The section had no codec, for which aiortc does not take the answer.
#[tokio::test(start_paused = true)]
async fn video_is_answered_with_its_codecs_and_no_direction() {
    let (_, offer) = Client::offer(CLIENT.into(), now().into_std());
    let group = offer
        .lines()
        .find(|line| line.starts_with("a=group:BUNDLE"));
    let group = group.unwrap();
    let video = "m=video 9 UDP/TLS/RTP/SAVPF 97 98\r\nc=IN IP4 0.0.0.0\r\na=mid:seen\r\na=sendrecv\r\n\
                 a=rtcp-mux\r\na=rtpmap:97 VP8/90000\r\na=rtpmap:98 rtx/90000\r\na=fmtp:98 apt=97\r\n";
    let offer = offer.replace(group, &format!("{group} seen")) + video;
    let identity = Identity::new().unwrap();
    let here = [SocketAddr::from(SERVER)];
    let answered = Peer::answer(&offer, &here, false, &identity, now().into_std());
    let (_, answer) = answered.unwrap();
    let (before, section) = answer.split_once("m=video ").unwrap();
    assert!(
        section.starts_with("9 UDP/TLS/RTP/SAVPF 97 98\r\n"),
        "{section}"
    );
    let lines: Vec<&str> = section.lines().collect();
    for line in [
        "a=mid:seen",
        "a=rtpmap:97 VP8/90000",
        "a=rtpmap:98 rtx/90000",
        "a=fmtp:98 apt=97",
        "a=inactive",
    ] {
        assert_eq!(
            lines.iter().filter(|other| **other == line).count(),
            1,
            "{line}: {section}"
        );
    }
    assert!(
        lines.iter().any(|line| line.starts_with("a=ice-ufrag:")),
        "{section}"
    );
    for other in ["a=sendrecv", "a=ssrc", "a=msid"] {
        assert!(!section.contains(other), "{other}: {section}");
    }
    assert!(before.contains(&format!("{group} seen\r\n")), "{before}");
    assert!(
        before.contains("a=sendrecv") && before.contains("opus/48000/2"),
        "{before}"
    );
}

/// The offer of Espressif's esp-webrtc-solution: an older protocol, and the connection behind the attributes.
const OFFER_OF_A_DEVICE: &str = "v=0\r\n\
o=- 5512345678901234567 2 IN IP4 0.0.0.0\r\n\
s=-\r\n\
t=0 0\r\n\
a=msid-semantic: esp-webrtc\r\n\
a=group:BUNDLE 0 1\r\n\
m=audio 9 UDP/TLS/RTP/SAVP 111\r\n\
a=rtpmap:111 opus/48000/2\r\n\
a=ssrc:6 cname:webrtc-opus\r\n\
a=ssrc:6 msid:esp_stream a0\r\n\
a=mid:0\r\n\
a=msid:esp_stream a0\r\n\
c=IN IP4 0.0.0.0\r\n\
a=rtcp-mux\r\n\
a=sendrecv\r\n\
a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n\
a=setup:passive\r\n\
a=ice-ufrag:abcd\r\n\
a=ice-pwd:abcdefghijklmnopqrstuvwx\r\n\
a=candidate:0 1 UDP 2130253311 192.0.2.2 40000 typ host\r\n\
m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n\
a=mid:1\r\n\
a=sctp-port:5000\r\n\
c=IN IP4 0.0.0.0\r\n\
a=max-message-size:262144\r\n";

/// It was refused, and so was one with a title or two bandwidths.
#[tokio::test(start_paused = true)]
async fn an_offer_with_savp_and_lines_in_another_order_is_answered_with_its_protocol() {
    let identity = Identity::new().unwrap();
    let here = [SocketAddr::from(SERVER)];
    let described = "SAVP 111\r\ni=A microphone\r\nb=AS:40\r\nb=TIAS:40000\r\n";
    let described = OFFER_OF_A_DEVICE.replace("SAVP 111\r\n", described);
    for offer in [OFFER_OF_A_DEVICE, &described] {
        let answered = Peer::answer(offer, &here, false, &identity, now().into_std());
        let (peer, answer) = answered.unwrap();
        assert!(peer.wants_events());
        let lines: Vec<&str> = answer.lines().collect();
        for line in [
            "a=group:BUNDLE 0 1",
            "m=audio 9 UDP/TLS/RTP/SAVP 111",
            "a=mid:0",
            "a=rtpmap:111 opus/48000/2",
            "a=sendrecv",
            "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
            "a=mid:1",
            "a=sctp-port:5000",
        ] {
            assert!(lines.contains(&line), "{line}: {answer}");
        }
    }
}

/// The group named the sections in another order, and a section that the client had rejected.
#[tokio::test(start_paused = true)]
async fn the_answers_group_names_the_sections_in_order_without_those_that_the_client_rejects() {
    let (_, offer) = Client::offer(CLIENT.into(), now().into_std());
    let group = offer
        .lines()
        .find(|line| line.starts_with("a=group:BUNDLE"));
    let group = group.unwrap();
    let (audio, events) = group.rsplit_once(' ').unwrap();
    let identity = Identity::new().unwrap();
    let here = [SocketAddr::from(SERVER)];
    for (port, named) in [
        ("9", format!("{audio} seen {events}")),
        ("0", group.to_owned()),
    ] {
        let video = format!(
            "m=video {port} UDP/TLS/RTP/SAVPF 97\r\nc=IN IP4 0.0.0.0\r\na=mid:seen\r\na=inactive\r\n\
             a=rtcp-mux\r\na=rtpmap:97 VP8/90000\r\nm=application"
        );
        let offer = offer.replace("m=application", &video);
        let offer = offer.replace(group, &named);
        let answered = Peer::answer(&offer, &here, false, &identity, now().into_std());
        let (_, answer) = answered.unwrap();
        let line = answer
            .lines()
            .find(|line| line.starts_with("a=group:BUNDLE"));
        assert_eq!(line, Some(&*named), "{answer}");
        let section = format!("m=video {port} UDP/TLS/RTP/SAVPF ");
        assert_eq!(answer.matches(&section).count(), 1, "{answer}");
    }
}

/// An SDP with other names for its sections.
fn renamed(sdp: &str, name: impl Fn(&str) -> String) -> String {
    let lines = sdp.lines().map(|line| {
        if let Some(mid) = line.strip_prefix("a=mid:") {
            return format!("a=mid:{}", name(mid));
        }
        let Some(group) = line.strip_prefix("a=group:BUNDLE ") else {
            return line.to_owned();
        };
        let names: Vec<String> = group.split(' ').map(&name).collect();
        format!("a=group:BUNDLE {}", names.join(" "))
    });
    lines.collect::<Vec<_>>().join("\r\n") + "\r\n"
}

/// Everything but letters and digits was replaced in them, and they were cut at 16 bytes.
#[tokio::test(start_paused = true)]
async fn sections_keep_the_names_of_the_offer_and_both_sides_are_heard() {
    const DEVICE: &str = "the-device-of-mine-";
    let (client, offer) = Client::offer(CLIENT.into(), now().into_std());
    assert!(offer.contains("sdes:mid"));
    let offer = renamed(&offer, |mid| format!("{DEVICE}{mid}"));
    let mut world = World::with_offer(CALM, 1, (client, offer), |answer| {
        assert!(
            !answer.contains("sdes:mid"),
            "packets cannot carry them: {answer}"
        );
        renamed(answer, |mid| mid.strip_prefix(DEVICE).unwrap().to_owned())
    });
    world.is_heard().await;
    let began = now();
    world.answers();
    world.plays(10);
    world.pass(ms(500), |_| false).await;
    assert!(world.loud_since(began) >= 10);
}

/// Their packets were dropped. Somebody else's must not take their place.
#[tokio::test(start_paused = true)]
async fn a_client_that_announces_no_source_and_names_no_section_in_its_packets_is_heard() {
    let (client, offer) = Client::offer(CLIENT.into(), now().into_std());
    assert!(offer.contains("a=rtpmap:111 opus/48000/2"));
    let is_kept = |line: &&str| !line.starts_with("a=ssrc:") && !line.contains("sdes:mid");
    let bare: Vec<&str> = offer.lines().filter(is_kept).collect();
    assert!(bare.len() < offer.lines().count());
    let bare = bare.join("\r\n") + "\r\n";
    let mut world = World::with_offer(CALM, 1, (client, bare), str::to_owned);
    world
        .pass(Duration::from_secs(5), |world| world.is_open)
        .await;
    let mut forged = [7u8; 60];
    forged[..4].copy_from_slice(&[0x80, 111, 0, 1]);
    world.up.send(&forged);
    world.pass(ms(50), |_| false).await;
    world.is_heard().await;
    world.up.send(&forged);
    world.is_heard().await;
}

#[test]
fn an_error_that_names_a_certificate_says_which_ones_work() {
    let said = |error: &str| match broken(error) {
        End::Bad(BadCall::Broken(said)) => said,
        end => panic!("{end:?}"),
    };
    let told = said("certificate error: no client certificate received");
    assert!(told.contains("RSA") && told.contains("ECDSA P-256 or P-384"));
    assert_eq!(said("the network is down"), "the network is down");
}

#[tokio::test(start_paused = true)]
async fn positions_in_the_users_audio_are_exact_whatever_the_network_loses() {
    for (weather, seed) in [(CALM, 1), (STORM, 2), (STORM, 3), (STORM, 4)] {
        let mut world = World::open(weather, seed).await;
        // A burst of 200 ms in every second.
        let bursts = |frame: u64| frame % 50 < 10;
        let mut heard = Vec::new();
        let mut rounds = 0;
        while rounds < 20 {
            world.speak(25, bursts).await;
            heard.extend(world.reached().0);
            rounds += 1;
        }
        // The last packets must arrive to show how long it was.
        world.up.weather.lost = 0;
        world.speak(5, bursts).await;
        world.pass(ms(300), |_| false).await;
        heard.extend(world.reached().0);
        let spoken = world.spoken as usize * HEARD;
        // Only what was lost before the first packet arrived is not known.
        let missing = spoken - heard.len();
        assert_eq!(missing % HEARD, 0);
        assert!(missing <= 2 * HEARD, "{missing}");
        let is_loud = |window: &[i16]| window.iter().any(|sample| sample.unsigned_abs() > 2_000);
        let loud: Vec<bool> = heard.chunks(HEARD).map(is_loud).collect();
        for second in 1..10 {
            let begins = second * 50 - missing / HEARD;
            let middle = loud[begins + 2..begins + 9]
                .iter()
                .filter(|loud| **loud)
                .count();
            assert!(middle >= 5, "{weather:?} {second}: {loud:?}");
            let silence = loud[begins + 20..begins + 48]
                .iter()
                .filter(|loud| **loud)
                .count();
            assert_eq!(silence, 0, "{weather:?} {second}: {loud:?}");
        }
        assert_eq!(world.context.counters.audio_in_dropped.load(Relaxed), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_leaves_every_20_ms_and_silence_when_the_agent_is_quiet() {
    let mut world = World::open(CALM, 1).await;
    world.audio.clear();
    world.pass(ms(1_000), |_| false).await;
    world.answers();
    world.plays(10);
    world.pass(ms(1_000), |_| false).await;
    assert!(
        (99..=101).contains(&world.audio.len()),
        "{}",
        world.audio.len()
    );
    for pair in world.audio.windows(2) {
        assert_eq!(pair[1].1 - pair[0].1, FRAME_TICKS);
        let apart = pair[1].0 - pair[0].0;
        assert!((ms(18)..=ms(22)).contains(&apart), "{apart:?}");
    }
    let loud = world.audio.iter().filter(|(_, _, is_loud)| *is_loud);
    assert!((10..=11).contains(&loud.count()));
}

#[tokio::test(start_paused = true)]
async fn playback_is_told_from_its_first_frame_to_its_last() {
    for (weather, seed) in networks() {
        let mut world = World::open(weather, seed).await;
        world.events.clear();
        world.answers();
        world.plays(10);
        world.done(ResponseStatus::Completed);
        let stopped = |world: &World| world.kinds().contains(&"output_audio_buffer.stopped");
        if weather == CALM {
            world.pass(ms(100), |_| false).await;
            assert!(world.kinds().contains(&"response.done"));
            assert!(!stopped(&world));
            world.pass(ms(300), stopped).await;
        }
        world.pass(AGAIN, stopped).await;
        is_told_once(&world);
    }
}

/// An answer's playback was told in the protocol's order, with the answer's id.
fn is_told_once(world: &World) {
    let kinds = world.kinds();
    let at = |kind: &str| {
        let at = kinds.iter().position(|other| *other == kind);
        at.unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
    };
    assert!(at("response.content_part.added") < at("output_audio_buffer.started"));
    assert!(at("output_audio_buffer.started") < at("response.done"));
    assert!(at("response.done") < at("output_audio_buffer.stopped"));
    assert!(kinds.contains(&"response.output_audio_transcript.delta"));
    assert!(!kinds.contains(&"response.output_audio.delta"), "{kinds:?}");
    let id = &world.of_kind("response.created")[0]["response"]["id"];
    for kind in ["output_audio_buffer.started", "output_audio_buffer.stopped"] {
        let told: Vec<_> = world
            .of_kind(kind)
            .iter()
            .map(|event| &event["response_id"])
            .collect();
        assert_eq!(told, [id]);
    }
}

/// The edges of clauses that were told: kind, clause, length of the clause before it in ms, RTP time.
fn edges(world: &World) -> Vec<(&str, u64, u64, u64)> {
    let told = world.of_kind("undertone.playout").into_iter();
    told.map(|event| {
        let number = |field: &str| event[field].as_u64().unwrap();
        let kind = event["kind"].as_str().unwrap();
        let of = [
            number("clause"),
            number("audio_ms"),
            number("rtp_timestamp"),
        ];
        (kind, of[0], of[1], of[2])
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn clients_with_vendor_events_learn_where_a_clause_is_on_the_track() {
    for dropped in [false, true] {
        let mut world = World::open(CALM, 1).await;
        let vendor = json!({"type": "realtime", "undertone": {"events": true}});
        world.tell(json!({"type": "session.update", "session": vendor}));
        world.pass(ms(100), |_| false).await;
        world.events.clear();
        world.audio.clear();
        world.answers();
        world.plays(10);
        if dropped {
            world.pass(ms(100), |_| false).await;
            world.says(Outbound::Clear);
        }
        world.done(ResponseStatus::Completed);
        world.pass(ms(500), |_| false).await;
        let delta = world.of_kind("response.output_audio_transcript.delta")[0];
        assert_eq!(delta["undertone_clause"], 3);
        let told = edges(&world);
        let [(first, 3, 0, from), (last, 3, length, to)] = told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(first, "started");
        assert_eq!(last, if dropped { "cleared" } else { "ended" });
        assert_eq!(to - from, length * 48);
        assert!(
            if dropped { length < 200 } else { length == 200 },
            "{length}"
        );
        let heard = world.audio.iter().find(|(_, _, is_loud)| *is_loud);
        assert_eq!(heard.unwrap().1, from, "the first packet with the clause");
    }
    let mut world = World::open(CALM, 1).await;
    world.answers();
    world.plays(10);
    world.pass(ms(500), |_| false).await;
    assert_eq!(edges(&world), [], "other clients are not told");
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_empties_the_line_and_truncates_the_item() {
    for (weather, seed) in networks() {
        for after_done in [false, true] {
            barges_in(weather, seed, after_done).await;
        }
    }
}

async fn barges_in(weather: Weather, seed: u64, after_done: bool) {
    let mut world = World::open(weather, seed).await;
    world.answers();
    world.plays(20);
    if after_done {
        world.done(ResponseStatus::Completed);
    }
    world.pass(ms(200), |_| false).await;
    assert!(weather != CALM || world.loud_since(now() - ms(100)) > 3);
    let events = world.events.len();
    world.says(Outbound::Clear);
    match after_done {
        true => world.happens(Event::ItemTruncated {
            item: ItemId(2),
            heard: Micros::from_ms(190),
            text: "Nine".into(),
        }),
        false => world.done(ResponseStatus::Interrupted),
    }
    let cleared = now();
    let truncated = "conversation.item.truncated";
    world.pass(ms(500), |_| false).await;
    // One frame may be under way, and the codec rings for another.
    let held = if weather == CALM { ms(0) } else { HELD };
    let under_way = weather.delay + weather.jitter + held;
    assert!(world.loud_since(cleared + under_way) <= 2);
    world
        .pass(AGAIN, |world| !world.of_kind(truncated).is_empty())
        .await;
    world.events.drain(..events);
    let kinds = world.kinds();
    let id = |kind: &str| world.of_kind(kind)[0]["response_id"].clone();
    assert!(id("output_audio_buffer.cleared").is_string(), "{kinds:?}");
    assert!(!kinds.contains(&"output_audio_buffer.stopped"), "{kinds:?}");
    let truncated = world.of_kind(truncated);
    assert_eq!(truncated.len(), 1, "{kinds:?}");
    let heard = truncated[0]["audio_end_ms"].as_u64().unwrap();
    assert!((160..=220).contains(&heard), "{weather:?} {seed}: {heard}");
}

#[tokio::test(start_paused = true)]
async fn the_client_clears_audio_also_after_the_response_is_done() {
    let mut world = World::open(CALM, 1).await;
    world.answers();
    world.plays(20);
    world.done(ResponseStatus::Completed);
    world.pass(ms(200), |_| false).await;
    world.reached();
    world.tell(json!({"type": "output_audio_buffer.clear"}));
    world.pass(ms(200), |_| false).await;
    let id = world.of_kind("response.created")[0]["response"]["id"].clone();
    assert_eq!(
        world.of_kind("output_audio_buffer.cleared")[0]["response_id"],
        id
    );
    let (_, requests) = world.reached();
    let [
        Input::Truncate {
            item: ItemId(2),
            heard,
        },
    ] = requests[..]
    else {
        panic!("{requests:?}");
    };
    assert!((160..=240).contains(&heard.as_ms()), "{heard:?}");
    let quiet = now();
    world.pass(ms(300), |_| false).await;
    assert_eq!(world.loud_since(quiet), 0);
    // Again, with nothing left: the last response's id.
    world.tell(json!({"type": "output_audio_buffer.clear"}));
    world.pass(ms(100), |_| false).await;
    assert_eq!(
        world.of_kind("output_audio_buffer.cleared")[1]["response_id"],
        id
    );
    assert_eq!(world.of_kind("error"), Vec::<&Value>::new());
}

#[tokio::test(start_paused = true)]
async fn audio_in_events_is_refused() {
    let mut world = World::open(CALM, 1).await;
    world.tell(json!({"type": "input_audio_buffer.append", "audio": "AAAA", "event_id": "mine"}));
    world.pass(ms(100), |_| false).await;
    let error = &world.of_kind("error")[0]["error"];
    assert_eq!(error["code"], "invalid_event_for_transport");
    assert_eq!(error["event_id"], "mine");
    assert!(world.reached().0.is_empty());
    // By hand, what came over the track is committed.
    world.speak(20, |_| true).await;
    world.tell(json!({"type": "input_audio_buffer.commit"}));
    world.pass(ms(100), |_| false).await;
    let (audio, requests) = world.reached();
    assert!(audio.len() >= 19 * HEARD);
    assert_eq!(requests, [Input::CommitAudio]);
    assert_eq!(world.of_kind("error").len(), 1);
}

/// They were taken for audio, and refused.
#[tokio::test(start_paused = true)]
async fn events_in_binary_messages_are_read_and_what_is_no_text_is_refused() {
    let mut world = World::open(CALM, 1).await;
    let event = json!({"type": "session.update", "session": {"type": "realtime"}});
    world.send_binary(event.to_string().as_bytes());
    world.pass(ms(100), |_| false).await;
    assert_eq!(world.kinds(), ["session.created", "session.updated"]);
    world.send_binary(&[0xff, 0xfe, 0, 1]);
    world.pass(ms(100), |_| false).await;
    let errors = world.of_kind("error");
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0]["error"]["code"], "invalid_event_for_transport");
    assert!(world.reached().0.is_empty());
}

fn item(text: &str) -> Value {
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    json!({"type": "conversation.item.create", "item": item})
}

/// All behind the 64th that waited for the session were refused.
#[tokio::test(start_paused = true)]
async fn a_history_that_clients_restore_at_once_is_added_whole() {
    const ITEMS: usize = 150;
    const OTHERS: usize = 30;
    let mut world = World::open(CALM, 1).await;
    for n in 0..ITEMS {
        world.tell(item(&format!("It is {n}.")));
    }
    // The session has answered none of them when a second client adds its own.
    world.pass(Duration::from_secs(2), |_| false).await;
    for n in 0..OTHERS {
        let event = item(&format!("It was {n}.")).to_string();
        assert!(world.requests.send(event));
    }
    let mut added = Vec::new();
    for _ in 0..50 {
        world.pass(ms(100), |_| false).await;
        for request in world.reached().1 {
            let Input::AddItem { id: Some(id), .. } = request else {
                panic!("{request:?}");
            };
            world.happens(Event::ItemAdded { item: id });
            added.push(id);
        }
    }
    let all: Vec<_> = (1..).map(ItemId::of_client).take(ITEMS + OTHERS).collect();
    assert_eq!(added, all);
    let told = |world: &World| world.of_kind("conversation.item.added").len();
    world
        .pass(AGAIN, |world| told(world) == ITEMS + OTHERS)
        .await;
    assert_eq!(told(&world), ITEMS + OTHERS);
    assert_eq!(world.of_kind("error"), Vec::<&Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_no_answer_is_cut_off() {
    let mut world = World::open(CALM, 1).await;
    let mut told = 0;
    while !world.call.is_finished() {
        assert!(told < 2_000, "it is never cut off");
        world.tell(item("Hello."));
        told += 1;
        world.pass(ms(5), |world| world.call.is_finished()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_session_learns_when_its_audio_was_heard() {
    let mut world = World::open(
        Weather {
            delay: ms(60),
            ..CALM
        },
        1,
    )
    .await;
    // RTCP reports are some seconds apart.
    world.speak(500, |_| false).await;
    world.reached();
    world.answers();
    let began = now();
    let mut reports = Vec::new();
    for _ in 0..50 {
        world.plays(1);
        world.pass(FRAME, |_| false).await;
        let heard = world.heard.as_mut().unwrap();
        while let Ok(inbound) = heard.try_recv() {
            if let Inbound::Request(Input::Played {
                clause: ClauseId(3),
                until,
            }) = inbound
            {
                reports.push((now() - began, Duration::from_micros(until.0)));
            }
        }
    }
    assert!(reports.len() >= 5, "{reports:?}");
    for (at, until) in &reports {
        let late = at.saturating_sub(*until);
        assert!((ms(30)..ms(150)).contains(&late), "{reports:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_words_are_played_before_the_call_is_closed() {
    for (weather, seed) in networks() {
        let mut world = World::open(weather, seed).await;
        world.answers();
        world.plays(20);
        world.done(ResponseStatus::Completed);
        world.says(Outbound::HangUp(HangUpReason::AgentEnded));
        world.ends().await;
        world.pass(ms(200), |_| false).await;
        let least = if weather == CALM { 20 } else { 14 };
        let loud = world.loud_since(now() - Duration::from_secs(60));
        assert!(loud >= least, "{weather:?} {seed}: {loud}");
        // The client may not learn it from what is sent once.
        if weather == CALM {
            assert!(world.is_closed);
            assert!(world.kinds().contains(&"output_audio_buffer.stopped"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_up_and_leaving_end_the_session() {
    for (weather, seed) in networks() {
        for by_id in [true, false] {
            let mut world = World::open(weather, seed).await;
            match by_id {
                true => world.hang_up.cancel(),
                false => {
                    let got = world.client.close();
                    world.got(got);
                }
            }
            world.ends().await;
            let heard = world.heard.as_mut().unwrap();
            while heard.try_recv().is_ok() {}
            assert!(heard.is_closed(), "the session goes on");
            world.pass(ms(200), |_| false).await;
            if weather == CALM {
                assert_eq!(world.is_closed, by_id, "who is left is told");
            }
            let connected = "webrtc_calls_total{outcome=\"connected\"} 1";
            assert!(world.metrics.render().contains(connected));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_the_session_finish_and_a_stop_does_not() {
    let mut world = World::open(CALM, 1).await;
    world.context.drain.cancel();
    world.pass(ms(100), |_| false).await;
    assert_eq!(world.reached().1, [Input::Drain]);
    assert!(!world.call.is_finished());
    world.says(Outbound::HangUp(HangUpReason::Shutdown));
    world.ends().await;
    let mut world = World::open(CALM, 1).await;
    world.context.stop.cancel();
    world.pass(ms(100), |world| world.call.is_finished()).await;
    assert!(world.call.is_finished());
    world.pass(ms(100), |_| false).await;
    assert!(world.is_closed);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_connects_loses_its_place_and_is_counted() {
    let dead = Weather {
        delay: Duration::from_secs(3_600),
        ..CALM
    };
    let mut world = World::new(dead, 1);
    let began = now();
    world.ends().await;
    let took = now() - began;
    assert!((ms(10_000)..ms(10_500)).contains(&took), "{took:?}");
    assert!(world.options.lock().unwrap().is_none());
    let never = "webrtc_calls_total{outcome=\"never_connected\"} 1";
    assert!(world.metrics.render().contains(never));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_is_freed() {
    let mut world = World::open(CALM, 1).await;
    world.up.weather.delay = Duration::from_secs(3_600);
    let began = now();
    world.ends().await;
    assert!((now() - began) < Duration::from_secs(32));
    assert_eq!(world.context.counters.vanished_clients.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_fails_ends_the_call() {
    let mut world = World::open(CALM, 1).await;
    (world.heard, world.says) = (None, None);
    world.ends().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_too_long_for_the_client_is_dropped_and_the_next_one_arrives() {
    let mut world = World::open(CALM, 1).await;
    world.events.clear();
    world.happens(Event::UserItem {
        item: ItemId(8),
        text: "x".repeat(300_000),
        spoken: false,
    });
    world.happens(Event::UserItem {
        item: ItemId(9),
        text: "y".repeat(100_000),
        spoken: false,
    });
    world.pass(Duration::from_secs(2), |_| false).await;
    let told = serde_json::to_string(&world.events).unwrap();
    assert!(!told.contains("xxx") && told.contains("yyy"));
}

#[tokio::test(start_paused = true)]
async fn a_second_client_gets_the_events_and_sends_its_own() {
    let mut world = World::open(CALM, 1).await;
    let (member, mut events) = queue(64);
    world.joins.try_send(member).unwrap();
    world.pass(ms(50), |_| false).await;
    let update = json!({"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}});
    assert!(world.requests.send(update.to_string()));
    world.pass(ms(50), |_| false).await;
    world.answers();
    world.pass(ms(50), |_| false).await;
    let mut told = Vec::new();
    while let Ok(waiting) = events.try_recv() {
        told.push(serde_json::from_str::<Value>(&waiting.event).unwrap());
    }
    assert_eq!(told[0]["type"], "session.created");
    assert_eq!(told[0]["session"]["id"], world.events[0]["session"]["id"]);
    assert_eq!(told[1..], world.events[1..], "both get the same");
    assert_eq!(told[1]["type"], "session.updated");
    assert!(matches!(world.reached().1[..], [Input::Configure(_)]));
    world.hang_up.cancel();
    world.ends().await;
    assert!(events.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_second_client_that_does_not_read_is_left_out_and_the_call_goes_on() {
    let mut world = World::open(CALM, 1).await;
    let (member, mut events) = queue(2);
    world.joins.try_send(member).unwrap();
    world.pass(ms(50), |_| false).await;
    world.answers();
    world.done(ResponseStatus::Completed);
    world.pass(ms(200), |_| false).await;
    assert!(world.kinds().contains(&"response.done"));
    while events.try_recv().is_ok() {}
    assert!(events.is_closed());
}

#[tokio::test(start_paused = true)]
async fn requests_of_second_clients_wait_while_long_echoes_wait_for_the_client() {
    const UPDATES: usize = 20;
    let mut world = World::open(CALM, 1).await;
    let (member, mut events) = queue(64);
    world.joins.try_send(member).unwrap();
    world.pass(ms(50), |_| false).await;
    assert!(events.try_recv().is_ok(), "it is welcome");
    let update = |session: Value| json!({"type": "session.update", "session": session}).to_string();
    let long = json!({"instructions": "x".repeat(200_000)});
    assert!(world.requests.send(update(long)));
    for _ in 1..UPDATES {
        assert!(world.requests.send(update(json!({}))));
    }
    // Nothing is acknowledged yet. The channel holds 1 MiB, and 256 KiB may wait for it.
    world.pass(ms(5), |_| false).await;
    let told = std::iter::from_fn(|| events.try_recv().ok()).count();
    assert!((5..12).contains(&told), "{told}");
    world
        .pass(AGAIN, |world| {
            world.of_kind("session.updated").len() == UPDATES
        })
        .await;
    assert_eq!(world.of_kind("session.updated").len(), UPDATES);
    assert!(!world.call.is_finished());
}

/// Sentences of a user, for the recogniser.
const SENTENCES: [&str; 16] = [
    "Good morning, I would like to change the delivery address of my order.",
    "Is there a pharmacy near the station that is open on Sunday?",
    "Can you tell me when the next train to the airport leaves?",
    "We are looking for a quiet table by the window.",
    "Please remind me to call the dentist tomorrow afternoon.",
    "What is the weather going to be like in the mountains this weekend?",
    "I have lost my suitcase somewhere between the hotel and the bus.",
    "How much does it cost to send a small parcel to Canada?",
    "Could you read me the last message from my sister?",
    "The printer in the office does not work since Monday morning.",
    "Set a timer for the potatoes and another one for the fish.",
    "Which of these two routes is shorter when there is a lot of traffic?",
    "My brother plays the violin and my mother sings in a choir.",
    "They moved the meeting to the large room on the second floor.",
    "Do you have this jacket in green and one size larger?",
    "He walked along the river until the street lights came on.",
];

fn words(text: &str) -> Vec<String> {
    let plain = |c: char| c.is_alphanumeric() || c.is_whitespace();
    let text: String = text.to_lowercase().chars().filter(|c| plain(*c)).collect();
    text.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn five_percent_loss_and_40_ms_of_jitter_cost_at_most_three_points_of_word_errors() {
    let weights = crate::audio::testing::weights_and_runtime();
    // All runs hear the same.
    let mut voice = crate::tts::Piper::load(steady::steady_voice(&weights).path()).unwrap();
    let mut recogniser = crate::asr::WhisperOnnx::load(&weights.join("whisper-tiny.en")).unwrap();
    let (mut spoken, mut clean, mut lossy) = (0, 0, 0);
    for (seed, text) in SENTENCES.iter().enumerate() {
        let audio = crate::tts::whole(&mut voice, text).unwrap();
        let at = |rate| Resampler::new(voice.sample_rate(), rate).push(&audio);
        let (plain, said) = (at(16_000), to_i16(&at(24_000)));
        let mut world = World::open(STORM, seed as u64).await;
        let mut heard = Vec::new();
        for frame in said.chunks_exact(480) {
            world.say(frame).await;
            heard.extend(world.reached().0);
        }
        world.speak(10, |_| false).await;
        world.pass(ms(300), |_| false).await;
        heard.extend(world.reached().0);
        let heard = to_f32(&heard);
        let mut errors = |audio: &[f32]| {
            let heard = recogniser.transcribe(audio).unwrap();
            strsim::generic_levenshtein(&words(text), &words(&heard))
        };
        spoken += words(text).len();
        clean += errors(&plain);
        lossy += errors(&heard);
    }
    println!("{spoken} words: {clean} wrong as spoken, {lossy} over the network");
    assert!(
        100 * lossy <= 100 * clean + 3 * spoken,
        "{spoken} words: {clean}, then {lossy} wrong"
    );
}
