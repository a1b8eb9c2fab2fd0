//! Streamable HTTP with a token. If a token is refused, a new one is fetched and the request sent again: a server that
//! refuses a token has done nothing.

use super::oauth::{OauthError, Tokens};
use super::{Access, connection::McpError};
use crate::tools::http::causes;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{
    InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use secrecy::{ExposeSecret, SecretString};
use sse_stream::Sse;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// The timeout of reaching a server's address.
const REACH: Duration = Duration::from_secs(5);

type Error = StreamableHttpError<reqwest::Error>;
pub(super) type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// An HTTP client for one server. Clones share the token.
#[derive(Clone)]
pub(super) struct Web {
    client: reqwest::Client,
    token: Arc<Token>,
    /// The path and the query of the server's address, either of which may hold a key.
    hidden: Arc<[String]>,
}

enum Token {
    None,
    Fixed {
        token: SecretString,
        variable: String,
    },
    Granted(Box<Tokens>),
}

impl Web {
    /// A client for the server at `url`. It has a token already, if it needs one.
    pub(super) async fn open(url: &Url, access: &Access) -> Result<Self, McpError> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(REACH)
            .build()
            .map_err(McpError::Client)?;
        let token = match access {
            Access::Open => Token::None,
            Access::Bearer { token, variable } => Token::Fixed {
                token: token.clone(),
                variable: variable.clone(),
            },
            Access::Client(credentials) => {
                let tokens = Tokens::new(client.clone(), (**credentials).clone());
                let token = tokens.token(None).await;
                token.map_err(|error| McpError::Oauth(error.into()))?;
                Token::Granted(Box::new(tokens))
            }
        };
        let hidden = url.query().into_iter().chain([url.path()]);
        let hidden = hidden.filter(|part| part.len() > 1).map(str::to_owned);
        Ok(Self {
            client,
            token: Arc::new(token),
            hidden: hidden.collect(),
        })
    }

    async fn with_token<T, F>(
        &self,
        send: impl Fn(reqwest::Client, Option<String>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let token = match &*self.token {
            Token::None => None,
            Token::Fixed { token, .. } => Some(token.expose_secret().to_owned()),
            Token::Granted(tokens) => Some(tokens.token(None).await.map_err(no_token)?),
        };
        let mut answer = send(self.client.clone(), token.clone()).await;
        if let Token::Granted(tokens) = &*self.token
            && matches!(&answer, Err(error) if is_refusal(error))
        {
            let token = tokens.token(token.as_deref()).await.map_err(no_token)?;
            answer = send(self.client.clone(), Some(token)).await;
        }
        answer.map_err(|error| match is_refusal(&error) {
            true => Error::Io(io::Error::new(NO_TOKEN, self.refused())),
            false => self.discreet(error),
        })
    }

    /// The error without the path and the query of the server's address.
    fn discreet(&self, error: Error) -> Error {
        match error {
            Error::Client(mut error) => {
                if let Some(url) = error.url_mut() {
                    url.set_path("");
                    url.set_query(None);
                }
                Error::Client(error)
            }
            Error::UnexpectedServerResponse(said) => {
                let hide = |said: String, part: &String| said.replace(part, "…");
                let said = self.hidden.iter().fold(said.into_owned(), hide);
                Error::UnexpectedServerResponse(said.into())
            }
            error => error,
        }
    }

    fn refused(&self) -> String {
        match &*self.token {
            Token::None => {
                "it wants a token: name one with bearer_env or oauth, or a key with headers_env"
                    .into()
            }
            Token::Fixed { variable, .. } => {
                format!("it refuses the token in the environment variable {variable}")
            }
            Token::Granted(tokens) => {
                let url = tokens.token_url();
                format!("it refuses a new token of {url}: check oauth.token_url and oauth.scope")
            }
        }
    }
}

/// Marks the errors of requests for which there was no accepted token.
const NO_TOKEN: io::ErrorKind = io::ErrorKind::PermissionDenied;
/// Marks the errors of requests that the server has refused without reading them.
const UNREAD: io::ErrorKind = io::ErrorKind::NotConnected;

/// The code with which servers made with the SDK for TypeScript refuse a request of a session that they do not know,
/// with these words; with others it is any error, such as a connection that broke in the middle of a call.
const BAD_REQUEST: ErrorCode = ErrorCode(-32_000);

fn no_token(error: OauthError) -> Error {
    Error::Io(io::Error::new(NO_TOKEN, error))
}

/// Whether a request certainly had no effect: the server was not reached, there was no accepted token, the server
/// has forgotten the session, or it has refused the request unread.
pub(super) fn is_without_effect(error: &DynamicTransportError) -> bool {
    match error.error.downcast_ref::<Error>() {
        Some(Error::Client(error)) => error.is_connect(),
        Some(Error::Io(error)) => matches!(error.kind(), NO_TOKEN | UNREAD),
        Some(Error::SessionExpired) => true,
        Some(Error::HttpStatus(error)) => error.status == 429,
        _ => false,
    }
}

/// Whether a server has not seen the request that begins a connection: it was not reached, there was no token for it,
/// or what stands before it answers.
pub(super) fn is_unseen(error: &DynamicTransportError) -> bool {
    match error.error.downcast_ref::<Error>() {
        Some(Error::Client(error)) => error.is_connect(),
        Some(Error::Io(error)) => error.kind() == NO_TOKEN,
        _ => has_no_time(error),
    }
}

/// Whether a server that is asked too often, or has no time, refuses a request.
pub(super) fn has_no_time(error: &DynamicTransportError) -> bool {
    match error.error.downcast_ref::<Error>() {
        Some(Error::HttpStatus(error)) => matches!(error.status, 429 | 503),
        _ => false,
    }
}

/// An error without the SDK's names for its parts.
pub(super) fn plain(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<Error>() {
        Some(Error::Io(error)) => error.to_string(),
        Some(Error::Client(error)) => causes(error).last().map_or_else(
            || error.to_string(),
            |innermost| format!("{error}: {innermost}"),
        ),
        _ => error.error.to_string(),
    }
}

/// The id of a request. None of those that begin a connection, whose errors the SDK judges.
fn id_of(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    let ClientJsonRpcMessage::Request(request) = message else {
        return None;
    };
    let begins = matches!(
        request.request,
        ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
    );
    (!begins).then(|| request.id.clone())
}

/// The error in an answer to the request `id` that names another request or none. The SDK drops it, and the request
/// would wait until its time is over.
fn unnamed(id: &RequestId, answer: &StreamableHttpPostResponse) -> Option<Error> {
    let StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(answer), _) = answer else {
        return None;
    };
    let named = answer.id.as_ref().map(ToString::to_string);
    if named == Some(id.to_string()) {
        return None;
    }
    let (code, said) = (answer.error.code, answer.error.message.to_string());
    Some(match code {
        ErrorCode::PARSE_ERROR | ErrorCode::INVALID_REQUEST => unread(said),
        BAD_REQUEST if said.starts_with("Bad Request") => unread(said),
        // It may have failed on the way.
        _ => Error::UnexpectedServerResponse(said.into()),
    })
}

fn unread(said: String) -> Error {
    Error::Io(io::Error::new(UNREAD, said))
}

/// An answer that leads to another address.
const ELSEWHERE: &str = "url leads elsewhere, and redirects are not followed: name the final address, often the same with or \
                         without a slash at the end";
/// The answer of a server that takes no POST.
const OLD_TRANSPORT: &str = "url takes no POST: it may be of the old transport over HTTP and server-sent events, which is not \
                             supported";

/// Marks the refusals of requests that were not read, and says what those of frequent mistakes mean.
fn explained(error: Error) -> Error {
    let said = match error {
        Error::InsufficientScope(refused) => return unread(scope(&refused)),
        Error::UnexpectedServerResponse(said) => said.into_owned(),
        error => return error,
    };
    let status = said.split(':').next().unwrap_or_default();
    let elsewhere = format!("{status}: {ELSEWHERE}");
    match status.get(..8) {
        Some("HTTP 301" | "HTTP 307" | "HTTP 308") => unread(elsewhere),
        // Often the answer to a request that was carried out.
        Some("HTTP 302" | "HTTP 303") => Error::UnexpectedServerResponse(elsewhere.into()),
        Some("HTTP 405") => unread(format!("{status}: {OLD_TRANSPORT}")),
        Some("HTTP 403" | "HTTP 404" | "HTTP 413" | "HTTP 415") => unread(said),
        _ => Error::UnexpectedServerResponse(said.into()),
    }
}

/// A challenge with HTTP 403, in words for the operator.
fn scope(refused: &InsufficientScopeError) -> String {
    match refused.get_required_scope() {
        Some(scope) => format!(
            "HTTP 403: the token needs the scope {scope:?}: name it in oauth.scope, or use a token that has it"
        ),
        None => {
            "HTTP 403: the token may not do this: check oauth.scope, or use another token".into()
        }
    }
}

/// HTTP 401, with a challenge or without.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::AuthRequired(_) => true,
        Error::Client(error) => error.status() == Some(reqwest::StatusCode::UNAUTHORIZED),
        Error::UnexpectedServerResponse(said) => said.starts_with("HTTP 401"),
        _ => false,
    }
}

impl StreamableHttpClient for Web {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, token, headers, limits)
            .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let posted = self.with_token(|client, token| {
            let (uri, message) = (uri.clone(), message.clone());
            let (session, headers) = (session.clone(), headers.clone());
            async move {
                client
                    .post_message_with_response_limits(
                        uri, message, session, token, headers, limits,
                    )
                    .await
            }
        });
        let answer = posted.await.map_err(explained)?;
        let lost = id_of(&message).and_then(|id| unnamed(&id, &answer));
        lost.map_or(Ok(answer), Err)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Error> {
        self.with_token(|client, token| {
            let (uri, session, headers) = (uri.clone(), session.clone(), headers.clone());
            async move { client.delete_session(uri, session, token, headers).await }
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Error> {
        let limit = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session, last, token, headers, limit)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<Events, Error> {
        self.with_token(|client, token| {
            let (uri, session) = (uri.clone(), session.clone());
            let (last, headers) = (last.clone(), headers.clone());
            async move {
                client
                    .get_stream_with_max_sse_event_size(uri, session, last, token, headers, limit)
                    .await
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::transport::streamable_http_client::HttpStatusError;
    use std::any::TypeId;

    /// With `once_per` the change could not be made for a day.
    #[tokio::test]
    async fn a_change_for_which_no_server_was_reached_has_not_begun() {
        let sent = |error: Error| {
            DynamicTransportError::from_parts("web", TypeId::of::<Web>(), Box::new(error))
        };
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let refused = client.post("http://127.0.0.1:1/mcp").send().await;
        let refused = sent(Error::Client(refused.unwrap_err()));
        assert!(is_without_effect(&refused) && is_unseen(&refused));
        assert!(is_without_effect(&sent(Error::Io(io::Error::new(
            NO_TOKEN, "refused"
        )))));
        assert!(is_without_effect(&sent(Error::SessionExpired)));
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        for unknown in [Error::Io(broken), Error::UnexpectedEndOfStream] {
            let unknown = sent(unknown);
            assert!(!is_without_effect(&unknown) && !is_unseen(&unknown));
        }
        let status = |status| sent(HttpStatusError::new(status, None).into());
        for away in [429, 503] {
            assert!(is_unseen(&status(away)), "{away}");
        }
        // A server that ends on a request that it does not know looks so from behind a proxy.
        for own in [500, 502, 504] {
            assert!(!is_unseen(&status(own)), "{own}");
        }
        assert!(is_without_effect(&status(429)) && !is_without_effect(&status(503)));
    }
}
