//! Text to intents: what the words ask for, before any language model has seen them.
//!
//! Rules read what is said plainly; sentence embeddings and a trained head judge the rest.

mod embed;
pub mod expression;
mod logistic;
pub mod numbers;
mod prediction;
pub mod slots;
pub mod text;

pub use embed::{EmbedError, Embedder, cosine};
pub use logistic::{Guess, Head, Training};
pub use prediction::{Heard, PastCall, PredictError, Prediction, Predictor, Source};

/// All sources of predictions.
pub struct Router(Vec<Box<dyn Predictor>>);

impl Router {
    /// A router over these sources.
    pub fn new(sources: Vec<Box<dyn Predictor>>) -> Self {
        Self(sources)
    }

    /// What may be needed.
    pub fn predict(&mut self, heard: &Heard) -> Vec<Prediction> {
        let sources = self.0.iter_mut();
        sources
            .filter_map(|source| source.predict(heard).ok())
            .flatten()
            .collect()
    }
}
