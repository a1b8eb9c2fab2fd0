//! The features of a text: its words, pairs of words and pieces of words, each a number.
//!
//! Sentence embeddings blur what single words tell ("euros", "gate"); n-grams keep it. Each n-gram
//! is a 32-bit hash, so that a vocabulary is a list of numbers and needs no strings.

use super::packed;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// Lengths of the pieces of words, in characters; word boundaries count as one.
const PIECES: std::ops::RangeInclusive<usize> = 3..=5;
/// An n-gram seen in fewer examples tells nothing yet.
const LEAST_EXAMPLES: u32 = 2;

/// The n-grams that are known, and how much each tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Vocabulary {
    /// Hashes in ascending order.
    #[serde(with = "packed")]
    hashes: Vec<u32>,
    /// Inverse document frequency of each: rare ones tell more.
    #[serde(with = "packed")]
    weights: Vec<f32>,
}

/// N-grams of a text: place in the vocabulary and strength.
pub(super) type Sparse = Vec<(u32, f32)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Words,
    Pieces,
}

impl Vocabulary {
    /// The n-grams of normalised texts.
    pub(super) fn of(texts: &[String]) -> Self {
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for text in texts {
            let once: BTreeSet<u32> = grams(text).into_iter().map(|(_, hash)| hash).collect();
            once.into_iter()
                .for_each(|hash| *counts.entry(hash).or_default() += 1);
        }
        let mut known: Vec<(u32, u32)> = counts
            .into_iter()
            .filter(|(_, count)| *count >= LEAST_EXAMPLES)
            .collect();
        known.sort_unstable();
        let all = texts.len() as f32 + 1.0;
        let weight = |count: u32| (all / (count as f32 + 1.0)).ln() + 1.0;
        Self {
            hashes: known.iter().map(|(hash, _)| *hash).collect(),
            weights: known.iter().map(|(_, count)| weight(*count)).collect(),
        }
    }

    /// Whether it can be searched: what is read from a file may be anything.
    pub(super) fn is_sound(&self) -> bool {
        let ascending = self.hashes.windows(2).all(|two| two[0] < two[1]);
        ascending && self.hashes.len() == self.weights.len()
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The known n-grams of a normalised text: those of words scaled to length 1, and those of
    /// pieces too, whatever the text's length.
    pub(super) fn features(&self, text: &str) -> Sparse {
        let mut found: Vec<(Family, u32)> = grams(text)
            .into_iter()
            .filter_map(|(family, hash)| {
                let place = self.hashes.binary_search(&hash).ok()?;
                Some((family, place as u32))
            })
            .collect();
        found.sort_unstable();
        let mut features = Sparse::new();
        for family in found.chunk_by(|a, b| a.0 == b.0) {
            let start = features.len();
            for same in family.chunk_by(|a, b| a == b) {
                let place = same[0].1;
                let often = 1.0 + (same.len() as f32).ln();
                features.push((place, often * self.weights[place as usize]));
            }
            let squares: f32 = features[start..].iter().map(|(_, x)| x * x).sum();
            features[start..]
                .iter_mut()
                .for_each(|(_, x)| *x /= squares.sqrt());
        }
        features
    }
}

fn grams(text: &str) -> Vec<(Family, u32)> {
    let mut grams = Vec::with_capacity(text.len() * 4);
    let mut before: Option<&str> = None;
    for word in text.split_whitespace() {
        grams.push((Family::Words, hash(1, [word.as_bytes()])));
        if let Some(before) = before {
            let pair = hash(2, [before.as_bytes(), b" ", word.as_bytes()]);
            grams.push((Family::Words, pair));
        }
        before = Some(word);
        pieces(word, &mut grams);
    }
    grams
}

fn pieces(word: &str, grams: &mut Vec<(Family, u32)>) {
    let bounded = format!(" {word} ");
    let mut starts: Vec<usize> = bounded.char_indices().map(|(at, _)| at).collect();
    starts.push(bounded.len());
    for length in PIECES {
        for window in starts.windows(length + 1) {
            let piece = &bounded.as_bytes()[window[0]..window[length]];
            grams.push((Family::Pieces, hash(3, [piece])));
        }
    }
}

/// FNV-1a, 32 bits; the seed keeps families apart.
pub(super) fn hash<const N: usize>(seed: u8, parts: [&[u8]; N]) -> u32 {
    let bytes = parts.into_iter().flatten();
    std::iter::once(&seed)
        .chain(bytes)
        .fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(texts: &[&str]) -> Vocabulary {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Vocabulary::of(&texts)
    }

    #[test]
    fn rare_words_tell_more_and_unknown_ones_nothing() {
        let known = vocabulary(&["pay my bill", "pay my rent", "pay my rent now", "my bill"]);
        let strength = |word: &str| {
            let place = known.hashes.binary_search(&hash(1, [word.as_bytes()]));
            place.ok().map(|place| known.weights[place])
        };
        assert!(strength("bill") > strength("my"));
        assert_eq!(strength("now"), None);
        assert!(known.features("zzz qqq").is_empty());
        assert!(known.features("").is_empty());
    }

    #[test]
    fn each_family_has_length_one() {
        let known = vocabulary(&["pay my bill", "pay my rent", "my bill"]);
        let squares: f32 = known
            .features("pay my bill bill")
            .iter()
            .map(|(_, x)| x * x)
            .sum();
        assert!((squares - 2.0).abs() < 1e-5, "{squares}");
    }

    #[test]
    fn letters_of_any_alphabet_are_cut_whole() {
        let known = vocabulary(&["größe 東京", "größe 東京"]);
        assert!(known.features("größe").len() > 5);
    }
}
