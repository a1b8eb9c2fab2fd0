//! The server: accept loop, admission, drain.
//!
//! `run` serves until its token is cancelled, then drains: `/readyz` turns red, no session is
//! admitted any more, each session is asked to finish its turn, and what is left at the deadline
//! is closed.

mod accept;
mod access;
mod admission;
mod api;
mod connections;
mod doors;
mod errors;
mod page;
mod playground;
mod routes;
mod secrets;
mod settings;
mod shared;
mod twilio;
mod upgrade;

pub use crate::session::{SessionError, SessionFactory, SessionOptions};
pub use crate::transport::pump::{Counters, SocketLimits};
pub use admission::Room;
pub use connections::within_files;
pub use playground::{Playground, Question, Say};
pub use settings::ServerSettings;
pub use shared::Renewed;
pub use twilio::{TransferCall, Twilio};

use crate::metrics::Metrics;
use crate::session::Engines;
use crate::transport::phone::tickets::{TicketMemory, TicketStore};
use crate::transport::pump::PumpContext;
use crate::transport::wyoming::{self, ConversationMemory, ConversationStore};
use accept::accept;
use admission::Admission;
use axum::Router;
use axum::http::StatusCode;
use connections::{Connections, Place, Socket};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use secrets::Secrets;
use shared::Shared;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The answer of `/healthz`.
pub(crate) const HEALTHY: &str = "ok";

/// Bytes that the kernel may hold for a client that does not read (Linux doubles it). Left to
/// itself it takes 4 MB, more than a minute of audio.
const SEND_BUFFER: u32 = 32 * 1024;

/// The same for an AudioSocket call, whose frames are a third of a kilobyte: what a stalled one has not
/// been sent can still be dropped.
const CALL_SEND_BUFFER: u32 = 8 * 1024;

/// Connections that may wait to be accepted.
const LISTEN_BACKLOG: u32 = 1024;

/// How long closing the last sockets may take after the drain deadline.
const GRACE: Duration = Duration::from_secs(2);

/// How long a request may take to be answered, its body included.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a connection may wait for its next request, and the longest that a client may take to read
/// an answer: proxies keep connections open for about that long.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The application that the server serves.
pub struct App {
    /// How.
    pub settings: ServerSettings,
    /// Opens the sessions.
    pub sessions: SessionFactory,
    /// Says whether the models can serve one more session.
    pub room: Room,
    /// Where Asterisk's AudioSocket calls come in, from [`bind_audiosocket`].
    pub audiosocket: Option<TcpListener>,
    /// Where Wyoming clients come in, from [`bind_wyoming`], and the models that they use.
    pub wyoming: Option<(TcpListener, Arc<Engines>)>,
    /// Tickets of Twilio's calls that were answered and have not begun their stream.
    pub tickets: Arc<dyn TicketStore>,
    /// Conversations with Wyoming clients, between two sentences.
    pub conversations: Arc<dyn ConversationStore>,
    /// Routes beside the server's own, which they must not repeat.
    pub routes: Router,
    /// Counted into.
    pub counters: Arc<Counters>,
    /// The figures of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The description of this server for the page at `/`.
    pub playground: Playground,
    /// Who comes in later is served by what was sent here last, in place of `settings` and
    /// `playground`.
    pub renewed: Option<watch::Receiver<Renewed>>,
}

impl App {
    /// An app without further routes.
    pub fn new(settings: ServerSettings, sessions: SessionFactory) -> Self {
        Self {
            settings,
            sessions,
            room: Arc::new(|| true),
            audiosocket: None,
            wyoming: None,
            tickets: Arc::new(TicketMemory::default()),
            conversations: Arc::new(ConversationMemory::default()),
            routes: Router::new(),
            counters: Arc::default(),
            metrics: Arc::default(),
            playground: Playground::default(),
            renewed: None,
        }
    }
}

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        reason: io::Error,
    },
    /// The listener is broken.
    #[error("the listener has no address: {0}")]
    Listener(#[from] io::Error),
}

/// Listens on `address` with send buffers fit for audio.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    listen(address, SEND_BUFFER)
}

/// Listens on `address` for AudioSocket calls. The protocol knows no tokens: whoever reaches the
/// address may talk.
pub fn bind_audiosocket(address: SocketAddr) -> Result<TcpListener, ServerError> {
    listen(address, CALL_SEND_BUFFER)
}

/// Listens on `address` for Wyoming clients. The protocol knows no tokens: whoever reaches the address
/// may use it.
pub fn bind_wyoming(address: SocketAddr) -> Result<TcpListener, ServerError> {
    listen(address, SEND_BUFFER)
}

fn listen(address: SocketAddr, send_buffer: u32) -> Result<TcpListener, ServerError> {
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.set_send_buffer_size(send_buffer)?;
        socket.bind(address)?;
        socket.listen(LISTEN_BACKLOG)
    };
    listen().map_err(|reason| ServerError::Bind { address, reason })
}

/// Serves `app` on `listener` until `shutdown` is cancelled and the sessions are over.
pub async fn run(
    listener: TcpListener,
    app: App,
    shutdown: CancellationToken,
) -> Result<(), ServerError> {
    let stop = CancellationToken::new();
    let deadline = app.settings.drain_deadline;
    let shared = Arc::new(Shared {
        address: listener.local_addr()?,
        admission: Admission {
            places: Arc::new(Semaphore::new(app.settings.max_sessions)),
            room: app.room,
            drain: shutdown.clone(),
            metrics: app.metrics.clone(),
        },
        connections: Connections::new(app.settings.max_connections, app.metrics.clone()),
        tasks: TaskTracker::new(),
        context: PumpContext {
            sessions: app.sessions,
            limits: app.settings.socket,
            counters: app.counters,
            drain: shutdown.clone(),
            stop: stop.clone(),
        },
        metrics: app.metrics,
        tickets: app.tickets,
        secrets: Secrets::new(app.settings.client_secret_key.clone()),
        renewed: app.renewed.unwrap_or_else(|| {
            let always = Renewed::new(app.settings, app.playground);
            watch::channel(always).1
        }),
    });
    let router = routes::router(shared.clone()).merge(app.routes);
    let tasks = shared.tasks.clone();
    let audiosocket = app.audiosocket;
    let wyoming = app.wyoming.map(|(listener, engines)| {
        let service = wyoming::Service::new(engines, app.conversations);
        (listener, service)
    });
    tokio::select! {
        never = accept_requests(&listener, router, &shared) => match never {},
        never = doors::accept_calls(audiosocket.as_ref(), &shared) => match never {},
        never = doors::accept_wyoming(wyoming.as_ref(), &shared) => match never {},
        () = drained(&shutdown, &tasks, deadline) => {}
    }
    drop((listener, audiosocket, wyoming));
    stop.cancel();
    if timeout(GRACE, tasks.wait()).await.is_err() {
        tracing::warn!(left = tasks.len(), "sockets did not close in time");
    }
    Ok(())
}

/// Waits for the shutdown and then until all sessions are over, at most until the deadline.
async fn drained(shutdown: &CancellationToken, tasks: &TaskTracker, deadline: Duration) {
    shutdown.cancelled().await;
    tracing::info!(sessions = tasks.len(), "draining");
    tasks.close();
    if timeout(deadline, tasks.wait()).await.is_err() {
        tracing::warn!(left = tasks.len(), "the drain deadline has passed");
    }
}

async fn accept_requests(
    listener: &TcpListener,
    router: Router,
    shared: &Arc<Shared>,
) -> Infallible {
    let serve = |stream, place| {
        let serve = serve(stream, place, router.clone(), shared.clone());
        tokio::spawn(serve);
    };
    accept(listener, &shared.connections, serve).await
}

/// Serves one connection until it ends or becomes a WebSocket.
async fn serve(stream: TcpStream, place: Arc<Place>, router: Router, shared: Arc<Shared>) {
    let header_timeout = shared.settings().header_timeout;
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    // Its own deadline does not begin before the first byte: `overdue` is ours.
    builder.http1().header_read_timeout(None);
    let (router, asked) = (TowerToHyperService::new(router), place.clone());
    let service = service_fn(move |request| {
        asked.serve();
        let (answer, asked) = (router.call(request), asked.clone());
        async move {
            let answer = answer.await?;
            if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                asked.answered();
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let socket = TokioIo::new(Socket::new(stream, place.clone()));
    let connection = builder.serve_connection_with_upgrades(socket, service);
    tokio::select! {
        biased;
        // One that gives way serves nobody any more.
        () = place.displaced() => {}
        () = shared.context.stop.cancelled() => {}
        result = connection => if let Err(error) = result {
            tracing::debug!(%error, "connection ends");
        },
        () = place.overdue(header_timeout, ANSWER, KEEP_ALIVE) => {}
    }
}
