//! A real model, small enough for any machine, behind llama.cpp's own server.

use super::need;
use crate::common;
use crate::draft::{self, ANSWER, Model};
use crate::support::PATIENCE;
use crate::support::live::serve;
use crate::support::program::{Program, ask, command, until};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use undertone::llm::remote::Settings;
use undertone::llm::{Llm, Prompts, Remote};

const QUESTIONS: [&str; 10] = [
    "Hello there.",
    "What is the capital of France?",
    "Why is the sky blue?",
    "What time is it?",
    "Tell me a short joke.",
    "What is twelve times seven?",
    "Who are you?",
    "Name three colours.",
    "Can you set a timer for two minutes?",
    "Thank you, goodbye.",
];

/// The longest answer: two cores, and a prompt that no cache holds.
const LONGEST: u32 = 10;

/// Runs the server. Dropping it ends the server.
async fn llama() -> (Child, String) {
    let mut process = Command::new(need(".venv-llama/bin/python"))
        .arg(need("llama.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let first = timeout(6 * PATIENCE, lines.next_line()).await;
    let address = first.expect("in time").expect("text").expect("an address");
    (process, address)
}

/// A model of this size makes many mistakes. None of them may be heard as a tag, end the session, or keep the
/// next question from an answer.
#[tokio::test]
#[ignore = "a model of 100 MB: `make verify` installs and runs it"]
async fn a_small_model_holds_ten_turns_in_every_dialect() {
    let (_llama, address) = llama().await;
    for engine in ["openai-compatible", "anthropic"] {
        for calls in ["markup", "native"] {
            let name = format!("{engine}, {calls}");
            let folder = tempfile::tempdir().expect("a folder");
            let settings = format!(
                "[server]\nport = 0\n[llm]\nengine = \"{engine}\"\nbase_url = \"{address}/v1\"\n\
                 model = \"smollm2\"\ncalls = \"{calls}\"\nmax_tokens = 60\ngive_up_ms = 120000\n\
                 think_ms = 600000\n[tools]\njournal = \"journal.jsonl\"\n"
            );
            std::fs::write(folder.path().join("undertone.toml"), settings).expect("written");
            let log = File::create(folder.path().join("log")).expect("a log");
            let mut command = command(folder.path(), &common::weights(), "");
            command.stderr(log);
            let program = Program::start(command).await;
            // The warm-up reads the whole system prompt.
            until(async || (program.get("/readyz", None).await.0 == 200).then_some(())).await;
            let mut client = program.open(None).await.expect("a session");
            let mut words = 0;
            for question in QUESTIONS {
                ask(&mut client, question).await;
                let answered = timeout(LONGEST * PATIENCE, client.until("response.done")).await;
                let events = answered.expect("in time");
                let said = transcripts(&events);
                println!("{name}: {question} -> {said}");
                assert!(!said.contains(['<', '>', '{']), "{name}: {said}");
                let status = &events.last().expect("an event")["response"]["status"];
                assert_ne!(status, "failed", "{name}: {question}");
                words += said.split_whitespace().count();
            }
            assert!(words > 0, "{name}: not a word");
            let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
            assert!(!log.contains("panicked"), "{log}");
        }
    }
}

fn transcripts(events: &[Value]) -> String {
    let is_transcript = |event: &&Value| event["type"] == "response.output_audio_transcript.done";
    let texts = events.iter().filter(is_transcript);
    let texts: Vec<_> = texts.filter_map(|e| e["transcript"].as_str()).collect();
    texts.join(" ")
}

/// Only these answers, so that two of three samples agree whatever the model makes of them.
const EITHER_CALL: &str =
    r#"root ::= "<tool>calculate(expression=\"" ("6*7" | "9*9") "\")</tool>""#;

/// A real model as the draft: its samples become calls of the conversation, are given up when the model answers
/// without one, and are asked for again in the next turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a model of 100 MB: `make verify` installs and runs it"]
async fn a_small_model_drafts_the_calls_of_another() {
    let (_llama, address) = llama().await;
    let url = format!("{address}/v1").parse().expect("an address");
    let settings = Settings {
        temperature: Some(1.0),
        extra_body: Map::from_iter([("grammar".to_owned(), json!(EITHER_CALL))]),
        ..Settings::new(url, "smollm2")
    };
    let small = Remote::new(settings, Prompts::default()).expect("a client");
    let small: Arc<dyn Llm> = Arc::new(small);
    let mut main = Model::in_markup();
    let server = serve(draft::engines(&main, &small, draft::free()));
    let mut call = draft::call(&server).await;
    for turn in 0..3 {
        draft::ask(&mut call).await;
        let asked = main.next().await;
        if turn == 1 {
            asked
                .write("<speech>I would rather not. It is late.</speech>")
                .await;
            drop(asked);
            let (record, _) = draft::record(&mut call).await;
            println!("given up: {}", record["drafts"]);
            continue;
        }
        let started = draft::speculation(&mut call, "started").await;
        let expression = started["arguments"]["expression"].as_str();
        let expression = expression.expect("an expression");
        asked
            .write(&format!(
                "<tool>calculate(expression=\"{expression}\")</tool>"
            ))
            .await;
        drop(asked);
        main.next().await.write(ANSWER).await;
        let (record, _) = draft::record(&mut call).await;
        println!("drafted {expression}: {}", record["drafts"]);
        let run = &record["runs"][0];
        assert_eq!(
            (&run["source"], &run["fate"]["kind"]),
            (&json!("draft"), &json!("committed"))
        );
        let drafted = &record["drafts"][0];
        assert_eq!(drafted["accepted"], true, "{drafted}");
        assert!(drafted["calls"].as_u64() >= Some(2), "{drafted}");
        assert!(drafted["usage"]["output"].as_u64() > Some(0), "{drafted}");
    }
}
