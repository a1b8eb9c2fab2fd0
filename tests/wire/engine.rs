//! The reference engine (`engine/`) and the server together, over real sockets, with SmolLM2.

use crate::support::Server;
use crate::support::live::{self, Call, Hears, said, tone};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use undertone::llm::remote::Settings;
use undertone::llm::{Calls, GivenResult, Llm, LlmError, LlmStream, Prompt, Prompts, Remote};
use undertone::prediction::{PredictError, Prediction, Predictor, Question, Source};
use undertone::session::Builders;
use undertone::tools::{
    CallContext, Declaration, Effect, Eligibility, Registry, Tool, ToolError, ToolSpec,
};

/// Tools without arguments, so that every call of them is predicted rightly, and their results.
const TOOLS: [(&str, &str); 2] = [
    ("get_weather", "It is 21 degrees and sunny."),
    ("get_calendar", "There is one meeting, at ten."),
];

/// The most tokens of an answer, calls included.
const TOKENS: u32 = 64;

/// A running engine.
struct Engine {
    _process: Child,
    url: String,
}

impl Engine {
    async fn start() -> Self {
        let variable = |name: &str| {
            let value = std::env::var(name);
            value.unwrap_or_else(|_| panic!("{name} is not set: run `make verify`"))
        };
        let mut process = Command::new(variable("UNDERTONE_ENGINE"))
            .args(["--model", &variable("UNDERTONE_ENGINE_MODEL")])
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let url = lines.next_line().await.expect("text").expect("an address");
        Self {
            _process: process,
            url,
        }
    }

    /// Its own counts.
    async fn counts(&self) -> Value {
        let url = self.url.replace("/v1", "/counters");
        let answer = reqwest::get(url).await.expect("an answer");
        answer.json().await.expect("counts")
    }
}

/// A model that nobody warms up, so that all its requests are those of the turn.
struct Cold(Remote);

impl Llm for Cold {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        self.0.generate(prompt)
    }

    fn takes_results(&self) -> bool {
        self.0.takes_results()
    }

    fn give(
        &self,
        response: &str,
        result: GivenResult,
    ) -> BoxFuture<'static, Result<(), LlmError>> {
        self.0.give(response, result)
    }
}

/// A tool that returns a fixed text.
struct Fixed(Declaration, &'static str);

impl Tool for Fixed {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        _: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        std::future::ready(Ok(json!(self.1))).boxed()
    }
}

/// Predicts a call of each tool.
struct Guesses;

impl Predictor for Guesses {
    fn predict(
        &self,
        _: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        let predicted = TOOLS.map(|(tool, _)| Prediction {
            tool: tool.into(),
            arguments: Map::new(),
            confidence: 0.9,
            source: Source::Draft,
            open: Vec::new(),
        });
        std::future::ready(Ok(predicted.into())).boxed()
    }
}

fn serve(engine: &Engine, tool_cache: bool) -> Server {
    let mut tools = Registry::new();
    for (name, result) in TOOLS {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: name.replace('_', " "),
            parameters: json!({"type": "object", "properties": {}}),
        };
        let mut declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(10));
        declaration.speculation.eligibility = Eligibility::Full;
        declaration.speculation.ttl = Duration::from_secs(3_600);
        let tool = Fixed(declaration, result);
        tools.register(Arc::new(tool)).expect("a tool");
    }
    let settings = Settings {
        calls: Calls::Native,
        tool_cache,
        max_tokens: Some(TOKENS),
        extra_body: Map::from_iter([("forced_calls".to_owned(), json!(2))]),
        ..Settings::new(engine.url.parse().expect("a URL"), "smollm2")
    };
    let prompts = Prompts::default().for_calls(Calls::Native);
    let remote = Remote::new(settings, prompts).expect("a client");
    let heard = |_: &[f32]| Ok("How will my day be?".into());
    let mut builders = live::without_models(Arc::new(Cold(remote)));
    // Each of these asks for more answers; here the requests of a plain turn are counted.
    builders.policy.speculation.preemptive = false;
    builders.policy.speculation.assumed_per_turn = 0;
    live::serve(Builders {
        asr: Box::new(move || Ok(Box::new(Hears(heard)))),
        predictors: vec![Arc::new(Guesses)],
        tools: tools.into(),
        ..builders
    })
}

/// A spoken question. Returns the words, the record of the turn, and what the engine has counted.
async fn ask(engine: &Engine, tool_cache: bool) -> (String, Value, Value) {
    let server = serve(engine, tool_cache);
    let before = engine.counts().await;
    let mut call = Call::to(&server).await;
    call.say(&tone(700)).await;
    let events = call.until("undertone.turn_record").await;
    let mut counts = engine.counts().await;
    for (name, count) in counts.as_object_mut().expect("counts") {
        let earlier = before[name].as_u64().expect("a count");
        *count = json!(count.as_u64().expect("a count") - earlier);
    }
    let record = events.last().expect("a record").event.clone();
    (said(&events), record, counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it needs the reference engine and SmolLM2: `make verify`"]
async fn reference_engine_saves_the_refills_and_the_round_trips_of_two_calls() {
    let engine = Engine::start().await;
    let (words, record, plain) = ask(&engine, false).await;
    let (cached_words, cached_record, cached) = ask(&engine, true).await;
    println!("without the tool cache: {plain}");
    println!("with the tool cache:    {cached}");
    println!("{cached_words:?}");
    assert!(!words.is_empty());
    assert_eq!(cached_words, words);
    let committed = |record: &Value| {
        let runs = record["runs"].as_array().expect("runs").clone();
        let committed = runs.iter().filter(|run| run["fate"]["kind"] == "committed");
        committed.count()
    };
    assert_eq!((committed(&record), committed(&cached_record)), (2, 2));
    assert_eq!(cached_record["continued"], 2);
    assert_eq!(
        (&plain["requests"], &cached["requests"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(
        (&plain["cache_hits"], &cached["cache_hits"]),
        (&json!(0), &json!(2))
    );
    let count = |counts: &Value, name: &str| counts[name].as_u64().expect("a count");
    let read =
        |counts: &Value| count(counts, "prefilled_tokens") + count(counts, "appended_tokens");
    assert!(
        read(&cached) * 2 < read(&plain),
        "the prompt was read again"
    );
    assert!(count(&cached, "forward_passes") < count(&plain, "forward_passes"));
}
