//! Access control: which clients may open a session.

use super::choice::Choosable;
use super::errors;
use super::secrets::{self, Unfit};
use super::settings::ServerSettings;
use super::shared::Shared;
use crate::metrics::Refusal;
use crate::tools::SessionValues;
use crate::transport::realtime::{self, Fault};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// The prefix of a subprotocol that carries a token, since browsers cannot set headers on a
/// WebSocket.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

/// The header in which clients written for Azure show their key.
const API_KEY: &str = "api-key";

/// Headers that proxies and content delivery networks add.
const FORWARDED: [&str; 12] = [
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ray",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-real-ip",
];

/// The prefix of `X-Forwarded-For`, `-Proto`, `-Host`, `-Port`, `-Server`, `-Ssl` and others.
const X_FORWARDED: &str = "x-forwarded-";

/// The reason a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// A token is configured, and the client presented no valid one.
    #[error("a valid token is needed: Authorization: Bearer <token>")]
    Token,
    /// The client secret has expired.
    #[error("this client secret has expired: make another at /v1/realtime/client_secrets")]
    Expired,
    /// The web page's origin is not allowed.
    #[error("this origin is not allowed; see allowed_origins in the configuration")]
    Origin,
    /// The request was forwarded by a proxy, so its loopback address proves nothing.
    #[error(
        "clients behind a proxy need a token: set UNDERTONE_AUTH_TOKEN or server.auth_token_file, \
         or server.insecure if the proxy authenticates clients"
    )]
    Proxied,
    /// The client is neither a web page nor has a token.
    #[error("clients without an Origin header need a token")]
    NoOrigin,
}

impl Denied {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Token | Self::Expired => StatusCode::UNAUTHORIZED,
            Self::Origin | Self::Proxied | Self::NoOrigin => StatusCode::FORBIDDEN,
        }
    }
}

/// Checks a request to open a session on a server that listens on `address`.
///
/// A valid token is enough. If no token is configured, a page's origin must be this host, a
/// loopback host or listed, so that a foreign web page cannot use a visitor's server; clients
/// without an origin are admitted on loopback only. Requests forwarded by a local proxy also come
/// from loopback and are refused if their headers reveal the proxy.
pub(super) fn check(
    headers: &HeaderMap,
    settings: &ServerSettings,
    address: SocketAddr,
) -> Result<(), Denied> {
    if let Some(token) = &settings.auth_token {
        return if shows(headers, token) {
            Ok(())
        } else {
            Err(Denied::Token)
        };
    }
    match headers
        .get(ORIGIN)
        .map(|origin| origin.to_str().unwrap_or_default())
    {
        Some(origin) if !is_allowed(origin, headers, settings) => Err(Denied::Origin),
        _ if !settings.insecure && is_proxied(headers) => Err(Denied::Proxied),
        Some(_) => Ok(()),
        None if address.ip().is_loopback() || settings.insecure => Ok(()),
        None => Err(Denied::NoOrigin),
    }
}

/// Returns `true` if `shown` is the server's token.
pub(super) fn is_token(shown: &str, settings: &ServerSettings) -> bool {
    let token = settings.auth_token.as_ref();
    token.is_some_and(|token| equal(shown, token.expose_secret()))
}

/// Returns `true` if the client presents the server's token in its headers.
pub(super) fn shows_token(headers: &HeaderMap, settings: &ServerSettings) -> bool {
    let token = settings.auth_token.as_ref();
    token.is_some_and(|token| shows(headers, token))
}

fn shows(headers: &HeaderMap, token: &SecretString) -> bool {
    shown(headers)
        .iter()
        .any(|shown| equal(shown, token.expose_secret()))
}

/// All tokens that a client presents.
pub(super) fn shown(headers: &HeaderMap) -> Vec<String> {
    let authorization = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .map(|(scheme, shown)| (scheme, shown.trim()));
    let bearer = authorization
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, shown)| shown);
    let basic = authorization
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"))
        .and_then(|(_, shown)| password(shown));
    let key = headers.get(API_KEY).and_then(|value| value.to_str().ok());
    let offered = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().strip_prefix(KEY_PROTOCOL));
    bearer
        .into_iter()
        .chain(basic.as_deref())
        .chain(key)
        .chain(offered)
        .map(str::to_owned)
        .collect()
}

/// The password in HTTP Basic credentials, which Asterisk's WebSocket client sends. The user name
/// is ignored.
fn password(credentials: &str) -> Option<String> {
    let decoded = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    Some(password.to_owned())
}

/// Compares in constant time, revealing neither content nor length.
fn equal(shown: &str, token: &str) -> bool {
    Sha256::digest(shown)
        .as_slice()
        .ct_eq(Sha256::digest(token).as_slice())
        .into()
}

fn is_allowed(origin: &str, headers: &HeaderMap, settings: &ServerSettings) -> bool {
    if settings
        .allowed_origins
        .iter()
        .any(|allowed| allowed.trim_end_matches('/') == origin)
    {
        return true;
    }
    let Some(page) = origin
        .parse::<Uri>()
        .ok()
        .filter(|page| page.scheme().is_some())
    else {
        return false;
    };
    page.host().is_some_and(is_loopback) || is_this_host(&page, headers)
}

/// Whether the page was served from the host and port that it connects to. Only IP addresses count,
/// because the owner of a name may point it here (DNS rebinding).
fn is_this_host(page: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let address = page.host().and_then(ip);
    address.is_some() && page.authority().map(|authority| authority.as_str()) == host
}

/// Whether a forwarding header is present, or the `Host` is a name other than this machine's
/// loopback names.
fn is_proxied(headers: &HeaderMap) -> bool {
    let named = || {
        let host = headers
            .get(HOST)?
            .to_str()
            .ok()?
            .parse::<Authority>()
            .ok()?;
        Some(!is_loopback(host.host()) && ip(host.host()).is_none())
    };
    let passed_on = |name: &str| FORWARDED.contains(&name) || name.starts_with(X_FORWARDED);
    headers.keys().any(|name| passed_on(name.as_str())) || named() == Some(true)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || ip(host).is_some_and(|ip| ip.is_loopback())
}

fn ip(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// A client that may open a session.
pub(super) struct Admitted {
    /// The session configuration in its client secret; null if there is no secret, or no
    /// configuration in it.
    pub(super) session: Value,
    /// The caller according to the secret.
    pub(super) values: SessionValues,
    /// The agent that the secret is for.
    pub(super) agent: Option<String>,
    /// `true` if it has presented the server's token.
    pub(super) is_trusted: bool,
    /// The session of its secret may choose services.
    pub(super) services: bool,
}

impl Admitted {
    /// Whether its secret configures the session beyond naming the agent.
    pub(super) fn configures(&self) -> bool {
        realtime::configures(&self.session)
    }

    /// The agent that the client gets, if it has a choice: that of its secret, or the one it names.
    ///
    /// # Errors
    /// A [`Fault`] if it may not have the agent that it names.
    pub(super) fn agent(
        &self,
        agents: &Choosable,
        agent: Option<&str>,
        model: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        match (self.agent.as_deref(), agent) {
            (Some(granted), Some(named)) if granted != named => {
                let message = format!("The client secret is for the agent '{granted}'.");
                Err(Fault::new("agent_not_allowed", "agent", message))
            }
            (Some(granted), _) => agents.choice(true, Some(granted), None),
            (None, named) => agents.choice(self.is_trusted, named, model),
        }
    }
}

/// Admits a client to open a session.
#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
pub(super) fn admit(shared: &Shared, headers: &HeaderMap) -> Result<Admitted, Response> {
    let mut expired = false;
    for secret in shown(headers) {
        match shared.secrets.read(&secret, secrets::now()) {
            Ok(grant) => {
                return Ok(Admitted {
                    session: grant.session,
                    values: grant.values,
                    agent: grant.agent,
                    is_trusted: false,
                    services: grant.services,
                });
            }
            Err(Unfit::Expired) => expired = true,
            Err(Unfit::Unknown) => {}
        }
    }
    match admit_with_token(shared, headers) {
        Ok(()) => Ok(Admitted {
            session: Value::Null,
            values: SessionValues::default(),
            agent: None,
            is_trusted: shows_token(headers, &shared.settings()),
            services: false,
        }),
        Err(Denied::Token) if expired => Err(refusal(shared, Denied::Expired)),
        Err(denied) => Err(refusal(shared, denied)),
    }
}

/// Admits a client to more than opening sessions, for which a client secret is not enough.
pub(super) fn admit_with_token(shared: &Shared, headers: &HeaderMap) -> Result<(), Denied> {
    check(headers, &shared.settings(), shared.address)
}

/// The response to a refused client, in the format of OpenAI's clients.
pub(super) fn refusal(shared: &Shared, denied: Denied) -> Response {
    tracing::info!(%denied, "refused a client");
    shared.metrics.refused(Refusal::Denied);
    let challenge = [(WWW_AUTHENTICATE, "Bearer")];
    let code = match denied.status() {
        StatusCode::UNAUTHORIZED => "invalid_api_key",
        _ => "forbidden",
    };
    let error = errors::error(denied.status(), code, None, denied.to_string());
    (challenge, error).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    const LOOPBACK: &str = "127.0.0.1:8080";
    const LAN: &str = "192.168.1.5:8080";

    fn try_with(
        settings: &ServerSettings,
        address: &str,
        fields: &[(HeaderName, &'static str)],
    ) -> Result<(), Denied> {
        let headers = fields
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        check(&headers, settings, address.parse().expect("an address"))
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let settings = ServerSettings {
            allowed_origins: vec!["https://good.example".into()],
            ..ServerSettings::default()
        };
        for (origin, host, result) in [
            ("https://evil.example", LOOPBACK, Err(Denied::Origin)),
            ("https://good.example", LOOPBACK, Ok(())),
            (
                "https://good.example.evil.example",
                LOOPBACK,
                Err(Denied::Origin),
            ),
            ("http://localhost:3000", LOOPBACK, Ok(())),
            ("http://[::1]:3000", LOOPBACK, Ok(())),
            (
                "http://127.0.0.1.evil.example",
                LOOPBACK,
                Err(Denied::Origin),
            ),
            (
                "http://localhost@evil.example",
                LOOPBACK,
                Err(Denied::Origin),
            ),
            ("http://192.168.1.5:8080", LAN, Ok(())),
            ("http://192.168.1.6:8080", LAN, Err(Denied::Origin)),
            ("null", LOOPBACK, Err(Denied::Origin)),
            ("", LOOPBACK, Err(Denied::Origin)),
        ] {
            let fields = [(ORIGIN, origin), (HOST, host)];
            assert_eq!(try_with(&settings, LOOPBACK, &fields), result, "{origin}");
        }
    }

    #[test]
    fn a_rebound_dns_name_is_refused() {
        let fields = [
            (ORIGIN, "http://rebound.example:8080"),
            (HOST, "rebound.example:8080"),
        ];
        let result = try_with(&ServerSettings::default(), LOOPBACK, &fields);
        assert_eq!(result, Err(Denied::Origin));
    }

    #[test]
    fn requests_through_a_proxy_need_a_token() {
        let forwarded = || HeaderName::from_static("x-forwarded-for");
        let mut proxied = vec![
            vec![(HOST, "voice.example.com")],
            vec![(ORIGIN, "http://localhost:3000"), (forwarded(), "::1")],
        ];
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.7"),
            ("forwarded", "for=203.0.113.7"),
            ("via", "1.1 varnish"),
            ("cf-connecting-ip", "203.0.113.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-server", "proxy"),
        ] {
            proxied.push(vec![(HeaderName::from_static(name), value)]);
        }
        let open = ServerSettings::default();
        let token = ServerSettings {
            auth_token: Some("secret".into()),
            ..ServerSettings::default()
        };
        let insecure = ServerSettings {
            insecure: true,
            ..ServerSettings::default()
        };
        for mut fields in proxied {
            let denied = Err(Denied::Proxied);
            assert_eq!(try_with(&open, LOOPBACK, &fields), denied, "{fields:?}");
            assert_eq!(try_with(&insecure, LOOPBACK, &fields), Ok(()), "{fields:?}");
            fields.push((AUTHORIZATION, "Bearer secret"));
            assert_eq!(try_with(&token, LOOPBACK, &fields), Ok(()), "{fields:?}");
        }
        for host in [
            LOOPBACK,
            "localhost:8787",
            "undertone.localhost",
            "[::1]:8787",
        ] {
            assert_eq!(try_with(&open, LOOPBACK, &[(HOST, host)]), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_missing_origin_is_allowed_on_loopback_or_with_a_token() {
        let open = ServerSettings::default();
        assert_eq!(try_with(&open, LOOPBACK, &[]), Ok(()));
        assert_eq!(try_with(&open, LAN, &[]), Err(Denied::NoOrigin));
        let insecure = ServerSettings {
            insecure: true,
            ..ServerSettings::default()
        };
        assert_eq!(try_with(&insecure, LAN, &[]), Ok(()));
    }

    #[test]
    fn a_token_may_be_in_a_header_or_a_subprotocol() {
        let settings = ServerSettings {
            auth_token: Some("secret".into()),
            ..ServerSettings::default()
        };
        let api_key = || HeaderName::from_static(API_KEY);
        for (fields, result) in [
            (vec![], Err(Denied::Token)),
            (vec![(AUTHORIZATION, "Bearer secret")], Ok(())),
            (vec![(api_key(), "secret")], Ok(())),
            (vec![(api_key(), "secre")], Err(Denied::Token)),
            (vec![(AUTHORIZATION, "bearer secret")], Ok(())),
            (vec![(AUTHORIZATION, "Bearer secre")], Err(Denied::Token)),
            (vec![(AUTHORIZATION, "Basic secret")], Err(Denied::Token)),
            // asterisk:secret, :secret, asterisk:wrong, secret, secret:, a:sec:ret
            (vec![(AUTHORIZATION, "Basic YXN0ZXJpc2s6c2VjcmV0")], Ok(())),
            (vec![(AUTHORIZATION, "basic OnNlY3JldA==")], Ok(())),
            (
                vec![(AUTHORIZATION, "Basic YXN0ZXJpc2s6d3Jvbmc=")],
                Err(Denied::Token),
            ),
            (vec![(AUTHORIZATION, "Basic c2VjcmV0")], Err(Denied::Token)),
            (
                vec![(AUTHORIZATION, "Basic c2VjcmV0Og==")],
                Err(Denied::Token),
            ),
            (
                vec![(AUTHORIZATION, "Basic YTpzZWM6cmV0")],
                Err(Denied::Token),
            ),
            (
                vec![(AUTHORIZATION, "Bearer YXN0ZXJpc2s6c2VjcmV0")],
                Err(Denied::Token),
            ),
            (
                vec![(
                    SEC_WEBSOCKET_PROTOCOL,
                    "realtime, openai-insecure-api-key.secret",
                )],
                Ok(()),
            ),
            (
                vec![(SEC_WEBSOCKET_PROTOCOL, "openai-insecure-api-key.")],
                Err(Denied::Token),
            ),
        ] {
            assert_eq!(try_with(&settings, LAN, &fields), result, "{fields:?}");
        }
    }
}
