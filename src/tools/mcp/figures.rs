//! The state of the MCP servers, for metrics and readiness.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

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
    down: Arc<Mutex<BTreeSet<String>>>,
}

impl McpFigures {
    /// The configured servers that are not connected, by name.
    pub fn down(&self) -> Vec<String> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.iter().cloned().collect()
    }

    pub(super) fn drifted(&self, server: &str) {
        self.drifted.get_or_create(&of(server)).inc();
    }

    pub(super) fn is_up(&self, server: &str, up: bool) {
        self.up.get_or_create(&of(server)).set(up.into());
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        match up {
            true => down.remove(server),
            false => down.insert(server.to_owned()),
        };
    }
}

fn of(server: &str) -> OfServer {
    OfServer {
        server: server.to_owned(),
    }
}
