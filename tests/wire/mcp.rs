//! Unmodified reference servers: a spoken question for the tool of one, with the shipped settings and models; and calls
//! of the others.

use crate::{common, support};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use support::live::{Call, said};
use support::mcp::Setup;
use support::program::until;
use support::{Server, local};
use undertone::metrics::Metrics;
use undertone::session::{self, Observers, SessionOptions};
use undertone::tools::{CallContext, Effect, LiveTools, Registry, SessionTools, declared};

const QUESTION: &str = "How late is it at the office in Tokyo?";

const TOOL: &str = r#"
name = "office_time"
kind = "mcp"
mcp = { server = "time", tool = "get_current_time" }
effect = "read"
timeout_ms = 60000
answer = "At the office it is {{ result.timezone }} time."

[speculation]
allow = "full"
network = true

[router]
rules = ['\bhow late is it at the office in (?P<timezone>tokyo|london)\b']
words = { timezone = { tokyo = "Asia/Tokyo", london = "Europe/London" } }
examples = ["how late is it at the office in tokyo", "how late is it at the office in london"]
"#;

/// A program that `make test-tools` installs.
fn foreign(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign");
    folder.join(name).display().to_string()
}

#[tokio::test]
async fn the_reference_servers_for_files_pages_and_time_are_pinned_and_called() {
    let site = axum::Router::new().fallback(async || "Open from nine to five.");
    let site = format!("http://{}/hours", support::serve_on_a_thread(site));
    let files = tempfile::tempdir().expect("a folder");
    let note = files.path().join("note.txt");
    std::fs::write(&note, "The code is seven.").expect("a file");
    let servers = [
        (
            "files",
            json!([
                foreign("node_modules/.bin/mcp-server-filesystem"),
                files.path()
            ]),
        ),
        (
            "web",
            json!([
                foreign(".venv/bin/mcp-server-fetch"),
                "--ignore-robots-txt",
                "--allow-private-ips"
            ]),
        ),
        ("time", json!([foreign(".venv/bin/mcp-server-time")])),
    ];
    let tables = servers.iter();
    let tables = tables.map(|(name, command)| format!("[mcp.{name}]\ncommand = {command}\n"));
    let setup = Setup::of(&tables.collect::<String>());
    let tools = [
        ("read_note", "files", "read_text_file"),
        ("write_note", "files", "write_file"),
        ("read_page", "web", "fetch"),
        ("convert_time", "time", "convert_time"),
    ];
    for (name, server, tool) in tools {
        let mcp = format!("mcp = {{ server = \"{server}\", tool = \"{tool}\" }}");
        let text = format!(
            "name = \"{name}\"\nkind = \"mcp\"\n{mcp}\neffect = \"read\"\ntimeout_ms = 60000\n"
        );
        setup.write(&format!("tools/{name}.toml"), &text);
    }
    setup.pin().await;
    let config = setup.load().expect("a configuration").config.tools;
    let live = LiveTools::from(Registry::new());
    let running = declared::mcp_servers(&config.mcp.servers, &config.declared);
    running.run(&live, &Metrics::default().mcp());
    for (name, ..) in tools {
        until(async || live.now().declaration(name).map(drop)).await;
    }
    let registry = live.now();
    // The server says that it destroys what was there.
    let writes = registry.declaration("write_note").expect("a tool");
    assert_eq!(writes.effect, Effect::Irreversible);
    let call = async |name: &str, given: Value| {
        let context = CallContext::new(SessionTools::default(), "key");
        let given = given.as_object().cloned().expect("an object");
        let result = registry.call(name, given, &context).await;
        result.expect("a result").to_string()
    };
    let read = call("read_note", json!({ "path": note })).await;
    assert!(read.contains("The code is seven."), "{read}");
    let page = call("read_page", json!({ "url": site })).await;
    assert!(page.contains("Open from nine to five."), "{page}");
    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let time = call("convert_time", noon).await;
    assert!(time.contains("21:00"), "{time}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_server_for_time_runs_early_and_is_committed() {
    let _alone = common::alone().await;
    let speech = tokio::task::spawn_blocking(|| {
        common::Booth::new(&common::weights()).say(QUESTION, 24_000)
    });
    let speech = speech.await.expect("speech");
    let program = foreign(".venv/bin/mcp-server-time");
    let setup = Setup::of(&format!("[mcp.time]\ncommand = [{program:?}]\n"));
    setup.write("tools/office_time.toml", TOOL);
    setup.pin().await;
    let mut config = setup.load().expect("a configuration").config;
    config.models = common::weights();
    config.cache = Some(support::real::cache());
    let observers = Observers::default();
    let engines = support::real::configured(&config, observers.clone());
    until(async || engines.tools().declaration("office_time").map(drop)).await;
    let (opened, tools) = (engines.clone(), engines.tools());
    let open = move |options: SessionOptions| Ok(session::open(&opened, &options));
    let server = Server::serve(undertone::server::App::new(local(), Arc::new(open)));

    // A machine that is busy elsewhere may be too late once.
    let mut is_early = false;
    for _ in 0..3 {
        let mut call = Call::to(&server).await;
        call.until("session.created").await;
        call.say(&speech).await;
        let turn = call.until("undertone.turn_record").await;
        let record = turn.last().expect("a record").event.clone();
        let runs = record["runs"].as_array().expect("runs");
        let committed = |run: &&serde_json::Value| {
            run["tool"] == "office_time" && run["fate"]["kind"] == "committed"
        };
        let run = runs.iter().find(committed);
        let run = run.unwrap_or_else(|| panic!("the call was not committed: {record}"));
        assert!(said(&turn).contains("Tokyo"), "{}", said(&turn));
        is_early |=
            !run["source"].is_null() && run["started"].as_u64() < run["fate"]["at"].as_u64();
        if is_early {
            break;
        }
    }
    assert!(is_early, "it has never started before its commit");
    assert!(tools.declaration("office_time").is_some());
}
