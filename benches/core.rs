//! Benchmarks the paths that every session takes many times a second: the markup parser, the gate, the ledger, the pacer.
//!
//! `cargo bench --bench core`. The table at the end gives each path's fastest round as a ratio to a fixed piece of work
//! that is timed in between, which is nearly the same on every machine and under load. It fails if a ratio is more than
//! half above the one in `benches/core.toml`; `UNDERTONE_BASELINE=write` writes that file.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use undertone::bench::hot::{Rehearsal, pace, parse};

/// The most that a ratio may rise above the committed one.
const TOLERANCE: f64 = 1.5;

/// Rounds of each path, and how often it is taken in one.
const ROUNDS: usize = 300;
const TIMES: u32 = 20;

/// A path by its name.
type Step = (&'static str, Box<dyn FnMut()>);

/// The current time.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

fn steps() -> Vec<Step> {
    let gate = Rehearsal::default();
    let mut ledger = Rehearsal::default();
    let samples = vec![1000_i16; 16_000];
    vec![
        (
            "parser",
            Box::new(|| {
                black_box(parse());
            }),
        ),
        (
            "gate",
            Box::new(move || {
                black_box(gate.decide(black_box(0.9)));
            }),
        ),
        (
            "ledger",
            Box::new(move || {
                black_box(ledger.turn());
            }),
        ),
        (
            "pacer",
            Box::new(move || {
                black_box(pace(&samples));
            }),
        ),
    ]
}

/// Work of the same kind, without any of the product's code: strings in a map.
fn reference() -> usize {
    let mut map = BTreeMap::new();
    for number in 0..200_u64 {
        let key = format!("key {}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        map.insert(key, number);
    }
    map.values().filter(|number| **number % 3 == 0).count()
}

fn timed(mut step: impl FnMut()) -> Duration {
    let start = now();
    for _ in 0..TIMES {
        step();
    }
    start.elapsed()
}

fn core(c: &mut Criterion) {
    for (name, mut step) in steps() {
        c.bench_function(name, |b| b.iter(&mut step));
    }
    let found = ratios();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/core.toml");
    if std::env::var_os("UNDERTONE_BASELINE").is_some_and(|value| value == "write") {
        let text = toml::to_string(&found).expect("numbers");
        std::fs::write(&path, text).expect("a file");
        return;
    }
    // A path without a committed ratio is only measured.
    let baseline = std::fs::read_to_string(&path).unwrap_or_default();
    let baseline: BTreeMap<String, f64> = toml::from_str(&baseline).expect("ratios");
    println!("path      ratio  committed");
    let mut slower = Vec::new();
    for (name, ratio) in &found {
        let committed = baseline.get(name).copied().unwrap_or(f64::INFINITY);
        println!("{name:<8} {ratio:>6.4} {committed:>10.4}");
        if *ratio > TOLERANCE * committed {
            slower.push(name);
        }
    }
    assert!(
        slower.is_empty(),
        "slower than committed: {slower:?}; if that is meant, UNDERTONE_BASELINE=write cargo bench --bench core"
    );
}

/// The fastest round of each path over the fastest of the reference, in turns.
fn ratios() -> BTreeMap<String, f64> {
    let mut steps = steps();
    let mut fastest = vec![Duration::MAX; steps.len()];
    let mut unit = Duration::MAX;
    for _ in 0..ROUNDS {
        unit = unit.min(timed(|| {
            black_box(reference());
        }));
        for ((_, step), fastest) in steps.iter_mut().zip(&mut fastest) {
            *fastest = (*fastest).min(timed(step));
        }
    }
    let names = steps.iter().map(|(name, _)| (*name).to_owned());
    let ratio = |time: &Duration| time.as_secs_f64() / unit.as_secs_f64();
    names.zip(fastest.iter().map(ratio)).collect()
}

criterion_group!(benches, core);
criterion_main!(benches);
