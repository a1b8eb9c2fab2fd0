//! The running server of the configuration, as commands on the same machine reach it.

use crate::config::Config;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The address of the server, without a path.
pub(super) fn address(config: &Config) -> String {
    let mut address = config.server.bind;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let scheme = config.tls.as_ref().map_or("http", |_| "https");
    format!("{scheme}://{address}")
}

/// A client for it, whose answers may take this long.
pub(super) fn client(timeout: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        // It is asked by its address, which its certificate need not name.
        .tls_danger_accept_invalid_certs(true)
        .timeout(timeout)
        .build()
}
