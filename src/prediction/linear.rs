//! Multinomial logistic regression over a sentence embedding and n-grams, small when stored.
//!
//! After training weights are kept as 8-bit numbers, and those of n-grams only where they tell
//! something: of 150 intents and 30,000 n-grams that leaves some 2 MB of 18.

use super::features::Sparse;
use super::{Embedder, packed};
use serde::{Deserialize, Serialize};
pub(super) use undertone_signal::vectors::softmax;
use undertone_signal::vectors::{add_scaled, add_scaled_steps, descend};

/// How much the embedding weighs beside the n-grams, each of length 1 or so. Twice as much was
/// best on CLINC150's training half; once to four times differ by 0.2 points.
const EMBEDDING: f32 = 2.0;
const PASSES: usize = 12;
const RATE: f32 = 0.2;
const BATCH: usize = 256;
/// Weights of n-grams below this share of their class's greatest are dropped.
const NEGLIGIBLE: f32 = 0.02;

/// The features of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Features {
    /// The sentence embedding, of length 1.
    pub embedding: Vec<f32>,
    /// Its n-grams.
    pub grams: Sparse,
}

/// A trained classifier: a score per class, higher is likelier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Linear {
    #[serde(with = "packed")]
    bias: Vec<f32>,
    /// The value of one step of a stored weight, per class.
    #[serde(with = "packed")]
    scales: Vec<f32>,
    /// `[Embedder::LENGTH, classes]`
    #[serde(with = "packed")]
    dense: Vec<i8>,
    /// For each n-gram where its entries begin; one more at the end.
    #[serde(with = "packed")]
    starts: Vec<u32>,
    /// The class of each entry.
    #[serde(with = "packed")]
    classes: Vec<u16>,
    /// The weight of each entry.
    #[serde(with = "packed")]
    weights: Vec<i8>,
}

impl Linear {
    /// Trains on features and the class of each, of `classes`; `grams` is the vocabulary's size.
    /// Trains on examples. The same examples give the same weights.
    pub(super) fn train(examples: &[(&Features, usize)], classes: usize, grams: usize) -> Self {
        let mut training = Training::new(classes, grams);
        let mut order: Vec<usize> = (0..examples.len()).collect();
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        // Small sets need as many steps as large ones, not as many passes.
        let passes = (PASSES * 2_000 / examples.len().max(1)).clamp(PASSES, 8 * PASSES);
        for pass in 0..passes {
            random.shuffle(&mut order);
            let rate = RATE * (1.0 - pass as f32 / passes as f32);
            for batch in order.chunks(BATCH) {
                training.step(examples, batch, rate);
            }
        }
        training.compact()
    }

    /// The score of each class.
    pub(super) fn scores(&self, features: &Features) -> Vec<f32> {
        let classes = self.bias.len();
        let mut scores = vec![0.0; classes];
        for (x, row) in features
            .embedding
            .iter()
            .zip(self.dense.chunks_exact(classes))
        {
            add_scaled_steps(&mut scores, x * EMBEDDING, row);
        }
        for (gram, x) in &features.grams {
            let gram = *gram as usize;
            let range = self.starts[gram] as usize..self.starts[gram + 1] as usize;
            for (class, weight) in self.classes[range.clone()].iter().zip(&self.weights[range]) {
                scores[usize::from(*class)] += x * f32::from(*weight);
            }
        }
        let scaled = scores.iter().zip(&self.scales).zip(&self.bias);
        scaled
            .map(|((score, scale), bias)| score * scale + bias)
            .collect()
    }

    /// Whether its size fits this number of classes and n-grams, so that [`Linear::scores`] cannot fail.
    pub(super) fn fits(&self, classes: usize, grams: usize) -> bool {
        let ascending = self.starts.windows(2).all(|two| two[0] <= two[1]);
        self.bias.len() == classes
            && self.scales.len() == classes
            && self.dense.len() == classes * Embedder::LENGTH
            && self.starts.len() == grams + 1
            && ascending
            && self.starts.last().map(|&end| end as usize) == Some(self.weights.len())
            && self.classes.len() == self.weights.len()
            && self
                .classes
                .iter()
                .all(|class| usize::from(*class) < classes)
    }
}

/// Weights while they are learnt, with AdaGrad: rare n-grams take longer steps.
struct Training {
    classes: usize,
    bias: Vec<f32>,
    /// `[Embedder::LENGTH + grams, classes]`
    weights: Vec<f32>,
    /// Sums of squared slopes.
    history: Vec<f32>,
    slopes: Vec<f32>,
    touched: Vec<bool>,
}

impl Training {
    fn new(classes: usize, grams: usize) -> Self {
        let rows = Embedder::LENGTH + grams;
        Self {
            classes,
            bias: vec![0.0; classes],
            weights: vec![0.0; rows * classes],
            history: vec![1e-8; rows * classes],
            slopes: vec![0.0; rows * classes],
            touched: vec![false; rows],
        }
    }

    fn step(&mut self, examples: &[(&Features, usize)], batch: &[usize], rate: f32) {
        let share = 1.0 / batch.len() as f32;
        for &at in batch {
            let (features, class) = examples[at];
            let mut errors = softmax(&self.scores(features));
            errors[class] -= 1.0;
            errors.iter_mut().for_each(|error| *error *= share);
            self.collect(features, &errors);
            let steps = self.bias.iter_mut().zip(&errors);
            steps.for_each(|(bias, error)| *bias -= rate * error);
        }
        self.follow(rate);
    }

    fn scores(&self, features: &Features) -> Vec<f32> {
        let mut scores = self.bias.clone();
        for (row, x) in rows(features) {
            let weights = &self.weights[row * self.classes..][..self.classes];
            add_scaled(&mut scores, x, weights);
        }
        scores
    }

    fn collect(&mut self, features: &Features, errors: &[f32]) {
        for (row, x) in rows(features) {
            self.touched[row] = true;
            let slopes = &mut self.slopes[row * self.classes..][..self.classes];
            add_scaled(slopes, x, errors);
        }
    }

    fn follow(&mut self, rate: f32) {
        for row in 0..self.touched.len() {
            if !std::mem::take(&mut self.touched[row]) {
                continue;
            }
            let range = row * self.classes..(row + 1) * self.classes;
            let weights = &mut self.weights[range.clone()];
            let history = &mut self.history[range.clone()];
            descend(weights, history, &mut self.slopes[range], rate);
        }
    }

    fn compact(self) -> Linear {
        let classes = self.classes;
        let mut greatest = vec![f32::MIN_POSITIVE; classes];
        for row in self.weights.chunks_exact(classes) {
            let pairs = greatest.iter_mut().zip(row);
            pairs.for_each(|(most, weight)| *most = most.max(weight.abs()));
        }
        let scales: Vec<f32> = greatest.iter().map(|most| most / 127.0).collect();
        let stored = |at: usize| (self.weights[at] / scales[at % classes]).round() as i8;
        let dense = Embedder::LENGTH * classes;
        let mut linear = Linear {
            bias: self.bias,
            dense: (0..dense).map(stored).collect(),
            starts: vec![0],
            classes: Vec::new(),
            weights: Vec::new(),
            scales: scales.clone(),
        };
        let least = (127.0 * NEGLIGIBLE).ceil() as i8;
        for row in dense / classes..self.touched.len() {
            let entries = (0..classes).map(|class| (class as u16, stored(row * classes + class)));
            for (class, weight) in entries.filter(|(_, weight)| weight.abs() >= least) {
                linear.classes.push(class);
                linear.weights.push(weight);
            }
            linear.starts.push(linear.weights.len() as u32);
        }
        linear
    }
}

/// Each feature with its row of weights.
fn rows(features: &Features) -> impl Iterator<Item = (usize, f32)> {
    let dense = features.embedding.iter().map(|x| x * EMBEDDING).enumerate();
    let grams = features.grams.iter();
    dense.chain(grams.map(|(gram, x)| (Embedder::LENGTH + *gram as usize, *x)))
}

/// xorshift64*: an order of examples that is the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        bits as usize % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(hot: usize, gram: u32) -> Features {
        let mut embedding = vec![0.0; Embedder::LENGTH];
        embedding[hot] = 1.0;
        Features {
            embedding,
            grams: vec![(gram, 1.0)],
        }
    }

    #[test]
    fn learns_from_both_kinds_of_features_and_survives_being_stored() {
        // Classes 0 and 1 share the embedding, 1 and 2 the n-gram.
        let examples = [features(0, 0), features(0, 1), features(1, 1)];
        let labelled: Vec<_> = examples.iter().zip([0, 1, 2]).collect();
        let linear = Linear::train(&labelled, 3, 2);
        assert!(linear.fits(3, 2));
        for (features, class) in &labelled {
            let probabilities = softmax(&linear.scores(features));
            assert!(probabilities[*class] > 0.8, "{class}: {probabilities:?}");
        }
        assert_eq!(linear, Linear::train(&labelled, 3, 2));
        let text = serde_json::to_string(&linear).unwrap();
        assert_eq!(serde_json::from_str::<Linear>(&text).unwrap(), linear);
    }

    #[test]
    fn what_was_stored_wrongly_does_not_fit() {
        let examples = [features(0, 0), features(1, 1)];
        let labelled: Vec<_> = examples.iter().zip([0, 1]).collect();
        let linear = Linear::train(&labelled, 2, 2);
        assert!(linear.fits(2, 2));
        assert!(!linear.fits(3, 2) && !linear.fits(2, 1));
        let mut broken = linear.clone();
        broken.classes[0] = 9;
        assert!(!broken.fits(2, 2));
        let mut broken = linear;
        broken.starts = vec![0, 1, 7];
        assert!(!broken.fits(2, 2));
    }
}
