//! Spoken questions for the shipped read tools, over the wire, with the shipped settings and models: the tool
//! has started when the model commits its call. And calls that the model begins: their tools start before they are
//! complete.

use crate::{common, support};
use axum::body::Body;
use axum::routing::post;
use futures_util::stream;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::live::Call;
use support::{Server, local};
use tokio::sync::Notify;
use undertone::llm::remote::Settings;
use undertone::llm::{Prompts, Remote};
use undertone::session::{self, Observers, SessionOptions};

/// Ten questions for tools that need no network, each in other words than their examples.
const QUESTIONS: [&str; 10] = [
    "What time is it right now?",
    "What is the time in Tokyo?",
    "What day is it today?",
    "What is twelve times seven?",
    "How much is nine minus four?",
    "How many miles are ten kilometers?",
    "Which timers are running?",
    "What is on my calendar tomorrow?",
    "What is my savings account balance?",
    "Please read me my notes.",
];

/// The least number of them that start before their commit: a busy machine runs nothing early.
const EARLY: usize = 7;

/// Asks in a session of its own. Returns the turn's record.
async fn ask(server: &Server, question: &[i16]) -> Value {
    let mut call = Call::to(server).await;
    call.until("session.created").await;
    call.say(question).await;
    let turn = call.until("undertone.turn_record").await;
    turn.last().expect("a record").event.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_read_tools_start_before_their_commit() {
    let _alone = common::alone().await;
    let questions = tokio::task::spawn_blocking(|| {
        let mut booth = common::Booth::new(&common::weights());
        QUESTIONS.map(|question| booth.say(question, 24_000))
    });
    let questions = questions.await.expect("speech");
    let engines = support::real::shipped(|_| (), Observers::default());
    let open = move |options: SessionOptions| Ok(session::open(&engines, &options));
    let server = Server::serve(undertone::server::App::new(local(), Arc::new(open)));
    let mut early = 0;
    for (question, speech) in QUESTIONS.iter().zip(&questions) {
        let record = ask(&server, speech).await;
        let runs = record["runs"].as_array().expect("runs");
        let began_early = runs.iter().any(|run| {
            let committed = &run["fate"]["at"];
            run["fate"]["kind"] == "committed"
                && !run["source"].is_null()
                && run["started"].as_u64() < committed.as_u64()
        });
        early += usize::from(began_early);
        println!("{began_early}: {question} {}", record["runs"]);
    }
    println!("{early} of {} started before their commit", QUESTIONS.len());
    assert!(early >= EARLY, "{early} of {}", QUESTIONS.len());
}

/// The data of a chat completion stream with these deltas.
fn deltas(deltas: &[Value]) -> String {
    let data = deltas
        .iter()
        .map(|delta| json!({"choices": [{"index": 0, "delta": delta}]}));
    data.map(|data| format!("data: {data}\n\n")).collect()
}

/// A chat completions server. Its first answer to [`REQUEST`] is `begun`, and after `go` it is `ended`; all others
/// are words.
fn model(begun: String, ended: String, go: Arc<Notify>) -> Remote {
    let has_called = Arc::new(AtomicBool::new(false));
    let answer = move |asked: String| {
        let first = asked.contains(REQUEST) && !has_called.swap(true, Ordering::Relaxed);
        let pieces = match first {
            true => vec![(begun.clone(), false), (ended.clone(), true)],
            false => vec![(deltas(&[json!({"content": "That is it."})]), false)],
        };
        let go = Arc::clone(&go);
        let body = stream::unfold((pieces.into_iter(), go), async |(mut pieces, go)| {
            let (piece, waits) = pieces.next()?;
            if waits {
                go.notified().await;
            }
            Some((Ok::<_, std::io::Error>(piece), (pieces, go)))
        });
        let done = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
        let end = stream::once(async move { Ok(format!("data: {done}\n\ndata: [DONE]\n\n")) });
        std::future::ready(Body::from_stream(stream::StreamExt::chain(body, end)))
    };
    let routes = axum::Router::new().route("/v1/chat/completions", post(answer));
    let address = support::serve_on_a_thread(routes);
    let url = format!("http://{address}/v1").parse().expect("a URL");
    Remote::new(Settings::new(url, "m"), Prompts::default()).expect("a client")
}

/// Something that no source of predictions knows.
const REQUEST: &str = "Would you do that for me?";

/// Asks a model that begins with `begun` the [`REQUEST`]. It ends with `ended` only
/// when the tool has started. Returns the record of the run.
async fn run_of_a_call(tool: &str, begun: &[Value], ended: &[Value]) -> Value {
    let go = Arc::new(Notify::new());
    let llm = model(deltas(begun), deltas(ended), Arc::clone(&go));
    let engines = support::real::shipped_with(Arc::new(llm));
    let open = move |options: SessionOptions| Ok(session::open(&engines, &options));
    let server = Server::serve(undertone::server::App::new(local(), Arc::new(open)));
    let mut call = Call::to(&server).await;
    call.until("session.created").await;
    let content = json!([{"type": "input_text", "text": REQUEST}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    call.send(json!({"type": "conversation.item.create", "item": item}))
        .await;
    call.send(json!({"type": "response.create"})).await;
    loop {
        let event = call.next().await.event;
        assert_ne!(event["type"], "response.done", "nothing has started");
        if event["type"] == "undertone.speculation" && event["kind"] == "started" {
            assert_eq!(event["tool"], tool);
            break;
        }
    }
    go.notify_one();
    let turn = call.until("undertone.turn_record").await;
    let record = &turn.last().expect("a record").event;
    record["runs"][0].clone()
}

#[track_caller]
fn began_before_its_commit(run: &Value) {
    assert_eq!(run["source"], "stream", "{run}");
    assert_eq!(run["fate"]["kind"], "committed", "{run}");
    assert!(
        run["started"].as_u64() < run["fate"]["at"].as_u64(),
        "{run}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shipped_tool_starts_before_its_call_is_complete() {
    let text = |text: &str| json!({ "content": text });
    let name = [
        text("<speech>One moment.</speech><tool>"),
        text("list_timers("),
    ];
    let run = run_of_a_call("list_timers", &name, &[text(")</tool>")]).await;
    began_before_its_commit(&run);
    let arguments = [text("<tool>calculate("), text("expression=\"6*7\"")];
    let run = run_of_a_call("calculate", &arguments, &[text(")"), text("</tool>")]).await;
    began_before_its_commit(&run);
}

/// No native call is requested, but a model that makes one is understood.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shipped_tool_starts_before_its_native_call_is_complete() {
    let call = |function: Value| json!({"tool_calls": [{"index": 0, "function": function}]});
    let begun = [
        call(json!({"name": "calculate", "arguments": ""})),
        call(json!({"arguments": "{\"expression\": "})),
        call(json!({"arguments": "\"6*7\""})),
    ];
    let run = run_of_a_call("calculate", &begun, &[call(json!({"arguments": "}"}))]).await;
    began_before_its_commit(&run);
}
