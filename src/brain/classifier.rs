//! The trained part: sentence embeddings and a classification head for the intents.

use crate::language::en::{slots, text};
use crate::prediction::{
    EmbedError, Embedder, Evidence, Guess, Head, LocalPredictor, Matching, Prediction, Settings,
    cosine,
};
use crate::tools::ToolSpec;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The head, trained in advance because embedding the examples takes seconds.
const HEAD: &str = include_str!("head.json");
/// The most cached embeddings of names, descriptions and examples; more than any session declares.
const MOST_TOOLS: usize = 1024;

/// A head, with a hash of its training examples.
#[derive(Debug, Serialize, Deserialize)]
struct Trained {
    /// SHA-256 of `intents.toml`, in hexadecimal.
    examples: String,
    head: Head,
}

/// An error of a classifier that could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClassifierError {
    /// The sentence embeddings could not be loaded.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The built-in head could not be read: a defect of the build.
    #[error("the built-in intents are broken: {0}")]
    Head(String),
}

/// The similarity of a tool to an utterance, -1..1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nearness {
    /// By name or description.
    pub(super) declared: f32,
    /// By the nearest example; -1 without any.
    pub(super) example: f32,
}

impl Nearness {
    /// The larger of the two.
    pub(super) fn best(self) -> f32 {
        self.declared.max(self.example)
    }
}

/// Classifies text by intent, and compares it with tools.
#[derive(Debug)]
pub(super) struct Classifier {
    embedder: Embedder,
    head: Head,
    tools: HashMap<String, Vec<f32>>,
    /// As the sources of predictions compare words with the server's tools.
    matching: Matching,
}

impl Classifier {
    /// Loads the embeddings, and begins to learn the tools.
    pub(super) fn load(predicted: &Settings) -> Result<Self, ClassifierError> {
        let trained: Trained =
            serde_json::from_str(HEAD).map_err(|error| ClassifierError::Head(error.to_string()))?;
        let embedder = Embedder::load(&predicted.files.embedder)?;
        let mut matching = Matching::sharing(embedder.clone(), predicted);
        if predicted.awaits {
            matching.wait();
        }
        Ok(Self {
            matching,
            embedder,
            head: trained.head,
            tools: HashMap::new(),
        })
    }

    /// The calls of the server's tools that these words ask for, likeliest first.
    pub(super) fn predicted(&mut self, said: &str) -> Vec<Prediction> {
        self.matching.wait();
        let heard = Evidence {
            text: said.to_owned(),
            paused: true,
            ..Evidence::default()
        };
        let mut calls = self.matching.predict(&heard).unwrap_or_else(|error| {
            tracing::warn!(%error, "declared tools are called by their rules alone");
            Vec::new()
        });
        calls.retain(|call| call.open.is_empty());
        calls
    }

    /// The likeliest intent of a normalised sentence.
    pub(super) fn intent(&mut self, sentence: &str) -> Result<Guess, EmbedError> {
        let features = self.embedder.embed(sentence)?;
        let none = Guess {
            class: "none".into(),
            probability: 1.0,
        };
        Ok(self
            .head
            .guesses(&features)
            .into_iter()
            .next()
            .unwrap_or(none))
    }

    /// The similarity of each tool to the closest of several `ways` to say the same: by its name or
    /// description, and by its examples.
    pub(super) fn nearness(
        &mut self,
        ways: &[&str],
        tools: &[(&ToolSpec, &[String])],
    ) -> Result<Vec<Nearness>, EmbedError> {
        let said: Result<Vec<_>, _> = ways.iter().map(|way| self.embedder.embed(way)).collect();
        let said = said?;
        let near = |(tool, examples): &(&ToolSpec, &[String])| {
            let name = tool.name.replace(['_', '-'], " ");
            let by_name = nearest(&said, self.tool_words(&name)?);
            let by_description = nearest(&said, self.tool_words(&tool.description)?);
            let mut by_example = -1.0f32;
            for example in *examples {
                let example = text::normalise(example);
                for way in [without_place(&example), example] {
                    by_example = by_example.max(nearest(&said, self.tool_words(&way)?));
                }
            }
            Ok(Nearness {
                declared: by_name.max(by_description),
                example: by_example,
            })
        };
        tools.iter().map(near).collect()
    }

    fn tool_words(&mut self, words: &str) -> Result<&Vec<f32>, EmbedError> {
        if self.tools.len() >= MOST_TOOLS {
            self.tools.clear();
        }
        let features = match self.tools.remove(words) {
            Some(features) => features,
            None => self.embedder.embed(words)?,
        };
        Ok(self.tools.entry(words.to_owned()).or_insert(features))
    }
}

/// The sentence up to a named place, because places dominate the embedding.
pub(super) fn without_place(sentence: &str) -> String {
    let words: Vec<&str> = sentence.split(' ').collect();
    let named = (1..words.len()).find(|&at| {
        ["in", "for", "at", "near"].contains(&words[at - 1]) && slots::known(&words[at..]).is_some()
    });
    named.map_or_else(|| sentence.to_owned(), |at| words[..at - 1].join(" "))
}

fn nearest(said: &[Vec<f32>], words: &[f32]) -> f32 {
    let near = said.iter().map(|features| cosine(features, words));
    near.fold(-1.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::testing::weights_and_runtime;
    use crate::prediction::Training;
    use sha2::{Digest, Sha256};
    use std::collections::BTreeMap;

    const EXAMPLES: &str = include_str!("intents.toml");

    fn fingerprint() -> String {
        let digest = Sha256::digest(EXAMPLES.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Trains the head from `intents.toml`.
    fn train(embedder: &mut Embedder) -> Result<Trained, ClassifierError> {
        let intents: BTreeMap<String, Vec<String>> =
            toml::from_str(EXAMPLES).map_err(|error| ClassifierError::Head(error.to_string()))?;
        let mut examples = Vec::new();
        for (intent, sentences) in &intents {
            for sentence in sentences {
                examples.push((embedder.embed(&text::normalise(sentence))?, intent.as_str()));
            }
        }
        Ok(Trained {
            examples: fingerprint(),
            head: Head::train(&examples, Training::default()).rounded(),
        })
    }

    /// With `UNDERTONE_BLESS=1`, trains and writes the head instead.
    #[test]
    fn the_head_belongs_to_the_examples() {
        if std::env::var_os("UNDERTONE_BLESS").is_some() {
            let folder = weights_and_runtime().join("minilm");
            let trained = train(&mut Embedder::load(&folder).unwrap()).unwrap();
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/brain/head.json");
            std::fs::write(file, serde_json::to_string(&trained).unwrap() + "\n").unwrap();
            return;
        }
        let trained: Trained = serde_json::from_str(HEAD).unwrap();
        let stale = "stale: UNDERTONE_BLESS=1 cargo test --lib brain::classifier";
        assert_eq!(trained.examples, fingerprint(), "{stale}");
    }

    #[test]
    fn every_intent_has_enough_examples() {
        let intents: BTreeMap<String, Vec<String>> = toml::from_str(EXAMPLES).unwrap();
        assert_eq!(intents.len(), 18);
        for (intent, sentences) in intents {
            assert!(sentences.len() >= 25, "{intent} has {}", sentences.len());
        }
    }
}
