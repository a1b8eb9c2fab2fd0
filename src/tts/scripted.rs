//! A voice for tests: a tone per word, exact lengths, failures on request.

use super::{Speech, Speed, Tts, TtsError};

/// Samples per second.
const RATE: u32 = 22_050;
/// Samples of one word: 200 ms.
const WORD: usize = RATE as usize / 5;
/// Hz.
const PITCH: f32 = 220.0;

/// Says every word as a quiet 220 Hz tone at 22,050 Hz, one chunk per word: 200 ms at the usual speed.
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

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.speak_at(text, Speed::NORMAL)
    }

    fn speak_at(&mut self, text: &str, speed: Speed) -> Result<Speech, TtsError> {
        self.calls += 1;
        let words = text.split_whitespace().count();
        let fails = self.failing_call == Some(self.calls) && words > 0;
        let word = (WORD as f64 / speed.factor()) as usize;
        let tone: Vec<f32> = (0..word).map(tone_at).collect();
        let chunks = std::iter::repeat_n(tone, if fails { 1 } else { words }).map(Ok);
        let failure = fails.then(|| Err(TtsError::Run("scripted failure".to_owned())));
        Ok(Box::new(chunks.chain(failure)))
    }
}

fn tone_at(sample: usize) -> f32 {
    let phase = std::f32::consts::TAU * PITCH * sample as f32 / RATE as f32;
    0.25 * phase.sin()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples that were spoken, and whether all were.
    fn spoken(tts: &mut Scripted, text: &str) -> (usize, bool) {
        let mut samples = 0;
        for chunk in tts.speak(text).unwrap() {
            match chunk {
                Ok(chunk) => samples += chunk.len(),
                Err(_) => return (samples, false),
            }
        }
        (samples, true)
    }

    #[test]
    fn a_word_is_200_ms() {
        let mut tts = Scripted::new();
        let words = spoken(&mut tts, "three little words");
        assert_eq!(words, (Scripted::samples(3), true));
    }

    #[test]
    fn only_the_named_call_fails() {
        let mut tts = Scripted::failing_on(2);
        assert_eq!(spoken(&mut tts, "one two"), (Scripted::samples(2), true));
        assert_eq!(spoken(&mut tts, "one two"), (Scripted::samples(1), false));
        assert_eq!(spoken(&mut tts, "one two"), (Scripted::samples(2), true));
    }
}
