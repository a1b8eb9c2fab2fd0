//! The models that tests use.

use std::path::{Path, PathBuf};

/// The folder of the weights: `UNDERTONE_MODELS`, or `models/weights` of this checkout.
pub(crate) fn weights() -> PathBuf {
    let weights = std::env::var_os("UNDERTONE_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("models/weights"),
        PathBuf::from,
    );
    assert!(
        weights.is_dir(),
        "no weights at {}: run `make models`",
        weights.display()
    );
    weights
}

/// The weights, with ONNX Runtime loaded from them.
pub(crate) fn weights_and_runtime() -> PathBuf {
    let weights = weights();
    crate::onnx::init(&weights.join("onnxruntime/libonnxruntime.so")).unwrap();
    weights
}
