//! Random numbers from a seed, the same on every machine and with every version of every crate: SplitMix64.
//!
//! Digests of generated sessions and committed reports of benches depend on each of these sequences.

/// A sequence of random numbers.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers of a seed for one `name`, so that those that one bench draws do not shift those of another.
    pub fn named(seed: u64, name: &str) -> Self {
        let name = name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// A number in `0..end`, for places and lengths in memory.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// A number in 0..1.
    pub fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// `true` in so many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Puts these into a random order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.index(last + 1));
        }
    }

    /// `count` flags in random order, of which `share`, rounded to a whole number of flags, are `true`.
    pub fn exactly(&mut self, share: f64, count: usize) -> Vec<bool> {
        let hits = (share * count as f64).round() as usize;
        let mut all: Vec<bool> = (0..count).map(|at| at < hits).collect();
        self.shuffle(&mut all);
        all
    }

    /// A number from the normal distribution, but never below zero.
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.share();
        (mean + deviation * radius * angle.cos()).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut dice = Dice::new(1_234_567);
        let rolls: Vec<u64> = (0..3).map(|_| dice.roll()).collect();
        // Of the reference implementation at prng.di.unimi.it.
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(rolls, expected);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let rolls = |seed, name| {
            let mut dice = Dice::named(seed, name);
            (0..100).map(|_| dice.index(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(1, "model"), rolls(1, "model"));
        assert_ne!(rolls(1, "model"), rolls(2, "model"));
        assert_ne!(rolls(1, "model"), rolls(1, "sweep"));
    }

    #[test]
    fn shares_are_exact_and_in_random_order() {
        let drawn = Dice::named(1, "").exactly(0.3, 1_000);
        assert_eq!(drawn.iter().filter(|hit| **hit).count(), 300);
        assert!(drawn[..500].iter().filter(|hit| **hit).count() < 200);
    }

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let mut dice = Dice::named(1, "");
        let all: Vec<f64> = (0..20_000).map(|_| dice.normal(10.0, 2.0)).collect();
        let mean = all.iter().sum::<f64>() / 20_000.0;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!((mean - 10.0).abs() < 0.05, "{mean}");
        assert!((variance.sqrt() - 2.0).abs() < 0.05, "{variance}");
    }
}
