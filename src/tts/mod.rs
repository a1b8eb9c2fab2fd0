//! Speech synthesis: a clause in, audio out, chunk by chunk as it is asked for.

mod espeak;
mod piper;
mod prepared;
mod scripted;
mod trim;

pub use piper::Piper;
pub use prepared::Prepared;
pub use scripted::Scripted;

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

    /// Begins to speak `text`, one clause. Several may be spoken at once, in turns.
    ///
    /// # Errors
    /// [`TtsError`] if it cannot begin.
    fn speak(&mut self, text: &str) -> Result<Speech, TtsError>;
}

/// A clause that is being spoken: mono audio in -1..1, each chunk made when it is asked for. It is over
/// after an error; the chunks before it stay valid. Dropping it cancels the rest.
pub type Speech = Box<dyn Iterator<Item = Result<Vec<f32>, TtsError>> + Send>;

/// Speaks `text`, one clause, to its end.
///
/// # Errors
/// [`TtsError`] if the voice fails.
pub fn whole(tts: &mut dyn Tts, text: &str) -> Result<Vec<f32>, TtsError> {
    let chunks: Result<Vec<_>, _> = tts.speak(text)?.collect();
    Ok(chunks?.concat())
}
