//! The silence around a clause: the user waits for the one before it, and hears the one after
//! it as punctuation.

/// Samples that are judged together: half a vocoder frame, 5.8 ms at 22,050 Hz.
const WINDOW: usize = 128;
/// A window that peaks below this is silence, -44 dBFS: breath and hiss of the voice lie below,
/// the softest consonants above.
const QUIET: f32 = 0.006;
/// Silence kept before the first sound: 10 ms, so that no plosive loses its attack.
const LEAD_MS: usize = 10;
/// Length of the fades at both ends, against clicks.
const FADE_MS: usize = 4;

/// Cuts the silence before a clause to 10 ms and the silence after it to a given pause, while the
/// clause streams through. Silence inside stays as it is.
pub(super) struct Trimmer {
    samples_per_ms: usize,
    /// Nothing but silence so far.
    leading: bool,
    /// Not handed out yet, because the clause may end here.
    held: Vec<f32>,
}

impl Trimmer {
    pub(super) fn new(sample_rate: u32) -> Self {
        Self {
            samples_per_ms: sample_rate as usize / 1000,
            leading: true,
            held: Vec::new(),
        }
    }

    /// Takes the next samples and returns those that are certain now, perhaps none.
    pub(super) fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.held.len() + samples.len());
        for window in samples.chunks(WINDOW) {
            let loud = window.iter().any(|sample| sample.abs() > QUIET);
            if loud && self.leading {
                self.begin();
            }
            if loud {
                out.append(&mut self.held);
            }
            self.held.extend_from_slice(window);
        }
        out
    }

    /// The end of the clause: the rest of it and `pause_ms` of silence. Nothing if it was silent.
    pub(super) fn finish(mut self, pause_ms: usize) -> Vec<f32> {
        if self.leading {
            return Vec::new();
        }
        let length = WINDOW + pause_ms * self.samples_per_ms;
        self.held.truncate(length);
        let fade = FADE_MS * self.samples_per_ms;
        fade_in(self.held.iter_mut().rev().take(fade), fade);
        self.held.resize(length, 0.0);
        self.held
    }

    fn begin(&mut self) {
        self.leading = false;
        let lead = LEAD_MS * self.samples_per_ms;
        self.held.drain(..self.held.len().saturating_sub(lead));
        let fade = FADE_MS * self.samples_per_ms;
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
    fn silence_before_is_10_ms_and_after_is_the_pause() {
        let out = trimmed(&clause(30, 10, 60), 256, 100);
        assert_eq!(out.len(), 220 + 50 * WINDOW + 2200);
        assert_eq!(out[0], 0.0);
        assert_eq!(out.last(), Some(&0.0));
    }

    #[test]
    fn a_missing_pause_is_added() {
        let out = trimmed(&clause(0, 0, 2), 256, 100);
        assert_eq!(out.len(), 40 * WINDOW + 2200);
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
        assert_eq!(out.len(), WINDOW * 4);
        assert_eq!(out.last(), Some(&0.0));
    }

    #[test]
    fn silence_alone_is_nothing() {
        assert!(trimmed(&[0.0; 4096], 256, 100).is_empty());
        assert!(trimmed(&[], 256, 100).is_empty());
    }
}
