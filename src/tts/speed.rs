//! The speed of a voice.

use crate::time::Micros;
use serde::{Deserialize, Serialize};

/// The speed of a voice, in hundredths of its usual one: 25 to 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Speed(u16);

impl Speed {
    /// The usual speed.
    pub const NORMAL: Self = Self(100);

    /// This many times the usual one, to two decimals. `None` outside of 0.25 to 4, the bounds of OpenAI's API.
    #[must_use]
    pub fn of(factor: f64) -> Option<Self> {
        let percent = (factor * 100.0).round();
        (25.0..=400.0)
            .contains(&percent)
            .then_some(Self(percent as u16))
    }

    /// The factor over the usual speed.
    #[must_use]
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The length at this speed of speech that takes `usual` at the usual one.
    #[must_use]
    pub fn lasts(self, usual: Micros) -> Micros {
        Micros(usual.0.saturating_mul(100) / u64::from(self.0.max(1)))
    }

    /// The length at the usual speed of speech that takes `length` at this one.
    #[must_use]
    pub fn usual(self, length: Micros) -> Micros {
        Micros(length.0.saturating_mul(u64::from(self.0)) / 100)
    }
}

impl Default for Speed {
    fn default() -> Self {
        Self::NORMAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_has_two_decimals_and_bounds() {
        for (factor, speed) in [
            (1.0, Some(Speed::NORMAL)),
            (0.25, Some(Speed(25))),
            (1.234, Some(Speed(123))),
            (4.0, Some(Speed(400))),
            (0.2, None),
            (4.1, None),
            (-1.0, None),
            (f64::NAN, None),
        ] {
            assert_eq!(Speed::of(factor), speed, "{factor}");
        }
    }

    #[test]
    fn twice_the_speed_takes_half_the_time() {
        let twice = Speed(200);
        assert_eq!(twice.lasts(Micros(3_000)), Micros(1_500));
        assert_eq!(twice.usual(Micros(1_500)), Micros(3_000));
    }
}
