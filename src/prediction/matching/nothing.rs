//! Sentences that ask for nothing: small talk, what is told or forbidden, questions that need no tool.

use crate::prediction::{Embedder, packed};
use serde::{Deserialize, Serialize};

/// Their embeddings, made in advance because that takes a second.
const EMBEDDED: &str = include_str!("nothing.json");

/// The sentences' embeddings.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Nothing {
    /// SHA-256 of the sentences, in hexadecimal.
    sentences: String,
    /// In steps of 1/127.
    #[serde(with = "packed")]
    embeddings: Vec<i8>,
    #[serde(skip)]
    vectors: Vec<f32>,
}

impl Nothing {
    /// Those that ship.
    pub(super) fn shipped() -> Self {
        let mut shipped: Self = serde_json::from_str(EMBEDDED).unwrap_or_default();
        let step = |number: &i8| f32::from(*number) / 127.0;
        shipped.vectors = shipped.embeddings.iter().map(step).collect();
        shipped
    }

    /// The embedding of each.
    pub(super) fn sentences(&self) -> impl Iterator<Item = &[f32]> {
        self.vectors.chunks_exact(Embedder::LENGTH)
    }

    pub(super) fn fingerprint(&self) -> &str {
        &self.sentences
    }
}

#[cfg(test)]
mod tests {
    use super::super::masks::masked;
    use super::*;
    use crate::audio::testing::weights_and_runtime;
    use crate::language::en::text;
    use sha2::{Digest, Sha256};

    const SENTENCES: &str = concat!(
        include_str!("../training/nothing.txt"),
        include_str!("small_talk.txt")
    );

    fn fingerprint() -> String {
        let digest = Sha256::digest(SENTENCES.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn embedded() -> Nothing {
        let mut embedder = Embedder::load(&weights_and_runtime().join("minilm")).unwrap();
        let lines = SENTENCES.lines().filter(|line| !line.is_empty());
        let numbers = lines.flat_map(|line| {
            let words = text::normalise(line);
            let words = masked(text::without_fillers(&words), &[]);
            embedder.embed(&words).unwrap()
        });
        Nothing {
            sentences: fingerprint(),
            embeddings: numbers.map(|x| (x * 127.0).round() as i8).collect(),
            vectors: Vec::new(),
        }
    }

    /// With `UNDERTONE_BLESS=1`, embeds the sentences and writes the file instead.
    #[test]
    fn the_embeddings_belong_to_the_sentences() {
        if std::env::var_os("UNDERTONE_BLESS").is_some() {
            let file = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/prediction/matching/nothing.json"
            );
            std::fs::write(file, serde_json::to_string(&embedded()).unwrap() + "\n").unwrap();
            return;
        }
        let shipped = Nothing::shipped();
        let stale = "stale: UNDERTONE_BLESS=1 cargo test --lib prediction::matching::nothing";
        assert_eq!(shipped.fingerprint(), fingerprint(), "{stale}");
        let lines = SENTENCES.lines().filter(|line| !line.is_empty());
        assert_eq!(shipped.sentences().count(), lines.count(), "{stale}");
    }
}
