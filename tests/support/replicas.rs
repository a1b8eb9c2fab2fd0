//! For tests of several servers: a Redis that keeps its data when it is stopped, and a balancer, both of Debian.

use super::program::until;
use super::tls::Authority;
use rcgen::CertificateParams;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use undertone::store::{Store, StoreFigures, StoreSettings, StoreTls};

/// A free port of a loopback address that nobody else uses, so that it stays free while its program is down.
pub(crate) async fn own_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let host = [127, 91, 0, NEXT.fetch_add(1, Ordering::Relaxed)];
    let listener = TcpListener::bind(SocketAddr::from((host, 0))).await;
    let listener = listener.expect("a port");
    listener.local_addr().expect("an address")
}

/// Starts a program of the Debian package of the same name, and waits until it listens.
async fn start(mut command: Command, package: &str, address: SocketAddr) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.kill_on_drop(true).spawn();
    let mut child =
        child.unwrap_or_else(|error| panic!("{package}: {error}: install the package {package}"));
    until(async || {
        let ended = child.try_wait().expect("a status");
        assert!(ended.is_none(), "{package} has ended: {ended:?}");
        TcpStream::connect(address).await.ok()
    })
    .await;
    child
}

/// A Redis.
pub(crate) struct Redis {
    folder: TempDir,
    address: SocketAddr,
    scheme: &'static str,
    process: Child,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        let (folder, address) = (tempfile::tempdir().expect("a folder"), own_address().await);
        Self::start_in(folder, address, "redis").await
    }

    /// With TLS and a certificate of `authority` for `name`, or for its address if there is no name. As by default, it
    /// wants a certificate of that authority from each client.
    pub(crate) async fn with_tls(
        authority: &Authority,
        name: Option<&str>,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let (folder, address) = (tempfile::tempdir().expect("a folder"), own_address().await);
        let own = address.ip().to_string();
        let (cert, key) = authority.issue_for(&[name.unwrap_or(&own)], change);
        for (file, content) in [
            ("cert.pem", cert),
            ("key.pem", key),
            ("ca.pem", authority.pem()),
        ] {
            std::fs::write(folder.path().join(file), content).expect("written");
        }
        Self::start_in(folder, address, "rediss").await
    }

    async fn start_in(folder: TempDir, address: SocketAddr, scheme: &'static str) -> Self {
        let process = Self::spawn(folder.path(), address, scheme).await;
        Self {
            folder,
            address,
            scheme,
            process,
        }
    }

    async fn spawn(folder: &Path, address: SocketAddr, scheme: &str) -> Child {
        let mut command = Command::new("redis-server");
        command.args(["--bind", &address.ip().to_string()]);
        let port = address.port().to_string();
        if scheme == "rediss" {
            command.args(["--port", "0", "--tls-port", &port]);
            command.args(["--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem"]);
            command.args(["--tls-ca-cert-file", "ca.pem"]);
        } else {
            command.args(["--port", &port]);
        }
        command.current_dir(folder);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        command.args(["--save", "", "--daemonize", "no"]);
        start(command, "redis-server", address).await
    }

    pub(crate) async fn stop(&mut self) {
        self.process.kill().await.expect("killed");
    }

    /// Starts it again with what it had.
    pub(crate) async fn resume(&mut self) {
        self.process = Self::spawn(self.folder.path(), self.address, self.scheme).await;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}/0", self.scheme, self.address)
    }

    pub(crate) fn settings(&self, tls: StoreTls) -> StoreSettings {
        StoreSettings {
            url: self.url().parse().expect("a URL"),
            password: None,
            tls,
        }
    }

    /// A connection of a server of its own.
    pub(crate) async fn store(&self) -> Store {
        let settings = self.settings(StoreTls::default());
        let store = Store::open(&settings, StoreFigures::default()).await;
        store.expect("an address")
    }
}

/// HAProxy with the configuration that comes with undertone, and its address.
pub(crate) async fn balancer(servers: &[SocketAddr]) -> (Child, String) {
    let address = own_address().await;
    let mut command = Command::new("haproxy");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/haproxy/undertone.cfg");
    command.arg("-db").arg("-f").arg(config);
    command.env("UNDERTONE_BALANCER", address.to_string());
    for number in 1..=3 {
        // Nobody listens on port 1.
        let server = servers.get(number - 1).copied();
        let server = server.unwrap_or(([127, 0, 0, 1], 1).into());
        command.env(format!("UNDERTONE_SERVER_{number}"), server.to_string());
    }
    (
        start(command, "haproxy", address).await,
        address.to_string(),
    )
}
