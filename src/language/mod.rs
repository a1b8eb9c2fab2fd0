//! Knowledge of natural languages, one module per language: numbers, dates, places and units, words of
//! agreement, and the ends of sentences.
//!
//! Pure, like the core, which uses it: no clock, no runtime, no locks, no I/O.

pub mod en;
