//! Runs the real program and checks its output and exit codes.

use crate::sessions::{Lookup, Talk};
use crate::support::live::without_models;
use crate::support::mcp::{Setup, object};
use crate::support::ports;
use crate::support::replicas::Redis;
use crate::support::serve_on_a_thread;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::session::{Builders, Engines, Observers, Recordings};
use undertone::tools::Registry;

/// The program in `folder`, without this process's environment settings.
fn undertone(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(folder).args(arguments);
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNDERTONE_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    undertone(folder, arguments).output().unwrap()
}

/// Runs the program in `folder` with the models in `models`.
fn run_with(models: &Path, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = undertone(folder, arguments);
    command.env("UNDERTONE_MODELS", models).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

fn weights() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/weights");
    let weights = std::env::var_os("UNDERTONE_MODELS").map_or(default, PathBuf::from);
    std::fs::canonicalize(weights).expect("no weights: run `make models`")
}

/// Fills `folder` with links to the real models.
fn link_weights(folder: &Path) {
    let text = std::fs::read_to_string(weights().join("files.toml")).unwrap();
    let list: toml::Table = toml::from_str(&text).unwrap();
    for file in list["file"].as_array().unwrap() {
        let path = file["path"].as_str().unwrap();
        let link = folder.join(path);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(weights().join(path), link).unwrap();
    }
    std::fs::write(folder.join("files.toml"), text).unwrap();
}

#[test]
fn an_answer_may_be_printed_without_being_kept_or_played() {
    let folder = tempfile::tempdir().unwrap();
    let asked = run(folder.path(), &["ask", "absent.wav", "--json"]);
    assert!(stderr(&asked).contains("absent.wav"), "{}", stderr(&asked));
    let asked = run(folder.path(), &["ask", "absent.wav"]);
    assert!(stderr(&asked).contains("--out"), "{}", stderr(&asked));
}

#[test]
fn a_server_in_german_without_its_recogniser_names_the_command_that_fetches_it() {
    let (models, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    link_weights(models.path());
    let list = models.path().join("files.toml");
    let mut files: toml::Table = toml::from_str(&std::fs::read_to_string(&list).unwrap()).unwrap();
    let is_base = |file: &toml::Value| file["path"].as_str().unwrap().starts_with("whisper-base/");
    files["file"]
        .as_array_mut()
        .unwrap()
        .retain(|file| !is_base(file));
    std::fs::write(list, files.to_string()).unwrap();
    let tone = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/tone.flac");
    let heard = |config: &str| {
        std::fs::write(folder.path().join("undertone.toml"), config).unwrap();
        run_with(models.path(), folder.path(), &["transcribe", tone])
    };
    for config in [
        "[session]\nlanguage = \"de\"\n",
        "[asr]\nlanguages = [\"es\"]\n",
        "[asr]\nmodel = \"whisper-base\"\n",
    ] {
        let failed = heard(config);
        assert!(!failed.status.success(), "{config}");
        let said = stderr(&failed);
        assert!(
            said.contains("undertone models pull whisper-base"),
            "{said}"
        );
    }
    let english = heard("[session]\nlanguage = \"en\"\n");
    assert!(english.status.success(), "{}", stderr(&english));
}

/// Replaces a linked file with a copy in which one bit is flipped.
fn tamper(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[10] ^= 1;
    std::fs::remove_file(file).unwrap();
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_bad_configuration_is_one_line_on_stderr_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("undertone.toml"), "[server]\nprot = 1\n").unwrap();
    for command in [&["config", "check"][..], &["serve"], &["models", "list"]] {
        let output = run(folder.path(), command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert_eq!(stdout(&output), "");
        let error = stderr(&output);
        assert!(error.starts_with("error: undertone.toml:2: "), "{error}");
        assert!(error.contains("did you mean `port`"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn config_check_finds_what_the_server_would_miss_at_start() {
    let program = |argv: &str| {
        format!(
            "name = \"probe\"\nkind = \"subprocess\"\ndescription = \"Probes.\"\n\
             effect = \"read\"\n\n[subprocess]\nargv = {argv}\n"
        )
    };
    let remote = "[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\n\
                  base_url = \"http://127.0.0.1:1/v1\"\nmax_prompt_tokens = 500\n";
    for (name, file, text, parts) in [
        (
            "a program that is not there",
            "tools/probe.toml",
            program("[\"no-such-program\"]").as_str(),
            [
                "tools/probe.toml:7: ",
                "subprocess.argv",
                "no program no-such-program",
            ],
        ),
        (
            "a file that is no program",
            "tools/probe.toml",
            &program("[\"./probe.toml\"]"),
            ["tools/probe.toml:7: ", "subprocess.argv", "may be run"],
        ),
        (
            "a head that is none",
            "undertone.toml",
            "[router]\nhead = \"undertone.toml\"\n",
            ["undertone.toml:2: ", "router.head", "is not a head"],
        ),
        (
            "a journal that is a device",
            "undertone.toml",
            "[tools]\njournal = \"/dev/zero\"\n",
            ["undertone.toml:2: ", "tools.journal", "not a regular file"],
        ),
        (
            "a prompt without room",
            "undertone.toml",
            remote,
            ["undertone.toml:5: ", "llm.max_prompt_tokens", "tokens long"],
        ),
        (
            "a fallback's prompt without room",
            "undertone.toml",
            &format!(
                "{}fallback = \"small\"\n[llm.models.small]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"s\"\n\
                 max_prompt_tokens = 500\n",
                remote.replace("max_prompt_tokens = 500\n", "")
            ),
            [
                "undertone.toml:6: ",
                "llm.models.small.max_prompt_tokens",
                "tokens long",
            ],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tools")).unwrap();
        std::fs::write(folder.path().join(file), text).unwrap();
        for command in [&["config", "check"][..], &["serve"]] {
            let output = run(folder.path(), command);
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{name}: {error}");
            assert_eq!(error.lines().count(), 1, "{name}: {error}");
            for part in parts {
                assert!(error.contains(part), "{name}: no {part:?} in: {error}");
            }
        }
    }
}

#[test]
fn a_bad_variable_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = undertone(folder.path(), &["config", "check"]);
    let output = command.env("UNDERTONE_SERVR__PORT", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(
        error.contains("did you mean UNDERTONE_SERVER__PORT"),
        "{error}"
    );
}

/// Only the log of `serve` told of it.
#[test]
fn a_variable_that_is_not_a_setting_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let with_typo = |arguments: &[&str]| {
        let mut command = undertone(folder.path(), arguments);
        command.env("UNDERTONE_AUTHTOKEN", "x");
        command.env("UNDERTONE_MODELS", "nowhere").output().unwrap()
    };
    let told = "ignored UNDERTONE_AUTHTOKEN, which is not a setting";
    for command in [&["config", "check"][..], &["config", "show"]] {
        let output = with_typo(command);
        assert!(output.status.success(), "{command:?}");
        let warned = stderr(&output);
        assert!(warned.contains(told), "{command:?}: {warned}");
        assert!(
            warned.contains("did you mean UNDERTONE_AUTH_TOKEN?"),
            "{warned}"
        );
    }
    let examined = stdout(&with_typo(&["doctor"]));
    assert!(examined.contains(told), "{examined}");
}

/// Nothing was detected, and nothing said so.
#[test]
fn languages_that_no_service_detects_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let far = "[asr.services.far]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"w\"\n";
    let warned = |asr: &str| {
        let config = format!("[asr]\n{asr}{far}");
        std::fs::write(folder.path().join("undertone.toml"), config).unwrap();
        let output = run(folder.path(), &["config", "check"]);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let told = warned("service = \"far\"\nlanguages = [\"de\"]\n");
    assert!(told.contains("asr.languages"), "{told}");
    assert!(told.contains("\"far\""), "{told}");
    let fix = "give their agents a `language`";
    assert!(!told.contains(fix), "{told}");
    for asr in ["service = \"far\"\n", "languages = [\"de\"]\n"] {
        assert!(!warned(asr).contains("asr.languages"), "{asr}");
    }
    std::fs::create_dir(folder.path().join("agents")).unwrap();
    for (agent, is_told) in [
        ("", false),
        ("recogniser = \"far\"\n", true),
        ("recogniser = \"far\"\nlanguage = \"en\"\n", false),
    ] {
        std::fs::write(folder.path().join("agents/desk.toml"), agent).unwrap();
        let told = warned("languages = [\"de\"]\n");
        assert_eq!(told.contains("asr.languages"), is_told, "{agent}: {told}");
        assert_eq!(told.contains(fix), is_told, "{agent}: {told}");
    }
}

/// `doctor` found nothing, and `serve` named no key.
#[test]
fn a_file_that_cannot_be_written_is_named_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("file"), "").unwrap();
    for (section, key) in [
        ("log", "turns"),
        ("call_recording", "folder"),
        ("audit", "file"),
        ("tools", "journal"),
    ] {
        // Nobody can make a file below a file.
        let settings = [
            ("tools", "journal", "journal.jsonl"),
            (section, key, "file/x"),
        ];
        let settings = settings.into_iter().skip(usize::from(section == "tools"));
        let settings =
            settings.map(|(section, key, path)| format!("[{section}]\n{key} = \"{path}\"\n"));
        let audit = ["", "[audit]\nfile = \"audit.jsonl\"\n"][usize::from(section != "audit")];
        let settings = settings.collect::<String>() + audit;
        std::fs::write(folder.join("undertone.toml"), settings).unwrap();
        let report = examined(folder);
        let mut checks = report["checks"].as_array().unwrap().iter();
        let is_it = |check: &&Value| {
            let detail = check["detail"].as_str().unwrap_or_default();
            check["name"] == "files" && detail.contains(&format!("{section}.{key}"))
        };
        let check = checks.find(is_it);
        let check = check.unwrap_or_else(|| panic!("{section}.{key}: {report}"));
        assert_eq!(check["status"], "broken", "{check}");
        let detail = check["detail"].as_str().unwrap();
        assert_eq!(detail.matches("os error").count(), 1, "{detail}");
        let served = run_with(&weights(), folder, &["serve", "--port", "0"]);
        assert!(!served.status.success());
        let error = stderr(&served);
        assert!(error.contains(&format!("{section}.{key}: ")), "{error}");
        if section != "tools" {
            assert!(error.contains("let this user write there"), "{error}");
        }
    }
}

/// They belonged to the user who ran it, and the server could not write them.
#[test]
fn the_doctor_leaves_no_files_behind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let settings = "[tools]\njournal = \"state/journal.jsonl\"\n[log]\nturns = \"turns.jsonl\"\n\
                    [call_recording]\nfolder = \"state/calls\"\n[audit]\nfile = \"audit.jsonl\"\n";
    std::fs::write(folder.join("undertone.toml"), settings).unwrap();
    std::fs::write(folder.join("turns.jsonl"), "").unwrap();
    let report = examined(folder);
    let mut checks = report["checks"].as_array().unwrap().iter();
    let files = checks.find(|check| check["name"] == "files").unwrap();
    assert_eq!(files["status"], "ok", "{files}");
    assert!(!folder.join("state").exists());
    assert!(!folder.join("audit.jsonl").exists());
    assert!(folder.join("turns.jsonl").exists(), "it was there");
}

#[test]
fn bad_usage_is_exit_code_2_and_help_tells_the_codes() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(folder.path(), &["serv"]).status.code(), Some(2));
    let help = run(folder.path(), &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("Exit codes:"));
}

#[test]
fn a_bench_writes_its_report_its_plots_and_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["bench", "model", "--out", "new"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("largest difference from a closed form"));
    let read = |name: &str| std::fs::read_to_string(folder.path().join("new").join(name)).unwrap();
    let page = read("benchmarks.md");
    assert!(page.contains("![Speed-up of an agent"), "{page}");
    let report: Value = serde_json::from_str(&read("benchmarks/model.json")).unwrap();
    assert_eq!(report["seed"], 1);
    assert!(read("benchmarks/model-speed-up.svg").contains("<svg"));
    let unknown = run(folder.path(), &["bench", "modle"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("possible values: turn, sockets, agent, "));
    let no_data = run(folder.path(), &["bench", "sweep", "--data", "none"]);
    assert_eq!(no_data.status.code(), Some(1));
    assert!(
        stderr(&no_data).contains("cannot use none: "),
        "{}",
        stderr(&no_data)
    );
}

/// The path was ignored, and the figures were those of generated data.
#[test]
fn data_that_a_bench_does_not_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for names in [&["turn"][..], &["next-call", "model"], &[]] {
        let arguments = [&["bench"][..], names, &["--data", "nowhere"]].concat();
        let output = run(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(1), "{names:?}");
        let error = stderr(&output);
        let other = names.last().unwrap_or(&"turn");
        let expected = format!("--data nowhere: the bench {other} reads no data");
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains("sweep, next-call, spoken"), "{error}");
    }
}

/// The advice was --data, which this bench refuses.
#[test]
fn a_bench_without_voices_names_the_one_that_takes_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = undertone(folder.path(), &["bench", "latency"]);
    let output = bench.env("PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    let advice = "the bench spoken also takes WAV files with --data";
    assert!(error.contains(advice), "{error}");
}

#[test]
fn the_bench_of_capacity_holds_a_few_calls() {
    let _alone = crate::common::alone_blocking();
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["bench", "capacity", "--brief", "--out", "new"];
    let output = run_with(&weights(), folder.path(), &arguments);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let report = std::fs::read(folder.path().join("new/benchmarks/capacity.json"));
    let report: Value = serde_json::from_slice(&report.unwrap()).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let kinds: Vec<_> = rows.iter().map(|row| &row[0]).collect();
    assert_eq!(
        kinds,
        ["bare echo", "server with stubs", "with the real detector"]
    );
    for row in rows {
        assert_eq!(row[7], 0.0, "refused: {report:#}");
    }
}

/// A line that was added to one that was cut off had the whole file refused.
#[test]
fn statistics_leave_out_what_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("turns.jsonl"), text).unwrap();
    let turn = json!({
        "turn": 1, "status": "completed", "latency": {}, "predictions": [], "runs": [], "fillers": 0,
    });
    let line = json!({"session": 1, "reads": [], "turn": turn}).to_string();
    let cut = &line[..line.len() / 2];
    write(&format!("{line}\n{cut}{line}\n{line}\n{cut}"));
    let stats = run(folder.path(), &["stats", "turns.jsonl", "--json"]);
    assert!(stats.status.success(), "{}", stderr(&stats));
    assert_eq!(json(&stats)["turns"], 2);
    let (told, left_out) = (stderr(&stats), "cannot be read: 2, the first is line 2");
    assert!(told.contains(left_out), "{told}");
    write("no turn\n");
    let stats = run(folder.path(), &["stats", "turns.jsonl", "--json"]);
    assert_eq!(stats.status.code(), Some(1));
    let told = "line 1 is no turn of a turn log";
    assert!(stderr(&stats).contains(told), "{}", stderr(&stats));
}

/// A server that places every call, and tells its state in these answers, one after the other. Without a status it
/// drops the connection.
fn placing(answers: &'static [(u16, &'static str)]) -> SocketAddr {
    let asked = Arc::new(AtomicUsize::new(0));
    let state = move || {
        let (status, text) = answers[asked.fetch_add(1, Ordering::SeqCst)];
        async move {
            match StatusCode::from_u16(status) {
                Ok(status) => (status, text),
                Err(_) => std::panic::resume_unwind(Box::new("dropped")),
            }
        }
    };
    let place = || async {
        let location = [(LOCATION, "/v1/calls/outbound/call-1")];
        (
            StatusCode::CREATED,
            location,
            r#"{"id": "call-1", "status": "ringing"}"#,
        )
    };
    let routes = Router::new()
        .route("/v1/calls/outbound", post(place))
        .route("/v1/calls/outbound/call-1", get(state));
    serve_on_a_thread(routes)
}

/// It said that no server answers, while the telephone rang.
#[test]
fn a_call_that_was_placed_is_not_given_up_for_a_lost_answer() {
    let folder = tempfile::tempdir().unwrap();
    let called = |server: SocketAddr| {
        let text = format!("[server]\nport = {}\n", server.port());
        std::fs::write(folder.path().join("undertone.toml"), text).unwrap();
        run(folder.path(), &["call", "+15550100"])
    };
    let completed = called(placing(&[
        (0, ""),
        (503, ""),
        (200, "<html>"),
        (200, r#"{"status": "completed"}"#),
    ]));
    assert!(completed.status.success(), "{}", stderr(&completed));
    assert_eq!(stdout(&completed), "ringing\ncompleted\n");

    let server = placing(&[(401, "")]);
    let refused = called(server);
    assert_eq!(refused.status.code(), Some(1));
    let told = format!(
        "call call-1 was placed and may go on: look at http://{server}/v1/calls/outbound/call-1 before you call again"
    );
    assert!(stderr(&refused).contains(&told), "{}", stderr(&refused));
}

#[test]
fn serve_on_every_interface_requires_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["serve", "--host", "0.0.0.0"]);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.starts_with("error: option --host: "), "{error}");
    assert!(error.contains("--insecure"), "{error}");
}

#[test]
fn config_show_prints_values_and_origins_but_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let output = undertone(folder.path(), &["config", "show", "--json"])
        .env("UNDERTONE_SERVER__PORT", "9000")
        .env("UNDERTONE_AUTH_TOKEN", "canary-canary-canary")
        .output()
        .unwrap();
    let shown = json(&output);
    let port = &shown["settings"]["server.port"];
    assert_eq!(port["value"], 9000);
    assert_eq!(
        port["origin"],
        "environment variable UNDERTONE_SERVER__PORT"
    );
    assert_eq!(shown["settings"]["server.auth_token"]["value"], "<secret>");
    assert!(!stdout(&output).contains("canary"));
    let text = run(folder.path(), &["config", "show"]);
    assert!(stdout(&text).contains("server.host"));
}

/// The server refuses such addresses, and so told nobody that they are shown here.
#[test]
fn config_show_prints_no_password_of_an_address() {
    let folder = tempfile::tempdir().unwrap();
    for (section, key, value) in [
        ("store", "url", "redis://ann:canary@localhost/0"),
        ("webhook", "url", "https://hooks.example/calls?token=canary"),
        ("outbound", "ari_url", "http://canary@localhost:8088/ari"),
    ] {
        let text = format!("[{section}]\n{key} = \"{value}\"\n");
        std::fs::write(folder.path().join("undertone.toml"), text).unwrap();
        let shown = run(folder.path(), &["config", "show"]);
        assert!(shown.status.success(), "{}", stderr(&shown));
        let shown = stdout(&shown);
        let mut lines = shown.lines();
        let line = lines.find(|line| line.starts_with(&format!("{section}.{key} ")));
        assert!(line.unwrap().contains("\"<secret>\""), "{line:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }
    let store = "[store]\nurl = \"redis://ann@localhost/0\"\n";
    std::fs::write(folder.path().join("undertone.toml"), store).unwrap();
    let shown = stdout(&run(folder.path(), &["config", "show"]));
    assert!(shown.contains("redis://ann@localhost/0"), "{shown}");
}

#[test]
fn missing_models_are_exit_code_3_and_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_with(Path::new("nowhere"), folder.path(), &["models", "verify"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("make models"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_tampered_file_is_found_and_nothing_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path();
    link_weights(models);
    assert!(
        run_with(models, models, &["models", "verify"])
            .status
            .success()
    );
    tamper(&models.join("piper-joe/voice.json"));
    std::fs::remove_file(models.join("minilm/tokenizer.json")).unwrap();

    let output = run_with(models, models, &["models", "verify", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let report = json(&output);
    assert_eq!(report["ok"], false);
    let state = |path: &str| {
        let mut files = report["files"].as_array().unwrap().iter();
        files.find(|file| file["path"] == path).unwrap()["found"]["state"].clone()
    };
    assert_eq!(state("piper-joe/voice.json"), "content");
    assert_eq!(state("minilm/tokenizer.json"), "unreadable");
    assert_eq!(state("minilm/model.onnx"), "right");

    for command in [
        &["say", "hello", "--out", "out.wav"][..],
        &["serve", "--port", "0"],
    ] {
        let output = run_with(models, models, command);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("piper-joe/voice.json: expected sha256"));
    }
    assert!(!models.join("out.wav").exists());
}

#[test]
fn a_list_with_a_path_outside_the_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let entry = "[[file]]\npath = \"../secret\"\nsha256 = \"\"\nbytes = 1\norigin = \"package\"\n";
    std::fs::write(folder.path().join("files.toml"), entry).unwrap();
    let output = run_with(folder.path(), folder.path(), &["models", "list"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("../secret"), "{}", stderr(&output));
}

#[test]
fn the_doctor_names_what_is_broken_and_how_to_fix_it() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = udp.local_addr().unwrap().port().to_string();
    let output = undertone(folder.path(), &["doctor", "--json"])
        .env("UNDERTONE_MODELS", "nowhere")
        .env("UNDERTONE_SERVER__PORT", port)
        .env("UNDERTONE_WEBRTC__UDP_PORT", udp_port)
        .env("UNDERTONE_LLM__ENGINE", "openai-compatible")
        .env("UNDERTONE_LLM__MODEL", "m")
        .env("UNDERTONE_LLM__BASE_URL", "http://127.0.0.1:1/v1")
        .env("UNDERTONE_STORE__URL", "redis://127.0.0.1:1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["ok"], false);
    for (name, status) in [
        ("configuration", "ok"),
        ("models", "broken"),
        ("voice", "skipped"),
        ("language model", "broken"),
        ("tools", "ok"),
        ("shared store", "broken"),
        ("port", "broken"),
        ("UDP port of WebRTC", "broken"),
    ] {
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == name).unwrap();
        assert_eq!(check["status"], status, "{check}");
        assert!(
            check["detail"].is_string() && check["ms"].is_u64(),
            "{check}"
        );
        assert_eq!(check["mend"].is_string(), status == "broken", "{check}");
    }
}

/// The doctor's report on the configuration in this folder, without models.
fn examined(folder: &Path) -> Value {
    let mut doctor = undertone(folder, &["doctor", "--json"]);
    let output = doctor.env("UNDERTONE_MODELS", "nowhere").output().unwrap();
    json(&output)
}

/// Its server was asked twice: as one of the further models and as the draft model.
#[test]
fn the_doctor_checks_a_draft_model_once() {
    let folder = tempfile::tempdir().unwrap();
    let dead = "base_url = \"http://127.0.0.1:1/v1\"";
    let text = format!(
        "[llm]\nengine = \"openai-compatible\"\nmodel = \"large\"\n{dead}\n\
         [llm.models.small]\nmodel = \"s\"\n{dead}\n[draft]\nmodel = \"small\"\n"
    );
    std::fs::write(folder.path().join("undertone.toml"), text).unwrap();
    let report = examined(folder.path());
    let checks = report["checks"].as_array().unwrap().iter();
    let mut models = checks.filter(|check| check.to_string().contains("127.0.0.1:1/v1"));
    assert_eq!(models.next().unwrap()["name"], "language model", "{report}");
    let draft = models.next().unwrap();
    assert_eq!(draft["name"], "model small", "{report}");
    assert_eq!(draft["status"], "broken", "{report}");
    let detail = draft["detail"].as_str().unwrap();
    assert!(detail.starts_with("(draft model) "), "{report}");
    assert_eq!(models.next(), None, "{report}");
}

/// The model was called broken, although its key may ask it.
#[test]
fn the_doctor_calls_no_model_broken_whose_list_its_key_may_not_read() {
    async fn refused() -> (StatusCode, String) {
        let message = "Insufficient permissions. Missing scopes: api.model.read.";
        let error = json!({"error": {"message": message}});
        (StatusCode::FORBIDDEN, error.to_string())
    }
    let address = serve_on_a_thread(Router::new().route("/v1/models", get(refused)));
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\nbase_url = \"http://{address}/v1\"\n"
    );
    std::fs::write(folder.path().join("undertone.toml"), text).unwrap();
    let report = examined(folder.path());
    let mut checks = report["checks"].as_array().unwrap().iter();
    let check = checks.find(|check| check["name"] == "language model");
    let check = check.unwrap();
    assert_eq!(check["status"], "ok", "{check}");
    let detail = check["detail"].as_str().unwrap();
    assert!(detail.contains("may not list its models"), "{check}");
}

#[test]
fn the_doctor_names_the_addresses_that_browsers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let port = ports::free();
    for (advertise, told) in [
        ("[]", format!("browsers are told 127.0.0.1:{port}")),
        ("[\"10.0.0.7\"]", "set webrtc.advertise".to_owned()),
        (
            "[\"203.0.113.7\"]",
            format!("browsers are told 203.0.113.7:{port}"),
        ),
    ] {
        let text = format!("[webrtc]\nudp_port = {port}\nadvertise = {advertise}\n");
        std::fs::write(folder.path().join("undertone.toml"), text).unwrap();
        let report = examined(folder.path());
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks
            .find(|check| check["name"] == "UDP port of WebRTC")
            .unwrap();
        assert_eq!(check["status"], "ok", "{check}");
        let detail = check["detail"].as_str().unwrap();
        assert!(detail.contains(&told), "{detail}");
    }
}

/// It said that nothing is declared, and not why.
#[test]
fn the_doctor_says_that_the_folder_of_tools_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let tools = || {
        let report = examined(folder.path());
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == "tools").unwrap();
        assert_eq!(check["status"], "ok", "{check}");
        check["detail"].as_str().unwrap().to_owned()
    };
    let told = tools();
    assert!(told.contains("(there is no folder /"), "{told}");
    std::fs::create_dir(folder.path().join("tools")).unwrap();
    let told = tools();
    assert!(!told.contains("there is no folder"), "{told}");
}

/// The server refused it at its start, after the models were loaded.
#[test]
fn the_doctor_and_config_check_refuse_a_voice_that_the_server_cannot_load() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("voices")).unwrap();
    std::fs::write(folder.join("voices/af_heart.bin"), vec![0; 1_024]).unwrap();
    let model = std::fs::File::create(folder.join("voices/model.onnx")).unwrap();
    model.set_len(17 * 1024 * 1024).unwrap();
    for (voice, memory, problem) in [
        ("voices", 512, "voice.json"),
        ("voices/af_heart.bin", 64, "more than tts.memory_mb allows"),
        ("voices/af_heart.bin", 128, ""),
    ] {
        let text = format!("[tts]\nmemory_mb = {memory}\nvoices = {{ other = \"{voice}\" }}\n");
        std::fs::write(folder.join("undertone.toml"), text).unwrap();
        let report = examined(folder);
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks
            .find(|check| check["name"] == "configuration")
            .unwrap();
        let is_well = problem.is_empty();
        assert_eq!(check["status"] == "ok", is_well, "{check}");
        let detail = check["detail"].as_str().unwrap();
        assert!(detail.contains(problem), "{detail}");
        let checked = run(folder, &["config", "check"]);
        assert_eq!(checked.status.success(), is_well, "{}", stderr(&checked));
        assert!(stderr(&checked).contains(problem), "{}", stderr(&checked));
    }
}

/// Only the server's own was looked at.
#[test]
fn the_doctor_finds_each_address_that_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for (section, key) in [("asterisk", "audiosocket"), ("wyoming", "listen")] {
        let text = format!("[server]\nport = 0\n[{section}]\n{key} = \"{address}\"\n");
        std::fs::write(folder.path().join("undertone.toml"), text).unwrap();
        let report = examined(folder.path());
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == "port").unwrap();
        assert_eq!(check["status"], "broken", "{check}");
        let told = format!("{section}.{key}: cannot listen on {address}");
        assert!(check["detail"].as_str().unwrap().contains(&told), "{check}");
    }
}

#[test]
fn the_doctor_counts_the_tokens_of_mcp_tools_and_keeps_to_a_budget() {
    let mcp_servers = |setup: &Setup| {
        let report = examined(setup.folder.path());
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == "MCP servers");
        let check = check.unwrap();
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("detail"))
    };
    let short = object("look");
    let setup = Setup::of_program(std::slice::from_ref(&short));
    setup.declare("look", "effect = \"read\"");
    setup.accept(&[short]);
    let (status, detail) = mcp_servers(&setup);
    assert_eq!(status, "ok", "{detail}");
    let tokens = detail.strip_prefix("1 connected; look ");
    let tokens = tokens.and_then(|rest| rest.strip_suffix(" tokens"));
    let tokens: u64 = tokens.expect(&detail).parse().expect("a number");
    assert!((10..60).contains(&tokens), "{tokens}");

    let mut long = object("look");
    for number in 0..30 {
        let said = serde_json::json!({"type": "string", "description": "x".repeat(100)});
        long["inputSchema"]["properties"][format!("field{number}")] = said;
    }
    setup.list(std::slice::from_ref(&long));
    let (status, detail) = mcp_servers(&setup);
    assert_eq!((&*status, &*detail), ("broken", "look is drifted"));
    setup.accept(&[long]);
    let (status, detail) = mcp_servers(&setup);
    assert_eq!(status, "broken", "{detail}");
    assert!(
        detail.contains("of every prompt, more than 500"),
        "{detail}"
    );

    let nobody = "[mcp.crm]\nurl = \"http://127.0.0.1:1/mcp\"\n";
    setup.configure(nobody);
    let (status, detail) = mcp_servers(&setup);
    assert_eq!(status, "broken", "{detail}");
    assert!(
        detail.contains("crm is not connected: cannot connect"),
        "{detail}"
    );
}

/// A server configuration with Twilio, a remote model and a tool, without their secrets.
fn without_secrets(folder: &Path) {
    let account = format!("AC{}", "0".repeat(32));
    let config = format!(
        "[twilio]\npublic_url = \"https://voice.example.com\"\naccount_sid = \"{account}\"\n\
         [server]\nhost = \"0.0.0.0\"\n\
         [llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\napi_key_env = \"NO_SUCH_KEY\"\n\
         base_url = \"http://127.0.0.1:1/v1\"\n\
         [tools]\nfolder = \"tools\"\n"
    );
    std::fs::write(folder.join("undertone.toml"), config).unwrap();
    std::fs::create_dir(folder.join("tools")).unwrap();
    let tool = "name = \"probe\"\nkind = \"http\"\ndescription = \"d\"\neffect = \"read\"\n\
        [http]\nurl = \"https://example.com\"\nheaders = { x-key = { env = \"NO_SUCH_SECRET\" } }\n";
    std::fs::write(folder.join("tools/probe.toml"), tool).unwrap();
    let example = |text: String, intent: &str| {
        format!("{}\n", serde_json::json!({"text": text, "intent": intent}))
    };
    let examples = (0..20).map(|n| {
        example(format!("probe line {n}"), "probe") + &example(format!("tell me joke {n}"), "none")
    });
    std::fs::write(folder.join("examples.jsonl"), examples.collect::<String>()).unwrap();
}

#[test]
fn commands_without_telephony_do_not_require_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    without_secrets(folder);
    for command in [
        &["say", "Good morning to you.", "--out", "out.wav"][..],
        &["transcribe", "out.wav"],
        &["models", "list"],
        &[
            "router",
            "train",
            "examples.jsonl",
            "--tools",
            "tools",
            "--out",
            "head.json",
        ],
    ] {
        let output = run_with(&weights(), folder, command);
        assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    }
    for command in [&["serve"][..], &["config", "check"]] {
        let output = run_with(&weights(), folder, command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
    }
    // With the key, the tool's secret and the server's token set, only Twilio's token is missing.
    let with_others = |arguments: &[&str]| {
        let mut command = undertone(folder, arguments);
        command
            .env("UNDERTONE_MODELS", weights())
            .env("NO_SUCH_KEY", "k")
            .env("NO_SUCH_SECRET", "s")
            .env("UNDERTONE_AUTH_TOKEN", "0123456789abcdef");
        command.output().unwrap()
    };
    assert!(with_others(&["config", "show"]).status.success());
    for command in [&["serve"][..], &["config", "check"]] {
        let output = with_others(command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let error = stderr(&output);
        assert!(error.contains("UNDERTONE_TWILIO_AUTH_TOKEN"), "{error}");
    }
    let doctor = with_others(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    let said = stdout(&doctor);
    assert!(said.contains("UNDERTONE_TWILIO_AUTH_TOKEN"), "{said}");
}

/// There were only dashes, and an intent that calls nothing was trained in silence.
#[test]
fn an_evaluation_of_nothing_and_intents_of_no_tool_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // None of these is held out.
    let examples = [
        ("book a room", "no_such_tool"),
        ("reserve a room", "no_such_tool"),
        ("tell me a joke", "none"),
    ];
    let examples =
        examples.map(|(text, intent)| json!({"text": text, "intent": intent}).to_string());
    std::fs::write(folder.join("examples.jsonl"), examples.join("\n")).unwrap();
    declare_read(folder, "find_booking", "code");
    let evaluate = ["router", "eval", "examples.jsonl", "--tools", "tools"];
    let output = run_with(&weights(), folder, &evaluate);
    assert!(output.status.success(), "{}", stderr(&output));
    let figures = stdout(&output);
    assert!(
        figures.contains("none of its examples is held out"),
        "{figures}"
    );
    let warned = stderr(&output);
    let told = "no tool in tools has these intents, so they call nothing: no_such_tool;";
    assert!(warned.contains(told), "{warned}");
}

/// The recogniser's transcript of the synthesised text, with numbers as digits.
fn heard(folder: &Path, text: &str) -> String {
    let say = ["say", text, "--out", "out.wav"];
    let output = run_with(&weights(), folder, &say);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = run_with(&weights(), folder, &["transcribe", "out.wav"]);
    assert!(output.status.success(), "{}", stderr(&output));
    undertone::language::en::text::normalise(&stdout(&output))
}

/// The voice varies, so one success in three tries is enough.
#[test]
fn amounts_are_spoken_as_people_say_them() {
    let folder = tempfile::tempdir().unwrap();
    for (text, parts, never) in [
        (
            "You have 12500.0 USD in your account.",
            [&["12500"][..], &["dollar", "$"]],
            ["point", "usd"],
        ),
        (
            "That costs 12.50 dollars in the shop.",
            [
                &["12.5", "12 dollars and 50", "$12 and 50"],
                &["dollar", "$"],
            ],
            ["point", "zero"],
        ),
    ] {
        let mut tries: Vec<String> = Vec::new();
        let understood = (0..3).any(|_| {
            let heard = heard(folder.path(), text);
            let has = |part: &&str| heard.contains(*part);
            let right = parts.iter().all(|ways| ways.iter().any(has)) && !never.iter().any(has);
            tries.push(heard);
            right
        });
        assert!(understood, "{text}: {tries:?}");
    }
}

#[test]
fn synthesised_speech_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let text = "What time is it in London?";
    let mut heard = Vec::new();
    // The voice varies, and now and then a sentence is misheard.
    for _ in 0..5 {
        let say = ["say", text, "--out", "out.wav"];
        let output = run_with(&weights(), folder.path(), &say);
        assert!(output.status.success(), "{}", stderr(&output));
        // The voice speaks at another rate than the recogniser listens at.
        let transcribe = ["transcribe", "out.wav", "--json"];
        let output = run_with(&weights(), folder.path(), &transcribe);
        assert!(output.status.success(), "{}", stderr(&output));
        let words = json(&output)["text"].as_str().unwrap().to_lowercase();
        if words.contains("time") && words.contains("london") {
            return;
        }
        heard.push(words);
    }
    panic!("{text:?} is never understood, but {heard:?}");
}

/// A tool that looks something up, declared in a folder.
fn declare_read(folder: &Path, name: &str, argument: &str) {
    let tools = folder.join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let tool = format!(
        "name = \"{name}\"\nkind = \"subprocess\"\ndescription = \"Looks up.\"\neffect = \"read\"\n\
         [parameters.properties.{argument}]\ntype = \"string\"\n[parameters]\nrequired = [\"{argument}\"]\n\
         [subprocess]\nargv = [\"true\"]\noutput = \"text\"\nnetwork = false\n"
    );
    std::fs::write(tools.join(format!("{name}.toml")), tool).unwrap();
}

#[test]
fn patterns_are_learned_listed_shown_exported_and_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let state = path.join("state/undertone/patterns.json");
    let patterns = |arguments: &[&str]| {
        let arguments = [&["patterns"], arguments].concat();
        let mut command = undertone(path, &arguments);
        command.env("XDG_STATE_HOME", path.join("state"));
        command.output().unwrap()
    };
    let told = |arguments: &[&str]| {
        let output = patterns(arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let refused = |arguments: &[&str], why: &str| {
        let output = patterns(arguments);
        assert_eq!(output.status.code(), Some(1));
        let error = stderr(&output);
        assert!(
            error.contains(why) && !error.contains("panicked"),
            "{error}"
        );
    };
    assert!(told(&["list"]).contains("nothing was learned yet"));
    refused(&["show", "find"], "nothing was learned of find");
    let talks: Vec<Value> = ["ZK3FFW", "QW7RTY", "AB1CDE", "PL9MNB"]
        .iter()
        .enumerate()
        .map(|(at, code)| {
            let called = |tool: &str, id: &str, arguments: Value| {
                serde_json::json!({"id": id, "function": {"name": tool, "arguments": arguments.to_string()}})
            };
            let flight = format!("SK{}", 100 + at);
            serde_json::json!({"task_id": at, "traj": [
                {"role": "user", "content": format!("My booking is {code}")},
                {"role": "assistant", "tool_calls":
                    [called("find_booking", "1", serde_json::json!({"code": code}))]},
                {"role": "tool", "content": serde_json::json!({"flight": flight}).to_string()},
                {"role": "assistant", "tool_calls":
                    [called("flight_status", "2", serde_json::json!({"flight": flight}))]},
                {"role": "tool", "content": "{}"},
                {"role": "assistant", "tool_calls": [called("transfer", "3", serde_json::json!({}))]},
                {"role": "tool", "content": "{}"},
            ]})
        })
        .collect();
    std::fs::write(path.join("talks.json"), Value::from(talks).to_string()).unwrap();
    refused(&["learn", "talks.json"], "declare them first");
    declare_read(path, "find_booking", "code");
    declare_read(path, "flight_status", "flight");
    let learned = told(&["learn", "talks.json"]);
    assert!(learned.contains("8 calls of 4 conversations"), "{learned}");
    assert!(learned.contains("transfer (4)"), "{learned}");
    let listed = told(&["list"]);
    assert!(listed.contains("find_booking(code) = object"), "{listed}");
    let shown = told(&["show", "flight_status"]);
    assert!(
        shown.contains("flight: result /flight of find_booking"),
        "{shown}"
    );
    let exported = told(&["export"]);
    let kept = std::fs::read_to_string(&state).unwrap();
    for text in [&exported, &kept] {
        for value in ["ZK3FFW", "SK10", "My", "booking is"] {
            assert!(!text.contains(value), "{value} in {text}");
        }
    }
    refused(
        &["forget", "transfer"],
        "known are: find_booking, flight_status",
    );
    refused(&["list", "--agent", "sales"], "known are: default");
    let of_nothing = patterns(&["forget"]);
    assert_eq!(of_nothing.status.code(), Some(2));
    let asked = stderr(&of_nothing);
    assert!(asked.contains("--all") && asked.contains("TOOL"), "{asked}");
    told(&["forget", "flight_status"]);
    refused(&["show", "flight_status"], "known are: find_booking");
    told(&["forget", "--all"]);
    assert!(told(&["list"]).contains("nothing was learned yet"));
    std::fs::write(&state, "torn").unwrap();
    refused(&["list"], "patterns.json holds no patterns");
    refused(&["learn", "talks.json"], "move it away");
    std::fs::write(path.join("notes.json"), "[1]").unwrap();
    refused(&["learn", "notes.json"], "notes.json");
    refused(&["learn", "nowhere.jsonl"], "nowhere.jsonl");
    let nowhere = "[speculation]\npatterns_file = \"notes.json/patterns.json\"\n";
    std::fs::write(path.join("undertone.toml"), nowhere).unwrap();
    let failed = stderr(&patterns(&["learn", "talks.json"]));
    assert_eq!(failed.matches("os error").count(), 1, "{failed}");
    let off = "[speculation]\npatterns = false\n";
    std::fs::write(path.join("undertone.toml"), off).unwrap();
    refused(&["list"], "speculation.patterns");
}

/// Records this many calls to an agent that finds the caller's booking and then asks for the state of its flight.
async fn record(folder: &Path, calls: usize) {
    let llm = Scripted::default()
        .on(
            Cue::words("booking"),
            r#"<speech>Let me see.</speech><tool>find_booking(code="ZK3FFW")</tool>"#,
        )
        .on(
            Cue::result("find_booking"),
            r#"<speech>One moment.</speech><tool>flight_status(flight="SK101")</tool>"#,
        )
        .on(Cue::result("flight_status"), "<speech>It is late.</speech>");
    let (runs, _ran) = tokio::sync::mpsc::channel(16);
    let mut tools = Registry::new();
    for (name, argument, result) in [
        ("find_booking", "code", json!({"flight": "SK101"})),
        ("flight_status", "flight", json!({"state": "late"})),
    ] {
        let tool = Lookup::new(name, argument, result, &runs);
        tools.register(tool).expect("a tool");
    }
    let recordings = Recordings::new(folder).expect("a folder");
    let builders = Builders {
        tools: tools.into(),
        observers: Observers {
            recordings: Some(recordings),
            ..Observers::default()
        },
        ..without_models(Arc::new(llm))
    };
    let engines = Engines::start(builders).expect("engines");
    for _ in 0..calls {
        let mut talk = Talk::with(&engines);
        talk.asks("My booking is ZK3FFW.").await;
        talk.hangs_up().await;
    }
    engines.finish_sessions().await;
}

/// A conversation in the format of EVA.
fn of_eva(code: &str, flight: &str) -> Value {
    json!({
        "id": code,
        "current_date_time": "2026-03-17 09:00",
        "culture_overrides": {"en": {"code": code}},
        "ground_truth": {"expected_trace": {"trace": [
            {"event_type": "agent_utterance", "utterance": "How can I help?"},
            {"event_type": "user_utterance", "utterance": "My booking is <CODE>"},
            {"event_type": "tool_call", "tool_name": "find_booking", "params": {"code": "<CODE>"}},
            {"event_type": "tool_response", "response": {"flight": flight}},
            {"event_type": "tool_call", "tool_name": "flight_status", "params": {"flight": flight}},
            {"event_type": "tool_response", "response": {"state": "late"}},
        ]}},
    })
}

/// `undertone patterns` in a folder that declares the tools of these conversations.
fn patterns(folder: &Path, arguments: &[&str]) -> Output {
    declare_read(folder, "find_booking", "code");
    declare_read(folder, "flight_status", "flight");
    let mut command = undertone(folder, &[&["patterns"], arguments].concat());
    command.env("XDG_STATE_HOME", folder.join("state"));
    command.output().expect("it runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_in_a_shared_store_are_those_of_all_its_servers() {
    let mut redis = Redis::start().await;
    let servers = [(); 2].map(|()| {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = format!("[store]\nurl = \"{}\"\n", redis.url());
        std::fs::write(folder.path().join("undertone.toml"), settings).expect("written");
        folder
    });
    let [one, other] = servers.each_ref().map(|folder| {
        |arguments: &[&str]| {
            let output = patterns(folder.path(), arguments);
            (output.status.success(), stdout(&output) + &stderr(&output))
        }
    });
    let talks = json!([of_eva("ZK3FFW", "SK101"), of_eva("QW7RTY", "SK102")]);
    let file = servers[0].path().join("talks.json");
    std::fs::write(file, talks.to_string()).expect("written");
    let (learned, told) = one(&["learn", "talks.json"]);
    assert!(learned, "{told}");
    let (shown, told) = other(&["show", "flight_status"]);
    assert!(
        shown && told.contains("result /flight of find_booking"),
        "{told}"
    );
    let (forgot, told) = other(&["forget", "flight_status"]);
    assert!(forgot, "{told}");
    let (shown, told) = one(&["show", "flight_status"]);
    assert!(!shown && told.contains("known are: find_booking"), "{told}");
    assert!(
        !servers[0]
            .path()
            .join("state/undertone/patterns.json")
            .exists()
    );
    redis.stop().await;
    let (listed, told) = one(&["list"]);
    assert!(!listed && told.contains("the shared store: "), "{told}");
}

/// Checks that two reads of two conversations were learned from `file`, and where their arguments come from.
fn learns(folder: &Path, file: &str, words: &str) {
    let output = patterns(folder, &["learn", file]);
    let learned = stdout(&output);
    assert!(
        learned.contains("4 calls of 2 conversations"),
        "{file}: {learned} {}",
        stderr(&output)
    );
    for (tool, origin) in [
        ("find_booking", format!("code: the user's words, {words}")),
        (
            "flight_status",
            "flight: result /flight of find_booking".to_owned(),
        ),
    ] {
        let shown = stdout(&patterns(folder, &["show", tool]));
        assert!(shown.contains(&origin), "{file}: {shown}");
    }
}

#[tokio::test]
async fn patterns_are_learned_from_recordings_and_from_data_sets_of_eva() {
    let folder = tempfile::tempdir().unwrap();
    record(&folder.path().join("calls"), 2).await;
    learns(folder.path(), "calls", "the first");
    let folder = tempfile::tempdir().unwrap();
    let talks = json!([of_eva("ZK3FFW", "SK101"), of_eva("QW7RTY", "SK102")]);
    std::fs::write(folder.path().join("eva.json"), talks.to_string()).unwrap();
    learns(folder.path(), "eva.json", "the first");
}

/// The decisions of this version were shown as those of the recording.
#[tokio::test]
async fn a_policy_that_is_tried_on_other_decisions_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    record(&calls, 1).await;
    let file = std::fs::read_dir(&calls).unwrap().next().unwrap();
    let file = file.unwrap().path();
    let policy = folder.path().join("other.toml");
    std::fs::write(&policy, "[speculation]\npreemptive = false\n").unwrap();
    let played = |more: &[&str]| {
        let (file, policy) = (file.to_str().unwrap(), policy.to_str().unwrap());
        let arguments = [&["replay", file, "--policy", policy][..], more].concat();
        let output = run(folder.path(), &arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    let table = stdout(&played(&[]));
    assert!(!table.contains("decides otherwise"), "{table}");
    assert_eq!(json(&played(&["--json"]))["difference"], Value::Null);

    let recorded = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<String> = recorded.lines().map(str::to_owned).collect();
    let is_it = |line: &String| line.starts_with(r#"{"output":"#) && line.contains("It is late.");
    let at = lines.iter().position(is_it).unwrap();
    lines[at] = lines[at].replace("It is late.", "It was late.");
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let table = stdout(&played(&[]));
    let told = format!("decides otherwise from line {} of the recording on", at + 1);
    assert!(table.contains(&told), "{table}");
    assert_eq!(json(&played(&["--json"]))["difference"], at + 1);
}

/// It was refused for the tools and agents beside it, which no replay uses.
#[tokio::test]
async fn a_policy_may_be_that_of_a_server_whose_parts_are_not_here() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(&folder.join("calls"), 1).await;
    let file = std::fs::read_dir(folder.join("calls")).unwrap().next();
    let file = file.unwrap().unwrap().path();
    for (path, text) in [
        (
            "tools/zone.toml",
            "name = \"zone\"\nkind = \"mcp\"\neffect = \"read\"\n[mcp]\nserver = \"time\"\n",
        ),
        ("agents/a.toml", "model = \"large\"\n"),
        (
            "other.toml",
            "[speculation]\npreemptive = false\n[tools]\nfolder = \"tools\"\n\
             [call_recording]\nfolder = \"sounds\"\nagents = [\"a\"]\n",
        ),
    ] {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let replay = ["replay", file.to_str().unwrap(), "--policy", "other.toml"];
    let replayed = run(folder, &replay);
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    assert!(stdout(&replayed).contains("asked at the pause"));
    let refused = run(
        folder,
        &["ask", "q.wav", "--json", "--config", "other.toml"],
    );
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[tokio::test]
async fn a_damaged_recording_is_named_with_its_line_and_nothing_is_learned_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    record(&calls, 1).await;
    let file = std::fs::read_dir(&calls).unwrap().next().unwrap();
    let file = file.unwrap().path();
    let recorded = std::fs::read_to_string(&file).unwrap();
    for (kind, damaged) in [
        (r#"{"output":"#, r#""flight_status""#),
        (r#"{"t":"#, "SK101"),
    ] {
        let mut lines: Vec<&str> = recorded.lines().collect();
        let is_it = |line: &&str| line.starts_with(kind) && line.contains(damaged);
        let at = lines.iter().position(is_it).expect("such a line");
        lines[at] = lines[at].strip_suffix('}').expect("an object");
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        let output = patterns(folder.path(), &["learn", "calls"]);
        assert_eq!(output.status.code(), Some(1));
        let (error, name) = (stderr(&output), file.file_name().unwrap());
        let line = format!("line {}: ", at + 1);
        let named = error.contains(&*name.to_string_lossy()) && error.contains(&line);
        assert!(named && !error.contains("no calls"), "{line}: {error}");
    }
    let listed = stdout(&patterns(folder.path(), &["list"]));
    assert!(listed.contains("nothing was learned yet"), "{listed}");
}

/// Version 1.31 keeps a device id and a database of events in the user's cache.
#[test]
fn the_telemetry_of_onnx_runtime_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let mut say = undertone(folder.path(), &["say", "Hello.", "--out", "out.wav"]);
    say.env("UNDERTONE_MODELS", weights());
    say.env("HOME", folder.path())
        .env("XDG_CACHE_HOME", folder.path().join("cache"));
    let said = say.output().unwrap();
    assert!(said.status.success(), "{}", stderr(&said));
    for cache in [".cache", "cache"] {
        assert!(
            !folder.path().join(cache).join("Microsoft").exists(),
            "{cache}"
        );
    }
    assert!(!stderr(&said).contains("telemetry"), "{}", stderr(&said));
}

#[test]
fn the_version_says_what_it_was_built_from() {
    let folder = tempfile::tempdir().unwrap();
    let short = stdout(&run(folder.path(), &["-V"]));
    assert_eq!(
        short.trim(),
        concat!("undertone ", env!("CARGO_PKG_VERSION"))
    );
    let long = stdout(&run(folder.path(), &["--version"]));
    for part in ["commit ", "for ", "features "] {
        assert!(long.lines().any(|line| line.starts_with(part)), "{long}");
    }
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&run(folder.path(), &["completions", shell]));
        assert!(
            script.contains("transcribe") && script.contains("undertone"),
            "{shell}"
        );
    }
    let checked = Command::new("bash")
        .arg("-n")
        .arg("/dev/stdin")
        .stdin(std::process::Stdio::piped())
        .spawn();
    let mut bash = checked.unwrap();
    let script = run(folder.path(), &["completions", "bash"]).stdout;
    std::io::Write::write_all(bash.stdin.as_mut().unwrap(), &script).unwrap();
    assert!(bash.wait().unwrap().success(), "bash can read it");
    let page = stdout(&run(folder.path(), &["man"]));
    assert!(page.contains(".TH undertone 1"), "{page}");
    assert!(
        run(folder.path(), &["man", "--out", "pages"])
            .status
            .success()
    );
    for page in [
        "undertone.1",
        "undertone-serve.1",
        "undertone-models-unpack.1",
    ] {
        assert!(folder.path().join("pages").join(page).is_file(), "{page}");
    }
}

#[test]
fn packed_models_are_unpacked_and_checked_without_python() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let packed = run_with(&weights(), folder, &["models", "pack", "models.tar"]);
    assert!(packed.status.success(), "{}", stderr(&packed));
    let unpack = ["models", "unpack", "models.tar", "--into", "share/models"];
    let mut command = undertone(folder, &unpack);
    let unpacked = command.env("PATH", "/nowhere").output().unwrap();
    assert!(unpacked.status.success(), "{}", stderr(&unpacked));
    assert!(stdout(&unpacked).contains("match their sha256"));
    let verified = run_with(&folder.join("share/models"), folder, &["models", "verify"]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    let again = run(folder, &unpack);
    assert!(
        stderr(&again).contains("is not empty"),
        "{}",
        stderr(&again)
    );

    // A damaged archive leaves nothing behind.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.join("models.tar"))
        .unwrap();
    let end = file.metadata().unwrap().len() - 4_096;
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 512], end / 2).unwrap();
    let damaged = run(
        folder,
        &["models", "unpack", "models.tar", "--into", "other"],
    );
    assert!(!damaged.status.success() && !folder.join("other").exists());
}

/// Settings that keep the files of sessions, beside the configuration.
const KEPT_HERE: &str = "[audit]\nfile = 'audit.jsonl'\n[tools]\njournal = 'journal.jsonl'\n";

/// They stayed: the audit log names no caller, so only the journal says whose they are.
#[test]
fn audit_lines_of_a_session_that_only_the_journal_attributes_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |path: &str, text: &str| std::fs::write(folder.join(path), text).unwrap();
    write("undertone.toml", KEPT_HERE);
    let session = |nth: u32| uuid::Uuid::from_u128(nth.into()).to_string();
    let lines = [1, 2, 3].map(|nth| {
        let (session, call) = (session(nth), format!("{}-call_2", session(nth)));
        format!(
            "{}\n",
            json!({"session": session, "call": call, "tool": "text"})
        )
    });
    write("audit.jsonl", &lines.concat());
    let intent = |key: &str, call: Option<&str>, to: &str| {
        let intent = json!({
            "line": "intent", "key": key, "call": call, "time": "2026-01-01T00:00:00Z",
            "tool": "text", "arguments": {"to": to},
        });
        format!("{intent}\n")
    };
    let calls = [
        intent(&format!("{}-call_2", session(1)), None, "+15550100"),
        intent(
            "once-1",
            Some(&format!("{}-run_7", session(2))),
            "+15550100",
        ),
        intent(&format!("{}-call_2", session(3)), None, "+15550199"),
    ];
    write("journal.jsonl", &calls.concat());
    let tried = run(folder, &["forget", "+15550100", "--dry-run"]);
    assert!(tried.status.success(), "{}", stderr(&tried));
    assert!(stdout(&tried).contains("audit.jsonl"), "{}", stdout(&tried));
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    assert_eq!(read("audit.jsonl"), lines.concat());
    let done = run(folder, &["forget", "+15550100"]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(read("audit.jsonl"), lines[2]);
    let journal = read("journal.jsonl");
    assert!(
        journal.contains("+15550199") && !journal.contains("+15550100"),
        "{journal}"
    );
}

/// They stayed in the index of calls and in the audit log: no line that is no JSON was looked at.
#[test]
fn lines_of_a_caller_that_a_full_disk_has_cut_off_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |path: &str, text: &str| std::fs::write(folder.join(path), text).unwrap();
    std::fs::create_dir(folder.join("calls")).unwrap();
    write(
        "undertone.toml",
        "[call_recording]\nfolder = 'calls'\n[audit]\nfile = 'audit.jsonl'\n[tools]\njournal = 'journal.jsonl'\n",
    );
    let other = "{\"session\":\"session-b\",\"caller\":\"+155501001\n";
    for (path, torn) in [
        (
            "calls/calls.jsonl",
            "{\"session\":\"session-a\",\"caller\":\"+15550100\"",
        ),
        (
            "audit.jsonl",
            "{\"session\":\"session-a\",\"arguments\":{\"to\":\"+15550100\",\"te",
        ),
    ] {
        write(path, &format!("{torn}\n{other}"));
    }
    let done = run(folder, &["forget", "+15550100"]);
    assert!(done.status.success(), "{}", stderr(&done));
    for path in ["calls/calls.jsonl", "audit.jsonl"] {
        let left = std::fs::read_to_string(folder.join(path)).unwrap();
        assert_eq!(left, other, "{path}");
    }
}

/// It seemed to be done, although the recordings of sessions had not been looked at.
#[test]
fn where_nothing_of_a_caller_was_found_or_looked_for_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |path: &str, text: &str| std::fs::write(folder.join(path), text).unwrap();
    write("undertone.toml", KEPT_HERE);
    write("audit.jsonl", "");
    std::fs::create_dir(folder.join("rec")).unwrap();
    write(
        "rec/20260101T000000-7-1.jsonl",
        "{\"caller\":\"+15550100\"}\n",
    );
    let forget = |more: &[&str]| {
        let tried = [&["forget", "+15550100", "--dry-run"][..], more].concat();
        let tried = run(folder, &tried);
        assert!(tried.status.success(), "{}", stderr(&tried));
        stdout(&tried)
    };
    let told = forget(&[]);
    assert!(
        told.contains("nothing was found of +15550100 in "),
        "{told}"
    );
    assert!(
        told.contains("audit.jsonl") && told.contains("journal.jsonl"),
        "{told}"
    );
    assert!(
        told.contains("NOT looked at") && told.contains("--record"),
        "{told}"
    );
    let told = forget(&["--record", "rec"]);
    assert!(told.contains("would delete"), "{told}");
    assert!(!told.contains("nothing was found"), "{told}");
    assert!(!told.contains("NOT looked at"), "{told}");
}

#[test]
fn what_was_kept_of_a_caller_is_deleted_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |path: &str, text: &str| std::fs::write(folder.join(path), text).unwrap();
    std::fs::create_dir(folder.join("calls")).unwrap();
    std::fs::create_dir(folder.join("recordings")).unwrap();
    std::fs::create_dir(folder.join("reports")).unwrap();
    write(
        "reports/session-a.json",
        "{\"turns\":[{\"text\":\"hello\"}]}",
    );
    write(
        "reports/session-d.json",
        "{\"caller\":\"+15550100\",\"turns\":[]}",
    );
    // One that a crash has torn.
    write("reports/session-e.json", "{\"caller\":\"+15550100\",");
    write(
        "reports/session-b.json",
        "{\"caller\":\"+155501001\",\"turns\":[]}",
    );
    let settings = "[call_recording]\nfolder = 'calls'\n[audit]\nenabled = false\nfile = 'audit.jsonl'\n[tools]\njournal = 'journal.jsonl'\n";
    write("undertone.toml", settings);
    write(
        "calls/calls.jsonl",
        "{\"session\":\"session-a\",\"caller\":\"+15550100\"}\n{\"session\":\"session-b\",\"caller\":\"+15550199\"}\n",
    );
    write("calls/20260101T000000-session-a.wav", "sound");
    write("calls/20260101T000000-session-b.wav", "sound");
    write(
        "recordings/20260101T000000-7-1.jsonl",
        "{}\n{\"input\":\"call me at +15550100\"}\n",
    );
    write(
        "recordings/20260101T000000-7-2.jsonl",
        "{}\n{\"input\":\"hello\"}\n",
    );
    // A full disk has cut it off in the middle of a character.
    let torn = b"{\"caller\":\"+15550100\"}\n{\"input\":\"Z\xc3";
    std::fs::write(folder.join("recordings/20260101T000000-7-3.jsonl"), torn).unwrap();
    write(
        "audit.jsonl",
        "{\"session\":\"session-a\",\"tool\":\"book\"}\n{\"session\":\"session-b\",\"tool\":\"book\"}\n",
    );
    let intent = |key: &str, to: &str| {
        format!(
            "{{\"line\":\"intent\",\"key\":\"{key}\",\"time\":\"2026-01-01T00:00:00Z\",\"tool\":\"text\",\"arguments\":{{\"to\":\"{to}\"}}}}\n"
        )
    };
    let once = intent("once-1", "x").replace("\"time\"", "\"call\":\"session-a-call_2\",\"time\"");
    let calls = [
        once,
        intent("session-a-call_1", "x"),
        intent("session-b-call_1", "y"),
        intent("session-c-call_1", "+15550100"),
        intent("session-d-call_1", "z"),
        "{\"line\":\"result\",\"key\":\"session-d-call_1\",\"time\":\"2026-01-01T00:00:01Z\",\"result\":{\"Ok\":{\"sent to\":\"+15550100\"}}}\n".to_owned(),
    ];
    write("journal.jsonl", &calls.concat());
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    let forget = ["forget", "+15550100", "--record", "recordings"];
    let tried = run(folder, &[&forget[..], &["--dry-run"]].concat());
    assert!(tried.status.success(), "{}", stderr(&tried));
    assert!(
        stdout(&tried).contains("would delete"),
        "{}",
        stdout(&tried)
    );
    assert!(folder.join("calls/20260101T000000-session-a.wav").exists());
    assert_eq!(read("journal.jsonl"), calls.concat());

    let done = run(folder, &forget);
    assert!(done.status.success(), "{}", stderr(&done));
    for (path, left) in [
        ("calls/20260101T000000-session-a.wav", false),
        ("calls/20260101T000000-session-b.wav", true),
        ("recordings/20260101T000000-7-1.jsonl", false),
        ("recordings/20260101T000000-7-2.jsonl", true),
        ("recordings/20260101T000000-7-3.jsonl", false),
        ("reports/session-a.json", false),
        ("reports/session-d.json", false),
        ("reports/session-e.json", false),
        ("reports/session-b.json", true),
    ] {
        assert_eq!(folder.join(path).exists(), left, "{path}");
    }
    assert_eq!(
        read("audit.jsonl"),
        "{\"session\":\"session-b\",\"tool\":\"book\"}\n"
    );
    assert!(!read("calls/calls.jsonl").contains("+15550100"));
    let journal = read("journal.jsonl");
    assert!(journal.contains("session-b-call_1"), "{journal}");
    assert!(
        !journal.contains("session-a-call_") && !journal.contains("+15550100"),
        "{journal}"
    );
    assert!(run(folder, &["forget", "session"]).status.success());
    assert_eq!(read("journal.jsonl"), journal, "a part of a session's name");
    assert!(
        !run(folder, &["forget", "+1"]).status.success(),
        "too short"
    );
    // Another user's state folder, in which no server has kept anything.
    write("undertone.toml", "");
    let mut elsewhere = undertone(folder, &["forget", "+15550100"]);
    let elsewhere = elsewhere.env("XDG_STATE_HOME", folder.join("state"));
    let elsewhere = elsewhere.output().unwrap();
    assert!(!elsewhere.status.success());
    assert!(
        stderr(&elsewhere).contains("journal.jsonl"),
        "{}",
        stderr(&elsewhere)
    );
}
