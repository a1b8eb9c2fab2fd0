//! The server: accept loop, admission, drain.
//!
//! `run` serves until its token is cancelled, then drains: `/readyz` fails, new sessions are
//! refused, each session is asked to finish its turn, and sessions still open at the deadline are
//! closed.
//!
//! | files | subject |
//! |---|---|
//! | `accept`, `connections`, `tls` | the accept loop; how many connections, and which one gives way; TLS |
//! | `access`, `admission`, `limits`, `secrets` | who may open a session; whether there is a place; sessions a minute; client secrets |
//! | `routes`, `upgrade`, `client`, `realtime_client`, `choice` | from a request to a session, and the agent that it may choose |
//! | `resume` | clients that come back to their session after their connection was lost |
//! | `calls`, `twilio`, `doors`, `outbound` | WebRTC calls; Twilio's webhooks and sockets; bare TCP; calls that the server places |
//! | `api`, `errors`, `headers` | the other endpoints of the Realtime API; headers of all responses |
//! | `speech` | OpenAI's audio API, between the sessions' jobs |
//! | `page`, `playground`, `demonstration` | the page, its data, and the slow shop that it shows |
//! | `settings`, `shared` | the server's settings; what all handlers share |

mod accept;
mod access;
mod admission;
mod api;
mod calls;
mod choice;
mod client;
mod connections;
mod demonstration;
mod doors;
mod errors;
mod headers;
mod limits;
mod outbound;
mod page;
mod playground;
mod realtime_client;
mod resume;
mod routes;
mod secrets;
mod settings;
mod shared;
mod speech;
mod tls;
mod twilio;
mod upgrade;

pub use crate::session::{SessionError, SessionFactory, SessionOptions};
pub use crate::transport::pump::{Counters, SocketLimits};
pub use admission::Room;
pub use choice::Choosable;
pub use connections::within_files;
pub use demonstration::{ANYWHERE, Demonstration, DemonstrationError};
pub use limits::OpeningLimits;
pub(crate) use outbound::is_telephone_number;
pub use outbound::{Ari, OutboundCalls, OutboundLine};
pub use playground::{Offered, Playground, Question, Say};
pub use settings::ServerSettings;
pub use shared::Renewed;
pub use tls::{AcmeSettings, Certificate, Tls, TlsError, TlsSettings};
pub use twilio::{TransferCall, Twilio};

use crate::metrics::Metrics;
use crate::session::LiveEngines;
use crate::transport::door::Door;
use crate::transport::phone::tickets::{TicketMemory, TicketStore, Tickets};
use crate::transport::pump::PumpContext;
use crate::transport::webrtc;
use accept::accept;
use admission::{Admission, Closing};
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use connections::{Connections, Place, Socket};
use hyper::server::conn::http1::Builder;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use outbound::PlacedCalls;
use secrets::Secrets;
use shared::Shared;
use speech::Speech;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// The response body of `/healthz`.
pub(crate) const HEALTHY: &str = "ok";

/// The send buffer, bytes, which bounds how much audio the kernel holds for a client that does not
/// read (Linux doubles it). By default it grows to 4 MB, more than a minute of audio.
const SEND_BUFFER: u32 = 32 * 1024;

/// The most connections that may wait to be accepted.
const LISTEN_BACKLOG: u32 = 1024;

/// How long before the drain deadline telephone calls say goodbye: time for the current turn. At most half of the drain.
const FAREWELL: Duration = Duration::from_secs(15);

/// How often it is looked, during a drain, for calls that were promised a place and did not connect.
const LOOK: Duration = Duration::from_secs(1);

/// How long closing the last sockets may take after the drain deadline.
const GRACE: Duration = Duration::from_secs(2);

/// The longest that answering a request may take, including reading its body.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a connection may be idle before its next request: longer than load balancers keep theirs by default (ten
/// minutes at most), so that none sends a request into a connection that is being closed here.
const KEEP_ALIVE: Duration = Duration::from_secs(620);

/// Everything that the server needs to serve.
pub struct App {
    /// The server's settings.
    pub settings: ServerSettings,
    /// Opens sessions.
    pub sessions: SessionFactory,
    /// Decides whether the models can serve one more session.
    pub room: Room,
    /// The listeners for protocols other than HTTP, from [`bind`] or [`bind_with`]. These protocols
    /// have no authentication: anyone who can reach the address may talk.
    pub doors: Vec<(TcpListener, Arc<dyn Door>)>,
    /// Remembers the tickets of Twilio calls that have started their stream.
    pub tickets: Arc<dyn TicketStore>,
    /// The models behind `/v1/audio`; without them these routes say that there are none.
    pub speech: Option<Arc<dyn LiveEngines>>,
    /// The UDP port of calls over WebRTC, from [`webrtc::bind`]; without it there are none.
    pub webrtc: Option<webrtc::Bound>,
    /// TLS on the server's own port; without it that port speaks plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Additional routes; they must not overlap with the server's own.
    pub routes: Router,
    /// The counters of all connections.
    pub counters: Arc<Counters>,
    /// The metrics behind `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The description of this server for the page at `/`.
    pub playground: Playground,
    /// If set, new clients are served with the latest value sent here instead of `settings` and
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
            doors: Vec::new(),
            tickets: Arc::new(TicketMemory::default()),
            speech: None,
            webrtc: None,
            tls: None,
            routes: Router::new(),
            counters: Arc::default(),
            metrics: Arc::default(),
            playground: Playground::default(),
            renewed: None,
        }
    }
}

/// The reason the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {reason}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        reason: io::Error,
    },
    /// A socket is broken.
    #[error("a socket cannot be used: {0}")]
    Listener(#[from] io::Error),
}

/// Listens on `address` with send buffers sized for audio.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    bind_with(address, SEND_BUFFER)
}

/// Listens on `address`. `send_buffer`, in bytes, bounds what the kernel holds for a client that does
/// not read (Linux doubles it).
pub fn bind_with(address: SocketAddr, send_buffer: u32) -> Result<TcpListener, ServerError> {
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
    let mut webrtc = app.webrtc;
    let tcp = webrtc.as_mut().and_then(webrtc::Bound::listener);
    let calls = webrtc.map(|bound| webrtc::Port::new(bound, app.metrics.clone()));
    let calls = calls.transpose()?.map(Arc::new);
    let closing = Closing {
        drain: shutdown.clone(),
        farewell: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    let (farewell, tasks) = (closing.farewell.clone(), closing.tasks.clone());
    let shared = Arc::new(Shared {
        address: listener.local_addr()?,
        admission: Admission::new(
            app.settings.max_sessions,
            app.room,
            closing,
            app.metrics.clone(),
        ),
        connections: Connections::new(app.settings.max_connections, app.metrics.clone()),
        tasks,
        context: PumpContext {
            sessions: app.sessions,
            limits: app.settings.socket,
            counters: app.counters,
            drain: shutdown,
            farewell,
            stop: stop.clone(),
        },
        metrics: app.metrics,
        tickets: Tickets::new(app.settings.client_secret_key.clone(), app.tickets),
        placed: PlacedCalls::default(),
        speech: app.speech.map(Speech::new),
        calls: calls.clone(),
        tls: app.tls.clone(),
        openings: limits::Openings::default(),
        secrets: Secrets::new(app.settings.client_secret_key.clone()),
        resumptions: resume::Resumptions::default(),
        renewed: app.renewed.unwrap_or_else(|| {
            let always = Renewed::new(app.settings, app.playground);
            watch::channel(always).1
        }),
    });
    let router = routes::router(shared.clone()).merge(app.routes);
    let router = router.layer(from_fn_with_state(shared.clone(), headers::secured));
    let tasks = shared.tasks.clone();
    let doors = app.doors;
    let _certified = app.tls.map(|tls| {
        let metrics = shared.metrics.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { tls.keep(&metrics).await }))
    });
    // Beyond the drain, until the last calls have said goodbye.
    let _receiving = calls
        .map(|calls| AbortOnDropHandle::new(tokio::spawn(async move { calls.receive().await })));
    tokio::select! {
        never = accept_requests(&listener, router, &shared) => match never {},
        never = doors::accept_clients(&doors, &shared) => match never {},
        never = calls::accept_tcp(tcp.as_ref(), &shared) => match never {},
        () = drained(&shared, deadline) => {}
    }
    drop((listener, doors, tcp));
    stop.cancel();
    if timeout(GRACE, tasks.wait()).await.is_err() {
        tracing::warn!(left = tasks.len(), "sockets did not close in time");
    }
    Ok(())
}

/// Waits for shutdown, then for all sessions to end or the deadline to pass.
async fn drained(shared: &Shared, deadline: Duration) {
    let (context, tasks) = (&shared.context, &shared.tasks);
    context.drain.cancelled().await;
    tracing::info!(sessions = tasks.len(), "draining");
    tasks.close();
    let last = FAREWELL.min(deadline / 2);
    let all_ended = async {
        while timeout(LOOK, tasks.wait()).await.is_err() {
            shared.admission.free_overdue();
        }
    };
    if timeout(deadline - last, all_ended).await.is_ok() {
        return;
    }
    context.farewell.cancel();
    shared.admission.free_overdue();
    if timeout(last, tasks.wait()).await.is_err() {
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
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: headers have a deadline"
)]
async fn serve(stream: TcpStream, place: Arc<Place>, router: Router, shared: Arc<Shared>) {
    let accepted = Instant::now();
    let Some(stream) = calls::serve_tcp(stream, &place, &shared).await else {
        return;
    };
    let header_timeout = shared.settings().header_timeout;
    let header_timeout = header_timeout.saturating_sub(accepted.elapsed());
    let mut builder = Builder::new();
    // hyper's header timeout starts with the first byte; `overdue` covers the time before it, too.
    builder.header_read_timeout(None);
    let (router, asked) = (TowerToHyperService::new(router), place.clone());
    let service = service_fn(move |mut request: hyper::Request<_>| {
        let is_served = asked.serve();
        request.extensions_mut().insert(asked.clone());
        let (answer, asked) = (router.call(request), asked.clone());
        async move {
            if !is_served {
                // It was displaced, and is about to be dropped.
                return pending::<Result<_, Infallible>>().await;
            }
            let answer = answer.await?;
            if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                asked.answered();
            } else if !asked.admitted() {
                return pending().await;
            }
            Ok(answer)
        }
    });
    let connection = async {
        let Some(stream) = tls::open(stream, &place, shared.tls.as_deref()).await else {
            return;
        };
        let socket = TokioIo::new(Socket::new(stream, place.clone()));
        let served = builder.serve_connection(socket, service).with_upgrades();
        if let Err(error) = served.await {
            tracing::debug!(%error, "the connection ended");
        }
    };
    tokio::select! {
        biased;
        // A displaced connection is dropped.
        () = place.displaced() => {}
        () = shared.context.stop.cancelled() => {}
        () = connection => {}
        () = place.overdue(header_timeout, ANSWER, KEEP_ALIVE) => {}
    }
}
