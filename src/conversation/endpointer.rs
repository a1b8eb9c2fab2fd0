//! Detects the beginning and end of speech from the voice activity detector's windows.

use super::policy::VadPolicy;
use crate::time::Samples;

/// Samples in one window of the voice activity detector.
pub(super) const WINDOW: u64 = 512;

/// A window this far below the loudest one of the utterance is quiet, dB.
const QUIET: f32 = 20.0;

/// Quiet windows in a row after which it is not the detector that lags behind, but the voice that is low: the
/// detector takes 64 to 160 ms to notice silence.
const MOST_QUIET: u32 = 6;

/// How fast the loudest window is forgotten, dB per window (6 dB a second): a door that slams does not make
/// the rest of the utterance quiet.
const FORGETTING: f32 = 0.2;

/// The voice activity detector's verdict on a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) end: Samples,
    /// Of speech, 0..1.
    pub(super) probability: f32,
    /// dB below full scale: -120..0.
    pub(super) level: i16,
}

/// Turns the probabilities of windows into the beginning and end of speech.
#[derive(Debug, Default)]
pub(super) struct SpeechDetector {
    speaking: bool,
    /// Windows of speech in a row while not speaking.
    run: u32,
    /// Quiet windows in a row that the detector takes for speech; [`MOST_QUIET`] after silence.
    quiet: u32,
    /// Level of the loudest window of the utterance, fading, dB below full scale.
    loudest: Option<f32>,
}

/// The effect of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    /// Speech began; it reaches back to this sample, pre-roll included.
    Started(Samples),
    /// Speech goes on.
    Speech,
    /// Speech to the detector, but quiet.
    Fading,
    /// No speech.
    Silence,
}

impl SpeechDetector {
    /// One in the middle of an utterance.
    pub(super) fn amid_speech() -> Self {
        Self {
            speaking: true,
            ..Self::default()
        }
    }

    /// Whether an utterance has begun and was not ended.
    pub(super) fn is_speaking(&self) -> bool {
        self.speaking
    }

    /// Judges a window. `start_windows` of speech in a row begin an utterance; within one, a single window of
    /// speech continues it.
    pub(super) fn push(
        &mut self,
        window: Window,
        policy: &VadPolicy,
        start_windows: u32,
    ) -> Activity {
        let Window {
            end, probability, ..
        } = window;
        if self.speaking {
            let quiet = self.is_quiet(window.level);
            if probability < policy.release {
                self.quiet = MOST_QUIET;
                return Activity::Silence;
            }
            if quiet && self.quiet < MOST_QUIET {
                self.quiet += 1;
                return Activity::Fading;
            }
            if !quiet {
                self.quiet = 0;
            }
            return Activity::Speech;
        }
        self.run = if probability >= policy.threshold {
            self.run + 1
        } else {
            0
        };
        if self.run < start_windows {
            return Activity::Silence;
        }
        self.speaking = true;
        self.loudest = Some(f32::from(window.level));
        Activity::Started(self.silent_to(end).minus_ms(policy.pre_roll_ms))
    }

    /// The end of the silence before the windows of speech in a row, the last of which ends at `end`.
    pub(super) fn silent_to(&self, end: Samples) -> Samples {
        Samples(end.0.saturating_sub(u64::from(self.run) * WINDOW))
    }

    /// Whether a window of this level is quiet beside the loudest.
    fn is_quiet(&mut self, level: i16) -> bool {
        let level = f32::from(level);
        let before = self.loudest.unwrap_or(level) - FORGETTING;
        let loudest = before.max(level);
        self.loudest = Some(loudest);
        level <= loudest - QUIET
    }

    /// Ends the utterance; the next one needs a new run of speech.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the detector over windows with these probabilities and levels.
    fn detect(windows: &[(f32, i16)]) -> Vec<Activity> {
        let mut detector = SpeechDetector::default();
        let policy = VadPolicy::default();
        let window = |(i, (probability, level)): (usize, &(f32, i16))| Window {
            end: Samples((i as u64 + 100) * WINDOW),
            probability: *probability,
            level: *level,
        };
        let windows = windows.iter().enumerate().map(window);
        windows.map(|w| detector.push(w, &policy, 3)).collect()
    }

    fn at_one_level(probabilities: &[f32]) -> Vec<Activity> {
        let windows: Vec<_> = probabilities.iter().map(|p| (*p, -20)).collect();
        detect(&windows)
    }

    #[test]
    fn speech_needs_a_run_and_reaches_back() {
        use Activity::*;
        let start = Samples(99 * WINDOW).minus_ms(300);
        assert_eq!(
            at_one_level(&[0.9, 0.9, 0.1, 0.9]),
            [Silence, Silence, Silence, Silence]
        );
        assert_eq!(
            at_one_level(&[0.9, 0.9, 0.9, 0.4, 0.3]),
            [Silence, Silence, Started(start), Speech, Silence]
        );
    }

    #[test]
    fn speech_that_has_become_quiet_fades_before_the_detector_notices() {
        use Activity::*;
        let speech = [(0.9, -22), (0.9, -20), (0.9, -24)];
        let after = [(0.9, -41), (0.8, -18), (0.9, -39), (0.9, -37), (0.2, -60)];
        let heard = detect(&[speech.as_slice(), &after].concat());
        assert_eq!(heard[3..], [Speech, Speech, Fading, Speech, Silence]);
    }

    #[test]
    fn a_low_voice_is_speech() {
        use Activity::*;
        let speech = [(0.9, -20); 3];
        let after_gap = [speech.as_slice(), &[(0.9, -45); 8]].concat();
        let heard = detect(&after_gap);
        assert_eq!(heard[3..9], [Fading; 6]);
        assert_eq!(heard[9..], [Speech; 2]);
        let after_silence = [speech.as_slice(), &[(0.1, -60), (0.9, -45)]].concat();
        assert_eq!(detect(&after_silence)[3..], [Silence, Speech]);
    }

    #[test]
    fn a_bang_does_not_make_the_rest_quiet() {
        let mut windows = vec![(0.9, -1); 3];
        windows.extend([(0.9, -24); 40]);
        windows.push((0.9, -40));
        let heard = detect(&windows);
        assert_eq!(heard[3], Activity::Fading);
        assert_eq!(heard[42..], [Activity::Speech, Activity::Fading]);
    }
}
