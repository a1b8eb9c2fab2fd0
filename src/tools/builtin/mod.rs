//! The tools that every server has: clock, calculator, units, timers.

mod calculator;
mod clock;
mod timers;
mod units;

pub use calculator::Calculate;
pub use clock::GetTime;
pub(crate) use timers::length_words;
pub use timers::{CancelTimer, ListTimers, SetTimer, Timer, TimerError, Timers, Which};
pub use units::{ConvertUnits, Unit};

use super::{Declaration, Effect, Registry, RegistryError, Tool};
use crate::llm::ToolSpec;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Registers all of them.
///
/// # Errors
/// [`RegistryError::Duplicate`] if one of their names is taken.
pub fn register(registry: &mut Registry) -> Result<(), RegistryError> {
    all()
        .into_iter()
        .try_for_each(|tool| registry.register(tool))
}

/// Whether this is one of these tools, not a stranger of the same name: its arguments are those
/// that we declare.
pub(crate) fn is_ours(spec: &ToolSpec) -> bool {
    static OURS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
        let spec = |tool: Arc<dyn Tool>| tool.declaration().spec.clone();
        all().into_iter().map(spec).collect()
    });
    OURS.iter()
        .any(|ours| ours.name == spec.name && ours.parameters == spec.parameters)
}

fn all() -> [Arc<dyn Tool>; 6] {
    [
        Arc::new(GetTime::default()),
        Arc::new(Calculate::default()),
        Arc::new(ConvertUnits::default()),
        Arc::new(SetTimer::default()),
        Arc::new(ListTimers::default()),
        Arc::new(CancelTimer::default()),
    ]
}

/// They only compute: a second is generous.
fn declare(name: &str, description: &str, effect: Effect, parameters: Value) -> Declaration {
    let spec = ToolSpec {
        name: name.into(),
        description: description.into(),
        parameters,
    };
    Declaration::new(spec, effect, Duration::from_secs(1))
}

fn text<'a>(arguments: &'a serde_json::Map<String, Value>, name: &str) -> Option<&'a str> {
    let value = arguments.get(name)?.as_str()?.trim();
    (!value.is_empty()).then_some(value)
}
