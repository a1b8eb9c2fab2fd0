//! Tools that a user declares: one TOML file each, read when the server starts.

mod check;
mod file;
mod hints;

pub use hints::RouterHints;

use super::builtin::{self, Builtin};
use super::http::{HttpPlan, HttpTool, Web};
use super::mcp::{McpCatalogue, McpPlan, McpServer, McpServers, McpTool};
use super::subprocess::{SubprocessPlan, SubprocessTool};
use super::{
    Audience, CallContext, Declaration, Fixed, LiveTools, OncePer, Origin, Registry, RegistryError,
    Tool, ToolError,
};
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
    /// The arguments that the server sets.
    pub fixed: Option<Fixed>,
    /// The arguments that tell whether two of its calls are the same change.
    pub once_per: Option<OncePer>,
    /// The sessions that it is offered to; a file cannot choose.
    pub audience: Audience,
}

impl Declared {
    /// The least origin of the values that its fixed arguments are set from.
    fn trust(&self) -> Origin {
        self.fixed.as_ref().map_or(Origin::Claimed, Fixed::trust)
    }

    /// Secrets that must never be printed.
    pub fn secrets(&self) -> Vec<&SecretString> {
        match &self.kind {
            Kind::Http(plan) => plan.secrets().collect(),
            Kind::Subprocess(plan) => plan.secrets().collect(),
            Kind::Mcp(plan) => plan.server.secrets(),
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
    /// A tool of an MCP server.
    Mcp(Box<McpPlan>),
    /// Code of this program.
    Builtin(Builtin),
}

impl Kind {
    /// As it is written in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Subprocess(_) => "subprocess",
            Self::Mcp(_) => "mcp",
            Self::Builtin(_) => "builtin",
        }
    }
}

/// Reads every `*.toml` in `folder` (not in folders below it), in the order of their names.
/// `variable` looks up environment variables. There are no MCP servers.
///
/// # Errors
/// [`DeclarationError`] with the first thing that is wrong.
pub fn load(
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Declared>, DeclarationError> {
    load_with(folder, variable, &McpCatalogue::default())
}

/// Reads declarations like [`load`], with the MCP servers and pins that they may refer to.
///
/// # Errors
/// Those of [`load`].
pub fn load_with(
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
    mcp: &McpCatalogue,
) -> Result<Vec<Declared>, DeclarationError> {
    let mut tools: Vec<Declared> = Vec::new();
    for path in files(folder)? {
        let tool = check::read(&path, variable, mcp)?;
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
    check::results(&mut tools)?;
    check::lookups(&tools)?;
    Ok(tools)
}

/// Reads a declaration that this program brings along: the text of `file`, without secrets.
///
/// # Errors
/// [`DeclarationError`] with the first thing that is wrong.
pub fn parse(file: &Path, text: &str) -> Result<Declared, DeclarationError> {
    check::parse(file, text, &|_| None, &McpCatalogue::default())
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

/// All tools of a server: those that every server has, and `declared`. Tools of MCP servers are described, but not
/// connected: [`mcp_servers`] does that. Those that are not pinned are left out.
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
    for tool in declared.iter().filter(|tool| !is_unpinned(tool)) {
        registry.register_with(build(tool, &web), tool.hints.clone())?;
    }
    Ok(registry)
}

fn is_unpinned(tool: &Declared) -> bool {
    matches!(&tool.kind, Kind::Mcp(plan) if plan.pin.is_none())
}

/// The MCP servers with the tools that are declared of each. Those that `before` is connected to in the same way
/// stay connected, and serve both.
pub fn mcp_servers(
    servers: &[Arc<McpServer>],
    declared: &[Declared],
    before: Option<&LiveTools>,
) -> McpServers {
    let mut all = McpServers::new(servers, before);
    for tool in declared {
        if let Kind::Mcp(plan) = &tool.kind {
            let bind = |client| {
                let bound = McpTool::new(tool.declaration.clone(), plan, client);
                redeclared(tool, Arc::new(bound))
            };
            all.add(plan, &tool.hints, bind);
        }
    }
    all
}

fn build(tool: &Declared, web: &Arc<Web>) -> Arc<dyn Tool> {
    let declaration = tool.declaration.clone();
    let inner: Arc<dyn Tool> = match &tool.kind {
        Kind::Mcp(plan) => Arc::new(McpTool::unconnected(declaration.clone(), plan)),
        Kind::Http(plan) => Arc::new(HttpTool::new(
            declaration.clone(),
            *plan.clone(),
            web.clone(),
        )),
        Kind::Subprocess(plan) => Arc::new(SubprocessTool::new(declaration.clone(), plan.clone())),
        Kind::Builtin(builtin) => builtin.tool(declaration.clone(), web),
    };
    redeclared(tool, inner)
}

fn redeclared(tool: &Declared, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
    Arc::new(Redeclared {
        declaration: tool.declaration.clone(),
        audience: tool.audience,
        fixed: tool.fixed.clone(),
        once_per: tool.once_per.clone(),
        inner,
    })
}

/// A tool with the declaration that a file gives it.
struct Redeclared {
    declaration: Declaration,
    audience: Audience,
    fixed: Option<Fixed>,
    once_per: Option<OncePer>,
    inner: Arc<dyn Tool>,
}

impl Tool for Redeclared {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn audience(&self) -> Audience {
        self.audience
    }

    fn fixed(&self) -> Option<&Fixed> {
        self.fixed.as_ref()
    }

    fn once_per(&self) -> Option<&OncePer> {
        self.once_per.as_ref()
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
