//! The MCP servers, `[mcp.NAME]`.

use super::Scope;
use super::check::{Check, Checked};
use super::error::ConfigError;
use super::raw::RawMcp;
use crate::tools::mcp::{Link, McpCatalogue, McpServer, Pins, Program};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The file of the pins, in the folder of the configuration file.
const LOCK: &str = "undertone-mcp.lock";

/// The variables of this process that an MCP server's program may see without being named: those that programs
/// need to find each other and their files.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR"];

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
                let url = self.address(&key("url"), typed, fix)?;
                let token = match raw.bearer_env.as_str() {
                    "" => None,
                    variable => Some(self.variable(&key("bearer_env"), variable)?),
                };
                if !raw.env.is_empty() {
                    let problem = format!("{} is for a command", key("env"));
                    return wrong(
                        &key("env"),
                        problem,
                        "remove it; a token belongs in bearer_env",
                    );
                }
                Link::Http { url, bearer: token }
            }
            (_, typed) if !typed.is_empty() => {
                let problem = format!("[{table}] has a command and a url");
                return wrong(&key("url"), problem, "keep one of them");
            }
            _ if !raw.bearer_env.is_empty() => {
                let problem = format!("{} is for a url", key("bearer_env"));
                return wrong(&key("bearer_env"), problem, "name the variable in env");
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

/// An empty path is the working directory.
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
