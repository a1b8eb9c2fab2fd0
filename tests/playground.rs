//! Tests the playground in a real browser: Debian's Chromium, with a fake microphone that plays
//! questions, against the real server with the real models. `make test-tools` installs what it
//! needs.
//!
//! The screenshots and recordings stay in `target/artefacts/playground`.

#[allow(dead_code, reason = "each test program uses a part of it")]
mod support;

use axum::routing::{get, post};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::{Script, Server, ports};
use undertone::server::{App, Playground, Question, Say};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/playground");
const BROWSER: &str = "/usr/bin/chromium";

/// The weather service's response time.
const TOOL: Duration = Duration::from_millis(2_200);

fn need(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref().to_path_buf();
    assert!(
        path.exists(),
        "{} is missing: run `make test-tools`",
        path.display()
    );
    path
}

/// The latitude at which the forecast fails.
const FAILS_AT: f64 = 48.9;

type Query = axum::extract::Query<std::collections::HashMap<String, String>>;

async fn forecast(query: Query) -> Result<axum::Json<Value>, axum::http::StatusCode> {
    tokio::time::sleep(TOOL).await;
    if query.get("latitude").and_then(|at| at.parse().ok()) == Some(FAILS_AT) {
        return Err(axum::http::StatusCode::INTERNAL_SERVER_ERROR);
    }
    Ok(axum::Json(json!({
        "current": {"temperature_2m": 17.2, "weather_code": 3},
        "daily": {
            "weather_code": [3, 61],
            "temperature_2m_max": [19.0, 15.0],
            "temperature_2m_min": [9.1, 8.4],
            "precipitation_probability_max": [10, 80]
        }
    })))
}

async fn geocode(query: Query) -> axum::Json<Value> {
    let name = query.get("name");
    let latitude = match name.map(String::as_str) {
        Some("Paris") => FAILS_AT,
        _ => 51.5,
    };
    axum::Json(json!({"results": [{
        "name": name, "latitude": latitude, "longitude": -0.13,
        "country": "Somewhere", "country_code": "GB"
    }]}))
}

/// Runs a weather service until the process ends.
fn weather() -> SocketAddr {
    let router = axum::Router::new()
        .route("/v1/search", get(geocode))
        .route("/v1/forecast", get(forecast));
    support::serve_on_a_thread(router)
}

/// A server configuration with the weather tool, and a note tool that asks for confirmation.
fn configure(folder: &Path, port: u16) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = folder.join("tools");
    std::fs::create_dir_all(&tools).expect("a folder");
    let shipped = |name| std::fs::read_to_string(root.join("tools").join(name)).expect("a tool");
    let address = weather();
    let weather = format!(
        "{}\ngeocoding = \"http://{address}/v1/search\"\nforecast = \"http://{address}/v1/forecast\"\nallow_private = true\n",
        shipped("weather.toml")
    );
    std::fs::write(tools.join("weather.toml"), weather).expect("a tool");
    let notes = shipped("add_note.toml").replace("data/notes.json", "notes.json");
    let notes = format!("{notes}\n[confirm]\nspoken = true\n");
    std::fs::write(tools.join("add_note.toml"), notes).expect("a tool");
    let config = folder.join("undertone.toml");
    let text = format!(
        "[server]\nport = {port}\n[models]\ndir = \"{}\"\n[tools]\nfolder = \"tools\"\njournal = \"journal.jsonl\"\n[speculation]\npatterns_file = \"patterns.json\"\n\
         [playground]\ndemonstration = false\n[llm]\nstall_filler_ms = 10000\ngive_up_ms = 20000\n",
        weights().display()
    );
    std::fs::write(&config, text).expect("a configuration");
    config
}

fn weights() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/weights");
    std::env::var_os("UNDERTONE_MODELS").map_or(default, PathBuf::from)
}

fn undertone(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(arguments)
        .env("UNDERTONE_MODELS", weights())
        .output()
        .expect("undertone runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Writes a spoken sentence with silence before and after it, as a microphone would record it.
fn sound(folder: &Path, name: &str, text: &str, before: f32, after: f32) -> PathBuf {
    let path = folder.join(name);
    undertone(&["say", text, "--out", &path.display().to_string()]);
    let mut reader = hound::WavReader::open(&path).expect("a WAV file");
    let spec = reader.spec();
    let speech: Vec<i16> = reader.samples().map(|s| s.expect("a sample")).collect();
    let silence = |seconds: f32| vec![0_i16; (seconds * spec.sample_rate as f32) as usize];
    let mut writer = hound::WavWriter::create(&path, spec).expect("a WAV file");
    for sample in [silence(before), speech, silence(after)].concat() {
        writer.write_sample(sample).expect("written");
    }
    writer.finalize().expect("written");
    path
}

fn transcript(path: &Path) -> String {
    undertone(&["transcribe", &path.display().to_string()]).to_lowercase()
}

/// Tests the page's modules without DOM and audio: the sentence about a turn, its arithmetic and its drawing, its
/// stages, what was heard of a call's track, what is kept where the browser forbids it, the way to the server, sample
/// questions, and the microphone.
#[test]
fn what_the_page_says_of_a_turn_follows_from_its_record() {
    let tests = Command::new("node")
        .args([
            "--test",
            "story.test.mjs",
            "track.test.mjs",
            "kept.test.mjs",
            "session.test.mjs",
            "demo.test.mjs",
            "microphone.test.mjs",
        ])
        .current_dir(FOLDER)
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success(), "{said}");
    assert!(!said.contains("# pass 0"), "nothing was tested: {said}");
}

/// Where screenshots and recordings stay.
fn artefacts() -> PathBuf {
    let artefacts = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../artefacts/playground");
    std::fs::create_dir_all(&artefacts).expect("a folder");
    artefacts.canonicalize().expect("a folder")
}

fn need_browser() {
    need(BROWSER);
    need(format!("{FOLDER}/node_modules/playwright-core"));
}

/// The settings of a browser's script: the server's configuration and the sounds of the microphones.
fn script_settings(config: &Path, port: u16, sounds: Value) -> Value {
    json!({
        "chromium": BROWSER,
        "undertone": env!("CARGO_BIN_EXE_undertone"),
        "config": config,
        "port": port,
        "artefacts": artefacts(),
        "sounds": sounds,
    })
}

/// A microphone at which nobody speaks for a minute.
fn silence(folder: &Path) -> Value {
    json!({ "silence": sound(folder, "silence.wav", "Hello.", 60.0, 0.0) })
}

/// Runs a browser's script. Returns what it measured.
fn visit(script: &str, folder: &Path, settings: &Value) -> Value {
    let path = folder.join("settings.json");
    std::fs::write(&path, settings.to_string()).expect("written");
    let visit = Command::new("node")
        .arg(script)
        .arg(&path)
        .current_dir(FOLDER)
        .output()
        .expect("node runs");
    let (said, complained) = (
        String::from_utf8_lossy(&visit.stdout),
        String::from_utf8_lossy(&visit.stderr),
    );
    // What failed comes first: such a report is long.
    let step = complained.rfind("\n-- ").unwrap_or_default();
    assert!(
        visit.status.success(),
        "{}\n\nbefore that:\n{said}\n{}",
        &complained[step..],
        &complained[..step]
    );
    let measured: Value =
        serde_json::from_str(said.lines().last().unwrap_or_default()).expect("a report");
    println!("{measured:#}");
    axe_found_nothing(&measured);
    measured
}

/// With the shipped settings: no key, no file but for the port.
#[test]
fn one_click_plays_a_question_with_and_without_the_early_start() {
    need_browser();
    let folder = tempfile::tempdir().expect("a folder");
    let (port, config) = (ports::free(), folder.path().join("undertone.toml"));
    let models = weights();
    let text = format!(
        "[server]\nport = {port}\n[models]\ndir = \"{}\"\n[tools]\nfolder = \"{}/tools\"\njournal = \"journal.jsonl\"\n[speculation]\npatterns_file = \"patterns.json\"\n",
        models.display(),
        env!("CARGO_MANIFEST_DIR"),
    );
    std::fs::write(&config, text).expect("a configuration");
    let settings = script_settings(&config, port, silence(folder.path()));
    visit("compare.mjs", folder.path(), &settings);
}

/// The server names an address for WebRTC at which nobody answers.
#[test]
fn without_webrtc_the_page_says_why_and_goes_on_over_the_websocket() {
    need_browser();
    let folder = tempfile::tempdir().expect("a folder");
    let (port, artefacts) = (ports::free(), artefacts());
    let config = configure(folder.path(), port);
    let settings = std::fs::read_to_string(&config).expect("a configuration");
    let unreachable = "[webrtc]\nadvertise = [\"192.0.2.77\"]\n";
    std::fs::write(&config, format!("{settings}{unreachable}")).expect("a configuration");
    let settings = script_settings(&config, port, silence(folder.path()));
    visit("fallback.mjs", folder.path(), &settings);
    let heard = transcript(&artefacts.join("fallback.wav"));
    // A longer answer, of which one word is enough: a digit alone is misheard at times.
    let words = ["weather", "degree", "cloudy"];
    assert!(words.iter().any(|word| heard.contains(word)), "{heard}");
}

#[test]
fn a_page_that_loses_its_connection_comes_back_and_the_answer_goes_on() {
    need_browser();
    let folder = tempfile::tempdir().expect("a folder");
    let (port, artefacts) = (ports::free(), artefacts());
    let config = configure(folder.path(), port);
    let settings = script_settings(&config, port, silence(folder.path()));
    visit("reconnect.mjs", folder.path(), &settings);
    for file in ["reconnect.wav", "reconnect-call.wav"] {
        let heard = transcript(&artefacts.join(file));
        assert!(heard.contains("timer"), "{file}: {heard}");
    }
}

#[test]
fn a_browser_to_which_no_udp_port_is_open_talks_over_tcp() {
    need_browser();
    let folder = tempfile::tempdir().expect("a folder");
    let (port, artefacts) = (ports::free(), artefacts());
    let settings = script_settings(
        &configure(folder.path(), port),
        port,
        silence(folder.path()),
    );
    // A browser that gets no processor for a while loses sound; one to which none comes never hears a word.
    let mut heard = Vec::new();
    while !heard.iter().any(|words: &String| words.contains("tokyo")) {
        assert!(heard.len() < 3, "{heard:?}");
        visit("tcp.mjs", folder.path(), &settings);
        heard.push(transcript(&artefacts.join("tcp.wav")));
    }
}

#[test]
fn a_visitor_chooses_the_agent_of_a_conversation() {
    need_browser();
    let folder = tempfile::tempdir().expect("a folder");
    let port = ports::free();
    let config = configure(folder.path(), port);
    let agents = folder.path().join("agents");
    std::fs::create_dir(&agents).expect("a folder");
    for (name, greeting, by_name) in [
        ("billing", "This is billing.", true),
        ("stock", "This is the stock room.", true),
        ("vault", "This is the vault.", false),
    ] {
        let agent = format!("greeting = \"{greeting}\"\nby_name = {by_name}\n");
        std::fs::write(agents.join(format!("{name}.toml")), agent).expect("an agent");
    }
    let settings = script_settings(&config, port, silence(folder.path()));
    visit("agents.mjs", folder.path(), &settings);
}

/// A recogniser's service that hears the same question in whatever language it is told.
fn recogniser() -> SocketAddr {
    let transcribe = |form: axum::body::Bytes| async move {
        let is_german = String::from_utf8_lossy(&form).contains("name=\"language\"\r\n\r\nde\r\n");
        let text = match is_german {
            true => "Was ist zwei plus drei?",
            false => "What is two plus three?",
        };
        axum::Json(json!({ "text": text }))
    };
    let router = axum::Router::new().route("/v1/audio/transcriptions", post(transcribe));
    support::serve_on_a_thread(router)
}

/// The server's own voice under another name, with one thing that is told of it changed.
fn voice_like_own(folder: &Path, name: &str, [part, field]: [&str; 2], value: Value) -> PathBuf {
    let (own, other) = (weights().join("piper-joe"), folder.join(name));
    std::fs::create_dir(&other).expect("a folder");
    for model in ["encoder.onnx", "decoder.onnx"] {
        std::os::unix::fs::symlink(own.join(model), other.join(model)).expect("a link");
    }
    let about = std::fs::read_to_string(own.join("voice.json")).expect("a voice");
    let mut about: Value = serde_json::from_str(&about).expect("JSON");
    about[part][field] = value;
    std::fs::write(other.join("voice.json"), about.to_string()).expect("a voice");
    other
}

#[test]
fn a_visitor_chooses_microphone_voice_and_language_and_finds_them_again() {
    need_browser();
    let folder = tempfile::tempdir().expect("a folder");
    let port = ports::free();
    let config = configure(folder.path(), port);
    let settings = std::fs::read_to_string(&config).expect("a configuration");
    // It says everything higher and in two thirds of the time.
    let rate = ["audio", "sample_rate"];
    let quick = voice_like_own(folder.path(), "quick", rate, json!(33_075));
    let spoken = ["espeak", "voice"];
    let german = voice_like_own(folder.path(), "german", spoken, json!("de"));
    let service = recogniser();
    let speech = format!(
        "[asr]\nservice = \"far\"\n[asr.services.far]\nbase_url = \"http://{service}/v1\"\nmodel = \"any\"\n\
         [tts.voices]\nquick = \"{}\"\ngerman = \"{}\"\n",
        quick.display(),
        german.display(),
    );
    std::fs::write(&config, format!("{settings}{speech}")).expect("a configuration");
    let sounds = json!({ "question": sound(folder.path(), "question.wav", "What is two plus three?", 1.0, 30.0) });
    let settings = script_settings(&config, port, sounds);
    visit("choices.mjs", folder.path(), &settings);
}

#[test]
fn a_visitor_talks_types_interrupts_and_sees_what_ran_early() {
    need_browser();
    let folder = tempfile::tempdir().expect("a folder");
    let artefacts = artefacts();
    let port = ports::free();
    let question = "What is the weather in London right now?";
    let interruption = "Wait, stop. What time is it in Tokyo?";
    let sounds = json!({
        "question": sound(folder.path(), "question.wav", question, 1.0, 30.0),
        "interruption": sound(folder.path(), "interruption.wav", interruption, 0.6, 30.0),
    });
    let settings = script_settings(&configure(folder.path(), port), port, sounds);
    let measured = visit("visit.mjs", folder.path(), &settings);
    check(&measured);
    // A busy browser may drop audio, so not every word is recognised.
    let captured = &["weather", "degree"][..];
    for (file, words) in [
        ("demo.wav", captured),
        ("spoken.wav", captured),
        ("typed.wav", captured),
        // The agent's words, also when it was misheard.
        ("session.wav", &["degree", "keep timers"]),
    ] {
        let heard = transcript(&artefacts.join(file));
        println!("{file}: {heard}");
        assert!(
            words.iter().any(|word| heard.contains(word)),
            "{file}: {heard}"
        );
    }
}

/// With the shipped settings. The page is of another origin than the server.
#[test]
fn the_official_sdk_for_browsers_talks_over_webrtc_with_its_default_transport() {
    need_browser();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sdk = "tests/foreign/node_modules/@openai/agents-realtime/dist/bundle";
    let sdk = need(root.join(sdk));
    let folder = tempfile::tempdir().expect("a folder");
    let (port, config) = (ports::free(), folder.path().join("undertone.toml"));
    let speech = folder.path();
    for (name, text) in [
        ("sum.wav", "What is twelve times seven?"),
        ("weather.wav", "What's the weather in London?"),
        ("abilities.wav", "What can you do?"),
        ("plus.wav", "What is two plus two?"),
    ] {
        sound(speech, name, text, 0.0, 0.0);
    }
    std::fs::create_dir(speech.join("tools")).expect("a folder");
    let text = format!(
        "[server]\nport = {port}\n[models]\ndir = \"{}\"\n[tools]\nfolder = \"tools\"\njournal = \"journal.jsonl\"\n\
         [speculation]\npatterns_file = \"patterns.json\"\n[playground]\ndemonstration = false\n",
        weights().display(),
    );
    std::fs::write(&config, text).expect("a configuration");
    let mut settings = script_settings(&config, port, json!({}));
    settings["sdk"] = json!(sdk);
    settings["speech"] = json!(speech);
    let measured = visit("webrtc.mjs", folder.path(), &settings);
    assert_eq!(measured["complaints"], json!([]));
}

/// They were English on every server.
#[tokio::test]
async fn sample_questions_are_told_with_their_language_and_spoken_in_it() {
    let say: Say = Arc::new(|text, language| {
        Box::pin(async move { Some(format!("{language}: {text}").into_bytes()) })
    });
    let playground = Playground {
        questions: vec![
            Question::new("What time is it?", "en"),
            Question::new("Wie viel Uhr ist es?", "de"),
        ],
        say: Some(say),
        ..Playground::default()
    };
    let sessions = support::scripted::factory(Script::default());
    let server = Server::serve(App {
        playground,
        ..App::new(support::local(), sessions)
    });
    let about = server.get("/playground/about", "").await;
    let german = r#""text":"Wie viel Uhr ist es?","language":"de""#;
    assert!(about.contains(german), "{about}");
    let clip = server.get("/playground/questions/1", "").await;
    assert!(clip.ends_with("de: Wie viel Uhr ist es?"), "{clip}");
}

fn axe_found_nothing(measured: &Value) {
    for (name, violations) in measured.as_object().expect("an object") {
        if name.starts_with("axe_") {
            assert_eq!(*violations, json!([]), "{name}");
        }
    }
}

fn check(measured: &Value) {
    // First paint, idle CPU share and the demo's wait are only printed, because they depend on the
    // machine.
    let weight = measured["page_bytes"].as_u64().expect("a number");
    assert!(weight < 500_000, "the page weighs {weight} bytes");
    let stop = measured["barge_in_stop"].as_str().expect("a span");
    assert!(stop.ends_with("ms"), "the agent spoke on for {stop}");
}

#[tokio::test]
async fn the_page_may_load_nothing_from_elsewhere_and_is_asked_for_anew() {
    let server = Server::start(Script::default()).await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/main.js", "text/javascript"),
        ("/audio-out.worklet.js", "text/javascript"),
        ("/style.css", "text/css"),
    ] {
        let answer = server.get(path, "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        for field in [
            "content-security-policy: default-src 'self'",
            "x-content-type-options: nosniff",
            "cache-control: no-cache",
            &format!("content-type: {kind}"),
        ] {
            assert!(head.contains(field), "{path} has no {field}: {head}");
        }
        let tag = head
            .lines()
            .find_map(|line| line.strip_prefix("etag: "))
            .expect("a tag");
        let again = server.get(path, &format!("If-None-Match: {tag}\r\n")).await;
        assert!(again.starts_with("HTTP/1.1 304"), "{again}");
    }
}

#[tokio::test]
async fn what_the_server_can_do_is_told_to_those_who_may_open_a_session() {
    let settings = undertone::server::ServerSettings {
        auth_token: Some("a-token-of-some-length".into()),
        ..support::local()
    };
    let server = Server::with(settings, Script::default()).await;
    for path in ["/playground/about", "/playground/questions/0"] {
        let answer = server.get(path, "").await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    let shown = "Authorization: Bearer a-token-of-some-length\r\n";
    let answer = server.get("/playground/about", shown).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = server.get("/playground/questions/0", shown).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(server.get("/", "").await.starts_with("HTTP/1.1 200"));
}
