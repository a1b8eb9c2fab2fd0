//! Voice activity detection, in windows of 32 ms.

mod gate;
mod silero;

pub use gate::Gated;
pub use silero::{Silero, SileroModel, SileroWindow};

/// Samples of one window: 32 ms at 16 kHz, Silero's window.
pub const WINDOW: usize = 512;

/// The level of some audio (its root mean square), dB below full scale: -120..0.
#[must_use]
pub fn level(samples: &[f32]) -> i16 {
    let power: f32 = samples.iter().map(|s| s * s).sum();
    let mean = power / samples.len().max(1) as f32;
    (10.0 * mean.log10()).clamp(-120.0, 0.0).round() as i16
}

/// An error of the voice activity detector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("voice activity detection failed: {0}")]
pub struct VadError(pub String);

/// A detector of one audio stream, with its state.
pub trait Vad {
    /// Begins to judge the next window of the stream: [`WINDOW`] samples, 16 kHz mono in -1..1.
    ///
    /// # Errors
    /// [`VadError`] if a model fails.
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError>;

    /// Takes back the window that [`Begun::Waits`] gave away, once it is judged. A detector that never gives one
    /// away has nothing to do.
    fn finish(&mut self, window: &SileroWindow) {
        let _ = window;
    }

    /// The probability of speech, 0..1, in the next window of the stream, as [`Vad::begin`] takes it.
    ///
    /// # Errors
    /// [`VadError`] if a model fails.
    fn push(&mut self, window: &[f32; WINDOW]) -> Result<f32, VadError> {
        match self.begin(window)? {
            Begun::Judged(probability) => Ok(probability),
            Begun::Waits(window) => {
                let mut windows = [window];
                let probabilities = SileroWindow::judge(&mut windows)?;
                let [window] = windows;
                self.finish(&window);
                let probability = probabilities.first().copied();
                probability.ok_or_else(|| VadError("no output".into()))
            }
        }
    }
}

/// The state of a window that a detector has begun to judge.
pub enum Begun {
    /// The probability of speech, 0..1.
    Judged(f32),
    /// Only the model is missing, which can judge windows of several streams at once.
    Waits(Box<SileroWindow>),
}

/// Judges the next window of each of several streams, all in one run of the model. Returns the probabilities of
/// speech, 0..1, in the order of the streams.
pub fn push_all(streams: &mut [(&mut dyn Vad, &[f32; WINDOW])]) -> Vec<Result<f32, VadError>> {
    let begun = streams.iter_mut().map(|(vad, window)| vad.begin(window));
    let mut waiting = Vec::new();
    let mut judged: Vec<Result<f32, VadError>> = begun
        .enumerate()
        .map(|(stream, begun)| match begun? {
            Begun::Judged(probability) => Ok(probability),
            Begun::Waits(window) => {
                waiting.push((stream, window));
                Ok(0.0)
            }
        })
        .collect();
    let (places, mut windows): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
    match SileroWindow::judge(&mut windows) {
        Ok(probabilities) => {
            for ((stream, window), probability) in
                places.into_iter().zip(windows).zip(probabilities)
            {
                streams[stream].0.finish(&window);
                judged[stream] = Ok(probability);
            }
        }
        Err(error) => {
            for stream in places {
                judged[stream] = Err(error.clone());
            }
        }
    }
    judged
}

impl<V: Vad + ?Sized> Vad for Box<V> {
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError> {
        (**self).begin(window)
    }

    fn finish(&mut self, window: &SileroWindow) {
        (**self).finish(window);
    }
}
