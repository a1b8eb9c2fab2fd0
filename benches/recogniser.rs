//! Benchmarks the recogniser: a spoken question alone, and with the words of the partial before it.
//!
//! `cargo bench --bench recogniser`; needs the weights in `UNDERTONE_MODELS` or `models/weights`.

use criterion::{Criterion, criterion_group, criterion_main};
use std::path::{Path, PathBuf};
use undertone::asr::{Asr, Hints, WhisperOnnx};
use undertone::audio::Resampler;
use undertone::tts::{Piper, Tts};

const QUESTION: &str = "What is the weather in Boulder, Colorado?";

/// Hz.
const RATE: u32 = 16_000;

fn weights() -> PathBuf {
    std::env::var_os("UNDERTONE_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("models/weights"),
        PathBuf::from,
    )
}

/// The recogniser, and the question in the product's own voice.
fn loaded() -> Result<(WhisperOnnx, Vec<f32>), String> {
    let weights = weights();
    undertone::onnx::init(&weights.join("onnxruntime/libonnxruntime.so"))
        .map_err(|e| e.to_string())?;
    let mut piper = Piper::load(&weights.join("piper-joe")).map_err(|e| e.to_string())?;
    let rate = piper.sample_rate();
    let speech = piper.speak(QUESTION).map_err(|e| e.to_string())?;
    let spoken: Result<Vec<Vec<f32>>, _> = speech.collect();
    let spoken = spoken.map_err(|e| e.to_string())?.concat();
    let mut resampler = Resampler::new(rate, RATE);
    let mut audio = resampler.push(&spoken);
    audio.extend(resampler.flush());
    let recogniser = WhisperOnnx::load(&weights.join("whisper-tiny.en"));
    Ok((recogniser.map_err(|e| e.to_string())?, audio))
}

fn recogniser(c: &mut Criterion) {
    let (mut recogniser, audio) = match loaded() {
        Ok(loaded) => loaded,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let so_far = recogniser.transcribe(&audio[..audio.len() * 4 / 5]);
    let mut group = c.benchmark_group("a spoken question");
    group.sample_size(20);
    for (name, so_far) in [("alone", None), ("after a partial", so_far.ok())] {
        let hints = Hints {
            so_far,
            ..Hints::default()
        };
        group.bench_function(name, |b| b.iter(|| recogniser.hear_with(&audio, &hints)));
    }
}

criterion_group!(benches, recogniser);
criterion_main!(benches);
