//! The end-of-turn model: scores whether the speaker sounds done.

mod smart_turn;

pub use smart_turn::SmartTurn;

/// An error of the end-of-turn model.
#[derive(Debug, thiserror::Error)]
#[error("end-of-turn model failed: {0}")]
pub struct TurnModelError(pub String);

/// An end-of-turn model, owned by one thread. A server may have several.
pub trait TurnModel: Send {
    /// The probability, 0..1, that the speaker is done after `audio`: 16 kHz mono in -1..1, up to now. Only
    /// the last 8 s count.
    ///
    /// # Errors
    /// [`TurnModelError`] if the model fails.
    fn completeness(&mut self, audio: &[f32]) -> Result<f32, TurnModelError>;
}
