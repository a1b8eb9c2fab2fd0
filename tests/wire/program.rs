//! Tests the real program under operational conditions: signals, few file descriptors, and a log
//! that cannot be written.

use crate::common;
use crate::support::PATIENCE;
use crate::support::program::{self, Program, answer, ask, said, until};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;

const QUESTION: &str = "What is two plus two?";

/// A folder with this configuration and a free port.
fn folder(settings: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    configure(folder.path(), settings);
    folder
}

fn configure(folder: &Path, settings: &str) {
    let settings = format!("[server]\nport = 0\n{settings}[tools]\njournal = \"journal.jsonl\"\n");
    std::fs::write(folder.join("undertone.toml"), settings).expect("written");
}

fn command(folder: &Path, shell: &str) -> Command {
    program::command(folder, &common::weights(), shell)
}

/// Starts the program in `folder`, with its log in the file `log` there.
async fn start(folder: &Path, shell: &str) -> Program {
    let log = File::create(folder.join("log")).expect("a log");
    let mut command = command(folder, shell);
    command.stderr(log);
    Program::start(command).await
}

/// Waits for a log line that contains all `parts`.
async fn logged(folder: &Path, parts: &[&str]) -> String {
    until(async || {
        let log = std::fs::read_to_string(folder.join("log")).expect("a log");
        let mut lines = log.lines();
        let line = lines.find(|line| parts.iter().all(|part| line.contains(part)));
        line.map(str::to_owned)
    })
    .await
}

/// Asserts that three sessions, one after another, are answered.
async fn is_served(program: &Program) {
    for _ in 0..3 {
        let mut client = program.open(None).await.expect("a session");
        let said = answer(&mut client, QUESTION).await;
        assert!(said.contains('4'), "{said}");
        client.socket.close(None).await.expect("closed");
        while client.message().await.is_some() {}
    }
    assert_eq!(program.get("/readyz", None).await.0, 200);
}

/// The number of dropped log lines.
async fn lost_lines(program: &Program) -> u64 {
    lost(program, "log_line").await
}

/// The number of lost lines or recordings.
async fn lost(program: &Program, what: &str) -> u64 {
    let (_, metrics) = program.get("/metrics", None).await;
    let name = format!("undertone_lost_total{{what=\"{what}\"}} ");
    let lost = metrics.lines().find_map(|line| line.strip_prefix(&*name));
    lost.expect("a figure").parse().expect("a number")
}

#[tokio::test]
async fn a_taken_address_is_one_line_that_names_the_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = taken.local_addr().expect("an address");
    let folder = folder("");
    for (shell, key) in [
        ("UNDERTONE_SERVER__PORT=PORT", "server.port"),
        ("UNDERTONE_ASTERISK__AUDIOSOCKET=AT", "asterisk.audiosocket"),
        ("UNDERTONE_WYOMING__LISTEN=AT", "wyoming.listen"),
    ] {
        let shell = shell.replace("PORT=PORT", &format!("PORT={}", address.port()));
        let shell = shell.replace("=AT", &format!("={address}"));
        let mut command = command(folder.path(), &format!("export {shell};"));
        let output = command
            .stderr(Stdio::piped())
            .output()
            .await
            .expect("it ends");
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert_eq!(told.matches("Address already in use").count(), 1, "{told}");
        let at = address.to_string();
        assert!(told.contains(key) && told.contains(&at), "{told}");
    }
}

/// It ran without its operator's tools and said nothing.
#[tokio::test]
async fn a_server_without_a_folder_of_tools_says_so() {
    let folder = folder("");
    let mut program = start(folder.path(), "").await;
    let told = logged(folder.path(), &["WARN", "there is no folder of tools"]).await;
    assert!(told.contains("/tools"), "{told}");
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

#[tokio::test]
async fn silent_connections_do_not_use_up_file_descriptors() {
    let folder = folder("");
    let mut program = start(folder.path(), "ulimit -n 256;").await;
    let mut before = program.open(None).await.expect("a session");
    let mut silent = vec![];
    for _ in 0..400 {
        silent.push(
            TcpStream::connect(&program.address)
                .await
                .expect("accepted"),
        );
    }
    assert_eq!(program.get("/healthz", None).await.0, 200);
    is_served(&program).await;
    assert!(answer(&mut before, QUESTION).await.contains('4'));
    for stream in &mut silent {
        let mut rest = vec![];
        // Closed or reset: either frees the connection.
        let closed = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        drop(closed.expect("closed in time"));
    }
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

#[tokio::test]
async fn a_log_whose_reader_goes_away_harms_no_session() {
    let folder = folder("");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = command(folder.path(), "export UNDERTONE_LOG=debug;");
    command.stderr(writer);
    let mut program = Program::start(command).await;
    drop(reader);
    is_served(&program).await;
    assert!(lost_lines(&program).await > 0);
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

#[tokio::test]
async fn a_log_on_a_full_disk_harms_no_session() {
    let folder = folder("");
    let full = OpenOptions::new().write(true).open("/dev/full");
    let mut command = command(folder.path(), "");
    command.stderr(full.expect("a full disk"));
    let mut program = Program::start(command).await;
    is_served(&program).await;
    assert!(lost_lines(&program).await > 0);
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

/// The files of a folder in the order of their names, with their lengths.
fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files
        .map(|path| (path.clone(), path.metadata().expect("a file").len()))
        .collect();
    files.sort();
    files
}

/// Nothing is kept of three sessions, and all of the next three.
#[tokio::test]
async fn a_full_disk_harms_no_session_whatever_is_kept() {
    const KEPT: [&str; 3] = ["turn", "recording", "call_recording"];
    let settings = "[log]\nturns = \"turns.jsonl\"\n\
                    [call_recording]\nfolder = \"calls\"\nconsent = \"\"\n";
    let folder = folder(settings);
    let folder = folder.path();
    let shell = "trap '' XFSZ; exec \"$0\" serve --record recordings;";
    let mut command = command(folder, shell);
    command.stderr(Stdio::null());
    let mut program = Program::start(command).await;
    program.limit_files(Some(0));
    is_served(&program).await;
    for what in KEPT {
        until(async || (lost(&program, what).await >= 3).then_some(())).await;
    }
    program.limit_files(None);
    is_served(&program).await;
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
    let turns = std::fs::read_to_string(folder.join("turns.jsonl")).expect("turns");
    let whole = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    assert!(turns.lines().all(whole), "{turns}");
    assert_eq!(turns.lines().count(), 3, "{turns}");
    for kept in ["recordings", "calls"] {
        let files = files(&folder.join(kept));
        let written = files.iter().filter(|(_, length)| *length > 0);
        assert_eq!(written.count(), 3, "{files:?}");
    }
}

#[tokio::test]
async fn a_log_that_nobody_reads_harms_no_session() {
    let folder = folder("");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut filler = writer.try_clone().expect("the pipe");
    // Fills the pipe and keeps it full, until the reader is gone.
    let filling = std::thread::spawn(move || while filler.write_all(&[b'\n'; 4096]).is_ok() {});
    let mut command = command(folder.path(), "export UNDERTONE_LOG=debug;");
    command.stderr(writer);
    let mut program = Program::start(command).await;
    is_served(&program).await;
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
    drop(reader);
    filling.join().expect("it ends");
}

/// The declaration of a tool `name` that runs a program.
fn tool(name: &str) -> String {
    format!(
        "name = \"{name}\"\nkind = \"subprocess\"\ndescription = \"Does {name}.\"\n\
         effect = \"read\"\n[subprocess]\nargv = [\"true\"]\n"
    )
}

#[tokio::test]
async fn sighup_reloads_for_new_sessions_and_a_bad_file_changes_nothing() {
    let (one, two) = ("first-token-of-sixteen", "second-token-of-sixteen");
    let settings =
        |greeting: &str| format!("auth_token_file = \"token\"\n[session]\ngreeting = {greeting}\n");
    let folder = folder(&settings("\"Good morning.\""));
    let folder = folder.path();
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("written");
    std::fs::create_dir(folder.join("tools")).expect("made");
    write("token", one);
    write("tools/alpha.toml", &tool("alpha"));
    let mut program = start(folder, "").await;
    let mut before = program.open(Some(one)).await.expect("a session");
    assert_eq!(said(&mut before).await, "Good morning.");

    configure(
        folder,
        &format!(
            "{}[log]\nlevel = \"debug\"\n",
            settings("\"Good evening.\"")
        ),
    );
    write("token", two);
    write("tools/beta.toml", &tool("beta"));
    program.signal(Signal::HUP);
    logged(folder, &["INFO", "reloaded the configuration"]).await;
    assert_eq!(program.open(Some(one)).await.err(), Some(401));
    let mut after = program.open(Some(two)).await.expect("a session");
    assert_eq!(said(&mut after).await, "Good evening.");
    let (_, about) = program.get("/playground/about", Some(two)).await;
    assert!(
        about.contains("\"alpha\"") && about.contains("\"beta\""),
        "{about}"
    );
    assert!(about.contains("\"get_demo_order\""), "{about}");
    logged(folder, &["DEBUG", "undertone"]).await;
    // Earlier sessions go on.
    assert!(answer(&mut before, QUESTION).await.contains('4'));

    configure(folder, &settings("5"));
    program.signal(Signal::HUP);
    logged(
        folder,
        &["ERROR", "stays as it was", "undertone.toml", "greeting"],
    )
    .await;
    configure(folder, &settings("\"Good night.\""));
    write("tools/beta.toml", "name = 5");
    program.signal(Signal::HUP);
    logged(folder, &["ERROR", "stays as it was", "beta.toml"]).await;
    let mut still = program.open(Some(two)).await.expect("a session");
    assert_eq!(said(&mut still).await, "Good evening.");

    for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        program.signal(signal);
        logged(folder, &[name]).await;
    }
    assert!(answer(&mut before, QUESTION).await.contains('4'));
    let log = std::fs::read_to_string(folder.join("log")).expect("a log");
    assert!(
        !log.contains(one) && !log.contains(two),
        "a token is logged"
    );
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

/// Only a start said so.
#[tokio::test]
async fn sighup_says_what_of_the_new_configuration_has_no_effect() {
    let folder = folder("");
    let folder = folder.path();
    let mut program = start(folder, "").await;
    let far = "[asr.services.far]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"w\"\n";
    let asr = "[asr]\nservice = \"far\"\nlanguages = [\"de\"]\n";
    configure(folder, &format!("{asr}{far}"));
    program.signal(Signal::HUP);
    let parts = ["WARN", "asr.languages has no effect", "\"far\""];
    logged(folder, &parts).await;
    reloaded(folder, 1).await;
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

/// Waits until the configuration was reloaded this often.
async fn reloaded(folder: &Path, times: usize) {
    until(async || {
        let log = std::fs::read_to_string(folder.join("log")).expect("a log");
        let reloads = log.matches("reloaded the configuration").count();
        (reloads == times).then_some(())
    })
    .await
}

#[tokio::test]
async fn sighup_reloads_agents_and_routes_and_a_mistake_in_one_changes_nothing() {
    let route = |agent: &str| format!("[[route]]\nagent = \"{agent}\"\n");
    let folder = folder(&route("desk"));
    let folder = folder.path();
    std::fs::create_dir(folder.join("agents")).expect("made");
    let write = |name: &str, text: &str| {
        let path = folder.join(format!("agents/{name}.toml"));
        std::fs::write(path, text).expect("written");
    };
    write("desk", "greeting = \"Front desk.\"");
    let mut program = start(folder, "").await;
    let mut before = program.open(None).await.expect("a session");
    assert_eq!(said(&mut before).await, "Front desk.");

    write("billing", "greeting = \"Billing.\"");
    configure(folder, &route("billing"));
    program.signal(Signal::HUP);
    reloaded(folder, 1).await;
    let mut after = program.open(None).await.expect("a session");
    assert_eq!(said(&mut after).await, "Billing.");

    write("billing", "greeting = 5");
    program.signal(Signal::HUP);
    let parts = ["ERROR", "stays as it was", "billing.toml", "greeting"];
    logged(folder, &parts).await;
    write("billing", "greeting = \"Billing, again.\"");
    configure(folder, &route("nobody"));
    program.signal(Signal::HUP);
    logged(folder, &["ERROR", "stays as it was", "nobody"]).await;
    let mut still = program.open(None).await.expect("a session");
    assert_eq!(said(&mut still).await, "Billing.");
    // Earlier sessions go on.
    assert!(answer(&mut before, QUESTION).await.contains('4'));
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

#[tokio::test]
async fn three_reloads_start_no_second_mcp_server() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mcp_server.py");
    let folder = folder("");
    let folder = folder.path();
    let crm = folder.join("crm");
    std::fs::create_dir(&crm).expect("made");
    std::fs::write(crm.join("tools.json"), "[]").expect("written");
    let command = json!(["python3", script, crm]);
    configure(folder, &format!("[mcp.crm]\ncommand = {command}\n"));
    let times = |file: &Path, part: &str| {
        let log = std::fs::read_to_string(file).unwrap_or_default();
        log.lines().filter(|line| line.contains(part)).count()
    };
    let mut program = start(folder, "").await;
    until(async || (program.get("/readyz", None).await.1 == "ready").then_some(())).await;
    let mut sessions = Vec::new();
    for reloads in 1..=3 {
        sessions.push(program.open(None).await.expect("a session"));
        program.signal(Signal::HUP);
        let reloaded = || times(&folder.join("log"), "reloaded the configuration") == reloads;
        until(async || reloaded().then_some(())).await;
        assert_eq!(program.get("/readyz", None).await.1, "ready");
    }
    assert_eq!(times(&crm.join("log"), "start"), 1);
    configure(folder, "[mcp.crm]\nurl = \"http://127.0.0.1:1/mcp\"\n");
    program.signal(Signal::HUP);
    let named = "ready; MCP servers that are not connected: crm";
    until(async || (program.get("/readyz", None).await == (200, named.into())).then_some(())).await;
    assert!(answer(&mut sessions[0], QUESTION).await.contains('4'));
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}

/// A server such as llama.cpp's answers 503 for as long as it loads, which may be minutes.
#[tokio::test]
async fn the_server_is_ready_once_its_language_model_is_loaded() {
    let is_loaded = Arc::new(AtomicBool::new(false));
    let loaded = is_loaded.clone();
    let chat = async move || match loaded.load(Relaxed) {
        false => (StatusCode::SERVICE_UNAVAILABLE, "Loading model"),
        true => (
            StatusCode::OK,
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n",
        ),
    };
    let routes = Router::new().route("/v1/chat/completions", post(chat));
    let model = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = model.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(model, routes).await });
    let folder = folder(&format!(
        "[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\nbase_url = \"http://{address}/v1\"\n"
    ));
    let program = start(folder.path(), "").await;
    let (status, why) = program.get("/readyz", None).await;
    assert!(
        status == 503 && why.contains("language model"),
        "{status} {why}"
    );
    let (_, metrics) = program.get("/metrics", None).await;
    assert!(metrics.contains("undertone_llm_loading 1"), "{metrics}");
    logged(
        folder.path(),
        &["the language model is not ready yet", "Loading model"],
    )
    .await;
    is_loaded.store(true, Relaxed);
    until(async || (program.get("/readyz", None).await.0 == 200).then_some(())).await;
}

/// A server that refuses the warm-up was called ready.
#[tokio::test]
async fn a_server_whose_language_model_refuses_its_key_is_not_ready_and_says_why() {
    let chat = async || {
        let body = "{\"error\":{\"message\":\"Incorrect API key provided: sk-canary\"}}";
        (StatusCode::UNAUTHORIZED, body)
    };
    let address = model_of(Router::new().route("/v1/chat/completions", post(chat))).await;
    let folder = folder(&format!(
        "[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\nbase_url = \"http://{address}/v1\"\n"
    ));
    let program = start(folder.path(), "").await;
    logged(
        folder.path(),
        &["the language model is not ready yet", "401"],
    )
    .await;
    let (status, why) = until(async || {
        let found = program.get("/readyz", None).await;
        found.1.contains("key").then_some(found)
    })
    .await;
    assert!(status == 503 && why.contains("401"), "{status} {why}");
    assert!(
        !why.contains("canary") && !why.contains(&address.to_string()),
        "{why}"
    );
    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    assert!(!log.contains("the language model is ready"), "{log}");
}

async fn model_of(routes: Router) -> std::net::SocketAddr {
    let model = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = model.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(model, routes).await });
    address
}

/// Agents with a model of their own had no fallback.
#[tokio::test]
async fn an_agent_whose_model_is_dead_is_answered_by_that_models_fallback_which_is_counted() {
    let chat = async || "data: {\"choices\":[{\"delta\":{\"content\":\"I stand in.\"},\"finish_reason\":\"stop\"}]}\n\n";
    let routes = Router::new().route("/v1/chat/completions", post(chat));
    let routes = routes.route("/v1/models", get(async || "{\"data\": [{\"id\": \"b\"}]}"));
    let address = model_of(routes).await;
    let folder = folder(&format!(
        "[llm.models.own]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\nfallback = \"other\"\n\
         [llm.models.other]\nmodel = \"b\"\nbase_url = \"http://{address}/v1\"\n\
         [[route]]\nagent = \"desk\"\n"
    ));
    let agents = folder.path().join("agents");
    std::fs::create_dir(&agents).expect("made");
    std::fs::write(
        agents.join("desk.toml"),
        "model = \"own\"\ninstructions = \"Be brief.\"\n",
    )
    .expect("written");
    let program = start(folder.path(), "").await;
    until(async || (program.get("/readyz", None).await.0 == 200).then_some(())).await;
    let mut client = program.open(None).await.expect("a session");
    assert_eq!(answer(&mut client, QUESTION).await, "I stand in.");
    let (_, metrics) = program.get("/metrics", None).await;
    let counted = "undertone_llm_fallback_answers_total{model=\"openai-compatible b\"} ";
    assert!(metrics.contains(counted), "{metrics}");

    let doctor = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .arg("doctor")
        .current_dir(folder.path())
        .env("UNDERTONE_MODELS", common::weights())
        .env("XDG_CACHE_HOME", folder.path())
        .env("XDG_STATE_HOME", folder.path())
        .output();
    let doctor = timeout(6 * PATIENCE, doctor).await.expect("in time");
    let report = String::from_utf8(doctor.expect("it runs").stdout).expect("text");
    let line = |name: &str| {
        report
            .lines()
            .find(|line| line.contains(name))
            .expect("a line")
    };
    let own = line("model own");
    assert!(own.starts_with("BROKEN"), "{own}");
    let other = line("model other");
    assert!(other.starts_with("ok"), "{other}");
    assert!(other.contains("(fallback of own)"), "{other}");
    assert!(
        other.contains("never probed: run `undertone probe other`"),
        "{other}"
    );
}

#[tokio::test]
async fn a_second_signal_ends_a_drain_at_once() {
    // A model that never answers: the drain would last for ten minutes.
    let model = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = model.local_addr().expect("an address");
    let folder = folder(&format!(
        "drain_seconds = 600\n[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\n\
         base_url = \"http://{address}/v1\"\nstall_filler_ms = 60000\ngive_up_ms = 120000\n"
    ));
    for second in [Signal::TERM, Signal::INT] {
        let mut program = start(folder.path(), "").await;
        let mut client = program.open(None).await.expect("a session");
        ask(&mut client, QUESTION).await;
        client.until("response.created").await;
        program.signal(Signal::TERM);
        until(async || (program.get("/readyz", None).await.1 == "draining").then_some(())).await;
        program.signal(second);
        assert_eq!(program.ended().await.code(), Some(1));
        let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
        assert!(log.contains("second signal"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bench_of_the_real_models_hears_the_answer_in_both_arms() {
    let _alone = common::alone().await;
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["bench", "spoken", "--brief", "--out", "new"])
        .current_dir(folder.path())
        .env("UNDERTONE_MODELS", common::weights())
        .output();
    let output = timeout(3 * PATIENCE, output).await.expect("it ends");
    let output = output.expect("the program");
    // Whether the goals are met depends on the machine.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let report = std::fs::read(folder.path().join("new/benchmarks/spoken.json"));
    let report = report.unwrap_or_else(|_| panic!("no report: {output:?}"));
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let arms = report["tables"][1]["rows"].as_array().expect("rows");
    for arm in arms {
        assert_eq!(arm[2], "1 of 1", "answered: {report:#}");
    }
    let began_early: Vec<&Value> = arms.iter().map(|arm| &arm[5]).collect();
    assert_eq!(began_early, ["0 of 1", "1 of 1"], "{report:#}");
    let page = std::fs::read_to_string(folder.path().join("new/benchmarks.md"));
    let plot = "![When the answer is heard, median](benchmarks/spoken-answer.svg)";
    assert!(page.expect("a page").contains(plot));
}
