//! A listener who plays audio as it arrives, in order. Times are seconds after a moment of the caller's.

/// Hz: audio of the server's bare PCM.
pub(super) const RATE: u32 = 16_000;

/// A window of 10 ms.
const WINDOW: usize = RATE as usize / 100;
const WINDOW_S: f64 = 0.01;

/// A window above this level, of full scale, is audible.
const AUDIBLE: f32 = 0.01;

/// A window of speech has at least this share of the level of its loudest.
const SPEECH: f32 = 0.05;

/// The listener's loudspeaker.
#[derive(Debug, Default)]
pub(super) struct Listener {
    /// The beginning and the end of each audible window, in order.
    sounds: Vec<(f64, f64)>,
    /// The time at which all that has arrived will have been played.
    free: f64,
}

impl Listener {
    /// Handles audio that has arrived. Returns when it begins to be played.
    pub(super) fn hear(&mut self, at: f64, samples: &[i16]) -> f64 {
        let start = self.free.max(at);
        for (index, window) in samples.chunks(WINDOW).enumerate() {
            if level(window) > AUDIBLE {
                let from = start + index as f64 * WINDOW_S;
                let to = from + window.len() as f64 / f64::from(RATE);
                self.sounds.push((from, to));
            }
        }
        self.free = start + samples.len() as f64 / f64::from(RATE);
        start
    }

    /// Drops the audio that has not been played.
    pub(super) fn clear(&mut self, at: f64) {
        self.sounds.retain(|(from, _)| *from < at);
        if let Some((_, to)) = self.sounds.last_mut() {
            *to = to.min(at);
        }
        self.free = self.free.min(at);
    }

    /// The time at which all that has arrived will have been played.
    pub(super) fn free(&self) -> f64 {
        self.free
    }

    /// The beginning of the first sound from this moment on.
    pub(super) fn first_from(&self, at: f64) -> Option<f64> {
        let mut sounds = self.sounds.iter().map(|(from, _)| *from);
        sounds.find(|from| *from >= at)
    }

    /// The end of the last sound that began before this moment.
    pub(super) fn last_before(&self, at: f64) -> Option<f64> {
        let mut sounds = self.sounds.iter().rev();
        sounds.find(|(from, _)| *from < at).map(|(_, to)| *to)
    }
}

/// The beginning and the end of speech, seconds after the first sample: its first and its last window that is not silence.
pub(super) fn speech(samples: &[i16]) -> (f64, f64) {
    let levels: Vec<f32> = samples.chunks(WINDOW).map(level).collect();
    let loudest = levels.iter().copied().fold(0.0, f32::max);
    let is_loud = |level: &f32| *level > AUDIBLE.max(SPEECH * loudest);
    let first = levels.iter().position(is_loud).unwrap_or(0);
    let behind = levels.iter().rposition(is_loud).map_or(0, |last| last + 1);
    (first as f64 * WINDOW_S, behind as f64 * WINDOW_S)
}

/// Root mean square, of full scale.
fn level(window: &[i16]) -> f32 {
    let power: f32 = window
        .iter()
        .map(|sample| (f32::from(*sample) / 32_768.0).powi(2))
        .sum();
    (power / window.len().max(1) as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 2 * WINDOW;

    fn near(found: Option<f64>, wanted: f64) {
        assert!((found.unwrap() - wanted).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn audio_is_played_in_order_and_silence_is_not_heard() {
        let mut listener = Listener::default();
        assert_eq!(listener.hear(1.0, &[0; FRAME]), 1.0);
        listener.hear(1.001, &[8_000; FRAME]);
        assert_eq!(listener.hear(3.0, &[8_000; FRAME]), 3.0);
        near(listener.first_from(0.5), 1.02);
        near(listener.last_before(2.0), 1.04);
        near(listener.first_from(1.05), 3.0);
        near(Some(listener.free()), 3.02);
    }

    #[test]
    fn what_is_cleared_is_not_heard() {
        let mut listener = Listener::default();
        for _ in 0..10 {
            listener.hear(1.0, &[8_000; FRAME]);
        }
        listener.clear(1.055);
        near(listener.last_before(9.0), 1.055);
        assert_eq!(listener.first_from(1.06), None);
        near(Some(listener.hear(1.06, &[0; FRAME])), 1.06);
    }

    #[test]
    fn speech_is_between_its_first_and_its_last_loud_window() {
        let mut samples = vec![300; 5 * WINDOW];
        samples[WINDOW..3 * WINDOW].fill(10_000);
        assert_eq!(speech(&samples), (0.01, 0.03));
        assert_eq!(speech(&[0; WINDOW]), (0.0, 0.0));
    }
}
