//! A client for tests, as a browser behaves: it offers a track and the events' channel, without candidates.

use super::{EVENTS, REORDERING};
use crate::transport::webrtc::opus::CLOCK;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::channel::{ChannelConfig, ChannelId};
use str0m::format::Codec;
pub(in super::super) use str0m::media::Direction;
use str0m::media::{Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};

/// Something that a client has received.
#[derive(Debug, PartialEq)]
pub(in super::super) enum Got {
    Connected,
    Opened,
    Text(String),
    /// An Opus packet, with its RTP time.
    Audio(u64, Arc<[u8]>),
    Closed,
}

pub(in super::super) struct Client {
    rtc: Rtc,
    mid: Mid,
    events: Option<ChannelId>,
    pending: Option<SdpPendingOffer>,
    address: SocketAddr,
    wake: Instant,
    pub(in super::super) sends: Vec<Vec<u8>>,
}

impl Client {
    /// A client at `address`, and its offer.
    pub(in super::super) fn offer(address: SocketAddr, now: Instant) -> (Self, String) {
        Self::offer_lines(address, now, &[Direction::SendRecv], &[EVENTS])
    }

    /// The same with these lines of audio, of which the client speaks on the first, and these data channels, of which
    /// it reads the last.
    pub(in super::super) fn offer_lines(
        address: SocketAddr,
        now: Instant,
        lines: &[Direction],
        labels: &[&str],
    ) -> (Self, String) {
        let provider = Arc::new(str0m::crypto::from_feature_flags());
        let mut rtc = Rtc::builder()
            .set_crypto_provider(provider)
            .clear_codecs()
            .enable_opus(true, false)
            .set_reordering_timeout_audio(Some(REORDERING))
            .build(now);
        rtc.add_local_candidate(Candidate::host(address, "udp").unwrap());
        let mut change = rtc.sdp_api();
        let mids: Vec<Mid> = lines
            .iter()
            .map(|line| change.add_media(MediaKind::Audio, *line, None, None, None))
            .collect();
        let channels: Vec<ChannelId> = labels
            .iter()
            .map(|label| change.add_channel((*label).to_owned()))
            .collect();
        let events = channels.last().copied();
        let (offer, pending) = change.apply().unwrap();
        let offer = offer.to_sdp_string();
        let bare: Vec<&str> = offer
            .lines()
            .filter(|line| !line.starts_with("a=candidate"))
            .collect();
        let client = Self {
            rtc,
            mid: mids[0],
            events,
            pending: Some(pending),
            address,
            wake: now,
            sends: Vec::new(),
        };
        (client, bare.join("\r\n") + "\r\n")
    }

    /// Opens one more data channel, which the client reads from now on.
    pub(in super::super) fn open_channel(&mut self, label: &str) -> Vec<Got> {
        let config = ChannelConfig {
            label: label.to_owned(),
            ..ChannelConfig::default()
        };
        self.events = Some(self.rtc.direct_api().create_data_channel(config));
        self.drain()
    }

    pub(in super::super) fn accept(&mut self, answer: &str) {
        let answer = SdpAnswer::from_sdp_string(answer).unwrap();
        let pending = self.pending.take().unwrap();
        self.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    }

    pub(in super::super) fn wait(&self) -> Instant {
        self.wake
    }

    /// Takes in a packet, or the time. Returns what came of it; what is to be sent is in `sends`.
    pub(in super::super) fn step(
        &mut self,
        now: Instant,
        packet: Option<(SocketAddr, &[u8])>,
    ) -> Vec<Got> {
        let input = match packet {
            Some((from, bytes)) => {
                let receive = Receive::new(Protocol::Udp, from, self.address, bytes).unwrap();
                Input::Receive(now, receive)
            }
            None => Input::Timeout(now),
        };
        self.rtc.handle_input(input).unwrap();
        self.drain()
    }

    fn drain(&mut self) -> Vec<Got> {
        let mut got = Vec::new();
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(at) => {
                    self.wake = at;
                    return got;
                }
                Output::Transmit(transmit) => self.sends.push(transmit.contents.into()),
                Output::Event(Event::Connected) => got.push(Got::Connected),
                Output::Event(Event::ChannelOpen(id, _)) if Some(id) == self.events => {
                    got.push(Got::Opened);
                }
                Output::Event(Event::ChannelData(data)) if Some(data.id) == self.events => {
                    got.push(Got::Text(String::from_utf8(data.data).unwrap()));
                }
                Output::Event(Event::MediaData(data)) => {
                    got.push(Got::Audio(data.time.numer(), data.data));
                }
                Output::Event(Event::Closed) => got.push(Got::Closed),
                Output::Event(_) => {}
            }
        }
    }

    pub(in super::super) fn tell(&mut self, event: &str) -> Vec<Got> {
        self.send(false, event.as_bytes())
    }

    /// Sends a message over the channel of events.
    pub(in super::super) fn send(&mut self, is_binary: bool, message: &[u8]) -> Vec<Got> {
        let mut channel = self.rtc.channel(self.events.unwrap()).unwrap();
        assert!(channel.write(is_binary, message).unwrap());
        self.drain()
    }

    pub(in super::super) fn speak(&mut self, now: Instant, time: u64, packet: Vec<u8>) -> Vec<Got> {
        assert_eq!(CLOCK, Frequency::FORTY_EIGHT_KHZ.get());
        let writer = self.rtc.writer(self.mid).unwrap();
        let opus = writer
            .payload_params()
            .find(|params| params.spec().codec == Codec::Opus)
            .map(|params| params.pt());
        let time = MediaTime::new(time, Frequency::FORTY_EIGHT_KHZ);
        writer.write(opus.unwrap(), now, time, packet).unwrap();
        self.drain()
    }

    pub(in super::super) fn close(&mut self) -> Vec<Got> {
        self.rtc.close().unwrap();
        self.drain()
    }
}
