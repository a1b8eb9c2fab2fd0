//! The server's settings, from the configuration and this process's limits.

use crate::config::Config;
use crate::server::{self, ServerSettings};
use crate::session::Engines;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;

/// File descriptors to request beyond those for connections.
const FILES_BESIDE: u64 = 4_096;

/// The settings for serving at `bind`. The caller sets the connection limit, which is fixed for the
/// whole run.
pub(super) fn settings(config: &Config, bind: SocketAddr, engines: &Engines) -> ServerSettings {
    ServerSettings {
        bind,
        text: engines.policy().text,
        ..config.server.clone()
    }
}

/// Raises this process's limit of open files as far as allowed. Returns the connection limit that
/// fits it.
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
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    let within = server::within_files(files.unwrap_or(usize::MAX), max_sessions, most);
    if within < 2 * max_sessions {
        tracing::warn!(
            files,
            max_sessions,
            connections = within,
            "the limit of open files is low for this many sessions: raise `ulimit -n`"
        );
    }
    within
}
