//! Knowledge of natural languages. Each language is a [`Pack`]: words of agreement, words that lead on, ends of
//! sentences, fixed phrases, spoken forms. English also has the numbers, dates, places and units that predictions
//! and tools read; the other packs have the built-in assistant's requests and answers instead.
//!
//! Pure, like the core, which uses it: no clock, no runtime, no locks, no I/O.
//!
//! | files | subject |
//! |---|---|
//! | `pack`, `unknown` | packs, found by a BCP 47 tag; languages without one |
//! | `sentences`, `spoken`, `figures`, `assent`, `listening`, `fillers`, `endings`, `digits`, `accents` | rules that packs share, over tables of words |
//! | `machines` | answering machines' words, in all languages |
//! | `request`, `grammar`, `wording` | the built-in assistant's requests and answers |
//! | `de`, `es` | German, Spanish: tables |
//! | `en` | English, and its numbers, dates, places, units and names |

pub(crate) mod accents;
mod assent;
mod de;
mod digits;
pub mod en;
mod endings;
mod es;
mod figures;
mod fillers;
mod grammar;
mod listening;
pub(crate) mod machines;
mod pack;
pub(crate) mod request;
pub(crate) mod sentences;
mod spoken;
mod unknown;
pub(crate) mod wording;

pub(crate) use en::assent::{Asked, Reply};
pub use en::endings::Marks;
pub(crate) use en::endings::log_odds;
pub use pack::{ENGLISH, Pack, base, code, is_tag, pack, packs};
pub(crate) use spoken::Phrase;
