//! TLS to the store: certificates, and how to mend handshakes that fail.

use redis::{ClientTlsConfig, RedisError, TlsCertificates};
use secrecy::{ExposeSecret, SecretString};
use std::error::Error as _;
use std::io;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, RootCertStore};

/// A file that does not hold what it should; says why.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct BadCertificate(String);

/// The certificates for a store with TLS. By default the system's authorities are trusted, and no client certificate
/// is shown.
#[derive(Debug, Clone, Default)]
pub struct StoreTls {
    authorities: Option<String>,
    identity: Option<(String, SecretString)>,
}

impl StoreTls {
    /// Trusts the authorities in `pem` in place of the system's.
    ///
    /// # Errors
    /// If it contains no certificate, or one that cannot be read.
    pub fn trusting(self, pem: String) -> Result<Self, BadCertificate> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&pem)? {
            roots.add(certificate).map_err(bad)?;
        }
        Ok(Self {
            authorities: Some(pem),
            ..self
        })
    }

    /// Shows a client certificate, which is followed by those of its issuers, to stores that ask for one. Both are in
    /// PEM form.
    ///
    /// # Errors
    /// If one of them cannot be read, or if they do not belong together.
    pub fn identified(
        self,
        certificate: String,
        key: SecretString,
    ) -> Result<Self, BadCertificate> {
        let chain = certificates(&certificate)?;
        let private = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes());
        let private = private.map_err(|_| bad("there is no private key in it"))?;
        CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).map_err(bad)?;
        Ok(Self {
            identity: Some((certificate, key)),
            ..self
        })
    }

    /// Whether nothing was changed from the default.
    pub fn is_default(&self) -> bool {
        self.authorities.is_none() && self.identity.is_none()
    }

    pub(super) fn certificates(&self) -> TlsCertificates {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let identity = self.identity.as_ref();
        TlsCertificates {
            client_tls: identity.map(|(certificate, key)| ClientTlsConfig {
                client_cert: bytes(certificate),
                client_key: bytes(key.expose_secret()),
            }),
            root_cert: self.authorities.as_deref().map(bytes),
        }
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, BadCertificate> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let read = read.map_err(bad)?;
    if read.is_empty() {
        return Err(bad("there is no certificate in it"));
    }
    Ok(read)
}

fn bad(reason: impl ToString) -> BadCertificate {
    BadCertificate(reason.to_string())
}

fn cause(error: &RedisError) -> Option<&Error> {
    // The source is the `Arc` itself in which the crate keeps the error.
    let kept: &Arc<dyn std::error::Error + Send + Sync> = error.source()?.downcast_ref()?;
    let failed: &io::Error = kept.downcast_ref()?;
    failed.get_ref()?.downcast_ref()
}

/// How to mend a failure of TLS; `None` for other failures.
pub(super) fn mend(error: &RedisError) -> Option<&'static str> {
    Some(match cause(error)? {
        Error::InvalidCertificate(problem) => match problem {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "write a name from the store's certificate in store.url"
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "renew the store's certificate, and see whether the clocks of both machines are right"
            }
            _ => "set store.ca to the authority that signed the store's certificate",
        },
        Error::InvalidMessage(_) => {
            "nothing speaks TLS there: name the store's TLS port in store.url, or write redis:// without TLS"
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the store wants a client certificate: set store.cert and store.key"
        }
        Error::AlertReceived(_) => {
            "the store has refused the handshake, and its log says why; a client certificate is set with store.cert and \
             store.key"
        }
        _ => return None,
    })
}
