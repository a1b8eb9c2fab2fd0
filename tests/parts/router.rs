//! Tests the router as users train it, with its own command.
//!
//! The published sets, CLINC150 and SNIPS, are in `../shared/data/router` or `UNDERTONE_DATA`.
//! `make measure` measures a part of them, `cargo test --release --test parts router:: --
//! --ignored` all.

use crate::common;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use undertone::prediction::{
    Embedder, Evidence, Heads, Intents, Prediction, Router, RouterHints, Rules, Source, Today,
};
use undertone::tools::{Declaration, Effect, ToolSpec};

fn undertone(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .env("UNDERTONE_MODELS__DIR", common::weights())
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn evaluate(data: &Path, curve: &str) -> Value {
    let head = data.with_extension("head.json");
    let (data, head) = (data.to_str().unwrap(), head.to_str().unwrap());
    undertone(&["router", "train", data, "--out", head]);
    let report = undertone(&[
        "router", "eval", data, "--head", head, "--curve", curve, "--json",
    ]);
    serde_json::from_str(&report).unwrap()
}

/// Our own requests and sentences that ask for nothing; two fifths of them are for measuring.
pub(super) const REQUESTS: &str = include_str!("requests.jsonl");

fn share(report: &Value, set: usize, figure: &str) -> f64 {
    report["sets"][set]
        .pointer(figure)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no {figure} in {report}"))
}

#[track_caller]
fn at_least(report: &Value, set: usize, figure: &str, least: f64) {
    let share = share(report, set, figure);
    assert!(
        share >= least,
        "{figure} is {share}, wanted {least}: {report:#}"
    );
}

/// Every eighth intent of CLINC150, complete, with its out-of-scope sentences.
fn some_of_clinc(folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(common::data("router").join("clinc150.json")).unwrap();
    let mut parts: BTreeMap<String, Vec<(String, String)>> = serde_json::from_str(&text).unwrap();
    let mut intents: Vec<String> = parts["train"].iter().map(|pair| pair.1.clone()).collect();
    intents.sort();
    intents.dedup();
    let kept: Vec<String> = intents.into_iter().step_by(8).collect();
    for pairs in parts.values_mut() {
        pairs.retain(|(_, intent)| intent == "oos" || kept.contains(intent));
    }
    let path = folder.join("clinc.json");
    std::fs::write(&path, serde_json::to_string(&parts).unwrap()).unwrap();
    path
}

/// The first examples of each SNIPS intent.
fn some_of_snips(folder: &Path, most: usize) -> PathBuf {
    let path = folder.join("snips");
    std::fs::create_dir_all(&path).unwrap();
    for entry in common::data("router/snips").read_dir().unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let mut lists: BTreeMap<String, Vec<Value>> = serde_json::from_str(&text).unwrap();
        lists.values_mut().for_each(|list| list.truncate(most));
        let text = serde_json::to_string(&lists).unwrap();
        std::fs::write(path.join(entry.file_name()), text).unwrap();
    }
    path
}

/// Measured: all 110 requests correct, all others rejected, F1 0.81. Rounding changes these little;
/// the bounds leave room for five requests.
#[test]
fn our_own_requests_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let requests = folder.path().join("requests.jsonl");
    std::fs::write(&requests, REQUESTS).unwrap();
    let report = evaluate(&requests, "40");
    at_least(&report, 0, "/accuracy", 0.95);
    at_least(&report, 0, "/rejected_at_90", 0.9);
    at_least(&report, 0, "/slots/f1", 0.7);
    grows_with_the_sentence(&report);
}

/// Asserts that accuracy grows with the part of the sentence that is heard.
fn grows_with_the_sentence(report: &Value) {
    let curve = report["sets"][0]["curve"].as_array().unwrap();
    let right = |at: usize| curve[at]["accuracy"].as_f64().unwrap();
    assert_eq!(curve.len(), 10);
    assert!(right(0) + 0.3 < right(9), "{curve:#?}");
}

/// With a line more, all examples were measured, those of the training too.
#[test]
fn a_head_is_not_measured_on_the_examples_of_its_training() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (mine, other, head) = (path("mine.jsonl"), path("other.jsonl"), path("head.json"));
    let without_split = |line: &str| {
        let mut example: Map<String, Value> = serde_json::from_str(line).unwrap();
        example.remove("split");
        format!("{}\n", Value::Object(example))
    };
    let known: String = REQUESTS.lines().map(without_split).collect();
    std::fs::write(&mine, &known).unwrap();
    undertone(&["router", "train", &mine, "--out", &head]);
    let more = "{\"text\": \"how cold is it in Bergen\", \"intent\": \"get_weather\"}\n";
    std::fs::write(&mine, known + more).unwrap();
    std::fs::write(&other, more).unwrap();
    let measured = |data: &str| {
        let report = undertone(&[
            "router", "eval", data, "--head", &head, "--curve", "0", "--json",
        ]);
        let report: Value = serde_json::from_str(&report).unwrap();
        let count = |figure: &str| report["sets"][0][figure].as_u64().unwrap();
        count("requests") + count("nothing")
    };
    let tenth = measured(&mine);
    assert!((18..=72).contains(&tenth), "{tenth} of 361");
    assert_eq!(measured(&other), 1, "another set is measured whole");
}

#[test]
#[ignore = "measures published sets: make measure"]
fn a_part_of_the_published_sets_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let report = evaluate(&some_of_clinc(folder.path()), "20");
    at_least(&report, 0, "/accuracy", 0.96);
    at_least(&report, 0, "/rejected_at_90", 0.93);
    grows_with_the_sentence(&report);

    let report = evaluate(&some_of_snips(folder.path(), 150), "0");
    at_least(&report, 0, "/accuracy", 0.96);
    at_least(&report, 0, "/slots/f1", 0.7);
}

#[test]
#[ignore = "takes minutes: cargo test --release --test parts router:: -- --ignored"]
fn clinc150_and_snips_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let clinc = folder.path().join("clinc150.json");
    std::fs::copy(common::data("router").join("clinc150.json"), &clinc).unwrap();
    let report = evaluate(&clinc, "300");
    at_least(&report, 0, "/accuracy", 0.96);
    at_least(&report, 0, "/rejected_at_90", 0.93);
    let report = evaluate(&some_of_snips(folder.path(), usize::MAX), "0");
    at_least(&report, 0, "/accuracy", 0.98);
    at_least(&report, 0, "/slots/f1", 0.85);
}

const CITIES: [&str; 8] = [
    "Rome",
    "New York",
    "Boulder",
    "Tokyo",
    "San Diego",
    "Paris",
    "Oslo",
    "Los Angeles",
];

/// A user's examples for two tools, one of them with annotated slots.
fn own_examples() -> String {
    let weather = [
        "what's the weather in {}",
        "is it raining in {} right now",
        "how warm is it in {}",
        "will I need an umbrella in {}",
        "tell me the forecast for {} please",
    ];
    let music = [
        "play some jazz",
        "put on my workout playlist",
        "I want to hear the Beatles",
        "start the radio",
        "play something quiet",
        "can you put some music on",
        "play the next song",
        "play that album again",
        "turn on some music",
        "I'd like to listen to Mozart",
    ];
    let mut lines = Vec::new();
    for pattern in weather {
        for city in CITIES {
            let text = pattern.replace("{}", city);
            lines.push(json!({"text": text, "intent": "get_weather", "slots": {"city": city}}));
        }
    }
    lines.extend(music.map(|text| json!({"text": text, "intent": "play_music"})));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn tools() -> Vec<(Arc<Declaration>, RouterHints)> {
    let declare = |name: &str, properties: Value, required: &[&str]| {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": properties, "required": required}),
        };
        Arc::new(Declaration::new(spec, Effect::Read, Duration::from_secs(5)))
    };
    let rule = r"\bweather (?:like )?in (?P<city>.+)$";
    let hints = RouterHints {
        rules: vec![rule.into()],
        ..RouterHints::default()
    };
    let weather = declare(
        "get_weather",
        json!({"city": {"type": "string"}}),
        &["city"],
    );
    let music = declare("play_music", json!({}), &[]);
    vec![(weather, hints), (music, RouterHints::default())]
}

fn router_of_own_examples() -> Router {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("mine.jsonl");
    std::fs::write(&data, own_examples()).unwrap();
    let head = folder.path().join("head.json");
    let (data, out) = (data.to_str().unwrap(), head.to_str().unwrap());
    undertone(&["router", "train", data, "--out", out]);
    assert!(std::fs::metadata(&head).unwrap().len() < 1_000_000);
    let heads = Heads::load(&head).unwrap().heads;
    let embedder = Embedder::load(&common::weights().join("minilm")).unwrap();
    let tools = tools();
    Router::new(vec![
        Box::new(Rules::new(&tools, Today::default()).unwrap()),
        Box::new(Intents::new(embedder, heads, &tools, Today::default())),
    ])
}

fn hear(router: &mut Router, text: &str, paused: bool) -> Option<Prediction> {
    let heard = Evidence {
        text: text.into(),
        paused,
        ..Evidence::default()
    };
    router.predict(&heard).into_iter().next()
}

fn city(name: &str) -> Map<String, Value> {
    Map::from_iter([("city".to_owned(), json!(name))])
}

#[test]
fn own_examples_and_rules_predict_calls() {
    let mut router = router_of_own_examples();
    let both = hear(&mut router, "What's the weather in Boston?", true).unwrap();
    assert_eq!(
        (both.tool.as_str(), &both.arguments),
        ("get_weather", &city("Boston"))
    );
    assert_eq!(both.source, Source::Rule);
    assert!(both.confidence > 0.9, "{both:?}");

    // No rule matches this.
    let asked = hear(&mut router, "Will it be raining in San Francisco?", true).unwrap();
    assert_eq!(
        (asked.tool.as_str(), &asked.arguments),
        ("get_weather", &city("San Francisco"))
    );
    assert_eq!(asked.source, Source::Intent);
    assert!(asked.confidence > 0.5, "{asked:?}");

    let music = hear(&mut router, "could you play some rock music", true).unwrap();
    assert_eq!(music.tool, "play_music");
    assert!(music.confidence > 0.5, "{music:?}");
}

#[test]
fn sentences_that_ask_for_nothing_start_nothing() {
    let mut router = router_of_own_examples();
    for text in [
        "",
        "thanks, that was nice",
        "I was in Rome last summer",
        "my sister told me about her new job",
        "I don't want to know the weather in Rome",
        "what is the capital of France",
    ] {
        let likely = hear(&mut router, text, true).filter(|one| one.confidence >= 0.5);
        assert_eq!(likely, None, "{text}");
    }
}

#[test]
fn a_call_is_predicted_before_the_sentence_ends_and_waits_for_a_growing_place() {
    let mut router = router_of_own_examples();
    let words = "what is the weather in new";
    let early = hear(&mut router, words, false);
    assert!(early.is_none_or(|one| one.arguments != city("New York")));
    let known = hear(&mut router, "what is the weather in New York", false).unwrap();
    assert_eq!(known.arguments, city("New York"));
    assert!(known.confidence > 0.5, "{known:?}");
}

/// The README's declaration of a tool.
fn readmes_tool() -> &'static str {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```toml\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    blocks
        .find(|block| block.starts_with("name = \"get_stock\""))
        .expect("a tool in the README")
}

/// The output of `router try` for words, if this is the only declared tool.
fn tried(declaration: &str, words: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    std::fs::write(tools.join("stock.toml"), declaration).unwrap();
    let config = folder.path().join("undertone.toml");
    std::fs::write(&config, "[tools]\nfolder = \"tools\"\n").unwrap();
    let config = config.to_str().unwrap();
    serde_json::from_str(&undertone(&[
        "router", "try", words, "--json", "--config", config,
    ]))
    .unwrap()
}

#[test]
fn the_readmes_tool_runs_early_and_a_missing_line_is_named() {
    let words = "Do you still have coffee tables?";
    let tool = readmes_tool();
    let report = tried(tool, words);
    let call = &report["calls"][0];
    assert_eq!(
        call["arguments"],
        json!({"article": "coffee tables"}),
        "{report:#}"
    );
    assert_eq!(call["runs_early"], true, "{report:#}");
    assert_eq!(call["sources"][0][0], "example", "{report:#}");
    for line in ["allow = \"full\"", "network = true"] {
        let without: Vec<&str> = tool.lines().filter(|one| !one.starts_with(line)).collect();
        let report = tried(&without.join("\n"), words);
        let call = &report["calls"][0];
        assert_eq!(call["runs_early"], false, "{report:#}");
        let because = call["because"].to_string();
        assert!(
            because.contains(&line.replace('"', "\\\"")),
            "{line}: {because}"
        );
        assert!(because.contains("stock.toml"), "{because}");
    }
    let report = tried(tool, "I don't need any coffee tables.");
    assert_eq!(report["meant"], "a statement or a refusal", "{report:#}");
    let early = |call: &Value| call["runs_early"] == true;
    assert!(
        !report["calls"].as_array().unwrap().iter().any(early),
        "{report:#}"
    );
}

/// Its operator was told to let it use the network.
#[test]
fn a_program_may_run_early_if_it_uses_no_network() {
    let program = "name = \"probe\"\nkind = \"subprocess\"\ndescription = \"Probes the line.\"\neffect = \"read\"\n\
                   [router]\nexamples = [\"probe the line\"]\n[speculation]\nallow = \"full\"\n\
                   [subprocess]\nargv = [\"true\"]\n";
    let tried = |program: &str| tried(program, "probe the line")["calls"][0].clone();
    let call = tried(program);
    let because = call["because"].to_string();
    assert!(
        because.contains("network = false under [subprocess]"),
        "{call}"
    );
    let call = tried(&format!("{program}network = false\n"));
    assert!(!call["because"].to_string().contains("network"), "{call}");
}

#[test]
fn words_are_tried_in_the_language_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("undertone.toml");
    let tried = |language: &str| -> Value {
        let text = format!("[session]\nlanguage = \"{language}\"\n[tools]\nfolder = \"\"\n");
        std::fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        let words = "Wie spät ist es in Tokio?";
        let report = undertone(&["router", "try", words, "--json", "--config", config]);
        serde_json::from_str(&report).unwrap()
    };
    let is_early = |call: &Value| call["tool"] == "get_time" && call["runs_early"] == true;
    for (language, expected) in [("de", true), ("en", false)] {
        let report = tried(language);
        let mut calls = report["calls"].as_array().unwrap().iter();
        assert_eq!(calls.any(is_early), expected, "{language}: {report:#}");
    }
}

/// Sentences of CLINC150 that ask for other things, beside the newcomers' tools: how many run one early.
#[test]
#[ignore = "measures a published set: make measure"]
fn published_requests_for_other_things_run_few_newcomers_tools() {
    let all: toml::Table = toml::from_str(include_str!("newcomers.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (at, tool) in all["tool"].as_array().unwrap().iter().enumerate() {
        let declaration = tool["declaration"].as_str().unwrap();
        std::fs::write(folder.path().join(format!("{at}.toml")), declaration).unwrap();
    }
    let declared = undertone::tools::declared::load(folder.path(), &|_| None).unwrap();
    let names: Vec<String> = declared
        .iter()
        .map(|one| one.declaration.spec.name.clone())
        .collect();
    let registry = undertone::tools::declared::registry(&declared).unwrap();
    let tools = registry.declarations().into_iter().map(|tool| {
        let hints = registry.hints(&tool.spec.name).cloned();
        (tool, hints.unwrap_or_default())
    });
    let files = undertone::prediction::ExampleFiles {
        embedder: common::weights().join("minilm"),
        cache: None,
    };
    let tools: Vec<_> = tools.collect();
    let mut matching = undertone::prediction::Matching::start(&tools, files, Today::default());
    matching.wait();
    let text = std::fs::read_to_string(common::data("router").join("clinc150.json")).unwrap();
    let parts: BTreeMap<String, Vec<(String, String)>> = serde_json::from_str(&text).unwrap();
    let asked: Vec<&(String, String)> = parts["val"]
        .iter()
        .chain(&parts["oos_val"])
        .step_by(2)
        .collect();
    let mut early = Vec::new();
    let mut router = Router::new(vec![Box::new(matching)]);
    let mut slowest = Duration::ZERO;
    let begun = crate::support::now();
    for (said, intent) in &asked {
        let start = crate::support::now();
        let found = hear(&mut router, said, true);
        slowest = slowest.max(start.elapsed());
        let likely = found.filter(|one| one.confidence >= 0.5 && names.contains(&one.tool));
        early.extend(
            likely.map(|one| format!("{intent}: {said} -> {} {:?}", one.tool, one.arguments)),
        );
    }
    let mean = begun.elapsed() / asked.len() as u32;
    println!(
        "{} of {} run a newcomer's tool: {early:#?}",
        early.len(),
        asked.len()
    );
    println!("a prediction takes {mean:?}, at most {slowest:?}");
    assert!(
        early.len() * 30 < asked.len(),
        "{} of {}",
        early.len(),
        asked.len()
    );
}

#[test]
fn unreadable_data_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("mine.jsonl");
    std::fs::write(&data, "{\"text\": \"hi\", \"intent\": 7}\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .env("UNDERTONE_MODELS__DIR", common::weights())
        .args([
            "router",
            "train",
            data.to_str().unwrap(),
            "--out",
            "/dev/null",
        ])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("mine.jsonl") && errors.contains("line 1"),
        "{errors}"
    );
}
