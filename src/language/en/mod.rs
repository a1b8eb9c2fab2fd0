//! English.

pub(crate) mod assent;
pub mod dates;
pub(crate) mod durations;
pub mod endings;
pub mod expression;
pub(crate) mod factuality;
pub(crate) mod fillers;
pub(crate) mod money;
pub(crate) mod mood;
pub mod numbers;
pub mod places;
pub(crate) mod rule_syntax;
pub(crate) mod sentences;
pub mod slots;
pub(crate) mod sounds;
pub(crate) mod spoken;
pub(crate) mod subject;
pub mod text;
pub mod units;
