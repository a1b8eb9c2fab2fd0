//! A voice for tests: a tone per word, exact lengths, failures on request.

use std::ops::ControlFlow;

use super::{Tts, TtsError};

/// Samples per second.
const RATE: u32 = 22_050;
/// Samples of one word: 200 ms.
const WORD: usize = RATE as usize / 5;
/// Hz.
const PITCH: f32 = 220.0;

/// Says every word as 200 ms of a quiet 220 Hz tone at 22,050 Hz, one chunk per word.
#[derive(Debug, Default)]
pub struct Scripted {
    calls: usize,
    failing_call: Option<usize>,
}

impl Scripted {
    /// A voice that never fails.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A voice whose `call`-th `speak`, counted from 1, fails after the first word; the others work.
    #[must_use]
    pub fn failing_on(call: usize) -> Self {
        Self {
            calls: 0,
            failing_call: Some(call),
        }
    }

    /// Samples that it makes of `words` words.
    #[must_use]
    pub fn samples(words: usize) -> usize {
        words * WORD
    }
}

impl Tts for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn speak(
        &mut self,
        text: &str,
        chunk: &mut dyn FnMut(&[f32]) -> ControlFlow<()>,
    ) -> Result<(), TtsError> {
        self.calls += 1;
        let tone: Vec<f32> = (0..WORD).map(tone_at).collect();
        for _ in text.split_whitespace() {
            if chunk(&tone).is_break() {
                return Ok(());
            }
            if self.failing_call == Some(self.calls) {
                return Err(TtsError::Run("scripted failure".to_owned()));
            }
        }
        Ok(())
    }
}

fn tone_at(sample: usize) -> f32 {
    let phase = std::f32::consts::TAU * PITCH * sample as f32 / RATE as f32;
    0.25 * phase.sin()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(tts: &mut Scripted, text: &str) -> (usize, Result<(), TtsError>) {
        let mut samples = 0;
        let result = tts.speak(text, &mut |chunk| {
            samples += chunk.len();
            ControlFlow::Continue(())
        });
        (samples, result)
    }

    #[test]
    fn a_word_is_200_ms() {
        let (samples, result) = spoken(&mut Scripted::new(), "three little words");
        assert!(result.is_ok());
        assert_eq!(samples, Scripted::samples(3));
    }

    #[test]
    fn only_the_named_call_fails() {
        let mut tts = Scripted::failing_on(2);
        assert!(spoken(&mut tts, "one two").1.is_ok());
        let (samples, result) = spoken(&mut tts, "one two");
        assert!(result.is_err());
        assert_eq!(samples, Scripted::samples(1));
        assert!(spoken(&mut tts, "one two").1.is_ok());
    }

    #[test]
    fn a_break_stops_it() {
        let mut chunks = 0;
        Scripted::new()
            .speak("one two three", &mut |_| {
                chunks += 1;
                ControlFlow::Break(())
            })
            .unwrap();
        assert_eq!(chunks, 1);
    }
}
