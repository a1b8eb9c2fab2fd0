//! A WebRTC client over a real socket, UDP or TCP, as a browser behaves.

use super::{PATIENCE, Server, now};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use serde_json::Value;
use std::f32::consts::TAU;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use str0m::change::SdpAnswer;
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive, TcpType};
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// A frame of 20 ms at 48 kHz, and how long it lasts.
const FRAME: usize = 960;
const LASTS: Duration = Duration::from_millis(20);

/// The path of calls.
const CALLS: &str = "/v1/realtime/calls";

/// The client of a call.
pub(crate) struct Peer {
    /// The call's id.
    pub(crate) id: String,
    /// The events so far.
    pub(crate) events: Vec<Value>,
    /// Audio packets of the agent so far.
    pub(crate) packets: usize,
    /// The server has closed the connection.
    pub(crate) is_closed: bool,
    rtc: Rtc,
    socket: Socket,
    mid: Mid,
    channel: ChannelId,
    encoder: opus::Encoder,
    spoken: u64,
}

impl Peer {
    /// Calls a server, and waits for `session.created`.
    pub(crate) async fn call(server: &Server) -> Self {
        Self::call_with(server, None).await
    }

    /// The same, with a token.
    pub(crate) async fn call_with(server: &Server, token: Option<&str>) -> Self {
        Self::call_through(server, CALLS, token, Socket::udp().await).await
    }

    /// The same at another path.
    pub(crate) async fn call_at(server: &Server, path: &str) -> Self {
        Self::call_through(server, path, None, Socket::udp().await).await
    }

    /// A client that may come back over a WebSocket calls a server.
    pub(crate) async fn call_resumable(server: &Server) -> Self {
        Self::call_at(server, &format!("{CALLS}?resumable=1")).await
    }

    /// A client to which no UDP port is open calls a server, which takes calls over TCP at `port`.
    pub(crate) async fn call_over_tcp(server: &Server, port: SocketAddr) -> Self {
        Self::call_through(server, CALLS, None, Socket::tcp(port).await).await
    }

    async fn call_through(
        server: &Server,
        path: &str,
        token: Option<&str>,
        socket: Socket,
    ) -> Self {
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
            .clear_codecs()
            .enable_opus(true, false)
            .build(now().into_std());
        rtc.add_local_candidate(socket.candidate());
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let channel = change.add_channel("oai-events".into());
        let (offer, pending) = change.apply().expect("an offer");
        let answer = reqwest::Client::new()
            .post(format!("http://{}{path}", server.address))
            .header(CONTENT_TYPE, "application/sdp")
            .body(offer.to_sdp_string());
        let answer = match token {
            Some(token) => answer.bearer_auth(token),
            None => answer,
        };
        let answer = answer.send().await.expect("an answer");
        let place = answer.headers()[LOCATION]
            .to_str()
            .expect("text")
            .to_owned();
        let answer = answer.text().await.expect("SDP");
        let answer = SdpAnswer::from_sdp_string(&answer).expect("SDP");
        rtc.sdp_api()
            .accept_answer(pending, answer)
            .expect("it fits");
        let mut encoder = opus::Encoder::new(48_000, opus::Channels::Mono, opus::Application::Voip)
            .expect("an encoder");
        // Many of them run at once.
        encoder.set_complexity(0).expect("a complexity");
        let mut peer = Self {
            id: place.rsplit('/').next().expect("an id").to_owned(),
            events: Vec::new(),
            packets: 0,
            is_closed: false,
            rtc,
            socket,
            mid,
            channel,
            encoder,
            spoken: 0,
        };
        peer.until(|peer| peer.has("session.created")).await;
        peer
    }

    /// Whether an event of this kind has come.
    pub(crate) fn has(&self, kind: &str) -> bool {
        self.events.iter().any(|event| event["type"] == kind)
    }

    /// Goes on until `done`; panics if that never comes.
    pub(crate) async fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let end = now() + PATIENCE;
        while !done(self) {
            assert!(now() < end, "in vain: {:?}", super::types(&self.events));
            self.step(end).await;
        }
    }

    /// Sends an event.
    pub(crate) async fn tell(&mut self, event: Value) {
        let mut channel = self.rtc.channel(self.channel).expect("it is open");
        let text = event.to_string();
        assert!(channel.write(false, text.as_bytes()).expect("it is open"));
        self.drain().await;
    }

    /// Speaks a tone for `frames` frames in real time, then is silent for `silence` frames.
    pub(crate) async fn speak(&mut self, frames: usize, silence: usize) {
        let mut due = now();
        for frame in 0..frames + silence {
            let level = if frame < frames { 8_000.0 } else { 0.0 };
            let angle = |at: usize| at as f32 * 440.0 / 48_000.0 * TAU;
            let tone: Vec<i16> = (0..FRAME)
                .map(|at| (angle(at).sin() * level) as i16)
                .collect();
            let packet = self.encoder.encode_vec(&tone, 1_200).expect("encoded");
            let writer = self.rtc.writer(self.mid).expect("a track");
            let pt = writer
                .payload_params()
                .find(|params| params.spec().codec == Codec::Opus)
                .map(|params| params.pt());
            let time = MediaTime::new(self.spoken, Frequency::FORTY_EIGHT_KHZ);
            writer
                .write(pt.expect("Opus"), now().into_std(), time, packet)
                .expect("written");
            self.spoken += FRAME as u64;
            self.drain().await;
            due += LASTS;
            while now() < due {
                self.step(due).await;
            }
        }
    }

    /// Takes in a packet, or lets time pass, at most until `end`.
    async fn step(&mut self, end: Instant) {
        let wake = Instant::from_std(self.drain().await);
        let mut buffer = vec![0; 2_000];
        tokio::select! {
            received = self.socket.receive(&mut buffer) => {
                let Some((length, from)) = received else {
                    self.is_closed = true;
                    return sleep_until(end).await;
                };
                let here = self.socket.address();
                let receive = Receive::new(self.socket.protocol(), from, here, &buffer[..length]);
                let input = Input::Receive(now().into_std(), receive.expect("a packet"));
                self.rtc.handle_input(input).expect("taken");
            }
            () = sleep_until(wake.min(end)) => {
                let input = Input::Timeout(now().into_std());
                self.rtc.handle_input(input).expect("time passes");
            }
        }
        self.drain().await;
    }

    /// Returns when time must pass next.
    async fn drain(&mut self) -> std::time::Instant {
        loop {
            match self.rtc.poll_output().expect("it works") {
                Output::Timeout(at) => return at,
                Output::Transmit(packet) => {
                    self.socket.send(&packet.contents, packet.destination).await;
                }
                Output::Event(Event::ChannelData(data)) => {
                    let event = serde_json::from_slice(&data.data).expect("JSON");
                    self.events.push(event);
                }
                Output::Event(Event::MediaData(_)) => self.packets += 1,
                Output::Event(Event::Closed) => self.is_closed = true,
                Output::Event(_) => {}
            }
        }
    }
}

/// A client's socket.
enum Socket {
    Udp(UdpSocket),
    Tcp(Stream),
}

/// A TCP connection, on which each packet follows its length (RFC 4571).
struct Stream {
    here: SocketAddr,
    there: SocketAddr,
    packets: mpsc::Receiver<Vec<u8>>,
    writing: OwnedWriteHalf,
}

impl Socket {
    async fn udp() -> Self {
        Self::Udp(UdpSocket::bind("127.0.0.1:0").await.expect("a port"))
    }

    async fn tcp(port: SocketAddr) -> Self {
        let stream = TcpStream::connect(port).await.expect("a connection");
        let here = stream.local_addr().expect("an address");
        let (mut reading, writing) = stream.into_split();
        let (sender, packets) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok(length) = reading.read_u16().await {
                let mut packet = vec![0; usize::from(length)];
                if reading.read_exact(&mut packet).await.is_err()
                    || sender.send(packet).await.is_err()
                {
                    return;
                }
            }
        });
        Self::Tcp(Stream {
            here,
            there: port,
            packets,
            writing,
        })
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) => socket.local_addr().expect("an address"),
            Self::Tcp(stream) => stream.here,
        }
    }

    fn protocol(&self) -> Protocol {
        match self {
            Self::Udp(_) => Protocol::Udp,
            Self::Tcp(_) => Protocol::Tcp,
        }
    }

    fn candidate(&self) -> Candidate {
        let candidate = match self {
            Self::Udp(_) => Candidate::host(self.address(), "udp"),
            Self::Tcp(_) => {
                let candidate = Candidate::builder().tcp().host(self.address());
                candidate.tcptype(TcpType::Active).build()
            }
        };
        candidate.expect("a candidate")
    }

    /// The next packet's length and sender; `None` once there are no more.
    async fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        match self {
            Self::Udp(socket) => Some(socket.recv_from(buffer).await.expect("a packet")),
            Self::Tcp(stream) => {
                let packet = stream.packets.recv().await?;
                buffer[..packet.len()].copy_from_slice(&packet);
                Some((packet.len(), stream.there))
            }
        }
    }

    async fn send(&mut self, packet: &[u8], to: SocketAddr) {
        match self {
            Self::Udp(socket) => {
                socket.send_to(packet, to).await.expect("sent");
            }
            Self::Tcp(stream) => {
                let length = u16::try_from(packet.len()).expect("a packet");
                let framed = [&length.to_be_bytes()[..], packet].concat();
                // The server may have closed it.
                let _ = stream.writing.write_all(&framed).await;
            }
        }
    }
}
