//! Local voices that are loaded when they are needed.

use super::{Tts, TtsError};
use std::path::PathBuf;

/// A local voice, and what is known of it before it is loaded.
pub struct OnDemand {
    /// A short name for logs: the engine and the voice.
    pub name: String,
    /// Samples per second of the audio it makes, Hz.
    pub sample_rate: u32,
    /// The language that it speaks, a BCP 47 tag; `None` if it speaks any.
    pub language: Option<String>,
    /// The memory that it takes, about, bytes.
    pub bytes: u64,
    /// The files that decide how a text sounds; empty if its clips are not worth keeping.
    pub files: Vec<PathBuf>,
    /// Loads it.
    pub load: Loader,
}

/// Loads a voice, again if need be.
pub type Loader = Box<dyn Fn() -> Result<Box<dyn Tts>, TtsError> + Send + Sync>;

impl OnDemand {
    /// A voice like this one that takes no memory worth counting.
    #[must_use]
    pub fn of(
        like: &dyn Tts,
        load: impl Fn() -> Result<Box<dyn Tts>, TtsError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: like.name().to_owned(),
            sample_rate: like.sample_rate(),
            language: like.language().map(str::to_owned),
            bytes: 0,
            files: Vec::new(),
            load: Box::new(load),
        }
    }

    /// As [`Tts::fingerprint`].
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        let has_files = !self.files.is_empty();
        has_files
            .then(|| super::kept::sha256_of(&self.files).ok())
            .flatten()
    }
}
