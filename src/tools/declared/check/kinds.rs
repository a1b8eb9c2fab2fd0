//! The sections `[http]`, `[subprocess]` and `mcp`.

use super::super::file::{RawHttp, RawOutput, RawSecret, RawSubprocess, RawTool, RawValue};
use super::{Check, Checked, object, with};
use crate::tools::http::{self, Header, HttpPlan, Pick};
use crate::tools::mcp::McpPlan;
use crate::tools::subprocess::{SubprocessPlan, Variable};
use crate::tools::template::Template;
use crate::tools::{Declaration, Effect, ToolSpec};
use secrecy::SecretString;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;
use url::Url;

const DEFAULT_LIMIT_KIB: u64 = 256;
const MOST_LIMIT_KIB: u64 = 16 * 1024;

impl Check<'_> {
    pub(super) fn http(
        &self,
        raw: &RawHttp,
        known: &BTreeSet<String>,
        effect: Effect,
    ) -> Checked<HttpPlan> {
        let method = raw.method.as_deref().unwrap_or("GET");
        let method = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
            .into_iter()
            .find(|known| *known == method)
            .and_then(|method| method.parse().ok())
            .ok_or_else(|| {
                self.wrong(
                    "http.method",
                    format!("\"{method}\" is unknown"),
                    "use GET, POST, PUT, PATCH, DELETE or HEAD",
                )
            })?;
        let origin = self.origin(raw)?;
        let wrong_url = |(problem, fix): (String, String)| self.wrong("http.url", problem, &fix);
        if raw.idempotency_header.is_none() && effect == Effect::Keyed {
            return Err(self.wrong(
                "http.idempotency_header",
                "a keyed tool has to send its key".into(),
                "name the header that takes it, as in idempotency_header = \"Idempotency-Key\"",
            ));
        }
        let answered = with(known, ["body"]);
        let pick = |(name, typed): (&String, &String)| {
            Ok((
                name.clone(),
                self.pick(&format!("http.response.{name}"), typed, &answered)?,
            ))
        };
        Ok(HttpPlan {
            method,
            url: Template::new(&raw.url, known).map_err(wrong_url)?,
            query: raw
                .query
                .iter()
                .map(|(name, typed)| {
                    Ok((
                        name.clone(),
                        self.template(&format!("http.query.{name}"), typed, known)?,
                    ))
                })
                .collect::<Checked<_>>()?,
            headers: raw
                .headers
                .iter()
                .map(|(name, typed)| self.header(name, typed, known))
                .collect::<Checked<_>>()?,
            json: raw
                .json
                .as_ref()
                .map(|body| self.body("http.json", body, known))
                .transpose()?,
            response: raw.response.iter().map(pick).collect::<Checked<_>>()?,
            error: raw.error.clone(),
            limit: self.limit("http.limit_kib", raw.limit_kib)?,
            idempotency_header: raw
                .idempotency_header
                .as_deref()
                .map(|name| self.header_name("http.idempotency_header", name))
                .transpose()?,
            warm_up: self.warm_up(raw, &origin)?,
            allow_private: raw.allow_private,
            origin,
        })
    }

    /// Scheme, host and port, which no argument may choose.
    fn origin(&self, raw: &RawHttp) -> Checked<Url> {
        let fix = "write the host out, as in \"https://example.org/{{ id }}\"; arguments belong behind it";
        let start = raw.url.find("://").map_or(0, |at| at + 3);
        let end = raw.url[start..].find(['/', '?', '#']);
        let typed = &raw.url[..end.map_or(raw.url.len(), |end| start + end)];
        if typed.contains(['{', '}', '@']) {
            return Err(self.wrong(
                "http.url",
                "the host depends on an argument, or carries a password".into(),
                fix,
            ));
        }
        let origin = Url::parse(typed)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let origin = origin.ok_or_else(|| {
            self.wrong(
                "http.url",
                format!("\"{typed}\" is no http or https address"),
                fix,
            )
        })?;
        if !raw.allow_private && http::is_private_host(&origin) {
            return Err(self.wrong(
                "http.url",
                format!("\"{typed}\" is not a public address"),
                "add allow_private = true if this host is meant",
            ));
        }
        Ok(origin)
    }

    fn warm_up(&self, raw: &RawHttp, origin: &Url) -> Checked<Url> {
        let Some(typed) = &raw.warm_up_url else {
            return Ok(origin.clone());
        };
        Url::parse(typed)
            .ok()
            .filter(|url| url.origin() == origin.origin())
            .ok_or_else(|| {
                self.wrong(
                    "http.warm_up_url",
                    format!("\"{typed}\" is not an address of {origin}"),
                    "name an address of the same scheme, host and port, without templates",
                )
            })
    }

    fn header(
        &self,
        name: &str,
        typed: &RawValue,
        known: &BTreeSet<String>,
    ) -> Checked<(http::HeaderName, Header)> {
        let key = format!("http.headers.{name}");
        let header = match typed {
            RawValue::Text(source) => Header::Template(self.template(&key, source, known)?),
            RawValue::Secret(secret) => Header::Secret(self.secret(&key, secret)?),
        };
        Ok((self.header_name(&key, name)?, header))
    }

    fn header_name(&self, key: &str, name: &str) -> Checked<http::HeaderName> {
        name.parse().map_err(|_| {
            self.wrong(
                key,
                format!("\"{name}\" is no name of a header"),
                "use letters, digits and hyphens",
            )
        })
    }

    /// The secret that is meant; what it is is never said.
    fn secret(&self, key: &str, typed: &RawSecret) -> Checked<SecretString> {
        let value = match (&typed.env, &typed.file) {
            (Some(name), None) => (self.variable)(name).ok_or_else(|| {
                let name = name_or_hint(name);
                let problem = format!("the environment variable {name} is not set");
                let fix = "set it, or name the one that holds the secret (not the secret itself)";
                self.wrong(key, problem, fix)
            })?,
            (None, Some(file)) => {
                std::fs::read_to_string(self.folder().join(file)).map_err(|error| {
                    let problem = format!("cannot read the secret's file: {error}");
                    let fix = "name a file that this user may read; it counts from this folder";
                    self.wrong(key, problem, fix)
                })?
            }
            _ => {
                let fix = "write { env = \"VARIABLE\" } or { file = \"path\" }";
                return Err(self.wrong(key, "it names no source, or two".into(), fix));
            }
        };
        let value = value.trim();
        let printable = value
            .bytes()
            .all(|byte| byte == b'\t' || (32..127).contains(&byte));
        if value.is_empty() || !printable {
            return Err(self.wrong(
                key,
                "the secret is empty, or no single line of plain text".into(),
                "put the secret there, and nothing else",
            ));
        }
        Ok(format!("{}{value}", typed.prefix).into())
    }

    fn body(&self, key: &str, typed: &Value, known: &BTreeSet<String>) -> Checked<http::Body> {
        Ok(match typed {
            Value::String(source) => http::Body::Template(self.template(key, source, known)?),
            Value::Array(items) => http::Body::Array(
                items
                    .iter()
                    .map(|item| self.body(key, item, known))
                    .collect::<Checked<_>>()?,
            ),
            Value::Object(entries) => http::Body::Object(
                entries
                    .iter()
                    .map(|(name, value)| {
                        Ok((
                            name.clone(),
                            self.body(&format!("{key}.{name}"), value, known)?,
                        ))
                    })
                    .collect::<Checked<_>>()?,
            ),
            other => http::Body::Fixed(other.clone()),
        })
    }

    /// `/a/b`, `/a/b?` (may be absent), or `{{ an expression over body }}`.
    fn pick(&self, key: &str, typed: &str, known: &BTreeSet<String>) -> Checked<Pick> {
        let (source, optional) = match typed.strip_suffix('?') {
            Some(source) => (source, true),
            None => (typed, false),
        };
        let template = self.template(key, source, known)?;
        if source.is_empty() || source.starts_with('/') {
            return Ok(Pick::Pointer {
                pointer: template,
                optional,
            });
        }
        match template.expression() {
            Some(_) => Ok(Pick::Expression(template)),
            None => Err(self.wrong(
                key,
                format!("\"{typed}\" picks nothing"),
                "write a JSON pointer such as \"/main/temp\" (\"/main/temp?\" if it may be absent), \
                 or an expression such as \"{{ body.main.temp | round }}\"",
            )),
        }
    }

    pub(super) fn subprocess(
        &self,
        raw: &RawSubprocess,
        known: &BTreeSet<String>,
    ) -> Checked<SubprocessPlan> {
        let program = raw
            .argv
            .first()
            .filter(|program| !program.is_empty() && !program.contains('{'));
        let Some(program) = program else {
            return Err(self.wrong(
                "subprocess.argv",
                "the program is missing, or depends on an argument".into(),
                "write [\"program\", \"first argument\", \"{{ place }}\"]",
            ));
        };
        let shells = ["sh", "bash", "dash", "zsh", "fish", "ksh"];
        let is_shell = Path::new(program)
            .file_name()
            .is_some_and(|name| shells.iter().any(|shell| name == *shell));
        let templated = raw
            .argv
            .iter()
            .any(|argument| argument.contains("{{") || argument.contains("{%"));
        if is_shell && templated {
            return Err(self.wrong(
                "subprocess.argv",
                "a shell would run what a user says".into(),
                "name the program itself; every argument is passed on as it is",
            ));
        }
        Ok(SubprocessPlan {
            program: if program.contains('/') {
                // It is started in another folder than ours.
                let program = self.folder().join(program);
                std::path::absolute(&program).unwrap_or(program)
            } else {
                program.into()
            },
            arguments: raw.argv[1..]
                .iter()
                .map(|source| self.template("subprocess.argv", source, known))
                .collect::<Checked<_>>()?,
            stdin: raw.stdin,
            json: raw.output != Some(RawOutput::Text),
            environment: raw
                .environment
                .iter()
                .map(|(name, typed)| self.variable_of(name, typed))
                .collect::<Checked<_>>()?,
            folder: raw
                .folder
                .as_ref()
                .map_or_else(|| self.folder(), |folder| self.folder().join(folder)),
            limit: self.limit("subprocess.limit_kib", raw.limit_kib)?,
        })
    }

    fn variable_of(&self, name: &str, typed: &RawValue) -> Checked<(String, Variable)> {
        let key = format!("subprocess.environment.{name}");
        let value = match typed {
            RawValue::Text(text) => Variable::Text(text.clone()),
            RawValue::Secret(secret) => Variable::Secret(self.secret(&key, secret)?),
        };
        Ok((name.to_owned(), value))
    }

    /// The server, the tool and its pin, if this is the tool of an MCP server.
    pub(super) fn mcp(&self, raw: &RawTool) -> Checked<Option<McpPlan>> {
        let Some(typed) = &raw.mcp else {
            return Ok(None);
        };
        if raw.parameters.is_some() {
            return Err(self.wrong(
                "parameters",
                "the tool of an MCP server has its server's parameters".into(),
                "remove this table",
            ));
        }
        let mut servers = self.mcp.servers.iter();
        let Some(server) = servers.find(|server| server.name == typed.server) else {
            let names: Vec<&str> = self
                .mcp
                .servers
                .iter()
                .map(|server| &*server.name)
                .collect();
            let known = match names.as_slice() {
                [] => "the configuration has none".to_owned(),
                names => format!("known are: {}", names.join(", ")),
            };
            return Err(self.wrong(
                "mcp.server",
                format!("there is no MCP server named {}", typed.server),
                &format!("add [mcp.{}] to the configuration; {known}", typed.server),
            ));
        };
        Ok(Some(McpPlan {
            server: server.clone(),
            tool: typed.tool.clone(),
            pin: self.mcp.pins.get(&typed.server, &typed.tool).cloned(),
            declared: self.effect(raw)?,
            disregarded: typed.disregard.clone(),
        }))
    }

    /// Description and schema are the server's, unless the file has a description.
    pub(super) fn mcp_basis(&self, raw: &RawTool, plan: &McpPlan) -> Checked<Declaration> {
        let described = raw
            .description
            .clone()
            .unwrap_or_else(|| plan.description());
        let schema = match plan.parameters() {
            Value::Object(schema) => schema,
            _ => Map::new(),
        };
        if described.is_empty() && plan.pin.is_some() {
            return Err(self.wrong(
                "description",
                "`description` is missing, and the server has none".into(),
                "say in a sentence what it does and when to use it",
            ));
        }
        let spec = ToolSpec {
            examples: Vec::new(),
            name: raw.name.clone(),
            description: described,
            parameters: object(schema),
        };
        let effect = plan.hints().effect(plan.declared);
        self.validated(Declaration::new(spec, effect, plan.server.timeout))
    }

    fn limit(&self, key: &str, typed: Option<u64>) -> Checked<usize> {
        let kib = typed.unwrap_or(DEFAULT_LIMIT_KIB);
        match usize::try_from(kib * 1024) {
            Ok(bytes) if (1..=MOST_LIMIT_KIB).contains(&kib) => Ok(bytes),
            _ => Err(self.wrong(
                key,
                format!("{kib} is out of range"),
                &format!("use 1 to {MOST_LIMIT_KIB}"),
            )),
        }
    }
}

/// A secret typed where its variable's name belongs must not be printed.
fn name_or_hint(typed: &str) -> &str {
    let is_name = typed
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if is_name { typed } else { "<not shown>" }
}
