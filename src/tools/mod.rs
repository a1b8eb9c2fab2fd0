//! Tools: what they are called, what they may do to the world, how they run.

use crate::llm::ToolSpec;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

pub mod builtin;
pub mod places;
mod registry;
mod session;

pub use registry::{Registry, RegistryError};
pub use session::{Clock, SessionTools, SystemClock};

/// What running a tool does to the world; decides what may ever run before it is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// Why a tool gave no result. The text is for the language model, which tells the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ToolError {
    /// No such tool.
    #[error("there is no tool named {0}")]
    Unknown(String),
    /// The arguments are not what the schema says.
    #[error("wrong arguments: {0}")]
    Arguments(String),
    /// The tool could not do it.
    #[error("{0}")]
    Failed(String),
    /// The tool did not answer within its timeout.
    #[error("no answer within {0} ms")]
    Timeout(u64),
}

/// A tool's declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Name, description and schema, as the model sees them.
    pub spec: ToolSpec,
    /// What running it does to the world.
    pub effect: Effect,
    /// How long it may take.
    pub timeout: Duration,
}

/// A tool that the server runs.
pub trait Tool: Send + Sync {
    /// Its declaration.
    fn declaration(&self) -> &Declaration;

    /// Runs it. `arguments` match the schema. Dropping the future cancels the run.
    fn call(
        &self,
        arguments: Map<String, Value>,
        session: &SessionTools,
    ) -> BoxFuture<'static, Result<Value, ToolError>>;
}
