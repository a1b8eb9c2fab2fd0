//! Clients that others wrote, unmodified, against the server: the wire format is what they
//! understand, not what we think it is. `make test-tools` installs them.

use crate::support;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use support::scripted::ANSWER_FRAMES;
use support::{Script, Server, local, scripted};
use tokio::process::Command;
use undertone::server::{App, bind_audiosocket};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");

fn need(path: &str) -> PathBuf {
    let path = Path::new(FOLDER).join(path);
    assert!(
        path.exists(),
        "{} is missing: run `make test-tools`",
        path.display()
    );
    path
}

/// Half a second of a tone, then of silence.
fn speech() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for sample in [8000_i16, 0] {
        file.write_all(&sample.to_le_bytes().repeat(12_000))
            .expect("written");
    }
    file
}

/// Runs a client and returns what it reports.
async fn report(client: &mut Command) -> Value {
    let output = client
        .current_dir(FOLDER)
        .output()
        .await
        .expect("the client runs");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("a report")
}

async fn python(server: &Server, mode: &str) -> Value {
    let speech = speech();
    report(
        Command::new(need(".venv/bin/python"))
            .arg("turn.py")
            .arg(format!("http://{}/v1", server.address))
            .arg(mode)
            .arg(speech.path()),
    )
    .await
}

async fn javascript(server: &Server, mode: &str) -> Value {
    need("node_modules/@openai/agents-realtime");
    let speech = speech();
    report(
        Command::new("node")
            .arg("turn.mjs")
            .arg(format!(
                "ws://{}/v1/realtime?model=undertone",
                server.address
            ))
            .arg(mode)
            .arg(speech.path()),
    )
    .await
}

fn check_turn(report: &Value, responses: u64, calls: Value) {
    assert_eq!(
        report["transcript"], "What is the weather in Paris?",
        "{report}"
    );
    let frame = 24_000 / 50 * 2;
    assert_eq!(
        report["audio_bytes"],
        responses * ANSWER_FRAMES as u64 * frame,
        "{report}"
    );
    assert_eq!(report["responses"], responses, "{report}");
    assert_eq!(report["calls"], calls, "{report}");
}

#[tokio::test]
async fn openai_for_python_takes_a_spoken_turn() {
    let server = Server::start(Script::default()).await;
    check_turn(&python(&server, "spoken").await, 1, json!([]));
}

#[tokio::test]
async fn openai_for_python_runs_its_own_tool() {
    let server = Server::start(Script::default()).await;
    check_turn(
        &python(&server, "tool").await,
        2,
        json!([{"city": "Paris"}]),
    );
}

#[tokio::test]
async fn openai_for_python_is_not_shown_what_the_server_runs() {
    let server = Server::start(Script {
        server_tool: true,
        ..Script::default()
    })
    .await;
    let report = python(&server, "spoken").await;
    check_turn(&report, 1, json!([]));
    assert!(!report["types"].to_string().contains("mcp"), "{report}");
}

#[tokio::test]
async fn openai_agents_for_javascript_takes_a_spoken_turn() {
    let server = Server::start(Script::default()).await;
    let report = javascript(&server, "spoken").await;
    check_turn(&report, 1, json!([]));
    assert_eq!(report["agent"], "Let me see.");
}

#[tokio::test]
async fn openai_agents_for_javascript_runs_its_own_tool() {
    let server = Server::start(Script::default()).await;
    check_turn(
        &javascript(&server, "tool").await,
        2,
        json!([{"city": "Paris"}]),
    );
}

#[tokio::test]
async fn openai_agents_for_javascript_does_not_run_the_tools_of_the_server() {
    let server = Server::start(Script {
        server_tool: true,
        ..Script::default()
    })
    .await;
    let report = javascript(&server, "tool-of-server").await;
    check_turn(&report, 1, json!([]));
}

#[tokio::test]
async fn asterisk_audiosocket_for_node_takes_a_spoken_turn() {
    need("node_modules/asterisk-audiosocket");
    let listener = bind_audiosocket(([127, 0, 0, 1], 0).into()).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let _server = Server::serve(App {
        audiosocket: Some(listener),
        ..App::new(local(), scripted::factory(Script::default()))
    });
    let call = report(
        Command::new("node")
            .arg("audiosocket.mjs")
            .arg(port.to_string()),
    )
    .await;
    assert_eq!(call["odd"], 0, "{call}");
    assert_eq!(call["answer"], ANSWER_FRAMES as u64, "{call}");
    assert_eq!(call["answered"], json!([4000]), "{call}");
}
