//! From the configuration to loaded models: the one place that knows which engine is which.

use crate::asr::Asr;
use crate::config::Config;
use crate::models::Models;
use crate::tts::Tts;
use anyhow::{Result, bail};

/// The models, held to their sha256: nothing is loaded that does not match.
pub(super) fn verified_models(config: &Config) -> Result<Models> {
    let models = Models::open(&config.models.dir)?;
    models.verify()?;
    Ok(models)
}

/// The speech recogniser.
pub(super) fn asr(config: &Config) -> Result<Box<dyn Asr>> {
    verified_models(config)?;
    bail!("speech recognition is not built yet")
}

/// The voice.
pub(super) fn tts(config: &Config) -> Result<Box<dyn Tts>> {
    verified_models(config)?;
    bail!("speech synthesis is not built yet")
}
