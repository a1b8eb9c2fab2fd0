//! Servers of models over HTTP: the client, addresses below a base, and errors without secrets.

pub mod socket;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Client, RequestBuilder, Response, redirect};
use secrecy::{ExposeSecret, SecretString};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;
use std::time::Duration;
use url::{Host, Url};

/// The most bytes of an error that are shown.
const MAX_ERROR_BYTES: usize = 600;

/// How long an idle connection is kept: longer than most pauses in a conversation.
const POOL_IDLE: Duration = Duration::from_secs(120);

/// How a server is shown its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// `Authorization: Token KEY`.
    Token,
    /// In this header.
    Header(&'static str),
}

/// A server of models. Connections are reused.
pub struct Backend {
    client: Client,
    /// Opens a connection for each request, because other kept connections may be closed, too.
    fresh: Client,
    base_url: Url,
    api_key: Option<SecretString>,
    /// The key that it had before, which errors may still repeat.
    key_before: Option<SecretString>,
    connect_timeout: Duration,
    stall_timeout: Duration,
}

impl Backend {
    /// Sets up the client; connects to nothing. All paths are below `base_url`. `connect_timeout` covers the
    /// connection, TLS included; `stall_timeout` is the longest silence of the server.
    ///
    /// # Errors
    /// An error if the address is not `http` or `https`, the key cannot be sent in a header, or
    /// TLS is unavailable.
    pub fn new(
        mut base_url: Url,
        api_key: Option<SecretString>,
        connect_timeout: Duration,
        stall_timeout: Duration,
    ) -> Result<Self, String> {
        if !matches!(base_url.scheme(), "http" | "https") {
            let url = shown(&base_url);
            return Err(format!("{url} must begin with http:// or https://"));
        }
        if let Some(key) = &api_key {
            fits_a_header(key)?;
            without_login(&mut base_url);
        }
        let client = |kept: usize| {
            let built = client(&base_url, connect_timeout, stall_timeout, kept);
            built.map_err(|error| causes(&error))
        };
        Ok(Self {
            client: client(usize::MAX)?,
            fresh: client(0)?,
            base_url,
            api_key,
            key_before: None,
            connect_timeout,
            stall_timeout,
        })
    }

    /// The same server, over the same connections, with another key; `None` if it is the one that it has.
    ///
    /// # Errors
    /// An error if the key cannot be sent in a header.
    pub fn with_key(&self, key: SecretString) -> Result<Option<Self>, String> {
        let own = self.api_key.as_ref().map(|own| own.expose_secret());
        if own == Some(key.expose_secret()) {
            return Ok(None);
        }
        fits_a_header(&key)?;
        Ok(Some(Self {
            client: self.client.clone(),
            fresh: self.fresh.clone(),
            base_url: self.base_url.clone(),
            api_key: Some(key),
            key_before: self.api_key.clone(),
            connect_timeout: self.connect_timeout,
            stall_timeout: self.stall_timeout,
        }))
    }

    /// The address below which all paths are.
    pub fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// A GET request for a path below the base address.
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(below(&self.base_url, path))
    }

    /// A GET request for a path below the base address, with a query.
    pub fn get_with(&self, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        self.client.get(with_query(&self.base_url, path, query))
    }

    /// A POST request to a path below the base address.
    pub fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(below(&self.base_url, path))
    }

    /// A POST request to a path below the base address, with a query.
    pub fn post_with(&self, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        self.client.post(with_query(&self.base_url, path, query))
    }

    /// A GET request to another address of the same server.
    pub fn get_from(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }

    /// A POST request to another address of the same server.
    pub fn post_to(&self, url: Url) -> RequestBuilder {
        self.client.post(url)
    }

    /// The base address without user, password, query and fragment.
    pub fn shown(&self) -> String {
        shown(&self.base_url)
    }

    /// Sends a request with the key in this form. If the connection is closed before the answer's first line, the
    /// request is sent once more on a new connection: servers close connections that were idle for some seconds, and
    /// may do so just when the next request is on its way.
    ///
    /// # Errors
    /// An error if the server cannot be reached.
    pub async fn send(
        &self,
        mut request: RequestBuilder,
        key: KeyForm,
    ) -> Result<Response, String> {
        if let Some(secret) = &self.api_key {
            let secret = secret.expose_secret();
            request = match key {
                KeyForm::Bearer => request.bearer_auth(secret),
                KeyForm::Token => request.header(AUTHORIZATION, format!("Token {secret}")),
                KeyForm::Header(name) => request.header(name, secret),
            };
        }
        let again = request.try_clone();
        let sent = match (request.send().await, again) {
            (Err(error), Some(again)) if was_closed(&error) => {
                tracing::debug!(url = self.shown(), "the server had closed the connection");
                match again.build_split().1 {
                    Ok(again) => self.fresh.execute(again).await,
                    Err(error) => Err(error),
                }
            }
            (sent, _) => sent,
        };
        sent.map_err(|error| self.explain(&error))
    }

    /// The body's first `limit` bytes as text.
    ///
    /// # Errors
    /// The error if the body broke off.
    pub async fn read(&self, mut response: Response, limit: usize) -> Result<String, String> {
        let mut body = Vec::new();
        while body.len() < limit {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Err(self.explain(&error)),
            }
        }
        body.truncate(limit);
        Ok(String::from_utf8_lossy(&body).trim().to_owned())
    }

    /// The error in words, without the key.
    pub fn explain(&self, error: &reqwest::Error) -> String {
        if error.is_timeout() && error.is_connect() {
            return format!(
                "no connection within {} ms",
                self.connect_timeout.as_millis()
            );
        }
        if error.is_timeout() {
            return format!("nothing came for {} ms", self.stall_timeout.as_millis());
        }
        self.redacted(&causes(error))
    }

    /// The text without the key and the one before, which some servers repeat in their errors, and cut to a bounded length.
    pub fn redacted(&self, text: &str) -> String {
        let keys = self.api_key.iter().chain(&self.key_before);
        let keys = keys.map(|key| key.expose_secret());
        let text = keys
            .filter(|key| !key.is_empty())
            .fold(text.to_owned(), |text, key| text.replace(key, "[key]"));
        clipped(&text, MAX_ERROR_BYTES).to_owned()
    }
}

fn fits_a_header(key: &SecretString) -> Result<(), String> {
    let mut bytes = key.expose_secret().bytes();
    match bytes.all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err("the API key contains characters that a header cannot carry".into()),
    }
}

/// A client that keeps at most so many idle connections.
fn client(
    base_url: &Url,
    connect_timeout: Duration,
    stall_timeout: Duration,
    kept: usize,
) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .user_agent(concat!("undertone/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_timeout)
        .read_timeout(stall_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(kept)
        .tcp_nodelay(true)
        .redirect(redirect::Policy::none());
    if is_loopback(base_url) {
        builder.no_proxy().build()
    } else {
        builder.build()
    }
}

/// Whether the connection was closed before the answer's first line.
fn was_closed(error: &reqwest::Error) -> bool {
    let is_closing = |kind| {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(
            kind,
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
        )
    };
    let mut causes = successors(error.source(), |&cause| cause.source());
    error.is_request()
        && !error.is_connect()
        && causes.any(|cause| {
            let http = cause.downcast_ref::<hyper::Error>();
            let tcp = cause.downcast_ref::<io::Error>();
            http.is_some_and(hyper::Error::is_incomplete_message)
                || tcp.is_some_and(|error| is_closing(error.kind()))
        })
}

/// Whether the server is on this machine. A proxy from the environment is not used for it.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        None => false,
    }
}

/// Removes user and password, which would replace the key in the same header.
fn without_login(url: &mut Url) {
    // Both fail only for URLs that cannot contain a login.
    let _ = url.set_username("");
    let _ = url.set_password(None);
}

/// The address of a path below a base address.
pub fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

/// A path below an address, with a query.
fn with_query(base: &Url, path: &str, query: &[(&str, &str)]) -> Url {
    let mut url = below(base, path);
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// The address without user, password, query and fragment.
pub fn shown(url: &Url) -> String {
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    format!(
        "{}://{}{port}{}",
        url.scheme(),
        url.host_str().unwrap_or_default(),
        url.path()
    )
}

/// The time for which a refused client is to wait, if the server says so: in milliseconds, as OpenAI and Azure do, in seconds,
/// or by a date. A date counts from the server's own time, so that clocks may differ.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: a server may name a date without its own time"
)]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &'static str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name| text(name)?.parse::<f64>().ok();
    let date = |name| DateTimeParser::new().parse_timestamp(text(name)?).ok();
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    let millis = number("retry-after-ms").and_then(|ms| seconds(ms / 1_000.0));
    let in_seconds = || number("retry-after").and_then(seconds);
    let by_date = || {
        let left = date("retry-after")?.duration_since(date("date").unwrap_or_else(Timestamp::now));
        // It may be over.
        Some(Duration::try_from(left).unwrap_or_default())
    };
    millis.or_else(in_seconds).or_else(by_date)
}

/// The error's innermost cause, which is more specific than "error sending request for url (...)".
fn causes(error: &reqwest::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if std::ptr::addr_eq(innermost, error) {
        "the request failed".into()
    } else {
        innermost.to_string()
    }
}

/// The first `bytes` bytes, or a few less.
pub fn clipped(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    /// Only seconds were read: after a date a server was asked again at once, and milliseconds were rounded up.
    #[test]
    fn a_server_may_say_in_each_form_how_long_to_wait() {
        const NOW: &str = "Wed, 21 Oct 2099 07:28:00 GMT";
        for (fields, millis) in [
            (&[("retry-after", "7")][..], Some(7_000)),
            (&[("retry-after", " 0.2 ")], Some(200)),
            (&[("retry-after", "1"), ("retry-after-ms", "43")], Some(43)),
            (
                &[("retry-after", "1"), ("retry-after-ms", "soon")],
                Some(1_000),
            ),
            (
                &[
                    ("retry-after", "Wed, 21 Oct 2099 07:28:30 GMT"),
                    ("date", NOW),
                ],
                Some(30_000),
            ),
            (
                &[
                    ("retry-after", "Wed, 21 Oct 2099 07:27:59 GMT"),
                    ("date", NOW),
                ],
                Some(0),
            ),
            (&[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")], Some(0)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "later")], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for &(name, value) in fields {
                headers.insert(name, HeaderValue::from_static(value));
            }
            let wait = retry_after(&headers);
            assert_eq!(wait, millis.map(Duration::from_millis), "{fields:?}");
        }
        let far = HeaderValue::from_static(NOW);
        let headers = HeaderMap::from_iter([(reqwest::header::RETRY_AFTER, far)]);
        assert!(retry_after(&headers).is_some_and(|wait| wait > Duration::from_hours(24)));
    }
}
