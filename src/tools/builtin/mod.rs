//! Tools that are part of this program. Every server has clock, calculator, units and timers; those
//! that need an address or a file are there once a declaration gives it.

mod accounts;
mod calculator;
mod calendar;
mod clock;
mod keypad;
mod notes;
mod timers;
mod units;
mod weather;

pub use calculator::Calculate;
pub use clock::GetTime;
pub(crate) use keypad::SEND_DIGITS;
pub use keypad::SendDigits;
pub use timers::{CancelTimer, ListTimers, SetTimer, Timer, TimerError, Timers, Which};
pub use units::ConvertUnits;

use super::http::Web;
use super::{
    CallContext, Declaration, Effect, Eligibility, EndsCall, Fillers, Registry, RegistryError,
    Tool, ToolError, ToolSpec,
};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Registers those that every server has.
///
/// # Errors
/// [`RegistryError::Duplicate`] if one of their names is taken.
pub fn register(registry: &mut Registry) -> Result<(), RegistryError> {
    always()
        .into_iter()
        .try_for_each(|tool| registry.register(tool))
}

/// The name of the tool that ends a telephone call.
pub(crate) const HANG_UP: &str = "hang_up";

/// The tool with which the agent ends a telephone call. Nothing runs: the conversation ends once the goodbye was heard.
pub(crate) fn hang_up() -> Declaration {
    let description =
        "Ends the telephone call. Only when the caller has said goodbye or asks for it.";
    let parameters = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let mut declaration = declare(HANG_UP, description, Effect::Irreversible, parameters);
    declaration.ends_call = Some(EndsCall::HangUp);
    declaration
}

/// The name of the tool that puts a caller through to somebody else.
pub(crate) const TRANSFER_CALL: &str = "transfer_call";

/// Puts a caller through to one of `names`, within `timeout`. How is the telephone provider's business.
pub(crate) fn transfer_call<'a>(
    names: impl Iterator<Item = &'a String>,
    timeout: Duration,
) -> Declaration {
    let description = "Puts the caller through to somebody else, which ends your part of the call. \
                       Only when the caller asks for it.";
    let parameters = json!({
        "type": "object",
        "properties": {"to": {"type": "string", "enum": names.collect::<Vec<_>>()}},
        "required": ["to"],
        "additionalProperties": false
    });
    let mut declaration = declare(TRANSFER_CALL, description, Effect::Irreversible, parameters);
    declaration.timeout = timeout;
    declaration.network = true;
    // One after the other: a second one would take the call away from the first.
    declaration.writes = vec!["call".into()];
    declaration.ends_call = Some(EndsCall::HandOver);
    let announced = |(language, text): (&str, &str)| {
        let short = vec![text.to_owned()];
        let fillers = Fillers {
            short,
            ..Fillers::default()
        };
        (language.to_owned(), fillers)
    };
    declaration.fillers_by_language = [
        ("en", "I'll put you through to {{ to }}."),
        ("de", "Ich verbinde Sie mit {{ to }}."),
        ("es", "Le paso con {{ to }}."),
    ]
    .map(announced)
    .into();
    declaration
}

/// The name of the tool that hands a conversation over to another agent of the server.
pub(crate) const TRANSFER_TO_AGENT: &str = "transfer_to_agent";

/// Hands the conversation over to one of `agents`, each with a description; `None` without any. The session
/// carries it out: nothing of the tool itself runs.
pub(crate) fn transfer_to_agent<'a>(
    agents: impl Iterator<Item = (&'a String, &'a String)>,
) -> Option<Declaration> {
    let mut description =
        "Hands the conversation over to another agent, who goes on with it at once. \
                           Only when the user needs what that agent is there for."
            .to_owned();
    let mut names = Vec::new();
    for (name, about) in agents {
        if !about.is_empty() {
            description.push_str(&format!(" {name}: {}.", about.trim_end_matches('.')));
        }
        names.push(name.as_str());
    }
    let parameters = json!({
        "type": "object",
        "properties": {"agent": {"type": "string", "enum": names}},
        "required": ["agent"],
        "additionalProperties": false
    });
    let declared = || {
        declare(
            TRANSFER_TO_AGENT,
            &description,
            Effect::Reversible,
            parameters,
        )
    };
    (!names.is_empty()).then(declared)
}

/// The agents that a tool hands over to.
pub(crate) fn agents_of(tool: &Declaration) -> Vec<&str> {
    let names = tool.spec.parameters.pointer("/properties/agent/enum");
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

/// Whether this is one of these tools, not a stranger of the same name: its arguments are those
/// that we declare.
pub(crate) fn is_ours(spec: &ToolSpec) -> bool {
    static OURS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
        let spec = |tool: Arc<dyn Tool>| tool.declaration().spec.clone();
        always().into_iter().map(spec).collect()
    });
    OURS.iter()
        .any(|ours| ours.name == spec.name && ours.parameters == spec.parameters)
}

/// The names of those that every server has.
pub(crate) fn always_there() -> Vec<String> {
    let names = always().into_iter();
    names
        .map(|tool| tool.declaration().spec.name.clone())
        .collect()
}

pub(super) fn always() -> [Arc<dyn Tool>; 6] {
    [
        Arc::new(GetTime::default()),
        Arc::new(Calculate::default()),
        Arc::new(ConvertUnits::default()),
        Arc::new(SetTimer::default()),
        Arc::new(ListTimers::default()),
        Arc::new(CancelTimer::default()),
    ]
}

/// A built-in tool that a file declares, with the settings that the file gives.
#[derive(Debug, Clone)]
pub struct Builtin(Inner);

#[derive(Debug, Clone)]
enum Inner {
    Always(String),
    Weather(weather::Settings),
    Calendar(PathBuf),
    ReadNotes(PathBuf),
    AddNote(PathBuf),
    Balance(PathBuf),
}

/// The settings of a tool that keeps what it knows in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSettings {
    file: PathBuf,
}

/// A tool that has nothing to set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

impl Builtin {
    /// The tools that only a declaration brings in.
    fn on_demand() -> [Declaration; 5] {
        [
            weather::declaration(),
            calendar::declaration(),
            notes::read_declaration(),
            notes::add_declaration(),
            accounts::declaration(),
        ]
    }

    /// The declaration of the built-in tool with this name.
    pub(super) fn declaration(name: &str) -> Option<Declaration> {
        let always = always();
        let always = always.iter().map(|tool| tool.declaration().clone());
        always
            .chain(Self::on_demand())
            .find(|tool| tool.spec.name == name)
    }

    pub(super) fn names() -> Vec<String> {
        let always = always();
        let always = always.iter().map(|tool| tool.declaration().clone());
        always
            .chain(Self::on_demand())
            .map(|tool| tool.spec.name)
            .collect()
    }

    /// The tool `name` with `settings`, whose paths count from `folder`.
    ///
    /// # Errors
    /// The key that is wrong, the problem and the fix.
    pub(super) fn configured(
        name: &str,
        settings: toml::Table,
        folder: &Path,
    ) -> Result<Self, (String, String, String)> {
        use super::settings::read;
        let file = |settings| read::<FileSettings>(settings).map(|typed| folder.join(typed.file));
        let inner = match name {
            "get_weather" => Inner::Weather(weather::Settings::read(settings)?),
            "read_calendar" => Inner::Calendar(calendar::checked(file(settings)?)?),
            "get_balance" => Inner::Balance(accounts::checked(file(settings)?)?),
            "read_notes" => Inner::ReadNotes(file(settings)?),
            "add_note" => Inner::AddNote(file(settings)?),
            other => {
                read::<NoSettings>(settings).map(|NoSettings {}| Inner::Always(other.into()))?
            }
        };
        Ok(Self(inner))
    }

    /// Whether its calls leave this machine.
    pub(super) fn uses_network(&self) -> bool {
        matches!(&self.0, Inner::Weather(settings) if !settings.is_local())
    }

    /// The tool, with the declaration that its file gives it.
    pub(super) fn tool(&self, declaration: Declaration, web: &Arc<Web>) -> Arc<dyn Tool> {
        match &self.0 {
            Inner::Weather(settings) => Arc::new(weather::GetWeather::new(
                declaration,
                settings.clone(),
                web.clone(),
            )),
            Inner::Calendar(file) => {
                Arc::new(calendar::ReadCalendar::new(declaration, file.clone()))
            }
            Inner::ReadNotes(file) => Arc::new(notes::ReadNotes::new(declaration, file.clone())),
            Inner::AddNote(file) => Arc::new(notes::AddNote::new(declaration, file.clone())),
            Inner::Balance(file) => Arc::new(accounts::GetBalance::new(declaration, file.clone())),
            Inner::Always(name) => {
                let known = always()
                    .into_iter()
                    .find(|tool| &tool.declaration().spec.name == name);
                // `configured` is only asked for names that `declaration` knows.
                let tool = known.unwrap_or_else(|| Arc::new(GetTime::default()));
                Arc::new(Worded::new(tool, declaration))
            }
        }
    }
}

/// A tool that is always there, with the confirmation and the words that a file gives it.
struct Worded {
    tool: Arc<dyn Tool>,
    declaration: Declaration,
}

impl Worded {
    fn new(tool: Arc<dyn Tool>, file: Declaration) -> Self {
        let declaration = Declaration {
            confirmation: file.confirmation,
            fillers: file.fillers,
            fillers_by_language: file.fillers_by_language,
            answer: file.answer,
            ..tool.declaration().clone()
        };
        Self { tool, declaration }
    }
}

impl Tool for Worded {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        self.tool.call(arguments, context)
    }
}

/// Runs what reads or writes files off the runtime's threads.
async fn blocking(
    work: impl FnOnce() -> Result<Value, ToolError> + Send + 'static,
) -> Result<Value, ToolError> {
    let session = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || session.in_scope(work)).await;
    done.unwrap_or_else(|error| Err(ToolError::Broken(error.to_string())))
}

/// `(key, problem, fix)` for a settings file that cannot be used.
fn bad_file(path: &Path, problem: impl std::fmt::Display, fix: &str) -> (String, String, String) {
    let problem = format!("{}: {problem}", path.display());
    ("settings.file".into(), problem, fix.into())
}

/// A result that time makes stale.
const CURRENT: Duration = Duration::from_secs(5);
/// A result that depends on its arguments alone.
const COMPUTED: Duration = Duration::from_secs(60);

/// They only compute: a second is generous.
fn declare(name: &str, description: &str, effect: Effect, parameters: Value) -> Declaration {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: description.into(),
        parameters,
    };
    Declaration::new(spec, effect, Duration::from_secs(1))
}

/// A read of what this process knows: it may run early, and its result is valid for `ttl`.
fn lookup(name: &str, description: &str, parameters: Value, ttl: Duration) -> Declaration {
    let mut declaration = declare(name, description, Effect::Read, parameters);
    declaration.speculation.eligibility = Eligibility::Full;
    declaration.speculation.ttl = ttl;
    declaration
}

fn text<'a>(arguments: &'a serde_json::Map<String, Value>, name: &str) -> Option<&'a str> {
    let value = arguments.get(name)?.as_str()?.trim();
    (!value.is_empty()).then_some(value)
}
