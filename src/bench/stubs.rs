//! Engines that take exactly the stated time, so that the rest of a measured wait is the server's own.

use crate::asr::{Asr, AsrError};
use crate::llm::{Llm, LlmEvent, LlmStream, Prompt};
use crate::tts::{Speech, Tts, TtsError};
use crate::vad::{Begun, Vad, VadError, WINDOW};
use futures_util::{StreamExt, stream};
use std::thread::sleep;
use std::time::Duration;

/// The amplitude above which a window counts as speech, of 1.
const LOUD: f32 = 0.1;

/// A detector that takes loud windows for speech.
pub(super) struct Loudness;

impl Vad for Loudness {
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError> {
        let is_loud = window.iter().any(|sample| sample.abs() > LOUD);
        Ok(Begun::Judged(f32::from(u8::from(is_loud))))
    }
}

/// A recogniser that hears the same words in all audio, after a delay.
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

/// A model that answers everything with this number of sentences of five words.
pub(super) struct Says(pub(super) usize);

impl Llm for Says {
    fn name(&self) -> &str {
        "stub"
    }

    fn generate(&self, _: Prompt) -> LlmStream {
        let text = "One two three four five. ".repeat(self.0);
        let events = [LlmEvent::Speech { text }, LlmEvent::End];
        stream::iter(events.map(Ok)).boxed()
    }
}

/// A voice that speaks every text as one tone, after a delay.
pub(super) struct Tone {
    pub(super) after: Duration,
    pub(super) length: Duration,
    /// The sample rate, Hz: the client's, so that nothing is resampled.
    pub(super) rate: u32,
}

impl Tts for Tone {
    fn name(&self) -> &str {
        "stub"
    }

    fn sample_rate(&self) -> u32 {
        self.rate
    }

    fn speak(&mut self, _: &str) -> Result<Speech, TtsError> {
        sleep(self.after);
        let samples = (self.length.as_secs_f64() * f64::from(self.rate)) as usize;
        let quiet = |at: usize| if at % 100 < 50 { 0.05 } else { -0.05 };
        let tone: Vec<f32> = (0..samples).map(quiet).collect();
        Ok(Box::new(std::iter::once(Ok(tone))))
    }
}
