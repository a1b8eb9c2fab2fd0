//! One client's WebRTC connection: ICE, DTLS, SRTP and SCTP. No I/O and no clock. The only user of str0m, whose
//! interface changes often.
//!
//! str0m takes one change at a time: after each call that changes a [`Peer`], [`Peer::poll`] must be called
//! until it returns `None`.

#[cfg(test)]
pub(super) mod client;

use super::opus::CLOCK;
use super::port::Way;
use super::sdp;
use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use str0m::change::SdpOffer;
use str0m::channel::ChannelId;
use str0m::config::{CryptoProvider, DtlsCert};
use str0m::format::Codec;
use str0m::media::{Frequency, MediaKind, MediaTime, Mid, Pt};
use str0m::net::{Protocol, Receive, TcpType};
use str0m::rtp::{Extension, Ssrc};
use str0m::{Candidate, Event, IceCreds, Input, Output, Rtc, RtcError};

/// The usual name of the data channel of the Realtime API's events.
const EVENTS: &str = "oai-events";

/// Packets that wait for a missing one, and how long: a listening server must not wait longer, since the
/// turn ends by what it has heard.
const REORDERED: usize = 3;
const REORDERING: Duration = Duration::from_millis(60);

/// Bytes that the data channel may hold until the client has acknowledged them.
const SEND_BUFFER: usize = 1024 * 1024;

/// The longest message that a client takes if its offer does not say (RFC 8841).
const DEFAULT_MESSAGE: usize = 64 * 1024;

/// How often the round trip is measured.
const STATISTICS: Duration = Duration::from_secs(1);

/// The cryptography and the certificate of all connections.
pub(super) struct Identity {
    provider: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

impl Identity {
    /// Generates a certificate.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(super) fn new() -> Result<Self, String> {
        let provider = Arc::new(str0m::crypto::from_feature_flags());
        let certificate = provider.dtls_provider.generate_certificate();
        Ok(Self {
            certificate: certificate.ok_or("no certificate can be made for WebRTC")?,
            provider,
        })
    }
}

/// An offer that cannot be answered. Contains the reason, for the client's developer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadOffer(pub(super) String);

/// The connection with one client.
pub(super) struct Peer {
    rtc: Rtc,
    /// The name by which the client's first packets are recognised.
    ufrag: String,
    track: Option<(Mid, Pt)>,
    unannounced: Option<Unannounced>,
    events: Option<ChannelId>,
    /// The channel of events has their usual name.
    is_named: bool,
    /// An event was sent over it.
    has_told: bool,
    /// The client asked for a data channel.
    wants_events: bool,
    /// The longest message that it takes, bytes.
    longest: usize,
    /// When [`Self::wait`] is due.
    wake: Instant,
}

/// A section of the client's audio whose packets are known by their format alone, and of which none has been heard yet:
/// the offer announces no source of it, and its packets do not name it.
struct Unannounced {
    mid: Mid,
    formats: Vec<Pt>,
    /// That of the last packet.
    source: Option<Ssrc>,
}

/// Something that a [`Peer`] has to say.
#[derive(Debug)]
pub(super) enum PeerEvent {
    /// Send these bytes.
    Send {
        way: Way,
        /// The client's address.
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// Audio can be sent from now on.
    Connected,
    /// Events can be sent from now on.
    Opened,
    /// From now on events are sent over another channel, and the client has got none of those before.
    Moved,
    /// An event of the client.
    Text(String),
    /// A message of the client that is no text.
    Binary(Vec<u8>),
    /// An Opus packet of the client.
    Audio {
        /// Its RTP time without wraparound, in ticks of [`CLOCK`].
        time: u64,
        packet: Arc<[u8]>,
    },
    /// How long a packet takes to the client and back.
    RoundTrip(Duration),
    /// The client has closed the connection.
    Closed,
}

impl Peer {
    /// Answers an offer. `addresses` are those at which clients reach us, over TCP too if `has_tcp`. Returns the
    /// answer, too.
    ///
    /// # Errors
    /// [`BadOffer`]
    pub(super) fn answer(
        offer: &str,
        addresses: &[SocketAddr],
        has_tcp: bool,
        identity: &Identity,
        now: Instant,
    ) -> Result<(Self, String), BadOffer> {
        let parsed = SdpOffer::from_sdp_string(&sdp::readable(offer))
            .map_err(|error| BadOffer(format!("The SDP offer cannot be read: {error}")))?;
        let credentials = IceCreds::new();
        let ufrag = credentials.ufrag.clone();
        let mut rtc = Rtc::builder()
            .set_crypto_provider(identity.provider.clone())
            .set_dtls_cert(identity.certificate.clone())
            .set_local_ice_credentials(credentials)
            .set_ice_lite(true)
            .clear_codecs()
            .enable_opus(true, true)
            .set_reordering_size_audio(REORDERED)
            .set_reordering_timeout_audio(Some(REORDERING))
            .set_sctp_max_buffered_amount(SEND_BUFFER)
            .set_stats_interval(Some(STATISTICS))
            .build(now);
        for address in addresses {
            let udp = Candidate::host(*address, "udp");
            let tcp = Candidate::builder().tcp().host(*address);
            let tcp = has_tcp.then(|| tcp.tcptype(TcpType::Passive).build());
            for candidate in [Some(udp), tcp].into_iter().flatten() {
                let candidate = candidate.map_err(|error| BadOffer(error.to_string()))?;
                rtc.add_local_candidate(candidate);
            }
        }
        let answer = rtc.sdp_api().accept_offer(parsed);
        let answer = answer.map_err(|error| BadOffer(format!("The SDP offer: {error}")))?;
        let wants_events = offer.lines().any(|line| line.starts_with("m=application"));
        let wants_audio = offer.lines().any(|line| line.starts_with("m=audio"));
        if !wants_audio {
            let message = "The SDP offer has no audio: add a track or an audio transceiver.";
            return Err(BadOffer(message.into()));
        }
        let answer = sdp::answer(offer, &answer.to_sdp_string());
        let is_accepted =
            |line: &str| line.starts_with("m=audio ") && !line.starts_with("m=audio 0 ");
        if !answer.lines().any(is_accepted) {
            let message = "The SDP offer has no Opus (opus/48000/2): offer it for the track, alone or beside other \
                           codecs.";
            return Err(BadOffer(message.into()));
        }
        let peer = Self {
            rtc,
            ufrag,
            track: None,
            unannounced: None,
            events: None,
            is_named: false,
            has_told: false,
            wants_events,
            longest: longest_message(offer),
            wake: now,
        };
        Ok((peer, answer))
    }

    /// The name by which the client's first packets are recognised.
    pub(super) fn ufrag(&self) -> &str {
        &self.ufrag
    }

    /// Whether the client asked for the data channel of events.
    pub(super) fn wants_events(&self) -> bool {
        self.wants_events
    }

    /// Takes in a packet of the client's that came to our address `to`. A malformed one is ignored.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        way: Way,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), RtcError> {
        let protocol = match way {
            Way::Udp => Protocol::Udp,
            Way::Tcp => Protocol::Tcp,
        };
        self.learn_source(bytes);
        match Receive::new(protocol, from, to, bytes) {
            Ok(receive) => self.rtc.handle_input(Input::Receive(now, receive)),
            Err(_) => Ok(()),
        }
    }

    /// When [`Self::pass`] must be called again.
    pub(super) fn wait(&self) -> Instant {
        self.wake
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub(super) fn pass(&mut self, now: Instant) -> Result<(), RtcError> {
        self.rtc.handle_input(Input::Timeout(now))
    }

    /// The next thing to do; `None` once there is nothing until [`Self::wait`].
    ///
    /// # Errors
    /// The connection cannot go on.
    pub(super) fn poll(&mut self) -> Result<Option<PeerEvent>, RtcError> {
        loop {
            let event = match self.rtc.poll_output()? {
                Output::Timeout(at) => {
                    self.wake = at;
                    return Ok(None);
                }
                Output::Transmit(transmit) => Some(PeerEvent::Send {
                    way: match transmit.proto {
                        Protocol::Tcp => Way::Tcp,
                        _ => Way::Udp,
                    },
                    to: transmit.destination,
                    bytes: transmit.contents.into(),
                }),
                Output::Event(event) => self.event(event),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    fn event(&mut self, event: Event) -> Option<PeerEvent> {
        match event {
            Event::Connected => Some(PeerEvent::Connected),
            // The direction is ours. Whatever is written on a line that does not send breaks the connection.
            Event::MediaAdded(added) if added.kind == MediaKind::Audio => {
                if added.direction.is_receiving() {
                    self.add_source(added.mid);
                }
                if added.direction.is_sending() {
                    self.add_track(added.mid);
                }
                None
            }
            Event::MediaData(data) => {
                let waited = self.unannounced.as_ref();
                if waited.is_some_and(|unannounced| unannounced.mid == data.mid) {
                    self.unannounced = None;
                }
                Some(PeerEvent::Audio {
                    time: data.time.rebase(Frequency::FORTY_EIGHT_KHZ).numer(),
                    packet: data.data,
                })
            }
            Event::ChannelOpen(id, label) => self.channel_opened(id, label == EVENTS),
            Event::ChannelData(data) if Some(data.id) == self.events => {
                // Also in a binary message: some clients send no others.
                Some(match String::from_utf8(data.data) {
                    Ok(text) => PeerEvent::Text(text),
                    Err(error) => PeerEvent::Binary(error.into_bytes()),
                })
            }
            Event::ChannelClose(id) if Some(id) == self.events => Some(PeerEvent::Closed),
            Event::MediaEgressStats(statistics) => statistics.rtt.map(PeerEvent::RoundTrip),
            Event::Closed => Some(PeerEvent::Closed),
            _ => None,
        }
    }

    /// Events go over the channel with their usual name, and over the first one until that is open: clients with a
    /// single channel name it as they like.
    fn channel_opened(&mut self, id: ChannelId, is_named: bool) -> Option<PeerEvent> {
        if self.events.is_some() && (self.is_named || !is_named) {
            return None;
        }
        (self.events, self.is_named) = (Some(id), is_named);
        Some(match std::mem::take(&mut self.has_told) {
            true => PeerEvent::Moved,
            false => PeerEvent::Opened,
        })
    }

    fn add_source(&mut self, mid: Mid) {
        let mut direct = self.rtc.direct_api();
        let is_announced = direct.stream_rx_by_mid(mid, None).is_some();
        let names_itself = self.rtc.media(mid).is_some_and(|media| {
            let extensions = media.remote_extmap();
            extensions.id_of(Extension::RtpMid).is_some()
        });
        if is_announced || names_itself {
            return;
        }
        let Some(writer) = self.rtc.writer(mid) else {
            return;
        };
        let params = writer.payload_params();
        let formats = params.flat_map(|params| iter::once(params.pt()).chain(params.red()));
        self.unannounced.get_or_insert(Unannounced {
            mid,
            formats: formats.collect(),
            source: None,
        });
    }

    /// Expects what comes from the source of an unannounced packet. It may be somebody else's, so until one has been
    /// decrypted, that of the last packet counts.
    fn learn_source(&mut self, packet: &[u8]) {
        let Some(unannounced) = &mut self.unannounced else {
            return;
        };
        let [128..192, format, _, _, _, _, _, _, a, b, c, d, ..] = *packet else {
            return;
        };
        let source = Ssrc::from(u32::from_be_bytes([a, b, c, d]));
        let is_audio = unannounced.formats.contains(&Pt::from(format & 0x7f));
        let mut direct = self.rtc.direct_api();
        if !is_audio || direct.stream_rx(&source).is_some() {
            return;
        }
        if let Some(before) = unannounced.source.replace(source) {
            direct.remove_stream_rx(before);
        }
        let stream = direct.expect_stream_rx(source, None, unannounced.mid, None);
        // Without a stream of repairs nothing can be sent again.
        stream.suppress_nack(true);
    }

    fn add_track(&mut self, mid: Mid) {
        let Some(writer) = self.rtc.writer(mid) else {
            return;
        };
        let pt = {
            let mut opus = writer
                .payload_params()
                .filter(|params| params.spec().codec == Codec::Opus);
            opus.next().map(|params| params.pt())
        };
        let Some(pt) = pt else {
            return;
        };
        // The client's redundancy is welcome; ours is in the Opus packets.
        self.rtc.direct_api().set_red_send(mid, false);
        self.track.get_or_insert((mid, pt));
    }

    /// Sends an Opus packet. `time` is in ticks of [`CLOCK`]. Before the connection is up, it is lost.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub(super) fn speak(
        &mut self,
        now: Instant,
        time: u64,
        packet: Vec<u8>,
    ) -> Result<(), RtcError> {
        let Some((mid, pt)) = self.track else {
            return Ok(());
        };
        let Some(writer) = self.rtc.writer(mid) else {
            return Ok(());
        };
        const { assert!(CLOCK == 48_000) };
        let time = MediaTime::new(time, Frequency::FORTY_EIGHT_KHZ);
        writer.write(pt, now, time, packet)
    }

    /// Sends an event. `Ok(false)` if the channel is not open or has no room yet.
    ///
    /// # Errors
    /// [`Unsendable`] if it can never be sent.
    pub(super) fn tell(&mut self, event: &str) -> Result<bool, Unsendable> {
        if event.len() > self.longest {
            return Err(Unsendable(event.len()));
        }
        let Some(mut channel) = self.events.and_then(|id| self.rtc.channel(id)) else {
            return Ok(false);
        };
        let sent = channel.write(false, event.as_bytes());
        let sent = sent.map_err(|_| Unsendable(event.len()))?;
        self.has_told |= sent;
        Ok(sent)
    }

    /// Closes the connection: the client is told.
    pub(super) fn close(&mut self) {
        if self.rtc.close().is_err() {
            self.rtc.disconnect();
        }
    }

    /// Whether the connection is up or may still come up.
    pub(super) fn is_alive(&self) -> bool {
        self.rtc.is_alive()
    }
}

/// An event that can never be sent to this client. Contains its length, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unsendable(pub(super) usize);

/// The longest message that a client takes according to its offer, bytes.
fn longest_message(offer: &str) -> usize {
    let mut said = offer.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("a=max-message-size:")?
            .parse()
            .ok()
    });
    match said.next() {
        // As long as it likes.
        Some(0) => SEND_BUFFER,
        Some(longest) => SEND_BUFFER.min(longest),
        None => DEFAULT_MESSAGE,
    }
}
