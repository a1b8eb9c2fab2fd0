//! The silence around a clause: the user waits for the one before it, and hears the one after
//! it as punctuation. Where two clauses meet, both add up.

/// Samples that are judged together: half a vocoder frame, 5.8 ms at 22,050 Hz.
const WINDOW: usize = 128;
/// A window that peaks below this is silence, -44 dBFS: breath and hiss of the voice lie below,
/// the softest consonants above.
const QUIET: f32 = 0.006;
/// A window that peaks below this is heard as a pause, -40 dBFS, even if a consonant fades in it.
const AUDIBLE: f32 = 0.01;
/// Silence kept before the first sound: 6 ms, so that no plosive loses its attack.
const LEAD_MS: usize = 6;
/// The least silence after a consonant that has faded for as long as the pause: 20 ms.
const LEAST_PAUSE_MS: usize = 20;
/// Clauses are whole frames of 20 ms: the pause is cut to fit, so that sessions, which send such
/// frames, need not pad them.
const FRAME_MS: usize = 20;
/// Length of the fades at both ends, against clicks.
const FADE_MS: usize = 4;

/// Cuts the silence before a clause to 6 ms and the silence after it to a given pause, while the
/// clause streams through. Silence inside stays as it is. The softest consonant at the end is kept and
/// counts as part of the pause.
pub(super) struct Trimmer {
    sample_rate: usize,
    /// Nothing but silence so far.
    leading: bool,
    /// Samples since the last audible window.
    fading: usize,
    /// Samples that were handed out.
    given: usize,
    /// Not handed out yet, because the clause may end here.
    held: Vec<f32>,
}

impl Trimmer {
    pub(super) fn new(sample_rate: u32) -> Self {
        Self {
            sample_rate: sample_rate as usize,
            leading: true,
            fading: 0,
            given: 0,
            held: Vec::new(),
        }
    }

    /// Takes the next samples and returns those that are certain now, perhaps none.
    pub(super) fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.held.len() + samples.len());
        for window in samples.chunks(WINDOW) {
            let peak = window.iter().fold(0.0, |peak: f32, s| peak.max(s.abs()));
            let loud = peak > QUIET;
            if loud && self.leading {
                self.begin();
            }
            if loud {
                out.append(&mut self.held);
            }
            self.held.extend_from_slice(window);
            self.fading = if peak > AUDIBLE {
                0
            } else {
                self.fading + window.len()
            };
        }
        self.given += out.len();
        out
    }

    /// The end of the clause: the rest of it, and a pause of at most `pause_ms` since it was last
    /// audible. Nothing if it was silent.
    pub(super) fn finish(mut self, pause_ms: usize) -> Vec<f32> {
        if self.leading {
            return Vec::new();
        }
        let soft = (self.fading + WINDOW).saturating_sub(self.held.len());
        let least = self.samples(LEAST_PAUSE_MS.min(pause_ms));
        let pause = self.samples(pause_ms).saturating_sub(soft);
        let (sound, frame) = (self.given + WINDOW, self.samples(FRAME_MS));
        let whole = (sound + pause.max(least)) / frame * frame;
        let length = whole.max(sound.next_multiple_of(frame)) - self.given;
        self.held.truncate(length);
        let fade = self.samples(FADE_MS);
        fade_in(self.held.iter_mut().rev().take(fade), fade);
        self.held.resize(length, 0.0);
        self.held
    }

    fn samples(&self, ms: usize) -> usize {
        ms * self.sample_rate / 1000
    }

    fn begin(&mut self) {
        self.leading = false;
        let lead = self.samples(LEAD_MS);
        self.held.drain(..self.held.len().saturating_sub(lead));
        let fade = self.samples(FADE_MS);
        fade_in(self.held.iter_mut().take(fade), fade);
    }
}

fn fade_in<'a>(samples: impl Iterator<Item = &'a mut f32>, length: usize) {
    for (index, sample) in samples.enumerate() {
        *sample *= index as f32 / length as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 22_050;

    fn trimmed(audio: &[f32], chunk: usize, pause_ms: usize) -> Vec<f32> {
        let mut trimmer = Trimmer::new(RATE);
        let mut out: Vec<f32> = audio.chunks(chunk).flat_map(|c| trimmer.push(c)).collect();
        out.extend(trimmer.finish(pause_ms));
        out
    }

    /// 20 ms at 22,050 Hz are 441 samples.
    fn whole_frames(samples: usize) -> usize {
        samples - samples % 441
    }

    fn clause(before: usize, inside: usize, after: usize) -> Vec<f32> {
        let tone = vec![0.5; WINDOW * 20];
        let silence = |length: usize| vec![0.001; length * WINDOW];
        [
            silence(before),
            tone.clone(),
            silence(inside),
            tone,
            silence(after),
        ]
        .concat()
    }

    #[test]
    fn silence_before_is_6_ms_and_after_is_the_pause() {
        let out = trimmed(&clause(30, 10, 60), 256, 100);
        assert_eq!(out.len(), whole_frames(132 + 50 * WINDOW + 2205));
        assert_eq!(out[0], 0.0);
        assert_eq!(out.last(), Some(&0.0));
    }

    #[test]
    fn a_missing_pause_is_added() {
        let out = trimmed(&clause(0, 0, 2), 256, 100);
        assert_eq!(out.len(), whole_frames(40 * WINDOW + 2205));
    }

    #[test]
    fn a_consonant_that_fades_is_kept_and_is_part_of_the_pause() {
        let faded = |windows: usize| {
            let soft = vec![0.008; windows * WINDOW];
            trimmed(
                &[
                    clause(0, 0, 0),
                    soft,
                    clause(30, 0, 0)[..30 * WINDOW].to_vec(),
                ]
                .concat(),
                256,
                100,
            )
        };
        assert_eq!(faded(10).len(), whole_frames(40 * WINDOW + 2205));
        let long = faded(40);
        assert_eq!(long.len(), whole_frames(80 * WINDOW + 441));
        assert_eq!(long[80 * WINDOW - 1], 0.008);
    }

    #[test]
    fn chunks_do_not_matter() {
        let audio = clause(9, 9, 9);
        let whole = trimmed(&audio, audio.len(), 100);
        for chunk in [WINDOW, 256, 44 * 256] {
            assert_eq!(trimmed(&audio, chunk, 100), whole);
        }
    }

    #[test]
    fn an_abrupt_end_fades() {
        let out = trimmed(&[0.5; WINDOW * 4], 256, 0);
        assert_eq!(out.len(), 2 * 441);
        assert_eq!(out.last(), Some(&0.0));
    }

    #[test]
    fn silence_alone_is_nothing() {
        assert!(trimmed(&[0.0; 4096], 256, 100).is_empty());
        assert!(trimmed(&[], 256, 100).is_empty());
    }
}
