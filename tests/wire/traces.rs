//! Traces of conversations over the wire: a collector that decodes them with OpenTelemetry's own messages, and collectors
//! that are gone or never answer.

use crate::common;
use crate::support::live::{self, Call, Hears, said, tone};
use crate::support::program::{self, Program, answer, ask};
use crate::support::{PATIENCE, Server};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::prediction::{PredictError, Prediction, Predictor, Question, Source};
use undertone::session::{Builders, Observers};
use undertone::tools::{
    CallContext, Declaration, Effect, Eligibility, Registry, Tool, ToolError, ToolSpec,
};
use undertone::traces::{Sampler, TraceSettings, Traces};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");

/// A collector of its own process.
struct Collector {
    url: String,
    lines: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Collector {
    async fn start() -> Self {
        let python = PathBuf::from(FOLDER).join(".venv/bin/python");
        assert!(python.exists(), "run `make test-tools`");
        let mut process = Command::new(python)
            .arg("collector.py")
            .current_dir(FOLDER)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("Python runs");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut collector = Self {
            url: String::new(),
            lines,
            _process: process,
        };
        let port = collector.next().await["port"].clone();
        collector.url = format!("http://127.0.0.1:{port}");
        collector
    }

    async fn next(&mut self) -> Value {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.expect("in time").expect("text").expect("it runs");
        serde_json::from_str(&line).expect("JSON")
    }

    /// All requests until the span of a conversation.
    async fn conversation(&mut self) -> Trace {
        let mut requests = Vec::new();
        loop {
            requests.push(self.next().await);
            let trace = Trace(requests);
            if trace.spans().any(|span| span["name"] == "conversation") {
                return trace;
            }
            requests = trace.0;
        }
    }
}

/// The requests with one conversation.
struct Trace(Vec<Value>);

impl Trace {
    fn spans(&self) -> impl Iterator<Item = &Value> {
        let spans = self
            .0
            .iter()
            .filter_map(|request| request["spans"].as_array());
        spans.flatten()
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.spans().filter(move |span| span["name"] == name)
    }

    fn one<'a>(&'a self, name: &'a str) -> &'a Value {
        let mut found = self.named(name);
        let span = found.next();
        let span = span.unwrap_or_else(|| panic!("no span {name}: {:#?}", self.0));
        assert!(found.next().is_none(), "two spans {name}: {:#?}", self.0);
        span
    }

    fn text(&self) -> String {
        json!(self.0).to_string()
    }
}

fn at(span: &Value, name: &str) -> u64 {
    span[name].as_u64().expect("a time")
}

fn event(span: &Value, name: &str) -> u64 {
    let mut events = span["events"].as_array().expect("events").iter();
    let found = events.find(|event| event["name"] == name);
    at(
        found.unwrap_or_else(|| panic!("no {name} in {span:#}")),
        "at",
    )
}

/// Two tools, of which the model calls one.
const TOOLS: [&str; 2] = ["find_order", "find_stock"];

const ARTICLE: &str = "A12";

/// The user's speech, ms: it lasts until the tools have begun.
const LONG: usize = 60_000;

/// Listens until both tools have begun, before the user has finished.
async fn until_both_began(call: &mut Call) {
    let mut began = BTreeSet::new();
    while began.len() < TOOLS.len() {
        let event = call.next().await.event;
        if event["type"] == "undertone.speculation" && event["kind"] == "started" {
            began.insert(event["tool"].as_str().expect("a name").to_owned());
        }
    }
}

struct Finds(Declaration);

impl Tool for Finds {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        _: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        std::future::ready(Ok(json!("tomorrow"))).boxed()
    }
}

/// Predicts a call of each tool.
struct Guesses;

impl Predictor for Guesses {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        let arguments = json!({"article": ARTICLE}).as_object().cloned();
        let predicted = TOOLS.map(|tool| Prediction {
            tool: tool.into(),
            arguments: arguments.clone().unwrap_or_default(),
            confidence: 0.9,
            source: Source::Draft,
            open: Vec::new(),
        });
        let asks = question.evidence.text.contains("order");
        let predicted = predicted.into_iter().filter(|_| asks).collect();
        std::future::ready(Ok(predicted)).boxed()
    }
}

/// Traces for a collector.
fn traces(url: &str, content: bool) -> Traces {
    let settings = TraceSettings {
        url: format!("{url}/v1/traces").parse().expect("a URL"),
        headers: reqwest::header::HeaderMap::new(),
        resource: vec![("service.name".into(), "test".into())],
        sampler: Sampler::default(),
        content,
    };
    Traces::new(settings).expect("traces")
}

/// A server that is asked for an order and finds it early.
fn serve(traces: Traces) -> Server {
    let mut tools = Registry::new();
    for name in TOOLS {
        let article = json!({"type": "string"});
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: name.replace('_', " "),
            parameters: json!({"type": "object", "properties": {"article": article}}),
        };
        let mut declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(10));
        declaration.speculation.eligibility = Eligibility::Full;
        declaration.speculation.ttl = Duration::from_secs(3_600);
        tools
            .register(Arc::new(Finds(declaration)))
            .expect("a tool");
    }
    let call =
        format!("<speech>One moment.</speech><tool>find_order(article=\"{ARTICLE}\")</tool>");
    let llm = Scripted::default()
        .on(Cue::words("order"), call.as_str())
        .on(
            Cue::result("find_order"),
            "<speech>It arrives soon.</speech>",
        );
    let heard = |_: &[f32]| Ok("Where is my order?".into());
    live::serve(Builders {
        asr: Box::new(move || Ok(Box::new(Hears(heard)))),
        predictors: vec![Arc::new(Guesses)],
        tools: tools.into(),
        observers: Observers {
            traces: Some(traces),
            ..Observers::default()
        },
        ..live::without_models(Arc::new(llm))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoken_turn_with_a_tool_that_ran_early_is_a_whole_trace_without_words() {
    let mut collector = Collector::start().await;
    let server = serve(traces(&collector.url, false));
    let mut call = Call::to(&server).await;
    call.say(&tone(LONG)).await;
    until_both_began(&mut call).await;
    call.hush().await;
    call.until("undertone.turn_record").await;
    drop(call);
    let trace = collector.conversation().await;

    let root = trace.one("conversation");
    let session = root["attributes"]["gen_ai.conversation.id"]
        .as_str()
        .expect("an id");
    assert_eq!(root["trace"], session.replace('-', ""));
    assert_eq!(root["parent"], "");
    assert_eq!(root["attributes"]["undertone.transport"], "realtime");
    assert_eq!(trace.0[0]["resource"]["service.name"], "test");
    assert_eq!(trace.0[0]["scope"], "undertone");

    let turn = trace.one("turn");
    assert_eq!(turn["parent"], root["id"]);
    assert_eq!(turn["attributes"]["undertone.turn.status"], "completed");
    assert!(turn["attributes"]["undertone.turn.first_audio_ms"].is_u64());
    for stage in ["vad", "asr", "end_of_turn", "chat scripted", "tts"] {
        assert!(
            trace.named(stage).next().is_some(),
            "{stage}: {:#?}",
            trace.0
        );
    }
    for span in trace.spans() {
        assert_eq!(span["trace"], root["trace"]);
        assert!(at(span, "began") <= at(span, "ended"), "{span:#}");
        if span["name"] != "conversation" && span["name"] != "turn" {
            assert_eq!(span["parent"], turn["id"], "{span:#}");
            assert!(at(turn, "began") <= at(span, "began"), "{span:#} {turn:#}");
            assert!(at(span, "ended") <= at(turn, "ended"), "{span:#} {turn:#}");
        }
    }
    let speech = trace.one("vad");
    assert_eq!(at(speech, "began"), at(turn, "began"));
    let finals = trace
        .named("asr")
        .filter(|asr| asr["attributes"]["undertone.asr.partial"] == false);
    assert!(finals.count() > 0);

    let found = trace.one("execute_tool find_order");
    let of = &found["attributes"];
    assert_eq!(of["gen_ai.operation.name"], "execute_tool");
    assert_eq!(of["gen_ai.tool.name"], "find_order");
    assert_eq!(of["undertone.tool.fate"], "committed");
    assert_eq!(of["undertone.tool.speculative"], true);
    assert_eq!(of["undertone.tool.source"], "draft");
    let call = of["gen_ai.tool.call.id"].as_str().expect("a call");
    assert!(call.starts_with(session), "{call}");
    assert!(at(found, "began") < event(found, "commit"), "{found:#}");
    assert!(
        at(found, "began") < at(speech, "ended"),
        "it began while the user spoke"
    );
    let unused = trace.one("execute_tool find_stock");
    assert_eq!(unused["attributes"]["undertone.tool.fate"], "discarded");

    let asked = trace.named("chat scripted");
    let used = asked.filter(|chat| chat["attributes"]["undertone.outcome"] != "discarded");
    let first = used
        .min_by_key(|chat| at(chat, "began"))
        .expect("a generation");
    assert_eq!(first["attributes"]["gen_ai.request.model"], "scripted");
    assert!(event(first, "first_token") >= at(first, "began"));
    assert!(first["attributes"]["gen_ai.response.time_to_first_chunk"].is_f64());

    let all = trace.text();
    for words in ["Where is", ARTICLE, "One moment", "arrives", "tomorrow"] {
        assert!(!all.contains(words), "{words} is in {all}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typed_turn_has_its_words_if_they_are_asked_for_and_joins_the_clients_trace() {
    let mut collector = Collector::start().await;
    let server = serve(traces(&collector.url, true));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let path = "/v1/realtime?vendor_events=1";
    let client = server.try_open(path, &[("traceparent", parent)]).await;
    let mut client = client.expect("a session");
    ask(&mut client, "Where is my order?").await;
    client.until("undertone.turn_record").await;
    drop(client);
    let trace = collector.conversation().await;
    let (root, turn) = (trace.one("conversation"), trace.one("turn"));
    assert_eq!(root["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(root["parent"], "00f067aa0ba902b7");
    assert_eq!(turn["parent"], root["id"]);
    assert_eq!(
        turn["attributes"]["undertone.turn.user_words"],
        "Where is my order?"
    );
    for spoken in ["vad", "asr", "end_of_turn"] {
        assert_eq!(
            trace.named(spoken).count(),
            0,
            "nobody spoke: {:#?}",
            trace.0
        );
    }
    let found = trace.one("execute_tool find_order");
    let arguments = &found["attributes"]["gen_ai.tool.call.arguments"];
    assert_eq!(arguments, &json!(format!("{{\"article\":\"{ARTICLE}\"}}")));
    let words = trace.named("tts");
    let words = words.map(|tts| &tts["attributes"]["undertone.tts.words"]);
    let words: Vec<_> = words.collect();
    assert_eq!(words.last(), Some(&&json!("It arrives soon.")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_trace_is_not_kept_has_none() {
    let mut collector = Collector::start().await;
    let server = serve(traces(&collector.url, false));
    let path = "/v1/realtime?vendor_events=1";
    let parent = |flags| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
    for flags in ["00", "01"] {
        let parent = parent(flags);
        let client = server.try_open(path, &[("traceparent", &parent)]).await;
        let mut client = client.expect("a session");
        ask(&mut client, "Where is my order?").await;
        client.until("undertone.turn_record").await;
    }
    let trace = collector.conversation().await;
    assert_eq!(trace.named("turn").count(), 1, "{:#?}", trace.0);
    assert_eq!(trace.one("conversation")["parent"], "00f067aa0ba902b7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collectors_that_are_gone_or_never_answer_harm_no_call_and_losses_are_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = format!("http://{}", silent.local_addr().expect("an address"));
    for url in ["http://127.0.0.1:9", silent.as_str()] {
        let traces = traces(url, false);
        let server = serve(traces.clone());
        for _ in 0..2 {
            let mut call = Call::to(&server).await;
            call.say(&tone(600)).await;
            let events = call.until("undertone.turn_record").await;
            assert!(said(&events).ends_with("It arrives soon."), "{events:?}");
        }
        assert!(server.get("/healthz", "").await.contains("200"));
        timeout(PATIENCE, traces.finish()).await.expect("it ends");
        assert!(traces.lost().get() > 0, "{url}");
    }
}

/// A folder with the program's settings.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = "[server]\nport = 0\n[playground]\ndemonstration = false\n";
    std::fs::write(folder.path().join("undertone.toml"), settings).expect("written");
    folder
}

/// The sampler was ignored, and everything was traced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_traces_what_opentelemetrys_sampler_keeps() {
    let mut collector = Collector::start().await;
    let folder = folder();
    for sampler in ["always_off", "always_on"] {
        let mut command = program::command(folder.path(), &common::weights(), "");
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
            .env("OTEL_TRACES_SAMPLER", sampler)
            .env("OTEL_SERVICE_NAME", sampler);
        let mut program = Program::start(command).await;
        let mut client = program.open(None).await.expect("a session");
        answer(&mut client, "What is twelve times seven?").await;
        client.socket.close(None).await.expect("closed");
        // It sends what waits before it ends.
        program.signal(Signal::TERM);
        assert!(program.ended().await.success());
    }
    let trace = collector.conversation().await;
    for request in &trace.0 {
        assert_eq!(request["resource"]["service.name"], "always_on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_honours_opentelemetrys_variables() {
    let mut collector = Collector::start().await;
    let folder = folder();
    let mut command = program::command(folder.path(), &common::weights(), "");
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20secret,x-tenant=7")
        .env("OTEL_SERVICE_NAME", "front-desk")
        .env(
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test,service.name=other",
        );
    let mut program = Program::start(command).await;
    let mut client = program.open(None).await.expect("a session");
    answer(&mut client, "What is twelve times seven?").await;
    client.socket.close(None).await.expect("closed");
    let trace = collector.conversation().await;
    let request = &trace.0[0];
    assert_eq!(request["headers"]["x-key"], "a secret");
    assert_eq!(request["headers"]["x-tenant"], "7");
    assert_eq!(request["resource"]["service.name"], "front-desk");
    assert_eq!(request["resource"]["deployment.environment.name"], "test");
    let turn = trace.one("turn");
    let tools: Vec<_> = trace
        .spans()
        .filter(|span| span["attributes"]["gen_ai.operation.name"] == "execute_tool")
        .collect();
    assert!(!tools.is_empty(), "{:#?}", trace.0);
    assert!(tools.iter().all(|tool| tool["parent"] == turn["id"]));
    let (status, metrics) = program.get("/metrics", None).await;
    assert_eq!(status, 200);
    assert!(
        metrics.contains("undertone_lost_total{what=\"span\"} 0"),
        "{metrics}"
    );
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());
}
