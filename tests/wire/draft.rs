//! A draft model beside the main one, over real sockets: two scripted model servers, and a client that sees which tools
//! start early.

use crate::support;
use axum::body::Body;
use axum::routing::post;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::sync::Arc;
use support::live::{Call, Heard, said, serve, without_models};
use support::{PATIENCE, Server};
use tokio::sync::mpsc;
use tokio::time::timeout;
use undertone::conversation::{DraftPolicy, Policy, Timeouts};
use undertone::llm::remote::{Dialect, Settings};
use undertone::llm::{Calls, Llm, Prompts, Remote};
use undertone::session::Builders;
use undertone::tools::{Registry, builtin};

/// The user's request. A prompt without it is a warm-up.
const REQUEST: &str = "Would you do that for me?";

pub(crate) const SAMPLES: u32 = 3;

/// The most turns that a draft model may take part in before the server stops asking it.
const TURNS: usize = 8;

/// A request to a model server. Dropping it ends the answer.
pub(crate) struct Asked {
    body: Value,
    pieces: mpsc::Sender<Value>,
}

impl Asked {
    /// Sends the data of an event.
    async fn send(&self, data: Value) {
        self.pieces.send(data).await.expect("the server listens");
    }

    /// Writes a part of the answer, markup included.
    pub(crate) async fn write(&self, text: &str) {
        let delta = json!({ "content": text });
        self.send(json!({"choices": [{"index": 0, "delta": delta}]}))
            .await;
    }

    /// Waits until the connection is closed.
    async fn closed(&self) {
        let closed = timeout(PATIENCE, self.pieces.closed());
        closed.await.expect("the connection is closed");
    }

    /// Whether the last message is the user's request rather than the result of a call.
    fn is_first_pass(&self) -> bool {
        let last = self.body["messages"].as_array().and_then(|all| all.last());
        last.is_some_and(|last| last.to_string().contains(REQUEST))
    }
}

/// A model server whose answers the test writes.
pub(crate) struct Model {
    llm: Arc<dyn Llm>,
    asked: mpsc::Receiver<Asked>,
}

impl Model {
    fn start(adapt: impl FnOnce(&mut Settings)) -> Self {
        let (requests, asked) = mpsc::channel(64);
        let answer = move |body: String| {
            let requests: mpsc::Sender<Asked> = requests.clone();
            async move {
                let (pieces, written) = mpsc::channel(64);
                let is_warm_up = !body.contains(REQUEST);
                let body = serde_json::from_str(&body).expect("JSON");
                let asked = Asked { body, pieces };
                match is_warm_up {
                    true => asked.write("Ready.").await,
                    false => drop(requests.send(asked).await),
                }
                let pieces = stream::unfold(written, async |mut written| {
                    let data = written.recv().await?;
                    Some((data, written))
                });
                let done = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
                let end = stream::iter([done, json!({"type": "message_stop"})]);
                let data = pieces.chain(end).map(|data| {
                    let kind = data["type"].as_str().unwrap_or("message");
                    Ok::<_, std::io::Error>(format!("event: {kind}\ndata: {data}\n\n"))
                });
                Body::from_stream(data)
            }
        };
        let routes = axum::Router::new()
            .route("/v1/chat/completions", post(answer.clone()))
            .route("/v1/messages", post(answer));
        let address = support::serve_on_a_thread(routes);
        let url = format!("http://{address}/v1").parse().expect("a URL");
        let mut settings = Settings::new(url, "m");
        adapt(&mut settings);
        let llm = Remote::new(settings, Prompts::default()).expect("a client");
        Self {
            llm: Arc::new(llm),
            asked,
        }
    }

    pub(crate) fn in_markup() -> Self {
        Self::start(|_| ())
    }

    pub(crate) async fn next(&mut self) -> Asked {
        let next = timeout(PATIENCE, self.asked.recv()).await;
        next.expect("in time").expect("a request")
    }

    /// The requests for all samples of one question.
    async fn samples(&mut self) -> [Asked; SAMPLES as usize] {
        [self.next().await, self.next().await, self.next().await]
    }

    /// From now on, writes these answers to the user's requests, and `after` to results.
    fn keeps_saying(mut self, first: &'static str, after: &'static str) {
        tokio::spawn(async move {
            while let Some(asked) = self.asked.recv().await {
                let text = if asked.is_first_pass() { first } else { after };
                asked.write(text).await;
            }
        });
    }
}

const SUM: &str = "<tool>calculate(expression=\"6*7\")</tool>";
const NINES: &str = "<tool>calculate(expression=\"9*9\")</tool>";
pub(crate) const ANSWER: &str = "<speech>That is forty-two.</speech>";

pub(crate) fn engines(main: &Model, draft: &Arc<dyn Llm>, policy: DraftPolicy) -> Builders {
    let mut tools = Registry::new();
    builtin::register(&mut tools).expect("no duplicates");
    let built = without_models(main.llm.clone());
    let mut speculation = built.policy.speculation;
    speculation.draft = Some(policy);
    // Assumed commits would be further generations of the main model, each with samples.
    speculation.assumed_per_turn = 0;
    Builders {
        draft: Some(draft.clone()),
        tools: tools.into(),
        policy: Policy {
            speculation,
            timeouts: Timeouts {
                thinking: built.policy.timeouts.generation_timeout,
                ..built.policy.timeouts
            },
            ..built.policy
        },
        ..built
    }
}

pub(crate) fn free() -> DraftPolicy {
    DraftPolicy {
        samples: SAMPLES,
        token_price: 0.0,
        token_cost_per_day: None,
    }
}

pub(crate) async fn call(server: &Server) -> Call {
    let mut call = Call::to(server).await;
    call.until("session.created").await;
    call
}

pub(crate) async fn ask(call: &mut Call) {
    let content = json!([{"type": "input_text", "text": REQUEST}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    call.send(json!({"type": "conversation.item.create", "item": item}))
        .await;
    call.send(json!({"type": "response.create"})).await;
}

/// The record of the turn, and all events until then.
pub(crate) async fn record(call: &mut Call) -> (Value, Vec<Heard>) {
    let events = call.until("undertone.turn_record").await;
    let record = events.last().expect("a record").event.clone();
    (record, events)
}

/// The next event of this kind about speculation.
pub(crate) async fn speculation(call: &mut Call, kind: &str) -> Value {
    loop {
        let event = call.next().await.event;
        assert_ne!(event["type"], "response.done", "{kind}: it never came");
        if event["type"] == "undertone.speculation" && event["kind"] == kind {
            return event;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_enough_samples_make_starts_before_the_model_commits_it() {
    let (mut main, mut draft) = (Model::in_markup(), Model::in_markup());
    let server = serve(engines(&main, &draft.llm, free()));
    let mut call = call(&server).await;
    ask(&mut call).await;
    let asked = main.next().await;
    let [first, second, third] = draft.samples().await;
    first.write(SUM).await;
    let predicted = speculation(&mut call, "predicted").await;
    let third_of_all = 1.0 / f64::from(SAMPLES);
    let confidence = predicted["prediction"]["confidence"].as_f64();
    assert!((confidence.expect("a share") - third_of_all).abs() < 1e-6);
    assert_eq!(predicted["prediction"]["decision"]["declined"], "unlikely");
    second.write(SUM).await;
    let started = speculation(&mut call, "started").await;
    assert_eq!(
        (&started["tool"], &started["source"]),
        (&json!("calculate"), &json!("draft"))
    );
    asked.write(SUM).await;
    drop(asked);
    main.next().await.write(ANSWER).await;
    draft.keeps_saying("", "");
    third.closed().await;
    let (record, events) = record(&mut call).await;
    let run = &record["runs"][0];
    assert_eq!(run["fate"]["kind"], "committed", "{run}");
    assert!(
        run["started"].as_u64() < run["fate"]["at"].as_u64(),
        "{run}"
    );
    let drafted = &record["drafts"][0];
    assert_eq!(drafted["accepted"], true, "{drafted}");
    assert_eq!(drafted["calls"], 2, "{drafted}");
    assert!(drafted["usage"]["input"].as_u64() > Some(0), "{drafted}");
    assert!(said(&events).contains("forty-two"), "{}", said(&events));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sample_is_stopped_at_its_first_complete_call() {
    let (mut main, mut draft) = (Model::in_markup(), Model::in_markup());
    let server = serve(engines(&main, &draft.llm, free()));
    let mut call = call(&server).await;
    ask(&mut call).await;
    let _silent = main.next().await;
    let [first, second, _third] = draft.samples().await;
    first
        .write("<speech>One moment.</speech><tool>calculate(")
        .await;
    second.write("<speech>One moment.</speech>").await;
    first.write("expression=\"6*7\")</tool>").await;
    first.closed().await;
    assert!(!second.pieces.is_closed(), "it has made no call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_samples_are_cancelled_when_the_model_commits() {
    let (mut main, mut draft) = (Model::in_markup(), Model::in_markup());
    let server = serve(engines(&main, &draft.llm, free()));
    let mut call = call(&server).await;
    ask(&mut call).await;
    let asked = main.next().await;
    let samples = draft.samples().await;
    asked.write(SUM).await;
    for sample in &samples {
        sample.closed().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_samples_are_cancelled_when_the_model_answers_and_nobody_hears_them() {
    let (mut main, mut draft) = (Model::in_markup(), Model::in_markup());
    let server = serve(engines(&main, &draft.llm, free()));
    let mut call = call(&server).await;
    ask(&mut call).await;
    let asked = main.next().await;
    let samples = draft.samples().await;
    for sample in &samples {
        sample.write("<speech>The draft says this.</speech>").await;
    }
    asked.write("<speech>I would rather not. ").await;
    asked.write("It is late.</speech>").await;
    for sample in &samples {
        sample.closed().await;
    }
    drop(asked);
    let (_, events) = record(&mut call).await;
    assert!(said(&events).contains("late"), "{}", said(&events));
    ask(&mut call).await;
    let again = main.next().await;
    let told = [said(&events), again.body.to_string()];
    assert!(!told.concat().contains("The draft says"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_the_draft_that_changes_something_is_refused() {
    let (mut main, mut draft) = (Model::in_markup(), Model::in_markup());
    let server = serve(engines(&main, &draft.llm, free()));
    let mut call = call(&server).await;
    ask(&mut call).await;
    let asked = main.next().await;
    for sample in draft.samples().await {
        sample.write("<tool>set_timer(seconds=60)</tool>").await;
        let predicted = speculation(&mut call, "predicted").await;
        let decision = &predicted["prediction"]["decision"];
        assert_eq!(decision["declined"], "forbidden", "{predicted}");
    }
    asked.write("<speech>No timer.</speech>").await;
    drop(asked);
    let (record, _) = record(&mut call).await;
    assert_eq!(record["runs"], json!([]));
}

/// Asks until the server no longer asks the draft model.
async fn is_asked_no_longer(call: &mut Call) {
    for turn in 0..TURNS {
        ask(call).await;
        let (record, _) = record(call).await;
        if record["drafts"].is_null() {
            return assert!(turn > 0, "it is asked at first");
        }
    }
    panic!("it is still asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_budget_the_draft_is_not_asked() {
    let (main, draft) = (Model::in_markup(), Model::in_markup());
    let policy = DraftPolicy {
        token_price: 1.0,
        token_cost_per_day: Some(1e-9),
        ..free()
    };
    let server = serve(engines(&main, &draft.llm, policy));
    main.keeps_saying(SUM, ANSWER);
    draft.keeps_saying(SUM, SUM);
    let mut first = call(&server).await;
    is_asked_no_longer(&mut first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_break_even_the_draft_is_not_asked() {
    let (main, draft) = (Model::in_markup(), Model::in_markup());
    let server = serve(engines(&main, &draft.llm, free()));
    main.keeps_saying(SUM, ANSWER);
    draft.keeps_saying(NINES, NINES);
    let mut first = call(&server).await;
    is_asked_no_longer(&mut first).await;
    // The draft model's record outlives the session.
    let mut second = call(&server).await;
    ask(&mut second).await;
    let (record, _) = record(&mut second).await;
    assert!(record["drafts"].is_null(), "{record}");
}

/// The data of a Messages stream that calls a tool.
fn tool_use() -> Vec<Value> {
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": "calculate", "input": {}});
    let input = json!({"type": "input_json_delta", "partial_json": "{\"expression\": \"6*7\"}"});
    let message = json!({"role": "assistant", "content": [], "usage": {"input_tokens": 5}});
    vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": input}),
        json!({"type": "content_block_stop", "index": 0}),
    ]
}

fn content(text: &str) -> Vec<Value> {
    vec![json!({"choices": [{"index": 0, "delta": {"content": text}}]})]
}

fn tool_call() -> Vec<Value> {
    let function = json!({"name": "calculate", "arguments": "{\"expression\": \"6*7\"}"});
    let calls = json!([{"index": 0, "id": "call_1", "type": "function", "function": function}]);
    let delta = json!({ "tool_calls": calls });
    vec![
        json!({"choices": [{"index": 0, "delta": delta}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_draft_speaks_any_dialect_and_calls_in_any_form() {
    let hermes = "<tool_call>{\"name\": \"calculate\", \"arguments\": {\"expression\": \"6*7\"}}</tool_call>";
    let forms = [
        (
            "markup",
            Dialect::ChatCompletions,
            Calls::Markup,
            content(SUM),
        ),
        (
            "hermes",
            Dialect::ChatCompletions,
            Calls::Markup,
            content(hermes),
        ),
        (
            "native",
            Dialect::ChatCompletions,
            Calls::Native,
            tool_call(),
        ),
        ("messages", Dialect::Messages, Calls::Native, tool_use()),
    ];
    for (name, dialect, calls, data) in forms {
        let mut main = Model::in_markup();
        let mut draft = Model::start(|settings| {
            (settings.dialect, settings.calls) = (dialect, calls);
        });
        let policy = DraftPolicy {
            samples: 1,
            ..free()
        };
        let server = serve(engines(&main, &draft.llm, policy));
        let mut call = call(&server).await;
        ask(&mut call).await;
        let _silent = main.next().await;
        let sample = draft.next().await;
        for data in data {
            sample.send(data).await;
        }
        drop(sample);
        let started = speculation(&mut call, "started").await;
        assert_eq!(started["source"], "draft", "{name}");
        assert_eq!(started["arguments"], json!({"expression": "6*7"}), "{name}");
    }
}
