//! Vectors of numbers: products, sums and probabilities.

/// The product of two vectors: of two of length 1, the cosine of their angle, -1..1.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Adds `x` times `row` to `to`.
pub fn add_scaled(to: &mut [f32], x: f32, row: &[f32]) {
    to.iter_mut()
        .zip(row)
        .for_each(|(to, weight)| *to += x * weight);
}

/// [`add_scaled`] of weights that are kept as steps.
pub fn add_scaled_steps(to: &mut [f32], x: f32, row: &[i8]) {
    to.iter_mut()
        .zip(row)
        .for_each(|(to, weight)| *to += x * f32::from(*weight));
}

/// One step of AdaGrad down `slopes`, which are zero afterwards. `history` holds the sums of squared slopes.
pub fn descend(weights: &mut [f32], history: &mut [f32], slopes: &mut [f32], rate: f32) {
    for ((weight, history), slope) in weights.iter_mut().zip(history).zip(slopes) {
        *history += *slope * *slope;
        *weight -= rate * *slope / history.sqrt();
        *slope = 0.0;
    }
}

/// Scores to probabilities that sum to 1.
pub fn softmax(scores: &[f32]) -> Vec<f32> {
    let most = greatest(scores).map_or(0.0, |(_, most)| most);
    let powers: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// The probability of one score among all, as [`softmax`] gives it; 0 outside of them.
pub fn probability(scores: &[f32], at: usize) -> f32 {
    match (scores.get(at), greatest(scores)) {
        (Some(score), Some((_, most))) => (score - most).exp() / sum_of_powers(scores, most),
        _ => 0.0,
    }
}

/// The first of the greatest numbers and its place; `None` if none is above negative infinity.
pub fn greatest(numbers: &[f32]) -> Option<(usize, f32)> {
    let mut found = None;
    let mut most = f32::NEG_INFINITY;
    for (at, number) in numbers.iter().enumerate() {
        if *number > most {
            (found, most) = (Some(at), *number);
        }
    }
    found.map(|at| (at, most))
}

/// The sum of the powers of e of all numbers above `base`: with the greatest as base, the inverse of its probability.
pub fn sum_of_powers(numbers: &[f32], base: f32) -> f32 {
    numbers.iter().map(|number| (number - base).exp()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_and_probabilities_sum_to_one() {
        let mut sum = vec![1.0, 2.0];
        add_scaled(&mut sum, 2.0, &[0.5, -1.0]);
        add_scaled_steps(&mut sum, 0.5, &[4, 2]);
        assert_eq!(sum, [4.0, 1.0]);
        assert_eq!(cosine(&sum, &[0.5, 2.0]), 4.0);
        let probabilities = softmax(&sum);
        assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        for (at, expected) in probabilities.iter().enumerate() {
            assert!((probability(&sum, at) - expected).abs() < 1e-6);
        }
        assert_eq!(probability(&sum, sum.len()), 0.0);
    }

    #[test]
    fn a_step_goes_down_the_slope_and_shortens_with_their_sum() {
        let (mut weights, mut history) = ([0.0], [0.0]);
        let mut last = 0.0;
        for expected in [1.0, 1.0 / 2f32.sqrt()] {
            let mut slopes = [3.0];
            descend(&mut weights, &mut history, &mut slopes, 1.0);
            assert!((last - weights[0] - expected).abs() < 1e-6);
            assert_eq!(slopes, [0.0]);
            last = weights[0];
        }
    }

    #[test]
    fn the_first_of_the_greatest_is_found() {
        assert_eq!(greatest(&[1.0, 3.0, 3.0]), Some((1, 3.0)));
        assert_eq!(greatest(&[f32::NAN, -1.0]), Some((1, -1.0)));
        assert_eq!(greatest(&[f32::NEG_INFINITY]), None);
    }
}
