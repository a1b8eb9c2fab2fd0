//! The state of the MCP servers, for metrics and readiness.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The label of a server, by its name in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfServer {
    server: String,
}

/// Counts tools that were withdrawn, and tells which servers are connected.
#[derive(Debug, Clone, Default)]
pub struct McpFigures {
    /// Tools that were withdrawn because they are no longer the pinned ones.
    pub(crate) drifted: Family<OfServer, Counter>,
    /// 1 while a server is connected.
    pub(crate) up: Family<OfServer, Gauge<i64, AtomicI64>>,
    now: Arc<Mutex<Now>>,
}

#[derive(Debug, Default)]
struct Now {
    /// Counts the configurations.
    round: u64,
    down: BTreeSet<String>,
}

/// The figures for the servers of one configuration. A later one silences it.
#[derive(Debug, Clone)]
pub(super) struct Round {
    figures: McpFigures,
    number: u64,
}

impl McpFigures {
    /// The configured servers that are not connected, by name.
    pub fn down(&self) -> Vec<String> {
        self.now().down.iter().cloned().collect()
    }

    /// From now on these servers are the configured ones, each connected or not.
    pub(super) fn begin<'a>(&self, servers: impl Iterator<Item = (&'a str, bool)>) -> Round {
        let mut now = self.now();
        now.round += 1;
        now.down.clear();
        self.up.clear();
        for (server, up) in servers {
            self.set(&mut now, server, up);
        }
        Round {
            figures: self.clone(),
            number: now.round,
        }
    }

    /// Makes each family have a member, so that it is exported.
    #[cfg(test)]
    pub(crate) fn have_server(&self) {
        drop(self.up.get_or_create(&of("crm")));
        drop(self.drifted.get_or_create(&of("crm")));
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: &mut Now, server: &str, up: bool) {
        self.up.get_or_create(&of(server)).set(up.into());
        match up {
            true => now.down.remove(server),
            false => now.down.insert(server.to_owned()),
        };
    }
}

impl Round {
    pub(super) fn drifted(&self, server: &str) {
        if self.figures.now().round == self.number {
            self.figures.drifted.get_or_create(&of(server)).inc();
        }
    }

    pub(super) fn is_up(&self, server: &str, up: bool) {
        let mut now = self.figures.now();
        if now.round == self.number {
            self.figures.set(&mut now, server, up);
        }
    }
}

fn of(server: &str) -> OfServer {
    OfServer {
        server: server.to_owned(),
    }
}
