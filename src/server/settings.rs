//! The server's settings.

use super::choice::Choosable;
use super::limits::OpeningLimits;
use super::outbound::OutboundCalls;
use super::twilio::account::Twilio;
use crate::conversation::{TextLimits, VadPolicy};
use crate::transport::intake::IntakeLimits;
use crate::transport::pump::SocketLimits;
use secrecy::SecretString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The server's settings.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The address to listen on; port 0 takes any free port.
    pub bind: SocketAddr,
    /// The most concurrent sessions; beyond that, clients get status 503.
    pub max_sessions: usize,
    /// The most open sockets, on all listeners and including sessions. Beyond that, idle
    /// connections are closed, or a new connection if none is idle.
    pub max_connections: usize,
    /// The token that clients must present; `None` requires none.
    pub auth_token: Option<SecretString>,
    /// Signs client secrets and tickets of calls; a random key per process if `None`.
    pub client_secret_key: Option<SecretString>,
    /// Origins of web pages that may connect, such as `https://example.org`. Pages from this host
    /// and from loopback hosts always may.
    pub allowed_origins: Vec<String>,
    /// Whether clients other than browsers may connect without a token even if the server listens
    /// beyond loopback or a proxy forwards them.
    pub insecure: bool,
    /// Longest message from a Realtime client, bytes: by default a minute of audio in one append.
    pub max_realtime_message: usize,
    /// Longest message from a PCM client, bytes.
    pub max_pcm_message: usize,
    /// How long a connection may take to send the headers of its first request, or on the TCP
    /// protocols its first byte.
    pub header_timeout: Duration,
    /// Timeouts of WebSockets.
    pub socket: SocketLimits,
    /// How fast a Realtime client's audio may arrive.
    pub realtime_intake: IntakeLimits,
    /// How fast a PCM client's audio may arrive.
    pub pcm_intake: IntakeLimits,
    /// How many sessions a client may open a minute.
    pub openings: OpeningLimits,
    /// Whether barge-in is allowed, unless a client says otherwise.
    pub interrupt: bool,
    /// The VAD's speech probability threshold, unless a client says otherwise.
    pub vad_threshold: f32,
    /// Limits on the text that a Realtime client may add.
    pub text: TextLimits,
    /// How long sessions may take to finish at shutdown.
    pub drain_deadline: Duration,
    /// The agents that clients may choose.
    pub agents: Choosable,
    /// Whether clients that do not show the token may choose voices on servers.
    pub offer_services: bool,
    /// The Twilio account whose calls are answered.
    pub twilio: Option<Twilio>,
    /// The calls that the server may place.
    pub outbound: Option<OutboundCalls>,
}

impl ServerSettings {
    /// Whether a server that listens on `address` lets no other machine in without a token, or is meant to.
    pub(crate) fn is_safe_on(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.auth_token.is_some() || self.insecure
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            max_sessions: 64,
            max_connections: 4096,
            auth_token: None,
            client_secret_key: None,
            allowed_origins: Vec::new(),
            insecure: false,
            max_realtime_message: 4 * 1024 * 1024,
            max_pcm_message: 64 * 1024,
            header_timeout: Duration::from_secs(5),
            socket: SocketLimits::default(),
            realtime_intake: IntakeLimits::RECORDINGS,
            pcm_intake: IntakeLimits::LIVE,
            openings: OpeningLimits::default(),
            interrupt: true,
            vad_threshold: VadPolicy::default().threshold,
            text: TextLimits::default(),
            drain_deadline: Duration::from_secs(20),
            agents: Choosable::default(),
            offer_services: false,
            twilio: None,
            outbound: None,
        }
    }
}
