//! Where tests find models and recordings.

use std::path::{Path, PathBuf};

/// The folder of the weights: `UNDERTONE_MODELS`, or `models/weights` of this checkout.
pub(crate) fn weights() -> PathBuf {
    let weights = folder("UNDERTONE_MODELS", "models/weights");
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

/// The recordings in `speech` or `noise`, by name; `None`, and a note, where there are none.
pub(crate) fn recordings(kind: &str) -> Option<Vec<(String, Vec<f32>)>> {
    let folder = folder("UNDERTONE_DATA", "../shared/data").join(kind);
    let Ok(entries) = folder.read_dir() else {
        eprintln!("SKIPPED: no recordings at {}", folder.display());
        return None;
    };
    let mut paths: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "wav"))
        .collect();
    paths.sort();
    Some(paths.iter().map(|path| (name(path), read(path))).collect())
}

fn folder(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join(default),
        PathBuf::from,
    )
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

fn read(path: &Path) -> Vec<f32> {
    let mut reader = hound::WavReader::open(path).unwrap();
    assert_eq!(
        (reader.spec().channels, reader.spec().sample_rate),
        (1, 16_000)
    );
    let samples: Vec<i16> = reader.samples().map(Result::unwrap).collect();
    super::to_f32(&samples)
}
