//! Sentence embeddings: all-MiniLM-L6-v2, int8, on ONNX Runtime.

use crate::onnx::{self, OnnxError};
use ort::session::Session;
use ort::value::Tensor;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokenizers::Tokenizer;

/// Longest input in tokens, the model's two included: what it was trained on. Longer text is cut.
const MOST_TOKENS: usize = 128;

/// An error of the embedding model.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The model could not be loaded.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The tokenizer could not be loaded or used.
    #[error("the tokenizer of the sentence embeddings failed: {0}")]
    Tokenizer(String),
    /// The model could not be run.
    #[error("the sentence embeddings failed: {0}")]
    Run(#[from] ort::Error),
}

/// Text to a vector of [`Embedder::LENGTH`] numbers; near in meaning is near in angle. Clones share the model, which
/// takes some 170 MB, and embed one text at a time.
#[derive(Debug, Clone)]
pub struct Embedder {
    session: Arc<Mutex<Session>>,
    tokenizer: Arc<Tokenizer>,
}

impl Embedder {
    /// The vector's length.
    pub const LENGTH: usize = 384;

    /// Loads `model.onnx` and `tokenizer.json` from a folder. [`onnx::init`] comes first.
    ///
    /// # Errors
    /// [`EmbedError`] if one of them is missing or is not what it should be.
    pub fn load(folder: &Path) -> Result<Self, EmbedError> {
        let failed = |error: tokenizers::Error| EmbedError::Tokenizer(error.to_string());
        let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).map_err(failed)?;
        // The file pads everything to 128 tokens, which would cost ten times the work.
        tokenizer.with_padding(None);
        Ok(Self {
            session: Arc::new(Mutex::new(onnx::session(&folder.join("model.onnx"))?)),
            tokenizer: Arc::new(tokenizer),
        })
    }

    /// The mean of the last layer, scaled to length 1. Takes some 6 ms on one core.
    ///
    /// # Errors
    /// [`EmbedError::Tokenizer`] or [`EmbedError::Run`].
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let ids = self.ids(text)?;
        let length = ids.len();
        let tensor = |values: Vec<i64>| Tensor::from_array(([1, length], values));
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = session.run(ort::inputs![
            "input_ids" => tensor(ids)?,
            "attention_mask" => tensor(vec![1; length])?,
            "token_type_ids" => tensor(vec![0; length])?,
        ])?;
        let (_, states) = outputs[0].try_extract_tensor::<f32>()?;
        Ok(unit_mean(states))
    }

    fn ids(&self, text: &str) -> Result<Vec<i64>, EmbedError> {
        let encoding = self
            .tokenizer
            .encode(text, true)
            .map_err(|error| EmbedError::Tokenizer(error.to_string()))?;
        let ids = encoding.get_ids().iter().take(MOST_TOKENS);
        Ok(ids.map(|&id| i64::from(id)).collect())
    }
}

/// The mean of `[tokens, LENGTH]` numbers, scaled to length 1.
fn unit_mean(states: &[f32]) -> Vec<f32> {
    let mut sum = vec![0.0; Embedder::LENGTH];
    for state in states.chunks_exact(Embedder::LENGTH) {
        sum.iter_mut()
            .zip(state)
            .for_each(|(sum, value)| *sum += value);
    }
    let norm = cosine(&sum, &sum).sqrt().max(f32::MIN_POSITIVE);
    sum.iter_mut().for_each(|value| *value /= norm);
    sum
}

/// The product of two vectors: of two embeddings, the cosine of their angle, -1..1.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::testing::weights_and_runtime;

    #[test]
    fn near_in_meaning_is_near_in_angle() {
        let mut embedder = Embedder::load(&weights_and_runtime().join("minilm")).unwrap();
        let time = embedder.embed("what time is it").unwrap();
        let clock = embedder.embed("can you tell me the time").unwrap();
        let pizza = embedder.embed("I would like a pizza").unwrap();
        assert_eq!(time.len(), Embedder::LENGTH);
        assert!((cosine(&time, &time) - 1.0).abs() < 1e-5);
        assert!(cosine(&time, &clock) > 0.6);
        assert!(cosine(&time, &pizza) < 0.3);
        assert_eq!(
            embedder.embed(&"long ".repeat(1000)).unwrap().len(),
            Embedder::LENGTH
        );
        assert_eq!(embedder.embed("").unwrap().len(), Embedder::LENGTH);
    }
}
