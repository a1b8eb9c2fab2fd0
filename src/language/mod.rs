//! Knowledge of natural languages, one module per language: how people say numbers, dates, places
//! and units, what counts as agreement, and where sentences end.
//!
//! Pure, like the core, which uses it: no clock, no runtime, no locks, no I/O.

pub mod en;
