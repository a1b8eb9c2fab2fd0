//! Voice activity detection, in windows of 32 ms.

mod gate;
mod silero;

pub use gate::Gated;
pub use silero::{Silero, SileroModel};

/// Samples of one window: 32 ms at 16 kHz, Silero's window.
pub const WINDOW: usize = 512;

/// The level of some audio (its root mean square), dB below full scale: -120..0.
#[must_use]
pub fn level(samples: &[f32]) -> i16 {
    let power: f32 = samples.iter().map(|s| s * s).sum();
    let mean = power / samples.len().max(1) as f32;
    (10.0 * mean.log10()).clamp(-120.0, 0.0).round() as i16
}

/// An error of the voice activity detector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("voice activity detection failed: {0}")]
pub struct VadError(pub String);

/// A detector of one audio stream, with its state.
pub trait Vad {
    /// The probability of speech, 0..1, in the next window of the stream: [`WINDOW`] samples,
    /// 16 kHz mono in -1..1.
    ///
    /// # Errors
    /// [`VadError`] if the model fails.
    fn push(&mut self, window: &[f32; WINDOW]) -> Result<f32, VadError>;
}

impl<V: Vad + ?Sized> Vad for Box<V> {
    fn push(&mut self, window: &[f32; WINDOW]) -> Result<f32, VadError> {
        (**self).push(window)
    }
}
