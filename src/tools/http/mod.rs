//! Tools that are HTTP requests, as a declaration describes them.

mod guard;

pub use guard::{Forbidden, Web};
pub(crate) use guard::{is_loopback, is_private_host};
pub(crate) use reqwest::header::HeaderName;

use super::template::{Template, context};
use super::{CallContext, Declaration, Tool, ToolError};
use futures_util::future::BoxFuture;
use minijinja::Value as Jinja;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// As many as curl's documentation shows; each costs a round trip while somebody waits.
const MOST_REDIRECTS: usize = 3;
/// A warm-up that takes longer came too late.
const WARM_UP_PATIENCE: Duration = Duration::from_secs(5);
/// The most of an error's text that is passed on, in characters.
const MOST_ERROR: usize = 200;

/// A header's value.
#[derive(Debug, Clone)]
pub(crate) enum Header {
    /// May depend on the arguments.
    Template(Template),
    /// From the environment or a file.
    Secret(SecretString),
}

/// A JSON body with templates for its texts.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// A text, or what an expression gives.
    Template(Template),
    /// A list.
    Array(Vec<Body>),
    /// An object.
    Object(Vec<(String, Body)>),
    /// Anything else.
    Fixed(Value),
}

/// The selection from an answer.
#[derive(Debug, Clone)]
pub(crate) enum Pick {
    /// A JSON pointer, RFC 6901.
    Pointer {
        /// The pointer.
        pointer: Template,
        /// `null` where there is nothing.
        optional: bool,
    },
    /// An expression over `body` and the arguments.
    Expression(Template),
}

/// A request and what is made of its answer.
#[derive(Debug, Clone)]
pub struct HttpPlan {
    pub(crate) method: Method,
    pub(crate) origin: Url,
    pub(crate) url: Template,
    pub(crate) query: Vec<(String, Template)>,
    pub(crate) headers: Vec<(HeaderName, Header)>,
    pub(crate) json: Option<Body>,
    pub(crate) response: Vec<(String, Pick)>,
    pub(crate) error: Option<String>,
    pub(crate) limit: usize,
    pub(crate) idempotency_header: Option<HeaderName>,
    pub(crate) warm_up: Url,
    pub(crate) allow_private: bool,
}

impl HttpPlan {
    /// Whether it reaches this machine only.
    pub(crate) fn is_local(&self) -> bool {
        self.allow_private && is_loopback(&self.origin)
    }

    /// The secrets that its requests carry.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretString> {
        self.headers.iter().filter_map(|(_, header)| match header {
            Header::Secret(secret) => Some(secret),
            Header::Template(_) => None,
        })
    }

    /// The private origin that the declaration names.
    fn allowed(&self) -> Option<&Url> {
        self.allow_private.then_some(&self.origin)
    }

    fn request(&self, seen: &Jinja, key: &str) -> Result<Request, String> {
        Ok(Request {
            method: self.method.clone(),
            url: self.address(seen)?,
            headers: self.headers(seen, key)?,
            json: self
                .json
                .as_ref()
                .map(|body| filled(body, seen))
                .transpose()?,
        })
    }

    fn address(&self, seen: &Jinja) -> Result<Url, String> {
        let text = self.url.address(seen)?;
        let path = text.split(['?', '#']).next().unwrap_or_default();
        let is_dots = |segment: &str| {
            let segment = segment.to_ascii_lowercase().replace("%2e", ".");
            segment == "." || segment == ".."
        };
        if path.split(['/', '\\']).any(is_dots) {
            return Err("an argument would lead out of the address's path".into());
        }
        let mut url = Url::parse(&text).map_err(|error| error.to_string())?;
        if url.origin() != self.origin.origin()
            || url.password().is_some()
            || !url.username().is_empty()
        {
            return Err("an argument would change the address's host".into());
        }
        for (name, template) in &self.query {
            match template.json(seen)? {
                Value::Null => {}
                Value::String(text) => drop(url.query_pairs_mut().append_pair(name, &text)),
                other => drop(url.query_pairs_mut().append_pair(name, &other.to_string())),
            }
        }
        Ok(url)
    }

    fn headers(&self, seen: &Jinja, key: &str) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        for (name, header) in &self.headers {
            let value = match header {
                Header::Template(template) => HeaderValue::from_str(&template.text(seen)?),
                Header::Secret(secret) => HeaderValue::from_str(secret.expose_secret()),
            };
            let mut value =
                value.map_err(|_| format!("the header {name} would hold line breaks"))?;
            value.set_sensitive(matches!(header, Header::Secret(_)));
            headers.insert(name, value);
        }
        if let Some(name) = &self.idempotency_header {
            let key =
                HeaderValue::from_str(key).map_err(|_| "the idempotency key holds line breaks")?;
            headers.insert(name, key);
        }
        Ok(headers)
    }

    /// Applies the declaration's selection to an answer; without one the whole answer is the result.
    fn picked(
        &self,
        body: Value,
        parameters: &Value,
        arguments: &Map<String, Value>,
    ) -> Result<Value, String> {
        if self.response.is_empty() {
            return Ok(body);
        }
        let seen = context(parameters, arguments, [("body", body.clone())]);
        let pick = |(name, pick): &(String, Pick)| {
            let value = match pick {
                Pick::Expression(template) => template.json(&seen)?,
                Pick::Pointer { pointer, optional } => match body.pointer(&pointer.pointer(&seen)?)
                {
                    Some(value) => value.clone(),
                    None if *optional => Value::Null,
                    None => return Err(format!("the answer has no {name}")),
                },
            };
            Ok((name.clone(), value))
        };
        self.response
            .iter()
            .map(pick)
            .collect::<Result<Map<_, _>, _>>()
            .map(Value::Object)
    }
}

fn filled(body: &Body, seen: &Jinja) -> Result<Value, String> {
    match body {
        Body::Template(template) => template.json(seen),
        Body::Fixed(value) => Ok(value.clone()),
        Body::Array(items) => items.iter().map(|item| filled(item, seen)).collect(),
        Body::Object(entries) => entries
            .iter()
            .map(|(name, value)| Ok((name.clone(), filled(value, seen)?)))
            .collect::<Result<Map<_, _>, _>>()
            .map(Value::Object),
    }
}

/// A request as it is sent.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Option<Value>,
}

impl Request {
    /// A GET for JSON.
    pub(crate) fn get(url: Url) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        Self {
            method: Method::GET,
            url,
            headers,
            json: None,
        }
    }
}

/// The failure of a request.
pub(crate) struct Failure {
    /// The cause, without the address's query and without secrets.
    pub(crate) reason: String,
    /// Whether the request, or a part of it, may have reached the service.
    pub(crate) is_sent: bool,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self {
            reason,
            is_sent: true,
        }
    }
}

/// The answer of a service.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The body as JSON, or as text if it is not JSON.
    pub(crate) body: Value,
}

impl Web {
    /// Sends a request and reads at most `limit` bytes of its answer. Only what changes nothing
    /// (GET, HEAD) follows redirects, at most three, each checked like the first; from one
    /// origin to another no header goes along. Dropping the future closes the connection.
    ///
    /// # Errors
    /// If the request fails.
    pub(crate) async fn fetch(
        &self,
        mut request: Request,
        allowed: Option<&Url>,
        limit: usize,
    ) -> Result<Answer, Failure> {
        for hop in 0..=MOST_REDIRECTS {
            let sent = self.send(&request, allowed).await;
            // What has sent us elsewhere has had the request.
            let response = sent.map_err(|failure| Failure {
                is_sent: failure.is_sent || hop > 0,
                ..failure
            })?;
            let Some(next) = redirected(&response, &request)? else {
                return read(response, limit).await;
            };
            if next.origin() != request.url.origin() {
                request.headers = Request::get(next.clone()).headers;
            }
            request.url = next;
        }
        Err(format!("more than {MOST_REDIRECTS} redirects").into())
    }

    async fn send(
        &self,
        request: &Request,
        allowed: Option<&Url>,
    ) -> Result<reqwest::Response, Failure> {
        let client = self
            .client(&request.url, allowed)
            .map_err(|error| Failure {
                reason: error.to_string(),
                is_sent: false,
            })?;
        let mut builder = client
            .request(request.method.clone(), request.url.clone())
            .headers(request.headers.clone());
        if let Some(json) = &request.json {
            builder = builder.json(json);
        }
        builder.send().await.map_err(|error| {
            let mut reason = reason(&error);
            let is_sent = !error.is_connect();
            // A private service would not be behind the proxy.
            let is_public = allowed.is_none() && forbidden(&error).is_none();
            let unused = self.unused_proxy.filter(|_| !is_sent && is_public);
            if let Some(name) = unused {
                reason += &format!("; {name} is set, but tools use no proxy");
            }
            Failure { reason, is_sent }
        })
    }

    /// Opens a connection to `url`'s origin and leaves it to the next call, by asking for nothing
    /// but headers. Looks up the name, connects, and does the TLS handshake.
    pub(crate) async fn warm_up(&self, url: &Url, allowed: Option<&Url>) {
        let request = Request {
            method: Method::HEAD,
            ..Request::get(url.clone())
        };
        let opened = async {
            let response = self.send(&request, allowed).await?;
            read(response, 0).await.map(|_| ())
        };
        if let Ok(Err(Failure { reason: error, .. })) =
            tokio::time::timeout(WARM_UP_PATIENCE, opened).await
        {
            tracing::debug!(host = url.host_str(), error, "cannot warm up");
        }
    }
}

/// The target of a redirect; `None` for any other answer.
fn redirected(response: &reqwest::Response, request: &Request) -> Result<Option<Url>, String> {
    let Some(location) = response
        .headers()
        .get(LOCATION)
        .filter(|_| response.status().is_redirection())
    else {
        return Ok(None);
    };
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(
            "it answered with a redirect, which a call that may change something does not follow"
                .into(),
        );
    }
    let bad = "it redirects to an address that cannot be used";
    let next = location.to_str().map_err(|_| bad)?;
    let next = request.url.join(next).map_err(|_| bad)?;
    let downgraded = request.url.scheme() == "https" && next.scheme() != "https";
    if downgraded || !matches!(next.scheme(), "http" | "https") || !next.username().is_empty() {
        return Err(bad.into());
    }
    Ok(Some(next))
}

async fn read(mut response: reqwest::Response, limit: usize) -> Result<Answer, Failure> {
    let status = response.status();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| reason(&error))? {
        if bytes.len() + chunk.len() > limit {
            return Err(format!("its answer is longer than {} KiB", limit / 1024).into());
        }
        bytes.extend_from_slice(&chunk);
    }
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
    Ok(Answer { status, body })
}

/// The innermost cause: "connection refused" says more than "error sending request".
fn reason(error: &reqwest::Error) -> String {
    if let Some(forbidden) = forbidden(error) {
        return forbidden.to_string();
    }
    let cause = causes(error).last();
    let cause = cause.filter(|cause| !cause.is::<reqwest::Error>());
    cause.map_or_else(|| "the connection failed".into(), ToString::to_string)
}

/// The address that must not be reached, if that is why a request failed.
fn forbidden(error: &reqwest::Error) -> Option<&Forbidden> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The causes of an error, the innermost last.
pub(super) fn causes(
    error: &dyn std::error::Error,
) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| cause.source())
}

/// A declared tool that sends a request.
pub(super) struct HttpTool {
    declaration: Declaration,
    plan: Arc<HttpPlan>,
    web: Arc<Web>,
}

impl HttpTool {
    pub(super) fn new(declaration: Declaration, plan: HttpPlan, web: Arc<Web>) -> Self {
        Self {
            declaration,
            plan: Arc::new(plan),
            web,
        }
    }
}

impl Tool for HttpTool {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        call: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let (plan, web) = (self.plan.clone(), self.web.clone());
        let parameters = self.declaration.spec.parameters.clone();
        let key = call.idempotency_key.clone();
        let effect = self.declaration.effect;
        Box::pin(async move {
            let seen = context(&parameters, &arguments, []);
            let host = plan.origin.host_str().unwrap_or_default();
            let broken = |reason: String| ToolError::lost(effect, format!("{host}: {reason}"));
            let not_begun = |reason: String| ToolError::NotBegun(format!("{host}: {reason}"));
            let request = plan.request(&seen, &key).map_err(not_begun)?;
            let answer = web
                .fetch(request, plan.allowed(), plan.limit)
                .await
                .map_err(|failure| match failure.is_sent {
                    true => broken(failure.reason),
                    false => not_begun(failure.reason),
                })?;
            if effect.changes() && NO_ANSWER.contains(&answer.status) {
                return Err(broken(format!("it answered {}", answer.status)));
            }
            if !answer.status.is_success() {
                return Err(refusal(&answer, plan.error.as_deref(), host));
            }
            plan.picked(answer.body, &parameters, &arguments)
                .map_err(broken)
        })
    }

    fn warm_up(&self) -> BoxFuture<'static, ()> {
        let (plan, web) = (self.plan.clone(), self.web.clone());
        Box::pin(async move { web.warm_up(&plan.warm_up, plan.allowed()).await })
    }
}

/// A proxy's word that the service behind it gave no answer: it may have done what it was asked for.
const NO_ANSWER: [StatusCode; 2] = [StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];

/// Refusals that the user did not cause: of our key, our proxy, our haste.
const OWN_FAULTS: [StatusCode; 5] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Builds the error for a refused request (4xx). The service's text at `pointer` is for the user; the text
/// of a service that is broken or misconfigured is not, nor is a bare status.
pub(crate) fn refusal(answer: &Answer, pointer: Option<&str>, service: &str) -> ToolError {
    let said = pointer.and_then(|pointer| answer.body.pointer(pointer)?.as_str());
    let said: Option<String> = said
        .map(str::trim)
        .filter(|said| !said.is_empty())
        .map(|said| said.chars().take(MOST_ERROR).collect());
    let is_users = answer.status.is_client_error() && !OWN_FAULTS.contains(&answer.status);
    match said {
        Some(said) if is_users => ToolError::Failed(said),
        said => {
            // It may repeat what a user said, or a key.
            tracing::debug!(service, said, "a service is out of order");
            let answered = format!("{service} answered {}", answer.status);
            match OWN_FAULTS.contains(&answer.status)
                && answer.status != StatusCode::REQUEST_TIMEOUT
            {
                true => ToolError::NotBegun(answered),
                false => ToolError::Broken(answered),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The log said only that the host was not found.
    #[tokio::test]
    async fn a_failure_to_connect_names_the_proxy_that_is_not_used() {
        let mut web = Web::new().unwrap();
        web.unused_proxy = Some("HTTPS_PROXY");
        let url = Url::parse("https://no-such-server.invalid/").unwrap();
        let failed = web.fetch(Request::get(url), None, 1_024).await;
        let failure = failed.err().unwrap();
        let told = "; HTTPS_PROXY is set, but tools use no proxy";
        assert!(failure.reason.ends_with(told), "{}", failure.reason);
        assert!(!failure.is_sent);
        let error = ToolError::NotBegun(failure.reason).to_string();
        assert!(!error.contains("PROXY"), "{error}");
    }

    #[test]
    fn what_a_service_says_of_our_own_faults_is_not_said_to_the_user() {
        let told = |status: u16| {
            let answer = Answer {
                status: StatusCode::from_u16(status).unwrap(),
                body: json!({"message": "Invalid API key provided: sk-ab"}),
            };
            refusal(&answer, Some("/message"), "rates.example.com")
        };
        for status in [400, 404, 409, 422] {
            assert!(matches!(told(status), ToolError::Failed(_)), "{status}");
        }
        for status in [401, 403, 407, 408, 429, 500, 503] {
            let told = told(status);
            let is_begun = matches!(status, 408 | 500 | 503);
            assert_eq!(matches!(told, ToolError::Broken(_)), is_begun, "{status}");
            assert_eq!(
                matches!(told, ToolError::NotBegun(_)),
                !is_begun,
                "{status}"
            );
            assert!(!told.to_string().contains("sk-ab"), "{told}");
        }
    }
}
