//! Keeps the connections to MCP servers, and offers the tools that are as they were pinned.
//!
//! One task a server connects, lists, and compares with the pins: at the start, when the server says that its
//! tools have changed, once a minute, and after a call that failed. A connection that is lost is made again, with
//! growing pauses.

use super::connection::{Beginning, Connection, McpError};
use super::figures::McpFigures;
use super::pins::Pin;
use super::text::shortened;
use super::{McpPlan, McpServer};
use crate::tools::live::WeakTools;
use crate::tools::{LiveTools, RouterHints, Tool, ToolError};
use rmcp::service::{Peer, RoleClient};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// The pause before the first attempt to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a server is asked for its tools although it tells of no change.
const LIST_AGAIN: Duration = Duration::from_secs(60);
/// The longest cause in the log, characters.
const LONGEST_CAUSE: usize = 500;

/// The connection to a server as its tools see it.
pub(crate) struct Client {
    server: Arc<McpServer>,
    link: watch::Sender<Line>,
    suspected: Notify,
}

#[derive(Clone)]
enum Line {
    /// Not connected.
    Down,
    /// The tools may have changed: they are being listed.
    Listing,
    /// Connected; these tools are the pinned ones.
    Up(Peer<RoleClient>, Arc<BTreeSet<String>>),
}

impl Client {
    pub(super) fn new(server: Arc<McpServer>) -> Arc<Self> {
        Arc::new(Self {
            server,
            link: watch::Sender::new(Line::Down),
            suspected: Notify::new(),
        })
    }

    /// The connection for a call of `tool`, unless the tool is not the pinned one. While the tools are being
    /// listed it waits.
    pub(super) async fn peer(&self, tool: &str) -> Option<Peer<RoleClient>> {
        let mut link = self.link.subscribe();
        let settled = link.wait_for(|line| !matches!(line, Line::Listing));
        match &*settled.await.ok()? {
            Line::Up(peer, pinned) if pinned.contains(tool) => Some(peer.clone()),
            _ => None,
        }
    }

    /// A call has failed: the connection may be dead.
    pub(super) fn suspect(&self) {
        self.suspected.notify_one();
    }

    pub(super) fn broken(&self, why: &str) -> ToolError {
        let why = shortened(why, LONGEST_CAUSE);
        ToolError::Broken(format!("MCP server {}: {why}", self.server.name))
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

impl McpServers {
    /// Servers without tools.
    pub(crate) fn new(servers: &[Arc<McpServer>]) -> Self {
        let served = servers.iter().map(|server| Served {
            client: Client::new(server.clone()),
            tools: Vec::new(),
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
        let mut tasks = JoinSet::new();
        for served in self.0 {
            figures.is_up(&served.client.server.name, false);
            let keeper = Keeper {
                client: served.client,
                tools: served.tools,
                live: tools.downgrade(),
                figures: figures.clone(),
                drifted: BTreeMap::new(),
            };
            tasks.spawn(keeper.run());
        }
        tools.keep(tasks);
    }
}

/// Keeps one connection.
struct Keeper {
    client: Arc<Client>,
    tools: Vec<Pinned>,
    live: WeakTools,
    figures: McpFigures,
    /// The changed tools that were already reported, as they were listed.
    drifted: BTreeMap<String, Option<Value>>,
}

impl Keeper {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut beginning = Beginning::Either;
        loop {
            let (was_up, error) = self.connected(beginning).await;
            self.withdraw_all(&error);
            if was_up {
                pause = FIRST_PAUSE;
            } else if matches!(error, McpError::Connect(_)) {
                beginning = match beginning {
                    Beginning::Either => Beginning::Handshake,
                    Beginning::Handshake => Beginning::Either,
                };
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Connects and serves until that fails. Returns whether it was connected, and why it is not any more.
    async fn connected(&mut self, beginning: Beginning) -> (bool, McpError) {
        let mut connection = match Connection::open(&self.client.server, beginning).await {
            Ok(connection) => connection,
            Err(error) => return (false, error),
        };
        if let Err(error) = self.relist(&connection).await {
            return (false, error);
        }
        let server = &self.client.server.name;
        tracing::info!(
            server,
            tools = self.tools.len(),
            "connected to an MCP server"
        );
        self.figures.is_up(server, true);
        let ended = connection.ended();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = connection.changed() => {
                    // Calls wait until it is known which tools they are.
                    self.client.link.send_replace(Line::Listing);
                }
                () = self.client.suspected.notified() => {}
                () = tokio::time::sleep(LIST_AGAIN) => {}
                () = &mut ended => return (true, McpError::Closed),
            }
            if let Err(error) = self.relist(&connection).await {
                return (true, error);
            }
        }
    }

    /// Lists the tools and offers those that are as they were pinned, and no others.
    async fn relist(&mut self, connection: &Connection) -> Result<(), McpError> {
        let listed = connection.list().await?;
        let find = |name: &str| listed.iter().find(|tool| tool["name"] == name);
        let mut pinned = BTreeSet::new();
        for tool in &self.tools {
            let found = find(&tool.name);
            if found.is_some_and(|found| tool.pin.matches(found)) {
                pinned.insert(tool.name.clone());
                self.drifted.remove(&tool.name);
                continue;
            }
            let found = found.cloned();
            if self.drifted.get(&tool.name) != Some(&found) {
                let (server, tool) = (&self.client.server.name, &tool.name);
                self.figures.drifted(server);
                tracing::warn!(
                    server,
                    tool,
                    listed = found.is_some(),
                    "a tool is no longer the pinned one and is not offered; \
                     `undertone mcp diff` shows the change, `undertone mcp pin` accepts it"
                );
                self.drifted.insert(tool.clone(), found);
            }
        }
        let pinned = Arc::new(pinned);
        // Calls first: a tool that is not offered any more cannot be called either.
        self.client
            .link
            .send_replace(Line::Up(connection.peer(), pinned.clone()));
        self.offer(&|name| pinned.contains(name));
        Ok(())
    }

    fn withdraw_all(&self, why: &McpError) {
        self.client.link.send_replace(Line::Down);
        self.offer(&|_| false);
        let (server, error) = (
            &self.client.server.name,
            shortened(&causes(why), LONGEST_CAUSE),
        );
        self.figures.is_up(server, false);
        tracing::warn!(
            server,
            error,
            "an MCP server is not connected: its tools are not offered"
        );
    }

    /// Changes the server's tools, if they are not so already.
    fn offer(&self, is_pinned: &dyn Fn(&str) -> bool) {
        let Some(live) = self.live.upgrade() else {
            return;
        };
        let now = live.now();
        let is_there = |tool: &Pinned| {
            now.declaration(&tool.tool.declaration().spec.name)
                .is_some()
        };
        let is_wrong = |tool: &&Pinned| is_there(tool) != is_pinned(&tool.name);
        if !self.tools.iter().any(|tool| is_wrong(&tool)) {
            return;
        }
        let changed = live.change(|registry| {
            for tool in self.tools.iter().filter(is_wrong) {
                match is_pinned(&tool.name) {
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

fn causes(error: &McpError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
