//! Audio that is not what its frames say. No clock: times are since the call began.
//!
//! Asterisk marks ulaw and alaw as PCM at 8 kHz, and older releases wider audio, too. Only its pace tells.

use crate::conversation::Micros;

/// The rate of the audio that is watched, Hz.
pub(super) const RATE: u32 = 8_000;

/// The time from the first audio to the judgement.
const WATCHED: Micros = Micros::from_ms(2_000);

/// The longest time between frames of which none is left out. Some channels send no silence.
const STEADY: Micros = Micros::from_ms(100);

/// The pace of audio that is marked as 8 kHz.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the first audio came.
    began: Option<Micros>,
    /// Samples since then.
    samples: u64,
    /// When the latest audio came.
    latest: Micros,
    has_gaps: bool,
    judged: bool,
}

impl Pace {
    /// Counts audio that came at `now`. Returns once how to mend it, if it comes at about half or twice its pace.
    pub(super) fn heard(&mut self, now: Micros, samples: usize) -> Option<&'static str> {
        if self.judged {
            return None;
        }
        let Some(began) = self.began else {
            // It was spoken before.
            (self.began, self.latest) = (Some(now), now);
            return None;
        };
        self.samples += samples as u64;
        self.has_gaps |= now.0.saturating_sub(self.latest.0) > STEADY.0;
        self.latest = now;
        let passed = now.0.saturating_sub(began.0);
        if passed < WATCHED.0 {
            return None;
        }
        self.judged = true;
        match Micros::of_samples(self.samples, RATE).0 * 100 / passed {
            40..=60 if !self.has_gaps => Some(
                "it is probably ulaw or alaw and cannot be understood: give Asterisk's channel c(slin) or c(slin16), \
                 or externalMedia format=slin",
            ),
            170..=230 => Some(
                "it is probably slin16 from a release that cannot say so: give Asterisk's channel c(slin), or \
                 externalMedia format=slin",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hints for four seconds of frames of 20 ms with this many samples, which come a little unevenly, or not at
    /// all if they have none.
    fn hints(samples: impl Fn(u64) -> usize) -> Vec<&'static str> {
        let mut pace = Pace::default();
        let come = (0..200).filter(|frame| samples(*frame) > 0);
        let heard = come.filter_map(|frame| {
            let late = frame % 3 * 7;
            pace.heard(Micros::from_ms(500 + frame * 20 + late), samples(frame))
        });
        heard.collect()
    }

    #[test]
    fn ulaw_and_wider_audio_that_come_as_slin_are_noticed_once() {
        for (samples, option) in [(80, "c(slin) or c(slin16)"), (320, "c(slin),")] {
            let hints = hints(|_| samples);
            assert_eq!(hints.len(), 1, "{samples}");
            assert!(hints[0].contains(option), "{}", hints[0]);
        }
    }

    #[test]
    fn audio_at_its_own_pace_or_with_long_gaps_is_not_taken_for_another_format() {
        assert_eq!(hints(|_| 160), Vec::<&str>::new());
        let muted = |frame: u64| if (20..150).contains(&frame) { 0 } else { 160 };
        assert_eq!(hints(muted), Vec::<&str>::new());
        let without_silence = |frame: u64| {
            if (frame / 10).is_multiple_of(2) {
                160
            } else {
                0
            }
        };
        assert_eq!(hints(without_silence), Vec::<&str>::new());
        let queued = |frame: u64| if frame == 1 { 8_000 } else { 160 };
        assert_eq!(hints(queued), Vec::<&str>::new());
    }
}
