//! Engines without speech models, for conversations in text.

use crate::asr::{Asr, AsrError};
use crate::audio::RATE;
use crate::session::{Builders, LanguageDetection, ModelThreads};
use crate::tts::{Speech, Tts, TtsError};
use crate::vad::{Begun, Vad, VadError, WINDOW};
use std::collections::BTreeMap;

/// These engines without speech models: they hear nothing and say nothing.
#[must_use]
pub fn mute(builders: Builders) -> Builders {
    Builders {
        vad: Box::new(|| Box::new(|| Ok(Box::new(Silent) as Box<dyn Vad>))),
        asr: Box::new(|| Ok(Box::new(Silent) as Box<dyn Asr>)),
        recognisers: BTreeMap::new(),
        recogniser: None,
        detection: LanguageDetection::default(),
        turn_model: None,
        threads: ModelThreads::SINGLE,
        tts: Box::new(|| Ok(Box::new(Mute) as Box<dyn Tts>)),
        voices: BTreeMap::new(),
        clips: None,
        ..builders
    }
}

/// A detector and a recogniser for callers who send no audio.
pub(crate) struct Silent;

impl Vad for Silent {
    fn begin(&mut self, _: &[f32; WINDOW]) -> Result<Begun, VadError> {
        Ok(Begun::Judged(0.0))
    }
}

impl Asr for Silent {
    fn name(&self) -> &str {
        "none"
    }

    fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
        Ok(String::new())
    }
}

struct Mute;

impl Tts for Mute {
    fn name(&self) -> &str {
        "none"
    }

    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn speak(&mut self, _: &str) -> Result<Speech, TtsError> {
        // A frame of silence: a clause without any sound would be a failure of the voice.
        let silence = vec![0.0; RATE as usize / 50];
        Ok(Box::new(std::iter::once(Ok(silence))))
    }
}
