//! Simulated callers: real sessions with scripted and real models, and the real program with a model server over HTTP.

use crate::common;
use crate::support::real;
use crate::support::{live::without_models, serve_on_a_thread};
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::session::{Builders, Engines, Observers, Recordings};
use undertone::simulate::{Figures, Plan, Report, Run, Scenario, Stage, Who, simulate};
use undertone::tools::declared;

/// A shop that counts what reaches it.
#[derive(Clone, Default)]
struct Shop(Arc<AtomicUsize>);

impl Shop {
    /// Serves it, and returns the declarations of its tools: a read and two changes.
    fn open(&self) -> [String; 3] {
        async fn visited(State(shop): State<Shop>) -> &'static str {
            shop.0.fetch_add(1, Ordering::SeqCst);
            r#"{"free": "really all"}"#
        }
        let routes = Router::new()
            .route("/tables", get(visited))
            .route("/book", post(visited))
            .route("/cancel", post(visited));
        let address = serve_on_a_thread(routes.with_state(self.clone()));
        let tool = |name: &str, effect: &str, method: &str, path: &str| {
            format!(
                "name = \"{name}\"\nkind = \"http\"\ndescription = \"{name}\"\neffect = \"{effect}\"\n\
                 [parameters.properties]\nday = {{ type = \"string\" }}\n\
                 [http]\nmethod = \"{method}\"\nallow_private = true\nurl = \"http://{address}/{path}\"\n"
            )
        };
        [
            tool("free_tables", "read", "GET", "tables"),
            tool("book_table", "reversible", "POST", "book"),
            tool("cancel_table", "reversible", "POST", "cancel"),
        ]
    }

    fn visits(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

const BOOKING: &str = r#"
    [[turn]]
    say = "I would like a table for Tuesday."
    [[turn]]
    interrupt_after_words = 4
    say = "No, sorry, on Wednesday."
    [[turn]]
    say = "Thank you very much, that is all."

    [[reply]]
    tool = "free_tables"
    result = { free = ["Tuesday", "Wednesday"] }
    [[reply]]
    tool = "book_table"
    when = { day = "Wednesday" }
    result = { number = 17 }

    [expect]
    order = "given"
    said = ["number 17"]
    ends = "caller"
    [[expect.call]]
    tool = "free_tables"
    [[expect.call]]
    tool = "book_table"
    arguments = { day = "wednesday" }
    [[expect.no_call]]
    tool = "cancel_table"
"#;

const OFFER: &str =
    "<speech>Tuesday is free. Would you like to sit inside, or outside in the garden?</speech>";

/// An agent that looks first, and books with this call.
fn host(booking: &str) -> Scripted {
    Scripted::default()
        .on(Cue::result("free_tables"), OFFER)
        .on(
            Cue::result("book_table"),
            "<speech>Booked, number 17.</speech>",
        )
        .on(Cue::result("cancel_table"), "<speech>Cancelled.</speech>")
        .on(Cue::words("for Tuesday"), "<tool>free_tables()</tool>")
        .on(Cue::words("Wednesday"), booking)
        .on(Cue::words("thank"), "<speech>Goodbye.</speech>")
}

fn scenario(text: &str) -> Scenario {
    Scenario::parse(Path::new("booking.toml"), text).expect("a scenario")
}

/// These engines with the shop's tools on a stage.
fn staged(built: Builders, shop: &Shop) -> (Arc<Engines>, Arc<Stage>) {
    let tools = shop.open();
    let tools = tools
        .iter()
        .map(|tool| declared::parse(Path::new("tool.toml"), tool));
    let tools: Result<Vec<_>, _> = tools.collect();
    let tools = declared::registry(&tools.expect("declarations")).expect("tools");
    let stage = Arc::new(Stage::default());
    let engines = Engines::start(Builders {
        tools: stage.set(&tools).expect("tools").into(),
        ..built
    });
    (engines.expect("engines"), stage)
}

/// Plays of a scenario, one after the other.
fn plan(text: &str, runs: usize, as_text: bool) -> Plan {
    Plan {
        scenarios: vec![scenario(text)],
        runs,
        seed: 1,
        jobs: 1,
        text: as_text,
        token_price: 1.0,
        models: std::collections::BTreeMap::new(),
    }
}

/// Plays a scenario with these engines and the shop's tools.
async fn play(built: Builders, shop: &Shop, text: &str, as_text: bool) -> (Figures, Run) {
    let (engines, stage) = staged(built, shop);
    let plan = plan(text, 1, as_text);
    let (report, mut runs) = simulate(&plan, &engines, &stage, &mut |_| ()).await;
    (report.scenarios[0].figures, runs.remove(0))
}

async fn in_text(llm: Scripted, text: &str) -> (Figures, Run, usize) {
    let shop = Shop::default();
    let (figures, run) = play(without_models(Arc::new(llm)), &shop, text, true).await;
    (figures, run, shop.visits())
}

const RIGHT: &str = "<tool>book_table(day=\"Wednesday\")</tool>";

#[tokio::test]
async fn a_booking_in_text_succeeds_without_anything_real_and_the_cut_words_are_counted() {
    let (figures, run, visits) = in_text(host(RIGHT), BOOKING).await;
    assert_eq!(run.reasons, [""; 0], "{:#?}", run.lines);
    assert_eq!((figures.runs, figures.succeeded), (1, 1));
    assert_eq!((figures.calls.right, figures.calls.wrong), (2, 0));
    assert_eq!(
        (figures.interruptions, figures.missed_interruptions),
        (1, 0)
    );
    assert!(figures.words_cut > 0, "{figures:?}");
    let agent = run.lines.iter().filter(|line| line.who == Who::Agent);
    let agent: Vec<&str> = agent.map(|line| line.text.as_str()).collect();
    assert!(agent.contains(&"Tuesday is free. Would"), "{agent:?}");
    assert!(figures.first_ms.is_some() && figures.answer_ms.is_some());
    assert!(figures.tokens.input > 0 && figures.tokens.output > 0);
    assert!(figures.cost > 0.0);
    assert_eq!(visits, 0, "no tool ran for real");
}

/// Runs passed the latencies of tools on to later ones, which then ran other calls early than alone.
#[tokio::test]
async fn a_run_begins_without_the_experience_of_those_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let recordings = Recordings::new(folder.path()).expect("a folder");
    let built = Builders {
        observers: Observers {
            recordings: Some(recordings),
            ..Observers::default()
        },
        ..without_models(Arc::new(host(RIGHT)))
    };
    let (engines, stage) = staged(built, &Shop::default());
    let (report, _) = simulate(&plan(BOOKING, 2, true), &engines, &stage, &mut |_| ()).await;
    assert_eq!(report.scenarios[0].figures.succeeded, 2);
    engines.finish_sessions().await;
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    let headers = files.map(|file| {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("a recording");
        let header = text.lines().next().expect("a header");
        serde_json::from_str::<Value>(header).expect("a header")
    });
    let headers: Vec<Value> = headers.collect();
    assert_eq!(headers.len(), 2);
    for header in headers {
        assert!(header["policy"].is_object(), "{header}");
        assert_eq!(header["experience"], Value::Null);
    }
}

#[tokio::test]
async fn wrong_missing_and_forbidden_calls_are_found_and_never_run_for_real() {
    for (booking, counts, reason) in [
        (
            "<tool>book_table(day=\"Tuesday\")</tool>",
            [1, 1, 1, 0],
            "wrong call: book_table(day = \"Tuesday\")",
        ),
        (
            "<speech>Booked, number 17.</speech>",
            [1, 0, 1, 0],
            "missing call: book_table(day = \"wednesday\")",
        ),
        (
            "<tool>book_table(day=\"Wednesday\")</tool><tool>cancel_table(day=\"Tuesday\")</tool>",
            [2, 0, 0, 1],
            "forbidden call: cancel_table(day = \"Tuesday\")",
        ),
        (
            "<speech>Sorry, we are full.</speech>",
            [1, 0, 1, 0],
            "the agent did not say \"number 17\"",
        ),
    ] {
        let (figures, run, visits) = in_text(host(booking), BOOKING).await;
        let calls = figures.calls;
        let found = [calls.right, calls.wrong, calls.missing, calls.forbidden];
        assert_eq!(found, counts, "{booking} {:?}", run.reasons);
        let found = run.reasons.iter().any(|found| found.starts_with(reason));
        assert!(found, "{booking} {:?}", run.reasons);
        assert_eq!((figures.succeeded, visits), (0, 0), "{booking}");
    }
}

#[tokio::test]
async fn only_a_read_that_the_scenario_names_runs_for_real() {
    let real = format!("{BOOKING}\n[tools]\nreal = [\"free_tables\"]\n");
    // A reply of the scenario would stand for it.
    let real = real.replacen(
        "tool = \"free_tables\"\n    result",
        "tool = \"cancel_table\"\n    result",
        1,
    );
    let (figures, run, visits) = in_text(host(RIGHT), &real).await;
    assert_eq!(run.reasons, [""; 0]);
    assert_eq!((figures.succeeded, visits), (1, 1));
    let heard = run
        .lines
        .iter()
        .find(|line| line.text.contains("really all"));
    assert!(heard.is_some(), "{:?}", run.lines);
    let without = real.replace("real = [\"free_tables\"]", "real = []");
    let (figures, run, visits) = in_text(host(RIGHT), &without).await;
    assert_eq!((figures.succeeded, visits), (0, 0));
    assert!(
        run.reasons[0].contains("no reply for this call"),
        "{:?}",
        run.reasons
    );
}

#[tokio::test]
async fn a_booking_by_voice_succeeds_in_noise_and_an_interruption_cuts_words() {
    let spoken = format!(
        "[caller]\nvoice = \"default\"\ntelephone = true\ntransport = \"twilio\"\n\
         noise = {{ kind = \"pink\", snr_db = 25 }}\n{BOOKING}"
    );
    // The recogniser may hear the day a little differently from how it is written.
    let llm = Scripted::default()
        .on(Cue::result("free_tables"), OFFER)
        .on(
            Cue::result("book_table"),
            "<speech>Booked, number 17.</speech>",
        )
        .on(Cue::words("thank"), "<speech>Goodbye.</speech>")
        .on(Cue::words("sorry"), RIGHT)
        .on(Cue::words("table"), "<tool>free_tables()</tool>");
    let built = real::engines(&common::weights(), &llm);
    let shop = Shop::default();
    let (figures, run) = play(built, &shop, &spoken, false).await;
    assert_eq!(run.reasons, [""; 0], "{:#?}", run.lines);
    assert_eq!((figures.succeeded, figures.calls.right), (1, 2));
    assert_eq!(figures.interruptions, 1);
    assert!(figures.words_cut > 0, "{:#?}", run.lines);
    let (sound, rate) = run.sound.expect("its sound");
    assert_eq!(rate, 8_000);
    let loud = |side: usize| {
        sound
            .iter()
            .skip(side)
            .step_by(2)
            .any(|sample| sample.abs() > 3_000)
    };
    assert!(loud(0) && loud(1), "both sides are audible");
    assert_eq!(shop.visits(), 0);
}

/// A model server: `host` is an agent that does what its instructions say, `guest` plays a caller.
async fn complete(axum::Json(asked): axum::Json<Value>) -> impl IntoResponse {
    let messages = asked["messages"].as_array().cloned().unwrap_or_default();
    let system = messages
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    let last = messages.last().map(ToString::to_string).unwrap_or_default();
    let text = match asked["model"].as_str() {
        Some("guest") if last.contains("Which day") => "On Wednesday.",
        Some("guest") if last.contains("number 17") => "Lovely, thank you. HANG UP",
        Some("guest") if last.contains("Goodbye") => "I am still here.",
        Some("guest") if system.contains("a table on Wednesday") => "A table, please.",
        Some("guest") => "The caller was not told its goal. HANG UP",
        _ if last.contains("tool_result") => "<speech>Booked, number 17.</speech>",
        _ if last.contains("Wednesday") && system.contains("Book what guests ask for") => {
            "<tool>book_table(day=\"Wednesday\")</tool>"
        }
        _ if last.contains("Wednesday") => "<speech>Please call again later.</speech>",
        _ if last.contains("hank you") => "<speech>Goodbye.</speech>",
        _ => "<speech>Which day?</speech>",
    };
    let choice = |delta: Value, end: Value| {
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
        format!("data: {chunk}\n\n")
    };
    let body = choice(json!({"content": text}), Value::Null) + &choice(json!({}), json!("stop"));
    (
        [(CONTENT_TYPE, "text/event-stream")],
        body + "data: [DONE]\n\n",
    )
}

/// A folder with a configuration, tools and a scenario, and the shop behind the tools.
fn restaurant(instructions: &str, scenario: &str) -> (TempDir, Shop) {
    let models = serve_on_a_thread(Router::new().route("/v1/chat/completions", post(complete)));
    let (folder, shop) = (tempfile::tempdir().expect("a folder"), Shop::default());
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    for (at, tool) in shop.open().iter().enumerate() {
        write(&format!("tools/{at}.toml"), tool);
    }
    write("scenarios/booking.toml", scenario);
    write(
        "undertone.toml",
        &configuration(&models.to_string(), instructions),
    );
    (folder, shop)
}

fn configuration(models: &str, instructions: &str) -> String {
    format!(
        "[llm]\nengine = \"openai-compatible\"\nbase_url = \"http://{models}/v1\"\nmodel = \"host\"\n\
         instructions = \"{instructions}\"\n[llm.models.guest]\nbase_url = \"http://{models}/v1\"\n\
         model = \"guest\"\n[tools]\njournal = \"journal.jsonl\"\n"
    )
}

const TEXT: &str = r#"
    [[turn]]
    say = "A table, please."
    [[turn]]
    say = "On Wednesday."
    [[turn]]
    say = "Thank you."
    [[reply]]
    tool = "book_table"
    result = { number = 17 }
    [[expect.call]]
    tool = "book_table"
    arguments = { day = "Wednesday" }
"#;

async fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNDERTONE_") {
            command.env_remove(name);
        }
    }
    command
        .args(arguments)
        .current_dir(folder)
        .env("UNDERTONE_MODELS", common::weights())
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("XDG_STATE_HOME", folder);
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    output.expect("no panic").expect("it runs")
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn report(folder: &Path) -> Report {
    let text = std::fs::read_to_string(folder.join("report.json")).expect("a report");
    Report::parse(&text).expect("a report")
}

#[tokio::test]
async fn a_changed_prompt_that_does_worse_than_the_baseline_fails_and_leaves_what_happened() {
    let (folder, shop) = restaurant("Book what guests ask for.", TEXT);
    let path = folder.path();
    let first = run(
        path,
        &[
            "simulate",
            "scenarios",
            "--text",
            "--runs",
            "2",
            "--out",
            "good",
        ],
    )
    .await;
    assert_eq!(first.status.code(), Some(0), "{}", told(&first));
    let good = report(&path.join("good"));
    assert_eq!((good.total.succeeded, good.total.runs), (2, 2));
    let same = [
        "simulate",
        "scenarios",
        "--text",
        "--baseline",
        "good/report.json",
    ];
    let again = run(path, &same).await;
    assert_eq!(again.status.code(), Some(0), "{}", told(&again));

    let settings = std::fs::read_to_string(path.join("undertone.toml")).expect("settings");
    let changed = settings.replace("Book what guests ask for.", "Be brief.");
    std::fs::write(path.join("undertone.toml"), changed).expect("written");
    let mut arguments = same.to_vec();
    arguments.extend(["--out", "bad", "--transcripts"]);
    let worse = run(path, &arguments).await;
    assert_eq!(worse.status.code(), Some(1), "{}", told(&worse));
    let text = told(&worse);
    for part in [
        "REGRESSION booking: 0/1 runs succeeded, 2/2 in the baseline",
        "booking run 1: missing call: book_table(day = \"Wednesday\")",
        "Please call again later.",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let bad = report(&path.join("bad"));
    let failed = &bad.scenarios[0].failed[0];
    let file = |name: &Option<String>| path.join("bad").join(name.as_ref().expect("a file"));
    let transcript = std::fs::read_to_string(file(&failed.transcript)).expect("a transcript");
    assert!(transcript.contains("On Wednesday."), "{transcript}");
    let recording = file(&failed.recording);
    let replayed = run(path, &["replay", recording.to_str().expect("a path")]).await;
    assert_eq!(replayed.status.code(), Some(0), "{}", told(&replayed));
    let left: Vec<PathBuf> = std::fs::read_dir(path.join("bad"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(
        left.len(),
        2,
        "the report and the failed runs alone: {left:?}"
    );

    let json = run(path, &[&same[..], &["--json", "--transcripts"]].concat()).await;
    assert_eq!(json.status.code(), Some(1), "{}", told(&json));
    let printed: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON alone");
    assert_eq!(printed["total"]["runs"], 1);
    let beside = String::from_utf8_lossy(&json.stderr);
    assert!(beside.contains("REGRESSION booking"), "{beside}");

    // A scenario that fails as it did in the baseline is no regression.
    let as_before = [
        "simulate",
        "scenarios",
        "--text",
        "--baseline",
        "bad/report.json",
    ];
    let as_before = run(path, &as_before).await;
    assert_eq!(as_before.status.code(), Some(0), "{}", told(&as_before));
    let without = run(path, &["simulate", "scenarios", "--text"]).await;
    assert_eq!(without.status.code(), Some(1), "{}", told(&without));
    assert_eq!(shop.visits(), 0, "no tool ran for real");
    assert!(
        !path.join("journal.jsonl").exists(),
        "nothing is journalled"
    );
}

#[tokio::test]
async fn a_model_plays_a_caller_with_a_goal_until_it_hangs_up() {
    let goal = format!(
        "[caller]\nmodel = \"guest\"\ngoal = \"You want a table on Wednesday.\"\n{}",
        &TEXT[TEXT.find("[[reply]]").expect("a reply")..]
    );
    let (folder, shop) = restaurant("Book what guests ask for.", &goal);
    let path = folder.path();
    let played = run(path, &["simulate", "scenarios", "--text", "--transcripts"]).await;
    let text = told(&played);
    assert_eq!(played.status.code(), Some(0), "{text}");
    for part in ["A table, please.", "On Wednesday.", "Lovely, thank you."] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(
        !text.contains("HANG UP") && !text.contains("still here"),
        "{text}"
    );
    assert_eq!(shop.visits(), 0);

    let scenario = path.join("scenarios/booking.toml");
    let bounded = goal.replacen("goal =", "max_turns = 1\ngoal =", 1);
    std::fs::write(&scenario, bounded).expect("written");
    let bounded = run(path, &["simulate", "scenarios", "--text"]).await;
    assert_eq!(bounded.status.code(), Some(1));
    assert!(
        told(&bounded).contains("caller.max_turns"),
        "{}",
        told(&bounded)
    );
    std::fs::write(&scenario, goal.replacen("\"guest\"", "\"ghost\"", 1)).expect("written");
    let missing = run(path, &["simulate", "scenarios", "--text"]).await;
    assert_eq!(missing.status.code(), Some(2));
    let text = told(&missing);
    assert!(
        text.contains("scenarios/booking.toml:2: caller.model: "),
        "{text}"
    );
    assert!(text.contains("use one of guest"), "{text}");
}

#[tokio::test]
async fn a_scenario_that_does_not_fit_the_server_is_one_line_with_the_fix_and_exit_code_2() {
    let (folder, _) = restaurant("Book what guests ask for.", TEXT);
    let path = folder.path();
    let scenario = path.join("scenarios/booking.toml");
    for (text, parts) in [
        (
            TEXT.replace(
                "[[expect.call]]\n    tool = \"book_table\"",
                "[[expect.call]]\n    tool = \"bok_table\"",
            ),
            [
                "expect.call[0].tool: there is no tool \"bok_table\"",
                "book_table",
            ],
        ),
        (
            format!("{TEXT}\n[tools]\nreal = [\"book_table\"]\n"),
            [
                "tools.real: \"book_table\" may change something",
                "write a [[reply]]",
            ],
        ),
        (
            format!("agent = \"nobody\"\n{TEXT}"),
            [
                "booking.toml:1: agent: there is no agent \"nobody\"",
                "use one of default",
            ],
        ),
        (
            format!("[caller]\nvoice = [\"default\", \"amy\"]\n{TEXT}"),
            [
                "booking.toml:2: caller.voice: the server has no voice \"amy\"",
                "\"espeak-ng:VOICE\"",
            ],
        ),
        (
            "[[turn]]\nsay = \n".to_owned(),
            ["booking.toml:2: ", "docs/simulate.md"],
        ),
    ] {
        std::fs::write(&scenario, text).expect("written");
        let output = run(path, &["simulate", "scenarios", "--text"]).await;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        for part in parts {
            assert!(told.contains(part), "no {part:?} in {told}");
        }
    }
}

/// Only a server said so: a simulation ran without its operator's tools.
#[tokio::test]
async fn a_simulation_without_a_folder_of_tools_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let scenario = "[[turn]]\nsay = \"What time is it?\"\n[tools]\nreal = [\"get_time\"]\n";
    std::fs::write(path.join("time.toml"), scenario).expect("written");
    let arguments = ["simulate", "time.toml", "--text"];
    for (is_there, warnings) in [(false, 1), (true, 0)] {
        if is_there {
            std::fs::create_dir(path.join("tools")).expect("made");
        }
        let output = run(path, &arguments).await;
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        let log = String::from_utf8_lossy(&output.stderr);
        let told = log.matches("there is no folder of tools").count();
        assert_eq!(told, warnings, "{log}");
    }
}

#[tokio::test]
async fn the_shipped_scenarios_pass_with_the_local_brain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let tools = root.join("tools").display().to_string();
    let settings = format!("[tools]\nfolder = \"{tools}\"\njournal = \"journal.jsonl\"\n");
    std::fs::write(folder.path().join("undertone.toml"), settings).expect("written");
    let scenarios = root.join("contrib/scenarios").display().to_string();
    let output = run(
        folder.path(),
        &["simulate", &scenarios, "--text", "--transcripts", "--json"],
    )
    .await;
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}
