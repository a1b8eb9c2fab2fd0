//! The settings of the server, from the configuration and from the limits of this process.

use crate::config::Config;
use crate::server::{self, ServerSettings};
use crate::session::Engines;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;

/// Files that a server may want open beside its connections and what each session opens.
const FILES_BESIDE: u64 = 4_096;

/// How to serve at `bind`. The limit of connections is the caller's: it holds for the whole run.
pub(super) fn settings(config: &Config, bind: SocketAddr, engines: &Engines) -> ServerSettings {
    ServerSettings {
        bind,
        text: engines.policy().text,
        ..config.server.clone()
    }
}

/// Sockets that may be open at once, as far as the limit of open files goes. That limit is raised as
/// far as this process may.
pub(super) fn max_connections(max_sessions: usize) -> usize {
    let most = ServerSettings::default().max_connections + max_sessions;
    let wanted = 2 * most as u64 + FILES_BESIDE;
    let limit = getrlimit(Resource::Nofile);
    let raised = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let raised = Rlimit {
        current: limit.current.map(|current| current.max(raised)),
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays");
    }
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    let within = server::within_files(files.unwrap_or(usize::MAX), max_sessions, most);
    if within < 2 * max_sessions {
        tracing::warn!(
            files,
            max_sessions,
            connections = within,
            "few files may be open for so many sessions: raise `ulimit -n`"
        );
    }
    within
}
