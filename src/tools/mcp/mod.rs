//! Tools of MCP servers. Each is declared in a file of its own and pinned: it is offered only while its
//! server lists exactly the tool object that the operator has pinned.
//!
//! `servers.rs` keeps the connections and changes the tools of a running server; calls only use
//! connections that are there. The hints of a server may make a tool stricter, never looser.

mod connection;
mod figures;
mod hints;
mod oauth;
mod pins;
mod result;
mod servers;
mod text;
mod tool;
mod web;

pub use connection::{McpError, list};
pub use figures::McpFigures;
pub use hints::{Hint, Hints};
pub use oauth::{ClientCredentials, OauthError};
pub use pins::{Pin, PinError, Pins, Standing, differences};
pub use servers::McpServers;
pub use tool::McpPlan;

pub(crate) use text::{schema, shortened};
pub(super) use tool::McpTool;

use reqwest::header::HeaderName;
use secrecy::SecretString;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The longest description of a tool, characters.
pub(crate) const LONGEST_DESCRIPTION: usize = 600;

/// An MCP server as the operator configured it.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// Its name in the configuration and in declarations.
    pub name: String,
    /// How it is reached.
    pub link: Link,
    /// The longest call of its tools that declare no `timeout_ms` of their own.
    pub timeout: Duration,
}

/// How an MCP server is reached.
#[derive(Debug, Clone)]
pub enum Link {
    /// A program that is started and spoken to over its standard input and output.
    Program(Program),
    /// Streamable HTTP.
    Http {
        /// The address.
        url: Url,
        /// The credentials that it asks of its clients.
        access: Access,
        /// Headers of each request, such as one with a key.
        headers: Vec<(HeaderName, SecretString)>,
    },
}

/// The credentials that a server over HTTP asks of its clients.
#[derive(Debug, Clone)]
pub enum Access {
    /// Nothing.
    Open,
    /// A bearer token.
    Bearer {
        /// The token.
        token: SecretString,
        /// The environment variable that holds it.
        variable: String,
    },
    /// A token of an authorisation server.
    Client(Box<ClientCredentials>),
}

/// A program that is an MCP server.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The variables of this process that every program may see, such as `PATH`.
    pub environment: Vec<(String, String)>,
    /// Variables that the operator passes on.
    pub secrets: Vec<(String, SecretString)>,
    /// The folder that it runs in.
    pub folder: PathBuf,
}

impl McpServer {
    /// Secrets that must never be printed.
    pub fn secrets(&self) -> Vec<&SecretString> {
        match &self.link {
            Link::Program(program) => program.secrets.iter().map(|(_, secret)| secret).collect(),
            Link::Http {
                access, headers, ..
            } => {
                let secret = match access {
                    Access::Open => None,
                    Access::Bearer { token, .. } => Some(token),
                    Access::Client(credentials) => Some(&credentials.secret),
                };
                let headers = headers.iter().map(|(_, value)| value);
                secret.into_iter().chain(headers).collect()
            }
        }
    }

    /// Whether one connection can serve both.
    fn is_reached_like(&self, other: &Self) -> bool {
        use secrecy::ExposeSecret;
        let secrets = |server: &Self| -> Vec<String> {
            let secrets = server.secrets().into_iter();
            secrets
                .map(|secret| secret.expose_secret().into())
                .collect()
        };
        // The secrets do not show there.
        let entry = |server: &Self| format!("{:?} {:?}", server.name, server.link);
        entry(self) == entry(other) && secrets(self) == secrets(other)
    }
}

/// The targets of the declarations of MCP tools: the configured servers, and the pinned tools.
#[derive(Debug, Clone, Default)]
pub struct McpCatalogue {
    /// The servers, by name.
    pub servers: Vec<std::sync::Arc<McpServer>>,
    /// The pinned tools.
    pub pins: Pins,
    /// The file of the pins; `None` without servers.
    pub file: Option<PathBuf>,
}
