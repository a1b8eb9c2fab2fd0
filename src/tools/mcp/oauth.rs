//! OAuth 2.1 client credentials: tokens for an MCP server, from the authorisation server that the operator names.
//!
//! The MCP server does not choose who sees the client's secret: its metadata is not asked for. A token is used
//! until it is refused.

use super::text::shortened;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::Mutex;
use url::Url;
use url::form_urlencoded::byte_serialize;

/// How long an authorisation server may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The largest answer of one, bytes.
const LARGEST: usize = 64 * 1024;
/// The longest cause that is reported, characters.
const LONGEST_CAUSE: usize = 200;

/// A client of an authorisation server, as the operator configured it.
#[derive(Debug, Clone)]
pub struct ClientCredentials {
    /// The address that gives tokens.
    pub token_url: Url,
    /// The client's name there.
    pub id: String,
    /// Its secret.
    pub secret: SecretString,
    /// The environment variable that holds the secret.
    pub secret_env: String,
    /// The scopes to ask for, separated by spaces; empty for those that the client has anyway.
    pub scope: String,
    /// The server that the tokens are for, as RFC 8707 names it; empty to name none.
    pub resource: String,
    /// The same as Auth0 and others name it; empty to name none.
    pub audience: String,
}

/// An error that leaves no token. It is for the operator and contains no secrets.
#[derive(Debug, thiserror::Error)]
pub enum OauthError {
    /// The authorisation server cannot be reached.
    #[error("oauth.token_url: cannot reach {url}: {source}")]
    Reach {
        /// The address.
        url: Url,
        /// The reason.
        source: reqwest::Error,
    },
    /// It gives no token.
    #[error("{url} gives no token: {said}; check {check}")]
    Refused {
        /// The address.
        url: Url,
        /// Its message.
        said: String,
        /// The settings that may be wrong.
        check: String,
    },
    /// It answers with something else.
    #[error("oauth.token_url: {url} does not answer as an authorisation server does: {problem}")]
    Answer {
        /// The address.
        url: Url,
        /// The problem.
        problem: String,
    },
}

/// The tokens of one connection.
pub(super) struct Tokens {
    client: reqwest::Client,
    credentials: ClientCredentials,
    kept: Mutex<Option<SecretString>>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Denied {
    error: String,
    error_description: String,
}

impl Tokens {
    pub(super) fn new(client: reqwest::Client, credentials: ClientCredentials) -> Self {
        Self {
            client,
            credentials,
            kept: Mutex::default(),
        }
    }

    pub(super) fn token_url(&self) -> &Url {
        &self.credentials.token_url
    }

    /// The token; another one if it is the `refused` one.
    pub(super) async fn token(&self, refused: Option<&str>) -> Result<String, OauthError> {
        let mut kept = self.kept.lock().await;
        if let Some(token) = &*kept
            && refused != Some(token.expose_secret())
        {
            return Ok(token.expose_secret().to_owned());
        }
        let token = self.fetch().await?;
        let text = token.expose_secret().to_owned();
        *kept = Some(token);
        Ok(text)
    }

    async fn fetch(&self) -> Result<SecretString, OauthError> {
        let own = &self.credentials;
        let (status, body) = self.ask(self.form()).await?;
        let wrong = |problem: String| OauthError::Answer {
            url: own.token_url.clone(),
            problem,
        };
        if !status.is_success() {
            let Ok(denied) = serde_json::from_slice::<Denied>(&body) else {
                return Err(wrong(format!("HTTP {status}")));
            };
            return Err(self.refused(status, &denied));
        }
        let granted: Granted = serde_json::from_slice(&body)
            .map_err(|_| wrong("it sends no access_token and token_type".into()))?;
        let is_legal = |c: char| c.is_ascii_graphic();
        let token = granted.access_token;
        if token.is_empty() || !token.chars().all(is_legal) {
            return Err(wrong("its token is empty or has illegal characters".into()));
        }
        match granted.token_type.eq_ignore_ascii_case("bearer") {
            true => Ok(token.into()),
            false => Err(wrong("its token is no bearer token".into())),
        }
    }

    fn form(&self) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        let own = &self.credentials;
        let named = [
            ("resource", &own.resource),
            ("audience", &own.audience),
            ("scope", &own.scope),
        ];
        form.extend_pairs(named.into_iter().filter(|(_, value)| !value.is_empty()));
        form.finish()
    }

    async fn ask(&self, form: String) -> Result<(StatusCode, Vec<u8>), OauthError> {
        let own = &self.credentials;
        let failed = |source: reqwest::Error| OauthError::Reach {
            url: own.token_url.clone(),
            source: source.without_url(),
        };
        // Encoded as RFC 6749 wants it, 2.3.1.
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!(
            "{}:{}",
            encoded(&own.id),
            encoded(own.secret.expose_secret())
        );
        let request = self.client.post(own.token_url.clone());
        let request = request
            .timeout(LIMIT)
            .header("accept", "application/json")
            .header("content-type", "application/x-www-form-urlencoded")
            .header(
                "authorization",
                format!("Basic {}", BASE64_STANDARD.encode(pair)),
            )
            .body(form);
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&piece);
            if body.len() > LARGEST {
                return Err(OauthError::Answer {
                    url: own.token_url.clone(),
                    problem: format!("it sends more than {LARGEST} bytes"),
                });
            }
        }
        Ok((status, body))
    }

    fn refused(&self, status: StatusCode, denied: &Denied) -> OauthError {
        let own = &self.credentials;
        let check = match denied.error.as_str() {
            "invalid_scope" => "oauth.scope".to_owned(),
            "invalid_target" => "url, oauth.resource (the url by default, \"\" sends none) and \
                                 oauth.audience: it does not know the server that they name"
                .to_owned(),
            "unauthorized_client" | "unsupported_grant_type" => {
                "there that this client may use the grant client_credentials".to_owned()
            }
            "invalid_client" => format!(
                "oauth.client_id ({}) and the environment variable {}",
                own.id, own.secret_env
            ),
            _ => "oauth.token_url".to_owned(),
        };
        let said = format!(
            "HTTP {status} {} {}",
            denied.error, denied.error_description
        );
        OauthError::Refused {
            url: own.token_url.clone(),
            said: shortened(&said, LONGEST_CAUSE),
            check,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entra ID refuses `resource` beside `scope`; Auth0 and Cognito want `audience`.
    #[test]
    fn a_token_is_asked_for_with_a_resource_an_audience_or_neither() {
        let form = |resource: &str, audience: &str| {
            let credentials = ClientCredentials {
                token_url: Url::parse("https://login.example/token").unwrap(),
                id: "voice".into(),
                secret: "s3cret".into(),
                secret_env: "CRM_SECRET".into(),
                scope: "read".into(),
                resource: resource.into(),
                audience: audience.into(),
            };
            Tokens::new(reqwest::Client::new(), credentials).form()
        };
        assert_eq!(
            form("https://crm.example/mcp", ""),
            "grant_type=client_credentials&resource=https%3A%2F%2Fcrm.example%2Fmcp&scope=read"
        );
        assert_eq!(
            form("", "crm"),
            "grant_type=client_credentials&audience=crm&scope=read"
        );
        assert_eq!(form("", ""), "grant_type=client_credentials&scope=read");
    }
}
