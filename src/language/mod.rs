//! Knowledge of natural languages. Each language is a [`Pack`]: words of agreement, words that lead on, ends of
//! sentences, fixed phrases, spoken forms. English also has the numbers, dates, places and units that predictions
//! and tools read.
//!
//! Pure, like the core, which uses it: no clock, no runtime, no locks, no I/O.

pub mod en;
pub(crate) mod listening;
mod pack;
pub(crate) mod request;

pub(crate) mod sentences;
mod unknown;

pub(crate) use en::assent::{Asked, Reply};
pub use en::endings::Marks;
pub(crate) use en::endings::log_odds;
pub(crate) use en::spoken::Phrase;
pub use pack::{ENGLISH, Pack, base, is_tag, pack, packs};
