//! Sentence embeddings: all-MiniLM-L6-v2, int8, on ONNX Runtime.

use crate::onnx::{self, OnnxError};
use ort::session::Session;
use ort::value::Tensor;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokenizers::Tokenizer;
use undertone_signal::vectors::add_scaled;
pub use undertone_signal::vectors::cosine;

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

/// The models in use, by folder. The local brain and the router of a server load the same.
static IN_USE: Mutex<BTreeMap<PathBuf, Weak<Model>>> = Mutex::new(BTreeMap::new());

/// Text to a vector of [`Embedder::LENGTH`] numbers; near in meaning is near in angle. Those of one folder share the
/// model, which takes some 50 MB, and embed one text at a time.
#[derive(Debug, Clone)]
pub struct Embedder(Arc<Model>);

#[derive(Debug)]
struct Model {
    session: Mutex<Session>,
    tokenizer: Tokenizer,
}

impl Embedder {
    /// The vector's length.
    pub const LENGTH: usize = 384;

    /// Loads `model.onnx` and `tokenizer.json` from a folder, unless they are in use already. [`onnx::init`] comes
    /// first.
    ///
    /// # Errors
    /// [`EmbedError`] if one of them is missing or is not what it should be.
    pub fn load(folder: &Path) -> Result<Self, EmbedError> {
        // Held while loading, so that those who start together load once.
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = in_use.get(folder).and_then(Weak::upgrade) {
            return Ok(Self(model));
        }
        let model = Arc::new(Model::load(folder)?);
        in_use.insert(folder.to_owned(), Arc::downgrade(&model));
        Ok(Self(model))
    }

    /// The mean of the last layer, scaled to length 1. Takes some 2 ms on one core.
    ///
    /// # Errors
    /// [`EmbedError::Tokenizer`] or [`EmbedError::Run`].
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let ids = self.ids(text)?;
        let length = ids.len();
        let tensor = |values: Vec<i64>| Tensor::from_array(([1, length], values));
        let mut session = self
            .0
            .session
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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
            .0
            .tokenizer
            .encode(text, true)
            .map_err(|error| EmbedError::Tokenizer(error.to_string()))?;
        let ids = encoding.get_ids().iter().take(MOST_TOKENS);
        Ok(ids.map(|&id| i64::from(id)).collect())
    }
}

impl Model {
    fn load(folder: &Path) -> Result<Self, EmbedError> {
        let failed = |error: tokenizers::Error| EmbedError::Tokenizer(error.to_string());
        let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).map_err(failed)?;
        // The file pads everything to 128 tokens, which would cost ten times the work.
        tokenizer.with_padding(None);
        Ok(Self {
            session: Mutex::new(onnx::session(&folder.join("model.onnx"))?),
            tokenizer,
        })
    }
}

/// The mean of `[tokens, LENGTH]` numbers, scaled to length 1.
fn unit_mean(states: &[f32]) -> Vec<f32> {
    let mut sum = vec![0.0; Embedder::LENGTH];
    for state in states.chunks_exact(Embedder::LENGTH) {
        add_scaled(&mut sum, 1.0, state);
    }
    let norm = cosine(&sum, &sum).sqrt().max(f32::MIN_POSITIVE);
    sum.iter_mut().for_each(|value| *value /= norm);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::testing::weights_and_runtime;

    #[test]
    fn a_model_is_loaded_once_while_it_is_in_use() {
        let folder = weights_and_runtime().join("minilm");
        let first = Embedder::load(&folder).unwrap();
        let mut again = Embedder::load(&folder).unwrap();
        assert!(Arc::ptr_eq(&first.0, &again.0));
        drop(first);
        assert_eq!(again.embed("hello").unwrap().len(), Embedder::LENGTH);
        assert!(Embedder::load(Path::new("/nowhere")).is_err());
    }

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
