//! A server of language models with a tool cache, over real sockets: it is given results while it answers, and
//! continues by itself after a call.

use crate::support;
use crate::support::live::{self, Call, Heard, Hears, said, tone};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use support::Server;
use tokio::sync::{Notify, mpsc, watch};
use undertone::llm::remote::Settings;
use undertone::llm::{Calls, Prompts, Remote};
use undertone::prediction::{PredictError, Prediction, Predictor, Question, Source};
use undertone::session::Builders;
use undertone::tools::{
    CallContext, Declaration, Effect, Eligibility, Registry, Tool, ToolError, ToolSpec,
};

/// The words of the server's own answer to the call.
const GONE_ON: &str = "It is sunny.";

/// The words of the answer to a request that has the result.
const ASKED_AGAIN: &str = "It is as the result says.";

/// The server's behaviour in its first answer.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// The time that it waits after it has a result.
    waits: Option<Duration>,
    city: &'static str,
    /// The words with which it continues after the call, and whether the answer ends there.
    goes_on: Option<(&'static str, bool)>,
}

const HIT: Plan = Plan {
    waits: Some(Duration::ZERO),
    city: "Boulder",
    goes_on: Some((GONE_ON, true)),
};

/// The scripted server, as its handlers see it.
#[derive(Clone)]
struct Engine {
    plan: Plan,
    /// The bodies of requests for answers.
    asked: mpsc::Sender<Value>,
    /// Results, each with the answer that it is for.
    given: Arc<watch::Sender<Vec<(String, Value)>>>,
}

/// A test's view of the server.
struct Seen {
    asked: mpsc::Receiver<Value>,
    given: Arc<watch::Sender<Vec<(String, Value)>>>,
}

async fn complete(State(engine): State<Engine>, body: String) -> Body {
    let asked: Value = serde_json::from_str(&body).expect("JSON");
    let messages = asked["messages"].as_array().expect("messages").clone();
    let has_result = messages.iter().any(|message| message["role"] == "tool");
    drop(engine.asked.try_send(asked));
    let (pieces, body) = mpsc::channel(16);
    tokio::spawn(async move {
        match has_result {
            true => again(&pieces).await,
            false => first(&engine, &pieces).await,
        }
    });
    let next = async |mut body: mpsc::Receiver<String>| {
        let piece = body.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), body))
    };
    Body::from_stream(stream::unfold(body, next))
}

async fn send(pieces: &mpsc::Sender<String>, id: &str, delta: Value, finish: Option<&str>) {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": id, "object": "chat.completion.chunk", "choices": [choice]});
    drop(pieces.send(format!("data: {chunk}\n\n")).await);
}

async fn again(pieces: &mpsc::Sender<String>) {
    send(
        pieces,
        "again",
        json!({"content": ASKED_AGAIN}),
        Some("stop"),
    )
    .await;
}

async fn first(engine: &Engine, pieces: &mpsc::Sender<String>) {
    let plan = engine.plan;
    send(pieces, "first", json!({"role": "assistant"}), None).await;
    if let Some(more) = plan.waits {
        let mut given = engine.given.subscribe();
        drop(given.wait_for(|given| !given.is_empty()).await);
        tokio::time::sleep(more).await;
    }
    let arguments = json!({"city": plan.city}).to_string();
    let function = json!({"name": "weather", "arguments": arguments});
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
    send(pieces, "first", json!({"tool_calls": [call]}), None).await;
    let Some((words, ends)) = plan.goes_on else {
        return send(pieces, "first", json!({}), Some("tool_calls")).await;
    };
    let used = json!([{"tool_call_id": "call_1"}]);
    send(pieces, "first", json!({"tool_outputs": used}), None).await;
    send(pieces, "first", json!({"content": words}), None).await;
    match ends {
        true => send(pieces, "first", json!({}), Some("stop")).await,
        false => pieces.closed().await,
    }
}

async fn give(
    State(engine): State<Engine>,
    Path(response): Path<String>,
    body: String,
) -> (StatusCode, String) {
    let results: Vec<Value> = serde_json::from_str(&body).expect("a list");
    let cached = json!({"cached": results.len()}).to_string();
    engine.given.send_modify(|given| {
        given.extend(results.into_iter().map(|result| (response.clone(), result)));
    });
    (StatusCode::OK, cached)
}

/// A language model on a server with this plan.
fn model(plan: Plan, has_cache: bool) -> (Remote, Seen) {
    let (asked, requests) = mpsc::channel(64);
    let given = Arc::new(watch::Sender::default());
    let engine = Engine {
        plan,
        asked,
        given: Arc::clone(&given),
    };
    let mut routes = Router::new().route("/v1/chat/completions", post(complete));
    if has_cache {
        routes = routes.route("/cache-tool-output/{response}", post(give));
    }
    let address = support::serve_on_a_thread(routes.with_state(engine));
    let url = format!("http://{address}/v1").parse().expect("a URL");
    let settings = Settings {
        calls: Calls::Native,
        tool_cache: true,
        ..Settings::new(url, "m")
    };
    let prompts = Prompts::default().for_calls(Calls::Native);
    let remote = Remote::new(settings, prompts).expect("a client");
    let asked = requests;
    (remote, Seen { asked, given })
}

/// The weather of a city. That of Denver takes until `denver`.
struct Weather {
    declaration: Declaration,
    denver: Arc<Notify>,
}

impl Tool for Weather {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let city = arguments["city"].as_str().unwrap_or_default().to_owned();
        let denver = Arc::clone(&self.denver);
        let weather = async move {
            if city == "Denver" {
                denver.notified().await;
            }
            Ok(json!({"sky": format!("blue over {city}")}))
        };
        weather.boxed()
    }
}

/// Predicts the weather of Boulder, whatever is said.
struct Guesses;

impl Predictor for Guesses {
    fn predict(
        &self,
        _: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        let arguments = Map::from_iter([("city".to_owned(), json!("Boulder"))]);
        let weather = Prediction {
            tool: "weather".into(),
            arguments,
            confidence: 0.9,
            source: Source::Draft,
            open: Vec::new(),
        };
        std::future::ready(Ok(vec![weather])).boxed()
    }
}

fn serve(remote: Remote, ttl: Duration, denver: &Arc<Notify>) -> Server {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: "weather".into(),
        description: "The weather of a city.".into(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}},
            "required": ["city"]}),
    };
    let mut declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(10));
    declaration.speculation.eligibility = Eligibility::Full;
    declaration.speculation.ttl = ttl;
    let mut tools = Registry::new();
    let weather = Weather {
        declaration,
        denver: Arc::clone(denver),
    };
    tools.register(Arc::new(weather)).expect("a tool");
    let heard = |_: &[f32]| Ok("What is the weather in Boulder?".into());
    live::serve(Builders {
        asr: Box::new(move || Ok(Box::new(Hears(heard)))),
        predictors: vec![Arc::new(Guesses)],
        tools: tools.into(),
        ..live::without_models(Arc::new(remote))
    })
}

/// A long time for a result, compared with a test.
const LASTING: Duration = Duration::from_secs(3_600);

/// Asks for the weather. Returns all events of the turn, whose record is the last.
async fn ask(call: &mut Call) -> Vec<Heard> {
    call.say(&tone(700)).await;
    call.until("undertone.turn_record").await
}

fn runs(events: &[Heard]) -> Vec<(String, String)> {
    let record = &events.last().expect("a record").event;
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let run = |run: &Value| (text(&run["arguments"]["city"]), text(&run["fate"]["kind"]));
    let runs = record["runs"].as_array().expect("runs");
    runs.iter().map(run).collect()
}

fn continued(events: &[Heard]) -> u64 {
    let record = &events.last().expect("a record").event;
    record["continued"].as_u64().unwrap_or(0)
}

/// The messages of the next request, without the system prompt.
async fn next_messages(seen: &mut Seen) -> Vec<Value> {
    let asked = seen.asked.recv().await.expect("a request");
    let messages = asked["messages"].as_array().expect("messages");
    messages[1..].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_was_given_in_time_is_answered_in_the_same_response() {
    let (remote, mut seen) = model(HIT, true);
    let server = serve(remote, LASTING, &Arc::default());
    let mut call = Call::to(&server).await;
    let events = ask(&mut call).await;
    assert_eq!(said(&events), GONE_ON);
    assert_eq!(runs(&events), [("Boulder".into(), "committed".into())]);
    assert_eq!(continued(&events), 1);
    let (response, result) = seen.given.borrow()[0].clone();
    assert_eq!(response, "first");
    let keep_alive = result["keep_alive"].as_f64().expect("seconds");
    assert!(keep_alive > 0.0 && keep_alive <= LASTING.as_secs_f64());
    let expected = json!({
        "name": "weather", "params": {"city": "Boulder"},
        "output": r#"{"sky":"blue over Boulder"}"#, "keep_alive": keep_alive,
    });
    assert_eq!(result, expected);
    let mut asked = vec![next_messages(&mut seen).await];
    while let Ok(more) = seen.asked.try_recv() {
        asked.push(more["messages"].as_array().expect("messages").clone());
    }
    let with_result = |messages: &Vec<Value>| messages.iter().any(|m| m["role"] == "tool");
    assert!(!asked.iter().any(with_result), "the model was asked again");
    // The next turn has everything in its history.
    let later = ask(&mut call).await;
    assert_eq!(said(&later), ASKED_AGAIN);
    let messages = next_messages(&mut seen).await;
    let roles: Vec<_> = messages.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(messages[2]["content"], r#"{"sky":"blue over Boulder"}"#);
    // The second question may have begun before all of it was heard.
    let words = messages[3]["content"].as_str().expect("words");
    assert!(GONE_ON.starts_with(words), "{words}");
}

/// Whatever happened in the first answer, the second has the result and is heard alone. The weather of Denver is
/// known when its call was committed.
async fn asked_again(plan: Plan, ttl: Duration, has_cache: bool) -> (Vec<Heard>, Seen) {
    let (remote, seen) = model(plan, has_cache);
    let denver = Arc::default();
    let server = serve(remote, ttl, &denver);
    let mut call = Call::to(&server).await;
    call.say(&tone(700)).await;
    let mut events = vec![call.next().await];
    while events
        .last()
        .is_some_and(|heard| heard.event["item"]["type"] != "mcp_call")
    {
        events.push(call.next().await);
    }
    denver.notify_one();
    events.extend(call.until("undertone.turn_record").await);
    assert_eq!(said(&events), ASKED_AGAIN);
    assert_eq!(continued(&events), 0);
    (events, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_the_result_ends_with_the_call() {
    let miss = Plan {
        goes_on: None,
        ..HIT
    };
    let (events, _seen) = asked_again(miss, LASTING, true).await;
    assert_eq!(runs(&events), [("Boulder".into(), "committed".into())]);
    let (events, _seen) = asked_again(
        Plan {
            waits: None,
            ..miss
        },
        LASTING,
        false,
    )
    .await;
    assert_eq!(runs(&events), [("Boulder".into(), "committed".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_call_with_other_arguments_is_not_heard() {
    let other = Plan {
        city: "Denver",
        ..HIT
    };
    let (events, mut seen) = asked_again(other, LASTING, true).await;
    assert!(runs(&events).contains(&("Denver".into(), "committed".into())));
    let mut messages = next_messages(&mut seen).await;
    while !messages.iter().any(|message| message["role"] == "tool") {
        messages = next_messages(&mut seen).await;
    }
    assert_eq!(messages[2]["content"], r#"{"sky":"blue over Denver"}"#);
}

/// The server keeps the result for longer than it was told to.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_result_that_has_expired_is_not_heard() {
    let ttl = Duration::from_secs(4);
    let late = Plan {
        waits: Some(ttl * 2),
        ..HIT
    };
    let (events, seen) = asked_again(late, ttl, true).await;
    assert!(runs(&events).len() > 1);
    let given = seen.given.borrow();
    let keep_alive = given[0].1["keep_alive"].as_f64().expect("seconds");
    assert!(keep_alive <= ttl.as_secs_f64());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interruption_ends_the_servers_answer_and_the_call_stays() {
    let endless = Plan {
        goes_on: Some(("It is sunny, and it stays so for the whole day. ", false)),
        ..HIT
    };
    let (remote, mut seen) = model(endless, true);
    let server = serve(remote, LASTING, &Arc::default());
    let mut call = Call::to(&server).await;
    call.say(&tone(700)).await;
    call.until("response.output_audio.delta").await;
    call.say(&tone(700)).await;
    let mut events = call.until("response.done").await;
    let status = &events.pop().expect("an event").event["response"]["status"];
    assert_eq!(status, "cancelled");
    call.until("response.done").await;
    let mut messages = next_messages(&mut seen).await;
    while !messages.iter().any(|message| message["role"] == "tool") {
        messages = next_messages(&mut seen).await;
    }
    assert_eq!(messages[1]["tool_calls"][0]["function"]["name"], "weather");
    assert_eq!(messages[2]["content"], r#"{"sky":"blue over Boulder"}"#);
}
