//! The settings of `[tls]`, `[acme]`, `[limits]`, `[store]`, `[audit]` and `[retention]`.

use super::check::{Check, Checked};
use super::raw::{RawAcme, RawAudit, RawLimits, RawRetention, RawStore, RawTls};
use super::{AuditConfig, Retention, STORE_PASSWORD, Scope, TlsSettings};
use crate::server::{AcmeSettings, OpeningLimits};
use crate::store::StoreSettings;
use url::Url;

impl Check<'_> {
    /// TLS on the server's own port; `None` if neither files nor domains are named.
    pub(super) fn tls(&self, tls: &RawTls, acme: &RawAcme) -> Checked<Option<TlsSettings>> {
        if self.scope < Scope::Server {
            return Ok(None);
        }
        let files = (
            self.path("tls.cert", tls.cert.trim()),
            self.path("tls.key", tls.key.trim()),
        );
        let lacks = |given: &str, missing: &str| {
            let problem = format!("{given} is set, and {missing} is not");
            self.wrong(
                given,
                problem,
                "a certificate and its private key belong together: name both files",
            )
        };
        match files {
            (Some(_), None) => Err(lacks("tls.cert", "tls.key")),
            (None, Some(_)) => Err(lacks("tls.key", "tls.cert")),
            (Some(_), Some(_)) if !acme.domains.is_empty() => Err(self.wrong(
                "acme.domains",
                "acme.domains and tls.cert are both set".into(),
                "keep one of them: the certificate comes from an ACME server or from files",
            )),
            (Some(cert), Some(key)) => Ok(Some(TlsSettings::Files { cert, key })),
            (None, None) if acme.domains.is_empty() => Ok(None),
            (None, None) => self.acme(acme).map(Some),
        }
    }

    pub(super) fn limits(&self, raw: &RawLimits) -> Checked<OpeningLimits> {
        let (per_address, per_token) = ("limits.openings_per_address", "limits.openings_per_token");
        Ok(OpeningLimits {
            per_address: self.whole(per_address, raw.openings_per_address, 0..=1_000_000)?,
            per_token: self.whole(per_token, raw.openings_per_token, 0..=1_000_000)?,
        })
    }

    /// The store that is shared with other servers; `None` if there is none.
    pub(super) fn store(&self, raw: &RawStore) -> Checked<Option<StoreSettings>> {
        const KEY: &str = "store.url";
        const FIX: &str =
            "write it as in \"redis://127.0.0.1:6379/0\", with rediss for TLS, or leave it empty";
        let typed = raw.url.trim();
        if typed.is_empty() || self.scope < Scope::Server {
            return Ok(None);
        }
        let url = Url::parse(typed).ok().filter(|url| {
            matches!(url.scheme(), "redis" | "rediss")
                && url.has_host()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        let Some(url) = url else {
            let problem = format!("{KEY} is not the address of a Redis or Valkey server");
            return Err(self.wrong(KEY, problem, FIX));
        };
        if url.password().is_some() {
            let problem = format!("{KEY} contains a password, and settings are shown");
            let fix = "take it out, and set UNDERTONE_STORE_PASSWORD or store.password_file";
            return Err(self.wrong(KEY, problem, fix));
        }
        let secret = self.secret("store.password_file", &raw.password_file, STORE_PASSWORD)?;
        let password = secret.map(|(_, password)| password.into());
        let settings = StoreSettings { url, password };
        match settings.check() {
            Ok(()) => Ok(Some(settings)),
            Err(error) => Err(self.wrong(KEY, format!("{KEY}: {error}"), FIX)),
        }
    }

    pub(super) fn audit(&self, raw: &RawAudit) -> Option<AuditConfig> {
        let named = self.path("audit.file", &raw.file);
        let file = named.unwrap_or_else(|| self.state_folder().join("audit.jsonl"));
        raw.enabled.then_some(AuditConfig {
            file,
            arguments: raw.arguments,
        })
    }

    pub(super) fn retention(&self, raw: &RawRetention) -> Checked<Retention> {
        let days = |key: &str, typed: i64| -> Checked<Option<u32>> {
            let days: u32 = self.whole(key, typed, 0..=36_500)?;
            Ok(Some(days).filter(|days| *days > 0))
        };
        Ok(Retention {
            recordings: days("retention.recordings", raw.recordings)?,
            calls: days("retention.calls", raw.calls)?,
            turns: days("retention.turns", raw.turns)?,
            audit: days("retention.audit", raw.audit)?,
        })
    }

    fn acme(&self, raw: &RawAcme) -> Checked<TlsSettings> {
        let domains = raw.domains.iter().map(|typed| self.domain(typed));
        let contact = raw.contact.iter().map(|typed| self.contact(typed));
        let directory = self.address(
            "acme.directory",
            &raw.directory,
            "give the address of the ACME server's directory, as in https://acme-v02.api.letsencrypt.org/directory",
        )?;
        if directory.scheme() != "https" {
            return Err(self.wrong(
                "acme.directory",
                "acme.directory is not an https address".into(),
                "ACME servers are asked over https only",
            ));
        }
        let cache = self.path("acme.cache", &raw.cache);
        Ok(TlsSettings::Acme(AcmeSettings {
            domains: domains.collect::<Checked<_>>()?,
            contact: contact.collect::<Checked<_>>()?,
            cache: cache.unwrap_or_else(|| self.state_folder().join("acme")),
            directory,
            root: self.path("acme.root", &raw.root),
        }))
    }

    fn domain(&self, typed: &str) -> Checked<String> {
        let typed = typed.trim().to_ascii_lowercase();
        let wrong = |problem: String, fix: &str| Err(self.wrong("acme.domains", problem, fix));
        if typed.starts_with("*.") {
            return wrong(
                format!(
                    "acme.domains has \"{typed}\": certificates for all subdomains need records in DNS"
                ),
                "list each name, or get the certificate with another client and set tls.cert and tls.key",
            );
        }
        // The parser of URLs knows what a name is, and turns other scripts into their ASCII form.
        let is_bare = !typed.contains([':', '/', '@', '?', '#']);
        let host = Url::parse(&format!("https://{typed}/")).ok();
        let host = host.filter(|_| is_bare);
        match host.as_ref().and_then(Url::domain) {
            Some(domain) if !domain.is_empty() => Ok(domain.to_owned()),
            _ => wrong(
                format!("acme.domains has \"{typed}\", which is not the name of a host"),
                "write names such as \"voice.example.com\", without scheme and port",
            ),
        }
    }

    fn contact(&self, typed: &str) -> Checked<String> {
        let typed = typed.trim();
        let address = typed.strip_prefix("mailto:").unwrap_or(typed);
        let parts = address.split_once('@');
        if parts.is_some_and(|(name, host)| {
            !name.is_empty() && host.contains('.') && !address.contains(char::is_whitespace)
        }) {
            return Ok(format!("mailto:{address}"));
        }
        Err(self.wrong(
            "acme.contact",
            format!("acme.contact has \"{typed}\", which is not an e-mail address"),
            "write addresses such as \"ops@example.com\", or leave it empty",
        ))
    }
}
