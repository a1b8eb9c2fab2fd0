//! Voice activity detection, in windows of 32 ms.

mod gate;
mod silero;

pub use gate::Gated;
pub use silero::{Silero, SileroModel};

/// Samples of one window: 32 ms at 16 kHz, Silero's window.
pub const WINDOW: usize = 512;

/// Why voice activity could not be judged.
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
