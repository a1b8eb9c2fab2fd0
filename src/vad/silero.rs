//! Silero VAD v6 on ONNX Runtime.

use super::{Begun, Vad, VadError, WINDOW};
use ort::session::Session;
use ort::value::TensorRef;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Samples of the previous window that the model sees again.
const CONTEXT: usize = 64;

/// Samples that the model sees at once.
const INPUT: usize = CONTEXT + WINDOW;

/// Size of one of the two parts of a stream's recurrent state, which the model has as `[2, streams, 128]`.
const HALF: usize = 128;

/// The model, shared by the detectors of all sessions on one thread.
#[derive(Clone)]
pub struct SileroModel(Arc<Mutex<Session>>);

impl SileroModel {
    /// Loads the model from an ONNX file.
    ///
    /// # Errors
    /// [`VadError`] naming the file and the reason.
    pub fn load(path: &Path) -> Result<Self, VadError> {
        let session = crate::onnx::session(path).map_err(|error| VadError(error.to_string()))?;
        Ok(Self(Arc::new(Mutex::new(session))))
    }

    /// A detector for a new stream.
    pub fn detector(&self) -> Silero {
        Silero {
            model: self.clone(),
            state: [[0.0; HALF]; 2],
            context: [0.0; CONTEXT],
        }
    }

    /// Judges a window of each stream in one run of the model. Returns the probabilities of speech, 0..1.
    fn run(&self, windows: &mut [&mut SileroWindow]) -> Result<Vec<f32>, VadError> {
        let count = windows.len();
        let mut input = Vec::with_capacity(count * INPUT);
        for window in windows.iter() {
            input.extend_from_slice(&window.input);
        }
        let mut before = Vec::with_capacity(count * 2 * HALF);
        for half in 0..2 {
            for window in windows.iter() {
                before.extend_from_slice(&window.state[half]);
            }
        }
        let mut session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = [16_000i64];
        let outputs = session
            .run(ort::inputs! {
                "input" => TensorRef::from_array_view(([count, INPUT], &input[..])).map_err(failed)?,
                "sr" => TensorRef::from_array_view((Vec::<i64>::new(), &rate[..])).map_err(failed)?,
                "state" => TensorRef::from_array_view(([2, count, HALF], &before[..])).map_err(failed)?,
            })
            .map_err(failed)?;
        let (_, after) = outputs["stateN"]
            .try_extract_tensor::<f32>()
            .map_err(failed)?;
        let (_, probabilities) = outputs["output"]
            .try_extract_tensor::<f32>()
            .map_err(failed)?;
        if after.len() != before.len() || probabilities.len() != count {
            return Err(VadError("the outputs have other shapes".into()));
        }
        for (i, part) in after.chunks_exact(HALF).enumerate() {
            windows[i % count].state[i / count].copy_from_slice(part);
        }
        Ok(probabilities.to_vec())
    }
}

/// A detector of one stream.
pub struct Silero {
    model: SileroModel,
    state: [[f32; HALF]; 2],
    context: [f32; CONTEXT],
}

/// A window of one stream that the model has not judged yet, with the stream's state.
pub struct SileroWindow {
    model: SileroModel,
    input: [f32; INPUT],
    state: [[f32; HALF]; 2],
}

impl SileroWindow {
    /// Judges a window of each of several streams; those of the same model in one run. Twice as fast as one after
    /// the other, from four streams on.
    ///
    /// # Errors
    /// [`VadError`] if a model fails.
    pub(super) fn judge(windows: &mut [Box<Self>]) -> Result<Vec<f32>, VadError> {
        let mut probabilities = Vec::with_capacity(windows.len());
        for same in windows.chunk_by_mut(|a, b| Arc::ptr_eq(&a.model.0, &b.model.0)) {
            let mut same: Vec<&mut Self> = same.iter_mut().map(AsMut::as_mut).collect();
            let Some(model) = same.first().map(|window| window.model.clone()) else {
                continue;
            };
            probabilities.extend(model.run(&mut same)?);
        }
        Ok(probabilities)
    }
}

impl Vad for Silero {
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError> {
        let mut input = [0.0; INPUT];
        input[..CONTEXT].copy_from_slice(&self.context);
        input[CONTEXT..].copy_from_slice(window);
        self.context.copy_from_slice(&window[WINDOW - CONTEXT..]);
        Ok(Begun::Waits(Box::new(SileroWindow {
            model: self.model.clone(),
            input,
            state: self.state,
        })))
    }

    fn finish(&mut self, window: &SileroWindow) {
        self.state = window.state;
    }
}

fn failed(error: ort::Error) -> VadError {
    VadError(error.to_string())
}
