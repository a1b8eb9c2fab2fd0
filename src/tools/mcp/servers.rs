//! Keeps the connections to MCP servers, and offers the tools that are as they were pinned.
//!
//! One task a connection connects and lists: at the start, when the server says that its tools have changed, once a
//! minute, and after a call that failed. A connection that is lost is made again, with growing pauses. Another task
//! for each set of tools compares the list with the pins. A connection is shared by the sets whose configurations
//! name the server in the same way, as those before and after a reload do.

use super::connection::{Beginning, Connection, LIST, LIST_AT_WORK, McpError};
use super::figures::{McpFigures, Round};
use super::pins::Pin;
use super::text::shortened;
use super::{Link, McpPlan, McpServer};
use crate::tools::http::causes;
use crate::tools::live::WeakTools;
use crate::tools::{LiveTools, RouterHints, Tool, ToolError};
use rmcp::service::{Peer, RoleClient};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// The pause before the first attempt to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a server is asked for its tools although it tells of no change.
const LIST_AGAIN: Duration = Duration::from_secs(60);
/// The longest cause in the log, characters.
const LONGEST_CAUSE: usize = 500;

/// A server as its tools see it. Dropping it ends the connection.
pub(crate) struct Client {
    server: Arc<McpServer>,
    status: Arc<Status>,
    keeping: OnceLock<AbortOnDropHandle<()>>,
}

struct Status {
    state: watch::Sender<State>,
    /// A call has failed.
    suspected: Notify,
}

#[derive(Clone)]
enum State {
    /// Not connected.
    Down,
    /// The tools may have changed: they are being listed.
    Listing,
    /// Connected, with all tools that the server lists.
    Up(Peer<RoleClient>, Arc<BTreeMap<String, Pin>>),
}

impl Client {
    pub(super) fn new(server: Arc<McpServer>) -> Arc<Self> {
        let status = Status {
            state: watch::Sender::new(State::Down),
            suspected: Notify::new(),
        };
        Arc::new(Self {
            server,
            status: Arc::new(status),
            keeping: OnceLock::new(),
        })
    }

    /// Connects in the background, unless it does so already.
    fn keep(&self) {
        self.keeping.get_or_init(|| {
            let keeper = Keeper {
                server: self.server.clone(),
                status: self.status.clone(),
            };
            AbortOnDropHandle::new(tokio::spawn(keeper.run()))
        });
    }

    fn is_up(&self) -> bool {
        !matches!(*self.status.state.borrow(), State::Down)
    }

    /// The connection for a call of `tool`, unless the tool is not the pinned one. While the tools are being
    /// listed it waits.
    pub(super) async fn peer(&self, tool: &str, pin: Option<&Pin>) -> Option<Peer<RoleClient>> {
        let mut state = self.status.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Listing));
        match &*settled.await.ok()? {
            State::Up(peer, listed) => {
                let is_pinned = listed.get(tool)?.is_same(pin?);
                is_pinned.then(|| peer.clone())
            }
            _ => None,
        }
    }

    /// Reports a failed call: the connection may be dead.
    pub(super) fn suspect(&self) {
        self.status.suspected.notify_one();
    }

    pub(super) fn broken(&self, why: &str) -> ToolError {
        ToolError::Broken(self.cause(why))
    }

    /// The cause of a failed call, for the operator.
    pub(super) fn cause(&self, why: &str) -> String {
        let why = shortened(why, LONGEST_CAUSE);
        format!("MCP server {}: {why}", self.server.name)
    }
}

/// The pauses before attempts to connect again. The value is the next one.
struct Pauses(Duration);

impl Pauses {
    /// The pause after a connection that has lasted this long. A server may die as soon as it has listed its tools, so
    /// the pauses grow until a connection has lasted.
    fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= LONGEST_PAUSE {
            self.0 = FIRST_PAUSE;
        }
        let pause = self.0;
        self.0 = LONGEST_PAUSE.min(pause * 2);
        pause
    }
}

/// Keeps one connection.
struct Keeper {
    server: Arc<McpServer>,
    status: Arc<Status>,
}

impl Keeper {
    async fn run(self) {
        let mut pauses = Pauses(FIRST_PAUSE);
        let mut beginning = Beginning::Either;
        let is_program = self.is_of_program();
        loop {
            let (lasted, error) = self.connected(beginning).await;
            self.status.state.send_replace(State::Down);
            let server = &self.server.name;
            let cause = shortened(&told(&error), LONGEST_CAUSE);
            tracing::warn!(
                server,
                error = cause,
                "an MCP server is not connected: its tools are not offered"
            );
            beginning = beginning.after(&error, is_program);
            tokio::time::sleep(pauses.after(lasted)).await;
        }
    }

    /// Connects and serves until that fails. Returns how long it was connected, and why it is not any more.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it measures how long a connection lasts"
    )]
    async fn connected(&self, beginning: Beginning) -> (Duration, McpError) {
        let mut connection = match Connection::open(&self.server, beginning).await {
            Ok(connection) => connection,
            Err(error) => return (Duration::ZERO, error),
        };
        if let Err(error) = self.list(&connection, LIST).await {
            return (Duration::ZERO, error);
        }
        let is_program = self.is_of_program();
        let limit = if is_program { LIST_AT_WORK } else { LIST };
        let since = Instant::now();
        tracing::info!(server = self.server.name, "connected to an MCP server");
        let ended = connection.ended();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = connection.changed() => {
                    // Calls wait until it is known which tools they are.
                    self.status.state.send_replace(State::Listing);
                }
                () = self.status.suspected.notified() => {
                    if is_program {
                        // It may still be at work on that call: whatever it is sent would be done some time later.
                        self.status.state.send_replace(State::Listing);
                    }
                }
                () = tokio::time::sleep(LIST_AGAIN) => {}
                () = &mut ended => return (since.elapsed(), McpError::Closed),
            }
            let listed = loop {
                tokio::select! {
                    listed = self.list(&connection, limit) => break listed,
                    // The list under way was asked for before that call was late: it is asked for anew.
                    () = self.status.suspected.notified(), if is_program => {
                        self.status.state.send_replace(State::Listing);
                    }
                }
            };
            if let Err(error) = listed {
                let is_up = matches!(*self.status.state.borrow(), State::Up(..));
                if !(is_up && error.is_passing()) {
                    return (since.elapsed(), error);
                }
                tracing::debug!(server = self.server.name, %error, "an MCP server does not list its tools now");
            }
        }
    }

    fn is_of_program(&self) -> bool {
        matches!(self.server.link, Link::Program(_))
    }

    async fn list(&self, connection: &Connection, limit: Duration) -> Result<(), McpError> {
        let listed = connection.list(limit).await?.into_iter().map(|tool| {
            let name = tool["name"].as_str().unwrap_or_default().to_owned();
            (name, Pin::of(tool))
        });
        let up = State::Up(connection.peer(), Arc::new(listed.collect()));
        self.status.state.send_replace(up);
        Ok(())
    }
}

/// A tool that is offered while its server lists it as it was pinned.
pub(crate) struct Pinned {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) hints: RouterHints,
    /// The server's name for it.
    pub(crate) name: String,
    pub(crate) pin: Pin,
}

/// The configured servers with the tools that are declared of each.
#[derive(Default)]
pub struct McpServers(Vec<Served>);

struct Served {
    client: Arc<Client>,
    tools: Vec<Pinned>,
}

/// Keeps the connections of a set of tools.
struct Kept {
    clients: Vec<Arc<Client>>,
    _offering: JoinSet<()>,
}

impl McpServers {
    /// Servers without tools. The connections of `before` are used again where they can be.
    pub(crate) fn new(servers: &[Arc<McpServer>], before: Option<&LiveTools>) -> Self {
        let kept = before.and_then(|before| before.kept::<Kept>());
        let clients = kept.map_or(&[][..], |kept| &kept.clients);
        let served = servers.iter().map(|server| {
            let open = clients.iter();
            let same = open
                .into_iter()
                .find(|open| open.server.is_reached_like(server));
            Served {
                client: same.cloned().unwrap_or_else(|| Client::new(server.clone())),
                tools: Vec::new(),
            }
        });
        Self(served.collect())
    }

    /// Adds a tool that `make` binds to its server's connection. One that is not pinned is left out.
    pub(crate) fn add(
        &mut self,
        plan: &McpPlan,
        hints: &RouterHints,
        make: impl FnOnce(Arc<Client>) -> Arc<dyn Tool>,
    ) {
        let served = self.0.iter_mut();
        let served = served
            .into_iter()
            .find(|served| served.client.server.name == plan.server.name);
        if let (Some(served), Some(pin)) = (served, &plan.pin) {
            served.tools.push(Pinned {
                tool: make(served.client.clone()),
                hints: hints.clone(),
                name: plan.tool.clone(),
                pin: pin.clone(),
            });
        }
    }

    /// Connects to the servers in the background, and offers their tools in `tools` while they are as they were
    /// pinned. It ends when the last clone of `tools` is dropped. Call it within an async runtime.
    pub fn run(self, tools: &LiveTools, figures: &McpFigures) {
        let clients: Vec<Arc<Client>> = self.0.iter().map(|served| served.client.clone()).collect();
        let states = clients.iter();
        let round = figures.begin(states.map(|client| (&*client.server.name, client.is_up())));
        let mut offering = JoinSet::new();
        for served in self.0 {
            served.client.keep();
            let mut offer = Offer {
                client: served.client,
                tools: served.tools,
                live: tools.downgrade(),
                round: round.clone(),
                drifted: BTreeMap::new(),
            };
            let mut states = offer.client.status.state.subscribe();
            // A connection that is there already serves at once.
            offer.adopt(&states.borrow_and_update().clone());
            offering.spawn(async move {
                while states.changed().await.is_ok() {
                    offer.adopt(&states.borrow_and_update().clone());
                }
            });
        }
        tools.keep(Kept {
            clients,
            _offering: offering,
        });
    }
}

/// Offers the tools of one server in one set of tools.
struct Offer {
    client: Arc<Client>,
    tools: Vec<Pinned>,
    live: WeakTools,
    round: Round,
    /// The changed tools that were already reported, as they were listed.
    drifted: BTreeMap<String, Option<Pin>>,
}

impl Offer {
    fn adopt(&mut self, state: &State) {
        match state {
            State::Listing => {}
            State::Down => {
                self.offer(&BTreeSet::new());
                self.round.is_up(&self.client.server.name, false);
            }
            State::Up(_, listed) => {
                let pinned = self.compare(listed);
                self.offer(&pinned);
                self.round.is_up(&self.client.server.name, true);
            }
        }
    }

    /// The names of the tools that are listed as they were pinned.
    fn compare(&mut self, listed: &BTreeMap<String, Pin>) -> BTreeSet<String> {
        let mut pinned = BTreeSet::new();
        for tool in &self.tools {
            let found = listed.get(&tool.name);
            if found.is_some_and(|found| found.is_same(&tool.pin)) {
                pinned.insert(tool.name.clone());
                self.drifted.remove(&tool.name);
                continue;
            }
            if self.drifted.get(&tool.name) != Some(&found.cloned()) {
                let (server, tool) = (&self.client.server.name, &tool.name);
                self.round.drifted(server);
                tracing::warn!(
                    server,
                    tool,
                    listed = found.is_some(),
                    "a tool is no longer the pinned one and is not offered; \
                     `undertone mcp diff` shows the change, `undertone mcp pin` accepts it"
                );
                self.drifted.insert(tool.clone(), found.cloned());
            }
        }
        pinned
    }

    /// Changes the server's tools, if they are not so already.
    fn offer(&self, pinned: &BTreeSet<String>) {
        let Some(live) = self.live.upgrade() else {
            return;
        };
        let now = live.now();
        let is_there = |tool: &Pinned| {
            now.declaration(&tool.tool.declaration().spec.name)
                .is_some()
        };
        let is_wrong = |tool: &&Pinned| is_there(tool) != pinned.contains(&tool.name);
        if !self.tools.iter().any(|tool| is_wrong(&tool)) {
            return;
        }
        let changed = live.change(|registry| {
            for tool in self.tools.iter().filter(is_wrong) {
                match pinned.contains(&tool.name) {
                    true => registry.register_with(tool.tool.clone(), tool.hints.clone())?,
                    false => drop(registry.remove(&tool.tool.declaration().spec.name)),
                }
            }
            Ok::<_, crate::tools::RegistryError>(())
        });
        if let Err(error) = changed {
            tracing::error!(%error, "the tools of an MCP server cannot be offered");
        }
    }
}

/// An error with those of its causes that it does not name.
fn told(error: &McpError) -> String {
    causes(error).fold(error.to_string(), |told, cause| {
        let cause = cause.to_string();
        match told.contains(&cause) {
            true => told,
            false => format!("{told}: {cause}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was started twice a second for ever.
    #[test]
    fn a_server_that_dies_once_it_has_listed_its_tools_is_started_less_and_less_often() {
        let mut pauses = Pauses(FIRST_PAUSE);
        let brief = Duration::from_millis(50);
        let waited: Duration = (0..8).map(|_| pauses.after(brief)).sum();
        assert!(waited > LONGEST_PAUSE, "{waited:?}");
        assert_eq!(pauses.after(brief), LONGEST_PAUSE);
        let long = Duration::from_secs(3_600);
        assert_eq!(pauses.after(long), FIRST_PAUSE, "it had been well");
        assert_eq!(pauses.after(brief), FIRST_PAUSE * 2);
    }
}
