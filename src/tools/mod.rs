//! Tools: what they are called, what they may do to the world, how they run.
//!
//! | files | subject |
//! |---|---|
//! | `registry`, `live` | the tools of a server, and their change while it runs |
//! | `declared`, `settings`, `template` | tools from TOML |
//! | `http`, `subprocess`, `mcp` | what a declared tool calls: a web service, a program, an MCP server |
//! | `builtin` | clock, calculator, units, timers; weather, calendar, notes, accounts |
//! | `values`, `fixed`, `session` | facts on the caller; arguments that the server sets; a session's data |
//! | `schema` | the parameters that a JSON Schema declares |
//! | `canonical`, `once` | when two calls are the same; when two changes are |
//! | `journal`, `journal/file`, `journal/shared` | which changes may run, so that none runs twice; their records in a file, or in a store |
//! | `audit` | the log of calls that may have changed something |

use crate::language::{ENGLISH, base};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

mod audit;
pub mod builtin;
mod canonical;
pub mod declared;
mod fixed;
pub mod http;
pub mod journal;
mod live;
pub mod mcp;
mod once;
mod registry;
mod schema;
mod session;
mod settings;
pub mod subprocess;
mod template;
mod values;

pub use audit::{AuditLog, Audited, Caller};
pub use canonical::canonical;
pub use declared::RouterHints;
pub(crate) use fixed::Known;
pub use fixed::{Fixed, SessionTemplate};
pub use journal::{Journal, JournalError, JournalFile, JournalShared};
pub use live::LiveTools;
pub use once::{OncePer, Same};
pub use registry::{Registry, RegistryError};
pub(crate) use schema::combined;
pub use session::{Clock, SessionTools, SystemClock};
pub(crate) use session::{KeyPress, Lookup};
pub(crate) use template::plain;
pub use template::say;
pub(crate) use values::Found;
pub use values::{Named, Origin, SessionValues};

/// A tool's effect on the world. It decides whether the tool may ever run speculatively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Changes nothing, but each call costs.
    ReadCostly,
    /// Changes something, once per idempotency key.
    Keyed,
    /// Changes something that can be undone.
    Reversible,
    /// Changes something for good.
    Irreversible,
}

impl Effect {
    /// Whether a call may change something.
    #[must_use]
    pub fn changes(self) -> bool {
        self >= Self::Keyed
    }

    /// How much care it takes: an effect with a greater number is the stricter one.
    pub(crate) fn strictness(self) -> u8 {
        match self {
            Self::Read => 0,
            Self::ReadCostly => 1,
            Self::Keyed => 2,
            Self::Reversible => 3,
            Self::Irreversible => 4,
        }
    }
}

/// An error of a tool. The text is for the language model, which tells the user: one plain
/// sentence, never what a library, a server or a program said. [`ToolError::details`] is for the
/// operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ToolError {
    /// No such tool.
    #[error("there is no tool named {0}")]
    Unknown(String),
    /// The arguments are not what the schema says.
    #[error("wrong arguments: {0}")]
    Arguments(String),
    /// The tool could not do it, and says why in words for the user.
    #[error("{0}")]
    Failed(String),
    /// Something in the tool or on the way to it broke. What it was is for the operator alone.
    #[error("{BROKEN}")]
    Broken(String),
    /// Something broke before the tool could begin, so nothing has changed. What it was is for the operator alone.
    #[error("{BROKEN}")]
    NotBegun(String),
    /// The connection to the tool broke after a change had been asked for, or its answer cannot be read. What it was is for
    /// the operator alone.
    #[error("{UNCERTAIN}")]
    Uncertain(String),
    /// The tool did not answer within its timeout, ms, after a change had been asked for.
    #[error("{UNANSWERED}")]
    Unanswered(u64),
    /// The tool did not answer within its timeout, ms.
    #[error("{LATE}")]
    Timeout(u64),
}

/// The error text of a tool that broke.
pub(crate) const BROKEN: &str = "it is not working right now";

/// The error text of a change that may have been made: it broke off, or an answer came that cannot be read.
pub(crate) const UNCERTAIN: &str =
    "no answer came that can be read, so it is not known whether this was done";

/// The error text of a change that may have been made, or be made yet.
pub(crate) const UNANSWERED: &str =
    "no answer came in time, so it is not known whether this was done";

/// The error text of a tool that did not answer in time.
pub(crate) const LATE: &str = "it took too long to answer";

impl ToolError {
    /// The error of a call whose answer was lost or cannot be read. A change may have been made.
    pub(crate) fn lost(effect: Effect, why: String) -> Self {
        match effect.changes() {
            true => Self::Uncertain(why),
            false => Self::Broken(why),
        }
    }

    /// The error of a call that was not answered within `limit`. A change may have been made.
    pub(crate) fn late(effect: Effect, limit: Duration) -> Self {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        match effect.changes() {
            true => Self::Unanswered(limit),
            false => Self::Timeout(limit),
        }
    }

    /// All that is known, for the log.
    #[must_use]
    pub fn details(&self) -> String {
        match self {
            Self::Broken(details) | Self::NotBegun(details) | Self::Uncertain(details) => {
                details.clone()
            }
            Self::Timeout(limit) | Self::Unanswered(limit) => {
                format!("no answer within {limit} ms")
            }
            told => told.to_string(),
        }
    }
}

/// The description of a tool that the model is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name, `[a-zA-Z0-9_-]+`; that of a declared tool begins with a letter or `_`.
    pub name: String,
    /// When to use it, for the model.
    pub description: String,
    /// JSON Schema of the arguments object.
    pub parameters: Value,
    /// Sentences of users who need it, as a client gives them with its tool: for the sources of predictions and
    /// the local brain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

impl ToolSpec {
    /// The parameters without which a call is refused. What has a default may be left out.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        let names = schema::required(&self.parameters);
        names.filter(|name| self.property(name).and_then(|p| p.get("default")).is_none())
    }

    /// The declared parameters with their schemas, also those in a part of the schema that need not hold.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Value)> {
        schema::properties(&self.parameters)
    }

    fn property(&self, name: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(name)
    }
}

/// A tool as its author and the server's operator declared it. Pure data: the conversation decides
/// by it, and a recording carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Declaration {
    /// Name, description and schema, as the model sees them.
    pub spec: ToolSpec,
    /// Its effect on the world.
    pub effect: Effect,
    /// How long it may take.
    pub timeout: Duration,
    /// Its calls leave this machine.
    pub network: bool,
    /// Rules for speculative runs, before the model commits a call.
    pub speculation: SpeculationLimits,
    /// Labels of what its result depends on. A committed write to one of them makes it stale.
    pub reads: Vec<String>,
    /// Labels of what it changes.
    pub writes: Vec<String>,
    /// By argument: differences that do not matter when a predicted call is matched.
    pub equivalence: BTreeMap<String, Vec<Equivalence>>,
    /// Fillers while it runs, in languages that have none of their own.
    pub fillers: Fillers,
    /// Fillers by the primary language of the session (BCP 47).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fillers_by_language: BTreeMap<String, Fillers>,
    /// Whether the user has to say yes first.
    pub confirmation: Confirmation,
    /// A call ends the conversation, once what the agent says to it has been heard.
    pub ends_call: Option<EndsCall>,
    /// A minijinja template over the result and the arguments: how the local brain says the result.
    pub answer: Option<String>,
    /// The client runs it, in its own session alone; false for the server's tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_client: bool,
    /// The arguments that the server sets. They are not in the schema, and what the model writes for
    /// them is dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<String>,
    /// The tools from whose results some of them are set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<String>,
    /// Its results set fixed arguments of other tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub feeds: bool,
}

impl Declaration {
    /// A tool that never runs early and asks nobody.
    pub fn new(spec: ToolSpec, effect: Effect, timeout: Duration) -> Self {
        Self {
            spec,
            effect,
            timeout,
            network: false,
            speculation: SpeculationLimits::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            equivalence: BTreeMap::new(),
            fillers: Fillers::default(),
            fillers_by_language: BTreeMap::new(),
            confirmation: Confirmation::None,
            ends_call: None,
            answer: None,
            by_client: false,
            fixed: Vec::new(),
            takes: Vec::new(),
            feeds: false,
        }
    }

    /// The fillers for a session that speaks `language` (BCP 47): English if it names none.
    pub fn fillers_in(&self, language: Option<&str>) -> &Fillers {
        let language = base(language.unwrap_or(ENGLISH));
        let own = self.fillers_by_language.get(&language);
        own.unwrap_or(&self.fillers)
    }

    /// Drops what the model wrote for arguments that the server sets.
    pub fn without_fixed(&self, arguments: &mut Map<String, Value>) {
        for name in &self.fixed {
            arguments.remove(name);
        }
    }
}

/// How a call of a tool ends the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndsCall {
    /// The server hangs up; nothing runs.
    HangUp,
    /// The tool runs. If it succeeds the server lets go of the line, which may be somebody else's by
    /// then; if it fails the conversation goes on.
    HandOver,
}

/// Rules for speculative runs, before the model commits a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeculationLimits {
    /// The operator's limit. The tool's effect may tighten this, never loosen it.
    pub eligibility: Eligibility,
    /// A tool that leaves this machine may too: it discloses words before they are finished.
    pub network: bool,
    /// How long an uncommitted result stays good.
    pub ttl: Duration,
    /// One result may serve several identical calls of a turn.
    pub shareable: bool,
    /// Predictions below this are not followed, 0..1.
    pub min_confidence: f32,
    /// Cost of one call, in the operator's currency.
    pub cost: f64,
    /// The language model may be asked for the answer before it has committed the call.
    #[serde(default)]
    pub assume: bool,
    /// Speculative calls of this tool in one turn.
    pub per_turn: u32,
    /// Speculative calls of this tool in a day, of all sessions; no limit if `None`.
    pub per_day: Option<u32>,
    /// Their budget for a day; no limit if `None`.
    pub cost_per_day: Option<f64>,
}

impl Default for SpeculationLimits {
    fn default() -> Self {
        Self {
            eligibility: Eligibility::Forbid,
            network: false,
            ttl: Duration::from_secs(30),
            shareable: false,
            min_confidence: 0.5,
            cost: 0.0,
            assume: true,
            per_turn: 3,
            per_day: None,
            cost_per_day: None,
        }
    }
}

/// The furthest that a call may go before the model commits it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eligibility {
    /// Nothing happens.
    #[default]
    Forbid,
    /// Its connections are opened; no call is made.
    WarmUp,
    /// It runs, silently.
    Full,
}

/// A difference between two arguments that does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Equivalence {
    /// Upper and lower case.
    Case,
    /// Punctuation, and the width of white space.
    Punctuation,
    /// Ways to write a unit: "km" and "kilometers".
    Unit,
    /// Ways to write a place: "Boulder, CO" and "Boulder, Colorado".
    Place,
}

/// Fillers while a tool runs. They never claim anything about its result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fillers {
    /// For a wait of a second or so. minijinja templates over the arguments.
    pub short: Vec<String>,
    /// For longer waits.
    pub long: Vec<String>,
    /// Said when the wait drags on after a filler.
    pub again: Vec<String>,
}

/// Whether the user has to say yes before a committed call runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Confirmation {
    /// No.
    #[default]
    None,
    /// The agent reads the arguments back and waits for a yes in a new turn.
    Spoken {
        /// minijinja template over the arguments; made from their names if `None`.
        question: Option<String>,
        /// How long after the question a yes counts.
        expiry: Duration,
    },
}

/// The context of a call beside its arguments.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The session's clock, zone and timers.
    pub session: SessionTools,
    /// The same for every attempt at this call, and for no other call: what a target that takes
    /// idempotency keys is to be given.
    pub idempotency_key: String,
}

impl CallContext {
    /// A call of `session` with a key of its own.
    pub fn new(session: SessionTools, idempotency_key: impl Into<String>) -> Self {
        Self {
            session,
            idempotency_key: idempotency_key.into(),
        }
    }
}

/// The sessions that a tool is offered to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Audience {
    /// Every session.
    #[default]
    Everyone,
    /// Sessions of a telephone call that the tool acts on ([`SessionTools::call`]).
    Calls,
    /// Sessions of a telephone call, whoever placed it.
    Lines,
    /// Sessions of a telephone call that the server has placed.
    PlacedCalls,
    /// None: the server calls it once when a session begins, and its result is a value of the session.
    Lookup,
    /// Sessions whose client shows the server's demonstration, as the playground does.
    Demonstration,
}

impl Audience {
    /// The audiences whose tools come from the configuration and are offered by it, not by a demonstration.
    pub(crate) const CONFIGURED: [Self; 4] =
        [Self::Everyone, Self::Calls, Self::Lines, Self::PlacedCalls];
}

/// A tool that the server runs.
pub trait Tool: Send + Sync {
    /// Its declaration.
    fn declaration(&self) -> &Declaration;

    /// Runs it. `arguments` match the schema. Dropping the future cancels the run.
    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>>;

    /// The sessions that it is offered to.
    fn audience(&self) -> Audience {
        Audience::Everyone
    }

    /// The arguments that the server sets, if there are any.
    fn fixed(&self) -> Option<&Fixed> {
        None
    }

    /// The arguments that tell whether two of its calls are the same change, if only one of them may run.
    fn once_per(&self) -> Option<&OncePer> {
        None
    }

    /// Makes the next call faster without making one: looks up names, opens connections.
    fn warm_up(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
