//! A connection to an MCP server, through the official SDK.

use super::oauth::OauthError;
use super::web::{Headers, Web, has_no_time, is_unseen, plain};
use super::{Link, McpServer, Program};
use crate::tools::subprocess::Group;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProtocolVersion,
    ServerNotification, SubscriptionFilter,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt,
    NotificationContext, Peer, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How long connecting may take. A program may have to be fetched first, as `uvx` does.
const CONNECT: Duration = Duration::from_secs(60);
/// How long a server may take for one page of its tools.
pub(super) const LIST: Duration = Duration::from_secs(10);
/// The same for a program that may be at work on a call, even on one whose time is over: many do one thing at a time.
/// As long as the longest call.
pub(super) const LIST_AT_WORK: Duration = Duration::from_secs(120);
/// The pause before a subscription that has ended is made again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(10);
const MOST_PAGES: usize = 20;
const MOST_TOOLS: usize = 512;
/// The largest list of tools, bytes of JSON.
const LARGEST_LIST: usize = 256 * 1024;
/// The largest message of a server, bytes. A longer one is dropped and its call ends with its timeout, so this is far
/// beyond [`LARGEST_LIST`] and the largest result, whose errors say what is too large.
const LARGEST_MESSAGE: usize = 8 * 1024 * 1024;

/// An error of a server. It is for the operator and contains no secrets.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// Its program cannot be started.
    #[error("cannot start {program}: {reason}")]
    Start {
        /// The program.
        program: String,
        /// The reason.
        reason: std::io::Error,
    },
    /// There is no HTTP client.
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[source] reqwest::Error),
    /// There is no token for it.
    #[error(transparent)]
    Oauth(Box<OauthError>),
    /// It does not speak with us.
    #[error("cannot connect: {}", reason(.0))]
    Connect(Box<ClientInitializeError>),
    /// A header for it cannot be sent.
    #[error("the value for the header {0} has characters that no header may have")]
    Header(HeaderName),
    /// It does not answer.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// A request failed.
    #[error("{}", words(.0))]
    Request(ServiceError),
    /// Its list of tools is out of bounds.
    #[error("its list of tools {0}")]
    List(String),
    /// It has closed the connection.
    #[error("it closed the connection")]
    Closed,
}

impl McpError {
    /// Whether the server was reached and may refuse the way in which the connection was begun.
    fn is_of_beginning(&self) -> bool {
        match self {
            Self::Connect(error) => is_of_beginning(error),
            _ => false,
        }
    }

    /// Whether the server was asked too often or has no time at the moment, and may be well otherwise.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Request(ServiceError::TransportSend(error)) if has_no_time(error))
    }
}

fn is_of_beginning(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => !is_unseen(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_of_beginning(fallback),
        _ => true,
    }
}

/// How the two sides begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Ask for the revision without a handshake first (2026-07-28), then shake hands.
    Either,
    /// Shake hands (revisions up to 2025-11-25). Some older programs end when they are asked anything
    /// before.
    Handshake,
}

impl Beginning {
    /// How to begin after a connection to a program or another server that has ended in this way.
    pub(super) fn after(self, error: &McpError, is_program: bool) -> Self {
        match (self, error) {
            (Self::Either, error) if error.is_of_beginning() => Self::Handshake,
            (Self::Handshake, McpError::Connect(_)) => Self::Either,
            // A program stays the same one.
            (Self::Handshake, _) if is_program => Self::Handshake,
            _ => Self::Either,
        }
    }
}

/// A connection. Dropping it ends the server's program.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    /// Runs until the connection ends.
    running: Option<RunningService<RoleClient, Listener>>,
    changed: Arc<Notify>,
    subscription: Option<AbortHandle>,
    /// The server's name.
    name: String,
    /// Its list is warned of once.
    cut: Once,
    _program: Option<Group>,
}

impl Connection {
    pub(super) async fn open(server: &McpServer, beginning: Beginning) -> Result<Self, McpError> {
        let opening = Self::open_at_leisure(server, beginning);
        let opened = tokio::time::timeout(CONNECT, opening).await;
        opened.map_err(|_| McpError::Late(CONNECT))?
    }

    async fn open_at_leisure(server: &McpServer, beginning: Beginning) -> Result<Self, McpError> {
        let changed = Arc::new(Notify::new());
        let listener = Listener(changed.clone());
        let mode = match beginning {
            Beginning::Either => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: None,
            },
            Beginning::Handshake => ClientLifecycleMode::Initialize,
        };
        let (running, program) = match &server.link {
            Link::Program(program) => {
                let (group, transport) = start(&server.name, program)?;
                (
                    listener.serve_with_lifecycle(transport, mode).await,
                    Some(group),
                )
            }
            Link::Http {
                url,
                access,
                headers,
            } => {
                let headers = readable(headers)?;
                let transport = http(url, headers, Web::open(url, access).await?);
                (listener.serve_with_lifecycle(transport, mode).await, None)
            }
        };
        let running = running.map_err(|error| McpError::Connect(error.into()))?;
        // Otherwise an old list would be given for a new one.
        let (peer, cache) = (running.peer().clone(), ClientCacheConfig::disabled());
        peer.set_response_cache_config(cache).await;
        let info = peer.peer_info();
        let is_modern =
            info.is_some_and(|info| info.protocol_version >= ProtocolVersion::NO_INITIALIZE);
        let subscription = is_modern.then(|| {
            let listening = subscribe(peer.clone(), changed.clone());
            tokio::spawn(listening).abort_handle()
        });
        Ok(Self {
            peer,
            running: Some(running),
            changed,
            subscription,
            name: server.name.clone(),
            cut: Once::new(),
            _program: program,
        })
    }

    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.peer.clone()
    }

    /// Waits until the server says that its tools have changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until the connection ends; dropped, it ends it. Only once.
    pub(super) fn ended(&mut self) -> impl Future<Output = ()> + use<> {
        let running = self.running.take();
        async move {
            if let Some(running) = running {
                drop(running.waiting().await);
            }
        }
    }

    /// The tool objects that the server lists, of which each page may take `limit`.
    pub(super) async fn list(&self, limit: Duration) -> Result<Vec<Value>, McpError> {
        let (mut tools, mut size, mut cursor) = (Vec::new(), 0, None);
        let (mut names, mut cursors) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..MOST_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = self.peer.list_tools(Some(page));
            let page = tokio::time::timeout(limit, page).await;
            let page = page.map_err(|_| McpError::Late(limit))?;
            let page = page.map_err(McpError::Request)?;
            let listed = page.tools.iter().map(serde_json::to_value);
            let listed: Result<Vec<Value>, _> = listed.collect();
            let listed = listed.map_err(|error| McpError::List(error.to_string()))?;
            if !listed.is_empty() && tools.ends_with(&listed) {
                self.warn_of_cut("it lists the same page again");
                return Ok(tools);
            }
            if let Some(twin) = page
                .tools
                .iter()
                .find(|tool| !names.insert(tool.name.to_string()))
            {
                return Err(McpError::List(format!("has two named {:?}", twin.name)));
            }
            size += listed
                .iter()
                .map(|tool| tool.to_string().len())
                .sum::<usize>();
            tools.extend(listed);
            if tools.len() > MOST_TOOLS {
                return Err(McpError::List(format!("has more than {MOST_TOOLS} tools")));
            }
            if size > LARGEST_LIST {
                return Err(McpError::List(format!(
                    "has more than {LARGEST_LIST} bytes"
                )));
            }
            let Some(next) = page.next_cursor.filter(|next| !next.is_empty()) else {
                return Ok(tools);
            };
            if !cursors.insert(next.clone()) {
                self.warn_of_cut("it names a page as the next one that was read before");
                return Ok(tools);
            }
            cursor = Some(next);
        }
        Err(McpError::List(format!("has more than {MOST_PAGES} pages")))
    }

    fn warn_of_cut(&self, why: &str) {
        self.cut.call_once(|| {
            tracing::warn!(
                server = self.name,
                why,
                "the list of an MCP server's tools has no end: later pages may be missing"
            );
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.abort();
        }
    }
}

/// Connects to a server and lists its tools.
///
/// # Errors
/// [`McpError`].
pub async fn list(server: &McpServer) -> Result<Vec<Value>, McpError> {
    let connection = match Connection::open(server, Beginning::Either).await {
        Err(error) if error.is_of_beginning() => {
            Connection::open(server, Beginning::Handshake).await?
        }
        opened => opened?,
    };
    connection.list(LIST).await
}

/// Hears what a server says unasked. It offers no sampling and declines to be asked for input, which are
/// the SDK's defaults.
struct Listener(Arc<Notify>);

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}

/// Asks a server without a handshake to tell of changes, again whenever it stops to.
async fn subscribe(peer: Peer<RoleClient>, changed: Arc<Notify>) {
    let filter = || SubscriptionFilter::builder().tools_list_changed().build();
    loop {
        let mut subscription = match peer.listen(filter()).await {
            Ok(subscription) => subscription,
            // It has no subscriptions: its list is read again from time to time.
            Err(ServiceError::McpError(_)) => return,
            Err(_) => {
                tokio::time::sleep(SUBSCRIBE_AGAIN).await;
                continue;
            }
        };
        while let Ok(Some(told)) = subscription.next().await {
            if matches!(told, ServerNotification::ToolListChangedNotification(_)) {
                changed.notify_one();
            }
        }
        // It may have changed meanwhile.
        changed.notify_one();
        tokio::time::sleep(SUBSCRIBE_AGAIN).await;
    }
}

type Stdio = AsyncRwTransport<RoleClient, tokio::process::ChildStdout, tokio::process::ChildStdin>;

fn start(name: &str, program: &Program) -> Result<(Group, Stdio), McpError> {
    let failed = |reason| McpError::Start {
        program: program.program.display().to_string(),
        reason,
    };
    let (group, stdin, stdout) = Group::talking(name, program).map_err(failed)?;
    let transport = AsyncRwTransport::new(stdout, stdin).with_max_line_length(LARGEST_MESSAGE);
    Ok((group, transport))
}

/// The part of an error that tells the cause.
fn reason(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => plain(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => reason(fallback),
        error => error.to_string(),
    }
}

/// The words of a failed request, without the SDK's names for its parts.
pub(super) fn words(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(refused) => refused.message.to_string(),
        ServiceError::TransportSend(error) => plain(error),
        error => error.to_string(),
    }
}

/// The headers for the SDK, which are not logged.
fn readable(headers: &[(HeaderName, SecretString)]) -> Result<Headers, McpError> {
    let headers = headers.iter().map(|(name, value)| {
        let value = HeaderValue::from_str(value.expose_secret());
        let mut value = value.map_err(|_| McpError::Header(name.clone()))?;
        value.set_sensitive(true);
        Ok((name.clone(), value))
    });
    headers.collect()
}

fn http(url: &url::Url, headers: Headers, web: Web) -> StreamableHttpClientTransport<Web> {
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(LARGEST_MESSAGE)
        .max_json_response_size(LARGEST_MESSAGE)
        // Otherwise a call would be sent again when the server has forgotten the session.
        .reinit_on_expired_session(false);
    StreamableHttpClientTransport::with_client(web, config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_begun_otherwise_after_a_refusal() {
        let refused = ClientInitializeError::ConnectionClosed("it ended".into());
        let refused = McpError::Connect(refused.into());
        use Beginning::{Either, Handshake};
        for is_program in [false, true] {
            assert_eq!(Either.after(&refused, is_program), Handshake);
            assert_eq!(Handshake.after(&refused, is_program), Either);
            for lost in [McpError::Closed, McpError::Late(LIST)] {
                assert_eq!(Either.after(&lost, is_program), Either);
                // A server may be another one when it is there again.
                let again = if is_program { Handshake } else { Either };
                assert_eq!(Handshake.after(&lost, is_program), again);
            }
        }
    }
}
