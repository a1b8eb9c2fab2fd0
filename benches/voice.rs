//! Benchmarks the voice: time to first audio, real-time factor, and the cost of splitting clauses; and the voice
//! activity detector: sixteen streams, one after the other and together.
//!
//! `cargo bench --bench voice`; needs the weights in `UNDERTONE_MODELS` or `models/weights`.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, criterion_group, criterion_main};
use undertone::conversation::Clauses;
use undertone::tts::{Piper, Tts};
use undertone::vad::{SileroModel, Vad, WINDOW, push_all};

const CLAUSES: [&str; 3] = [
    "Sure.",
    "I can tell you the time,",
    "Checking the forecast for Boulder, Colorado, and also for Denver.",
];

fn weights() -> PathBuf {
    std::env::var_os("UNDERTONE_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("models/weights"),
        PathBuf::from,
    )
}

fn piper() -> Option<Piper> {
    let weights = weights();
    let library = weights.join("onnxruntime/libonnxruntime.so");
    let piper = undertone::onnx::init(&library)
        .map_err(|error| error.to_string())
        .and_then(|()| Piper::load(&weights.join("piper-joe")).map_err(|error| error.to_string()));
    piper.map_err(|error| eprintln!("SKIPPED: {error}")).ok()
}

fn voice(c: &mut Criterion) {
    let Some(mut piper) = piper() else { return };
    for (what, chunks) in [("first audio", 1), ("all audio", usize::MAX)] {
        let mut group = c.benchmark_group(what);
        group.sample_size(20);
        for text in CLAUSES {
            group.bench_function(text, |b| {
                b.iter(|| piper.speak(text).map(|speech| speech.take(chunks).count()))
            });
        }
    }
}

fn clauses(c: &mut Criterion) {
    let response = "It is five past three in Tokyo, and Dr. Smith is there already. ".repeat(20);
    c.bench_function("cut 1,280 characters into clauses", |b| {
        b.iter(|| {
            let mut clauses = Clauses::default();
            let cut = clauses.push(black_box(&response)).len();
            cut + usize::from(clauses.finish().is_some())
        });
    });
}

/// Streams that the server's detector judges together at most.
const STREAMS: usize = 16;

fn detector(c: &mut Criterion) {
    let weights = weights();
    let library = weights.join("onnxruntime/libonnxruntime.so");
    let model = undertone::onnx::init(&library)
        .map_err(|error| error.to_string())
        .and_then(|()| {
            SileroModel::load(&weights.join("silero/silero_vad.onnx"))
                .map_err(|error| error.to_string())
        });
    let Ok(model) = model.map_err(|error| eprintln!("SKIPPED: {error}")) else {
        return;
    };
    let mut detectors: Vec<_> = (0..STREAMS).map(|_| model.detector()).collect();
    let window = [0.01f32; WINDOW];
    let mut group = c.benchmark_group("a window of 16 streams");
    group.bench_function("one after the other", |b| {
        b.iter(|| {
            let judge = |vad: &mut undertone::vad::Silero| vad.push(&window);
            detectors
                .iter_mut()
                .map(judge)
                .filter(Result::is_ok)
                .count()
        });
    });
    group.bench_function("together", |b| {
        b.iter(|| {
            let streams = detectors
                .iter_mut()
                .map(|vad| (vad as &mut dyn Vad, &window));
            push_all(&mut streams.collect::<Vec<_>>())
        });
    });
}

criterion_group!(benches, voice, clauses, detector);
criterion_main!(benches);
