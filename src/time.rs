//! Time inside a session: plain numbers, so that sessions can be recorded and replayed.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// Microseconds since the session began.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A span in microseconds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

/// A position in the user's audio: samples at 16 kHz since the session began.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Samples(pub u64);

impl Micros {
    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1000)
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_ms(self) -> u64 {
        self.0 / 1000
    }

    /// The length of `samples` at `rate` Hz.
    pub const fn of_samples(samples: u64, rate: u32) -> Self {
        Self(samples * 1_000_000 / rate as u64)
    }

    /// This span as a [`std::time::Duration`].
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_micros(self.0)
    }
}

impl Samples {
    /// Samples per second of the user's audio inside the server, Hz.
    pub const RATE: u32 = 16_000;

    /// The position `ms` milliseconds after the session began.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * Self::RATE as u64 / 1000)
    }

    /// Milliseconds since the session began, rounded down.
    pub const fn as_ms(self) -> u64 {
        self.0 * 1000 / Self::RATE as u64
    }

    /// The position `ms` milliseconds earlier, at the earliest the beginning.
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(Self::from_ms(ms).0))
    }

    /// Samples from `earlier` to here; none if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Time {
    /// The time `ms` milliseconds after the session began.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1000)
    }

    /// Milliseconds since the session began, rounded down.
    pub const fn as_ms(self) -> u64 {
        self.0 / 1000
    }

    /// The span from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Micros> for Time {
    type Output = Time;
    fn add(self, span: Micros) -> Time {
        Time(self.0 + span.0)
    }
}

impl Sub<Micros> for Time {
    type Output = Time;
    fn sub(self, span: Micros) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Micros {
    type Output = Micros;
    fn add(self, other: Micros) -> Micros {
        Micros(self.0 + other.0)
    }
}
