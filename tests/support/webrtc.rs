//! A WebRTC client over a real UDP socket, as a browser behaves.

use super::{PATIENCE, Server, now};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use serde_json::Value;
use std::f32::consts::TAU;
use std::sync::Arc;
use std::time::Duration;
use str0m::change::SdpAnswer;
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

/// A frame of 20 ms at 48 kHz, and how long it lasts.
const FRAME: usize = 960;
const LASTS: Duration = Duration::from_millis(20);

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
    socket: UdpSocket,
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
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("an address");
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
            .clear_codecs()
            .enable_opus(true, false)
            .build(now().into_std());
        let candidate = Candidate::host(address, "udp").expect("a candidate");
        rtc.add_local_candidate(candidate);
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let channel = change.add_channel("oai-events".into());
        let (offer, pending) = change.apply().expect("an offer");
        let answer = reqwest::Client::new()
            .post(format!("http://{}/v1/realtime/calls", server.address))
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

    /// Speaks a tone for so many frames in real time, then is silent for as many as `silence`.
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
            received = self.socket.recv_from(&mut buffer) => {
                let (length, from) = received.expect("a packet");
                let here = self.socket.local_addr().expect("an address");
                let receive = Receive::new(Protocol::Udp, from, here, &buffer[..length]);
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
                    let sent = self.socket.send_to(&packet.contents, packet.destination);
                    sent.await.expect("sent");
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
