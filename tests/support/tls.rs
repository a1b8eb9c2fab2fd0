//! Certificates, and clients that speak TLS.

use super::PATIENCE;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The name in all certificates.
pub(crate) const NAME: &str = "voice.example.com";

/// An authority that signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        // OpenSSL takes a certificate whose issuer has its own name for one that has signed itself.
        let name = "an authority of the tests";
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for [`NAME`] and this machine, and its key, in PEM form.
    pub(crate) fn issue(&self) -> (String, String) {
        self.issue_for(&[NAME, "localhost", "127.0.0.1"], |_| {})
    }

    /// A certificate for these names, with what `change` sets, and its key, in PEM form.
    pub(crate) fn issue_for(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("parameters");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a new certificate and its key into `folder`.
    pub(crate) fn issue_into(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        let (certificate, private) = self.issue();
        std::fs::write(&key, private).expect("written");
        std::fs::write(&cert, certificate).expect("written");
        (cert, key)
    }
}

/// A client that trusts the certificates in `roots`, in PEM form, and offers `protocols`.
pub(crate) fn connector(roots: &str, protocols: &[&[u8]]) -> TlsConnector {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(roots.as_bytes()) {
        store.add(root.expect("a certificate")).expect("a root");
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_root_certificates(store);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// A connection to `address` that asks for the host `name`.
pub(crate) async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &'static str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let name = ServerName::try_from(name).expect("a name");
    let connected = timeout(PATIENCE, connector.connect(name, stream)).await;
    connected.expect("in time")
}

/// The certificate that the server at `address` shows for `name`.
pub(crate) async fn shown(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &'static str,
) -> std::io::Result<CertificateDer<'static>> {
    let stream = connect(connector, address, name).await?;
    let (_, connection) = stream.get_ref();
    Ok(connection.peer_certificates().expect("certificates")[0]
        .clone()
        .into_owned())
}

/// The first certificate in PEM form.
pub(crate) fn first(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

/// A port of this machine that leads through TLS to `address`, for clients that do not speak it.
pub(crate) async fn tunnel(connector: TlsConnector, address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let entrance = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let connector = connector.clone();
            tokio::spawn(async move {
                if let Ok(mut server) = connect(&connector, address, NAME).await {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    entrance
}
