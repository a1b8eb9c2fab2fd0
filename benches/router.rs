//! Benchmarks the router: how long each predictor takes for a sentence.
//!
//! `cargo bench --bench router`; needs the weights in `UNDERTONE_MODELS` or `models/weights`. The
//! table at the end gives 99th percentiles, and their ratio to a fixed piece of work timed in
//! between. The ratio can be compared across machines and load.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use sha2::{Digest, Sha256};
use undertone::prediction::training::examples::{DataSet, Example, Part};
use undertone::prediction::{
    Embedder, Evidence, IntentHead, Intents, LocalPredictor, RouterHints, Rules, Today, embed_all,
};
use undertone::tools::{Declaration, Effect, Registry, ToolSpec, builtin};

/// Tools with two rules each, in addition to the built-in ones.
const TOOLS: usize = 20;
const ROUNDS: usize = 100;

const SAID: [&str; 20] = [
    "What's the weather in New York right now?",
    "um could you tell me the time in Tokyo please",
    "What is twelve times seven?",
    "How many miles are in 10 kilometers",
    "I was thinking about going to the beach with my sister, what do you think about that?",
    "Don't set a timer.",
    "set a timer for ten minutes and thirty seconds",
    "how long is left on the pasta timer",
    "I'd like to change my booking to next Friday, if there's still a seat by the window",
    "thank you",
    "is there anything good on tonight",
    "Where is my order AB-1234?",
    "no that's not what I meant, I said the other one",
    "what is",
    "what is the balance of my savings account",
    "please play something quiet from the nineties",
    "find flights from Boston to Los Angeles on March fifth",
    "hello",
    "can you remind me what we talked about yesterday",
    "lock item seven in the warehouse",
];

fn weights() -> PathBuf {
    std::env::var_os("UNDERTONE_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("models/weights"),
        PathBuf::from,
    )
}

fn tools() -> Vec<(Arc<Declaration>, RouterHints)> {
    let mut registry = Registry::new();
    builtin::register(&mut registry).expect("built-in tools");
    let builtin = registry.declarations().into_iter();
    let mut tools: Vec<_> = builtin.map(|one| (one, RouterHints::default())).collect();
    tools.extend((0..TOOLS).map(|at| {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: format!("tool_{at}"),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
        };
        let hints = RouterHints {
            rules: vec![
                format!(r"\b(?:find|show|get|look up) (?:me )?(?:the |an? )?item {at} (?:in|near) (?P<city>.+)$"),
                format!(r"\bitem {at}\b.*\bwarehouse\b"),
            ],
            ..RouterHints::default()
        };
        (Declaration::new(spec, Effect::Read, Duration::from_secs(1)).into(), hints)
    }));
    tools
}

fn heard() -> Vec<Evidence> {
    let whole = |text: &&str| Evidence {
        text: (*text).to_owned(),
        paused: true,
        ..Evidence::default()
    };
    SAID.iter().map(whole).collect()
}

/// A head with one intent per tool, about the size of a user's own.
fn intents(tools: &[(Arc<Declaration>, RouterHints)]) -> Option<Intents> {
    let folder = weights().join("minilm");
    let library = weights().join("onnxruntime/libonnxruntime.so");
    let ready = undertone::onnx::init(&library).map_err(|error| error.to_string());
    let embedder = ready
        .and_then(|()| Embedder::load(&folder).map_err(|error| error.to_string()))
        .map_err(|error| eprintln!("SKIPPED: {error}"))
        .ok()?;
    let examples = tools.iter().flat_map(|(tool, _)| {
        let name = tool.spec.name.clone();
        (0..5).map(move |at| Example {
            text: format!("{} number {at}", name.replace('_', " ")),
            intent: name.clone(),
            slots: Vec::new(),
            part: Part::Train,
        })
    });
    let set = DataSet {
        name: "bench".into(),
        examples: examples.collect(),
    };
    let head = IntentHead::train(&set, 0.9, |texts: &[String]| embed_all(&folder, texts));
    let head = head.map_err(|error| eprintln!("SKIPPED: {error}")).ok()?;
    Some(Intents::new(embedder, vec![head], tools, Today::default()))
}

/// The current time.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

/// SHA-256 of 64 KiB.
fn baseline() -> Duration {
    let bytes = vec![7u8; 64 << 10];
    let start = now();
    black_box(Sha256::digest(black_box(&bytes)));
    start.elapsed()
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Takes the fastest round of each text: slower rounds measure the machine's other work.
fn tail(name: &str, predictor: &mut dyn LocalPredictor, heard: &[Evidence]) {
    let (mut times, mut work) = (Vec::new(), Vec::new());
    let mut fastest = vec![Duration::MAX; heard.len()];
    for _ in 0..ROUNDS {
        for (heard, fastest) in heard.iter().zip(&mut fastest) {
            let start = now();
            let _ = black_box(predictor.predict(black_box(heard)));
            times.push(start.elapsed());
            *fastest = start.elapsed().min(*fastest);
        }
        work.push(baseline());
    }
    let (p99, work) = (p99(times).as_secs_f64(), p99(work).as_secs_f64());
    println!(
        "{name:<8} p99 {:>9.1} us, {:>7.3} times the baseline ({:.1} us)",
        p99 * 1e6,
        p99 / work,
        work * 1e6
    );
    let all = fastest.iter().zip(heard);
    if let Some((time, heard)) = all.max_by_key(|(time, _)| **time) {
        let micros = time.as_secs_f64() * 1e6;
        println!(
            "{name:<8} slowest {micros:>5.1} us undisturbed: {:?}",
            heard.text
        );
    }
}

fn router(c: &mut Criterion) {
    let (tools, heard) = (tools(), heard());
    let mut rules = Rules::new(&tools, Today::default()).expect("rules");
    let mut next = heard.iter().cycle();
    c.bench_function("rules", |b| {
        b.iter(|| rules.predict(black_box(next.next().expect("endless"))));
    });
    tail("rules", &mut rules, &heard);
    let Some(mut intents) = intents(&tools) else {
        return;
    };
    let mut group = c.benchmark_group("models");
    group.sample_size(20);
    group.bench_function("intents", |b| {
        b.iter(|| intents.predict(black_box(next.next().expect("endless"))));
    });
    group.finish();
    tail("intents", &mut intents, &heard);
}

criterion_group!(benches, router);
criterion_main!(benches);
