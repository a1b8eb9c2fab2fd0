//! TLS on the server's own port. The certificate is replaced while the server runs: when its files change, or by an
//! ACME server before it expires.

mod acme;
mod certificate;

pub use acme::AcmeSettings;
pub use certificate::{Certificate, TlsError};

use super::connections::{Place, Socket};
use crate::metrics::Metrics;
use acme::Acme;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::server::TlsStream;

/// How often it is looked whether the certificate's files have changed.
const POLL: Duration = Duration::from_secs(2);

/// How often warnings of expiry are repeated.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The first byte of a TLS connection: a handshake record (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// The most plaintext that waits to be encrypted, bytes: rustls' default would hold a second of audio.
const UNSENT: usize = 16 * 1024;

/// WebSockets over HTTP/2 would need RFC 8441.
const HTTP: &[u8] = b"http/1.1";

/// The protocol of ACME servers that ask whether this server answers for a domain (RFC 8737).
const CHALLENGE: &[u8] = b"acme-tls/1";

/// The answer to requests over plain HTTP.
const PLAIN: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 53\r\n\
                     Connection: close\r\n\r\nThis port speaks TLS: connect to https:// or wss://.\n";

/// Where the certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsSettings {
    /// PEM files, which are read again when they change.
    Files {
        /// The certificate, followed by those of its issuers.
        cert: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
    /// An ACME server.
    Acme(AcmeSettings),
}

/// The server's side of TLS.
#[derive(Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    shown: Arc<Shown>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Files(Files),
    Acme(Acme),
}

impl Tls {
    /// Reads the certificate. That of an ACME server may not be there yet.
    ///
    /// # Errors
    /// The files cannot be used, or the folder of the ACME server's certificates cannot be written.
    pub fn open(settings: &TlsSettings) -> Result<Arc<Self>, TlsError> {
        let shown = Arc::new(Shown::default());
        let source = match settings {
            TlsSettings::Files { cert, key } => {
                let files = Files {
                    cert: cert.clone(),
                    key: key.clone(),
                    seen: Mutex::new(stamps(cert, key)),
                };
                shown.show(files.read()?);
                Source::Files(files)
            }
            TlsSettings::Acme(settings) => {
                let acme = Acme::open(settings.clone())?;
                if let Some(cached) = acme.cached() {
                    shown.show(cached);
                }
                Source::Acme(acme)
            }
        };
        let is_acme = matches!(source, Source::Acme(_));
        let config = config(shown.clone(), is_acme)?;
        Ok(Arc::new(Self {
            config: Arc::new(config),
            shown,
            source,
        }))
    }

    /// The certificate that is shown at the moment.
    pub fn certificate(&self) -> Option<Arc<Certificate>> {
        self.shown.certificate()
    }

    /// Reads the files again. If they cannot be used, this is logged, and the certificate stays.
    pub fn reload(&self) {
        if let Source::Files(files) = &self.source {
            *files.seen() = stamps(&files.cert, &files.key);
            match files.read() {
                Ok(certificate) => self.show(certificate),
                Err(error) => {
                    tracing::error!(%error, "the new TLS certificate cannot be used; the old one stays in use");
                }
            }
        }
    }

    fn show(&self, certificate: Certificate) {
        tracing::info!(names = ?certificate.names, until = %certificate.until, "using a new TLS certificate");
        self.shown.show(certificate);
    }

    /// Keeps the certificate up to date, forever.
    pub(super) async fn keep(&self, metrics: &Metrics) {
        tokio::join!(
            async {
                match &self.source {
                    Source::Files(files) => self.watch(files).await,
                    Source::Acme(acme) => acme.keep(self).await,
                }
            },
            self.warn(metrics)
        );
    }

    async fn watch(&self, files: &Files) {
        loop {
            sleep(POLL).await;
            if *files.seen() != stamps(&files.cert, &files.key) {
                self.reload();
            }
        }
    }

    /// Tells the metrics when the certificate begins and expires, and the log if that is soon.
    #[allow(clippy::disallowed_methods, reason = "an edge: certificates expire")]
    async fn warn(&self, metrics: &Metrics) {
        let mut last: Option<Timestamp> = None;
        loop {
            let now = Timestamp::now();
            if let Some(certificate) = self.certificate() {
                metrics.certificate(
                    certificate.names.first().map_or("", String::as_str),
                    certificate.from,
                    certificate.until,
                );
                // Also by a clock that was set back.
                let is_told = last.is_some_and(|last| now.duration_since(last).abs() < DAY);
                if !is_told && certificate.expires_soon(now) {
                    tracing::warn!(names = ?certificate.names, until = %certificate.until, "the TLS certificate expires soon, or has expired");
                    last = Some(now);
                }
            }
            sleep(POLL).await;
        }
    }

    /// Completes a handshake. `None` if it was an ACME server's question, which is answered with that.
    async fn accept(&self, stream: TcpStream) -> io::Result<Option<TlsStream<TcpStream>>> {
        let acceptor = TlsAcceptor::from(self.config.clone());
        let bounded = |connection: &mut tokio_rustls::rustls::ServerConnection| {
            connection.set_buffer_limit(Some(UNSENT));
        };
        let stream = acceptor.accept_with(stream, bounded).await?;
        let is_question = stream.get_ref().1.alpn_protocol() == Some(CHALLENGE);
        Ok(Some(stream).filter(|_| !is_question))
    }
}

fn config(shown: Arc<Shown>, is_acme: bool) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(TlsError::Unusable)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(shown);
    config.alpn_protocols = vec![HTTP.into()];
    if is_acme {
        config.alpn_protocols.push(CHALLENGE.into());
    }
    Ok(config)
}

/// The certificate in files.
#[derive(Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    /// The state of both in which they were read last.
    seen: Mutex<[Option<Stamp>; 2]>,
}

/// Tells one content of a file from another: the time of the last change, the length, the number on the disk.
type Stamp = (Option<std::time::SystemTime>, u64, u64);

impl Files {
    fn read(&self) -> Result<Certificate, TlsError> {
        Certificate::read(&self.cert, &self.key)
    }

    fn seen(&self) -> MutexGuard<'_, [Option<Stamp>; 2]> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamps(cert: &Path, key: &Path) -> [Option<Stamp>; 2] {
    use std::os::unix::fs::MetadataExt;
    [cert, key].map(|path| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.modified().ok(), file.len(), file.ino()))
    })
}

/// The certificates that clients are shown.
#[derive(Debug, Default)]
struct Shown {
    certificate: RwLock<Option<Arc<Certificate>>>,
    /// Answers to an ACME server's questions, by domain.
    challenges: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Shown {
    fn show(&self, certificate: Certificate) {
        let mut shown = self.certificate.write();
        let shown = shown
            .as_deref_mut()
            .unwrap_or_else(|poisoned| poisoned.get_mut());
        *shown = Some(Arc::new(certificate));
    }

    fn certificate(&self) -> Option<Arc<Certificate>> {
        let shown = self.certificate.read();
        shown.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn challenges(&self) -> MutexGuard<'_, HashMap<String, Arc<CertifiedKey>>> {
        self.challenges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_question = hello
            .alpn()
            .is_some_and(|mut names| names.any(|name| name == CHALLENGE));
        if is_question {
            return self.challenges().get(hello.server_name()?).cloned();
        }
        Some(self.certificate()?.key.clone())
    }
}

/// Completes the handshake of a client. `None` if it cannot be served.
pub(super) async fn open(
    stream: TcpStream,
    place: &Arc<Place>,
    tls: Option<&Tls>,
) -> Option<Stream> {
    let Some(tls) = tls else {
        return Some(Stream::Plain(stream));
    };
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1..) if first[0] == HANDSHAKE => match tls.accept(stream).await {
            Ok(stream) => stream.map(|stream| Stream::Tls(Box::new(stream))),
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
        },
        Ok(1..) if first[0].is_ascii_uppercase() => {
            if !place.serve() {
                return None;
            }
            let mut socket = Socket::new(Stream::Plain(stream), place.clone());
            if let Err(error) = socket.write_all(PLAIN.as_bytes()).await {
                tracing::trace!(%error, "a client over plain HTTP has left");
            }
            None
        }
        _ => None,
    }
}

/// The bytes of a client.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    /// Boxed: it is much larger.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Passes a call on to the stream, whichever it is.
macro_rules! pass_on {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        pass_on!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        pass_on!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        pass_on!(self, stream => stream.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass_on!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass_on!(self, stream => stream.poll_shutdown(cx))
    }
}
