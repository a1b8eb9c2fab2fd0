//! Certificates from an ACME server such as Let's Encrypt (RFC 8555). It asks on this port whether the server answers for
//! its domains (TLS-ALPN-01, RFC 8737), so nothing else has to listen.

use super::{Certificate, Tls, TlsError};
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse,
    ChallengeType, HttpClient, Identifier, NewAccount, NewOrder, OrderStatus, RetryPolicy,
};
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use sha2::{Digest, Sha256};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use url::Url;

/// The pause after the first failure. It doubles up to [`LONGEST_PAUSE`]: Let's Encrypt takes five failures an hour.
const PAUSE: Duration = Duration::from_secs(60);

const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// How often it is looked whether the certificate has to be renewed. Not a sleep until then: clocks are set.
const LOOK: Duration = Duration::from_secs(3_600);

/// The longest that one answer of the ACME server may take.
const ANSWER: Duration = Duration::from_secs(30);

/// The longest that the ACME server may take to check a domain, and to issue a certificate.
const DECISION: Duration = Duration::from_secs(120);

/// How to get certificates from an ACME server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeSettings {
    /// The domains of the certificate.
    pub domains: Vec<String>,
    /// Where the ACME server's operator reaches this server's: addresses such as `mailto:ops@example.com`.
    pub contact: Vec<String>,
    /// The folder in which account and certificates are kept.
    pub cache: PathBuf,
    /// The address of the ACME server's directory.
    pub directory: Url,
    /// A file with the certificate that the ACME server's own is checked with; that of a public one is checked as the
    /// system does.
    pub root: Option<PathBuf>,
}

/// A client of an ACME server.
#[derive(Debug)]
pub(super) struct Acme {
    settings: AcmeSettings,
    /// The files of this ACME server and these domains.
    account: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    root: Option<reqwest::Certificate>,
}

/// The reason no certificate was issued.
#[derive(Debug, thiserror::Error)]
enum AcmeError {
    #[error("{0}")]
    Protocol(#[from] instant_acme::Error),
    #[error(
        "{domain}: {problem}; the ACME server must reach port 443 of this domain, and that must lead here"
    )]
    Refused { domain: String, problem: String },
    #[error("{0}; the ACME server must reach port 443 of each domain, and that must lead here")]
    Unchecked(instant_acme::Error),
    #[error(
        "the ACME server offers no TLS-ALPN-01 for {0}, the only challenge that this server supports"
    )]
    NoChallenge(String),
    #[error(
        "the order is {0:?}; the ACME server must reach port 443 of each domain, and that must lead here"
    )]
    Unexpected(OrderStatus),
    #[error("a certificate cannot be made: {0}")]
    Made(#[from] rcgen::Error),
    #[error("a certificate cannot be used: {0}")]
    Used(#[from] tokio_rustls::rustls::Error),
    #[error("{0}")]
    Kept(#[from] TlsError),
    #[error("the HTTP client cannot be set up: {0}")]
    Client(#[from] reqwest::Error),
}

impl Acme {
    /// Checks that the folder can be written.
    pub(super) fn open(settings: AcmeSettings) -> Result<Self, TlsError> {
        let root = settings.root.as_deref().map(|path| {
            let pem = std::fs::read(path)
                .map_err(|error| TlsError::file(path, format!("cannot be read: {error}")))?;
            reqwest::Certificate::from_pem(&pem).map_err(|error| TlsError::file(path, error))
        });
        let folder = settings.cache.join(file_name(settings.directory.as_str()));
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| TlsError::file(&folder, format!("cannot be created: {error}")))?;
        let names = names(&settings.domains);
        let acme = Self {
            root: root.transpose()?,
            account: folder.join("account.json"),
            cert: folder.join(format!("{names}.pem")),
            key: folder.join(format!("{names}.key")),
            settings,
        };
        let probe = folder.join(".writable");
        write(&probe, b"")?;
        std::fs::remove_file(&probe).map_err(|error| TlsError::file(&folder, error))?;
        Ok(acme)
    }

    /// The certificate of an earlier time.
    pub(super) fn cached(&self) -> Option<Certificate> {
        if !self.cert.exists() {
            return None;
        }
        match Certificate::read(&self.cert, &self.key) {
            Ok(certificate) => Some(certificate),
            Err(error) => {
                tracing::warn!(%error, "the cached TLS certificate cannot be used");
                None
            }
        }
    }

    /// Gets a certificate when there is none, and before the one that is there expires. Forever.
    pub(super) async fn keep(&self, tls: &Tls) {
        let mut pause = PAUSE;
        loop {
            if !is_due(tls.certificate().as_deref()) {
                sleep(LOOK).await;
                continue;
            }
            tracing::info!(domains = ?self.settings.domains, directory = %self.settings.directory, "asking for a TLS certificate");
            match self.renew(tls).await {
                Ok(certificate) => {
                    pause = PAUSE;
                    tls.show(certificate);
                }
                Err(error) => {
                    tracing::error!(
                        %error,
                        again_in_seconds = pause.as_secs(),
                        "cannot get a TLS certificate"
                    );
                    sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn renew(&self, tls: &Tls) -> Result<Certificate, AcmeError> {
        let renewed = self.order(tls).await;
        tls.shown.challenges().clear();
        let (chain, key) = renewed?;
        // The key first: a certificate without its key could not be used at the next start, but would be taken for one.
        let kept = write(&self.key, key.as_bytes());
        let kept = kept.and_then(|()| write(&self.cert, chain.as_bytes()));
        if let Err(error) = kept {
            // Asking for it again at once would not help, and ACME servers allow few certificates a week.
            tracing::error!(%error, "the new TLS certificate is not kept: the next start asks for another");
        }
        Ok(Certificate::parse(chain.as_bytes(), key.as_bytes())?)
    }

    /// A new certificate and its key, in PEM form.
    async fn order(&self, tls: &Tls) -> Result<(String, String), AcmeError> {
        let domains = self.settings.domains.iter();
        let domains: Vec<_> = domains
            .map(|domain| Identifier::Dns(domain.clone()))
            .collect();
        let wanted = NewOrder::new(&domains);
        let mut order = match self.account().await?.new_order(&wanted).await {
            Err(error) if is_of_no_account(&error) => {
                tracing::warn!(
                    "the ACME server does not know this server's account any more: asking for another"
                );
                self.new_account().await?.new_order(&wanted).await?
            }
            order => order?,
        };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let domain = authorization.identifier().to_string();
            let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
                return Err(AcmeError::NoChallenge(domain));
            };
            let answer = answer(&domain, challenge.key_authorization().digest().as_ref())?;
            tls.shown.challenges().insert(domain, Arc::new(answer));
            challenge.set_ready().await?;
        }
        let patience = RetryPolicy::new().timeout(DECISION);
        let ready = order.poll_ready(&patience).await;
        if !matches!(ready, Ok(OrderStatus::Ready)) {
            return Err(match (refused(&mut order).await, ready) {
                (Some((domain, problem)), _) => AcmeError::Refused { domain, problem },
                (None, Ok(status)) => AcmeError::Unexpected(status),
                (None, Err(error)) => AcmeError::Unchecked(error),
            });
        }
        let key = order.finalize().await?;
        Ok((order.poll_certificate(&patience).await?, key))
    }

    /// The account of an earlier time, or a new one.
    async fn account(&self) -> Result<Account, AcmeError> {
        let kept = std::fs::read(&self.account).ok();
        let kept = kept.and_then(|kept| serde_json::from_slice::<AccountCredentials>(&kept).ok());
        match kept {
            Some(kept) => Ok(self.builder()?.from_credentials(kept).await?),
            None => self.new_account().await,
        }
    }

    /// A new account, which is kept in place of another.
    async fn new_account(&self) -> Result<Account, AcmeError> {
        let contact: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            // The guide says that configuring an ACME server agrees to them.
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.settings.directory.to_string();
        let (account, credentials) = self.builder()?.create(&new, directory, None).await?;
        let credentials = serde_json::to_vec(&credentials).map_err(instant_acme::Error::Json)?;
        write(&self.account, &credentials)?;
        Ok(account)
    }

    fn builder(&self) -> Result<AccountBuilder, AcmeError> {
        let client = reqwest::Client::builder().https_only(true).timeout(ANSWER);
        let client = match &self.root {
            Some(root) => client.tls_certs_only([root.clone()]),
            None => client,
        };
        Ok(Account::builder_with_http(Box::new(Client(
            client.build()?,
        ))))
    }
}

/// Whether a certificate has to be renewed: a third of its life is left, as Let's Encrypt recommends.
#[allow(clippy::disallowed_methods, reason = "an edge: certificates expire")]
fn is_due(certificate: Option<&Certificate>) -> bool {
    certificate
        .is_none_or(|certificate| is_due_at(certificate.from, certificate.until, Timestamp::now()))
}

fn is_due_at(from: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    let left: SignedDuration = until.duration_since(now);
    left < until.duration_since(from) / 3
}

/// Whether the ACME server has no such account.
fn is_of_no_account(error: &instant_acme::Error) -> bool {
    let instant_acme::Error::Api(problem) = error else {
        return false;
    };
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:accountDoesNotExist")
}

/// The domain that the ACME server did not find here, and what it says about it.
async fn refused(order: &mut instant_acme::Order) -> Option<(String, String)> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        let problem = state
            .challenges
            .iter()
            .find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problem {
            return Some((state.identifier().to_string(), problem.to_string()));
        }
    }
    None
}

/// The certificate that answers an ACME server's question.
fn answer(domain: &str, digest: &[u8]) -> Result<CertifiedKey, AcmeError> {
    let mut params = CertificateParams::new([domain.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let chain = vec![certificate.der().clone()];
    let key = aws_lc_rs::default_provider()
        .key_provider
        .load_private_key(key)?;
    // Not `from_der`: it reads the certificate to compare the keys, and refuses the extension that is the answer.
    Ok(CertifiedKey::new(chain, key))
}

/// The longest name of a file without its ending, bytes; file systems take 255 with it.
const LONGEST_NAME: usize = 200;

/// The name of the files of these domains.
fn names(domains: &[String]) -> String {
    let whole = file_name(&domains.join("+"));
    if whole.len() <= LONGEST_NAME {
        return whole;
    }
    let hash = Sha256::digest(&whole);
    let hash: String = hash
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}+{hash}", &whole[..LONGEST_NAME - hash.len() - 1])
}

/// The text as the name of a file.
fn file_name(text: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '+' | '-' => letter,
        _ => '_',
    };
    text.trim_start_matches("https://")
        .chars()
        .map(plain)
        .collect()
}

/// Writes a file that only this user can read, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), TlsError> {
    let new = path.with_extension("new");
    let written = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    written().map_err(|error| TlsError::file(path, format!("cannot be written: {error}")))
}

/// Asks with this program's own HTTP client, so that there are not two.
struct Client(reqwest::Client);

impl HttpClient for Client {
    fn request(
        &self,
        request: axum::http::Request<BodyWrapper<bytes::Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let other = |error: reqwest::Error| instant_acme::Error::Other(Box::new(error));
            let request = request.map(reqwest::Body::wrap);
            let request = reqwest::Request::try_from(request).map_err(other)?;
            let response = client.execute(request).await.map_err(other)?;
            Ok(BytesResponse::from(
                axum::http::Response::<reqwest::Body>::from(response),
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It used to be refused because of its critical extension, and no ACME server ever got an answer.
    #[test]
    fn an_answer_with_its_critical_extension_can_be_shown() {
        let answer = answer("voice.example.com", &[7; 32]).unwrap();
        assert_eq!(answer.cert.len(), 1);
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let day = |day: i64| Timestamp::from_second(day * 86_400).unwrap();
        assert!(!is_due_at(day(0), day(90), day(59)));
        assert!(is_due_at(day(0), day(90), day(61)));
        assert!(is_due_at(day(0), day(90), day(91)), "expired");
        assert!(is_due_at(day(0), day(6), day(5)), "a short one");
        assert!(is_due(None));
    }

    #[test]
    fn files_are_named_after_the_acme_server_and_the_domains() {
        assert_eq!(
            file_name("https://acme.example/directory"),
            "acme.example_directory"
        );
        assert_eq!(file_name("a.example+b.example"), "a.example+b.example");
        assert_eq!(file_name("../../etc"), ".._.._etc");
    }

    /// The certificate used to be issued, not kept, and asked for again until the ACME server issued no more.
    #[test]
    fn many_domains_have_a_file_name_that_is_not_too_long() {
        let domains = |last: &str| -> Vec<String> {
            let names = (0..20).map(|nth| format!("voice-{nth}.department.example.com"));
            names.chain([last.to_owned()]).collect()
        };
        let [one, other] = ["a.example.com", "b.example.com"].map(|last| names(&domains(last)));
        assert!(one.len() == LONGEST_NAME && one != other, "{one}");
        assert!(one.starts_with("voice-0.department.example.com+voice-1."));
        assert_eq!(
            names(&["a.example".into(), "b.example".into()]),
            "a.example+b.example"
        );
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let settings = AcmeSettings {
            domains: vec!["voice.example.com".into()],
            contact: Vec::new(),
            cache: file.join("acme"),
            directory: "https://acme.example/directory".parse().unwrap(),
            root: None,
        };
        let error = Acme::open(settings).unwrap_err().to_string();
        assert!(
            error.contains("file/acme") && error.contains("cannot be created"),
            "{error}"
        );
    }
}
