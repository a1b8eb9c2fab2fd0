//! A Realtime client whose own tool runs before the model has called it, over a real WebSocket.

use crate::support::Server;
use crate::support::live::{self, Call, Heard, Hears, said, tone};
use crate::{common, support};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;
use undertone::cli::engines::builders;
use undertone::config::{Environment, Flags, load};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Llm, LlmStream, Message, Prompt};
use undertone::prediction::{PredictError, Prediction, Predictor, Question, Source};
use undertone::session::{Builders, Observers};

/// The user's speech, ms: long enough for a call to begin before it ends.
const LONG: usize = 60_000;

/// Predicts the order that the client's tool can look up.
struct Guesses;

impl Predictor for Guesses {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        let arguments = json!({"order": "A12"}).as_object().cloned();
        let order = Prediction {
            tool: "get_order".into(),
            arguments: arguments.unwrap_or_default(),
            confidence: 0.9,
            source: Source::Draft,
            open: Vec::new(),
        };
        let asks = question.evidence.text.contains("order");
        let predicted = asks.then_some(order).into_iter().collect();
        std::future::ready(Ok(predicted)).boxed()
    }
}

/// A server that hears a question about an order, and whose model calls the client's tool for `order`.
fn serve(order: &str) -> (Server, Scripted) {
    let call =
        format!("<speech>Let me look that up.</speech><tool>get_order(order=\"{order}\")</tool>");
    let llm = Scripted::default()
        .on(Cue::words("order"), call.as_str())
        .on(
            Cue::result("get_order"),
            "<speech>It arrives tomorrow.</speech>",
        );
    let heard = |_: &[f32]| Ok("Where is my order A12?".into());
    let server = live::serve(Builders {
        asr: Box::new(move || Ok(Box::new(Hears(heard)))),
        predictors: vec![Arc::new(Guesses)],
        ..live::without_models(Arc::new(llm.clone()))
    });
    (server, llm)
}

/// A client without vendor events that declares its tool with this `undertone` field.
async fn open(server: &Server, undertone: Value) -> Call {
    let mut call = Call::at(server, "/v1/realtime").await.expect("a session");
    let mut tool = json!({
        "type": "function", "name": "get_order", "description": "Where an order is.",
        "parameters": {"type": "object", "properties": {"order": {"type": "string"}},
            "required": ["order"]},
    });
    if !undertone.is_null() {
        tool["undertone"] = undertone.clone();
    }
    let session = json!({"type": "realtime", "tools": [tool]});
    call.send(json!({"type": "session.update", "session": session}))
        .await;
    let updated = call.until("session.updated").await;
    let echoed = &updated.last().expect("an event").event["session"]["tools"][0];
    assert_eq!(echoed["undertone"], undertone);
    call
}

fn early() -> Value {
    json!({"effect": "read", "early": true})
}

/// Speaks until the server asks for an early call. Returns its id.
async fn until_early_call(call: &mut Call) -> Value {
    call.say(&tone(LONG)).await;
    let events = call.until("undertone.early_call.started").await;
    let asked = &events.last().expect("an event").event;
    assert_eq!(asked["name"], "get_order");
    assert_eq!(asked["arguments"], r#"{"order":"A12"}"#);
    assert_eq!(asked["speculative"], true);
    asked["call_id"].clone()
}

async fn answer(call: &mut Call, id: &Value) {
    let item = json!({
        "type": "function_call_output", "call_id": id, "output": "{\"arrives\":\"tomorrow\"}",
    });
    call.send(json!({"type": "conversation.item.create", "item": item}))
        .await;
}

fn no_errors(events: &[Heard]) {
    let error = events.iter().find(|heard| heard.is("error"));
    assert!(error.is_none(), "{error:?}");
}

fn place(events: &[Heard], wanted: impl Fn(&Value) -> bool) -> usize {
    let place = events.iter().position(|heard| wanted(&heard.event));
    place.unwrap_or_else(|| panic!("not in {events:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_output_is_the_answer_of_the_same_response() {
    let (server, llm) = serve("A12");
    let mut call = open(&server, early()).await;
    let id = until_early_call(&mut call).await;
    answer(&mut call, &id).await;
    call.hush().await;
    let events = call.until("response.done").await;
    no_errors(&events);
    let called = place(&events, |event| {
        event["type"] == "response.function_call_arguments.done" && event["call_id"] == id
    });
    let output = place(&events, |event| {
        event["type"] == "conversation.item.added"
            && event["item"]["type"] == "function_call_output"
            && event["item"]["call_id"] == id
    });
    assert!(called < output);
    assert!(said(&events).contains("It arrives tomorrow."));
    let result = llm.asked(Cue::result("get_order")).await;
    assert!(format!("{result:?}").contains("tomorrow"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_after_the_commit_is_waited_for() {
    let (server, _llm) = serve("A12");
    let mut call = open(&server, early()).await;
    let id = until_early_call(&mut call).await;
    call.hush().await;
    let called = call.until("response.function_call_arguments.done").await;
    assert_eq!(called.last().expect("a call").event["call_id"], id);
    // As a client does that treats it as an ordinary call.
    answer(&mut call, &id).await;
    call.send(json!({"type": "response.create"})).await;
    let events = call.until("response.done").await;
    no_errors(&events);
    assert!(said(&events).contains("It arrives tomorrow."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_guess_is_discarded_and_its_output_is_not_used() {
    let (server, llm) = serve("B7");
    let mut call = open(&server, early()).await;
    let id = until_early_call(&mut call).await;
    call.hush().await;
    let mut events = call.until("response.function_call_arguments.done").await;
    let called = events.last().expect("a call").event.clone();
    assert_ne!(called["call_id"], id);
    assert_eq!(called["arguments"], r#"{"order":"B7"}"#);
    // The output for the wrong guess comes late, which is not an error.
    answer(&mut call, &called["call_id"]).await;
    call.send(json!({"type": "response.create"})).await;
    let is_answered = |events: &[Heard]| said(events).contains("It arrives tomorrow.");
    let is_told = |events: &[Heard]| {
        let mut told = events.iter().map(|heard| &heard.event);
        told.any(|event| {
            event["type"] == "undertone.early_call.discarded" && event["call_id"] == id
        })
    };
    while !is_answered(&events) || !is_told(&events) {
        events.push(call.next().await);
    }
    answer(&mut call, &id).await;
    call.send(json!({"type": "conversation.item.retrieve", "item_id": "none"}))
        .await;
    events.extend(call.until("error").await);
    let error = &events.pop().expect("an error").event["error"];
    assert_eq!(error["code"], "item_retrieve_invalid_item_id");
    no_errors(&events);
    assert_eq!(outputs(&llm.asked(Cue::result("get_order")).await), 1);
}

fn outputs(prompt: &Prompt) -> usize {
    let is_output = |message: &&Message| matches!(message, Message::ToolResult { .. });
    prompt.messages.iter().filter(is_output).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_early_tools_sees_no_events_of_ours() {
    let (server, _llm) = serve("A12");
    let mut call = open(&server, Value::Null).await;
    call.say(&tone(700)).await;
    let mut events = call.until("response.function_call_arguments.done").await;
    let id = events.last().expect("a call").event["call_id"].clone();
    events.extend(call.until("response.done").await);
    answer(&mut call, &id).await;
    call.send(json!({"type": "response.create"})).await;
    events.extend(call.until("response.done").await);
    assert!(said(&events).contains("It arrives tomorrow."));
    let ours = events.iter().find(|heard| {
        let kind = heard.event["type"].as_str().unwrap_or_default();
        kind.starts_with("undertone.")
    });
    assert!(ours.is_none(), "{ours:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_writes_must_not_run_early() {
    let (server, _llm) = serve("A12");
    let mut call = Call::at(&server, "/v1/realtime").await.expect("a session");
    let tool = json!({
        "type": "function", "name": "pay", "undertone": {"effect": "write", "early": true},
    });
    let session = json!({"type": "realtime", "tools": [tool]});
    call.send(json!({"type": "session.update", "session": session}))
        .await;
    let refused = call.until("error").await;
    let error = &refused.last().expect("an event").event["error"];
    assert_eq!(error["param"], "session.tools[0].undertone.effect");
}

/// A model that writes nothing until the test sets the flag.
struct Waiting(Scripted, Arc<watch::Sender<bool>>);

impl Llm for Waiting {
    fn name(&self) -> &str {
        "waiting"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let (answer, mut open) = (self.0.generate(prompt), self.1.subscribe());
        let waits = async move {
            drop(open.wait_for(|open| *open).await);
            answer
        };
        stream::once(waits).flatten().boxed()
    }
}

/// A tool of the client, with examples in other words than the question.
fn air_quality() -> Value {
    json!({
        "type": "function", "name": "get_air_quality",
        "description": "How clean the air in a city is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
            "required": ["city"]},
        "undertone": {
            "effect": "read", "early": true,
            "examples": [
                "how clean is the air in Rome", "is there smog in Madrid today",
                "tell me about the air in Berlin", "can I breathe the air in Vienna",
                "how bad is the air pollution in Oslo",
            ],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoken_question_begins_the_clients_call_before_the_model_makes_it() {
    let _alone = common::alone().await;
    let speech = tokio::task::spawn_blocking(|| {
        let mut booth = common::Booth::new(&common::weights());
        booth.say("What is the air quality in Paris?", 24_000)
    });
    let speech = speech.await.expect("speech");
    let called = "<speech>Let me check.</speech><tool>get_air_quality(city=\"Paris\")</tool>";
    let answered = "<speech>The air in Paris is good.</speech>";
    let llm = Scripted::default()
        .on(Cue::result("get_air_quality"), answered)
        .on(Cue::Always, called);
    let open = Arc::new(watch::Sender::new(false));
    let llm = Waiting(llm, open.clone());
    let folder = tempfile::tempdir().expect("a folder");
    let server = live::serve(Builders {
        llm: Arc::new(llm),
        ..shipped(&folder)
    });
    let mut call = Call::to(&server).await;
    let session = json!({"type": "realtime", "tools": [air_quality()]});
    call.send(json!({"type": "session.update", "session": session}))
        .await;
    call.until("session.updated").await;
    call.say(&speech).await;
    let begun = call.until("undertone.early_call.started").await;
    let begun = &begun.last().expect("an event").event;
    assert_eq!(begun["arguments"], r#"{"city":"Paris"}"#);
    answer(&mut call, &begun["call_id"]).await;
    open.send_replace(true);
    let events = call.until("undertone.turn_record").await;
    no_errors(&events);
    assert!(said(&events).contains("The air in Paris is good."));
    let record = &events.last().expect("a record").event;
    let run = &record["runs"][0];
    assert_eq!(run["fate"]["kind"], "committed", "{record}");
    assert!(
        run["started"].as_u64() < run["fate"]["at"].as_u64(),
        "{run}"
    );
    let predicted = record["predictions"].as_array().expect("predictions");
    let by_example = |one: &Value| one["source"] == "example" && one["tool"] == "get_air_quality";
    assert!(predicted.iter().any(by_example), "{record}");
}

/// The shipped server, but with long timeouts and a journal of its own.
fn shipped(folder: &tempfile::TempDir) -> Builders {
    let loaded = load(&Flags::default(), &Environment::default());
    let mut config = loaded.expect("the defaults").config;
    config.cache = Some(support::real::cache());
    config.tools.journal = folder.path().join("journal.jsonl");
    let shipped = builders(&config, Observers::default()).expect("the models");
    Builders {
        policy: live::patient(shipped.policy),
        ..shipped
    }
}

/// The question resembles an example, but not the tool's name or description. The tool does not run early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_local_brain_calls_a_clients_tool_by_its_examples() {
    let _alone = common::alone().await;
    let folder = tempfile::tempdir().expect("a folder");
    let server = live::serve(shipped(&folder));
    let mut tool = air_quality();
    tool["undertone"]["early"] = json!(false);
    let (mut call, question) = (Call::to(&server).await, "Is there any smog in Paris?");
    let ask = async |call: &mut Call, tool: &Value| {
        let session = json!({"type": "realtime", "tools": [tool]});
        call.send(json!({"type": "session.update", "session": session}))
            .await;
        let content = json!([{"type": "input_text", "text": question}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        call.send(json!({"type": "conversation.item.create", "item": item}))
            .await;
        call.send(json!({"type": "response.create"})).await;
        call.until("response.done").await
    };
    let events = ask(&mut call, &tool).await;
    no_errors(&events);
    let called = place(&events, |event| {
        event["type"] == "response.function_call_arguments.done"
    });
    assert_eq!(events[called].event["name"], "get_air_quality");
    assert_eq!(events[called].event["arguments"], r#"{"city":"Paris"}"#);
    // Without examples, it does not understand the question.
    tool["undertone"] = Value::Null;
    let mut other = Call::to(&server).await;
    let events = ask(&mut other, &tool).await;
    let calls = events
        .iter()
        .filter(|heard| heard.is("response.function_call_arguments.done"));
    assert_eq!(calls.count(), 0);
}
