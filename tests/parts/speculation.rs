//! Tests speculation in a spoken conversation with a real HTTP tool: with it the answer follows the
//! filler at once, without it there is dead air in between, and discarded runs leave no trace.
//!
//! The language model is a local OpenAI-compatible server with the latency of a fast one: 350 ms to
//! the first token, 15 ms per token.

use crate::{common, support};
use axum::extract::{Json, State};
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const QUESTION: &str = "Please tell me the weather in London right now.";
/// The model calls nothing for these words.
const UNCALLED: &str = "This is a test, please tell me the weather in London right now.";

/// The weather service's response time.
const TOOL: Duration = Duration::from_millis(1_500);

/// Counts the requests to the weather service.
#[derive(Default)]
struct Seen {
    asked: AtomicUsize,
    answered: AtomicUsize,
    dropped: AtomicUsize,
}

impl Seen {
    /// The requests since the last call, in all and dropped, once they are over: the service
    /// notices a disconnect only a moment later.
    fn requests(&self) -> (usize, usize) {
        let mut tries = 0;
        while self.answered.load(SeqCst) + self.dropped.load(SeqCst) < self.asked.load(SeqCst) {
            tries += 1;
            assert!(tries < 3_000, "a request to the service never ends");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.answered.store(0, SeqCst);
        (self.asked.swap(0, SeqCst), self.dropped.swap(0, SeqCst))
    }
}

/// Counts a request as dropped if it ends before it was answered.
struct Under(Arc<Seen>, bool);

impl Drop for Under {
    fn drop(&mut self) {
        let counter = if self.1 {
            &self.0.answered
        } else {
            &self.0.dropped
        };
        counter.fetch_add(1, SeqCst);
    }
}

async fn forecast(State(seen): State<Arc<Seen>>) -> Json<Value> {
    seen.asked.fetch_add(1, SeqCst);
    let mut under = Under(seen, false);
    tokio::time::sleep(TOOL).await;
    under.1 = true;
    Json(json!({
        "current": {"temperature_2m": 61.7, "weather_code": 3},
        "daily": {
            "weather_code": [3, 61],
            "temperature_2m_max": [64.9, 50.0],
            "temperature_2m_min": [40.1, 33.4],
            "precipitation_probability_max": [10, 80]
        }
    }))
}

async fn geocode() -> Json<Value> {
    Json(json!({"results": [{
        "name": "London", "latitude": 51.5, "longitude": -0.13,
        "country": "United Kingdom", "country_code": "GB"
    }]}))
}

/// Answers like a well-behaved model.
async fn model(
    Json(request): Json<Value>,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let said = |role: &str| {
        let of_role = messages.iter().rfind(|message| message["role"] == role);
        of_role.map_or_else(String::new, |message| {
            message["content"].to_string().to_lowercase()
        })
    };
    let last = messages.last().map_or_else(String::new, Value::to_string);
    let answer = if last.contains("temperature") {
        "<speech>It is sixty two degrees and cloudy in London.</speech>"
    } else if said("user").contains("test") {
        "<speech>All right, your test works.</speech>"
    } else {
        "<speech>Let me check that for you.</speech><tool>get_weather(place=\"London\")</tool>"
    };
    let tokens: Vec<String> = answer
        .as_bytes()
        .chunks(4)
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
        .collect();
    let first = futures_util::stream::once(tokio::time::sleep(Duration::from_millis(350)));
    let rest = futures_util::stream::unfold(tokens.into_iter(), |mut tokens| async {
        let token = tokens.next()?;
        tokio::time::sleep(Duration::from_millis(15)).await;
        let delta = json!({"choices": [{"index": 0, "delta": {"content": token}}]});
        Some((Ok(Event::default().data(delta.to_string())), tokens))
    });
    let done = futures_util::stream::iter([
        Ok(Event::default().data(
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string(),
        )),
        Ok(Event::default().data("[DONE]")),
    ]);
    use futures_util::StreamExt;
    Sse::new(
        first
            .filter_map(|()| std::future::ready(None))
            .chain(rest)
            .chain(done),
    )
}

/// Serves the weather and the language model until the process ends.
fn serve(seen: Arc<Seen>) -> SocketAddr {
    let router = axum::Router::new()
        .route("/v1/search", get(geocode))
        .route("/v1/forecast", get(forecast))
        .route("/v1/chat/completions", post(model))
        .with_state(seen);
    support::serve_on_a_thread(router)
}

/// The shipped weather tool.
fn weather() -> String {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/weather.toml");
    std::fs::read_to_string(shipped).expect("the shipped tool")
}

/// A configuration with only this tool.
fn configure(
    folder: &Path,
    address: SocketAddr,
    speculation: bool,
    tool: &str,
) -> std::path::PathBuf {
    let tools = folder.join("tools");
    std::fs::create_dir_all(&tools).expect("a folder");
    let settings = format!(
        "{tool}\ngeocoding = \"http://{address}/v1/search\"\nforecast = \"http://{address}/v1/forecast\"\nallow_private = true\n"
    );
    std::fs::write(tools.join("weather.toml"), settings).expect("a tool");
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/weights");
    let config = folder.join(format!("{speculation}.toml"));
    let text = format!(
        "[models]\ndir = \"{}\"\n[llm]\nengine = \"openai-compatible\"\nbase_url = \"http://{address}/v1\"\nmodel = \"scripted\"\n\
         stall_filler_ms = 60000\ngive_up_ms = 120000\n\
         [tools]\nfolder = \"tools\"\njournal = \"journal.jsonl\"\n[speculation]\nenabled = {speculation}\n",
        models.display()
    );
    std::fs::write(&config, text).expect("a configuration");
    config
}

fn undertone(arguments: &[&str], config: Option<&Path>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.args(arguments);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let output = command.output().expect("undertone runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

struct Asked {
    answer: Value,
    events: String,
    /// The weather service's requests: all of them, and those that were dropped.
    requests: (usize, usize),
}

impl Asked {
    fn last_turn(&self, stamp: &str) -> Option<u64> {
        self.answer["turns"].as_array()?.last()?[stamp].as_u64()
    }

    /// The time from the end of speech to the answer, ms.
    fn answer_ms(&self) -> u64 {
        let (end, answer) = (self.last_turn("speech_end"), self.last_turn("answer_audio"));
        (answer.expect("an answer") - end.expect("speech")) / 1_000
    }
}

/// How often a question is asked until it is recognised correctly.
const ATTEMPTS: usize = 8;

/// Asks aloud. The voice varies, and now and then "weather in" is recognised as "weather and",
/// which names no place; then the question is repeated.
fn ask(folder: &Path, question: &str, config: &Path, seen: &Seen) -> Asked {
    let path = |name: &str| folder.join(name).display().to_string();
    let (wav, out, events) = (
        path("question.wav"),
        path("answer.wav"),
        path("events.jsonl"),
    );
    for _ in 0..ATTEMPTS {
        undertone(&["say", question, "--out", &wav], None);
        let printed = undertone(
            &["ask", &wav, "--out", &out, "--events", &events, "--json"],
            Some(config),
        );
        let requests = seen.requests();
        let answer: Value = serde_json::from_str(&printed).expect("JSON");
        println!("heard {}, requests {requests:?}", answer["heard"]);
        if answer["heard"].to_string().contains("weather in London") {
            return Asked {
                answer,
                events: std::fs::read_to_string(&events).expect("events"),
                requests,
            };
        }
    }
    panic!("{ATTEMPTS} times heard as something else: {question}");
}

#[test]
fn speculation_brings_the_answer_sooner() {
    let _alone = common::alone_blocking();
    let folder = tempfile::tempdir().expect("a folder");
    let seen = Arc::<Seen>::default();
    let address = serve(seen.clone());
    let on = configure(folder.path(), address, true, &weather());
    let off = configure(folder.path(), address, false, &weather());
    // Other load may slow one question down, and a word may be misheard.
    let faster = (0..3).any(|_| {
        let fast = ask(folder.path(), QUESTION, &on, &seen);
        let slow = ask(folder.path(), QUESTION, &off, &seen);
        for (name, asked) in [("on ", &fast), ("off", &slow)] {
            println!(
                "speculation {name}: answer {} ms after the end of speech",
                asked.answer_ms()
            );
        }
        // Without it, a second filler covers the wait.
        let answer = |asked: &Asked| {
            let said = asked.answer["said"].as_array().and_then(|said| said.last());
            let said = said.and_then(Value::as_str).expect("an answer");
            said.trim_start_matches("One moment. ").to_owned()
        };
        // A voice without a core for seconds gives up.
        if answer(&fast) != answer(&slow) {
            println!("{} but {}", answer(&fast), answer(&slow));
            return false;
        }
        let runs = fast.answer["records"][0]["runs"].as_array();
        let committed = runs.and_then(|runs| {
            let mut runs = runs.iter();
            runs.find(|run| run["fate"]["kind"] == "committed")
        });
        let run = committed.expect("a committed run");
        assert!(run["source"].is_string(), "it ran early: {run}");
        assert!(slow.answer["records"][0]["runs"][0]["source"].is_null());
        (fast.requests.0, slow.requests.0) == (1, 1) && fast.answer_ms() < slow.answer_ms()
    });
    assert!(
        faster,
        "three times the answer was no sooner or another, or the service was asked in vain"
    );
}

#[test]
fn a_discarded_run_leaves_no_trace() {
    let _alone = common::alone_blocking();
    let folder = tempfile::tempdir().expect("a folder");
    let seen = Arc::<Seen>::default();
    let address = serve(seen.clone());
    let config = configure(folder.path(), address, true, &weather());
    let asked = ask(folder.path(), UNCALLED, &config, &seen);
    assert_eq!(asked.answer["said"], json!(["All right, your test works."]));
    let told = asked.events.lines().filter(|line| {
        !line.contains("\"type\":\"speculation\"") && !line.contains("\"type\":\"turn_recorded\"")
    });
    for line in told {
        assert!(
            !line.contains("get_weather") && !line.contains("temperature"),
            "{line}"
        );
    }
    assert!(
        !asked.events.contains("temperature"),
        "no result is in any event"
    );
    let (started, _) = asked.requests;
    let records = &asked.answer["records"];
    assert!(
        started > 0,
        "the words alone were reason enough to ask: {records:#}"
    );
    assert!(started <= 3, "so many a turn: {records:#}");
}
