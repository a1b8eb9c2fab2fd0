//! Answers of the real model, with and without the tool cache. They need SmolLM2: `make verify`.

use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use undertone_engine::cache::ToolCache;
use undertone_engine::chat::ChatRequest;
use undertone_engine::counters::Counters;
use undertone_engine::scheduler::{Choice, Event, Finish, Job, Settings, run};

/// The most tokens of an answer.
const TOKENS: usize = 64;

struct Engine {
    jobs: mpsc::Sender<Job>,
    cache: Arc<ToolCache>,
    counters: Arc<Counters>,
}

/// The engine of all tests: llama.cpp is set up once in a process.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(start)
}

fn start() -> Engine {
    let model = std::env::var_os("UNDERTONE_ENGINE_MODEL").expect("UNDERTONE_ENGINE_MODEL");
    let settings = Settings {
        model: PathBuf::from(model),
        threads: 1,
        slots: 4,
        context: 2048,
    };
    let (cache, counters) = (Arc::<ToolCache>::default(), Arc::<Counters>::default());
    let (jobs, incoming) = mpsc::channel(8);
    let (kept, counted) = (Arc::clone(&cache), Arc::clone(&counters));
    std::thread::spawn(move || run(&settings, &kept, &counted, incoming, || {}).expect("it runs"));
    Engine {
        jobs,
        cache,
        counters,
    }
}

/// An answer, up to a call that the client has to run.
#[derive(Debug, Default)]
struct Answer {
    words: String,
    calls: Vec<(String, Map<String, Value>)>,
    went_on: usize,
    took: Vec<Choice>,
    finish: Option<Finish>,
}

impl Answer {
    fn take(&mut self, event: Event) {
        match event {
            Event::Words(words) => self.words.push_str(&words),
            Event::Opened(name) => self.calls.push((name, Map::new())),
            Event::Called(arguments) => self.calls.last_mut().expect("a call").1 = arguments,
            Event::GoesOn => self.went_on += 1,
            Event::Took(choice) => self.took.push(choice),
            Event::Ended(finish, _) => self.finish = Some(finish),
            Event::Failed(reason) => panic!("{reason}"),
        }
    }
}

/// A result for a call.
type Given = (String, Map<String, Value>, String);

impl Engine {
    async fn start(&self, request: &ChatRequest, given: &[Given]) -> mpsc::Receiver<Event> {
        let (events, answer) = mpsc::channel(4_096);
        let response = format!("{:p}-{}", request, self.counters.now().requests);
        self.cache.open(&response);
        let posted: Vec<Value> = given
            .iter()
            .map(|(name, params, output)| json!({"name": name, "params": params, "output": output}))
            .collect();
        let posted = serde_json::from_value(json!(posted)).expect("results");
        self.cache.put(&response, posted);
        let job = Job {
            response,
            request: request.clone(),
            events,
        };
        self.jobs.send(job).await.expect("the engine runs");
        answer
    }

    async fn ask(&self, request: &ChatRequest, given: &[Given]) -> Answer {
        let mut events = self.start(request, given).await;
        let mut answer = Answer::default();
        while let Some(event) = events.recv().await {
            answer.take(event);
        }
        answer
    }

    /// The answer of a client that runs the calls itself, and what it gave for them.
    async fn ask_round_by_round(&self, request: &ChatRequest) -> (Answer, Vec<Given>) {
        let (mut request, mut all, mut given) = (request.clone(), Answer::default(), Vec::new());
        loop {
            let answer = self.ask(&request, &[]).await;
            all.words.push_str(&answer.words);
            all.took.extend(answer.took);
            all.finish = answer.finish;
            if answer.finish != Some(Finish::Calls) {
                return (all, given);
            }
            let (name, arguments) = answer.calls.into_iter().next().expect("a call");
            let output = output(&name, &arguments);
            request.add_call(&answer.words, (&name, &arguments), output.clone());
            given.push((name.clone(), arguments.clone(), output));
            all.calls.push((name, arguments));
        }
    }
}

/// The result of a tool.
fn output(name: &str, arguments: &Map<String, Value>) -> String {
    let n = Value::Object(arguments.clone()).to_string().len();
    match name {
        "get_weather" => json!({"sky": "cloudy", "degrees": n}).to_string(),
        "find_flight" => json!({"flight": format!("UA{n}"), "gate": "B7"}).to_string(),
        _ => json!({"table": n, "status": "free"}).to_string(),
    }
}

/// The request of a seed: a question, and tools with all kinds of arguments.
fn request(seed: usize) -> ChatRequest {
    let cities = ["Boulder", "Rome", "Oslo", "Lima", "Quito", "Kyoto", "Cairo"];
    let (from, to) = (cities[seed % 7], cities[(seed * 3 + 1) % 7]);
    let questions = [
        format!("What is the weather in {to}?"),
        format!("Is there a flight from {from} to {to} tomorrow, and will it rain?"),
        format!("Book a table for {} in {from}.", seed % 5 + 2),
        format!("I travel from {from} to {to}. What should I know?"),
    ];
    let function = |name: &str, properties: Value, required: Value| {
        let parameters = json!({
            "type": "object", "properties": properties, "required": required,
        });
        json!({"type": "function", "function": {
            "name": name, "description": name.replace('_', " "), "parameters": parameters,
        }})
    };
    let text = json!({"type": "string"});
    let tools = json!([
        function(
            "get_weather",
            json!({"city": text, "days": {"type": "integer"}}),
            json!(["city"]),
        ),
        function(
            "find_flight",
            json!({"from": text, "to": text, "direct": {"type": "boolean"}}),
            json!(["from", "to"]),
        ),
        function(
            "find_table",
            json!({"city": text, "meal": {"enum": ["lunch", "dinner"]}}),
            json!(["city", "meal"]),
        ),
    ]);
    let request = json!({
        "messages": [
            {"role": "system", "content": "You help travellers. Answer in one sentence."},
            {"role": "user", "content": questions[seed % 4]},
        ],
        "tools": tools, "forced_calls": 1 + seed % 2, "max_tokens": TOKENS,
    });
    serde_json::from_value(request).expect("a request")
}

/// The greatest difference of margins between two runs, as long as they take the same tokens; and both margins at
/// the first token that differs.
fn compare(a: &[Choice], b: &[Choice]) -> (f32, Option<(f32, f32)>) {
    let mut noise: f32 = 0.0;
    for (a, b) in a.iter().zip(b) {
        if a.token != b.token {
            return (noise, Some((a.margin, b.margin)));
        }
        if a.margin.is_finite() && b.margin.is_finite() {
            noise = noise.max((a.margin - b.margin).abs());
        }
    }
    (noise, None)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs SmolLM2"]
async fn fifty_answers_are_the_same_with_and_without_the_cache() {
    let engine = engine();
    let requests: Vec<ChatRequest> = (0..50).map(request).collect();
    let mut alone = Vec::new();
    for request in &requests {
        alone.push(engine.ask_round_by_round(request).await);
    }
    // The noise of batching: the same requests, four at once.
    let mut noise: f32 = 0.0;
    for (nth, four) in requests.chunks(4).enumerate() {
        let together = four
            .iter()
            .map(|request| engine.ask_round_by_round(request));
        let together = futures_util::future::join_all(together).await;
        for (at, (answer, _)) in together.iter().enumerate() {
            noise = noise.max(compare(&alone[nth * 4 + at].0.took, &answer.took).0);
        }
    }
    println!("noise of batching: {noise} between the two best logits");
    let before = engine.counters.now();
    let (mut same, mut close) = (0, 0);
    for (request, (serial, given)) in requests.iter().zip(&alone) {
        let cached = engine.ask(request, given).await;
        assert_eq!(given.len(), serial.calls.len());
        let (calls, words) = (&cached.calls, &cached.words);
        if (calls, words) == (&serial.calls, &serial.words) {
            assert_eq!(cached.went_on, serial.calls.len());
            same += 1;
            continue;
        }
        let (_, margins) = compare(&serial.took, &cached.took);
        let (a, b) = margins.expect("tokens that differ");
        println!("differs where the margins are {a} and {b}: {words:?}");
        assert!(a.min(b) <= noise, "{a} and {b} are no noise");
        close += 1;
    }
    println!("{same} of 50 are the same, {close} differ within the noise");
    println!("{:?}", engine.counters.now().since(before));
    assert!(engine.counters.now().since(before).validated_tokens > 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs SmolLM2"]
async fn a_wrong_result_changes_nothing() {
    let engine = engine();
    let before = engine.counters.now();
    for seed in 0..6 {
        let request = request(seed);
        let serial = engine.ask(&request, &[]).await;
        let (name, mut arguments) = serial.calls[0].clone();
        // Right at first, so that a part of the draft is taken.
        let last = arguments.keys().next_back().cloned().expect("an argument");
        arguments.insert(last, json!("Elsewhere"));
        let wrong = (name, arguments, "{}".to_owned());
        let answer = engine.ask(&request, &[wrong]).await;
        assert_eq!(answer.calls, serial.calls);
        assert_eq!(answer.finish, Some(Finish::Calls));
        assert_eq!(answer.went_on, 0);
    }
    let counts = engine.counters.now().since(before);
    assert!(counts.rejected_tokens > 0);
    assert_eq!(counts.cache_hits, 0);
}

/// The sequence stays: of a turn with two calls, only what is new is read.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs SmolLM2"]
async fn two_calls_with_the_cache_save_the_refills_and_the_round_trips() {
    let engine = engine();
    let request = request(1);
    let before = engine.counters.now();
    let (serial, given) = engine.ask_round_by_round(&request).await;
    let without = engine.counters.now().since(before);
    let before = engine.counters.now();
    let cached = engine.ask(&request, &given).await;
    let with = engine.counters.now().since(before);
    println!("without: {without:?}\nwith: {with:?}");
    assert_eq!(cached.calls, serial.calls);
    assert_eq!((without.requests, with.requests), (3, 1));
    assert_eq!((without.cache_hits, with.cache_hits), (0, 2));
    let read = |counts: undertone_engine::counters::Counts| {
        counts.prefilled_tokens + counts.appended_tokens
    };
    assert!(read(with) * 2 < read(without));
    assert!(with.forward_passes < without.forward_passes);
    assert!(with.decoded_tokens < without.decoded_tokens);
}
