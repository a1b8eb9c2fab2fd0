//! How the server serves.

use super::twilio::account::Twilio;
use crate::conversation::{TextLimits, VadPolicy};
use crate::transport::intake::IntakeLimits;
use crate::transport::pump::SocketLimits;
use secrecy::SecretString;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How the server serves.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Where to listen. Port 0 takes any.
    pub bind: SocketAddr,
    /// Sessions at a time; over that, 503.
    pub max_sessions: usize,
    /// Sockets that are open at a time, of sessions, too, and of all doors. Over that, connections that
    /// ask for nothing are closed, and a new one is if there are none.
    pub max_connections: usize,
    /// Clients must show this token. `None` asks for nothing.
    pub auth_token: Option<SecretString>,
    /// Signs client secrets; a key of this process alone if `None`.
    pub client_secret_key: Option<SecretString>,
    /// Origins of web pages that may connect, such as `https://example.org`. Pages of this very
    /// host and of loopback hosts may anyway.
    pub allowed_origins: Vec<String>,
    /// Clients that are no browsers may connect without a token although the server listens on
    /// more than loopback, or a proxy passes them on.
    pub insecure: bool,
    /// Longest message of a Realtime client, bytes: some 16 s of audio in one append by default.
    pub max_realtime_message: usize,
    /// Longest message of a PCM client, bytes.
    pub max_pcm_message: usize,
    /// How long a connection may take to send the headers of its first request; on the other doors, to
    /// send anything.
    pub header_timeout: Duration,
    /// Timeouts of WebSockets.
    pub socket: SocketLimits,
    /// How fast a Realtime client's audio may come.
    pub realtime_intake: IntakeLimits,
    /// How fast a PCM client's audio may come.
    pub pcm_intake: IntakeLimits,
    /// The user may interrupt the agent by speaking, unless a client says otherwise.
    pub interrupt: bool,
    /// From this probability on a sound is speech, unless a client says otherwise.
    pub vad_threshold: f32,
    /// How much text a Realtime client may add.
    pub text: TextLimits,
    /// How long sessions may take to finish at shutdown.
    pub drain_deadline: Duration,
    /// The Twilio account whose calls are answered.
    pub twilio: Option<Twilio>,
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
            max_realtime_message: 1024 * 1024,
            max_pcm_message: 64 * 1024,
            header_timeout: Duration::from_secs(5),
            socket: SocketLimits::default(),
            realtime_intake: IntakeLimits::RECORDINGS,
            pcm_intake: IntakeLimits::LIVE,
            interrupt: true,
            vad_threshold: VadPolicy::default().threshold,
            text: TextLimits::default(),
            drain_deadline: Duration::from_secs(20),
            twilio: None,
        }
    }
}
