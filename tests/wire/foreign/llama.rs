//! A real model, small enough for any machine, behind llama.cpp's own server.

use super::need;
use crate::common;
use crate::draft::{self, ANSWER, Model};
use crate::support::PATIENCE;
use crate::support::live::serve;
use crate::support::program::{Program, ask, command, until};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::IntoResponse;
use futures_util::StreamExt;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
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

/// Runs the server, with or without `--jinja`. Dropping it ends the server.
async fn llama(jinja: bool) -> (Child, String) {
    let mut process = Command::new(need(".venv-llama/bin/python"))
        .arg(need("llama.py"))
        .args((!jinja).then_some("--no-jinja"))
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

/// The bodies of all answers of a server, as it sent them.
type Answers = Arc<Mutex<Vec<String>>>;

/// A proxy in front of the server, which keeps what it answers.
async fn overheard(address: &str) -> (String, Answers) {
    let answers = Answers::default();
    let (kept, server) = (answers.clone(), address.to_owned());
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let pass = async move |request: Request| {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        let path = head.uri.path_and_query().expect("a path");
        let passed = client
            .request(head.method, format!("{server}{path}"))
            .header("content-type", "application/json")
            .body(body);
        let answer = passed.send().await.expect("an answer");
        let status = answer.status();
        let at = {
            let mut kept = kept.lock().expect("the answers");
            kept.push(String::new());
            kept.len() - 1
        };
        let pieces = answer.bytes_stream().inspect(move |piece| {
            if let Ok(piece) = piece {
                kept.lock().expect("the answers")[at].push_str(&String::from_utf8_lossy(piece));
            }
        });
        (
            status,
            [("content-type", "text/event-stream")],
            Body::from_stream(pieces),
        )
            .into_response()
    };
    let routes = Router::new().fallback(pass);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, answers)
}

/// The text and the arguments of calls in an answer, and whether it ended by itself.
fn written(answer: &str) -> (String, bool) {
    let mut text = String::new();
    let mut has_ended = false;
    let data = answer
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    for event in data.filter_map(|data| serde_json::from_str::<Value>(data).ok()) {
        let (delta, choice) = (&event["delta"], &event["choices"][0]);
        let function = &choice["delta"]["tool_calls"][0]["function"];
        let parts = [
            &delta["text"],
            &delta["partial_json"],
            &event["content_block"]["name"],
            &choice["delta"]["content"],
            &function["name"],
            &function["arguments"],
        ];
        text.extend(parts.into_iter().filter_map(Value::as_str));
        let reasons = [&choice["finish_reason"], &delta["stop_reason"]];
        let whole = ["stop", "tool_calls", "end_turn", "tool_use"];
        let mut reasons = reasons.into_iter().filter_map(Value::as_str);
        has_ended |= reasons.any(|reason| whole.contains(&reason));
    }
    (text, has_ended)
}

/// The calls that were committed: the tools and their arguments.
fn commits(events: &[Value]) -> Vec<(String, Value)> {
    let done = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done");
    let calls = done
        .map(|event| &event["item"])
        .filter(|item| item["type"] == "mcp_call");
    let read = |item: &Value| {
        let arguments = item["arguments"].as_str().expect("arguments");
        let arguments = serde_json::from_str(arguments).expect("an object");
        (item["name"].as_str().expect("a name").to_owned(), arguments)
    };
    calls.map(read).collect()
}

/// Asserts that the model wrote this call, to its end: its name and each of its values.
fn was_written(call: &(String, Value), answers: &Answers, name: &str) {
    let (tool, arguments) = call;
    let values: Vec<String> = arguments
        .as_object()
        .expect("an object")
        .values()
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
        .collect();
    let answers = answers.lock().expect("the answers");
    let is_it = |answer: &&String| {
        let (text, has_ended) = written(answer);
        let called = text.rfind(tool.as_str());
        let closes =
            called.is_some_and(|at| text[at..].contains(")</tool>") || text[at..].contains('}'));
        called.is_some() && values.iter().all(|value| text.contains(value)) && (has_ended || closes)
    };
    assert!(
        answers.iter().any(|answer| is_it(&answer)),
        "{name}: {call:?} was never written: {answers:?}"
    );
}

/// A model of this size makes many mistakes. None of them may be heard as a tag, commit a call that it has not
/// written, end the session, or keep the next question from an answer.
#[tokio::test]
#[ignore = "a model of 100 MB: `make verify` installs and runs it"]
async fn a_small_model_holds_ten_turns_in_every_dialect() {
    for jinja in [true, false] {
        let (_llama, address) = llama(jinja).await;
        for engine in ["openai-compatible", "anthropic"] {
            for calls in ["markup", "native"] {
                let name = format!("{engine}, {calls}, jinja {jinja}");
                ten_turns(&name, &address, engine, calls, jinja || calls == "markup").await;
            }
        }
    }
}

/// Ten turns. A server that refuses tools is never ready, and every turn is an apology.
async fn ten_turns(name: &str, address: &str, engine: &str, calls: &str, works: bool) {
    let (address, answers) = overheard(address).await;
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
    if works {
        // The warm-up reads the whole system prompt.
        until(async || (program.get("/readyz", None).await.0 == 200).then_some(())).await;
    } else {
        let is_told = async || {
            program
                .get("/readyz", None)
                .await
                .1
                .contains("(status 500)")
        };
        until(async || is_told().await.then_some(())).await;
    }
    let mut client = program.open(None).await.expect("a session");
    let (mut words, mut committed) = (0, 0);
    for question in QUESTIONS {
        ask(&mut client, question).await;
        let answered = timeout(LONGEST * PATIENCE, client.until("response.done")).await;
        let events = answered.expect("in time");
        let said = transcripts(&events);
        println!("{name}: {question} -> {said}");
        assert!(!said.contains(['<', '>', '{']), "{name}: {said}");
        let status = &events.last().expect("an event")["response"]["status"];
        assert_eq!(status == "failed", !works, "{name}: {question}");
        for call in commits(&events) {
            println!("{name}: committed {} with {}", call.0, call.1);
            was_written(&call, &answers, name);
            committed += 1;
        }
        words += said.split_whitespace().count();
    }
    println!("{name}: {words} words, {committed} calls committed");
    assert!(words > 0, "{name}: not a word");
    assert!(works || committed == 0, "{name}");
    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(log.contains("--jinja"), !works, "{log}");
}

/// The probe's report of this server.
async fn probed(address: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = format!(
        "[llm]\nengine = \"openai-compatible\"\nbase_url = \"{address}/v1\"\nmodel = \"smollm2\"\n"
    );
    std::fs::write(folder.path().join("undertone.toml"), settings).expect("written");
    let probe = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .arg("probe")
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let done = timeout(4 * LONGEST * PATIENCE, probe)
        .await
        .expect("in time");
    let output = done.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let (report, errors) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{report}{errors}");
    println!("{report}");
    report
}

/// The server that llama.py starts: 8,192 tokens, one slot, a template without tools.
#[tokio::test]
#[ignore = "a model of 100 MB: `make verify` installs and runs it"]
async fn the_probe_tells_the_truth_about_llama_cpp() {
    for jinja in [true, false] {
        let (_llama, address) = llama(jinja).await;
        let report = probed(&address).await;
        let fact = |name: &str| {
            let line = report.lines().find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("no line {name}: {report}"))[name.len()..].trim()
        };
        assert_eq!(
            fact("llama.cpp's server"),
            "8192 tokens of context, streams at the same time: 1"
        );
        assert!(fact("context").contains("arrives whole"), "{report}");
        assert!(fact("two streams at once").contains("one slot"), "{report}");
        assert_eq!(fact("hanging up"), "stops the server");
        assert!(fact("WARNING").contains("no tools"), "{report}");
        assert!(report.contains("assumed_per_turn = 0"), "{report}");
        let (cached, all) = fact("prompt cache").split_once(" of ").expect("counts");
        let all = all.split(' ').next().expect("a count");
        let [cached, all] = [cached, all].map(|count| count.parse::<u64>().expect("a number"));
        assert!(cached * 10 > all * 9, "{report}");
        let failed = fact("failed requests")
            .split_whitespace()
            .last()
            .expect("a count");
        match jinja {
            true => assert_eq!(failed, "0", "{report}"),
            false => {
                assert_eq!(failed, "19", "{report}");
                assert!(fact("failure (native)").contains("--jinja"), "{report}");
                assert!(report.contains("calls = \"markup\""), "{report}");
            }
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
    let (_llama, address) = llama(true).await;
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
