//! Certificates from an ACME server: Pebble, Let's Encrypt's own for tests.

use crate::support::log::Log;
use crate::support::program::until;
use crate::support::scripted;
use crate::support::tls::{Authority, NAME, connector, shown};
use crate::support::{PATIENCE, Script, Server, local, ports};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use undertone::server::{AcmeSettings, App, ServerSettings, Tls, TlsSettings};

/// Starts a program of the Debian package pebble, and waits until it listens on `port`.
async fn start(name: &str, arguments: &[&str], port: u16) -> Child {
    let mut command = Command::new(name);
    command.args(arguments).env("PEBBLE_VA_NOSLEEP", "1");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.kill_on_drop(true).spawn();
    let child = child.unwrap_or_else(|error| panic!("{name}: {error}: install the package pebble"));
    until(async || TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
    child
}

/// The file with Pebble's settings.
const CONFIG: &str = "pebble.json";

/// An ACME server that connects to `port` of every domain, and its name server, which leads every domain here.
struct Pebble {
    directory: String,
    management: String,
    listen: u16,
    names: String,
    server: Child,
    _resolver: Child,
}

impl Pebble {
    async fn start(folder: &Path, authority: &Authority, port: u16) -> Self {
        let [listen, management, names, names_management] = std::array::from_fn(|_| ports::free());
        let (cert, key) = authority.issue_into(folder);
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{listen}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": cert,
            "privateKey": key,
            "httpPort": 9,
            "tlsPort": port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
        }});
        std::fs::write(folder.join(CONFIG), config.to_string()).expect("written");
        let (dns, manage) = (
            format!("127.0.0.1:{names}"),
            format!("127.0.0.1:{names_management}"),
        );
        let arguments = [
            "-defaultIPv4",
            "127.0.0.1",
            "-defaultIPv6",
            "",
            "-dns01",
            &dns,
            "-management",
            &manage,
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
        ];
        let resolver = start("pebble-challtestsrv", &arguments, names_management).await;
        Self {
            directory: format!("https://127.0.0.1:{listen}/dir"),
            management: format!("https://127.0.0.1:{management}/roots/0"),
            listen,
            server: Self::spawn(folder, &dns, listen).await,
            names: dns,
            _resolver: resolver,
        }
    }

    async fn spawn(folder: &Path, names: &str, listen: u16) -> Child {
        let file = folder.join(CONFIG);
        let file = file.to_str().expect("text");
        start("pebble", &["-config", file, "-dnsserver", names], listen).await
    }

    /// Starts it anew at the same address, without what it knew. From now on it connects to `port`.
    async fn forget(&mut self, folder: &Path, port: u16) {
        self.server.kill().await.expect("killed");
        let config = std::fs::read(folder.join(CONFIG)).expect("its settings");
        let mut config: Value = serde_json::from_slice(&config).expect("JSON");
        config["pebble"]["tlsPort"] = json!(port);
        std::fs::write(folder.join(CONFIG), config.to_string()).expect("written");
        self.server = Self::spawn(folder, &self.names, self.listen).await;
    }

    /// Settings for a certificate from it, trusted by the root in that file, and the folder of what is kept of it.
    fn settings(&self, folder: &Path, root: PathBuf) -> (AcmeSettings, PathBuf) {
        let cache = folder.join("cache");
        let kept = self.directory.trim_start_matches("https://");
        let kept = cache.join(kept.replace([':', '/'], "_"));
        let settings = AcmeSettings {
            domains: vec![NAME.into()],
            contact: Vec::new(),
            cache,
            directory: self.directory.parse().expect("an address"),
            root: Some(root),
        };
        (settings, kept)
    }

    /// The root of the certificates that it issues, in PEM form.
    async fn root(&self, authority: &Authority) -> String {
        let own =
            reqwest::Certificate::from_pem(authority.pem().as_bytes()).expect("a certificate");
        let client = reqwest::Client::builder()
            .tls_certs_only([own])
            .timeout(PATIENCE)
            .build();
        let client = client.expect("a client");
        // This interface opens after that for certificates.
        let answer = until(async || client.get(&self.management).send().await.ok()).await;
        answer.text().await.expect("text")
    }
}

fn serve(port: u16, settings: &AcmeSettings) -> Server {
    let tls = Tls::open(&TlsSettings::Acme(settings.clone())).expect("a folder");
    let settings = ServerSettings {
        bind: SocketAddr::from(([127, 0, 0, 1], port)),
        ..local()
    };
    Server::serve(App {
        tls: Some(tls),
        ..App::new(settings, scripted::factory(Script::default()))
    })
}

/// An ACME server for the server at this port, and the file with the certificate that it is trusted by.
async fn issuer(folder: &Path, authority: &Authority, port: u16) -> (Pebble, PathBuf) {
    let pebble = Pebble::start(folder, authority, port).await;
    let trusted = folder.join("root.pem");
    std::fs::write(&trusted, authority.pem()).expect("written");
    (pebble, trusted)
}

#[tokio::test]
async fn a_certificate_comes_from_an_acme_server_and_is_kept_for_the_next_start() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path();
    let port = ports::free();
    let (pebble, trusted) = issuer(folder, &authority, port).await;
    let settings = AcmeSettings {
        domains: vec![NAME.into(), "other.example.com".into()],
        contact: vec!["mailto:ops@example.com".into()],
        ..pebble.settings(folder, trusted).0
    };
    let connector = connector(&pebble.root(&authority).await, &[b"http/1.1"]);
    let server = serve(port, &settings);
    let address = server.address;
    let issued = until(async || shown(&connector, address, NAME).await.ok()).await;
    // It is for both names, and clients can check it.
    let other = shown(&connector, address, "other.example.com").await;
    assert_eq!(other.expect("a handshake"), issued);
    drop(server);

    drop(pebble);
    let port = ports::free();
    let server = serve(port, &settings);
    let kept = shown(&connector, server.address, NAME).await;
    assert_eq!(
        kept.expect("a handshake"),
        issued,
        "without the ACME server"
    );
}

/// The account was used for ever, and no certificate came.
#[tokio::test]
async fn an_account_that_the_acme_server_does_not_know_any_more_is_replaced() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path();
    let (first, second) = (ports::free(), ports::free());
    let (mut pebble, trusted) = issuer(folder, &authority, first).await;
    let (settings, kept) = pebble.settings(folder, trusted);
    let account = || std::fs::read(kept.join("account.json")).expect("an account");
    let issued = async |server: &Server, root: &str| {
        let connector = connector(root, &[b"http/1.1"]);
        until(async || shown(&connector, server.address, NAME).await.ok()).await
    };
    let server = serve(first, &settings);
    issued(&server, &pebble.root(&authority).await).await;
    drop(server);
    let before = account();
    std::fs::remove_file(kept.join(format!("{NAME}.pem"))).expect("removed");

    pebble.forget(folder, second).await;
    let server = serve(second, &settings);
    issued(&server, &pebble.root(&authority).await).await;
    assert_ne!(account(), before);
}

/// It used to be thrown away, and another one was asked for until the ACME server issued no more.
#[tokio::test]
async fn a_certificate_that_cannot_be_kept_is_shown_all_the_same() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path();
    let port = ports::free();
    let (pebble, trusted) = issuer(folder, &authority, port).await;
    let (settings, kept) = pebble.settings(folder, trusted);
    // Nothing can be written in its place.
    std::fs::create_dir_all(kept.join(format!("{NAME}.key"))).expect("made");
    let connector = connector(&pebble.root(&authority).await, &[b"http/1.1"]);
    let server = serve(port, &settings);
    until(async || shown(&connector, server.address, NAME).await.ok()).await;
    assert!(kept.join("account.json").exists());
    assert!(!kept.join(format!("{NAME}.pem")).exists());
}

/// The log had the ACME server's words alone, such as that it could not connect.
#[tokio::test]
async fn a_domain_that_does_not_lead_here_is_logged_with_its_mend() {
    let (log, _guard) = Log::begin(tracing::Level::INFO);
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path();
    let (port, elsewhere) = (ports::free(), ports::free());
    let (pebble, trusted) = issuer(folder, &authority, elsewhere).await;
    let _server = serve(port, &pebble.settings(folder, trusted).0);
    let told = until(async || {
        let log = log.text();
        let mut lines = log.lines();
        let told = lines.find(|line| line.contains("cannot get a TLS certificate"));
        told.map(str::to_owned)
    });
    let told = told.await;
    let is_named = told.contains(NAME) && told.contains("must reach port 443 of this domain");
    assert!(is_named, "{told}");
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_and_the_server_stays() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let (port, nobody) = (ports::free(), ports::free());
    let settings = AcmeSettings {
        domains: vec![NAME.into()],
        contact: Vec::new(),
        cache: folder.path().join("cache"),
        directory: format!("https://127.0.0.1:{nobody}/dir")
            .parse()
            .expect("an address"),
        root: None,
    };
    let server = serve(port, &settings);
    let connector = connector(&authority.pem(), &[b"http/1.1"]);
    for _ in 0..3 {
        assert!(shown(&connector, server.address, NAME).await.is_err());
    }
    assert!(!server.task.is_finished());
}
