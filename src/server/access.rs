//! Who may open a session.

use super::errors;
use super::secrets::{self, Unfit};
use super::settings::ServerSettings;
use super::shared::Shared;
use crate::metrics::Refusal;
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

/// How browsers show a token: they cannot set headers on a WebSocket.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

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

/// The beginning of many more: of `X-Forwarded-For`, `-Proto`, `-Host`, `-Port`, `-Server`, `-Ssl`.
const X_FORWARDED: &str = "x-forwarded-";

/// Why a client may not come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// There is a token to be shown, and it was not shown.
    #[error("a valid token is needed: Authorization: Bearer <token>")]
    Token,
    /// A client secret was shown whose time is over.
    #[error("this client secret has expired: make another at /v1/realtime/client_secrets")]
    Expired,
    /// The page is a stranger.
    #[error("this origin is not allowed; see allowed_origins in the configuration")]
    Origin,
    /// A proxy on this machine passes on what was sent from elsewhere.
    #[error(
        "clients behind a proxy need a token here: set UNDERTONE_AUTH_TOKEN or server.auth_token_file, \
         or server.insecure if the proxy sees to who may come in"
    )]
    Proxied,
    /// Neither a page nor a client with a token.
    #[error("clients without an Origin header need a token here")]
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
/// A valid token is enough. Without one configured, a page's origin must be this host, a loopback
/// host or listed, so that no web page can use a visitor's microphone server; clients without an
/// origin are welcome on loopback. What a proxy passes on comes from loopback, too, and is refused
/// as far as it shows.
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

/// Whether this is the server's token.
pub(super) fn is_token(shown: &str, settings: &ServerSettings) -> bool {
    let token = settings.auth_token.as_ref();
    token.is_some_and(|token| equal(shown, token.expose_secret()))
}

fn shows(headers: &HeaderMap, token: &SecretString) -> bool {
    shown(headers)
        .iter()
        .any(|shown| equal(shown, token.expose_secret()))
}

/// Everything that a client shows as its token.
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
    let offered = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().strip_prefix(KEY_PROTOCOL));
    bearer
        .into_iter()
        .chain(basic.as_deref())
        .chain(offered)
        .map(str::to_owned)
        .collect()
}

/// The password of HTTP Basic, which Asterisk's WebSocket client sends. The user's name is nobody's
/// business here.
fn password(credentials: &str) -> Option<String> {
    let decoded = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    Some(password.to_owned())
}

/// Compares in a time that tells neither the content nor the length.
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

/// The page came from the very host and port that it connects to. Only for addresses: a name may
/// be pointed anywhere by whoever owns it (DNS rebinding).
fn is_this_host(page: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let address = page.host().and_then(ip);
    address.is_some() && page.authority().map(|authority| authority.as_str()) == host
}

/// Somebody says that he speaks for another, or the client asked for this server by a name that is
/// not of this machine alone.
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

/// Lets a client open a session, or says why not. Returns the configuration that its client secret
/// carries; null if it shows none or that has none.
#[allow(
    clippy::result_large_err,
    reason = "the error is the answer, made once for each stranger"
)]
pub(super) fn admit(shared: &Shared, headers: &HeaderMap) -> Result<Value, Response> {
    let mut expired = false;
    for secret in shown(headers) {
        match shared.secrets.read(&secret, secrets::now()) {
            Ok(grant) => return Ok(grant.session),
            Err(Unfit::Expired) => expired = true,
            Err(Unfit::Unknown) => {}
        }
    }
    match admit_with_token(shared, headers) {
        Ok(()) => Ok(Value::Null),
        Err(Denied::Token) if expired => Err(refusal(shared, Denied::Expired)),
        Err(denied) => Err(refusal(shared, denied)),
    }
}

/// Lets in who may do more than open sessions: a client secret is not enough.
pub(super) fn admit_with_token(shared: &Shared, headers: &HeaderMap) -> Result<(), Denied> {
    check(headers, &shared.settings(), shared.address)
}

/// Says why a client stays out, as OpenAI's clients read it.
pub(super) fn refusal(shared: &Shared, denied: Denied) -> Response {
    tracing::info!(%denied, "a client stays out");
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
    fn pages_of_strangers_stay_out() {
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
    fn a_name_that_was_pointed_here_stays_out() {
        let fields = [
            (ORIGIN, "http://rebound.example:8080"),
            (HOST, "rebound.example:8080"),
        ];
        let result = try_with(&ServerSettings::default(), LOOPBACK, &fields);
        assert_eq!(result, Err(Denied::Origin));
    }

    #[test]
    fn what_a_proxy_passes_on_needs_a_token() {
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
    fn no_origin_is_for_loopback_and_tokens() {
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
    fn a_token_is_shown_in_a_header_or_a_subprotocol() {
        let settings = ServerSettings {
            auth_token: Some("secret".into()),
            ..ServerSettings::default()
        };
        for (fields, result) in [
            (vec![], Err(Denied::Token)),
            (vec![(AUTHORIZATION, "Bearer secret")], Ok(())),
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
