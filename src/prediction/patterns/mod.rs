//! Predicts calls from earlier calls: learns which call follows which, and where its arguments come from.
//!
//! A [`Trail`] is the learner's view of one conversation and ends with it. [`Patterns`] remain: names of
//! tools and fields, shapes and weights, and no value that anybody said or that any tool returned.

mod conversations;
mod evaluation;
mod learner;
mod leaves;
mod memory;
mod observer;
mod origin;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod trail;

pub use conversations::{ConversationsError, Happened, PastConversation};
pub use evaluation::{Call, Figures, MOST, NextCall, learnt, next_calls};
pub use learner::{Guess, Patterns, Rate, Shown, VERSION};
pub use memory::{Memory, PatternFigures};
pub use observer::Transitions;
pub use origin::{Origin, Pick, Schemas, SpanPick};
pub use shared::SharedPatterns;
pub use store::{Book, PatternFile, PatternStore, PatternStoreError, Stored};
pub use trail::Trail;
