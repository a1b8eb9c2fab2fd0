//! End-of-turn model: does this audio sound as if the speaker were done?

mod smart_turn;

pub use smart_turn::SmartTurn;

/// Why the end of turn could not be scored.
#[derive(Debug, thiserror::Error)]
#[error("end-of-turn model failed: {0}")]
pub struct TurnModelError(pub String);

/// An end-of-turn model. Lives on one thread, which owns it.
pub trait TurnModel: Send {
    /// The probability, 0..1, that the speaker is done after `audio`: 16 kHz mono in -1..1, up to
    /// the present moment; the last 8 s count.
    ///
    /// # Errors
    /// [`TurnModelError`] if the model fails.
    fn completeness(&mut self, audio: &[f32]) -> Result<f32, TurnModelError>;
}
