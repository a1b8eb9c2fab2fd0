//! Multinomial logistic regression: features to the probability of each class.
//!
//! Features are plain numbers: sentence embeddings today, and whatever is appended to them, such
//! as hashed n-grams. Training is deterministic: the same examples give the same head.

use serde::{Deserialize, Serialize};
use undertone_signal::vectors::softmax;

/// A class and its probability.
#[derive(Debug, Clone, PartialEq)]
pub struct Guess {
    /// The class.
    pub class: String,
    /// Probability, 0..1.
    pub probability: f32,
}

/// A trained head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    classes: Vec<String>,
    /// One row per class: a weight per feature, then the bias.
    weights: Vec<Vec<f32>>,
}

/// How a head is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Training {
    /// Passes over all examples.
    pub passes: usize,
    /// Step length.
    pub rate: f32,
    /// Share of the last step that is kept, 0..1.
    pub momentum: f32,
    /// Weight of the squared weights (L2), per example.
    pub decay: f32,
}

impl Default for Training {
    /// Converged for some thousand unit-length examples: more passes change no decision.
    fn default() -> Self {
        Self {
            passes: 400,
            rate: 8.0,
            momentum: 0.9,
            decay: 2e-4,
        }
    }
}

impl Head {
    /// Trains on `(features, class)`, all features of one length. Every class weighs the same,
    /// however many examples it has.
    pub fn train(examples: &[(Vec<f32>, &str)], training: Training) -> Self {
        let mut classes: Vec<String> = examples.iter().map(|(_, c)| (*c).to_owned()).collect();
        classes.sort();
        classes.dedup();
        let length = examples.first().map_or(0, |(features, _)| features.len());
        let mut head = Self {
            weights: vec![vec![0.0; length + 1]; classes.len()],
            classes,
        };
        let targets = head.targets(examples);
        let mut velocity = head.weights.clone();
        for _ in 0..training.passes {
            head.step(examples, &targets, &mut velocity, training);
        }
        head
    }

    /// The classes, in order.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Every class with its probability, the likeliest first. They sum to 1.
    pub fn guesses(&self, features: &[f32]) -> Vec<Guess> {
        let probabilities = self.probabilities(features);
        let named = self.classes.iter().cloned().zip(probabilities);
        let mut guesses: Vec<Guess> = named
            .map(|(class, probability)| Guess { class, probability })
            .collect();
        guesses.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        guesses
    }

    /// This head with weights of four decimals: a quarter of the size when written.
    pub fn rounded(mut self) -> Self {
        let round = |weight: &mut f32| *weight = (*weight * 1e4).round() / 1e4;
        self.weights.iter_mut().flatten().for_each(round);
        self
    }

    /// For each example its class and its weight.
    fn targets(&self, examples: &[(Vec<f32>, &str)]) -> Vec<(usize, f32)> {
        let place = |class: &str| self.classes.iter().position(|c| c == class).unwrap_or(0);
        let places: Vec<usize> = examples.iter().map(|(_, class)| place(class)).collect();
        let count = |place| places.iter().filter(|&&other| other == place).count();
        let counts: Vec<usize> = (0..self.classes.len()).map(count).collect();
        let share = |place: usize| 1.0 / (counts[place] * self.classes.len()) as f32;
        places.iter().map(|&place| (place, share(place))).collect()
    }

    fn step(
        &mut self,
        examples: &[(Vec<f32>, &str)],
        targets: &[(usize, f32)],
        velocity: &mut [Vec<f32>],
        training: Training,
    ) {
        let gradient = self.gradient(examples, targets, training.decay);
        for ((weights, velocity), gradient) in self.weights.iter_mut().zip(velocity).zip(gradient) {
            for ((weight, speed), slope) in weights.iter_mut().zip(velocity).zip(gradient) {
                *speed = training.momentum * *speed - training.rate * slope;
                *weight += *speed;
            }
        }
    }

    fn gradient(
        &self,
        examples: &[(Vec<f32>, &str)],
        targets: &[(usize, f32)],
        decay: f32,
    ) -> Vec<Vec<f32>> {
        let scaled = |row: &Vec<f32>| row.iter().map(|weight| weight * decay).collect();
        let mut gradient: Vec<Vec<f32>> = self.weights.iter().map(scaled).collect();
        for ((features, _), (target, share)) in examples.iter().zip(targets) {
            let probabilities = self.probabilities(features);
            for (class, row) in gradient.iter_mut().enumerate() {
                let wanted = if class == *target { 1.0 } else { 0.0 };
                let error = (probabilities[class] - wanted) * share;
                let with_bias = features.iter().chain(std::iter::once(&1.0));
                row.iter_mut()
                    .zip(with_bias)
                    .for_each(|(slope, x)| *slope += error * x);
            }
        }
        gradient
    }

    fn probabilities(&self, features: &[f32]) -> Vec<f32> {
        let score = |row: &Vec<f32>| {
            let with_bias = features.iter().chain(std::iter::once(&1.0));
            row.iter()
                .zip(with_bias)
                .map(|(weight, x)| weight * x)
                .sum()
        };
        let scores: Vec<f32> = self.weights.iter().map(score).collect();
        softmax(&scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learns_what_can_be_told_apart_and_is_the_same_twice() {
        let examples = vec![
            (vec![1.0, 0.0], "east"),
            (vec![0.9, 0.1], "east"),
            (vec![0.0, 1.0], "north"),
            (vec![-1.0, 0.0], "west"),
        ];
        let head = Head::train(&examples, Training::default());
        for (features, class) in &examples {
            let guesses = head.guesses(features);
            assert_eq!(guesses[0].class, *class);
            assert!(guesses[0].probability > 0.8, "{guesses:?}");
            let sum: f32 = guesses.iter().map(|guess| guess.probability).sum();
            assert!((sum - 1.0).abs() < 1e-5);
        }
        assert_eq!(head, Head::train(&examples, Training::default()));
        let text = serde_json::to_string(&head).unwrap();
        assert_eq!(head, serde_json::from_str(&text).unwrap());
    }
}
