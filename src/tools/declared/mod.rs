//! Tools that a user declares: one TOML file each, read when the server starts.

mod check;
mod file;
mod hints;

pub use hints::RouterHints;

use super::builtin::{self, Builtin};
use super::http::{HttpPlan, HttpTool, Web};
use super::subprocess::{SubprocessPlan, SubprocessTool};
use super::{Audience, CallContext, Declaration, Registry, RegistryError, Tool, ToolError};
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde_json::{Map, Value};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error in a declaration: what, where, and how to mend it. It never contains secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DeclarationError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 1 where only the key is known.
    pub line: usize,
    /// The key, such as `http.url`; empty for the file as a whole.
    pub key: String,
    /// The problem.
    pub problem: String,
    /// Says what is allowed, or what to do.
    pub fix: String,
}

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

/// A declared tool, checked, with its secrets.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The file that declares it.
    pub file: PathBuf,
    /// The declaration.
    pub declaration: Declaration,
    /// How people ask for it.
    pub hints: RouterHints,
    /// How it runs.
    pub kind: Kind,
    /// The sessions that it is offered to; a file cannot choose.
    pub audience: Audience,
}

impl Declared {
    /// Secrets that must never be printed.
    pub fn secrets(&self) -> Vec<&SecretString> {
        match &self.kind {
            Kind::Http(plan) => plan.secrets().collect(),
            Kind::Subprocess(plan) => plan.secrets().collect(),
            Kind::Builtin(_) => Vec::new(),
        }
    }
}

/// How a declared tool runs.
#[derive(Debug, Clone)]
pub enum Kind {
    /// HTTP requests.
    Http(Box<HttpPlan>),
    /// A program.
    Subprocess(SubprocessPlan),
    /// Code of this program.
    Builtin(Builtin),
}

impl Kind {
    /// As it is written in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Subprocess(_) => "subprocess",
            Self::Builtin(_) => "builtin",
        }
    }
}

/// Reads every `*.toml` in `folder` (not in folders below it), in the order of their names.
/// `variable` looks up environment variables.
///
/// # Errors
/// [`DeclarationError`] with the first thing that is wrong.
pub fn load(
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Declared>, DeclarationError> {
    let mut tools: Vec<Declared> = Vec::new();
    for path in files(folder)? {
        let tool = check::read(&path, variable)?;
        let name = &tool.declaration.spec.name;
        if let Some(other) = tools
            .iter()
            .find(|tool| &tool.declaration.spec.name == name)
        {
            return Err(DeclarationError {
                problem: format!("{} declares a tool named {name}, too", other.file.display()),
                file: path,
                line: 1,
                key: "name".into(),
                fix: "rename or remove one of them".into(),
            });
        }
        tools.push(tool);
    }
    Ok(tools)
}

/// Reads a declaration that this program brings along: the text of `file`, without secrets.
///
/// # Errors
/// [`DeclarationError`] with the first thing that is wrong.
pub fn parse(file: &Path, text: &str) -> Result<Declared, DeclarationError> {
    check::parse(file, text, &|_| None)
}

/// Whether all that the tools need to run is there: their programs.
///
/// # Errors
/// [`DeclarationError`] with the first that is not.
pub fn verify(tools: &[Declared]) -> Result<(), DeclarationError> {
    check::programs(tools)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, DeclarationError> {
    let unreadable = |error: std::io::Error| DeclarationError {
        file: folder.into(),
        line: 1,
        key: String::new(),
        problem: format!("cannot read this folder: {error}"),
        fix: "name a folder that this user may read".into(),
    };
    let entries = folder.read_dir().map_err(unreadable)?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(unreadable)?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
            && path.is_file()
    });
    paths.sort();
    Ok(paths)
}

/// All tools of a server: those that every server has, and `declared`.
///
/// # Errors
/// [`RegistryError`] if two tools have one name ([`load`] makes sure that they have not), or TLS
/// cannot be set up.
pub fn registry(declared: &[Declared]) -> Result<Registry, RegistryError> {
    let mut registry = Registry::new();
    let web = Arc::new(Web::new().map_err(RegistryError::Client)?);
    for tool in builtin::always() {
        let name = &tool.declaration().spec.name;
        if !declared
            .iter()
            .any(|own| &own.declaration.spec.name == name)
        {
            registry.register(tool)?;
        }
    }
    for tool in declared {
        registry.register_with(build(tool, &web), tool.hints.clone())?;
    }
    Ok(registry)
}

fn build(tool: &Declared, web: &Arc<Web>) -> Arc<dyn Tool> {
    let declaration = tool.declaration.clone();
    let inner: Arc<dyn Tool> = match &tool.kind {
        Kind::Http(plan) => Arc::new(HttpTool::new(
            declaration.clone(),
            *plan.clone(),
            web.clone(),
        )),
        Kind::Subprocess(plan) => Arc::new(SubprocessTool::new(declaration.clone(), plan.clone())),
        Kind::Builtin(builtin) => builtin.tool(declaration.clone(), web),
    };
    Arc::new(Redeclared {
        declaration,
        audience: tool.audience,
        inner,
    })
}

/// A tool with the declaration that a file gives it.
struct Redeclared {
    declaration: Declaration,
    audience: Audience,
    inner: Arc<dyn Tool>,
}

impl Tool for Redeclared {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn audience(&self) -> Audience {
        self.audience
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        self.inner.call(arguments, context)
    }

    fn warm_up(&self) -> BoxFuture<'static, ()> {
        self.inner.warm_up()
    }
}
