//! Tests the server with unmodified third-party clients, which define whether the wire format is
//! right. `make test-tools` installs them.

mod llama;
mod mcp;

use crate::{common, support};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use support::cartesia::{self, CartesiaService};
use support::deepgram::DeepgramService;
use support::elevenlabs::{self, ElevenLabsService};
use support::scripted::ANSWER_FRAMES;
use support::speech_services::{HEARD, KEY, SpeechService};
use support::{Script, Server, local, scripted};
use tokio::process::Command;
use undertone::audio::to_pcm16le;
use undertone::server::App;
use undertone::session::{self, Observers, SessionOptions};
use undertone::transport::webrtc;

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

/// Runs a client and returns its report.
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

/// The clients' questions, by the file names that the drivers use.
const SPOKEN: [(&str, &str); 4] = [
    ("sum", "What is twelve times seven?"),
    ("weather", "What's the weather in London?"),
    ("abilities", "What can you do?"),
    ("plus", "What is two plus two?"),
];

/// The questions as speech, in files of mono PCM16LE at 24 kHz, synthesised once.
static SPEECH: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let mut booth = common::Booth::new(&common::weights());
    for (name, text) in SPOKEN {
        let path = folder.path().join(format!("{name}.pcm"));
        let speech = to_pcm16le(&booth.say(text, 24_000));
        std::fs::write(path, speech).expect("written");
    }
    folder
});

/// Makes a client hold the conversation of `conversation.py` and `conversation.mjs`: two spoken
/// questions, one for a server tool and one for a client tool, a barge-in, and a typed question.
/// Asserts that there are no complaints, one answer to each question, and no other speech.
async fn converse(program: &Path, driver: &str, scheme: &str, path: &str) {
    let _together = common::together().await;
    let engines = support::real::shipped(|_| (), Observers::default());
    let open = move |options: SessionOptions| Ok(session::open(&engines, &options));
    let port = webrtc::bind(local().bind, &[]).expect("a UDP port");
    let server = Server::serve(App {
        webrtc: Some(port),
        ..App::new(local(), Arc::new(open))
    });
    let speech = tokio::task::spawn_blocking(|| SPEECH.path());
    let speech = speech.await.expect("speech");
    let url = format!("{scheme}://{}{path}", server.address);
    let report = report(Command::new(program).arg(driver).arg(url).arg(speech)).await;
    let step = |name: &str| {
        let steps = report["steps"].as_array().expect("steps");
        let step = steps.iter().find(|step| step["name"] == name);
        step.unwrap_or_else(|| panic!("no {name}: {report}"))
    };
    let said = |name: &str| step(name)["said"].to_string();
    let ended = |name: &str| step(name)["responses"].clone();
    assert_eq!(report["complaints"], json!([]), "{report}");
    assert!(said("sum").contains("84"), "{report}");
    assert_eq!(ended("sum"), json!(["completed"]), "{report}");
    let calls = report["calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 1, "{report}");
    assert!(
        calls[0]["city"]
            .as_str()
            .is_some_and(|city| city.contains("London")),
        "{report}"
    );
    assert!(said("weather").contains("21"), "{report}");
    assert_eq!(
        ended("weather"),
        json!(["completed", "completed"]),
        "{report}"
    );
    let answers = step("interruption")["said"].as_array().expect("answers");
    let last = answers.last().map(Value::to_string).unwrap_or_default();
    assert!(last.contains(" 4"), "{report}");
    assert_eq!(
        ended("interruption"),
        json!(["cancelled", "completed"]),
        "{report}"
    );
    assert!(said("text").contains("11"), "{report}");
    assert_eq!(ended("text"), json!(["completed"]), "{report}");
    let history = report["history"].to_string();
    assert!(history.contains("84") && history.contains("11"), "{report}");
}

async fn python(driver: &str, scheme: &str, path: &str) {
    converse(&need(".venv/bin/python"), driver, scheme, path).await;
}

/// Large clients have an environment of their own: `make verify`.
async fn heavy_python(driver: &str, scheme: &str, path: &str) {
    converse(&need(".venv-verify/bin/python"), driver, scheme, path).await;
}

async fn javascript(driver: &str, package: &str) {
    need(&format!("node_modules/{package}"));
    let path = "/v1/realtime?model=undertone";
    converse(Path::new("node"), driver, "ws", path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_for_python_holds_a_conversation() {
    python("openai_client.py", "http", "/v1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aiortc_holds_a_conversation_over_webrtc() {
    let program = need(".venv-webrtc/bin/python");
    converse(&program, "aiortc_call.py", "http", "/v1/realtime/calls").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn werift_holds_a_conversation_over_webrtc() {
    need("node_modules/werift");
    converse(
        Path::new("node"),
        "werift_call.mjs",
        "http",
        "/v1/realtime/calls",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_agents_for_javascript_holds_a_conversation() {
    javascript("agents.mjs", "@openai/agents-realtime").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_realtime_api_for_javascript_holds_a_conversation_over_the_beta() {
    javascript("beta.mjs", "openai-realtime-api").await;
}

/// A server with all models that also serves speech without a session.
fn with_speech() -> Server {
    let engines = support::real::shipped(|_| (), Observers::default());
    Server::serve(App {
        speech: Some(engines.clone()),
        ..App::new(
            local(),
            Arc::new(move |options: SessionOptions| Ok(session::open(&engines, &options))),
        )
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_for_python_speaks_and_transcribes() {
    let server = with_speech();
    let url = format!("http://{}/v1", server.address);
    let python = need(".venv/bin/python");
    let heard = report(Command::new(python).arg("openai_audio.py").arg(url)).await;
    assert_eq!(heard["kind"], "audio/wav", "{heard}");
    assert_eq!(heard["form"], json!([1, 2, 24_000]), "{heard}");
    let seconds = heard["bytes"].as_f64().expect("a number") / 48_000.0;
    assert!((3.0..7.0).contains(&seconds), "{heard}");
    let pieces = heard["pieces"].as_u64().expect("a number");
    assert!(pieces > 1, "{heard}");
    for text in ["json", "text"] {
        is_announcement(&heard[text]);
    }
    let duration = heard["duration"].as_f64().expect("a number");
    // The same words take longer or shorter each time that they are spoken.
    let recorded = heard["seconds"].as_f64().expect("a number");
    assert!((duration - recorded).abs() < 0.1, "{heard}");
    let segments = heard["segments"].as_array().expect("segments");
    let last = segments.last().expect("one")[1].as_f64().expect("a number");
    assert!((last - duration).abs() < 0.1, "{heard}");
    is_announcement(&heard["stream"][1]);
    assert_eq!(heard["stream"][0], heard["stream"][1], "{heard}");
    let refused = ["input", "voice", "response_format", "language", "file"];
    assert_eq!(heard["refused"], json!(refused), "{heard}");
}

#[tokio::test]
async fn openai_for_python_takes_the_simulator_for_its_service() {
    let service = SpeechService::start();
    let url = format!("http://{}/v1", service.address);
    let python = need(".venv/bin/python");
    let args = ["speech_services.py", &url, KEY];
    let report = report(Command::new(python).args(args)).await;
    assert_eq!(report["text"], HEARD, "{report}");
    assert_eq!(report["bytes"], 3 * 2 * 24_000 / 5, "{report}");
    assert_eq!(report["refused"], 401, "{report}");
    assert_eq!(service.transcriptions()[0]["file"], 1_000);
}

#[tokio::test]
async fn deepgrams_sdk_takes_the_simulator_for_its_service() {
    let service = DeepgramService::start();
    let python = need(".venv/bin/python");
    let args = ["deepgram_listen.py", &service.address.to_string(), KEY];
    let report = report(Command::new(python).args(args)).await;
    assert_eq!(report["final"], HEARD, "{report}");
    assert_eq!(report["interim"], 3, "{report}");
    assert_eq!(report["last_word_ends"], 0.55, "{report}");
    assert_eq!(report["seconds"], 0.6, "{report}");
    assert_eq!(report["refused"], 401, "{report}");
    let seen = service.seen();
    assert_eq!(seen.messages, ["KeepAlive", "Finalize", "CloseStream"]);
    assert_eq!(seen.mistakes, [""; 0]);
}

#[tokio::test]
async fn deepgrams_sdk_takes_the_simulator_for_flux() {
    let service = DeepgramService::start();
    let python = need(".venv/bin/python");
    let args = ["deepgram_flux.py", &service.address.to_string(), KEY];
    let report = report(Command::new(python).args(args)).await;
    let events = [
        "StartOfTurn",
        "EagerEndOfTurn",
        "TurnResumed",
        "EagerEndOfTurn",
        "EndOfTurn",
        "StartOfTurn",
        "EndOfTurn",
    ];
    assert_eq!(report["events"], json!(events), "{report}");
    assert_eq!(report["transcripts"][1], "How are", "{report}");
    assert_eq!(report["transcripts"][3], HEARD, "{report}");
    assert_eq!(report["transcripts"][4], HEARD, "{report}");
    assert_eq!(report["turn"], 0, "{report}");
    assert_eq!(report["last_word"], "afar?", "{report}");
    assert_eq!(report["trigger"], "model", "{report}");
    assert_eq!(
        report["forced"],
        json!([1, "manual", "How are"]),
        "{report}"
    );
    assert_eq!(report["error"], "UNPARSABLE_CLIENT_MESSAGE", "{report}");
    assert_eq!(report["refused"], 401, "{report}");
    let seen = service.seen();
    assert_eq!(seen.messages, ["ForceEndTurn", "CloseStream", "Nonsense"]);
    assert_eq!(seen.mistakes, ["a message of the type Nonsense"]);
}

#[tokio::test]
async fn elevenlabs_sdk_takes_the_simulator_for_its_service() {
    let service = ElevenLabsService::start();
    let python = need(".venv/bin/python");
    let address = service.address.to_string();
    let args = ["elevenlabs_speech.py", &address, KEY, elevenlabs::VOICE];
    let report = report(Command::new(python).args(args)).await;
    assert_eq!(report["bytes"], 3 * 2 * 24_000 / 5, "{report}");
    assert_eq!(report["characters"], "One two three.", "{report}");
    let ends = report["ends"].as_array().expect("times");
    assert!(
        (ends[2].as_f64().expect("a time") - 0.6).abs() < 1e-6,
        "{report}"
    );
    assert_eq!(report["refused"], json!([401, 404]), "{report}");
}

#[tokio::test]
async fn cartesias_sdk_takes_the_simulator_for_its_service() {
    let service = CartesiaService::start();
    let python = need(".venv/bin/python");
    let address = service.address.to_string();
    let args = ["cartesia_speech.py", &address, KEY, cartesia::VOICE];
    let report = report(Command::new(python).args(args)).await;
    assert_eq!(report["bytes"], 3 * 2 * 24_000 / 5, "{report}");
    assert_eq!(report["words"], json!(["One", "two", "three."]), "{report}");
    assert_eq!(report["error"], 400, "{report}");
    assert!(
        report["refused"]
            .as_str()
            .is_some_and(|error| error.contains("401")),
        "{report}"
    );
    assert_eq!(service.seen().mistakes, ["invalid voice"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_for_javascript_speaks_and_transcribes() {
    need("node_modules/openai");
    let server = with_speech();
    let url = format!("http://{}/v1", server.address);
    let heard = report(Command::new("node").arg("openai_audio.mjs").arg(url)).await;
    is_announcement(&heard["text"]);
    is_announcement(&heard["done"]);
    assert_eq!(heard["refused"], "voice", "{heard}");
}

/// The voice says it differently each time, and the recogniser may take one word for another: "the next ring".
fn is_announcement(text: &Value) {
    let text = text.as_str().unwrap_or_default().to_lowercase();
    let words = ["train", "boston", "nine", "platform", "left"];
    let heard = words.iter().filter(|&&word| {
        let nine = word == "nine" && text.contains('9');
        nine || text.contains(word)
    });
    assert!(heard.count() >= words.len() - 1, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a large package: `make verify` installs and runs it"]
async fn openai_agents_for_python_holds_a_conversation() {
    heavy_python("openai_agents.py", "ws", "/v1/realtime?model=undertone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a large package: `make verify` installs and runs it"]
async fn livekit_agents_hold_a_conversation_and_carry_one_on() {
    heavy_python("livekit_agent.py", "http", "/v1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a large package: `make verify` installs and runs it"]
async fn pipecats_realtime_service_holds_a_conversation() {
    heavy_python("pipecat_service.py", "ws", "/v1/realtime?model=undertone").await;
}

#[tokio::test]
async fn asterisk_audiosocket_for_node_takes_a_spoken_turn() {
    need("node_modules/asterisk-audiosocket");
    let sessions = scripted::factory(Script::default());
    let (_server, address) = Server::of_calls(local(), sessions);
    let port = address.port();
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
