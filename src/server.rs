//! The server: accept loop, admission, drain.
//!
//! `run` serves until its token is cancelled, then drains: `/readyz` turns red, no session is
//! admitted any more, each session is asked to finish its turn, and what is left at the deadline
//! is closed.

mod access;
mod api;
mod connections;
mod doors;
mod playground;
mod routes;
mod secrets;
mod twilio;

pub use crate::session::{SessionError, SessionFactory, SessionOptions};
pub use crate::transport::socket::{Counters, SocketLimits};
pub use connections::within_files;
pub use playground::{Playground, Question, Say};
pub use twilio::{TransferCall, Twilio};

use crate::conversation::{TextLimits, VadPolicy};
use crate::metrics::{Metrics, Refusal};
use crate::session::Engines;
use crate::telemetry::Throttle;
use crate::transport::intake::IntakeLimits;
use crate::transport::phone::tickets::Tickets;
use crate::transport::socket::Surroundings;
use axum::Router;
use axum::http::StatusCode;
use connections::{Connections, Place, Socket};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use secrecy::SecretString;
use secrets::Secrets;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
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

/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a request may take to be answered, its body included.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a connection may wait for its next request, and the longest that a client may take to read
/// an answer: proxies keep connections open for about that long.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

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

/// Says whether one more session finds the models free, and counts it if so. Must not block.
pub type Room = Arc<dyn Fn() -> bool + Send + Sync>;

/// The parts that may change while the server runs; of the settings, those of access control.
#[derive(Clone)]
pub struct Renewed {
    /// How to serve.
    pub settings: Arc<ServerSettings>,
    /// The description of this server for the page at `/`.
    pub playground: Arc<Playground>,
}

impl Renewed {
    /// For who comes in from now on.
    pub fn new(settings: ServerSettings, playground: Playground) -> Self {
        Self {
            settings: Arc::new(settings),
            playground: Arc::new(playground),
        }
    }
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

/// Everything that handlers share.
struct Shared {
    renewed: watch::Receiver<Renewed>,
    /// The address that is listened on.
    address: SocketAddr,
    admission: Arc<Semaphore>,
    room: Room,
    connections: Arc<Connections>,
    tasks: TaskTracker,
    around: Surroundings,
    metrics: Arc<Metrics>,
    /// Of Twilio's calls that were answered and have not begun their stream.
    tickets: Arc<Mutex<Tickets>>,
    secrets: Secrets,
}

impl Shared {
    /// How to serve who comes in now.
    fn settings(&self) -> Arc<ServerSettings> {
        self.renewed.borrow().settings.clone()
    }

    /// A place for one more session, unless the server drains, is full, or has as much to do as it can.
    /// One that was `promised` a place finds it however much there is to do.
    fn place(&self, promised: bool) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = self.place_among(&self.admission)?;
        if !promised && !(self.room)() {
            self.metrics.refused(Refusal::Overloaded);
            return Err(Refusal::Overloaded);
        }
        Ok(permit)
    }

    /// One of `places`, unless the server drains.
    fn place_among(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = match places.clone().try_acquire_owned() {
            _ if self.around.drain.is_cancelled() => Err(Refusal::Draining),
            Err(_) => Err(Refusal::Full),
            Ok(permit) => Ok(permit),
        };
        permit.inspect_err(|refusal| self.metrics.refused(*refusal))
    }

    fn playground(&self) -> Arc<Playground> {
        self.renewed.borrow().playground.clone()
    }
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
        admission: Arc::new(Semaphore::new(app.settings.max_sessions)),
        room: app.room,
        connections: Connections::new(app.settings.max_connections, app.metrics.clone()),
        tasks: TaskTracker::new(),
        around: Surroundings {
            sessions: app.sessions,
            limits: app.settings.socket,
            counters: app.counters,
            drain: shutdown.clone(),
            stop: stop.clone(),
        },
        metrics: app.metrics,
        tickets: Arc::default(),
        secrets: Secrets::new(app.settings.client_secret_key.clone()),
        renewed: app.renewed.unwrap_or_else(|| {
            let always = Renewed::new(app.settings, app.playground);
            watch::channel(always).1
        }),
    });
    let router = routes::router(shared.clone()).merge(app.routes);
    let tasks = shared.tasks.clone();
    let (audiosocket, wyoming) = (app.audiosocket, app.wyoming);
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

/// Accepts connections for ever, and sends audio at once when it is written.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Connections>,
    mut serve: impl FnMut(TcpStream, Arc<Place>),
) -> Infallible {
    let mut warnings = Throttle::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "no TCP_NODELAY");
                }
                match connections.place(client.ip()).await {
                    Some(place) => serve(stream, place),
                    None => warnings.warn(|more| {
                        tracing::warn!(more, "a connection is closed: too many are being served");
                    }),
                }
            }
            Err(error) => {
                warnings.warn(|more| tracing::warn!(%error, more, "cannot accept"));
                connections.make_room();
                sleep(ACCEPT_PAUSE).await;
            }
        }
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
        () = shared.around.stop.cancelled() => {}
        result = connection => if let Err(error) = result {
            tracing::debug!(%error, "connection ends");
        },
        () = place.overdue(header_timeout, ANSWER, KEEP_ALIVE) => {}
    }
}
