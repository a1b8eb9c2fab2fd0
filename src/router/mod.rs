//! Text to intents: what the words ask for, before any language model has seen them.
//!
//! Rules read what is said plainly; sentence embeddings and a trained head judge the rest.

mod builtin_rules;
pub mod dates;
mod embed;
pub mod examples;
pub mod expression;
mod logistic;
pub mod numbers;
pub mod parameters;
mod prediction;
mod rules;
pub mod slots;
pub mod text;

pub use embed::{EmbedError, Embedder, cosine};
pub use logistic::{Guess, Head, Training};
pub use parameters::Today;
pub use prediction::{Heard, PastCall, PredictError, Prediction, Predictor, Source};
pub use rules::{RuleError, Rules, ToolHints};
