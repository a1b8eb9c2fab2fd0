//! Silero VAD v6 on ONNX Runtime.

use super::{Vad, VadError, WINDOW};
use ort::session::Session;
use ort::value::TensorRef;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Samples of the previous window that the model sees again.
const CONTEXT: usize = 64;

/// Size of the model's recurrent state, `[2, 1, 128]`.
const STATE: usize = 2 * 128;

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
            state: [0.0; STATE],
            context: [0.0; CONTEXT],
        }
    }
}

/// A detector of one stream.
pub struct Silero {
    model: SileroModel,
    state: [f32; STATE],
    context: [f32; CONTEXT],
}

impl Vad for Silero {
    fn push(&mut self, window: &[f32; WINDOW]) -> Result<f32, VadError> {
        let mut input = [0.0; CONTEXT + WINDOW];
        input[..CONTEXT].copy_from_slice(&self.context);
        input[CONTEXT..].copy_from_slice(window);
        self.context.copy_from_slice(&window[WINDOW - CONTEXT..]);
        let mut session = self.model.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = [16_000i64];
        let outputs = session
            .run(ort::inputs! {
                "input" => TensorRef::from_array_view(([1, input.len()], &input[..])).map_err(failed)?,
                "sr" => TensorRef::from_array_view((Vec::<i64>::new(), &rate[..])).map_err(failed)?,
                "state" => TensorRef::from_array_view(([2, 1, 128], &self.state[..])).map_err(failed)?,
            })
            .map_err(failed)?;
        let (_, state) = outputs["stateN"]
            .try_extract_tensor::<f32>()
            .map_err(failed)?;
        self.state.copy_from_slice(state);
        let (_, probability) = outputs["output"]
            .try_extract_tensor::<f32>()
            .map_err(failed)?;
        probability
            .first()
            .copied()
            .ok_or_else(|| VadError("no output".into()))
    }
}

fn failed(error: ort::Error) -> VadError {
    VadError(error.to_string())
}
