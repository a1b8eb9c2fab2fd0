//! The MCP servers, `[mcp.NAME]`.

use super::Scope;
use super::check::{Check, Checked};
use super::error::ConfigError;
use super::raw::{RawMcp, RawOauth};
use crate::tools::mcp::{Access, ClientCredentials, Link, McpCatalogue, McpServer, Pins, Program};
use reqwest::header::HeaderName;
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// The file of the pins, in the folder of the configuration file.
const LOCK: &str = "undertone-mcp.lock";

/// The variables of this process that an MCP server's program may see without being named: those that programs
/// need to find each other and their files.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR"];

/// The headers that are the transport's own, besides those of the protocol, `Mcp-…`.
const OWN: [&str; 7] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
];

impl Check<'_> {
    pub(super) fn mcp(&self, raw: &BTreeMap<String, RawMcp>) -> Checked<McpCatalogue> {
        let Some(first) = raw.keys().next().filter(|_| self.scope > Scope::Models) else {
            return Ok(McpCatalogue::default());
        };
        let folder = self
            .layers
            .base_of(&format!("mcp.{first}"))
            .unwrap_or_default();
        let file = folder.join(LOCK);
        let pins = Pins::read(&file).map_err(|error| {
            self.wrong(
                &format!("mcp.{first}"),
                error.to_string(),
                "restore the file, or remove it and run `undertone mcp pin`",
            )
        })?;
        let servers = raw.iter();
        let servers = servers.map(|(name, raw)| self.mcp_server(name, raw, &folder).map(Arc::new));
        Ok(McpCatalogue {
            servers: servers.collect::<Checked<_>>()?,
            pins,
            file: Some(file),
        })
    }

    fn mcp_server(&self, name: &str, raw: &RawMcp, folder: &Path) -> Checked<McpServer> {
        let key = |key: &str| format!("mcp.{name}.{key}");
        let wrong = |at: &str, problem: String, fix: &str| Err(self.wrong(at, problem, fix));
        let table = format!("mcp.{name}");
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(legal) {
            let problem = format!("[{table}] is no name of a server");
            return wrong(&table, problem, "use letters, digits, _ and -");
        }
        let link = match (raw.command.as_slice(), raw.url.as_str()) {
            ([], "") => {
                let problem = format!("[{table}] names no server");
                let fix = "set command = [\"program\", \"argument\"] or url = \"https://…\"";
                return wrong(&table, problem, fix);
            }
            ([], typed) => {
                let fix = "use the server's address, such as https://example.org/mcp";
                let url = self.address_with_query(&key("url"), typed, fix)?;
                let access = self.mcp_access(name, raw, &url)?;
                let headers = self.mcp_headers(&key("headers_env"), &raw.headers_env)?;
                if !raw.env.is_empty() {
                    let problem = format!("{} is for a command", key("env"));
                    return wrong(
                        &key("env"),
                        problem,
                        "remove it; a token belongs in bearer_env",
                    );
                }
                Link::Http {
                    url,
                    access,
                    headers,
                }
            }
            (_, typed) if !typed.is_empty() => {
                let problem = format!("[{table}] has a command and a url");
                return wrong(&key("url"), problem, "keep one of them");
            }
            _ if !raw.bearer_env.is_empty() => {
                let problem = format!("{} is for a url", key("bearer_env"));
                return wrong(&key("bearer_env"), problem, "name the variable in env");
            }
            _ if !raw.headers_env.is_empty() => {
                let problem = format!("{} is for a url", key("headers_env"));
                return wrong(&key("headers_env"), problem, "name the variables in env");
            }
            _ if raw.oauth.is_some() => {
                let problem = format!("{} is for a url", key("oauth"));
                return wrong(&key("oauth"), problem, "remove it");
            }
            ([program, arguments @ ..], _) => Link::Program(Program {
                program: if program.contains('/') {
                    absolute(&folder.join(program))
                } else {
                    PathBuf::from(program)
                },
                arguments: arguments.to_vec(),
                environment: INHERITED
                    .iter()
                    .filter_map(|name| Some(((*name).to_owned(), self.env.get(name)?.to_owned())))
                    .collect(),
                secrets: raw
                    .env
                    .iter()
                    .map(|name| Ok((name.clone(), self.variable(&key("env"), name)?)))
                    .collect::<Checked<_>>()?,
                folder: absolute(folder),
            }),
        };
        let timeout = self.whole(&key("timeout_ms"), raw.timeout_ms, 1..=120_000)?;
        Ok(McpServer {
            name: name.to_owned(),
            link,
            timeout: Duration::from_millis(timeout),
        })
    }

    fn mcp_access(&self, name: &str, raw: &RawMcp, url: &Url) -> Checked<Access> {
        let (bearer, oauth) = (
            format!("mcp.{name}.bearer_env"),
            format!("mcp.{name}.oauth"),
        );
        match (raw.bearer_env.as_str(), &raw.oauth) {
            ("", None) => Ok(Access::Open),
            (variable, None) => Ok(Access::Bearer {
                token: self.variable(&bearer, variable)?,
                variable: variable.to_owned(),
            }),
            ("", Some(raw)) => Ok(Access::Client(self.mcp_client(&oauth, raw, url)?.into())),
            _ => {
                let problem = format!("[mcp.{name}] has bearer_env and oauth");
                Err(self.wrong(&oauth, problem, "keep one of them"))
            }
        }
    }

    /// Headers whose values are in environment variables.
    fn mcp_headers(
        &self,
        key: &str,
        raw: &BTreeMap<String, String>,
    ) -> Checked<Vec<(HeaderName, SecretString)>> {
        let headers = raw.iter().map(|(typed, variable)| {
            let Ok(name) = HeaderName::from_bytes(typed.as_bytes()) else {
                let problem = format!("{key}: {typed:?} is no name of a header");
                let fix = "write { \"X-Api-Key\" = \"VARIABLE\" }";
                return Err(self.wrong(key, problem, fix));
            };
            if name.as_str() == "authorization" {
                let problem = format!("{key} sets the header {typed}");
                return Err(self.wrong(key, problem, "name a bearer token in bearer_env"));
            }
            if name.as_str().starts_with("mcp-") || OWN.contains(&name.as_str()) {
                let problem =
                    format!("{key} sets the header {typed}, which has a meaning of its own");
                return Err(self.wrong(key, problem, "remove it"));
            }
            Ok((name, self.variable(key, variable)?))
        });
        headers.collect()
    }

    fn mcp_client(&self, key: &str, raw: &RawOauth, url: &Url) -> Checked<ClientCredentials> {
        let needed = [
            ("token_url", &raw.token_url),
            ("client_id", &raw.client_id),
            ("client_secret_env", &raw.client_secret_env),
        ];
        if let Some((missing, _)) = needed.iter().find(|(_, typed)| typed.is_empty()) {
            let fix = "oauth = { token_url = \"https://…\", client_id = \"…\", client_secret_env = \"VARIABLE\" }";
            return Err(self.wrong(key, format!("{key} has no {missing}"), fix));
        }
        let fix = "use the address at which the authorisation server gives tokens, \
                   such as https://example.org/oauth/token";
        // RFC 8707 wants a resource without a query.
        let mut server = url.clone();
        server.set_query(None);
        Ok(ClientCredentials {
            token_url: self.address(&format!("{key}.token_url"), &raw.token_url, fix)?,
            id: raw.client_id.clone(),
            secret: self.variable(&format!("{key}.client_secret_env"), &raw.client_secret_env)?,
            secret_env: raw.client_secret_env.clone(),
            scope: raw.scope.clone(),
            resource: raw.resource.clone().unwrap_or_else(|| server.into()),
            audience: raw.audience.clone(),
        })
    }

    /// The secret in an environment variable.
    fn variable(&self, key: &str, name: &str) -> Checked<SecretString> {
        let value = self.env.get(name).map(|value| value.trim().to_owned());
        value.map(SecretString::from).ok_or_else(|| -> ConfigError {
            let problem = format!(
                "{key}: the environment variable {} is not set",
                self.name_or_hint(name)
            );
            self.wrong(
                key,
                problem,
                "set it, or name the variable that holds the secret (not the secret itself)",
            )
        })
    }
}

/// Makes a path absolute. An empty one is the working directory.
fn absolute(path: &Path) -> PathBuf {
    let path = Path::new(".").join(path);
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_in_the_working_directory_has_a_folder() {
        assert!(absolute(Path::new("")).is_dir());
        assert!(absolute(Path::new("src")).ends_with("src"));
    }
}
