//! Benchmarks the prediction of calls from the calls before them, with more than 1,000 patterns.
//!
//! `cargo bench --bench patterns`. The line at the end gives the 99th percentile over points in conversations, each in its
//! fastest round: slower rounds measure the machine's other work.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use jiff::civil::{Date, date};
use serde_json::{Map, Value, json};
use undertone::prediction::patterns::{Happened, PastConversation, Trail, learnt};

const TODAY: Date = date(2026, 3, 17);
const TOOLS: usize = 40;
const TALKS: usize = 120;
const ROUNDS: usize = 50;

/// Conversations of some calls each, whose arguments come from words, arguments and results.
fn talks() -> Vec<PastConversation> {
    let talk = |number: usize| {
        let code = format!("AB{number:04}");
        let mut happened = vec![Happened::Said(format!(
            "Hello, it is about my order {code}, please."
        ))];
        for step in 0..5 {
            let tool = format!("tool_{}", (number * 7 + step * step * 3) % TOOLS);
            let mut arguments = Map::new();
            arguments.insert("code".into(), code.clone().into());
            arguments.insert("item".into(), format!("IT{}", number * 10 + step).into());
            happened.push(Happened::Called(tool, arguments));
            let items: Vec<Value> = (0..20)
                .map(
                    |at| json!({ "id": format!("IT{}", number * 10 + step + 1 + at), "price": at }),
                )
                .collect();
            happened.push(Happened::Resulted(json!({ "order": code, "items": items })));
            if step == 2 {
                happened.push(Happened::Said("And what about the other one?".into()));
            }
        }
        PastConversation {
            task: code,
            day: TODAY,
            happened,
        }
    };
    (0..TALKS).map(talk).collect()
}

/// The current time.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

fn patterns(c: &mut Criterion) {
    let talks = talks();
    let schemas = PastConversation::schemas(&talks);
    let patterns = learnt(&talks, &schemas);
    assert!(patterns.len() >= 1_000, "{} patterns", patterns.len());
    let mut trail = Trail::new(TODAY);
    for happened in &talks[0].happened[..5] {
        match happened {
            Happened::Said(words) => trail.said(words),
            Happened::Called(tool, arguments) => trail.called(&schemas, tool, arguments),
            Happened::Resulted(result) => trail.resulted(result),
        }
    }
    c.bench_function("patterns", |b| {
        b.iter(|| patterns.predict(black_box(&trail), &schemas, |_| true, 3));
    });
    let mut fastest = Vec::new();
    for talk in &talks {
        talk.follow(&schemas, |trail, _, _| {
            let once = |_| {
                let start = now();
                black_box(patterns.predict(black_box(trail), &schemas, |_| true, 3));
                start.elapsed()
            };
            fastest.push((0..ROUNDS).map(once).min().unwrap_or(Duration::MAX));
        });
    }
    fastest.sort_unstable();
    let p99 = fastest[fastest.len() * 99 / 100].as_secs_f64() * 1e6;
    println!(
        "{} patterns: p99 {p99:.1} us over {} points",
        patterns.len(),
        fastest.len()
    );
}

criterion_group!(benches, patterns);
criterion_main!(benches);
