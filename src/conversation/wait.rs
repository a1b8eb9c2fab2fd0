//! How long the user still has to wait for the answer.

use crate::time::Micros;

/// A wait shorter than this is not filled.
const NEAR: Micros = Micros::from_ms(400);

/// How much a filler may delay the answer.
const DELAY: Micros = Micros::from_ms(300);

/// From a model's first event to the first sound: the rest of the clause and its synthesis.
const SYNTHESIS: Micros = Micros::from_ms(150);

/// How long something still takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wait {
    /// Probably.
    pub(super) expected: Micros,
    /// At least.
    pub(super) least: Micros,
}

impl Wait {
    /// The longer of two waits.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            expected: self.expected.max(other.expected),
            least: self.least.max(other.least),
        }
    }

    /// This wait, and after it what is expected to take `more`.
    pub(super) fn and_then(self, more: Micros) -> Self {
        let expected = self.expected + more;
        Self { expected, ..self }
    }

    /// The wait for the first sound of an answer whose generation still takes `model` to its first event, after
    /// this wait.
    pub(super) fn then(self, model: Micros) -> Self {
        let more = model + SYNTHESIS;
        Self {
            expected: self.expected + more,
            least: self.least + more,
        }
    }

    pub(super) fn is_near(self) -> bool {
        self.expected < NEAR
    }

    /// Whether something that takes `length` can be said without a noticeable delay of an answer that comes after
    /// `wait`.
    pub(super) fn has_room(wait: Micros, length: Micros) -> bool {
        length <= wait + DELAY
    }
}

/// How long something still takes that was expected to take `expected` and has taken `elapsed`. What is overdue
/// is expected to take as long again as it is late.
pub(super) fn left(expected: Micros, elapsed: Micros) -> Micros {
    Micros(expected.0.abs_diff(elapsed.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::spoken_length;

    #[test]
    fn a_filler_delays_the_answer_by_little() {
        let wait = Wait::default().then(Micros::from_ms(350));
        let short = spoken_length("One moment.");
        let long = spoken_length("Still working on it, one moment.");
        assert!(Wait::has_room(wait.least, short));
        assert!(!Wait::has_room(wait.least, long));
        assert!(!Wait::has_room(Micros(0), short));
    }

    #[test]
    fn an_overdue_answer_takes_as_long_again_as_it_is_late() {
        let ms = Micros::from_ms;
        assert_eq!(left(ms(1_000), ms(400)), ms(600));
        assert_eq!(left(ms(1_000), ms(1_000)), ms(0));
        assert_eq!(left(ms(1_000), ms(2_500)), ms(1_500));
    }
}
