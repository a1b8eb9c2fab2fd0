//! Smart Turn v3.2 on ONNX Runtime.

use super::{TurnModel, TurnModelError};
use crate::audio::mel::{BANDS, HOP, LogMel};
use ort::session::Session;
use ort::value::TensorRef;
use std::path::Path;

/// The model's input: 8 s at 16 kHz.
const SAMPLES: usize = 8 * 16_000;

/// Smart Turn.
pub struct SmartTurn {
    session: Session,
    mel: LogMel,
}

impl SmartTurn {
    /// Loads the model from an ONNX file.
    ///
    /// # Errors
    /// [`TurnModelError`] naming the file and the reason.
    pub fn load(path: &Path) -> Result<Self, TurnModelError> {
        let session =
            crate::onnx::session(path).map_err(|error| TurnModelError(error.to_string()))?;
        Ok(Self {
            session,
            mel: LogMel::new(),
        })
    }
}

impl TurnModel for SmartTurn {
    fn completeness(&mut self, audio: &[f32]) -> Result<f32, TurnModelError> {
        let features = self.mel.features(&last_8_s(audio));
        let shape = [1, BANDS, SAMPLES / HOP];
        let input = TensorRef::from_array_view((shape, &features[..])).map_err(failed)?;
        let outputs = self
            .session
            .run(ort::inputs! { "input_features" => input })
            .map_err(failed)?;
        let (_, output) = outputs[0].try_extract_tensor::<f32>().map_err(failed)?;
        output
            .first()
            .copied()
            .ok_or_else(|| TurnModelError("no output".into()))
    }
}

/// The last 8 s at zero mean and unit variance, padded with silence at the front.
fn last_8_s(audio: &[f32]) -> Vec<f32> {
    let audio = &audio[audio.len().saturating_sub(SAMPLES)..];
    let mut window = vec![0.0; SAMPLES - audio.len()];
    window.extend(audio);
    let mean = window.iter().sum::<f32>() / SAMPLES as f32;
    let variance = window.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / SAMPLES as f32;
    // 1e-7 is from the feature extractor that the model was trained with.
    let scale = 1.0 / (variance + 1e-7).sqrt();
    window.iter_mut().for_each(|x| *x = (*x - mean) * scale);
    window
}

fn failed(error: ort::Error) -> TurnModelError {
    TurnModelError(error.to_string())
}
