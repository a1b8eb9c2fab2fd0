//! The voice without randomness. The library's own tests use this file too.

use std::path::Path;
use tempfile::TempDir;

/// A folder with the voice of `weights` that says a sentence the same way each time.
pub fn steady_voice(weights: &Path) -> TempDir {
    let voice = weights.join("piper-joe");
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["encoder.onnx", "decoder.onnx"] {
        std::fs::copy(voice.join(name), folder.path().join(name)).expect("a copy");
    }
    let settings = std::fs::read(voice.join("voice.json")).expect("the voice");
    let mut settings: serde_json::Value = serde_json::from_slice(&settings).expect("JSON");
    for noise in ["noise_scale", "noise_w"] {
        settings["inference"][noise] = 0.0.into();
    }
    std::fs::write(folder.path().join("voice.json"), settings.to_string()).expect("written");
    folder
}
