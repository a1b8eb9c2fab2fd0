//! Speech synthesis: a clause in, audio in chunks out.

mod espeak;
mod piper;
mod prepared;
mod scripted;
mod spoken;
mod trim;

pub use piper::Piper;
pub use prepared::Prepared;
pub use scripted::Scripted;

use std::ops::ControlFlow;

/// Why text could not be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TtsError {
    /// The voice could not be loaded; names file and reason.
    #[error("cannot load the voice from {path}: {reason}")]
    Load {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// espeak-ng, which turns text into phonemes, does not run.
    #[error("espeak-ng does not run: {0}; install the package espeak-ng")]
    Phonemes(String),
    /// The model failed while running.
    #[error("speech synthesis failed: {0}")]
    Run(String),
}

/// A voice. Lives on one thread, which owns it.
pub trait Tts: Send {
    /// A short name for logs: the engine and the voice.
    fn name(&self) -> &str;

    /// Samples per second of the audio it makes, Hz.
    fn sample_rate(&self) -> u32;

    /// Speaks `text`, one clause, and hands out mono audio in -1..1 chunk by chunk as it is made.
    /// `chunk` returns `Break` to cancel the rest.
    ///
    /// # Errors
    /// [`TtsError`] if it cannot go on; the chunks handed out before stay valid.
    fn speak(
        &mut self,
        text: &str,
        chunk: &mut dyn FnMut(&[f32]) -> ControlFlow<()>,
    ) -> Result<(), TtsError>;
}
