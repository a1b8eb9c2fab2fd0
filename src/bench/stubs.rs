//! Engines that take a stated time, and no more: what is left of a wait is the server's own.

use crate::asr::{Asr, AsrError};
use crate::tts::{Speech, Tts, TtsError};
use crate::vad::{Vad, VadError, WINDOW};
use std::thread::sleep;
use std::time::Duration;

/// Samples per second of the voice: those of the Realtime API, so that nothing is resampled.
const RATE: u32 = 24_000;

/// The level above which sound is speech.
const LOUD: f32 = 0.1;

/// Takes loud windows for speech.
pub(super) struct Loudness;

impl Vad for Loudness {
    fn push(&mut self, window: &[f32; WINDOW]) -> Result<f32, VadError> {
        let is_loud = window.iter().any(|sample| sample.abs() > LOUD);
        Ok(f32::from(u8::from(is_loud)))
    }
}

/// Hears the same words in everything, after a time.
pub(super) struct Hears {
    pub(super) words: &'static str,
    pub(super) after: Duration,
}

impl Asr for Hears {
    fn name(&self) -> &str {
        "stub"
    }

    fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
        sleep(self.after);
        Ok(self.words.to_owned())
    }
}

/// Makes one tone of every text, after a time.
pub(super) struct Tone {
    pub(super) after: Duration,
    pub(super) length: Duration,
}

impl Tts for Tone {
    fn name(&self) -> &str {
        "stub"
    }

    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn speak(&mut self, _: &str) -> Result<Speech, TtsError> {
        sleep(self.after);
        let samples = (self.length.as_secs_f64() * f64::from(RATE)) as usize;
        let quiet = |at: usize| if at % 100 < 50 { 0.05 } else { -0.05 };
        let tone: Vec<f32> = (0..samples).map(quiet).collect();
        Ok(Box::new(std::iter::once(Ok(tone))))
    }
}
