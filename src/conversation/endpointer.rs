//! Whether the user is speaking.

use super::policy::VadPolicy;
use crate::time::Samples;

/// Samples in one window of the voice activity detector.
pub(super) const WINDOW: u64 = 512;

/// Turns the probabilities of windows into the beginning and end of speech.
#[derive(Debug, Default)]
pub(super) struct SpeechDetector {
    speaking: bool,
    /// Windows of speech in a row while not speaking.
    run: u32,
}

/// The effect of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Speech began; it reaches back to this sample, pre-roll included.
    Started(Samples),
    /// Speech goes on.
    Speech,
    /// No speech.
    Silence,
}

impl SpeechDetector {
    /// Judges the window that ends at `end`. `start_windows` of speech in a row begin an utterance;
    /// within one, a single window of speech continues it.
    pub(super) fn push(
        &mut self,
        end: Samples,
        probability: f32,
        policy: &VadPolicy,
        start_windows: u32,
    ) -> Heard {
        if self.speaking {
            return if probability >= policy.release {
                Heard::Speech
            } else {
                Heard::Silence
            };
        }
        self.run = if probability >= policy.threshold {
            self.run + 1
        } else {
            0
        };
        if self.run < start_windows {
            return Heard::Silence;
        }
        let first = Samples(end.0.saturating_sub(u64::from(self.run) * WINDOW));
        self.speaking = true;
        Heard::Started(first.minus_ms(policy.pre_roll_ms))
    }

    /// Ends the utterance; the next one needs a new run of speech.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(probabilities: &[f32]) -> Vec<Heard> {
        let mut detector = SpeechDetector::default();
        let policy = VadPolicy::default();
        probabilities
            .iter()
            .enumerate()
            .map(|(i, p)| detector.push(Samples((i as u64 + 100) * WINDOW), *p, &policy, 3))
            .collect()
    }

    #[test]
    fn speech_needs_a_run_and_reaches_back() {
        use Heard::*;
        let start = Samples(99 * WINDOW).minus_ms(300);
        assert_eq!(
            detect(&[0.9, 0.9, 0.1, 0.9]),
            [Silence, Silence, Silence, Silence]
        );
        assert_eq!(
            detect(&[0.9, 0.9, 0.9, 0.4, 0.3]),
            [Silence, Silence, Started(start), Speech, Silence]
        );
    }
}
