//! Trains the head that tells finished requests from their beginnings (`models/endings.bin`), and
//! measures it on intents that it was not trained on.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use undertone::dice::Dice;
use undertone::language::en::endings::{Head, features};

/// A text, what it is about, and whether it is finished.
struct Example {
    text: String,
    intent: String,
    finished: bool,
}

/// The examples of an intent of which one is held out.
const HELD_OUT: usize = 4;
/// A feature in fewer texts tells nothing yet.
const LEAST_TEXTS: u32 = 4;
const PASSES: usize = 6;
const BATCH: usize = 64;
const RATE: f32 = 0.15;

/// The requests of CLINC150 and SNIPS, each once.
fn requests() -> BTreeMap<String, String> {
    let folder = common::data("router");
    let json = |path: &std::path::Path| -> serde_json::Value {
        let bytes = std::fs::read(path).unwrap();
        serde_json::from_str(&String::from_utf8_lossy(&bytes)).unwrap()
    };
    let mut requests = BTreeMap::new();
    let clinc = json(&folder.join("clinc150.json"));
    for part in ["train", "val"] {
        for pair in clinc[part].as_array().unwrap() {
            let text = plain(pair[0].as_str().unwrap());
            requests
                .entry(text)
                .or_insert(pair[1].as_str().unwrap().to_owned());
        }
    }
    for entry in folder.join("snips").read_dir().unwrap() {
        let path = entry.unwrap().path();
        for (intent, examples) in json(&path).as_object().unwrap() {
            for example in examples.as_array().unwrap() {
                let parts = example["data"].as_array().unwrap();
                let text: String = parts
                    .iter()
                    .map(|part| part["text"].as_str().unwrap())
                    .collect();
                requests.entry(plain(&text)).or_insert(intent.clone());
            }
        }
    }
    requests.retain(|text, _| (1..=25).contains(&text.split(' ').count()) && !text.is_empty());
    requests
}

/// Lower case and single spaces, without marks, as one sentence.
fn plain(text: &str) -> String {
    let kept: String = text
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '\'' {
                c
            } else {
                ' '
            }
        })
        .collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every request, and three of its beginnings that are not requests themselves.
fn examples(requests: &BTreeMap<String, String>) -> Vec<Example> {
    let mut dice = Dice::new(0x9E37_79B9_7F4A_7C15);
    let mut examples = Vec::new();
    for (text, intent) in requests {
        let mut example = |text: String, finished| {
            examples.push(Example {
                text,
                intent: intent.clone(),
                finished,
            });
        };
        example(text.clone(), true);
        let words: Vec<&str> = text.split(' ').collect();
        let mut cuts: Vec<String> = (1..words.len())
            .map(|count| words[..count].join(" "))
            .filter(|cut| !requests.contains_key(cut))
            .collect();
        dice.shuffle(&mut cuts);
        cuts.truncate(3);
        cuts.into_iter().for_each(|cut| example(cut, false));
    }
    examples
}

/// Logistic regression with AdaGrad, in which both classes weigh the same.
fn train(examples: &[&Example]) -> Head {
    let found: Vec<Vec<u32>> = examples.iter().map(|e| features(&e.text)).collect();
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for feature in found.iter().flatten() {
        *counts.entry(*feature).or_default() += 1;
    }
    let known: Vec<u32> = counts
        .into_iter()
        .filter(|(_, count)| *count >= LEAST_TEXTS)
        .map(|(feature, _)| feature)
        .collect();
    let rows: Vec<Vec<usize>> = found
        .iter()
        .map(|features| {
            features
                .iter()
                .filter_map(|f| known.binary_search(f).ok())
                .collect()
        })
        .collect();
    let finished = examples.iter().filter(|e| e.finished).count() as f32;
    let share = finished / examples.len() as f32;
    let (mut weights, mut history) = (vec![0.0f32; known.len()], vec![1e-6f32; known.len()]);
    let (mut bias, mut bias_history) = (0.0f32, 1e-6f32);
    let mut order: Vec<usize> = (0..examples.len()).collect();
    let mut dice = Dice::new(0x2545_F491_4F6C_DD1D);
    for pass in 0..PASSES {
        dice.shuffle(&mut order);
        let rate = RATE * (1.0 - pass as f32 / PASSES as f32);
        for batch in order.chunks(BATCH) {
            let mut slopes: BTreeMap<usize, f32> = BTreeMap::new();
            let mut bias_slope = 0.0;
            for &at in batch {
                let odds = bias + rows[at].iter().map(|&row| weights[row]).sum::<f32>();
                let wanted = f32::from(u8::from(examples[at].finished));
                let weight = if examples[at].finished {
                    0.5 / share
                } else {
                    0.5 / (1.0 - share)
                };
                let error = (1.0 / (1.0 + (-odds).exp()) - wanted) * weight / batch.len() as f32;
                bias_slope += error;
                rows[at]
                    .iter()
                    .for_each(|&row| *slopes.entry(row).or_default() += error);
            }
            bias_history += bias_slope * bias_slope;
            bias -= rate * bias_slope / bias_history.sqrt();
            for (row, slope) in slopes {
                let slope = slope + 1e-6 * weights[row];
                history[row] += slope * slope;
                weights[row] -= rate * slope / history[row].sqrt();
            }
        }
    }
    let weights: Vec<(u32, f32)> = known.into_iter().zip(weights).collect();
    Head::rounded(bias, &weights)
}

/// The share of pairs of a finished and an unfinished text in which the finished one scores higher.
fn ranked(head: &Head, examples: &[&Example]) -> f64 {
    let mut scores: Vec<(f32, bool)> = examples
        .iter()
        .map(|example| (head.score(&example.text), example.finished))
        .collect();
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut right, mut finished) = (0.0, 0.0, 0.0);
    for (_, is_finished) in scores {
        match is_finished {
            true => (right, finished) = (right + below, finished + 1.0),
            false => below += 1.0,
        }
    }
    right / (below * finished)
}

/// Trains on three quarters of the intents and measures on the others. With `UNDERTONE_WRITE_ENDINGS=1` it
/// also trains on all of them and replaces `models/endings.bin`.
#[test]
#[ignore = "measures published sets: make measure"]
fn the_endings_head_is_trained_on_published_requests() {
    let requests = requests();
    let examples = examples(&requests);
    let intents: BTreeSet<&String> = requests.values().collect();
    let held: BTreeSet<&String> = intents.into_iter().step_by(HELD_OUT).collect();
    let (tests, training): (Vec<&Example>, Vec<&Example>) = examples
        .iter()
        .partition(|example| held.contains(&example.intent));
    let right = ranked(&train(&training), &tests);
    println!(
        "{} texts, {} held out: {:.1} % of pairs",
        examples.len(),
        tests.len(),
        100.0 * right
    );
    assert!(right > 0.9, "{right}");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/endings.bin");
    if std::env::var_os("UNDERTONE_WRITE_ENDINGS").is_some() {
        let all: Vec<&Example> = examples.iter().collect();
        std::fs::write(&path, train(&all).to_bytes()).unwrap();
    }
    let shipped = Head::from_bytes(&std::fs::read(&path).unwrap()).expect("a head");
    let all: Vec<&Example> = examples.iter().collect();
    assert!(ranked(&shipped, &all) > 0.9);
}
