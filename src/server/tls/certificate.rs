//! A certificate with its key.

use jiff::{SignedDuration, Timestamp};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error as RustlsError, InconsistentKeys};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// A certificate expires soon within this time, or within a sixth of its life if that is shorter.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A certificate with its key and the certificates of its issuers.
#[derive(Debug)]
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// The domains and addresses that it is for.
    pub names: Vec<String>,
    /// When it begins to be valid.
    pub from: Timestamp,
    /// When it expires.
    pub until: Timestamp,
}

/// The reason a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or folder cannot be used.
    #[error("{path}: {reason}", path = .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error("the private key in {key} is not that of the certificate in {cert}", key = .key.display(), cert = .cert.display())]
    Mismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// TLS itself cannot be set up.
    #[error("TLS cannot be used: {0}")]
    Unusable(RustlsError),
}

impl TlsError {
    pub(super) fn file(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::File {
            path: path.into(),
            reason: reason.to_string(),
        }
    }
}

impl Certificate {
    /// Reads a certificate and its key from files in PEM form.
    ///
    /// # Errors
    /// The files cannot be read or have something else, or they do not belong together.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let lacks = |path: &Path, what: &str, error: PemError| match error {
            PemError::NoItemsFound => {
                TlsError::file(path, format!("there is no {what} in PEM form in this file"))
            }
            PemError::Io(error) => TlsError::file(path, format!("cannot be read: {error}")),
            other => TlsError::file(path, other),
        };
        let chain =
            CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|error| lacks(cert, "certificate", error))?;
        if chain.is_empty() {
            return Err(lacks(cert, "certificate", PemError::NoItemsFound));
        }
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|error| lacks(key, "private key", error))?;
        Self::new(chain, private).map_err(|error| match error {
            RustlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch {
                cert: cert.into(),
                key: key.into(),
            },
            RustlsError::InvalidCertificate(error) => {
                TlsError::file(cert, format!("the certificate is broken: {error}"))
            }
            error => TlsError::file(key, format!("the key cannot be used: {error}")),
        })
    }

    /// Reads a certificate and its key in PEM form.
    pub(super) fn parse(chain: &[u8], key: &[u8]) -> Result<Self, RustlsError> {
        let broken = |error: PemError| RustlsError::General(error.to_string());
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(broken)?;
        Self::new(chain.map_err(broken)?, key)
    }

    /// Whether it should have been renewed by now.
    pub fn expires_soon(&self, now: Timestamp) -> bool {
        let life = self.until.duration_since(self.from);
        self.until.duration_since(now) < SOON.min(life / 6)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, RustlsError> {
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?;
        let broken =
            || RustlsError::InvalidCertificate(tokio_rustls::rustls::CertificateError::BadEncoding);
        let (_, own) = X509Certificate::from_der(key.end_entity_cert()?).map_err(|_| broken())?;
        let at = |time: i64| Timestamp::from_second(time).map_err(|_| broken());
        let (names, validity) = (names(&own), own.validity());
        let (from, until) = (
            at(validity.not_before.timestamp())?,
            at(validity.not_after.timestamp())?,
        );
        Ok(Self {
            key: Arc::new(key),
            names,
            from,
            until,
        })
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.iter());
    let readable = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => Some(address(bytes)?.to_string()),
        _ => None,
    };
    names.into_iter().flatten().filter_map(readable).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn files(folder: &Path, names: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let (cert, private) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&cert, certificate.pem()).unwrap();
        std::fs::write(&private, key.serialize_pem()).unwrap();
        (cert, private)
    }

    #[test]
    fn a_certificate_knows_its_names_and_when_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = files(
            folder.path(),
            &["voice.example.com", "203.0.113.7", "2001:db8::1"],
        );
        let read = Certificate::read(&cert, &key).unwrap();
        assert_eq!(
            read.names,
            ["voice.example.com", "203.0.113.7", "2001:db8::1"]
        );
        assert!(read.from < read.until);
    }

    #[test]
    fn errors_name_the_file_and_what_is_wrong_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = files(folder.path(), &["voice.example.com"]);
        let error = |cert: &Path, key: &Path| Certificate::read(cert, key).unwrap_err().to_string();
        assert!(
            error(&key, &cert).contains("key.pem: there is no certificate"),
            "{}",
            error(&key, &cert)
        );
        assert!(error(&cert, &cert).contains("cert.pem: there is no private key"));
        let missing = folder.path().join("none.pem");
        assert!(error(&missing, &key).contains("none.pem: cannot be read"));
        let other = tempfile::tempdir().unwrap();
        let (_, foreign) = files(other.path(), &["voice.example.com"]);
        assert!(error(&cert, &foreign).contains("is not that of the certificate in"));
        std::fs::write(
            &cert,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        assert!(
            error(&cert, &key).contains("cert.pem"),
            "{}",
            error(&cert, &key)
        );
    }
}
