//! The settings of `[tls]`, `[acme]`, `[limits]`, `[store]`, `[telemetry]`, `[audit]` and `[retention]`.

use super::check::{Check, Checked};
use super::error::ConfigError;
use super::raw::{RawAcme, RawAudit, RawLimits, RawRetention, RawStore, RawTelemetry, RawTls};
use super::{AuditConfig, Retention, STORE_PASSWORD, Scope, TlsSettings};
use crate::server::{AcmeSettings, OpeningLimits};
use crate::store::{StoreSettings, StoreTls};
use crate::traces::{self, Sampler, TraceSettings};
use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

/// The addresses of collectors, in OpenTelemetry's variables: the first one as it is, the second one without the path.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];

const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];

/// OpenTelemetry's variables with the files of certificates for the collector. They are not read.
const CERTIFICATES: [&str; 6] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
];

const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

const EXPORTERS: &str = "OTEL_TRACES_EXPORTER";

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";

const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

/// The protocol of traces.
const PROTOCOL: &str = "http/protobuf";

/// The attribute that is the service's name.
const SERVICE: &str = "service.name";

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
        match files {
            (Some(_), None) => Err(self.lacks("tls.cert", "tls.key")),
            (None, Some(_)) => Err(self.lacks("tls.key", "tls.cert")),
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
        if typed.is_empty() || self.scope < Scope::Shared {
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
        let tls = self.store_tls(raw, &url)?;
        let settings = StoreSettings { url, password, tls };
        match settings.check() {
            Ok(()) => Ok(Some(settings)),
            Err(error) => Err(self.wrong(KEY, format!("{KEY}: {error}"), FIX)),
        }
    }

    /// The certificates for `rediss`.
    fn store_tls(&self, raw: &RawStore, url: &Url) -> Checked<StoreTls> {
        let files = [
            ("store.ca", raw.ca.trim()),
            ("store.cert", raw.cert.trim()),
            ("store.key", raw.key.trim()),
        ];
        let named = files.iter().find(|(_, file)| !file.is_empty());
        if let Some((key, _)) = named.filter(|_| url.scheme() != "rediss") {
            let problem = format!("{key} is set, and store.url is without TLS");
            let fix = "write store.url with rediss://, or remove the key";
            return Err(self.wrong(key, problem, fix));
        }
        let [ca, cert, key] = files.map(|(key, file)| self.text_file(key, file));
        let mut tls = StoreTls::default();
        if let Some(pem) = ca? {
            let trusting = tls.trusting(pem);
            tls = trusting.map_err(|error| {
                let problem = format!("store.ca: {}: {error}", raw.ca.trim());
                let fix = "name a file with the authority's certificate in PEM form";
                self.wrong("store.ca", problem, fix)
            })?;
        }
        match (cert?, key?) {
            (Some(cert), Some(key)) => tls.identified(cert, key.into()).map_err(|error| {
                let (cert, key) = (raw.cert.trim(), raw.key.trim());
                let problem = format!("store.cert and store.key: {cert} and {key}: {error}");
                let fix =
                    "name a certificate and the private key that belongs to it, both in PEM form";
                self.wrong("store.cert", problem, fix)
            }),
            (Some(_), None) => Err(self.lacks("store.cert", "store.key")),
            (None, Some(_)) => Err(self.lacks("store.key", "store.cert")),
            (None, None) => Ok(tls),
        }
    }

    fn lacks(&self, given: &str, missing: &str) -> ConfigError {
        let problem = format!("{given} is set, and {missing} is not");
        let fix = "a certificate and its private key belong together: name both files";
        self.wrong(given, problem, fix)
    }

    pub(super) fn audit(&self, raw: &RawAudit) -> AuditConfig {
        let named = self.path("audit.file", &raw.file);
        let file = named.unwrap_or_else(|| self.state_folder().join("audit.jsonl"));
        AuditConfig {
            enabled: raw.enabled,
            file,
            arguments: raw.arguments,
        }
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

    /// Where traces go; `None` if neither the configuration nor OpenTelemetry's variables name a collector, or if those
    /// switch traces off. What they ask for and does not happen is a warning.
    pub(super) fn telemetry(
        &self,
        raw: &RawTelemetry,
        warnings: &mut Vec<String>,
    ) -> Checked<Option<TraceSettings>> {
        let disabled = self.opentelemetry("OTEL_SDK_DISABLED");
        let is_disabled = disabled.is_some_and(|set| set.eq_ignore_ascii_case("true"));
        let has_none = self.exporters().is_some_and(|set| set.is_empty());
        if self.scope < Scope::Server || is_disabled || has_none {
            return Ok(None);
        }
        let Some(url) = self.collector(raw, warnings)? else {
            return Ok(None);
        };
        if url.scheme() == "https" {
            let set = CERTIFICATES.into_iter();
            let set = set.filter(|name| self.opentelemetry(name).is_some());
            warnings.extend(set.map(|name| {
                format!(
                    "{name} is set but not supported: the collector's certificate is checked against the system's \
                     authorities, and no client certificate is sent; add the collector's authority to the system's, or, if \
                     it wants a client certificate, send to a collector nearby that presents one"
                )
            }));
        }
        Ok(Some(TraceSettings {
            url,
            headers: self.headers(raw)?,
            resource: self.resource()?,
            sampler: self.sampler(warnings),
            content: raw.content,
        }))
    }

    /// The value of one of OpenTelemetry's variables.
    fn opentelemetry(&self, name: &str) -> Option<&str> {
        let typed = self.env.get(name)?.trim();
        (!typed.is_empty()).then_some(typed)
    }

    /// The first of these variables that is set, and its value.
    fn first_of(&self, names: [&'static str; 2]) -> Option<(&'static str, &str)> {
        let mut names = names.into_iter();
        names.find_map(|name| Some((name, self.opentelemetry(name)?)))
    }

    /// The exporters of traces that are asked for; empty if the variable says "none".
    fn exporters(&self) -> Option<Vec<&str>> {
        let names = self.opentelemetry(EXPORTERS)?.split(',').map(str::trim);
        Some(
            names
                .filter(|name| !name.eq_ignore_ascii_case("none"))
                .collect(),
        )
    }

    /// The conversations that are traced.
    fn sampler(&self, warnings: &mut Vec<String>) -> Sampler {
        let Some(typed) = self.opentelemetry(SAMPLER) else {
            return Sampler::default();
        };
        let name = typed.to_ascii_lowercase();
        let of_parent = name.strip_prefix("parentbased_");
        let share = match of_parent.unwrap_or(&name) {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.share(warnings),
            _ => {
                warnings.push(format!(
                    "{SAMPLER} is \"{typed}\", which is not known: it counts as parentbased_always_on; known are \
                     always_on, always_off and traceidratio, each also after parentbased_"
                ));
                return Sampler::default();
            }
        };
        Sampler {
            share,
            follows_client: of_parent.is_some(),
        }
    }

    /// The share of traces that are kept.
    fn share(&self, warnings: &mut Vec<String>) -> f64 {
        let Some(typed) = self.opentelemetry(SAMPLER_ARGUMENT) else {
            return 1.0;
        };
        let share: Option<f64> = typed.parse().ok();
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        share.unwrap_or_else(|| {
            warnings.push(format!(
                "{SAMPLER_ARGUMENT} is \"{typed}\", which is not a number from 0 to 1: it counts as 1"
            ));
            1.0
        })
    }

    /// The address of traces. That of the configuration goes before that of the environment.
    fn collector(&self, raw: &RawTelemetry, warnings: &mut Vec<String>) -> Checked<Option<Url>> {
        let example = "give the address of a collector that takes OTLP over HTTP, as in http://127.0.0.1:4318";
        if !raw.endpoint.trim().is_empty() {
            let base = self.address("telemetry.endpoint", &raw.endpoint, example)?;
            return Ok(Some(with_path(&base)));
        }
        let Some((name, typed)) = self.first_of(ENDPOINTS) else {
            return Ok(None);
        };
        let others = self.exporters().unwrap_or_default();
        if !others.is_empty() && !others.iter().any(|name| name.eq_ignore_ascii_case("otlp")) {
            warnings.push(format!(
                "{EXPORTERS} is \"{}\", and traces are sent by otlp only: none are sent; add otlp to it, or set \
                 telemetry.endpoint",
                others.join(",")
            ));
            return Ok(None);
        }
        let protocol = self.first_of(PROTOCOLS);
        let other = protocol.filter(|(_, typed)| !typed.eq_ignore_ascii_case(PROTOCOL));
        // It is often set for all programs of a machine, and no reason to take no calls.
        if let Some((variable, other)) = other {
            warnings.push(format!(
                "{variable} is \"{other}\", and traces are sent by {PROTOCOL} only: none are sent. Set it to {PROTOCOL} \
                 and the address to the collector's port for that, usually 4318; or set telemetry.endpoint"
            ));
            return Ok(None);
        }
        let url = self.address(name, typed, example)?;
        Ok(Some(if name == ENDPOINTS[0] {
            url
        } else {
            with_path(&url)
        }))
    }

    /// The headers of requests to the collector. They may be secret, so errors do not repeat them.
    fn headers(&self, raw: &RawTelemetry) -> Checked<HeaderMap> {
        let key = "telemetry.headers_file";
        let from_file = self.secret_file(key, &raw.headers_file)?;
        let set = || {
            let (name, typed) = self.first_of(HEADERS)?;
            Some((name, typed.to_owned()))
        };
        let Some((origin, typed)) = from_file.map(|typed| (key, typed)).or_else(set) else {
            return Ok(HeaderMap::new());
        };
        let mut headers = HeaderMap::new();
        for (nth, pair) in pairs(&typed).enumerate() {
            let header = pair.and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                let mut value = HeaderValue::from_str(&value).ok()?;
                value.set_sensitive(true);
                Some((name, value))
            });
            let Some((name, value)) = header else {
                let problem = format!("{origin}: entry {} is not a header", nth + 1);
                let fix = "write NAME=VALUE, several with commas between them, as in authorization=Bearer%20KEY";
                return Err(self.wrong(origin, problem, fix));
            };
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// The attributes of this server.
    fn resource(&self) -> Checked<Vec<(String, String)>> {
        let mut resource = vec![
            (SERVICE.to_owned(), env!("CARGO_PKG_NAME").to_owned()),
            (
                "service.version".to_owned(),
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
        ];
        let mut set = |name: String, value: String| {
            resource.retain(|(known, _)| *known != name);
            resource.push((name, value));
        };
        for pair in pairs(self.opentelemetry(RESOURCE).unwrap_or_default()) {
            let Some((name, value)) = pair else {
                let problem = format!("{RESOURCE} has an entry that is not NAME=VALUE");
                let fix = "write several with commas between them, as in deployment.environment.name=test";
                return Err(self.wrong(RESOURCE, problem, fix));
            };
            set(name, value);
        }
        if let Some(name) = self.opentelemetry("OTEL_SERVICE_NAME") {
            set(SERVICE.to_owned(), name.to_owned());
        }
        Ok(resource)
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

/// The address of traces below that of a collector.
fn with_path(base: &Url) -> Url {
    match base.path().trim_end_matches('/').ends_with(traces::PATH) {
        true => base.clone(),
        false => crate::backend::below(base, traces::PATH),
    }
}

/// The pairs in a list of OpenTelemetry's variables: `name=value`, commas between them, values percent-encoded. `None`
/// for an entry that is none. Lines may stand for commas.
fn pairs(typed: &str) -> impl Iterator<Item = Option<(String, String)>> {
    let entries = typed.split([',', '\n']).map(str::trim);
    entries.filter(|entry| !entry.is_empty()).map(|entry| {
        let (name, value) = entry.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| (name.to_owned(), value.into_owned()))
    })
}
