//! Speech recognition: 16 kHz mono samples in, text out.

mod decode;
mod whisper_cpp;
mod whisper_onnx;

pub use decode::MAX_SAMPLES;
pub use whisper_cpp::WhisperCpp;
pub use whisper_onnx::WhisperOnnx;

/// Why audio could not be transcribed.
#[derive(Debug, thiserror::Error)]
pub enum AsrError {
    /// The model could not be loaded; names file and reason.
    #[error("cannot load the speech recogniser from {path}: {reason}")]
    Load {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The model failed while running.
    #[error("speech recognition failed: {0}")]
    Run(String),
}

/// A speech recogniser. Lives on one thread, which owns it.
pub trait Asr: Send {
    /// A short name for logs: the engine and the model.
    fn name(&self) -> &str;

    /// Transcribes `audio`: 16 kHz mono in -1..1, at most [`MAX_SAMPLES`] (what is over is cut off at
    /// the end). Returns plain text without bracketed sounds; empty if there is no speech.
    ///
    /// # Errors
    /// [`AsrError::Run`] if the model fails.
    fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError>;
}
