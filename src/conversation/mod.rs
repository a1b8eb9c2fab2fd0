//! The brain. Pure rules about turns, speech and tools; no clock, no runtime, no locks, no I/O.

mod clauses;
mod ids;
mod input;
mod latency;
mod output;
mod time;

pub use clauses::Clauses;
pub use ids::{CallId, ClauseId, ItemId, RequestId, TurnId};
pub use input::{EndOfTurnRule, Input, Job, NewItem, Settings, TurnDetection};
pub use latency::TurnLatency;
pub use output::{Event, HangUpReason, Output, ResponseStatus};
pub use time::{Micros, Samples, Time};
