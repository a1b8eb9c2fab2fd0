//! State that the handlers of all connections share.

use super::admission::Admission;
use super::connections::Connections;
use super::limits::Openings;
use super::outbound::PlacedCalls;
use super::playground::Playground;
use super::resume::Resumptions;
use super::secrets::Secrets;
use super::settings::ServerSettings;
use super::speech::Speech;
use super::tls::Tls;
use crate::metrics::Metrics;
use crate::transport::phone::tickets::Tickets;
use crate::transport::pump::PumpContext;
use crate::transport::webrtc::Port;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// The settings for clients that connect from now on. The address, the session and connection
/// limits and the key of client secrets are fixed at the start.
#[derive(Clone)]
pub struct Renewed {
    /// The server's settings.
    pub settings: Arc<ServerSettings>,
    /// The description of this server for the page at `/`.
    pub playground: Arc<Playground>,
}

impl Renewed {
    /// Settings and playground for new clients.
    pub fn new(settings: ServerSettings, playground: Playground) -> Self {
        Self {
            settings: Arc::new(settings),
            playground: Arc::new(playground),
        }
    }
}

/// State that the handlers of all connections share.
pub(super) struct Shared {
    pub(super) renewed: watch::Receiver<Renewed>,
    /// The address that the server listens on.
    pub(super) address: SocketAddr,
    pub(super) admission: Admission,
    pub(super) connections: Arc<Connections>,
    pub(super) tasks: TaskTracker,
    pub(super) context: PumpContext,
    pub(super) metrics: Arc<Metrics>,
    /// Issues and redeems the tickets of Twilio calls.
    pub(super) tickets: Tickets,
    /// How many sessions clients have opened within the last minute.
    pub(super) openings: Openings,
    /// The calls that the server has placed.
    pub(super) placed: PlacedCalls,
    pub(super) secrets: Secrets,
    /// The sessions whose clients may come back.
    pub(super) resumptions: Resumptions,
    pub(super) speech: Option<Speech>,
    /// The port of calls over WebRTC.
    pub(super) calls: Option<Arc<Port>>,
    /// TLS on the server's own port.
    pub(super) tls: Option<Arc<Tls>>,
}

impl Shared {
    /// The settings for a client that connects now.
    pub(super) fn settings(&self) -> Arc<ServerSettings> {
        self.renewed.borrow().settings.clone()
    }

    /// The description of this server for the page at `/`.
    pub(super) fn playground(&self) -> Arc<Playground> {
        self.renewed.borrow().playground.clone()
    }
}
