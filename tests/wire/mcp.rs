//! Unmodified reference servers: a spoken question for the tool of one, with the shipped settings and models; and calls
//! of the others, and of a server with the official Python SDK, whose every tool ends in an answer or a refusal.

use crate::{common, support};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::live::{Call, said};
use support::mcp::Setup;
use support::program::until;
use support::{Server, local};
use tokio::io::{AsyncBufReadExt, BufReader};
use undertone::metrics::Metrics;
use undertone::session::{self, Observers, SessionOptions};
use undertone::tools::{
    CallContext, Effect, LiveTools, Registry, SessionTools, ToolError, declared, mcp,
};

/// The longest time until a change that a server has told of is known: well before its tools are listed anyway.
const AT_ONCE: Duration = Duration::from_secs(30);

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
    let running = declared::mcp_servers(&config.mcp.servers, &config.declared, None);
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

/// All tools of the server `all`, declared as reads under their names with underscores, pinned and connected.
pub(crate) struct AllTools {
    setup: Setup,
    live: LiveTools,
    /// The server's names.
    pub(crate) names: Vec<String>,
}

impl AllTools {
    pub(crate) async fn of(entry: &str, limits: &[(&str, u64)]) -> Self {
        let setup = Setup::of(&format!("[mcp.all]\n{entry}\n"));
        let servers = setup
            .load()
            .expect("a configuration")
            .config
            .tools
            .mcp
            .servers;
        let listed = mcp::list(&servers[0]).await.expect("tools");
        let names = listed
            .iter()
            .map(|tool| tool["name"].as_str().expect("a name"));
        let names: Vec<String> = names.map(str::to_owned).collect();
        for name in &names {
            let own = name.replace('-', "_");
            let limit = limits.iter().find(|(tool, _)| tool == name);
            let limit = limit.map_or(60_000, |(_, limit)| *limit);
            let mcp = format!("mcp = {{ server = \"all\", tool = \"{name}\" }}");
            let text = format!(
                "name = \"{own}\"\nkind = \"mcp\"\n{mcp}\neffect = \"read\"\ntimeout_ms = {limit}\n"
            );
            setup.write(&format!("tools/{own}.toml"), &text);
        }
        setup.pin().await;
        let live = LiveTools::from(Registry::new());
        let tools = setup.load().expect("a configuration").config.tools;
        let servers = declared::mcp_servers(&tools.mcp.servers, &tools.declared, None);
        servers.run(&live, &Metrics::default().mcp());
        let all = Self { setup, live, names };
        for name in &all.names {
            until(async || all.is_offered(name).then_some(())).await;
        }
        all
    }

    fn is_offered(&self, name: &str) -> bool {
        self.live
            .now()
            .declaration(&name.replace('-', "_"))
            .is_some()
    }

    pub(crate) async fn call(&self, name: &str, given: Value) -> Result<Value, ToolError> {
        let context = CallContext::new(SessionTools::default(), "key");
        let given = given.as_object().cloned().expect("an object");
        let registry = self.live.now();
        registry
            .call(&name.replace('-', "_"), given, &context)
            .await
    }

    async fn told(&self, name: &str, given: Value) -> String {
        self.call(name, given).await.expect(name).to_string()
    }

    async fn is_refused(&self, name: &str, given: Value) {
        let refused = self.call(name, given).await;
        assert!(
            matches!(refused, Err(ToolError::Broken(_) | ToolError::Uncertain(_))),
            "{name}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn every_tool_of_the_reference_server_for_everything_ends_in_an_answer_or_a_refusal() {
    let program = foreign("node_modules/.bin/mcp-server-everything");
    let slow = "trigger-long-running-operation";
    let all = AllTools::of(&format!("command = [{program:?}]"), &[(slow, 1_000)]).await;
    // Tools that ask the client for more are not listed for a client that offers nothing.
    let asks = |name: &&String| name.contains("elicitation") || name.contains("sampling");
    assert_eq!(all.names.iter().find(asks), None);

    let told = [
        ("echo", json!({"message": "hello"}), "Echo: hello"),
        (
            "get-sum",
            json!({"a": 2, "b": 3}),
            "The sum of 2 and 3 is 5.",
        ),
        (
            "get-structured-content",
            json!({"location": "Chicago"}),
            "\"humidity\":",
        ),
        (
            "get-annotated-message",
            json!({"messageType": "error", "includeImage": true}),
            "Operation failed",
        ),
        ("get-tiny-image", json!({}), "image you requested"),
        ("get-resource-links", json!({}), "Resource 1: demo://"),
        (
            "get-resource-reference",
            json!({}),
            "Resource 1: This is a plaintext resource",
        ),
        (
            "gzip-file-as-resource",
            json!({"name": "a.gz", "data": "data:text/plain,hello"}),
            "a.gz: demo://",
        ),
        ("toggle-simulated-logging", json!({}), "Started simulated"),
        ("toggle-subscriber-updates", json!({}), "Started simulated"),
        ("get-env", json!({}), "PATH"),
    ];
    for (name, given, expected) in &told {
        let text = all.told(name, given.clone()).await;
        assert!(text.contains(expected), "{name}: {text}");
        assert!(!text.contains("iVBOR"), "{name}: {text}");
        assert!(!text.contains("CARGO"), "{name}: {text}");
    }
    let data = "data:text/plain,hello";
    let gzip = json!({"name": "a.gz", "data": data, "outputType": "resource"});
    all.is_refused("gzip-file-as-resource", gzip).await;
    // Its progress extends nothing.
    let late = all
        .call(slow, json!({"duration": 600, "steps": 6000}))
        .await;
    assert_eq!(late, Err(ToolError::Timeout(1_000)));
    let task = all
        .call("simulate-research-query", json!({"topic": "x"}))
        .await;
    let Err(ToolError::Failed(why)) = task else {
        panic!("{task:?}")
    };
    assert!(why.contains("requires task"), "{why}");
    let known = [slow, "gzip-file-as-resource", "simulate-research-query"];
    let is_called =
        |name: &&String| known.contains(&&***name) || told.iter().any(|(other, ..)| other == *name);
    assert!(
        all.names.iter().all(|name| is_called(&name)),
        "{:?}",
        all.names
    );
}

/// The official Python SDK speaks the revision without a handshake.
#[tokio::test]
async fn every_tool_of_a_server_without_handshake_ends_in_an_answer_or_a_refusal() {
    let (python, script) = (foreign(".venv/bin/python"), foreign("mcp_tools.py"));
    let mut served = tokio::process::Command::new(&python)
        .args([&script, "http"])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(served.stdout.take().expect("a pipe")).lines();
    let port = lines.next_line().await.expect("text").expect("a port");
    let entries = [
        format!("command = [{python:?}, {script:?}]"),
        format!("url = \"http://127.0.0.1:{port}/mcp\""),
    ];
    for entry in entries {
        let all = AllTools::of(&entry, &[("slow", 1_000), ("huge", 2_000)]).await;
        let told = [
            ("generation", json!({}), json!({"result": "2026-07-28"})),
            ("add", json!({"a": 2, "b": 3}), json!({"result": 5})),
            (
                "nested",
                json!({"city": "Rome"}),
                json!({"city": "Rome", "streets": [{"houses": 3}, {"houses": 4}]}),
            ),
            ("captioned", json!({}), json!("a caption\na note")),
            ("nothing", json!({}), json!({"result": null})),
            ("erase", json!({}), json!({"result": "erased"})),
        ];
        for (name, given, expected) in told {
            assert_eq!(all.call(name, given).await, Ok(expected), "{name}");
        }
        let erase = all.live.now().declaration("erase").map(|tool| tool.effect);
        assert_eq!(erase, Some(Effect::Irreversible));
        for name in ["picture", "sound", "long", "asks"] {
            all.is_refused(name, json!({})).await;
        }
        let failed = all.call("fails", json!({})).await;
        assert_eq!(
            failed,
            Err(ToolError::Failed("Error executing tool fails".into()))
        );
        let late = all.call("slow", json!({})).await;
        assert_eq!(late, Err(ToolError::Timeout(1_000)));
        let huge = all.call("huge", json!({})).await;
        assert!(huge.is_err(), "{huge:?}");
        // It is there still, or again.
        let sum = async || all.call("add", json!({"a": 1, "b": 1})).await.ok();
        assert_eq!(until(sum).await, json!({"result": 2}));
        until(async || all.call("turn", json!({})).await.ok()).await;
        let told = support::now();
        until(async || (!all.is_offered("add")).then_some(())).await;
        assert!(told.elapsed() < AT_ONCE);
        assert!(all.is_offered("nested"));
        drop(all.setup);
    }
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
        // A question that was misheard is asked again.
        let Some(run) = runs.iter().find(committed) else {
            println!("{record}");
            continue;
        };
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
