//! From what was typed to what is meant. The first thing that is wrong ends it.

use super::file::{
    self, RawConfirm, RawHttp, RawKind, RawOutput, RawSecret, RawSubprocess, RawTool, RawValue,
};
use super::{DeclarationError, Declared, Kind};
use crate::llm::ToolSpec;
use crate::tools::builtin::Builtin;
use crate::tools::http::{self, Header, HttpPlan, Pick};
use crate::tools::subprocess::{SubprocessPlan, Variable};
use crate::tools::template::{Template, parameters};
use crate::tools::{Confirmation, Declaration, Effect, Eligibility, Fillers, Speculation};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

type Checked<T> = Result<T, DeclarationError>;

const DEFAULT_TIMEOUT_MS: u64 = 5_000;
const LONGEST_TIMEOUT_MS: u64 = 120_000;
/// Long enough to think about a question, short enough that a later "yes" means something else.
const CONFIRM_EXPIRY_S: u64 = 30;
const DEFAULT_LIMIT_KIB: u64 = 256;
const MOST_LIMIT_KIB: u64 = 16 * 1024;
const DAY_MS: u64 = 86_400_000;

pub(super) fn read(path: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Checked<Declared> {
    let check = Check { path, variable };
    let text = std::fs::read_to_string(path).map_err(|error| {
        check.wrong(
            "",
            format!("cannot read it: {error}"),
            "make it readable, or remove it",
        )
    })?;
    check
        .tool(file::parse(path, &text)?)
        .map_err(|error| located(error, &text))
}

/// Finds the line of the key, where only its name is known.
fn located(mut error: DeclarationError, text: &str) -> DeclarationError {
    let (table, key) = error.key.rsplit_once('.').unwrap_or(("", &error.key));
    let start = text.find(&format!("[{table}]")).unwrap_or(0);
    let is_key = |line: &str| {
        line.trim_start()
            .strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let before = text[..start].matches('\n').count();
    let at = text[start..].lines().position(is_key);
    error.line = 1 + before + at.filter(|_| !key.is_empty()).unwrap_or(0);
    error
}

struct Check<'a> {
    path: &'a Path,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Check<'_> {
    fn tool(&self, raw: RawTool) -> Checked<Declared> {
        let mut declaration = self.basis(&raw)?;
        self.own_sections(&raw)?;
        let known = parameters(&declaration.spec.parameters);
        declaration.timeout = self.timeout(raw.timeout_ms, declaration.timeout)?;
        declaration.reads = raw.reads.clone().unwrap_or(declaration.reads);
        declaration.writes = raw.writes.clone().unwrap_or(declaration.writes);
        declaration.ends_call |= raw.ends_call;
        if !raw.equivalence.is_empty() {
            declaration.equivalence = raw.equivalence.clone();
        }
        self.only_parameters("equivalence", raw.equivalence.keys(), &known)?;
        declaration.fillers = self.fillers(&raw, &known)?;
        declaration.answer = self.answer(&raw, &known)?.or(declaration.answer);
        declaration.confirmation = self.confirmation(&raw.confirm, &declaration, &known)?;
        let (kind, network) = self.kind(&raw, &known, &declaration)?;
        declaration.network = network;
        declaration.speculation = self.speculation(&raw, &declaration)?;
        self.hints(&raw, &known)?;
        Ok(Declared {
            file: self.path.into(),
            declaration,
            hints: raw.router,
            kind,
        })
    }

    /// Name, description, schema and effect: from the file, or from the code of a built-in tool.
    fn basis(&self, raw: &RawTool) -> Checked<Declaration> {
        if raw.kind == RawKind::Builtin {
            return self.builtin_basis(raw);
        }
        let spec = ToolSpec {
            name: raw.name.clone(),
            description: self.needed(
                "description",
                raw.description.clone(),
                "say in a sentence what it does and when to use it",
            )?,
            parameters: self.schema(raw)?,
        };
        let effect = self.needed("effect", raw.effect, "add effect = \"read\", \"read-costly\", \"keyed\", \"reversible\" or \"irreversible\": what a call does to the world")?;
        self.validated(Declaration::new(
            spec,
            effect,
            Duration::from_millis(DEFAULT_TIMEOUT_MS),
        ))
    }

    fn builtin_basis(&self, raw: &RawTool) -> Checked<Declaration> {
        let Some(mut declaration) = Builtin::declaration(&raw.name) else {
            let known = Builtin::names().join(", ");
            return Err(self.wrong(
                "name",
                format!("there is no built-in tool named {}", raw.name),
                &format!("known are: {known}; another kind is \"http\" or \"subprocess\""),
            ));
        };
        if raw.parameters.is_some() {
            return Err(self.wrong(
                "parameters",
                "a built-in tool has its own parameters".into(),
                "remove this table",
            ));
        }
        if let Some(effect) = raw.effect {
            if effect.strictness() < declaration.effect.strictness() {
                return Err(self.wrong("effect", format!("{} does more than that to the world", raw.name), "a file may make a built-in tool's effect stricter, never looser; remove this line"));
            }
            declaration.effect = effect;
        }
        if let Some(description) = &raw.description {
            declaration.spec.description = description.clone();
        }
        Ok(declaration)
    }

    fn schema(&self, raw: &RawTool) -> Checked<Value> {
        let mut schema = raw.parameters.clone().unwrap_or_default();
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| json!({}));
        schema
            .entry("additionalProperties")
            .or_insert(Value::Bool(false));
        let empty = Map::new();
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        let taken = ["result", "body", "steps"]
            .into_iter()
            .find(|name| properties.contains_key(*name));
        if let Some(name) = taken {
            return Err(self.wrong(
                &format!("parameters.properties.{name}"),
                format!("`{name}` has a meaning of its own in templates"),
                "rename this parameter",
            ));
        }
        let required = schema.get("required").and_then(Value::as_array);
        let unknown = required.into_iter().flatten().find(|name| {
            !name
                .as_str()
                .is_some_and(|name| properties.contains_key(name))
        });
        match unknown {
            Some(name) => Err(self.wrong(
                "parameters.required",
                format!("{name} is no property"),
                "declare it under [parameters.properties], or remove it here",
            )),
            None => Ok(Value::Object(schema)),
        }
    }

    /// What the registry asks of a tool, said with the file's name.
    fn validated(&self, declaration: Declaration) -> Checked<Declaration> {
        let wrong = |key, error: crate::tools::RegistryError| {
            self.wrong(
                key,
                error.to_string(),
                "see the files in tools/ for examples",
            )
        };
        crate::tools::registry::check_name(&declaration.spec.name)
            .map_err(|error| wrong("name", error))?;
        crate::tools::registry::check_schema(&declaration.spec)
            .map_err(|error| wrong("parameters", error))?;
        Ok(declaration)
    }

    /// Exactly the section of its kind is there.
    fn own_sections(&self, raw: &RawTool) -> Checked<()> {
        let sections = [
            ("http", raw.http.is_some(), RawKind::Http),
            ("subprocess", raw.subprocess.is_some(), RawKind::Subprocess),
            ("settings", !raw.settings.is_empty(), RawKind::Builtin),
        ];
        for (name, there, kind) in sections {
            if there && kind != raw.kind {
                return Err(self.wrong(
                    name,
                    format!("[{name}] is not for this kind of tool"),
                    "remove it, or change `kind`",
                ));
            }
            if !there && kind == raw.kind && kind != RawKind::Builtin {
                return Err(self.wrong(
                    "kind",
                    format!("there is no section [{name}]"),
                    &format!("add [{name}]"),
                ));
            }
        }
        Ok(())
    }

    fn kind(
        &self,
        raw: &RawTool,
        known: &BTreeSet<String>,
        declaration: &Declaration,
    ) -> Checked<(Kind, bool)> {
        if let Some(http) = &raw.http {
            let plan = self.http(http, known, declaration.effect)?;
            let network = !plan.is_local();
            return Ok((Kind::Http(plan), network));
        }
        if let Some(subprocess) = &raw.subprocess {
            let plan = self.subprocess(subprocess, known)?;
            return Ok((Kind::Subprocess(plan), subprocess.network.unwrap_or(true)));
        }
        let builtin = Builtin::configured(&raw.name, raw.settings.clone(), &self.folder())
            .map_err(|(key, problem, fix)| self.wrong(&key, problem, &fix))?;
        let network = builtin.uses_network();
        Ok((Kind::Builtin(builtin), network))
    }

    fn timeout(&self, typed: Option<u64>, default: Duration) -> Checked<Duration> {
        match typed {
            None => Ok(default),
            Some(ms) if (1..=LONGEST_TIMEOUT_MS).contains(&ms) => Ok(Duration::from_millis(ms)),
            Some(ms) => Err(self.wrong(
                "timeout_ms",
                format!("{ms} is out of range"),
                &format!("use 1 to {LONGEST_TIMEOUT_MS}"),
            )),
        }
    }

    fn speculation(&self, raw: &RawTool, declaration: &Declaration) -> Checked<Speculation> {
        let (typed, defaults) = (&raw.speculation, Speculation::default());
        let most = match declaration.effect {
            Effect::Read | Effect::ReadCostly => Eligibility::Full,
            Effect::Keyed => Eligibility::WarmUp,
            Effect::Reversible | Effect::Irreversible => Eligibility::Forbid,
        };
        if typed.allow > most {
            return Err(self.wrong(
                "speculation.allow",
                "a tool that may change something never runs before it is certain".into(),
                "use \"forbid\", or \"warm-up\" for a keyed one",
            ));
        }
        let unlimited = typed.per_day.is_none() && typed.cost_per_day.is_none();
        if declaration.effect == Effect::ReadCostly && typed.allow == Eligibility::Full && unlimited
        {
            return Err(self.wrong(
                "speculation.per_day",
                "each call costs, and no budget is set".into(),
                "set per_day, or cost and cost_per_day",
            ));
        }
        let confidence = typed.min_confidence.unwrap_or(defaults.min_confidence);
        if !(0.0..=1.0).contains(&confidence) {
            return Err(self.wrong(
                "speculation.min_confidence",
                format!("{confidence} is no probability"),
                "use 0.0 to 1.0",
            ));
        }
        for (key, amount) in [
            ("cost", Some(typed.cost)),
            ("cost_per_day", typed.cost_per_day),
        ] {
            if amount.is_some_and(|amount| !(amount.is_finite() && amount >= 0.0)) {
                return Err(self.wrong(
                    &format!("speculation.{key}"),
                    "this is no amount of money".into(),
                    "use 0.0 or more",
                ));
            }
        }
        let ttl = typed.ttl_ms.map_or(defaults.ttl, Duration::from_millis);
        if ttl > Duration::from_millis(DAY_MS) {
            return Err(self.wrong(
                "speculation.ttl_ms",
                "this is longer than a day".into(),
                &format!("use 0 to {DAY_MS}"),
            ));
        }
        Ok(Speculation {
            eligibility: typed.allow,
            network: typed.network,
            ttl,
            shareable: typed.shareable,
            min_confidence: confidence,
            cost: typed.cost,
            per_turn: typed.per_turn.unwrap_or(defaults.per_turn),
            per_day: typed.per_day,
            cost_per_day: typed.cost_per_day,
        })
    }

    fn fillers(&self, raw: &RawTool, known: &BTreeSet<String>) -> Checked<Fillers> {
        let typed = &raw.fillers;
        for (kind, list) in [
            ("short", &typed.short),
            ("long", &typed.long),
            ("again", &typed.again),
        ] {
            for source in list {
                self.template(&format!("fillers.{kind}"), source, known)?;
            }
        }
        Ok(Fillers {
            short: typed.short.clone(),
            long: typed.long.clone(),
            again: typed.again.clone(),
        })
    }

    fn answer(&self, raw: &RawTool, known: &BTreeSet<String>) -> Checked<Option<String>> {
        if let Some(source) = &raw.answer {
            self.template("answer", source, &with(known, ["result"]))?;
        }
        Ok(raw.answer.clone())
    }

    fn confirmation(
        &self,
        typed: &RawConfirm,
        declaration: &Declaration,
        known: &BTreeSet<String>,
    ) -> Checked<Confirmation> {
        if let Some(question) = &typed.question {
            self.template("confirm.question", question, known)?;
        }
        let expiry = typed.expiry_s.unwrap_or(CONFIRM_EXPIRY_S);
        if !(5..=600).contains(&expiry) {
            return Err(self.wrong(
                "confirm.expiry_s",
                format!("{expiry} is out of range"),
                "use 5 to 600",
            ));
        }
        let spoken = Confirmation::Spoken {
            question: typed.question.clone(),
            expiry: Duration::from_secs(expiry),
        };
        Ok(
            match typed
                .spoken
                .unwrap_or(declaration.effect == Effect::Irreversible)
            {
                true => spoken,
                false => Confirmation::None,
            },
        )
    }

    fn hints(&self, raw: &RawTool, known: &BTreeSet<String>) -> Checked<()> {
        for rule in &raw.router.rules {
            let regex = regex::Regex::new(rule).map_err(|error| {
                let reason = error
                    .to_string()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .to_owned();
                self.wrong(
                    "router.rules",
                    format!("'{rule}' is no regular expression: {reason}"),
                    "write it as the regex crate has it, in single quotes",
                )
            })?;
            let names: Vec<String> = regex.capture_names().flatten().map(str::to_owned).collect();
            self.only_parameters("router.rules", names.iter(), known)?;
        }
        self.only_parameters("router.words", raw.router.words.keys(), known)
    }

    fn only_parameters<'a>(
        &self,
        key: &str,
        names: impl IntoIterator<Item = &'a String>,
        known: &BTreeSet<String>,
    ) -> Checked<()> {
        match names.into_iter().find(|name| !known.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let known = if known.is_empty() {
                    "it has none".into()
                } else {
                    format!("its parameters are: {}", known.join(", "))
                };
                Err(self.wrong(
                    key,
                    format!("`{name}` is no parameter of this tool"),
                    &known,
                ))
            }
        }
    }

    fn http(&self, raw: &RawHttp, known: &BTreeSet<String>, effect: Effect) -> Checked<HttpPlan> {
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
        let fix = "write scheme and host out, as in \"https://example.org/{{ id }}\"; arguments belong behind the host";
        let end = raw.url.find("://").map(|at| at + 3).and_then(|start| {
            Some(
                start
                    + raw.url[start..]
                        .find(['/', '?', '#'])
                        .unwrap_or(raw.url.len() - start),
            )
        });
        let typed = &raw.url[..end.unwrap_or(raw.url.len())];
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
                self.wrong(key, format!("the environment variable {} is not set", name_or_hint(name)), "set it, or name the one that holds the secret (the name, not the secret)")
            })?,
            (None, Some(file)) => std::fs::read_to_string(self.folder().join(file)).map_err(|error| {
                self.wrong(key, format!("cannot read the secret's file: {error}"), "name a file that this user may read; a relative path counts from the declaration's folder")
            })?,
            _ => return Err(self.wrong(key, "it names no source, or two".into(), "write { env = \"VARIABLE\" } or { file = \"path\" }")),
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
            None => Err(self.wrong(key, format!("\"{typed}\" picks nothing"), "write a JSON pointer such as \"/main/temp\" (with ? behind it if it may be absent), or one expression such as \"{{ body.main.temp | round }}\"")),
        }
    }

    fn subprocess(&self, raw: &RawSubprocess, known: &BTreeSet<String>) -> Checked<SubprocessPlan> {
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
                self.folder().join(program)
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

    fn template(&self, key: &str, source: &str, known: &BTreeSet<String>) -> Checked<Template> {
        Template::new(source, known).map_err(|(problem, fix)| self.wrong(key, problem, &fix))
    }

    fn needed<T>(&self, key: &str, typed: Option<T>, fix: &str) -> Checked<T> {
        typed.ok_or_else(|| self.wrong(key, format!("`{key}` is missing"), fix))
    }

    /// Where relative paths in the file count from.
    fn folder(&self) -> PathBuf {
        self.path
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default()
    }

    fn wrong(&self, key: &str, problem: String, fix: &str) -> DeclarationError {
        DeclarationError {
            file: self.path.into(),
            line: 1,
            key: key.into(),
            problem,
            fix: fix.into(),
        }
    }
}

fn with<const N: usize>(known: &BTreeSet<String>, more: [&str; N]) -> BTreeSet<String> {
    known
        .iter()
        .cloned()
        .chain(more.map(str::to_owned))
        .collect()
}

/// A secret typed where its variable's name belongs must not be printed.
fn name_or_hint(typed: &str) -> &str {
    let is_name = typed
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if is_name { typed } else { "<not shown>" }
}
